//! What would come of tasks: one auction of all of them, together with what waits for room of others.

use std::collections::BTreeMap;

use schemas::Refusal;
use schemas::container::WorkKey;
use schemas::definition::DesiredTask;
use schemas::entry::{Event, Stamp};
use schemas::names::{CellId, DecisionId, TaskGuid, Zone};
use schemas::task::{self, Command, Context, Task, Unplaced};
use serde::Serialize;
use uuid::Uuid;

use super::{Copy, NoRoom, Victim, lacks};
use crate::auction::{Item, auction};

/// What would become of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It runs.
    Runs {
        /// Where.
        cell_id: CellId,
        /// In which zone.
        zone: Zone,
    },
    /// It runs when what is less urgent has stopped.
    Preempts {
        /// Where.
        cell_id: CellId,
        /// In which zone.
        zone: Zone,
        /// What stops for it.
        victims: Vec<Victim>,
    },
    /// It waits for room.
    Waits {
        /// For so long, in milliseconds; then it fails.
        deadline_ms: u64,
        /// Why.
        #[serde(flatten)]
        no_room: NoRoom,
    },
    /// It fails at once.
    Fails {
        /// Why.
        #[serde(flatten)]
        no_room: NoRoom,
    },
}

impl Fate {
    /// Whether it runs, at once or when others have stopped for it.
    #[must_use]
    pub const fn runs(&self) -> bool {
        match self {
            Self::Runs { .. } | Self::Preempts { .. } => true,
            Self::Waits { .. } | Self::Fails { .. } => false,
        }
    }
}

impl Copy {
    /// Takes in a task that exists, whatever it runs: its guid is not free.
    pub fn knows_task(&mut self, existing: DesiredTask) {
        let guid = existing.task_guid.clone();
        self.take_in_task(&guid, &[Event::Task(task::Event::Desired(Box::new(existing)))]);
    }

    /// Asks for a task, to be placed by [`Self::place_tasks`].
    ///
    /// # Errors
    /// The refusal that a client would get.
    pub fn desire_task(&mut self, desired: DesiredTask) -> Result<(), Refusal> {
        self.now = self.now.next();
        let guid = desired.task_guid.clone();
        let events = self.decide_task(&guid, &Command::Desire(Box::new(desired)))?;
        self.take_in_task(&guid, &events);
        self.asked_tasks.insert(guid);
        Ok(())
    }

    /// Places what was asked for beside what waits for room of others, in one auction; says what becomes of each task that was
    /// asked for.
    ///
    /// # Errors
    /// A refusal that no cluster would give: what was copied contradicts itself.
    pub fn place_tasks(&mut self) -> Result<BTreeMap<TaskGuid, Fate>, Refusal> {
        let asked = self.asked_tasks.iter().filter_map(|guid| Item::of_task(self.tasks.get(guid)?));
        let mut items: Vec<Item> = asked.collect();
        items.append(&mut self.others.waiting);
        self.others.untried = false;
        let mut fates = BTreeMap::new();
        for verdict in auction(&mut self.board, items, self.overview.siblings()) {
            let own = match &verdict.item.rank.key {
                WorkKey::Task { task_guid, .. } => {
                    Some(task_guid).filter(|guid| self.asked_tasks.contains(*guid)).cloned()
                }
                WorkKey::Lrp { .. } => None,
            };
            let Some(guid) = own else {
                self.place_other(verdict);
                continue;
            };
            let fate = match verdict.place {
                Ok(cell_id) => Fate::Runs { zone: self.zone(&cell_id), cell_id },
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

    /// What the task's own machine makes of it that no cell takes it.
    fn unplaced(&mut self, guid: &TaskGuid, item: &Item, error: String) -> Result<Fate, Refusal> {
        let no_room = NoRoom { error: error.clone(), cells: lacks::of(&self.board, item, None) };
        let judged = self.tasks.get(guid).and_then(Task::open_evaluation).map(|one| one.id);
        let Some(evaluation) = judged else { return Ok(Fate::Fails { no_room }) };
        let failed = Unplaced { evaluation, error, used_up: false, explanation: None };
        let events = self.decide_task(guid, &Command::Fail(failed))?;
        self.take_in_task(guid, &events);
        let Some(waits) = self.tasks.get(guid).filter(|task| task.is_pending()) else {
            return Ok(Fate::Fails { no_room });
        };
        let deadline = waits.pending_until().since(waits.epoch.0);
        if let Some((cell_id, victims)) = self.stop_for(item) {
            // What is left of their room is free for others; this one's is not.
            if let Some(number) = self.board.number(&cell_id) {
                let free = self.board.free(number);
                self.board.set_free(number, free.minus(item.order.resources()));
            }
            return Ok(Fate::Preempts { zone: self.zone(&cell_id), cell_id, victims });
        }
        Ok(Fate::Waits { deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX), no_room })
    }

    fn decide_task(&self, guid: &TaskGuid, command: &Command) -> Result<Vec<Event>, Refusal> {
        let present = |cell: &CellId| self.board.number(cell).is_some();
        task::decide(self.tasks.get(guid), command, Context { now: self.now, present: &present })
    }

    fn take_in_task(&mut self, guid: &TaskGuid, events: &[Event]) {
        self.made += 1;
        let stamp = Stamp::beginning(DecisionId(Uuid::from_u128(self.made)), self.now);
        if let Some(task) = task::evolve(self.tasks.remove(guid), events, &stamp) {
            self.tasks.insert(guid.clone(), task);
        }
    }
}
