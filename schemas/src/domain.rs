//! Domains: their freshness (Diego LRP overview, "Domain Freshness") and their quotas.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::entry::Stamp;
use crate::quota::{LimitDomain, Quotas};
use crate::refusal::Refusal;
use crate::request::Requests;

/// What is true of a domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freshness {
    /// When it was last refreshed.
    pub refreshed_at: Timestamp,
    /// When it stops being fresh; none: never.
    pub expires_at: Option<Timestamp>,
    /// The newest requests and their answers.
    pub requests: Requests,
}

/// Quotas that an operator set for a domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limited {
    /// The quotas.
    pub quotas: Quotas,
    /// The newest requests and their answers.
    pub requests: Requests,
}

/// What happens to domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client said that what is desired in the domain is up to date.
    Refreshed {
        /// When that stops being true; none: never.
        expires_at: Option<Timestamp>,
    },
    /// An operator changed the quotas.
    Limited {
        /// All quotas, with the changes.
        quotas: Quotas,
    },
}

/// A refresh: the domain is fresh for `ttl` from now, for ever without one. A `ttl` of 0 expires it.
#[must_use]
pub fn decide(ttl: Option<Duration>, now: Timestamp) -> Event {
    Event::Refreshed { expires_at: ttl.map(|ttl| now + ttl) }
}

/// Decides an operator's command on the quotas of a domain. `None` if the quotas have these values already.
///
/// # Errors
/// See [`LimitDomain::apply`].
pub fn decide_limit(known: Quotas, order: &LimitDomain) -> Result<Option<Event>, Refusal> {
    let quotas = order.apply(known)?;
    Ok((quotas != known).then_some(Event::Limited { quotas }))
}

/// Folds a refresh of a domain in the decision that made this version.
#[must_use]
pub fn refreshed(
    known: Option<Freshness>,
    expires_at: Option<Timestamp>,
    stamp: &Stamp,
    version: u64,
) -> Freshness {
    let requests = remembered(known.map(|known| known.requests), stamp, version);
    Freshness { refreshed_at: stamp.at, expires_at, requests }
}

/// Folds a change of quotas in the decision that made this version.
#[must_use]
pub fn limited(known: Option<Limited>, quotas: Quotas, stamp: &Stamp, version: u64) -> Limited {
    Limited { quotas, requests: remembered(known.map(|known| known.requests), stamp, version) }
}

fn remembered(known: Option<Requests>, stamp: &Stamp, version: u64) -> Requests {
    let mut requests = known.unwrap_or_default();
    if let Some(request) = &stamp.request {
        requests.remember(request.clone(), version);
    }
    requests
}

impl Freshness {
    /// Whether convergence may stop what nobody desires.
    #[must_use]
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}
