//! Errors of downloads and uploads.

use std::io;

use schemas::action::ChecksumAlgorithm;

/// Human-readable reason why a request to a target is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(String);

impl From<String> for Refused {
    fn from(why: String) -> Self {
        Self(why)
    }
}

/// Reason why a download or upload failed. Messages contain no part of the URL except its host, and not even
/// the host if the URL is secret.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is not a valid http or https URL.
    #[error("the URL is none of http or https")]
    NoUrl,
    /// The cell's rules for outgoing requests refuse the target.
    #[error("{0}")]
    NotAllowed(String),
    /// The server responded with an unexpected HTTP status.
    #[error("the server answered {0}")]
    Answered(u16),
    /// The redirect limit was exceeded.
    #[error("was redirected more than {} times", crate::limits::REDIRECTS)]
    Redirected,
    /// A redirect without a usable target, or from https to http.
    #[error("was redirected to nowhere, or from https to http")]
    BadRedirect,
    /// The archive or file exceeds the size limit.
    #[error("is larger than {limit} bytes")]
    TooLarge {
        /// Maximum size in bytes.
        limit: u64,
    },
    /// The checksum does not match.
    #[error("its {} is {found}, and ought to be {wanted}", name(*by))]
    Checksum {
        by: ChecksumAlgorithm,
        /// Computed checksum, in lower-case hexadecimal digits.
        found: String,
        /// Expected checksum.
        wanted: String,
    },
    /// The connection failed on every attempt.
    #[error("{0}")]
    Broken(String),
    /// The time limit for the whole transfer was exceeded.
    #[error("took longer than {:?}", crate::limits::TOTAL)]
    TooLong,
    /// The file changed during the upload.
    #[error("the file changed while it was sent")]
    Changed,
    #[error("the cell is stopping")]
    Stopping,
    /// A local file operation failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

fn name(by: ChecksumAlgorithm) -> &'static str {
    ChecksumAlgorithm::ALL.iter().find(|(_, one)| *one == by).map_or("checksum", |(name, _)| name)
}
