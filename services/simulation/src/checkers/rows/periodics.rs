//! Periodic tasks as rows, told from the events alone.

use schemas::container::Epoch;
use schemas::definition::DesiredPeriodic;
use schemas::entry::Event;
use schemas::names::{PeriodicGuid, TaskGuid};
use schemas::periodic::{self, Launch, LaunchReason, SkipReason};
use schemas::query::{Filter, PeriodicRow, PeriodicState, TaskState};
use schemas::{Decision, Position, Timestamp};

use super::facts::Facts;

/// docs/reference/rows.md: so many of what still runs a row names.
const RUNNING: usize = 16;

/// A periodic task.
#[derive(Clone)]
pub(super) struct Periodic {
    epoch: Epoch,
    version: u64,
    last_decision: Position,
    /// None: it was removed.
    pub(super) desired: Option<DesiredPeriodic>,
    paused: bool,
    next: Option<Timestamp>,
    queued: Option<Timestamp>,
    last: Option<Launch>,
    launched: u64,
    skipped: u64,
    pub(super) since: Timestamp,
}

impl Facts {
    pub(super) fn periodic(&mut self, guid: &PeriodicGuid, decision: &Decision) {
        for event in decision.events.iter().filter_map(Event::as_periodic) {
            if let periodic::Event::Desired { desired, next } = event {
                let new = Periodic {
                    epoch: Epoch(decision.at),
                    version: 0,
                    last_decision: self.position,
                    desired: Some((**desired).clone()),
                    paused: false,
                    next: *next,
                    queued: None,
                    last: None,
                    launched: 0,
                    skipped: 0,
                    since: decision.at,
                };
                self.periodics.insert(guid.clone(), new);
            } else if let Some(known) = self.periodics.get_mut(guid) {
                known.event(event, decision.at);
            }
        }
        if let Some(known) = self.periodics.get_mut(guid) {
            (known.version, known.last_decision) = (decision.version, self.position);
        }
    }
}

impl Periodic {
    fn event(&mut self, event: &periodic::Event, at: Timestamp) {
        match event {
            periodic::Event::Desired { .. } => {}
            periodic::Event::Updated { desired, next } => {
                (self.desired, self.next, self.since) = (Some((**desired).clone()), *next, at);
            }
            periodic::Event::Launched { due, task_guid, reason, next } => {
                if *reason == LaunchReason::Queued {
                    self.queued = None;
                }
                let (due, task_guid, reason) = (*due, task_guid.clone(), *reason);
                self.last = Some(Launch { due, task_guid, reason, at });
                (self.launched, self.next) = (self.launched + 1, *next);
            }
            periodic::Event::Skipped { count, reason, next, .. } => {
                if *reason == SkipReason::Abandoned {
                    self.queued = None;
                }
                (self.skipped, self.next) = (self.skipped + u64::from(*count), *next);
            }
            periodic::Event::Queued { due, next } => (self.queued, self.next) = (Some(*due), *next),
            periodic::Event::Paused {} => (self.paused, self.next, self.since) = (true, None, at),
            periodic::Event::Resumed { next } => {
                (self.paused, self.next, self.since) = (false, *next, at);
            }
            periodic::Event::Removed {} => (self.desired, self.since) = (None, at),
        }
    }
}

/// The periodic tasks that pass a filter.
pub(super) fn periodics(facts: &Facts, filter: &Filter) -> Vec<PeriodicRow> {
    let wanted = |row: &PeriodicRow| filter.domain.as_ref().is_none_or(|wanted| *wanted == row.domain);
    let rows = facts.periodics.iter().filter_map(|(guid, known)| row(facts, guid, known, filter.definitions));
    rows.filter(wanted).collect()
}

/// A periodic task; none of one that was removed.
pub(super) fn row(facts: &Facts, guid: &PeriodicGuid, known: &Periodic, whole: bool) -> Option<PeriodicRow> {
    let desired = known.desired.as_ref()?;
    let lives = |state: &Option<TaskState>| matches!(state, Some(TaskState::Pending | TaskState::Running));
    let running: Vec<TaskGuid> = facts
        .tasks
        .iter()
        .filter(|(task, known)| task.launching_periodic().as_ref() == Some(guid) && lives(&known.state))
        .map(|(task, _)| task.clone())
        .take(RUNNING)
        .collect();
    Some(PeriodicRow {
        periodic_guid: guid.clone(),
        domain: desired.domain.clone(),
        epoch: known.epoch,
        version: known.version,
        last_decision: known.last_decision,
        state: if known.paused { PeriodicState::Paused } else { PeriodicState::Active },
        cron: desired.schedule.cron().into(),
        time_zone: desired.schedule.time_zone().into(),
        overlap: desired.overlap,
        next: known.next,
        queued: known.queued,
        last: known.last.clone(),
        running,
        launched: known.launched,
        skipped: known.skipped,
        since: known.since,
        definition: whole.then(|| (*desired.definition).clone()),
    })
}
