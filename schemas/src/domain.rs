//! Domains and their freshness (Diego LRP overview, "Domain Freshness").

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::entry::Stamp;
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

/// What happens to domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client said that what is desired in the domain is up to date.
    Refreshed {
        /// When that stops being true; none: never.
        expires_at: Option<Timestamp>,
    },
}

/// A refresh: the domain is fresh for `ttl` from now, for ever without one. A `ttl` of 0 expires it.
#[must_use]
pub fn decide(ttl: Option<Duration>, now: Timestamp) -> Event {
    Event::Refreshed { expires_at: ttl.map(|ttl| now + ttl) }
}

/// Folds what happened in the decision that made this version.
#[must_use]
pub fn evolve(known: Option<Freshness>, event: &Event, stamp: &Stamp, version: u64) -> Freshness {
    let Event::Refreshed { expires_at } = event;
    let mut requests = known.map(|known| known.requests).unwrap_or_default();
    if let Some(request) = &stamp.request {
        requests.remember(request.clone(), version);
    }
    Freshness { refreshed_at: stamp.at, expires_at: *expires_at, requests }
}

impl Freshness {
    /// Whether convergence may stop what nobody desires.
    #[must_use]
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}
