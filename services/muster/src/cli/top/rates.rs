//! How much happens in a second. Pure: what was seen and when in, rates out.

use std::collections::VecDeque;
use std::time::Duration;

use schemas::{Position, Timestamp};

/// Over how long rates are taken.
const OVER: Duration = Duration::from_secs(10);

/// What was counted, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    at: Timestamp,
    position: Position,
    commands: u64,
}

/// Rates of the last seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    seen: VecDeque<Seen>,
    /// Commands that were told of so far.
    commands: u64,
}

impl Rates {
    /// So many more commands were decided.
    pub(super) const fn commands(&mut self, count: u64) {
        self.commands += count;
    }

    /// The log stands there at a time.
    pub(super) fn stands(&mut self, at: Timestamp, position: Position) {
        self.seen.push_back(Seen { at, position, commands: self.commands });
        while self.seen.len() > 2 && at.since(self.seen[1].at) >= OVER {
            self.seen.pop_front();
        }
    }

    /// Entries and commands a second; none: nothing is known yet.
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
    fn rates_are_those_of_the_last_seconds() {
        let mut rates = Rates::default();
        let at = |second: u64| Timestamp::from_millis(second * 1_000);
        rates.stands(at(0), Position(100));
        assert_eq!(rates.per_second(), None);
        rates.commands(4);
        rates.stands(at(2), Position(110));
        assert_eq!(rates.per_second(), Some((5.0, 2.0)));
        for second in 3..=30 {
            rates.stands(at(second), Position(110));
        }
        assert_eq!(rates.per_second(), Some((0.0, 0.0)));
        assert!(rates.seen.len() <= 12, "{}", rates.seen.len());
    }
}
