//! Evaluations: which of them stands for what waits, told from the log alone.

use std::collections::BTreeMap;

use machines::evaluation;
use schemas::evaluation::{CancelReason, Duty, Event, InitialStatus, Trigger, Wait};
use schemas::names::EvaluationId;
use schemas::placement::Eligibility;
use schemas::{Timestamp, actual, entry, task};

use super::Notes;
use crate::coverage::Situation;
use crate::promises::Promise as P;

/// An evaluation is given to the auctioneer so often, and waits so long before the second and the third time.
const DELIVERIES: [u64; 2] = [1, 20];

/// The evaluations of a process or a task, as the checker has them.
#[derive(Default)]
pub(super) struct Evaluations {
    all: BTreeMap<EvaluationId, One>,
}

struct One {
    standing: Standing,
    trigger: Trigger,
    placed: u32,
    queued: u32,
    delivery: u32,
    follow_ups: u32,
}

/// Where an evaluation stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    /// To be scheduled, no sooner than then.
    Placing(Option<Timestamp>),
    /// With what waits for room, and why.
    Blocked(String),
    /// With what restarts, first then.
    Restarting(Timestamp),
    /// It ended, and how.
    Ended(&'static str),
}

/// What waits, as far as evaluations go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    /// What is to be placed.
    pub(super) unanswered: usize,
    /// What found no place.
    pub(super) unplaced: usize,
    /// When the first of what crashed restarts.
    pub(super) restart_at: Option<Timestamp>,
}

impl Evaluations {
    /// Something that waited is placed, or found no place for the first time.
    pub(super) fn moved(&mut self, had_error: bool, placed: bool) {
        let of = |one: &&mut One| match &one.standing {
            Standing::Placing(_) => !had_error,
            Standing::Blocked(_) => had_error,
            Standing::Restarting(_) | Standing::Ended(_) => false,
        };
        if let Some(one) = self.all.values_mut().find(of) {
            one.placed += u32::from(placed);
            one.queued += u32::from(!placed);
        }
    }

    fn count(&self, so: impl Fn(&Standing) -> bool) -> usize {
        self.all.values().filter(|one| so(&one.standing)).count()
    }

    /// Whether exactly what waits has an open evaluation, and exactly one.
    pub(super) fn stand_for(&self, waiting: Waiting) -> bool {
        let placing = self.count(|standing| matches!(standing, Standing::Placing(_)));
        let blocked = self.count(|standing| matches!(standing, Standing::Blocked(_)));
        let restarting: Vec<Timestamp> = self.all.values().filter_map(One::restarts_at).collect();
        placing == usize::from(waiting.unanswered > 0)
            && blocked == usize::from(waiting.unplaced > 0)
            && restarting == waiting.restart_at.into_iter().collect::<Vec<_>>()
    }

    /// What happens to one of them, in a decision that says these, too.
    pub(super) fn take(
        &mut self,
        event: &Event,
        decision: &schemas::Decision,
        (name, notes): (&str, &mut Notes),
    ) {
        if let Event::Created { initial_status: InitialStatus::Blocked { eligibility, .. }, .. }
        | Event::Blocked { eligibility, .. } = event
        {
            notes.must(P::ExplanationTrue, eligibility.as_deref() == tried(decision), || {
                format!("{name}: {event:?}, and {:?} was tried", tried(decision))
            });
        }
        let id = event.evaluation(decision.id);
        if let Event::Created { trigger, initial_status: begin, previous, .. } = event {
            self.create(id, (*trigger, begin, *previous), decision, (name, notes));
            return;
        }
        let Some(one) = self.all.get_mut(&id) else {
            return notes.broken(P::EvaluationSound, format!("{name}: {event:?} of one that nobody created"));
        };
        let before = one.standing.clone();
        let is_over = matches!(before, Standing::Ended(_));
        let retried = matches!(event, Event::Retried { .. }) && before == Standing::Ended("failed");
        notes.must(P::EvaluationFinal, !is_over || retried, || format!("{name}: {event:?} of {before:?}"));
        let legal = one.goes_on(event, decision);
        notes.must(P::EvaluationSound, legal, || format!("{name}: {event:?} of {before:?}"));
        one.saw(event, &before, notes);
    }

    fn create(
        &mut self,
        id: EvaluationId,
        (trigger, begin, previous): (Trigger, &InitialStatus, Option<EvaluationId>),
        decision: &schemas::Decision,
        (name, notes): (&str, &mut Notes),
    ) {
        notes.must(P::EvaluationSound, !self.all.contains_key(&id), || {
            format!("{name}: {id} is created twice")
        });
        let parent = previous.and_then(|id| self.all.get(&id));
        let failed = |id: EvaluationId| {
            let fails =
                |event: &Event| matches!(event, Event::Failed { evaluation, .. } if *evaluation == id);
            events(decision).any(fails)
        };
        let right = match (trigger, begin) {
            (Trigger::Queued, InitialStatus::Blocked { .. }) => parent.is_some(),
            (Trigger::Attempts, InitialStatus::Blocked { .. }) => {
                let still_open = parent.is_some_and(|one| matches!(one.standing, Standing::Placing(_)));
                previous.is_some_and(failed) || still_open
            }
            (Trigger::FollowUp, InitialStatus::Delayed { until }) => {
                let waits = |one: &One| 60 * 2_u64.pow(one.follow_ups.min(6));
                let wait = parent.map(|one| std::time::Duration::from_secs(waits(one).min(3_600)));
                previous.is_some_and(failed) && wait.is_some_and(|wait| *until == decision.at + wait)
            }
            (Trigger::Crash, InitialStatus::Delayed { .. }) => previous.is_none(),
            (Trigger::Remove | Trigger::Scale | Trigger::Preemption, InitialStatus::Complete { .. }) => {
                previous.is_none()
            }
            (Trigger::RollingUpdate, InitialStatus::Pending) => {
                previous.is_none() || parent.is_some_and(|one| one.trigger == Trigger::RollingUpdate)
            }
            (Trigger::Queued | Trigger::Attempts | Trigger::FollowUp, _) => false,
            (_, InitialStatus::Pending) => previous.is_none(),
            (
                _,
                InitialStatus::Delayed { .. }
                | InitialStatus::Blocked { .. }
                | InitialStatus::Complete { .. },
            ) => false,
        };
        notes.must(P::ParentAndChild, right, || format!("{name}: {trigger:?} {begin:?} after {previous:?}"));
        let follow_ups = parent.map_or(0, |one| one.follow_ups) + u32::from(trigger == Trigger::FollowUp);
        let standing = match begin {
            InitialStatus::Pending => Standing::Placing(None),
            InitialStatus::Delayed { until } if trigger == Trigger::FollowUp => {
                Standing::Placing(Some(*until))
            }
            InitialStatus::Delayed { until } => Standing::Restarting(*until),
            InitialStatus::Blocked { reason, .. } => Standing::Blocked(reason.clone()),
            InitialStatus::Complete { .. } => Standing::Ended("complete"),
        };
        match begin {
            InitialStatus::Blocked { .. } => notes.saw(Situation::EvaluationBlocked),
            InitialStatus::Delayed { .. } => notes.saw(Situation::RestartDelayed),
            InitialStatus::Pending | InitialStatus::Complete { .. } => {}
        }
        let one = One { standing, trigger, placed: 0, queued: 0, delivery: 1, follow_ups };
        self.all.insert(id, one);
    }

    /// The reason of what waits for room.
    pub(super) fn blocked_for(&self) -> Option<&str> {
        self.all.values().find_map(|one| match &one.standing {
            Standing::Blocked(reason) => Some(reason.as_str()),
            Standing::Placing(_) | Standing::Restarting(_) | Standing::Ended(_) => None,
        })
    }

    /// The open ones, in words.
    pub(super) fn in_words(&self) -> Vec<String> {
        let words = |(id, one): (&EvaluationId, &One)| {
            let (what, until) = match &one.standing {
                Standing::Placing(until) => ("place", *until),
                Standing::Blocked(_) => ("unblock", None),
                Standing::Restarting(until) => ("restart", Some(*until)),
                Standing::Ended(_) => return None,
            };
            Some(line(*id, what, until, (one.placed, one.queued, one.delivery)))
        };
        self.all.iter().filter_map(words).collect()
    }
}

impl One {
    const fn restarts_at(&self) -> Option<Timestamp> {
        match &self.standing {
            Standing::Restarting(at) => Some(*at),
            Standing::Placing(_) | Standing::Blocked(_) | Standing::Ended(_) => None,
        }
    }

    /// Takes an event in, and says whether it may be so.
    fn goes_on(&mut self, event: &Event, decision: &schemas::Decision) -> bool {
        let placing = matches!(self.standing, Standing::Placing(_));
        let blocked = matches!(self.standing, Standing::Blocked(_));
        let restarting = matches!(self.standing, Standing::Restarting(_));
        match event {
            Event::Created { .. } => false,
            Event::Joined { .. } => placing,
            Event::DelayChanged { until, .. } => {
                self.standing = Standing::Restarting(*until);
                restarting
            }
            Event::Due { .. } => {
                self.standing = Standing::Placing(None);
                restarting
            }
            Event::Redelivered { delivery, until, .. } => {
                let wait = usize::try_from(self.delivery).ok().and_then(|at| DELIVERIES.get(at - 1));
                self.delivery += 1;
                self.standing = Standing::Placing(Some(*until));
                let waits = |wait: &u64| *until == decision.at + std::time::Duration::from_secs(*wait);
                placing && *delivery == self.delivery && wait.is_some_and(waits)
            }
            Event::Blocked { reason, .. } => {
                let other = self.standing != Standing::Blocked(reason.clone());
                self.standing = Standing::Blocked(reason.clone());
                blocked && other
            }
            Event::Completed { placed, queued, rejected, .. } => {
                self.standing = Standing::Ended("complete");
                let counted = (self.placed, self.queued) == (*placed, *queued);
                counted && placed + queued + rejected > 0 && (placing || blocked)
            }
            Event::Failed { .. } => {
                self.standing = Standing::Ended("failed");
                placing || blocked
            }
            Event::Canceled { reason: why, .. } => {
                self.standing = Standing::Ended("canceled");
                let others = events(decision).any(|event| {
                    matches!(event, Event::Created { .. } | Event::Joined { .. } | Event::Retried { .. })
                });
                *why == CancelReason::NothingLeft || others
            }
            Event::Retried { blocked: waits, .. } => {
                let over = self.standing == Standing::Ended("failed");
                let may = over || if waits.is_some() { blocked } else { placing };
                // What waited in its child's place is its own again.
                self.queued *= u32::from(waits.is_none());
                self.standing = waits.clone().map_or(Standing::Placing(None), Standing::Blocked);
                self.delivery = 1;
                may
            }
        }
    }

    fn saw(&self, event: &Event, before: &Standing, notes: &mut Notes) {
        match (event, before) {
            (Event::Completed { .. }, Standing::Blocked(_)) => notes.saw(Situation::BlockedWorkPlaced),
            (Event::Completed { placed, queued, .. }, _) if *placed > 0 && *queued > 0 => {
                notes.saw(Situation::PartlyPlaced);
            }
            (Event::Joined { .. }, _) => notes.saw(Situation::CauseJoined),
            (Event::Redelivered { .. }, _) => notes.saw(Situation::Redelivered),
            (Event::Due { .. }, _) => notes.saw(Situation::RestartDue),
            (Event::Retried { .. }, _) => notes.saw(Situation::EvaluationRetried),
            (
                Event::Created { .. }
                | Event::DelayChanged { .. }
                | Event::Blocked { .. }
                | Event::Completed { .. }
                | Event::Failed { .. }
                | Event::Canceled { .. },
                _,
            ) => {}
        }
    }
}

/// Which kinds of cells were tried for what a decision says found no place.
fn tried(decision: &schemas::Decision) -> Option<&Eligibility> {
    let failed = decision.events.iter().rev().find_map(|event| {
        if let entry::Event::Actual(actual::Event::PlacementFailed { explanation, .. })
        | entry::Event::Task(task::Event::PlacementFailed { explanation, .. }) = event
        {
            return Some(explanation.as_ref());
        }
        None
    });
    failed.flatten()?.eligibility.as_deref()
}

/// What a decision says of evaluations.
fn events(decision: &schemas::Decision) -> impl Iterator<Item = &Event> {
    decision.events.iter().filter_map(|event| match event {
        entry::Event::Evaluation(event) => Some(event),
        entry::Event::Desired(_)
        | entry::Event::Actual(_)
        | entry::Event::Evacuating(_)
        | entry::Event::Rollout(_)
        | entry::Event::Task(_)
        | entry::Event::Periodic(_)
        | entry::Event::Parameterised(_)
        | entry::Event::Domain(_)
        | entry::Event::Cell(_)
        | entry::Event::Cluster(_) => None,
    })
}

fn line(id: EvaluationId, what: &str, until: Option<Timestamp>, counts: (u32, u32, u32)) -> String {
    format!("{id} {what} {until:?} {counts:?}")
}

/// The same words of the services' own fold.
pub(super) fn words_of(all: &evaluation::Evaluations) -> Vec<String> {
    let mut words: Vec<(EvaluationId, String)> = all
        .iter()
        .filter_map(|one| {
            let until = match one.wait {
                Wait::Nothing => None,
                Wait::Restart(at) | Wait::Delivery(at) => Some(at),
            };
            let what = match one.duty()? {
                Duty::Place => "place",
                Duty::Unblock => "unblock",
                Duty::Restart => "restart",
            };
            Some((one.id, line(one.id, what, until, (one.placed, one.queued, one.delivery))))
        })
        .collect();
    words.sort();
    words.into_iter().map(|(_, words)| words).collect()
}
