//! The rollout: one transition of a deployment to a definition, index by index (Updatable LRPs,
//! "`UpdateLRPDeployment`"; SwarmKit orchestrators, "Update supervisor";
//! docs/internals/model/definitions-and-rollouts.md, "Rollouts").
//!
//! ```text
//!             begin                 runs, survived its monitor          the old one is gone
//! (waits) ───────────▶ Starting ──────────────────────────────▶ Leaving ───────────────────▶ Resting ──▶ (replaced)
//!    ▲                    │ failed, or too late
//!    └───── retry ── (stalled)
//! ```
//! The diagram shows the stages of one index. An instance has survived its monitor when it has stayed RUNNING
//! for the policy's `monitor_ms`. An index takes its turn when its replacement starts.
//!
//! The rollout as a whole is `Rolling` until every index runs the target definition, and then `Completed`. A
//! client or too many failures make it `Paused`. A newer rollout may supersede the current one at any time.
//!
//! [`next`] returns the next event that follows from the state, or `None` if no event follows. The result
//! depends only on the log and the time. Every leader therefore computes the same events, and no event is
//! decided twice.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::actual::Actual;
use crate::crash;
use crate::desired::Desired;
use schemas::Timestamp;
use schemas::cause::Cause;
use schemas::definition::Definition;
use schemas::indices::Indices;
use schemas::key::Place;
use schemas::names::DefinitionId;
use schemas::policy::{FailureAction, UpdateOrder, UpdatePolicy};
use schemas::rollout::{Event, Kind, PauseReason, Phase, Stage, StalledIndex, Step};

/// Maximum time that an index waits for free resources for its new instance while the old instance still
/// runs. Afterwards the index falls back to stop-first, if enough other instances run.
pub const ROOM_TIMEOUT: Duration = Duration::from_secs(30);

/// One transition of a deployment to a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// Number of the rollout in the epoch of the process, from 1.
    pub number: u32,
    pub kind: Kind,
    /// Definition that every index has to run when the rollout is completed.
    pub target: DefinitionId,
    /// Definition to which a rollback returns: the definition that was healthy at the start of the rollout.
    /// `None` if no definition was healthy.
    pub rollback_to: Option<DefinitionId>,
    /// Content of the definition `rollback_to`, retained after the process has dropped that definition. A
    /// rollback adds it to the process again. `None` while the process still has the definition, and after
    /// the rollout.
    pub rollback_definition: Option<Arc<Definition>>,
    /// Policy as it was when the rollout started.
    pub policy: UpdatePolicy,
    pub phase: Phase,
    /// Reason of the current phase, as shown to users; empty if there is none.
    pub reason: String,
    pub started_at: Timestamp,
    /// Time at which the current phase started.
    pub since: Timestamp,
    /// Decision that started the rollout.
    pub cause: Option<Cause>,
    /// Number of indices to replace: the indices at the start of the rollout, and the indices added during
    /// it.
    pub total: u32,
    /// Number of indices that have been replaced.
    pub replaced: u32,
    /// Index after the highest index whose replacement has started.
    pub cursor: u32,
    /// Indices that are being replaced, with their progress.
    pub steps: BTreeMap<u32, Step>,
    /// Stalled indices, which the rollout has given up until their next attempt.
    pub stalled: BTreeMap<u32, StalledIndex>,
    /// Indices at which an instance failed.
    pub failed: BTreeSet<u32>,
}

/// Instances of an index, as a rollout distinguishes them.
#[derive(Clone, Copy, Debug, Default)]
pub struct IndexView<'a> {
    /// Instance of the target definition. `None` if the index has none.
    pub target: Option<&'a Actual>,
    /// `true` if the index has an instance of another definition, including one that is stopping.
    pub other: bool,
    /// `true` if an instance of another definition is RUNNING and was not asked to stop.
    pub other_runs: bool,
    /// `true` if an instance of another definition has ended, and its restart policy does not allow a
    /// restart.
    pub other_ended: bool,
}

/// State outside the rollout that its events depend on.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub now: Timestamp,
    /// Desired state. It contains the number of instances and the healthy definition.
    pub desired: &'a Desired,
    /// Minimum number of instances that the rollout has to leave RUNNING.
    pub min_running: u32,
}

impl<'a> Context<'a> {
    /// Returns the indices that the rollout replaces, in order.
    fn indices(self) -> impl Iterator<Item = u32> + Clone + use<'a> {
        self.desired.rolling_indices()
    }

    /// Returns the newest definition that proved healthy.
    const fn healthy(self) -> Option<&'a DefinitionId> {
        self.desired.healthy_definition_id.as_ref()
    }
}

impl<'a> IndexView<'a> {
    /// Returns the view of an index with these instances.
    pub fn from_instances(
        target: &DefinitionId,
        there: impl Iterator<Item = (&'a Place, &'a Actual)>,
    ) -> Self {
        let mut seen = Self::default();
        for (place, lrp) in there {
            if place.definition_id == *target {
                seen.target = Some(lrp);
            } else {
                seen.other = true;
                seen.other_runs |= lrp.keeps_running();
                seen.other_ended |= lrp.is_kept_down();
            }
        }
        seen
    }

    /// Returns `true` if the new instance is RUNNING and was not asked to stop.
    #[must_use]
    pub fn target_runs(&self) -> bool {
        self.target.is_some_and(Actual::keeps_running)
    }

    /// Returns `true` if the index counts as running. One of its instances runs, or has ended and is not
    /// restarted because of its restart policy.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.target_runs()
            || self.other_runs
            || self.other_ended
            || self.target.is_some_and(Actual::is_kept_down)
    }

    /// Returns `true` if the index has no instance of another definition, and its instance of the target
    /// runs. If the target is healthy (`proven`), an instance that the restart policy declined to restart is
    /// sufficient.
    fn is_replaced(&self, proven: bool) -> bool {
        let declined = self.target.is_some_and(|lrp| lrp.no_restart_reason().is_some());
        !self.other && (self.target_runs() || proven && declined)
    }

    /// Returns `true` if the index has no instance of another definition, and its instance of the target
    /// runs. If the target is healthy (`proven`), an instance of the target in any state is sufficient,
    /// because only the restart policy decides about its restart.
    pub(crate) fn is_on_target(&self, proven: bool) -> bool {
        !self.other && if proven { self.target.is_some() } else { self.target_runs() }
    }
}

impl Rollout {
    /// Returns `true` if the rollout is completed.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        match self.phase {
            Phase::Completed => true,
            Phase::Rolling | Phase::Paused => false,
        }
    }

    /// Returns the rollout, or `None` if it is completed.
    #[must_use]
    pub fn active(&self) -> Option<&Self> {
        (!self.is_over()).then_some(self)
    }

    /// Returns the progress of an index that waits for its new instance to become healthy, or for its old
    /// instance to end. `None` for any other index.
    #[must_use]
    pub fn replacement_step(&self, index: u32) -> Option<&Step> {
        self.steps.get(&index).filter(|step| match step.stage {
            Stage::Starting | Stage::Leaving => true,
            Stage::Resting(_) => false,
        })
    }

    /// Returns `true` if the index waits for its new instance to survive its monitor. During that wait the
    /// rollout controls the restarts of the instance.
    #[must_use]
    pub fn is_starting(&self, index: u32) -> bool {
        self.steps.get(&index).is_some_and(|step| step.stage == Stage::Starting)
    }

    /// Returns `true` if the rollout is starting the instance of this slot.
    #[must_use]
    pub fn starts(&self, place: &Place) -> bool {
        self.target == place.definition_id && self.is_starting(place.index)
    }

    /// Returns the status in SwarmKit's terms.
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

    /// Returns the times at which the rollout may advance without any other change.
    pub fn due<'a>(
        &self,
        healthy: Option<&DefinitionId>,
        see: impl Fn(u32) -> IndexView<'a>,
    ) -> Vec<Timestamp> {
        let steps = self.steps.iter().filter_map(|(index, step)| self.step_due(step, see(*index), healthy));
        steps.chain(self.stalled.values().map(|stalled| stalled.retry_at)).collect()
    }

    fn step_due(
        &self,
        step: &Step,
        seen: IndexView<'_>,
        healthy: Option<&DefinitionId>,
    ) -> Option<Timestamp> {
        match step.stage {
            Stage::Resting(until) => Some(until),
            Stage::Leaving => None,
            Stage::Starting => match seen.target.filter(|_| seen.target_runs()) {
                Some(lrp) => Some(lrp.since + self.policy.monitor()),
                None => {
                    let no_room =
                        (step.order == UpdateOrder::StartFirst).then_some(step.started_at + ROOM_TIMEOUT);
                    let unplaced = seen.target.is_some_and(Actual::has_placement_error);
                    no_room.filter(|_| unplaced).into_iter().chain(self.deadline(step, healthy)).min()
                }
            },
        }
    }

    /// Returns the time at which an index stalls because its replacement takes too long. `None` if the target
    /// is not healthy yet, or if the policy sets no deadline.
    fn deadline(&self, step: &Step, healthy: Option<&DefinitionId>) -> Option<Timestamp> {
        let proven = healthy == Some(&self.target);
        let deadline = Duration::from_millis(self.policy.index_deadline_ms);
        (proven && !deadline.is_zero()).then(|| step.started_at + deadline)
    }

    fn retry_at(&self, index: u32, now: Timestamp) -> Timestamp {
        let times = self.stalled.get(&index).map_or(0, |stalled| stalled.times);
        now + (crash::BASE_DELAY * 2_u32.pow(times.min(16))).min(crash::MAX_DELAY)
    }
}

/// Returns the next event that follows from the state, or `None` if no event follows.
///
/// `see` returns the instances of an index. `running` returns the number of desired indices that count as
/// running ([`IndexView::serves`]).
pub fn next<'a>(
    rollout: &Rollout,
    context: Context<'_>,
    see: impl Fn(u32) -> IndexView<'a>,
    running: impl Fn() -> u32,
) -> Option<Event> {
    if rollout.is_over() {
        return None;
    }
    let of_steps = rollout
        .steps
        .iter()
        .find_map(|(index, step)| next_step_event(rollout, *index, step, see(*index), context, &running));
    if of_steps.is_some() || rollout.phase == Phase::Paused {
        return of_steps;
    }
    if let Some(after) = rollout.policy.pause_after.filter(|after| rollout.replaced >= *after) {
        let reason = format!("paused after {after} replaced, as set by pause_after");
        return Some(Event::Paused { cause: PauseReason::Canary, reason });
    }
    next_begun(rollout, context, &see, &running).or_else(|| completed(rollout, context, &see))
}

fn next_step_event(
    rollout: &Rollout,
    index: u32,
    step: &Step,
    seen: IndexView<'_>,
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
            // If the old instance is evacuating, `seen.other` is `false`. A stop of the evacuating instance
            // would free no resources, and the instance may return from the evacuation.
            let no_room = seen.target.is_some_and(Actual::has_placement_error)
                && seen.other
                && step.order == UpdateOrder::StartFirst
                && step.started_at + ROOM_TIMEOUT <= now;
            (no_room && may_stop(seen, context, running)).then_some(Event::FellBack { index })
        }
        Stage::Leaving if !seen.other => {
            let delay_until = now + Duration::from_millis(rollout.policy.delay_ms);
            Some(Event::Replaced { index, delay_until })
        }
        Stage::Leaving | Stage::Resting(_) => None,
    }
}

/// Returns `true` if the old instance of an index may stop before the new instance runs.
fn may_stop(seen: IndexView<'_>, context: Context<'_>, running: impl Fn() -> u32) -> bool {
    !seen.other_runs || running() > context.min_running
}

/// Returns the event that starts the replacement of the next index. Waiting indices that are not stalled come
/// first, beginning at the cursor. After them come stalled indices whose next attempt is due.
fn next_begun<'a>(
    rollout: &Rollout,
    context: Context<'_>,
    see: impl Fn(u32) -> IndexView<'a>,
    running: impl Fn() -> u32,
) -> Option<Event> {
    let proven = context.healthy() == Some(&rollout.target);
    let waits = |index: &u32| rollout.replacement_step(*index).is_none() && !see(*index).is_on_target(proven);
    let fresh = |index: &u32| waits(index) && !rollout.stalled.contains_key(index);
    // If no definition is healthy, the replacement of indices without a running instance starts at once,
    // because these indices have no service to protect.
    if context.healthy().is_none() {
        let idle = |index: &u32| fresh(index) && !see(*index).other_runs;
        let indices: Indices =
            context.indices().filter(|index| *index >= rollout.cursor).filter(idle).collect();
        if !indices.is_empty() {
            return Some(Event::IndicesStarted { indices });
        }
    }
    let rested = |step: &Step| matches!(step.stage, Stage::Resting(until) if until <= context.now);
    let busy = rollout.steps.values().filter(|step| !rested(step)).count();
    if busy
        >= usize::try_from(rollout.policy.max_parallel_indices(context.desired.instances))
            .unwrap_or(usize::MAX)
    {
        return None;
    }
    // The replacement of an index without a running instance starts even if too few other instances run.
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
    Some(Event::IndicesStarted { indices: index.into() })
}

/// Returns the final event if every index runs only the target definition.
fn completed<'a>(
    rollout: &Rollout,
    context: Context<'_>,
    see: impl Fn(u32) -> IndexView<'a>,
) -> Option<Event> {
    let busy = rollout.steps.values().any(|step| match step.stage {
        Stage::Starting | Stage::Leaving => true,
        Stage::Resting(_) => false,
    });
    let proven = context.healthy() == Some(&rollout.target);
    let replaced = |index: u32| see(index).is_replaced(proven);
    (!busy && context.indices().all(replaced)).then_some(Event::Completed {})
}

/// Returns the consequences of the failure of a new instance: the events for its index. If too many indices
/// failed, the result contains the reason that the rollout cannot continue.
#[must_use]
pub fn decide_failure(
    rollout: &Rollout,
    index: u32,
    reason: &str,
    now: Timestamp,
) -> (Vec<Event>, Option<String>) {
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

/// Applies an event to the rollout. Never fails, because events in the log are facts.
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
    rollout.apply(event, at);
    Some(rollout)
}

impl Rollout {
    fn apply(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::Started { .. } => {}
            Event::IndicesStarted { indices } => {
                let rested = |step: &Step| matches!(step.stage, Stage::Resting(until) if until <= at);
                self.steps.retain(|_, step| !rested(step));
                let step = Step { started_at: at, order: self.policy.order, stage: Stage::Starting };
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
            Event::Replaced { index, delay_until } => {
                self.stage(*index, Stage::Resting(*delay_until));
                self.stalled.remove(index);
                self.replaced = self.replaced.saturating_add(1);
            }
            Event::Failed { index, .. } => {
                self.failed.insert(*index);
            }
            Event::Stalled { index, retry_at, .. } => {
                self.steps.remove(index);
                let times = self.stalled.get(index).map_or(0, |stalled| stalled.times).saturating_add(1);
                self.stalled.insert(*index, StalledIndex { retry_at: *retry_at, times });
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

    /// If the process drops the definition that a rollback needs, keeps the content of that definition.
    pub(crate) fn keep_pruned(&mut self, desired: &Desired, pruned: &[DefinitionId]) {
        let needed = self.active().and_then(|rollout| rollout.rollback_to.as_ref());
        if let Some(definition) =
            needed.filter(|id| pruned.contains(id)).and_then(|id| desired.definition(id))
        {
            self.rollback_definition = Some(Arc::clone(definition));
        }
    }

    /// Adapts the rollout to another set of indices. Drops the removed indices, and adds the new indices to
    /// the total.
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
