//! Every limit of the client, with its unit.

use std::time::Duration;

/// How long a client keeps asking before it gives up, unless set otherwise.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long one try may take before the same question is asked again.
pub const TRY: Duration = Duration::from_secs(2);
/// The shortest and the longest wait between two tries.
pub const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(400));
/// After how long without an answer the program's log says so.
pub const SILENCE_WARNED: Duration = Duration::from_secs(2);
/// How long one read of events waits for an event to come. A BBS that is killed meanwhile is noticed only then.
pub const POLL: Duration = Duration::from_secs(3);
/// How much later the answer to such a read may come.
pub const POLL_GRACE: Duration = Duration::from_millis(1_500);
/// Events that are read at once.
pub const POLL_ENTRIES: usize = 500;
/// How long one read of a log may be followed by the next when it brought nothing.
pub const LOG_PAUSE: Duration = Duration::from_millis(300);
/// Bytes of a log that are read at once.
pub const LOG_BYTES: usize = 65_536;
/// How often a list is read anew, at most, whose position is no longer held.
pub const LISTED_ANEW: u32 = 4;
