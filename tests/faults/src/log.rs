//! Content of an export of the journal: the positions of each request, and the outcome of each task.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use audit::export::{ParsedLine, Reader};
use schemas::entry::{Aggregate, Event};
use schemas::names::{EntryId, TaskGuid};
use schemas::task::{self, Outcome};
use schemas::{Entry, Position};

use crate::error::{Failed, Result};

/// Content of the log.
#[derive(Debug, Default)]
pub struct Log {
    pub messages: u64,
    /// Positions of each request, by request id.
    pub requests: BTreeMap<String, Vec<Position>>,
    /// All tasks in the log, with their outcome. `None` if a task has not completed yet.
    pub tasks: BTreeMap<TaskGuid, Option<Outcome>>,
    /// Entries that occur more than once.
    pub duplicates: Vec<EntryId>,
    pub ids: BTreeSet<EntryId>,
}

impl Log {
    /// Reads an export.
    ///
    /// # Errors
    /// Returns an error if the file is not a complete export.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Failed::context(path.display()))?;
        let (mut file, mut reader) = (BufReader::new(file), Reader::default());
        let (mut log, mut line) = (Self::default(), vec![]);
        while file.read_until(b'\n', &mut line).map_err(Failed::context(path.display()))? > 0 {
            match reader.take(&line).map_err(Failed::context(path.display()))? {
                ParsedLine::Header(_) | ParsedLine::Manifest(_) => {}
                ParsedLine::Message(message) => {
                    log.messages += 1;
                    // The verification of the log reports messages that are not entries.
                    if let Ok(entry) = Entry::decode(&message.bytes) {
                        log.add(message.position, entry);
                    }
                }
            }
            line.clear();
        }
        reader.finish().map_err(Failed::context(path.display()))?;
        Ok(log)
    }

    fn add(&mut self, position: Position, entry: Entry) {
        if !self.ids.insert(entry.id) {
            self.duplicates.push(entry.id);
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

    /// Returns the positions of a request.
    #[must_use]
    pub fn positions_of(&self, request: &str) -> &[Position] {
        self.requests.get(request).map_or(&[], Vec::as_slice)
    }
}
