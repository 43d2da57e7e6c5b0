//! Check of planned commands: a plan is carried out only if its aggregate has not changed since the plan was
//! made.

use schemas::subject::Position;
use schemas::{Code, Refusal};

use super::Batch;
use crate::command::{AggregateCommand, QueuedCommand};

/// Position of the last decision about an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// Position in the log; 0 if there is none.
    Recorded(Position),
    /// The aggregate is unknown. Its last decision may be anywhere up to this position, up to which some
    /// aggregates were forgotten.
    Forgotten(Position),
    /// The decision is in the entry that is being made.
    Decided,
}

impl Batch<'_> {
    /// Refuses a command with `if_position` if a decision about its aggregate was made after that position.
    ///
    /// Compare-and-set keeps this valid until the entry is stored: if another entry reaches the subject
    /// first, the command is judged again.
    pub(super) fn check_unchanged(&self, queued: &QueuedCommand) -> Result<(), Refusal> {
        let Some(planned) = queued.envelope.if_position else { return Ok(()) };
        let here = self.world.position();
        if planned > here {
            let why = format!(
                "this BBS has read the log up to position {here}, and not up to {planned}: try again"
            );
            return Err(Refusal::new(Code::Unavailable, why));
        }
        let Some((what, last)) = self.last_decision(&queued.command) else { return Ok(()) };
        let since = match last {
            Last::Recorded(at) | Last::Forgotten(at) if at <= planned => return Ok(()),
            Last::Recorded(at) => format!("the last decision about it stands at {at}"),
            Last::Forgotten(_) => {
                let why = format!(
                    "whether {what} was there since position {planned} is not known any more: plan again"
                );
                return Err(Refusal::new(Code::ResourceConflict, why));
            }
            Last::Decided => "the last decision about it is being recorded".to_owned(),
        };
        let why = format!("{what} has changed since position {planned}, {since}: plan again");
        Err(Refusal::new(Code::ResourceConflict, why))
    }

    /// Returns a description of the command's aggregate and its last decision; `None` for commands that
    /// clients never send.
    fn last_decision(&self, command: &AggregateCommand) -> Option<(String, Last)> {
        let forgotten = Last::Forgotten(self.world.forgotten());
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
            AggregateCommand::Refresh(domain, _) => {
                (format!("domain {domain}"), self.domains.contains_key(domain), Some(self.last_on(command)))
            }
            AggregateCommand::Limit(order) => {
                let decided = self.limited.contains_key(&order.domain);
                (format!("domain {}", order.domain), decided, Some(self.last_on(command)))
            }
            AggregateCommand::Cell(id, _) => {
                (format!("cell {id}"), self.cells.contains_key(id), Some(self.last_on(command)))
            }
            AggregateCommand::Cluster(_) => {
                ("the cluster".to_owned(), self.cluster.is_some(), Some(self.last_on(command)))
            }
            AggregateCommand::Seen(..)
            | AggregateCommand::Lost(..)
            | AggregateCommand::Attach(_)
            | AggregateCommand::Left(..)
            | AggregateCommand::Number
            | AggregateCommand::Lead { .. } => return None,
        };
        let last = if decided { Last::Decided } else { recorded.map_or(forgotten, Last::Recorded) };
        Some((what, last))
    }

    /// Returns the position of the last decision on the command's subject, for aggregates with a subject of
    /// their own.
    fn last_on(&self, command: &AggregateCommand) -> Position {
        self.world.last_on(&command.subject(self.world.shards()))
    }
}
