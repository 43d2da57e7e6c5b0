//! The three tables that bring containers and records into harmony, one row per line (docs/model.md, "The rep's
//! tables").
//!
//! | the file | the table |
//! |---|---|
//! | [`lrp`] | "Harmonizing ActualLRPs with Container State: Rep" |
//! | [`evacuation`] | "Harmonizing during evacuation" |
//! | [`task`] | "Harmonizing Tasks with Container State: Rep" |
//! | [`row`] | the rows by themselves, for whoever counts which were met |
//!
//! A table says what to do and how surprising the case is. Who does it, and what must have been read before, is the
//! machine's concern.

pub mod evacuation;
pub mod lrp;
pub mod row;
pub mod task;

pub use row::Row;

/// Whose container a record names: this one (α of the document), or any other (ω, β).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// This container on this cell.
    Alpha,
    /// Another cell, another container, or both.
    Omega,
}

/// How surprising a case is, in the words of Diego Dev Notes. A table's "Inconceivable?" is counted as inconceivable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Surprise {
    /// The way things go.
    Expected,
    /// Happens when messages are lost or late.
    Conceivable,
    /// Should not happen; said loudly.
    Inconceivable,
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Makes the ActualLRP CLAIMED by this container.
    Claim,
    /// Makes the ActualLRP RUNNING in this container; creates it if there is none.
    Start,
    /// Performs the `RepCrashDance`.
    Crash,
    /// Deletes the ActualLRP.
    RemoveLrp,
    /// Makes the ActualLRP UNCLAIMED, so that another cell runs it.
    Unclaim,
    /// Makes the evacuating record name this container: creates it, or takes it over.
    SetEvacuating,
    /// Deletes the evacuating record.
    RemoveEvacuating,
    /// Makes the task RUNNING in this container.
    StartTask,
    /// Makes the task COMPLETED with the container's outcome.
    CompleteTask,
    /// Makes the task COMPLETED and failed, for it has no container.
    FailTask,
    /// Runs the container.
    Run,
    /// Deletes the container.
    DeleteContainer,
}

impl Step {
    /// It as an operator reads it.
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

    /// Whether it is done to the container. Only the last step of a row is; everything else is
    /// asked of the BBS.
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

/// What is done to the container at the end of a row, when the BBS has agreed to what stands before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing.
    Nothing,
    /// It is run.
    Run,
    /// It is deleted.
    Delete,
}

/// What a table says of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How surprising it is.
    pub surprise: Surprise,
    /// What to do, in order; the first step that fails ends the row.
    pub steps: &'static [Step],
}

impl Verdict {
    /// The steps that are asked of the BBS, in one decision.
    pub fn reported(self) -> impl Iterator<Item = Step> {
        self.steps.iter().copied().filter(|step| !step.is_of_container())
    }

    /// What is done to the container when the BBS has agreed.
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

/// A row that the document calls expected.
pub(crate) const fn expected(steps: &'static [Step]) -> Verdict {
    Verdict { surprise: Surprise::Expected, steps }
}

/// A row that the document calls conceivable.
pub(crate) const fn conceivable(steps: &'static [Step]) -> Verdict {
    Verdict { surprise: Surprise::Conceivable, steps }
}

/// A row that the document calls inconceivable.
pub(crate) const fn inconceivable(steps: &'static [Step]) -> Verdict {
    Verdict { surprise: Surprise::Inconceivable, steps }
}
