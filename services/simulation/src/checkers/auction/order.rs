//! Whose turn it is: what of the log's work waits, and comes before what was placed.

use std::cmp::Reverse;

use projections::{WorkRef, World};
use schemas::Timestamp;
use schemas::evaluation::Evaluation;
use schemas::names::CellId;
use schemas::priority::Priority;
use schemas::resources::{Constraint, Resources};

use super::known::Known;
use crate::checkers::peace;
use crate::checkers::placing::turn_of;
use crate::racks;

/// When work has its turn: smaller goes first. By priority, then index 0, tasks, index 1 and so on; large before small; old
/// before new.
pub(super) type Turn = (Reverse<Priority>, u32, Reverse<u64>, Timestamp, WorkRef);

/// The turn of work that waits since then.
pub(super) fn turn(world: &World, work: WorkRef, size: Resources, since: Timestamp) -> Turn {
    (Reverse(peace::priority(world, &work)), turn_of(&work), Reverse(size.memory_mb), since, work)
}

/// Work that its auctioneer can place now, for all it knows.
pub(super) struct Waiting<'a> {
    pub(super) turn: Turn,
    pub(super) constraint: &'a Constraint,
    pub(super) size: Resources,
    /// The only cell that may take it.
    pub(super) only: Option<&'a CellId>,
}

/// What waits in a World, in order. Left out is what is not surely in the auction: what a cell has been given, what waits for
/// a later delivery, what reps may have refused too often, and what may be where others of its own are not.
pub(super) fn waiting<'a>(world: &'a World, known: &Known) -> Vec<Waiting<'a>> {
    let of_work = |work: &WorkRef| {
        let (constraint, size, _) = peace::demands(world, work)?;
        let (since, evaluation) = attempt(world, work)?;
        let later = evaluation.is_some_and(|one| one.wait.until().is_some());
        let held_back = later || known.may_be_put_off(work);
        let in_auction = !held_back && !racks::is_limited(constraint) && !known.was_given(work, since);
        let only = peace::only_cell(world, work);
        in_auction.then(|| Waiting { turn: turn(world, work.clone(), size, since), constraint, size, only })
    };
    let mut all: Vec<Waiting<'_>> = world.pending_work().filter_map(of_work).collect();
    all.sort_by(|a, b| a.turn.cmp(&b.turn));
    all
}

/// When work began to wait, and the evaluation whose duty it is.
fn attempt(world: &World, work: &WorkRef) -> Option<(Timestamp, Option<Evaluation>)> {
    match work {
        WorkRef::Lrp(key) => {
            let process = world.process(&key.process_guid)?;
            let lrp = process.actual(&key.place)?;
            Some((lrp.since, process.evaluation_for(lrp)))
        }
        WorkRef::Task(guid) => world.task(guid).map(|task| (task.epoch.0, task.open_evaluation())),
    }
}
