//! Cache of recently requested states. It serves the pages of a list, and repeated queries.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use schemas::{Position, Timestamp};
use tokio::time::Instant;

use crate::limits::{CACHE_TTL, CACHED_STATES};
use crate::past_state::PastState;

#[derive(Debug, Default)]
pub(crate) struct StateCache {
    /// Most recently requested state last.
    all: Mutex<VecDeque<(Instant, Arc<PastState>)>>,
}

impl StateCache {
    /// Returns the state at a position.
    pub(crate) fn at(&self, position: Position) -> Option<Arc<PastState>> {
        let mut all = self.all.lock();
        let at = all.iter().position(|(_, then)| then.position() == position)?;
        let (_, then) = all.remove(at)?;
        all.push_back((Instant::now(), Arc::clone(&then)));
        Some(then)
    }

    /// Returns the nearest state at or below a position.
    pub(crate) fn below(&self, position: Position) -> Option<Arc<PastState>> {
        self.nearest(|then| then.position() <= position)
    }

    /// Returns the nearest state that has no decision later than a time.
    pub(crate) fn before(&self, time: Timestamp) -> Option<Arc<PastState>> {
        self.nearest(|then| then.latest() <= time)
    }

    fn nearest(&self, fits: impl Fn(&PastState) -> bool) -> Option<Arc<PastState>> {
        let all = self.all.lock();
        let fitting = all.iter().map(|(_, then)| then).filter(|then| fits(then));
        fitting.max_by_key(|then| then.position()).cloned()
    }

    /// Adds a state. If the cache is full, the least recently requested state is evicted.
    pub(crate) fn insert(&self, then: PastState) -> Arc<PastState> {
        let then = Arc::new(then);
        let mut all = self.all.lock();
        all.retain(|(_, known)| known.position() != then.position());
        all.push_back((Instant::now(), Arc::clone(&then)));
        let over = all.len().saturating_sub(CACHED_STATES);
        all.drain(..over);
        then
    }

    /// Evicts states that have not been requested for `KEPT_FOR`.
    pub(crate) fn evict_idle(&self) {
        self.all.lock().retain(|(asked, _)| asked.elapsed() < CACHE_TTL);
    }
}
