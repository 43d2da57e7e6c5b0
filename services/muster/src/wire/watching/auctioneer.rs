//! Metrics and probes of an auctioneer.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use auctioneer::{Auctioneer, Deeds};
use bus::Bus;
use journal::Journal;
use metrics::catalogue as of;
use metrics::counted::Histogram;
use metrics::family::{Sample, Service};
use metrics::page::{Saying, Source};
use schemas::Position;
use schemas::message::Standing;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::driven::Driven;
use super::lag::Lag;
use super::{Watching, by, leading, lock};
use crate::wire::drive::Onlooker;

/// Metrics of an auctioneer. They outlive its machines.
#[derive(Debug)]
pub(crate) struct AuctioneerWatch {
    driven: Driven,
    lag: Arc<Lag>,
    auction: Histogram,
    work: Histogram,
    seen: Mutex<Seen>,
}

/// State of the machine, as of its last turn.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    standing: Option<Standing>,
    caught_up: bool,
    /// Totals of the previous machines.
    before: Deeds,
    deeds: Deeds,
    ready: u64,
    handed_out: u64,
    blocked: u64,
}

impl AuctioneerWatch {
    /// Creates and registers the metrics of an auctioneer.
    pub(crate) fn begin(
        watching: &Watching,
        (bus, journal): (Bus, Journal),
        refused: Arc<AtomicU64>,
        ends: CancellationToken,
    ) -> Arc<Self> {
        let watch = Arc::new(Self {
            driven: Driven::new(bus, refused),
            lag: Arc::default(),
            auction: Histogram::of_seconds(),
            work: Histogram::of_things(),
            seen: Mutex::default(),
        });
        watching.add_follower(&watch, (&watch.lag, journal), Self::position, ends);
        watch
    }

    /// Records that the machine is no longer driven. Another one may follow.
    pub(crate) fn rests(&self) {
        self.driven.pulse.end();
        let mut seen = lock(&self.seen);
        *seen = Seen { before: sum(seen.before, seen.deeds), ..Seen::default() };
    }

    fn position(&self) -> Position {
        lock(&self.seen).standing.map_or(Position(0), |standing| standing.position)
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
        let seen = *lock(&self.seen);
        let deeds = sum(seen.before, seen.deeds);
        let mut told = self.driven.tell().to_vec();
        told.extend([
            of::LEADER.says(seen.standing.is_some_and(|standing| standing.leads)),
            of::AUCTION.says(self.auction.observed()),
            of::AUCTION_WORK.says(self.work.observed()),
        ]);
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

    fn standing(&self) -> String {
        lock(&self.seen).standing.map_or_else(|| "reads the journal".to_owned(), leading)
    }

    fn hangs(&self) -> Option<String> {
        self.driven.hangs()
    }

    fn lacks(&self) -> Saying<'_, Vec<String>> {
        let mut wrong = self.driven.lacks();
        let seen = *lock(&self.seen);
        match seen.standing.filter(|_| seen.caught_up) {
            Some(standing) => wrong.extend(self.lag.behind(standing.position).wrong()),
            None => wrong.push("it is still reading the journal".to_owned()),
        }
        Box::pin(std::future::ready(wrong))
    }
}

/// Observer of the machine of an auctioneer.
#[derive(Debug)]
pub(crate) struct AuctioneerOnlooker<'a>(pub(crate) &'a AuctioneerWatch);

impl Onlooker<Auctioneer> for AuctioneerOnlooker<'_> {
    fn acted(&mut self, machine: &Auctioneer, began: Instant) {
        let Self(watch) = self;
        let (deeds, counts) = (machine.deeds(), machine.counts());
        let mut seen = lock(&watch.seen);
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
        watch.driven.pulse.turn();
    }
}
