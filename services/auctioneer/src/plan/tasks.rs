//! Simulation of new tasks: a single auction places all new tasks together with other waiting work.

use std::collections::BTreeMap;

use machines::task::{self, Context, Task};
use schemas::Refusal;
use schemas::container::WorkKey;
use schemas::definition::DesiredTask;
use schemas::entry::Event;
use schemas::names::{CellId, DecisionId, TaskGuid, Zone};
use schemas::stamp::Stamp;
use schemas::task::{Command, Unplaced};
use serde::Serialize;
use uuid::Uuid;

use super::{ClusterCopy, PlacementFailure, Victim, obstacles};
use crate::auction::{Item, auction};

/// Outcome of a planned task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskOutcome {
    /// The task runs.
    Runs { cell_id: CellId, zone: Zone },
    /// The task runs after victims (work of lower priority) have stopped.
    Preempts { cell_id: CellId, zone: Zone, victims: Vec<Victim> },
    /// The task waits until a cell has enough free resources.
    Waits {
        /// Maximum waiting time in milliseconds. The task fails after this time.
        deadline_ms: u64,
        #[serde(flatten)]
        placement_failure: PlacementFailure,
    },
    /// The task fails immediately.
    Fails {
        #[serde(flatten)]
        placement_failure: PlacementFailure,
    },
}

impl TaskOutcome {
    /// Returns `true` if the task runs, either immediately or after preemption.
    #[must_use]
    pub const fn runs(&self) -> bool {
        match self {
            Self::Runs { .. } | Self::Preempts { .. } => true,
            Self::Waits { .. } | Self::Fails { .. } => false,
        }
    }
}

impl ClusterCopy {
    /// Adds a new task. [`Self::place_tasks`] places the task.
    ///
    /// # Errors
    /// The refusal that a client would receive.
    pub fn desire_task(&mut self, desired: DesiredTask) -> Result<(), Refusal> {
        self.now = self.now.next();
        let guid = desired.task_guid.clone();
        let events = self.decide_task(&guid, &Command::Desire(Box::new(desired)))?;
        self.apply_task_events(&guid, &events);
        self.planned_tasks.insert(guid);
        Ok(())
    }

    /// Places the new tasks together with other waiting work in one auction. Returns the outcome of each new
    /// task.
    ///
    /// # Errors
    /// A refusal, if the copied state is inconsistent. A real cluster would not return this refusal.
    pub fn place_tasks(&mut self) -> Result<BTreeMap<TaskGuid, TaskOutcome>, Refusal> {
        let asked = self.planned_tasks.iter().filter_map(|guid| Item::of_task(self.tasks.get(guid)?));
        let mut items: Vec<Item> = asked.collect();
        items.append(&mut self.others.waiting);
        self.others.untried = false;
        let mut fates = BTreeMap::new();
        for verdict in auction(&mut self.board, items, self.overview.siblings()) {
            let own = match &verdict.item.rank.key {
                WorkKey::Task { task_guid, .. } => {
                    Some(task_guid).filter(|guid| self.planned_tasks.contains(*guid)).cloned()
                }
                WorkKey::Lrp { .. } => None,
            };
            let Some(guid) = own else {
                self.place_other(verdict);
                continue;
            };
            let fate = match verdict.place {
                Ok(cell_id) => TaskOutcome::Runs { zone: self.zone(&cell_id), cell_id },
                Err(error) => self.unplaced(&guid, &verdict.item, error)?,
            };
            fates.insert(guid, fate);
        }
        Ok(fates)
    }

    fn zone(&self, cell_id: &CellId) -> Zone {
        let number = self.board.number(cell_id).expect("an auction places on cells of its board");
        self.board.cell(number).zone.clone()
    }

    /// Returns the outcome of a task that no cell accepts. The state machine of the task decides this
    /// outcome.
    fn unplaced(&mut self, guid: &TaskGuid, item: &Item, error: String) -> Result<TaskOutcome, Refusal> {
        let placement_failure = PlacementFailure {
            error: error.clone(),
            cells: obstacles::reasons_by_cell(&self.board, item, None),
        };
        let judged = self.tasks.get(guid).and_then(Task::open_evaluation).map(|one| one.id);
        let Some(evaluation) = judged else { return Ok(TaskOutcome::Fails { placement_failure }) };
        let failed = Unplaced { evaluation, error, attempts_exhausted: false, explanation: None };
        let events = self.decide_task(guid, &Command::Fail(failed))?;
        self.apply_task_events(guid, &events);
        let Some(waits) = self.tasks.get(guid).filter(|task| task.is_pending()) else {
            return Ok(TaskOutcome::Fails { placement_failure });
        };
        let deadline = waits.pending_until().since(waits.epoch.0);
        if let Some((cell_id, victims)) = self.preempt_for(item) {
            // The victims may free more resources than the task needs. Only the amount that the task needs is
            // reserved. The rest is left to other work.
            if let Some(number) = self.board.number(&cell_id) {
                let free = self.board.free(number);
                self.board.set_free(number, free.minus(item.order.resources()));
            }
            return Ok(TaskOutcome::Preempts { zone: self.zone(&cell_id), cell_id, victims });
        }
        Ok(TaskOutcome::Waits {
            deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
            placement_failure,
        })
    }

    fn decide_task(&self, guid: &TaskGuid, command: &Command) -> Result<Vec<Event>, Refusal> {
        let present = |cell: &CellId| self.board.number(cell).is_some();
        task::decide(self.tasks.get(guid), command, Context { now: self.now, is_present: &present })
    }

    fn apply_task_events(&mut self, guid: &TaskGuid, events: &[Event]) {
        self.last_id += 1;
        let stamp = Stamp::root(DecisionId(Uuid::from_u128(self.last_id)), self.now);
        if let Some(task) = task::evolve(self.tasks.remove(guid), events, &stamp) {
            self.tasks.insert(guid.clone(), task);
        }
    }
}
