//! Many seeds, on every core.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rep::reconcile::Row;

use super::cluster::{Outcome, run};
use super::coverage::{Coverage, Situation};

/// What all seeds of a batch showed together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// How many were run.
    pub seeds: u64,
    /// Outcomes of seeds that violated an invariant.
    pub failed: BTreeMap<u64, Outcome>,
    /// What was seen.
    pub coverage: Coverage,
    /// Inputs that machines took.
    pub steps: u64,
    /// Entries that were stored.
    pub entries: u64,
    /// Time that was simulated.
    pub simulated: Duration,
    /// What went wrong on purpose, and how often.
    pub injected: BTreeMap<&'static str, u64>,
    /// The rows of the reconciliation tables that were met, and in how many runs.
    pub rows: BTreeMap<Row, u64>,
    /// How much work only convergence found.
    pub found_by_convergence: u64,
    /// The longest time in which more than two containers of one ActualLRP ran at once.
    pub crowded: Duration,
    /// Seeds in which next to nothing happened.
    pub idle: Vec<u64>,
}

impl Batch {
    /// What should have been met and was not, in words. Rows of the reconciliation tables are met by plans of their own
    /// ([`crate::directed`]), whether seeds meet them or not.
    #[must_use]
    pub fn never_seen(&self) -> Vec<&'static str> {
        self.coverage.missing().map(Situation::text).collect()
    }

    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.seeds += 1;
        self.coverage.add(&outcome.coverage);
        self.steps += outcome.steps;
        self.entries += outcome.entries;
        self.simulated += outcome.simulated;
        for (kind, count) in &outcome.injected {
            *self.injected.entry(kind).or_default() += count;
        }
        for row in outcome.rows.keys() {
            *self.rows.entry(*row).or_default() += 1;
        }
        self.found_by_convergence += outcome.found_by_convergence;
        self.crowded = self.crowded.max(outcome.crowded);
        if outcome.entries <= 10 {
            self.idle.push(seed);
        }
        if !outcome.violations.is_empty() {
            self.failed.insert(seed, outcome);
        }
    }
}

/// Runs seeds on this number of threads. Calls `progress` with the outcome of each seed.
pub fn run_all(seeds: Range<u64>, threads: usize, progress: impl Fn(&Outcome) + Sync) -> Batch {
    let next = AtomicU64::new(seeds.start);
    let batch = Mutex::new(Batch::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let outcome = run(seed);
            progress(&outcome);
            batch.lock().add(seed, outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    batch.into_inner()
}
