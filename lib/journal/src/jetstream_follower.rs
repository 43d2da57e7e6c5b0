//! Following a stream with one unfiltered pull consumer that starts at a known position. The consumer is
//! replaced whenever something is unexpected.
//!
//! A restart of the server loses such a consumer. The server may also deliver messages to a connection that
//! no longer exists. The follower therefore checks every message against the consumer's own sequence. The
//! follower replaces a consumer that falls silent, skips a message, or loses its connection. The new consumer
//! starts after the last delivered entry.

use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use futures::{FutureExt, StreamExt};
use schemas::Position;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::jetstream::{Delivered, JetStream, entry_id};
use super::{JournalError, StoredEntry};
use crate::limits::{
    API_TIMEOUT, CONSUMER_IDLE_TIMEOUT, FOLLOW_BEHIND_TIMEOUT, FOLLOW_FAILURE_TIMEOUT, FOLLOW_HEARTBEAT,
    FOLLOW_RETRY, FOLLOW_WATCHDOG, PULL_BYTES, PULL_ENTRIES,
};

pub(super) struct Follower {
    journal: JetStream,
    pub(super) after: Position,
    /// The last delivered entry.
    delivered: Option<Delivered>,
    feed: Option<Feed>,
    /// Delay before the next attempt.
    wait: Duration,
    /// Time at which the journal was first found to end before `after`; `None` if the journal reaches
    /// `after`.
    behind: Option<Instant>,
    /// Time of the last delivery, or of the last comparison with the end of the journal. This time is kept
    /// across calls, because a caller may stop waiting at any time.
    compared: Instant,
    /// Time of the first failed attempt since the last successful one; `None` if the last attempt succeeded.
    failing: Option<Instant>,
}

/// The message stream of a consumer.
struct Feed {
    messages: pull::Stream,
    /// Consumer sequence of the last message.
    delivered: u64,
    /// Number of connections made so far; changes after a reconnect.
    made: watch::Receiver<u64>,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let connected = self.feed.is_some();
        f.debug_struct("Follower").field("after", &self.after).field("connected", &connected).finish()
    }
}

impl Follower {
    pub(super) fn new(journal: JetStream, after: Position) -> Self {
        let compared = Instant::now();
        let wait = FOLLOW_RETRY.0;
        Self { journal, after, delivered: None, feed: None, wait, behind: None, compared, failing: None }
    }

    pub(super) async fn next_batch(&mut self, max: usize) -> Result<Vec<StoredEntry>, JournalError> {
        let closing = self.journal.closing().clone();
        tokio::select! {
            biased;
            () = closing.cancelled() => Err(JournalError::Closed),
            batch = self.next_with_retries(max) => batch,
        }
    }

    /// Retries until there are entries, or until an error occurs that a retry does not fix.
    async fn next_with_retries(&mut self, max: usize) -> Result<Vec<StoredEntry>, JournalError> {
        loop {
            match self.try_next(max).await {
                Ok(entries) if entries.is_empty() => self.record_success(),
                Ok(entries) => {
                    self.record_success();
                    self.wait = FOLLOW_RETRY.0;
                    return Ok(entries);
                }
                Err(JournalError::Unavailable { what, source }) => {
                    let source = source.map(|source| format!(": {source}")).unwrap_or_default();
                    self.record_failure(&format!("{what}{source}"));
                    self.feed = None;
                    sleep(self.wait).await;
                    self.wait = (self.wait * 2).min(FOLLOW_RETRY.1);
                }
                Err(
                    error @ (JournalError::Absent
                    | JournalError::Refused(_)
                    | JournalError::Damaged(_)
                    | JournalError::Closed),
                ) => {
                    return Err(error);
                }
            }
        }
    }

    /// Records that the journal can be read.
    fn record_success(&mut self) {
        self.failing = None;
        self.journal.set_unreadable(None);
    }

    /// Records a failed attempt. The first of several failures is logged as a warning. The journal counts as
    /// unreadable once all attempts have failed for [`FOLLOW_FAILURE_TIMEOUT`].
    fn record_failure(&mut self, why: &str) {
        let Some(since) = self.failing else {
            self.failing = Some(Instant::now());
            tracing::warn!(after = %self.after, "following the journal failed, retrying: {why}");
            return;
        };
        tracing::debug!(after = %self.after, "following the journal failed again: {why}");
        if since.elapsed() >= FOLLOW_FAILURE_TIMEOUT && self.journal.unreadable_reason().is_none() {
            self.journal.set_unreadable(Some(why.to_owned()));
        }
    }

    /// Waits for the next entries. Returns an empty list if nothing arrived for [`FOLLOW_WATCHDOG`] and the
    /// follower is at the end of the journal.
    async fn try_next(&mut self, max: usize) -> Result<Vec<StoredEntry>, JournalError> {
        if self.feed.is_none() {
            self.check_history().await?;
            self.feed = Some(self.start_consumer().await?);
            self.compared = Instant::now();
        }
        let Some(feed) = &mut self.feed else { return Ok(Vec::new()) };
        let Feed { messages, made, .. } = feed;
        let next = tokio::select! {
            biased;
            next = timeout_at(self.compared + FOLLOW_WATCHDOG, messages.next()) => next,
            Ok(()) = made.changed() => return Err(unavailable("the connection was lost")),
        };
        match next {
            Ok(Some(Ok(first))) => {
                self.compared = Instant::now();
                self.collect_available(first, max)
            }
            Ok(Some(Err(error))) => Err(JournalError::unavailable("the consumer failed", error)),
            Ok(None) => Err(unavailable("the consumer was closed")),
            Err(_) => self.compare_with_end().await,
        }
    }

    /// Compares the position with the end of the journal. If there are undelivered entries, checks that the
    /// next one can be read.
    async fn compare_with_end(&mut self) -> Result<Vec<StoredEntry>, JournalError> {
        let end = self.journal.end().await?;
        if end <= self.after {
            self.compared = Instant::now();
            return Ok(Vec::new());
        }
        let why = self.journal.unreadable_reason_at(Position(self.after.0 + 1)).await?;
        self.compared = Instant::now();
        match why {
            None => Err(unavailable("the consumer is stalled")),
            Some(why) => {
                self.journal.set_unreadable(Some(why.clone()));
                Err(unavailable(&why))
            }
        }
    }

    /// Collects the first message and all messages that have already arrived. The function does not wait, so
    /// no message is lost if the caller stops waiting.
    fn collect_available(
        &mut self,
        first: jetstream::Message,
        max: usize,
    ) -> Result<Vec<StoredEntry>, JournalError> {
        let (mut entries, mut after, mut next) = (Vec::new(), self.after, Some(first));
        while let (Some(message), Some(feed)) = (next.take(), &mut self.feed) {
            match feed.accept(message, after) {
                Ok(entry) => {
                    after = entry.position;
                    entries.push(entry);
                }
                Err(error) if entries.is_empty() => return Err(error),
                Err(error) => {
                    tracing::warn!(%after, %error, "following the journal failed, retrying");
                    self.feed = None;
                    break;
                }
            }
            if entries.len() < max {
                next = match feed.messages.next().now_or_never() {
                    Some(Some(Ok(message))) => Some(message),
                    Some(Some(Err(error))) => {
                        tracing::warn!(%after, %error, "following the journal failed, retrying");
                        self.feed = None;
                        None
                    }
                    Some(None) | None => None,
                };
            }
        }
        self.after = after;
        if let Some(last) = entries.last() {
            let delivered = Delivered { position: last.position, checksum: last.checksum() };
            self.delivered = Some(delivered);
            self.journal.record_delivered(delivered);
        }
        Ok(entries)
    }

    /// Checks that the journal is still the journal that was read so far. The journal must be the same
    /// stream, reach at least the last delivered position, and have the same entry at that position. After a
    /// change of the stream's leader, the stream may end before that position for a moment.
    async fn check_history(&mut self) -> Result<(), JournalError> {
        let end = self.journal.verified_end().await?;
        let Err(damaged) = super::check_not_beyond(self.after, end) else {
            self.behind = None;
            return match self.delivered {
                Some(delivered) => self.journal.verify_delivered(delivered).await,
                None => Ok(()),
            };
        };
        if self.behind.get_or_insert_with(Instant::now).elapsed() > FOLLOW_BEHIND_TIMEOUT {
            return Err(damaged);
        }
        Err(unavailable(&damaged.to_string()))
    }

    /// Creates a consumer that starts after the current position.
    async fn start_consumer(&self) -> Result<Feed, JournalError> {
        let mut made = self.journal.connection_count();
        made.mark_unchanged();
        let config = pull::Config {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: self.after.0 + 1 },
            ack_policy: AckPolicy::None,
            inactive_threshold: CONSUMER_IDLE_TIMEOUT,
            memory_storage: true,
            num_replicas: 1,
            ..pull::Config::default()
        };
        let started = async {
            let consumer = self.journal.stream().create_consumer(config).await;
            let consumer =
                consumer.map_err(|error| JournalError::unavailable("creating a consumer", error))?;
            let messages = consumer
                .stream()
                .max_messages_per_batch(PULL_ENTRIES)
                .max_bytes_per_batch(PULL_BYTES)
                .heartbeat(FOLLOW_HEARTBEAT)
                .messages();
            messages.await.map_err(|error| JournalError::unavailable("pulling from the consumer", error))
        };
        match timeout(API_TIMEOUT, started).await {
            Ok(messages) => Ok(Feed { messages: messages?, delivered: 0, made }),
            Err(_) => Err(unavailable("creating a consumer timed out")),
        }
    }
}

impl Feed {
    /// Converts a message to the entry that must follow `after`.
    fn accept(&mut self, message: jetstream::Message, after: Position) -> Result<StoredEntry, JournalError> {
        let unreadable = |error| JournalError::unavailable("reading the position of a message", error);
        let info = message.info().map_err(unreadable)?;
        let (number, position) = (info.consumer_sequence, Position(info.stream_sequence));
        if number != self.delivered + 1 {
            return Err(unavailable(&format!("delivery {number} follows delivery {}", self.delivered)));
        }
        self.delivered = number;
        let message = message.message;
        let entry = StoredEntry {
            position,
            subject: message.subject.to_string(),
            entry: message.headers.as_ref().and_then(entry_id),
            bytes: message.payload,
        };
        super::check_unbroken(after, std::slice::from_ref(&entry))?;
        Ok(entry)
    }
}

fn unavailable(what: &str) -> JournalError {
    JournalError::Unavailable { what: what.to_owned(), source: None }
}
