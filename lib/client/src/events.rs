//! Events, followed from a position, without a gap and without a repetition.

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
use crate::limits::{PAUSE, POLL, POLL_ENTRIES, POLL_GRACE, SILENCE_WARNED};
use crate::subjects::Query;

/// Entries behind a position, as they come. A lost connection is waited for, and reading goes on where it stopped.
#[derive(Clone, Debug)]
pub struct Events {
    client: Client,
    about: Option<String>,
    /// Everything up to here was read; what of it is in `ready` was not given out yet.
    read: Position,
    /// Everything up to here was given out, or isn't asked for.
    given: Position,
    ready: VecDeque<RecordedEntry>,
    give_up: Option<Duration>,
}

impl Client {
    /// Follows what happens behind a position; 0 is from the beginning.
    #[must_use]
    pub fn events(&self, after: Position) -> Events {
        Events {
            client: self.clone(),
            about: None,
            read: after,
            given: after,
            ready: VecDeque::new(),
            give_up: None,
        }
    }

    /// Everything that happened behind a position until now, of one thing if `about` says so (see
    /// [`ReadEvents::about`]), and where the log ended.
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

    /// The same, of what happened until a position.
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
            let about = about.map(str::to_owned);
            let read = ReadEvents { after, limit: Some(POLL_ENTRIES), wait_ms: None, about };
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
    /// Only decisions about one thing: `lrp:GUID`, `task:GUID`, `cell:ID`, `domain:NAME` or `cluster`.
    #[must_use]
    pub fn about(self, about: impl Into<String>) -> Self {
        Self { about: Some(about.into()), ..self }
    }

    /// Gives up when nobody answers for this long. Otherwise it waits for ever.
    #[must_use]
    pub fn give_up_after(self, silence: Duration) -> Self {
        Self { give_up: Some(silence), ..self }
    }

    /// Everything up to this position was given out: a follower that starts here misses nothing.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.given
    }

    /// Leaves out what happened up to a position.
    pub fn skip_to(&mut self, position: Position) {
        self.ready.retain(|entry| entry.position > position);
        self.read = self.read.max(position);
        self.given = self.given.max(position);
    }

    /// The next entry; waits for it. Cancel-safe.
    ///
    /// # Errors
    /// A refusal, an answer that makes no sense, or a silence longer than the follower is set to bear.
    pub async fn next(&mut self) -> Result<RecordedEntry, Error> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                self.given = entry.position;
                return Ok(entry);
            }
            self.given = self.read;
            let page = self.poll().await?;
            self.take(page);
        }
    }

    /// The entries as a stream. It ends behind the first error.
    pub fn into_stream(self) -> impl Stream<Item = Result<RecordedEntry, Error>> + Send {
        futures::stream::unfold(Some(self), |events| async move {
            let mut events = events?;
            match events.next().await {
                Ok(entry) => Some((Ok(entry), Some(events))),
                Err(error) => Some((Err(error), None)),
            }
        })
    }

    fn take(&mut self, page: EventsPage) {
        for entry in page.entries {
            if entry.position > self.read {
                self.read = entry.position;
                self.ready.push_back(entry);
            }
        }
        self.read = self.read.max(page.next);
    }

    /// Reads behind `read`, again and again until somebody answers.
    async fn poll(&self) -> Result<EventsPage, Error> {
        let read = ReadEvents {
            after: self.read,
            limit: Some(POLL_ENTRIES),
            wait_ms: Some(u64::try_from(POLL.as_millis()).unwrap_or(u64::MAX)),
            about: self.about.clone(),
        };
        let question = Bytes::from(codec::encode(Form::Json, &read));
        let (mut silent, mut pause, mut warned) = (None, PAUSE.0, false);
        loop {
            let asked = Instant::now();
            let answer = self
                .client
                .line
                .ask_once(&self.client.query(Query::EventsRead), question.clone(), POLL + POLL_GRACE)
                .await;
            let error = match answer {
                Ok(page) if warned => {
                    tracing::info!("connected again; reading on behind position {}", self.read);
                    return Ok(page);
                }
                Ok(page) => {
                    self.breathe(&page, asked).await;
                    return Ok(page);
                }
                Err(error) if error.is_passing() => error,
                Err(error) => return Err(error),
            };
            let silence = silent.get_or_insert_with(Instant::now).elapsed();
            if self.give_up.is_some_and(|limit| silence + pause >= limit) {
                return Err(error);
            }
            if silence >= SILENCE_WARNED && !warned {
                tracing::warn!("{error}; waiting, to read on behind position {}", self.read);
                warned = true;
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Waits a moment if the answer brought nothing and came at once, as from a server that doesn't wait.
    async fn breathe(&self, page: &EventsPage, asked: Instant) {
        if page.entries.is_empty() && page.next <= self.read && asked.elapsed() < PAUSE.0 {
            sleep(PAUSE.0).await;
        }
    }
}
