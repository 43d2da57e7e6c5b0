//! What stands in a column.

use std::fmt::Display;

use schemas::Timestamp;
use serde::Serialize;

/// The kind of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Text.
    Text,
    /// A whole number, signed, of 64 bits.
    Integer,
    /// True or false.
    Boolean,
    /// A moment in UTC, to the microsecond.
    Time,
    /// JSON.
    Json,
}

/// A value of a column.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// Nothing.
    Null,
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// True or false.
    Boolean(bool),
    /// A moment.
    Time(Timestamp),
    /// JSON.
    Json(String),
}

impl Value {
    /// The text of what is text, or JSON.
    #[must_use]
    pub const fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Json(text) => Some(text.as_str()),
            Self::Null | Self::Integer(_) | Self::Boolean(_) | Self::Time(_) => None,
        }
    }

    /// As text, as every database answers it when it is asked for text; none: it is nothing.
    #[must_use]
    pub fn into_text(self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Text(text) | Self::Json(text) => Some(text),
            Self::Integer(number) => Some(number.to_string()),
            Self::Boolean(flag) => Some(flag.to_string()),
            Self::Time(at) => Some(time(at)),
        }
    }
}

/// A moment as text: RFC 3339 in UTC, to the microsecond.
#[must_use]
pub fn time(at: Timestamp) -> String {
    let mut text = at.to_string();
    text.pop();
    format!("{text}{:03}Z", at.0 / 1_000 % 1_000)
}

/// Microseconds since 1970: what a moment is stored to.
#[must_use]
pub fn micros(at: Timestamp) -> i64 {
    i64::try_from(at.0 / 1_000).unwrap_or(i64::MAX)
}

pub(super) fn text(value: impl Display) -> Value {
    Value::Text(value.to_string())
}

pub(super) fn maybe<T>(value: Option<T>, of: impl FnOnce(T) -> Value) -> Value {
    value.map_or(Value::Null, of)
}

/// A number; what is more than the column takes is the most that it takes.
pub(super) fn number(value: impl TryInto<i64>) -> Value {
    Value::Integer(value.try_into().unwrap_or(i64::MAX))
}

/// A value that is written as one word.
pub(super) fn word(value: &impl Serialize) -> Value {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => Value::Text(word),
        Ok(other) => Value::Text(other.to_string()),
        Err(error) => unreachable_data(&error),
    }
}

pub(super) fn json(value: &impl Serialize) -> Value {
    match serde_json::to_string(value) {
        Ok(json) => Value::Json(json),
        Err(error) => unreachable_data(&error),
    }
}

/// Rows are plain data with text keys: that one can't be written is a fault of the program.
fn unreachable_data(error: &serde_json::Error) -> ! {
    panic!("a row is plain data: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_to_the_microsecond() {
        assert_eq!(time(Timestamp(1_800_000_000_123_456_789)), "2027-01-15T08:00:00.123456Z");
        assert_eq!(time(Timestamp(0)), "1970-01-01T00:00:00.000000Z");
    }
}
