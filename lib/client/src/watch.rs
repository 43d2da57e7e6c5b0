//! Watching a process or a task until a change has been carried out. Events report that something changed.
//! Queries return the new state.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::{Either, select};

use schemas::container::Instance;
use schemas::entry::Event;
use schemas::names::{ProcessGuid, TaskGuid};
use schemas::policy::UpdateOrder;
use schemas::query::{
    InstancePresence, InstanceRow, InstanceState, LrpRow, ReadEntry, RecordedEntry, RolloutRow,
};
use schemas::task::{self, Outcome};
use schemas::{Position, Timestamp, parameterised};
use tokio::time::timeout;

use crate::client::Client;
use crate::error::Error;
use crate::events::Events;
use crate::queries::ListFilter;

/// Maximum number of instances that are read while a process changes. The instances of a larger process are
/// read only after the process has settled.
pub const MAX_DETAILED_INSTANCES: u32 = 200;

/// State of a process at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Position of the World snapshot.
    pub position: Position,
    /// `None` if nothing of the process is left.
    pub lrp: Option<LrpRow>,
    /// Instances of the process. Empty while a large process has not settled.
    pub instances: Vec<InstanceRow>,
}

/// Progress of a process towards its desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Changes are in progress.
    Changing,
    /// Exactly the desired instances are left, and each of them is RUNNING.
    Running,
    /// The process is not desired, and nothing of it is left.
    Gone,
    /// Nothing is in progress, and these instances do not run: they could not be placed, or they crashed and
    /// wait. During a rollout, this state also requires that the rollout cannot continue automatically.
    Stuck(Vec<InstanceRow>),
    /// The rollout is paused, and nothing else is in progress. Every index runs. A client must resume the
    /// rollout, roll it back, or replace it with another request.
    Paused,
}

/// Watch on a process.
#[derive(Debug)]
pub struct LrpWatch {
    client: Client,
    guid: ProcessGuid,
    events: Events,
    started: bool,
}

/// End of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEnd {
    pub outcome: Outcome,
    /// Container that ran the task. `None` if it never ran.
    pub by: Option<Instance>,
    pub at: Timestamp,
}

impl Snapshot {
    /// Returns the progress of the process.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let Some(lrp) = &self.lrp else { return Progress::Gone };
        let wanted = if lrp.desired { lrp.instances } else { 0 };
        let known = lrp.running + lrp.claimed + lrp.unclaimed + lrp.crashed;
        if wanted == 0 {
            let gone = known == 0 && self.instances.is_empty();
            return if !gone {
                Progress::Changing
            } else if lrp.desired {
                Progress::Running
            } else {
                Progress::Gone
            };
        }
        if let Some(rollout) = lrp.rollout_under_way() {
            return self.rollout_progress(lrp, rollout);
        }
        let ordinary = || self.ordinary();
        // If an index has instances of two definitions, one of the instances is about to be removed.
        let indices: BTreeSet<u32> = ordinary().map(|row| row.index).collect();
        let extra = indices.len() < ordinary().count()
            || ordinary().any(|row| !lrp.indices.contains(row.index) || row.stopping);
        if lrp.running == wanted && known == wanted && !extra {
            return Progress::Running;
        }
        let stuck: Vec<InstanceRow> = ordinary().filter(|row| is_stuck(row)).cloned().collect();
        let settled = known == wanted && !extra && u32::try_from(stuck.len()) == Ok(wanted - lrp.running);
        if settled && !stuck.is_empty() { Progress::Stuck(stuck) } else { Progress::Changing }
    }

    fn ordinary(&self) -> impl Iterator<Item = &InstanceRow> {
        self.instances.iter().filter(|row| row.presence == InstancePresence::Ordinary)
    }

    /// Returns the progress during a rollout, when two instances at one index are expected.
    fn rollout_progress(&self, lrp: &LrpRow, rollout: &RolloutRow) -> Progress {
        let moves = |row: &InstanceRow| {
            row.stopping
                || !lrp.indices.contains(row.index)
                || row.state == InstanceState::Claimed
                || row.state == InstanceState::Unclaimed && row.placement_error.is_none()
        };
        let runs = |row: &InstanceRow| row.state == InstanceState::Running;
        let is_target = |row: &InstanceRow| row.definition_id == rollout.target;
        // This instance of the target runs at an index in replacement. Either the instance has not passed its
        // monitor yet, or the other instance of the index has not ended yet.
        let proves_itself =
            |row: &InstanceRow| is_target(row) && runs(row) && rollout.in_replacement.contains(row.index);
        if lrp.claimed > 0 || self.ordinary().any(|row| moves(row) || proves_itself(row)) {
            return Progress::Changing;
        }
        let stuck = |only: &dyn Fn(&InstanceRow) -> bool| -> Vec<InstanceRow> {
            self.ordinary().filter(|row| is_stuck(row) && only(row)).cloned().collect()
        };
        if rollout.is_paused() {
            let idle =
                |row: &InstanceRow| !self.ordinary().any(|other| other.index == row.index && runs(other));
            let stuck = stuck(&idle);
            return if stuck.is_empty() { Progress::Paused } else { Progress::Stuck(stuck) };
        }
        if !rollout.stalled.is_empty() {
            return Progress::Changing;
        }
        let waits = |row: &InstanceRow| is_target(row) && rollout.in_replacement.contains(row.index);
        let in_replacement = stuck(&waits);
        let all = u64::try_from(in_replacement.len()) == Ok(rollout.in_replacement.len());
        if rollout.in_replacement.is_empty() {
            // No index is in replacement, so the next index starts soon. If every instance is on the target
            // already, the rollout only waits until all instances run.
            let there = self.ordinary().filter(|row| is_target(row)).count();
            let stuck = stuck(&is_target);
            let all = u32::try_from(there) == Ok(lrp.instances) && self.ordinary().all(is_target);
            return if all && !stuck.is_empty() { Progress::Stuck(stuck) } else { Progress::Changing };
        }
        if all && !advances_automatically(lrp, rollout, &in_replacement) {
            Progress::Stuck(in_replacement)
        } else {
            Progress::Changing
        }
    }
}

/// Returns `true` if time alone advances a rollout although every index in replacement waits. There are two
/// cases:
///
/// - An index exceeds its deadline, and the target is known to be healthy. The rollout gives up the index.
/// - An index has no free resources, and enough other instances run. The index falls back to stop-first.
fn advances_automatically(lrp: &LrpRow, rollout: &RolloutRow, waiting: &[InstanceRow]) -> bool {
    let policies = lrp.policies.clone().unwrap_or_default();
    let policy = rollout.kind.policy(&policies);
    let proven = lrp.healthy_definition_id.as_ref() == Some(&rollout.target);
    let least = policies.required_running(policy, lrp.instances);
    let falls_back = policy.order == UpdateOrder::StartFirst
        && lrp.running > least
        && waiting.iter().any(|row| row.state == InstanceState::Unclaimed);
    proven && policy.index_deadline_ms > 0 || falls_back
}

/// Returns `true` if an instance does not run and no change of the instance is in progress.
fn is_stuck(row: &InstanceRow) -> bool {
    (row.state == InstanceState::Unclaimed && row.placement_error.is_some())
        || row.state == InstanceState::Crashed
}

impl Client {
    /// Watches a process from a log position on. The position usually comes from the answer to a command.
    #[must_use]
    pub fn watch_lrp(&self, guid: ProcessGuid, after: Position) -> LrpWatch {
        let events = self.events(after).for_target(format!("lrp:{guid}"));
        LrpWatch { client: self.clone(), guid, events, started: false }
    }

    /// Waits until a process has reached its desired state, is stuck, or has a paused rollout. See
    /// [`Client::watch_lrp`].
    ///
    /// # Errors
    /// See [`Error`]; `TimedOut` if this takes longer than `limit`.
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
                    Progress::Changing => {}
                    done @ (Progress::Running | Progress::Gone | Progress::Stuck(_) | Progress::Paused) => {
                        return Ok((done, snapshot));
                    }
                }
            }
        };
        let late = || Error::TimedOut { awaited: format!("process {guid} to settle"), elapsed: limit };
        timeout(limit, settled).await.unwrap_or_else(|_| Err(late()))
    }

    /// Waits until a task ends, and returns its end. `after` is the position in the answer to the command
    /// that created the task.
    ///
    /// # Errors
    /// See [`Error`]; `TimedOut` if this takes longer than `limit`.
    pub async fn wait_for_task(
        &self,
        guid: &TaskGuid,
        after: Position,
        limit: Duration,
    ) -> Result<TaskEnd, Error> {
        // The outcome is read from the log itself: a task with a callback may be deleted before a query can
        // list it.
        let before = Position(after.0.saturating_sub(1));
        let mut events = self.events(before).for_target(format!("task:{guid}"));
        let ended = async {
            loop {
                if let Some(end) = task_end(&events.next().await?) {
                    return Ok(end);
                }
            }
        };
        let late = || Error::TimedOut { awaited: format!("task {guid} to end"), elapsed: limit };
        timeout(limit, ended).await.unwrap_or_else(|_| Err(late()))
    }

    /// Waits until the task of a dispatch ends, and returns its end. `None` if the dispatch was withdrawn.
    /// `after` is the position in the answer to the dispatch, or 0 if an earlier request may have made the
    /// dispatch.
    ///
    /// # Errors
    /// See [`Client::wait_for_task`].
    pub async fn wait_for_dispatch(
        &self,
        task: &TaskGuid,
        after: Position,
        limit: Duration,
    ) -> Result<Option<TaskEnd>, Error> {
        let ended = Box::pin(self.wait_for_task(task, after, limit));
        let Some((guid, number)) = task.dispatch_source() else { return ended.await.map(Some) };
        let before = Position(after.0.saturating_sub(1));
        let mut events = self.events(before).for_target(format!("parameterised:{guid}"));
        let withdrawn = Box::pin(async {
            loop {
                if withdraws_dispatch(&events.next().await?, number) {
                    return Ok::<(), Error>(());
                }
            }
        });
        match select(ended, withdrawn).await {
            Either::Left((end, _)) => end.map(Some),
            Either::Right((withdrawn, _)) => withdrawn.map(|()| None),
        }
    }
}

impl LrpWatch {
    /// Returns the state of the process. The first call returns immediately. Each later call waits for the
    /// next event. This method is cancel safe.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn next(&mut self) -> Result<Snapshot, Error> {
        if self.started {
            self.events.next().await?;
        }
        let snapshot = self.read_snapshot().await?;
        self.events.skip_to(snapshot.position);
        self.started = true;
        Ok(snapshot)
    }

    async fn read_snapshot(&self) -> Result<Snapshot, Error> {
        self.client.line.record_position(self.events.position());
        let lrp = match self.client.lrp(&self.guid).await {
            Ok(one) => one,
            Err(error) if error.is_not_found() => {
                let position = self.events.position();
                return Ok(Snapshot { position, lrp: None, instances: vec![] });
            }
            Err(error) => return Err(error),
        };
        let known = lrp.row.running + lrp.row.claimed + lrp.row.unclaimed + lrp.row.crashed;
        let instances = if known > MAX_DETAILED_INSTANCES && lrp.row.claimed > 0 {
            vec![]
        } else {
            self.client.instances(&ListFilter::process(self.guid.clone())).await?.rows
        };
        Ok(Snapshot { position: lrp.position, lrp: Some(lrp.row), instances })
    }
}

/// Returns `true` if an entry about a parameterised task withdraws the dispatch.
fn withdraws_dispatch(entry: &RecordedEntry, number: u64) -> bool {
    let entry = match &entry.entry {
        ReadEntry::Known(entry) => entry,
        ReadEntry::Unknown { .. } => return false,
    };
    let events = entry.decisions.iter().flat_map(|decision| &decision.events);
    events.filter_map(Event::as_parameterised).any(
        |event| matches!(event, parameterised::Event::Withdrawn { numbers, .. } if numbers.contains(&number)),
    )
}

/// Returns the end of the task if the entry has recorded it.
fn task_end(entry: &RecordedEntry) -> Option<TaskEnd> {
    let entry = match &entry.entry {
        ReadEntry::Known(entry) => entry,
        ReadEntry::Unknown { .. } => return None,
    };
    entry.decisions.iter().find_map(|decision| {
        decision.events.iter().find_map(|event| {
            let Event::Task(task::Event::Completed { by, outcome, .. }) = event else { return None };
            Some(TaskEnd { outcome: outcome.clone(), by: by.clone(), at: decision.at })
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use schemas::container::Epoch;
    use schemas::names::{DefinitionId, Domain, InstanceGuid};
    use schemas::policy::Policies;
    use schemas::query::ModificationTag;
    use schemas::rollout::Kind;

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
            isolation: None,
            placement_error: None,
            crash_count: 0,
            crash_reason: None,
            crashed_instance: None,
            restart_at: None,
            no_restart_reason: None,
            attempts: None,
            definition_id: definition("web"),
            since: Timestamp(0),
            modification_tag: ModificationTag { epoch: Epoch::default(), index: 1 },
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
            last_decision: Position(7),
            desired: true,
            mode: None,
            instances,
            priority: None,
            indices: schemas::Indices::below(instances),
            running: count(InstanceState::Running),
            claimed: count(InstanceState::Claimed),
            unclaimed: count(InstanceState::Unclaimed),
            crashed: count(InstanceState::Crashed),
            routes: schemas::definition::Routes::new(),
            annotation: String::new(),
            definition_id: Some(definition("web")),
            healthy_definition_id: Some(definition("web")),
            definition_ids: vec![definition("web")],
            sizes: BTreeMap::new(),
            definitions: BTreeMap::new(),
            policies: None,
            rollout: None,
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
    fn process_is_running_when_exactly_the_desired_indices_run() {
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
            assert_eq!(under.progress(), Progress::Changing, "{under:?}");
        }
    }

    #[test]
    fn process_is_stuck_when_no_change_is_in_progress() {
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
            assert_eq!(under.progress(), Progress::Changing, "{under:?}");
        }
    }

    fn with_definition(name: &str, row: InstanceRow) -> InstanceRow {
        InstanceRow { definition_id: definition(name), ..row }
    }

    /// Returns a process during a rollout of `web` to `v2`, with these indices in replacement.
    fn rollout_snapshot(status: &str, in_replacement: &[u32], rows: Vec<InstanceRow>) -> Snapshot {
        let mut snapshot = snapshot(2, rows);
        let rollout = RolloutRow {
            number: 1,
            kind: Kind::Update,
            status: status.to_owned(),
            reason: None,
            target: definition("v2"),
            rollback_to: Some(definition("web")),
            total: 2,
            replaced: 0,
            in_replacement: in_replacement.iter().copied().collect(),
            stalled: schemas::Indices::default(),
            failed: schemas::Indices::default(),
            started_at: Timestamp(0),
            since: Timestamp(0),
        };
        snapshot.lrp.as_mut().unwrap().rollout = Some(rollout);
        snapshot
    }

    #[test]
    fn rollout_is_complete_when_every_index_runs_the_target() {
        let running = |index| instance(index, InstanceState::Running);
        let both = vec![running(0), with_definition("v2", running(0)), running(1)];
        let all = vec![with_definition("v2", running(0)), with_definition("v2", running(1))];
        for under in [
            rollout_snapshot("updating", &[], vec![running(0), running(1)]),
            rollout_snapshot(
                "updating",
                &[0],
                vec![running(0), with_definition("v2", unplaced(1)), running(1)],
            ),
            rollout_snapshot(
                "updating",
                &[0],
                vec![running(0), with_definition("v2", instance(0, InstanceState::Claimed)), running(1)],
            ),
            rollout_snapshot("updating", &[0], both.clone()),
            rollout_snapshot("updating", &[], all.clone()),
            rollout_snapshot("paused", &[0], both),
        ] {
            assert_eq!(under.progress(), Progress::Changing, "{under:?}");
        }
        assert_eq!(rollout_snapshot("completed", &[], all.clone()).progress(), Progress::Running);
        assert_eq!(rollout_snapshot("rollback_completed", &[], all).progress(), Progress::Running);
        let paused = rollout_snapshot("paused", &[], vec![with_definition("v2", running(0)), running(1)]);
        assert_eq!(paused.progress(), Progress::Paused);
    }

    #[test]
    fn rollout_is_stuck_when_it_cannot_advance_automatically() {
        let running = |index| instance(index, InstanceState::Running);
        let crashed = with_definition("v2", instance(0, InstanceState::Crashed));
        let held = rollout_snapshot("updating", &[0], vec![running(0), crashed.clone(), running(1)]);
        assert_eq!(held.progress(), Progress::Stuck(vec![crashed.clone()]));
        let no_room = rollout_snapshot(
            "updating",
            &[0],
            vec![running(0), with_definition("v2", unplaced(0)), running(1)],
        );
        assert_eq!(no_room.progress(), Progress::Stuck(vec![with_definition("v2", unplaced(0))]));

        // Only one of the two instances has to run, so the old instance is stopped to free its resources.
        let mut falls_back = no_room;
        let policies = Policies { min_running: Some(1), ..Policies::default() };
        falls_back.lrp.as_mut().unwrap().policies = Some(policies);
        assert_eq!(falls_back.progress(), Progress::Changing);
        // The definition is known to be healthy. If this index takes too long, the rollout continues with the
        // next index.
        let mut proven = held;
        proven.lrp.as_mut().unwrap().healthy_definition_id = Some(definition("v2"));
        assert_eq!(proven.progress(), Progress::Changing);
        // An index that was given up is tried again.
        let mut stalled = rollout_snapshot("updating", &[], vec![running(0), running(1)]);
        stalled.lrp.as_mut().unwrap().rollout.as_mut().unwrap().stalled = 0.into();
        assert_eq!(stalled.progress(), Progress::Changing);

        // Every index is on the target, and one of them doesn't run.
        let end = rollout_snapshot("updating", &[], vec![crashed.clone(), with_definition("v2", running(1))]);
        assert_eq!(end.progress(), Progress::Stuck(vec![crashed]));
        let down = instance(1, InstanceState::Crashed);
        let paused = rollout_snapshot("paused", &[], vec![with_definition("v2", running(0)), down.clone()]);
        assert_eq!(paused.progress(), Progress::Stuck(vec![down]));
    }

    #[test]
    fn removed_process_is_gone_when_no_instance_is_left() {
        let mut removed = snapshot(2, vec![instance(0, InstanceState::Running)]);
        removed.lrp.as_mut().unwrap().desired = false;
        assert_eq!(removed.progress(), Progress::Changing);
        let gone = Snapshot { position: Position(9), lrp: None, instances: vec![] };
        assert_eq!(gone.progress(), Progress::Gone);
    }
}
