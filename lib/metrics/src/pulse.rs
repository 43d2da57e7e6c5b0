//! Detection of loops that hang.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum time between two turns (iterations) of a healthy loop. After this time the loop counts as hanging.
pub const HANG_TIMEOUT: Duration = Duration::from_secs(15);

/// Time of a loop's last turn, which is one iteration. If no loop runs, nothing counts as hanging.
#[derive(Debug)]
pub struct Pulse {
    started_at: Instant,
    /// Milliseconds from `started_at` to the last turn, plus 1. 0 if no loop runs.
    last: AtomicU64,
}

impl Default for Pulse {
    fn default() -> Self {
        Self { started_at: Instant::now(), last: AtomicU64::new(0) }
    }
}

impl Pulse {
    /// Records that the loop has started another turn.
    pub fn record_turn(&self) {
        self.last.store(self.millis() + 1, Ordering::Relaxed);
    }

    /// Records that the loop has ended as intended.
    pub fn record_end(&self) {
        self.last.store(0, Ordering::Relaxed);
    }

    /// Returns `true` while a loop runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.last.load(Ordering::Relaxed) > 0
    }

    /// Returns the time since the last turn if the loop hangs, otherwise `None`.
    #[must_use]
    pub fn hang_time(&self) -> Option<Duration> {
        self.hang_time_at(self.millis())
    }

    fn hang_time_at(&self, now: u64) -> Option<Duration> {
        let last = self.last.load(Ordering::Relaxed).checked_sub(1)?;
        let still = Duration::from_millis(now.saturating_sub(last));
        (still > HANG_TIMEOUT).then_some(still)
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_hangs_after_timeout_without_a_turn() {
        let pulse = Pulse::default();
        assert_eq!((pulse.hang_time_at(60_000), pulse.is_running()), (None, false), "no loop runs");
        pulse.record_turn();
        assert_eq!((pulse.hang_time_at(14_000), pulse.is_running()), (None, true));
        assert!(pulse.hang_time_at(60_000) > Some(Duration::from_secs(59)));
        pulse.record_end();
        assert_eq!((pulse.hang_time_at(60_000), pulse.is_running()), (None, false));
    }
}
