//! The three tables that reconcile containers and records, one row per line (docs/internals/model/rep.md,
//! "Rep tables").
//!
//! | the file | the table |
//! |---|---|
//! | [`lrp`] | "Harmonizing ActualLRPs with Container State: Rep" |
//! | [`evacuation`] | "Harmonizing during evacuation" |
//! | [`task`] | "Harmonizing Tasks with Container State: Rep" |
//! | [`row`] | enumeration of the rows, for counting |
//!
//! For each case, a table defines the steps and the degree of surprise. The state machine of the rep performs
//! the steps, and chooses the records that must be read before a step.

pub mod evacuation;
pub mod lrp;
pub mod row;
pub mod task;

pub use row::Row;

/// Container that a record names: this container (α in Diego Dev Notes) or any other (ω or β).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// This container on this cell.
    Alpha,
    /// A container on another cell, or another container on this cell.
    Omega,
}

/// Degree of surprise of a case, in the terms of Diego Dev Notes. A case that the notes mark
/// "Inconceivable?", with a question mark, counts as inconceivable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Surprise {
    /// Regular operation.
    Expected,
    /// Occurs if messages are lost or late.
    Conceivable,
    /// Should not occur. The rep logs a warning.
    Inconceivable,
}

/// Step of a table row.
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
    /// Make the ActualLRP UNCLAIMED. Another cell can claim it again.
    Unclaim,
    /// Create or take over the evacuating record, so that it names this container.
    SetEvacuating,
    /// Delete the evacuating record.
    RemoveEvacuating,
    /// Make the task RUNNING in this container.
    StartTask,
    /// Make the task COMPLETED with the container's outcome.
    CompleteTask,
    /// Make the task COMPLETED and failed, because the task has no container.
    FailTask,
    Run,
    DeleteContainer,
}

impl Step {
    /// Returns the step as text for operators.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Claim => "claims it",
            Self::Start => "reports it RUNNING",
            Self::Crash => "reports its crash",
            Self::RemoveLrp => "removes the record",
            Self::Unclaim => "makes the record UNCLAIMED",
            Self::SetEvacuating => "makes the container the EVACUATING one",
            Self::RemoveEvacuating => "removes the EVACUATING record",
            Self::StartTask => "reports the task RUNNING",
            Self::CompleteTask => "reports how the task ended",
            Self::FailTask => "reports that the task failed",
            Self::Run => "runs the container",
            Self::DeleteContainer => "deletes the container",
        }
    }

    /// Returns `true` if the rep performs the step on the container. Only the last step of a row can be a
    /// step of the rep. The BBS performs all other steps.
    #[must_use]
    pub const fn applies_to_container(self) -> bool {
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

/// Action on the container at the end of a row. The rep performs it after the BBS has accepted the preceding
/// steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerAction {
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
    /// Returns the steps that the BBS performs. All these steps belong to one decision (one atomic change of
    /// the log).
    pub fn report_steps(self) -> impl Iterator<Item = Step> {
        self.steps.iter().copied().filter(|step| !step.applies_to_container())
    }

    /// Returns the action on the container that follows the accepted steps.
    #[must_use]
    pub const fn container_action(self) -> ContainerAction {
        match self.steps.last() {
            Some(Step::Run) => ContainerAction::Run,
            Some(Step::DeleteContainer) => ContainerAction::Delete,
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
            | None => ContainerAction::Nothing,
        }
    }
}

/// Creates the verdict of a row that Diego Dev Notes calls expected.
pub(crate) const fn expected(steps: &'static [Step]) -> Verdict {
    Verdict { surprise: Surprise::Expected, steps }
}

/// Creates the verdict of a row that Diego Dev Notes calls conceivable.
pub(crate) const fn conceivable(steps: &'static [Step]) -> Verdict {
    Verdict { surprise: Surprise::Conceivable, steps }
}

/// Creates the verdict of a row that Diego Dev Notes calls inconceivable.
pub(crate) const fn inconceivable(steps: &'static [Step]) -> Verdict {
    Verdict { surprise: Surprise::Inconceivable, steps }
}
