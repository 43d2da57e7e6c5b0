//! Causes: the decisions that led to a decision.
//!
//! Each index of a process, each task and each cell stores the decision that last made work for it or asked
//! it to stop. Later decisions about it name that one as their cause. Every chain of causes therefore ends at
//! a client, an operator, a cell, or convergence.

use serde::{Deserialize, Serialize};

use crate::names::{CellId, DecisionId};

/// Reference to an earlier decision, as the decisions that follow from it store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    pub decision: DecisionId,
    /// First decision of the chain. Equal to `decision` if nothing caused it.
    pub correlation: DecisionId,
}

/// Source of a decision, as far as its own aggregate knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Start of a chain: a client's command, a rep's report about something unknown, or a finding of
    /// convergence.
    Beginning,
    /// An earlier decision about the same index, process or task.
    Decision(Cause),
    /// The loss or the evacuation of a cell. If the log does not have it yet, the earlier decision counts.
    Cell(CellId, Option<Cause>),
    /// The last change of a cell, of any kind. A global process follows such changes.
    News(CellId),
}

impl Origin {
    /// Returns `true` if both have the same source. Everything that the loss of one cell ends has the same
    /// source, whatever started it.
    #[must_use]
    pub fn is_where(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cell(one, _), Self::Cell(other, _)) => one == other,
            (Self::Beginning | Self::Decision(_) | Self::Cell(..) | Self::News(_), _) => self == other,
        }
    }
}

impl From<Option<Cause>> for Origin {
    fn from(cause: Option<Cause>) -> Self {
        cause.map_or(Self::Beginning, Self::Decision)
    }
}
