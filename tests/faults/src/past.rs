//! A long past for a cluster to begin with: a log as `muster import` takes it, of decisions that the machine of processes made.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use audit::Message;
use audit::export::Writer;
use projections::World;
use schemas::container::Epoch;
use schemas::definition::DesiredLrpUpdate;
use schemas::entry::{Actor, Aggregate, Event};
use schemas::names::{ClientName, ClusterId, Ids};
use schemas::{Decision, Position, Timestamp, cluster, process};

use crate::failed::{Failed, Result};

/// How many shards the cluster has.
const SHARDS: u16 = 32;
/// How many processes are there side by side.
const SIDE_BY_SIDE: u64 = 256;
/// How many decisions a process lives: it is desired, changed again and again, and removed.
const LIFE: u64 = 10;
/// Where its processes belong, and who desired them.
const DOMAIN: &str = "past";
/// When it began, in seconds of Unix time: long ago.
const BEGAN: u64 = 1_700_000_000;
/// Nanoseconds from one decision to the next.
const PACE: u64 = 1_000_000;

/// Writes a log of at least so many entries, in which nothing is desired any more at the end.
///
/// # Errors
/// It can't be written.
pub fn write(path: &Path, entries: u64) -> Result<()> {
    let file = File::create(path).map_err(Failed::at(path.display()))?;
    let mut past = Past::found(BufWriter::new(file))?;
    let mut round = 0;
    while past.world.position().0 < entries {
        for step in 0..LIFE {
            (0..SIDE_BY_SIDE)
                .try_for_each(|nth| past.step(&format!("past-{}", round * SIDE_BY_SIDE + nth), step))?;
        }
        round += 1;
    }
    past.finish()
}

struct Past<W> {
    world: World,
    ids: Ids,
    now: Timestamp,
    who: ClientName,
    lines: Writer,
    out: W,
}

impl<W: Write> Past<W> {
    fn found(out: W) -> Result<Self> {
        let (mut ids, now) = (Ids::new(1), Timestamp::from_seconds(BEGAN));
        let id = ClusterId(ids.next(now));
        let (lines, head) = Writer::begin("muster 0.1.0", id, Position(1));
        let who = ClientName::new("load").map_err(Failed::at("load"))?;
        let mut past = Self { world: World::new(), ids, now, who, lines, out };
        past.put(&head)?;
        let founded = cluster::Event::Founded { id, shards: SHARDS, format: cluster::FORMAT };
        let by = Actor::Bbs(fixtures::service_id("bbs-1"));
        past.append(by, Aggregate::Cluster, 1, vec![Event::Cluster(founded)])?;
        Ok(past)
    }

    /// Takes a step of a process's life.
    fn step(&mut self, name: &str, step: u64) -> Result<()> {
        self.now = Timestamp(self.now.0 + PACE);
        let (guid, domain) = (fixtures::process_guid(name), fixtures::domain(DOMAIN));
        let annotation = Some(format!("change {step}"));
        let command = match step {
            0 => process::Command::Desire(fixtures::lrp(name, DOMAIN, 0).into()),
            last if last + 1 == LIFE => process::Command::Remove,
            _ => process::Command::Update(DesiredLrpUpdate { annotation, ..DesiredLrpUpdate::default() }),
        };
        let known = self.world.process(&guid);
        let context = process::Context {
            now: self.now,
            fresh: false,
            present: &|_| false,
            known: &|_| true,
            numbered: &|_| {},
        };
        let events = process::decide(known, &command, context).map_err(Failed::at(name))?;
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
        let line = self.lines.line(&message).map_err(Failed::at("the past"))?;
        self.put(&line)?;
        self.world.fold(position, &entry);
        Ok(())
    }

    fn put(&mut self, line: &[u8]) -> Result<()> {
        self.out.write_all(line).map_err(Failed::at("the past"))
    }

    fn finish(self) -> Result<()> {
        let Self { lines, mut out, .. } = self;
        let (_, last) = lines.finish();
        out.write_all(&last).and_then(|()| out.flush()).map_err(Failed::at("the past"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Log;

    #[test]
    fn a_past_is_a_whole_export() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("past.jsonl");
        write(&path, 3_000).unwrap();
        assert_eq!(Log::read(&path).unwrap().messages, 1 + 2 * SIDE_BY_SIDE * LIFE);
    }
}
