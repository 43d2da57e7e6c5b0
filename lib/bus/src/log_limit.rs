//! Rate limit for log lines that a remote party can cause. A few lines of each kind are logged per second.
//! Further lines are only counted.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum number of lines of one kind that are logged within [`WINDOW`].
const MAX_LINES: u32 = 5;
/// Period in which lines are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// Maximum length of text from a remote party in a log line, in bytes.
const TEXT_BYTES: usize = 300;

/// Rate limit for the log lines of one kind. Use one `static` for each place that logs.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    began: Option<Instant>,
    logged: u32,
    suppressed: u64,
}

impl LogLimit {
    /// Returns a limit that has counted nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Window { began: None, logged: 0, suppressed: 0 }))
    }

    /// Calls `log` unless five lines of this kind were logged within the last second. The number of
    /// suppressed lines is logged before the next line.
    pub fn log(&self, log: impl FnOnce()) {
        let Some(left_out) = self.admit() else { return };
        if left_out > 0 {
            tracing::warn!("suppressed {left_out} log lines like the next one");
        }
        log();
    }

    /// Counts a line. Returns the number of lines suppressed before this line. Returns `None` if this line is
    /// suppressed as well.
    fn admit(&self) -> Option<u64> {
        let mut window = self.0.lock();
        let now = Instant::now();
        if window.began.is_none_or(|began| now.duration_since(began) >= WINDOW) {
            let left_out = window.suppressed;
            *window = Window { began: Some(now), logged: 1, suppressed: 0 };
            return Some(left_out);
        }
        if window.logged < MAX_LINES {
            window.logged += 1;
            return Some(0);
        }
        window.suppressed += 1;
        None
    }
}

/// Truncates text from a remote party for a log line.
#[must_use]
pub fn truncated(text: &str) -> String {
    schemas::limits::truncate(text, TEXT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_over_the_limit_are_suppressed_and_counted() {
        let limit = LogLimit::new();
        let admitted: Vec<_> = (0..30_000).filter_map(|_| limit.admit()).collect();
        assert_eq!(admitted, [0; MAX_LINES as usize]);
        tokio::time::advance(WINDOW).await;
        assert_eq!((limit.admit(), limit.admit()), (Some(30_000 - u64::from(MAX_LINES)), Some(0)));
        assert!(truncated(&"x".repeat(3_000)).len() <= TEXT_BYTES);
    }
}
