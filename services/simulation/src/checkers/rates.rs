//! Hot loops: a service repeats an effect no more often than its interval or backoff allows.
//!
//! For each kind of effect there is a limit on repetitions with the same target within [`WINDOW`]. The limits
//! follow from docs/internals/model/timers-and-clocks.md, "Timers", with room for immediate repetitions and for
//! clock steps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use schemas::container::WorkKey;
use schemas::message::{PlacementOutcome, Report, Stop};
use schemas::names::{CellId, ProcessGuid};
use schemas::{ActualLrpKey, Place, Subject, Timestamp};

use crate::checkers::{Checkers, Notes};
use crate::invariants::Invariant as I;
use crate::machine::NodeEffect;
use crate::shape::Life;

/// Time within which repetitions are counted.
const WINDOW: Duration = Duration::from_secs(10);

/// Kind of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Heartbeat,
    Beat,
    Campaign,
    Report,
    Records,
    Perform,
    Outcome,
    Stop,
    Order,
    Callback,
    Append,
    Read,
    ReadCluster,
    Run,
    Container,
    List,
    SelfTest,
}

impl Kind {
    /// Maximum number of repetitions within [`WINDOW`].
    const fn limit(self) -> usize {
        match self {
            // A container is created once.
            Self::Run => 1,
            // Every second after a failed preparation, and every 30 s while the test fails.
            Self::SelfTest => 14,
            // Every 5 s, and after a change.
            Self::Stop | Self::Order | Self::Container | Self::Callback => 12,
            // Every second, and after a change.
            Self::Outcome | Self::Report => 20,
            // Every 600 ms.
            Self::Beat => 25,
            // About every 300 ms without an answer.
            Self::Campaign => 30,
            // Every 5 s, and 200 ms after a change. Each heartbeat with free resources may cause an offer of work
            // that waits, even if the cell refused it before.
            Self::Heartbeat | Self::Records | Self::List | Self::Perform => 60,
            // Every 200 ms for a subject whose end is unknown, and after each failed append.
            Self::Read => 100,
            // Also after each read that confirms answers on the subject of a shard.
            Self::ReadCluster => 200,
            // Depends on the clients, reps and auctioneers.
            Self::Append => 300,
        }
    }
}

/// Service, kind and target of an effect.
type Name = (Life, Kind, String);

/// Recent effects.
#[derive(Default)]
pub(super) struct Rates {
    recent: BTreeMap<Name, VecDeque<Timestamp>>,
    reported: BTreeSet<Name>,
}

impl Rates {
    fn check(&mut self, name: Name, now: Timestamp, notes: &mut Notes) {
        let times = self.recent.entry(name.clone()).or_default();
        times.retain(|at| now.since(*at) < WINDOW);
        times.push_back(now);
        let (count, (life, kind, target)) = (times.len(), &name);
        let reported = count > kind.limit() && !self.reported.insert(name.clone());
        notes.check(I::NoHotLoop, count <= kind.limit() || reported, || {
            format!("{} repeats {kind:?} of {target:?} {count} times within {WINDOW:?}", life.0)
        });
    }
}

impl Checkers {
    /// Records an effect of a service.
    pub(crate) fn effect(&mut self, life: Life, effect: &NodeEffect, now: Timestamp) {
        let effects = match effect {
            NodeEffect::Bbs(effect) => of_bbs(effect),
            NodeEffect::Auctioneer(effect) => of_auctioneer(effect),
            NodeEffect::Rep(effect) => of_rep(effect),
        };
        let mut notes = Notes::default();
        for (kind, target) in effects {
            self.rates.check((life, kind, target), now, &mut notes);
        }
        self.take(notes);
    }
}

fn of_bbs(effect: &bbs::Effect) -> Vec<(Kind, String)> {
    use bbs::Effect as E;
    let order = |kind: &str, cell: &CellId| vec![(Kind::Order, format!("{kind} {cell}"))];
    match effect {
        E::Append { subject, .. } => vec![(Kind::Append, subject.to_string())],
        E::ReadLast(Subject::Cluster) => vec![(Kind::ReadCluster, String::new())],
        E::ReadLast(subject) => vec![(Kind::Read, subject.to_string())],
        E::Stop(cell, stop) | E::Cancel(cell, stop) => stops(cell, stop),
        E::Probe(cell, _) => order("probe", cell),
        E::Evacuate(cell, _) => order("evacuate", cell),
        E::Uncordon(cell, _) => order("uncordon", cell),
        E::Dismiss(cell, _) => order("dismiss", cell),
        E::Enter(cell, _) => order("enter", cell),
        E::LeaderHeartbeat(_) => vec![(Kind::Beat, String::new())],
        E::Call { task, .. } => vec![(Kind::Callback, task.to_string())],
        // Answers, and notifications of single events.
        E::Reply { .. }
        | E::AnswerQuery { .. }
        | E::Publish { .. }
        | E::Leading(_)
        | E::Subscribed(_)
        | E::Warn(_)
        | E::Quarantined(_)
        | E::Halt(_) => vec![],
    }
}

fn stops(cell: &CellId, stop: &Stop) -> Vec<(Kind, String)> {
    stop.containers.iter().map(|(_, guid)| (Kind::Stop, format!("{guid} on {cell}"))).collect()
}

fn of_auctioneer(effect: &auctioneer::Effect) -> Vec<(Kind, String)> {
    use auctioneer::Effect as E;
    match effect {
        E::Perform { cell, perform } => {
            let work =
                perform.work.iter().map(|work| format!("{} of {} to {cell}", named(&work.key), work.attempt));
            work.map(|what| (Kind::Perform, what)).collect()
        }
        E::Outcomes { outcomes, .. } => {
            let works = outcomes.outcomes.iter().flat_map(|outcome| match outcome {
                PlacementOutcome::Lrp { process_guid, outcome, .. } => outcome
                    .unplaced
                    .iter()
                    .map(|one| format!("{}: {}", instance(process_guid, &one.place), one.error))
                    .collect(),
                PlacementOutcome::Task { task_guid, unplaced, .. } => {
                    vec![format!("{task_guid}: {}", unplaced.error)]
                }
            });
            works.map(|what| (Kind::Outcome, what)).collect()
        }
        E::Lead(_) => vec![(Kind::Campaign, String::new())],
        E::Beat(_) => vec![(Kind::Beat, String::new())],
    }
}

fn named(work: &WorkKey) -> String {
    match work {
        WorkKey::Lrp { key, .. } => key.with_definition(),
        WorkKey::Task { .. } => work.to_string(),
    }
}

fn instance(guid: &ProcessGuid, place: &Place) -> String {
    ActualLrpKey::new(guid.clone(), place.clone()).with_definition()
}

fn of_rep(effect: &rep::Effect) -> Vec<(Kind, String)> {
    use rep::Effect as E;
    match effect {
        E::Report { reports, .. } => {
            let each = reports.reports.iter().map(|report| match report {
                Report::Lrp { process_guid, report } => {
                    format!("{} {}", instance(process_guid, &report.place), report.by.instance_guid)
                }
                Report::Task { task_guid, report } => format!("{task_guid} {}", report.by.instance_guid),
            });
            each.map(|what| (Kind::Report, what)).collect()
        }
        E::AskRecords { .. } => vec![(Kind::Records, String::new())],
        E::Prepare(recipes) => {
            recipes.iter().map(|recipe| (Kind::Run, format!("prepare {}", recipe.instance_guid))).collect()
        }
        E::Discard(guid) => vec![(Kind::Container, format!("discard {guid}"))],
        E::Run(recipe) => vec![(Kind::Run, recipe.instance_guid.to_string())],
        E::Stop(guid) => vec![(Kind::Container, format!("stop {guid}"))],
        E::Delete(guid) => vec![(Kind::Container, format!("delete {guid}"))],
        E::ListContainers => vec![(Kind::List, String::new())],
        E::SelfTest => vec![(Kind::SelfTest, String::new())],
        E::Heartbeat(_) => vec![(Kind::Heartbeat, String::new())],
        // Answers, and notifications of single events.
        E::AnswerPerform { .. } | E::AnswerState { .. } | E::Exit | E::Log { .. } => vec![],
    }
}
