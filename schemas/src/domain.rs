//! Domains and their freshness (seed `003`, "Domain Freshness").

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// What is true of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freshness {
    /// When it was last refreshed.
    pub refreshed_at: Timestamp,
    /// When it stops being fresh; none: never.
    pub expires_at: Option<Timestamp>,
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

/// Folds what happened.
#[must_use]
pub const fn evolve(event: &Event, at: Timestamp) -> Freshness {
    let Event::Refreshed { expires_at } = event;
    Freshness { refreshed_at: at, expires_at: *expires_at }
}

impl Freshness {
    /// Whether convergence may stop what nobody desires.
    #[must_use]
    pub fn is_fresh(self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}
