//! Rates of entries and commands. This module only computes rates from observations with their times.

use std::collections::VecDeque;
use std::time::Duration;

use schemas::{Position, Timestamp};

/// Period over which rates are averaged.
const PERIOD: Duration = Duration::from_secs(10);

/// Counters at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    at: Timestamp,
    position: Position,
    commands: u64,
}

/// Recent rates of entries and commands.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    seen: VecDeque<Sample>,
    /// Position of the log at the first observation.
    start: Option<Position>,
    /// Number of commands since the first observation.
    commands: u64,
}

impl Rates {
    /// Adds the commands of an entry. Ignores entries before the first observation.
    pub(super) fn commands(&mut self, position: Position, count: u64) {
        if self.start.is_some_and(|start| position > start) {
            self.commands += count;
        }
    }

    /// Records the position of the log at a point in time.
    pub(super) fn record(&mut self, at: Timestamp, position: Position) {
        self.start.get_or_insert(position);
        self.seen.push_back(Sample { at, position, commands: self.commands });
        while self.seen.len() > 2 && at.since(self.seen[1].at) >= PERIOD {
            self.seen.pop_front();
        }
    }

    /// Returns the entries and commands per second. `None` before the second observation.
    pub(super) fn per_second(&self) -> Option<(f64, f64)> {
        let (first, last) = (self.seen.front()?, self.seen.back()?);
        let seconds = last.at.since(first.at).as_secs_f64();
        let rate = |more: u64| {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            f64::from(more) / seconds
        };
        let entries = last.position.0.saturating_sub(first.position.0);
        (seconds > 0.0).then(|| (rate(entries), rate(last.commands - first.commands)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_cover_the_last_period() {
        let mut rates = Rates::default();
        let at = |second: u64| Timestamp::from_millis(second * 1_000);
        rates.commands(Position(99), 7);
        rates.record(at(0), Position(100));
        rates.commands(Position(100), 7);
        assert_eq!(rates.per_second(), None);
        rates.commands(Position(101), 4);
        rates.record(at(2), Position(110));
        assert_eq!(rates.per_second(), Some((5.0, 2.0)));
        for second in 3..=30 {
            rates.record(at(second), Position(110));
        }
        assert_eq!(rates.per_second(), Some((0.0, 0.0)));
        assert!(rates.seen.len() <= 12, "{}", rates.seen.len());
    }
}
