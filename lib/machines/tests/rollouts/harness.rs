//! A simulated process with its cells, rep and auctioneer. Its definitions work, fail, are flaky or never
//! start. After each decision the invariants of a rollout are checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use machines::actual::{Actual, State};
use machines::process::{self, Context, Process};
use schemas::actual::{self, StopReason};
use schemas::container::Instance;
use schemas::definition::{Definition, DesiredLrp, DesiredLrpUpdate};
use schemas::entry::Event;
use schemas::isolation::Isolation;
use schemas::names::{CellId, DecisionId, DefinitionId};
use schemas::policy::{Policies, UpdateOrder, UpdatePolicy};
use schemas::process::{Command, Report, ReportStep, RolloutControl};
use schemas::stamp::Stamp;
use schemas::{Place, Refusal, Timestamp, evacuating, rollout};
use uuid::Uuid;

use crate::common::{domain, instance, lrp, net_info, outcome};

/// Behaviour of the instances of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behaviour {
    /// Runs.
    Works,
    /// Crashes before it runs.
    Fails,
    /// Crashes before it runs, at this index and all higher ones.
    FailsFrom(u32),
    /// Stays CLAIMED.
    Hangs,
    /// Runs, and crashes immediately.
    RunsAndCrashes,
    /// Fits no cell.
    DoesNotFit,
}

pub(super) const CELLS: u128 = 4;

/// A process, its cells, and simulated services that act on the log.
pub(super) struct Harness {
    pub(super) process: Option<Process>,
    pub(super) now: Timestamp,
    pub(super) behaviours: BTreeMap<DefinitionId, Behaviour>,
    pub(super) absent: BTreeSet<CellId>,
    pub(super) next_number: u128,
    pub(super) event_log: Vec<String>,
    /// Instances that were removed or asked to stop, with the reason.
    pub(super) ended: Vec<(Place, StopReason)>,
}

pub(super) fn id(name: &str) -> DefinitionId {
    DefinitionId::new(name).unwrap()
}

pub(super) fn definition(name: &str) -> Arc<Definition> {
    let mut definition = (*lrp("apps", 1).definition).clone();
    definition.memory_mb = name.bytes().map(u64::from).sum();
    Arc::new(definition)
}

impl Harness {
    pub(super) fn new(instances: u32, policies: Policies) -> Self {
        let mut stage = Self {
            process: None,
            now: Timestamp::from_millis(1_000_000_000),
            behaviours: BTreeMap::new(),
            absent: BTreeSet::new(),
            next_number: 0,
            event_log: vec![],
            ended: vec![],
        };
        let desired = DesiredLrp {
            instances,
            policies,
            definition_id: id("id1"),
            definition: definition("id1"),
            ..lrp("apps", instances)
        };
        stage.apply(&Command::Desire(Box::new(desired)));
        stage
    }

    /// Creates a process that runs its first definition at every index.
    pub(super) fn stable(instances: u32, policies: Policies) -> Self {
        let mut stage = Self::new(instances, policies);
        stage.settle();
        assert_eq!(stage.running(), (0..instances).map(|index| (index, "id1".to_owned())).collect());
        stage.event_log.clear();
        stage.ended.clear();
        stage
    }

    pub(super) fn process(&self) -> &Process {
        self.process.as_ref().unwrap()
    }

    pub(super) fn try_apply(&mut self, command: &Command) -> Result<Vec<Event>, Refusal> {
        self.now = self.now.next();
        let absent = self.absent.clone();
        let present = |cell: &CellId| !absent.contains(cell);
        let context = Context {
            now: self.now,
            is_fresh: true,
            is_present: &present,
            is_known: &|_| true,
            for_each_cell: &|_| {},
        };
        let events = process::decide(self.process.as_ref(), command, context)?;
        if events.is_empty() {
            return Ok(events);
        }
        let before = self.process.clone();
        self.next_number += 1;
        let decision = DecisionId(Uuid::from_u128(self.next_number));
        let stamp = Stamp::root(decision, self.now);
        let guid = lrp("apps", 1).process_guid;
        let epoch = schemas::container::Epoch(self.now);
        let process = self.process.get_or_insert_with(|| Process::new(guid, domain("apps"), epoch));
        process::evolve(process, &events, &stamp);
        self.record(&events);
        self.check(before.as_ref(), &events);
        Ok(events)
    }

    pub(super) fn apply(&mut self, command: &Command) -> Vec<Event> {
        self.try_apply(command).unwrap()
    }

    pub(super) fn update(&mut self, name: &str, behaves: Behaviour) {
        self.behaviours.insert(id(name), behaves);
        self.apply(&Command::Deploy {
            update: DesiredLrpUpdate::default(),
            definition_id: id(name),
            definition: definition(name),
        });
    }

    pub(super) fn scale(&mut self, instances: u32) {
        let update = DesiredLrpUpdate { instances: Some(instances), ..DesiredLrpUpdate::default() };
        self.apply(&Command::Update(update));
    }

    pub(super) fn report(
        &mut self,
        place: &Place,
        by: Instance,
        steps: Vec<ReportStep>,
    ) -> Result<Vec<Event>, Refusal> {
        let (epoch, observed_at) = (self.process().epoch, self.process().changed_at(place));
        let report = Report { domain: domain("apps"), place: place.clone(), epoch, by, observed_at, steps };
        self.try_apply(&Command::Report(report))
    }

    /// Performs the next action of the rep or the auctioneer for one instance. Returns `true` if there was
    /// such an action.
    pub(super) fn perform_next(&mut self, place: &Place) -> bool {
        let Some(lrp) = self.process().actual(place).cloned() else { return false };
        let behaves = *self.behaviours.get(&place.definition_id).unwrap_or(&Behaviour::Works);
        let step = |command| vec![ReportStep::Actual(command)];
        let crash =
            || step(actual::Command::Crash { reason: "exited with status 1".into(), exit_status: Some(1) });
        match lrp.state {
            State::Unclaimed { placement_error } if behaves == Behaviour::DoesNotFit => {
                let error = "insufficient resources: memory".to_owned();
                let unplaced = schemas::process::Unplaced { place: place.clone(), attempt: lrp.since, error };
                let outcome = outcome(Some(self.process()), vec![unplaced]);
                self.apply(&Command::Fail(outcome));
                placement_error.is_none()
            }
            State::Unclaimed { .. } => {
                self.next_number += 1;
                let cells: Vec<u128> =
                    (0..CELLS).filter(|cell| !self.absent.contains(&cell_id(*cell))).collect();
                let Some(cell) = cells.get(usize::try_from(self.next_number).unwrap() % cells.len().max(1))
                else {
                    return false;
                };
                let by = Instance { cell_id: cell_id(*cell), ..instance(self.next_number, "c0") };
                self.report(place, by, step(actual::Command::Claim { placement: None })).unwrap();
                true
            }
            State::Claimed { by, stopping: true } | State::Running { by, stopping: true, .. } => {
                self.report(place, by, step(actual::Command::Remove)).unwrap();
                true
            }
            State::Claimed { by, .. } => {
                let fails = match behaves {
                    Behaviour::Fails => true,
                    Behaviour::FailsFrom(index) => place.index >= index,
                    Behaviour::Works
                    | Behaviour::Hangs
                    | Behaviour::RunsAndCrashes
                    | Behaviour::DoesNotFit => false,
                };
                match behaves {
                    Behaviour::Hangs => return false,
                    _ if fails => self.report(place, by, crash()).unwrap(),
                    Behaviour::Works
                    | Behaviour::Fails
                    | Behaviour::FailsFrom(_)
                    | Behaviour::RunsAndCrashes
                    | Behaviour::DoesNotFit => self
                        .report(
                            place,
                            by,
                            step(actual::Command::Start { net: net_info(1), isolation: Isolation::NONE }),
                        )
                        .unwrap(),
                };
                true
            }
            State::Running { by, .. } if behaves == Behaviour::RunsAndCrashes => {
                self.report(place, by, crash()).unwrap();
                true
            }
            State::Running { .. } | State::Crashed { .. } => false,
        }
    }

    pub(super) fn places(&self) -> Vec<Place> {
        self.process().slots.iter().map(|slot| slot.place.clone()).collect()
    }

    /// Reports that the auctioneer found no cell for an instance.
    pub(super) fn unplaced(&mut self, place: &Place, error: &str) {
        let attempt = self.process().actual(place).unwrap().since;
        let unplaced = schemas::process::Unplaced { place: place.clone(), attempt, error: error.to_owned() };
        let outcome = outcome(Some(self.process()), vec![unplaced]);
        self.apply(&Command::Fail(outcome));
    }

    /// Performs actions until none is left, or at most 40 rounds if they never end.
    pub(super) fn settle(&mut self) {
        for _ in 0..40 {
            let mut acted = false;
            for place in self.places() {
                acted |= self.perform_next(&place);
            }
            acted |= !self.apply(&Command::Converge).is_empty();
            if !acted {
                return;
            }
        }
    }

    /// Advances the time and runs convergence whenever something is due.
    pub(super) fn pass(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        for _ in 0..200 {
            let Some(due) = self.process().next_due().filter(|due| *due <= until) else { break };
            self.now = self.now.max(due);
            assert!(
                !self.apply(&Command::Converge).is_empty(),
                "due at {due:?}, but no event follows\n{:#?}",
                self.event_log
            );
            self.settle();
        }
        self.now = self.now.max(until);
        self.settle();
    }

    pub(super) fn running(&self) -> BTreeSet<(u32, String)> {
        let running = |lrp: &Actual| lrp.is_running() && !lrp.is_stopping();
        let slots = self.process().slots.iter().filter(|slot| slot.actual.as_ref().is_some_and(running));
        slots.map(|slot| (slot.place.index, slot.place.definition_id.to_string())).collect()
    }

    pub(super) fn healthy(&self) -> Option<&str> {
        self.process().desired.as_ref()?.healthy_definition_id.as_ref().map(DefinitionId::as_str)
    }

    pub(super) fn definitions(&self) -> Vec<&str> {
        let desired = self.process().desired.as_ref().unwrap();
        desired.definitions.iter().map(|(id, _)| id.as_str()).collect()
    }

    pub(super) fn status(&self) -> &'static str {
        self.process().rollout.as_ref().map_or("", |rollout| rollout.status())
    }

    pub(super) fn record(&mut self, events: &[Event]) {
        for event in events {
            if let Event::Actual(
                actual::Event::StopRequested { places, cause } | actual::Event::Removed { places, cause },
            ) = event
            {
                self.ended.extend(places.iter().map(|place| (place, *cause)));
            }
            let line = match event {
                Event::Actual(actual::Event::Started { place, .. }) => {
                    format!("{}@{} runs", place.index, place.definition_id)
                }
                Event::Actual(actual::Event::Created { places }) => {
                    let each =
                        places.iter().map(|place| format!("{}@{} created", place.index, place.definition_id));
                    each.collect::<Vec<_>>().join("; ")
                }
                Event::Actual(actual::Event::StopRequested { places, .. }) => {
                    let each =
                        places.iter().map(|place| format!("{}@{} stops", place.index, place.definition_id));
                    each.collect::<Vec<_>>().join("; ")
                }
                Event::Actual(actual::Event::Crashed { place, .. }) => {
                    format!("{}@{} crashes", place.index, place.definition_id)
                }
                Event::Desired(schemas::desired::Event::HealthyChanged { definition_id }) => {
                    format!("{definition_id} is healthy")
                }
                Event::Desired(schemas::desired::Event::Pruned { definition_ids }) => {
                    format!("{definition_ids:?} pruned")
                }
                Event::Rollout(event) => match event {
                    rollout::Event::Started { kind, target, .. } => format!("{kind:?} to {target}"),
                    rollout::Event::Completed {} => "completed".to_owned(),
                    rollout::Event::Paused { reason, .. } => format!("paused: {reason}"),
                    rollout::Event::Stalled { index, .. } => format!("{index} stalls"),
                    rollout::Event::FellBack { index } => format!("{index} falls back"),
                    rollout::Event::Failed { index, .. } => format!("{index} fails"),
                    rollout::Event::IndicesStarted { .. }
                    | rollout::Event::TookOver { .. }
                    | rollout::Event::Replaced { .. }
                    | rollout::Event::Resumed {} => continue,
                },
                Event::Desired(_)
                | Event::Actual(_)
                | Event::Evacuating(_)
                | Event::Evaluation(_)
                | Event::Task(_)
                | Event::Periodic(_)
                | Event::Parameterised(_)
                | Event::Domain(_)
                | Event::Cell(_)
                | Event::Cluster(_) => continue,
            };
            self.event_log.push(line);
        }
    }

    pub(super) fn nth_held(&self, pick: usize) -> Option<(Place, Instance)> {
        let held = |slot: &process::Slot| Some((slot.place.clone(), slot.actual.as_ref()?.holder()?.clone()));
        let all: Vec<_> = self.process().slots.iter().filter_map(held).collect();
        all.get(pick % all.len().max(1)).cloned()
    }

    pub(super) fn evacuate(&mut self, pick: usize) {
        let Some((place, by)) = self.nth_held(pick).filter(|(_, by)| !self.absent.contains(&by.cell_id))
        else {
            return;
        };
        let runs = self.process().actual(&place).is_some_and(Actual::is_running);
        let expires_at = self.now + Duration::from_secs(100);
        let set = ReportStep::Evacuating(evacuating::Command::Set { net: net_info(1), expires_at });
        let give_up = ReportStep::Actual(actual::Command::Unclaim);
        let steps = if runs { vec![set, give_up.clone()] } else { vec![give_up.clone()] };
        if self.report(&place, by.clone(), steps).is_err() {
            self.report(&place, by, vec![give_up]).unwrap();
        }
    }

    pub(super) fn end_evacuation(&mut self, pick: usize) {
        let twin = |slot: &process::Slot| Some((slot.place.clone(), slot.evacuating.as_ref()?.by.clone()));
        let twins: Vec<_> = self.process().slots.iter().filter_map(twin).collect();
        let Some((place, by)) = twins.get(pick % twins.len().max(1)).cloned() else { return };
        if !self.absent.contains(&by.cell_id) {
            self.report(&place, by, vec![ReportStep::Evacuating(evacuating::Command::Remove)]).unwrap();
        }
    }

    /// Checks the invariants of a rollout after a decision.
    pub(super) fn check(&self, before: Option<&Process>, events: &[Event]) {
        let process = self.process();
        let told = || format!("{:#?}\n{events:#?}\n{process:#?}", self.event_log);
        let Some(desired) = &process.desired else { return };
        let knows = |id: &DefinitionId| desired.definition(id).is_some();
        assert!(knows(&desired.active_definition_id), "I1: active is a definition\n{}", told());
        assert!(desired.healthy_definition_id.iter().all(knows), "I2: healthy is a definition\n{}", told());
        assert!(desired.definitions.len() <= schemas::limits::DEFINITIONS);
        let rollout = process.rollout.as_deref();
        let live = rollout.filter(|rollout| !rollout.is_over());
        if let Some((rollout, to)) = live.and_then(|rollout| Some((rollout, rollout.rollback_to.as_ref()?))) {
            let kept = knows(to) || rollout.rollback_definition.is_some();
            assert!(kept, "I3: the definition that a rollback goes to is kept\n{}", told());
        }
        let indices: BTreeSet<u32> = process.slots.iter().map(|slot| slot.place.index).collect();
        for index in indices {
            let stays = |lrp: &Actual| !lrp.is_stopping();
            let slots = process.slots_at(index);
            let actuals = slots.clone().filter(|slot| slot.actual.as_ref().is_some_and(stays)).count();
            let twins = slots.filter(|slot| slot.evacuating.is_some()).count();
            assert!(actuals + twins <= 2, "I4: at most two at index {index}\n{}", told());
        }
        for slot in process.slots.iter().filter(|slot| slot.place.index < desired.instances) {
            let goes_on = slot.actual.as_ref().is_some_and(|lrp| !lrp.is_stopping());
            assert!(
                !goes_on || process.is_desired(&slot.place),
                "{:?} is undesired and \
                continues\n{}",
                slot.place,
                told()
            );
        }
        self.check_running(before, live, events, &told);
        if let (Some(rollout), Some(Event::Rollout(rollout::Event::Completed {}))) = (
            rollout,
            events.iter().find(|event| matches!(event, Event::Rollout(rollout::Event::Completed {}))),
        ) {
            for index in 0..desired.instances {
                let target = process.actual(&Place::new(index, rollout.target.clone()));
                assert!(target.is_some_and(Actual::is_running), "I10: {index} runs the target\n{}", told());
            }
        }
        let again = Context {
            now: self.now,
            is_fresh: true,
            is_present: &|cell| !self.absent.contains(cell),
            is_known: &|_| true,
            for_each_cell: &|_| {},
        };
        let in_time = process.next_due().is_none_or(|due| due > self.now);
        if in_time && events.iter().any(|event| matches!(event, Event::Rollout(_))) {
            let next = process::decide(Some(process), &Command::Steer(RolloutControl::Pause), again);
            if let Ok(next) = next {
                let more = next.iter().filter(|event| match event {
                    Event::Rollout(rollout) => !matches!(rollout, rollout::Event::Paused { .. }),
                    Event::Desired(_)
                    | Event::Actual(_)
                    | Event::Evacuating(_)
                    | Event::Evaluation(_)
                    | Event::Task(_)
                    | Event::Periodic(_)
                    | Event::Parameterised(_)
                    | Event::Domain(_)
                    | Event::Cell(_)
                    | Event::Cluster(_) => false,
                });
                assert_eq!(more.count(), 0, "everything follows in one decision\n{next:#?}\n{}", told());
            }
        }
    }

    pub(super) fn check_running(
        &self,
        before: Option<&Process>,
        live: Option<&machines::rollout::Rollout>,
        events: &[Event],
        told: &dyn Fn() -> String,
    ) {
        let (Some(before), Some(rollout)) = (before, live) else { return };
        let desired = self.process().desired.as_ref().unwrap();
        let runs = |process: &Process, index: u32| {
            process.actuals_at(index).filter(|(_, lrp)| lrp.is_running() && !lrp.is_stopping()).count()
        };
        let stops = |index: u32| {
            events.iter().any(|event| {
                let Event::Actual(actual::Event::StopRequested {
                    places,
                    cause: StopReason::Replaced | StopReason::RolloutFailed,
                }) = event
                else {
                    return false;
                };
                let place = Place::new(index, places.definition_id.clone());
                places.contains(&place) && before.actual(&place).is_some_and(Actual::is_running)
            })
        };
        for index in 0..desired.instances {
            let order = rollout.steps.get(&index).map_or(UpdateOrder::StartFirst, |step| step.order);
            let fell_back = Event::Rollout(rollout::Event::FellBack { index });
            if events.contains(&fell_back) {
                continue;
            }
            if order == UpdateOrder::StartFirst && stops(index) && runs(before, index) > 0 {
                assert!(
                    runs(self.process(), index) > 0,
                    "I5: start-first, {index} keeps running\n{}",
                    told()
                );
            }
        }
        let starting = rollout.steps.keys().filter(|index| {
            let target = self.process().actual(&Place::new(**index, rollout.target.clone()));
            target.is_some_and(|lrp| !lrp.is_running())
        });
        let begins = |event: &Event| matches!(event, Event::Rollout(rollout::Event::IndicesStarted { .. }));
        if events.iter().any(begins)
            && desired.healthy_definition_id.is_some()
            && before.desired.as_ref().is_some_and(|old| old.healthy_definition_id.is_some())
        {
            let most = rollout.policy.max_parallel_indices(desired.instances);
            assert!(
                starting.count() <= usize::try_from(most).unwrap(),
                "I7: at most {most} start\n{}",
                told()
            );
        }
    }
}

pub(super) fn cell_id(number: u128) -> CellId {
    CellId::new(&format!("c{number}")).unwrap()
}

pub(super) fn instances_at(
    definition: &str,
    indices: impl IntoIterator<Item = u32>,
) -> BTreeSet<(u32, String)> {
    indices.into_iter().map(|index| (index, definition.to_owned())).collect()
}

pub(super) fn policies(change: impl FnOnce(&mut UpdatePolicy)) -> Policies {
    let mut policies = Policies::default();
    change(&mut policies.update);
    policies
}
