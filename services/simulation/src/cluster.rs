//! The cluster: nodes, bus, journal, clients, and the one loop through everything that is due.

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

/// When every run starts.
pub const START: Timestamp = Timestamp::from_millis(1_790_000_000_000);
/// More steps than any run takes that becomes quiet.
const STEPS: u64 = 2_000_000;
/// More than happens at one moment where nothing goes round in circles.
const AT_ONCE: u64 = 10_000;
/// The longest story that is kept, in lines.
const STORY: usize = 100_000;

/// At the end nothing was appended for so long: that is longer than anything takes to arrive.
const QUIET: Duration = Duration::from_secs(1);
/// So often that is waited for.
const LAST_LOOKS: usize = 60;

/// What comes to a node.
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
    /// The answer to a question; none: the patience is over.
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

/// The last entry of a subject.
pub(super) type Last = Result<Option<(Position, Option<EntryId>)>, String>;

/// What happens around the nodes.
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
    /// An old copy of a message, for whoever is there now.
    OldCopy(Node, Message),
    /// Somebody reaches the bus or the journal again.
    Heal,
    /// Users or faults do something.
    Act(Box<Act>),
    /// Check due work.
    CheckDue,
    /// It is time that clocks are compared.
    CompareClocks,
}

#[derive(Clone, Debug)]
enum Event {
    Node(Life, NodeEvent),
    Cluster(ClusterEvent),
}

/// A cluster in one thread.
pub struct Cluster {
    pub(super) now: Timestamp,
    pub(super) faults: Faults,
    pub(super) shape: Shape,
    pub(super) network: Rng,
    pub(super) chaos: Rng,
    /// What owners of tasks answer, and when clients look.
    pub(super) users: Rng,
    /// At which positions clients make their plans.
    pub(super) planners: Rng,
    /// What readers ask, and how long that takes.
    pub(super) readers: Rng,
    /// How the log gets into tables, and where those are looked at.
    pub(super) projectors: Rng,
    pub(super) seeds: u64,
    pub journal: SimJournal,
    /// The newest snapshot that somebody wrote of the log.
    pub(super) snapshot: Option<Snapshot>,
    pub(super) places: BTreeMap<Node, Place>,
    pub(super) cells: Vec<Scripted>,
    due: BTreeMap<(Timestamp, u64), Event>,
    pub(super) counter: u64,
    pub(super) questions: BTreeMap<u64, Question>,
    /// Who waits for a machine's answer: the question that it was asked by.
    pub(super) requesters: BTreeMap<u64, u64>,
    /// When somebody forges beats all the time, if at all.
    pub(super) storm: Range<Timestamp>,
    /// Until then no heartbeat arrives.
    pub(super) no_heartbeats_until: Timestamp,
    /// Until then no heartbeat of this cell arrives, and no probe.
    pub(super) unheard: (usize, Timestamp),
    /// Until then the journal answers nobody.
    pub(super) dark_until: Timestamp,
    /// From whom to whom no message gets, and until when.
    pub(super) parted: Vec<(Vec<Node>, Vec<Node>, Timestamp)>,
    /// Until then a cell's rep hears late of its containers, so late at most.
    pub(super) slow: BTreeMap<usize, (Timestamp, Duration)>,
    /// When a cell's rep hears what it hears last.
    pub(super) news: BTreeMap<usize, Timestamp>,
    /// Until then a cell can't make containers.
    pub(super) sick_until: BTreeMap<usize, Timestamp>,
    /// Cells whose executor can't prepare containers, and until when.
    pub(super) full_until: BTreeMap<usize, Timestamp>,
    /// Until then somebody disturbed the BBSs, the journal, or the way between them.
    pub(super) troubled_until: Timestamp,
    /// When a BBS was last seen to lead.
    pub(super) led_at: Timestamp,
    /// Cells that never come back.
    pub(super) gone: BTreeSet<usize>,
    /// The rows of the reconciliation tables that reps met whose life is over.
    pub(super) rows: BTreeMap<Row, u64>,
    /// How often each kind of fault was injected.
    pub(super) injected: BTreeMap<&'static str, u64>,
    /// How many acts of the plan are done.
    pub(super) acted: usize,
    pub(super) wanted: Wanted,
    pub(super) checkers: Checkers,
    trace: u64,
    story: Vec<String>,
    pub(super) steps: u64,
    /// How much happened at this very moment.
    at_once: u64,
    /// Number of violations in the log of the run.
    logged: usize,
}

/// What a run showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// A hash of every step: the same seed has the same.
    pub trace: u64,
    /// Inputs that machines took.
    pub steps: u64,
    /// Entries in the log.
    pub entries: u64,
    /// What was seen, and how often.
    pub coverage: Coverage,
    /// How much work only convergence found.
    pub found_by_convergence: u64,
    /// The longest time in which more than two containers of one ActualLRP ran at once.
    pub crowded: Duration,
    /// Time that was simulated.
    pub simulated: Duration,
    /// What went wrong on purpose, and how often.
    pub injected: BTreeMap<&'static str, u64>,
    /// The rows of the reconciliation tables that were met, and how often.
    pub rows: BTreeMap<Row, u64>,
    pub violations: Vec<Violation>,
    /// Log of the run, if it violated an invariant.
    pub story: Vec<String>,
}

/// How far two clocks may be apart.
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

/// When somebody forges beats all the time: in some runs, for longer than it takes until another BBS leads.
fn storm(rng: &mut Rng) -> Range<Timestamp> {
    let begins = START + rng.millis(3_000, 20_000);
    let lasts = if rng.chance(500) { rng.millis(25_000, 45_000) } else { Duration::ZERO };
    begins..begins + lasts
}

/// Runs a cluster: a minute of faults and requests, then peace until it must have become quiet.
#[must_use]
pub fn run(seed: u64) -> Outcome {
    run_plan(&Plan::drawn(seed))
}

/// Runs a plan to its end.
#[must_use]
pub fn run_plan(plan: &Plan) -> Outcome {
    run_told(plan, &mut |_, _| {})
}

/// Runs a plan to its end, and tells what is seen as it comes.
#[must_use]
pub fn run_told(plan: &Plan, tell: &mut dyn FnMut(Duration, Seen<'_>)) -> Outcome {
    let mut cluster = Cluster::new(plan);
    cluster.tell_story(plan, tell);
    cluster.calm_down();
    cluster.outcome()
}

impl Cluster {
    /// All nodes of a plan, starting, and everything in it to come.
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

    /// Something will come to a life of a node.
    pub(super) fn schedule_for(&mut self, at: Timestamp, life: Life, what: NodeEvent) {
        self.counter += 1;
        self.due.insert((at, self.counter), Event::Node(life, what));
    }

    /// Something will happen around the nodes.
    pub(super) fn schedule(&mut self, at: Timestamp, what: ClusterEvent) {
        self.counter += 1;
        self.due.insert((at, self.counter), Event::Cluster(what));
    }

    /// Lets time run to a moment.
    pub fn until(&mut self, moment: Timestamp) {
        while self.next(moment) {}
        self.now = self.now.max(moment);
    }

    /// Lets happen what is due next, if that is not later than a moment.
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

    /// Something comes to a node: it is lost if that life is over, and waits while the node is paused.
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

    /// Somebody will reach the bus or the journal again.
    pub(super) fn heal_at(&mut self, at: Timestamp) {
        self.schedule(at, ClusterEvent::Heal);
    }

    /// Who reaches the journal again reads on; a BBS is told that it was away from the bus.
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

    /// Containers live on whether their rep does or not; it is told what changes.
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

    /// Peace: no more faults, the domains are fresh; after a while everything has to be as it is wanted.
    fn calm_down(&mut self) {
        self.make_peace();
        self.until(self.now + Duration::from_secs(60));
        self.refresh_for_ever();
        self.order_cluster(schemas::cluster::Command::SwitchPreemption(false));
        self.take_back_cordons();
        self.mend_definitions();
        self.remove_launchers();
        self.until(self.now + Duration::from_secs(125));
        // Old copies of what operators and clients said arrive until then.
        self.order_cluster(schemas::cluster::Command::SwitchPreemption(false));
        self.take_back_cordons();
        self.remove_launchers();
        self.until(self.now + Duration::from_secs(115));
        self.note_idle_room();
        self.until(self.now + Duration::from_secs(45));
        self.check_leaks();
        self.await_quiet();
    }

    /// What waited for minutes may be due in the very last moment: what came of it arrives.
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

    /// Something goes wrong on purpose.
    pub(super) fn inject(&mut self, kind: &'static str) {
        *self.injected.entry(kind).or_default() += 1;
    }

    pub(super) fn saw(&mut self, situation: Situation) {
        self.checkers.saw(situation);
    }

    /// The story that a failed run tells, and the trace that tells two runs apart.
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
