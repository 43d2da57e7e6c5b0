//! What-if analysis: continues the recorded cluster with changes, in virtual time. Writes nothing.

use std::time::Duration;

use scenario::change::Unread;
use scenario::what_if::{Failed, Length, NoAnswer, PATIENCE};
use scenario::{Change, Recording, WhatIf};
use schemas::spec::Item;
use schemas::{Position, Refusal, Timestamp};
use serde::Serialize;
use text::suggestions::similar_names;

use crate::Error;

/// Result of a what-if analysis.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIfResult {
    /// Log position that the simulation started from.
    pub position: Position,
    /// Time of the entry at this position.
    pub time: Timestamp,
    /// Changes, in their order.
    pub changes: Vec<String>,
    #[serde(flatten)]
    pub effects: WhatIf,
}

/// Reason that a change cannot be read.
#[derive(Debug)]
pub enum UnreadChange<E> {
    /// The change is not valid.
    Invalid(Error),
    /// The file of a change cannot be read.
    File {
        /// Number and text of the change, such as `change 1 (apply web.toml)`.
        change: String,
        error: E,
    },
}

/// Parses changes, see [`scenario::change`]. `read` returns the items of a file that a change names.
///
/// # Errors
/// A change is not valid, or `read` fails.
pub fn parse_changes<E>(
    lines: &[String],
    read: &mut dyn FnMut(&str) -> Result<Vec<Item>, E>,
) -> Result<Vec<Change>, UnreadChange<E>> {
    let mut changes = vec![];
    for (at, line) in lines.iter().enumerate() {
        match Change::read(line, read) {
            Ok(change) => changes.extend(change),
            Err(Unread::Words(why)) => {
                return Err(UnreadChange::Invalid(Error::Invalid(format!("{}: {why}", numbered(at, line)))));
            }
            Err(Unread::File(error)) => {
                return Err(UnreadChange::File { change: numbered(at, line), error });
            }
        }
    }
    Ok(changes)
}

/// Formats the number and the text of a change.
fn numbered(at: usize, line: &str) -> String {
    format!("change {} ({line})", at + 1)
}

/// Continues a recorded cluster with changes, for `length` after the last change. If `length` is `None`, the
/// simulation ends when the cluster is at rest. `lines` are the texts of the changes.
///
/// # Errors
/// The cluster refuses a change, or the simulation cannot continue from the log.
pub fn what_if(
    recording: &Recording,
    lines: Vec<String>,
    changes: &[Change],
    length: Option<Duration>,
) -> Result<WhatIfResult, Error> {
    let length = length.map_or(Length::Rest(PATIENCE), Length::Time);
    match recording.what_if(changes, length) {
        Ok(effects) => Ok(WhatIfResult {
            position: recording.position(),
            time: recording.time(),
            changes: lines,
            effects,
        }),
        Err(no) => Err(no_answer(no, &lines, recording)),
    }
}

/// Returns the error if there is no answer. It contains similar names.
fn no_answer(no: NoAnswer, lines: &[String], recording: &Recording) -> Error {
    let refusal = match no.why {
        Failed::Unusable(unusable) => return unusable.into(),
        Failed::Refused(refusal) => refusal,
    };
    let change = no.change.and_then(|at| Some(numbered(at, lines.get(at)?)));
    Error::RefusedChange { change, similar: similar(&refusal, recording), refusal }
}

/// Returns the names that are similar to the missing name of a refusal.
fn similar(refusal: &Refusal, recording: &Recording) -> Vec<String> {
    let mut words = refusal.message.split_whitespace();
    let (Some(what), Some(name)) = (words.next(), words.next()) else { return vec![] };
    let world = recording.world();
    let names = match what {
        "process" => similar_names(name, world.processes_from(None).map(|process| process.guid.as_str())),
        "cell" => similar_names(name, world.cells().map(|(id, _)| id.as_str())),
        "task" => similar_names(name, world.tasks_from(None).map(|task| task.guid.as_str())),
        _ => vec![],
    };
    names.into_iter().map(str::to_owned).collect()
}
