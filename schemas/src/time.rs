//! Time is always given, never read.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A moment: nanoseconds since 1970-01-01 UTC, as Diego gives `since`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The moment `millis` milliseconds after 1970-01-01 UTC.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// The moment `seconds` seconds after 1970-01-01 UTC.
    #[must_use]
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// Whole seconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// How long ago `earlier` was; zero if it is still to come.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The very next moment.
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

/// Time that never goes back, made from a clock that may be set back: then it runs on from where it was, as fast as
/// that clock. What is to wait for a length of time waits by it; what is written down is the clock's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steady {
    last: Timestamp,
    /// How far it is ahead of the clock.
    ahead: Duration,
}

impl Steady {
    /// The time when the clock shows `shown`.
    pub fn at(&mut self, shown: Timestamp) -> Timestamp {
        self.ahead += self.last.since(shown + self.ahead);
        self.last = shown + self.ahead;
        self.last
    }

    /// What the clock shows at a time, if it is not set back any more.
    #[must_use]
    pub fn shown_at(&self, time: Timestamp) -> Timestamp {
        time - self.ahead
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC, with milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, of_day) = (self.0 / 86_400_000_000_000, self.0 % 86_400_000_000_000);
        let (year, month, day) = civil(days);
        let (seconds, millis) = (of_day / 1_000_000_000, of_day % 1_000_000_000 / 1_000_000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

/// The Gregorian date of a day counted from 1970-01-01, by the 400-year cycle that starts in March.
const fn civil(days: u64) -> (u64, u64, u64) {
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

#[cfg(test)]
mod tests {
    use super::{Steady, Timestamp};

    #[test]
    fn steady_time_runs_on_when_the_clock_is_set_back() {
        let mut steady = Steady::default();
        let mut at = |millis| steady.at(Timestamp::from_millis(millis));
        // Half a minute back, on, an hour forward, and back again.
        let times = [100_000, 70_000, 70_500, 3_670_500, 70_600, 71_600].map(&mut at);
        let expected = [100_000, 100_000, 100_500, 3_700_500, 3_700_500, 3_701_500];
        assert_eq!(times, expected.map(Timestamp::from_millis));
        let due = Timestamp::from_millis(3_702_500);
        assert_eq!(steady.shown_at(due), Timestamp::from_millis(72_600));
    }

    #[test]
    fn a_moment_prints_as_rfc_3339() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp::from_millis(951_827_696_789).to_string(), "2000-02-29T12:34:56.789Z");
        assert_eq!(Timestamp::from_millis(1_795_132_799_999).to_string(), "2026-11-19T23:59:59.999Z");
    }
}
