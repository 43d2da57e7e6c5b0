//! Limits of the journal, with their units. The limits of specs, messages, entries and services are in
//! [`schemas::limits`].

use std::time::Duration;

/// Appends that may queue for the writer of an embedded journal. Further callers wait for a free slot.
pub const QUEUED_APPENDS: usize = 4_096;
/// Maximum number of appends in one transaction of an embedded journal.
pub const GROUP_APPENDS: usize = 512;
/// Maximum number of bytes in one transaction of an embedded journal, unless a single entry is larger.
pub const GROUP_BYTES: usize = 8 * 1024 * 1024;
/// Maximum number of subjects whose last position the writer of an embedded journal caches. For other
/// subjects, the writer reads the database.
pub const CACHED_SUBJECTS: usize = 65_536;
/// Maximum number of concurrent read connections of an embedded journal.
pub const READERS: u32 = 4;
/// Entries that a follower requests from a JetStream server in one batch.
pub const PULL_ENTRIES: usize = 1_000;
/// Bytes that a follower requests from a JetStream server in one batch.
pub const PULL_BYTES: usize = 8 * 1024 * 1024;
/// Entries per page of a search in one subject.
pub const FIND_PAGE_ENTRIES: usize = 64;
/// Timeout for the acknowledgement of an append. After a timeout, the outcome of the append is unknown.
pub const ACK_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between two checks for a restored connection.
pub const RECONNECT_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Timeout of a request to the JetStream API.
pub const API_TIMEOUT: Duration = Duration::from_secs(5);
/// Heartbeat interval of a follower's consumer. After two missed heartbeats the follower creates a new
/// consumer.
pub const FOLLOW_HEARTBEAT: Duration = Duration::from_secs(3);
/// Time without an entry after which a follower compares its position with the end of the journal.
pub const FOLLOW_WATCHDOG: Duration = Duration::from_secs(5);
/// Time for which all attempts of a follower must fail before the journal is reported as unreadable. If the
/// journal refuses to deliver an entry, this is reported at once.
pub const FOLLOW_FAILURE_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of positions that a readability check samples, in addition to the first and the last position.
pub const SAMPLES: u64 = 8;
/// Time for which a replica may lag behind the stream's leader during a readability check, and the pause
/// between two attempts.
pub const SAMPLE_LAG: (Duration, Duration) = (Duration::from_secs(3), Duration::from_millis(100));
/// Maximum time for which the journal may end before a follower's position. The journal can be that short
/// after a change of the stream's leader.
pub const FOLLOW_BEHIND_TIMEOUT: Duration = Duration::from_secs(15);
/// Minimum and maximum delay before a follower retries.
pub const FOLLOW_RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Time after which the server removes a consumer without pull requests.
pub const CONSUMER_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The stream's window for duplicate message ids. Appends do not depend on this window, because an append
/// reads the stored message and compares the ids.
pub const DUPLICATE_WINDOW: Duration = Duration::from_secs(30);
/// Maximum size of a response from a server's monitoring address, in bytes.
pub const MONITOR_BYTES: usize = 1024 * 1024;
/// Timeout of a request to a server's monitoring address.
pub const MONITOR_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of import messages in flight to a JetStream server.
pub const IMPORT_ENTRIES: usize = 256;
/// Maximum number of import bytes in flight to a JetStream server, unless a single message is larger.
pub const IMPORT_BYTES: usize = 4 * 1024 * 1024;
/// Time without progress after which an import into a stream fails.
///
/// This time is longer than [`DUPLICATE_WINDOW`]. Within the window, the server drops a second message with
/// the same id. If two messages of an import have the same id, the import must wait until the window has
/// passed.
pub const IMPORT_STALL_TIMEOUT: Duration = Duration::from_secs(45);
/// Delay before a stalled import continues.
pub const IMPORT_RETRY_DELAY: Duration = Duration::from_millis(250);
