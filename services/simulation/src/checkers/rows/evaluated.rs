//! What the log makes of the evaluations of a process or task, as rows show them.

use std::time::Duration;

use schemas::evaluation::{Evaluation, Event, InitialStatus, Joined, Status, Trigger, Wait};
use schemas::names::EvaluationId;
use schemas::query::EvaluationState;
use schemas::{Decision, Timestamp};

use crate::checkers::memory::EVALUATIONS;

/// So long an ended one is shown.
const SHOWN: Duration = Duration::from_secs(3_600);
/// So many causes that joined are shown.
const JOINED: usize = 8;

/// Work that waited is placed, or found no place for the first time.
pub(super) fn moved(all: &mut [Evaluation], had_error: bool, placed: bool) {
    let stands_for = |one: &&mut Evaluation| match (&one.status, one.wait) {
        (Status::Pending, Wait::Nothing | Wait::Delivery(_)) => !had_error,
        (Status::Blocked { .. }, _) => had_error,
        (Status::Pending | Status::Complete | Status::Failed { .. } | Status::Canceled { .. }, _) => false,
    };
    if let Some(one) = all.iter_mut().find(stands_for) {
        one.placed += u32::from(placed);
        one.queued += u32::from(!placed);
    }
}

/// What an event makes of them.
pub(super) fn evaluated(all: &mut Vec<Evaluation>, event: &Event, decision: &Decision) {
    let at = decision.at;
    if let Event::Created { trigger, initial_status: begin, previous, .. } = event {
        let id = event.evaluation(decision.id);
        create(all, id, (*trigger, begin, *previous), decision);
    } else if let Some(one) = all.iter_mut().find(|one| one.id == event.evaluation(decision.id)) {
        change(one, event, decision);
    }
    drop_old(all, at);
    let ended = all.iter().filter(|one| !is_open(one)).count();
    for _ in EVALUATIONS..ended {
        if let Some(first) = all.iter().position(|one| !is_open(one)) {
            all.remove(first);
        }
    }
}

/// What ended long ago is no longer shown.
pub(super) fn drop_old(all: &mut Vec<Evaluation>, now: Timestamp) {
    all.retain(|one| is_open(one) || one.since + SHOWN > now);
}

pub(super) fn is_open(evaluation: &Evaluation) -> bool {
    matches!(evaluation.status, Status::Pending | Status::Blocked { .. })
}

/// Where one stands, in the nine words.
pub(super) fn state_of(one: &Evaluation, now: Timestamp, auctioneer: bool) -> EvaluationState {
    let waits = match one.wait {
        Wait::Nothing => false,
        Wait::Restart(until) | Wait::Delivery(until) => now < until,
    };
    match (&one.status, waits, one.placed, auctioneer) {
        (Status::Pending, true, ..) => EvaluationState::Delayed,
        (Status::Pending, false, 1.., _) => EvaluationState::Applying,
        (Status::Pending, false, 0, true) => EvaluationState::Scheduling,
        (Status::Pending, false, 0, false) => EvaluationState::Pending,
        (Status::Blocked { .. }, ..) => EvaluationState::Blocked,
        (Status::Complete, ..) => EvaluationState::Complete,
        (Status::Failed { .. }, ..) => EvaluationState::Failed,
        (Status::Canceled { .. }, ..) => EvaluationState::Canceled,
    }
}

fn create(
    all: &mut Vec<Evaluation>,
    id: EvaluationId,
    (trigger, begin, previous): (Trigger, &InitialStatus, Option<EvaluationId>),
    decision: &Decision,
) {
    let mut new = Evaluation {
        id,
        decision: decision.id,
        correlation: decision.correlation,
        caused_by: decision.cause,
        trigger,
        status: Status::Pending,
        wait: Wait::Nothing,
        created_at: decision.at,
        since: decision.at,
        previous,
        next: None,
        blocked: None,
        placed: 0,
        queued: 0,
        rejected: 0,
        stopped: 0,
        delivery: 1,
        follow_ups: 0,
        joins: 0,
        joined: vec![],
        eligibility: None,
    };
    match begin {
        InitialStatus::Pending => {}
        InitialStatus::Delayed { until } if trigger == Trigger::Crash => new.wait = Wait::Restart(*until),
        InitialStatus::Delayed { until } => new.wait = Wait::Delivery(*until),
        InitialStatus::Blocked { reason, eligibility } => {
            new.status = Status::Blocked { reason: reason.clone() };
            new.eligibility.clone_from(eligibility);
        }
        InitialStatus::Complete { stopped } => (new.status, new.stopped) = (Status::Complete, *stopped),
    }
    if let Some(parent) = all.iter_mut().find(|one| Some(one.id) == previous) {
        new.follow_ups = parent.follow_ups + u32::from(trigger == Trigger::FollowUp);
        let child = match trigger {
            Trigger::Queued | Trigger::Attempts => &mut parent.blocked,
            Trigger::Desire
            | Trigger::Remove
            | Trigger::Scale
            | Trigger::Stop
            | Trigger::Crash
            | Trigger::Restart
            | Trigger::CellLost
            | Trigger::Evacuation
            | Trigger::Rollout
            | Trigger::RollingUpdate
            | Trigger::CellsChanged
            | Trigger::Periodic
            | Trigger::Preemption
            | Trigger::FollowUp
            | Trigger::Convergence => &mut parent.next,
        };
        *child = Some(id);
    }
    all.push(new);
}

fn change(one: &mut Evaluation, event: &Event, decision: &Decision) {
    let at = decision.at;
    let mut settle = |status: Status| (one.status, one.since) = (status, at);
    match event {
        Event::Created { .. } => {}
        Event::Joined { trigger, .. } => {
            one.joins += 1;
            one.joined.push(Joined { trigger: *trigger, decision: decision.id, at });
            one.joined.drain(..one.joined.len().saturating_sub(JOINED));
        }
        Event::DelayChanged { until, .. } => one.wait = Wait::Restart(*until),
        Event::Due { .. } => one.wait = Wait::Nothing,
        Event::Redelivered { delivery, until, .. } => {
            (one.delivery, one.wait) = (*delivery, Wait::Delivery(*until));
        }
        Event::Blocked { reason, eligibility, .. } => {
            settle(Status::Blocked { reason: reason.clone() });
            one.eligibility.clone_from(eligibility);
        }
        Event::Completed { placed, queued, rejected, blocked, .. } => {
            settle(Status::Complete);
            (one.placed, one.queued, one.rejected, one.wait) = (*placed, *queued, *rejected, Wait::Nothing);
            one.blocked = blocked.or(one.blocked);
        }
        Event::Failed { reason, .. } => {
            settle(Status::Failed { reason: reason.clone() });
            one.wait = Wait::Nothing;
        }
        Event::Canceled { reason: why, .. } => {
            settle(Status::Canceled { reason: *why });
            one.wait = Wait::Nothing;
        }
        Event::Retried { blocked, .. } => {
            let blocked = blocked.clone();
            if blocked.is_some() {
                one.queued = 0;
            }
            settle(blocked.map_or(Status::Pending, |reason| Status::Blocked { reason }));
            (one.wait, one.delivery) = (Wait::Nothing, 1);
        }
    }
}
