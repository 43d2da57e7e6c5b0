//! Evaluations: what a story expects of them, as text, from text, and judged.

use std::fmt;

use schemas::evaluation::{Evaluation, Trigger};
use schemas::names::{EvaluationId, ProcessGuid};
use schemas::query::{EvaluationRow, EvaluationState, EvaluationSubject};
use serde::Serialize;
use serde::de::DeserializeOwned;

use scenario::words::{Bad, Words};

/// `evaluation of web complete for scale joined 2 leaves queued`: an evaluation of a process or a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluated {
    /// Its process or task.
    pub of: ProcessGuid,
    /// Where it stands, by the nine names of the document; deleted: none with this trigger is left.
    pub state: EvaluationState,
    /// What made it.
    pub trigger: Trigger,
    /// How many further causes joined it.
    pub joined: Option<u32>,
    /// What is before it in its chain.
    pub before: Option<Before>,
    /// What made the evaluation that waits with what it left.
    pub leaves: Option<Trigger>,
}

/// What is before an evaluation in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// It points to one that was made so, and that one points to it.
    After(Trigger),
    /// It points to none, and none points to it.
    Alone,
}

/// Which evaluations are meant where one is named by what made it: the newest of them.
#[must_use]
pub fn newest<'a>(
    rows: impl Iterator<Item = &'a EvaluationRow>,
    of: &str,
    trigger: Trigger,
) -> Option<&'a EvaluationRow> {
    let is_meant = |row: &&EvaluationRow| subject(row) == of && row.evaluation.trigger == trigger;
    rows.filter(is_meant).max_by_key(|row| (row.evaluation.created_at, row.evaluation.id))
}

fn subject(row: &EvaluationRow) -> &str {
    match &row.subject {
        EvaluationSubject::Process(guid) => guid.as_str(),
        EvaluationSubject::Task(guid) => guid.as_str(),
    }
}

// ---- to text -----------------------------------------------------------------------------------------------------

impl fmt::Display for Evaluated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, state, trigger, joined, before, leaves } = self;
        write!(f, "evaluation of {of} {} for {}", state.as_str(), word(*trigger))?;
        joined.map_or(Ok(()), |times| write!(f, " joined {times}"))?;
        match before {
            None => {}
            Some(Before::After(trigger)) => write!(f, " after {}", word(*trigger))?,
            Some(Before::Alone) => f.write_str(" alone")?,
        }
        leaves.map_or(Ok(()), |trigger| write!(f, " leaves {}", word(trigger)))
    }
}

/// A trigger as the log calls it.
pub(super) fn word(trigger: impl Serialize) -> String {
    let value = serde_json::to_value(trigger).ok();
    value.as_ref().and_then(|value| value.as_str()).unwrap_or_default().to_owned()
}

fn line(row: &EvaluationRow) -> String {
    let Evaluation { trigger, placed, queued, joins, .. } = &row.evaluation;
    let name = row.evaluation.id.to_string();
    let name = &name[name.len() - 4..];
    let pointers = [
        ("previous", row.evaluation.previous),
        ("next", row.evaluation.next),
        ("blocked", row.evaluation.blocked),
    ];
    let pointer = |(name, id): (&str, Option<EvaluationId>)| {
        let id = id?.to_string();
        Some(format!(", {name} {}", &id[id.len() - 4..]))
    };
    let pointers: String = pointers.into_iter().filter_map(pointer).collect();
    let state = row.state.as_str();
    format!(
        "{name} is {state} for {}: placed {placed}, queued {queued}, joined {joins}{pointers}",
        word(trigger)
    )
}

// ---- from text ---------------------------------------------------------------------------------------------------

/// What is expected, behind `evaluation of`.
pub(super) fn read(words: &mut Words) -> Result<Evaluated, Bad> {
    let of = words.name("the name of a process or a task")?;
    let state = named(words, "where an evaluation stands, as pending, delayed, blocked or deleted")?;
    words.must("for")?;
    let trigger = trigger(words)?;
    let joined = if words.take("joined") { Some(words.number()?) } else { None };
    let before = if words.take("after") {
        Some(Before::After(self::trigger(words)?))
    } else if words.take("alone") {
        Some(Before::Alone)
    } else {
        None
    };
    let leaves = if words.take("leaves") { Some(self::trigger(words)?) } else { None };
    Ok(Evaluated { of, state, trigger, joined, before, leaves })
}

/// What made an evaluation.
pub(super) fn trigger(words: &mut Words) -> Result<Trigger, Bad> {
    named(words, "what makes evaluations, as desire, scale, cell_lost or queued")
}

fn named<T: DeserializeOwned>(words: &mut Words, expected: &str) -> Result<T, Bad> {
    words.read(expected, |word| serde_json::from_value(serde_json::Value::from(word)).ok())
}

// ---- judged ------------------------------------------------------------------------------------------------------

impl Evaluated {
    /// Whether it is so.
    pub(super) fn judge(&self, rows: &[EvaluationRow]) -> Result<(), String> {
        let own: Vec<&EvaluationRow> = rows.iter().filter(|row| subject(row) == self.of.as_str()).collect();
        let mut meant = own.iter().filter(|row| row.evaluation.trigger == self.trigger);
        let right = if self.state == EvaluationState::Deleted {
            meant.next().is_none()
        } else {
            meant.any(|row| row.state == self.state && self.fits(&row.evaluation, &own))
        };
        if right {
            return Ok(());
        }
        let lines: Vec<String> = own.into_iter().map(line).collect();
        Err(if lines.is_empty() { format!("{} has no evaluation", self.of) } else { lines.join("; ") })
    }

    fn fits(&self, one: &Evaluation, all: &[&EvaluationRow]) -> bool {
        let made = |id: Option<EvaluationId>, trigger: Trigger| {
            let row =
                all.iter().find(|row| Some(row.evaluation.id) == id && row.evaluation.trigger == trigger);
            row.map(|row| &row.evaluation)
        };
        let points_to_it = |other: &Evaluation| other.next == Some(one.id) || other.blocked == Some(one.id);
        let is_before = match self.before {
            None => true,
            Some(Before::After(trigger)) => made(one.previous, trigger).is_some_and(points_to_it),
            Some(Before::Alone) => {
                one.previous.is_none() && !all.iter().any(|row| points_to_it(&row.evaluation))
            }
        };
        is_before
            && self.joined.is_none_or(|times| one.joins == times)
            && self.leaves.is_none_or(|trigger| made(one.blocked, trigger).is_some())
    }
}
