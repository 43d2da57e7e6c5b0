//! The rep as a machine: what comes in, what goes out, and what is between.
//!
//! | the file | holds |
//! |---|---|
//! | `holds.rs` | containers and reservations, and what is free beside them |
//! | `judge.rs` | containers and records in the words of the tables |
//! | `look.rs` | the one road: look, judge, act |
//! | `reports.rs` | reports on their way to the BBS, and its answers |
//! | `reads.rs` | lists of containers, records, and when they are asked for |
//! | `orders.rs` | perform, stop, cancel, evacuate, state |
//! | `preparing.rs` | preparation of containers before their work is claimed |
//! | `signs.rs` | heartbeats and self-tests |
//! | `terms.rs` | which leaders are believed |

mod holds;
mod judge;
mod look;
mod orders;
mod preparing;
mod reads;
mod reports;
mod signs;
mod telling;
mod terms;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::attributes::{Attributes, Offer};
use schemas::cell::Evacuation;
use schemas::cluster::Terms;
use schemas::container::{Container, Recipe};
use schemas::message::{Heartbeat, Perform, PerformId, Performed, RepOrder, Reported, Reports, Stop};
use schemas::names::{CellId, FolderId, Ids, Incarnation, InstanceGuid, PlacementTag, Stack, Zone};
use schemas::query::{Records, RecordsAnswer};
use schemas::resources::Resources;
use schemas::subject::shard;
use schemas::{Position, Refusal, Steady, Timestamp};

use crate::limits;
use crate::reconcile::Row;
pub use holds::ContainerCounts;
use holds::Holds;
use preparing::Preparing;
use reads::Reads;
use reports::Flights;
use signs::{Beats, SelfTests};
use terms::Leadership;

/// Number of moments within [`limits::ELECTED_SPREAD`] at which cells report to a new leader.
const SHARES: u16 = 64;

/// How a rep is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its cell.
    pub cell_id: CellId,
    /// Its data folder: who speaks for the cell.
    pub folder: FolderId,
    /// The cell's zone.
    pub zone: Zone,
    /// What the cell offers.
    pub stack: Stack,
    /// Work must ask for all of these, and for no others.
    pub placement_tags: BTreeSet<PlacementTag>,
    /// What else is said of the cell.
    pub attributes: Attributes,
    /// What the cell has in all.
    pub total: Resources,
    /// How often containers and records are compared.
    pub poll: Duration,
    /// How often they are compared while the cell evacuates.
    pub evacuation_poll: Duration,
    /// How often the rep says that it is alive.
    pub heartbeat: Duration,
    /// How long an evacuation may take.
    pub evacuation_timeout: Duration,
    /// How often the self-test runs.
    pub self_test: Duration,
}

impl Settings {
    /// What the cell offers.
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

    /// The usual settings.
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
            poll: limits::POLL,
            evacuation_poll: limits::EVACUATION_POLL,
            heartbeat: limits::HEARTBEAT,
            evacuation_timeout: limits::EVACUATION,
            self_test: limits::SELF_TEST,
        }
    }
}

/// Why a container can't be prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unprepared {
    /// The reason, as it is reported to the auctioneer.
    pub reason: String,
    /// `true` if the cell may be unable to create any container, so that the rep tests it at once. `false` if only this
    /// container finds something taken.
    pub is_fault: bool,
}

/// What comes to a rep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The executor: this container changed. A hint to look now.
    Container(Container),
    /// The executor: every container from INITIALIZING on. Answers [`Effect::ListContainers`].
    Containers(Vec<Container>),
    /// The outcome of [`Effect::Prepare`]. Each container of it gets exactly one, in whatever order.
    Prepared(Vec<(InstanceGuid, Result<(), Unprepared>)>),
    /// An auctioneer gives work.
    Perform {
        /// Who waits for [`Effect::AnswerPerform`].
        requester: u64,
        /// The work.
        perform: Perform,
    },
    /// The BBS asks to stop instances.
    Stop(Stop),
    /// The BBS asks to cancel tasks.
    Cancel(Stop),
    /// The BBS asks to evacuate the cell.
    Evacuate {
        /// Who waits for [`Effect::AnswerState`].
        requester: u64,
        /// The order.
        order: RepOrder,
    },
    /// The BBS takes the order to evacuate back.
    Uncordon {
        /// Who waits for [`Effect::AnswerState`].
        requester: u64,
        /// The order.
        order: RepOrder,
    },
    /// The BBS asks whether the rep is there.
    State {
        /// Who waits for [`Effect::AnswerState`].
        requester: u64,
        /// The order.
        order: RepOrder,
    },
    /// What became of [`Effect::Report`]. Every report gets exactly one.
    Reported {
        /// Which.
        id: u64,
        /// The answer; none: there was none in time.
        answer: Option<Result<Reported, Refusal>>,
    },
    /// What became of [`Effect::AskRecords`]. Every question gets exactly one.
    Records {
        /// Which.
        id: u64,
        /// The answer; none: there was none in time.
        answer: Option<Result<RecordsAnswer, Refusal>>,
    },
    /// Somebody was elected as BBS or auctioneer, who may not know how the cell is.
    Elected,
    /// What became of [`Effect::SelfTest`].
    SelfTested(Result<(), String>),
    /// Nothing else waits: what was gathered is sent. Must follow, sooner or later, upon every other input.
    Turn,
    /// It is as late as [`Rep::alarm`] said, or later.
    Tick,
}

/// What a rep wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Answers an auctioneer.
    AnswerPerform {
        /// Who waits.
        requester: u64,
        /// What the rep did not take, or why it doesn't listen.
        answer: Result<Performed, Refusal>,
    },
    /// Answers the BBS.
    AnswerState {
        /// Who waits.
        requester: u64,
        /// How the cell is, or why the rep doesn't listen.
        answer: Result<Heartbeat, Refusal>,
    },
    /// Reports to the BBS.
    Report {
        /// Comes back with [`Input::Reported`].
        id: u64,
        /// The reports.
        reports: Reports,
    },
    /// Asks the BBS for records.
    AskRecords {
        /// Comes back with [`Input::Records`].
        id: u64,
        /// The question.
        records: Records,
    },
    /// Prepares containers: takes what their creation needs, and starts nothing of the recipe.
    Prepare(Vec<Recipe>),
    /// Gives back what [`Effect::Prepare`] took for a container that is not run.
    Discard(InstanceGuid),
    /// Runs a container that was prepared.
    Run(Box<Recipe>),
    /// Stops a container, with its grace period.
    Stop(InstanceGuid),
    /// Deletes a container, whatever its state.
    Delete(InstanceGuid),
    /// Asks the executor for all containers.
    ListContainers,
    /// Tries whether the cell can run containers.
    SelfTest,
    /// Says that the rep is alive, and how its cell is.
    Heartbeat(Heartbeat),
    /// Evacuation is over: the program ends.
    Exit,
    /// Something that operators may want to know.
    Log {
        /// How loudly.
        level: Level,
        /// What.
        text: String,
    },
}

/// How loudly something is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Happens when messages are lost or late.
    Info,
    /// Should not happen.
    Warn,
}

/// Where a rep is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It learns what runs and what is on record; it says nothing and takes nothing.
    Starting,
    /// It takes work.
    Open,
    /// It moves away what it has, until this moment.
    Evacuating {
        /// The evacuation time-out.
        until: Timestamp,
    },
    /// Nothing is left, or the time is over: it puts the records straight, until this moment.
    Closing {
        /// When the evacuation's time was over: what evacuating records carry.
        until: Timestamp,
        /// When it ends, come what may.
        end: Timestamp,
    },
    /// It is over.
    Over,
}

/// What a rep was told last of its cell's evacuation: by an answer while it starts, by orders after that.
#[derive(Clone, Copy, Debug, Default)]
struct Ordered {
    /// Where the log stood for whoever told it.
    position: Position,
    /// What the log said when the rep started.
    evacuation: Evacuation,
    /// When, on the count of messages.
    at: u64,
}

/// Represents a cell: its containers to the BBS, and the BBS's records to its containers.
#[derive(Debug)]
pub struct Rep {
    settings: Settings,
    incarnation: Incarnation,
    ids: Ids,
    clock: Steady,
    /// The time of this step: what waits is measured by it.
    now: Timestamp,
    phase: Phase,
    /// Whom it obeys.
    auctioneer: Leadership,
    bbs: Leadership,
    performed: PerformId,
    /// The highest position that any answer gave.
    position: Position,
    /// What it was told last of its cell's evacuation.
    ordered: Ordered,
    /// Counts messages, so that answers find them.
    messages: u64,
    holds: Holds,
    preparing: Preparing,
    flights: Flights,
    reads: Reads,
    beats: Beats,
    self_tests: SelfTests,
    /// How often each row of the tables said what to do.
    rows_met: BTreeMap<Row, u64>,
    /// What this step wants done so far.
    effects: Vec<Effect>,
}

impl Rep {
    /// A rep that just started. `attached` is where the log stood when the leading BBS let it speak for its cell: it takes
    /// no answer from before. It begins with its first [`Rep::alarm`], which is due at once.
    #[must_use]
    pub fn new(settings: Settings, attached: Position, incarnation: Incarnation, ids: Ids) -> Self {
        Self {
            settings,
            incarnation,
            ids,
            clock: Steady::default(),
            now: Timestamp(0),
            phase: Phase::Starting,
            auctioneer: Leadership::default(),
            bbs: Leadership::default(),
            performed: PerformId::default(),
            position: attached,
            ordered: Ordered { position: attached, ..Ordered::default() },
            messages: 0,
            holds: Holds::default(),
            preparing: Preparing::default(),
            flights: Flights::default(),
            reads: Reads::default(),
            beats: Beats::default(),
            self_tests: SelfTests::default(),
            rows_met: BTreeMap::new(),
            effects: vec![],
        }
    }

    /// An answer of the BBS tells where the log stands, and who was elected.
    fn learn(&mut self, position: Position, terms: Terms) {
        self.position = self.position.max(position);
        if self.auctioneer.learn(terms.auctioneer) {
            // Who was refused for a term that was not known yet gives work to who is heard again.
            self.beats.urge();
        }
        self.bbs.learn(terms.bbs);
    }

    /// Takes one input and tells everything that follows from it.
    pub fn step(&mut self, now: Timestamp, input: Input) -> Vec<Effect> {
        self.now = self.clock.at(now);
        if self.phase == Phase::Over {
            return vec![];
        }
        match input {
            Input::Container(container) => self.changed(container),
            Input::Containers(containers) => self.listed(containers),
            Input::Prepared(results) => self.prepared(results),
            Input::Perform { requester, perform } => self.perform(requester, perform),
            Input::Stop(stop) | Input::Cancel(stop) => self.stop(stop),
            Input::Evacuate { requester, order } => self.evacuate(requester, order),
            Input::Uncordon { requester, order } => self.uncordon(requester, order),
            Input::State { requester, order } => self.state(requester, order),
            Input::Reported { id, answer } => self.reported(id, answer),
            Input::Records { id, answer } => self.read(id, answer),
            Input::Elected => self.elected(),
            Input::SelfTested(result) => self.self_tested(result),
            Input::Turn => self.send(),
            Input::Tick => {}
        }
        self.keep_time();
        std::mem::take(&mut self.effects)
    }

    /// Reports soon what no leader took before. Each cell does so at another moment of the same second, so that a new leader
    /// does not get everything at once.
    fn elected(&mut self) {
        self.beats.urge();
        let share = u32::from(shard(self.settings.cell_id.as_str(), SHARES));
        let at = self.now + limits::ELECTED_SPREAD * share / u32::from(SHARES);
        self.flights.hasten(at);
        self.reads.hasten(at);
    }

    /// When the rep next has something to do by itself. None: never again.
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
            open.then(|| self.next_beat()),
            evacuation,
        ]
        .into_iter()
        .flatten()
        .min()
        .map(|due| self.clock.shown_at(due))
    }

    /// The rows of the tables that said what to do, and how often each did. Only rows that the document has are
    /// counted.
    #[must_use]
    pub const fn rows_met(&self) -> &BTreeMap<Row, u64> {
        &self.rows_met
    }

    /// The terms and the position of the log that it knows: it obeys no leader of a lower term, and takes no answer from before.
    #[must_use]
    pub const fn known_log(&self) -> (Terms, Position) {
        (Terms { bbs: self.bbs.elected(), auctioneer: self.auctioneer.elected() }, self.position)
    }

    /// Its containers by state.
    #[must_use]
    pub fn containers(&self) -> ContainerCounts {
        self.holds.by_state()
    }

    /// How much it has under way, by name: at rest each is zero.
    #[must_use]
    pub fn books(&self) -> BTreeMap<&'static str, usize> {
        BTreeMap::from([
            ("reports on their way", self.flights.len()),
            ("reports that wait for a message", self.flights.waiting()),
            ("records that are asked for", self.reads.len()),
            ("reservations", self.holds.reservations()),
            ("requests of auctioneers without an answer", self.preparing.len()),
        ])
    }

    /// How much it remembers, by name: at rest each is bounded by what its cell has.
    #[must_use]
    pub fn remembered(&self) -> BTreeMap<&'static str, usize> {
        let (holds, keys) = self.holds.counts();
        BTreeMap::from([("containers", holds), ("pieces of work on the cell", keys)])
    }

    /// Does what is due. Every step ends with it, so a late [`Input::Tick`] delays nothing that happens anyway.
    fn keep_time(&mut self) {
        self.expire_reservations();
        self.answer_performs();
        self.retry_reports();
        self.poll_when_due();
        self.self_test_when_due();
        self.close_when_done();
        self.beat_when_due();
    }

    /// Sends what was gathered.
    fn send(&mut self) {
        self.send_reports();
        self.send_reads();
    }

    fn next_message(&mut self) -> u64 {
        self.messages += 1;
        self.messages
    }

    fn evacuates(&self) -> bool {
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
