//! The task: work that runs at most once (Diego Dev Notes, "Tasks").
//!
//! ```text
//! (desire) ─▶ PENDING ── start ──▶ RUNNING ── complete, fail ──▶ COMPLETED ── resolve ──▶ RESOLVING ─▶ (deleted)
//!                └── cancel, fail, expire ──────────────────────▶    ▲ └── too long ago ──────────────────▲
//!                                                                     └── demoted ─────────┘
//! ```

mod ended;
mod settle;

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::evaluation::{self, Evaluations};
use crate::preemption;
use crate::request::Requests;
use schemas::cause::{Cause, Origin};
use schemas::container::{Epoch, Instance};
use schemas::definition::{Placement, TaskDefinition};
use schemas::evaluation::{Duty, Evaluation};
use schemas::names::{CellId, Domain, TaskGuid};
use schemas::preemption::Eviction;
use schemas::refusal::{Code, Refusal};
use schemas::stamp::Stamp;
use schemas::subject::Position;
use schemas::task::{
    Callback, CallbackResult, CallbackVerdict, Command, Event, Outcome, Report, ReportStep, Unplaced,
};
use schemas::{Timestamp, entry, limits};

pub use self::ended::ended_task;

/// Time after which a PENDING task fails, unless its placement sets a deadline.
pub const PENDING_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Time after which the owner of a COMPLETED task is called again.
pub const CALLBACK_RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Time after which a RESOLVING task becomes COMPLETED again.
pub const RESOLVING_TIMEOUT: Duration = Duration::from_secs(30);

/// Time between the first completion of a task and its deletion.
pub const COMPLETED_RETENTION: Duration = Duration::from_secs(2 * 60);

/// Failure reason of a cancelled task.
pub const CANCELLED: &str = "cancelled";

/// Failure reason of a task that was running when the evacuation of its cell timed out.
pub const EVACUATION_TIMED_OUT: &str = "timed out during cell evacuation";

/// Failure reason of a task whose cell disappeared.
pub const CELL_DISAPPEARED: &str = "cell disappeared before completion";

/// Failure reason of a task whose rep has no container for it.
pub const NO_CONTAINER: &str = "task container does not exist";

/// Failure reason of a task that no cell started in time.
pub const NOT_STARTED: &str = "not started within time limit";

/// Returns `true` if this failure reason means that the task was asked to stop. The container of such a task
/// has to be removed.
#[must_use]
pub fn was_stopped(reason: &str) -> bool {
    reason == CANCELLED || schemas::preemption::is_preempted(reason)
}

/// Record of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub guid: TaskGuid,
    pub domain: Domain,
    /// Current epoch of the guid, which is also the time of creation.
    pub epoch: Epoch,
    /// Number of decisions, over all remembered epochs.
    pub version: u64,
    /// Log position of the last decision; 0 before it is in the log.
    pub last_decision: Position,
    /// Time at which the current state was entered.
    pub since: Timestamp,
    pub definition: Arc<TaskDefinition>,
    /// Current state. `None` after deletion, when only the answers to requests are remembered.
    pub state: Option<State>,
    /// Open evaluation and the most recent ended ones, the newest last.
    pub evaluations: Evaluations,
    /// Most recent requests with their answers.
    pub requests: Requests,
    /// Decision that last required an action for the task: to place it, to stop it, or to resolve it.
    pub cause: Cause,
}

/// State of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Waits for an auction to place it.
    Pending {
        /// Placement error, if the task waits for room.
        placement_error: Option<Box<str>>,
    },
    /// Running on a cell.
    Running {
        /// Container that runs the task.
        by: Instance,
    },
    /// Ended, and waits to be resolved.
    Completed(Box<Completed>),
    /// Being resolved by the BBS or a client.
    Resolving(Box<Completed>),
}

/// End of a task. The first outcome is final.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completed {
    /// Container that ran the task. `None` if it never ran.
    pub by: Option<Instance>,
    /// Time at which the task became RUNNING. `None` if it never did.
    pub started_at: Option<Timestamp>,
    pub outcome: Outcome,
    /// Time of the first completion.
    pub first_completed_at: Timestamp,
    /// Result of the completion callback. `None` if it was not tried.
    pub callback: Option<Callback>,
}

impl Completed {
    /// Returns `true` if the owner may still be called.
    #[must_use]
    pub fn is_callback_open(&self) -> bool {
        self.callback.as_ref().is_none_or(|callback| callback.last.verdict() == CallbackVerdict::Repeat)
    }
}

/// Other state that a decision depends on.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub now: Timestamp,
    /// Returns `true` if the cell is present.
    pub is_present: &'a dyn Fn(&CellId) -> bool,
}

impl Task {
    /// Returns the name of the state as Diego writes it.
    #[must_use]
    pub const fn state_name(&self) -> &'static str {
        match self.state {
            Some(State::Pending { .. }) => "PENDING",
            Some(State::Running { .. }) => "RUNNING",
            Some(State::Completed(_)) => "COMPLETED",
            Some(State::Resolving(_)) => "RESOLVING",
            None => "DELETED",
        }
    }

    /// Returns the container that runs or ran the task.
    #[must_use]
    pub fn holder(&self) -> Option<&Instance> {
        match self.state.as_ref()? {
            State::Running { by } => Some(by),
            State::Completed(completed) | State::Resolving(completed) => completed.by.as_ref(),
            State::Pending { .. } => None,
        }
    }

    /// Returns the container of the task if the container may be preempted. The task must be RUNNING.
    #[must_use]
    pub const fn preemptible_container(&self) -> Option<&Instance> {
        match &self.state {
            Some(State::Running { by }) => Some(by),
            Some(State::Pending { .. } | State::Completed(_) | State::Resolving(_)) | None => None,
        }
    }

    /// Returns the end of the task. `None` if the task has not ended, or if it was deleted.
    #[must_use]
    pub fn completed(&self) -> Option<&Completed> {
        match self.state.as_ref()? {
            State::Completed(completed) | State::Resolving(completed) => Some(completed),
            State::Pending { .. } | State::Running { .. } => None,
        }
    }

    /// Returns `true` if the task is PENDING or RUNNING.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        matches!(self.state, Some(State::Pending { .. } | State::Running { .. }))
    }

    /// Returns `true` if an auction has to place the task.
    #[must_use]
    pub const fn is_pending(&self) -> bool {
        matches!(self.state, Some(State::Pending { .. }))
    }

    /// Returns the duty of the task's open evaluation, or `None` if the task is not waiting for placement.
    #[must_use]
    pub const fn duty(&self) -> Option<Duty> {
        match self.state {
            Some(State::Pending { placement_error: None }) => Some(Duty::Place),
            Some(State::Pending { placement_error: Some(_) }) => Some(Duty::Unblock),
            Some(State::Running { .. } | State::Completed(_) | State::Resolving(_)) | None => None,
        }
    }

    /// Returns the open evaluation of the task, or `None` if the task is not waiting for placement.
    #[must_use]
    pub fn open_evaluation(&self) -> Option<Evaluation> {
        evaluation::find_open(self.evaluations.iter(), self.duty()?)
    }

    /// Returns the time at which a PENDING task fails. This is the deadline of its placement or, if the
    /// placement sets no deadline, 30 minutes after the creation of the task.
    #[must_use]
    pub fn pending_until(&self) -> Timestamp {
        let created = self.epoch.0;
        match self.definition.placement {
            Placement::Fail => created + PENDING_TIMEOUT,
            Placement::Queue { deadline_ms } => created + Duration::from_millis(deadline_ms),
        }
    }

    /// Returns the next time at which convergence has something to do. Changes of cells may require
    /// convergence earlier.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        match self.state.as_ref()? {
            State::Pending { .. } => Some(self.pending_until()),
            State::Running { .. } => None,
            State::Completed(completed) => Some(completed.first_completed_at + COMPLETED_RETENTION),
            State::Resolving(completed) => {
                let kept = completed.first_completed_at + COMPLETED_RETENTION;
                Some(kept.min(self.since + RESOLVING_TIMEOUT))
            }
        }
    }
}

/// Decides which events a command causes. The list is empty if the state is already as requested.
///
/// # Errors
/// `ResourceExists`, `ResourceNotFound`, `InvalidStateTransition`, `RunningOnDifferentCell`, `StaleEpoch`,
/// `StaleRecord`, `ResourceConflict`, `CellAbsent`, `Forbidden` if a report names another domain, or
/// `Unavailable` if a report belongs to a later epoch.
pub fn decide(
    task: Option<&Task>,
    command: &Command,
    context: Context<'_>,
) -> Result<Vec<entry::Event>, Refusal> {
    let living = task.and_then(|task| task.state.as_ref().map(|state| (task, state)));
    let events = match (command, living) {
        (Command::Desire(desired) | Command::Launch(desired), None) => vec![Event::Desired(desired.clone())],
        (Command::Desire(_) | Command::Launch(_), Some((task, _))) => {
            return Err(Refusal::new(Code::ResourceExists, format!("task {} already exists", task.guid)));
        }
        (Command::Converge, None) => vec![],
        (Command::Report(report), None) => {
            task.map_or(Ok(()), |task| check_epoch(task, report))?;
            return Err(Refusal::not_found("the task"));
        }
        (_, None) => return Err(Refusal::not_found("the task")),
        (Command::Cancel, Some((task, state))) => cancel(task, state)?,
        (Command::Resolve, Some((task, state))) => resolve(task, state)?,
        (Command::Evict(eviction), Some((task, _))) => evict(task, eviction)?,
        (Command::Report(report), Some((task, state))) => judge_report(task, state, report, context)?,
        (Command::Fail(failed), Some((task, state))) => fail_placement(task, state, failed, context.now)?,
        (Command::Unanswered { evaluation, delivery }, Some((task, _))) => {
            let known = task.evaluations.to_vec();
            let events = evaluation::decide_unanswered(&known, *evaluation, *delivery, context.now)?;
            return Ok(events.into_iter().map(entry::Event::Evaluation).collect());
        }
        (Command::Retry(evaluation), Some((task, _))) => {
            let known = task.evaluations.to_vec();
            let events = evaluation::decide_retry(&known, *evaluation, &settle::left(Some(task)))?;
            return Ok(events.into_iter().map(entry::Event::Evaluation).collect());
        }
        (Command::BeginResolving, Some((task, state))) => begin_resolving(task, state)?,
        (Command::RecordCallback(epoch, called), Some((task, state))) => {
            record_callback(task, state, *epoch, called)?
        }
        (Command::Converge, Some((task, state))) => converge(task, state, context),
    };
    let settled = settle::settle(task, command, &events);
    let events = events.into_iter().map(entry::Event::Task);
    Ok(events.chain(settled.into_iter().map(entry::Event::Evaluation)).collect())
}

/// Returns the origin of a decision, given the state before the decision.
#[must_use]
pub fn origin(task: Option<&Task>, command: &Command, events: &[entry::Event]) -> Origin {
    let Some(task) = task else { return Origin::Root };
    let by_cell = events.iter().find_map(|event| match event {
        entry::Event::Task(Event::Completed {
            by: Some(by), outcome: Outcome::Failed { reason }, ..
        }) if reason == CELL_DISAPPEARED || reason == EVACUATION_TIMED_OUT => Some(&by.cell_id),
        entry::Event::Task(_)
        | entry::Event::Desired(_)
        | entry::Event::Actual(_)
        | entry::Event::Evacuating(_)
        | entry::Event::Rollout(_)
        | entry::Event::Evaluation(_)
        | entry::Event::Periodic(_)
        | entry::Event::Parameterised(_)
        | entry::Event::Domain(_)
        | entry::Event::Cell(_)
        | entry::Event::Cluster(_) => None,
    });
    match (command, by_cell) {
        (
            Command::Desire(_)
            | Command::Launch(_)
            | Command::Cancel
            | Command::Resolve
            // The caller replaces this origin by the cause of the work that gets the freed resources.
            | Command::Evict(_)
            | Command::Retry(_),
            _,
        ) => Origin::Root,
        (Command::Unanswered { evaluation, .. }, _) => {
            task.evaluations.iter().find(|one| one.id == *evaluation).map(|one| one.cause()).into()
        }
        (Command::Converge | Command::Report(_), Some(cell)) => Origin::Cell(cell.clone(), Some(task.cause)),
        (
            Command::Report(_)
            | Command::Fail(_)
            | Command::BeginResolving
            | Command::RecordCallback(..)
            | Command::Converge,
            _,
        ) => Origin::Decision(task.cause),
    }
}

/// Returns an error if the container belongs to an earlier epoch, or to a later epoch that this BBS has not
/// read from the log yet.
fn check_epoch(task: &Task, report: &Report) -> Result<(), Refusal> {
    match task.epoch.cmp(&report.epoch) {
        Ordering::Less => Err(Refusal::unknown_epoch()),
        Ordering::Equal => Ok(()),
        Ordering::Greater => {
            let why = "the task was created again after this container was created";
            Err(Refusal::new(Code::StaleEpoch, why))
        }
    }
}

fn invalid_transition(task: &Task, to: &str) -> Refusal {
    let why = format!("task {} is {}: it cannot be {to}", task.guid, task.state_name());
    Refusal::new(Code::InvalidStateTransition, why)
}

fn completed(by: Option<&Instance>, outcome: Outcome) -> Event {
    Event::Completed { by: by.cloned(), outcome, explanation: None }
}

fn failed(reason: &str) -> Outcome {
    Outcome::Failed { reason: limits::truncate(reason, limits::REASON_BYTES) }
}

fn cancel(task: &Task, state: &State) -> Result<Vec<Event>, Refusal> {
    match state {
        State::Pending { .. } => Ok(vec![completed(None, failed(CANCELLED))]),
        State::Running { by } => Ok(vec![completed(Some(by), failed(CANCELLED))]),
        State::Completed(_) | State::Resolving(_) => Err(invalid_transition(task, "cancelled")),
    }
}

/// Ends a task to free its resources for more urgent work. The task is not started again, because a task runs
/// at most once.
fn evict(task: &Task, eviction: &Eviction) -> Result<Vec<Event>, Refusal> {
    let by = task.preemptible_container().filter(|by| **by == eviction.by);
    let Some(by) = by else { return Err(preemption::stale_eviction(preemption::task_label(&task.guid))) };
    preemption::check_priority(&eviction.preemptor, task.definition.priority)?;
    Ok(vec![completed(Some(by), failed(&eviction.preemptor.to_string()))])
}

fn resolve(task: &Task, state: &State) -> Result<Vec<Event>, Refusal> {
    match state {
        State::Completed(_) => Ok(vec![Event::Resolving {}, Event::Deleted {}]),
        State::Pending { .. } | State::Running { .. } | State::Resolving(_) => {
            Err(invalid_transition(task, "resolved"))
        }
    }
}

fn begin_resolving(task: &Task, state: &State) -> Result<Vec<Event>, Refusal> {
    match state {
        State::Completed(done) if !done.is_callback_open() => Ok(vec![]),
        State::Completed(_) => Ok(vec![Event::Resolving {}]),
        State::Pending { .. } | State::Running { .. } | State::Resolving(_) => {
            Err(invalid_transition(task, "resolved"))
        }
    }
}

/// Records the result of a call of the completion callback. Every call is recorded; the backoff between calls
/// limits their number. A delivery deletes the task. If the result rules out further calls, the task is
/// COMPLETED again.
fn record_callback(
    task: &Task,
    state: &State,
    epoch: Epoch,
    called: &CallbackResult,
) -> Result<Vec<Event>, Refusal> {
    if task.epoch != epoch {
        return Err(Refusal::new(Code::StaleEpoch, "the task was created again after its owner was called"));
    }
    let (done, resolving) = match state {
        State::Resolving(done) => (done, true),
        State::Completed(done) => (done, false),
        State::Pending { .. } | State::Running { .. } => return Err(invalid_transition(task, "deleted")),
    };
    let attempt = done.callback.as_ref().map_or(0, |callback| callback.attempts).saturating_add(1);
    let outcome = match called {
        CallbackResult::Answered(status) => CallbackResult::Answered(*status),
        CallbackResult::Failed(why) => CallbackResult::Failed(limits::truncate(why, limits::REASON_BYTES)),
        CallbackResult::Refused(why) => CallbackResult::Refused(limits::truncate(why, limits::REASON_BYTES)),
    };
    let verdict = outcome.verdict();
    let mut events = vec![Event::CallbackTried { attempt, outcome }];
    match (verdict, resolving) {
        (CallbackVerdict::Delivered, true) => events.push(Event::Deleted {}),
        (CallbackVerdict::Delivered, false) => events.extend([Event::Resolving {}, Event::Deleted {}]),
        (CallbackVerdict::Ended, true) => events.push(Event::Demoted {}),
        (CallbackVerdict::Ended, false) | (CallbackVerdict::Repeat, true | false) => {}
    }
    Ok(events)
}

fn judge_report(
    task: &Task,
    state: &State,
    report: &Report,
    context: Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    check_epoch(task, report)?;
    if task.domain != report.domain {
        return Err(Refusal::new(
            Code::Forbidden,
            format!("task {} is in domain {}", task.guid, task.domain),
        ));
    }
    if !(context.is_present)(&report.by.cell_id) {
        return Err(Refusal::new(Code::CellAbsent, format!("cell {} is not present", report.by.cell_id)));
    }
    let elsewhere = |by: &Instance| {
        let why = format!("task {} runs on cell {} as {}", task.guid, by.cell_id, by.instance_guid);
        Refusal::new(Code::RunningOnDifferentCell, why)
    };
    match (&report.step, state) {
        (ReportStep::Start { placement, isolation }, State::Pending { .. }) => {
            let (by, placement, isolation) = (report.by.clone(), placement.clone(), *isolation);
            Ok(vec![Event::Started { by, placement, isolation }])
        }
        (ReportStep::Start { .. }, State::Running { by }) if *by == report.by => Ok(vec![]),
        (ReportStep::Start { .. }, State::Running { by }) => Err(elsewhere(by)),
        (ReportStep::Start { .. }, State::Completed(_) | State::Resolving(_)) => {
            Err(invalid_transition(task, "started"))
        }
        (ReportStep::Complete { outcome }, State::Pending { .. }) => {
            Ok(vec![completed(Some(&report.by), bounded_outcome(outcome))])
        }
        (ReportStep::Complete { outcome }, State::Running { by }) if *by == report.by => {
            Ok(vec![completed(Some(by), bounded_outcome(outcome))])
        }
        (ReportStep::Complete { .. }, State::Running { by }) => Err(elsewhere(by)),
        (ReportStep::Complete { .. }, State::Completed(done) | State::Resolving(done))
            if done.by.as_ref() == Some(&report.by) =>
        {
            Ok(vec![])
        }
        (ReportStep::Complete { .. }, State::Completed(_) | State::Resolving(_)) => {
            Err(invalid_transition(task, "completed"))
        }
    }
}

/// Maximum size of a result as JSON within a decision.
const RESULT_JSON_BYTES: usize = limits::DECISION_BYTES - limits::DECISION_HEAD_BYTES;

fn json_len(text: &str) -> usize {
    serde_json::to_string(text).map_or(usize::MAX, |json| json.len())
}

fn bounded_outcome(outcome: &Outcome) -> Outcome {
    match outcome {
        Outcome::Succeeded { result } if result.len() > limits::TASK_RESULT_BYTES => {
            failed(&format!("result is larger than {} bytes", limits::TASK_RESULT_BYTES))
        }
        // In JSON, a control character takes six bytes. A decision that exceeds the limit could never be
        // stored.
        Outcome::Succeeded { result } if json_len(result) > RESULT_JSON_BYTES => {
            failed(&format!("result takes {} bytes as JSON, more than {RESULT_JSON_BYTES}", json_len(result)))
        }
        Outcome::Succeeded { result } => Outcome::Succeeded { result: result.clone() },
        Outcome::Failed { reason } => failed(reason),
    }
}

/// Records a placement error. The named evaluation must still be open.
fn fail_placement(
    task: &Task,
    state: &State,
    failed_to_place: &Unplaced,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let id = failed_to_place.evaluation;
    evaluation::open_duty(task.evaluations.iter().find(|one| one.id == id).as_ref(), id)?;
    let explanation = failed_to_place.explanation.clone();
    let error = limits::truncate(&failed_to_place.error, limits::REASON_BYTES);
    Ok(match (state, task.definition.placement) {
        (State::Pending { placement_error }, Placement::Queue { .. }) if now < task.pending_until() => {
            let known = placement_error.as_deref() == Some(error.as_str());
            if known { vec![] } else { vec![Event::PlacementFailed { error, explanation }] }
        }
        (State::Pending { .. }, Placement::Queue { .. } | Placement::Fail) => {
            vec![Event::Completed { by: None, outcome: failed(&error), explanation }]
        }
        (State::Running { .. } | State::Completed(_) | State::Resolving(_), _) => vec![],
    })
}

/// Carries out the duties that Diego Dev Notes list under "Maintaining Consistency: Convergence". The fourth
/// duty, to request the resolution of a COMPLETED task, changes no state and is left to the BBS.
fn converge(task: &Task, state: &State, context: Context<'_>) -> Vec<Event> {
    let now = context.now;
    match state {
        State::Running { by } if !(context.is_present)(&by.cell_id) => {
            vec![completed(Some(by), failed(CELL_DISAPPEARED))]
        }
        State::Pending { placement_error } if task.pending_until() <= now => {
            vec![completed(None, failed(placement_error.as_deref().unwrap_or(NOT_STARTED)))]
        }
        State::Completed(done) if done.first_completed_at + COMPLETED_RETENTION <= now => {
            vec![Event::Deleted {}]
        }
        State::Resolving(done) if done.first_completed_at + COMPLETED_RETENTION <= now => {
            vec![Event::Demoted {}, Event::Deleted {}]
        }
        State::Resolving(_) if task.since + RESOLVING_TIMEOUT <= now => vec![Event::Demoted {}],
        State::Pending { .. } | State::Running { .. } | State::Completed(_) | State::Resolving(_) => vec![],
    }
}

/// Applies the events of one decision to the task. Never fails, because events in the log are facts.
#[must_use]
pub fn evolve(task: Option<Task>, events: &[entry::Event], stamp: &Stamp) -> Option<Task> {
    let mut task = task;
    for event in events {
        match event {
            entry::Event::Task(event) => task = evolve_one(task, event, stamp),
            entry::Event::Evaluation(event) => {
                if let Some(task) = &mut task {
                    task.evaluations.modify(|all| evaluation::evolve(all, event, stamp));
                }
            }
            entry::Event::Desired(_)
            | entry::Event::Actual(_)
            | entry::Event::Evacuating(_)
            | entry::Event::Rollout(_)
            | entry::Event::Periodic(_)
            | entry::Event::Parameterised(_)
            | entry::Event::Domain(_)
            | entry::Event::Cell(_)
            | entry::Event::Cluster(_) => {}
        }
    }
    if let Some(task) = &mut task {
        task.version += 1;
        if let Some(request) = &stamp.request {
            task.requests.remember(request.clone(), task.version);
        }
    }
    task
}

fn evolve_one(task: Option<Task>, event: &Event, stamp: &Stamp) -> Option<Task> {
    if let Event::Desired(desired) = event {
        let old = task.map(|old| (old.version, old.requests, old.evaluations));
        let (version, requests, evaluations) = old.unwrap_or_default();
        return Some(Task {
            guid: desired.task_guid.clone(),
            domain: desired.domain.clone(),
            epoch: Epoch(stamp.at),
            version,
            last_decision: Position(0),
            since: stamp.at,
            definition: Arc::clone(&desired.definition),
            state: Some(State::Pending { placement_error: None }),
            evaluations,
            requests,
            cause: stamp.cause(),
        });
    }
    let mut task = task?;
    let done = |state: Option<State>| match state {
        Some(State::Completed(done) | State::Resolving(done)) => Some(done),
        Some(State::Pending { .. } | State::Running { .. }) | None => None,
    };
    if let Event::PlacementFailed { error, .. } = event {
        task.state = Some(State::Pending { placement_error: Some(error.as_str().into()) });
        return Some(task);
    }
    if let Event::CallbackTried { attempt, outcome: called } = event {
        if let Some(State::Completed(done) | State::Resolving(done)) = &mut task.state {
            done.callback = Some(Callback { attempts: *attempt, last: called.clone(), at: stamp.at });
        }
        return Some(task);
    }
    let ran_since = matches!(task.state, Some(State::Running { .. })).then_some(task.since);
    task.since = stamp.at;
    task.cause = if event.makes_work() { stamp.cause() } else { task.cause };
    task.state = match event {
        Event::Desired(_) | Event::PlacementFailed { .. } | Event::CallbackTried { .. } => task.state,
        Event::Started { by, .. } => Some(State::Running { by: by.clone() }),
        Event::Completed { by, outcome, .. } => Some(State::Completed(Box::new(Completed {
            by: by.clone(),
            started_at: ran_since,
            outcome: outcome.clone(),
            first_completed_at: stamp.at,
            callback: None,
        }))),
        Event::Resolving {} => done(task.state).map(State::Resolving),
        Event::Demoted {} => done(task.state).map(State::Completed),
        Event::Deleted {} => None,
    };
    Some(task)
}
