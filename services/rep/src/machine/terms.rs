//! Terms of the leaders whose orders the rep obeys.
//!
//! A rep does not follow the log. The answers of the BBS name the current terms of the log. The rep accepts a
//! term that no answer has named only if this term directly follows the known term, and only for a limited
//! time. For this reason, a forged order cannot make a rep refuse the real leader.

use schemas::{Code, Refusal, Timestamp};

use crate::limits::UNCONFIRMED_TERM_TIMEOUT;

/// Known terms of one role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Leadership {
    /// Highest term that an answer of the BBS named.
    elected: u64,
    /// Time of the first order in the term after `elected`. `None` if there was no such order.
    next_since: Option<Timestamp>,
}

impl Leadership {
    /// Returns the highest accepted term.
    fn highest(&self, now: Timestamp) -> u64 {
        let believed = self.next_since.is_some_and(|since| now.since(since) < UNCONFIRMED_TERM_TIMEOUT);
        self.elected + u64::from(believed)
    }

    /// Returns the highest term that an answer of the BBS named.
    pub(super) const fn elected(&self) -> u64 {
        self.elected
    }

    /// Accepts or refuses an order from a leader of this term.
    ///
    /// # Errors
    /// `StaleTerm` if the term is lower than the highest accepted term. `Unavailable` if an answer of the BBS
    /// must first name this term.
    pub(super) fn obey(&mut self, role: &str, term: u64, now: Timestamp) -> Result<(), Refusal> {
        if term == self.elected.saturating_add(1) {
            self.next_since.get_or_insert(now);
        }
        let highest = self.highest(now);
        if term < highest {
            let why = format!("stale term {term} of the {role}: this cell has accepted term {highest}");
            return Err(Refusal::new(Code::StaleTerm, why));
        }
        if term > highest {
            let why = format!(
                "unknown term {term} of the {role}: the last election known to this cell is in term {}",
                self.elected
            );
            return Err(Refusal::new(Code::Unavailable, why));
        }
        Ok(())
    }

    /// Updates the highest elected term from an answer of the BBS. Returns `true` if the term is new to the
    /// rep.
    pub(super) fn learn(&mut self, elected: u64) -> bool {
        let news = elected > self.elected;
        if news {
            *self = Self { elected, next_since: None };
        }
        news
    }
}
