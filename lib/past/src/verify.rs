//! Verification of the snapshot index against the log.

use std::sync::Arc;

use schemas::Position;

use crate::past_state::{FoldTarget, PastState};
use crate::{Error, Pace, Past, run_blocking};

/// Result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Number of snapshots that are equal to the replayed state.
    pub equal: usize,
    /// Positions of snapshots that differed from the replayed state or were damaged. These snapshots have
    /// been deleted.
    pub mismatched: Vec<Position>,
    /// Number of entries that were folded.
    pub entries: u64,
}

impl Past {
    /// Replays the log from its beginning, and compares each snapshot with the replayed state.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be read.
    pub async fn verify(&self) -> Result<Verification, Error> {
        let mut verified = Verification::default();
        let mut then = PastState::before_first_entry(self.0.quarantines.clone());
        for position in self.0.snapshots.positions() {
            then = self.fold_until(then, FoldTarget::Position(position), position, Pace::Unthrottled).await?;
            verified.entries = then.position().0;
            let inner = Arc::clone(&self.0);
            let compared = move || {
                let rung = inner.snapshots.read(position, &inner.quarantines);
                let equal = rung.as_ref() == Some(&then);
                if rung.is_some() && !equal {
                    inner.snapshots.discard(position, "it differs from a replay of the log");
                }
                (then, equal)
            };
            let equal;
            (then, equal) = run_blocking(compared).await?;
            if equal {
                verified.equal += 1;
            } else {
                verified.mismatched.push(position);
            }
        }
        Ok(verified)
    }
}
