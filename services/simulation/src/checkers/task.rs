//! Tasks: one start, one outcome, and the ways to their end.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::Timestamp;
use schemas::container::{Epoch, Instance, RunResult, WorkKey};
use schemas::definition::{DesiredTask, Placement};
use schemas::entry::Event;
use schemas::evaluation::{self, InitialStatus, Trigger};
use schemas::names::{InstanceGuid, TaskGuid};
use schemas::placement::Explanation;
use schemas::resources::Constraint;
use schemas::stamp::Actor;
use schemas::task::{self, Outcome};

use super::calls::Calls;
use super::due::Thing;
use super::evaluations::{self, Evaluations, Waiting};
use super::log::Log;
use super::lrp::rules::{is_lost, is_lost_now, may_speak};
use super::placing::Said;
use super::{Notes, Scene};
use crate::coverage::Situation;
use crate::nodes::{Node, rep_of};
use crate::promises::Promise as P;
use crate::walls;

/// The reason of a task that nobody placed or started in time.
const NOT_STARTED: &str = "not started within time limit";
/// How long a completed task is kept.
const KEPT: Duration = Duration::from_secs(120);
/// How long a task may be RESOLVING.
const RESOLVING: Duration = Duration::from_secs(30);

/// A task as the checker has it.
#[derive(Default)]
pub(super) struct Task {
    epoch: Epoch,
    version: u64,
    state: Option<State>,
    since: Timestamp,
    pending_until: Timestamp,
    has_owner: bool,
    annotation: String,
    constraint: Constraint,
    evaluations: Evaluations,
    completed_at: Timestamp,
    /// Calls of its owner that the log tells of, and whether one was delivered or refused for good.
    attempts: u32,
    delivered: bool,
    refused: bool,
    outcomes: BTreeMap<Epoch, Outcome>,
    claims: Vec<(InstanceGuid, WorkKey)>,
    cancelled: Option<InstanceGuid>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Pending { error: Option<String> },
    Running(Instance),
    Completed,
    Resolving,
}

impl Task {
    /// Its container, if it has just been cancelled while it ran.
    pub(super) const fn take_cancelled(&mut self) -> Option<InstanceGuid> {
        self.cancelled.take()
    }

    /// The containers that were let in since it was asked last.
    pub(super) fn take_claims(&mut self) -> Vec<(InstanceGuid, WorkKey)> {
        std::mem::take(&mut self.claims)
    }

    pub(super) const fn is_gone(&self) -> bool {
        self.state.is_none()
    }

    pub(super) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// How it ended in one of its lives.
    pub(super) fn outcome_in(&self, epoch: Epoch) -> Option<&Outcome> {
        self.outcomes.get(&epoch)
    }

    /// Whether somebody resolves it.
    pub(super) const fn is_resolving(&self) -> bool {
        matches!(self.state, Some(State::Resolving))
    }

    /// Since when its owner waits to be called.
    pub(super) fn waits_since(&self) -> Option<Timestamp> {
        let open = matches!(self.state, Some(State::Completed | State::Resolving));
        let waits = self.has_owner && open && !self.refused;
        waits.then_some(self.completed_at)
    }

    /// What is due: the end of a state whose time is over.
    pub(super) fn due(&self, guid: &TaskGuid, clock: Timestamp, log: &Log) -> Option<Thing> {
        let since = self.since;
        let over = |what: &str| {
            Some(Thing::new(P::TaskInTime, format!("task {guid} is {what} since {since}, its time is over")))
        };
        let kept = self.completed_at + KEPT;
        match self.state.as_ref()? {
            State::Pending { .. } if self.pending_until <= clock => over("PENDING"),
            State::Running(by) if log.absent_since(&by.cell_id).is_some() => {
                let what = format!("task {guid} is said to run on an absent cell since {since}");
                Some(Thing::new(P::LostAtOnce, what))
            }
            State::Completed if kept <= clock => over("COMPLETED"),
            State::Resolving if kept.min(since + RESOLVING) <= clock => over("RESOLVING"),
            State::Pending { .. } | State::Running(_) | State::Completed | State::Resolving => None,
        }
    }

    /// Takes a decision in, event by event, and says what is wrong with it.
    pub(super) fn judge(
        &mut self,
        guid: &TaskGuid,
        scene: &Scene<'_>,
        calls: &Calls,
        peace_since: Option<Timestamp>,
        notes: &mut Notes,
    ) {
        self.version = scene.decision.version;
        for event in &scene.decision.events {
            match event {
                Event::Task(event) => {
                    let before = self.state.clone();
                    self.counts(event);
                    let legal = self.is_legal(guid, event, scene, calls, peace_since, notes);
                    let promise = promise_of(event);
                    notes.must(promise, legal, || {
                        format!("task {guid} is {before:?} since {}: {event:?}", self.since)
                    });
                    self.take(guid, event, scene, notes);
                }
                Event::Evaluation(event) => self.evaluation(guid, event, scene, notes),
                Event::Desired(_)
                | Event::Actual(_)
                | Event::Evacuating(_)
                | Event::Rollout(_)
                | Event::Periodic(_)
                | Event::Parameterised(_)
                | Event::Domain(_)
                | Event::Cell(_)
                | Event::Cluster(_) => {}
            }
        }
        if let schemas::entry::Aggregate::Task { epoch, .. } = &scene.decision.aggregate {
            notes.must(P::OneLife, *epoch == self.epoch, || {
                format!("task {guid}: a decision of another life, {epoch:?}")
            });
        }
        let waiting = match &self.state {
            Some(State::Pending { error: None }) => Waiting { unanswered: 1, ..Waiting::default() },
            Some(State::Pending { error: Some(_) }) => Waiting { unplaced: 1, ..Waiting::default() },
            Some(State::Running(_) | State::Completed | State::Resolving) | None => Waiting::default(),
        };
        notes.must(P::WorkHasEvaluation, self.evaluations.stand_for(waiting), || {
            let open = self.evaluations.in_words();
            format!("task {guid} is {:?}, its open evaluations are {open:?}", self.state)
        });
    }

    /// Work that waited is placed, or found no place.
    fn counts(&mut self, event: &task::Event) {
        let Some(State::Pending { error }) = &self.state else { return };
        let had_error = error.is_some();
        match event {
            task::Event::Started { .. } | task::Event::Completed { by: Some(_), .. } => {
                self.evaluations.moved(had_error, true);
            }
            task::Event::PlacementFailed { .. } if !had_error => self.evaluations.moved(false, false),
            task::Event::PlacementFailed { .. }
            | task::Event::Completed { by: None, .. }
            | task::Event::Desired(_)
            | task::Event::Resolving {}
            | task::Event::CallbackTried { .. }
            | task::Event::Demoted {}
            | task::Event::Deleted {} => {}
        }
    }

    fn is_legal(
        &self,
        guid: &TaskGuid,
        event: &task::Event,
        scene: &Scene<'_>,
        calls: &Calls,
        peace_since: Option<Timestamp>,
        notes: &mut Notes,
    ) -> bool {
        let at = scene.decision.at;
        let over = self.completed_at + KEPT <= at;
        match (event, &self.state) {
            (task::Event::Desired(_), None) => self.version <= 1 || self.epoch.0 < at,
            (task::Event::Started { by, .. }, Some(State::Pending { .. })) => {
                if is_lost_now(by, scene) {
                    notes.saw(Situation::AbsentCellClaimed);
                }
                may_speak(by, scene)
            }
            (task::Event::PlacementFailed { error, explanation }, Some(State::Pending { .. })) => {
                self.was_said(guid, error, explanation.as_deref(), scene, notes);
                self.pending_until > at
            }
            (
                task::Event::Completed { by, outcome, explanation },
                Some(State::Pending { .. } | State::Running(_)),
            ) => {
                if let (Actor::Auctioneer(_), Outcome::Failed { reason }, None) =
                    (&scene.decision.actor, outcome, by)
                {
                    self.was_said(guid, reason, explanation.as_deref(), scene, notes);
                }
                self.may_complete(by.as_ref(), outcome, scene, notes)
            }
            (task::Event::Resolving {}, Some(State::Completed)) => true,
            (task::Event::Demoted {}, Some(State::Resolving)) => {
                notes.saw(Situation::Demoted);
                over || self.since + RESOLVING <= at || self.refused
            }
            (
                task::Event::CallbackTried { attempt, outcome: called },
                Some(State::Completed | State::Resolving),
            ) => *attempt == self.attempts + 1 && calls.came_of(guid, self.epoch, called),
            (task::Event::Deleted {}, Some(State::Completed)) => {
                notes.saw(Situation::TaskExpired);
                let waited_in_peace = peace_since.is_some_and(|peace| peace < self.completed_at);
                let called = !self.has_owner || calls.was_called(guid, self.epoch) || !waited_in_peace;
                notes.must(P::OwnerCalled, called, || format!("task {guid}: its owner was never called"));
                over
            }
            (task::Event::Deleted {}, Some(State::Resolving)) => match &scene.decision.actor {
                Actor::Client { .. } => true,
                Actor::Bbs(_) => self.delivered,
                Actor::Cell(_) | Actor::Operator(_) | Actor::Auctioneer(_) => false,
            },
            (
                task::Event::Desired(_)
                | task::Event::Started { .. }
                | task::Event::PlacementFailed { .. }
                | task::Event::Completed { .. }
                | task::Event::Resolving {}
                | task::Event::CallbackTried { .. }
                | task::Event::Demoted {}
                | task::Event::Deleted {},
                _,
            ) => false,
        }
    }

    /// A placement error is one that an auctioneer found.
    fn was_said(
        &self,
        guid: &TaskGuid,
        error: &str,
        why: Option<&Explanation>,
        scene: &Scene<'_>,
        notes: &mut Notes,
    ) {
        let said = Said { work: guid.as_str(), epoch: self.epoch, place: None, attempt: None, error };
        notes.must(P::OutcomeIsJudged, scene.placing.was_said(&scene.decision.actor, &said, why), || {
            format!("no auctioneer said {error:?} of {:?}", scene.decision.aggregate)
        });
    }

    fn may_complete(
        &self,
        by: Option<&Instance>,
        outcome: &Outcome,
        scene: &Scene<'_>,
        notes: &mut Notes,
    ) -> bool {
        let runner = match &self.state {
            Some(State::Running(runner)) => Some(runner),
            Some(State::Pending { .. } | State::Completed | State::Resolving) | None => None,
        };
        let same = runner.is_none() || runner == by;
        let at = scene.decision.at;
        let right = match (&scene.decision.actor, outcome) {
            (Actor::Client { .. }, Outcome::Failed { reason }) => {
                if runner.is_some() {
                    notes.saw(Situation::TaskCancelledRunning);
                }
                reason == machines::task::CANCELLED && runner == by
            }
            (Actor::Cell(_), Outcome::Succeeded { result }) => {
                notes.saw(Situation::TaskSucceeded);
                let truth = by.and_then(|by| scene.truth.ended(by.instance_guid));
                matches!(truth, Some(RunResult::Succeeded { result: truth }) if truth == result)
            }
            (Actor::Cell(_), Outcome::Failed { reason }) => {
                let timed_out = reason == machines::task::EVACUATION_TIMED_OUT;
                if timed_out {
                    notes.saw(Situation::EvacuationTimedOut);
                }
                timed_out
                    && by.is_some_and(|by| {
                        let clock = (scene.decision.at, scene.clock_slack);
                        scene.evacuations.may_be_over(&by.cell_id, scene.shape.evacuation, clock)
                    })
                    || by.is_some_and(|by| ended_so(by, reason, scene))
            }
            (Actor::Bbs(_), Outcome::Failed { reason }) if reason == machines::task::CELL_DISAPPEARED => {
                notes.saw(Situation::TaskLost);
                runner.is_some_and(|by| is_lost(by, scene))
            }
            (Actor::Bbs(_), Outcome::Failed { reason }) => {
                let known = match &self.state {
                    Some(State::Pending { error: Some(error) }) => error == reason,
                    Some(State::Pending { error: None }) => reason == NOT_STARTED,
                    Some(State::Running(_) | State::Completed | State::Resolving) | None => false,
                };
                known && self.pending_until <= at
            }
            (Actor::Auctioneer(_), Outcome::Failed { reason }) => {
                notes.saw(if runner.is_some() {
                    Situation::TaskPreempted
                } else {
                    Situation::TaskPlacementFailed
                });
                reason.starts_with("preempted by ") == runner.is_some() && runner == by
            }
            (Actor::Operator(_), Outcome::Failed { .. })
            | (
                Actor::Client { .. } | Actor::Operator(_) | Actor::Bbs(_) | Actor::Auctioneer(_),
                Outcome::Succeeded { .. },
            ) => false,
        };
        same && right
    }

    fn take(&mut self, guid: &TaskGuid, event: &task::Event, scene: &Scene<'_>, notes: &mut Notes) {
        let at = scene.decision.at;
        match event {
            task::Event::Desired(desired) => self.begin(desired, at),
            task::Event::Started { by, placement, isolation } => {
                notes.must(P::TellsTheTruth, *isolation == walls::of(&by.cell_id), || {
                    format!("task {guid} is started on {} and kept apart as {isolation}", by.cell_id)
                });
                if let Node::Rep(at) = rep_of(&by.cell_id) {
                    let cell = scene.shape.cell(at);
                    let fits = self.constraint.mismatch(&cell.offer()).is_none()
                        && walls::are_kept(&self.constraint.isolation, &by.cell_id);
                    notes.must(P::PlacementObeys, fits, || format!("task {guid} is on {}", by.cell_id));
                }
                let work = WorkKey::Task { task_guid: guid.clone(), epoch: self.epoch };
                let given = scene.placing.was_given(&by.cell_id, &work, placement.as_deref());
                notes.must(P::ClaimWasGiven, given, || {
                    format!("task {guid} is started by {by:?} because of {placement:?}")
                });
                self.claims.push((by.instance_guid, work));
                self.state = Some(State::Running(by.clone()));
            }
            task::Event::PlacementFailed { error, .. } => {
                self.state = Some(State::Pending { error: Some(error.clone()) });
                return;
            }
            task::Event::Completed { by, outcome, .. } => {
                let cancelled = matches!(scene.decision.actor, Actor::Client { .. } | Actor::Auctioneer(_));
                self.cancelled = by.as_ref().filter(|_| cancelled).map(|by| by.instance_guid);
                let before = self.outcomes.insert(self.epoch, outcome.clone());
                notes.must(P::OutcomeStays, before.is_none(), || {
                    format!("task {guid} ends as {outcome:?} after {before:?}")
                });
                self.completed_at = at;
                self.state = Some(State::Completed);
            }
            task::Event::Resolving {} => self.state = Some(State::Resolving),
            task::Event::CallbackTried { attempt, outcome: called } => {
                self.attempts = *attempt;
                match called {
                    task::CallbackResult::Answered(200..=299) => self.delivered = true,
                    task::CallbackResult::Answered(408 | 429 | 500..=599)
                    | task::CallbackResult::Failed(_) => {}
                    task::CallbackResult::Answered(_) | task::CallbackResult::Refused(_) => {
                        self.refused = true;
                    }
                }
                return;
            }
            task::Event::Demoted {} => self.state = Some(State::Completed),
            task::Event::Deleted {} => self.state = None,
        }
        self.since = at;
    }

    fn begin(&mut self, desired: &DesiredTask, at: Timestamp) {
        self.epoch = Epoch(at);
        (self.attempts, self.delivered, self.refused) = (0, false, false);
        self.state = Some(State::Pending { error: None });
        self.annotation.clone_from(&desired.definition.annotation);
        self.constraint = desired.definition.constraint.clone();
        self.has_owner = desired.definition.completion_callback_url.is_some();
        self.pending_until = at
            + match desired.definition.placement {
                Placement::Fail => Duration::from_secs(30 * 60),
                Placement::Queue { deadline_ms } => Duration::from_millis(deadline_ms),
            };
    }

    fn evaluation(
        &mut self,
        guid: &TaskGuid,
        event: &evaluation::Event,
        scene: &Scene<'_>,
        notes: &mut Notes,
    ) {
        self.evaluations.take(event, scene.decision, (guid.as_str(), notes));
        self.tells_why(guid, event, scene, notes);
    }

    /// What an evaluation of a task says of its reason.
    fn tells_why(&self, guid: &TaskGuid, event: &evaluation::Event, scene: &Scene<'_>, notes: &mut Notes) {
        let says = |so: fn(&task::Event) -> bool| {
            scene.decision.events.iter().any(|event| matches!(event, Event::Task(event) if so(event)))
        };
        let error = match &self.state {
            Some(State::Pending { error }) => error.as_ref(),
            Some(State::Running(_) | State::Completed | State::Resolving) | None => None,
        };
        let failed = match self.outcomes.get(&self.epoch) {
            Some(Outcome::Failed { reason }) => Some(reason.as_str()),
            Some(Outcome::Succeeded { .. }) | None => None,
        };
        let right = match event {
            evaluation::Event::Created { trigger, initial_status: InitialStatus::Pending, .. } => {
                let launched = guid.launching_periodic().is_some();
                let by = if launched { Trigger::Periodic } else { Trigger::Desire };
                *trigger == by && says(|event| matches!(event, task::Event::Desired(_)))
            }
            evaluation::Event::Created { initial_status: InitialStatus::Blocked { reason, .. }, .. }
            | evaluation::Event::Blocked { reason, .. } => error == Some(reason),
            // Reps refused it too often, nobody answered, or its own end says why.
            evaluation::Event::Failed { reason, .. } => {
                let of_attempts =
                    failed.or(error.map(String::as_str)).is_some_and(|why| reason.ends_with(why));
                failed == Some(reason) || of_attempts || reason.contains("never answered")
            }
            evaluation::Event::Created { .. }
            | evaluation::Event::Redelivered { .. }
            | evaluation::Event::Completed { .. }
            | evaluation::Event::Canceled { .. }
            | evaluation::Event::Retried { .. } => true,
            evaluation::Event::Joined { .. }
            | evaluation::Event::DelayChanged { .. }
            | evaluation::Event::Due { .. } => false,
        };
        notes.must(P::TellsTheTruth, right, || format!("task {guid} is {:?}: {event:?}", self.state));
    }

    /// What a callback has to say of it.
    pub(super) fn annotation(&self) -> &str {
        &self.annotation
    }

    /// What of it has to equal the services' own fold, in words.
    pub(super) fn in_words(&self) -> String {
        let state = match &self.state {
            Some(State::Pending { error }) => format!("PENDING {error:?}"),
            Some(State::Running(by)) => format!("RUNNING {}", by.instance_guid),
            Some(State::Completed) => format!("COMPLETED {:?}", self.outcomes.get(&self.epoch)),
            Some(State::Resolving) => format!("RESOLVING {:?}", self.outcomes.get(&self.epoch)),
            None => "DELETED".into(),
        };
        format!("{:?} {state}", (self.version, self.epoch, self.since, self.evaluations.in_words()))
    }
}

/// Whether a task's container ended so, or is not there.
fn ended_so(by: &Instance, reason: &str, scene: &Scene<'_>) -> bool {
    if scene.truth.is_live(by.instance_guid) {
        return false;
    }
    match scene.truth.result(by.instance_guid) {
        Some(RunResult::Failed { reason: truth, .. }) if truth == reason => true,
        Some(RunResult::Stopped) if reason == "stopped" => true,
        Some(RunResult::Failed { .. } | RunResult::Succeeded { .. } | RunResult::Stopped) | None => {
            reason == machines::task::NO_CONTAINER
        }
    }
}

/// The promise that an event breaks where it may not be.
const fn promise_of(event: &task::Event) -> P {
    match event {
        task::Event::Completed { .. } => P::OutcomeTrue,
        task::Event::PlacementFailed { .. } => P::ErrorOnlyUnclaimed,
        task::Event::CallbackTried { .. } => P::CallTold,
        task::Event::Resolving {} | task::Event::Demoted {} | task::Event::Deleted {} => {
            P::OnlyCompletedResolved
        }
        task::Event::Desired(_) | task::Event::Started { .. } => P::TaskSound,
    }
}

/// The same words of the services' own fold.
pub(super) fn words_of(task: &machines::task::Task) -> String {
    let state = match &task.state {
        Some(machines::task::State::Pending { placement_error }) => format!("PENDING {placement_error:?}"),
        Some(machines::task::State::Running { by }) => format!("RUNNING {}", by.instance_guid),
        Some(machines::task::State::Completed(done)) => format!("COMPLETED {:?}", Some(&done.outcome)),
        Some(machines::task::State::Resolving(done)) => format!("RESOLVING {:?}", Some(&done.outcome)),
        None => "DELETED".into(),
    };
    let open = evaluations::words_of(&task.evaluations);
    format!("{:?} {state}", (task.version, task.epoch, task.since, open))
}
