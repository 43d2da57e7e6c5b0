//! The time of a story. It stands while something is done, and while something that should be so by now is not.

use std::time::{Duration, Instant};

/// A clock that can stand.
pub(super) struct Clock {
    began: Instant,
    /// How long it stood in all.
    stood: Duration,
    stands: Option<Instant>,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { began: Instant::now(), stood: Duration::ZERO, stands: None }
    }

    /// The time in the story.
    pub(super) fn now(&self) -> Duration {
        (self.began.elapsed() - self.stood).saturating_sub(self.stands_since())
    }

    /// How long it stands.
    pub(super) fn stands_since(&self) -> Duration {
        self.stands.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// From now on it stands, or goes.
    pub(super) fn stand(&mut self, stand: bool) {
        match (self.stands, stand) {
            (None, true) => self.stands = Some(Instant::now()),
            (Some(_), false) => {
                self.stood += self.stands_since();
                self.stands = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    /// Does something in no time.
    pub(super) fn stands_while(&mut self, act: impl FnOnce()) {
        let began = Instant::now();
        act();
        if self.stands.is_none() {
            self.stood += began.elapsed();
        }
    }
}
