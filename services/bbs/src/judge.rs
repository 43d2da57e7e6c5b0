//! Judging a batch: each command against the World and what the batch decided before it, on a scratch copy. Deciding
//! never changes the World.

use std::collections::BTreeMap;

use projections::World;
use schemas::container::Epoch;
use schemas::domain::Freshness;
use schemas::entry::{Actor, Aggregate, Event, Stamp};
use schemas::names::{CellId, DecisionId, Domain, EntryId, Ids, ProcessGuid, TaskGuid};
use schemas::process::{self, Process};
use schemas::request::Identity;
use schemas::task::{self, Task};
use schemas::{Cause, Code, Decision, Entry, Origin, Refusal, Timestamp, cell, cluster, domain, limits};

use crate::shard::{Command, Flight, Item, Shard, Verdict};

/// A batch while it is judged.
pub(crate) struct Batch<'a> {
    world: &'a World,
    ids: &'a mut Ids,
    now: Timestamp,
    at: Timestamp,
    processes: BTreeMap<ProcessGuid, Process>,
    tasks: BTreeMap<TaskGuid, Option<Task>>,
    cells: BTreeMap<CellId, Option<cell::Cell>>,
    domains: BTreeMap<Domain, Freshness>,
    cluster: Option<cluster::Cluster>,
    /// The last version on a subject that holds one aggregate: a domain, a cell, the cluster.
    only: u64,
    decisions: Vec<Decision>,
    json: Vec<u8>,
}

/// What judging a batch yields.
pub(crate) enum Judged {
    /// Nothing to record: every command is answered from what is true.
    Settled(Vec<(Item, Verdict)>),
    /// An entry to append.
    Append(Flight),
}

/// Judges what waits in a shard, until the entry is full; what doesn't fit stays in the queue.
pub(crate) fn judge(world: &World, ids: &mut Ids, now: Timestamp, shard: &mut Shard) -> Judged {
    let at = now.max(shard.last_at.next());
    let mut batch = Batch {
        world,
        ids,
        now,
        at,
        processes: BTreeMap::new(),
        tasks: BTreeMap::new(),
        cells: BTreeMap::new(),
        domains: BTreeMap::new(),
        cluster: world.cluster().cloned(),
        only: shard.version,
        decisions: vec![],
        json: vec![],
    };
    let (mut items, mut verdicts) = (vec![], vec![]);
    while !batch.is_full() && items.len() < limits::BATCH {
        let Some(item) = shard.queue.pop_front() else { break };
        verdicts.push(batch.take(&item));
        if item.looks_at_process() && batch.is_full() {
            // More of it may be due than the entry takes.
            shard.queue.push_front(item.clone());
        }
        items.push(item);
    }
    if batch.decisions.is_empty() {
        return Judged::Settled(items.into_iter().zip(verdicts).collect());
    }
    let (entry, bytes) = batch.finish();
    let flight = Flight { entry: entry.into(), bytes: bytes.into(), expected: shard.last, items, verdicts };
    Judged::Append(flight)
}

impl Batch<'_> {
    /// Judges one command; if it changes something, or has to be remembered, it becomes a decision.
    fn take(&mut self, item: &Item) -> Verdict {
        self.check_domain(item)?;
        // What was carried out in time is answered so, however late it is asked again.
        if let Some(version) = self.remembered(item)? {
            return Ok(version);
        }
        if let Some(deadline) = item.envelope.deadline.filter(|deadline| *deadline < self.now) {
            let late = self.now.since(deadline).as_secs_f64();
            let why = format!("the command's deadline passed {late:.1} s ago by the clock of this BBS");
            return Err(Refusal::new(Code::DeadlinePassed, why));
        }
        self.check_version(item)?;
        self.check_epoch(item)?;
        loop {
            let events = self.decide(&item.command)?;
            if events.is_empty() && item.envelope.request_id.is_none() {
                return Ok(self.version(&item.command));
            }
            let version = self.record(item, events)?;
            // What is due at a process may have several causes, each with a decision of its own.
            if !item.looks_at_process() || self.is_full() {
                return Ok(version);
            }
        }
    }

    /// Makes a decision of events.
    fn record(&mut self, item: &Item, events: Vec<Event>) -> Verdict {
        let decision = self.decision(item, events);
        let json = serde_json::to_vec(&decision).unwrap_or_default();
        if json.is_empty() || json.len() > limits::DECISION_BYTES {
            let why =
                format!("the decision takes {} bytes, more than {}", json.len(), limits::DECISION_BYTES);
            return Err(Refusal::new(Code::InvalidRequest, why));
        }
        if !self.json.is_empty() {
            self.json.push(b',');
        }
        self.json.extend(json);
        self.evolve(&decision);
        self.at = self.at.next();
        let version = decision.version;
        self.decisions.push(decision);
        Ok(version)
    }

    fn is_full(&self) -> bool {
        self.json.len() >= limits::ENTRY_BYTES / 2
    }

    /// A client changes only what is in the domain that its subject proves.
    fn check_domain(&self, item: &Item) -> Result<(), Refusal> {
        let Actor::Client { domain, .. } = &item.actor else { return Ok(()) };
        let stored = match &item.command {
            Command::Process(guid, _) => self
                .process(guid)
                .filter(|process| !process.is_gone())
                .map(|process| (format!("process {guid}"), &process.domain)),
            Command::Task(guid, _) => self
                .task(guid)
                .filter(|task| task.state.is_some())
                .map(|task| (format!("task {guid}"), &task.domain)),
            Command::Refresh(..)
            | Command::Seen(..)
            | Command::Lost(..)
            | Command::Left(..)
            | Command::Cell(..)
            | Command::Lead { .. } => None,
        };
        let Some((what, stored)) = stored.filter(|(_, stored)| *stored != domain) else { return Ok(()) };
        let why = format!("{what} is in domain {stored}, the subject names domain {domain}");
        Err(Refusal::new(Code::Forbidden, why))
    }

    /// The version that the same request made, if it was carried out already.
    fn remembered(&self, item: &Item) -> Result<Option<u64>, Refusal> {
        let Some(id) = item.envelope.request_id.clone() else { return Ok(None) };
        let requests = match &item.command {
            Command::Process(guid, _) => self.process(guid).map(|process| &process.requests),
            Command::Task(guid, _) => self.task(guid).map(|task| &task.requests),
            Command::Refresh(domain, _) => self.domain(domain).map(|freshness| &freshness.requests),
            Command::Cell(id, _) => self.cell(id).map(|cell| &cell.requests),
            Command::Seen(..) | Command::Lost(..) | Command::Left(..) | Command::Lead { .. } => None,
        };
        let request = Identity { actor: item.actor.clone(), id, digest: item.digest.clone() };
        requests.map_or(Ok(None), |requests| requests.answer(&request))
    }

    fn domain(&self, domain: &Domain) -> Option<&Freshness> {
        self.domains.get(domain).or_else(|| self.world.domain(domain))
    }

    fn check_version(&self, item: &Item) -> Result<(), Refusal> {
        let Some(expected) = item.envelope.expect_version else { return Ok(()) };
        let version = self.version(&item.command);
        if version == expected {
            return Ok(());
        }
        let why = format!("version {expected} was expected and it is {version}");
        Err(Refusal::new(Code::ResourceConflict, why))
    }

    fn check_epoch(&self, item: &Item) -> Result<(), Refusal> {
        let known = match &item.command {
            Command::Process(guid, _) => self.process(guid).map(|process| process.epoch),
            Command::Task(guid, _) => self.task(guid).map(|task| task.epoch),
            Command::Refresh(..)
            | Command::Seen(..)
            | Command::Lost(..)
            | Command::Left(..)
            | Command::Cell(..)
            | Command::Lead { .. } => None,
        };
        if item.epoch.is_none() || item.epoch == known {
            return Ok(());
        }
        Err(Refusal::new(Code::StaleEpoch, "the work belongs to another life of its guid"))
    }

    fn decide(&mut self, command: &Command) -> Result<Vec<Event>, Refusal> {
        let world = self.world;
        let present = |cell: &CellId| world.is_present(cell);
        match command {
            Command::Process(guid, command) => {
                let process = self.process(guid);
                let fresh = process.is_some_and(|process| world.is_fresh(&process.domain, self.at));
                let context = process::Context { now: self.at, fresh, present: &present };
                process::decide(process, command, context)
            }
            Command::Task(guid, command) => {
                let context = task::Context { now: self.at, present: &present };
                task::decide(self.task(guid), command, context)
            }
            Command::Refresh(_, ttl) => Ok(vec![Event::Domain(domain::decide(*ttl, self.at))]),
            Command::Seen(id, seen) => Ok(events(cell::decide_seen(self.cell(id), seen))),
            Command::Lost(id, reason) => Ok(events(cell::decide_lost(self.cell(id), reason))),
            Command::Left(id, incarnation) => Ok(events(cell::decide_left(self.cell(id), *incarnation))),
            Command::Cell(id, command) => cell::decide(id, self.cell(id), *command).map(events),
            Command::Lead { role, id, term, found } => self.lead(*role, id, *term, *found),
        }
    }

    fn lead(
        &self,
        role: cluster::Role,
        id: &schemas::names::ServiceId,
        term: u64,
        found: Option<(schemas::names::ClusterId, u16)>,
    ) -> Result<Vec<Event>, Refusal> {
        match (&self.cluster, found) {
            (Some(cluster), _) => {
                cluster::decide_election(cluster, role, id, term).map(|event| vec![Event::Cluster(event)])
            }
            (None, Some((cluster_id, shards))) => {
                let founded = cluster::Event::Founded { id: cluster_id, shards, format: cluster::FORMAT };
                let elected = cluster::Event::Elected { role, id: id.clone(), term };
                Ok(vec![Event::Cluster(founded), Event::Cluster(elected)])
            }
            (None, None) => Err(Refusal::new(Code::Unavailable, "the cluster is not founded yet")),
        }
    }

    fn decision(&mut self, item: &Item, events: Vec<Event>) -> Decision {
        let id = DecisionId(self.ids.next(self.at));
        let cause = self.cause(&item.command, &events);
        Decision {
            id,
            aggregate: self.aggregate(&item.command, &events),
            version: self.version(&item.command) + 1,
            at: self.at,
            actor: item.actor.clone(),
            request_id: item.envelope.request_id.clone(),
            request_digest: item.digest.clone(),
            cause: cause.map(|cause| cause.decision),
            correlation: cause.map_or(id, |cause| cause.correlation),
            reason: item.envelope.reason.clone(),
            traceparent: item.envelope.traceparent.clone(),
            events,
        }
    }

    /// What brought a decision about; none: it begins a chain.
    fn cause(&self, command: &Command, events: &[Event]) -> Option<Cause> {
        let origin = match command {
            Command::Process(guid, command) => process::origin(self.process(guid), command, events),
            Command::Task(guid, command) => task::origin(self.task(guid), command, events),
            Command::Seen(id, _) | Command::Left(id, _) => cell::origin(self.cell(id), events),
            Command::Refresh(..) | Command::Lost(..) | Command::Cell(..) | Command::Lead { .. } => {
                Origin::Beginning
            }
        };
        match origin {
            Origin::Beginning => None,
            Origin::Decision(cause) => Some(cause),
            Origin::Cell(id, earlier) => {
                let cell = self.world.cell(&id).filter(|cell| !cell.present || cell.evacuating);
                cell.map(|cell| cell.cause).or(earlier)
            }
        }
    }

    /// The aggregate as the decision names it: a desire opens the epoch that it names.
    fn aggregate(&self, command: &Command, events: &[Event]) -> Aggregate {
        match command {
            Command::Process(guid, command) => {
                let known = self.process(guid).map(|process| (process.domain.clone(), process.epoch));
                let (domain, epoch) = match &**command {
                    process::Command::Desire(lrp) if !events.is_empty() => {
                        (lrp.domain.clone(), Epoch(self.at))
                    }
                    process::Command::Report(report) => {
                        known.unwrap_or_else(|| (report.domain.clone(), report.epoch))
                    }
                    process::Command::Desire(lrp) => {
                        known.unwrap_or_else(|| (lrp.domain.clone(), Epoch(self.at)))
                    }
                    process::Command::Update(_)
                    | process::Command::Remove
                    | process::Command::Retire { .. }
                    | process::Command::Fail(..)
                    | process::Command::Converge => {
                        known.unwrap_or_else(|| (unknown_domain(), Epoch(self.at)))
                    }
                };
                Aggregate::Process { guid: guid.clone(), domain, epoch }
            }
            Command::Task(guid, command) => {
                let known = self.task(guid).map(|task| (task.domain.clone(), task.epoch));
                let (domain, epoch) = match &**command {
                    task::Command::Desire(desired) if !events.is_empty() => {
                        (desired.domain.clone(), Epoch(self.at))
                    }
                    task::Command::Desire(_)
                    | task::Command::Cancel
                    | task::Command::Resolve
                    | task::Command::Report(_)
                    | task::Command::Fail(..)
                    | task::Command::BeginResolving
                    | task::Command::Called(..)
                    | task::Command::Converge => known.unwrap_or_else(|| (unknown_domain(), Epoch(self.at))),
                };
                Aggregate::Task { guid: guid.clone(), domain, epoch }
            }
            Command::Refresh(domain, _) => Aggregate::Domain(domain.clone()),
            Command::Seen(cell, _)
            | Command::Lost(cell, _)
            | Command::Left(cell, _)
            | Command::Cell(cell, _) => Aggregate::Cell(cell.clone()),
            Command::Lead { .. } => Aggregate::Cluster,
        }
    }

    fn process(&self, guid: &ProcessGuid) -> Option<&Process> {
        self.processes.get(guid).or_else(|| self.world.process(guid))
    }

    fn task(&self, guid: &TaskGuid) -> Option<&Task> {
        match self.tasks.get(guid) {
            Some(decided) => decided.as_ref(),
            None => self.world.task(guid),
        }
    }

    fn cell(&self, id: &CellId) -> Option<&cell::Cell> {
        match self.cells.get(id) {
            Some(decided) => decided.as_ref(),
            None => self.world.cell(id),
        }
    }

    fn version(&self, command: &Command) -> u64 {
        match command {
            Command::Process(guid, _) => self.process(guid).map_or(0, |process| process.version),
            Command::Task(guid, _) => self.task(guid).map_or(0, |task| task.version),
            Command::Refresh(..)
            | Command::Seen(..)
            | Command::Lost(..)
            | Command::Left(..)
            | Command::Cell(..)
            | Command::Lead { .. } => self.only,
        }
    }

    /// Lays a decision over the World for the rest of the batch.
    fn evolve(&mut self, decision: &Decision) {
        let stamp: Stamp = decision.stamp();
        match &decision.aggregate {
            Aggregate::Process { guid, domain, epoch } => {
                let world = self.world;
                let process = self.processes.entry(guid.clone()).or_insert_with(|| {
                    let known = world.process(guid).cloned();
                    known.unwrap_or_else(|| Process::new(guid.clone(), domain.clone(), *epoch))
                });
                process::evolve(process, &decision.events, &stamp);
            }
            Aggregate::Task { guid, .. } => {
                let before = self.task(guid).cloned();
                self.tasks.insert(guid.clone(), task::evolve(before, &decision.events, &stamp));
            }
            Aggregate::Cell(id) => {
                let events = decision.events.iter().filter_map(of_cell);
                let cell = cell::fold(self.cell(id).cloned(), events, &stamp, decision.version);
                self.cells.insert(id.clone(), cell);
                self.only = decision.version;
            }
            Aggregate::Cluster => {
                for event in &decision.events {
                    if let Event::Cluster(event) = event {
                        self.cluster = cluster::evolve(self.cluster.take(), event, decision.at);
                    }
                }
                self.only = decision.version;
            }
            Aggregate::Domain(domain) => {
                for event in &decision.events {
                    if let Event::Domain(event) = event {
                        let known = self.domain(domain).cloned();
                        let freshness = domain::evolve(known, event, &stamp, decision.version);
                        self.domains.insert(domain.clone(), freshness);
                    }
                }
                self.only = decision.version;
            }
        }
    }

    fn finish(self) -> (Entry, Vec<u8>) {
        let id = EntryId(self.ids.next(self.now));
        let bytes = Entry::encode_decisions(id, &self.json);
        (Entry { id, format: cluster::FORMAT, decisions: self.decisions }, bytes)
    }
}

fn of_cell(event: &Event) -> Option<&cell::Event> {
    if let Event::Cell(event) = event { Some(event) } else { None }
}

fn events(of_cell: Vec<cell::Event>) -> Vec<Event> {
    of_cell.into_iter().map(Event::Cell).collect()
}

/// Only for a decision that the machines never make: one about a process that nobody ever named.
fn unknown_domain() -> Domain {
    Domain::new("unknown").expect("a name of letters")
}
