//! Rollouts: the worked examples of "Updatable LRPs" step by step, and random updates, crashes, losses and evacuations, of
//! definitions that work, fail, are flaky or never start. After each decision the promises hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use schemas::actual::{self, Actual, Ended, State};
use schemas::container::Instance;
use schemas::definition::{Definition, DesiredLrp, DesiredLrpUpdate};
use schemas::entry::{Event, Stamp};
use schemas::names::{CellId, DecisionId, DefinitionId};
use schemas::policy::{FailureAction, Parallelism, Policies, UpdateOrder, UpdatePolicy};
use schemas::process::{self, Command, Context, Process, Report, ReportStep, Steer};
use schemas::rollout::{self, Phase};
use schemas::{Code, Place, Refusal, Timestamp, evacuating};
use uuid::Uuid;

use crate::given::{domain, instance, lrp, net};

/// How the instances of a definition behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    /// It runs.
    Works,
    /// It crashes before it runs.
    Fails,
    /// It crashes before it runs at all indices but 0.
    FailsAbove0,
    /// It stays CLAIMED.
    Hangs,
    /// It runs, and crashes at once.
    RunsAndCrashes,
    /// No cell takes it.
    DoesNotFit,
}

const CELLS: u128 = 4;

/// A process, its cells, and whoever does what the log asks.
struct Stage {
    process: Option<Process>,
    now: Timestamp,
    behaves: BTreeMap<DefinitionId, Behaviour>,
    absent: BTreeSet<CellId>,
    made: u128,
    told: Vec<String>,
    /// What was asked to stop or removed, and why.
    ended: Vec<(Place, Ended)>,
}

fn id(name: &str) -> DefinitionId {
    DefinitionId::new(name).unwrap()
}

fn definition(name: &str) -> Arc<Definition> {
    let mut definition = (*lrp("apps", 1).definition).clone();
    definition.memory_mb = name.bytes().map(u64::from).sum();
    Arc::new(definition)
}

impl Stage {
    fn new(instances: u32, policies: Policies) -> Self {
        let mut stage = Self {
            process: None,
            now: Timestamp::from_millis(1_000_000_000),
            behaves: BTreeMap::new(),
            absent: BTreeSet::new(),
            made: 0,
            told: vec![],
            ended: vec![],
        };
        let desired = DesiredLrp {
            instances,
            policies,
            definition_id: id("id1"),
            definition: definition("id1"),
            ..lrp("apps", instances)
        };
        stage.must(&Command::Desire(Box::new(desired)));
        stage
    }

    /// One that runs its first definition everywhere.
    fn stable(instances: u32, policies: Policies) -> Self {
        let mut stage = Self::new(instances, policies);
        stage.settle();
        assert_eq!(stage.running(), (0..instances).map(|index| (index, "id1".to_owned())).collect());
        stage.told.clear();
        stage.ended.clear();
        stage
    }

    fn process(&self) -> &Process {
        self.process.as_ref().unwrap()
    }

    fn do_(&mut self, command: &Command) -> Result<Vec<Event>, Refusal> {
        self.now = self.now.next();
        let absent = self.absent.clone();
        let present = |cell: &CellId| !absent.contains(cell);
        let context = Context { now: self.now, fresh: true, present: &present, numbered: &|_| {} };
        let events = process::decide(self.process.as_ref(), command, context)?;
        if events.is_empty() {
            return Ok(events);
        }
        let before = self.process.clone();
        self.made += 1;
        let decision = DecisionId(Uuid::from_u128(self.made));
        let stamp = Stamp { decision, correlation: decision, at: self.now, request: None };
        let guid = lrp("apps", 1).process_guid;
        let epoch = schemas::container::Epoch(self.now);
        let process = self.process.get_or_insert_with(|| Process::new(guid, domain("apps"), epoch));
        process::evolve(process, &events, &stamp);
        self.tell(&events);
        self.check(before.as_ref(), &events);
        Ok(events)
    }

    fn must(&mut self, command: &Command) -> Vec<Event> {
        self.do_(command).unwrap()
    }

    fn update(&mut self, name: &str, behaves: Behaviour) {
        self.behaves.insert(id(name), behaves);
        self.must(&Command::Deploy {
            update: DesiredLrpUpdate::default(),
            definition_id: id(name),
            definition: definition(name),
        });
    }

    fn scale(&mut self, instances: u32) {
        let update = DesiredLrpUpdate { instances: Some(instances), ..DesiredLrpUpdate::default() };
        self.must(&Command::Update(update));
    }

    fn report(&mut self, place: &Place, by: Instance, steps: Vec<ReportStep>) -> Result<Vec<Event>, Refusal> {
        let (epoch, judged) = (self.process().epoch, self.process().changed_at(place));
        let report = Report { domain: domain("apps"), place: place.clone(), epoch, by, judged, steps };
        self.do_(&Command::Report(report))
    }

    /// What a rep or the auctioneer does next about one instance. Whether there was something to do.
    fn act(&mut self, place: &Place) -> bool {
        let Some(lrp) = self.process().actual(place).cloned() else { return false };
        let behaves = *self.behaves.get(&place.definition_id).unwrap_or(&Behaviour::Works);
        let step = |command| vec![ReportStep::Actual(command)];
        let crash =
            || step(actual::Command::Crash { reason: "exited with status 1".into(), exit_status: Some(1) });
        match lrp.state {
            State::Unclaimed { placement_error } if behaves == Behaviour::DoesNotFit => {
                let error = "insufficient resources: memory".to_owned();
                let unplaced = process::Unplaced { place: place.clone(), attempt: lrp.since, error };
                self.must(&Command::Fail(vec![unplaced], None));
                placement_error.is_none()
            }
            State::Unclaimed { .. } => {
                self.made += 1;
                let cells: Vec<u128> =
                    (0..CELLS).filter(|cell| !self.absent.contains(&cell_id(*cell))).collect();
                let Some(cell) = cells.get(usize::try_from(self.made).unwrap() % cells.len().max(1)) else {
                    return false;
                };
                let by = Instance { cell_id: cell_id(*cell), ..instance(self.made, "c0") };
                self.report(place, by, step(actual::Command::Claim { placement: None })).unwrap();
                true
            }
            State::Claimed { by, stopping: true } | State::Running { by, stopping: true, .. } => {
                self.report(place, by, step(actual::Command::Remove)).unwrap();
                true
            }
            State::Claimed { by, .. } => {
                let fails =
                    behaves == Behaviour::Fails || behaves == Behaviour::FailsAbove0 && place.index > 0;
                match behaves {
                    Behaviour::Hangs => return false,
                    _ if fails => self.report(place, by, crash()).unwrap(),
                    Behaviour::Works
                    | Behaviour::Fails
                    | Behaviour::FailsAbove0
                    | Behaviour::RunsAndCrashes
                    | Behaviour::DoesNotFit => {
                        self.report(place, by, step(actual::Command::Start { net: net(1) })).unwrap()
                    }
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

    fn places(&self) -> Vec<Place> {
        self.process().slots.iter().map(|slot| slot.place.clone()).collect()
    }

    /// Everybody does what there is to do, until there is nothing or it goes on for ever.
    fn settle(&mut self) {
        for _ in 0..40 {
            let mut acted = false;
            for place in self.places() {
                acted |= self.act(&place);
            }
            acted |= !self.must(&Command::Converge).is_empty();
            if !acted {
                return;
            }
        }
    }

    /// Time passes, and whatever is due happens.
    fn pass(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        for _ in 0..200 {
            let Some(due) = self.process().next_due().filter(|due| *due <= until) else { break };
            self.now = self.now.max(due);
            assert!(
                !self.must(&Command::Converge).is_empty(),
                "due at {due:?} and nothing follows\n{:#?}",
                self.told
            );
            self.settle();
        }
        self.now = self.now.max(until);
        self.settle();
    }

    fn running(&self) -> BTreeSet<(u32, String)> {
        let running = |lrp: &Actual| lrp.is_running() && !lrp.is_stopping();
        let slots = self.process().slots.iter().filter(|slot| slot.actual.as_ref().is_some_and(running));
        slots.map(|slot| (slot.place.index, slot.place.definition_id.to_string())).collect()
    }

    fn healthy(&self) -> Option<&str> {
        self.process().desired.as_ref()?.healthy_definition_id.as_ref().map(DefinitionId::as_str)
    }

    fn definitions(&self) -> Vec<&str> {
        let desired = self.process().desired.as_ref().unwrap();
        desired.definitions.iter().map(|(id, _)| id.as_str()).collect()
    }

    fn status(&self) -> &'static str {
        self.process().rollout.as_ref().map_or("", |rollout| rollout.status())
    }

    fn tell(&mut self, events: &[Event]) {
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
                    rollout::Event::Begun { .. }
                    | rollout::Event::TookOver { .. }
                    | rollout::Event::Replaced { .. }
                    | rollout::Event::Resumed {} => continue,
                },
                Event::Desired(_)
                | Event::Actual(_)
                | Event::Evacuating(_)
                | Event::Evaluation(_)
                | Event::Task(_)
                | Event::Domain(_)
                | Event::Cell(_)
                | Event::Cluster(_) => continue,
            };
            self.told.push(line);
        }
    }

    /// The promises of a rollout, after every decision.
    fn check(&self, before: Option<&Process>, events: &[Event]) {
        let process = self.process();
        let told = || format!("{:#?}\n{events:#?}\n{process:#?}", self.told);
        let Some(desired) = &process.desired else { return };
        let knows = |id: &DefinitionId| desired.definition(id).is_some();
        assert!(knows(&desired.active_definition_id), "I1: active is a definition\n{}", told());
        assert!(desired.healthy_definition_id.iter().all(knows), "I2: healthy is a definition\n{}", told());
        assert!(desired.definitions.len() <= schemas::limits::DEFINITIONS);
        let rollout = process.rollout.as_deref();
        let live = rollout.filter(|rollout| !rollout.is_over());
        if let Some(to) = live.and_then(|rollout| rollout.rollback_to.as_ref()) {
            assert!(knows(to), "I3: what a rollback goes to is kept\n{}", told());
        }
        let indices: BTreeSet<u32> = process.slots.iter().map(|slot| slot.place.index).collect();
        for index in indices {
            let stays = |lrp: &Actual| !lrp.is_stopping();
            let slots = process.slots_at(index);
            let actuals = slots.iter().filter(|slot| slot.actual.as_ref().is_some_and(stays)).count();
            let twins = slots.iter().filter(|slot| slot.evacuating.is_some()).count();
            assert!(actuals + twins <= 2, "I4: at most two at index {index}\n{}", told());
        }
        for slot in process.slots.iter().filter(|slot| slot.place.index < desired.instances) {
            let goes_on = slot.actual.as_ref().is_some_and(|lrp| !lrp.is_stopping());
            assert!(!goes_on || process.wants(&slot.place), "{:?} goes on unwanted\n{}", slot.place, told());
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
            fresh: true,
            present: &|cell| !self.absent.contains(cell),
            numbered: &|_| {},
        };
        let in_time = process.next_due().is_none_or(|due| due > self.now);
        if in_time && events.iter().any(|event| matches!(event, Event::Rollout(_))) {
            let next = process::decide(Some(process), &Command::Steer(Steer::Pause), again);
            if let Ok(next) = next {
                let more = next.iter().filter(|event| match event {
                    Event::Rollout(rollout) => !matches!(rollout, rollout::Event::Paused { .. }),
                    Event::Desired(_)
                    | Event::Actual(_)
                    | Event::Evacuating(_)
                    | Event::Evaluation(_)
                    | Event::Task(_)
                    | Event::Domain(_)
                    | Event::Cell(_)
                    | Event::Cluster(_) => false,
                });
                assert_eq!(more.count(), 0, "everything follows in one decision\n{next:#?}\n{}", told());
            }
        }
    }

    fn check_running(
        &self,
        before: Option<&Process>,
        live: Option<&rollout::Rollout>,
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
                    cause: Ended::Replaced | Ended::RolloutFailed,
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
                    "I5: start-first, {index} goes on running\n{}",
                    told()
                );
            }
        }
        let starting = rollout.steps.keys().filter(|index| {
            let target = self.process().actual(&Place::new(**index, rollout.target.clone()));
            target.is_some_and(|lrp| !lrp.is_running())
        });
        let begins = |event: &Event| matches!(event, Event::Rollout(rollout::Event::Begun { .. }));
        if events.iter().any(begins)
            && desired.healthy_definition_id.is_some()
            && before.desired.as_ref().is_some_and(|old| old.healthy_definition_id.is_some())
        {
            let most = rollout.policy.indices_at_once(desired.instances);
            assert!(
                starting.count() <= usize::try_from(most).unwrap(),
                "I7: at most {most} start\n{}",
                told()
            );
        }
    }
}

fn cell_id(number: u128) -> CellId {
    CellId::new(&format!("c{number}")).unwrap()
}

fn on(definition: &str, indices: impl IntoIterator<Item = u32>) -> BTreeSet<(u32, String)> {
    indices.into_iter().map(|index| (index, definition.to_owned())).collect()
}

fn policies(change: impl FnOnce(&mut UpdatePolicy)) -> Policies {
    let mut policies = Policies::default();
    change(&mut policies.update);
    policies
}

#[test]
fn a_fully_functional_definition_rolls_from_index_0_start_before_stop() {
    let mut stage = Stage::stable(3, Policies::default());
    stage.update("id2", Behaviour::Works);
    assert_eq!(stage.running(), on("id1", 0..3));
    stage.settle();
    assert_eq!(
        stage.told,
        [
            "Update to id2",
            "0@id2 created",
            "0@id2 runs",
            "id2 is healthy",
            "0@id1 stops",
            "1@id2 created",
            "1@id2 runs",
            "1@id1 stops",
            "2@id2 created",
            "2@id2 runs",
            "2@id1 stops",
            "completed",
            "[id1] pruned",
        ]
    );
    assert_eq!(
        (stage.running(), stage.definitions(), stage.status()),
        (on("id2", 0..3), vec!["id2"], "completed")
    );
}

#[test]
fn a_failing_definition_is_tried_for_ever_while_the_old_one_runs_on() {
    let mut stage = Stage::stable(3, Policies::default());
    stage.update("id2", Behaviour::Fails);
    stage.settle();
    for _ in 0..30 {
        stage.pass(3600);
        assert_eq!((stage.running(), stage.healthy()), (on("id1", 0..3), Some("id1")));
    }
    let crashes = stage.told.iter().filter(|line| *line == "0@id2 crashes").count();
    assert!(crashes > 100, "{crashes} crashes: it is tried again and again");
    assert!(stage.told.iter().all(|line| !line.contains("1@id2")), "{:#?}", stage.told);
    // What crashes meanwhile restarts with the healthy definition.
    let place = Place::new(2, id("id1"));
    let by = stage.process().actual(&place).unwrap().holder().unwrap().clone();
    stage
        .report(
            &place,
            by,
            vec![ReportStep::Actual(actual::Command::Crash { reason: "x".into(), exit_status: None })],
        )
        .unwrap();
    stage.settle();
    assert_eq!(stage.running(), on("id1", 0..3));
}

#[test]
fn what_is_never_given_up_goes_on_after_200_crashes() {
    let mut stage = Stage::stable(1, Policies::default());
    stage.update("id2", Behaviour::Fails);
    stage.settle();
    stage.pass(300 * 16 * 60);
    let crashes = stage.told.iter().filter(|line| *line == "0@id2 crashes").count();
    assert!(crashes > 201, "{crashes} crashes");
}

#[test]
fn a_flaky_definition_gives_an_index_up_after_its_deadline_and_goes_on() {
    let mut stage = Stage::stable(3, Policies::default());
    stage.update("id2", Behaviour::FailsAbove0);
    stage.settle();
    assert_eq!(stage.healthy(), Some("id2"));
    assert_eq!(stage.running(), on("id2", [0]).union(&on("id1", 1..3)).cloned().collect());
    stage.pass(599);
    assert!(!stage.told.iter().any(|line| line.contains("stalls")), "{:#?}", stage.told);
    stage.pass(2);
    assert!(stage.told.contains(&"1 stalls".to_owned()) && stage.told.contains(&"2@id2 created".to_owned()));
    stage.pass(620);
    assert_eq!(stage.status(), "updating");
    assert_eq!(stage.running(), on("id2", [0]).union(&on("id1", 1..3)).cloned().collect());
    // Once it works, what was given up is tried again.
    stage.behaves.insert(id("id2"), Behaviour::Works);
    stage.pass(3600);
    assert_eq!((stage.running(), stage.status()), (on("id2", 0..3), "completed"));
}

#[test]
fn a_new_definition_during_a_rollout_begins_at_index_0() {
    let mut stage = Stage::stable(4, Policies::default());
    stage.update("id2", Behaviour::Works);
    while !stage.told.contains(&"2@id2 created".to_owned()) {
        let acted: Vec<bool> = stage.places().iter().map(|place| stage.act(place)).collect();
        assert!(acted.contains(&true));
    }
    stage.told.clear();
    stage.update("id3", Behaviour::Works);
    assert_eq!(stage.told[..2], ["Update to id3", "0@id3 created"]);
    assert!(stage.process().actual(&Place::new(2, id("id2"))).is_none_or(Actual::is_stopping));
    assert!(stage.running().contains(&(2, "id1".to_owned())));
    stage.settle();
    assert_eq!((stage.running(), stage.definitions()), (on("id3", 0..4), vec!["id3"]));
    let stops: Vec<_> = stage.told.iter().filter(|line| line.ends_with("stops")).collect();
    assert_eq!(stops, ["0@id2 stops", "1@id2 stops", "2@id1 stops", "3@id1 stops"]);
}

#[test]
fn a_rollback_goes_to_what_was_healthy_and_is_not_rolled_back() {
    let mut stage = Stage::stable(
        4,
        policies(|update| {
            update.failure_action = FailureAction::Rollback;
            update.monitor_ms = 5_000;
        }),
    );
    // The first definition had to survive its monitor, too.
    stage.pass(10);
    assert_eq!(stage.healthy(), Some("id1"));
    stage.update("id2", Behaviour::RunsAndCrashes);
    stage.settle();
    assert_eq!((stage.running(), stage.healthy()), (on("id1", 0..4), Some("id1")));
    stage.pass(10);
    assert_eq!(stage.status(), "rollback_completed");
    stage.pass(60);
    assert_eq!(stage.definitions(), ["id1"]);
    assert!(stage.told.contains(&"Rollback to id1".to_owned()), "{:#?}", stage.told);
}

#[test]
fn what_a_rollout_gives_up_ends_because_of_that_and_not_because_another_takes_its_place() {
    let (place, failed) = (|index, name| Place::new(index, id(name)), Ended::RolloutFailed);
    // It is too late at its index.
    let mut stage = Stage::stable(2, Policies::default());
    stage.update("id2", Behaviour::FailsAbove0);
    stage.settle();
    stage.pass(601);
    assert_eq!(stage.told.iter().filter(|line| *line == "1 stalls").count(), 1, "{:#?}", stage.told);
    let gone = |end: &&(Place, Ended)| end.1 != Ended::Stopped;
    let ends: Vec<_> = stage.ended.iter().filter(gone).cloned().collect();
    assert_eq!(ends, [(place(0, "id1"), Ended::Replaced), (place(1, "id2"), failed)]);
    // Too many fail: what failed goes, and what is still being started elsewhere.
    for action in [FailureAction::Pause, FailureAction::Continue, FailureAction::Rollback] {
        let mut stage = Stage::stable(
            3,
            policies(|update| {
                update.failure_action = action;
                update.parallelism = Parallelism::Count(2);
            }),
        );
        stage.update("id2", Behaviour::Hangs);
        stage.settle();
        stage.behaves.insert(id("id2"), Behaviour::Fails);
        assert!(stage.act(&place(0, "id2")));
        let goes_back = action == FailureAction::Rollback;
        let ends: &[_] = &[(place(0, "id2"), failed), (place(1, "id2"), failed)];
        assert_eq!(stage.ended, ends[..1 + usize::from(goes_back)], "{action:?}");
    }
    // Who goes back by hand, or asks for something else, replaces it.
    for by_hand in [true, false] {
        let mut stage = Stage::stable(1, Policies::default());
        stage.update("id2", Behaviour::Hangs);
        stage.settle();
        if by_hand {
            stage.must(&Command::Steer(Steer::RollBack));
        } else {
            stage.update("id3", Behaviour::Works);
        }
        assert_eq!(stage.ended, [(place(0, "id2"), Ended::Replaced)]);
    }
}

#[test]
fn nothing_healthy_is_nothing_to_protect_and_nothing_to_go_back_to() {
    let mut stage = Stage::new(3, policies(|update| update.failure_action = FailureAction::Rollback));
    stage.behaves.insert(id("id1"), Behaviour::Fails);
    stage.settle();
    stage.update("id2", Behaviour::Fails);
    let created = stage.told.iter().filter(|line| line.contains("@id2 created")).count();
    assert_eq!(created, 1, "all three in one event: {:#?}", stage.told);
    assert!((0..3).all(|index| stage.process().actual(&Place::new(index, id("id2"))).is_some()));
    stage.settle();
    assert_eq!(stage.status(), "paused");
    let refused = stage.do_(&Command::Steer(Steer::RollBack)).unwrap_err();
    assert_eq!(refused.code, Code::InvalidStateTransition);
    assert!(refused.to_string().contains("nothing to go back to"), "{refused}");
}

#[test]
fn a_paused_rollout_begins_nothing_and_a_canary_waits() {
    let mut stage = Stage::stable(4, policies(|update| update.pause_after = Some(1)));
    stage.update("id2", Behaviour::Works);
    stage.settle();
    assert_eq!((stage.status(), stage.running().iter().filter(|(_, id)| id == "id2").count()), ("paused", 1));
    stage.must(&Command::Steer(Steer::Resume));
    stage.settle();
    assert_eq!((stage.status(), stage.running()), ("completed", on("id2", 0..4)));
}

#[test]
fn stop_first_never_runs_two_and_keeps_as_many_running_as_it_says() {
    let mut stage = Stage::stable(
        4,
        policies(|update| {
            update.order = UpdateOrder::StopFirst;
            update.parallelism = Parallelism::Count(2);
        }),
    );
    stage.update("id2", Behaviour::Works);
    let mut least = 4;
    for _ in 0..40 {
        for place in stage.places() {
            stage.act(&place);
            let indices: Vec<u32> = stage.running().iter().map(|(index, _)| *index).collect();
            let distinct: BTreeSet<u32> = indices.iter().copied().collect();
            assert_eq!(indices.len(), distinct.len(), "I6");
            least = least.min(indices.len());
        }
    }
    assert_eq!((least, stage.status(), stage.running()), (2, "completed", on("id2", 0..4)));
}

#[test]
fn what_has_no_room_beside_the_old_one_takes_its_room_if_enough_others_run() {
    for (min_running, falls_back) in [(None, false), (Some(2), true)] {
        let policies = Policies { min_running, ..Policies::default() };
        let mut stage = Stage::stable(3, policies);
        stage.update("id2", Behaviour::DoesNotFit);
        stage.settle();
        stage.pass(120);
        assert_eq!(stage.told.contains(&"0 falls back".to_owned()), falls_back, "{:#?}", stage.told);
        assert_eq!(stage.running().len(), if falls_back { 2 } else { 3 });
    }
}

#[test]
fn policies_that_could_never_stop_an_instance_are_refused_and_nothing_is_done() {
    let mut stage = Stage::stable(3, Policies::default());
    let mut never = policies(|update| update.order = UpdateOrder::StopFirst);
    never.min_running = Some(3);
    let update = |instances, policies| DesiredLrpUpdate {
        instances,
        policies: Some(policies),
        ..DesiredLrpUpdate::default()
    };
    let before = stage.process().clone();
    let deploy = Command::Deploy {
        update: update(None, never.clone()),
        definition_id: id("id2"),
        definition: definition("id2"),
    };
    for refused in [&Command::Update(update(None, never.clone())), &deploy] {
        let refusal = stage.do_(refused).unwrap_err();
        assert_eq!((refusal.code, refusal.fields.len()), (Code::InvalidRequest, 1), "{refusal}");
    }
    assert_eq!(*stage.process(), before);
    stage.must(&Command::Update(update(Some(4), never)));
}

#[test]
fn the_same_definition_under_another_name_rolls_nothing_out() {
    let mut stage = Stage::stable(2, Policies::default());
    let deploy = Command::Deploy {
        update: DesiredLrpUpdate::default(),
        definition_id: id("other"),
        definition: definition("id1"),
    };
    assert_eq!(stage.must(&deploy), []);
    assert_eq!(stage.must(&Command::Activate { definition_id: id("id1") }), []);
    let unknown = stage.do_(&Command::Activate { definition_id: id("id9") }).unwrap_err();
    assert_eq!((unknown.code, unknown.to_string().contains("id1")), (Code::ResourceNotFound, true));
    let taken = Command::Deploy {
        update: DesiredLrpUpdate::default(),
        definition_id: id("id1"),
        definition: definition("id2"),
    };
    assert_eq!(stage.do_(&taken).unwrap_err().code, Code::ResourceExists);
    stage.must(&Command::Restart);
    stage.settle();
    assert_eq!(stage.running().len(), 2);
    assert!(stage.definitions()[0].starts_with("id1-restart-"), "{:?}", stage.definitions());
}

#[test]
fn a_deployment_holds_16_definitions() {
    let mut stage = Stage::stable(1, Policies::default());
    for number in 2..=16 {
        stage.update(&format!("id{number}"), Behaviour::Hangs);
    }
    let one_more = Command::Deploy {
        update: DesiredLrpUpdate::default(),
        definition_id: id("id17"),
        definition: definition("id17 is another one"),
    };
    let refused = stage.do_(&one_more).unwrap_err();
    assert_eq!(refused.code, Code::ResourceConflict, "{refused}");
    stage.settle();
    stage.must(&one_more);
}

/// What may happen next.
#[derive(Clone, Debug)]
enum Move {
    Act(usize),
    Update(usize, Behaviour),
    Behave(usize, Behaviour),
    Activate(usize),
    Restart,
    Steer(Steer),
    Scale(u32),
    Crash(usize),
    Retire(u32),
    Lose(u128),
    Return(u128),
    Evacuate(usize),
    TwinGone(usize),
    Report(u32, usize),
    Converge,
    Pass(u64),
}

fn any_behaviour() -> impl Strategy<Value = Behaviour> {
    use Behaviour as B;
    prop_oneof![
        6 => Just(B::Works),
        1 => Just(B::Fails),
        1 => Just(B::FailsAbove0),
        1 => Just(B::Hangs),
        1 => Just(B::RunsAndCrashes),
        1 => Just(B::DoesNotFit),
    ]
}

fn any_policy() -> impl Strategy<Value = UpdatePolicy> {
    let parallelism = prop_oneof![(1..4_u32).prop_map(Parallelism::Count), Just(Parallelism::Percent(50))];
    let order = prop_oneof![2 => Just(UpdateOrder::StartFirst), 1 => Just(UpdateOrder::StopFirst)];
    let action = prop_oneof![
        Just(FailureAction::Hold),
        Just(FailureAction::Pause),
        Just(FailureAction::Continue),
        Just(FailureAction::Rollback)
    ];
    let ratio = prop_oneof![Just(0.0), Just(0.3), Just(1.0)];
    let after = prop_oneof![3 => Just(None), 1 => Just(Some(1))];
    let times = (prop_oneof![Just(0), Just(7_000_u64)], prop_oneof![Just(0), Just(5_000_u64)]);
    (parallelism, order, action, ratio, after, times).prop_map(
        |(parallelism, order, failure_action, ratio, pause_after, (delay_ms, monitor_ms))| UpdatePolicy {
            parallelism,
            order,
            failure_action,
            max_failure_ratio: ratio.try_into().unwrap(),
            pause_after,
            delay_ms,
            monitor_ms,
            index_deadline_ms: 60_000,
        },
    )
}

fn any_move() -> impl Strategy<Value = Move> {
    let steer = prop_oneof![Just(Steer::Pause), Just(Steer::Resume), Just(Steer::RollBack)];
    prop_oneof![
        40 => any::<usize>().prop_map(Move::Act),
        3 => (2..6_usize, any_behaviour()).prop_map(|(number, behaves)| Move::Update(number, behaves)),
        2 => (1..6_usize, any_behaviour()).prop_map(|(number, behaves)| Move::Behave(number, behaves)),
        1 => (1..6_usize).prop_map(Move::Activate),
        1 => Just(Move::Restart),
        2 => steer.prop_map(Move::Steer),
        2 => (0..6_u32).prop_map(Move::Scale),
        2 => any::<usize>().prop_map(Move::Crash),
        1 => (0..6_u32).prop_map(Move::Retire),
        1 => (0..CELLS).prop_map(Move::Lose),
        2 => (0..CELLS).prop_map(Move::Return),
        2 => any::<usize>().prop_map(Move::Evacuate),
        2 => any::<usize>().prop_map(Move::TwinGone),
        1 => (0..6_u32, 1..6_usize).prop_map(|(index, number)| Move::Report(index, number)),
        4 => Just(Move::Converge),
        4 => (1..400_u64).prop_map(Move::Pass),
    ]
}

fn name(number: usize) -> String {
    format!("id{number}")
}

impl Stage {
    fn held(&self, pick: usize) -> Option<(Place, Instance)> {
        let held = |slot: &process::Slot| Some((slot.place.clone(), slot.actual.as_ref()?.holder()?.clone()));
        let all: Vec<_> = self.process().slots.iter().filter_map(held).collect();
        all.get(pick % all.len().max(1)).cloned()
    }

    fn make(&mut self, what: &Move) {
        match what {
            Move::Act(pick) => {
                let places = self.places();
                if let Some(place) = places.get(pick % places.len().max(1)) {
                    self.act(&place.clone());
                }
            }
            Move::Update(number, behaves) => {
                self.behaves.insert(id(&name(*number)), *behaves);
                drop(self.do_(&Command::Deploy {
                    update: DesiredLrpUpdate::default(),
                    definition_id: id(&name(*number)),
                    definition: definition(&name(*number)),
                }));
            }
            Move::Behave(number, behaves) => drop(self.behaves.insert(id(&name(*number)), *behaves)),
            Move::Activate(number) => {
                drop(self.do_(&Command::Activate { definition_id: id(&name(*number)) }));
            }
            Move::Restart => drop(self.do_(&Command::Restart)),
            Move::Steer(steer) => drop(self.do_(&Command::Steer(*steer))),
            Move::Scale(instances) => self.scale(*instances),
            Move::Crash(pick) => {
                if let Some((place, by)) = self.held(*pick) {
                    let crash = actual::Command::Crash { reason: "killed".into(), exit_status: None };
                    self.report(&place, by, vec![ReportStep::Actual(crash)]).unwrap();
                }
            }
            Move::Retire(index) => drop(self.do_(&Command::Retire { index: *index, definition_id: None })),
            Move::Lose(cell) => {
                self.absent.insert(cell_id(*cell));
                while !self.must(&Command::Converge).is_empty() {}
            }
            Move::Return(cell) => drop(self.absent.remove(&cell_id(*cell))),
            Move::Evacuate(pick) => self.evacuate(*pick),
            Move::TwinGone(pick) => self.twin_gone(*pick),
            Move::Report(index, number) => {
                let by = Instance { cell_id: cell_id(0), ..instance(9_000_000 + self.made, "c0") };
                let start = actual::Command::Start { net: net(3) };
                let place = Place::new(*index, id(&name(*number)));
                drop(self.report(&place, by, vec![ReportStep::Actual(start)]));
            }
            Move::Converge => drop(self.must(&Command::Converge)),
            Move::Pass(seconds) => self.now = self.now + Duration::from_secs(*seconds),
        }
    }

    fn evacuate(&mut self, pick: usize) {
        let Some((place, by)) = self.held(pick).filter(|(_, by)| !self.absent.contains(&by.cell_id)) else {
            return;
        };
        let runs = self.process().actual(&place).is_some_and(Actual::is_running);
        let expires_at = self.now + Duration::from_secs(100);
        let set = ReportStep::Evacuating(evacuating::Command::Set { net: net(1), expires_at });
        let give_up = ReportStep::Actual(actual::Command::Unclaim);
        let steps = if runs { vec![set, give_up.clone()] } else { vec![give_up.clone()] };
        if self.report(&place, by.clone(), steps).is_err() {
            self.report(&place, by, vec![give_up]).unwrap();
        }
    }

    fn twin_gone(&mut self, pick: usize) {
        let twin = |slot: &process::Slot| Some((slot.place.clone(), slot.evacuating.as_ref()?.by.clone()));
        let twins: Vec<_> = self.process().slots.iter().filter_map(twin).collect();
        let Some((place, by)) = twins.get(pick % twins.len().max(1)).cloned() else { return };
        if !self.absent.contains(&by.cell_id) {
            self.report(&place, by, vec![ReportStep::Evacuating(evacuating::Command::Remove)]).unwrap();
        }
    }

    /// Whatever happened: in peace, with definitions that work, everything ends on the active one.
    fn peace(&mut self) {
        self.absent.clear();
        self.behaves.clear();
        let policies = Some(Policies::default());
        self.must(&Command::Update(DesiredLrpUpdate { policies, ..DesiredLrpUpdate::default() }));
        for _ in 0..60 {
            if self.process().rollout.as_ref().is_some_and(|rollout| rollout.phase == Phase::Paused) {
                self.must(&Command::Steer(Steer::Resume));
            }
            self.settle();
            self.pass(1200);
        }
        let desired = self.process().desired.as_ref().unwrap();
        let active = desired.active_definition_id.as_str();
        assert_eq!(
            self.running(),
            on(active, 0..desired.instances),
            "{:#?}\n{:#?}",
            self.told,
            self.process()
        );
        assert!(desired.instances == 0 || self.healthy() == Some(active), "{:#?}", self.told);
        assert!(
            self.process().rollout.as_ref().is_none_or(|rollout| rollout.is_over()),
            "{:#?}",
            self.process()
        );
        assert_eq!(self.process().next_due(), None, "{:#?}", self.process());
        assert_eq!(self.must(&Command::Converge), [], "a second pass finds nothing");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_promises_hold_and_peace_comes(
        instances in 1..5_u32,
        update in any_policy(),
        rollback in any_policy(),
        min_running in prop_oneof![2 => Just(None), 1 => (0..3_u32).prop_map(Some)],
        moves in prop::collection::vec(any_move(), 1..160),
    ) {
        let rollback = match rollback.failure_action {
            FailureAction::Rollback => UpdatePolicy { failure_action: FailureAction::Pause, ..rollback },
            FailureAction::Hold | FailureAction::Pause | FailureAction::Continue => rollback,
        };
        let mut stage = Stage::new(instances, Policies { update, rollback, min_running, ..Policies::default() });
        for what in &moves {
            stage.make(what);
        }
        stage.peace();
    }
}

/// What takes the place of an evacuating instance runs, and its rep says in the same report that the evacuating record may
/// go, while a third instance of the index is still about to leave: the record goes once.
#[test]
fn an_evacuating_record_goes_once() {
    let mut stage = Stage::stable(1, Policies::default());
    let (old, new) = (Place::new(0, id("id1")), Place::new(0, id("id2")));
    stage.update("id2", Behaviour::Hangs);
    stage.act(&new);
    stage.must(&Command::Activate { definition_id: id("id1") });
    stage.evacuate(0);
    stage.act(&old);
    let by = stage.process().actual(&old).and_then(Actual::holder).cloned().unwrap();
    let start = ReportStep::Actual(actual::Command::Start { net: net(1) });
    let gone = ReportStep::Evacuating(evacuating::Command::Remove);
    let events = stage.report(&old, by, vec![start, gone]).unwrap();
    let removed = |event: &&Event| matches!(event, Event::Evacuating(evacuating::Event::Removed { .. }));
    assert_eq!(events.iter().filter(removed).count(), 1, "{events:#?}");
}
