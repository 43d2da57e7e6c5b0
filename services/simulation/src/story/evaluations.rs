//! Expectations about evaluations.

use std::fmt;

use schemas::evaluation::{Evaluation, Trigger};
use schemas::names::{EvaluationId, ProcessGuid};
use schemas::query::{EvaluationRow, EvaluationState, EvaluationSubject};
use serde::Serialize;
use serde::de::DeserializeOwned;

use scenario::words::{Bad, Words};

/// Expected evaluation of a process or a task, such as `evaluation of web complete for scale joined 2 leaves
/// queued`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluated {
    /// Process or task.
    pub of: ProcessGuid,
    /// Expected state. `deleted` if no evaluation with this trigger is left.
    pub state: EvaluationState,
    /// Trigger of the evaluation.
    pub trigger: Trigger,
    /// Number of causes that joined the evaluation.
    pub joined: Option<u32>,
    /// Expected parent.
    pub before: Option<Before>,
    /// Trigger of the child that waits with the rest.
    pub leaves: Option<Trigger>,
}

/// Expected parent of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// The parent has this trigger, and refers to the evaluation.
    After(Trigger),
    /// The evaluation has no parent.
    Alone,
}

/// Returns the newest evaluation of a process or a task with this trigger.
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

/// Returns the name of a trigger in the log.
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

/// Parses an expectation after `evaluation of`.
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

/// Parses a trigger.
pub(super) fn trigger(words: &mut Words) -> Result<Trigger, Bad> {
    named(words, "what makes evaluations, as desire, scale, cell_lost or queued")
}

fn named<T: DeserializeOwned>(words: &mut Words, expected: &str) -> Result<T, Bad> {
    words.read(expected, |word| serde_json::from_value(serde_json::Value::from(word)).ok())
}

// ---- judged ------------------------------------------------------------------------------------------------------

impl Evaluated {
    /// Checks the expectation.
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
