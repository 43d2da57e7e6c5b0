//! Tests that scripted containers behave as specified in their recipes.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::time::Duration;

use proptest::prelude::*;
use schemas::action::{Action, Group, Run, Timeout};
use schemas::container::{
    Container, ContainerState, Epoch, NetInfo, PortMapping, Recipe, RunResult, WorkKey,
};
use schemas::names::{DefinitionId, Domain, InstanceGuid, ProcessGuid, TaskGuid};
use schemas::resources::Resources;
use schemas::{ActualLrpKey, Place, Position, Timestamp};
use scripted::{ActionEvent, ActionEventKind, Behaviour, Scripted};

const T: Timestamp = Timestamp::from_millis(1_000_000);

fn guid(number: u64) -> InstanceGuid {
    InstanceGuid(uuid::Uuid::from_u64_pair(0, number))
}

fn scripted(args: &[&str]) -> Action {
    let args = args.iter().map(|&arg| arg.to_owned()).collect();
    Action::Run(Run { path: "scripted".into(), args, ..Run::default() })
}

fn recipe(number: u64, work: WorkKey, action: Action) -> Recipe {
    Recipe {
        instance_guid: guid(number),
        work,
        domain: Domain::new("test").unwrap(),
        environment_variables: vec![],
        setup: None,
        action,
        monitor: None,
        start_timeout_ms: 5_000,
        grace_period_ms: 10_000,
        cpu_weight: 0,
        ports: vec![8080],
        result_file: String::new(),
        resources: Resources::for_container(16, 16, 0),
        sandbox: None,
        admitted_at: Position(0),
    }
}

fn lrp(number: u64, args: &[&str]) -> Recipe {
    let place = Place::new(0, DefinitionId::new("web").unwrap());
    let key = ActualLrpKey::new(ProcessGuid::new("web").unwrap(), place);
    recipe(number, WorkKey::Lrp { key, epoch: Epoch(T) }, scripted(args))
}

fn task(number: u64, args: &[&str]) -> Recipe {
    let work = WorkKey::Task { task_guid: TaskGuid::new("job").unwrap(), epoch: Epoch(T) };
    recipe(number, work, scripted(args))
}

fn cell() -> Scripted {
    Scripted::new("10.0.0.1", Behaviour::from_recipe)
}

fn states(changes: Vec<Container>) -> Vec<ContainerState> {
    changes.into_iter().map(|container| container.state).collect()
}

/// Executes all scheduled steps. Returns each state with its time in milliseconds after `T`.
fn run_schedule(cell: &mut Scripted) -> Vec<(u128, ContainerState)> {
    let mut story = vec![];
    while let Some(at) = cell.next_due() {
        story.extend(states(cell.advance(at)).into_iter().map(|state| (at.since(T).as_millis(), state)));
    }
    story
}

fn running(host_port: u16) -> ContainerState {
    let ports = vec![PortMapping { container_port: 8080, host_port }].into();
    ContainerState::Running(NetInfo { address: "10.0.0.1".into(), ports })
}

fn failed(reason: &str) -> ContainerState {
    let exit_status = reason.strip_prefix("Exited with status ").map(|status| status.parse().unwrap());
    ContainerState::Completed(RunResult::Failed { reason: reason.into(), exit_status })
}

const STOPPED: ContainerState = ContainerState::Completed(RunResult::Stopped);

#[test]
fn process_without_script_runs_at_once_and_never_exits() {
    let mut cell = cell();
    cell.run(T, &lrp(1, &[]));
    cell.run(T, &lrp(2, &[]));
    cell.run(T, &lrp(2, &["exit=1"]));
    assert_eq!(states(cell.list()), [ContainerState::Initializing, ContainerState::Initializing]);
    assert_eq!(cell.next_due(), Some(T));
    let wanted = [ContainerState::Created, ContainerState::Created, running(20_000), running(20_001)];
    assert_eq!(states(cell.advance(T)), wanted);
    assert_eq!(cell.next_due(), None);
}

#[test]
fn script_sets_times_and_exit_status() {
    let mut cell = cell();
    cell.run(T, &lrp(1, &["create=5ms", "start=10ms", "run=2s", "exit=3"]));
    let wanted =
        [(5, ContainerState::Created), (15, running(20_000)), (2015, failed("Exited with status 3"))];
    assert_eq!(run_schedule(&mut cell), wanted);
    cell.run(T, &lrp(2, &["run=1s"]));
    assert_eq!(run_schedule(&mut cell).last(), Some(&(1000, failed("Exited with status 0"))));
}

#[test]
fn task_without_run_time_completes_at_once_with_result() {
    let mut cell = cell();
    cell.run(T, &task(1, &["result=a=b"]));
    cell.run(T, &task(2, &["run=20ms", "exit=2"]));
    let done = ContainerState::Completed(RunResult::Succeeded { result: "a=b".into() });
    let story = run_schedule(&mut cell);
    assert!(story.contains(&(0, done)));
    assert_eq!(story.last(), Some(&(20, failed("Exited with status 2"))));
}

#[test]
fn stop_waits_for_grace_period_only_with_ignore_term() {
    let mut cell = cell();
    cell.run(T, &lrp(1, &[]));
    cell.run(T, &lrp(2, &["ignore-term"]));
    cell.advance(T);
    cell.stop(T, guid(1));
    cell.stop(T, guid(2));
    let later = T + Duration::from_secs(3);
    cell.stop(later, guid(2));
    assert_eq!(run_schedule(&mut cell), [(0, STOPPED), (10_000, STOPPED)]);
}

#[test]
fn exit_before_kill_keeps_its_own_result() {
    let mut cell = cell();
    cell.run(T, &lrp(1, &["ignore-term", "run=1s", "exit=1"]));
    cell.advance(T);
    cell.stop(T, guid(1));
    assert_eq!(run_schedule(&mut cell), [(1000, failed("Exited with status 1"))]);
}

#[test]
fn never_healthy_container_fails_after_start_timeout() {
    let mut cell = cell();
    cell.run(T, &lrp(1, &["never-healthy"]));
    let reason = "Instance never healthy after 5s: Exited with status 1";
    assert_eq!(run_schedule(&mut cell), [(0, ContainerState::Created), (5000, failed(reason))]);
    cell.run(T, &Recipe { start_timeout_ms: 0, ..lrp(2, &["never-healthy"]) });
    assert_eq!(run_schedule(&mut cell), [(0, ContainerState::Created)]);
}

#[test]
fn creation_hangs_or_fails_as_scripted() {
    let mut cell = cell();
    cell.run(T, &lrp(1, &["hang-create"]));
    assert_eq!(cell.next_due(), None);
    cell.stop(T, guid(1));
    assert_eq!(run_schedule(&mut cell), [(0, STOPPED)]);
    cell.run(T, &lrp(2, &["fail-create=no disk"]));
    assert_eq!(run_schedule(&mut cell), [(0, failed("failed to create container: no disk"))]);
    cell.run(T, &lrp(3, &["start=soon"]));
    let reason = "failed to create container: scripted: invalid argument \"start=soon\"";
    assert_eq!(run_schedule(&mut cell), [(0, failed(reason))]);
    assert_eq!(cell.events(), [], "no action ever started");
}

#[test]
fn delete_stops_running_container_and_reports_it_once() {
    let mut cell = cell();
    cell.run(T, &lrp(1, &["ignore-term"]));
    cell.advance(T);
    cell.delete(T, guid(1));
    assert_eq!(states(cell.list()), [running(20_000)]);
    assert_eq!(run_schedule(&mut cell), [(10_000, STOPPED)]);
    assert_eq!(cell.list(), []);
    cell.run(T, &task(2, &[]));
    cell.advance(T);
    cell.delete(T, guid(2));
    assert_eq!((cell.list(), cell.next_due()), (vec![], None));
}

#[test]
fn crash_overrides_script() {
    let mut cell = cell();
    cell.run(T, &lrp(1, &["run=1s"]));
    cell.advance(T);
    cell.take_events();
    let later = T + Duration::from_millis(7);
    cell.crash(later, guid(1), "struck by lightning");
    cell.crash(later, guid(9), "nobody");
    assert_eq!(run_schedule(&mut cell), [(7, failed("struck by lightning"))]);
    let ended = RunResult::Failed { reason: "struck by lightning".into(), exit_status: None };
    let work = lrp(1, &[]).work;
    let wanted = ActionEvent { instance_guid: guid(1), work, at: later, what: ActionEventKind::Ended(ended) };
    assert_eq!(cell.events(), [wanted]);
}

#[test]
fn script_is_found_in_nested_actions() {
    let run = Action::Timeout(Timeout { action: Box::new(scripted(&["exit=4"])), timeout_ms: 1 });
    let mut recipe = task(1, &[]);
    recipe.action = Action::Parallel(Group { actions: vec![run, scripted(&["exit=5"])] });
    let mut cell = cell();
    cell.run(T, &recipe);
    assert_eq!(run_schedule(&mut cell).last(), Some(&(0, failed("Exited with status 4"))));
}

#[derive(Clone, Debug)]
enum Move {
    Run(u64, usize),
    Stop(u64),
    Delete(u64),
    Crash(u64),
    Wait(u64),
}

const SCRIPTS: [&[&str]; 6] = [
    &[],
    &["run=3ms"],
    &["create=2ms", "start=2ms", "ignore-term"],
    &["never-healthy"],
    &["hang-create"],
    &["fail-create=x"],
];

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        (0..4_u64, 0..SCRIPTS.len()).prop_map(|(number, script)| Move::Run(number, script)),
        (0..4_u64).prop_map(Move::Stop),
        (0..4_u64).prop_map(Move::Delete),
        (0..4_u64).prop_map(Move::Crash),
        (0..5_u64).prop_map(Move::Wait),
    ];
    proptest::collection::vec(one, 0..40)
}

proptest! {
    /// Checks that each start of an action is followed by its end before the next start. After the deletion
    /// of every container, no container or timer is left.
    #[test]
    fn starts_and_ends_alternate(moves in moves()) {
        let (mut cell, mut now) = (cell(), T);
        for step in moves {
            match step {
                Move::Run(number, script) => cell.run(now, &lrp(number, SCRIPTS[script])),
                Move::Stop(number) => cell.stop(now, guid(number)),
                Move::Delete(number) => cell.delete(now, guid(number)),
                Move::Crash(number) => cell.crash(now, guid(number), "crash"),
                Move::Wait(millis) => now = now + Duration::from_millis(millis),
            }
            cell.advance(now);
        }
        for number in 0..4 {
            cell.delete(now, guid(number));
        }
        cell.advance(now + Duration::from_secs(60));
        prop_assert_eq!(cell.list(), []);
        prop_assert_eq!(cell.next_due(), None);
        for number in 0..4 {
            let of = cell.events().iter().filter(|happened| happened.instance_guid == guid(number));
            let started: Vec<bool> = of.map(|happened| happened.what == ActionEventKind::Started).collect();
            prop_assert!(started.len().is_multiple_of(2));
            prop_assert!(started.iter().enumerate().all(|(at, started)| *started == (at % 2 == 0)));
        }
        prop_assert!(cell.events().is_sorted_by_key(|happened| happened.at));
    }
}
