//! The BBS as a state machine. [`Bbs::step`] composes duties; each duty is a type with private fields in its
//! own file:
//!
//! | duty | responsibility |
//! |---|---|
//! | [`Log`] | World, quarantined entries, ends of subjects, World snapshot for queries |
//! | [`Shards`] | queues and entries in flight |
//! | [`Appends`] | health and latency of appends |
//! | [`Confirmations`] | answers without an entry, until the journal's leader confirms them |
//! | [`Requesters`] | pending replies: messages of many parts, commands per client |
//! | [`WaitingQueries`] | queries for a position that is not folded yet |
//! | [`Leadership`] | leading, leader heartbeats, campaigns |
//! | [`Presence`] | signs of life of cells, probes, mass-loss guard |
//! | [`Living`] | displayed list of live BBSs and auctioneers |
//! | [`Clocks`] | differences between clocks; time of decisions |
//! | [`Timelines`] | subjects on which the log is ahead of the clocks |
//! | [`Callbacks`] | completion callbacks to the owners of tasks |
//! | [`Convergence`] | targets to converge, full convergence passes |
//!
//! Duties do not know each other. Each receives events and returns consequences, which these files pass on:
//! `commands` (requests), `journal` (deliveries, decisions, appends), `reactions` (consequences of a recorded
//! entry), `cells` (heartbeats and probes), `timers` (alarms), `queries`.

mod cells;
mod commands;
mod journal;
mod leases;
mod queries;
mod reactions;
mod timers;

pub use queries::{answer, answer_to};

use std::collections::BTreeMap;
use std::time::Duration;

use election::Election;
use projections::cluster_log::Positions;
use projections::{Reader, World};
use schemas::cluster::Role;
use schemas::message::{Alive, Program, Standing};
use schemas::names::{Ids, ServiceId};
use schemas::query::{AppendTrouble, LogRow, Services};
use schemas::subject::Position;
use schemas::{Code, Refusal, Steady, Timestamp};

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
use crate::living::{Living, Me};
use crate::log::Log;
use crate::presence::{self, Presence};
use crate::rates::Rates;
use crate::requesters::Requesters;
use crate::shards::{Boarding, Shards};
use crate::timelines::{Timelines, Times};
use crate::waiting::WaitingQueries;

/// Interval between repeated stop orders for an instance that is still running.
const STOP_AGAIN: Duration = Duration::from_secs(5);
/// Time that a new leader gives reps to report what ended while no BBS led. They take up to a second.
const REPORTS: Duration = Duration::from_secs(2);
/// Aggregates inspected per slice of a full convergence pass. A slice takes about 1 ms if nothing is due.
pub const SWEEP: usize = 500;
/// Maximum number of queued commands over all shards. Further ones are refused with `Overloaded`.
const MOST_QUEUED: usize = 100_000;

/// Startup configuration of a BBS.
#[derive(Clone, Debug)]
pub struct Settings {
    pub id: ServiceId,
    /// Shard count of a cluster that this BBS founds in an empty log; `None` if it must not found one.
    ///
    /// A program whose log can be lost must not take an empty log for a new cluster.
    pub founds: Option<u16>,
    /// Timeouts of the presence detection.
    pub presence: presence::Settings,
    /// Human-readable durability guarantee of acknowledged entries.
    pub durability: String,
    /// Number of ended containers that queries show per index, unless the process sets it.
    pub history_limit: u32,
    /// Host, process id and version, as displayed to users.
    pub program: Program,
    /// Aggregates inspected per slice of a full convergence pass, at least 1. Small slices keep commands
    /// responsive.
    pub sweep: usize,
    /// Bytes in flight beyond which only commands of clients are sent (see
    /// [`schemas::limits::BYTES_IN_FLIGHT`]).
    pub bytes_in_flight: usize,
    /// `false` makes the BBS read-only: it serves queries from the log and refuses commands.
    pub may_lead: bool,
}

/// Point-in-time health figures of a BBS, exported as metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauges {
    /// Position, term and leadership.
    pub standing: Standing,
    /// `true` if it has read the journal to its end once.
    pub caught_up: bool,
    /// Commands that wait to be decided.
    pub commands_waiting: usize,
    /// Entries that are not settled yet.
    pub entries_in_flight: usize,
    /// `true` if it leads and delays the loss of cells because most of them are silent.
    pub guards_mass_loss: bool,
    /// Number of completed full convergence passes.
    pub looks: u64,
    /// `true` during a full convergence pass.
    pub looking: bool,
    /// Milliseconds by which its clock is ahead of the median of all clocks; negative if it is behind.
    pub clock_ahead_ms: i64,
    /// Time by which the log is ahead of the clocks; 0 within the tolerance.
    pub log_ahead: Duration,
}

/// State machine of a BBS. The leading BBS makes all decisions and is the only one that appends them.
#[derive(Clone, Debug)]
pub struct Bbs {
    settings: Settings,
    ids: Ids,
    clock: Steady,
    /// Steady time of this step, by which durations are measured.
    now: Timestamp,
    /// Time of the system clock in this step.
    wall: Timestamp,
    /// `wall`, corrected by the other clocks. Decisions carry this time, and due times in the log are
    /// compared with it.
    shown: Timestamp,
    clocks: Clocks,
    timelines: Timelines,
    /// Time by which the log is ahead of the clocks, if that exceeds the tolerance; otherwise 0.
    log_ahead: Duration,
    /// `true` after an entry that it does not understand. A halted BBS ignores all inputs.
    halted: bool,
    log: Log,
    shards: Shards,
    appends: Appends,
    confirmations: Confirmations,
    requesters: Requesters,
    /// Command rates of domains.
    rates: Rates,
    queries: WaitingQueries,
    leadership: Leadership,
    /// `true` if it is subscribed to commands.
    listens: bool,
    presence: Presence,
    living: Living,
    callbacks: Callbacks,
    convergence: Convergence,
    leases: Leases,
    /// Time until which reps may still report what ended while no BBS led.
    reports_until: Timestamp,
    /// Number of requests about an evaluation that its status did not allow.
    refused_transitions: u64,
    /// Effects of the current step.
    effects: Vec<Effect>,
}

impl Bbs {
    /// Creates a BBS with an empty World. Pass it every entry of the journal, then [`Input::CaughtUp`].
    #[must_use]
    pub fn new(settings: Settings, ids: Ids) -> Self {
        Self {
            leadership: Leadership::new(settings.id.clone(), settings.may_lead),
            presence: Presence::new(settings.presence),
            settings,
            ids,
            clock: Steady::default(),
            now: Timestamp(0),
            wall: Timestamp(0),
            shown: Timestamp(0),
            clocks: Clocks::default(),
            timelines: Timelines::default(),
            log_ahead: Duration::ZERO,
            halted: false,
            log: Log::starting(Reader::default(), World::new()),
            shards: Shards::default(),
            appends: Appends::default(),
            listens: false,
            confirmations: Confirmations::default(),
            requesters: Requesters::default(),
            rates: Rates::default(),
            queries: WaitingQueries::default(),
            living: Living::default(),
            callbacks: Callbacks::default(),
            convergence: Convergence::default(),
            leases: Leases::default(),
            reports_until: Timestamp(0),
            refused_transitions: 0,
            effects: vec![],
        }
    }

    /// Sets the positions that operators have quarantined, wherever in the journal that is recorded.
    #[must_use]
    pub fn knowing(self, set_aside: Positions) -> Self {
        self.starting(Reader::knowing(set_aside), World::new())
    }

    /// Starts from a World instead of the start of the log. `reader` must have read the log up to the World's
    /// position. Pass it every later entry.
    #[must_use]
    pub fn starting(self, reader: Reader, world: World) -> Self {
        Self { log: Log::starting(reader, world), ..self }
    }

    /// Replaces the election with one that has received leader heartbeats since before the log was read.
    /// Timeouts count from then.
    #[must_use]
    pub fn having_listened(self, election: Election) -> Self {
        Self { leadership: self.leadership.listened(election), ..self }
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
    pub const fn is_sweeping(&self) -> bool {
        self.convergence.is_sweeping()
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
            looks: self.convergence.looks(),
            looking: self.convergence.is_sweeping(),
            clock_ahead_ms: self.clocks.ahead_ms(),
            log_ahead: self.log_ahead,
        }
    }

    /// Returns the trouble with appends; `None` if they are healthy.
    #[must_use]
    pub fn append_trouble(&self) -> Option<AppendTrouble> {
        let oldest = self.shards.oldest_flight().map(|sent| self.now.since(sent));
        self.appends.trouble(oldest, self.now)
    }

    /// Returns the stream that holds the log, as last read; `None` if it has not been read, or the log is not
    /// a stream.
    #[must_use]
    pub const fn log_row(&self) -> Option<&LogRow> {
        self.appends.log()
    }

    /// Returns position, term and leadership.
    #[must_use]
    pub const fn standing(&self) -> Standing {
        Standing {
            position: self.world().position(),
            term: self.leadership.term(),
            leads: self.leads() && !self.halted,
        }
    }

    /// Returns the time at which it needs an [`Input::Tick`]; `None` if only another input can make something
    /// due.
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
            Some(self.convergence.next_sweep(self.now)),
            self.world().stopping().next().map(|_| self.convergence.next_stops()),
            self.callbacks.next_due(),
            self.leases.next_due(),
            self.presence.next_due(),
        ];
        let leading = leading.into_iter().filter(|_| self.leads());
        let waits = always.into_iter().chain(leading).flatten().min();
        // While the log is ahead of the clocks, every leader heartbeat checks the due times.
        let of_log = self
            .world()
            .next_due()
            .filter(|_| self.leads() && self.convergence.is_idle() && self.timelines.is_empty());
        // A target that is due but not in flight waits for reports.
        let awaits = self.now < self.reports_until;
        let reported = self.clock.shown_at(self.reports_until);
        let shown_at = |due: Timestamp| self.wall + due.since(self.shown);
        let of_log = of_log.map(|due| if awaits && due <= self.shown { reported } else { shown_at(due) });
        waits.map(|at| self.clock.shown_at(at)).into_iter().chain(of_log).min()
    }

    /// Processes one input and returns the resulting effects in order.
    pub fn step(&mut self, now: Timestamp, input: Input) -> Vec<Effect> {
        self.take_time(now, &input);
        if self.halted {
            return vec![];
        }
        match input {
            Input::Recorded { position, subject, entry, bytes } => {
                self.recorded(position, &subject, entry, &bytes);
            }
            Input::CaughtUp => {
                self.log.catch_up();
                // An earlier run of this BBS may have been elected.
                self.follow_leader();
            }
            Input::Checked(found) => self.checked(found),
            Input::NotAppended { subject, entry, why } => self.not_appended(&subject, entry, why),
            Input::Last { subject, last } => self.last_read(&subject, last),
            Input::Asked { requester, ask } => self.asked(requester, ask),
            Input::Queried { requester, at_least, query } => self.queried(requester, at_least, query),
            Input::Heartbeat(beat) => self.heartbeat(&beat),
            Input::Probed { cell, answer } => match answer {
                Some(beat) => self.probe_answered(&cell, &beat),
                None => self.presence.unanswered(&cell),
            },
            Input::Beat(beat) => self.leadership.heard(&beat, self.now),
            Input::Alive(alive) => self.alive(alive),
            Input::ServerClock(clock) => {
                self.clocks.read(Source::Server, (clock, self.wall), false, self.now);
            }
            // Handled by `take_time`.
            Input::ClockStepped(_) => {}
            Input::Called { task, epoch, called } => self.called(&task, epoch, &called),
            Input::Disconnected => self.presence.disconnected(),
            Input::Reconnected => self.presence.reconnected(self.now),
            Input::Turn => self.turn(),
            Input::Tick => self.tick(),
        }
        std::mem::take(&mut self.effects)
    }

    /// Updates the clocks with the time of this step.
    fn take_time(&mut self, now: Timestamp, input: &Input) {
        if let Input::ClockStepped(by) = input {
            self.clock.stepped(*by);
            self.clocks.stepped(*by);
        }
        self.wall = now;
        self.now = self.clock.at(now);
        let looked = self.clocks.look(self.now);
        self.shown = self.clocks.corrected(now);
        if looked {
            let ahead = self.world().latest().since(self.shown);
            self.log_ahead = if ahead > TOLERANCE { ahead } else { Duration::ZERO };
        }
        let set_back = self.timelines.pass(self.shown, self.now);
        if let Some(by) = set_back.filter(|_| self.leads()) {
            self.timelines.set_back(by, self.log.world().last_times(), self.shown);
        }
    }

    /// Returns the id of this BBS.
    #[must_use]
    pub const fn id(&self) -> &ServiceId {
        &self.settings.id
    }

    /// Returns the time of decisions when the system clock shows `shown`: that time, corrected by the other
    /// clocks.
    #[must_use]
    pub fn time_at(&self, shown: Timestamp) -> Timestamp {
        self.clocks.corrected(shown)
    }

    /// Returns the times of decisions on each subject.
    const fn times(&self) -> Times<'_> {
        Times::new(self.shown, &self.timelines)
    }

    /// Returns the amount of pending work by description. All values are zero when the BBS is idle.
    #[must_use]
    pub fn books(&self) -> BTreeMap<&'static str, usize> {
        BTreeMap::from([
            ("commands that wait", self.shards.queued()),
            ("entries in flight", self.shards.in_flight()),
            ("subjects that are read again", self.shards.reads()),
            ("subjects whose answers wait for the journal's leader", self.confirmations.len()),
            ("messages that are being decided", self.requesters.messages()),
            ("commands that clients wait for", self.requesters.commands()),
            ("clients with commands that wait", self.requesters.clients()),
            ("subjects that are marked as ready, and bytes in flight", self.shards.marked()),
            ("subjects whose last entry is to be read", self.confirmations.reads_left()),
            ("queries that wait", self.queries.len()),
            ("things to be converged", self.convergence.queued()),
            ("convergence on its way to the log", self.convergence.in_flight()),
            ("callbacks that are out", self.callbacks.out()),
        ])
    }

    /// Returns the numbers of remembered items by description. When the BBS is idle, the contents of the log
    /// bound all values.
    #[must_use]
    pub fn remembered(&self) -> BTreeMap<&'static str, usize> {
        BTreeMap::from([
            ("subjects whose end it knows", self.log.ends()),
            ("cells that it watches", self.presence.watched()),
            ("calls that it owes", self.callbacks.owed()),
            ("evaluations that the auctioneer has", self.leases.len()),
        ])
    }

    /// Decides the queued commands of all ready subjects, so that commands that arrive together share an
    /// entry.
    fn turn(&mut self) {
        for subject in self.shards.take_ready() {
            match self.boarding(&subject) {
                None => self.shards.keep_in_line(subject),
                Some(Boarding::All) => self.decide(subject, Boarding::All),
                Some(Boarding::Asked) => {
                    self.decide(subject.clone(), Boarding::Asked);
                    self.shards.keep_in_line(subject);
                }
            }
        }
        self.read_last();
    }

    /// Queues a command.
    fn enqueue(&mut self, command: QueuedCommand) {
        let command = QueuedCommand { received: self.now, ..command };
        let subject = command.command.subject(self.world().shards());
        self.shards.push(subject, command);
    }

    /// Queues a command of the BBS itself.
    fn enqueue_own(&mut self, command: AggregateCommand) {
        self.enqueue(QueuedCommand::new(Requester::Own, self.me(), command));
    }

    /// Handles a sign of life of a BBS or an auctioneer.
    fn alive(&mut self, alive: Alive) {
        let world = self.log.world();
        let leader = leader(world, alive.role);
        let source = Source::Service(alive.role, alive.id.clone());
        let (clock, may_lead) = (alive.clock, alive.may_lead);
        if self.living.heard(alive, &self.settings.id, world.position(), leader, self.now) {
            self.clocks.read(source, (clock, self.wall), may_lead, self.now);
        }
    }

    /// Returns the live services, including this BBS.
    fn services(&self) -> Services {
        let append_trouble = self.append_trouble();
        let (id, program) = (&self.settings.id, &self.settings.program);
        let me = Me { id, program, standing: self.standing(), append_trouble: append_trouble.as_ref() };
        let clocks = self.clocks.row(&self.settings.id, self.log_ahead);
        Services { clocks, ..self.living.services(me, |role| leader(self.world(), role), self.now) }
    }

    fn me(&self) -> schemas::entry::Actor {
        schemas::entry::Actor::Bbs(self.settings.id.clone())
    }

    /// Sends the verdict of a command, as of a position, to its sender.
    fn settle(&mut self, command: &QueuedCommand, position: Position, verdict: Verdict) {
        if let Some(due) = command.converges() {
            self.convergence.settled(&due);
        }
        let illegal = verdict.as_ref().is_err_and(|refusal| refusal.code == Code::InvalidStateTransition);
        self.refused_transitions += u64::from(illegal && command.command.is_of_evaluation());
        if let Some((requester, reply)) = self.requesters.settle(command, position, verdict, self.log.world())
        {
            self.emit(Effect::Answer { requester, reply });
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
        self.emit(Effect::Answer { requester, reply });
    }
}

/// Returns the refusal of a command that only a leader accepts.
fn not_leading(may_lead: bool) -> Refusal {
    if may_lead {
        return Refusal::new(Code::Unavailable, "this BBS does not lead: try again");
    }
    let why = "nothing is decided here: this BBS only shows what its log holds";
    Refusal::new(Code::InvalidStateTransition, why)
}

/// Returns the leader of a role in the log.
fn leader(world: &World, role: Role) -> Option<&ServiceId> {
    Some(&world.cluster()?.leader(role)?.id)
}
