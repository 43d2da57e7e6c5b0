//! Single decisions: the response of a BBS in the recorded state to one command, without later consequences.

use bytes::Bytes;
use schemas::message::{Ack, Envelope};
use schemas::names::Domain;
use schemas::spec::ClientCommand;
use schemas::stamp::Actor;
use schemas::subject::{Position, Subject};
use schemas::{Code, Entry, Refusal};

use super::act::{Failed, who};
use super::change::Change;
use super::stage::Stage;
use super::what_if::SETTLING;
use super::{Recording, Unusable};

/// Command to decide.
#[derive(Clone, Debug)]
pub enum DecideRequest {
    /// Change, in the syntax of the module [`change`](super::change).
    Change(Change),
    /// Command in the form that a client sends.
    Command(Domain, Box<Envelope>, Box<ClientCommand>),
}

/// Decision on a command.
#[derive(Clone, Debug)]
pub struct DecideResult {
    /// Answer to the client.
    pub answer: Result<Option<Ack>, Refusal>,
    /// Entries to append, as stored on their subjects. An empty list means that the command changes nothing.
    /// A command for several items can be refused at one of them; the list then holds the entries of the
    /// items before it.
    pub entries: Vec<(Subject, Bytes)>,
}

/// List of the changes that are commands, for error messages.
const COMMANDS: &str = "evacuate, cordon, uncordon, delete cell, apply, update, scale, priority, restart, activate, \
                        rollout pause, rollout resume, rollback, delete, stop, run, cancel, domain, preemption on or \
                        preemption off";

impl DecideRequest {
    /// Creates a command from a change.
    ///
    /// # Errors
    /// Returns an error if the change is not a command of a client or an operator. Such a change has no
    /// decision.
    pub fn change(change: Change) -> Result<Self, String> {
        no_command(&change).map_or(Ok(Self::Change(change)), Err)
    }
}

/// Returns the reason that a change is not a command. `None` means that it is one.
fn no_command(change: &Change) -> Option<String> {
    let what = match change {
        Change::Lose(_) => "lose cell",
        Change::Return(_) => "return cell",
        Change::Add(_) => "add cell",
        Change::Crash(..) => "crash",
        Change::Wait(_) => "wait",
        Change::Operator(..)
        | Change::Apply(_)
        | Change::Update(..)
        | Change::Scale(..)
        | Change::Rank(..)
        | Change::Restart(_)
        | Change::Activate(..)
        | Change::Steer(..)
        | Change::Remove(_)
        | Change::Retire(..)
        | Change::Cancel(_)
        | Change::Fresh(..)
        | Change::Preemption(_) => return None,
    };
    Some(format!("`{what}` is no command, so nobody decides it: what can be decided is {COMMANDS}"))
}

impl Recording {
    /// Decides a command, one second after the recorded end of the log.
    ///
    /// # Errors
    /// Returns the reason that the simulation cannot continue from the log.
    pub fn decide(&self, asked: &DecideRequest) -> Result<DecideResult, Unusable> {
        let mut stage = Stage::new(self);
        // Without cells, only the BBS acts.
        stage.cells.clear();
        stage.until(self.time() + SETTLING)?;
        let begun = stage.tape.end();
        let answer = match asked {
            DecideRequest::Change(change) => match no_command(change) {
                None => stage.carry_out(change).map(|()| None),
                Some(why) => Err(Refusal::new(Code::InvalidRequest, why).into()),
            },
            DecideRequest::Command(domain, envelope, command) => {
                stage.asks_as_client(domain, (**envelope).clone(), (**command).clone()).map(Some)
            }
        };
        let answer = match answer {
            Ok(done) => Ok(done),
            Err(Failed::Refused(refusal)) => Err(refusal),
            Err(Failed::Unusable(unusable)) => return Err(unusable),
        };
        Ok(DecideResult { answer, entries: entries(&stage, begun) })
    }
}

/// Returns the entries after a position that hold decisions on commands of the simulated client.
fn entries(stage: &Stage<'_>, begun: Position) -> Vec<(Subject, Bytes)> {
    let asked = |entry: &Entry| {
        entry.decisions.iter().any(|decision| match &decision.actor {
            Actor::Client { name, .. } | Actor::Operator(name) => *name == who(),
            Actor::Cell(_) | Actor::Auctioneer(_) | Actor::Bbs(_) => false,
        })
    };
    let behind = stage.tape.appended().filter(|(position, entry)| *position > begun && asked(entry));
    let stored = behind.filter_map(|(position, _)| {
        let message = stage.tape.get(position)?;
        Some((Subject::parse(&message.subject)?, message.bytes.clone()))
    });
    stored.collect()
}
