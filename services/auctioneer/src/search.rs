//! Search for the best cells for one item of work: an instance or a task.
//!
//! The preferences of an auction (Diego Dev Notes, "Distributing ActualLRPs: Auctioneer") are, in order of
//! importance: few siblings in the zone, few siblings on the cell, and an even load. Siblings are instances
//! of the same process. Two preferences come first if the work has them: an even spread over an attribute,
//! and affinities.
//!
//! The search visits buckets of equivalent cells in the order of these preferences. Equally good buckets are
//! visited together. Within these buckets, the search first offers the cells without siblings, group by
//! group, starting with the emptiest cell. Afterwards it offers the cells with siblings. Refusals by a cell
//! are rare, so refused work is placed by a scan of every cell.

use std::cmp::Reverse;

use schemas::limits;
use schemas::resources::Resources;

use crate::board::{Board, MAX_SPOT, MIN_SPOT, Spot, to_index};
use crate::family::{Family, Frontier, load_with};
use crate::score::{Load, Score};
use crate::view::{Bucket, Counts};

/// Best cells found so far, the best first.
#[derive(Debug, Default)]
pub(crate) struct BestScores(Vec<Score>);

impl BestScores {
    fn is_full(&self) -> bool {
        self.0.len() >= limits::EXPLAINED_CANDIDATES
    }

    /// Inserts a cell, unless the list is full of better cells. Returns `true` if the cell was inserted.
    fn offer(&mut self, score: Score) -> bool {
        let at = self.0.partition_point(|known| *known < score);
        if at >= limits::EXPLAINED_CANDIDATES {
            return false;
        }
        self.0.truncate(limits::EXPLAINED_CANDIDATES - 1);
        self.0.insert(at, score);
        true
    }

    /// Returns `true` if the list is full of better cells than this score, for every possible cell number in
    /// the score.
    fn rules_out(&self, score: Score) -> bool {
        self.is_full()
            && self.0.last().is_some_and(|worst| Score { cell: 0, ..*worst } < Score { cell: 0, ..score })
    }

    /// Returns `true` if the list is full of better cells than this score.
    fn is_full_of_better(&self, score: Score) -> bool {
        self.is_full() && self.0.last().is_some_and(|worst| *worst < score)
    }

    /// Returns the scores, the best first.
    pub(crate) fn places(&self) -> &[Score] {
        &self.0
    }
}

/// Rating of a bucket: its spread, its affinity, and the number of siblings in its zone.
type Tier = (u64, Reverse<i32>, u32);

/// Work to place: its view, its size, and the number of its process's sibling index. The number is `None` if
/// the process has no instances.
#[derive(Clone, Copy)]
pub(crate) struct Demand {
    pub(crate) view: usize,
    pub(crate) size: Resources,
    pub(crate) sibling_index: Option<usize>,
}

/// Finds the best cells for work of this size through the indexes. If no cell refused the work, [`scan`]
/// returns the same result.
pub(crate) fn search(board: &mut Board, wanted: Demand, partition: usize, family: &mut Family) -> BestScores {
    let mut best = BestScores::default();
    let mut tiers = tiers(board, wanted, family);
    let mut left = tiers.as_mut_slice();
    while let Some(tier) = left.iter().map(|(tier, _)| *tier).min() {
        // Move the buckets of the best tier to the front. The other buckets remain for later rounds.
        let mut ends = 0;
        for place in 0..left.len() {
            if left[place].0 == tier {
                left.swap(place, ends);
                ends += 1;
            }
        }
        let (now, later) = left.split_at_mut(ends);
        for (_, bucket) in &*now {
            offer_free_cells(board, (wanted, partition), (*bucket, tier), family, &mut best);
        }
        if let Some(lane) = wanted.sibling_index {
            let (spread, affinity, siblings_in_zone) = tier;
            for (_, bucket) in now.iter().filter(|_| !best.is_full()).copied().collect::<Vec<_>>() {
                family.visit_occupied(board, lane, bucket, |siblings_on_cell, load, cell| {
                    let refused = false;
                    best.offer(Score {
                        refused,
                        spread,
                        affinity,
                        siblings_in_zone,
                        siblings_on_cell,
                        load,
                        cell,
                    })
                });
            }
        }
        if best.is_full() {
            break;
        }
        left = later;
    }
    best
}

/// Finds the best cells for work that some cells refused. Visits every candidate.
pub(crate) fn scan(board: &Board, wanted: Demand, family: &Family, refused: &[u32]) -> BestScores {
    let Demand { view, size, sibling_index: lane } = wanted;
    let mut best = BestScores::default();
    let seen = board.view(view);
    let none = Counts::default();
    let counts = lane.map_or(&none, |lane| family.index(lane).counts());
    for &cell in &seen.candidates {
        let bucket = &seen.buckets[seen.bucket_of(cell)];
        if board.free(cell).fits(size) && family.may_have_more(seen, lane, cell) {
            best.offer(Score {
                refused: refused.contains(&cell),
                spread: seen.deviation(bucket, counts),
                affinity: Reverse(bucket.affinity),
                siblings_in_zone: family.in_zone(bucket.zone),
                siblings_on_cell: family.on_cell(cell),
                load: load_with(board, cell, size),
                cell,
            });
        }
    }
    best
}

/// Returns the tier and the index of each bucket that may run one more instance.
fn tiers(board: &Board, wanted: Demand, family: &Family) -> Vec<(Tier, usize)> {
    let view = board.view(wanted.view);
    let none = Counts::default();
    let counts = wanted.sibling_index.map_or(&none, |lane| family.index(lane).counts());
    let buckets = view.buckets.iter().enumerate().filter(|(_, bucket)| !view.is_crowded(bucket, counts));
    let tier = |(place, bucket): (usize, &Bucket)| {
        let spread = view.deviation(bucket, counts);
        ((spread, Reverse(bucket.affinity), family.in_zone(bucket.zone)), place)
    };
    buckets.map(tier).collect()
}

/// Offers the cells without siblings of a bucket.
fn offer_free_cells(
    board: &mut Board,
    (wanted, partition): (Demand, usize),
    (bucket, tier): (usize, Tier),
    family: &mut Family,
    best: &mut BestScores,
) {
    for place in 0..board.view(wanted.view).buckets[bucket].groups.len() {
        let group = board.view(wanted.view).buckets[bucket].groups[place];
        let from = wanted.sibling_index.map_or(Frontier::UNKNOWN, |lane| family.index(lane).frontier(group));
        let (spread, affinity, siblings_in_zone) = tier;
        let refused = false;
        let place_at = |load, cell| Score {
            refused,
            spread,
            affinity,
            siblings_in_zone,
            siblings_on_cell: 0,
            load,
            cell,
        };
        // Skip the group if neither the first cell without siblings nor any fuller cell can be among the
        // best.
        if best.is_full_of_better(place_at(from.load, from.spot.1))
            && best.is_full_of_better(place_at(from.fuller, 0))
        {
            continue;
        }
        let place = (partition, group, from.spot);
        let first = offer_free_cells_in_group(board, place, wanted.size, (tier, family), best);
        if let Some(lane) = wanted.sibling_index {
            let first = first
                .map_or(Frontier::NONE, |spot| frontier_at(board, (partition, group), wanted.size, spot));
            family.index_mut(lane).set_frontier(group, first);
        }
    }
}

/// Returns a position in a group's order together with the loads at this position. The stored loads save
/// repeated computation.
fn frontier_at(board: &mut Board, (partition, group): (usize, u32), size: Resources, spot: Spot) -> Frontier {
    let (group, _) = board.group(partition, group);
    let weight = spot.0 + group.scale.weigh(size);
    Frontier { spot, load: group.scale.load(weight), fuller: group.scale.load(weight + 1) }
}

/// Offers the cells without siblings of a group, the emptiest first. Stops when no further cell can be among
/// the best. Returns the position of the first cell without siblings that has enough free resources.
fn offer_free_cells_in_group(
    board: &mut Board,
    (partition, group, from): (usize, u32, Spot),
    size: Resources,
    ((spread, affinity, siblings_in_zone), family): (Tier, &Family),
    best: &mut BestScores,
) -> Option<Spot> {
    let (group, free) = board.group(partition, group);
    if from == MAX_SPOT || group.lacks_room(size) {
        return None;
    }
    let added = group.scale.weigh(size);
    let refused = false;
    let score =
        |load, cell| Score { refused, spread, affinity, siblings_in_zone, siblings_on_cell: 0, load, cell };
    let (mut some_fit, mut first) = (from != MIN_SPOT, None);
    // Compute the load once for cells that are equally full.
    let mut judged = (u128::MAX, Load::default());
    let mut start = from;
    'runs: loop {
        for &(weight, cell) in group.order.range(start..) {
            if weight != judged.0 {
                judged = (weight, group.scale.load(weight + added));
                // All further cells are too full, for any cell number.
                if best.rules_out(score(judged.1, 0)) {
                    return first.or(Some((weight, cell)));
                }
            }
            if !free[to_index(cell)].fits(size) {
                continue;
            }
            some_fit = true;
            if family.on_cell(cell) > 0 {
                continue;
            }
            first = first.or(Some((weight, cell)));
            if !best.offer(score(judged.1, cell)) {
                // The following cells with equal load have greater numbers, so they are not better. But a
                // slightly fuller cell may round to the same load.
                start = (weight + 1, 0);
                continue 'runs;
            }
        }
        break;
    }
    if !some_fit {
        group.note_too_large(size);
    }
    first
}
