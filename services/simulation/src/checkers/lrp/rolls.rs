//! What is wanted at an index, and what a rollout may do (Updatable LRPs, "`UpdateLRPDeployment`"; docs/internals/model/definitions-and-rollouts.md, "Rollouts").

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::actual::StopReason;
use schemas::crash::NoRestartReason;
use schemas::definition::DesiredLrpUpdate;
use schemas::desired::GlobalCell;
use schemas::entry::Event;
use schemas::names::{CellId, DefinitionId, ProcessGuid};
use schemas::policy::UpdateOrder;
use schemas::rollout::{self, Kind, PauseReason};
use schemas::stamp::Actor;
use schemas::{Indices, Place, Position, Timestamp};

use super::{Lrp, P, Process, Wanted};
use crate::checkers::log::Log;
use crate::checkers::rollouts::{Part, Roll, Stands, at_once, runs_at_least};
use crate::checkers::{Notes, Scene};
use crate::coverage::Situation;
use crate::nodes::{Node, Shape, rep_of};

/// So long an index waits for room beside what it runs.
const NO_ROOM: Duration = Duration::from_secs(30);

/// The definitions that an index is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// What runs or starts there outside its turn.
    pub(super) stays: Option<DefinitionId>,
    /// What its turn brings.
    pub(super) comes: Option<DefinitionId>,
    /// Whether that comes while something else is there.
    pub(super) beside: bool,
}

impl Due {
    pub(super) fn has(&self, id: &DefinitionId) -> bool {
        self.stays.as_ref() == Some(id) || self.comes.as_ref() == Some(id)
    }

    fn each(&self) -> impl Iterator<Item = &DefinitionId> {
        self.stays.iter().chain(&self.comes)
    }
}

impl Wanted {
    /// Takes in what changes without a restart.
    pub(super) fn update(&mut self, update: &DesiredLrpUpdate) {
        if let Some(instances) = update.instances {
            self.roll.iter_mut().for_each(|roll| roll.scale(self.instances, instances));
            self.instances = instances;
        }
        if let Some(policies) = &update.policies {
            self.policies.clone_from(policies);
        }
    }

    /// Takes in which cells a global process runs on.
    pub(super) fn change_cells(&mut self, cells: &[(u32, GlobalCell)], left: &Indices) {
        let before: BTreeSet<u32> = self.indices().filter(|index| self.rolls(*index)).collect();
        let known = self.cells.get_or_insert_default();
        for index in left.iter() {
            let cell = known.remove(&index).map(|(cell, _)| (index, cell));
            self.gone.extend(cell);
        }
        known.extend(cells.iter().map(|(index, cell)| (*index, (cell.cell_id.clone(), cell.cordoned))));
        self.instances = u32::try_from(known.len()).unwrap_or(u32::MAX);
        let now: BTreeSet<u32> = self.indices().filter(|index| self.rolls(*index)).collect();
        self.roll.iter_mut().for_each(|roll| roll.follow(&before, &now));
    }

    /// The only cell that an index of a global process may run on.
    pub(super) fn owner(&self, index: u32) -> Option<&CellId> {
        self.cells.as_ref()?.get(&index).map(|(cell, _)| cell)
    }

    /// Whether an instance is wanted at an index.
    pub(super) fn has(&self, index: u32) -> bool {
        self.cells.as_ref().map_or(index < self.instances, |cells| cells.contains_key(&index))
    }

    /// The indices at which an instance is wanted.
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        let most = self
            .cells
            .as_ref()
            .map_or(self.instances, |cells| cells.keys().last().map_or(0, |last| last + 1));
        (0..most).filter(|index| self.has(*index))
    }

    /// Whether the cell of an index takes no new work.
    pub(super) fn is_closed(&self, index: u32) -> bool {
        self.cells.as_ref().and_then(|cells| cells.get(&index)).is_some_and(|(_, cordoned)| *cordoned)
    }

    /// Whether a rollout replaces what is at an index.
    pub(super) fn rolls(&self, index: u32) -> bool {
        self.has(index) && !self.is_closed(index)
    }

    /// The rollout that is under way.
    pub(super) fn rolling(&self) -> Option<&Roll> {
        self.roll.as_ref().filter(|roll| !roll.is_over())
    }

    /// What starts where nothing is: while a rollout is under way what is known to work, and else what is active.
    fn restarts(&self) -> &DefinitionId {
        let healthy = self.healthy.as_ref().filter(|_| self.rolling().is_some());
        healthy.unwrap_or(&self.active)
    }

    /// How long an instance has to run before its definition is known to work.
    pub(super) fn monitor(&self) -> Duration {
        self.rolling().map_or(Duration::from_millis(self.policies.update.monitor_ms), Roll::monitor)
    }
}

impl Process {
    /// Whether it runs on each cell that fits.
    pub(super) fn is_global(&self) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| wanted.cells.is_some())
    }

    /// What of the cells that a global process is said to run on is not so for whoever decided it.
    pub(super) fn wrong_cells(
        &self,
        cells: &[(u32, GlobalCell)],
        left: &Indices,
        scene: &Scene<'_>,
    ) -> Option<String> {
        let Some((wanted, known)) = self.wanted.as_ref().and_then(|one| Some((one, one.cells.as_ref()?)))
        else {
            return Some("it is not global".to_owned());
        };
        let fitting = self.fitting(wanted, scene.log.staying(scene.basis), scene.shape);
        let untrue = cells.iter().find(|(index, cell)| {
            let said = (cell.cell_id.clone(), cell.cordoned);
            fitting.get(index) != Some(&said) || known.get(index) == Some(&said)
        });
        let stays = left.iter().find(|index| match (known.get(index), fitting.get(index)) {
            (Some((before, _)), Some((now, _))) => before == now,
            (Some(_), None) => false,
            (None, _) => true,
        });
        let nothing = cells.is_empty() && left.is_empty();
        (untrue.is_some() || stays.is_some() || nothing)
            .then(|| format!("it was on {known:?} and {fitting:?} fit"))
    }

    /// Why what was on a cell has to leave an index of a global process that isn't the cell's any more: as the cell was for
    /// whoever decided it. If none had taken it, the cell that left is meant.
    pub(super) fn left_for(&self, index: u32, on: Option<&CellId>, scene: &Scene<'_>) -> Option<StopReason> {
        let wanted = self.wanted.as_ref().filter(|wanted| wanted.cells.is_some())?;
        let cell = on.or_else(|| wanted.gone.get(&index)).filter(|cell| wanted.owner(index) != Some(cell))?;
        let has =
            |cells: &BTreeMap<u32, (CellId, bool)>| cells.get(&index).is_some_and(|(known, _)| known == cell);
        let staying = scene.log.staying(scene.basis);
        let lost = !scene.log.is_present(cell, scene.basis)
            || scene.log.ordinals_at(scene.basis).get(&index) != Some(cell);
        Some(match (lost, has(&staying)) {
            (true, _) => StopReason::CellLost,
            (false, false) => StopReason::Evacuated,
            // It was lost, and is back before it was followed.
            (false, true) if has(&self.fitting(wanted, staying, scene.shape)) => StopReason::CellLost,
            (false, true) => StopReason::CellUnfit,
        })
    }

    /// Of these cells those that fit what is active.
    fn fitting(
        &self,
        wanted: &Wanted,
        cells: BTreeMap<u32, (CellId, bool)>,
        shape: Shape,
    ) -> BTreeMap<u32, (CellId, bool)> {
        let constraint = self.definitions.get(&wanted.active);
        let fits = |cell: &CellId| match (rep_of(cell), constraint) {
            (Node::Rep(at), Some(constraint)) => {
                let cell = shape.cell(at);
                constraint.mismatch(&cell.offer()).is_none()
            }
            (Node::Rep(_) | Node::Bbs(_) | Node::Auctioneer(_), _) => false,
        };
        cells.into_iter().filter(|(_, (cell, _))| fits(cell)).collect()
    }

    /// What is wrong with where a global process runs when all is quiet, given its containers, each with its index and cell.
    pub(in crate::checkers) fn wrong_at_peace(
        &self,
        containers: &[(u32, CellId)],
        log: &Log,
        shape: Shape,
    ) -> Option<String> {
        let wanted = self.wanted.as_ref()?;
        let known = wanted.cells.as_ref()?;
        let fitting = self.fitting(wanted, log.staying(Position(u64::MAX)), shape);
        if *known != fitting {
            return Some(format!("is on {known:?}, and {fitting:?} fit"));
        }
        let elsewhere = containers.iter().find(|(index, cell)| wanted.owner(*index) != Some(cell));
        if let Some(elsewhere) = elsewhere {
            return Some(format!("has a container at {elsewhere:?}, and belongs to {known:?}"));
        }
        let count = |index: u32| containers.iter().filter(|(at, _)| *at == index).count();
        // Where something is to run that doesn't, others see to why.
        let alone = |index: &u32| self.runs_at(*index) && self.at(*index).count() == 1;
        let wrong = wanted.indices().filter(alone).find(|index| count(*index) != 1);
        let none =
            wanted.indices().find(|index| !wanted.is_closed(*index) && self.at(*index).next().is_none());
        wrong.or(none).map(|index| format!("has {} containers at {index}", count(index)))
    }

    /// What an index is to run, as if this instance were there too.
    pub(super) fn due_at(&self, index: u32, more: Option<(&Place, &Lrp)>) -> Due {
        let Some(wanted) = self.wanted.as_ref().filter(|wanted| wanted.has(index)) else {
            return Due::default();
        };
        if wanted.is_closed(index) {
            return Due { stays: self.left_alone(wanted, index, more), ..Due::default() };
        }
        let Some((roll, turn)) = wanted.rolling().and_then(|roll| Some((roll, roll.turn(index)?))) else {
            return Due { stays: Some(self.stays(wanted, index, None, more)), ..Due::default() };
        };
        let target = &roll.target;
        let alone = turn.part == Part::Leaves || turn.order == UpdateOrder::StopFirst;
        if alone {
            return Due { stays: None, comes: Some(target.clone()), beside: false };
        }
        let evacuates = self.twins.keys().any(|place| place.index == index);
        let proven = wanted.restarts() == target;
        let stays = if evacuates || proven {
            self.best(wanted, index, Some(target), more, |hold| hold == 1)
        } else {
            Some(self.stays(wanted, index, Some(target), more))
        };
        // Two are there already where somebody evacuates beside what runs.
        let on_cell = |(place, lrp): (&Place, &Lrp)| place.definition_id == *target && lrp.holder().is_some();
        let came = self.at(index).chain(more).any(on_cell);
        let waits = evacuates && stays.is_some() && !came;
        Due { stays, comes: Some(target.clone()).filter(|_| !waits), beside: true }
    }

    /// Of what holds a cell and may go on, but this definition: what runs before what doesn't, what would start before
    /// others, what is there longer before what came later.
    fn best(
        &self,
        wanted: &Wanted,
        index: u32,
        but: Option<&DefinitionId>,
        more: Option<(&Place, &Lrp)>,
        counts: impl Fn(u8) -> bool,
    ) -> Option<DefinitionId> {
        let starts = wanted.restarts();
        let may_stay = |id: &DefinitionId| {
            *id == wanted.active || wanted.rolling().is_some() && self.definitions.contains_key(id)
        };
        let there = self.at(index).chain(more).map(|(place, lrp)| (&place.definition_id, lrp));
        let there = there.filter(|(id, _)| may_stay(id) && but != Some(*id));
        let holding = there.filter_map(|(id, lrp)| {
            Some((lrp.hold().filter(|hold| counts(*hold))?, id == starts, Reverse(lrp.since), id))
        });
        holding.max().map(|(.., id)| id.clone())
    }

    fn stays(
        &self,
        wanted: &Wanted,
        index: u32,
        but: Option<&DefinitionId>,
        more: Option<(&Place, &Lrp)>,
    ) -> DefinitionId {
        self.best(wanted, index, but, more, |_| true).unwrap_or_else(|| wanted.restarts().clone())
    }

    /// What stays on a cell that takes no new work: what has the most to lose, else what is active, else what is there
    /// longer.
    fn left_alone(&self, wanted: &Wanted, index: u32, more: Option<(&Place, &Lrp)>) -> Option<DefinitionId> {
        let there = self.at(index).chain(more);
        let known = there.filter(|(place, _)| self.definitions.contains_key(&place.definition_id));
        let best = known.max_by_key(|(place, lrp)| {
            let id = &place.definition_id;
            (lrp.hold(), *id == wanted.active, Reverse(lrp.since), id)
        });
        best.map(|(place, _)| place.definition_id.clone())
    }

    /// How many indices have an instance that runs and was not asked to stop, or one that ended and whose restart policy
    /// wants no other.
    fn running(&self) -> usize {
        let done = |lrp: &Lrp| {
            matches!(lrp.declined(), Some(NoRestartReason::Succeeded | NoRestartReason::RestartDisabled))
        };
        let serves = |index: &u32| self.runs_at(*index) || self.at(*index).any(|(_, lrp)| done(lrp));
        self.wanted.iter().flat_map(Wanted::indices).filter(serves).count()
    }

    pub(super) fn runs_at(&self, index: u32) -> bool {
        self.at(index).any(|(_, lrp)| lrp.hold() == Some(1))
    }

    fn target_at(&self, roll: &Roll, index: u32) -> Option<&Lrp> {
        self.lrps.get(&Place::new(index, roll.target.clone()))
    }

    fn target_runs(&self, roll: &Roll, index: u32) -> bool {
        self.target_at(roll, index).is_some_and(|lrp| lrp.hold() == Some(1))
    }

    fn others_at<'a>(&'a self, roll: &'a Roll, index: u32) -> impl Iterator<Item = &'a Lrp> {
        let others = self.at(index).filter(|(place, _)| place.definition_id != roll.target);
        others.map(|(_, lrp)| lrp)
    }

    /// Takes in what happens to rollouts, and says what is wrong with it.
    pub(super) fn rollout(
        &mut self,
        guid: &ProcessGuid,
        event: &rollout::Event,
        scene: &Scene<'_>,
        notes: &mut Notes,
    ) {
        let at = scene.decision.at;
        if let Some((promise, why)) = self.wrong_rollout(event, scene) {
            let roll = self.wanted.as_ref().and_then(|wanted| wanted.roll.as_ref());
            notes.broken(promise, format!("{guid}: {event:?} of {roll:?}: {why}"));
        }
        self.notes_rollout(event, notes);
        self.notes_given_up(event);
        let Some(wanted) = &mut self.wanted else { return };
        Roll::fold(&mut wanted.roll, event, at);
    }

    /// An index is given up, and perhaps one too many.
    fn notes_given_up(&mut self, event: &rollout::Event) {
        let rollout::Event::Stalled { index, .. } = event else { return };
        let Some(roll) = self.wanted.as_ref().and_then(Wanted::rolling) else { return };
        self.goes_back |= roll.gives_up();
        self.given_up.push((Some(*index), roll.target.clone()));
    }

    /// Another definition is active: if too many failed, what the rollout brought is given up everywhere from here on.
    pub(super) fn gives_up_target(&mut self) {
        let rolling = self.wanted.as_ref().and_then(Wanted::rolling).filter(|_| self.goes_back);
        self.given_up.extend(rolling.map(|roll| (None, roll.target.clone())));
    }

    pub(super) fn is_given_up(&self, place: &Place) -> bool {
        let mut given_up = self.given_up.iter();
        given_up.any(|(index, id)| index.is_none_or(|at| at == place.index) && *id == place.definition_id)
    }

    fn notes_rollout(&self, event: &rollout::Event, notes: &mut Notes) {
        let rolling = self.wanted.as_ref().and_then(Wanted::rolling);
        notes.saw(match event {
            rollout::Event::Started { kind: Kind::Rollback, .. } => Situation::RolledBack,
            rollout::Event::Started { .. } if rolling.is_some() => Situation::RolloutSuperseded,
            rollout::Event::Paused { .. } => Situation::RolloutPaused,
            rollout::Event::Resumed {} => Situation::RolloutResumed,
            rollout::Event::Stalled { .. } => Situation::RolloutStalled,
            rollout::Event::FellBack { .. } => Situation::RolloutFellBack,
            rollout::Event::Completed {} if rolling.is_some_and(|roll| roll.kind == Kind::Rollback) => {
                Situation::RollbackCompleted
            }
            rollout::Event::Completed {} => Situation::RolloutCompleted,
            rollout::Event::Started { .. }
            | rollout::Event::IndicesStarted { .. }
            | rollout::Event::TookOver { .. }
            | rollout::Event::Replaced { .. }
            | rollout::Event::Failed { .. } => Situation::RolloutBegun,
        });
    }

    fn wrong_rollout(&self, event: &rollout::Event, scene: &Scene<'_>) -> Option<(P, &'static str)> {
        let sound = |right: bool, why| (!right).then_some((P::RolloutSound, why));
        let at = scene.decision.at;
        let Some(wanted) = &self.wanted else { return sound(false, "nobody desires it") };
        if let rollout::Event::Started { .. } = event {
            return self.wrong_begin(wanted, event, scene);
        }
        let Some(roll) = wanted.rolling() else { return sound(false, "no rollout is under way") };
        match event {
            rollout::Event::Started { .. } => None,
            rollout::Event::IndicesStarted { indices } => indices.iter().find_map(|index| {
                let fresh = roll.turn(index).is_none() && wanted.rolls(index);
                let rolls = roll.stands == Stands::Rolls;
                // Where nothing is known to work and nothing runs, all begin at once.
                let free =
                    wanted.healthy.is_none() && !self.others_at(roll, index).any(|lrp| lrp.hold() == Some(1));
                let room = roll.busy(at) < at_once(&roll.policy, wanted.instances);
                let retried = roll.stalled.get(&index).is_none_or(|retry_at| *retry_at <= at);
                sound(fresh && rolls && retried, "it may not have a turn")
                    .or((!free && !room).then_some((P::RolloutBudget, "too many have a turn")))
            }),
            rollout::Event::FellBack { index } => {
                let turn = roll.turn(*index).filter(|turn| turn.part == Part::Starts);
                let waited = turn.is_some_and(|turn| {
                    turn.order == UpdateOrder::StartFirst && turn.begun_at + NO_ROOM <= at
                });
                let unplaced = self.target_at(roll, *index).is_some_and(Lrp::is_unclaimed);
                let in_the_way = self.others_at(roll, *index).next().is_some();
                sound(waited && unplaced && in_the_way, "it does not wait for room that another has")
            }
            rollout::Event::TookOver { index } => {
                let lrp = self.target_at(roll, *index).filter(|lrp| lrp.hold() == Some(1));
                let survived = lrp.is_some_and(|lrp| lrp.since + roll.monitor() <= at);
                sound(roll.starts(*index) && survived, "the new instance has not survived its monitor")
            }
            rollout::Event::Replaced { index, delay_until: rests_until } => {
                let leaves = roll.turn(*index).is_some_and(|turn| turn.part == Part::Leaves);
                let gone = self.others_at(roll, *index).next().is_none();
                let rests = *rests_until == at + Duration::from_millis(roll.policy.delay_ms);
                sound(leaves && gone && rests, "the old instance is not gone")
            }
            rollout::Event::Failed { index, .. } => {
                let twice = roll.failed.contains(index).then_some((P::FailsOnce, "it has failed already"));
                let crashed = self.target_at(roll, *index).is_some_and(Lrp::is_crashed);
                twice.or(sound(roll.starts(*index) && crashed, "no new instance crashed"))
            }
            rollout::Event::Stalled { index, .. } => {
                sound(roll.starts(*index) && !self.target_runs(roll, *index), "its new instance runs")
            }
            rollout::Event::Paused { cause, .. } => {
                let failed = u32::try_from(roll.failed.len()).unwrap_or(u32::MAX);
                let right = match cause {
                    PauseReason::Requested => {
                        matches!(scene.decision.actor, Actor::Client { .. } | Actor::Operator(_))
                    }
                    PauseReason::Canary => {
                        roll.policy.pause_after.is_some_and(|after| roll.replaced >= after)
                    }
                    PauseReason::Failures => roll.policy.max_failure_ratio.is_exceeded_by(failed, roll.total),
                };
                sound(roll.stands == Stands::Rolls && right, "it has no reason to pause")
            }
            rollout::Event::Resumed {} => sound(roll.stands == Stands::Paused, "it is not paused"),
            rollout::Event::Completed {} => {
                let proven = wanted.healthy.as_ref() == Some(&roll.target);
                let declined =
                    |index| proven && self.target_at(roll, index).is_some_and(|lrp| lrp.declined().is_some());
                let there = |index| {
                    let came = self.target_runs(roll, index) || declined(index);
                    came && self.others_at(roll, index).next().is_none()
                };
                let all = wanted.indices().filter(|index| wanted.rolls(*index)).all(there);
                (!all).then_some((P::CompletedTrue, "not every index runs the target alone"))
            }
        }
    }

    fn wrong_begin(
        &self,
        wanted: &Wanted,
        event: &rollout::Event,
        scene: &Scene<'_>,
    ) -> Option<(P, &'static str)> {
        let rollout::Event::Started { kind, target, rollback_to, policy, .. } = event else { return None };
        let backs = match (kind, wanted.rolling()) {
            (Kind::Update, _) => true,
            (Kind::Rollback, Some(roll)) => roll.kind == Kind::Update && roll.back.as_ref() == Some(target),
            (Kind::Rollback, None) => false,
        };
        if !backs {
            let why = "there is nothing to go back from, or that is not where it goes back to";
            return Some((P::RollsBackOnce, why));
        }
        let asked = matches!(scene.decision.actor, Actor::Client { .. } | Actor::Operator(_));
        if *kind == Kind::Rollback && !asked && !self.goes_back {
            return Some((P::RolloutSound, "nobody asked for it, and its policy has no reason to go back"));
        }
        let right_policy = match kind {
            Kind::Update => **policy == wanted.policies.update,
            Kind::Rollback => **policy == wanted.policies.rollback,
        };
        let known = self.definitions.contains_key(target) && wanted.active == *target;
        let pins = *rollback_to == wanted.healthy.clone().filter(|healthy| healthy != target);
        let why = "its policy, its target or where it goes back to is another";
        (!(right_policy && known && pins)).then_some((P::RolloutSound, why))
    }

    /// A stop that a rollout asked for leaves something running at its index, or enough elsewhere.
    pub(super) fn wrong_replacement(
        &self,
        place: &Place,
        before: Option<&Lrp>,
        at: Timestamp,
    ) -> Option<(P, &'static str)> {
        let wanted = self.wanted.as_ref()?;
        let ran = before.is_some_and(|lrp| lrp.hold() == Some(1))
            && self.definitions.contains_key(&place.definition_id);
        if !ran || self.runs_at(place.index) {
            return None;
        }
        let roll = wanted.rolling()?;
        // The record itself is not among them any more.
        let least = runs_at_least(&wanted.policies, &roll.policy, wanted.instances);
        // What came back with its cell and is stopped as it is told of did not count before: as many run as did.
        let came_back = before.is_some_and(|lrp| lrp.since == at);
        if self.running() < least && !came_back {
            return Some((P::MinRunning, "too few run without it"));
        }
        let turn = roll.turn(place.index);
        let starts_first = turn.is_none_or(|turn| turn.order == UpdateOrder::StartFirst);
        // It was to stop when the new instance took over, which ran then, and may have crashed since.
        let late = came_back && turn.is_some_and(|turn| turn.part == Part::Leaves);
        (starts_first && !late).then_some((P::StartsFirst, "nothing else runs at its index"))
    }

    /// What holds of definitions, rollouts and indices after every decision.
    pub(super) fn rollouts_hold(&self, guid: &ProcessGuid, scene: &Scene<'_>, notes: &mut Notes) {
        let Some(wanted) = &self.wanted else { return };
        let needed = [Some(&wanted.active), wanted.healthy.as_ref()];
        let lost = needed.into_iter().flatten().find(|id| !self.definitions.contains_key(*id));
        notes
            .must(P::DefinitionsKept, lost.is_none(), || format!("{guid} needs {lost:?} and has it no more"));
        for index in wanted.indices() {
            let twins = self.twins.iter().filter(|(place, twin)| {
                let own = self.lrps.get(place).and_then(Lrp::holder);
                place.index == index && own != Some(&twin.by)
            });
            // What is asked to stop is on its way out, however long that takes.
            let live = self.at(index).filter(|(_, lrp)| !lrp.stopping).count() + twins.count();
            let known = |place: &Place| self.definitions.contains_key(&place.definition_id);
            // What was told of out of nowhere is not the rollout's.
            let strangers = self.at(index).any(|(place, _)| !known(place));
            notes.must(P::AtMostTwo, live <= 2 || strangers || wanted.roll.is_none(), || {
                format!("{guid}/{index} has {:?} and {:?}", self.lrps, self.twins)
            });
            let due = self.due_at(index, None);
            let nothing = self.at(index).next().is_none();
            let missing = due.each().find(|id| {
                let there = self.lrps.contains_key(&Place::new(index, (*id).clone()));
                !there && (due.beside || nothing)
            });
            notes.must(P::DesiredSound, missing.is_none(), || {
                format!("{guid}/{index} is to run {missing:?}, and there is no record")
            });
        }
        self.starts_few(guid, wanted, scene, notes);
    }

    /// Of a definition that is not known to work nothing starts outside its turn, where another one is.
    fn starts_few(&self, guid: &ProcessGuid, wanted: &Wanted, scene: &Scene<'_>, notes: &mut Notes) {
        let Some(roll) = wanted.rolling() else { return };
        if wanted.healthy.is_none() || wanted.healthy.as_ref() == Some(&roll.target) {
            return;
        }
        let starts = self.lrps.iter().find(|(place, lrp)| {
            let pending = place.definition_id == roll.target && !lrp.is_running() && !lrp.stopping;
            // On a cell that takes no new work nothing starts.
            pending && wanted.rolls(place.index) && lrp.hold().is_none() && !roll.starts(place.index)
        });
        notes.must(P::RolloutBudget, starts.is_none(), || {
            format!("{guid} starts {starts:?} out of turn, in {:?}", scene.decision.events)
        });
    }

    /// A definition is known to work: one of its instances survived its monitor, or everything goes back to it.
    pub(super) fn wrong_healthy(&self, id: &DefinitionId, scene: &Scene<'_>) -> bool {
        let Some(wanted) = &self.wanted else { return true };
        let at = scene.decision.at;
        let survived = self.lrps.iter().any(|(place, lrp)| {
            let own = place.definition_id == *id && wanted.has(place.index);
            own && lrp.hold() == Some(1) && lrp.since + wanted.monitor() <= at
        });
        let goes_back = scene.decision.events.iter().any(|event| {
            matches!(event, Event::Rollout(rollout::Event::Started { kind: Kind::Rollback, target, .. }) if target == id)
        });
        !(survived && wanted.active == *id || goes_back)
    }

    /// Whether there is an instance of a definition, or an evacuating twin.
    pub(super) fn runs_definition(&self, id: &DefinitionId) -> bool {
        self.lrps.keys().chain(self.twins.keys()).any(|place| place.definition_id == *id)
    }

    /// Whether somebody has to say that the active definition works.
    pub(super) fn unsaid_health(&self, clock: Timestamp) -> bool {
        let Some(wanted) =
            self.wanted.as_ref().filter(|wanted| wanted.healthy.as_ref() != Some(&wanted.active))
        else {
            return false;
        };
        self.lrps.iter().any(|(place, lrp)| {
            let own = place.definition_id == wanted.active && wanted.has(place.index);
            own && lrp.hold() == Some(1) && lrp.since + wanted.monitor() <= clock
        })
    }

    /// Stop-first, a new instance comes only where nothing else is.
    pub(super) fn comes_too_soon(&self, place: &Place) -> bool {
        let rolling = self.wanted.as_ref().and_then(Wanted::rolling);
        let Some(roll) = rolling.filter(|roll| roll.target == place.definition_id) else { return false };
        let turn = roll.turn(place.index).filter(|turn| turn.order == UpdateOrder::StopFirst);
        turn.is_some() && self.others_at(roll, place.index).next().is_some()
    }
}
