//! Tests of global processes. A global process has one instance on each suitable cell, at the index that is
//! the cell's ordinal (SwarmKit orchestrators, "Global orchestrator"). In the tests, cells appear, are lost,
//! evacuated and cordoned, definitions change, and instances crash.

use std::collections::BTreeMap;
use std::time::Duration;

use machines::actual::State;
use machines::cell::Cell;
use machines::cluster::{self, Cluster};
use machines::process::{self, Context, Process};
use proptest::prelude::*;
use schemas::actual::{self, StopReason};
use schemas::attributes::AttributeName;
use schemas::container::{Epoch, Instance};
use schemas::definition::{Definition, DesiredLrp, DesiredLrpUpdate, Mode};
use schemas::entry::Event;
use schemas::evaluation::Trigger;
use schemas::isolation::Isolation;
use schemas::names::{CellId, ClusterId, DecisionId, DefinitionId, FolderId, Incarnation, Stack, Zone};
use schemas::process::{Command, Report, ReportStep};
use schemas::resources::Constraint;
use schemas::rules::{Operator, Rule, Rules, Spread};
use schemas::stamp::Stamp;
use schemas::{Code, Origin, Place, Refusal, Timestamp, cell, evacuating};
use uuid::Uuid;

use crate::common::{domain, instance, lrp, net_info};

const CELLS: u32 = 4;

/// A global process, the cells, and simulated services that act on the log.
struct Harness {
    process: Option<Process>,
    cells: BTreeMap<CellId, Cell>,
    cluster: Cluster,
    now: Timestamp,
    last_number: u128,
    ended: Vec<(u32, StopReason)>,
    triggers: Vec<Trigger>,
}

fn id(name: &str) -> DefinitionId {
    DefinitionId::new(name).unwrap()
}

fn name(cell: u32) -> CellId {
    CellId::new(&format!("c{cell}")).unwrap()
}

/// Returns a definition for cells with this stack. The content of the definition depends on the name.
fn definition(name: &str, stack: &str) -> std::sync::Arc<Definition> {
    let mut definition = (*lrp("apps", 1).definition).clone();
    definition.memory_mb = name.bytes().map(u64::from).sum();
    definition.constraint =
        Constraint { stack: Some(Stack::new(stack).unwrap()), ..Constraint::default() }.into();
    definition.into()
}

impl Harness {
    fn new(cells: u32) -> Self {
        let founded =
            schemas::cluster::Event::Founded { id: ClusterId(Uuid::from_u128(1)), shards: 4, format: 1 };
        let mut stage = Self {
            process: None,
            cells: BTreeMap::new(),
            cluster: cluster::evolve(None, &founded, Timestamp(0)).unwrap(),
            now: Timestamp::from_millis(1_000_000_000),
            last_number: 0,
            ended: vec![],
            triggers: vec![],
        };
        (0..cells).for_each(|cell| stage.appear(cell, "linux"));
        stage.apply(&Command::Desire(Box::new(DesiredLrp {
            mode: Mode::Global,
            definition_id: id("v1"),
            definition: definition("v1", "linux"),
            ..lrp("apps", 0)
        })));
        stage.settle();
        stage
    }

    fn process(&self) -> &Process {
        self.process.as_ref().unwrap()
    }

    fn stamp(&mut self) -> Stamp {
        self.last_number += 1;
        self.now = self.now.next();
        let decision = DecisionId(Uuid::from_u128(self.last_number));
        Stamp::root(decision, self.now)
    }

    fn cell(&mut self, cell: u32, event: &cell::Event) {
        let stamp = self.stamp();
        let after = machines::cell::evolve(self.cells.remove(&name(cell)), event, &stamp);
        self.cells.extend(after.map(|after| (name(cell), after)));
        let known = self.cells.keys().collect();
        for event in cluster::decide_ordinals(&self.cluster, &known) {
            self.cluster = cluster::evolve(Some(self.cluster.clone()), &event, self.now).unwrap();
        }
    }

    fn appear(&mut self, cell: u32, stack: &str) {
        let presence = cell::Presence {
            folder: FolderId(Uuid::from_u128(1)),
            incarnation: Incarnation(Uuid::from_u128(self.last_number)),
            zone: Zone::new("z1").unwrap(),
            stack: Stack::new(stack).unwrap(),
            placement_tags: [].into(),
            attributes: fixtures::attributes(&[]),
            total: schemas::resources::Resources::for_container(1_000, 1_000, 10),
        };
        self.cell(cell, &cell::Event::Appeared(presence));
    }

    fn try_apply(&mut self, command: &Command) -> Result<Vec<Event>, Refusal> {
        let stamp = self.stamp();
        let (cells, ordinals) = (self.cells.clone(), self.cluster.ordinals.clone());
        let present = |cell: &CellId| cells.get(cell).is_some_and(|cell| cell.present);
        let numbered = |visit: process::CellVisitor<'_>| {
            for (ordinal, id) in &ordinals {
                cells.get(id).into_iter().for_each(|cell| visit(*ordinal, id, cell));
            }
        };
        let context = Context {
            now: self.now,
            is_fresh: true,
            is_present: &present,
            is_known: &|_| true,
            for_each_cell: &numbered,
        };
        let events = process::decide(self.process.as_ref(), command, context)?;
        if !events.is_empty() {
            self.fold(command, &events, &stamp);
        }
        Ok(events)
    }

    fn fold(&mut self, command: &Command, events: &[Event], stamp: &Stamp) {
        if let (
            Command::Converge,
            [Event::Desired(schemas::desired::Event::CellsChanged { cells, removed }), ..],
        ) = (command, events)
        {
            let origin = process::origin(self.process.as_ref(), command, events);
            assert!(matches!(origin, Origin::CellChange(_)), "the origin is not a cell: {origin:?}");
            assert_eq!(cells.len() as u64 + removed.len(), 1, "one cell for each decision");
        }
        let guid = lrp("apps", 1).process_guid;
        let process = self.process.get_or_insert_with(|| Process::new(guid, domain("apps"), Epoch(stamp.at)));
        process::evolve(process, events, stamp);
        for event in events {
            match event {
                Event::Actual(
                    actual::Event::StopRequested { places, cause } | actual::Event::Removed { places, cause },
                ) => self.ended.extend(places.iter().map(|place| (place.index, *cause))),
                Event::Evaluation(schemas::evaluation::Event::Created { trigger, .. }) => {
                    self.triggers.push(*trigger);
                }
                Event::Actual(_)
                | Event::Desired(_)
                | Event::Evacuating(_)
                | Event::Rollout(_)
                | Event::Evaluation(_)
                | Event::Task(_)
                | Event::Periodic(_)
                | Event::Parameterised(_)
                | Event::Domain(_)
                | Event::Cell(_)
                | Event::Cluster(_) => {}
            }
        }
        self.check();
    }

    /// Checks the invariants that hold after every decision.
    fn check(&self) {
        let process = self.process();
        let desired = process.desired.as_ref().unwrap();
        assert_eq!(desired.instances as usize, desired.cells.as_ref().unwrap().len());
        for slot in process.slots.iter() {
            let holder = slot.actual.as_ref().filter(|lrp| !lrp.is_stopping()).and_then(|lrp| lrp.holder());
            let only = desired.only_cell(slot.place.index);
            assert_eq!(holder.map(|by| &by.cell_id), only.filter(|_| holder.is_some()), "{process:#?}");
        }
    }

    fn apply(&mut self, command: &Command) -> Vec<Event> {
        self.try_apply(command).unwrap()
    }

    fn update(&mut self, name: &str, stack: &str) {
        let definition = definition(name, stack);
        let update = DesiredLrpUpdate::default();
        self.apply(&Command::Deploy { update, definition_id: id(name), definition });
    }

    fn report(&mut self, place: &Place, by: Instance, step: ReportStep) -> Result<Vec<Event>, Refusal> {
        let (epoch, observed_at) = (self.process().epoch, self.process().changed_at(place));
        let (place, steps) = (place.clone(), vec![step]);
        self.try_apply(&Command::Report(Report {
            domain: domain("apps"),
            place,
            epoch,
            by,
            observed_at,
            steps,
        }))
    }

    /// Performs the next action of the auctioneer or the rep for one instance. Returns `true` if an action
    /// was due.
    fn perform_next(&mut self, place: &Place) -> bool {
        let Some(lrp) = self.process().actual(place).cloned() else { return false };
        let step = |command| ReportStep::Actual(command);
        let is_there = |by: &Instance| self.cells.get(&by.cell_id).is_some_and(|cell| cell.present);
        if !lrp.holder().is_none_or(is_there) {
            return false;
        }
        match lrp.state {
            State::Unclaimed { .. } => {
                let only = self.process().desired.as_ref().unwrap().only_cell(place.index).unwrap().clone();
                let takes = |cell: &&Cell| cell.present && !cell.cordoned && !cell.evacuating;
                if self.cells.get(&only).filter(takes).is_none() {
                    return false;
                }
                self.last_number += 1;
                let by = Instance { cell_id: only, ..instance(self.last_number, "c0") };
                self.report(place, by, step(actual::Command::Claim { placement: None })).unwrap();
            }
            State::Claimed { by, stopping: true } | State::Running { by, stopping: true, .. } => {
                self.report(place, by, step(actual::Command::Remove)).unwrap();
            }
            State::Claimed { by, stopping: false } => {
                self.report(
                    place,
                    by,
                    step(actual::Command::Start { net: net_info(1), isolation: Isolation::NONE }),
                )
                .unwrap();
            }
            State::Running { .. } | State::Crashed { .. } => return false,
        }
        true
    }

    fn settle(&mut self) {
        for _ in 0..60 {
            let places: Vec<Place> = self.process().slots.iter().map(|slot| slot.place.clone()).collect();
            let mut acted = false;
            for place in places {
                acted |= self.perform_next(&place);
            }
            acted |= !self.apply(&Command::Converge).is_empty();
            match self.process().next_due() {
                None if !acted => return,
                Some(due) if !acted => self.now = self.now.max(due),
                Some(_) | None => {}
            }
        }
        panic!("does not settle: {:#?}", self.process());
    }

    /// Returns the running instances: index, definition, cell.
    fn running(&self) -> Vec<String> {
        let slots = self.process().slots.iter();
        let running = slots.filter_map(|slot| {
            let lrp = slot.actual.as_ref().filter(|lrp| lrp.keeps_running())?;
            Some(format!("{}@{} on {}", slot.place.index, slot.place.definition_id, lrp.holder()?.cell_id))
        });
        running.collect()
    }
}

#[test]
fn global_process_follows_cells_that_appear_vanish_and_evacuate() {
    let mut stage = Harness::new(2);
    assert_eq!(stage.running(), ["0@v1 on c0", "1@v1 on c1"]);
    assert_eq!(stage.triggers, [Trigger::Desire], "desired by a client");
    let process = stage.process();
    let projected = process.desired.as_ref().unwrap().project(&process.guid, &process.domain).unwrap();
    assert_eq!((projected.mode, projected.instances), (Mode::Global, 0));
    stage.appear(2, "linux");
    stage.appear(3, "windows");
    stage.settle();
    assert_eq!(stage.running(), ["0@v1 on c0", "1@v1 on c1", "2@v1 on c2"], "the other cell does not fit");
    assert_eq!(stage.triggers.last(), Some(&Trigger::CellsChanged));
    // The instance of a lost cell is not replaced elsewhere. When the cell returns, its instance starts at
    // the same index.
    stage.cell(1, &cell::Event::Disappeared { reason: "silent".into() });
    stage.settle();
    assert_eq!(stage.running(), ["0@v1 on c0", "2@v1 on c2"]);
    assert_eq!(stage.ended, [(1, StopReason::CellLost)]);
    stage.appear(1, "linux");
    stage.settle();
    assert_eq!(stage.running(), ["0@v1 on c0", "1@v1 on c1", "2@v1 on c2"]);
    // On an evacuated cell, the instance stops. No instance starts elsewhere.
    stage.ended.clear();
    stage.cell(0, &cell::Event::EvacuationRequested {});
    stage.settle();
    assert_eq!(stage.running(), ["1@v1 on c1", "2@v1 on c2"]);
    assert_eq!(stage.ended, [(0, StopReason::Evacuated), (0, StopReason::Stopped)]);
    stage.cell(0, &cell::Event::EvacuationWithdrawn {});
    stage.settle();
    assert_eq!(stage.running().len(), 3);
}

#[test]
fn forgotten_cell_frees_its_ordinal_and_lowest_is_assigned_first() {
    let mut stage = Harness::new(3);
    stage.cell(1, &cell::Event::Disappeared { reason: "silent".into() });
    stage.cell(1, &cell::Event::Forgotten {});
    stage.appear(7, "linux");
    stage.settle();
    assert_eq!(stage.running(), ["0@v1 on c0", "1@v1 on c7", "2@v1 on c2"]);
    stage.appear(1, "linux");
    stage.settle();
    assert_eq!(stage.running()[3], "3@v1 on c1");
}

#[test]
fn cordoned_cell_keeps_its_instance_and_is_skipped_by_rollout() {
    let mut stage = Harness::new(3);
    stage.cell(1, &cell::Event::Cordoned {});
    stage.settle();
    stage.update("v2", "linux");
    stage.settle();
    assert_eq!(stage.running(), ["0@v2 on c0", "1@v1 on c1", "2@v2 on c2"]);
    assert!(
        stage.process().rollout.as_ref().unwrap().is_over(),
        "a rollout does not wait for \
        cordoned cells"
    );
    // An instance that crashes on a cordoned or evacuated cell waits.
    let place = Place::new(1, id("v1"));
    let by = stage.process().actual(&place).unwrap().holder().unwrap().clone();
    let crash = actual::Command::Crash { reason: "exited with status 1".into(), exit_status: Some(1) };
    stage.report(&place, by, ReportStep::Actual(crash)).unwrap();
    stage.settle();
    assert!(stage.process().actual(&place).unwrap().is_unclaimed());
    // After the uncordon, the cell runs the active definition.
    stage.cell(1, &cell::Event::Uncordoned {});
    stage.settle();
    assert_eq!(stage.running(), ["0@v2 on c0", "1@v2 on c1", "2@v2 on c2"]);
}

#[test]
fn update_with_other_stack_moves_process_to_fitting_cells() {
    let mut stage = Harness::new(2);
    stage.appear(2, "windows");
    stage.settle();
    stage.update("v2", "windows");
    stage.settle();
    assert_eq!(stage.running(), ["2@v2 on c2"]);
    assert_eq!(stage.ended[..2], [(0, StopReason::CellUnfit), (1, StopReason::CellUnfit)]);
    assert!(stage.ended.iter().all(|(_, cause)| *cause != StopReason::Scale));
}

#[test]
fn unclaimed_instance_ends_with_reason_of_its_cell() {
    type Happens = fn(&mut Harness);
    let cases: [(Happens, StopReason); 3] = [
        (|stage| stage.cell(1, &cell::Event::Disappeared { reason: "silent".into() }), StopReason::CellLost),
        (|stage| stage.cell(1, &cell::Event::EvacuationRequested {}), StopReason::Evacuated),
        (|stage| stage.update("v2", "windows"), StopReason::CellUnfit),
    ];
    for (happens, cause) in cases {
        let mut stage = Harness::new(1);
        stage.appear(1, "linux");
        stage.apply(&Command::Converge);
        assert!(stage.process().actual(&Place::new(1, id("v1"))).unwrap().is_unclaimed());
        happens(&mut stage);
        stage.apply(&Command::Converge);
        assert_eq!(stage.ended.last(), Some(&(1, cause)));
    }
}

#[test]
fn instance_on_returned_unfit_cell_is_stopped() {
    let mut stage = Harness::new(2);
    let place = Place::new(1, id("v1"));
    let by = stage.process().actual(&place).unwrap().holder().unwrap().clone();
    stage.cell(1, &cell::Event::Disappeared { reason: "silent".into() });
    stage.settle();
    stage.appear(1, "windows");
    stage.settle();
    stage.ended.clear();
    let start = ReportStep::Actual(actual::Command::Start { net: net_info(1), isolation: Isolation::NONE });
    stage.report(&place, by, start).unwrap();
    assert_eq!(stage.ended, [(1, StopReason::CellUnfit)]);
    stage.settle();
    assert_eq!(stage.running(), ["0@v1 on c0"]);
}

#[test]
fn index_rejects_claim_of_other_cell_scale_and_evacuation() {
    let mut stage = Harness::new(2);
    let place = Place::new(0, id("v1"));
    stage.apply(&Command::Retire { index: 0, definition_id: None });
    stage.perform_next(&place);
    let by = Instance { cell_id: name(1), ..instance(900, "c0") };
    let claim = ReportStep::Actual(actual::Command::Claim { placement: None });
    let refused = stage.report(&place, by.clone(), claim).unwrap_err();
    assert_eq!(refused.code, Code::ActualLrpCannotBeClaimed);
    assert!(refused.message.contains("index 0 belongs to cell c0"), "{refused:?}");
    let start = ReportStep::Actual(actual::Command::Start { net: net_info(1), isolation: Isolation::NONE });
    assert_eq!(stage.report(&place, by, start).unwrap_err().code, Code::ActualLrpCannotBeStarted);
    // A count of 2 is refused, too, although it equals the current number.
    for count in [5, 2] {
        let update = DesiredLrpUpdate { instances: Some(count), ..DesiredLrpUpdate::default() };
        assert_eq!(stage.try_apply(&Command::Update(update)).unwrap_err().code, Code::InvalidRequest);
    }
    stage.settle();
    let by = stage.process().actual(&place).unwrap().holder().unwrap().clone();
    let set = evacuating::Command::Set { net: net_info(1), expires_at: stage.now + Duration::from_secs(60) };
    let refused = stage.report(&place, by, ReportStep::Evacuating(set)).unwrap_err();
    assert_eq!(refused.code, Code::ActualLrpCannotBeEvacuated);
}

#[derive(Clone, Debug)]
enum Move {
    Appear(u32, bool),
    Lose(u32),
    Forget(u32),
    Evacuate(u32, bool),
    Cordon(u32, bool),
    Update(u8, bool),
    Act(usize),
    Converge,
}

fn any_move() -> impl Strategy<Value = Move> {
    let cell = || 0..CELLS;
    prop_oneof![
        3 => (cell(), prop::bool::weighted(0.8)).prop_map(|(cell, fits)| Move::Appear(cell, fits)),
        2 => cell().prop_map(Move::Lose),
        1 => cell().prop_map(Move::Forget),
        2 => (cell(), any::<bool>()).prop_map(|(cell, on)| Move::Evacuate(cell, on)),
        2 => (cell(), any::<bool>()).prop_map(|(cell, on)| Move::Cordon(cell, on)),
        2 => (0..4_u8, prop::bool::weighted(0.8)).prop_map(|(name, fits)| Move::Update(name, fits)),
        6 => (0..8_usize).prop_map(Move::Act),
        3 => Just(Move::Converge),
    ]
}

const fn stack(fits: bool) -> &'static str {
    if fits { "linux" } else { "windows" }
}

impl Harness {
    fn apply_move(&mut self, one: &Move) {
        let (present, known) = {
            let of = |cell: &u32| self.cells.get(&name(*cell));
            let present = |cell: &u32| of(cell).is_some_and(|cell| cell.present);
            match one {
                Move::Appear(cell, _)
                | Move::Lose(cell)
                | Move::Forget(cell)
                | Move::Evacuate(cell, _)
                | Move::Cordon(cell, _) => (present(cell), of(cell).is_some()),
                Move::Update(..) | Move::Act(_) | Move::Converge => (true, true),
            }
        };
        match one {
            Move::Appear(cell, fits) if !present => self.appear(*cell, stack(*fits)),
            Move::Lose(cell) if present => {
                self.cell(*cell, &cell::Event::Disappeared { reason: "silent".into() });
            }
            Move::Forget(cell) if known && !present => self.cell(*cell, &cell::Event::Forgotten {}),
            Move::Evacuate(cell, true) if present => self.cell(*cell, &cell::Event::EvacuationRequested {}),
            Move::Evacuate(cell, false) if known => self.cell(*cell, &cell::Event::EvacuationWithdrawn {}),
            Move::Cordon(cell, true) if known => self.cell(*cell, &cell::Event::Cordoned {}),
            Move::Cordon(cell, false) if known => self.cell(*cell, &cell::Event::Uncordoned {}),
            Move::Appear(..) | Move::Lose(_) | Move::Forget(_) | Move::Evacuate(..) | Move::Cordon(..) => {}
            Move::Update(number, fits) => self.update(&format!("v{number}-{fits}"), stack(*fits)),
            Move::Act(at) => {
                let place = self.process().slots.iter().nth(*at).map(|slot| slot.place.clone());
                if let Some(place) = place {
                    self.perform_next(&place);
                }
            }
            Move::Converge => drop(self.apply(&Command::Converge)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn fitting_cells_run_active_definition_after_random_moves(
        moves in prop::collection::vec(any_move(), 1..40),
    ) {
        let mut stage = Harness::new(2);
        moves.iter().for_each(|one| stage.apply_move(one));
        stage.settle();
        let desired = stage.process().desired.clone().unwrap();
        let active = &desired.active_definition_id;
        let definition = desired.definition(active).unwrap().clone();
        let running = stage.running();
        for (ordinal, id) in &stage.cluster.ordinals {
            let cell = &stage.cells[id];
            let fits = definition.constraint.mismatch(&cell.presence.offer(id)).is_none();
            let stays = cell.present && !cell.evacuating && !cell.evacuation_requested && fits;
            let runs = running.contains(&format!("{ordinal}@{active} on {id}"));
            prop_assert!(!stays || cell.cordoned || runs, "{id} {ordinal}: {running:?} {moves:?}");
            prop_assert!(stays || !running.iter().any(|line| line.ends_with(&format!(" on {id}"))), "{running:?}");
        }
        prop_assert_eq!(desired.cells.unwrap().len(), desired.instances as usize);
    }
}

#[test]
fn update_with_rules_for_several_instances_is_refused() {
    let mut stage = Harness::new(2);
    let rack: AttributeName = "rack".parse().unwrap();
    let distinct = Rule { attribute: None, operator: Operator::DistinctCell, value: String::new().into() };
    let spread = Spread { attribute: rack.clone(), weight: 50, targets: BTreeMap::new() };
    let is_set = Rule { attribute: Some(rack), operator: Operator::IsSet, value: String::new().into() };
    let mut deploy = |rules: Rules| {
        let mut definition = (*definition("v2", "linux")).clone();
        std::sync::Arc::make_mut(&mut definition.constraint).rules = Some(Box::new(rules));
        let (update, definition) = (DesiredLrpUpdate::default(), definition.into());
        stage.try_apply(&Command::Deploy { update, definition_id: id("v2"), definition })
    };
    let both =
        Rules { constraints: vec![is_set.clone(), distinct], affinities: vec![], spread: vec![spread] };
    let refusal = deploy(both).unwrap_err();
    assert_eq!(refusal.code, Code::InvalidRequest);
    let why = "has no effect: a global process has one instance on each cell that fits";
    let said: Vec<String> =
        refusal.fields.iter().map(|bad| format!("{}: {}", bad.field, bad.problem)).collect();
    let distinct = format!("definition.constraints[1].operator: distinct_cell {why}");
    assert_eq!(said, [distinct, format!("definition.spread: {why}")]);
    deploy(Rules { constraints: vec![is_set], ..Rules::default() }).unwrap();
}
