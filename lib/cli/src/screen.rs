//! Full-screen drawing: an alternate screen, and keys without echo. The terminal is restored regardless of
//! how the program exits.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cli_base::failure::Failure;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{event, execute, queue};
use parking_lot::Mutex;
use runtime::exit::Exit;
use tokio::sync::mpsc;

use super::keys::{self, Key, Move};
pub(crate) use crossterm::event::Event;

/// Interval at which the key reader checks whether it should stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Capacity of the event queue.
const QUEUE_CAPACITY: usize = 64;
/// Columns and lines of a terminal that does not report its size.
const DEFAULT_SIZE: (u16, u16) = (80, 24);

/// `true` if the terminal has to be restored. The lock is held while the terminal is switched or restored. A
/// thread that exits the program therefore waits until the terminal is restored.
static IS_TAKEN: Mutex<bool> = Mutex::new(false);

/// Action that a key triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyAction {
    Move(Move),
    Quit,
    /// The terminal was resized.
    Resized,
}

/// A terminal for drawing. The terminal is restored when this value is dropped.
#[derive(Debug)]
pub(crate) struct Screen {
    keys: Option<mpsc::Receiver<Event>>,
    is_open: Arc<AtomicBool>,
}

impl Screen {
    /// Returns `true` if standard output is a terminal that supports drawing.
    pub(crate) fn is_available() -> bool {
        io::stdout().is_terminal() && terminal_problem().is_none()
    }

    /// Switches the terminal to the alternate screen. Keys are read if standard input is a terminal.
    pub(crate) fn open() -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::new(Exit::Failed, "Terminal", format!("can't use the terminal: {error}"))
        };
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore_terminal();
            before(panic);
        }));
        runtime::stop::on_forced_exit(restore_terminal);
        let mut screen = Self { keys: None, is_open: Arc::new(AtomicBool::new(true)) };
        let has_keys = io::stdin().is_terminal();
        take_terminal(has_keys).map_err(failed)?;
        if has_keys {
            let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
            let wanted = Arc::clone(&screen.is_open);
            std::thread::spawn(move || read_events(&sender, &wanted));
            screen.keys = Some(receiver);
        }
        Ok(screen)
    }

    /// Returns `true` if keys are read.
    pub(crate) const fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// Returns the next key that triggers an action. Waits forever if no keys are read. Cancel-safe.
    pub(crate) async fn key(&mut self) -> KeyAction {
        loop {
            if let Some(key) = key_action(&self.next_event().await) {
                return key;
            }
        }
    }

    /// Returns the next event of the terminal. Waits forever if no keys are read. Cancel-safe.
    pub(crate) async fn next_event(&mut self) -> Event {
        let event = match &mut self.keys {
            Some(keys) => keys.recv().await,
            None => None,
        };
        match event {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }

    /// Returns the columns and lines of the terminal.
    pub(crate) fn size() -> (usize, usize) {
        let (columns, lines) = crossterm::terminal::size().unwrap_or_default();
        let (columns, lines) = if columns == 0 || lines == 0 { DEFAULT_SIZE } else { (columns, lines) };
        (columns.into(), lines.into())
    }

    /// Returns the width of standard output. `None` if standard output is not a terminal.
    pub(crate) fn output_width() -> Option<usize> {
        io::stdout().is_terminal().then(|| Self::size().0)
    }

    /// Draws lines over the previously drawn lines.
    pub(crate) fn draw(lines: &[String]) -> Result<(), Failure> {
        let mut text = vec![];
        compose(&mut text, lines).and_then(|()| io::stdout().lock().write_all(&text)).map_err(|error| {
            Failure::new(Exit::Failed, "Output", format!("can't write to the standard output: {error}"))
        })?;
        io::stdout().flush().map_err(|_| Failure::broken_pipe())
    }
}

/// Returns the reason why drawing is not possible: `TERM` does not name a terminal with a movable cursor.
pub(crate) fn terminal_problem() -> Option<&'static str> {
    match std::env::var("TERM").unwrap_or_default().as_str() {
        "" => Some("TERM is not set"),
        "dumb" => Some("TERM is dumb"),
        _ => None,
    }
}

fn compose(text: &mut Vec<u8>, lines: &[String]) -> io::Result<()> {
    queue!(text, MoveTo(0, 0))?;
    for (at, line) in lines.iter().enumerate() {
        // A line end after the last line would scroll the screen.
        let end = if at + 1 == lines.len() { "" } else { "\r\n" };
        text.extend_from_slice(line.as_bytes());
        queue!(text, Clear(ClearType::UntilNewLine))?;
        text.extend_from_slice(end.as_bytes());
    }
    queue!(text, Clear(ClearType::FromCursorDown))
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.is_open.store(false, Ordering::SeqCst);
        restore_terminal();
    }
}

fn take_terminal(has_keys: bool) -> io::Result<()> {
    let mut drawn_on = IS_TAKEN.lock();
    *drawn_on = true;
    if has_keys {
        enable_raw_mode()?;
    }
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

/// Restores the terminal once. Errors are ignored, because there is no place to show them.
fn restore_terminal() {
    let mut drawn_on = IS_TAKEN.lock();
    if std::mem::take(&mut *drawn_on) {
        drop(execute!(io::stdout(), Show, LeaveAlternateScreen));
        drop(disable_raw_mode());
    }
}

/// Reads events until the screen is dropped.
fn read_events(keys: &mpsc::Sender<Event>, wanted: &AtomicBool) {
    while wanted.load(Ordering::SeqCst) {
        let event = match event::poll(POLL_INTERVAL) {
            Ok(false) => continue,
            Ok(true) => event::read(),
            Err(_) => return,
        };
        let Ok(event) = event else { return };
        if keys.blocking_send(event).is_err() {
            return;
        }
    }
}

/// Returns the action that an event triggers. A character with Ctrl triggers the same action as without Ctrl.
fn key_action(event: &Event) -> Option<KeyAction> {
    let key = keys::key(event)?;
    let key = if let Key::Control(char) = key { Key::Char(char) } else { key };
    if key == Key::Resized {
        return Some(KeyAction::Resized);
    }
    let quits = [Key::Interrupt, Key::Escape, Key::Char('q')].contains(&key);
    if quits { Some(KeyAction::Quit) } else { keys::movement(key).map(KeyAction::Move) }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;

    #[test]
    fn drawing_clears_previous_lines() {
        let mut text = vec![];
        compose(&mut text, &["a".into(), "b".into()]).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "\u{1b}[1;1Ha\u{1b}[K\r\nb\u{1b}[K\u{1b}[J");
    }

    #[test]
    fn keys_trigger_their_actions() {
        let key = |code, modifiers| key_action(&Event::Key(KeyEvent::new(code, modifiers)));
        let plain = |code| key(code, KeyModifiers::NONE);
        assert_eq!(plain(KeyCode::Char('q')), Some(KeyAction::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(KeyAction::Quit));
        assert_eq!(plain(KeyCode::Char('c')), None);
        assert_eq!([plain(KeyCode::Down), plain(KeyCode::Char('j'))], [Some(KeyAction::Move(Move::Down)); 2]);
        assert_eq!(key_action(&Event::Resize(1, 1)), Some(KeyAction::Resized));
    }
}
