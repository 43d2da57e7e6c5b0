//! The cluster, and the loop that handles its events in the order of time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use rep::reconcile::Row;
use schemas::Timestamp;
use scripted::Scripted;

use crate::act::Act;
use crate::arrived::Arrived;
use crate::checkers::Checkers;
use crate::coverage::Situation;
use crate::event::{ClusterEvent, NodeEvent, Question};
use crate::invariants::{Invariant, Violation};
use crate::journal::SimJournal;
use crate::machine::{Place, Snapshot};
use crate::plan::Plan;
use crate::rates::Faults;
use crate::requests::Requests;
use crate::rng::Rng;
use crate::shape::{Life, Node, START, Shape, containers};

/// Maximum number of steps of a run that comes to rest.
pub(crate) const STEPS: u64 = 2_000_000;
/// Maximum number of events at one moment.
const AT_ONCE: u64 = 10_000;
/// Maximum number of lines in the log of a run.
const STORY: usize = 100_000;

#[derive(Clone, Debug)]
enum Event {
    Node(Life, NodeEvent),
    Cluster(ClusterEvent),
}

/// Simulated cluster.
pub struct Cluster {
    pub(crate) now: Timestamp,
    pub(crate) faults: Faults,
    pub(crate) shape: Shape,
    pub(crate) network: Rng,
    pub(crate) chaos: Rng,
    /// Random stream of task owners and clients.
    pub(crate) users: Rng,
    /// Random stream of the positions of plans.
    pub(crate) planners: Rng,
    /// Random stream of readers.
    pub(crate) readers: Rng,
    /// Random stream of projectors.
    pub(crate) projectors: Rng,
    pub(crate) seeds: u64,
    pub journal: SimJournal,
    /// Newest snapshot of the log.
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) places: BTreeMap<Node, Place>,
    pub(crate) cells: Vec<Scripted>,
    due: BTreeMap<(Timestamp, u64), Event>,
    pub(crate) counter: u64,
    pub(crate) questions: BTreeMap<u64, Question>,
    /// Question of each requester token.
    pub(crate) requesters: BTreeMap<u64, u64>,
    /// Time in which a forger sends leader heartbeats continuously.
    pub(crate) storm: Range<Timestamp>,
    /// Time until which all heartbeats are lost.
    pub(crate) no_heartbeats_until: Timestamp,
    /// Cell whose heartbeats and probes are lost, and until when.
    pub(crate) unheard: (usize, Timestamp),
    /// Time until which the journal does not answer.
    pub(crate) dark_until: Timestamp,
    /// Partitions: senders, receivers and end.
    pub(crate) parted: Vec<(Vec<Node>, Vec<Node>, Timestamp)>,
    /// Cells whose container events are late: end and maximum delay.
    pub(crate) slow: BTreeMap<usize, (Timestamp, Duration)>,
    /// Time of the last scheduled container event of each cell.
    pub(crate) news: BTreeMap<usize, Timestamp>,
    /// Cells that cannot create containers, and until when.
    pub(crate) sick_until: BTreeMap<usize, Timestamp>,
    /// Cells that cannot prepare containers, and until when.
    pub(crate) full_until: BTreeMap<usize, Timestamp>,
    /// Time until which faults hinder the BBSs, the journal, or their messages.
    pub(crate) troubled_until: Timestamp,
    /// Last time at which a BBS led.
    pub(crate) led_at: Timestamp,
    pub(crate) gone: BTreeSet<usize>,
    /// Rows of the reconciliation tables that ended lives of reps applied.
    pub(crate) rows: BTreeMap<Row, u64>,
    /// Number of injected faults of each kind.
    pub(crate) injected: BTreeMap<&'static str, u64>,
    /// Number of acts so far.
    pub(crate) acted: usize,
    pub(crate) requests: Requests,
    pub(crate) checkers: Checkers,
    pub(crate) trace: u64,
    pub(crate) story: Vec<String>,
    pub(crate) steps: u64,
    /// Number of events at the current moment.
    pub(crate) at_once: u64,
    /// Number of violations in the log of the run.
    pub(crate) logged: usize,
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
            requests: Requests::default(),
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
    pub(crate) fn schedule_for(&mut self, at: Timestamp, life: Life, what: NodeEvent) {
        self.counter += 1;
        self.due.insert((at, self.counter), Event::Node(life, what));
    }

    /// Schedules an event.
    pub(crate) fn schedule(&mut self, at: Timestamp, what: ClusterEvent) {
        self.counter += 1;
        self.due.insert((at, self.counter), Event::Cluster(what));
    }

    /// Runs the cluster until a time.
    pub fn until(&mut self, moment: Timestamp) {
        while self.next(moment) {}
        self.now = self.now.max(moment);
    }

    /// Handles the next event, if it is due at `moment`.
    pub(crate) fn next(&mut self, moment: Timestamp) -> bool {
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
    pub(crate) fn heal_at(&mut self, at: Timestamp) {
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

    pub(crate) fn wait_for_containers(&mut self, cell: usize) {
        if let Some(due) = self.cells[cell].next_due() {
            self.schedule(due.max(self.now), ClusterEvent::Containers(cell));
        }
    }

    /// Records a violation.
    pub(crate) fn violated(&mut self, invariant: Invariant, detail: String) {
        self.checkers.violated(Violation { invariant, detail });
    }

    /// Writes new violations to the log of the run.
    pub(crate) fn log_violations(&mut self) {
        let new: Vec<String> =
            self.checkers.violations()[self.logged..].iter().map(ToString::to_string).collect();
        self.logged += new.len();
        new.into_iter().for_each(|violation| self.log(|| format!("VIOLATED: {violation}")));
    }

    /// Counts an injected fault.
    pub(crate) fn inject(&mut self, kind: &'static str) {
        *self.injected.entry(kind).or_default() += 1;
    }

    pub(crate) fn met(&mut self, situation: Situation) {
        self.checkers.met(situation);
    }

    /// Adds a line to the log of the run, and to the hash of the run.
    pub(crate) fn log(&mut self, line: impl FnOnce() -> String) {
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
