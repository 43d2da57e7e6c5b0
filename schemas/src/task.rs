//! The task: runs at most once, and ends (Diego Dev Notes, "Tasks").
//!
//! ```text
//! (desire) ─▶ PENDING ── start ──▶ RUNNING ── complete, fail ──▶ COMPLETED ── resolve ──▶ RESOLVING ─▶ (deleted)
//!                └── cancel, fail, expire ──────────────────────▶    ▲ └── too long ago ──────────────────▲
//!                                                                     └── demoted ─────────┘
//! ```

mod settle;

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cause::{Cause, Origin};
use crate::container::{Epoch, Instance};
use crate::definition::{DesiredTask, Placement, TaskDefinition};
use crate::entry::{self, Stamp};
use crate::evaluation::{self, Duty, Evaluation, Evaluations};
use crate::isolation::Isolation;
use crate::names::{CellId, Domain, EvaluationId, TaskGuid};
use crate::placement::Explanation;
use crate::preemption::{self, Eviction};
use crate::refusal::{Code, Refusal};
use crate::request::Requests;
use crate::subject::Position;
use crate::{Timestamp, limits};

/// A task that is still PENDING after this long has failed.
pub const PENDING_EXPIRES: Duration = Duration::from_secs(30 * 60);
/// A COMPLETED task is asked again to be resolved after this long.
pub const COMPLETED_ASKED_AGAIN: Duration = Duration::from_secs(30);
/// A RESOLVING task becomes COMPLETED again after this long.
pub const RESOLVING_DEMOTED: Duration = Duration::from_secs(30);
/// A task is deleted this long after it first completed.
pub const COMPLETED_DELETED: Duration = Duration::from_secs(2 * 60);

/// The failure reason of a task that was cancelled.
pub const CANCELLED: &str = "cancelled";
/// The failure reason of a task that ran when its cell's evacuation timed out.
pub const EVACUATION_TIMED_OUT: &str = "timed out during cell evacuation";
/// The failure reason of a task whose cell disappeared.
pub const CELL_DISAPPEARED: &str = "cell disappeared before completion";
/// The failure reason of a task whose container is not there.
pub const NO_CONTAINER: &str = "task container does not exist";
/// The failure reason of a task that nobody started in time.
pub const NOT_STARTED: &str = "not started within time limit";

/// Whether a task that failed for this reason was asked to stop: its container is to go.
#[must_use]
pub fn was_stopped(reason: &str) -> bool {
    reason == CANCELLED || preemption::is_preempted(reason)
}

/// What is true of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its name.
    pub guid: TaskGuid,
    /// Its domain.
    pub domain: Domain,
    /// Which life of the guid this is; also when it was created.
    pub epoch: Epoch,
    /// Decisions so far.
    pub version: u64,
    /// Where the last decision stands in the log; 0: nowhere yet.
    pub last_decision: Position,
    /// When its state was entered.
    pub since: Timestamp,
    /// What it runs.
    pub definition: Arc<TaskDefinition>,
    /// Its state, with what that state has. None: it was deleted, and only its answers are remembered.
    pub state: Option<State>,
    /// The open evaluation and the newest that ended, the newest last.
    pub evaluations: Evaluations,
    /// The newest requests and their answers.
    pub requests: Requests,
    /// The decision that last made work for it: to be placed, to be stopped, or to be resolved.
    pub cause: Cause,
}

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Being scheduled.
    Pending {
        /// Why it could not be placed yet, if it waits for room.
        placement_error: Option<Box<str>>,
    },
    /// Running on a cell.
    Running {
        /// The container.
        by: Instance,
    },
    /// Complete; waits to be resolved.
    Completed(Box<Completed>),
    /// Being resolved by the BBS or a client.
    Resolving(Box<Completed>),
}

/// How a task ended. The first outcome wins and never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completed {
    /// The container that ran it, if one did.
    pub by: Option<Instance>,
    /// Since when it ran; none: it never did.
    pub started_at: Option<Timestamp>,
    /// Its outcome.
    pub outcome: Outcome,
    /// When it first completed.
    pub first_completed_at: Timestamp,
    /// What came of calling its owner, if that was tried.
    pub callback: Option<Callback>,
}

/// What came of calling the owner of a completed task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Callback {
    /// How often the owner was called.
    pub attempts: u32,
    /// What came of the last call.
    pub last: Called,
    /// When that was recorded.
    pub at: Timestamp,
}

/// What came of one completion callback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Called {
    /// The server answered with this status.
    Answered(u16),
    /// It did not answer, and why.
    Failed(String),
    /// It was not called: the BBS may not call there, and why.
    Refused(String),
}

/// What follows from an answer to a completion callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackVerdict {
    /// The owner knows: the task goes.
    Delivered,
    /// It is called again, after a wait.
    Repeat,
    /// It is never called again; the task stays until its time is over or somebody resolves it.
    Ended,
}

impl Called {
    /// What follows: 2xx is delivered; no answer, 408, 429 and 5xx are repeated; anything else ends it, and so does that it
    /// may not be called.
    #[must_use]
    pub const fn verdict(&self) -> CallbackVerdict {
        match self {
            Self::Answered(200..=299) => CallbackVerdict::Delivered,
            Self::Answered(408 | 429 | 500..=599) | Self::Failed(_) => CallbackVerdict::Repeat,
            Self::Answered(_) | Self::Refused(_) => CallbackVerdict::Ended,
        }
    }
}

impl std::fmt::Display for Called {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Answered(status) => write!(f, "answered {status}"),
            Self::Failed(why) => write!(f, "no answer: {why}"),
            Self::Refused(why) => write!(f, "not called: {why}"),
        }
    }
}

impl Completed {
    /// Whether its owner may still be called.
    #[must_use]
    pub fn is_owner_called(&self) -> bool {
        self.callback.as_ref().is_none_or(|callback| callback.last.verdict() == CallbackVerdict::Repeat)
    }
}

/// The outcome of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It succeeded.
    Succeeded {
        /// The content of its result file, at most 50 KiB.
        result: String,
    },
    /// It failed.
    Failed {
        /// Why.
        reason: String,
    },
}

/// What can be asked of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A client desires it.
    Desire(Box<DesiredTask>),
    /// A periodic task launches it.
    Launch(Box<DesiredTask>),
    /// A client cancels it.
    Cancel,
    /// A client resolves it: COMPLETED, RESOLVING, deleted, in one decision.
    Resolve,
    /// The auctioneer wants it stopped, so that something more urgent has room.
    Evict(Box<Eviction>),
    /// A rep reports its container.
    Report(Report),
    /// The auctioneer could not place it.
    Fail(Unplaced),
    /// The auctioneer didn't answer a delivery of its evaluation.
    Unanswered {
        /// Which.
        evaluation: EvaluationId,
        /// The how manieth delivery.
        delivery: u32,
    },
    /// A client wants its evaluation tried again now.
    Retry(EvaluationId),
    /// The BBS is about to call the completion callback.
    BeginResolving,
    /// The owner of this life was called, and what came of it.
    Called(Epoch, Called),
    /// The BBS looks whether something is due: a lost cell, an expired wait.
    Converge,
}

/// What an auctioneer says of a task that no cell takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unplaced {
    /// The evaluation that was judged.
    pub evaluation: EvaluationId,
    /// Why, as users read it.
    pub error: String,
    /// Whether that is the end of its attempts: reps refused it too often.
    pub used_up: bool,
    /// Why, cell by cell.
    pub explanation: Option<Box<Explanation>>,
}

/// What a rep asks of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The domain of the container.
    pub domain: Domain,
    /// The life of the guid that the container belongs to.
    pub epoch: Epoch,
    /// The container.
    pub by: Instance,
    /// What is asked.
    pub step: ReportStep,
}

/// What a rep asks of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportStep {
    /// The container has a reservation and wants to run.
    Start {
        /// Why it was placed there, as the auction said.
        placement: Option<Box<Explanation>>,
        /// How it will be kept apart.
        #[serde(default)]
        isolation: Isolation,
    },
    /// The container ended, or is not there.
    Complete {
        /// How.
        outcome: Outcome,
    },
}

/// What happens to tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was created.
    Desired(Box<DesiredTask>),
    /// A cell runs it.
    Started {
        /// The container.
        by: Instance,
        /// Why there.
        placement: Option<Box<Explanation>>,
        /// How it is kept apart.
        isolation: Isolation,
    },
    /// It could not be placed and waits for room.
    PlacementFailed {
        /// Why.
        error: String,
        /// Why, cell by cell.
        explanation: Option<Box<Explanation>>,
    },
    /// It ended.
    Completed {
        /// The container that ran it, if one did.
        by: Option<Instance>,
        /// How.
        outcome: Outcome,
        /// Why, cell by cell, if it could not be placed.
        explanation: Option<Box<Explanation>>,
    },
    /// Somebody resolves it.
    Resolving {},
    /// Its owner was called.
    CallbackTried {
        /// The how manieth call of this life it was, from 1.
        attempt: u32,
        /// What came of it.
        called: Called,
    },
    /// Nobody finished resolving it.
    Demoted {},
    /// It is gone.
    Deleted {},
}

impl Event {
    /// Whether it makes work: for an auction, for whoever resolves the task, or, after a cancellation, for its cell.
    #[must_use]
    pub const fn makes_work(&self) -> bool {
        match self {
            Self::Desired(_) | Self::Completed { .. } | Self::Resolving {} | Self::Demoted {} => true,
            Self::Started { .. }
            | Self::PlacementFailed { .. }
            | Self::CallbackTried { .. }
            | Self::Deleted {} => false,
        }
    }
}

/// What else a decision depends on.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The time of the decision.
    pub now: Timestamp,
    /// Whether a cell is present.
    pub present: &'a dyn Fn(&CellId) -> bool,
}

impl Task {
    /// The name of the state, as Diego writes it.
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

    /// The container that runs or ran it.
    #[must_use]
    pub fn holder(&self) -> Option<&Instance> {
        match self.state.as_ref()? {
            State::Running { by } => Some(by),
            State::Completed(completed) | State::Resolving(completed) => completed.by.as_ref(),
            State::Pending { .. } => None,
        }
    }

    /// How it ended, if it did.
    #[must_use]
    pub fn completed(&self) -> Option<&Completed> {
        match self.state.as_ref()? {
            State::Completed(completed) | State::Resolving(completed) => Some(completed),
            State::Pending { .. } | State::Running { .. } => None,
        }
    }

    /// Whether it is to run, or runs.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        matches!(self.state, Some(State::Pending { .. } | State::Running { .. }))
    }

    /// Whether an auction has to place it.
    #[must_use]
    pub const fn is_pending(&self) -> bool {
        matches!(self.state, Some(State::Pending { .. }))
    }

    /// The open evaluation that stands for it; none: it is not to be placed.
    #[must_use]
    pub fn open_evaluation(&self) -> Option<Evaluation> {
        let State::Pending { placement_error } = self.state.as_ref()? else { return None };
        let duty = if placement_error.is_some() { Duty::Unblock } else { Duty::Place };
        evaluation::open(self.evaluations.iter(), duty)
    }

    /// When a task that waits for room gives up; every PENDING task does after 30 minutes.
    #[must_use]
    pub fn pending_until(&self) -> Timestamp {
        let created = self.epoch.0;
        match self.definition.placement {
            Placement::Fail => created + PENDING_EXPIRES,
            Placement::Queue { deadline_ms } => created + Duration::from_millis(deadline_ms),
        }
    }

    /// The moment at which convergence next has something to do here, cells aside.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        match self.state.as_ref()? {
            State::Pending { .. } => Some(self.pending_until()),
            State::Running { .. } => None,
            State::Completed(completed) => Some(completed.first_completed_at + COMPLETED_DELETED),
            State::Resolving(completed) => {
                let kept = completed.first_completed_at + COMPLETED_DELETED;
                Some(kept.min(self.since + RESOLVING_DEMOTED))
            }
        }
    }
}

/// Judges a command against what is true. No events: it is so already.
///
/// # Errors `ResourceExists`, `ResourceNotFound`, `InvalidStateTransition`, `RunningOnDifferentCell`, `StaleEpoch`,
/// `CellAbsent`, `Unavailable` if the report is of a later life.
pub fn decide(
    task: Option<&Task>,
    command: &Command,
    context: Context<'_>,
) -> Result<Vec<entry::Event>, Refusal> {
    let living = task.and_then(|task| task.state.as_ref().map(|state| (task, state)));
    let events = match (command, living) {
        (Command::Desire(desired) | Command::Launch(desired), None) => vec![Event::Desired(desired.clone())],
        (Command::Desire(_) | Command::Launch(_), Some((task, _))) => {
            return Err(Refusal::new(Code::ResourceExists, format!("task {} exists already", task.guid)));
        }
        (Command::Converge, None) => vec![],
        (Command::Report(report), None) => {
            task.map_or(Ok(()), |task| check_life(task, report))?;
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
        (Command::Called(epoch, called), Some((task, state))) => owner_called(task, state, *epoch, called)?,
        (Command::Converge, Some((task, state))) => converge(task, state, context),
    };
    let settled = settle::settle(task, command, &events);
    let events = events.into_iter().map(entry::Event::Task);
    Ok(events.chain(settled.into_iter().map(entry::Event::Evaluation)).collect())
}

/// Where a decision comes from, told from what was true before it.
#[must_use]
pub fn origin(task: Option<&Task>, command: &Command, events: &[entry::Event]) -> Origin {
    let Some(task) = task else { return Origin::Beginning };
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
            // Whose room it is to be says where it comes from.
            | Command::Evict(_)
            | Command::Retry(_),
            _,
        ) => Origin::Beginning,
        (Command::Unanswered { evaluation, .. }, _) => {
            task.evaluations.iter().find(|one| one.id == *evaluation).map(|one| one.cause()).into()
        }
        (Command::Converge | Command::Report(_), Some(cell)) => Origin::Cell(cell.clone(), Some(task.cause)),
        (
            Command::Report(_)
            | Command::Fail(_)
            | Command::BeginResolving
            | Command::Called(..)
            | Command::Converge,
            _,
        ) => Origin::Decision(task.cause),
    }
}

/// Nothing of an earlier life reports into a later one; of a life that was not heard of yet nothing is known.
fn check_life(task: &Task, report: &Report) -> Result<(), Refusal> {
    match task.epoch.cmp(&report.epoch) {
        Ordering::Less => Err(Refusal::behind()),
        Ordering::Equal => Ok(()),
        Ordering::Greater => {
            let why = "the task was created anew since that container was made";
            Err(Refusal::new(Code::StaleEpoch, why))
        }
    }
}

fn transition(task: &Task, to: &str) -> Refusal {
    let why = format!("task {} is {}: it can't be {to}", task.guid, task.state_name());
    Refusal::new(Code::InvalidStateTransition, why)
}

fn completed(by: Option<&Instance>, outcome: Outcome) -> Event {
    Event::Completed { by: by.cloned(), outcome, explanation: None }
}

fn failed(reason: &str) -> Outcome {
    Outcome::Failed { reason: limits::cut(reason, limits::REASON_BYTES) }
}

fn cancel(task: &Task, state: &State) -> Result<Vec<Event>, Refusal> {
    match state {
        State::Pending { .. } => Ok(vec![completed(None, failed(CANCELLED))]),
        State::Running { by } => Ok(vec![completed(Some(by), failed(CANCELLED))]),
        State::Completed(_) | State::Resolving(_) => Err(transition(task, "cancelled")),
    }
}

/// Something more urgent gets its room: it ran at most once, and is over.
fn evict(task: &Task, eviction: &Eviction) -> Result<Vec<Event>, Refusal> {
    let by = preemption::task(task).filter(|by| **by == eviction.by);
    let Some(by) = by else { return Err(preemption::changed(preemption::named(&task.guid))) };
    eviction.preemptor.check(task.definition.priority)?;
    Ok(vec![completed(Some(by), failed(&eviction.preemptor.to_string()))])
}

fn resolve(task: &Task, state: &State) -> Result<Vec<Event>, Refusal> {
    match state {
        State::Completed(_) => Ok(vec![Event::Resolving {}, Event::Deleted {}]),
        State::Pending { .. } | State::Running { .. } | State::Resolving(_) => {
            Err(transition(task, "resolved"))
        }
    }
}

fn begin_resolving(task: &Task, state: &State) -> Result<Vec<Event>, Refusal> {
    match state {
        State::Completed(done) if !done.is_owner_called() => Ok(vec![]),
        State::Completed(_) => Ok(vec![Event::Resolving {}]),
        State::Pending { .. } | State::Running { .. } | State::Resolving(_) => {
            Err(transition(task, "resolved"))
        }
    }
}

/// What came of a completion callback is recorded, each call: backoff keeps them few. An owner that knows lets the task
/// go; one that refuses it is left alone, and the task is COMPLETED again.
fn owner_called(task: &Task, state: &State, epoch: Epoch, called: &Called) -> Result<Vec<Event>, Refusal> {
    if task.epoch != epoch {
        return Err(Refusal::new(Code::StaleEpoch, "the task was created anew since its owner was called"));
    }
    let (done, resolving) = match state {
        State::Resolving(done) => (done, true),
        State::Completed(done) => (done, false),
        State::Pending { .. } | State::Running { .. } => return Err(transition(task, "deleted")),
    };
    let attempt = done.callback.as_ref().map_or(0, |callback| callback.attempts).saturating_add(1);
    let called = match called {
        Called::Answered(status) => Called::Answered(*status),
        Called::Failed(why) => Called::Failed(limits::cut(why, limits::REASON_BYTES)),
        Called::Refused(why) => Called::Refused(limits::cut(why, limits::REASON_BYTES)),
    };
    let verdict = called.verdict();
    let mut events = vec![Event::CallbackTried { attempt, called }];
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
    check_life(task, report)?;
    if task.domain != report.domain {
        return Err(Refusal::new(
            Code::Forbidden,
            format!("task {} is in domain {}", task.guid, task.domain),
        ));
    }
    if !(context.present)(&report.by.cell_id) {
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
            Err(transition(task, "started"))
        }
        (ReportStep::Complete { outcome }, State::Pending { .. }) => {
            Ok(vec![completed(Some(&report.by), bounded(outcome))])
        }
        (ReportStep::Complete { outcome }, State::Running { by }) if *by == report.by => {
            Ok(vec![completed(Some(by), bounded(outcome))])
        }
        (ReportStep::Complete { .. }, State::Running { by }) => Err(elsewhere(by)),
        (ReportStep::Complete { .. }, State::Completed(done) | State::Resolving(done))
            if done.by.as_ref() == Some(&report.by) =>
        {
            Ok(vec![])
        }
        (ReportStep::Complete { .. }, State::Completed(_) | State::Resolving(_)) => {
            Err(transition(task, "completed"))
        }
    }
}

/// What of a decision a result may take.
const RESULT_JSON_BYTES: usize = limits::DECISION_BYTES - limits::DECISION_HEAD_BYTES;

fn bytes_of_json(text: &str) -> usize {
    serde_json::to_string(text).map_or(usize::MAX, |json| json.len())
}

fn bounded(outcome: &Outcome) -> Outcome {
    match outcome {
        Outcome::Succeeded { result } if result.len() > limits::TASK_RESULT_BYTES => {
            failed(&format!("result is larger than {} bytes", limits::TASK_RESULT_BYTES))
        }
        // A control character takes six bytes of JSON: what no decision holds could never be stored.
        Outcome::Succeeded { result } if bytes_of_json(result) > RESULT_JSON_BYTES => failed(&format!(
            "result takes {} bytes as JSON, more than {RESULT_JSON_BYTES}",
            bytes_of_json(result)
        )),
        Outcome::Succeeded { result } => Outcome::Succeeded { result: result.clone() },
        Outcome::Failed { reason } => failed(reason),
    }
}

/// An outcome settles only what the evaluation that it names still stands for.
fn fail_placement(
    task: &Task,
    state: &State,
    failed_to_place: &Unplaced,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let id = failed_to_place.evaluation;
    evaluation::judged(task.evaluations.iter().find(|one| one.id == id).as_ref(), id)?;
    let explanation = failed_to_place.explanation.clone();
    let error = limits::cut(&failed_to_place.error, limits::REASON_BYTES);
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

/// The duties of Diego Dev Notes, "Maintaining Consistency: Convergence". The fourth, to ask for a COMPLETED task to be
/// resolved, changes nothing and is the BBS's own.
fn converge(task: &Task, state: &State, context: Context<'_>) -> Vec<Event> {
    let now = context.now;
    match state {
        State::Running { by } if !(context.present)(&by.cell_id) => {
            vec![completed(Some(by), failed(CELL_DISAPPEARED))]
        }
        State::Pending { placement_error } if task.pending_until() <= now => {
            vec![completed(None, failed(placement_error.as_deref().unwrap_or(NOT_STARTED)))]
        }
        State::Completed(done) if done.first_completed_at + COMPLETED_DELETED <= now => {
            vec![Event::Deleted {}]
        }
        State::Resolving(done) if done.first_completed_at + COMPLETED_DELETED <= now => {
            vec![Event::Demoted {}, Event::Deleted {}]
        }
        State::Resolving(_) if task.since + RESOLVING_DEMOTED <= now => vec![Event::Demoted {}],
        State::Pending { .. } | State::Running { .. } | State::Completed(_) | State::Resolving(_) => vec![],
    }
}

/// Folds one decision's events. Total: the log is never argued with.
#[must_use]
pub fn evolve(task: Option<Task>, events: &[entry::Event], stamp: &Stamp) -> Option<Task> {
    let mut task = task;
    for event in events {
        match event {
            entry::Event::Task(event) => task = evolve_one(task, event, stamp),
            entry::Event::Evaluation(event) => {
                if let Some(task) = &mut task {
                    task.evaluations.change(|all| evaluation::evolve(all, event, stamp));
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
    if let Event::CallbackTried { attempt, called } = event {
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
