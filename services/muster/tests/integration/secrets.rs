//! Secrets: the programs that need them receive them, and no other file contains their plain text.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dev::LocalCluster;
use crate::support::containers::{running_in, signal};
use crate::support::test_dir::ensure;
use crate::support::{Cluster, Muster, TestDir, eventually, http};

/// Common prefix of all secrets in these tests.
const MARKER: &str = "marker-of-the-";
const FIRST: &str = "marker-of-the-first-secret";
const SECOND: &str = "marker-of-the-second-secret";
const THIRD: &str = "marker-of-the-third-secret";

/// SHA-256 of the secrets, printed by the programs that receive them.
const FIRST_SUM: &str = "6116715ed35823d77cb5437ded6f59c6b4cc6e51e6ca92111d11fea8a54c508f";
const SECOND_SUM: &str = "60409a92518b276729fe7ed8795385664d325541fc0d84b32086a45d16eb7e94";
const THIRD_SUM: &str = "cbf5c26ace72910c1abbe3d0b4ff05519b2d15e597548a65369f830bc004c702";

/// Returns a process that prints the sums of two secrets. One secret is in the environment of the container,
/// the other in the environment of its action.
fn web(first: &str, second: &str) -> String {
    format!(
        r#"
process_guid = "web"
domain = "shop"
memory_mb = 8
env = {{ TOKEN = {first}, PLAIN = "plain-text" }}
[action.run]
path = "sh"
args = ["-c", "printf %s \"$TOKEN\" | sha256sum; printf %s \"$OTHER\" | sha256sum; exec sleep 100000"]
env = [{{ name = "OTHER", value = {second} }}]
"#
    )
}

fn secret(text: &str) -> String {
    format!("{{ secret = \"{text}\" }}")
}

/// Collects the files below a folder that contain the marker.
fn find_marker(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        // Entries may disappear between listing and reading, so a missing file is not an error. Only regular
        // files have content.
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            find_marker(&entry.path(), found);
        } else if kind.is_file() {
            match fs::read(entry.path()) {
                Ok(bytes) if bytes.windows(MARKER.len()).any(|bytes| bytes == MARKER.as_bytes()) => {
                    found.push(entry.path().display().to_string());
                }
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    panic!("{}: {error}", entry.path().display())
                }
                Ok(_) | Err(_) => {}
            }
        }
    }
}

#[track_caller]
fn assert_no_marker_in_files(place: &TestDir) {
    let mut found = vec![];
    find_marker(place.path(), &mut found);
    assert_eq!(found, Vec::<String>::new());
}

/// Checks that no query returns a secret.
#[track_caller]
fn assert_no_marker_in_answers(muster: &Muster) {
    let lines = [
        "lrp list",
        "lrp show web",
        "lrp rollout history web",
        "instance list --all",
        "instance show web/0",
        "logs web/0",
        "task list",
        "task list --ended",
        "events list",
        "history lrp web",
        "history task called",
        "why web/0",
        "status",
    ];
    for line in lines {
        for format in ["table", "json"] {
            let said = muster.run(&line.split(' ').chain(["-o", format]).collect::<Vec<_>>());
            assert!(!said.out.contains(MARKER) && !said.err.contains(MARKER), "{said:?}");
        }
    }
}

/// Waits until the only instance of the process runs with secrets that have these sums.
fn runs_with(muster: &Muster, sums: [&str; 2]) -> Value {
    eventually("the process prints the sums of its secrets", || {
        let row = muster.instances("web")?.pop().ok_or("no instance")?;
        ensure(row["state"] == "RUNNING", || row.to_string())?;
        let said = muster.run(&["logs", "web/0"]).out;
        ensure(sums.iter().all(|sum| said.contains(sum)), || said).map(|()| row)
    })
}

/// Returns the active definition in the row of a process.
fn active_definition(row: &Value) -> &Value {
    &row["definitions"][row["definition_id"].as_str().unwrap()]
}

/// Returns the id of the key that sealed the token of the process.
fn token_key(muster: &Muster) -> String {
    let row = muster.json("lrp show web");
    let variables = active_definition(&row)["environment_variables"].as_array().unwrap().clone();
    let token = variables.iter().find(|one| one["name"] == "TOKEN").unwrap_or_else(|| panic!("{row:#}"));
    token["value"]["sealed"]["key"].as_str().unwrap_or_else(|| panic!("{row:#}")).to_owned()
}

#[test]
fn secret_reaches_its_container_only() {
    // Input files have a separate folder, because the test searches the cluster's folder for the marker.
    let (given, place) = (TestDir::new(), TestDir::new());
    let dev = LocalCluster::start(&place, &["--log", "trace"]);
    let muster = &dev.muster;
    given.write_file("second", format!("{SECOND}\n"));
    let file = given.write_file("web.toml", web(&secret(FIRST), "{ secret_file = \"second\" }"));
    let file = file.to_str().unwrap();

    muster.ok(&format!("apply {file}"));
    runs_with(muster, [FIRST_SUM, SECOND_SUM]);
    assert_no_marker_in_files(&place);
    muster.ok(&format!("apply {file}")).expect_output(&["unchanged"]);
    muster.ok(&format!("apply --dry-run {file}"));
    muster.ok(&format!("apply --dry-run {file}"));
    place.print_event("the same file again changes nothing");
    let shown = given.write_file("shown.toml", &muster.ok("lrp show web -o toml").out);
    assert!(fs::read_to_string(&shown).unwrap().contains("[environment_variables.value.sealed]"));
    muster.ok(&format!("apply {}", shown.display())).expect_output(&["unchanged"]);
    muster.exits(2, "lrp list -o toml").expect_output(&["invalid output format toml"]);
    assert_offline_decisions_are_sealed(muster, file);

    let before = runs_with(muster, [FIRST_SUM, SECOND_SUM]);
    let running = running_in(place.path());
    running["web/0"].values().flatten().for_each(|pid| signal(*pid, Signal::KILL));
    eventually("the instance runs again", || {
        let row = runs_with(muster, [FIRST_SUM, SECOND_SUM]);
        ensure(row["instance_guid"] != before["instance_guid"], || row.to_string())
    });

    let key = token_key(muster);
    given.write_file("web.toml", web(&secret(THIRD), "{ secret_file = \"second\" }"));
    let differs = format!("environment_variables[1].value  sealed with key {key} -> another value");
    muster.exits(13, &format!("apply --dry-run {file}")).expect_output(&[&differs]);
    muster.ok(&format!("apply {file}"));
    runs_with(muster, [THIRD_SUM, SECOND_SUM]);
    place.print_event("another secret replaces the instance");

    assert_secret_callbacks_are_called(&place, &given, muster);
    assert_no_marker_in_answers(muster);
    assert_no_marker_in_files(&place);
    assert_sealed_value_is_bound_to_its_place(&given, muster);
    dev.end(&place);
    assert_no_marker_in_files(&place);
}

/// Checks that a command that decides without a BBS seals with the same key. Applying the same file changes
/// nothing.
fn assert_offline_decisions_are_sealed(muster: &Muster, file: &str) {
    let apply = format!("apply {file}");
    muster.run(&["what-if", &apply]).expect_status(0).expect_output(&["nothing would change"]);
    let refused = muster.run(&["what-if", &apply, "--secrets", &format!("{file}.none")]).expect_status(1);
    refused.expect_output(&["cannot read the key file"]);
}

/// Runs tasks with a token in the callback URL. The owners of the first two tasks answer, and the owner of
/// the last task does not exist.
fn assert_secret_callbacks_are_called(place: &TestDir, given: &TestDir, muster: &Muster) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let owner = listener.local_addr().unwrap();
    let task = |name: &str, url: &Value| {
        let spec = json!({"task_guid": name, "domain": "shop", "memory_mb": 1, "completion_callback_url": url,
            "action": {"run": {"path": "true"}}});
        let file = given.write_file(&format!("{name}.json"), spec.to_string());
        muster.ok(&format!("run --detach {}", file.display()));
    };
    task("called", &format!("http://{owner}/done?token={FIRST}").into());
    let (connection, _) = listener.accept().unwrap();
    let call = http::PostRequest::read(&connection).unwrap();
    http::respond(&connection, "200 OK", "").unwrap();
    assert_eq!(call.path, format!("/done?token={FIRST}"));
    task("secret", &json!({"secret": format!("http://{owner}/{SECOND}")}));
    let (connection, _) = listener.accept().unwrap();
    let call = http::PostRequest::read(&connection).unwrap();
    http::respond(&connection, "200 OK", "").unwrap();
    assert_eq!(call.path, format!("/{SECOND}"));
    drop(listener);
    place.print_event("two owners were called");
    task("uncalled", &format!("http://user:{FIRST}@{owner}/").into());
    eventually("the call failed", || {
        let row = muster.try_json("task show uncalled")?;
        let why = row["callback"]["last"]["failed"].as_str().map(str::to_owned);
        let why = why.ok_or_else(|| row.to_string())?;
        ensure(why.contains("sending request") && !why.contains("http"), || why)
    });
}

/// Checks that a sealed value is refused if it is copied into another object or changed.
fn assert_sealed_value_is_bound_to_its_place(given: &TestDir, muster: &Muster) {
    let row = muster.json("lrp show web");
    let sealed = active_definition(&row)["environment_variables"][1]["value"].clone();
    let refused = |guid: &str, name: &str, value: &Value| {
        let spec = json!({"process_guid": guid, "domain": "shop", "action": {"run": {"path": "true"}},
            "env": [{"name": name, "value": value}]});
        let file = given.write_file("thief.json", spec.to_string());
        let said = muster.exits(1, &format!("apply {} -o json", file.display())).refusal();
        assert_eq!(said["code"], "InvalidRequest", "{said}");
        let problem = said["fields"][0]["problem"].as_str().unwrap().to_owned();
        assert_eq!(said["fields"][0]["field"], format!("environment_variables.{name}"), "{said}");
        problem
    };
    assert!(refused("thief", "TOKEN", &sealed).contains("for another place, or is damaged"));
    let mut changed = sealed;
    changed["sealed"]["key"] = "deadbeef".into();
    let unknown = "is sealed with key deadbeef, which this cluster does not have";
    assert_eq!(refused("web", "TOKEN", &changed), unknown);
    changed["sealed"]["data"] = "%".into();
    let spec = json!({"process_guid": "a", "domain": "shop", "action": {"run": {"path": "true"}},
        "env": {"A": changed, "B": {"secret": 1}, "C": {}, "D": {"secrte": FIRST}}});
    let file = given.write_file("bad.json", spec.to_string());
    let said = muster.exits(1, &format!("apply {}", file.display()));
    let said = said.expect_output(&[
        "env.A.sealed.data",
        "env.B.secret: must be text",
        "env.C: must be text, or",
        "secrte",
    ]);
    assert!(!said.err.contains(MARKER), "{said:?}");
    let file = given.write_file("bad.toml", format!("{}\n= 1 {FIRST}", web(&secret(FIRST), &secret(SECOND))));
    let said =
        muster.exits(1, &format!("apply {}", file.display())).expect_output(&["is not valid TOML: line 11"]);
    assert!(!said.err.contains(MARKER), "{said:?}");
}

#[test]
fn keys_are_rotated_and_forgotten() {
    let (given, mut cluster) = (TestDir::new(), Cluster::empty());
    let keys = given.path().join("muster.keys");
    let keys = keys.to_str().unwrap();
    let muster = cluster.muster();
    muster.ok(&format!("secrets init {keys}")).expect_output(&["created ", "with key"]);
    muster.exits(4, &format!("secrets init {keys}")).expect_output(&["already exists"]);
    let old = muster.json(&format!("secrets list {keys}"))[0]["id"].as_str().unwrap().to_owned();
    let loud = ["--log", "trace", "--log-format", "json"];
    let with_keys = [["--secrets", keys].as_slice(), &loud].concat();
    cluster.start_service_with("bbs-1", &with_keys);
    cluster.start_service_with("auctioneer-1", &loud);
    cluster.start_service_with("rep-c1", &with_keys);
    cluster.wait_until_ready(1);

    // This client uses no Muster code. The secrets of its spec are sealed before they are logged.
    let spec = |first: &str| {
        json!({"process_guid": "web", "domain": "shop", "memory_mb": 8,
            "env": [{"name": "TOKEN", "value": {"secret": first}}],
            "action": {"run": {"path": "sh", "args": ["-c", "printf %s \"$TOKEN\" | sha256sum; exec sleep 100000"]}}})
    };
    let mut plain = cluster.plain("ci");
    let desire = json!({"envelope": {"request_id": "r1"}, "body": spec(FIRST)});
    let answer = plain.request_json("muster.client.shop.ci.lrp.desire", &desire);
    assert!(answer["ok"]["position"].is_u64(), "{answer}");
    let again = plain.request_json("muster.client.shop.ci.lrp.desire", &desire);
    assert_eq!(again["ok"]["version"], answer["ok"]["version"], "the same request: {again}");
    let mut other = desire.clone();
    other["body"] = spec(SECOND);
    let refused = plain.request_json("muster.client.shop.ci.lrp.desire", &other);
    assert_eq!(refused["refused"]["code"], "RequestIdReused", "{refused}");
    runs_with(&muster, [FIRST_SUM, FIRST_SUM]);
    assert_eq!(token_key(&muster), old);

    // A client can request the sealing of a spec without a command, but only for its own domain.
    let seal = json!({"body": {"lrp": spec(FIRST)}});
    let sealed = plain.request_json("muster.client.shop.ci.secret.seal", &seal);
    let value = &sealed["ok"]["lrp"]["environment_variables"][0]["value"];
    assert_eq!(value["sealed"]["key"], old, "{sealed}");
    let refused = plain.request_json("muster.client.other.ci.secret.seal", &seal);
    assert_eq!(refused["refused"]["code"], "Forbidden", "{refused}");

    let file = given.write_file("web.json", spec(FIRST).to_string());
    let file = file.to_str().unwrap();
    muster.ok(&format!("apply {file}")).expect_output(&["unchanged"]);
    let loud = muster.run(&["apply", file, "--log", "trace"]).expect_status(0);
    assert!(!loud.err.contains(MARKER) && !loud.out.contains(MARKER), "{loud:?}");
    rotate_key(&cluster, (keys, &old), file);
    for name in ["bbs-1", "auctioneer-1", "rep-c1"] {
        let log = cluster.services[name].log();
        assert!(!log.contains(MARKER), "{name}: {log}");
    }
    assert_log_lines_are_json(&cluster);
    assert_no_marker_in_files(&cluster.place);
}

/// Checks that each log line is a JSON object, and that a line about a decision contains its position and
/// correlation.
fn assert_log_lines_are_json(cluster: &Cluster) {
    let desired = cluster.muster().json("trace r1")[0].clone();
    let (mut about, correlation) = (0, desired["id"].as_str().unwrap());
    let at = desired["position"].to_string();
    for name in ["bbs-1", "auctioneer-1", "rep-c1"] {
        for line in cluster.services[name].log().lines() {
            let said: Value =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{name}: {error}: {line}"));
            for field in ["timestamp", "level", "target", "message"] {
                assert!(said[field].is_string(), "{name}: no {field} in {line}");
            }
            if said["target"] == "muster::log" && said["position"].as_str() == Some(&at) {
                assert_eq!(said["correlation"], correlation, "{line}");
                assert_eq!(said["trace_id"], correlation.replace('-', ""), "{line}");
                assert_eq!((&said["actor"], &said["aggregate"]), (&"client shop/ci".into(), &"web".into()));
                about += 1;
            }
        }
    }
    assert_eq!(about, 1, "one log line is about the desire");
}

fn rotate_key(cluster: &Cluster, (keys, old): (&str, &str), file: &str) {
    let muster = cluster.muster();
    let forget = format!("secrets delete {old} {keys}");
    muster.exits(4, &forget).expect_output(&["it is the sealing key"]);
    let new = muster.json(&format!("secrets rotate {keys}"))["key"].as_str().unwrap().to_owned();
    let seals = |id: &str| {
        let rows = muster.json(&format!("secrets list {keys}"));
        rows.as_array().unwrap().iter().any(|row| row["id"] == id && row["seals"] == true)
    };
    assert!(seals(old) && !seals(&new), "an added key does not seal");
    muster.ok(&format!("apply {file}")).expect_output(&["unchanged"]);
    muster.exits(3, &format!("secrets rotate --seal deadbeef {keys}")).expect_output(&[old, &new]);
    muster.ok(&format!("secrets rotate --seal {new} {keys}")).expect_output(&["now seals"]);
    assert!(seals(&new) && !seals(old));
    cluster.place.print_event("the key is rotated");
    muster.exits(4, &forget).expect_output(&["process web", "1 item could not start again", "--yes"]);
    muster
        .exits(13, &format!("apply --dry-run {file}"))
        .expect_output(&[&format!("sealed with key {old} -> sealed with key {new}")]);
    let before = muster.json("lrp show web")["definition_id"].as_str().unwrap().to_owned();
    muster.ok(&format!("apply {file}"));
    runs_with(&muster, [FIRST_SUM, FIRST_SUM]);
    assert_eq!(token_key(&muster), new);
    muster.exits(4, &forget).expect_output(&["process web", "1 item could not start again", "--yes"]);
    muster.ok(&format!("{forget} --yes")).expect_output(&["deleted key"]);
    muster.exits(3, &forget).expect_output(&[&new]);
    runs_with(&muster, [FIRST_SUM, FIRST_SUM]);

    let log = cluster.entries().len();
    muster.ok(&format!("lrp activate web {before} --detach"));
    let why = format!("the secret TOKEN is sealed with key {old}, which this cell does not have");
    eventually("the new instance reports why it does not start", || {
        let history = muster.try_json("history lrp web")?.to_string();
        ensure(history.contains(&why), || history)
    });
    // The log is complete, and still contains values that the old key sealed.
    assert!(cluster.entries().len() > log);
    assert!(cluster.entries().iter().any(|entry| entry.to_string().contains(old)));
}

#[test]
fn secrets_without_key_are_refused_with_advice() {
    let (given, cluster) = (TestDir::new(), Cluster::start(&["bbs-1", "auctioneer-1"]));
    let muster = cluster.muster();
    let advice = "environment_variables.TOKEN: is a secret, but no key is configured to seal it";
    let file = given.write_file("web.toml", web(&secret(FIRST), &secret(SECOND)));
    for verb in ["apply", "apply --dry-run"] {
        let said = muster.exits(1, &format!("{verb} {}", file.display()));
        let said = said.expect_output(&[advice, "muster secrets init FILE", "--secrets FILE"]);
        assert!(!said.err.contains(MARKER), "{said:?}");
    }
    let url = json!({"task_guid": "t", "domain": "shop", "action": {"run": {"path": "true"}},
        "completion_callback_url": format!("https://owner/?access_token={FIRST}")});
    let file = given.write_file("t.json", url.to_string());
    let said = muster.exits(1, &format!("run --detach {}", file.display()));
    said.expect_output(&["completion_callback_url: is a secret, but no key is configured"]);
    let file = given.write_file("web.toml", web(&secret(FIRST), &secret(SECOND)));
    let said = muster
        .run(&["what-if", &format!("apply {}", file.display())])
        .expect_status(1)
        .expect_output(&[advice]);
    assert!(!said.err.contains(MARKER), "{said:?}");
    assert_no_marker_in_files(&cluster.place);

    let open = given.write_file("open.keys", "");
    let service = muster.exits(1, &format!("bbs --secrets {}", open.display()));
    service.expect_output(&["is accessible to other users", "chmod 600"]);
}
