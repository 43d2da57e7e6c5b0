//! What work needs and what cells have. The one definition of "fits on this cell" is here.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::attributes::Offer;
use crate::checksum::crc64;
use crate::isolation::Wall;
use crate::names::{PlacementTag, Stack};
use crate::rules::{Rule, Rules};

/// Memory, disk, containers and host ports: what a cell has, what is free of it, or what work takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Disk in MiB.
    pub disk_mb: u64,
    /// Containers; work takes one.
    pub containers: u32,
    /// Ports of the host; work takes one for each port that it listens on.
    pub ports: u32,
}

/// A resource that a cell can lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Lack {
    /// Too few containers.
    Containers,
    /// Too little disk.
    Disk,
    /// Too little memory.
    Memory,
    /// Too few ports of the host.
    Ports,
}

impl Lack {
    /// Everything that a cell can lack, in the order in which placement errors name it.
    pub const ALL: [Self; 4] = [Self::Containers, Self::Disk, Self::Memory, Self::Ports];

    /// The word that placement errors use.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::Disk => "disk",
            Self::Memory => "memory",
            Self::Ports => "ports",
        }
    }
}

impl Resources {
    /// What one container with this memory and disk takes, and so many ports of the host.
    #[must_use]
    pub const fn of_container(memory_mb: u64, disk_mb: u64, ports: u32) -> Self {
        Self { memory_mb, disk_mb, containers: 1, ports }
    }

    /// What `free` lacks to take `work`: empty if it fits. Auction and rep both ask here.
    pub fn lacks(self, work: Self) -> impl Iterator<Item = Lack> {
        [
            (self.containers < work.containers, Lack::Containers),
            (self.disk_mb < work.disk_mb, Lack::Disk),
            (self.memory_mb < work.memory_mb, Lack::Memory),
            (self.ports < work.ports, Lack::Ports),
        ]
        .into_iter()
        .filter_map(|(lacking, what)| lacking.then_some(what))
    }

    /// Whether `work` fits into what is free.
    #[must_use]
    pub const fn fits(self, work: Self) -> bool {
        self.containers >= work.containers
            && self.disk_mb >= work.disk_mb
            && self.memory_mb >= work.memory_mb
            && self.ports >= work.ports
    }

    /// What is left after `work` took its part; never below zero.
    #[must_use]
    pub const fn minus(self, work: Self) -> Self {
        Self {
            memory_mb: self.memory_mb.saturating_sub(work.memory_mb),
            disk_mb: self.disk_mb.saturating_sub(work.disk_mb),
            containers: self.containers.saturating_sub(work.containers),
            ports: self.ports.saturating_sub(work.ports),
        }
    }

    /// What is there after `work` gave its part back.
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

/// What a definition demands of a cell, apart from resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Constraint {
    /// The stack that the cell must offer; none: any cell will do.
    pub stack: Option<Stack>,
    /// Tags that the cell must carry, all of them.
    pub placement_tags: BTreeSet<PlacementTag>,
    /// The walls that its containers must have.
    #[serde(default)]
    pub walls: BTreeSet<Wall>,
    /// What it asks for beside that. None: nothing, as most do.
    pub rules: Option<Box<Rules>>,
}

/// Why a cell is not compatible with a constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mismatch<'a> {
    /// The cell offers another stack.
    Stack,
    /// The cell carries tags that the definition doesn't ask for, or lacks one that it does.
    Tags,
    /// The cell doesn't keep containers apart as the work must be.
    Isolation,
    /// The cell doesn't meet this constraint, behind its place among them.
    Rule(usize, &'a Rule),
}

impl Mismatch<'_> {
    /// What placement errors say.
    #[must_use]
    pub fn word(self) -> Cow<'static, str> {
        match self {
            Self::Stack => "stack".into(),
            Self::Tags => "tags".into(),
            Self::Isolation => "isolation".into(),
            Self::Rule(_, rule) => format!("constraint {rule}").into(),
        }
    }
}

impl Constraint {
    /// Why a cell that offers this may not take the work, if so. A tagged cell is reserved for work that asks for its tags,
    /// as isolation segments are in Diego. How many instances are where no cell can tell by itself: of `distinct_cell` and
    /// `distinct_attribute` the auction and the BBS know more.
    #[must_use]
    pub fn mismatch(&self, offer: &Offer<'_>) -> Option<Mismatch<'_>> {
        if self.stack.as_ref().is_some_and(|wanted| wanted != offer.stack) {
            return Some(Mismatch::Stack);
        }
        if self.placement_tags != *offer.placement_tags {
            return Some(Mismatch::Tags);
        }
        if !self.walls.is_empty() && !offer.isolation().has_all(&self.walls) {
            return Some(Mismatch::Isolation);
        }
        let unmet = self.rules.as_ref().and_then(|rules| rules.unmet(offer));
        unmet.map(|(at, rule)| Mismatch::Rule(at, rule))
    }

    /// Whether cells of one [`CellClass`] may differ for it: it names what is unique, or asks how many instances are where.
    #[must_use]
    pub fn escapes(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.constraints.iter().any(Rule::escapes))
    }
}

/// What cells share that are alike for every constraint that doesn't [escape](Constraint::escapes): a hash of stack, tags,
/// zone, and attributes but for unique ones. The same in every program and at every time. As text it has 16 hexadecimal
/// digits: not every reader of JSON has numbers that large.
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
        number.ok_or_else(|| D::Error::custom(format!("{text:?} is no class: it has 16 hexadecimal digits")))
    }
}

impl JsonSchema for CellClass {
    fn schema_name() -> Cow<'static, str> {
        "CellClass".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "What cells share that are alike for every constraint that doesn't escape classes.",
            "type": "string",
            "pattern": "^[0-9a-f]{16}$",
        })
    }
}

impl CellClass {
    /// The class of a cell.
    #[must_use]
    pub fn of(offer: &Offer<'_>) -> Self {
        let mut words = vec![offer.stack.as_str(), offer.zone.as_str()];
        words.extend(offer.placement_tags.iter().map(PlacementTag::as_str));
        let shared = offer.attributes.iter().filter(|(name, _)| !name.is_unique());
        words.extend(shared.flat_map(|(name, value)| ["=", name.as_str(), value]));
        // No word has a byte like the one between them.
        let parts: Vec<&[u8]> = words.iter().flat_map(|word| [word.as_bytes(), &[0]]).collect();
        Self(crc64(&parts))
    }
}
