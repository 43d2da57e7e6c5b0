//! Tests of the codec: every message round-trips in both forms, and arbitrary bytes never cause a panic.

use std::fmt::Debug;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fixtures::pages::{WRITE_VARIABLE, may_write};
use proptest::prelude::*;
use schemas::action::{Action, Group, Run, Secret, Timeout, Try, Variable};
use schemas::cell::{Evacuation, Presence};
use schemas::checksum::{crc32c, crc64};
use schemas::cluster::{self, Terms};
use schemas::codec::{Form, MAX_JSON_DEPTH, SCHEMA_VERSION, decode, encode};
use schemas::container::{Epoch, WorkKey};
use schemas::definition::{Placement, TaskDefinition};
use schemas::entry::Entry;
use schemas::isolation::Isolation;
use schemas::message::{
    Ack, Answer, Envelope, Heartbeat, Lead, LeaderHeartbeat, LeadershipStatus, Lease, LeaseTarget, LrpRecord,
    LrpState, Outcomes, Perform, PerformId, PerformReply, PlacementOutcome, Program, Record, RepOrder,
    Report, ReportResult, Reports, ReportsReply, ServiceStatus, Stop, TaskRecord, TaskState, Work,
    WorkDefinition,
};
use schemas::names::{
    BadName, ClusterId, Domain, EntryId, EvaluationId, IdGenerator, Incarnation, InstanceGuid, ProcessGuid,
    ServiceId, Stack, TaskGuid, Zone,
};
use schemas::placement::{Candidate, Explanation};
use schemas::preemption::{Eviction, Preemptor};
use schemas::priority::Priority;
use schemas::process::{Outcome, ReportStep, Unplaced};
use schemas::query::{AppendProblem, Records, RecordsAnswer};
use schemas::refusal::{BadField, Code, Refusal};
use schemas::resources::Resources;
use schemas::stored::DecodeError;
use schemas::{Indices, Position, Subject, Timestamp, actual, evacuating, limits, process, task};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::common::{cell_id, definition, domain, id, instance, lrp_key, net_info, place, run_action};
use crate::strategies::cases;
use crate::strategies::{any_action, any_name};

/// Length of the header of a postcard message, in bytes.
const HEADER_BYTES: usize = 16;

fn explanation() -> Option<Box<Explanation>> {
    Some(Box::new(Explanation {
        cells: 2,
        rejected: [("stack".to_owned(), 1)].into(),
        best: vec![Candidate {
            cell_id: cell_id("c1"),
            zone: Zone::new("z1").unwrap(),
            siblings_in_zone: 1,
            siblings_on_cell: 0,
            spread: 3,
            affinity: -7,
            used_permille: 500,
        }],
        eligibility: None,
    }))
}

fn web() -> ProcessGuid {
    ProcessGuid::new("web").unwrap()
}

fn job() -> TaskGuid {
    TaskGuid::new("job").unwrap()
}

fn epoch() -> Epoch {
    Epoch(Timestamp(5))
}

fn keys() -> [WorkKey; 2] {
    [
        WorkKey::Lrp { key: lrp_key("web", 7), epoch: epoch() },
        WorkKey::Task { task_guid: job(), epoch: epoch() },
    ]
}

fn reports() -> Reports {
    let actual = [
        actual::Command::Claim { placement: explanation() },
        actual::Command::Start { net: net_info(61_000), isolation: Isolation::NONE },
        actual::Command::Crash { reason: "exit 1".into(), exit_status: Some(1) },
        actual::Command::Remove,
        actual::Command::Unclaim,
    ];
    let twin = [
        evacuating::Command::Set { net: net_info(61_001), expires_at: Timestamp(9) },
        evacuating::Command::Remove,
    ];
    let steps =
        actual.into_iter().map(ReportStep::Actual).chain(twin.into_iter().map(ReportStep::Evacuating));
    let lrp = process::Report {
        domain: domain("apps"),
        place: place(1, "web"),
        epoch: epoch(),
        by: instance(1, "c1"),
        observed_at: Timestamp(8),
        steps: steps.collect(),
    };
    let outcomes = [
        task::Outcome::Succeeded { result: "42\n\u{1f600}".into() },
        task::Outcome::Failed { reason: "exit 2".into() },
    ];
    let ends = outcomes.into_iter().map(|outcome| task::ReportStep::Complete { outcome });
    let of_tasks =
        ends.chain([task::ReportStep::Start { placement: None, isolation: Isolation::NONE }]).map(|step| {
            Report::Task {
                task_guid: job(),
                report: task::Report { domain: domain("apps"), epoch: epoch(), by: instance(2, "c2"), step },
            }
        });
    let of_lrps = [Report::Lrp { process_guid: web(), report: lrp }];
    Reports {
        folder: schemas::names::FolderId(uuid::Uuid::nil()),
        reports: of_lrps.into_iter().chain(of_tasks).collect(),
    }
}

fn records() -> Vec<Record> {
    let by = instance(1, "c1");
    let states = [
        None,
        Some(LrpState::Unclaimed { placement_error: true }),
        Some(LrpState::Claimed { by: by.clone(), stopping: true }),
        Some(LrpState::Running { by: by.clone(), stopping: false }),
        Some(LrpState::Crashed),
    ];
    let lrps = states.into_iter().map(|state| {
        Record::Lrp(LrpRecord {
            key: lrp_key("web", 3),
            epoch: epoch(),
            domain: domain("apps"),
            state,
            evacuating: Some(instance(2, "c2")),
            since: Timestamp(8),
            changed_at: Timestamp(9),
        })
    });
    let states = [
        TaskState::Pending,
        TaskState::Running { by: by.clone() },
        TaskState::Completed { by: None },
        TaskState::Resolving { by: Some(by) },
    ];
    let tasks = states.into_iter().map(|state| {
        Record::Task(TaskRecord { task_guid: job(), epoch: epoch(), domain: domain("apps"), state })
    });
    [Record::Absent].into_iter().chain(lrps).chain(tasks).collect()
}

fn refusal() -> Refusal {
    let field = BadField { field: "action.run.path".into(), problem: "is missing".into() };
    Refusal { code: Code::ActualLrpCannotBeClaimed, message: "no".into(), fields: vec![field] }
}

fn terms() -> Terms {
    Terms { bbs: 4, auctioneer: 2 }
}

fn reported() -> ReportsReply {
    let result = |record| ReportResult { refused: Some(refusal()), record };
    ReportsReply {
        position: Position(77),
        terms: terms(),
        results: records().into_iter().map(result).collect(),
    }
}

fn heartbeat() -> Heartbeat {
    let resources = Resources { memory_mb: 1024, disk_mb: u64::MAX, containers: 3, ports: 2 };
    Heartbeat {
        cell_id: cell_id("c1"),
        presence: Presence {
            folder: schemas::names::FolderId(uuid::Uuid::nil()),
            incarnation: Incarnation(id(3)),
            zone: Zone::new("z1").unwrap(),
            stack: Stack::new("linux").unwrap(),
            placement_tags: [schemas::names::PlacementTag::new("gpu").unwrap()].into(),
            attributes: fixtures::attributes(&[("rack", "r1")]),
            total: resources,
        },
        free: resources,
        starting: 2,
        evacuating: true,
        unhealthy: Some("disk".into()),
        performed: PerformId { term: 2, number: 40 },
        sequence: 12,
        clock: Timestamp(3),
        schema: 0,
        format: 1,
    }
}

fn perform() -> Perform {
    let task = TaskDefinition {
        environment_variables: vec![Variable { name: "A".into(), value: Secret::Plain("1".into()) }],
        action: Action::Parallel(Group { actions: vec![run_action("a"), run_action("b")] }),
        cpu_weight: 3,
        result_file: "r".into(),
        completion_callback_url: Some(Secret::Plain("http://x".into())),
        placement: Placement::Queue { deadline_ms: 5 },
        ..fixtures::task_definition()
    };
    let orders = [WorkDefinition::Lrp(Arc::new(definition())), WorkDefinition::Task(Arc::new(task))];
    let work = keys().into_iter().zip(orders).map(|(key, definition)| Work {
        key,
        attempt: Timestamp(6),
        domain: domain("apps"),
        definition,
        placement: explanation(),
    });
    Perform { id: PerformId { term: 1, number: 2 }, work: work.collect() }
}

fn outcomes() -> Outcomes {
    let error = "insufficient resources: memory".to_owned();
    let unplaced = vec![Unplaced { place: place(1, "web"), attempt: Timestamp(2), error: error.clone() }];
    let (explanation, epoch) = (explanation(), epoch());
    let evaluation = EvaluationId(id(5));
    let outcome = Outcome { evaluation, unplaced, attempts_exhausted: true, explanation };
    let lrp = PlacementOutcome::Lrp { process_guid: web(), epoch, outcome };
    let unplaced = task::Unplaced { evaluation, error, attempts_exhausted: false, explanation: None };
    let task = PlacementOutcome::Task { task_guid: job(), epoch, unplaced };
    let leases = vec![Lease { evaluation, delivery: 2, target: LeaseTarget::Process(web(), epoch) }];
    let [work, victim] = keys();
    let preemptor = Preemptor { work, attempt: Timestamp(2), priority: Priority::default() };
    let evictions = vec![Eviction { victim, by: instance(6, "c1"), preemptor }];
    Outcomes { id: ServiceId::new("a1").unwrap(), term: 3, leases, outcomes: vec![lrp, task], evictions }
}

/// Checks the codec of a message in both forms and returns its postcard encoding.
///
/// - The message round-trips.
/// - A truncated message and a message with trailing bytes are refused.
/// - A message with a flipped bit is refused or decodes to another message, and never causes a panic.
fn round_trips<T: Serialize + DeserializeOwned + PartialEq + Debug>(message: &T) -> Vec<u8> {
    for form in [Form::Json, Form::Postcard] {
        let bytes = encode(form, message);
        let (read, read_form) = decode::<T>(&bytes).unwrap();
        assert_eq!((&read, read_form), (message, form));
        for length in 0..bytes.len() {
            let refusal = decode::<T>(&bytes[..length]).unwrap_err();
            assert!(matches!(refusal.code, Code::InvalidRequest), "{length} of {message:?}: {refusal}");
        }
        let behind = [bytes.as_slice(), b"x"].concat();
        assert_eq!(decode::<T>(&behind).unwrap_err().code, Code::InvalidRequest);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut turned = bytes.clone();
                turned[at] ^= 1 << bit;
                drop(decode::<T>(&turned));
            }
        }
    }
    encode(Form::Postcard, message)
}

#[test]
fn messages_round_trip_and_match_pinned_schema() {
    let service = ServiceId::new("bbs-1").unwrap();
    let done = Ack { position: Position(4), version: 2 };
    let evacuations = [Evacuation::None, Evacuation::Requested, Evacuation::Started(Timestamp(5))];
    let answers = evacuations.map(|evacuation| {
        let position = Position(3);
        round_trips(&RecordsAnswer { position, terms: terms(), evacuation, records: records() })
    });
    let others = [
        round_trips(&reports()),
        round_trips(&reported()),
        round_trips(&Answer::Ok(reported())),
        round_trips(&Answer::Ok(done)),
        round_trips(&Answer::<Ack>::Refused(refusal())),
        round_trips(&heartbeat()),
        round_trips(&Answer::Ok(heartbeat())),
        round_trips(&perform()),
        round_trips(&Answer::Ok(PerformReply { refused: vec![(0, "evacuating".into())] })),
        round_trips(&Stop { term: 4, containers: keys().map(|key| (key, InstanceGuid(id(9)))).into() }),
        round_trips(&RepOrder { term: 4, position: Position(7) }),
        round_trips(&outcomes()),
        round_trips(&Lead { id: service.clone(), term: 5 }),
        round_trips(&ServiceStatus {
            id: service.clone(),
            role: cluster::Role::Auctioneer,
            program: Program { host: "h".into(), pid: 7, version: "0.1.0".into() },
            leadership: LeadershipStatus { position: Position(6), term: 5, leads: true },
            clock: Timestamp(8),
            may_lead: true,
            append_problem: Some(AppendProblem { since: Timestamp(1), failing: true, reason: "full".into() }),
        }),
        round_trips(&LeaderHeartbeat { id: service, term: 5, position: Position(6), steps_down: false }),
        round_trips(&Records { cell_id: cell_id("c1"), work: keys().into(), at_least: Some(Position(3)) }),
        round_trips(&Envelope::default()),
    ];
    // Orders to a rep, with every optional field set.
    let orders = [
        WorkDefinition::Lrp(crate::golden::lrp().definition),
        WorkDefinition::Task(crate::golden::job().definition),
    ];
    let orders = orders.map(|order| encode(Form::Postcard, &order));
    // The header contains the number that is computed here.
    let messages = answers.iter().chain(&others).chain(&orders);
    let bytes: Vec<u8> = messages.flat_map(|message| &message[HEADER_BYTES..]).copied().collect();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/postcard.txt");
    let number = crc64(&[&bytes]);
    if may_write() {
        fs::write(&path, format!("{number}\n")).unwrap();
    }
    let golden = fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        golden.trim(),
        number.to_string(),
        "the encoding of messages has changed: {WRITE_VARIABLE}=1 accepts it"
    );
}

#[test]
fn message_of_other_schema_is_unreadable() {
    let bytes = encode(Form::Postcard, &heartbeat());
    for at in 4..12 {
        let mut other = bytes.clone();
        other[at] ^= 1;
        assert_eq!(decode::<Heartbeat>(&other).unwrap_err().code, Code::Unreadable);
    }
}

#[test]
fn message_with_wrong_length_is_refused() {
    let bytes = encode(Form::Postcard, &heartbeat());
    for length in [0, 1, u32::MAX] {
        let mut lying = bytes.clone();
        lying[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
        assert_eq!(decode::<Heartbeat>(&lying).unwrap_err().code, Code::InvalidRequest);
    }
}

/// A message with a single field.
#[derive(serde::Serialize, serde::Deserialize)]
struct Wrapper<T> {
    value: T,
}

#[test]
fn oversized_or_deeply_nested_json_is_refused() {
    let refused = |bytes: &[u8], why: &str| {
        let refusal = decode::<serde_json::Value>(bytes).unwrap_err();
        assert!(refusal.to_string().contains(why), "{refusal}");
    };
    refused(&vec![b' '; limits::MESSAGE_BYTES + 1], "bytes, more than");
    refused("{\"a\":".repeat(MAX_JSON_DEPTH + 1).as_bytes(), "nested deeper");
    refused("[".repeat(100_000).as_bytes(), "not a JSON object");
    refused(format!("{{\"a\":{}", "[".repeat(100_000)).as_bytes(), "nested deeper");
    // Brackets in text do not count as nesting, and an escaped quote does not end the text.
    let text = format!("{{\"a\":\"\\\"{}\"}}", "[".repeat(1000));
    decode::<serde_json::Value>(text.as_bytes()).unwrap();
}

/// Returns a postcard message with this body.
fn postcard_message(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
    [b"MUS1".as_slice(), &SCHEMA_VERSION.to_le_bytes(), &length, body].concat()
}

/// Encodes a number as a postcard varint.
fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = vec![];
    while number > 0x7f {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
    bytes
}

#[test]
fn action_tree_beyond_limits_is_refused_before_allocation() {
    // A chain of nodes. The byte 2 encodes `Try`, the third kind, which contains only its child.
    let tries = |count: usize| [varint(count as u64), vec![2; count]].concat();
    let refused = |body: Vec<u8>| {
        let refusal = decode::<Action>(&postcard_message(&body)).unwrap_err();
        assert_eq!(refusal.code, Code::InvalidRequest);
    };
    refused(tries(limits::ACTION_DEPTH));
    refused(tries(limits::ACTION_NODES));
    refused(tries(limits::ACTION_NODES + 1));
    refused(tries(900_000));
    refused(varint(u64::MAX));
    refused(varint(u64::from(u32::MAX)));
    // The byte 3 encodes `Parallel`, the fourth kind. These groups announce more children than allowed.
    refused([varint(1), vec![3], varint(u64::from(u32::MAX))].concat());
    refused([varint(2), vec![3], varint(u64::from(u32::MAX)), vec![2]].concat());
    // Nodes without a parent.
    let group = Action::Parallel(Group { actions: vec![] });
    let whole = encode(Form::Postcard, &group)[HEADER_BYTES..].to_vec();
    assert_eq!(whole, [varint(1), vec![3, 0]].concat());
    refused([varint(2), vec![3, 0], vec![3, 0]].concat());
}

fn deep(levels: usize) -> Action {
    (1..levels).fold(run_action("a"), |action, _| Action::Try(Try { action: Box::new(action) }))
}

#[test]
fn action_tree_at_limits_round_trips() {
    let action = deep(limits::ACTION_DEPTH);
    for form in [Form::Json, Form::Postcard] {
        assert_eq!(decode::<Action>(&encode(form, &action)).unwrap().0, action);
    }
    assert!(decode::<Action>(&encode(Form::Postcard, &deep(limits::ACTION_DEPTH + 1))).is_err());
    let group = |members| Action::Serial(Group { actions: vec![run_action("a"); members] });
    let widest = group(limits::ACTION_NODES - 1);
    assert_eq!(decode::<Action>(&encode(Form::Postcard, &widest)).unwrap().0, widest);
    assert!(decode::<Action>(&encode(Form::Postcard, &group(limits::ACTION_NODES))).is_err());
}

#[test]
fn faults_of_action_tree_name_their_paths() {
    let bad = Action::Timeout(Timeout {
        action: Box::new(Action::Serial(Group {
            actions: vec![run_action(""), Action::Run(Run::default())],
        })),
        timeout_ms: 0,
    });
    let faults = bad.faults("action");
    let paths: Vec<&str> = faults.iter().map(|(path, _)| path.as_str()).collect();
    let first = "action.timeout.action.serial.actions[0].run.path";
    let second = "action.timeout.action.serial.actions[1].run.path";
    assert_eq!(paths, ["action.timeout.timeout_ms", first, second]);
    assert_eq!(deep(limits::ACTION_DEPTH).faults("a"), vec![]);
    assert_eq!(deep(limits::ACTION_DEPTH + 1).faults("a").len(), 1);
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn any_valid_action_tree_round_trips(action in any_action()) {
        for form in [Form::Json, Form::Postcard] {
            let (read, _) = decode::<Action>(&encode(form, &action)).unwrap();
            prop_assert_eq!(&read, &action);
        }
        prop_assert!(action.faults("action").is_empty());
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        drop(decode::<Reports>(&body));
        drop(decode::<Perform>(&postcard_message(&body)));
        drop(decode::<Action>(&postcard_message(&body)));
        drop(decode::<ReportsReply>(&postcard_message(&body)));
        drop(decode::<Indices>(&postcard_message(&body)));
        drop(Entry::decode(&body));
    }

    #[test]
    fn name_round_trips_and_invalid_name_is_refused(name in any_name(), other in "\\PC{0,140}") {
        let domain = Domain::new(&name).unwrap();
        for form in [Form::Json, Form::Postcard] {
            prop_assert_eq!(&decode::<Wrapper<Domain>>(&encode(form, &Wrapper { value: &domain })).unwrap().0.value, &domain);
            // An invalid name is refused in a message, too.
            let known: Result<Domain, BadName> = other.parse();
            prop_assert_eq!(decode::<Wrapper<Domain>>(&encode(form, &Wrapper { value: &other })).is_ok(), known.is_ok());
        }
        let subject = Subject::Domain(domain);
        prop_assert_eq!(Subject::parse(&subject.to_string()), Some(subject));
    }

    #[test]
    fn parsed_subject_formats_as_its_text(text in "muster\\.event\\.(lrp|task|cell|domain|cluster)(\\.[0-9a-z+ .*>]{0,6})?") {
        if let Some(subject) = Subject::parse(&text) {
            prop_assert_eq!(subject.to_string(), text);
        }
    }

    #[test]
    fn indices_behave_like_a_set(members in proptest::collection::btree_set(prop_oneof![0..40_u32, u32::MAX - 5..=u32::MAX], 0..30)) {
        let indices: Indices = members.iter().copied().collect();
        prop_assert_eq!(indices.iter().collect::<Vec<_>>(), members.iter().copied().collect::<Vec<_>>());
        prop_assert_eq!(indices.len(), members.len() as u64);
        prop_assert!(members.iter().all(|index| indices.contains(*index)));
        for form in [Form::Json, Form::Postcard] {
            prop_assert_eq!(&decode::<Wrapper<Indices>>(&encode(form, &Wrapper { value: &indices })).unwrap().0.value, &indices);
        }
    }

    #[test]
    fn timestamp_arithmetic_saturates(at: u64, other: u64, nanos: u64) {
        let (moment, length) = (Timestamp(at), Duration::from_nanos(nanos));
        prop_assert!(moment + length >= moment && moment - length <= moment);
        prop_assert!(moment + Duration::MAX == Timestamp(u64::MAX));
        prop_assert!(moment.next() >= moment && Timestamp::from_millis(other) >= Timestamp(other));
        prop_assert_eq!(moment.since(Timestamp(other)).as_nanos(), u128::from(at.saturating_sub(other)));
        prop_assert!(moment.to_string().ends_with('Z'));
        let id = IdGenerator::new(other).next(moment);
        prop_assert_eq!(id.get_version_num(), 7);
    }
}

#[test]
fn indices_in_non_canonical_form_are_refused() {
    for bad in
        ["[[1,0]]", "[[0,1],[2,3]]", "[[2,3],[0,0]]", "[[0,1],[1,2]]", "[[0,4294967295],[0,0]]", "[[0]]"]
    {
        assert!(decode::<Wrapper<Indices>>(format!("{{\"value\":{bad}}}").as_bytes()).is_err(), "{bad}");
    }
    let (Wrapper { value: all }, _) = decode::<Wrapper<Indices>>(b"{\"value\":[[0,4294967295]]}").unwrap();
    assert_eq!(all.len(), 1 << 32);
    assert!(all.contains(u32::MAX) && !Indices::below(0).contains(0));
}

#[test]
fn cut_text_is_valid_and_within_limit() {
    let text = "\u{1f600}".repeat(100);
    for bytes in 0..50 {
        let cut = limits::truncate(&text, bytes);
        assert!(cut.len() <= bytes.max(" (truncated)".len()), "{bytes}");
    }
    assert_eq!(limits::truncate("abc", 3), "abc");
}

/// Returns the text of an entry with the checksum of its body.
fn with_checksum(body: &str) -> Vec<u8> {
    let body = body.strip_prefix('{').unwrap();
    let body = if body.starts_with("\"crc32c\"") { body.split_once(',').unwrap().1 } else { body };
    format!("{{\"crc32c\":\"{:08x}\",{body}", crc32c(body.as_bytes())).into_bytes()
}

#[test]
fn decode_error_distinguishes_newer_format_unknown_event_and_garbage() {
    let entry = Entry { id: EntryId(id(1)), format: cluster::FORMAT, decisions: vec![] };
    assert_eq!(Entry::decode(&entry.encode()), Ok(entry.clone()));
    assert_eq!(Entry::encode_decisions(entry.id, b""), entry.encode());
    let newer = Entry { format: cluster::FORMAT + 1, ..entry };
    let future = Err(DecodeError::NewerFormat { format: cluster::FORMAT + 1 });
    assert_eq!(Entry::decode(&newer.encode()), future);
    // Of an entry in a newer format, only the checksum and the format number have to be readable.
    assert_eq!(Entry::decode(&with_checksum(r#"{"format": 2, "decisions": {"what": "ever"}}"#)), future);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/cluster.founded.v1.json");
    let golden = fs::read_to_string(path).unwrap();
    for (known, unknown, told) in [
        ("founded.v1", "founded.v2", "cluster.founded.v2"),
        ("founded.v1", "razed.v1", "cluster.razed.v1"),
        ("\"cluster\":{", "\"web\":{", "web.founded.v1"),
    ] {
        let text = golden.replacen(known, unknown, 1);
        assert!(text != golden);
        assert_eq!(Entry::decode(&with_checksum(&text)), Err(DecodeError::UnknownEvent(told.into())));
    }
    let malformed = |bytes: &[u8]| {
        let error = Entry::decode(bytes).unwrap_err();
        assert!(matches!(error, DecodeError::Malformed(_)), "{error}");
    };
    malformed(b"");
    malformed(b"null");
    malformed(b"{}");
    malformed(b"\xff\xff");
    malformed(br#"{"format": 99, "decisions": {"what": "ever"}}"#);
    malformed(&with_checksum("{}"));
    malformed(&with_checksum(&golden.replace("\"shards\":32", "\"shards\":\"32\"")));
    malformed(&with_checksum(&golden.replace("\"shards\":32", "\"shards\":65536")));
    malformed(&with_checksum(&format!("{golden}x")));
    malformed("[".repeat(100_000).as_bytes());
    malformed(&with_checksum(&format!("{{{}", "[".repeat(100_000))));
    malformed(&vec![b' '; 3 * limits::ENTRY_BYTES]);
    for length in 0..golden.len() {
        let error = Entry::decode(&golden.as_bytes()[..length]).unwrap_err();
        assert!(matches!(error, DecodeError::Malformed(_) | DecodeError::Damaged { .. }), "{error}");
    }
}

/// Flips each bit of each golden entry. The result is always damaged or malformed, never a valid entry of
/// this format or of a newer format.
#[test]
fn entry_with_flipped_bit_is_damaged() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    for path in files.filter(|path| !path.ends_with(crate::golden::BUNDLE_FILE)) {
        let golden = fs::read(&path).unwrap();
        for bit in 0..golden.len() * 8 {
            let mut bytes = golden.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = Entry::decode(&bytes).unwrap_err();
            let digits = (11..19).contains(&(bit / 8)) || bit / 8 >= 21;
            match error {
                DecodeError::Damaged { .. } => assert!(digits, "{path:?}, bit {bit}"),
                DecodeError::Malformed(_) => assert!(bit / 8 < 21, "{path:?}, bit {bit}"),
                DecodeError::NewerFormat { .. } | DecodeError::UnknownEvent(_) => {
                    panic!("{path:?}, bit {bit}")
                }
            }
        }
    }
}

#[test]
fn cluster_id_round_trips_through_text() {
    let cluster = ClusterId(id(0x1234));
    assert_eq!(cluster.to_string().parse::<ClusterId>().unwrap(), cluster);
    assert!("not-an-id".parse::<ClusterId>().is_err());
}
