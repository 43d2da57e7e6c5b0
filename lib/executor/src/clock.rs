//! Wall clock of this host. It provides the timestamps of log lines, and the ages of unused images and of the
//! logs of deleted containers. No state of a container depends on it.

use std::time::{SystemTime, UNIX_EPOCH};

use schemas::Timestamp;

/// Returns the current time in the form that the file system uses.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub(crate) fn system_time() -> SystemTime {
    SystemTime::now()
}

/// Returns the current time in the form that log lines carry.
pub(crate) fn now() -> Timestamp {
    let since = system_time().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
