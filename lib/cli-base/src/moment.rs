//! `--as-of`: the past moment that a command shows.

use clap::Args;
use client::Client;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use schemas::query::{AsOf, Moment, ReadEntry, ReadEvents};
use schemas::{Position, Timestamp};
use text::words::InvalidValue;

use super::connect::connect;
use super::failure::Failure;
use super::options::{AS_OF, Global, PastView};
use super::output::note;

/// Option for a past moment.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct AsOfOption {
    /// Show the state at a past moment: a position of the log, a time (UTC, or local as "2026-10-02 14:00"),
    /// or a time ago such as -10m
    #[arg(id = AS_OF, long = "as-of", value_name = "MOMENT", value_parser = parse, allow_hyphen_values = true)]
    pub(crate) as_of: Option<AsOf>,
}

impl PastView {
    /// Connects, and pins all queries to a past moment.
    pub async fn as_of(as_of: AsOf, global: &Global) -> Result<Self, Failure> {
        let client = connect(global).await?.at_moment(as_of);
        let at = match as_of {
            AsOf::Time(time) => time,
            AsOf::Ago(ago) => clock::now() - ago,
            AsOf::Position(position) => decided_at(&client, position).await?,
        };
        Ok(Self { client, at })
    }

    /// Returns the position of the log that was shown. `None` before the first reply if the moment is a time.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        match self.client.query_moment() {
            Some(AsOf::Position(position)) => Some(position),
            Some(AsOf::Time(_) | AsOf::Ago(_)) | None => None,
        }
    }

    /// Prints to the standard error the position that was shown.
    pub fn print_position(&self) {
        if let Some(position) = self.position() {
            note(&format!("as of position {position}, {}", self.at));
        }
    }
}

/// Returns the time of the last decision in the entry at a position. Returns the current time if there is no
/// such decision.
async fn decided_at(client: &Client, position: Position) -> Result<Timestamp, Failure> {
    let after = Position(position.0.saturating_sub(1));
    let read = ReadEvents { after, limit: Some(1), ..ReadEvents::default() };
    let page = client.read_events(&read).await?;
    let found = page.entries.into_iter().find(|entry| entry.position == position);
    let at = found.and_then(|found| match found.entry {
        ReadEntry::Known(entry) => entry.decisions.iter().map(|decision| decision.at).max(),
        ReadEntry::Unknown { .. } => None,
    });
    Ok(at.unwrap_or_else(clock::now))
}

/// Resolves a moment for a log that this process reads itself.
///
/// # Errors
/// The moment is in the future.
pub fn resolve(as_of: AsOf) -> Result<Moment, Failure> {
    as_of.moment(clock::now()).map_err(|refusal| {
        let problem = refusal.fields.into_iter().next().map(|field| field.problem);
        Failure::usage(problem.unwrap_or(refusal.message))
    })
}

/// Parses a moment. Local times may be a day with a time of day, a day, or a time of today.
pub fn parse(text: &str) -> Result<AsOf, InvalidValue> {
    let read = text.parse().ok().or_else(|| local(text.trim(), &TimeZone::system(), clock::now()));
    read.ok_or_else(|| {
        let expected = "a position such as 41, a time such as 2026-10-02T14:00:00Z, \"2026-10-02 14:00\" \
                        or 14:00, or a time ago such as -10m or -1h30m";
        InvalidValue::new("moment", text, expected)
    })
}

fn local(text: &str, zone: &TimeZone, now: Timestamp) -> Option<AsOf> {
    let today = || -> Option<Date> {
        let now = jiff::Timestamp::from_nanosecond(i128::from(now.0)).ok()?;
        Some(zone.to_datetime(now).date())
    };
    let moment: DateTime = match text.parse::<DateTime>() {
        Ok(moment) => moment,
        Err(_) => today()?.to_datetime(text.parse::<Time>().ok()?),
    };
    let at = zone.to_timestamp(moment).ok()?;
    u64::try_from(at.as_nanosecond()).ok().map(|at| AsOf::Time(Timestamp(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_time_uses_time_zone_of_user() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let now = Timestamp::from_millis(1_790_949_600_000);
        let read = |text: &str| match local(text, &zone, now) {
            Some(AsOf::Time(time)) => time.to_string(),
            other => format!("{other:?}"),
        };
        for (text, time) in [
            ("2026-10-01 14:00", "2026-10-01T12:00:00.000Z"),
            ("2026-10-01T14:00:30", "2026-10-01T12:00:30.000Z"),
            ("2026-10-01", "2026-09-30T22:00:00.000Z"),
            // The current time is 16:00 in this zone.
            ("15:59", "2026-10-02T13:59:00.000Z"),
            ("00:00:01", "2026-10-01T22:00:01.000Z"),
        ] {
            assert_eq!(read(text), time, "{text}");
        }
        for bad in ["", "yesterday", "25:00", "2026-13-01", "10m"] {
            assert_eq!(local(bad, &zone, now), None, "{bad}");
            let told = parse(bad).unwrap_err().to_string();
            assert!(told.contains("expected a position such as 41, a time"), "{told}");
        }
        assert_eq!(parse("-10m"), Ok("-10m".parse().unwrap()));
        assert_eq!(parse("#41"), Ok(AsOf::Position(Position(41))));
    }
}
