//! What is stored of periodic tasks: every version of every event.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mirror::{Mirror, mirror};
use super::task::TaskDefinition;
use crate::names::{Domain, PeriodicGuid, TaskGuid};
use crate::schedule::Schedule;
use crate::{Timestamp, definition, periodic};

/// Events of periodic tasks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PeriodicEvent")]
pub enum Periodic {
    /// It was desired: a new epoch begins.
    #[serde(rename = "desired.v1")]
    DesiredV1 {
        /// As what.
        desired: Box<DesiredPeriodic>,
        /// When it is first due.
        next: Option<Timestamp>,
    },
    /// It is another one from now on.
    #[serde(rename = "updated.v1")]
    UpdatedV1 {
        /// As what.
        desired: Box<DesiredPeriodic>,
        /// When it is next due.
        next: Option<Timestamp>,
    },
    /// It launched a task, which the same entry desires.
    #[serde(rename = "launched.v1")]
    LaunchedV1 {
        /// When it was due.
        due: Timestamp,
        /// The task.
        task_guid: TaskGuid,
        /// Why now.
        reason: LaunchReason,
        /// When it is next due.
        next: Option<Timestamp>,
    },
    /// It did not launch what was due.
    #[serde(rename = "skipped.v1")]
    SkippedV1 {
        /// When the first of them was due.
        from: Timestamp,
        /// When the last of them was.
        until: Timestamp,
        /// How many, at most 1,000: then there may have been more.
        count: u32,
        /// Why.
        reason: SkipReason,
        /// When it is next due.
        next: Option<Timestamp>,
    },
    /// A launch waits until nothing of it runs any more.
    #[serde(rename = "queued.v1")]
    QueuedV1 {
        /// When it was due.
        due: Timestamp,
        /// When it is next due.
        next: Option<Timestamp>,
    },
    /// It launches nothing until it is resumed.
    #[serde(rename = "paused.v1")]
    PausedV1 {},
    /// It launches again.
    #[serde(rename = "resumed.v1")]
    ResumedV1 {
        /// When it is next due.
        next: Option<Timestamp>,
    },
    /// It is no longer desired.
    #[serde(rename = "removed.v1")]
    RemovedV1 {},
}

/// A periodic task as a client desired it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DesiredPeriodic {
    /// Names it.
    pub periodic_guid: PeriodicGuid,
    /// Its domain.
    pub domain: Domain,
    /// When it is due: minute, hour, day of the month, month, day of the week, or a word like `@daily`.
    pub cron: String,
    /// The zone of the IANA database in which that is meant.
    pub time_zone: String,
    /// What becomes of a launch while an earlier one runs.
    pub overlap: Overlap,
    /// What each task that it launches runs.
    pub definition: Arc<TaskDefinition>,
}

impl Mirror<definition::DesiredPeriodic> for DesiredPeriodic {
    fn mirror(self) -> definition::DesiredPeriodic {
        let Self { periodic_guid, domain, cron, time_zone, overlap, definition } = self;
        definition::DesiredPeriodic {
            periodic_guid,
            domain,
            schedule: Schedule::stored(cron, time_zone),
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

/// What becomes of a launch that is due while an earlier one runs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It is launched beside it.
    Allowed,
    /// It is skipped.
    Skipped,
    /// It waits until nothing of it runs any more.
    Queued,
}
mirror!(enum Overlap = definition::Overlap { Allowed, Skipped, Queued });

/// Why a task was launched when it was.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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
mirror!(enum LaunchReason = periodic::LaunchReason { Due, CatchUp, Queued, Asked });

/// Why a launch was skipped.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// A later one was due, too.
    Missed,
    /// An earlier one still ran.
    StillRuns,
    /// One waited for that already.
    OneWaits,
    /// It waited, and was given up.
    GivenUp,
}
mirror!(enum SkipReason = periodic::SkipReason { Missed, StillRuns, OneWaits, GivenUp });

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
