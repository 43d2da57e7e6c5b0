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

use schemas::evaluation::{Duty, Evaluation, Event, InitialStatus, Joined, Status, Trigger, Wait};
use schemas::names::EvaluationId;
use schemas::packed::Packed;
use schemas::stamp::Stamp;
use schemas::{Timestamp, limits};

pub use decide::{
    FOLLOW_UP_DELAY, MAX_DELIVERIES, MAX_FOLLOW_UP_DELAY, SECOND_DELIVERY_DELAY, THIRD_DELIVERY_DELAY,
    WaitingWork, WorkEffects, decide, decide_retry, decide_unanswered, follow_up_delay, open_duty,
};

/// Evaluations of a process or task, oldest first.
pub type Evaluations = Packed<Evaluation>;

/// Returns the open evaluation that covers a duty. There is at most one.
#[must_use]
pub fn find_open<E: Borrow<Evaluation>>(evaluations: impl IntoIterator<Item = E>, duty: Duty) -> Option<E> {
    evaluations.into_iter().find(|one| one.borrow().duty() == Some(duty))
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

impl StatusKind {
    /// Returns the kind of a status.
    #[must_use]
    pub const fn from_status(status: &Status) -> Self {
        match status {
            Status::Pending => Self::Pending,
            Status::Blocked { .. } => Self::Blocked,
            Status::Complete => Self::Complete,
            Status::Failed { .. } => Self::Failed,
            Status::Canceled { .. } => Self::Canceled,
        }
    }
}

impl Step {
    /// Returns the transition that an event causes.
    #[must_use]
    pub const fn from_event(event: &Event) -> Self {
        match event {
            Event::Created {
                initial_status: InitialStatus::Pending | InitialStatus::Delayed { .. }, ..
            } => Self::Create,
            Event::Created { initial_status: InitialStatus::Blocked { .. }, .. } => Self::CreateBlocked,
            Event::Created { initial_status: InitialStatus::Complete { .. }, .. } => Self::CreateComplete,
            Event::Joined { .. }
            | Event::DelayChanged { .. }
            | Event::Due { .. }
            | Event::Redelivered { .. } => Self::Note,
            Event::Blocked { .. } => Self::Block,
            Event::Completed { .. } => Self::Complete,
            Event::Failed { .. } => Self::Fail,
            Event::Canceled { .. } => Self::Cancel,
            Event::Retried { blocked: None, .. } => Self::Retry,
            Event::Retried { blocked: Some(_), .. } => Self::RetryBlocked,
        }
    }

    /// Returns `true` if the transition ends the evaluation.
    #[must_use]
    pub const fn ends_evaluation(self) -> bool {
        matches!(self, Self::Complete | Self::Fail | Self::Cancel)
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
    if transition(StatusKind::from_status(&one.status), Step::from_event(event)).is_none() {
        return;
    }
    if Step::from_event(event) != Step::Note {
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
