//! Answers to queries, compared with the answers from the reference World.

use bbs::Query;
use projections::{Observed, World};
use schemas::{Position, Refusal};

use crate::checkers::{Checkers, Notes};
use crate::invariants::Invariant as I;

impl Checkers {
    /// Checks the answer of a BBS whose World snapshot has this position.
    pub(crate) fn answered_query(
        &mut self,
        query: &Query,
        observed: &Observed,
        position: Position,
        answer: &Result<String, Refusal>,
    ) {
        let Query::Rows(query) = query else { return };
        let mut notes = Notes::default();
        // Before a BBS knows the log it refuses queries.
        let Some(world) = self.world_at(position) else { return };
        let expected = query.answer(world, observed);
        notes.check(I::QueriesTrue, *answer == expected, || {
            format!("{query:?} at {position} is answered with {answer:?}, expected {expected:?}")
        });
        let at_least = query.at_least().unwrap_or_default();
        notes.check(I::ReadsOwnWrites, position >= at_least || answer.is_err(), || {
            format!("{query:?} is answered at {position}")
        });
        self.take(notes);
    }

    /// Returns the reference World at a position.
    pub(super) fn world_at(&self, position: Position) -> Option<&World> {
        let at = usize::try_from(position.0).ok()?;
        self.worlds.get(at).map(|world| &**world)
    }
}
