//! What is typed.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::cli::screen::Event;

/// A key, as far as it means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
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
pub(super) fn key(event: &Event) -> Option<Key> {
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
        KeyCode::Char(_) if control => None,
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
