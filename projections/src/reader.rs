//! Reader of the journal: distinguishes entries from messages that are quarantined.
//!
//! Every process skips messages that are not entries, such as garbage, damaged entries, and entries on a
//! wrong subject. So the rest of the log stays usable and all Worlds are equal. Quarantined messages are
//! counted and shown.
//!
//! An entry of a newer program stops the reader, because skipping it would base decisions on incomplete
//! state. An operator may still quarantine its position. Such quarantines are recorded on the cluster's
//! subject ([`crate::cluster_log`]) and known before the first position is read.

use std::collections::BTreeMap;

use schemas::cluster;
use schemas::entry::{DecodeError, Event};
use schemas::limits::{KNOWN_ENTRIES, POSITIONS_SET_ASIDE, REASON_BYTES, SHOWN_MALFORMED_ENTRIES, cut};
use schemas::names::{ClusterId, EntryId};
use schemas::query::{MalformedEntries, MalformedEntry};
use schemas::subject::shard_subjects;
use schemas::{Entry, Position, Subject, Timestamp};
use serde::{Deserialize, Serialize};

use crate::cluster_log::Positions;

/// Content of a log position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    Entry(Entry),
    /// A quarantined message, with the reason.
    SetAside(String),
}

/// Reader of the journal, from its first position on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reader {
    /// Number of shards that the cluster was founded with. `None` before the founding.
    shards: Option<u16>,
    /// Later numbers of shards. Each applies to the entries after its position.
    resharded: Vec<(Position, u16)>,
    /// End of each subject.
    ends: BTreeMap<Subject, End>,
    /// Positions of the newest entries. Entry ids start with their time of creation, so the map is ordered by
    /// time.
    written: BTreeMap<EntryId, Position>,
    /// Positions that operators quarantined.
    by_operators: Positions,
    set_aside: MalformedEntries,
}

/// End of a subject, as far as it was read.
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
    by_operators: Positions,
    set_aside: MalformedEntries,
}

/// Returns an empty entry, to be folded where the journal holds no entry.
#[must_use]
pub fn nothing() -> Entry {
    Entry { id: EntryId(uuid::Uuid::nil()), format: cluster::FORMAT, decisions: vec![] }
}

impl Reader {
    /// Creates a reader that knows the positions that operators quarantined, wherever these are recorded.
    #[must_use]
    pub fn knowing(by_operators: Positions) -> Self {
        Self { by_operators, ..Self::default() }
    }

    /// Serializes the state of the reader with postcard.
    ///
    /// # Panics
    /// Never: the state is plain data.
    #[must_use]
    pub fn stored(&self) -> Vec<u8> {
        let stored = Stored {
            shards: self.shards,
            ends: self.ends.iter().map(|(subject, end)| (subject.to_string(), *end)).collect(),
            written: self.written.clone(),
            by_operators: self.by_operators.clone(),
            set_aside: self.set_aside.clone(),
        };
        // The shard counts come last: snapshots of version 7 end before them.
        postcard::to_stdvec(&(stored, &self.resharded))
            .expect("a reader is plain data, and memory takes all of it")
    }

    /// Restores the reader after a position from its bytes. From there on it uses the given quarantined
    /// positions.
    ///
    /// # Errors
    /// Returns a message if the bytes are not a reader's state, or if the quarantined positions up to
    /// `position` differ.
    pub fn restored(bytes: &[u8], position: Position, by_operators: Positions) -> Result<Self, String> {
        let (stored, rest): (Stored, _) =
            postcard::take_from_bytes(bytes).map_err(|error| error.to_string())?;
        let resharded = if rest.is_empty() { Ok(vec![]) } else { postcard::from_bytes(rest) };
        let resharded = resharded.map_err(|error| error.to_string())?;
        if !stored.by_operators.range(..=position).eq(by_operators.range(..=position)) {
            return Err("operators have set aside what it had read".to_owned());
        }
        let mut ends = BTreeMap::new();
        for (subject, end) in stored.ends {
            let known = Subject::parse(&subject).ok_or_else(|| format!("{subject:?} is not a subject"))?;
            ends.insert(known, end);
        }
        let (shards, written, set_aside) = (stored.shards, stored.written, stored.set_aside);
        Ok(Self { shards, resharded, ends, written, by_operators, set_aside })
    }

    /// Returns the messages that were quarantined so far.
    #[must_use]
    pub const fn set_aside(&self) -> &MalformedEntries {
        &self.set_aside
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

    /// Returns `true` if the number of shards was changed. Entries of one process or task may then be on
    /// several subjects.
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
    pub fn read(&mut self, position: Position, subject: &str, bytes: &[u8]) -> Result<Read, String> {
        let read = self.look(position, subject, bytes)?;
        Ok(self.take(position, subject, read))
    }

    /// Classifies the message at a position without recording it.
    ///
    /// # Errors
    /// See [`Reader::read`].
    pub fn look(&self, position: Position, subject: &str, bytes: &[u8]) -> Result<Read, String> {
        if let Some(reason) = self.by_operators.get(&position) {
            return Ok(Read::SetAside(format!("an operator set it aside: {reason}")));
        }
        match self.check(position, subject, bytes) {
            Ok(entry) if self.shards.is_none() && !founds(&entry) && !entry.decisions.is_empty() => {
                Err("the cluster was never founded: the journal's first entry is missing or damaged".into())
            }
            Ok(entry) => match self.written_before(&entry) {
                Some(why) => Ok(Read::SetAside(why)),
                None => self.check_known(&entry).map(|()| Read::Entry(entry)),
            },
            Err(none @ (DecodeError::Malformed(_) | DecodeError::Damaged { .. })) => {
                Ok(Read::SetAside(none.to_string()))
            }
            Err(newer @ (DecodeError::Future { .. } | DecodeError::UnknownEvent(_))) => {
                Err(newer.to_string())
            }
        }
    }

    /// Records the result of [`Reader::look`] for the next position and returns it.
    pub fn take(&mut self, position: Position, subject: &str, read: Read) -> Read {
        if let Some(subject) = Subject::parse(subject) {
            self.ends.entry(subject).or_default().position = position;
        }
        match read {
            Read::Entry(entry) => {
                self.note(position, &entry);
                Read::Entry(entry)
            }
            Read::SetAside(why) => self.put_aside(position, subject, &why),
        }
    }

    /// Records an entry that the caller already decoded.
    pub fn note(&mut self, position: Position, entry: &Entry) {
        for event in cluster_events(entry) {
            match event {
                cluster::Event::Founded { shards, .. } => self.shards = Some(*shards),
                cluster::Event::Resharded { shards } => self.reshard(position, *shards),
                cluster::Event::OrdinalAssigned { .. }
                | cluster::Event::OrdinalFreed { .. }
                | cluster::Event::FormatRaised { .. }
                | cluster::Event::PreemptionSwitched { .. }
                | cluster::Event::Elected { .. }
                | cluster::Event::PositionSetAside { .. } => {}
            }
        }
        if let Some((subject, last)) = self.subject_of(entry).zip(entry.decisions.last()) {
            let end = self.ends.entry(subject).or_default();
            let version = end.version.max(last.version);
            *end = End { position, entry: position, at: last.at, version };
            self.written.insert(entry.id, position);
            if self.written.len() > KNOWN_ENTRIES {
                self.written.pop_first();
            }
        }
    }

    /// Switches later entries of processes and tasks to the subjects of another number of shards. The time of
    /// a process or task must not decrease when it moves to another subject. So each of these subjects starts
    /// at the latest time of all.
    fn reshard(&mut self, position: Position, shards: u16) {
        let latest = self.ends.iter().filter(|(subject, _)| subject.is_shard()).map(|(_, end)| end.at).max();
        for subject in shard_subjects(shards) {
            let end = self.ends.entry(subject).or_default();
            end.at = end.at.max(latest.unwrap_or_default());
        }
        self.resharded.push((position, shards));
    }

    /// Returns the reason if an entry is an old one that was written again. Time on a subject only increases
    /// from decision to decision.
    fn written_before(&self, entry: &Entry) -> Option<String> {
        let end = self.ends.get(&self.subject_of(entry)?).filter(|end| end.entry > Position(0))?;
        let first = entry.decisions.first().filter(|first| first.at <= end.at)?;
        Some(match self.written.get(&entry.id) {
            Some(first) => format!("an old entry, written before at position {first}"),
            None => format!(
                "an old entry, written before: decision {} is not after position {}",
                first.id, end.entry
            ),
        })
    }

    /// Returns an error if the entry quarantines a position that this reader has read without knowing that.
    /// The log must then be read again from its beginning.
    fn check_known(&self, entry: &Entry) -> Result<(), String> {
        let unknown = |event: &cluster::Event| match event {
            cluster::Event::PositionSetAside { position, .. } => {
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
        let full = self.by_operators.len() >= POSITIONS_SET_ASIDE;
        match cluster_events(entry).find_map(unknown) {
            Some(position) if !full => Err(format!(
                "position {position} was set aside after this program had read it: the log is read from its beginning"
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the subject that an entry belongs on.
    fn subject_of(&self, entry: &Entry) -> Option<Subject> {
        Some(entry.decisions.first()?.aggregate.subject(self.shards()?))
    }

    /// Decodes the entry at a position that this reader has read, or at the next one. Records nothing.
    ///
    /// # Errors
    /// See [`Entry::decode`]. An entry on a wrong subject is `Malformed`.
    pub fn check(&self, position: Position, subject: &str, bytes: &[u8]) -> Result<Entry, DecodeError> {
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

    fn put_aside(&mut self, position: Position, subject: &str, why: &str) -> Read {
        let (subject, why) = (cut(subject, REASON_BYTES), cut(why, REASON_BYTES));
        self.set_aside.count += 1;
        self.set_aside.last.push(MalformedEntry { position, subject, why: why.clone() });
        let over = self.set_aside.last.len().saturating_sub(SHOWN_MALFORMED_ENTRIES);
        self.set_aside.last.drain(..over);
        Read::SetAside(why)
    }
}

/// Returns the events of an entry about the cluster itself.
pub(crate) fn cluster_events(entry: &Entry) -> impl Iterator<Item = &cluster::Event> {
    entry.decisions.iter().flat_map(|decision| &decision.events).filter_map(Event::as_cluster)
}

/// Returns the cluster that an entry founds, or `None` if it founds none.
#[must_use]
pub fn founded(entry: &Entry) -> Option<ClusterId> {
    let first = entry.decisions.first().and_then(|decision| decision.events.first());
    match first.and_then(Event::as_cluster)? {
        cluster::Event::Founded { id, .. } => Some(*id),
        cluster::Event::Elected { .. }
        | cluster::Event::OrdinalAssigned { .. }
        | cluster::Event::OrdinalFreed { .. }
        | cluster::Event::FormatRaised { .. }
        | cluster::Event::PreemptionSwitched { .. }
        | cluster::Event::Resharded { .. }
        | cluster::Event::PositionSetAside { .. } => None,
    }
}

/// Returns `true` if an entry founds the cluster.
pub(crate) fn founds(entry: &Entry) -> bool {
    founded(entry).is_some()
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
        Entry { decisions: vec![decision], ..nothing() }.encode()
    }

    fn founded() -> Vec<u8> {
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
    fn sealed(text: &str) -> Vec<u8> {
        let body = text.split_once(',').unwrap().1;
        let sum = schemas::checksum::crc32c(body.as_bytes());
        format!(r#"{{"crc32c":"{sum:08x}",{body}"#).into_bytes()
    }

    fn is_entry(read: &Result<Read, String>) -> bool {
        matches!(read, Ok(Read::Entry(_)))
    }

    #[test]
    fn what_is_no_entry_is_set_aside_and_counted() {
        let mut reader = Reader::default();
        let mut at = 0;
        let mut read = |subject: &str, bytes: &[u8]| {
            at += 1;
            reader.read(Position(at), subject, bytes)
        };
        assert!(is_entry(&read("muster.event.cluster", &founded())));
        assert!(is_entry(&read("muster.event.cell.c1", &cell("c1"))));
        let aside: [(&str, &[u8], &str); 5] = [
            ("muster.event.cell.c1", b"garbage", "does not begin with a checksum"),
            ("muster.event.lrp.0", &cell("c1")[..50], "is damaged: its checksum says"),
            ("muster.event.strange.subject", &cell("c1"), "is not a subject of Muster"),
            ("muster.event.cell.c2", &cell("c1"), "does not belong on muster.event.cell.c2"),
            ("muster.event.lrp.1", &cell("c1"), "does not belong on muster.event.lrp.1"),
        ];
        for (subject, bytes, told) in aside {
            let Ok(Read::SetAside(why)) = read(subject, bytes) else { panic!("{subject} was read") };
            assert!(why.contains(told), "{why}");
        }
        assert!(is_entry(&read("muster.event.cell.c1", &cell_at(2, "c1"))), "the rest goes on");
        assert_eq!(reader.set_aside().count, 5);
        let last: Vec<u64> = reader.set_aside().last.iter().map(|one| one.position.0).collect();
        assert_eq!(last, [3, 4, 5, 6, 7]);
        for at in 100..200 {
            assert!(!is_entry(&reader.read(Position(at), "x", b"")));
        }
        assert_eq!(reader.set_aside().count, 105);
        assert_eq!(reader.set_aside().last.len(), SHOWN_MALFORMED_ENTRIES);
        assert_eq!(reader.set_aside().last.last().unwrap().position, Position(199));
    }

    #[test]
    fn an_old_entry_that_is_written_again_is_set_aside() {
        let mut reader = Reader::default();
        let (first, second) = (cell_at(5, "c1"), cell_at(6, "c1"));
        assert!(is_entry(&reader.read(Position(1), "muster.event.cluster", &founded())));
        assert!(is_entry(&reader.read(Position(2), "muster.event.cell.c1", &first)));
        assert!(is_entry(&reader.read(Position(3), "muster.event.cell.c1", &second)));
        assert!(is_entry(&reader.read(Position(4), "muster.event.cell.c2", &cell_at(4, "c2"))));
        for (at, old) in [(5, &first), (6, &second)] {
            let Ok(Read::SetAside(why)) = reader.read(Position(at), "muster.event.cell.c1", old) else {
                panic!("it was read again")
            };
            assert!(why.contains("written before"), "{why}");
        }
        assert!(is_entry(&reader.read(Position(7), "muster.event.cell.c1", &cell_at(7, "c1"))));
        assert_eq!(reader.set_aside().count, 2);
    }

    /// Returns the same entry with another id.
    fn named(id: u128, bytes: &[u8]) -> Vec<u8> {
        let entry = Entry::decode(bytes).unwrap();
        Entry { id: EntryId(uuid::Uuid::from_u128(id)), ..entry }.encode()
    }

    #[test]
    fn an_old_entry_is_told_with_the_position_where_it_was_first_written() {
        let mut reader = Reader::default();
        let (first, second) = (named(1, &cell_at(5, "c1")), named(2, &cell_at(6, "c1")));
        for (at, bytes) in [(1, &founded()), (2, &first), (3, &second)] {
            let subject = if at == 1 { "muster.event.cluster" } else { "muster.event.cell.c1" };
            assert!(is_entry(&reader.read(Position(at), subject, bytes)));
        }
        let mut why = |bytes: &[u8]| match reader.read(Position(9), "muster.event.cell.c1", bytes) {
            Ok(Read::SetAside(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(why(&first), "an old entry, written before at position 2");
        assert_eq!(why(&second), "an old entry, written before at position 3");
        // Under another id it is recognised by its time.
        assert!(why(&named(7, &cell_at(6, "c1"))).contains("is not after position 3"));
    }

    fn record_of(position: u64, at: u64) -> Vec<u8> {
        let reason = "a trial".into();
        let aside = cluster::Event::PositionSetAside { position: Position(position), reason };
        entry_at(at, Aggregate::Cluster, vec![Event::Cluster(aside)])
    }

    #[test]
    fn what_an_operator_set_aside_is_passed_over_wherever_that_is_recorded() {
        let future = sealed(r#"{"crc32c":"00000000","format": 99, "decisions": {"new": "shape"}}"#);
        let log = [
            ("muster.event.cluster", founded()),
            ("muster.event.cell.c1", future),
            ("muster.event.cell.c1", cell_at(7, "c1")),
            ("muster.event.cluster", record_of(2, 8)),
        ];
        let known = Positions::from([(Position(2), "a trial".to_owned())]);
        let mut reader = Reader::knowing(known);
        for (at, (subject, bytes)) in (1..).zip(&log) {
            let read = reader.read(Position(at), subject, bytes);
            if at == 2 {
                assert_eq!(read, Ok(Read::SetAside("an operator set it aside: a trial".into())));
            } else {
                assert!(is_entry(&read), "{at}: {read:?}");
            }
        }
        assert_eq!(reader.set_aside().last[0].position, Position(2));
        // A reader that does not know of the quarantine stops at the position. One that could read the
        // position stops at the record of the quarantine.
        let mut unknowing = Reader::default();
        assert!(is_entry(&unknowing.read(Position(1), log[0].0, &log[0].1)));
        assert!(unknowing.read(Position(2), log[1].0, &log[1].1).unwrap_err().contains("format 99"));
        let why = unknowing.read(Position(4), log[3].0, &log[3].1).unwrap_err();
        assert!(why.contains("position 2 was set aside after"), "{why}");
    }

    #[test]
    fn nobody_founds_a_second_cluster_where_the_first_entry_is_damaged() {
        let mut reader = Reader::default();
        assert!(!is_entry(&reader.read(Position(1), "muster.event.cluster", &founded()[..40])));
        let why = reader.read(Position(2), "muster.event.cell.c1", &cell("c1")).unwrap_err();
        assert!(why.contains("first entry is missing or damaged"), "{why}");
        // Garbage in a journal without any entry does not prevent the founding.
        let mut fresh = Reader::default();
        assert!(!is_entry(&fresh.read(Position(1), "muster.event.cluster", b"garbage")));
        assert!(is_entry(&fresh.read(Position(2), "muster.event.cluster", &founded())));
    }

    #[test]
    fn entry_belongs_on_the_subject_of_the_number_of_shards_at_its_position() {
        let guid = schemas::names::ProcessGuid::new("web").unwrap();
        let removed = || vec![Event::Desired(schemas::desired::Event::Removed {})];
        let domain = schemas::names::Domain::new("shop").unwrap();
        let process = Aggregate::Process { guid, domain, epoch: schemas::container::Epoch::default() };
        let [old, new] = [4, 7].map(|shards| process.subject(shards).to_string());
        assert_ne!(old, new);
        let web = entry(process, removed());
        let mut reader = Reader::default();
        assert!(is_entry(&reader.read(Position(1), "muster.event.cluster", &founded())));
        assert!(is_entry(&reader.read(Position(2), &old, &web)));
        assert!(!is_entry(&reader.read(Position(3), &new, &web)), "the number is not changed yet");
        let version_7 = reader.stored();
        let change = Event::Cluster(cluster::Event::Resharded { shards: 7 });
        let change = entry_at(2, Aggregate::Cluster, vec![change]);
        assert!(is_entry(&reader.read(Position(4), "muster.event.cluster", &change)));
        assert!(!is_entry(&reader.read(Position(5), &old, &web)), "the subject is an old one");
        assert!(is_entry(&reader.read(Position(6), &new, &web)));
        let restored = Reader::restored(&reader.stored(), Position(6), Positions::default()).unwrap();
        assert_eq!(restored, reader);
        assert!(
            restored.check(Position(2), &old, &web).is_ok()
                && restored.check(Position(5), &old, &web).is_err()
        );
        // The reader state in a snapshot of version 7 has no shard changes.
        let (empty, known) = version_7.split_last().unwrap();
        assert_eq!(
            (*empty, Reader::restored(known, Position(3), Positions::default()).unwrap().shards()),
            (0, Some(4))
        );
    }

    #[test]
    fn what_a_later_program_wrote_stops_who_reads_it() {
        let mut reader = Reader::default();
        assert!(is_entry(&reader.read(Position(1), "muster.event.cluster", &founded())));
        let text = String::from_utf8(cell("c1")).unwrap();
        for later in
            [text.replace("evacuating.v1", "evacuating.v2"), text.replace("evacuating.v1", "painted.v1")]
        {
            let why = reader.read(Position(2), "muster.event.cell.c1", &sealed(&later)).unwrap_err();
            assert!(why.contains("this program does not know"), "{why}");
        }
        let future = sealed(r#"{"crc32c":"00000000","format": 99, "decisions": {"new": "shape"}}"#);
        let why = reader.read(Position(3), "muster.event.cell.c1", &future).unwrap_err();
        assert!(why.contains("entry is of format 99"), "{why}");
        assert_eq!(*reader.set_aside(), MalformedEntries::default());
    }
}
