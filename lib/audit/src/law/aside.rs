//! What operators set aside: nobody folded it, so what follows of it can't be judged by the state before it.
//!
//! A later program wrote such an entry, and went on from it. Its decisions' ids and what they are about are read as far as
//! this program can: the first are causes of others, and the second are judged again from their next beginning on.

use std::collections::{BTreeMap, BTreeSet};

use schemas::entry::Aggregate;
use schemas::names::DecisionId;
use schemas::{Decision, Subject, stored};
use serde::Deserialize;
use serde_json::Value;

/// About what something was set aside.
#[derive(Clone, Debug, Default)]
pub(super) struct Aside {
    /// Aggregates, each as it is called whichever life it is in, with how it stands since.
    unknown: BTreeMap<String, Standing>,
    /// Subjects on which something stands that doesn't say what it is about, with the aggregates that were met there since.
    subjects: BTreeMap<Subject, BTreeSet<String>>,
}

/// How an aggregate stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Everything about it was folded.
    Known,
    /// Something about it was set aside, and this is the first decision behind that.
    Next,
    /// Something about it was set aside further before.
    Unknown,
}

/// As much of an entry as is read of what was set aside.
#[derive(Deserialize)]
struct Entry {
    decisions: Vec<Of>,
}

#[derive(Deserialize)]
struct Of {
    id: DecisionId,
    correlation: DecisionId,
    aggregate: Value,
}

impl Aside {
    /// Takes note of what was set aside. Answers its decisions, each with the first of its chain; none: it can't be told.
    pub(super) fn note(&mut self, subject: &str, bytes: &[u8]) -> Option<Vec<(DecisionId, DecisionId)>> {
        let entry = serde_json::from_slice::<Entry>(bytes).ok();
        let about = entry.as_ref().and_then(|entry| {
            entry.decisions.iter().map(|one| name(&one.aggregate)).collect::<Option<Vec<String>>>()
        });
        match about {
            Some(names) => self.unknown.extend(names.into_iter().map(|name| (name, Standing::Next))),
            None => {
                self.subjects.extend(Subject::parse(subject).map(|subject| (subject, BTreeSet::new())));
            }
        }
        Some(entry?.decisions.into_iter().map(|one| (one.id, one.correlation)).collect())
    }

    /// How what a decision is about stood before it.
    pub(super) fn standing(&mut self, decision: &Decision, shards: u16) -> Standing {
        if self.unknown.is_empty() && self.subjects.is_empty() {
            return Standing::Known;
        }
        let name = decision.aggregate.to_string();
        if let Some(met) = self.subjects.get_mut(&decision.aggregate.subject(shards))
            && met.insert(name.clone())
        {
            self.unknown.insert(name.clone(), Standing::Next);
        }
        let known = self.unknown.get_mut(&name);
        known.map_or(Standing::Known, |known| std::mem::replace(known, Standing::Unknown))
    }

    /// What a decision is about begins anew with it: all of that is known.
    pub(super) fn begins(&mut self, decision: &Decision) {
        self.unknown.remove(&decision.aggregate.to_string());
    }
}

/// How an aggregate is called, if this program knows its kind.
fn name(aggregate: &Value) -> Option<String> {
    let stored = stored::Aggregate::deserialize(aggregate).ok()?;
    Some(Aggregate::from(stored).to_string())
}
