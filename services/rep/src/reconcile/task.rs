//! Reconciliation table of a container and its task (Diego Dev Notes, "Harmonizing Tasks with Container
//! State: Rep").

use super::Holder::{Alpha, Omega};
use super::Step::{CompleteTask, DeleteContainer, FailTask, Run, StartTask};
use super::{Holder, Verdict, conceivable, expected, inconceivable};

/// State of a container in the table for tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Container {
    /// Resources are reserved.
    Reserved,
    Initializing,
    Created,
    Running,
    /// The container has ended, with any result.
    Completed,
    /// Neither a container nor a reservation exists.
    None,
}

/// State of a task from the point of view of a container. If a task was completed without a container, the
/// table treats it as if another container had run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    Absent,
    Pending,
    Running(Holder),
    Completed(Holder),
    Resolving(Holder),
}

impl Container {
    /// Variants in the order of the table.
    pub const ALL: [Self; 6] =
        [Self::Reserved, Self::Initializing, Self::Created, Self::Running, Self::Completed, Self::None];

    /// Returns the name in Diego Dev Notes.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Reserved => "RESERVED container",
            Self::Initializing => "INITIALIZING container",
            Self::Created => "CREATED container",
            Self::Running => "RUNNING container",
            Self::Completed => "COMPLETED container",
            Self::None => "no container",
        }
    }
}

impl Task {
    /// Variants in the order of the table.
    pub const ALL: [Self; 8] = [
        Self::Absent,
        Self::Pending,
        Self::Running(Alpha),
        Self::Running(Omega),
        Self::Completed(Alpha),
        Self::Completed(Omega),
        Self::Resolving(Alpha),
        Self::Resolving(Omega),
    ];

    /// Returns the name in Diego Dev Notes.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Absent => "no Task",
            Self::Pending => "PENDING",
            Self::Running(Alpha) => "RUNNING on α",
            Self::Running(Omega) => "RUNNING on ω",
            Self::Completed(Alpha) => "COMPLETED on α",
            Self::Completed(Omega) => "COMPLETED on ω",
            Self::Resolving(Alpha) => "RESOLVING on α",
            Self::Resolving(Omega) => "RESOLVING on ω",
        }
    }
}

/// Returns the verdict on a container and its task. If the container is missing, the rep acts only on a task
/// that names this container.
#[must_use]
#[rustfmt::skip]
pub const fn reconcile(container: Container, task: Task) -> Verdict {
    use Container as C;
    use Task as T;
    match (container, task) {
        (C::Reserved,     T::Absent)           => conceivable(&[DeleteContainer]),
        (C::Reserved,     T::Pending)          => expected(&[StartTask, Run]),
        (C::Reserved,     T::Running(Alpha))   => expected(&[]),
        (C::Reserved,     T::Running(Omega))   => conceivable(&[DeleteContainer]),
        (C::Reserved,     T::Completed(Alpha)) => conceivable(&[DeleteContainer]),
        (C::Reserved,     T::Completed(Omega)) => conceivable(&[DeleteContainer]),
        (C::Reserved,     T::Resolving(Alpha)) => conceivable(&[DeleteContainer]),
        (C::Reserved,     T::Resolving(Omega)) => conceivable(&[DeleteContainer]),

        (C::Initializing, T::Absent)           => conceivable(&[DeleteContainer]),
        (C::Initializing, T::Pending)          => inconceivable(&[StartTask]),
        (C::Initializing, T::Running(Alpha))   => expected(&[]),
        (C::Initializing, T::Running(Omega))   => inconceivable(&[DeleteContainer]),
        (C::Initializing, T::Completed(Alpha)) => conceivable(&[DeleteContainer]),
        (C::Initializing, T::Completed(Omega)) => inconceivable(&[DeleteContainer]),
        (C::Initializing, T::Resolving(Alpha)) => conceivable(&[DeleteContainer]),
        (C::Initializing, T::Resolving(Omega)) => inconceivable(&[DeleteContainer]),

        (C::Created,      T::Absent)           => conceivable(&[DeleteContainer]),
        (C::Created,      T::Pending)          => inconceivable(&[StartTask]),
        (C::Created,      T::Running(Alpha))   => expected(&[]),
        (C::Created,      T::Running(Omega))   => inconceivable(&[DeleteContainer]),
        (C::Created,      T::Completed(Alpha)) => conceivable(&[DeleteContainer]),
        (C::Created,      T::Completed(Omega)) => inconceivable(&[DeleteContainer]),
        (C::Created,      T::Resolving(Alpha)) => conceivable(&[DeleteContainer]),
        (C::Created,      T::Resolving(Omega)) => inconceivable(&[DeleteContainer]),

        (C::Running,      T::Absent)           => conceivable(&[DeleteContainer]),
        (C::Running,      T::Pending)          => inconceivable(&[StartTask]),
        (C::Running,      T::Running(Alpha))   => expected(&[]),
        (C::Running,      T::Running(Omega))   => inconceivable(&[DeleteContainer]),
        (C::Running,      T::Completed(Alpha)) => conceivable(&[DeleteContainer]),
        (C::Running,      T::Completed(Omega)) => inconceivable(&[DeleteContainer]),
        (C::Running,      T::Resolving(Alpha)) => conceivable(&[DeleteContainer]),
        (C::Running,      T::Resolving(Omega)) => inconceivable(&[DeleteContainer]),

        (C::Completed,    T::Absent)           => conceivable(&[DeleteContainer]),
        (C::Completed,    T::Pending)          => inconceivable(&[CompleteTask, DeleteContainer]),
        (C::Completed,    T::Running(Alpha))   => expected(&[CompleteTask, DeleteContainer]),
        (C::Completed,    T::Running(Omega))   => inconceivable(&[DeleteContainer]),
        (C::Completed,    T::Completed(Alpha)) => conceivable(&[DeleteContainer]),
        (C::Completed,    T::Completed(Omega)) => inconceivable(&[DeleteContainer]),
        (C::Completed,    T::Resolving(Alpha)) => conceivable(&[DeleteContainer]),
        (C::Completed,    T::Resolving(Omega)) => inconceivable(&[DeleteContainer]),

        (C::None,         T::Running(Alpha))   => conceivable(&[FailTask]),
        (C::None,         T::Completed(Alpha)) => expected(&[]),
        (C::None,         T::Resolving(Alpha)) => expected(&[]),
        // The table has no other rows for a missing container. This cell has nothing to do for such tasks.
        (C::None,         T::Absent | T::Pending | T::Running(Omega) | T::Completed(Omega) | T::Resolving(Omega))
                                               => expected(&[]),
    }
}
