//! Many who ask at once, pages of several BBSs, and owners of tasks that never answer.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use schemas::limits::{CALLBACKS_IN_FLIGHT, COMMANDS_IN_FLIGHT, LONG_POLLS, QUERIES_IN_FLIGHT};
use serde_json::{Value, json};

use crate::support::place::so;
use crate::support::plain::Plain;
use crate::support::{Cluster, eventually};

/// Services of which no cell is needed, as soon as somebody leads.
fn led(names: &[&str]) -> Cluster {
    let mut cluster = Cluster::empty();
    names.iter().for_each(|name| cluster.add(name));
    eventually("somebody leads", || {
        let row = cluster.muster().try_json("cluster show")?;
        let led = !row["bbs"].is_null()
            && (names.len() < 2 || !names[1].starts_with("auc") || !row["auctioneer"].is_null());
        so(led, || row.to_string())
    });
    cluster
}

fn desire(plain: &mut Plain, guid: &str, instances: u32) {
    let body = json!({
        "process_guid": guid, "domain": "shop", "instances": instances, "memory_mb": 1,
        "action": {"run": {"path": "true"}},
    });
    let answer = plain.ask_json("muster.client.shop.me.lrp.desire", &json!({"body": body}));
    assert!(answer["ok"].is_object(), "{answer}");
}

/// All pages of a list, each asked of whichever BBS gets it; the rows by their names, and how many BBSs answered.
fn pages(plain: &mut Plain, list: &str, filter: &Value, name: fn(&Value) -> String) -> Vec<String> {
    let (mut names, mut position, mut cursor) = (vec![], Value::Null, Value::Null);
    loop {
        let mut asked = filter.clone();
        asked["cursor"] = cursor.clone();
        let answer = plain.ask_json(&format!("muster.query.client.shop.me.{list}"), &asked);
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
fn pages_are_of_one_position_whichever_bbs_is_asked() {
    let mut cluster = led(&["bbs-1", "bbs-2", "bbs-3"]);
    let mut plain = cluster.plain("me");
    let guids: BTreeSet<String> = (0..40).map(|number| format!("p{number:02}")).collect();
    guids.iter().for_each(|guid| desire(&mut plain, guid, 0));
    desire(&mut plain, "web", 3);
    desire(&mut plain, "web-2", 2);

    // Changes go on: every one makes a new position.
    let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (mut changer, stopped, counted) = (cluster.plain("changer"), Arc::clone(&stop), Arc::clone(&made));
    let changes = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            let body = json!({"body": {"process_guid": "p00", "annotation": number.to_string()}});
            changer.ask_json("muster.client.shop.changer.lrp.update", &body);
        }
    });
    let guid = |row: &Value| row["process_guid"].as_str().unwrap().to_owned();
    let mut all = guids;
    all.extend(["web".to_owned(), "web-2".to_owned()]);
    let mut rounds = 0;
    while rounds < 5 || made.load(Ordering::Relaxed) < 10 {
        rounds += 1;
        let listed = pages(&mut plain, "lrp.list", &json!({"limit": 3}), guid);
        assert_eq!((listed.len(), listed.iter().cloned().collect::<BTreeSet<_>>()), (42, all.clone()));
    }
    let index = |row: &Value| format!("{}/{}", row["process_guid"].as_str().unwrap(), row["index"]);
    let mut listed = pages(&mut plain, "instance.list", &json!({"limit": 1}), index);
    listed.sort();
    assert_eq!(listed, ["web-2/0", "web-2/1", "web/0", "web/1", "web/2"]);
    let id = |row: &Value| row["evaluation"]["id"].as_str().unwrap().to_owned();
    let mut evaluations = pages(&mut plain, "evaluation.list", &json!({"limit": 1}), id);
    let whole = plain.ask_json("muster.query.client.shop.me.evaluation.list", &json!({}));
    let mut expected: Vec<String> = whole["ok"]["rows"].as_array().unwrap().iter().map(id).collect();
    evaluations.sort();
    expected.sort();
    assert!(expected.len() >= 2);
    assert_eq!(evaluations, expected);
    stop.store(true, Ordering::Relaxed);
    changes.join().unwrap();

    // What is no cursor is refused with its value; one whose holder is gone has expired.
    let refused = plain.ask_json("muster.query.client.shop.me.lrp.list", &json!({"cursor": "garbage"}));
    assert_eq!(
        (&refused["refused"]["code"], &refused["refused"]["fields"][0]["field"]),
        (&json!("InvalidRequest"), &json!("cursor"))
    );
    let first = plain.ask_json("muster.query.client.shop.me.lrp.list", &json!({"limit": 1}));
    let cursor = first["ok"]["next"].as_str().unwrap().to_owned();
    let (holder, _) = cursor.split_once('/').unwrap();
    let found = cluster.services.iter().find(|(_, service)| {
        service.said().contains(holder) && service.said().contains(&format!("id={holder}"))
    });
    let name = found.map(|(name, _)| name.clone()).unwrap();
    cluster.kill9(&name);
    eventually("the page has expired", || {
        let asked = json!({"limit": 1, "cursor": cursor}).to_string();
        let answer = plain.ask_within(
            Duration::from_secs(2),
            "muster.query.client.shop.me.lrp.list",
            asked.as_bytes(),
        );
        let answer = answer.map(|answer| answer.json()).ok_or("nobody answered")?;
        so(answer["refused"]["code"] == "Expired", || answer.to_string())
    });
}

/// Asks many times at once, and counts the answers by code; `ok` is one.
fn at_once(
    plain: &mut Plain,
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
            plain.next().unwrap_or_else(|| panic!("{subject}: only {number} of {many} are answered"));
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
fn who_floods_is_refused_and_who_does_not_is_answered() {
    let cluster = led(&["bbs-1"]);
    let inbox = "muster.inbox.client.shop.loud";
    let (mut loud, mut quiet) = (cluster.plain_as("client.shop.loud"), cluster.plain_as("client.shop.me"));
    desire(&mut quiet, "web", 2);
    let of = |counts: &BTreeMap<String, usize>, code: &str| counts.get(code).copied().unwrap_or(0);

    let counts = at_once(
        &mut loud,
        inbox,
        2_000,
        "muster.client.shop.loud.lrp.update",
        |number| json!({"body": {"process_guid": "web", "annotation": number.to_string()}}),
    );
    assert_eq!(of(&counts, "ok") + of(&counts, "Overloaded"), 2_000, "{counts:?}");
    assert!(of(&counts, "ok") >= COMMANDS_IN_FLIGHT && of(&counts, "Overloaded") > 0, "{counts:?}");
    let counts = at_once(
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
        at_once(&mut loud, inbox, 2_000, "muster.query.client.shop.loud.instance.list", |_| json!({}));
    assert_eq!(of(&counts, "ok") + of(&counts, "Overloaded"), 2_000, "{counts:?}");
    assert!(of(&counts, "ok") >= QUERIES_IN_FLIGHT, "{counts:?}");

    // While its long polls wait, somebody else's don't count, and are answered.
    let end = quiet.ask_json("muster.query.client.shop.me.events.read", &json!({"limit": 1}))["ok"]["end"]
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
    let read = quiet.ask_json("muster.query.client.shop.me.events.read", &json!({"limit": 1}));
    assert!(read["ok"]["entries"].is_array(), "{read}");
    let done = quiet.ask_json(
        "muster.client.shop.me.lrp.update",
        &json!({"body": {"process_guid": "web", "instances": 3}}),
    );
    assert!(done["ok"].is_object(), "{done}");
    let waited =
        (0..LONG_POLLS).map(|_| polls.next().unwrap().json()).filter(|answer| answer["ok"].is_object());
    assert_eq!(waited.count(), LONG_POLLS);
}

#[test]
fn an_owner_that_never_answers_holds_no_more_files_than_it_may() {
    let cluster = led(&["bbs-1", "auctioneer-1"]);
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
    // No cell is there, so that each fails at once, and its owner is told.
    for number in 0..CALLBACKS_IN_FLIGHT + 72 {
        let body = json!({
            "task_guid": format!("t{number}"), "domain": "shop", "memory_mb": 1, "completion_callback_url": owner,
            "action": {"run": {"path": "true"}},
        });
        let answer = plain.ask_json("muster.client.shop.me.task.desire", &json!({"body": body}));
        assert!(answer["ok"].is_object(), "{answer}");
    }
    eventually("as many are called as may be", || {
        let called = *called.lock().unwrap();
        so(called >= CALLBACKS_IN_FLIGHT, || called.to_string())
    });
    let (watched, mut most) = (Instant::now(), 0);
    while watched.elapsed() < Duration::from_secs(3) {
        most = most.max(files());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(most <= before + CALLBACKS_IN_FLIGHT + 8, "{before} files before, {most} while calls hang");
    let done = plain.ask_json("muster.client.shop.me.domain.upsert", &json!({"body": {"domain": "shop"}}));
    assert!(done["ok"].is_object(), "{done}");
}
