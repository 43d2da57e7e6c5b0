//! Legality of decisions. Each decision is judged (checked for legality) from the log alone, by the tables of
//! the state machines.
//!
//! The judge checks a decision against the World (the state folded from the log) before the decision's entry.
//! Earlier decisions of the same entry are applied to this World first. Facts outside the log are not judged:
//! the behaviour of containers, the cells that the decider knew, and the fit of a placement.
//! docs/guides/verify-the-log.md describes the limits of the log.

mod causes;
mod draft;
mod fleet;
mod instances;
mod launchers;
mod quarantine;
mod rollouts;
mod tasks;

use std::collections::BTreeMap;

use projections::World;
use schemas::container::Epoch;
use schemas::entry::{Aggregate, Event};
use schemas::names::Domain;
use schemas::{Decision, Entry, Position, cell, desired, parameterised, periodic, task};

use self::causes::Causes;
use self::draft::Draft;
use self::quarantine::{Knowledge, Quarantine};
use crate::{Finding, Kind};

/// Judge of decisions. In addition to the World, the judge stores about a hundred bytes per decision.
#[derive(Clone, Debug, Default)]
pub struct Law {
    causes: Causes,
    /// Last version of each aggregate that has a subject of its own.
    versions: BTreeMap<Aggregate, u64>,
    quarantine: Quarantine,
}

/// Kind and description of a violation.
type Violation = (Kind, String);

impl Law {
    /// Judges the next entry. The caller must not have folded the entry into the World yet.
    pub fn judge(&mut self, world: &World, position: Position, entry: &Entry) -> Vec<Finding> {
        let mut draft = Draft::new(world, position);
        let mut findings = vec![];
        for decision in &entry.decisions {
            let standing = self.quarantine.standing(decision, world.shards());
            let mut wrong = vec![];
            wrong.extend(self.causes.judge(decision));
            wrong.extend(self.version(decision, &draft, standing));
            wrong.extend(check_event_types(decision));
            let anew = standing != Knowledge::Known && draft.starts_clean_epoch(decision);
            let judged = draft.judge(decision);
            if standing == Knowledge::Known {
                wrong.extend(judged);
            }
            if anew {
                self.quarantine.mark_known(decision);
            }
            findings.extend(wrong.into_iter().map(|(kind, what)| {
                Finding::at_position(kind, position, what).with_target(&decision.aggregate)
            }));
        }
        findings
    }

    /// Records an entry that an operator quarantined. The World does not fold the entry. The aggregates of
    /// the entry are not judged until their next epoch. Later decisions may name decisions of the entry as
    /// causes.
    pub fn quarantine(&mut self, subject: &str, bytes: &[u8]) {
        match self.quarantine.record(subject, bytes) {
            Some(decisions) => self.causes.add_unjudged(decisions),
            None => self.causes.mark_incomplete(),
        }
    }

    /// Checks that the version follows the last one. The first version after a quarantined entry is accepted,
    /// because the last one is unknown.
    fn version(&mut self, decision: &Decision, draft: &Draft<'_>, standing: Knowledge) -> Option<Violation> {
        let Decision { aggregate, version, .. } = decision;
        let last = match draft.version(aggregate) {
            Some(last) => last,
            None => self.versions.insert(aggregate.clone(), *version).unwrap_or_default(),
        };
        let right = *version == last + 1 || standing == Knowledge::FirstUnknown;
        (!right).then(|| (Kind::Version, format!("version {version} follows version {last}")))
    }
}

/// Checks that all events belong to state machines of the decision's aggregate.
fn check_event_types(decision: &Decision) -> Option<Violation> {
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
    Some((Kind::Illegal, format!("event {} does not belong to {}", stray.type_name(), decision.aggregate)))
}

/// Returns `true` if the decision starts an epoch. The epoch of a cell starts when the cell appears.
fn starts_epoch(decision: &Decision) -> bool {
    let first = decision.events.first();
    match &decision.aggregate {
        Aggregate::Process { .. } => {
            decision.events.iter().any(|event| matches!(event, Event::Desired(desired::Event::Desired(_))))
        }
        Aggregate::Task { .. } => matches!(first, Some(Event::Task(task::Event::Desired(_)))),
        Aggregate::Periodic { .. } => {
            let first = decision.events.iter().find_map(Event::as_periodic);
            matches!(first, Some(periodic::Event::Desired { .. }))
        }
        Aggregate::Parameterised { .. } => {
            let first = decision.events.iter().find_map(Event::as_parameterised);
            matches!(first, Some(parameterised::Event::Desired { .. }))
        }
        Aggregate::Cell(_) => matches!(first, Some(Event::Cell(cell::Event::Appeared(_)))),
        Aggregate::Domain(_) | Aggregate::Cluster => false,
    }
}

/// Checks the epoch and the domain that the decision names.
fn life(decision: &Decision, known: Option<(&Domain, Epoch)>) -> Option<Violation> {
    let begins = starts_epoch(decision);
    let (domain, epoch) = match &decision.aggregate {
        Aggregate::Process { domain, epoch, .. }
        | Aggregate::Task { domain, epoch, .. }
        | Aggregate::Periodic { domain, epoch, .. }
        | Aggregate::Parameterised { domain, epoch, .. } => (domain, *epoch),
        Aggregate::Domain(_) | Aggregate::Cell(_) | Aggregate::Cluster => return None,
    };
    let what = match known {
        _ if begins && epoch != Epoch(decision.at) => {
            format!("the epoch that starts at {} is named {}", decision.at, epoch.0)
        }
        Some((_, before)) if begins && before.0 >= epoch.0 => {
            format!("epoch {} is not later than epoch {}", epoch.0, before.0)
        }
        Some((_, before)) if !begins && before != epoch => {
            format!("the current epoch is {}, but the decision is of epoch {}", before.0, epoch.0)
        }
        Some((known, _)) if !begins && known != domain => {
            format!("the domain is {known}, but the decision is of domain {domain}")
        }
        Some(_) | None => return None,
    };
    Some((Kind::Version, what))
}
