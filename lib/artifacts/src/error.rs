//! Why something could not be fetched or sent.

use std::io;

use schemas::action::ChecksumAlgorithm;

/// Why a request may not go somewhere, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(String);

impl From<String> for Refused {
    fn from(why: String) -> Self {
        Self(why)
    }
}

/// Why something could not be fetched or sent. Nothing of a URL is in it but, unless that is secret, its host.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is no URL of http or https.
    #[error("the URL is none of http or https")]
    NoUrl,
    /// Requests may not go there.
    #[error("{0}")]
    NotAllowed(String),
    /// The server said something else than what was asked for.
    #[error("the server answered {0}")]
    Answered(u16),
    /// It was sent on and on.
    #[error("was redirected more than {} times", crate::limits::REDIRECTS)]
    Redirected,
    /// It was sent on to what can't be followed.
    #[error("was redirected to nowhere, or from https to http")]
    BadRedirect,
    /// It is too large.
    #[error("is larger than {limit} bytes")]
    TooLarge {
        /// How many bytes it may have.
        limit: u64,
    },
    /// It is not what it ought to be.
    #[error("its {} is {found}, and ought to be {wanted}", name(*by))]
    Checksum {
        /// By which algorithm.
        by: ChecksumAlgorithm,
        /// What it is.
        found: String,
        /// What it ought to be.
        wanted: String,
    },
    /// The connection failed, again and again.
    #[error("{0}")]
    Broken(String),
    /// It took too long.
    #[error("took longer than {:?}", crate::limits::TOTAL)]
    TooLong,
    /// The file changed while it was sent.
    #[error("the file changed while it was sent")]
    Changed,
    /// The cell is stopping.
    #[error("the cell is stopping")]
    Stopping,
    /// The disk failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

fn name(by: ChecksumAlgorithm) -> &'static str {
    ChecksumAlgorithm::ALL.iter().find(|(_, one)| *one == by).map_or("checksum", |(name, _)| name)
}
