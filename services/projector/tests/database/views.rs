//! Tests of the analytical views on given rows.

use std::path::Path;
use std::time::Duration;

use projections::tables::{Batch, Kind, Row, Step, Steps, Table, Value, views};
use projector::ask::QuerySession;
use projector::{Database, Url};
use schemas::{Position, Timestamp};
use serde_json::{Value as Json, json};
use support::postgres::Postgres;

/// Midnight of 2027-01-15, in seconds since 1970.
const MIDNIGHT: u64 = 1_799_971_200;

/// Returns a row with the given columns. The other columns are NULL.
fn row(table: Table, given: &Json) -> Row {
    let values = table.columns().into_iter().map(|column| match (&given[column.name], column.kind) {
        (Json::Null, _) => Value::Null,
        (Json::Number(number), Kind::Time) => Value::Time(seconds(number.as_f64().expect("should be valid"))),
        (Json::Number(number), _) => Value::Integer(number.as_i64().expect("should be valid")),
        (Json::Bool(flag), _) => Value::Boolean(*flag),
        (Json::String(text), _) => Value::Text(text.clone()),
        (other, _) => panic!("{other}"),
    });
    Row { table, values: values.collect() }
}

/// Returns the time `after` seconds after midnight.
fn seconds(after: f64) -> Timestamp {
    let (midnight, away) = (Timestamp::from_seconds(MIDNIGHT), Duration::from_secs_f64(after.abs()));
    if after < 0.0 { midnight - away } else { midnight + away }
}

/// Returns the batch of these entries, each with its time in seconds after midnight.
fn batch(entries: &[(f64, Vec<Step>)]) -> Batch {
    let mut batch = Batch::default();
    for (position, (at, steps)) in (1..).zip(entries) {
        let at = seconds(*at);
        let event = vec![Value::Integer(position), Value::Integer(0), Value::Time(at)];
        let values = event.into_iter().chain(vec![Value::Null; 12]).collect();
        let position = Position(position.unsigned_abs());
        let event = projections::tables::EventRow { position, nth: 0, values };
        batch.add(Steps { position, at: Some(at), steps: steps.clone(), events: vec![event] });
    }
    batch
}

/// Returns databases of both kinds with these entries.
async fn written(folder: &Path, server: &Postgres, entries: &[(f64, Vec<Step>)]) -> [Url; 2] {
    let urls = [
        Url::Sqlite(folder.join("tables.db")),
        server.url("postgres", "postgres").parse().expect("should be valid"),
    ];
    for url in &urls {
        let (mut database, _) = Database::open(url).await.expect("should open");
        database.write(Position(0), &batch(entries), None).await.expect("should be written");
        database.close().await.expect("should close");
    }
    urls
}

async fn ask(url: &Url, as_of: Option<u64>, question: &str) -> Json {
    let (mut reading, _) = QuerySession::open(url).await.expect("should open");
    if let Some(position) = as_of {
        reading.as_of(Position(position)).await.expect("should be shown");
    }
    json!(reading.ask(question).await.expect("a valid query").rows)
}

fn instance(state: &str, index: u32, container: Option<&str>) -> Row {
    instance_of(state, index, container, &json!({}))
}

/// Returns the row of an instance. `other` sets further columns.
fn instance_of(state: &str, index: u32, container: Option<&str>, other: &Json) -> Row {
    let mut row_of = json!({"process_guid": "web", "definition_id": "v1", "index": index, "presence": "ORDINARY", "domain": "d",
        "epoch": -100, "state": state, "instance_guid": container, "cell_id": container.map(|_| "c1"), "since": -100});
    for (name, value) in other.as_object().expect("should be valid") {
        row_of[name] = value.clone();
    }
    row(Table::ActualLrps, &row_of)
}

fn desired(instances: u32) -> Row {
    let indices = format!("[[0,{}]]", instances - 1);
    let lrp = json!({"process_guid": "web", "domain": "d", "mode": "replicated", "instances": instances, "indices": indices});
    row(Table::DesiredLrps, &lrp)
}

fn ended(guid: &str, how: &str, at: f64) -> Step {
    let ended = json!({"instance_guid": guid, "process_guid": "web", "index": 0, "domain": "d", "end_kind": how,
        "ended_at": at, "reason": "Exited with status 3"});
    Step::Open(row(Table::EndedInstances, &ended))
}

/// Returns a scenario of entries, with times in seconds relative to midnight. Two instances are desired at
/// -100. The first instance starts at -90 and keeps running. The second instance starts at -50, crashes at
/// 20, and waits for free resources. One task runs from 10 to 13.5, and one task fails without having run.
fn scenario() -> Vec<(f64, Vec<Step>)> {
    let cell = json!({"cell_id": "c1", "state": "PRESENT", "zone": "z1", "memory_mb": 1000, "disk_mb": 500, "containers": 10});
    let definition =
        json!({"process_guid": "web", "definition_id": "v1", "domain": "d", "memory_mb": 64, "disk_mb": 32});
    let task = |state: &str, completed: Option<f64>| {
        row(
            Table::Tasks,
            &json!({"task_guid": "t", "domain": "d", "epoch": 5, "state": state, "memory_mb": 100, "disk_mb": 1,
            "cell_id": "c1", "failed": completed.map(|_| false), "first_completed_at": completed, "since": 0}),
        )
    };
    let failed = json!({"task_guid": "u", "epoch": 6, "domain": "d", "failed": true, "first_completed_at": 14, "resolved": true});
    let refused = json!({"placement_error": "insufficient resources: memory", "since": 20});
    vec![
        (-110.0, vec![Step::Open(row(Table::Cells, &cell))]),
        (
            -100.0,
            vec![
                Step::Open(desired(2)),
                Step::Open(row(Table::Definitions, &definition)),
                Step::Open(instance("UNCLAIMED", 0, None)),
                Step::Open(instance("UNCLAIMED", 1, None)),
            ],
        ),
        (-95.0, vec![Step::Replace(instance("CLAIMED", 0, Some("a")))]),
        (-90.0, vec![Step::Replace(instance("RUNNING", 0, Some("a")))]),
        (-50.0, vec![Step::Replace(instance("RUNNING", 1, Some("b")))]),
        (10.0, vec![Step::Open(task("RUNNING", None))]),
        (13.5, vec![Step::Replace(task("COMPLETED", Some(13.5)))]),
        (14.0, vec![Step::Open(row(Table::EndedTasks, &failed))]),
        (20.0, vec![Step::Replace(instance_of("UNCLAIMED", 1, None, &refused)), ended("b", "crashed", 20.0)]),
        (100.0, vec![]),
    ]
}

#[tokio::test]
async fn views_show_scenario() {
    let (folder, server) =
        (tempfile::tempdir().expect("a temporary folder"), Postgres::start().expect("a PostgreSQL server"));
    for url in written(folder.path(), &server, &scenario()).await {
        check_scenario(&url).await;
    }
}

async fn check_scenario(url: &Url) {
    let said = [
        (
            "SELECT position, state, instances FROM instances_over_time WHERE state = 'RUNNING'",
            json!([[4, "RUNNING", 1], [5, "RUNNING", 2], [9, "RUNNING", 1]]),
        ),
        (
            "SELECT \"index\", instance_guid, seconds FROM starts ORDER BY 1",
            json!([[0, "a", 10.0], [1, "b", 50.0]]),
        ),
        (
            "SELECT process_guid, starts, p50, p90, longest FROM start_percentiles",
            json!([["web", 2, 10.0, 50.0, 50.0]]),
        ),
        (
            "SELECT day, desired_seconds, running_seconds, availability FROM availability_by_day ORDER BY 1",
            json!([["2027-01-14", 200.0, 140.0, 0.7], ["2027-01-15", 200.0, 120.0, 0.6]]),
        ),
        (
            "SELECT day, process_guid, crashes, indices FROM restarts_by_day",
            json!([["2027-01-15", "web", 1, 1]]),
        ),
        (
            "SELECT process_guid, crashes, last_reason, crashed_now FROM crashing_lrps",
            json!([["web", 1, "Exited with status 3", 0]]),
        ),
        (
            "SELECT kind, name, reason FROM unplaced",
            json!([["instance", "web/1", "insufficient resources: memory"]]),
        ),
        (
            "SELECT cell_id, containers, memory_mb, memory_mb_total, disk_mb FROM cell_fullness",
            json!([["c1", 1, 64, 1000, 32]]),
        ),
        (
            "SELECT hour, succeeded, failed, mean_seconds, longest_seconds FROM task_outcomes_by_hour",
            json!([["2027-01-15T00:00:00.000000Z", 1, 1, 3.5, 3.5]]),
        ),
        ("SELECT count(*) FROM changes", json!([[0]])),
    ];
    for (question, expected) in said {
        assert_eq!(ask(url, None, question).await, expected, "{url}: {question}");
    }
    let then = [
        ("SELECT cell_id, containers, memory_mb FROM cell_fullness", json!([["c1", 3, 228]])),
        (
            "SELECT day, desired_seconds, running_seconds FROM availability_by_day ORDER BY 1 DESC LIMIT 1",
            json!([["2027-01-15", 20.0, 20.0]]),
        ),
        ("SELECT count(*) FROM unplaced", json!([[0]])),
        ("SELECT count(*) FROM actual_lrps_history WHERE to_position IS NULL", json!([[2]])),
        ("SELECT max(position) FROM events", json!([[6]])),
    ];
    for (question, expected) in then {
        assert_eq!(ask(url, Some(6), question).await, expected, "{url} as of position 6: {question}");
    }
}

/// Checks the answer of both databases.
async fn check_query(entries: &[(f64, Vec<Step>)], question: &str, expected: &Json) {
    let (folder, server) =
        (tempfile::tempdir().expect("a temporary folder"), Postgres::start().expect("a PostgreSQL server"));
    for url in written(folder.path(), &server, entries).await {
        assert_eq!(ask(&url, None, question).await, *expected, "{url}: {question}");
    }
}

#[tokio::test]
async fn start_begins_at_last_unclaimed_time() {
    let (open, set, close) = (Step::Open, Step::Replace, Step::Close);
    let refused = json!({"placement_error": "no room", "since": 0});
    let epoch = |epoch: u32, since: u32| json!({"epoch": epoch, "since": since});
    let of = |state: &str, container: Option<&str>, since: u32| {
        instance_of(state, 0, container, &json!({ "since": since }))
    };
    let story = vec![
        // The placement is refused at 540 s and succeeds at 590 s.
        (0.0, vec![open(of("UNCLAIMED", None, 0))]),
        (540.0, vec![set(instance_of("UNCLAIMED", 0, None, &refused))]),
        (590.0, vec![set(of("CLAIMED", Some("a"), 590))]),
        (600.0, vec![set(of("RUNNING", Some("a"), 600))]),
        // A stop request does not count as a new start.
        (610.0, vec![set(instance_of("RUNNING", 0, Some("a"), &json!({"since": 600, "stopping": true})))]),
        // A running container is found twice: once where the record is CRASHED, and once where no record
        // exists.
        (700.0, vec![set(of("CRASHED", None, 700))]),
        (710.0, vec![set(of("RUNNING", Some("b"), 710))]),
        (720.0, vec![close(of("RUNNING", Some("b"), 710))]),
        (730.0, vec![open(of("UNCLAIMED", None, 730))]),
        (740.0, vec![close(of("UNCLAIMED", None, 730))]),
        (750.0, vec![open(of("RUNNING", Some("c"), 750))]),
        // Another container runs at the same slot.
        (760.0, vec![set(of("RUNNING", Some("d"), 760))]),
        // An UNCLAIMED row of the previous epoch does not belong to this start.
        (770.0, vec![set(of("UNCLAIMED", None, 770))]),
        (780.0, vec![set(instance_of("CLAIMED", 0, Some("e"), &epoch(780, 780)))]),
        (790.0, vec![set(instance_of("RUNNING", 0, Some("e"), &epoch(780, 790)))]),
        // The instance crashes and becomes UNCLAIMED twice, because its first cell was lost.
        (800.0, vec![set(instance_of("CRASHED", 0, None, &epoch(780, 800)))]),
        (830.0, vec![set(instance_of("UNCLAIMED", 0, None, &epoch(780, 830)))]),
        (832.0, vec![set(instance_of("CLAIMED", 0, Some("f"), &epoch(780, 832)))]),
        (840.0, vec![set(instance_of("UNCLAIMED", 0, None, &epoch(780, 840)))]),
        (842.0, vec![set(instance_of("CLAIMED", 0, Some("g"), &epoch(780, 842)))]),
        (845.5, vec![set(instance_of("RUNNING", 0, Some("g"), &epoch(780, 845)))]),
    ];
    let question = "SELECT instance_guid, seconds FROM starts ORDER BY position";
    let expected = json!([["a", 600.0], ["b", null], ["c", null], ["d", null], ["e", null], ["g", 5.5]]);
    check_query(&story, question, &expected).await;
}

#[tokio::test]
async fn index_is_available_while_any_instance_runs() {
    let (open, set, close) = (Step::Open, Step::Replace, Step::Close);
    let new = json!({"definition_id": "v2"});
    let twin = instance_of("RUNNING", 1, Some("b"), &json!({"presence": "EVACUATING"}));
    let global = json!({"process_guid": "agent", "domain": "d", "mode": "global", "instances": 2, "indices": "[[3,3],[7,7]]"});
    let agent = |index: u32| instance_of("RUNNING", index, Some("x"), &json!({"process_guid": "agent"}));
    let story = vec![
        (
            0.0,
            vec![
                open(desired(2)),
                open(instance("UNCLAIMED", 0, None)),
                open(instance("RUNNING", 1, Some("b"))),
                open(row(Table::DesiredLrps, &global)),
                // The instance at index 5 is not desired.
                open(agent(3)),
                open(agent(5)),
            ],
        ),
        // Two definitions run at index 1, and no instance runs at index 0. Later, only the evacuating
        // instance runs at index 1, while its replacement is being placed.
        (10.0, vec![open(instance_of("RUNNING", 1, Some("c"), &new))]),
        (50.0, vec![close(instance("RUNNING", 1, Some("b"))), open(twin.clone())]),
        (60.0, vec![set(instance_of("CLAIMED", 1, Some("d"), &new))]),
        (90.0, vec![set(instance_of("RUNNING", 1, Some("d"), &new)), close(twin)]),
        (100.0, vec![]),
    ];
    let question = "SELECT process_guid, desired_seconds, running_seconds, availability \
                    FROM availability_by_day ORDER BY 1";
    let expected = json!([["agent", 200.0, 100.0, 0.5], ["web", 200.0, 100.0, 0.5]]);
    check_query(&story, question, &expected).await;
    let question = "SELECT position, instances FROM instances_over_time WHERE state = 'RUNNING' ORDER BY 1";
    check_query(&story, question, &json!([[1, 3], [2, 4], [3, 3], [4, 2], [5, 3]])).await;
}

#[tokio::test]
async fn day_boundary_is_exact() {
    let story = vec![
        (-0.5, vec![Step::Open(desired(1))]),
        (0.0, vec![Step::Open(instance("UNCLAIMED", 0, None))]),
        (0.5, vec![Step::Replace(instance("RUNNING", 0, Some("a")))]),
        (1.0, vec![Step::Close(instance("RUNNING", 0, Some("a")))]),
    ];
    let question = "SELECT day, desired_seconds, running_seconds FROM availability_by_day ORDER BY 1";
    check_query(&story, question, &json!([["2027-01-14", 0.5, 0.0], ["2027-01-15", 1.0, 0.5]])).await;
    // A row that ends at midnight does not count for the next day.
    let story =
        vec![(-1.0, vec![Step::Open(desired(1))]), (0.0, vec![Step::Close(desired(1))]), (1.0, vec![])];
    check_query(&story, question, &json!([["2027-01-14", 1.0, 0.0]])).await;
}

#[tokio::test]
async fn views_have_documented_columns() {
    let (folder, server) =
        (tempfile::tempdir().expect("a temporary folder"), Postgres::start().expect("a PostgreSQL server"));
    for url in written(folder.path(), &server, &[]).await {
        let (mut reading, _) = QuerySession::open(&url).await.expect("should open");
        for view in views::all(url.dialect()) {
            let answer = reading.ask(&format!("SELECT * FROM {}", view.name)).await.expect("a valid view");
            let said: Vec<&str> = view.columns.iter().map(|(name, _)| *name).collect();
            assert_eq!(answer.columns, said, "{url}: {}", view.name);
        }
    }
}
