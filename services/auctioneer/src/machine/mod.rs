//! State machine of the auctioneer. It folds the log, collects open work, and sends it to reps. Work is an
//! instance or a task that needs a cell. The rep is the agent on each cell.
//!
//! ```text
//! log ──▶ World ──▶ open work ──▶ auction ──┬─▶ Perform ──▶ reps, which claim the work in the log
//! heartbeats ─────▶ cells ─────────▲        └─▶ Outcomes ──▶ BBS, which records why not
//! ```
//! The World is the state folded from the log. A piece of work is *ready*, *handed out* until its record
//! changes, or *blocked* until capacity appears. Only the auctioneer that the log names as the leader places
//! work.

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
use schemas::cluster::{Leader, Role};
use schemas::entry::{Aggregate, Event};
use schemas::message::{
    Ack, Heartbeat, Lead, LeaderHeartbeat, LeadershipStatus, Outcomes, Perform, PerformId, PerformReply,
};
use schemas::names::{CellId, DecisionId, ProcessGuid, ServiceId};
use schemas::placement::{Explanation, INSUFFICIENT_RESOURCES};
use schemas::resources::Resources;
use schemas::{
    ActualLrpKey, Class, Code, Decision, Entry, MonotonicClock, Position, Refusal, Timestamp, actual,
    evaluation,
};

pub use self::cells::MAX_EARLY_HEARTBEATS;
pub use self::outgoing::MAX_UNANSWERED;

use self::cells::{Cells, LostWork};
use self::leases::Leases;
use self::open::{OpenWork, known_error};
use self::outgoing::{FailedPlacement, Outgoing};
use crate::auction::Item;

/// Timing and limits of an auctioneer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Interval between two heartbeats of a rep. A new leader waits this long for the state of every cell.
    /// Only afterwards does it place work, or report that work cannot be placed.
    pub heartbeat: Duration,
    /// Age of the last heartbeat at which a cell stops getting work.
    pub cell_timeout: Duration,
    /// Time limit for a claim of work that was handed out. After this time, the auctioneer sends the work to
    /// the same rep again if that rep accepted it and sent a recent heartbeat. Otherwise the auctioneer
    /// places the work again.
    pub hand_out_timeout: Duration,
    /// Maximum number of times that accepted work is sent to the same rep again. Afterwards the work is
    /// placed again, on another cell if possible.
    pub max_repeats: u8,
    /// Maximum time between two attempts to place blocked work.
    pub retry: Duration,
    /// Maximum time that work waits for the resources that a preemption frees for it on one cell. After this
    /// time, the auctioneer considers other cells too.
    pub room_timeout: Duration,
    /// Delay before the next attempt for work that is blocked because reps refused it too often.
    pub retry_refused: Duration,
    /// Interval between lease messages. They notify the BBS of the evaluations that this auctioneer works on.
    pub lease: Duration,
    /// Delay before an outcome that the BBS did not accept is reported again.
    pub outcome_retry: Duration,
    /// Number of auction rounds with refusals after which the auctioneer gives up an evaluation of a process.
    /// Each placement of work of the evaluation resets this count.
    pub attempts: u8,
    /// Number of auction rounds with refusals after which the auctioneer gives up an evaluation of a task.
    pub task_attempts: u8,
    /// Maximum number of items in one auction. Further items are placed in later auctions.
    pub batch: usize,
    /// Maximum amount of unclaimed work: work that was handed out and whose record in the log has not changed
    /// yet. Further work waits. If the auctioneer handed out work faster than the BBS can record the claims,
    /// it would consider that work lost and hand it out again.
    pub outstanding: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(5),
            cell_timeout: Duration::from_secs(15),
            hand_out_timeout: Duration::from_secs(10),
            max_repeats: 5,
            retry: Duration::from_secs(30),
            room_timeout: Duration::from_secs(30),
            retry_refused: Duration::from_secs(60),
            lease: Duration::from_secs(20),
            outcome_retry: Duration::from_secs(1),
            attempts: 5,
            task_attempts: 2,
            batch: 10_000,
            outstanding: 10_000,
        }
    }
}

/// Input of the state machine.
#[derive(Clone, Debug)]
pub enum Input {
    /// The follower delivered a log entry.
    Recorded { position: Position, entry: Arc<Entry> },
    /// The follower reached the end of the journal for the first time.
    CaughtUp,
    /// A rep reported its state.
    Heartbeat(Heartbeat),
    /// Result of a [`Perform`].
    Performed {
        cell: CellId,
        id: PerformId,
        /// Answer of the rep. `None` if the rep did not answer in time.
        answer: Option<Result<PerformReply, Refusal>>,
    },
    /// Result of [`Effect::Outcomes`].
    OutcomesAnswered {
        id: u64,
        /// Answer of the BBS. `None` if the BBS did not answer in time.
        answer: Option<Result<Ack, Refusal>>,
    },
    /// Result of [`Effect::Lead`]. `None` if the BBS did not answer in time.
    LeadAnswered(Option<Result<Ack, Refusal>>),
    /// Another auctioneer sent a leader heartbeat.
    Beat(LeaderHeartbeat),
    /// No other input is queued. The auctioneer acts on its current state.
    Turn,
    /// The alarm fired. The auctioneer handles everything that is due.
    Tick,
}

/// Output of the state machine. Each message except a heartbeat gets one answer, which is `None` if the
/// recipient did not answer in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send work to a rep. A second message for the same cell may be sent before the first one is answered.
    Perform { cell: CellId, perform: Perform },
    /// Report to the BBS the work that could not be placed.
    Outcomes {
        /// Identifier that the answer repeats.
        id: u64,
        outcomes: Outcomes,
    },
    /// Request leadership from the BBS.
    Lead(Lead),
    /// Send a leader heartbeat.
    Beat(LeaderHeartbeat),
}

/// Current amounts of work and messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Open work in total.
    pub open: usize,
    /// Open work for the next auction.
    pub ready: usize,
    /// Open work that was sent to a rep.
    pub handed_out: usize,
    /// Open work that no cell accepts.
    pub blocked: usize,
    /// `Perform` messages that still wait for a heartbeat or an answer.
    pub performs: usize,
    /// Unanswered messages to the BBS.
    pub outgoing: usize,
}

/// Cumulative figures since the start of the auctioneer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Auctions with at least one item.
    pub auctions: u64,
    /// Items in these auctions.
    pub work: u64,
    /// Items that got a cell.
    pub placed: u64,
    /// Items that no cell accepted.
    pub unplaced: u64,
    /// Items that a rep refused.
    pub refused: u64,
    /// Items whose rep did not answer.
    pub unanswered: u64,
}

/// State machine of an auctioneer.
#[derive(Clone, Debug)]
pub struct Auctioneer {
    id: ServiceId,
    settings: Settings,
    world: World,
    caught_up: bool,
    /// Term in which this auctioneer places work.
    acting_term: Option<u64>,
    election: Election,
    cells: Cells,
    open: OpenWork,
    leases: Leases,
    /// Number of the last auction.
    round: u64,
    /// Value of the cluster's preemption setting when it was last checked.
    preemption_enabled: bool,
    /// Time until which a new leader does not preempt work. `None` after that time.
    settles_until: Option<Timestamp>,
    /// Reservations after the last [`Input::Turn`]: the waiting work and the cell on which resources are
    /// reserved for it.
    last_reservations: BTreeSet<(WorkRef, CellId)>,
    outgoing: Outgoing,
    deeds: Totals,
    clock: MonotonicClock,
    /// Time of the last step. Waiting times are measured from this time.
    now: Timestamp,
}

impl Auctioneer {
    /// Creates an auctioneer with an empty state.
    #[must_use]
    pub fn new(id: ServiceId, settings: Settings) -> Self {
        Self::with_world(id, settings, World::new())
    }

    /// Creates an auctioneer from a snapshot of the projected state (World).
    #[must_use]
    pub fn with_world(id: ServiceId, settings: Settings, world: World) -> Self {
        Self {
            election: Election::new(id.clone()),
            id,
            settings,
            world,
            caught_up: false,
            acting_term: None,
            cells: Cells::default(),
            open: OpenWork::default(),
            leases: Leases::default(),
            round: 0,
            preemption_enabled: false,
            settles_until: None,
            last_reservations: BTreeSet::new(),
            outgoing: Outgoing::default(),
            deeds: Totals::default(),
            clock: MonotonicClock::default(),
            now: Timestamp(0),
        }
    }

    /// Sets an election that has received leader heartbeats during the read of the log. The leader timeout
    /// counts from these heartbeats.
    #[must_use]
    pub fn with_election(self, election: Election) -> Self {
        Self { election, ..self }
    }

    /// Returns the state folded from the log so far.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// Returns the id of this auctioneer.
    #[must_use]
    pub const fn id(&self) -> &ServiceId {
        &self.id
    }

    /// Returns `true` if this auctioneer leads: it has read the whole log, and the log names it as the
    /// leader.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.term().is_some()
    }

    /// Returns the position, term and role that this instance reports.
    #[must_use]
    pub fn standing(&self) -> LeadershipStatus {
        LeadershipStatus {
            position: self.world.position(),
            term: self.election.term(),
            leads: self.is_leader(),
        }
    }

    /// Returns the time of the next [`Input::Tick`].
    #[must_use]
    pub fn alarm(&self) -> Option<Timestamp> {
        let waits = self.cells.gathers_until(self.now).filter(|_| !self.outgoing.is_due());
        let ready = (self.places_next() > 0 || self.outgoing.is_due()).then_some(waits.unwrap_or(self.now));
        let election = self.has_cluster().then(|| self.election.next_due());
        let leases = self.leases.next_due().filter(|_| self.acting_term.is_some());
        let settled = self.settles_until.filter(|_| self.acting_term.is_some());
        let due = [election, self.open.next_timer(), leases, settled, ready].into_iter().flatten().min();
        due.map(|due| self.clock.clock_time_at(due))
    }

    /// Returns the number of items in the next auction. If little of [`Settings::outstanding`] is left,
    /// returns 0, and the auction waits until more work can be handed out. An auction visits all instances of
    /// its processes even if it places only a few items, so small auctions are expensive.
    fn places_next(&self) -> usize {
        let Settings { batch, outstanding, .. } = self.settings;
        let ready = self.open.ready().min(batch);
        let room = outstanding.saturating_sub(self.open.handed_out());
        if room < ready.min(outstanding / 2) { 0 } else { ready.min(room) }
    }

    /// Returns the current amounts of work and messages.
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

    /// Returns the cumulative figures since the start.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        self.deeds
    }

    /// Returns `true` if the journal has been read to its end once.
    #[must_use]
    pub const fn is_caught_up(&self) -> bool {
        self.caught_up
    }

    /// Returns the sizes of internal collections by name. When no work is in progress, the content of the log
    /// bounds each size.
    #[must_use]
    pub fn collection_sizes(&self) -> BTreeMap<&'static str, usize> {
        let ((rooms, early), (timers, withheld, awaiting)) =
            (self.cells.counts(), self.open.bookkeeping_counts());
        BTreeMap::from([
            ("known cells", rooms),
            ("cells not in the log yet", early),
            ("work items", self.open.counts().0),
            ("timers of work items", timers),
            ("withheld work items", withheld),
            ("work items awaiting room", awaiting),
            ("leased evaluations", self.leases.len()),
        ])
    }

    /// Returns the assumed free resources of a present cell: the free resources in its rep's last report,
    /// less the work handed out after that report.
    #[must_use]
    pub fn free_on(&self, cell: &CellId) -> Option<Resources> {
        self.cells.free_on(cell)
    }

    /// Processes one input.
    pub fn step(&mut self, now: Timestamp, input: Input) -> Vec<Effect> {
        let now = self.clock.at(now);
        self.now = now;
        let act = matches!(input, Input::Turn | Input::Tick);
        self.apply_input(now, input);
        self.election.follow(leader(&self.world), now);
        self.update_acting_term(now);
        let mut effects: Vec<Effect> = self.run_election(now).into_iter().collect();
        if let Some(term) = self.acting_term.filter(|_| act) {
            effects.extend(self.act(now, term));
        }
        effects
    }

    /// Returns `true` if the log has been read and contains a cluster. Without a cluster there is no
    /// leadership.
    fn has_cluster(&self) -> bool {
        self.caught_up && self.world.cluster().is_some()
    }

    /// Performs the action that the election requires.
    fn run_election(&mut self, now: Timestamp) -> Option<Effect> {
        if !self.has_cluster() {
            self.election.poll(now);
            return None;
        }
        let id = self.id.clone();
        match self.election.duty(now) {
            Duty::None => None,
            Duty::Heartbeat => Some(Effect::Beat(self.leader_heartbeat(false))),
            Duty::Campaign(term) => Some(Effect::Lead(Lead { id, term })),
        }
    }

    fn leader_heartbeat(&self, steps_down: bool) -> LeaderHeartbeat {
        let (id, term, position) = (self.id.clone(), self.election.term(), self.world.position());
        LeaderHeartbeat { id, term, position, steps_down }
    }

    /// Returns the last heartbeat of a stopping leader, after which a standby takes over at once. `None` if
    /// this auctioneer does not lead.
    #[must_use]
    pub fn final_heartbeat(&self) -> Option<LeaderHeartbeat> {
        self.is_leader().then(|| self.leader_heartbeat(true))
    }

    /// Returns the term in which this auctioneer leads.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        let leader = leader(&self.world).filter(|leader| self.caught_up && leader.id == self.id);
        leader.map(|leader| leader.term)
    }

    fn apply_input(&mut self, now: Timestamp, input: Input) {
        match input {
            Input::Recorded { position, entry } => self.fold(now, position, &entry),
            Input::CaughtUp => self.caught_up = true,
            Input::Heartbeat(heartbeat) => {
                self.cells.record_heartbeat(&self.world, &heartbeat, now, &self.settings);
            }
            Input::Performed { cell, id, answer } => self.perform_answered(now, &cell, id, answer),
            Input::OutcomesAnswered { id, answer } => {
                let reported = self.outgoing.answered(id);
                if !matches!(answer, Some(Ok(_))) {
                    self.retry_outcomes(now, reported);
                }
            }
            Input::LeadAnswered(answer) => match answer {
                // The log will name the new leader.
                Some(Ok(_)) => {}
                Some(Err(refusal)) if refusal.code != Code::Unavailable => self.election.campaign_lost(now),
                Some(Err(_)) => self.election.campaign_refused(now),
                None => self.election.campaign_unanswered(now),
            },
            Input::Beat(beat) => self.election.record_heartbeat(&beat, now),
            Input::Turn | Input::Tick => {}
        }
    }

    /// Starts or stops placing work when the log names a new leader.
    fn update_acting_term(&mut self, now: Timestamp) {
        let term = self.term();
        if term == self.acting_term {
            return;
        }
        self.acting_term = term;
        self.outgoing.clear();
        self.leases.clear();
        self.last_reservations.clear();
        match term {
            Some(term) => {
                self.cells.begin_term(term, now, &self.settings);
                self.open = OpenWork::from_world(&self.world);
                self.settles_until = Some(now + self.settings.heartbeat * 2);
            }
            None => {
                self.cells.end_term();
                self.open = OpenWork::default();
            }
        }
    }

    fn fold(&mut self, now: Timestamp, position: Position, entry: &Entry) {
        let changes = self.world.fold(position, entry);
        for change in &changes {
            match change {
                Change::Cell(id) => {
                    let lost = self.cells.apply_record(&self.world, id, now, &self.settings);
                    self.reschedule_lost(&lost);
                }
                // A new BBS leader may not know the leases, so report all of them.
                Change::Cluster => {
                    self.leases.report_all(now);
                    self.follow_preemption();
                }
                Change::Process(_)
                | Change::Task(_)
                | Change::Periodic(_)
                | Change::Parameterised(_)
                | Change::Domain(_) => {}
            }
        }
        if self.acting_term.is_some() && !changes.is_empty() {
            entry.decisions.iter().for_each(|decision| self.apply_decision(decision));
        }
    }

    /// Updates open work from a decision. Only work that the decision concerns is inspected.
    fn apply_decision(&mut self, decision: &Decision) {
        self.follow_eviction(decision);
        match &decision.aggregate {
            Aggregate::Process { guid, .. } => {
                for event in &decision.events {
                    self.apply_process_event(guid, event);
                    if let Event::Evaluation(event) = event {
                        self.end_settled_lease(event, decision.id);
                        self.apply_process_evaluation(guid, event);
                    }
                }
            }
            Aggregate::Task { guid, .. } => {
                let work = WorkRef::Task(guid.clone());
                self.open.refresh(&self.world, &work);
                self.follow_error(&work);
                for event in &decision.events {
                    if let Event::Evaluation(event) = event {
                        self.end_settled_lease(event, decision.id);
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

    fn apply_process_event(&mut self, guid: &ProcessGuid, event: &Event) {
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
                    gone.into_iter().for_each(|evaluation| self.leases.reset_attempts(evaluation));
                }
                if event.vacates_cells() {
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

    /// Ends the lease of an evaluation that is settled.
    fn end_settled_lease(&mut self, event: &evaluation::Event, decision: DecisionId) {
        if machines::evaluation::Step::from_event(event).ends_evaluation() {
            self.leases.end(event.evaluation(decision));
        }
    }

    /// Updates the work of a process whose evaluation is new, was delivered again, or was retried.
    fn apply_process_evaluation(&mut self, guid: &ProcessGuid, event: &evaluation::Event) {
        match event {
            evaluation::Event::Created { .. }
            | evaluation::Event::Redelivered { .. }
            | evaluation::Event::Failed { .. }
            | evaluation::Event::Canceled { .. } => self.open.refresh_process(&self.world, guid),
            evaluation::Event::Retried { evaluation, .. } => {
                self.open.retry(&self.world, guid, *evaluation);
            }
            evaluation::Event::Joined { .. }
            | evaluation::Event::DelayChanged { .. }
            | evaluation::Event::Due { .. }
            | evaluation::Event::Blocked { .. }
            | evaluation::Event::Completed { .. } => {}
        }
    }

    fn perform_answered(
        &mut self,
        now: Timestamp,
        cell: &CellId,
        id: PerformId,
        answer: Option<Result<PerformReply, Refusal>>,
    ) {
        let refused = match answer {
            Some(Ok(performed)) => {
                self.mark_accepted(cell, id);
                self.cells.accept(cell, id, performed.refused)
            }
            // The rep has seen a higher term, so the log will name a new leader. It is useless to place the
            // work on another cell before.
            Some(Err(refusal)) if refusal.code == Code::StaleTerm => vec![],
            // The rep did not evaluate the work. The refusal does not count as a round, and does not mean
            // that the cell has too few free resources.
            Some(Err(refusal)) if refusal.code.class() == Class::Retryable => {
                let back = self.cells.postpone(cell, id, now, &self.settings);
                let back: Vec<LostWork> = back.into_iter().map(|item| (item, cell.clone(), id)).collect();
                self.reschedule_lost(&back);
                vec![]
            }
            Some(Err(refusal)) => self.cells.refused(cell, id, &refusal.message),
            None => return self.perform_unanswered(now, cell, id),
        };
        self.deeds.refused += refused.len() as u64;
        for (item, reason) in refused {
            self.handle_refusal(now, &item, (cell, id), reason);
        }
    }

    /// Marks all work of a `Perform` as accepted. Afterwards the caller reschedules the items that the rep
    /// refused.
    fn mark_accepted(&mut self, cell: &CellId, id: PerformId) {
        let handed =
            self.cells.work_of(cell, id).filter_map(|item| self.open.handed_out_piece(item, (cell, id)));
        for work in handed.collect::<Vec<_>>() {
            self.open.mark_accepted(&work);
        }
    }

    /// Handles a `Perform` without an answer. The rep may have received the work, so the work waits for its
    /// timeout, and the next auction prefers another cell. Exception: if the `Perform` was a repetition and
    /// the rep's heartbeats do not show the work, the work is ready immediately.
    fn perform_unanswered(&mut self, now: Timestamp, cell: &CellId, id: PerformId) {
        let (items, again) = self.cells.unanswered(cell, id, now, &self.settings);
        self.deeds.unanswered += items.len() as u64;
        let is_over = again && !self.cells.has_seen(cell, id);
        for work in
            items.iter().filter_map(|item| self.open.handed_out_piece(item, (cell, id))).collect::<Vec<_>>()
        {
            self.open.avoid(&work, cell);
            if is_over {
                self.open.make_ready(&work);
            }
        }
    }

    /// Handles work that a rep refused. The work takes part in the next auction, which prefers other cells.
    /// After the maximum number of rounds the auctioneer gives up the evaluation of the work. Work that may
    /// run only on this cell waits for free resources there.
    fn handle_refusal(&mut self, now: Timestamp, item: &Item, by: (&CellId, PerformId), reason: String) {
        let Some(work) = self.open.handed_out_piece(item, by) else { return };
        self.open.avoid(&work, by.0);
        let most = match &work {
            WorkRef::Lrp(_) => self.settings.attempts,
            WorkRef::Task(_) => self.settings.task_attempts,
        };
        let (round, attempt) = (self.open.round(&work), self.open.attempt(&work));
        let again = attempt.evaluation.is_none_or(|id| self.leases.record_refusal(id, round, most));
        if again && !self.open.has_only_cell(&work) {
            return self.open.make_ready(&work);
        }
        let reason = if reason.is_empty() { INSUFFICIENT_RESOURCES.to_owned() } else { reason };
        self.fail(now, &work, (reason, None), !again);
    }

    /// Makes work ready again if its rep has disappeared or was replaced.
    fn reschedule_lost(&mut self, lost: &[LostWork]) {
        for (item, cell, id) in lost {
            if let Some(work) = self.open.handed_out_piece(item, (cell, *id)) {
                self.open.make_ready(&work);
            }
        }
    }

    /// Blocks work that no cell accepts and reports the error, unless the log already contains the error. If
    /// cells may be silent because of a fault of the auctioneer itself, it withholds the work and reports
    /// nothing.
    fn fail(
        &mut self,
        now: Timestamp,
        work: &WorkRef,
        (error, explanation): (String, Option<Explanation>),
        attempts_exhausted: bool,
    ) {
        if self.cells.is_in_doubt(now, &self.settings) {
            return self.open.withhold(work, self.cells.doubt_ends(now, &self.settings));
        }
        if self.defer_report(now, work) {
            return;
        }
        let attempt = self.open.attempt(work);
        let refused = attempts_exhausted || attempt.after_refusals;
        let retry = if refused { self.settings.retry_refused } else { self.settings.retry };
        self.open.block(work, now + retry);
        let error = self.error_with_room(now, work, &error);
        if known_error(&self.world, work) == Some(&error) {
            return;
        }
        // A reported outcome that the log does not contain after a while was lost, even if the BBS
        // acknowledged it. The auctioneer reports the outcome again.
        let Some(evaluation) = attempt.evaluation else { return };
        if let Some(item) = self.open.record_report(work, &error, now, self.settings.retry) {
            self.outgoing.add(FailedPlacement { item, evaluation, attempts_exhausted, error, explanation });
        }
    }

    /// Blocks work whose last outcome the BBS did not accept, because it must not be reported again yet.
    /// Returns `true` for such work.
    fn defer_report(&mut self, now: Timestamp, work: &WorkRef) -> bool {
        let until = self.open.quiet_until(work);
        if now < until {
            self.open.block(work, until);
        }
        now < until
    }

    /// Schedules a retry of outcomes that the BBS did not accept. The retry reports the current state of the
    /// work, not the rejected outcome.
    fn retry_outcomes(&mut self, now: Timestamp, reported: Vec<WorkRef>) {
        for work in reported {
            self.open.eviction_unanswered(&work);
            self.open.outcome_rejected(&work, now + self.settings.outcome_retry);
        }
    }
}

/// Returns the leader that the log names.
fn leader(world: &World) -> Option<&Leader> {
    world.cluster()?.leader(Role::Auctioneer)
}
