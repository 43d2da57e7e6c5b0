//! What the rep holds: containers of the executor, and reservations, which are its own.

use std::collections::{BTreeMap, BTreeSet};

use schemas::container::{Container, ContainerState, WorkKey};
use schemas::message::{Record, Work};
use schemas::names::{InstanceGuid, TaskGuid};
use schemas::resources::Resources;
use schemas::{ActualLrpKey, Position, Timestamp};

use super::judge::epoch_of;
use crate::limits;
use crate::reconcile::Verdict;

/// What a container and a record have in common, whatever the life: a place of a process, or a task.
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

/// A record as it was when the rep last heard of it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// Where the log stood; 0 for what an auctioneer said with the work.
    pub(super) position: Position,
    pub(super) record: Record,
}

/// Work that waits to be claimed.
#[derive(Clone, Debug)]
pub(super) struct Reservation {
    pub(super) work: Work,
    pub(super) since: Timestamp,
}

/// A container or a reservation. What it takes of the cell changes by [`Holds`] alone, which keeps the sums.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    container: Container,
    reservation: Option<Reservation>,
    leaving: bool,
    /// Whether the executor has prepared its container. Only a reservation waits for that.
    pub(super) prepared: bool,
    /// The attempt that it was reserved for; none: it was found.
    pub(super) attempt: Option<Timestamp>,
    /// The record of its key; none: it was never read.
    pub(super) known: Option<Known>,
    /// Whether the BBS asked for its end.
    pub(super) ending: bool,
    /// Whether the executor was told to stop it.
    pub(super) stopped: bool,
    /// Whether the BBS said that nothing runs in it any more: it belongs to another life, or its place to something else.
    pub(super) outlived: bool,
    /// The case that was last reported: it is not reported again before the next poll.
    pub(super) tried: Option<(Rank, Verdict)>,
    /// When the executor got to know it, or was told to delete it, on the count of messages: a list that was asked
    /// for later shows so.
    pub(super) since: u64,
}

/// Containers by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContainerCounts {
    /// Reserved, and nothing else yet.
    pub reserved: u32,
    /// Being made.
    pub initializing: u32,
    /// Made, and not healthy yet.
    pub created: u32,
    /// Running.
    pub running: u32,
    /// Ended.
    pub completed: u32,
}

/// How far a container is. It never goes back.
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

    /// Room for work that waits to be claimed, with its record as the auctioneer told it.
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

    /// As the executor last said; RESERVED while it is only a reservation.
    pub(super) const fn container(&self) -> &Container {
        &self.container
    }

    pub(super) const fn reservation(&self) -> Option<&Reservation> {
        self.reservation.as_ref()
    }

    /// Whether the executor was told to delete it.
    pub(super) const fn is_leaving(&self) -> bool {
        self.leaving
    }

    pub(super) const fn rank(&self) -> Rank {
        rank(&self.container.state)
    }

    /// Whether something of it may run.
    pub(super) const fn is_live(&self) -> bool {
        match self.rank() {
            Rank::Initializing | Rank::Created | Rank::Running => true,
            Rank::Reserved | Rank::Completed => false,
        }
    }

    /// What it takes of the cell: all do until nothing of them runs and they are on their way out.
    fn taken(&self) -> Resources {
        if !self.leaving || self.is_live() { self.container.resources } else { Resources::default() }
    }

    /// When it is over, if it is a reservation.
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

    /// Takes what is known of its record, unless it knows better. A record of an earlier life than the container's
    /// comes from somebody who is behind.
    pub(super) fn learn(&mut self, record: &Record, position: Position) -> bool {
        let behind = epoch_of(record).is_some_and(|epoch| epoch < self.container.work.epoch());
        let newer = !behind && self.known.as_ref().is_none_or(|known| known.position <= position);
        if newer {
            self.known = Some(Known { position, record: record.clone() });
        }
        newer
    }
}

/// Every container and reservation.
#[derive(Debug, Default)]
pub(super) struct Holds {
    of: BTreeMap<InstanceGuid, Hold>,
    by_key: BTreeMap<Key, BTreeSet<InstanceGuid>>,
    /// What all of them take of the cell.
    used: Resources,
    /// Whether one takes less than when that was last told.
    freed: bool,
    /// How many of them are starting.
    starting: u32,
    /// When each reservation is over.
    expiries: BTreeSet<(Timestamp, InstanceGuid)>,
}

impl Holds {
    pub(super) fn get(&self, guid: InstanceGuid) -> Option<&Hold> {
        self.of.get(&guid)
    }

    pub(super) fn get_mut(&mut self, guid: InstanceGuid) -> Option<&mut Hold> {
        self.of.get_mut(&guid)
    }

    /// Adds one that is not there yet.
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

    /// The executor says how a container is now.
    pub(super) fn set_state(&mut self, guid: InstanceGuid, state: ContainerState) {
        self.change(guid, |hold| hold.container.state = state);
    }

    /// A reservation becomes a container. Answers its work, if it is one.
    pub(super) fn start(&mut self, guid: InstanceGuid, let_in_at: Position, since: u64) -> Option<Work> {
        self.change(guid, |hold| {
            let reservation = hold.reservation.take()?;
            hold.since = since;
            hold.container.let_in_at = let_in_at;
            hold.container.state = ContainerState::Initializing;
            Some(reservation.work)
        })?
    }

    /// The executor was told to delete it.
    pub(super) fn set_leaving(&mut self, guid: InstanceGuid, since: u64) {
        self.change(guid, |hold| (hold.leaving, hold.since) = (true, since));
    }

    /// Changes what one takes of the cell, and the sums with it.
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

    /// Whether this attempt to run this work is here already.
    pub(super) fn has_attempt(&self, work: &WorkKey, attempt: Timestamp) -> bool {
        self.with_key(&Key::of(work))
            .filter_map(|guid| self.get(guid))
            .any(|hold| hold.container.work == *work && hold.attempt == Some(attempt))
    }

    /// The container that runs this work, and was not told to end.
    pub(super) fn running(&self, work: &WorkKey) -> Option<InstanceGuid> {
        self.with_key(&Key::of(work)).find(|guid| {
            self.get(*guid).is_some_and(|hold| {
                let runs = matches!(hold.container.state, ContainerState::Running(_));
                runs && hold.container.work == *work && !hold.ending && !hold.leaving && !hold.outlived
            })
        })
    }

    /// What all of them take of the cell.
    pub(super) const fn used(&self) -> Resources {
        self.used
    }

    /// What they take was told.
    pub(super) const fn told(&mut self) {
        self.freed = false;
    }

    /// Whether one takes less than when that was last told. A container takes what it takes until it takes nothing.
    pub(super) const fn freed(&self) -> bool {
        self.freed
    }

    /// How many there are, and for how many pieces of work.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.of.len(), self.by_key.len())
    }

    /// How many there are of each state.
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

    /// How many are starting.
    pub(super) const fn starting(&self) -> u32 {
        self.starting
    }

    /// Reservations that nobody claimed in time.
    pub(super) fn expired(&self, now: Timestamp) -> Vec<InstanceGuid> {
        self.expiries.iter().take_while(|(at, _)| *at <= now).map(|(_, guid)| *guid).collect()
    }

    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.expiries.first().map(|(at, _)| *at)
    }
}
