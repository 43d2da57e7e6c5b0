//! Clock and randomness: the only crate that reads the time, and the only one that draws seeds and keys.
//! Everywhere else both are inputs.

mod chance;

use std::time::{SystemTime, UNIX_EPOCH};

pub use chance::{key, seed};
use schemas::Timestamp;

/// Returns the time of the system clock, or 1970 if the clock shows an earlier time.
///
/// The result goes back when the system clock is set back. Measure durations with [`std::time::Instant`], or
/// with [`schemas::MonotonicClock`] in a state machine.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
