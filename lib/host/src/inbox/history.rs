//! Reads of events from the journal.

use std::time::Duration;

use futures::{StreamExt, stream};
use journal::{Journal, JournalError, StoredEntry};
use past::Past;
use projections::Reader;
use schemas::query::{EventsPage, ReadEntry, ReadEvents, RecordedEntry, is_target, target_subject};
use schemas::{Code, Position, Refusal, Subject, limits};
use text::chain;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::driver::Driver;

/// Maximum time that a read of events may wait for an entry.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Minimum time limit of a scan for matching entries. If the caller's waiting time is shorter, this limit
/// applies instead. The reply states the position that the scan has reached.
const SCAN_TIME: Duration = Duration::from_secs(1);
/// Pause before a read of the journal is repeated. A read is repeated if the replica that answered lacks an
/// entry.
const REPLICA_RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Polling interval of a BBS that has stopped and does not follow the log.
const STOPPED_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of entries of one page that are read individually, at positions from the index.
const MAX_INDEXED_READS: usize = 64;
/// Maximum number of concurrent reads of individual entries.
const MAX_CONCURRENT_READS: usize = 16;

/// A scan of the journal.
struct Scan<'a> {
    journal: &'a Journal,
    /// Function that returns the reason for the quarantine of a position. `None` if the position is not
    /// quarantined.
    quarantine_reason: &'a (dyn Fn(Position) -> Option<String> + Send + Sync),
    about: Option<&'a str>,
    /// The only subject with matching entries. `None` if any subject may have matching entries.
    subject: Option<Subject>,
    limit: usize,
    reader: Reader,
    /// Permits for concurrent reads of the journal.
    permits: &'a Semaphore,
    /// Index of the positions of the entries about each aggregate. The index may end before the end of the
    /// log.
    past: Option<&'a Past>,
}

/// Result of reading the journal.
struct ReadResult {
    recorded: Vec<StoredEntry>,
    /// Position up to which the result is complete.
    next: Position,
}

pub(super) async fn read_events(driver: &Driver, asked: ReadEvents) -> Result<EventsPage, Refusal> {
    let unavailable = |error: JournalError| Refusal::new(Code::Unavailable, error.to_string());
    let began = Instant::now();
    let wait = Duration::from_millis(asked.wait_ms.unwrap_or(0)).min(MAX_WAIT);
    let (waits_until, scans_until) = (began + wait, began + wait.max(SCAN_TIME));
    let mut followed = driver.followed();
    let why_set_aside = |position| driver.quarantine_reason(position);
    let scan = Scan::new(&driver.lines.history, &why_set_aside, driver.reader(), &asked, &driver.scans)?;
    let scan = Scan { past: driver.looking.past(), ..scan };
    let mut after = asked.after;
    loop {
        let page = scan.pages(after, scans_until).await.map_err(unavailable)?;
        let now = Instant::now();
        let behind = page.next < page.end;
        if !page.entries.is_empty() || now >= if behind { scans_until } else { waits_until } {
            return Ok(page);
        }
        after = page.next;
        // With a single subject, entries on other subjects do not wake this read.
        let there = |followed: Position| {
            scan.subject.as_ref().map_or(followed, |subject| driver.last_position(subject))
        };
        let end = *followed.borrow_and_update();
        if behind || there(end) > after {
            // The journal has more entries, but the replica that answered lacks them.
            sleep_until((now + REPLICA_RETRY_PAUSE).min(scans_until)).await;
            continue;
        }
        let until = if driver.stopped().is_some() {
            waits_until.min(now + STOPPED_POLL_INTERVAL)
        } else {
            waits_until
        };
        // After the wait, the journal is read once more, regardless of whether an entry has arrived.
        drop(timeout_at(until, followed.wait_for(|followed| there(*followed) > after)).await);
    }
}

impl<'a> Scan<'a> {
    fn new(
        journal: &'a Journal,
        why_set_aside: &'a (dyn Fn(Position) -> Option<String> + Send + Sync),
        reader: Reader,
        asked: &'a ReadEvents,
        permits: &'a Semaphore,
    ) -> Result<Self, Refusal> {
        let about = asked.target.as_deref();
        // Every subject is read in two cases. In the first case, the number of shards is unknown, because the
        // log holds no readable entry. In the second case, the number of shards was changed, so the entries
        // of one process are on several subjects.
        let subject = about.map(|about| target_subject(about, reader.shards().unwrap_or(1))).transpose()?;
        let subject = subject
            .filter(|subject| reader.shards().is_some() && !(subject.is_shard() && reader.is_resharded()));
        let limit = asked.limit.unwrap_or(limits::PAGE_ROWS).clamp(1, limits::PAGE_ROWS);
        Ok(Self {
            journal,
            quarantine_reason: why_set_aside,
            about,
            subject,
            limit,
            reader,
            permits,
            past: None,
        })
    }

    /// Reads pages until a page has matching entries, the journal has no more entries, or the time limit is
    /// reached.
    async fn pages(&self, mut after: Position, until: Instant) -> Result<EventsPage, JournalError> {
        loop {
            let page = self.page(after).await?;
            let goes_on = page.entries.is_empty() && after < page.next && page.next < page.end;
            if !goes_on || Instant::now() >= until {
                return Ok(page);
            }
            after = page.next;
        }
    }

    /// Returns the matching entries after a position. A page covers one read of the journal.
    async fn page(&self, after: Position) -> Result<EventsPage, JournalError> {
        let _room = self.permits.acquire().await.map_err(|_| JournalError::Closed)?;
        let journal = self.journal;
        let ReadResult { recorded, mut next } = match self.read_indexed(after).await {
            Some(found) => found,
            None => self.read(after).await?,
        };
        let nothing = recorded.is_empty() && next == after;
        let shown = |entry: StoredEntry| {
            show_entry(&self.reader, (self.quarantine_reason)(entry.position), entry, self.about)
        };
        let mut entries: Vec<RecordedEntry> = recorded.into_iter().filter_map(shown).collect();
        if entries.len() > self.limit {
            entries.truncate(self.limit);
            next = entries.last().map_or(next, |last| last.position);
        }
        let end = journal.end().await?;
        if nothing && next < end && self.is_at_end(after).await? {
            next = end;
        }
        Ok(EventsPage { next, end, entries })
    }

    async fn read(&self, after: Position) -> Result<ReadResult, JournalError> {
        // Entries about one target may be rare in the log. If only such entries match, a full page is read
        // regardless of the limit.
        let most = if self.about.is_some() { limits::PAGE_ROWS } else { self.limit };
        let recorded = self.journal.read(after, self.subject.as_ref(), most).await?;
        let next = recorded.last().map_or(after, |last| last.position);
        Ok(ReadResult { recorded, next })
    }

    /// Reads the entries that the index lists. Returns `None` if the index ends at or before the position, or
    /// cannot be used.
    async fn read_indexed(&self, after: Position) -> Option<ReadResult> {
        let (past, about) = self.past.zip(self.about)?;
        let (positions, next) = match past.positions(about, after, self.limit.min(MAX_INDEXED_READS)).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!("reading without the event index: {}", chain(&error));
                return None;
            }
        };
        if next <= after {
            return None;
        }
        let read = async |position: Position| {
            let read = self.journal.read(Position(position.0 - 1), None, 1).await.ok()?;
            read.into_iter().find(|one| one.position == position)
        };
        let read: Vec<_> = stream::iter(positions).map(read).buffered(MAX_CONCURRENT_READS).collect().await;
        // If a replica lacks an entry, the result is `None`. In this case, the caller reads the subject, and
        // that read waits for the entry.
        Some(ReadResult { recorded: read.into_iter().collect::<Option<_>>()?, next })
    }

    /// Returns `true` if no matching entry follows a position. An empty read is not enough, because a lagging
    /// replica may have answered.
    async fn is_at_end(&self, after: Position) -> Result<bool, JournalError> {
        let Some(subject) = &self.subject else { return Ok(false) };
        let last = self.journal.last(subject).await?;
        Ok(last.is_none_or(|last| last.position <= after))
    }
}

/// Converts a recorded entry for the reply. A quarantined entry is returned as an unreadable entry, even if
/// this program can read it. `None` if `about` is set and the entry has no readable decision about that
/// target.
fn show_entry(
    reader: &Reader,
    why_set_aside: Option<String>,
    recorded: StoredEntry,
    about: Option<&str>,
) -> Option<RecordedEntry> {
    let read = match why_set_aside {
        Some(why) => Err(why),
        None => {
            let read = reader.decode(recorded.position, &recorded.subject, &recorded.bytes);
            read.map_err(|error| error.to_string())
        }
    };
    let entry = match read {
        Ok(mut entry) => {
            if let Some(about) = about {
                entry.decisions.retain(|decision| is_target(&decision.aggregate, about));
            }
            if about.is_some() && entry.decisions.is_empty() {
                return None;
            }
            ReadEntry::Known(entry)
        }
        Err(_) if about.is_some() => return None,
        Err(why) => ReadEntry::unknown(why, &recorded.bytes),
    };
    Some(RecordedEntry { position: recorded.position, subject: recorded.subject, entry })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bbs::Config;
    use bus::{Bus, InProcess};
    use client::Client;
    use journal::{Append, JetStream, Memory, Sqlite, StreamSettings};
    use schemas::Timestamp;
    use schemas::names::{ClientName, DecisionId, Domain, EntryId, IdGenerator, ServiceId};
    use support::server::NatsServer;
    use tempfile::TempDir;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::bbs::SharedResources;
    use crate::callback::allow::Allowed;
    use crate::driver::Connections;
    use crate::monitoring::MetricsRegistry;
    use crate::monitoring::bbs::BbsMetrics;

    /// Returns a journal of each kind, with the resources that the journal needs.
    async fn journals() -> Vec<(Journal, TempDir, Option<NatsServer>)> {
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [first, second, third] = folders;
        let sqlite = Sqlite::open(second.path()).await.unwrap();
        let server = NatsServer::start(third.path()).await.unwrap();
        let settings =
            bus::nats::Settings::new(vec![server.url.clone()], "bbs-writer", "muster.inbox.bbs-writer");
        let wanted =
            StreamSettings { monitoring: vec![server.monitoring.clone()], ..StreamSettings::default() };
        let stream = JetStream::open(settings.connect().await.unwrap(), &wanted).await.unwrap();
        vec![
            (Journal::Memory(Memory::new()), first, None),
            (Journal::Sqlite(sqlite), second, None),
            (Journal::JetStream(stream), third, Some(server)),
        ]
    }

    /// Starts a BBS on a journal, and returns a client.
    async fn start_bbs(journal: &Journal, stop: &CancellationToken) -> Client {
        let bus = InProcess::new();
        let of = |inbox| Bus::InProcess(bus.with_inbox(inbox).unwrap());
        let settings = Config {
            id: ServiceId::new("b1").unwrap(),
            founding_shards: Some(4),
            presence: ::bbs::presence::Config::default(),
            durability: String::new(),
            history_limit: limits::DEFAULT_HISTORY_SHOWN,
            program: schemas::message::Program::default(),
            slice_len: ::bbs::SLICE_LEN,
            bytes_in_flight: limits::BYTES_IN_FLIGHT,
            may_lead: true,
        };
        let lines = Connections::in_process(journal.clone(), of("muster.inbox.bbs.b1"), None);
        let watched = (lines.bus.clone(), journal.clone());
        let watch = BbsMetrics::register(&MetricsRegistry::default(), watched, Arc::default(), stop.clone());
        let own = SharedResources::new(secrets::Keys::default(), Allowed::default()).unwrap();
        tokio::spawn(crate::bbs::run(settings, 1, (lines, own), watch, stop.clone()));
        let (domain, name) = (Domain::new("apps").unwrap(), ClientName::new("ada").unwrap());
        let client = Client::with_bus(of("muster.inbox.client.apps.ada"), domain, name).unwrap();
        client.refresh_domain(None).await.unwrap();
        client
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn read_beyond_end_waits_for_next_entry() {
        for (journal, _folder, _server) in journals().await {
            let stop = CancellationToken::new();
            let client = start_bbs(&journal, &stop).await;
            let end = journal.end().await.unwrap();
            let read = |after: u64, wait_ms| ReadEvents {
                after: Position(after),
                limit: None,
                wait_ms: Some(wait_ms),
                target: None,
            };
            for (beyond, wait_ms) in [(end.0, 0), (end.0, 200), (end.0 + 100, 0), (end.0 + 100, 200)] {
                let began = Instant::now();
                let page = client.read_events(&read(beyond, wait_ms)).await.unwrap();
                assert_eq!((page.next, page.end, page.entries.len()), (Position(beyond), end, 0));
                assert!(began.elapsed() >= Duration::from_millis(wait_ms), "the read waits for wait_ms");
            }
            let next = read(end.0 + 1, 20_000);
            let waiting = client.read_events(&next);
            let two = async {
                client.refresh_domain(None).await.unwrap();
                client.refresh_domain(None).await.unwrap();
            };
            let (page, ()) = tokio::join!(waiting, two);
            assert_eq!(page.unwrap().entries[0].position, Position(end.0 + 2));
            stop.cancel();
        }
    }

    async fn append(journal: &Journal, subject: &Subject, ids: &mut IdGenerator) -> Position {
        let expected = journal.last(subject).await.unwrap().map_or(Position(0), |last| last.position);
        let entry = EntryId(ids.next(Timestamp(1)));
        let append = Append { subject: subject.clone(), expected, entry, bytes: "no entry".into() };
        journal.append(append).await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn filtered_read_scans_single_subject_until_deadline() {
        let (journal, stop) = (Journal::Memory(Memory::new()), CancellationToken::new());
        let client = start_bbs(&journal, &stop).await;
        let mut ids = IdGenerator::new(7);
        for _ in 0..2 * limits::PAGE_ROWS {
            append(&journal, &Subject::Lrp(0), &mut ids).await;
        }
        let refreshed = client.refresh_domain(None).await.unwrap().position;
        let mut reader = Reader::default();
        for recorded in journal.read(Position(0), None, 10).await.unwrap() {
            drop(reader.read(recorded.position, &recorded.subject, &recorded.bytes));
        }
        let room = Semaphore::new(1);
        let page = async |about: &str, after: Position| {
            let asked = ReadEvents { after, target: Some(about.to_owned()), ..ReadEvents::default() };
            let scan = Scan::new(&journal, &|_| None, reader.clone(), &asked, &room).unwrap();
            let page = scan.pages(after, Instant::now()).await.unwrap();
            (page.next, page.entries.iter().map(|entry| entry.position).collect::<Vec<_>>())
        };
        let (next, entries) = page("domain:apps", Position(0)).await;
        assert_eq!(
            (next, entries.last()),
            (refreshed, Some(&refreshed)),
            "found after two pages of another subject"
        );
        let end = journal.end().await.unwrap();
        assert_eq!(page("domain:apps", refreshed).await, (end, vec![]));
        assert_eq!(page("domain:none", Position(0)).await, (end, vec![]));
        // The time limit has already passed, so the page states the position that the scan has reached.
        let process = (0..).map(|n| format!("lrp:p{n}"));
        let mut of_shard = process.filter(|about| target_subject(about, 4) == Ok(Subject::Lrp(0)));
        let (next, entries) = page(&of_shard.next().unwrap(), Position(0)).await;
        assert!(
            entries.is_empty() && next < refreshed && next > Position(limits::PAGE_ROWS as u64),
            "{next}"
        );
        let nothing = ReadEvents { target: Some("pod:x".into()), ..ReadEvents::default() };
        let refused = client.read_events(&nothing);
        assert!(refused.await.unwrap_err().to_string().contains("lrp:GUID"), "the aggregate kind is unknown");
        stop.cancel();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn decision_is_found_by_its_id() {
        let (journal, stop) = (Journal::Memory(Memory::new()), CancellationToken::new());
        let client = start_bbs(&journal, &stop).await;
        let mut ids = IdGenerator::new(7);
        for number in 0..40 {
            if number % 5 == 0 {
                append(&journal, &Subject::Lrp(0), &mut ids).await;
            }
            client.refresh_domain(None).await.unwrap();
        }
        let (entries, _) = client.history(Position(0), None).await.unwrap();
        let mut found = 0;
        for recorded in entries {
            let ReadEntry::Known(entry) = recorded.entry else { continue };
            for decision in entry.decisions {
                let named = client.decision(decision.id).await.unwrap();
                assert_eq!(named, Some((recorded.position, decision)));
                found += 1;
            }
        }
        assert!(found > 40, "{found}");
        // Ids with times long before, within, and long after the period of the log.
        for millis in [1, clock::now().0 / 1_000_000, u64::MAX >> 20] {
            let nobodys = IdGenerator::new(8).next(Timestamp::from_millis(millis));
            assert_eq!(client.decision(DecisionId(nobodys)).await.unwrap(), None, "{millis}");
        }
        stop.cancel();
    }
}
