//! Tables of a cluster: their content, queries, and the recovery of killed projectors.

use serde_json::{Value, json};
use support::postgres::Postgres;

use crate::dev::{LocalCluster, sleeper};
use crate::support::cluster::Server;
use crate::support::test_dir::ensure;
use crate::support::{Muster, Service, TestDir, eventually};

/// Returns the result of a query.
fn query(muster: &Muster, question: &str) -> Result<Value, String> {
    let said = muster.run(&["sql", question, "-o", "json"]);
    ensure(said.code == 0, || format!("{said:?}")).map(|()| said.json())
}

/// Waits until a query returns this result.
fn wait_for_result(muster: &Muster, question: &str, expected: &Value) {
    eventually(question, || {
        query(muster, question).and_then(|said| ensure(said == *expected, || said.to_string()))
    });
}

const STATES: &str = "SELECT process_guid, state, count(*) AS n FROM actual_lrps GROUP BY 1, 2";

#[test]
fn local_cluster_keeps_its_tables_across_restart() {
    let place = TestDir::new();
    let file = place.write_file("web.toml", sleeper("web", 3));
    let dev = LocalCluster::start(&place, &[file.to_str().unwrap()]);
    let muster = &dev.muster;
    muster.wait_until_running("web", 3);
    wait_for_result(muster, STATES, &json!([{"process_guid": "web", "state": "RUNNING", "n": 3}]));
    let csv = muster.run(&["sql", STATES, "-o", "csv"]).expect_status(0);
    assert_eq!(csv.out, "process_guid,state,n\nweb,RUNNING,3\n");
    let table = muster.run(&["sql", STATES]).expect_status(0).expect_output(&["at position "]);
    assert_eq!(table.out, "process_guid   state     n\nweb            RUNNING   3\n");
    muster.run(&["sql", "DELETE FROM events_g1"]).expect_status(2).expect_output(&["queries are read-only"]);
    muster
        .run(&["sql", "SELECT 1; COMMIT; SELECT 2"])
        .expect_status(2)
        .expect_output(&["queries are read-only"]);
    let lines = muster.run(&["sql", STATES, "-o", "jsonl"]).expect_status(0);
    let line: Value = serde_json::from_str(&lines.out).unwrap();
    assert_eq!(line, json!({"process_guid": "web", "state": "RUNNING", "n": 3}));
    let many = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 150000) SELECT x FROM n";
    muster.run(&["sql", many]).expect_status(2).expect_output(&["more than 100000 rows", "-o csv"]);
    assert_eq!(muster.run(&["sql", many, "-o", "csv"]).expect_status(0).out.lines().count(), 150_001);
    let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n";
    muster.run(&["sql", endless, "--timeout", "1s"]).expect_status(2).expect_output(&["took longer than 1s"]);
    muster.run(&["sql", "SELEC"]).expect_status(2).expect_output(&["syntax error"]);
    muster.run(&["sql", STATES, "--as-of", "99999999"]).expect_status(2).expect_output(&["is beyond"]);
    muster.run(&["lrp", "list", "-o", "csv"]).expect_status(2).expect_output(&["invalid output format csv"]);
    let claimed =
        query(muster, "SELECT min(position) AS p FROM events WHERE type = 'actual.claimed.v1'").unwrap();
    let before = (claimed[0]["p"].as_i64().unwrap() - 1).to_string();
    let past = muster.run(&["sql", STATES, "--as-of", &before, "-o", "json"]).expect_status(0).json();
    assert_eq!(past, json!([{"process_guid": "web", "state": "UNCLAIMED", "n": 3}]));
    let data = place.path().join("data");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &data.join("projection.db").metadata().unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    dev.end(&place);
    let dev = LocalCluster::start(&place, &[file.to_str().unwrap()]);
    dev.muster.wait_until_running("web", 3);
    wait_for_result(&dev.muster, STATES, &json!([{"process_guid": "web", "state": "RUNNING", "n": 3}]));
    let logged = dev.muster.ok("events list -o jsonl").out;
    let logged: usize = logged.lines().map(event_count).sum();
    let counted = query(&dev.muster, "SELECT count(*) AS n FROM events").unwrap()[0]["n"].as_u64().unwrap();
    assert!(usize::try_from(counted).unwrap() >= logged, "{counted} of {logged}");
    let twice = "SELECT position, nth FROM events GROUP BY 1, 2 HAVING count(*) > 1";
    assert_eq!(query(&dev.muster, twice), Ok(json!([])));
    dev.end(&place);
}

/// Returns the number of events in a line of `events list`.
fn event_count(line: &str) -> usize {
    let entry: Value = serde_json::from_str(line).unwrap();
    let decisions = entry["entry"]["known"]["decisions"].as_array().cloned().unwrap_or_default();
    decisions.iter().map(|decision| decision["events"].as_array().map_or(0, Vec::len)).sum()
}

fn projector(place: &TestDir, url: &str, database: &str) -> Service {
    let args = ["projector", "--database", database];
    let name = database.split(':').next().unwrap();
    Service::start("projector", &place.path().join(format!("{name}.log")), &args, &[("MUSTER_NATS_URL", url)])
}

#[test]
fn killed_projectors_lose_nothing() {
    let (place, postgres) = (TestDir::new(), Postgres::start().unwrap());
    let server = Server::start(&place);
    let url = server.url();
    Muster::nats(&url).ok("cluster found");
    let bbs = Service::start("bbs", &place.path().join("bbs.log"), &["bbs"], &[("MUSTER_NATS_URL", &url)]);
    let file = format!("sqlite:{}", place.path().join("tables.db").display());
    let databases = [file, postgres.url("postgres", "postgres")];
    let running = || databases.each_ref().map(|database| projector(&place, &url, database));
    let muster = Muster::nats(&url);
    for round in 0..5 {
        let projectors = running();
        for number in 0..8 {
            let file = place.write_file("one.toml", sleeper(&format!("p{round}x{number}"), 2));
            eventually("the process is desired", || {
                let said = muster.run(&["apply", file.to_str().unwrap(), "--detach"]);
                ensure(said.code == 0, || format!("{said:?}"))
            });
        }
        drop(projectors);
    }
    let projectors = running();
    for database in &databases {
        let tables = Muster::with("MUSTER_DATABASE", database);
        wait_for_result(&tables, "SELECT count(*) AS n FROM desired_lrps", &json!([{"n": 40}]));
        wait_for_result(
            &tables,
            "SELECT state, count(*) AS n FROM actual_lrps GROUP BY 1",
            &json!([{"state": "UNCLAIMED", "n": 80}]),
        );
        let twice = "SELECT position, nth FROM events GROUP BY 1, 2 HAVING count(*) > 1";
        assert_eq!(query(&tables, twice), Ok(json!([])));
        let before =
            tables.run(&["sql", "SELECT count(*) AS n FROM desired_lrps", "--as-of", "1", "-o", "json"]);
        assert_eq!(before.expect_status(0).json(), json!([{"n": 0}]));
    }
    let tables = Muster::with("MUSTER_DATABASE", &databases[1]);
    tables.run(&["sql", "DELETE FROM events_g1"]).expect_status(2).expect_output(&["queries are read-only"]);
    for (database, why) in [
        ("sqlite:/nowhere/tables.db", "can't open the database sqlite:/nowhere/tables.db"),
        (&*postgres.url("postgres", "nowhere"), "database \"nowhere\" does not exist"),
    ] {
        let other = projector(&place, &url, database);
        eventually("the projector logs the reason", || {
            let said = other.log();
            ensure(said.contains(why), || said)
        });
    }
    drop((projectors, bbs));
}
