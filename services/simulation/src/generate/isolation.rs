//! Commands with isolation requirements.

use std::time::Duration;

use schemas::names::{DefinitionId, ProcessGuid, TaskGuid};

use crate::act::Act;
use crate::generate::racks;
use crate::rng::Rng;
use crate::rules::{IsolationRule, RackRule};
use crate::work::{Ask, Owner, Work};

/// Runs with isolation requirements, per thousand.
const PERMILLE: u64 = 400;

/// Draws commands with isolation requirements.
#[must_use]
pub(crate) fn drawn(rng: &mut Rng, peace_at: Duration) -> Vec<(Duration, Act)> {
    if rng.chance(PERMILLE) { racks::until(peace_at, rng, asked) } else { vec![] }
}

fn asked(rng: &mut Rng) -> Ask {
    let global = rng.chance(200);
    let process = if global { "isolation".to_owned() } else { format!("walled{}", rng.below(3)) };
    let process = ProcessGuid::new(&process).expect("a name");
    let number = rng.below(if global { CONSTRAINTS } else { WORKS });
    match rng.below(12) {
        0..=3 if global => Ask::DesireGlobal { process, work: work(number) },
        0..=3 => Ask::Desire { process, instances: 1 + racks::u32_below(rng, 5), work: work(number) },
        4 | 5 => Ask::Scale { process, instances: racks::u32_below(rng, 7) },
        6..=8 => {
            let definition = DefinitionId::new(&format!("isolation{number}")).expect("a name");
            Ask::Deploy { process, definition, work: work(number), rolls: None }
        }
        9 => Ask::Remove(process),
        _ => {
            let task = TaskGuid::new(&format!("walled{}", rng.below(50))).expect("a name");
            let work = Work { run: Some(rng.millis(1_000, 10_000)), ..work(number % CONSTRAINTS) };
            let queue = rng.chance(500).then(|| Duration::from_secs(20));
            Ask::Run { task, work, owner: Owner::None, queue }
        }
    }
}

/// Number of kinds of work.
const WORKS: u64 = 12;

/// Number of kinds without affinities. Global processes and tasks have no spread.
const CONSTRAINTS: u64 = 6;

/// Returns work that depends on the number only, because definitions of one name are equal.
fn work(number: u64) -> Work {
    let isolation = match number % 3 {
        0 => IsolationRule::All,
        1 => IsolationRule::Landlock,
        _ => IsolationRule::FilesAndProcesses,
    };
    let racks = match number / 3 {
        0 => None,
        1 => Some(RackRule::NotFirst),
        2 => Some(RackRule::ShunsFirst),
        _ => Some(RackRule::Spread),
    };
    Work { isolation: Some(isolation), racks, memory_mb: 64 + number, ..Work::basic() }
}
