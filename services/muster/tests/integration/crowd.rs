//! Many concurrent requests, pages from several BBSs, and owners of tasks that never answer.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use schemas::limits::{CALLBACKS_IN_FLIGHT, COMMANDS_IN_FLIGHT, LONG_POLLS, QUERIES_IN_FLIGHT};
use serde_json::{Value, json};

use crate::support::plain::PlainClient;
use crate::support::test_dir::ensure;
use crate::support::{Cluster, eventually};

/// Starts services without cells and waits until leaders are elected.
fn start_led(names: &[&str]) -> Cluster {
    let mut cluster = Cluster::empty();
    names.iter().for_each(|name| cluster.start_service(name));
    eventually("leaders are elected", || {
        let row = cluster.muster().try_json("cluster show")?;
        let led = !row["bbs"].is_null()
            && (names.len() < 2 || !names[1].starts_with("auc") || !row["auctioneer"].is_null());
        ensure(led, || row.to_string())
    });
    cluster
}

fn desire(plain: &mut PlainClient, guid: &str, instances: u32) {
    let body = json!({
        "process_guid": guid, "domain": "shop", "instances": instances, "memory_mb": 1,
        "action": {"run": {"path": "true"}},
    });
    let answer = plain.request_json("muster.client.shop.me.lrp.desire", &json!({"body": body}));
    assert!(answer["ok"].is_object(), "{answer}");
}

/// Reads all pages of a list and returns the names of the rows. Each page may come from any BBS. All pages
/// must have the same position.
fn all_pages(plain: &mut PlainClient, list: &str, filter: &Value, name: fn(&Value) -> String) -> Vec<String> {
    let (mut names, mut position, mut cursor) = (vec![], Value::Null, Value::Null);
    loop {
        let mut asked = filter.clone();
        asked["cursor"] = cursor.clone();
        let answer = plain.request_json(&format!("muster.query.client.shop.me.{list}"), &asked);
        let page = &answer["ok"];
        assert!(page.is_object(), "{list} {asked}: {answer}");
        assert!(
            position.is_null() || position == page["position"],
            "{list}: {position} and {}",
            page["position"]
        );
        position = page["position"].clone();
        names.extend(page["rows"].as_array().unwrap().iter().map(name));
        cursor = page["next"].clone();
        if cursor.is_null() {
            return names;
        }
    }
}

#[test]
fn pages_from_several_bbs_have_one_position() {
    let mut cluster = start_led(&["bbs-1", "bbs-2", "bbs-3"]);
    let mut plain = cluster.plain("me");
    let guids: BTreeSet<String> = (0..40).map(|number| format!("p{number:02}")).collect();
    guids.iter().for_each(|guid| desire(&mut plain, guid, 0));
    desire(&mut plain, "web", 3);
    desire(&mut plain, "web-2", 2);

    // Concurrent changes. Each change creates a new position.
    let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (mut changer, stopped, counted) = (cluster.plain("changer"), Arc::clone(&stop), Arc::clone(&made));
    let changes = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            let body = json!({"body": {"process_guid": "p00", "annotation": number.to_string()}});
            changer.request_json("muster.client.shop.changer.lrp.update", &body);
        }
    });
    let guid = |row: &Value| row["process_guid"].as_str().unwrap().to_owned();
    let mut all = guids;
    all.extend(["web".to_owned(), "web-2".to_owned()]);
    let mut rounds = 0;
    while rounds < 5 || made.load(Ordering::Relaxed) < 10 {
        rounds += 1;
        let listed = all_pages(&mut plain, "lrp.list", &json!({"limit": 3}), guid);
        assert_eq!((listed.len(), listed.iter().cloned().collect::<BTreeSet<_>>()), (42, all.clone()));
    }
    let index = |row: &Value| format!("{}/{}", row["process_guid"].as_str().unwrap(), row["index"]);
    let mut listed = all_pages(&mut plain, "instance.list", &json!({"limit": 1}), index);
    listed.sort();
    assert_eq!(listed, ["web-2/0", "web-2/1", "web/0", "web/1", "web/2"]);
    let id = |row: &Value| row["evaluation"]["id"].as_str().unwrap().to_owned();
    let mut evaluations = all_pages(&mut plain, "evaluation.list", &json!({"limit": 1}), id);
    let whole = plain.request_json("muster.query.client.shop.me.evaluation.list", &json!({}));
    let mut expected: Vec<String> = whole["ok"]["rows"].as_array().unwrap().iter().map(id).collect();
    evaluations.sort();
    expected.sort();
    assert!(expected.len() >= 2);
    assert_eq!(evaluations, expected);
    stop.store(true, Ordering::Relaxed);
    changes.join().unwrap();

    // An invalid cursor is refused, and the refusal names the field. A cursor expires with the BBS that holds
    // the cursor's position.
    let refused = plain.request_json("muster.query.client.shop.me.lrp.list", &json!({"cursor": "garbage"}));
    assert_eq!(
        (&refused["refused"]["code"], &refused["refused"]["fields"][0]["field"]),
        (&json!("InvalidRequest"), &json!("cursor"))
    );
    let first = plain.request_json("muster.query.client.shop.me.lrp.list", &json!({"limit": 1}));
    let cursor = first["ok"]["next"].as_str().unwrap().to_owned();
    let (holder, _) = cursor.split_once('/').unwrap();
    let found = cluster.services.iter().find(|(_, service)| {
        service.log().contains(holder) && service.log().contains(&format!("id={holder}"))
    });
    let name = found.map(|(name, _)| name.clone()).unwrap();
    cluster.kill9(&name);
    eventually("the page has expired", || {
        let asked = json!({"limit": 1, "cursor": cursor}).to_string();
        let answer = plain.request_within(
            Duration::from_secs(2),
            "muster.query.client.shop.me.lrp.list",
            asked.as_bytes(),
        );
        let answer = answer.map(|answer| answer.json()).ok_or("no answer")?;
        ensure(answer["refused"]["code"] == "Expired", || answer.to_string())
    });
}

/// Sends many requests at once and counts the answers by refusal code, or `ok`.
fn send_at_once(
    plain: &mut PlainClient,
    inbox: &str,
    many: usize,
    subject: &str,
    payload: impl Fn(usize) -> Value,
) -> BTreeMap<String, usize> {
    for number in 0..many {
        plain.publish(subject, &format!("{inbox}.m{number}"), payload(number).to_string().as_bytes());
    }
    let mut counts = BTreeMap::new();
    for number in 0..many {
        let message =
            plain.next().unwrap_or_else(|| panic!("{subject}: only {number} of {many} were answered"));
        let answer = message.json();
        let code = answer["refused"]["code"].as_str().unwrap_or("ok").to_owned();
        assert!(
            code != "Overloaded" || answer["refused"]["message"].as_str().unwrap().contains("try again"),
            "{answer}"
        );
        *counts.entry(code).or_default() += 1;
    }
    counts
}

#[test]
fn flooding_client_is_refused_and_other_client_is_answered() {
    let cluster = start_led(&["bbs-1"]);
    let inbox = "muster.inbox.client.shop.loud";
    let (mut loud, mut quiet) = (cluster.plain_as("client.shop.loud"), cluster.plain_as("client.shop.me"));
    desire(&mut quiet, "web", 2);
    let of = |counts: &BTreeMap<String, usize>, code: &str| counts.get(code).copied().unwrap_or(0);

    let counts = send_at_once(
        &mut loud,
        inbox,
        2_000,
        "muster.client.shop.loud.lrp.update",
        |number| json!({"body": {"process_guid": "web", "annotation": number.to_string()}}),
    );
    assert_eq!(of(&counts, "ok") + of(&counts, "Overloaded"), 2_000, "{counts:?}");
    assert!(of(&counts, "ok") >= COMMANDS_IN_FLIGHT && of(&counts, "Overloaded") > 0, "{counts:?}");
    let counts = send_at_once(
        &mut loud,
        inbox,
        2_000,
        "muster.operator.loud.cell.forget",
        |_| json!({"body": {"cell_id": "nowhere"}}),
    );
    assert_eq!(of(&counts, "ResourceNotFound") + of(&counts, "Overloaded"), 2_000, "{counts:?}");
    assert!(
        of(&counts, "ResourceNotFound") >= COMMANDS_IN_FLIGHT && of(&counts, "Overloaded") > 0,
        "{counts:?}"
    );
    let counts =
        send_at_once(&mut loud, inbox, 2_000, "muster.query.client.shop.loud.instance.list", |_| json!({}));
    assert_eq!(of(&counts, "ok") + of(&counts, "Overloaded"), 2_000, "{counts:?}");
    assert!(of(&counts, "ok") >= QUERIES_IN_FLIGHT, "{counts:?}");

    // The long polls of one client do not count against another client. The reads of the other client are
    // answered.
    let end =
        quiet.request_json("muster.query.client.shop.me.events.read", &json!({"limit": 1}))["ok"]["end"]
            .as_u64()
            .unwrap();
    let wait = json!({"after": end + 1_000_000, "wait_ms": 3_000});
    let mut polls = cluster.plain_as("client.shop.loud");
    for number in 0..LONG_POLLS + 10 {
        let reply = format!("{inbox}.p{number}");
        polls.publish("muster.query.client.shop.loud.events.read", &reply, wait.to_string().as_bytes());
    }
    let refused = (0..10)
        .map(|_| polls.next().unwrap().json())
        .filter(|answer| answer["refused"]["code"] == "Overloaded");
    assert_eq!(refused.count(), 10);
    let read = quiet.request_json("muster.query.client.shop.me.events.read", &json!({"limit": 1}));
    assert!(read["ok"]["entries"].is_array(), "{read}");
    let done = quiet.request_json(
        "muster.client.shop.me.lrp.update",
        &json!({"body": {"process_guid": "web", "instances": 3}}),
    );
    assert!(done["ok"].is_object(), "{done}");
    let waited =
        (0..LONG_POLLS).map(|_| polls.next().unwrap().json()).filter(|answer| answer["ok"].is_object());
    assert_eq!(waited.count(), LONG_POLLS);
}

#[test]
fn silent_callback_owner_uses_limited_file_descriptors() {
    let cluster = start_led(&["bbs-1", "auctioneer-1"]);
    let mut plain = cluster.plain("me");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let owner = format!("http://{}/done", listener.local_addr().unwrap());
    let called = Arc::new(std::sync::Mutex::new(0));
    let counted = Arc::clone(&called);
    std::thread::spawn(move || {
        let mut held = vec![];
        for call in listener.incoming() {
            let mut call = call.unwrap();
            *counted.lock().unwrap() += 1;
            let reading = call.try_clone().unwrap();
            held.push(reading);
            drop(call.read(&mut [0; 1]));
        }
    });
    let pid = cluster.services["bbs-1"].pid();
    let files = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let before = files();
    // There is no cell, so each task fails at once and Muster sends the callback to the task's owner.
    for number in 0..CALLBACKS_IN_FLIGHT + 72 {
        let body = json!({
            "task_guid": format!("t{number}"), "domain": "shop", "memory_mb": 1, "completion_callback_url": owner,
            "action": {"run": {"path": "true"}},
        });
        let answer = plain.request_json("muster.client.shop.me.task.desire", &json!({"body": body}));
        assert!(answer["ok"].is_object(), "{answer}");
    }
    eventually("the maximum number of callbacks is in flight", || {
        let called = *called.lock().unwrap();
        ensure(called >= CALLBACKS_IN_FLIGHT, || called.to_string())
    });
    let (watched, mut most) = (Instant::now(), 0);
    while watched.elapsed() < Duration::from_secs(3) {
        most = most.max(files());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(most <= before + CALLBACKS_IN_FLIGHT + 8, "{before} open files before, {most} during the calls");
    let done =
        plain.request_json("muster.client.shop.me.domain.upsert", &json!({"body": {"domain": "shop"}}));
    assert!(done["ok"].is_object(), "{done}");
}
