//! Comparison of two logs, message by message. It distinguishes messages that were dropped, added or moved
//! from messages that were altered.

use std::collections::VecDeque;

use schemas::Position;

use crate::{Finding, Hash, Kind, Message};

/// Number of messages that are read ahead to find a message that has moved.
pub const LOOKAHEAD: usize = 256;

/// One of the two logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The log that is audited.
    Audited,
    /// The log that the audited log is compared with.
    Reference,
}

/// Comparison of two logs. The caller passes the next message of the side that [`Compare::next_side`] returns.
#[derive(Clone, Debug, Default)]
pub struct Compare {
    judged: Lookahead,
    other: Lookahead,
    /// Position in the audited log of the last message with a counterpart in the other log.
    last: Position,
}

#[derive(Clone, Debug, Default)]
struct Lookahead {
    messages: VecDeque<Fingerprint>,
    ended: bool,
}

#[derive(Clone, Copy, Debug)]
struct Fingerprint {
    position: Position,
    hash: Hash,
}

impl Lookahead {
    fn is_full(&self) -> bool {
        self.ended || self.messages.len() >= LOOKAHEAD
    }

    /// Returns the index of the first message with the same content.
    fn find(&self, seen: Fingerprint) -> Option<usize> {
        self.messages.iter().position(|one| one.hash == seen.hash)
    }
}

impl Compare {
    /// Returns the side whose next message is needed. `None` if both logs have ended and all findings have
    /// been returned.
    #[must_use]
    pub fn next_side(&self) -> Option<Side> {
        if !self.other.is_full() {
            Some(Side::Reference)
        } else if !self.judged.is_full() {
            Some(Side::Audited)
        } else {
            None
        }
    }

    /// Processes the next message of a side. `None` marks the end of that log. Returns new findings.
    pub fn add(&mut self, side: Side, message: Option<&Message>) -> Vec<Finding> {
        let ahead = match side {
            Side::Audited => &mut self.judged,
            Side::Reference => &mut self.other,
        };
        match message {
            Some(message) => {
                let hash = Hash::compute(&[message.subject.as_bytes(), &[0], &message.bytes].concat());
                ahead.messages.push_back(Fingerprint { position: message.position, hash });
            }
            None => ahead.ended = true,
        }
        let mut findings = vec![];
        while self.next_side().is_none()
            && !(self.judged.messages.is_empty() && self.other.messages.is_empty())
        {
            findings.extend(self.compare_first());
        }
        findings
    }

    /// Compares the first message of each side and removes at least one message.
    fn compare_first(&mut self) -> Option<Finding> {
        let (judged, other) = match (self.judged.messages.front(), self.other.messages.front()) {
            (None, None) => return None,
            // The audited log continued after the other one was exported.
            (Some(_), None) => {
                self.judged.messages.clear();
                return None;
            }
            (None, Some(less)) => {
                let less = *less;
                self.other.messages.pop_front();
                let what = format!("the log ends at position {}, but the other log continues", self.last);
                return Some(Finding::at_position(Kind::Missing, less.position, what));
            }
            (Some(judged), Some(other)) => (*judged, *other),
        };
        if judged.hash == other.hash {
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
                Finding::at_position(
                    Kind::Altered,
                    judged.position,
                    "the other log has a different message here",
                )
            }
            (None, Some(_)) => {
                self.judged.messages.pop_front();
                Finding::at_position(
                    Kind::Inserted,
                    judged.position,
                    "the other log does not have this message",
                )
            }
            (Some(_), None) => {
                self.other.messages.pop_front();
                let what = format!(
                    "the other log has this message; here it is missing after position {}",
                    self.last
                );
                Finding::at_position(Kind::Missing, other.position, what)
            }
            (Some(later), Some(_)) => {
                let stood = self.other.messages.remove(later).map_or(other.position, |one| one.position);
                self.judged.messages.pop_front();
                let what = format!("the other log has this message at position {stood}");
                Finding::at_position(Kind::Moved, judged.position, what)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares two logs with one letter per message. Positions start at 1.
    fn compare_letters(judged: &str, other: &str) -> Vec<String> {
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
        while let Some(side) = compare.next_side() {
            let next = match side {
                Side::Audited => judged.pop_front(),
                Side::Reference => other.pop_front(),
            };
            findings.extend(compare.add(side, next.as_ref()));
        }
        findings.iter().map(|one| format!("{} {}", one.kind, one.position_text())).collect()
    }

    #[test]
    fn dropped_added_moved_and_altered_messages_are_distinguished() {
        assert_eq!(compare_letters("", ""), [""; 0]);
        assert_eq!(compare_letters("abcdef", "abcdef"), [""; 0]);
        assert_eq!(compare_letters("abXdef", "abcdef"), ["altered 3"]);
        assert_eq!(compare_letters("abdef", "abcdef"), ["missing 3"]);
        assert_eq!(compare_letters("abef", "abcdef"), ["missing 3", "missing 4"]);
        assert_eq!(compare_letters("abXcdef", "abcdef"), ["inserted 3"]);
        assert_eq!(compare_letters("abdcef", "abcdef"), ["moved 3"]);
        assert_eq!(compare_letters("fabcde", "abcdef"), ["moved 1"]);
        assert_eq!(compare_letters("abc", "abcdef"), ["missing 4", "missing 5", "missing 6"]);
        assert_eq!(compare_letters("abcdef", "abc"), [""; 0], "the audited log may continue");
        assert_eq!(compare_letters("abXcdef", "abc"), ["inserted 3"]);
        assert_eq!(compare_letters("Xbdef", "abcdef"), ["altered 1", "missing 3"]);
        let long: String = ('a'..='z').cycle().take(26).collect();
        let both = format!("{long}{long}");
        assert_eq!(compare_letters(&both, &both), [""; 0], "the same message may occur twice");
    }
}
