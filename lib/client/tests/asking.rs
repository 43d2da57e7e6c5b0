//! Tests of a client on a bus whose other side loses, repeats and refuses requests.
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::Bus;
use bytes::Bytes;
use client::{Client, Error, ListFilter, LogSource};
use schemas::definition::DesiredLrpUpdate;
use schemas::names::{CellId, ClientName, ClusterId, Domain, EntryId, ProcessGuid, RequestId};
use schemas::query::{EventsPage, ReadEntry, RecordedEntry};
use schemas::{Code, Entry, Position, Timestamp};
use serde_json::{Value, json};

/// Reaction of the other side to one request.
enum Reaction {
    Answer(Value),
    Refuse(&'static str),
    Ignore,
    Garble,
}

/// Received requests, each with its subject.
type Requests = Arc<Mutex<Vec<(String, Value)>>>;

/// Starts the other side of a bus. The other side reacts to the requests in the order of `does`, and answers
/// no further requests.
fn start_peer(bus: &Bus, does: Vec<Reaction>) -> Requests {
    let asked = Requests::default();
    let (bus, seen) = (bus.clone(), Arc::clone(&asked));
    let mut does = VecDeque::from(does);
    tokio::spawn(async move {
        let mut questions = bus.subscribe("muster.>", None).await.unwrap();
        while let Some(question) = questions.next().await {
            let Some(reply) = question.reply else { continue };
            let read: Value = serde_json::from_slice(&question.payload).unwrap();
            seen.lock().unwrap().push((question.subject, read));
            let answer = match does.pop_front().unwrap_or(Reaction::Ignore) {
                Reaction::Answer(value) => json!({"ok": value}).to_string(),
                Reaction::Refuse(code) => {
                    json!({"refused": {"code": code, "message": "no", "fields": []}}).to_string()
                }
                Reaction::Garble => "{\"ok\":".to_owned(),
                Reaction::Ignore => continue,
            };
            bus.reply(&reply, Bytes::from(answer)).await.unwrap();
        }
    });
    asked
}

async fn client(does: Vec<Reaction>) -> (Client, Requests) {
    let bus = Bus::in_process("muster.inbox.client.shop.ci").unwrap();
    let asked = start_peer(&bus, does);
    tokio::task::yield_now().await;
    (Client::with_bus(bus, Domain::new("shop").unwrap(), ClientName::new("ci").unwrap()).unwrap(), asked)
}

fn guid() -> ProcessGuid {
    ProcessGuid::new("web").unwrap()
}

fn done(position: u64) -> Reaction {
    Reaction::Answer(json!({"position": position, "version": 1}))
}

#[tokio::test(start_paused = true)]
async fn unanswered_command_is_repeated_with_same_request_id() {
    let does =
        vec![Reaction::Ignore, Reaction::Refuse("Unavailable"), Reaction::Refuse("Overloaded"), done(7)];
    let (client, asked) = client(does).await;
    let answer = client.clone().with_reason("because").remove_lrp(guid()).await.unwrap();
    assert_eq!(answer.position, Position(7));
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 4);
    let patience: Vec<u64> =
        asked.iter().map(|(_, question)| question["envelope"]["timeout_ms"].as_u64().unwrap()).collect();
    assert!(patience[0] == 10_000 && patience.is_sorted_by(|earlier, later| earlier > later), "{patience:?}");
    let same = |(subject, mut question): (String, Value)| {
        question["envelope"]["timeout_ms"].take();
        (subject, question)
    };
    let asked: Vec<(String, Value)> = asked.iter().cloned().map(same).collect();
    assert!(asked.iter().all(|question| *question == asked[0]), "{asked:?}");
    let (subject, question) = &asked[0];
    assert_eq!(subject, "muster.client.shop.ci.lrp.remove");
    assert_eq!(question["body"], json!({"process_guid": "web"}));
    assert_eq!(question["envelope"]["reason"], "because");
    assert!(question["envelope"]["request_id"].is_string());
}

#[tokio::test(start_paused = true)]
async fn commands_get_new_request_ids_unless_one_is_set() {
    let (client, asked) = client(vec![done(1), done(2), done(3)]).await;
    let scale = |instances| DesiredLrpUpdate { instances: Some(instances), ..DesiredLrpUpdate::default() };
    client.update_lrp(guid(), scale(5)).await.unwrap();
    client.update_lrp(guid(), scale(3)).await.unwrap();
    let mine = RequestId::new("mine").unwrap();
    let planned = client.clone().with_request_id(mine).expecting_version(9).if_position(Position(41));
    planned.update_lrp(guid(), scale(4)).await.unwrap();
    let asked = asked.lock().unwrap();
    assert_ne!(asked[0].1["envelope"]["request_id"], asked[1].1["envelope"]["request_id"]);
    assert_eq!(asked[2].1["envelope"]["request_id"], "mine");
    assert_eq!(asked[2].1["envelope"]["expect_version"], 9);
    assert_eq!(asked[2].1["envelope"]["if_position"], 41);
}

#[tokio::test(start_paused = true)]
async fn refusal_is_final_and_silence_times_out() {
    let (refused, asked) = client(vec![Reaction::Refuse("ResourceNotFound")]).await;
    let error = refused.remove_lrp(guid()).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::ResourceNotFound));
    assert_eq!(asked.lock().unwrap().len(), 1);

    let (silent, asked) = client(vec![]).await;
    let error = silent.remove_lrp(guid()).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    assert!(asked.lock().unwrap().len() > 2);

    let (garbled, _) = client(vec![Reaction::Garble]).await;
    let error = garbled.remove_lrp(guid()).await.unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");

    let nobody = Bus::in_process("muster.inbox.client.shop.ci").unwrap();
    let name = ClientName::new("ci").unwrap();
    let alone = Client::with_bus(nobody, Domain::new("shop").unwrap(), name).unwrap();
    let error =
        alone.command_cell(&CellId::new("c1").unwrap(), schemas::cell::Command::Evacuate).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn missing_object_is_queried_again_at_the_end_of_the_log() {
    let end = |end: u64| Reaction::Answer(json!({"next": 1, "end": end, "entries": []}));
    let missing = || Reaction::Refuse("ResourceNotFound");
    let (client, asked) = client(vec![missing(), end(7), missing(), missing(), end(7)]).await;
    for _ in 0..2 {
        let error = client.lrp(&guid()).await.unwrap_err();
        assert_eq!(error.code(), Some(Code::ResourceNotFound));
    }
    let asked = asked.lock().unwrap();
    let subjects: Vec<&str> =
        asked.iter().map(|(subject, _)| subject.rsplit_once("query.client.shop.ci.").unwrap().1).collect();
    assert_eq!(subjects, ["lrp.show", "events.read", "lrp.show", "lrp.show", "events.read"]);
    let at_least: Vec<&Value> = [0, 2, 3].map(|at| &asked[at].1["at_least"]).to_vec();
    assert_eq!(at_least, [&json!(null), &json!(7), &json!(7)]);
}

#[tokio::test(start_paused = true)]
async fn list_reads_all_pages_at_or_after_own_writes() {
    let row =
        |name: &str| json!({"domain": name, "fresh": true, "refreshed_at": Timestamp(1), "expires_at": null});
    let page =
        |name: &str, next: Value| Reaction::Answer(json!({"position": 9, "rows": [row(name)], "next": next}));
    let (client, asked) = client(vec![done(8), page("a", json!("a")), page("b", json!(null))]).await;
    client.refresh_domain(Some(Duration::from_secs(60))).await.unwrap();
    let listed = client.domains().await.unwrap();
    let names: Vec<&str> = listed.rows.iter().map(|row| row.domain.as_str()).collect();
    assert_eq!((names, listed.position), (vec!["a", "b"], Position(9)));
    let asked = asked.lock().unwrap();
    assert_eq!(asked[0].1["body"], json!({"domain": "shop", "ttl_ms": 60_000}));
    assert_eq!((&asked[1].1["at_least"], &asked[1].1["cursor"]), (&json!(8), &json!(null)));
    assert_eq!((&asked[2].1["at_least"], &asked[2].1["cursor"]), (&json!(8), &json!("a")));
    assert_eq!(client.seen_position(), Some(Position(9)));
}

#[tokio::test(start_paused = true)]
async fn list_fails_on_repeated_cursor() {
    let page = || Reaction::Answer(json!({"position": 9, "rows": [], "next": "a"}));
    let (client, _) = client(vec![page(), page(), page()]).await;
    let error = client.instances(&ListFilter::process(guid())).await.unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
}

fn entry(position: u64) -> RecordedEntry {
    let id = EntryId(ClusterId("00000000-0000-7000-8000-000000000001".parse().unwrap()).0);
    let entry = ReadEntry::Known(Entry { id, format: 1, decisions: vec![] });
    RecordedEntry { position: Position(position), subject: "muster.event.lrp.0".into(), entry }
}

fn entries(next: u64, end: u64, at: &[u64]) -> Reaction {
    let entries = at.iter().copied().map(entry).collect();
    let page = EventsPage { next: Position(next), end: Position(end), entries };
    Reaction::Answer(serde_json::to_value(page).unwrap())
}

#[tokio::test(start_paused = true)]
async fn events_arrive_once_and_in_order_despite_losses() {
    let (client, asked) = client(vec![
        entries(5, 5, &[4, 5]),
        Reaction::Ignore,
        Reaction::Refuse("Unavailable"),
        entries(5, 5, &[]),
        entries(7, 7, &[5, 6, 7, 7]),
        entries(8, 8, &[8]),
    ])
    .await;
    let mut events = client.events(Position(3)).for_target("lrp:web");
    let mut got = vec![];
    for _ in 0..5 {
        got.push(events.next().await.unwrap().position.0);
    }
    assert_eq!(got, [4, 5, 6, 7, 8]);
    assert_eq!(events.position(), Position(8));
    let asked = asked.lock().unwrap();
    let after: Vec<u64> = asked.iter().map(|(_, read)| read["after"].as_u64().unwrap()).collect();
    assert_eq!(after, [3, 5, 5, 5, 5, 7]);
    assert!(asked.iter().all(|(_, read)| read["target"] == "lrp:web"));
}

#[tokio::test(start_paused = true)]
async fn follower_gives_up_only_with_a_limit() {
    let (client, _) = client(vec![]).await;
    let mut bounded = client.events(Position(0)).give_up_after(Duration::from_secs(10));
    assert!(matches!(bounded.next().await, Err(Error::TimedOut { .. })));
    let mut patient = client.events(Position(0));
    let waited = tokio::time::timeout(Duration::from_secs(600), patient.next()).await;
    assert!(waited.is_err(), "expected to keep waiting");
}

#[tokio::test(start_paused = true)]
async fn history_reads_to_end_of_log() {
    let (client, asked) = client(vec![entries(4, 9, &[2, 4]), entries(9, 9, &[9])]).await;
    let (history, end) = client.history(Position(0), Some("cell:c1")).await.unwrap();
    let positions: Vec<u64> = history.iter().map(|entry| entry.position.0).collect();
    assert_eq!((positions, end), (vec![2, 4, 9], Position(9)));
    assert_eq!(asked.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn followed_log_continues_with_next_container() {
    let (one, two) = ("00000000-0000-7000-8000-000000000001", "00000000-0000-7000-8000-000000000002");
    let logs = |guid: &str, text: &str, next: u64, ended: bool| {
        Reaction::Answer(json!({"instance_guid": guid, "text": text, "next": next, "ended": ended}))
    };
    let (client, asked) = client(vec![
        logs(one, "a\n", 2, false),
        logs(one, "", 2, false),
        logs(one, "b\n", 4, true),
        logs(one, "", 4, true),
        Reaction::Answer(json!({"position": 5, "row": []})),
        logs(two, "skipped", 8, false),
        logs(one, "bye\n", 8, true),
        logs(two, "skipped", 8, false),
        logs(one, "", 8, true),
        logs(two, "c\n", 2, true),
        logs(two, "", 2, true),
        Reaction::Refuse("ResourceNotFound"),
        Reaction::Answer(json!({"next": 1, "end": 5, "entries": []})),
    ])
    .await;
    let mut log = client.logs(LogSource::Instance("web/0".into()), true);
    let mut text = String::new();
    while let Some(piece) = log.next().await.unwrap() {
        text.push_str(&piece.text);
    }
    assert_eq!(text, "a\nb\nbye\nc\n", "output before the crash is not lost");
    let asked = asked.lock().unwrap();
    let from: Vec<Option<u64>> = asked.iter().map(|(_, question)| question["from"].as_u64()).collect();
    let of_each = [0, 2, 2, 4].map(Some).into_iter().chain([None]).chain([4, 4, 8, 8, 0, 2].map(Some));
    assert_eq!(from, of_each.chain([None; 2]).collect::<Vec<_>>());
    let previous = asked.iter().filter(|(_, question)| question["previous"] == true).count();
    assert_eq!(previous, 2);
}

#[tokio::test(start_paused = true)]
async fn log_of_crashed_container_is_read_to_its_end() {
    let logs = |text: &str, ended: bool| {
        let guid = "00000000-0000-7000-8000-000000000001";
        Reaction::Answer(json!({"instance_guid": guid, "text": text, "next": 2, "ended": ended}))
    };
    let (client, asked) = client(vec![logs("a\n", false), logs("", true)]).await;
    let mut log = client.logs(LogSource::Previous("web/0".into()), false);
    assert_eq!(log.next().await.unwrap().unwrap().text, "a\n");
    assert_eq!(log.next().await.unwrap(), None);
    let asked = asked.lock().unwrap();
    assert!(asked.iter().all(|(_, question)| question["previous"] == true), "{asked:?}");
}
