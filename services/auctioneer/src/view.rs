//! View of the cells for the constraints of one piece of work: an instance or a task. A view contains the
//! candidates, their buckets, and a rating of each bucket. A bucket is a group of cells that differ only in
//! their load and their number of instances (docs/internals/model/auction.md, "Auction").

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemas::attributes::AttributeName;
use schemas::isolation::Isolation;
use schemas::names::CellId;
use schemas::resources::{Constraint, Mismatch};
use schemas::rules::{Rule, Spread};

use crate::board::{BoardCell, Standing, to_index, to_number};

/// Marker for "no bucket" and "no value".
pub(crate) const NONE: u32 = u32::MAX;
/// Maximum number of attribute values named in an error.
const MAX_NAMED_VALUES: usize = 3;
/// Maximum number of cells with insufficient isolation that an error names.
const MAX_NAMED_WEAK_CELLS: usize = 3;
/// Units per instance in [`Share::fill_level`]. The unit is small enough to distinguish the shares of 10,000
/// values.
const FILL_UNIT: u64 = 1 << 16;
/// Fill level for values that should have no instances. The fill level of any share is lower.
const UNWANTED_FILL: u64 = 1 << 50;

/// Values of one attribute, with the value of each cell.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Value of each cell, as an index into `values`. [`NONE`] if the cell has no value.
    pub(crate) value_of: Vec<u32>,
    /// Distinct values of the attribute.
    pub(crate) values: Vec<String>,
}

impl Column {
    pub(crate) fn new(cells: &[BoardCell], name: &AttributeName) -> Self {
        let mut known: BTreeMap<&str, u32> = BTreeMap::new();
        let mut value_of = Vec::with_capacity(cells.len());
        for cell in cells {
            let next = to_number(known.len());
            let value = cell.offer().attribute(name.as_str());
            value_of.push(value.map_or(NONE, |value| *known.entry(value).or_insert(next)));
        }
        let mut values = vec![String::new(); known.len()];
        known.into_iter().for_each(|(value, number)| values[to_index(number)] = value.to_owned());
        Self { value_of, values }
    }

    /// Returns the slot in which instances on this cell are counted. Cells with the same value share a slot.
    /// Cells without a value share another slot.
    pub(crate) fn slot(&self, cell: u32) -> usize {
        let value = self.value_of[to_index(cell)];
        if value == NONE { self.values.len() } else { to_index(value) }
    }
}

/// Fraction of the instances that should run on the cells with one attribute value: numerator and
/// denominator. `None` if no instances should run on cells with this value.
#[derive(Clone, Copy, Debug)]
struct Share(Option<(u64, u64)>);

impl Share {
    /// Returns the fill level of the share after one more instance, in units of [`FILL_UNIT`]. The fill level
    /// is the number of instances that the process would have if all shares were equally full.
    fn fill_level(self, there: u32) -> u64 {
        let parts = (u64::from(there) + 1) * FILL_UNIT;
        match self.0 {
            Some((part, whole)) => parts * whole / part,
            None => UNWANTED_FILL + parts,
        }
    }
}

/// A spread over an attribute, with the share of each value.
#[derive(Clone, Debug)]
pub(crate) struct SpreadView {
    pub(crate) column: Arc<Column>,
    weight: u64,
    /// Shares by slot of the column.
    shares: Vec<Share>,
}

impl SpreadView {
    /// Computes the shares of a spread. A value with a target gets the percentage of its target. The
    /// remaining percentage is divided equally among the candidates' values without a target.
    fn new(spread: &Spread, column: Arc<Column>, candidates: &[u32]) -> Self {
        let named = |value: usize| column.values.get(value).and_then(|value| spread.targets.get(value));
        let there: BTreeSet<usize> = candidates.iter().map(|cell| column.slot(*cell)).collect();
        let others = there.iter().filter(|value| **value < column.values.len() && named(**value).is_none());
        let others = others.count() as u64;
        let taken: u64 = spread.targets.values().map(|percent| u64::from(*percent)).sum();
        let rest = 100_u64.saturating_sub(taken);
        let share = |value: usize| match named(value) {
            Some(0) => Share(None),
            Some(percent) => Share(Some((u64::from(*percent), 100))),
            // Cells without the attribute have no share. If the targets add up to 100 %, values without a
            // target have no share either.
            None if value == column.values.len() || rest == 0 => Share(None),
            None => Share(Some((rest, 100 * others.max(1)))),
        };
        let shares = (0..=column.values.len()).map(share).collect();
        Self { column, weight: spread.weight.into(), shares }
    }
}

/// Constraint on the number of instances per cell or per attribute value.
#[derive(Clone, Debug)]
pub(crate) struct DistinctView {
    /// Index of this constraint among all constraints of the work.
    pub(crate) rule: usize,
    /// Attribute of the constraint. `None` if the constraint applies to cells.
    pub(crate) column: Option<Arc<Column>>,
    pub(crate) most: u32,
    /// Number of candidates for each value, by slot of the column.
    pub(crate) candidates: Vec<u32>,
}

/// Cells with the right stack and tags but insufficient isolation.
#[derive(Clone, Debug, Default)]
pub(crate) struct WeakIsolation {
    pub(crate) cells: u32,
    /// Some of these cells, with their isolation.
    pub(crate) examples: Vec<(CellId, Isolation)>,
}

impl WeakIsolation {
    fn add(&mut self, cell: &BoardCell) {
        self.cells += 1;
        if self.examples.len() < MAX_NAMED_WEAK_CELLS {
            self.examples.push((cell.id.clone(), cell.offer().isolation()));
        }
    }
}

/// Cells that fail one constraint and meet all constraints before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unmet {
    pub(crate) cells: u32,
    /// Number of these cells that lack the attribute.
    pub(crate) without: u32,
    /// Some of the attribute values of these cells.
    pub(crate) values: BTreeSet<String>,
    /// `true` if these cells have further attribute values.
    pub(crate) more: bool,
}

/// Candidates that differ only in their load and their number of instances.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    pub(crate) zone: u32,
    /// Slot of the bucket's value, for each spread.
    spread: Vec<usize>,
    /// Slot of the bucket's value, for each constraint on the number of instances.
    distinct: Vec<usize>,
    pub(crate) affinity: i32,
    /// Groups of the bucket's cells, in the partition of the view.
    pub(crate) groups: Vec<u32>,
}

/// Number of instances of one process, counted for each spread and each constraint of a view.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Counts by slot, for each spread.
    spread: Vec<Vec<u32>>,
    /// Counts by slot, for each constraint on the number of instances. The list is empty for a constraint
    /// that applies to cells.
    distinct: Vec<Vec<u32>>,
    /// Number of candidates that have reached the limit, for each constraint on the number of instances.
    pub(crate) crowded: Vec<u32>,
}

/// View of the cells from the constraints of some work.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// Number of evaluated cells: the number of all cells, or 1 if only one cell may run the work.
    pub(crate) cells: u32,
    /// Number of cells with a different stack.
    pub(crate) stack: u32,
    /// Number of cells with different tags.
    pub(crate) tags: u32,
    /// Cells with insufficient isolation.
    pub(crate) weak: WeakIsolation,
    /// For each constraint, the cells that fail it.
    pub(crate) unmet: Vec<Unmet>,
    /// The constraints of the work, for error messages.
    pub(crate) rules: Vec<Rule>,
    /// Number of compatible cells that evacuate.
    pub(crate) evacuating: u32,
    /// Number of compatible cells that an operator cordoned.
    pub(crate) cordoned: u32,
    /// Number of compatible cells whose self-test fails.
    pub(crate) unhealthy: u32,
    /// Number of compatible cells without recent heartbeats.
    pub(crate) silent: u32,
    /// Numbers of the remaining cells, in ascending order.
    pub(crate) candidates: Vec<u32>,
    /// Bucket of each cell. [`NONE`] if the cell is not a candidate.
    bucket_of: Vec<u32>,
    pub(crate) buckets: Vec<Bucket>,
    pub(crate) spreads: Vec<SpreadView>,
    pub(crate) distinct: Vec<DistinctView>,
    /// Partition of the board that contains the groups of the buckets. `None` if every candidate must be
    /// inspected.
    pub(crate) partition: Option<usize>,
}

/// Borrowed cells of a board.
#[derive(Clone, Copy)]
pub(crate) struct Cells<'a> {
    pub(crate) all: &'a [BoardCell],
    pub(crate) zone_of: &'a [u32],
    pub(crate) group_of: Option<&'a [Option<u32>]>,
}

impl View {
    pub(crate) fn new(
        cells: Cells<'_>,
        (constraint, only): (&Constraint, Option<&CellId>),
        partition: Option<usize>,
        spreads: Vec<(&Spread, Arc<Column>)>,
        distinct: Vec<(usize, Option<Arc<Column>>, u32)>,
    ) -> Self {
        let rules = constraint.rules.as_ref().map_or(vec![], |rules| rules.constraints.clone());
        let unmet = vec![Unmet::default(); rules.len()];
        let mut view = Self { unmet, rules, partition, ..Self::default() };
        let may_take = |cell: &BoardCell| only.is_none_or(|only| cell.id == *only);
        for (number, cell) in cells.all.iter().enumerate().filter(|(_, cell)| may_take(cell)) {
            view.classify_cell(to_number(number), cell, constraint);
        }
        view.spreads = spreads
            .into_iter()
            .map(|(spread, column)| SpreadView::new(spread, column, &view.candidates))
            .collect();
        view.distinct = distinct
            .into_iter()
            .map(|(rule, column, most)| {
                let mut candidates = vec![0; column.as_ref().map_or(0, |column| column.values.len() + 1)];
                if let Some(column) = &column {
                    view.candidates.iter().for_each(|cell| candidates[column.slot(*cell)] += 1);
                }
                DistinctView { rule, column, most, candidates }
            })
            .collect();
        view.fill_buckets(cells, constraint);
        view
    }

    fn classify_cell(&mut self, number: u32, cell: &BoardCell, constraint: &Constraint) {
        self.cells += 1;
        match (constraint.mismatch(&cell.offer()), cell.standing) {
            (Some(Mismatch::Stack), _) => self.stack += 1,
            (Some(Mismatch::Tags), _) => self.tags += 1,
            (Some(Mismatch::Isolation), _) => self.weak.add(cell),
            (Some(Mismatch::Rule(at, rule)), _) => {
                let name = rule.attribute.as_ref().map_or("", AttributeName::as_str);
                self.unmet[at].add(cell.offer().attribute(name));
            }
            (None, Standing::Evacuating) => self.evacuating += 1,
            (None, Standing::Cordoned) => self.cordoned += 1,
            (None, Standing::Unhealthy) => self.unhealthy += 1,
            (None, Standing::Silent) => self.silent += 1,
            (None, Standing::Open) => self.candidates.push(number),
        }
    }

    fn fill_buckets(&mut self, cells: Cells<'_>, constraint: &Constraint) {
        let mut known: BTreeMap<(u32, Vec<usize>, Vec<usize>, i32), u32> = BTreeMap::new();
        let mut groups: Vec<BTreeSet<u32>> = vec![];
        // Every cell of a group belongs to the same bucket.
        let mut of_group: BTreeMap<u32, u32> = BTreeMap::new();
        self.bucket_of = vec![NONE; cells.all.len()];
        for &number in &self.candidates {
            let group = cells.group_of.and_then(|group_of| group_of[to_index(number)]);
            if let Some(bucket) = group.and_then(|group| of_group.get(&group)) {
                self.bucket_of[to_index(number)] = *bucket;
                continue;
            }
            let zone = cells.zone_of[to_index(number)];
            let spread: Vec<usize> = self.spreads.iter().map(|spread| spread.column.slot(number)).collect();
            let slot = |one: &DistinctView| one.column.as_ref().map_or(0, |column| column.slot(number));
            let distinct: Vec<usize> = self.distinct.iter().map(slot).collect();
            let offer = cells.all[to_index(number)].offer();
            let affinity = constraint.rules.as_ref().map_or(0, |rules| rules.affinity(&offer));
            let bucket = *known.entry((zone, spread, distinct, affinity)).or_insert_with_key(|key| {
                let (zone, spread, distinct, affinity) = key.clone();
                self.buckets.push(Bucket { zone, spread, distinct, affinity, groups: vec![] });
                groups.push(BTreeSet::new());
                to_number(self.buckets.len() - 1)
            });
            self.bucket_of[to_index(number)] = bucket;
            groups[to_index(bucket)].extend(group);
            of_group.extend(group.map(|group| (group, bucket)));
        }
        for (bucket, groups) in self.buckets.iter_mut().zip(groups) {
            bucket.groups = groups.into_iter().collect();
        }
    }

    /// Returns `true` if a cell is a candidate.
    pub(crate) fn is_candidate(&self, cell: u32) -> bool {
        self.bucket_of[to_index(cell)] != NONE
    }

    /// Returns the index of a candidate's bucket.
    pub(crate) fn bucket_of(&self, cell: u32) -> usize {
        to_index(self.bucket_of[to_index(cell)])
    }

    /// Returns the weighted sum of the fill levels of a bucket's shares after one more instance.
    pub(crate) fn deviation(&self, bucket: &Bucket, counts: &Counts) -> u64 {
        let filled = |(at, (spread, slot)): (usize, (&SpreadView, &usize))| {
            let there = counts.spread.get(at).map_or(0, |counts| counts[*slot]);
            spread.weight * spread.shares[*slot].fill_level(there)
        };
        self.spreads.iter().zip(&bucket.spread).enumerate().map(filled).sum()
    }

    /// Converts a deviation to the number that explanations show: the number of instances that the process
    /// would have if all shares were equally full.
    pub(crate) fn explained_spread(&self, deviation: u64) -> u32 {
        let weights: u64 = self.spreads.iter().map(|spread| spread.weight).sum();
        let mean = deviation.checked_div(weights).unwrap_or(0);
        u32::try_from((mean + FILL_UNIT / 2) / FILL_UNIT).unwrap_or(u32::MAX)
    }

    /// Returns `true` if a constraint on an attribute value allows no further instance on the cells of a
    /// bucket.
    pub(crate) fn is_crowded(&self, bucket: &Bucket, counts: &Counts) -> bool {
        self.distinct.iter().zip(&bucket.distinct).enumerate().any(|(at, (one, slot))| {
            let there = counts.distinct.get(at).and_then(|counts| counts.get(*slot));
            one.column.is_some() && there.is_some_and(|there| *there >= one.most)
        })
    }

    /// Returns the maximum number of instances per cell.
    pub(crate) fn max_per_cell(&self) -> u32 {
        let most = self.distinct.iter().filter(|one| one.column.is_none()).map(|one| one.most);
        most.min().unwrap_or(u32::MAX)
    }

    /// Returns counts that are all zero.
    pub(crate) fn empty_counts(&self) -> Counts {
        let slots = |column: &Column| vec![0; column.values.len() + 1];
        Counts {
            spread: self.spreads.iter().map(|spread| slots(&spread.column)).collect(),
            distinct: self.distinct.iter().map(|one| one.column.as_deref().map_or(vec![], slots)).collect(),
            crowded: vec![0; self.distinct.len()],
        }
    }

    /// Adds instances on a cell. `before` is the cell's previous number of instances.
    pub(crate) fn add_instances(&self, counts: &mut Counts, (cell, before, more): (u32, u32, u32)) {
        for (spread, counts) in self.spreads.iter().zip(&mut counts.spread) {
            counts[spread.column.slot(cell)] += more;
        }
        let Counts { distinct, crowded, .. } = counts;
        for ((one, counts), crowded) in self.distinct.iter().zip(distinct).zip(crowded) {
            let (before, candidates) = match &one.column {
                None => (before, u32::from(self.is_candidate(cell))),
                Some(column) => {
                    let slot = column.slot(cell);
                    counts[slot] += more;
                    (counts[slot] - more, one.candidates[slot])
                }
            };
            if before < one.most && before + more >= one.most {
                *crowded += candidates;
            }
        }
    }
}

impl Unmet {
    fn add(&mut self, value: Option<&str>) {
        self.cells += 1;
        match value {
            None => self.without += 1,
            Some(value) if self.values.contains(value) => {}
            Some(value) if self.values.len() < MAX_NAMED_VALUES => {
                self.values.insert(value.to_owned());
            }
            Some(_) => self.more = true,
        }
    }
}
