//! Whether a loop still turns.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A loop that hasn't turned for this long hangs.
pub const HANGS: Duration = Duration::from_secs(15);

/// When a loop turned last. Where none runs nothing hangs.
#[derive(Debug)]
pub struct Pulse {
    begin: Instant,
    /// Milliseconds since then, and one more; 0: no loop runs.
    last: AtomicU64,
}

impl Default for Pulse {
    fn default() -> Self {
        Self { begin: Instant::now(), last: AtomicU64::new(0) }
    }
}

impl Pulse {
    /// The loop has turned.
    pub fn turn(&self) {
        self.last.store(self.millis() + 1, Ordering::Relaxed);
    }

    /// The loop has ended, as it was meant to.
    pub fn end(&self) {
        self.last.store(0, Ordering::Relaxed);
    }

    /// Whether a loop runs.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.last.load(Ordering::Relaxed) > 0
    }

    /// For how long the loop hangs, if it does.
    #[must_use]
    pub fn hangs(&self) -> Option<Duration> {
        self.hangs_at(self.millis())
    }

    fn hangs_at(&self, now: u64) -> Option<Duration> {
        let last = self.last.load(Ordering::Relaxed).checked_sub(1)?;
        let still = Duration::from_millis(now.saturating_sub(last));
        (still > HANGS).then_some(still)
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_hangs_that_did_not_turn_for_long() {
        let pulse = Pulse::default();
        assert_eq!((pulse.hangs_at(60_000), pulse.runs()), (None, false), "no loop runs");
        pulse.turn();
        assert_eq!((pulse.hangs_at(14_000), pulse.runs()), (None, true));
        assert!(pulse.hangs_at(60_000) > Some(Duration::from_secs(59)));
        pulse.end();
        assert_eq!((pulse.hangs_at(60_000), pulse.runs()), (None, false));
    }
}
