//! What has to be seen, as text and from text.

use std::fmt;
use std::time::Duration;

use schemas::actual::StopReason;
use schemas::ended::EndKind;
use schemas::names::{CellId, DefinitionId, ProcessGuid, TaskGuid};

use super::asks::instance;
use super::evaluations::{self, Evaluated};
use super::rolling::{name_in, named};
use super::words;
use crate::nodes::Shape;
use scenario::words::{Bad, Quoted, Time, Words};

/// Something that has to be seen, from a moment that stands beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// What.
    pub what: What,
    /// At that moment, until then, or at some time.
    pub when: When,
}

/// When something has to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At that moment.
    Now,
    /// At that moment or at some later one, at most so long after it.
    Within(Duration),
    /// From that moment on, at every moment until this one.
    Until(Duration),
}

/// What can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// `web/0 RUNNING of v2 on c1 crashes 2`: a record of an instance.
    Instance {
        /// Its process.
        process: ProcessGuid,
        /// Its index.
        index: u32,
        /// Its state, one of [`INSTANCE_STATES`].
        state: &'static str,
        /// The definition that it runs.
        definition: Option<DefinitionId>,
        /// Why it is UNCLAIMED or CRASHED.
        reason: Option<String>,
        /// Its cell.
        place: Option<Where>,
        /// Crashes counted.
        crashes: Option<u32>,
    },
    /// `web/0 ended stopped for scale`: of what ended at an index, and is shown, a container that ended so.
    Ended {
        /// Its process.
        process: ProcessGuid,
        /// Its index.
        index: u32,
        /// How it ended.
        how: EndKind,
        /// Why it was asked to stop.
        stop: Option<StopReason>,
    },
    /// `web/0 ended 2 times`: so many containers that ended at an index are shown.
    EndedTimes {
        /// Its process.
        process: ProcessGuid,
        /// Its index.
        index: u32,
        /// How many.
        times: usize,
    },
    /// `web/0 gone`: no record of an instance.
    NoInstance(ProcessGuid, u32),
    /// `web/0 evacuating on c1`, `web/0 not evacuating`: its evacuating twin, or that it has none.
    Twin(ProcessGuid, u32, Option<CellId>),
    /// `web: 2 RUNNING, 1 CRASHED of v2 on c1`: so many instances in these states and none in any other.
    Count {
        /// The process.
        process: ProcessGuid,
        /// How many in which state.
        counts: Vec<(usize, &'static str)>,
        /// Only those that run this definition count.
        definition: Option<DefinitionId>,
        /// Only those on this cell count.
        on: Option<CellId>,
    },
    /// `web healthy v2`, `web healthy none`: the definition that is known to work.
    Healthy(ProcessGuid, Option<DefinitionId>),
    /// `web definitions v1, v2`: the definitions that a process has, and no others, in the order in which they came.
    Definitions(ProcessGuid, Vec<DefinitionId>),
    /// `web rollout paused`: where the rollout stands that is under way, or the last one, one of [`ROLLOUT_STATES`].
    Rollout(ProcessGuid, &'static str),
    /// `web gone`: nothing of that name is left, neither process nor task.
    Gone(ProcessGuid),
    /// `job1 COMPLETED failed "cancelled"`: a task.
    Task {
        /// Its name.
        task: TaskGuid,
        /// Its state, one of [`TASK_STATES`].
        state: &'static str,
        /// Whether it failed; only when it is COMPLETED or RESOLVING.
        failed: bool,
        /// Its result, why it failed, or why it is PENDING.
        text: Option<String>,
        /// Its cell.
        place: Option<Where>,
    },
    /// `cell c1 absent`.
    Cell(CellId, &'static str),
    /// `owner of job1 told`: whoever is to be called when the task has completed answered that it knows.
    Owner {
        /// The task.
        task: TaskGuid,
        /// Whether it was told.
        told: bool,
    },
    /// `evaluation of web blocked for queued after desire`.
    Evaluation(Evaluated),
}

/// Where an instance or a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// On this cell.
    On(CellId),
    /// On another one than this.
    NotOn(CellId),
}

/// The states of an instance.
pub const INSTANCE_STATES: [&str; 4] = ["UNCLAIMED", "CLAIMED", "RUNNING", "CRASHED"];
/// The states of a task.
pub const TASK_STATES: [&str; 4] = ["PENDING", "RUNNING", "COMPLETED", "RESOLVING"];
/// Where a rollout stands.
pub const ROLLOUT_STATES: [&str; 6] =
    ["updating", "paused", "completed", "rollback_started", "rollback_paused", "rollback_completed"];
/// The states of a cell.
pub const CELL_STATES: [&str; 4] = ["present", "evacuating", "unhealthy", "absent"];

/// What is expected where a definition is named.
const DEFINITION: &str = "the id of a definition";

/// How a container ended.
const HOWS: [(&str, EndKind); 7] = [
    ("crashed", EndKind::Crashed),
    ("stopped", EndKind::Stopped),
    ("crashed-stopping", EndKind::CrashedStopping),
    ("cell-lost", EndKind::CellLost),
    ("evacuated", EndKind::Evacuated),
    ("evacuation-expired", EndKind::EvacuationExpired),
    ("displaced", EndKind::Displaced),
];

/// Why it was asked to stop.
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

/// What is expected, behind `expect`.
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

/// `of v2`, if it comes next.
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
