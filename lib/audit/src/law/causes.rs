//! Rules for causes. Each cause is an earlier decision. A chain of causes starts with a command, a cell or
//! the clock.

use std::collections::BTreeMap;

use schemas::Decision;
use schemas::entry::Aggregate;
use schemas::names::DecisionId;
use schemas::stamp::Actor;

use super::Violation;
use crate::Kind;

/// First decision of the chain of each decision.
#[derive(Clone, Debug, Default)]
pub(super) struct Causes {
    first: BTreeMap<DecisionId, DecisionId>,
    /// `true` if the ids of some decisions cannot be read.
    incomplete: bool,
}

impl Causes {
    /// Adds decisions that are not checked, each with the first decision of its chain.
    pub(super) fn add_unjudged(&mut self, decisions: Vec<(DecisionId, DecisionId)>) {
        self.first.extend(decisions);
    }

    /// Records that the ids of some decisions cannot be read. After this call, an unknown cause may be one of
    /// these decisions.
    pub(super) const fn mark_incomplete(&mut self) {
        self.incomplete = true;
    }

    pub(super) fn judge(&mut self, decision: &Decision) -> Vec<Violation> {
        let Decision { id, cause, correlation, actor, .. } = decision;
        let mut wrong = vec![];
        let mut must = |holds: bool, what: String| {
            if !holds {
                wrong.push((Kind::Cause, what));
            }
        };
        match cause.map(|cause| (cause, self.first.get(&cause))) {
            None => {
                let what = format!(
                    "decision {id} has no cause but the correlation {correlation}: expected its own id"
                );
                must(id == correlation, what);
                let placed =
                    matches!(actor, Actor::Auctioneer(_)) && decision.aggregate != Aggregate::Cluster;
                let what =
                    format!("decision {id} of {actor} has no cause: an auctioneer cannot start a chain");
                must(!placed, what);
            }
            Some((cause, None)) => {
                let what = format!("decision {id} has the cause {cause}, which is not in the log");
                must(self.incomplete, what);
            }
            Some((_, Some(first))) => {
                let what = format!(
                    "decision {id} has the correlation {correlation}, but its cause has the correlation \
                     {first}"
                );
                must(first == correlation, what);
            }
        }
        let again = self.first.insert(*id, *correlation).is_some();
        must(!again, format!("decision {id} occurs twice in the log"));
        wrong
    }
}
