//! The machine around the auction: it folds the log, finds the work there, and gives it to reps.
//!
//! ```text
//! log ──▶ World ──▶ open work ──▶ auction ──┬─▶ Perform ──▶ reps, which claim: the log says so
//! heartbeats ─────▶ cells ─────────▲        └─▶ Outcomes ──▶ BBS, which records why not
//! ```
//! A piece of work is *ready*, *handed out* until its record changes, or *blocked* until capacity appears. Only who leads
//! by the log places anything.

mod act;
mod cells;
mod leases;
mod open;
mod outgoing;
mod preempt;
mod size;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use election::{Duty, Election};
use projections::{Change, WorkRef, World};
use schemas::actual;
use schemas::cluster::{Leader, Role};
use schemas::entry::{Aggregate, Event};
use schemas::evaluation;
use schemas::message::{Beat, Done, Heartbeat, Lead, Outcomes, Perform, PerformId, Performed, Standing};
use schemas::names::{CellId, DecisionId, ProcessGuid, ServiceId};
use schemas::placement::{Explanation, INSUFFICIENT_RESOURCES};
use schemas::resources::Resources;
use schemas::{ActualLrpKey, Class, Code, Decision, Entry, Position, Refusal, Steady, Timestamp};

pub use self::cells::EARLY_HEARTBEATS;
pub use self::outgoing::OUTGOING;

use self::cells::{Cells, Lost};
use self::leases::Leases;
use self::open::{Open, known_error};
use self::outgoing::{Failed, Outgoing};
use crate::auction::Item;

/// The times and numbers of an auctioneer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Between two heartbeats of a rep. So long a new leader waits for every cell's state before it places anything, and
    /// calls nothing impossible.
    pub heartbeat: Duration,
    /// A cell that was not heard for this long gets no work.
    pub silence: Duration,
    /// Work that was handed out and not claimed after this long is given to the same rep again if that took it and was
    /// heard lately, and is placed anew if not.
    pub hand_out: Duration,
    /// A rep that took work gets it again so often; then the work is placed anew, elsewhere if it can be.
    pub asks: u8,
    /// Blocked work is tried again after this long, whatever happens.
    pub retry: Duration,
    /// So long work waits for room that is being made for it, before other room is looked for.
    pub patience: Duration,
    /// Work that is blocked because reps refused it too often is tried again after this long.
    pub retry_refused: Duration,
    /// The BBS is told again after this long which evaluations this auctioneer has.
    pub lease: Duration,
    /// An outcome that the BBS didn't accept is reported again after this long.
    pub send_again: Duration,
    /// An evaluation of a process of which reps refused something in so many rounds, none of it being placed, is given up.
    pub attempts: u8,
    /// The same of a task.
    pub attempts_of_task: u8,
    /// Most work in one auction; the rest is in the next.
    pub batch: usize,
    /// Most work that cells were given and of which the log shows nothing yet. More waits for its turn: what is handed out
    /// faster than the BBS can record it would be taken for lost, and handed out again.
    pub outstanding: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(5),
            silence: Duration::from_secs(15),
            hand_out: Duration::from_secs(10),
            asks: 5,
            retry: Duration::from_secs(30),
            patience: Duration::from_secs(30),
            retry_refused: Duration::from_secs(60),
            lease: Duration::from_secs(20),
            send_again: Duration::from_secs(1),
            attempts: 5,
            attempts_of_task: 2,
            batch: 10_000,
            outstanding: 10_000,
        }
    }
}

/// What happens to an auctioneer.
#[derive(Clone, Debug)]
pub enum Input {
    /// The follower delivered an entry.
    Recorded {
        /// Where it stands.
        position: Position,
        /// The entry.
        entry: Arc<Entry>,
    },
    /// The follower has reached the journal's end for the first time.
    CaughtUp,
    /// A rep says what it has.
    Heartbeat(Heartbeat),
    /// What became of a [`Perform`].
    Performed {
        /// The cell.
        cell: CellId,
        /// Which.
        id: PerformId,
        /// The rep's answer; none: it didn't answer in time.
        answer: Option<Result<Performed, Refusal>>,
    },
    /// What became of [`Effect::Outcomes`].
    OutcomesAnswered {
        /// Which.
        id: u64,
        /// The BBS's answer; none: it didn't answer in time.
        answer: Option<Result<Done, Refusal>>,
    },
    /// What became of [`Effect::Lead`]; none: no answer in time.
    LeadAnswered(Option<Result<Done, Refusal>>),
    /// Another auctioneer beats.
    Beat(Beat),
    /// Nothing else waits: act on what is known.
    Turn,
    /// The alarm went off: act on what is due.
    Tick,
}

/// What an auctioneer wants done. Each message but the beat brings back one answer, or none in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Give work to a rep. Another one for the same cell may follow before this one is answered.
    Perform {
        /// The cell.
        cell: CellId,
        /// The work.
        perform: Perform,
    },
    /// Report to the BBS what could not be placed.
    Outcomes {
        /// Names the message in its answer.
        id: u64,
        /// What could not be placed.
        outcomes: Outcomes,
    },
    /// Ask the BBS for the lead.
    Lead(Lead),
    /// Say that this auctioneer leads and lives.
    Beat(Beat),
}

/// How much an auctioneer has on its counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Open work.
    pub open: usize,
    /// Of it, what the next auction places.
    pub ready: usize,
    /// Of it, what a rep was given.
    pub handed_out: usize,
    /// Of it, what no cell takes.
    pub blocked: usize,
    /// `Perform`s that a heartbeat or an answer is still to come for.
    pub performs: usize,
    /// Messages to the BBS without an answer.
    pub outgoing: usize,
}

/// What an auctioneer has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deeds {
    /// Auctions of some work.
    pub auctions: u64,
    /// Instances and tasks that they were about.
    pub work: u64,
    /// Of these, what got a cell.
    pub placed: u64,
    /// What no cell takes.
    pub unplaced: u64,
    /// What a rep did not take.
    pub refused: u64,
    /// What a rep was given that didn't answer.
    pub unanswered: u64,
}

/// An auctioneer.
#[derive(Clone, Debug)]
pub struct Auctioneer {
    id: ServiceId,
    settings: Settings,
    world: World,
    caught_up: bool,
    /// The term in which this auctioneer acts.
    acting: Option<u64>,
    election: Election,
    cells: Cells,
    open: Open,
    leases: Leases,
    /// Counts its auctions.
    round: u64,
    /// Whether preemption was on when that was last looked at.
    preempts: bool,
    /// Until then a new leader stops nothing; none: that is over.
    settles_until: Option<Timestamp>,
    /// The cells on which room was kept in the last turn, each with what for.
    kept: BTreeSet<(WorkRef, CellId)>,
    outgoing: Outgoing,
    deeds: Deeds,
    clock: Steady,
    /// The time of the last step: what waits is measured by it.
    now: Timestamp,
}

impl Auctioneer {
    /// An auctioneer that knows nothing yet.
    #[must_use]
    pub fn new(id: ServiceId, settings: Settings) -> Self {
        Self::with_world(id, settings, World::new())
    }

    /// An auctioneer that starts from a snapshot of the World.
    #[must_use]
    pub fn with_world(id: ServiceId, settings: Settings, world: World) -> Self {
        Self {
            election: Election::new(id.clone()),
            id,
            settings,
            world,
            caught_up: false,
            acting: None,
            cells: Cells::default(),
            open: Open::default(),
            leases: Leases::default(),
            round: 0,
            preempts: false,
            settles_until: None,
            kept: BTreeSet::new(),
            outgoing: Outgoing::default(),
            deeds: Deeds::default(),
            clock: Steady::default(),
            now: Timestamp(0),
        }
    }

    /// The same, that has listened to the beats of leaders before it knew the log: what it waits for them counts from there.
    #[must_use]
    pub fn having_listened(self, election: Election) -> Self {
        Self { election, ..self }
    }

    /// What is true as far as this auctioneer knows.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// Its id.
    #[must_use]
    pub const fn id(&self) -> &ServiceId {
        &self.id
    }

    /// Whether it leads: the log says so, and all of the log is known.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.term().is_some()
    }

    /// Where it stands, for whoever says that it is there.
    #[must_use]
    pub fn standing(&self) -> Standing {
        Standing { position: self.world.position(), term: self.election.term(), leads: self.leads() }
    }

    /// When it wants a [`Input::Tick`].
    #[must_use]
    pub fn alarm(&self) -> Option<Timestamp> {
        let waits = self.cells.gathers_until(self.now).filter(|_| !self.outgoing.is_due());
        let ready = (self.places_next() > 0 || self.outgoing.is_due()).then_some(waits.unwrap_or(self.now));
        let election = self.follows_a_cluster().then(|| self.election.next_due());
        let leases = self.leases.next().filter(|_| self.acting.is_some());
        let settled = self.settles_until.filter(|_| self.acting.is_some());
        let due = [election, self.open.next_timer(), leases, settled, ready].into_iter().flatten().min();
        due.map(|due| self.clock.shown_at(due))
    }

    /// How much the next auction places. Where there is little room below [`Settings::outstanding`] it waits for more of it:
    /// an auction looks at all instances of its processes, however little it places.
    fn places_next(&self) -> usize {
        let Settings { batch, outstanding, .. } = self.settings;
        let ready = self.open.ready().min(batch);
        let room = outstanding.saturating_sub(self.open.handed_out());
        if room < ready.min(outstanding / 2) { 0 } else { ready.min(room) }
    }

    /// How much it has on its counts.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let (open, blocked) = self.open.counts();
        Counts {
            open,
            ready: self.open.ready(),
            handed_out: self.open.handed_out(),
            blocked,
            performs: self.cells.performs(),
            outgoing: self.outgoing.len(),
        }
    }

    /// What it has done since it began.
    #[must_use]
    pub const fn deeds(&self) -> Deeds {
        self.deeds
    }

    /// Whether it has read the journal to its end once.
    #[must_use]
    pub const fn is_caught_up(&self) -> bool {
        self.caught_up
    }

    /// How much it remembers, by name: at rest each is bounded by what the log holds.
    #[must_use]
    pub fn remembered(&self) -> BTreeMap<&'static str, usize> {
        let ((rooms, early), (timers, withheld, awaiting)) = (self.cells.known(), self.open.noted());
        BTreeMap::from([
            ("cells of which it knows something", rooms),
            ("cells that the log doesn't name yet", early),
            ("pieces of work", self.open.counts().0),
            ("timers of work", timers),
            ("pieces of work that are withheld", withheld),
            ("pieces of work for which room is being made", awaiting),
            ("evaluations that it has", self.leases.len()),
        ])
    }

    /// What it believes to be free of a cell that is present: what its rep said, less what it was given since.
    #[must_use]
    pub fn free_on(&self, cell: &CellId) -> Option<Resources> {
        self.cells.free_on(cell)
    }

    /// Takes one step.
    pub fn step(&mut self, now: Timestamp, input: Input) -> Vec<Effect> {
        let now = self.clock.at(now);
        self.now = now;
        let act = matches!(input, Input::Turn | Input::Tick);
        self.take_in(now, input);
        self.election.follow(leader(&self.world), now);
        self.begin_or_end(now);
        let mut effects: Vec<Effect> = self.lead(now).into_iter().collect();
        if let Some(term) = self.acting.filter(|_| act) {
            effects.extend(self.act(now, term));
        }
        effects
    }

    /// Whether the log is known and a cluster founded in it: before that there is nothing to lead.
    fn follows_a_cluster(&self) -> bool {
        self.caught_up && self.world.cluster().is_some()
    }

    /// What the election asks for.
    fn lead(&mut self, now: Timestamp) -> Option<Effect> {
        if !self.follows_a_cluster() {
            self.election.look(now);
            return None;
        }
        let id = self.id.clone();
        match self.election.duty(now) {
            Duty::None => None,
            Duty::Beat => Some(Effect::Beat(self.beat(false))),
            Duty::Campaign(term) => Some(Effect::Lead(Lead { id, term })),
        }
    }

    fn beat(&self, steps_down: bool) -> Beat {
        let (id, term, position) = (self.id.clone(), self.election.term(), self.world.position());
        Beat { id, term, position, steps_down }
    }

    /// Returns the last beat of a leader that stops, by which a standby takes over at once. `None` if this auctioneer doesn't
    /// lead.
    #[must_use]
    pub fn last_beat(&self) -> Option<Beat> {
        self.leads().then(|| self.beat(true))
    }

    /// The term in which this auctioneer leads.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        let leader = leader(&self.world).filter(|leader| self.caught_up && leader.id == self.id);
        leader.map(|leader| leader.term)
    }

    fn take_in(&mut self, now: Timestamp, input: Input) {
        match input {
            Input::Recorded { position, entry } => self.fold(now, position, &entry),
            Input::CaughtUp => self.caught_up = true,
            Input::Heartbeat(heartbeat) => {
                self.cells.hear(&self.world, &heartbeat, now, &self.settings);
            }
            Input::Performed { cell, id, answer } => self.performed(now, &cell, id, answer),
            Input::OutcomesAnswered { id, answer } => {
                let reported = self.outgoing.answered(id);
                if !matches!(answer, Some(Ok(_))) {
                    self.send_again(now, reported);
                }
            }
            Input::LeadAnswered(answer) => match answer {
                // The log will say it.
                Some(Ok(_)) => {}
                Some(Err(refusal)) if refusal.code != Code::Unavailable => self.election.lost(now),
                Some(Err(_)) => self.election.refused(now),
                None => self.election.unanswered(now),
            },
            Input::Beat(beat) => self.election.heard(&beat, now),
            Input::Turn | Input::Tick => {}
        }
    }

    /// Begins or ends to act, as the log says who leads.
    fn begin_or_end(&mut self, now: Timestamp) {
        let term = self.term();
        if term == self.acting {
            return;
        }
        self.acting = term;
        self.outgoing.clear();
        self.leases.clear();
        self.kept.clear();
        match term {
            Some(term) => {
                self.cells.begin(term, now, &self.settings);
                self.open = Open::of(&self.world);
                self.settles_until = Some(now + self.settings.heartbeat * 2);
            }
            None => {
                self.cells.end();
                self.open = Open::default();
            }
        }
    }

    fn fold(&mut self, now: Timestamp, position: Position, entry: &Entry) {
        let changes = self.world.fold(position, entry);
        for change in &changes {
            match change {
                Change::Cell(id) => {
                    let lost = self.cells.recorded(&self.world, id, now, &self.settings);
                    self.place_anew(&lost);
                }
                // Perhaps another BBS leads, which knows of no lease.
                Change::Cluster => {
                    self.leases.say_all(now);
                    self.follow_preemption();
                }
                Change::Process(_)
                | Change::Task(_)
                | Change::Periodic(_)
                | Change::Parameterised(_)
                | Change::Domain(_) => {}
            }
        }
        if self.acting.is_some() && !changes.is_empty() {
            entry.decisions.iter().for_each(|decision| self.follow(decision));
        }
    }

    /// Takes over what a decision makes of open work: only what it speaks of is looked at.
    fn follow(&mut self, decision: &Decision) {
        self.follow_eviction(decision);
        match &decision.aggregate {
            Aggregate::Process { guid, .. } => {
                for event in &decision.events {
                    self.follow_process(guid, event);
                    if let Event::Evaluation(event) = event {
                        self.follow_evaluation(event, decision.id);
                        self.follow_evaluation_of(guid, event);
                    }
                }
            }
            Aggregate::Task { guid, .. } => {
                let work = WorkRef::Task(guid.clone());
                self.open.refresh(&self.world, &work);
                self.follow_error(&work);
                for event in &decision.events {
                    if let Event::Evaluation(event) = event {
                        self.follow_evaluation(event, decision.id);
                    }
                }
            }
            Aggregate::Periodic { .. }
            | Aggregate::Parameterised { .. }
            | Aggregate::Domain(_)
            | Aggregate::Cell(_)
            | Aggregate::Cluster => {}
        }
    }

    fn follow_process(&mut self, guid: &ProcessGuid, event: &Event) {
        match event {
            Event::Desired(_) => self.open.refresh_process(&self.world, guid),
            Event::Rollout(_) => {
                self.open.refresh_process(&self.world, guid);
                self.open.wake_crowded(guid);
            }
            Event::Actual(event) => {
                for place in event.places().iter() {
                    let work = WorkRef::Lrp(ActualLrpKey::new(guid.clone(), place));
                    let gone = self.open.refresh(&self.world, &work);
                    if let actual::Event::PlacementFailed { .. } = event {
                        self.follow_error(&work);
                    }
                    gone.into_iter().for_each(|evaluation| self.leases.progressed(evaluation));
                }
                if event.ends_stay() {
                    self.open.wake_crowded(guid);
                }
            }
            Event::Evacuating(_)
            | Event::Evaluation(_)
            | Event::Task(_)
            | Event::Periodic(_)
            | Event::Parameterised(_)
            | Event::Domain(_)
            | Event::Cell(_)
            | Event::Cluster(_) => {}
        }
    }

    /// What is settled needs no lease any more.
    fn follow_evaluation(&mut self, event: &evaluation::Event, decision: DecisionId) {
        if event.ends() {
            self.leases.end(event.evaluation(decision));
        }
    }

    /// What is of another evaluation, or delivered again, is looked at anew.
    fn follow_evaluation_of(&mut self, guid: &ProcessGuid, event: &evaluation::Event) {
        match event {
            evaluation::Event::Created { .. }
            | evaluation::Event::Redelivered { .. }
            | evaluation::Event::Failed { .. }
            | evaluation::Event::Canceled { .. } => self.open.refresh_process(&self.world, guid),
            evaluation::Event::Retried { evaluation, .. } => {
                self.open.retry(&self.world, guid, *evaluation);
            }
            evaluation::Event::Joined { .. }
            | evaluation::Event::Waits { .. }
            | evaluation::Event::Due { .. }
            | evaluation::Event::Blocked { .. }
            | evaluation::Event::Completed { .. } => {}
        }
    }

    fn performed(
        &mut self,
        now: Timestamp,
        cell: &CellId,
        id: PerformId,
        answer: Option<Result<Performed, Refusal>>,
    ) {
        let refused = match answer {
            Some(Ok(performed)) => {
                self.note_taken(cell, id);
                self.cells.performed(cell, id, performed.refused)
            }
            // A rep that knows a higher term: the log will say so. Meanwhile nothing is to be gained elsewhere.
            Some(Err(refusal)) if refusal.code == Code::StaleTerm => vec![],
            // Nothing was judged: that counts as no round, and says nothing of room.
            Some(Err(refusal)) if refusal.code.class() == Class::NotNow => {
                let back = self.cells.not_now(cell, id, now, &self.settings);
                let back: Vec<Lost> = back.into_iter().map(|item| (item, cell.clone(), id)).collect();
                self.place_anew(&back);
                vec![]
            }
            Some(Err(refusal)) => self.cells.refused(cell, id, &refusal.message),
            None => return self.unanswered(now, cell, id),
        };
        self.deeds.refused += refused.len() as u64;
        for (item, reason) in refused {
            self.carry_over(now, &item, (cell, id), reason);
        }
    }

    /// A rep took the work; what of it it refused comes back at once.
    fn note_taken(&mut self, cell: &CellId, id: PerformId) {
        let handed = self.cells.work_of(cell, id).filter_map(|item| self.open.handed(item, (cell, id)));
        for work in handed.collect::<Vec<_>>() {
            self.open.took(&work);
        }
    }

    /// A rep that didn't answer may have the work: it waits for its time-out, and then goes elsewhere if it can. If the
    /// rep was asked before, that was its time.
    fn unanswered(&mut self, now: Timestamp, cell: &CellId, id: PerformId) {
        let (items, again) = self.cells.unanswered(cell, id, now, &self.settings);
        self.deeds.unanswered += items.len() as u64;
        let is_over = again && !self.cells.has_seen(cell, id);
        for work in items.iter().filter_map(|item| self.open.handed(item, (cell, id))).collect::<Vec<_>>() {
            self.open.avoid(&work, cell);
            if is_over {
                self.open.make_ready(&work);
            }
        }
    }

    /// Work that a rep refused is in the next auction, and another cell is better; after some rounds its evaluation is given
    /// up. Where only that cell may take it, it waits for room there.
    fn carry_over(&mut self, now: Timestamp, item: &Item, by: (&CellId, PerformId), reason: String) {
        let Some(work) = self.open.handed(item, by) else { return };
        self.open.avoid(&work, by.0);
        let most = match &work {
            WorkRef::Lrp(_) => self.settings.attempts,
            WorkRef::Task(_) => self.settings.attempts_of_task,
        };
        let (round, attempt) = (self.open.round(&work), self.open.attempt(&work));
        let again = attempt.evaluation.is_none_or(|id| self.leases.refused(id, round, most));
        if again && !self.open.has_only_cell(&work) {
            return self.open.make_ready(&work);
        }
        let reason = if reason.is_empty() { INSUFFICIENT_RESOURCES.to_owned() } else { reason };
        self.fail(now, &work, (reason, None), !again);
    }

    /// Work whose rep is gone, or another one, is placed anew at once.
    fn place_anew(&mut self, lost: &[Lost]) {
        for (item, cell, id) in lost {
            if let Some(work) = self.open.handed(item, (cell, *id)) {
                self.open.make_ready(&work);
            }
        }
    }

    /// No cell takes the work. Says so, unless that was said, or silence may be this auctioneer's own fault.
    fn fail(
        &mut self,
        now: Timestamp,
        work: &WorkRef,
        (error, explanation): (String, Option<Explanation>),
        used_up: bool,
    ) {
        if self.cells.is_in_doubt(now, &self.settings) {
            return self.open.withhold(work, self.cells.doubt_ends(now, &self.settings));
        }
        if self.hold_back(now, work) {
            return;
        }
        let attempt = self.open.attempt(work);
        let refused = used_up || attempt.after_refusals;
        let retry = if refused { self.settings.retry_refused } else { self.settings.retry };
        self.open.block(work, now + retry);
        let error = self.with_room(now, work, &error);
        if known_error(&self.world, work) == Some(&error) {
            return;
        }
        // What the log doesn't show after a while did not get there, whatever was answered.
        let Some(evaluation) = attempt.evaluation else { return };
        if let Some(item) = self.open.report(work, &error, now, self.settings.retry) {
            self.outgoing.add(Failed { item, evaluation, used_up, error, explanation });
        }
    }

    /// Blocks work of which nothing may be reported yet, because the BBS did not accept its last outcome. Answers whether it is
    /// such work.
    fn hold_back(&mut self, now: Timestamp, work: &WorkRef) -> bool {
        let until = self.open.quiet_until(work);
        if now < until {
            self.open.block(work, until);
        }
        now < until
    }

    /// The BBS didn't accept outcomes: tries again soon, and reports what is true then.
    fn send_again(&mut self, now: Timestamp, reported: Vec<WorkRef>) {
        for work in reported {
            self.open.doubt_awaits(&work);
            self.open.not_accepted(&work, now + self.settings.send_again);
        }
    }
}

/// Who leads, as the log says.
fn leader(world: &World) -> Option<&Leader> {
    world.cluster()?.leader(Role::Auctioneer)
}
