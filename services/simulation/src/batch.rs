//! Batches of seeds on several threads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rep::reconcile::Row;

use crate::coverage::{Coverage, Situation};
use crate::run::{Outcome, run};

/// Results of a batch.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub seeds: u64,
    /// Outcomes of seeds that violated an invariant.
    pub failed: BTreeMap<u64, Outcome>,
    pub coverage: Coverage,
    /// Number of inputs.
    pub steps: u64,
    /// Number of entries.
    pub entries: u64,
    /// Simulated time.
    pub simulated: Duration,
    /// Number of injected faults of each kind.
    pub injected: BTreeMap<&'static str, u64>,
    /// Rows of the reconciliation tables, with the number of runs that applied them.
    pub rows: BTreeMap<Row, u64>,
    /// Amount of work that only convergence found.
    pub found_by_convergence: u64,
    /// Longest time for which more than two containers of one ActualLRP ran.
    pub crowded: Duration,
    /// Seeds with next to no entries.
    pub idle: Vec<u64>,
}

impl Batch {
    /// Returns the texts of situations that no seed met. Rows of the reconciliation tables have directed
    /// plans ([`crate::directed`]).
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
