//! Points in time. Code in this crate never reads a clock: the time is always an input.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Add, Range, Sub};
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Point in time, in nanoseconds since 1970-01-01 UTC.
///
/// The JSON form is RFC 3339 text in UTC with nanoseconds, because most JSON parsers lose the last digits of
/// such a large number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

/// Form of a timestamp in JSON. A zero stands for any digit.
const SHAPE: &[u8; 30] = b"0000-00-00T00:00:00.000000000Z";

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return serializer.serialize_u64(self.0);
        }
        let text = self.text();
        serializer.serialize_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(TimestampVisitor)
        } else {
            u64::deserialize(deserializer).map(Self)
        }
    }
}

struct TimestampVisitor;

impl Visitor<'_> for TimestampVisitor {
    type Value = Timestamp;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time such as 2026-10-02T14:00:00.000000000Z")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Timestamp, E> {
        text.parse().map_err(E::custom)
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Time as RFC 3339 text in UTC with nanoseconds.",
            "type": "string",
            "format": "date-time",
        })
    }
}

/// Error for text that is not a timestamp between 1970 and 2554.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid time {text:?}: expected RFC 3339 such as 2026-10-02T14:00:00Z, from 1970 to 2554")]
pub struct BadTime {
    /// Rejected text, truncated to 40 characters.
    text: String,
}

impl FromStr for Timestamp {
    type Err = BadTime;

    fn from_str(text: &str) -> Result<Self, BadTime> {
        let other = || {
            let time: jiff::Timestamp = text.parse().ok()?;
            u64::try_from(time.as_nanosecond()).ok().map(Self)
        };
        parse_json_form(text.as_bytes())
            .or_else(other)
            .ok_or_else(|| BadTime { text: text.chars().take(40).collect() })
    }
}

/// Parses a timestamp in exactly the form of JSON. Returns `None` for any other form.
fn parse_json_form(text: &[u8]) -> Option<Timestamp> {
    let fits = |(byte, shape): (&u8, &u8)| if *shape == b'0' { byte.is_ascii_digit() } else { byte == shape };
    if text.len() != SHAPE.len() || !text.iter().zip(SHAPE).all(fits) {
        return None;
    }
    let number =
        |digits: Range<usize>| text[digits].iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    let date = (number(0..4), number(5..7), number(8..10));
    let (hour, minute, second) = (number(11..13), number(14..16), number(17..19));
    let days = days_from_civil(date).filter(|days| civil_from_days(*days) == date)?;
    let of_day = (hour < 24 && minute < 60 && second < 60).then(|| hour * 3_600 + minute * 60 + second)?;
    let seconds = days.checked_mul(86_400)?.checked_add(of_day)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(number(20..29)).map(Timestamp)
}

impl Timestamp {
    /// Returns the time `millis` milliseconds after 1970-01-01 UTC.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Returns the time `seconds` seconds after 1970-01-01 UTC.
    #[must_use]
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// Returns the whole seconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// Returns RFC 3339 text in UTC with nanoseconds.
    fn text(self) -> [u8; SHAPE.len()] {
        let (days, of_day) = (self.0 / 86_400_000_000_000, self.0 % 86_400_000_000_000);
        let (year, month, day) = civil_from_days(days);
        let (seconds, nanos) = (of_day / 1_000_000_000, of_day % 1_000_000_000);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        let mut text = *SHAPE;
        for (digits, mut number) in [
            (0..4, year),
            (5..7, month),
            (8..10, day),
            (11..13, hour),
            (14..16, minute),
            (17..19, second),
            (20..29, nanos),
        ] {
            for at in digits.rev() {
                text[at] = b'0' + u8::try_from(number % 10).unwrap_or_default();
                number /= 10;
            }
        }
        text
    }

    /// Returns the time elapsed since `earlier`, or zero if `earlier` is in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the time that is `nanos` nanoseconds later, or earlier if `nanos` is negative.
    #[must_use]
    pub const fn shifted(self, nanos: i64) -> Self {
        Self(self.0.saturating_add_signed(nanos))
    }

    /// Returns the nanoseconds from `other` to `self`, negative if `self` is earlier. Limited to about 73
    /// years.
    #[must_use]
    pub const fn nanos_after(self, other: Self) -> i64 {
        const LIMIT: u64 = i64::MAX as u64 / 4;
        let (forward, back) = (self.0.saturating_sub(other.0), other.0.saturating_sub(self.0));
        if forward > 0 {
            (if forward < LIMIT { forward } else { LIMIT }).cast_signed()
        } else {
            -(if back < LIMIT { back } else { LIMIT }).cast_signed()
        }
    }

    /// Returns the time one nanosecond later.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Monotonic time, derived from a clock that may be set back. When the clock is set back, the monotonic time
/// continues from its last value at the rate of the clock. Delays are measured with the monotonic time. Times
/// in records are times of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonotonicClock {
    last: Timestamp,
    /// Nanoseconds by which the monotonic time is ahead of the clock. Negative if the monotonic time is
    /// behind.
    ahead: i64,
}

impl MonotonicClock {
    /// Returns the monotonic time at which the clock shows `shown`.
    pub fn at(&mut self, shown: Timestamp) -> Timestamp {
        let back = self.last.nanos_after(shown.shifted(self.ahead)).max(0);
        self.ahead = self.ahead.saturating_add(back);
        self.last = shown.shifted(self.ahead);
        self.last
    }

    /// Compensates for a known step of the clock by this many nanoseconds, forward or back. The monotonic
    /// time does not step.
    pub const fn compensate_step(&mut self, by: i64) {
        self.ahead = self.ahead.saturating_sub(by);
    }

    /// Returns the time that the clock will show at a monotonic time, if the clock is not set back again.
    #[must_use]
    pub fn clock_time_at(&self, time: Timestamp) -> Timestamp {
        time.shifted(-self.ahead)
    }
}

impl fmt::Display for Timestamp {
    /// Formats the time as RFC 3339 in UTC, with milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        write!(f, "{}Z", std::str::from_utf8(&text[..23]).unwrap_or_default())
    }
}

/// Returns the Gregorian year, month and day of a day counted from 1970-01-01. Uses the 400-year cycle that
/// starts in March.
const fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + (month <= 2) as u64;
    (year, month, day)
}

/// Returns the day of a date, counted from 1970-01-01. This is the inverse of `civil_from_days`. For an
/// invalid date, the result is the day of another date.
fn days_from_civil((year, month, day): (u64, u64, u64)) -> Option<u64> {
    let (year, march_month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let (era, year_of_era) = (year / 400, year % 400);
    let of_year = (153 * march_month + 2) / 5 + day.checked_sub(1)?;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    (era * 146_097 + of_era).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{MonotonicClock, Timestamp};

    proptest! {
        #[test]
        fn json_has_the_nanoseconds_of_every_time(nanos: u64) {
            let json = serde_json::to_string(&Timestamp(nanos)).unwrap();
            let time: jiff::Timestamp = json.trim_matches('"').parse().unwrap();
            prop_assert_eq!(time.as_nanosecond(), i128::from(nanos));
            prop_assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), Timestamp(nanos));
        }
    }

    #[test]
    fn timestamp_parses_every_form_of_rfc_3339() {
        let read = |text: &str| serde_json::from_str::<Timestamp>(text).map_err(|error| error.to_string());
        let json = r#""2026-10-02T14:00:00.000000001Z""#;
        let at = Timestamp(1_790_949_600_000_000_001);
        assert_eq!(serde_json::to_string(&at).unwrap(), json);
        for same in [json, r#""2026-10-02T16:00:00.000000001+02:00""#] {
            assert_eq!(read(same), Ok(at), "{same}");
        }
        for bad in [
            "1790949600000000001",
            r#""2026-02-30T00:00:00.000000000Z""#,
            r#""2026-10-02T24:00:00.000000000Z""#,
            r#""1969-12-31T23:59:59.000000000Z""#,
            r#""2554-07-21T23:34:33.709551616Z""#,
            r#""today""#,
        ] {
            read(bad).unwrap_err();
        }
        assert!(read(r#""today""#).unwrap_err().contains("expected RFC 3339"));
    }

    #[test]
    fn steady_time_runs_on_when_the_clock_is_set_back() {
        let mut steady = MonotonicClock::default();
        let mut at = |millis| steady.at(Timestamp::from_millis(millis));
        // The clock goes back by half a minute, runs, goes forward by an hour, and goes back again.
        let times = [100_000, 70_000, 70_500, 3_670_500, 70_600, 71_600].map(&mut at);
        let expected = [100_000, 100_000, 100_500, 3_700_500, 3_700_500, 3_701_500];
        assert_eq!(times, expected.map(Timestamp::from_millis));
        let due = Timestamp::from_millis(3_702_500);
        assert_eq!(steady.clock_time_at(due), Timestamp::from_millis(72_600));
        // A known step moves the monotonic time neither forward nor back.
        steady.compensate_step(3_600_000_000_000);
        assert_eq!(steady.at(Timestamp::from_millis(3_671_700)), Timestamp::from_millis(3_701_600));
        steady.compensate_step(-3_600_000_000_000);
        assert_eq!(steady.at(Timestamp::from_millis(71_800)), Timestamp::from_millis(3_701_700));
    }

    #[test]
    fn timestamp_prints_as_rfc_3339() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp::from_millis(951_827_696_789).to_string(), "2000-02-29T12:34:56.789Z");
        assert_eq!(Timestamp::from_millis(1_795_132_799_999).to_string(), "2026-11-19T23:59:59.999Z");
    }
}
