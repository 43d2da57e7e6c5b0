//! Table for a container of a process and its ActualLRP (Diego Dev Notes, "Harmonizing ActualLRPs with
//! Container State: Rep").

use super::Holder::{Alpha, Omega};
use super::Step::{Claim, Crash, DeleteContainer, RemoveEvacuating, RemoveLrp, Run, Start};
use super::{Holder, Verdict, conceivable, expected, inconceivable};

/// State of a container in the tables for processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Container {
    /// Resources are reserved.
    Reserved,
    Initializing,
    /// The container was created and is not healthy yet.
    Created,
    Running,
    /// COMPLETED without a stop request.
    Crashed,
    /// COMPLETED after a stop request.
    Shutdown,
    /// Neither a container nor a reservation exists.
    None,
}

/// State of an ActualLRP from the point of view of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lrp {
    Absent,
    Unclaimed,
    Claimed(Holder),
    Running(Holder),
    Crashed,
}

impl Container {
    /// Variants in the order of the table.
    pub const ALL: [Self; 7] = [
        Self::Reserved,
        Self::Initializing,
        Self::Created,
        Self::Running,
        Self::Crashed,
        Self::Shutdown,
        Self::None,
    ];

    /// Returns the name in Diego Dev Notes.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Reserved => "RESERVED container",
            Self::Initializing => "INITIALIZING container",
            Self::Created => "CREATED container",
            Self::Running => "RUNNING container",
            Self::Crashed => "COMPLETED (crashed) container",
            Self::Shutdown => "COMPLETED (shutdown) container",
            Self::None => "no container",
        }
    }
}

impl Lrp {
    /// Variants in the order of the table.
    pub const ALL: [Self; 7] = [
        Self::Absent,
        Self::Unclaimed,
        Self::Claimed(Alpha),
        Self::Claimed(Omega),
        Self::Running(Alpha),
        Self::Running(Omega),
        Self::Crashed,
    ];

    /// Returns the name in Diego Dev Notes.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Absent => "no ActualLRP",
            Self::Unclaimed => "UNCLAIMED",
            Self::Claimed(Alpha) => "CLAIMED α",
            Self::Claimed(Omega) => "CLAIMED ω",
            Self::Running(Alpha) => "RUNNING α",
            Self::Running(Omega) => "RUNNING ω",
            Self::Crashed => "CRASHED",
        }
    }
}

/// Returns the verdict on a container and its record. If the container is missing, the record concerns the
/// rep only if the record names that container.
#[must_use]
#[rustfmt::skip]
pub const fn reconcile(container: Container, lrp: Lrp) -> Verdict {
    use Container as C;
    use Lrp as L;
    match (container, lrp) {
        (C::Reserved,     L::Absent)         => conceivable(&[DeleteContainer]),
        (C::Reserved,     L::Unclaimed)      => expected(&[Claim, Run]),
        (C::Reserved,     L::Claimed(Alpha)) => conceivable(&[Run]),
        (C::Reserved,     L::Claimed(Omega)) => conceivable(&[DeleteContainer]),
        (C::Reserved,     L::Running(Alpha)) => inconceivable(&[Claim, Run]),
        (C::Reserved,     L::Running(Omega)) => conceivable(&[DeleteContainer]),
        (C::Reserved,     L::Crashed)        => conceivable(&[DeleteContainer]),

        (C::Initializing, L::Absent)         => conceivable(&[DeleteContainer]),
        (C::Initializing, L::Unclaimed)      => inconceivable(&[Claim]),
        (C::Initializing, L::Claimed(Alpha)) => expected(&[]),
        (C::Initializing, L::Claimed(Omega)) => conceivable(&[DeleteContainer]),
        (C::Initializing, L::Running(Alpha)) => inconceivable(&[Claim]),
        (C::Initializing, L::Running(Omega)) => conceivable(&[DeleteContainer]),
        (C::Initializing, L::Crashed)        => conceivable(&[DeleteContainer]),

        (C::Created,      L::Absent)         => conceivable(&[DeleteContainer]),
        (C::Created,      L::Unclaimed)      => inconceivable(&[Claim]),
        (C::Created,      L::Claimed(Alpha)) => expected(&[]),
        (C::Created,      L::Claimed(Omega)) => conceivable(&[DeleteContainer]),
        (C::Created,      L::Running(Alpha)) => inconceivable(&[Claim]),
        (C::Created,      L::Running(Omega)) => conceivable(&[DeleteContainer]),
        (C::Created,      L::Crashed)        => conceivable(&[DeleteContainer]),

        (C::Running,      L::Absent)         => conceivable(&[Start]),
        (C::Running,      L::Unclaimed)      => conceivable(&[Start]),
        (C::Running,      L::Claimed(Alpha)) => expected(&[Start, RemoveEvacuating]),
        (C::Running,      L::Claimed(Omega)) => conceivable(&[Start]),
        (C::Running,      L::Running(Alpha)) => expected(&[]),
        (C::Running,      L::Running(Omega)) => conceivable(&[DeleteContainer]),
        (C::Running,      L::Crashed)        => conceivable(&[Start]),

        (C::Crashed,      L::Absent)         => conceivable(&[Crash, DeleteContainer]),
        (C::Crashed,      L::Unclaimed)      => conceivable(&[DeleteContainer]),
        (C::Crashed,      L::Claimed(Alpha)) => conceivable(&[Crash, DeleteContainer]),
        (C::Crashed,      L::Claimed(Omega)) => conceivable(&[DeleteContainer]),
        (C::Crashed,      L::Running(Alpha)) => conceivable(&[Crash, DeleteContainer]),
        (C::Crashed,      L::Running(Omega)) => conceivable(&[DeleteContainer]),
        (C::Crashed,      L::Crashed)        => conceivable(&[DeleteContainer]),

        (C::Shutdown,     L::Absent)         => conceivable(&[DeleteContainer]),
        (C::Shutdown,     L::Unclaimed)      => conceivable(&[DeleteContainer]),
        (C::Shutdown,     L::Claimed(Alpha)) => conceivable(&[RemoveLrp, DeleteContainer]),
        (C::Shutdown,     L::Claimed(Omega)) => conceivable(&[DeleteContainer]),
        (C::Shutdown,     L::Running(Alpha)) => expected(&[RemoveLrp, DeleteContainer]),
        (C::Shutdown,     L::Running(Omega)) => conceivable(&[DeleteContainer]),
        (C::Shutdown,     L::Crashed)        => conceivable(&[DeleteContainer]),

        (C::None,         L::Claimed(Alpha)) => conceivable(&[RemoveLrp]),
        (C::None,         L::Running(Alpha)) => conceivable(&[RemoveLrp]),
        // The table has no other rows for a missing container. Such records do not concern this cell.
        (C::None,         L::Absent | L::Unclaimed | L::Claimed(Omega) | L::Running(Omega) | L::Crashed)
                                             => expected(&[]),
    }
}
