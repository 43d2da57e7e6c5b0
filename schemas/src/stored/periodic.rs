//! Stored events of periodic tasks, in every version.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::conversion::{By, Stored, stored};
use super::task::TaskDefinition;
use crate::definition::Overlap;
use crate::names::{Domain, PeriodicGuid, TaskGuid};
use crate::periodic::{LaunchReason, SkipReason};
use crate::schedule::Schedule;
use crate::{Timestamp, definition, periodic};

stored! {
    /// An event of a periodic task.
    #[schemars(rename = "PeriodicEvent")]
    pub enum Periodic("periodic") = periodic::Event {
        /// The periodic task was desired: a new epoch starts.
        "desired.v1": DesiredV1 {
            /// Spec of the periodic task.
            desired: Box<DesiredPeriodic>,
            /// Time when it is first due.
            next: Option<Timestamp>,
        } = Desired,
        /// The spec was replaced.
        "updated.v1": UpdatedV1 {
            /// New spec.
            desired: Box<DesiredPeriodic>,
            /// Time when it is next due.
            next: Option<Timestamp>,
        } = Updated,
        /// A task was launched. The same entry contains the event that creates the task.
        "launched.v1": LaunchedV1 {
            /// Time when the launch was due.
            due: Timestamp,
            /// GUID of the task.
            task_guid: TaskGuid,
            /// Reason for the launch.
            reason: LaunchReason,
            /// Time when it is next due.
            next: Option<Timestamp>,
        } = Launched,
        /// One or more due launches were skipped.
        "skipped.v1": SkippedV1 {
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
        } = Skipped,
        /// A launch waits until no task of the periodic task runs.
        "queued.v1": QueuedV1 {
            /// Time when the launch was due.
            due: Timestamp,
            /// Time when it is next due.
            next: Option<Timestamp>,
        } = Queued,
        /// The periodic task was paused and launches nothing until it is resumed.
        "paused.v1": PausedV1 {} = Paused,
        /// The periodic task was resumed.
        "resumed.v1": ResumedV1 {
            /// Time when it is next due.
            next: Option<Timestamp>,
        } = Resumed,
        /// The periodic task is no longer desired.
        "removed.v1": RemovedV1 {} = Removed,
    }
}

/// A periodic task as desired by a client.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
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

impl Stored for DesiredPeriodic {
    type Today = definition::DesiredPeriodic;

    fn read(self) -> definition::DesiredPeriodic {
        let Self { periodic_guid, domain, cron, time_zone, overlap, definition } = self;
        let schedule = Schedule::from_log(cron, time_zone);
        definition::DesiredPeriodic {
            periodic_guid,
            domain,
            schedule,
            overlap,
            definition: definition.read(),
        }
    }

    fn write<S: Serializer>(today: &definition::DesiredPeriodic, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
            periodic_guid: &'a PeriodicGuid,
            domain: &'a Domain,
            cron: &'a str,
            time_zone: &'a str,
            overlap: Overlap,
            definition: By<'a, TaskDefinition>,
        }
        let definition::DesiredPeriodic { periodic_guid, domain, schedule, overlap, definition } = today;
        let (cron, time_zone, definition) = (schedule.cron(), schedule.time_zone(), By(&**definition));
        Written { periodic_guid, domain, cron, time_zone, overlap: *overlap, definition }.serialize(to)
    }
}
