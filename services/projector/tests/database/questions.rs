//! Questions: what is one and what is refused, how much an answer may be, and that it is of one moment.

use std::time::{Duration, Instant};

use journal::Journal;
use projections::cluster_log::Positions;
use projector::ask::{ANSWER_BYTES, ANSWER_ROWS, Reading};
use projector::rebuild::rebuild;
use projector::{Error, Url, grant};
use schemas::Position;
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use crate::databases::{Databases, catch_up, journal, number};

const ENTRIES: u64 = 50;
/// Numbers without end.
const ENDLESS: &str = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)";

async fn filled() -> (Journal, Databases) {
    let (journal, databases) = (journal(1, ENTRIES).await, Databases::new());
    for url in databases.both() {
        catch_up(&journal, &url).await.expect("it works");
    }
    (journal, databases)
}

async fn ask(url: &Url, question: &str) -> Result<(Vec<String>, Json), Error> {
    let (mut reading, _) = Reading::open(url).await.expect("it opens");
    reading.ask(question).await.map(|answer| (answer.columns, json!(answer.rows)))
}

async fn refusal(url: &Url, question: &str) -> String {
    match ask(url, question).await {
        Err(Error::Question(said)) => said,
        other => panic!("{url}: {question}: {other:?}"),
    }
}

#[tokio::test]
async fn a_question_is_one_statement_that_answers_rows() {
    let (_journal, databases) = filled().await;
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
            assert!(said.contains("one statement is asked that answers rows"), "{said}");
        }
        assert_eq!(number(&url, "SELECT count(*) FROM events").await, 49);
    }
    assert!(!written.exists());
}

#[tokio::test]
async fn a_question_may_be_written_in_many_ways() {
    let (_journal, databases) = filled().await;
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
        let twice = ask(&url, "SELECT 1 AS a, 2 AS a").await.expect("it is one");
        assert_eq!(twice, (names(&["a", "a"]), json!([[1, 2]])));
        let text = ask(&url, "SELECT 'a;--b' AS a, ';' AS \"b;\";").await.expect("it is one");
        assert_eq!(text, (names(&["a", "b;"]), json!([["a;--b", ";"]])));
        assert_eq!(ask(&url, "VALUES (1), (2)").await.expect("it is one").1, json!([[1], [2]]));
        for explained in ["EXPLAIN SELECT * FROM events;", "/* how */ explain VALUES (1)"] {
            ask(&url, explained).await.expect(explained);
        }
    }
    let plan = "EXPLAIN QUERY PLAN SELECT * FROM events";
    ask(&databases.file(), plan).await.expect("it is one");
}

#[tokio::test]
async fn an_answer_that_is_held_has_limits_and_one_that_is_passed_on_has_none() {
    let (_journal, databases) = filled().await;
    let long =
        format!("SELECT {} FROM events e, events f", ["e.about || f.about || f.decision"; 40].join(" || "));
    for url in databases.both() {
        let said = refusal(&url, &format!("{ENDLESS} SELECT x FROM n")).await;
        assert!(said.contains("more than 100000 rows") && said.contains("-o csv"), "{said}");
        let many = format!("{ENDLESS} SELECT x FROM n LIMIT {ANSWER_ROWS}");
        assert_eq!(
            ask(&url, &many).await.expect("they are as many").1.as_array().map(Vec::len),
            Some(ANSWER_ROWS)
        );
        let text = format!("{ENDLESS} SELECT x, ({long} LIMIT 1) AS text FROM n LIMIT {ANSWER_ROWS}");
        let said = refusal(&url, &text).await;
        assert!(said.contains(&format!("{} MiB", ANSWER_BYTES >> 20)), "{said}");
        let (mut reading, _) = Reading::open(&url).await.expect("it opens");
        let question = format!("{ENDLESS} SELECT x FROM n LIMIT {}", 2 * ANSWER_ROWS);
        let question = reading.question(&question).await.expect("it is one");
        assert_eq!(question.columns(), ["x"]);
        let mut rows = 0;
        let taken = |_| {
            rows += 1;
            Ok::<(), Error>(())
        };
        reading.each(&question, taken).await.expect("they are passed on");
        assert_eq!(rows, 2 * ANSWER_ROWS);
    }
}

#[tokio::test]
async fn what_takes_too_long_is_ended() {
    let (_journal, databases) = filled().await;
    let patience = Duration::from_millis(300);
    for url in databases.both() {
        let (mut reading, _) = Reading::patient(&url, patience).await.expect("it opens");
        let begun = Instant::now();
        let said = reading.ask(&format!("{ENDLESS} SELECT count(*) FROM n")).await.unwrap_err().to_string();
        assert!(said.contains("took longer than 300ms") && said.contains("--timeout"), "{said}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        // The connection is free: of a file at once, of a server once its transaction is over.
        reading.as_of(Position(7)).await.expect("it goes on");
        assert_eq!(
            reading.ask("SELECT max(position) FROM events").await.expect("it goes on").rows,
            [[json!(7)]]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_of_one_moment_also_while_tables_are_rebuilt() {
    let (journal, databases) = filled().await;
    for url in databases.both() {
        let (mut reading, standing) = Reading::open(&url).await.expect("it opens");
        let rebuilding = tokio::spawn({
            let (journal, url) = (journal.clone(), url.clone());
            async move {
                let stop = CancellationToken::new();
                rebuild(&journal, &Positions::new(), &url, false, &stop, |_| {}).await.expect("it works");
            }
        });
        // Long enough for tables that are as good as empty, if nothing held it up.
        tokio::time::sleep(Duration::from_secs(4)).await;
        let seen = reading.ask("SELECT max(position), count(*) FROM events").await.expect("it is one");
        assert_eq!(json!(seen.rows), json!([[ENTRIES, ENTRIES - 1]]), "{url}");
        let seen = reading.ask("SELECT count(*) FROM domains").await.expect("it is one");
        assert_eq!(json!(seen.rows), json!([[7]]), "{url}");
        drop(reading);
        rebuilding.await.expect("it ends");
        let (_, after) = Reading::open(&url).await.expect("it opens");
        assert_eq!((after.generation, after.end), (standing.generation + 1, standing.end));
    }
}

#[tokio::test]
async fn the_past_is_shown_to_a_role_that_may_make_temporary_views() {
    let (_journal, databases) = filled().await;
    let url = databases.server();
    databases.server.run_sql("CREATE ROLE ann LOGIN; REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC");
    let ann: Url = databases.server.url("ann", "postgres").parse().expect("it is one");
    databases
        .server
        .run_sql("GRANT USAGE ON SCHEMA muster TO ann; GRANT SELECT ON ALL TABLES IN SCHEMA muster TO ann");
    let (mut reading, _) = Reading::open(&ann).await.expect("it opens");
    let refused = reading.as_of(Position(7)).await.unwrap_err();
    assert!(matches!(refused, Error::Rights { .. }), "{refused:?}");
    assert!(refused.to_string().contains("the right TEMPORARY on the database"), "{refused}");
    grant(&url, "ann").await.expect("it works");
    let (mut reading, _) = Reading::open(&ann).await.expect("it opens");
    reading.as_of(Position(7)).await.expect("it is shown");
    assert_eq!(reading.ask("SELECT max(position) FROM events").await.expect("it is one").rows, [[json!(7)]]);
}
