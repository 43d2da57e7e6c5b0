//! Names: words that can't be confused, and that are safe as a token of a subject and of a path.

use std::borrow::{Borrow, Cow};
use std::fmt;

use arcstr::ArcStr;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::limits::ID_BYTES;

/// Text that is not a name: what was wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid {what}: use 1 to {ID_BYTES} of A-Z a-z 0-9 _ -")]
pub struct BadName {
    /// What the text should have named.
    pub what: &'static str,
    /// The text, shortened.
    pub text: String,
}

fn check(what: &'static str, text: &str) -> Result<(), BadName> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=ID_BYTES).contains(&text.len()) && text.bytes().all(legal) {
        return Ok(());
    }
    Err(BadName { what, text: text.chars().take(40).collect() })
}

/// Makes a name of the text that is read, without a copy of it in between: of most that is read names are the largest part.
struct OfText<T>(fn(&str) -> Result<T, BadName>);

impl<T> Visitor<'_> for OfText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        ///
        /// 1 to 128 of `A-Z a-z 0-9 _ -`. A clone shares the text, and is no larger than a pointer.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(ArcStr);

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(OfText(Self::new))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "pattern": "^[A-Za-z0-9_-]{1,128}$"})
            }
        }

        impl $name {
            #[doc = concat!("Takes text as a ", $what, ".")]
            ///
            /// # Errors
            /// `BadName` if it is empty, too long, or has any other character.
            pub fn new(text: &str) -> Result<Self, BadName> {
                check($what, text)?;
                Ok(Self(text.into()))
            }

            /// The name as text.
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
    /// Names a process: a DesiredLRP and all its ActualLRPs.
    ProcessGuid, "process guid");
name!(
    /// Names a task.
    TaskGuid, "task guid");
name!(
    /// Names a periodic task: what launches tasks by a schedule.
    PeriodicGuid, "periodic guid");
name!(
    /// Names a parameterised task: a template of which each dispatch makes a task.
    ParameterisedGuid, "parameterised guid");
name!(
    /// What a client gives with a dispatch so that dispatching twice makes one task.
    DispatchKey, "key of a dispatch");
name!(
    /// Names one definition of a process ; the first is named after its process.
    DefinitionId, "definition id");
name!(
    /// An arbitrary grouping of processes and tasks for the consumer's convenience.
    Domain, "domain");
name!(
    /// Names a cell.
    CellId, "cell id");
name!(
    /// Names an availability zone.
    Zone, "zone");
name!(
    /// Names a client of a domain.
    ClientName, "client name");
name!(
    /// Names a running program: one BBS or one auctioneer. New at every start.
    ServiceId, "service id");
name!(
    /// What a client gives with a command so that asking twice is asking once.
    RequestId, "request id");
name!(
    /// What a definition needs of a cell's platform, and what a cell offers.
    Stack, "stack");
name!(
    /// A label that a cell must carry to take a definition that asks for it.
    PlacementTag, "placement tag");

/// What stands between the guid of a periodic or parameterised task and what tells the tasks that it launched apart.
pub const LAUNCH_MARK: &str = "--";
/// What stands behind that in what was dispatched, before the number of the dispatch.
const DISPATCH_MARK: &str = "dispatch-";

impl PeriodicGuid {
    /// The guid of the task that is launched for the moment at which it was due: `report--1795402800`.
    ///
    /// # Errors
    /// `BadName` if the guid is too long for that: a spec takes none that is.
    pub fn launch(&self, due: crate::Timestamp) -> Result<TaskGuid, BadName> {
        TaskGuid::new(&format!("{self}{LAUNCH_MARK}{}", due.seconds()))
    }

    /// The guid of the task that somebody wants launched now, whatever the schedule says: `report--now-1795402817`.
    ///
    /// # Errors
    /// See [`PeriodicGuid::launch`].
    pub fn launch_now(&self, now: crate::Timestamp) -> Result<TaskGuid, BadName> {
        TaskGuid::new(&format!("{self}{LAUNCH_MARK}now-{}", now.seconds()))
    }
}

impl ParameterisedGuid {
    /// The guid of the task that the dispatch of a number becomes: `resize--dispatch-17`.
    ///
    /// # Errors
    /// See [`PeriodicGuid::launch`].
    pub fn dispatch(&self, number: u64) -> Result<TaskGuid, BadName> {
        TaskGuid::new(&format!("{self}{LAUNCH_MARK}{DISPATCH_MARK}{number}"))
    }
}

impl TaskGuid {
    /// What decides on which shard a task is: for what a periodic or parameterised task launched its guid, so that all of
    /// that is on the shard of who launches it, and for anything else the whole name.
    #[must_use]
    pub fn stem(&self) -> &str {
        self.as_str().rsplit_once(LAUNCH_MARK).map_or(self.as_str(), |(stem, _)| stem)
    }

    /// The periodic task that launched it, if one did: no client may choose such a name.
    #[must_use]
    pub fn periodic(&self) -> Option<PeriodicGuid> {
        let (stem, launch) = self.as_str().rsplit_once(LAUNCH_MARK)?;
        PeriodicGuid::new(stem).ok().filter(|_| !launch.starts_with(DISPATCH_MARK))
    }

    /// The parameterised task of which it was dispatched, and the number of that, if it was: no client may choose such a
    /// name.
    #[must_use]
    pub fn dispatched(&self) -> Option<(ParameterisedGuid, u64)> {
        let (stem, launch) = self.as_str().rsplit_once(LAUNCH_MARK)?;
        let number = launch.strip_prefix(DISPATCH_MARK)?.parse().ok()?;
        Some((ParameterisedGuid::new(stem).ok()?, number))
    }
}

impl DefinitionId {
    /// No id is before this one in their order: it is the shortest, of the first character that names may have.
    #[must_use]
    pub fn least() -> Self {
        Self("-".into())
    }
}

impl From<&ProcessGuid> for DefinitionId {
    /// The first definition of a process has its name, and shares its text.
    fn from(guid: &ProcessGuid) -> Self {
        Self(guid.0.clone())
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

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
    /// Names one attempt to run something on a cell: a container and the record that speaks of it.
    InstanceGuid);
id!(
    /// Names an entry of the journal.
    EntryId);
id!(
    /// Names a decision.
    DecisionId);

impl DecisionId {
    /// When it was made, to the millisecond: its first 48 bits.
    #[must_use]
    pub fn made_at(self) -> crate::Timestamp {
        let millis = (self.0.as_u128() >> 80) as u64;
        crate::Timestamp::from_millis(millis)
    }
}
id!(
    /// Names an evaluation. The first that a decision creates has the decision's id.
    EvaluationId);
id!(
    /// Names a cluster.
    ClusterId);
id!(
    /// Names a rep's data folder, made with it: who speaks for a cell is who has its folder.
    FolderId);
id!(
    /// Names one run of a rep: a rep that starts again is another incarnation of its cell.
    Incarnation);

impl EvaluationId {
    /// The id of the evaluation that a decision creates as its `number`th, from 0: it differs from the decision's in the
    /// eighth digit from the end.
    #[must_use]
    pub const fn of(decision: DecisionId, number: u8) -> Self {
        Self(Uuid::from_u128(decision.0.as_u128() ^ ((number as u128 & 0xf) << 28)))
    }
}

/// Makes ids from a seed and the time: the one place that does. The same seed and times give the same ids.
#[derive(Clone, Debug)]
pub struct Ids {
    state: u64,
}

impl Ids {
    /// Starts a row of ids. Two programs must not share a seed: take it from the operating system.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next id: a version 7 UUID, so ids sort by the millisecond in which they were made.
    pub fn next(&mut self, now: crate::Timestamp) -> Uuid {
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.draw().to_le_bytes());
        random[8..].copy_from_slice(&self.draw().to_le_bytes()[..2]);
        uuid::Builder::from_unix_timestamp_millis(now.0 / 1_000_000, &random).into_uuid()
    }

    /// `SplitMix64`: every seed gives a full period, and a counter is a fine seed.
    const fn draw(&mut self) -> u64 {
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
    fn a_name_is_one_safe_token() {
        for bad in ["", "a.b", "a b", "*", ">", "a\0", "a\r\nPUB x", "ä", &"x".repeat(129)] {
            assert!(ProcessGuid::new(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "A_b-9", &"x".repeat(128)] {
            assert_eq!(ProcessGuid::new(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn ids_follow_from_the_seed_and_the_time() {
        let row = |seed| {
            let mut ids = Ids::new(seed);
            [1, 2, 3].map(|ms| ids.next(crate::Timestamp::from_millis(ms)))
        };
        assert_eq!(row(7), row(7));
        assert_ne!(row(7), row(8));
        assert!(row(7).is_sorted());
    }
}
