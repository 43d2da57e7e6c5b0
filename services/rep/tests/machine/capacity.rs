//! Tests that the resources of a cell are never allocated twice.

use std::time::Duration;

use proptest::prelude::*;

use machines::actual::Actual;
use machines::task::Task;
use schemas::container::{ContainerState, WorkKey};
use schemas::message::{Work, WorkDefinition};
use schemas::names::InstanceGuid;
use schemas::resources::Constraint;

use rep::Input;

use crate::cell::Cell;
use crate::words;

#[test]
fn work_that_does_not_fit_is_refused_with_missing_resource() {
    let mut cell = Cell::open();
    cell.bbs.desire("web", 12, cell.now);
    cell.auction(1);
    let refused = &cell.performed[0].as_ref().unwrap().refused;
    let places: Vec<u32> = refused.iter().map(|(place, _)| *place).collect();
    assert_eq!(places, [10, 11]);
    assert_eq!(refused[0].1, "insufficient resources: memory");
    assert_eq!(cell.containers.len(), 10);
}

#[test]
fn cell_without_free_ports_refuses_work_with_ports() {
    let mut cell = Cell::open();
    let with = |index, ports: usize| {
        let ports = vec![8080; ports].into();
        let definition = schemas::definition::Definition { ports, memory_mb: 1, ..words::definition() };
        let order = WorkDefinition::Lrp(definition.into());
        Work {
            definition: order,
            ..words::lrp_work(words::lrp_key("web", index, words::at(0)), words::at(0))
        }
    };
    cell.bbs.desire("web", 3, cell.now);
    cell.perform(words::perform(1, vec![with(0, 19), with(1, 2), with(2, 1)]));
    let refused = &cell.performed[0].as_ref().unwrap().refused;
    assert_eq!(*refused, [(1, "insufficient resources: ports".to_owned())]);
    cell.advance(Duration::from_secs(1));
    assert_eq!(cell.heartbeats.last().unwrap().free.ports, 0);
}

#[test]
fn incompatible_cell_refuses_work() {
    let mut cell = Cell::open();
    let with = |constraint: Constraint| {
        let constraint = constraint.into();
        let definition = schemas::definition::Definition { constraint, ..words::definition() };
        let order = WorkDefinition::Lrp(definition.into());
        Work { definition: order, ..words::lrp_work(words::lrp_key("web", 0, words::at(0)), words::at(0)) }
    };
    let stack = Constraint { stack: Some("windows".parse().unwrap()), ..Constraint::default() };
    let tags = Constraint {
        placement_tags: ["gpu".parse().unwrap()].into_iter().collect(),
        ..Constraint::default()
    };
    let task_for_a_process = Work {
        key: words::lrp_key("web", 1, words::at(0)),
        ..words::task_work(words::task_key("count", words::at(0)), words::at(0))
    };
    cell.perform(words::perform(1, vec![with(stack), with(tags), task_for_a_process]));
    let reasons: Vec<&str> =
        cell.performed[0].as_ref().unwrap().refused.iter().map(|(_, why)| why.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "found no compatible cells: stack",
            "found no compatible cells: tags",
            "the work and its definition are of different kinds",
        ]
    );
}

#[test]
fn resources_are_free_only_after_container_stopped() {
    let mut cell = Cell::open();
    cell.slow_deletion = true;
    let guid = cell.running_task("count");
    cell.bbs.task("count", &schemas::task::Command::Cancel, cell.now).unwrap();
    let work = cell.containers[&guid].work.clone();
    cell.input(Input::Cancel(schemas::message::Stop { term: 1, containers: vec![(work, guid)] }));
    assert_eq!(cell.take_story(), "read, delete");
    cell.advance(Duration::from_secs(5));
    assert_eq!(cell.heartbeats.last().unwrap().free.memory_mb, 900);
    cell.containers.clear();
    cell.advance(Duration::from_secs(2));
    assert_eq!(cell.heartbeats.last().unwrap().free, words::settings().total);
}

/// Random event that a test applies to a cell.
#[derive(Clone, Debug)]
enum CellEvent {
    Desire(u8, u8),
    Task(u8),
    Remove(u8),
    Auction,
    Again,
    Container(u8, u8),
    Bury,
    Vanish(u8),
    Lose(u8, u8),
    Delay(u8, u8),
    Arrive,
    Restart,
    Pass(u16),
}

fn cell_events() -> impl Strategy<Value = Vec<CellEvent>> {
    let deed = prop_oneof![
        2 => (0..4_u8, 0..8_u8).prop_map(|(name, count)| CellEvent::Desire(name, count)),
        2 => (0..6_u8).prop_map(CellEvent::Task),
        1 => (0..4_u8).prop_map(CellEvent::Remove),
        4 => Just(CellEvent::Auction),
        1 => Just(CellEvent::Again),
        6 => (any::<u8>(), 0..5_u8).prop_map(|(which, state)| CellEvent::Container(which, state)),
        2 => Just(CellEvent::Bury),
        1 => any::<u8>().prop_map(CellEvent::Vanish),
        1 => (0..3_u8, 0..3_u8).prop_map(|(messages, answers)| CellEvent::Lose(messages, answers)),
        1 => (0..3_u8, 0..3_u8).prop_map(|(messages, answers)| CellEvent::Delay(messages, answers)),
        2 => Just(CellEvent::Arrive),
        1 => Just(CellEvent::Restart),
        3 => (0..20_000_u16).prop_map(CellEvent::Pass),
    ];
    proptest::collection::vec(deed, 1..60)
}

fn pick(cell: &Cell, which: u8) -> Option<InstanceGuid> {
    let count = cell.containers.len().max(1);
    cell.containers.keys().nth(usize::from(which) % count).copied()
}

/// Returns `true` if the transition is allowed by Diego Dev Notes, "Container State".
const fn may_become(from: &ContainerState, to: &ContainerState) -> bool {
    match from {
        ContainerState::Reserved | ContainerState::Initializing => {
            matches!(to, ContainerState::Created | ContainerState::Completed(_))
        }
        ContainerState::Created => {
            matches!(to, ContainerState::Running(_) | ContainerState::Completed(_))
        }
        ContainerState::Running(_) => matches!(to, ContainerState::Completed(_)),
        ContainerState::Completed(_) => false,
    }
}

fn apply_event(cell: &mut Cell, deed: &CellEvent, number: u64) {
    // Each epoch needs a unique time.
    cell.now = cell.now.next();
    match deed {
        CellEvent::Desire(name, count) => {
            let name = format!("p{name}");
            if cell.bbs.processes.get(name.as_str()).is_none_or(|process| process.desired.is_none()) {
                cell.bbs.desire(&name, u32::from(*count), cell.now);
            }
        }
        CellEvent::Task(name) => {
            let name = format!("t{name}");
            match cell.state_of_task(&name) {
                "-" | "DELETED" => cell.bbs.desire_task(&name, cell.now),
                "COMPLETED" => cell.bbs.task(&name, &schemas::task::Command::Resolve, cell.now).unwrap(),
                _ => cell.bbs.task(&name, &schemas::task::Command::Cancel, cell.now).unwrap(),
            }
        }
        CellEvent::Remove(name) => {
            let result = cell.bbs.process(&format!("p{name}"), &schemas::process::Command::Remove, cell.now);
            drop(result);
        }
        CellEvent::Auction => cell.auction(number),
        CellEvent::Again => {
            // A late message. It contains work that waits now, and work that never existed.
            let mut work = cell.bbs.work();
            work.push(words::lrp_work(words::lrp_key("ghost", 0, words::at(0)), words::at(0)));
            cell.perform(words::perform(1, work));
        }
        CellEvent::Container(which, state) => {
            let Some(guid) = pick(cell, *which) else { return };
            let state = match state {
                0 => ContainerState::Created,
                1 | 2 => ContainerState::Running(words::net_info(u16::from(*which))),
                3 => words::failed("broken"),
                _ => words::succeeded("done"),
            };
            if may_become(&cell.containers[&guid].state, &state) {
                cell.set_container_state(guid, state);
            }
        }
        CellEvent::Bury => {
            for guid in std::mem::take(&mut cell.deleting) {
                cell.containers.remove(&guid);
            }
        }
        CellEvent::Vanish(which) => {
            let guid = pick(cell, *which);
            guid.and_then(|guid| cell.containers.remove(&guid));
        }
        CellEvent::Lose(messages, answers) => {
            cell.lose_messages = usize::from(*messages);
            cell.lose_answers = usize::from(*answers);
        }
        CellEvent::Delay(messages, answers) => {
            cell.late_messages = usize::from(*messages);
            cell.slow_answers = usize::from(*answers);
        }
        CellEvent::Arrive => cell.deliver_delayed(),
        CellEvent::Restart => cell.restart(number),
        CellEvent::Pass(millis) => cell.advance(Duration::from_millis(u64::from(*millis))),
    }
}

fn check(cell: &Cell) -> Result<(), TestCaseError> {
    let total = words::settings().total;
    prop_assert!(total.fits(cell.used_resources()), "{:?} of {total:?}", cell.used_resources());
    for (name, task) in &cell.bbs.tasks {
        let here = |work: &WorkKey| *work == WorkKey::Task { task_guid: name.clone(), epoch: task.epoch };
        let live = cell.containers.values().filter(|one| here(&one.work)).count();
        prop_assert!(live <= 1, "task {name} has {live} containers in one epoch");
    }
    Ok(())
}

/// Returns the containers in the records: the containers of CLAIMED, RUNNING and evacuating instances.
fn recorded_containers(cell: &Cell) -> Vec<InstanceGuid> {
    let lrps = cell.bbs.processes.values().flat_map(|process| process.slots.iter());
    let lrps = lrps.flat_map(|slot| {
        let instance = slot.actual.as_ref().and_then(Actual::holder);
        instance.into_iter().chain(slot.evacuating.as_ref().map(|twin| &twin.by))
    });
    let tasks = cell.bbs.tasks.values().filter(|task| task.state_name() == "RUNNING");
    let mut guids: Vec<InstanceGuid> =
        lrps.chain(tasks.filter_map(Task::holder)).map(|by| by.instance_guid).collect();
    guids.sort();
    guids
}

/// Makes the executor carry out its orders. Deletions complete, and containers with a stop order stop.
fn run_executor_orders(cell: &mut Cell) {
    apply_event(cell, &CellEvent::Bury, 0);
    let stopping: Vec<InstanceGuid> = cell.stopping.iter().copied().collect();
    for guid in stopping {
        if cell.containers.get(&guid).is_some_and(|one| may_become(&one.state, &words::STOPPED)) {
            cell.set_container_state(guid, words::STOPPED);
        }
    }
}

fn run_events(deeds: &[CellEvent]) -> Result<Cell, TestCaseError> {
    let mut cell = Cell::open();
    cell.slow_deletion = true;
    for (deed, number) in deeds.iter().zip(2..) {
        apply_event(&mut cell, deed, number);
        check(&cell)?;
    }
    cell.lose_messages = 0;
    cell.lose_answers = 0;
    cell.late_messages = 0;
    cell.slow_answers = 0;
    cell.slow_deletion = false;
    cell.deliver_delayed();
    Ok(cell)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn resources_are_never_overcommitted_and_records_converge(deeds in cell_events()) {
        let mut cell = run_events(&deeds)?;
        for _ in 0..4 {
            run_executor_orders(&mut cell);
            cell.advance(Duration::from_secs(65));
            check(&cell)?;
        }
        let there: Vec<InstanceGuid> = cell.containers.keys().copied().collect();
        prop_assert_eq!(recorded_containers(&cell), there);
    }

    #[test]
    fn evacuation_ends_without_containers_or_records(deeds in cell_events()) {
        let mut cell = run_events(&deeds)?;
        cell.advance(Duration::from_secs(60));
        cell.evacuate();
        for _ in 0..20 {
            run_executor_orders(&mut cell);
            cell.advance(Duration::from_secs(32));
            check(&cell)?;
        }
        prop_assert!(cell.exited);
        prop_assert!(cell.containers.is_empty(), "{:?}", cell.containers);
        prop_assert_eq!(recorded_containers(&cell), []);
    }
}

#[test]
fn expired_reservation_frees_resources() {
    let mut cell = Cell::open();
    cell.bbs.desire("web", 2, cell.now);
    cell.lose_messages = usize::MAX;
    cell.auction(1);
    cell.advance(rep::limits::RESERVATION_TIMEOUT.saturating_sub(Duration::from_secs(5)));
    assert_eq!(cell.heartbeats.last().unwrap().free.memory_mb, 800);
    cell.advance(Duration::from_secs(10));
    assert_eq!(cell.heartbeats.last().unwrap().free.memory_mb, 1000);
}
