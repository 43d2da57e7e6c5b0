//! The three tables that reconcile containers and records, one row per line (docs/model.md, "The rep's
//! tables").
//!
//! | the file | the table |
//! |---|---|
//! | [`lrp`] | "Harmonizing ActualLRPs with Container State: Rep" |
//! | [`evacuation`] | "Harmonizing during evacuation" |
//! | [`task`] | "Harmonizing Tasks with Container State: Rep" |
//! | [`row`] | enumeration of the rows, for counting |
//!
//! A table gives the steps of a case and its degree of surprise. The state machine performs the steps and
//! decides which records must be read before.

pub mod evacuation;
pub mod lrp;
pub mod row;
pub mod task;

pub use row::Row;

/// Container that a record names: this one (α of the document) or any other (ω, β).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// This container on this cell.
    Alpha,
    /// Another cell, another container, or both.
    Omega,
}

/// Degree of surprise of a case, in the terms of Diego Dev Notes. A table's "Inconceivable?" is counted as
/// inconceivable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Surprise {
    /// Regular operation.
    Expected,
    /// Occurs when messages are lost or late.
    Conceivable,
    /// Should not occur. Logged as a warning.
    Inconceivable,
}

/// Step of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Make the ActualLRP CLAIMED by this container.
    Claim,
    /// Make the ActualLRP RUNNING in this container, and create it if it does not exist.
    Start,
    /// Perform the `RepCrashDance`.
    Crash,
    /// Delete the ActualLRP.
    RemoveLrp,
    /// Make the ActualLRP UNCLAIMED, so that another cell runs it.
    Unclaim,
    /// Create or take over the evacuating record, so that it names this container.
    SetEvacuating,
    /// Delete the evacuating record.
    RemoveEvacuating,
    /// Make the task RUNNING in this container.
    StartTask,
    /// Make the task COMPLETED with the container's outcome.
    CompleteTask,
    /// Make the task COMPLETED and failed, because it has no container.
    FailTask,
    Run,
    DeleteContainer,
}

impl Step {
    /// Returns the step as text for operators.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Claim => "claims it",
            Self::Start => "reports it RUNNING",
            Self::Crash => "reports its crash",
            Self::RemoveLrp => "removes the record",
            Self::Unclaim => "makes the record UNCLAIMED",
            Self::SetEvacuating => "makes it the EVACUATING one",
            Self::RemoveEvacuating => "removes the EVACUATING record",
            Self::StartTask => "reports the task RUNNING",
            Self::CompleteTask => "reports how the task ended",
            Self::FailTask => "reports that the task failed",
            Self::Run => "runs the container",
            Self::DeleteContainer => "deletes the container",
        }
    }

    /// Returns `true` if the step applies to the container. Only the last step of a row does. The BBS
    /// performs all others.
    #[must_use]
    pub const fn is_of_container(self) -> bool {
        match self {
            Self::Run | Self::DeleteContainer => true,
            Self::Claim
            | Self::Start
            | Self::Crash
            | Self::RemoveLrp
            | Self::Unclaim
            | Self::SetEvacuating
            | Self::RemoveEvacuating
            | Self::StartTask
            | Self::CompleteTask
            | Self::FailTask => false,
        }
    }
}

/// Action on the container at the end of a row, after the BBS has accepted the preceding steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Nothing,
    Run,
    Delete,
}

/// Result of a table for one case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub surprise: Surprise,
    /// Steps in order. The first step that fails ends the row.
    pub steps: &'static [Step],
}

impl Verdict {
    /// Returns the steps for the BBS, which belong to one decision.
    pub fn reported(self) -> impl Iterator<Item = Step> {
        self.steps.iter().copied().filter(|step| !step.is_of_container())
    }

    /// Returns the action on the container after the BBS has accepted the steps.
    #[must_use]
    pub const fn then(self) -> Then {
        match self.steps.last() {
            Some(Step::Run) => Then::Run,
            Some(Step::DeleteContainer) => Then::Delete,
            Some(
                Step::Claim
                | Step::Start
                | Step::Crash
                | Step::RemoveLrp
                | Step::Unclaim
                | Step::SetEvacuating
                | Step::RemoveEvacuating
                | Step::StartTask
                | Step::CompleteTask
                | Step::FailTask,
            )
            | None => Then::Nothing,
        }
    }
}

/// Creates the verdict of a row that the document calls expected.
pub(crate) const fn expected(steps: &'static [Step]) -> Verdict {
    Verdict { surprise: Surprise::Expected, steps }
}

/// Creates the verdict of a row that the document calls conceivable.
pub(crate) const fn conceivable(steps: &'static [Step]) -> Verdict {
    Verdict { surprise: Surprise::Conceivable, steps }
}

/// Creates the verdict of a row that the document calls inconceivable.
pub(crate) const fn inconceivable(steps: &'static [Step]) -> Verdict {
    Verdict { surprise: Surprise::Inconceivable, steps }
}
