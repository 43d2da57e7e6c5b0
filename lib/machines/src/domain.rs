//! Domains: their freshness (Diego LRP overview, "Domain Freshness") and their quotas.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::request::Requests;
use schemas::Timestamp;
use schemas::domain::Event;
use schemas::quota::{LimitDomain, Quotas};
use schemas::refusal::Refusal;
use schemas::stamp::Stamp;

/// Freshness of a domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freshness {
    pub refreshed_at: Timestamp,
    /// End of the freshness. `None` if it has no end.
    pub expires_at: Option<Timestamp>,
    /// Recent requests, with their answers.
    pub requests: Requests,
}

/// Quotas that an operator set for a domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainQuotas {
    pub quotas: Quotas,
    /// Recent requests, with their answers.
    pub requests: Requests,
}

/// Decides a refresh. The domain is fresh for `ttl` from now, or without end if `ttl` is `None`. A `ttl` of 0
/// ends the freshness.
#[must_use]
pub fn decide(ttl: Option<Duration>, now: Timestamp) -> Event {
    Event::Refreshed { expires_at: ttl.map(|ttl| now + ttl) }
}

/// Decides an operator's command on the quotas of a domain. Returns `None` if the quotas already have these
/// values.
///
/// # Errors
/// See [`LimitDomain::apply`].
pub fn decide_limit(known: Quotas, order: &LimitDomain) -> Result<Option<Event>, Refusal> {
    let quotas = order.apply(known)?;
    Ok((quotas != known).then_some(Event::Limited { quotas }))
}

/// Applies a refresh. `version` is the version of the domain after the decision.
#[must_use]
pub fn fold_refresh(
    known: Option<Freshness>,
    expires_at: Option<Timestamp>,
    stamp: &Stamp,
    version: u64,
) -> Freshness {
    let requests = remember_request(known.map(|known| known.requests), stamp, version);
    Freshness { refreshed_at: stamp.at, expires_at, requests }
}

/// Applies a change of quotas. `version` is the version of the domain after the decision.
#[must_use]
pub fn fold_quotas(known: Option<DomainQuotas>, quotas: Quotas, stamp: &Stamp, version: u64) -> DomainQuotas {
    DomainQuotas { quotas, requests: remember_request(known.map(|known| known.requests), stamp, version) }
}

fn remember_request(known: Option<Requests>, stamp: &Stamp, version: u64) -> Requests {
    let mut requests = known.unwrap_or_default();
    if let Some(request) = &stamp.request {
        requests.remember(request.clone(), version);
    }
    requests
}

impl Freshness {
    /// Returns `true` if the domain is fresh. Convergence stops undesired work only in a fresh domain.
    #[must_use]
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}
