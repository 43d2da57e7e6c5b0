//! Waiting for conditions.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Interval between polls of a condition.
pub const POLL_INTERVAL: Duration = Duration::from_millis(30);

/// Polls until `look` succeeds, at most for `limit`.
///
/// # Panics
/// Panics with the last error of `look` if `look` does not succeed in time.
pub fn wait_within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + limit;
    loop {
        match look() {
            Ok(found) => return found,
            Err(why) if Instant::now() >= end => panic!("{what}: not within {limit:?}: {why}"),
            Err(_) => sleep(POLL_INTERVAL),
        }
    }
}

/// Checks a condition, for use in [`wait_within`].
///
/// # Errors
/// Returns the text of `otherwise` if the condition does not hold.
pub fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
