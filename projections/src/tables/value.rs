//! Values of columns.

use std::fmt::Display;

use schemas::Timestamp;
use serde::Serialize;

/// Kind of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Text,
    /// Signed 64-bit integer.
    Integer,
    Boolean,
    /// Time in UTC with microsecond precision.
    Time,
    Json,
}

/// Value of a column.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Null,
    Text(String),
    Integer(i64),
    Boolean(bool),
    Time(Timestamp),
    Json(String),
}

impl Value {
    /// Returns the text of a `Text` or `Json` value.
    #[must_use]
    pub const fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Json(text) => Some(text.as_str()),
            Self::Null | Self::Integer(_) | Self::Boolean(_) | Self::Time(_) => None,
        }
    }

    /// Returns the value as text. Every database uses the same text form. `None` for `Null`.
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

/// Returns a time as text: RFC 3339 in UTC, with microsecond precision.
#[must_use]
pub fn time(at: Timestamp) -> String {
    let mut text = at.to_string();
    text.pop();
    format!("{text}{:03}Z", at.0 / 1_000 % 1_000)
}

/// Returns the microseconds since 1970, the precision of stored times.
#[must_use]
pub fn micros(at: Timestamp) -> i64 {
    i64::try_from(at.0 / 1_000).unwrap_or(i64::MAX)
}

pub(super) fn text(value: impl Display) -> Value {
    Value::Text(value.to_string())
}

pub(super) fn optional<T>(value: Option<T>, of: impl FnOnce(T) -> Value) -> Value {
    value.map_or(Value::Null, of)
}

/// Converts a number. Values beyond the range of the column become its maximum.
pub(super) fn number(value: impl TryInto<i64>) -> Value {
    Value::Integer(value.try_into().unwrap_or(i64::MAX))
}

/// Converts a value that serializes as one word.
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

/// Reports a bug: rows are plain data with text keys, so they always serialize.
fn unreachable_data(error: &serde_json::Error) -> ! {
    panic!("a row must be serializable: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_with_microseconds() {
        assert_eq!(time(Timestamp(1_800_000_000_123_456_789)), "2027-01-15T08:00:00.123456Z");
        assert_eq!(time(Timestamp(0)), "1970-01-01T00:00:00.000000Z");
    }
}
