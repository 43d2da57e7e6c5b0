//! Tests of tables in real databases: recovery of a killed projector, queries of the past, and refused input.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use journal::{Append, Journal, Memory};
use projections::World;
use projections::cluster_log::QuarantinedPositions;
use projections::tables::{Batch, Dialect, Row, Table, Tables, Value, time};
use projector::ask::QuerySession;
use projector::{Database, Error, Url, run};
use schemas::{Entry, Position};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use crate::databases::{Databases, append, catch_up, journal, query_number};

/// Folds the log from its beginning to a position.
async fn replayed(journal: &Journal, to: Position) -> Tables {
    let mut tables = Tables::default();
    let mut reader = projections::Reader::default();
    let mut after = Position(0);
    while after < to {
        for one in journal.read(after, None, 1_000).await.expect("should succeed") {
            after = one.position;
            if one.position > to {
                break;
            }
            let read = reader.read(one.position, &one.subject, &one.bytes).expect("should succeed");
            if let projections::reader::ReadMessage::Entry(entry) = read {
                tables.fold(one.position, &entry);
            }
        }
    }
    tables
}

/// Returns a value as the database returns it.
fn database_value(value: &Value, dialect: Dialect) -> Json {
    match (value, dialect) {
        (Value::Null, _) => Json::Null,
        (Value::Json(text), Dialect::Postgres) => serde_json::from_str(text).expect("valid JSON"),
        (Value::Text(text), Dialect::Postgres) => dialect.storable(text).into(),
        (Value::Text(text) | Value::Json(text), Dialect::Sqlite) => text.as_str().into(),
        (Value::Integer(number), _) => (*number).into(),
        (Value::Boolean(flag), Dialect::Sqlite) => i64::from(*flag).into(),
        (Value::Boolean(flag), Dialect::Postgres) => (*flag).into(),
        (Value::Time(at), _) => time(*at).into(),
    }
}

/// Returns every row of the tables as of a position, in order.
async fn rows_as_of(url: &Url, position: Position) -> Vec<(Table, Vec<Json>)> {
    let (mut reading, _) = QuerySession::open(url).await.expect("should succeed");
    reading.as_of(position).await.expect("should succeed");
    let mut rows = vec![];
    for table in Table::ALL {
        let columns = table.columns();
        let names: Vec<String> = columns.iter().map(|column| format!("\"{}\"", column.name)).collect();
        let (names, key) = (names.join(", "), names[..table.key_columns()].join(", "));
        let name = table.name();
        let question = |from: &str| format!("SELECT {names} FROM {from} ORDER BY {key}");
        let answer = reading.ask(&question(name)).await.expect("should succeed");
        if url.dialect() == Dialect::Postgres {
            let function =
                reading.ask(&question(&format!("{name}_at({position})"))).await.expect("should succeed");
            assert_eq!(function, answer, "{name} at {position}");
        }
        rows.extend(answer.rows.into_iter().map(|row| (table, row)));
    }
    rows
}

async fn expected_rows(journal: &Journal, position: Position, url: &Url) -> Vec<(Table, Vec<Json>)> {
    let rows = replayed(journal, position).await.rows();
    let values = |row: &Row| row.values.iter().map(|value| database_value(value, url.dialect())).collect();
    rows.iter().map(|row| (row.table, values(row))).collect()
}

/// Runs a projector for this time, and drops it in the middle of its work.
async fn run_for(journal: &Journal, url: &Url, length: Duration) {
    let stop = CancellationToken::new();
    let running = run(journal, QuarantinedPositions::new(), url, &stop, |_| {});
    if let Ok(ended) = tokio::time::timeout(length, running).await {
        ended.expect("should succeed");
    }
}

/// Runs a projector until the indexes for readers exist.
async fn run_until_indexed(journal: &Journal, url: &Url) {
    let stop = CancellationToken::new();
    let indexed = async {
        while !QuerySession::open(url).await.expect("should succeed").1.indexed {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(run(journal, QuarantinedPositions::new(), url, &stop, |_| {}), indexed);
    ended.expect("should succeed");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_projector_resumes_without_loss_or_repetition() {
    const ENTRIES: u64 = 9_000;
    let (journal, databases) = (journal(1, ENTRIES).await, Databases::new());
    for url in databases.both() {
        for length in [0, 1, 5, 20, 80, 200, 400, 700] {
            run_for(&journal, &url, Duration::from_millis(length)).await;
        }
        catch_up(&journal, &url).await.expect("should succeed");
        let end = Position(ENTRIES);
        // If the last kill happened after the rows and before the indexes, `catch_up` does not wait for these
        // indexes.
        run_until_indexed(&journal, &url).await;
        let standing = QuerySession::open(&url).await.expect("should succeed").1;
        assert_eq!((standing.end.position, standing.indexed), (end, true));
        let events = i64::try_from(ENTRIES).expect("should succeed") - 1;
        assert_eq!(
            query_number(&url, "SELECT count(*) FROM events").await,
            events,
            "one message is not an entry"
        );
        assert_eq!(query_number(&url, "SELECT count(*) FROM domains_history").await, events - 1);
        assert_eq!(query_number(&url, "SELECT count(*) FROM domains").await, 7);
        assert_eq!(
            query_number(&url, "SELECT count(*) FROM quarantined_entries WHERE position = 6").await,
            1
        );
        for position in [1, 2, 5, 6, 7, 13, 4_000, 4_001, 8_999, 9_000].map(Position) {
            let expected = expected_rows(&journal, position, &url).await;
            assert_eq!(rows_as_of(&url, position).await, expected, "{url} at {position}");
        }
        assert_eq!(rows_as_of(&url, Position(0)).await, vec![]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn projector_waits_for_unavailable_server() {
    const ENTRIES: u64 = 40_000;
    let (journal, mut databases) = (journal(1, ENTRIES).await, Databases::new());
    let url = databases.server();
    let (stop, end) = (CancellationToken::new(), Position(ENTRIES));
    let (told, mut written) = tokio::sync::mpsc::unbounded_channel();
    let running = tokio::spawn({
        let (journal, url, stop) = (journal.clone(), url.clone(), stop.clone());
        async move {
            run(&journal, QuarantinedPositions::new(), &url, &stop, |at| {
                at.into_iter().for_each(|at| told.send(at.position).expect("should succeed"));
            })
            .await
        }
    });
    let mut crashes = 0;
    while let Some(at) = written.recv().await {
        if at == end {
            break;
        }
        if crashes < 3 {
            crashes += 1;
            databases.server.kill();
            databases.server.restart().expect("the server starts");
        }
    }
    stop.cancel();
    running.await.expect("should end").expect("should succeed");
    assert!(crashes > 0, "the log was written in one batch");
    assert_eq!(rows_as_of(&url, end).await, expected_rows(&journal, end, &url).await);
    let held = query_number(&url, "SELECT count(*) FROM domains_history").await;
    assert_eq!(held, i64::try_from(ENTRIES).expect("should succeed") - 2);
}

#[tokio::test]
async fn mismatched_journal_and_tables_are_refused() {
    let (ours, databases) = (journal(1, 50).await, Databases::new());
    for url in databases.both() {
        catch_up(&ours, &url).await.expect("should succeed");
        let others = journal(2, 60).await;
        let refused = catch_up(&others, &url).await.unwrap_err();
        assert!(matches!(refused, Error::OtherCluster { .. }), "{refused}");
        let shorter = journal(1, 40).await;
        let refused = catch_up(&shorter, &url).await.unwrap_err();
        assert!(refused.to_string().contains("position 50, but the journal ends at 40"), "{refused}");
        let (mut database, standing) = Database::open(&url).await.expect("should succeed");
        let stale = database.write(Position(49), &Batch::default(), None).await;
        assert!(matches!(stale, Err(Error::LockedByOther)), "{stale:?}");
        database.close().await.expect("should close");
        let (_, now) = QuerySession::open(&url).await.expect("should succeed");
        assert_eq!(
            (now.end.position, now.cluster_id),
            (Position(50), standing.cluster_id),
            "nothing was written"
        );
        assert_eq!(query_number(&url, "SELECT count(*) FROM events").await, 49);
    }
}

#[tokio::test]
async fn unsuitable_server_is_reported() {
    let (journal, databases) = (journal(1, 20).await, Databases::new());
    let of = |role: &str, database: &str| -> Url {
        databases.server.url(role, database).parse().expect("should be valid")
    };
    databases.server.run_sql("CREATE ROLE poor LOGIN");
    databases.server.run_sql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
    let said = async |url: Url| catch_up(&journal, &url).await.unwrap_err().to_string();
    let poor = said(of("poor", "postgres")).await;
    assert!(poor.contains("permission denied for database postgres; a projector needs a role"), "{poor}");
    assert!(said(of("postgres", "latin")).await.contains("LATIN1: create the database with ENCODING 'UTF8'"));
    let missing = catch_up(&journal, &of("postgres", "nowhere")).await.unwrap_err();
    let why = std::error::Error::source(&missing).expect("should have a source").to_string();
    assert!(why.contains("database \"nowhere\" does not exist"), "{why}");
    let url = of("postgres", "postgres");
    catch_up(&journal, &url).await.expect("should succeed");
    databases.server.run_sql("UPDATE muster.projection SET shape = 'another'");
    assert!(matches!(catch_up(&journal, &url).await, Err(Error::OtherShape)));
    databases.server.run_sql("ALTER TABLE muster.projection RENAME indexed TO something");
    let other = said(url).await;
    assert!(other.contains("DROP SCHEMA muster CASCADE"), "{other}");
}

#[tokio::test(flavor = "multi_thread")]
async fn second_projector_stands_by_until_first_exits() {
    let (journal, databases) = (journal(1, 20).await, Databases::new());
    let url = databases.server();
    let (first, _) = Database::open(&url).await.expect("should succeed");
    assert!(matches!(Database::open(&url).await, Err(Error::LockedByOther)));
    let second = tokio::spawn({
        let (journal, url) = (journal.clone(), url.clone());
        async move { catch_up(&journal, &url).await }
    });
    // Each schema is a separate projection.
    let other: Url = format!("{}&schema=other", databases.server.url("postgres", "postgres"))
        .parse()
        .expect("should be valid");
    catch_up(&journal, &other).await.expect("should succeed");
    assert_eq!(QuerySession::open(&url).await.expect("should succeed").1.end.position, Position(0));
    first.close().await.expect("should close");
    second.await.expect("should end").expect("should succeed");
    assert_eq!(QuerySession::open(&url).await.expect("should succeed").1.end.position, Position(20));
}

#[tokio::test(flavor = "multi_thread")]
async fn projector_stands_by_while_lost_session_has_lock() {
    let (journal, databases) = (journal(1, 20).await, Databases::new());
    let url = databases.server();
    let (stop, (told, mut written)) = (CancellationToken::new(), tokio::sync::mpsc::unbounded_channel());
    let running = tokio::spawn({
        let (journal, url, stop) = (journal.clone(), url.clone(), stop.clone());
        async move {
            run(&journal, QuarantinedPositions::new(), &url, &stop, |at| {
                at.into_iter().for_each(|at| told.send(at.position).expect("should succeed"));
            })
            .await
        }
    });
    while written.recv().await.expect("should be running") < Position(20) {}
    // The projector's session ends, and another session holds its lock for some seconds.
    let lost = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'; \
                SELECT pg_advisory_lock('muster.projection'::regclass::oid::int4, 1); SELECT pg_sleep(4)";
    let (server, held) = (
        databases.server.url("postgres", "postgres"),
        "SELECT 1 FROM pg_locks, pg_stat_activity WHERE locktype = 'advisory' AND granted AND query LIKE \
         '%pg_sleep%' AND pg_locks.pid = pg_stat_activity.pid AND pg_locks.pid <> pg_backend_pid()",
    );
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| databases.server.psql(&server, lost));
            while databases.server.psql(&server, held).expect("should respond").is_empty() {
                std::thread::sleep(Duration::from_millis(20));
            }
            tokio::runtime::Handle::current().block_on(append(&journal, 1, 20, 5));
            holder.join().expect("should end").expect("should succeed");
        });
    });
    while written.recv().await.expect("the projector stands by, and then continues") < Position(25) {}
    stop.cancel();
    running.await.expect("should end").expect("should succeed");
    assert_eq!(query_number(&url, "SELECT count(*) FROM events").await, 24);
}

#[tokio::test]
async fn queries_are_read_only() {
    let (journal, databases) = (journal(1, 50).await, Databases::new());
    let missing = QuerySession::open(&databases.file()).await.unwrap_err().to_string();
    assert!(missing.contains("can't open the database"), "{missing}");
    let file = databases.folder.path().join("other.db");
    std::fs::write(&file, "").expect("should succeed");
    for url in [Url::Sqlite(file), databases.server()] {
        let foreign = QuerySession::open(&url).await.unwrap_err().to_string();
        assert!(foreign.contains("is not a Muster database"), "{foreign}");
    }
    for url in databases.both() {
        catch_up(&journal, &url).await.expect("should succeed");
        let (mut reading, _) = QuerySession::open(&url).await.expect("should succeed");
        for writes in [
            "DELETE FROM events_g1",
            "DROP VIEW events",
            "UPDATE projection SET position = 0",
            "CREATE TABLE x (a int)",
        ] {
            let refused = reading.ask(writes).await.unwrap_err().to_string();
            assert!(
                refused.contains("readonly database") || refused.contains("queries are read-only"),
                "{refused}"
            );
        }
        let (mut reading, _) = QuerySession::open(&url).await.expect("should succeed");
        let bad = reading.ask("SELECT since FROM events").await.unwrap_err().to_string();
        assert!(bad.starts_with("query failed: ") && bad.contains("since"), "{bad}");
        let (mut reading, _) = QuerySession::open(&url).await.expect("should succeed");
        let none =
            reading.ask("SELECT target, version FROM events WHERE false").await.expect("should succeed");
        assert_eq!((none.columns, none.rows.len()), (vec!["target".to_owned(), "version".to_owned()], 0));
    }
}

#[tokio::test]
async fn server_query_cannot_write() {
    let (journal, databases) = (journal(1, 50).await, Databases::new());
    let url = databases.server();
    catch_up(&journal, &url).await.expect("should succeed");
    for question in [
        "COMMIT; DELETE FROM muster.events_g1",
        "SELECT 1; DELETE FROM muster.events_g1",
        "DELETE FROM muster.events_g1 RETURNING 1",
        "WITH gone AS (DELETE FROM muster.events_g1 RETURNING 1) SELECT * FROM gone",
        "EXPLAIN ANALYZE DELETE FROM muster.events_g1",
        "SELECT set_config('transaction_read_only', 'off', false)",
        "DO $$ BEGIN DELETE FROM muster.events_g1; END $$",
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "SET TRANSACTION READ WRITE",
    ] {
        let (mut reading, _) = QuerySession::open(&url).await.expect("should succeed");
        let refused = reading.ask(question).await;
        assert!(matches!(refused, Err(Error::InvalidQuery(_))), "{question}: {refused:?}");
    }
    assert_eq!(query_number(&url, "SELECT count(*) FROM events").await, 49);
    let (mut reading, _) = QuerySession::open(&url).await.expect("should succeed");
    let question = "SELECT 1::int2 AS a, 2.5::float8, 12345678901234567890::numeric, true, NULL, 'x'::text, \
                    '{\"b\": [1]}'::jsonb, timestamptz '2027-01-15 09:00:00.5+01', date '2027-01-15', \
                    'NaN'::float8, ARRAY[1, 2], interval '1 hour', 3::numeric -- and so on";
    let answer = reading.ask(question).await.expect("should succeed");
    let expected = json!([1, 2.5, 12_345_678_901_234_567_890_f64, true, null, "x", {"b": [1]},
        "2027-01-15T08:00:00.500000Z", "2027-01-15", "NaN", "{1,2}", "01:00:00", 3]);
    assert_eq!(json!(answer.rows[0]), expected);
}

#[tokio::test]
async fn every_table_and_column_is_documented() {
    let (journal, databases) = (journal(1, 3).await, Databases::new());
    let in_file = "SELECT m.name, c.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c
         LEFT JOIN documentation d ON d.table_name = m.name AND d.column_name = c.name
         WHERE m.type = 'view' AND d.comment IS NULL";
    let on_server = "SELECT relname, attname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
         WHERE relnamespace = 'muster'::regnamespace AND relkind IN ('r', 'v') AND attnum > 0
            AND (col_description(attrelid, attnum) IS NULL OR obj_description(attrelid, 'pg_class') IS NULL)";
    for (url, question) in databases.both().into_iter().zip([in_file, on_server]) {
        catch_up(&journal, &url).await.expect("should succeed");
        let (mut reading, _) = QuerySession::open(&url).await.expect("should succeed");
        assert_eq!(
            reading.ask(question).await.expect("should succeed").rows,
            Vec::<Vec<Json>>::new(),
            "{url}"
        );
        assert!(query_number(&url, "SELECT count(*) FROM documentation").await > 300);
    }
}

/// Journal with the recorded run that `projections` pins, and its end.
async fn recorded_run() -> (Journal, Position) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../projections/tests/golden/history.jsonl");
    let text = std::fs::read_to_string(path).expect("the file exists");
    let (journal, mut world) = (Journal::Memory(Memory::new()), World::new());
    for (position, line) in (1..).map(Position).zip(text.lines()) {
        let entry = Entry::decode(line.as_bytes()).expect("an entry");
        world.fold(position, &entry);
        let subject = entry.decisions[0].aggregate.subject(world.shards());
        let expected = journal.last(&subject).await.expect("should succeed").map(|last| last.position);
        let bytes = line.to_owned().into();
        let append = Append { subject, expected: expected.unwrap_or_default(), entry: entry.id, bytes };
        journal.append(append).await.expect("should succeed");
    }
    (journal, world.position())
}

/// `MUSTER_WRITE_GOLDEN=1 cargo test -p projector recorded` rewrites the golden files.
#[tokio::test(flavor = "multi_thread")]
async fn tables_of_recorded_run_match_golden_files() {
    let ((journal, end), databases) = (recorded_run().await, Databases::new());
    for (name, url) in [("sqlite", databases.file()), ("postgres", databases.server())] {
        catch_up(&journal, &url).await.expect("should succeed");
        let mut dump = String::new();
        for position in [Position(end.0 / 2), end] {
            writeln!(dump, "-- as of {position}").expect("a string");
            for (table, row) in rows_as_of(&url, position).await {
                writeln!(dump, "{} {}", table.name(), Json::from(row)).expect("a string");
            }
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.txt"));
        if fixtures::pages::may_write() {
            std::fs::write(&path, &dump).expect("the file can be written");
        }
        let golden = std::fs::read_to_string(&path).expect("the golden file");
        assert!(dump == golden, "the rows of {url} differ from {path:?}");
    }
}
