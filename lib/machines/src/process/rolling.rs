//! Commands of clients about definitions and rollouts, and the events by which a rollout reacts to changes of
//! its process (Updatable LRPs, "`LRPDeployment`"; docs/internals/model/definitions-and-rollouts.md,
//! "Rollouts").

use std::collections::BTreeSet;
use std::sync::Arc;

use super::draft::Draft;
use crate::actual::Actual;
use crate::desired::Desired;
use crate::rollout::{IndexView, Rollout};
use schemas::definition::{Definition, DesiredLrpUpdate};
use schemas::entry::Event;
use schemas::evaluation::Trigger;
use schemas::key::Place;
use schemas::names::DefinitionId;
use schemas::policy::{FailureAction, UpdatePolicy};
use schemas::process::{Purpose, RolloutControl};
use schemas::refusal::{BadField, Code, Refusal};
use schemas::rollout::{self, Kind, PauseReason, Phase};
use schemas::rules::ONE_PER_CELL;
use schemas::{desired, limits};

impl Draft<'_> {
    pub(super) fn deploy(
        &mut self,
        update: &DesiredLrpUpdate,
        id: &DefinitionId,
        definition: &Arc<Definition>,
    ) -> Result<(), Refusal> {
        self.update(update)?;
        let desired = self.deployment()?;
        // The content of the active definition is the same. Nothing is rolled out, even if the ids of the two
        // definitions differ.
        if desired.definition(&desired.active_definition_id) == Some(definition) {
            return Ok(());
        }
        match desired.definition(id) {
            Some(known) if known == definition => {}
            Some(_) => {
                let why = format!("definition {id} already exists with other content: use another id");
                return Err(Refusal::new(Code::ResourceExists, why));
            }
            None => {
                check_global(desired, definition)?;
                self.add_definition(id, definition)?;
            }
        }
        self.roll_out(Kind::Update, id, String::new());
        Ok(())
    }

    pub(super) fn activate(&mut self, id: &DefinitionId) -> Result<(), Refusal> {
        let desired = self.deployment()?;
        if desired.definition(id).is_none() {
            let known: Vec<_> = desired.definitions.iter().map(|(id, _)| id.as_str()).collect();
            let why = format!("definition {id} does not exist: the process has {}", known.join(", "));
            return Err(Refusal::new(Code::ResourceNotFound, why));
        }
        if desired.active_definition_id != *id {
            self.roll_out(Kind::Update, id, String::new());
        }
        Ok(())
    }

    /// Replaces every instance by an instance of a copy of the active definition. The copy has a new id,
    /// because a rollout needs a definition id that differs from the active one.
    pub(super) fn restart_all(&mut self, purpose: Purpose) -> Result<(), Refusal> {
        let desired = self.deployment()?;
        let active = &desired.active_definition_id;
        let Some(definition) = desired.definition(active).cloned() else { return Ok(()) };
        let version = self.process.map_or(0, |process| process.version);
        let base: String = active.as_str().chars().take(limits::ID_BYTES - RESTART_SUFFIX_BYTES).collect();
        let base = original_id(&base);
        let Ok(id) = DefinitionId::new(&format!("{base}-{}-{version}", purpose.as_str())) else {
            return Ok(());
        };
        self.add_definition(&id, &definition)?;
        self.roll_out(Kind::Update, &id, purpose.rollout_reason().to_owned());
        Ok(())
    }

    pub(super) fn steer(&mut self, steer: RolloutControl) -> Result<(), Refusal> {
        self.deployment()?;
        let Some(rollout) = self.rollout().and_then(Rollout::active) else {
            return Err(Refusal::new(Code::InvalidStateTransition, "no rollout is under way"));
        };
        match (steer, rollout.phase) {
            (RolloutControl::Pause, Phase::Paused) | (RolloutControl::Resume, Phase::Rolling) => {}
            (RolloutControl::Pause, Phase::Rolling | Phase::Completed) => {
                let (cause, reason) = (PauseReason::Requested, "paused by a client".to_owned());
                self.record_rollout(rollout::Event::Paused { cause, reason });
            }
            (RolloutControl::Resume, Phase::Paused | Phase::Completed) => {
                self.record_rollout(rollout::Event::Resumed {});
            }
            (RolloutControl::RollBack, _) => return self.request_rollback(),
        }
        Ok(())
    }

    fn request_rollback(&mut self) -> Result<(), Refusal> {
        let Some(rollout) = self.rollout() else { return Ok(()) };
        let refuse = |why: &str| Err(Refusal::new(Code::InvalidStateTransition, why));
        if rollout.kind == Kind::Rollback {
            return refuse("a rollback is already under way");
        }
        let Some(to) = rollout.rollback_to.clone() else {
            return refuse("no definition was healthy when the rollout started: nothing to roll back to");
        };
        self.roll_back(&to, "rolled back by a client".to_owned());
        Ok(())
    }

    fn roll_back(&mut self, to: &DefinitionId, reason: String) {
        if let Some(definition) = self.rollout().and_then(|rollout| rollout.rollback_definition.clone()) {
            self.record_desired(desired::Event::DefinitionAdded { definition_id: to.clone(), definition });
        }
        self.roll_out(Kind::Rollback, to, reason);
        self.set_healthy(to);
    }

    fn deployment(&self) -> Result<&Desired, Refusal> {
        self.desired().ok_or_else(|| Refusal::not_found("the process"))
    }

    fn add_definition(&mut self, id: &DefinitionId, definition: &Arc<Definition>) -> Result<(), Refusal> {
        // A rollback adds the definition that the rollout has kept. The check therefore counts this
        // definition, too.
        let kept = self.rollout().is_some_and(|rollout| rollout.rollback_definition.is_some());
        let count = self.desired().map_or(0, |desired| desired.definitions.len()) + usize::from(kept);
        if count >= limits::DEFINITIONS {
            let why = format!(
                "the process has {count} definitions, at most {} are allowed: unused ones are removed \
                 within 30 s",
                limits::DEFINITIONS
            );
            return Err(Refusal::new(Code::ResourceConflict, why));
        }
        let (definition_id, definition) = (id.clone(), Arc::clone(definition));
        self.record_desired(desired::Event::DefinitionAdded { definition_id, definition });
        Ok(())
    }

    /// Starts a rollout, which supersedes the current rollout. Instances of the superseded target that do not
    /// run yet are stopped (Updatable LRPs, "New LRP definition during existing rolling deploy").
    fn roll_out(&mut self, kind: Kind, target: &DefinitionId, reason: String) {
        let Some(desired) = self.desired() else { return };
        let policy = kind.policy(&desired.policies).clone();
        let rollback_to = desired.healthy_definition_id.clone().filter(|id| id != target);
        let is_there =
            |index: &u32| IndexView::from_instances(target, self.actuals_at(*index)).is_on_target(false);
        let to_replace = desired.rolling_indices().filter(|index| !is_there(index)).count();
        let total = u32::try_from(to_replace).unwrap_or(u32::MAX);
        self.record_desired(desired::Event::Activated { definition_id: target.clone() });
        self.follow_cells(Trigger::Rollout);
        let (target, policy) = (target.clone(), Box::new(policy));
        self.record_rollout(rollout::Event::Started { kind, target, rollback_to, total, policy, reason });
        self.advance_rollout();
        self.settle_all(Trigger::Rollout);
    }

    /// Records that a new instance failed during its monitoring time, so it never counted as healthy.
    pub(super) fn record_instance_failure(&mut self, place: &Place, reason: &str) {
        let Some(rollout) = self.rollout() else { return };
        if !rollout.starts(place) {
            return;
        }
        let (events, too_many) =
            crate::rollout::decide_failure(rollout, place.index, reason, self.context.now);
        let (action, kind) = (rollout.policy.failure_action, rollout.kind);
        let to = rollout.rollback_to.clone();
        events.into_iter().for_each(|event| self.record_rollout(event));
        let Some(why) = too_many else { return };
        match (action, kind, to) {
            (FailureAction::Rollback, Kind::Update, Some(to)) => {
                self.mark_given_up(None, place.definition_id.clone());
                self.roll_back(&to, why);
            }
            (FailureAction::Rollback, Kind::Update, None) => {
                let reason = format!("{why}; no definition was healthy before: nothing to roll back to");
                self.record_rollout(rollout::Event::Paused { cause: PauseReason::Failures, reason });
            }
            (FailureAction::Rollback, Kind::Rollback, _)
            | (FailureAction::Hold | FailureAction::Pause | FailureAction::Continue, ..) => {
                self.record_rollout(rollout::Event::Paused { cause: PauseReason::Failures, reason: why });
            }
        }
    }

    /// Adds the events that follow from the decision so far, until no further event follows. Each event
    /// advances an index or the rollout, so the loop ends.
    pub(super) fn advance_rollout(&mut self) {
        self.settle_changed();
        self.update_healthy();
        while let Some(event) = self.next_rollout_event() {
            self.record_rollout(event);
        }
    }

    /// During a rollout, brings the indices that this decision changed to their desired state. A change of
    /// one instance may affect the second instance at the same index.
    fn settle_changed(&mut self) {
        if self.rollout().and_then(Rollout::active).is_some() {
            let decided: Vec<u32> = self.changed_indices().collect();
            self.settle_each(&decided, Trigger::Rollout);
        }
    }

    fn next_rollout_event(&self) -> Option<rollout::Event> {
        let (rollout, desired) = (self.rollout()?, self.desired()?);
        next(rollout, desired, self.context.now, |index| {
            IndexView::from_instances(&rollout.target, self.actuals_at(index))
        })
    }

    /// Marks the active definition as healthy once one of its instances has survived its monitor, that is,
    /// its monitoring time (Updatable LRPs, "`CreateLRPDeployment`").
    fn update_healthy(&mut self) {
        let Some(desired) = self.desired() else { return };
        let active = desired.active_definition_id.clone();
        if desired.healthy_definition_id.as_ref() == Some(&active) {
            return;
        }
        let monitor = self.monitor_period(desired);
        let now = self.context.now;
        let survived = |lrp: &Actual| lrp.keeps_running() && lrp.since + monitor <= now;
        // Check only the changed indices, unless the definition is new or only time has passed.
        let mut indices: BTreeSet<u32> = self.changed_indices().collect();
        let before = self.process.and_then(|process| process.desired.as_ref());
        let is_new = before.is_none_or(|before| before.active_definition_id != active);
        if is_new || self.events.is_empty() {
            indices.extend(self.slots().map(|slot| slot.place.index));
        }
        let proven = indices
            .into_iter()
            .filter(|index| desired.desires_index(*index))
            .any(|index| self.actual(&Place::new(index, active.clone())).is_some_and(survived));
        if proven {
            self.set_healthy(&active);
        }
    }

    fn set_healthy(&mut self, id: &DefinitionId) {
        let healthy = self.desired().and_then(|desired| desired.healthy_definition_id.as_ref());
        if healthy != Some(id) {
            self.record_desired(desired::Event::HealthyChanged { definition_id: id.clone() });
            self.settle_all(Trigger::Rollout);
        }
    }

    /// Adds an event of the rollout to the draft, and brings the affected indices to their desired state.
    pub(super) fn record_rollout(&mut self, event: rollout::Event) {
        if let (rollout::Event::TookOver { .. }, Some(rollout)) = (&event, self.rollout()) {
            let target = rollout.target.clone();
            self.set_healthy(&target);
        }
        if let (rollout::Event::Stalled { index, .. }, Some(rollout)) = (&event, self.rollout()) {
            let (index, target) = (*index, rollout.target.clone());
            self.mark_given_up(Some(index), target);
        }
        self.fold_rollout(&event);
        let moved: Vec<u32> = match &event {
            rollout::Event::IndicesStarted { indices } => indices.iter().collect(),
            rollout::Event::FellBack { index }
            | rollout::Event::TookOver { index }
            | rollout::Event::Stalled { index, .. } => vec![*index],
            rollout::Event::Started { .. }
            | rollout::Event::Replaced { .. }
            | rollout::Event::Failed { .. }
            | rollout::Event::Paused { .. }
            | rollout::Event::Resumed {}
            | rollout::Event::Completed {} => vec![],
        };
        self.events.push(Event::Rollout(event));
        self.settle_each(&moved, Trigger::Rollout);
    }

    /// Drops each definition that is neither active nor healthy and has no instance (Updatable LRPs,
    /// "`UpdateLRPDeployment`"). If a rollback needs a dropped definition, the current rollout keeps the
    /// content of this definition.
    pub(super) fn prune(&mut self) {
        let Some(desired) = self.desired() else { return };
        let runs = |id: &DefinitionId| self.slots().any(|slot| slot.place.definition_id == *id);
        let needed = |id: &DefinitionId| {
            *id == desired.active_definition_id
                || desired.healthy_definition_id.as_ref() == Some(id)
                || runs(id)
        };
        let ids = desired.definitions.iter().map(|(id, _)| id);
        let definition_ids: Vec<_> = ids.filter(|id| !needed(id)).cloned().collect();
        if !definition_ids.is_empty() {
            self.record_desired(desired::Event::Pruned { definition_ids });
        }
    }
}

/// Returns the original id of a definition, without a suffix that [`Draft::restart_all`] added.
fn original_id(id: &str) -> &str {
    let made = |purpose: Purpose| {
        let (base, number) = id.rsplit_once(&format!("-{}-", purpose.as_str()))?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then_some(base)
    };
    made(Purpose::Restart).or_else(|| made(Purpose::Rebalance)).unwrap_or(id)
}

/// Maximum length of the suffix that [`Draft::restart_all`] adds to an id.
const RESTART_SUFFIX_BYTES: usize = 32;

/// Returns the next event that follows from a rollout at this time. `None` if no event follows.
pub(super) fn next<'a>(
    rollout: &Rollout,
    desired: &Desired,
    now: schemas::Timestamp,
    see: impl Fn(u32) -> IndexView<'a>,
) -> Option<rollout::Event> {
    let running = || {
        let serves = |index: &u32| see(*index).serves();
        u32::try_from(desired.indices().filter(serves).count()).unwrap_or(u32::MAX)
    };
    let policy: &UpdatePolicy = &rollout.policy;
    let context = crate::rollout::Context {
        now,
        desired,
        min_running: desired.policies.required_running(policy, desired.instances),
    };
    crate::rollout::next(rollout, context, &see, running)
}

/// Returns an error if a definition of a global process has rules that compare several instances. The command
/// that creates a process refuses such rules, too.
fn check_global(desired: &Desired, definition: &Definition) -> Result<(), Refusal> {
    let rules = definition.constraint.rules.as_ref().filter(|_| desired.is_global());
    let bad: Vec<BadField> = rules.map_or(vec![], |rules| rules.multi_instance_rules().collect());
    if bad.is_empty() {
        return Ok(());
    }
    let told = |one: BadField| BadField {
        field: format!("definition.{}", one.field),
        problem: format!("{}: {ONE_PER_CELL}", one.problem),
    };
    Err(Refusal::invalid(bad.into_iter().map(told).collect()))
}
