//! Periodic tasks as rows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::container::Epoch;
use crate::definition::{Overlap, TaskDefinition};
use crate::names::{Domain, PeriodicGuid, TaskGuid};
use crate::periodic::Launch;
use crate::subject::Position;

/// The state of a periodic task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PeriodicState {
    /// It launches what is due.
    Active,
    /// It launches nothing until it is resumed.
    Paused,
}

impl PeriodicState {
    /// As rows say it.
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
    /// Its name.
    pub periodic_guid: PeriodicGuid,
    /// Its domain.
    pub domain: Domain,
    /// Which life; also when it was desired.
    pub epoch: Epoch,
    /// Decisions so far.
    pub version: u64,
    /// Where the last of them stands in the log.
    pub last_decision: Position,
    /// Its state.
    pub state: PeriodicState,
    /// When it is due: minute, hour, day of the month, month, day of the week.
    pub cron: String,
    /// The time zone in which that is meant.
    pub time_zone: String,
    /// What becomes of a launch that is due while an earlier one runs.
    pub overlap: Overlap,
    /// When it is next due; none while it is paused.
    pub next: Option<Timestamp>,
    /// When the launch was due that waits until nothing of it runs any more.
    pub queued: Option<Timestamp>,
    /// Its last launch.
    pub last: Option<Launch>,
    /// What it launched and is still PENDING or RUNNING, in order of their guids, at most the first 16.
    pub running: Vec<TaskGuid>,
    /// How many tasks it launched in this life.
    pub launched: u64,
    /// How many launches it skipped in this life.
    pub skipped: u64,
    /// When it was desired, updated, paused or resumed.
    pub since: Timestamp,
    /// What each task that it launches runs; listed only if asked for.
    pub definition: Option<TaskDefinition>,
}
