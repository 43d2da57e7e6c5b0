//! Priorities of processes and tasks (docs/internals/model/auction.md, "Auction").

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::limits;

/// Priority of work, 1 to 100. Work with a greater priority is placed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Priority(u8);

impl Priority {
    /// Returns the priority, or `None` if the number is out of range.
    #[must_use]
    pub fn new(number: u8) -> Option<Self> {
        (limits::MIN_PRIORITY..=limits::MAX_PRIORITY).contains(&number).then_some(Self(number))
    }
}

impl Default for Priority {
    /// Returns the priority of work without an explicit priority.
    fn default() -> Self {
        Self(limits::DEFAULT_PRIORITY)
    }
}

impl From<Priority> for u8 {
    fn from(priority: Priority) -> Self {
        priority.0
    }
}

impl TryFrom<u8> for Priority {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        let (least, greatest) = (limits::MIN_PRIORITY, limits::MAX_PRIORITY);
        Self::new(number).ok_or_else(|| format!("invalid priority {number}: expected {least} to {greatest}"))
    }
}

impl JsonSchema for Priority {
    fn schema_name() -> Cow<'static, str> {
        "Priority".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let (least, greatest) = (limits::MIN_PRIORITY, limits::MAX_PRIORITY);
        json_schema!({
            "description": "Priority of work. Work with a higher priority is placed first.",
            "type": "integer",
            "minimum": least,
            "maximum": greatest,
        })
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
