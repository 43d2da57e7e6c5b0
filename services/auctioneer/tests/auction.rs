//! The auction with its indexes is equal to the plainest one: for each piece of work, the cell with the smallest score.

#![expect(clippy::unwrap_used, reason = "names and numbers that are drawn are good")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use auctioneer::auction::{Item, Siblings, Verdict, auction};
use auctioneer::board::{Board, BoardCell, Standing};
use auctioneer::score::{Scale, Score, bounded};
use proptest::prelude::*;
use schemas::container::{Epoch, WorkKey};
use schemas::definition::{Definition, TaskDefinition};
use schemas::limits::EXPLAINED_CANDIDATES;
use schemas::message::Order;
use schemas::names::{CellId, PlacementTag, ProcessGuid, Stack, TaskGuid, Zone};
use schemas::placement::{Candidate, Explanation};
use schemas::resources::{Constraint, Lack, Mismatch, Resources};
use schemas::{ActualLrpKey, Timestamp};

// The reference: no index, no memory, nothing clever.

fn reference(cells: &mut [BoardCell], mut batch: Vec<Item>, siblings: &mut Siblings) -> Vec<Verdict> {
    let mut seen = BTreeSet::new();
    batch.sort_by(|a, b| a.rank.cmp(&b.rank));
    batch.retain(|item| seen.insert(item.rank.key.clone()));
    batch.into_iter().map(|item| judge(cells, item, siblings)).collect()
}

fn judge(cells: &mut [BoardCell], item: Item, siblings: &mut Siblings) -> Verdict {
    let size = item.order.resources();
    let mut scores: Vec<Score> = (0..cells.len())
        .filter(|at| is_candidate(&cells[*at], &item) && cells[*at].free.fits(size))
        .map(|at| score(cells, at, &item, siblings))
        .collect();
    scores.sort();
    let explanation = explain(cells, &item, &scores);
    let place = match scores.first() {
        None => Err(error(cells, &item)),
        Some(winner) => {
            let cell = &mut cells[winner.cell as usize];
            cell.free = cell.free.minus(size);
            if let WorkKey::Lrp { key, .. } = &item.rank.key {
                *siblings.entry(key.process_guid.clone()).or_default().entry(cell.id.clone()).or_default() +=
                    1;
            }
            Ok(cell.id.clone())
        }
    };
    Verdict { item, place, explanation }
}

fn mismatch(cell: &BoardCell, item: &Item) -> Option<Mismatch> {
    item.constraint().mismatch(&cell.stack, &cell.placement_tags)
}

fn is_candidate(cell: &BoardCell, item: &Item) -> bool {
    mismatch(cell, item).is_none() && cell.standing == Standing::Open
}

fn score(cells: &[BoardCell], at: usize, item: &Item, siblings: &Siblings) -> Score {
    let cell = &cells[at];
    let on = |cell: &BoardCell| match &item.rank.key {
        WorkKey::Task { .. } => 0,
        WorkKey::Lrp { key, .. } => {
            siblings.get(&key.process_guid).and_then(|on_cells| on_cells.get(&cell.id)).copied().unwrap_or(0)
        }
    };
    let scale = Scale::new(cell.total);
    let used = cell.total.minus(cell.free.minus(item.order.resources()));
    Score {
        refused: item.refused_by.contains(&cell.id),
        siblings_in_zone: cells.iter().filter(|other| other.zone == cell.zone).map(on).sum(),
        siblings_on_cell: on(cell),
        load: scale.load(scale.weigh(used)),
        cell: u32::try_from(at).unwrap(),
    }
}

fn lacking(cells: &[BoardCell], item: &Item) -> (usize, BTreeMap<Lack, usize>) {
    let candidates: Vec<&BoardCell> = cells.iter().filter(|cell| is_candidate(cell, item)).collect();
    let mut lacking = BTreeMap::new();
    for what in candidates.iter().flat_map(|cell| cell.free.lacks(item.order.resources())) {
        *lacking.entry(what).or_default() += 1;
    }
    (candidates.len(), lacking)
}

fn error(cells: &[BoardCell], item: &Item) -> String {
    let mismatches: BTreeSet<Mismatch> = cells.iter().filter_map(|cell| mismatch(cell, item)).collect();
    if cells.iter().all(|cell| mismatch(cell, item).is_some()) {
        // Of stack and tags the tags are the nearer miss.
        return match mismatches.last() {
            Some(why) => format!("found no compatible cells: {}", why.word()),
            None => "found no compatible cells".into(),
        };
    }
    let (candidates, lacking) = lacking(cells, item);
    if candidates == 0 {
        let compatible = || cells.iter().filter(|cell| mismatch(cell, item).is_none());
        let all = compatible().all(|cell| cell.standing == Standing::Cordoned);
        let why = if all { ": cordoned" } else { "" };
        return format!("unable to communicate to compatible cells{why}");
    }
    let every: Vec<&str> =
        lacking.iter().filter(|(_, n)| **n == candidates).map(|(what, _)| what.word()).collect();
    if every.is_empty() {
        return "insufficient resources".into();
    }
    format!("insufficient resources: {}", every.join(", "))
}

fn explain(cells: &[BoardCell], item: &Item, scores: &[Score]) -> Explanation {
    let mut passed_over: BTreeMap<String, u32> = BTreeMap::new();
    let mut add = |reason: &str| *passed_over.entry(reason.to_owned()).or_default() += 1;
    for cell in cells {
        match (mismatch(cell, item), cell.standing) {
            (Some(why), _) => add(why.word()),
            (None, Standing::Evacuating) => add("evacuating"),
            (None, Standing::Cordoned) => add("cordoned"),
            (None, Standing::Unhealthy) => add("unhealthy"),
            (None, Standing::Silent) => add("silent"),
            (None, Standing::Open) => {
                cell.free.lacks(item.order.resources()).for_each(|what| add(what.word()));
            }
        }
    }
    if scores.first().is_some_and(|winner| !winner.refused) {
        scores.iter().filter(|score| score.refused).for_each(|_| add("refused"));
    }
    let best = scores.iter().take(EXPLAINED_CANDIDATES).map(|score| Candidate {
        cell_id: cells[score.cell as usize].id.clone(),
        zone: cells[score.cell as usize].zone.clone(),
        siblings_in_zone: score.siblings_in_zone,
        siblings_on_cell: score.siblings_on_cell,
        used_permille: score.load.permille(),
    });
    Explanation { cells: u32::try_from(cells.len()).unwrap(), passed_over, best: best.collect() }
}

// What is drawn.

/// Sizes that meet in many ties, and sizes so large that different loads round to one.
fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..9_u64, 2 => 9..40_u64, 1 => (1_u64 << 29)..=(1_u64 << 30)]
}

fn resources() -> impl Strategy<Value = Resources> {
    let containers = prop_oneof![8 => 0..6_u32, 1 => (u32::MAX - 2)..=u32::MAX];
    (amount(), amount(), containers, 0..6_u32).prop_map(|(memory_mb, disk_mb, containers, ports)| Resources {
        memory_mb,
        disk_mb,
        containers,
        ports,
    })
}

fn tags() -> impl Strategy<Value = BTreeSet<PlacementTag>> {
    prop_oneof![
        12 => Just(BTreeSet::new()),
        1 => Just(BTreeSet::from([PlacementTag::new("isolated").unwrap()])),
    ]
}

fn stack() -> impl Strategy<Value = Stack> {
    prop_oneof![12 => Just("linux"), 1 => Just("windows")].prop_map(|name| Stack::new(name).unwrap())
}

fn cell() -> impl Strategy<Value = BoardCell> {
    let standing = prop_oneof![
        20 => Just(Standing::Open),
        1 => Just(Standing::Evacuating),
        1 => Just(Standing::Cordoned),
        1 => Just(Standing::Unhealthy),
        1 => Just(Standing::Silent),
    ];
    let small = Resources { memory_mb: 8, disk_mb: 8, containers: 4, ports: 4 };
    let middle = Resources { memory_mb: 64, disk_mb: 64, containers: 64, ports: 8 };
    let giant = Resources { memory_mb: 1 << 30, disk_mb: 1 << 30, containers: u32::MAX, ports: u32::MAX };
    let total = prop_oneof![1 => resources(), 2 => Just(small), 2 => Just(middle), 3 => Just(giant)];
    let zone = prop_oneof![4 => Just(0_u32), 2 => Just(1_u32), 1 => 2..5_u32];
    (0..30_u32, zone, stack(), tags(), total, used(), standing).prop_map(
        |(id, zone, stack, placement_tags, total, used, standing)| {
            let (total, free) = bounded(total, total.minus(used));
            let id = CellId::new(&format!("cell-{id}")).unwrap();
            let zone = Zone::new(&format!("z{zone}")).unwrap();
            BoardCell { id, zone, stack, placement_tags, total, free, standing }
        },
    )
}

/// Nothing, or next to nothing, so that many cells are alike; or anything.
fn used() -> impl Strategy<Value = Resources> {
    let hardly = (0..2_u64, 0..2_u64, 0..4_u32).prop_map(|(memory_mb, disk_mb, containers)| Resources {
        memory_mb,
        disk_mb,
        containers,
        ports: containers,
    });
    let containers =
        (0..5_u32).prop_map(|containers| Resources { memory_mb: 0, disk_mb: 0, containers, ports: 0 });
    prop_oneof![2 => Just(Resources::default()), 3 => containers, 2 => hardly, 2 => resources()]
}

fn constraint() -> impl Strategy<Value = Constraint> {
    (proptest::option::of(stack()), tags())
        .prop_map(|(stack, placement_tags)| Constraint { stack, placement_tags })
}

fn lrp(constraint: Constraint, memory_mb: u64, disk_mb: u64) -> Order {
    Order::Lrp(Arc::new(Definition {
        constraint,
        memory_mb,
        disk_mb,
        ports: vec![],
        ..fixtures::definition()
    }))
}

fn task(constraint: Constraint, memory_mb: u64, disk_mb: u64) -> Order {
    Order::Task(Arc::new(TaskDefinition { constraint, memory_mb, disk_mb, ..fixtures::task_definition() }))
}

fn item() -> impl Strategy<Value = Item> {
    let name = (0..30_u32).prop_map(|id| CellId::new(&format!("cell-{id}")).unwrap());
    let refused = prop_oneof![
        12 => Just(BTreeSet::new()),
        1 => proptest::collection::btree_set(name, 1..5),
    ];
    // Mostly a process has one size: then its instances share what an auction remembers.
    let size = prop_oneof![
        8 => Just(None),
        1 => (0..4_u64, 0..4_u64).prop_map(Some),
        1 => (amount(), amount()).prop_map(Some),
    ];
    let key = (prop_oneof![1 => Just(true), 3 => Just(false)], 0..4_u32, 0..40_u32);
    (key, constraint(), size, refused, 0..3_u64, prop_oneof![6 => Just(50_u8), 1 => any::<u8>()]).prop_map(
        |((is_task, name, index), constraint, size, refused_by, since, priority)| {
            let (memory, disk) = size.unwrap_or((u64::from(name % 3), u64::from(name / 3)));
            let epoch = Epoch::default();
            let (key, order) = if is_task {
                let task_guid = TaskGuid::new(&format!("t{name}-{index}")).unwrap();
                (WorkKey::Task { task_guid, epoch }, task(constraint, memory, disk))
            } else {
                let process_guid = ProcessGuid::new(&format!("p{name}")).unwrap();
                let key = ActualLrpKey::new(process_guid, fixtures::place(index, "d"));
                (WorkKey::Lrp { key, epoch }, lrp(constraint, memory, disk))
            };
            Item { refused_by, ..Item::new(priority, Timestamp(since), key, order) }
        },
    )
}

fn siblings() -> impl Strategy<Value = Siblings> {
    let name = (0..4_u32).prop_map(|name| ProcessGuid::new(&format!("p{name}")).unwrap());
    let cell = (0..32_u32).prop_map(|id| CellId::new(&format!("cell-{id}")).unwrap());
    proptest::collection::btree_map(name, proptest::collection::btree_map(cell, 0..4_u32, 0..12), 0..4)
}

type Scene = (Vec<BoardCell>, Siblings, Vec<(Vec<Item>, Vec<(usize, Resources)>)>);

/// Cells, instances on them, and some batches, each followed by changes of what is free.
fn scene() -> impl Strategy<Value = Scene> {
    let batch = proptest::collection::vec(item(), 0..150);
    let changes = proptest::collection::vec((any::<usize>(), used()), 0..6);
    (
        prop_oneof![proptest::collection::vec(cell(), 0..6), proptest::collection::vec(cell(), 6..30)],
        siblings(),
        proptest::collection::vec((batch, changes), 1..4),
    )
}

fn distinct(cells: Vec<BoardCell>) -> Vec<BoardCell> {
    let mut by_id = BTreeMap::new();
    for cell in cells {
        by_id.entry(cell.id.clone()).or_insert(cell);
    }
    by_id.into_values().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn the_auction_equals_the_plainest_one((cells, mut siblings, rounds) in scene()) {
        let mut cells = distinct(cells);
        let mut board = Board::new(cells.clone());
        for (batch, changes) in rounds {
            let got = auction(&mut board, batch.clone(), &siblings);
            let again = auction(&mut Board::new(cells.clone()), batch.clone(), &siblings);
            let before = cells.clone();
            let want = reference(&mut cells, batch, &mut siblings);
            prop_assert_eq!(&got, &want);
            prop_assert_eq!(&again, &want);
            nothing_twice(&got)?;
            nothing_overcommitted(&before, &got)?;
            let many = cells.len();
            for (at, used) in changes.into_iter().filter(|_| many > 0) {
                let number = at % many;
                let free = cells[number].total.minus(used);
                board.set_free(u32::try_from(number).unwrap(), free);
                cells[number].free = bounded(cells[number].total, free).1;
            }
            for (number, cell) in cells.iter().enumerate() {
                prop_assert_eq!(board.free(u32::try_from(number).unwrap()), cell.free);
            }
        }
    }
}

fn nothing_twice(verdicts: &[Verdict]) -> Result<(), TestCaseError> {
    let keys: BTreeSet<&WorkKey> = verdicts.iter().map(|verdict| &verdict.item.rank.key).collect();
    prop_assert_eq!(keys.len(), verdicts.len());
    Ok(())
}

fn nothing_overcommitted(cells: &[BoardCell], verdicts: &[Verdict]) -> Result<(), TestCaseError> {
    for cell in cells {
        let placed = verdicts.iter().filter(|verdict| verdict.place.as_ref() == Ok(&cell.id));
        let mut used = Resources::default();
        for verdict in placed {
            prop_assert!(is_candidate(cell, &verdict.item));
            used = used.plus(verdict.item.order.resources());
        }
        prop_assert!(cell.free.fits(used), "{:?} of {:?} on {}", used, cell.free, cell.id);
    }
    Ok(())
}
