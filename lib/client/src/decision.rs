//! Search for a decision by its id. An id contains the time of the decision, and times increase along the
//! log.

use std::time::Duration;

use schemas::names::DecisionId;
use schemas::query::{EventsPage, ReadEntry, ReadEvents, RecordedEntry};
use schemas::{Decision, Position, Timestamp};

use crate::client::Client;
use crate::error::Error;
use crate::limits::POLL_ENTRIES;

/// Periods to search before and after the time of the decision. Most decisions are found near this time.
const SEARCH_WINDOWS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// Number of entries that are read to find the time of one of them. Some may be unreadable.
const PROBE_ENTRIES: usize = 8;

impl Client {
    /// Returns the decision with this id and its position. Searches near the time of the decision first, and
    /// then the whole log.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn decision(&self, id: DecisionId) -> Result<Option<(Position, Decision)>, Error> {
        for around in SEARCH_WINDOWS {
            let first = self.position_before(id.made_at() - around).await?;
            if let Some(found) = self.decision_after(first, id.made_at() + around, id).await? {
                return Ok(Some(found));
            }
        }
        self.decision_after(Position(0), Timestamp(u64::MAX), id).await
    }

    /// Returns a position before all decisions that were made at `time` or later, as far as times increase
    /// along the log.
    async fn position_before(&self, time: Timestamp) -> Result<Position, Error> {
        let (mut from, mut to) = (0, self.entries_after(Position(0), 1).await?.end.0);
        while from < to {
            let middle = from.midpoint(to);
            let page = self.entries_after(Position(middle), PROBE_ENTRIES).await?;
            let first = page.entries.iter().find_map(|entry| Some((entry.position, decided_at(entry)?)));
            match first {
                Some((position, at)) if at < time => from = position.0,
                Some(_) | None => to = middle,
            }
        }
        Ok(Position(from))
    }

    /// Searches for a decision after a position, up to the first entry that was decided later than `until`.
    async fn decision_after(
        &self,
        mut after: Position,
        until: Timestamp,
        id: DecisionId,
    ) -> Result<Option<(Position, Decision)>, Error> {
        loop {
            let page = self.entries_after(after, POLL_ENTRIES).await?;
            let over = page.entries.iter().filter_map(decided_at).any(|at| at > until);
            for RecordedEntry { position, entry, .. } in page.entries {
                if let ReadEntry::Known(entry) = entry
                    && let Some(found) = entry.decisions.into_iter().find(|decision| decision.id == id)
                {
                    return Ok(Some((position, found)));
                }
            }
            if over || page.next <= after || page.next >= page.end {
                return Ok(None);
            }
            after = page.next;
        }
    }

    async fn entries_after(&self, after: Position, limit: usize) -> Result<EventsPage, Error> {
        self.read_events(&ReadEvents { after, limit: Some(limit), wait_ms: None, target: None }).await
    }
}

/// Returns the time of the first decision of an entry. `None` if the entry cannot be read.
fn decided_at(entry: &RecordedEntry) -> Option<Timestamp> {
    match &entry.entry {
        ReadEntry::Known(entry) => entry.decisions.first().map(|decision| decision.at),
        ReadEntry::Unknown { .. } => None,
    }
}
