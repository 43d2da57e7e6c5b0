//! The feed: a leading BBS publishes every event of the log (docs/reference/feed.md).
//!
//! The feed is best effort, and the log is authoritative. Publishing never delays decisions: entries that
//! cannot be sent in time are left out and counted. Subscribers detect missing events by their ids, and read
//! them from the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bus::Bus;
use schemas::cloudevent::{self, CloudEvent};
use schemas::limits::FEED_WAITING;
use schemas::names::ClusterId;
use schemas::sight::ReadScope;
use schemas::{Entry, Position, feed};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// An entry to publish.
#[derive(Debug)]
pub(super) struct FeedEntry {
    pub(super) cluster: ClusterId,
    pub(super) position: Position,
    pub(super) entry: Arc<Entry>,
}

/// Queue of entries to publish.
#[derive(Debug)]
pub(super) struct Feed {
    entries: mpsc::Sender<FeedEntry>,
    dropped: AtomicU64,
}

impl Feed {
    /// Creates the queue and its receiver.
    pub(super) fn new() -> (Self, mpsc::Receiver<FeedEntry>) {
        let (entries, waiting) = mpsc::channel(FEED_WAITING);
        (Self { entries, dropped: AtomicU64::new(0) }, waiting)
    }

    /// Queues an entry, or leaves it out if the queue is full. Never waits. Returns `true` if the entry was
    /// queued.
    pub(super) fn enqueue(&self, fed: FeedEntry) -> bool {
        let position = fed.position;
        let told = self.entries.try_send(fed).is_ok();
        if !told {
            let count = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            // Limits the number of log lines.
            if count.is_power_of_two() {
                tracing::warn!(%position, count, "the feed is behind: entries are left out");
            }
        }
        told
    }
}

/// Publishes queued entries, in the order of the log, until the token is cancelled.
pub(super) async fn tell(bus: Bus, mut waiting: mpsc::Receiver<FeedEntry>, ends: CancellationToken) {
    let mut last = LastEvent::default();
    while let Some(Some(fed)) = ends.run_until_cancelled(waiting.recv()).await {
        // Subscribers are not identified, so data that some of them may not read is removed for all.
        let sight = if bus.proves_identity() { ReadScope::Nothing } else { ReadScope::Everything };
        let fed = FeedEntry { entry: sight.redact_shared_entry(fed.entry), ..fed };
        for (subject, event) in last.events(&fed) {
            let bytes = serde_json::to_vec(&event).expect("event serializes to JSON");
            if let Err(error) = bus.publish(&subject, bytes.into()).await {
                tracing::debug!(%error, subject, id = event.id, "event not published on the feed");
            }
        }
    }
}

/// Position and id of the last published event.
#[derive(Debug, Default)]
struct LastEvent(Position, String);

impl LastEvent {
    /// Returns the events of an entry with their subjects. Each event contains the id of the previous event
    /// in the log, if that id is known.
    fn events<'a>(&mut self, fed: &'a FeedEntry) -> Vec<(String, CloudEvent<'a>)> {
        let FeedEntry { cluster, position, entry } = fed;
        let follows = !self.1.is_empty() && self.0.0 + 1 == position.0;
        let mut previous = follows.then(|| std::mem::take(&mut self.1));
        let subjects = entry.decisions.iter().flat_map(|decision| {
            decision.events.iter().map(|event| feed::subject(*cluster, &decision.aggregate, event))
        });
        let mut events: Vec<_> = subjects.zip(cloudevent::entry_events(*cluster, *position, entry)).collect();
        for (_, event) in &mut events {
            event.previous = previous.replace(event.id.clone());
        }
        *self = Self(*position, previous.unwrap_or_default());
        events
    }
}

#[cfg(test)]
mod tests {
    use schemas::entry::{Aggregate, Event};
    use schemas::{Timestamp, cell};
    use uuid::Uuid;

    use super::*;

    fn feed_entry(position: u64, events: usize) -> FeedEntry {
        let about = Aggregate::Cell(fixtures::cell_id("c1"));
        let events = vec![Event::Cell(cell::Event::Healthy {}); events];
        let decision = fixtures::decision(Uuid::nil(), Timestamp(position), about, events);
        let entry = Arc::new(fixtures::entry(decision));
        FeedEntry { cluster: ClusterId(Uuid::nil()), position: Position(position), entry }
    }

    #[test]
    fn event_has_id_of_previous_event_if_known() {
        let mut last = LastEvent::default();
        let mut told = |position, events| {
            let fed = feed_entry(position, events);
            let all = last.events(&fed).into_iter().map(|(_, event)| (event.id, event.previous));
            all.map(|(id, previous)| format!("{id} after {}", previous.unwrap_or_default()))
                .collect::<Vec<_>>()
        };
        assert_eq!(told(1, 1), ["1-0 after "]);
        assert_eq!(told(4, 2), ["4-0 after ", "4-1 after 4-0"]);
        assert_eq!(told(5, 1), ["5-0 after 4-1"]);
        assert_eq!(told(7, 2), ["7-0 after ", "7-1 after 7-0"], "position 6 was not published");
    }

    #[tokio::test]
    async fn full_feed_queue_drops_entries_without_waiting() {
        let (feed, mut waiting) = Feed::new();
        for position in 1..=FEED_WAITING as u64 + 5 {
            assert_eq!(feed.enqueue(feed_entry(position, 1)), position <= FEED_WAITING as u64);
        }
        assert_eq!(feed.dropped.load(Ordering::Relaxed), 5);
        assert_eq!(waiting.recv().await.unwrap().position, Position(1));
    }
}
