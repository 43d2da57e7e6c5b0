//! Every limit of what is fetched and sent.

use std::time::Duration;

/// Downloads and uploads of a cell that go on at once, unless the settings say otherwise; others wait. As in Diego.
pub const AT_ONCE: usize = 5;
/// Bytes of archives that a cell keeps, unless the settings say otherwise: 10 GiB, as in Diego.
pub const CACHE_BYTES: u64 = 10 * 1024 * 1024 * 1024;
/// Bytes of the largest archive that is fetched and of the largest file that is sent, unless the settings say otherwise: 8 GiB.
pub const ARTIFACT_BYTES: u64 = 8 * 1024 * 1024 * 1024;
/// How long a download or an upload may take, with all attempts.
pub const TOTAL: Duration = Duration::from_mins(30);
/// How often in a row a download may fail before a byte came, and an upload at all.
pub const ATTEMPTS: usize = 4;
/// Redirects that one attempt follows.
pub const REDIRECTS: usize = 5;
/// How long a connection may take to be made.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);
/// How long a server may be silent in the middle of an answer.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);
/// The pause before the second attempt, and the longest one.
pub(crate) const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// Bytes that are read from a file at once.
pub(crate) const PIECE_BYTES: usize = 256 * 1024;
