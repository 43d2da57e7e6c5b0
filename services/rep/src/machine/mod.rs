//! State machine of the rep, the service that runs the containers of one cell. Work is an instance of a
//! process or a task.
//!
//! | the file | holds |
//! |---|---|
//! | `allocations.rs` | containers and reservations, and the free resources |
//! | `judge.rs` | translation between containers, records, reconciliation tables and reports |
//! | `inspect.rs` | the code path of every change: inspect a container, choose its table row, act |
//! | `reports.rs` | reports to the BBS and their answers |
//! | `reads.rs` | container lists, record reads and their schedule |
//! | `orders.rs` | perform, stop, cancel, evacuate, state |
//! | `preparing.rs` | preparation of containers before their work is claimed |
//! | `health.rs` | heartbeats and self-tests |
//! | `terms.rs` | accepted terms of leaders |

mod allocations;
mod health;
mod inspect;
mod judge;
mod log_text;
mod orders;
mod preparing;
mod reads;
mod reports;
mod terms;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::attributes::{Attributes, Offer};
use schemas::cell::Evacuation;
use schemas::cluster::Terms;
use schemas::container::{Container, Recipe};
use schemas::message::{Heartbeat, Perform, PerformId, PerformReply, RepOrder, Reports, ReportsReply, Stop};
use schemas::names::{CellId, FolderId, IdGenerator, Incarnation, InstanceGuid, PlacementTag, Stack, Zone};
use schemas::query::{Records, RecordsAnswer};
use schemas::resources::Resources;
use schemas::subject::shard;
use schemas::{MonotonicClock, Position, Refusal, Timestamp};

use crate::limits;
use crate::reconcile::Row;
use allocations::Allocations;
pub use allocations::ContainerCounts;
use health::{Heartbeats, SelfTests};
use preparing::Preparing;
use reads::Reads;
use reports::PendingReports;
use terms::Leadership;

/// Number of time slots into which [`limits::ELECTED_SPREAD`] is divided. Each cell reports to a new leader
/// in one of these slots.
const REPORT_SLOTS: u16 = 64;

/// Startup configuration of a rep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub cell_id: CellId,
    /// Id of the data folder. The id distinguishes this rep from another rep with the same cell id.
    pub folder: FolderId,
    pub zone: Zone,
    pub stack: Stack,
    /// Tags of the cell. Work must require exactly these tags.
    pub placement_tags: BTreeSet<PlacementTag>,
    pub attributes: Attributes,
    pub total: Resources,
    /// Interval between polls. A poll compares all containers with their records in the BBS.
    pub poll: Duration,
    /// Interval between polls while the cell evacuates.
    pub evacuation_poll: Duration,
    /// Interval between heartbeats.
    pub heartbeat: Duration,
    /// Maximum duration of an evacuation.
    pub evacuation_timeout: Duration,
    /// Interval between self-tests.
    pub self_test: Duration,
}

impl Settings {
    /// Returns the properties of the cell that placement constraints are matched against.
    #[must_use]
    pub const fn offer(&self) -> Offer<'_> {
        Offer {
            cell_id: &self.cell_id,
            zone: &self.zone,
            stack: &self.stack,
            placement_tags: &self.placement_tags,
            attributes: &self.attributes,
        }
    }

    /// Creates settings with the default intervals and without tags or attributes.
    #[must_use]
    pub fn new(cell_id: CellId, folder: FolderId, zone: Zone, stack: Stack, total: Resources) -> Self {
        Self {
            cell_id,
            folder,
            zone,
            stack,
            placement_tags: BTreeSet::new(),
            attributes: Attributes::default(),
            total,
            poll: limits::DEFAULT_POLL_INTERVAL,
            evacuation_poll: limits::DEFAULT_EVACUATION_POLL_INTERVAL,
            heartbeat: limits::DEFAULT_HEARTBEAT_INTERVAL,
            evacuation_timeout: limits::DEFAULT_EVACUATION_TIMEOUT,
            self_test: limits::DEFAULT_SELF_TEST_INTERVAL,
        }
    }
}

/// Reason why a container cannot be prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unprepared {
    /// Reason reported to the auctioneer.
    pub reason: String,
    /// `true` if the cell may be unable to create any container. The rep tests the cell immediately. `false`
    /// if the reason concerns only this container, for example because a required resource is in use.
    pub is_fault: bool,
}

/// Input of the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The executor reports that this container changed. The rep inspects it immediately.
    Container(Container),
    /// Result of [`Effect::ListContainers`]: all containers of the executor except those that have not
    /// reached the state INITIALIZING.
    Containers(Vec<Container>),
    /// Result of [`Effect::Prepare`]. Each container of the effect gets exactly one result, in any order.
    Prepared(Vec<(InstanceGuid, Result<(), Unprepared>)>),
    /// An auctioneer sends work.
    Perform {
        /// Identifies the request in [`Effect::AnswerPerform`].
        requester: u64,
        perform: Perform,
    },
    /// The BBS orders the rep to stop instances.
    Stop(Stop),
    /// The BBS orders the rep to cancel tasks.
    Cancel(Stop),
    /// The BBS orders the rep to evacuate the cell.
    Evacuate {
        /// Identifies the request in [`Effect::AnswerState`].
        requester: u64,
        order: RepOrder,
    },
    /// The BBS revokes the order to evacuate.
    Uncordon {
        /// Identifies the request in [`Effect::AnswerState`].
        requester: u64,
        order: RepOrder,
    },
    /// The BBS requests the state of the cell.
    State {
        /// Identifies the request in [`Effect::AnswerState`].
        requester: u64,
        order: RepOrder,
    },
    /// Result of [`Effect::Report`]. Every report gets exactly one result.
    Reported {
        id: u64,
        /// Answer of the BBS. `None` after a timeout.
        answer: Option<Result<ReportsReply, Refusal>>,
    },
    /// Result of [`Effect::AskRecords`]. Every request gets exactly one result.
    Records {
        id: u64,
        /// Answer of the BBS. `None` after a timeout.
        answer: Option<Result<RecordsAnswer, Refusal>>,
    },
    /// A new BBS or auctioneer was elected. The new leader may not know the state of the cell.
    Elected,
    /// Result of [`Effect::SelfTest`].
    SelfTested(Result<(), String>),
    /// No other input is queued, so the rep sends the collected messages. A `Turn` must eventually follow
    /// every other input.
    Turn,
    /// The time that [`Rep::alarm`] returned has been reached.
    Tick,
}

/// Output of the state machine. Effects must be performed in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Answer an auctioneer.
    AnswerPerform {
        requester: u64,
        /// Work that the rep refused, or the refusal of the whole request.
        answer: Result<PerformReply, Refusal>,
    },
    /// Answer the BBS.
    AnswerState {
        requester: u64,
        /// State of the cell, or the refusal of the order.
        answer: Result<Heartbeat, Refusal>,
    },
    /// Send reports to the BBS.
    Report {
        /// Identifies the message in [`Input::Reported`].
        id: u64,
        reports: Reports,
    },
    /// Request records of containers from the BBS.
    AskRecords {
        /// Identifies the request in [`Input::Records`].
        id: u64,
        records: Records,
    },
    /// Prepare containers: acquire the resources for each container, but do not start its recipe.
    Prepare(Vec<Recipe>),
    /// Release the resources of [`Effect::Prepare`] for a container that will not run.
    Discard(InstanceGuid),
    /// Run a prepared container.
    Run(Box<Recipe>),
    /// Stop a container, with its grace period.
    Stop(InstanceGuid),
    /// Delete a container in any state.
    Delete(InstanceGuid),
    /// List all containers of the executor.
    ListContainers,
    /// Test whether the cell can run containers.
    SelfTest,
    /// Send a heartbeat with the state of the cell.
    Heartbeat(Heartbeat),
    /// Exit the process, because the evacuation is over.
    Exit,
    /// Log a message for operators.
    Log { level: Level, text: String },
}

/// Severity of a log message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Regular events, and cases that occur when messages are lost or late.
    Info,
    /// Cases that should not occur.
    Warn,
}

/// Lifecycle phase of a rep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The rep reads its containers and records. The rep reports nothing and accepts no work.
    Starting,
    /// The rep accepts work.
    Open,
    /// The cell evacuates: the rep waits until its work runs on other cells.
    Evacuating {
        /// Time at which the evacuation times out.
        until: Timestamp,
    },
    /// No work is left on the cell, or the evacuation has timed out. The rep updates the last records.
    Closing {
        /// Time at which the evacuation times out. The rep reports this time as the expiry of its evacuating
        /// records.
        until: Timestamp,
        /// Time at which the rep exits even if records are still outdated.
        end: Timestamp,
    },
    Over,
}

/// Latest known evacuation state of the cell. During the start, the state comes from answers of the BBS.
/// Later, the state comes from orders of the BBS.
#[derive(Clone, Copy, Debug, Default)]
struct EvacuationState {
    /// Log position of that answer or order.
    position: Position,
    /// Evacuation state in the log when the rep started.
    evacuation: Evacuation,
    /// Message counter when the order that set this state arrived. 0 if no order arrived.
    at: u64,
}

/// State machine of a rep: it reconciles the containers of a cell with the records of the BBS.
#[derive(Debug)]
pub struct Rep {
    settings: Settings,
    incarnation: Incarnation,
    ids: IdGenerator,
    clock: MonotonicClock,
    /// Time of the current step. Waiting times are measured from here.
    now: Timestamp,
    phase: Phase,
    /// Accepted terms of the leaders.
    auctioneer: Leadership,
    bbs: Leadership,
    last_performed: PerformId,
    /// Highest log position in any answer.
    position: Position,
    /// Latest known evacuation state of the cell.
    ordered: EvacuationState,
    /// Number of the last message, used to match answers.
    messages: u64,
    holds: Allocations,
    preparing: Preparing,
    flights: PendingReports,
    reads: Reads,
    beats: Heartbeats,
    self_tests: SelfTests,
    /// Number of times that each row of the reconciliation tables was applied.
    applied_rows: BTreeMap<Row, u64>,
    /// Effects of the current step.
    effects: Vec<Effect>,
}

impl Rep {
    /// Creates the state machine of a rep that has just started. `attached` is the log position at which the
    /// leading BBS accepted the rep for its cell. The rep ignores answers from earlier positions. The first
    /// [`Rep::alarm`] is due immediately.
    #[must_use]
    pub fn new(settings: Settings, attached: Position, incarnation: Incarnation, ids: IdGenerator) -> Self {
        Self {
            settings,
            incarnation,
            ids,
            clock: MonotonicClock::default(),
            now: Timestamp(0),
            phase: Phase::Starting,
            auctioneer: Leadership::default(),
            bbs: Leadership::default(),
            last_performed: PerformId::default(),
            position: attached,
            ordered: EvacuationState { position: attached, ..EvacuationState::default() },
            messages: 0,
            holds: Allocations::default(),
            preparing: Preparing::default(),
            flights: PendingReports::default(),
            reads: Reads::default(),
            beats: Heartbeats::default(),
            self_tests: SelfTests::default(),
            applied_rows: BTreeMap::new(),
            effects: vec![],
        }
    }

    /// Updates the log position and the elected terms from an answer of the BBS.
    fn learn(&mut self, position: Position, terms: Terms) {
        self.position = self.position.max(position);
        if self.auctioneer.learn(terms.auctioneer) {
            // The rep may have refused an auctioneer because the rep did not know the new term. The
            // auctioneer sends its work again after the next heartbeat.
            self.beats.request();
        }
        self.bbs.learn(terms.bbs);
    }

    /// Processes one input and returns all resulting effects.
    pub fn step(&mut self, now: Timestamp, input: Input) -> Vec<Effect> {
        self.now = self.clock.at(now);
        if self.phase == Phase::Over {
            return vec![];
        }
        match input {
            Input::Container(container) => self.container_changed(container),
            Input::Containers(containers) => self.containers_listed(containers),
            Input::Prepared(results) => self.prepared(results),
            Input::Perform { requester, perform } => self.perform(requester, perform),
            Input::Stop(stop) | Input::Cancel(stop) => self.stop(stop),
            Input::Evacuate { requester, order } => self.evacuate(requester, order),
            Input::Uncordon { requester, order } => self.uncordon(requester, order),
            Input::State { requester, order } => self.state(requester, order),
            Input::Reported { id, answer } => self.reports_answered(id, answer),
            Input::Records { id, answer } => self.records_answered(id, answer),
            Input::Elected => self.leader_elected(),
            Input::SelfTested(result) => self.self_tested(result),
            Input::Turn => self.send(),
            Input::Tick => {}
        }
        self.run_due();
        std::mem::take(&mut self.effects)
    }

    /// Schedules an early retry of all unanswered requests. Each cell retries at a different time within one
    /// second, so that a new leader does not receive the requests of all cells at once.
    fn leader_elected(&mut self) {
        self.beats.request();
        let share = u32::from(shard(self.settings.cell_id.as_str(), REPORT_SLOTS));
        let at = self.now + limits::ELECTED_SPREAD * share / u32::from(REPORT_SLOTS);
        self.flights.retry_by(at);
        self.reads.retry_by(at);
    }

    /// Returns the time of the next scheduled action. `None` if the rep has stopped.
    #[must_use]
    pub fn alarm(&self) -> Option<Timestamp> {
        if self.phase == Phase::Over {
            return None;
        }
        let evacuation = match self.phase {
            Phase::Starting | Phase::Open | Phase::Over => None,
            Phase::Evacuating { until } => Some(until),
            Phase::Closing { end, .. } => Some(end),
        };
        let open = self.phase != Phase::Starting;
        [
            self.reads.next_due(),
            self.flights.next_due(),
            self.holds.next_expiry(),
            self.preparing.next_due(),
            self.self_tests.next_due(),
            open.then(|| self.next_heartbeat()),
            evacuation,
        ]
        .into_iter()
        .flatten()
        .min()
        .map(|due| self.clock.clock_time_at(due))
    }

    /// Returns how many times each row of the reconciliation tables was applied. The map contains only rows
    /// from Diego Dev Notes.
    #[must_use]
    pub const fn applied_rows(&self) -> &BTreeMap<Row, u64> {
        &self.applied_rows
    }

    /// Returns the known terms and log position. The rep obeys no leader of a lower term and ignores answers
    /// from earlier positions.
    #[must_use]
    pub const fn known_log(&self) -> (Terms, Position) {
        (Terms { bbs: self.bbs.elected(), auctioneer: self.auctioneer.elected() }, self.position)
    }

    /// Returns the number of containers by state.
    #[must_use]
    pub fn containers(&self) -> ContainerCounts {
        self.holds.by_state()
    }

    /// Returns the number of unfinished items by kind of item. Each number is zero if no work is in progress.
    #[must_use]
    pub fn pending_counts(&self) -> BTreeMap<&'static str, usize> {
        BTreeMap::from([
            ("unsettled reports", self.flights.len()),
            ("queued reports", self.flights.waiting()),
            ("pending record reads", self.reads.len()),
            ("reservations", self.holds.reservations()),
            ("unanswered requests of auctioneers", self.preparing.len()),
        ])
    }

    /// Returns the sizes of internal collections by name. If no work is in progress, no size exceeds the
    /// number of containers on the cell.
    #[must_use]
    pub fn collection_sizes(&self) -> BTreeMap<&'static str, usize> {
        let (holds, keys) = self.holds.counts();
        BTreeMap::from([("containers", holds), ("work items on the cell", keys)])
    }

    /// Performs all due actions. Every step calls this function, so a late [`Input::Tick`] delays nothing if
    /// other inputs arrive.
    fn run_due(&mut self) {
        self.expire_reservations();
        self.answer_performs();
        self.retry_reports();
        self.poll_when_due();
        self.self_test_when_due();
        self.close_when_done();
        self.heartbeat_when_due();
    }

    /// Sends the collected reports and requests.
    fn send(&mut self) {
        self.send_reports();
        self.send_reads();
    }

    fn next_message(&mut self) -> u64 {
        self.messages += 1;
        self.messages
    }

    fn is_evacuating(&self) -> bool {
        match self.phase {
            Phase::Starting | Phase::Open => false,
            Phase::Evacuating { .. } | Phase::Closing { .. } | Phase::Over => true,
        }
    }

    fn emit(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    fn log(&mut self, level: Level, text: String) {
        self.emit(Effect::Log { level, text });
    }
}
