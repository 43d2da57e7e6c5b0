//! Tests of comparing tables with the log, and of rebuilding tables beside the live tables, which readers
//! see.

use std::time::{Duration, Instant};

use journal::Journal;
use projections::cluster_log::QuarantinedPositions;
use projector::ask::QuerySession;
use projector::rebuild::{RebuildResult, Step, rebuild};
use projector::verify::{Comparison, list, verify};
use projector::{Error, Generation, Url, grant, run};
use schemas::Position;
use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};
use support::postgres::Postgres;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::databases::{Databases, append, catch_up, catch_up_with_quarantines, journal, query_number};

/// Time limit for operations that could otherwise wait forever.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the tables that differ from the log, with their first extra and missing rows.
async fn differing(journal: &Journal, url: &Url) -> Vec<Comparison> {
    let (_, compared) =
        verify(journal, &QuarantinedPositions::new(), url, |_, _| {}).await.expect("should succeed");
    assert_eq!(compared.len(), 15);
    compared.into_iter().filter(|one| !one.is_same()).collect()
}

/// Rebuilds, and stops when the tables reach a position.
async fn rebuild_until(journal: &Journal, url: &Url, restart: bool, until: u64) -> Option<RebuildResult> {
    let stop = CancellationToken::new();
    let ends = stop.clone();
    try_rebuild(journal, &QuarantinedPositions::new(), url, restart, &stop, |step| {
        if matches!(step, Step::Writing(position, _) if position.0 >= until) {
            ends.cancel();
        }
    })
    .await
    .expect("should succeed")
}

async fn try_rebuild(
    journal: &Journal,
    quarantines: &QuarantinedPositions,
    url: &Url,
    restart: bool,
    stop: &CancellationToken,
    said: impl FnMut(Step),
) -> Result<Option<RebuildResult>, Error> {
    let done = rebuild(journal, quarantines, url, restart, stop, said);
    tokio::time::timeout(TIMEOUT, done).await.expect("the rebuild finishes in time")
}

/// Rebuilds, and runs `done` just before the switch.
async fn rebuild_before_switch(
    journal: &Journal,
    url: &Url,
    mut done: impl FnMut(),
) -> Result<Option<RebuildResult>, Error> {
    try_rebuild(journal, &QuarantinedPositions::new(), url, false, &CancellationToken::new(), |step| {
        if step == Step::Switching {
            done();
        }
    })
    .await
}

/// Returns the number of each generation, `true` if the generation is live, and its position.
async fn generations(url: &Url) -> Vec<(i64, bool, u64)> {
    let of = |one: &Generation| (one.number, one.live, one.end.position.0);
    list(url).await.expect("should succeed").iter().map(of).collect()
}

async fn rebuild_all(journal: &Journal, url: &Url) -> RebuildResult {
    rebuild_until(journal, url, false, u64::MAX).await.expect("the rebuild is not stopped")
}

/// Runs SQL that changes the tables without the projector's knowledge.
async fn tamper(databases: &Databases, url: &Url, sql: &str) {
    match url {
        Url::Sqlite(file) => {
            let options = SqliteConnectOptions::new().filename(file);
            let mut connection = options.connect().await.expect("should open");
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))
                .execute(&mut connection)
                .await
                .expect("should succeed");
            connection.close().await.expect("should close");
        }
        Url::Postgres(_) => databases.server.run_sql(&format!("SET search_path TO muster; {sql}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_shows_differing_rows() {
    let (journal, databases) = (journal(1, 300).await, Databases::new());
    for url in databases.both() {
        catch_up(&journal, &url).await.expect("should succeed");
        assert!(differing(&journal, &url).await.is_empty(), "{url}");
        let changes = "UPDATE events_g1 SET actor = 'client:x/y' WHERE position = 200; \
                       DELETE FROM domains_history_g1 WHERE from_position = 150; \
                       UPDATE quarantined_entries_g1 SET reason = '' WHERE position = 6;";
        tamper(&databases, &url, changes).await;
        let differ = differing(&journal, &url).await;
        let said: Vec<_> = differ
            .iter()
            .map(|one| {
                let [extra, lacking] = &one.differing;
                let rows = (one.found.rows, one.expected.rows);
                (one.table.name(), rows, extra.len(), lacking.len())
            })
            .collect();
        let expected = [
            ("domains_history".to_owned(), (297, 298), 0, 1),
            ("events".to_owned(), (299, 299), 1, 1),
            ("quarantined_entries".to_owned(), (1, 1), 1, 1),
        ];
        assert_eq!(said, expected, "{url}");
        assert_eq!(differ[1].differing[0][0][7].as_deref(), Some("client:x/y"));
        assert_eq!(differ[1].differing[1][0][7].as_deref(), Some("bbs:b"));
        let others = crate::databases::journal(2, 400).await;
        let refused = verify(&others, &QuarantinedPositions::new(), &url, |_, _| {}).await;
        assert!(matches!(refused, Err(Error::OtherCluster { .. })), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuild_replaces_live_tables_at_end() {
    // More than three batches, because up to three may be written before the stop.
    const ENTRIES: u64 = 20_000;
    let (journal, databases) = (journal(1, ENTRIES).await, Databases::new());
    for url in databases.both() {
        catch_up(&journal, &url).await.expect("should succeed");
        tamper(&databases, &url, "DELETE FROM events_g1 WHERE position = 7; DELETE FROM domains_history_g1;")
            .await;
        assert!(rebuild_until(&journal, &url, false, 1).await.is_none(), "the rebuild is stopped");
        let all = list(&url).await.expect("should succeed");
        let states: Vec<_> = all.iter().map(|one| (one.number, one.live, one.indexed)).collect();
        assert_eq!(states, [(1, true, true), (2, false, false)]);
        let begun = all[1].end.position;
        assert!(begun > Position(0) && begun < Position(ENTRIES), "{begun}");
        assert_eq!(query_number(&url, "SELECT count(*) FROM domains").await, 0, "readers see the old tables");
        // The next rebuild continues, compares and switches.
        let rebuilt = rebuild_all(&journal, &url).await;
        assert_eq!((rebuilt.standing.number, rebuilt.standing.end.position), (2, Position(ENTRIES)));
        let compared = rebuilt.comparison.expect("the shape is the same");
        let differed: Vec<_> =
            compared.iter().filter(|one| !one.is_same()).map(|one| one.table.name()).collect();
        assert_eq!(differed, ["domains_history", "events"]);
        let all = list(&url).await.expect("should succeed");
        assert_eq!(all.iter().map(|one| (one.number, one.live)).collect::<Vec<_>>(), [(2, true)]);
        assert_eq!(query_number(&url, "SELECT count(*) FROM domains").await, 7);
        assert!(differing(&journal, &url).await.is_empty(), "{url}");
        // A restarted rebuild drops generation 3 and creates generation 4.
        assert!(rebuild_until(&journal, &url, false, 1).await.is_none(), "the rebuild is stopped");
        let rebuilt =
            rebuild_until(&journal, &url, true, u64::MAX).await.expect("the rebuild is not stopped");
        assert_eq!(rebuilt.standing.number, 4);
        assert!(rebuilt.comparison.expect("the shape is the same").iter().all(Comparison::is_same));
        assert!(differing(&journal, &url).await.is_empty(), "{url}");
        assert_eq!(list(&url).await.expect("should succeed").len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn projector_continues_with_rebuilt_tables() {
    let (journal, databases) = (journal(1, 3_000).await, Databases::new());
    for url in databases.both() {
        let (stop, told) = (CancellationToken::new(), tokio::sync::mpsc::unbounded_channel());
        let (tell, mut told) = told;
        let running = tokio::spawn({
            let (journal, url, stop) = (journal.clone(), url.clone(), stop.clone());
            async move {
                run(&journal, QuarantinedPositions::new(), &url, &stop, |at| {
                    at.into_iter().for_each(|at| tell.send(at.position).expect("should succeed"));
                })
                .await
            }
        });
        let end = journal.end().await.expect("should succeed");
        while told.recv().await.expect("should be running") < end {}
        rebuild_all(&journal, &url).await;
        append(&journal, 1, end.0, 50).await;
        while told.recv().await.expect("should be running") < Position(end.0 + 50) {}
        stop.cancel();
        running.await.expect("should end").expect("should succeed");
        let all = list(&url).await.expect("should succeed");
        assert_eq!(
            all.iter().map(|one| (one.number, one.end.position)).collect::<Vec<_>>(),
            [(2, Position(end.0 + 50))]
        );
        assert!(differing(&journal, &url).await.is_empty(), "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuild_replaces_tables_of_other_version() {
    let (journal, databases) = (journal(1, 100).await, Databases::new());
    for url in databases.both() {
        catch_up(&journal, &url).await.expect("should succeed");
        let other = "UPDATE projection SET shape = 'another'; DROP VIEW unplaced; DROP VIEW domains; \
                     CREATE VIEW domains AS SELECT 1 AS something;";
        let functions = if matches!(url, Url::Postgres(_)) { "DROP FUNCTION domains_at;" } else { "" };
        tamper(&databases, &url, &format!("{functions}{other}")).await;
        assert!(matches!(catch_up(&journal, &url).await, Err(Error::OtherShape)));
        assert_eq!(query_number(&url, "SELECT something FROM domains").await, 1);
        let rebuilt = rebuild_all(&journal, &url).await;
        assert!(rebuilt.comparison.is_none());
        assert!(differing(&journal, &url).await.is_empty(), "{url}");
        assert_eq!(query_number(&url, "SELECT count(*) FROM domains").await, 7);
        catch_up(&journal, &url).await.expect("should succeed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn granted_role_reads_rebuilt_tables_only() {
    let (journal, databases) = (journal(1, 100).await, Databases::new());
    let url = databases.server();
    catch_up(&journal, &url).await.expect("should succeed");
    databases.server.run_sql("CREATE ROLE \"Ann Lyst\" LOGIN; CREATE ROLE stranger LOGIN");
    grant(&url, "Ann Lyst").await.expect("should succeed");
    let as_role =
        |role: &str| -> Url { databases.server.url(role, "postgres").parse().expect("should be valid") };
    let analyst = as_role("Ann%20Lyst");
    for _ in 0..2 {
        let (mut reading, _) = QuerySession::open(&analyst).await.expect("should succeed");
        reading.as_of(Position(50)).await.expect("should succeed");
        let question = "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM domains_at(50)), \
                        (SELECT count(*) FROM availability_by_day)";
        let answer = reading.ask(question).await.expect("should succeed");
        assert_eq!(json!(answer.rows), json!([[49, 7, 0]]));
        drop(reading);
        rebuild_all(&journal, &url).await;
    }
    let client = databases.server.url("Ann%20Lyst", "postgres");
    for write in
        ["DELETE FROM muster.events", "UPDATE muster.projection SET position = 0", "CREATE TABLE muster.x ()"]
    {
        let said = databases.server.psql(&client, write).expect_err(write);
        assert!(said.contains("permission denied"), "{write}: {said}");
    }
    append(&journal, 1, 100, 5).await;
    let refused = catch_up(&journal, &analyst).await.unwrap_err();
    assert!(matches!(refused, Error::MissingRight { .. }), "{refused}");
    let refused = QuerySession::open(&as_role("stranger")).await.unwrap_err();
    assert!(refused.to_string().contains("permission denied for schema muster"), "{refused}");
    let missing = grant(&url, "nobody").await.unwrap_err();
    assert!(
        std::error::Error::source(&missing)
            .expect("should have a source")
            .to_string()
            .contains("does not exist")
    );
    assert!(matches!(grant(&databases.file(), "a").await, Err(Error::NoRoles(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_detects_any_change_of_row() {
    let (journal, databases) = (journal(1, 300).await, Databases::new());
    let changes = [
        ("UPDATE domains_history_g1 SET to_position = 1000000000 WHERE to_position IS NULL", 5, 5),
        ("UPDATE domains_history_g1 SET to_position = NULL WHERE to_position = 1000000000", 0, 0),
        ("UPDATE domains_history_g1 SET from_position = NULL WHERE to_position IS NULL", 5, 5),
        ("DELETE FROM domains_history_g1 WHERE from_position IS NULL", 0, 5),
        ("INSERT INTO domains_history_g1 (domain) VALUES ('nobody')", 1, 5),
        ("UPDATE events_g1 SET position = 1000000000 WHERE position = 20", 1, 1),
        ("INSERT INTO quarantined_entries_g1 VALUES (1000000000, '', '')", 1, 0),
    ];
    for url in databases.both() {
        catch_up(&journal, &url).await.expect("should succeed");
        for (change, extra, lacking) in changes {
            tamper(&databases, &url, change).await;
            let table = change
                .split(' ')
                .find_map(|word| word.strip_suffix("_g1"))
                .expect("the change names a table");
            let differ = differing(&journal, &url).await;
            let shown = differ.iter().find(|one| one.table.name() == table);
            let shown = shown.map_or((0, 0), |one| (one.differing[0].len(), one.differing[1].len()));
            assert_eq!(shown, (extra, lacking), "{url}: {change}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuild_refuses_tables_of_other_journal() {
    let (ours, databases) = (journal(1, 50).await, Databases::new());
    let (others, shorter) = (journal(2, 60).await, journal(1, 40).await);
    let (quarantines, stop) = (QuarantinedPositions::new(), CancellationToken::new());
    for url in databases.both() {
        catch_up(&ours, &url).await.expect("should succeed");
        for shape in ["", "UPDATE projection SET shape = 'another'"] {
            tamper(&databases, &url, shape).await;
            for restart in [false, true] {
                let refused =
                    try_rebuild(&others, &quarantines, &url, restart, &stop, |_| {}).await.unwrap_err();
                let both = "is of cluster 00000000-0000-0000-0000-000000000001, but the journal is of \
                            cluster 00000000-0000-0000-0000-000000000002";
                assert!(refused.to_string().contains(both), "{url}: {refused}");
                let refused =
                    try_rebuild(&shorter, &quarantines, &url, restart, &stop, |_| {}).await.unwrap_err();
                assert!(matches!(refused, Error::AheadOfJournal { .. }), "{url}: {refused}");
            }
        }
        assert_eq!(generations(&url).await, [(1, true, 50)], "{url}");
        assert_eq!(query_number(&url, "SELECT count(*) FROM events").await, 49);
    }
}

/// An older log was restored, and is again as long as the tables. Only a comparison of the entry at the end
/// of the tables shows the difference.
#[tokio::test(flavor = "multi_thread")]
async fn tables_of_other_history_are_refused() {
    let (ours, restored, databases) = (journal(1, 50).await, journal(1, 40).await, Databases::new());
    append(&restored, 1, 100, 15).await;
    for url in databases.both() {
        catch_up(&ours, &url).await.expect("should succeed");
        catch_up(&ours, &url).await.expect("tables of the same history");
        let refused = catch_up(&restored, &url).await.unwrap_err();
        assert!(matches!(refused, Error::OtherHistory { position: Position(50) }), "{url}: {refused}");
        let refused = verify(&restored, &QuarantinedPositions::new(), &url, |_, _| {}).await.unwrap_err();
        assert!(matches!(refused, Error::OtherHistory { .. }), "{url}: {refused}");
        assert_eq!(generations(&url).await, [(1, true, 50)], "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_changes_are_detected_before_switch() {
    let (journal, databases) = (journal(1, 50).await, Databases::new());
    for url in databases.both() {
        catch_up(&journal, &url).await.expect("should succeed");
        let now = |sql: &'static str| {
            tokio::task::block_in_place(|| Handle::current().block_on(tamper(&databases, &url, sql)));
        };
        let other = || now("UPDATE projection SET cluster_id = 'another' WHERE live");
        let refused = rebuild_before_switch(&journal, &url, other).await.unwrap_err();
        assert!(matches!(&refused, Error::OtherCluster { found, .. } if found == "another"), "{refused}");
        now("UPDATE projection SET cluster_id = NULL WHERE live");
        let gone =
            rebuild_before_switch(&journal, &url, || now("DELETE FROM projection WHERE generation = 2"))
                .await;
        assert!(matches!(gone, Err(Error::Replaced)), "{gone:?}");
        assert_eq!(generations(&url).await, [(1, true, 50)], "{url}");
        assert_eq!(query_number(&url, "SELECT count(*) FROM events").await, 49);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn later_quarantine_requires_rebuild() {
    let (journal, databases) = (journal(1, 300).await, Databases::new());
    let (later, stop) =
        (QuarantinedPositions::from([(Position(150), "a trial".to_owned())]), CancellationToken::new());
    for url in databases.both() {
        catch_up(&journal, &url).await.expect("should succeed");
        assert!(rebuild_until(&journal, &url, false, 200).await.is_none(), "the rebuild is stopped");
        let refused = catch_up_with_quarantines(&journal, &url, later.clone()).await.unwrap_err();
        let said =
            "position 150 was quarantined after it was written to the tables: run muster projection rebuild";
        assert!(refused.to_string().contains(said), "{refused}");
        let rebuilt =
            try_rebuild(&journal, &later, &url, false, &stop, |_| {}).await.expect("should succeed");
        let rebuilt = rebuilt.expect("the rebuild is not stopped");
        assert_eq!(rebuilt.standing.number, 3, "the stopped rebuild is not continued");
        let differ: Vec<_> = rebuilt.comparison.expect("the shape is the same");
        let differ: Vec<_> = differ.iter().filter(|one| !one.is_same()).map(|one| one.table.name()).collect();
        assert_eq!(differ, ["domains_history", "events", "quarantined_entries"]);
        let (_, compared) = verify(&journal, &later, &url, |_, _| {}).await.expect("should succeed");
        assert!(compared.iter().all(Comparison::is_same));
        assert_eq!(query_number(&url, "SELECT count(*) FROM events WHERE position = 150").await, 0);
        catch_up_with_quarantines(&journal, &url, later.clone()).await.expect("should continue");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuild_keeps_generation_of_other_process() {
    let (journal, databases) = (journal(1, 9_000).await, Databases::new());
    let (url, quarantines, stop) =
        (databases.server(), QuarantinedPositions::new(), CancellationToken::new());
    catch_up(&journal, &url).await.expect("should succeed");
    assert!(rebuild_until(&journal, &url, false, 1).await.is_none(), "the rebuild is stopped");
    let begun = generations(&url).await;
    assert_eq!(begun.len(), 2);
    let mut other =
        PgConnection::connect(&databases.server.url("postgres", "postgres")).await.expect("should succeed");
    let locks = "SELECT pg_advisory_lock('muster.projection'::regclass::oid::int4, 2)";
    sqlx::raw_sql(locks).execute(&mut other).await.expect("the lock should be free");
    for shape in ["", "UPDATE projection SET shape = 'another' WHERE NOT live"] {
        tamper(&databases, &url, shape).await;
        for restart in [true, false] {
            let refused = try_rebuild(&journal, &quarantines, &url, restart, &stop, |_| {}).await;
            assert!(matches!(refused, Err(Error::LockedByOther)), "{refused:?}");
            assert_eq!(generations(&url).await, begun, "{shape}, {restart}");
        }
    }
    other.close().await.expect("should close");
    let rebuilt = rebuild_all(&journal, &url).await;
    assert_eq!(rebuilt.standing.number, 3);
    assert_eq!(generations(&url).await, [(3, true, 9_000)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn index_creation_stops_on_request() {
    // More than three batches, as above.
    let (journal, databases) = (journal(1, 20_000).await, Databases::new());
    let (url, stop) = (databases.server(), CancellationToken::new());
    catch_up(&journal, &url).await.expect("should succeed");
    assert!(rebuild_until(&journal, &url, false, 1).await.is_none(), "the rebuild is stopped");
    // This lock allows writes to the table but no new index.
    let mut other =
        PgConnection::connect(&databases.server.url("postgres", "postgres")).await.expect("should succeed");
    let locks = "BEGIN; LOCK TABLE muster.domains_history_g2 IN ROW EXCLUSIVE MODE";
    sqlx::raw_sql(locks).execute(&mut other).await.expect("the lock should be free");
    let stopping = tokio::spawn({
        let stop = stop.clone();
        async move {
            let waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = \
                         'muster.domains_history_g2'::regclass";
            while sqlx::raw_sql(waits).fetch_all(&mut other).await.expect("should respond").is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            stop.cancel();
            (other, Instant::now())
        }
    });
    let stopped = try_rebuild(&journal, &QuarantinedPositions::new(), &url, false, &stop, |_| {}).await;
    assert!(stopped.expect("should succeed").is_none());
    let (other, told) = stopping.await.expect("should end");
    assert!(told.elapsed() < Duration::from_secs(10), "{:?}", told.elapsed());
    let all = list(&url).await.expect("should succeed");
    assert_eq!(all.iter().map(|one| one.indexed).collect::<Vec<_>>(), [true, false]);
    other.close().await.expect("should close");
    // The server notices within a second that its client is gone.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(rebuild_all(&journal, &url).await.standing.number, 2);
    assert!(differing(&journal, &url).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn switch_is_retried_after_deadlock_with_reader() {
    let mut databases = Databases::new();
    // The server checks for a deadlock only after this time. The reader has this time to request a lock that
    // the rebuild holds.
    databases.server = Postgres::start_with(&["deadlock_timeout=2500ms"]).expect("should start");
    let (journal, url) = (journal(1, 300).await, databases.server());
    catch_up(&journal, &url).await.expect("should succeed");
    let mut reader =
        PgConnection::connect(&databases.server.url("postgres", "postgres")).await.expect("should succeed");
    // The long time-out makes sure that the rebuild fails, not the reader.
    let begins = "SET deadlock_timeout TO '1min'; BEGIN; SELECT count(*) FROM muster.domains";
    sqlx::raw_sql(begins).execute(&mut reader).await.expect("should succeed");
    let mut first = Some(reader);
    let (tell, told) = tokio::sync::oneshot::channel();
    let mut tell = Some(tell);
    let reading = tokio::spawn(async move {
        let mut reader: PgConnection = told.await.expect("the rebuild should reach the switch");
        tokio::time::sleep(Duration::from_millis(500)).await;
        let asks = "SELECT count(*) FROM muster.starts; COMMIT";
        sqlx::raw_sql(asks).execute(&mut reader).await.expect("should be answered");
    });
    let rebuilt = rebuild_before_switch(&journal, &url, || {
        if let Some((tell, reader)) = tell.take().zip(first.take()) {
            tell.send(reader).expect("the reader should wait");
        }
    });
    assert_eq!(rebuilt.await.expect("should retry").expect("the rebuild is not stopped").standing.number, 2);
    reading.await.expect("should end");
}
