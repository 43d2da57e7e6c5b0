//! Attacks that Muster prevents, although no permission of the server prevents them.

use std::time::Duration;

use schemas::limits::LONG_POLLS;
use serde_json::{Value, json};

use super::Stage;
use crate::support::eventually;
use crate::support::plain::PlainClient;
use crate::support::test_dir::ensure;

/// Waiting time after which a message counts as not sent.
const GRACE: Duration = Duration::from_millis(300);

/// Checks that a forged reply subject does not write to the log. The server does not check whether the
/// requester may publish to its reply subject. The responder's own answer could therefore be written into the
/// log.
pub(super) fn assert_forged_replies_are_not_logged(stage: &Stage) {
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
        // The server allows each responder here one answer on any subject.
        auctioneer.publish("muster.cell.c1.rep.perform", reply, b"{}");
        for order in ["state", "evacuate", "uncordon", "logs", "health"] {
            bbs.publish(&format!("muster.cell.c1.rep.{order}"), reply, b"{}");
        }
    }
    for plain in [&mut client, &mut operator, &mut rep, &mut auctioneer, &mut bbs] {
        assert_eq!(plain.errors(), Some(vec![]));
    }
    // Responders process requests in order, so these answers come after all forged requests.
    client.request_json("muster.client.d.n.domain.upsert", &json!({"body": {"domain": "d"}}));
    client.request_json("muster.query.client.d.n.instance.logs", &json!({"id": "web/0"}));
    std::thread::sleep(GRACE);
    assert_log_is_intact(stage);
}

/// Checks that the server refuses queries in another user's name, and that queries with another user's inbox
/// are dropped. A client can neither use up another user's budget nor make the BBS write to another user.
pub(super) fn assert_no_impersonation(stage: &Stage) {
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
        assert_eq!(client.errors(), Some(vec![refused]), "{root}");
    }
    let wait = json!({"after": 1_000_000_000_u64, "wait_ms": 30_000}).to_string();
    for number in 0..2 * LONG_POLLS {
        for inbox in ["client.other.n", "operator.o", "rep.c1"] {
            let reply = format!("muster.inbox.{inbox}.forged.{number}");
            client.publish("muster.query.client.d.n.events.read", &reply, wait.as_bytes());
            client.publish("muster.query.client.d.n.lrp.list", &reply, b"{}");
        }
    }
    // Dropped queries count against no budget, not even the budget of the sender.
    let read = client.request_json("muster.query.client.d.n.events.read", &json!({"limit": 1}));
    assert!(read["ok"].is_object(), "{read}");
    for other in &mut others {
        assert!(other.next_within(GRACE).is_none(), "an answer went to another user's inbox");
    }
    let [_, operator] = &mut others;
    let read = operator.request_json("muster.query.operator.o.events.read", &json!({"limit": 1}));
    assert!(read["ok"].is_object(), "{read}");
    // Only the rep of a cell may read the cell's records.
    let mut rep = users.plain("rep-c1", "muster.inbox.rep.c1.forger");
    let of = |cell: &str| json!({"cell_id": cell, "work": [], "at_least": null});
    let refused = rep.request_json("muster.query.rep.c1.cell.records", &of("c2"));
    assert_eq!(refused["refused"]["code"], "Forbidden", "{refused}");
    let beyond = json!({"cell_id": "c1", "work": [], "at_least": 1_000_000_000_u64});
    let refused = rep.request_json("muster.query.rep.c1.cell.records", &beyond);
    let message = refused["refused"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("at_least 1000000000 is beyond the end of the log"), "{refused}");
}

/// Checks that the log contains only valid entries, each on its own subject.
fn assert_log_is_intact(stage: &Stage) {
    let auditor = stage.users.muster("auditor-a");
    let row = auditor.json("cluster show");
    assert_eq!(row["quarantined_entries"]["count"], 0, "{row}");
    auditor.ok("audit verify").expect_output(&["every decision was legal"]);
}

/// Makes the server deliver the whole log to a subject, like an insider with permission to follow the log.
fn deliver_log(insider: &mut PlainClient, to: &str) -> Value {
    let config = json!({"deliver_subject": to, "deliver_policy": "all", "ack_policy": "none"});
    let question = json!({"stream_name": "MUSTER", "config": config});
    insider.request_json("$JS.API.CONSUMER.CREATE.MUSTER", &question)
}

/// Checks that services ignore messages that a consumer delivers. A consumer delivers to any subject, even if
/// its creator may not publish to that subject. The messages keep the subject under which they were stored.
/// Server 2.15 delivers only to subscribers of exactly the delivery subject; other versions also deliver to
/// patterns.
pub(super) fn assert_consumer_messages_are_ignored(stage: &Stage) {
    let mut insider = stage.users.plain("projector", "muster.inbox.projector.insider");
    let orders = "muster.cell.c1.rep.perform";
    insider.try_publish(orders, b"{}");
    assert_eq!(insider.errors().unwrap().len(), 1);
    let mut literal = stage.users.plain("rep-c1", "muster.inbox.rep.c1.listener");
    literal.subscribe(orders);
    assert_eq!(literal.errors(), Some(vec![]));
    for subject in [
        orders,
        "muster.client.d.n.lrp.desire",
        "muster.operator.o.cell.evacuate",
        "muster.cell.c1.heartbeat",
    ] {
        let made = deliver_log(&mut insider, subject);
        // The server returns an error if it knows no matching subscriber.
        assert!(made["error"].is_null() || subject != orders, "{subject}: {made}");
    }
    let came = literal.next().map(|message| message.subject);
    assert_eq!(came.as_deref(), Some("muster.event.cluster"), "the first entry, on the subject of an order");
    for (user, subject) in
        [("bbs", "muster.leader-heartbeat.bbs"), ("auctioneer", "muster.leader-heartbeat.auctioneer")]
    {
        let before = dropped_count(stage, user);
        // A service logs only a few dropped messages per second, so the delivery is repeated.
        eventually(&format!("{user} drops messages on {subject}"), || {
            let made = deliver_log(&mut insider, subject);
            assert!(made["error"].is_null(), "{subject}: {made}");
            // The consumer expires a minute after its last subscriber is gone, so a revoked key leaves no
            // consumer behind.
            assert_eq!(made["config"]["inactive_threshold"], 60_000_000_000_u64, "{made}");
            ensure(dropped_count(stage, user) > before, || stage.log(user))
        });
    }
    assert_log_is_intact(stage);
    let mut client = stage.users.plain("client-d-n", "muster.inbox.client.d.n");
    let task =
        json!({"task_guid": "after", "domain": "d", "memory_mb": 8, "action": {"run": {"path": "true"}}});
    let answer = client.request_json("muster.client.d.n.task.desire", &json!({"body": task}));
    assert!(answer["ok"].is_object(), "{answer}");
    eventually("the task has run", || {
        let row =
            client.request_json("muster.query.client.d.n.task.show", &json!({"id": "after"}))["ok"]["row"]
                .clone();
        ensure(row["state"] == "COMPLETED" && row["failed"] == false, || row.to_string())
    });
}

/// Returns the number of messages that a service dropped because they were published on another subject.
fn dropped_count(stage: &Stage, user: &str) -> usize {
    stage.log(user).matches("published on another subject").count()
}

/// Checks that ids are refused if they are other subjects or patterns: in subjects, in bodies, and on the
/// command line.
pub(super) fn assert_invalid_ids_are_refused(stage: &Stage) {
    let users = &stage.users;
    let mut client = users.plain("client-d-n", "muster.inbox.client.d.n");
    // The server accepts these subjects within the client's own root.
    for subject in ["muster.client.d.n.lrp.*", "muster.client.d.n.*.>", "muster.client.d.n.lrp.>"] {
        let answer = client.request_json(subject, &json!({}));
        assert_eq!(answer["refused"]["code"], "InvalidRequest", "{subject}: {answer}");
    }
    for guid in ["*", ">", "a.b", "a b", "a\tb", "a\r\nPUB muster.event.cluster 2\r\n{}", "", "\u{0}", "a*"] {
        let body =
            json!({"process_guid": guid, "domain": "d", "memory_mb": 8, "action": {"run": {"path": "true"}}});
        let answer = client.request_json("muster.client.d.n.lrp.desire", &json!({"body": body}));
        assert_eq!(answer["refused"]["code"], "InvalidRequest", "{guid:?}: {answer}");
        let answer = client.request_json("muster.query.client.d.n.lrp.show", &json!({"id": guid}));
        assert!(answer["ok"].is_null(), "{guid:?}: {answer}");
    }
    client.errors().unwrap();
    // A space ends the subject, and the server reads the rest as the reply subject. A line break ends the
    // command.
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
        client.send_raw(line);
        let mut complaints = client.errors().unwrap();
        // The server sends this error for every wildcard, even if it accepts the message because the client
        // may publish on that subject.
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
        assert!(rep.errors().unwrap().contains(&refused), "{subject}");
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
        users.anonymous().run(&words).expect_status(2);
    }
    assert_log_is_intact(stage);
}
