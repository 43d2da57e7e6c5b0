//! What the hot path adds to. Adding is a few atomic additions, by whoever it is that does the work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often something happened.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Nothing happened yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// It happened once.
    pub fn add(&self) {
        self.add_many(1);
    }

    /// It happened so often.
    pub fn add_many(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Somebody else counts: so often it has happened.
    pub fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// How often it happened.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bounds for what takes from half a millisecond to ten seconds, in seconds.
pub const SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Bounds for numbers of things.
pub const THINGS: &[f64] = &[1.0, 10.0, 100.0, 1_000.0, 10_000.0];

/// Nanoseconds in a second.
const NANOS: f64 = 1e9;

/// How long something took, each time, or how much it was.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One for each bound, and one for what is beyond all.
    counts: Box<[AtomicU64]>,
    /// What was observed in all: nanoseconds, or things.
    total: AtomicU64,
    /// How many of those make one of the unit.
    scale: f64,
}

/// What a histogram holds in a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// All together.
    pub sum: f64,
    /// How often.
    pub count: u64,
    /// For each bound how often it was at most that, and more than the one before. The last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
}

impl Histogram {
    /// Durations.
    #[must_use]
    pub fn of_seconds() -> Self {
        Self::new(SECONDS, NANOS)
    }

    /// Numbers of things.
    #[must_use]
    pub fn of_things() -> Self {
        Self::new(THINGS, 1.0)
    }

    fn new(bounds: &'static [f64], scale: f64) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, total: AtomicU64::new(0), scale }
    }

    /// It took so long.
    pub fn took(&self, duration: Duration) {
        self.observe(duration.as_secs_f64(), u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// It was so much.
    pub fn was(&self, count: u32) {
        self.observe(count.into(), count.into());
    }

    fn observe(&self, value: f64, parts: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(parts, Ordering::Relaxed);
    }

    /// What it holds.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a sum of more than 2^53 nanoseconds is a hundred days")]
    pub fn observed(&self) -> Observed {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        Observed { sum: self.total.load(Ordering::Relaxed) as f64 / self.scale, count, buckets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_observed_is_in_the_first_bucket_that_holds_it() {
        let histogram = Histogram::of_seconds();
        for millis in [0, 1, 2, 10, 11, 60_000] {
            histogram.took(Duration::from_millis(millis));
        }
        let Observed { sum, count, buckets } = histogram.observed();
        assert_eq!((sum, count), (60.024, 6));
        let full: Vec<_> = buckets.iter().filter(|(_, count)| *count > 0).copied().collect();
        assert_eq!(full, [(0.0005, 1), (0.001, 1), (0.0025, 1), (0.01, 1), (0.025, 1), (f64::INFINITY, 1)]);
        let things = Histogram::of_things();
        things.was(7);
        assert_eq!((things.observed().sum, things.observed().buckets[1]), (7.0, (10.0, 1)));
    }
}
