//! Whether each decision was legal when it was made: told from the log alone, by the machines' own tables.
//!
//! A decision is judged against the World before its entry, with what earlier decisions of the same entry changed. What
//! depends on more than the log (what a container really did, which cell was known to be there, what fits where) is not
//! judged here; what the log can't show is in docs/audit.md.

mod causes;
mod draft;
mod fleet;
mod instances;
mod launchers;
mod rollouts;
mod tasks;

use std::collections::BTreeMap;

use projections::World;
use schemas::container::Epoch;
use schemas::entry::{Aggregate, Event};
use schemas::names::Domain;
use schemas::{Decision, Entry, Position};

use self::causes::Causes;
use self::draft::Draft;
use crate::{Finding, Kind};

/// What of the log has to be remembered beside the World: some hundred bytes for each decision.
#[derive(Clone, Debug, Default)]
pub struct Law {
    causes: Causes,
    /// The last version of what has its subject for itself: versions there count up, not by one.
    versions: BTreeMap<Aggregate, u64>,
}

/// What is wrong with a decision.
type Wrong = (Kind, String);

impl Law {
    /// Judges the next entry, before the World has folded it.
    pub fn judge(&mut self, world: &World, position: Position, entry: &Entry) -> Vec<Finding> {
        let mut draft = Draft::new(world);
        let mut findings = vec![];
        for decision in &entry.decisions {
            let mut wrong = vec![];
            wrong.extend(self.causes.judge(decision));
            wrong.extend(self.version(decision, &draft));
            wrong.extend(foreign(decision));
            wrong.extend(draft.judge(decision));
            findings.extend(
                wrong
                    .into_iter()
                    .map(|(kind, what)| Finding::at(kind, position, what).about(&decision.aggregate)),
            );
        }
        findings
    }

    /// Versions of processes and tasks of any kind count by one, others up.
    fn version(&mut self, decision: &Decision, draft: &Draft<'_>) -> Option<Wrong> {
        let Decision { aggregate, version, .. } = decision;
        let (last, right) = match draft.version(aggregate) {
            Some(last) => (last, *version == last + 1),
            None => {
                let last = self.versions.insert(aggregate.clone(), *version).unwrap_or_default();
                (last, *version > last)
            }
        };
        let what = || format!("version {version} follows version {last}");
        (!right).then(|| (Kind::Version, what()))
    }
}

/// An event that isn't of the machines of what the decision is about.
fn foreign(decision: &Decision) -> Option<Wrong> {
    let fits = |event: &&Event| match event {
        Event::Desired(_) | Event::Actual(_) | Event::Evacuating(_) | Event::Rollout(_) => {
            matches!(decision.aggregate, Aggregate::Process { .. })
        }
        Event::Evaluation(_) => {
            matches!(decision.aggregate, Aggregate::Process { .. } | Aggregate::Task { .. })
        }
        Event::Task(_) => matches!(decision.aggregate, Aggregate::Task { .. }),
        Event::Periodic(_) => matches!(decision.aggregate, Aggregate::Periodic { .. }),
        Event::Parameterised(_) => matches!(decision.aggregate, Aggregate::Parameterised { .. }),
        Event::Domain(_) => matches!(decision.aggregate, Aggregate::Domain(_)),
        Event::Cell(_) => matches!(decision.aggregate, Aggregate::Cell(_)),
        Event::Cluster(_) => matches!(decision.aggregate, Aggregate::Cluster),
    };
    let stray = decision.events.iter().find(|event| !fits(event))?;
    Some((Kind::Illegal, format!("{} does not happen to {}", stray.type_name(), decision.aggregate)))
}

/// What is wrong with the life and the domain that a decision names.
fn life(decision: &Decision, known: Option<(&Domain, Epoch)>, begins: bool) -> Option<Wrong> {
    let (domain, epoch) = match &decision.aggregate {
        Aggregate::Process { domain, epoch, .. }
        | Aggregate::Task { domain, epoch, .. }
        | Aggregate::Periodic { domain, epoch, .. }
        | Aggregate::Parameterised { domain, epoch, .. } => (domain, *epoch),
        Aggregate::Domain(_) | Aggregate::Cell(_) | Aggregate::Cluster => return None,
    };
    let what = match known {
        _ if begins && epoch != Epoch(decision.at) => {
            format!("a life that begins at {} is called {}", decision.at, epoch.0)
        }
        Some((_, before)) if begins && before.0 >= epoch.0 => {
            format!("a life that begins at {} is not later than that of {}", epoch.0, before.0)
        }
        Some((_, before)) if !begins && before != epoch => {
            format!("it is in its life of {}, and the decision is of that of {}", before.0, epoch.0)
        }
        Some((known, _)) if !begins && known != domain => {
            format!("it is in domain {known}, and the decision is of domain {domain}")
        }
        Some(_) | None => return None,
    };
    Some((Kind::Version, what))
}
