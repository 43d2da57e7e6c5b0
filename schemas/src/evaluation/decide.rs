//! Effects of a decision about a process or task on its evaluations.

use std::time::Duration;

use super::{Begin, Canceled, Duty, Evaluation, Event, Status, Trigger, Wait, open};
use crate::Timestamp;
use crate::names::EvaluationId;
use crate::placement::Eligibility;
use crate::refusal::{Code, Refusal};

/// Maximum number of deliveries to the auctioneer. An evaluation that is not answered after the last one
/// fails.
pub const DELIVERIES: u32 = 3;
/// Delay of the second delivery after the first was not answered.
pub const SECOND_DELIVERY: Duration = Duration::from_secs(1);
/// Delay of the third delivery after the second was not answered.
pub const THIRD_DELIVERY: Duration = Duration::from_secs(20);
/// Delay of the first follow-up of a failed evaluation. Each further one waits twice as long.
pub const FOLLOW_UP: Duration = Duration::from_secs(60);
/// Maximum delay of a follow-up.
pub const LONGEST_FOLLOW_UP: Duration = Duration::from_secs(60 * 60);

/// Waiting work of a process or task after a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Number of UNCLAIMED instances without a placement error, or 1 for such a PENDING task.
    pub unanswered: u32,
    /// Number of UNCLAIMED instances with a placement error, or 1 for such a PENDING task.
    pub unplaced: u32,
    /// First restart time of a CRASHED instance.
    pub restart_at: Option<Timestamp>,
}

/// Effects of a decision on the work of a process or task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Did {
    /// Reason for new work. `None` if the decision made no work.
    pub made: Option<Trigger>,
    /// Number of instances that a client asked to stop, with the reason.
    pub stopped: Option<(Trigger, u32)>,
    /// Evaluation that precedes this step of a rolling update.
    pub follows: Option<EvaluationId>,
    /// Number placed that had no placement error.
    pub placed: u32,
    /// Number placed that had a placement error.
    pub unblocked: u32,
    /// Number that got its first placement error.
    pub queued: u32,
    /// Number that found no place and does not wait.
    pub rejected: u32,
    /// Placement error of the decision.
    pub error: Option<String>,
    /// Kinds of cells that were tried for that error.
    pub eligibility: Option<Box<Eligibility>>,
    /// `true` if the attempts are exhausted because reps refused the work too often.
    pub used_up: bool,
    /// Reason why the work will never be placed, if that was decided.
    pub failed: Option<String>,
}

/// Returns the events of the evaluations that follow from a decision.
#[must_use]
pub fn decide(known: &[Evaluation], left: &Left, did: &Did) -> Vec<Event> {
    let mut draft = Draft { left, did, events: vec![], created: 0 };
    let place = open(known, Duty::Place);
    let due = draft.restart(open(known, Duty::Restart), place);
    let place = draft.place(place, due, open(known, Duty::Unblock));
    draft.unblock(open(known, Duty::Unblock), place);
    draft.events
}

/// State while the events are collected.
struct Draft<'a> {
    left: &'a Left,
    did: &'a Did,
    events: Vec<Event>,
    created: u8,
}

impl Draft<'_> {
    fn create(&mut self, trigger: Trigger, begin: Begin, previous: Option<EvaluationId>) {
        let number = self.created;
        self.created += 1;
        self.events.push(Event::Created { number, trigger, begin, previous });
    }

    fn cancel(&mut self, one: &Evaluation, why: Canceled) {
        self.events.push(Event::Canceled { evaluation: one.id, why });
    }

    /// Updates the evaluation of delayed restarts. Returns it if its delay is over and it continues as the
    /// pending evaluation.
    fn restart<'e>(
        &mut self,
        known: Option<&'e Evaluation>,
        place: Option<&Evaluation>,
    ) -> Option<&'e Evaluation> {
        match (known, self.left.restart_at) {
            (None, None) => {}
            (None, Some(until)) => self.create(Trigger::Crash, Begin::Delayed { until }, None),
            (Some(one), Some(until)) => {
                if one.wait != Wait::Restart(until) {
                    self.events.push(Event::Waits { evaluation: one.id, until });
                }
            }
            (Some(one), None) => {
                let is_due = self.did.made == Some(Trigger::Restart) && self.left.unanswered > 0;
                match (is_due, place) {
                    (true, None) => {
                        self.events.push(Event::Due { evaluation: one.id });
                        return Some(one);
                    }
                    (true, Some(_)) => self.cancel(one, Canceled::Superseded),
                    (false, _) => self.cancel(one, Canceled::NothingLeft),
                }
            }
        }
        None
    }

    /// Updates the pending evaluation. Returns the evaluation that covered the work; work that it could not
    /// place may wait for room.
    fn place<'e>(
        &mut self,
        known: Option<&'e Evaluation>,
        due: Option<&'e Evaluation>,
        blocked: Option<&Evaluation>,
    ) -> Option<&'e Evaluation> {
        let (left, did) = (self.left, self.did);
        match (known, left.unanswered, did.made) {
            (Some(one), 0, _) => {
                self.end(one, blocked);
                self.stop();
            }
            (Some(_), _, None) => {}
            (Some(one), _, Some(trigger)) => self.join(one, trigger),
            (None, _, _) if due.is_some() => {}
            (None, 0, _) => self.stop(),
            (None, _, Some(trigger)) => self.create(trigger, Begin::Pending, did.follows),
            // The cause of the work is unknown: convergence finds it and creates the evaluation.
            (None, _, None) => {}
        }
        known.or(due)
    }

    /// Adds a complete evaluation for a stop by a client, which needs no cell.
    fn stop(&mut self) {
        if let Some((trigger, stopped)) = self.did.stopped {
            self.create(trigger, Begin::Complete { stopped }, None);
        }
    }

    /// Adds a cause to a pending evaluation. A follow-up that still waits is replaced, so that it does not
    /// delay new work.
    fn join(&mut self, one: &Evaluation, trigger: Trigger) {
        if one.trigger == Trigger::FollowUp && one.wait != Wait::Nothing {
            self.cancel(one, Canceled::Superseded);
            self.create(trigger, Begin::Pending, self.did.follows);
        } else {
            self.events.push(Event::Joined { evaluation: one.id, trigger });
        }
    }

    /// Ends an evaluation that has nothing left to place.
    fn end(&mut self, one: &Evaluation, blocked: Option<&Evaluation>) {
        let did = self.did;
        let (placed, queued) = (one.placed + did.placed, one.queued + did.queued);
        let rejected = one.rejected + did.rejected;
        let evaluation = one.id;
        self.events.push(if let Some(reason) = &did.failed {
            Event::Failed { evaluation, reason: reason.clone() }
        } else if did.used_up {
            let error = did.error.as_deref().unwrap_or("reps refused it");
            Event::Failed { evaluation, reason: format!("its attempts are used up: {error}") }
        } else if placed + queued + rejected > 0 {
            let blocked = blocked.filter(|_| queued > 0).map(|blocked| blocked.id);
            Event::Completed { evaluation, placed, queued, rejected, blocked }
        } else {
            Event::Canceled { evaluation, why: Canceled::NothingLeft }
        });
    }

    /// Updates the blocked evaluation. `parent` is the evaluation that could not place some of its work.
    fn unblock(&mut self, known: Option<&Evaluation>, parent: Option<&Evaluation>) {
        let did = self.did;
        match (known, self.left.unplaced) {
            (None, 0) => {}
            (None, _) => {
                let trigger = if did.used_up { Trigger::Attempts } else { Trigger::Queued };
                let reason = did.error.clone().unwrap_or_default();
                let eligibility = did.eligibility.clone();
                let begin = Begin::Blocked { reason, eligibility };
                self.create(trigger, begin, parent.map(|parent| parent.id));
            }
            (Some(one), 0) => {
                let (evaluation, placed) = (one.id, one.placed + did.unblocked);
                self.events.push(match &did.failed {
                    Some(reason) => Event::Failed { evaluation, reason: reason.clone() },
                    None if placed > 0 => {
                        Event::Completed { evaluation, placed, queued: 0, rejected: 0, blocked: None }
                    }
                    None => Event::Canceled { evaluation, why: Canceled::NothingLeft },
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
pub fn judged(known: Option<&Evaluation>, id: EvaluationId) -> Result<Duty, Refusal> {
    known.and_then(Evaluation::duty).ok_or_else(|| {
        let why = format!("evaluation {id} is not open: its work is settled, or another one's");
        Refusal::new(Code::InvalidStateTransition, why)
    })
}

/// Decides about a delivery that was not answered: the evaluation is delivered again, or fails with a
/// follow-up.
///
/// # Errors
/// `InvalidStateTransition` if that delivery is not the current one of an open evaluation.
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
        0 | 1 => again(2, SECOND_DELIVERY),
        2 => again(DELIVERIES, THIRD_DELIVERY),
        DELIVERIES.. => {
            let reason = format!("it was delivered {DELIVERIES} times and never answered");
            let until = now + follow_up_wait(one.follow_ups);
            let (trigger, begin) = (Trigger::FollowUp, Begin::Delayed { until });
            let follow_up = Event::Created { number: 0, trigger, begin, previous: Some(evaluation) };
            Ok(vec![Event::Failed { evaluation, reason }, follow_up])
        }
    }
}

/// Returns the delay of a follow-up after `follow_ups` earlier ones: 1, 2, 4 ... 60 minutes.
#[must_use]
pub fn follow_up_wait(follow_ups: u32) -> Duration {
    (FOLLOW_UP * 2_u32.pow(follow_ups.min(16))).min(LONGEST_FOLLOW_UP)
}

/// Decides a client's request to retry an evaluation immediately. It must be delayed, blocked or failed.
///
/// # Errors
/// `ResourceNotFound` if it does not exist, or `InvalidStateTransition` with its status.
pub fn decide_retry(known: &[Evaluation], id: EvaluationId, left: &Left) -> Result<Vec<Event>, Refusal> {
    let Some(one) = known.iter().find(|one| one.id == id) else {
        return Err(Refusal::not_found(format!("evaluation {id}")));
    };
    let refuse = |what: &str| {
        let why = format!("evaluation {id} {what}: one that is delayed, blocked or failed can be retried");
        Err(Refusal::new(Code::InvalidStateTransition, why))
    };
    let retried = |blocked| Event::Retried { evaluation: id, blocked };
    let (duty, unplaced) = (open(known, Duty::Place), open(known, Duty::Unblock));
    match (&one.status, one.wait) {
        (Status::Pending, Wait::Nothing) => refuse("is being scheduled"),
        (Status::Pending, Wait::Restart(at)) => {
            refuse(&format!("waits for a restart at {at}; stopping the instance starts another at once"))
        }
        (Status::Pending, Wait::Delivery(_)) => Ok(vec![retried(None)]),
        (Status::Blocked { reason }, _) => Ok(vec![retried(Some(reason.clone()))]),
        (Status::Failed { .. }, _) => match (duty, unplaced) {
            (Some(other), _) if left.unanswered > 0 => Ok(vec![superseded(other), retried(None)]),
            (_, Some(other)) if left.unplaced > 0 => match &other.status {
                Status::Blocked { reason } => Ok(vec![superseded(other), retried(Some(reason.clone()))]),
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

fn superseded(other: &Evaluation) -> Event {
    Event::Canceled { evaluation: other.id, why: Canceled::Superseded }
}
