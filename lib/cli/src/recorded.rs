//! Reads the recorded log as a whole, as input for simulations. Writes nothing, and queries no BBS.

use std::time::Duration;

use cli_base::failure::Failure;
use cli_base::options::Global;
use scenario::{Message, Recording, Unusable};
use schemas::query::AsOf;

use super::journal_access::read_journal;

/// Reads all entries of the journal.
///
/// # Errors
/// The journal does not exist or cannot be read.
pub async fn read(global: &Global) -> Result<Vec<Message>, Failure> {
    Ok(explain::recorded::read(read_journal(global).await?).await?)
}

/// Folds a log up to a moment, so that a simulation can continue from there.
///
/// # Errors
/// The log ends before the moment or starts after it, or contains an entry that cannot be decoded or applied.
pub fn recording(
    messages: Vec<Message>,
    as_of: Option<AsOf>,
    mass_loss_wait: Duration,
) -> Result<Recording, Failure> {
    Ok(explain::recorded::recording(messages, as_of, mass_loss_wait)?)
}

/// Returns the failure of a command that can't continue a log.
#[must_use]
pub fn unusable_failure(unusable: Unusable) -> Failure {
    explain::Error::from(unusable).into()
}
