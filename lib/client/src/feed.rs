//! Every event of the cluster as it happens: each once, in order, without a gap.
//!
//! ```text
//!   feed (live, may lose) ──▶ follows what was given? ── yes ─▶ given
//!                                     │ no, or silence
//!   log (by queries)      ◀───────────┘ reads what is missing
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
use crate::limits::{PAUSE, POLL, POLL_ENTRIES};

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedEvent {
    /// Where its entry stands.
    pub position: Position,
    /// Which event of the entry it is, from 0.
    pub nth: u64,
    /// The event as a `CloudEvent`, in JSON: see `docs/clients.md`, "The feed".
    pub json: String,
}

/// Events behind a position, as they come. A lost connection is waited for, and what was missed meanwhile is read.
#[derive(Debug)]
pub struct Feed {
    client: Client,
    /// What is told now; none: it isn't listened yet, or no more.
    live: Option<Subscription>,
    cluster: Option<ClusterId>,
    /// Everything up to this event is given out or in `ready`; `u64::MAX`: all events of the position.
    known: (Position, u64),
    /// Whether the log may hold more than is known.
    behind: bool,
    ready: VecDeque<FeedEvent>,
}

/// What tells where an event stands.
#[derive(Deserialize)]
struct Place {
    id: String,
    previous: Option<String>,
}

impl Client {
    /// Listens to every event of the cluster behind a position; 0 is from the beginning. What of one thing happens
    /// [`Client::events`] tells with less on the way.
    #[must_use]
    pub fn feed(&self, after: Position) -> Feed {
        Feed {
            client: self.clone(),
            live: None,
            cluster: None,
            known: (after, u64::MAX),
            behind: true,
            ready: VecDeque::new(),
        }
    }
}

impl Feed {
    /// The next event; waits for it, for ever. Cancel-safe.
    ///
    /// # Errors
    /// A refusal, or an answer that makes no sense.
    pub async fn next(&mut self) -> Result<FeedEvent, Error> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            match &mut self.live {
                Some(live) if !self.behind => match timeout(POLL, live.next()).await {
                    Ok(Some(told)) => self.hear(&told.payload),
                    Ok(None) => (self.live, self.behind) = (None, true),
                    // What was told last may have been lost.
                    Err(_) => self.behind = true,
                },
                Some(_) | None => match self.catch_up().await {
                    Ok(()) => {}
                    Err(error) if error.is_passing() => {
                        tracing::warn!("{error}; waiting, to read on behind position {}", self.known.0);
                        sleep(PAUSE.1).await;
                    }
                    Err(error) => return Err(error),
                },
            }
        }
    }

    /// Takes what was told, if it follows what is known: what is between has to be read first.
    fn hear(&mut self, payload: &[u8]) {
        let place = serde_json::from_slice::<Place>(payload).ok();
        let at = place.as_ref().and_then(|place| place_of(&place.id));
        let Some((at, json)) = at.zip(String::from_utf8(payload.to_vec()).ok()) else {
            self.behind = true;
            return;
        };
        let previous = place.and_then(|place| place_of(&place.previous?));
        if at <= self.known {
            return;
        }
        if previous.is_some_and(|previous| previous <= self.known) {
            self.known = at;
            self.ready.push_back(FeedEvent { position: at.0, nth: at.1, json });
        } else {
            self.behind = true;
        }
    }

    /// Listens first and reads then, so that nothing is between.
    async fn catch_up(&mut self) -> Result<(), Error> {
        if self.live.is_none() {
            self.live = Some(self.client.line.subscribe(feed::EVERYTHING).await?);
        }
        let cluster = match self.cluster {
            Some(cluster) => cluster,
            None => self.client.cluster().await?.row.cluster_id,
        };
        self.cluster = Some(cluster);
        let whole = self.known.1 == u64::MAX;
        let after = if whole { self.known.0 } else { Position(self.known.0.0.saturating_sub(1)) };
        let read = ReadEvents { after, limit: Some(POLL_ENTRIES), wait_ms: None, about: None };
        let page = self.client.read_events(&read).await?;
        page.entries.iter().for_each(|entry| self.take(cluster, entry));
        self.known = self.known.max((page.next, u64::MAX));
        self.behind = page.next < page.end;
        Ok(())
    }

    fn take(&mut self, cluster: ClusterId, recorded: &RecordedEntry) {
        let RecordedEntry { position, entry, .. } = recorded;
        let ReadEntry::Known(entry) = entry else { return };
        for (nth, event) in (0..).zip(cloudevent::of_entry(cluster, *position, entry)) {
            if (*position, nth) > self.known {
                let json = serde_json::to_string(&event).expect("an event is JSON");
                self.ready.push_back(FeedEvent { position: *position, nth, json });
            }
        }
    }
}

/// Where the event of an id stands: `POSITION-NTH`.
fn place_of(id: &str) -> Option<(Position, u64)> {
    let (position, nth) = id.split_once('-')?;
    Some((Position(position.parse().ok()?), nth.parse().ok()?))
}
