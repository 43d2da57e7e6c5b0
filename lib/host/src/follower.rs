//! Follows the journal: passes every entry to a state machine, in order, and reports when the end of the
//! journal is reached for the first time.

use journal::{Journal, StoredEntry};
use schemas::subject::Position;
use tokio::sync::mpsc;

use super::run_error::{RunError, UnreadableEntry};

/// Maximum number of entries per read.
const BATCH_LEN: usize = 1_000;

/// Follows the journal after a position until the machine ends. `input` converts an entry to an input of the
/// machine. If `input` returns `None`, the entry is skipped.
///
/// # Errors
/// The journal cannot be followed, or `input` returns an error.
pub(super) async fn follow<I>(
    journal: &Journal,
    after: Position,
    inputs: &mpsc::Sender<I>,
    caught_up: I,
    mut input: impl FnMut(StoredEntry) -> Result<Option<I>, UnreadableEntry>,
) -> Result<(), RunError> {
    let end = journal.end().await?;
    let mut follower = journal.follow(after);
    let mut caught_up = Some(caught_up);
    loop {
        if follower.position() >= end
            && let Some(caught_up) = caught_up.take()
            && inputs.send(caught_up).await.is_err()
        {
            return Ok(());
        }
        for recorded in follower.next_batch(BATCH_LEN).await? {
            if let Some(input) = input(recorded)?
                && inputs.send(input).await.is_err()
            {
                return Ok(());
            }
        }
    }
}
