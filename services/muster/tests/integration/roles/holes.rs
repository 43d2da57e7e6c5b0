//! What no permission prevents, and Muster does.

use std::time::Duration;

use schemas::limits::LONG_POLLS;
use serde_json::{Value, json};

use super::Stage;
use crate::support::eventually;
use crate::support::place::so;
use crate::support::plain::Plain;

/// How long is waited for what must not come.
const SILENCE: Duration = Duration::from_millis(300);

/// The server doesn't ask whether who chooses a reply subject may publish there. Whoever is asked would write its own answer
/// into the log.
pub(super) fn no_answer_goes_into_the_log(stage: &Stage) {
    let users = &stage.users;
    let mut client = users.plain("client-d-n", "muster.inbox.client.d.n");
    let mut operator = users.plain("operator-o", "muster.inbox.operator.o");
    let mut rep = users.plain("rep-c1", "muster.inbox.rep.c1.forger");
    let mut auctioneer = users.plain("auctioneer", "muster.inbox.auctioneer.forger");
    let mut bbs = users.plain("bbs", "muster.inbox.bbs.forger");
    for reply in
        ["muster.event.lrp.0", "muster.event.cluster", "muster.event.hijack", "$JS.API.STREAM.DELETE.MUSTER"]
    {
        client.publish("muster.client.d.n.domain.upsert", reply, br#"{"body": {"domain": "d"}}"#);
        client.publish("muster.client.d.n.secret.seal", reply, b"{}");
        client.publish("muster.query.client.d.n.cluster.show", reply, b"{}");
        client.publish("muster.query.client.d.n.events.read", reply, b"{}");
        client.publish("muster.query.client.d.n.nothing.there", reply, b"{}");
        operator.publish("muster.operator.o.cell.cordon", reply, br#"{"body": {"cell_id": "nowhere"}}"#);
        rep.publish("muster.cell.c1.bbs.report", reply, b"{\"reports\":[]}");
        rep.publish("muster.query.rep.c1.cell.records", reply, b"{}");
        // Who is asked here may answer anything once, by the server.
        auctioneer.publish("muster.cell.c1.rep.perform", reply, b"{}");
        for order in ["state", "evacuate", "uncordon", "logs", "health"] {
            bbs.publish(&format!("muster.cell.c1.rep.{order}"), reply, b"{}");
        }
    }
    for plain in [&mut client, &mut operator, &mut rep, &mut auctioneer, &mut bbs] {
        assert_eq!(plain.complaints(), Some(vec![]));
    }
    // Whoever is asked takes one thing after the other: this is answered behind all of that.
    client.ask_json("muster.client.d.n.domain.upsert", &json!({"body": {"domain": "d"}}));
    client.ask_json("muster.query.client.d.n.instance.logs", &json!({"id": "web/0"}));
    std::thread::sleep(SILENCE);
    nothing_was_written(stage);
}

/// Queries in the names of others are refused by the server, and those whose answer would go to another user's inbox are dropped:
/// nobody uses up the budget of somebody else, or has the BBS write to him.
pub(super) fn nobody_asks_in_the_name_of_another(stage: &Stage) {
    let users = &stage.users;
    let mut client = users.plain("client-d-n", "muster.inbox.client.d.n");
    let mut others = [
        users.plain("client-other-n", "muster.inbox.client.other.n"),
        users.plain("operator-o", "muster.inbox.operator.o"),
    ];
    for root in ["client.other.n", "operator.o", "auditor.a", "rep.c1", "auctioneer", "bbs"] {
        let subject = format!("muster.query.{root}.events.read");
        client.try_publish(&subject, b"{}");
        let refused = format!("-ERR 'Permissions Violation for Publish to \"{subject}\"'");
        assert_eq!(client.complaints(), Some(vec![refused]), "{root}");
    }
    let wait = json!({"after": 1_000_000_000_u64, "wait_ms": 30_000}).to_string();
    for number in 0..2 * LONG_POLLS {
        for inbox in ["client.other.n", "operator.o", "rep.c1"] {
            let reply = format!("muster.inbox.{inbox}.forged.{number}");
            client.publish("muster.query.client.d.n.events.read", &reply, wait.as_bytes());
            client.publish("muster.query.client.d.n.lrp.list", &reply, b"{}");
        }
    }
    // What was dropped counts in no budget, not even in its own.
    let read = client.ask_json("muster.query.client.d.n.events.read", &json!({"limit": 1}));
    assert!(read["ok"].is_object(), "{read}");
    for other in &mut others {
        assert!(other.next_within(SILENCE).is_none(), "an answer went to another user's inbox");
    }
    let [_, operator] = &mut others;
    let read = operator.ask_json("muster.query.operator.o.events.read", &json!({"limit": 1}));
    assert!(read["ok"].is_object(), "{read}");
    // Records are for the rep of their cell.
    let mut rep = users.plain("rep-c1", "muster.inbox.rep.c1.forger");
    let of = |cell: &str| json!({"cell_id": cell, "work": [], "at_least": null});
    let refused = rep.ask_json("muster.query.rep.c1.cell.records", &of("c2"));
    assert_eq!(refused["refused"]["code"], "Forbidden", "{refused}");
    let beyond = json!({"cell_id": "c1", "work": [], "at_least": 1_000_000_000_u64});
    let refused = rep.ask_json("muster.query.rep.c1.cell.records", &beyond);
    let message = refused["refused"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("at_least 1000000000 is beyond the end of the log"), "{refused}");
}

/// The log holds entries, each on its subject, and nothing else.
fn nothing_was_written(stage: &Stage) {
    let auditor = stage.users.muster("auditor-a");
    let row = auditor.json("cluster show");
    assert_eq!(row["set_aside"]["count"], 0, "{row}");
    auditor.ok("audit verify").tells(&["every decision was legal"]);
}

/// Has the server deliver all of the log to a subject, as an insider can who may follow it.
fn deliver(insider: &mut Plain, to: &str) -> Value {
    let config = json!({"deliver_subject": to, "deliver_policy": "all", "ack_policy": "none"});
    let question = json!({"stream_name": "MUSTER", "config": config});
    insider.ask_json("$JS.API.CONSUMER.CREATE.MUSTER", &question)
}

/// A consumer delivers wherever who makes it says, also where that one may not publish. What comes so has the subject on which
/// it was stored. Server 2.15 delivers only to who subscribes to exactly that subject, others to patterns as well.
pub(super) fn nobody_believes_what_a_consumer_delivers(stage: &Stage) {
    let mut insider = stage.users.plain("projector", "muster.inbox.projector.insider");
    let orders = "muster.cell.c1.rep.perform";
    insider.try_publish(orders, b"{}");
    assert_eq!(insider.complaints().unwrap().len(), 1);
    let mut literal = stage.users.plain("rep-c1", "muster.inbox.rep.c1.listener");
    literal.subscribe(orders);
    assert_eq!(literal.complaints(), Some(vec![]));
    for subject in [
        orders,
        "muster.client.d.n.lrp.desire",
        "muster.operator.o.cell.evacuate",
        "muster.cell.c1.heartbeat",
    ] {
        let made = deliver(&mut insider, subject);
        // Where the server knows nobody who would hear it, it says so.
        assert!(made["error"].is_null() || subject != orders, "{subject}: {made}");
    }
    let came = literal.next().map(|message| message.subject);
    assert_eq!(came.as_deref(), Some("muster.event.cluster"), "the first entry, on the subject of an order");
    for (user, subject) in [("bbs", "muster.beat.bbs"), ("auctioneer", "muster.beat.auctioneer")] {
        let before = drops(stage, user);
        // Of what it drops few lines are logged in a second, so it is delivered again.
        eventually(&format!("{user} drops what comes on {subject}"), || {
            let made = deliver(&mut insider, subject);
            assert!(made["error"].is_null(), "{subject}: {made}");
            // It ends a minute after the last subscriber is gone, so a revoked key leaves nothing behind.
            assert_eq!(made["config"]["inactive_threshold"], 60_000_000_000_u64, "{made}");
            so(drops(stage, user) > before, || stage.said(user))
        });
    }
    nothing_was_written(stage);
    let mut client = stage.users.plain("client-d-n", "muster.inbox.client.d.n");
    let task =
        json!({"task_guid": "after", "domain": "d", "memory_mb": 8, "action": {"run": {"path": "true"}}});
    let answer = client.ask_json("muster.client.d.n.task.desire", &json!({"body": task}));
    assert!(answer["ok"].is_object(), "{answer}");
    eventually("work goes on", || {
        let row = client.ask_json("muster.query.client.d.n.task.show", &json!({"id": "after"}))["ok"]["row"]
            .clone();
        so(row["state"] == "COMPLETED" && row["failed"] == false, || row.to_string())
    });
}

/// How many messages a service dropped because they were published elsewhere.
fn drops(stage: &Stage, user: &str) -> usize {
    stage.said(user).matches("it was not published here").count()
}

/// Ids that would be other subjects, or several: in subjects, in what is said, and on the command line.
pub(super) fn ids_that_are_none_are_refused(stage: &Stage) {
    let users = &stage.users;
    let mut client = users.plain("client-d-n", "muster.inbox.client.d.n");
    // Within its own root the server lets them through.
    for subject in ["muster.client.d.n.lrp.*", "muster.client.d.n.*.>", "muster.client.d.n.lrp.>"] {
        let answer = client.ask_json(subject, &json!({}));
        assert_eq!(answer["refused"]["code"], "InvalidRequest", "{subject}: {answer}");
    }
    for guid in ["*", ">", "a.b", "a b", "a\tb", "a\r\nPUB muster.event.cluster 2\r\n{}", "", "\u{0}", "a*"] {
        let body =
            json!({"process_guid": guid, "domain": "d", "memory_mb": 8, "action": {"run": {"path": "true"}}});
        let answer = client.ask_json("muster.client.d.n.lrp.desire", &json!({"body": body}));
        assert_eq!(answer["refused"]["code"], "InvalidRequest", "{guid:?}: {answer}");
        let answer = client.ask_json("muster.query.client.d.n.lrp.show", &json!({"id": guid}));
        assert!(answer["ok"].is_null(), "{guid:?}: {answer}");
    }
    client.complaints().unwrap();
    // A space ends the subject, so that what follows would be where the answer goes; a line break ends the command.
    for (line, refused) in [
        ("PUB muster.client.d.n.lrp.desire muster.event.lrp.0 2\r\n{}\r\n", None),
        ("PUB muster.client.d.* 2\r\n{}\r\n", Some("muster.client.d.*")),
        (
            "PUB muster.client.d.n.x 2\r\n{}\r\nPUB muster.event.cluster 2\r\n{}\r\n",
            Some("muster.event.cluster"),
        ),
        ("PUB muster.client.*.n.lrp.desire 2\r\n{}\r\n", Some("muster.client.*.n.lrp.desire")),
        ("PUB muster.client.> 2\r\n{}\r\n", Some("muster.client.>")),
    ] {
        client.raw(line);
        let mut complaints = client.complaints().unwrap();
        // What it says of wildcards whoever may publish there, and lets through all the same.
        complaints.retain(|complaint| complaint != "-ERR 'Invalid Publish Subject'");
        let expected =
            refused.map(|subject| format!("-ERR 'Permissions Violation for Publish to \"{subject}\"'"));
        assert_eq!(complaints, expected.into_iter().collect::<Vec<_>>(), "{line:?}");
    }
    let mut rep = users.plain("rep-c1", "muster.inbox.rep.c1.forger");
    for subject in [
        "muster.cell.*.heartbeat",
        "muster.cell.*.bbs.report",
        "muster.cell.>",
        "muster.cell.c1.c2.heartbeat",
    ] {
        rep.try_publish(subject, b"{}");
        let refused = format!("-ERR 'Permissions Violation for Publish to \"{subject}\"'");
        assert!(rep.complaints().unwrap().contains(&refused), "{subject}");
    }
    let shown = users.folder.display().to_string();
    for role in [
        vec!["rep", "*"],
        vec!["client", "d", "a.b"],
        vec!["client", "d"],
        vec!["operator", "a\nuser"],
        vec!["king"],
    ] {
        let words = [vec!["auth", "add", &shown], role].concat();
        users.nobody().run(&words).exits(2);
    }
    nothing_was_written(stage);
}
