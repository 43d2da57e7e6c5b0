//! Locations of all work in a World, and the differences between two Worlds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use machines::actual;
use machines::process::Slot;
use machines::task::{self, Task};
use projections::World;
use schemas::container::Instance;
use schemas::names::{CellId, DefinitionId, InstanceGuid, ProcessGuid, TaskGuid};
use serde::{Serialize, Serializer};

/// Instance or task that has a location.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Instance of a process.
    Instance {
        process: ProcessGuid,
        index: u32,
        /// Definition that the instance runs.
        definition: DefinitionId,
        /// `true` for the record that an evacuating cell keeps.
        evacuating: bool,
    },
    Task(TaskGuid),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance { process, index, definition, evacuating } => {
                write!(f, "{process}/{index}")?;
                if definition.as_str() != process.as_str() {
                    write!(f, "@{definition}")?;
                }
                f.write_str(if *evacuating { " (evacuating)" } else { "" })
            }
            Self::Task(task) => write!(f, "task {task}"),
        }
    }
}

impl Serialize for Work {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// State and location of an instance or a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Spot {
    /// Human-readable state.
    pub state: &'static str,
    /// Cell that runs the work, if any.
    pub cell_id: Option<CellId>,
    /// Container of the work, if any.
    pub instance_guid: Option<InstanceGuid>,
    /// `true` if a stop was requested.
    pub stopping: bool,
    /// Placement error, crash reason or failure reason.
    pub why: Option<String>,
}

impl Spot {
    fn new(state: &'static str, by: Option<&Instance>) -> Self {
        let cell_id = by.map(|by| by.cell_id.clone());
        Self { state, cell_id, instance_guid: by.map(|by| by.instance_guid), stopping: false, why: None }
    }

    /// Returns `true` if both spots look the same to a user. Ignores container ids, because they differ
    /// between runs.
    pub(super) fn looks_like(&self, other: &Self) -> bool {
        let of = |spot: &Self| (spot.state, spot.cell_id.clone(), spot.stopping, spot.why.clone());
        of(self) == of(other)
    }

    /// Returns `true` if nothing changed. Work that waits for room is unchanged even if its placement error
    /// differs.
    fn stays(&self, other: &Self) -> bool {
        let both_wait = self.is_unplaced() && other.is_unplaced() && self.state == other.state;
        self == other || both_wait
    }

    /// Returns `true` if placement failed.
    pub(super) fn is_unplaced(&self) -> bool {
        matches!(self.state, "UNCLAIMED" | "PENDING") && self.why.is_some()
    }
}

/// State and location of all work.
pub(super) type Spots = BTreeMap<Work, Spot>;

pub(super) fn spots(world: &World) -> Spots {
    let mut all = Spots::new();
    for process in world.processes_from(None) {
        for slot in process.slots.iter() {
            of_slot(&process.guid, slot, &mut all);
        }
    }
    for task in world.tasks_from(None) {
        all.extend(of_task(task).map(|spot| (Work::Task(task.guid.clone()), spot)));
    }
    all
}

fn of_slot(process: &ProcessGuid, slot: &Slot, all: &mut Spots) {
    let work = |evacuating| Work::Instance {
        process: process.clone(),
        index: slot.place.index,
        definition: slot.place.definition_id.clone(),
        evacuating,
    };
    if let Some(actual) = &slot.actual {
        let spot = match &actual.state {
            actual::State::Unclaimed { placement_error } => {
                Spot { why: placement_error.as_deref().map(str::to_owned), ..Spot::new("UNCLAIMED", None) }
            }
            actual::State::Claimed { by, stopping } => {
                Spot { stopping: *stopping, ..Spot::new("CLAIMED", Some(by)) }
            }
            actual::State::Running { by, stopping, .. } => {
                Spot { stopping: *stopping, ..Spot::new("RUNNING", Some(by)) }
            }
            actual::State::Crashed { .. } => {
                Spot { why: Some(actual.crash_reason.to_string()), ..Spot::new("CRASHED", None) }
            }
        };
        all.insert(work(false), spot);
    }
    if let Some(twin) = &slot.evacuating {
        all.insert(work(true), Spot::new("RUNNING", Some(&twin.by)));
    }
}

fn of_task(task: &Task) -> Option<Spot> {
    let ended = |state, completed: &task::Completed| {
        let why = match &completed.outcome {
            schemas::task::Outcome::Succeeded { .. } => None,
            schemas::task::Outcome::Failed { reason } => Some(reason.clone()),
        };
        Spot { why, ..Spot::new(state, completed.by.as_ref()) }
    };
    Some(match task.state.as_ref()? {
        task::State::Pending { placement_error } => {
            Spot { why: placement_error.as_deref().map(str::to_owned), ..Spot::new("PENDING", None) }
        }
        task::State::Running { by } => Spot::new("RUNNING", Some(by)),
        task::State::Completed(completed) => ended("COMPLETED", completed),
        task::State::Resolving(completed) => ended("RESOLVING", completed),
    })
}

/// Difference in the state or location of an instance or a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Move {
    /// Instance or task that differs.
    pub what: Work,
    /// State before the changes. `None` means that it did not exist.
    pub before: Option<Spot>,
    /// State after the changes. `None` means that it no longer exists.
    pub after: Option<Spot>,
    /// `true` if the result is the same without the changes.
    pub anyway: bool,
}

/// Returns the differences between two moments. `anyway` is the state at the second moment without the
/// changes.
pub(super) fn moves(before: &Spots, after: &Spots, anyway: &Spots) -> Vec<Move> {
    let all: BTreeSet<&Work> = before.keys().chain(after.keys()).collect();
    let moved = all.into_iter().filter(|work| match (before.get(work), after.get(work)) {
        (Some(before), Some(after)) => !before.stays(after),
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => true,
    });
    let same = |work: &Work| match (after.get(work), anyway.get(work)) {
        (Some(after), Some(anyway)) => after.looks_like(anyway),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    let one = |work: &Work| Move {
        what: work.clone(),
        before: before.get(work).cloned(),
        after: after.get(work).cloned(),
        anyway: same(work),
    };
    moved.map(one).collect()
}
