//! Priorities of work: set when clients desire it, or changed later.

use std::time::Duration;

use schemas::names::ProcessGuid;
use schemas::priority::Priority;

use crate::act::Act;
use crate::rng::Rng;
use crate::work::{Ask, domain};

/// Runs with priorities, per thousand.
const PERMILLE: u64 = 600;

/// Interval between two changes.
const TICK: Duration = Duration::from_millis(500);

/// Priorities that are drawn, below and above the default.
const DRAWN: [u8; 7] = [1, 10, 49, 51, 60, 90, 100];

/// Adds priorities to commands, and changes of priorities.
pub(crate) fn draw(acts: &mut Vec<(Duration, Act)>, rng: &mut Rng, peace_at: Duration) {
    if !rng.chance(PERMILLE) {
        return;
    }
    for (_, act) in &mut *acts {
        if let Act::Ask { ask, .. } = act
            && let Ask::Desire { work, .. } | Ask::DesireGlobal { work, .. } | Ask::Run { work, .. } = ask
            && rng.chance(600)
        {
            work.priority = priority(rng);
        }
    }
    let mut at = Duration::from_secs(1);
    while at < peace_at {
        at += TICK;
        if rng.chance(60)
            && let Some(priority) = priority(rng)
        {
            let ask = Ask::Rank { process: process(rng), priority };
            let patience = rng.millis(2_000, 30_000);
            acts.push((at, Act::Ask { domain: domain(), ask, patience, answer: None }));
        }
    }
    acts.retain(|(at, _)| *at < peace_at);
}

fn priority(rng: &mut Rng) -> Option<Priority> {
    let drawn = usize::try_from(rng.below(DRAWN.len() as u64)).ok()?;
    Priority::new(*DRAWN.get(drawn)?)
}

/// Draws a process that exists in most runs.
fn process(rng: &mut Rng) -> ProcessGuid {
    let name = if rng.chance(150) { "agent0".to_owned() } else { format!("web{}", rng.below(3)) };
    ProcessGuid::new(&name).expect("a name")
}
