//! Tests with bytes that are not valid messages, on every subject. If the sender expects an answer, the bytes
//! are refused with a stable code. All services keep working.

use schemas::codec::{self, Form};
use schemas::container::{Epoch, WorkKey};
use schemas::isolation::Isolation;
use schemas::limits::MESSAGE_BYTES;
use schemas::message::{
    Heartbeat, Lead, LeaderHeartbeat, LeadershipStatus, Outcomes, Perform, PerformId, PlacementOutcome,
    Program, RepOrder, Report, Reports, ServiceStatus, Stop, Work, WorkDefinition,
};
use schemas::names::{CellId, Domain, InstanceGuid, ServiceId, TaskGuid};
use schemas::query::Records;
use schemas::{Position, Timestamp, spec};
use serde::Serialize;
use serde_json::json;

use crate::dev::sleeper;
use crate::support::test_dir::ensure;
use crate::support::{Cluster, eventually};

/// Subject with the role of its sender and valid messages. `answered` is `true` if the receiver sends an
/// answer.
struct SubjectCase {
    subject: String,
    role: &'static str,
    messages: Vec<Vec<u8>>,
    answered: bool,
}

impl SubjectCase {
    fn json(subject: &str, role: &'static str, message: &serde_json::Value) -> Self {
        Self {
            subject: subject.to_owned(),
            role,
            messages: vec![message.to_string().into_bytes()],
            answered: true,
        }
    }

    /// Creates a case for a message between services, in both encodings.
    fn in_both_forms(subject: &str, role: &'static str, answered: bool, message: &impl Serialize) -> Self {
        let messages = [Form::Json, Form::Postcard].map(|form| codec::encode(form, message)).to_vec();
        Self { subject: subject.to_owned(), role, messages, answered }
    }
}

/// Role of an ordinary NATS client.
const CLIENT_ROLE: &str = "client.shop.me";

fn lines() -> Vec<SubjectCase> {
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
        SubjectCase::json(&format!("muster.client.shop.me.{verb}"), CLIENT_ROLE, &json!({ "body": body }))
    });
    let evacuate = json!({"body": {"cell_id": "c9"}});
    let mut lines = vec![SubjectCase::json("muster.operator.me.cell.evacuate", CLIENT_ROLE, &evacuate)];
    lines.extend(client);
    lines.extend(queries());
    lines.extend(service_cases());
    lines
}

fn queries() -> impl Iterator<Item = SubjectCase> {
    let lists = ["lrp", "instance", "task", "domain", "cell", "evaluation"].map(|noun| {
        SubjectCase::json(
            &format!("muster.query.client.shop.me.{noun}.list"),
            CLIENT_ROLE,
            &json!({"domain": "shop", "limit": 3}),
        )
    });
    let shows = [("lrp", "x"), ("instance", "x/0"), ("task", "x"), ("cell", "c9"), ("evaluation", "x")];
    let shows = shows.map(|(noun, id)| {
        SubjectCase::json(
            &format!("muster.query.client.shop.me.{noun}.show"),
            CLIENT_ROLE,
            &json!({ "id": id }),
        )
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
        SubjectCase::json(&format!("muster.query.client.shop.me.{name}"), CLIENT_ROLE, &question)
    });
    let records =
        Records { cell_id: CellId::new("c1").unwrap(), work: vec![task("x")], at_least: Some(Position(1)) };
    let records = SubjectCase::in_both_forms("muster.query.rep.c1.cell.records", "rep.c1", true, &records);
    lists.into_iter().chain(shows).chain(others).chain([records])
}

fn task(guid: &str) -> WorkKey {
    WorkKey::Task { task_guid: TaskGuid::new(guid).unwrap(), epoch: Epoch(Timestamp(7)) }
}

/// Returns a report that a task started.
fn task_reports(task_guid: TaskGuid) -> Reports {
    let by = schemas::container::Instance { instance_guid: instance(), cell_id: CellId::new("c1").unwrap() };
    let report = schemas::task::Report {
        domain: Domain::new("shop").unwrap(),
        epoch: Epoch(Timestamp(7)),
        by,
        step: schemas::task::ReportStep::Start { placement: None, isolation: Isolation::NONE },
    };
    let folder = schemas::names::FolderId(uuid::Uuid::nil());
    Reports { folder, reports: vec![Report::Task { task_guid, report }] }
}

fn service_cases() -> [SubjectCase; 15] {
    let me = ServiceId::new("nobody").unwrap();
    let guid = TaskGuid::new("x").unwrap();
    let definition =
        spec::task(json!({"task_guid": "x", "domain": "shop", "action": {"run": {"path": "true"}}}));
    let reports = task_reports(guid.clone());
    let outcome = PlacementOutcome::Task {
        task_guid: guid,
        epoch: Epoch(Timestamp(7)),
        unplaced: schemas::task::Unplaced {
            evaluation: schemas::names::EvaluationId(uuid::Uuid::nil()),
            error: "none".into(),
            attempts_exhausted: false,
            explanation: None,
        },
    };
    let (leases, evictions) = (vec![], vec![]);
    let outcomes = Outcomes { id: me.clone(), term: 1, leases, outcomes: vec![outcome], evictions };
    let work = Work {
        key: task("x"),
        attempt: Timestamp(7),
        domain: Domain::new("shop").unwrap(),
        definition: WorkDefinition::Task(definition.unwrap().definition),
        placement: None,
    };
    // The bytes may happen to be a valid message. Services ignore such a message because its term is 0.
    let perform = Perform { id: PerformId::default(), work: vec![work] };
    let stop = Stop { term: 0, containers: vec![(task("x"), instance())] };
    let read_logs = json!({"id": instance()});
    let beat = LeaderHeartbeat { id: me.clone(), term: 0, position: Position(1), steps_down: false };
    let alive = ServiceStatus {
        id: me.clone(),
        role: schemas::cluster::Role::Bbs,
        program: Program::default(),
        leadership: LeadershipStatus { position: Position(1), term: 0, leads: false },
        clock: clock::now(),
        may_lead: true,
        append_problem: None,
    };
    [
        SubjectCase::in_both_forms("muster.cell.c1.bbs.report", "rep.c1", true, &reports),
        SubjectCase::in_both_forms("muster.auctioneer.bbs.outcome", "auctioneer.x", true, &outcomes),
        SubjectCase::in_both_forms(
            "muster.auctioneer.bbs.lead",
            "auctioneer.x",
            true,
            &Lead { id: me, term: 0 },
        ),
        SubjectCase::in_both_forms("muster.cell.c1.rep.perform", "auctioneer.x", true, &perform),
        SubjectCase::in_both_forms(
            "muster.cell.c1.rep.state",
            "bbs.x",
            true,
            &RepOrder { term: 0, position: Position(0) },
        ),
        SubjectCase::in_both_forms(
            "muster.cell.c1.rep.evacuate",
            "bbs.x",
            true,
            &RepOrder { term: 0, position: Position(0) },
        ),
        SubjectCase::in_both_forms("muster.cell.c1.rep.stop", "bbs.x", false, &stop),
        SubjectCase::in_both_forms("muster.cell.c1.rep.cancel", "bbs.x", false, &stop),
        SubjectCase::json("muster.cell.c1.rep.logs", "bbs.x", &read_logs),
        SubjectCase::in_both_forms("muster.cell.c1.heartbeat", "rep.c1", false, &heartbeat()),
        SubjectCase::in_both_forms("muster.leader-heartbeat.bbs", "bbs.x", false, &beat),
        SubjectCase::in_both_forms("muster.leader-heartbeat.auctioneer", "auctioneer.x", false, &beat),
        SubjectCase::in_both_forms("muster.elected.bbs", "bbs.x", false, &beat),
        SubjectCase::in_both_forms("muster.elected.auctioneer", "auctioneer.x", false, &beat),
        SubjectCase::in_both_forms("muster.alive.bbs", "bbs.x", false, &alive),
    ]
}

fn instance() -> InstanceGuid {
    InstanceGuid("00000000-0000-7000-8000-000000000001".parse().unwrap())
}

fn heartbeat() -> Heartbeat {
    // The cell of the heartbeat differs from the cell of the subject, so the heartbeat is ignored.
    Heartbeat { schema: codec::SCHEMA_VERSION, ..fixtures::heartbeat("c9", 1, 1) }
}

/// Returns invalid variants of a valid message.
fn invalid_variants(message: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let cut = |at: usize| message[..at].to_vec();
    let mut bad = vec![
        ("garbage", vec![0xff, 0x00, 0x80, 0x7f, 0x0a]),
        ("blanks", b"   ".to_vec()),
        ("truncated JSON", b"{\"body\":".to_vec()),
        ("JSON array", b"[1, 2, 3]".to_vec()),
        ("number", b"1e400".to_vec()),
        ("unknown field", b"{\"surprise\": 1}".to_vec()),
        ("deeply nested", "[".repeat(100_000).into_bytes()),
        ("deeply nested and closed", [vec![b'['; 5_000], vec![b']'; 5_000]].concat()),
        ("maximum size", vec![b' '; MESSAGE_BYTES - 100]),
        ("truncated in the middle", cut(message.len() / 2)),
        ("truncated at the end", cut(message.len() - 1)),
        ("trailing bytes", [message, b"\x00trailing"].concat()),
        ("duplicated", [message, message].concat()),
        ("postcard header only", b"MUS1".to_vec()),
    ];
    if message.starts_with(b"MUS1") {
        let mut of_another_schema = message.to_vec();
        of_another_schema[5] ^= 0xff;
        bad.push(("another schema", of_another_schema));
        let mut longer = message.to_vec();
        longer[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        bad.push(("length beyond the end", longer));
    }
    bad
}

#[test]
fn invalid_messages_are_refused_on_every_subject() {
    let cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let before = cluster.entries().len();
    let mut count = 0;
    for SubjectCase { subject, role, messages, answered } in lines() {
        let mut requester = cluster.plain_as(role);
        let empty_asks_for_all =
            subject.starts_with("muster.query.client.shop.me.") && subject.ends_with(".list");
        for message in &messages {
            let mut bad = invalid_variants(message);
            if !empty_asks_for_all && !subject.contains(".me.cluster.") && !subject.ends_with(".events.read")
            {
                bad.push(("empty", vec![]));
            }
            for (what, bytes) in bad {
                count += 1;
                if !answered {
                    requester.publish(&subject, "", &bytes);
                    continue;
                }
                let answer = requester.request(&subject, &bytes).json();
                let code = answer["refused"]["code"]
                    .as_str()
                    .unwrap_or_else(|| panic!("{subject} {what}: {answer}"));
                let wanted = if what == "another schema" { "Unreadable" } else { "InvalidRequest" };
                assert_eq!(code, wanted, "{subject}, {what}: {answer}");
            }
        }
    }
    let mut requester = cluster.plain(CLIENT_ROLE);
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
        let answer = requester.request(subject, b"{}").json();
        assert_eq!(answer["refused"]["code"], "InvalidRequest", "{subject}: {answer}");
    }
    // If a subject has no subscriber, the server sends the answer.
    let nobody = requester.request("muster.nobody.listens", b"{}");
    assert_eq!(nobody.status.as_deref(), Some("503"));
    cluster.place.print_event(&format!("sent {count} invalid messages"));
    assert_eq!(cluster.entries().len(), before, "the log did not change");
    assert_cluster_works(&cluster);
}

/// Pseudo-random numbers without a random seed: the sequence is the same in every run.
struct Lcg(u64);

impl Lcg {
    fn next_below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

#[test]
fn corrupted_messages_stop_no_service() {
    const OF_EACH: usize = 60;
    let cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let mut row = Lcg(7);
    let mut count = 0;
    for SubjectCase { subject, role, messages, answered } in lines() {
        let mut requester = cluster.plain_as(role);
        for number in 0..OF_EACH {
            let mut bytes = messages[number % messages.len()].clone();
            for _ in 0..=row.next_below(3) {
                let at = row.next_below(bytes.len());
                bytes[at] = u8::try_from(row.next_below(256)).unwrap();
            }
            count += 1;
            if answered {
                // A changed name may still be valid. The request then either succeeds, or fails because its
                // target does not exist.
                let answer = requester.request(&subject, &bytes);
                let said = answer.payload.starts_with(b"MUS1") || answer.json().is_object();
                assert!(answer.status.is_none() && said, "{subject}: {bytes:?}");
            } else {
                requester.publish(&subject, "", &bytes);
            }
        }
    }
    cluster.place.print_event(&format!("sent {count} corrupted messages"));
    assert_cluster_works(&cluster);
}

/// Checks that no service was restarted, and that commands are carried out.
fn assert_cluster_works(cluster: &Cluster) {
    for (name, service) in &cluster.services {
        assert!(std::path::Path::new(&format!("/proc/{}", service.pid())).exists(), "{name} has exited");
        assert!(!service.log().contains("panicked"), "{name}: {}", service.log());
    }
    let file = cluster.place.write_file("after.toml", sleeper("after", 1));
    cluster.muster().ok(&format!("apply {}", file.display()));
    eventually("the cell is present", || {
        let row = cluster.muster().try_json("cell show c1")?;
        ensure(row["state"] == "PRESENT", || row.to_string())
    });
    cluster.muster().ok("lrp delete after");
}
