//! Causes of a decision: the earlier decisions that led to it.
//!
//! For each index of a process, each task and each cell, the state contains the last decision that created
//! work for the index, task or cell, or that requested its stop. Later decisions about the same index, task
//! or cell name the stored decision as their cause. Every chain of causes therefore ends at a client, an
//! operator, a cell, or convergence.

use serde::{Deserialize, Serialize};

use crate::names::{CellId, DecisionId};

/// Reference to an earlier decision. Decisions that follow from the earlier decision store this reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    pub decision: DecisionId,
    /// First decision of the chain. Equal to `decision` if that decision has no cause.
    pub correlation: DecisionId,
}

/// Source of a decision, as far as the aggregate of the decision contains the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Start of a chain: a client's command, a rep's report about something unknown, or a finding of
    /// convergence.
    Root,
    /// An earlier decision about the same index, process or task.
    Decision(Cause),
    /// The loss or the evacuation of a cell. The second field is the earlier decision about the same index or
    /// task. The earlier decision is the cause if the log does not contain the loss or evacuation yet.
    Cell(CellId, Option<Cause>),
    /// The last change of a cell, of any kind. A global process adapts to changes of cells.
    CellChange(CellId),
}

impl Origin {
    /// Returns `true` if both origins have the same source. If several instances or tasks end because one
    /// cell is lost, their ends have the same source, even if different decisions started them.
    #[must_use]
    pub fn has_same_source(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cell(one, _), Self::Cell(other, _)) => one == other,
            (Self::Root | Self::Decision(_) | Self::Cell(..) | Self::CellChange(_), _) => self == other,
        }
    }
}

impl From<Option<Cause>> for Origin {
    fn from(cause: Option<Cause>) -> Self {
        cause.map_or(Self::Root, Self::Decision)
    }
}
