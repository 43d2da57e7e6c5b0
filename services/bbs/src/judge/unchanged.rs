//! Check of planned commands. A planned command is carried out only if its aggregate has not changed since
//! the plan was made.

use schemas::subject::Position;
use schemas::{Code, Refusal};

use super::Batch;
use crate::command::{AggregateCommand, QueuedCommand};

/// Position of the last decision about an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastDecision {
    /// Position in the log; 0 if there was no decision.
    Recorded(Position),
    /// The World (the state folded from the log) does not contain the aggregate, and may have forgotten it.
    /// This is the position up to which aggregates were forgotten, so the last decision is not later.
    Forgotten(Position),
    /// The decision belongs to the entry that is being created.
    Decided,
}

impl Batch<'_> {
    /// Refuses a command with `if_position` if its aggregate was changed after that position.
    ///
    /// Compare-and-set keeps the result of this check valid until the entry is stored. If another entry
    /// reaches the subject first, the check is repeated.
    pub(super) fn check_unchanged(&self, queued: &QueuedCommand) -> Result<(), Refusal> {
        let Some(planned) = queued.envelope.if_position else { return Ok(()) };
        let here = self.world.position();
        if planned > here {
            let why = format!(
                "this BBS has read the log up to position {here}, but not up to {planned}: try again"
            );
            return Err(Refusal::new(Code::Unavailable, why));
        }
        let Some((what, last)) = self.last_decision(&queued.command) else { return Ok(()) };
        let since = match last {
            LastDecision::Recorded(at) | LastDecision::Forgotten(at) if at <= planned => return Ok(()),
            LastDecision::Recorded(at) => format!("its last decision is at position {at}"),
            LastDecision::Forgotten(_) => {
                let why =
                    format!("it is unknown whether {what} existed after position {planned}: plan again");
                return Err(Refusal::new(Code::ResourceConflict, why));
            }
            LastDecision::Decided => "a decision about it is being recorded".to_owned(),
        };
        let why = format!("{what} has changed since position {planned} ({since}): plan again");
        Err(Refusal::new(Code::ResourceConflict, why))
    }

    /// Returns a description of the command's aggregate, and the last decision about the aggregate. `None`
    /// for commands that clients never send.
    fn last_decision(&self, command: &AggregateCommand) -> Option<(String, LastDecision)> {
        let forgotten = LastDecision::Forgotten(self.world.forgotten());
        let (what, decided, recorded) = match command {
            AggregateCommand::Process(guid, _) => {
                let known = self.world.process(guid).map(|process| process.last_decision);
                (format!("process {guid}"), self.processes.contains_key(guid), known)
            }
            AggregateCommand::Task(guid, _) => {
                let known = self.world.task(guid).map(|task| task.last_decision);
                (format!("task {guid}"), self.tasks.contains_key(guid), known)
            }
            AggregateCommand::Periodic(guid, _) => {
                let known = self.world.periodic(guid).map(|periodic| periodic.last_decision);
                (format!("periodic task {guid}"), self.periodics.contains_key(guid), known)
            }
            AggregateCommand::Parameterised(guid, _) => {
                let known = self.world.parameterised(guid).map(|known| known.last_decision);
                (format!("parameterised task {guid}"), self.parameterised.contains_key(guid), known)
            }
            AggregateCommand::Refresh(domain, _) => (
                format!("domain {domain}"),
                self.domains.contains_key(domain),
                Some(self.last_decision_on(command)),
            ),
            AggregateCommand::Limit(order) => {
                let decided = self.limited.contains_key(&order.domain);
                (format!("domain {}", order.domain), decided, Some(self.last_decision_on(command)))
            }
            AggregateCommand::Cell(id, _) => {
                (format!("cell {id}"), self.cells.contains_key(id), Some(self.last_decision_on(command)))
            }
            AggregateCommand::Cluster(_) => {
                ("the cluster".to_owned(), self.cluster.is_some(), Some(self.last_decision_on(command)))
            }
            AggregateCommand::RecordPresence(..)
            | AggregateCommand::DeclareLost(..)
            | AggregateCommand::Attach(_)
            | AggregateCommand::RecordLeave(..)
            | AggregateCommand::AssignOrdinals
            | AggregateCommand::Lead { .. } => return None,
        };
        let last =
            if decided { LastDecision::Decided } else { recorded.map_or(forgotten, LastDecision::Recorded) };
        Some((what, last))
    }

    /// Returns the position of the last decision on the command's subject. Valid for aggregates that do not
    /// share their subject.
    fn last_decision_on(&self, command: &AggregateCommand) -> Position {
        self.world.last_position(&command.subject(self.world.shards()))
    }
}
