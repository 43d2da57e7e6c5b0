//! Commands about global processes, and cordons of cells.

use std::time::Duration;

use schemas::names::{DefinitionId, ProcessGuid, Stack};
use schemas::process::RolloutControl;

use crate::act::Act;
use crate::generate::rollouts;
use crate::rng::Rng;
use crate::shape::Shape;
use crate::work::{Ask, Rolls, Work, domain};

/// Runs with global processes, per thousand.
const PERMILLE: u64 = 500;

/// Interval between two choices of clients.
const TICK: Duration = Duration::from_millis(400);

/// Draws the acts of clients and operators until peace.
#[must_use]
pub(crate) fn drawn(rng: &mut Rng, shape: Shape, peace_at: Duration) -> Vec<(Duration, Act)> {
    if !rng.chance(PERMILLE) {
        return vec![];
    }
    let mut often = || [30, 90, 200][usize::try_from(rng.below(3)).unwrap_or(0)];
    let (asks, cordons) = (often(), often());
    let mut acts = vec![];
    let mut at = Duration::from_secs(1);
    for number in 0..2 {
        let desire = Ask::DesireGlobal { process: process(number), work: work(rng.below(4)) };
        acts.push((at, act(rng, desire)));
    }
    while at < peace_at {
        at += TICK;
        if rng.chance(asks) {
            let ask = asked(rng);
            acts.push((at, act(rng, ask)));
        }
        if rng.chance(cordons) {
            let act = if rng.chance(500) { Act::Cordon } else { Act::Uncordon };
            acts.extend(rng.place(shape.cells).map(|cell| (at, act(cell))));
        }
    }
    acts.retain(|(at, _)| *at < peace_at);
    acts
}

fn act(rng: &mut Rng, ask: Ask) -> Act {
    Act::Ask { domain: domain(), ask, patience: rng.millis(2_000, 30_000), answer: None }
}

fn process(number: u64) -> ProcessGuid {
    ProcessGuid::new(&format!("agent{number}")).expect("a name")
}

fn asked(rng: &mut Rng) -> Ask {
    let process = process(rng.below(2));
    let number = rng.below(rollouts::DEFINITIONS);
    match rng.below(20) {
        0..=6 => {
            let patient = rng.chance(300);
            // The number of cells is not known here.
            let rolls = |rng: &mut Rng| Rolls { min_running: None, ..rollouts::rolls(rng, patient) };
            let rolls = rng.chance(600).then(|| Box::new(rolls(rng)));
            Ask::Deploy { process, definition: definition(number), work: work(number), rolls }
        }
        7 => Ask::Activate(process, definition(number)),
        8 => Ask::Restart(process),
        9 => Ask::Steer(process, RolloutControl::Pause),
        10 | 11 => Ask::Steer(process, RolloutControl::Resume),
        12 => Ask::Steer(process, RolloutControl::RollBack),
        13 => Ask::Scale { process, instances: u32::try_from(rng.below(6)).unwrap_or(0) },
        14 | 15 => Ask::Retire(process, u32::try_from(rng.below(4)).unwrap_or(0)),
        16 => Ask::Remove(process),
        _ => Ask::DesireGlobal { process, work: work(number) },
    }
}

fn definition(number: u64) -> DefinitionId {
    DefinitionId::new(&format!("v{number}")).expect("a name")
}

/// Returns the work of a definition. It depends on the number only.
fn work(number: u64) -> Work {
    let stack = |name: &str| Stack::new(name).ok();
    let work = rollouts::work(number);
    match number {
        1 | 5 => Work { stack: stack("linux"), ..work },
        3 => Work { stack: stack("windows"), ..work },
        6 => Work { tag: true, stack: stack("linux"), ..work },
        _ => work,
    }
}
