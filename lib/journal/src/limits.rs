//! Every limit of the journal, with its unit. The limits of the language are in [`schemas::limits`].

use std::time::Duration;

/// Appends that may queue for the writer of an embedded journal. More wait for a place.
pub const QUEUED_APPENDS: usize = 4_096;
/// Most appends in one transaction of an embedded journal.
pub const GROUP_APPENDS: usize = 512;
/// Most bytes in one transaction of an embedded journal, unless one entry alone is larger.
pub const GROUP_BYTES: usize = 8 * 1024 * 1024;
/// Subjects whose last entry the writer of an embedded journal remembers. Others are read again.
pub const REMEMBERED_SUBJECTS: usize = 65_536;
/// Connections that read an embedded journal at once.
pub const READERS: u32 = 4;
/// Entries that a follower asks a JetStream server for at once.
pub const PULL_ENTRIES: usize = 1_000;
/// Bytes that a follower asks a JetStream server for at once.
pub const PULL_BYTES: usize = 8 * 1024 * 1024;
/// Entries of a subject that are read at once where one of them is looked for.
pub const FIND_ENTRIES: usize = 64;
/// How long one append waits for its acknowledgement before its outcome is unknown.
pub const ACK: Duration = Duration::from_secs(2);
/// Pause between two looks whether a lost connection is there again.
pub const RECONNECT: Duration = Duration::from_millis(50);
/// How long a question to the JetStream API may take.
pub const API: Duration = Duration::from_secs(5);
/// How often a server says that a follower's consumer is alive. Two missed, and the follower starts a new one.
pub const FOLLOW_HEARTBEAT: Duration = Duration::from_secs(3);
/// After how long without an entry a follower compares its position with the end of the journal.
pub const FOLLOW_WATCHDOG: Duration = Duration::from_secs(5);
/// How long every attempt of a follower may fail before the journal is reported as unreadable. A journal that refuses to
/// deliver an entry is reported at once.
pub const FOLLOW_FAILING: Duration = Duration::from_secs(5);
/// Positions between the first and the last that a check of the journal reads.
pub const SAMPLES: u64 = 8;
/// How long a replica may lag behind the stream's leader while a check of the journal reads from it, and the pause between
/// two attempts.
pub const SAMPLE_LAG: (Duration, Duration) = (Duration::from_secs(3), Duration::from_millis(100));
/// How long the journal may end before a follower's position, as after a change of the stream's leader.
pub const FOLLOW_BEHIND: Duration = Duration::from_secs(15);
/// Shortest and longest wait of a follower before it tries to reach the journal again.
pub const FOLLOW_RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// How long the server keeps a consumer that nobody pulls from.
pub const CONSUMER_IDLE: Duration = Duration::from_secs(60);
/// The stream's window for recognising a message id again. Append doesn't need it: it reads and compares.
pub const DUPLICATE_WINDOW: Duration = Duration::from_secs(30);
/// Largest answer that is read from a server's monitoring address, in bytes.
pub const MONITOR_BYTES: usize = 1024 * 1024;
/// How long a server's monitoring address may take to answer.
pub const MONITOR: Duration = Duration::from_secs(3);
/// Messages of an import that are on their way to a JetStream server at once.
pub const IMPORT_ENTRIES: usize = 256;
/// Bytes of an import that are on their way to a JetStream server at once, unless one message alone is larger.
pub const IMPORT_BYTES: usize = 4 * 1024 * 1024;
/// How long an import into a stream may stand still. Longer than [`DUPLICATE_WINDOW`]: a message that stands twice in the
/// journal is taken for the same one until that is over.
pub const IMPORT_STALL: Duration = Duration::from_secs(45);
/// The pause before an import that stood still goes on.
pub const IMPORT_AGAIN: Duration = Duration::from_millis(250);
