//! Hot loops: nothing is sent, asked or ordered more often than its period or its backoff allows.
//!
//! For each kind there is a bound on how often one life of a service says the same thing of the same thing within a while.
//! The bounds follow from docs/internals/model/timers-and-clocks.md, "Timers", with room for what is told at once and then again, and for clocks that
//! jump. A loop without a wait is far beyond all of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use schemas::container::WorkKey;
use schemas::message::{PlacementOutcome, Report, Stop};
use schemas::names::{CellId, ProcessGuid};
use schemas::{ActualLrpKey, Place, Subject, Timestamp};

use super::Checkers;
use crate::nodes::{Life, NodeEffect};
use crate::promises::{Broken, Promise};

/// It is counted within this time.
const WHILE: Duration = Duration::from_secs(10);

/// What is sent, asked or ordered.
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
    /// How often the same is said within [`WHILE`], at most.
    const fn most(self) -> usize {
        match self {
            // A container is made once.
            Self::Run => 1,
            // Every second after a container could not be prepared, every 30 s while it fails, else more seldom; of a clock
            // that jumps, sooner.
            Self::SelfTest => 14,
            // Every 5 s, and at once when something changes.
            Self::Stop | Self::Order | Self::Container | Self::Callback => 12,
            // Every second, and at once.
            Self::Outcome | Self::Report => 20,
            // Every 600 ms.
            Self::Beat => 25,
            // Every 300 ms or so while nobody answers.
            Self::Campaign => 30,
            // Every 5 s, and 200 ms after a change; where much starts and ends, something changes all the time. Each heartbeat
            // about room has a cell offered work again that waits, also if it refused that: while the log accepts no entries,
            // nothing else limits this.
            Self::Heartbeat | Self::Records | Self::List | Self::Perform => 60,
            // Every 200 ms of a subject whose end is not known, and whatever else happens to it.
            Self::Read => 100,
            // Also once after each read that confirms answers on the subject of a shard.
            Self::ReadCluster => 200,
            // As much as clients, reps and auctioneers have to say.
            Self::Append => 300,
        }
    }
}

/// Who says what of what.
type Name = (Life, Kind, String);

/// What was said lately.
#[derive(Default)]
pub(super) struct Rates {
    said: BTreeMap<Name, VecDeque<Timestamp>>,
    told: BTreeSet<Name>,
}

impl Rates {
    fn says(&mut self, name: Name, now: Timestamp) -> Option<Broken> {
        let times = self.said.entry(name.clone()).or_default();
        times.retain(|at| now.since(*at) < WHILE);
        times.push_back(now);
        let (count, (life, kind, what)) = (times.len(), &name);
        if count <= kind.most() || !self.told.insert(name.clone()) {
            return None;
        }
        let how = format!("{} says {kind:?} of {what:?} {count} times within {WHILE:?}", life.0);
        Some(Broken { promise: Promise::NoHotLoop, how })
    }
}

impl Checkers {
    /// Somebody does something.
    #[must_use]
    pub(crate) fn does(&mut self, life: Life, effect: &NodeEffect, now: Timestamp) -> Vec<Broken> {
        let said = match effect {
            NodeEffect::Bbs(effect) => of_bbs(effect),
            NodeEffect::Auctioneer(effect) => of_auctioneer(effect),
            NodeEffect::Rep(effect) => of_rep(effect),
        };
        let often = said.into_iter().filter_map(|(kind, what)| self.rates.says((life, kind, what), now));
        let broken: Vec<Broken> = often.collect();
        broken.into_iter().chain(self.says_many(effect)).collect()
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
        // Each answers a question, or is said of what happened.
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
        // Each answers a question, or is said of what happened.
        E::AnswerPerform { .. } | E::AnswerState { .. } | E::Exit | E::Log { .. } => vec![],
    }
}
