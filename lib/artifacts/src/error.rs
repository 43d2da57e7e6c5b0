//! Errors of downloads and uploads.

use std::io;

use schemas::action::ChecksumAlgorithm;

/// Human-readable reason why a request to a target is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(String);

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self(why)
    }
}

/// Reason why a download or upload failed. An error message contains only the host of the URL. If the URL is
/// secret, the message does not contain the host either.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is not a valid http or https URL.
    #[error("invalid URL: expected http or https")]
    InvalidUrl,
    /// The cell's rules for outgoing requests refuse the target.
    #[error("{0}")]
    NotAllowed(String),
    /// The server responded with an unexpected HTTP status.
    #[error("the server answered {0}")]
    UnexpectedStatus(u16),
    /// The redirect limit was exceeded.
    #[error("too many redirects: more than {}", crate::limits::MAX_REDIRECTS)]
    TooManyRedirects,
    /// A redirect has no usable target, or leads from https to http.
    #[error("invalid redirect: no usable location, or from https to http")]
    BadRedirect,
    /// The archive or file exceeds the size limit.
    #[error("the file is larger than {limit} bytes")]
    TooLarge {
        /// Maximum size in bytes.
        limit: u64,
    },
    /// The checksum does not match.
    #[error("{} mismatch: got {actual}, expected {expected}", algorithm_name(*algorithm))]
    Checksum {
        algorithm: ChecksumAlgorithm,
        /// Computed checksum, in lower-case hexadecimal digits.
        actual: String,
        /// Expected checksum.
        expected: String,
    },
    /// The connection failed on every attempt.
    #[error("{0}")]
    ConnectionFailed(String),
    /// The time limit for the whole transfer was exceeded.
    #[error("timed out after {:?}", crate::limits::TRANSFER_TIMEOUT)]
    TimedOut,
    /// The file changed during the upload.
    #[error("the file changed during the upload")]
    FileChanged,
    #[error("the cell is stopping")]
    Stopping,
    /// A local file operation failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

fn algorithm_name(by: ChecksumAlgorithm) -> &'static str {
    ChecksumAlgorithm::ALL.iter().find(|(_, one)| *one == by).map_or("checksum", |(name, _)| name)
}
