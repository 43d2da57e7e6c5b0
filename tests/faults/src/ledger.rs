//! Ledger of the clients: every command with its outcome.

use std::time::Duration;

use client::Error;
use parking_lot::Mutex;
use schemas::message::Ack;
use schemas::{Code, Position};
use tokio::time::Instant;

/// Outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command is in the log, and the client received its answer.
    Acknowledged(Position),
    /// The command was refused and had no effect.
    Refused(Code),
    /// No answer arrived before the client gave up.
    Unknown(String),
}

/// Command of a client, with its outcome.
#[derive(Clone, Debug)]
pub struct Record {
    pub request: String,
    /// Command and target, such as `lrp scale scaled`.
    pub what: String,
    /// Time of the first attempt.
    pub sent_at: Instant,
    /// Time of the answer, or the time at which the client gave up.
    pub answered_at: Instant,
    pub outcome: Outcome,
}

impl Record {
    /// Returns the time that the client waited.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.answered_at - self.sent_at
    }
}

/// Commands with their outcomes, in the order of their answers.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Vec<Record>>);

impl Ledger {
    /// Records the outcome of a command.
    pub fn record(&self, request: String, what: String, sent_at: Instant, answer: &Result<Ack, Error>) {
        let outcome = match answer {
            Ok(done) => Outcome::Acknowledged(done.position),
            Err(Error::Refused(refusal)) => Outcome::Refused(refusal.code),
            Err(
                error @ (Error::Unreachable(_)
                | Error::TimedOut { .. }
                | Error::Protocol { .. }
                | Error::Setup { .. }),
            ) => Outcome::Unknown(error.to_string()),
        };
        let record = Record { request, what, sent_at, answered_at: Instant::now(), outcome };
        self.0.lock().push(record);
    }

    /// Returns the number of commands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Returns the number of acknowledged commands.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        let is_done = |record: &&Record| matches!(record.outcome, Outcome::Acknowledged(_));
        self.0.lock().iter().filter(is_done).count()
    }

    /// Returns `true` if no command has been recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Returns all records except the first `first` ones.
    #[must_use]
    pub fn after(&self, first: usize) -> Vec<Record> {
        self.0.lock().get(first..).unwrap_or_default().to_vec()
    }
}
