//! Constructors of test values.

use std::sync::Arc;

use schemas::Timestamp;
use schemas::container::{Container, ContainerState, Epoch, RunResult, WorkKey};
use schemas::definition::{Definition, TaskDefinition};
use schemas::isolation::Isolation;
use schemas::message::{Perform, PerformId, Work, WorkDefinition};
use schemas::names::{Domain, Incarnation, InstanceGuid, Stack};
use schemas::resources::Resources;

use rep::{Effect, Input, Rep, Settings};

pub(crate) use fixtures::{cell_id, net_info, process_guid, task_guid};

pub(crate) fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

/// Processes an input of a rep, prepares all its containers successfully, and returns the remaining effects.
pub(crate) fn step_prepared(rep: &mut Rep, now: Timestamp, input: Input) -> Vec<Effect> {
    let mut done = vec![];
    for effect in rep.step(now, input) {
        if let Effect::Prepare(recipes) = effect {
            let ready = recipes.into_iter().map(|recipe| (recipe.instance_guid, Ok(()))).collect();
            done.extend(rep.step(now, Input::Prepared(ready)));
        } else {
            done.push(effect);
        }
    }
    done
}

pub(crate) fn domain() -> Domain {
    fixtures::domain("shop")
}

pub(crate) fn incarnation() -> Incarnation {
    Incarnation(uuid::Uuid::from_u64_pair(7, 7))
}

pub(crate) fn guid(number: u64) -> InstanceGuid {
    fixtures::names::instance_guid(number)
}

/// Returns the settings of a cell with enough resources for ten containers of 100 MiB.
pub(crate) fn settings() -> Settings {
    let total = Resources { memory_mb: 1_000, disk_mb: 10_000, containers: 20, ports: 20 };
    Settings::new(
        cell_id("c1"),
        schemas::names::FolderId(uuid::Uuid::nil()),
        "z1".parse().unwrap(),
        Stack::new("linux").unwrap(),
        total,
    )
}

pub(crate) fn definition() -> Definition {
    Definition { start_timeout_ms: 60_000, memory_mb: 100, disk_mb: 100, ..fixtures::definition() }
}

pub(crate) fn task_definition() -> TaskDefinition {
    TaskDefinition {
        memory_mb: 100,
        disk_mb: 100,
        result_file: "result".into(),
        ..fixtures::task_definition()
    }
}

pub(crate) fn lrp_key(process: &str, index: u32, epoch: Timestamp) -> WorkKey {
    WorkKey::Lrp { key: fixtures::lrp_key(process, index), epoch: Epoch(epoch) }
}

pub(crate) fn task_key(task: &str, epoch: Timestamp) -> WorkKey {
    WorkKey::Task { task_guid: task_guid(task), epoch: Epoch(epoch) }
}

pub(crate) fn lrp_work(key: WorkKey, attempt: Timestamp) -> Work {
    let definition = WorkDefinition::Lrp(Arc::new(definition()));
    Work { key, attempt, domain: domain(), definition, placement: None }
}

pub(crate) fn task_work(key: WorkKey, attempt: Timestamp) -> Work {
    let definition = WorkDefinition::Task(Arc::new(task_definition()));
    Work { key, attempt, domain: domain(), definition, placement: None }
}

pub(crate) fn perform(number: u64, work: Vec<Work>) -> Perform {
    Perform { id: PerformId { term: 1, number }, work }
}

pub(crate) fn container(guid: InstanceGuid, work: WorkKey, state: ContainerState) -> Container {
    let resources = Resources::for_container(100, 100, 0);
    Container {
        instance_guid: guid,
        work,
        domain: domain(),
        resources,
        admitted_at: schemas::Position(0),
        isolation: Isolation::NONE,
        state,
    }
}

pub(crate) fn failed(reason: &str) -> ContainerState {
    ContainerState::Completed(RunResult::Failed { reason: reason.into(), exit_status: None })
}

pub(crate) fn succeeded(result: &str) -> ContainerState {
    ContainerState::Completed(RunResult::Succeeded { result: result.into() })
}

pub(crate) const STOPPED: ContainerState = ContainerState::Completed(RunResult::Stopped);

/// Returns `true` if a text contains no values in debug format, so that operators can read it.
pub(crate) fn is_readable(text: &str) -> bool {
    let marks = ['{', '}', '[', ']'];
    let call = |word: &str| word.split_once('(').is_some_and(|(name, _)| !name.is_empty());
    !text.contains(marks) && !text.split_whitespace().any(|word| word == "None" || call(word))
}
