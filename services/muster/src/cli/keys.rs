//! What is typed, and the moves through a list that keys mean. Pure.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// A key, as far as it means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    /// A sign with Ctrl, but for what interrupts.
    Control(char),
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Enter,
    Back,
    Next,
    Previous,
    Erase,
    /// Ctrl-C: enough, wherever one is.
    Interrupt,
    /// The terminal has another size.
    Resized,
}

/// The key of an event of the terminal; none: it means nothing.
pub(crate) fn key(event: &Event) -> Option<Key> {
    let KeyEvent { code, modifiers, .. } = match event {
        Event::Resize(..) => return Some(Key::Resized),
        Event::Key(key) if key.kind != KeyEventKind::Release => *key,
        Event::Key(_) | Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_) => {
            return None;
        }
    };
    let control = modifiers.contains(KeyModifiers::CONTROL);
    #[expect(clippy::wildcard_enum_match_arm, reason = "there are more keys than meanings")]
    match code {
        KeyCode::Char('c' | 'd') if control => Some(Key::Interrupt),
        KeyCode::Char(char) if control => Some(Key::Control(char)),
        KeyCode::Char(char) => Some(Key::Char(char)),
        KeyCode::Up => Some(Key::Up),
        KeyCode::Down => Some(Key::Down),
        KeyCode::PageUp => Some(Key::PageUp),
        KeyCode::PageDown => Some(Key::PageDown),
        KeyCode::Home => Some(Key::First),
        KeyCode::End => Some(Key::Last),
        KeyCode::Enter => Some(Key::Enter),
        KeyCode::Esc => Some(Key::Back),
        KeyCode::Tab => Some(Key::Next),
        KeyCode::BackTab => Some(Key::Previous),
        KeyCode::Backspace => Some(Key::Erase),
        _ => None,
    }
}

/// A move through a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

/// The move that a key means; none: it means something else.
pub(crate) const fn moves(key: Key) -> Option<Move> {
    match key {
        Key::Up | Key::Char('k') => Some(Move::Up),
        Key::Down | Key::Char('j') => Some(Move::Down),
        Key::PageUp | Key::Char('b') => Some(Move::PageUp),
        Key::PageDown | Key::Char(' ') => Some(Move::PageDown),
        Key::First | Key::Char('g') => Some(Move::First),
        Key::Last | Key::Char('G') => Some(Move::Last),
        Key::Char(_)
        | Key::Control(_)
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
    pub(crate) const fn from(self, at: usize, page: usize, end: usize) -> usize {
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
