//! Processes whose instances end, and their restart policies.

use std::time::Duration;

use schemas::names::{DefinitionId, ProcessGuid};
use schemas::policy::{RestartCondition, RestartPolicy};

use crate::act::Act;
use crate::rng::Rng;
use crate::work::{Ask, Work, domain};

/// Runs with such processes, per thousand.
const PERMILLE: u64 = 600;

/// Interval between two choices of clients.
const TICK: Duration = Duration::from_millis(700);

/// Draws commands about three processes until peace.
#[must_use]
pub(crate) fn drawn(rng: &mut Rng, peace_at: Duration) -> Vec<(Duration, Act)> {
    if !rng.chance(PERMILLE) {
        return vec![];
    }
    let mut acts = vec![];
    let mut at = Duration::from_secs(1);
    for number in 0..3 {
        let desire = desire(rng, process(number));
        acts.push((at, act(rng, desire)));
        let policy = Ask::Policy { process: process(number), restart: policy(rng) };
        acts.push((at, act(rng, policy)));
    }
    while at < peace_at {
        at += TICK;
        if rng.chance(120) {
            let ask = asked(rng);
            acts.push((at, act(rng, ask)));
        }
    }
    acts.retain(|(at, _)| *at < peace_at);
    acts
}

fn act(rng: &mut Rng, ask: Ask) -> Act {
    Act::Ask { domain: domain(), ask, patience: rng.millis(2_000, 30_000), answer: None }
}

fn process(number: u64) -> ProcessGuid {
    ProcessGuid::new(&format!("once{number}")).expect("a name")
}

fn asked(rng: &mut Rng) -> Ask {
    let process = process(rng.below(3));
    match rng.below(12) {
        0..=3 => Ask::Policy { process, restart: policy(rng) },
        4 | 5 => {
            // Definitions of one name are equal.
            let number = rng.below(WORKS);
            let definition = DefinitionId::new(&format!("v{number}")).expect("a name");
            Ask::Deploy { process, definition, work: work(number), rolls: None }
        }
        6 => Ask::Restart(process),
        7 => Ask::Scale { process, instances: u32_below(rng, 4) },
        8 | 9 => Ask::Retire(process, u32_below(rng, 3)),
        10 => Ask::Remove(process),
        _ => desire(rng, process),
    }
}

fn desire(rng: &mut Rng, process: ProcessGuid) -> Ask {
    let work = work(rng.below(WORKS));
    Ask::Desire { process, instances: 1 + u32_below(rng, 3), work }
}

/// Number of kinds of work.
const WORKS: u64 = 8;

/// Returns work that mostly ends, with or without failure. Some of it fails before it runs.
fn work(number: u64) -> Work {
    let millis = Duration::from_millis;
    let ends = |run, exit| Work { run: Some(millis(run)), exit, memory_mb: 64 + number, ..Work::basic() };
    match number {
        0 => ends(700, 0),
        1 => ends(6_000, 0),
        2 => ends(0, 0),
        3 => ends(900, 3),
        4 => ends(5_000, 1),
        5 => Work { fails: true, exit: 1, memory_mb: 64 + number, ..Work::basic() },
        6 => Work { unhealthy: true, exit: 1, memory_mb: 64 + number, ..Work::basic() },
        _ => Work { memory_mb: 64 + number, ..Work::basic() },
    }
}

fn policy(rng: &mut Rng) -> RestartPolicy {
    let condition = match rng.below(6) {
        0 | 1 => RestartCondition::Any,
        2 => RestartCondition::None,
        _ => RestartCondition::OnFailure,
    };
    let delay_ms = rng.chance(600).then(|| [0, 500, 2_000, 7_000][index(rng, 4)]);
    let max_attempts = rng.chance(600).then(|| 1 + u32_below(rng, 4));
    let least = delay_ms.unwrap_or(0) * max_attempts.unwrap_or(1);
    let window_ms =
        max_attempts.filter(|_| rng.chance(500)).map_or(0, |_| least + 1 + u32_below(rng, 20_000));
    RestartPolicy { condition, delay_ms, max_attempts, window_ms }
}

fn index(rng: &mut Rng, below: u64) -> usize {
    usize::try_from(rng.below(below)).unwrap_or(0)
}

fn u32_below(rng: &mut Rng, bound: u64) -> u32 {
    u32::try_from(rng.below(bound)).unwrap_or(0)
}
