//! Story time. The clock stops while an act is carried out, and while an expectation is overdue.

use std::time::{Duration, Instant};

/// Clock that can be stopped.
pub(super) struct Clock {
    began: Instant,
    /// Total time for which the clock was stopped.
    stopped_total: Duration,
    stopped_at: Option<Instant>,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { began: Instant::now(), stopped_total: Duration::ZERO, stopped_at: None }
    }

    /// Returns the story time.
    pub(super) fn now(&self) -> Duration {
        (self.began.elapsed() - self.stopped_total).saturating_sub(self.stopped_for())
    }

    /// Returns the time since the clock was stopped; zero if the clock runs.
    pub(super) fn stopped_for(&self) -> Duration {
        self.stopped_at.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Stops the clock, or lets the clock run.
    pub(super) fn set_stopped(&mut self, stand: bool) {
        match (self.stopped_at, stand) {
            (None, true) => self.stopped_at = Some(Instant::now()),
            (Some(_), false) => {
                self.stopped_total += self.stopped_for();
                self.stopped_at = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    /// Runs a function while the clock is stopped.
    pub(super) fn run_stopped(&mut self, act: impl FnOnce()) {
        let began = Instant::now();
        act();
        if self.stopped_at.is_none() {
            self.stopped_total += began.elapsed();
        }
    }
}
