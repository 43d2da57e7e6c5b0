//! Causes: what brought a decision about. Each index of a process, each task and each cell keeps the decision that
//! last made work for it or asked it to stop; whatever is decided about it afterwards names that one. So following
//! causes leads from what is back to a client, an operator, a cell, or convergence, and never to something else.

use serde::{Deserialize, Serialize};

use crate::names::{CellId, DecisionId};

/// An earlier decision, as those that follow from it name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// Which decision.
    pub decision: DecisionId,
    /// The first decision of its chain; itself, if nothing caused it.
    pub correlation: DecisionId,
}

/// Where a decision comes from, as far as its own aggregate knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It begins a chain: a client asked, a rep reported what nobody knew of, or only convergence found it.
    Beginning,
    /// An earlier decision about the same index, process or task.
    Decision(Cause),
    /// What happened to a cell: it was lost, or it evacuates. Where that is not in the log yet,
    /// the earlier decision is named.
    Cell(CellId, Option<Cause>),
    /// What last happened to a cell, whatever that was: a global process follows it.
    News(CellId),
}

impl Origin {
    /// Whether two come from the same place: what a cell's loss ends is one thing, whatever began it.
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
