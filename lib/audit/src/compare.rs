//! Where two logs differ: message by message, so that what was dropped, added or moved is told from what was altered.

use std::collections::VecDeque;

use schemas::Position;

use crate::{Finding, Hash, Kind, Message};

/// How far ahead is looked for a message that isn't where it stood.
pub const AHEAD: usize = 256;

/// Which log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that is judged.
    Judged,
    /// The one that it ought to be equal to.
    Other,
}

/// Compares two logs. Whoever has one in hand gives the next message of the side that [`Compare::wants`].
#[derive(Clone, Debug, Default)]
pub struct Compare {
    judged: Ahead,
    other: Ahead,
    /// Where the last message that is in both logs stands.
    last: Position,
}

#[derive(Clone, Debug, Default)]
struct Ahead {
    messages: VecDeque<Seen>,
    ended: bool,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    position: Position,
    what: Hash,
}

impl Ahead {
    fn is_full(&self) -> bool {
        self.ended || self.messages.len() >= AHEAD
    }

    /// How many messages stand before this one, if it is among them.
    fn find(&self, seen: Seen) -> Option<usize> {
        self.messages.iter().position(|one| one.what == seen.what)
    }
}

impl Compare {
    /// Which side's next message is needed; none: both have ended, and everything is told.
    #[must_use]
    pub fn wants(&self) -> Option<Side> {
        if !self.other.is_full() {
            Some(Side::Other)
        } else if !self.judged.is_full() {
            Some(Side::Judged)
        } else {
            None
        }
    }

    /// Takes the next message of a side, or that it has none any more. Answers what is wrong.
    pub fn take(&mut self, side: Side, message: Option<&Message>) -> Vec<Finding> {
        let ahead = match side {
            Side::Judged => &mut self.judged,
            Side::Other => &mut self.other,
        };
        match message {
            Some(message) => {
                let what = Hash::of(&[message.subject.as_bytes(), &[0], &message.bytes].concat());
                ahead.messages.push_back(Seen { position: message.position, what });
            }
            None => ahead.ended = true,
        }
        let mut findings = vec![];
        while self.wants().is_none() && !(self.judged.messages.is_empty() && self.other.messages.is_empty()) {
            findings.extend(self.settle());
        }
        findings
    }

    /// Settles what stands first.
    fn settle(&mut self) -> Option<Finding> {
        let (judged, other) = match (self.judged.messages.front(), self.other.messages.front()) {
            (None, None) => return None,
            // The log went on since the other was written down.
            (Some(_), None) => {
                self.judged.messages.clear();
                return None;
            }
            (None, Some(less)) => {
                let less = *less;
                self.other.messages.pop_front();
                let what = format!("the log ends at position {}, and the other one goes on", self.last);
                return Some(Finding::at(Kind::Missing, less.position, what));
            }
            (Some(judged), Some(other)) => (*judged, *other),
        };
        if judged.what == other.what {
            self.judged.messages.pop_front();
            self.other.messages.pop_front();
            self.last = judged.position;
            return None;
        }
        Some(match (self.other.find(judged), self.judged.find(other)) {
            (None, None) => {
                self.judged.messages.pop_front();
                self.other.messages.pop_front();
                self.last = judged.position;
                Finding::at(Kind::Altered, judged.position, "the other log has something else there")
            }
            (None, Some(_)) => {
                self.judged.messages.pop_front();
                Finding::at(Kind::Inserted, judged.position, "the other log doesn't have it")
            }
            (Some(_), None) => {
                self.other.messages.pop_front();
                let what = format!("the other log has it; here it would follow position {}", self.last);
                Finding::at(Kind::Missing, other.position, what)
            }
            (Some(later), Some(_)) => {
                let stood = self.other.messages.remove(later).map_or(other.position, |one| one.position);
                self.judged.messages.pop_front();
                let what = format!("the other log has it at position {stood}");
                Finding::at(Kind::OutOfPlace, judged.position, what)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares logs of one letter for each message; positions count from 1.
    fn of(judged: &str, other: &str) -> Vec<String> {
        let log = |text: &str| -> VecDeque<Message> {
            let message = |(at, letter): (u64, char)| Message {
                position: Position(at),
                subject: "s".into(),
                id: None,
                bytes: letter.to_string().into_bytes(),
            };
            (1..).zip(text.chars()).map(message).collect()
        };
        let (mut judged, mut other) = (log(judged), log(other));
        let (mut compare, mut findings) = (Compare::default(), vec![]);
        while let Some(side) = compare.wants() {
            let next = match side {
                Side::Judged => judged.pop_front(),
                Side::Other => other.pop_front(),
            };
            findings.extend(compare.take(side, next.as_ref()));
        }
        findings.iter().map(|one| format!("{} {}", one.kind, one.place())).collect()
    }

    #[test]
    fn what_was_dropped_added_or_moved_is_told_from_what_was_altered() {
        assert_eq!(of("", ""), [""; 0]);
        assert_eq!(of("abcdef", "abcdef"), [""; 0]);
        assert_eq!(of("abXdef", "abcdef"), ["altered 3"]);
        assert_eq!(of("abdef", "abcdef"), ["missing 3"]);
        assert_eq!(of("abef", "abcdef"), ["missing 3", "missing 4"]);
        assert_eq!(of("abXcdef", "abcdef"), ["inserted 3"]);
        assert_eq!(of("abdcef", "abcdef"), ["out_of_place 3"]);
        assert_eq!(of("fabcde", "abcdef"), ["out_of_place 1"]);
        assert_eq!(of("abc", "abcdef"), ["missing 4", "missing 5", "missing 6"]);
        assert_eq!(of("abcdef", "abc"), [""; 0], "a log goes on");
        assert_eq!(of("abXcdef", "abc"), ["inserted 3"]);
        assert_eq!(of("Xbdef", "abcdef"), ["altered 1", "missing 3"]);
        let long: String = ('a'..='z').cycle().take(26).collect();
        let both = format!("{long}{long}");
        assert_eq!(of(&both, &both), [""; 0], "the same message may stand twice");
    }
}
