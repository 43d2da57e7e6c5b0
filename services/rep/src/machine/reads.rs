//! Queries of the rep and their schedule: container lists from the executor, and records (of instances and
//! tasks) from the BBS.
//!
//! A poll first lists the containers. The rep then reads every record that names the cell or belongs to one
//! of its containers. Between polls, the rep reads single records when a decision needs them.

use std::collections::{BTreeMap, BTreeSet};

use schemas::cell::Evacuation;
use schemas::container::{Container, Instance, WorkKey};
use schemas::limits::BATCH;
use schemas::message::Record;
use schemas::names::InstanceGuid;
use schemas::query::{Records, RecordsAnswer};
use schemas::{Position, Refusal, Timestamp};

use super::allocations::{Key, Rank};
use super::inspect::Knowledge;
use super::judge;
use super::{Effect, Level, Phase, Rep, log_text};
use crate::limits;

/// Container list that was requested from the executor.
#[derive(Clone, Copy, Debug)]
struct Listing {
    /// Message counter at the time of the request. The list includes every container that the executor knew
    /// before the request.
    since: u64,
    /// `true` if the records are read after the list has arrived.
    poll: bool,
}

/// Unanswered request for records.
#[derive(Debug)]
struct RecordRequest {
    guids: Vec<InstanceGuid>,
    /// `true` for a poll, which reads every record that names the cell.
    cell: bool,
}

/// Queries that are scheduled or unanswered.
#[derive(Debug, Default)]
pub(super) struct Reads {
    poll_due: Timestamp,
    polled: Timestamp,
    confirm_due: Option<Timestamp>,
    listing: Option<Listing>,
    wanted: BTreeSet<InstanceGuid>,
    cell_wanted: bool,
    requests: BTreeMap<u64, RecordRequest>,
    failures: u32,
    not_before: Timestamp,
}

impl Reads {
    /// Schedules a read of the record of this container.
    pub(super) fn request_record(&mut self, guid: InstanceGuid) {
        self.wanted.insert(guid);
    }

    /// Schedules a read of every record that names the cell.
    pub(super) fn request_cell(&mut self) {
        self.cell_wanted = true;
    }

    /// Schedules an early poll because of an unexpected message. The minimum interval between polls is kept,
    /// however many such messages arrive.
    pub(super) fn poll_soon(&mut self, now: Timestamp) {
        self.poll_due = self.poll_due.min(now.max(self.polled + limits::RETRY_DELAYS.0));
    }

    /// Schedules a container list, to check that a deleted container is gone.
    pub(super) fn schedule_confirmation(&mut self, now: Timestamp) {
        self.confirm_due.get_or_insert(now + limits::DELETION_CHECK_DELAY);
    }

    /// Makes failed reads due at `by` at the latest and resets their backoff, because a new BBS may answer
    /// them.
    pub(super) fn retry_by(&mut self, by: Timestamp) {
        self.failures = self.failures.min(1);
        self.not_before = self.not_before.min(by);
    }

    /// Returns the number of scheduled and unanswered reads.
    pub(super) fn len(&self) -> usize {
        self.wanted.len() + self.requests.len()
    }

    pub(super) fn is_pending(&self) -> bool {
        self.cell_wanted || !self.wanted.is_empty() || !self.requests.is_empty()
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let wants = self.cell_wanted || !self.wanted.is_empty();
        let retry = (wants && self.failures > 0 && self.requests.is_empty()).then_some(self.not_before);
        let list =
            self.listing.is_none().then(|| self.poll_due.min(self.confirm_due.unwrap_or(self.poll_due)));
        [list, retry].into_iter().flatten().min()
    }
}

impl Rep {
    /// Requests a container list when one is due. Only one list is requested at a time. Otherwise the rep
    /// could mistake an old list for the answer to a later request. Containers that started between the two
    /// requests would then seem to be gone.
    pub(super) fn poll_when_due(&mut self) {
        if self.reads.listing.is_some() {
            return;
        }
        let poll = self.reads.poll_due <= self.now;
        if !poll && self.reads.confirm_due.is_none_or(|at| at > self.now) {
            return;
        }
        if poll {
            let interval =
                if self.is_evacuating() { self.settings.evacuation_poll } else { self.settings.poll };
            self.reads.polled = self.now;
            self.reads.poll_due = self.now + interval;
        }
        let since = self.next_message();
        self.reads.confirm_due = None;
        self.reads.listing = Some(Listing { since, poll });
        self.emit(Effect::ListContainers);
    }

    /// Handles the executor's list of all containers.
    pub(super) fn containers_listed(&mut self, containers: Vec<Container>) {
        let guids: BTreeSet<InstanceGuid> = containers.iter().map(|one| one.instance_guid).collect();
        let changed: Vec<InstanceGuid> = containers
            .into_iter()
            .filter_map(|one| Some(one.instance_guid).filter(|_| self.merge(one)))
            .collect();
        if let Some(listing) = self.reads.listing.take() {
            self.remove_unlisted(listing, &guids);
        }
        for guid in changed {
            self.inspect(guid, Knowledge::Remembered);
        }
    }

    /// Removes the containers that the executor knew at the time of the request but did not list. A listed
    /// container for which a deletion was ordered is still being deleted.
    fn remove_unlisted(&mut self, listing: Listing, listed: &BTreeSet<InstanceGuid>) {
        for guid in self.holds.guids() {
            let Some(hold) = self.holds.get(guid) else { continue };
            let known = hold.rank() != Rank::Reserved && hold.since < listing.since;
            let leaving = hold.is_deleting();
            if known && !listed.contains(&guid) {
                self.container_vanished(guid);
            } else if leaving {
                self.reads.schedule_confirmation(self.now);
                if listing.poll && known {
                    self.emit(Effect::Delete(guid));
                }
            }
        }
        if listing.poll {
            self.reads.request_cell();
            let staying = self.holds.iter().filter(|(_, hold)| !hold.is_deleting()).map(|(guid, _)| guid);
            self.reads.wanted.extend(staying);
        }
    }

    /// Requests the scheduled records, up to the limit of unanswered requests.
    pub(super) fn send_reads(&mut self) {
        if self.reads.not_before > self.now {
            return;
        }
        let (reads, holds) = (&mut self.reads, &self.holds);
        reads.wanted.retain(|guid| holds.get(*guid).is_some_and(|hold| !hold.is_deleting()));
        while self.reads.requests.len() < limits::MAX_READS_IN_FLIGHT {
            let cell = std::mem::take(&mut self.reads.cell_wanted);
            let guids: Vec<InstanceGuid> = self.reads.wanted.iter().copied().take(BATCH).collect();
            if !cell && guids.is_empty() {
                return;
            }
            self.reads.wanted.retain(|guid| !guids.contains(guid));
            let records = Records {
                cell_id: self.settings.cell_id.clone(),
                work: self.work_of(&guids),
                at_least: (self.position > Position(0)).then_some(self.position),
            };
            let id = self.next_message();
            self.reads.requests.insert(id, RecordRequest { guids, cell });
            self.emit(Effect::AskRecords { id, records });
        }
    }

    /// Returns the work of these containers without duplicates.
    fn work_of(&self, guids: &[InstanceGuid]) -> Vec<WorkKey> {
        let work = guids.iter().filter_map(|guid| self.holds.get(*guid)).map(|hold| &hold.container().work);
        let by_key: BTreeMap<Key, &WorkKey> = work.map(|work| (Key::for_work(work), work)).collect();
        by_key.into_values().cloned().collect()
    }

    /// Handles the BBS's answer to a request for records.
    pub(super) fn records_answered(&mut self, id: u64, answer: Option<Result<RecordsAnswer, Refusal>>) {
        let Some(ask) = self.reads.requests.remove(&id) else { return };
        let why = match answer {
            Some(Ok(answer)) => {
                self.reads.failures = 0;
                self.reads.not_before = Timestamp(0);
                self.apply_records(id, &ask, &answer);
                return;
            }
            Some(Err(refusal)) => refusal.to_string(),
            None => "no answer in time".to_owned(),
        };
        self.log(Level::Info, format!("cannot read records: {why}"));
        self.reads.failures += 1;
        self.reads.not_before = self.now + limits::backoff(self.reads.failures);
        self.reads.cell_wanted |= ask.cell;
        self.reads.wanted.extend(ask.guids);
    }

    fn apply_records(&mut self, id: u64, ask: &RecordRequest, answer: &RecordsAnswer) {
        self.learn(answer.position, answer.terms);
        self.note_evacuation(id, answer);
        let read = self.store_records(ask, answer);
        let opening = self.phase == Phase::Starting;
        if opening {
            if self.reads.is_pending() {
                return;
            }
            self.open(ask.cell);
        }
        for guid in &read {
            if let Some(hold) = self.holds.get_mut(*guid).filter(|_| ask.cell) {
                hold.reported_case = None;
            }
            self.inspect(*guid, Knowledge::Read);
        }
        if opening {
            for guid in self.holds.guids().into_iter().filter(|guid| !read.contains(guid)) {
                self.inspect(guid, Knowledge::Remembered);
            }
        }
        if ask.cell {
            self.correct_orphaned_records(&answer.records);
        }
    }

    /// Updates the evacuation state from an answer. While the rep starts, the answer with the highest
    /// position is used. The position in an order may be forged. The rep therefore checks each answer to a
    /// request that was sent after the order. If the answering BBS does not know the position, the order no
    /// longer outranks later orders.
    fn note_evacuation(&mut self, id: u64, answer: &RecordsAnswer) {
        if answer.position >= self.ordered.position {
            self.ordered.evacuation = answer.evacuation;
            if self.phase == Phase::Starting {
                self.ordered.position = answer.position;
            }
        } else if id > self.ordered.at {
            self.ordered.position = self.ordered.position.min(self.position);
        }
    }

    /// Stores the records of an answer. Returns the containers for which the stored record is up to date.
    fn store_records(&mut self, ask: &RecordRequest, answer: &RecordsAnswer) -> BTreeSet<InstanceGuid> {
        let by_key: BTreeMap<Key, &Record> =
            answer.records.iter().filter_map(|record| Some((Key::for_record(record)?, record))).collect();
        let told = by_key.keys().flat_map(|key| self.holds.with_key(key));
        let guids: BTreeSet<InstanceGuid> = told.chain(ask.guids.iter().copied()).collect();
        let mut read = BTreeSet::new();
        for guid in guids {
            let Some(hold) = self.holds.get_mut(guid) else { continue };
            if hold.rank() == Rank::Reserved && (self.flights.has(guid) || !hold.prepared) {
                // The report that claims this work is not answered or not sent yet. The BBS that decides on
                // the report knows a later record than the BBS that answers queries.
                continue;
            }
            let record =
                by_key.get(&Key::for_work(&hold.container().work)).copied().unwrap_or(&Record::Absent);
            if hold.learn(record, answer.position) {
                read.insert(guid);
            }
        }
        read
    }

    /// Leaves the starting phase once the containers and records are known. The rep sends a heartbeat. The
    /// rep then accepts work, unless the cell must be evacuated. If the records came in several answers, a
    /// poll follows, to detect records without containers.
    fn open(&mut self, complete: bool) {
        let limit = self.settings.evacuation_timeout;
        let until = match self.ordered.evacuation {
            Evacuation::None => None,
            Evacuation::Requested => Some(self.now + limit),
            Evacuation::Started(at) => Some(self.now - self.clock.clock_time_at(self.now).since(at) + limit),
        };
        self.phase = until.map_or(Phase::Open, |until| Phase::Evacuating { until });
        if let Some(until) = until {
            let held = log_text::counted(self.holds.guids().len(), "container");
            let left = until.since(self.now).as_secs();
            let text = format!("evacuation continues: {held} to move away within {left} s");
            self.log(Level::Info, text);
        }
        self.send_heartbeat();
        if !complete {
            self.reads.poll_soon(self.now);
        }
    }

    /// Corrects records that name missing containers of this cell.
    fn correct_orphaned_records(&mut self, records: &[Record]) {
        let here = |by: &&Instance| by.cell_id == self.settings.cell_id;
        let named = records.iter().flat_map(|record| {
            judge::named_containers(record).filter(here).map(move |by| (by.instance_guid, record))
        });
        // A deleted container counts as missing once none of its processes runs.
        let gaps: Vec<_> = named
            .filter(|(guid, _)| {
                self.holds.get(*guid).is_none_or(|hold| hold.is_deleting() && !hold.is_live())
            })
            .take(limits::MAX_ORPHANS)
            .collect();
        for (guid, record) in gaps {
            self.correct_orphaned_record(guid, record);
        }
    }
}
