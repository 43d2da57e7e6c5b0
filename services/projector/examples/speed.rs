//! Measures how fast a projector catches up. Folds a log with the given number of entries into a file of
//! `SQLite` and into PostgreSQL, and prints the entries per second of each. Then writes 100 entries/s, and
//! prints the delay until each entry is in the tables.
//!
//! ```sh
//! cargo run --release -p projector --example speed -- 200000                  # a new file and a new server
//! cargo run --release -p projector --example speed -- 200000 postgres://...   # only this database
//! ```
//!
//! The real state machines create the log. Each process has four instances. The processes are desired,
//! claimed, started, crashed, restarted, scaled and removed. Tasks run beside the processes. About 200
//! lifecycles run at a time. Each entry has only one decision, which is the minimum.

#![expect(clippy::print_stdout, reason = "the benchmark prints its measurements")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use journal::{Append, Journal, Memory};
use projections::World;
use projections::cluster_log::QuarantinedPositions;
use projector::{Projector, Url, run};
use schemas::container::{Epoch, NetInfo};
use schemas::definition::DesiredLrpUpdate;
use schemas::entry::{Aggregate, Event};
use schemas::isolation::Isolation;
use schemas::names::{ClientName, ClusterId, IdGenerator};
use schemas::stamp::Actor;
use schemas::{Decision, Place, Position, Subject, Timestamp, actual, cluster, process, task};
use support::postgres::Postgres;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const SHARDS: u16 = 32;
/// Number of concurrent lifecycles.
const CONCURRENT_LIFECYCLES: u64 = 200;
const INSTANCES: u32 = 4;

/// Number of entries that are written one by one after the tables have caught up. The interval is the pause
/// between two of these entries.
const PACED_ENTRIES: usize = 1_000;
const PACED_INTERVAL: Duration = Duration::from_millis(10);

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Step in the lifecycle of a process or its task, in this order.
#[derive(Clone, Copy)]
enum Step {
    Desire,
    Report(u32, Reported),
    Scale,
    Remove,
    DesireTask,
    ReportTask(bool),
    ResolveTask,
}

#[derive(Clone, Copy)]
enum Reported {
    Claimed,
    Started,
    Crashed,
    Gone,
}

/// Returns the steps of one lifecycle: 24 entries.
fn lifecycle() -> Vec<Step> {
    use Reported::{Claimed, Crashed, Gone, Started};
    let mut steps = vec![Step::Desire, Step::DesireTask];
    steps.extend((0..INSTANCES).map(|index| Step::Report(index, Claimed)));
    steps.push(Step::ReportTask(false));
    steps.extend((0..INSTANCES).map(|index| Step::Report(index, Started)));
    steps.push(Step::ReportTask(true));
    steps.extend([Crashed, Claimed, Started].map(|what| Step::Report(0, what)));
    steps.extend([
        Step::Scale,
        Step::Report(3, Gone),
        Step::Report(2, Gone),
        Step::ResolveTask,
        Step::Remove,
    ]);
    steps.extend([Step::Report(0, Gone), Step::Report(1, Gone)]);
    steps
}

/// Log under construction.
struct Log {
    world: World,
    ids: IdGenerator,
    now: Timestamp,
    journal: Journal,
    last: BTreeMap<Subject, Position>,
    /// Number of steps taken so far.
    steps_taken: u64,
}

impl Log {
    async fn new() -> Result<Self, Failed> {
        let now = Timestamp::from_seconds(1_800_000_000);
        let journal = Journal::Memory(Memory::new());
        let (world, last) = (World::new(), BTreeMap::new());
        let mut log = Self { world, ids: IdGenerator::new(1), now, journal, last, steps_taken: 0 };
        let id = ClusterId(log.ids.next(now));
        let founded = cluster::Event::Founded { id, shards: SHARDS, format: cluster::FORMAT };
        log.append(Aggregate::Cluster, 1, vec![Event::Cluster(founded)]).await?;
        Ok(log)
    }

    /// Writes a log with this many entries.
    async fn with_entries(entries: u64) -> Result<Self, Failed> {
        let (mut log, steps) = (Self::new().await?, lifecycle());
        while log.world.position().0 < entries {
            log.next_step(&steps).await?;
        }
        Ok(log)
    }

    /// Takes the next step. All lifecycles of a round take the same step before any takes the next one.
    async fn next_step(&mut self, steps: &[Step]) -> Result<(), Failed> {
        let (turn, life) =
            (self.steps_taken / CONCURRENT_LIFECYCLES, self.steps_taken % CONCURRENT_LIFECYCLES);
        let (round, step) = (turn / steps.len() as u64, turn % steps.len() as u64);
        self.steps_taken += 1;
        self.step(round * CONCURRENT_LIFECYCLES + life, steps[usize::try_from(step)?]).await
    }

    async fn step(&mut self, life: u64, step: Step) -> Result<(), Failed> {
        self.now = Timestamp(self.now.0 + 1_700_000);
        let name = format!("p{life}");
        let process = fixtures::process_guid(&name);
        let of_process = |command| -> Result<_, Failed> {
            let (known, now) = (self.world.process(&process), self.now);
            let context = machines::process::Context {
                now,
                is_fresh: true,
                is_present: &|_| true,
                is_known: &|_| true,
                for_each_cell: &|_| {},
            };
            let events =
                machines::process::decide(known, &command, context).map_err(|why| why.to_string())?;
            let epoch = known.map_or(Epoch(now), |known| known.epoch);
            let aggregate =
                Aggregate::Process { guid: process.clone(), domain: fixtures::domain("shop"), epoch };
            Ok((aggregate, known.map_or(0, |known| known.version) + 1, events))
        };
        let guid = fixtures::task_guid(&format!("t{life}"));
        let of_task = |command| -> Result<_, Failed> {
            let (known, now) = (self.world.task(&guid), self.now);
            let context = machines::task::Context { now, is_present: &|_| true };
            let events = machines::task::decide(known, &command, context).map_err(|why| why.to_string())?;
            let epoch = known.map_or(Epoch(now), |known| known.epoch);
            let aggregate = Aggregate::Task { guid: guid.clone(), domain: fixtures::domain("shop"), epoch };
            Ok((aggregate, known.map_or(0, |known| known.version) + 1, events))
        };
        let (aggregate, version, events) = match step {
            Step::Desire => {
                of_process(process::Command::Desire(fixtures::lrp(&name, "shop", INSTANCES).into()))?
            }
            Step::Scale => {
                let update = DesiredLrpUpdate { instances: Some(2), ..DesiredLrpUpdate::default() };
                of_process(process::Command::Update(update))?
            }
            Step::Remove => of_process(process::Command::Remove)?,
            Step::Report(index, what) => of_process(self.report(life, index, what))?,
            Step::DesireTask => of_task(task::Command::Desire(fixtures::task(guid.as_str(), "shop").into()))?,
            Step::ReportTask(ended) => of_task(self.report_task(life, ended))?,
            Step::ResolveTask => of_task(task::Command::Resolve)?,
        };
        self.append(aggregate, version, events).await
    }

    fn report(&self, life: u64, index: u32, what: Reported) -> process::Command {
        let name = format!("p{life}");
        let known = self.world.process(&fixtures::process_guid(&name));
        let place = Place::new(index, fixtures::definition_id(&name));
        let step = match what {
            Reported::Claimed => actual::Command::Claim { placement: None },
            Reported::Started => {
                actual::Command::Start { net: NetInfo::default(), isolation: Isolation::NONE }
            }
            Reported::Crashed => {
                actual::Command::Crash { reason: "Exited with status 1".into(), exit_status: Some(1) }
            }
            Reported::Gone => actual::Command::Remove,
        };
        let held = known.and_then(|known| known.actual(&place)).and_then(|lrp| lrp.holder()).cloned();
        let fresh = fixtures::instance(self.now.0, &format!("c{}", life % 50));
        process::Command::Report(process::Report {
            domain: fixtures::domain("shop"),
            epoch: known.map_or(Epoch(self.now), |known| known.epoch),
            by: held.unwrap_or(fresh),
            observed_at: self.now,
            steps: vec![process::ReportStep::Actual(step)],
            place,
        })
    }

    fn report_task(&self, life: u64, ended: bool) -> task::Command {
        let known = self.world.task(&fixtures::task_guid(&format!("t{life}")));
        let outcome = task::Outcome::Succeeded { result: "42".into() };
        let held = known.and_then(machines::task::Task::holder).cloned();
        let fresh = fixtures::instance(self.now.0, &format!("c{}", life % 50));
        task::Command::Report(task::Report {
            domain: fixtures::domain("shop"),
            epoch: known.map_or(Epoch(self.now), |known| known.epoch),
            by: held.unwrap_or(fresh),
            step: match ended {
                false => task::ReportStep::Start { placement: None, isolation: Isolation::NONE },
                true => task::ReportStep::Complete { outcome },
            },
        })
    }

    async fn append(&mut self, aggregate: Aggregate, version: u64, events: Vec<Event>) -> Result<(), Failed> {
        if events.is_empty() {
            return Ok(());
        }
        let subject = aggregate.subject(SHARDS);
        let (domain, name) = (fixtures::domain("shop"), ClientName::new("bench")?);
        let decision = fixtures::decision(self.ids.next(self.now), self.now, aggregate, events);
        let entry = fixtures::entry(Decision { version, actor: Actor::Client { domain, name }, ..decision });
        let expected = self.last.get(&subject).copied().unwrap_or(Position(0));
        let bytes = entry.encode().into();
        let append = Append { subject: subject.clone(), expected, entry: entry.id, bytes };
        let position = self.journal.append(append).await?;
        self.last.insert(subject, position);
        self.world.fold(position, &entry);
        Ok(())
    }
}

/// Folds the log without writing to a database.
async fn fold(journal: &Journal, end: Position) -> Result<(), Failed> {
    let (mut projector, mut follower) = (Projector::default(), journal.follow(Position(0)));
    while projector.position() < end {
        for one in follower.next_batch(4_000).await? {
            projector.fold(&one)?;
        }
        drop(projector.take_batch());
    }
    Ok(())
}

/// Projects the log, and measures the delay while the log grows.
async fn project(log: &mut Log, url: &Url) -> Result<(), Failed> {
    let (journal, stop) = (log.journal.clone(), CancellationToken::new());
    let (told, mut heard) = mpsc::unbounded_channel();
    let running = run(&journal, QuarantinedPositions::new(), url, &stop, |at| {
        if let Some(at) = at {
            // A send fails only if the receiver was dropped, just before the stop.
            told.send((at.position, Instant::now())).ok();
        }
    });
    let writing = async {
        let (kind, began) = (url.to_string(), Instant::now());
        let kind = kind.split(':').next().unwrap_or_default();
        let end = log.world.position();
        wait_for_position(&mut heard, end).await?;
        print_rate(kind, end.0, began);
        let steps = lifecycle();
        let mut behind = vec![];
        for nth in 0..=PACED_ENTRIES {
            tokio::time::sleep(PACED_INTERVAL).await;
            log.next_step(&steps).await?;
            let written = Instant::now();
            let seen = wait_for_position(&mut heard, log.world.position()).await?;
            // The delay of the first entry is not counted, because this entry waits for the indexes.
            behind.extend((nth > 0).then(|| seen - written));
        }
        behind.sort();
        println!(
            "{kind:10} lag: p50 {:.1?}, p99 {:.1?}",
            behind[PACED_ENTRIES / 2],
            behind[PACED_ENTRIES * 99 / 100]
        );
        stop.cancel();
        Ok::<(), Failed>(())
    };
    let (ran, written) = tokio::join!(running, writing);
    ran?;
    written
}

/// Returns the time at which the tables reached a position.
async fn wait_for_position(
    heard: &mut mpsc::UnboundedReceiver<(Position, Instant)>,
    position: Position,
) -> Result<Instant, Failed> {
    loop {
        match heard.recv().await {
            Some((at, when)) if at >= position => return Ok(when),
            Some(_) => {}
            None => return Err("the projector has stopped".into()),
        }
    }
}

fn print_rate(what: &str, entries: u64, began: Instant) {
    let seconds = began.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("?").trim().to_owned();
    let rate = entries as f64 / seconds;
    println!("{what:10} {seconds:7.2} s {rate:9.0} entries/s, {resident} resident afterwards");
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let mut words = std::env::args().skip(1);
    let entries = words.next().map_or(Ok(100_000), |word| word.parse::<u64>())?;
    let began = Instant::now();
    let mut log = Log::with_entries(entries).await?;
    print_rate("writing", entries, began);
    let end = log.journal.end().await?;
    let began = Instant::now();
    fold(&log.journal, end).await?;
    print_rate("folding", end.0, began);
    let given: Vec<String> = words.collect();
    let (folder, server);
    let urls = if given.is_empty() {
        folder = tempfile::tempdir()?;
        server = Postgres::start_with(&["fsync=on"])?;
        vec![
            format!("sqlite:{}", folder.path().join("tables.db").display()),
            server.url("postgres", "postgres"),
        ]
    } else {
        given
    };
    for url in urls {
        project(&mut log, &url.parse()?).await?;
    }
    Ok(())
}
