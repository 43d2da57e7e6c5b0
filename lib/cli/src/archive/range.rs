//! Ranges of the log, given as positions or as times that are looked up in the log.

use ::journal::Journal;
use cli_base::failure::Failure;
use explain::recorded::DecisionTimes;
use schemas::query::Moment;
use schemas::{Position, Timestamp};

use super::source::Pages;
use super::{export, unreadable};

/// Inclusive range of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) from: Position,
    pub(crate) to: Position,
}

impl Range {
    /// Returns the number of positions in the range.
    pub(crate) const fn len(self) -> u64 {
        (self.to.0 + 1).saturating_sub(self.from.0)
    }
}

/// Finds a range in a journal. It starts with the first entry decided at or after `from`, and ends before the
/// first entry decided later than `to`.
///
/// # Errors
/// The range is empty, or the journal cannot be read.
pub(crate) async fn find(
    journal: &Journal,
    from: Option<Moment>,
    to: Option<Moment>,
) -> Result<Range, Failure> {
    let end = journal.end().await.map_err(unreadable)?;
    if end == Position(0) {
        return Err(Failure::usage("the journal is empty"));
    }
    let first = match from {
        None => Position(1),
        Some(Moment::Position(position)) => check_in_log(position, end)?,
        Some(Moment::Time(time)) => {
            let first = first_at_or_after(journal, time, end).await?;
            first.ok_or_else(|| {
                Failure::usage(format!("no entry at {time} or later: the log ends at position {end}"))
            })?
        }
    };
    let last = match to {
        None => end,
        Some(Moment::Position(position)) => check_in_log(position, end)?,
        Some(Moment::Time(time)) => match first_after(journal, time, end).await? {
            None => end,
            Some(Position(1)) => {
                return Err(Failure::usage(format!(
                    "no entry at or before {time}: the first entry is later"
                )));
            }
            Some(later) => Position(later.0 - 1),
        },
    };
    if first > last {
        return Err(Failure::usage(format!("empty range: position {first} is after position {last}")));
    }
    Ok(Range { from: first, to: last })
}

fn check_in_log(position: Position, end: Position) -> Result<Position, Failure> {
    if position == Position(0) || position > end {
        let why = format!("invalid position {position}: expected 1 to {end}");
        return Err(Failure::usage(why));
    }
    Ok(position)
}

/// Returns the position of the first entry decided at or after a time. `None` if there is no such entry.
///
/// # Errors
/// The journal cannot be read.
pub(crate) async fn first_at_or_after(
    journal: &Journal,
    time: Timestamp,
    end: Position,
) -> Result<Option<Position>, Failure> {
    first_after(journal, Timestamp(time.0.saturating_sub(1)), end).await
}

/// Returns the decision time of the entry at a position. `None` if the position holds no entry.
///
/// # Errors
/// The journal cannot be read.
pub(crate) async fn time_at(journal: &Journal, position: Position) -> Result<Option<Timestamp>, Failure> {
    let mut times = DecisionTimes::new(export::open_reader(journal).await?);
    let mut pages = Pages::new(journal.clone(), Position(0), position);
    while let Some(next) = pages.next().await? {
        let at = times.next(next.position, &next.subject, &next.bytes);
        if next.position == position {
            return Ok(at);
        }
    }
    Ok(None)
}

/// Returns the position of the first entry decided later than a time. Times ascend within each subject but
/// not strictly across subjects, so the search is linear from the start.
async fn first_after(journal: &Journal, time: Timestamp, end: Position) -> Result<Option<Position>, Failure> {
    let mut times = DecisionTimes::new(export::open_reader(journal).await?);
    let mut pages = Pages::new(journal.clone(), Position(0), end);
    while let Some(next) = pages.next().await? {
        if times.next(next.position, &next.subject, &next.bytes).is_some_and(|at| at > time) {
            return Ok(Some(next.position));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use ::journal::{Memory, StoredEntry};
    use schemas::Decision;
    use schemas::cluster::{self, FORMAT};
    use schemas::entry::{Aggregate, Event};
    use schemas::names::{ClusterId, EntryId};
    use uuid::Uuid;

    use super::*;

    fn recorded(position: u64, subject: &str, bytes: Vec<u8>) -> StoredEntry {
        let entry = Some(EntryId(Uuid::from_u128(position.into())));
        StoredEntry { position: Position(position), subject: subject.into(), entry, bytes: bytes.into() }
    }

    /// Returns an entry on the cluster's subject, decided at a time.
    fn entry(position: u64, at: u64, event: cluster::Event) -> StoredEntry {
        let (id, events) = (Uuid::from_u128(position.into()), vec![Event::Cluster(event)]);
        let decision = Decision {
            version: position,
            ..fixtures::decision(id, Timestamp(at), Aggregate::Cluster, events)
        };
        recorded(position, "muster.event.cluster", fixtures::entry(decision).encode())
    }

    #[tokio::test]
    async fn range_ignores_times_in_quarantined_messages() {
        let founded = cluster::Event::Founded { id: ClusterId(Uuid::nil()), shards: 4, format: FORMAT };
        let switched = |enabled| cluster::Event::PreemptionSwitched { enabled };
        let says =
            |at: u64| serde_json::json!({"decisions": [{"at": Timestamp(at)}]}).to_string().into_bytes();
        let old = entry(1, 100, founded);
        let log = vec![
            old.clone(),
            recorded(2, "muster.event.cluster", says(900)),
            entry(3, 200, switched(true)),
            recorded(4, "muster.event.strange", says(900)),
            StoredEntry { position: Position(5), ..old },
            entry(6, 300, switched(false)),
        ];
        let journal = Journal::Memory(Memory::default());
        journal.import(log).await.unwrap();
        let between = async |from: u64, to: u64| {
            let moment = |at| Some(Moment::Time(Timestamp(at)));
            let found = find(&journal, moment(from), moment(to)).await.unwrap();
            (found.from.0, found.to.0)
        };
        assert_eq!(between(0, 150).await, (1, 2));
        assert_eq!(between(150, 250).await, (3, 5));
        assert_eq!(between(201, 950).await, (6, 6));
        assert_eq!(time_at(&journal, Position(3)).await.unwrap(), Some(Timestamp(200)));
        assert_eq!(time_at(&journal, Position(4)).await.unwrap(), None);
        assert!(find(&journal, Some(Moment::Time(Timestamp(301))), None).await.is_err());
    }
}
