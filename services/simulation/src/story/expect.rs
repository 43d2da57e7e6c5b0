//! Expectations of stories as text.

use std::fmt;
use std::time::Duration;

use schemas::actual::StopReason;
use schemas::ended::EndKind;
use schemas::names::{CellId, DefinitionId, ProcessGuid, TaskGuid};

use scenario::words::{Bad, Quoted, Time, Words};

use crate::shape::Shape;
use crate::story::asks::instance;
use crate::story::evaluations::Evaluated;
use crate::story::rolling::{name_in, named};
use crate::story::{evaluations, words};

/// Expectation from a time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    pub what: What,
    pub when: When,
}

/// Time at which an expectation must be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At the given time.
    Now,
    /// At the given time, or at most this long after it.
    Within(Duration),
    /// At all times from the given time until this one.
    Until(Duration),
}

/// Expected state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Record of an instance: `web/0 RUNNING of v2 on c1 crashes 2`.
    Instance {
        process: ProcessGuid,
        index: u32,
        /// One of [`INSTANCE_STATES`].
        state: &'static str,
        definition: Option<DefinitionId>,
        /// Placement error or crash reason.
        reason: Option<String>,
        /// Cell.
        place: Option<Where>,
        /// Crash count.
        crashes: Option<u32>,
    },
    /// Ended container of an index, among those that are shown: `web/0 ended stopped for scale`.
    Ended {
        process: ProcessGuid,
        index: u32,
        how: EndKind,
        /// Reason of the stop.
        stop: Option<StopReason>,
    },
    /// Number of ended containers of an index that are shown: `web/0 ended 2 times`.
    EndedTimes { process: ProcessGuid, index: u32, times: usize },
    /// No record of an instance: `web/0 gone`.
    NoInstance(ProcessGuid, u32),
    /// Evacuating record of an index: `web/0 evacuating on c1`, or none: `web/0 not evacuating`.
    Twin(ProcessGuid, u32, Option<CellId>),
    /// Exact numbers of instances by state: `web: 2 RUNNING, 1 CRASHED of v2 on c1`.
    Count {
        process: ProcessGuid,
        counts: Vec<(usize, &'static str)>,
        /// Counts only instances of this definition.
        definition: Option<DefinitionId>,
        /// Counts only instances on this cell.
        on: Option<CellId>,
    },
    /// Healthy definition: `web healthy v2`, `web healthy none`.
    Healthy(ProcessGuid, Option<DefinitionId>),
    /// Exact definitions of a process, oldest first: `web definitions v1, v2`.
    Definitions(ProcessGuid, Vec<DefinitionId>),
    /// State of the current or last rollout, one of [`ROLLOUT_STATES`]: `web rollout paused`.
    Rollout(ProcessGuid, &'static str),
    /// No process and no task of this name: `web gone`.
    Gone(ProcessGuid),
    /// State of a task: `job1 COMPLETED failed "cancelled"`.
    Task {
        task: TaskGuid,
        /// One of [`TASK_STATES`].
        state: &'static str,
        /// `true` if the task failed.
        failed: bool,
        /// Result, failure reason or placement error.
        text: Option<String>,
        /// Cell.
        place: Option<Where>,
    },
    /// State of a cell: `cell c1 absent`.
    Cell(CellId, &'static str),
    /// Answer of a task's owner: `owner of job1 told`.
    Owner {
        task: TaskGuid,
        /// `true` if the owner gave a final answer.
        told: bool,
    },
    /// Evaluation: `evaluation of web blocked for queued after desire`.
    Evaluation(Evaluated),
}

/// Expected cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// This cell.
    On(CellId),
    /// Any other cell.
    NotOn(CellId),
}

pub const INSTANCE_STATES: [&str; 4] = ["UNCLAIMED", "CLAIMED", "RUNNING", "CRASHED"];
pub const TASK_STATES: [&str; 4] = ["PENDING", "RUNNING", "COMPLETED", "RESOLVING"];
pub const ROLLOUT_STATES: [&str; 6] =
    ["updating", "paused", "completed", "rollback_started", "rollback_paused", "rollback_completed"];
pub const CELL_STATES: [&str; 4] = ["present", "evacuating", "unhealthy", "absent"];

/// Text of a parse error about a definition.
const DEFINITION: &str = "the id of a definition";

/// Names of the ends of a container.
const HOWS: [(&str, EndKind); 7] = [
    ("crashed", EndKind::Crashed),
    ("stopped", EndKind::Stopped),
    ("crashed-stopping", EndKind::CrashedStopping),
    ("cell-lost", EndKind::CellLost),
    ("evacuated", EndKind::Evacuated),
    ("evacuation-expired", EndKind::EvacuationExpired),
    ("displaced", EndKind::Displaced),
];

/// Names of the reasons of a stop.
const STOPS: [(&str, StopReason); 9] = [
    ("removed", StopReason::Removed),
    ("scale", StopReason::Scale),
    ("cell-unfit", StopReason::CellUnfit),
    ("retired", StopReason::Retired),
    ("superseded", StopReason::Superseded),
    ("undesired", StopReason::Undesired),
    ("replaced", StopReason::Replaced),
    ("rollout-failed", StopReason::RolloutFailed),
    ("preempted", StopReason::Preempted),
];

// ---- to text -----------------------------------------------------------------------------------------------------

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expect {}", self.what)?;
        match self.when {
            When::Now => Ok(()),
            When::Within(time) => write!(f, " within {}", Time(time)),
            When::Until(moment) => write!(f, " until {}", Time(moment)),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance { process, index, state, definition, reason, place, crashes } => {
                write!(f, "{process}/{index} {state}")?;
                of_definition(f, definition.as_ref())?;
                quoted(f, reason.as_deref())?;
                placed(f, place.as_ref())?;
                crashes.map_or(Ok(()), |crashes| write!(f, " crashes {crashes}"))
            }
            Self::Ended { process, index, how, stop } => {
                write!(f, "{process}/{index} ended {}", name_in(&HOWS, how))?;
                stop.map_or(Ok(()), |stop| write!(f, " for {}", name_in(&STOPS, &stop)))
            }
            Self::EndedTimes { process, index, times } => write!(f, "{process}/{index} ended {times} times"),
            Self::NoInstance(process, index) => write!(f, "{process}/{index} gone"),
            Self::Twin(process, index, Some(cell)) => write!(f, "{process}/{index} evacuating on {cell}"),
            Self::Twin(process, index, None) => write!(f, "{process}/{index} not evacuating"),
            Self::Count { process, counts, definition, on } => {
                let counts: Vec<String> =
                    counts.iter().map(|(count, state)| format!("{count} {state}")).collect();
                write!(f, "{process}: {}", counts.join(", "))?;
                of_definition(f, definition.as_ref())?;
                on.as_ref().map_or(Ok(()), |cell| write!(f, " on {cell}"))
            }
            Self::Healthy(process, definition) => {
                let definition = definition.as_ref().map_or("none", DefinitionId::as_str);
                write!(f, "{process} healthy {definition}")
            }
            Self::Definitions(process, definitions) => {
                let definitions: Vec<&str> = definitions.iter().map(DefinitionId::as_str).collect();
                write!(f, "{process} definitions {}", definitions.join(", "))
            }
            Self::Rollout(process, state) => write!(f, "{process} rollout {state}"),
            Self::Gone(name) => write!(f, "{name} gone"),
            Self::Task { task, state, failed, text, place } => {
                write!(f, "{task} {state}{}", if *failed { " failed" } else { "" })?;
                quoted(f, text.as_deref())?;
                placed(f, place.as_ref())
            }
            Self::Cell(cell, state) => write!(f, "cell {cell} {state}"),
            Self::Owner { task, told } => {
                write!(f, "owner of {task} {}told", if *told { "" } else { "not " })
            }
            Self::Evaluation(evaluated) => evaluated.fmt(f),
        }
    }
}

fn of_definition(f: &mut fmt::Formatter<'_>, definition: Option<&DefinitionId>) -> fmt::Result {
    definition.map_or(Ok(()), |definition| write!(f, " of {definition}"))
}

fn quoted(f: &mut fmt::Formatter<'_>, text: Option<&str>) -> fmt::Result {
    text.map_or(Ok(()), |text| write!(f, " {}", Quoted(text)))
}

fn placed(f: &mut fmt::Formatter<'_>, place: Option<&Where>) -> fmt::Result {
    match place {
        None => Ok(()),
        Some(Where::On(cell)) => write!(f, " on {cell}"),
        Some(Where::NotOn(cell)) => write!(f, " not on {cell}"),
    }
}

// ---- from text ---------------------------------------------------------------------------------------------------

/// Parses an expectation after `expect`.
pub(super) fn read(words: &mut Words, shape: Shape) -> Result<Expect, Bad> {
    let what = what(words, shape)?;
    let when = if words.take("within") {
        When::Within(words.duration()?)
    } else if words.take("until") {
        When::Until(words.duration()?)
    } else {
        When::Now
    };
    Ok(Expect { what, when })
}

fn what(words: &mut Words, shape: Shape) -> Result<What, Bad> {
    if words.take("cell") {
        let cell = words::cell_id(words, shape)?;
        return Ok(What::Cell(cell, state(words, CELL_STATES)?));
    }
    if words.take("owner of") {
        let task = words.name("the name of a task")?;
        let told = !words.take("not");
        words.must("told")?;
        return Ok(What::Owner { task, told });
    }
    if words.take("evaluation of") {
        return evaluations::read(words).map(What::Evaluation);
    }
    if words.peek().is_some_and(|word| word.contains('/')) {
        return of_instance(words, shape);
    }
    let name: ProcessGuid =
        words.name("an instance as web/0, a process as web:, a task, a cell, an owner or an evaluation")?;
    if words.take("gone") {
        return Ok(What::Gone(name));
    }
    if words.take(":") {
        return of_process(name, words, shape);
    }
    if words.take("healthy") {
        let known = if words.take("none") { None } else { Some(words.name(DEFINITION)?) };
        return Ok(What::Healthy(name, known));
    }
    if words.take("definitions") {
        return definitions(words).map(|definitions| What::Definitions(name, definitions));
    }
    if words.take("rollout") {
        return Ok(What::Rollout(name, state(words, ROLLOUT_STATES)?));
    }
    let state = state(words, TASK_STATES)?;
    let failed = matches!(state, "COMPLETED" | "RESOLVING") && words.take("failed");
    let text = if state == "RUNNING" { None } else { words.take_quoted() };
    let place = if state == "PENDING" { None } else { place(words, shape)? };
    let task =
        TaskGuid::new(name.as_str()).map_err(|_| words.bad(format!("{name} is not a name of a task")))?;
    Ok(What::Task { task, state, failed, text, place })
}

fn of_instance(words: &mut Words, shape: Shape) -> Result<What, Bad> {
    let (process, index) = instance(words)?;
    if words.take("gone") {
        return Ok(What::NoInstance(process, index));
    }
    if words.take("ended") {
        if let Some(times) = words.take_number() {
            words.must("times")?;
            return Ok(What::EndedTimes { process, index, times });
        }
        let how = named(&HOWS, words)?;
        let stop = if words.take("for") { Some(named(&STOPS, words)?) } else { None };
        return Ok(What::Ended { process, index, how, stop });
    }
    if words.take("not evacuating") {
        return Ok(What::Twin(process, index, None));
    }
    if words.take("evacuating") {
        words.must("on")?;
        return Ok(What::Twin(process, index, Some(words::cell_id(words, shape)?)));
    }
    let state = state(words, INSTANCE_STATES)?;
    let definition = definition(words)?;
    let reason = if matches!(state, "UNCLAIMED" | "CRASHED") { words.take_quoted() } else { None };
    let place = if matches!(state, "CLAIMED" | "RUNNING") { place(words, shape)? } else { None };
    let crashes = if words.take("crashes") { Some(words.number()?) } else { None };
    Ok(What::Instance { process, index, state, definition, reason, place, crashes })
}

fn of_process(process: ProcessGuid, words: &mut Words, shape: Shape) -> Result<What, Bad> {
    let mut counts = vec![];
    loop {
        counts.push((words.number()?, state(words, INSTANCE_STATES)?));
        if !words.take(",") {
            break;
        }
    }
    let definition = definition(words)?;
    let on = if words.take("on") { Some(words::cell_id(words, shape)?) } else { None };
    Ok(What::Count { process, counts, definition, on })
}

/// Parses `of v2`. `None` if the next word is not `of`.
fn definition(words: &mut Words) -> Result<Option<DefinitionId>, Bad> {
    if words.take("of") { words.name(DEFINITION).map(Some) } else { Ok(None) }
}

/// `v1, v2`.
fn definitions(words: &mut Words) -> Result<Vec<DefinitionId>, Bad> {
    let mut definitions = vec![words.name(DEFINITION)?];
    while words.take(",") {
        definitions.push(words.name(DEFINITION)?);
    }
    Ok(definitions)
}

fn state<const N: usize>(words: &mut Words, states: [&'static str; N]) -> Result<&'static str, Bad> {
    let expected = format!("a state: {}", states.join(", "));
    words.read(&expected, |word| states.into_iter().find(|state| *state == word))
}

fn place(words: &mut Words, shape: Shape) -> Result<Option<Where>, Bad> {
    if words.take("not on") {
        return words::cell_id(words, shape).map(Where::NotOn).map(Some);
    }
    if words.take("on") { words::cell_id(words, shape).map(Where::On).map(Some) } else { Ok(None) }
}
