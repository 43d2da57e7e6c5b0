//! Resources and constraints of work (instances and tasks), and the check that a cell meets them. No other
//! code decides if work fits on a cell.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::attributes::Offer;
use crate::checksum::crc64;
use crate::isolation::IsolationLayer;
use crate::names::{PlacementTag, Stack};
use crate::rules::{Rule, Rules};

/// Memory, disk, containers and host ports. Describes what a cell has, what is free on it, or what work uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Disk in MiB.
    pub disk_mb: u64,
    /// Containers. Each instance or task uses one container.
    pub containers: u32,
    /// Ports of the host. An instance or task uses one host port for each port that it listens on.
    pub ports: u32,
}

/// Resource that a cell can lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Shortage {
    /// Too few containers are free.
    Containers,
    /// Too little disk is free.
    Disk,
    /// Too little memory is free.
    Memory,
    /// Too few ports of the host are free.
    Ports,
}

impl Shortage {
    /// Every resource that a cell can lack, in the order of placement errors.
    pub const ALL: [Self; 4] = [Self::Containers, Self::Disk, Self::Memory, Self::Ports];

    /// Returns the word that placement errors use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::Disk => "disk",
            Self::Memory => "memory",
            Self::Ports => "ports",
        }
    }
}

impl Resources {
    /// Returns the resources of one container with this memory and disk, and this number of host ports.
    #[must_use]
    pub const fn for_container(memory_mb: u64, disk_mb: u64, ports: u32) -> Self {
        Self { memory_mb, disk_mb, containers: 1, ports }
    }

    /// Returns the resources of which too little is free for `work`; none if the work fits. The auction and
    /// the rep both use this function.
    pub fn shortages(self, work: Self) -> impl Iterator<Item = Shortage> {
        [
            (self.containers < work.containers, Shortage::Containers),
            (self.disk_mb < work.disk_mb, Shortage::Disk),
            (self.memory_mb < work.memory_mb, Shortage::Memory),
            (self.ports < work.ports, Shortage::Ports),
        ]
        .into_iter()
        .filter_map(|(lacking, what)| lacking.then_some(what))
    }

    /// Returns `true` if `work` fits into these free resources.
    #[must_use]
    pub const fn fits(self, work: Self) -> bool {
        self.containers >= work.containers
            && self.disk_mb >= work.disk_mb
            && self.memory_mb >= work.memory_mb
            && self.ports >= work.ports
    }

    /// Returns the rest after `work` has taken its resources, at least zero.
    #[must_use]
    pub const fn minus(self, work: Self) -> Self {
        Self {
            memory_mb: self.memory_mb.saturating_sub(work.memory_mb),
            disk_mb: self.disk_mb.saturating_sub(work.disk_mb),
            containers: self.containers.saturating_sub(work.containers),
            ports: self.ports.saturating_sub(work.ports),
        }
    }

    /// Returns the sum after `work` has released its resources.
    #[must_use]
    pub const fn plus(self, work: Self) -> Self {
        Self {
            memory_mb: self.memory_mb.saturating_add(work.memory_mb),
            disk_mb: self.disk_mb.saturating_add(work.disk_mb),
            containers: self.containers.saturating_add(work.containers),
            ports: self.ports.saturating_add(work.ports),
        }
    }
}

/// Requirements of a definition on a cell, apart from resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Constraint {
    /// Stack that the cell has to offer. Without it, cells of every stack are accepted.
    pub stack: Option<Stack>,
    /// Tags of the cell. The cell must carry exactly these tags.
    pub placement_tags: BTreeSet<PlacementTag>,
    /// Isolation layers that the cell's containers must have.
    #[serde(default)]
    pub isolation: BTreeSet<IsolationLayer>,
    /// Further rules. `None` for most definitions.
    pub rules: Option<Box<Rules>>,
}

/// Reason that a cell is not compatible with a constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mismatch<'a> {
    /// The cell offers another stack.
    Stack,
    /// The cell carries a tag that the definition does not require, or lacks a tag that the definition
    /// requires.
    Tags,
    /// The cell's containers lack a required isolation layer.
    Isolation,
    /// The cell does not meet this rule. The number is the position of the rule.
    Rule(usize, &'a Rule),
}

impl Mismatch<'_> {
    /// Returns the reason as placement errors state it.
    #[must_use]
    pub fn description(self) -> Cow<'static, str> {
        match self {
            Self::Stack => "stack".into(),
            Self::Tags => "tags".into(),
            Self::Isolation => "isolation".into(),
            Self::Rule(_, rule) => format!("constraint {rule}").into(),
        }
    }
}

impl Constraint {
    /// Returns the reason that a cell with this offer cannot run the work, or `None` if it can.
    ///
    /// A tagged cell is reserved for work that requires its tags, like an isolation segment in Diego. The
    /// rules `distinct_cell` and `distinct_attribute` depend on other instances, which a cell does not know.
    /// The auction and the BBS check these rules.
    #[must_use]
    pub fn mismatch(&self, offer: &Offer<'_>) -> Option<Mismatch<'_>> {
        if self.stack.as_ref().is_some_and(|wanted| wanted != offer.stack) {
            return Some(Mismatch::Stack);
        }
        if self.placement_tags != *offer.placement_tags {
            return Some(Mismatch::Tags);
        }
        if !self.isolation.is_empty() && !offer.isolation().has_all(&self.isolation) {
            return Some(Mismatch::Isolation);
        }
        let unmet = self.rules.as_ref().and_then(|rules| rules.first_unmet(offer));
        unmet.map(|(at, rule)| Mismatch::Rule(at, rule))
    }

    /// Returns `true` if the constraint can distinguish cells of one [`CellClass`]. Such a constraint names a
    /// unique attribute, or limits the instances per cell or attribute value.
    #[must_use]
    pub fn escapes(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.constraints.iter().any(Rule::escapes))
    }
}

/// Class of cells that are equivalent for every constraint that does not [escape](Constraint::escapes).
///
/// The class is a hash of the stack, the tags, the zone and the attributes that are not unique. The hash is
/// the same in every program and at any time. As text it has 16 hexadecimal digits, because some JSON parsers
/// lose digits of such a large number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellClass(pub u64);

impl fmt::Display for CellClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for CellClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for CellClass {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return u64::deserialize(deserializer).map(Self);
        }
        let text = String::deserialize(deserializer)?;
        let number = u64::from_str_radix(&text, 16).ok().map(Self).filter(|class| class.to_string() == text);
        number.ok_or_else(|| {
            D::Error::custom(format!(
                "invalid class {text:?}: expected 16 \
            hexadecimal digits"
            ))
        })
    }
}

impl JsonSchema for CellClass {
    fn schema_name() -> Cow<'static, str> {
        "CellClass".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Class of cells that are equivalent for every constraint that does not escape \
                            classes.",
            "type": "string",
            "pattern": "^[0-9a-f]{16}$",
        })
    }
}

impl CellClass {
    /// Returns the class of a cell.
    #[must_use]
    pub fn from_offer(offer: &Offer<'_>) -> Self {
        let mut words = vec![offer.stack.as_str(), offer.zone.as_str()];
        words.extend(offer.placement_tags.iter().map(PlacementTag::as_str));
        let shared = offer.attributes.iter().filter(|(name, _)| !name.is_unique());
        words.extend(shared.flat_map(|(name, value)| ["=", name.as_str(), value]));
        // A NUL separates the words. No word contains a NUL.
        let parts: Vec<&[u8]> = words.iter().flat_map(|word| [word.as_bytes(), &[0]]).collect();
        Self(crc64(&parts))
    }
}
