//! Reader of the journal: distinguishes entries from quarantined messages.
//!
//! Every process skips messages that are not entries, such as garbage, damaged entries, and entries on a
//! wrong subject. So the rest of the log stays usable, and all processes have the same projected state
//! (World). Quarantined messages are counted and shown.
//!
//! An entry of a newer program stops the reader, because without the entry decisions would be based on
//! incomplete state. An operator may still quarantine the position of such an entry. The cluster's subject
//! records these quarantines ([`crate::cluster_log`]). The reader knows them before it reads the first
//! position.

use std::collections::BTreeMap;

use schemas::cluster;
use schemas::entry::Event;
use schemas::limits::{
    QUARANTINED_POSITIONS, REASON_BYTES, REMEMBERED_ENTRIES, SHOWN_MALFORMED_ENTRIES, truncate,
};
use schemas::names::{ClusterId, EntryId};
use schemas::query::{QuarantinedEntries, QuarantinedEntry};
use schemas::stored::DecodeError;
use schemas::subject::shard_subjects;
use schemas::{Entry, Position, Subject, Timestamp};
use serde::{Deserialize, Serialize};

use crate::cluster_log::QuarantinedPositions;

/// Content of a log position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadMessage {
    Entry(Entry),
    /// A quarantined message, with the reason.
    Quarantined(String),
}

/// Reader of the journal. It starts at the first position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reader {
    /// Number of shards that the cluster was founded with. `None` before the founding.
    shards: Option<u16>,
    /// Changes of the number of shards. Each number applies to the entries after its position.
    resharded: Vec<(Position, u16)>,
    /// End of each subject.
    ends: BTreeMap<Subject, End>,
    /// Positions of the newest entries. Entry ids start with their time of creation, so the map is ordered by
    /// time.
    entry_positions: BTreeMap<EntryId, Position>,
    /// Positions that operators quarantined.
    by_operators: QuarantinedPositions,
    quarantined: QuarantinedEntries,
}

/// End of a subject in the part of the log that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Position of the last message, valid or not; 0 if there is none.
    pub position: Position,
    /// Position of the last entry; 0 if there is none.
    pub entry: Position,
    /// Time of the last decision.
    pub at: Timestamp,
    /// Version of the last decision. Meaningful only if the subject holds one aggregate.
    pub version: u64,
}

/// Serialized state of a reader.
#[derive(Serialize, Deserialize)]
struct Stored {
    shards: Option<u16>,
    ends: Vec<(String, End)>,
    written: BTreeMap<EntryId, Position>,
    by_operators: QuarantinedPositions,
    quarantined: QuarantinedEntries,
}

/// Returns an empty entry. Callers fold it at a position without an entry.
#[must_use]
pub fn empty_entry() -> Entry {
    Entry { id: EntryId(uuid::Uuid::nil()), format: cluster::FORMAT, decisions: vec![] }
}

impl Reader {
    /// Creates a reader that knows all positions that operators quarantined. The journal may record such a
    /// quarantine later than the reader's position.
    #[must_use]
    pub fn with_quarantines(by_operators: QuarantinedPositions) -> Self {
        Self { by_operators, ..Self::default() }
    }

    /// Serializes the state of the reader with postcard.
    ///
    /// # Panics
    /// Never: the state is plain data.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let stored = Stored {
            shards: self.shards,
            ends: self.ends.iter().map(|(subject, end)| (subject.to_string(), *end)).collect(),
            written: self.entry_positions.clone(),
            by_operators: self.by_operators.clone(),
            quarantined: self.quarantined.clone(),
        };
        // The shard counts come last, because snapshots of version 7 end before them.
        postcard::to_stdvec(&(stored, &self.resharded)).expect("serializing plain data to memory cannot fail")
    }

    /// Restores a reader from its serialized state at `position`. For later positions, the reader uses the
    /// given quarantined positions.
    ///
    /// # Errors
    /// Returns a message if the bytes are not a reader's state, or if the bytes and the given quarantines
    /// differ up to `position`.
    pub fn from_bytes(
        bytes: &[u8],
        position: Position,
        by_operators: QuarantinedPositions,
    ) -> Result<Self, String> {
        let (stored, rest): (Stored, _) =
            postcard::take_from_bytes(bytes).map_err(|error| error.to_string())?;
        let resharded = if rest.is_empty() { Ok(vec![]) } else { postcard::from_bytes(rest) };
        let resharded = resharded.map_err(|error| error.to_string())?;
        if !stored.by_operators.range(..=position).eq(by_operators.range(..=position)) {
            return Err("operators have quarantined positions that the reader had read".to_owned());
        }
        let mut ends = BTreeMap::new();
        for (subject, end) in stored.ends {
            let known = Subject::parse(&subject).ok_or_else(|| format!("{subject:?} is not a subject"))?;
            ends.insert(known, end);
        }
        let (shards, entry_positions, quarantined) = (stored.shards, stored.written, stored.quarantined);
        Ok(Self { shards, resharded, ends, entry_positions, by_operators, quarantined })
    }

    /// Returns the messages that were quarantined so far.
    #[must_use]
    pub const fn quarantined(&self) -> &QuarantinedEntries {
        &self.quarantined
    }

    /// Returns the end of a subject.
    #[must_use]
    pub fn end(&self, subject: &Subject) -> End {
        self.ends.get(subject).copied().unwrap_or_default()
    }

    /// Returns the end of every subject that has a message.
    #[must_use]
    pub const fn ends(&self) -> &BTreeMap<Subject, End> {
        &self.ends
    }

    /// Returns the number of shards, or `None` before the cluster is founded.
    #[must_use]
    pub fn shards(&self) -> Option<u16> {
        self.resharded.last().map_or(self.shards, |(_, shards)| Some(*shards))
    }

    /// Returns `true` if the number of shards was changed. After a change, entries of one process or task may
    /// be on several subjects.
    #[must_use]
    pub const fn is_resharded(&self) -> bool {
        !self.resharded.is_empty()
    }

    /// Returns the number of shards that applies to the entry at a position.
    fn shards_at(&self, position: Position) -> Option<u16> {
        let changed = self.resharded.iter().rfind(|(at, _)| *at < position);
        changed.map_or(self.shards, |(_, shards)| Some(*shards))
    }

    /// Reads the message at a position.
    ///
    /// # Errors
    /// Returns the reason why the reader cannot continue: a newer program wrote the message, or the entry
    /// that founded the cluster cannot be read.
    pub fn read(&mut self, position: Position, subject: &str, bytes: &[u8]) -> Result<ReadMessage, String> {
        let read = self.look(position, subject, bytes)?;
        Ok(self.take(position, subject, read))
    }

    /// Classifies the message at a position without recording it.
    ///
    /// # Errors
    /// See [`Reader::read`].
    pub fn look(&self, position: Position, subject: &str, bytes: &[u8]) -> Result<ReadMessage, String> {
        if let Some(reason) = self.by_operators.get(&position) {
            return Ok(ReadMessage::Quarantined(format!("quarantined by an operator: {reason}")));
        }
        match self.decode(position, subject, bytes) {
            Ok(entry) if self.shards.is_none() && !is_founding(&entry) && !entry.decisions.is_empty() => {
                Err("the cluster was never founded: the journal's first entry is missing or damaged".into())
            }
            Ok(entry) => match self.replay_reason(&entry) {
                Some(why) => Ok(ReadMessage::Quarantined(why)),
                None => self.check_quarantines(&entry).map(|()| ReadMessage::Entry(entry)),
            },
            Err(none @ (DecodeError::Malformed(_) | DecodeError::Damaged { .. })) => {
                Ok(ReadMessage::Quarantined(none.to_string()))
            }
            Err(newer @ (DecodeError::NewerFormat { .. } | DecodeError::UnknownEvent(_))) => {
                Err(newer.to_string())
            }
        }
    }

    /// Records the result of [`Reader::look`] for the next position and returns the result.
    pub fn take(&mut self, position: Position, subject: &str, read: ReadMessage) -> ReadMessage {
        if let Some(subject) = Subject::parse(subject) {
            self.ends.entry(subject).or_default().position = position;
        }
        match read {
            ReadMessage::Entry(entry) => {
                self.record_entry(position, &entry);
                ReadMessage::Entry(entry)
            }
            ReadMessage::Quarantined(why) => self.quarantine(position, subject, &why),
        }
    }

    /// Records an entry that the caller already decoded.
    pub fn record_entry(&mut self, position: Position, entry: &Entry) {
        for event in cluster_events(entry) {
            match event {
                cluster::Event::Founded { shards, .. } => self.shards = Some(*shards),
                cluster::Event::Resharded { shards } => self.reshard(position, *shards),
                cluster::Event::OrdinalAssigned { .. }
                | cluster::Event::OrdinalFreed { .. }
                | cluster::Event::FormatRaised { .. }
                | cluster::Event::PreemptionSwitched { .. }
                | cluster::Event::Elected { .. }
                | cluster::Event::EntryQuarantined { .. } => {}
            }
        }
        if let Some((subject, last)) = self.subject_of(entry).zip(entry.decisions.last()) {
            let end = self.ends.entry(subject).or_default();
            let version = end.version.max(last.version);
            *end = End { position, entry: position, at: last.at, version };
            self.entry_positions.insert(entry.id, position);
            if self.entry_positions.len() > REMEMBERED_ENTRIES {
                self.entry_positions.pop_first();
            }
        }
    }

    /// Switches later entries of processes and tasks to the subjects of another number of shards. The time of
    /// a process or task must not decrease when the process or task moves to another subject. So each new
    /// subject starts at the latest time of all subjects.
    fn reshard(&mut self, position: Position, shards: u16) {
        let latest = self.ends.iter().filter(|(subject, _)| subject.is_shard()).map(|(_, end)| end.at).max();
        for subject in shard_subjects(shards) {
            let end = self.ends.entry(subject).or_default();
            end.at = end.at.max(latest.unwrap_or_default());
        }
        self.resharded.push((position, shards));
    }

    /// Returns the reason if an entry is a copy of an old entry that was written again. The time on a subject
    /// increases with every decision, so the older time identifies the copy.
    fn replay_reason(&self, entry: &Entry) -> Option<String> {
        let end = self.ends.get(&self.subject_of(entry)?).filter(|end| end.entry > Position(0))?;
        let first = entry.decisions.first().filter(|first| first.at <= end.at)?;
        Some(match self.entry_positions.get(&entry.id) {
            Some(first) => format!("repeated entry: first written at position {first}"),
            None => format!("repeated entry: decision {} is not later than position {}", first.id, end.entry),
        })
    }

    /// Returns an error if the entry quarantines a position that this reader has already read as not
    /// quarantined. In this case the log must be read again from its start.
    fn check_quarantines(&self, entry: &Entry) -> Result<(), String> {
        let unknown = |event: &cluster::Event| match event {
            cluster::Event::EntryQuarantined { position, .. } => {
                Some(*position).filter(|position| !self.by_operators.contains_key(position))
            }
            cluster::Event::Founded { .. }
            | cluster::Event::OrdinalAssigned { .. }
            | cluster::Event::OrdinalFreed { .. }
            | cluster::Event::FormatRaised { .. }
            | cluster::Event::PreemptionSwitched { .. }
            | cluster::Event::Resharded { .. }
            | cluster::Event::Elected { .. } => None,
        };
        let full = self.by_operators.len() >= QUARANTINED_POSITIONS;
        match cluster_events(entry).find_map(unknown) {
            Some(position) if !full => Err(format!(
                "position {position} was quarantined after this program had read it: reading the log again"
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the subject that an entry belongs on.
    fn subject_of(&self, entry: &Entry) -> Option<Subject> {
        Some(entry.decisions.first()?.aggregate.subject(self.shards()?))
    }

    /// Decodes the entry at the next position, or at a position that this reader has already read. Records
    /// nothing.
    ///
    /// # Errors
    /// See [`Entry::decode`]. An entry on a wrong subject is `Malformed`.
    pub fn decode(&self, position: Position, subject: &str, bytes: &[u8]) -> Result<Entry, DecodeError> {
        let Some(subject) = Subject::parse(subject) else {
            return Err(DecodeError::Malformed(format!("{subject} is not a subject of Muster")));
        };
        let entry = Entry::decode(bytes)?;
        let stray = |shards| entry.decisions.iter().find(|one| one.aggregate.subject(shards) != subject);
        match self.shards_at(position).and_then(stray) {
            None => Ok(entry),
            Some(stray) => {
                Err(DecodeError::Malformed(format!("decision {} does not belong on {subject}", stray.id)))
            }
        }
    }

    fn quarantine(&mut self, position: Position, subject: &str, why: &str) -> ReadMessage {
        let (subject, why) = (truncate(subject, REASON_BYTES), truncate(why, REASON_BYTES));
        self.quarantined.count += 1;
        self.quarantined.last.push(QuarantinedEntry { position, subject, reason: why.clone() });
        let over = self.quarantined.last.len().saturating_sub(SHOWN_MALFORMED_ENTRIES);
        self.quarantined.last.drain(..over);
        ReadMessage::Quarantined(why)
    }
}

/// Returns the events of an entry about the cluster itself.
pub(crate) fn cluster_events(entry: &Entry) -> impl Iterator<Item = &cluster::Event> {
    entry.decisions.iter().flat_map(|decision| &decision.events).filter_map(Event::as_cluster)
}

/// Returns the cluster that an entry founds, or `None` if it founds none.
#[must_use]
pub fn founded_cluster(entry: &Entry) -> Option<ClusterId> {
    let first = entry.decisions.first().and_then(|decision| decision.events.first());
    match first.and_then(Event::as_cluster)? {
        cluster::Event::Founded { id, .. } => Some(*id),
        cluster::Event::Elected { .. }
        | cluster::Event::OrdinalAssigned { .. }
        | cluster::Event::OrdinalFreed { .. }
        | cluster::Event::FormatRaised { .. }
        | cluster::Event::PreemptionSwitched { .. }
        | cluster::Event::Resharded { .. }
        | cluster::Event::EntryQuarantined { .. } => None,
    }
}

/// Returns `true` if an entry founds the cluster.
pub(crate) fn is_founding(entry: &Entry) -> bool {
    founded_cluster(entry).is_some()
}

#[cfg(test)]
mod tests {
    use schemas::entry::Aggregate;
    use schemas::names::{CellId, ClusterId};
    use schemas::{Timestamp, cell};

    use super::*;

    fn entry(aggregate: Aggregate, events: Vec<Event>) -> Vec<u8> {
        entry_at(1, aggregate, events)
    }

    fn entry_at(at: u64, aggregate: Aggregate, events: Vec<Event>) -> Vec<u8> {
        let decision = fixtures::decision(uuid::Uuid::nil(), Timestamp(at), aggregate, events);
        Entry { decisions: vec![decision], ..empty_entry() }.encode()
    }

    fn founding() -> Vec<u8> {
        let id = ClusterId(uuid::Uuid::nil());
        let founded = cluster::Event::Founded { id, shards: 4, format: cluster::FORMAT };
        entry(Aggregate::Cluster, vec![Event::Cluster(founded)])
    }

    fn cell(id: &str) -> Vec<u8> {
        cell_at(1, id)
    }

    fn cell_at(at: u64, id: &str) -> Vec<u8> {
        let id = CellId::new(id).unwrap();
        entry_at(at, Aggregate::Cell(id), vec![Event::Cell(cell::Event::Evacuating {})])
    }

    /// Returns the entry text with a valid checksum.
    fn with_checksum(text: &str) -> Vec<u8> {
        let body = text.split_once(',').unwrap().1;
        let sum = schemas::checksum::crc32c(body.as_bytes());
        format!(r#"{{"crc32c":"{sum:08x}",{body}"#).into_bytes()
    }

    fn is_entry(read: &Result<ReadMessage, String>) -> bool {
        matches!(read, Ok(ReadMessage::Entry(_)))
    }

    #[test]
    fn invalid_messages_are_quarantined_and_counted() {
        let mut reader = Reader::default();
        let mut at = 0;
        let mut read = |subject: &str, bytes: &[u8]| {
            at += 1;
            reader.read(Position(at), subject, bytes)
        };
        assert!(is_entry(&read("muster.event.cluster", &founding())));
        assert!(is_entry(&read("muster.event.cell.c1", &cell("c1"))));
        let aside: [(&str, &[u8], &str); 5] = [
            ("muster.event.cell.c1", b"garbage", "does not begin with a checksum"),
            ("muster.event.lrp.0", &cell("c1")[..50], "is damaged: stored checksum"),
            ("muster.event.strange.subject", &cell("c1"), "is not a subject of Muster"),
            ("muster.event.cell.c2", &cell("c1"), "does not belong on muster.event.cell.c2"),
            ("muster.event.lrp.1", &cell("c1"), "does not belong on muster.event.lrp.1"),
        ];
        for (subject, bytes, told) in aside {
            let Ok(ReadMessage::Quarantined(why)) = read(subject, bytes) else {
                panic!("{subject} was accepted")
            };
            assert!(why.contains(told), "{why}");
        }
        assert!(is_entry(&read("muster.event.cell.c1", &cell_at(2, "c1"))), "later entries are read");
        assert_eq!(reader.quarantined().count, 5);
        let last: Vec<u64> = reader.quarantined().last.iter().map(|one| one.position.0).collect();
        assert_eq!(last, [3, 4, 5, 6, 7]);
        for at in 100..200 {
            assert!(!is_entry(&reader.read(Position(at), "x", b"")));
        }
        assert_eq!(reader.quarantined().count, 105);
        assert_eq!(reader.quarantined().last.len(), SHOWN_MALFORMED_ENTRIES);
        assert_eq!(reader.quarantined().last.last().unwrap().position, Position(199));
    }

    #[test]
    fn replayed_entry_is_quarantined() {
        let mut reader = Reader::default();
        let (first, second) = (cell_at(5, "c1"), cell_at(6, "c1"));
        assert!(is_entry(&reader.read(Position(1), "muster.event.cluster", &founding())));
        assert!(is_entry(&reader.read(Position(2), "muster.event.cell.c1", &first)));
        assert!(is_entry(&reader.read(Position(3), "muster.event.cell.c1", &second)));
        assert!(is_entry(&reader.read(Position(4), "muster.event.cell.c2", &cell_at(4, "c2"))));
        for (at, old) in [(5, &first), (6, &second)] {
            let Ok(ReadMessage::Quarantined(why)) = reader.read(Position(at), "muster.event.cell.c1", old)
            else {
                panic!("it was accepted again")
            };
            assert!(why.contains("repeated entry"), "{why}");
        }
        assert!(is_entry(&reader.read(Position(7), "muster.event.cell.c1", &cell_at(7, "c1"))));
        assert_eq!(reader.quarantined().count, 2);
    }

    /// Returns the same entry with another id.
    fn with_id(id: u128, bytes: &[u8]) -> Vec<u8> {
        let entry = Entry::decode(bytes).unwrap();
        Entry { id: EntryId(uuid::Uuid::from_u128(id)), ..entry }.encode()
    }

    #[test]
    fn replayed_entry_is_reported_with_its_first_position() {
        let mut reader = Reader::default();
        let (first, second) = (with_id(1, &cell_at(5, "c1")), with_id(2, &cell_at(6, "c1")));
        for (at, bytes) in [(1, &founding()), (2, &first), (3, &second)] {
            let subject = if at == 1 { "muster.event.cluster" } else { "muster.event.cell.c1" };
            assert!(is_entry(&reader.read(Position(at), subject, bytes)));
        }
        let mut why = |bytes: &[u8]| match reader.read(Position(9), "muster.event.cell.c1", bytes) {
            Ok(ReadMessage::Quarantined(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(why(&first), "repeated entry: first written at position 2");
        assert_eq!(why(&second), "repeated entry: first written at position 3");
        // The time identifies a copy with another id.
        assert!(why(&with_id(7, &cell_at(6, "c1"))).contains("is not later than position 3"));
    }

    fn quarantine_record(position: u64, at: u64) -> Vec<u8> {
        let reason = "a trial".into();
        let aside = cluster::Event::EntryQuarantined { position: Position(position), reason };
        entry_at(at, Aggregate::Cluster, vec![Event::Cluster(aside)])
    }

    #[test]
    fn operator_quarantine_recorded_later_is_skipped() {
        let future = with_checksum(r#"{"crc32c":"00000000","format": 99, "decisions": {"new": "shape"}}"#);
        let log = [
            ("muster.event.cluster", founding()),
            ("muster.event.cell.c1", future),
            ("muster.event.cell.c1", cell_at(7, "c1")),
            ("muster.event.cluster", quarantine_record(2, 8)),
        ];
        let known = QuarantinedPositions::from([(Position(2), "a trial".to_owned())]);
        let mut reader = Reader::with_quarantines(known);
        for (at, (subject, bytes)) in (1..).zip(&log) {
            let read = reader.read(Position(at), subject, bytes);
            if at == 2 {
                assert_eq!(read, Ok(ReadMessage::Quarantined("quarantined by an operator: a trial".into())));
            } else {
                assert!(is_entry(&read), "{at}: {read:?}");
            }
        }
        assert_eq!(reader.quarantined().last[0].position, Position(2));
        // A reader that does not know the quarantine stops at the quarantined position. If the reader could
        // read that position, it stops at the entry that records the quarantine.
        let mut unknowing = Reader::default();
        assert!(is_entry(&unknowing.read(Position(1), log[0].0, &log[0].1)));
        assert!(unknowing.read(Position(2), log[1].0, &log[1].1).unwrap_err().contains("format 99"));
        let why = unknowing.read(Position(4), log[3].0, &log[3].1).unwrap_err();
        assert!(why.contains("position 2 was quarantined after"), "{why}");
    }

    #[test]
    fn damaged_founding_entry_stops_reader() {
        let mut reader = Reader::default();
        assert!(!is_entry(&reader.read(Position(1), "muster.event.cluster", &founding()[..40])));
        let why = reader.read(Position(2), "muster.event.cell.c1", &cell("c1")).unwrap_err();
        assert!(why.contains("first entry is missing or damaged"), "{why}");
        // Garbage in a journal without any entry does not prevent the founding.
        let mut fresh = Reader::default();
        assert!(!is_entry(&fresh.read(Position(1), "muster.event.cluster", b"garbage")));
        assert!(is_entry(&fresh.read(Position(2), "muster.event.cluster", &founding())));
    }

    #[test]
    fn entry_subject_depends_on_shard_count_at_its_position() {
        let guid = schemas::names::ProcessGuid::new("web").unwrap();
        let removed = || vec![Event::Desired(schemas::desired::Event::Removed {})];
        let domain = schemas::names::Domain::new("shop").unwrap();
        let process = Aggregate::Process { guid, domain, epoch: schemas::container::Epoch::default() };
        let [old, new] = [4, 7].map(|shards| process.subject(shards).to_string());
        assert_ne!(old, new);
        let web = entry(process, removed());
        let mut reader = Reader::default();
        assert!(is_entry(&reader.read(Position(1), "muster.event.cluster", &founding())));
        assert!(is_entry(&reader.read(Position(2), &old, &web)));
        assert!(!is_entry(&reader.read(Position(3), &new, &web)), "the shard count has not changed yet");
        let version_7 = reader.to_bytes();
        let change = Event::Cluster(cluster::Event::Resharded { shards: 7 });
        let change = entry_at(2, Aggregate::Cluster, vec![change]);
        assert!(is_entry(&reader.read(Position(4), "muster.event.cluster", &change)));
        assert!(
            !is_entry(&reader.read(Position(5), &old, &web)),
            "the subject is of the previous shard count"
        );
        assert!(is_entry(&reader.read(Position(6), &new, &web)));
        let restored =
            Reader::from_bytes(&reader.to_bytes(), Position(6), QuarantinedPositions::default()).unwrap();
        assert_eq!(restored, reader);
        assert!(
            restored.decode(Position(2), &old, &web).is_ok()
                && restored.decode(Position(5), &old, &web).is_err()
        );
        // The reader state in a snapshot of version 7 has no shard changes.
        let (empty, known) = version_7.split_last().unwrap();
        assert_eq!(
            (
                *empty,
                Reader::from_bytes(known, Position(3), QuarantinedPositions::default()).unwrap().shards()
            ),
            (0, Some(4))
        );
    }

    #[test]
    fn entry_of_newer_program_stops_reader() {
        let mut reader = Reader::default();
        assert!(is_entry(&reader.read(Position(1), "muster.event.cluster", &founding())));
        let text = String::from_utf8(cell("c1")).unwrap();
        for later in
            [text.replace("evacuating.v1", "evacuating.v2"), text.replace("evacuating.v1", "painted.v1")]
        {
            let why = reader.read(Position(2), "muster.event.cell.c1", &with_checksum(&later)).unwrap_err();
            assert!(why.contains("contains an unknown event"), "{why}");
        }
        let future = with_checksum(r#"{"crc32c":"00000000","format": 99, "decisions": {"new": "shape"}}"#);
        let why = reader.read(Position(3), "muster.event.cell.c1", &future).unwrap_err();
        assert!(why.contains("entry has format 99"), "{why}");
        assert_eq!(*reader.quarantined(), QuarantinedEntries::default());
    }
}
