//! Findings of an audit.

use std::fmt;

use schemas::Position;
use serde::Serialize;

/// A problem that an audit found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub kind: Kind,
    /// First affected position.
    pub position: Position,
    /// Last affected position. Equal to `position` if only one position is affected.
    pub last_position: Position,
    /// Affected aggregate, such as `lrp:web`. Empty if the finding concerns the log itself.
    pub target: String,
    /// Description of the problem, for human readers.
    pub detail: String,
}

/// Category of a finding.
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A message differs from the message that was originally at its position.
    Altered,
    /// A message is missing.
    Missing,
    /// A message was added.
    Inserted,
    /// A message is at another position than originally.
    Moved,
    /// Messages between two checkpoints changed. The hash chain cannot identify them.
    RangeDiffers,
    /// A message is not an entry, so every reader skips it.
    InvalidEntry,
    /// A later version of the program wrote the entry. This version cannot read the entry.
    Unreadable,
    /// No state machine would have made this decision.
    Illegal,
    /// The version, epoch or domain does not follow the previous version, epoch or domain of the aggregate.
    Version,
    /// A cause or correlation does not refer to a valid decision.
    Cause,
    /// The log shows that a guarantee was violated.
    InvariantViolated,
    /// The signature of a checkpoint does not match its key.
    Signature,
    /// A checkpoint is signed with a key other than the expected key.
    Key,
    /// A checkpoint belongs to another cluster.
    Cluster,
    /// A checkpoint does not follow the previous checkpoint, or cannot be parsed.
    Checkpoint,
}

impl Kind {
    /// Returns the machine-readable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.into_str()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Finding {
    /// Creates a finding about one position.
    #[must_use]
    pub fn at_position(kind: Kind, position: Position, what: impl Into<String>) -> Self {
        Self::within(kind, (position, position), what)
    }

    /// Creates a finding about a range of positions, including both ends.
    pub(crate) fn within(
        kind: Kind,
        (from, last_position): (Position, Position),
        what: impl Into<String>,
    ) -> Self {
        Self { kind, position: from, last_position, target: String::new(), detail: what.into() }
    }

    /// Sets the affected aggregate.
    pub(crate) fn with_target(self, about: impl fmt::Display) -> Self {
        Self { target: about.to_string(), ..self }
    }

    /// Returns the affected position or range as text: `41` or `41-60`.
    #[must_use]
    pub fn position_text(&self) -> String {
        if self.position == self.last_position {
            self.position.to_string()
        } else {
            format!("{}-{}", self.position, self.last_position)
        }
    }
}
