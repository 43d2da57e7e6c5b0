//! Documentation for clients, executed: the worked example in Python, and the commands of the `nats` CLI.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::support::plain::PlainClient;
use crate::support::{Cluster, program};

/// Version of the Python package `nats-py` for the example.
const NATS_PY: &str = "2.16.0";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the folder with `nats-py`, which is installed once into the target folder of this build.
fn nats_py() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_muster"));
    let target = program.ancestors().find(|folder| folder.join(".rustc_info.json").is_file()).unwrap();
    let folder = target.join("nats-py");
    fs::create_dir_all(&folder).unwrap();
    // Tests run concurrently. One test installs the package, and the other tests wait.
    let lock = OpenOptions::new().write(true).create(true).truncate(false).open(folder.join("install.lock"));
    let held = lock.unwrap();
    held.lock().unwrap();
    if !folder.join(format!("nats_py-{NATS_PY}.dist-info")).is_dir() {
        let output = Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target"])
            .arg(&folder)
            .arg(format!("nats-py=={NATS_PY}"))
            .output();
        let output =
            output.unwrap_or_else(|error| panic!("can't run python3: {error}; install Python 3 with pip"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "pip can't install nats-py {NATS_PY} into {}: {said}",
            folder.display()
        );
    }
    folder
}

#[test]
fn python_example_runs() {
    let folder = nats_py();
    let cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let mut python = Command::new("python3");
    python
        .arg(root().join("examples/client.py"))
        .env("PYTHONPATH", &folder)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    python.env("MUSTER_NATS_URL", cluster.server.url());
    let said = program::end(python, "examples/client.py".into()).expect_status(0);
    for line in ["3 instances run", "refused: RequestIdReused", "the task's result is 42", "nothing is left"]
    {
        assert!(said.out.contains(line), "{line}: {said:?}");
    }
    cluster.wait_until_settled(&[("py-web", 0)]);
}

/// `nats req` command of a document.
struct Request {
    subject: String,
    payload: String,
    /// `ok`, or the refusal code.
    answer: String,
}

/// Returns the `nats req` commands in the shell blocks of a document. Each command has a subject and a
/// payload in single quotes. A comment at the end of the line contains the expected answer.
fn requests(document: &str) -> Vec<Request> {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let blocks = text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let commands = blocks.flat_map(|block| block.split("nats req ").skip(1));
    let read = |command: &str| {
        let (subject, rest) = command.split_once(" '").unwrap();
        let (payload, rest) = rest.split_once('\'').unwrap();
        let line = rest.lines().next().unwrap_or_default().trim();
        let answer = if line.is_empty() { "ok" } else { line.trim_start_matches("# ") };
        Request { subject: subject.into(), payload: payload.into(), answer: answer.into() }
    };
    commands.map(read).collect()
}

/// Sends each request and compares the answer.
fn send_all(plain: &mut PlainClient, requests: &[Request]) {
    for Request { subject, payload, answer } in requests {
        let said = plain.request(subject, payload.as_bytes()).json();
        let is = if said.get("ok").is_some() { "ok" } else { said["refused"]["code"].as_str().unwrap() };
        assert_eq!(is, answer, "nats req {subject} '{payload}': {said}");
    }
}

#[test]
fn readme_commands_return_documented_answers() {
    let requests = requests("README.md");
    assert!(requests.len() >= 4, "README.md has too few `nats req` commands");
    let cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    send_all(&mut cluster.plain("me"), &requests);
}

#[test]
fn clients_page_commands_return_documented_answers() {
    let requests = requests("docs/reference/nats-api.md");
    assert!(requests.len() >= 30, "docs/reference/nats-api.md has too few `nats req` commands");
    let cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let mut plain = cluster.plain_as("client.shop.me");
    send_all(&mut plain, &requests);
    lists_accept_documented_filters(&mut plain);
    cursors_behave_as_documented(&mut plain);
}

/// Checks that each list accepts the fields that its row of the table names, and refuses other fields.
fn lists_accept_documented_filters(plain: &mut PlainClient) {
    let text = fs::read_to_string(root().join("docs/reference/queries.md")).unwrap();
    let rows: Vec<&str> = text.lines().filter(|line| line.contains("| [Filter](#filter): ")).collect();
    assert_eq!(rows.len(), 12, "{rows:#?}");
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let query = cells[1].trim_matches('`');
        let named: BTreeSet<&str> = cells[2].split('`').skip(1).step_by(2).collect();
        let mut taken: BTreeSet<&str> =
            named.iter().copied().filter(|name| ["at_least", "as_of"].contains(name)).collect();
        for field in ["domain", "process_guid", "cell_id", "index", "all", "definitions"] {
            let asked = match field {
                "all" | "definitions" => json!({field: true}),
                // An index is only valid with a process.
                "index" => json!({"index": 0, "process_guid": "none"}),
                _ => json!({field: "none"}),
            };
            if plain.request_json(&format!("muster.query.client.shop.me.{query}"), &asked).get("ok").is_some()
            {
                taken.insert(field);
            }
        }
        assert_eq!(taken, named, "{query}");
    }
}

/// Checks that all pages of a list have the same position while changes go on. A cursor with a position that
/// no BBS holds is refused. A query for a single object does not hold its position.
fn cursors_behave_as_documented(plain: &mut PlainClient) {
    let refresh = |plain: &mut PlainClient, domain: &str| {
        let body = json!({"body": {"domain": domain}});
        let done = plain.request_json(&format!("muster.client.{domain}.me.domain.upsert"), &body);
        done["ok"]["position"].as_u64().unwrap()
    };
    let at_least = refresh(plain, "a1");
    let shown = plain
        .request_json("muster.query.client.shop.me.cluster.show", &json!({"at_least": at_least}))["ok"]
        .clone();
    let at_least = refresh(plain, "a2");
    let list = "muster.query.client.shop.me.domain.list";
    let first = plain.request_json(list, &json!({"limit": 1, "at_least": at_least}))["ok"].clone();
    refresh(plain, "a3");
    let cursor = first["next"].as_str().unwrap();
    let second = plain.request_json(list, &json!({"cursor": cursor}))["ok"].clone();
    assert_eq!(second["position"], first["position"]);
    let domains: Vec<&str> =
        second["rows"].as_array().unwrap().iter().map(|row| row["domain"].as_str().unwrap()).collect();
    assert!(domains.contains(&"a2") && !domains.contains(&"a3"), "{domains:?}");
    let forgotten =
        cursor.replacen(&format!("/{}/", first["position"]), &format!("/{}/", shown["position"]), 1);
    assert_ne!(forgotten, cursor);
    let refused = plain.request_json(list, &json!({"cursor": forgotten}));
    assert_eq!(refused["refused"]["code"], "Expired", "{refused}");
}
