//! Sets of instance indices, stored as sorted ranges: an event about ten thousand instances needs only one
//! range.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A set of indices as sorted, disjoint, inclusive ranges: `[[0,4],[7,7]]` is 0, 1, 2, 3, 4 and 7.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<(u32, u32)>", into = "Vec<(u32, u32)>")]
pub struct Indices(Vec<(u32, u32)>);

impl Indices {
    /// Returns the indices `0..count`.
    #[must_use]
    pub fn below(count: u32) -> Self {
        Self(if count == 0 { vec![] } else { vec![(0, count - 1)] })
    }

    /// Returns an iterator over the indices, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|&(first, last)| first..=last)
    }

    /// Returns the number of indices.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.iter().map(|&(first, last)| u64::from(last - first) + 1).sum()
    }

    /// Returns `true` if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if the set contains `index`.
    #[must_use]
    pub fn contains(&self, index: u32) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&index))
    }

    /// Returns the sorted, disjoint ranges, both ends included.
    #[must_use]
    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.0
    }
}

impl FromIterator<u32> for Indices {
    fn from_iter<I: IntoIterator<Item = u32>>(indices: I) -> Self {
        let mut all: Vec<u32> = indices.into_iter().collect();
        all.sort_unstable();
        let mut ranges: Vec<(u32, u32)> = vec![];
        for index in all {
            match ranges.last_mut() {
                Some((_, last)) if index <= last.saturating_add(1) => *last = index.max(*last),
                Some(_) | None => ranges.push((index, index)),
            }
        }
        Self(ranges)
    }
}

impl From<u32> for Indices {
    fn from(index: u32) -> Self {
        Self(vec![(index, index)])
    }
}

impl From<Indices> for Vec<(u32, u32)> {
    fn from(indices: Indices) -> Self {
        indices.0
    }
}

impl TryFrom<Vec<(u32, u32)>> for Indices {
    type Error = &'static str;

    /// Rejects ranges that are reversed, unsorted, overlapping or adjacent, so that each set has exactly one
    /// encoding.
    fn try_from(ranges: Vec<(u32, u32)>) -> Result<Self, Self::Error> {
        let forward = ranges.iter().all(|(first, last)| first <= last);
        let separate = ranges.windows(2).all(|pair| pair[0].1 < u32::MAX && pair[0].1 + 1 < pair[1].0);
        if forward && separate {
            Ok(Self(ranges))
        } else {
            Err("ranges must be sorted, separate and forward")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_round_trip_through_ranges() {
        let indices: Indices = [5, 0, 1, 2, 9, 1, 10].into_iter().collect();
        assert_eq!(indices.ranges(), [(0, 2), (5, 5), (9, 10)]);
        assert_eq!(indices.iter().collect::<Vec<_>>(), [0, 1, 2, 5, 9, 10]);
        assert_eq!(indices.len(), 6);
        assert!(Indices::try_from(vec![(0, 1), (2, 3)]).is_err());
        assert!(Indices::try_from(vec![(3, 1)]).is_err());
    }
}
