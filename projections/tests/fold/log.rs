//! Logs for the tests: random commands, decided by the real state machines and grouped into entries as a BBS
//! groups them.

use std::collections::{BTreeMap, BTreeSet};

use machines::{cell, domain};
use projections::{Due, World};
use proptest::prelude::*;
use schemas::action::Secret;
use schemas::container::{Epoch, Instance, NetInfo, PortMapping};
use schemas::definition::{Definition, DesiredLrp, DesiredLrpUpdate, DesiredTask, Placement, TaskDefinition};
use schemas::entry::{Aggregate, Event};
use schemas::isolation::Isolation;
use schemas::names::{
    CellId, ClientName, ClusterId, DefinitionId, Domain, EntryId, EvaluationId, IdGenerator, Incarnation,
    InstanceGuid, ProcessGuid, RequestId, ServiceId, Stack, TaskGuid, Zone,
};
use schemas::policy::{FailureAction, Parallelism, Policies, UpdateOrder, UpdatePolicy};
use schemas::process::{self, Unplaced};
use schemas::resources::Resources;
use schemas::stamp::Actor;
use schemas::{Decision, Entry, Place, Position, Subject, Timestamp, actual, cluster, evacuating, task};
use uuid::Uuid;

/// Start time of generated logs.
pub(crate) const START_MILLIS: u64 = 1_800_000_000_000;

/// Entries with their positions.
pub(crate) type Entries = [(Position, Entry)];

/// Folds entries into a new World (the state folded from the log).
pub(crate) fn fold(entries: &Entries) -> World {
    let mut world = World::new();
    for (position, entry) in entries {
        world.fold(*position, entry);
    }
    world
}

/// Generates groups of commands.
pub(crate) fn groups() -> impl Strategy<Value = Vec<Vec<Action>>> {
    prop::collection::vec(prop::collection::vec(actions(), 1..5), 1..40)
}

/// Command or observation. Small numbers identify the targets.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Process(u8, ProcessAction),
    Task(u8, TaskAction),
    Refresh { domain: u8, seconds: u8 },
    CellHeartbeat { cell: u8, evacuating: bool, healthy: bool },
    CellLost { cell: u8 },
    Converge,
    Wait { seconds: u16 },
}

/// Command or report for a process.
#[derive(Clone, Debug)]
pub(crate) enum ProcessAction {
    Desire { domain: u8, instances: u8, size: u8 },
    Scale { instances: u8 },
    Deploy { definition: u8, policy: u8 },
    Activate { definition: u8 },
    Restart,
    Steer { step: u8 },
    Remove,
    Retire { index: u8 },
    Report { index: u8, container: u8, steps: Vec<u8> },
    Unplaced { index: u8, error: u8 },
}

/// Command or report for a task.
#[derive(Clone, Debug)]
pub(crate) enum TaskAction {
    Desire { domain: u8, size: u8 },
    Cancel,
    Resolve { step: u8 },
    Report { container: u8, step: u8 },
    Unplaced,
}

/// Generates commands with enough activity: cells appear often, and most reports come from the container in
/// the record.
pub(crate) fn actions() -> impl Strategy<Value = Action> {
    prop_oneof![
        29 => (0..3_u8, process_actions()).prop_map(|(process, ask)| Action::Process(process, ask)),
        15 => (0..3_u8, task_actions()).prop_map(|(task, ask)| Action::Task(task, ask)),
        1 => (0..2_u8, 0..99_u8).prop_map(|(domain, seconds)| Action::Refresh { domain, seconds }),
        4 => (0..3_u8, prop::bool::weighted(0.2), prop::bool::weighted(0.9))
            .prop_map(|(cell, evacuating, healthy)| Action::CellHeartbeat { cell, evacuating, healthy }),
        1 => (0..3_u8).prop_map(|cell| Action::CellLost { cell }),
        3 => Just(Action::Converge),
        3 => prop_oneof![1..40_u16, 200..700_u16].prop_map(|seconds| Action::Wait { seconds }),
    ]
}

fn process_actions() -> impl Strategy<Value = ProcessAction> {
    let index = || 0..4_u8;
    let steps = prop::collection::vec(0..7_u8, 1..4);
    prop_oneof![
        4 => (0..2_u8, 0..4_u8, any::<u8>())
            .prop_map(|(domain, instances, size)| ProcessAction::Desire { domain, instances, size }),
        2 => (0..5_u8).prop_map(|instances| ProcessAction::Scale { instances }),
        3 => (0..3_u8, any::<u8>()).prop_map(|(definition, policy)| ProcessAction::Deploy { definition, policy }),
        1 => (0..3_u8).prop_map(|definition| ProcessAction::Activate { definition }),
        1 => Just(ProcessAction::Restart),
        2 => (0..3_u8).prop_map(|step| ProcessAction::Steer { step }),
        1 => Just(ProcessAction::Remove),
        2 => index().prop_map(|index| ProcessAction::Retire { index }),
        16 => (index(), any::<u8>(), steps)
            .prop_map(|(index, container, steps)| ProcessAction::Report { index, container, steps }),
        3 => (index(), 0..2_u8).prop_map(|(index, error)| ProcessAction::Unplaced { index, error }),
    ]
}

fn task_actions() -> impl Strategy<Value = TaskAction> {
    prop_oneof![
        4 => (0..2_u8, any::<u8>()).prop_map(|(domain, size)| TaskAction::Desire { domain, size }),
        1 => Just(TaskAction::Cancel),
        3 => (0..4_u8).prop_map(|step| TaskAction::Resolve { step }),
        6 => (any::<u8>(), 0..3_u8).prop_map(|(container, step)| TaskAction::Report { container, step }),
        1 => Just(TaskAction::Unplaced),
    ]
}

/// Log under construction.
pub(crate) struct Log {
    pub(crate) world: World,
    pub(crate) entries: Vec<(Position, Entry)>,
    now: Timestamp,
    ids: IdGenerator,
}

/// Writes a log from groups of commands. The changes of a group on one subject form one entry.
pub(crate) fn write(groups: &[Vec<Action>]) -> Log {
    let mut log = Log::new();
    for group in groups {
        log.group(group);
    }
    log
}

impl From<World> for Log {
    /// Continues the log of a World.
    fn from(world: World) -> Self {
        Self {
            world,
            entries: vec![],
            now: Timestamp::from_millis(2 * START_MILLIS),
            ids: IdGenerator::new(2),
        }
    }
}

impl Log {
    pub(crate) fn new() -> Self {
        let mut log = Self {
            world: World::new(),
            entries: vec![],
            now: Timestamp::from_millis(START_MILLIS),
            ids: IdGenerator::new(1),
        };
        let founded = cluster::Event::Founded { id: cluster_id(), shards: 2, format: 1 };
        let decision = log.decision(Aggregate::Cluster, 1, vec![Event::Cluster(founded)]);
        log.append(vec![decision]);
        for cell in 0..2 {
            log.group(&[Action::CellHeartbeat { cell, evacuating: false, healthy: true }]);
        }
        log
    }

    /// Appends the decisions of a group of commands. Each command is decided on the result of the previous
    /// commands.
    pub(crate) fn group(&mut self, asks: &[Action]) {
        let mut scratch = self.world.clone();
        let mut entries: BTreeMap<Subject, Vec<Decision>> = BTreeMap::new();
        for ask in asks {
            if let Action::Wait { seconds } = ask {
                self.now = Timestamp(self.now.0 + u64::from(*seconds) * 1_000_000_000);
            }
            self.now = Timestamp(self.now.0 + 1_000);
            for (aggregate, events) in judge(&scratch, ask, self.now) {
                let version = version(&scratch, &aggregate) + 1;
                let mut decision = self.decision(aggregate, version, events);
                if matches!(ask, Action::Converge) {
                    decision.actor = Actor::Bbs(ServiceId::new("bbs").expect("a valid value"));
                }
                let single = self.entry(vec![decision.clone()]);
                scratch.fold(Position(scratch.position().0 + 1), &single);
                entries.entry(decision.aggregate.subject(2)).or_default().push(decision);
            }
        }
        for decisions in entries.into_values() {
            self.append(decisions);
        }
    }

    /// Advances the time until an aggregate is due. Returns each due aggregate with the events of its
    /// convergence.
    pub(crate) fn advance_until_due(&mut self) -> Vec<(Due, Vec<Event>)> {
        let Some(at) = self.world.next_due() else { return vec![] };
        self.now = self.now.max(at);
        let decided = |due: Due| {
            let (world, now) = (&self.world, self.now);
            let decided = match &due {
                Due::Process(guid) => {
                    let process = world.process(guid).expect("a due aggregate is known");
                    judge_process(world, guid, process.domain.clone(), &process::Command::Converge, now)
                }
                Due::Task(guid) => {
                    let task = world.task(guid).expect("a due aggregate is known");
                    judge_task(world, guid, task.domain.clone(), &task::Command::Converge, now)
                }
                // These logs contain no periodic or parameterised tasks.
                Due::Periodic(_) | Due::Parameterised(_) => vec![],
            };
            let events = decided.into_iter().flat_map(|(_, events)| events).collect();
            (due, events)
        };
        self.world.due(self.now).into_iter().map(decided).collect()
    }

    /// Appends one decision about a process. The state machine is not consulted.
    pub(crate) fn decide(&mut self, process: u8, events: Vec<Event>) {
        let guid = guid(process);
        self.now = Timestamp(self.now.0 + 1_000);
        let epoch = self.world.process(&guid).map_or(Epoch(self.now), |known| known.epoch);
        let aggregate = Aggregate::Process { guid, domain: domain(0), epoch };
        let version = version(&self.world, &aggregate) + 1;
        let decision = self.decision(aggregate, version, events);
        self.append(vec![decision]);
    }

    /// Appends one decision about an aggregate whose version the test knows.
    pub(crate) fn decide_on(&mut self, aggregate: Aggregate, version: u64, events: Vec<Event>) {
        self.now = Timestamp(self.now.0 + 1_000);
        let decision = self.decision(aggregate, version, events);
        self.append(vec![decision]);
    }

    /// Returns the time of the next decision.
    pub(crate) const fn next_time(&self) -> Timestamp {
        Timestamp(self.now.0 + 1_000)
    }

    fn append(&mut self, decisions: Vec<Decision>) {
        let entry = Entry::decode(&self.entry(decisions).encode()).expect("a valid value");
        // In a stream, positions can have gaps.
        let position = Position(self.world.position().0 + 3);
        self.world.fold(position, &entry);
        self.entries.push((position, entry));
    }

    fn entry(&mut self, decisions: Vec<Decision>) -> Entry {
        Entry { id: EntryId(self.ids.next(self.now)), format: 1, decisions }
    }

    fn decision(&mut self, aggregate: Aggregate, version: u64, events: Vec<Event>) -> Decision {
        let id = self.ids.next(self.now);
        Decision {
            version,
            actor: Actor::Client { domain: domain(0), name: ClientName::new("test").expect("a valid value") },
            request_id: (version % 2 == 1).then(|| RequestId::new(&id.to_string()).expect("a valid value")),
            ..fixtures::decision(id, self.now, aggregate, events)
        }
    }
}

fn version(world: &World, aggregate: &Aggregate) -> u64 {
    match aggregate {
        Aggregate::Process { guid, .. } => world.process(guid).map_or(0, |process| process.version),
        Aggregate::Task { guid, .. } => world.task(guid).map_or(0, |task| task.version),
        Aggregate::Periodic { .. }
        | Aggregate::Parameterised { .. }
        | Aggregate::Domain(_)
        | Aggregate::Cell(_)
        | Aggregate::Cluster => 0,
    }
}

/// Returns the decisions of a command. Empty if the command is refused.
fn judge(world: &World, ask: &Action, now: Timestamp) -> Vec<(Aggregate, Vec<Event>)> {
    match ask {
        Action::Process(number, ask) => {
            let guid = guid(*number);
            let known = world.process(&guid).map(|process| process.domain.clone());
            let command = process_command(world, *number, ask, now);
            judge_process(world, &guid, known.unwrap_or_else(|| domain(0)), &command, now)
        }
        Action::Task(number, ask) => {
            let guid = task_guid(*number);
            let known = world.task(&guid).map(|task| task.domain.clone());
            let command = task_command(world, *number, ask);
            judge_task(world, &guid, known.unwrap_or_else(|| domain(0)), &command, now)
        }
        Action::Refresh { domain: name, seconds } => {
            let ttl = (*seconds > 20).then(|| std::time::Duration::from_secs(u64::from(*seconds)));
            vec![(Aggregate::Domain(domain(*name)), vec![Event::Domain(domain::decide(ttl, now))])]
        }
        Action::CellHeartbeat { cell, evacuating, healthy } => {
            cell_heartbeat(world, *cell, *evacuating, *healthy)
        }
        Action::CellLost { cell } => {
            let id = cell_id(*cell);
            let events = cell::decide_lost(world.cell(&id), "silent");
            non_empty((Aggregate::Cell(id), events.into_iter().map(Event::Cell).collect()))
        }
        Action::Converge => converge(world, now),
        Action::Wait { .. } => vec![],
    }
}

fn non_empty(decided: (Aggregate, Vec<Event>)) -> Vec<(Aggregate, Vec<Event>)> {
    if decided.1.is_empty() { vec![] } else { vec![decided] }
}

fn converge(world: &World, now: Timestamp) -> Vec<(Aggregate, Vec<Event>)> {
    let processes = world.processes_from(None).flat_map(|process| {
        let command = process::Command::Converge;
        let decided = judge_process(world, &process.guid, process.domain.clone(), &command, now);
        decided.into_iter().filter(|(_, events)| !events.is_empty())
    });
    let tasks = world.tasks_from(None).flat_map(|task| {
        let decided = judge_task(world, &task.guid, task.domain.clone(), &task::Command::Converge, now);
        decided.into_iter().filter(|(_, events)| !events.is_empty())
    });
    processes.chain(tasks).collect()
}

fn judge_process(
    world: &World,
    guid: &ProcessGuid,
    domain: Domain,
    command: &process::Command,
    now: Timestamp,
) -> Vec<(Aggregate, Vec<Event>)> {
    let known = world.process(guid);
    let present = |cell: &CellId| world.is_present(cell);
    let known_cell = |cell: &CellId| world.cell(cell).is_some();
    let context = machines::process::Context {
        now,
        is_fresh: world.is_fresh(&domain, now),
        is_present: &present,
        is_known: &known_cell,
        for_each_cell: &|_| {},
    };
    let Ok(events) = machines::process::decide(known, command, context) else { return vec![] };
    let epoch = known.map_or(Epoch(now), |known| known.epoch);
    vec![(Aggregate::Process { guid: guid.clone(), domain, epoch }, events)]
}

fn judge_task(
    world: &World,
    guid: &TaskGuid,
    domain: Domain,
    command: &task::Command,
    now: Timestamp,
) -> Vec<(Aggregate, Vec<Event>)> {
    let present = |cell: &CellId| world.is_present(cell);
    let context = machines::task::Context { now, is_present: &present };
    let Ok(events) = machines::task::decide(world.task(guid), command, context) else { return vec![] };
    let epoch = world.task(guid).map_or(Epoch(now), |known| known.epoch);
    vec![(Aggregate::Task { guid: guid.clone(), domain, epoch }, events)]
}

fn process_command(world: &World, number: u8, ask: &ProcessAction, now: Timestamp) -> process::Command {
    use process::Command;
    match ask {
        ProcessAction::Desire { domain, instances, size } => {
            Command::Desire(Box::new(lrp(number, *domain, *instances, *size)))
        }
        ProcessAction::Scale { instances } => {
            let instances = Some(u32::from(*instances));
            Command::Update(DesiredLrpUpdate { instances, ..DesiredLrpUpdate::default() })
        }
        ProcessAction::Deploy { definition, policy } => {
            let update =
                DesiredLrpUpdate { policies: Some(policies(*policy)), ..DesiredLrpUpdate::default() };
            let memory_mb = 32 * u64::from(*definition + 1);
            let of = Definition { memory_mb, start_timeout_ms: 1, ..fixtures::definition() };
            Command::Deploy { update, definition_id: other_definition(*definition), definition: of.into() }
        }
        ProcessAction::Activate { definition } => {
            Command::Activate { definition_id: other_definition(*definition) }
        }
        ProcessAction::Restart => Command::Restart(process::Purpose::Restart),
        ProcessAction::Steer { step } => {
            let steers = [
                process::RolloutControl::Pause,
                process::RolloutControl::Resume,
                process::RolloutControl::RollBack,
            ];
            Command::Steer(steers[usize::from(*step)])
        }
        ProcessAction::Remove => Command::Remove,
        ProcessAction::Retire { index } => Command::Retire { index: u32::from(*index), definition_id: None },
        ProcessAction::Report { index, container, steps } => {
            report(world, number, *index, *container, steps, now)
        }
        ProcessAction::Unplaced { index, error } => {
            let known = world.process(&guid(number));
            let mut slots = known.into_iter().flat_map(|known| known.slots_at(u32::from(*index)));
            let waits = |slot: &&machines::process::Slot| {
                slot.actual.as_ref().is_some_and(|lrp| lrp.holder().is_none())
            };
            let place = slots.find(waits).map(|slot| slot.place.clone());
            let place = place.unwrap_or_else(|| Place::new(u32::from(*index), definition_id(number)));
            let record = known.and_then(|process| process.actual(&place));
            let attempt = record.map_or(now, |record| record.since);
            let error = format!("insufficient resources: {error}");
            let judged = known.zip(record).and_then(|(known, record)| known.evaluation_for(record));
            let evaluation = judged.map_or(EvaluationId(Uuid::nil()), |one| one.id);
            let unplaced = vec![Unplaced { place, attempt, error }];
            let attempts_exhausted = *index == 3;
            Command::Fail(process::Outcome { evaluation, unplaced, attempts_exhausted, explanation: None })
        }
    }
}

/// Returns a report. Three reports in four come from the container in the record, and the fourth comes from
/// another container.
fn report(
    world: &World,
    process: u8,
    index: u8,
    container: u8,
    steps: &[u8],
    now: Timestamp,
) -> process::Command {
    let known = world.process(&guid(process));
    let mut slots = known.into_iter().flat_map(|known| known.slots_at(u32::from(index)));
    let count = slots.clone().count();
    let place = slots.nth(usize::from(container / 64) % count.max(1)).map(|slot| slot.place.clone());
    let place = place.unwrap_or_else(|| Place::new(u32::from(index), definition_id(process)));
    let slot = known.and_then(|known| known.slot(&place));
    let twin = slot.and_then(|slot| slot.evacuating.as_ref()).map(|twin| &twin.by);
    let holder = slot.and_then(|slot| slot.actual.as_ref()).and_then(|lrp| lrp.holder());
    let named = if container.is_multiple_of(3) { twin.or(holder) } else { holder.or(twin) };
    let by = named.filter(|_| !container.is_multiple_of(4)).cloned();
    let net = || NetInfo {
        address: "10.0.0.1".into(),
        ports: vec![PortMapping { container_port: 1, host_port: 2 }].into(),
    };
    let step = |step: &u8| match step {
        0 => process::ReportStep::Actual(actual::Command::Claim { placement: None }),
        1 | 2 => {
            process::ReportStep::Actual(actual::Command::Start { net: net(), isolation: Isolation::NONE })
        }
        3 => process::ReportStep::Actual(actual::Command::Crash {
            reason: "exited with 1".into(),
            exit_status: Some(1),
        }),
        4 => process::ReportStep::Actual(actual::Command::Remove),
        5 => process::ReportStep::Actual(actual::Command::Unclaim),
        _ => {
            let expires_at = Timestamp(now.0 + 60_000_000_000);
            let set = evacuating::Command::Set { net: net(), expires_at };
            process::ReportStep::Evacuating(if container.is_multiple_of(2) {
                set
            } else {
                evacuating::Command::Remove
            })
        }
    };
    process::Command::Report(process::Report {
        domain: known.map_or_else(|| domain(0), |known| known.domain.clone()),
        place,
        epoch: known.map_or(Epoch(now), |known| known.epoch),
        by: by.unwrap_or_else(|| instance(process, index, container)),
        observed_at: now,
        steps: steps.iter().map(step).collect(),
    })
}

/// Returns policies in which each bit selects an option.
fn policies(bits: u8) -> Policies {
    let is = |bit: u8| bits & (1 << bit) != 0;
    let failure_actions =
        [FailureAction::Hold, FailureAction::Pause, FailureAction::Continue, FailureAction::Rollback];
    let update = UpdatePolicy {
        parallelism: if is(0) { Parallelism::Percent(50) } else { Parallelism::Count(1) },
        delay_ms: if is(1) { 7_000 } else { 0 },
        order: if is(2) { UpdateOrder::StopFirst } else { UpdateOrder::StartFirst },
        monitor_ms: if is(3) { 5_000 } else { 0 },
        failure_action: failure_actions[usize::from(bits >> 4) % 4],
        index_deadline_ms: 60_000,
        pause_after: is(6).then_some(1),
        ..UpdatePolicy::default_update()
    };
    Policies { update, min_running: is(7).then_some(0), ..Policies::default() }
}

fn task_command(world: &World, number: u8, ask: &TaskAction) -> task::Command {
    use task::Command;
    match ask {
        TaskAction::Desire { domain, size } => {
            Command::Desire(Box::new(desired_task(number, *domain, *size)))
        }
        TaskAction::Cancel => Command::Cancel,
        TaskAction::Resolve { step } => {
            let epoch = world.task(&task_guid(number)).map_or(Epoch::default(), |task| task.epoch);
            let called = |status| Command::RecordCallback(epoch, task::CallbackResult::Answered(status));
            let commands = [Command::Resolve, Command::BeginResolving, called(200), called(503)];
            commands[usize::from(*step)].clone()
        }
        TaskAction::Report { container, step } => {
            Command::Report(report_task(world, number, *container, *step))
        }
        TaskAction::Unplaced => {
            let judged = world.task(&task_guid(number)).and_then(machines::task::Task::open_evaluation);
            let evaluation = judged.map_or(EvaluationId(Uuid::nil()), |one| one.id);
            let error = "insufficient resources".to_owned();
            Command::Fail(task::Unplaced { evaluation, error, attempts_exhausted: false, explanation: None })
        }
    }
}

fn report_task(world: &World, task: u8, container: u8, step: u8) -> task::Report {
    let known = world.task(&task_guid(task));
    let by = known.and_then(machines::task::Task::holder).cloned();
    let outcome = match step {
        1 => task::Outcome::Succeeded { result: "ok".into() },
        _ => task::Outcome::Failed { reason: "exited with 1".into() },
    };
    let step = match step {
        0 => task::ReportStep::Start { placement: None, isolation: Isolation::NONE },
        _ => task::ReportStep::Complete { outcome },
    };
    task::Report {
        domain: known.map_or_else(|| domain(0), |known| known.domain.clone()),
        epoch: known.map_or(Epoch(Timestamp(0)), |known| known.epoch),
        by: by.unwrap_or_else(|| instance(100 + task, 0, container)),
        step,
    }
}

fn cell_heartbeat(world: &World, cell: u8, evacuating: bool, healthy: bool) -> Vec<(Aggregate, Vec<Event>)> {
    let id = cell_id(cell);
    let seen = cell::HeartbeatState {
        presence: presence(),
        evacuating,
        unhealthy: (!healthy).then(|| "disk is read-only".to_owned()),
    };
    let events = cell::decide_heartbeat(world.cell(&id), &seen);
    non_empty((Aggregate::Cell(id), events.into_iter().map(Event::Cell).collect()))
}

pub(crate) fn presence() -> schemas::cell::Presence {
    schemas::cell::Presence {
        folder: schemas::names::FolderId(Uuid::nil()),
        incarnation: Incarnation(IdGenerator::new(5).next(Timestamp(0))),
        zone: Zone::new("z1").expect("a valid value"),
        stack: Stack::new("linux").expect("a valid value"),
        placement_tags: BTreeSet::new(),
        attributes: fixtures::attributes(&[("rack", "r1")]),
        total: Resources { memory_mb: 4096, disk_mb: 4096, containers: 64, ports: 64 },
    }
}

pub(crate) fn cluster_id() -> ClusterId {
    ClusterId(IdGenerator::new(99).next(Timestamp(0)))
}

pub(crate) fn guid(number: u8) -> ProcessGuid {
    ProcessGuid::new(&format!("process-{number}")).expect("a valid value")
}

pub(crate) fn definition_id(number: u8) -> DefinitionId {
    DefinitionId::new(&format!("process-{number}")).expect("a valid value")
}

/// Returns the id of a definition that an update adds.
pub(crate) fn other_definition(number: u8) -> DefinitionId {
    DefinitionId::new(&format!("other-{number}")).expect("a valid value")
}

pub(crate) fn task_guid(number: u8) -> TaskGuid {
    TaskGuid::new(&format!("task-{number}")).expect("a valid value")
}

pub(crate) fn domain(number: u8) -> Domain {
    Domain::new(&format!("domain-{number}")).expect("a valid value")
}

pub(crate) fn cell_id(number: u8) -> CellId {
    CellId::new(&format!("cell-{number}")).expect("a valid value")
}

/// Returns one of four containers of an index. The containers are on three cells, and the third cell is not
/// always present.
pub(crate) fn instance(owner: u8, index: u8, container: u8) -> Instance {
    let container = container % 4;
    let seed = u64::from(owner) << 16 | u64::from(index) << 8 | u64::from(container);
    Instance {
        instance_guid: InstanceGuid(IdGenerator::new(seed).next(Timestamp(0))),
        cell_id: cell_id(container % 3),
    }
}

pub(crate) fn lrp(process: u8, name: u8, instances: u8, size: u8) -> DesiredLrp {
    let definition = Definition { memory_mb: u64::from(size % 5) * 32, ..fixtures::definition() };
    fixtures::lrp_of(guid(process).as_str(), domain(name).as_str(), u32::from(instances), definition)
}

pub(crate) fn desired_task(task: u8, name: u8, size: u8) -> DesiredTask {
    let queue = Placement::Queue { deadline_ms: 90_000 };
    let definition = TaskDefinition {
        memory_mb: u64::from(size % 5) * 32,
        completion_callback_url: (size.is_multiple_of(2)).then(|| Secret::Plain("http://a/done".into())),
        placement: if size.is_multiple_of(3) { queue } else { Placement::Fail },
        ..fixtures::task_definition()
    };
    fixtures::task_of(task_guid(task).as_str(), domain(name).as_str(), definition)
}
