//! Containers of the executor and reservations of the rep, with the resources of each. A reservation holds
//! resources for an instance or task that the rep has not claimed yet.

use std::collections::{BTreeMap, BTreeSet};

use schemas::container::{Container, ContainerState, WorkKey};
use schemas::message::{Record, Work};
use schemas::names::{InstanceGuid, TaskGuid};
use schemas::resources::Resources;
use schemas::{ActualLrpKey, Position, Timestamp};

use super::judge::epoch_of;
use crate::limits;
use crate::reconcile::Verdict;

/// Identity that a container shares with its record in all epochs. It is a slot of a process (an index with a
/// definition), or a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Lrp(ActualLrpKey),
    Task(TaskGuid),
}

impl Key {
    pub(super) fn for_work(work: &WorkKey) -> Self {
        match work {
            WorkKey::Lrp { key, .. } => Self::Lrp(key.clone()),
            WorkKey::Task { task_guid, .. } => Self::Task(task_guid.clone()),
        }
    }

    pub(super) fn for_record(record: &Record) -> Option<Self> {
        match record {
            Record::Absent => None,
            Record::Lrp(record) => Some(Self::Lrp(record.key.clone())),
            Record::Task(record) => Some(Self::Task(record.task_guid.clone())),
        }
    }
}

/// Record in its latest known state.
#[derive(Clone, Debug)]
pub(super) struct KnownRecord {
    /// Log position of the record at the read. 0 if the auctioneer sent the record together with the work.
    pub(super) position: Position,
    pub(super) record: Record,
}

/// Instance or task that waits to be claimed.
#[derive(Clone, Debug)]
pub(super) struct Reservation {
    pub(super) work: Work,
    pub(super) since: Timestamp,
}

/// Container or reservation. Only [`Allocations`] changes the fields that determine the resources, so that
/// the totals in [`Allocations`] stay correct.
#[derive(Clone, Debug)]
pub(super) struct Allocation {
    container: Container,
    reservation: Option<Reservation>,
    deleting: bool,
    /// `true` if the executor has prepared the container. Only reservations wait for the preparation.
    pub(super) prepared: bool,
    /// Time of the placement attempt for the reserved work. `None` if the executor listed the container.
    pub(super) attempt: Option<Timestamp>,
    /// Record with the same key as the container. `None` if the record was never read.
    pub(super) known: Option<KnownRecord>,
    /// `true` if the BBS requested the stop of the work.
    pub(super) stop_requested: bool,
    /// `true` if the executor was instructed to stop the container.
    pub(super) stop_sent: bool,
    /// `true` if the container is obsolete according to the BBS. An obsolete container belongs to another
    /// epoch, or its slot belongs to another container.
    pub(super) obsolete: bool,
    /// Last reported case. The same case is not reported again before the next poll.
    pub(super) reported_case: Option<(Rank, Verdict)>,
    /// Message counter at the time when the rep first listed the container, or ordered the executor to run or
    /// to delete it. A container list that is requested later reflects that event.
    pub(super) since: u64,
}

/// Number of containers by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContainerCounts {
    /// Resources are reserved, and the container does not exist yet.
    pub reserved: u32,
    /// The container is being created.
    pub initializing: u32,
    /// The container was created and is not healthy yet.
    pub created: u32,
    pub running: u32,
    /// The container has ended, with any result.
    pub completed: u32,
}

/// Progress of a container. The progress never decreases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Reserved,
    Initializing,
    Created,
    Running,
    Completed,
}

pub(super) const fn rank(state: &ContainerState) -> Rank {
    match state {
        ContainerState::Reserved => Rank::Reserved,
        ContainerState::Initializing => Rank::Initializing,
        ContainerState::Created => Rank::Created,
        ContainerState::Running(_) => Rank::Running,
        ContainerState::Completed(_) => Rank::Completed,
    }
}

impl Allocation {
    pub(super) const fn new(container: Container, since: u64) -> Self {
        Self {
            container,
            reservation: None,
            deleting: false,
            prepared: false,
            attempt: None,
            known: None,
            stop_requested: false,
            stop_sent: false,
            obsolete: false,
            reported_case: None,
            since,
        }
    }

    /// Creates a reservation for unclaimed work, with the record that the auctioneer sent.
    pub(super) fn reserved(
        container: Container,
        since: u64,
        reservation: Reservation,
        record: Record,
    ) -> Self {
        Self {
            known: Some(KnownRecord { position: Position(0), record }),
            attempt: Some(reservation.work.attempt),
            reservation: Some(reservation),
            ..Self::new(container, since)
        }
    }

    /// Returns the container in its last reported state. The state of a reservation is RESERVED.
    pub(super) const fn container(&self) -> &Container {
        &self.container
    }

    pub(super) const fn reservation(&self) -> Option<&Reservation> {
        self.reservation.as_ref()
    }

    /// Returns `true` if the executor was instructed to delete the container.
    pub(super) const fn is_deleting(&self) -> bool {
        self.deleting
    }

    pub(super) const fn rank(&self) -> Rank {
        rank(&self.container.state)
    }

    /// Returns `true` if processes of the container may be running.
    pub(super) const fn is_live(&self) -> bool {
        match self.rank() {
            Rank::Initializing | Rank::Created | Rank::Running => true,
            Rank::Reserved | Rank::Completed => false,
        }
    }

    /// Returns the resources that the container uses on the cell. The resources are zero only for a container
    /// that is being deleted and has no running process.
    fn resources_in_use(&self) -> Resources {
        if !self.deleting || self.is_live() { self.container.resources } else { Resources::default() }
    }

    /// Returns the time at which the reservation expires. `None` for a container.
    fn expiry(&self) -> Option<Timestamp> {
        self.reservation.as_ref().map(|reservation| reservation.since + limits::RESERVATION_TIMEOUT)
    }

    const fn is_starting(&self) -> bool {
        let starting = match self.rank() {
            Rank::Reserved | Rank::Initializing | Rank::Created => true,
            Rank::Running | Rank::Completed => false,
        };
        starting && !self.deleting
    }

    /// Stores a record unless a later record is known. Returns `true` if the record was stored. A record of
    /// an earlier epoch than that of the container is ignored, because it comes from a BBS that lags behind.
    pub(super) fn learn(&mut self, record: &Record, position: Position) -> bool {
        let behind = epoch_of(record).is_some_and(|epoch| epoch < self.container.work.epoch());
        let newer = !behind && self.known.as_ref().is_none_or(|known| known.position <= position);
        if newer {
            self.known = Some(KnownRecord { position, record: record.clone() });
        }
        newer
    }
}

/// Containers and reservations of the cell.
#[derive(Debug, Default)]
pub(super) struct Allocations {
    by_guid: BTreeMap<InstanceGuid, Allocation>,
    by_key: BTreeMap<Key, BTreeSet<InstanceGuid>>,
    /// Total resources used on the cell.
    used: Resources,
    /// `true` if resources were freed since the last heartbeat.
    freed: bool,
    /// Number of starting containers and reservations: all that are neither running nor being deleted.
    starting: u32,
    /// Reservations by expiry time.
    expiries: BTreeSet<(Timestamp, InstanceGuid)>,
}

impl Allocations {
    pub(super) fn get(&self, guid: InstanceGuid) -> Option<&Allocation> {
        self.by_guid.get(&guid)
    }

    pub(super) fn get_mut(&mut self, guid: InstanceGuid) -> Option<&mut Allocation> {
        self.by_guid.get_mut(&guid)
    }

    /// Adds a container or reservation that does not exist yet.
    pub(super) fn insert(&mut self, hold: Allocation) {
        let guid = hold.container.instance_guid;
        self.by_key.entry(Key::for_work(&hold.container.work)).or_default().insert(guid);
        self.count(&hold);
        self.by_guid.insert(guid, hold);
    }

    pub(super) fn remove(&mut self, guid: InstanceGuid) -> Option<Allocation> {
        let hold = self.by_guid.remove(&guid)?;
        self.uncount(&hold);
        self.freed |= hold.resources_in_use() != Resources::default();
        let key = Key::for_work(&hold.container.work);
        if let Some(guids) = self.by_key.get_mut(&key) {
            guids.remove(&guid);
            if guids.is_empty() {
                self.by_key.remove(&key);
            }
        }
        Some(hold)
    }

    /// Sets the reported state of a container.
    pub(super) fn set_state(&mut self, guid: InstanceGuid, state: ContainerState) {
        self.change(guid, |hold| hold.container.state = state);
    }

    /// Converts a reservation to a container and returns its work. `None` if `guid` is not a reservation.
    pub(super) fn start(&mut self, guid: InstanceGuid, let_in_at: Position, since: u64) -> Option<Work> {
        self.change(guid, |hold| {
            let reservation = hold.reservation.take()?;
            hold.since = since;
            hold.container.admitted_at = let_in_at;
            hold.container.state = ContainerState::Initializing;
            Some(reservation.work)
        })?
    }

    /// Records that the executor was instructed to delete the container.
    pub(super) fn set_deleting(&mut self, guid: InstanceGuid, since: u64) {
        self.change(guid, |hold| (hold.deleting, hold.since) = (true, since));
    }

    /// Changes a container or reservation, and updates the totals of its resources.
    fn change<T>(&mut self, guid: InstanceGuid, change: impl FnOnce(&mut Allocation) -> T) -> Option<T> {
        let mut hold = self.by_guid.remove(&guid)?;
        self.uncount(&hold);
        let before = hold.resources_in_use();
        let answer = change(&mut hold);
        self.freed |= hold.resources_in_use() != before;
        self.count(&hold);
        self.by_guid.insert(guid, hold);
        Some(answer)
    }

    fn count(&mut self, hold: &Allocation) {
        self.used = self.used.plus(hold.resources_in_use());
        self.starting += u32::from(hold.is_starting());
        self.expiries.extend(hold.expiry().map(|at| (at, hold.container.instance_guid)));
    }

    fn uncount(&mut self, hold: &Allocation) {
        self.used = self.used.minus(hold.resources_in_use());
        self.starting -= u32::from(hold.is_starting());
        if let Some(at) = hold.expiry() {
            self.expiries.remove(&(at, hold.container.instance_guid));
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (InstanceGuid, &Allocation)> {
        self.by_guid.iter().map(|(guid, hold)| (*guid, hold))
    }

    pub(super) fn guids(&self) -> Vec<InstanceGuid> {
        self.by_guid.keys().copied().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_guid.is_empty()
    }

    pub(super) fn with_key(&self, key: &Key) -> impl Iterator<Item = InstanceGuid> {
        self.by_key.get(key).into_iter().flatten().copied()
    }

    /// Returns `true` if a container or reservation for this placement attempt exists already.
    pub(super) fn has_attempt(&self, work: &WorkKey, attempt: Timestamp) -> bool {
        self.with_key(&Key::for_work(work))
            .filter_map(|guid| self.get(guid))
            .any(|hold| hold.container.work == *work && hold.attempt == Some(attempt))
    }

    /// Returns the running container of this work. Containers that are stopping, being deleted or obsolete do
    /// not count.
    pub(super) fn running(&self, work: &WorkKey) -> Option<InstanceGuid> {
        self.with_key(&Key::for_work(work)).find(|guid| {
            self.get(*guid).is_some_and(|hold| {
                let runs = matches!(hold.container.state, ContainerState::Running(_));
                runs && hold.container.work == *work
                    && !hold.stop_requested
                    && !hold.deleting
                    && !hold.obsolete
            })
        })
    }

    /// Returns the total resources used on the cell.
    pub(super) const fn used(&self) -> Resources {
        self.used
    }

    /// Records that a heartbeat reported the current resources.
    pub(super) const fn mark_reported(&mut self) {
        self.freed = false;
    }

    /// Returns `true` if resources were freed since the last heartbeat. A container is counted with its full
    /// resources until it uses no resources.
    pub(super) const fn freed(&self) -> bool {
        self.freed
    }

    /// Returns the number of containers and reservations, and the number of distinct keys.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.by_guid.len(), self.by_key.len())
    }

    /// Returns the number of containers by state.
    pub(super) fn by_state(&self) -> ContainerCounts {
        let mut counts = ContainerCounts::default();
        for hold in self.by_guid.values() {
            match hold.container.state {
                ContainerState::Reserved => counts.reserved += 1,
                ContainerState::Initializing => counts.initializing += 1,
                ContainerState::Created => counts.created += 1,
                ContainerState::Running(_) => counts.running += 1,
                ContainerState::Completed(_) => counts.completed += 1,
            }
        }
        counts
    }

    pub(super) fn reservations(&self) -> usize {
        self.expiries.len()
    }

    /// Returns the number of containers and reservations that are starting.
    pub(super) const fn starting(&self) -> u32 {
        self.starting
    }

    /// Returns the reservations that were not claimed in time.
    pub(super) fn expired(&self, now: Timestamp) -> Vec<InstanceGuid> {
        self.expiries.iter().take_while(|(at, _)| *at <= now).map(|(_, guid)| *guid).collect()
    }

    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.expiries.first().map(|(at, _)| *at)
    }
}
