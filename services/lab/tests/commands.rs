//! The commands of `muster-lab`, run as a user does, on the log of a simulated cluster.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use journal::{Append, Journal, Sqlite};
use scenario::{MASS_LOSS_WAIT, Message, Recording};
use schemas::Timestamp;
use schemas::definition::DesiredLrp;
use schemas::subject::{Position, Subject};
use secrets::{Key, Ring};
use serde_json::{Value, json};
use simulation::cluster::Cluster;
use simulation::plan::Plan;
use simulation::shape::START;

/// Writes the first minute of a simulated cluster as the journal of a data folder. Returns the last position,
/// and a replicated process.
async fn record(folder: &Path) -> (Position, DesiredLrp) {
    let mut cluster = Cluster::new(&Plan::calm(0));
    cluster.until(START + Duration::from_secs(60));
    let journal = Journal::Sqlite(Sqlite::open(folder).await.expect("the journal opens"));
    let mut last: BTreeMap<Subject, Position> = BTreeMap::new();
    let mut messages = vec![];
    for position in (1..=cluster.journal.end().0).map(Position) {
        let stored = cluster.journal.get(position).expect("the entry exists");
        let expected = last.insert(stored.subject.clone(), position).unwrap_or_default();
        let (subject, entry, bytes) =
            (stored.subject.clone(), stored.entry.expect("an id"), stored.bytes.clone());
        let message = Message { subject: subject.to_string(), entry: Some(entry), bytes: bytes.clone() };
        messages.push(message);
        let append = Append { subject, expected, entry, bytes };
        assert_eq!(journal.append(append).await.expect("the entry is stored"), position);
    }
    journal.close().await;
    let recording = Recording::read(messages, None, MASS_LOSS_WAIT).expect("the log is complete");
    let lrp = recording.world().processes_from(None).find_map(|process| {
        let desired = process.desired.as_ref().filter(|desired| desired.cells.is_none())?;
        desired.project(&process.guid, &process.domain)
    });
    (cluster.journal.end(), lrp.expect("a process is desired"))
}

/// Output of a run.
struct Ran {
    status: i32,
    out: String,
    errors: String,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    fn text(&self) -> String {
        format!("exit status {}\n{}{}", self.status, self.out, self.errors)
    }

    fn expect(self, status: i32, parts: &[&str]) -> Self {
        let text = self.text();
        assert_eq!(self.status, status, "{text}");
        for part in parts {
            assert!(text.contains(part), "{part}: {text}");
        }
        self
    }
}

fn lab(data: &Path, words: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_muster-lab"))
        .args(words)
        .arg("--data")
        .arg(data)
        .env_remove("MUSTER_NATS_URL")
        .output()
        .expect("the program starts");
    Ran {
        status: output.status.code().expect("the program exits"),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        errors: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

#[tokio::test]
async fn single_decisions_are_printed_as_json() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let (end, lrp) = record(data).await;
    let process = &lrp.process_guid;
    let decided = lab(data, &["decide", &format!("delete {process}")]).expect(0, &[]).json();
    assert_eq!((&decided["outcome"], &decided["position"]), (&json!("decided"), &json!(end)), "{decided:#}");
    let events = decided["entries"][0]["entry"]["decisions"][0]["events"].to_string();
    assert!(events.contains("removed.v1"), "{decided:#}");
    let same = format!("scale {process}={}", lrp.instances);
    let same = lab(data, &["decide", &same]).expect(0, &[]).json();
    assert_eq!(same["outcome"], "unchanged", "{same:#}");
    let refused = lab(data, &["decide", "delete nobody"]).expect(3, &[]).json();
    assert_eq!(refused["refusal"]["code"], "ResourceNotFound");
    lab(data, &["decide", "lose cell c1"])
        .expect(2, &["`lose cell` is no command", "what can be decided is evacuate,"]);
    lab(data, &["decide", &format!("delete {process}"), "--as-of", "1"]).expect(3, &["ResourceNotFound"]);
    lab(data, &["decide", "delete nobody", "-o", "csv"]).expect(2, &["invalid output format csv"]);

    // If one of several items is refused, the result also contains the decisions before the refusal.
    let item = |guid: &str, domain: &str| {
        format!("[[lrp]]\nprocess_guid = \"{guid}\"\ndomain = \"{domain}\"\naction.run.path = \"true\"\n")
    };
    let file = data.join("both.toml");
    let both = [item("other", lrp.domain.as_str()), item(process.as_str(), "elsewhere")].concat();
    std::fs::write(&file, both).expect("the file is written");
    let refused = lab(data, &["decide", &format!("apply {}", file.display())]).json();
    assert_eq!(refused["outcome"], "refused", "{refused:#}");
    assert_eq!(refused["entries"].as_array().map(Vec::len), Some(1), "{refused:#}");

    let journal = Journal::Sqlite(Sqlite::open(data).await.expect("the journal opens"));
    assert_eq!(journal.end().await.expect("the journal is readable"), end, "nothing was written");
}

#[test]
fn messages_of_clients_are_decided() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let message = json!({"body": {"process_guid": "api", "domain": "shop", "instances": 2,
        "action": {"run": {"path": "true"}}}});
    let file = data.join("message.json");
    let write = |text: String| std::fs::write(&file, text).expect("the file is written");
    let path = file.display().to_string();
    let ask = |verb: &str, options: &[&str]| {
        let words = ["decide", "--command", verb, "--file", &path, "--empty", "--domain", "shop"];
        lab(data, &[&words, options].concat())
    };
    write(message.to_string());
    let decided = ask("lrp.desire", &[]).expect(0, &[]).json();
    assert_eq!((&decided["outcome"], &decided["position"]), (&json!("decided"), &json!(0)), "{decided:#}");
    ask("lrp.dance", &[]).expect(1, &["lrp.dance"]);

    let mut secret = message.clone();
    secret["body"]["env"] = json!({"TOKEN": {"secret": "hunter2"}});
    write(secret.to_string());
    let keys = data.join("muster.keys");
    Ring::from_key(Key::new([7; 32], Timestamp(1))).create(&keys).expect("the key file is created");
    let keys = keys.display().to_string();
    let sealed = ask("lrp.desire", &["--secrets", &keys]).expect(0, &["\"decided\"", "\"sealed\""]);
    assert!(!sealed.text().contains("hunter2"), "{}", sealed.text());
    ask("lrp.desire", &["--secrets", &format!("{keys}.none")]).expect(1, &["cannot read the key file"]);

    write(message.to_string().replace('2', "\"two\""));
    ask("lrp.desire", &[]).expect(1, &["instances: "]);
}

#[test]
fn actions_of_a_rep_are_printed_as_json() {
    let folder = tempfile::tempdir().expect("a folder");
    let case = folder.path().join("case.json");
    let write = |text: &str| std::fs::write(&case, text).expect("the file is written");
    write(r#"{"container": "running", "lrp": "claimed_self"}"#);
    let path = case.display().to_string();
    let row = lab(folder.path(), &["reconcile", &path]).expect(0, &[]).json();
    assert_eq!(
        (&row["row"], &row["steps"][0]["step"]),
        (&json!("RUNNING container, CLAIMED α"), &json!("start"))
    );
    write(r#"[{"container": "runing", "lrp": "crashed"}]"#);
    lab(folder.path(), &["reconcile", &path, "--domain", "shop"])
        .expect(2, &["--domain shop is not used by this command"]);
    lab(folder.path(), &["reconcile", &path])
        .expect(1, &["[0].container: is \"runing\": expected none, reserved"]);
}

#[test]
fn simulations_are_repeatable() {
    let folder = tempfile::tempdir().expect("a folder");
    let run =
        || lab(folder.path(), &["simulate", "--seed", "7", "--last", "50", "-o", "jsonl"]).expect(0, &[]);
    assert_eq!(run().out, run().out);
    let story = lab(folder.path(), &["simulate", "--seed", "7", "--print"]).expect(0, &[]).out;
    std::fs::write(folder.path().join("story.txt"), story).expect("the file is written");
    let path = folder.path().join("story.txt").display().to_string();
    lab(folder.path(), &["simulate", &path, "--last", "3"]).expect(0, &[]);
}

#[test]
fn update_under_load_fails_no_request() {
    let folder = tempfile::tempdir().expect("a folder");
    // A router learns of a stop within half a second, even on a loaded machine.
    let options = ["--drain", "500", "--rate", "5", "--cells", "5"];
    let measured = lab(folder.path(), &[&["bench", "--rolling", "--json"], &options[..]].concat());
    let figures = measured.expect(0, &[]).json();
    let real = &figures["real"];
    assert_eq!(real["failed_requests"], 0, "{figures}");
    assert!(real["requests"].as_u64().is_some_and(|requests| requests > 500), "{figures}");
    assert_eq!((&real["instances"], &figures["in_memory"]["instances"]), (&20.into(), &1_000.into()));
}

#[test]
fn lagging_router_is_reported_as_failed_requests() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = ["--drain", "0", "--lag", "1000", "--rate", "20", "--cells", "5"];
    let measured = lab(folder.path(), &[&["bench", "--rolling"], &options[..]].concat());
    measured.expect(1, &["failed: index 0 of web: ", " requests failed"]);
}
