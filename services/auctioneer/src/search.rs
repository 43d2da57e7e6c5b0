//! Finds the best places for one piece of work.
//!
//! What the auction prefers (Diego Dev Notes, "Distributing ActualLRPs: Auctioneer"), the most important first: few
//! siblings in the zone, few on the cell, an even load. So zones are looked at in order of siblings, those with equally
//! many together; in them first the cells without siblings, group by group from the emptiest cell on; then the cells
//! with siblings. Work that a cell refused is rare, and is looked for on every cell.

use std::collections::BTreeMap;

use schemas::limits;
use schemas::resources::Resources;

use crate::board::{Board, FIRST, LAST, Spot, at};
use crate::family::{Family, load_with};
use crate::score::{Load, Score};

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

    /// The places, the best first.
    pub(crate) fn places(&self) -> &[Score] {
        &self.0
    }
}

/// The best places for work of this size, by the indexes. Equal to [`scan`] of work that nobody refused.
pub(crate) fn search(board: &mut Board, view: usize, size: Resources, family: &mut Family) -> Best {
    let mut best = Best::default();
    if family.is_empty() {
        for zone in 0..board.view(view).zones.len() {
            lonely(board, (view, zone), size, (family, None), &mut best);
        }
        return best;
    }
    let lane = family.lane(board, view, size);
    for (siblings, zones) in tiers(board, view, family) {
        for zone in &zones {
            lonely(board, (view, *zone), size, (family, Some(lane)), &mut best);
        }
        for zone in zones.iter().filter(|_| !best.is_full()).copied().collect::<Vec<_>>() {
            let zone = board.view(view).zones[zone].0;
            family.walk(board, lane, zone, |siblings_on_cell, load, cell| {
                best.offer(Score { refused: false, siblings_in_zone: siblings, siblings_on_cell, load, cell })
            });
        }
        if best.is_full() {
            break;
        }
    }
    best
}

/// The best places for work that some cells refused, by looking at every candidate.
pub(crate) fn scan(board: &Board, view: usize, size: Resources, family: &Family, refused: &[u32]) -> Best {
    let mut best = Best::default();
    for &cell in &board.view(view).candidates {
        if board.free(cell).fits(size) {
            best.offer(Score {
                refused: refused.contains(&cell),
                siblings_in_zone: family.in_zone(board.zone(cell)),
                siblings_on_cell: family.on_cell(cell),
                load: load_with(board, cell, size),
                cell,
            });
        }
    }
    best
}

/// The zones of a view, by their place in it, with those that have equally many siblings together: the fewest first.
fn tiers(board: &Board, view: usize, family: &Family) -> BTreeMap<u32, Vec<usize>> {
    let mut tiers: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (place, (zone, _)) in board.view(view).zones.iter().enumerate() {
        tiers.entry(family.in_zone(*zone)).or_default().push(place);
    }
    tiers
}

/// Offers the cells of a zone that have no sibling.
fn lonely(
    board: &mut Board,
    (view, zone): (usize, usize),
    size: Resources,
    (family, lane): (&mut Family, Option<usize>),
    best: &mut Best,
) {
    for place in 0..board.view(view).zones[zone].1.len() {
        let (zone, groups) = &board.view(view).zones[zone];
        let (siblings, group) = (family.in_zone(*zone), groups[place]);
        let from = lane.map_or(FIRST, |lane| family.lane_mut(lane).lonely_from(group));
        let first = lonely_in_group(board, (group, from), size, (siblings, family), best);
        if let Some(lane) = lane {
            family.lane_mut(lane).set_lonely_from(group, first.unwrap_or(LAST));
        }
    }
}

/// Offers the cells of a group that have no sibling, the emptiest first, until none can be among the best. Answers
/// where the first of them is that has room.
fn lonely_in_group(
    board: &mut Board,
    (group, from): (u32, Spot),
    size: Resources,
    (siblings_in_zone, family): (u32, &Family),
    best: &mut Best,
) -> Option<Spot> {
    let (group, free) = board.group(group);
    if from == LAST || group.lacks_room(size) {
        return None;
    }
    let added = group.scale.weigh(size);
    let score = |load, cell| Score { refused: false, siblings_in_zone, siblings_on_cell: 0, load, cell };
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
