//! Whose orders are obeyed: a leader's of the highest term. A rep doesn't follow the log; it learns from the BBS's answers
//! which terms the log names. A term that nobody was elected in is believed only if it is the next one, and not for ever:
//! so no forged order makes a rep refuse its true leader.

use std::time::Duration;

use schemas::{Code, Refusal, Timestamp};

/// How long a term is believed that the log doesn't name. It takes less until an answer of the BBS names a new leader.
const UNCONFIRMED: Duration = Duration::from_secs(15);

/// The terms of one role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Leadership {
    /// The highest that the log names, as far as an answer told.
    elected: u64,
    /// Since when somebody gives orders in the term after that.
    next_since: Option<Timestamp>,
}

impl Leadership {
    /// The highest that is believed.
    fn highest(&self, now: Timestamp) -> u64 {
        let believed = self.next_since.is_some_and(|since| now.since(since) < UNCONFIRMED);
        self.elected + u64::from(believed)
    }

    /// The highest term that the log names, as far as an answer told.
    pub(super) const fn elected(&self) -> u64 {
        self.elected
    }

    /// Somebody gives an order as the leader of a term.
    ///
    /// # Errors
    /// `StaleTerm` below the highest term; `Unavailable` for one that the log has to name first.
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

    /// An answer of the BBS names the highest term of the log. Whether it is news.
    pub(super) fn learn(&mut self, elected: u64) -> bool {
        let news = elected > self.elected;
        if news {
            *self = Self { elected, next_since: None };
        }
        news
    }
}
