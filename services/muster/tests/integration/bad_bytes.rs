//! Bytes that are not messages, on every subject: each is refused with a stable code if somebody waits for an answer,
//! and everything goes on.

use schemas::codec::{self, Form};
use schemas::container::{Epoch, WorkKey};
use schemas::isolation::Isolation;
use schemas::limits::MESSAGE_BYTES;
use schemas::message::{
    Alive, Beat, Heartbeat, Lead, Order, Outcomes, Perform, PerformId, PlacementOutcome, Program, RepOrder,
    Report, Reports, Standing, Stop, Work,
};
use schemas::names::{CellId, Domain, InstanceGuid, ServiceId, TaskGuid};
use schemas::query::Records;
use schemas::{Position, Timestamp, spec};
use serde::Serialize;
use serde_json::json;

use crate::dev::sleeper;
use crate::support::place::so;
use crate::support::{Cluster, eventually};

/// A subject, the role that speaks there, a message that is one, and whether somebody answers.
struct Line {
    subject: String,
    role: &'static str,
    messages: Vec<Vec<u8>>,
    answered: bool,
}

impl Line {
    fn json(subject: &str, role: &'static str, message: &serde_json::Value) -> Self {
        Self {
            subject: subject.to_owned(),
            role,
            messages: vec![message.to_string().into_bytes()],
            answered: true,
        }
    }

    /// What services say to each other, in both of its forms.
    fn both(subject: &str, role: &'static str, answered: bool, message: &impl Serialize) -> Self {
        let messages = [Form::Json, Form::Postcard].map(|form| codec::encode(form, message)).to_vec();
        Self { subject: subject.to_owned(), role, messages, answered }
    }
}

/// What a NATS client is that says nothing else.
const ANYBODY: &str = "client.shop.me";

fn lines() -> Vec<Line> {
    let run = json!({"run": {"path": "true"}});
    let client = [
        ("lrp.desire", json!({"process_guid": "x", "domain": "shop", "action": run})),
        ("lrp.update", json!({"process_guid": "x", "instances": 1})),
        ("lrp.remove", json!({"process_guid": "x"})),
        ("lrp.retire", json!({"process_guid": "x", "index": 0})),
        ("task.desire", json!({"task_guid": "x", "domain": "shop", "action": run})),
        ("task.cancel", json!({"task_guid": "x"})),
        ("task.resolve", json!({"task_guid": "x"})),
        ("domain.upsert", json!({"domain": "shop"})),
    ];
    let client = client.map(|(verb, body)| {
        Line::json(&format!("muster.client.shop.me.{verb}"), ANYBODY, &json!({ "body": body }))
    });
    let evacuate = json!({"body": {"cell_id": "c9"}});
    let mut lines = vec![Line::json("muster.operator.me.cell.evacuate", ANYBODY, &evacuate)];
    lines.extend(client);
    lines.extend(queries());
    lines.extend(between_services());
    lines
}

fn queries() -> impl Iterator<Item = Line> {
    let lists = ["lrp", "instance", "task", "domain", "cell", "evaluation"].map(|noun| {
        Line::json(
            &format!("muster.query.client.shop.me.{noun}.list"),
            ANYBODY,
            &json!({"domain": "shop", "limit": 3}),
        )
    });
    let shows = [("lrp", "x"), ("instance", "x/0"), ("task", "x"), ("cell", "c9"), ("evaluation", "x")];
    let shows = shows.map(|(noun, id)| {
        Line::json(&format!("muster.query.client.shop.me.{noun}.show"), ANYBODY, &json!({ "id": id }))
    });
    let others = [
        ("cluster.show", json!({"at_least": 1})),
        ("cluster.status", json!({"at_least": 1})),
        ("events.read", json!({"after": 0, "limit": 1})),
        ("schema.list", json!({})),
        ("schema.show", json!({"name": "entry"})),
        ("instance.logs", json!({"id": "x/0"})),
        ("task.logs", json!({"id": "x"})),
    ];
    let others = others.map(|(name, question)| {
        Line::json(&format!("muster.query.client.shop.me.{name}"), ANYBODY, &question)
    });
    let records =
        Records { cell_id: CellId::new("c1").unwrap(), work: vec![task("x")], at_least: Some(Position(1)) };
    let records = Line::both("muster.query.rep.c1.cell.records", "rep.c1", true, &records);
    lists.into_iter().chain(shows).chain(others).chain([records])
}

fn task(guid: &str) -> WorkKey {
    WorkKey::Task { task_guid: TaskGuid::new(guid).unwrap(), epoch: Epoch(Timestamp(7)) }
}

fn between_services() -> [Line; 15] {
    let me = ServiceId::new("nobody").unwrap();
    let guid = TaskGuid::new("x").unwrap();
    let definition =
        spec::task(json!({"task_guid": "x", "domain": "shop", "action": {"run": {"path": "true"}}}));
    let by = schemas::container::Instance { instance_guid: instance(), cell_id: CellId::new("c1").unwrap() };
    let report = schemas::task::Report {
        domain: Domain::new("shop").unwrap(),
        epoch: Epoch(Timestamp(7)),
        by,
        step: schemas::task::ReportStep::Start { placement: None, isolation: Isolation::NONE },
    };
    let reports = Reports {
        folder: schemas::names::FolderId(uuid::Uuid::nil()),
        reports: vec![Report::Task { task_guid: guid.clone(), report }],
    };
    let outcome = PlacementOutcome::Task {
        task_guid: guid,
        epoch: Epoch(Timestamp(7)),
        unplaced: schemas::task::Unplaced {
            evaluation: schemas::names::EvaluationId(uuid::Uuid::nil()),
            error: "none".into(),
            used_up: false,
            explanation: None,
        },
    };
    let (leases, evictions) = (vec![], vec![]);
    let outcomes = Outcomes { id: me.clone(), term: 1, leases, outcomes: vec![outcome], evictions };
    let work = Work {
        key: task("x"),
        attempt: Timestamp(7),
        domain: Domain::new("shop").unwrap(),
        order: Order::Task(definition.unwrap().definition),
        placement: None,
    };
    // Of term 0, so that nobody listens to what is a message by chance.
    let perform = Perform { id: PerformId::default(), work: vec![work] };
    let stop = Stop { term: 0, containers: vec![(task("x"), instance())] };
    let read_logs = json!({"id": instance()});
    let beat = Beat { id: me.clone(), term: 0, position: Position(1), steps_down: false };
    let alive = Alive {
        id: me.clone(),
        role: schemas::cluster::Role::Bbs,
        program: Program::default(),
        standing: Standing { position: Position(1), term: 0, leads: false },
        clock: clock::now(),
        may_lead: true,
        append_trouble: None,
    };
    [
        Line::both("muster.cell.c1.bbs.report", "rep.c1", true, &reports),
        Line::both("muster.auctioneer.bbs.outcome", "auctioneer.x", true, &outcomes),
        Line::both("muster.auctioneer.bbs.lead", "auctioneer.x", true, &Lead { id: me, term: 0 }),
        Line::both("muster.cell.c1.rep.perform", "auctioneer.x", true, &perform),
        Line::both("muster.cell.c1.rep.state", "bbs.x", true, &RepOrder { term: 0, position: Position(0) }),
        Line::both(
            "muster.cell.c1.rep.evacuate",
            "bbs.x",
            true,
            &RepOrder { term: 0, position: Position(0) },
        ),
        Line::both("muster.cell.c1.rep.stop", "bbs.x", false, &stop),
        Line::both("muster.cell.c1.rep.cancel", "bbs.x", false, &stop),
        Line::json("muster.cell.c1.rep.logs", "bbs.x", &read_logs),
        Line::both("muster.cell.c1.heartbeat", "rep.c1", false, &heartbeat()),
        Line::both("muster.beat.bbs", "bbs.x", false, &beat),
        Line::both("muster.beat.auctioneer", "auctioneer.x", false, &beat),
        Line::both("muster.elected.bbs", "bbs.x", false, &beat),
        Line::both("muster.elected.auctioneer", "auctioneer.x", false, &beat),
        Line::both("muster.alive.bbs", "bbs.x", false, &alive),
    ]
}

fn instance() -> InstanceGuid {
    InstanceGuid("00000000-0000-7000-8000-000000000001".parse().unwrap())
}

fn heartbeat() -> Heartbeat {
    // Another cell than its subject's, so that nobody believes it.
    Heartbeat { schema: codec::SCHEMA, ..fixtures::heartbeat("c9", 1, 1) }
}

/// What no subject takes, made of a message that it does take.
fn spoiled(message: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let cut = |at: usize| message[..at].to_vec();
    let mut bad = vec![
        ("garbage", vec![0xff, 0x00, 0x80, 0x7f, 0x0a]),
        ("blanks", b"   ".to_vec()),
        ("no JSON", b"{\"body\":".to_vec()),
        ("JSON of another kind", b"[1, 2, 3]".to_vec()),
        ("a number", b"1e400".to_vec()),
        ("a field that nobody knows", b"{\"surprise\": 1}".to_vec()),
        ("nested deep", "[".repeat(100_000).into_bytes()),
        ("nested deep and closed", [vec![b'['; 5_000], vec![b']'; 5_000]].concat()),
        ("as large as can be", vec![b' '; MESSAGE_BYTES - 100]),
        ("cut in the middle", cut(message.len() / 2)),
        ("cut at the end", cut(message.len() - 1)),
        ("bytes behind it", [message, b"\x00trailing"].concat()),
        ("twice", [message, message].concat()),
        ("the head of postcard alone", b"MUS1".to_vec()),
    ];
    if message.starts_with(b"MUS1") {
        let mut of_another_schema = message.to_vec();
        of_another_schema[5] ^= 0xff;
        bad.push(("of another schema", of_another_schema));
        let mut longer = message.to_vec();
        longer[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        bad.push(("with a length that it hasn't", longer));
    }
    bad
}

#[test]
fn bytes_that_are_no_message_are_refused_everywhere() {
    let cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let before = cluster.log().len();
    let mut count = 0;
    for Line { subject, role, messages, answered } in lines() {
        let mut requester = cluster.plain_as(role);
        let empty_asks_for_all =
            subject.starts_with("muster.query.client.shop.me.") && subject.ends_with(".list");
        for message in &messages {
            let mut bad = spoiled(message);
            if !empty_asks_for_all && !subject.contains(".me.cluster.") && !subject.ends_with(".events.read")
            {
                bad.push(("nothing", vec![]));
            }
            for (what, bytes) in bad {
                count += 1;
                if !answered {
                    requester.publish(&subject, "", &bytes);
                    continue;
                }
                let answer = requester.ask(&subject, &bytes).json();
                let code = answer["refused"]["code"]
                    .as_str()
                    .unwrap_or_else(|| panic!("{subject} {what}: {answer}"));
                let wanted = if what == "of another schema" { "Unreadable" } else { "InvalidRequest" };
                assert_eq!(code, wanted, "{subject}, {what}: {answer}");
            }
        }
    }
    let mut requester = cluster.plain(ANYBODY);
    for subject in [
        "muster.query.client.shop.me.lrp.burn",
        "muster.client.shop.me.cell.burn",
        "muster.auctioneer.bbs.burn",
    ] {
        let mut requester = if subject.contains("auctioneer") {
            cluster.plain_as("auctioneer.x")
        } else {
            cluster.plain("x")
        };
        let answer = requester.ask(subject, b"{}").json();
        assert_eq!(answer["refused"]["code"], "InvalidRequest", "{subject}: {answer}");
    }
    // Where nobody listens the server says so.
    let nobody = requester.ask("muster.nobody.listens", b"{}");
    assert_eq!(nobody.status.as_deref(), Some("503"));
    cluster.place.tell(&format!("{count} messages that are none"));
    assert_eq!(cluster.log().len(), before, "nothing of it is in the log");
    goes_on(&cluster);
}

/// Chance without chance: the same row of numbers at every start.
struct Row(u64);

impl Row {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

#[test]
fn messages_with_a_few_wrong_bytes_break_nothing() {
    const OF_EACH: usize = 60;
    let cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let mut row = Row(7);
    let mut count = 0;
    for Line { subject, role, messages, answered } in lines() {
        let mut requester = cluster.plain_as(role);
        for number in 0..OF_EACH {
            let mut bytes = messages[number % messages.len()].clone();
            for _ in 0..=row.below(3) {
                let at = row.below(bytes.len());
                bytes[at] = u8::try_from(row.below(256)).unwrap();
            }
            count += 1;
            if answered {
                // A name may have become another name: then it is done, or there is no such thing.
                let answer = requester.ask(&subject, &bytes);
                let said = answer.payload.starts_with(b"MUS1") || answer.json().is_object();
                assert!(answer.status.is_none() && said, "{subject}: {bytes:?}");
            } else {
                requester.publish(&subject, "", &bytes);
            }
        }
    }
    cluster.place.tell(&format!("{count} messages with wrong bytes"));
    goes_on(&cluster);
}

/// Every service is the one that was started, and what is asked is done.
fn goes_on(cluster: &Cluster) {
    for (name, service) in &cluster.services {
        assert!(std::path::Path::new(&format!("/proc/{}", service.pid())).exists(), "{name} has ended");
        assert!(!service.said().contains("panicked"), "{name}: {}", service.said());
    }
    let file = cluster.place.file("after.toml", sleeper("after", 1));
    cluster.muster().ok(&format!("lrp desire {}", file.display()));
    eventually("the cell is there", || {
        let row = cluster.muster().try_json("cell show c1")?;
        so(row["state"] == "PRESENT", || row.to_string())
    });
    cluster.muster().ok("lrp remove after");
}
