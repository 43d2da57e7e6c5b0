//! Messages one after the other, of a journal or of an export.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ::journal::{Journal, Recorded};
use schemas::Position;

use super::{failed, unreadable};
use crate::cli::failure::Failure;

/// How many messages are read at once.
const PAGE: usize = 1_000;
/// How long a replica may be behind what the journal's leader said, and how often is looked.
const BEHIND: (Duration, Duration) = (Duration::from_secs(15), Duration::from_millis(50));

/// The messages of a journal behind a position, up to where it ended when this was asked. Gaps are passed over: whoever
/// minds looks at the positions.
#[derive(Debug)]
pub(crate) struct Pages {
    journal: Journal,
    after: Position,
    end: Position,
    page: VecDeque<Recorded>,
    /// Whether it is for whoever reads to end before the end.
    may_end: bool,
}

impl Pages {
    /// Begins behind a position.
    pub(crate) const fn new(journal: Journal, after: Position, end: Position) -> Self {
        Self { journal, after, end, page: VecDeque::new(), may_end: false }
    }

    /// The same for whoever says what is missing: where the last messages are gone, it ends before them.
    pub(crate) const fn as_far_as_there_is(journal: Journal, after: Position, end: Position) -> Self {
        Self { journal, after, end, page: VecDeque::new(), may_end: true }
    }

    /// The next message; none: that was the last.
    ///
    /// # Errors
    /// The journal can't be read.
    pub(crate) async fn next(&mut self) -> Result<Option<Recorded>, Failure> {
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

    async fn read(&self) -> Result<Vec<Recorded>, Failure> {
        let begin = Instant::now();
        loop {
            let page = self.journal.read(self.after, None, PAGE).await.map_err(unreadable)?;
            if !page.is_empty() {
                return Ok(page);
            }
            if !self.may_end {
                self.journal.check_position(Position(self.after.0 + 1)).await.map_err(unreadable)?;
            }
            if begin.elapsed() > BEHIND.0 && self.may_end {
                return Ok(vec![]);
            }
            if begin.elapsed() > BEHIND.0 {
                return Err(failed(format!(
                    "the journal ends at position {}, and nothing comes behind position {}",
                    self.end, self.after
                )));
            }
            tokio::time::sleep(BEHIND.1).await;
        }
    }
}
