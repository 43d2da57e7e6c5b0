//! Watching what is carried out: told by an event that something changed, and by a query how it is.

use std::collections::BTreeSet;
use std::time::Duration;

use schemas::container::Instance;
use schemas::entry::Event;
use schemas::names::{ProcessGuid, TaskGuid};
use schemas::query::{InstancePresence, InstanceRow, InstanceState, LrpRow, ReadEntry, RecordedEntry};
use schemas::task::{self, Outcome};
use schemas::{Position, Timestamp};
use tokio::time::timeout;

use crate::client::Client;
use crate::error::Error;
use crate::events::Events;
use crate::queries::Only;

/// Up to this many instances are looked at one by one while a process changes; of more, only when they are settled.
pub const LOOKED_AT: u32 = 200;

/// A process as it is at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Where the world stood.
    pub position: Position,
    /// The process; none: nothing of it is left.
    pub lrp: Option<LrpRow>,
    /// Its instances; empty while a large process is not settled.
    pub instances: Vec<InstanceRow>,
}

/// How far a process is from what is desired of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something is still being done.
    Under,
    /// Every desired instance is RUNNING, and no other is left.
    Running,
    /// Nobody desires it, and nothing of it is left.
    Gone,
    /// Nothing is being done, and these instances don't run: they could not be placed, or crashed and wait.
    Stuck(Vec<InstanceRow>),
}

/// A process that is being watched.
#[derive(Debug)]
pub struct LrpWatch {
    client: Client,
    guid: ProcessGuid,
    events: Events,
    looked: bool,
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEnd {
    /// Its outcome.
    pub outcome: Outcome,
    /// The container that ran it, if one did.
    pub by: Option<Instance>,
    /// When.
    pub at: Timestamp,
}

impl Snapshot {
    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let Some(lrp) = &self.lrp else { return Progress::Gone };
        let wanted = if lrp.desired { lrp.instances } else { 0 };
        let known = lrp.running + lrp.claimed + lrp.unclaimed + lrp.crashed;
        if wanted == 0 {
            let gone = known == 0 && self.instances.is_empty();
            return if !gone {
                Progress::Under
            } else if lrp.desired {
                Progress::Running
            } else {
                Progress::Gone
            };
        }
        let ordinary = || self.instances.iter().filter(|row| row.presence == InstancePresence::Ordinary);
        // Two definitions at one index: one of them is about to go.
        let indices: BTreeSet<u32> = ordinary().map(|row| row.index).collect();
        let extra =
            indices.len() < ordinary().count() || ordinary().any(|row| row.index >= wanted || row.stopping);
        if lrp.running == wanted && known == wanted && !extra {
            return Progress::Running;
        }
        let stuck: Vec<InstanceRow> = ordinary().filter(|row| is_stuck(row)).cloned().collect();
        let settled = known == wanted && !extra && u32::try_from(stuck.len()) == Ok(wanted - lrp.running);
        if settled && !stuck.is_empty() { Progress::Stuck(stuck) } else { Progress::Under }
    }
}

/// Whether an instance doesn't run and nobody does anything about it at present.
fn is_stuck(row: &InstanceRow) -> bool {
    (row.state == InstanceState::Unclaimed && row.placement_error.is_some())
        || row.state == InstanceState::Crashed
}

impl Client {
    /// Watches a process from a position: the one that the command was answered with.
    #[must_use]
    pub fn watch_lrp(&self, guid: ProcessGuid, after: Position) -> LrpWatch {
        let events = self.events(after).about(format!("lrp:{guid}"));
        LrpWatch { client: self.clone(), guid, events, looked: false }
    }

    /// Waits until a process is as it is desired, or is stuck. See [`Client::watch_lrp`].
    ///
    /// # Errors
    /// See [`Error`]; `TimedOut` if that takes longer than `limit`.
    pub async fn wait_for_lrp(
        &self,
        guid: &ProcessGuid,
        after: Position,
        limit: Duration,
    ) -> Result<(Progress, Snapshot), Error> {
        let mut watch = self.watch_lrp(guid.clone(), after);
        let settled = async {
            loop {
                let snapshot = watch.next().await?;
                match snapshot.progress() {
                    Progress::Under => {}
                    done @ (Progress::Running | Progress::Gone | Progress::Stuck(_)) => {
                        return Ok((done, snapshot));
                    }
                }
            }
        };
        let late = || Error::TimedOut { what: format!("process {guid} to settle"), waited: limit };
        timeout(limit, settled).await.unwrap_or_else(|_| Err(late()))
    }

    /// Waits until a task ends, and says how. `after` is the position that its desire was answered with.
    ///
    /// # Errors
    /// See [`Error`]; `TimedOut` if that takes longer than `limit`.
    pub async fn wait_for_task(
        &self,
        guid: &TaskGuid,
        after: Position,
        limit: Duration,
    ) -> Result<TaskEnd, Error> {
        // The outcome is read from the log itself: a task with a callback may be gone before anybody lists it.
        let before = Position(after.0.saturating_sub(1));
        let mut events = self.events(before).about(format!("task:{guid}"));
        let ended = async {
            loop {
                if let Some(end) = task_end(&events.next().await?) {
                    return Ok(end);
                }
            }
        };
        let late = || Error::TimedOut { what: format!("task {guid} to end"), waited: limit };
        timeout(limit, ended).await.unwrap_or_else(|_| Err(late()))
    }
}

impl LrpWatch {
    /// How the process is: at first at once, then whenever something happened to it. Cancel-safe.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn next(&mut self) -> Result<Snapshot, Error> {
        if self.looked {
            self.events.next().await?;
        }
        let snapshot = self.look().await?;
        self.events.skip_to(snapshot.position);
        self.looked = true;
        Ok(snapshot)
    }

    async fn look(&self) -> Result<Snapshot, Error> {
        self.client.line.note(self.events.position());
        let lrp = match self.client.lrp(&self.guid).await {
            Ok(one) => one,
            Err(error) if error.is_not_found() => {
                let position = self.events.position();
                return Ok(Snapshot { position, lrp: None, instances: vec![] });
            }
            Err(error) => return Err(error),
        };
        let known = lrp.row.running + lrp.row.claimed + lrp.row.unclaimed + lrp.row.crashed;
        let instances = if known > LOOKED_AT && lrp.row.claimed > 0 {
            vec![]
        } else {
            self.client.instances(&Only::process(self.guid.clone())).await?.rows
        };
        Ok(Snapshot { position: lrp.position, lrp: Some(lrp.row), instances })
    }
}

/// How a task ended, if an entry about it says so.
fn task_end(entry: &RecordedEntry) -> Option<TaskEnd> {
    let entry = match &entry.entry {
        ReadEntry::Known(entry) => entry,
        ReadEntry::Unknown { .. } => return None,
    };
    entry.decisions.iter().find_map(|decision| {
        decision.events.iter().find_map(|event| match event {
            Event::Task(task::Event::Completed { by, outcome, .. }) => {
                Some(TaskEnd { outcome: outcome.clone(), by: by.clone(), at: decision.at })
            }
            Event::Task(_)
            | Event::Desired(_)
            | Event::Actual(_)
            | Event::Evacuating(_)
            | Event::Evaluation(_)
            | Event::Domain(_)
            | Event::Cell(_)
            | Event::Cluster(_) => None,
        })
    })
}

#[cfg(test)]
mod tests {
    use schemas::container::Epoch;
    use schemas::names::{DefinitionId, Domain, InstanceGuid};

    use super::*;

    fn definition(name: &str) -> DefinitionId {
        DefinitionId::new(name).unwrap()
    }

    fn instance(index: u32, state: InstanceState) -> InstanceRow {
        InstanceRow {
            process_guid: ProcessGuid::new("web").unwrap(),
            index,
            domain: Domain::new("shop").unwrap(),
            epoch: Epoch::default(),
            presence: InstancePresence::Ordinary,
            state,
            instance_guid: Some(InstanceGuid("00000000-0000-7000-8000-000000000001".parse().unwrap())),
            cell_id: None,
            stopping: false,
            address: None,
            ports: vec![],
            placement_error: None,
            crash_count: 0,
            crash_reason: None,
            crashed_in: None,
            restart_at: None,
            definition_id: definition("web"),
            since: Timestamp(0),
        }
    }

    fn snapshot(instances: u32, rows: Vec<InstanceRow>) -> Snapshot {
        let count = |state: InstanceState| {
            u32::try_from(rows.iter().filter(|row| row.state == state).count()).unwrap()
        };
        let lrp = LrpRow {
            process_guid: ProcessGuid::new("web").unwrap(),
            domain: Domain::new("shop").unwrap(),
            epoch: Epoch::default(),
            version: 1,
            desired: true,
            instances,
            running: count(InstanceState::Running),
            claimed: count(InstanceState::Claimed),
            unclaimed: count(InstanceState::Unclaimed),
            crashed: count(InstanceState::Crashed),
            routes: schemas::definition::Routes::new(),
            annotation: String::new(),
            definition_id: None,
            definition: None,
            changed_at: Timestamp(0),
        };
        Snapshot { position: Position(7), lrp: Some(lrp), instances: rows }
    }

    fn unplaced(index: u32) -> InstanceRow {
        InstanceRow {
            placement_error: Some("insufficient resources: memory".into()),
            ..instance(index, InstanceState::Unclaimed)
        }
    }

    #[test]
    fn a_process_is_running_when_every_index_runs_and_no_other() {
        let running = |index| instance(index, InstanceState::Running);
        assert_eq!(snapshot(2, vec![running(0), running(1)]).progress(), Progress::Running);
        assert_eq!(snapshot(0, vec![]).progress(), Progress::Running);
        for under in [
            snapshot(2, vec![running(0)]),
            snapshot(2, vec![running(0), instance(1, InstanceState::Claimed)]),
            snapshot(2, vec![running(0), running(2)]),
            snapshot(1, vec![running(0), running(1)]),
            snapshot(1, vec![InstanceRow { stopping: true, ..running(0) }]),
            snapshot(2, vec![running(0), InstanceRow { definition_id: definition("v2"), ..running(0) }]),
            snapshot(0, vec![running(0)]),
        ] {
            assert_eq!(under.progress(), Progress::Under, "{under:?}");
        }
    }

    #[test]
    fn a_process_is_stuck_when_nothing_is_done_about_what_does_not_run() {
        let stuck = snapshot(
            3,
            vec![instance(0, InstanceState::Running), unplaced(1), instance(2, InstanceState::Crashed)],
        )
        .progress();
        assert_eq!(stuck, Progress::Stuck(vec![unplaced(1), instance(2, InstanceState::Crashed)]));
        for under in [
            snapshot(
                3,
                vec![instance(0, InstanceState::Claimed), unplaced(1), instance(2, InstanceState::Crashed)],
            ),
            snapshot(2, vec![instance(0, InstanceState::Unclaimed), unplaced(1)]),
        ] {
            assert_eq!(under.progress(), Progress::Under, "{under:?}");
        }
    }

    #[test]
    fn what_nobody_desires_is_gone_when_nothing_is_left() {
        let mut removed = snapshot(2, vec![instance(0, InstanceState::Running)]);
        removed.lrp.as_mut().unwrap().desired = false;
        assert_eq!(removed.progress(), Progress::Under);
        let gone = Snapshot { position: Position(9), lrp: None, instances: vec![] };
        assert_eq!(gone.progress(), Progress::Gone);
    }
}
