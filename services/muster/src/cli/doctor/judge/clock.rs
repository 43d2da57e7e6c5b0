//! Checks of clocks: of the server, of the BBS that answers, and of the clocks that this BBS compares with
//! its own.

use std::time::Duration;

use schemas::Timestamp;
use schemas::query::{ClockOff, ClocksRow};

use super::super::super::words::took;
use super::super::check::Check;
use super::super::facts::{OnNats, Stream};
use crate::wire::bbs::moment;

/// Minimum clock differences for a warning and for a failure.
const APART: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// Advice for a clock that is off.
const ADVICE: &str =
    "set it by NTP; meanwhile decisions have the median of all clocks, and nothing needs a restart";

pub(super) fn checks(on: &OnNats, clocks: Option<&ClocksRow>) -> Vec<Check> {
    let server = match &on.stream {
        Ok(stream) => of_server(stream),
        Err(_) => {
            Check::skipped("clock.server", "the server tells its time with the stream, which isn't known")
        }
    };
    // If no BBS answers, the last entry has the times of a BBS and of the server.
    let bbs = match (clocks, &on.stream) {
        (None, Ok(stream)) => of_last_entry(stream),
        (clocks, Ok(_) | Err(_)) => of_bbs(clocks),
    };
    vec![server, bbs, of_cells(clocks)]
}

/// Difference between two clocks, with its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Apart {
    Ahead(Duration),
    Behind(Duration),
}

impl Apart {
    fn of(one: Timestamp, other: Timestamp) -> Self {
        if one >= other { Self::Ahead(one.since(other)) } else { Self::Behind(other.since(one)) }
    }

    const fn by(self) -> Duration {
        match self {
            Self::Ahead(by) | Self::Behind(by) => by,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Ahead(by) => format!("{} ahead of", took(by)),
            Self::Behind(by) => format!("{} behind", took(by)),
        }
    }
}

/// Compares the server's clock with the clock of this machine.
fn of_server(stream: &Stream) -> Check {
    let Some(time) = stream.seen.server_time.as_deref().and_then(moment) else {
        return Check::skipped("clock.server", "the server doesn't say its time with its answers");
    };
    let (asked, answered) = stream.asked;
    let half = answered.since(asked) / 2;
    let apart = Apart::of(time, asked + half);
    let precise = half + Duration::from_millis(1);
    let found = format!("the server's is {} this machine's, to within {}", apart.text(), took(precise));
    judged("clock.server", found, apart.by().saturating_sub(precise))
}

fn judged(check: &'static str, found: String, surely: Duration) -> Check {
    match surely {
        by if by >= APART.1 => Check::failed(check, found).advise(ADVICE),
        by if by >= APART.0 => Check::warning(check, found).advise(ADVICE),
        _ => Check::ok(check, found),
    }
}

/// Compares the clock of the BBS that wrote the last entry with the server's clock. The entry has the times
/// of both.
fn of_last_entry(stream: &Stream) -> Check {
    let Some(last) = &stream.seen.last else {
        return Check::skipped("clock.bbs", "no BBS answers, and there is no entry that can be read");
    };
    let Some(decided) = last.decided else {
        return Check::skipped("clock.bbs", format!("position {} is no entry of a BBS", last.position));
    };
    let apart = Apart::of(decided, last.stored);
    let found = format!(
        "that of the BBS was {} the server's at position {}, to within what the append took",
        apart.text(),
        last.position
    );
    judged("clock.bbs", found, apart.by())
}

fn apart_text(ahead_ms: i64) -> String {
    let by = Duration::from_millis(ahead_ms.unsigned_abs());
    if ahead_ms < 0 { Apart::Behind(by).text() } else { Apart::Ahead(by).text() }
}

/// Compares the clock of the answering BBS with the median of all clocks, and the time of the log with the
/// clocks.
fn of_bbs(clocks: Option<&ClocksRow>) -> Check {
    let Some(clocks) = clocks else { return Check::skipped("clock.bbs", "no BBS answers") };
    let ClocksRow { compared, ahead_ms, off: _, log_ahead_ms } = clocks;
    if *log_ahead_ms > 0 {
        let by = took(Duration::from_millis(*log_ahead_ms));
        let why = format!("the log is {by} ahead of the clocks, which were ahead when it was written");
        return Check::warning("clock.bbs", why).advise(
            "nothing waits for it, and no restart helps: times in the log run on from there, a little slower than the clocks, \
             until these have caught up; ages and the next launches of periodic tasks are shown by them",
        );
    }
    let found =
        format!("that of the BBS that answers is {} the median of {compared} clocks", apart_text(*ahead_ms));
    judged("clock.bbs", found, Duration::from_millis(ahead_ms.unsigned_abs()))
}

/// Checks all clocks that the BBS compares.
fn of_cells(clocks: Option<&ClocksRow>) -> Check {
    let Some(ClocksRow { compared, off, .. }) = clocks else {
        return Check::skipped("clock.cells", "no BBS answers");
    };
    if off.is_empty() {
        return Check::ok(
            "clock.cells",
            format!("none of {compared} clocks is more than 5 s off their median"),
        );
    }
    let one = |ClockOff { of, ahead_ms }: &ClockOff| format!("{of}: {} the others", apart_text(*ahead_ms));
    let all: Vec<String> = off.iter().map(one).collect();
    Check::failed("clock.cells", all.join(", ")).advise(ADVICE)
}

/// Returns the clock checks of a local cluster.
pub(super) fn of_folder(clocks: Option<&ClocksRow>) -> Vec<Check> {
    let server = Check::skipped("clock.server", "a local cluster has no server");
    vec![server, of_bbs(clocks), of_cells(clocks)]
}

#[cfg(test)]
mod tests {
    use super::super::super::check::Outcome;
    use super::*;
    use journal::examine::{Examination, Last};
    use schemas::Position;

    fn stream(server: &str, stored: u64, decided: u64) -> Stream {
        let at = Timestamp::from_millis;
        let last = Last { position: Position(7), stored: at(stored), decided: Some(at(decided)) };
        let seen = Examination {
            problems: vec![],
            losses: vec![],
            hazards: vec![],
            differences: vec![],
            replicas: 1,
            leader: None,
            peers: vec![],
            consumers: 1,
            positions: (Position(1), Position(7)),
            bytes: 0,
            most_bytes: None,
            server_time: Some(server.to_owned()),
            last: Some(last),
            took: Duration::ZERO,
        };
        Stream { seen, asked: (at(100_000), at(100_040)) }
    }

    #[test]
    fn server_clock_is_compared_with_the_middle_of_the_round_trip() {
        let of = |server: &str| {
            let check = of_server(&stream(server, 0, 0));
            (check.outcome, check.found)
        };
        let (outcome, found) = of("1970-01-01T00:01:40.020000001Z");
        assert_eq!(outcome, Outcome::Ok);
        assert_eq!(found, "the server's is 0ms ahead of this machine's, to within 21ms");
        let (outcome, found) = of("1970-01-01T00:01:38.500Z");
        assert_eq!((outcome, found.contains("1.520s behind")), (Outcome::Warning, true), "{found}");
        assert_eq!(of("1970-01-01T00:01:52Z").0, Outcome::Failed);
        assert_eq!(of("yesterday").0, Outcome::Skipped);
    }

    #[test]
    fn clock_offsets_and_log_ahead_of_clocks_are_reported() {
        let off = |ahead_ms| ClockOff { of: "cell c1".into(), ahead_ms };
        let row = |ahead_ms, off, log_ahead_ms| ClocksRow { compared: 4, ahead_ms, off, log_ahead_ms };
        let table = [
            (row(20, vec![], 0), [Outcome::Ok, Outcome::Ok]),
            (row(-2_000, vec![], 0), [Outcome::Warning, Outcome::Ok]),
            (row(3_600_000, vec![off(-3_600_000)], 0), [Outcome::Failed, Outcome::Failed]),
            (row(0, vec![], 86_000_000), [Outcome::Warning, Outcome::Ok]),
        ];
        for (row, expected) in table {
            let [_, bbs, cells] = of_folder(Some(&row)).try_into().unwrap();
            assert_eq!([bbs.outcome, cells.outcome], expected, "{row:?} {} {}", bbs.found, cells.found);
        }
        assert_eq!(of_bbs(None).outcome, Outcome::Skipped);
    }

    #[test]
    fn last_entry_compares_the_clocks_of_bbs_and_server() {
        let of = |stored, decided| of_last_entry(&stream("", stored, decided));
        assert_eq!(of(5_003, 5_000).outcome, Outcome::Ok);
        let slow = of(8_000, 5_000);
        assert!(
            slow.outcome == Outcome::Warning
                && slow.found.contains("3.000s behind the server's at position 7")
        );
        assert_eq!(of(5_000, 25_000).outcome, Outcome::Failed);
    }
}
