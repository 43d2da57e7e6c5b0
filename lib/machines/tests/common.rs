//! Shared test data of the machines.

use machines::process::Process;
use machines::task::Task;
use schemas::definition::{DesiredLrp, DesiredTask, Placement, TaskDefinition};
use schemas::names::EvaluationId;
use schemas::process::{Outcome, Unplaced};
use schemas::task;

pub(crate) use fixtures::web::{container as instance, id};
pub(crate) use fixtures::{cell_id, domain, net_info, place};

/// Returns an auctioneer's report of instances that it could not place. The report names the evaluation of
/// the first instance.
pub(crate) fn outcome(process: Option<&Process>, unplaced: Vec<Unplaced>) -> Outcome {
    let of_first = unplaced
        .first()
        .zip(process)
        .and_then(|(one, process)| process.actual(&one.place).and_then(|lrp| process.evaluation_for(lrp)));
    let newest = || process.and_then(|process| process.evaluations.iter().last());
    let evaluation = of_first.or_else(newest).map_or(EvaluationId(id(0)), |one| one.id);
    Outcome { evaluation, unplaced, attempts_exhausted: false, explanation: None }
}

/// Returns an auctioneer's report of a task that it could not place.
pub(crate) fn unplaced_task(task: Option<&Task>, error: &str) -> task::Unplaced {
    let open = task.and_then(Task::open_evaluation);
    let known = open.or_else(|| task.and_then(|task| task.evaluations.iter().last()));
    let evaluation = known.map_or(EvaluationId(id(0)), |one| one.id);
    task::Unplaced { evaluation, error: error.to_owned(), attempts_exhausted: false, explanation: None }
}

/// Returns the process `web` in a domain.
pub(crate) fn lrp(domain_name: &str, instances: u32) -> DesiredLrp {
    fixtures::lrp("web", domain_name, instances)
}

/// Returns the task `job` in a domain.
pub(crate) fn task(domain_name: &str, placement: Placement) -> DesiredTask {
    fixtures::task_of("job", domain_name, TaskDefinition { placement, ..fixtures::task_definition() })
}
