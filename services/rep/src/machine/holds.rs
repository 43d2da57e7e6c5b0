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

/// A container or a reservation.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    /// As the executor last said; RESERVED while it is only a reservation.
    pub(super) container: Container,
    pub(super) reservation: Option<Reservation>,
    /// The attempt that it was reserved for; none: it was found.
    pub(super) attempt: Option<Timestamp>,
    /// The record of its key; none: it was never read.
    pub(super) known: Option<Known>,
    /// Whether the BBS asked for its end.
    pub(super) ending: bool,
    /// Whether the executor was told to stop it.
    pub(super) stopped: bool,
    /// Whether the BBS said that it belongs to another life.
    pub(super) outlived: bool,
    /// The case that was last reported: it is not reported again before the next poll.
    pub(super) tried: Option<(Rank, Verdict)>,
    /// When the executor got to know it, or was told to delete it, on the count of messages: a list that was asked
    /// for later shows so.
    pub(super) since: u64,
    /// Whether the executor was told to delete it.
    pub(super) leaving: bool,
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
    pub(super) fn new(container: Container, since: u64) -> Self {
        Self {
            container,
            reservation: None,
            attempt: None,
            known: None,
            ending: false,
            stopped: false,
            outlived: false,
            tried: None,
            since,
            leaving: false,
        }
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

    /// Whether it takes of the cell: all do until nothing of them runs and they are on their way out.
    const fn takes(&self) -> bool {
        !self.leaving || self.is_live()
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
}

impl Holds {
    pub(super) fn get(&self, guid: InstanceGuid) -> Option<&Hold> {
        self.of.get(&guid)
    }

    pub(super) fn get_mut(&mut self, guid: InstanceGuid) -> Option<&mut Hold> {
        self.of.get_mut(&guid)
    }

    pub(super) fn insert(&mut self, hold: Hold) {
        let guid = hold.container.instance_guid;
        self.by_key.entry(Key::of(&hold.container.work)).or_default().insert(guid);
        self.of.insert(guid, hold);
    }

    pub(super) fn remove(&mut self, guid: InstanceGuid) -> Option<Hold> {
        let hold = self.of.remove(&guid)?;
        let key = Key::of(&hold.container.work);
        if let Some(guids) = self.by_key.get_mut(&key) {
            guids.remove(&guid);
            if guids.is_empty() {
                self.by_key.remove(&key);
            }
        }
        Some(hold)
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

    pub(super) fn used(&self) -> Resources {
        let taken = self.of.values().filter(|hold| hold.takes());
        taken.fold(Resources::default(), |sum, hold| sum.plus(hold.container.resources))
    }

    /// How many there are, and for how many pieces of work.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.of.len(), self.by_key.len())
    }

    pub(super) fn reservations(&self) -> usize {
        self.of.values().filter(|hold| hold.reservation.is_some()).count()
    }

    pub(super) fn starting(&self) -> u32 {
        let starting = self.of.values().filter(|hold| hold.is_starting()).count();
        u32::try_from(starting).unwrap_or(u32::MAX)
    }

    /// Reservations that nobody claimed in time.
    pub(super) fn expired(&self, now: Timestamp) -> Vec<InstanceGuid> {
        let expiries = self.iter().filter_map(|(guid, hold)| Some((guid, expiry(hold)?)));
        expiries.filter(|(_, at)| *at <= now).map(|(guid, _)| guid).collect()
    }

    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.of.values().filter_map(expiry).min()
    }
}

fn expiry(hold: &Hold) -> Option<Timestamp> {
    hold.reservation.as_ref().map(|reservation| reservation.since + limits::RESERVATION)
}
