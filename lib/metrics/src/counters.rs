//! Counters and histograms for the hot path. An update takes a few atomic additions in the thread that does
//! the work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counter of events.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Creates a counter with the value 0.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds 1.
    pub fn add(&self) {
        self.add_many(1);
    }

    /// Adds `count`.
    pub fn add_many(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Sets the value to a count that is kept elsewhere.
    pub fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// Returns the current value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bucket bounds for durations from half a millisecond to ten seconds, in seconds.
pub const DURATION_BOUNDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Bucket bounds for quantities.
pub const QUANTITY_BOUNDS: &[f64] = &[1.0, 10.0, 100.0, 1_000.0, 10_000.0];

/// Nanoseconds in a second.
const NANOS_PER_SECOND: f64 = 1e9;

/// Histogram of durations or quantities.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// Number of observations for each bound, and number of values above the last bound.
    counts: Box<[AtomicU64]>,
    /// Sum of all observations, in nanoseconds or items.
    total: AtomicU64,
    /// Number of nanoseconds or items per unit.
    scale: f64,
}

/// Snapshot of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramSnapshot {
    /// Sum of all observations, in units.
    pub sum: f64,
    /// Number of observations.
    pub count: u64,
    /// Number of observations in each bucket: above the previous bound, and up to the bucket's own bound. The
    /// last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
}

impl Histogram {
    /// Creates a histogram of durations.
    #[must_use]
    pub fn durations() -> Self {
        Self::new(DURATION_BOUNDS, NANOS_PER_SECOND)
    }

    /// Creates a histogram of quantities.
    #[must_use]
    pub fn quantities() -> Self {
        Self::new(QUANTITY_BOUNDS, 1.0)
    }

    fn new(bounds: &'static [f64], scale: f64) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, total: AtomicU64::new(0), scale }
    }

    /// Records a duration.
    pub fn observe_duration(&self, duration: Duration) {
        self.observe(duration.as_secs_f64(), u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Records a quantity.
    pub fn observe_quantity(&self, count: u32) {
        self.observe(count.into(), count.into());
    }

    fn observe(&self, value: f64, parts: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(parts, Ordering::Relaxed);
    }

    /// Returns a snapshot of the histogram.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a sum of more than 2^53 nanoseconds is a hundred days")]
    pub fn snapshot(&self) -> HistogramSnapshot {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        HistogramSnapshot { sum: self.total.load(Ordering::Relaxed) as f64 / self.scale, count, buckets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observation_is_counted_in_first_matching_bucket() {
        let histogram = Histogram::durations();
        for millis in [0, 1, 2, 10, 11, 60_000] {
            histogram.observe_duration(Duration::from_millis(millis));
        }
        let HistogramSnapshot { sum, count, buckets } = histogram.snapshot();
        assert_eq!((sum, count), (60.024, 6));
        let full: Vec<_> = buckets.iter().filter(|(_, count)| *count > 0).copied().collect();
        assert_eq!(full, [(0.0005, 1), (0.001, 1), (0.0025, 1), (0.01, 1), (0.025, 1), (f64::INFINITY, 1)]);
        let things = Histogram::quantities();
        things.observe_quantity(7);
        assert_eq!((things.snapshot().sum, things.snapshot().buckets[1]), (7.0, (10.0, 1)));
    }
}
