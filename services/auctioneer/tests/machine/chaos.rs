//! Randomized test with a seed. Messages are lost or late, and cells join and leave. At the end, the system
//! must settle.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use auctioneer::machine::Counts;
use auctioneer::{Effect, Input};
use schemas::actual::Command as Lrp;
use schemas::container::WorkKey;
use schemas::entry::Aggregate;
use schemas::message::{Outcomes, Perform, PerformReply, Work};
use schemas::names::{CellId, ProcessGuid};
use schemas::process::{self, Report, ReportStep};
use schemas::resources::Resources;
use schemas::{ActualLrpKey, Timestamp, cell};

use super::scene::*;

/// Model of a rep, limited to the behaviour that an auctioneer observes.
#[derive(Default)]
struct Rep {
    seen: u64,
    /// Work (instances and tasks) that the rep accepted and has not claimed.
    reserved: BTreeMap<(WorkKey, Timestamp), Work>,
    /// Claimed work and its size.
    running: Vec<(WorkKey, Resources)>,
}

impl Rep {
    fn free(&self) -> Resources {
        let reserved = self.reserved.values().map(|work| work.definition.resources());
        let used = self.running.iter().map(|(_, size)| *size).chain(reserved);
        let used = used.fold(Resources::default(), Resources::plus);
        assert!(mib(CELL_MIB).fits(used), "{used:?}");
        mib(CELL_MIB).minus(used)
    }

    fn perform(&mut self, perform: &Perform) -> PerformReply {
        self.seen = self.seen.max(perform.id.number);
        let mut refused = vec![];
        for (place, work) in (0..).zip(&perform.work) {
            let key = (work.key.clone(), work.attempt);
            if self.reserved.contains_key(&key) || self.running.iter().any(|(known, _)| *known == work.key) {
                continue;
            }
            if self.free().fits(work.definition.resources()) {
                self.reserved.insert(key, work.clone());
            } else {
                refused.push((place, "insufficient resources".to_owned()));
            }
        }
        PerformReply { refused }
    }
}

struct Chaos {
    scene: Scene,
    rng: u64,
    reps: BTreeMap<CellId, Rep>,
    performs: Vec<(CellId, Perform)>,
    outcomes: Vec<(u64, Outcomes)>,
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let cells = [("c1", "z1"), ("c2", "z1"), ("c3", "z2"), ("c4", "z3")];
        let scene = Scene::leading(&cells);
        let reps = cells.iter().map(|(id, _)| (cell_id(id), Rep::default())).collect();
        Self { scene, rng: seed, reps, performs: vec![], outcomes: vec![] }
    }

    fn draw(&mut self, below: usize) -> usize {
        self.rng = self.rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.rng >> 33).unwrap() % below
    }

    fn some_cell(&mut self) -> CellId {
        let place = self.draw(self.reps.len());
        self.reps.keys().nth(place).unwrap().clone()
    }

    fn collect_effects(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Perform { cell, perform } => self.performs.push((cell, perform)),
                Effect::Outcomes { id, outcomes } => self.outcomes.push((id, outcomes)),
                Effect::Beat(_) => {}
                Effect::Lead(_) => panic!("the auctioneer already leads"),
            }
        }
        let counts = self.scene.counts();
        assert_eq!(counts.open, self.scene.auctioneer.world().pending_work().count());
        assert!(counts.ready + counts.blocked <= counts.open, "{counts:?}");
    }

    fn step(&mut self) {
        match self.draw(12) {
            0 | 1 => {
                let process = format!("p{}", self.draw(24));
                let known = self.scene.auctioneer.world().process(&guid(&process));
                if known.is_some_and(|process| process.desired.is_some()) {
                    self.scene.decide(&process, &process::Command::Remove);
                    self.remove_undesired();
                } else {
                    let (instances, memory) = (self.draw(6), 50 + self.draw(400));
                    self.scene.desire(&process, u32::try_from(instances).unwrap(), memory as u64);
                }
            }
            2..=4 => {
                let effects = self.scene.turn();
                self.collect_effects(effects);
            }
            5 => {
                let length = Duration::from_millis(self.draw(4_000) as u64);
                let effects = self.scene.advance(length);
                self.collect_effects(effects);
            }
            6 | 7 => self.deliver(true),
            8 => self.heartbeat_of_some_cell(),
            9 => self.claim_something(),
            10 => self.send(true),
            _ => self.restart_some_cell(),
        }
    }

    fn heartbeat_of_some_cell(&mut self) {
        let cell = self.some_cell();
        self.heartbeat(&cell);
    }

    fn heartbeat(&mut self, cell: &CellId) {
        let (free, seen) = (self.reps[cell].free(), self.reps[cell].seen);
        self.scene.send_heartbeat(cell.as_str(), free, seen);
    }

    /// Delivers a random `Perform`. With faults, the message or its answer may be lost.
    fn deliver(&mut self, faults: bool) {
        if self.performs.is_empty() {
            return;
        }
        let place = self.draw(self.performs.len());
        let (cell, perform) = self.performs.remove(place);
        let fault = if faults { self.draw(6) } else { 5 };
        let answer = (fault > 0).then(|| self.reps.get_mut(&cell).unwrap().perform(&perform));
        let answer = answer.filter(|_| fault > 1).map(Ok);
        self.scene.answer(&cell, perform.id, answer);
    }

    fn claim_something(&mut self) {
        let cell = self.some_cell();
        self.claim(&cell);
    }

    /// Claims the first reservation of a rep, or drops it if the work is no longer needed.
    fn claim(&mut self, cell: &CellId) -> bool {
        let rep = self.reps.get_mut(cell).unwrap();
        let Some(((key, attempt), work)) = rep.reserved.pop_first() else { return false };
        let WorkKey::Lrp { key: lrp, epoch } = &key else { panic!("{key:?}") };
        let process = self
            .scene
            .auctioneer
            .world()
            .process(&lrp.process_guid)
            .filter(|process| process.epoch == *epoch);
        let lrp = process.and_then(|process| process.actual(&lrp.place));
        if lrp.is_some_and(|lrp| lrp.is_unclaimed() && lrp.since == attempt) {
            rep.running.push((key, work.definition.resources()));
            self.scene.claim(cell.as_str(), &work);
        }
        true
    }

    /// Stops instances of removed processes.
    fn remove_undesired(&mut self) {
        let world = self.scene.auctioneer.world();
        let mut stopped: Vec<(CellId, WorkKey)> = vec![];
        for (cell, rep) in &mut self.reps {
            rep.running.retain(|(key, _)| {
                let WorkKey::Lrp { key: lrp, epoch } = key else { panic!("{key:?}") };
                let process = world.process(&lrp.process_guid).filter(|process| process.epoch == *epoch);
                let wanted = process.is_some_and(|process| process.desired.is_some());
                if !wanted {
                    stopped.push((cell.clone(), key.clone()));
                }
                wanted
            });
        }
        for (_, key) in stopped {
            let WorkKey::Lrp { key: ActualLrpKey { process_guid, place }, epoch } = key else {
                panic!("{key:?}")
            };
            let lrp = self
                .scene
                .auctioneer
                .world()
                .process(&process_guid)
                .and_then(|process| process.actual(&place));
            if let Some(by) = lrp.and_then(|lrp| lrp.holder()).cloned() {
                let steps = vec![ReportStep::Actual(Lrp::Remove)];
                let observed_at = self.scene.now;
                let report = Report { domain: domain(), place, epoch, by, observed_at, steps };
                self.scene.decide(process_guid.as_str(), &process::Command::Report(report));
            }
        }
    }

    fn send(&mut self, faults: bool) {
        let Some((id, outcomes)) = self.outcomes.pop() else { return };
        if faults && self.draw(3) == 0 {
            self.scene.step(Input::OutcomesAnswered { id, answer: None });
        } else {
            self.scene.record_outcomes(id, outcomes);
        }
    }

    /// Restarts a rep with an empty state. Its instances must be placed again.
    fn restart_some_cell(&mut self) {
        if self.draw(5) > 0 {
            return;
        }
        let cell = self.some_cell();
        let gone = cell::Event::Disappeared { reason: "silent".into() };
        self.scene.cell_event(cell.as_str(), gone);
        let held: BTreeSet<ProcessGuid> =
            self.scene.auctioneer.world().processes_from(None).map(|process| process.guid.clone()).collect();
        for process in held {
            let known = self.scene.auctioneer.world().process(&process).unwrap();
            let lost = cell.clone();
            let present = move |other: &CellId| *other != lost;
            let context = machines::process::Context {
                now: self.scene.now.next(),
                is_fresh: true,
                is_present: &present,
                is_known: &|_| true,
                for_each_cell: &|_| {},
            };
            let events =
                machines::process::decide(Some(known), &process::Command::Converge, context).unwrap();
            let epoch = known.epoch;
            if !events.is_empty() {
                self.scene.record(Aggregate::Process { guid: process, domain: domain(), epoch }, events);
            }
        }
        *self.reps.get_mut(&cell).unwrap() = Rep::default();
        let zone = if cell < cell_id("c3") { "z1" } else { "z2" };
        self.scene.cell(cell.as_str(), zone, "linux");
    }

    /// Delivers all messages for two minutes.
    fn settle(&mut self) {
        for _ in 0..120 {
            let effects = self.scene.advance(SECOND);
            self.collect_effects(effects);
            let effects = self.scene.turn();
            self.collect_effects(effects);
            while !self.performs.is_empty() {
                self.deliver(false);
            }
            for cell in self.reps.keys().cloned().collect::<Vec<_>>() {
                while self.claim(&cell) {}
                self.heartbeat(&cell);
            }
            while !self.outcomes.is_empty() {
                self.send(false);
            }
        }
    }
}

#[test]
fn lost_messages_end_with_all_work_placed_or_reported() {
    for seed in 0..150 {
        let mut chaos = Chaos::new(seed);
        for _ in 0..400 {
            chaos.step();
        }
        chaos.settle();
        let counts = chaos.scene.counts();
        let settled = Counts { open: counts.blocked, blocked: counts.blocked, ..Counts::default() };
        assert_eq!(counts, settled, "seed {seed}");
        let world = chaos.scene.auctioneer.world();
        for work in world.pending_work() {
            let projections::WorkRef::Lrp(key) = work else { panic!("{work:?}") };
            let process = world.process(&key.process_guid).unwrap();
            assert!(process.actual(&key.place).unwrap().has_placement_error(), "seed {seed}: {work:?}");
            let size = process.desired.as_ref().unwrap().definitions[0].1.resources();
            for (cell, rep) in &chaos.reps {
                assert!(!rep.free().fits(size), "seed {seed}: {work:?} fits on {cell}");
            }
        }
    }
}
