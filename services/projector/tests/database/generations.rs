//! Tables that are compared with the log, and made again beside those that readers see.

use std::time::{Duration, Instant};

use journal::Journal;
use projections::cluster_log::Positions;
use projector::ask::Reading;
use projector::rebuild::{Rebuilt, Step, rebuild};
use projector::verify::{Comparison, list, verify};
use projector::{Error, Standing, Url, grant, run};
use schemas::Position;
use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};
use support::postgres::Postgres;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::databases::{Databases, append, catch_up, catch_up_knowing, journal, number};

/// How long something may take that could wait for ever.
const LONG: Duration = Duration::from_secs(60);

/// The tables that differ from the log, each with its first rows that are too many, and that it lacks.
async fn differing(journal: &Journal, url: &Url) -> Vec<Comparison> {
    let (_, compared) = verify(journal, &Positions::new(), url, |_, _| {}).await.expect("it works");
    assert_eq!(compared.len(), 15);
    compared.into_iter().filter(|one| !one.is_same()).collect()
}

/// Rebuilds, and stops when the log is written up to a position.
async fn rebuild_until(journal: &Journal, url: &Url, restart: bool, until: u64) -> Option<Rebuilt> {
    let stop = CancellationToken::new();
    let ends = stop.clone();
    try_rebuild(journal, &Positions::new(), url, restart, &stop, |step| {
        if matches!(step, Step::Written(position, _) if position.0 >= until) {
            ends.cancel();
        }
    })
    .await
    .expect("it works")
}

async fn try_rebuild(
    journal: &Journal,
    set_aside: &Positions,
    url: &Url,
    restart: bool,
    stop: &CancellationToken,
    said: impl FnMut(Step),
) -> Result<Option<Rebuilt>, Error> {
    let done = rebuild(journal, set_aside, url, restart, stop, said);
    tokio::time::timeout(LONG, done).await.expect("it doesn't wait for ever")
}

/// Rebuilds, and does something as soon as it is to switch.
async fn rebuild_while(
    journal: &Journal,
    url: &Url,
    mut done: impl FnMut(),
) -> Result<Option<Rebuilt>, Error> {
    try_rebuild(journal, &Positions::new(), url, false, &CancellationToken::new(), |step| {
        if step == Step::Switching {
            done();
        }
    })
    .await
}

/// The number of each generation, whether it is live, and where it stands.
async fn generations(url: &Url) -> Vec<(i64, bool, u64)> {
    let of = |one: &Standing| (one.generation, one.live, one.end.position.0);
    list(url).await.expect("it works").iter().map(of).collect()
}

async fn rebuild_all(journal: &Journal, url: &Url) -> Rebuilt {
    rebuild_until(journal, url, false, u64::MAX).await.expect("nobody stops it")
}

/// Does something as an administrator does, who should not.
async fn tamper(databases: &Databases, url: &Url, sql: &str) {
    match url {
        Url::Sqlite(file) => {
            let options = SqliteConnectOptions::new().filename(file);
            let mut connection = options.connect().await.expect("it opens");
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))
                .execute(&mut connection)
                .await
                .expect("it works");
            connection.close().await.expect("it closes");
        }
        Url::Postgres(_) => databases.server.run_sql(&format!("SET search_path TO muster; {sql}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_is_compared_and_what_differs_is_shown() {
    let (journal, databases) = (journal(1, 300).await, Databases::new());
    for url in databases.both() {
        catch_up(&journal, &url).await.expect("it works");
        assert!(differing(&journal, &url).await.is_empty(), "{url}");
        let changes = "UPDATE events_g1 SET actor = 'client:x/y' WHERE position = 200; \
                       DELETE FROM domains_history_g1 WHERE from_position = 150; \
                       UPDATE set_aside_g1 SET why = '' WHERE position = 6;";
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
            ("set_aside".to_owned(), (1, 1), 1, 1),
        ];
        assert_eq!(said, expected, "{url}");
        assert_eq!(differ[1].differing[0][0][7].as_deref(), Some("client:x/y"));
        assert_eq!(differ[1].differing[1][0][7].as_deref(), Some("bbs:b"));
        let others = crate::databases::journal(2, 400).await;
        let refused = verify(&others, &Positions::new(), &url, |_, _| {}).await;
        assert!(matches!(refused, Err(Error::OtherCluster { .. })), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_made_again_beside_those_that_readers_see() {
    // More than three batches: so many may be written before it is stopped.
    const ENTRIES: u64 = 20_000;
    let (journal, databases) = (journal(1, ENTRIES).await, Databases::new());
    for url in databases.both() {
        catch_up(&journal, &url).await.expect("it works");
        tamper(&databases, &url, "DELETE FROM events_g1 WHERE position = 7; DELETE FROM domains_history_g1;")
            .await;
        assert!(rebuild_until(&journal, &url, false, 1).await.is_none(), "it is stopped");
        let all = list(&url).await.expect("it works");
        let states: Vec<_> = all.iter().map(|one| (one.generation, one.live, one.indexed)).collect();
        assert_eq!(states, [(1, true, true), (2, false, false)]);
        let begun = all[1].end.position;
        assert!(begun > Position(0) && begun < Position(ENTRIES), "{begun}");
        assert_eq!(number(&url, "SELECT count(*) FROM domains").await, 0, "readers see the old ones");
        // It carries on, compares and switches.
        let rebuilt = rebuild_all(&journal, &url).await;
        assert_eq!((rebuilt.standing.generation, rebuilt.standing.end.position), (2, Position(ENTRIES)));
        let compared = rebuilt.compared.expect("the shape is the same");
        let differed: Vec<_> =
            compared.iter().filter(|one| !one.is_same()).map(|one| one.table.name()).collect();
        assert_eq!(differed, ["domains_history", "events"]);
        let all = list(&url).await.expect("it works");
        assert_eq!(all.iter().map(|one| (one.generation, one.live)).collect::<Vec<_>>(), [(2, true)]);
        assert_eq!(number(&url, "SELECT count(*) FROM domains").await, 7);
        assert!(differing(&journal, &url).await.is_empty(), "{url}");
        // Begun again, it is generation 4 that comes of it, for 3 is dropped.
        assert!(rebuild_until(&journal, &url, false, 1).await.is_none(), "it is stopped");
        let rebuilt = rebuild_until(&journal, &url, true, u64::MAX).await.expect("nobody stops it");
        assert_eq!(rebuilt.standing.generation, 4);
        assert!(rebuilt.compared.expect("the shape is the same").iter().all(Comparison::is_same));
        assert!(differing(&journal, &url).await.is_empty(), "{url}");
        assert_eq!(list(&url).await.expect("it works").len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projector_goes_over_to_tables_that_were_rebuilt() {
    let (journal, databases) = (journal(1, 3_000).await, Databases::new());
    for url in databases.both() {
        let (stop, told) = (CancellationToken::new(), tokio::sync::mpsc::unbounded_channel());
        let (tell, mut told) = told;
        let running = tokio::spawn({
            let (journal, url, stop) = (journal.clone(), url.clone(), stop.clone());
            async move {
                run(&journal, Positions::new(), &url, &stop, |at| {
                    at.into_iter().for_each(|at| tell.send(at.position).expect("it works"));
                })
                .await
            }
        });
        let end = journal.end().await.expect("it works");
        while told.recv().await.expect("it runs") < end {}
        rebuild_all(&journal, &url).await;
        append(&journal, 1, end.0, 50).await;
        while told.recv().await.expect("it runs") < Position(end.0 + 50) {}
        stop.cancel();
        running.await.expect("it ends").expect("it works");
        let all = list(&url).await.expect("it works");
        assert_eq!(
            all.iter().map(|one| (one.generation, one.end.position)).collect::<Vec<_>>(),
            [(2, Position(end.0 + 50))]
        );
        assert!(differing(&journal, &url).await.is_empty(), "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_another_version_are_replaced_by_rebuilding_them() {
    let (journal, databases) = (journal(1, 100).await, Databases::new());
    for url in databases.both() {
        catch_up(&journal, &url).await.expect("it works");
        let other = "UPDATE projection SET shape = 'another'; DROP VIEW unplaced; DROP VIEW domains; \
                     CREATE VIEW domains AS SELECT 1 AS something;";
        let functions = if matches!(url, Url::Postgres(_)) { "DROP FUNCTION domains_at;" } else { "" };
        tamper(&databases, &url, &format!("{functions}{other}")).await;
        assert!(matches!(catch_up(&journal, &url).await, Err(Error::OtherShape)));
        assert_eq!(number(&url, "SELECT something FROM domains").await, 1);
        let rebuilt = rebuild_all(&journal, &url).await;
        assert!(rebuilt.compared.is_none());
        assert!(differing(&journal, &url).await.is_empty(), "{url}");
        assert_eq!(number(&url, "SELECT count(*) FROM domains").await, 7);
        catch_up(&journal, &url).await.expect("it works");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_read_reads_what_was_rebuilt_too_and_nothing_else() {
    let (journal, databases) = (journal(1, 100).await, Databases::new());
    let url = databases.server();
    catch_up(&journal, &url).await.expect("it works");
    databases.server.run_sql("CREATE ROLE \"Ann Lyst\" LOGIN; CREATE ROLE stranger LOGIN");
    grant(&url, "Ann Lyst").await.expect("it works");
    let as_role = |role: &str| -> Url { databases.server.url(role, "postgres").parse().expect("it is one") };
    let analyst = as_role("Ann%20Lyst");
    for _ in 0..2 {
        let (mut reading, _) = Reading::open(&analyst).await.expect("it works");
        reading.as_of(Position(50)).await.expect("it works");
        let question = "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM domains_at(50)), \
                        (SELECT count(*) FROM availability_by_day)";
        let answer = reading.ask(question).await.expect("it works");
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
    assert!(matches!(refused, Error::Rights { .. }), "{refused}");
    let refused = Reading::open(&as_role("stranger")).await.unwrap_err();
    assert!(refused.to_string().contains("permission denied for schema muster"), "{refused}");
    let missing = grant(&url, "nobody").await.unwrap_err();
    assert!(std::error::Error::source(&missing).expect("it has one").to_string().contains("does not exist"));
    assert!(matches!(grant(&databases.file(), "a").await, Err(Error::NoRoles(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_stands_in_a_row_is_compared() {
    let (journal, databases) = (journal(1, 300).await, Databases::new());
    let changes = [
        ("UPDATE domains_history_g1 SET to_position = 1000000000 WHERE to_position IS NULL", 5, 5),
        ("UPDATE domains_history_g1 SET to_position = NULL WHERE to_position = 1000000000", 0, 0),
        ("UPDATE domains_history_g1 SET from_position = NULL WHERE to_position IS NULL", 5, 5),
        ("DELETE FROM domains_history_g1 WHERE from_position IS NULL", 0, 5),
        ("INSERT INTO domains_history_g1 (domain) VALUES ('nobody')", 1, 5),
        ("UPDATE events_g1 SET position = 1000000000 WHERE position = 20", 1, 1),
        ("INSERT INTO set_aside_g1 VALUES (1000000000, '', '')", 1, 0),
    ];
    for url in databases.both() {
        catch_up(&journal, &url).await.expect("it works");
        for (change, extra, lacking) in changes {
            tamper(&databases, &url, change).await;
            let table = change.split(' ').find_map(|word| word.strip_suffix("_g1")).expect("it names one");
            let differ = differing(&journal, &url).await;
            let shown = differ.iter().find(|one| one.table.name() == table);
            let shown = shown.map_or((0, 0), |one| (one.differing[0].len(), one.differing[1].len()));
            assert_eq!(shown, (extra, lacking), "{url}: {change}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_another_journal_are_not_replaced() {
    let (ours, databases) = (journal(1, 50).await, Databases::new());
    let (others, shorter) = (journal(2, 60).await, journal(1, 40).await);
    let (set_aside, stop) = (Positions::new(), CancellationToken::new());
    for url in databases.both() {
        catch_up(&ours, &url).await.expect("it works");
        for shape in ["", "UPDATE projection SET shape = 'another'"] {
            tamper(&databases, &url, shape).await;
            for restart in [false, true] {
                let refused =
                    try_rebuild(&others, &set_aside, &url, restart, &stop, |_| {}).await.unwrap_err();
                let both = "is of cluster 00000000-0000-0000-0000-000000000001, and the journal of cluster \
                            00000000-0000-0000-0000-000000000002";
                assert!(refused.to_string().contains(both), "{url}: {refused}");
                let refused =
                    try_rebuild(&shorter, &set_aside, &url, restart, &stop, |_| {}).await.unwrap_err();
                assert!(matches!(refused, Error::Ahead { .. }), "{url}: {refused}");
            }
        }
        assert_eq!(generations(&url).await, [(1, true, 50)], "{url}");
        assert_eq!(number(&url, "SELECT count(*) FROM events").await, 49);
    }
}

/// An older log was restored, and is as long again as the tables: only the entry at their position tells.
#[tokio::test(flavor = "multi_thread")]
async fn tables_of_another_history_are_refused() {
    let (ours, restored, databases) = (journal(1, 50).await, journal(1, 40).await, Databases::new());
    append(&restored, 1, 100, 15).await;
    for url in databases.both() {
        catch_up(&ours, &url).await.expect("it works");
        catch_up(&ours, &url).await.expect("the same history is followed");
        let refused = catch_up(&restored, &url).await.unwrap_err();
        assert!(matches!(refused, Error::OtherHistory { position: Position(50) }), "{url}: {refused}");
        let refused = verify(&restored, &Positions::new(), &url, |_, _| {}).await.unwrap_err();
        assert!(matches!(refused, Error::OtherHistory { .. }), "{url}: {refused}");
        assert_eq!(generations(&url).await, [(1, true, 50)], "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_became_of_the_tables_meanwhile_is_seen_before_they_are_switched() {
    let (journal, databases) = (journal(1, 50).await, Databases::new());
    for url in databases.both() {
        catch_up(&journal, &url).await.expect("it works");
        let now = |sql: &'static str| {
            tokio::task::block_in_place(|| Handle::current().block_on(tamper(&databases, &url, sql)));
        };
        let other = || now("UPDATE projection SET cluster_id = 'another' WHERE live");
        let refused = rebuild_while(&journal, &url, other).await.unwrap_err();
        assert!(matches!(&refused, Error::OtherCluster { found, .. } if found == "another"), "{refused}");
        now("UPDATE projection SET cluster_id = NULL WHERE live");
        let gone = rebuild_while(&journal, &url, || now("DELETE FROM projection WHERE generation = 2")).await;
        assert!(matches!(gone, Err(Error::Replaced)), "{gone:?}");
        assert_eq!(generations(&url).await, [(1, true, 50)], "{url}");
        assert_eq!(number(&url, "SELECT count(*) FROM events").await, 49);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_set_aside_after_it_was_written_needs_a_rebuild() {
    let (journal, databases) = (journal(1, 300).await, Databases::new());
    let (later, stop) = (Positions::from([(Position(150), "a trial".to_owned())]), CancellationToken::new());
    for url in databases.both() {
        catch_up(&journal, &url).await.expect("it works");
        assert!(rebuild_until(&journal, &url, false, 200).await.is_none(), "it is stopped");
        let refused = catch_up_knowing(&journal, &url, later.clone()).await.unwrap_err();
        let said = "operators have set position 150 aside after it was written to the tables: muster projection rebuild";
        assert!(refused.to_string().contains(said), "{refused}");
        let rebuilt = try_rebuild(&journal, &later, &url, false, &stop, |_| {}).await.expect("it works");
        let rebuilt = rebuilt.expect("nobody stops it");
        assert_eq!(rebuilt.standing.generation, 3, "what was begun is not carried on");
        let differ: Vec<_> = rebuilt.compared.expect("the shape is the same");
        let differ: Vec<_> = differ.iter().filter(|one| !one.is_same()).map(|one| one.table.name()).collect();
        assert_eq!(differ, ["domains_history", "events", "set_aside"]);
        let (_, compared) = verify(&journal, &later, &url, |_, _| {}).await.expect("it works");
        assert!(compared.iter().all(Comparison::is_same));
        assert_eq!(number(&url, "SELECT count(*) FROM events WHERE position = 150").await, 0);
        catch_up_knowing(&journal, &url, later.clone()).await.expect("it goes on");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_builds_is_not_dropped() {
    let (journal, databases) = (journal(1, 9_000).await, Databases::new());
    let (url, set_aside, stop) = (databases.server(), Positions::new(), CancellationToken::new());
    catch_up(&journal, &url).await.expect("it works");
    assert!(rebuild_until(&journal, &url, false, 1).await.is_none(), "it is stopped");
    let begun = generations(&url).await;
    assert_eq!(begun.len(), 2);
    let mut other =
        PgConnection::connect(&databases.server.url("postgres", "postgres")).await.expect("it works");
    let locks = "SELECT pg_advisory_lock('muster.projection'::regclass::oid::int4, 2)";
    sqlx::raw_sql(locks).execute(&mut other).await.expect("it is free");
    for shape in ["", "UPDATE projection SET shape = 'another' WHERE NOT live"] {
        tamper(&databases, &url, shape).await;
        for restart in [true, false] {
            let refused = try_rebuild(&journal, &set_aside, &url, restart, &stop, |_| {}).await;
            assert!(matches!(refused, Err(Error::Another)), "{refused:?}");
            assert_eq!(generations(&url).await, begun, "{shape}, {restart}");
        }
    }
    other.close().await.expect("it closes");
    let rebuilt = rebuild_all(&journal, &url).await;
    assert_eq!(rebuilt.standing.generation, 3);
    assert_eq!(generations(&url).await, [(3, true, 9_000)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn making_indexes_stops_when_it_is_told_to() {
    // More than three batches, as above.
    let (journal, databases) = (journal(1, 20_000).await, Databases::new());
    let (url, stop) = (databases.server(), CancellationToken::new());
    catch_up(&journal, &url).await.expect("it works");
    assert!(rebuild_until(&journal, &url, false, 1).await.is_none(), "it is stopped");
    // Rows can be written to this table, and no index be made on it.
    let mut other =
        PgConnection::connect(&databases.server.url("postgres", "postgres")).await.expect("it works");
    let locks = "BEGIN; LOCK TABLE muster.domains_history_g2 IN ROW EXCLUSIVE MODE";
    sqlx::raw_sql(locks).execute(&mut other).await.expect("it is free");
    let stopping = tokio::spawn({
        let stop = stop.clone();
        async move {
            let waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'muster.domains_history_g2'::regclass";
            while sqlx::raw_sql(waits).fetch_all(&mut other).await.expect("it answers").is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            stop.cancel();
            (other, Instant::now())
        }
    });
    let stopped = try_rebuild(&journal, &Positions::new(), &url, false, &stop, |_| {}).await;
    assert!(stopped.expect("it works").is_none());
    let (other, told) = stopping.await.expect("it ends");
    assert!(told.elapsed() < Duration::from_secs(10), "{:?}", told.elapsed());
    let all = list(&url).await.expect("it works");
    assert_eq!(all.iter().map(|one| one.indexed).collect::<Vec<_>>(), [true, false]);
    other.close().await.expect("it closes");
    // The server notices within a second that nobody waits for the indexes.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(rebuild_all(&journal, &url).await.standing.generation, 2);
    assert!(differing(&journal, &url).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_with_a_reader_is_tried_again() {
    let mut databases = Databases::new();
    // So long has the reader to ask for what is locked.
    databases.server = Postgres::start_with(&["deadlock_timeout=2500ms"]).expect("it starts");
    let (journal, url) = (journal(1, 300).await, databases.server());
    catch_up(&journal, &url).await.expect("it works");
    let mut reader =
        PgConnection::connect(&databases.server.url("postgres", "postgres")).await.expect("it works");
    // The reader is not the one whose question fails.
    let begins = "SET deadlock_timeout TO '1min'; BEGIN; SELECT count(*) FROM muster.domains";
    sqlx::raw_sql(begins).execute(&mut reader).await.expect("it works");
    let mut first = Some(reader);
    let (tell, told) = tokio::sync::oneshot::channel();
    let mut tell = Some(tell);
    let reading = tokio::spawn(async move {
        let mut reader: PgConnection = told.await.expect("it comes so far");
        tokio::time::sleep(Duration::from_millis(500)).await;
        let asks = "SELECT count(*) FROM muster.starts; COMMIT";
        sqlx::raw_sql(asks).execute(&mut reader).await.expect("it is answered");
    });
    let rebuilt = rebuild_while(&journal, &url, || {
        if let Some((tell, reader)) = tell.take().zip(first.take()) {
            tell.send(reader).expect("it waits");
        }
    });
    assert_eq!(rebuilt.await.expect("it tries again").expect("nobody stops it").standing.generation, 2);
    reading.await.expect("it ends");
}
