//! Plan of a rebalance: the replacement of every instance of a process, in order to spread the instances evenly.

use std::collections::BTreeMap;

use auctioneer::plan::PlacementFailure;
use client::Client;
use schemas::names::{CellId, ProcessGuid};
use schemas::process::{Command, Purpose};
use schemas::query::LrpRow;
use schemas::{Code, Refusal};
use serde::Serialize;

use super::state::ClusterState;
use crate::Error;

/// Predicted effect of a rebalance.
#[derive(Clone, Debug, Serialize)]
pub struct RebalancePlan {
    /// Difference between the highest and the lowest number of instances on the cells that may run the process.
    pub skew: u32,
    /// Number of instances by cell.
    pub cells: BTreeMap<CellId, u32>,
    pub outcome: RebalanceOutcome,
}

/// Predicted outcome of a rebalance.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum RebalanceOutcome {
    /// The instances are already spread as evenly as possible.
    Even,
    /// There is no room for the replacement of every instance.
    NoRoom {
        /// Skew when no further instance can be replaced.
        skew: u32,
        /// Failures of the instances without a cell.
        failures: Vec<PlacementFailure>,
    },
    /// The replacement would not reduce the skew.
    NoImprovement { skew: u32, cells: BTreeMap<CellId, u32> },
    /// The replacement would reduce the skew.
    Improvement { skew: u32, cells: BTreeMap<CellId, u32> },
}

/// Predicts the effect of the replacement of every instance of a process.
///
/// # Errors
/// A query fails, the process is no longer desired, or a rollout of the process is under way.
pub async fn rebalance(client: &Client, row: &LrpRow) -> Result<RebalancePlan, Error> {
    let guid = &row.process_guid;
    let doing = |error: Error| error.while_doing(format!("rebalance process {guid}"));
    if !row.desired {
        let refusal = Refusal::new(Code::InvalidStateTransition, "it is no longer desired");
        return Err(doing(refusal.into()));
    }
    if row.rollout.as_ref().is_some_and(|rollout| !rollout.is_completed()) {
        return Err(doing(Error::RolloutUnderWay(guid.clone())));
    }
    let mut copy = ClusterState::query(client, [guid]).await?.copy;
    let (skew, cells) = (copy.skew(guid), copy.spread(guid));
    if skew <= 1 {
        return Ok(RebalancePlan { skew, cells, outcome: RebalanceOutcome::Even });
    }
    copy.apply(guid, &row.domain, &Command::Restart(Purpose::Rebalance))
        .map_err(|refusal| doing(refusal.into()))?;
    copy.run()?;
    let (planned, afterwards) = (copy.skew(guid), copy.spread(guid));
    let outcome = if !copy.is_settled(guid) {
        let failures = copy.unplaced_instances().into_iter().map(|left| left.placement_failure);
        RebalanceOutcome::NoRoom { skew: planned, failures: failures.collect() }
    } else if planned >= skew {
        RebalanceOutcome::NoImprovement { skew: planned, cells: afterwards }
    } else {
        RebalanceOutcome::Improvement { skew: planned, cells: afterwards }
    };
    Ok(RebalancePlan { skew, cells, outcome })
}

/// Returns the number of instances of a process by cell.
///
/// # Errors
/// A query fails.
pub async fn spread(client: &Client, guid: &ProcessGuid) -> Result<BTreeMap<CellId, u32>, Error> {
    Ok(ClusterState::query(client, [guid]).await?.copy.spread(guid))
}
