//! Regular work of each role.

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::Stage;
use crate::support::test_dir::ensure;
use crate::support::{Muster, eventually};

/// Checks that a client can create, query and remove a process that runs, and that a task runs.
pub(super) fn assert_client_is_served(stage: &Stage) {
    let mut client = stage.users.plain("client-d-n", "muster.inbox.client.d.n");
    let mut listener = stage.users.plain("client-d-n", "muster.inbox.client.d.n.listener");
    listener.subscribe("muster.feed.lrp.web.desired_desired");
    assert_eq!(listener.errors(), Some(vec![]));
    let mut ask = |subject: &str, question: Value| {
        let answer = client.request_json(subject, &question);
        assert!(answer["ok"].is_object() || answer["ok"].is_array(), "{subject}: {answer}");
        answer["ok"].clone()
    };
    let body = json!({
        "process_guid": "web", "domain": "d", "memory_mb": 8, "monitor": {"run": {"path": "true"}},
        "action": {"run": {"path": "sh", "args": ["-c", "echo here; exec sleep 100000"]}},
    });
    ask("muster.client.d.n.lrp.desire", json!({"body": body}));
    eventually("the instance runs", || {
        let row = ask("muster.query.client.d.n.instance.show", json!({"id": "web/0"}))["row"][0].clone();
        ensure(row["state"] == "RUNNING", || row.to_string())
    });
    assert!(
        ask("muster.query.client.d.n.instance.logs", json!({"id": "web/0"})).to_string().contains("here")
    );
    ask("muster.query.client.d.n.instance.health", json!({"id": "web/0"}));
    ask("muster.query.client.d.n.events.read", json!({"after": 0, "limit": 1}));
    let heard = listener.next().map(|message| message.subject);
    assert_eq!(heard.as_deref(), Some("muster.feed.lrp.web.desired_desired"));
    assert_only_owner_talks_to_program(stage, &mut ask);
    let task = json!({"task_guid": "t", "domain": "d", "memory_mb": 8, "action": {"run": {"path": "true"}}});
    ask("muster.client.d.n.task.desire", json!({"body": task}));
    eventually("the task has run", || {
        let row = ask("muster.query.client.d.n.task.show", json!({"id": "t"}))["row"].clone();
        ensure(row["state"] == "COMPLETED" && row["failed"] == false, || row.to_string())
    });
    ask("muster.client.d.n.lrp.remove", json!({"body": {"process_guid": "web"}}));
    eventually("the instance is gone", || {
        let page = ask("muster.query.client.d.n.instance.list", json!({}));
        ensure(page["rows"] == json!([]), || page.to_string())
    });
    assert_identity_comes_from_credentials(stage);
}

/// Exchanges messages with a program in a container, like any NATS client. Another client of the domain is
/// refused, but may run programs of its own.
fn assert_only_owner_talks_to_program(stage: &Stage, ask: &mut impl FnMut(&str, Value) -> Value) {
    let exec = json!({"path": "sh", "args": ["-c", "read line; echo got $line; exit 3"]});
    let body = json!({"process_guid": "web", "index": 0, "exec": exec});
    ask("muster.client.d.n.instance.exec", json!({"envelope": {"request_id": "x1"}, "body": body}));
    let talk = json!({
        "request_id": "x1", "cell_id": "c1", "input": BASE64.encode(b"this\n"), "output_from": 0, "wait_ms": 1000,
    });
    let mut other = stage.users.plain("client-d-other", "muster.inbox.client.d.other");
    let refused = other.request_json("muster.client.d.other.instance.exec-io", &talk);
    assert_eq!(refused["refused"]["code"], "ResourceNotFound", "{refused}");
    let mut client = stage.users.plain("client-d-n", "muster.inbox.client.d.n.talk");
    // The BBS may notify the cell of the program with a delay.
    let told = eventually("the program has exited", || {
        let told = client.request_json("muster.client.d.n.instance.exec-io", &talk);
        ensure(!told["ok"]["end"].is_null(), || told.to_string()).map(|()| told)
    });
    let got = BASE64.encode(b"got this\n");
    assert_eq!(told["ok"]["output"], json!([{"stream": "out", "data": got}]), "{told}");
    assert_eq!(told["ok"]["end"], json!({"exited": 3}), "{told}");
    let said =
        stage.users.muster("client-d-other").run(&["instance", "exec", "-n", "web/0", "--", "echo", "mine"]);
    assert_eq!(said.expect_status(0).out, "mine\n");
}

/// Checks that the command line takes its identity only from its credentials.
fn assert_identity_comes_from_credentials(stage: &Stage) {
    let client = stage.users.muster("client-d-other");
    client.ok("domain refresh d");
    let history = client.json("events list --about domain:d");
    assert!(history.to_string().contains(r#""actor":{"client":{"domain":"d","name":"other"}}"#), "{history}");
    let refused = client.run(&["domain", "refresh", "other"]);
    refused
        .expect_status(1)
        .expect_output(&["no permission to publish on muster.client.other.other.domain.upsert"]);
}

/// Checks that an auditor and an operator read the log, and that a projector copies the log into tables. None
/// of these users writes to the log.
pub(super) fn assert_readers_are_read_only(stage: &Stage) {
    let file = stage.place.path().join("log.jsonl").display().to_string();
    for user in ["auditor-a", "operator-o"] {
        let reader = stage.users.muster(user);
        reader.ok("audit verify").expect_output(&["every decision was legal"]);
        std::fs::remove_file(&file).ok();
        reader.run(&["export", &file]).expect_status(0);
        reader.ok("cell show c1");
        let why = if user == "operator-o" { "has an entry" } else { "no permission to publish" };
        reader.run(&["journal", "quarantine", "1", "--reason", "no"]).expect_status(1).expect_output(&[why]);
        reader.run(&["domain", "refresh", "d"]).expect_status(1).expect_output(&["no permission to publish"]);
    }
    eventually("the tables contain the domain", || {
        let domains = "SELECT domain FROM domains";
        let said = Muster::with("MUSTER_DATABASE", &stage.tables).run(&["sql", domains, "-o", "csv"]);
        ensure(said.out == "domain\nd\n", || format!("{said:?}"))
    });
}

/// Checks that an operator can evacuate a cell, and that the rep of the cell leaves.
pub(super) fn evacuate_cell(stage: &Stage) {
    let operator = stage.users.muster("operator-o");
    operator.ok("cell evacuate c1 --reason maintenance");
    eventually("the cell is absent", || {
        let row = operator.try_json("cell show c1")?;
        ensure(row["state"] == "ABSENT", || row.to_string())
    });
    eventually("the tables contain the absent cell", || {
        let cells = "SELECT state FROM cells";
        let said = Muster::with("MUSTER_DATABASE", &stage.tables).run(&["sql", cells, "-o", "csv"]);
        ensure(said.out == "state\nABSENT\n", || format!("{said:?}"))
    });
}
