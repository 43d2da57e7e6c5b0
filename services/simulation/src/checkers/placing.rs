//! What auctioneers give and reps take: in the order of priority (Diego Dev Notes,
//! "Auction Work Prioritization"), from the newest term, and not while a cell evacuates.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use projections::{WorkRef, World};
use schemas::container::{Epoch, WorkKey};
use schemas::message::{Heartbeat, Outcomes, Perform, PerformReply, PlacementOutcome, Work};
use schemas::names::{CellId, ServiceId};
use schemas::placement::{Explanation, INSUFFICIENT_RESOURCES};
use schemas::priority::Priority;
use schemas::resources::{Constraint, Resources};
use schemas::stamp::Actor;
use schemas::{Place, Refusal, Timestamp};

use super::auction::known::{lrp, name_of};
use super::peace;
use crate::nodes::{Life, Node, Shape, rep_of};
use crate::promises::{Broken, Promise};
use crate::racks;

/// What a rep was given, and what held for it then.
struct Given {
    perform: Perform,
    /// The highest term of an auctioneer that it knew.
    highest: u64,
    /// Whether it had to take nothing.
    evacuates: bool,
}

/// The messages so far.
#[derive(Default)]
pub(super) struct Placing {
    /// What a rep was given, until it answers.
    given: BTreeMap<u64, Given>,
    /// The terms of auctioneers that a rep knows.
    terms: BTreeMap<Life, Terms>,
    /// When each auctioneer heard each cell last.
    heard: BTreeMap<(Life, CellId), Timestamp>,
    leads: BTreeMap<Life, Leads>,
    /// What auctioneers gave to cells, and why.
    orders: BTreeMap<(CellId, WorkKey), Vec<Option<Explanation>>>,
    /// What auctioneers found no place for, and why.
    outcomes: Vec<Found>,
    /// What was taken before: it may be answered again.
    taken: BTreeSet<(Life, WorkKey, Timestamp)>,
    /// What was given before: its place is taken already.
    placed: BTreeSet<(CellId, WorkKey, Timestamp)>,
}

/// How long a term is believed that no answer of a BBS has named yet.
const UNCONFIRMED: Duration = Duration::from_secs(15);

/// So long a new auctioneer waits at most for the state of every cell.
const GATHERING: Duration = Duration::from_secs(5);

/// So long what a cell said counts.
const SILENCE: Duration = Duration::from_secs(15);

/// An auctioneer that leads.
struct Leads {
    term: u64,
    since: Timestamp,
    /// The cells that were present for it then, and have been since.
    present: Vec<CellId>,
}

/// The terms that a rep knows.
#[derive(Default)]
struct Terms {
    /// The highest that an answer of a BBS named.
    elected: u64,
    /// The highest that it took work of, and since when.
    taken: (u64, Timestamp),
}

/// What a placement error says, and of which attempt.
pub(super) struct Said<'a> {
    pub(super) work: &'a str,
    pub(super) epoch: Epoch,
    pub(super) place: Option<&'a Place>,
    pub(super) attempt: Option<Timestamp>,
    pub(super) error: &'a str,
}

/// What an auctioneer said that it could not place.
struct Found {
    by: ServiceId,
    work: String,
    epoch: Epoch,
    place: Option<Place>,
    attempt: Option<Timestamp>,
    error: String,
    why: Option<Explanation>,
}

/// Work that found no room.
pub(super) struct Unplaced {
    pub(super) work: WorkRef,
    pub(super) constraint: Constraint,
    pub(super) size: Resources,
    /// The only cell that may take it.
    pub(super) only: Option<CellId>,
    pub(super) priority: Priority,
}

impl Placing {
    /// A rep gets work.
    pub(super) fn given(
        &mut self,
        rep: Life,
        (requester, perform): (u64, Perform),
        evacuates: bool,
        (now, clock_slack): (Timestamp, Duration),
    ) {
        let terms = self.terms.entry(rep).or_default();
        let (taken, since) = terms.taken;
        let unconfirmed = if now.since(since) + clock_slack < UNCONFIRMED { taken } else { 0 };
        let highest = terms.elected.max(unconfirmed);
        self.given.insert(requester, Given { perform, highest, evacuates });
    }

    /// An auctioneer gives work to a cell.
    pub(super) fn gives(&mut self, cell: &CellId, perform: &Perform) {
        for work in &perform.work {
            let why = work.placement.as_deref().cloned();
            self.orders.entry((cell.clone(), work.key.clone())).or_default().push(why);
        }
    }

    /// Whether work was given to a cell, for this reason.
    pub(super) fn was_given(&self, cell: &CellId, work: &WorkKey, why: Option<&Explanation>) -> bool {
        let given = self.orders.get(&(cell.clone(), work.clone()));
        given.is_some_and(|reasons| reasons.iter().any(|reason| reason.as_ref() == why))
    }

    /// An auctioneer says what it could not place.
    pub(super) fn finds(&mut self, outcomes: &Outcomes) {
        for outcome in &outcomes.outcomes {
            let by = outcomes.id.clone();
            match outcome {
                PlacementOutcome::Lrp { process_guid, epoch, outcome } => {
                    self.outcomes.extend(outcome.unplaced.iter().map(|one| Found {
                        by: by.clone(),
                        work: process_guid.to_string(),
                        epoch: *epoch,
                        place: Some(one.place.clone()),
                        attempt: Some(one.attempt),
                        error: one.error.clone(),
                        why: outcome.explanation.as_deref().cloned(),
                    }));
                }
                PlacementOutcome::Task { task_guid, epoch, unplaced } => {
                    self.outcomes.push(Found {
                        by,
                        work: task_guid.to_string(),
                        epoch: *epoch,
                        place: None,
                        attempt: None,
                        error: unplaced.error.clone(),
                        why: unplaced.explanation.as_deref().cloned(),
                    });
                }
            }
        }
    }

    /// Whether an auctioneer said that.
    pub(super) fn was_said(&self, actor: &Actor, said: &Said<'_>, why: Option<&Explanation>) -> bool {
        let Actor::Auctioneer(id) = actor else { return false };
        self.outcomes.iter().any(|found| {
            let same = (found.epoch, found.attempt) == (said.epoch, said.attempt);
            same && found.place.as_ref() == said.place
                && found.work == said.work
                && found.by == *id
                && found.error == said.error
                && found.why.as_ref() == why
        })
    }

    /// A BBS answers a rep, and names the terms of the log.
    pub(super) fn learns(&mut self, rep: Life, elected: u64) {
        let terms = self.terms.entry(rep).or_default();
        terms.elected = terms.elected.max(elected);
    }

    /// An auctioneer hears a rep.
    pub(super) fn hears(&mut self, auctioneer: Life, beat: &Heartbeat, now: Timestamp) {
        self.heard.insert((auctioneer, beat.cell_id.clone()), now);
    }

    /// An auctioneer leads in a term. What is present for it from its beginning on is remembered.
    pub(super) fn leads(
        &mut self,
        auctioneer: Life,
        (term, now): (u64, Timestamp),
        present: impl FnOnce() -> Vec<CellId>,
    ) {
        let leads = self.leads.get_mut(&auctioneer).filter(|leads| leads.term == term);
        match leads {
            // Who was away in between is no longer waited for.
            Some(leads) if now.since(leads.since) < GATHERING => {
                let present = present();
                leads.present.retain(|cell| present.contains(cell));
            }
            Some(_) => {}
            None => {
                self.leads.insert(auctioneer, Leads { term, since: now, present: present() });
            }
        }
    }

    /// An auctioneer that leads for a moment only has heard every cell that was present for it when that began, and still
    /// is, before it places anything.
    pub(super) fn sees(
        &self,
        auctioneer: Life,
        present: &[CellId],
        (now, clock_slack): (Timestamp, Duration),
    ) -> Option<Broken> {
        let leads = self.leads.get(&auctioneer)?;
        let time = now.since(leads.since);
        if time + clock_slack >= GATHERING {
            return None;
        }
        let mut needed = leads.present.iter().filter(|cell| present.contains(cell));
        let unheard = |cell: &&CellId| {
            let at = self.heard.get(&(auctioneer, (*cell).clone()));
            at.is_none_or(|at| *at + SILENCE + clock_slack < leads.since)
        };
        let cell = needed.find(unheard)?;
        let how = format!("{} leads for {time:?}, has not heard {cell}, and gives work away", auctioneer.0);
        Some(Broken { promise: Promise::SeesBeforePlacing, how })
    }

    /// The work that a rep refuses of what it was given: all of it with an error.
    pub(super) fn refuses(&self, requester: u64, answer: &Result<PerformReply, Refusal>) -> Vec<Work> {
        let Some(Given { perform, .. }) = self.given.get(&requester) else { return vec![] };
        let refused = |at: usize| match answer {
            Ok(performed) => performed.refused.iter().any(|(place, _)| u32::try_from(at) == Ok(*place)),
            Err(_) => true,
        };
        let refused = perform.work.iter().enumerate().filter(|(at, _)| refused(*at));
        refused.map(|(_, work)| work.clone()).collect()
    }

    /// A rep answers what it was given. It took or refused that when it came, by what it knew then.
    pub(super) fn answered(
        &mut self,
        rep: Life,
        requester: u64,
        answer: &Result<PerformReply, Refusal>,
        now: Timestamp,
    ) -> Vec<Broken> {
        let Some((given, performed)) = self.given.remove(&requester).zip(answer.as_ref().ok()) else {
            return vec![];
        };
        let Given { perform, highest, evacuates } = given;
        let mut broken = vec![];
        let terms = self.terms.entry(rep).or_default();
        let (taken, _) = terms.taken;
        if perform.id.term < highest {
            let how = format!("{} takes work of term {}, it knows {highest}", rep.0, perform.id.term);
            broken.push(Broken { promise: Promise::StaleTermHarmless, how });
        }
        if perform.id.term > taken {
            terms.taken = (perform.id.term, now);
        }
        let refused: BTreeSet<usize> =
            performed.refused.iter().filter_map(|(at, _)| usize::try_from(*at).ok()).collect();
        for (_, work) in perform.work.into_iter().enumerate().filter(|(at, _)| !refused.contains(at)) {
            let key = work.key.clone();
            let new = self.taken.insert((rep, work.key, work.attempt));
            if new && evacuates {
                let how = format!("{} takes {key} and evacuates", rep.0);
                broken.push(Broken { promise: Promise::EvacuatingTakesNothing, how });
            }
        }
        broken
    }

    /// In one batch nothing takes a place in which work would have fitted that comes before it.
    pub(super) fn out_of_order(
        &mut self,
        (shape, world): (Shape, &World),
        placed: &[(CellId, Perform)],
        unplaced: &[Unplaced],
    ) -> Vec<Broken> {
        let all = placed.iter().flat_map(|(cell, perform)| perform.work.iter().map(move |work| (cell, work)));
        let mut broken = vec![];
        for (cell, work) in all {
            let again = !self.placed.insert((cell.clone(), work.key.clone(), work.attempt));
            let Node::Rep(at) = rep_of(cell) else { continue };
            let has = shape.cell(at);
            let own = name_of(&work.key);
            let turn = (Reverse(peace::priority(world, &own)), turn_of(&own));
            let robbed = |waits: &&Unplaced| {
                (Reverse(waits.priority), turn_of(&waits.work)) < turn
                    && work.definition.resources().fits(waits.size)
                    && waits.only.as_ref().is_none_or(|only| only == cell)
                    && waits.constraint.mismatch(&has.offer()).is_none()
                    // Where its siblings are isn't known here.
                    && !racks::is_limited(&waits.constraint)
            };
            if let Some(waits) = unplaced.iter().find(robbed).filter(|_| !again) {
                let how = format!("{} is on {cell}, and {:?} finds no room", work.key, waits.work);
                broken.push(Broken { promise: Promise::BatchOrder, how });
            }
        }
        broken
    }
}

/// Index 0, tasks, index 1, index 2...
pub(super) const fn turn_of(work: &WorkRef) -> u32 {
    match work {
        WorkRef::Lrp(key) => match key.place.index {
            0 => 0,
            index => index.saturating_add(1),
        },
        WorkRef::Task(_) => 1,
    }
}

/// What an auction found no room for, each in the life that it knew. What has no explanation was refused so often that it is
/// not tried again: no auction found it.
pub(super) fn without_room(outcomes: &Outcomes) -> Vec<(WorkRef, Epoch)> {
    let names = outcomes.outcomes.iter().flat_map(|outcome| match outcome {
        PlacementOutcome::Lrp { process_guid, epoch, outcome } if outcome.explanation.is_some() => {
            let short = outcome.unplaced.iter().filter(|one| one.error.starts_with(INSUFFICIENT_RESOURCES));
            short.map(|one| (lrp(process_guid, &one.place), *epoch)).collect::<Vec<_>>()
        }
        PlacementOutcome::Task { task_guid, epoch, unplaced }
            if unplaced.explanation.is_some() && unplaced.error.starts_with(INSUFFICIENT_RESOURCES) =>
        {
            vec![(WorkRef::Task(task_guid.clone()), *epoch)]
        }
        PlacementOutcome::Lrp { .. } | PlacementOutcome::Task { .. } => vec![],
    });
    names.collect()
}
