//! Causes: each leads to an earlier decision, and the first of the chain is a command, a cell or the clock.

use std::collections::BTreeMap;

use schemas::Decision;
use schemas::entry::{Actor, Aggregate};
use schemas::names::DecisionId;

use super::Wrong;
use crate::Kind;

/// The first decision of the chain of each decision.
#[derive(Clone, Debug, Default)]
pub(super) struct Causes {
    first: BTreeMap<DecisionId, DecisionId>,
    /// Whether there are decisions that nobody can name.
    incomplete: bool,
}

impl Causes {
    /// Takes in decisions that are not judged, each with the first of its chain.
    pub(super) fn know(&mut self, decisions: Vec<(DecisionId, DecisionId)>) {
        self.first.extend(decisions);
    }

    /// There are decisions of which not even the ids can be read: from here on, a cause that is not known may be one of them.
    pub(super) const fn are_incomplete(&mut self) {
        self.incomplete = true;
    }

    pub(super) fn judge(&mut self, decision: &Decision) -> Vec<Wrong> {
        let Decision { id, cause, correlation, actor, .. } = decision;
        let mut wrong = vec![];
        let mut must = |holds: bool, what: String| {
            if !holds {
                wrong.push((Kind::Cause, what));
            }
        };
        match cause.map(|cause| (cause, self.first.get(&cause))) {
            None => {
                let what = format!("decision {id} begins a chain and names {correlation} as the first of it");
                must(id == correlation, what);
                let placed =
                    matches!(actor, Actor::Auctioneer(_)) && decision.aggregate != Aggregate::Cluster;
                let what = format!("{actor} decided {id} with no cause: an auctioneer begins nothing");
                must(!placed, what);
            }
            Some((cause, None)) => {
                let what = format!("decision {id} names {cause} as its cause, which was never made");
                must(self.incomplete, what);
            }
            Some((_, Some(first))) => {
                let what = format!(
                    "decision {id} names {correlation} as the first of its chain, and that of its cause is {first}"
                );
                must(first == correlation, what);
            }
        }
        let again = self.first.insert(*id, *correlation).is_some();
        must(!again, format!("decision {id} stands in the log twice"));
        wrong
    }
}
