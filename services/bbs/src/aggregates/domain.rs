//! Domains.

use std::time::Duration;

use machines::domain;
use schemas::entry::{Aggregate, Event};
use schemas::names::Domain;
use schemas::quota::LimitDomain;
use schemas::subject::Subject;
use schemas::{Decision, Refusal};

use super::{Order, State, Target};
use crate::scratch::Scratch;

/// Command for a domain.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Marks the domain as fresh for this duration, or without a limit if `None`.
    Refresh(Option<Duration>),
    /// Changes quotas, on behalf of an operator.
    Limit(LimitDomain),
}

impl Target for Order<Domain, Command> {
    fn name(&self) -> String {
        format!("domain {}", self.key)
    }

    fn subject(&self, _: u16) -> Subject {
        Subject::Domain(self.key.clone())
    }

    fn state<'s>(&self, scratch: &'s Scratch<'_>) -> State<'s> {
        match &*self.command {
            Command::Refresh(_) => {
                let requests = scratch.domain(&self.key).map(|freshness| &freshness.requests);
                scratch.single(requests, scratch.changed.domains.contains_key(&self.key))
            }
            Command::Limit(_) => {
                let requests = scratch.limited(&self.key).map(|limited| &limited.requests);
                scratch.single(requests, scratch.changed.limited.contains_key(&self.key))
            }
        }
    }

    fn decide(&self, scratch: &Scratch<'_>) -> Result<Vec<Event>, Refusal> {
        match &*self.command {
            Command::Refresh(ttl) => Ok(vec![Event::Domain(domain::decide(*ttl, scratch.at))]),
            Command::Limit(order) => {
                let known = scratch.limited(&self.key).map(|limited| limited.quotas).unwrap_or_default();
                Ok(domain::decide_limit(known, order)?.into_iter().map(Event::Domain).collect())
            }
        }
    }

    fn aggregate(&self, _: &Scratch<'_>, _: &[Event]) -> Aggregate {
        Aggregate::Domain(self.key.clone())
    }
}

impl Scratch<'_> {
    pub(super) fn evolve_domain(&mut self, domain: &Domain, decision: &Decision) {
        let (stamp, version) = (decision.stamp(), decision.version);
        for event in decision.events.iter().filter_map(Event::as_domain) {
            match *event {
                schemas::domain::Event::Refreshed { expires_at } => {
                    let known = self.domain(domain).cloned();
                    let freshness = domain::fold_refresh(known, expires_at, &stamp, version);
                    self.changed.domains.insert(domain.clone(), freshness);
                }
                schemas::domain::Event::Limited { quotas } => {
                    let known = self.limited(domain).cloned();
                    let limited = domain::fold_quotas(known, quotas, &stamp, version);
                    self.changed.limited.insert(domain.clone(), limited);
                }
            }
        }
        self.single_version = version;
    }
}
