//! The rollout: one transition of a deployment to a definition, index by index (Updatable LRPs, "`UpdateLRPDeployment`";
//! SwarmKit orchestrators, "Update supervisor"; docs/model.md, "Rollouts").
//!
//! ```text
//!             begin                 runs, survived its monitor          the old one is gone
//! (waits) ───────────▶ Starting ──────────────────────────────▶ Leaving ───────────────────▶ Resting ──▶ (replaced)
//!    ▲                    │ failed, or too late
//!    └───── retry ── (stalled)
//! ```
//! So goes an index. The rollout as a whole is `Rolling` until every index runs the target, `Paused` by somebody or by
//! its failures, and at last `Completed`; another one may take its place at any moment.
//!
//! [`next`] says what follows from what is true, one event at a time, until nothing does: it looks only at what the log
//! says and at the time. So whoever leads finds the same, and nothing follows twice.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::actual::Actual;
use crate::cause::Cause;
use crate::crash;
use crate::definition::Definition;
use crate::desired::Desired;
use crate::indices::Indices;
use crate::key::Place;
use crate::names::DefinitionId;
use crate::policy::{FailureAction, UpdateOrder, UpdatePolicy};

/// How long an index waits for room for its new instance beside the old one. After that it falls back to stop-first, if
/// enough others run.
pub const NO_ROOM: Duration = Duration::from_secs(30);

/// One transition to a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// Counts the rollouts of the process's life, from 1.
    pub number: u32,
    /// Forward or back.
    pub kind: Kind,
    /// The definition that every index shall run.
    pub target: DefinitionId,
    /// The definition that was healthy when it began: where a rollback goes. None: none was.
    pub rollback_to: Option<DefinitionId>,
    /// The content of `rollback_to` once the process no longer has that definition, so that a rollback can add it
    /// again. `None` while the process has it, and after the rollout.
    pub rollback_definition: Option<Arc<Definition>>,
    /// How it rolls, as it was when it began.
    pub policy: UpdatePolicy,
    /// Where it stands.
    pub phase: Phase,
    /// Why it stands there, as users read it; empty: nothing to be said.
    pub reason: String,
    /// When it began.
    pub started_at: Timestamp,
    /// Since when it stands where it stands.
    pub since: Timestamp,
    /// The decision by which it began.
    pub cause: Option<Cause>,
    /// How many indices were to be replaced when it began, and came to it since.
    pub total: u32,
    /// How many were replaced.
    pub replaced: u32,
    /// The first index that had no turn yet.
    pub cursor: u32,
    /// The indices in replacement.
    pub steps: BTreeMap<u32, Step>,
    /// The indices that were given up for now.
    pub stalled: BTreeMap<u32, Stalled>,
    /// The indices of which an instance failed.
    pub failed: BTreeSet<u32>,
}

/// Forward or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// To a definition that somebody asked for.
    Update,
    /// Back to the one that was healthy before.
    Rollback,
}

/// Where a rollout stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Indices are being replaced.
    Rolling,
    /// No index takes its turn until somebody resumes it.
    Paused,
    /// Every index runs the target.
    Completed,
}

/// An index in replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// When it took its turn.
    pub begun_at: Timestamp,
    /// Which comes first here: as the policy says, or stop-first where there was no room for both.
    pub order: UpdateOrder,
    /// How far it is.
    pub stage: Stage,
}

/// How far an index in replacement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The new instance is to be placed, to start and to survive its monitor.
    Starting,
    /// The old one is to go.
    Leaving,
    /// It is replaced; another one takes its turn then.
    Resting(Timestamp),
}

/// An index that was given up for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stalled {
    /// When it may take its turn again, once all others had theirs.
    pub retry_at: Timestamp,
    /// How often it was given up.
    pub times: u32,
}

/// Why a rollout pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pause {
    /// Somebody asked for it.
    Asked,
    /// As many indices were replaced as its policy's `pause_after` says.
    Canary,
    /// More indices failed than its policy's `max_failure_ratio` allows.
    Failures,
}

/// What happens to rollouts. Each but `started` speaks of the current one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// One began; what was under way is superseded.
    Started {
        /// Forward or back.
        kind: Kind,
        /// The definition that every index shall run.
        target: DefinitionId,
        /// Where a rollback goes.
        rollback_to: Option<DefinitionId>,
        /// How many indices are to be replaced.
        total: u32,
        /// How it rolls.
        policy: Box<UpdatePolicy>,
        /// Why, as users read it.
        reason: String,
    },
    /// Indices take their turn.
    Begun {
        /// Which.
        indices: Indices,
    },
    /// There is no room for both instances of an index: the old one goes first.
    FellBack {
        /// Which.
        index: u32,
    },
    /// The new instance of an index runs and survived its monitor: the old one is to go.
    TookOver {
        /// Which.
        index: u32,
    },
    /// The old instance of an index is gone.
    Replaced {
        /// Which.
        index: u32,
        /// When the next one may take its turn.
        rests_until: Timestamp,
    },
    /// The new instance of an index failed: at most once of each index.
    Failed {
        /// Which.
        index: u32,
        /// Why.
        reason: String,
    },
    /// An index is given up for now.
    Stalled {
        /// Which.
        index: u32,
        /// When it may take its turn again.
        retry_at: Timestamp,
        /// Why.
        reason: String,
    },
    /// No index takes its turn any more.
    Paused {
        /// Why.
        cause: Pause,
        /// Why, as users read it.
        reason: String,
    },
    /// Indices take their turns again; failures count anew.
    Resumed {},
    /// Every index runs the target.
    Completed {},
}

impl Event {
    /// The indices that it speaks of; none: it speaks of all of them.
    #[must_use]
    pub fn indices(&self) -> Option<Indices> {
        match self {
            Self::Begun { indices } => Some(indices.clone()),
            Self::FellBack { index }
            | Self::TookOver { index }
            | Self::Replaced { index, .. }
            | Self::Failed { index, .. }
            | Self::Stalled { index, .. } => Some((*index).into()),
            Self::Started { .. } | Self::Paused { .. } | Self::Resumed {} | Self::Completed {} => None,
        }
    }
}

/// What a rollout sees of an index.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen<'a> {
    /// The instance of the target.
    pub target: Option<&'a Actual>,
    /// Whether an instance of another definition is there, also one that stops.
    pub other: bool,
    /// Whether one is RUNNING and was not asked to stop.
    pub other_runs: bool,
    /// Whether one ended, and its restart policy's condition says that this is the end of it.
    pub done: bool,
}

/// What else a rollout depends on.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The time of the decision.
    pub now: Timestamp,
    /// What is desired: how many instances, and which definition is known to work.
    pub desired: &'a Desired,
    /// How many instances have to run, whatever the rollout does.
    pub min_running: u32,
}

impl<'a> Context<'a> {
    /// The indices at which it replaces what is there, in order.
    fn indices(self) -> impl Iterator<Item = u32> + Clone + use<'a> {
        self.desired.rolling_indices()
    }

    /// The definition that is known to work.
    const fn healthy(self) -> Option<&'a DefinitionId> {
        self.desired.healthy_definition_id.as_ref()
    }
}

impl<'a> Seen<'a> {
    /// What is to be seen of an index, given the instances that are there.
    pub fn of(target: &DefinitionId, there: impl Iterator<Item = (&'a Place, &'a Actual)>) -> Self {
        let mut seen = Self::default();
        for (place, lrp) in there {
            if place.definition_id == *target {
                seen.target = Some(lrp);
            } else {
                seen.other = true;
                seen.other_runs |= lrp.runs_on();
                seen.done |= lrp.is_done();
            }
        }
        seen
    }

    /// Whether the new instance runs, and nobody asked it to stop.
    #[must_use]
    pub fn target_runs(&self) -> bool {
        self.target.is_some_and(Actual::runs_on)
    }

    /// Whether nothing is missing that a rollout could wait for: an instance runs, or it ended and is not to be restarted.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.target_runs() || self.other_runs || self.done || self.target.is_some_and(Actual::is_done)
    }

    /// Whether the index is on the target for good, and nothing else is there: its instance runs, or, if the target is known
    /// to work, its restart policy has declined to restart it.
    fn is_replaced(&self, proven: bool) -> bool {
        let declined = self.target.is_some_and(|lrp| lrp.declined().is_some());
        !self.other && (self.target_runs() || proven && declined)
    }

    /// Whether the index is on the target, and nothing else is there. What doesn't run is the restart policy's business only
    /// if the target is known to work.
    pub(crate) fn is_there(&self, proven: bool) -> bool {
        !self.other && if proven { self.target.is_some() } else { self.target_runs() }
    }
}

impl Rollout {
    /// Whether it is over.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        match self.phase {
            Phase::Completed => true,
            Phase::Rolling | Phase::Paused => false,
        }
    }

    /// It, unless it is over.
    #[must_use]
    pub fn under_way(&self) -> Option<&Self> {
        (!self.is_over()).then_some(self)
    }

    /// An index in replacement: one that waits for its new instance or for the end of its old one.
    #[must_use]
    pub fn in_replacement(&self, index: u32) -> Option<&Step> {
        self.steps.get(&index).filter(|step| match step.stage {
            Stage::Starting | Stage::Leaving => true,
            Stage::Resting(_) => false,
        })
    }

    /// Whether an index's new instance is still to prove itself: until then the rollout owns its restarts.
    #[must_use]
    pub fn is_starting(&self, index: u32) -> bool {
        self.steps.get(&index).is_some_and(|step| step.stage == Stage::Starting)
    }

    /// Whether it is starting the instance of a place.
    #[must_use]
    pub fn starts(&self, place: &Place) -> bool {
        self.target == place.definition_id && self.is_starting(place.index)
    }

    /// Where it stands, as SwarmKit calls it.
    #[must_use]
    pub const fn status(&self) -> &'static str {
        match (self.kind, self.phase) {
            (Kind::Update, Phase::Rolling) => "updating",
            (Kind::Update, Phase::Paused) => "paused",
            (Kind::Update, Phase::Completed) => "completed",
            (Kind::Rollback, Phase::Rolling) => "rollback_started",
            (Kind::Rollback, Phase::Paused) => "rollback_paused",
            (Kind::Rollback, Phase::Completed) => "rollback_completed",
        }
    }

    /// The moments at which time alone may make something follow.
    pub fn due<'a>(&self, healthy: Option<&DefinitionId>, see: impl Fn(u32) -> Seen<'a>) -> Vec<Timestamp> {
        let steps = self.steps.iter().filter_map(|(index, step)| self.step_due(step, see(*index), healthy));
        steps.chain(self.stalled.values().map(|stalled| stalled.retry_at)).collect()
    }

    fn step_due(&self, step: &Step, seen: Seen<'_>, healthy: Option<&DefinitionId>) -> Option<Timestamp> {
        match step.stage {
            Stage::Resting(until) => Some(until),
            Stage::Leaving => None,
            Stage::Starting => match seen.target.filter(|_| seen.target_runs()) {
                Some(lrp) => Some(lrp.since + self.policy.monitor()),
                None => {
                    let no_room = (step.order == UpdateOrder::StartFirst).then_some(step.begun_at + NO_ROOM);
                    let unplaced = seen.target.is_some_and(Actual::is_unplaced);
                    no_room.filter(|_| unplaced).into_iter().chain(self.deadline(step, healthy)).min()
                }
            },
        }
    }

    /// When an index is too late: never while the target is not known to work.
    fn deadline(&self, step: &Step, healthy: Option<&DefinitionId>) -> Option<Timestamp> {
        let proven = healthy == Some(&self.target);
        let deadline = Duration::from_millis(self.policy.index_deadline_ms);
        (proven && !deadline.is_zero()).then(|| step.begun_at + deadline)
    }

    fn retry_at(&self, index: u32, now: Timestamp) -> Timestamp {
        let times = self.stalled.get(&index).map_or(0, |stalled| stalled.times);
        now + (crash::WAIT * 2_u32.pow(times.min(16))).min(crash::LONGEST_WAIT)
    }
}

/// What follows from what is true: one event, or nothing. `see` shows an index, and `running` counts the indices below
/// the number of instances at which an instance is RUNNING and was not asked to stop, or ended for good
/// ([`Seen::serves`]).
pub fn next<'a>(
    rollout: &Rollout,
    context: Context<'_>,
    see: impl Fn(u32) -> Seen<'a>,
    running: impl Fn() -> u32,
) -> Option<Event> {
    if rollout.is_over() {
        return None;
    }
    let of_steps = rollout
        .steps
        .iter()
        .find_map(|(index, step)| next_of_step(rollout, *index, step, see(*index), context, &running));
    if of_steps.is_some() || rollout.phase == Phase::Paused {
        return of_steps;
    }
    if let Some(after) = rollout.policy.pause_after.filter(|after| rollout.replaced >= *after) {
        let reason = format!("paused after {after} replaced, as the policy says");
        return Some(Event::Paused { cause: Pause::Canary, reason });
    }
    next_turn(rollout, context, &see, &running).or_else(|| completed(rollout, context, &see))
}

fn next_of_step(
    rollout: &Rollout,
    index: u32,
    step: &Step,
    seen: Seen<'_>,
    context: Context<'_>,
    running: impl Fn() -> u32,
) -> Option<Event> {
    let now = context.now;
    match step.stage {
        Stage::Starting => {
            if let Some(lrp) = seen.target.filter(|_| seen.target_runs()) {
                let survived = lrp.since + rollout.policy.monitor() <= now;
                return survived.then_some(Event::TookOver { index });
            }
            if rollout.deadline(step, context.healthy()).is_some_and(|deadline| deadline <= now) {
                let retry_at = rollout.retry_at(index, now);
                let reason = format!("not RUNNING after {} s", rollout.policy.index_deadline_ms / 1000);
                return Some(Event::Stalled { index, retry_at, reason });
            }
            // Where the old one evacuates there is nothing to make room; and it may come back.
            let no_room = seen.target.is_some_and(Actual::is_unplaced)
                && seen.other
                && step.order == UpdateOrder::StartFirst
                && step.begun_at + NO_ROOM <= now;
            (no_room && may_stop(seen, context, running)).then_some(Event::FellBack { index })
        }
        Stage::Leaving if !seen.other => {
            let rests_until = now + Duration::from_millis(rollout.policy.delay_ms);
            Some(Event::Replaced { index, rests_until })
        }
        Stage::Leaving | Stage::Resting(_) => None,
    }
}

/// Whether the old instance of an index may go before the new one runs.
fn may_stop(seen: Seen<'_>, context: Context<'_>, running: impl Fn() -> u32) -> bool {
    !seen.other_runs || running() > context.min_running
}

/// The index that takes its turn: the lowest that had none, or else one that was given up and may be tried again.
fn next_turn<'a>(
    rollout: &Rollout,
    context: Context<'_>,
    see: impl Fn(u32) -> Seen<'a>,
    running: impl Fn() -> u32,
) -> Option<Event> {
    let proven = context.healthy() == Some(&rollout.target);
    let waits = |index: &u32| rollout.in_replacement(*index).is_none() && !see(*index).is_there(proven);
    let fresh = |index: &u32| waits(index) && !rollout.stalled.contains_key(index);
    // Nothing is known to work: there is nothing to protect where nothing runs.
    if context.healthy().is_none() {
        let idle = |index: &u32| fresh(index) && !see(*index).other_runs;
        let indices: Indices =
            context.indices().filter(|index| *index >= rollout.cursor).filter(idle).collect();
        if !indices.is_empty() {
            return Some(Event::Begun { indices });
        }
    }
    let rested = |step: &Step| matches!(step.stage, Stage::Resting(until) if until <= context.now);
    let busy = rollout.steps.values().filter(|step| !rested(step)).count();
    if busy
        >= usize::try_from(rollout.policy.indices_at_once(context.desired.instances)).unwrap_or(usize::MAX)
    {
        return None;
    }
    // Where too few run, an index at which nothing runs still has its turn.
    let starts_first = rollout.policy.order == UpdateOrder::StartFirst;
    let counted = OnceCell::new();
    let running = || *counted.get_or_init(&running);
    let may_begin = |index: &u32| starts_first || may_stop(see(*index), context, running);
    let (passed, ahead) = (|index: &u32| *index < rollout.cursor, |index: &u32| *index >= rollout.cursor);
    let mut in_turn = context.indices().filter(ahead).chain(context.indices().filter(passed));
    let index = in_turn.find(|index| fresh(index) && may_begin(index)).or_else(|| {
        let due = rollout.stalled.iter().filter(|(_, stalled)| stalled.retry_at <= context.now);
        due.filter(|(index, _)| waits(index) && may_begin(index))
            .min_by_key(|(_, stalled)| stalled.retry_at)
            .map(|(index, _)| *index)
    })?;
    Some(Event::Begun { indices: index.into() })
}

/// Whether every index is on the target, and nothing else is there.
fn completed<'a>(rollout: &Rollout, context: Context<'_>, see: impl Fn(u32) -> Seen<'a>) -> Option<Event> {
    let busy = rollout.steps.values().any(|step| match step.stage {
        Stage::Starting | Stage::Leaving => true,
        Stage::Resting(_) => false,
    });
    let proven = context.healthy() == Some(&rollout.target);
    let replaced = |index: u32| see(index).is_replaced(proven);
    (!busy && context.indices().all(replaced)).then_some(Event::Completed {})
}

/// What the failure of the new instance of an index means: what happens to the index and, if too many failed, why the
/// rollout can't go on.
#[must_use]
pub fn failed(rollout: &Rollout, index: u32, reason: &str, now: Timestamp) -> (Vec<Event>, Option<String>) {
    let mut events = vec![];
    let mut too_many = None;
    let mut failures = u32::try_from(rollout.failed.len()).unwrap_or(u32::MAX);
    if !rollout.failed.contains(&index) {
        events.push(Event::Failed { index, reason: reason.to_owned() });
        failures = failures.saturating_add(1);
    }
    let stalled = || {
        let reason = format!("failed: {reason}");
        Event::Stalled { index, retry_at: rollout.retry_at(index, now), reason }
    };
    match rollout.policy.failure_action {
        FailureAction::Hold => {}
        FailureAction::Continue => events.push(stalled()),
        FailureAction::Pause | FailureAction::Rollback => {
            events.push(stalled());
            if rollout.phase == Phase::Rolling
                && rollout.policy.max_failure_ratio.is_exceeded_by(failures, rollout.total)
            {
                let total = rollout.total;
                too_many = Some(format!("{failures} of {total} failed, the last at index {index}: {reason}"));
            }
        }
    }
    (events, too_many)
}

/// Folds what happened. Total: the log is never argued with.
#[must_use]
pub fn evolve(rollout: Option<Rollout>, event: &Event, at: Timestamp) -> Option<Rollout> {
    if let Event::Started { kind, target, rollback_to, total, policy, reason } = event {
        return Some(Rollout {
            number: rollout.map_or(0, |old| old.number).saturating_add(1),
            kind: *kind,
            target: target.clone(),
            rollback_to: rollback_to.clone(),
            rollback_definition: None,
            policy: (**policy).clone(),
            phase: Phase::Rolling,
            reason: reason.clone(),
            started_at: at,
            since: at,
            cause: None,
            total: *total,
            replaced: 0,
            cursor: 0,
            steps: BTreeMap::new(),
            stalled: BTreeMap::new(),
            failed: BTreeSet::new(),
        });
    }
    let mut rollout = rollout?;
    rollout.take(event, at);
    Some(rollout)
}

impl Rollout {
    fn take(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::Started { .. } => {}
            Event::Begun { indices } => {
                let rested = |step: &Step| matches!(step.stage, Stage::Resting(until) if until <= at);
                self.steps.retain(|_, step| !rested(step));
                let step = Step { begun_at: at, order: self.policy.order, stage: Stage::Starting };
                self.steps.extend(indices.iter().map(|index| (index, step)));
                let last = indices.ranges().last().map_or(0, |(_, last)| last.saturating_add(1));
                self.cursor = self.cursor.max(last);
            }
            Event::FellBack { index } => {
                if let Some(step) = self.steps.get_mut(index) {
                    step.order = UpdateOrder::StopFirst;
                }
            }
            Event::TookOver { index } => self.stage(*index, Stage::Leaving),
            Event::Replaced { index, rests_until } => {
                self.stage(*index, Stage::Resting(*rests_until));
                self.stalled.remove(index);
                self.replaced = self.replaced.saturating_add(1);
            }
            Event::Failed { index, .. } => {
                self.failed.insert(*index);
            }
            Event::Stalled { index, retry_at, .. } => {
                self.steps.remove(index);
                let times = self.stalled.get(index).map_or(0, |stalled| stalled.times).saturating_add(1);
                self.stalled.insert(*index, Stalled { retry_at: *retry_at, times });
            }
            Event::Paused { reason, .. } => self.enter(Phase::Paused, reason, at),
            Event::Resumed {} => {
                self.policy.pause_after = None;
                self.failed.clear();
                self.stalled.values_mut().for_each(|stalled| stalled.retry_at = at);
                self.enter(Phase::Rolling, "", at);
            }
            Event::Completed {} => {
                self.steps.clear();
                self.rollback_definition = None;
                self.enter(Phase::Completed, "", at);
            }
        }
    }

    fn stage(&mut self, index: u32, stage: Stage) {
        if let Some(step) = self.steps.get_mut(&index) {
            step.stage = stage;
        }
    }

    fn enter(&mut self, phase: Phase, reason: &str, at: Timestamp) {
        self.phase = phase;
        reason.clone_into(&mut self.reason);
        self.since = at;
    }

    /// Keeps the content of the definition that a rollback needs when the process loses it.
    pub(crate) fn keep_pruned(&mut self, desired: &Desired, pruned: &[DefinitionId]) {
        let needed = self.under_way().and_then(|rollout| rollout.rollback_to.as_ref());
        if let Some(definition) =
            needed.filter(|id| pruned.contains(id)).and_then(|id| desired.definition(id))
        {
            self.rollback_definition = Some(Arc::clone(definition));
        }
    }

    /// Other indices take part: what no longer does leaves it, and new ones come to it.
    pub(crate) fn resize(&mut self, before: &Indices, after: &Indices) {
        self.steps.retain(|index, _| after.contains(*index));
        self.stalled.retain(|index, _| after.contains(*index));
        self.failed.retain(|index| after.contains(*index));
        let last = after.ranges().last().map_or(0, |(_, last)| last.saturating_add(1));
        self.cursor = self.cursor.min(last);
        let new = after.iter().filter(|index| !before.contains(*index)).count();
        self.total = self.total.saturating_add(u32::try_from(new).unwrap_or(u32::MAX));
    }
}
