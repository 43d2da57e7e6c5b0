//! Comparing the ladder with the log.

use std::sync::Arc;

use schemas::Position;

use crate::then::{Then, Until};
use crate::{Error, Pace, Past, blocking};

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// How many rungs were compared and are what the log says.
    pub equal: usize,
    /// Where one was something else, or damaged. It is deleted.
    pub wrong: Vec<Position>,
    /// How many entries were folded.
    pub entries: u64,
}

impl Past {
    /// Replays the log from its beginning, and compares each rung with what that gives.
    ///
    /// # Errors
    /// The journal can't be read.
    pub async fn verify(&self) -> Result<Verified, Error> {
        let mut verified = Verified::default();
        let mut then = Then::beginning(self.0.set_aside.clone());
        for position in self.0.ladder.all() {
            then = self.climb(then, Until::Position(position), position, Pace::Quick).await?;
            verified.entries = then.position().0;
            let inner = Arc::clone(&self.0);
            let compared = move || {
                let rung = inner.ladder.read(position, &inner.set_aside);
                let equal = rung.as_ref() == Some(&then);
                if rung.is_some() && !equal {
                    inner.ladder.spoil(position, "the log says something else");
                }
                (then, equal)
            };
            let equal;
            (then, equal) = blocking(compared).await?;
            if equal {
                verified.equal += 1;
            } else {
                verified.wrong.push(position);
            }
        }
        Ok(verified)
    }
}
