//! Tests with random commands on the state machines of a process and of a task. After each command, the
//! invariants hold. The events survive a round trip through the journal.

use std::collections::BTreeSet;
use std::time::Duration;

use machines::actual::{Actual, State};
use machines::crash;
use machines::process::{self, Context, Process, Slot};
use machines::task::Task;
use proptest::collection::vec;
use proptest::prelude::*;
use schemas::container::{Epoch, Instance};
use schemas::definition::{DesiredLrp, DesiredLrpUpdate, Placement};
use schemas::entry::{Aggregate, Entry, Event};
use schemas::evaluation::{self, Duty, Trigger};
use schemas::exec::Exec;
use schemas::isolation::Isolation;
use schemas::names::{CellId, DecisionId, DefinitionId};
use schemas::process::{Command, Report, ReportStep, Unplaced};
use schemas::stamp::Stamp;
use schemas::task::{self, Outcome};
use schemas::{Origin, Place, Refusal, Timestamp, actual, evacuating, limits};

use crate::common::{
    cell_id, domain, id, instance, lrp, net_info, outcome, task as desired_task, unplaced_task,
};
use crate::strategies::cases;

/// A random step of the test.
#[derive(Clone, Debug)]
enum Move {
    Desire { instances: u32, elsewhere: bool, other: bool },
    Update { instances: u32 },
    Remove,
    Retire { index: u32, other: Option<bool> },
    Enter { index: u32, other: Option<bool> },
    Report { index: u32, other: bool, who: Reporter, of_earlier_life: bool, steps: Vec<Step> },
    Fail { count: u32, other: bool, error: usize, of_earlier_attempt: bool },
    Converge,
    Pass { seconds: u64 },
    Lose { cell: usize },
    Return { cell: usize },
    Freshness { fresh: bool },
}

/// The container that reports.
#[derive(Clone, Copy, Debug)]
enum Reporter {
    Holder,
    Twin,
    Container { number: u128, cell: usize },
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Claim,
    Start { port: u16 },
    Crash,
    Remove,
    Unclaim,
    SetTwin { port: u16, seconds: u64 },
    RemoveTwin,
}

const CELLS: [&str; 3] = ["c0", "c1", "c2"];
/// Definitions with containers. Most of the time, the first definition is desired.
const DEFINITIONS: [&str; 2] = ["web", "other"];
const ERRORS: [&str; 2] = ["insufficient resources: memory", "found no compatible cells: stack"];

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Claim),
        3 => (1..3_u16).prop_map(|port| Step::Start { port }),
        3 => Just(Step::Crash),
        2 => Just(Step::Remove),
        2 => Just(Step::Unclaim),
        2 => (1..3_u16, 0..600_u64).prop_map(|(port, seconds)| Step::SetTwin { port, seconds }),
        1 => Just(Step::RemoveTwin),
    ]
}

fn any_move() -> impl Strategy<Value = Move> {
    let who = prop_oneof![
        5 => Just(Reporter::Holder),
        1 => Just(Reporter::Twin),
        4 => (1..5_u128, 0..3_usize).prop_map(|(number, cell)| Reporter::Container { number, cell }),
    ];
    let other = prop::bool::weighted(0.2);
    let report = (0..5_u32, other, who, prop::bool::weighted(0.05), vec(any_step(), 1..3));
    prop_oneof![
        3 => (0..4_u32, prop::bool::weighted(0.1), other)
            .prop_map(|(instances, elsewhere, other)| Move::Desire { instances, elsewhere, other }),
        3 => (0..5_u32).prop_map(|instances| Move::Update { instances }),
        1 => Just(Move::Remove),
        2 => (0..5_u32, proptest::option::of(other)).prop_map(|(index, other)| Move::Retire { index, other }),
        2 => (0..5_u32, proptest::option::of(other)).prop_map(|(index, other)| Move::Enter { index, other }),
        16 => report.prop_map(|(index, other, who, of_earlier_life, steps)| {
            Move::Report { index, other, who, of_earlier_life, steps }
        }),
        3 => (1..4_u32, other, 0..2_usize, prop::bool::weighted(0.1)).prop_map(
            |(count, other, error, of_earlier_attempt)| {
                Move::Fail { count, other, error, of_earlier_attempt }
            }
        ),
        4 => Just(Move::Converge),
        3 => (1..1200_u64).prop_map(|seconds| Move::Pass { seconds }),
        1 => (0..3_usize).prop_map(|cell| Move::Lose { cell }),
        2 => (0..3_usize).prop_map(|cell| Move::Return { cell }),
        1 => any::<bool>().prop_map(|fresh| Move::Freshness { fresh }),
    ]
}

/// A process, and the state that its decisions depend on.
struct World {
    process: Option<Process>,
    now: Timestamp,
    fresh: bool,
    absent: BTreeSet<CellId>,
    decisions: u128,
}

impl World {
    fn new() -> Self {
        let now = Timestamp::from_millis(1_000_000_000);
        Self { process: None, now, fresh: false, absent: BTreeSet::new(), decisions: 0 }
    }

    fn actual(&self, place: &Place) -> Option<&Actual> {
        self.process.as_ref()?.actual(place)
    }

    /// Returns the command of a move. `None` if the move only changed the state of the test.
    fn command(&mut self, what: &Move) -> Option<Command> {
        match what {
            Move::Desire { instances, elsewhere, other } => {
                let name = if *elsewhere { "elsewhere" } else { "apps" };
                let desired = DesiredLrp { definition_id: definition(*other), ..lrp(name, *instances) };
                return Some(Command::Desire(Box::new(desired)));
            }
            Move::Update { instances } => {
                let instances = Some(*instances);
                return Some(Command::Update(DesiredLrpUpdate { instances, ..DesiredLrpUpdate::default() }));
            }
            Move::Remove => return Some(Command::Remove),
            Move::Retire { index, other } => {
                return Some(Command::Retire { index: *index, definition_id: other.map(definition) });
            }
            Move::Enter { index, other } => {
                let (definition_id, exec) =
                    (other.map(definition), Exec { path: "sh".into(), ..Exec::default() });
                return Some(Command::Enter { index: *index, definition_id, exec });
            }
            Move::Report { index, other, who, of_earlier_life, steps } => {
                let place = Place::new(*index, definition(*other));
                return Some(Command::Report(self.report(place, *who, *of_earlier_life, steps)));
            }
            Move::Fail { count, other, error, of_earlier_attempt } => {
                let id = definition(*other);
                return Some(self.fail(*count, &id, ERRORS[*error], *of_earlier_attempt));
            }
            Move::Converge => return Some(Command::Converge),
            Move::Pass { seconds } => self.now = self.now + Duration::from_secs(*seconds),
            Move::Lose { cell } => drop(self.absent.insert(cell_id(CELLS[*cell]))),
            Move::Return { cell } => drop(self.absent.remove(CELLS[*cell])),
            Move::Freshness { fresh } => self.fresh = *fresh,
        }
        None
    }

    fn report(&self, place: Place, who: Reporter, of_earlier_life: bool, steps: &[Step]) -> Report {
        let process = self.process.as_ref();
        let slot = process.and_then(|process| process.slot(&place));
        let known = match who {
            Reporter::Holder => self.actual(&place).and_then(|lrp| lrp.holder().cloned()),
            Reporter::Twin => slot.and_then(|slot| Some(slot.evacuating.as_ref()?.by.clone())),
            Reporter::Container { number, cell } => Some(instance(number, CELLS[cell])),
        };
        let epoch = process.map_or(Epoch(Timestamp(1)), |process| process.epoch);
        let step = |step: &Step| match *step {
            Step::Claim => ReportStep::Actual(actual::Command::Claim { placement: None }),
            Step::Start { port } => {
                ReportStep::Actual(actual::Command::Start { net: net_info(port), isolation: Isolation::NONE })
            }
            Step::Crash => {
                ReportStep::Actual(actual::Command::Crash { reason: "boom".into(), exit_status: None })
            }
            Step::Remove => ReportStep::Actual(actual::Command::Remove),
            Step::Unclaim => ReportStep::Actual(actual::Command::Unclaim),
            Step::SetTwin { port, seconds } => {
                let expires_at = self.now + Duration::from_secs(seconds);
                ReportStep::Evacuating(evacuating::Command::Set { net: net_info(port), expires_at })
            }
            Step::RemoveTwin => ReportStep::Evacuating(evacuating::Command::Remove),
        };
        Report {
            domain: process.map_or(domain("apps"), |process| process.domain.clone()),
            place,
            epoch: if of_earlier_life { Epoch(Timestamp(0)) } else { epoch },
            by: known.unwrap_or_else(|| instance(1, CELLS[0])),
            observed_at: self.now,
            steps: steps.iter().map(step).collect(),
        }
    }

    fn fail(&self, count: u32, id: &DefinitionId, error: &str, of_earlier_attempt: bool) -> Command {
        let attempt = |place: &Place| self.actual(place).map_or(self.now, |lrp| lrp.since);
        let unplaced = (0..count).map(|index| Place::new(index, id.clone())).map(|place| Unplaced {
            attempt: if of_earlier_attempt { Timestamp(7) } else { attempt(&place) },
            error: if place.index % 2 == 0 { error } else { "cell compatibility" }.to_owned(),
            place,
        });
        Command::Fail(outcome(self.process.as_ref(), unplaced.collect()))
    }

    fn decide(&self, command: &Command) -> Result<Vec<Event>, Refusal> {
        let present = |cell: &CellId| !self.absent.contains(cell);
        let context = Context {
            now: self.now,
            is_fresh: self.fresh,
            is_present: &present,
            is_known: &|_| true,
            for_each_cell: &|_| {},
        };
        process::decide(self.process.as_ref(), command, context)
    }

    /// Folds decided events after a round trip through the journal.
    fn fold(&mut self, command: &Command, events: &[Event]) {
        self.decisions += 1;
        let born = match command {
            Command::Desire(lrp) => Some((lrp.domain.clone(), Epoch(self.now))),
            Command::Report(report) => Some((report.domain.clone(), report.epoch)),
            Command::Update(_)
            | Command::Deploy { .. }
            | Command::Activate { .. }
            | Command::Restart(_)
            | Command::Steer(_)
            | Command::Remove
            | Command::Retire { .. }
            | Command::Enter { .. }
            | Command::Evict(_)
            | Command::Fail(_)
            | Command::Unanswered { .. }
            | Command::Retry(_)
            | Command::Converge => None,
        };
        let events = round_trip(events, self.now, self.decisions);
        let web = schemas::names::ProcessGuid::new("web").unwrap();
        let mut process = self.process.take().unwrap_or_else(|| {
            let (domain, epoch) = born.expect("only a desire or a report may name an unknown process");
            Process::new(web, domain, epoch)
        });
        process::evolve(&mut process, &events, &stamp(self.now, self.decisions));
        self.process = Some(process);
    }

    /// Decides a command and folds the resulting events.
    fn try_apply(&mut self, command: &Command) -> Result<Vec<Event>, Refusal> {
        // Decisions of one shard never have the same time.
        self.now = self.now.next();
        let events = self.decide(command)?;
        if !events.is_empty() {
            self.fold(command, &events);
        }
        Ok(events)
    }
}

fn definition(other: bool) -> DefinitionId {
    DefinitionId::new(DEFINITIONS[usize::from(other)]).unwrap()
}

fn stamp(at: Timestamp, decision: u128) -> Stamp {
    let decision = DecisionId(id(decision));
    Stamp::root(decision, at)
}

/// Encodes and decodes the events, and checks that they do not change.
fn round_trip(events: &[Event], at: Timestamp, decision: u128) -> Vec<Event> {
    let entry = fixtures::entry(fixtures::decision(id(decision), at, Aggregate::Cluster, events.to_vec()));
    let read = Entry::decode(&entry.encode()).unwrap();
    assert_eq!(read, entry);
    read.decisions.into_iter().flat_map(|decision| decision.events).collect()
}

// --- invariants of a process
// ------------------------------------------------------------------------------------------

fn assert_counters_match_recount(process: &Process) {
    let records = || process.slots.iter().filter_map(|slot| slot.actual.as_ref());
    assert_eq!(records().filter(|lrp| lrp.is_unclaimed()).count(), process.unclaimed as usize);
    assert_eq!(records().filter(|lrp| lrp.has_placement_error()).count(), process.unplaced as usize);
}

fn assert_one_slot_per_place(process: &Process) {
    assert!(process.slots.iter().is_sorted_by(|one, next| one.place < next.place), "{:?}", process.slots);
    assert!(process.slots.iter().all(|slot| slot.actual.is_some() || slot.evacuating.is_some()));
}

fn assert_only_desired_slots_are_work(process: &Process) {
    let wanted = process.desired.as_ref().map_or(0, |desired| desired.instances);
    for index in 0..wanted {
        let there = process.actuals_at(index).collect::<Vec<_>>();
        assert!(!there.is_empty(), "index {index} is desired and has no record: {process:#?}");
        // The index has a record of its desired slot, or waits until its other instances have stopped.
        let has = there.iter().any(|(place, _)| process.is_desired(place));
        let waits = there.iter().all(|(_, lrp)| lrp.is_stopping());
        assert!(has || waits, "no desired instance at index {index}: {process:#?}");
    }
    let unclaimed =
        process.slots.iter().filter(|slot| slot.actual.as_ref().is_some_and(Actual::is_unclaimed));
    for slot in unclaimed {
        assert!(process.is_desired(&slot.place), "{:?} is undesired work: {process:#?}", slot.place);
    }
}

/// Checks that at most one slot of an index is desired. If the desired state is known, all other instances of
/// the index must end.
fn assert_one_instance_per_index(process: &Process) {
    for slot in process.slots.iter() {
        let is_wanted = |slot: &&Slot| process.is_desired(&slot.place);
        let wanted = process.slots_at(slot.place.index).filter(is_wanted).count();
        assert!(wanted <= 1, "{wanted} places of index {} are desired: {process:#?}", slot.place.index);
        let goes_on = |(_, lrp): &(&Place, &Actual)| !lrp.is_stopping();
        let going_on = process.actuals_at(slot.place.index).filter(goes_on).count();
        let known = process.desired.is_some() || process.scaled_by.is_some();
        assert!(
            !known || going_on <= 1,
            "{going_on} instances continue at index {}: \
            {process:#?}",
            slot.place.index
        );
    }
}

/// Checks that each kind of waiting work has exactly one open evaluation: work to place, unplaced work, and
/// delayed restarts.
fn assert_one_open_evaluation_per_duty(process: &Process) {
    let of = |duty| process.evaluations.iter().filter(|one| one.duty() == Some(duty)).count();
    let due = |slot: &Slot| slot.actual.as_ref().and_then(Actual::delayed_until);
    let restarts = process.slots.iter().filter_map(due).min();
    let counts = [Duty::Place, Duty::Unblock, Duty::Restart].map(of);
    let expected = [process.unclaimed > process.unplaced, process.unplaced > 0, restarts.is_some()];
    assert_eq!(counts, expected.map(usize::from), "{process:#?}");
    let waits = process.open_evaluation(Duty::Restart).and_then(|one| one.wait.until());
    assert_eq!(waits, restarts, "{process:#?}");
    let ended = process.evaluations.iter().filter(|one| !one.status.is_open()).count();
    assert!(ended <= limits::KEPT_EVALUATIONS);
}

/// Checks that removed instances end, even if a cell reports them later.
fn assert_unwanted_instances_end(process: &Process) {
    for slot in
        process.slots.iter().filter(|slot| process.scaled_by.is_some() && !process.is_desired(&slot.place))
    {
        let ends = slot.actual.as_ref().is_none_or(Actual::is_stopping);
        assert!(ends, "{:?} is undesired and continues: {process:#?}", slot.place);
    }
}

/// Checks the origin of a decision. The command of a client has no cause. For a slot with records, there are
/// two possible origins: a cell, or the last decision that created the slot's work or requested its stop. For
/// a slot without records, the origin of another slot of its index counts.
fn assert_origin(before: Option<&Process>, command: &Command, events: &[Event]) {
    let origin = process::origin(before, command, events);
    match command {
        Command::Desire(_)
        | Command::Update(_)
        | Command::Deploy { .. }
        | Command::Activate { .. }
        | Command::Restart(_)
        | Command::Steer(_)
        | Command::Remove
        | Command::Retire { .. }
        | Command::Enter { .. }
        | Command::Evict(_)
        | Command::Unanswered { .. }
        | Command::Retry(_) => {
            assert_eq!(origin, Origin::Root);
        }
        Command::Report(report) if !events.is_empty() => {
            let slot = before.and_then(|process| {
                let mut others = process.slots_at(report.place.index);
                process.slot(&report.place).or_else(|| others.next())
            });
            let asked = before
                .filter(|process| !process.is_desired(&report.place))
                .and_then(|process| process.scaled_by);
            let known = slot.map(|slot| slot.cause).or(asked);
            let of_cell = Origin::Cell(report.by.cell_id.clone(), known);
            assert!(origin == of_cell || origin == Origin::from(known), "{origin:?} of {events:?}");
        }
        Command::Report(_) => {}
        Command::Fail(_) => {
            let told = |event: &Event| match event {
                Event::Actual(event) => event.places().iter().min(),
                Event::Desired(_)
                | Event::Evacuating(_)
                | Event::Rollout(_)
                | Event::Evaluation(_)
                | Event::Task(_)
                | Event::Periodic(_)
                | Event::Parameterised(_)
                | Event::Domain(_)
                | Event::Cell(_)
                | Event::Cluster(_) => None,
            };
            let first = events.iter().filter_map(told).min();
            let cause =
                before.zip(first).and_then(|(process, place)| process.slot(&place)).map(|slot| slot.cause);
            assert_eq!(origin, Origin::from(cause), "{events:?}");
        }
        Command::Converge => {
            let mut slots = before.into_iter().flat_map(|process| process.slots.iter());
            let known = slots.any(|slot| match &origin {
                Origin::Root => false,
                Origin::Decision(cause) => slot.cause == *cause,
                Origin::Cell(_, cause) => Some(slot.cause) == *cause,
                Origin::CellChange(_) => false,
            });
            assert_eq!(known, !events.is_empty(), "{origin:?} of {events:?}");
        }
    }
}

fn assert_nothing_due_after_convergence(process: &Process, world: &World) {
    assert!(process.next_due().is_none_or(|due| due > world.now), "{process:#?}");
    let ends = |slot: &Slot| slot.actual.as_ref().is_none_or(Actual::is_stopping);
    let unwanted = |slot: &&Slot| !process.is_desired(&slot.place);
    let all_end = process.slots.iter().filter(unwanted).all(ends);
    assert!(all_end || !world.fresh, "an orphan continues: {process:#?}");
}

/// Checks that only a crash changes a crash count, as the restart policy requires, and that a new record
/// starts at 0.
fn assert_crash_counts_follow_policy(
    before: Option<&Process>,
    after: &Process,
    events: &[Event],
    now: Timestamp,
) {
    for slot in after.slots.iter() {
        let Some(new) = &slot.actual else { continue };
        let mut expected = before.and_then(|process| process.actual(&slot.place)).cloned();
        for event in events {
            let Event::Actual(event) = event else { continue };
            if !event.places().contains(&slot.place) {
                continue;
            }
            if let actual::Event::Crashed { crash_count, .. } = event {
                let since = expected.as_ref().and_then(|lrp| match lrp.state {
                    State::Running { .. } => Some(lrp.since),
                    State::Unclaimed { .. } | State::Claimed { .. } | State::Crashed { .. } => None,
                });
                let stored = expected.as_ref().map_or(0, |lrp| lrp.crash_count);
                assert_eq!(*crash_count, crash::count_before(stored, since, now) + 1);
            }
            expected = machines::actual::evolve(expected, event, now);
        }
        assert_eq!(expected.map(|lrp| lrp.crash_count), Some(new.crash_count));
    }
}

/// Returns `true` if repeating the command must have no effect. Two commands are exceptions: each retirement
/// of an instance without a container creates the instance again, and a report with several steps may undo
/// its own first step.
fn is_idempotent(world: &World, command: &Command) -> bool {
    match command {
        Command::Desire(_)
        | Command::Update(_)
        | Command::Deploy { .. }
        | Command::Activate { .. }
        | Command::Steer(_)
        | Command::Remove
        | Command::Fail(_)
        | Command::Converge => true,
        // An instance that was asked to stop cannot be evicted, so the repetition is refused.
        Command::Restart(_) | Command::Unanswered { .. } | Command::Retry(_) | Command::Evict(_) => false,
        // Each command runs a separate program.
        Command::Enter { .. } => false,
        Command::Retire { index, definition_id } => {
            let slot =
                world.process.as_ref().and_then(|process| process.find(*index, definition_id.as_ref()));
            slot.and_then(|slot| slot.actual.as_ref()).is_some_and(|lrp| lrp.holder().is_some())
        }
        Command::Report(report) => report.steps.len() == 1,
    }
}

/// Checks that deciding a whole report has the same effect as deciding its steps one by one at the same time.
fn assert_report_equals_its_steps(world: &World, command: &Command) {
    let Command::Report(report) = command else { return };
    let whole = world.decide(command);
    let mut apart = World {
        process: world.process.clone(),
        now: world.now,
        fresh: world.fresh,
        absent: world.absent.clone(),
        decisions: 0,
    };
    let mut together = World { process: world.process.clone(), absent: world.absent.clone(), ..World::new() };
    together.now = world.now;
    for step in &report.steps {
        let alone = Command::Report(Report { steps: vec![step.clone()], ..report.clone() });
        match apart.decide(&alone) {
            Ok(events) if events.is_empty() => {}
            Ok(events) => apart.fold(&alone, &events),
            Err(refusal) => {
                assert_eq!(whole.as_ref().map_err(|refusal| refusal.code), Err(refusal.code));
                return;
            }
        }
    }
    let events = whole.expect("no step was refused");
    if !events.is_empty() {
        together.fold(command, &events);
    }
    // The causes and versions may differ.
    let nothing = stamp(world.now, 0).cause();
    let slots = |world: &World| {
        let slots = world.process.as_ref().map(|process| process.slots.clone()).unwrap_or_default();
        slots.iter().map(|slot| Slot { cause: nothing, version: 0, ..slot.clone() }).collect::<Vec<_>>()
    };
    assert_eq!(slots(&together), slots(&apart), "{command:#?} made {events:#?}");
}

fn step(world: &mut World, what: &Move) {
    let Some(command) = world.command(what) else { return };
    let before = world.process.clone();
    let once = is_idempotent(world, &command);
    assert_report_equals_its_steps(world, &command);
    let Ok(events) = world.try_apply(&command) else { return };
    let found_late = |event: &Event| {
        matches!(event, Event::Evaluation(evaluation::Event::Created { trigger: Trigger::Convergence, .. }))
    };
    assert!(!events.iter().any(found_late), "only convergence found the work of {command:?}: {before:#?}");
    let Some(process) = &world.process else { return };
    assert_counters_match_recount(process);
    assert_one_slot_per_place(process);
    assert_only_desired_slots_are_work(process);
    assert_one_open_evaluation_per_duty(process);
    assert_crash_counts_follow_policy(before.as_ref(), process, &events, world.now);
    assert_one_instance_per_index(process);
    assert_unwanted_instances_end(process);
    assert_origin(before.as_ref(), &command, &events);
    if matches!(command, Command::Converge) {
        // Work with different origins needs separate decisions. Convergence continues until no work is left.
        if !events.is_empty() {
            return step(world, what);
        }
        assert_nothing_due_after_convergence(process, world);
    }
    if once {
        let again = world.decide(&command).unwrap_or_default();
        assert!(again.is_empty(), "repeating {command:#?} causes {again:#?} after {events:#?}");
    }
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn process_invariants_hold_for_random_commands(moves in vec(any_move(), 1..60)) {
        let mut world = World::new();
        for what in &moves {
            step(&mut world, what);
        }
    }
}

// --- tasks
// ------------------------------------------------------------------------------------------------------------

#[derive(Clone, Debug)]
enum TaskMove {
    Desire { queue: bool },
    Cancel,
    Resolve,
    Start { number: u128, cell: usize, of_earlier_life: bool },
    Complete { number: u128, cell: usize, bytes: Option<usize> },
    CompleteByHolder { bytes: Option<usize> },
    Fail { error: usize },
    BeginResolving,
    Called { status: u16 },
    Converge,
    Pass { seconds: u64 },
    Lose { cell: usize },
    Return { cell: usize },
}

fn any_task_move() -> impl Strategy<Value = TaskMove> {
    let bytes = || proptest::option::of(prop_oneof![0..20_usize, 51_190..51_210_usize]);
    prop_oneof![
        5 => any::<bool>().prop_map(|queue| TaskMove::Desire { queue }),
        1 => Just(TaskMove::Cancel),
        2 => Just(TaskMove::Resolve),
        6 => (1..4_u128, 0..3_usize, prop::bool::weighted(0.1)).prop_map(
            |(number, cell, of_earlier_life)| TaskMove::Start { number, cell, of_earlier_life }
        ),
        2 => (1..4_u128, 0..3_usize, bytes())
            .prop_map(|(number, cell, bytes)| TaskMove::Complete { number, cell, bytes }),
        3 => bytes().prop_map(|bytes| TaskMove::CompleteByHolder { bytes }),
        2 => (0..2_usize).prop_map(|error| TaskMove::Fail { error }),
        2 => Just(TaskMove::BeginResolving),
        2 => prop_oneof![Just(204), Just(404), Just(503)].prop_map(|status| TaskMove::Called { status }),
        4 => Just(TaskMove::Converge),
        3 => (1..2400_u64).prop_map(|seconds| TaskMove::Pass { seconds }),
        1 => (0..3_usize).prop_map(|cell| TaskMove::Lose { cell }),
        2 => (0..3_usize).prop_map(|cell| TaskMove::Return { cell }),
    ]
}

/// A task, and the state that its decisions depend on.
struct TaskWorld {
    task: Option<Task>,
    now: Timestamp,
    absent: BTreeSet<CellId>,
    decisions: u128,
}

impl TaskWorld {
    fn command(&mut self, what: &TaskMove) -> Option<task::Command> {
        let report = |by: Instance, epoch, step| {
            task::Command::Report(task::Report { domain: domain("apps"), epoch, by, step })
        };
        let epoch = self.task.as_ref().map_or(Epoch(Timestamp(1)), |task| task.epoch);
        let outcome = |bytes: &Option<usize>| match bytes {
            Some(bytes) => Outcome::Succeeded { result: "x".repeat(*bytes) },
            None => Outcome::Failed { reason: "exit 1".into() },
        };
        Some(match what {
            TaskMove::Desire { queue } => {
                let wait = Placement::Queue { deadline_ms: 600_000 };
                let placement = if *queue { wait } else { Placement::Fail };
                task::Command::Desire(Box::new(desired_task("apps", placement)))
            }
            TaskMove::Cancel => task::Command::Cancel,
            TaskMove::Resolve => task::Command::Resolve,
            TaskMove::Start { number, cell, of_earlier_life } => {
                let epoch = if *of_earlier_life { Epoch(Timestamp(0)) } else { epoch };
                report(
                    instance(*number, CELLS[*cell]),
                    epoch,
                    task::ReportStep::Start { placement: None, isolation: Isolation::NONE },
                )
            }
            TaskMove::Complete { number, cell, bytes } => {
                let step = task::ReportStep::Complete { outcome: outcome(bytes) };
                report(instance(*number, CELLS[*cell]), epoch, step)
            }
            TaskMove::CompleteByHolder { bytes } => {
                let by = self.task.as_ref()?.holder()?.clone();
                report(by, epoch, task::ReportStep::Complete { outcome: outcome(bytes) })
            }
            TaskMove::Fail { error } => {
                task::Command::Fail(unplaced_task(self.task.as_ref(), ERRORS[*error]))
            }
            TaskMove::BeginResolving => task::Command::BeginResolving,
            TaskMove::Called { status } => {
                task::Command::RecordCallback(epoch, task::CallbackResult::Answered(*status))
            }
            TaskMove::Converge => task::Command::Converge,
            TaskMove::Pass { seconds } => {
                self.now = self.now + Duration::from_secs(*seconds);
                return None;
            }
            TaskMove::Lose { cell } => {
                self.absent.insert(cell_id(CELLS[*cell]));
                return None;
            }
            TaskMove::Return { cell } => {
                self.absent.remove(CELLS[*cell]);
                return None;
            }
        })
    }

    fn decide(&self, command: &task::Command) -> Result<Vec<Event>, Refusal> {
        let present = |cell: &CellId| !self.absent.contains(cell);
        machines::task::decide(
            self.task.as_ref(),
            command,
            machines::task::Context { now: self.now, is_present: &present },
        )
    }
}

fn name_of(task: Option<&Task>) -> &'static str {
    task.map_or("DELETED", Task::state_name)
}

/// Checks that one event moves a task along one edge of the graph (docs/internals/model/tasks.md, "Tasks").
fn assert_edge_of_graph(before: Option<&Task>, after: Option<&Task>, event: &Event) {
    let edge = (name_of(before), name_of(after));
    let known = [
        ("DELETED", "PENDING"),
        ("PENDING", "RUNNING"),
        ("PENDING", "COMPLETED"),
        ("RUNNING", "COMPLETED"),
        ("COMPLETED", "RESOLVING"),
        ("COMPLETED", "DELETED"),
        ("RESOLVING", "COMPLETED"),
        ("RESOLVING", "DELETED"),
    ];
    let stays = matches!(
        event,
        Event::Task(task::Event::PlacementFailed { .. } | task::Event::CallbackTried { .. })
            | Event::Evaluation(_)
    );
    assert!(known.contains(&edge) || (stays && edge.0 == edge.1), "{edge:?} by {event:?}");
}

/// Checks that the first outcome and its time never change.
fn assert_outcome_unchanged(before: Option<&Task>, after: Option<&Task>) {
    let done = |task: Option<&Task>| task.and_then(|task| task.completed().cloned());
    if let (Some(before), Some(after)) = (done(before), done(after)) {
        assert_eq!(before.outcome, after.outcome);
        assert_eq!(before.by, after.by);
        assert_eq!(before.first_completed_at, after.first_completed_at);
    }
    if let Some(Outcome::Succeeded { result }) = done(after).map(|done| done.outcome) {
        assert!(result.len() <= limits::TASK_RESULT_BYTES);
    }
}

fn task_step(world: &mut TaskWorld, what: &TaskMove) {
    let Some(command) = world.command(what) else { return };
    world.now = world.now.next();
    let before = world.task.clone();
    let Ok(events) = world.decide(&command) else { return };
    if !events.is_empty() {
        world.decisions += 1;
        let events = round_trip(&events, world.now, world.decisions);
        let stamp = stamp(world.now, world.decisions);
        let mut one_by_one = before.clone();
        for event in &events {
            let next = machines::task::evolve(one_by_one.clone(), std::slice::from_ref(event), &stamp);
            assert_edge_of_graph(one_by_one.as_ref(), next.as_ref(), event);
            one_by_one = next;
        }
        world.task = machines::task::evolve(before.clone(), &events, &stamp);
        assert_eq!(name_of(one_by_one.as_ref()), name_of(world.task.as_ref()));
    }
    if !matches!(command, task::Command::Desire(_)) {
        assert_outcome_unchanged(before.as_ref(), world.task.as_ref());
    }
    // Each callback attempt is recorded, even if two attempts have the same outcome.
    if !matches!(command, task::Command::RecordCallback(..)) {
        let again = world.decide(&command).unwrap_or_default();
        assert!(again.is_empty(), "repeating {command:?} causes {again:?}");
    }
    let Some(task) = &world.task else { return };
    let open = task.evaluations.iter().filter(|evaluation| evaluation.status.is_open()).count();
    assert_eq!(open == 1, task.is_pending(), "{task:#?}");
    let ended = task.evaluations.iter().count() - open;
    assert!(open <= 1 && ended <= limits::KEPT_EVALUATIONS);
    if matches!(command, task::Command::Converge) {
        assert!(task.next_due().is_none_or(|due| due > world.now), "{task:#?}");
    }
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn task_invariants_hold_for_random_commands(moves in vec(any_task_move(), 1..60)) {
        let now = Timestamp::from_millis(1_000_000_000);
        let mut world = TaskWorld { task: None, now, absent: BTreeSet::new(), decisions: 0 };
        for what in &moves {
            task_step(&mut world, what);
        }
    }
}

// --- cells --------------------------------------------------------------------------------------------------------------

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn repeated_heartbeat_records_nothing(
        beats in vec((0..3_u64, any::<bool>(), any::<bool>(), any::<bool>(), 0..3_u64), 1..30),
    ) {
        use schemas::cell::Presence;
        use machines::cell::{HeartbeatState, decide_lost, decide_heartbeat, evolve};
        use fixtures::cells;
        use schemas::resources::Resources;
        let mut cell = None;
        for (incarnation, evacuating, sick, lost, memory_mb) in beats {
            let seen = HeartbeatState {
                presence: Presence { total: Resources { memory_mb, ..cells::TOTAL }, ..fixtures::presence(incarnation) },
                evacuating,
                unhealthy: sick.then(|| "disk".repeat(1000)),
            };
            for event in decide_heartbeat(cell.as_ref(), &seen) {
                if let schemas::cell::Event::Unhealthy { reason } = &event {
                    prop_assert!(reason.len() <= limits::REASON_BYTES);
                }
                cell = evolve(cell, &event, &stamp(Timestamp(1), 1));
            }
            prop_assert_eq!(decide_heartbeat(cell.as_ref(), &seen), vec![]);
            let known = cell.as_ref().unwrap();
            prop_assert!(known.present && known.presence == seen.presence && known.unhealthy.is_none() != sick);
            prop_assert!(known.evacuating || !evacuating);
            if lost {
                for event in decide_lost(cell.as_ref(), "silent") {
                    cell = evolve(cell, &event, &stamp(Timestamp(2), 2));
                }
                prop_assert_eq!(decide_lost(cell.as_ref(), "silent"), vec![]);
            }
        }
    }
}
