//! Stored events of periodic tasks, in every version.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mirror::Mirror;
use super::task::TaskDefinition;
use crate::definition::Overlap;
use crate::names::{Domain, PeriodicGuid, TaskGuid};
use crate::periodic::{LaunchReason, SkipReason};
use crate::schedule::Schedule;
use crate::{Timestamp, definition, periodic};

/// An event of a periodic task.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PeriodicEvent")]
pub enum Periodic {
    /// The periodic task was desired: a new epoch starts.
    #[serde(rename = "desired.v1")]
    DesiredV1 {
        /// Spec of the periodic task.
        desired: Box<DesiredPeriodic>,
        /// Time when it is first due.
        next: Option<Timestamp>,
    },
    /// The spec was replaced.
    #[serde(rename = "updated.v1")]
    UpdatedV1 {
        /// New spec.
        desired: Box<DesiredPeriodic>,
        /// Time when it is next due.
        next: Option<Timestamp>,
    },
    /// A task was launched. The same entry contains the event that creates the task.
    #[serde(rename = "launched.v1")]
    LaunchedV1 {
        /// Time when the launch was due.
        due: Timestamp,
        /// GUID of the task.
        task_guid: TaskGuid,
        /// Reason for the launch.
        reason: LaunchReason,
        /// Time when it is next due.
        next: Option<Timestamp>,
    },
    /// One or more due launches were skipped.
    #[serde(rename = "skipped.v1")]
    SkippedV1 {
        /// Due time of the first skipped launch.
        from: Timestamp,
        /// Due time of the last skipped launch.
        until: Timestamp,
        /// Number of skipped launches, at most 1,000. If the number is 1,000, more launches may have been
        /// skipped.
        count: u32,
        /// Reason for the skip.
        reason: SkipReason,
        /// Time when it is next due.
        next: Option<Timestamp>,
    },
    /// A launch waits until no task of the periodic task runs.
    #[serde(rename = "queued.v1")]
    QueuedV1 {
        /// Time when the launch was due.
        due: Timestamp,
        /// Time when it is next due.
        next: Option<Timestamp>,
    },
    /// The periodic task was paused and launches nothing until it is resumed.
    #[serde(rename = "paused.v1")]
    PausedV1 {},
    /// The periodic task was resumed.
    #[serde(rename = "resumed.v1")]
    ResumedV1 {
        /// Time when it is next due.
        next: Option<Timestamp>,
    },
    /// The periodic task is no longer desired.
    #[serde(rename = "removed.v1")]
    RemovedV1 {},
}

/// A periodic task as desired by a client.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DesiredPeriodic {
    /// GUID of the periodic task.
    pub periodic_guid: PeriodicGuid,
    /// Domain of the periodic task.
    pub domain: Domain,
    /// Schedule: a cron expression (minute, hour, day of the month, month, day of the week) or a word such as
    /// `@daily`.
    pub cron: String,
    /// Time zone of the schedule, from the IANA database.
    pub time_zone: String,
    /// Handling of a launch while an earlier task runs.
    pub overlap: Overlap,
    /// Definition of the launched tasks.
    pub definition: Arc<TaskDefinition>,
}

impl Mirror<definition::DesiredPeriodic> for DesiredPeriodic {
    fn mirror(self) -> definition::DesiredPeriodic {
        let Self { periodic_guid, domain, cron, time_zone, overlap, definition } = self;
        definition::DesiredPeriodic {
            periodic_guid,
            domain,
            schedule: Schedule::from_log(cron, time_zone),
            overlap: overlap.mirror(),
            definition: definition.mirror(),
        }
    }
}

impl Mirror<DesiredPeriodic> for definition::DesiredPeriodic {
    fn mirror(self) -> DesiredPeriodic {
        let Self { periodic_guid, domain, schedule, overlap, definition } = self;
        DesiredPeriodic {
            periodic_guid,
            domain,
            cron: schedule.cron().to_owned(),
            time_zone: schedule.time_zone().to_owned(),
            overlap: overlap.mirror(),
            definition: definition.mirror(),
        }
    }
}

impl Mirror<periodic::Event> for Periodic {
    fn mirror(self) -> periodic::Event {
        use periodic::Event;
        match self {
            Self::DesiredV1 { desired, next } => Event::Desired { desired: desired.mirror(), next },
            Self::UpdatedV1 { desired, next } => Event::Updated { desired: desired.mirror(), next },
            Self::LaunchedV1 { due, task_guid, reason, next } => {
                Event::Launched { due, task_guid, reason: reason.mirror(), next }
            }
            Self::SkippedV1 { from, until, count, reason, next } => {
                Event::Skipped { from, until, count, reason: reason.mirror(), next }
            }
            Self::QueuedV1 { due, next } => Event::Queued { due, next },
            Self::PausedV1 {} => Event::Paused {},
            Self::ResumedV1 { next } => Event::Resumed { next },
            Self::RemovedV1 {} => Event::Removed {},
        }
    }
}

impl Mirror<Periodic> for periodic::Event {
    fn mirror(self) -> Periodic {
        match self {
            Self::Desired { desired, next } => Periodic::DesiredV1 { desired: desired.mirror(), next },
            Self::Updated { desired, next } => Periodic::UpdatedV1 { desired: desired.mirror(), next },
            Self::Launched { due, task_guid, reason, next } => {
                Periodic::LaunchedV1 { due, task_guid, reason: reason.mirror(), next }
            }
            Self::Skipped { from, until, count, reason, next } => {
                Periodic::SkippedV1 { from, until, count, reason: reason.mirror(), next }
            }
            Self::Queued { due, next } => Periodic::QueuedV1 { due, next },
            Self::Paused {} => Periodic::PausedV1 {},
            Self::Resumed { next } => Periodic::ResumedV1 { next },
            Self::Removed {} => Periodic::RemovedV1 {},
        }
    }
}

impl Periodic {
    pub(super) const fn type_name(event: &periodic::Event) -> &'static str {
        match event {
            periodic::Event::Desired { .. } => "periodic.desired.v1",
            periodic::Event::Updated { .. } => "periodic.updated.v1",
            periodic::Event::Launched { .. } => "periodic.launched.v1",
            periodic::Event::Skipped { .. } => "periodic.skipped.v1",
            periodic::Event::Queued { .. } => "periodic.queued.v1",
            periodic::Event::Paused {} => "periodic.paused.v1",
            periodic::Event::Resumed { .. } => "periodic.resumed.v1",
            periodic::Event::Removed {} => "periodic.removed.v1",
        }
    }
}
