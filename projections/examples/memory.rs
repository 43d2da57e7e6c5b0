//! Measures a World (the state folded from the log) of many running LRPs. Each LRP is a process with one
//! instance that was desired, claimed and started through the real state machines. Its entries are decoded
//! from JSON as in the journal.
//!
//! `cargo run --release -p projections --example memory -- [LRPs] [definitions]`: the default is a million
//! LRPs, each with its own definition. A second process reads a snapshot back, and its memory is measured.
//! The measurement is repeated with fewer LRPs while World snapshots are held. Finally, one process with the
//! maximum number of instances goes through the same steps, one instance after the other.
//!
//! `cargo run --release -p projections --example memory -- wide [processes] [instances]`: only processes with
//! many instances. The default is a thousand processes with a thousand instances each.
#![expect(clippy::print_stdout, reason = "the benchmark prints its measurements")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use machines::process::{self, Context};
use projections::{Figures, Observed, World, WorldSnapshot};
use schemas::action::{Action, Run, Secret, Variable};
use schemas::container::{Epoch, Instance, NetInfo, PortMapping};
use schemas::definition::{Definition, DesiredLrp};
use schemas::entry::{Aggregate, Event};
use schemas::isolation::Isolation;
use schemas::names::{
    CellId, ClientName, ClusterId, DefinitionId, Domain, EntryId, IdGenerator, Incarnation, InstanceGuid,
    ProcessGuid, RequestId, ServiceId, Stack, Zone,
};
use schemas::process::{Command, Report, ReportStep};
use schemas::query::{QuarantinedEntries, Services};
use schemas::resources::{Constraint, Resources};
use schemas::stamp::Actor;
use schemas::{
    Decision, Entry, Indices, Place, Places, Position, Subject, Timestamp, actual, cell, cluster, limits,
    subject,
};

const CELLS: u64 = 2_000;
/// Number of decisions in one entry, typical for a busy shard.
const BATCH: usize = 250;
/// Number of LRPs in the measurement with held World snapshots.
const SNAPSHOT_LRPS: u64 = 100_000;
const MIB: f64 = 1_048_576.0;

/// Step of an LRP from its creation to RUNNING.
#[derive(Clone, Copy, Debug)]
enum Step {
    Desire,
    Claim,
    Start,
}

/// Measures the computation of the figures that folding does not maintain.
fn measure_figures(world: &World) {
    let observed = Observed {
        bbs: ServiceId::new("b1").expect("a valid name"),
        now: world.latest(),
        durability: String::new(),
        quarantined_entries: QuarantinedEntries::default(),
        services: Services::default(),
        history_limit: 0,
        refused_transitions: 0,
        log: None,
        heartbeat_ages: BTreeMap::new(),
    };
    let picture = world.freeze();
    let begin = Instant::now();
    let figures = Figures::new(&picture, &observed);
    let millis = begin.elapsed().as_secs_f64() * 1e3;
    println!(
        "figures: {millis:.1} ms, {} instances desired, {} missing",
        figures.instances_desired, figures.instances_missing
    );
}

struct Journal {
    world: World,
    ids: IdGenerator,
    now: Timestamp,
    position: u64,
    folding: Duration,
    reading: Duration,
    snapshotting: Duration,
    /// Held World snapshots, one for each of the last entries.
    pictures: VecDeque<WorldSnapshot>,
    max_held: usize,
    batch: usize,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [verb, path, lrps] = &arguments[..]
        && verb == "restore"
    {
        return restore(path, lrps.parse().expect("a valid number"));
    }
    let is_wide = arguments.first().is_some_and(|word| word == "wide");
    let numbers = arguments.iter().skip(usize::from(is_wide));
    let mut numbers = numbers.map(|text| text.parse::<u64>().expect("a valid number"));
    if is_wide {
        let processes = numbers.next().unwrap_or(1_000);
        let instances = numbers.next().unwrap_or(1_000);
        return wide(processes, u32::try_from(instances).expect("a valid number of instances"));
    }
    let lrps = numbers.next().unwrap_or(1_000_000);
    let definitions = numbers.next().unwrap_or(lrps);
    let mut journal = Journal::new();
    let empty = rss();
    for step in [Step::Desire, Step::Claim, Step::Start] {
        let before = journal.folding;
        journal.run_step(step, lrps, definitions);
        let seconds = (journal.folding - before).as_secs_f64();
        println!("{step:?}: folding {:.0} decisions/s", as_f64(lrps) / seconds);
    }
    println!("{lrps} LRPs running, {definitions} different definitions");
    println!("{:?}", journal.world.counts());
    measure_figures(&journal.world);
    report_memory("folded", empty, lrps);
    let seconds = journal.folding.as_secs_f64();
    let decisions = as_f64(3 * lrps);
    println!("folding: {seconds:.2} s, {:.0} decisions/s", decisions / seconds);
    println!("reading JSON: {:.0} decisions/s", decisions / journal.reading.as_secs_f64());
    snapshot(&journal.world, lrps);
    drop(journal);
    measure_snapshots(lrps.min(SNAPSHOT_LRPS));
    one_process();
}

/// Repeats the steps while World snapshots are held. Each entry adds a new snapshot, like a BBS under a
/// constant load of queries.
fn measure_snapshots(lrps: u64) {
    for (max_held, decisions) in
        [(0, BATCH), (limits::WORLD_SNAPSHOTS_HELD, BATCH), (0, 1), (limits::WORLD_SNAPSHOTS_HELD, 1)]
    {
        let mut journal = Journal { max_held, batch: decisions, ..Journal::new() };
        for step in [Step::Desire, Step::Claim, Step::Start] {
            journal.run_step(step, lrps, lrps);
        }
        let (folding, picturing) = (journal.folding.as_secs_f64(), journal.snapshotting.as_secs_f64());
        println!(
            "{lrps} LRPs, {decisions} decisions per entry, {max_held} World snapshots held: folding {:.0} \
             decisions/s, {:.1} us per World snapshot",
            as_f64(3 * lrps) / folding,
            picturing * 1e6 / as_f64(journal.position)
        );
    }
}

/// Writes a snapshot and starts a second process that reads it.
fn snapshot(world: &World, lrps: u64) {
    let started = Instant::now();
    let bytes = world.to_bytes();
    println!("writing a snapshot: {:.2} s", started.elapsed().as_secs_f64());
    let size = as_f64(bytes.len() as u64);
    println!("snapshot size: {:.0} MiB, {:.0} bytes per LRP", size / MIB, size / as_f64(lrps));
    let path = std::env::temp_dir().join(format!("world-{}.snapshot", std::process::id()));
    std::fs::write(&path, &bytes).expect("the snapshot can be written");
    drop(bytes);
    let program = std::env::current_exe().expect("the path of the program is known");
    let mut reader = std::process::Command::new(program);
    let ended = reader.arg("restore").arg(&path).arg(lrps.to_string()).status().expect("the program runs");
    std::fs::remove_file(&path).expect("the snapshot can be removed");
    assert!(ended.success());
}

/// Reads a snapshot, like a starting service.
fn restore(path: &str, lrps: u64) {
    let empty = rss();
    let bytes = std::fs::read(path).expect("the snapshot can be read");
    let started = Instant::now();
    let world = World::from_bytes(&bytes, None).expect("the snapshot was just written");
    println!("reading the snapshot: {:.2} s", started.elapsed().as_secs_f64());
    drop(bytes);
    report_memory("restored", empty, lrps);
    assert_eq!(world.counts().instances.running, lrps);
}

/// Takes every instance of several processes through its steps, one decision each.
fn wide(processes: u64, instances: u32) {
    let mut journal = Journal::new();
    let empty = rss();
    for number in 0..processes {
        let guid = guid(number);
        let wide = DesiredLrp { instances, ..lrp(&guid, number) };
        let decision = journal.judge(&guid, &Command::Desire(Box::new(wide)));
        journal.append(vec![decision]);
        for step in [Step::Claim, Step::Start] {
            for index in 0..instances {
                let command = journal.command(step, &guid, index, u64::from(index) + number);
                let decision = journal.judge(&guid, &command);
                journal.append(vec![decision]);
            }
        }
    }
    println!("{:?}", journal.world.counts());
    report_memory("folded", empty, processes * u64::from(instances));
}

/// Takes every instance of one process through its steps, one decision each.
fn one_process() {
    let mut journal = Journal::new();
    let guid = guid(0);
    let wide = DesiredLrp { instances: limits::INSTANCES, ..lrp(&guid, 0) };
    let decision = journal.judge(&guid, &Command::Desire(Box::new(wide)));
    journal.append_timed("desiring 10,000 instances", vec![decision]);
    for step in [Step::Claim, Step::Start] {
        let before = journal.folding;
        for index in 0..limits::INSTANCES {
            let command = journal.command(step, &guid, index, u64::from(index));
            let decision = journal.judge(&guid, &command);
            journal.append(vec![decision]);
        }
        let seconds = (journal.folding - before).as_secs_f64();
        println!("{step:?} of 10,000 instances, one by one: {seconds:.3} s");
    }
    let indices: Indices = (0..limits::INSTANCES).collect();
    let places = Places { indices, definition_id: definition_id(&guid) };
    let event = actual::Event::Removed { places, cause: actual::StopReason::CellLost };
    let mut decision = journal.judge(&guid, &Command::Remove);
    decision.events.push(Event::Actual(event));
    journal.append_timed("removing 10,000 instances", vec![decision]);
}

impl Journal {
    fn new() -> Self {
        let mut journal = Self {
            world: World::new(),
            ids: IdGenerator::new(7),
            now: Timestamp::from_millis(1_800_000_000_000),
            position: 0,
            folding: Duration::ZERO,
            reading: Duration::ZERO,
            snapshotting: Duration::ZERO,
            pictures: VecDeque::new(),
            max_held: 0,
            batch: BATCH,
        };
        journal.found();
        journal
    }

    fn append_timed(&mut self, what: &str, decisions: Vec<Decision>) {
        let before = self.folding;
        self.append(decisions);
        println!("{what}: {:.3} s", (self.folding - before).as_secs_f64());
    }

    fn append(&mut self, decisions: Vec<Decision>) {
        let id = EntryId(self.ids.next(self.now));
        let bytes = Entry { id, format: cluster::FORMAT, decisions }.encode();
        let started = Instant::now();
        let entry = Entry::decode(&bytes).expect("the entry was just written");
        self.reading += started.elapsed();
        self.position += 1;
        let started = Instant::now();
        let changes = self.world.fold(Position(self.position), &entry);
        self.folding += started.elapsed();
        assert!(!changes.is_empty());
        if self.max_held > 0 {
            let started = Instant::now();
            self.pictures.push_back(self.world.freeze());
            self.snapshotting += started.elapsed();
            if self.pictures.len() > self.max_held {
                self.pictures.pop_front();
            }
        }
    }

    fn decision(&mut self, aggregate: Aggregate, version: u64, events: Vec<Event>) -> Decision {
        self.now = self.now.next();
        let actor = Actor::Client { domain: domain(), name: ClientName::new("bench").expect("legal") };
        let decision = fixtures::decision(self.ids.next(self.now), self.now, aggregate, events);
        Decision { version, actor, ..decision }
    }

    /// Founds the cluster and adds its cells.
    fn found(&mut self) {
        let id = ClusterId(self.ids.next(self.now));
        let founded =
            cluster::Event::Founded { id, shards: subject::DEFAULT_SHARDS, format: cluster::FORMAT };
        let decision = self.decision(Aggregate::Cluster, 1, vec![Event::Cluster(founded)]);
        self.append(vec![decision]);
        for number in 0..CELLS {
            let presence = cell::Presence {
                folder: schemas::names::FolderId(uuid::Uuid::nil()),
                incarnation: Incarnation(self.ids.next(self.now)),
                zone: Zone::new(&format!("z{}", number % 3)).expect("legal"),
                stack: Stack::new("linux").expect("legal"),
                placement_tags: BTreeSet::new(),
                attributes: schemas::attributes::Attributes::default(),
                total: Resources { memory_mb: 1 << 20, disk_mb: 1 << 20, containers: 1000, ports: 1000 },
            };
            let event = Event::Cell(cell::Event::Appeared(presence));
            let decision = self.decision(Aggregate::Cell(cell_id(number)), 1, vec![event]);
            self.append(vec![decision]);
        }
    }

    /// Takes every LRP through one step, in batches for each shard.
    fn run_step(&mut self, step: Step, lrps: u64, definitions: u64) {
        let mut batches: BTreeMap<Subject, Vec<Decision>> = BTreeMap::new();
        for number in 0..lrps {
            let decision = self.step(step, number, definitions);
            let subject = decision.aggregate.subject(subject::DEFAULT_SHARDS);
            let batch = batches.entry(subject).or_default();
            batch.push(decision);
            if batch.len() >= self.batch {
                let full = std::mem::take(batch);
                self.append(full);
            }
        }
        for batch in batches.into_values().filter(|batch| !batch.is_empty()) {
            self.append(batch);
        }
    }

    fn step(&mut self, step: Step, number: u64, definitions: u64) -> Decision {
        let guid = guid(number);
        match step {
            Step::Desire => {
                let command = Command::Desire(Box::new(lrp(&guid, number % definitions)));
                let request = RequestId::new(&self.ids.next(self.now).to_string()).expect("legal");
                Decision { request_id: Some(request), ..self.judge(&guid, &command) }
            }
            Step::Claim | Step::Start => {
                let command = self.command(step, &guid, 0, number);
                self.judge(&guid, &command)
            }
        }
    }

    /// Decides a command with the process state machine.
    fn judge(&mut self, guid: &ProcessGuid, command: &Command) -> Decision {
        let known = self.world.process(guid);
        let present = |cell: &CellId| self.world.is_present(cell);
        let context = Context {
            now: self.now.next(),
            is_fresh: true,
            is_present: &present,
            is_known: &|_| true,
            for_each_cell: &|_| {},
        };
        let events = process::decide(known, command, context).expect("the command is valid");
        let (epoch, version) =
            known.map_or((Epoch(self.now.next()), 1), |known| (known.epoch, known.version + 1));
        let aggregate = Aggregate::Process { guid: guid.clone(), domain: domain(), epoch };
        self.decision(aggregate, version, events)
    }

    /// Returns the report of the rep on cell `number`.
    fn command(&mut self, step: Step, guid: &ProcessGuid, index: u32, number: u64) -> Command {
        let ports = vec![PortMapping { container_port: 8080, host_port: 61_000 }];
        let address = format!("10.{}.{}.17", number % CELLS / 256, number % 256);
        let said = match step {
            Step::Desire | Step::Claim => actual::Command::Claim { placement: None },
            Step::Start => actual::Command::Start {
                net: NetInfo { address: address.into(), ports: ports.into() },
                isolation: Isolation::NONE,
            },
        };
        let known = self.world.process(guid).expect("the process was desired");
        let place = Place::new(index, definition_id(guid));
        let holder = known.actual(&place).and_then(|lrp| lrp.holder()).cloned();
        let epoch = known.epoch;
        let by = holder.unwrap_or_else(|| Instance {
            instance_guid: InstanceGuid(self.ids.next(self.now)),
            cell_id: cell_id(number % CELLS),
        });
        let steps = vec![ReportStep::Actual(said)];
        let observed_at = self.now;
        Command::Report(Report { domain: domain(), place, epoch, by, observed_at, steps })
    }
}

fn domain() -> Domain {
    Domain::new("apps").expect("legal")
}

fn cell_id(number: u64) -> CellId {
    CellId::new(&format!("cell-{number:05}")).expect("legal")
}

/// Returns a guid with the length of a UUID. Consecutive numbers result in guids without an order.
fn guid(number: u64) -> ProcessGuid {
    let mut ids = IdGenerator::new(number);
    ProcessGuid::new(&ids.next(Timestamp(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))).to_string())
        .expect("legal")
}

fn definition_id(guid: &ProcessGuid) -> DefinitionId {
    DefinitionId::new(guid.as_str()).expect("legal")
}

fn lrp(guid: &ProcessGuid, variant: u64) -> DesiredLrp {
    let text = |text: &str| text.to_owned();
    let variable = Variable { name: "APP_ID".into(), value: Secret::Plain(format!("app-{variant}").into()) };
    let args = vec![text("--listen"), text("0.0.0.0:8080")];
    let run = Run { path: text("/app/bin/server"), args, ..Run::default() };
    let constraint = Constraint { stack: Some(Stack::new("linux").expect("legal")), ..Constraint::default() };
    let definition = Definition {
        constraint: constraint.into(),
        environment_variables: vec![variable],
        action: Action::Run(run).into(),
        start_timeout_ms: 60_000,
        memory_mb: 256,
        disk_mb: 512,
        ..fixtures::definition()
    };
    fixtures::lrp_of(guid.as_str(), domain().as_str(), 1, definition)
}

fn report_memory(what: &str, empty: f64, lrps: u64) {
    let used = rss() - empty;
    println!("{what}: {:.0} MiB resident, {:.0} bytes per LRP", used / MIB, used / as_f64(lrps));
}

/// Returns the resident memory of this process, in bytes.
fn rss() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) * 1024.0
}

fn as_f64(number: u64) -> f64 {
    u32::try_from(number).map_or(f64::MAX, f64::from)
}
