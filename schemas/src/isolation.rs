//! How far a container is kept apart from its host and from other containers (docs/model.md, "Isolation").

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// One of the walls around a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wall {
    /// It has a file system of its own: of the host it sees what programs need, and that can't be written.
    Files,
    /// It sees no process but its own.
    Processes,
    /// Shared memory, semaphores and message queues are its own.
    Ipc,
    /// It has a name of its own for the host.
    Hostname,
    /// It runs as other users than the rep, and what is root in it is nobody outside.
    Users,
    /// System calls that programs don't need are refused.
    Calls,
    /// The kernel's Landlock holds it in its files and away from the sockets and processes of others.
    Landlock,
    /// It gets no more memory than its definition asks for.
    Memory,
    /// The processor is shared by weight among containers, not among processes.
    Cpu,
    /// It has a limited number of processes.
    Forks,
    /// It has a limited disk.
    Disk,
}

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl Wall {
    /// All of them, in the order in which they are told.
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

    /// Its name.
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

/// The walls that a container has. As text: `full` with all of them, `none` without any, else `degraded` with the names of
/// those that it lacks, as `degraded[landlock, users]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Isolation {
    walls: u16,
}

/// How much isolation there is, or is asked for; each is more than the one before.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// None.
    #[default]
    None,
    /// Some walls.
    Degraded,
    /// All of them.
    Full,
}

impl Level {
    /// All levels by name.
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

/// Text that says of no isolation how much it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no isolation: use full, none, or degraded[..] with some of {walls}", walls = words(&Wall::ALL))]
pub struct BadIsolation(String);

impl Isolation {
    /// No wall.
    pub const NONE: Self = Self { walls: 0 };
    /// All walls.
    pub const FULL: Self = Self { walls: (1 << Wall::ALL.len()) - 1 };

    /// Whether a container has this wall.
    #[must_use]
    pub const fn has(self, wall: Wall) -> bool {
        self.walls & wall.bit() != 0
    }

    /// Whether a container has all of these.
    #[must_use]
    pub fn has_all(self, walls: &BTreeSet<Wall>) -> bool {
        walls.iter().all(|wall| self.has(*wall))
    }

    /// The same with this wall.
    #[must_use]
    pub const fn with(self, wall: Wall) -> Self {
        Self { walls: self.walls | wall.bit() }
    }

    /// The same without this wall.
    #[must_use]
    pub const fn without(self, wall: Wall) -> Self {
        Self { walls: self.walls & !wall.bit() }
    }

    /// The same with all that another has.
    #[must_use]
    pub const fn with_all(self, other: Self) -> Self {
        Self { walls: self.walls | other.walls }
    }

    /// The walls that it lacks.
    pub fn lacking(self) -> impl Iterator<Item = Wall> {
        Wall::ALL.into_iter().filter(move |wall| !self.has(*wall))
    }

    /// How much that is.
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
        // One text for each: what lacks nothing, or everything, has another word.
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
    fn each_isolation_has_one_text() {
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
