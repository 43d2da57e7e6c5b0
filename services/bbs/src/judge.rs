//! Judging of a batch of commands: deciding for each command whether it is carried out. Each command is
//! decided against the World (the state folded from the log) and the earlier decisions of the batch. A
//! scratch copy holds the results of those decisions. Judging never changes the World.

mod launches;
mod preemption;
mod quotas;
mod unchanged;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use projections::World;
use projections::reader::End;
use schemas::container::Epoch;
use schemas::domain::{DomainQuotas, Freshness};
use schemas::entry::{Aggregate, Event};
use schemas::names::{
    CellId, DecisionId, Domain, EntryId, IdGenerator, ParameterisedGuid, PeriodicGuid, ProcessGuid,
    ServiceId, TaskGuid,
};
use schemas::parameterised::{self, Parameterised};
use schemas::periodic::{self, Periodic};
use schemas::process::{self, Process};
use schemas::quota::LimitDomain;
use schemas::stamp::{Actor, Identity, Stamp};
use schemas::subject::Subject;
use schemas::task::{self, Task};
use schemas::{Cause, Code, Decision, Entry, Origin, Refusal, Timestamp, cell, cluster, domain, limits};

pub(crate) use self::quotas::Growth;
use crate::command::{AggregateCommand, QueuedCommand, Verdict};
use crate::timelines::Times;

/// A batch that is being judged.
pub(crate) struct Batch<'a> {
    world: &'a World,
    ids: &'a mut IdGenerator,
    times: Times<'a>,
    /// Time of decisions on the subject of the batch.
    now: Timestamp,
    /// Steady time, which never goes back. The time that a command has waited in the BBS is measured in
    /// steady time, and is compared with the timeout of the command.
    steady: Timestamp,
    at: Timestamp,
    processes: BTreeMap<ProcessGuid, Process>,
    tasks: BTreeMap<TaskGuid, Option<Task>>,
    periodics: BTreeMap<PeriodicGuid, Option<Periodic>>,
    parameterised: BTreeMap<ParameterisedGuid, Option<Parameterised>>,
    cells: BTreeMap<CellId, Option<cell::Cell>>,
    domains: BTreeMap<Domain, Freshness>,
    limited: BTreeMap<Domain, DomainQuotas>,
    /// Growth of domains (additional work that quotas limit) through the clients' commands of this batch.
    growth: Growth,
    /// Growth of domains through entries in flight. The journal has not acknowledged these entries yet, so
    /// the World does not include them.
    in_flight: &'a Growth,
    /// The cluster as changed by the batch; `None` if unchanged.
    cluster: Option<cluster::Cluster>,
    /// Last version on a subject with a single aggregate: a domain, a cell, the cluster.
    single_version: u64,
    decisions: Vec<Decision>,
    json: Vec<u8>,
}

/// Result of judging a batch.
pub(crate) struct Judged {
    /// Judged commands in order, each with its verdict. The BBS sends the verdicts once the entry is settled
    /// (stored or rejected).
    pub(crate) decided: Vec<(QueuedCommand, Verdict)>,
    /// Command that the next batch must judge first, because this batch is full and may not contain all
    /// decisions of the command. `None` if there is no such command.
    pub(crate) again: Option<QueuedCommand>,
    /// The entry to append, and its encoding; `None` if no command changes anything.
    pub(crate) entry: Option<(Arc<Entry>, Bytes)>,
    /// Growth of domains through this entry.
    pub(crate) growth: Growth,
}

/// Judges the commands that `next` returns, until the entry is full or no commands are left.
///
/// `end` is the end of `subject`. `flying` is the growth of domains through entries in flight. `steady` is
/// the steady time, against which the timeout of each command is checked.
pub(crate) fn judge<'a>(
    world: &'a World,
    ids: &'a mut IdGenerator,
    (times, steady): (Times<'a>, Timestamp),
    (subject, end, flying): (&Subject, End, &'a Growth),
    mut next: impl FnMut() -> Option<QueuedCommand>,
) -> Judged {
    let now = times.time_on(|| subject.clone());
    let at = now.max(end.at.next());
    let mut batch = Batch {
        world,
        ids,
        times,
        now,
        steady,
        at,
        processes: BTreeMap::new(),
        tasks: BTreeMap::new(),
        periodics: BTreeMap::new(),
        parameterised: BTreeMap::new(),
        cells: BTreeMap::new(),
        domains: BTreeMap::new(),
        limited: BTreeMap::new(),
        growth: Growth::default(),
        in_flight: flying,
        cluster: None,
        single_version: end.version,
        decisions: vec![],
        json: vec![],
    };
    let (mut decided, mut again) = (vec![], None);
    while !batch.is_full() && decided.len() < limits::BATCH {
        let Some(queued) = next() else { break };
        let verdict = batch.judge_command(&queued);
        // The batch is full, so it ends here. If the command can cause several decisions, the batch may lack
        // some of these decisions.
        again = (batch.is_full() && queued.converges_several()).then(|| queued.clone());
        decided.push((queued, verdict));
    }
    let growth = std::mem::take(&mut batch.growth);
    let entry = (!batch.decisions.is_empty()).then(|| batch.finish());
    Judged { decided, again, entry, growth }
}

/// Checks that an auctioneer leads in a term, according to the part of the log that this BBS has read.
///
/// # Errors
/// `StaleTerm` if the auctioneer does not lead. `Unavailable` if this BBS has not read the log up to that
/// term.
pub(crate) fn check_auctioneer(world: &World, id: &ServiceId, term: u64) -> Result<(), Refusal> {
    let leader = world.cluster().and_then(|cluster| cluster.auctioneer.as_ref());
    if leader.is_none_or(|leader| leader.term < term) {
        let why = format!("this BBS has not read the election of auctioneer term {term} yet: try again");
        return Err(Refusal::new(Code::Unavailable, why));
    }
    if !leader.is_some_and(|leader| leader.id == *id && leader.term == term) {
        return Err(Refusal::new(Code::StaleTerm, format!("auctioneer {id} does not lead in term {term}")));
    }
    Ok(())
}

impl Batch<'_> {
    /// Judges one command. The command becomes a decision if it changes something, or if its request id must
    /// be remembered.
    fn judge_command(&mut self, queued: &QueuedCommand) -> Verdict {
        self.check_domain(queued)?;
        self.check_term(queued)?;
        // A request that was already carried out gets the first answer again, even after its timeout.
        if let Some(version) = self.remembered_version(queued)? {
            return Ok(version);
        }
        // A dispatch with a key that was used before gets the answer of the first dispatch.
        let dispatched = self.dispatched_version(&queued.command)?;
        if let Some(version) = dispatched.filter(|_| queued.envelope.request_id.is_none()) {
            return Ok(version);
        }
        self.check_timeout(queued)?;
        self.check_version(queued)?;
        self.check_unchanged(queued)?;
        self.check_epoch(queued)?;
        loop {
            let events = self.decide(&queued.command)?;
            if events.is_empty() && queued.envelope.request_id.is_none() {
                return Ok(self.version(&queued.command));
            }
            let growth = self.check_quota(queued, &events)?;
            let recorded = self.record(queued, events)?;
            self.grow(queued, growth);
            let version = dispatched.unwrap_or(recorded);
            // The command may cause several decisions. Each round makes one decision.
            if !queued.converges_several() || self.is_full() {
                return Ok(version);
            }
        }
    }

    /// Adds one decision for the events, and one decision for each task that the events launch. If one of
    /// these decisions fails, none of them is added.
    fn record(&mut self, queued: &QueuedCommand, events: Vec<Event>) -> Verdict {
        let launches = self.launched_tasks(&queued.command, &events);
        let decision = self.decision(queued, events);
        let (version, mut at) = (decision.version, decision.at);
        let cause = Cause { decision: decision.id, correlation: decision.correlation };
        let mut all = vec![decision];
        for desired in launches {
            at = at.next();
            all.push(self.launch_decision(queued, desired, cause, at)?);
        }
        let json = all.iter().map(encode_decision).collect::<Result<Vec<_>, _>>()?;
        for (decision, json) in all.into_iter().zip(json) {
            if !self.json.is_empty() {
                self.json.push(b',');
            }
            self.json.extend(json);
            self.evolve(&decision);
            self.at = self.at.next();
            self.decisions.push(decision);
        }
        Ok(version)
    }

    /// Refuses a command that has waited longer than its timeout.
    fn check_timeout(&self, queued: &QueuedCommand) -> Result<(), Refusal> {
        let Some(timeout) = queued.envelope.timeout_ms.map(Duration::from_millis) else { return Ok(()) };
        let waited = self.steady.since(queued.received);
        if waited < timeout {
            return Ok(());
        }
        let (waited, timeout) = (waited.as_secs_f64(), timeout.as_secs_f64());
        let why =
            format!("the command waited {waited:.1} s in the BBS, longer than its timeout of {timeout:.1} s");
        Err(Refusal::new(Code::DeadlinePassed, why))
    }

    fn is_full(&self) -> bool {
        self.json.len() >= limits::ENTRY_BYTES / 2
    }

    /// Refuses a client's command if the domain of its aggregate differs from the domain in the subject of
    /// the request.
    fn check_domain(&self, queued: &QueuedCommand) -> Result<(), Refusal> {
        let Actor::Client { domain, .. } = &queued.actor else { return Ok(()) };
        let stored = match &queued.command {
            AggregateCommand::Process(guid, _) => self
                .process(guid)
                .filter(|process| !process.is_gone())
                .map(|process| (format!("process {guid}"), &process.domain)),
            AggregateCommand::Task(guid, _) => self
                .task(guid)
                .filter(|task| task.state.is_some())
                .map(|task| (format!("task {guid}"), &task.domain)),
            AggregateCommand::Periodic(guid, _) => self
                .periodic(guid)
                .filter(|periodic| !periodic.is_removed())
                .map(|periodic| (format!("periodic task {guid}"), &periodic.domain)),
            AggregateCommand::Parameterised(guid, _) => self
                .parameterised(guid)
                .filter(|known| !known.is_removed())
                .map(|known| (format!("parameterised task {guid}"), &known.domain)),
            AggregateCommand::Refresh(..)
            | AggregateCommand::RecordPresence(..)
            | AggregateCommand::DeclareLost(..)
            | AggregateCommand::Attach(_)
            | AggregateCommand::RecordLeave(..)
            | AggregateCommand::Cell(..)
            | AggregateCommand::Cluster(_)
            | AggregateCommand::Limit(_)
            | AggregateCommand::AssignOrdinals
            | AggregateCommand::Lead { .. } => None,
        };
        let Some((what, stored)) = stored.filter(|(_, stored)| *stored != domain) else { return Ok(()) };
        let why = format!("{what} is in domain {stored}, but the subject names domain {domain}");
        Err(Refusal::new(Code::Forbidden, why))
    }

    /// Refuses a command of an auctioneer that no longer leads. Another auctioneer may have been elected
    /// while the command waited.
    fn check_term(&self, queued: &QueuedCommand) -> Result<(), Refusal> {
        match (&queued.actor, queued.term) {
            (Actor::Auctioneer(id), Some(term)) => check_auctioneer(self.world, id, term),
            (
                Actor::Client { .. }
                | Actor::Operator(_)
                | Actor::Cell(_)
                | Actor::Auctioneer(_)
                | Actor::Bbs(_),
                _,
            ) => Ok(()),
        }
    }

    /// Returns the version that an earlier copy of the same request produced. `None` if the request was not
    /// carried out yet.
    fn remembered_version(&self, queued: &QueuedCommand) -> Result<Option<u64>, Refusal> {
        let Some(id) = queued.envelope.request_id.clone() else { return Ok(None) };
        let requests = match &queued.command {
            AggregateCommand::Process(guid, _) => self.process(guid).map(|process| &process.requests),
            AggregateCommand::Task(guid, _) => self.task(guid).map(|task| &task.requests),
            AggregateCommand::Periodic(guid, _) => self.periodic(guid).map(|periodic| &periodic.requests),
            AggregateCommand::Parameterised(guid, _) => self.parameterised(guid).map(|known| &known.requests),
            AggregateCommand::Refresh(domain, _) => self.domain(domain).map(|freshness| &freshness.requests),
            AggregateCommand::Limit(order) => self.limited(&order.domain).map(|limited| &limited.requests),
            AggregateCommand::Cell(id, _) => self.cell(id).map(|cell| &cell.requests),
            AggregateCommand::Cluster(_) => self.cluster().map(|cluster| &cluster.requests),
            AggregateCommand::RecordPresence(..)
            | AggregateCommand::DeclareLost(..)
            | AggregateCommand::Attach(_)
            | AggregateCommand::RecordLeave(..)
            | AggregateCommand::AssignOrdinals
            | AggregateCommand::Lead { .. } => None,
        };
        let request = Identity { actor: queued.actor.clone(), id, digest: queued.digest.clone() };
        requests.map_or(Ok(None), |requests| requests.answer(&request))
    }

    fn cluster(&self) -> Option<&cluster::Cluster> {
        self.cluster.as_ref().or_else(|| self.world.cluster())
    }

    fn domain(&self, domain: &Domain) -> Option<&Freshness> {
        self.domains.get(domain).or_else(|| self.world.domain(domain))
    }

    /// Returns `true` if a domain is fresh. The timestamps of the log may be ahead of the clocks, both on the
    /// domain's subject and on the subject of the batch. The function corrects for both differences.
    fn is_fresh(&self, domain: &Domain) -> bool {
        let lead = self.now.since(self.times.clock_time());
        let now = self.at - lead + self.times.ahead(|| Subject::Domain(domain.clone()));
        self.world.is_fresh(domain, now)
    }

    fn limited(&self, domain: &Domain) -> Option<&DomainQuotas> {
        self.limited.get(domain).or_else(|| self.world.limited(domain))
    }

    fn check_version(&self, queued: &QueuedCommand) -> Result<(), Refusal> {
        let Some(expected) = queued.envelope.expect_version else { return Ok(()) };
        let version = self.version(&queued.command);
        if version == expected {
            return Ok(());
        }
        let why = format!("expected version {expected}, but the current version is {version}");
        Err(Refusal::new(Code::ResourceConflict, why))
    }

    fn check_epoch(&self, queued: &QueuedCommand) -> Result<(), Refusal> {
        let known = match &queued.command {
            AggregateCommand::Process(guid, _) => self.process(guid).map(|process| process.epoch),
            AggregateCommand::Task(guid, _) => self.task(guid).map(|task| task.epoch),
            AggregateCommand::Periodic(guid, _) => self.periodic(guid).map(|periodic| periodic.epoch),
            AggregateCommand::Parameterised(guid, _) => self.parameterised(guid).map(|known| known.epoch),
            AggregateCommand::Refresh(..)
            | AggregateCommand::RecordPresence(..)
            | AggregateCommand::DeclareLost(..)
            | AggregateCommand::Attach(_)
            | AggregateCommand::RecordLeave(..)
            | AggregateCommand::Cell(..)
            | AggregateCommand::Cluster(_)
            | AggregateCommand::Limit(_)
            | AggregateCommand::AssignOrdinals
            | AggregateCommand::Lead { .. } => None,
        };
        if queued.epoch.is_none() || queued.epoch == known {
            return Ok(());
        }
        Err(Refusal::new(Code::StaleEpoch, "the work belongs to another epoch of its guid"))
    }

    fn decide(&mut self, command: &AggregateCommand) -> Result<Vec<Event>, Refusal> {
        if let Some(eviction) = command.eviction() {
            self.check_preemption(&eviction.preemptor)?;
        }
        let world = self.world;
        let present = |cell: &CellId| world.is_present(cell);
        match command {
            AggregateCommand::Process(guid, command) => {
                let process = self.process(guid);
                let fresh = process.is_some_and(|process| self.is_fresh(&process.domain));
                let known = |cell: &CellId| world.cell(cell).is_some();
                let numbered = |visit: process::CellVisitor<'_>| world.visit_numbered(visit);
                let context = process::Context {
                    now: self.at,
                    is_fresh: fresh,
                    is_present: &present,
                    is_known: &known,
                    for_each_cell: &numbered,
                };
                process::decide(process, command, context)
            }
            AggregateCommand::Task(guid, command) => {
                let context = task::Context { now: self.at, is_present: &present };
                task::decide(self.task(guid), command, context)
            }
            AggregateCommand::Periodic(guid, command) => self.decide_periodic(guid, command),
            AggregateCommand::Parameterised(guid, command) => self.decide_parameterised(guid, command),
            AggregateCommand::Refresh(_, ttl) => Ok(vec![Event::Domain(domain::decide(*ttl, self.at))]),
            AggregateCommand::RecordPresence(id, seen) => {
                Ok(events(cell::decide_heartbeat(self.cell(id), seen)))
            }
            AggregateCommand::DeclareLost(id, reason) => Ok(events(cell::decide_lost(self.cell(id), reason))),
            AggregateCommand::Attach(_) => Ok(vec![]),
            AggregateCommand::RecordLeave(id, incarnation) => {
                Ok(events(cell::decide_left(self.cell(id), *incarnation)))
            }
            AggregateCommand::Cell(id, command) => cell::decide(id, self.cell(id), *command).map(events),
            AggregateCommand::Cluster(command) => {
                let event = cluster::decide(self.cluster(), *command)?;
                Ok(event.into_iter().map(Event::Cluster).collect())
            }
            AggregateCommand::Limit(order) => {
                let known = self.limited(&order.domain).map(|limited| limited.quotas).unwrap_or_default();
                Ok(domain::decide_limit(known, order)?.into_iter().map(Event::Domain).collect())
            }
            AggregateCommand::AssignOrdinals => Ok(self.assign_ordinals()),
            AggregateCommand::Lead { role, id, term, found } => self.elect(*role, id, *term, *found),
        }
    }

    fn assign_ordinals(&self) -> Vec<Event> {
        let cells = self.world.cells().map(|(id, _)| id).collect();
        let events = self.cluster().map(|cluster| cluster::decide_ordinals(cluster, &cells));
        events.into_iter().flatten().map(Event::Cluster).collect()
    }

    fn elect(
        &self,
        role: cluster::Role,
        id: &ServiceId,
        term: u64,
        found: Option<(schemas::names::ClusterId, u16)>,
    ) -> Result<Vec<Event>, Refusal> {
        match (self.cluster(), found) {
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

    fn decision(&mut self, queued: &QueuedCommand, events: Vec<Event>) -> Decision {
        let id = DecisionId(self.ids.next(self.at));
        let cause = self.cause(&queued.command, &events);
        Decision {
            id,
            aggregate: self.aggregate(&queued.command, &events),
            version: self.version(&queued.command) + 1,
            at: self.at,
            actor: queued.actor.clone(),
            request_id: queued.envelope.request_id.clone(),
            request_digest: queued.digest.clone(),
            cause: cause.map(|cause| cause.decision),
            correlation: cause.map_or(id, |cause| cause.correlation),
            reason: queued.envelope.reason.clone(),
            traceparent: queued.envelope.traceparent.clone(),
            events,
        }
    }

    /// Returns the cause of a decision. `None` if the decision is the first of a chain of causes.
    fn cause(&self, command: &AggregateCommand, events: &[Event]) -> Option<Cause> {
        if let Some(eviction) = command.eviction() {
            return self.check_preemption(&eviction.preemptor).ok();
        }
        let origin = match command {
            AggregateCommand::Process(guid, command) => process::origin(self.process(guid), command, events),
            AggregateCommand::Task(guid, command) => task::origin(self.task(guid), command, events),
            AggregateCommand::Periodic(guid, command) => periodic::origin(self.periodic(guid), command),
            AggregateCommand::Parameterised(guid, command) => {
                parameterised::origin(self.parameterised(guid), command)
            }
            AggregateCommand::RecordPresence(id, _) | AggregateCommand::RecordLeave(id, _) => {
                cell::origin(self.cell(id), events)
            }
            AggregateCommand::Refresh(..)
            | AggregateCommand::DeclareLost(..)
            | AggregateCommand::Attach(_)
            | AggregateCommand::Cell(..)
            | AggregateCommand::Cluster(_)
            | AggregateCommand::Limit(_)
            | AggregateCommand::AssignOrdinals
            | AggregateCommand::Lead { .. } => Origin::Root,
        };
        match origin {
            Origin::Root => None,
            Origin::Decision(cause) => Some(cause),
            Origin::CellChange(id) => self.world.cell(&id).map(|cell| cell.cause),
            Origin::Cell(id, earlier) => {
                let cell = self.world.cell(&id).filter(|cell| !cell.present || cell.evacuating);
                cell.map(|cell| cell.cause).or(earlier)
            }
        }
    }

    /// Returns the aggregate of the decision. If a command that desires or launches something produces
    /// events, the aggregate has a new epoch.
    fn aggregate(&self, command: &AggregateCommand, events: &[Event]) -> Aggregate {
        match command {
            AggregateCommand::Process(guid, command) => {
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
                    | process::Command::Deploy { .. }
                    | process::Command::Activate { .. }
                    | process::Command::Restart(_)
                    | process::Command::Steer(_)
                    | process::Command::Remove
                    | process::Command::Retire { .. }
                    | process::Command::Enter { .. }
                    | process::Command::Evict(_)
                    | process::Command::Fail(_)
                    | process::Command::Unanswered { .. }
                    | process::Command::Retry(_)
                    | process::Command::Converge => {
                        known.unwrap_or_else(|| (unknown_domain(), Epoch(self.at)))
                    }
                };
                Aggregate::Process { guid: guid.clone(), domain, epoch }
            }
            AggregateCommand::Task(guid, command) => {
                let known = self.task(guid).map(|task| (task.domain.clone(), task.epoch));
                let (domain, epoch) = match &**command {
                    task::Command::Desire(desired) | task::Command::Launch(desired) if !events.is_empty() => {
                        (desired.domain.clone(), Epoch(self.at))
                    }
                    task::Command::Desire(_)
                    | task::Command::Launch(_)
                    | task::Command::Cancel
                    | task::Command::Resolve
                    | task::Command::Evict(_)
                    | task::Command::Report(_)
                    | task::Command::Fail(_)
                    | task::Command::Unanswered { .. }
                    | task::Command::Retry(_)
                    | task::Command::BeginResolving
                    | task::Command::RecordCallback(..)
                    | task::Command::Converge => known.unwrap_or_else(|| (unknown_domain(), Epoch(self.at))),
                };
                Aggregate::Task { guid: guid.clone(), domain, epoch }
            }
            AggregateCommand::Periodic(guid, command) => self.periodic_aggregate(guid, command, events),
            AggregateCommand::Parameterised(guid, command) => {
                self.parameterised_aggregate(guid, command, events)
            }
            AggregateCommand::Refresh(domain, _) | AggregateCommand::Limit(LimitDomain { domain, .. }) => {
                Aggregate::Domain(domain.clone())
            }
            AggregateCommand::RecordPresence(cell, _)
            | AggregateCommand::DeclareLost(cell, _)
            | AggregateCommand::Attach(cell)
            | AggregateCommand::RecordLeave(cell, _)
            | AggregateCommand::Cell(cell, _) => Aggregate::Cell(cell.clone()),
            AggregateCommand::Cluster(_)
            | AggregateCommand::AssignOrdinals
            | AggregateCommand::Lead { .. } => Aggregate::Cluster,
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

    fn version(&self, command: &AggregateCommand) -> u64 {
        match command {
            AggregateCommand::Process(guid, _) => self.process(guid).map_or(0, |process| process.version),
            AggregateCommand::Task(guid, _) => self.task(guid).map_or(0, |task| task.version),
            AggregateCommand::Periodic(guid, _) => self.periodic(guid).map_or(0, |known| known.version),
            AggregateCommand::Parameterised(guid, _) => {
                self.parameterised(guid).map_or(0, |known| known.version)
            }
            AggregateCommand::Refresh(..)
            | AggregateCommand::RecordPresence(..)
            | AggregateCommand::DeclareLost(..)
            | AggregateCommand::Attach(_)
            | AggregateCommand::RecordLeave(..)
            | AggregateCommand::Cell(..)
            | AggregateCommand::Cluster(_)
            | AggregateCommand::Limit(_)
            | AggregateCommand::AssignOrdinals
            | AggregateCommand::Lead { .. } => self.single_version,
        }
    }

    /// Applies a decision to the scratch copy for the rest of the batch.
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
            Aggregate::Periodic { guid, .. } => {
                let before = self.periodic(guid).cloned();
                let events = decision.events.iter().filter_map(Event::as_periodic);
                self.periodics.insert(guid.clone(), periodic::evolve(before, events, &stamp));
            }
            Aggregate::Parameterised { guid, .. } => {
                let before = self.parameterised(guid).cloned();
                let events = decision.events.iter().filter_map(Event::as_parameterised);
                self.parameterised.insert(guid.clone(), parameterised::evolve(before, events, &stamp));
            }
            Aggregate::Cell(id) => {
                let events = decision.events.iter().filter_map(Event::as_cell);
                let cell = cell::fold(self.cell(id).cloned(), events, &stamp, decision.version);
                self.cells.insert(id.clone(), cell);
                self.single_version = decision.version;
            }
            Aggregate::Cluster => {
                let events = decision.events.iter().filter_map(Event::as_cluster);
                self.cluster = cluster::fold(self.cluster().cloned(), events, &stamp, decision.version);
                self.single_version = decision.version;
            }
            Aggregate::Domain(domain) => {
                for event in decision.events.iter().filter_map(Event::as_domain) {
                    match *event {
                        domain::Event::Refreshed { expires_at } => {
                            let known = self.domain(domain).cloned();
                            let freshness = domain::fold_refresh(known, expires_at, &stamp, decision.version);
                            self.domains.insert(domain.clone(), freshness);
                        }
                        domain::Event::Limited { quotas } => {
                            let known = self.limited(domain).cloned();
                            let limited = domain::fold_quotas(known, quotas, &stamp, decision.version);
                            self.limited.insert(domain.clone(), limited);
                        }
                    }
                }
                self.single_version = decision.version;
            }
        }
    }

    fn finish(self) -> (Arc<Entry>, Bytes) {
        let id = EntryId(self.ids.next(self.now));
        let bytes = Entry::encode_decisions(id, &self.json);
        (Arc::new(Entry { id, format: cluster::FORMAT, decisions: self.decisions }), bytes.into())
    }
}

/// Encodes a decision for the entry.
fn encode_decision(decision: &Decision) -> Result<Vec<u8>, Refusal> {
    let json = serde_json::to_vec(decision).unwrap_or_default();
    if json.is_empty() || json.len() > limits::DECISION_BYTES {
        let why = format!("the decision takes {} bytes: the limit is {}", json.len(), limits::DECISION_BYTES);
        return Err(Refusal::new(Code::InvalidRequest, why));
    }
    Ok(json)
}

fn events(of_cell: Vec<cell::Event>) -> Vec<Event> {
    of_cell.into_iter().map(Event::Cell).collect()
}

/// Returns a placeholder domain for a decision about an unknown guid. The state machines never make such a
/// decision.
fn unknown_domain() -> Domain {
    Domain::new("unknown").expect("the name is valid")
}
