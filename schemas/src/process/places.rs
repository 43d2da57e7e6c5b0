//! Desired slots of a process: one at each desired index, and two while a rollout has the index in
//! replacement. Creation, scaling, the delta between desired and actual, and convergence all use this module.

use std::cmp::Reverse;

use crate::Timestamp;
use crate::actual::{Actual, State};
use crate::desired::Desired;
use crate::key::Place;
use crate::names::DefinitionId;
use crate::policy::UpdateOrder;
use crate::rollout::{Rollout, Stage};

/// Index of a deployment, with the instances that exist there.
#[derive(Clone, Copy)]
pub(super) struct Index<'a, There> {
    pub(super) desired: &'a Desired,
    pub(super) rollout: Option<&'a Rollout>,
    pub(super) index: u32,
    /// Instances at the index, each with its slot.
    pub(super) there: There,
    /// `true` if the index has an evacuating instance.
    pub(super) evacuates: bool,
}

/// Definitions that are desired at an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted<'a> {
    /// Definition that runs there, or restarts there.
    pub(super) usual: Option<&'a DefinitionId>,
    /// Definition that a rollout brings.
    pub(super) target: Option<&'a DefinitionId>,
    /// `true` if the target starts beside the existing instance. Otherwise it waits until that instance has
    /// ended.
    pub(super) beside: bool,
}

impl<'a> Wanted<'a> {
    pub(super) fn has(&self, id: &DefinitionId) -> bool {
        self.usual == Some(id) || self.target == Some(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'a DefinitionId> + use<'a> {
        self.usual.into_iter().chain(self.target)
    }
}

impl<'a, There: Iterator<Item = (&'a Place, &'a Actual)> + Clone> Index<'a, There> {
    /// Returns the desired definitions, which are none if no instance is desired at the index.
    pub(super) fn wanted(self) -> Wanted<'a> {
        if !self.desired.has(self.index) {
            return Wanted::default();
        }
        if self.desired.is_cordoned(self.index) {
            return Wanted { usual: self.left_alone(), ..Wanted::default() };
        }
        let step = self.rollout.and_then(|rollout| Some((rollout, rollout.in_replacement(self.index)?)));
        let Some((rollout, step)) = step else {
            return Wanted { usual: Some(self.kept(None)), ..Wanted::default() };
        };
        let target = Some(&rollout.target);
        match (step.stage, step.order) {
            (Stage::Leaving | Stage::Resting(_), _) | (Stage::Starting, UpdateOrder::StopFirst) => {
                Wanted { usual: None, target, beside: false }
            }
            (Stage::Starting, UpdateOrder::StartFirst) => self.both(&rollout.target),
        }
    }

    /// Returns the desired definitions of an index with a start-first rollout. If an instance evacuates
    /// beside a running one, the index has two containers already, so the target waits.
    fn both(self, target: &'a DefinitionId) -> Wanted<'a> {
        let holds =
            |(place, lrp): (&Place, &Actual)| place.definition_id == *target && lrp.holder().is_some();
        let there = self.there.clone().any(holds);
        let usual = self.beside(target);
        let waits = self.evacuates && usual.is_some() && !there;
        Wanted { usual, target: Some(target).filter(|_| !waits), beside: true }
    }

    /// Returns the definition that stays on a cordoned cell. `None` if the cell has no instance, which none
    /// replaces then.
    fn left_alone(&self) -> Option<&'a DefinitionId> {
        let active = &self.desired.active_definition_id;
        let known =
            self.there.clone().filter(|(place, _)| self.desired.definition(&place.definition_id).is_some());
        let best = known.map(|(place, lrp)| (rank(lrp), preference(place, lrp, active))).max();
        best.map(|(_, (.., id))| id)
    }

    fn rolls(&self) -> bool {
        self.rollout.and_then(Rollout::under_way).is_some()
    }

    /// Returns `true` if an instance may keep running this definition. During a rollout this holds for every
    /// known definition, otherwise only for the active one.
    fn may_stay(&self, id: &DefinitionId) -> bool {
        self.desired.active_definition_id == *id || self.rolls() && self.desired.definition(id).is_some()
    }

    /// Returns the definition that starts at an empty index. During a rollout this is the one that is known
    /// to work (Updatable LRPs, "`UpdateLRPDeployment`"), if there is one. Otherwise it is the active one.
    fn restarts_with(&self) -> &'a DefinitionId {
        let healthy = self.desired.healthy_definition_id.as_ref();
        healthy.filter(|_| self.rolls()).unwrap_or(&self.desired.active_definition_id)
    }

    /// Returns the definition of an index outside of a rollout, ignoring instances of the definition `but`.
    /// An instance that runs or is being started stays. Otherwise the index starts with
    /// [`Self::restarts_with`].
    fn kept(&self, but: Option<&DefinitionId>) -> &'a DefinitionId {
        let restarts_with = self.restarts_with();
        let kept = self.there.clone().filter(|(place, _)| Some(&place.definition_id) != but).filter_map(
            |(place, lrp)| {
                let rank = rank(lrp).filter(|_| self.may_stay(&place.definition_id))?;
                Some((rank, preference(place, lrp, restarts_with)))
            },
        );
        let best = kept.max();
        best.map_or(restarts_with, |(_, (.., id))| id)
    }

    /// Returns the definition that runs beside the target of a rollout. While the target is not known to
    /// work, an instance that does not run is started again. If the index evacuates, the target takes its
    /// place instead, because an index never has three instances.
    fn beside(&self, target: &DefinitionId) -> Option<&'a DefinitionId> {
        let unproven = self.restarts_with() != target;
        if unproven && !self.evacuates {
            return Some(self.kept(Some(target)));
        }
        let running = self.there.clone().filter(|(place, lrp)| {
            place.definition_id != *target && rank(lrp) == Some(RUNS) && self.may_stay(&place.definition_id)
        });
        let restarts_with = self.restarts_with();
        running.map(|(place, lrp)| preference(place, lrp, restarts_with)).max().map(|(.., id)| id)
    }
}

/// Returns the sort key of an instance that may stay; the greatest stays. The definition that would be
/// started anyway comes first, then the older instance. A container that a returning cell brings back thus
/// never displaces one that serves.
fn preference<'a>(
    place: &'a Place,
    lrp: &Actual,
    restarts_with: &DefinitionId,
) -> (bool, Reverse<Timestamp>, &'a DefinitionId) {
    let id = &place.definition_id;
    (id == restarts_with, Reverse(lrp.since), id)
}

const RUNS: u8 = 1;

/// Returns the value of keeping an instance: RUNNING ranks above CLAIMED. `None` if the instance is stopping
/// or not on a cell.
fn rank(lrp: &Actual) -> Option<u8> {
    match lrp.state {
        State::Running { stopping: false, .. } => Some(RUNS),
        State::Claimed { stopping: false, .. } => Some(0),
        State::Running { stopping: true, .. }
        | State::Claimed { stopping: true, .. }
        | State::Unclaimed { .. }
        | State::Crashed { .. } => None,
    }
}
