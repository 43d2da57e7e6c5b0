//! The terminal while something is drawn on it: a screen of its own, keys that are not shown, and the way back, whichever
//! way the program ends.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event;
pub(crate) use crossterm::event::Event;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use tokio::sync::mpsc;

use super::failure::{Exit, Failure};
use super::keys::{self, Key, Move};

/// How often the reader of keys looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(100);
/// Keys that wait to be acted on.
const KEYS: usize = 64;
/// The size of a terminal that doesn't say it: columns and lines.
const USUAL_SIZE: (u16, u16) = (80, 24);

/// Whether there is something to be given back. Locked while the terminal is taken or given back: who is about to end the
/// program waits until that is done.
static DRAWN_ON: Mutex<bool> = Mutex::new(false);

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// To other lines.
    Move(Move),
    /// Enough.
    Quit,
    /// The terminal has another size.
    Resized,
}

/// The terminal while it is drawn on. Dropped, it is as it was before.
#[derive(Debug)]
pub(crate) struct Screen {
    keys: Option<mpsc::Receiver<Event>>,
    wanted: Arc<AtomicBool>,
}

impl Screen {
    /// Takes the terminal. Keys are read where the standard input is one.
    pub(crate) fn open() -> Result<Self, Failure> {
        let failed =
            |error: io::Error| Failure::new(Exit::Failed, "Terminal", format!("the terminal: {error}"));
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        runtime::stop::before_ending(give_back);
        let mut screen = Self { keys: None, wanted: Arc::new(AtomicBool::new(true)) };
        let has_keys = io::stdin().is_terminal();
        take(has_keys).map_err(failed)?;
        if has_keys {
            let (sender, receiver) = mpsc::channel(KEYS);
            let wanted = Arc::clone(&screen.wanted);
            std::thread::spawn(move || read(&sender, &wanted));
            screen.keys = Some(receiver);
        }
        Ok(screen)
    }

    /// Whether there are keys to act on.
    pub(crate) const fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// The next key that means something; never one where there are none. Cancel-safe.
    pub(crate) async fn key(&mut self) -> Meaning {
        loop {
            if let Some(key) = meaning(&self.event().await) {
                return key;
            }
        }
    }

    /// The next event, whatever it means; never one where there are none. Cancel-safe.
    pub(crate) async fn event(&mut self) -> Event {
        let event = match &mut self.keys {
            Some(keys) => keys.recv().await,
            None => None,
        };
        match event {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }

    /// Columns and lines.
    pub(crate) fn size() -> (usize, usize) {
        let (columns, lines) = crossterm::terminal::size().unwrap_or_default();
        let (columns, lines) = if columns == 0 || lines == 0 { USUAL_SIZE } else { (columns, lines) };
        (columns.into(), lines.into())
    }

    /// Draws these lines over what was drawn before.
    pub(crate) fn draw(lines: &[String]) -> Result<(), Failure> {
        let mut text = vec![];
        compose(&mut text, lines).and_then(|()| io::stdout().lock().write_all(&text)).map_err(|error| {
            Failure::new(Exit::Failed, "Output", format!("can't write to the standard output: {error}"))
        })?;
        io::stdout().flush().map_err(|_| Failure::nobody_reads())
    }
}

fn compose(text: &mut Vec<u8>, lines: &[String]) -> io::Result<()> {
    queue!(text, MoveTo(0, 0))?;
    for (at, line) in lines.iter().enumerate() {
        // The last line has no end: the screen would move on.
        let end = if at + 1 == lines.len() { "" } else { "\r\n" };
        text.extend_from_slice(line.as_bytes());
        queue!(text, Clear(ClearType::UntilNewLine))?;
        text.extend_from_slice(end.as_bytes());
    }
    queue!(text, Clear(ClearType::FromCursorDown))
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.wanted.store(false, Ordering::SeqCst);
        give_back();
    }
}

fn drawn_on() -> MutexGuard<'static, bool> {
    DRAWN_ON.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take(has_keys: bool) -> io::Result<()> {
    let mut drawn_on = drawn_on();
    *drawn_on = true;
    if has_keys {
        enable_raw_mode()?;
    }
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

/// Makes the terminal what it was, once. Nobody is left to see that it can't be done.
fn give_back() {
    let mut drawn_on = drawn_on();
    if std::mem::take(&mut *drawn_on) {
        drop(execute!(io::stdout(), Show, LeaveAlternateScreen));
        drop(disable_raw_mode());
    }
}

/// Reads keys until nobody wants them.
fn read(keys: &mpsc::Sender<Event>, wanted: &AtomicBool) {
    while wanted.load(Ordering::SeqCst) {
        let event = match event::poll(LOOK) {
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

/// What an event of the terminal means, with Ctrl or without.
fn meaning(event: &Event) -> Option<Meaning> {
    let key = match keys::key(event)? {
        Key::Resized => return Some(Meaning::Resized),
        Key::Interrupt | Key::Back => return Some(Meaning::Quit),
        Key::Char(char) | Key::Control(char) => Key::Char(char),
        key @ (Key::Up
        | Key::Down
        | Key::PageUp
        | Key::PageDown
        | Key::First
        | Key::Last
        | Key::Enter
        | Key::Next
        | Key::Previous
        | Key::Erase) => key,
    };
    if key == Key::Char('q') { Some(Meaning::Quit) } else { keys::moves(key).map(Meaning::Move) }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;

    #[test]
    fn lines_are_drawn_over_what_was_there() {
        let mut text = vec![];
        compose(&mut text, &["a".into(), "b".into()]).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "\u{1b}[1;1Ha\u{1b}[K\r\nb\u{1b}[K\u{1b}[J");
    }

    #[test]
    fn keys_have_meanings() {
        let key = |code, modifiers| meaning(&Event::Key(KeyEvent::new(code, modifiers)));
        let plain = |code| key(code, KeyModifiers::NONE);
        assert_eq!(plain(KeyCode::Char('q')), Some(Meaning::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Meaning::Quit));
        assert_eq!(plain(KeyCode::Char('c')), None);
        assert_eq!([plain(KeyCode::Down), plain(KeyCode::Char('j'))], [Some(Meaning::Move(Move::Down)); 2]);
        assert_eq!(meaning(&Event::Resize(1, 1)), Some(Meaning::Resized));
    }
}
