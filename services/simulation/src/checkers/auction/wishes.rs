//! What work would rather have (docs/internals/model/auction.md, "Constraints"): affinity, and a spread over attributes.
//!
//! How full a share is, is kept as a fraction: whoever rounds it has to come to the same order.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use schemas::names::{CellId, ProcessGuid, Zone};
use schemas::resources::Constraint;
use schemas::rules::Spread;

use super::is_compatible;
use super::known::{Bounds, Seen, count};
use super::rank::{Merit, Siblings};
use crate::coverage::Situation;
use crate::racks;

/// The weights of the affinities that hold on a cell, added up.
pub(super) fn affinity(constraint: &Constraint, on: &Seen<'_>) -> i32 {
    let affinities = constraint.rules.iter().flat_map(|rules| &rules.affinities);
    affinities.filter(|one| racks::holds(&one.rule, on.id)).map(|one| i32::from(one.weight)).sum()
}

/// The wishes without which another place would have been better.
pub(super) fn decisive((cell, merit): (&CellId, &Merit), others: &[(&Seen<'_>, Merit)]) -> Vec<Situation> {
    let wins = |without: fn(Merit) -> Merit| {
        let own = without(merit.clone());
        let better =
            |(on, other): &(&Seen<'_>, Merit)| without(other.clone()).is_better_than(&own, on.id < cell);
        !others.iter().any(better)
    };
    if !wins(|merit| merit) {
        return vec![];
    }
    let without_spread = |merit| Merit { spread: Fullness::of_nothing(), ..merit };
    let without_affinity = |merit| Merit { affinity: 0, ..merit };
    let all = [
        (Situation::SpreadDecides, wins(without_spread)),
        (Situation::AffinityDecides, wins(without_affinity)),
    ];
    all.into_iter().filter(|(_, wins)| !wins).map(|(situation, _)| situation).collect()
}

/// What work is spread over.
fn spreads(constraint: &Constraint) -> &[Spread] {
    constraint.rules.as_ref().map_or(&[], |rules| &rules.spread)
}

/// How full the shares of a place are with one instance more, as the instances that the process would have if all were as
/// full. Of several spreads, the sum of that by weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filled {
    /// The weight of the spreads in which the place has no share: it comes after all others.
    unwanted: u64,
    /// The numerator and the denominator of the sum.
    sum: (u128, u128),
    /// The weight of all spreads.
    weight: u64,
}

impl Filled {
    /// Of what is spread over nothing.
    const NOTHING: Self = Self { unwanted: 0, sum: (0, 1), weight: 0 };

    fn plus(self, weight: u64, instances: u32, share: Option<(u128, u128)>) -> Self {
        // Where nothing is wanted only the number of instances counts.
        let (part, whole) = share.unwrap_or((1, 1));
        let more = (u128::from(weight) * u128::from(instances) * whole, part);
        let sum = (self.sum.0 * more.1 + more.0 * self.sum.1, self.sum.1 * more.1);
        let unwanted = self.unwanted + if share.is_none() { weight } else { 0 };
        Self { unwanted, sum, weight: self.weight + weight }
    }

    fn compare(&self, other: &Self) -> Ordering {
        let sums = || (self.sum.0 * other.sum.1).cmp(&(other.sum.0 * self.sum.1));
        self.unwanted.cmp(&other.unwanted).then_with(sums)
    }

    /// As explanations say it: the mean, to the nearest.
    fn said(self) -> u32 {
        if self.unwanted > 0 {
            return u32::MAX;
        }
        let of = self.sum.1 * u128::from(self.weight.max(1));
        u32::try_from((2 * self.sum.0 + of) / (2 * of)).unwrap_or(u32::MAX)
    }
}

/// How full a place is, for each number of candidates' values that may be true: that depends on who takes work, and is the
/// same for all places.
#[derive(Clone, Debug)]
pub(super) struct Fullness(Vec<Bounds<Filled>>);

impl Fullness {
    /// Of work that is not spread.
    pub(super) fn of_nothing() -> Self {
        Self(vec![(Filled::NOTHING, Filled::NOTHING)])
    }

    /// How full a place is with an instance more.
    pub(super) fn of(
        (guid, constraint): (&ProcessGuid, &Constraint),
        on: &Seen<'_>,
        (cells, siblings): (&[Seen<'_>], &Siblings<'_>),
    ) -> Self {
        let mut all = vec![(Filled::NOTHING, Filled::NOTHING)];
        for spread in spreads(constraint) {
            let value = value(spread, on);
            let there = siblings.where_so(guid, |id, zone| value_of(spread, id, zone) == value);
            let weight = u64::from(spread.weight);
            let with = |others: u32| {
                let share = share(spread, value, others);
                move |(least, most): &Bounds<Filled>| {
                    (least.plus(weight, there.0 + 1, share), most.plus(weight, there.1 + 1, share))
                }
            };
            let others = others(spread, constraint, cells);
            all = others.flat_map(|others| all.iter().map(with(others)).collect::<Vec<_>>()).collect();
        }
        Self(all)
    }

    /// How a place compares with another at its worst, in the order of merit: it is better only if it is so whatever is true.
    pub(super) fn at_worst(&self, other: &Self) -> Ordering {
        let each = self.0.iter().zip(&other.0).map(|(mine, theirs)| mine.1.compare(&theirs.0));
        each.max().unwrap_or(Ordering::Equal)
    }

    /// Whether an explanation may say so.
    pub(super) fn may_be(&self, said: u32) -> bool {
        self.0.iter().any(|(least, most)| (least.said()..=most.said()).contains(&said))
    }
}

/// What a cell has of the attribute of a spread.
fn value<'a>(spread: &Spread, on: &'a Seen<'_>) -> Option<&'a str> {
    value_of(spread, on.id, &on.log.presence.zone)
}

fn value_of<'a>(spread: &Spread, id: &CellId, zone: &'a Zone) -> Option<&'a str> {
    match spread.attribute.as_str() {
        racks::RACK => racks::rack_of(id),
        racks::ZONE => Some(zone.as_str()),
        other => unreachable!("nobody spreads over {other} here"),
    }
}

/// The part of the whole that a value gets: what is named its percentage, and so many others the rest evenly.
fn share(spread: &Spread, value: Option<&str>, others: u32) -> Option<(u128, u128)> {
    let percent = match spread.targets.get(value?) {
        Some(percent) => (u128::from(*percent), 100),
        None => {
            let named: u128 = spread.targets.values().map(|percent| u128::from(*percent)).sum();
            (100 - named, 100 * u128::from(others.max(1)))
        }
    };
    (percent.0 > 0).then_some(percent)
}

/// How many values beside those that are named the cells have that may take the work.
fn others(spread: &Spread, constraint: &Constraint, cells: &[Seen<'_>]) -> RangeInclusive<u32> {
    let values = |takes: fn(&Seen<'_>) -> bool| {
        let able = cells.iter().filter(|seen| takes(seen) && is_compatible(constraint, seen));
        let values: BTreeSet<&str> = able.filter_map(|seen| value(spread, seen)).collect();
        count(values.iter().filter(|value| !spread.targets.contains_key(**value)).count())
    };
    values(|seen| seen.open.0)..=values(|seen| seen.open.1)
}
