//! Decision table for an evacuating cell: for a container of a process and both records of its index, the
//! actions of the rep (Diego Dev Notes, "Harmonizing during evacuation").

use super::Holder::{Alpha, Omega};
use super::Step::{Crash, DeleteContainer, RemoveEvacuating, RemoveLrp, SetEvacuating, Unclaim};
use super::lrp::{Container, Lrp};
use super::{Holder, Verdict, conceivable, expected, inconceivable};

/// State of the instance ActualLRP, as seen by a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instance {
    Absent,
    /// UNCLAIMED, with an auction pending.
    Unclaimed,
    /// State of the evacuating ActualLRP, as seen by a container. If the evacuating ActualLRP exists, it is
    /// RUNNING.
    Unplaced,
    Claimed(Holder),
    Running(Holder),
    Crashed,
}

/// State of the evacuating ActualLRP from the point of view of a container. If it exists, it is RUNNING.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EvacuatingLrp {
    Absent,
    /// RUNNING-α: the record names this container.
    Alpha,
    /// RUNNING-β: the record names another container.
    Beta,
}

impl Instance {
    /// Variants in the order of the table.
    pub const ALL: [Self; 8] = [
        Self::Unclaimed,
        Self::Unplaced,
        Self::Claimed(Alpha),
        Self::Claimed(Omega),
        Self::Running(Alpha),
        Self::Running(Omega),
        Self::Crashed,
        Self::Absent,
    ];

    /// Returns the name that Diego Dev Notes use.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Absent => "no ActualLRP",
            Self::Unclaimed => "UNCLAIMED",
            Self::Unplaced => "UNCLAIMED+ε",
            Self::Claimed(Alpha) => "CLAIMED-α",
            Self::Claimed(Omega) => "CLAIMED-ω",
            Self::Running(Alpha) => "RUNNING-α",
            Self::Running(Omega) => "RUNNING-ω",
            Self::Crashed => "CRASHED",
        }
    }
}

impl EvacuatingLrp {
    /// Variants in the order of the table.
    pub const ALL: [Self; 3] = [Self::Absent, Self::Alpha, Self::Beta];

    /// Returns the name that Diego Dev Notes use.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Absent => "no /e",
            Self::Alpha => "/e RUNNING-α",
            Self::Beta => "/e RUNNING-β",
        }
    }
}

impl From<Instance> for Lrp {
    fn from(instance: Instance) -> Self {
        match instance {
            Instance::Absent => Self::Absent,
            Instance::Unclaimed | Instance::Unplaced => Self::Unclaimed,
            Instance::Claimed(holder) => Self::Claimed(holder),
            Instance::Running(holder) => Self::Running(holder),
            Instance::Crashed => Self::Crashed,
        }
    }
}

impl From<Lrp> for Instance {
    fn from(record: Lrp) -> Self {
        match record {
            Lrp::Absent => Self::Absent,
            Lrp::Unclaimed => Self::Unclaimed,
            Lrp::Claimed(holder) => Self::Claimed(holder),
            Lrp::Running(holder) => Self::Running(holder),
            Lrp::Crashed => Self::Crashed,
        }
    }
}

/// Returns the verdict on a container of an evacuating cell.
#[must_use]
pub fn reconcile(container: Container, instance: Instance, twin: EvacuatingLrp) -> Verdict {
    match container {
        Container::Reserved | Container::Initializing | Container::Created => abandon(instance, twin),
        Container::Running => running(instance, twin),
        Container::Crashed => crashed(instance, twin),
        Container::Shutdown => shutdown(instance, twin),
        Container::None => super::lrp::reconcile(Container::None, instance.into()),
    }
}

/// Verdict of the section "When the container is in the Running state".
#[must_use]
#[rustfmt::skip]
pub const fn running(instance: Instance, twin: EvacuatingLrp) -> Verdict {
    use Instance as I;
    use EvacuatingLrp as T;
    match (instance, twin) {
        (I::Unclaimed,      T::Absent) => inconceivable(&[SetEvacuating]),
        (I::Unplaced,       T::Absent) => inconceivable(&[]),
        (I::Unclaimed,      T::Alpha)  => expected(&[]),
        (I::Unplaced,       T::Alpha)  => conceivable(&[]),
        (I::Unclaimed,      T::Beta)   => conceivable(&[DeleteContainer]),
        // Diego Dev Notes do not contain this row. The row is treated like the row without a placement error
        // (docs/internals/model/cells.md, "Evacuation").
        (I::Unplaced,       T::Beta)   => conceivable(&[DeleteContainer]),
        (I::Claimed(Alpha), T::Absent) => conceivable(&[SetEvacuating, Unclaim]),
        (I::Claimed(Alpha), T::Alpha)  => conceivable(&[Unclaim]),
        (I::Claimed(Alpha), T::Beta)   => conceivable(&[SetEvacuating, Unclaim]),
        (I::Claimed(Omega), T::Absent) => inconceivable(&[SetEvacuating]),
        (I::Claimed(Omega), T::Alpha)  => expected(&[]),
        (I::Claimed(Omega), T::Beta)   => conceivable(&[DeleteContainer]),
        (I::Running(Alpha), T::Absent) => expected(&[SetEvacuating, Unclaim]),
        (I::Running(Alpha), T::Alpha)  => conceivable(&[Unclaim]),
        (I::Running(Alpha), T::Beta)   => conceivable(&[SetEvacuating, Unclaim]),
        (I::Running(Omega), T::Absent) => conceivable(&[DeleteContainer]),
        (I::Running(Omega), T::Alpha)  => expected(&[RemoveEvacuating, DeleteContainer]),
        (I::Running(Omega), T::Beta)   => conceivable(&[DeleteContainer]),
        (I::Crashed,        T::Absent) => conceivable(&[DeleteContainer]),
        (I::Crashed,        T::Alpha)  => expected(&[RemoveEvacuating, DeleteContainer]),
        (I::Crashed,        T::Beta)   => conceivable(&[DeleteContainer]),
        (I::Absent,         T::Absent) => conceivable(&[DeleteContainer]),
        (I::Absent,         T::Alpha)  => expected(&[RemoveEvacuating, DeleteContainer]),
        (I::Absent,         T::Beta)   => conceivable(&[DeleteContainer]),
    }
}

/// First case of "When the container is not Running": the container is deleted, and another cell runs the
/// instance. When the evacuation times out, running containers are treated in the same way.
#[must_use]
#[rustfmt::skip]
pub const fn abandon(instance: Instance, twin: EvacuatingLrp) -> Verdict {
    use Instance as I;
    use EvacuatingLrp as T;
    match (instance, twin) {
        (I::Claimed(Alpha) | I::Running(Alpha), T::Alpha)           => expected(&[RemoveEvacuating, Unclaim, DeleteContainer]),
        (I::Claimed(Alpha) | I::Running(Alpha), T::Absent | T::Beta) => expected(&[Unclaim, DeleteContainer]),
        (I::Absent | I::Unclaimed | I::Unplaced | I::Claimed(Omega) | I::Running(Omega) | I::Crashed, T::Alpha)
                                                                    => expected(&[RemoveEvacuating, DeleteContainer]),
        (I::Absent | I::Unclaimed | I::Unplaced | I::Claimed(Omega) | I::Running(Omega) | I::Crashed, T::Absent | T::Beta)
                                                                    => expected(&[DeleteContainer]),
    }
}

/// Third case of "When the container is not Running": the regular table applies. If an evacuating record
/// names this container, the record is removed.
#[must_use]
#[rustfmt::skip]
pub const fn crashed(instance: Instance, twin: EvacuatingLrp) -> Verdict {
    use Instance as I;
    use EvacuatingLrp as T;
    match (instance, twin) {
        (I::Absent | I::Claimed(Alpha) | I::Running(Alpha), T::Alpha)            => conceivable(&[RemoveEvacuating, Crash, DeleteContainer]),
        (I::Absent | I::Claimed(Alpha) | I::Running(Alpha), T::Absent | T::Beta) => conceivable(&[Crash, DeleteContainer]),
        (I::Unclaimed | I::Unplaced | I::Claimed(Omega) | I::Running(Omega) | I::Crashed, T::Alpha)
                                                                                 => conceivable(&[RemoveEvacuating, DeleteContainer]),
        (I::Unclaimed | I::Unplaced | I::Claimed(Omega) | I::Running(Omega) | I::Crashed, T::Absent | T::Beta)
                                                                                 => conceivable(&[DeleteContainer]),
    }
}

/// Second case of "When the container is not Running": the regular table applies. If an evacuating record
/// names this container, the record is removed.
#[must_use]
#[rustfmt::skip]
pub const fn shutdown(instance: Instance, twin: EvacuatingLrp) -> Verdict {
    use Instance as I;
    use EvacuatingLrp as T;
    match (instance, twin) {
        (I::Claimed(Alpha) | I::Running(Alpha), T::Alpha)            => expected(&[RemoveEvacuating, RemoveLrp, DeleteContainer]),
        (I::Claimed(Alpha) | I::Running(Alpha), T::Absent | T::Beta) => expected(&[RemoveLrp, DeleteContainer]),
        (I::Absent | I::Unclaimed | I::Unplaced | I::Claimed(Omega) | I::Running(Omega) | I::Crashed, T::Alpha)
                                                                     => conceivable(&[RemoveEvacuating, DeleteContainer]),
        (I::Absent | I::Unclaimed | I::Unplaced | I::Claimed(Omega) | I::Running(Omega) | I::Crashed, T::Absent | T::Beta)
                                                                     => conceivable(&[DeleteContainer]),
    }
}
