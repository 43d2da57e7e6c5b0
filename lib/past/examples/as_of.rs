//! Benchmark of reading the past: `cargo run --release -p past --example as_of -- [entries] [LRPs] [nats]`,
//! or with the log of a cluster: `cargo run --release -p past --example as_of -- nats://127.0.0.1:4222`.
//!
//! By default, the log has a million entries about 5,000 LRPs. Each LRP is desired, claimed, started and
//! scaled repeatedly through the real state machines, with one decision per entry. The log is in memory. With
//! `nats`, the log is in a stream of a separate nats-server.
//!
//! The benchmark prints these times:
//!
//! - to read the end without the snapshot index
//! - to build the snapshot index
//! - to read a random position and a random time with nothing in memory
//! - to read the same position again
#![expect(clippy::print_stdout, reason = "the benchmark prints its result")]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use bus::nats::Settings;
use bytes::Bytes;
use journal::{Append, JetStream, Journal, Memory, StreamSettings};
use machines::process::{self, Context};
use past::Past;
use projections::World;
use schemas::container::{Epoch, Instance, NetInfo};
use schemas::definition::DesiredLrpUpdate;
use schemas::entry::{Aggregate, Event};
use schemas::isolation::Isolation;
use schemas::names::{ClientName, ClusterId, IdGenerator, InstanceGuid, ProcessGuid};
use schemas::process::{Command, Report, ReportStep};
use schemas::stamp::Actor;
use schemas::{Decision, Entry, Place, Position, Subject, Timestamp, actual, cluster, subject};
use support::server::NatsServer;

type Failed = Box<dyn Error + Send + Sync>;

const SHARDS: u16 = subject::DEFAULT_SHARDS;
/// Number of random positions and times.
const SAMPLES: u64 = 20;
const MIB: f64 = 1_048_576.0;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = tempfile::tempdir()?;
    if let Some(url) = arguments.first().filter(|first| first.contains("://")) {
        let journal = open(url.clone()).await?;
        let end = journal.end().await?;
        println!("{end} entries of a cluster");
        return run_benchmark(&journal, &folder.path().join("cache"), end).await;
    }
    let number =
        |at: usize, default_value| arguments.get(at).map_or(Ok(default_value), |text| text.parse::<u64>());
    let (entries, lrps) = (number(0, 1_000_000)?, number(1, 5_000)?);
    let server = match arguments.get(2).map(String::as_str) {
        Some("nats") => Some(NatsServer::start(&folder.path().join("nats")).await?),
        Some(other) => return Err(format!("invalid journal {other:?}: expected nats, or no argument").into()),
        None => None,
    };
    let journal = match &server {
        Some(server) => open(server.url.clone()).await?,
        None => Journal::Memory(Memory::new()),
    };
    let started = Instant::now();
    Log::new(journal.clone()).await?.write(entries, lrps).await?;
    let end = journal.end().await?;
    println!("{end} entries about {lrps} LRPs, written in {:.0} s", started.elapsed().as_secs_f64());
    run_benchmark(&journal, &folder.path().join("cache"), end).await
}

async fn open(url: String) -> Result<Journal, Failed> {
    let settings = Settings::new(vec![url], "as-of", "muster.inbox.as-of");
    Ok(Journal::JetStream(JetStream::open(settings.connect().await?, &StreamSettings::default()).await?))
}

async fn run_benchmark(journal: &Journal, cache: &Path, end: Position) -> Result<(), Failed> {
    let past = Past::open(cache, journal.clone()).await?;
    let started = Instant::now();
    let whole = past.at(end).await?;
    println!("the end without snapshots: {:.2} s", started.elapsed().as_secs_f64());
    let (first, last) = (past.at(Position(1)).await?.latest(), whole.latest());
    drop(whole);
    let started = Instant::now();
    while past.build_next(end).await? {}
    let standing = past.standing();
    println!(
        "snapshot index: {} snapshots, one after every {} entries, {:.0} MiB, built in {:.1} s (half of it \
         pauses)",
        standing.rungs,
        standing.spacing,
        as_f64(standing.bytes) / MIB,
        started.elapsed().as_secs_f64()
    );
    let mut random = IdGenerator::new(9);
    let mut draw = |below: u64| random.next(Timestamp(0)).as_u64_pair().1 % below.max(1);
    let (mut positions, mut times, mut again) = (vec![], vec![], vec![]);
    let mut asked = BTreeSet::new();
    for _ in 0..SAMPLES {
        let position = Position(1 + draw(end.0));
        asked.insert(position);
        // A new instance has nothing in memory from earlier reads.
        let past = Past::open(cache, journal.clone()).await?;
        positions.push(timed(past.at(position)).await?);
        again.push(timed(past.at(position)).await?);
        let time = Timestamp(first.0 + draw(last.0 - first.0));
        let past = Past::open(cache, journal.clone()).await?;
        times.push(timed(past.state_at_time(time)).await?);
    }
    print_times("a random position", positions);
    print_times("a random time", times);
    print_times("the same position again", again);
    compare(journal, cache, &asked).await?;
    let started = Instant::now();
    let verified = past.verify().await?;
    println!(
        "verified: {} snapshots equal the replay, {} differ, {:.1} s",
        verified.equal,
        verified.mismatched.len(),
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Compares answers with a replay from the beginning, without a snapshot index.
async fn compare(journal: &Journal, cache: &Path, asked: &BTreeSet<Position>) -> Result<(), Failed> {
    let started = Instant::now();
    let plain = Past::open_with_spacing(&cache.with_extension("none"), journal.clone(), u64::MAX).await?;
    let mut equal = 0;
    for position in asked {
        let answer = Past::open(cache, journal.clone()).await?.at(*position).await?;
        // Each position continues from the one before, so all of them are one replay.
        equal += u32::from(*plain.at(*position).await? == *answer);
    }
    let (all, took) = (asked.len(), started.elapsed().as_secs_f64());
    println!("compared: {equal} of {all} positions equal a replay from the beginning, {took:.1} s");
    Ok(())
}

async fn timed<T>(asked: impl Future<Output = Result<T, past::Error>>) -> Result<Duration, past::Error> {
    let started = Instant::now();
    asked.await?;
    Ok(started.elapsed())
}

fn print_times(what: &str, mut took: Vec<Duration>) {
    took.sort();
    let millis = |at: usize| took[at].as_secs_f64() * 1_000.0;
    println!("{what}: {:.0} ms median, {:.0} ms maximum", millis(took.len() / 2), millis(took.len() - 1));
}

fn as_f64(number: u64) -> f64 {
    number as f64
}

/// A log that is being written.
struct Log {
    journal: Journal,
    world: World,
    ids: IdGenerator,
    now: Timestamp,
    position: u64,
    /// Position of the last entry of each subject.
    last: BTreeMap<Subject, Position>,
}

impl Log {
    async fn new(journal: Journal) -> Result<Self, Failed> {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let (world, ids, last) = (World::new(), IdGenerator::new(7), BTreeMap::new());
        let mut log = Self { journal, world, ids, now, position: 0, last };
        let id = ClusterId(log.ids.next(now));
        let founded = cluster::Event::Founded { id, shards: SHARDS, format: cluster::FORMAT };
        let entry = log.entry(Aggregate::Cluster, 1, vec![Event::Cluster(founded)]);
        log.append(BTreeMap::from([(Subject::Cluster, vec![entry])])).await?;
        Ok(log)
    }

    /// Applies one step after the other to all LRPs, until the log has `entries` entries.
    async fn write(mut self, entries: u64, lrps: u64) -> Result<(), Failed> {
        let guids: Vec<ProcessGuid> =
            (0..lrps).map(|n| fixtures::process_guid(&format!("app-{n:06}"))).collect();
        for step in 0.. {
            let mut queues: BTreeMap<Subject, Vec<Entry>> = BTreeMap::new();
            for guid in &guids {
                if self.position >= entries {
                    break;
                }
                let entry = self.step(step, guid)?;
                queues.entry(Subject::of_process(guid, SHARDS)).or_default().push(entry);
            }
            if queues.is_empty() {
                return Ok(());
            }
            self.append(queues).await?;
        }
        Ok(())
    }

    /// Returns the next entry of an LRP. The LRP is desired first, and then claimed, started and scaled
    /// repeatedly.
    fn step(&mut self, step: u64, guid: &ProcessGuid) -> Result<Entry, Failed> {
        let index = u32::try_from(step / 3 % 3)?;
        let command = match step % 3 {
            0 if step == 0 => Command::Desire(Box::new(fixtures::lrp(guid.as_str(), "apps", 1))),
            0 => {
                let instances = Some(1 + index);
                Command::Update(DesiredLrpUpdate { instances, ..DesiredLrpUpdate::default() })
            }
            1 => self.report(guid, index, actual::Command::Claim { placement: None }),
            _ => {
                let net = NetInfo { address: "10.0.0.1".into(), ..NetInfo::default() };
                self.report(guid, index, actual::Command::Start { net, isolation: Isolation::NONE })
            }
        };
        let known = self.world.process(guid);
        let context = Context {
            now: self.now.next(),
            is_fresh: true,
            is_present: &|_| true,
            is_known: &|_| true,
            for_each_cell: &|_| {},
        };
        let decided = process::decide(known, &command, context).ok().filter(|events| !events.is_empty());
        let events = match decided {
            Some(events) => events,
            // The step is refused or changes nothing. Change the annotation instead.
            None => {
                let annotation = Some(format!("step {step}"));
                let other = Command::Update(DesiredLrpUpdate { annotation, ..DesiredLrpUpdate::default() });
                process::decide(known, &other, context).map_err(|refusal| refusal.message)?
            }
        };
        let (epoch, version) =
            known.map_or((Epoch(self.now.next()), 1), |known| (known.epoch, known.version + 1));
        let aggregate = Aggregate::Process { guid: guid.clone(), domain: fixtures::domain("apps"), epoch };
        Ok(self.entry(aggregate, version, events))
    }

    /// Returns a report of the rep about an instance.
    fn report(&mut self, guid: &ProcessGuid, index: u32, said: actual::Command) -> Command {
        let known = self.world.process(guid);
        let place = Place::new(index, fixtures::definition_id(guid.as_str()));
        let holder = known.and_then(|known| known.actual(&place)).and_then(|lrp| lrp.holder()).cloned();
        let epoch = known.map(|known| known.epoch).unwrap_or_default();
        let by = holder.unwrap_or_else(|| Instance {
            instance_guid: InstanceGuid(self.ids.next(self.now)),
            cell_id: fixtures::cell_id(&format!("c{}", self.position % 100)),
        });
        let (domain, observed_at, steps) =
            (fixtures::domain("apps"), self.now, vec![ReportStep::Actual(said)]);
        Command::Report(Report { domain, place, epoch, by, observed_at, steps })
    }

    /// Creates an entry with one decision and folds it.
    fn entry(&mut self, aggregate: Aggregate, version: u64, events: Vec<Event>) -> Entry {
        self.now = Timestamp(self.now.0 + 1_000_000);
        let (domain, name) = (fixtures::domain("apps"), ClientName::new("as-of").expect("legal"));
        let decision = fixtures::decision(self.ids.next(self.now), self.now, aggregate, events);
        let entry = fixtures::entry(Decision { version, actor: Actor::Client { domain, name }, ..decision });
        self.position += 1;
        self.world.fold(Position(self.position), &entry);
        entry
    }

    /// Appends the entries of each subject in order, all subjects concurrently.
    async fn append(&mut self, queues: BTreeMap<Subject, Vec<Entry>>) -> Result<(), Failed> {
        let writing = queues.into_iter().map(|(subject, entries)| {
            let journal = self.journal.clone();
            let mut expected = self.last.get(&subject).copied().unwrap_or_default();
            tokio::spawn(async move {
                for entry in entries {
                    let (id, bytes) = (entry.id, Bytes::from(entry.encode()));
                    let append = Append { subject: subject.clone(), expected, entry: id, bytes };
                    expected = journal.append(append).await?;
                }
                Ok::<_, Failed>((subject, expected))
            })
        });
        let writing: Vec<_> = writing.collect();
        for one in writing {
            let (subject, position) = one.await??;
            self.last.insert(subject, position);
        }
        Ok(())
    }
}
