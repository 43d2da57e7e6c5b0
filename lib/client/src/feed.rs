//! Live feed of the events of the cluster: each event once, in order, without gaps.
//!
//! ```text
//!   feed (live, may lose) ──▶ follows the last event? ── yes ─▶ return it
//!                                     │ no, or silence
//!   log (by queries)      ◀───────────┘ read the missing events
//! ```

use std::collections::VecDeque;

use bus::Subscription;
use schemas::cloudevent;
use schemas::names::ClusterId;
use schemas::query::{ReadEntry, ReadEvents, RecordedEntry};
use schemas::{Position, feed};
use serde::Deserialize;
use tokio::time::{sleep, timeout};

use crate::client::Client;
use crate::error::Error;
use crate::limits::{POLL_ENTRIES, POLL_WAIT, RETRY_DELAY};

/// Event of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedEvent {
    /// Position of the entry.
    pub position: Position,
    /// Index of the event in its entry, starting at 0.
    pub index: u64,
    /// The event as a `CloudEvent`, in JSON: see docs/reference/feed.md.
    pub json: String,
}

/// Follower of the events after a position. If the connection is lost, the follower waits and then reads the
/// missed events.
#[derive(Debug)]
pub struct Feed {
    client: Client,
    /// Subscription to the feed. `None` before it is made and after it has ended.
    subscription: Option<Subscription>,
    cluster: Option<ClusterId>,
    /// Last event that was returned or is in `ready`. `u64::MAX` stands for all events of the position.
    known: (Position, u64),
    /// `true` if the log may contain later events than `known`.
    behind: bool,
    ready: VecDeque<FeedEvent>,
}

/// Fields that determine the place of an event in the feed.
#[derive(Deserialize)]
struct EventPlace {
    id: String,
    previous: Option<String>,
}

impl Client {
    /// Follows the events of the cluster after a position. Position 0 starts at the beginning. For the events
    /// of one aggregate, [`Client::events`] transfers less data.
    #[must_use]
    pub fn feed(&self, after: Position) -> Feed {
        Feed {
            client: self.clone(),
            subscription: None,
            cluster: None,
            known: (after, u64::MAX),
            behind: true,
            ready: VecDeque::new(),
        }
    }
}

impl Feed {
    /// Waits for the next event, without a limit, and returns it. This method is cancel safe.
    ///
    /// # Errors
    /// Returns an error for a refusal or an invalid answer.
    pub async fn next(&mut self) -> Result<FeedEvent, Error> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            match &mut self.subscription {
                Some(live) if !self.behind => match timeout(POLL_WAIT, live.next()).await {
                    Ok(Some(told)) => self.receive_live(&told.payload),
                    Ok(None) => (self.subscription, self.behind) = (None, true),
                    // The last event may have been lost.
                    Err(_) => self.behind = true,
                },
                Some(_) | None => match self.catch_up().await {
                    Ok(()) => {}
                    Err(error) if error.is_transient() => {
                        tracing::warn!("{error}; waiting to continue after position {}", self.known.0);
                        sleep(RETRY_DELAY.1).await;
                    }
                    Err(error) => return Err(error),
                },
            }
        }
    }

    /// Accepts an event of the feed if it follows the last known event. Otherwise the missing events must be
    /// read first.
    fn receive_live(&mut self, payload: &[u8]) {
        let place = serde_json::from_slice::<EventPlace>(payload).ok();
        let at = place.as_ref().and_then(|place| parse_event_id(&place.id));
        let Some((at, json)) = at.zip(String::from_utf8(payload.to_vec()).ok()) else {
            self.behind = true;
            return;
        };
        let previous = place.and_then(|place| parse_event_id(&place.previous?));
        if at <= self.known {
            return;
        }
        if previous.is_some_and(|previous| previous <= self.known) {
            self.known = at;
            self.ready.push_back(FeedEvent { position: at.0, index: at.1, json });
        } else {
            self.behind = true;
        }
    }

    /// Subscribes before the read, so that no event is missed in between.
    async fn catch_up(&mut self) -> Result<(), Error> {
        if self.subscription.is_none() {
            self.subscription = Some(self.client.line.subscribe(feed::ALL_EVENTS).await?);
        }
        let cluster = match self.cluster {
            Some(cluster) => cluster,
            None => self.client.cluster().await?.row.cluster_id,
        };
        self.cluster = Some(cluster);
        let whole = self.known.1 == u64::MAX;
        let after = if whole { self.known.0 } else { Position(self.known.0.0.saturating_sub(1)) };
        let read = ReadEvents { after, limit: Some(POLL_ENTRIES), wait_ms: None, target: None };
        let page = self.client.read_events(&read).await?;
        page.entries.iter().for_each(|entry| self.buffer_entry(cluster, entry));
        self.known = self.known.max((page.next, u64::MAX));
        self.behind = page.next < page.end;
        Ok(())
    }

    fn buffer_entry(&mut self, cluster: ClusterId, recorded: &RecordedEntry) {
        let RecordedEntry { position, entry, .. } = recorded;
        let ReadEntry::Known(entry) = entry else { return };
        for (nth, event) in (0..).zip(cloudevent::entry_events(cluster, *position, entry)) {
            if (*position, nth) > self.known {
                let json = serde_json::to_string(&event).expect("an event is JSON");
                self.ready.push_back(FeedEvent { position: *position, index: nth, json });
            }
        }
    }
}

/// Parses the id of an event: `POSITION-NTH`.
fn parse_event_id(id: &str) -> Option<(Position, u64)> {
    let (position, nth) = id.split_once('-')?;
    Some((Position(position.parse().ok()?), nth.parse().ok()?))
}
