//! Waiting for what comes to be.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often is looked whether something has come to be.
pub const LOOK: Duration = Duration::from_millis(30);

/// Waits until there is something, as long as `limit`.
///
/// # Panics
/// There isn't, with the last reason why not.
pub fn within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + limit;
    loop {
        match look() {
            Ok(found) => return found,
            Err(why) if Instant::now() >= end => panic!("{what}: not within {limit:?}: {why}"),
            Err(_) => sleep(LOOK),
        }
    }
}

/// Whether something is so, as [`within`] wants it.
///
/// # Errors
/// It isn't: `otherwise` says what is.
pub fn so(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
