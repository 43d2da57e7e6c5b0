//! What a decision about a process or task means for its evaluations.

use std::time::Duration;

use super::{Begin, Canceled, Duty, Evaluation, Event, Status, Trigger, Wait, open};
use crate::Timestamp;
use crate::names::EvaluationId;
use crate::placement::Eligibility;
use crate::refusal::{Code, Refusal};

/// An evaluation that nobody answered is given to the auctioneer so often before it fails.
pub const DELIVERIES: u32 = 3;
/// How long the second delivery waits after the first was not answered.
pub const SECOND_DELIVERY: Duration = Duration::from_secs(1);
/// How long the third delivery waits.
pub const THIRD_DELIVERY: Duration = Duration::from_secs(20);
/// How long the first follow-up of a failed evaluation waits; each further one twice as long.
pub const FOLLOW_UP: Duration = Duration::from_secs(60);
/// The longest wait of a follow-up.
pub const LONGEST_FOLLOW_UP: Duration = Duration::from_secs(60 * 60);

/// The work that a decision leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// UNCLAIMED instances without a placement error, or 1 for such a PENDING task.
    pub unanswered: u32,
    /// Those with one.
    pub unplaced: u32,
    /// When the first CRASHED instance is restarted.
    pub restart_at: Option<Timestamp>,
}

/// What a decision did to the work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Did {
    /// What made work, if something did.
    pub made: Option<Trigger>,
    /// A client asked so many instances to stop, and for what.
    pub stopped: Option<(Trigger, u32)>,
    /// The evaluation that the next step of a rolling update follows.
    pub follows: Option<EvaluationId>,
    /// How much was placed that had no placement error.
    pub placed: u32,
    /// How much was placed that had one.
    pub unblocked: u32,
    /// How much got its first placement error.
    pub queued: u32,
    /// How much found no place and doesn't wait.
    pub rejected: u32,
    /// The placement error that the decision brought.
    pub error: Option<String>,
    /// Which kinds of cells were tried then.
    pub eligibility: Option<Box<Eligibility>>,
    /// Whether that is the end of the attempts: reps refused the work too often.
    pub used_up: bool,
    /// Why the work will not be placed, if that was decided.
    pub failed: Option<String>,
}

/// What a decision means for the evaluations.
#[must_use]
pub fn decide(known: &[Evaluation], left: &Left, did: &Did) -> Vec<Event> {
    let mut draft = Draft { left, did, events: vec![], created: 0 };
    let place = open(known, Duty::Place);
    let due = draft.restart(open(known, Duty::Restart), place);
    let place = draft.place(place, due, open(known, Duty::Unblock));
    draft.unblock(open(known, Duty::Unblock), place);
    draft.events
}

/// Evaluations while they are decided.
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

    /// What waits for restarts. Answers it if its wait is over, and it goes on to be scheduled.
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

    /// What is to be placed. Answers the evaluation that stood for it, whose rest may wait for room.
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
            // Nothing is known to have made it: convergence finds it, and says so.
            (None, _, None) => {}
        }
        known.or(due)
    }

    /// What a client asked to stop needs no cell.
    fn stop(&mut self) {
        if let Some((trigger, stopped)) = self.did.stopped {
            self.create(trigger, Begin::Complete { stopped }, None);
        }
    }

    /// A further cause of a pending evaluation. What follows one that failed still waits: it doesn't hold up what is new.
    fn join(&mut self, one: &Evaluation, trigger: Trigger) {
        if one.trigger == Trigger::FollowUp && one.wait != Wait::Nothing {
            self.cancel(one, Canceled::Superseded);
            self.create(trigger, Begin::Pending, self.did.follows);
        } else {
            self.events.push(Event::Joined { evaluation: one.id, trigger });
        }
    }

    /// Nothing of it is left to place.
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

    /// What waits for room; `parent` could not place some of it.
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

/// What an auctioneer's outcome speaks of: what it names is open, and stands for this.
///
/// # Errors
/// `InvalidStateTransition` if it has ended, or isn't there.
pub fn judged(known: Option<&Evaluation>, id: EvaluationId) -> Result<Duty, Refusal> {
    known.and_then(Evaluation::duty).ok_or_else(|| {
        let why = format!("evaluation {id} is not open: its work is settled, or another one's");
        Refusal::new(Code::InvalidStateTransition, why)
    })
}

/// Nobody answered this delivery of an evaluation: it is delivered again, or fails with a follow-up.
///
/// # Errors
/// `InvalidStateTransition` if that delivery isn't the open one.
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

/// How long a follow-up waits, given how many there were before it: 1, 2, 4 ... 60 minutes.
#[must_use]
pub fn follow_up_wait(follow_ups: u32) -> Duration {
    (FOLLOW_UP * 2_u32.pow(follow_ups.min(16))).min(LONGEST_FOLLOW_UP)
}

/// Somebody wants an evaluation tried again now: one that waits, is blocked, or failed.
///
/// # Errors
/// `ResourceNotFound`, or `InvalidStateTransition` with what it is.
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
