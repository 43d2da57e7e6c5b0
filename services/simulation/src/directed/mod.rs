//! Plans that lead to one row of the reconciliation tables each: of many rows seeds meet one in thousands of runs, if any.
//!
//! Each is a small cast. `ALPHA` is the cell whose rep is to meet the row, `BETA` the one that holds the evacuating
//! record, `OMEGA` the one that holds the instance. Cells appear one after the other, so that it is known where work
//! goes; who must not hear what becomes of its work is cut off; and when all is set up, the rep of `ALPHA` looks.
//!
//! Times are in milliseconds from the start. They follow from a few of the product's: a heartbeat every 5 s, a cell lost
//! after 15 s of silence, containers looked at every 30 s, what is not answered within 2 s asked again after 1, 2, 4,
//! 8 and 16 s. Whoever changes these finds the plans that no longer arrive by the test that runs them.

mod processes;
mod tasks;

use std::time::Duration;

use rep::reconcile::Row;
use rep::reconcile::evacuation::{EvacuatingLrp, Instance};
use rep::reconcile::{Holder, lrp, task};
use schemas::names::ProcessGuid;

use super::faults::Faults;
use super::nodes::{Node, Shape};
use super::plan::{Act, Plan};
use super::workload::{Ask, Work, domain};

use self::processes::Case;

/// The cell whose rep is to meet the row.
const ALPHA: usize = 0;
/// The cell that holds the evacuating record.
const BETA: usize = 1;
/// The cell that holds the instance.
const OMEGA: usize = 3;
/// Other cells with room: they stay away. The rest are too small, or want a tag: they are there so that one cell that
/// falls silent is not taken for a fault of the network.
const SPARE: [usize; 2] = [4, 5];
/// More than the small cells have.
const MEMORY_MB: u64 = 1_100;
/// When the first work is asked for.
const FIRST: u64 = 3_000;
/// So long after the last of it every rep has looked again.
const LOOKS: Duration = Duration::from_secs(35);

/// A plan that is to meet a row; none if only chance does: an order has to overtake an answer by a hair. Several attempts
/// differ in their moments, and in the network's.
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

/// What happens, as it comes together.
struct Scene {
    attempt: u64,
    work: Work,
    acts: Vec<(u64, Act)>,
    delay_ms: u64,
    /// When the last of it is over.
    until: u64,
}

impl Scene {
    fn new(attempt: u64) -> Self {
        let work = Work { memory_mb: MEMORY_MB, ..Work::usual() };
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
            ..Shape::USUAL
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

    /// What the attempts differ by.
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

    /// Cells are not there before peace.
    fn stay_away(&mut self, cells: &[usize]) {
        for cell in cells {
            self.at(0, cut_off(*cell, Duration::from_secs(3_600)));
        }
    }

    /// A cell is not there before.
    fn appears(&mut self, cell: usize, at: u64) {
        self.blind(cell, 0, at);
    }

    /// A rep hears nobody, and nobody hears it.
    fn blind(&mut self, cell: usize, from: u64, until: u64) {
        self.at(from, cut_off(cell, between(from, until)));
        self.until = self.until.max(until);
    }

    /// A rep is killed, and looks at once when it is back.
    fn dies(&mut self, cell: usize, from: u64, until: u64) {
        self.at(from, Act::Kill { node: Node::Rep(cell), away: between(from, until) });
        self.until = self.until.max(until);
    }

    /// A rep stands still: it finds everything when it goes on.
    fn stands_still(&mut self, cell: usize, from: u64, until: u64) {
        self.at(from, Act::Pause { node: Node::Rep(cell), time: between(from, until) });
        self.until = self.until.max(until);
    }

    /// A cell is evacuated, as far as it can be.
    fn evacuates(&mut self, cell: usize, at: u64) {
        self.at(at, Act::Evacuate(cell));
    }

    /// A cell is evacuated, and no BBS hears from its rep.
    fn leaves_unheard(&mut self, cell: usize, from: u64, until: u64) {
        self.parts(&[Node::Rep(cell)], &[Node::Bbs(0), Node::Bbs(1)], (from, until));
        self.evacuates(cell, from + 20);
    }

    /// What a BBS says to a rep gets lost.
    fn hears_no_bbs(&mut self, cell: usize, from: u64, until: u64) {
        self.parts(&[Node::Bbs(0), Node::Bbs(1)], &[Node::Rep(cell)], (from, until));
    }

    fn parts(&mut self, from: &[Node], to: &[Node], (begin, end): (u64, u64)) {
        let (from, to) = (from.to_vec(), to.to_vec());
        self.at(begin, Act::Part { from, to, both_ways: false, time: between(begin, end) });
        self.until = self.until.max(end);
    }

    /// No auction is held.
    fn no_auctions(&mut self, from: u64, until: u64) {
        for node in [Node::Auctioneer(0), Node::Auctioneer(1)] {
            self.at(from, Act::Pause { node, time: between(from, until) });
        }
    }

    /// A cell's rep hears late that its containers run.
    fn slow(&mut self, cell: usize, from: u64) {
        self.at(from, Act::Slow { cell, time: Duration::from_secs(120) });
    }

    /// A cell can't make containers: what it is given crashes.
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
