//! Property test: the figures are equal to the figures of a full scan with sets, and they agree with the
//! rows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use machines::actual::State;
use projections::queries::cell_state;
use projections::{Figures, Observed, World};
use proptest::prelude::*;
use schemas::names::ServiceId;
use schemas::query::{CellState, QuarantinedEntries, Services};
use schemas::{Timestamp, rollout};

use crate::log::{START_MILLIS, groups, write};

fn observed(world: &World) -> Observed {
    Observed {
        bbs: ServiceId::new("b1").expect("a valid name"),
        now: Timestamp::from_millis(START_MILLIS + 60_000),
        durability: String::new(),
        quarantined_entries: QuarantinedEntries::default(),
        services: Services::default(),
        history_limit: 0,
        refused_transitions: 0,
        log: None,
        heartbeat_ages: world
            .cells()
            .zip([1, 11])
            .map(|((id, _), ago)| (id.clone(), Duration::from_secs(ago)))
            .collect(),
    }
}

fn scan(world: &World, observed: &Observed) -> Figures {
    let mut figures = Figures { counts: world.counts(), ..Figures::default() };
    for process in world.processes_from(None) {
        let wanted: BTreeSet<u32> = process.desired.iter().flat_map(|desired| desired.indices()).collect();
        let there: BTreeSet<u32> = process.slots.iter().map(|slot| slot.place.index).collect();
        let actuals =
            || process.slots.iter().filter_map(|slot| Some((slot.place.index, slot.actual.as_ref()?)));
        figures.instances_desired += wanted.len() as u64;
        figures.instances_missing += wanted.difference(&there).count() as u64;
        figures.instances_extra += actuals().filter(|(index, _)| !wanted.contains(index)).count() as u64;
        let unplaced = |lrp: &State| matches!(lrp, State::Unclaimed { placement_error: Some(_) });
        figures.instances_unplaced += actuals().filter(|(_, lrp)| unplaced(&lrp.state)).count() as u64;
        let crashed = actuals().any(|(_, lrp)| matches!(lrp.state, State::Crashed { .. }));
        figures.processes_crashing += u64::from(crashed);
        let rollout = process.rollout.as_deref().filter(|rollout| !rollout.is_over());
        match rollout.map(|rollout| (rollout.phase, rollout.stalled.is_empty())) {
            Some((rollout::Phase::Paused, _)) => figures.rollouts.paused += 1,
            Some((_, false)) => figures.rollouts.stalled += 1,
            Some((_, true)) => figures.rollouts.rolling += 1,
            None => {}
        }
    }
    let tasks = world.tasks_from(None).filter_map(|task| task.state.as_ref());
    let waits = |state: &&machines::task::State| {
        matches!(state, machines::task::State::Pending { placement_error: Some(_) })
    };
    figures.tasks_unplaced = tasks.filter(waits).count() as u64;
    figures.domains_fresh = world.domains().filter(|(id, _)| world.is_fresh(id, observed.now)).count() as u64;
    let mut cells: BTreeMap<CellState, u64> = BTreeMap::new();
    for (id, cell) in world.cells() {
        *cells.entry(cell_state(cell, observed.heartbeat_ages.get(id).copied())).or_default() += 1;
    }
    figures.cells = cells;
    figures
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn figures_equal_full_scan(groups in groups()) {
        let world = write(&groups).world;
        let observed = observed(&world);
        let mut figures = Figures::new(&world.freeze(), &observed);
        let present = std::mem::take(&mut figures.present);
        prop_assert_eq!(figures, scan(&world, &observed));
        let of_present: u64 = present.values().map(|cell| cell.used.memory_mb).sum();
        let there = world.cells().filter(|(_, cell)| cell.present);
        let used: Vec<u64> = there.map(|(id, _)| world.used_on(id).memory_mb).collect();
        prop_assert_eq!((present.len(), of_present), (used.len(), used.iter().sum()));
    }
}
