//! The periodic task: launches a task at each due time of its schedule
//! (docs/internals/model/periodic-tasks.md, "Periodic tasks").
//!
//! ```text
//! (desire) ──▶ waits until `next` ──▶ launched ────────▶ waits until the next `next`
//!               │   ▲          ├────▶ skipped ─────────▶   (overlap, or more were missed)
//!               │   │          └────▶ queued ──────────▶   and launched when its tasks have ended
//!             pause resume
//! ```
//! A launch consists of two events in the same log entry: the launch of the periodic task, and the creation
//! of the launched task. Neither event exists without the other. The next due time is part of the state. Each
//! launch advances the due time, so no launch is decided twice.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::request::Requests;
use schemas::Timestamp;
use schemas::cause::{Cause, Origin};
use schemas::container::Epoch;
use schemas::definition::{DesiredPeriodic, DesiredTask, Overlap};
use schemas::names::{Domain, PeriodicGuid, TaskGuid};
use schemas::periodic::{Command, Event, Launch, LaunchReason, SkipReason};
use schemas::refusal::{Code, Refusal};
use schemas::stamp::Stamp;
use schemas::subject::Position;

/// Minimum delay after the due time for a launch to count as a catch-up.
pub const CATCH_UP_DELAY: Duration = Duration::from_secs(60);

/// State of a periodic task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Periodic {
    pub guid: PeriodicGuid,
    pub domain: Domain,
    /// Current epoch of the guid. The epoch is also the time at which the periodic task was desired.
    pub epoch: Epoch,
    /// Number of decisions over all epochs.
    pub version: u64,
    /// Log position of the last decision. 0 before that decision is in the log.
    pub last_decision: Position,
    /// Time at which the periodic task was last desired, updated, paused, resumed or removed.
    pub since: Timestamp,
    /// Definition and schedule. `None` after removal, when only the answers to requests are remembered.
    pub desired: Option<Arc<DesiredPeriodic>>,
    /// `true` while the schedule is paused.
    pub paused: bool,
    /// Next due time. `None` while the periodic task is paused, or if the schedule has no further times.
    pub next: Option<Timestamp>,
    /// Due time of the launch that is queued until the running tasks have ended.
    pub queued_due: Option<Timestamp>,
    /// Most recent launch of this epoch.
    pub last: Option<Launch>,
    /// Number of tasks launched in this epoch.
    pub launched: u64,
    /// Number of launches skipped in this epoch.
    pub skipped: u64,
    /// Most recent requests, each with its answer.
    pub requests: Requests,
    /// Decision that last desired, updated or resumed the periodic task.
    pub cause: Cause,
}

/// Other state that a decision depends on.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub now: Timestamp,
    /// Returns `true` if a task that the periodic task launched is PENDING or RUNNING.
    pub is_running: &'a dyn Fn(&PeriodicGuid) -> bool,
    /// Returns `true` if a task with this guid exists.
    pub task_exists: &'a dyn Fn(&TaskGuid) -> bool,
}

impl Periodic {
    /// Returns `true` if the periodic task was removed and is only remembered.
    #[must_use]
    pub const fn is_removed(&self) -> bool {
        self.desired.is_none()
    }

    /// Returns the state as shown to users.
    #[must_use]
    pub const fn state_name(&self) -> &'static str {
        match (&self.desired, self.paused) {
            (None, _) => "REMOVED",
            (Some(_), true) => "PAUSED",
            (Some(_), false) => "ACTIVE",
        }
    }

    /// Returns the task of a launch, made from the current definition. `None` if the periodic task was
    /// removed.
    #[must_use]
    pub fn task(&self, task_guid: TaskGuid) -> Option<DesiredTask> {
        let desired = self.desired.as_ref()?;
        let (domain, definition) = (self.domain.clone(), Arc::clone(&desired.definition));
        Some(DesiredTask { task_guid, domain, definition })
    }
}

/// Decides which events a command causes. The list is empty if the state is already as requested.
///
/// # Errors
/// - `ResourceExists` if the command desires a periodic task that exists, or launches a second task in the
///   same second.
/// - `ResourceNotFound` if the periodic task does not exist.
/// - `Forbidden` if an update names another domain.
/// - `InvalidRequest` if the guid of a requested launch would be too long.
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
            let why = format!("periodic task {} already exists", known.guid);
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
            events.extend(abandon_queued(known, &events, None));
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

/// Returns the origin of a decision, derived from the state before the decision.
#[must_use]
pub fn origin(periodic: Option<&Periodic>, command: &Command) -> Origin {
    match command {
        Command::Desire(_)
        | Command::Update(_)
        | Command::Pause
        | Command::Resume
        | Command::Launch
        | Command::Remove => Origin::Root,
        Command::Converge => periodic.map(|known| known.cause).into(),
    }
}

/// Decides an update. Launches that were already due still use the old definition, so that an update loses no
/// launch.
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
        events.extend(abandon_queued(known, &events, next));
    }
    events.push(Event::Updated { desired: Box::new(desired.clone()), next });
    Ok(events)
}

/// Returns the event that gives up the launch which is still waiting after `events`, or `None` if no launch
/// is waiting.
fn abandon_queued(known: &Periodic, events: &[Event], next: Option<Timestamp>) -> Option<Event> {
    let waits = events.iter().fold(known.queued_due, queued_after);
    let skip = |due| Event::Skipped { from: due, until: due, count: 1, reason: SkipReason::Abandoned, next };
    waits.map(skip)
}

fn launch_now(known: &Periodic, context: Context<'_>) -> Result<Vec<Event>, Refusal> {
    let due = context.now;
    let task_guid = known
        .guid
        .requested_task_guid(due)
        .map_err(|bad| Refusal::new(Code::InvalidRequest, bad.to_string()))?;
    if (context.task_exists)(&task_guid) {
        let why = format!("task {task_guid} already exists: it was launched in the same second");
        return Err(Refusal::new(Code::ResourceExists, why));
    }
    Ok(vec![Event::Launched { due, task_guid, reason: LaunchReason::Requested, next: known.next }])
}

/// Returns the events for everything that is due: a launch that waited for an earlier task to end, and the
/// latest due time of the schedule. Earlier due times that the BBS missed are skipped, so that only one
/// launch follows a downtime.
fn launch_due(known: &Periodic, desired: &DesiredPeriodic, context: Context<'_>) -> Vec<Event> {
    let mut runs = (context.is_running)(&known.guid);
    let (mut waits, mut events) = (known.queued_due, vec![]);
    let launched = |due, reason, next| {
        let task_guid =
            known.guid.scheduled_task_guid(due).ok().filter(|guid| !(context.task_exists)(guid))?;
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
    let missed = desired.schedule.due_times(first, context.now);
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
    let late = missed.earlier.is_some() || context.now.since(due) >= CATCH_UP_DELAY;
    let reason = if late { LaunchReason::CatchUp } else { LaunchReason::Due };
    // Clients cannot choose the guid of a launch. If a task has this guid nevertheless, the task counts as a
    // task of an earlier launch.
    let launch = || launched(due, reason, next).unwrap_or_else(|| skip(SkipReason::StillRunning));
    events.push(match (desired.overlap, runs, waits) {
        (Overlap::Allowed, _, _) | (Overlap::Skipped | Overlap::Queued, false, None) => launch(),
        (Overlap::Skipped, _, _) => skip(SkipReason::StillRunning),
        (Overlap::Queued, true, None) => Event::Queued { due, next },
        (Overlap::Queued, _, Some(_)) => skip(SkipReason::AlreadyQueued),
    });
    events
}

/// Returns the due time of the launch that is waiting after an event.
const fn queued_after(waits: Option<Timestamp>, event: &Event) -> Option<Timestamp> {
    match event {
        Event::Queued { due, .. } => Some(*due),
        Event::Launched { reason: LaunchReason::Queued, .. }
        | Event::Skipped { reason: SkipReason::Abandoned, .. }
        | Event::Desired { .. }
        | Event::Removed {} => None,
        Event::Updated { .. }
        | Event::Launched { .. }
        | Event::Skipped { .. }
        | Event::Paused {}
        | Event::Resumed { .. } => waits,
    }
}

/// Applies the events of one decision to the state. Never fails, because events in the log are facts.
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
            queued_due: None,
            last: None,
            launched: 0,
            skipped: 0,
            requests,
            cause: stamp.cause(),
        });
    }
    let mut known = periodic?;
    known.queued_due = queued_after(known.queued_due, event);
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
