//! Shortens the plan of a failed run: fewest acts and kinds of faults that still violate the invariant.

use std::time::Duration;

use crate::invariants::Invariant;
use crate::plan::Plan;
use crate::run::{Outcome, run_plan};

/// Returns the shortest plan found that still violates the invariant, and its outcome. `plan` must violate the
/// invariant. Runs at most `runs` plans.
#[must_use]
pub fn shortest(plan: &Plan, invariant: Invariant, runs: u32) -> (Plan, Outcome) {
    let mut shrinking = Shrinking { invariant, runs, best: plan.clone() };
    loop {
        let before = shrinking.best.clone();
        shrinking.fewer_faults();
        shrinking.fewer_acts();
        shrinking.sooner();
        if shrinking.best == before || shrinking.runs == 0 {
            let outcome = run_plan(&shrinking.best);
            return (shrinking.best, outcome);
        }
    }
}

struct Shrinking {
    invariant: Invariant,
    /// Remaining number of runs.
    runs: u32,
    best: Plan,
}

impl Shrinking {
    /// Accepts a shorter plan if it violates the invariant, too.
    fn takes(&mut self, shorter: Plan) -> bool {
        if self.runs == 0 || shorter == self.best {
            return false;
        }
        self.runs -= 1;
        let breaks = run_plan(&shorter).violations.iter().any(|broken| broken.invariant == self.invariant);
        if breaks {
            self.best = shorter;
        }
        breaks
    }

    /// Omits kinds of faults.
    fn fewer_faults(&mut self) {
        let kinds = self.best.clone().faults.rates().len();
        for at in 0..kinds {
            let mut shorter = self.best.clone();
            let (_, rate, calm) = &mut shorter.faults.rates()[at];
            **rate = *calm;
            self.takes(shorter);
        }
    }

    /// Omits acts: first half of them, then a quarter, and so on.
    fn fewer_acts(&mut self) {
        let mut size = self.best.acts.len().div_ceil(2).max(1);
        loop {
            let mut from = 0;
            while from < self.best.acts.len() {
                let to = (from + size).min(self.best.acts.len());
                let mut shorter = self.best.clone();
                shorter.acts.drain(from..to);
                if !self.takes(shorter) {
                    from = to;
                }
            }
            if size == 1 || self.runs == 0 {
                return;
            }
            size = size.div_ceil(2);
        }
    }

    /// Ends the faults earlier.
    fn sooner(&mut self) {
        let last = self.best.acts.last().map_or(Duration::ZERO, |(at, _)| *at);
        for peace_at in [last + Duration::from_secs(1), self.best.peace_at.div_f64(2.0).max(last)] {
            if peace_at < self.best.peace_at {
                self.takes(Plan { peace_at, ..self.best.clone() });
            }
        }
    }
}
