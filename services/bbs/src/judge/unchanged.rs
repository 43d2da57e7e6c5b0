//! What was planned is carried out only as it was planned: nothing was decided since about what it is about.

use schemas::subject::Position;
use schemas::{Code, Refusal};

use super::Batch;
use crate::command::{AggregateCommand, QueuedCommand};

/// Where the last decision about something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// In the log; 0: there is none.
    Recorded(Position),
    /// Nothing is known of it: not behind this position, up to which some things were forgotten.
    Forgotten(Position),
    /// In the entry that is being made.
    Decided,
}

impl Batch<'_> {
    /// A command that names a position is carried out only if nothing was decided about its aggregate after that.
    ///
    /// Compare-and-set keeps this true until the entry is stored: whatever else comes to the subject first has it judged
    /// again.
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

    /// What a command is about, and where the last decision about that stands; none: no client asks that.
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

    /// Where the last decision stands about what has a subject of its own.
    fn last_on(&self, command: &AggregateCommand) -> Position {
        self.world.last_on(&command.subject(self.world.shards()))
    }
}
