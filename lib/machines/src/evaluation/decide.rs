//! Effects of a decision (a recorded change of a process or task) on the evaluations. An evaluation is a
//! request to the auctioneer to place instances or a task.

use std::time::Duration;

use super::find_open;
use schemas::Timestamp;
use schemas::evaluation::{CancelReason, Duty, Evaluation, Event, InitialStatus, Status, Trigger, Wait};
use schemas::names::EvaluationId;
use schemas::placement::Eligibility;
use schemas::refusal::{Code, Refusal};

/// Maximum number of deliveries to the auctioneer. If the last delivery is not answered either, the
/// evaluation fails.
pub const MAX_DELIVERIES: u32 = 3;
/// Delay of the second delivery after the first was not answered.
pub const SECOND_DELIVERY_DELAY: Duration = Duration::from_secs(1);
/// Delay of the third delivery after the second was not answered.
pub const THIRD_DELIVERY_DELAY: Duration = Duration::from_secs(20);
/// Delay of the first follow-up of a failed evaluation. The delay doubles with each further follow-up.
pub const FOLLOW_UP_DELAY: Duration = Duration::from_secs(60);
/// Maximum delay of a follow-up.
pub const MAX_FOLLOW_UP_DELAY: Duration = Duration::from_secs(60 * 60);

/// Waiting work of a process or task after a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingWork {
    /// Number of UNCLAIMED instances without a placement error. For a task: 1 if it is PENDING without a
    /// placement error, otherwise 0.
    pub unanswered: u32,
    /// Number of UNCLAIMED instances with a placement error. For a task: 1 if it is PENDING with a placement
    /// error, otherwise 0.
    pub unplaced: u32,
    /// Earliest restart time of the CRASHED instances. `None` if no instance waits for a restart.
    pub restart_at: Option<Timestamp>,
}

/// Effects of a decision on the work of a process or task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkEffects {
    /// Reason for new work. `None` if the decision made no work.
    pub new_work: Option<Trigger>,
    /// Number of instances that a client asked to stop, with the reason.
    pub stopped: Option<(Trigger, u32)>,
    /// Evaluation that precedes this step of a rolling update.
    pub follows: Option<EvaluationId>,
    /// Number of instances or tasks that were placed and had no placement error before.
    pub placed: u32,
    /// Number of instances or tasks that were placed and had a placement error before.
    pub unblocked: u32,
    /// Number of instances or tasks that got their first placement error.
    pub queued: u32,
    /// Number of instances or tasks that could not be placed and do not wait for resources.
    pub rejected: u32,
    /// Placement error of the decision.
    pub error: Option<String>,
    /// Kinds of cells that were tried before the placement error.
    pub eligibility: Option<Box<Eligibility>>,
    /// `true` if the attempts are exhausted because reps refused the work too often.
    pub attempts_exhausted: bool,
    /// Reason why the work will never be placed. `None` unless the decision gave up the work.
    pub failed: Option<String>,
}

/// Returns the events of the evaluations that follow from a decision.
#[must_use]
pub fn decide(known: &[Evaluation], left: &WaitingWork, did: &WorkEffects) -> Vec<Event> {
    let mut draft = Draft { left, did, events: vec![], created: 0 };
    let place = find_open(known, Duty::Place);
    let due = draft.restart(find_open(known, Duty::Restart), place);
    let place = draft.place(place, due, find_open(known, Duty::Unblock));
    draft.unblock(find_open(known, Duty::Unblock), place);
    draft.events
}

/// State while the events are collected.
struct Draft<'a> {
    left: &'a WaitingWork,
    did: &'a WorkEffects,
    events: Vec<Event>,
    created: u8,
}

impl Draft<'_> {
    fn create(&mut self, trigger: Trigger, initial_status: InitialStatus, previous: Option<EvaluationId>) {
        let number = self.created;
        self.created += 1;
        self.events.push(Event::Created { number, trigger, initial_status, previous });
    }

    fn cancel(&mut self, one: &Evaluation, reason: CancelReason) {
        self.events.push(Event::Canceled { evaluation: one.id, reason });
    }

    /// Updates the evaluation of delayed restarts. Returns this evaluation if its delay is over and it
    /// becomes the pending evaluation.
    fn restart<'e>(
        &mut self,
        known: Option<&'e Evaluation>,
        place: Option<&Evaluation>,
    ) -> Option<&'e Evaluation> {
        match (known, self.left.restart_at) {
            (None, None) => {}
            (None, Some(until)) => self.create(Trigger::Crash, InitialStatus::Delayed { until }, None),
            (Some(one), Some(until)) => {
                if one.wait != Wait::Restart(until) {
                    self.events.push(Event::DelayChanged { evaluation: one.id, until });
                }
            }
            (Some(one), None) => {
                let is_due = self.did.new_work == Some(Trigger::Restart) && self.left.unanswered > 0;
                match (is_due, place) {
                    (true, None) => {
                        self.events.push(Event::Due { evaluation: one.id });
                        return Some(one);
                    }
                    (true, Some(_)) => self.cancel(one, CancelReason::Superseded),
                    (false, _) => self.cancel(one, CancelReason::NothingLeft),
                }
            }
        }
        None
    }

    /// Updates the pending evaluation. Returns the evaluation that covered the work to place. If some of that
    /// work could not be placed, the returned evaluation becomes the parent of a blocked evaluation.
    fn place<'e>(
        &mut self,
        known: Option<&'e Evaluation>,
        due: Option<&'e Evaluation>,
        blocked: Option<&Evaluation>,
    ) -> Option<&'e Evaluation> {
        let (left, did) = (self.left, self.did);
        match (known, left.unanswered, did.new_work) {
            (Some(one), 0, _) => {
                self.finish(one, blocked);
                self.record_stop();
            }
            (Some(_), _, None) => {}
            (Some(one), _, Some(trigger)) => self.join(one, trigger),
            (None, _, _) if due.is_some() => {}
            (None, 0, _) => self.record_stop(),
            (None, _, Some(trigger)) => self.create(trigger, InitialStatus::Pending, did.follows),
            // The cause of the work is unknown here. Convergence (the periodic check) finds the work and
            // creates the evaluation.
            (None, _, None) => {}
        }
        known.or(due)
    }

    /// Records a stop by a client as a complete evaluation, because a stop needs no cell.
    fn record_stop(&mut self) {
        if let Some((trigger, stopped)) = self.did.stopped {
            self.create(trigger, InitialStatus::Complete { stopped }, None);
        }
    }

    /// Adds a trigger to a pending evaluation. A follow-up that still waits for its delay is replaced by a
    /// new evaluation instead, because the delay must not affect new work.
    fn join(&mut self, one: &Evaluation, trigger: Trigger) {
        if one.trigger == Trigger::FollowUp && one.wait != Wait::Nothing {
            self.cancel(one, CancelReason::Superseded);
            self.create(trigger, InitialStatus::Pending, self.did.follows);
        } else {
            self.events.push(Event::Joined { evaluation: one.id, trigger });
        }
    }

    /// Ends an evaluation that has nothing left to place.
    fn finish(&mut self, one: &Evaluation, blocked: Option<&Evaluation>) {
        let did = self.did;
        let (placed, queued) = (one.placed + did.placed, one.queued + did.queued);
        let rejected = one.rejected + did.rejected;
        let evaluation = one.id;
        self.events.push(if let Some(reason) = &did.failed {
            Event::Failed { evaluation, reason: reason.clone() }
        } else if did.attempts_exhausted {
            let error = did.error.as_deref().unwrap_or("reps refused it");
            Event::Failed { evaluation, reason: format!("no attempts left: {error}") }
        } else if placed + queued + rejected > 0 {
            let blocked = blocked.filter(|_| queued > 0).map(|blocked| blocked.id);
            Event::Completed { evaluation, placed, queued, rejected, blocked }
        } else {
            Event::Canceled { evaluation, reason: CancelReason::NothingLeft }
        });
    }

    /// Updates the blocked evaluation. `parent` is the evaluation that could not place some of its work.
    fn unblock(&mut self, known: Option<&Evaluation>, parent: Option<&Evaluation>) {
        let did = self.did;
        match (known, self.left.unplaced) {
            (None, 0) => {}
            (None, _) => {
                let trigger = if did.attempts_exhausted { Trigger::Attempts } else { Trigger::Queued };
                let reason = did.error.clone().unwrap_or_default();
                let eligibility = did.eligibility.clone();
                let begin = InitialStatus::Blocked { reason, eligibility };
                self.create(trigger, begin, parent.map(|parent| parent.id));
            }
            (Some(one), 0) => {
                let (evaluation, placed) = (one.id, one.placed + did.unblocked);
                self.events.push(match &did.failed {
                    Some(reason) => Event::Failed { evaluation, reason: reason.clone() },
                    None if placed > 0 => {
                        Event::Completed { evaluation, placed, queued: 0, rejected: 0, blocked: None }
                    }
                    None => Event::Canceled { evaluation, reason: CancelReason::NothingLeft },
                });
            }
            (Some(one), _) => {
                let reason = did
                    .error
                    .clone()
                    .filter(|error| !matches!(&one.status, Status::Blocked { reason } if reason == error));
                let eligibility = did.eligibility.clone();
                let blocked = |reason| Event::Blocked { evaluation: one.id, reason, eligibility };
                self.events.extend(reason.map(blocked));
            }
        }
    }
}

/// Returns the duty of the evaluation that an auctioneer's outcome names.
///
/// # Errors
/// `InvalidStateTransition` if the evaluation has ended or does not exist.
pub fn open_duty(known: Option<&Evaluation>, id: EvaluationId) -> Result<Duty, Refusal> {
    known.and_then(Evaluation::duty).ok_or_else(|| {
        let why = format!("evaluation {id} is not open: its work is done, or belongs to another evaluation");
        Refusal::new(Code::InvalidStateTransition, why)
    })
}

/// Decides about a delivery that was not answered. The evaluation is delivered again, or fails with a
/// follow-up.
///
/// # Errors
/// `InvalidStateTransition` if the evaluation is not open, or if the delivery is not its current delivery.
pub fn decide_unanswered(
    known: &[Evaluation],
    id: EvaluationId,
    delivery: u32,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let one = known.iter().find(|one| one.id == id);
    let Some(one) = one.filter(|one| one.duty() == Some(Duty::Place) && one.delivery == delivery) else {
        let why = format!("delivery {delivery} of evaluation {id} is not open");
        return Err(Refusal::new(Code::InvalidStateTransition, why));
    };
    let evaluation = one.id;
    let again = |delivery, wait| {
        let until = now + wait;
        Ok(vec![Event::Redelivered { evaluation, delivery, until }])
    };
    match delivery {
        0 | 1 => again(2, SECOND_DELIVERY_DELAY),
        2 => again(MAX_DELIVERIES, THIRD_DELIVERY_DELAY),
        MAX_DELIVERIES.. => {
            let reason = format!("delivered {MAX_DELIVERIES} times and never answered");
            let until = now + follow_up_delay(one.follow_ups);
            let (trigger, initial_status) = (Trigger::FollowUp, InitialStatus::Delayed { until });
            let follow_up = Event::Created { number: 0, trigger, initial_status, previous: Some(evaluation) };
            Ok(vec![Event::Failed { evaluation, reason }, follow_up])
        }
    }
}

/// Returns the delay of a follow-up after `follow_ups` earlier ones: 1, 2, 4 ... 60 minutes.
#[must_use]
pub fn follow_up_delay(follow_ups: u32) -> Duration {
    (FOLLOW_UP_DELAY * 2_u32.pow(follow_ups.min(16))).min(MAX_FOLLOW_UP_DELAY)
}

/// Decides a client's request to retry an evaluation immediately. The evaluation must be delayed, blocked or
/// failed.
///
/// # Errors
/// `ResourceNotFound` if the evaluation does not exist. `InvalidStateTransition`, with the status, if the
/// evaluation has another status.
pub fn decide_retry(
    known: &[Evaluation],
    id: EvaluationId,
    left: &WaitingWork,
) -> Result<Vec<Event>, Refusal> {
    let Some(one) = known.iter().find(|one| one.id == id) else {
        return Err(Refusal::not_found(format!("evaluation {id}")));
    };
    let refuse = |what: &str| {
        let why = format!("evaluation {id} {what}: only a delayed, blocked or failed one can be retried");
        Err(Refusal::new(Code::InvalidStateTransition, why))
    };
    let retried = |blocked| Event::Retried { evaluation: id, blocked };
    let (duty, unplaced) = (find_open(known, Duty::Place), find_open(known, Duty::Unblock));
    match (&one.status, one.wait) {
        (Status::Pending, Wait::Nothing) => refuse("is being scheduled"),
        (Status::Pending, Wait::Restart(at)) => {
            refuse(&format!("waits for a restart at {at}; to start it now, stop the instance"))
        }
        (Status::Pending, Wait::Delivery(_)) => Ok(vec![retried(None)]),
        (Status::Blocked { reason }, _) => Ok(vec![retried(Some(reason.clone()))]),
        (Status::Failed { .. }, _) => match (duty, unplaced) {
            (Some(other), _) if left.unanswered > 0 => Ok(vec![cancel_superseded(other), retried(None)]),
            (_, Some(other)) if left.unplaced > 0 => match &other.status {
                Status::Blocked { reason } => {
                    Ok(vec![cancel_superseded(other), retried(Some(reason.clone()))])
                }
                Status::Pending | Status::Complete | Status::Failed { .. } | Status::Canceled { .. } => {
                    refuse("has nothing left to place")
                }
            },
            (Some(_) | None, _) => refuse("has nothing left to place"),
        },
        (Status::Complete, _) => refuse("is complete"),
        (Status::Canceled { .. }, _) => refuse("is canceled"),
    }
}

fn cancel_superseded(other: &Evaluation) -> Event {
    Event::Canceled { evaluation: other.id, reason: CancelReason::Superseded }
}
