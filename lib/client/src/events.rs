//! Events after a position, without gaps or duplicates.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use schemas::Position;
use schemas::codec::{self, Form};
use schemas::query::{EventsPage, ReadEvents, RecordedEntry};
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::error::Error;
use crate::limits::{POLL_ENTRIES, POLL_GRACE, POLL_WAIT, RETRY_DELAY, SILENCE_WARNING};
use crate::subjects::Query;

/// Follower of the entries after a position. After a lost connection, the follower waits and continues at the
/// same position.
#[derive(Clone, Debug)]
pub struct Events {
    client: Client,
    target: Option<String>,
    /// Position of the last entry that was read. Entries in `ready` have been read but not returned.
    read_position: Position,
    /// Position of the last entry that was returned or skipped.
    returned_position: Position,
    ready: VecDeque<RecordedEntry>,
    silence_limit: Option<Duration>,
}

impl Client {
    /// Follows the entries after a position. Position 0 starts at the beginning.
    #[must_use]
    pub fn events(&self, after: Position) -> Events {
        Events {
            client: self.clone(),
            target: None,
            read_position: after,
            returned_position: after,
            ready: VecDeque::new(),
            silence_limit: None,
        }
    }

    /// Returns the current entries after a position, and the end of the log. The call does not wait for new
    /// entries. `about` selects the entries about one aggregate (see [`ReadEvents::target`]).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn history(
        &self,
        after: Position,
        about: Option<&str>,
    ) -> Result<(Vec<RecordedEntry>, Position), Error> {
        self.history_until(after, Position(u64::MAX), about).await
    }

    /// Returns the same as [`Client::history`], but only the entries up to a position.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn history_until(
        &self,
        after: Position,
        until: Position,
        about: Option<&str>,
    ) -> Result<(Vec<RecordedEntry>, Position), Error> {
        let (mut entries, mut after) = (vec![], after);
        loop {
            let target = about.map(str::to_owned);
            let read = ReadEvents { after, limit: Some(POLL_ENTRIES), wait_ms: None, target };
            let page = self.read_events(&read).await?;
            let asked = |entry: &RecordedEntry| entry.position > after && entry.position <= until;
            entries.extend(page.entries.into_iter().filter(asked));
            if page.next <= after || page.next >= page.end.min(until) {
                return Ok((entries, page.end));
            }
            after = page.next;
        }
    }
}

impl Events {
    /// Selects the decisions about one aggregate: `lrp:GUID`, `task:GUID`, `cell:ID`, `domain:NAME` or
    /// `cluster`.
    #[must_use]
    pub fn for_target(self, about: impl Into<String>) -> Self {
        Self { target: Some(about.into()), ..self }
    }

    /// Sets a timeout. The follower returns an error after this time without an answer. Default: no timeout.
    #[must_use]
    pub fn give_up_after(self, silence: Duration) -> Self {
        Self { silence_limit: Some(silence), ..self }
    }

    /// Returns the position of the last returned entry. A follower that starts at this position misses no
    /// entry.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.returned_position
    }

    /// Skips the entries up to a position.
    pub fn skip_to(&mut self, position: Position) {
        self.ready.retain(|entry| entry.position > position);
        self.read_position = self.read_position.max(position);
        self.returned_position = self.returned_position.max(position);
    }

    /// Waits for the next entry and returns it. This method is cancel safe.
    ///
    /// # Errors
    /// Returns an error for a refusal, for an invalid answer, or after the timeout of
    /// [`Events::give_up_after`].
    pub async fn next(&mut self) -> Result<RecordedEntry, Error> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                self.returned_position = entry.position;
                return Ok(entry);
            }
            self.returned_position = self.read_position;
            let page = self.poll().await?;
            self.buffer_page(page);
        }
    }

    /// Converts the follower into a stream of entries. The stream ends after the first error.
    pub fn into_stream(self) -> impl Stream<Item = Result<RecordedEntry, Error>> + Send {
        futures::stream::unfold(Some(self), |events| async move {
            let mut events = events?;
            match events.next().await {
                Ok(entry) => Some((Ok(entry), Some(events))),
                Err(error) => Some((Err(error), None)),
            }
        })
    }

    fn buffer_page(&mut self, page: EventsPage) {
        for entry in page.entries {
            if entry.position > self.read_position {
                self.read_position = entry.position;
                self.ready.push_back(entry);
            }
        }
        self.read_position = self.read_position.max(page.next);
    }

    /// Requests entries after `read_position`, again and again until an answer arrives.
    async fn poll(&self) -> Result<EventsPage, Error> {
        let read = ReadEvents {
            after: self.read_position,
            limit: Some(POLL_ENTRIES),
            wait_ms: Some(u64::try_from(POLL_WAIT.as_millis()).unwrap_or(u64::MAX)),
            target: self.target.clone(),
        };
        let question = Bytes::from(codec::encode(Form::Json, &read));
        let (mut silent, mut pause, mut warned) = (None, RETRY_DELAY.0, false);
        loop {
            let asked = Instant::now();
            let answer = self
                .client
                .line
                .request_once(
                    &self.client.query_subject(Query::EventsRead),
                    question.clone(),
                    POLL_WAIT + POLL_GRACE,
                )
                .await;
            let error = match answer {
                Ok(page) if warned => {
                    tracing::info!("reconnected; continuing after position {}", self.read_position);
                    return Ok(page);
                }
                Ok(page) => {
                    self.pause_if_empty(&page, asked).await;
                    return Ok(page);
                }
                Err(error) if error.is_transient() => error,
                Err(error) => return Err(error),
            };
            let silence = silent.get_or_insert_with(Instant::now).elapsed();
            if self.silence_limit.is_some_and(|limit| silence + pause >= limit) {
                return Err(error);
            }
            if silence >= SILENCE_WARNING && !warned {
                tracing::warn!("{error}; waiting to continue after position {}", self.read_position);
                warned = true;
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_DELAY.1);
        }
    }

    /// Waits a moment if the answer is empty and came immediately. Such an answer comes from a server that
    /// does not wait for entries.
    async fn pause_if_empty(&self, page: &EventsPage, asked: Instant) {
        if page.entries.is_empty() && page.next <= self.read_position && asked.elapsed() < RETRY_DELAY.0 {
            sleep(RETRY_DELAY.0).await;
        }
    }
}
