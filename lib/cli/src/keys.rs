//! Keyboard input and list navigation for the interactive views. Pure: does not access the terminal.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// A key that the views react to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    /// A character with Ctrl, other than Ctrl-C and Ctrl-D.
    Control(char),
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Enter,
    Escape,
    Tab,
    BackTab,
    Backspace,
    /// Ctrl-C or Ctrl-D: leaves the program from any view.
    Interrupt,
    /// The terminal was resized.
    Resized,
}

/// Returns the key of a terminal event. `None` if the event is ignored.
pub(crate) fn key(event: &Event) -> Option<Key> {
    let KeyEvent { code, modifiers, .. } = match event {
        Event::Resize(..) => return Some(Key::Resized),
        Event::Key(key) if key.kind != KeyEventKind::Release => *key,
        Event::Key(_) | Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_) => {
            return None;
        }
    };
    let control = modifiers.contains(KeyModifiers::CONTROL);
    #[expect(clippy::wildcard_enum_match_arm, reason = "most keys have no function")]
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
        KeyCode::Esc => Some(Key::Escape),
        KeyCode::Tab => Some(Key::Tab),
        KeyCode::BackTab => Some(Key::BackTab),
        KeyCode::Backspace => Some(Key::Backspace),
        _ => None,
    }
}

/// A movement in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

/// Returns the movement that a key causes. `None` for all other keys.
pub(crate) const fn movement(key: Key) -> Option<Move> {
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
        | Key::Escape
        | Key::Tab
        | Key::BackTab
        | Key::Backspace
        | Key::Interrupt
        | Key::Resized => None,
    }
}

impl Move {
    /// Returns the row that the movement leads to from row `at`. The result may be greater than `end`;
    /// callers clamp it.
    pub(crate) const fn target_row(self, at: usize, page: usize, end: usize) -> usize {
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
