//! Commands and events of periodic tasks, and their launches.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::definition::DesiredPeriodic;
use crate::names::TaskGuid;

/// One launch of a periodic task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Launch {
    /// Due time of the launch.
    pub due: Timestamp,
    /// Guid of the launched task.
    pub task_guid: TaskGuid,
    /// Reason for launching the task at that time.
    pub reason: LaunchReason,
    /// Time of the launch.
    pub at: Timestamp,
}

/// Reason for launching a task at a certain time.
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LaunchReason {
    /// The launch was due.
    Due,
    /// The launch had been due for a minute or more, or earlier launches were missed.
    CatchUp,
    /// The launch had waited for an earlier task to end.
    Queued,
    /// A client requested the launch.
    Requested,
}

impl LaunchReason {
    /// Returns the reason as text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// Reason for skipping a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// A later launch was also due when the BBS could check the schedule again. Only the later launch
    /// happens, as a catch-up.
    Missed,
    /// A task of an earlier launch was still PENDING or RUNNING.
    StillRunning,
    /// Another launch was already waiting for an earlier task to end, and only one launch can wait.
    AlreadyQueued,
    /// The launch was waiting when the periodic task was paused, or when its overlap was changed from
    /// `queued`.
    Abandoned,
}

impl SkipReason {
    /// Returns the reason as a phrase.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Missed => "missed: a later launch was also due",
            Self::StillRunning => "an earlier task is still running",
            Self::AlreadyQueued => "another launch is already waiting for an earlier task to end",
            Self::Abandoned => "given up while waiting for an earlier task to end",
        }
    }
}

/// Command for a periodic task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Desire(Box<DesiredPeriodic>),
    /// Replaces the definition and the schedule. The change applies to later launches.
    Update(Box<DesiredPeriodic>),
    /// Stops launching until the periodic task is resumed.
    Pause,
    /// Resumes launching.
    Resume,
    /// Launches a task now, regardless of the schedule, running tasks and a pause.
    Launch,
    /// Removes the periodic task. Launched tasks keep running.
    Remove,
    /// Launches or skips the launches that are due.
    Converge,
}

/// Event of a periodic task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Starts a new epoch.
    Desired {
        desired: Box<DesiredPeriodic>,
        /// First due time.
        next: Option<Timestamp>,
    },
    /// Replaces the definition and the schedule.
    Updated {
        desired: Box<DesiredPeriodic>,
        /// Next due time. `None` while the periodic task is paused, or if the schedule has no further times.
        next: Option<Timestamp>,
    },
    /// A task was launched. The same log entry contains the event that creates the task.
    Launched {
        /// Due time. A launch that a client requested is due at the time of the request.
        due: Timestamp,
        task_guid: TaskGuid,
        reason: LaunchReason,
        next: Option<Timestamp>,
    },
    /// Launches that were due did not happen.
    Skipped {
        /// Due time of the first skipped launch.
        from: Timestamp,
        /// Due time of the last skipped launch.
        until: Timestamp,
        /// Number of skipped launches, at most [`crate::limits::MISSED_LAUNCHES`].
        count: u32,
        reason: SkipReason,
        next: Option<Timestamp>,
    },
    /// A launch waits until the running tasks have ended.
    Queued {
        /// Due time of the waiting launch.
        due: Timestamp,
        next: Option<Timestamp>,
    },
    /// Launching stops until the periodic task is resumed.
    Paused {},
    /// Launching is resumed.
    Resumed {
        next: Option<Timestamp>,
    },
    Removed {},
}
