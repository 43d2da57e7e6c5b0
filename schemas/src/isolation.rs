//! Isolation of a container from its host and from other containers (docs/internals/model/containers.md, "Isolation").

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Isolation layer of a container.
#[derive(strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case", const_into_str)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IsolationLayer {
    /// A file system of its own. Host files that programs need are visible and read-only.
    Files,
    /// Only its own processes are visible.
    Processes,
    /// Shared memory, semaphores and message queues of its own.
    Ipc,
    /// A host name of its own.
    Hostname,
    /// Programs run as users that differ from the rep's user. Root in the container has no rights outside of
    /// it.
    Users,
    /// System calls that programs do not need are refused.
    Syscalls,
    /// The kernel's Landlock confines the container to its own files and denies access to sockets and
    /// processes outside of it.
    Landlock,
    /// Memory is limited to the amount in the definition.
    Memory,
    /// CPU time is shared by weight between containers instead of between processes.
    Cpu,
    /// The number of processes is limited.
    Pids,
    /// Disk use is limited.
    Disk,
}

impl IsolationLayer {
    /// Every layer, in the order of its text form.
    pub const ALL: [Self; 11] = [
        Self::Files,
        Self::Processes,
        Self::Ipc,
        Self::Hostname,
        Self::Users,
        Self::Syscalls,
        Self::Landlock,
        Self::Memory,
        Self::Cpu,
        Self::Pids,
        Self::Disk,
    ];

    /// Returns the name of the layer.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// Set of isolation layers of a container.
///
/// Its text form is `full` if the set has every layer and `none` if it is empty. Otherwise it is `degraded`
/// with the missing layers, such as `degraded[landlock, users]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Isolation {
    layers: u16,
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
#[error("invalid isolation {0:?}: use full, none, or degraded[..] with some of \
         {walls}", walls = join_names(&IsolationLayer::ALL))]
pub struct BadIsolation(String);

impl Isolation {
    /// No layer.
    pub const NONE: Self = Self { layers: 0 };
    /// Every layer.
    pub const FULL: Self = Self { layers: (1 << IsolationLayer::ALL.len()) - 1 };

    /// Returns `true` if the set contains this layer.
    #[must_use]
    pub const fn has(self, wall: IsolationLayer) -> bool {
        self.layers & wall.bit() != 0
    }

    /// Returns `true` if the set contains all of these layers.
    #[must_use]
    pub fn has_all(self, walls: &BTreeSet<IsolationLayer>) -> bool {
        walls.iter().all(|wall| self.has(*wall))
    }

    /// Returns the set with this layer added.
    #[must_use]
    pub const fn with(self, wall: IsolationLayer) -> Self {
        Self { layers: self.layers | wall.bit() }
    }

    /// Returns the set without this layer.
    #[must_use]
    pub const fn without(self, wall: IsolationLayer) -> Self {
        Self { layers: self.layers & !wall.bit() }
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self { layers: self.layers | other.layers }
    }

    /// Returns the layers that are missing.
    pub fn missing(self) -> impl Iterator<Item = IsolationLayer> {
        IsolationLayer::ALL.into_iter().filter(move |wall| !self.has(*wall))
    }

    /// Returns the level of isolation.
    #[must_use]
    pub const fn level(self) -> Level {
        match self {
            Self::NONE => Level::None,
            Self::FULL => Level::Full,
            Self { layers: _ } => Level::Degraded,
        }
    }
}

fn join_names(walls: &[IsolationLayer]) -> String {
    walls.iter().map(|wall| wall.as_str()).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level() {
            level @ (Level::None | Level::Full) => level.fmt(f),
            Level::Degraded => {
                let lacking: Vec<IsolationLayer> = self.missing().collect();
                f.pad(&format!("degraded[{}]", join_names(&lacking)))
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
            let wall = IsolationLayer::ALL.into_iter().find(|wall| wall.as_str() == word).ok_or_else(bad)?;
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
            self.layers.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Isolation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return Cow::<'_, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom);
        }
        let layers = u16::deserialize(deserializer)?;
        if layers & !Self::FULL.layers == 0 {
            Ok(Self { layers })
        } else {
            Err(de::Error::custom(format!("unknown isolation layers in {layers}")))
        }
    }
}

impl JsonSchema for Isolation {
    fn schema_name() -> Cow<'static, str> {
        "Isolation".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let wall = IsolationLayer::ALL.map(IsolationLayer::as_str).join("|");
        json_schema!({
            "description": "Isolation of a container from its host and from other containers: all layers, \
                            none, or all but the named ones.",
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
        for layers in 0..=Isolation::FULL.layers {
            let isolation = Isolation { layers };
            assert_eq!(isolation.to_string().parse(), Ok(isolation));
        }
        let text =
            Isolation::FULL.without(IsolationLayer::Users).without(IsolationLayer::Landlock).to_string();
        assert_eq!(text, "degraded[users, landlock]");
        for bad in
            ["", "Full", "degraded", "degraded[]", "degraded[landlock, users]", "degraded[users,landlock]"]
        {
            let said = bad.parse::<Isolation>().unwrap_err().to_string();
            assert!(
                said.starts_with(&format!("invalid isolation {bad:?}: use full, none, or degraded")),
                "{said}"
            );
        }
        let every: Vec<&str> = IsolationLayer::ALL.iter().map(|wall| wall.as_str()).collect();
        assert!(
            format!("degraded[{}]", every.join(", ")).parse::<Isolation>().is_err(),
            "without any layer \
            it is none"
        );
    }

    #[test]
    fn levels_are_ordered() {
        assert_eq!(Isolation::FULL.level(), Level::Full);
        assert_eq!(Isolation::NONE.with(IsolationLayer::Syscalls).level(), Level::Degraded);
        assert_eq!(Isolation::NONE.level(), Level::None);
        assert!(Level::None < Level::Degraded && Level::Degraded < Level::Full);
        assert!(Level::ALL.iter().all(|(name, level)| *name == level.to_string()));
    }
}
