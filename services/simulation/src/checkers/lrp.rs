//! Processes: what each event of an instance, a twin or an evaluation may do, and what holds after every decision.

pub(super) mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::actual::{self, Ended, Unclaimed};
use schemas::container::{Epoch, Instance, WorkKey};
use schemas::definition::DesiredLrp;
use schemas::entry::{Aggregate, Event};
use schemas::evacuating::{self, Gone};
use schemas::evaluation::Trigger;
use schemas::names::{CellId, DefinitionId, Domain, InstanceGuid, ProcessGuid};
use schemas::resources::Constraint;
use schemas::subject::Position;
use schemas::{Timestamp, desired, evaluation, process};

use self::rules::{is_lost, may_speak, speaks};
use super::due::Thing;
use super::log::Log;
use super::orders::Orders;
use super::{Notes, Scene};
use crate::coverage::Situation;
use crate::nodes::{Node, rep_of};
use crate::promises::Promise as P;

/// So long what is gone is remembered, in time of its subject.
pub(super) const REMEMBERED: Duration = Duration::from_secs(600);

/// A process as the checker has it.
pub(super) struct Process {
    domain: Domain,
    epoch: Epoch,
    version: u64,
    wanted: Option<u32>,
    /// Whether somebody ever said how many instances shall run, and that is remembered.
    asked: bool,
    /// When it was last decided about.
    changed_at: Timestamp,
    lrps: BTreeMap<u32, Lrp>,
    twins: BTreeMap<u32, Twin>,
    /// The open evaluation: whether it is blocked.
    evaluation: Option<bool>,
    constraint: Constraint,
    claims: Vec<(InstanceGuid, WorkKey)>,
    stops: Vec<InstanceGuid>,
    /// Containers of which their reps said that they have ended.
    ended: BTreeSet<InstanceGuid>,
    /// The container of each index that was the last to run.
    ran: BTreeMap<u32, InstanceGuid>,
}

#[derive(Clone, Debug)]
struct Lrp {
    state: State,
    since: Timestamp,
    crashes: u32,
    stopping: bool,
    /// Where its state was entered.
    position: Position,
}

#[derive(Clone, Debug)]
enum State {
    Unclaimed { error: Option<String> },
    Claimed(Instance),
    Running(Instance),
    Crashed,
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
            State::Unclaimed { .. } | State::Crashed => None,
        }
    }

    const fn is_crashed(&self) -> bool {
        matches!(self.state, State::Crashed)
    }

    const fn is_unclaimed(&self) -> bool {
        matches!(self.state, State::Unclaimed { .. })
    }

    /// When a CRASHED instance may run again, as the crash policy has it (docs/model.md, "Crashes").
    fn restart_at(&self) -> Option<Timestamp> {
        restart_at(self.crashes, self.since)
    }
}

/// When an instance may run again that is CRASHED since then, and crashed so often.
pub(super) fn restart_at(crashes: u32, since: Timestamp) -> Option<Timestamp> {
    let doublings = crashes.saturating_sub(3).min(10);
    let wait = (30 * 2_u64.pow(doublings)).min(16 * 60);
    (crashes <= 200).then(|| since + Duration::from_secs(wait))
}

impl Process {
    pub(super) fn new(domain: &Domain, epoch: Epoch) -> Self {
        Self {
            domain: domain.clone(),
            epoch,
            version: 0,
            wanted: None,
            asked: false,
            changed_at: Timestamp(0),
            lrps: BTreeMap::new(),
            twins: BTreeMap::new(),
            evaluation: None,
            constraint: Constraint::default(),
            claims: vec![],
            stops: vec![],
            ended: BTreeSet::new(),
            ran: BTreeMap::new(),
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

    /// Whether a container was the last of its index of which the log said that it runs, in a life that goes on.
    pub(super) fn ran_last(&self, index: u32, epoch: Epoch, container: InstanceGuid) -> bool {
        self.epoch == epoch && self.ran.get(&index) == Some(&container)
    }

    fn wants(&self, index: u32) -> bool {
        self.wanted.is_some_and(|wanted| index < wanted)
    }

    /// Whether nobody remembers that it was ever desired.
    pub(super) const fn is_orphan(&self) -> bool {
        !self.asked
    }

    /// Whether somebody said how many instances shall run, and this is none of them.
    fn is_unwanted(&self, index: u32) -> bool {
        self.asked && !self.wants(index)
    }

    /// Takes a decision in, event by event, and says what is wrong with it.
    pub(super) fn judge(&mut self, guid: &ProcessGuid, scene: &Scene<'_>, notes: &mut Notes) {
        self.version = scene.decision.version;
        self.changed_at = scene.decision.at;
        for event in &scene.decision.events {
            match event {
                Event::Desired(event) => self.desired(guid, event, scene, notes),
                Event::Actual(event) => self.actual(guid, event, scene, notes),
                Event::Evacuating(event) => self.evacuating(guid, event, scene, notes),
                Event::Evaluation(event) => self.evaluation(guid, event, scene, notes),
                Event::Task(_) | Event::Domain(_) | Event::Cell(_) | Event::Cluster(_) => {}
            }
        }
        self.let_twins_go();
        self.holds(guid, scene, notes);
        self.stops(guid, scene, notes);
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
        for (index, lrp) in &self.lrps {
            if self.wants(*index) && lrp.is_crashed() && lrp.restart_at().is_some_and(|at| at <= *clock) {
                let what = format!("{guid}/{index} is CRASHED since {}, its wait is over", lrp.since);
                due.push(Thing::new(P::RestartNotLate, what));
            }
            if let Some(by) = lrp.holder().filter(|_| lrp.stopping) {
                due.push(of.orders.owed(&format!("{guid}/{index}"), by));
            }
            if !self.wants(*index) && !lrp.stopping && fresh {
                let what = format!("nobody desires {guid}/{index} since {}, which is there", lrp.since);
                due.push(Thing::for_convergence(P::UndesiredStops, what));
            }
            if lrp.holder().is_some_and(|by| log.absent_since(&by.cell_id).is_some()) {
                let what = format!("{guid}/{index} is said to be on an absent cell since {}", lrp.since);
                due.push(Thing::new(P::LostAtOnce, what));
            }
        }
        for (index, twin) in &self.twins {
            if twin.expires_at <= *clock {
                let what = format!("{guid}/{index} evacuates, its time was over at {}", twin.expires_at);
                due.push(Thing::new(P::EvacuatingEnds, what));
            }
            if log.absent_since(&twin.by.cell_id).is_some() {
                let what = format!("{guid}/{index} is said to evacuate an absent cell, {}", twin.by.cell_id);
                due.push(Thing::new(P::LostAtOnce, what));
            }
        }
        due
    }

    /// Whether an index is CRASHED and right to be: its wait is not over, or it is never restarted.
    pub(super) fn waits(&self, index: u32, now: Timestamp, slack: Duration) -> bool {
        let crashed = self.lrps.get(&index).filter(|lrp| lrp.is_crashed());
        crashed.is_some_and(|lrp| lrp.restart_at().is_none_or(|at| now < at + slack))
    }

    /// Instances that a cell holds since before a position.
    pub(super) fn held_by(&self, cell: &CellId, before: Position) -> impl Iterator<Item = u32> {
        let held =
            move |lrp: &Lrp| lrp.position < before && lrp.holder().is_some_and(|by| by.cell_id == *cell);
        self.lrps.iter().filter(move |(_, lrp)| held(lrp)).map(|(index, _)| *index)
    }

    fn let_twins_go(&mut self) {
        for (index, twin) in &mut self.twins {
            twin.may_go |= match self.lrps.get(index).map(|lrp| &lrp.state) {
                Some(State::Running(by)) => *by != twin.by,
                Some(State::Crashed) | None => true,
                Some(State::Unclaimed { .. } | State::Claimed(_)) => false,
            };
        }
    }

    /// What a client asks to stop is stopping or gone, whatever is known of its domain.
    fn stops(&self, guid: &ProcessGuid, scene: &Scene<'_>, notes: &mut Notes) {
        let mut told_off = scene.decision.events.iter().map(|event| match event {
            Event::Desired(desired::Event::Removed {}) => true,
            Event::Desired(desired::Event::Updated(update)) => update.instances.is_some(),
            Event::Desired(desired::Event::Desired(_))
            | Event::Actual(_)
            | Event::Evacuating(_)
            | Event::Evaluation(_)
            | Event::Task(_)
            | Event::Domain(_)
            | Event::Cell(_)
            | Event::Cluster(_) => false,
        });
        if told_off.any(|told_off| told_off) {
            let left = self.lrps.iter().find(|(index, lrp)| !lrp.stopping && !self.wants(**index));
            notes.must(P::StopWorks, left.is_none(), || format!("{guid} goes on with {left:?}"));
        }
        if let Some(index) = scene.log.retires(scene.decision) {
            let lrp = self.lrps.get(&index);
            let right = lrp.is_none_or(|lrp| lrp.stopping || lrp.since == scene.decision.at);
            notes.must(P::StopWorks, right, || format!("{guid}/{index} goes on as {lrp:?}"));
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
        for index in 0..self.wanted.unwrap_or(0) {
            notes.must(P::DesiredSound, self.lrps.contains_key(&index), || {
                format!("{guid}/{index} is wanted and has no record")
            });
        }
        let unwanted = |(index, lrp): &(&u32, &Lrp)| self.is_unwanted(**index) && !lrp.stopping;
        let left = self.lrps.iter().find(unwanted);
        notes.must(P::UnwantedEnds, left.is_none(), || format!("{guid} goes on with {left:?}"));
        let crash_told = scene
            .decision
            .events
            .iter()
            .any(|event| matches!(event, Event::Actual(actual::Event::Crashed { .. })));
        for (index, lrp) in &self.lrps {
            let stuck = matches!(lrp.state, State::Crashed) && lrp.crashes <= 3 && self.wants(*index);
            notes.must(P::CrashCounted, !(crash_told && stuck && lrp.since == scene.decision.at), || {
                format!("{guid}/{index} crashed {} times and does not restart at once", lrp.crashes)
            });
        }
        let failed = |lrp: &&Lrp| matches!(lrp.state, State::Unclaimed { error: Some(_) });
        let unclaimed = self.lrps.values().filter(|lrp| lrp.is_unclaimed()).count();
        let failed = self.lrps.values().filter(failed).count();
        let right = match self.evaluation {
            None => unclaimed == 0,
            Some(false) => unclaimed > failed,
            Some(true) => unclaimed > 0 && unclaimed == failed,
        };
        notes.must(P::WorkHasEvaluation, right, || {
            let open = self.evaluation.map(|blocked| if blocked { "blocked" } else { "pending" });
            format!(
                "{guid} has {unclaimed} UNCLAIMED, {failed} with an error, and its evaluation is {open:?}"
            )
        });
    }

    fn desired(&mut self, guid: &ProcessGuid, event: &desired::Event, scene: &Scene<'_>, notes: &mut Notes) {
        match event {
            desired::Event::Desired(lrp) => {
                let DesiredLrp { domain, instances, definition, .. } = &**lrp;
                self.constraint = definition.constraint.clone();
                notes.must(P::DesiredSound, self.wanted.is_none(), || format!("{guid} is desired twice"));
                let later = self.version <= 1 || self.epoch.0 < scene.decision.at;
                notes.must(P::OneLife, later, || {
                    format!("{guid}: a life that is not later than the one before")
                });
                self.epoch = Epoch(scene.decision.at);
                self.domain = domain.clone();
                self.wanted = Some(*instances);
                self.asked = true;
            }
            desired::Event::Updated(update) => {
                notes.must(P::DesiredSound, self.wanted.is_some(), || {
                    format!("{guid} is updated and nobody desires it")
                });
                if update.annotation.is_some() || update.routes.is_some() {
                    notes.saw(Situation::Described);
                }
                self.wanted = update.instances.or(self.wanted);
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

    fn evaluation(
        &mut self,
        guid: &ProcessGuid,
        event: &evaluation::Event,
        scene: &Scene<'_>,
        notes: &mut Notes,
    ) {
        let before = self.evaluation;
        let legal = match event {
            evaluation::Event::Created { .. } => before != Some(false),
            evaluation::Event::Blocked { .. }
            | evaluation::Event::Completed {}
            | evaluation::Event::Failed { .. }
            | evaluation::Event::Canceled {} => before.is_some(),
        };
        notes.must(P::EvaluationSound, legal, || {
            format!("{guid}: {event:?} of an evaluation that is {before:?}")
        });
        self.evaluation = match event {
            evaluation::Event::Created { trigger } => {
                notes.must(P::TellsTheTruth, is_trigger(*trigger, &scene.decision.events), || {
                    format!("{guid}: work that {trigger:?} made, by {:?}", scene.decision.events)
                });
                Some(false)
            }
            evaluation::Event::Blocked { reason } => {
                let known = |lrp: &Lrp| matches!(&lrp.state, State::Unclaimed { error: Some(error) } if error == reason);
                notes.must(P::TellsTheTruth, self.lrps.values().any(known), || {
                    format!("{guid} is blocked for {reason:?}, which is nothing's error")
                });
                notes.saw(Situation::EvaluationBlocked);
                Some(true)
            }
            evaluation::Event::Completed {} => {
                if before == Some(true) {
                    notes.saw(Situation::BlockedWorkPlaced);
                }
                None
            }
            evaluation::Event::Failed { .. } | evaluation::Event::Canceled {} => None,
        };
    }

    fn evacuating(
        &mut self,
        guid: &ProcessGuid,
        event: &evacuating::Event,
        scene: &Scene<'_>,
        notes: &mut Notes,
    ) {
        match event {
            evacuating::Event::Set { index, by, net, expires_at } => {
                notes.saw(Situation::TwinSet);
                let held = self.lrps.get(index).and_then(Lrp::holder) == Some(by);
                let legal = held || self.twins.get(index).is_none_or(|old| old.by == *by);
                notes.must(P::OneEvacuating, legal, || {
                    format!("{guid}/{index}: a second evacuating instance")
                });
                notes.must(P::OwnCellSpeaks, may_speak(by, scene), || {
                    format!("{guid}/{index}: {by:?} may not evacuate")
                });
                notes.must(P::RunsBeforeRunning, scene.truth.has_started(by.instance_guid), || {
                    format!("{guid}/{index}: {by:?} evacuates and never ran")
                });
                notes.must(P::TellsTheTruth, scene.truth.net(by.instance_guid) == Some(net), || {
                    format!("{guid}/{index}: {by:?} evacuates and is said to be reached at {net:?}")
                });
                notes.must(
                    P::EvacuatingEnds,
                    scene.evacuations.ends(&by.cell_id, *expires_at, scene),
                    || format!("{guid}/{index}: {by:?} evacuates until {expires_at}"),
                );
                self.lives(guid, *index, by, notes);
                let may_go = self.twins.get(index).is_some_and(|twin| twin.may_go && twin.by == *by);
                self.twins.insert(*index, Twin { by: by.clone(), expires_at: *expires_at, may_go });
            }
            evacuating::Event::Removed { index, cause } => {
                let Some(twin) = self.twins.remove(index) else {
                    return notes.broken(
                        P::EvacuatingKept,
                        format!("{guid}/{index}: no evacuating record to remove"),
                    );
                };
                let legal = match cause {
                    Gone::CellLost => is_lost(&twin.by, scene),
                    Gone::Expired => {
                        notes.saw(Situation::TwinExpired);
                        twin.expires_at <= scene.decision.at
                    }
                    Gone::Replaced => {
                        notes.saw(Situation::TwinReplaced);
                        matches!(&self.lrps.get(index).map(|lrp| &lrp.state), Some(State::Running(_)))
                    }
                    Gone::Removed => {
                        let over = scene.evacuations.is_up(&twin.by.cell_id, twin.expires_at, scene);
                        let gone = !scene.truth.is_live(twin.by.instance_guid);
                        let runs =
                            matches!(self.lrps.get(index).map(|lrp| &lrp.state), Some(State::Running(_)));
                        speaks(&twin.by, scene) && (runs || twin.may_go || over || gone)
                    }
                };
                notes.must(P::EvacuatingKept, legal, || {
                    format!("{guid}/{index}: {cause:?} of an evacuating {twin:?}")
                });
            }
        }
    }

    fn actual(&mut self, guid: &ProcessGuid, event: &actual::Event, scene: &Scene<'_>, notes: &mut Notes) {
        for index in event.indices().iter() {
            let before = self.lrps.remove(&index);
            let (after, wrong) = self.next(index, before.as_ref(), event, scene, notes);
            if let Some((promise, why)) = wrong {
                let state = before.as_ref().map(|lrp| (&lrp.state, lrp.stopping, lrp.crashes, lrp.since));
                notes.broken(promise, format!("{guid}/{index} is {state:?} and {event:?}: {why}"));
            }
            if let actual::Event::StopRequested { .. } = event {
                self.stops.extend(before.as_ref().and_then(Lrp::holder).map(|by| by.instance_guid));
            }
            // Whoever takes over what is to stop is to stop as well.
            let stopping = after.as_ref().filter(|lrp| lrp.stopping).and_then(Lrp::holder);
            self.stops.extend(stopping.map(|by| by.instance_guid));
            self.takes_down(index, before.as_ref(), event, scene);
            self.lrps.extend(after.map(|after| (index, after)));
        }
        let claim = match event {
            actual::Event::Claimed { index, by, .. } | actual::Event::Started { index, by, .. } => {
                Some((*index, by))
            }
            actual::Event::Created { .. }
            | actual::Event::Crashed { .. }
            | actual::Event::PlacementFailed { .. }
            | actual::Event::Unclaimed { .. }
            | actual::Event::StopRequested { .. }
            | actual::Event::Removed { .. } => None,
        };
        if let Some((index, by)) = claim {
            self.lives(guid, index, by, notes);
            if let Node::Rep(at) = rep_of(&by.cell_id) {
                let cell = scene.shape.cell(at);
                let fits = self.constraint.mismatch(&cell.stack, &cell.placement_tags).is_none();
                notes.must(P::PlacementObeys, fits, || format!("{guid}/{index} is on {}", by.cell_id));
            }
            let work = WorkKey::Lrp {
                process_guid: guid.clone(),
                index,
                definition_id: DefinitionId::new(guid.as_str()).expect("a name"),
                epoch: self.epoch,
            };
            if let actual::Event::Claimed { placement, .. } = event {
                let known = scene.truth.is_known(by.instance_guid);
                let given = scene.placing.was_given(&by.cell_id, &work, placement.as_deref());
                notes.must(P::ClaimWasGiven, given || known && placement.is_none(), || {
                    format!("{guid}/{index} is claimed by {by:?} because of {placement:?}")
                });
            }
            self.claims.push((by.instance_guid, work));
        }
    }

    /// A container is named by a record: nobody said that it has ended.
    fn lives(&self, guid: &ProcessGuid, index: u32, by: &Instance, notes: &mut Notes) {
        notes.must(P::EndedStays, !self.ended.contains(&by.instance_guid), || {
            format!("{guid}/{index}: {} has ended", by.instance_guid)
        });
    }

    /// Takes down which containers ran, and which have ended.
    fn takes_down(&mut self, index: u32, before: Option<&Lrp>, event: &actual::Event, scene: &Scene<'_>) {
        let ended = match event {
            actual::Event::Crashed { by, .. } => Some(by),
            actual::Event::Removed { cause: Ended::Stopped | Ended::Crashed, .. } => {
                before.and_then(Lrp::holder).filter(|by| speaks(by, scene))
            }
            actual::Event::Started { by, .. } => {
                self.ran.insert(index, by.instance_guid);
                None
            }
            actual::Event::Created { .. }
            | actual::Event::Claimed { .. }
            | actual::Event::PlacementFailed { .. }
            | actual::Event::Unclaimed { .. }
            | actual::Event::StopRequested { .. }
            | actual::Event::Removed { .. } => None,
        };
        self.ended.extend(ended.map(|by| by.instance_guid));
    }

    /// What of it has to equal the services' own fold, in words.
    pub(super) fn in_words(&self) -> String {
        let lrps = self.lrps.iter().map(|(index, lrp)| {
            let state = match &lrp.state {
                State::Unclaimed { error } => format!("UNCLAIMED {error:?}"),
                State::Claimed(by) => format!("CLAIMED {}", by.instance_guid),
                State::Running(by) => format!("RUNNING {}", by.instance_guid),
                State::Crashed => "CRASHED".into(),
            };
            format!("{index} {state} {} {} {}", lrp.stopping, lrp.crashes, lrp.since)
        });
        let twins = self.twins.iter().map(|(index, twin)| format!("{index} twin {}", twin.by.instance_guid));
        let all: Vec<String> = lrps.chain(twins).collect();
        let head = (self.version, self.epoch, self.wanted, self.evaluation);
        format!("{head:?} {all:?}")
    }
}

/// The same words of the services' own fold.
pub(super) fn words_of(process: &process::Process) -> String {
    let lrps = process.slots.iter().filter_map(|slot| Some((slot.index, slot.actual.as_ref()?)));
    let lrps = lrps.map(|(index, lrp)| {
        let state = match &lrp.state {
            actual::State::Unclaimed { placement_error } => {
                format!("UNCLAIMED {placement_error:?}")
            }
            actual::State::Claimed { by, .. } => format!("CLAIMED {}", by.instance_guid),
            actual::State::Running { by, .. } => format!("RUNNING {}", by.instance_guid),
            actual::State::Crashed => "CRASHED".into(),
        };
        format!("{index} {state} {} {} {}", lrp.is_stopping(), lrp.crash_count, lrp.since)
    });
    let twins = process.slots.iter().filter_map(|slot| Some((slot.index, slot.evacuating.as_ref()?)));
    let twins = twins.map(|(index, twin)| format!("{index} twin {}", twin.by.instance_guid));
    let all: Vec<String> = lrps.chain(twins).collect();
    let open = process.open_evaluation().map(|open| open.status != evaluation::Status::Pending);
    let wanted = process.desired.as_ref().map(|desired| desired.instances);
    format!("{:?} {all:?}", (process.version, process.epoch, wanted, open))
}

/// Whether what happened in a decision makes work for this reason.
fn is_trigger(trigger: Trigger, events: &[Event]) -> bool {
    let why = |event: &Event| match event {
        Event::Desired(desired::Event::Desired(_)) => vec![Trigger::Desire],
        Event::Desired(desired::Event::Updated(_)) => vec![Trigger::Scale],
        Event::Actual(actual::Event::Unclaimed { cause, .. }) => vec![match cause {
            Unclaimed::Crash => Trigger::Crash,
            Unclaimed::Restart => Trigger::Restart,
            Unclaimed::CellLost => Trigger::CellLost,
            Unclaimed::Evacuation => Trigger::Evacuation,
        }],
        Event::Actual(actual::Event::Removed { cause, .. }) => vec![match cause {
            Ended::CellLost => Trigger::CellLost,
            Ended::Removed
            | Ended::Scale
            | Ended::Retired
            | Ended::Superseded
            | Ended::Undesired
            | Ended::Stopped
            | Ended::Crashed
            | Ended::Evacuated => Trigger::Stop,
        }],
        Event::Desired(desired::Event::Removed {})
        | Event::Actual(
            actual::Event::Created { .. }
            | actual::Event::Claimed { .. }
            | actual::Event::Started { .. }
            | actual::Event::Crashed { .. }
            | actual::Event::PlacementFailed { .. }
            | actual::Event::StopRequested { .. },
        )
        | Event::Evacuating(_)
        | Event::Evaluation(_)
        | Event::Task(_)
        | Event::Domain(_)
        | Event::Cell(_)
        | Event::Cluster(_) => vec![],
    };
    let reasons: Vec<Trigger> = events.iter().flat_map(why).collect();
    if reasons.is_empty() { trigger == Trigger::Convergence } else { reasons.contains(&trigger) }
}
