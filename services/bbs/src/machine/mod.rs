//! The BBS as a state machine. [`Bbs::step`] composes duties. A duty is a part of the state with private
//! fields. Each duty is a type in its own file:
//!
//! | duty | responsibility |
//! |---|---|
//! | [`Log`] | projected state (World), quarantined entries, ends of subjects, World snapshot for queries |
//! | [`Shards`] | queues and entries in flight (sent, but not yet delivered) |
//! | [`Appends`] | health and latency of appends |
//! | [`Confirmations`] | answers without an entry, until the journal's leader confirms them |
//! | [`PendingReplies`] | pending replies: messages of many parts, commands per client |
//! | [`WaitingQueries`] | queries that wait until the World has reached a position |
//! | [`Leadership`] | leading, leader heartbeats, campaigns |
//! | [`Presence`] | signs of life of cells, probes, mass-loss guard |
//! | [`LiveServices`] | displayed list of live BBSs and auctioneers |
//! | [`Clocks`] | differences between clocks; time of decisions |
//! | [`Timelines`] | subjects on which the log is ahead of the clocks |
//! | [`Callbacks`] | completion callbacks to the owners of tasks |
//! | [`Convergence`] | targets to converge, full convergence passes |
//!
//! No duty refers to another duty. Each duty receives events and returns consequences. The files of this
//! module pass the consequences on: `commands` (requests), `journal` (deliveries, decisions, appends),
//! `reactions` (consequences of a recorded entry), `cells` (heartbeats and probes), `timers` (alarms),
//! `queries`.

mod cells;
mod commands;
mod journal;
mod leases;
mod queries;
mod reactions;
mod timers;

pub use queries::{answer, answer_within};

use std::collections::BTreeMap;
use std::time::Duration;

use election::Election;
use projections::cluster_log::QuarantinedPositions;
use projections::{Reader, World};
use schemas::cluster::Role;
use schemas::message::{LeadershipStatus, Program, ServiceStatus};
use schemas::names::{IdGenerator, ServiceId};
use schemas::query::{AppendProblem, LogRow, Services};
use schemas::subject::Position;
use schemas::{Code, MonotonicClock, Refusal, Timestamp};

use crate::appends::Appends;
use crate::callbacks::Callbacks;
use crate::clocks::{Clocks, Source, TOLERANCE};
use crate::command::{AggregateCommand, QueuedCommand, Requester, Verdict};
use crate::confirm::Confirmations;
use crate::convergence::Convergence;
use crate::effect::{Effect, Reply};
use crate::input::Input;
use crate::leadership::Leadership;
use crate::leases::Leases;
use crate::living::{LiveServices, OwnService};
use crate::log::Log;
use crate::presence::{self, Presence};
use crate::rates::Rates;
use crate::requesters::PendingReplies;
use crate::shards::{Admission, Shards};
use crate::timelines::{Timelines, Times};
use crate::waiting::WaitingQueries;

/// Interval between repeated stop orders for an instance that is still running.
const STOP_RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Time that reps have after an election to report instances and tasks that ended while no BBS led. Reps need
/// up to a second.
const REPORT_GRACE_PERIOD: Duration = Duration::from_secs(2);
/// Number of aggregates inspected per slice of a full convergence pass. A slice takes about 1 ms if nothing
/// is due.
pub const SLICE_LEN: usize = 500;
/// Maximum number of queued commands over all shards. Further commands are refused with `Overloaded`.
const MAX_QUEUED: usize = 100_000;

/// Startup configuration of a BBS.
#[derive(Clone, Debug)]
pub struct Config {
    pub id: ServiceId,
    /// Shard count of a cluster that this BBS founds in an empty log. `None` if the BBS must not found a
    /// cluster.
    ///
    /// If the log can be lost, an empty log does not prove that the cluster is new. A program with such a log
    /// must not found a cluster.
    pub founding_shards: Option<u16>,
    /// Timeouts of the presence detection.
    pub presence: presence::Config,
    /// Human-readable durability guarantee of acknowledged entries.
    pub durability: String,
    /// Number of ended containers that queries show per index. A process may override this number.
    pub history_limit: u32,
    /// Host, process id and version, as displayed to users.
    pub program: Program,
    /// Number of aggregates inspected per slice of a full convergence pass, at least 1. Small slices keep
    /// commands responsive.
    pub slice_len: usize,
    /// Limit of the bytes in flight. Above the limit, the BBS sends only commands of clients (see
    /// [`schemas::limits::BYTES_IN_FLIGHT`]).
    pub bytes_in_flight: usize,
    /// `false` makes the BBS read-only: it serves queries from the log and refuses commands.
    pub may_lead: bool,
}

/// Point-in-time health figures of a BBS, exported as metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauges {
    /// Position, term and leadership.
    pub standing: LeadershipStatus,
    /// `true` if this BBS has read the journal to its end at least once.
    pub caught_up: bool,
    /// Number of commands that wait for a decision.
    pub commands_waiting: usize,
    /// Number of entries that were sent but not yet settled.
    pub entries_in_flight: usize,
    /// `true` if this BBS leads and does not count silent cells as lost because most cells are silent.
    pub guards_mass_loss: bool,
    /// Number of completed full convergence passes.
    pub full_passes: u64,
    /// `true` during a full convergence pass.
    pub full_pass_running: bool,
    /// Milliseconds by which the clock of this BBS is ahead of the median of all clocks. Negative if the
    /// clock is behind.
    pub clock_ahead_ms: i64,
    /// Time by which the latest entry in the log is ahead of the clocks; 0 within the tolerance.
    pub log_ahead: Duration,
}

/// State machine of a BBS. Only the leading BBS makes decisions and appends them to the log.
#[derive(Clone, Debug)]
pub struct Bbs {
    settings: Config,
    ids: IdGenerator,
    clock: MonotonicClock,
    /// Time of this step on the steady clock, which measures durations.
    now: Timestamp,
    /// Time of the system clock in this step.
    wall: Timestamp,
    /// `wall`, corrected by the other clocks. Decisions carry this corrected time. Due times in the log are
    /// compared with it.
    shown: Timestamp,
    clocks: Clocks,
    timelines: Timelines,
    /// Time by which the latest entry in the log is ahead of the clocks; 0 within the tolerance.
    log_ahead: Duration,
    /// `true` after the BBS has read an entry that it does not understand. A halted BBS ignores all inputs.
    halted: bool,
    log: Log,
    shards: Shards,
    appends: Appends,
    confirmations: Confirmations,
    requesters: PendingReplies,
    /// Command rates of domains.
    rates: Rates,
    queries: WaitingQueries,
    leadership: Leadership,
    /// `true` if the BBS is subscribed to commands.
    is_subscribed: bool,
    presence: Presence,
    living: LiveServices,
    callbacks: Callbacks,
    convergence: Convergence,
    leases: Leases,
    /// Time until which reps may still report instances and tasks that ended while no BBS led.
    reports_until: Timestamp,
    /// Number of requests on evaluations that were refused because of the evaluation's status.
    refused_transitions: u64,
    /// Effects of the current step.
    effects: Vec<Effect>,
}

impl Bbs {
    /// Creates a BBS with an empty World (the state folded from the log). The caller must pass every entry of
    /// the journal to the BBS, followed by [`Input::CaughtUp`].
    #[must_use]
    pub fn new(settings: Config, ids: IdGenerator) -> Self {
        Self {
            leadership: Leadership::new(settings.id.clone(), settings.may_lead),
            presence: Presence::new(settings.presence),
            settings,
            ids,
            clock: MonotonicClock::default(),
            now: Timestamp(0),
            wall: Timestamp(0),
            shown: Timestamp(0),
            clocks: Clocks::default(),
            timelines: Timelines::default(),
            log_ahead: Duration::ZERO,
            halted: false,
            log: Log::new(Reader::default(), World::new()),
            shards: Shards::default(),
            appends: Appends::default(),
            is_subscribed: false,
            confirmations: Confirmations::default(),
            requesters: PendingReplies::default(),
            rates: Rates::default(),
            queries: WaitingQueries::default(),
            living: LiveServices::default(),
            callbacks: Callbacks::default(),
            convergence: Convergence::default(),
            leases: Leases::default(),
            reports_until: Timestamp(0),
            refused_transitions: 0,
            effects: vec![],
        }
    }

    /// Sets the positions that operators have quarantined. The positions include quarantines that the journal
    /// records at a later position.
    #[must_use]
    pub fn with_quarantined(self, quarantines: QuarantinedPositions) -> Self {
        self.with_log(Reader::with_quarantines(quarantines), World::new())
    }

    /// Starts from an existing World instead of the start of the log. `reader` must have read the log up to
    /// the World's position. The caller must pass every later entry to the BBS.
    #[must_use]
    pub fn with_log(self, reader: Reader, world: World) -> Self {
        Self { log: Log::new(reader, world), ..self }
    }

    /// Replaces the election by one that has received leader heartbeats since before the log was read. The
    /// timeouts of the new election start at that earlier time.
    #[must_use]
    pub fn with_election(self, election: Election) -> Self {
        Self { leadership: self.leadership.with_election(election), ..self }
    }

    /// Returns the reader of the log.
    #[must_use]
    pub const fn reader(&self) -> &Reader {
        self.log.reader()
    }

    /// Returns the reader and the World of a BBS that stops.
    #[must_use]
    pub fn into_parts(self) -> (Reader, World) {
        self.log.into_parts()
    }

    /// Returns the World up to the last delivered entry.
    #[must_use]
    pub const fn world(&self) -> &World {
        self.log.world()
    }

    /// Returns `true` if this BBS is allowed to lead.
    #[must_use]
    pub const fn may_lead(&self) -> bool {
        self.settings.may_lead
    }

    /// Returns `true` if this BBS leads.
    #[must_use]
    pub const fn leads(&self) -> bool {
        self.leadership.leads()
    }

    /// Returns `true` during a full convergence pass.
    #[must_use]
    pub const fn is_pass_running(&self) -> bool {
        self.convergence.is_pass_running()
    }

    /// Returns point-in-time health figures.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        Gauges {
            standing: self.standing(),
            caught_up: self.log.is_caught_up(),
            commands_waiting: self.shards.queued(),
            entries_in_flight: self.shards.in_flight(),
            guards_mass_loss: self.leads() && self.presence.guards_mass_loss(),
            full_passes: self.convergence.full_passes(),
            full_pass_running: self.convergence.is_pass_running(),
            clock_ahead_ms: self.clocks.ahead_ms(),
            log_ahead: self.log_ahead,
        }
    }

    /// Returns the trouble with appends; `None` if they are healthy.
    #[must_use]
    pub fn append_problem(&self) -> Option<AppendProblem> {
        let oldest = self.shards.oldest_flight().map(|sent| self.now.since(sent));
        self.appends.trouble(oldest, self.now)
    }

    /// Returns the last known state of the stream that holds the log. `None` if the stream has not been read
    /// yet, or if the log is not a stream.
    #[must_use]
    pub const fn log_row(&self) -> Option<&LogRow> {
        self.appends.log()
    }

    /// Returns position, term and leadership.
    #[must_use]
    pub const fn standing(&self) -> LeadershipStatus {
        LeadershipStatus {
            position: self.world().position(),
            term: self.leadership.term(),
            leads: self.leads() && !self.halted,
        }
    }

    /// Returns the time at which this BBS needs an [`Input::Tick`]. `None` if nothing can become due without
    /// another input.
    #[must_use]
    pub fn alarm(&self) -> Option<Timestamp> {
        if !self.log.is_caught_up() || self.halted {
            return None;
        }
        let always = [
            Some(self.leadership.next_due()),
            self.queries.next_due(),
            self.shards.next_due(),
            self.confirmations.next_due(),
        ];
        let leading = [
            Some(self.convergence.next_slice_at(self.now)),
            self.world().stopping().next().map(|_| self.convergence.next_stops()),
            self.callbacks.next_due(),
            self.leases.next_due(),
            self.presence.next_due(),
        ];
        let leading = leading.into_iter().filter(|_| self.leads());
        let waits = always.into_iter().chain(leading).flatten().min();
        // While the log is ahead of the clocks, every leader heartbeat checks the due times. So the due times
        // need no alarm.
        let of_log = self
            .world()
            .next_due()
            .filter(|_| self.leads() && self.convergence.is_idle() && self.timelines.is_empty());
        // During the report grace period, a due target is converged only at `reports_until`.
        let awaits = self.now < self.reports_until;
        let reported = self.clock.clock_time_at(self.reports_until);
        let shown_at = |due: Timestamp| self.wall + due.since(self.shown);
        let of_log = of_log.map(|due| if awaits && due <= self.shown { reported } else { shown_at(due) });
        waits.map(|at| self.clock.clock_time_at(at)).into_iter().chain(of_log).min()
    }

    /// Processes one input and returns the resulting effects in order.
    pub fn step(&mut self, now: Timestamp, input: Input) -> Vec<Effect> {
        self.update_clocks(now, &input);
        if self.halted {
            return vec![];
        }
        match input {
            Input::Delivered { position, subject, entry, bytes } => {
                self.handle_message(position, &subject, entry, &bytes);
            }
            Input::CaughtUp => {
                self.log.catch_up();
                // An earlier run of this BBS may have won the election.
                self.follow_leader();
            }
            Input::LogChecked(found) => self.handle_log_check(found),
            Input::NotAppended { subject, entry, why } => self.handle_append_failure(&subject, entry, why),
            Input::LastEntry { subject, last } => self.handle_last_entry(&subject, last),
            Input::Request { requester, ask } => self.handle_request(requester, ask),
            Input::Query { requester, at_least, query } => self.handle_query(requester, at_least, query),
            Input::Heartbeat(beat) => self.heartbeat(&beat),
            Input::ProbeResult { cell, answer } => match answer {
                Some(beat) => self.probe_answered(&cell, &beat),
                None => self.presence.handle_probe_timeout(&cell),
            },
            Input::LeaderHeartbeat(beat) => self.leadership.record_heartbeat(&beat, self.now),
            Input::Alive(alive) => self.handle_alive(alive),
            Input::ServerClock(clock) => {
                self.clocks.record(Source::Server, (clock, self.wall), false, self.now);
            }
            // Handled by `update_clocks`.
            Input::ClockStepped(_) => {}
            Input::CallResult { task, epoch, called } => self.handle_call_result(&task, epoch, &called),
            Input::Disconnected => self.presence.disconnected(),
            Input::Reconnected => self.presence.reconnected(self.now),
            Input::Turn => self.turn(),
            Input::Tick => self.tick(),
        }
        std::mem::take(&mut self.effects)
    }

    /// Updates the clocks with the time of this step.
    fn update_clocks(&mut self, now: Timestamp, input: &Input) {
        if let Input::ClockStepped(by) = input {
            self.clock.compensate_step(*by);
            self.clocks.adjust(*by);
        }
        self.wall = now;
        self.now = self.clock.at(now);
        let looked = self.clocks.update(self.now);
        self.shown = self.clocks.corrected(now);
        if looked {
            let ahead = self.world().latest().since(self.shown);
            self.log_ahead = if ahead > TOLERANCE { ahead } else { Duration::ZERO };
        }
        let set_back = self.timelines.advance(self.shown, self.now);
        if let Some(by) = set_back.filter(|_| self.leads()) {
            self.timelines.set_back(by, self.log.world().last_times(), self.shown);
        }
    }

    /// Returns the id of this BBS.
    #[must_use]
    pub const fn id(&self) -> &ServiceId {
        &self.settings.id
    }

    /// Returns the time of decisions at the moment when the system clock shows `shown`. The result is
    /// `shown`, corrected by the other clocks.
    #[must_use]
    pub fn time_at(&self, shown: Timestamp) -> Timestamp {
        self.clocks.corrected(shown)
    }

    /// Returns the times of new decisions on each subject.
    const fn times(&self) -> Times<'_> {
        Times::new(self.shown, &self.timelines)
    }

    /// Returns the amount of pending work by description. All values are zero if the BBS is idle.
    #[must_use]
    pub fn pending_work(&self) -> BTreeMap<&'static str, usize> {
        BTreeMap::from([
            ("queued commands", self.shards.queued()),
            ("entries in flight", self.shards.in_flight()),
            ("scheduled reads of subjects", self.shards.reads()),
            ("subjects with unconfirmed answers", self.confirmations.len()),
            ("messages with pending replies", self.requesters.messages()),
            ("pending commands of clients", self.requesters.commands()),
            ("clients with pending commands", self.requesters.clients()),
            ("ready subjects and bytes in flight", self.shards.bookkeeping_total()),
            ("pending reads of last entries", self.confirmations.pending_reads()),
            ("waiting queries", self.queries.len()),
            ("queued convergence targets", self.convergence.queued()),
            ("convergence targets in flight", self.convergence.in_flight()),
            ("callbacks in flight", self.callbacks.in_flight()),
        ])
    }

    /// Returns the numbers of remembered items by description. In an idle BBS, each number is at most the
    /// number of matching items in the log, for example cells or tasks.
    #[must_use]
    pub fn memory_sizes(&self) -> BTreeMap<&'static str, usize> {
        BTreeMap::from([
            ("subjects with a known end", self.log.ends()),
            ("watched cells", self.presence.watched()),
            ("outstanding callbacks", self.callbacks.outstanding()),
            ("evaluations leased by the auctioneer", self.leases.len()),
        ])
    }

    /// Decides the queued commands of all ready subjects. Commands that arrive together share an entry.
    fn turn(&mut self) {
        for subject in self.shards.take_ready() {
            match self.admission(&subject) {
                None => self.shards.defer(subject),
                Some(Admission::All) => self.decide(subject, Admission::All),
                Some(Admission::ClientsOnly) => {
                    self.decide(subject.clone(), Admission::ClientsOnly);
                    self.shards.defer(subject);
                }
            }
        }
        self.start_reads();
    }

    /// Queues a command.
    fn enqueue(&mut self, command: QueuedCommand) {
        let command = QueuedCommand { received: self.now, ..command };
        let subject = command.command.target().subject(self.world().shards());
        self.shards.push(subject, command);
    }

    /// Queues a command of the BBS itself.
    fn enqueue_own(&mut self, command: AggregateCommand) {
        self.enqueue(QueuedCommand::new(Requester::Own, self.me(), command));
    }

    /// Handles a sign of life of a BBS or an auctioneer.
    fn handle_alive(&mut self, alive: ServiceStatus) {
        let world = self.log.world();
        let leader = leader(world, alive.role);
        let source = Source::Service(alive.role, alive.id.clone());
        let (clock, may_lead) = (alive.clock, alive.may_lead);
        if self.living.record(alive, &self.settings.id, world.position(), leader, self.now) {
            self.clocks.record(source, (clock, self.wall), may_lead, self.now);
        }
    }

    /// Returns the live services, including this BBS.
    fn services(&self) -> Services {
        let append_problem = self.append_problem();
        let (id, program) = (&self.settings.id, &self.settings.program);
        let me =
            OwnService { id, program, standing: self.standing(), append_problem: append_problem.as_ref() };
        let clocks = self.clocks.row(&self.settings.id, self.log_ahead);
        Services { clocks, ..self.living.services(me, |role| leader(self.world(), role), self.now) }
    }

    fn me(&self) -> schemas::stamp::Actor {
        schemas::stamp::Actor::Bbs(self.settings.id.clone())
    }

    /// Sends the verdict of a command to the sender of the command. `position` is the log position on which
    /// the verdict is based.
    fn settle(&mut self, command: &QueuedCommand, position: Position, verdict: Verdict) {
        if let Some(due) = command.convergence_target() {
            self.convergence.settled(&due);
        }
        let illegal = verdict.as_ref().is_err_and(|refusal| refusal.code == Code::InvalidStateTransition);
        self.refused_transitions += u64::from(illegal && command.command.target().targets_evaluation());
        if let Some((requester, reply)) = self.requesters.settle(command, position, verdict, self.log.world())
        {
            self.emit(Effect::Reply { requester, reply });
        }
    }

    /// Sends a refusal to the sender of a command.
    fn refuse(&mut self, command: &QueuedCommand, refusal: Refusal) {
        self.settle(command, Position(0), Err(refusal));
    }

    fn emit(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    fn answer(&mut self, requester: u64, reply: Reply) {
        self.emit(Effect::Reply { requester, reply });
    }
}

/// Returns the refusal of a command that only a leader accepts.
fn not_leading_refusal(may_lead: bool) -> Refusal {
    if may_lead {
        return Refusal::new(Code::Unavailable, "this BBS does not lead: try again");
    }
    let why = "read-only: this BBS serves queries from its log and accepts no commands";
    Refusal::new(Code::InvalidStateTransition, why)
}

/// Returns the leader of a role in the log.
fn leader(world: &World, role: Role) -> Option<&ServiceId> {
    Some(&world.cluster()?.leader(role)?.id)
}
