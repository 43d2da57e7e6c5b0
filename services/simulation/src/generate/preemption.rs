//! Preemption: operators switch it on and off, and clients fill the cells before they desire urgent work.

use std::time::Duration;

use schemas::names::{ProcessGuid, TaskGuid};
use schemas::priority::Priority;

use crate::act::Act;
use crate::rng::Rng;
use crate::work::{Ask, Owner, Work, domain};

/// Runs with preemption, per thousand.
const PERMILLE: u64 = 500;
/// Runs with preemption in which clients fill the cells, per thousand.
const FULL_PERMILLE: u64 = 500;

/// Draws the acts of operators and clients until peace.
pub(crate) fn drawn(rng: &mut Rng, peace_at: Duration) -> Vec<(Duration, Act)> {
    if !rng.chance(PERMILLE) {
        return vec![];
    }
    let mut acts = if rng.chance(FULL_PERMILLE) { full(rng) } else { vec![] };
    let (mut at, mut on) = (rng.millis(0, 10_000), true);
    while at < peace_at {
        acts.push((at, Act::Preemption(on)));
        // Preemption mostly stays on.
        at += if on { rng.millis(5_000, 60_000) } else { rng.millis(500, 5_000) };
        on = !on;
    }
    acts.retain(|(at, _)| *at < peace_at);
    acts
}

/// Draws work that fills most of the cells, and then urgent work of the same size.
fn full(rng: &mut Rng) -> Vec<(Duration, Act)> {
    let mut acts = vec![];
    for number in 0..4 + rng.below(6) {
        let task = TaskGuid::new(&format!("hog{number}")).expect("a name");
        let run = Some(rng.millis(10_000, 60_000));
        let work = Work { run, memory_mb: 600 + 100 * rng.below(6), ..urgent(1 + 9 * rng.below(3)) };
        let queue = Some(rng.millis(20_000, 60_000));
        let ask = Ask::Run { task, work, owner: Owner::None, queue };
        acts.push((rng.millis(1_000, 15_000), ask));
    }
    for number in 0..rng.below(3) {
        let process = ProcessGuid::new(&format!("low{number}")).expect("a name");
        let instances = 1 + u32::from(rng.chance(500));
        let work = Work { memory_mb: 500, ..urgent(5 + 30 * rng.below(2)) };
        acts.push((rng.millis(1_000, 15_000), Ask::Desire { process, instances, work }));
    }
    for number in 0..1 + rng.below(3) {
        let process = ProcessGuid::new(&format!("urgent{number}")).expect("a name");
        let instances = 1 + u32::from(rng.chance(500));
        let work = Work { memory_mb: 800 + 300 * rng.below(3), ..urgent(90 + rng.below(11)) };
        acts.push((rng.millis(8_000, 30_000), Ask::Desire { process, instances, work }));
    }
    let asked = |(at, ask), patience| (at, Act::Ask { domain: domain(), ask, patience, answer: None });
    acts.into_iter().map(|act| asked(act, Duration::from_secs(20))).collect()
}

/// Returns work with this priority.
fn urgent(priority: u64) -> Work {
    Work { priority: u8::try_from(priority).ok().and_then(Priority::new), ..Work::basic() }
}
