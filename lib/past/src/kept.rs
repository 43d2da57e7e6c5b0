//! The Worlds for which somebody asked lately: pages of one list, and the same question again, are answered at once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use schemas::{Position, Timestamp};
use tokio::time::Instant;

use crate::limits::{KEPT, KEPT_FOR};
use crate::then::Then;

#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// The one that was asked for last is the last.
    all: Mutex<VecDeque<(Instant, Arc<Then>)>>,
}

impl Kept {
    /// The one at a position.
    pub(crate) fn at(&self, position: Position) -> Option<Arc<Then>> {
        let mut all = self.lock();
        let at = all.iter().position(|(_, then)| then.position() == position)?;
        let (_, then) = all.remove(at)?;
        all.push_back((Instant::now(), Arc::clone(&then)));
        Some(then)
    }

    /// The nearest at or below a position.
    pub(crate) fn below(&self, position: Position) -> Option<Arc<Then>> {
        self.nearest(|then| then.position() <= position)
    }

    /// The nearest up to which nothing was decided later than a time.
    pub(crate) fn before(&self, time: Timestamp) -> Option<Arc<Then>> {
        self.nearest(|then| then.latest() <= time)
    }

    fn nearest(&self, fits: impl Fn(&Then) -> bool) -> Option<Arc<Then>> {
        let all = self.lock();
        let fitting = all.iter().map(|(_, then)| then).filter(|then| fits(then));
        fitting.max_by_key(|then| then.position()).cloned()
    }

    /// Keeps one, in place of the one for which nobody asked longest.
    pub(crate) fn keep(&self, then: Then) -> Arc<Then> {
        let then = Arc::new(then);
        let mut all = self.lock();
        all.retain(|(_, known)| known.position() != then.position());
        all.push_back((Instant::now(), Arc::clone(&then)));
        let over = all.len().saturating_sub(KEPT);
        all.drain(..over);
        then
    }

    /// Drops those for which nobody asked for a while.
    pub(crate) fn drop_idle(&self) {
        self.lock().retain(|(asked, _)| asked.elapsed() < KEPT_FOR);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Instant, Arc<Then>)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
