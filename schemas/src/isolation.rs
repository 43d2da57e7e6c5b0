//! Isolation of a container from its host and from other containers (docs/model.md, "Isolation").

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Isolation layer of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wall {
    /// A file system of its own. Host files that programs need are visible and read-only.
    Files,
    /// Only its own processes are visible.
    Processes,
    /// Shared memory, semaphores and message queues of its own.
    Ipc,
    /// A host name of its own.
    Hostname,
    /// Users other than that of the rep. Root in the container has no rights outside of it.
    Users,
    /// System calls that programs do not need are refused.
    Calls,
    /// Landlock of the kernel confines the container to its own files and keeps it from sockets and processes
    /// of others.
    Landlock,
    /// Memory is limited to the amount in the definition.
    Memory,
    /// CPU time is shared by weight among containers instead of processes.
    Cpu,
    /// The number of processes is limited.
    Forks,
    /// Disk use is limited.
    Disk,
}

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl Wall {
    /// Every layer, in the order of its text form.
    pub const ALL: [Self; 11] = [
        Self::Files,
        Self::Processes,
        Self::Ipc,
        Self::Hostname,
        Self::Users,
        Self::Calls,
        Self::Landlock,
        Self::Memory,
        Self::Cpu,
        Self::Forks,
        Self::Disk,
    ];

    /// Returns the name of the layer.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Processes => "processes",
            Self::Ipc => "ipc",
            Self::Hostname => "hostname",
            Self::Users => "users",
            Self::Calls => "calls",
            Self::Landlock => "landlock",
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Forks => "forks",
            Self::Disk => "disk",
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// Set of isolation layers of a container.
///
/// As text it is `full` with every layer, `none` without any, and otherwise `degraded` with the missing
/// layers, such as `degraded[landlock, users]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Isolation {
    walls: u16,
}

/// Level of isolation, from least to most.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// No isolation layer.
    #[default]
    None,
    /// Some isolation layers.
    Degraded,
    /// Every isolation layer.
    Full,
}

impl Level {
    /// Every level with its name.
    pub const ALL: [(&'static str, Self); 3] =
        [("none", Self::None), ("degraded", Self::Degraded), ("full", Self::Full)];
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Degraded => "degraded",
            Self::Full => "full",
        })
    }
}

/// Error of parsing an isolation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no isolation: use full, none, or degraded[..] with some of {walls}", walls = words(&Wall::ALL))]
pub struct BadIsolation(String);

impl Isolation {
    /// No layer.
    pub const NONE: Self = Self { walls: 0 };
    /// Every layer.
    pub const FULL: Self = Self { walls: (1 << Wall::ALL.len()) - 1 };

    /// Returns `true` if the set contains this layer.
    #[must_use]
    pub const fn has(self, wall: Wall) -> bool {
        self.walls & wall.bit() != 0
    }

    /// Returns `true` if the set contains all of these layers.
    #[must_use]
    pub fn has_all(self, walls: &BTreeSet<Wall>) -> bool {
        walls.iter().all(|wall| self.has(*wall))
    }

    /// Returns the set with this layer added.
    #[must_use]
    pub const fn with(self, wall: Wall) -> Self {
        Self { walls: self.walls | wall.bit() }
    }

    /// Returns the set without this layer.
    #[must_use]
    pub const fn without(self, wall: Wall) -> Self {
        Self { walls: self.walls & !wall.bit() }
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with_all(self, other: Self) -> Self {
        Self { walls: self.walls | other.walls }
    }

    /// Returns the layers that are missing.
    pub fn lacking(self) -> impl Iterator<Item = Wall> {
        Wall::ALL.into_iter().filter(move |wall| !self.has(*wall))
    }

    /// Returns the level of isolation.
    #[must_use]
    pub const fn level(self) -> Level {
        match self {
            Self::NONE => Level::None,
            Self::FULL => Level::Full,
            Self { walls: _ } => Level::Degraded,
        }
    }
}

fn words(walls: &[Wall]) -> String {
    walls.iter().map(|wall| wall.word()).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level() {
            level @ (Level::None | Level::Full) => level.fmt(f),
            Level::Degraded => {
                let lacking: Vec<Wall> = self.lacking().collect();
                f.pad(&format!("degraded[{}]", words(&lacking)))
            }
        }
    }
}

impl FromStr for Isolation {
    type Err = BadIsolation;

    fn from_str(text: &str) -> Result<Self, BadIsolation> {
        match text {
            "none" => return Ok(Self::NONE),
            "full" => return Ok(Self::FULL),
            _ => {}
        }
        let bad = || BadIsolation(text.chars().take(80).collect());
        let lacking =
            text.strip_prefix("degraded[").and_then(|rest| rest.strip_suffix(']')).ok_or_else(bad)?;
        let mut isolation = Self::FULL;
        for word in lacking.split(", ") {
            let wall = Wall::ALL.into_iter().find(|wall| wall.word() == word).ok_or_else(bad)?;
            isolation = isolation.without(wall);
        }
        // Each set has exactly one text form: `degraded[..]` with no layer or with every layer is rejected.
        if isolation.to_string() == text { Ok(isolation) } else { Err(bad()) }
    }
}

impl Serialize for Isolation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.walls.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Isolation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return Cow::<'_, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom);
        }
        let walls = u16::deserialize(deserializer)?;
        if walls & !Self::FULL.walls == 0 {
            Ok(Self { walls })
        } else {
            Err(de::Error::custom(format!("{walls} names walls that are unknown")))
        }
    }
}

impl JsonSchema for Isolation {
    fn schema_name() -> Cow<'static, str> {
        "Isolation".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let wall = Wall::ALL.map(Wall::word).join("|");
        json_schema!({
            "description": "How far a container is kept apart from its host and from other containers: with all walls, without \
                            any, or without those that are named.",
            "type": "string",
            "pattern": format!("^(full|none|degraded\\[({wall})(, ({wall}))*\\])$"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn isolation_has_exactly_one_text_form() {
        for walls in 0..=Isolation::FULL.walls {
            let isolation = Isolation { walls };
            assert_eq!(isolation.to_string().parse(), Ok(isolation));
        }
        let text = Isolation::FULL.without(Wall::Users).without(Wall::Landlock).to_string();
        assert_eq!(text, "degraded[users, landlock]");
        for bad in
            ["", "Full", "degraded", "degraded[]", "degraded[landlock, users]", "degraded[users,landlock]"]
        {
            let said = bad.parse::<Isolation>().unwrap_err().to_string();
            assert!(
                said.starts_with(&format!("{bad:?} is no isolation: use full, none, or degraded")),
                "{said}"
            );
        }
        let every: Vec<&str> = Wall::ALL.iter().map(|wall| wall.word()).collect();
        assert!(format!("degraded[{}]", every.join(", ")).parse::<Isolation>().is_err(), "that is none");
    }

    #[test]
    fn levels_are_ordered() {
        assert_eq!(Isolation::FULL.level(), Level::Full);
        assert_eq!(Isolation::NONE.with(Wall::Calls).level(), Level::Degraded);
        assert_eq!(Isolation::NONE.level(), Level::None);
        assert!(Level::None < Level::Degraded && Level::Degraded < Level::Full);
        assert!(Level::ALL.iter().all(|(name, level)| *name == level.to_string()));
    }
}
