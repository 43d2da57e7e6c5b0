//! The recorded log as a whole, as input for simulations. Nothing is written, and no BBS is queried.

use std::time::Duration;

use audit::export::last_decision_time;
use journal::Journal;
use projections::cluster_log::QuarantinedPositions;
use projections::reader::ReadMessage;
use projections::{ClusterLog, Reader};
use scenario::{Message, Recording, Unusable};
use schemas::query::{AsOf, Moment};
use schemas::subject::Subject;
use schemas::{Position, Timestamp};

use crate::Error;

/// Number of entries per read.
const PAGE_LEN: usize = 5_000;
/// Maximum wait for entries that the journal reports but does not return.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Interval between reads during this wait.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Reads all entries of the journal.
///
/// # Errors
/// The journal cannot be read.
pub async fn read(journal: Journal) -> Result<Vec<Message>, Error> {
    let end = journal.end().await?;
    let mut messages: Vec<Message> = vec![];
    let mut waited = Duration::ZERO;
    while (messages.len() as u64) < end.0 {
        let page = journal.read(Position(messages.len() as u64), None, PAGE_LEN).await?;
        if page.is_empty() {
            if waited >= MAX_WAIT {
                let why = format!(
                    "the journal ends at position {end}, but returned nothing after {}",
                    messages.len()
                );
                return Err(Error::IncompleteJournal(why));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
            waited += POLL_INTERVAL;
        }
        for recorded in page {
            let next = Position(messages.len() as u64 + 1);
            if recorded.position != next {
                let why = format!("the journal returned position {} instead of {next}", recorded.position);
                return Err(Error::IncompleteJournal(why));
            }
            let (subject, entry, bytes) = (recorded.subject, recorded.entry, recorded.bytes);
            messages.push(Message { subject, entry, bytes });
        }
    }
    journal.close().await;
    Ok(messages)
}

/// Returns the position of a moment. Without a moment, returns the end of the log.
///
/// # Errors
/// The log ends before the moment, or starts after it.
pub fn position(messages: &[Message], as_of: Option<AsOf>) -> Result<Position, Error> {
    let end = Position(messages.len() as u64);
    let time = match as_of.map(resolve).transpose()? {
        None => return Ok(end),
        Some(Moment::Position(position)) if position > end => {
            return Err(Unusable::Beyond { position, end }.into());
        }
        Some(Moment::Position(position)) => return Ok(position),
        Some(Moment::Time(time)) => time,
    };
    let mut times = DecisionTimes::new(Reader::with_quarantines(quarantined(messages)));
    let mut later = |(position, message): (u64, &Message)| {
        let at = times.next(Position(position), &message.subject, &message.bytes);
        at.is_some_and(|at| at > time)
    };
    let first = (1..).zip(messages).position(&mut later).unwrap_or(messages.len());
    if first == 0 {
        return Err(Error::Invalid(format!("the log starts after {time}")));
    }
    Ok(Position(first as u64))
}

/// Resolves a moment for a log that this process reads itself.
///
/// # Errors
/// The moment is in the future.
fn resolve(as_of: AsOf) -> Result<Moment, Error> {
    as_of.moment(clock::now()).map_err(|refusal| {
        let problem = refusal.fields.into_iter().next().map(|field| field.problem);
        Error::Invalid(problem.unwrap_or(refusal.message))
    })
}

/// Returns the quarantined positions.
fn quarantined(messages: &[Message]) -> QuarantinedPositions {
    let mut log = ClusterLog::default();
    for (position, message) in (1..).zip(messages) {
        note_quarantined(&mut log, &message.subject, Position(position), &message.bytes);
    }
    log.quarantined().clone()
}

/// Reads a message on the cluster's subject, and adds the positions that it quarantines to `log`. Messages on
/// other subjects are ignored.
pub fn note_quarantined(log: &mut ClusterLog, subject: &str, position: Position, bytes: &[u8]) {
    if subject == Subject::Cluster.to_string() {
        log.read(position, bytes);
    }
}

/// Folds a log up to a moment, so that a simulation can continue from there.
///
/// # Errors
/// Fails like `position`, and if the log contains an entry that cannot be decoded or applied.
pub fn recording(
    messages: Vec<Message>,
    as_of: Option<AsOf>,
    mass_loss_wait: Duration,
) -> Result<Recording, Error> {
    let until = position(&messages, as_of)?;
    Ok(Recording::read(messages, Some(until), mass_loss_wait)?)
}

/// Decision times of entries, read in order from the start of the log. A quarantined message has no
/// time, even if it contains one.
pub struct DecisionTimes(Reader);

impl DecisionTimes {
    /// Creates the reader of times from a reader that knows the quarantined positions.
    #[must_use]
    pub const fn new(reader: Reader) -> Self {
        Self(reader)
    }

    /// Returns the time of the last decision in the next message. `None` if the message holds no entry.
    pub fn next(&mut self, position: Position, subject: &str, bytes: &[u8]) -> Option<Timestamp> {
        match self.0.read(position, subject, bytes) {
            Ok(ReadMessage::Entry(entry)) => entry.decisions.iter().map(|decision| decision.at).max(),
            Ok(ReadMessage::Quarantined(_)) => None,
            // A newer program version wrote this entry. The field with the decision time has the same format
            // as in this version.
            Err(_) => last_decision_time(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use schemas::Timestamp;
    use schemas::cluster::{self, FORMAT};
    use schemas::entry::{Aggregate, Event};
    use schemas::names::ClusterId;
    use uuid::Uuid;

    use super::*;

    /// Creates an entry about the cluster on the given subject.
    fn message(subject: &str, at: u64, event: cluster::Event) -> Message {
        let (id, events) = (Uuid::from_u128(at.into()), vec![Event::Cluster(event)]);
        let entry = fixtures::entry(fixtures::decision(id, Timestamp(at), Aggregate::Cluster, events));
        Message { subject: subject.into(), entry: Some(entry.id), bytes: entry.encode().into() }
    }

    #[test]
    fn message_on_wrong_subject_is_ignored_when_resolving_time() {
        let founded = cluster::Event::Founded { id: ClusterId(Uuid::nil()), shards: 4, format: FORMAT };
        let switched = |on| cluster::Event::PreemptionSwitched { enabled: on };
        let log = [
            message("muster.event.cluster", 100, founded),
            // Not an entry: the subject does not match.
            message("muster.event.cell.c1", 900, switched(true)),
            message("muster.event.cluster", 200, switched(true)),
            message("muster.event.cluster", 300, switched(false)),
        ];
        let at = |time| position(&log, Some(AsOf::Time(Timestamp(time))));
        assert_eq!([at(150), at(200), at(950)].map(Result::unwrap), [2, 3, 4].map(Position));
        assert!(at(99).is_err());
    }
}
