//! Reads the recorded log as a whole, as input for simulations. Writes nothing, and queries no BBS.

use std::time::Duration;

use ::journal::JournalError;
use cli_base::failure::Failure;
use cli_base::moment;
use cli_base::options::Global;
use projections::cluster_log::QuarantinedPositions;
use projections::{ClusterLog, Reader};
use runtime::exit::Exit;
use scenario::{Message, Recording, Unusable};
use schemas::Position;
use schemas::query::{AsOf, Moment};
use text::chain;

use super::journal_access::read_journal;
use crate::archive::export::note_quarantined;
use crate::archive::range::DecisionTimes;

/// Number of entries per read.
const PAGE_LEN: usize = 5_000;
/// Maximum wait for entries that the journal reports but does not return.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Interval between reads during this wait.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Reads all entries of the journal.
///
/// # Errors
/// The journal does not exist or cannot be read.
pub async fn read(global: &Global) -> Result<Vec<Message>, Failure> {
    let journal = read_journal(global).await?;
    let end = journal.end().await.map_err(failed)?;
    let mut messages: Vec<Message> = vec![];
    let mut waited = Duration::ZERO;
    while (messages.len() as u64) < end.0 {
        let page = journal.read(Position(messages.len() as u64), None, PAGE_LEN).await.map_err(failed)?;
        if page.is_empty() {
            if waited >= MAX_WAIT {
                let why = format!(
                    "the journal ends at position {end}, but returned nothing after {}",
                    messages.len()
                );
                return Err(Failure::new(Exit::Failed, "Journal", why));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
            waited += POLL_INTERVAL;
        }
        for recorded in page {
            let next = Position(messages.len() as u64 + 1);
            if recorded.position != next {
                let why = format!("the journal returned position {} instead of {next}", recorded.position);
                return Err(Failure::new(Exit::Failed, "Journal", why));
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
pub(crate) fn position(messages: &[Message], as_of: Option<AsOf>) -> Result<Position, Failure> {
    let end = Position(messages.len() as u64);
    let time = match as_of.map(moment::resolve).transpose()? {
        None => return Ok(end),
        Some(Moment::Position(position)) if position > end => {
            return Err(unusable_failure(Unusable::Beyond { position, end }));
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
        return Err(Failure::usage(format!("the log starts after {time}")));
    }
    Ok(Position(first as u64))
}

/// Returns the quarantined positions.
fn quarantined(messages: &[Message]) -> QuarantinedPositions {
    let mut log = ClusterLog::default();
    for (position, message) in (1..).zip(messages) {
        note_quarantined(&mut log, &message.subject, Position(position), &message.bytes);
    }
    log.quarantined().clone()
}

/// Folds a log up to a moment, so that a simulation can continue from there.
///
/// # Errors
/// Fails like `position`, and if the log contains an entry that cannot be decoded or applied.
pub fn recording(
    messages: Vec<Message>,
    as_of: Option<AsOf>,
    mass_loss_wait: Duration,
) -> Result<Recording, Failure> {
    let until = position(&messages, as_of)?;
    Recording::read(messages, Some(until), mass_loss_wait).map_err(unusable_failure)
}

/// Returns the failure of a command that can't continue a log.
#[must_use]
pub fn unusable_failure(unusable: Unusable) -> Failure {
    let message = unusable.to_string();
    match unusable {
        Unusable::Beyond { .. } => Failure::usage(message),
        Unusable::Halted(_) => Failure::new(Exit::Failed, "Journal", message)
            .advise("this program and the cluster have different versions: use the same version"),
        Unusable::Restless(_) => {
            Failure::new(Exit::Failed, "Restless", message).advise("limit the simulated time: --for 10m")
        }
    }
}

fn failed(error: JournalError) -> Failure {
    Failure::new(Exit::Failed, "Journal", chain(&error))
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
