//! Finding a decision by its name alone: a name begins with the time at which it was made, and times go up along the log.

use std::time::Duration;

use schemas::names::DecisionId;
use schemas::query::{EventsPage, ReadEntry, ReadEvents, RecordedEntry};
use schemas::{Decision, Position, Timestamp};

use crate::client::Client;
use crate::error::Error;
use crate::limits::POLL_ENTRIES;

/// How far an entry may stand from where the log stood when a decision in it was made: most stand near.
const AROUND: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// Entries that are read to see when one of them was decided: some may be none.
const FEW: usize = 8;

impl Client {
    /// The decision of this name, and where it stands. It is looked for where the log stood when it was made, and where it
    /// isn't there, everywhere.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn decision(&self, id: DecisionId) -> Result<Option<(Position, Decision)>, Error> {
        for around in AROUND {
            let first = self.position_before(id.made_at() - around).await?;
            if let Some(found) = self.decision_behind(first, id.made_at() + around, id).await? {
                return Ok(Some(found));
            }
        }
        self.decision_behind(Position(0), Timestamp(u64::MAX), id).await
    }

    /// A position behind which everything is that was decided at a time or later, as far as times go up along the log.
    async fn position_before(&self, time: Timestamp) -> Result<Position, Error> {
        let (mut from, mut to) = (0, self.entries_behind(Position(0), 1).await?.end.0);
        while from < to {
            let middle = from.midpoint(to);
            let page = self.entries_behind(Position(middle), FEW).await?;
            let first = page.entries.iter().find_map(|entry| Some((entry.position, decided_at(entry)?)));
            match first {
                Some((position, at)) if at < time => from = position.0,
                Some(_) | None => to = middle,
            }
        }
        Ok(Position(from))
    }

    /// Looks for a decision behind a position, up to the first entry that was decided later than a time.
    async fn decision_behind(
        &self,
        mut after: Position,
        until: Timestamp,
        id: DecisionId,
    ) -> Result<Option<(Position, Decision)>, Error> {
        loop {
            let page = self.entries_behind(after, POLL_ENTRIES).await?;
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

    async fn entries_behind(&self, after: Position, limit: usize) -> Result<EventsPage, Error> {
        self.read_events(&ReadEvents { after, limit: Some(limit), wait_ms: None, about: None }).await
    }
}

/// When the first decision of an entry was made.
fn decided_at(entry: &RecordedEntry) -> Option<Timestamp> {
    match &entry.entry {
        ReadEntry::Known(entry) => entry.decisions.first().map(|decision| decision.at),
        ReadEntry::Unknown { .. } => None,
    }
}
