//! Long history for a new cluster: a log for `muster import`. The state machine of processes made its
//! decisions.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use audit::Message;
use audit::export::Writer;
use projections::World;
use schemas::container::Epoch;
use schemas::definition::DesiredLrpUpdate;
use schemas::entry::{Aggregate, Event};
use schemas::names::{ClientName, ClusterId, IdGenerator};
use schemas::stamp::Actor;
use schemas::{Decision, Position, Timestamp, cluster, process};

use crate::error::{Failed, Result};

/// Shard count of the cluster.
const SHARDS: u16 = 32;
/// Number of processes that exist at the same time.
const CONCURRENT_PROCESSES: u64 = 256;
/// Number of decisions about a process: it is desired, changed repeatedly, and removed.
const DECISIONS_PER_PROCESS: u64 = 10;
/// Domain of the processes and of the client that desired them.
const DOMAIN: &str = "past";
/// Time of the first decision, in seconds of Unix time.
const START_SECONDS: u64 = 1_700_000_000;
/// Nanoseconds between two decisions.
const DECISION_INTERVAL_NANOS: u64 = 1_000_000;

/// Writes a log of at least this number of entries. No process is desired at its end.
///
/// # Errors
/// Returns an error if the file can't be written.
pub fn write(path: &Path, entries: u64) -> Result<()> {
    let file = File::create(path).map_err(Failed::context(path.display()))?;
    let mut past = LogWriter::found(BufWriter::new(file))?;
    let mut round = 0;
    while past.world.position().0 < entries {
        for step in 0..DECISIONS_PER_PROCESS {
            (0..CONCURRENT_PROCESSES).try_for_each(|nth| {
                past.step(&format!("past-{}", round * CONCURRENT_PROCESSES + nth), step)
            })?;
        }
        round += 1;
    }
    past.finish()
}

struct LogWriter<W> {
    world: World,
    ids: IdGenerator,
    now: Timestamp,
    who: ClientName,
    lines: Writer,
    out: W,
}

impl<W: Write> LogWriter<W> {
    fn found(out: W) -> Result<Self> {
        let (mut ids, now) = (IdGenerator::new(1), Timestamp::from_seconds(START_SECONDS));
        let id = ClusterId(ids.next(now));
        let (lines, head) = Writer::start("muster 0.1.0", id, Position(1));
        let who = ClientName::new("load").map_err(Failed::context("load"))?;
        let mut past = Self { world: World::new(), ids, now, who, lines, out };
        past.put(&head)?;
        let founded = cluster::Event::Founded { id, shards: SHARDS, format: cluster::FORMAT };
        let by = Actor::Bbs(fixtures::service_id("bbs-1"));
        past.append(by, Aggregate::Cluster, 1, vec![Event::Cluster(founded)])?;
        Ok(past)
    }

    /// Appends the decision for one step in the life of a process.
    fn step(&mut self, name: &str, step: u64) -> Result<()> {
        self.now = Timestamp(self.now.0 + DECISION_INTERVAL_NANOS);
        let (guid, domain) = (fixtures::process_guid(name), fixtures::domain(DOMAIN));
        let annotation = Some(format!("change {step}"));
        let command = match step {
            0 => process::Command::Desire(fixtures::lrp(name, DOMAIN, 0).into()),
            last if last + 1 == DECISIONS_PER_PROCESS => process::Command::Remove,
            _ => process::Command::Update(DesiredLrpUpdate { annotation, ..DesiredLrpUpdate::default() }),
        };
        let known = self.world.process(&guid);
        let context = machines::process::Context {
            now: self.now,
            is_fresh: false,
            is_present: &|_| false,
            is_known: &|_| true,
            for_each_cell: &|_| {},
        };
        let events = machines::process::decide(known, &command, context).map_err(Failed::context(name))?;
        let epoch = known.map_or(Epoch(self.now), |known| known.epoch);
        let version = known.map_or(0, |known| known.version) + 1;
        let actor = Actor::Client { domain: domain.clone(), name: self.who.clone() };
        self.append(actor, Aggregate::Process { guid, domain, epoch }, version, events)
    }

    fn append(&mut self, actor: Actor, aggregate: Aggregate, version: u64, events: Vec<Event>) -> Result<()> {
        let subject = aggregate.subject(SHARDS).to_string();
        let decision = fixtures::decision(self.ids.next(self.now), self.now, aggregate, events);
        let entry = fixtures::entry(Decision { version, actor, ..decision });
        let position = Position(self.world.position().0 + 1);
        let message = Message { position, subject, id: Some(entry.id), bytes: entry.encode() };
        let line = self.lines.add(&message).map_err(Failed::context("generated log"))?;
        self.put(&line)?;
        self.world.fold(position, &entry);
        Ok(())
    }

    fn put(&mut self, line: &[u8]) -> Result<()> {
        self.out.write_all(line).map_err(Failed::context("generated log"))
    }

    fn finish(self) -> Result<()> {
        let Self { lines, mut out, .. } = self;
        let (_, last) = lines.finish();
        out.write_all(&last).and_then(|()| out.flush()).map_err(Failed::context("generated log"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Log;

    #[test]
    fn written_log_is_a_complete_export() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("past.jsonl");
        write(&path, 3_000).unwrap();
        assert_eq!(Log::read(&path).unwrap().messages, 1 + 2 * CONCURRENT_PROCESSES * DECISIONS_PER_PROCESS);
    }
}
