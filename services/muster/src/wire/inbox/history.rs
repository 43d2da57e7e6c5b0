//! Reads of the journal.

use std::time::Duration;

use projections::Reader;
use schemas::query::{EventsPage, ReadEntry, ReadEvents, RecordedEntry, is_about};
use schemas::{Code, Refusal, limits};

use crate::wire::bbs::Hands;

/// How long a read of events may wait for one.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

pub(super) async fn read_events(hands: &Hands, asked: ReadEvents) -> Result<EventsPage, Refusal> {
    let unavailable = |error: journal::JournalError| Refusal::new(Code::Unavailable, error.to_string());
    let limit = asked.limit.unwrap_or(limits::PAGE_ROWS).clamp(1, limits::PAGE_ROWS);
    let wait = Duration::from_millis(asked.wait_ms.unwrap_or(0)).min(LONGEST_WAIT);
    let deadline = tokio::time::Instant::now() + wait;
    let mut after = asked.after;
    let reader = hands.reader();
    loop {
        let recorded = hands.journal.read(after, None, limit).await.map_err(unavailable)?;
        let end = hands.journal.end().await.map_err(unavailable)?;
        let next = recorded.last().map_or(after, |last| last.position);
        let shown = |entry| show_entry(&reader, entry, asked.about.as_deref());
        let entries: Vec<_> = recorded.into_iter().filter_map(shown).collect();
        let more = next < end && entries.is_empty();
        if more {
            after = next;
            continue;
        }
        if !entries.is_empty() || tokio::time::Instant::now() >= deadline {
            return Ok(EventsPage { next, end, entries });
        }
        after = next;
        let mut follower = hands.journal.follow(after);
        if let Ok(Err(error)) = tokio::time::timeout_at(deadline, follower.next_batch(1)).await {
            return Err(unavailable(error));
        }
    }
}

fn show_entry(reader: &Reader, recorded: journal::Recorded, about: Option<&str>) -> Option<RecordedEntry> {
    let entry = match reader.check(&recorded.subject, &recorded.bytes) {
        Ok(mut entry) => {
            if let Some(about) = about {
                entry.decisions.retain(|decision| is_about(&decision.aggregate, about));
            }
            if about.is_some() && entry.decisions.is_empty() {
                return None;
            }
            ReadEntry::Known(entry)
        }
        Err(_) if about.is_some() => return None,
        Err(error) => ReadEntry::Unknown {
            why: error.to_string(),
            raw: limits::cut(&String::from_utf8_lossy(&recorded.bytes), limits::EXPLANATION_BYTES),
        },
    };
    Some(RecordedEntry { position: recorded.position, subject: recorded.subject, entry })
}
