//! Log lines that a remote party can cause: few of each kind in a second, and the rest counted.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lines of one kind that are logged within [`WINDOW`].
const LINES: u32 = 5;
/// The time in which lines are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// Longest text from a remote party in a log line, in bytes.
const TEXT_BYTES: usize = 300;

/// Limits the log lines of one kind. Make one `static` for each place that logs.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    began: Option<Instant>,
    logged: u32,
    left_out: u64,
}

impl LogLimit {
    /// Returns a limit that has counted nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Window { began: None, logged: 0, left_out: 0 }))
    }

    /// Calls `log` unless five lines of this kind were logged within the last second. The next line that is logged comes
    /// with the number of those that were not.
    pub fn log(&self, log: impl FnOnce()) {
        let Some(left_out) = self.admit() else { return };
        if left_out > 0 {
            tracing::warn!("{left_out} more lines like the next one were left out");
        }
        log();
    }

    /// Counts a line. Returns the number of lines that were left out before it, or `None` if it is left out as well.
    fn admit(&self) -> Option<u64> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if window.began.is_none_or(|began| now.duration_since(began) >= WINDOW) {
            let left_out = window.left_out;
            *window = Window { began: Some(now), logged: 1, left_out: 0 };
            return Some(left_out);
        }
        if window.logged < LINES {
            window.logged += 1;
            return Some(0);
        }
        window.left_out += 1;
        None
    }
}

/// Cuts text from a remote party for a log line.
#[must_use]
pub fn brief(text: &str) -> String {
    schemas::limits::cut(text, TEXT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_beyond_the_limit_are_counted_until_the_next_second() {
        let limit = LogLimit::new();
        let admitted: Vec<_> = (0..30_000).filter_map(|_| limit.admit()).collect();
        assert_eq!(admitted, [0; LINES as usize]);
        tokio::time::advance(WINDOW).await;
        assert_eq!((limit.admit(), limit.admit()), (Some(30_000 - u64::from(LINES)), Some(0)));
        assert!(brief(&"x".repeat(3_000)).len() <= TEXT_BYTES);
    }
}
