//! Containers of the executor and reservations of the rep, with the resources that they use.

use std::collections::{BTreeMap, BTreeSet};

use schemas::container::{Container, ContainerState, WorkKey};
use schemas::message::{Record, Work};
use schemas::names::{InstanceGuid, TaskGuid};
use schemas::resources::Resources;
use schemas::{ActualLrpKey, Position, Timestamp};

use super::judge::epoch_of;
use crate::limits;
use crate::reconcile::Verdict;

/// Identity shared by a container and a record in every epoch: a place of a process, or a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Lrp(ActualLrpKey),
    Task(TaskGuid),
}

impl Key {
    pub(super) fn of(work: &WorkKey) -> Self {
        match work {
            WorkKey::Lrp { key, .. } => Self::Lrp(key.clone()),
            WorkKey::Task { task_guid, .. } => Self::Task(task_guid.clone()),
        }
    }

    pub(super) fn of_record(record: &Record) -> Option<Self> {
        match record {
            Record::Absent => None,
            Record::Lrp(record) => Some(Self::Lrp(record.key.clone())),
            Record::Task(record) => Some(Self::Task(record.task_guid.clone())),
        }
    }
}

/// Record in its latest known state.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// Log position of the record. 0 if the auctioneer sent it with the work.
    pub(super) position: Position,
    pub(super) record: Record,
}

/// Work that waits to be claimed.
#[derive(Clone, Debug)]
pub(super) struct Reservation {
    pub(super) work: Work,
    pub(super) since: Timestamp,
}

/// Container or reservation. Only [`Holds`] changes the fields that determine its resources, so that the sums
/// stay correct.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    container: Container,
    reservation: Option<Reservation>,
    leaving: bool,
    /// `true` if the executor has prepared the container. Only reservations wait for this.
    pub(super) prepared: bool,
    /// Attempt for which the room was reserved. `None` if the executor listed the container.
    pub(super) attempt: Option<Timestamp>,
    /// Record of the same key. `None` if it was never read.
    pub(super) known: Option<Known>,
    /// `true` if the BBS requested the stop of the work.
    pub(super) ending: bool,
    /// `true` if the executor was instructed to stop the container.
    pub(super) stopped: bool,
    /// `true` if the container is obsolete according to the BBS: it belongs to another epoch, or its place to
    /// another container.
    pub(super) outlived: bool,
    /// Case that was last reported. It is not reported again before the next poll.
    pub(super) tried: Option<(Rank, Verdict)>,
    /// Message counter at the time when the executor received the container or the order to delete it. A list
    /// requested later reflects this.
    pub(super) since: u64,
}

/// Number of containers by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContainerCounts {
    /// Reserved, without a container.
    pub reserved: u32,
    /// Being created.
    pub initializing: u32,
    /// Created and not yet healthy.
    pub created: u32,
    pub running: u32,
    /// Ended, with any result.
    pub completed: u32,
}

/// Progress of a container. It never decreases.
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

impl Hold {
    pub(super) const fn new(container: Container, since: u64) -> Self {
        Self {
            container,
            reservation: None,
            leaving: false,
            prepared: false,
            attempt: None,
            known: None,
            ending: false,
            stopped: false,
            outlived: false,
            tried: None,
            since,
        }
    }

    /// Creates a reservation for work that waits to be claimed, with the record that the auctioneer sent.
    pub(super) fn reserved(
        container: Container,
        since: u64,
        reservation: Reservation,
        record: Record,
    ) -> Self {
        Self {
            known: Some(Known { position: Position(0), record }),
            attempt: Some(reservation.work.attempt),
            reservation: Some(reservation),
            ..Self::new(container, since)
        }
    }

    /// Returns the container in the state last reported by the executor. RESERVED if there is only a
    /// reservation.
    pub(super) const fn container(&self) -> &Container {
        &self.container
    }

    pub(super) const fn reservation(&self) -> Option<&Reservation> {
        self.reservation.as_ref()
    }

    /// Returns `true` if the executor was instructed to delete the container.
    pub(super) const fn is_leaving(&self) -> bool {
        self.leaving
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

    /// Returns the resources used on the cell. They are zero only if the container is being deleted and has
    /// no running processes.
    fn taken(&self) -> Resources {
        if !self.leaving || self.is_live() { self.container.resources } else { Resources::default() }
    }

    /// Returns the expiry of a reservation.
    fn expiry(&self) -> Option<Timestamp> {
        self.reservation.as_ref().map(|reservation| reservation.since + limits::RESERVATION)
    }

    const fn is_starting(&self) -> bool {
        let starting = match self.rank() {
            Rank::Reserved | Rank::Initializing | Rank::Created => true,
            Rank::Running | Rank::Completed => false,
        };
        starting && !self.leaving
    }

    /// Stores a record unless a later one is known. Returns `true` if it was stored. A record of an earlier
    /// epoch than the container's comes from a BBS that lags behind.
    pub(super) fn learn(&mut self, record: &Record, position: Position) -> bool {
        let behind = epoch_of(record).is_some_and(|epoch| epoch < self.container.work.epoch());
        let newer = !behind && self.known.as_ref().is_none_or(|known| known.position <= position);
        if newer {
            self.known = Some(Known { position, record: record.clone() });
        }
        newer
    }
}

/// Containers and reservations of the cell.
#[derive(Debug, Default)]
pub(super) struct Holds {
    of: BTreeMap<InstanceGuid, Hold>,
    by_key: BTreeMap<Key, BTreeSet<InstanceGuid>>,
    /// Total resources used on the cell.
    used: Resources,
    /// `true` if resources were freed since the last heartbeat.
    freed: bool,
    /// Number of containers and reservations that are starting.
    starting: u32,
    /// Expiries of the reservations.
    expiries: BTreeSet<(Timestamp, InstanceGuid)>,
}

impl Holds {
    pub(super) fn get(&self, guid: InstanceGuid) -> Option<&Hold> {
        self.of.get(&guid)
    }

    pub(super) fn get_mut(&mut self, guid: InstanceGuid) -> Option<&mut Hold> {
        self.of.get_mut(&guid)
    }

    /// Adds a container or reservation that does not exist yet.
    pub(super) fn insert(&mut self, hold: Hold) {
        let guid = hold.container.instance_guid;
        self.by_key.entry(Key::of(&hold.container.work)).or_default().insert(guid);
        self.count(&hold);
        self.of.insert(guid, hold);
    }

    pub(super) fn remove(&mut self, guid: InstanceGuid) -> Option<Hold> {
        let hold = self.of.remove(&guid)?;
        self.discount(&hold);
        self.freed |= hold.taken() != Resources::default();
        let key = Key::of(&hold.container.work);
        if let Some(guids) = self.by_key.get_mut(&key) {
            guids.remove(&guid);
            if guids.is_empty() {
                self.by_key.remove(&key);
            }
        }
        Some(hold)
    }

    /// Sets the state of a container as the executor reported it.
    pub(super) fn set_state(&mut self, guid: InstanceGuid, state: ContainerState) {
        self.change(guid, |hold| hold.container.state = state);
    }

    /// Converts a reservation to a container and returns its work. `None` if it is not a reservation.
    pub(super) fn start(&mut self, guid: InstanceGuid, let_in_at: Position, since: u64) -> Option<Work> {
        self.change(guid, |hold| {
            let reservation = hold.reservation.take()?;
            hold.since = since;
            hold.container.let_in_at = let_in_at;
            hold.container.state = ContainerState::Initializing;
            Some(reservation.work)
        })?
    }

    /// Records that the executor was instructed to delete the container.
    pub(super) fn set_leaving(&mut self, guid: InstanceGuid, since: u64) {
        self.change(guid, |hold| (hold.leaving, hold.since) = (true, since));
    }

    /// Changes the resources of a container or reservation, and the sums accordingly.
    fn change<T>(&mut self, guid: InstanceGuid, change: impl FnOnce(&mut Hold) -> T) -> Option<T> {
        let mut hold = self.of.remove(&guid)?;
        self.discount(&hold);
        let before = hold.taken();
        let answer = change(&mut hold);
        self.freed |= hold.taken() != before;
        self.count(&hold);
        self.of.insert(guid, hold);
        Some(answer)
    }

    fn count(&mut self, hold: &Hold) {
        self.used = self.used.plus(hold.taken());
        self.starting += u32::from(hold.is_starting());
        self.expiries.extend(hold.expiry().map(|at| (at, hold.container.instance_guid)));
    }

    fn discount(&mut self, hold: &Hold) {
        self.used = self.used.minus(hold.taken());
        self.starting -= u32::from(hold.is_starting());
        if let Some(at) = hold.expiry() {
            self.expiries.remove(&(at, hold.container.instance_guid));
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (InstanceGuid, &Hold)> {
        self.of.iter().map(|(guid, hold)| (*guid, hold))
    }

    pub(super) fn guids(&self) -> Vec<InstanceGuid> {
        self.of.keys().copied().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub(super) fn with_key(&self, key: &Key) -> impl Iterator<Item = InstanceGuid> {
        self.by_key.get(key).into_iter().flatten().copied()
    }

    /// Returns `true` if this attempt to run the work is already present.
    pub(super) fn has_attempt(&self, work: &WorkKey, attempt: Timestamp) -> bool {
        self.with_key(&Key::of(work))
            .filter_map(|guid| self.get(guid))
            .any(|hold| hold.container.work == *work && hold.attempt == Some(attempt))
    }

    /// Returns the container that runs this work and was not asked to end.
    pub(super) fn running(&self, work: &WorkKey) -> Option<InstanceGuid> {
        self.with_key(&Key::of(work)).find(|guid| {
            self.get(*guid).is_some_and(|hold| {
                let runs = matches!(hold.container.state, ContainerState::Running(_));
                runs && hold.container.work == *work && !hold.ending && !hold.leaving && !hold.outlived
            })
        })
    }

    /// Returns the total resources used on the cell.
    pub(super) const fn used(&self) -> Resources {
        self.used
    }

    /// Records that a heartbeat reported the current resources.
    pub(super) const fn told(&mut self) {
        self.freed = false;
    }

    /// Returns `true` if resources were freed since the last heartbeat. A container keeps its full resources
    /// until it uses none.
    pub(super) const fn freed(&self) -> bool {
        self.freed
    }

    /// Returns the number of containers and reservations, and the number of distinct keys.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.of.len(), self.by_key.len())
    }

    /// Returns the number of containers by state.
    pub(super) fn by_state(&self) -> ContainerCounts {
        let mut counts = ContainerCounts::default();
        for hold in self.of.values() {
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
