//! Golden test of rows: the answers to every query about one cluster that contains every state.
//!
//! `MUSTER_WRITE_GOLDEN=1 cargo test -p projections --test fold rows` rewrites the golden file.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use projections::tables::Table;
use projections::{Observed, Query, World};
use schemas::cluster::Role;
use schemas::container::Epoch;
use schemas::entry::{Aggregate, Event};
use schemas::limits::STATUS_NAMED;
use schemas::message::Program;
use schemas::names::{DispatchKey, ParameterisedGuid, PeriodicGuid, ServiceId, TaskGuid};
use schemas::parameterised::{self, Dispatch};
use schemas::query::{
    AppendProblem, ClocksRow, Filter, Finding, FindingCode, Health, LogRow, Page, QuarantinedEntries,
    ServiceRow, Services, Show, ShowAnswer, StatusRow,
};
use schemas::{Position, Timestamp, periodic, spec};
use serde_json::{Value, json};

use crate::log::{Action, Log, ProcessAction, TaskAction, cell_id, domain, guid, write};

fn story(asks: impl IntoIterator<Item = Action>) -> Log {
    write(&asks.into_iter().map(|ask| vec![ask]).collect::<Vec<_>>())
}

fn desire(process: u8, domain: u8, instances: u8) -> Action {
    Action::Process(process, ProcessAction::Desire { domain, instances, size: process })
}

fn report(process: u8, index: u8, container: u8, steps: &[u8]) -> Action {
    Action::Process(process, ProcessAction::Report { index, container, steps: steps.to_vec() })
}

fn unplaced(process: u8, index: u8) -> Action {
    Action::Process(process, ProcessAction::Unplaced { index, error: 1 })
}

const fn seen(cell: u8, evacuating: bool, healthy: bool) -> Action {
    Action::CellHeartbeat { cell, evacuating, healthy }
}

/// Adds a periodic task that has launched, one that is paused, and one that is removed.
fn periodic_tasks(log: &mut Log) {
    for (number, name) in ["report", "paused", "removed"].into_iter().enumerate() {
        let guid = PeriodicGuid::new(name).expect("a valid name");
        let desired = spec::periodic(json!({
            "periodic_guid": name, "domain": domain(0), "cron": "0 3 * * *", "memory_mb": 32,
            "action": {"run": {"path": "report"}},
        }));
        let desired = Box::new(desired.expect("a periodic task"));
        let (none, never) = (|_: &PeriodicGuid| false, |_: &TaskGuid| false);
        let mut commands = vec![periodic::Command::Desire(desired)];
        commands.push(
            [periodic::Command::Launch, periodic::Command::Pause, periodic::Command::Remove][number].clone(),
        );
        for (version, command) in (1..).zip(commands) {
            let context =
                machines::periodic::Context { now: log.next_time(), is_running: &none, task_exists: &never };
            let known = log.world.periodic(&guid);
            let events = machines::periodic::decide(known, &command, context).expect("a valid command");
            let epoch = known.map_or(Epoch(log.next_time()), |known| known.epoch);
            let about = Aggregate::Periodic { guid: guid.clone(), domain: domain(0), epoch };
            log.decide_on(about, version, events.into_iter().map(Event::Periodic).collect());
        }
    }
}

/// Adds a parameterised task with one launched dispatch and one waiting dispatch.
fn parameterised_tasks(log: &mut Log) {
    let guid = ParameterisedGuid::new("resize").expect("a valid name");
    let desired = spec::parameterised(json!({
        "parameterised_guid": "resize", "domain": domain(1), "concurrency": 1, "optional_parameters": ["size"],
        "memory_mb": 32, "action": {"run": {"path": "resize"}},
    }));
    let dispatch = |key: &str| {
        let key = DispatchKey::new(key).ok();
        parameterised::Command::Dispatch(Box::new(Dispatch { key, ..Dispatch::default() }))
    };
    let desired = parameterised::Command::Desire(Box::new(desired.expect("a parameterised task")));
    for (version, command) in (1..).zip([desired, dispatch("one"), dispatch("two")]) {
        let (fewer, never) = (|_: &ParameterisedGuid, _| version < 3, |_: &TaskGuid| false);
        let context = machines::parameterised::Context { has_fewer_live_tasks: &fewer, task_exists: &never };
        let known = log.world.parameterised(&guid);
        let events = machines::parameterised::decide(known, &command, context).expect("a valid command");
        let epoch = known.map_or(Epoch(log.next_time()), |known| known.epoch);
        let about = Aggregate::Parameterised { guid: guid.clone(), domain: domain(1), epoch };
        log.decide_on(about, version, events.into_iter().map(Event::Parameterised).collect());
    }
}

#[test]
fn tables_contain_all_rows_at_each_step() {
    let log = full_log();
    crate::tables::check_tables(&log.entries).unwrap();
    let shown = projections::tables::rows(&log.world);
    let known: std::collections::BTreeSet<_> = shown.iter().map(|row| row.table).collect();
    let missing: Vec<_> = Table::ALL.into_iter().filter(|table| !known.contains(table)).collect();
    assert_eq!(missing, [Table::Rollouts, Table::EndedTasks], "other tests cover these tables");
}

fn full_world() -> World {
    full_log().world
}

/// Returns the log of a cluster in which every aggregate occurs in every state.
pub(crate) fn full_log() -> Log {
    const CLAIM: &[u8] = &[0];
    const RUN: &[u8] = &[0, 1];
    const CRASH: &[u8] = &[0, 3];
    let task = |task, ask| Action::Task(task, ask);
    let start = |number| task(number, TaskAction::Report { container: 1, step: 0 });
    let desire_task = |number, size| task(number, TaskAction::Desire { domain: number % 2, size });
    let mut log = story([
        seen(2, false, true),
        seen(3, false, false),
        seen(4, false, true),
        Action::Refresh { domain: 0, seconds: 99 },
        Action::Refresh { domain: 1, seconds: 1 },
        desire(0, 0, 4),
        report(0, 0, 1, RUN),
        report(0, 1, 1, CLAIM),
        unplaced(0, 2),
        desire(1, 1, 2),
        report(1, 0, 2, CRASH),
        report(1, 0, 2, CRASH),
        report(1, 0, 2, CRASH),
        report(1, 0, 2, CRASH),
        report(1, 1, 1, RUN),
        // The index is being evacuated: its record becomes UNCLAIMED and is then claimed on another cell.
        report(1, 1, 2, &[6, 5]),
        report(1, 1, 4, CLAIM),
        // This instance is stopping, since its process was removed.
        desire(2, 0, 2),
        report(2, 0, 1, RUN),
        Action::Process(2, ProcessAction::Remove),
        // No cell can take any instance of this process.
        desire(3, 1, 1),
        unplaced(3, 0),
        desire_task(0, 3),
        task(0, TaskAction::Unplaced),
        desire_task(1, 5),
        start(1),
        desire_task(2, 4),
        start(2),
        task(2, TaskAction::Report { container: 1, step: 1 }),
        task(2, TaskAction::Resolve { step: 1 }),
        desire_task(3, 1),
        start(3),
        task(3, TaskAction::Report { container: 1, step: 2 }),
        // The owner of this task cannot take the callback now.
        desire_task(5, 4),
        start(5),
        task(5, TaskAction::Report { container: 1, step: 1 }),
        task(5, TaskAction::Resolve { step: 1 }),
        task(5, TaskAction::Resolve { step: 3 }),
        desire_task(4, 3),
        Action::CellLost { cell: 2 },
        seen(1, true, true),
    ]);
    periodic_tasks(&mut log);
    parameterised_tasks(&mut log);
    log
}

fn service(name: &str, role: Role, leads: bool, lag: u64) -> ServiceRow {
    ServiceRow {
        id: ServiceId::new(name).expect("a valid name"),
        role,
        leads,
        term: 2,
        program: Program { version: "0.1.0".into(), host: "h".into(), pid: 7 },
        position: Position(50),
        lag,
        heartbeat_ms_ago: 12,
        append_problem: None,
    }
}

/// Returns the services of a cluster with one leader of each role.
fn services() -> Services {
    let rows =
        vec![service("bbs-1", Role::Bbs, true, 0), service("auctioneer-1", Role::Auctioneer, true, 999)];
    Services { rows, complete: true, clocks: ClocksRow::default() }
}

fn observed(world: &World, services: Services) -> Observed {
    let heard = (0..4).map(|cell| (cell_id(cell), Duration::from_millis(9_999)));
    // The last cell has sent no heartbeat for a while.
    let silent = (cell_id(4), Duration::from_secs(10));
    Observed {
        bbs: ServiceId::new("bbs-1").expect("a valid name"),
        now: world.processes_from(None).map(|process| process.changed_at).max().unwrap_or_default(),
        durability: "on disk".into(),
        history_limit: 5,
        refused_transitions: 0,
        log: None,
        quarantined_entries: QuarantinedEntries::default(),
        services,
        heartbeat_ages: heard.chain([silent]).collect::<BTreeMap<_, _>>(),
    }
}

/// Returns every query with a name.
fn queries() -> Vec<(&'static str, Query)> {
    let all = Filter::default;
    let of_domain = || Filter { domain: Some(domain(1)), ..all() };
    let on_other = || Filter { cell_id: Some(cell_id(0)), ..all() };
    let on_cell = || Filter { cell_id: Some(cell_id(1)), ..all() };
    let of_process = || Filter { process_guid: Some(guid(1)), ..all() };
    let both = || Filter { all: true, ..all() };
    let whole = || Filter { definitions: true, ..of_domain() };
    let show = |id: &str| Show { id: id.into(), at_least: None, as_of: None };
    vec![
        ("lrps", Query::Lrps(all())),
        ("lrps of a domain, with definitions", Query::Lrps(whole())),
        ("lrps on a cell", Query::Lrps(on_other())),
        ("lrps of a process", Query::Lrps(of_process())),
        (
            "lrps of a set of processes",
            Query::Lrps(Filter { process_guids: [guid(0), guid(1), guid(9)].into(), ..all() }),
        ),
        (
            "lrps of a process and of a set of processes",
            Query::Lrps(Filter { process_guids: [guid(0)].into(), ..of_process() }),
        ),
        ("lrp", Query::Lrp(show("process-0"))),
        ("instances", Query::Instances(all())),
        ("instances, both records", Query::Instances(Filter { all: true, ..of_process() })),
        ("instances of a domain", Query::Instances(of_domain())),
        ("instances on a cell", Query::Instances(on_cell())),
        (
            "instances on a cell, both records",
            Query::Instances(Filter { cell_id: Some(cell_id(1)), ..both() }),
        ),
        (
            "instances of a process on a cell",
            Query::Instances(Filter { cell_id: Some(cell_id(1)), ..of_process() }),
        ),
        ("instance", Query::Instance(show("process-1/1"))),
        ("ended instances", Query::EndedInstances(all())),
        ("ended instances of a process", Query::EndedInstances(of_process())),
        ("ended tasks", Query::EndedTasks(all())),
        ("tasks", Query::Tasks(all())),
        ("tasks of a domain, with definitions", Query::Tasks(whole())),
        ("tasks on a cell", Query::Tasks(on_cell())),
        ("task", Query::Task(show("task-2"))),
        ("periodic tasks", Query::Periodics(all())),
        ("periodic tasks, with definitions", Query::Periodics(Filter { definitions: true, ..all() })),
        ("periodic task", Query::Periodic(show("report"))),
        ("parameterised tasks", Query::Parameterised(all())),
        ("parameterised task", Query::ParameterisedOne(show("resize"))),
        ("domains", Query::Domains(all())),
        ("domains of a domain", Query::Domains(of_domain())),
        ("cells", Query::Cells(all())),
        ("cells on a cell", Query::Cells(on_cell())),
        ("domain", Query::DomainUse(show("domain-0"))),
        ("cell", Query::Cell(show("cell-4"))),
        ("evaluations", Query::Evaluations(all())),
        ("evaluations of a process", Query::Evaluations(of_process())),
        ("cluster", Query::Cluster(all())),
        ("status", Query::Status(all())),
        ("no such lrp", Query::Lrp(show("process-9"))),
        ("no such instance", Query::Instance(show("process-0/9"))),
        ("an instance with an invalid name", Query::Instance(show("process-0"))),
        ("no such task", Query::Task(show("task-9"))),
        ("no such periodic task", Query::Periodic(show("no"))),
        ("no such parameterised task", Query::ParameterisedOne(show("no"))),
        ("no such cell", Query::Cell(show("cell-9"))),
        ("no such evaluation", Query::Evaluation(show("process-0"))),
    ]
}

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/rows.txt")
}

/// Formats an answer with each row on its own line.
fn lines(answer: &str) -> String {
    let mut answer: Value = serde_json::from_str(answer).expect("JSON");
    let Some(rows) = answer.get_mut("rows").map(Value::take) else { return answer.to_string() };
    let rows = rows.as_array().expect("a list").iter().map(|row| format!("\n{row}"));
    rows.fold(answer.to_string(), |text, row| text + &row)
}

#[test]
fn rows_match_golden_file() {
    let world = full_world();
    let observed = observed(&world, services());
    let mut text = String::new();
    for (name, query) in queries() {
        let answer =
            query.answer(&world, &observed).map_or_else(|refusal| refusal.to_string(), |json| lines(&json));
        writeln!(text, "## {name}\n{answer}\n").unwrap();
    }
    if fixtures::pages::may_write() {
        std::fs::create_dir_all(golden().parent().unwrap()).unwrap();
        std::fs::write(golden(), &text).unwrap();
    }
    let known = std::fs::read_to_string(golden()).unwrap_or_default();
    for (known, now) in known.lines().zip(text.lines()) {
        assert_eq!(now, known);
    }
    assert_eq!(text.lines().count(), known.lines().count());
}

fn status(world: &World, services: Services) -> StatusRow {
    let answer = Query::Status(Filter::default()).answer(world, &observed(world, services));
    serde_json::from_str::<ShowAnswer<StatusRow>>(&answer.expect("a status")).expect("a row").row
}

#[test]
fn every_list_continues_after_cursor() {
    let world = full_world();
    let observed = observed(&world, services());
    let page = |query: &Query| {
        let answer = query.answer(&world, &observed).expect("a page");
        serde_json::from_str::<Page<Value>>(&answer).expect("a page")
    };
    let lists: [fn(Filter) -> Query; 6] =
        [Query::Lrps, Query::Instances, Query::Tasks, Query::Domains, Query::Cells, Query::Evaluations];
    for list in lists {
        let all = page(&list(Filter::default())).rows;
        for limit in 1..=all.len() {
            let mut rows = vec![];
            let mut cursor = None;
            loop {
                let Page { rows: more, next, .. } =
                    page(&list(Filter { limit: Some(limit), cursor, ..Filter::default() }));
                assert_eq!(more.len(), limit.min(all.len() - rows.len()));
                rows.extend(more);
                cursor = next;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(rows, all, "{limit} at a time");
        }
    }
}

#[test]
fn append_trouble_is_reported_for_leader_or_without_leader() {
    let world = story([]).world;
    let trouble = |failing| {
        Some(AppendProblem { since: Timestamp::from_millis(0), failing, reason: "disk full".into() })
    };
    let of = |leads: bool, own: Option<AppendProblem>, other: Option<AppendProblem>| {
        let auctioneer = service("a", Role::Auctioneer, true, 0);
        let leader = ServiceRow { append_problem: own, ..service("b1", Role::Bbs, leads, 0) };
        let standby = ServiceRow { append_problem: other, ..service("b2", Role::Bbs, false, 0) };
        let rows = vec![standby, leader, auctioneer];
        let row = status(&world, Services { rows, complete: true, ..Services::default() });
        row.findings.into_iter().map(|finding| finding.code).collect::<Vec<_>>()
    };
    assert_eq!(of(true, trouble(true), None), [FindingCode::AppendsFail]);
    assert_eq!(of(true, trouble(false), None), [FindingCode::AppendsSlow]);
    assert_eq!(of(true, None, trouble(true)), [], "another BBS appends successfully");
    assert_eq!(of(false, None, trouble(true)), [FindingCode::AppendsFail, FindingCode::NoBbsLeads]);
}

#[test]
fn log_problems_are_reported() {
    let world = story([]).world;
    let found =
        |in_sync: u32, bytes: u64, max_bytes: Option<u64>, unreadable: Option<&str>, hazards: &[&str]| {
            let behind = if in_sync < 3 { vec!["n2".to_owned()] } else { vec![] };
            let (unreadable, hazards) =
                (unreadable.map(str::to_owned), hazards.iter().map(|one| (*one).to_owned()).collect());
            let (replicas, replicas_in_sync, entries) = (3, in_sync, 1);
            let log =
                LogRow { replicas, replicas_in_sync, behind, entries, bytes, max_bytes, unreadable, hazards };
            let observed = Observed { log: Some(log), ..observed(&world, services()) };
            let answer = Query::Status(Filter::default()).answer(&world, &observed).expect("a status");
            let row = serde_json::from_str::<ShowAnswer<StatusRow>>(&answer).expect("a row").row;
            row.findings.into_iter().map(|finding| finding.message).collect::<Vec<_>>()
        };
    let of = |in_sync, bytes, max_bytes| found(in_sync, bytes, max_bytes, None, &[]);
    assert_eq!(of(3, 79, Some(100)), [""; 0]);
    assert_eq!(of(3, 1 << 40, None), [""; 0]);
    assert!(of(3, 80, Some(100))[0].starts_with("the log has 80 of at most 100 bytes"));
    assert!(of(2, 0, None)[0].starts_with("2 of 3 replicas of the log have every entry: n2"));
    assert_eq!(
        found(3, 0, None, Some("no message found"), &["s2"]),
        ["the log cannot be read: no message found", "s2"]
    );
}

/// Returns the messages of a status's findings, in order.
fn findings(world: &World, services: Services) -> Vec<String> {
    let row = status(world, services);
    let worst = row.findings.iter().map(|finding| finding.severity).max();
    assert_eq!(row.health as u8, worst.map_or(0, |worst| worst as u8), "{row:?}");
    row.findings.into_iter().map(|finding| finding.message).collect()
}

#[test]
fn missing_lagging_and_mixed_version_services_are_reported() {
    use Role::{Auctioneer, Bbs};
    let world = story([]).world;
    let good = || services().rows;
    let of = |rows: Vec<ServiceRow>| {
        findings(&world, Services { rows, complete: true, clocks: ClocksRow::default() })
    };
    assert_eq!(of(good()), [""; 0]);
    assert_eq!(
        of(vec![]),
        [
            "no BBS leads: no command is accepted until one does",
            "no auctioneer is alive: nothing is placed until one is; start one: muster auctioneer",
        ]
    );
    assert_eq!(
        findings(&world, Services::default()),
        [""; 0],
        "the BBS has not observed heartbeats long enough"
    );
    let stand_by = vec![service("b", Bbs, false, 0), service("a", Auctioneer, false, 0)];
    assert_eq!(
        of(stand_by),
        [
            "no BBS leads: no command is accepted until one does",
            "no auctioneer leads: nothing is placed until one does",
        ]
    );
    assert_eq!(
        of([good(), vec![service("b", Bbs, false, 1_000)]].concat()),
        ["b is 1000 entries behind the log"]
    );
    let mut row = status(&world, services());
    row.add_finding(Finding::new(FindingCode::MonitorsFail, "a monitor fails"));
    row.add_finding(Finding::new(FindingCode::NoCell, "there is no cell"));
    let found: Vec<&str> = row.findings.iter().map(|finding| finding.message.as_str()).collect();
    assert_eq!((found, row.health), (vec!["there is no cell", "a monitor fails"], Health::Unhealthy));
    let mut old = service("a2", Auctioneer, false, 0);
    old.program.version = "0.0.9".into();
    assert_eq!(
        of([good(), vec![old]].concat()),
        ["BBSs and auctioneers run different versions: 0.0.9, 0.1.0"]
    );
}

#[test]
fn status_names_worst_of_each_kind_within_limit() {
    let many = u8::try_from(STATUS_NAMED).unwrap() + 2;
    let unplaced = |index| unplaced(0, index);
    let crashed = |index| std::iter::repeat_n(report(1, index, 1, &[0, 3]), 4);
    let claimed = |index| report(2, index, 1, &[0]);
    let asks = [desire(0, 0, many), desire(1, 0, many), desire(2, 0, many)].into_iter();
    let asks = asks.chain((0..many).map(unplaced)).chain((0..many).flat_map(crashed));
    let asks =
        asks.chain((0..many).rev().map(claimed)).chain((10..10 + many).map(|cell| seen(cell, true, true)));
    let world = story(asks).world;
    let row = status(&world, services());
    let worst: Vec<String> =
        row.worst.iter().map(|row| format!("{}/{}", row.process_guid, row.index)).collect();
    let expected: Vec<String> = (0..STATUS_NAMED).map(|index| format!("process-1/{index}")).collect();
    assert_eq!(worst, expected, "crashed instances first");
    let oldest: Vec<String> =
        (0..STATUS_NAMED).map(|at| format!("process-2/{}", usize::from(many) - 1 - at)).collect();
    assert_eq!(row.starting, oldest);
    assert_eq!((row.instances_desired, row.instances_unplaced, row.cells.len()), (30, 10, STATUS_NAMED));
    let cells = row.findings.iter().filter(|finding| finding.message.contains("is being evacuated")).count();
    assert_eq!(cells, usize::from(many), "every cell has a finding, even beyond the limit");
}
