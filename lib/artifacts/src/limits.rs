//! Limits of downloads and uploads.

use std::time::Duration;

/// Default number of concurrent downloads and uploads of a cell, as in Diego. Further ones wait.
pub const AT_ONCE: usize = 5;
/// Default size of a cell's cache, in bytes: 10 GiB, as in Diego.
pub const CACHE_BYTES: u64 = 10 * 1024 * 1024 * 1024;
/// Default maximum size of a downloaded archive and of an uploaded file, in bytes: 8 GiB.
pub const ARTIFACT_BYTES: u64 = 8 * 1024 * 1024 * 1024;
/// Time limit of a download or upload, including its time in the queue and all attempts.
pub const TOTAL: Duration = Duration::from_mins(30);
/// Number of consecutive failures after which a transfer fails. A download that received bytes counts from
/// zero again.
pub const ATTEMPTS: usize = 4;
/// Maximum number of redirects that one attempt follows.
pub const REDIRECTS: usize = 5;
/// Time limit for establishing a connection.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);
/// Maximum time without data from the server during a response.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);
/// Backoff between attempts: the first delay and the longest one.
pub(crate) const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// Size of the buffer for reading a file, in bytes.
pub(crate) const PIECE_BYTES: usize = 256 * 1024;
