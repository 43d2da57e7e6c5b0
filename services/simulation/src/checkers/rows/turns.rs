//! Whose turn it is among what waits for a cell, as rows show it.

use std::cmp::Reverse;

use schemas::evaluation::Wait;
use schemas::names::{DefinitionId, ProcessGuid, TaskGuid};
use schemas::priority::Priority;
use schemas::query::{
    EvaluationRow, EvaluationState, EvaluationSubject, InstanceState, QueuePosition, TaskState,
};
use schemas::{Place, Timestamp};

use super::evaluated::is_open;
use super::facts::{Facts, Process};

/// Smaller goes first: the urgent, index 0, tasks, index 1 and so on, the large, the old; and the rest so that the order is one.
type Key = (Reverse<Priority>, u32, Reverse<u64>, Timestamp, Name);

/// An instance, or a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Lrp(ProcessGuid, u32, DefinitionId),
    Task(TaskGuid),
}

/// Where the first of an evaluation stands; none: nothing of it waits for a cell.
pub(super) fn of(facts: &Facts, row: &EvaluationRow) -> Option<QueuePosition> {
    let processes = facts.processes.iter();
    let lrps = processes.flat_map(|(guid, process)| waiting(guid, process).map(|(key, _)| key));
    let all: Vec<Key> = lrps.chain(facts.tasks.keys().filter_map(|guid| waiting_task(facts, guid))).collect();
    let open = is_open(&row.evaluation);
    let first = match &row.subject {
        EvaluationSubject::Process(guid) => {
            let of_it = |failed: bool| {
                let blocked = row.state == EvaluationState::Blocked;
                let restarts = matches!(row.evaluation.wait, Wait::Restart(_));
                open && blocked == failed && (blocked || !restarts)
            };
            let own = waiting(guid, facts.processes.get(guid)?);
            own.filter(|(_, failed)| of_it(*failed)).map(|(key, _)| key).min()
        }
        EvaluationSubject::Task(guid) => waiting_task(facts, guid).filter(|_| open),
    }?;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let before = all.iter().filter(|key| **key < first).count();
    Some(QueuePosition { before: count(before), waiting: count(all.len()) })
}

/// What of a process waits for a cell, and whether it has found none before.
fn waiting<'a>(guid: &'a ProcessGuid, process: &'a Process) -> impl Iterator<Item = (Key, bool)> + 'a {
    process.lrps.iter().filter_map(move |(place, lrp)| {
        let desired = process.desired.as_ref().filter(|_| lrp.state == InstanceState::Unclaimed)?;
        let (_, definition) = process.definitions.iter().find(|(id, _)| *id == place.definition_id)?;
        let Place { index, definition_id } = place.clone();
        let turn = if index == 0 { 0 } else { index + 1 };
        let name = Name::Lrp(guid.clone(), index, definition_id);
        let key = (Reverse(desired.priority), turn, Reverse(definition.memory_mb), lrp.since, name);
        Some((key, lrp.error.is_some()))
    })
}

fn waiting_task(facts: &Facts, guid: &TaskGuid) -> Option<Key> {
    let task = facts.tasks.get(guid).filter(|task| task.state == Some(TaskState::Pending))?;
    let definition = &task.definition;
    let memory = Reverse(definition.memory_mb);
    Some((Reverse(definition.priority), 1, memory, task.epoch.0, Name::Task(guid.clone())))
}
