//! Whose clock shows what. Commands have deadlines by the clock of who gives them, and entries times by that of the BBS.

use std::time::Duration;

use schemas::Timestamp;

use super::super::super::words::took;
use super::super::check::Check;
use super::super::facts::{OnNats, Stream};

/// How far two clocks may be apart before it is said, and before commands are refused for their deadlines.
const APART: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// Why nobody knows the clocks of cells.
const NO_TIME: &str = "heartbeats carry no time: the clocks of cells can't be seen from here";

pub(super) fn checks(on: &OnNats) -> Vec<Check> {
    let cells = Check::skipped("clock.cells", NO_TIME)
        .advise("run an NTP client on each host, and muster doctor there: clock.server compares that host with the server");
    match &on.stream {
        Ok(stream) => vec![of_server(stream), of_bbs(stream), cells],
        Err(_) => {
            let why = "the server tells its time with the stream, which isn't known";
            vec![Check::skipped("clock.server", why), Check::skipped("clock.bbs", why), cells]
        }
    }
}

/// How far two clocks are apart, and in which direction.
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

/// The clock of the server against this machine's.
fn of_server(stream: &Stream) -> Check {
    let time = stream.seen.server_time.as_deref().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let time = time.and_then(|time| u64::try_from(time.as_millisecond()).ok()).map(Timestamp::from_millis);
    let Some(time) = time else {
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
    let advice = "set both by NTP: commands are refused whose deadline is over by the clock of the BBS, and entries bear its times";
    match surely {
        by if by >= APART.1 => Check::failed(check, found).advise(advice),
        by if by >= APART.0 => Check::warning(check, found).advise(advice),
        _ => Check::ok(check, found),
    }
}

/// The clock of the BBS against the server's: an entry has the time of both.
fn of_bbs(stream: &Stream) -> Check {
    let Some(last) = &stream.seen.last else {
        return Check::skipped("clock.bbs", "there is no entry that can be read");
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

/// Of a local cluster.
pub(super) fn of_folder() -> Vec<Check> {
    ["clock.server", "clock.bbs", "clock.cells"]
        .map(|check| Check::skipped(check, "a local cluster has one clock: this machine's"))
        .to_vec()
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
    fn clocks_are_compared_in_the_middle_of_question_and_answer() {
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
    fn an_entry_has_the_time_of_both() {
        let of = |stored, decided| of_bbs(&stream("", stored, decided));
        assert_eq!(of(5_003, 5_000).outcome, Outcome::Ok);
        let slow = of(8_000, 5_000);
        assert!(
            slow.outcome == Outcome::Warning
                && slow.found.contains("3.000s behind the server's at position 7")
        );
        assert_eq!(of(5_000, 25_000).outcome, Outcome::Failed);
    }
}
