//! Tests of queries: valid and refused statements, limits of results, and consistent reads of one state.

use std::time::{Duration, Instant};

use journal::Journal;
use projections::cluster_log::QuarantinedPositions;
use projector::ask::{MAX_BYTES, MAX_ROWS, QuerySession};
use projector::rebuild::rebuild;
use projector::{Error, Url, grant};
use schemas::Position;
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use crate::databases::{Databases, catch_up, journal, query_number};

const ENTRIES: u64 = 50;
/// An endless sequence of numbers.
const ENDLESS: &str = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)";

async fn filled_databases() -> (Journal, Databases) {
    let (journal, databases) = (journal(1, ENTRIES).await, Databases::new());
    for url in databases.both() {
        catch_up(&journal, &url).await.expect("should succeed");
    }
    (journal, databases)
}

async fn ask(url: &Url, question: &str) -> Result<(Vec<String>, Json), Error> {
    let (mut reading, _) = QuerySession::open(url).await.expect("should open");
    reading.ask(question).await.map(|answer| (answer.columns, json!(answer.rows)))
}

async fn refusal(url: &Url, question: &str) -> String {
    match ask(url, question).await {
        Err(Error::InvalidQuery(said)) => said,
        other => panic!("{url}: {question}: {other:?}"),
    }
}

#[tokio::test]
async fn query_must_be_one_statement_returning_rows() {
    let (_journal, databases) = filled_databases().await;
    let written = databases.folder.path().join("written.db");
    let vacuum = format!("COMMIT; VACUUM INTO '{}'", written.display());
    let attach = format!("ATTACH '{}' AS other", written.display());
    let copy = format!("COPY (SELECT 1) TO PROGRAM 'touch {}'", written.display());
    let refused = [
        "",
        ";",
        "-- nothing",
        "COMMIT",
        "SELECT 1 AS a; SELECT 2 AS b, 3 AS c",
        "SELECT 1; COMMIT; SELECT 2",
        "SELECT 1; -- and\n; SELECT 2",
        "SELECT 1) AS a; COMMIT; SELECT * FROM (SELECT 2",
        "SELECT $a('); COMMIT; SELECT ('",
        "events",
        "events, domains",
        &vacuum,
        &vacuum[8..],
        &attach,
        "PRAGMA user_version = 5",
        "PRAGMA user_version = 5; SELECT 1",
        "PRAGMA journal_mode = delete",
        "SELECT 1 UNION ALL PRAGMA journal_mode = delete",
        "BEGIN IMMEDIATE",
        "DELETE FROM events_g1 RETURNING position",
        "WITH gone AS (SELECT 1) DELETE FROM events_g1 RETURNING position",
        "WITH gone AS (DELETE FROM events_g1 RETURNING position) SELECT * FROM gone",
        "EXPLAIN COMMIT; DELETE FROM events_g1",
        "EXPLAIN ANALYZE DELETE FROM events_g1",
        "CREATE TEMP TABLE mine (a int)",
        "CREATE TABLE mine (a int)",
        "SELECT 1 AS a INTO mine",
        &copy,
        "SET TRANSACTION READ WRITE",
    ];
    for url in databases.both() {
        for question in refused {
            let said = refusal(&url, question).await;
            assert!(!said.is_empty(), "{question}");
        }
        let said = refusal(&url, "SELECT 1; SELECT 2").await;
        assert!(said.contains("syntax error") || said.contains("multiple commands"), "{said}");
        for question in ["DROP VIEW events", "COMMIT"] {
            let said = refusal(&url, question).await;
            assert!(said.contains("expected one statement that returns rows"), "{said}");
        }
        assert_eq!(query_number(&url, "SELECT count(*) FROM events").await, 49);
    }
    assert!(!written.exists());
}

#[tokio::test]
async fn valid_query_forms_are_accepted() {
    let (_journal, databases) = filled_databases().await;
    let same = [
        "SELECT 1 AS a, 2 AS b",
        " select 1 AS a, 2 AS b ; ",
        "SELECT 1 AS a, 2 AS b;; -- that's all",
        "/* a question; */ SELECT 1 AS a, -- one;\n 2 AS b /* two */;",
        "WITH one(a, b) AS (VALUES (1, 2)) SELECT * FROM one; /* and */",
        "SELECT 1 AS a, 2 AS b UNION SELECT 1, 2 ORDER BY 1 LIMIT 5;",
    ];
    for url in databases.both() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for question in same {
            let said = ask(&url, question).await.expect(question);
            assert_eq!(said, (names(&["a", "b"]), json!([[1, 2]])), "{url}: {question}");
        }
        let twice = ask(&url, "SELECT 1 AS a, 2 AS a").await.expect("should be valid");
        assert_eq!(twice, (names(&["a", "a"]), json!([[1, 2]])));
        let text = ask(&url, "SELECT 'a;--b' AS a, ';' AS \"b;\";").await.expect("should be valid");
        assert_eq!(text, (names(&["a", "b;"]), json!([["a;--b", ";"]])));
        assert_eq!(ask(&url, "VALUES (1), (2)").await.expect("should be valid").1, json!([[1], [2]]));
        for explained in ["EXPLAIN SELECT * FROM events;", "/* how */ explain VALUES (1)"] {
            ask(&url, explained).await.expect(explained);
        }
    }
    let plan = "EXPLAIN QUERY PLAN SELECT * FROM events";
    ask(&databases.file(), plan).await.expect("should be valid");
}

#[tokio::test]
async fn collected_result_is_limited_and_streamed_result_is_not() {
    let (_journal, databases) = filled_databases().await;
    let long =
        format!("SELECT {} FROM events e, events f", ["e.target || f.target || f.decision"; 40].join(" || "));
    for url in databases.both() {
        let said = refusal(&url, &format!("{ENDLESS} SELECT x FROM n")).await;
        assert!(said.contains("more than 100000 rows") && said.contains("-o csv"), "{said}");
        let many = format!("{ENDLESS} SELECT x FROM n LIMIT {MAX_ROWS}");
        assert_eq!(
            ask(&url, &many).await.expect("a result at the limit").1.as_array().map(Vec::len),
            Some(MAX_ROWS)
        );
        let text = format!("{ENDLESS} SELECT x, ({long} LIMIT 1) AS text FROM n LIMIT {MAX_ROWS}");
        let said = refusal(&url, &text).await;
        assert!(said.contains(&format!("{} MiB", MAX_BYTES >> 20)), "{said}");
        let (mut reading, _) = QuerySession::open(&url).await.expect("should open");
        let question = format!("{ENDLESS} SELECT x FROM n LIMIT {}", 2 * MAX_ROWS);
        let question = reading.question(&question).await.expect("should be valid");
        assert_eq!(question.columns(), ["x"]);
        let mut rows = 0;
        let taken = |_| {
            rows += 1;
            Ok::<(), Error>(())
        };
        reading.for_each_row(&question, taken).await.expect("a streamed result has no limit");
        assert_eq!(rows, 2 * MAX_ROWS);
    }
}

#[tokio::test]
async fn query_beyond_time_limit_is_cancelled() {
    let (_journal, databases) = filled_databases().await;
    let patience = Duration::from_millis(300);
    for url in databases.both() {
        let (mut reading, _) = QuerySession::open_with_timeout(&url, patience).await.expect("should open");
        let begun = Instant::now();
        let said = reading.ask(&format!("{ENDLESS} SELECT count(*) FROM n")).await.unwrap_err().to_string();
        assert!(said.contains("took longer than 300ms") && said.contains("--timeout"), "{said}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        // The connection becomes usable again: for a file immediately, for a server after the end of its
        // transaction.
        reading.as_of(Position(7)).await.expect("should continue");
        assert_eq!(
            reading.ask("SELECT max(position) FROM events").await.expect("should continue").rows,
            [[json!(7)]]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn query_reads_one_moment_during_rebuild() {
    let (journal, databases) = filled_databases().await;
    for url in databases.both() {
        let (mut reading, standing) = QuerySession::open(&url).await.expect("should open");
        let rebuilding = tokio::spawn({
            let (journal, url) = (journal.clone(), url.clone());
            async move {
                let stop = CancellationToken::new();
                rebuild(&journal, &QuarantinedPositions::new(), &url, false, &stop, |_| {})
                    .await
                    .expect("should succeed");
            }
        });
        // Without the lock, this time would be enough to switch to nearly empty tables.
        tokio::time::sleep(Duration::from_secs(4)).await;
        let seen = reading.ask("SELECT max(position), count(*) FROM events").await.expect("should be valid");
        assert_eq!(json!(seen.rows), json!([[ENTRIES, ENTRIES - 1]]), "{url}");
        let seen = reading.ask("SELECT count(*) FROM domains").await.expect("should be valid");
        assert_eq!(json!(seen.rows), json!([[7]]), "{url}");
        drop(reading);
        rebuilding.await.expect("should end");
        let (_, after) = QuerySession::open(&url).await.expect("should open");
        assert_eq!((after.number, after.end), (standing.number + 1, standing.end));
    }
}

#[tokio::test]
async fn past_query_requires_temporary_right() {
    let (_journal, databases) = filled_databases().await;
    let url = databases.server();
    databases.server.run_sql("CREATE ROLE ann LOGIN; REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC");
    let ann: Url = databases.server.url("ann", "postgres").parse().expect("should be valid");
    databases
        .server
        .run_sql("GRANT USAGE ON SCHEMA muster TO ann; GRANT SELECT ON ALL TABLES IN SCHEMA muster TO ann");
    let (mut reading, _) = QuerySession::open(&ann).await.expect("should open");
    let refused = reading.as_of(Position(7)).await.unwrap_err();
    assert!(matches!(refused, Error::MissingRight { .. }), "{refused:?}");
    assert!(refused.to_string().contains("the right TEMPORARY on the database"), "{refused}");
    grant(&url, "ann").await.expect("should succeed");
    let (mut reading, _) = QuerySession::open(&ann).await.expect("should open");
    reading.as_of(Position(7)).await.expect("should be shown");
    assert_eq!(
        reading.ask("SELECT max(position) FROM events").await.expect("should be valid").rows,
        [[json!(7)]]
    );
}
