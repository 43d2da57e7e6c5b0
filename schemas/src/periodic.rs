//! The periodic task: launches a task each time its schedule says so (docs/model.md, "Periodic tasks").
//!
//! ```text
//! (desire) ──▶ waits until `next` ──▶ launched ────────▶ waits until the next `next`
//!               │   ▲          ├────▶ skipped ─────────▶   (overlap, or more were missed)
//!               │   │          └────▶ queued ──────────▶   and launched when nothing of it runs any more
//!             pause resume
//! ```
//! A launch is one event here and one desire of a task, in one entry of the log: neither is there without the other. The
//! moment that is next due is part of what is true, and each launch moves it on: whoever decides a launch decides it on
//! the log in which nobody decided it before.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::cause::{Cause, Origin};
use crate::container::Epoch;
use crate::definition::{DesiredPeriodic, DesiredTask, Overlap};
use crate::entry::Stamp;
use crate::names::{Domain, PeriodicGuid, TaskGuid};
use crate::refusal::{Code, Refusal};
use crate::request::Requests;
use crate::subject::Position;

/// What is launched so long after it was due is a catch-up.
pub const LATE: Duration = Duration::from_secs(60);

/// What is true of a periodic task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Periodic {
    /// Its name.
    pub guid: PeriodicGuid,
    /// Its domain.
    pub domain: Domain,
    /// Which life of the guid this is; also when it was desired.
    pub epoch: Epoch,
    /// Decisions so far.
    pub version: u64,
    /// Where the last decision stands in the log; 0: nowhere yet.
    pub last_decision: Position,
    /// When it was desired, updated, paused, resumed or removed.
    pub since: Timestamp,
    /// What it launches, and when. None: it was removed, and only its answers are remembered.
    pub desired: Option<Arc<DesiredPeriodic>>,
    /// Whether it launches nothing until it is resumed.
    pub paused: bool,
    /// When it is next due; none while it is paused, or if its schedule says nothing any more.
    pub next: Option<Timestamp>,
    /// The launch that waits until nothing of it runs any more: when that was due.
    pub waits: Option<Timestamp>,
    /// The last launch.
    pub last: Option<Launch>,
    /// How many tasks it launched in this life.
    pub launched: u64,
    /// How many launches it skipped in this life.
    pub skipped: u64,
    /// The newest requests and their answers.
    pub requests: Requests,
    /// The decision that last said when it launches.
    pub cause: Cause,
}

/// One launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Launch {
    /// When it was due.
    pub due: Timestamp,
    /// The task.
    pub task_guid: TaskGuid,
    /// Why then.
    pub reason: LaunchReason,
    /// When it was launched.
    pub at: Timestamp,
}

/// Why a task was launched when it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LaunchReason {
    /// It was due.
    Due,
    /// It had been due for a while, or others before it were missed.
    CatchUp,
    /// It had waited for an earlier one to end.
    Queued,
    /// Somebody wanted it now.
    Asked,
}

impl LaunchReason {
    /// As it is shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::CatchUp => "catch_up",
            Self::Queued => "queued",
            Self::Asked => "asked",
        }
    }
}

/// Why a launch was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// A later one was due, too, when anybody could look again: that one catches up.
    Missed,
    /// A task of an earlier launch was still PENDING or RUNNING.
    StillRuns,
    /// One waited for that already.
    OneWaits,
    /// It waited, and the periodic task was paused, or is no longer queued.
    GivenUp,
}

impl SkipReason {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Missed => "missed, and a later one was due, too",
            Self::StillRuns => "an earlier one still runs",
            Self::OneWaits => "one waits already until an earlier one ends",
            Self::GivenUp => "it waited for an earlier one to end, and was given up",
        }
    }
}

/// What can be asked of a periodic task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A client desires it.
    Desire(Box<DesiredPeriodic>),
    /// A client wants it to be like this from now on.
    Update(Box<DesiredPeriodic>),
    /// It shall launch nothing.
    Pause,
    /// It shall launch again.
    Resume,
    /// It shall launch a task now, whatever its schedule and its overlap say.
    Launch,
    /// It is no longer desired. What it launched runs on.
    Remove,
    /// The BBS looks whether something is due.
    Converge,
}

/// What happens to periodic tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was desired: a new epoch begins.
    Desired {
        /// As what.
        desired: Box<DesiredPeriodic>,
        /// When it is first due.
        next: Option<Timestamp>,
    },
    /// It is another one from now on.
    Updated {
        /// As what.
        desired: Box<DesiredPeriodic>,
        /// When it is next due; none also while it is paused.
        next: Option<Timestamp>,
    },
    /// It launched a task. The same entry desires that.
    Launched {
        /// When it was due; what somebody asked for is due when it was asked.
        due: Timestamp,
        /// The task.
        task_guid: TaskGuid,
        /// Why now.
        reason: LaunchReason,
        /// When it is next due.
        next: Option<Timestamp>,
    },
    /// It did not launch what was due.
    Skipped {
        /// When the first of them was due.
        from: Timestamp,
        /// When the last of them was.
        until: Timestamp,
        /// How many, at most [`crate::limits::MISSED_COUNTED`].
        count: u32,
        /// Why.
        reason: SkipReason,
        /// When it is next due.
        next: Option<Timestamp>,
    },
    /// A launch waits until nothing of it runs any more.
    Queued {
        /// When it was due.
        due: Timestamp,
        /// When it is next due.
        next: Option<Timestamp>,
    },
    /// It launches nothing until it is resumed.
    Paused {},
    /// It launches again.
    Resumed {
        /// When it is next due.
        next: Option<Timestamp>,
    },
    /// It is no longer desired.
    Removed {},
}

/// What else a decision depends on.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The time of the decision.
    pub now: Timestamp,
    /// Whether a task that a periodic task launched is PENDING or RUNNING.
    pub runs: &'a dyn Fn(&PeriodicGuid) -> bool,
    /// Whether a task of this guid is there.
    pub exists: &'a dyn Fn(&TaskGuid) -> bool,
}

impl Periodic {
    /// Whether it was removed, and is only remembered.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.desired.is_none()
    }

    /// The state as users read it.
    #[must_use]
    pub const fn state_name(&self) -> &'static str {
        match (&self.desired, self.paused) {
            (None, _) => "REMOVED",
            (Some(_), true) => "PAUSED",
            (Some(_), false) => "ACTIVE",
        }
    }

    /// The task of a launch: what its definition says now.
    #[must_use]
    pub fn task(&self, task_guid: TaskGuid) -> Option<DesiredTask> {
        let desired = self.desired.as_ref()?;
        let (domain, definition) = (self.domain.clone(), Arc::clone(&desired.definition));
        Some(DesiredTask { task_guid, domain, definition })
    }
}

/// Judges a command against what is true. No events: it is so already.
///
/// # Errors `ResourceExists`, `ResourceNotFound`, `InvalidRequest` if an update names another domain.
pub fn decide(
    periodic: Option<&Periodic>,
    command: &Command,
    context: Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    let living = periodic.and_then(|known| known.desired.as_ref().map(|desired| (known, desired)));
    let now = context.now;
    match (command, living) {
        (Command::Desire(desired), None) => {
            Ok(vec![Event::Desired { desired: desired.clone(), next: desired.schedule.next_after(now) }])
        }
        (Command::Desire(_), Some((known, _))) => {
            let why = format!("periodic task {} exists already", known.guid);
            Err(Refusal::new(Code::ResourceExists, why))
        }
        (Command::Converge, None) => Ok(vec![]),
        (Command::Update(_) | Command::Pause | Command::Resume | Command::Launch | Command::Remove, None) => {
            Err(Refusal::not_found("the periodic task"))
        }
        (Command::Update(desired), Some((known, before))) => update(known, before, desired, context),
        (Command::Pause, Some((known, _))) if known.paused => Ok(vec![]),
        (Command::Pause, Some((known, desired))) => {
            let mut events = launch_due(known, desired, context);
            events.extend(given_up(known, &events, None));
            events.push(Event::Paused {});
            Ok(events)
        }
        (Command::Resume, Some((known, _))) if !known.paused => Ok(vec![]),
        (Command::Resume, Some((_, desired))) => {
            Ok(vec![Event::Resumed { next: desired.schedule.next_after(now) }])
        }
        (Command::Launch, Some((known, _))) => launch_now(known, context),
        (Command::Remove, Some(_)) => Ok(vec![Event::Removed {}]),
        (Command::Converge, Some((known, desired))) => Ok(launch_due(known, desired, context)),
    }
}

/// Where a decision comes from, told from what was true before it.
#[must_use]
pub fn origin(periodic: Option<&Periodic>, command: &Command) -> Origin {
    match command {
        Command::Desire(_)
        | Command::Update(_)
        | Command::Pause
        | Command::Resume
        | Command::Launch
        | Command::Remove => Origin::Beginning,
        Command::Converge => periodic.map(|known| known.cause).into(),
    }
}

/// What was due before is launched as it was desired then: an update loses nothing.
fn update(
    known: &Periodic,
    before: &DesiredPeriodic,
    desired: &DesiredPeriodic,
    context: Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    if known.domain != desired.domain {
        let why = format!("periodic task {} is in domain {}", known.guid, known.domain);
        return Err(Refusal::new(Code::Forbidden, why));
    }
    if before == desired {
        return Ok(vec![]);
    }
    let mut events = launch_due(known, before, context);
    let next = if known.paused { None } else { desired.schedule.next_after(context.now) };
    if desired.overlap != Overlap::Queued {
        events.extend(given_up(known, &events, next));
    }
    events.push(Event::Updated { desired: Box::new(desired.clone()), next });
    Ok(events)
}

/// The launch that waits after these events, if one does, is given up.
fn given_up(known: &Periodic, events: &[Event], next: Option<Timestamp>) -> Option<Event> {
    let waits = events.iter().fold(known.waits, waits_after);
    let skip = |due| Event::Skipped { from: due, until: due, count: 1, reason: SkipReason::GivenUp, next };
    waits.map(skip)
}

fn launch_now(known: &Periodic, context: Context<'_>) -> Result<Vec<Event>, Refusal> {
    let due = context.now;
    let task_guid =
        known.guid.launch_now(due).map_err(|bad| Refusal::new(Code::InvalidRequest, bad.to_string()))?;
    if (context.exists)(&task_guid) {
        let why = format!("task {task_guid} exists already: somebody else launched it in this second");
        return Err(Refusal::new(Code::ResourceExists, why));
    }
    Ok(vec![Event::Launched { due, task_guid, reason: LaunchReason::Asked, next: known.next }])
}

/// What is due: a launch that waited for an earlier one to end, and the last moment of the schedule that came. Moments
/// before that which nobody could look at are skipped, so that a downtime ends with one launch and not with many.
fn launch_due(known: &Periodic, desired: &DesiredPeriodic, context: Context<'_>) -> Vec<Event> {
    let mut runs = (context.runs)(&known.guid);
    let (mut waits, mut events) = (known.waits, vec![]);
    let launched = |due, reason, next| {
        let task_guid = known.guid.launch(due).ok().filter(|guid| !(context.exists)(guid))?;
        Some(Event::Launched { due, task_guid, reason, next })
    };
    if let Some(due) = waits.filter(|_| !runs)
        && let Some(event) = launched(due, LaunchReason::Queued, known.next)
    {
        events.push(event);
        (runs, waits) = (true, None);
    }
    let Some(first) = known.next.filter(|next| *next <= context.now) else { return events };
    let next = desired.schedule.next_after(context.now);
    let missed = desired.schedule.missed(first, context.now);
    let due = missed.latest;
    if let Some(earlier) = missed.earlier {
        let (until, count) = (earlier.until, earlier.count);
        events.push(Event::Skipped {
            from: first,
            until,
            count,
            reason: SkipReason::Missed,
            next: Some(due),
        });
    }
    let skip = |reason| Event::Skipped { from: due, until: due, count: 1, reason, next };
    let late = missed.earlier.is_some() || context.now.since(due) >= LATE;
    let reason = if late { LaunchReason::CatchUp } else { LaunchReason::Due };
    // No client may choose a name that a launch has: should one be taken all the same, that is such a launch.
    let launch = || launched(due, reason, next).unwrap_or_else(|| skip(SkipReason::StillRuns));
    events.push(match (desired.overlap, runs, waits) {
        (Overlap::Allowed, _, _) | (Overlap::Skipped | Overlap::Queued, false, None) => launch(),
        (Overlap::Skipped, _, _) => skip(SkipReason::StillRuns),
        (Overlap::Queued, true, None) => Event::Queued { due, next },
        (Overlap::Queued, _, Some(_)) => skip(SkipReason::OneWaits),
    });
    events
}

/// The launch that waits after an event.
const fn waits_after(waits: Option<Timestamp>, event: &Event) -> Option<Timestamp> {
    match event {
        Event::Queued { due, .. } => Some(*due),
        Event::Launched { reason: LaunchReason::Queued, .. }
        | Event::Skipped { reason: SkipReason::GivenUp, .. }
        | Event::Desired { .. }
        | Event::Removed {} => None,
        Event::Updated { .. }
        | Event::Launched { .. }
        | Event::Skipped { .. }
        | Event::Paused {}
        | Event::Resumed { .. } => waits,
    }
}

/// Folds one decision's events. Total: the log is never argued with.
#[must_use]
pub fn evolve<'a>(
    periodic: Option<Periodic>,
    events: impl IntoIterator<Item = &'a Event>,
    stamp: &Stamp,
) -> Option<Periodic> {
    let mut periodic = periodic;
    for event in events {
        periodic = evolve_one(periodic, event, stamp);
    }
    if let Some(known) = &mut periodic {
        known.version += 1;
        if let Some(request) = &stamp.request {
            known.requests.remember(request.clone(), known.version);
        }
    }
    periodic
}

fn evolve_one(periodic: Option<Periodic>, event: &Event, stamp: &Stamp) -> Option<Periodic> {
    if let Event::Desired { desired, next } = event {
        let (version, requests) = periodic.map(|old| (old.version, old.requests)).unwrap_or_default();
        return Some(Periodic {
            guid: desired.periodic_guid.clone(),
            domain: desired.domain.clone(),
            epoch: Epoch(stamp.at),
            version,
            last_decision: Position(0),
            since: stamp.at,
            desired: Some(Arc::new((**desired).clone())),
            paused: false,
            next: *next,
            waits: None,
            last: None,
            launched: 0,
            skipped: 0,
            requests,
            cause: stamp.cause(),
        });
    }
    let mut known = periodic?;
    known.waits = waits_after(known.waits, event);
    match event {
        Event::Desired { .. } => {}
        Event::Updated { desired, next } => {
            known.desired = Some(Arc::new((**desired).clone()));
            (known.next, known.since, known.cause) = (*next, stamp.at, stamp.cause());
        }
        Event::Launched { due, task_guid, reason, next } => {
            let (due, task_guid, reason) = (*due, task_guid.clone(), *reason);
            known.last = Some(Launch { due, task_guid, reason, at: stamp.at });
            (known.next, known.launched) = (*next, known.launched + 1);
        }
        Event::Skipped { count, next, .. } => {
            (known.next, known.skipped) = (*next, known.skipped + u64::from(*count));
        }
        Event::Queued { next, .. } => known.next = *next,
        Event::Paused {} => (known.paused, known.next, known.since) = (true, None, stamp.at),
        Event::Resumed { next } => {
            (known.paused, known.next) = (false, *next);
            (known.since, known.cause) = (stamp.at, stamp.cause());
        }
        Event::Removed {} => {
            (known.desired, known.paused, known.next, known.since) = (None, false, None, stamp.at);
        }
    }
    Some(known)
}
