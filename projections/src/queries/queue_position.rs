//! Queue position of work that waits for a cell. No queue is stored, so the position is computed from the
//! order in which auctions place work.

use machines::actual::Actual;
use machines::process::{Process, Slot};
use machines::rank::Rank;
use schemas::query::{EvaluationRow, EvaluationSubject, QueuePosition};

use crate::world::World;

/// Returns the queue position of an evaluation's work, or `None` if no part of this work waits for a cell.
pub(super) fn of_evaluation(world: &World, row: &EvaluationRow) -> Option<QueuePosition> {
    let first = min_rank(world, row)?;
    let mut turn = QueuePosition { before: 0, waiting: 0 };
    for rank in waiting_ranks(world) {
        turn.waiting += 1;
        turn.before += u32::from(rank < first);
    }
    Some(turn)
}

/// Returns the ranks of all work that waits for a cell. Snapshots of the World (the state folded from the
/// log) have no index of waiting work. This function therefore scans all tasks, and the processes with
/// UNCLAIMED instances.
fn waiting_ranks(world: &World) -> impl Iterator<Item = Rank> {
    let processes = world.processes_from(None).filter(|process| process.unclaimed > 0);
    let places = processes.flat_map(|process| process.slots.iter().map(move |slot| (process, &slot.place)));
    let of_processes = places.filter_map(|(process, place)| Rank::for_instance(process, place));
    of_processes.chain(world.tasks_from(None).filter_map(Rank::for_task))
}

/// Returns the smallest rank of the evaluation's work.
fn min_rank(world: &World, row: &EvaluationRow) -> Option<Rank> {
    let id = row.evaluation.id;
    match &row.subject {
        EvaluationSubject::Process(guid) => min_process_rank(world.process(guid)?, row),
        EvaluationSubject::Task(guid) => {
            let task = world.task(guid)?;
            task.open_evaluation().filter(|open| open.id == id).and_then(|_| Rank::for_task(task))
        }
    }
}

fn min_process_rank(process: &Process, row: &EvaluationRow) -> Option<Rank> {
    let duty = row.evaluation.duty()?;
    process.open_evaluation(duty).filter(|open| open.id == row.evaluation.id)?;
    let waits = |slot: &&Slot| slot.actual.as_ref().and_then(Actual::duty) == Some(duty);
    let waiting = process.slots.iter().filter(waits);
    waiting.filter_map(|slot| Rank::for_instance(process, &slot.place)).min()
}
