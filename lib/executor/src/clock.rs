//! The wall clock of this host: it says when a line was written, and how long the log of an ended container is kept, or an
//! image that none uses. No state of a container depends on it.

use std::time::{SystemTime, UNIX_EPOCH};

use schemas::Timestamp;

/// The time, as the file system has it.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// The time, as log lines carry it.
pub(crate) fn now() -> Timestamp {
    let since = wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
