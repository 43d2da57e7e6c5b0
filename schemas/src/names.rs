//! Identifier types. Names are validated text that is safe as a subject token and as a path component; ids
//! are UUIDs.

use std::borrow::{Borrow, Cow};
use std::fmt;

use ecow::EcoString;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::limits::ID_BYTES;

/// Error for text that is not a valid name of some kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid {what}: use 1 to {ID_BYTES} of A-Z a-z 0-9 _ -")]
pub struct BadName {
    /// Kind of name that was expected, for example "task guid".
    pub what: &'static str,
    /// Rejected text, truncated to 40 characters.
    pub text: String,
}

fn check(what: &'static str, text: &str) -> Result<(), BadName> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=ID_BYTES).contains(&text.len()) && text.bytes().all(legal) {
        return Ok(());
    }
    Err(BadName { what, text: text.chars().take(40).collect() })
}

/// Visitor that builds a name from borrowed text without an intermediate `String`. Names are the largest part
/// of most deserialized data.
struct NameVisitor<T>(fn(&str) -> Result<T, BadName>);

impl<T> Visitor<'_> for NameVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }
}

/// Implements a JSON Schema whose definition all types of the same form share.
macro_rules! shared_schema {
    ($name:ident = $shared:literal $schema:tt) => {
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                $shared.into()
            }

            fn schema_id() -> Cow<'static, str> {
                concat!(module_path!(), "::", $shared).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        ///
        /// 1 to 128 of `A-Z a-z 0-9 _ -`. Up to 15 bytes are stored inline; clones share longer text.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(EcoString);

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(NameVisitor(Self::new))
            }
        }

        shared_schema!($name = "Name" {
            "description": "A name: 1 to 128 of `A-Z a-z 0-9 _ -`.",
            "type": "string",
            "pattern": "^[A-Za-z0-9_-]{1,128}$",
        });

        impl $name {
            #[doc = concat!("Parses text as a ", $what, ".")]
            ///
            /// # Errors
            /// `BadName` if it is empty, too long, or has any other character.
            pub fn new(text: &str) -> Result<Self, BadName> {
                check($what, text)?;
                Ok(Self(text.into()))
            }

            /// Returns the name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadName;
            fn try_from(text: String) -> Result<Self, BadName> {
                Self::new(&text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = BadName;
            fn from_str(text: &str) -> Result<Self, BadName> {
                Self::new(text)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

name!(
    /// Identifier of a process: a DesiredLRP and all its ActualLRPs.
    ProcessGuid, "process guid");
name!(
    /// Identifier of a task.
    TaskGuid, "task guid");
name!(
    /// Identifier of a periodic task, which launches tasks on a schedule.
    PeriodicGuid, "periodic guid");
name!(
    /// Identifier of a parameterised task, a template from which each dispatch makes one task.
    ParameterisedGuid, "parameterised guid");
name!(
    /// Idempotency key of a dispatch, chosen by the client. A repeated dispatch with the same key creates no
    /// second task.
    DispatchKey, "key of a dispatch");
name!(
    /// Identifier of a definition of a process. The first definition is named after its process.
    DefinitionId, "definition id");
name!(
    /// Grouping of processes and tasks that the consumer chooses freely.
    Domain, "domain");
name!(
    /// Identifier of a cell.
    CellId, "cell id");
name!(
    /// Name of an availability zone.
    Zone, "zone");
name!(
    /// Name of a client that belongs to a domain.
    ClientName, "client name");
name!(
    /// Identifier of one run of a BBS or auctioneer. Each start of the program creates a new one.
    ServiceId, "service id");
name!(
    /// Idempotency key of a command, chosen by the client. A repeated command with the same id is carried out
    /// only once.
    RequestId, "request id");
name!(
    /// Platform that a definition requires and that a cell offers.
    Stack, "stack");
name!(
    /// Label that a definition may require: only cells that carry it can run the definition.
    PlacementTag, "placement tag");

/// Separator between the guid of a periodic or parameterised task and the suffix of a task that it launched.
pub const LAUNCH_SEPARATOR: &str = "--";
/// Prefix of the guid suffix of a dispatched task. The dispatch number follows the prefix.
const DISPATCH_PREFIX: &str = "dispatch-";

impl PeriodicGuid {
    /// Returns the guid of the task that is launched for the due time `due`, for example
    /// `report--1795402800`.
    ///
    /// # Errors
    /// `BadName` if the resulting guid is too long. Specs reject periodic guids that would lead to such a
    /// guid.
    pub fn scheduled_task_guid(&self, due: crate::Timestamp) -> Result<TaskGuid, BadName> {
        TaskGuid::new(&format!("{self}{LAUNCH_SEPARATOR}{}", due.seconds()))
    }

    /// Returns the guid of a task that a client launches regardless of the schedule, for example
    /// `report--now-1795402817`.
    ///
    /// # Errors
    /// See [`PeriodicGuid::scheduled_task_guid`].
    pub fn requested_task_guid(&self, now: crate::Timestamp) -> Result<TaskGuid, BadName> {
        TaskGuid::new(&format!("{self}{LAUNCH_SEPARATOR}now-{}", now.seconds()))
    }
}

impl ParameterisedGuid {
    /// Returns the guid of the task made by the dispatch with this number, for example `resize--dispatch-17`.
    ///
    /// # Errors
    /// See [`PeriodicGuid::scheduled_task_guid`].
    pub fn dispatched_task_guid(&self, number: u64) -> Result<TaskGuid, BadName> {
        TaskGuid::new(&format!("{self}{LAUNCH_SEPARATOR}{DISPATCH_PREFIX}{number}"))
    }
}

impl TaskGuid {
    /// Returns the part of the guid that determines the task's shard.
    ///
    /// For a task launched by a periodic or parameterised task, this part is the guid of the launching
    /// object. The launching object and its tasks therefore share a shard. For any other task, this part is
    /// the whole guid.
    #[must_use]
    pub fn stem(&self) -> &str {
        self.as_str().rsplit_once(LAUNCH_SEPARATOR).map_or(self.as_str(), |(stem, _)| stem)
    }

    /// Returns the guid of the periodic task that launched this task, or `None` if the task's guid does not
    /// contain one. Clients cannot choose a guid of this form themselves.
    #[must_use]
    pub fn launching_periodic(&self) -> Option<PeriodicGuid> {
        let (stem, launch) = self.as_str().rsplit_once(LAUNCH_SEPARATOR)?;
        PeriodicGuid::new(stem).ok().filter(|_| !launch.starts_with(DISPATCH_PREFIX))
    }

    /// Returns the guid of the parameterised task and the number of the dispatch from which this task was
    /// made. `None` if the task's guid does not contain them. Clients cannot choose a guid of this form
    /// themselves.
    #[must_use]
    pub fn dispatch_source(&self) -> Option<(ParameterisedGuid, u64)> {
        let (stem, launch) = self.as_str().rsplit_once(LAUNCH_SEPARATOR)?;
        let number = launch.strip_prefix(DISPATCH_PREFIX)?.parse().ok()?;
        Some((ParameterisedGuid::new(stem).ok()?, number))
    }
}

impl DefinitionId {
    /// Returns the smallest id: the shortest name, made of the smallest character that a name may contain.
    #[must_use]
    pub fn min_value() -> Self {
        Self("-".into())
    }
}

impl From<&ProcessGuid> for DefinitionId {
    /// Returns the id of the first definition of a process. It equals the guid and shares its text.
    fn from(guid: &ProcessGuid) -> Self {
        Self(guid.0.clone())
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        shared_schema!($name = "Uuid" {
            "description": "A UUID as text, such as `0190f2a1-7c3e-7bbb-8001-0a2b3c4d5e6f`.",
            "type": "string",
            "format": "uuid",
        });

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                Uuid::parse_str(text).map(Self)
            }
        }
    };
}

id!(
    /// Identifier of one attempt to run work on a cell. It identifies both the container and the record of
    /// the attempt.
    InstanceGuid);
id!(
    /// Identifier of a journal entry.
    EntryId);
id!(
    /// Identifier of a decision.
    DecisionId);

impl DecisionId {
    /// Returns the time of the decision in milliseconds, which the first 48 bits of the id encode.
    #[must_use]
    pub fn made_at(self) -> crate::Timestamp {
        let millis = (self.0.as_u128() >> 80) as u64;
        crate::Timestamp::from_millis(millis)
    }
}
id!(
    /// Identifier of an evaluation. The first evaluation that a decision creates has the decision's id.
    EvaluationId);
id!(
    /// Identifier of a cluster.
    ClusterId);
id!(
    /// Identifier of a rep's data folder, created together with the folder. The rep with the recorded folder
    /// represents the cell.
    FolderId);
id!(
    /// Identifier of one run of a rep: a restarted rep is a new incarnation of its cell.
    Incarnation);

impl EvaluationId {
    /// Returns the id of the evaluation with this number among those that a decision creates. The numbers
    /// start at 0. The evaluation's id differs from the decision's id only in the eighth hexadecimal digit
    /// from the end.
    #[must_use]
    pub const fn from_decision(decision: DecisionId, number: u8) -> Self {
        Self(Uuid::from_u128(decision.0.as_u128() ^ ((number as u128 & 0xf) << 28)))
    }
}

/// Generator of ids from a seed and the time. All ids come from such generators. The same seed and times
/// yield the same ids.
#[derive(Clone, Debug)]
pub struct IdGenerator {
    state: u64,
}

impl IdGenerator {
    /// Creates a generator. Two programs must not share a seed, so take the seed from the operating system.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next id: a version 7 UUID, so ids sort by their creation time in milliseconds.
    pub fn next(&mut self, now: crate::Timestamp) -> Uuid {
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.next_u64().to_le_bytes());
        random[8..].copy_from_slice(&self.next_u64().to_le_bytes()[..2]);
        uuid::Builder::from_unix_timestamp_millis(now.0 / 1_000_000, &random).into_uuid()
    }

    /// Returns the next `SplitMix64` output. The generator has the full period with every seed, so
    /// consecutive numbers are good seeds.
    const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_rejects_unsafe_characters_and_lengths() {
        for bad in ["", "a.b", "a b", "*", ">", "a\0", "a\r\nPUB x", "ä", &"x".repeat(129)] {
            assert!(ProcessGuid::new(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "A_b-9", &"x".repeat(128)] {
            assert_eq!(ProcessGuid::new(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn ids_are_deterministic_for_a_seed_and_time() {
        let row = |seed| {
            let mut ids = IdGenerator::new(seed);
            [1, 2, 3].map(|ms| ids.next(crate::Timestamp::from_millis(ms)))
        };
        assert_eq!(row(7), row(7));
        assert_ne!(row(7), row(8));
        assert!(row(7).is_sorted());
    }
}
