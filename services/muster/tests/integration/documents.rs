//! What the documents say of clients, done: the worked example in Python, and the commands of the `nats` CLI.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::support::plain::Plain;
use crate::support::{Cluster, program};

/// The version of the Python package `nats-py` that the example is run with.
const NATS_PY: &str = "2.16.0";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder with `nats-py`: installed once, into the target folder of the build that we belong to.
fn nats_py() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_muster"));
    let target = program.ancestors().find(|folder| folder.join(".rustc_info.json").is_file()).unwrap();
    let folder = target.join("nats-py");
    fs::create_dir_all(&folder).unwrap();
    // Tests run side by side: one of them installs, the others wait.
    let lock = OpenOptions::new().write(true).create(true).truncate(false).open(folder.join("install.lock"));
    let held = lock.unwrap();
    held.lock().unwrap();
    if !folder.join(format!("nats_py-{NATS_PY}.dist-info")).is_dir() {
        let output = Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target"])
            .arg(&folder)
            .arg(format!("nats-py=={NATS_PY}"))
            .output();
        let output = output.unwrap_or_else(|error| {
            panic!("python3 doesn't run ({error}): this test needs Python 3 with pip")
        });
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "pip couldn't install nats-py {NATS_PY}, which this test needs, into {}: {said}",
            folder.display()
        );
    }
    folder
}

#[test]
fn the_example_in_python_runs() {
    let folder = nats_py();
    let cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let mut python = Command::new("python3");
    python
        .arg(root().join("examples/client.py"))
        .env("PYTHONPATH", &folder)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    python.env("MUSTER_NATS_URL", cluster.server.url());
    let said = program::end(python, "examples/client.py".into()).exits(0);
    for line in ["3 instances run", "refused: RequestIdReused", "the task's result is 42", "nothing is left"]
    {
        assert!(said.out.contains(line), "{line}: {said:?}");
    }
    cluster.settles(&[("py-web", 0)]);
}

/// A `nats req` of a document.
struct Request {
    subject: String,
    payload: String,
    /// `ok`, or the code with which it is refused.
    answer: String,
}

/// The `nats req` of a document's shell blocks: a subject, a payload in single quotes, and in a comment behind it on
/// the same line what the answer is.
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

/// Sends each request, and compares the answer.
fn ask_all(plain: &mut Plain, requests: &[Request]) {
    for Request { subject, payload, answer } in requests {
        let said = plain.ask(subject, payload.as_bytes()).json();
        let is = if said.get("ok").is_some() { "ok" } else { said["refused"]["code"].as_str().unwrap() };
        assert_eq!(is, answer, "nats req {subject} '{payload}': {said}");
    }
}

#[test]
fn the_commands_of_the_readme_are_answered() {
    let requests = requests("README.md");
    assert!(requests.len() >= 4, "the README has lost its commands");
    let cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    ask_all(&mut cluster.plain("me"), &requests);
}

#[test]
fn what_the_page_for_clients_says_is_so() {
    let requests = requests("docs/clients.md");
    assert!(requests.len() >= 30, "the page has lost its commands");
    let cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let mut plain = cluster.plain_as("client.shop.me");
    ask_all(&mut plain, &requests);
    lists_are_narrowed_as_they_say(&mut plain);
    a_cursor_is_held_as_it_says(&mut plain);
}

/// A list takes the fields that its row of the table names, and refuses the others.
fn lists_are_narrowed_as_they_say(plain: &mut Plain) {
    let text = fs::read_to_string(root().join("docs/clients.md")).unwrap();
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
                // An index is one of a process.
                "index" => json!({"index": 0, "process_guid": "none"}),
                _ => json!({field: "none"}),
            };
            if plain.ask_json(&format!("muster.query.client.shop.me.{query}"), &asked).get("ok").is_some() {
                taken.insert(field);
            }
        }
        assert_eq!(taken, named, "{query}");
    }
}

/// Its pages are of one position, whatever happens meanwhile; one of a position that nobody holds is refused. What
/// shows one thing makes nobody hold its position.
fn a_cursor_is_held_as_it_says(plain: &mut Plain) {
    let refresh = |plain: &mut Plain, domain: &str| {
        let body = json!({"body": {"domain": domain}});
        let done = plain.ask_json(&format!("muster.client.{domain}.me.domain.upsert"), &body);
        done["ok"]["position"].as_u64().unwrap()
    };
    let at_least = refresh(plain, "a1");
    let shown =
        plain.ask_json("muster.query.client.shop.me.cluster.show", &json!({"at_least": at_least}))["ok"]
            .clone();
    let at_least = refresh(plain, "a2");
    let list = "muster.query.client.shop.me.domain.list";
    let first = plain.ask_json(list, &json!({"limit": 1, "at_least": at_least}))["ok"].clone();
    refresh(plain, "a3");
    let cursor = first["next"].as_str().unwrap();
    let second = plain.ask_json(list, &json!({"cursor": cursor}))["ok"].clone();
    assert_eq!(second["position"], first["position"]);
    let domains: Vec<&str> =
        second["rows"].as_array().unwrap().iter().map(|row| row["domain"].as_str().unwrap()).collect();
    assert!(domains.contains(&"a2") && !domains.contains(&"a3"), "{domains:?}");
    let forgotten =
        cursor.replacen(&format!("/{}/", first["position"]), &format!("/{}/", shown["position"]), 1);
    assert_ne!(forgotten, cursor);
    let refused = plain.ask_json(list, &json!({"cursor": forgotten}));
    assert_eq!(refused["refused"]["code"], "Expired", "{refused}");
}
