//! Tests with a client that uses only a NATS client and JSON, as the README describes. Also tests a client
//! that forges reply subjects.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::plain::PlainClient;
use crate::support::test_dir::ensure;
use crate::support::{Cluster, eventually};

/// Returns the process of the README's example, with this number of instances.
fn web(instances: u32) -> Value {
    json!({"process_guid": "web", "domain": "shop", "instances": instances, "memory_mb": 64,
        "action": {"run": {"path": "sleep", "args": ["1000"]}}})
}

#[test]
fn plain_client_sends_commands_and_queries() {
    let cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let mut watcher = cluster.plain("watcher");
    watcher.subscribe("muster.event.>");
    let mut plain = cluster.plain("me");

    let desired = plain.request_json("muster.client.shop.me.lrp.desire", &json!({"body": web(2)}));
    let position = desired["ok"]["position"].as_u64().unwrap();
    assert!(position > 0 && desired["ok"]["version"] == 1, "{desired}");
    let again = plain.request_json("muster.client.shop.me.lrp.desire", &json!({"body": web(2)}));
    assert_eq!(again["refused"]["code"], "ResourceExists");
    assert_eq!(again["refused"]["fields"], json!([]));

    // A query with the position of a command as its minimum includes the effect of the command.
    let listed = plain.request_json(
        "muster.query.client.shop.me.instance.list",
        &json!({"process_guid": "web", "at_least": position}),
    );
    assert_eq!(listed["ok"]["rows"].as_array().unwrap().len(), 2, "{listed}");
    assert!(listed["ok"]["position"].as_u64().unwrap() >= position);
    eventually("both instances run", || {
        let listed =
            plain.request_json("muster.query.client.shop.me.instance.list", &json!({"process_guid": "web"}));
        let rows = listed["ok"]["rows"].as_array().unwrap();
        ensure(rows.iter().all(|row| row["state"] == "RUNNING"), || listed.to_string())
    });

    let scale = |request: &str, instances: u32| {
        json!({"envelope": {"request_id": request, "reason": "by hand"},
            "body": {"process_guid": "web", "instances": instances}})
    };
    let first = plain.request_json("muster.client.shop.me.lrp.update", &scale("r-17", 5));
    plain.request_json("muster.client.shop.me.lrp.update", &scale("r-18", 3));
    let again = plain.request_json("muster.client.shop.me.lrp.update", &scale("r-17", 5));
    assert_eq!(again["ok"]["version"], first["ok"]["version"], "{again}");
    // An empty query returns everything.
    let all = plain.request("muster.query.client.shop.me.lrp.list", b"").json();
    assert_eq!(all["ok"]["rows"][0]["instances"], 3, "{all}");
    let conflict =
        json!({"envelope": {"expect_version": 1}, "body": {"process_guid": "web", "instances": 1}});
    let refused = plain.request_json("muster.client.shop.me.lrp.update", &conflict);
    assert_eq!(refused["refused"]["code"], "ResourceConflict");

    for (verb, body) in [
        ("domain.upsert", json!({"domain": "shop", "ttl_ms": 60_000})),
        ("lrp.retire", json!({"process_guid": "web", "index": 0})),
        ("lrp.remove", json!({"process_guid": "web"})),
        ("task.desire", json!({"task_guid": "t", "domain": "shop", "action": {"run": {"path": "true"}}})),
        ("task.cancel", json!({"task_guid": "t"})),
    ] {
        let answer = plain.request_json(&format!("muster.client.shop.me.{verb}"), &json!({"body": body}));
        assert!(answer["ok"]["position"].is_u64(), "{verb}: {answer}");
    }
    assert_reader_and_subscriber_agree(&mut plain, &mut watcher);
}

/// Checks that a subscriber of the log and a reader of the log receive equal entries.
fn assert_reader_and_subscriber_agree(plain: &mut PlainClient, watcher: &mut PlainClient) {
    let question = json!({"after": 0, "limit": 1000, "wait_ms": 1000});
    let page = plain.request_json("muster.query.client.shop.me.events.read", &question);
    let read: Vec<&Value> = page["ok"]["entries"].as_array().unwrap().iter().collect();
    let mut types = BTreeSet::new();
    let first = watcher.next().unwrap().json();
    let at = read.iter().position(|entry| entry["entry"]["known"]["id"] == first["id"]).unwrap();
    let mut told = vec![first];
    while told.len() < read.len() - at {
        let message = watcher.next().unwrap();
        assert!(message.subject.starts_with("muster.event."), "{}", message.subject);
        told.push(message.json());
    }
    for (told, read) in told.iter().zip(&read[at..]) {
        // The checksum covers the stored bytes. It is not part of the entry that a reader receives.
        let mut told = told.clone();
        told.as_object_mut().unwrap().remove("crc32c").expect("a checksum");
        assert_eq!(told, read["entry"]["known"]);
        for event in told["decisions"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|decision| decision["events"].as_array().unwrap())
        {
            let (kind, what) = event.as_object().unwrap().iter().next().unwrap();
            types.insert(format!("{kind}.{}", what.as_object().unwrap().keys().next().unwrap()));
        }
    }
    for kind in ["desired.desired.v1", "actual.claimed.v1", "task.completed.v1", "domain.refreshed.v1"] {
        assert!(types.contains(kind), "{kind}: {types:?}");
    }
    let about = json!({"after": 0, "target": "task:t"});
    let page = plain.request_json("muster.query.client.shop.me.events.read", &about);
    assert!(page["ok"]["entries"].as_array().unwrap().len() >= 2, "{page}");
}

#[test]
fn request_with_forged_reply_subject_is_ignored() {
    let cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let mut forger = cluster.plain("forger");
    let end = |plain: &mut PlainClient| {
        plain.request("muster.query.client.shop.me.events.read", b"").json()["ok"]["end"].clone()
    };
    let before = end(&mut forger);
    let mut watcher = cluster.plain("watcher");
    watcher.subscribe("muster.event.>");
    // The watcher subscribes only to inboxes that a client could forge. Services receive answers in other
    // inboxes, which are not watched.
    for inbox in ["muster.inbox", "muster.inbox.*.x", "muster.inbox.rep.*.x", "muster.inbox.client.>"] {
        watcher.subscribe(inbox);
    }
    watcher.subscribe("elsewhere.>");
    // The answer shows that the server has processed the subscriptions.
    end(&mut watcher);

    let desire = json!({"body": web(1)}).to_string();
    let asked: [(&str, &str); 9] = [
        ("muster.client.shop.me.lrp.desire", &desire),
        ("muster.client.shop.me.lrp.remove", "{"),
        ("muster.operator.me.cell.evacuate", "{\"body\":{\"cell_id\":\"c1\"}}"),
        ("muster.cell.c1.bbs.report", "{\"reports\":[]}"),
        ("muster.auctioneer.bbs.lead", "{\"id\":\"forger\",\"term\":99}"),
        ("muster.auctioneer.bbs.outcome", "{}"),
        ("muster.query.client.shop.me.lrp.list", "{}"),
        ("muster.query.client.shop.me.events.read", "{}"),
        ("muster.cell.c1.rep.state", "{\"term\":0}"),
    ];
    let forged = [
        "muster.event.lrp.0",
        "muster.event.cluster",
        "$JS.API.STREAM.DELETE.MUSTER",
        "elsewhere.x",
        "muster.inboxes.x",
        "muster.inbox",
        "muster.client.shop.me.lrp.desire",
    ];
    for (subject, body) in asked {
        for reply in forged {
            forger.publish(subject, reply, body.as_bytes());
        }
        // Without a reply subject, the result could not be reported.
        forger.publish(subject, "", body.as_bytes());
    }
    // The role of this inbox differs from the role of the sender.
    forger.publish("muster.cell.c1.bbs.report", "muster.inbox.rep.c2.x", b"{\"reports\":[]}");
    forger.publish("muster.auctioneer.bbs.lead", "muster.inbox.rep.c1.x", b"{\"id\":\"forger\",\"term\":99}");
    forger.publish("muster.cell.c1.rep.evacuate", "muster.inbox.client.shop.me.x", b"{\"term\":99}");
    forger.publish("muster.client.shop.me.lrp.desire", "muster.inbox.bbs.x", desire.as_bytes());
    watcher.expect_silence();

    assert_eq!(end(&mut forger), before, "nothing is stored");
    cluster.muster().exits(3, "lrp show web");
    assert_eq!(cluster.muster().json("cell show c1")["state"], "PRESENT");
    let answer = forger.request_json("muster.client.shop.me.lrp.desire", &json!({"body": web(1)}));
    assert!(answer["ok"]["position"].is_u64(), "{answer}");
}
