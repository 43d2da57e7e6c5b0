//! A single decision: what a BBS that knows a recording decides on a command, and nothing of what follows.

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

/// A command that is to be decided.
#[derive(Clone, Debug)]
pub enum Asked {
    /// In the words of changes.
    Change(Change),
    /// As a client sends it.
    Command(Domain, Box<Envelope>, Box<ClientCommand>),
}

/// What is decided.
#[derive(Clone, Debug)]
pub struct Decided {
    /// What the client is answered.
    pub answer: Result<Option<Ack>, Refusal>,
    /// The entries that would be appended, each as it would be stored on its subject; none: it is so already. What is asked
    /// of several things may be refused for one of them, and these are of those before it.
    pub entries: Vec<(Subject, Bytes)>,
}

/// The beginnings of the changes that are commands.
const COMMANDS: &str = "evacuate, cordon, uncordon, delete cell, apply, update, scale, priority, restart, activate, \
                        rollout pause, rollout resume, rollback, delete, stop, run, cancel, domain, preemption on or \
                        preemption off";

impl Asked {
    /// A change that is to be decided.
    ///
    /// # Errors
    /// It is none that a client or an operator asks for: nobody decides it.
    pub fn change(change: Change) -> Result<Self, String> {
        no_command(&change).map_or(Ok(Self::Change(change)), Err)
    }
}

/// Why a change can't be decided, if it can't: it just happens.
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
    /// What would be decided on a command. The time is a second after the log was left.
    ///
    /// # Errors
    /// Why the log can't be run on.
    pub fn decide(&self, asked: &Asked) -> Result<Decided, Unusable> {
        let mut stage = Stage::new(self);
        // Nobody but the BBS does anything.
        stage.cells.clear();
        stage.until(self.time() + SETTLING)?;
        let begun = stage.tape.end();
        let answer = match asked {
            Asked::Change(change) => match no_command(change) {
                None => stage.carry_out(change).map(|()| None),
                Some(why) => Err(Refusal::new(Code::InvalidRequest, why).into()),
            },
            Asked::Command(domain, envelope, command) => {
                stage.asks_as_client(domain, (**envelope).clone(), (**command).clone()).map(Some)
            }
        };
        let answer = match answer {
            Ok(done) => Ok(done),
            Err(Failed::Refused(refusal)) => Err(refusal),
            Err(Failed::Unusable(unusable)) => return Err(unusable),
        };
        Ok(Decided { answer, entries: entries(&stage, begun) })
    }
}

/// The entries behind a position that hold what was asked.
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
