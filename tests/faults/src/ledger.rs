//! The clients' record: every command that was asked, and what came of it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use client::Error;
use schemas::message::Done;
use schemas::{Code, Position};
use tokio::time::Instant;

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the log, the client was told.
    Acknowledged(Position),
    /// It was refused, and did nothing.
    Refused(Code),
    /// Nobody answered for as long as the client had patience.
    Unknown(String),
}

/// A command that was asked.
#[derive(Clone, Debug)]
pub struct Record {
    /// The request token that it carried.
    pub request: String,
    /// What was asked, of whom: `lrp scale scaled`.
    pub what: String,
    /// When it was asked first.
    pub asked: Instant,
    /// When it was answered or given up.
    pub answered: Instant,
    /// What came of it.
    pub outcome: Outcome,
}

impl Record {
    /// How long its client waited.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.answered - self.asked
    }
}

/// Every command that was asked, in the order in which they were answered.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Vec<Record>>);

impl Ledger {
    /// Writes down what came of a command.
    pub fn note(&self, request: String, what: String, asked: Instant, answer: &Result<Done, Error>) {
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
        let record = Record { request, what, asked, answered: Instant::now(), outcome };
        self.lock().push(record);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// How many were acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        let is_done = |record: &&Record| matches!(record.outcome, Outcome::Acknowledged(_));
        self.lock().iter().filter(is_done).count()
    }

    /// Whether nothing was asked yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Those behind the first so many.
    #[must_use]
    pub fn behind(&self, first: usize) -> Vec<Record> {
        self.lock().get(first..).unwrap_or_default().to_vec()
    }

    /// Nothing panics half-way while it is held.
    fn lock(&self) -> MutexGuard<'_, Vec<Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
