//! Errors, as text for the reader of the report.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Interval between polls of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Error, as text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failed(pub String);

/// Result that fails with [`Failed`].
pub type Result<T> = std::result::Result<T, Failed>;

impl Failed {
    /// Creates an error with this text.
    #[must_use]
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// Returns a function that adds the name of the failed operation to an error.
    pub fn context<E: Display>(what: impl Display) -> impl FnOnce(E) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

/// Polls until `look` succeeds, at most for `limit`.
///
/// # Errors
/// Returns the last error of `look` if it does not succeed in time.
pub async fn poll_until<T>(
    limit: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        match look().await {
            Ok(found) => return Ok(found),
            Err(why) if Instant::now() >= end => {
                return Err(Failed(format!("{what}: not within {limit:?}: {why}")));
            }
            Err(_) => sleep(POLL_INTERVAL).await,
        }
    }
}

/// Checks a condition.
///
/// # Errors
/// Returns an error with the text of `otherwise` if the condition does not hold.
pub fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Failed(otherwise())) }
}
