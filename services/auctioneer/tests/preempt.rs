//! Property test that compares the selection of victims with an exhaustive search over all sets of victims.

#![expect(clippy::unwrap_used, reason = "generated names and numbers are valid")]

use std::cmp::Reverse;

use auctioneer::preempt::{CandidateCell, PendingWork, PreemptibleWork, Selection, choose};
use proptest::prelude::*;
use schemas::container::{Epoch, Instance, WorkKey};
use schemas::names::{CellId, DefinitionId, InstanceGuid, ProcessGuid, TaskGuid};
use schemas::priority::Priority;
use schemas::resources::Resources;
use schemas::{ActualLrpKey, Place, Timestamp, limits};
use uuid::Uuid;

fn cell(name: usize) -> CellId {
    CellId::new(&format!("c{name}")).unwrap()
}

fn priority(number: u8) -> Priority {
    Priority::new(number).unwrap()
}

/// Generated work: task or instance, process number, priority, memory, disk, and the time of its last change.
type WorkParams = (bool, u32, u8, u64, u64, u64);

fn running(
    at: usize,
    number: usize,
    (is_task, process, urgent, memory, disk, since): WorkParams,
) -> PreemptibleWork {
    let epoch = Epoch(Timestamp(1));
    let key = if is_task {
        WorkKey::Task { task_guid: TaskGuid::new(&format!("t{at}-{number}")).unwrap(), epoch }
    } else {
        let place = Place::new(u32::try_from(at * 100 + number).unwrap(), DefinitionId::new("d").unwrap());
        let guid = ProcessGuid::new(&format!("p{process}")).unwrap();
        WorkKey::Lrp { key: ActualLrpKey::new(guid, place), epoch }
    };
    let guid = InstanceGuid(Uuid::from_u128((at * 1000 + number) as u128));
    PreemptibleWork {
        key,
        by: Instance { instance_guid: guid, cell_id: cell(at) },
        priority: priority(urgent),
        size: Resources::for_container(memory, disk, 0),
        since: Timestamp(since),
    }
}

fn work_params() -> impl Strategy<Value = WorkParams> {
    (
        any::<bool>(),
        0..3_u32,
        prop_oneof![Just(1_u8), Just(30), Just(41), Just(45), Just(60)],
        1..5_u64,
        0..3_u64,
        0..3_u64,
    )
}

fn offers() -> impl Strategy<Value = Vec<CandidateCell>> {
    let offer = (0..4_u64, 0..3_u64, 0..2_u32, prop::collection::vec(work_params(), 0..6));
    prop::collection::vec(offer, 0..4).prop_map(|offers| {
        let offer = |(at, (memory, disk, containers, all)): (usize, (u64, u64, u32, Vec<WorkParams>))| {
            CandidateCell {
                cell: cell(at),
                free: Resources { containers, ..Resources::for_container(memory, disk, 0) },
                running: all
                    .into_iter()
                    .enumerate()
                    .map(|(number, one)| running(at, number, one))
                    .collect::<Vec<_>>()
                    .into(),
            }
        };
        offers.into_iter().enumerate().map(offer).collect()
    })
}

/// Selects victims by exhaustive search. The search prefers the fewest victims, then the lowest priorities,
/// then the cell with the smallest id. On one cell, it prefers the smallest victims, then the youngest
/// victims.
fn exhaustive_choice(work: &PendingWork, offers: &[CandidateCell]) -> Option<Selection> {
    let mut found = vec![];
    for offer in offers {
        let may = |one: &&PreemptibleWork| {
            let same = match &one.key {
                WorkKey::Lrp { key, .. } => work.process.as_ref() == Some(&key.process_guid),
                WorkKey::Task { .. } => false,
            };
            !same && u8::from(one.priority) + 10 <= u8::from(work.priority)
        };
        let mut all: Vec<&PreemptibleWork> = offer.running.iter().filter(may).collect();
        all.sort_by_key(|one| {
            (one.priority, one.size.memory_mb, one.size.disk_mb, Reverse(one.since), &one.key)
        });
        for set in 1..1_u32 << all.len() {
            let places: Vec<usize> = (0..all.len()).filter(|place| set >> place & 1 == 1).collect();
            let freed = places.iter().fold(offer.free, |sum, place| sum.plus(all[*place].size));
            if places.len() > limits::VICTIMS || !freed.fits(work.size) {
                continue;
            }
            let victims: Vec<PreemptibleWork> = places.iter().map(|place| all[*place].clone()).collect();
            let tasks = victims.iter().any(|one| matches!(one.key, WorkKey::Task { .. }));
            let mut priorities: Vec<Priority> = victims.iter().map(|one| one.priority).collect();
            priorities.sort_by_key(|one| Reverse(*one));
            found.push(((tasks, victims.len(), priorities, offer.cell.clone(), places), victims));
        }
    }
    let best = found.into_iter().min_by(|a, b| a.0.cmp(&b.0))?;
    Some(Selection { cell: best.0.3, victims: best.1 })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn chosen_victims_equal_exhaustive_search(
        offers in offers(),
        urgent in prop_oneof![Just(40_u8), Just(51), Just(70), Just(100)],
        (memory, disk) in (1..9_u64, 0..4_u64),
        process in prop::option::of(0..3_u32),
    ) {
        let process = process.map(|number| ProcessGuid::new(&format!("p{number}")).unwrap());
        let work = PendingWork { priority: priority(urgent), size: Resources::for_container(memory, disk, 0), process };
        // `choose` is called only if no cell can run the work without preemption.
        prop_assume!(!offers.iter().any(|offer| offer.free.fits(work.size)));
        prop_assert_eq!(choose(&work, &offers), exhaustive_choice(&work, &offers));
    }
}

#[test]
fn victims_among_many_equals_are_found_within_step_limit() {
    let one = |number| running(0, number, (false, 0, 1, 1, 0, u64::try_from(number).unwrap()));
    let many: Vec<PreemptibleWork> = (0..400).map(one).collect();
    let offer =
        CandidateCell { cell: cell(0), free: Resources::for_container(0, 0, 0), running: many.into() };
    let size = Resources::for_container(8, 0, 0);
    let work = PendingWork { priority: priority(50), size, process: None };
    let chosen = choose(&work, std::slice::from_ref(&offer)).expect("eight victims suffice");
    let since: Vec<u64> = chosen.victims.iter().map(|one| one.since.0).collect();
    assert_eq!(since, (392..400).rev().collect::<Vec<_>>(), "the youngest of equal victims stop");
    let more = PendingWork { size: Resources::for_container(9, 0, 0), ..work };
    assert_eq!(choose(&more, &[offer]), None, "the number of victims is limited");
}
