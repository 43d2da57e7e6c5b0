//! Following a stream with one unfiltered pull consumer that starts at a known position. The consumer is
//! replaced whenever something is unexpected.
//!
//! The server loses such a consumer when it restarts, and may deliver to a connection that is gone. So the
//! follower checks every message against the consumer's own sequence. It replaces a consumer that falls
//! silent, skips a message, or loses its connection. The new consumer starts behind the last delivered entry.

use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use futures::{FutureExt, StreamExt};
use schemas::Position;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::jetstream::{Delivered, JetStream, entry_id};
use super::{JournalError, Recorded};
use crate::limits::{
    API, CONSUMER_IDLE, FOLLOW_BEHIND, FOLLOW_FAILING, FOLLOW_HEARTBEAT, FOLLOW_RETRY, FOLLOW_WATCHDOG,
    PULL_BYTES, PULL_ENTRIES,
};

pub(super) struct Follower {
    journal: JetStream,
    pub(super) after: Position,
    /// The last delivered entry.
    delivered: Option<Delivered>,
    feed: Option<Feed>,
    /// Delay before the next attempt.
    wait: Duration,
    /// Time since which the journal ends before `after`; `None` if it does not.
    behind: Option<Instant>,
    /// Time of the last delivery, or of the last comparison with the end of the journal. Kept across calls,
    /// because a caller may stop waiting at any time.
    compared: Instant,
    /// Time of the first of several failed attempts; `None` if the last attempt succeeded.
    failing: Option<Instant>,
}

/// The message stream of a consumer.
struct Feed {
    messages: pull::Stream,
    /// Consumer sequence of the last message.
    delivered: u64,
    /// Changes after a reconnect.
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

    pub(super) async fn next_batch(&mut self, max: usize) -> Result<Vec<Recorded>, JournalError> {
        let closing = self.journal.closing().clone();
        tokio::select! {
            biased;
            () = closing.cancelled() => Err(JournalError::Closed),
            batch = self.insist(max) => batch,
        }
    }

    /// Retries until there are entries, or until an error occurs that a retry does not fix.
    async fn insist(&mut self, max: usize) -> Result<Vec<Recorded>, JournalError> {
        loop {
            match self.attempt(max).await {
                Ok(entries) if entries.is_empty() => self.succeeded(),
                Ok(entries) => {
                    self.succeeded();
                    self.wait = FOLLOW_RETRY.0;
                    return Ok(entries);
                }
                Err(JournalError::Unavailable { what, source }) => {
                    let source = source.map(|source| format!(": {source}")).unwrap_or_default();
                    self.failed(&format!("{what}{source}"));
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
    fn succeeded(&mut self) {
        self.failing = None;
        self.journal.note_unreadable(None);
    }

    /// Records a failed attempt. The first of several is logged as a warning. The journal counts as
    /// unreadable once all attempts have failed for [`FOLLOW_FAILING`].
    fn failed(&mut self, why: &str) {
        let Some(since) = self.failing else {
            self.failing = Some(Instant::now());
            tracing::warn!(after = %self.after, "following stops, to start again: {why}");
            return;
        };
        tracing::debug!(after = %self.after, "following stops again: {why}");
        if since.elapsed() >= FOLLOW_FAILING && self.journal.unreadable().is_none() {
            self.journal.note_unreadable(Some(why.to_owned()));
        }
    }

    /// Waits for the next entries. Returns none if nothing arrived for [`FOLLOW_WATCHDOG`] and the position
    /// is at the end of the journal.
    async fn attempt(&mut self, max: usize) -> Result<Vec<Recorded>, JournalError> {
        if self.feed.is_none() {
            self.check_history().await?;
            self.feed = Some(self.start().await?);
            self.compared = Instant::now();
        }
        let Some(feed) = &mut self.feed else { return Ok(Vec::new()) };
        let Feed { messages, made, .. } = feed;
        let next = tokio::select! {
            biased;
            next = timeout_at(self.compared + FOLLOW_WATCHDOG, messages.next()) => next,
            Ok(()) = made.changed() => return Err(silent("the connection was lost")),
        };
        match next {
            Ok(Some(Ok(first))) => {
                self.compared = Instant::now();
                self.gather(first, max)
            }
            Ok(Some(Err(error))) => Err(JournalError::unavailable("the consumer failed", error)),
            Ok(None) => Err(silent("the consumer ended")),
            Err(_) => self.compare().await,
        }
    }

    /// Compares the position with the end of the journal. If there are undelivered entries, checks that the
    /// next one can be read.
    async fn compare(&mut self) -> Result<Vec<Recorded>, JournalError> {
        let end = self.journal.end().await?;
        if end <= self.after {
            self.compared = Instant::now();
            return Ok(Vec::new());
        }
        let why = self.journal.why_unreadable(Position(self.after.0 + 1)).await?;
        self.compared = Instant::now();
        match why {
            None => Err(silent("the consumer is stalled")),
            Some(why) => {
                self.journal.note_unreadable(Some(why.clone()));
                Err(silent(&why))
            }
        }
    }

    /// Collects the first message and those that have already arrived. It does not wait, so no message is
    /// lost if the caller stops waiting.
    fn gather(&mut self, first: jetstream::Message, max: usize) -> Result<Vec<Recorded>, JournalError> {
        let (mut entries, mut after, mut next) = (Vec::new(), self.after, Some(first));
        while let (Some(message), Some(feed)) = (next.take(), &mut self.feed) {
            match feed.check(message, after) {
                Ok(entry) => {
                    after = entry.position;
                    entries.push(entry);
                }
                Err(error) if entries.is_empty() => return Err(error),
                Err(error) => {
                    tracing::warn!(%after, %error, "following stops, to start again");
                    self.feed = None;
                    break;
                }
            }
            if entries.len() < max {
                next = match feed.messages.next().now_or_never() {
                    Some(Some(Ok(message))) => Some(message),
                    Some(Some(Err(error))) => {
                        tracing::warn!(%after, %error, "following stops, to start again");
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
            self.journal.note(delivered);
        }
        Ok(entries)
    }

    /// Checks that the journal is the one that was read so far: the same stream, long enough, with the same
    /// entry at the last delivered position. After a change of leader the stream may take a moment to become
    /// long enough.
    async fn check_history(&mut self) -> Result<(), JournalError> {
        let end = self.journal.same_end().await?;
        let Err(damaged) = super::check_not_beyond(self.after, end) else {
            self.behind = None;
            return match self.delivered {
                Some(delivered) => self.journal.compare(delivered).await,
                None => Ok(()),
            };
        };
        if self.behind.get_or_insert_with(Instant::now).elapsed() > FOLLOW_BEHIND {
            return Err(damaged);
        }
        Err(silent(&damaged.to_string()))
    }

    /// Creates a consumer that starts behind the current position.
    async fn start(&self) -> Result<Feed, JournalError> {
        let mut made = self.journal.made();
        made.mark_unchanged();
        let config = pull::Config {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: self.after.0 + 1 },
            ack_policy: AckPolicy::None,
            inactive_threshold: CONSUMER_IDLE,
            memory_storage: true,
            num_replicas: 1,
            ..pull::Config::default()
        };
        let started = async {
            let consumer = self.journal.stream().create_consumer(config).await;
            let consumer = consumer.map_err(|error| JournalError::unavailable("making a consumer", error))?;
            let messages = consumer
                .stream()
                .max_messages_per_batch(PULL_ENTRIES)
                .max_bytes_per_batch(PULL_BYTES)
                .heartbeat(FOLLOW_HEARTBEAT)
                .messages();
            messages.await.map_err(|error| JournalError::unavailable("pulling from the consumer", error))
        };
        match timeout(API, started).await {
            Ok(messages) => Ok(Feed { messages: messages?, delivered: 0, made }),
            Err(_) => Err(silent("making a consumer takes too long")),
        }
    }
}

impl Feed {
    /// Converts a message to the entry that must follow `after`.
    fn check(&mut self, message: jetstream::Message, after: Position) -> Result<Recorded, JournalError> {
        let unreadable = |error| JournalError::unavailable("a message without its place", error);
        let info = message.info().map_err(unreadable)?;
        let (number, position) = (info.consumer_sequence, Position(info.stream_sequence));
        if number != self.delivered + 1 {
            return Err(silent(&format!("delivery {number} follows delivery {}", self.delivered)));
        }
        self.delivered = number;
        let message = message.message;
        let entry = Recorded {
            position,
            subject: message.subject.to_string(),
            entry: message.headers.as_ref().and_then(entry_id),
            bytes: message.payload,
        };
        super::check_unbroken(after, std::slice::from_ref(&entry))?;
        Ok(entry)
    }
}

fn silent(what: &str) -> JournalError {
    JournalError::Unavailable { what: what.to_owned(), source: None }
}
