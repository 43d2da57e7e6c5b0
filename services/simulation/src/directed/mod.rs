//! Plans that lead to one row of the reconciliation tables. Seeds meet many of these rows in one of thousands
//! of runs, if at all.
//!
//! The rep of `ALPHA` is to meet the row, `BETA` holds the evacuating record, and `OMEGA` holds the instance.
//! Cells appear one after the other, so that the placement of work is known. Nodes that must not receive
//! messages are cut off. At the end the rep of `ALPHA` compares its containers with the log.
//!
//! Times are in milliseconds from the start. They depend on the heartbeat interval of 5 s, the loss of a cell
//! after 15 s, the poll interval of 30 s, and retries 1, 2, 4, 8 and 16 s after a timeout of 2 s. A test runs
//! all plans, and so finds plans that a change of these times breaks.

mod processes;
mod tasks;

use std::time::Duration;

use rep::reconcile::Row;
use rep::reconcile::evacuation::{EvacuatingLrp, Instance};
use rep::reconcile::{Holder, lrp, task};
use schemas::names::ProcessGuid;

use self::processes::Case;

use crate::act::Act;
use crate::plan::Plan;
use crate::rates::Faults;
use crate::shape::{Node, Shape};
use crate::work::{Ask, Work, domain};

/// Cell whose rep is to meet the row.
const ALPHA: usize = 0;
/// Cell with the evacuating record.
const BETA: usize = 1;
/// Cell with the instance.
const OMEGA: usize = 3;
/// Other cells with room, which stay away. The remaining cells are too small or require a tag. They exist so
/// that the loss of one cell does not count as a network fault.
const SPARE: [usize; 2] = [4, 5];
/// More memory than the small cells have.
const MEMORY_MB: u64 = 1_100;
/// Time of the first command.
const FIRST: u64 = 3_000;
/// Time until every rep has polled after the last act.
const LOOKS: Duration = Duration::from_secs(35);

/// Returns a plan that is to meet a row. `None` if an order has to overtake an answer by chance. Attempts
/// differ in their times and random numbers.
#[must_use]
pub fn towards(row: Row, attempt: u64) -> Option<Plan> {
    let mut scene = Scene::new(attempt);
    match row {
        Row::Lrp(lrp::Container::Reserved, lrp::Lrp::Claimed(Holder::Alpha))
        | Row::Evacuation(lrp::Container::Reserved, Instance::Unplaced, EvacuatingLrp::Absent)
        | Row::Task(task::Container::Reserved, task::Task::Running(Holder::Alpha)) => return None,
        Row::Lrp(container, record) => {
            let case =
                Case { container, instance: record.into(), twin: EvacuatingLrp::Absent, evacuates: false };
            scene.process(case);
        }
        Row::Evacuation(container, instance, twin) => {
            scene.process(Case { container, instance, twin, evacuates: true });
        }
        Row::Task(container, record) => scene.task(container, record),
    }
    Some(scene.plan())
}

/// Builder of a plan.
struct Scene {
    attempt: u64,
    work: Work,
    acts: Vec<(u64, Act)>,
    delay_ms: u64,
    /// End of the last act.
    until: u64,
}

impl Scene {
    fn new(attempt: u64) -> Self {
        let work = Work { memory_mb: MEMORY_MB, ..Work::basic() };
        let mut scene = Self { attempt, work, acts: vec![], delay_ms: Faults::NONE.delay_ms, until: 0 };
        scene.stay_away(&SPARE);
        scene
    }

    fn plan(self) -> Plan {
        let Self { attempt, mut acts, delay_ms, until, work: _ } = self;
        acts.sort_by_key(|(at, _)| *at);
        let shape = Shape {
            cells: 8,
            tagged: true,
            mixed: true,
            evacuation: Duration::from_secs(300),
            self_test: Duration::from_secs(600),
            ..Shape::DEFAULT
        };
        Plan {
            seed: attempt,
            shape,
            faults: Faults { delay_ms, ..Faults::NONE },
            acts: acts.into_iter().map(|(at, act)| (Duration::from_millis(at), act)).collect(),
            expects: vec![],
            peace_at: Duration::from_millis(until) + LOOKS,
        }
    }

    /// Returns the difference between attempts.
    const fn jitter(&self) -> u64 {
        self.attempt * 173
    }

    fn at(&mut self, at: u64, act: Act) {
        self.until = self.until.max(at);
        self.acts.push((at, act));
    }

    fn ask(&mut self, at: u64, ask: Ask) {
        let patience = Duration::from_secs(10);
        self.at(at, Act::Ask { domain: domain(), ask, patience, answer: None });
    }

    fn desire(&mut self, at: u64) {
        let work = self.work.clone();
        self.ask(at, Ask::Desire { process: web(), instances: 1, work });
    }

    /// Keeps cells away until peace.
    fn stay_away(&mut self, cells: &[usize]) {
        for cell in cells {
            self.at(0, cut_off(*cell, Duration::from_secs(3_600)));
        }
    }

    /// Lets a cell appear at a time.
    fn appears(&mut self, cell: usize, at: u64) {
        self.blind(cell, 0, at);
    }

    /// Cuts a rep off.
    fn blind(&mut self, cell: usize, from: u64, until: u64) {
        self.at(from, cut_off(cell, between(from, until)));
        self.until = self.until.max(until);
    }

    /// Kills a rep, which polls when it restarts.
    fn dies(&mut self, cell: usize, from: u64, until: u64) {
        self.at(from, Act::Kill { node: Node::Rep(cell), away: between(from, until) });
        self.until = self.until.max(until);
    }

    /// Pauses a rep, which handles all its inputs afterwards.
    fn stands_still(&mut self, cell: usize, from: u64, until: u64) {
        self.at(from, Act::Pause { node: Node::Rep(cell), time: between(from, until) });
        self.until = self.until.max(until);
    }

    /// Evacuates a cell.
    fn evacuates(&mut self, cell: usize, at: u64) {
        self.at(at, Act::Evacuate(cell));
    }

    /// Evacuates a cell while no BBS receives messages of its rep.
    fn leaves_unheard(&mut self, cell: usize, from: u64, until: u64) {
        self.parts(&[Node::Rep(cell)], &[Node::Bbs(0), Node::Bbs(1)], (from, until));
        self.evacuates(cell, from + 20);
    }

    /// Loses the messages from BBSs to a rep.
    fn hears_no_bbs(&mut self, cell: usize, from: u64, until: u64) {
        self.parts(&[Node::Bbs(0), Node::Bbs(1)], &[Node::Rep(cell)], (from, until));
    }

    fn parts(&mut self, from: &[Node], to: &[Node], (begin, end): (u64, u64)) {
        let (from, to) = (from.to_vec(), to.to_vec());
        self.at(begin, Act::Part { from, to, both_ways: false, time: between(begin, end) });
        self.until = self.until.max(end);
    }

    /// Pauses the auctioneers.
    fn no_auctions(&mut self, from: u64, until: u64) {
        for node in [Node::Auctioneer(0), Node::Auctioneer(1)] {
            self.at(from, Act::Pause { node, time: between(from, until) });
        }
    }

    /// Delays the container events of a cell.
    fn slow(&mut self, cell: usize, from: u64) {
        self.at(from, Act::Slow { cell, time: Duration::from_secs(120) });
    }

    /// Lets the creation of containers fail on a cell.
    fn sick(&mut self, cell: usize, from: u64) {
        self.at(from, Act::Sick { cell, time: Duration::from_secs(60) });
    }
}

const fn between(from: u64, until: u64) -> Duration {
    Duration::from_millis(until.saturating_sub(from))
}

const fn cut_off(cell: usize, time: Duration) -> Act {
    Act::CutOff { node: Node::Rep(cell), time, journal_too: false, notices: false }
}

fn web() -> ProcessGuid {
    ProcessGuid::new("web").expect("a name")
}
