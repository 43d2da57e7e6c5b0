//! Finds the best places for one piece of work.
//!
//! What the auction prefers (Diego Dev Notes, "Distributing ActualLRPs: Auctioneer"), the most important first: few
//! siblings in the zone, few on the cell, an even load; and before all that, where it is asked for, an even spread over an
//! attribute, and affinity. So buckets of cells that are alike in that are looked at in this order, those that are equally
//! good together; in them first the cells without siblings, group by group from the emptiest cell on; then the cells with
//! siblings. Work that a cell refused is rare, and is looked for on every cell.

use std::cmp::Reverse;

use schemas::limits;
use schemas::resources::Resources;

use crate::board::{Board, FIRST, LAST, Spot, at};
use crate::family::{Family, First, load_with};
use crate::score::{Load, Score};
use crate::view::{Bucket, Counts};

/// The best places so far, the best first.
#[derive(Debug, Default)]
pub(crate) struct Best(Vec<Score>);

impl Best {
    fn is_full(&self) -> bool {
        self.0.len() >= limits::EXPLAINED_CANDIDATES
    }

    /// Takes a place in, unless there are enough better ones.
    fn offer(&mut self, score: Score) -> bool {
        let at = self.0.partition_point(|known| *known < score);
        if at >= limits::EXPLAINED_CANDIDATES {
            return false;
        }
        self.0.truncate(limits::EXPLAINED_CANDIDATES - 1);
        self.0.insert(at, score);
        true
    }

    /// Whether there are enough places that are better than this one, whatever its cell's number.
    fn ends_before(&self, score: Score) -> bool {
        self.is_full()
            && self.0.last().is_some_and(|worst| Score { cell: 0, ..*worst } < Score { cell: 0, ..score })
    }

    /// Whether there are enough places that are better than this one.
    fn is_full_of_better(&self, score: Score) -> bool {
        self.is_full() && self.0.last().is_some_and(|worst| *worst < score)
    }

    /// The places, the best first.
    pub(crate) fn places(&self) -> &[Score] {
        &self.0
    }
}

/// How good a bucket is: the spread, the affinity, the siblings in its zone.
type Tier = (u64, Reverse<i32>, u32);

/// Work to find a place for: its view and size, and the lane of its family, if that has instances.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) view: usize,
    pub(crate) size: Resources,
    pub(crate) lane: Option<usize>,
}

/// The best places for work of this size, by the indexes. Equal to [`scan`] of work that nobody refused.
pub(crate) fn search(board: &mut Board, wanted: Wanted, partition: usize, family: &mut Family) -> Best {
    let mut best = Best::default();
    let mut tiers = tiers(board, wanted, family);
    let mut left = tiers.as_mut_slice();
    while let Some(tier) = left.iter().map(|(tier, _)| *tier).min() {
        // Those of the best tier come first, the others stay to be looked at.
        let mut ends = 0;
        for place in 0..left.len() {
            if left[place].0 == tier {
                left.swap(place, ends);
                ends += 1;
            }
        }
        let (now, later) = left.split_at_mut(ends);
        for (_, bucket) in &*now {
            lonely(board, (wanted, partition), (*bucket, tier), family, &mut best);
        }
        if let Some(lane) = wanted.lane {
            let (spread, affinity, siblings_in_zone) = tier;
            for (_, bucket) in now.iter().filter(|_| !best.is_full()).copied().collect::<Vec<_>>() {
                family.walk(board, lane, bucket, |siblings_on_cell, load, cell| {
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

/// The best places for work that some cells refused, by looking at every candidate.
pub(crate) fn scan(board: &Board, wanted: Wanted, family: &Family, refused: &[u32]) -> Best {
    let Wanted { view, size, lane } = wanted;
    let mut best = Best::default();
    let seen = board.view(view);
    let none = Counts::default();
    let counts = lane.map_or(&none, |lane| family.lane_at(lane).counts());
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

/// How good each bucket is that may take an instance more, with its place in the view.
fn tiers(board: &Board, wanted: Wanted, family: &Family) -> Vec<(Tier, usize)> {
    let view = board.view(wanted.view);
    let none = Counts::default();
    let counts = wanted.lane.map_or(&none, |lane| family.lane_at(lane).counts());
    let buckets = view.buckets.iter().enumerate().filter(|(_, bucket)| !view.is_crowded(bucket, counts));
    let tier = |(place, bucket): (usize, &Bucket)| {
        let spread = view.deviation(bucket, counts);
        ((spread, Reverse(bucket.affinity), family.in_zone(bucket.zone)), place)
    };
    buckets.map(tier).collect()
}

/// Offers the cells of a bucket that have no sibling.
fn lonely(
    board: &mut Board,
    (wanted, partition): (Wanted, usize),
    (bucket, tier): (usize, Tier),
    family: &mut Family,
    best: &mut Best,
) {
    for place in 0..board.view(wanted.view).buckets[bucket].groups.len() {
        let group = board.view(wanted.view).buckets[bucket].groups[place];
        let from = wanted.lane.map_or(First::UNKNOWN, |lane| family.lane_at(lane).lonely_from(group));
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
        // Whether from there on nothing is good enough: neither the cell that stood there nor any that is fuller.
        if best.is_full_of_better(place_at(from.load, from.spot.1))
            && best.is_full_of_better(place_at(from.fuller, 0))
        {
            continue;
        }
        let place = (partition, group, from.spot);
        let first = lonely_in_group(board, place, wanted.size, (tier, family), best);
        if let Some(lane) = wanted.lane {
            let first = first.map_or(First::NONE, |spot| known(board, (partition, group), wanted.size, spot));
            family.lane_mut(lane).set_lonely_from(group, first);
        }
    }
}

/// A place in a group's order, with the loads that the search would ask for again and again.
fn known(board: &mut Board, (partition, group): (usize, u32), size: Resources, spot: Spot) -> First {
    let (group, _) = board.group(partition, group);
    let weight = spot.0 + group.scale.weigh(size);
    First { spot, load: group.scale.load(weight), fuller: group.scale.load(weight + 1) }
}

/// Offers the cells of a group that have no sibling, the emptiest first, until none can be among the best. Answers
/// where the first of them is that has room.
fn lonely_in_group(
    board: &mut Board,
    (partition, group, from): (usize, u32, Spot),
    size: Resources,
    ((spread, affinity, siblings_in_zone), family): (Tier, &Family),
    best: &mut Best,
) -> Option<Spot> {
    let (group, free) = board.group(partition, group);
    if from == LAST || group.lacks_room(size) {
        return None;
    }
    let added = group.scale.weigh(size);
    let refused = false;
    let score =
        |load, cell| Score { refused, spread, affinity, siblings_in_zone, siblings_on_cell: 0, load, cell };
    let (mut some_fit, mut first) = (from != FIRST, None);
    // Cells that are equally full are judged once.
    let mut judged = (u128::MAX, Load::default());
    let mut start = from;
    'runs: loop {
        for &(weight, cell) in group.order.range(start..) {
            if weight != judged.0 {
                judged = (weight, group.scale.load(weight + added));
                // From here on all are too full, whoever they are.
                if best.ends_before(score(judged.1, 0)) {
                    return first.or(Some((weight, cell)));
                }
            }
            if !free[at(cell)].fits(size) {
                continue;
            }
            some_fit = true;
            if family.on_cell(cell) > 0 {
                continue;
            }
            first = first.or(Some((weight, cell)));
            if !best.offer(score(judged.1, cell)) {
                // The others that are as full have greater numbers. A little fuller may round to the same load.
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
