//! What an auctioneer tells whoever watches it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use auctioneer::{Auctioneer, Deeds};
use bus::Bus;
use journal::Journal;
use metrics::catalogue as of;
use metrics::counted::Histogram;
use metrics::family::{Sample, Service};
use metrics::page::{Saying, Source};
use metrics::pulse::Pulse;
use schemas::Position;
use schemas::message::Standing;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Watching;
use super::bbs::by;
use super::lag::Lag;
use crate::wire::drive::Onlooker;

/// What an auctioneer counts. It outlives its machines.
#[derive(Debug)]
pub(crate) struct AuctioneerWatch {
    bus: Bus,
    refused: Arc<AtomicU64>,
    lag: Arc<Lag>,
    pulse: Pulse,
    auction: Histogram,
    work: Histogram,
    seen: Mutex<Seen>,
}

/// How the machine is, as of its last turn.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    standing: Option<Standing>,
    caught_up: bool,
    /// What machines before this one did.
    before: Deeds,
    deeds: Deeds,
    ready: u64,
    handed_out: u64,
    blocked: u64,
}

impl AuctioneerWatch {
    /// Begins to watch an auctioneer, and to tell whoever watches.
    pub(crate) fn begin(
        watching: &Watching,
        (bus, journal): (Bus, Journal),
        refused: Arc<AtomicU64>,
        ends: CancellationToken,
    ) -> Arc<Self> {
        let watch = Arc::new(Self {
            bus,
            refused,
            lag: Arc::default(),
            pulse: Pulse::default(),
            auction: Histogram::of_seconds(),
            work: Histogram::of_things(),
            seen: Mutex::default(),
        });
        if watching.is_on() {
            let of = Arc::clone(&watch);
            watch.lag.watch(journal, move || of.position(), ends);
        }
        watching.add(Arc::clone(&watch) as Arc<dyn Source>);
        watch
    }

    /// Its machine is driven no more; another one may be.
    pub(crate) fn rests(&self) {
        self.pulse.end();
        let mut seen = self.lock();
        *seen = Seen { before: sum(seen.before, seen.deeds), ..Seen::default() };
    }

    fn position(&self) -> Position {
        self.lock().standing.map_or(Position(0), |standing| standing.position)
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const fn sum(one: Deeds, other: Deeds) -> Deeds {
    Deeds {
        auctions: one.auctions + other.auctions,
        work: one.work + other.work,
        placed: one.placed + other.placed,
        unplaced: one.unplaced + other.unplaced,
        refused: one.refused + other.refused,
        unanswered: one.unanswered + other.unanswered,
    }
}

impl Source for AuctioneerWatch {
    fn service(&self) -> Service {
        Service::Auctioneer
    }

    fn tell(&self) -> Saying<'_, Vec<Sample>> {
        let seen = *self.lock();
        let deeds = sum(seen.before, seen.deeds);
        let mut told = vec![
            of::CONNECTED.says(self.bus.is_connected()),
            of::VIOLATIONS.says(self.refused.load(Ordering::Relaxed)),
            of::LEADER.says(seen.standing.is_some_and(|standing| standing.leads)),
            of::AUCTION.says(self.auction.observed()),
            of::AUCTION_WORK.says(self.work.observed()),
        ];
        let outcomes = [
            ("placed", deeds.placed),
            ("unplaced", deeds.unplaced),
            ("refused", deeds.refused),
            ("unanswered", deeds.unanswered),
        ];
        told.extend(by(&of::PLACEMENTS, outcomes));
        let work = [("ready", seen.ready), ("handed_out", seen.handed_out), ("blocked", seen.blocked)];
        told.extend(by(&of::WORK, work));
        if let Some(standing) = seen.standing {
            let behind = self.lag.behind(standing.position);
            told.extend([
                of::POSITION.says(standing.position.0),
                of::LAG_ENTRIES.says(behind.entries),
                of::LAG.says(behind.since.as_secs_f64()),
            ]);
        }
        Box::pin(std::future::ready(told))
    }

    fn hangs(&self) -> Option<String> {
        self.pulse.hangs().map(|still| format!("its loop has stood still for {} s", still.as_secs()))
    }

    fn lacks(&self) -> Saying<'_, Vec<String>> {
        let mut wrong: Vec<String> = self.hangs().into_iter().collect();
        if !self.bus.is_connected() {
            wrong.push("no connection to a NATS server".to_owned());
        }
        let seen = *self.lock();
        match seen.standing.filter(|_| seen.caught_up) {
            Some(standing) => wrong.extend(self.lag.behind(standing.position).wrong()),
            None => wrong.push("it is still reading the journal".to_owned()),
        }
        Box::pin(std::future::ready(wrong))
    }
}

/// Looks on while the machine of an auctioneer is driven.
#[derive(Debug)]
pub(crate) struct AuctioneerOnlooker<'a>(pub(crate) &'a AuctioneerWatch);

impl Onlooker<Auctioneer> for AuctioneerOnlooker<'_> {
    fn acted(&mut self, machine: &Auctioneer, began: Instant) {
        let Self(watch) = self;
        let (deeds, counts) = (machine.deeds(), machine.counts());
        let mut seen = watch.lock();
        if deeds.auctions > seen.deeds.auctions {
            watch.auction.took(began.elapsed());
            watch.work.was(u32::try_from(deeds.work - seen.deeds.work).unwrap_or(u32::MAX));
        }
        *seen = Seen {
            standing: Some(machine.standing()),
            caught_up: machine.is_caught_up(),
            before: seen.before,
            deeds,
            ready: counts.ready as u64,
            handed_out: counts.handed_out as u64,
            blocked: counts.blocked as u64,
        };
        drop(seen);
        watch.pulse.turn();
    }
}
