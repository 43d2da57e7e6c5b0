//! Evaluations: the record of every scheduling attempt and its cause (Nomad evaluation states;
//! docs/internals/model/evaluations.md, "Evaluations").
//!
//! ```text
//! (cause) ──▶ pending ──▶ complete     placed as far as possible; the remaining work waits in a blocked child
//!               │  ├────▶ failed       not answered, or refused by reps too often; a child takes over
//!               │  └────▶ canceled     nothing left to place, or superseded by a newer cause
//!               ▲ retry                                     ▲
//!             failed ──retry──▶ blocked ──▶ complete        │
//! (queued) ───────────────────▶ blocked ──▶ canceled ───────┘
//! ```
//!
//! Ended evaluations are removed from the tables of the projected state (World), but stay in the log. The
//! waiting work of a process or task is divided into three kinds ([`Duty`]): work to place, work that waits
//! for room, and delayed restarts. One open evaluation covers all waiting work of a kind. So a process or
//! task has at most three open evaluations.

mod decide;

use std::borrow::Borrow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::names::{DecisionId, EvaluationId};
use crate::packed::Packed;
use crate::placement::Eligibility;
use crate::stamp::Stamp;
use crate::{Timestamp, limits};

pub use decide::{
    FOLLOW_UP_DELAY, MAX_DELIVERIES, MAX_FOLLOW_UP_DELAY, SECOND_DELIVERY_DELAY, THIRD_DELIVERY_DELAY,
    WaitingWork, WorkEffects, decide, decide_retry, decide_unanswered, follow_up_delay, open_duty,
};

/// Record of one scheduling attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evaluation {
    /// Id of the evaluation. The first evaluation that a decision creates has the id of the decision.
    pub id: EvaluationId,
    /// Decision that created the evaluation.
    pub decision: DecisionId,
    /// First decision of the chain that led to the evaluation.
    pub correlation: DecisionId,
    /// Decision that caused the evaluation. Absent if the evaluation starts a chain. The log always contains
    /// this decision. In contrast, `previous`, `next` and `blocked` may name evaluations that were removed
    /// from the tables.
    pub caused_by: Option<DecisionId>,
    /// Reason for the work.
    pub trigger: Trigger,
    /// Status of the evaluation.
    pub status: Status,
    /// Reason why a pending evaluation is not scheduled yet.
    pub wait: Wait,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last change of the status.
    pub since: Timestamp,
    /// Evaluation whose work this one continues.
    pub previous: Option<EvaluationId>,
    /// Evaluation that follows this one: the next step of a rolling update, or the follow-up of a failed
    /// evaluation.
    pub next: Option<EvaluationId>,
    /// Blocked evaluation that took over the work that this evaluation could not place. The blocked
    /// evaluation waits for room (free resources on a cell).
    pub blocked: Option<EvaluationId>,
    /// Number of instances or tasks that the evaluation placed.
    pub placed: u32,
    /// Number of instances or tasks that found no place and wait for room.
    pub queued: u32,
    /// Number of instances or tasks that found no place and do not wait.
    pub rejected: u32,
    /// Number of instances that the evaluation asked to stop.
    pub stopped: u32,
    /// Number of deliveries to the auctioneer.
    pub delivery: u32,
    /// Number of follow-ups before this evaluation in its chain.
    pub follow_ups: u32,
    /// Number of further causes that joined the evaluation while it was pending.
    pub joins: u32,
    /// Most recent causes that joined, oldest first.
    pub joined: Vec<Joined>,
    /// Kinds of cells that were tried for a blocked evaluation. These kinds determine which changes of cells
    /// can unblock the evaluation. Absent if reps refused the work too often and no cell was tried since.
    pub eligibility: Option<Box<Eligibility>>,
}

/// A further cause that joined a pending evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Joined {
    /// Reason for the work.
    pub trigger: Trigger,
    /// Decision that joined.
    pub decision: DecisionId,
    /// Time of that decision.
    pub at: Timestamp,
}

/// Reason for the work of an evaluation. The corresponding `TriggeredBy` of Nomad is in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A process or task was desired (job-register).
    Desire,
    /// A process was removed (job-deregister).
    Remove,
    /// The number of instances changed (job-scaling).
    Scale,
    /// An instance was stopped and is still desired (alloc-stop).
    Stop,
    /// An instance crashed and restarts immediately or after a delay (alloc-failure).
    Crash,
    /// The restart delay of a CRASHED instance is over (alloc-failure).
    Restart,
    /// A cell disappeared (node-update).
    CellLost,
    /// A cell evacuates (node-drain).
    Evacuation,
    /// A rollout replaces an instance of a replicated process (deployment-watcher).
    Rollout,
    /// A rollout replaces an instance of a global process (rolling-update).
    RollingUpdate,
    /// A global process runs on a further cell, or one of its cells takes work again (node-update).
    CellsChanged,
    /// A periodic task launched a task (periodic-job).
    Periodic,
    /// An instance or a task was stopped, because more urgent work needs its resources (preemption).
    Preemption,
    /// Some work of an evaluation found no place (queued-allocs).
    Queued,
    /// Reps refused work of an evaluation too often (max-plan-attempts).
    Attempts,
    /// The auctioneer did not answer an evaluation (failed-follow-up).
    FollowUp,
    /// Convergence found work that no other trigger had reported (scheduled). In a healthy cluster this never
    /// happens.
    Convergence,
}

/// Status of an evaluation. The statuses delayed, scheduling, applying and deleted are derived, not stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Waiting to be scheduled.
    Pending,
    /// The remaining work could not be placed. The work is retried as soon as capacity appears.
    Blocked {
        /// Reason why the work could not be placed.
        reason: String,
    },
    /// The work is placed as far as possible.
    Complete,
    /// The evaluation was given up.
    Failed {
        /// Reason of the failure.
        reason: String,
    },
    /// The evaluation is no longer needed.
    Canceled {
        /// Reason of the cancellation.
        reason: CancelReason,
    },
}

/// Reason why an evaluation is no longer needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    /// Nothing was left to place.
    NothingLeft,
    /// Another evaluation took over the work.
    Superseded,
}

/// Reason why a pending evaluation is not scheduled yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// No wait: the evaluation is scheduled immediately.
    #[default]
    Nothing,
    /// The evaluation waits until this time, when the first of its CRASHED instances restarts.
    Restart(Timestamp),
    /// The evaluation waits until this time for its next delivery. The auctioneer did not answer the
    /// evaluation, or the evaluation follows a failed one.
    Delivery(Timestamp),
}

impl Wait {
    /// Returns the end of the wait, or `None` for [`Wait::Nothing`].
    #[must_use]
    pub const fn until(self) -> Option<Timestamp> {
        match self {
            Self::Nothing => None,
            Self::Restart(at) | Self::Delivery(at) => Some(at),
        }
    }
}

/// Waiting work of a process or task that one open evaluation covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Duty {
    /// Work to place: UNCLAIMED instances and PENDING tasks without a placement error.
    Place,
    /// Work that found no place: UNCLAIMED instances and PENDING tasks with a placement error.
    Unblock,
    /// Delayed restarts: CRASHED instances with a restart time.
    Restart,
}

impl Status {
    /// Returns `true` if work waits for the evaluation.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        match self {
            Self::Pending | Self::Blocked { .. } => true,
            Self::Complete | Self::Failed { .. } | Self::Canceled { .. } => false,
        }
    }
}

impl Evaluation {
    /// Returns the reference by which later decisions name the creation of this evaluation as their cause.
    #[must_use]
    pub const fn cause(&self) -> Cause {
        Cause { decision: self.decision, correlation: self.correlation }
    }

    /// Returns the duty of the evaluation, or `None` if it has ended.
    #[must_use]
    pub const fn duty(&self) -> Option<Duty> {
        match (&self.status, self.wait) {
            (Status::Pending, Wait::Restart(_)) => Some(Duty::Restart),
            (Status::Pending, Wait::Nothing | Wait::Delivery(_)) => Some(Duty::Place),
            (Status::Blocked { .. }, _) => Some(Duty::Unblock),
            (Status::Complete | Status::Failed { .. } | Status::Canceled { .. }, _) => None,
        }
    }
}

/// Evaluations of a process or task, oldest first.
pub type Evaluations = Packed<Evaluation>;

/// Returns the open evaluation that covers a duty. There is at most one.
#[must_use]
pub fn find_open<E: Borrow<Evaluation>>(evaluations: impl IntoIterator<Item = E>, duty: Duty) -> Option<E> {
    evaluations.into_iter().find(|one| one.borrow().duty() == Some(duty))
}

/// Event of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An evaluation was created.
    Created {
        /// Number of the evaluation within the decision, from 0. The id of the evaluation is derived from
        /// this number.
        number: u8,
        trigger: Trigger,
        /// Initial status.
        initial_status: InitialStatus,
        /// Evaluation whose work this one continues. The event also links that evaluation to this one.
        previous: Option<EvaluationId>,
    },
    /// A further cause joined a pending evaluation.
    Joined { evaluation: EvaluationId, trigger: Trigger },
    /// The wait of a delayed evaluation ends at a different time, because the time of its first restart
    /// changed.
    DelayChanged { evaluation: EvaluationId, until: Timestamp },
    /// The delay of an evaluation is over.
    Due { evaluation: EvaluationId },
    /// The auctioneer did not answer an evaluation. The evaluation is delivered to the auctioneer again.
    Redelivered {
        evaluation: EvaluationId,
        /// Number of the delivery, from 2.
        delivery: u32,
        /// Earliest time of the delivery.
        until: Timestamp,
    },
    /// The remaining work of a blocked evaluation was tried again and could not be placed. The reason is
    /// different from the previous one.
    Blocked {
        evaluation: EvaluationId,
        reason: String,
        /// Kinds of cells that were tried.
        eligibility: Option<Box<Eligibility>>,
    },
    /// The work was placed as far as possible.
    Completed {
        evaluation: EvaluationId,
        /// Number of instances or tasks that the evaluation placed.
        placed: u32,
        /// Number of instances or tasks that found no place and wait for room.
        queued: u32,
        /// Number of instances or tasks that found no place and do not wait.
        rejected: u32,
        /// Blocked evaluation that takes over the remaining work, if this blocked evaluation existed before
        /// the event.
        blocked: Option<EvaluationId>,
    },
    /// The evaluation was given up.
    Failed { evaluation: EvaluationId, reason: String },
    /// The evaluation is no longer needed.
    Canceled { evaluation: EvaluationId, reason: CancelReason },
    /// A client requested an immediate retry.
    Retried {
        evaluation: EvaluationId,
        /// Reason of the block if the evaluation is blocked again. `None` if it is pending again.
        blocked: Option<String>,
    },
}

/// Initial status of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitialStatus {
    /// Scheduled immediately.
    Pending,
    /// Scheduled later.
    Delayed {
        /// Earliest time of scheduling.
        until: Timestamp,
    },
    /// Waits for room.
    Blocked {
        reason: String,
        /// Kinds of cells that were tried.
        eligibility: Option<Box<Eligibility>>,
    },
    /// The evaluation needs no cell, and is complete in the decision that creates it.
    Complete {
        /// Number of instances that were asked to stop.
        stopped: u32,
    },
}

/// Status without its data, as the transition table uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusKind {
    /// Does not exist yet.
    New,
    /// Waiting to be scheduled.
    Pending,
    /// Waiting for room.
    Blocked,
    /// Ended: the work is placed as far as possible.
    Complete,
    /// Ended: given up.
    Failed,
    /// Ended: no longer needed.
    Canceled,
    /// Removed from the tables.
    Deleted,
}

/// Transition of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Create the evaluation as pending.
    Create,
    /// Create the evaluation as blocked.
    CreateBlocked,
    /// Create the evaluation as complete.
    CreateComplete,
    /// Keep the status: a cause joins, the wait changes or ends, or the evaluation is delivered again.
    Note,
    /// Block the evaluation again for another reason.
    Block,
    /// Complete the evaluation: the work is placed as far as possible.
    Complete,
    /// Give the evaluation up.
    Fail,
    /// Cancel the evaluation: it is no longer needed.
    Cancel,
    /// Schedule the evaluation again, by request of a client.
    Retry,
    /// Try the blocked work of the evaluation again, by request of a client.
    RetryBlocked,
    /// Remove the evaluation from the tables.
    Delete,
}

/// Returns the status after a step, or `None` if the transition is not allowed.
#[must_use]
#[rustfmt::skip]
pub const fn transition(from: StatusKind, step: Step) -> Option<StatusKind> {
    use StatusKind as N;
    use Step as S;
    match (step, from) {
        (S::Create,         N::New)                              => Some(N::Pending),
        (S::CreateBlocked,  N::New)                              => Some(N::Blocked),
        (S::CreateComplete, N::New)                              => Some(N::Complete),
        (S::Note,           N::Pending)                          => Some(N::Pending),
        (S::Block,          N::Blocked)                          => Some(N::Blocked),
        (S::Complete,       N::Pending | N::Blocked)             => Some(N::Complete),
        (S::Fail,           N::Pending | N::Blocked)             => Some(N::Failed),
        (S::Cancel,         N::Pending | N::Blocked)             => Some(N::Canceled),
        (S::Retry,          N::Pending | N::Failed)              => Some(N::Pending),
        (S::RetryBlocked,   N::Blocked | N::Failed)              => Some(N::Blocked),
        (S::Delete,         N::Complete | N::Failed | N::Canceled) => Some(N::Deleted),

        (S::Create | S::CreateBlocked | S::CreateComplete,
            N::Pending | N::Blocked | N::Complete | N::Failed | N::Canceled | N::Deleted)   => None,
        (S::Note,
            N::New | N::Blocked | N::Complete | N::Failed | N::Canceled | N::Deleted)       => None,
        (S::Block,
            N::New | N::Pending | N::Complete | N::Failed | N::Canceled | N::Deleted)       => None,
        (S::Complete | S::Fail | S::Cancel,
            N::New | N::Complete | N::Failed | N::Canceled | N::Deleted)                    => None,
        (S::Retry,        N::New | N::Blocked | N::Complete | N::Canceled | N::Deleted)     => None,
        (S::RetryBlocked, N::New | N::Pending | N::Complete | N::Canceled | N::Deleted)     => None,
        (S::Delete,       N::New | N::Pending | N::Blocked | N::Deleted)                    => None,
    }
}

impl Status {
    /// Returns the status without its data.
    #[must_use]
    pub const fn kind(&self) -> StatusKind {
        match self {
            Self::Pending => StatusKind::Pending,
            Self::Blocked { .. } => StatusKind::Blocked,
            Self::Complete => StatusKind::Complete,
            Self::Failed { .. } => StatusKind::Failed,
            Self::Canceled { .. } => StatusKind::Canceled,
        }
    }
}

impl Event {
    /// Returns the transition that the event causes.
    #[must_use]
    pub const fn step(&self) -> Step {
        match self {
            Self::Created {
                initial_status: InitialStatus::Pending | InitialStatus::Delayed { .. }, ..
            } => Step::Create,
            Self::Created { initial_status: InitialStatus::Blocked { .. }, .. } => Step::CreateBlocked,
            Self::Created { initial_status: InitialStatus::Complete { .. }, .. } => Step::CreateComplete,
            Self::Joined { .. } | Self::DelayChanged { .. } | Self::Due { .. } | Self::Redelivered { .. } => {
                Step::Note
            }
            Self::Blocked { .. } => Step::Block,
            Self::Completed { .. } => Step::Complete,
            Self::Failed { .. } => Step::Fail,
            Self::Canceled { .. } => Step::Cancel,
            Self::Retried { blocked: None, .. } => Step::Retry,
            Self::Retried { blocked: Some(_), .. } => Step::RetryBlocked,
        }
    }

    /// Returns `true` if the event ends its evaluation.
    #[must_use]
    pub const fn ends_evaluation(&self) -> bool {
        match self.step() {
            Step::Complete | Step::Fail | Step::Cancel => true,
            Step::Create
            | Step::CreateBlocked
            | Step::CreateComplete
            | Step::Note
            | Step::Block
            | Step::Retry
            | Step::RetryBlocked
            | Step::Delete => false,
        }
    }

    /// Returns the evaluation of the event, given the decision that contains it.
    #[must_use]
    pub fn evaluation(&self, decision: DecisionId) -> EvaluationId {
        match self {
            Self::Created { number, .. } => EvaluationId::from_decision(decision, *number),
            Self::Joined { evaluation, .. }
            | Self::DelayChanged { evaluation, .. }
            | Self::Due { evaluation }
            | Self::Redelivered { evaluation, .. }
            | Self::Blocked { evaluation, .. }
            | Self::Completed { evaluation, .. }
            | Self::Failed { evaluation, .. }
            | Self::Canceled { evaluation, .. }
            | Self::Retried { evaluation, .. } => *evaluation,
        }
    }
}

/// Applies an event and removes evaluations that ended long ago.
pub fn evolve(evaluations: &mut Vec<Evaluation>, event: &Event, stamp: &Stamp) {
    fold(evaluations, event, stamp);
    prune_ended(evaluations, stamp.at);
}

/// Applies an event without removing evaluations. An event that is not allowed changes nothing.
pub fn fold(evaluations: &mut Vec<Evaluation>, event: &Event, stamp: &Stamp) {
    if let Event::Created { number, trigger, initial_status, previous } = event {
        let id = EvaluationId::from_decision(stamp.decision, *number);
        return create(evaluations, id, (*trigger, initial_status, *previous), stamp);
    }
    let id = event.evaluation(stamp.decision);
    let Some(one) = evaluations.iter_mut().rev().find(|one| one.id == id) else { return };
    if transition(one.status.kind(), event.step()).is_none() {
        return;
    }
    if event.step() != Step::Note {
        one.since = stamp.at;
    }
    apply(one, event, stamp);
}

fn apply(one: &mut Evaluation, event: &Event, stamp: &Stamp) {
    match event {
        Event::Created { .. } => {}
        Event::Joined { trigger, .. } => {
            one.joins = one.joins.saturating_add(1);
            if one.joined.len() >= limits::JOINED_CAUSES {
                one.joined.remove(0);
            }
            one.joined.push(Joined { trigger: *trigger, decision: stamp.decision, at: stamp.at });
        }
        Event::DelayChanged { until, .. } => one.wait = Wait::Restart(*until),
        Event::Due { .. } => one.wait = Wait::Nothing,
        Event::Redelivered { delivery, until, .. } => {
            (one.delivery, one.wait) = (*delivery, Wait::Delivery(*until));
        }
        Event::Blocked { reason, eligibility, .. } => {
            one.status = Status::Blocked { reason: reason.clone() };
            one.eligibility.clone_from(eligibility);
        }
        Event::Completed { placed, queued, rejected, blocked, .. } => {
            (one.status, one.wait) = (Status::Complete, Wait::Nothing);
            (one.placed, one.queued, one.rejected) = (*placed, *queued, *rejected);
            one.blocked = blocked.or(one.blocked);
        }
        Event::Failed { reason, .. } => {
            (one.status, one.wait) = (Status::Failed { reason: reason.clone() }, Wait::Nothing);
        }
        Event::Canceled { reason: why, .. } => {
            (one.status, one.wait) = (Status::Canceled { reason: *why }, Wait::Nothing);
        }
        Event::Retried { blocked, .. } => {
            // A retry returns the work of the blocked child to this evaluation. No part of this work waits in
            // another evaluation.
            one.queued = if blocked.is_some() { 0 } else { one.queued };
            let blocked = blocked.clone().map(|reason| Status::Blocked { reason });
            (one.status, one.wait) = (blocked.unwrap_or(Status::Pending), Wait::Nothing);
            one.delivery = 1;
        }
    }
}

/// Adds an evaluation, and stores its id in its predecessor in the chain.
fn create(
    evaluations: &mut Vec<Evaluation>,
    id: EvaluationId,
    (trigger, begin, previous): (Trigger, &InitialStatus, Option<EvaluationId>),
    stamp: &Stamp,
) {
    let parent = evaluations.iter_mut().find(|one| Some(one.id) == previous);
    let mut follow_ups = 0;
    if let Some(parent) = parent {
        match begin {
            InitialStatus::Blocked { .. } => parent.blocked = Some(id),
            InitialStatus::Pending | InitialStatus::Delayed { .. } | InitialStatus::Complete { .. } => {
                parent.next = Some(id);
            }
        }
        follow_ups = parent.follow_ups + u32::from(trigger == Trigger::FollowUp);
    }
    let (status, wait, stopped) = match begin {
        InitialStatus::Pending => (Status::Pending, Wait::Nothing, 0),
        InitialStatus::Delayed { until } if trigger == Trigger::FollowUp => {
            (Status::Pending, Wait::Delivery(*until), 0)
        }
        InitialStatus::Delayed { until } => (Status::Pending, Wait::Restart(*until), 0),
        InitialStatus::Blocked { reason, .. } => {
            (Status::Blocked { reason: reason.clone() }, Wait::Nothing, 0)
        }
        InitialStatus::Complete { stopped } => (Status::Complete, Wait::Nothing, *stopped),
    };
    let eligibility = match begin {
        InitialStatus::Blocked { eligibility, .. } => eligibility.clone(),
        InitialStatus::Pending | InitialStatus::Delayed { .. } | InitialStatus::Complete { .. } => None,
    };
    evaluations.push(Evaluation {
        id,
        decision: stamp.decision,
        correlation: stamp.correlation,
        caused_by: stamp.cause,
        trigger,
        status,
        wait,
        created_at: stamp.at,
        since: stamp.at,
        previous,
        next: None,
        blocked: None,
        placed: 0,
        queued: 0,
        rejected: 0,
        stopped,
        delivery: 1,
        follow_ups,
        joins: 0,
        joined: vec![],
        eligibility,
    });
}

/// Removes ended evaluations from the tables: those past their retention time, and the oldest ones beyond the
/// limit. The log keeps them.
pub fn prune_ended(evaluations: &mut Vec<Evaluation>, now: Timestamp) {
    let ended = evaluations.iter().filter(|one| !one.status.is_open()).count();
    let mut too_many = ended.saturating_sub(limits::KEPT_EVALUATIONS);
    evaluations.retain(|one| {
        if one.status.is_open() {
            return true;
        }
        let goes = too_many > 0 || expires_at(one) <= now;
        too_many = too_many.saturating_sub(1);
        !goes
    });
}

/// Number of evaluations by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub pending: u64,
    pub blocked: u64,
    pub complete: u64,
    pub failed: u64,
    pub canceled: u64,
}

impl Counts {
    /// Counts one evaluation of this status.
    pub const fn add(&mut self, status: &Status) {
        match status {
            Status::Pending => self.pending += 1,
            Status::Blocked { .. } => self.blocked += 1,
            Status::Complete => self.complete += 1,
            Status::Failed { .. } => self.failed += 1,
            Status::Canceled { .. } => self.canceled += 1,
        }
    }

    /// Returns the sums of both counts.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            pending: self.pending + other.pending,
            blocked: self.blocked + other.blocked,
            complete: self.complete + other.complete,
            failed: self.failed + other.failed,
            canceled: self.canceled + other.canceled,
        }
    }

    /// Subtracts `other`, whose counts must not exceed these counts.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            pending: self.pending - other.pending,
            blocked: self.blocked - other.blocked,
            complete: self.complete - other.complete,
            failed: self.failed - other.failed,
            canceled: self.canceled - other.canceled,
        }
    }
}

/// Returns the number of evaluations by status, and the earliest time at which an ended evaluation leaves the
/// tables.
#[must_use]
pub fn counts_and_expiry(evaluations: &Evaluations) -> (Counts, Option<Timestamp>) {
    let (mut counts, mut first) = (Counts::default(), None);
    for one in evaluations.iter() {
        counts.add(&one.status);
        if !one.status.is_open() {
            let leaves = expires_at(&one);
            first = Some(first.map_or(leaves, |first: Timestamp| first.min(leaves)));
        }
    }
    (counts, first)
}

fn expires_at(one: &Evaluation) -> Timestamp {
    one.since + limits::EVALUATION_RETENTION
}

/// Result of scheduling for one instance or task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkResult {
    /// Placed on a cell.
    Placed,
    /// Found no place for the first time.
    Queued,
    /// Neither placed nor queued for the first time.
    Unchanged,
}

/// Counts one instance or task as placed or queued in the evaluation that covers `duty`.
pub fn count_work(evaluations: &mut [Evaluation], duty: Duty, moved: WorkResult) {
    let Some(one) = evaluations.iter_mut().rev().find(|one| one.duty() == Some(duty)) else { return };
    match moved {
        WorkResult::Placed => one.placed = one.placed.saturating_add(1),
        WorkResult::Queued => one.queued = one.queued.saturating_add(1),
        WorkResult::Unchanged => {}
    }
}
