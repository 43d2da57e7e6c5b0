//! Rows of periodic tasks.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::container::Epoch;
use crate::definition::{DesiredPeriodic, Overlap, TaskDefinition};
use crate::names::{Domain, PeriodicGuid, TaskGuid};
use crate::periodic::Launch;
use crate::schedule::Schedule;
use crate::subject::Position;

/// The state of a periodic task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PeriodicState {
    /// The periodic task launches tasks when they are due.
    Active,
    /// The periodic task launches no tasks until it is resumed.
    Paused,
}

impl PeriodicState {
    /// Returns the state as shown in rows.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Paused => "PAUSED",
        }
    }
}

/// A periodic task. `muster.query.<root>.periodic.list` and `muster.query.<root>.periodic.show`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PeriodicRow {
    /// GUID of the periodic task.
    pub periodic_guid: PeriodicGuid,
    /// Domain of the periodic task.
    pub domain: Domain,
    /// Epoch: the time when this periodic task was desired.
    pub epoch: Epoch,
    /// Number of decisions so far.
    pub version: u64,
    /// Position of the last decision in the log.
    pub last_decision: Position,
    /// State of the periodic task.
    pub state: PeriodicState,
    /// Schedule as a cron expression: minute, hour, day of the month, month, day of the week.
    pub cron: String,
    /// Time zone of the schedule.
    pub time_zone: String,
    /// Handling of a launch that is due while an earlier task runs.
    pub overlap: Overlap,
    /// Time of the next launch. `None` while the periodic task is paused.
    pub next: Option<Timestamp>,
    /// Due time of the waiting launch. A launch waits until no launched task runs. `None` if no launch waits.
    pub queued: Option<Timestamp>,
    /// Latest launch.
    pub last: Option<Launch>,
    /// GUIDs of the launched tasks that are PENDING or RUNNING, in ascending order. At most the first 16
    /// GUIDs are listed.
    pub running: Vec<TaskGuid>,
    /// Number of tasks launched in this epoch.
    pub launched: u64,
    /// Number of launches skipped in this epoch.
    pub skipped: u64,
    /// Time when the periodic task was last desired, updated, paused or resumed.
    pub since: Timestamp,
    /// Definition of the launched tasks. Lists contain it only on request.
    pub definition: Option<TaskDefinition>,
}

impl PeriodicRow {
    /// Returns the desired state of a self. `None` if the row has no definition.
    #[must_use]
    pub fn to_desired(&self) -> Option<DesiredPeriodic> {
        Some(DesiredPeriodic {
            periodic_guid: self.periodic_guid.clone(),
            domain: self.domain.clone(),
            schedule: Schedule::new(&self.cron, &self.time_zone).ok()?,
            overlap: self.overlap,
            definition: Arc::new(self.definition.clone()?),
        })
    }
}
