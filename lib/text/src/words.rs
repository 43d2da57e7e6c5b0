//! Short texts: ages, durations, ids and sizes.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use schemas::Timestamp;
use unicode_general_category::{GeneralCategory, get_general_category};

/// Number of characters of a shortened id.
const SHORT_ID_LEN: usize = 8;

/// Formats the time since `then` in its largest unit: `3s`, `12m`, `4h`, `9d`.
#[must_use]
pub fn age(now: Timestamp, then: Timestamp) -> String {
    duration_text(now.since(then))
}

/// Formats a duration in its largest unit.
#[must_use]
pub fn duration_text(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats a duration: a short one in milliseconds (`48ms`, `1.250s`), a longer one in seconds (`2m 5s`).
#[must_use]
pub fn precise_duration(length: Duration) -> String {
    match length.as_millis() {
        millis @ 0..1_000 => format!("{millis}ms"),
        millis @ 1_000..60_000 => format!("{}.{:03}s", millis / 1_000, millis % 1_000),
        _ => humantime::format_duration(Duration::from_secs(length.as_secs())).to_string(),
    }
}

/// Formats the time until `then`: `in 40s`, or `due`.
#[must_use]
pub fn time_until(now: Timestamp, then: Timestamp) -> String {
    if then <= now { "due".to_owned() } else { format!("in {}", duration_text(then.since(now))) }
}

/// Returns the end of an id, or the whole id if `full` is set. Ids of the same minute have the same
/// beginning, which encodes the time.
pub fn short_id(id: &impl ToString, full: bool) -> String {
    let id = id.to_string();
    if full { id } else { id[id.len().saturating_sub(SHORT_ID_LEN)..].to_owned() }
}

/// Returns the time of day in UTC, such as `14:00:05`.
#[must_use]
pub fn time_of_day(at: Timestamp) -> String {
    at.to_string().get(11..19).unwrap_or_default().to_owned()
}

/// Formats an amount of memory or disk in MiB: `512M`, `2G`, `1.5T`.
#[must_use]
pub fn mebibytes(mb: u64) -> String {
    match mb {
        0..1_024 => format!("{mb}M"),
        1_024..1_048_576 => tenths(mb * 10 / 1_024, 'G'),
        _ => tenths(mb / 1_024 * 10 / 1_024, 'T'),
    }
}

/// Formats a number of bytes: `12 KiB` below 1 MiB, otherwise like [`mebibytes`].
#[must_use]
pub fn bytes_text(bytes: u64) -> String {
    let mb = bytes / (1 << 20);
    if mb == 0 { format!("{} KiB", bytes.div_ceil(1024)) } else { mebibytes(mb) }
}

fn tenths(tenths: u64, unit: char) -> String {
    if tenths.is_multiple_of(10) {
        format!("{}{unit}", tenths / 10)
    } else {
        format!("{}.{}{unit}", tenths / 10, tenths % 10)
    }
}

/// Escapes text of programs and clients for one line on a terminal.
#[must_use]
pub fn one_line(text: &str) -> String {
    escape_controls(text.trim_end(), "", |c| c.escape_default().to_string())
}

/// Escapes text of programs and clients for a terminal. Line ends and tabs are kept.
#[must_use]
pub fn escape_text(text: &str) -> String {
    escape_controls(text, "\n\t", |c| c.escape_default().to_string())
}

/// Escapes JSON for a terminal, without changing its meaning.
#[must_use]
pub fn escape_json(json: &str) -> String {
    let units = |c: char| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
    escape_controls(json, "\n", units)
}

/// Escapes every character that a terminal acts on, except the characters in `but`. Terminals act on control
/// characters, including C1, and on format characters, which can change the order of the displayed text.
fn escape_controls(text: &str, but: &str, escape: impl Fn(char) -> String) -> String {
    use GeneralCategory::{Control, Format, LineSeparator, ParagraphSeparator};
    let acts = |c| [Control, Format, LineSeparator, ParagraphSeparator].contains(&get_general_category(c));
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if acts(c) && !but.contains(c) { safe.push_str(&escape(c)) } else { safe.push(c) }
    }
    safe
}

/// Formats a number with its noun: `1 instance`, `3 instances`.
#[must_use]
pub fn count(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Error for an invalid value: its kind, the value, and the valid values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} {value:?}: expected {expected}")]
pub struct InvalidValue {
    what: &'static str,
    value: String,
    expected: String,
}

impl InvalidValue {
    /// Creates the error for a value of an option.
    pub fn new(what: &'static str, value: &str, expected: impl Into<String>) -> Self {
        Self { what, value: value.to_owned(), expected: expected.into() }
    }
}

/// Returns a parser for numbers within bounds.
pub fn number<N>(within: RangeInclusive<N>) -> impl Fn(&str) -> Result<N, InvalidValue> + Clone
where
    N: FromStr + PartialOrd + Display + Copy,
{
    move |text| {
        let read = text.parse().ok().filter(|number| within.contains(number));
        let expected = || format!("{} to {}", within.start(), within.end());
        read.ok_or_else(|| InvalidValue::new("number", text, expected()))
    }
}

/// Parses a duration: `90s`, `1m30s`, `500ms`, `1h`, `7d`. A number without a unit is in seconds.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidValue> {
    let text = text.trim();
    let read = match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => humantime::parse_duration(text).ok(),
    };
    // The log stores durations in milliseconds as `u64`.
    read.filter(|length| u64::try_from(length.as_millis()).is_ok())
        .ok_or_else(|| InvalidValue::new("duration", text, "e.g. 500ms, 30s, 5m, 1h30m or 7d"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_formatted_in_one_unit() {
        let now = Timestamp::from_millis(1_000_000_000);
        let age = |seconds| age(now, now - Duration::from_secs(seconds));
        assert_eq!([0, 119, 120, 7_199, 7_200, 172_800].map(age), ["0s", "119s", "2m", "119m", "2h", "2d"]);
        assert_eq!(super::age(now, now + Duration::from_secs(5)), "0s");
        assert_eq!(time_until(now, now + Duration::from_secs(60)), "in 60s");
        assert_eq!(time_until(now, now), "due");
    }

    #[test]
    fn parse_duration_accepts_units_and_rejects_invalid_text() {
        let read = |text| parse_duration(text).map(|length| length.as_millis());
        let good = [
            ("90", 90_000),
            ("90s", 90_000),
            ("1m30s", 90_000),
            ("1m 30s", 90_000),
            ("1.5s", 1_500),
            ("500ms", 500),
            ("1h", 3_600_000),
            ("7d", 604_800_000),
        ];
        for (text, millis) in good {
            assert_eq!(read(text), Ok(millis), "{text}");
        }
        let told = read("soon").unwrap_err().to_string();
        assert!(told.starts_with("invalid duration \"soon\": expected e.g. "), "{told}");
        for bad in
            ["", "s", "1x", "-1s", "1h5", "30 parsecs", "99999999999999999999s", "9999999999999999999d"]
        {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn short_texts_are_formatted_and_escaped() {
        assert_eq!([0, 512, 1_024, 1_536, 1_048_576].map(mebibytes), ["0M", "512M", "1G", "1.5G", "1T"]);
        assert_eq!(one_line("a\nb\u{1b}[31mc\n"), "a\\nb\\u{1b}[31mc");
        let hostile = "a\u{1b}]0;t\u{7}\tb\u{9b}2J\u{202e}c\u{2028}\u{e0041}\r\né";
        let shown = "a\\u{1b}]0;t\\u{7}\tb\\u{9b}2J\\u{202e}c\\u{2028}\\u{e0041}\\r\né";
        assert_eq!(escape_text(hostile), shown);
        let json = serde_json::to_string(hostile).unwrap();
        let safe = escape_json(&json);
        assert!(safe.is_ascii() || safe.replace('é', "").is_ascii(), "{safe}");
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), hostile);
        assert_eq!(short_id(&"00000000-0000-7000-8000-0000deadbeef", false), "deadbeef");
        assert_eq!(short_id(&"c1", false), "c1");
        assert_eq!(
            [0, 999, 1_050, 59_999, 125_900, 7_260_000]
                .map(|millis| precise_duration(Duration::from_millis(millis))),
            ["0ms", "999ms", "1.050s", "59.999s", "2m 5s", "2h 1m"]
        );
        assert_eq!((count(1, "cell"), count(2, "cell")), ("1 cell".into(), "2 cells".into()));
        assert_eq!(time_of_day(Timestamp(0)), "00:00:00");
    }
}
