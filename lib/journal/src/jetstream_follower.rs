//! Following a stream: one unfiltered pull consumer from a known position, made again whenever anything is odd.
//!
//! The server forgets such a consumer when it restarts, and may deliver to a connection that is gone. So every entry's
//! place in the consumer's own counting is checked, and a consumer that falls silent or skips, or whose connection was
//! lost, is replaced by one that starts behind the last entry that was delivered.

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
    /// The last entry that was delivered.
    delivered: Option<Delivered>,
    feed: Option<Feed>,
    /// How long to wait before the next attempt.
    wait: Duration,
    /// Since when the journal ends before our position.
    behind: Option<Instant>,
    /// When an entry was last delivered, or the position last compared with the end of the journal. Kept across calls, for a
    /// caller may stop waiting at any time.
    compared: Instant,
    /// When the first of the failed attempts failed; `None` if the last attempt succeeded.
    failing: Option<Instant>,
}

/// What a consumer delivers.
struct Feed {
    messages: pull::Stream,
    /// The consumer's own number of the last message.
    delivered: u64,
    /// Changes when the connection was lost and is there again.
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

    /// Tries until there are entries, or until trying doesn't help.
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

    /// Notes that the journal could be read.
    fn succeeded(&mut self) {
        self.failing = None;
        self.journal.note_unreadable(None);
    }

    /// Notes that an attempt failed. The first of several is a warning; the journal counts as unreadable once all attempts
    /// have failed for [`FOLLOW_FAILING`].
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

    /// What is there, or comes. Nothing if nothing came for a while, and there is nothing.
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

    /// Compares the position with the end of the journal, and reads the next entry if there is one that was not delivered.
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

    /// The first message and what else has arrived. Waits for nothing, so that nothing is lost when the caller stops
    /// waiting.
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

    /// The journal must be the one that was read so far: the same stream, which reaches our position, with the same entry
    /// there. After a change of leader it may take a moment to reach it.
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

    /// Makes a consumer that starts behind our position.
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
    /// Takes a message as the entry that follows `after`.
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
