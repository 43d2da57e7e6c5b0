//! Findings about the legality of single decisions.
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use audit::{Kind, Law};
use fixtures::{cell_id, definition_id, domain, instance, place, process_guid, service_id, task_guid};
use projections::World;
use projections::reader::empty_entry;
use schemas::actual::{self, StopReason, UnclaimReason};
use schemas::cluster::{self, FORMAT};
use schemas::container::Epoch;
use schemas::entry::{Aggregate, Event};
use schemas::evacuating::{self, RemovalReason};
use schemas::isolation::Isolation;
use schemas::names::{ClientName, ClusterId, DecisionId, EntryId};
use schemas::policy::{Parallelism, UpdatePolicy};
use schemas::stamp::Actor;
use schemas::task::{self, Outcome};
use schemas::{
    Decision, Entry, Indices, Place, Places, Position, Timestamp, desired, domain as domains, rollout,
};
use uuid::Uuid;

/// A log whose decisions are judged (checked for legality) when they are added.
#[derive(Clone, Default)]
struct Log {
    world: World,
    law: Law,
    position: u64,
}

impl Log {
    /// Adds an entry with one decision. Returns the findings.
    fn add(&mut self, decision: Decision) -> Vec<(Kind, String)> {
        self.position += 1;
        let position = Position(self.position);
        let id = EntryId(Uuid::from_u128(1_000_000 + u128::from(self.position)));
        let entry = Entry { id, format: FORMAT, decisions: vec![decision] };
        let found = self.law.judge(&self.world, position, &entry);
        self.world.fold(position, &entry);
        found.into_iter().map(|finding| (finding.kind, finding.detail)).collect()
    }

    fn add_legal(&mut self, decision: Decision) {
        let what = format!("{decision:?}");
        assert_eq!(self.add(decision), [], "{what}");
    }

    /// Adds a quarantined entry.
    fn quarantine(&mut self, subject: &str, bytes: &[u8]) {
        self.position += 1;
        self.law.quarantine(subject, bytes);
        self.world.fold(Position(self.position), &empty_entry());
    }

    /// Returns the kinds of findings that this decision would cause next.
    fn kinds_if_added(&self, decision: Decision) -> Vec<Kind> {
        self.clone().add(decision).into_iter().map(|(kind, _)| kind).collect()
    }
}

fn client() -> Actor {
    Actor::Client { domain: domain("shop"), name: ClientName::new("ada").unwrap() }
}

fn cell(name: &str) -> Actor {
    Actor::Cell(cell_id(name))
}

/// Returns a decision that starts a chain. The time of the decision is its number, in seconds.
fn decision(number: u64, version: u64, aggregate: Aggregate, actor: Actor, events: Vec<Event>) -> Decision {
    let (id, at) = (Uuid::from_u128(number.into()), Timestamp::from_millis(number * 1_000));
    Decision { version, actor, ..fixtures::decision(id, at, aggregate, events) }
}

/// Returns the process `web` in the epoch that started in this second.
fn web_process(life: u64) -> Aggregate {
    let epoch = Epoch(Timestamp::from_millis(life * 1_000));
    Aggregate::Process { guid: process_guid("web"), domain: domain("shop"), epoch }
}

fn first_slot() -> Place {
    place(0, "web")
}

fn desire() -> Vec<Event> {
    let places = Places { indices: Indices::below(1), definition_id: definition_id("web") };
    vec![
        Event::Desired(desired::Event::Desired(Box::new(fixtures::lrp("web", "shop", 1)))),
        Event::Actual(actual::Event::Created { places }),
    ]
}

fn claimed(number: u64, on: &str) -> Event {
    Event::Actual(actual::Event::Claimed { place: first_slot(), by: instance(number, on), placement: None })
}

fn started(number: u64, on: &str) -> Event {
    Event::Actual(actual::Event::Started {
        place: first_slot(),
        by: instance(number, on),
        net: fixtures::net_info(1),
        isolation: Isolation::NONE,
    })
}

fn removed(cause: StopReason) -> Event {
    Event::Actual(actual::Event::Removed { places: first_slot().into(), cause })
}

fn unclaimed(cause: UnclaimReason) -> Event {
    Event::Actual(actual::Event::Unclaimed { places: first_slot().into(), cause })
}

/// Returns a log with a process whose only instance is claimed by cell c1.
fn claimed_log() -> Log {
    let mut log = Log::default();
    log.add_legal(decision(1, 1, web_process(1), client(), desire()));
    log.add_legal(decision(2, 2, web_process(1), cell("c1"), vec![claimed(1, "c1")]));
    log
}

/// Returns the bytes of an entry in the form of a later version. The entry has an event that this version
/// does not know.
fn newer_entry_bytes(decision: Decision) -> Vec<u8> {
    let entry = Entry { id: EntryId(decision.id.0), format: FORMAT, decisions: vec![decision] };
    String::from_utf8(entry.encode()).unwrap().replace("claimed.v1", "painted.v9").into_bytes()
}

#[test]
fn decisions_after_quarantined_entry_are_not_judged_until_next_epoch() {
    let aside = decision(3, 3, web_process(1), cell("c2"), vec![claimed(2, "c2")]);
    let next = Decision {
        cause: Some(aside.id),
        correlation: aside.correlation,
        ..decision(4, 4, web_process(1), cell("c2"), vec![started(2, "c2")])
    };
    let mut without = claimed_log();
    without.position += 1;
    let found: Vec<Kind> = without.add(next.clone()).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(found, [Kind::Cause, Kind::Version], "without a quarantine there are findings");

    let unreadable = br#"{"crc32c":"00000000","format":99,"decisions":{"new":"shape"}}"#.to_vec();
    for bytes in [newer_entry_bytes(aside), unreadable] {
        let mut log = claimed_log();
        let subject = web_process(1).subject(log.world.shards()).to_string();
        log.quarantine(&subject, &bytes);
        // The next decision may follow the quarantined entry (version 4) or the state before it (version 3).
        let back = decision(4, 3, web_process(1), cell("c2"), vec![unclaimed(UnclaimReason::Evacuation)]);
        assert_eq!(log.kinds_if_added(back), []);
        log.add_legal(next.clone());
        let skips = decision(5, 6, web_process(1), client(), vec![]);
        assert_eq!(log.kinds_if_added(skips), [Kind::Version], "later versions are checked again");
        log.add_legal(decision(5, 5, web_process(1), cell("c3"), vec![removed(StopReason::Stopped)]));
        log.add_legal(decision(
            6,
            6,
            web_process(1),
            client(),
            vec![Event::Desired(desired::Event::Removed {})],
        ));
        // All decisions of the next epoch are judged.
        log.add_legal(decision(7, 7, web_process(7), client(), desire()));
        let forged = decision(8, 8, web_process(7), cell("c1"), vec![claimed(3, "c2")]);
        assert_eq!(log.kinds_if_added(forged), [Kind::Illegal]);
        log.add_legal(decision(8, 8, web_process(7), cell("c2"), vec![claimed(3, "c2")]));
    }
}

#[test]
fn quarantine_does_not_affect_other_aggregates() {
    let mut log = claimed_log();
    let other = |version, events| {
        let epoch = Epoch(Timestamp::from_millis(3_000));
        let about = Aggregate::Process { guid: process_guid("api"), domain: domain("shop"), epoch };
        decision(version + 2, version, about, client(), events)
    };
    log.add_legal(other(
        1,
        vec![Event::Desired(desired::Event::Desired(Box::new(fixtures::lrp("api", "shop", 0))))],
    ));
    let subject = web_process(1).subject(log.world.shards()).to_string();
    log.quarantine(
        &subject,
        &newer_entry_bytes(decision(40, 3, web_process(1), cell("c2"), vec![claimed(2, "c2")])),
    );
    assert_eq!(log.kinds_if_added(other(3, vec![])), [Kind::Version]);
    let nobody = Decision { cause: Some(DecisionId(Uuid::from_u128(77))), ..other(2, vec![]) };
    assert_eq!(log.kinds_if_added(nobody), [Kind::Cause], "the cause is not a quarantined decision");
}

#[test]
fn cell_may_report_only_its_own_containers() {
    let mut log = claimed_log();
    log.add_legal(decision(3, 3, web_process(1), cell("c1"), vec![started(1, "c1")]));
    let set = Event::Evacuating(evacuating::Event::Set {
        place: first_slot(),
        by: instance(1, "c1"),
        net: fixtures::net_info(1),
        expires_at: Timestamp::from_millis(600_000),
    });
    let gone = |cause| Event::Evacuating(evacuating::Event::Removed { place: first_slot(), cause });
    let mut evacuates = log.clone();
    evacuates.add_legal(decision(
        4,
        4,
        web_process(1),
        cell("c1"),
        vec![set, unclaimed(UnclaimReason::Evacuation)],
    ));
    let mut replaced = evacuates.clone();
    replaced.add_legal(decision(5, 5, web_process(1), cell("c2"), vec![claimed(2, "c2")]));
    let bbs = || Actor::Bbs(service_id("b1"));
    let by = |actor, log: &Log, events| {
        log.kinds_if_added(decision(9, log.position + 1, web_process(1), actor, events))
    };
    for (log, event, own, others) in [
        (&log, removed(StopReason::Stopped), cell("c1"), vec![cell("c2"), client(), bbs()]),
        (&log, removed(StopReason::Evacuated), cell("c1"), vec![cell("c2"), client(), bbs()]),
        (&log, removed(StopReason::CellLost), bbs(), vec![cell("c1"), cell("c2")]),
        (&log, unclaimed(UnclaimReason::Evacuation), cell("c1"), vec![cell("c2"), client(), bbs()]),
        (&log, unclaimed(UnclaimReason::CellLost), bbs(), vec![cell("c1"), cell("c2")]),
        (&evacuates, gone(RemovalReason::Removed), cell("c1"), vec![cell("c2"), client(), bbs()]),
        (&evacuates, gone(RemovalReason::CellLost), bbs(), vec![cell("c2")]),
        (&replaced, gone(RemovalReason::Replaced), cell("c2"), vec![cell("c3"), client(), bbs()]),
    ] {
        assert_eq!(by(own, log, vec![event.clone()]), [], "{event:?}");
        for other in others {
            assert_eq!(by(other.clone(), log, vec![event.clone()]), [Kind::Illegal], "{other}: {event:?}");
        }
    }
}

#[test]
fn only_own_cell_may_report_task_success() {
    let epoch = Epoch(Timestamp::from_millis(1_000));
    let about = || Aggregate::Task { guid: task_guid("job"), domain: domain("shop"), epoch };
    let mut log = Log::default();
    let desired = Event::Task(task::Event::Desired(Box::new(fixtures::task("job", "shop"))));
    log.add_legal(decision(1, 1, about(), client(), vec![desired]));
    let completed =
        |by, outcome| vec![Event::Task(task::Event::Completed { by, outcome, explanation: None })];
    let succeeded = || Outcome::Succeeded { result: "42".into() };
    let failed = || Outcome::Failed { reason: "x".into() };
    let by =
        |log: &Log, actor, events| log.kinds_if_added(decision(9, log.position + 1, about(), actor, events));
    assert_eq!(by(&log, cell("c1"), completed(Some(instance(1, "c1")), succeeded())), []);
    assert_eq!(by(&log, client(), completed(None, failed())), [], "a client cancels the task");
    assert_eq!(by(&log, cell("c2"), completed(Some(instance(1, "c1")), failed())), [Kind::Illegal]);
    assert_eq!(by(&log, cell("c2"), completed(None, failed())), [Kind::Illegal]);
    let started = task::Event::Started { by: instance(1, "c1"), placement: None, isolation: Isolation::NONE };
    log.add_legal(decision(2, 2, about(), cell("c1"), vec![Event::Task(started)]));
    let runner = || Some(instance(1, "c1"));
    assert_eq!(by(&log, cell("c1"), completed(runner(), succeeded())), []);
    assert_eq!(by(&log, client(), completed(runner(), failed())), []);
    assert_eq!(by(&log, client(), completed(runner(), succeeded())), [Kind::Illegal]);
    assert_eq!(by(&log, cell("c2"), completed(runner(), succeeded())), [Kind::Illegal]);
}

#[test]
fn only_operators_quarantine_and_only_earlier_positions() {
    let mut log = Log::default();
    let id = ClusterId(Uuid::nil());
    let founded = Event::Cluster(cluster::Event::Founded { id, shards: 4, format: FORMAT });
    let bbs = Actor::Bbs(service_id("b1"));
    log.add_legal(decision(1, 1, Aggregate::Cluster, bbs.clone(), vec![founded]));
    let aside = |position| {
        let reason = "a trial".into();
        vec![Event::Cluster(cluster::Event::EntryQuarantined { position: Position(position), reason })]
    };
    let operator = Actor::Operator(ClientName::new("ada").unwrap());
    let by = |actor, position| log.kinds_if_added(decision(2, 2, Aggregate::Cluster, actor, aside(position)));
    assert_eq!(by(operator.clone(), 1), []);
    assert_eq!(by(operator.clone(), 2), [Kind::Illegal], "the position of the record itself");
    assert_eq!(by(operator, 9), [Kind::Illegal]);
    for other in [bbs, cell("c1"), client()] {
        assert_eq!(by(other, 1), [Kind::Illegal]);
    }
}

#[test]
fn version_of_aggregate_with_own_subject_increments_by_one() {
    let mut log = Log::default();
    let refreshed = |number, version| {
        let fresh = domains::Event::Refreshed { expires_at: None };
        decision(number, version, Aggregate::Domain(domain("shop")), client(), vec![Event::Domain(fresh)])
    };
    log.add_legal(refreshed(1, 1));
    assert_eq!(log.kinds_if_added(refreshed(2, 3)), [Kind::Version]);
    assert_eq!(log.kinds_if_added(refreshed(2, 1)), [Kind::Version]);
    log.add_legal(refreshed(2, 2));
}

#[test]
fn rollout_respects_its_policy_until_every_index_runs_the_target() {
    let mut log = Log::default();
    let bbs = || Actor::Bbs(service_id("b1"));
    let places = |id, count| Places { indices: Indices::below(count), definition_id: definition_id(id) };
    let created = |id, count| Event::Actual(actual::Event::Created { places: places(id, count) });
    let lrp = fixtures::lrp("web", "shop", 2);
    let add = |id| {
        let definition = lrp.definition.clone();
        Event::Desired(desired::Event::DefinitionAdded { definition_id: definition_id(id), definition })
    };
    let policy = UpdatePolicy { parallelism: Parallelism::Count(1), ..UpdatePolicy::default_update() };
    let started = Event::Rollout(rollout::Event::Started {
        kind: rollout::Kind::Update,
        target: definition_id("v2"),
        rollback_to: Some(definition_id("web")),
        total: 2,
        policy: Box::new(policy),
        reason: String::new(),
    });
    let desired = Event::Desired(desired::Event::Desired(Box::new(lrp.clone())));
    let healthy = Event::Desired(desired::Event::HealthyChanged { definition_id: definition_id("web") });
    let activated = Event::Desired(desired::Event::Activated { definition_id: definition_id("v2") });
    log.add_legal(decision(1, 1, web_process(1), client(), vec![desired, created("web", 2), healthy]));
    log.add_legal(decision(2, 2, web_process(1), client(), vec![add("v2"), activated, started]));
    let kinds = |event| log.kinds_if_added(decision(3, 3, web_process(1), bbs(), event));
    let begin = |count| Event::Rollout(rollout::Event::IndicesStarted { indices: Indices::below(count) });
    assert_eq!(kinds(vec![begin(1), created("v2", 1)]), []);
    assert_eq!(kinds(vec![begin(2)]), [Kind::InvariantViolated], "the policy replaces one index at once");
    assert_eq!(kinds(vec![Event::Rollout(rollout::Event::Completed {})]), [Kind::InvariantViolated]);
    let third = vec![add("v3"), created("v2", 1), created("v3", 1)];
    assert_eq!(kinds(third), [Kind::InvariantViolated], "an index has three instances");
}
