//! Evaluations: the record of every scheduling attempt and its cause (Nomad evaluation states; docs/model.md, "Evaluations").
//!
//! ```text
//! (cause) ──▶ pending ──▶ complete     what could be placed is placed; what is left waits in a blocked child
//!               │  ├────▶ failed       nobody answered, or reps refused it too often; a child takes over
//!               │  └────▶ canceled     nothing was left to place, or a newer cause took its place
//!               ▲ retry                                     ▲
//!             failed ──retry──▶ blocked ──▶ complete        │
//! (queued) ───────────────────▶ blocked ──▶ canceled ───────┘
//! ```
//! An ended one leaves only the tables. What of a process or task waits is always the [`Duty`] of exactly one open
//! evaluation, so there are at most three: what is to be placed, what waits for room, and what waits for its restart.

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

/// One scheduling attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evaluation {
    /// Its id: the first that a decision creates has the decision's.
    pub id: EvaluationId,
    /// The decision that created it.
    pub decision: DecisionId,
    /// The first command of the chain that led to it.
    pub correlation: DecisionId,
    /// The decision that brought it about; none: it begins a chain. Unlike the pointers below, it never breaks.
    pub caused_by: Option<DecisionId>,
    /// What made the work.
    pub trigger: Trigger,
    /// Where it stands.
    pub status: Status,
    /// What a pending one waits for before it is scheduled.
    pub wait: Wait,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its status last changed.
    pub since: Timestamp,
    /// The evaluation whose work this one goes on with.
    pub previous: Option<EvaluationId>,
    /// The evaluation that follows: the next step of a rolling update, or the follow-up of a failed one.
    pub next: Option<EvaluationId>,
    /// The evaluation that waits for room with what this one could not place.
    pub blocked: Option<EvaluationId>,
    /// How much it placed.
    pub placed: u32,
    /// How much of it found no place and waits for room.
    pub queued: u32,
    /// How much of it found no place and doesn't wait.
    pub rejected: u32,
    /// How many instances it asked to stop.
    pub stopped: u32,
    /// How often it was given to the auctioneer.
    pub delivery: u32,
    /// How many follow-ups there were before it in its chain.
    pub follow_ups: u32,
    /// How many further causes joined it.
    pub joins: u32,
    /// The last of them, the newest last.
    pub joined: Vec<Joined>,
    /// Of a blocked one: which kinds of cells were tried when it found no place for its reason, and so what would unblock it.
    /// None: reps refused it too often, and nothing was tried since.
    pub eligibility: Option<Box<Eligibility>>,
}

/// A further cause of an evaluation that was still pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Joined {
    /// What made the work.
    pub trigger: Trigger,
    /// By which decision.
    pub decision: DecisionId,
    /// When.
    pub at: Timestamp,
}

/// What made the work. In brackets: the `TriggeredBy` of Nomad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A process was desired, or a task (job-register).
    Desire,
    /// A process was removed (job-deregister).
    Remove,
    /// The number of instances changed (job-scaling).
    Scale,
    /// An instance was stopped and is still wanted (alloc-stop).
    Stop,
    /// An instance crashed, and restarts at once or after a wait (alloc-failure).
    Crash,
    /// A CRASHED instance's wait is over (alloc-failure).
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
    /// Something more urgent got the room of an instance or a task (preemption).
    Preemption,
    /// Something of an evaluation found no place (queued-allocs).
    Queued,
    /// Reps refused something of an evaluation too often (max-plan-attempts).
    Attempts,
    /// Nobody answered an evaluation (failed-follow-up).
    FollowUp,
    /// Only convergence found it (scheduled). In a healthy cluster this stays at 0.
    Convergence,
}

/// Where an evaluation stands. Delayed, scheduling, applying and deleted are derived, not stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// To be scheduled.
    Pending,
    /// What is left could not be placed; tried again the moment capacity appears.
    Blocked {
        /// Why.
        reason: String,
    },
    /// What could be placed is placed.
    Complete,
    /// It was given up.
    Failed {
        /// Why.
        reason: String,
    },
    /// It is no longer needed.
    Canceled {
        /// Why.
        why: Canceled,
    },
}

/// Why an evaluation is no longer needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Canceled {
    /// Nothing was left to place.
    NothingLeft,
    /// Another evaluation took its work over.
    Superseded,
}

/// What a pending evaluation waits for before it is scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Nothing.
    #[default]
    Nothing,
    /// For the first time at which a CRASHED instance is restarted.
    Restart(Timestamp),
    /// The auctioneer takes it no sooner: it was not answered, or follows one that failed.
    Delivery(Timestamp),
}

impl Wait {
    /// Until when.
    #[must_use]
    pub const fn until(self) -> Option<Timestamp> {
        match self {
            Self::Nothing => None,
            Self::Restart(at) | Self::Delivery(at) => Some(at),
        }
    }
}

/// What of a process or task an open evaluation stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Duty {
    /// What is to be placed: UNCLAIMED instances and PENDING tasks without a placement error.
    Place,
    /// What found no place: those with a placement error.
    Unblock,
    /// What restarts later: CRASHED instances whose time is known.
    Restart,
}

impl Status {
    /// Whether work waits on it.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        match self {
            Self::Pending | Self::Blocked { .. } => true,
            Self::Complete | Self::Failed { .. } | Self::Canceled { .. } => false,
        }
    }
}

impl Evaluation {
    /// The decision that created it, as what follows from it names it.
    #[must_use]
    pub const fn cause(&self) -> Cause {
        Cause { decision: self.decision, correlation: self.correlation }
    }

    /// What it stands for; none: it has ended.
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

/// The evaluations of a process or task, the newest last.
pub type Evaluations = Packed<Evaluation>;

/// The open evaluation that stands for something: there is one at most.
#[must_use]
pub fn open<E: Borrow<Evaluation>>(evaluations: impl IntoIterator<Item = E>, duty: Duty) -> Option<E> {
    evaluations.into_iter().find(|one| one.borrow().duty() == Some(duty))
}

/// What happens to evaluations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// One begins.
    Created {
        /// Counts those that the decision creates, from 0: its id follows from that.
        number: u8,
        /// What made it.
        trigger: Trigger,
        /// How it begins.
        begin: Begin,
        /// The evaluation whose work it goes on with. That one points to it in the same moment.
        previous: Option<EvaluationId>,
    },
    /// A further cause joined one that is pending.
    Joined {
        /// Which.
        evaluation: EvaluationId,
        /// What made the work.
        trigger: Trigger,
    },
    /// The first restart that one waits for is at another time.
    Waits {
        /// Which.
        evaluation: EvaluationId,
        /// When.
        until: Timestamp,
    },
    /// The wait of one is over.
    Due {
        /// Which.
        evaluation: EvaluationId,
    },
    /// Nobody answered one: it is given to the auctioneer again.
    Redelivered {
        /// Which.
        evaluation: EvaluationId,
        /// The how manieth time, from 2.
        delivery: u32,
        /// No sooner than then.
        until: Timestamp,
    },
    /// What is left of a blocked one could not be placed, for another reason than before.
    Blocked {
        /// Which.
        evaluation: EvaluationId,
        /// Why.
        reason: String,
        /// Which kinds of cells were tried.
        eligibility: Option<Box<Eligibility>>,
    },
    /// What could be placed is placed.
    Completed {
        /// Which.
        evaluation: EvaluationId,
        /// How much it placed in all.
        placed: u32,
        /// How much found no place and waits for room.
        queued: u32,
        /// How much found no place and doesn't wait.
        rejected: u32,
        /// The evaluation that waited for room already, and now with this one's rest, too.
        blocked: Option<EvaluationId>,
    },
    /// One is given up.
    Failed {
        /// Which.
        evaluation: EvaluationId,
        /// Why.
        reason: String,
    },
    /// One is no longer needed.
    Canceled {
        /// Which.
        evaluation: EvaluationId,
        /// Why.
        why: Canceled,
    },
    /// Somebody wants one tried again now.
    Retried {
        /// Which.
        evaluation: EvaluationId,
        /// What it stands for from now on.
        blocked: Option<String>,
    },
}

/// How an evaluation begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// It is scheduled at once.
    Pending,
    /// It is scheduled no sooner than then.
    Delayed {
        /// When.
        until: Timestamp,
    },
    /// It waits for room.
    Blocked {
        /// Why.
        reason: String,
        /// Which kinds of cells were tried.
        eligibility: Option<Box<Eligibility>>,
    },
    /// It needs no cell, and is complete with the decision that created it.
    Complete {
        /// How many instances were asked to stop.
        stopped: u32,
    },
}

/// A status by its name alone, as the table of transitions has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Named {
    /// There is no such evaluation yet.
    New,
    /// To be scheduled.
    Pending,
    /// Waits for room.
    Blocked,
    /// Ended: what could be placed is placed.
    Complete,
    /// Ended: given up.
    Failed,
    /// Ended: no longer needed.
    Canceled,
    /// It left the tables.
    Deleted,
}

/// What can happen to a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// It begins pending.
    Create,
    /// It begins blocked.
    CreateBlocked,
    /// It begins and is complete at once.
    CreateComplete,
    /// A cause joins it, its wait changes or is over, or it is delivered again.
    Note,
    /// What is left could not be placed, for another reason.
    Block,
    /// What could be placed is placed.
    Complete,
    /// It is given up.
    Fail,
    /// It is no longer needed.
    Cancel,
    /// Somebody wants it scheduled again.
    Retry,
    /// Somebody wants it tried again with what waits for room.
    RetryBlocked,
    /// It leaves the tables.
    Delete,
}

/// The status after a step; none: it may not happen.
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
    /// Its name.
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
    /// What it does to its evaluation's status.
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

    /// Whether its evaluation has ended with it.
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

    /// The evaluation that it is about, in the decision that says so.
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

/// Folds what happened into the row of evaluations, of which those that ended long ago leave.
pub fn evolve(evaluations: &mut Vec<Evaluation>, event: &Event, stamp: &Stamp) {
    fold(evaluations, event, stamp);
    keep_newest(evaluations, stamp.at);
}

/// Folds what happened, and keeps everything. What may not happen changes nothing.
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
            // Its child's work is its own again: nothing of it waits elsewhere.
            one.queued = if blocked.is_some() { 0 } else { one.queued };
            let blocked = blocked.clone().map(|reason| Status::Blocked { reason });
            (one.status, one.wait) = (blocked.unwrap_or(Status::Pending), Wait::Nothing);
            one.delivery = 1;
        }
    }
}

/// An evaluation begins, and the one before it in its chain points to it.
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

/// Ended evaluations leave the tables: the oldest where there are too many, and each after its time. The log keeps them.
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

/// How many evaluations there are of each status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pending.
    pub pending: u64,
    /// Blocked.
    pub blocked: u64,
    /// Complete.
    pub complete: u64,
    /// Failed.
    pub failed: u64,
    /// Canceled.
    pub canceled: u64,
}

impl Counts {
    /// Counts one of this status.
    pub const fn add(&mut self, status: &Status) {
        match status {
            Status::Pending => self.pending += 1,
            Status::Blocked { .. } => self.blocked += 1,
            Status::Complete => self.complete += 1,
            Status::Failed { .. } => self.failed += 1,
            Status::Canceled { .. } => self.canceled += 1,
        }
    }

    /// These and others.
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

    /// These without others, which are among them.
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

/// How many evaluations there are of each status, and when the first ended one leaves the tables.
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

/// What became of work that an evaluation stood for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// A cell took it.
    Placed,
    /// It found no place for the first time.
    Queued,
    /// Neither.
    Elsewhere,
}

/// Work was placed, or found no place: the evaluation that stood for it counts that.
pub fn count(evaluations: &mut [Evaluation], duty: Duty, moved: Moved) {
    let Some(one) = evaluations.iter_mut().rev().find(|one| one.duty() == Some(duty)) else { return };
    match moved {
        Moved::Placed => one.placed = one.placed.saturating_add(1),
        Moved::Queued => one.queued = one.queued.saturating_add(1),
        Moved::Elsewhere => {}
    }
}
