//! Retries of evaluations in any state.

use std::time::Duration;

use schemas::evaluation::Trigger;
use schemas::names::ProcessGuid;

use crate::act::Act;
use crate::rng::Rng;

/// Runs with retries, per thousand.
const PERMILLE: u64 = 300;

/// Triggers of the retried evaluations.
const TRIGGERS: [Trigger; 7] = [
    Trigger::Desire,
    Trigger::Queued,
    Trigger::Queued,
    Trigger::Attempts,
    Trigger::FollowUp,
    Trigger::Crash,
    Trigger::CellLost,
];

/// Draws the commands of clients until peace.
pub(crate) fn drawn(rng: &mut Rng, peace_at: Duration) -> Vec<(Duration, Act)> {
    if !rng.chance(PERMILLE) {
        return vec![];
    }
    let mut acts = vec![];
    let mut at = rng.millis(2_000, 10_000);
    while at < peace_at {
        let names = ["web", "held", "low", "urgent", "hog"];
        let name = names[rng.place(names.len()).unwrap_or(0)];
        let process = ProcessGuid::new(&format!("{name}{}", rng.below(3))).expect("a name");
        let trigger = TRIGGERS[rng.place(TRIGGERS.len()).unwrap_or(0)];
        acts.push((at, Act::Retry(process, trigger)));
        at += rng.millis(200, 4_000);
    }
    acts
}
