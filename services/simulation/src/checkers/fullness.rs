//! How full a cell is said to be (Diego Dev Notes, "Communicating Fullness"): what is free is what its containers and
//! reservations leave.
//!
//! A rep hears late of what ends, and a reservation may be dropped at any time. So what is used lies between what runs
//! now, and what ran lately or was reserved lately; when a cell is quiet, both are the same.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::Timestamp;
use schemas::container::{Container, ContainerState, WorkKey};
use schemas::message::Work;
use schemas::names::InstanceGuid;
use schemas::resources::Resources;

use super::Checkers;
use crate::promises::{Broken, Promise};

/// A rep hears for so long of a container that is gone: it was paused, is told late, or looks only every 30 s.
const LATELY: Duration = Duration::from_secs(90);
/// A reservation is dropped after 60 s (docs/internals/model/containers.md, "Containers") by a clock that may stand still for 30 s, of a rep that
/// may be paused for as long.
const RESERVED: Duration = Duration::from_secs(130);
/// A rep that says nothing for longer was stopped, or wasn't there.
const SILENT: Duration = Duration::from_secs(30);
/// What an auctioneer knows of a cell is as old as this at most: a heartbeat's interval, and what it takes.
const KNOWN: Duration = Duration::from_secs(8);

/// What each cell holds.
#[derive(Default)]
pub(super) struct Fullness(BTreeMap<usize, Holds>);

#[derive(Default)]
struct Holds {
    /// Containers: what each takes, since when it is known, and when it was last there.
    seen: BTreeMap<InstanceGuid, Seen>,
    /// What its rep took, of which request and attempt, and made no container for. It may take by a later request what it
    /// refuses by an earlier one, and answers each once the containers of all its work are prepared.
    reserved: BTreeMap<(u64, WorkKey, Timestamp), (Timestamp, Resources)>,
    /// When its rep spoke last.
    spoke: Option<Timestamp>,
}

struct Seen {
    takes: Resources,
    since: Timestamp,
    last: Timestamp,
    /// Whether something of it ran then.
    lives: bool,
}

impl Fullness {
    /// The rep of a cell took work.
    pub(super) fn reserved(&mut self, cell: usize, requester: u64, taken: Vec<Work>, now: Timestamp) {
        let reserved = &mut self.0.entry(cell).or_default().reserved;
        for work in taken {
            reserved.insert((requester, work.key, work.attempt), (now, work.definition.resources()));
        }
    }

    /// The rep of a cell refused work after all.
    pub(super) fn refused(&mut self, cell: usize, requester: u64, refused: &[Work]) {
        let reserved = &mut self.0.entry(cell).or_default().reserved;
        for work in refused {
            reserved.remove(&(requester, work.key.clone(), work.attempt));
        }
    }

    /// The rep of a cell has a container made.
    pub(super) fn runs(
        &mut self,
        cell: usize,
        (guid, work): (InstanceGuid, &WorkKey),
        takes: Resources,
        now: Timestamp,
    ) {
        let holds = self.0.entry(cell).or_default();
        // Of several attempts each may have a reservation; they are alike, and the oldest is the first to be dropped.
        let of_work = holds.reserved.iter().filter(|((_, key, _), _)| key == work);
        let oldest = of_work.min_by_key(|(_, (at, _))| *at).map(|(name, _)| name.clone());
        oldest.into_iter().for_each(|name| {
            holds.reserved.remove(&name);
        });
        holds.seen.insert(guid, Seen { takes, since: now, last: now, lives: false });
    }

    /// A cell holds these containers.
    fn look(&mut self, cell: usize, containers: &[Container], now: Timestamp) -> &Holds {
        let holds = self.0.entry(cell).or_default();
        holds.seen.values_mut().for_each(|seen| seen.lives = false);
        for container in containers {
            let lives = match container.state {
                ContainerState::Initializing | ContainerState::Created | ContainerState::Running(_) => true,
                ContainerState::Reserved | ContainerState::Completed(_) => false,
            };
            let since = holds.seen.get(&container.instance_guid).map_or(now, |seen| seen.since);
            let seen = Seen { takes: container.resources, since, last: now, lives };
            holds.seen.insert(container.instance_guid, seen);
        }
        holds.seen.retain(|_, seen| now.since(seen.last) < LATELY);
        holds.reserved.retain(|_, (at, _)| now.since(*at) < RESERVED);
        holds
    }
}

impl Holds {
    /// Its rep speaks. For one that was stopped no time has passed: it tells what it knew before.
    fn speaks(&mut self, now: Timestamp) {
        let silent = self.spoke.replace(now).map_or(Duration::ZERO, |spoke| now.since(spoke));
        if silent > SILENT {
            self.seen.values_mut().for_each(|seen| seen.last = now.min(seen.last + silent));
            self.reserved.values_mut().for_each(|(at, _)| *at = now.min(*at + silent));
        }
    }

    /// What is used at least of what is there for so long, and at most.
    fn used(&self, age: Duration, now: Timestamp) -> (Resources, Resources) {
        let sum =
            |sizes: &mut dyn Iterator<Item = Resources>| sizes.fold(Resources::default(), Resources::plus);
        let live = self.seen.values().filter(|seen| seen.lives && now.since(seen.since) >= age);
        let least = sum(&mut live.map(|seen| seen.takes));
        let reserved = self.reserved.values().map(|(_, takes)| *takes);
        (least, sum(&mut self.seen.values().map(|seen| seen.takes).chain(reserved)))
    }
}

impl Checkers {
    /// A rep says what is free of its cell.
    #[must_use]
    pub(crate) fn says_free(
        &mut self,
        cell: usize,
        free: Resources,
        containers: &[Container],
        now: Timestamp,
    ) -> Option<Broken> {
        self.fullness.0.entry(cell).or_default().speaks(now);
        self.is_free(cell, free, containers, (Duration::ZERO, now), "its rep")
    }

    /// After minutes of peace an auctioneer knows what is free of a cell.
    #[must_use]
    pub(crate) fn knows_free(
        &mut self,
        cell: usize,
        free: Resources,
        containers: &[Container],
        now: Timestamp,
    ) -> Option<Broken> {
        self.is_free(cell, free, containers, (KNOWN, now), "an auctioneer")
    }

    fn is_free(
        &mut self,
        cell: usize,
        free: Resources,
        containers: &[Container],
        (age, now): (Duration, Timestamp),
        who: &str,
    ) -> Option<Broken> {
        let total = self.shape.cell(cell).total;
        let (least, most) = self.fullness.look(cell, containers, now).used(age, now);
        let right = total.minus(least).fits(free) && free.fits(total.minus(most));
        let how = || {
            format!(
                "of cell {cell} with {total:?} {who} says that {free:?} is free, {least:?} to {most:?} is in use"
            )
        };
        (!right).then(|| Broken { promise: Promise::FullnessTrue, how: how() })
    }
}
