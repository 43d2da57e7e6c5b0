//! The log as the journal itself has it, read by an export: where each request stands, and how each task ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use audit::export::{Reader, Taken};
use schemas::entry::{Aggregate, Event};
use schemas::names::{EntryId, TaskGuid};
use schemas::task::{self, Outcome};
use schemas::{Entry, Position};

use crate::failed::{Failed, Result};

/// What the log says.
#[derive(Debug, Default)]
pub struct Log {
    /// How many messages it has.
    pub messages: u64,
    /// Where each request token stands.
    pub requests: BTreeMap<String, Vec<Position>>,
    /// Every task that was ever desired, with its outcome; none: it has none yet.
    pub tasks: BTreeMap<TaskGuid, Option<Outcome>>,
    /// Entries that stand there a second time.
    pub twice: Vec<EntryId>,
    /// All entries.
    pub ids: BTreeSet<EntryId>,
}

impl Log {
    /// Reads an export.
    ///
    /// # Errors
    /// It is none, or not a whole one.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Failed::at(path.display()))?;
        let (mut file, mut reader) = (BufReader::new(file), Reader::default());
        let (mut log, mut line) = (Self::default(), vec![]);
        while file.read_until(b'\n', &mut line).map_err(Failed::at(path.display()))? > 0 {
            match reader.take(&line).map_err(Failed::at(path.display()))? {
                Taken::Head(_) | Taken::Manifest(_) => {}
                Taken::Message(message) => {
                    log.messages += 1;
                    // What is no entry verifying tells.
                    if let Ok(entry) = Entry::decode(&message.bytes) {
                        log.add(message.position, entry);
                    }
                }
            }
            line.clear();
        }
        reader.finish().map_err(Failed::at(path.display()))?;
        Ok(log)
    }

    fn add(&mut self, position: Position, entry: Entry) {
        if !self.ids.insert(entry.id) {
            self.twice.push(entry.id);
        }
        for decision in entry.decisions {
            if let Some(request) = decision.request_id {
                self.requests.entry(request.to_string()).or_default().push(position);
            }
            let Aggregate::Task { guid, .. } = decision.aggregate else { continue };
            let known = self.tasks.entry(guid).or_default();
            for event in decision.events {
                if let Event::Task(task::Event::Completed { outcome, .. }) = event {
                    *known = Some(outcome);
                }
            }
        }
    }

    /// Where a request stands.
    #[must_use]
    pub fn of(&self, request: &str) -> &[Position] {
        self.requests.get(request).map_or(&[], Vec::as_slice)
    }
}
