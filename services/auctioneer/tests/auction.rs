//! Property tests that compare the indexed auction with a reference implementation. For each item, the
//! reference implementation chooses the cell with the smallest score.

#![expect(clippy::unwrap_used, reason = "generated names and numbers are valid")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use auctioneer::auction::{Item, Siblings, Verdict, auction};
use auctioneer::board::{Board, BoardCell, Standing};
use auctioneer::score::{Scale, Score, bounded};
use proptest::prelude::*;
use schemas::attributes::{AttributeName, Attributes};
use schemas::container::{Epoch, WorkKey};
use schemas::definition::{Definition, Ports, TaskDefinition};
use schemas::isolation::{Isolation, IsolationLayer};
use schemas::limits::EXPLAINED_CANDIDATES;
use schemas::message::WorkDefinition;
use schemas::names::{CellId, PlacementTag, ProcessGuid, Stack, TaskGuid, Zone};
use schemas::placement::{Candidate, Eligibility, Explanation};
use schemas::priority::Priority;
use schemas::resources::{CellClass, Constraint, Mismatch, Resources, Shortage};
use schemas::rules::{Affinity, Distinct, Operator, Rule, Rules, Spread};
use schemas::{ActualLrpKey, Position, Timestamp};

// Reference implementation, without indexes or caches.

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
        .filter(|at| crowding(cells, *at, &item, siblings).next().is_none())
        .map(|at| score(cells, at, &item, siblings))
        .collect();
    scores.sort();
    let explanation = explain(cells, &item, &scores, siblings);
    let place = match scores.first() {
        None => Err(error(cells, &item, siblings)),
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

fn mismatch<'a>(cell: &BoardCell, item: &'a Item) -> Option<Mismatch<'a>> {
    item.constraint().mismatch(&cell.offer())
}

fn is_candidate(cell: &BoardCell, item: &Item) -> bool {
    mismatch(cell, item).is_none() && cell.standing == Standing::Open
}

fn score(cells: &[BoardCell], at: usize, item: &Item, siblings: &Siblings) -> Score {
    let cell = &cells[at];
    let on = |cell: &BoardCell| siblings_on(cell, item, siblings);
    let scale = Scale::new(cell.total);
    let used = cell.total.minus(cell.free.minus(item.order.resources()));
    Score {
        refused: item.refused_by.contains(&cell.id),
        spread: deviation(cells, cell, item, siblings),
        affinity: Reverse(affinity(cell, item)),
        siblings_in_zone: cells.iter().filter(|other| other.zone == cell.zone).map(on).sum(),
        siblings_on_cell: on(cell),
        load: scale.load(scale.weigh(used)),
        cell: u32::try_from(at).unwrap(),
    }
}

fn siblings_on(cell: &BoardCell, item: &Item, siblings: &Siblings) -> u32 {
    match &item.rank.key {
        WorkKey::Task { .. } => 0,
        WorkKey::Lrp { key, .. } => {
            siblings.get(&key.process_guid).and_then(|on_cells| on_cells.get(&cell.id)).copied().unwrap_or(0)
        }
    }
}

fn rules(item: &Item) -> Rules {
    item.constraint().rules.as_deref().cloned().unwrap_or_default()
}

fn value<'a>(cell: &'a BoardCell, name: &AttributeName) -> Option<&'a str> {
    cell.offer().attribute(name.as_str())
}

/// Returns the number of siblings on cells with the same attribute value.
fn siblings_with_same_value(
    cells: &[BoardCell],
    cell: &BoardCell,
    name: &AttributeName,
    item: &Item,
    siblings: &Siblings,
) -> u32 {
    let same = cells.iter().filter(|other| value(other, name) == value(cell, name));
    same.map(|other| siblings_on(other, item, siblings)).sum()
}

/// Returns the constraints on the number of instances whose limit the cell has reached.
fn crowding(cells: &[BoardCell], at: usize, item: &Item, siblings: &Siblings) -> impl Iterator<Item = Rule> {
    let cell = &cells[at];
    let is_full = |rule: &Rule| match rule.distinct() {
        None => false,
        Some(Distinct::Cell { max }) => siblings_on(cell, item, siblings) >= max,
        Some(Distinct::Attribute { attribute, max: most }) => {
            siblings_with_same_value(cells, cell, attribute, item, siblings) >= most
        }
    };
    rules(item).constraints.into_iter().filter(is_full).collect::<Vec<_>>().into_iter()
}

fn affinity(cell: &BoardCell, item: &Item) -> i32 {
    let of = |one: Affinity| if one.rule.holds(&cell.offer()) { i32::from(one.weight) } else { 0 };
    rules(item).affinities.into_iter().map(of).sum()
}

fn deviation(cells: &[BoardCell], cell: &BoardCell, item: &Item, siblings: &Siblings) -> u64 {
    let mut sum = 0;
    for spread in rules(item).spread {
        let there = u64::from(siblings_with_same_value(cells, cell, &spread.attribute, item, siblings)) + 1;
        let candidates = cells.iter().filter(|cell| is_candidate(cell, item));
        let values: BTreeSet<&str> = candidates.filter_map(|cell| value(cell, &spread.attribute)).collect();
        let others = values.iter().filter(|value| !spread.targets.contains_key(**value)).count() as u64;
        let rest = 100 - spread.targets.values().map(|percent| u64::from(*percent)).sum::<u64>();
        let (part, whole) = match value(cell, &spread.attribute) {
            None => (0, 1),
            Some(value) => match spread.targets.get(value) {
                Some(percent) => (u64::from(*percent), 100),
                None => (rest, 100 * others.max(1)),
            },
        };
        let unwanted = (1 << 50) + (there << 16);
        let filled = ((there << 16) * whole).checked_div(part).unwrap_or(unwanted);
        sum += u64::from(spread.weight) * filled;
    }
    sum
}

/// Converts a deviation to a number of instances.
fn spread_in_instances(item: &Item, deviation: u64) -> u32 {
    let weights: u64 = rules(item).spread.iter().map(|spread| u64::from(spread.weight)).sum();
    let mean = deviation.checked_div(weights).unwrap_or(0);
    u32::try_from((mean + (1 << 15)) >> 16).unwrap_or(u32::MAX)
}

/// For each constraint, describes the cells whose first mismatch is this constraint, and their values.
fn describe_mismatches(cells: &[BoardCell], item: &Item) -> Vec<String> {
    let mut all = vec![];
    for (number, rule) in rules(item).constraints.iter().enumerate() {
        let misses =
            |cell: &&BoardCell| matches!(mismatch(cell, item), Some(Mismatch::Rule(at, _)) if at == number);
        let missing: Vec<&BoardCell> = cells.iter().filter(misses).collect();
        let of = |cell: &&BoardCell| value(cell, rule.attribute.as_ref()?).map(str::to_owned);
        let values: BTreeSet<String> = missing.iter().filter_map(of).collect();
        let without = missing.iter().filter(|cell| of(cell).is_none()).count();
        let with = missing.len() - without;
        let cells = |n: usize, one: &str, many: &str| {
            if n == 1 { format!("1 cell {one}") } else { format!("{n} cells {many}") }
        };
        let mut have = vec![];
        if with > 0 {
            let values = values.into_iter().collect::<Vec<_>>().join(", ");
            have.push(format!("{} {values}", cells(with, "has", "have")));
        }
        if without > 0 {
            have.push(cells(without, "doesn't have it", "don't have it"));
        }
        if !have.is_empty() {
            all.push(format!("constraint {rule} ({})", have.join(", ")));
        }
    }
    all
}

/// Returns the constraints that exclude candidates because of existing instances, with the number of excluded
/// candidates for each constraint.
fn crowded_constraints(cells: &[BoardCell], item: &Item, siblings: &Siblings) -> Vec<(Rule, usize)> {
    let count = |rule: Rule| {
        let is_full = |at: &usize| {
            is_candidate(&cells[*at], item) && crowding(cells, *at, item, siblings).any(|full| full == rule)
        };
        let full = (0..cells.len()).filter(is_full).count();
        (rule, full)
    };
    rules(item).constraints.into_iter().map(count).filter(|(_, full)| *full > 0).collect()
}

fn lacking(cells: &[BoardCell], item: &Item) -> (usize, BTreeMap<Shortage, usize>) {
    let candidates: Vec<&BoardCell> = cells.iter().filter(|cell| is_candidate(cell, item)).collect();
    let mut lacking = BTreeMap::new();
    for what in candidates.iter().flat_map(|cell| cell.free.shortages(item.order.resources())) {
        *lacking.entry(what).or_default() += 1;
    }
    (candidates.len(), lacking)
}

/// Describes the cells of insufficient isolation. At most three are named.
fn describe_weak_isolation(cells: &[BoardCell], item: &Item) -> String {
    let weak = cells.iter().filter(|cell| mismatch(cell, item) == Some(Mismatch::Isolation));
    let mut said: Vec<String> =
        weak.map(|cell| format!("{} is {}", cell.id, cell.offer().isolation())).collect();
    let more = said.len().saturating_sub(3);
    said.truncate(3);
    said.extend((more > 0).then(|| format!("and {more} more")));
    format!("isolation ({})", said.join(", "))
}

fn error(cells: &[BoardCell], item: &Item, siblings: &Siblings) -> String {
    if cells.iter().all(|cell| mismatch(cell, item).is_some()) {
        let missed = describe_mismatches(cells, item);
        if !missed.is_empty() {
            return format!("found no compatible cells: {}", missed.join(", "));
        }
        // A cell whose tags do not match is closer to compatible than a cell whose stack does not match.
        let mismatches = cells.iter().filter_map(|cell| mismatch(cell, item));
        return match mismatches.max() {
            Some(Mismatch::Isolation) => {
                format!("found no compatible cells: {}", describe_weak_isolation(cells, item))
            }
            Some(why) => format!("found no compatible cells: {}", why.description()),
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
    let taken: Vec<String> = crowded_constraints(cells, item, siblings)
        .iter()
        .map(|(rule, n)| {
            format!("constraint {rule} ({n} {} taken)", if *n == 1 { "cell is" } else { "cells are" })
        })
        .collect();
    let left: Vec<&BoardCell> = (0..cells.len())
        .filter(|at| is_candidate(&cells[*at], item) && crowding(cells, *at, item, siblings).next().is_none())
        .map(|at| &cells[at])
        .collect();
    if left.is_empty() {
        return format!("found no compatible cells: {}", taken.join(", "));
    }
    assert!(!taken.is_empty() || left.len() == candidates && lacking.values().all(|n| *n <= candidates));
    let size = item.order.resources();
    let lacked = Shortage::ALL
        .into_iter()
        .filter(|what| left.iter().all(|cell| cell.free.shortages(size).any(|one| one == *what)));
    let every: Vec<String> = lacked.map(|what| what.as_str().to_owned()).chain(taken).collect();
    if every.is_empty() {
        return "insufficient resources".into();
    }
    format!("insufficient resources: {}", every.join(", "))
}

/// Returns the eligible and ineligible classes of all cells.
fn eligibility(cells: &[BoardCell], item: &Item, scores: &[Score]) -> Option<Box<Eligibility>> {
    if !scores.is_empty() {
        return None;
    }
    let may = |cell: &&BoardCell| item.constraint().mismatch(&cell.offer()).is_none();
    let class = |cell: &BoardCell| CellClass::from_offer(&cell.offer());
    let cells = || cells.iter().filter(|cell| item.only.as_ref().is_none_or(|only| cell.id == *only));
    let eligible: BTreeSet<CellClass> = cells().filter(may).map(class).collect();
    let all: BTreeSet<CellClass> = cells().map(class).collect();
    let ineligible: Vec<CellClass> = all.difference(&eligible).copied().collect();
    let rules = item.constraint().rules.iter().flat_map(|rules| &rules.constraints);
    let escaped: Vec<String> = rules.filter(|rule| rule.escapes()).take(4).map(ToString::to_string).collect();
    let most = 24;
    let others = eligible.len().saturating_sub(most) + ineligible.len().saturating_sub(most);
    Some(Box::new(Eligibility {
        observed_position: Position(0),
        eligible: eligible.into_iter().take(most).collect(),
        ineligible: ineligible.into_iter().take(most).collect(),
        unlisted: u32::try_from(others).unwrap(),
        escaped,
    }))
}

fn explain(cells: &[BoardCell], item: &Item, scores: &[Score], siblings: &Siblings) -> Explanation {
    let mut rejected: BTreeMap<String, u32> = BTreeMap::new();
    let mut add = |reason: &str| *rejected.entry(reason.to_owned()).or_default() += 1;
    for cell in cells {
        match (mismatch(cell, item), cell.standing) {
            (Some(why), _) => add(&why.description()),
            (None, Standing::Evacuating) => add("evacuating"),
            (None, Standing::Cordoned) => add("cordoned"),
            (None, Standing::Unhealthy) => add("unhealthy"),
            (None, Standing::Silent) => add("silent"),
            (None, Standing::Open) => {
                cell.free.shortages(item.order.resources()).for_each(|what| add(what.as_str()));
            }
        }
    }
    for (rule, full) in crowded_constraints(cells, item, siblings) {
        (0..full).for_each(|_| add(&format!("constraint {rule}")));
    }
    if scores.first().is_some_and(|winner| !winner.refused) {
        scores.iter().filter(|score| score.refused).for_each(|_| add("refused"));
    }
    let best = scores.iter().take(EXPLAINED_CANDIDATES).map(|score| Candidate {
        cell_id: cells[score.cell as usize].id.clone(),
        zone: cells[score.cell as usize].zone.clone(),
        spread: spread_in_instances(item, score.spread),
        affinity: score.affinity.0,
        siblings_in_zone: score.siblings_in_zone,
        siblings_on_cell: score.siblings_on_cell,
        used_permille: score.load.permille(),
    });
    Explanation {
        cells: u32::try_from(cells.len()).unwrap(),
        rejected,
        best: best.collect(),
        eligibility: eligibility(cells, item, scores),
    }
}

// Generators.

/// Generates small sizes that often tie, and sizes so large that different loads round to the same value.
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

/// Generates a few values of a few attributes, some of which a cell may lack.
fn attributes() -> impl Strategy<Value = Attributes> {
    let racks = proptest::option::weighted(0.8, 0..4_u32);
    let isolation = prop_oneof![
        4 => Just(None),
        2 => Just(Some(Isolation::FULL)),
        1 => Just(Some(Isolation::FULL.without(IsolationLayer::Landlock))),
        1 => Just(Some(Isolation::NONE)),
    ];
    (racks, proptest::option::weighted(0.7, 0..3_u32), isolation).prop_map(|(rack, size, isolation)| {
        let named = |name: &str, value: Option<String>| Some((AttributeName::new(name).unwrap(), value?));
        let rack = named("rack", rack.map(|rack| format!("r{rack}")));
        let size = named("size", size.map(|size| size.to_string()));
        let isolation = named("isolation", isolation.map(|isolation| isolation.to_string()));
        Attributes::new(rack.into_iter().chain(size).chain(isolation).collect()).unwrap()
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    let rule = |attribute: &str, operator, value: String| Rule {
        attribute: AttributeName::new(attribute).ok(),
        operator,
        value: value.into(),
    };
    prop_oneof![
        (0..4_u32).prop_map(move |r| rule("rack", Operator::Equal, format!("r{r}"))),
        (0..4_u32).prop_map(move |r| rule("rack", Operator::NotEqual, format!("r{r}"))),
        (0..3_u32).prop_map(move |size| rule("size", Operator::AtLeast, size.to_string())),
        (0..4_u32).prop_map(move |r| rule("rack", Operator::Regexp, format!("r[{r}-9]"))),
        (0..30_u32).prop_map(move |c| rule("unique.cell_id", Operator::NotEqual, format!("cell-{c}"))),
        (0..3_u32).prop_map(move |z| rule("zone", Operator::NotEqual, format!("z{z}"))),
        Just(rule("rack", Operator::IsSet, String::new())),
    ]
}

fn distinct_rule() -> impl Strategy<Value = Rule> {
    let attribute = prop_oneof![Just(None), Just(Some("rack")), Just(Some("size")), Just(Some("zone"))];
    (attribute, 1..5_u32).prop_map(|(attribute, most)| Rule {
        attribute: attribute.and_then(|name| AttributeName::new(name).ok()),
        operator: if attribute.is_some() { Operator::DistinctAttribute } else { Operator::DistinctCell },
        value: if most == 1 { String::new() } else { most.to_string() }.into(),
    })
}

fn any_rules() -> impl Strategy<Value = Option<Box<Rules>>> {
    let weight = prop_oneof![-3..0_i8, 1..4_i8];
    let affinity = (rule(), weight).prop_map(|(rule, weight)| Affinity { rule, weight });
    let targets = proptest::collection::btree_map((0..5_u32).prop_map(|r| format!("r{r}")), 0..26_u8, 0..4);
    let name =
        prop_oneof![3 => Just("rack"), 1 => Just("size"), 1 => Just("zone"), 1 => Just("unique.cell_id")];
    let spread = (name, 1..3_u8, targets).prop_map(|(name, weight, targets)| Spread {
        attribute: AttributeName::new(name).unwrap(),
        weight,
        targets,
    });
    let few = |most| 0..=most;
    let rules = (
        proptest::collection::vec(prop_oneof![rule(), distinct_rule()], few(2)),
        proptest::collection::vec(affinity, few(2)),
        proptest::collection::vec(spread, few(2)),
    );
    let rules = rules.prop_map(|(mut constraints, affinities, spread)| {
        constraints.dedup();
        Some(Box::new(Rules { constraints, affinities, spread }))
    });
    prop_oneof![2 => Just(None), 3 => rules]
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
    (0..30_u32, zone, stack(), tags(), attributes(), (total, used()), standing).prop_map(
        |(id, zone, stack, placement_tags, attributes, (total, used), standing)| {
            let (total, free) = bounded(total, total.minus(used));
            let id = CellId::new(&format!("cell-{id}")).unwrap();
            let zone = Zone::new(&format!("z{zone}")).unwrap();
            BoardCell { id, zone, stack, placement_tags, attributes, total, free, standing }
        },
    )
}

/// Generates the used resources of a cell. They are either zero or almost zero, so that many cells are
/// equivalent, or have any value.
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
    let walls = prop_oneof![
        5 => Just(BTreeSet::new()),
        1 => Just(BTreeSet::from(IsolationLayer::ALL)),
        1 => Just(BTreeSet::from([IsolationLayer::Files])),
    ];
    (proptest::option::of(stack()), tags(), walls, any_rules()).prop_map(
        |(stack, placement_tags, isolation, rules)| Constraint { stack, placement_tags, isolation, rules },
    )
}

fn lrp(constraint: Constraint, memory_mb: u64, disk_mb: u64) -> WorkDefinition {
    WorkDefinition::Lrp(Arc::new(Definition {
        constraint: constraint.into(),
        memory_mb,
        disk_mb,
        ports: Ports::new(),
        ..fixtures::definition()
    }))
}

fn task(constraint: Constraint, memory_mb: u64, disk_mb: u64) -> WorkDefinition {
    WorkDefinition::Task(Arc::new(TaskDefinition {
        constraint,
        memory_mb,
        disk_mb,
        ..fixtures::task_definition()
    }))
}

fn item() -> impl Strategy<Value = Item> {
    let name = (0..30_u32).prop_map(|id| CellId::new(&format!("cell-{id}")).unwrap());
    let refused = prop_oneof![
        12 => Just(BTreeSet::new()),
        1 => proptest::collection::btree_set(name, 1..5),
    ];
    // Most processes have one size, so that their instances share cached state within an auction.
    let size = prop_oneof![
        8 => Just(None),
        1 => (0..4_u64, 0..4_u64).prop_map(Some),
        1 => (amount(), amount()).prop_map(Some),
    ];
    let key = (prop_oneof![1 => Just(true), 3 => Just(false)], 0..4_u32, 0..40_u32);
    (key, constraint(), size, refused, 0..3_u64, prop_oneof![6 => Just(50_u8), 1 => 1..=100_u8]).prop_map(
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
            let priority = Priority::new(priority).unwrap();
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

/// Generates cells, existing instances and some batches. Each batch is followed by changes of free resources.
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
    fn indexed_auction_equals_reference((cells, mut siblings, rounds) in scene()) {
        let mut cells = distinct(cells);
        let mut board = Board::new(cells.clone());
        for (batch, changes) in rounds {
            let got = auction(&mut board, batch.clone(), &siblings);
            let again = auction(&mut Board::new(cells.clone()), batch.clone(), &siblings);
            let before = cells.clone();
            let want = reference(&mut cells, batch, &mut siblings);
            prop_assert_eq!(&got, &want);
            prop_assert_eq!(&again, &want);
            check_no_duplicates(&got)?;
            check_no_overcommit(&before, &got)?;
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

fn check_no_duplicates(verdicts: &[Verdict]) -> Result<(), TestCaseError> {
    let keys: BTreeSet<&WorkKey> = verdicts.iter().map(|verdict| &verdict.item.rank.key).collect();
    prop_assert_eq!(keys.len(), verdicts.len());
    Ok(())
}

fn check_no_overcommit(cells: &[BoardCell], verdicts: &[Verdict]) -> Result<(), TestCaseError> {
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
