//! What a BBS has under way, in counts: at rest each is zero.

use std::collections::BTreeMap;

use crate::machine::Bbs;

impl Bbs {
    /// How much it has under way, by name. Whoever watches a BBS that rests sees zeros; what isn't, leaks.
    #[must_use]
    pub fn books(&self) -> BTreeMap<&'static str, usize> {
        let queued: usize = self.shards.values().map(|shard| shard.queue.len()).sum();
        let flights = self.shards.values().filter(|shard| shard.flight.is_some()).count();
        BTreeMap::from([
            ("commands that wait", queued),
            ("commands that were counted and don't wait, or wait uncounted", queued.abs_diff(self.waiting)),
            ("entries in flight", flights),
            ("subjects that are read again", self.retry_at.len()),
            (
                "answers that wait for the journal's leader",
                usize::from(self.confirmations.next_due().is_some()),
            ),
            ("messages that are being decided", self.gathers.len()),
            ("commands that clients wait for", self.asking.values().sum()),
            ("things to be looked at", self.own.len()),
            ("looks on their way to the log", self.flying.len()),
            ("callbacks that are out", self.callbacks.out()),
        ])
    }
}
