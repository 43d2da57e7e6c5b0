//! Checks of three kinds of clocks: the server's clock, the clock of the answering BBS, and the clocks that
//! this BBS compares with its own.

use std::time::Duration;

use schemas::Timestamp;
use schemas::query::{ClockSkew, ClocksRow};
use text::words::precise_duration;

use super::super::check::Check;
use super::super::facts::{NatsFacts, Stream};

/// Minimum clock difference at which a check warns, and minimum difference at which it fails.
const THRESHOLDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// Advice for a clock that is off.
const ADVICE: &str =
    "synchronise it by NTP; until then decisions use the median of all clocks, and nothing needs a restart";

pub(super) fn checks(on: &NatsFacts, clocks: Option<&ClocksRow>) -> Vec<Check> {
    let server = match &on.stream {
        Ok(stream) => server_clock(stream),
        Err(_) => Check::skipped(
            "clock.server",
            "the server's time comes with the stream's state, which is unknown",
        ),
    };
    // If no BBS answers, the last entry is used. This entry contains the time of the BBS that wrote it, and
    // the time of the server.
    let bbs = match (clocks, &on.stream) {
        (None, Ok(stream)) => last_entry_clock(stream),
        (clocks, Ok(_) | Err(_)) => bbs_clock(clocks),
    };
    vec![server, bbs, cell_clocks(clocks)]
}

/// Difference between two clocks, with its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offset {
    Ahead(Duration),
    Behind(Duration),
}

impl Offset {
    fn between(one: Timestamp, other: Timestamp) -> Self {
        if one >= other { Self::Ahead(one.since(other)) } else { Self::Behind(other.since(one)) }
    }

    const fn magnitude(self) -> Duration {
        match self {
            Self::Ahead(by) | Self::Behind(by) => by,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Ahead(by) => format!("{} ahead of", precise_duration(by)),
            Self::Behind(by) => format!("{} behind", precise_duration(by)),
        }
    }
}

/// Compares the server's clock with the clock of this machine.
fn server_clock(stream: &Stream) -> Check {
    let Some(time) = stream.server_time else {
        return Check::skipped("clock.server", "the server's replies contain no time");
    };
    let (asked, answered) = stream.request_times;
    let half = answered.since(asked) / 2;
    let apart = Offset::between(time, asked + half);
    let precise = half + Duration::from_millis(1);
    let found =
        format!("the server's clock is {} this machine's (±{})", apart.text(), precise_duration(precise));
    check_offset("clock.server", found, apart.magnitude().saturating_sub(precise))
}

fn check_offset(check: &'static str, found: String, surely: Duration) -> Check {
    match surely {
        by if by >= THRESHOLDS.1 => Check::failed(check, found).advise(ADVICE),
        by if by >= THRESHOLDS.0 => Check::warning(check, found).advise(ADVICE),
        _ => Check::ok(check, found),
    }
}

/// Compares the clock of the BBS that wrote the last entry with the server's clock. The entry contains the
/// times of both clocks.
fn last_entry_clock(stream: &Stream) -> Check {
    let Some(last) = &stream.examination.last else {
        return Check::skipped("clock.bbs", "no BBS answers, and the log has no readable entry");
    };
    let Some(decided) = last.decided else {
        return Check::skipped("clock.bbs", format!("position {} holds no entry of a BBS", last.position));
    };
    let apart = Offset::between(decided, last.stored);
    let found = format!(
        "the BBS's clock was {} the server's at position {}, within the duration of the append",
        apart.text(),
        last.position
    );
    check_offset("clock.bbs", found, apart.magnitude())
}

fn offset_text(ahead_ms: i64) -> String {
    let by = Duration::from_millis(ahead_ms.unsigned_abs());
    if ahead_ms < 0 { Offset::Behind(by).text() } else { Offset::Ahead(by).text() }
}

/// Compares the clock of the answering BBS with the median of all clocks, and warns if the time of the log is
/// ahead of the clocks.
fn bbs_clock(clocks: Option<&ClocksRow>) -> Check {
    let Some(clocks) = clocks else { return Check::skipped("clock.bbs", "no BBS answers") };
    let ClocksRow { compared, ahead_ms, skewed: _, log_ahead_ms } = clocks;
    if *log_ahead_ms > 0 {
        let by = precise_duration(Duration::from_millis(*log_ahead_ms));
        let why = format!("the log is {by} ahead of the clocks, which were ahead when it was written");
        return Check::warning("clock.bbs", why).advise(
            "no action is needed, and a restart does not help: times in the log continue slightly slower than \
             the clocks until the clocks catch up; until then ages are shown as 0, and periodic tasks follow \
             the log's time",
        );
    }
    let found =
        format!("the answering BBS's clock is {} the median of {compared} clocks", offset_text(*ahead_ms));
    check_offset("clock.bbs", found, Duration::from_millis(ahead_ms.unsigned_abs()))
}

/// Checks all clocks that the BBS compares.
fn cell_clocks(clocks: Option<&ClocksRow>) -> Check {
    let Some(ClocksRow { compared, skewed: off, .. }) = clocks else {
        return Check::skipped("clock.cells", "no BBS answers");
    };
    if off.is_empty() {
        return Check::ok("clock.cells", format!("all {compared} clocks are within 5 s of their median"));
    }
    let one = |ClockSkew { clock: of, ahead_ms }: &ClockSkew| {
        format!("{of}: {} the others", offset_text(*ahead_ms))
    };
    let all: Vec<String> = off.iter().map(one).collect();
    Check::failed("clock.cells", all.join(", ")).advise(ADVICE)
}

/// Returns the clock checks of a local cluster.
pub(super) fn local_checks(clocks: Option<&ClocksRow>) -> Vec<Check> {
    let server = Check::skipped("clock.server", "a local cluster has no server");
    vec![server, bbs_clock(clocks), cell_clocks(clocks)]
}

#[cfg(test)]
mod tests {
    use super::super::super::check::Outcome;
    use super::*;
    use journal::examine::{Examination, LastMessage};
    use schemas::Position;

    fn stream(server_time: Option<Timestamp>, stored: u64, decided: u64) -> Stream {
        let at = Timestamp::from_millis;
        let last = LastMessage { position: Position(7), stored: at(stored), decided: Some(at(decided)) };
        let examination = Examination {
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
            max_bytes: None,
            server_time: None,
            last: Some(last),
            latency: Duration::ZERO,
        };
        Stream { examination, server_time, request_times: (at(100_000), at(100_040)) }
    }

    #[test]
    fn server_clock_is_compared_with_the_middle_of_the_round_trip() {
        let of = |nanos: u64| {
            let check = server_clock(&stream(Some(Timestamp(nanos)), 0, 0));
            (check.outcome, check.found)
        };
        let (outcome, found) = of(100_020_000_001);
        assert_eq!(outcome, Outcome::Ok);
        assert_eq!(found, "the server's clock is 0ms ahead of this machine's (±21ms)");
        let (outcome, found) = of(98_500_000_000);
        assert_eq!((outcome, found.contains("1.520s behind")), (Outcome::Warning, true), "{found}");
        assert_eq!(of(112_000_000_000).0, Outcome::Failed);
        assert_eq!(server_clock(&stream(None, 0, 0)).outcome, Outcome::Skipped);
    }

    #[test]
    fn clock_offsets_and_log_ahead_of_clocks_are_reported() {
        let off = |ahead_ms| ClockSkew { clock: "cell c1".into(), ahead_ms };
        let row =
            |ahead_ms, off, log_ahead_ms| ClocksRow { compared: 4, ahead_ms, skewed: off, log_ahead_ms };
        let table = [
            (row(20, vec![], 0), [Outcome::Ok, Outcome::Ok]),
            (row(-2_000, vec![], 0), [Outcome::Warning, Outcome::Ok]),
            (row(3_600_000, vec![off(-3_600_000)], 0), [Outcome::Failed, Outcome::Failed]),
            (row(0, vec![], 86_000_000), [Outcome::Warning, Outcome::Ok]),
        ];
        for (row, expected) in table {
            let [_, bbs, cells] = local_checks(Some(&row)).try_into().unwrap();
            assert_eq!([bbs.outcome, cells.outcome], expected, "{row:?} {} {}", bbs.found, cells.found);
        }
        assert_eq!(bbs_clock(None).outcome, Outcome::Skipped);
    }

    #[test]
    fn last_entry_compares_the_clocks_of_bbs_and_server() {
        let of = |stored, decided| last_entry_clock(&stream(None, stored, decided));
        assert_eq!(of(5_003, 5_000).outcome, Outcome::Ok);
        let slow = of(8_000, 5_000);
        assert!(
            slow.outcome == Outcome::Warning
                && slow.found.contains("3.000s behind the server's at position 7")
        );
        assert_eq!(of(5_000, 25_000).outcome, Outcome::Failed);
    }
}
