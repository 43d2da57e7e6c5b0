//! The recorded log as a whole, for what goes on from it here. Nothing is written, and no BBS is asked.

use std::time::Duration;

use ::journal::JournalError;
use schemas::query::{AsOf, Moment};
use schemas::{Entry, Position};
use simulation::recorded::{Message, Recording, Unusable};

use super::args::Global;
use super::direct::read_journal;
use super::failure::{Exit, Failure};
use super::moment;
use crate::error::chain;

/// So many entries are read at a time.
const PAGE: usize = 5_000;
/// How long is waited for entries that the journal says it has, and doesn't give.
const PATIENCE: Duration = Duration::from_secs(10);
/// How soon is asked for them again.
const AGAIN: Duration = Duration::from_millis(100);

/// Reads all that the journal holds.
///
/// # Errors
/// There is none, or it can't be read.
pub(crate) async fn read(global: &Global) -> Result<Vec<Message>, Failure> {
    let journal = read_journal(global).await?;
    let end = journal.end().await.map_err(failed)?;
    let mut messages: Vec<Message> = vec![];
    let mut waited = Duration::ZERO;
    while (messages.len() as u64) < end.0 {
        let page = journal.read(Position(messages.len() as u64), None, PAGE).await.map_err(failed)?;
        if page.is_empty() {
            if waited >= PATIENCE {
                let why =
                    format!("the journal ends at position {end}, and gives nothing after {}", messages.len());
                return Err(Failure::new(Exit::Failed, "Journal", why));
            }
            tokio::time::sleep(AGAIN).await;
            waited += AGAIN;
        }
        for recorded in page {
            let next = Position(messages.len() as u64 + 1);
            if recorded.position != next {
                let why = format!("the journal gives position {} where {next} stands", recorded.position);
                return Err(Failure::new(Exit::Failed, "Journal", why));
            }
            let (subject, entry, bytes) = (recorded.subject, recorded.entry, recorded.bytes);
            messages.push(Message { subject, entry, bytes });
        }
    }
    journal.close().await;
    Ok(messages)
}

/// The position of a moment; none: the end.
///
/// # Errors
/// The log ends before it, or begins after it.
pub(crate) fn position(messages: &[Message], as_of: Option<AsOf>) -> Result<Position, Failure> {
    let end = Position(messages.len() as u64);
    let time = match as_of.map(moment::settled).transpose()? {
        None => return Ok(end),
        Some(Moment::Position(position)) if position > end => {
            return Err(Unusable::Beyond { position, end }.into());
        }
        Some(Moment::Position(position)) => return Ok(position),
        Some(Moment::Time(time)) => time,
    };
    let later = |message: &Message| {
        let entry = Entry::decode(&message.bytes).ok()?;
        entry.decisions.last().map(|last| last.at > time)
    };
    let first = messages.iter().position(|message| later(message) == Some(true)).unwrap_or(messages.len());
    if first == 0 {
        return Err(Failure::usage(format!("the log begins after {time}")));
    }
    Ok(Position(first as u64))
}

/// Folds a log up to a moment, to go on from there.
///
/// # Errors
/// As [`position`], or what of it can't be understood.
pub(crate) fn recording(
    messages: Vec<Message>,
    as_of: Option<AsOf>,
    mass_loss_wait: Duration,
) -> Result<Recording, Failure> {
    let until = position(&messages, as_of)?;
    Ok(Recording::read(messages, Some(until), mass_loss_wait)?)
}

impl From<Unusable> for Failure {
    fn from(unusable: Unusable) -> Self {
        let message = unusable.to_string();
        match unusable {
            Unusable::Beyond { .. } => Self::usage(message),
            Unusable::Halted(_) => Self::new(Exit::Failed, "Journal", message)
                .advise("this program and the cluster are of different versions: use the same"),
            Unusable::Restless(_) => Self::new(Exit::Failed, "Restless", message)
                .advise("give a time that it shall run: --for 10m"),
        }
    }
}

fn failed(error: JournalError) -> Failure {
    Failure::new(Exit::Failed, "Journal", chain(&error))
}
