//! The cluster, and the loop that handles its events in the order of time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use bbs::AppendFailure;
use bytes::Bytes;
use rep::reconcile::Row;
use schemas::Timestamp;
use schemas::container::{Container, Epoch};
use schemas::names::{EntryId, InstanceGuid, TaskGuid};
use schemas::subject::{Position, Subject};
use scripted::Scripted;

use super::arrived::{Arrived, Clock};
use super::asked::{ClientRequest, Wanted};
use super::bus::{Message, Question};
use super::checkers::Checkers;
use super::coverage::{Coverage, Situation};
use super::faults::Faults;
use super::invariants::{Invariant, Violation};
use super::journal::SimJournal;
use super::nodes::{Life, Node, Place, Shape, Snapshot, containers};
use super::plan::{Act, Plan};
use super::records::Append;
use super::rng::Rng;
use super::story::Seen;

/// Start time of every run.
pub const START: Timestamp = Timestamp::from_millis(1_790_000_000_000);
/// Maximum number of steps of a run that comes to rest.
const STEPS: u64 = 2_000_000;
/// Maximum number of events at one moment.
const AT_ONCE: u64 = 10_000;
/// Maximum number of lines in the log of a run.
const STORY: usize = 100_000;

/// Time without appends after which a run is at rest.
const QUIET: Duration = Duration::from_secs(1);
/// Maximum number of waits for rest.
const LAST_LOOKS: usize = 60;

/// Input of a node.
#[derive(Clone, Debug)]
pub(super) enum NodeEvent {
    Follow,
    Alarm,
    Turn,
    NotAppended {
        subject: Subject,
        entry: EntryId,
        why: AppendFailure,
    },
    Last {
        subject: Subject,
        last: Last,
    },
    Message(Message),
    /// Answer to a question. `None` after the timeout.
    Answer {
        token: u64,
        bytes: Option<Bytes>,
    },
    Container(Container),
    Containers(Vec<Container>),
    SelfTested(Result<(), String>),
    Prepared(Vec<(InstanceGuid, Result<(), rep::Unprepared>)>),
    Called {
        task: TaskGuid,
        epoch: Epoch,
        called: bbs::callbacks::CallbackResult,
    },
    Clock(Clock),
    Disconnected,
    Reconnected,
}

/// Result of reading the last entry of a subject.
pub(super) type Last = Result<Option<(Position, Option<EntryId>)>, String>;

/// Event around the nodes.
#[derive(Clone, Debug)]
pub(super) enum ClusterEvent {
    Restart(Node),
    Replace(usize),
    Append(Box<Append>),
    Containers(usize),
    Request(Box<ClientRequest>),
    ClientAnswer {
        token: u64,
        bytes: Option<Bytes>,
    },
    /// An old copy of a message arrives.
    OldCopy(Node, Message),
    /// A node reaches the bus or the journal again.
    Heal,
    /// An act of the plan happens.
    Act(Box<Act>),
    /// Due work is checked.
    CheckDue,
    /// Clocks are compared.
    CompareClocks,
}

#[derive(Clone, Debug)]
enum Event {
    Node(Life, NodeEvent),
    Cluster(ClusterEvent),
}

/// Simulated cluster.
pub struct Cluster {
    pub(super) now: Timestamp,
    pub(super) faults: Faults,
    pub(super) shape: Shape,
    pub(super) network: Rng,
    pub(super) chaos: Rng,
    /// Random stream of task owners and clients.
    pub(super) users: Rng,
    /// Random stream of the positions of plans.
    pub(super) planners: Rng,
    /// Random stream of readers.
    pub(super) readers: Rng,
    /// Random stream of projectors.
    pub(super) projectors: Rng,
    pub(super) seeds: u64,
    pub journal: SimJournal,
    /// Newest snapshot of the log.
    pub(super) snapshot: Option<Snapshot>,
    pub(super) places: BTreeMap<Node, Place>,
    pub(super) cells: Vec<Scripted>,
    due: BTreeMap<(Timestamp, u64), Event>,
    pub(super) counter: u64,
    pub(super) questions: BTreeMap<u64, Question>,
    /// Question of each requester token.
    pub(super) requesters: BTreeMap<u64, u64>,
    /// Time in which a forger sends leader heartbeats continuously.
    pub(super) storm: Range<Timestamp>,
    /// Time until which all heartbeats are lost.
    pub(super) no_heartbeats_until: Timestamp,
    /// Cell whose heartbeats and probes are lost, and until when.
    pub(super) unheard: (usize, Timestamp),
    /// Time until which the journal does not answer.
    pub(super) dark_until: Timestamp,
    /// Partitions: senders, receivers and end.
    pub(super) parted: Vec<(Vec<Node>, Vec<Node>, Timestamp)>,
    /// Cells whose container events are late: end and maximum delay.
    pub(super) slow: BTreeMap<usize, (Timestamp, Duration)>,
    /// Time of the last scheduled container event of each cell.
    pub(super) news: BTreeMap<usize, Timestamp>,
    /// Cells that cannot create containers, and until when.
    pub(super) sick_until: BTreeMap<usize, Timestamp>,
    /// Cells that cannot prepare containers, and until when.
    pub(super) full_until: BTreeMap<usize, Timestamp>,
    /// Time until which faults hinder the BBSs, the journal, or their messages.
    pub(super) troubled_until: Timestamp,
    /// Last time at which a BBS led.
    pub(super) led_at: Timestamp,
    pub(super) gone: BTreeSet<usize>,
    /// Rows of the reconciliation tables that ended lives of reps applied.
    pub(super) rows: BTreeMap<Row, u64>,
    /// Number of injected faults of each kind.
    pub(super) injected: BTreeMap<&'static str, u64>,
    /// Number of acts so far.
    pub(super) acted: usize,
    pub(super) wanted: Wanted,
    pub(super) checkers: Checkers,
    trace: u64,
    story: Vec<String>,
    pub(super) steps: u64,
    /// Number of events at the current moment.
    at_once: u64,
    /// Number of violations in the log of the run.
    logged: usize,
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Hash of all steps. Equal seeds give equal hashes.
    pub trace: u64,
    /// Number of inputs.
    pub steps: u64,
    pub entries: u64,
    pub coverage: Coverage,
    /// Amount of work that only convergence found.
    pub found_by_convergence: u64,
    /// Longest time for which more than two containers of one ActualLRP ran.
    pub crowded: Duration,
    /// Simulated time.
    pub simulated: Duration,
    /// Number of injected faults of each kind.
    pub injected: BTreeMap<&'static str, u64>,
    /// Rows of the reconciliation tables that reps applied.
    pub rows: BTreeMap<Row, u64>,
    pub violations: Vec<Violation>,
    /// Log of the run, if it violated an invariant.
    pub story: Vec<String>,
}

/// Returns the maximum difference between two clocks.
fn clock_slack(plan: &Plan) -> Duration {
    let steps = plan.acts.iter().map(|(_, act)| match act {
        Act::Clock { millis, .. } => millis.unsigned_abs(),
        Act::Ask { .. }
        | Act::Evacuate(_)
        | Act::Cordon(_)
        | Act::Uncordon(_)
        | Act::Forget(_)
        | Act::Preemption(_)
        | Act::Reshard(_)
        | Act::Retry(..)
        | Act::Kill { .. }
        | Act::Lose { .. }
        | Act::CutOff { .. }
        | Act::Part { .. }
        | Act::Pause { .. }
        | Act::Lag { .. }
        | Act::Dark(_)
        | Act::NoHeartbeats(_)
        | Act::Unheard { .. }
        | Act::Slow { .. }
        | Act::Sick { .. }
        | Act::Full { .. }
        | Act::Malformed
        | Act::PowerCut { .. } => 0,
    });
    Duration::from_millis(2 * plan.faults.skew_ms + steps.sum::<u64>() + 1)
}

/// Draws the time in which a forger sends leader heartbeats continuously. In some runs it is longer than an
/// election.
fn storm(rng: &mut Rng) -> Range<Timestamp> {
    let begins = START + rng.millis(3_000, 20_000);
    let lasts = if rng.chance(500) { rng.millis(25_000, 45_000) } else { Duration::ZERO };
    begins..begins + lasts
}

/// Runs the plan of a seed.
#[must_use]
pub fn run(seed: u64) -> Outcome {
    run_plan(&Plan::drawn(seed))
}

/// Runs a plan.
#[must_use]
pub fn run_plan(plan: &Plan) -> Outcome {
    run_told(plan, &mut |_, _| {})
}

/// Runs a plan, and passes its events to the callback.
#[must_use]
pub fn run_told(plan: &Plan, tell: &mut dyn FnMut(Duration, Seen<'_>)) -> Outcome {
    let mut cluster = Cluster::new(plan);
    cluster.tell_story(plan, tell);
    cluster.calm_down();
    cluster.outcome()
}

impl Cluster {
    /// Creates a cluster and schedules its plan.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let Plan { seed, shape, faults, acts, .. } = plan;
        let (seed, shape, faults) = (*seed, *shape, *faults);
        let mut clocks = Rng::new(seed, 5);
        let mut skew = || {
            let ahead = clocks.below(2 * faults.skew_ms + 1);
            i64::try_from(ahead).unwrap_or(0) - i64::try_from(faults.skew_ms).unwrap_or(0)
        };
        let mut cluster = Self {
            now: START,
            faults,
            shape,
            network: Rng::new(seed, 1),
            chaos: Rng::new(seed, 8),
            users: Rng::new(seed, 9),
            planners: Rng::new(seed, 34),
            readers: Rng::new(seed, 13),
            projectors: Rng::new(seed, 38),
            seeds: seed.wrapping_mul(1_000_003),
            journal: SimJournal::new(shape.replicas),
            snapshot: None,
            places: shape.nodes().map(|node| (node, Place::new(skew()))).collect(),
            cells: (0..shape.cells).map(containers).collect(),
            due: BTreeMap::new(),
            counter: 0,
            questions: BTreeMap::new(),
            requesters: BTreeMap::new(),
            storm: storm(&mut Rng::new(seed, 28)),
            no_heartbeats_until: START,
            unheard: (0, START),
            dark_until: START,
            parted: vec![],
            slow: BTreeMap::new(),
            news: BTreeMap::new(),
            sick_until: BTreeMap::new(),
            full_until: BTreeMap::new(),
            troubled_until: START,
            led_at: START,
            gone: BTreeSet::new(),
            rows: BTreeMap::new(),
            injected: BTreeMap::new(),
            acted: 0,
            wanted: Wanted::default(),
            checkers: Checkers::new(shape, clock_slack(plan)),
            trace: 0xcbf2_9ce4_8422_2325,
            story: vec![],
            steps: 0,
            at_once: 0,
            logged: 0,
        };
        for node in shape.nodes() {
            cluster.schedule(START, ClusterEvent::Restart(node));
        }
        cluster.schedule(START, ClusterEvent::CheckDue);
        cluster.schedule(START, ClusterEvent::CompareClocks);
        for (at, act) in acts {
            cluster.schedule(START + *at, ClusterEvent::Act(Box::new(act.clone())));
        }
        cluster
    }

    /// Schedules an input of a life.
    pub(super) fn schedule_for(&mut self, at: Timestamp, life: Life, what: NodeEvent) {
        self.counter += 1;
        self.due.insert((at, self.counter), Event::Node(life, what));
    }

    /// Schedules an event.
    pub(super) fn schedule(&mut self, at: Timestamp, what: ClusterEvent) {
        self.counter += 1;
        self.due.insert((at, self.counter), Event::Cluster(what));
    }

    /// Runs the cluster until a time.
    pub fn until(&mut self, moment: Timestamp) {
        while self.next(moment) {}
        self.now = self.now.max(moment);
    }

    /// Handles the next event, if it is due at `moment`.
    pub(super) fn next(&mut self, moment: Timestamp) -> bool {
        let Some(first) = self.due.first_entry().filter(|first| first.key().0 <= moment) else {
            return false;
        };
        let ((at, _), event) = first.remove_entry();
        self.at_once = if at > self.now { 0 } else { self.at_once + 1 };
        self.now = self.now.max(at);
        if self.steps > STEPS {
            return false;
        }
        if self.at_once > AT_ONCE {
            self.violated(Invariant::NoHotLoop, format!("more than {AT_ONCE} things happen at one moment"));
            self.steps = STEPS + 1;
            return false;
        }
        match event {
            Event::Node(life, what) => self.arrives(life, what),
            Event::Cluster(what) => self.happens(what),
        }
        self.log_violations();
        true
    }

    fn happens(&mut self, what: ClusterEvent) {
        match what {
            ClusterEvent::Restart(node) => self.start(node),
            ClusterEvent::Replace(cell) => self.replace(cell),
            ClusterEvent::Append(append) => self.append(*append),
            ClusterEvent::Containers(cell) => self.advance(cell),
            ClusterEvent::Request(request) => self.send_request(*request),
            ClusterEvent::ClientAnswer { token, bytes } => self.client_answered(token, bytes.as_ref()),
            ClusterEvent::OldCopy(node, message) => self.old_copy(node, message),
            ClusterEvent::Heal => self.heal(),
            ClusterEvent::Act(act) => self.act(*act),
            ClusterEvent::CompareClocks => self.compare_clocks(),
            ClusterEvent::CheckDue => {
                self.check_due();
                self.read_at_times();
                self.forge_beats();
            }
        }
    }

    /// Passes an input to a node. Inputs of an ended life are lost, and inputs of a paused node wait.
    fn arrives(&mut self, life: Life, what: NodeEvent) {
        let (node, generation) = life;
        let place = self.place(node);
        if place.generation != generation || place.machine.is_none() {
            return;
        }
        if place.held_until > self.now {
            return self.schedule_for(self.place(node).held_until, life, what);
        }
        match what {
            NodeEvent::Follow => self.follow(node),
            NodeEvent::Alarm => self.alarm(node),
            NodeEvent::Turn if self.place(node).turn_due => self.input(node, Arrived::Turn),
            NodeEvent::Turn => {}
            NodeEvent::NotAppended { subject, entry, why } => {
                self.input(node, Arrived::NotAppended { subject, entry, why });
            }
            NodeEvent::Last { subject, last } => self.input(node, Arrived::Last { subject, last }),
            NodeEvent::Message(message) => self.message(node, message),
            NodeEvent::Answer { token, bytes } => self.answered(node, token, bytes),
            NodeEvent::Container(container) => self.input(node, Arrived::Container(container)),
            NodeEvent::Containers(list) => self.input(node, Arrived::Containers(list)),
            NodeEvent::Prepared(results) => self.input(node, Arrived::Prepared(results)),
            NodeEvent::SelfTested(result) => self.input(node, Arrived::SelfTested(result)),
            NodeEvent::Called { task, epoch, called } => self.called(node, task, epoch, called),
            NodeEvent::Clock(clock) => self.input(node, Arrived::Clock(clock)),
            NodeEvent::Disconnected => self.input(node, Arrived::Disconnected),
            NodeEvent::Reconnected => self.input(node, Arrived::Reconnected),
        }
    }

    /// Schedules the end of a cut.
    pub(super) fn heal_at(&mut self, at: Timestamp) {
        self.schedule(at, ClusterEvent::Heal);
    }

    /// Lets nodes whose cut has ended read the log, and notifies BBSs that they were disconnected.
    fn heal(&mut self) {
        for node in self.all_nodes() {
            let Some(life) = self.life(node) else { continue };
            match node {
                Node::Bbs(_) | Node::Auctioneer(_) => self.schedule_for(self.now, life, NodeEvent::Follow),
                Node::Rep(_) => {}
            }
            let now = self.now;
            let place = self.place_mut(node);
            if place.cut_until <= now && std::mem::take(&mut place.knows_cut) {
                self.schedule_for(self.now, life, NodeEvent::Reconnected);
            }
        }
    }

    /// Advances the containers of a cell, and notifies its rep.
    fn advance(&mut self, cell: usize) {
        let changed = self.cells[cell].advance(self.now);
        changed.iter().for_each(|container| self.checkers.changed(container));
        for happened in self.cells[cell].take_events() {
            self.checkers.happened(&happened, cell, &self.cells[cell]);
        }
        if let Some(life) = self.life(Node::Rep(cell)) {
            for container in changed {
                let at = self.news_at(cell);
                self.schedule_for(at, life, NodeEvent::Container(container));
            }
        }
        self.wait_for_containers(cell);
    }

    pub(super) fn wait_for_containers(&mut self, cell: usize) {
        if let Some(due) = self.cells[cell].next_due() {
            self.schedule(due.max(self.now), ClusterEvent::Containers(cell));
        }
    }

    /// Ends all faults, refreshes the domains, and waits until the cluster is at rest.
    fn calm_down(&mut self) {
        self.make_peace();
        self.until(self.now + Duration::from_secs(60));
        self.refresh_for_ever();
        self.order_cluster(schemas::cluster::Command::SwitchPreemption(false));
        self.take_back_cordons();
        self.mend_definitions();
        self.remove_launchers();
        self.until(self.now + Duration::from_secs(125));
        // Old copies of commands may arrive until then.
        self.order_cluster(schemas::cluster::Command::SwitchPreemption(false));
        self.take_back_cordons();
        self.remove_launchers();
        self.until(self.now + Duration::from_secs(115));
        self.note_idle_room();
        self.until(self.now + Duration::from_secs(45));
        self.check_leaks();
        self.await_quiet();
    }

    /// Waits for the consequences of work that was due in the last moment.
    fn await_quiet(&mut self) {
        for _ in 0..LAST_LOOKS {
            let end = self.journal.end();
            self.until(self.now + QUIET);
            if self.journal.end() == end {
                return;
            }
        }
    }

    fn outcome(mut self) -> Outcome {
        if self.steps > STEPS {
            self.violated(Invariant::Quiet, format!("{STEPS} steps"));
        }
        self.check_rest();
        for node in self.all_nodes() {
            self.end_life(node);
        }
        let found_by_convergence = self.checkers.found_by_convergence();
        self.log_violations();
        let (mut violations, coverage, crowded) = self.checkers.results(self.now);
        violations.dedup();
        let story = if violations.is_empty() { vec![] } else { self.story };
        let (trace, steps, entries) = (self.trace, self.steps, self.journal.end().0);
        let (simulated, injected, rows) = (self.now.since(START), self.injected, self.rows);
        Outcome {
            trace,
            steps,
            entries,
            coverage,
            found_by_convergence,
            crowded,
            simulated,
            injected,
            rows,
            violations,
            story,
        }
    }

    /// Records a violation.
    pub(super) fn violated(&mut self, invariant: Invariant, detail: String) {
        self.checkers.violated(Violation { invariant, detail });
    }

    /// Writes new violations to the log of the run.
    fn log_violations(&mut self) {
        let new: Vec<String> =
            self.checkers.violations()[self.logged..].iter().map(ToString::to_string).collect();
        self.logged += new.len();
        new.into_iter().for_each(|violation| self.tell(|| format!("VIOLATED: {violation}")));
    }

    /// Counts an injected fault.
    pub(super) fn inject(&mut self, kind: &'static str) {
        *self.injected.entry(kind).or_default() += 1;
    }

    pub(super) fn saw(&mut self, situation: Situation) {
        self.checkers.saw(situation);
    }

    /// Adds a line to the log of the run, and to the hash of the run.
    pub(super) fn tell(&mut self, line: impl FnOnce() -> String) {
        let mut text = String::new();
        let _infallible = write!(text, "{:>9.3}s {}", self.now.since(START).as_secs_f64(), line());
        for byte in text.bytes() {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.story.len() < STORY {
            self.story.push(text);
        }
    }
}
