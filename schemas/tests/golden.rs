//! Golden files: one for every version of every event, written once and never changed.
//!
//! `MUSTER_WRITE_GOLDEN=1 cargo test -p schemas golden` writes missing files. It never changes an existing
//! golden file: an event whose shape changes needs a new version beside the old one.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use fixtures::pages::{WRITE_VARIABLE, may_write};
use schemars::JsonSchema;
use schemas::action::{
    Action, ChecksumAlgorithm, Download, EmitProgress, Group, ResourceLimits, Run, Sealed, Secret, Timeout,
    Try, Upload, Variable,
};
use schemas::attributes::AttributeName;
use schemas::cell::Presence;
use schemas::cluster::Role;
use schemas::container::{Epoch, NetInfo};
use schemas::crash::{Attempts, Restart};
use schemas::definition::{
    Definition, DesiredLrp, DesiredLrpUpdate, DesiredParameterised, DesiredPeriodic, DesiredTask, Mode,
    Network, Overflow, Overlap, PayloadRule, Placement, Routes, Sandbox, TaskDefinition,
};
use schemas::entry::{Aggregate, Entry, Event};
use schemas::evaluation::{CancelReason, InitialStatus, Trigger};
use schemas::exec::{Exec, Terminal, TerminalSize};
use schemas::isolation::{Isolation, IsolationLayer};
use schemas::names::{
    CellId, ClientName, ClusterId, DecisionId, DefinitionId, DispatchKey, Domain, EntryId, EvaluationId,
    FolderId, Incarnation, ParameterisedGuid, PeriodicGuid, PlacementTag, ProcessGuid, RequestId, ServiceId,
    Stack, TaskGuid, Zone,
};
use schemas::parameterised::{self, Dispatch, WithdrawReason};
use schemas::periodic::{self, LaunchReason, SkipReason};
use schemas::placement::{Candidate, Eligibility, Explanation};
use schemas::policy::{
    FailureAction, Parallelism, Policies, Ratio, RestartCondition, RestartPolicy, UpdateOrder, UpdatePolicy,
};
use schemas::priority::Priority;
use schemas::quota::Quotas;
use schemas::resources::{CellClass, Constraint, Resources};
use schemas::rules::{Affinity, Operator, Rule, Rules, Spread};
use schemas::schedule::Schedule;
use schemas::stamp::Actor;
use schemas::{
    Decision, Places, Position, Timestamp, actual, cell, cluster, desired, domain, evacuating, evaluation,
    rollout, task,
};
use serde_json::Value;

use fixtures::definition_id;

use crate::common::{id, instance, net_info, place};

/// The JSON Schemas in the folder of the golden files.
pub(crate) const BUNDLE_FILE: &str = "bundle.json";

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn explanation() -> Option<Box<Explanation>> {
    Some(Box::new(Explanation {
        cells: 3,
        rejected: [("memory".to_owned(), 1), ("stack".to_owned(), 1)].into(),
        best: vec![Candidate {
            cell_id: CellId::new("c1").unwrap(),
            zone: Zone::new("z1").unwrap(),
            spread: 4,
            affinity: -20,
            siblings_in_zone: 1,
            siblings_on_cell: 0,
            used_permille: 125,
        }],
        eligibility: eligibility(),
    }))
}

fn eligibility() -> Option<Box<Eligibility>> {
    Some(Box::new(Eligibility {
        observed_position: Position(41),
        eligible: vec![CellClass(7)],
        ineligible: vec![CellClass(0xfedc_ba98_7654_3210)],
        unlisted: 0,
        escaped: vec!["distinct_cell".to_owned()],
    }))
}

fn variables() -> Vec<Variable> {
    let sealed = Sealed { key: "k1".into(), data: "c2VhbGVk".into() };
    vec![
        Variable { name: "LANG".into(), value: Secret::Plain("C.UTF-8".into()) },
        Variable { name: "PASSWORD".into(), value: Secret::Sealed(sealed.into()) },
    ]
}

/// Returns a tree with every kind of action.
fn action() -> Action {
    let run = |path: &str| {
        Action::Run(Run {
            path: path.into(),
            args: vec!["--port".into(), "8080".into()],
            dir: "app".into(),
            env: variables(),
            suppress_log_output: true,
            user: "vcap".into(),
            log_source: "APP".into(),
            resource_limits: ResourceLimits { nofile: Some(16_384) },
        })
    };
    let boxed = |path| Box::new(run(path));
    Action::Codependent(Group {
        actions: vec![
            Action::Serial(Group { actions: vec![run("prepare")] }),
            Action::Parallel(Group { actions: vec![run("serve"), run("watch")] }),
            Action::Timeout(Timeout { action: boxed("warm"), timeout_ms: 60_000 }),
            Action::Try(Try { action: boxed("announce") }),
            Action::EmitProgress(EmitProgress {
                action: boxed("migrate"),
                start_message: "migrating".into(),
                success_message: "migrated".into(),
                failure_message_prefix: "not migrated".into(),
                log_source: "STG".into(),
            }),
            Action::Download(download()),
            Action::Upload(Upload {
                artifact: "droplet".into(),
                from: "droplet.tgz".into(),
                to: Secret::Plain("https://blobs.example.com/droplets/1".into()),
                log_source: "STG".into(),
                user: "vcap".into(),
            }),
        ],
    })
}

fn download() -> Download {
    Download {
        artifact: "app".into(),
        from: Secret::Sealed(Sealed { key: "k1".into(), data: "c2VhbGVk".into() }.into()),
        to: "app".into(),
        cache_key: "app-1".into(),
        log_source: "STG".into(),
        user: "vcap".into(),
        checksum_algorithm: Some(ChecksumAlgorithm::Sha1),
        checksum_value: "da39a3ee5e6b4b0d3255bfef95601890afd80709".into(),
    }
}

fn rules() -> Rules {
    let rule = |attribute: &str, operator, value: &str| Rule {
        attribute: AttributeName::new(attribute).ok(),
        operator,
        value: value.to_owned().into(),
    };
    Rules {
        constraints: vec![
            rule("os.name", Operator::Equal, "linux"),
            rule("kernel.version", Operator::Version, ">= 5.15"),
            rule("", Operator::DistinctCell, "2"),
        ],
        affinities: vec![Affinity { rule: rule("rack", Operator::NotEqual, "r1"), weight: -20 }],
        spread: vec![Spread {
            attribute: AttributeName::new("rack").unwrap(),
            weight: 50,
            targets: [("r1".to_owned(), 60)].into(),
        }],
    }
}

fn constraint() -> Constraint {
    let tags = ["gpu", "isolated"].map(|tag| PlacementTag::new(tag).unwrap());
    Constraint {
        stack: Some(Stack::new("linux").unwrap()),
        placement_tags: tags.into(),
        isolation: [IsolationLayer::Files, IsolationLayer::Memory].into(),
        rules: Some(Box::new(rules())),
    }
}

fn sandbox() -> Option<Arc<Sandbox>> {
    Some(Arc::new(Sandbox {
        root_fs: "oci:/srv/images/web:1.2".into(),
        network: Network::None,
        cached_dependencies: vec![download()],
        log_guid: "app-7".into(),
        log_source: "APP/PROC/WEB".into(),
        metrics_guid: "app-8".into(),
    }))
}

fn routes() -> Routes {
    [("http".to_owned(), r#"[{"hostnames":["a.example.com"],"port":8080}]"#.to_owned())].into()
}

pub(crate) fn lrp() -> DesiredLrp {
    DesiredLrp {
        process_guid: ProcessGuid::new("web").unwrap(),
        domain: Domain::new("apps").unwrap(),
        mode: Mode::Replicated,
        instances: 3,
        priority: Priority::new(75).unwrap(),
        routes: routes(),
        annotation: "first".into(),
        policies: policies(),
        definition_id: DefinitionId::new("web-v1").unwrap(),
        definition: Arc::new(Definition {
            constraint: constraint().into(),
            environment_variables: variables(),
            setup: Some(action().into()),
            monitor: Some(action().into()),
            start_timeout_ms: 60_000,
            memory_mb: 256,
            disk_mb: 1024,
            cpu_weight: 100,
            ports: vec![8080, 2222].into(),
            grace_period_ms: 15_000,
            sandbox: sandbox(),
            ..Definition::new(action())
        }),
    }
}

pub(crate) fn periodic() -> DesiredPeriodic {
    DesiredPeriodic {
        periodic_guid: PeriodicGuid::new("report").unwrap(),
        domain: Domain::new("apps").unwrap(),
        schedule: Schedule::new("30 3 * * MON-FRI", "Europe/Berlin").unwrap(),
        overlap: Overlap::Queued,
        definition: job().definition,
    }
}

pub(crate) fn parameterised() -> DesiredParameterised {
    DesiredParameterised {
        parameterised_guid: ParameterisedGuid::new("resize").unwrap(),
        domain: Domain::new("apps").unwrap(),
        payload: PayloadRule::Required,
        required_parameters: ["width".to_owned()].into(),
        optional_parameters: ["height".to_owned()].into(),
        concurrency: Some(4),
        overflow: Overflow::Refused,
        definition: job().definition,
    }
}

/// Returns a program to run in a container.
pub(crate) fn exec() -> Exec {
    Exec {
        path: "sh".into(),
        args: vec!["-c".into(), "ls".into()],
        dir: "app".into(),
        user: "vcap".into(),
        terminal: Some(Terminal { kind: "xterm".into(), size: TerminalSize { rows: 24, columns: 80 } }),
    }
}

pub(crate) fn dispatch() -> Dispatch {
    Dispatch {
        payload: Some(schemas::spec::payload(b"cat.png")),
        parameters: vec![Variable { name: "width".into(), value: Secret::Plain("640".into()) }],
        key: Some(DispatchKey::new("cat-640").unwrap()),
        priority: Priority::new(70),
    }
}

pub(crate) fn job() -> DesiredTask {
    DesiredTask {
        task_guid: TaskGuid::new("job").unwrap(),
        domain: Domain::new("apps").unwrap(),
        definition: Arc::new(TaskDefinition {
            constraint: constraint(),
            environment_variables: variables(),
            action: action(),
            memory_mb: 64,
            disk_mb: 128,
            cpu_weight: 50,
            result_file: "out/result".into(),
            completion_callback_url: Some(Secret::Plain("https://example.com/done".into())),
            annotation: "nightly".into(),
            priority: Priority::new(20).unwrap(),
            placement: Placement::Queue { deadline_ms: 600_000 },
            grace_period_ms: 5_000,
            sandbox: sandbox(),
        }),
    }
}

fn several_places(definition: &str) -> Places {
    Places { indices: [0, 1, 2, 5].into_iter().collect(), definition_id: definition_id(definition) }
}

fn process_events() -> Vec<Event> {
    let by = instance(0xa1, "c1");
    let (place, places) = (|| place(1, "web-v1"), || several_places("web-v1"));
    let update = DesiredLrpUpdate {
        instances: Some(5),
        priority: Priority::new(80),
        routes: Some(routes()),
        annotation: Some("second".into()),
        policies: Some(policies()),
    };
    let web_v2 = || definition_id("web-v2");
    let desired = [
        desired::Event::Desired(Box::new(lrp())),
        desired::Event::Updated(update),
        desired::Event::DefinitionAdded { definition_id: web_v2(), definition: lrp().definition },
        desired::Event::Activated { definition_id: web_v2() },
        desired::Event::HealthyChanged { definition_id: web_v2() },
        desired::Event::Pruned { definition_ids: vec![definition_id("web-v1")] },
        desired::Event::CellsChanged {
            cells: vec![(4, desired::GlobalCell { cell_id: CellId::new("c5").unwrap(), cordoned: false })],
            removed: [0, 2].into_iter().collect(),
        },
        desired::Event::Removed {},
    ];
    let actual = [
        actual::Event::Created { places: places() },
        actual::Event::Claimed { place: place(), by: by.clone(), placement: explanation() },
        actual::Event::Started {
            place: place(),
            by: by.clone(),
            net: net_info(61_001),
            isolation: Isolation::FULL.without(IsolationLayer::Landlock),
        },
        actual::Event::Crashed {
            place: place(),
            by: by.clone(),
            reason: "exited with status 1".into(),
            exit_status: Some(1),
            crash_count: 4,
            restart: Restart::At(Timestamp::from_millis(61_000)),
            attempts: Some(Attempts { counted: 2, allowed: 3 }),
        },
        actual::Event::ExecStarted { place: place(), by: by.clone(), exec: Box::new(exec()) },
        actual::Event::PlacementFailed {
            places: places(),
            error: "insufficient resources: memory".into(),
            explanation: explanation(),
        },
        actual::Event::Unclaimed { places: places(), cause: actual::UnclaimReason::CellLost },
        actual::Event::StopRequested { places: places(), cause: actual::StopReason::Scale },
        actual::Event::Removed { places: places(), cause: actual::StopReason::Stopped },
    ];
    let evacuating = [
        evacuating::Event::Set {
            place: place(),
            by,
            net: NetInfo { address: "fd00::1".into(), ..NetInfo::default() },
            expires_at: Timestamp(1_760_000_600_000_000_000),
        },
        evacuating::Event::Removed { place: place(), cause: evacuating::RemovalReason::Replaced },
    ];
    let rollout = rollout_events().into_iter().map(Event::Rollout);
    let desired = desired.into_iter().map(Event::Desired);
    let actual = actual.into_iter().map(Event::Actual);
    let evacuating = evacuating.into_iter().map(Event::Evacuating);
    desired.chain(actual).chain(evacuating).chain(rollout).collect()
}

fn rollout_events() -> Vec<rollout::Event> {
    use rollout::{Event, Kind, PauseReason};
    let reason = || "exited with status 1".to_owned();
    vec![
        Event::Started {
            kind: Kind::Update,
            target: definition_id("web-v2"),
            rollback_to: Some(definition_id("web-v1")),
            total: 3,
            policy: Box::new(policies().update),
            reason: "restarted".into(),
        },
        Event::IndicesStarted { indices: [0, 1, 2, 5].into_iter().collect() },
        Event::FellBack { index: 0 },
        Event::TookOver { index: 0 },
        Event::Replaced { index: 0, delay_until: Timestamp(1_760_000_005_000_000_000) },
        Event::Failed { index: 1, reason: reason() },
        Event::Stalled { index: 1, retry_at: Timestamp(1_760_000_060_000_000_000), reason: reason() },
        Event::Paused { cause: PauseReason::Failures, reason: reason() },
        Event::Resumed {},
        Event::Completed {},
    ]
}

/// Returns policies in which no field has its default value.
fn policies() -> Policies {
    let update = UpdatePolicy {
        parallelism: Parallelism::Percent(25),
        delay_ms: 5_000,
        order: UpdateOrder::StopFirst,
        failure_action: FailureAction::Rollback,
        monitor_ms: 10_000,
        max_failure_ratio: Ratio::try_from(0.25).unwrap(),
        index_deadline_ms: 60_000,
        pause_after: Some(1),
    };
    let mut rollback = update.clone();
    rollback.parallelism = Parallelism::Count(2);
    rollback.failure_action = FailureAction::Hold;
    let restart = RestartPolicy {
        condition: RestartCondition::OnFailure,
        delay_ms: Some(5_000),
        max_attempts: Some(3),
        window_ms: 600_000,
    };
    Policies { update, rollback, min_running: Some(1), history_limit: Some(10), restart }
}

fn task_events() -> Vec<Event> {
    let by = instance(0xb1, "c2");
    let reason = "insufficient resources: memory".to_owned();
    let evaluation_id = EvaluationId(id(0xe1));
    let evaluation = [
        evaluation::Event::Created {
            number: 1,
            trigger: Trigger::Queued,
            initial_status: InitialStatus::Blocked { reason: reason.clone(), eligibility: eligibility() },
            previous: Some(evaluation_id),
        },
        evaluation::Event::Joined { evaluation: evaluation_id, trigger: Trigger::CellLost },
        evaluation::Event::DelayChanged { evaluation: evaluation_id, until: Timestamp(6) },
        evaluation::Event::Due { evaluation: evaluation_id },
        evaluation::Event::Redelivered { evaluation: evaluation_id, delivery: 2, until: Timestamp(7) },
        evaluation::Event::Blocked {
            evaluation: evaluation_id,
            reason: reason.clone(),
            eligibility: eligibility(),
        },
        evaluation::Event::Completed {
            evaluation: evaluation_id,
            placed: 2,
            queued: 1,
            rejected: 0,
            blocked: Some(EvaluationId(id(0xe2))),
        },
        evaluation::Event::Failed { evaluation: evaluation_id, reason: reason.clone() },
        evaluation::Event::Canceled { evaluation: evaluation_id, reason: CancelReason::Superseded },
        evaluation::Event::Retried { evaluation: evaluation_id, blocked: Some(reason.clone()) },
    ];
    let task = [
        task::Event::Desired(Box::new(job())),
        task::Event::Started { by: by.clone(), placement: explanation(), isolation: Isolation::FULL },
        task::Event::PlacementFailed { error: reason, explanation: explanation() },
        task::Event::Completed {
            by: Some(by),
            outcome: task::Outcome::Succeeded { result: "42\n".into() },
            explanation: explanation(),
        },
        task::Event::Resolving {},
        task::Event::CallbackTried { attempt: 2, outcome: task::CallbackResult::Answered(503) },
        task::Event::Demoted {},
        task::Event::Deleted {},
    ];
    evaluation.into_iter().map(Event::Evaluation).chain(task.into_iter().map(Event::Task)).collect()
}

fn periodic_events() -> Vec<Event> {
    let (due, next) = (Timestamp(1_760_000_100_000_000_000), Some(Timestamp(1_760_086_500_000_000_000)));
    let task_guid = TaskGuid::new("report--1760000100").unwrap();
    let events = [
        periodic::Event::Desired { desired: Box::new(periodic()), next },
        periodic::Event::Updated { desired: Box::new(periodic()), next },
        periodic::Event::Launched { due, task_guid, reason: LaunchReason::CatchUp, next },
        periodic::Event::Skipped { from: due, until: due, count: 1, reason: SkipReason::StillRunning, next },
        periodic::Event::Queued { due, next },
        periodic::Event::Paused {},
        periodic::Event::Resumed { next },
        periodic::Event::Removed {},
    ];
    events.into_iter().map(Event::Periodic).collect()
}

fn parameterised_events() -> Vec<Event> {
    let task_guid = TaskGuid::new("resize--dispatch-17").unwrap();
    let evicted_key = Some(DispatchKey::new("dog-640").unwrap());
    let events = [
        parameterised::Event::Desired { desired: Box::new(parameterised()) },
        parameterised::Event::Updated { desired: Box::new(parameterised()) },
        parameterised::Event::Dispatched { number: 17, dispatch: Box::new(dispatch()), evicted_key },
        parameterised::Event::Repeated { number: 17 },
        parameterised::Event::Launched { number: 17, task_guid },
        parameterised::Event::Withdrawn { numbers: vec![18, 20], reason: WithdrawReason::Removed },
        parameterised::Event::Removed {},
    ];
    events.into_iter().map(Event::Parameterised).collect()
}

fn other_events() -> Vec<Event> {
    let presence = Presence {
        folder: FolderId(id(0xc2)),
        incarnation: Incarnation(id(0xc1)),
        zone: Zone::new("z1").unwrap(),
        stack: Stack::new("linux").unwrap(),
        placement_tags: constraint().placement_tags,
        attributes: fixtures::attributes(&[("os.name", "linux"), ("rack", "r1")]),
        total: Resources { memory_mb: 65_536, disk_mb: 1_048_576, containers: 250, ports: 10_000 },
    };
    let cell = [
        cell::Event::Appeared(presence),
        cell::Event::EvacuationRequested {},
        cell::Event::EvacuationWithdrawn {},
        cell::Event::Cordoned {},
        cell::Event::Uncordoned {},
        cell::Event::Evacuating {},
        cell::Event::Resumed {},
        cell::Event::Healthy {},
        cell::Event::Unhealthy { reason: "no container could be made for 10 s".into() },
        cell::Event::Left {},
        cell::Event::Disappeared { reason: "silent for 15 s".into() },
        cell::Event::Forgotten {},
    ];
    let cluster = [
        cluster::Event::Founded { id: ClusterId(id(0xd1)), shards: 32, format: 1 },
        cluster::Event::Elected { role: Role::Bbs, id: ServiceId::new("bbs-1").unwrap(), term: 7 },
        cluster::Event::OrdinalAssigned { cell_id: CellId::new("c1").unwrap(), ordinal: 0 },
        cluster::Event::OrdinalFreed { cell_id: CellId::new("c1").unwrap(), ordinal: 0 },
        cluster::Event::FormatRaised { format: 1 },
        cluster::Event::PreemptionSwitched { enabled: true },
        cluster::Event::Resharded { shards: 8 },
        cluster::Event::EntryQuarantined {
            position: Position(4711),
            reason: "written by a trial of a later version".into(),
        },
    ];
    let expires_at = Some(Timestamp(1_760_000_120_000_000_000));
    let refreshed = Event::Domain(domain::Event::Refreshed { expires_at });
    let quotas =
        Quotas { instances: 40_000, processes_and_tasks: 10_000, commands_per_second: 50, exec_sessions: 5 };
    let limited = Event::Domain(domain::Event::Limited { quotas });
    let cell = cell.into_iter().map(Event::Cell);
    let cluster = cluster.into_iter().map(Event::Cluster);
    [refreshed, limited].into_iter().chain(cell).chain(cluster).collect()
}

fn every_event() -> Vec<Event> {
    [process_events(), task_events(), periodic_events(), parameterised_events(), other_events()].concat()
}

/// Returns an entry with one decision that contains this event, with every optional field set.
fn entry_with(event: Event) -> Entry {
    let at = Timestamp(1_760_000_000_123_456_789);
    let epoch = Epoch(Timestamp(1_759_999_999_000_000_001));
    let domain = Domain::new("apps").unwrap();
    let (c1, bbs) = (CellId::new("c1").unwrap(), ServiceId::new("bbs-1").unwrap());
    let name = ClientName::new("ci").unwrap();
    let guid = ProcessGuid::new("web").unwrap();
    let process = Aggregate::Process { guid, domain: domain.clone(), epoch };
    let task = Aggregate::Task { guid: TaskGuid::new("job").unwrap(), domain: domain.clone(), epoch };
    let guid = PeriodicGuid::new("report").unwrap();
    let periodic = Aggregate::Periodic { guid, domain: domain.clone(), epoch };
    let guid = ParameterisedGuid::new("resize").unwrap();
    let parameterised = Aggregate::Parameterised { guid, domain: domain.clone(), epoch };
    let client = Actor::Client { domain: domain.clone(), name };
    let (aggregate, actor) = match &event {
        Event::Desired(_) => (process, client),
        Event::Actual(_) | Event::Evacuating(_) | Event::Rollout(_) => (process, Actor::Cell(c1)),
        Event::Evaluation(_) => (process, Actor::Auctioneer(ServiceId::new("auctioneer-1").unwrap())),
        Event::Task(_) => (task, client),
        Event::Periodic(_) => (periodic, client),
        Event::Parameterised(_) => (parameterised, client),
        Event::Domain(_) => (Aggregate::Domain(domain), client),
        Event::Cell(_) => (Aggregate::Cell(c1), Actor::Bbs(bbs)),
        Event::Cluster(_) => (Aggregate::Cluster, Actor::Bbs(bbs)),
    };
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let decision = Decision {
        id: DecisionId(id(0x0d)),
        aggregate,
        version: 9,
        at,
        actor,
        request_id: Some(RequestId::new("r-1").unwrap()),
        request_digest: Some("lrp.update#00000000deadbeef".into()),
        cause: Some(DecisionId(id(0x0c))),
        correlation: DecisionId(id(0x0b)),
        reason: Some("release 7".into()),
        traceparent: Some(traceparent.into()),
        events: vec![event],
    };
    Entry { id: EntryId(id(0x0e)), format: 1, decisions: vec![decision] }
}

/// Returns every event type in the JSON Schema, which covers everything that can be written.
fn schema_event_types() -> BTreeSet<String> {
    let schema = schemars::schema_for!(Entry).to_value();
    let defs = &schema["$defs"];
    let target = |reference: &Value| {
        let name = reference["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
        defs[name]["oneOf"].as_array().unwrap()
    };
    let tagged = |variant: &Value| -> (String, Value) {
        let (name, inner) = variant["properties"].as_object().unwrap().iter().next().unwrap();
        (name.clone(), inner.clone())
    };
    let mut types = BTreeSet::new();
    for machine in defs["Event"]["oneOf"].as_array().unwrap() {
        let (machine, events) = tagged(machine);
        for event in target(&events) {
            types.insert(format!("{machine}.{}", tagged(event).0));
        }
    }
    types
}

fn golden_files() -> BTreeSet<String> {
    let names = fs::read_dir(folder()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != BUNDLE_FILE).map(|name| name.trim_end_matches(".json").to_owned()).collect()
}

#[test]
fn events_encode_to_and_decode_from_golden_files() {
    for event in every_event() {
        let path = folder().join(format!("{}.json", event.type_name()));
        let entry = entry_with(event);
        if !path.exists() && may_write() {
            fs::write(&path, entry.encode()).unwrap();
        }
        let golden =
            fs::read(&path).unwrap_or_else(|_| panic!("{path:?} is missing: {WRITE_VARIABLE}=1 writes it"));
        let golden_text = String::from_utf8_lossy(&golden);
        assert_eq!(Entry::decode(&golden).as_ref(), Ok(&entry), "{path:?} decodes to another entry");
        assert_eq!(
            String::from_utf8_lossy(&entry.encode()),
            golden_text,
            "an event that changes its shape needs a new version: {path:?}"
        );
    }
}

/// Returns the words of an enum without content, in the order of its variants.
fn words<T: JsonSchema>() -> String {
    let schema = schemars::schema_for!(T).to_value();
    let words = schema["oneOf"].as_array().unwrap().iter().map(|word| word["const"].as_str().unwrap());
    words.collect::<Vec<_>>().join(" ")
}

/// The log contains these words. A word never changes. A new word needs a new version of each event that can
/// contain it.
#[test]
fn words_of_stored_enums_are_frozen() {
    use schemas::crash;

    let frozen = [
        (words::<ChecksumAlgorithm>(), "md5 sha1 sha256"),
        (
            words::<actual::StopReason>(),
            "removed scale cell_unfit retired superseded undesired stopped crashed cell_lost evacuated \
             replaced rollout_failed preempted",
        ),
        (words::<actual::UnclaimReason>(), "crash restart cell_lost evacuation"),
        (words::<Role>(), "bbs auctioneer"),
        (words::<crash::NoRestartReason>(), "succeeded restart_disabled attempts_exhausted crash_limit"),
        (words::<Mode>(), "replicated global"),
        (words::<Network>(), "host none"),
        (words::<Overflow>(), "queued refused"),
        (words::<Overlap>(), "allowed skipped queued"),
        (words::<PayloadRule>(), "required optional forbidden"),
        (words::<evacuating::RemovalReason>(), "replaced removed expired cell_lost"),
        (words::<CancelReason>(), "nothing_left superseded"),
        (
            words::<Trigger>(),
            "desire remove scale stop crash restart cell_lost evacuation rollout rolling_update cells_changed \
             periodic preemption queued attempts follow_up convergence",
        ),
        (words::<WithdrawReason>(), "requested removed"),
        (words::<LaunchReason>(), "due catch_up queued requested"),
        (words::<SkipReason>(), "missed still_running already_queued abandoned"),
        (words::<FailureAction>(), "hold pause continue rollback"),
        (words::<RestartCondition>(), "any on-failure none"),
        (words::<UpdateOrder>(), "start-first stop-first"),
        (words::<rollout::Kind>(), "update rollback"),
        (words::<rollout::PauseReason>(), "requested canary failures"),
        (
            words::<IsolationLayer>(),
            "files processes ipc hostname users syscalls landlock memory cpu pids disk",
        ),
    ];
    for (words, frozen) in frozen {
        assert_eq!(words, frozen);
    }
}

#[test]
fn golden_files_match_event_types() {
    let types = schema_event_types();
    let named: BTreeSet<String> = every_event().iter().map(|event| event.type_name().to_owned()).collect();
    assert_eq!(named, types, "golden.rs has no sample of an event, or type_name() disagrees with its tag");
    let known: BTreeSet<String> = schemas::stored::Event::types().map(ToString::to_string).collect();
    assert_eq!(known, types, "TYPES differs from the event types that can be read");
    if !may_write() {
        assert_eq!(golden_files(), types);
    }
}

#[test]
fn event_body_is_valid_against_published_schema() {
    let published = schemas::published::PublishedSchemas::new();
    for event in every_event() {
        let schema = published.show(event.type_name()).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let data: Value = serde_json::from_str(&event.body()).unwrap();
        let faults: Vec<String> = validator.iter_errors(&data).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{}: {faults:?}", event.type_name());
        assert!(!validator.is_valid(&Value::Null), "{}", event.type_name());
    }
}

#[test]
fn golden_files_are_valid_against_schema() {
    let schema = schemas::published::PublishedSchemas::new().show("entry").unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for name in golden_files() {
        let text = fs::read_to_string(folder().join(format!("{name}.json"))).unwrap();
        let golden: Value = serde_json::from_str(&text).unwrap();
        let faults: Vec<String> = validator.iter_errors(&golden).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{name}: {faults:?}");
        let other: Value = serde_json::from_str(&text.replace(".v1\"", ".v0\"")).unwrap();
        let unknown = golden.to_string().contains(".v1\"");
        assert!(unknown && !validator.is_valid(&other), "{name} with an unknown version is valid");
    }
}
