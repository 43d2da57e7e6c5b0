//! Subjects of the journal, and the shards of processes and tasks. Only this module formats and parses
//! subjects.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::{CellId, Domain, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid};

/// Position of an entry in the journal: the sequence number of the entry in the stream, starting at 1.
/// Position 0 is before the first entry.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Position(pub u64);

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of shards of a new cluster. With more shards, the journal has more and smaller entries:
/// docs/internals/performance.md, "Number of shards".
pub const DEFAULT_SHARDS: u16 = 4;

/// Maximum number of shards.
pub const MAX_SHARDS: u16 = 1_024;

/// Prefix of every subject of the journal.
pub const EVENT_ROOT: &str = "muster.event.";

/// Name of the stream that holds the journal.
pub const STREAM: &str = "MUSTER";

/// Subject of the journal. Each compare-and-set and each group commit concerns one subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// `muster.event.cluster`
    Cluster,
    /// `muster.event.cell.<cell_id>`
    Cell(CellId),
    /// `muster.event.domain.<domain>`
    Domain(Domain),
    /// `muster.event.lrp.<shard>`
    Lrp(u16),
    /// `muster.event.task.<shard>`
    Task(u16),
}

impl Subject {
    /// Returns the subject of a process in a cluster with `shards` shards.
    #[must_use]
    pub fn of_process(guid: &ProcessGuid, shards: u16) -> Self {
        Self::Lrp(shard(guid.as_str(), shards))
    }

    /// Returns the subject of a task in a cluster with `shards` shards.
    #[must_use]
    pub fn of_task(guid: &TaskGuid, shards: u16) -> Self {
        Self::Task(shard(guid.stem(), shards))
    }

    /// Returns the subject of a periodic task in a cluster with `shards` shards. The tasks that it launches
    /// have the same subject.
    #[must_use]
    pub fn of_periodic(guid: &PeriodicGuid, shards: u16) -> Self {
        Self::Task(shard(guid.as_str(), shards))
    }

    /// Returns the subject of a parameterised task in a cluster with `shards` shards. The tasks of its
    /// dispatches have the same subject.
    #[must_use]
    pub fn of_parameterised(guid: &ParameterisedGuid, shards: u16) -> Self {
        Self::Task(shard(guid.as_str(), shards))
    }

    /// Returns `true` if the subject belongs to a shard. Several processes or tasks share such a subject.
    #[must_use]
    pub const fn is_shard(&self) -> bool {
        match self {
            Self::Lrp(_) | Self::Task(_) => true,
            Self::Cluster | Self::Cell(_) | Self::Domain(_) => false,
        }
    }

    /// Parses a subject. Returns `None` if the text is not a subject.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = match text.strip_prefix(EVENT_ROOT)?.split_once('.') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text.strip_prefix(EVENT_ROOT)?, None),
        };
        match (kind, rest) {
            ("cluster", None) => Some(Self::Cluster),
            ("cell", Some(id)) => CellId::new(id).ok().map(Self::Cell),
            ("domain", Some(name)) => Domain::new(name).ok().map(Self::Domain),
            ("lrp", Some(shard)) => canonical_number(shard).map(Self::Lrp),
            ("task", Some(shard)) => canonical_number(shard).map(Self::Task),
            _ => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => write!(f, "{EVENT_ROOT}cluster"),
            Self::Cell(id) => write!(f, "{EVENT_ROOT}cell.{id}"),
            Self::Domain(name) => write!(f, "{EVENT_ROOT}domain.{name}"),
            Self::Lrp(shard) => write!(f, "{EVENT_ROOT}lrp.{shard}"),
            Self::Task(shard) => write!(f, "{EVENT_ROOT}task.{shard}"),
        }
    }
}

/// Returns the subjects of processes and of tasks in a cluster with `shards` shards.
pub fn shard_subjects(shards: u16) -> impl Iterator<Item = Subject> {
    (0..shards).flat_map(|shard| [Subject::Lrp(shard), Subject::Task(shard)])
}

/// Parses a number exactly as `Display` formats it, without a sign or leading zeros. So each subject has one
/// spelling.
fn canonical_number(text: &str) -> Option<u16> {
    text.parse::<u16>().ok().filter(|number| number.to_string() == text)
}

/// Returns the 64-bit FNV-1a hash of a text.
#[must_use]
pub fn fnv_1a(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the shard of a guid: the 64-bit FNV-1a hash of the guid modulo the shard count of the cluster
/// (docs/internals/journal.md, "Aggregates and subjects"). For a task that another object launched, callers
/// pass its [stem](TaskGuid::stem).
#[must_use]
pub fn shard(guid: &str, shards: u16) -> u16 {
    u16::try_from(fnv_1a(guid) % u64::from(shards.max(1))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_round_trips_through_text_and_rejects_other_spellings() {
        let subjects = [
            Subject::Cluster,
            Subject::Cell(CellId::new("c1").unwrap()),
            Subject::Domain(Domain::new("apps").unwrap()),
            Subject::Lrp(0),
            Subject::Task(31),
        ];
        for subject in subjects {
            assert_eq!(Subject::parse(&subject.to_string()), Some(subject));
        }
        for text in
            ["muster.event.lrp.007", "muster.event.lrp.+7", "muster.event.cell.a.b", "muster.event", ""]
        {
            assert_eq!(Subject::parse(text), None, "{text}");
        }
    }

    #[test]
    fn shard_is_the_fnv_1a_hash_of_the_guid_stem() {
        assert_eq!(shard("", 32), u16::try_from(0xcbf2_9ce4_8422_2325_u64 % 32).unwrap());
        let (periodic, task) = (PeriodicGuid::new("report").unwrap(), TaskGuid::new("report--17").unwrap());
        assert_eq!(Subject::of_task(&task, 32), Subject::of_periodic(&periodic, 32));
        assert_eq!((task.launching_periodic(), task.dispatch_source()), (Some(periodic), None));
        let resize = ParameterisedGuid::new("resize").unwrap();
        let task = resize.dispatched_task_guid(17).unwrap();
        assert_eq!(Subject::of_task(&task, 32), Subject::of_parameterised(&resize, 32));
        assert_eq!((task.launching_periodic(), task.dispatch_source()), (None, Some((resize, 17))));
        assert_eq!(shard("a", 32), u16::try_from(0xaf63_dc4c_8601_ec8c_u64 % 32).unwrap());
    }
}
