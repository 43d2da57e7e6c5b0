//! Test fixture: an auctioneer with a hand-written log and heartbeats.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use auctioneer::machine::Counts;
use auctioneer::{Auctioneer, Effect, Input, Settings};
use machines::task;
use schemas::actual::Command as Lrp;
use schemas::cell::{self, Presence};
use schemas::cluster::{self, Role};
use schemas::container::{Epoch, Instance, WorkKey};
use schemas::definition::{Definition, Placement, Ports, TaskDefinition};
use schemas::entry::{Aggregate, Event};
use schemas::evaluation::Evaluation;
use schemas::message::{
    Ack, Heartbeat, Lease, Outcomes, Perform, PerformId, PerformReply, PlacementOutcome, Work,
};
use schemas::names::{CellId, ClusterId, Domain, IdGenerator, Incarnation, InstanceGuid, Stack, Zone};
use schemas::process::{self, Report, ReportStep};
use schemas::resources::{Constraint, Resources};
use schemas::stamp::Actor;
use schemas::{Decision, Position, Refusal, Timestamp};

pub(crate) use fixtures::{cell_id, process_guid as guid, service_id as name};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const CELL_MIB: u64 = 1000;

pub(crate) fn domain() -> Domain {
    fixtures::domain("d")
}

pub(crate) fn mib(memory_mb: u64) -> Resources {
    Resources { memory_mb, disk_mb: 10_000, containers: 100, ports: 100 }
}

/// Returns resources for as many containers as one auction may place.
pub(crate) fn large_resources(memory_mb: u64) -> Resources {
    Resources { memory_mb, disk_mb: 20_000, containers: 2_000, ports: 100 }
}

pub(crate) fn constraint() -> Constraint {
    Constraint { stack: Some(Stack::new("linux").unwrap()), ..Constraint::default() }
}

pub(crate) fn definition(memory_mb: u64) -> Definition {
    Definition {
        constraint: constraint().into(),
        memory_mb,
        disk_mb: 1,
        ports: Ports::new(),
        ..fixtures::definition()
    }
}

pub(crate) fn done() -> Ack {
    Ack { position: Position(0), version: 0 }
}

/// An auctioneer, its log, and the reps' side of the protocol.
pub(crate) struct Scene {
    /// Leases that the auctioneer reported.
    pub(crate) leases: Vec<Lease>,
    pub(crate) auctioneer: Auctioneer,
    pub(crate) now: Timestamp,
    pub(crate) position: u64,
    pub(crate) ids: IdGenerator,
    pub(crate) incarnations: BTreeMap<CellId, Incarnation>,
    pub(crate) sequence: u64,
    /// Reason for the next decision.
    pub(crate) reason: Option<String>,
}

impl Scene {
    /// Creates a founded cluster with an auctioneer that has read the log but does not lead.
    pub(crate) fn founded() -> Self {
        let mut scene = Self {
            leases: vec![],
            auctioneer: Auctioneer::new(name("a"), Settings::default()),
            now: Timestamp::from_millis(1_000_000),
            position: 0,
            ids: IdGenerator::new(7),
            incarnations: BTreeMap::new(),
            sequence: 0,
            reason: None,
        };
        let id = ClusterId(scene.ids.next(scene.now));
        scene.record(
            Aggregate::Cluster,
            vec![Event::Cluster(cluster::Event::Founded { id, shards: 4, format: 1 })],
        );
        let effects = scene.step(Input::CaughtUp);
        assert_eq!(campaign_terms(&effects), [1], "no leader was ever elected: it campaigns at once");
        scene
    }

    /// Creates a cluster with a leading auctioneer and these cells, given with their zones.
    pub(crate) fn leading(cells: &[(&str, &str)]) -> Self {
        let mut scene = Self::founded();
        for (id, zone) in cells {
            scene.cell(id, zone, "linux");
            scene.send_heartbeat(id, mib(CELL_MIB), 0);
        }
        scene.elect("a", 1);
        scene
    }

    /// Creates a scene like [`Scene::leading`] with `count` cells that have the capacity of [`large_resources`] and
    /// 20,000 MiB each.
    pub(crate) fn leading_many(count: usize) -> Self {
        let cells: Vec<String> = (0..count).map(|number| format!("c{number}")).collect();
        let named: Vec<(&str, &str)> = cells.iter().map(|id| (id.as_str(), "z1")).collect();
        let mut scene = Self::leading(&named);
        cells.iter().for_each(|id| scene.resize_cell(id, large_resources(20_000)));
        scene
    }

    /// Processes an input. Messages that contain only leases are stored in `leases` and answered.
    pub(crate) fn step(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = self.auctioneer.step(self.now, input);
        let mut said = vec![];
        effects.retain(|effect| match effect {
            Effect::Outcomes { id, outcomes } => {
                self.leases.extend(outcomes.leases.iter().cloned());
                let only_leases = outcomes.outcomes.is_empty() && outcomes.evictions.is_empty();
                if only_leases {
                    said.push(*id);
                }
                !only_leases
            }
            Effect::Perform { .. } | Effect::Lead(_) | Effect::Beat(_) => true,
        });
        for id in said {
            let answer = Some(Ok(done()));
            effects.extend(self.auctioneer.step(self.now, Input::OutcomesAnswered { id, answer }));
        }
        effects
    }

    pub(crate) fn turn(&mut self) -> Vec<Effect> {
        self.step(Input::Turn)
    }

    /// Advances the time and fires each alarm that is due.
    pub(crate) fn advance(&mut self, length: Duration) -> Vec<Effect> {
        let end = self.now + length;
        let mut effects = vec![];
        while let Some(at) = self.auctioneer.alarm().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            effects.extend(self.step(Input::Tick));
        }
        self.now = end;
        effects
    }

    pub(crate) fn record(&mut self, aggregate: Aggregate, events: Vec<Event>) -> Vec<Effect> {
        self.now = self.now.next();
        self.position += 1;
        let decision = Decision {
            version: self.position,
            // In these tests only evictions have a reason, and evictions come from an auctioneer.
            actor: if self.reason.is_some() { Actor::Auctioneer(name("a")) } else { Actor::Bbs(name("b")) },
            reason: self.reason.take(),
            ..fixtures::decision(self.ids.next(self.now), self.now, aggregate, events)
        };
        let entry = Arc::new(fixtures::entry(decision));
        self.step(Input::Recorded { position: Position(self.position), entry })
    }

    pub(crate) fn elect(&mut self, id: &str, term: u64) -> Vec<Effect> {
        let event = cluster::Event::Elected { role: Role::Auctioneer, id: name(id), term };
        self.record(Aggregate::Cluster, vec![Event::Cluster(event)])
    }

    /// Gives a cell in zone z1 a different size and removes all of its work.
    pub(crate) fn resize_cell(&mut self, id: &str, total: Resources) {
        let presence = presence(self.incarnations[&cell_id(id)], "z1", "linux");
        self.cell_event(id, cell::Event::Appeared(Presence { total, ..presence }));
        self.send_heartbeat(id, total, 0);
    }

    pub(crate) fn cell(&mut self, id: &str, zone: &str, stack: &str) {
        let incarnation = Incarnation(self.ids.next(self.now));
        self.incarnations.insert(cell_id(id), incarnation);
        let presence = presence(incarnation, zone, stack);
        self.cell_event(id, cell::Event::Appeared(presence));
    }

    pub(crate) fn cell_event(&mut self, id: &str, event: cell::Event) {
        self.record(Aggregate::Cell(cell_id(id)), vec![Event::Cell(event)]);
    }

    /// Sends a heartbeat of the incarnation that the log names. The heartbeat contains these free resources.
    /// Its last `Perform` is the one with this number in term 1.
    pub(crate) fn send_heartbeat(&mut self, id: &str, free: Resources, performed: u64) -> Vec<Effect> {
        self.sequence += 1;
        let heartbeat = self.heartbeat(id, free, performed);
        self.step(Input::Heartbeat(heartbeat))
    }

    /// Sends a heartbeat of an empty cell after applying a change to it.
    pub(crate) fn send_changed_heartbeat(
        &mut self,
        id: &str,
        change: impl FnOnce(&mut Heartbeat),
    ) -> Vec<Effect> {
        self.sequence += 1;
        let mut heartbeat = self.heartbeat(id, mib(CELL_MIB), 0);
        change(&mut heartbeat);
        self.step(Input::Heartbeat(heartbeat))
    }

    fn heartbeat(&self, id: &str, free: Resources, performed: u64) -> Heartbeat {
        Heartbeat {
            cell_id: cell_id(id),
            presence: presence(self.incarnations[&cell_id(id)], "-", "linux"),
            free,
            starting: 0,
            evacuating: false,
            unhealthy: None,
            performed: PerformId { term: 1, number: performed },
            sequence: self.sequence,
            clock: self.now,
            schema: 0,
            format: 1,
        }
    }

    pub(crate) fn decide(&mut self, process: &str, command: &process::Command) {
        let known = self.auctioneer.world().process(&guid(process));
        let epoch = known.map_or(Epoch(self.now.next()), |process| process.epoch);
        let context = machines::process::Context {
            now: self.now.next(),
            is_fresh: true,
            is_present: &|_| true,
            is_known: &|_| true,
            for_each_cell: &|_| {},
        };
        let events = machines::process::decide(known, command, context).unwrap();
        if let process::Command::Evict(eviction) = command {
            self.reason = Some(eviction.preemptor.to_string());
        }
        self.record(Aggregate::Process { guid: guid(process), domain: domain(), epoch }, events);
    }

    pub(crate) fn desire(&mut self, process: &str, instances: u32, memory_mb: u64) {
        let lrp = fixtures::lrp_of(process, "d", instances, definition(memory_mb));
        self.decide(process, &process::Command::Desire(Box::new(lrp)));
    }

    /// Records the report of a rep on work that was sent to it.
    pub(crate) fn report(&mut self, cell: &str, work: &Work, step: Lrp) {
        let WorkKey::Lrp { key, epoch } = &work.key else { panic!("{:?}", work.key) };
        let report = Report {
            domain: domain(),
            place: key.place.clone(),
            epoch: *epoch,
            by: Instance { instance_guid: InstanceGuid(self.ids.next(self.now)), cell_id: cell_id(cell) },
            observed_at: Timestamp(u64::MAX),
            steps: vec![ReportStep::Actual(step)],
        };
        self.decide(key.process_guid.as_str(), &process::Command::Report(report));
    }

    pub(crate) fn claim(&mut self, cell: &str, work: &Work) {
        self.report(cell, work, Lrp::Claim { placement: None });
    }

    pub(crate) fn desire_task(&mut self, id: &str, memory_mb: u64, placement: Placement) {
        let task_guid = fixtures::task_guid(id);
        let epoch = Epoch(self.now.next());
        let definition = TaskDefinition {
            constraint: constraint(),
            memory_mb,
            disk_mb: 1,
            placement,
            ..fixtures::task_definition()
        };
        let desired = fixtures::task_of(id, "d", definition);
        let known = self.auctioneer.world().task(&task_guid);
        let context = task::Context { now: self.now.next(), is_present: &|_| true };
        let events =
            task::decide(known, &schemas::task::Command::Desire(Box::new(desired)), context).unwrap();
        self.record(Aggregate::Task { guid: task_guid, domain: domain(), epoch }, events);
    }

    /// Records the outcomes that the auctioneer reported, like a BBS.
    pub(crate) fn record_outcomes(&mut self, id: u64, outcomes: Outcomes) {
        for outcome in outcomes.outcomes {
            match outcome {
                // Outcomes of settled evaluations are refused, like in the BBS.
                PlacementOutcome::Lrp { process_guid, outcome, .. } => {
                    let known = self.auctioneer.world().process(&process_guid);
                    let is_open = |one: &Evaluation| one.id == outcome.evaluation && one.status.is_open();
                    if known.is_some_and(|known| known.evaluations.iter().any(|one| is_open(&one))) {
                        self.decide(process_guid.as_str(), &process::Command::Fail(outcome));
                    }
                }
                PlacementOutcome::Task { task_guid, epoch, unplaced } => {
                    let known = self.auctioneer.world().task(&task_guid);
                    let context = task::Context { now: self.now.next(), is_present: &|_| true };
                    if let Ok(events) = task::decide(known, &schemas::task::Command::Fail(unplaced), context)
                    {
                        self.record(Aggregate::Task { guid: task_guid, domain: domain(), epoch }, events);
                    }
                }
            }
        }
        self.step(Input::OutcomesAnswered { id, answer: Some(Ok(done())) });
    }

    pub(crate) fn answer(
        &mut self,
        cell: &CellId,
        id: PerformId,
        answer: Option<Result<PerformReply, Refusal>>,
    ) -> Vec<Effect> {
        self.step(Input::Performed { cell: cell.clone(), id, answer })
    }

    pub(crate) fn refuse(&mut self, cell: &CellId, perform: &Perform, reason: &str) {
        let refused = (0..).zip(&perform.work).map(|(place, _)| (place, reason.to_owned())).collect();
        self.answer(cell, perform.id, Some(Ok(PerformReply { refused })));
    }

    pub(crate) fn counts(&self) -> Counts {
        self.auctioneer.counts()
    }
}

pub(crate) fn presence(incarnation: Incarnation, zone: &str, stack: &str) -> Presence {
    Presence {
        folder: schemas::names::FolderId(incarnation.0),
        incarnation,
        zone: Zone::new(zone).unwrap(),
        stack: Stack::new(stack).unwrap(),
        placement_tags: BTreeSet::new(),
        attributes: schemas::attributes::Attributes::default(),
        total: mib(CELL_MIB),
    }
}

pub(crate) fn performs(effects: Vec<Effect>) -> Vec<(CellId, Perform)> {
    let perform = |effect| match effect {
        Effect::Perform { cell, perform } => Some((cell, perform)),
        Effect::Outcomes { .. } | Effect::Lead(_) | Effect::Beat(_) => None,
    };
    effects.into_iter().filter_map(perform).collect()
}

pub(crate) fn outcomes(effects: Vec<Effect>) -> Vec<(u64, Outcomes)> {
    let outcome = |effect| match effect {
        Effect::Outcomes { id, outcomes } => Some((id, outcomes)),
        Effect::Perform { .. } | Effect::Lead(_) | Effect::Beat(_) => None,
    };
    effects.into_iter().filter_map(outcome).collect()
}

pub(crate) fn campaign_terms(effects: &[Effect]) -> Vec<u64> {
    let lead = |effect: &Effect| match effect {
        Effect::Lead(lead) => Some(lead.term),
        Effect::Perform { .. } | Effect::Outcomes { .. } | Effect::Beat(_) => None,
    };
    effects.iter().filter_map(lead).collect()
}

/// Returns the only element.
pub(crate) fn only<T: std::fmt::Debug>(mut all: Vec<T>) -> T {
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// Returns the reported placement errors with their number of occurrences.
pub(crate) fn errors(effects: Vec<Effect>) -> BTreeMap<String, usize> {
    let mut errors = BTreeMap::new();
    for outcome in outcomes(effects).into_iter().flat_map(|(_, outcomes)| outcomes.outcomes) {
        match outcome {
            PlacementOutcome::Lrp { outcome, .. } => {
                outcome.unplaced.into_iter().for_each(|one| *errors.entry(one.error).or_default() += 1);
            }
            PlacementOutcome::Task { unplaced, .. } => *errors.entry(unplaced.error).or_default() += 1,
        }
    }
    errors
}
