//! Whether each decision was legal when it was made: told from the log alone, by the machines' own tables.
//!
//! A decision is judged against the World before its entry, with what earlier decisions of the same entry changed. What
//! depends on more than the log (what a container really did, which cell was known to be there, what fits where) is not
//! judged here; what the log can't show is in docs/audit.md.

mod aside;
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
use schemas::{Decision, Entry, Position, cell, desired, parameterised, periodic, task};

use self::aside::{Aside, Standing};
use self::causes::Causes;
use self::draft::Draft;
use crate::{Finding, Kind};

/// What of the log has to be remembered beside the World: some hundred bytes for each decision.
#[derive(Clone, Debug, Default)]
pub struct Law {
    causes: Causes,
    /// The last version of what has its subject for itself.
    versions: BTreeMap<Aggregate, u64>,
    aside: Aside,
}

/// What is wrong with a decision.
type Wrong = (Kind, String);

impl Law {
    /// Judges the next entry, before the World has folded it.
    pub fn judge(&mut self, world: &World, position: Position, entry: &Entry) -> Vec<Finding> {
        let mut draft = Draft::new(world, position);
        let mut findings = vec![];
        for decision in &entry.decisions {
            let standing = self.aside.standing(decision, world.shards());
            let mut wrong = vec![];
            wrong.extend(self.causes.judge(decision));
            wrong.extend(self.version(decision, &draft, standing));
            wrong.extend(foreign(decision));
            let anew = standing != Standing::Known && draft.begins_anew(decision);
            let judged = draft.judge(decision);
            if standing == Standing::Known {
                wrong.extend(judged);
            }
            if anew {
                self.aside.begins(decision);
            }
            findings.extend(
                wrong
                    .into_iter()
                    .map(|(kind, what)| Finding::at(kind, position, what).about(&decision.aggregate)),
            );
        }
        findings
    }

    /// Takes note of what an operator set aside: nothing folds it, so what it is about is judged again only from its next
    /// beginning on, and what names its decisions as causes is right to.
    pub fn set_aside(&mut self, subject: &str, bytes: &[u8]) {
        match self.aside.note(subject, bytes) {
            Some(decisions) => self.causes.know(decisions),
            None => self.causes.are_incomplete(),
        }
    }

    /// Every version is the one after the last; where something was set aside, nobody knows which that is.
    fn version(&mut self, decision: &Decision, draft: &Draft<'_>, standing: Standing) -> Option<Wrong> {
        let Decision { aggregate, version, .. } = decision;
        let last = match draft.version(aggregate) {
            Some(last) => last,
            None => self.versions.insert(aggregate.clone(), *version).unwrap_or_default(),
        };
        let right = *version == last + 1 || standing == Standing::Next;
        (!right).then(|| (Kind::Version, format!("version {version} follows version {last}")))
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

/// Whether a life begins with a decision: of a cell, that it comes.
fn begins(decision: &Decision) -> bool {
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

/// What is wrong with the life and the domain that a decision names.
fn life(decision: &Decision, known: Option<(&Domain, Epoch)>) -> Option<Wrong> {
    let begins = begins(decision);
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
