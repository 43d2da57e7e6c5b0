//! Commands of processes, and the reports of reps and auctioneers about instances.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::actual;
use crate::container::{Epoch, Instance};
use crate::definition::{Definition, DesiredLrp, DesiredLrpUpdate};
use crate::evacuating;
use crate::exec::Exec;
use crate::key::Place;
use crate::names::{DefinitionId, Domain, EvaluationId};
use crate::placement::Explanation;
use crate::preemption::Eviction;

/// Command for a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Desire(Box<DesiredLrp>),
    /// Changes the scale, priority, routes, annotation or policies.
    Update(DesiredLrpUpdate),
    /// Rolls out another definition to every instance. May change all other properties as well.
    Deploy {
        /// Changes other than the definition.
        update: DesiredLrpUpdate,
        /// Id of the new definition.
        definition_id: DefinitionId,
        definition: Arc<Definition>,
    },
    /// Rolls out a definition that the process already has.
    Activate {
        definition_id: DefinitionId,
    },
    /// Replaces every instance by a new instance with the same definition.
    Restart(Purpose),
    /// Controls the rollout.
    Steer(RolloutControl),
    Remove,
    /// Stops one instance. The instance starts again if it is still desired.
    Retire {
        index: u32,
        /// Definition of the instance. `None` selects the only instance at the index. If there are several
        /// instances, `None` selects the instance with the active definition.
        definition_id: Option<DefinitionId>,
    },
    /// Runs a program in the container of an instance.
    Enter {
        index: u32,
        /// Definition of the instance, as for [`Command::Retire`].
        definition_id: Option<DefinitionId>,
        /// Program to run.
        exec: Exec,
    },
    /// Stops an instance to free its resources for more urgent work. Sent by the auctioneer.
    Evict(Box<Eviction>),
    /// Reports one container. All steps of the report are carried out, or no step is. Sent by a rep.
    Report(Report),
    /// Reports instances that could not be placed. Sent by the auctioneer.
    Fail(Outcome),
    /// Reports that the auctioneer did not answer a delivery of an evaluation.
    Unanswered {
        evaluation: EvaluationId,
        /// Number of the delivery.
        delivery: u32,
    },
    /// Retries an evaluation now, at the request of a client.
    Retry(EvaluationId),
    /// Carries out all due actions: handles instances on lost cells, and missing, excess, crashed and expired
    /// instances.
    Converge,
}

/// Reason for replacing every instance by a new instance with the same definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub enum Purpose {
    /// To restart the instances.
    #[default]
    Restart,
    /// To spread the instances more evenly over the cells.
    Rebalance,
}

impl Purpose {
    /// Returns the purpose as clients write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Rebalance => "rebalance",
        }
    }

    /// Returns the reason of the rollout, as shown to users.
    #[must_use]
    pub const fn rollout_reason(self) -> &'static str {
        match self {
            Self::Restart => "restarted",
            Self::Rebalance => "rebalanced",
        }
    }
}

/// Control of a rollout by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RolloutControl {
    /// Pauses the rollout: the rollout replaces no further index.
    Pause,
    /// Resumes the rollout: the rollout continues to replace indices.
    Resume,
    /// Returns the process to the definition that was healthy when the rollout started.
    RollBack,
}

/// Report of a rep about the records of one slot. The report is accepted or refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub domain: Domain,
    /// Slot of the container.
    pub place: Place,
    /// Epoch that the container belongs to.
    pub epoch: Epoch,
    pub by: Instance,
    /// Time of the last change of the records on which the rep based its report (see
    /// `Process::changed_at`). The report is refused if the records have changed after this time. So a late
    /// or duplicated report cannot undo later changes.
    pub observed_at: Timestamp,
    /// Steps in order. If one step is refused, the whole report is refused.
    pub steps: Vec<ReportStep>,
}

/// One step of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportStep {
    /// Step for the record of the instance.
    Actual(actual::Command),
    /// Step for the record of the evacuating instance.
    Evacuating(evacuating::Command),
}

/// Instances of one evaluation that an auctioneer could not place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub evaluation: EvaluationId,
    pub unplaced: Vec<Unplaced>,
    /// `true` if the evaluation has no attempts left because reps refused the work of the evaluation too
    /// often.
    pub attempts_exhausted: bool,
    /// Explanation per cell for the last instance that could not be placed.
    pub explanation: Option<Box<Explanation>>,
}

/// Instance that could not be placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unplaced {
    pub place: Place,
    /// Value of `since` in the UNCLAIMED record that the auctioneer tried to place. The outcome is ignored if
    /// the record has changed in the meantime.
    pub attempt: Timestamp,
    /// Placement error, as shown to users.
    pub error: String,
}
