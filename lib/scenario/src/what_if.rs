//! Analysis of changes: continues the cluster of a recording with changes, and again without them for
//! comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use machines::cell;
use projections::World;
use schemas::actual::{self, StopReason};
use schemas::crash::Restart;
use schemas::entry::{Aggregate, Event};
use schemas::evaluation::{Status, Trigger};
use schemas::names::{CellId, ProcessGuid};
use schemas::placement::Explanation;
use schemas::rollout::Phase;
use schemas::{ActualLrpKey, Decision, Timestamp, preemption, task};
use serde::Serialize;

pub use super::act::Failed;
use super::change::Change;
pub use super::compare::{Move, Spot, Work};
use super::compare::{Spots, moves, spots};
use super::stage::Stage;
use super::times::Start;
use super::{Recording, Unusable};

/// Time for the machines to attach and settle before the first change.
pub(super) const SETTLING: Duration = Duration::from_secs(1);
/// Minimum time without an append before a run counts as at rest. In addition, nothing may be in progress.
const QUIET: Duration = Duration::from_secs(6);
/// Default maximum time to wait for rest.
pub const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// Duration of a run after its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Runs until nothing is in progress, at most for this duration.
    Rest(Duration),
    /// Runs for exactly this duration.
    Time(Duration),
}

/// Result of a what-if analysis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhatIf {
    /// `true` if nothing is in progress at the end.
    pub at_rest: bool,
    /// Duration of the run from the first change, in milliseconds.
    pub ran_ms: u64,
    /// `true` if all work is placed that would be placed without the changes.
    pub fits: bool,
    /// Work whose state or location differs.
    pub moves: Vec<Move>,
    /// Work without a placement.
    pub unplaced: Vec<Unplaced>,
    /// Work stopped in favour of more urgent work.
    pub preempted: Vec<Preempted>,
    /// Evaluations that wait for room.
    pub blocked: Vec<Blocked>,
    /// Processes with a difference.
    pub processes: Vec<Process>,
    /// Cells whose state differs.
    pub cells: Vec<CellChange>,
}

/// Work without a placement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unplaced {
    /// Instance or task.
    pub what: Work,
    /// Human-readable placement error.
    pub error: String,
    /// Reasons by cell, if this run attempted a placement.
    pub explanation: Option<Explanation>,
    /// `true` if the result is the same without the changes.
    pub anyway: bool,
}

/// Work stopped in favour of more urgent work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Preempted {
    /// User-visible name of an instance or a task.
    pub what: String,
    /// Time after the first change, in milliseconds.
    pub after_ms: u64,
}

/// Evaluation that waits for room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blocked {
    /// Process or task of the evaluation.
    pub of: String,
    /// Trigger of the evaluation.
    pub trigger: Trigger,
    /// Reason that the evaluation is blocked.
    pub reason: String,
}

/// Differences of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    pub process_guid: ProcessGuid,
    /// Number of desired instances, before and after.
    pub desired: (u32, u32),
    /// Number of running instances, before and after.
    pub running: (u32, u32),
    /// Time from the first change until the last start reached RUNNING, in milliseconds. `None` means that no
    /// instance started.
    pub all_running_after_ms: Option<u64>,
    /// Duration from CLAIMED to RUNNING of an instance, in milliseconds.
    pub start_ms: u64,
    /// `true` if the log has starts of this process.
    pub start_is_recorded: bool,
}

/// Cell whose state differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CellChange {
    pub cell_id: CellId,
    /// State before the changes. `None` means that the cell is unknown.
    pub before: Option<&'static str>,
    /// State after the changes. `None` means that the cell is unknown.
    pub after: Option<&'static str>,
}

/// Failure of a what-if analysis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAnswer {
    /// Index of the failed change, from 0. `None` means that the failure does not concern a single change.
    pub change: Option<usize>,
    /// Reason of the failure.
    pub why: Failed,
}

impl From<Unusable> for NoAnswer {
    fn from(unusable: Unusable) -> Self {
        Self { change: None, why: unusable.into() }
    }
}

impl Recording {
    /// Makes the changes one after the other and returns the differences.
    ///
    /// # Errors
    /// Returns the refused change with the reason, or the reason that the simulation cannot continue from the
    /// log.
    pub fn what_if(&self, changes: &[Change], length: Length) -> Result<WhatIf, NoAnswer> {
        let mut stage = Stage::new(self);
        stage.until(self.time() + SETTLING)?;
        let begun = stage.now;
        for (at, change) in changes.iter().enumerate() {
            stage.carry_out(change).map_err(|why| NoAnswer { change: Some(at), why })?;
        }
        let at_rest = stage.go_on(length)?;
        let mut without = Stage::new(self);
        without.until(stage.now)?;
        Ok(self.report(&stage, without.world(), begun, at_rest))
    }

    /// Runs the recording without changes until it is at rest, at most for `patience`. Returns the resulting
    /// log.
    ///
    /// # Errors
    /// Returns the reason that the simulation cannot continue from the log.
    pub fn at_rest(&self, patience: Duration) -> Result<Vec<super::Message>, Unusable> {
        let mut stage = Stage::new(self);
        stage.until(self.time() + SETTLING)?;
        stage.go_on(Length::Rest(patience))?;
        Ok(stage.tape.messages().cloned().collect())
    }

    fn report(&self, stage: &Stage<'_>, without: &World, begun: Timestamp, at_rest: bool) -> WhatIf {
        let (before, after, anyway) = (spots(self.world()), spots(stage.world()), spots(without));
        let told = Observation::observe(stage, begun);
        let unplaced = unplaced(&after, &anyway, &told);
        let moves = moves(&before, &after, &anyway);
        WhatIf {
            at_rest,
            ran_ms: millis(stage.now.since(begun)),
            fits: unplaced.iter().all(|one| one.anyway),
            processes: self.processes(stage.world(), &moves, &told),
            cells: cells(self.world(), stage.world()),
            moves,
            unplaced,
            blocked: blocked(stage.world()),
            preempted: told.preempted,
        }
    }

    fn processes(&self, after: &World, moves: &[Move], told: &Observation) -> Vec<Process> {
        let moved = moves.iter().filter_map(|one| match &one.what {
            Work::Instance { process, .. } => Some(process),
            Work::Task(_) => None,
        });
        let moved: BTreeSet<&ProcessGuid> = moved.collect();
        let one = |guid: &ProcessGuid| {
            let counts = [self.world(), after].map(|world| counts(world, guid));
            let start = self.times().start(guid);
            Process {
                process_guid: guid.clone(),
                desired: (counts[0].0, counts[1].0),
                running: (counts[0].1, counts[1].1),
                all_running_after_ms: told.started.get(guid).copied(),
                start_ms: millis(start.time()),
                start_is_recorded: matches!(start, Start::Own(_)),
            }
        };
        moved.into_iter().map(one).collect()
    }
}

impl Stage<'_> {
    /// Advances the time. Returns `true` if nothing is in progress at the end.
    fn go_on(&mut self, length: Length) -> Result<bool, Unusable> {
        let (end, rests) = match length {
            Length::Rest(most) => (self.now + most, true),
            Length::Time(time) => (self.now + time, false),
        };
        while self.now < end {
            if rests && self.is_at_rest() {
                return Ok(true);
            }
            self.until(end.min(self.now + Duration::from_secs(1)))?;
        }
        Ok(self.is_at_rest())
    }

    /// Returns `true` if nothing was appended for `QUIET`, and nothing is in progress that leads to another
    /// decision.
    fn is_at_rest(&self) -> bool {
        let world = self.world();
        if self.now.since(self.appended_at) < QUIET {
            return false;
        }
        let cells = self.cells.iter().all(|(id, node)| node.rep.is_some() == world.is_present(id));
        let moving = |(_, cell): (&CellId, &cell::Cell)| {
            cell.present && (cell.evacuating || cell.evacuation_requested)
        };
        cells
            && !world.cells().any(moving)
            && !world.processes_from(None).any(|process| self.moves(process))
            && !world.tasks_from(None).any(waits)
    }

    /// Returns `true` if a rollout or an instance of the process is in progress.
    fn moves(&self, process: &machines::process::Process) -> bool {
        rolls(process)
            || process.slots.iter().any(|slot| {
                let actual = slot.actual.as_ref();
                slot.evacuating.is_some() || actual.is_some_and(|actual| is_under_way(actual, self.began))
            })
    }
}

/// Returns `true` if a rollout is in progress: neither paused nor finished.
#[must_use]
pub fn rolls(process: &machines::process::Process) -> bool {
    process.rollout.as_ref().is_some_and(|rollout| rollout.phase == Phase::Rolling)
}

/// Returns `true` if another transition of the instance is expected soon. Ignores an instance that crashed
/// before the end of the recording and waits for its restart.
fn is_under_way(actual: &machines::actual::Actual, began: Timestamp) -> bool {
    match &actual.state {
        machines::actual::State::Unclaimed { placement_error } => placement_error.is_none(),
        machines::actual::State::Claimed { .. } => true,
        machines::actual::State::Running { stopping, .. } => *stopping,
        machines::actual::State::Crashed { restart: Restart::At(_) | Restart::Immediate } => {
            actual.since > began
        }
        machines::actual::State::Crashed { restart: Restart::Never(_) } => false,
    }
}

/// Returns `true` if the task waits for its first placement attempt.
fn waits(task: &machines::task::Task) -> bool {
    matches!(&task.state, Some(machines::task::State::Pending { placement_error: None }))
}

/// Findings from the entries of a run.
#[derive(Default)]
struct Observation {
    /// Time of the last start of each process, in milliseconds after the first change.
    started: BTreeMap<ProcessGuid, u64>,
    preempted: Vec<Preempted>,
    explained: BTreeMap<String, Explanation>,
    /// Failure reasons of tasks that failed because placement was impossible.
    rejected: BTreeMap<String, String>,
}

impl Observation {
    fn observe(stage: &Stage<'_>, begun: Timestamp) -> Self {
        let mut told = Self::default();
        for (_, entry) in stage.tape.appended() {
            for decision in entry.decisions.iter().filter(|decision| decision.at >= begun) {
                decision.events.iter().for_each(|event| told.note(decision, event, begun));
            }
        }
        told
    }

    fn note(&mut self, decision: &Decision, event: &Event, begun: Timestamp) {
        let after_ms = millis(decision.at.since(begun));
        match (&decision.aggregate, event) {
            (Aggregate::Process { guid, .. }, Event::Actual(event)) => {
                self.note_actual(guid, event, after_ms);
            }
            (Aggregate::Task { guid, .. }, Event::Task(event)) => {
                self.note_task(&Work::Task(guid.clone()).to_string(), event, after_ms);
            }
            _ => {}
        }
    }

    fn note_actual(&mut self, guid: &ProcessGuid, event: &actual::Event, after_ms: u64) {
        let name = |place| ActualLrpKey::new(guid.clone(), place).to_string();
        match event {
            actual::Event::Started { .. } => {
                self.started.insert(guid.clone(), after_ms);
            }
            actual::Event::StopRequested { places, cause: StopReason::Preempted } => {
                let one = |place| Preempted { what: name(place), after_ms };
                self.preempted.extend(places.iter().map(one));
            }
            actual::Event::PlacementFailed { places, explanation: Some(explanation), .. } => {
                let all = places.iter().map(|place| (name(place), (**explanation).clone()));
                self.explained.extend(all);
            }
            actual::Event::StopRequested { .. }
            | actual::Event::PlacementFailed { explanation: None, .. }
            | actual::Event::Created { .. }
            | actual::Event::Claimed { .. }
            | actual::Event::ExecStarted { .. }
            | actual::Event::Crashed { .. }
            | actual::Event::Unclaimed { .. }
            | actual::Event::Removed { .. } => {}
        }
    }

    fn note_task(&mut self, name: &str, event: &task::Event, after_ms: u64) {
        match event {
            task::Event::Completed { outcome: task::Outcome::Failed { reason }, explanation, .. } => {
                if preemption::is_preempted(reason) {
                    self.preempted.push(Preempted { what: name.to_owned(), after_ms });
                }
                if let Some(explanation) = explanation {
                    self.rejected.insert(name.to_owned(), reason.clone());
                    self.explained.insert(name.to_owned(), (**explanation).clone());
                }
            }
            task::Event::PlacementFailed { explanation: Some(explanation), .. } => {
                self.explained.insert(name.to_owned(), (**explanation).clone());
            }
            task::Event::PlacementFailed { explanation: None, .. }
            | task::Event::Completed { outcome: task::Outcome::Succeeded { .. }, .. }
            | task::Event::Desired(_)
            | task::Event::Started { .. }
            | task::Event::Resolving {}
            | task::Event::CallbackTried { .. }
            | task::Event::Demoted {}
            | task::Event::Deleted {} => {}
        }
    }
}

fn unplaced(after: &Spots, anyway: &Spots, told: &Observation) -> Vec<Unplaced> {
    let one = |(work, spot): (&Work, &Spot)| {
        let name = match work {
            Work::Instance { process, index, .. } => format!("{process}/{index}"),
            Work::Task(_) => work.to_string(),
        };
        let error = if spot.is_unplaced() { spot.why.clone() } else { told.rejected.get(&name).cloned() }?;
        let without = anyway.get(work);
        let anyway = without.is_some_and(|spot| spot.is_unplaced() || spot.why.as_ref() == Some(&error));
        Some(Unplaced { what: work.clone(), error, explanation: told.explained.get(&name).cloned(), anyway })
    };
    after.iter().filter_map(one).collect()
}

fn blocked(world: &World) -> Vec<Blocked> {
    let of_processes = world.processes_from(None).flat_map(|process| {
        process.evaluations.iter().map(|evaluation| (format!("process {}", process.guid), evaluation))
    });
    let of_tasks = world.tasks_from(None).flat_map(|task| {
        task.evaluations.iter().map(|evaluation| (format!("task {}", task.guid), evaluation))
    });
    let blocked = of_processes.chain(of_tasks).filter_map(|(of, evaluation)| match evaluation.status {
        Status::Blocked { reason } => Some(Blocked { of, trigger: evaluation.trigger, reason }),
        Status::Pending | Status::Complete | Status::Failed { .. } | Status::Canceled { .. } => None,
    });
    blocked.collect()
}

/// Returns the numbers of desired and running instances of a process.
fn counts(world: &World, guid: &ProcessGuid) -> (u32, u32) {
    let Some(process) = world.process(guid) else { return (0, 0) };
    let desired = process.desired.as_ref().map_or(0, |desired| desired.indices().count());
    let running =
        process.slots.iter().filter_map(|slot| slot.actual.as_ref()).filter(|lrp| lrp.keeps_running());
    let number = |count| u32::try_from(count).unwrap_or(u32::MAX);
    (number(desired), number(running.count()))
}

fn cells(before: &World, after: &World) -> Vec<CellChange> {
    let ids: BTreeSet<&CellId> = before.cells().chain(after.cells()).map(|(id, _)| id).collect();
    let all = ids.into_iter().map(|id| CellChange {
        cell_id: id.clone(),
        before: before.cell(id).map(state_of),
        after: after.cell(id).map(state_of),
    });
    all.filter(|change| change.before != change.after).collect()
}

/// Returns the state of a cell as a single word.
const fn state_of(cell: &cell::Cell) -> &'static str {
    match (
        cell.present,
        cell.evacuating || cell.evacuation_requested,
        cell.cordoned,
        cell.unhealthy.is_none(),
    ) {
        (false, ..) => "absent",
        (true, true, ..) => "evacuating",
        (true, false, true, _) => "cordoned",
        (true, false, false, false) => "unhealthy",
        (true, false, false, true) => "present",
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
