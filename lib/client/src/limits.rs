//! Limits of the client.

use std::time::Duration;

/// Default of the total timeout of a request.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(10);
/// Timeout of one attempt, after which the same request is sent again.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum and maximum delay between two attempts.
pub const RETRY_DELAY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(400));
/// Time without an answer after which a warning is logged.
pub const SILENCE_WARNING: Duration = Duration::from_secs(2);
/// Time that one read of events waits for an event. The client notices a BBS that is killed during the read
/// only after this time.
pub const POLL_WAIT: Duration = Duration::from_secs(3);
/// Additional time for the answer to a read of events.
pub const POLL_GRACE: Duration = Duration::from_millis(1_500);
/// Maximum number of entries per read.
pub const POLL_ENTRIES: usize = 500;
/// Delay before the next read of a log if the last one returned nothing.
pub const LOG_POLL_INTERVAL: Duration = Duration::from_millis(300);
/// Maximum number of bytes per read of a log.
pub const LOG_BYTES: usize = 65_536;
/// Maximum number of attempts to read a list. An attempt fails if its position expires before the last page
/// is read.
pub const LIST_ATTEMPTS: u32 = 4;
