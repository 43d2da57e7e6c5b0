//! Which places of a process are desired: at each of its indices one, and two while a rollout has
//! the index in replacement. Creation, scale, the delta between desired and actual, and convergence all ask here.

use std::cmp::Reverse;

use crate::Timestamp;
use crate::actual::{Actual, State};
use crate::desired::Desired;
use crate::key::Place;
use crate::names::DefinitionId;
use crate::policy::UpdateOrder;
use crate::rollout::{Rollout, Stage};

/// An index of a deployment, and what is there.
#[derive(Clone, Copy)]
pub(super) struct Index<'a, There> {
    pub(super) desired: &'a Desired,
    pub(super) rollout: Option<&'a Rollout>,
    pub(super) index: u32,
    /// The instances at the index, each with its place.
    pub(super) there: There,
    /// Whether one of them evacuates.
    pub(super) evacuates: bool,
}

/// The definitions that an index is to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted<'a> {
    /// What runs there, or restarts there.
    pub(super) usual: Option<&'a DefinitionId>,
    /// What a rollout brings.
    pub(super) target: Option<&'a DefinitionId>,
    /// Whether the target starts beside what is there; else it waits until that is gone.
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
    /// The definitions that the index is to run; none where no instance is desired.
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

    /// The definitions of an index at which a rollout starts first. Where somebody evacuates beside what runs, there are two
    /// already: the target waits.
    fn both(self, target: &'a DefinitionId) -> Wanted<'a> {
        let holds =
            |(place, lrp): (&Place, &Actual)| place.definition_id == *target && lrp.holder().is_some();
        let there = self.there.clone().any(holds);
        let usual = self.beside(target);
        let waits = self.evacuates && usual.is_some() && !there;
        Wanted { usual, target: Some(target).filter(|_| !waits), beside: true }
    }

    /// The definition of what is on a cell that takes no new work: nothing takes its place.
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

    /// Whether what runs a definition may run on: any that is known while a rollout sees to it, else the active one alone.
    fn may_stay(&self, id: &DefinitionId) -> bool {
        self.desired.active_definition_id == *id || self.rolls() && self.desired.definition(id).is_some()
    }

    /// The definition that starts where nothing is: while a rollout is under way the one that is known to work (Updatable
    /// LRPs, "`UpdateLRPDeployment`"), if one is, and else the active one.
    fn restarts_with(&self) -> &'a DefinitionId {
        let healthy = self.desired.healthy_definition_id.as_ref();
        healthy.filter(|_| self.rolls()).unwrap_or(&self.desired.active_definition_id)
    }

    /// The definition that an index runs outside a rollout: what runs or is being started stays; everything else starts
    /// with the definition that is known to work.
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

    /// The definition that an index runs beside the target: what runs there. While the target is not known to work, what
    /// doesn't run is started again, unless somebody evacuates the index: then the target takes its place, for there are
    /// never three.
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

/// Which of two that may stay does: the greater. What would be started anyway, and else what is there longer: a container
/// that a cell brings back takes the place of nothing that serves.
fn preference<'a>(
    place: &'a Place,
    lrp: &Actual,
    restarts_with: &DefinitionId,
) -> (bool, Reverse<Timestamp>, &'a DefinitionId) {
    let id = &place.definition_id;
    (id == restarts_with, Reverse(lrp.since), id)
}

const RUNS: u8 = 1;

/// How much there is to lose of an instance: RUNNING above CLAIMED. What is on no cell, or about to leave it, is nothing
/// to keep.
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
