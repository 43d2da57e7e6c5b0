//! Launches of periodic tasks and dispatches of parameterised tasks: each happens once, and none is lost.

use std::collections::{BTreeMap, BTreeSet};

use projections::World;
use schemas::definition::Overlap;
use schemas::entry::{Aggregate, Event};
use schemas::names::{ParameterisedGuid, TaskGuid};
use schemas::parameterised::{self, Dispatch, WithdrawReason};
use schemas::periodic::{self, LaunchReason};
use schemas::spec::ClientCommand;
use schemas::{Code, Decision, Entry, task};

use crate::checkers::{Checkers, Notes};
use crate::coverage::Situation;
use crate::invariants::Invariant as I;

/// Tasks launched so far, and the dispatches that have not become tasks.
#[derive(Default)]
pub(super) struct Launches {
    launched: BTreeSet<TaskGuid>,
    waiting: BTreeMap<(ParameterisedGuid, u64), Box<Dispatch>>,
}

impl Launches {
    /// Checks an entry before the World folds it.
    pub(super) fn check(&mut self, entry: &Entry, world: &World, notes: &mut Notes) {
        for (at, decision) in entry.decisions.iter().enumerate() {
            let later = &entry.decisions[at + 1..];
            for event in &decision.events {
                match event {
                    Event::Periodic(periodic::Event::Launched { due, task_guid, reason, .. }) => {
                        let once = self.launched.insert(task_guid.clone());
                        let in_time = *due <= decision.at;
                        let alone = *reason == LaunchReason::Requested
                            || may_overlap(decision, world, &entry.decisions[..at]);
                        let desired = desires(later, task_guid).is_some();
                        notes.check(I::LaunchedOnce, once && in_time && alone && desired, || {
                            format!(
                                "{event:?} at {}: once {once}, alone {alone}, desired {desired}",
                                decision.at
                            )
                        });
                        if *reason == LaunchReason::CatchUp {
                            notes.met(Situation::LaunchCaughtUp);
                        }
                    }
                    Event::Parameterised(event) => self.check_dispatch(event, decision, later, notes),
                    _ => {}
                }
            }
        }
    }

    fn check_dispatch(
        &mut self,
        event: &parameterised::Event,
        decision: &Decision,
        later: &[Decision],
        notes: &mut Notes,
    ) {
        let Aggregate::Parameterised { guid, .. } = &decision.aggregate else { return };
        match event {
            parameterised::Event::Dispatched { number, dispatch, .. } => {
                self.waiting.insert((guid.clone(), *number), dispatch.clone());
            }
            parameterised::Event::Launched { number, task_guid } => {
                let dispatch = self.waiting.remove(&(guid.clone(), *number));
                let task = desires(later, task_guid);
                let right = task.zip(dispatch).is_some_and(|(task, dispatch)| {
                    let variables = &task.definition.environment_variables;
                    dispatch.environment(guid).iter().all(|variable| variables.contains(variable))
                });
                notes.check(I::DispatchedOnce, right, || {
                    format!("{guid} launches {task_guid}, which was launched before or runs something else: {task:?}")
                });
            }
            parameterised::Event::Withdrawn { numbers, reason } => {
                let known =
                    numbers.iter().all(|number| self.waiting.remove(&(guid.clone(), *number)).is_some());
                notes.check(I::DispatchedOnce, known, || {
                    format!("{guid} withdraws {numbers:?}, not all of which wait")
                });
                if *reason == WithdrawReason::Requested {
                    notes.met(Situation::DispatchWithdrawn);
                }
            }
            parameterised::Event::Desired { .. }
            | parameterised::Event::Updated { .. }
            | parameterised::Event::Repeated { .. }
            | parameterised::Event::Removed {} => {}
        }
    }

    /// Returns the dispatches that neither became a task nor were withdrawn.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &(ParameterisedGuid, u64)> {
        self.waiting.keys()
    }
}

/// Returns `true` if a periodic task may launch a task now: overlaps are allowed, or no earlier task is live.
fn may_overlap(decision: &Decision, world: &World, earlier: &[Decision]) -> bool {
    let Aggregate::Periodic { guid, .. } = &decision.aggregate else { return false };
    let desired = world.periodic(guid).and_then(|known| known.desired.as_ref());
    let ended = |guid: &TaskGuid| {
        let about =
            |one: &&Decision| matches!(&one.aggregate, Aggregate::Task { guid: other, .. } if other == guid);
        let ends = |event: &Event| matches!(event, Event::Task(task::Event::Completed { .. }));
        earlier.iter().filter(about).any(|one| one.events.iter().any(ends))
    };
    desired.is_none_or(|desired| desired.overlap == Overlap::Allowed)
        || world.launched_by(guid).all(|task| !task.is_live() || ended(&task.guid))
}

/// Returns the task that one of the decisions desires.
fn desires<'a>(decisions: &'a [Decision], guid: &TaskGuid) -> Option<&'a schemas::definition::DesiredTask> {
    decisions.iter().flat_map(|decision| &decision.events).find_map(|event| match event {
        Event::Task(task::Event::Desired(desired)) if desired.task_guid == *guid => Some(&**desired),
        _ => None,
    })
}

/// Returns `true` if a decision desires the task of a launch or of a dispatch.
pub(super) fn desires_launched_task(decision: &Decision) -> bool {
    let launched = |guid: &TaskGuid| guid.launching_periodic().is_some() || guid.dispatch_source().is_some();
    decision.events.iter().any(
        |event| matches!(event, Event::Task(task::Event::Desired(desired)) if launched(&desired.task_guid)),
    )
}

impl Checkers {
    /// Checks the number of live tasks of a parameterised task after a launch, unless the same entry also
    /// changes the limit.
    pub(super) fn check_concurrency(&self, decision: &Decision, entry: &Entry, notes: &mut Notes) {
        let Aggregate::Parameterised { guid, .. } = &decision.aggregate else { return };
        let events = || decision.events.iter().filter_map(Event::as_parameterised);
        let launches =
            events().any(|event| matches!(event, parameterised::Event::Launched { .. }))
                && entry.decisions.iter().flat_map(|one| &one.events).all(|event| {
                    !matches!(event, Event::Parameterised(parameterised::Event::Updated { .. }))
                });
        let known = self.world.parameterised(guid).filter(|_| launches);
        let limit = known.and_then(|known| known.desired.as_ref()?.concurrency);
        let live = self.world.dispatched_by(guid).filter(|task| task.is_live()).count();
        notes.check(I::DispatchedOnce, limit.is_none_or(|limit| live <= limit as usize), || {
            format!("{guid} has {live} live tasks, limit {limit:?}")
        });
    }

    /// Records the refusal of a dispatch.
    pub(super) fn note_refused_dispatch(&mut self, command: &ClientCommand, code: Code) {
        if matches!(command, ClientCommand::ParameterisedDispatch { .. })
            && code == Code::InvalidStateTransition
        {
            self.coverage.met(Situation::DispatchRefused);
        }
    }
}
