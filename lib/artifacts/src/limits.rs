//! Limits of downloads and uploads.

use std::time::Duration;

/// Default number of concurrent downloads and uploads of a cell, as in Diego. Further transfers wait.
pub const DEFAULT_MAX_CONCURRENT: usize = 5;
/// Default size of a cell's cache, in bytes: 10 GiB, as in Diego.
pub const DEFAULT_CACHE_BYTES: u64 = 10 * 1024 * 1024 * 1024;
/// Default maximum size of a downloaded archive and of an uploaded file, in bytes: 8 GiB.
pub const DEFAULT_ARTIFACT_BYTES: u64 = 8 * 1024 * 1024 * 1024;
/// Time limit of a download or upload, including its time in the queue and all attempts.
pub const TRANSFER_TIMEOUT: Duration = Duration::from_mins(30);
/// Number of consecutive failures after which a transfer fails. The count restarts at zero when a download
/// receives bytes.
pub const MAX_ATTEMPTS: usize = 4;
/// Maximum number of redirects that one attempt follows.
pub const MAX_REDIRECTS: usize = 5;
/// Time limit for establishing a connection.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time without data from the server during a response.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Backoff between attempts: the first delay and the longest one.
pub(crate) const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// Size of the buffer for reading a file, in bytes.
pub(crate) const CHUNK_BYTES: usize = 256 * 1024;
