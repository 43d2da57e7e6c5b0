//! The clock and chance: the one place that reads the time, and the one that draws seeds and keys. Everywhere else both are inputs.

mod chance;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub use chance::{key, seed};
use schemas::Timestamp;

/// The latest moment that anybody in this process was told.
static LATEST: AtomicU64 = AtomicU64::new(0);

/// The time. It never goes backwards within a process: when the system's clock is set back, time stands still until
/// the clock has caught up.
#[must_use]
pub fn now() -> Timestamp {
    let read = system();
    Timestamp(LATEST.fetch_max(read, Ordering::Relaxed).max(read))
}

/// Nanoseconds since 1970 as the system tells them; 0 if its clock stands before that.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
fn system() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::now;

    #[test]
    fn time_never_goes_backwards() {
        let threads = [0; 4].map(|_| std::thread::spawn(|| (0..10_000).map(|_| now()).collect::<Vec<_>>()));
        for thread in threads {
            assert!(thread.join().unwrap().is_sorted());
        }
        assert!(now().to_string().as_str() > "2024");
    }
}
