//! `muster doctor` on a healthy cluster, and its reports about problems.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;

use access::probes::sample_roles;
use serde_json::{Value, json};

use crate::dev::{LocalCluster, sleeper};
use crate::support::test_dir::ensure;
use crate::support::users::Users;
use crate::support::{Cluster, Muster, TestDir, eventually};

/// Names of the checks, in the order of the report.
const CHECKS: [&str; 23] = [
    "connection",
    "certificate",
    "jetstream",
    "stream",
    "positions",
    "entries",
    "replicas",
    "durability",
    "storage",
    "health",
    "clock.server",
    "clock.bbs",
    "clock.cells",
    "rights",
    "bbs",
    "auctioneer",
    "appends",
    "versions",
    "cells",
    "isolation",
    "database",
    "host",
    "denials",
];

/// Outcome and finding of each check, keyed by the name of the check.
type Outcomes = BTreeMap<String, (String, String)>;

/// Runs `muster doctor`, checks its exit status and the shape of its report, and returns the outcomes.
fn run_doctor(muster: &Muster, code: i32, options: &[&str]) -> Outcomes {
    let args = [&["doctor", "-o", "json"], options].concat();
    let report = muster.run(&args).expect_status(code).json();
    let keys: Vec<&String> = report.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["checks", "outcome"]);
    let checks = report["checks"].as_array().unwrap();
    let names: Vec<&str> = checks.iter().map(|check| check["check"].as_str().unwrap()).collect();
    assert_eq!(names, CHECKS, "{report:#}");
    for check in checks {
        let keys: Vec<&String> = check.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["advice", "check", "found", "outcome"]);
        let outcome = check["outcome"].as_str().unwrap();
        assert!(["ok", "warning", "failed", "skipped"].contains(&outcome), "{check}");
        let bad = ["warning", "failed"].contains(&outcome);
        assert!(!bad || check["advice"].as_array().is_some_and(|advice| !advice.is_empty()), "{check}");
    }
    let failed = checks.iter().any(|check| check["outcome"] == "failed");
    assert_eq!(report["outcome"] == "failed", failed);
    assert_eq!(code != 0, failed, "{report:#}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let each =
        checks.iter().map(|check| (text(&check["check"]), (text(&check["outcome"]), text(&check["found"]))));
    each.collect()
}

/// Asserts the outcome of a check and words of its finding.
fn assert_outcome(outcomes: &Outcomes, check: &str, outcome: &str, words: &[&str]) {
    let said = &outcomes[check];
    assert_eq!(said.0, outcome, "{check}: {said:?}");
    for word in words {
        assert!(said.1.contains(word), "{check}: no {word:?} in {said:?}");
    }
}

#[test]
fn healthy_local_cluster_passes() {
    let place = TestDir::new();
    let file = place.write_file("web.toml", sleeper("web", 1));
    let dev = LocalCluster::start(&place, &[file.to_str().unwrap()]);
    dev.muster.wait_until_running("web", 1);
    let outcomes = run_doctor(&dev.muster, 0, &[]);
    assert_outcome(&outcomes, "connection", "ok", &["data"]);
    assert_outcome(&outcomes, "stream", "skipped", &["embedded journal"]);
    assert_outcome(&outcomes, "positions", "ok", &["1 to "]);
    assert_outcome(&outcomes, "entries", "ok", &[]);
    assert_outcome(&outcomes, "durability", "ok", &["synced"]);
    assert_outcome(&outcomes, "rights", "ok", &["only the owner"]);
    assert_outcome(&outcomes, "bbs", "ok", &["leads in term"]);
    assert_outcome(&outcomes, "auctioneer", "ok", &["leads in term"]);
    assert_outcome(&outcomes, "cells", "ok", &["3 cells present in 2 zones (z1, z2)"]);
    // These tests run without isolation.
    assert_outcome(&outcomes, "isolation", "warning", &["none: c1, c2, c3"]);
    assert_outcome(&outcomes, "database", "ok", &["projection.db", "generation 1"]);
    let shown = dev.muster.ok("doctor").out;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("CHECK") && lines[1].starts_with("connection"), "{shown}");
    assert!(lines.last().unwrap().starts_with("23 checks: 0 failed, "), "{shown}");
    dev.muster.exits(2, "doctor --domain shop").expect_output(&["--domain shop is not used by this command"]);
    dev.end(&place);
}

#[test]
fn unreachable_cluster_is_reported() {
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nats://{}", held.local_addr().unwrap());
    drop(held);
    let outcomes = run_doctor(&Muster::nats(&url), 5, &[]);
    assert_outcome(&outcomes, "connection", "failed", &[&url, "refused"]);
    let skipped =
        outcomes.iter().filter(|(_, (outcome, why))| outcome == "skipped" && why.contains("no connection"));
    assert_eq!(skipped.count(), 21, "every check but connection and host is skipped: {outcomes:#?}");
    let place = TestDir::new();
    let outcomes = run_doctor(&Muster::local(place.path()), 5, &[]);
    assert_outcome(&outcomes, "connection", "failed", &["muster.sock"]);
}

/// Returns the state and the configuration of the stream.
fn stream_info(cluster: &Cluster) -> Value {
    cluster.plain("cli").request_json("$JS.API.STREAM.INFO.MUSTER", &json!({}))
}

/// Returns the metrics address from the log of a service.
fn metrics_address(cluster: &Cluster, name: &str) -> String {
    eventually("the service logs its metrics address", || {
        let said = cluster.services[name].log();
        let address =
            said.split("http://").find_map(|rest| rest.split_once("/metrics").map(|(address, _)| address));
        address.map(str::to_owned).ok_or(said)
    })
}

#[test]
fn changed_cluster_fails_the_matching_checks() {
    let mut cluster = Cluster::empty();
    cluster.start_service_with("bbs-1", &["--metrics", "127.0.0.1:0"]);
    cluster.start_service("auctioneer-1");
    cluster.start_service("rep-c1");
    cluster.wait_until_ready(1);
    let muster = cluster.muster();
    let tables = format!("sqlite:{}", cluster.place.path().join("tables.db").display());
    muster.ok(&format!("projection rebuild --database {tables}"));
    let at = metrics_address(&cluster, "bbs-1");
    let monitoring = cluster.server.monitoring();
    let all = ["--monitoring", &monitoring, "--metrics", &at, "--database", &tables];
    let before = stream_info(&cluster)["state"]["last_seq"].clone();
    let outcomes = run_doctor(&muster, 0, &all);
    assert_eq!(stream_info(&cluster)["state"]["last_seq"], before, "doctor writes nothing");
    for check in
        ["connection", "jetstream", "stream", "entries", "replicas", "durability", "storage", "clock.server"]
    {
        assert_outcome(&outcomes, check, "ok", &[]);
    }
    assert_outcome(&outcomes, "positions", "ok", &[&format!("1 to {before}")]);
    assert_outcome(&outcomes, "clock.bbs", "ok", &["the median of"]);
    assert_outcome(&outcomes, "rights", "warning", &["is denied, but", "no permissions set up"]);
    assert_outcome(&outcomes, "bbs", "ok", &["no standby"]);
    assert_outcome(&outcomes, "versions", "ok", &[env!("CARGO_PKG_VERSION")]);
    assert_outcome(&outcomes, "cells", "ok", &["1 cell present in 1 zone (z1)"]);
    assert_outcome(&outcomes, "database", "ok", &["up to date"]);
    assert_outcome(&outcomes, "denials", "ok", &["1 service checked"]);
    muster.ok("domain refresh shop");
    eventually("the tables are behind for too long", || {
        let report = muster.try_json(&format!("doctor --database {tables}"))?;
        let check = report["checks"].as_array().unwrap().iter().find(|check| check["check"] == "database");
        let check = check.unwrap();
        let behind = check["found"].as_str().is_some_and(|found| found.contains("entries behind, for "));
        ensure(check["outcome"] == "warning" && behind, || check.to_string())
    });
    let mut config = stream_info(&cluster)["config"].clone();
    config["compression"] = json!("s2");
    cluster.plain("cli").request_json("$JS.API.STREAM.UPDATE.MUSTER", &config);
    assert_outcome(&run_doctor(&muster, 0, &[]), "stream", "warning", &["it is compressed (s2)"]);
    assert_eq!(muster.json("journal migrate"), json!({"stream": "MUSTER", "changed": true}));
    assert_eq!(muster.json("journal migrate"), json!({"stream": "MUSTER", "changed": false}));
    assert_outcome(&run_doctor(&muster, 0, &[]), "stream", "ok", &[]);
    let mut config = stream_info(&cluster)["config"].clone();
    config["max_age"] = json!(86_400_000_000_000_u64);
    let updated = cluster.plain("cli").request_json("$JS.API.STREAM.UPDATE.MUSTER", &config);
    assert!(updated["error"].is_null(), "{updated}");
    cluster.kill9("auctioneer-1");
    eventually("no auctioneer is alive", || {
        let row = muster.try_json("cluster show")?;
        ensure(row["services"]["rows"].as_array().is_some_and(|rows| rows.len() == 1), || row.to_string())
    });
    let outcomes = run_doctor(&muster, 9, &["--replicas", "3"]);
    assert_outcome(&outcomes, "stream", "failed", &["max_age drops entries", "1 replicas, expected 3"]);
    assert_outcome(&outcomes, "auctioneer", "failed", &["none is running: nothing is placed"]);
    cluster.kill9("bbs-1");
    let outcomes = run_doctor(&muster, 9, &["--metrics", &at]);
    assert_outcome(&outcomes, "bbs", "failed", &["no BBS is running"]);
    assert_outcome(&outcomes, "cells", "skipped", &["no BBS answers"]);
    assert_outcome(&outcomes, "denials", "failed", &[&at]);
}

/// Returns the command line of a user with another credentials file.
fn with_credentials(users: &Users, user: &str, file: &str) -> Muster {
    let mut variables = users.variables(user);
    for (name, value) in &mut variables {
        if name == "MUSTER_NATS_CREDS" {
            file.clone_into(value);
        }
    }
    Muster::with_all(variables)
}

#[test]
fn rights_check_passes_for_each_role_and_detects_wrong_credentials() {
    let place = TestDir::new();
    let users = Users::init(&place);
    for role in ["client d n", "auditor a"] {
        users.add(role);
    }
    users.muster("bbs-writer").ok("cluster found");
    let _bbs = users.start(&place, "bbs", &["bbs"]);
    let operator = users.muster("operator-ops");
    eventually("a BBS leads", || {
        let row = operator.try_json("cluster show")?;
        ensure(!row["bbs"].is_null(), || row.to_string())
    });
    let roles = sample_roles().into_iter().map(|role| role.default_name());
    let roles = roles.filter(|name| users.folder.join(format!("users/{name}.env")).is_file());
    let roles: Vec<String> = roles.chain(["operator-ops".to_owned()]).collect();
    assert!(roles.len() >= 7, "{roles:?}");
    for name in roles {
        // The exit status is not checked. No auctioneer runs, and roles that may not query the BBS cannot see
        // whether one runs.
        let report = users.muster(&name).run(&["doctor", "-o", "json"]).json();
        let rights =
            report["checks"].as_array().unwrap().iter().find(|check| check["check"] == "rights").unwrap();
        assert_eq!(rights["outcome"], "ok", "{name}: {rights}");
    }
    let row = operator.json("cluster show");
    assert_eq!(row["quarantined_entries"]["count"], 0, "nothing was written: {row}");
    let outcomes = run_doctor(&operator, 9, &[]);
    assert_outcome(&outcomes, "connection", "ok", &["TLS", "as operator ops"]);
    assert_outcome(&outcomes, "auctioneer", "failed", &["nothing is placed"]);

    // The rebuild of tables follows the log. Their verification only reads the log.
    let tables = format!("sqlite:{}", place.path().join("tables.db").display());
    users.muster("projector").ok(&format!("projection rebuild --database {tables}"));
    for name in ["operator-ops", "auditor-a"] {
        let report = users.muster(name).json(&format!("projection verify --database {tables}"));
        assert_eq!(report["same"], true, "{name}: {report}");
    }
    let refused = operator.run(&["projection", "rebuild", "--database", &tables]).expect_status(1);
    assert!(refused.err.contains("operator ops may not follow the log"), "{refused:?}");

    // These credentials belong to another user than the file name states.
    let seed = |user: &str| fs::read_to_string(users.folder.join(format!("users/{user}.nk"))).unwrap();
    let (ours, others) = (seed("operator-ops"), seed("projector"));
    let comments = ours.lines().filter(|line| line.starts_with('#')).collect::<Vec<_>>().join("\n");
    let file = place.write_file("mixed.nk", format!("{comments}\n{}\n", others.lines().last().unwrap()));
    let mixed = with_credentials(&users, "operator-ops", file.to_str().unwrap());
    let outcomes = run_doctor(&mixed, 9, &[]);
    assert_outcome(
        &outcomes,
        "rights",
        "failed",
        &["denies operator ops", "publish to muster.operator.ops.probe", "subscribe to"],
    );
    let file = place.write_file("auditor.nk", seed("auditor-a"));
    let auditor = with_credentials(&users, "operator-ops", file.to_str().unwrap());
    let shown = users.folder.display().to_string();
    users.anonymous().run(&["auth", "revoke", &shown, "auditor-a"]).expect_status(0);
    eventually("the revoked user is rejected", || {
        let said = auditor.run(&["doctor", "-o", "json"]);
        ensure(said.code == 5, || format!("{said:?}"))
    });
    let outcomes = run_doctor(&auditor, 5, &[]);
    assert_outcome(&outcomes, "connection", "failed", &["refused the connection", "authorization"]);
}
