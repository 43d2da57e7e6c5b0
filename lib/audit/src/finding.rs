//! What an audit finds.

use std::fmt;

use schemas::Position;
use serde::Serialize;

/// Something that is not as it ought to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What is the matter.
    pub kind: Kind,
    /// Where it begins.
    pub position: Position,
    /// Where it ends: the same position, unless nothing tells more exactly.
    pub until: Position,
    /// What it is about, as `lrp:web`; empty: the log itself.
    pub about: String,
    /// What was found, in words.
    pub what: String,
}

/// What is the matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What stands at a position is not what stood there.
    Altered,
    /// What stood at a position is gone.
    Missing,
    /// Something stands in the log that did not stand there.
    Inserted,
    /// Something stands at another place than it stood.
    OutOfPlace,
    /// Something between two checkpoints is not as it was; the chain can't tell what.
    Differs,
    /// Something that is no entry, and that everybody passes over.
    NoEntry,
    /// Something that this program can't read: a later one wrote it.
    Unreadable,
    /// A decision that no machine would have made.
    Illegal,
    /// A version, an epoch or a domain that is not the next one, or not the aggregate's.
    Version,
    /// A cause or a correlation that leads nowhere.
    Cause,
    /// A promise that the log shows to be broken.
    Promise,
    /// A checkpoint whose signature is not its key's.
    Signature,
    /// A checkpoint of another key than the one that was named.
    Key,
    /// A checkpoint of another cluster.
    Cluster,
    /// A checkpoint that doesn't follow the one before it, or can't be read.
    Checkpoint,
}

impl Kind {
    /// Its name, as programs read it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Altered => "altered",
            Self::Missing => "missing",
            Self::Inserted => "inserted",
            Self::OutOfPlace => "out_of_place",
            Self::Differs => "differs",
            Self::NoEntry => "no_entry",
            Self::Unreadable => "unreadable",
            Self::Illegal => "illegal",
            Self::Version => "version",
            Self::Cause => "cause",
            Self::Promise => "promise",
            Self::Signature => "signature",
            Self::Key => "key",
            Self::Cluster => "cluster",
            Self::Checkpoint => "checkpoint",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Finding {
    /// About what stands at a position.
    pub(crate) fn at(kind: Kind, position: Position, what: impl Into<String>) -> Self {
        Self::within(kind, (position, position), what)
    }

    /// About something between two positions, both of them included.
    pub(crate) fn within(kind: Kind, (from, until): (Position, Position), what: impl Into<String>) -> Self {
        Self { kind, position: from, until, about: String::new(), what: what.into() }
    }

    /// The same, about an aggregate.
    pub(crate) fn about(self, about: impl fmt::Display) -> Self {
        Self { about: about.to_string(), ..self }
    }

    /// Where it is, as people read it: `41`, or `41-60`.
    #[must_use]
    pub fn place(&self) -> String {
        if self.position == self.until {
            self.position.to_string()
        } else {
            format!("{}-{}", self.position, self.until)
        }
    }
}
