//! Preemption in a plan. If preemption is on, less urgent work (the victims) stops to make room (free
//! resources) for an instance or task.

use std::sync::Arc;

use schemas::ActualLrpKey;
use schemas::Place;
use schemas::container::{Instance, WorkKey};
use schemas::names::{CellId, ProcessGuid};
use schemas::priority::Priority;
use schemas::query::{InstancePresence, InstanceRow, InstanceState, LrpRow, RolloutRow, TaskRow, TaskState};
use serde::Serialize;

use super::obstacles::{Obstacle, obstacle};
use super::{ClusterCopy, StepAction};
use crate::auction::Item;
use crate::preempt::{CandidateCell, PendingWork, PreemptibleWork, choose};

/// Work that would stop for work of higher priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Victim {
    pub name: String,
    pub priority: Priority,
}

/// Converts rows to a running instance that may be stopped for other work. `None` if the instance may not be
/// stopped.
#[must_use]
pub fn running_instance(row: &InstanceRow, lrp: &LrpRow) -> Option<PreemptibleWork> {
    let replaced =
        |rollout: &RolloutRow| !rollout.is_completed() && rollout.in_replacement.contains(row.index);
    let runs = match row.state {
        InstanceState::Claimed | InstanceState::Running => row.presence == InstancePresence::Ordinary,
        InstanceState::Unclaimed | InstanceState::Crashed => false,
    };
    if !runs || row.stopping || lrp.rollout.as_ref().is_some_and(replaced) {
        return None;
    }
    let place = Place::new(row.index, row.definition_id.clone());
    Some(PreemptibleWork {
        key: WorkKey::Lrp { key: ActualLrpKey::new(row.process_guid.clone(), place), epoch: row.epoch },
        by: Instance { instance_guid: row.instance_guid?, cell_id: row.cell_id.clone()? },
        priority: lrp.priority?,
        size: *lrp.sizes.get(&row.definition_id)?,
        since: row.since,
    })
}

/// Converts a row with its definition to a running task that may be stopped for other work. `None` if the
/// task may not be stopped.
#[must_use]
pub fn running_task(row: &TaskRow) -> Option<PreemptibleWork> {
    let definition = row.definition.as_ref().filter(|_| row.state == TaskState::Running)?;
    Some(PreemptibleWork {
        key: WorkKey::Task { task_guid: row.task_guid.clone(), epoch: row.epoch },
        by: Instance { instance_guid: row.instance_guid?, cell_id: row.cell_id.clone()? },
        priority: row.priority,
        size: definition.resources(),
        since: row.since,
    })
}

impl ClusterCopy {
    /// Allows the plan to preempt this running work. Work of the processes that the plan changes is excluded.
    #[must_use]
    pub fn with_preemption(mut self, running: impl IntoIterator<Item = PreemptibleWork>) -> Self {
        for one in running {
            let own = match &one.key {
                WorkKey::Lrp { key, .. } => self.processes.contains_key(&key.process_guid),
                WorkKey::Task { .. } => false,
            };
            if !own {
                Arc::make_mut(self.may_stop.entry(one.by.cell_id.clone()).or_default()).push(one);
            }
        }
        self
    }

    /// Stops work of lower priority to make room for an instance. Returns `true` if any work was stopped.
    pub(super) fn preempt(&mut self, guid: &ProcessGuid, place: &Place, item: &Item) -> bool {
        let Some((cell_id, victims)) = self.preempt_for(item) else { return false };
        self.step(guid, StepAction::Preempts { place: place.clone(), cell_id, victims });
        self.freed = true;
        true
    }

    /// Stops work of lower priority to make room for an item. Returns the cell and the victims, or `None` if
    /// no cell has enough victims.
    pub(super) fn preempt_for(&mut self, item: &Item) -> Option<(CellId, Vec<Victim>)> {
        let process = item.process().cloned();
        let waiting = PendingWork { priority: item.rank.priority.0, size: item.order.resources(), process };
        let chosen = choose(&waiting, &self.offers(item))?;
        let number = self.board.number(&chosen.cell)?;
        let free = self.board.free(number);
        self.board.set_free(number, chosen.victims.iter().fold(free, |sum, one| sum.plus(one.size)));
        if let Some(left) = self.may_stop.get_mut(&chosen.cell) {
            Arc::make_mut(left).retain(|one| !chosen.victims.contains(one));
        }
        let victim = |one: &PreemptibleWork| Victim { name: one.key.to_string(), priority: one.priority };
        Some((chosen.cell, chosen.victims.iter().map(victim).collect()))
    }

    /// Returns the cells that could run the item if they had enough room. Only cells that have work that may
    /// be stopped are included.
    fn offers(&self, item: &Item) -> Vec<CandidateCell> {
        let siblings = item.process().and_then(|guid| self.overview.siblings().get(guid));
        let may = |id: &CellId| item.only.as_ref().is_none_or(|only| only == id);
        let cells = (0..).zip(self.board.cells()).filter(|(_, cell)| may(&cell.id));
        let offer = |(number, cell): (u32, &crate::board::BoardCell)| {
            match obstacle(&self.board, number, item, siblings) {
                None | Some(Obstacle::InsufficientFree(_)) => {}
                Some(
                    Obstacle::InstanceLimit(_)
                    | Obstacle::Unavailable { .. }
                    | Obstacle::InsufficientTotal(_)
                    | Obstacle::Incompatible(_),
                ) => {
                    return None;
                }
            }
            let running = Arc::clone(self.may_stop.get(&cell.id)?);
            Some(CandidateCell { cell: cell.id.clone(), free: self.board.free(number), running })
        };
        cells.filter_map(offer).collect()
    }
}
