//! Work that auctioneers send and reps accept.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use projections::World;
use schemas::Timestamp;
use schemas::container::WorkKey;
use schemas::message::{Heartbeat, Perform, PerformReply};
use schemas::names::CellId;

use crate::checkers::Notes;
use crate::invariants::Invariant as I;
use crate::shape::Life;

/// Work on its way through a rep.
struct Received {
    perform: Perform,
    /// Highest auctioneer term that the rep knew.
    highest_term: u64,
    /// `true` if the rep had to refuse new work.
    evacuates: bool,
}

/// Messages so far.
#[derive(Default)]
pub(super) struct Placing {
    /// Work that reps have not answered.
    received: BTreeMap<u64, Received>,
    terms: BTreeMap<Life, Terms>,
    /// Time of the last heartbeat of each cell at each auctioneer.
    heartbeats: BTreeMap<(Life, CellId), Timestamp>,
    leaders: BTreeMap<Life, Leader>,
    /// Work that reps accepted. A repeated order is answered again.
    accepted: BTreeSet<(Life, WorkKey, Timestamp)>,
}

/// An auctioneer that leads.
struct Leader {
    term: u64,
    since: Timestamp,
    /// Cells that have been present since then.
    present: Vec<CellId>,
}

/// Auctioneer terms that a rep knows.
#[derive(Default)]
struct Terms {
    /// Highest term that a BBS reported.
    elected: u64,
    /// Highest term of accepted work, and the time of the first such work.
    accepted: (u64, Timestamp),
}

fn present(world: &World) -> Vec<CellId> {
    world.cells().filter(|(_, cell)| cell.present).map(|(id, _)| id.clone()).collect()
}

impl Placing {
    /// Records that a rep receives work.
    pub(super) fn received(
        &mut self,
        rep: Life,
        (requester, perform): (u64, Perform),
        evacuates: bool,
        (now, clock_slack): (Timestamp, Duration),
    ) {
        let terms = self.terms.entry(rep).or_default();
        let (accepted, since) = terms.accepted;
        let confirmed = now.since(since) + clock_slack < rep::limits::UNCONFIRMED_TERM_TIMEOUT;
        let highest_term = terms.elected.max(if confirmed { accepted } else { 0 });
        self.received.insert(requester, Received { perform, highest_term, evacuates });
    }

    /// Records the term that a BBS reported to a rep.
    pub(super) fn term_reported(&mut self, rep: Life, elected: u64) {
        let terms = self.terms.entry(rep).or_default();
        terms.elected = terms.elected.max(elected);
    }

    /// Records a heartbeat that reaches an auctioneer.
    pub(super) fn heartbeat(&mut self, auctioneer: Life, beat: &Heartbeat, now: Timestamp) {
        self.heartbeats.insert((auctioneer, beat.cell_id.clone()), now);
    }

    /// Records that an auctioneer, which knows this World, leads in a term.
    pub(super) fn leads(
        &mut self,
        auctioneer: Life,
        (term, now): (u64, Timestamp),
        world: &World,
        wait: Duration,
    ) {
        match self.leaders.get_mut(&auctioneer).filter(|leader| leader.term == term) {
            Some(leader) if now.since(leader.since) < wait => {
                leader.present.retain(|cell| world.is_present(cell));
            }
            Some(_) => {}
            None => {
                self.leaders.insert(auctioneer, Leader { term, since: now, present: present(world) });
            }
        }
    }

    /// Checks that a new leader that places work knows the state of every present cell.
    pub(super) fn places(
        &self,
        auctioneer: Life,
        world: &World,
        (now, clock_slack): (Timestamp, Duration),
        settings: &auctioneer::Settings,
        notes: &mut Notes,
    ) {
        let Some(leader) = self.leaders.get(&auctioneer) else { return };
        if now.since(leader.since) + clock_slack >= settings.heartbeat {
            return;
        }
        let is_unknown = |cell: &&CellId| {
            let at = self.heartbeats.get(&(auctioneer, (*cell).clone()));
            at.is_none_or(|at| *at + settings.cell_timeout + clock_slack < leader.since)
        };
        let unknown = leader.present.iter().filter(|cell| world.is_present(cell)).find(is_unknown);
        notes.check(I::SeesBeforePlacing, unknown.is_none(), || {
            format!(
                "{} leads since {} and places work without the state of {unknown:?}",
                auctioneer.0, leader.since
            )
        });
    }

    /// Checks the answer of a rep. The rep decided when the work arrived.
    pub(super) fn answered(
        &mut self,
        rep: Life,
        requester: u64,
        reply: &PerformReply,
        now: Timestamp,
        notes: &mut Notes,
    ) {
        let Some(Received { perform, highest_term, evacuates }) = self.received.remove(&requester) else {
            return;
        };
        let terms = self.terms.entry(rep).or_default();
        let term = perform.id.term;
        notes.check(I::StaleTermHarmless, term >= highest_term, || {
            format!("{} accepts work of term {term}, and knows term {highest_term}", rep.0)
        });
        if term > terms.accepted.0 {
            terms.accepted = (term, now);
        }
        let refused: BTreeSet<u32> = reply.refused.iter().map(|(at, _)| *at).collect();
        for (_, work) in (0_u32..).zip(perform.work).filter(|(at, _)| !refused.contains(at)) {
            let key = work.key.clone();
            let is_new = self.accepted.insert((rep, work.key, work.attempt));
            notes.check(I::Evacuation, !is_new || !evacuates, || {
                format!("{} accepts {key} and evacuates", rep.0)
            });
        }
    }
}
