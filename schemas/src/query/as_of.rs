//! The moment in the past that a query refers to: a position, a time, or a duration before now.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::{Span, SpanRelativeTo};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::refusal::{BadField, Refusal};
use crate::subject::Position;
use crate::time::Timestamp;

/// A moment of the past as text. For example, `41` is a position, `2026-10-02T14:00:00Z` is a time, and
/// `-10m` is ten minutes ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AsOf {
    /// A position of the log.
    Position(Position),
    /// A time. It resolves to the position before the first entry that was decided after this time.
    Time(Timestamp),
    /// A duration before the query, by the clock of the BBS that answers.
    Ago(Duration),
}

/// Error for text that is not a valid moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid moment {0:?}: use a position such as 41, a time such as 2026-10-02T14:00:00Z, or a duration \
     ago such as -10m or -1h30m"
)]
pub struct BadAsOf(String);

/// A moment that has been resolved against the current time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    Position(Position),
    /// A time. It stands for the position before the first entry that was decided after this time.
    Time(Timestamp),
}

impl AsOf {
    /// Resolves the moment to a position or a time, given the current time `now`.
    ///
    /// # Errors
    /// `InvalidRequest` if the time is in the future.
    pub fn moment(self, now: Timestamp) -> Result<Moment, Refusal> {
        let time = match self {
            Self::Position(position) => return Ok(Moment::Position(position)),
            Self::Time(time) => time,
            Self::Ago(ago) => now - ago,
        };
        if time > now {
            return Err(Self::refusal(format!("{time} is in the future: it is {now}")));
        }
        Ok(Moment::Time(time))
    }

    /// Returns the refusal for a moment that cannot be queried.
    #[must_use]
    pub fn refusal(problem: String) -> Refusal {
        Refusal::invalid(vec![BadField { field: "as_of".into(), problem }])
    }

    fn parse(text: &str) -> Option<Self> {
        if let Ok(position) = text.strip_prefix('#').unwrap_or(text).parse() {
            return Some(Self::Position(Position(position)));
        }
        if let Some(ago) = text.strip_prefix('-') {
            let span: Span = ago.parse().ok().filter(|span: &Span| !span.is_negative())?;
            let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
            let ago = Duration::try_from(length).ok()?;
            // A timestamp cannot represent an earlier time, so no log has an older entry.
            return u64::try_from(ago.as_nanos()).ok().map(|_| Self::Ago(ago));
        }
        let time: jiff::Timestamp = text.parse().ok()?;
        u64::try_from(time.as_nanosecond()).ok().map(|at| Self::Time(Timestamp(at)))
    }
}

impl FromStr for AsOf {
    type Err = BadAsOf;

    fn from_str(text: &str) -> Result<Self, BadAsOf> {
        Self::parse(text.trim()).ok_or_else(|| BadAsOf(crate::limits::truncate(text, 80)))
    }
}

impl TryFrom<String> for AsOf {
    type Error = BadAsOf;

    fn try_from(text: String) -> Result<Self, BadAsOf> {
        text.parse()
    }
}

impl From<AsOf> for String {
    fn from(as_of: AsOf) -> Self {
        as_of.to_string()
    }
}

impl fmt::Display for AsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Position(position) => position.fmt(f),
            Self::Time(time) => match jiff::Timestamp::from_nanosecond(i128::from(time.0)) {
                Ok(exact) => exact.fmt(f),
                Err(_) => time.fmt(f),
            },
            Self::Ago(ago) if ago.subsec_nanos() == 0 => write!(f, "-{}s", ago.as_secs()),
            Self::Ago(ago) => write!(f, "-{}.{:09}s", ago.as_secs(), ago.subsec_nanos()),
        }
    }
}

impl JsonSchema for AsOf {
    fn schema_name() -> Cow<'static, str> {
        "AsOf".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^\\s*[-+#0-9]",
            "description": "A position such as 41, a time such as 2026-10-02T14:00:00Z, or a duration ago \
                            such as -10m.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_as_of(text: &str) -> AsOf {
        text.parse().unwrap()
    }

    #[test]
    fn moment_text_round_trips_and_invalid_text_is_rejected() {
        let minutes = |n: u64| AsOf::Ago(Duration::from_secs(60 * n));
        let time = AsOf::Time(Timestamp::from_millis(1_790_949_600_000));
        let good = [
            ("41", AsOf::Position(Position(41))),
            ("#41", AsOf::Position(Position(41))),
            ("-10m", minutes(10)),
            ("-1h30m", minutes(90)),
            ("-1h 30m", minutes(90)),
            ("-7d", minutes(7 * 24 * 60)),
            ("-1.5s", AsOf::Ago(Duration::from_millis(1_500))),
            ("-0s", minutes(0)),
            ("-18446744073.709551615s", AsOf::Ago(Duration::from_nanos(u64::MAX))),
            ("2026-10-02T14:00:00Z", time),
            ("2026-10-02T16:00:00+02:00", time),
            ("2026-10-02T14:00:00.000000001Z", AsOf::Time(Timestamp(1_790_949_600_000_000_001))),
        ];
        for (text, as_of) in good {
            assert_eq!(parse_as_of(text), as_of, "{text}");
            assert_eq!(parse_as_of(&as_of.to_string()), as_of, "{as_of} round-trips");
        }
        for bad in [
            "",
            "-",
            "--10m",
            "-10",
            "10m",
            "-1month",
            "-18446744073.709551616s",
            "yesterday",
            "2026-10-02",
            "1960-01-01T00:00:00Z",
        ] {
            let told = bad.parse::<AsOf>().unwrap_err().to_string();
            assert!(
                told.starts_with(&format!(
                    "invalid moment {bad:?}: use a position \
                such as 41"
                )),
                "{told}"
            );
        }
    }

    #[test]
    fn future_time_is_refused() {
        let now = Timestamp::from_seconds(1_000);
        assert_eq!(parse_as_of("-10s").moment(now), Ok(Moment::Time(Timestamp::from_seconds(990))));
        assert_eq!(parse_as_of("41").moment(now), Ok(Moment::Position(Position(41))));
        let told = parse_as_of("1970-01-01T00:16:41Z").moment(now).unwrap_err().message;
        assert_eq!(told, "as_of: 1970-01-01T00:16:41.000Z is in the future: it is 1970-01-01T00:16:40.000Z");
    }
}
