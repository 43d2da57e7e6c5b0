//! The clock and chance: the one place that reads the time, and the one that draws seeds and keys. Everywhere else both are inputs.

mod chance;

use std::time::{SystemTime, UNIX_EPOCH};

pub use chance::{key, seed};
use schemas::Timestamp;

/// The time that the system's clock shows, 1970 if it shows an earlier one. It goes back when that clock is set back: measure
/// lengths of time by [`std::time::Instant`], or by [`schemas::Steady`] in a machine.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
