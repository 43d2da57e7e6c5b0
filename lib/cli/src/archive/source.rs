//! Sequential reader of the messages in a journal.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ::journal::{Journal, StoredEntry};
use cli_base::failure::Failure;
use schemas::Position;

use super::{failed, unreadable};

/// Number of messages per read.
const PAGE_SIZE: usize = 1_000;
/// Maximum time to wait for a replica that lags behind the journal's leader, and the interval between two
/// reads.
const REPLICA_WAIT: (Duration, Duration) = (Duration::from_secs(15), Duration::from_millis(50));

/// Reader of the messages after a position. The reader stops at the position that was the end of the journal
/// when the reader was created. The reader skips gaps. Callers that must detect gaps compare positions.
#[derive(Debug)]
pub(crate) struct Pages {
    journal: Journal,
    after: Position,
    end: Position,
    page: VecDeque<StoredEntry>,
    /// `true` if the reader may stop before `end`, so that the caller can report missing messages.
    allows_missing_end: bool,
}

impl Pages {
    /// Creates a reader that starts after a position. The reader fails if the last messages are missing.
    pub(crate) const fn new(journal: Journal, after: Position, end: Position) -> Self {
        Self { journal, after, end, page: VecDeque::new(), allows_missing_end: false }
    }

    /// Creates a reader for callers that report missing messages themselves: the reader stops early if the
    /// last messages are missing.
    pub(crate) const fn until_available_end(journal: Journal, after: Position, end: Position) -> Self {
        Self { journal, after, end, page: VecDeque::new(), allows_missing_end: true }
    }

    /// Returns the next message. `None` after the last message.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub(crate) async fn next(&mut self) -> Result<Option<StoredEntry>, Failure> {
        if self.page.is_empty() && self.after < self.end {
            self.page = self.read().await?.into();
        }
        let next = self.page.pop_front().filter(|one| one.position <= self.end);
        match &next {
            Some(next) => self.after = next.position,
            None => self.after = self.end,
        }
        Ok(next)
    }

    async fn read(&self) -> Result<Vec<StoredEntry>, Failure> {
        let begin = Instant::now();
        loop {
            let page = self.journal.read(self.after, None, PAGE_SIZE).await.map_err(unreadable)?;
            if !page.is_empty() {
                return Ok(page);
            }
            if !self.allows_missing_end {
                self.journal.check_position(Position(self.after.0 + 1)).await.map_err(unreadable)?;
            }
            if begin.elapsed() > REPLICA_WAIT.0 && self.allows_missing_end {
                return Ok(vec![]);
            }
            if begin.elapsed() > REPLICA_WAIT.0 {
                return Err(failed(format!(
                    "the journal ends at position {}, but no entry can be read after position {}",
                    self.end, self.after
                )));
            }
            tokio::time::sleep(REPLICA_WAIT.1).await;
        }
    }
}
