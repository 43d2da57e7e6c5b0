//! Moving through a list, whose rows come and go. Pure.

use super::keys::Key;

/// Which row of a list is chosen. The row stays chosen where others come and go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    key: Option<String>,
    pub(super) at: usize,
}

impl Chosen {
    /// Where it is in a list now.
    pub(super) fn settle(&mut self, keys: &[String]) {
        let found = self.key.as_ref().and_then(|key| keys.iter().position(|known| known == key));
        self.at = found.unwrap_or(self.at).min(keys.len().saturating_sub(1));
        self.key = keys.get(self.at).cloned();
    }

    /// Another row is chosen.
    pub(super) fn moved(&mut self, keys: &[String], to: usize) {
        self.at = to.min(keys.len().saturating_sub(1));
        self.key = keys.get(self.at).cloned();
    }
}

/// A move through a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

/// The move that a key means; none: it means something else.
pub(super) const fn moves(key: Key) -> Option<Move> {
    match key {
        Key::Up | Key::Char('k') => Some(Move::Up),
        Key::Down | Key::Char('j') => Some(Move::Down),
        Key::PageUp | Key::Char('b') => Some(Move::PageUp),
        Key::PageDown | Key::Char(' ') => Some(Move::PageDown),
        Key::First | Key::Char('g') => Some(Move::First),
        Key::Last | Key::Char('G') => Some(Move::Last),
        Key::Char(_)
        | Key::Enter
        | Key::Back
        | Key::Next
        | Key::Previous
        | Key::Erase
        | Key::Interrupt
        | Key::Resized => None,
    }
}

impl Move {
    /// Where it leads from a row; beyond the end is the end.
    pub(super) const fn from(self, at: usize, page: usize, end: usize) -> usize {
        match self {
            Self::Up => at.saturating_sub(1),
            Self::Down => at + 1,
            Self::PageUp => at.saturating_sub(page),
            Self::PageDown => at + page,
            Self::First => 0,
            Self::Last => end,
        }
    }
}
