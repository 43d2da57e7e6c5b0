//! Tests of a restarted rep: it finds containers and records, and reports nothing before it knows both.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::container::{Container, ContainerState, RunResult};
use schemas::isolation::Isolation;
use schemas::names::InstanceGuid;
use schemas::{Position, actual, process};

use rep::{Effect, Input, Settings};

use crate::cell::Cell;
use crate::small_bbs::SmallBbs;
use crate::words;

/// Restarts the rep of this cell. The containers and the BBS stay.
fn restart(cell: Cell) -> Cell {
    let (bbs, containers, now) = (cell.bbs, cell.containers, cell.now);
    let mut cell = Cell::unstarted(words::settings(), bbs, containers);
    cell.now = now;
    cell
}

#[test]
fn running_containers_are_adopted_before_first_heartbeat() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    let mut cell = restart(cell);
    assert!(cell.rep.alarm().unwrap() <= cell.now);
    cell.input(Input::Tick);
    assert_eq!(cell.take_story(), "self-test, read");
    assert_eq!(cell.heartbeats.len(), 1);
    assert_eq!(cell.heartbeats[0].free.memory_mb, 900);
    assert_eq!(cell.heartbeats[0].sequence, 1);
    assert_eq!(cell.bbs.holder("web", 0).unwrap().instance_guid, guid);
    assert!(cell.containers.contains_key(&guid));
}

#[test]
fn restarted_rep_reads_records_no_older_than_its_containers() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    let let_in_at = cell.containers[&guid].admitted_at;
    assert!(let_in_at > Position(0));
    let mut cell = restart(cell);
    assert!(cell.rep.step(cell.now, Input::Tick).contains(&Effect::ListContainers));
    let list = cell.containers.values().cloned().collect();
    let mut asked = cell.rep.step(cell.now, Input::Containers(list));
    asked.extend(cell.rep.step(cell.now, Input::Turn));
    asked.retain(|effect| !matches!(effect, Effect::Log { .. }));
    let [Effect::AskRecords { records, .. }] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(records.at_least, Some(let_in_at));
}

#[test]
fn rep_without_records_accepts_no_work_and_sends_no_heartbeat() {
    let mut cell = Cell::open();
    cell.running("web");
    cell.bbs.desire("api", 1, cell.now);
    let mut cell = restart(cell);
    cell.lose_messages = usize::MAX;
    cell.input(Input::Tick);
    cell.auction(1);
    cell.advance(Duration::from_secs(60));
    assert!(cell.heartbeats.is_empty());
    let refused = &cell.performed[0].as_ref().unwrap().refused;
    assert_eq!(*refused, [(0, "the cell is starting".to_owned())]);
    assert_eq!(cell.containers.len(), 1);
    cell.evacuate();
    assert!(cell.answers[0].is_err());
    cell.lose_messages = 0;
    cell.advance(Duration::from_secs(16));
    assert!(!cell.heartbeats.is_empty());
    cell.auction(2);
    assert_eq!(cell.bbs.state("api", 0), "CLAIMED");
}

#[test]
fn ends_during_rep_downtime_are_reported() {
    let mut cell = Cell::open();
    let web = cell.running("web");
    let count = cell.running_task("count");
    let gone = cell.running_task("lost");
    cell.containers.get_mut(&web).unwrap().state = words::failed("broken");
    cell.containers.get_mut(&count).unwrap().state = words::succeeded("42");
    cell.containers.remove(&gone);
    let mut cell = restart(cell);
    cell.input(Input::Tick);
    assert!(cell.containers.is_empty());
    assert_eq!(cell.bbs.processes["web"].actual(&fixtures::place(0, "web")).unwrap().crash_count, 1);
    let outcome = |name: &str| &cell.bbs.tasks[name].completed().unwrap().outcome;
    assert_eq!(*outcome("count"), schemas::task::Outcome::Succeeded { result: "42".into() });
    let reason = machines::task::NO_CONTAINER.to_owned();
    assert_eq!(*outcome("lost"), schemas::task::Outcome::Failed { reason });
}

#[test]
fn unclaimed_containers_are_judged_by_record() {
    let (web, api) = (words::guid(1), words::guid(2));
    let mut bbs = SmallBbs::default();
    bbs.desire("web", 1, words::at(0));
    let of = |guid, name: &str, state| {
        (guid, words::container(guid, words::lrp_key(name, 0, words::at(0)), state))
    };
    let containers: BTreeMap<InstanceGuid, Container> =
        [of(web, "web", ContainerState::Created), of(api, "api", ContainerState::Created)].into();
    let mut cell = Cell::unstarted(words::settings(), bbs, containers);
    cell.input(Input::Tick);
    // `web` is claimed, which is inconceivable. `api` is not desired.
    assert_eq!(cell.take_story(), "self-test, read, delete, claim");
    assert_eq!(cell.bbs.holder("web", 0).unwrap().instance_guid, web);
    assert_eq!(cell.warnings.len(), 1, "{:?}", cell.warnings);
    assert!(!cell.containers.contains_key(&api));
}

#[test]
fn many_containers_are_read_in_several_requests() {
    let total = schemas::resources::Resources {
        memory_mb: 1 << 20,
        disk_mb: 1 << 20,
        containers: 5_000,
        ports: 5_000,
    };
    let settings = Settings { total, ..words::settings() };
    let mut bbs = SmallBbs::default();
    bbs.desire("web", 2_600, words::at(0));
    let containers = (0..2_600).map(|index| {
        let guid = words::guid(u64::from(index));
        let state = ContainerState::Running(words::net_info(1));
        (guid, words::container(guid, words::lrp_key("web", index, words::at(0)), state))
    });
    let mut cell = Cell::unstarted(settings, bbs, containers.collect());
    let mut effects = cell.rep.step(cell.now, Input::Tick);
    assert_eq!(effects.remove(0), Effect::ListContainers);
    cell.input(Input::Containers(cell.containers.values().cloned().collect()));
    assert_eq!(cell.story.iter().filter(|word| *word == "read").count(), 6);
    assert_eq!(cell.bbs.processes["web"].unclaimed, 0);
    assert_eq!(cell.containers.len(), 2_600);
}

#[test]
fn orphaned_records_are_corrected_at_start() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    cell.bbs.process("web", &process::Command::Converge, cell.now).unwrap();
    cell.containers.remove(&guid);
    let mut cell = restart(cell);
    cell.input(Input::Tick);
    assert_eq!(cell.take_story(), "self-test, read, remove");
    assert_eq!(cell.bbs.state("web", 0), "UNCLAIMED");
}

#[test]
fn each_lifecycle_event_logs_one_line() {
    let mut cell = Cell::open();
    let guid = cell.running("web");
    assert_eq!(
        cell.infos,
        [format!("starts web/0 as {guid}"), format!("web/0 as {guid}: runs at 10.0.0.1:1")]
    );
    let mut cell = restart(cell);
    cell.input(Input::Tick);
    assert_eq!(cell.infos, [format!("adopts web/0 as {guid}: runs at 10.0.0.1:1")]);
    cell.infos.clear();
    let done = cell.containers.get(&guid).cloned().map(|container| Container {
        state: ContainerState::Completed(RunResult::Failed {
            reason: "Exited with status 3".into(),
            exit_status: Some(3),
        }),
        ..container
    });
    cell.input(Input::Container(done.unwrap()));
    assert_eq!(cell.infos, [format!("web/0 as {guid}: failed: Exited with status 3")]);
}

#[test]
fn log_messages_are_readable_sentences() {
    assert!(!words::is_readable("Completed against Some(Running)") && !words::is_readable("steps: [Crash]"));
    let mut cell = Cell::open();
    let guid = cell.running("web");
    let task = cell.running_task("count");
    cell.infos.clear();
    // Another cell runs the instance, the container of a task is missing, and the evacuation ends. Each
    // message names the case and the resulting steps.
    let other = words::guid(9);
    cell.bbs.lost_cells.insert(words::cell_id("c1"));
    cell.bbs.process("web", &process::Command::Converge, cell.now).unwrap();
    cell.bbs.lost_cells.clear();
    crate::losses::report_from_other_cell(
        &mut cell,
        9,
        actual::Command::Start { net: words::net_info(9), isolation: Isolation::NONE },
    );
    assert_eq!(cell.bbs.holder("web", 0).unwrap().instance_guid, other);
    cell.advance(Duration::from_secs(30));
    cell.containers.remove(&task);
    cell.advance(Duration::from_secs(30));
    let gone = format!(
        "task count as {task}: the container does not exist, but its record is RUNNING in it: reports that \
         the task failed"
    );
    let runs = format!("web/0 as {guid} runs at 10.0.0.1:1, but its record is RUNNING in {other} on cell c2");
    assert_eq!(
        cell.infos,
        [format!("{runs}: deletes the container"), format!("stops web/0 as {guid}"), gone]
    );
    cell.infos.clear();
    cell.evacuate();
    assert_eq!(
        cell.infos,
        [
            "evacuation started: 0 containers to move away within 600 s",
            "evacuation finished: no container is left"
        ]
    );
}
