//! Where work stands among all that waits for a cell: by the order in which auctions take it, and not by a queue of its own.

use schemas::actual::Actual;
use schemas::process::{Process, Slot};
use schemas::query::{EvaluationRow, EvaluationSubject, Turn};
use schemas::rank::Rank;

use crate::world::World;

/// The turn of what an evaluation stands for; none: nothing of it waits for a cell.
pub(super) fn of_evaluation(world: &World, row: &EvaluationRow) -> Option<Turn> {
    let first = first_of(world, row)?;
    let mut turn = Turn { before: 0, waiting: 0 };
    for rank in waiting(world) {
        turn.waiting += 1;
        turn.before += u32::from(rank < first);
    }
    Some(turn)
}

/// All that waits for a cell. Those who answer queries have no index of it: whatever has none that waits is passed over.
fn waiting(world: &World) -> impl Iterator<Item = Rank> {
    let processes = world.processes_from(None).filter(|process| process.unclaimed > 0);
    let places = processes.flat_map(|process| process.slots.iter().map(move |slot| (process, &slot.place)));
    let of_processes = places.filter_map(|(process, place)| Rank::of_place(process, place));
    of_processes.chain(world.tasks_from(None).filter_map(Rank::of_task))
}

/// What of it has its turn first.
fn first_of(world: &World, row: &EvaluationRow) -> Option<Rank> {
    let id = row.evaluation.id;
    match &row.subject {
        EvaluationSubject::Process(guid) => first_of_process(world.process(guid)?, row),
        EvaluationSubject::Task(guid) => {
            let task = world.task(guid)?;
            task.open_evaluation().filter(|open| open.id == id).and_then(|_| Rank::of_task(task))
        }
    }
}

fn first_of_process(process: &Process, row: &EvaluationRow) -> Option<Rank> {
    let duty = row.evaluation.duty()?;
    process.open_evaluation(duty).filter(|open| open.id == row.evaluation.id)?;
    let waits = |slot: &&Slot| slot.actual.as_ref().and_then(Actual::duty) == Some(duty);
    let waiting = process.slots.iter().filter(waits);
    waiting.filter_map(|slot| Rank::of_place(process, &slot.place)).min()
}
