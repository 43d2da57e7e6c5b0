//! Runs of plans to their end.

use rep::reconcile::Row;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::{Cluster, STEPS};
use crate::coverage::Coverage;
use crate::invariants::{Invariant, Violation};
use crate::plan::Plan;
use crate::shape::START;
use crate::story::RunEvent;

/// Time without appends after which a run is at rest.
const QUIET: Duration = Duration::from_secs(1);
/// Maximum number of waits for rest.
const MAX_WAITS: usize = 60;

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Hash of all steps. Equal seeds give equal hashes.
    pub trace: u64,
    /// Number of inputs.
    pub steps: u64,
    pub entries: u64,
    pub coverage: Coverage,
    /// Amount of work that only convergence found.
    pub found_by_convergence: u64,
    /// Longest time for which more than two containers of one ActualLRP ran.
    pub crowded: Duration,
    /// Simulated time.
    pub simulated: Duration,
    /// Number of injected faults of each kind.
    pub injected: BTreeMap<&'static str, u64>,
    /// Rows of the reconciliation tables that reps applied.
    pub rows: BTreeMap<Row, u64>,
    pub violations: Vec<Violation>,
    /// Log of the run, if it violated an invariant.
    pub story: Vec<String>,
}

/// Runs the plan of a seed.
#[must_use]
pub fn run(seed: u64) -> Outcome {
    run_plan(&Plan::drawn(seed))
}

/// Runs a plan.
#[must_use]
pub fn run_plan(plan: &Plan) -> Outcome {
    run_with(plan, &mut |_, _| {})
}

/// Runs a plan, and passes its events to the callback.
#[must_use]
pub fn run_with(plan: &Plan, tell: &mut dyn FnMut(Duration, RunEvent<'_>)) -> Outcome {
    let mut cluster = Cluster::new(plan);
    cluster.play(plan, tell);
    cluster.calm_down();
    cluster.outcome()
}

impl Cluster {
    /// Ends all faults, refreshes the domains, and waits until the cluster is at rest.
    fn calm_down(&mut self) {
        self.make_peace();
        self.until(self.now + Duration::from_secs(60));
        self.refresh_for_ever();
        self.order_cluster(schemas::cluster::Command::SwitchPreemption(false));
        self.take_back_cordons();
        self.mend_definitions();
        self.remove_launchers();
        self.until(self.now + Duration::from_secs(125));
        // Old copies of commands may arrive until then.
        self.order_cluster(schemas::cluster::Command::SwitchPreemption(false));
        self.take_back_cordons();
        self.remove_launchers();
        self.until(self.now + Duration::from_secs(115));
        self.note_idle_room();
        self.until(self.now + Duration::from_secs(45));
        self.check_leaks();
        self.await_quiet();
    }

    /// Waits for the consequences of work that was due in the last moment.
    fn await_quiet(&mut self) {
        for _ in 0..MAX_WAITS {
            let end = self.journal.end();
            self.until(self.now + QUIET);
            if self.journal.end() == end {
                return;
            }
        }
    }

    fn outcome(mut self) -> Outcome {
        if self.steps > STEPS {
            self.violated(Invariant::Quiet, format!("{STEPS} steps"));
        }
        self.check_rest();
        for node in self.all_nodes() {
            self.end_life(node);
        }
        let found_by_convergence = self.checkers.found_by_convergence();
        self.log_violations();
        let (mut violations, coverage, crowded) = self.checkers.results(self.now);
        violations.dedup();
        let story = if violations.is_empty() { vec![] } else { self.story };
        let (trace, steps, entries) = (self.trace, self.steps, self.journal.end().0);
        let (simulated, injected, rows) = (self.now.since(START), self.injected, self.rows);
        Outcome {
            trace,
            steps,
            entries,
            coverage,
            found_by_convergence,
            crowded,
            simulated,
            injected,
            rows,
            violations,
            story,
        }
    }
}
