//! Quarantined entries. They are not folded into the World (the projected state), so later decisions about
//! the same aggregates cannot be checked against the state before them.
//!
//! A later version of the program wrote such an entry and continued from the resulting state. This version
//! reads only the decision ids and the aggregates of a quarantined entry. The ids may be causes of later
//! decisions. Checks of the aggregates resume with their next epoch.

use std::collections::{BTreeMap, BTreeSet};

use schemas::entry::Aggregate;
use schemas::names::DecisionId;
use schemas::{Decision, Subject, stored};
use serde::Deserialize;
use serde_json::Value;

/// Aggregates with quarantined entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Quarantine {
    /// Aggregates by their name in every epoch, each with the current knowledge of its state.
    unknown: BTreeMap<String, Knowledge>,
    /// Subjects of quarantined entries with unreadable aggregates. The set contains the aggregates of later
    /// decisions on the subject.
    subjects: BTreeMap<Subject, BTreeSet<String>>,
}

/// Knowledge of the state of an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// Every decision about the aggregate was folded.
    Known,
    /// A decision about the aggregate was quarantined, and the current decision is the first one after it.
    FirstUnknown,
    /// A decision about the aggregate was quarantined, and other decisions have followed.
    Unknown,
}

/// The decoded part of a quarantined entry.
#[derive(Deserialize)]
struct QuarantinedEntry {
    decisions: Vec<QuarantinedDecision>,
}

#[derive(Deserialize)]
struct QuarantinedDecision {
    id: DecisionId,
    correlation: DecisionId,
    aggregate: Value,
}

impl Quarantine {
    /// Records a quarantined entry. Returns the id of each decision, with the id of the first decision of its
    /// chain. `None` if the entry cannot be read.
    pub(super) fn record(&mut self, subject: &str, bytes: &[u8]) -> Option<Vec<(DecisionId, DecisionId)>> {
        let entry = serde_json::from_slice::<QuarantinedEntry>(bytes).ok();
        let about = entry.as_ref().and_then(|entry| {
            entry.decisions.iter().map(|one| aggregate_name(&one.aggregate)).collect::<Option<Vec<String>>>()
        });
        match about {
            Some(names) => self.unknown.extend(names.into_iter().map(|name| (name, Knowledge::FirstUnknown))),
            None => {
                self.subjects.extend(Subject::parse(subject).map(|subject| (subject, BTreeSet::new())));
            }
        }
        Some(entry?.decisions.into_iter().map(|one| (one.id, one.correlation)).collect())
    }

    /// Returns the knowledge of the state of the decision's aggregate before the decision.
    pub(super) fn standing(&mut self, decision: &Decision, shards: u16) -> Knowledge {
        if self.unknown.is_empty() && self.subjects.is_empty() {
            return Knowledge::Known;
        }
        let name = decision.aggregate.to_string();
        if let Some(met) = self.subjects.get_mut(&decision.aggregate.subject(shards))
            && met.insert(name.clone())
        {
            self.unknown.insert(name.clone(), Knowledge::FirstUnknown);
        }
        let known = self.unknown.get_mut(&name);
        known.map_or(Knowledge::Known, |known| std::mem::replace(known, Knowledge::Unknown))
    }

    /// Marks the decision's aggregate as known, because the decision starts a new epoch.
    pub(super) fn mark_known(&mut self, decision: &Decision) {
        self.unknown.remove(&decision.aggregate.to_string());
    }
}

/// Returns the name of an aggregate. `None` if this version does not know its kind.
fn aggregate_name(aggregate: &Value) -> Option<String> {
    let stored = stored::Aggregate::deserialize(aggregate).ok()?;
    Some(Aggregate::from(stored).to_string())
}
