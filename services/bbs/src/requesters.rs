//! Pending replies. A message with several parts is answered once all its parts are decided. This module also
//! counts the waiting commands of each client.

use std::collections::{BTreeMap, BTreeSet};

use projections::{WorkRef, World, records};
use schemas::limits::{BATCH, COMMANDS_IN_FLIGHT};
use schemas::message::{Ack, Report, ReportResult, ReportsReply};
use schemas::names::{ClientName, Domain};
use schemas::stamp::Actor;
use schemas::subject::Position;
use schemas::{ActualLrpKey, Code, Refusal};

use crate::command::{QueuedCommand, Requester, Verdict};
use crate::effect::Reply;

/// Pending replies, by the token of the request.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingReplies {
    messages: BTreeMap<u64, Message>,
    /// Tokens of each client's waiting commands; no empty sets.
    clients: BTreeMap<(Domain, ClientName), BTreeSet<u64>>,
}

/// A message with several parts.
#[derive(Clone, Debug)]
struct Message {
    parts: Parts,
    /// Verdicts (the replies to the single parts) by the index of the part.
    verdicts: BTreeMap<usize, Verdict>,
}

/// Content of a message with several parts.
#[derive(Clone, Debug)]
pub(crate) enum Parts {
    /// Reports of a rep. Each report gets its own result in the reply.
    Reports(Vec<Report>),
    /// Number of outcomes and evictions of an auctioneer. All of them share one result.
    Outcomes(usize),
}

impl Parts {
    /// Checks the number of parts in a message; `what` names the parts.
    ///
    /// # Errors
    /// The message has no parts, or more than [`BATCH`].
    pub(crate) fn check(count: usize, what: &str) -> Result<(), Refusal> {
        if (1..=BATCH).contains(&count) {
            return Ok(());
        }
        Err(Refusal::new(Code::InvalidRequest, format!("a message must contain 1 to {BATCH} {what}")))
    }

    fn len(&self) -> usize {
        match self {
            Self::Reports(reports) => reports.len(),
            Self::Outcomes(count) => *count,
        }
    }
}

impl PendingReplies {
    /// Registers a client's command.
    ///
    /// # Errors
    /// The client already has [`COMMANDS_IN_FLIGHT`] commands waiting.
    pub(crate) fn admit(&mut self, domain: &Domain, client: &ClientName, token: u64) -> Result<(), Refusal> {
        let waiting = self.clients.entry((domain.clone(), client.clone())).or_default();
        if waiting.len() >= COMMANDS_IN_FLIGHT {
            let why = format!(
                "client {client} has {COMMANDS_IN_FLIGHT} commands waiting: wait for an answer first"
            );
            return Err(Refusal::new(Code::Overloaded, why));
        }
        waiting.insert(token);
        Ok(())
    }

    /// Registers a message with several parts.
    pub(crate) fn register(&mut self, token: u64, parts: Parts) {
        self.messages.insert(token, Message { parts, verdicts: BTreeMap::new() });
    }

    /// Records the verdict of a command. `position` is the log position on which the verdict is based. If the
    /// reply to the request is complete, returns the token of the request and the reply.
    pub(crate) fn settle(
        &mut self,
        command: &QueuedCommand,
        position: Position,
        verdict: Verdict,
        world: &World,
    ) -> Option<(u64, Reply)> {
        match command.requester {
            Requester::Own => None,
            Requester::Single(token) => {
                self.release(&command.actor, token);
                Some((token, Reply::Done(verdict.map(|version| Ack { position, version }))))
            }
            Requester::Part { token, part } => {
                let message = self.messages.get_mut(&token)?;
                message.verdicts.entry(part).or_insert(verdict);
                if message.verdicts.len() < message.parts.len() {
                    return None;
                }
                self.messages.remove(&token).map(|message| (token, message.reply(world)))
            }
        }
    }

    /// Removes a client's command.
    fn release(&mut self, actor: &Actor, token: u64) {
        if let Actor::Client { domain, name } = actor {
            let client = (domain.clone(), name.clone());
            if let Some(waiting) = self.clients.get_mut(&client) {
                waiting.remove(&token);
                if waiting.is_empty() {
                    self.clients.remove(&client);
                }
            }
        }
    }

    /// Returns the number of waiting messages with several parts.
    pub(crate) fn messages(&self) -> usize {
        self.messages.len()
    }

    /// Returns the number of clients with waiting commands.
    pub(crate) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Returns the number of waiting commands of clients.
    pub(crate) fn commands(&self) -> usize {
        self.clients.values().map(BTreeSet::len).sum()
    }
}

impl Message {
    fn reply(self, world: &World) -> Reply {
        let position = world.position();
        match self.parts {
            Parts::Outcomes(_) => {
                // The reply only reports parts that were not decided, and parts of a deposed auctioneer.
                // Every other refusal shows that the work has changed since the auctioneer sent its message.
                let told = [Code::Unavailable, Code::StaleTerm];
                let mut refusals = self.verdicts.into_values().filter_map(Result::err);
                let refusal = refusals.find(|refusal| told.contains(&refusal.code));
                Reply::Done(refusal.map_or(Ok(Ack { position, version: 0 }), Err))
            }
            Parts::Reports(reports) => {
                let results = reports.iter().zip(self.verdicts.into_values());
                let results = results.map(|(report, verdict)| ReportResult {
                    refused: verdict.err(),
                    record: records::record(world, &work_ref(report)),
                });
                let (terms, results) = (records::terms(world), results.collect());
                Reply::Reported(Ok(ReportsReply { position, terms, results }))
            }
        }
    }
}

fn work_ref(report: &Report) -> WorkRef {
    match report {
        Report::Lrp { process_guid, report } => {
            WorkRef::Lrp(ActualLrpKey::new(process_guid.clone(), report.place.clone()))
        }
        Report::Task { task_guid, .. } => WorkRef::Task(task_guid.clone()),
    }
}

#[cfg(test)]
mod tests {
    use schemas::names::{CellId, ServiceId};

    use super::*;
    use crate::aggregates::{CellCommand, Order};
    use crate::command::AggregateCommand;

    fn command(requester: Requester, actor: Actor) -> QueuedCommand {
        let cell = CellId::new("c1").unwrap();
        QueuedCommand::new(
            requester,
            actor,
            AggregateCommand::Cell(Order::new(cell, CellCommand::DeclareLost("silent".into()))),
        )
    }

    #[test]
    fn client_budget_is_separate_and_released() {
        let (mut requesters, world) = (PendingReplies::default(), World::new());
        let domain = Domain::new("shop").unwrap();
        let [ada, bob] = ["ada", "bob"].map(|name| ClientName::new(name).unwrap());
        for token in 0..COMMANDS_IN_FLIGHT as u64 {
            requesters.admit(&domain, &ada, token).unwrap();
        }
        assert_eq!(requesters.admit(&domain, &ada, 100).unwrap_err().code, Code::Overloaded);
        requesters.admit(&domain, &bob, 200).unwrap();
        assert_eq!(requesters.commands(), COMMANDS_IN_FLIGHT + 1);
        let actor = |name: &ClientName| Actor::Client { domain: domain.clone(), name: name.clone() };
        let first = command(Requester::Single(0), actor(&ada));
        let (token, reply) = requesters.settle(&first, Position(3), Ok(5), &world).unwrap();
        assert_eq!((token, reply), (0, Reply::Done(Ok(Ack { position: Position(3), version: 5 }))));
        requesters.admit(&domain, &ada, 100).unwrap();
        for (token, name) in (1..=100).map(|token| (token, &ada)).chain([(200, &bob)]) {
            let command = command(Requester::Single(token), actor(name));
            requesters.settle(&command, Position(3), Ok(5), &world);
        }
        assert_eq!(requesters.commands(), 0);
    }

    #[test]
    fn message_is_answered_once_after_all_parts_are_settled() {
        let (mut requesters, world) = (PendingReplies::default(), World::new());
        let actor = Actor::Auctioneer(ServiceId::new("a1").unwrap());
        requesters.register(7, Parts::Outcomes(2));
        let part = |part| command(Requester::Part { token: 7, part }, actor.clone());
        let refusal = || Refusal::new(Code::Unavailable, "try again");
        assert_eq!(requesters.settle(&part(1), Position(1), Err(refusal()), &world), None);
        assert_eq!(
            requesters.settle(&part(1), Position(1), Ok(1), &world),
            None,
            "a repeated part is not counted"
        );
        assert_eq!(requesters.messages(), 1);
        let reply = requesters.settle(&part(0), Position(1), Ok(1), &world);
        assert_eq!(reply, Some((7, Reply::Done(Err(refusal())))));
        assert_eq!(requesters.settle(&part(0), Position(1), Ok(1), &world), None);
        assert_eq!(requesters.messages(), 0);
    }

    #[test]
    fn message_with_zero_or_too_many_parts_is_refused() {
        assert!(Parts::check(0, "reports").is_err() && Parts::check(BATCH + 1, "reports").is_err());
        assert!(Parts::check(1, "reports").is_ok() && Parts::check(BATCH, "reports").is_ok());
    }
}
