//! Tests of the history of ended work: it has the newest ends, within the limits, with correct contents.

use std::collections::BTreeMap;

use projections::{Observed, RETENTION, World, queries};
use proptest::prelude::*;
use schemas::container::{Instance, NetInfo};
use schemas::definition::DesiredLrpUpdate;
use schemas::ended::EndKind;
use schemas::entry::Event;
use schemas::isolation::Isolation;
use schemas::limits::{DEFAULT_HISTORY_KEPT, DEFAULT_HISTORY_SHOWN, ENDED_PER_PROCESS};
use schemas::names::InstanceGuid;
use schemas::policy::Policies;
use schemas::query::{EndedInstanceRow, Filter};
use schemas::{Code, Place, Timestamp, actual, desired, evacuating};
use uuid::Uuid;

use crate::log::{
    Action, Log, ProcessAction, TaskAction, cell_id, definition_id, domain, groups, guid, write,
};
use crate::pages::observed;
use crate::tables::check_tables;

fn shown(world: &World, limit: u32) -> Vec<EndedInstanceRow> {
    let mut rows = vec![];
    let mut filter = Filter::default();
    let observed = Observed { history_limit: limit, ..observed() };
    loop {
        let page = queries::ended_instances(world, &filter, &observed).expect("a page");
        rows.extend(page.rows);
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            return rows;
        }
    }
}

fn container(number: u128) -> Instance {
    Instance { instance_guid: InstanceGuid(Uuid::from_u128(number)), cell_id: cell_id(0) }
}

fn place(index: u32) -> Place {
    Place::new(index, definition_id(0))
}

fn started(index: u32, number: u128) -> Event {
    let (by, net) = (container(number), NetInfo::default());
    Event::Actual(actual::Event::Started { place: place(index), by, net, isolation: Isolation::NONE })
}

fn crashed(index: u32, number: u128) -> Event {
    let reason = format!("exited with status {}", number % 7);
    Event::Actual(actual::Event::Crashed {
        place: place(index),
        by: container(number),
        reason,
        exit_status: i32::try_from(number % 7).ok(),
        crash_count: 1,
        restart: schemas::crash::Restart::Immediate,
        attempts: None,
    })
}

fn unclaimed(index: u32, cause: actual::UnclaimReason) -> Event {
    Event::Actual(actual::Event::Unclaimed { places: place(index).into(), cause })
}

fn removed(index: u32, cause: actual::StopReason) -> Event {
    Event::Actual(actual::Event::Removed { places: place(index).into(), cause })
}

fn limit(history_limit: Option<u32>) -> Event {
    let policies = Policies { history_limit, ..Policies::default() };
    let update = DesiredLrpUpdate { policies: Some(policies), ..DesiredLrpUpdate::default() };
    Event::Desired(desired::Event::Updated(update))
}

fn desired(instances: u8) -> Log {
    write(&[vec![Action::Process(0, ProcessAction::Desire { domain: 0, instances, size: 3 })]])
}

fn numbers(rows: &[EndedInstanceRow]) -> Vec<u128> {
    rows.iter().map(|row| row.instance_guid.0.as_u128()).collect()
}

#[test]
fn newest_ends_per_index_are_shown_and_limit_changes_apply_at_once() {
    let mut log = desired(2);
    for number in 0..30 {
        let index = u32::from(number % 3 == 0);
        log.decide(0, vec![started(index, number), crashed(index, number)]);
    }
    let (zero, one) = ((0..30).filter(|number| number % 3 != 0), (0..30).filter(|number| number % 3 == 0));
    let (zero, one): (Vec<u128>, Vec<u128>) = (zero.collect(), one.collect());
    let newest = |most: usize| [&zero[20 - most.min(20)..], &one[10 - most.min(10)..]].concat();
    for most in [0, 1, DEFAULT_HISTORY_SHOWN, DEFAULT_HISTORY_KEPT] {
        assert_eq!(numbers(&shown(&log.world, most)), newest(most as usize), "{most}");
    }
    let row = &shown(&log.world, 1)[0];
    assert_eq!(
        (row.end_kind, row.exit_status, row.reason.as_deref()),
        (EndKind::Crashed, Some(1), Some("exited with status 1"))
    );
    assert_eq!((row.duration_ms, row.position), (Some(0), log.world.position()));

    // The limit of a process takes precedence. A smaller limit evicts rows at once, and a larger one does not
    // bring them back.
    log.decide(0, vec![limit(Some(8))]);
    assert_eq!(numbers(&shown(&log.world, 0)), newest(8));
    log.decide(0, vec![limit(Some(2))]);
    log.decide(0, vec![limit(Some(100))]);
    assert_eq!(numbers(&shown(&log.world, 5)), newest(2));
    for number in 100..200 {
        log.decide(0, vec![started(0, number), crashed(0, number)]);
    }
    assert_eq!(shown(&log.world, 5).len(), 102);
    log.decide(0, vec![limit(None)]);
    assert_eq!(numbers(&shown(&log.world, 30)), [(180..200).collect(), newest(2)[2..].to_vec()].concat());
    log.decide(0, vec![limit(Some(0))]);
    log.decide(0, vec![started(0, 300), crashed(0, 300)]);
    assert_eq!(shown(&log.world, 5), []);
    // The history affects no decision: the record counts crashes.
    assert_eq!(log.world.process(&guid(0)).unwrap().actual(&place(0)).unwrap().crash_count, 1);
}

#[test]
fn container_without_history_can_end_again() {
    let mut log = desired(1);
    for kept in [0, 1] {
        log.decide(0, vec![limit(Some(kept))]);
        for number in [7, 8, 7, 7] {
            log.decide(0, vec![started(0, number)]);
            log.decide(0, vec![unclaimed(0, actual::UnclaimReason::CellLost)]);
        }
    }
    check_tables(&log.entries).unwrap();
}

#[test]
fn each_kind_of_end_is_recorded_with_its_reason() {
    use actual::{StopReason, UnclaimReason};
    let mut log = desired(1);
    let stop = |cause| Event::Actual(actual::Event::StopRequested { places: place(0).into(), cause });
    let set = |number| {
        let (by, net, expires_at) = (container(number), NetInfo::default(), Timestamp(u64::MAX));
        Event::Evacuating(evacuating::Event::Set { place: place(0), by, net, expires_at })
    };
    let twin_gone = |cause| Event::Evacuating(evacuating::Event::Removed { place: place(0), cause });
    let ends: Vec<(Vec<Event>, EndKind, Option<StopReason>)> = vec![
        (vec![crashed(0, 0)], EndKind::Crashed, None),
        (
            vec![stop(StopReason::Scale), removed(0, StopReason::Stopped)],
            EndKind::Stopped,
            Some(StopReason::Scale),
        ),
        (
            vec![stop(StopReason::Replaced), removed(0, StopReason::Crashed)],
            EndKind::CrashedStopping,
            Some(StopReason::Replaced),
        ),
        (vec![removed(0, StopReason::Stopped)], EndKind::Stopped, None),
        (vec![unclaimed(0, UnclaimReason::CellLost)], EndKind::CellLost, None),
        (vec![stop(StopReason::Retired), removed(0, StopReason::CellLost)], EndKind::CellLost, None),
        (vec![unclaimed(0, UnclaimReason::Evacuation)], EndKind::Evacuated, None),
        (
            vec![
                set(7),
                unclaimed(0, UnclaimReason::Evacuation),
                twin_gone(evacuating::RemovalReason::Replaced),
            ],
            EndKind::Evacuated,
            None,
        ),
        (
            vec![
                set(8),
                unclaimed(0, UnclaimReason::Evacuation),
                twin_gone(evacuating::RemovalReason::Expired),
            ],
            EndKind::EvacuationExpired,
            None,
        ),
        (
            vec![
                set(9),
                unclaimed(0, UnclaimReason::Evacuation),
                twin_gone(evacuating::RemovalReason::CellLost),
            ],
            EndKind::CellLost,
            None,
        ),
        (vec![started(0, 1_000)], EndKind::Displaced, None),
        (vec![removed(0, StopReason::Replaced)], EndKind::Stopped, Some(StopReason::Replaced)),
    ];
    for (number, (events, how, stop)) in (0..).zip(ends) {
        log.decide(0, vec![removed(0, StopReason::Undesired)]);
        log.decide(0, vec![started(0, number)]);
        let ran_from = log.world.process(&guid(0)).unwrap().actual(&place(0)).unwrap().since;
        for event in events {
            log.decide(0, vec![event]);
        }
        let rows = shown(&log.world, 20);
        let row =
            rows.iter().find(|row| row.instance_guid == container(number).instance_guid).expect("a row");
        assert_eq!((row.end_kind, row.stop_reason), (how, stop), "{number}");
        assert_eq!(row.started_at, Some(ran_from), "{number}: later changes do not affect the start time");
        assert!(row.ended_at > ran_from);
    }
}

#[test]
fn returned_container_is_not_listed_as_ended() {
    use actual::UnclaimReason;
    let mut log = desired(1);
    log.decide(0, vec![started(0, 1), unclaimed(0, UnclaimReason::CellLost)]);
    assert_eq!(numbers(&shown(&log.world, 5)), [1]);
    // The cell comes back with the container.
    log.decide(0, vec![started(0, 1)]);
    assert_eq!(numbers(&shown(&log.world, 5)), []);
    log.decide(0, vec![crashed(0, 1)]);
    log.decide(0, vec![crashed(0, 1)]);
    assert_eq!(numbers(&shown(&log.world, 5)), [1], "the container ended once");
}

#[test]
fn process_history_is_capped_and_removed_with_process() {
    let mut log = desired(1);
    let most = u32::try_from(ENDED_PER_PROCESS).unwrap();
    for index in 0..most + 3 {
        log.decide(0, vec![crashed(most + 3 - index, u128::from(index))]);
    }
    let mut kept = numbers(&shown(&log.world, 5));
    kept.sort_unstable();
    assert_eq!(kept, (3..u128::from(most) + 3).collect::<Vec<_>>(), "the oldest ends are evicted first");
    let removed = Event::Desired(desired::Event::Removed {});
    let all = (0..=most + 3)
        .map(place)
        .map(|place| actual::Event::Removed { places: place.into(), cause: actual::StopReason::Removed });
    log.decide(0, std::iter::once(removed).chain(all.map(Event::Actual)).collect());
    assert_eq!(shown(&log.world, 5).len(), ENDED_PER_PROCESS, "a gone process is remembered for ten minutes");
    let wait = u16::try_from(RETENTION.as_secs()).unwrap();
    let desire = ProcessAction::Desire { domain: 0, instances: 1, size: 3 };
    for process in 1..3 {
        log.group(&[Action::Wait { seconds: wait }, Action::Process(process, desire.clone())]);
    }
    assert!(log.world.process(&guid(0)).is_none(), "the process is forgotten");
    assert_eq!(shown(&log.world, 5), []);
    assert_eq!(World::from_bytes(&log.world.to_bytes(), None), Ok(log.world));
}

#[test]
fn index_filter_requires_process() {
    let mut log = desired(2);
    log.decide(0, vec![crashed(0, 1), crashed(1, 2)]);
    let of = |filter: &Filter| queries::ended_instances(&log.world, filter, &observed());
    let refused = of(&Filter { index: Some(1), ..Filter::default() }).unwrap_err();
    assert_eq!((refused.code, refused.fields[0].field.as_str()), (Code::InvalidRequest, "index"));
    let filter = Filter { index: Some(1), process_guid: Some(guid(0)), ..Filter::default() };
    assert_eq!(numbers(&of(&filter).unwrap().rows), [2]);
    assert_eq!(of(&Filter { domain: Some(domain(1)), ..Filter::default() }).unwrap().rows, []);
    assert_eq!(of(&Filter { cell_id: Some(cell_id(1)), ..Filter::default() }).unwrap().rows, []);
}

#[test]
fn resolved_task_is_listed_with_result() {
    let of = |ask| vec![Action::Task(0, ask)];
    let desire = || of(TaskAction::Desire { domain: 0, size: 3 });
    let report = |step| of(TaskAction::Report { container: 4, step });
    let log = write(&[
        desire(),
        report(0),
        report(1),
        of(TaskAction::Resolve { step: 0 }),
        desire(),
        of(TaskAction::Cancel),
        vec![Action::Wait { seconds: 200 }, Action::Converge],
    ]);
    let rows = queries::ended_tasks(&log.world, &Filter::default(), &observed()).unwrap().rows;
    let told: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row.failed,
                row.result.as_deref(),
                row.failure_reason.as_deref(),
                row.started_at.is_some(),
                row.resolved,
            )
        })
        .collect();
    assert_eq!(told, [(false, Some("ok"), None, true, true), (true, None, Some("cancelled"), false, false)]);
    let none = Observed { history_limit: 0, ..observed() };
    assert_eq!(queries::ended_tasks(&log.world, &Filter::default(), &none).unwrap().rows, []);
    assert_eq!(World::from_bytes(&log.world.to_bytes(), None), Ok(log.world));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// The rows show the newest ends, and at most as many as the limit. No row shows a container that a
    /// record still names.
    #[test]
    fn shown_rows_are_newest_and_ended(groups in groups(), most in 0_u32..4) {
        let log = write(&groups);
        let all = shown(&log.world, DEFAULT_HISTORY_KEPT);
        let mut indices: BTreeMap<_, Vec<&EndedInstanceRow>> = BTreeMap::new();
        for row in &all {
            indices.entry((&row.process_guid, row.index)).or_default().push(row);
            let process = log.world.process(&row.process_guid).expect("the process is remembered");
            let named = process.slots.iter().any(|slot| {
                let own = slot.actual.as_ref().and_then(|lrp| lrp.holder());
                let twin = slot.evacuating.as_ref().map(|twin| &twin.by);
                own.into_iter().chain(twin).any(|by| by.instance_guid == row.instance_guid)
            });
            prop_assert!(!named, "{row:?} has not ended");
            prop_assert!(row.started_at.is_none_or(|from| from <= row.ended_at));
        }
        let newest = indices.values().flat_map(|rows| &rows[rows.len().saturating_sub(most as usize)..]);
        prop_assert_eq!(shown(&log.world, most), newest.map(|row| (*row).clone()).collect::<Vec<_>>());
        for rows in indices.values() {
            prop_assert!(rows.len() <= DEFAULT_HISTORY_KEPT as usize);
            prop_assert!(rows.is_sorted_by_key(|row| (row.position, row.nth)));
        }
    }
}
