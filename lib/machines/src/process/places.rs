//! Desired slots of a process: one slot at each desired index, and two slots at an index that a rollout is
//! replacing. Creation, scaling, convergence, and the comparison of desired and actual state use this module.

use std::cmp::Reverse;

use crate::actual::{Actual, State};
use crate::desired::Desired;
use crate::rollout::Rollout;
use schemas::Timestamp;
use schemas::key::Place;
use schemas::names::DefinitionId;
use schemas::policy::UpdateOrder;
use schemas::rollout::Stage;

/// Index of a deployment, with its existing instances.
#[derive(Clone, Copy)]
pub(super) struct Index<'a, There> {
    pub(super) desired: &'a Desired,
    pub(super) rollout: Option<&'a Rollout>,
    pub(super) index: u32,
    /// Instances at the index, each with its slot.
    pub(super) instances: There,
    /// `true` if the index has an evacuating instance.
    pub(super) evacuates: bool,
}

/// Definitions that are desired at an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DesiredDefinitions<'a> {
    /// Definition of the instance that runs or restarts at the index.
    pub(super) current: Option<&'a DefinitionId>,
    /// Definition that a rollout is bringing to the index.
    pub(super) target: Option<&'a DefinitionId>,
    /// `true` if the target starts beside the existing instance. `false` if the target waits until the
    /// existing instance has ended.
    pub(super) starts_first: bool,
}

impl<'a> DesiredDefinitions<'a> {
    pub(super) fn has(&self, id: &DefinitionId) -> bool {
        self.current == Some(id) || self.target == Some(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'a DefinitionId> + use<'a> {
        self.current.into_iter().chain(self.target)
    }
}

impl<'a, There: Iterator<Item = (&'a Place, &'a Actual)> + Clone> Index<'a, There> {
    /// Returns the desired definitions. Both are `None` if no instance is desired at the index.
    pub(super) fn wanted(self) -> DesiredDefinitions<'a> {
        if !self.desired.desires_index(self.index) {
            return DesiredDefinitions::default();
        }
        if self.desired.is_cordoned(self.index) {
            return DesiredDefinitions {
                current: self.cordoned_definition(),
                ..DesiredDefinitions::default()
            };
        }
        let step = self.rollout.and_then(|rollout| Some((rollout, rollout.replacement_step(self.index)?)));
        let Some((rollout, step)) = step else {
            return DesiredDefinitions {
                current: Some(self.retained_definition(None)),
                ..DesiredDefinitions::default()
            };
        };
        let target = Some(&rollout.target);
        match (step.stage, step.order) {
            (Stage::Leaving | Stage::Resting(_), _) | (Stage::Starting, UpdateOrder::StopFirst) => {
                DesiredDefinitions { current: None, target, starts_first: false }
            }
            (Stage::Starting, UpdateOrder::StartFirst) => self.both(&rollout.target),
        }
    }

    /// Returns the desired definitions of an index with a start-first rollout. If one instance of the index
    /// evacuates while another instance runs, the index has two containers already. In this case, the target
    /// waits.
    fn both(self, target: &'a DefinitionId) -> DesiredDefinitions<'a> {
        let holds =
            |(place, lrp): (&Place, &Actual)| place.definition_id == *target && lrp.holder().is_some();
        let there = self.instances.clone().any(holds);
        let default_value = self.definition_beside(target);
        let waits = self.evacuates && default_value.is_some() && !there;
        DesiredDefinitions {
            current: default_value,
            target: Some(target).filter(|_| !waits),
            starts_first: true,
        }
    }

    /// Returns the definition that stays on a cordoned cell. `None` if the cell has no instance of the
    /// process. No new instance starts on a cordoned cell.
    fn cordoned_definition(&self) -> Option<&'a DefinitionId> {
        let active = &self.desired.active_definition_id;
        let known = self
            .instances
            .clone()
            .filter(|(place, _)| self.desired.definition(&place.definition_id).is_some());
        let best = known.map(|(place, lrp)| (rank(lrp), preference(place, lrp, active))).max();
        best.map(|(_, (.., id))| id)
    }

    fn is_rolling(&self) -> bool {
        self.rollout.and_then(Rollout::active).is_some()
    }

    /// Returns `true` if an instance may keep running this definition. During a rollout, instances may keep
    /// any definition of the process. Without a rollout, instances may keep only the active definition.
    fn may_stay(&self, id: &DefinitionId) -> bool {
        self.desired.active_definition_id == *id || self.is_rolling() && self.desired.definition(id).is_some()
    }

    /// Returns the definition that starts at an empty index. During a rollout, the index starts with the
    /// healthy definition, if there is one (Updatable LRPs, "`UpdateLRPDeployment`"). Otherwise the index
    /// starts with the active definition.
    fn restart_definition(&self) -> &'a DefinitionId {
        let healthy = self.desired.healthy_definition_id.as_ref();
        healthy.filter(|_| self.is_rolling()).unwrap_or(&self.desired.active_definition_id)
    }

    /// Returns the definition of an index that is not being replaced. Instances of the definition `but` are
    /// ignored. If an instance runs or is being started, the index keeps the definition of that instance.
    /// Otherwise the index starts with [`Self::restart_definition`].
    fn retained_definition(&self, but: Option<&DefinitionId>) -> &'a DefinitionId {
        let restarts_with = self.restart_definition();
        let kept = self.instances.clone().filter(|(place, _)| Some(&place.definition_id) != but).filter_map(
            |(place, lrp)| {
                let rank = rank(lrp).filter(|_| self.may_stay(&place.definition_id))?;
                Some((rank, preference(place, lrp, restarts_with)))
            },
        );
        let best = kept.max();
        best.map_or(restarts_with, |(_, (.., id))| id)
    }

    /// Returns the definition that runs beside the target of a rollout. While the target is not healthy, an
    /// index without a running instance of this other definition restarts one. An index with an evacuating
    /// instance does not restart one, because an index never has three instances. The target starts there
    /// instead.
    fn definition_beside(&self, target: &DefinitionId) -> Option<&'a DefinitionId> {
        let unproven = self.restart_definition() != target;
        if unproven && !self.evacuates {
            return Some(self.retained_definition(Some(target)));
        }
        let running = self.instances.clone().filter(|(place, lrp)| {
            place.definition_id != *target
                && rank(lrp) == Some(RUNNING_RANK)
                && self.may_stay(&place.definition_id)
        });
        let restarts_with = self.restart_definition();
        running.map(|(place, lrp)| preference(place, lrp, restarts_with)).max().map(|(.., id)| id)
    }
}

/// Returns the sort key of an instance that may stay. The instance with the greatest key stays. Instances of
/// the definition `restarts_with` have greater keys than all other instances. Between two instances of the
/// same rank in this order, the older instance has the greater key. Therefore an instance whose lost cell
/// comes back never displaces an instance that already replaced it.
fn preference<'a>(
    place: &'a Place,
    lrp: &Actual,
    restarts_with: &DefinitionId,
) -> (bool, Reverse<Timestamp>, &'a DefinitionId) {
    let id = &place.definition_id;
    (id == restarts_with, Reverse(lrp.since), id)
}

const RUNNING_RANK: u8 = 1;

/// Returns the rank of an instance that may stay: RUNNING ranks above CLAIMED. `None` if the instance is
/// stopping or is not on a cell.
fn rank(lrp: &Actual) -> Option<u8> {
    match lrp.state {
        State::Running { stopping: false, .. } => Some(RUNNING_RANK),
        State::Claimed { stopping: false, .. } => Some(0),
        State::Running { stopping: true, .. }
        | State::Claimed { stopping: true, .. }
        | State::Unclaimed { .. }
        | State::Crashed { .. } => None,
    }
}
