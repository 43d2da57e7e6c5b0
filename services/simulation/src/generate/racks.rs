//! Commands with constraints and affinities for racks.

use std::time::Duration;

use schemas::names::{DefinitionId, ProcessGuid, TaskGuid};

use crate::act::Act;
use crate::generate::rollouts;
use crate::rng::Rng;
use crate::rules::RackRule;
use crate::work::{Ask, Owner, Work, domain};

/// Runs with constraints for racks, per thousand.
const PERMILLE: u64 = 500;

/// Interval between two choices of clients.
const TICK: Duration = Duration::from_millis(500);

/// Runs with affinities for racks, per thousand.
const AFFINITY_PERMILLE: u64 = 400;

/// Draws commands with constraints for racks.
#[must_use]
pub(crate) fn drawn(rng: &mut Rng, peace_at: Duration) -> Vec<(Duration, Act)> {
    if rng.chance(PERMILLE) { until(peace_at, rng, asked) } else { vec![] }
}

/// Draws commands with affinities for racks.
#[must_use]
pub(crate) fn with_affinities(rng: &mut Rng, peace_at: Duration) -> Vec<(Duration, Act)> {
    if rng.chance(AFFINITY_PERMILLE) { until(peace_at, rng, affinity_command) } else { vec![] }
}

/// Draws commands at intervals until peace.
pub(crate) fn until(peace_at: Duration, rng: &mut Rng, asked: fn(&mut Rng) -> Ask) -> Vec<(Duration, Act)> {
    let often = [40, 120, 250][usize::try_from(rng.below(3)).unwrap_or(0)];
    let mut acts = vec![];
    let mut at = Duration::from_secs(1);
    while at < peace_at {
        at += TICK;
        if rng.chance(often) {
            let ask = asked(rng);
            let patience = rng.millis(2_000, 30_000);
            acts.push((at, Act::Ask { domain: domain(), ask, patience, answer: None }));
        }
    }
    acts.retain(|(at, _)| *at < peace_at);
    acts
}

fn asked(rng: &mut Rng) -> Ask {
    let process = ProcessGuid::new(&format!("held{}", rng.below(3))).expect("a name");
    let number = rng.below(WORKS);
    match rng.below(12) {
        0..=3 => Ask::Desire { process, instances: 1 + u32_below(rng, 5), work: work(number) },
        4 | 5 => Ask::Scale { process, instances: u32_below(rng, 7) },
        6..=8 => {
            let definition = DefinitionId::new(&format!("v{number}")).expect("a name");
            let patient = rng.chance(300);
            let rolls = rng.chance(400).then(|| Box::new(rollouts::rolls(rng, patient)));
            Ask::Deploy { process, definition, work: work(number), rolls }
        }
        9 | 10 => Ask::Retire(process, u32_below(rng, 4)),
        _ => Ask::Remove(process),
    }
}

/// Number of kinds of work.
const WORKS: u64 = 8;

/// Returns work that depends on the number only, because definitions of one name are equal.
fn work(number: u64) -> Work {
    let racks = match number {
        0 => Some(RackRule::First),
        1 => Some(RackRule::NotFirst),
        2 => Some(RackRule::Any),
        3 => Some(RackRule::Unknown),
        4 | 5 => Some(RackRule::OnePerCell),
        6 => Some(RackRule::TwoPerRack),
        _ => None,
    };
    let run = (number == 5).then(|| Duration::from_secs(3));
    Work { racks, run, exit: u8::from(run.is_some()), memory_mb: 64 + number, ..Work::basic() }
}

fn affinity_command(rng: &mut Rng) -> Ask {
    let process = ProcessGuid::new(&format!("wish{}", rng.below(3))).expect("a name");
    let number = rng.below(RULES.len() as u64);
    match rng.below(12) {
        0..=4 => {
            let work = affinity_work(number);
            Ask::Desire { process, instances: 1 + u32_below(rng, 6), work }
        }
        5..=7 => Ask::Scale { process, instances: u32_below(rng, 8) },
        8 => {
            let definition = DefinitionId::new(&format!("w{number}")).expect("a name");
            let patient = rng.chance(300);
            let rolls = rng.chance(400).then(|| Box::new(rollouts::rolls(rng, patient)));
            Ask::Deploy { process, definition, work: affinity_work(number), rolls }
        }
        9 => Ask::Remove(process),
        _ => {
            let task = TaskGuid::new(&format!("with_affinities{}", rng.below(50))).expect("a name");
            let run = Some(rng.millis(1_000, 10_000));
            // A task has one instance, so it has no spread.
            let work = Work { run, ..affinity_work(number % AFFINITIES) };
            Ask::Run { task, work, owner: Owner::None, queue: None }
        }
    }
}

/// Rules of definitions. The first ones are also for tasks.
const RULES: [RackRule; 10] = [
    RackRule::PrefersFirst,
    RackRule::ShunsFirst,
    RackRule::PrefersOther,
    RackRule::AnyShunsFirst,
    RackRule::Spread,
    RackRule::SpreadShunsFirst,
    RackRule::SpreadOnePerCell,
    RackRule::SpreadOverBoth,
    RackRule::MostlyFirst,
    RackRule::AllInFirst,
];

/// Number of rules that only contain affinities.
const AFFINITIES: u64 = 4;

/// Returns work that depends on the number only, because definitions of one name are equal.
fn affinity_work(number: u64) -> Work {
    let racks = usize::try_from(number).ok().and_then(|number| RULES.get(number)).copied();
    Work { racks, memory_mb: 64 + number, ..Work::basic() }
}

pub(crate) fn u32_below(rng: &mut Rng, bound: u64) -> u32 {
    u32::try_from(rng.below(bound)).unwrap_or(0)
}
