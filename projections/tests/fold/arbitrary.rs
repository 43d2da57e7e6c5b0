//! Property tests with events in any order, including events that no state machine would decide. Folding
//! accepts all events, and the result is a consistent World (the state folded from the log).

use std::collections::BTreeSet;

use projections::{Violation, World};
use proptest::prelude::*;
use schemas::container::{Epoch, NetInfo};
use schemas::crash::Restart;
use schemas::definition::{
    DesiredLrpUpdate, DesiredParameterised, DesiredPeriodic, Overflow, Overlap, PayloadRule,
};
use schemas::entry::{Aggregate, Event};
use schemas::evaluation::{self, Trigger};
use schemas::isolation::Isolation;
use schemas::names::{
    ClusterId, DispatchKey, EntryId, EvaluationId, IdGenerator, ParameterisedGuid, PeriodicGuid, RequestId,
};
use schemas::parameterised::{self, Dispatch, WithdrawReason};
use schemas::periodic::{self, LaunchReason, SkipReason};
use schemas::policy::UpdatePolicy;
use schemas::quota::Quotas;
use schemas::schedule::Schedule;
use schemas::{
    Decision, Entry, Place, Places, Position, Timestamp, actual, cell, cluster, desired, domain, evacuating,
    rollout, task,
};

use uuid::Uuid;

use crate::log::{
    cell_id, cluster_id, definition_id, desired_task, domain as domain_name, fold, guid, instance, lrp,
    presence, task_guid,
};

fn index() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0..5_u32, 1 => Just(u32::MAX)]
}

fn place() -> impl Strategy<Value = Place> {
    (index(), 0..4_u8).prop_map(|(index, id)| Place::new(index, definition_id(id)))
}

fn places() -> impl Strategy<Value = Places> {
    let indices = prop::collection::vec(index(), 0..5);
    (indices, 0..4_u8).prop_map(|(indices, id)| Places {
        indices: indices.into_iter().collect(),
        definition_id: definition_id(id),
    })
}

fn time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        6 => (0..3_000_u64).prop_map(|seconds| Timestamp::from_millis(seconds * 1_000)),
        1 => any::<u64>().prop_map(Timestamp),
    ]
}

fn actual_event() -> impl Strategy<Value = actual::Event> {
    use actual::{Event, StopReason, UnclaimReason};
    let by = || (0..2_u8, 0..2_u8, 0..4_u8).prop_map(|(owner, index, nth)| instance(owner, index, nth));
    prop_oneof![
        places().prop_map(|places| Event::Created { places }),
        (place(), by()).prop_map(|(place, by)| Event::Claimed { place, by, placement: None }),
        (place(), by()).prop_map(|(place, by)| Event::Started {
            place,
            by,
            net: NetInfo::default(),
            isolation: Isolation::NONE
        }),
        (place(), by(), any::<u32>()).prop_map(|(place, by, count)| Event::Crashed {
            place,
            by,
            reason: "x".into(),
            exit_status: None,
            crash_count: count % 300,
            restart: Restart::At(Timestamp::from_millis(u64::from(count))),
            attempts: None
        }),
        places().prop_map(|places| Event::PlacementFailed {
            places,
            error: "full".into(),
            explanation: None
        }),
        places().prop_map(|places| Event::Unclaimed { places, cause: UnclaimReason::CellLost }),
        places().prop_map(|places| Event::StopRequested { places, cause: StopReason::Scale }),
        places().prop_map(|places| Event::Removed { places, cause: StopReason::Stopped }),
    ]
}

fn process_event() -> impl Strategy<Value = Event> {
    let set = (place(), (0..2_u8, 0..2_u8, 0..4_u8), time()).prop_map(|(place, (owner, nth, cell), at)| {
        let by = instance(owner, nth, cell);
        evacuating::Event::Set { place, by, net: NetInfo::default(), expires_at: at }
    });
    let gone = place()
        .prop_map(|place| evacuating::Event::Removed { place, cause: evacuating::RemovalReason::Expired });
    prop_oneof![
        2 => (0..4_u8, 0..2_u8, 0..4_u8, any::<u8>())
            .prop_map(|(process, name, count, size)| desired::Event::Desired(lrp(process, name, count, size).into()))
            .prop_map(Event::Desired),
        1 => (0..6_u32).prop_map(|count| {
            let update = DesiredLrpUpdate { instances: Some(count), ..DesiredLrpUpdate::default() };
            Event::Desired(desired::Event::Updated(update))
        }),
        1 => Just(Event::Desired(desired::Event::Removed {})),
        3 => definition_event().prop_map(Event::Desired),
        4 => rollout_event().prop_map(Event::Rollout),
        8 => actual_event().prop_map(Event::Actual),
        2 => set.prop_map(Event::Evacuating),
        1 => gone.prop_map(Event::Evacuating),
    ]
}

fn definition_event() -> impl Strategy<Value = desired::Event> {
    use desired::Event as E;
    let id = || (0..4_u8).prop_map(definition_id);
    prop_oneof![
        (id(), any::<u8>()).prop_map(|(definition_id, size)| {
            E::DefinitionAdded { definition_id, definition: lrp(0, 0, 1, size).definition }
        }),
        id().prop_map(|definition_id| E::Activated { definition_id }),
        id().prop_map(|definition_id| E::HealthyChanged { definition_id }),
        prop::collection::vec(id(), 0..3).prop_map(|definition_ids| E::Pruned { definition_ids }),
    ]
}

fn rollout_event() -> impl Strategy<Value = rollout::Event> {
    use rollout::{Event as E, Kind, PauseReason};
    let indices = prop::collection::vec(index(), 0..4);
    let kind = prop_oneof![Just(Kind::Update), Just(Kind::Rollback)];
    let started = (kind, 0..4_u8, prop::option::of(0..4_u8), any::<u32>());
    prop_oneof![
        3 => started.prop_map(|(kind, target, back, total)| E::Started {
            kind,
            target: definition_id(target),
            rollback_to: back.map(definition_id),
            total,
            policy: Box::new(UpdatePolicy { monitor_ms: u64::from(total % 9), ..UpdatePolicy::default_update() }),
            reason: "x".into(),
        }),
        2 => indices.prop_map(|indices| E::IndicesStarted { indices: indices.into_iter().collect() }),
        1 => index().prop_map(|index| E::FellBack { index }),
        1 => index().prop_map(|index| E::TookOver { index }),
        1 => (index(), time()).prop_map(|(index, delay_until)| E::Replaced { index, delay_until }),
        1 => index().prop_map(|index| E::Failed { index, reason: "x".into() }),
        1 => (index(), time())
            .prop_map(|(index, retry_at)| E::Stalled { index, retry_at, reason: "x".into() }),
        1 => Just(E::Paused { cause: PauseReason::Requested, reason: "x".into() }),
        1 => Just(E::Resumed {}),
        1 => Just(E::Completed {}),
    ]
}

fn task_event() -> impl Strategy<Value = Event> {
    use task::{Event as E, Outcome};
    prop_oneof![
        (0..4_u8, 0..2_u8, any::<u8>())
            .prop_map(|(task, name, size)| E::Desired(desired_task(task, name, size).into())),
        (0..4_u8).prop_map(|nth| E::Started {
            by: instance(9, 0, nth),
            placement: None,
            isolation: Isolation::NONE
        }),
        Just(E::PlacementFailed { error: "full".into(), explanation: None }),
        (0..4_u8).prop_map(|nth| E::Completed {
            by: Some(instance(9, 0, nth)),
            outcome: Outcome::Succeeded { result: String::new() },
            explanation: None
        }),
        Just(E::Resolving {}),
        Just(E::CallbackTried { attempt: 1, outcome: task::CallbackResult::Answered(404) }),
        Just(E::Demoted {}),
        Just(E::Deleted {}),
    ]
    .prop_map(Event::Task)
}

fn periodic_event() -> impl Strategy<Value = Event> {
    let next = || prop::option::of(time());
    let desired = |number: u8| {
        Box::new(DesiredPeriodic {
            periodic_guid: periodic_guid(number),
            domain: domain_name(number % 2),
            schedule: Schedule::new("* * * * *", "UTC").expect("a valid value"),
            overlap: Overlap::Queued,
            definition: desired_task(number, 0, 1).definition,
        })
    };
    let event = prop_oneof![
        3 => (0..3_u8, next())
            .prop_map(move |(number, next)| periodic::Event::Desired { desired: desired(number), next }),
        1 => (0..3_u8, next())
            .prop_map(move |(number, next)| periodic::Event::Updated { desired: desired(number), next }),
        3 => (time(), 0..3_u8, any::<bool>(), next()).prop_map(|(due, task, queued, next)| {
            let reason = if queued { LaunchReason::Queued } else { LaunchReason::Due };
            periodic::Event::Launched { due, task_guid: task_guid(task), reason, next }
        }),
        1 => (time(), any::<u32>(), next()).prop_map(|(due, count, next)| {
            let reason = SkipReason::Missed;
            periodic::Event::Skipped { from: due, until: due, count, reason, next }
        }),
        1 => (time(), next()).prop_map(|(due, next)| periodic::Event::Queued { due, next }),
        1 => Just(periodic::Event::Paused {}),
        1 => next().prop_map(|next| periodic::Event::Resumed { next }),
        2 => Just(periodic::Event::Removed {}),
    ];
    event.prop_map(Event::Periodic)
}

fn parameterised_event() -> impl Strategy<Value = Event> {
    let desired = |number: u8| {
        Box::new(DesiredParameterised {
            parameterised_guid: parameterised_guid(number),
            domain: domain_name(number % 2),
            payload: PayloadRule::Optional,
            required_parameters: BTreeSet::new(),
            optional_parameters: BTreeSet::new(),
            concurrency: Some(1),
            overflow: Overflow::Queued,
            definition: desired_task(number, 0, 1).definition,
        })
    };
    let key = |number: u8| DispatchKey::new(&format!("key-{number}")).expect("a valid value");
    let event = prop_oneof![
        3 => (0..3_u8).prop_map(move |number| parameterised::Event::Desired { desired: desired(number) }),
        1 => (0..3_u8).prop_map(move |number| parameterised::Event::Updated { desired: desired(number) }),
        3 => (0..5_u64, prop::option::of(0..3_u8), any::<bool>()).prop_map(move |(number, of, forgets)| {
            let dispatch = Box::new(Dispatch { key: of.map(key), ..Dispatch::default() });
            parameterised::Event::Dispatched { number, dispatch, evicted_key: forgets.then(|| key(0)) }
        }),
        1 => (0..5_u64).prop_map(|number| parameterised::Event::Repeated { number }),
        2 => (0..5_u64, 0..3_u8).prop_map(|(number, task)| {
            parameterised::Event::Launched { number, task_guid: task_guid(task) }
        }),
        1 => prop::collection::vec(0..5_u64, 0..3).prop_map(|numbers| {
            parameterised::Event::Withdrawn { numbers, reason: WithdrawReason::Requested }
        }),
        2 => Just(parameterised::Event::Removed {}),
    ];
    event.prop_map(Event::Parameterised)
}

fn parameterised_guid(number: u8) -> ParameterisedGuid {
    ParameterisedGuid::new(&format!("parameterised-{number}")).expect("a valid value")
}

fn periodic_guid(number: u8) -> PeriodicGuid {
    PeriodicGuid::new(&format!("periodic-{number}")).expect("a valid value")
}

fn other_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        prop_oneof![Just(Trigger::Desire), Just(Trigger::Convergence)].prop_map(|trigger| {
            let (initial_status, previous) = (evaluation::InitialStatus::Pending, None);
            Event::Evaluation(evaluation::Event::Created { number: 0, trigger, initial_status, previous })
        }),
        (0..40_u128).prop_map(|number| {
            let (evaluation, reason) = (EvaluationId(Uuid::from_u128(number)), "full".to_owned());
            Event::Evaluation(evaluation::Event::Failed { evaluation, reason })
        }),
        (0..40_u128).prop_map(|number| {
            let (evaluation, blocked) = (EvaluationId(Uuid::from_u128(number)), None);
            let event =
                evaluation::Event::Completed { evaluation, placed: 1, queued: 0, rejected: 0, blocked };
            Event::Evaluation(event)
        }),
        prop::option::of(time())
            .prop_map(|expires_at| Event::Domain(domain::Event::Refreshed { expires_at })),
        any::<u32>().prop_map(|instances| {
            let quotas = Quotas { instances, ..Quotas::default() };
            Event::Domain(domain::Event::Limited { quotas })
        }),
        Just(Event::Cell(cell::Event::Appeared(presence()))),
        Just(Event::Cell(cell::Event::EvacuationRequested {})),
        Just(Event::Cell(cell::Event::EvacuationWithdrawn {})),
        Just(Event::Cell(cell::Event::Cordoned {})),
        Just(Event::Cell(cell::Event::Uncordoned {})),
        Just(Event::Cell(cell::Event::Evacuating {})),
        Just(Event::Cell(cell::Event::Resumed {})),
        Just(Event::Cell(cell::Event::Left {})),
        Just(Event::Cell(cell::Event::Forgotten {})),
        Just(Event::Cell(cell::Event::Disappeared { reason: "silent".into() })),
        (0..4_u16).prop_map(|shards| Event::Cluster(cluster::Event::Founded {
            id: if shards == 0 { ClusterId(IdGenerator::new(3).next(Timestamp(0))) } else { cluster_id() },
            shards,
            format: 1
        })),
        Just(Event::Cluster(cluster::Event::FormatRaised { format: 2 })),
        any::<bool>().prop_map(|enabled| Event::Cluster(cluster::Event::PreemptionSwitched { enabled })),
        ((0..3_u8).prop_map(cell_id), 0..4_u32).prop_map(|(cell_id, ordinal)| Event::Cluster(
            cluster::Event::OrdinalAssigned { cell_id, ordinal }
        )),
        ((0..3_u8).prop_map(cell_id), 0..4_u32)
            .prop_map(|(cell_id, ordinal)| Event::Cluster(cluster::Event::OrdinalFreed { cell_id, ordinal })),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![6 => process_event(), 3 => task_event(), 2 => periodic_event(), 2 => parameterised_event(), 2 => other_event()]
}

fn aggregate() -> impl Strategy<Value = Aggregate> {
    let epoch = || time().prop_map(Epoch);
    prop_oneof![
        8 => (0..3_u8, 0..2_u8, epoch())
            .prop_map(|(process, name, epoch)| Aggregate::Process { guid: guid(process), domain: domain_name(name), epoch }),
        3 => (0..3_u8, 0..2_u8, epoch())
            .prop_map(|(task, name, epoch)| Aggregate::Task { guid: task_guid(task), domain: domain_name(name), epoch }),
        2 => (0..3_u8, 0..2_u8, epoch())
            .prop_map(|(number, name, epoch)| Aggregate::Periodic { guid: periodic_guid(number), domain: domain_name(name), epoch }),
        2 => (0..3_u8, 0..2_u8, epoch())
            .prop_map(|(number, name, epoch)| Aggregate::Parameterised { guid: parameterised_guid(number), domain: domain_name(name), epoch }),
        1 => (0..2_u8).prop_map(|name| Aggregate::Domain(domain_name(name))),
        1 => (0..3_u8).prop_map(|cell| Aggregate::Cell(cell_id(cell))),
        1 => Just(Aggregate::Cluster),
    ]
}

fn decision() -> impl Strategy<Value = Decision> {
    let events = prop::collection::vec(event(), 0..6);
    (aggregate(), 0..9_u64, time(), events, any::<bool>()).prop_map(
        |(aggregate, version, at, events, asked)| Decision {
            version,
            request_id: asked.then(|| RequestId::new("request").expect("a valid value")),
            ..fixtures::decision(IdGenerator::new(at.0).next(at), at, aggregate, events)
        },
    )
}

fn entries() -> impl Strategy<Value = Vec<(Position, Entry)>> {
    let id = EntryId(IdGenerator::new(0).next(Timestamp(0)));
    let entry =
        prop::collection::vec(decision(), 0..4).prop_map(move |decisions| Entry { id, format: 1, decisions });
    prop::collection::vec((0..90_u64, entry), 0..30).prop_map(|entries| {
        entries.into_iter().map(|(position, entry)| (Position(position), entry)).collect()
    })
}

/// No state machine decides a launch of a removed periodic task, but the log may contain one.
#[test]
fn removed_periodic_task_is_never_due() {
    let next = Some(Timestamp(0));
    let schedule = Schedule::new("* * * * *", "UTC").expect("a valid value");
    let desired = DesiredPeriodic {
        periodic_guid: periodic_guid(0),
        domain: domain_name(0),
        schedule,
        overlap: Overlap::Queued,
        definition: desired_task(0, 0, 1).definition,
    };
    let launched = periodic::Event::Launched {
        due: Timestamp(0),
        task_guid: task_guid(0),
        reason: LaunchReason::Due,
        next,
    };
    let events = [
        periodic::Event::Desired { desired: Box::new(desired), next },
        periodic::Event::Removed {},
        launched,
    ];
    let aggregate =
        Aggregate::Periodic { guid: periodic_guid(0), domain: domain_name(0), epoch: Epoch(Timestamp(0)) };
    let id = IdGenerator::new(0).next(Timestamp(0));
    let events = events.into_iter().map(Event::Periodic).collect();
    let decision = fixtures::decision(id, Timestamp(0), aggregate, events);
    let entry = Entry { id: EntryId(id), format: 1, decisions: vec![decision] };
    assert_eq!(fold(&[(Position(1), entry)]).next_due(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_events_fold_and_restore_to_equal_worlds(entries in entries(), cut in any::<prop::sample::Index>()) {
        let world = fold(&entries);
        let (head, tail) = entries.split_at(if entries.is_empty() { 0 } else { cut.index(entries.len()) });
        let mut restored = World::from_bytes(&fold(head).to_bytes(), None).expect("a valid value");
        prop_assert_eq!(&restored, &fold(head));
        for (position, entry) in tail {
            restored.fold(*position, entry);
        }
        prop_assert_eq!(&restored, &world);
        let has_wrong_index = |violation: &Violation| matches!(violation, Violation::Index(_));
        prop_assert!(!world.check().iter().any(has_wrong_index));
        // Rebuilt indexes equal incrementally maintained indexes.
        prop_assert_eq!(World::from_bytes(&world.to_bytes(), None), Ok(world));
    }
}
