//! Metrics and probes of an auctioneer.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use auctioneer::{Auctioneer, Totals};
use bus::Bus;
use journal::Journal;
use metrics::catalogue as of;
use metrics::counters::Histogram;
use metrics::family::{Sample, Service};
use metrics::page::{Source, SourceFuture};
use parking_lot::Mutex;
use schemas::Position;
use schemas::message::LeadershipStatus;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::lag::Lag;
use super::machine::MachineMetrics;
use super::{MetricsRegistry, samples_by, standing_text};
use crate::drive::Observer;

/// Metrics of an auctioneer. The metrics outlive the auctioneer's state machines.
#[derive(Debug)]
pub(crate) struct AuctioneerMetrics {
    driven: MachineMetrics,
    lag: Arc<Lag>,
    auction: Histogram,
    work: Histogram,
    seen: Mutex<MachineState>,
}

/// State of the machine after its last turn (the handling of one batch of inputs).
#[derive(Clone, Copy, Debug, Default)]
struct MachineState {
    standing: Option<LeadershipStatus>,
    caught_up: bool,
    /// Totals of the previous machines.
    before: Totals,
    deeds: Totals,
    ready: u64,
    handed_out: u64,
    blocked: u64,
}

impl AuctioneerMetrics {
    /// Creates and registers the metrics of an auctioneer.
    pub(crate) fn register(
        watching: &MetricsRegistry,
        (bus, journal): (Bus, Journal),
        refused: Arc<AtomicU64>,
        ends: CancellationToken,
    ) -> Arc<Self> {
        let watch = Arc::new(Self {
            driven: MachineMetrics::new(bus, refused),
            lag: Arc::default(),
            auction: Histogram::durations(),
            work: Histogram::quantities(),
            seen: Mutex::default(),
        });
        watching.register_follower(&watch, (&watch.lag, journal), Self::position, ends);
        watch
    }

    /// Records that the machine is no longer driven. A new machine may follow.
    pub(crate) fn mark_idle(&self) {
        self.driven.pulse.record_end();
        let mut seen = self.seen.lock();
        *seen = MachineState { before: sum(seen.before, seen.deeds), ..MachineState::default() };
    }

    fn position(&self) -> Position {
        self.seen.lock().standing.map_or(Position(0), |standing| standing.position)
    }
}

const fn sum(one: Totals, other: Totals) -> Totals {
    Totals {
        auctions: one.auctions + other.auctions,
        work: one.work + other.work,
        placed: one.placed + other.placed,
        unplaced: one.unplaced + other.unplaced,
        refused: one.refused + other.refused,
        unanswered: one.unanswered + other.unanswered,
    }
}

impl Source for AuctioneerMetrics {
    fn service(&self) -> Service {
        Service::Auctioneer
    }

    fn tell(&self) -> SourceFuture<'_, Vec<Sample>> {
        let seen = *self.seen.lock();
        let deeds = sum(seen.before, seen.deeds);
        let mut told = self.driven.samples().to_vec();
        told.extend([
            of::LEADER.value_sample(seen.standing.is_some_and(|standing| standing.leads)),
            of::AUCTION.value_sample(self.auction.snapshot()),
            of::AUCTION_WORK.value_sample(self.work.snapshot()),
        ]);
        let outcomes = [
            ("placed", deeds.placed),
            ("unplaced", deeds.unplaced),
            ("refused", deeds.refused),
            ("unanswered", deeds.unanswered),
        ];
        told.extend(samples_by(&of::PLACEMENTS, outcomes));
        let work = [("ready", seen.ready), ("in_flight", seen.handed_out), ("blocked", seen.blocked)];
        told.extend(samples_by(&of::WORK, work));
        if let Some(standing) = seen.standing {
            let behind = self.lag.behind(standing.position);
            told.extend([
                of::POSITION.value_sample(standing.position.0),
                of::LAG_ENTRIES.value_sample(behind.entries),
                of::LAG.value_sample(behind.duration.as_secs_f64()),
            ]);
        }
        Box::pin(std::future::ready(told))
    }

    fn status_text(&self) -> String {
        self.seen.lock().standing.map_or_else(|| "reading the journal".to_owned(), standing_text)
    }

    fn hang_reason(&self) -> Option<String> {
        self.driven.hang_description()
    }

    fn unready_reasons(&self) -> SourceFuture<'_, Vec<String>> {
        let mut wrong = self.driven.problems();
        let seen = *self.seen.lock();
        match seen.standing.filter(|_| seen.caught_up) {
            Some(standing) => wrong.extend(self.lag.behind(standing.position).problem()),
            None => wrong.push("still reading the journal".to_owned()),
        }
        Box::pin(std::future::ready(wrong))
    }
}

/// Observer of the machine of an auctioneer.
#[derive(Debug)]
pub(crate) struct AuctioneerObserver<'a>(pub(crate) &'a AuctioneerMetrics);

impl Observer<Auctioneer> for AuctioneerObserver<'_> {
    fn after_step(&mut self, machine: &Auctioneer, began: Instant) {
        let Self(watch) = self;
        let (deeds, counts) = (machine.totals(), machine.counts());
        let mut seen = watch.seen.lock();
        if deeds.auctions > seen.deeds.auctions {
            watch.auction.observe_duration(began.elapsed());
            watch.work.observe_quantity(u32::try_from(deeds.work - seen.deeds.work).unwrap_or(u32::MAX));
        }
        *seen = MachineState {
            standing: Some(machine.standing()),
            caught_up: machine.is_caught_up(),
            before: seen.before,
            deeds,
            ready: counts.ready as u64,
            handed_out: counts.handed_out as u64,
            blocked: counts.blocked as u64,
        };
        drop(seen);
        watch.driven.pulse.record_turn();
    }
}
