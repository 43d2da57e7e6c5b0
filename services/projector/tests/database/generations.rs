//! Tables that are compared with the log, and made again beside those that readers see.

use journal::Journal;
use projections::cluster_log::Positions;
use projector::ask::Reading;
use projector::rebuild::{Rebuilt, Step, rebuild};
use projector::verify::{Comparison, list, verify};
use projector::{Error, Url, grant, run};
use schemas::Position;
use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tokio_util::sync::CancellationToken;

use crate::databases::{Databases, append, catch_up, journal, number};

/// The tables that differ from the log, each with its first rows that are too many, and that it lacks.
async fn differing(journal: &Journal, url: &Url) -> Vec<Comparison> {
    let (_, compared) = verify(journal, &Positions::new(), url, |_, _| {}).await.expect("it works");
    assert_eq!(compared.len(), 15);
    compared.into_iter().filter(|one| !one.is_same()).collect()
}

/// Rebuilds, and stops when the log is written up to a position.
async fn rebuild_until(journal: &Journal, url: &Url, restart: bool, until: u64) -> Option<Rebuilt> {
    let stop = CancellationToken::new();
    let (ends, set_aside) = (stop.clone(), Positions::new());
    let done = rebuild(journal, &set_aside, url, restart, &stop, |step| {
        if matches!(step, Step::Written(position, _) if position.0 >= until) {
            ends.cancel();
        }
    });
    done.await.expect("it works")
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
    const ENTRIES: u64 = 9_000;
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
                run(&journal, Positions::new(), &url, &stop, |at| tell.send(at.position).expect("it works"))
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
