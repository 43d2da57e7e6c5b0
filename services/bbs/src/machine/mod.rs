//! The BBS as a machine. [`Bbs::step`] composes duties, each of which is a type with private fields in a file of its own:
//!
//! | duty | owns |
//! |---|---|
//! | [`Log`] | the World that the follower delivered, what was set aside, where each subject ends, the picture for queries |
//! | [`Shards`] | queues and flights; its counts are the lengths of these |
//! | [`Appends`] | whether the log takes entries, and how long that takes |
//! | [`Confirmations`] | answers without an entry, until the journal's leader confirms them |
//! | [`Requesters`] | who waits for an answer: messages of many parts, the commands of each client |
//! | [`WaitingQueries`] | queries that ask for a position which isn't folded yet |
//! | [`Leadership`] | whether this BBS leads, beats or campaigns |
//! | [`Presence`] | signs of life of cells, probes, the mass-loss guard |
//! | [`Living`] | which BBSs and auctioneers beat: to be shown |
//! | [`Clocks`] | how the clocks of others differ from that of this BBS: the time of decisions |
//! | [`Timelines`] | subjects on which the log is ahead of the clocks |
//! | [`Callbacks`] | calls that are owed to the owners of completed tasks |
//! | [`Convergence`] | what is to be converged, and when everything is looked through |
//!
//! No duty knows another one. Each is told what happened and returns what follows; the files below this one pass that on:
//! `commands` (what is asked), `journal` (what is delivered, decided, appended), `reactions` (what a recorded entry brings
//! about), `cells` (heartbeats and probes), `timers` (alarms), `queries`.

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

/// How often the stop of an instance that is still there is said again.
const STOP_AGAIN: Duration = Duration::from_secs(5);
/// Time that a new leader gives reps to report what ended while no BBS led. They take up to a second.
const REPORTS: Duration = Duration::from_secs(2);
/// Of how many things it takes a millisecond to see that nothing is due.
pub const SWEEP: usize = 500;
/// Most commands that wait in all shards together; more are refused as `Overloaded`.
const MOST_QUEUED: usize = 100_000;

/// What a BBS is told at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its own id.
    pub id: ServiceId,
    /// Shard count of the cluster that it founds in an empty log. `None` if it never founds one: a program whose log
    /// can be lost must not take an empty log for a new cluster.
    pub founds: Option<u16>,
    /// How cells are watched.
    pub presence: presence::Settings,
    /// Whether what is acknowledged survives a power cut, as people read it.
    pub durability: String,
    /// How many ended containers queries show of each index of a process that doesn't say it.
    pub history_limit: u32,
    /// Which program it is, as people look for it.
    pub program: Program,
    /// How many things are looked at in one step of the look at everything, so that no command waits long for it. At least 1.
    pub sweep: usize,
    /// Bytes of entries in flight beyond which only what clients ask is sent (see [`schemas::limits::BYTES_IN_FLIGHT`]).
    pub bytes_in_flight: usize,
    /// Whether it may lead. One that may not shows what the log holds, and refuses every command.
    pub may_lead: bool,
}

/// How a BBS is, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauges {
    /// Where it stands.
    pub standing: Standing,
    /// Whether it has read the journal to its end once.
    pub caught_up: bool,
    /// Commands that wait to be decided.
    pub commands_waiting: usize,
    /// Entries on their way to the journal and back.
    pub entries_in_flight: usize,
    /// Whether it leads, and most cells are silent together and not believed lost yet.
    pub guards_mass_loss: bool,
    /// How often everything was looked through.
    pub looks: u64,
    /// Whether everything is being looked through.
    pub looking: bool,
    /// Milliseconds by which its clock is ahead of the median of all clocks; negative if it is behind.
    pub clock_ahead_ms: i64,
    /// Time by which the log is ahead of the clocks.
    pub log_ahead: Duration,
}

/// Decides: the only one who appends to the journal.
#[derive(Clone, Debug)]
pub struct Bbs {
    settings: Settings,
    ids: Ids,
    clock: Steady,
    /// The time of this step: what waits for a length of time is measured by it.
    now: Timestamp,
    /// Time that the clock shows in this step.
    wall: Timestamp,
    /// The same, corrected by the clocks of others: what is decided carries it, and due times of the log are held against it.
    shown: Timestamp,
    clocks: Clocks,
    timelines: Timelines,
    /// Time by which the log is ahead of the clocks, if that is more than clocks may differ; else 0.
    log_ahead: Duration,
    /// Whether it met what it doesn't understand: then it does nothing any more.
    halted: bool,
    log: Log,
    shards: Shards,
    appends: Appends,
    confirmations: Confirmations,
    requesters: Requesters,
    /// Rates of the commands of domains.
    rates: Rates,
    queries: WaitingQueries,
    leadership: Leadership,
    /// Whether it is subscribed to commands.
    listens: bool,
    presence: Presence,
    living: Living,
    callbacks: Callbacks,
    convergence: Convergence,
    leases: Leases,
    /// Until then reps still report what ended while no BBS led.
    reports_until: Timestamp,
    /// How often somebody asked of an evaluation what its status doesn't allow.
    refused_transitions: u64,
    /// What this step wants done so far.
    effects: Vec<Effect>,
}

impl Bbs {
    /// A BBS that knows nothing yet: tell it every entry of the journal, then [`Input::CaughtUp`].
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

    /// The same, that knows which positions operators set aside, wherever in the journal that is recorded.
    #[must_use]
    pub fn knowing(self, set_aside: Positions) -> Self {
        self.starting(Reader::knowing(set_aside), World::new())
    }

    /// The same, that knows the log up to where a World stands: `reader` has read all of it up to there. Tell it every entry
    /// that follows.
    #[must_use]
    pub fn starting(self, reader: Reader, world: World) -> Self {
        Self { log: Log::starting(reader, world), ..self }
    }

    /// The same, that has listened to the beats of leaders before it knew the log: what it waits for them counts from there.
    #[must_use]
    pub fn having_listened(self, election: Election) -> Self {
        Self { leadership: self.leadership.listened(election), ..self }
    }

    /// What reads the log, as far as the follower told.
    #[must_use]
    pub const fn reader(&self) -> &Reader {
        self.log.reader()
    }

    /// What read the log, and what is true, of one that stops.
    #[must_use]
    pub fn into_parts(self) -> (Reader, World) {
        self.log.into_parts()
    }

    /// What is true, as far as the follower told.
    #[must_use]
    pub const fn world(&self) -> &World {
        self.log.world()
    }

    /// Whether it may ever decide.
    #[must_use]
    pub const fn may_lead(&self) -> bool {
        self.settings.may_lead
    }

    /// Whether it decides.
    #[must_use]
    pub const fn leads(&self) -> bool {
        self.leadership.leads()
    }

    /// Whether it looks through everything, and isn't through yet.
    #[must_use]
    pub const fn is_sweeping(&self) -> bool {
        self.convergence.is_sweeping()
    }

    /// How it is, in numbers, for whoever watches it.
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

    /// Trouble with appending to the log, if there is any.
    #[must_use]
    pub fn append_trouble(&self) -> Option<AppendTrouble> {
        let oldest = self.shards.oldest_flight().map(|sent| self.now.since(sent));
        self.appends.trouble(oldest, self.now)
    }

    /// The stream that holds the log, as it was read last; `None` if it has not been read, or the log is not a stream.
    #[must_use]
    pub const fn log_row(&self) -> Option<&LogRow> {
        self.appends.log()
    }

    /// Where it stands, for whoever says that it is there.
    #[must_use]
    pub const fn standing(&self) -> Standing {
        Standing {
            position: self.world().position(),
            term: self.leadership.term(),
            leads: self.leads() && !self.halted,
        }
    }

    /// When it wants an [`Input::Tick`]; none: not until something else happens.
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
        // While the log is ahead of the clocks, whatever is due is found with each heartbeat of the leader.
        let of_log = self
            .world()
            .next_due()
            .filter(|_| self.leads() && self.convergence.is_idle() && self.timelines.is_empty());
        // What is due already and not on its way waits for reports.
        let awaits = self.now < self.reports_until;
        let reported = self.clock.shown_at(self.reports_until);
        let shown_at = |due: Timestamp| self.wall + due.since(self.shown);
        let of_log = of_log.map(|due| if awaits && due <= self.shown { reported } else { shown_at(due) });
        waits.map(|at| self.clock.shown_at(at)).into_iter().chain(of_log).min()
    }

    /// Takes one input and says what is to be done, in this order.
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
                // Somebody of this name may have led before it started again.
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
            // Time is taken in above.
            Input::ClockStepped(_) => {}
            Input::Called { task, epoch, called } => self.called(&task, epoch, &called),
            Input::Disconnected => self.presence.disconnected(),
            Input::Reconnected => self.presence.reconnected(self.now),
            Input::Turn => self.turn(),
            Input::Tick => self.tick(),
        }
        std::mem::take(&mut self.effects)
    }

    /// Takes in the time that the clock shows.
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

    /// Its id.
    #[must_use]
    pub const fn id(&self) -> &ServiceId {
        &self.settings.id
    }

    /// Time of decisions when its clock shows `shown`: that, corrected by the clocks of others.
    #[must_use]
    pub fn time_at(&self, shown: Timestamp) -> Timestamp {
        self.clocks.corrected(shown)
    }

    /// Time of decisions on each subject.
    const fn times(&self) -> Times<'_> {
        Times::new(self.shown, &self.timelines)
    }

    /// How much it has under way, by name: at rest each is zero.
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

    /// How much it remembers, by name: at rest each is bounded by what the log holds.
    #[must_use]
    pub fn remembered(&self) -> BTreeMap<&'static str, usize> {
        BTreeMap::from([
            ("subjects whose end it knows", self.log.ends()),
            ("cells that it watches", self.presence.watched()),
            ("calls that it owes", self.callbacks.owed()),
            ("evaluations that the auctioneer has", self.leases.len()),
        ])
    }

    /// Decides what is gathered, so that what came together goes into one entry.
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

    /// A command waits to be decided.
    fn enqueue(&mut self, command: QueuedCommand) {
        let command = QueuedCommand { received: self.now, ..command };
        let subject = command.command.subject(self.world().shards());
        self.shards.push(subject, command);
    }

    /// A command of the BBS itself waits to be decided.
    fn enqueue_own(&mut self, command: AggregateCommand) {
        self.enqueue(QueuedCommand::new(Requester::Own, self.me(), command));
    }

    /// Somebody is there.
    fn alive(&mut self, alive: Alive) {
        let world = self.log.world();
        let leader = leader(world, alive.role);
        let source = Source::Service(alive.role, alive.id.clone());
        let (clock, may_lead) = (alive.clock, alive.may_lead);
        if self.living.heard(alive, &self.settings.id, world.position(), leader, self.now) {
            self.clocks.read(source, (clock, self.wall), may_lead, self.now);
        }
    }

    /// Who beats now, and this BBS among them.
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

    /// Tells whoever waits for it what became of a command, at a position.
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

    /// Tells whoever waits for it that a command was not decided.
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

/// Why a command is refused that only a leader takes.
fn not_leading(may_lead: bool) -> Refusal {
    if may_lead {
        return Refusal::new(Code::Unavailable, "this BBS does not lead: try again");
    }
    let why = "nothing is decided here: this BBS only shows what its log holds";
    Refusal::new(Code::InvalidStateTransition, why)
}

/// Who leads in a role, as the log says.
fn leader(world: &World, role: Role) -> Option<&ServiceId> {
    Some(&world.cluster()?.leader(role)?.id)
}
