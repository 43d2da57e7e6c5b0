//! Cells.

use machines::cell;
use schemas::entry::{Aggregate, Event};
use schemas::names::{CellId, Incarnation};
use schemas::subject::Subject;
use schemas::{Decision, Origin, Refusal};

use super::{Order, State, Target};
use crate::scratch::Scratch;

/// Command for a cell.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Records the changes that a heartbeat reports.
    RecordPresence(cell::HeartbeatState),
    /// Declares the cell lost, with the reason.
    DeclareLost(String),
    /// Checks whether a rep may act for the cell. No decision is made. The answer is confirmed against the
    /// cell's last entry in the journal.
    Attach,
    /// Records that this incarnation of the cell's rep, one run of its program, has left after an evacuation.
    RecordLeave(Incarnation),
    /// Command of an operator.
    Operator(schemas::cell::Command),
}

impl Target for Order<CellId, Command> {
    fn name(&self) -> String {
        format!("cell {}", self.key)
    }

    fn subject(&self, _: u16) -> Subject {
        Subject::Cell(self.key.clone())
    }

    fn state<'s>(&self, scratch: &'s Scratch<'_>) -> State<'s> {
        let requests = scratch.cell(&self.key).map(|cell| &cell.requests);
        scratch.single(requests, scratch.changed.cells.contains_key(&self.key))
    }

    fn decide(&self, scratch: &Scratch<'_>) -> Result<Vec<Event>, Refusal> {
        let known = scratch.cell(&self.key);
        let events = match &*self.command {
            Command::RecordPresence(seen) => cell::decide_heartbeat(known, seen),
            Command::DeclareLost(reason) => cell::decide_lost(known, reason),
            Command::Attach => vec![],
            Command::RecordLeave(incarnation) => cell::decide_left(known, *incarnation),
            Command::Operator(command) => cell::decide(&self.key, known, *command)?,
        };
        Ok(events.into_iter().map(Event::Cell).collect())
    }

    fn aggregate(&self, _: &Scratch<'_>, _: &[Event]) -> Aggregate {
        Aggregate::Cell(self.key.clone())
    }

    fn origin(&self, scratch: &Scratch<'_>, events: &[Event]) -> Origin {
        match &*self.command {
            Command::RecordPresence(_) | Command::RecordLeave(_) => {
                cell::origin(scratch.cell(&self.key), events)
            }
            Command::DeclareLost(_) | Command::Attach | Command::Operator(_) => Origin::Root,
        }
    }
}

impl Scratch<'_> {
    pub(super) fn evolve_cell(&mut self, id: &CellId, decision: &Decision) {
        let events = decision.events.iter().filter_map(Event::as_cell);
        let cell = cell::fold(self.cell(id).cloned(), events, &decision.stamp(), decision.version);
        self.changed.cells.insert(id.clone(), cell);
        self.single_version = decision.version;
    }
}
