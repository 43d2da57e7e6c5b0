//! Attributes of cells: properties other than the stack, the tags and the resources. Definitions can set
//! constraints on attributes (docs/internals/model/cells.md, "Attributes").

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::isolation::Isolation;
use crate::limits;
use crate::names::{CellId, PlacementTag, Stack, Zone};

/// Attribute for the stack of a cell.
pub const STACK: &str = "stack";
/// Attribute for the zone of a cell.
pub const ZONE: &str = "zone";
/// Attribute for the id of a cell.
pub const CELL_ID: &str = "unique.cell_id";
/// Attribute for the isolation layers of a cell's containers. Only the rep sets it.
pub const ISOLATION: &str = "isolation";
/// Prefix of attributes whose value differs from cell to cell.
pub const UNIQUE_PREFIX: &str = "unique.";

/// Attributes that operators cannot set, because they are derived from other properties of a cell.
pub const RESERVED: [&str; 3] = [STACK, ZONE, CELL_ID];

/// Error of an invalid attribute name or value, or of an invalid set of attributes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAttribute {
    /// The name is not valid.
    #[error(
        "{0:?} is not a valid attribute name: use 1 to {max} of A-Z a-z 0-9 _ - . and no . at either end",
        max = limits::ATTRIBUTE_NAME_BYTES
    )]
    Name(String),
    /// The value is not valid.
    #[error(
        "{0:?} is not a valid value of an attribute: use 1 to {max} bytes without control characters",
        max = limits::ATTRIBUTE_VALUE_BYTES
    )]
    Value(String),
    /// The attribute is derived from another property of the cell.
    #[error("the attribute {0} cannot be set: it always has the {0} of the cell")]
    Reserved(String),
    /// There are too many attributes.
    #[error("has {0} attributes, more than {max}", max = limits::CELL_ATTRIBUTES)]
    TooMany(usize),
    /// The attributes exceed the total size limit.
    #[error("attributes have {0} bytes, more than {max}", max = limits::ATTRIBUTES_BYTES)]
    TooLarge(usize),
}

/// Truncates invalid text for an error message.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Name of an attribute: 1 to 64 characters of `A-Z a-z 0-9 _ - .`, without a dot at either end.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AttributeName(Arc<str>);

impl AttributeName {
    /// Parses the name of an attribute.
    ///
    /// # Errors
    /// `BadAttribute::Name` if the text is not a valid name.
    pub fn new(text: &str) -> Result<Self, BadAttribute> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let sized = (1..=limits::ATTRIBUTE_NAME_BYTES).contains(&text.len());
        if sized && text.bytes().all(legal) && !text.starts_with('.') && !text.ends_with('.') {
            return Ok(Self(text.into()));
        }
        Err(BadAttribute::Name(shortened(text)))
    }

    /// Returns the name [`ISOLATION`].
    #[must_use]
    pub fn isolation() -> Self {
        Self(ISOLATION.into())
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns `true` if the value of this attribute differs from cell to cell.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.0.starts_with(UNIQUE_PREFIX)
    }
}

impl TryFrom<String> for AttributeName {
    type Error = BadAttribute;
    fn try_from(text: String) -> Result<Self, BadAttribute> {
        Self::new(&text)
    }
}

impl std::str::FromStr for AttributeName {
    type Err = BadAttribute;
    fn from_str(text: &str) -> Result<Self, BadAttribute> {
        Self::new(text)
    }
}

impl From<AttributeName> for String {
    fn from(name: AttributeName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl Borrow<str> for AttributeName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AttributeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for AttributeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl JsonSchema for AttributeName {
    fn schema_name() -> Cow<'static, str> {
        "AttributeName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let pattern = "^[A-Za-z0-9_-]([A-Za-z0-9_.-]{0,62}[A-Za-z0-9_-])?$";
        json_schema!({
            "description": "Name of a cell attribute: 1 to 64 of `A-Z a-z 0-9 _ . -`, without a dot at either end.",
            "type": "string",
            "pattern": pattern,
        })
    }
}

/// Attributes of a cell by name. Cells are cloned often, so clones share the attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<AttributeName, String>", into = "BTreeMap<AttributeName, String>")]
pub struct Attributes(Arc<BTreeMap<AttributeName, String>>);

impl Attributes {
    /// Creates the attributes of a cell.
    ///
    /// # Errors
    /// `BadAttribute` for the first invalid attribute, for too many attributes, or for a set that is too
    /// large.
    pub fn new(values: BTreeMap<AttributeName, String>) -> Result<Self, BadAttribute> {
        if values.len() > limits::CELL_ATTRIBUTES {
            return Err(BadAttribute::TooMany(values.len()));
        }
        for (name, value) in &values {
            if RESERVED.contains(&name.as_str()) {
                return Err(BadAttribute::Reserved(name.as_str().to_owned()));
            }
            check_value(value)?;
        }
        let bytes = values.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if bytes > limits::ATTRIBUTES_BYTES {
            return Err(BadAttribute::TooLarge(bytes));
        }
        Ok(Self(Arc::new(values)))
    }

    /// Returns the value of an attribute, or `None` if it is not set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns an iterator over the attributes in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&AttributeName, &str)> {
        self.0.iter().map(|(name, value)| (name, value.as_str()))
    }

    /// Returns `true` if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Checks that text is a valid value of an attribute.
///
/// # Errors
/// `BadAttribute::Value` if the text is not a valid value.
pub fn check_value(value: &str) -> Result<(), BadAttribute> {
    let sized = (1..=limits::ATTRIBUTE_VALUE_BYTES).contains(&value.len());
    if sized && !value.chars().any(char::is_control) {
        return Ok(());
    }
    Err(BadAttribute::Value(shortened(value)))
}

impl TryFrom<BTreeMap<AttributeName, String>> for Attributes {
    type Error = BadAttribute;
    fn try_from(values: BTreeMap<AttributeName, String>) -> Result<Self, BadAttribute> {
        Self::new(values)
    }
}

impl From<Attributes> for BTreeMap<AttributeName, String> {
    fn from(attributes: Attributes) -> Self {
        Arc::unwrap_or_clone(attributes.0)
    }
}

impl JsonSchema for Attributes {
    fn schema_name() -> Cow<'static, str> {
        "Attributes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let value = json!({"type": "string", "minLength": 1});
        let description = "Attributes of a cell by name.";
        json_schema!({"description": description, "type": "object", "additionalProperties": value})
    }
}

/// Properties of a cell that placement matches on, without its free resources.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    pub cell_id: &'a CellId,
    pub zone: &'a Zone,
    pub stack: &'a Stack,
    pub placement_tags: &'a std::collections::BTreeSet<PlacementTag>,
    /// Attributes other than those in [`RESERVED`].
    pub attributes: &'a Attributes,
}

impl<'a> Offer<'a> {
    /// Returns the value of an attribute, or `None` if the cell lacks the attribute. [`RESERVED`] attributes
    /// are always present.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&'a str> {
        match name {
            STACK => Some(self.stack.as_str()),
            ZONE => Some(self.zone.as_str()),
            CELL_ID => Some(self.cell_id.as_str()),
            _ => self.attributes.get(name),
        }
    }

    /// Returns the isolation layers of the cell's containers. The set is empty if the attribute is missing or
    /// invalid.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.attributes.get(ISOLATION).and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}
