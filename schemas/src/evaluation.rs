//! Evaluations: the record of every scheduling attempt and its cause (Nomad evaluation states; docs/model.md,
//! "Evaluations").
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
//! Ended evaluations leave the tables and stay in the log. All waiting work of a process or task is the
//! [`Duty`] of exactly one open evaluation. So there are at most three: for work to place, for work that
//! waits for room, and for delayed restarts.

mod decide;

use std::borrow::Borrow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::entry::Stamp;
use crate::names::{DecisionId, EvaluationId};
use crate::packed::Packed;
use crate::placement::Eligibility;
use crate::{Timestamp, limits};

pub use decide::{
    DELIVERIES, Did, FOLLOW_UP, LONGEST_FOLLOW_UP, Left, SECOND_DELIVERY, THIRD_DELIVERY, decide,
    decide_retry, decide_unanswered, follow_up_wait, judged,
};

/// Record of one scheduling attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evaluation {
    /// Id of the evaluation. The first one that a decision creates has the id of the decision.
    pub id: EvaluationId,
    /// Decision that created the evaluation.
    pub decision: DecisionId,
    /// First decision of the chain that led to the evaluation.
    pub correlation: DecisionId,
    /// Decision that caused the evaluation. Absent if it starts a chain. This link never breaks, unlike
    /// `previous`, `next` and `blocked`.
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
    /// Evaluation that follows: the next step of a rolling update, or the follow-up of a failed evaluation.
    pub next: Option<EvaluationId>,
    /// Evaluation that waits for room with the work that this one could not place.
    pub blocked: Option<EvaluationId>,
    /// Number of instances or tasks that it placed.
    pub placed: u32,
    /// Number of instances or tasks that found no place and wait for room.
    pub queued: u32,
    /// Number of instances or tasks that found no place and do not wait.
    pub rejected: u32,
    /// Number of instances that it asked to stop.
    pub stopped: u32,
    /// Number of deliveries to the auctioneer.
    pub delivery: u32,
    /// Number of follow-ups before it in its chain.
    pub follow_ups: u32,
    /// Number of further causes that joined it.
    pub joins: u32,
    /// The most recent of these causes, oldest first.
    pub joined: Vec<Joined>,
    /// Kinds of cells that were tried for a blocked evaluation, and so the changes that can unblock it.
    /// Absent if reps refused the work too often and no cell was tried since.
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
    /// A global process runs on another cell, or on one that takes work again (node-update).
    CellsChanged,
    /// A periodic task launched a task (periodic-job).
    Periodic,
    /// More urgent work got the room of an instance or a task (preemption).
    Preemption,
    /// Some work of an evaluation found no place (queued-allocs).
    Queued,
    /// Reps refused work of an evaluation too often (max-plan-attempts).
    Attempts,
    /// An evaluation was not answered (failed-follow-up).
    FollowUp,
    /// Only convergence found the work (scheduled). In a healthy cluster this never happens.
    Convergence,
}

/// Status of an evaluation. The statuses delayed, scheduling, applying and deleted are derived, not stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Waiting to be scheduled.
    Pending,
    /// The remaining work could not be placed. It is retried as soon as capacity appears.
    Blocked {
        /// Reason why it could not be placed.
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
        why: Canceled,
    },
}

/// Reason why an evaluation is no longer needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Canceled {
    /// Nothing was left to place.
    NothingLeft,
    /// Another evaluation took over the work.
    Superseded,
}

/// Reason why a pending evaluation is not scheduled yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// No wait: it is scheduled immediately.
    #[default]
    Nothing,
    /// First time at which one of its CRASHED instances restarts.
    Restart(Timestamp),
    /// Earliest time of its next delivery. It was not answered, or it follows a failed evaluation.
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
pub fn open<E: Borrow<Evaluation>>(evaluations: impl IntoIterator<Item = E>, duty: Duty) -> Option<E> {
    evaluations.into_iter().find(|one| one.borrow().duty() == Some(duty))
}

/// Event of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An evaluation was created.
    Created {
        /// Number of the evaluation within the decision, from 0. Its id is derived from it.
        number: u8,
        trigger: Trigger,
        /// Initial status.
        begin: Begin,
        /// Evaluation whose work it continues. That evaluation gets a pointer to this one at the same time.
        previous: Option<EvaluationId>,
    },
    /// A further cause joined a pending evaluation.
    Joined { evaluation: EvaluationId, trigger: Trigger },
    /// The first restart that a delayed evaluation waits for has another time.
    Waits { evaluation: EvaluationId, until: Timestamp },
    /// The delay of an evaluation is over.
    Due { evaluation: EvaluationId },
    /// An evaluation was not answered and is delivered to the auctioneer again.
    Redelivered {
        evaluation: EvaluationId,
        /// Number of the delivery, from 2.
        delivery: u32,
        /// Earliest time of the delivery.
        until: Timestamp,
    },
    /// The remaining work of a blocked evaluation could not be placed, for another reason than before.
    Blocked {
        evaluation: EvaluationId,
        reason: String,
        /// Kinds of cells that were tried.
        eligibility: Option<Box<Eligibility>>,
    },
    /// The work was placed as far as possible.
    Completed {
        evaluation: EvaluationId,
        /// Number of instances or tasks that it placed.
        placed: u32,
        /// Number that found no place and wait for room.
        queued: u32,
        /// Number that found no place and do not wait.
        rejected: u32,
        /// Blocked evaluation that already existed and takes over the remaining work.
        blocked: Option<EvaluationId>,
    },
    /// The evaluation was given up.
    Failed { evaluation: EvaluationId, reason: String },
    /// The evaluation is no longer needed.
    Canceled { evaluation: EvaluationId, why: Canceled },
    /// A client requested an immediate retry.
    Retried {
        evaluation: EvaluationId,
        /// Reason of the block if the evaluation is blocked again. `None` if it is pending again.
        blocked: Option<String>,
    },
}

/// Initial status of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
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
    /// Needs no cell, and is complete with the decision that creates it.
    Complete {
        /// Number of instances that were asked to stop.
        stopped: u32,
    },
}

/// Status without its data, as the transition table uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Named {
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
    /// Create it as pending.
    Create,
    /// Create it as blocked.
    CreateBlocked,
    /// Create it as complete.
    CreateComplete,
    /// Keep the status: a cause joins, the wait changes or ends, or the evaluation is delivered again.
    Note,
    /// Block it again for another reason.
    Block,
    /// Complete it: the work is placed as far as possible.
    Complete,
    /// Give it up.
    Fail,
    /// Cancel it: it is no longer needed.
    Cancel,
    /// Schedule it again, by request of a client.
    Retry,
    /// Try its blocked work again, by request of a client.
    RetryBlocked,
    /// Remove it from the tables.
    Delete,
}

/// Returns the status after a step, or `None` if the transition is not allowed.
#[must_use]
#[rustfmt::skip]
pub const fn transition(from: Named, step: Step) -> Option<Named> {
    use Named as N;
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
    pub const fn named(&self) -> Named {
        match self {
            Self::Pending => Named::Pending,
            Self::Blocked { .. } => Named::Blocked,
            Self::Complete => Named::Complete,
            Self::Failed { .. } => Named::Failed,
            Self::Canceled { .. } => Named::Canceled,
        }
    }
}

impl Event {
    /// Returns the transition that the event causes.
    #[must_use]
    pub const fn step(&self) -> Step {
        match self {
            Self::Created { begin: Begin::Pending | Begin::Delayed { .. }, .. } => Step::Create,
            Self::Created { begin: Begin::Blocked { .. }, .. } => Step::CreateBlocked,
            Self::Created { begin: Begin::Complete { .. }, .. } => Step::CreateComplete,
            Self::Joined { .. } | Self::Waits { .. } | Self::Due { .. } | Self::Redelivered { .. } => {
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
    pub const fn ends(&self) -> bool {
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
            Self::Created { number, .. } => EvaluationId::of(decision, *number),
            Self::Joined { evaluation, .. }
            | Self::Waits { evaluation, .. }
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
    keep_newest(evaluations, stamp.at);
}

/// Applies an event without removing evaluations. An event that is not allowed changes nothing.
pub fn fold(evaluations: &mut Vec<Evaluation>, event: &Event, stamp: &Stamp) {
    if let Event::Created { number, trigger, begin, previous } = event {
        let id = EvaluationId::of(stamp.decision, *number);
        return create(evaluations, id, (*trigger, begin, *previous), stamp);
    }
    let id = event.evaluation(stamp.decision);
    let Some(one) = evaluations.iter_mut().rev().find(|one| one.id == id) else { return };
    if transition(one.status.named(), event.step()).is_none() {
        return;
    }
    if event.step() != Step::Note {
        one.since = stamp.at;
    }
    change(one, event, stamp);
}

fn change(one: &mut Evaluation, event: &Event, stamp: &Stamp) {
    match event {
        Event::Created { .. } => {}
        Event::Joined { trigger, .. } => {
            one.joins = one.joins.saturating_add(1);
            if one.joined.len() >= limits::JOINED_CAUSES {
                one.joined.remove(0);
            }
            one.joined.push(Joined { trigger: *trigger, decision: stamp.decision, at: stamp.at });
        }
        Event::Waits { until, .. } => one.wait = Wait::Restart(*until),
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
        Event::Canceled { why, .. } => {
            (one.status, one.wait) = (Status::Canceled { why: *why }, Wait::Nothing);
        }
        Event::Retried { blocked, .. } => {
            // The work of its child returns to this evaluation, and nothing of it waits elsewhere.
            one.queued = if blocked.is_some() { 0 } else { one.queued };
            let blocked = blocked.clone().map(|reason| Status::Blocked { reason });
            (one.status, one.wait) = (blocked.unwrap_or(Status::Pending), Wait::Nothing);
            one.delivery = 1;
        }
    }
}

/// Adds an evaluation, and points its predecessor in the chain to it.
fn create(
    evaluations: &mut Vec<Evaluation>,
    id: EvaluationId,
    (trigger, begin, previous): (Trigger, &Begin, Option<EvaluationId>),
    stamp: &Stamp,
) {
    let parent = evaluations.iter_mut().find(|one| Some(one.id) == previous);
    let mut follow_ups = 0;
    if let Some(parent) = parent {
        match begin {
            Begin::Blocked { .. } => parent.blocked = Some(id),
            Begin::Pending | Begin::Delayed { .. } | Begin::Complete { .. } => parent.next = Some(id),
        }
        follow_ups = parent.follow_ups + u32::from(trigger == Trigger::FollowUp);
    }
    let (status, wait, stopped) = match begin {
        Begin::Pending => (Status::Pending, Wait::Nothing, 0),
        Begin::Delayed { until } if trigger == Trigger::FollowUp => {
            (Status::Pending, Wait::Delivery(*until), 0)
        }
        Begin::Delayed { until } => (Status::Pending, Wait::Restart(*until), 0),
        Begin::Blocked { reason, .. } => (Status::Blocked { reason: reason.clone() }, Wait::Nothing, 0),
        Begin::Complete { stopped } => (Status::Complete, Wait::Nothing, *stopped),
    };
    let eligibility = match begin {
        Begin::Blocked { eligibility, .. } => eligibility.clone(),
        Begin::Pending | Begin::Delayed { .. } | Begin::Complete { .. } => None,
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

/// Removes ended evaluations from the tables: the oldest beyond the limit, and those past their retention
/// time. The log keeps them.
pub fn keep_newest(evaluations: &mut Vec<Evaluation>, now: Timestamp) {
    let ended = evaluations.iter().filter(|one| !one.status.is_open()).count();
    let mut too_many = ended.saturating_sub(limits::KEPT_EVALUATIONS);
    evaluations.retain(|one| {
        if one.status.is_open() {
            return true;
        }
        let goes = too_many > 0 || leaves_at(one) <= now;
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

    /// Returns the differences to `other`, which must not exceed these counts.
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

/// Returns the number of evaluations by status, and the time at which the first ended one leaves the tables.
#[must_use]
pub fn counted(evaluations: &Evaluations) -> (Counts, Option<Timestamp>) {
    let (mut counts, mut first) = (Counts::default(), None);
    for one in evaluations.iter() {
        counts.add(&one.status);
        if !one.status.is_open() {
            let leaves = leaves_at(&one);
            first = Some(first.map_or(leaves, |first: Timestamp| first.min(leaves)));
        }
    }
    (counts, first)
}

fn leaves_at(one: &Evaluation) -> Timestamp {
    one.since + limits::EVALUATION_KEPT_FOR
}

/// Result of scheduling for one instance or task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Placed on a cell.
    Placed,
    /// Found no place for the first time.
    Queued,
    /// Neither placed nor queued for the first time.
    Elsewhere,
}

/// Counts one instance or task as placed or queued in the evaluation that covers `duty`.
pub fn count(evaluations: &mut [Evaluation], duty: Duty, moved: Moved) {
    let Some(one) = evaluations.iter_mut().rev().find(|one| one.duty() == Some(duty)) else { return };
    match moved {
        Moved::Placed => one.placed = one.placed.saturating_add(1),
        Moved::Queued => one.queued = one.queued.saturating_add(1),
        Moved::Elsewhere => {}
    }
}
