//! Isolation layers of the cells, and the isolation requirements of clients. Their meaning is written here
//! independently of the services.

use std::collections::BTreeSet;
use std::time::Duration;

use schemas::isolation::{Isolation, IsolationLayer};
use schemas::names::{CellId, DefinitionId, ProcessGuid, TaskGuid};

use crate::nodes::number_of;
use crate::plan::Act;
use crate::racks::{self, Asks};
use crate::rng::Rng;
use crate::workload::{Ask, Owner, Work};

/// Runs with isolation requirements, per thousand.
const PERMILLE: u64 = 400;

/// Isolation requirements of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walls {
    /// Every layer.
    All,
    Landlock,
    /// Separate files and processes.
    FilesAndProcesses,
}

impl Walls {
    /// Values with their names in stories.
    pub const NAMES: [(Self, &str); 3] =
        [(Self::All, "all"), (Self::Landlock, "landlock"), (Self::FilesAndProcesses, "files-and-processes")];

    /// Returns the name in stories.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Landlock => "landlock",
            Self::FilesAndProcesses => "files-and-processes",
        }
    }

    /// Returns the requirements in a definition.
    pub(super) fn wanted(self) -> BTreeSet<IsolationLayer> {
        match self {
            Self::All => BTreeSet::from(IsolationLayer::ALL),
            Self::Landlock => BTreeSet::from([IsolationLayer::Landlock]),
            Self::FilesAndProcesses => BTreeSet::from([IsolationLayer::Files, IsolationLayer::Processes]),
        }
    }
}

/// Returns the layers of a cell: the first cell has all, the second all but Landlock, the third none.
pub(super) const fn kept(cell: usize) -> Isolation {
    match cell % 4 {
        0 => Isolation::FULL,
        1 => Isolation::FULL.without(IsolationLayer::Landlock),
        2 => Isolation::NONE,
        _ => Isolation::FULL.without(IsolationLayer::Memory).without(IsolationLayer::Disk),
    }
}

// ---- commands ---------------------------------------------------------------------------------------------------

/// Draws commands with isolation requirements.
#[must_use]
pub(super) fn drawn(rng: &mut Rng, peace_at: Duration) -> Vec<(Duration, Act)> {
    if rng.chance(PERMILLE) { racks::until(peace_at, rng, asked) } else { vec![] }
}

fn asked(rng: &mut Rng) -> Ask {
    let global = rng.chance(200);
    let process = if global { "walls".to_owned() } else { format!("walled{}", rng.below(3)) };
    let process = ProcessGuid::new(&process).expect("a name");
    let number = rng.below(if global { CONSTRAINTS } else { WORKS });
    match rng.below(12) {
        0..=3 if global => Ask::DesireGlobal { process, work: work(number) },
        0..=3 => Ask::Desire { process, instances: 1 + racks::u32_below(rng, 5), work: work(number) },
        4 | 5 => Ask::Scale { process, instances: racks::u32_below(rng, 7) },
        6..=8 => {
            let definition = DefinitionId::new(&format!("walls{number}")).expect("a name");
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
    let walls = match number % 3 {
        0 => Walls::All,
        1 => Walls::Landlock,
        _ => Walls::FilesAndProcesses,
    };
    let asks = match number / 3 {
        0 => None,
        1 => Some(Asks::NotFirst),
        2 => Some(Asks::ShunsFirst),
        _ => Some(Asks::Spread),
    };
    Work { walls: Some(walls), asks, memory_mb: 64 + number, ..Work::usual() }
}

// ---- meaning ----------------------------------------------------------------------------------------------------

/// Returns the isolation layers of a cell.
pub(super) fn of(cell: &CellId) -> Isolation {
    kept(number_of(cell))
}

/// Returns `true` if a cell meets isolation requirements.
pub(super) fn are_kept(wanted: &BTreeSet<IsolationLayer>, cell: &CellId) -> bool {
    let lacking: Vec<IsolationLayer> = of(cell).missing().collect();
    !wanted.iter().any(|wall| lacking.contains(wall))
}
