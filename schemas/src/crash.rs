//! Outcomes of a crash.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Maximum crash count: an instance with more crashes is never restarted.
pub const MAX_CRASHES: u32 = 200;

/// Outcome of a crash: when the instance restarts, if at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Restart {
    /// Restarts in the same decision as the crash.
    Immediate,
    /// Restarts at this time.
    At(Timestamp),
    /// Does not restart automatically. A rollout may still replace the instance. If the instance is stopped,
    /// a new instance is created.
    Never(NoRestartReason),
}

/// Reason why a crashed instance is not restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NoRestartReason {
    /// The instance exited with status 0, and the condition of the policy is `on-failure`.
    Succeeded,
    /// The condition of the policy is `none`.
    RestartDisabled,
    /// The restarts that the policy allows are used up.
    AttemptsExhausted,
    /// The crash count exceeds the limit of the crash policy.
    CrashLimit,
}

impl NoRestartReason {
    /// Every reason.
    pub const ALL: [Self; 4] =
        [Self::Succeeded, Self::RestartDisabled, Self::AttemptsExhausted, Self::CrashLimit];
}

impl fmt::Display for NoRestartReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded => f.write_str("exited with status 0, and its restart condition is on-failure"),
            Self::RestartDisabled => f.write_str("its restart condition is none"),
            Self::AttemptsExhausted => f.write_str("the restarts that its policy allows are used up"),
            Self::CrashLimit => write!(f, "crashed more than {MAX_CRASHES} times"),
        }
    }
}

/// Restart attempts that a policy counts and allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attempts {
    /// Attempts that the policy counts, including the restart that follows this crash, if any.
    pub counted: u32,
    /// Attempts that the policy allows.
    pub allowed: u32,
}
