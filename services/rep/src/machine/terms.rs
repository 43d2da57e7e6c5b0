//! Terms of leaders whose orders the rep obeys. A rep does not follow the log. It learns from answers of the
//! BBS which terms the log names. A term without a known election is accepted only if it is the next one, and
//! only for a limited time. A forged order therefore cannot make a rep refuse the real leader.

use std::time::Duration;

use schemas::{Code, Refusal, Timestamp};

/// Maximum time for which a term is accepted that the log does not name. An answer of the BBS normally names
/// a new leader sooner.
const UNCONFIRMED: Duration = Duration::from_secs(15);

/// Terms of one role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Leadership {
    /// Highest term that an answer of the BBS named.
    elected: u64,
    /// Time of the first order in the following term.
    next_since: Option<Timestamp>,
}

impl Leadership {
    /// Returns the highest accepted term.
    fn highest(&self, now: Timestamp) -> u64 {
        let believed = self.next_since.is_some_and(|since| now.since(since) < UNCONFIRMED);
        self.elected + u64::from(believed)
    }

    /// Returns the highest term that an answer of the BBS named.
    pub(super) const fn elected(&self) -> u64 {
        self.elected
    }

    /// Accepts or refuses an order of a leader of this term.
    ///
    /// # Errors
    /// `StaleTerm` below the highest accepted term. `Unavailable` for a term that the log must name first.
    pub(super) fn obey(&mut self, role: &str, term: u64, now: Timestamp) -> Result<(), Refusal> {
        if term == self.elected.saturating_add(1) {
            self.next_since.get_or_insert(now);
        }
        let highest = self.highest(now);
        if term < highest {
            let why = format!("a later {role} spoke already: term {highest}, not {term}");
            return Err(Refusal::new(Code::StaleTerm, why));
        }
        if term > highest {
            let why =
                format!("term {term} of the {role}: this cell knows of an election in term {}", self.elected);
            return Err(Refusal::new(Code::Unavailable, why));
        }
        Ok(())
    }

    /// Updates the highest elected term from an answer of the BBS. Returns `true` if it is new.
    pub(super) fn learn(&mut self, elected: u64) -> bool {
        let news = elected > self.elected;
        if news {
            *self = Self { elected, next_since: None };
        }
        news
    }
}
