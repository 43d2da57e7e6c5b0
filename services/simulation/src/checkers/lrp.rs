//! Processes: what each event of an instance, a twin or an evaluation may do, and what holds after every decision.

mod restarts;
mod rolls;
pub(super) mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use machines::process;
use schemas::actual::{self, StopReason, UnclaimReason};
use schemas::container::{Epoch, Instance, WorkKey};
use schemas::crash::{NoRestartReason, Restart};
use schemas::definition::{DesiredLrp, Mode};
use schemas::desired::{self, GlobalCell};
use schemas::entry::{Aggregate, Event};
use schemas::evacuating::{self, RemovalReason};
use schemas::evaluation::{self, InitialStatus, Trigger};
use schemas::names::{CellId, DefinitionId, Domain, InstanceGuid, ProcessGuid};
use schemas::policy::Policies;
use schemas::resources::Constraint;
use schemas::subject::Position;
use schemas::{ActualLrpKey, Indices, Place, Timestamp};

use self::rules::{is_lost, may_speak, speaks};
use super::due::Thing;
use super::evaluations::{self, Evaluations, Waiting};
use super::log::Log;
use super::orders::Orders;
use super::rollouts::Roll;
use super::{Notes, Scene};
use crate::coverage::Situation;
use crate::nodes::{Node, rep_of};
use crate::promises::Promise as P;
use crate::{racks, walls};

/// So long what is gone is remembered, in time of its subject.
pub(super) const REMEMBERED: Duration = Duration::from_secs(600);

/// A process as the checker has it.
pub(super) struct Process {
    domain: Domain,
    epoch: Epoch,
    version: u64,
    wanted: Option<Wanted>,
    /// The definitions of its life, and on which cells each may run.
    definitions: BTreeMap<DefinitionId, Constraint>,
    /// Whether somebody ever said how many instances shall run, and that is remembered.
    asked: bool,
    /// When it was last decided about.
    changed_at: Timestamp,
    lrps: BTreeMap<Place, Lrp>,
    twins: BTreeMap<Place, Twin>,
    evaluations: Evaluations,
    claims: Vec<(InstanceGuid, WorkKey)>,
    stops: Vec<InstanceGuid>,
    /// Containers of which their reps said that they have ended.
    ended: BTreeSet<InstanceGuid>,
    /// The container of each place that was the last to run.
    ran: BTreeMap<Place, InstanceGuid>,
    /// The containers that evacuated until another ran at their index or their record was removed, and did not run again
    /// since.
    moved: BTreeSet<InstanceGuid>,
    /// What a rollout gave up in the decision that is judged: a definition at an index, or at all of them.
    given_up: Vec<(Option<u32>, DefinitionId)>,
    /// Whether so many indices failed in this decision that its rollout goes back.
    goes_back: bool,
    /// Whether something went in this decision that was stopped for something more urgent.
    preempted: bool,
}

/// What somebody wants of a process.
struct Wanted {
    instances: u32,
    /// The cells of a global process, by their indices, and which of them take no new work.
    cells: Option<BTreeMap<u32, (CellId, bool)>>,
    /// The cells that last left their indices.
    gone: BTreeMap<u32, CellId>,
    active: DefinitionId,
    /// The definition that is known to work.
    healthy: Option<DefinitionId>,
    policies: Policies,
    /// The last rollout of this life.
    roll: Option<Roll>,
}

#[derive(Clone, Debug)]
struct Lrp {
    state: State,
    since: Timestamp,
    crashes: u32,
    stopping: bool,
    /// Whether that is so that something more urgent has room.
    preempted: bool,
    /// Where its state was entered.
    position: Position,
    /// When it was restarted, if its policy counted that at its last crash.
    restarts: Option<Vec<Timestamp>>,
}

#[derive(Clone, Debug)]
enum State {
    Unclaimed { error: Option<String> },
    Claimed(Instance),
    Running(Instance),
    Crashed(Restart),
}

#[derive(Clone, Debug)]
struct Twin {
    by: Instance,
    expires_at: Timestamp,
    /// Whether, since then, another container ran, the instance crashed, or there was none.
    may_go: bool,
}

/// What the time is for whoever decides, and what the log says.
pub(super) struct Context<'a> {
    pub(super) clock: Timestamp,
    pub(super) log: &'a Log,
    pub(super) orders: &'a Orders,
}

/// What an event does to an instance, and what is wrong with that.
type Next = (Option<Lrp>, Wrong);

/// Which promise something breaks, and how.
type Wrong = Option<(P, &'static str)>;

impl Lrp {
    fn holder(&self) -> Option<&Instance> {
        match &self.state {
            State::Claimed(by) | State::Running(by) => Some(by),
            State::Unclaimed { .. } | State::Crashed(_) => None,
        }
    }

    /// What may have to yield to another definition: 1 if it runs, 0 if it is about to; none: it is on no cell, or shall
    /// leave it.
    fn hold(&self) -> Option<u8> {
        match &self.state {
            State::Running(_) => (!self.stopping).then_some(1),
            State::Claimed(_) => (!self.stopping).then_some(0),
            State::Unclaimed { .. } | State::Crashed(_) => None,
        }
    }

    const fn is_running(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    const fn is_crashed(&self) -> bool {
        matches!(self.state, State::Crashed(_))
    }

    const fn is_unclaimed(&self) -> bool {
        matches!(self.state, State::Unclaimed { .. })
    }

    /// When a CRASHED instance is to run again; none: it isn't CRASHED, or never does.
    const fn restart_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Crashed(Restart::Immediate) => Some(self.since),
            State::Crashed(Restart::At(due)) => Some(due),
            State::Crashed(Restart::Never(_))
            | State::Unclaimed { .. }
            | State::Claimed(_)
            | State::Running(_) => None,
        }
    }

    /// Why a CRASHED instance does not run again.
    const fn declined(&self) -> Option<NoRestartReason> {
        match self.state {
            State::Crashed(Restart::Never(why)) => Some(why),
            State::Crashed(Restart::Immediate | Restart::At(_))
            | State::Unclaimed { .. }
            | State::Claimed(_)
            | State::Running(_) => None,
        }
    }
}

impl Process {
    pub(super) fn new(domain: &Domain, epoch: Epoch) -> Self {
        Self {
            domain: domain.clone(),
            epoch,
            version: 0,
            wanted: None,
            definitions: BTreeMap::new(),
            asked: false,
            changed_at: Timestamp(0),
            lrps: BTreeMap::new(),
            twins: BTreeMap::new(),
            evaluations: Evaluations::default(),
            claims: vec![],
            stops: vec![],
            ended: BTreeSet::new(),
            ran: BTreeMap::new(),
            moved: BTreeSet::new(),
            given_up: vec![],
            goes_back: false,
            preempted: false,
        }
    }

    /// Containers that have just been asked to stop.
    pub(super) fn take_stops(&mut self) -> Vec<InstanceGuid> {
        std::mem::take(&mut self.stops)
    }

    /// The containers that were let in since it was asked last.
    pub(super) fn take_claims(&mut self) -> Vec<(InstanceGuid, WorkKey)> {
        std::mem::take(&mut self.claims)
    }

    /// Whether a container was the last of its place of which the log said that it runs, in a life that goes on, and its cell
    /// did not move it elsewhere.
    pub(super) fn ran_last(&self, place: &Place, epoch: Epoch, container: InstanceGuid) -> bool {
        let last = self.ran.get(place) == Some(&container);
        self.epoch == epoch && last && !self.moved.contains(&container)
    }

    /// Whether an instance is wanted at an index, whatever it runs.
    fn wants_index(&self, index: u32) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| wanted.has(index))
    }

    /// Whether an instance is wanted at a place, given those that are there.
    fn wants(&self, place: &Place) -> bool {
        self.wants_with(place, None)
    }

    /// The same, as if this instance were there too.
    fn wants_with(&self, place: &Place, lrp: Option<&Lrp>) -> bool {
        self.due_at(place.index, lrp.map(|lrp| (place, lrp))).has(&place.definition_id)
    }

    /// The instances at an index, each with its place.
    fn at(&self, index: u32) -> impl Iterator<Item = (&Place, &Lrp)> {
        let first = Place::new(index, DefinitionId::min_value());
        self.lrps.range(first..).take_while(move |(place, _)| place.index == index)
    }

    /// What evacuates from a place waits for these: for the instance there, or for those that run something else in its
    /// place.
    fn successors(&self, place: &Place) -> Vec<&Lrp> {
        match self.lrps.get(place) {
            Some(lrp) => vec![lrp],
            None => self.at(place.index).map(|(_, lrp)| lrp).collect(),
        }
    }

    /// The instance that is meant by an index, and a definition if there may be several.
    fn meant(&self, index: u32, definition_id: Option<&DefinitionId>) -> Option<Place> {
        let is_active = |id: &DefinitionId| self.wanted.as_ref().is_some_and(|wanted| wanted.active == *id);
        let named = |(place, _): &(&Place, &Lrp)| definition_id.is_none_or(|id| place.definition_id == *id);
        let there = self.at(index).filter(named).map(|(place, _)| place);
        there.max_by_key(|place| is_active(&place.definition_id)).cloned()
    }

    /// Whether nobody remembers that it was ever desired.
    pub(super) const fn is_orphan(&self) -> bool {
        !self.asked
    }

    /// Whether somebody said how many instances shall run, and this is none of them.
    fn is_unwanted(&self, index: u32) -> bool {
        self.asked && !self.wants_index(index)
    }

    /// Takes a decision in, event by event, and says what is wrong with it.
    pub(super) fn judge(&mut self, guid: &ProcessGuid, scene: &Scene<'_>, notes: &mut Notes) {
        self.version = scene.decision.version;
        self.changed_at = scene.decision.at;
        self.given_up.clear();
        self.goes_back = false;
        self.preempted = false;
        let retired = scene.log.retires(scene.decision);
        let retired = retired.and_then(|(index, definition)| self.meant(*index, definition.as_ref()));
        for event in &scene.decision.events {
            match event {
                Event::Desired(event) => self.desired(guid, event, scene, notes),
                Event::Actual(event) => self.actual(guid, event, scene, notes),
                Event::Evacuating(event) => self.evacuating(guid, event, scene, notes),
                Event::Rollout(event) => self.rollout(guid, event, scene, notes),
                Event::Evaluation(event) => self.evaluation(guid, event, scene, notes),
                Event::Task(_)
                | Event::Periodic(_)
                | Event::Parameterised(_)
                | Event::Domain(_)
                | Event::Cell(_)
                | Event::Cluster(_) => {}
            }
        }
        self.let_twins_go();
        self.holds(guid, scene, notes);
        self.stops(guid, retired.as_ref(), scene, notes);
    }

    /// Whether nothing is left of it at this time but that somebody removed it ten minutes ago: from then on nobody
    /// remembers that.
    pub(super) fn is_forgotten(&self, now: Timestamp) -> bool {
        let gone = self.wanted.is_none() && self.lrps.is_empty() && self.twins.is_empty();
        gone && self.changed_at + REMEMBERED <= now
    }

    /// What is due: restarts, the ends of evacuating records, and what nobody desires.
    pub(super) fn due(&self, guid: &ProcessGuid, of: &Context<'_>) -> Vec<Thing> {
        let Context { clock, log, .. } = of;
        let fresh = log.is_fresh(&self.domain, Position(u64::MAX), *clock);
        let mut due = vec![];
        for (place, lrp) in &self.lrps {
            let name = name_of(guid, place);
            if self.wants(place) && self.restart_due(place, lrp).is_some_and(|at| at <= *clock) {
                let what = format!("{name} is CRASHED since {}, its wait is over", lrp.since);
                due.push(Thing::new(P::RestartNotLate, what));
            }
            if let Some(by) = lrp.holder().filter(|_| lrp.stopping) {
                due.push(of.orders.owed(&name, by));
            }
            if !self.wants(place) && !lrp.stopping && (fresh || self.wants_index(place.index)) {
                let what = format!("nobody desires {name}, which is there since {}", lrp.since);
                due.push(Thing::for_convergence(P::UndesiredStops, what));
            }
            if lrp.holder().is_some_and(|by| log.absent_since(&by.cell_id).is_some()) {
                let what = format!("{name} is said to be on an absent cell since {}", lrp.since);
                due.push(Thing::new(P::LostAtOnce, what));
            }
        }
        if self.unsaid_health(*clock) {
            due.push(Thing::for_convergence(P::HealthTrue, format!("nobody says that {guid} is healthy")));
        }
        for (place, twin) in &self.twins {
            let name = name_of(guid, place);
            if twin.expires_at <= *clock {
                let what = format!("{name} evacuates, its time was over at {}", twin.expires_at);
                due.push(Thing::new(P::EvacuatingEnds, what));
            }
            if log.absent_since(&twin.by.cell_id).is_some() {
                let what = format!("{name} is said to evacuate an absent cell, {}", twin.by.cell_id);
                due.push(Thing::new(P::LostAtOnce, what));
            }
        }
        due
    }

    /// Whether an instance is CRASHED and right to be: its wait is not over, or it is never restarted.
    pub(super) fn waits(&self, place: &Place, now: Timestamp, slack: Duration) -> bool {
        let crashed = self.lrps.get(place).filter(|lrp| lrp.is_crashed());
        crashed.is_some_and(|lrp| self.restart_due(place, lrp).is_none_or(|at| now < at + slack))
    }

    /// When an instance is to run again. What a rollout starts does so whatever its restart policy said.
    fn restart_due(&self, place: &Place, lrp: &Lrp) -> Option<Timestamp> {
        lrp.restart_at().or_else(|| {
            lrp.declined().filter(|_| self.starts(place))?;
            Some(lrp.since + restarts::usual_wait(lrp.crashes).unwrap_or(restarts::LONGEST))
        })
    }

    /// Whether a rollout is starting what is at a place.
    fn starts(&self, place: &Place) -> bool {
        let rolling = self.wanted.as_ref().and_then(Wanted::rolling);
        rolling.is_some_and(|roll| roll.target == place.definition_id && roll.starts(place.index))
    }

    /// Instances that a cell holds since before a position.
    pub(super) fn held_by(&self, cell: &CellId, before: Position) -> impl Iterator<Item = &Place> {
        let held =
            move |lrp: &Lrp| lrp.position < before && lrp.holder().is_some_and(|by| by.cell_id == *cell);
        self.lrps.iter().filter(move |(_, lrp)| held(lrp)).map(|(place, _)| place)
    }

    /// Takes down of what evacuates what may go, and in whose place another container runs.
    fn let_twins_go(&mut self) {
        let may_go = |(place, twin): (&Place, &Twin)| {
            let successors = self.successors(place);
            let lets_go = |lrp: &&Lrp| match &lrp.state {
                State::Running(by) => *by != twin.by,
                State::Crashed(_) => true,
                State::Unclaimed { .. } | State::Claimed(_) => false,
            };
            successors.is_empty() || successors.iter().any(lets_go)
        };
        let may_go: Vec<bool> = self.twins.iter().map(may_go).collect();
        for (twin, may_go) in self.twins.values_mut().zip(may_go) {
            twin.may_go |= may_go;
        }
        let is_moved = |(place, twin): &(&Place, &Twin)| {
            let runs = |lrp: &Lrp| matches!(&lrp.state, State::Running(by) if *by != twin.by);
            self.successors(place).into_iter().any(runs)
        };
        let moved = self.twins.iter().filter(is_moved).map(|(_, twin)| twin.by.instance_guid);
        let moved: Vec<InstanceGuid> = moved.collect();
        self.moved.extend(moved);
    }

    /// What a client asks to stop is stopping or gone, whatever is known of its domain.
    fn stops(&self, guid: &ProcessGuid, retired: Option<&Place>, scene: &Scene<'_>, notes: &mut Notes) {
        let mut told_off = scene.decision.events.iter().map(|event| match event {
            Event::Desired(desired::Event::Removed {}) => true,
            Event::Desired(desired::Event::Updated(update)) => update.instances.is_some(),
            Event::Desired(
                desired::Event::Desired(_)
                | desired::Event::DefinitionAdded { .. }
                | desired::Event::Activated { .. }
                | desired::Event::HealthyChanged { .. }
                | desired::Event::Pruned { .. }
                | desired::Event::CellsChanged { .. },
            )
            | Event::Actual(_)
            | Event::Evacuating(_)
            | Event::Rollout(_)
            | Event::Evaluation(_)
            | Event::Task(_)
            | Event::Periodic(_)
            | Event::Parameterised(_)
            | Event::Domain(_)
            | Event::Cell(_)
            | Event::Cluster(_) => false,
        });
        if told_off.any(|told_off| told_off) {
            let left = self.lrps.iter().find(|(place, lrp)| !lrp.stopping && !self.wants_index(place.index));
            notes.must(P::StopWorks, left.is_none(), || format!("{guid} goes on with {left:?}"));
        }
        if let Some(place) = retired {
            let lrp = self.lrps.get(place);
            let right = lrp.is_none_or(|lrp| lrp.stopping || lrp.since == scene.decision.at);
            notes.must(P::StopWorks, right, || format!("{} goes on as {lrp:?}", name_of(guid, place)));
        }
    }

    /// What holds after every decision.
    fn holds(&self, guid: &ProcessGuid, scene: &Scene<'_>, notes: &mut Notes) {
        if let Aggregate::Process { epoch, domain, .. } = &scene.decision.aggregate {
            notes.must(P::OneLife, *epoch == self.epoch, || {
                format!("{guid}: a decision of another life, {epoch:?}")
            });
            notes.must(P::DomainsApart, *domain == self.domain, || {
                format!("{guid}: a decision of domain {domain}")
            });
        }
        self.rollouts_hold(guid, scene, notes);
        let unwanted = |(place, lrp): &(&Place, &Lrp)| self.is_unwanted(place.index) && !lrp.stopping;
        let left = self.lrps.iter().find(unwanted);
        notes.must(P::UnwantedEnds, left.is_none(), || format!("{guid} goes on with {left:?}"));
        let crash_told = scene
            .decision
            .events
            .iter()
            .any(|event| matches!(event, Event::Actual(actual::Event::Crashed { .. })));
        for (place, lrp) in &self.lrps {
            let stuck = matches!(lrp.state, State::Crashed(Restart::Immediate)) && self.wants(place);
            notes.must(P::CrashCounted, !(crash_told && stuck && lrp.since == scene.decision.at), || {
                let name = name_of(guid, place);
                format!("{name} crashed {} times and does not restart at once", lrp.crashes)
            });
        }
        let waiting = self.waiting();
        notes.must(P::WorkHasEvaluation, self.evaluations.stand_for(waiting), || {
            format!("{guid} has {waiting:?}, and its open evaluations are {:?}", self.evaluations.in_words())
        });
    }

    /// What waits for its place, for room, or for its restart.
    fn waiting(&self) -> Waiting {
        let failed = |lrp: &&Lrp| matches!(lrp.state, State::Unclaimed { error: Some(_) });
        let unclaimed = self.lrps.values().filter(|lrp| lrp.is_unclaimed()).count();
        let unplaced = self.lrps.values().filter(failed).count();
        let restarts = self.lrps.values().filter_map(|lrp| match lrp.state {
            State::Crashed(Restart::At(due)) => Some(due),
            State::Crashed(Restart::Immediate | Restart::Never(_))
            | State::Unclaimed { .. }
            | State::Claimed(_)
            | State::Running(_) => None,
        });
        Waiting { unanswered: unclaimed - unplaced, unplaced, restart_at: restarts.min() }
    }

    fn desired(&mut self, guid: &ProcessGuid, event: &desired::Event, scene: &Scene<'_>, notes: &mut Notes) {
        match event {
            desired::Event::Desired(lrp) => {
                self.begins(guid, lrp, scene, notes);
            }
            desired::Event::Updated(update) => {
                notes.must(P::DesiredSound, self.wanted.is_some(), || {
                    format!("{guid} is updated and nobody desires it")
                });
                if update.annotation.is_some() || update.routes.is_some() {
                    notes.saw(Situation::Described);
                }
                let global = self.is_global();
                notes.must(P::DesiredSound, update.instances.is_none() || !global, || {
                    format!("{guid} runs once on each cell, and is scaled: {update:?}")
                });
                self.wanted.iter_mut().for_each(|wanted| wanted.update(update));
            }
            desired::Event::DefinitionAdded { definition_id, definition } => {
                let constraint = Constraint::clone(&definition.constraint);
                let known = self.definitions.insert(definition_id.clone(), constraint);
                notes.must(P::DefinitionsKept, known.is_none() && self.wanted.is_some(), || {
                    format!("{guid} has a second definition {definition_id}")
                });
            }
            desired::Event::Activated { definition_id } => {
                self.gives_up_target();
                if let Some(wanted) = &mut self.wanted {
                    wanted.active = definition_id.clone();
                }
            }
            desired::Event::HealthyChanged { definition_id } => {
                let wrong = self.wrong_healthy(definition_id, scene);
                notes.must(P::HealthTrue, !wrong, || {
                    format!("{guid}: no instance of {definition_id} survived")
                });
                if let Some(wanted) = &mut self.wanted {
                    wanted.healthy = Some(definition_id.clone());
                }
            }
            desired::Event::CellsChanged { cells, removed: left } => {
                self.changes_cells(guid, (cells, left), scene, notes);
            }
            desired::Event::Pruned { definition_ids } => {
                notes.saw(Situation::DefinitionPruned);
                let used = definition_ids.iter().find(|id| self.runs_definition(id));
                notes.must(P::DefinitionsKept, used.is_none(), || format!("{guid} still runs {used:?}"));
                self.definitions.retain(|id, _| !definition_ids.contains(id));
            }
            desired::Event::Removed {} => {
                let orphans = !self.asked && !self.lrps.is_empty();
                notes.must(P::DesiredSound, self.wanted.is_some() || orphans, || {
                    format!("{guid} is removed and nobody desires it")
                });
                self.wanted = None;
                self.asked = true;
            }
        }
    }

    /// Somebody desires it.
    fn begins(&mut self, guid: &ProcessGuid, lrp: &DesiredLrp, scene: &Scene<'_>, notes: &mut Notes) {
        let DesiredLrp { domain, mode, instances, definition_id, definition, policies, .. } = lrp;
        notes.must(P::DesiredSound, self.wanted.is_none(), || format!("{guid} is desired twice"));
        let later = self.version <= 1 || self.epoch.0 < scene.decision.at;
        notes.must(P::OneLife, later, || format!("{guid}: a life that is not later than the one before"));
        self.epoch = Epoch(scene.decision.at);
        self.domain = domain.clone();
        let constraint = Constraint::clone(&definition.constraint);
        self.definitions = BTreeMap::from([(definition_id.clone(), constraint)]);
        self.wanted = Some(Wanted {
            instances: *instances,
            cells: (*mode == Mode::Global).then(BTreeMap::new),
            gone: BTreeMap::new(),
            active: definition_id.clone(),
            healthy: None,
            policies: policies.clone(),
            roll: None,
        });
        self.asked = true;
    }

    /// A global process runs on other cells.
    fn changes_cells(
        &mut self,
        guid: &ProcessGuid,
        (cells, left): (&[(u32, GlobalCell)], &Indices),
        scene: &Scene<'_>,
        notes: &mut Notes,
    ) {
        if let Some(why) = self.wrong_cells(cells, left, scene) {
            notes.broken(P::CellsFollowed, format!("{guid}: {why}, by {cells:?}, {left:?}"));
        }
        if !cells.is_empty() {
            notes.saw(Situation::CellsJoined);
        }
        if !left.is_empty() {
            notes.saw(Situation::CellsLeft);
        }
        self.wanted.iter_mut().for_each(|wanted| wanted.change_cells(cells, left));
    }

    fn evaluation(
        &mut self,
        guid: &ProcessGuid,
        event: &evaluation::Event,
        scene: &Scene<'_>,
        notes: &mut Notes,
    ) {
        self.evaluations.take(event, scene.decision, (guid.as_str(), notes));
        let made = match event {
            evaluation::Event::Created { initial_status: InitialStatus::Pending, trigger, .. }
            | evaluation::Event::Joined { trigger, .. } => Some(*trigger),
            evaluation::Event::Created { .. }
            | evaluation::Event::DelayChanged { .. }
            | evaluation::Event::Due { .. }
            | evaluation::Event::Redelivered { .. }
            | evaluation::Event::Blocked { .. }
            | evaluation::Event::Completed { .. }
            | evaluation::Event::Failed { .. }
            | evaluation::Event::Canceled { .. }
            | evaluation::Event::Retried { .. } => None,
        };
        let global = self.is_global();
        notes.must(
            P::TellsTheTruth,
            made.is_none_or(|trigger| is_trigger(trigger, (global, self.preempted), &scene.decision.events)),
            || format!("{guid}: work that {made:?} made, by {:?}", scene.decision.events),
        );
        let reason = self.evaluations.blocked_for();
        let known = |lrp: &Lrp| matches!(&lrp.state, State::Unclaimed { error: Some(error) } if Some(error.as_str()) == reason);
        let says_why = match event {
            evaluation::Event::Created { initial_status: InitialStatus::Blocked { .. }, .. }
            | evaluation::Event::Blocked { .. } => true,
            evaluation::Event::Created { .. }
            | evaluation::Event::Joined { .. }
            | evaluation::Event::DelayChanged { .. }
            | evaluation::Event::Due { .. }
            | evaluation::Event::Redelivered { .. }
            | evaluation::Event::Completed { .. }
            | evaluation::Event::Failed { .. }
            | evaluation::Event::Canceled { .. }
            | evaluation::Event::Retried { .. } => false,
        };
        notes.must(P::TellsTheTruth, !says_why || self.lrps.values().any(known), || {
            format!("{guid} is blocked for {reason:?}, which is nothing's error")
        });
    }

    fn evacuating(
        &mut self,
        guid: &ProcessGuid,
        event: &evacuating::Event,
        scene: &Scene<'_>,
        notes: &mut Notes,
    ) {
        match event {
            evacuating::Event::Set { place, by, net, expires_at } => {
                let name = name_of(guid, place);
                notes.saw(Situation::TwinSet);
                let held = self.lrps.get(place).and_then(Lrp::holder) == Some(by);
                let legal = held || self.twins.get(place).is_none_or(|old| old.by == *by);
                notes.must(P::OneEvacuating, legal, || format!("{name}: a second evacuating instance"));
                notes.must(P::OwnCellSpeaks, may_speak(by, scene), || {
                    format!("{name}: {by:?} may not evacuate")
                });
                notes.must(P::RunsBeforeRunning, scene.truth.has_started(by.instance_guid), || {
                    format!("{name}: {by:?} evacuates and never ran")
                });
                notes.must(P::TellsTheTruth, scene.truth.net(by.instance_guid) == Some(net), || {
                    format!("{name}: {by:?} evacuates and is said to be reached at {net:?}")
                });
                notes.must(
                    P::EvacuatingEnds,
                    scene.evacuations.ends(&by.cell_id, *expires_at, scene),
                    || format!("{name}: {by:?} evacuates until {expires_at}"),
                );
                self.lives(guid, place, by, notes);
                let may_go = self.twins.get(place).is_some_and(|twin| twin.may_go && twin.by == *by);
                let twin = Twin { by: by.clone(), expires_at: *expires_at, may_go };
                self.twins.insert(place.clone(), twin);
            }
            evacuating::Event::Removed { place, cause } => {
                let name = name_of(guid, place);
                let Some(twin) = self.twins.remove(place) else {
                    let how = format!("{name}: no evacuating record to remove");
                    return notes.broken(P::EvacuatingKept, how);
                };
                let legal = match cause {
                    RemovalReason::CellLost => is_lost(&twin.by, scene),
                    RemovalReason::Expired => {
                        notes.saw(Situation::TwinExpired);
                        twin.expires_at <= scene.decision.at
                    }
                    RemovalReason::Replaced => {
                        notes.saw(Situation::TwinReplaced);
                        // Who runs at the index takes its place, and so does who evacuates it as something else.
                        let runs = self.at(place.index).any(|(_, lrp)| lrp.is_running());
                        runs || self.twins.keys().any(|other| other.index == place.index)
                    }
                    RemovalReason::Removed => {
                        let over = scene.evacuations.is_up(&twin.by.cell_id, twin.expires_at, scene);
                        let gone = !scene.truth.is_live(twin.by.instance_guid);
                        let runs = self.successors(place).into_iter().any(Lrp::is_running);
                        speaks(&twin.by, scene) && (runs || twin.may_go || over || gone)
                    }
                };
                notes.must(P::EvacuatingKept, legal, || {
                    format!("{name}: {cause:?} of an evacuating {twin:?}")
                });
                if self.at(place.index).all(|(_, lrp)| lrp.holder() != Some(&twin.by)) {
                    self.moved.insert(twin.by.instance_guid);
                }
            }
        }
    }

    fn actual(&mut self, guid: &ProcessGuid, event: &actual::Event, scene: &Scene<'_>, notes: &mut Notes) {
        for place in event.places().iter() {
            let before = self.lrps.remove(&place);
            let (after, wrong) = self.next(&place, before.as_ref(), event, scene, notes);
            if let Some((promise, why)) = wrong {
                let state = before.as_ref().map(|lrp| (&lrp.state, lrp.stopping, lrp.crashes, lrp.since));
                let name = name_of(guid, &place);
                notes.broken(promise, format!("{name} is {state:?} and {event:?}: {why}"));
            }
            if let actual::Event::StopRequested { .. } = event {
                self.stops.extend(before.as_ref().and_then(Lrp::holder).map(|by| by.instance_guid));
            }
            if let actual::Event::Removed { cause, .. } = event {
                let stopped = before.as_ref().is_some_and(|lrp| lrp.preempted && lrp.stopping);
                self.preempted |= stopped && *cause != StopReason::CellLost;
            }
            // Whoever takes over what is to stop is to stop as well.
            let stopping = after.as_ref().filter(|lrp| lrp.stopping).and_then(Lrp::holder);
            self.stops.extend(stopping.map(|by| by.instance_guid));
            self.takes_down(&place, before.as_ref(), event, scene);
            self.counts(before.as_ref(), after.as_ref());
            self.lrps.extend(after.map(|after| (place, after)));
        }
        let claim = match event {
            actual::Event::Claimed { place, by, .. } | actual::Event::Started { place, by, .. } => {
                Some((place, by))
            }
            actual::Event::Created { .. }
            | actual::Event::ExecStarted { .. }
            | actual::Event::Crashed { .. }
            | actual::Event::PlacementFailed { .. }
            | actual::Event::Unclaimed { .. }
            | actual::Event::StopRequested { .. }
            | actual::Event::Removed { .. } => None,
        };
        if let Some((place, by)) = claim {
            self.claimed(guid, (place, by), event, scene, notes);
        }
    }

    /// Work that waited is placed, or found no place.
    fn counts(&mut self, before: Option<&Lrp>, after: Option<&Lrp>) {
        let Some(State::Unclaimed { error }) = before.map(|lrp| &lrp.state) else { return };
        let had_error = error.is_some();
        match after.map(|lrp| &lrp.state) {
            Some(State::Claimed(_) | State::Running(_)) => self.evaluations.moved(had_error, true),
            Some(State::Unclaimed { error: Some(_) }) if !had_error => self.evaluations.moved(false, false),
            Some(State::Unclaimed { .. } | State::Crashed(_)) | None => {}
        }
    }

    /// A container was let in, or told of.
    fn claimed(
        &mut self,
        guid: &ProcessGuid,
        (place, by): (&Place, &Instance),
        event: &actual::Event,
        scene: &Scene<'_>,
        notes: &mut Notes,
    ) {
        self.lives(guid, place, by, notes);
        let name = name_of(guid, place);
        let constraint = self.definitions.get(&place.definition_id);
        if let (Node::Rep(at), Some(constraint)) = (rep_of(&by.cell_id), constraint) {
            let cell = scene.shape.cell(at);
            let fits = constraint.mismatch(&cell.offer()).is_none()
                && walls::are_kept(&constraint.isolation, &by.cell_id)
                && racks::unmet(constraint, &by.cell_id).is_none();
            notes.must(P::PlacementObeys, fits, || format!("{name} is on {}", by.cell_id));
        }
        let owner = self.wanted.as_ref().and_then(|wanted| wanted.owner(place.index));
        notes.must(P::OwnCellOnly, owner.is_none_or(|owner| *owner == by.cell_id), || {
            format!("{name} belongs to {owner:?} and is on {}", by.cell_id)
        });
        let key = ActualLrpKey::new(guid.clone(), place.clone());
        let work = WorkKey::Lrp { key, epoch: self.epoch };
        if let actual::Event::Claimed { placement, .. } = event {
            let known = scene.truth.is_known(by.instance_guid);
            let given = scene.placing.was_given(&by.cell_id, &work, placement.as_deref());
            notes.must(P::ClaimWasGiven, given || known && placement.is_none(), || {
                format!("{name} is claimed by {by:?} because of {placement:?}")
            });
        }
        self.claims.push((by.instance_guid, work));
    }

    /// A container is named by a record: nobody said that it has ended.
    fn lives(&self, guid: &ProcessGuid, place: &Place, by: &Instance, notes: &mut Notes) {
        notes.must(P::EndedStays, !self.ended.contains(&by.instance_guid), || {
            format!("{}: {} has ended", name_of(guid, place), by.instance_guid)
        });
    }

    /// Takes down which containers and definitions ran, and which containers have ended.
    fn takes_down(&mut self, place: &Place, before: Option<&Lrp>, event: &actual::Event, scene: &Scene<'_>) {
        let ended = match event {
            actual::Event::Crashed { by, .. } => Some(by),
            actual::Event::Removed { cause: StopReason::Stopped | StopReason::Crashed, .. } => {
                before.and_then(Lrp::holder).filter(|by| speaks(by, scene))
            }
            actual::Event::Started { by, .. } => {
                self.ran.insert(place.clone(), by.instance_guid);
                self.moved.remove(&by.instance_guid);
                None
            }
            actual::Event::Created { .. }
            | actual::Event::Claimed { .. }
            | actual::Event::ExecStarted { .. }
            | actual::Event::PlacementFailed { .. }
            | actual::Event::Unclaimed { .. }
            | actual::Event::StopRequested { .. }
            | actual::Event::Removed { .. } => None,
        };
        self.ended.extend(ended.map(|by| by.instance_guid));
    }

    /// What of it has to equal the services' own fold, in words.
    pub(super) fn in_words(&self) -> String {
        let lrps = self.lrps.iter().map(|(place, lrp)| {
            let state = match &lrp.state {
                State::Unclaimed { error } => format!("UNCLAIMED {error:?}"),
                State::Claimed(by) => format!("CLAIMED {}", by.instance_guid),
                State::Running(by) => format!("RUNNING {}", by.instance_guid),
                State::Crashed(_) => "CRASHED".into(),
            };
            format!("{} {state} {} {} {}", words_of_place(place), lrp.stopping, lrp.crashes, lrp.since)
        });
        let twin = |(place, twin): (&Place, &Twin)| {
            format!("{} twin {}", words_of_place(place), twin.by.instance_guid)
        };
        let all: Vec<String> = lrps.chain(self.twins.iter().map(twin)).collect();
        let wanted = self.wanted.as_ref();
        let ids: Vec<&DefinitionId> = self.definitions.keys().filter(|_| wanted.is_some()).collect();
        let wanted = wanted.map(|wanted| (wanted.instances, &wanted.active, wanted.healthy.as_ref()));
        let head = (self.version, self.epoch, wanted, self.evaluations.in_words(), ids);
        format!("{head:?} {all:?}")
    }
}

fn words_of_place(place: &Place) -> String {
    format!("{}@{}", place.index, place.definition_id)
}

/// What an instance is called in what is broken.
fn name_of(guid: &ProcessGuid, place: &Place) -> String {
    ActualLrpKey::new(guid.clone(), place.clone()).with_definition()
}

/// The same words of the services' own fold.
pub(super) fn words_of(process: &process::Process) -> String {
    let lrps = process.slots.iter().filter_map(|slot| Some((&slot.place, slot.actual.as_ref()?)));
    let lrps = lrps.map(|(place, lrp)| {
        let state = match &lrp.state {
            machines::actual::State::Unclaimed { placement_error } => {
                format!("UNCLAIMED {placement_error:?}")
            }
            machines::actual::State::Claimed { by, .. } => format!("CLAIMED {}", by.instance_guid),
            machines::actual::State::Running { by, .. } => format!("RUNNING {}", by.instance_guid),
            machines::actual::State::Crashed { .. } => "CRASHED".into(),
        };
        let place = words_of_place(place);
        format!("{place} {state} {} {} {}", lrp.is_stopping(), lrp.crash_count, lrp.since)
    });
    let twins = process.slots.iter().filter_map(|slot| Some((&slot.place, slot.evacuating.as_ref()?)));
    let twins =
        twins.map(|(place, twin)| format!("{} twin {}", words_of_place(place), twin.by.instance_guid));
    let all: Vec<String> = lrps.chain(twins).collect();
    let open = evaluations::words_of(&process.evaluations);
    let wanted = process.desired.as_ref().map(|desired| {
        (desired.instances, &desired.active_definition_id, desired.healthy_definition_id.as_ref())
    });
    let ids: BTreeSet<&DefinitionId> =
        process.desired.iter().flat_map(|desired| desired.definitions.iter().map(|(id, _)| id)).collect();
    let ids: Vec<&DefinitionId> = ids.into_iter().collect();
    format!("{:?} {all:?}", (process.version, process.epoch, wanted, open, ids))
}

/// Whether what happened in a decision makes work for this reason.
fn is_trigger(trigger: Trigger, (global, preempted): (bool, bool), events: &[Event]) -> bool {
    let stop = if preempted { Trigger::Preemption } else { Trigger::Stop };
    let why = |event: &Event| match event {
        Event::Desired(desired::Event::Desired(_)) => vec![Trigger::Desire],
        Event::Desired(desired::Event::Updated(_)) => vec![Trigger::Scale],
        Event::Actual(actual::Event::Unclaimed { cause, .. }) => vec![match cause {
            UnclaimReason::Crash => Trigger::Crash,
            UnclaimReason::Restart => Trigger::Restart,
            UnclaimReason::CellLost => Trigger::CellLost,
            UnclaimReason::Evacuation => Trigger::Evacuation,
        }],
        Event::Actual(actual::Event::Removed { cause, .. }) => match cause {
            StopReason::CellLost => vec![Trigger::CellLost],
            // It would have been unclaimed if it started again as what it was.
            StopReason::Replaced | StopReason::RolloutFailed => vec![
                Trigger::Crash,
                Trigger::Restart,
                Trigger::CellLost,
                Trigger::Evacuation,
                Trigger::Convergence,
            ],
            StopReason::Removed
            | StopReason::Scale
            | StopReason::CellUnfit
            | StopReason::Retired
            | StopReason::Superseded
            | StopReason::Undesired
            | StopReason::Preempted
            | StopReason::Stopped
            | StopReason::Crashed => vec![stop],
            StopReason::Evacuated => vec![stop, Trigger::Evacuation],
        },
        Event::Desired(desired::Event::CellsChanged { .. }) => vec![Trigger::CellsChanged],
        Event::Rollout(_) | Event::Desired(desired::Event::HealthyChanged { .. }) => {
            vec![if global { Trigger::RollingUpdate } else { Trigger::Rollout }]
        }
        Event::Evacuating(_) => vec![Trigger::Evacuation, Trigger::Stop],
        Event::Actual(actual::Event::StopRequested {
            cause: StopReason::Replaced | StopReason::RolloutFailed,
            ..
        }) => {
            let rolls = if global { Trigger::RollingUpdate } else { Trigger::Rollout };
            vec![Trigger::Convergence, rolls, Trigger::Stop]
        }
        Event::Actual(actual::Event::StopRequested { cause: StopReason::Preempted, .. }) => {
            vec![Trigger::Preemption]
        }
        // Where a rollout starts first, its target may have waited for this.
        Event::Actual(actual::Event::StopRequested { cause: StopReason::Retired, .. }) => vec![Trigger::Stop],
        Event::Desired(
            desired::Event::Removed {}
            | desired::Event::DefinitionAdded { .. }
            | desired::Event::Activated { .. }
            | desired::Event::Pruned { .. },
        )
        | Event::Actual(
            actual::Event::Created { .. }
            | actual::Event::Claimed { .. }
            | actual::Event::Started { .. }
            | actual::Event::ExecStarted { .. }
            | actual::Event::Crashed { .. }
            | actual::Event::PlacementFailed { .. }
            | actual::Event::StopRequested { .. },
        )
        | Event::Evaluation(_)
        | Event::Task(_)
        | Event::Periodic(_)
        | Event::Parameterised(_)
        | Event::Domain(_)
        | Event::Cell(_)
        | Event::Cluster(_) => vec![],
    };
    let reasons: Vec<Trigger> = events.iter().flat_map(why).collect();
    if reasons.is_empty() { trigger == Trigger::Convergence } else { reasons.contains(&trigger) }
}
