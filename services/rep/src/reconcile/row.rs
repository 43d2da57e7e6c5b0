//! Enumeration of the rows of the three reconciliation tables.

use std::fmt;

use super::evacuation::{self, EvacuatingLrp, Instance};
use super::lrp::{self, Lrp};
use super::task::{self, Task};
use super::{Holder, Verdict};

/// Row of one of the reconciliation tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    /// Container of a process and its ActualLRP.
    Lrp(lrp::Container, Lrp),
    /// Container of a process and both records of its index, while its cell evacuates.
    Evacuation(lrp::Container, Instance, EvacuatingLrp),
    /// Container of a task and the task.
    Task(task::Container, Task),
}

impl Row {
    /// Returns every row that Diego Dev Notes contain. Such a row is a line of a table, or a case of the
    /// three sentences on containers of an evacuating cell that are not running.
    pub fn all() -> impl Iterator<Item = Self> {
        let lrps = lrp::Container::ALL.into_iter().flat_map(|one| Lrp::ALL.map(|two| Self::Lrp(one, two)));
        let both =
            || Instance::ALL.into_iter().flat_map(|instance| EvacuatingLrp::ALL.map(|twin| (instance, twin)));
        let evacuations = lrp::Container::ALL
            .into_iter()
            .flat_map(move |one| both().map(move |(instance, twin)| Self::Evacuation(one, instance, twin)));
        let tasks =
            task::Container::ALL.into_iter().flat_map(|one| Task::ALL.map(|two| Self::Task(one, two)));
        lrps.chain(evacuations).chain(tasks).filter(|row| row.is_documented())
    }

    /// Returns `true` if Diego Dev Notes contain this case. For a missing container, the notes contain only
    /// records that name this cell. The notes lack one row of a running container
    /// (docs/internals/model/rep.md, "Rep tables").
    #[must_use]
    pub const fn is_documented(self) -> bool {
        match self {
            Self::Lrp(lrp::Container::None, record) => match record {
                Lrp::Claimed(Holder::Alpha) | Lrp::Running(Holder::Alpha) => true,
                Lrp::Absent
                | Lrp::Unclaimed
                | Lrp::Claimed(Holder::Omega)
                | Lrp::Running(Holder::Omega)
                | Lrp::Crashed => false,
            },
            Self::Task(task::Container::None, record) => match record {
                Task::Running(Holder::Alpha)
                | Task::Completed(Holder::Alpha)
                | Task::Resolving(Holder::Alpha) => true,
                Task::Absent
                | Task::Pending
                | Task::Running(Holder::Omega)
                | Task::Completed(Holder::Omega)
                | Task::Resolving(Holder::Omega) => false,
            },
            Self::Evacuation(lrp::Container::None, ..)
            | Self::Evacuation(lrp::Container::Running, Instance::Unplaced, EvacuatingLrp::Beta) => false,
            Self::Lrp(..) | Self::Evacuation(..) | Self::Task(..) => true,
        }
    }

    /// Returns the reason why this row cannot occur in regular operation. `None` if the row can occur. A row
    /// with a reason occurs only after a forged message, a lost or changed log entry, or inconsistent reports
    /// of the executor.
    #[must_use]
    pub const fn unreachable_reason(self) -> Option<&'static str> {
        use lrp::Container as C;
        use task::Container as T;
        match self {
            Self::Lrp(C::Reserved | C::Initializing | C::Created, Lrp::Running(Holder::Alpha))
            | Self::Evacuation(
                C::Reserved | C::Initializing | C::Created,
                Instance::Running(Holder::Alpha),
                EvacuatingLrp::Absent | EvacuatingLrp::Alpha | EvacuatingLrp::Beta,
            )
            | Self::Evacuation(C::Reserved | C::Initializing | C::Created, .., EvacuatingLrp::Alpha) => Some(
                "a record is RUNNING in a container only after the container ran, and a container never \
                     returns to an earlier state",
            ),
            Self::Evacuation(
                C::Running | C::Crashed | C::Shutdown,
                Instance::Claimed(Holder::Alpha),
                EvacuatingLrp::Alpha,
            ) => Some(
                "an evacuating record names a container only after the container ran, and such a container \
                 claims nothing",
            ),
            Self::Task(T::Initializing | T::Created | T::Running | T::Completed, Task::Pending) => Some(
                "a container is created only after its task names it, and a task never returns to PENDING \
                 within an epoch",
            ),
            Self::Task(
                T::Initializing | T::Created | T::Running | T::Completed,
                Task::Running(Holder::Omega)
                | Task::Completed(Holder::Omega)
                | Task::Resolving(Holder::Omega),
            ) => Some(
                "a container is created only after its task names it, and a task names no other container \
                 within an epoch",
            ),
            Self::Lrp(..) | Self::Evacuation(..) | Self::Task(..) => None,
        }
    }

    /// Returns the verdict of the row's table.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        match self {
            Self::Lrp(container, record) => lrp::reconcile(container, record),
            Self::Evacuation(container, instance, twin) => evacuation::reconcile(container, instance, twin),
            Self::Task(container, record) => task::reconcile(container, record),
        }
    }
}

impl fmt::Display for Row {
    /// Formats the row with the names of Diego Dev Notes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lrp(container, record) => write!(f, "{}, {}", container.label(), record.label()),
            Self::Evacuation(container, instance, twin) => {
                write!(f, "evacuating: {}, {}, {}", container.label(), instance.label(), twin.label())
            }
            Self::Task(container, record) => write!(f, "task: {}, {}", container.label(), record.label()),
        }
    }
}
