//! Following the journal: every entry to a machine, in order, and word when the end was reached for the first time.

use journal::Journal;
use journal::Recorded;
use schemas::subject::Position;
use tokio::sync::mpsc;

use super::ended::{Ended, Unreadable};

/// How many entries a follower takes at once.
const ENTRIES: usize = 1_000;

/// Follows the journal behind a position for as long as the machine listens. `input` makes an entry an input; none: it is
/// passed over.
///
/// # Errors
/// The journal can't be followed, or `input` said that the machine can't go on.
pub(super) async fn follow<I>(
    journal: &Journal,
    after: Position,
    inputs: &mpsc::Sender<I>,
    caught_up: I,
    mut input: impl FnMut(Recorded) -> Result<Option<I>, Unreadable>,
) -> Result<(), Ended> {
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
        for recorded in follower.next_batch(ENTRIES).await? {
            if let Some(input) = input(recorded)?
                && inputs.send(input).await.is_err()
            {
                return Ok(());
            }
        }
    }
}
