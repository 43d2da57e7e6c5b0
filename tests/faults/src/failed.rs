//! What went wrong, in words for whoever reads the report.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How often is looked whether something has come to be.
const LOOK: Duration = Duration::from_millis(50);

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failed(pub String);

/// What something comes to, unless it fails.
pub type Result<T> = std::result::Result<T, Failed>;

impl Failed {
    /// That this is wrong.
    #[must_use]
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// What was being done when something went wrong.
    pub fn at<E: Display>(what: impl Display) -> impl FnOnce(E) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

/// Waits until there is something, as long as `limit`; fails with the last reason why there isn't.
///
/// # Errors
/// It didn't come to be.
pub async fn until<T>(limit: Duration, what: &str, mut look: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        match look().await {
            Ok(found) => return Ok(found),
            Err(why) if Instant::now() >= end => {
                return Err(Failed(format!("{what}: not within {limit:?}: {why}")));
            }
            Err(_) => sleep(LOOK).await,
        }
    }
}

/// That something is so.
///
/// # Errors
/// It isn't: `otherwise` says what is.
pub fn so(holds: bool, otherwise: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Failed(otherwise())) }
}
