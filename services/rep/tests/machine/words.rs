//! Words that the stories use.

use std::sync::Arc;

use schemas::Timestamp;
use schemas::action::{Action, Run};
use schemas::container::{Container, ContainerState, Epoch, NetInfo, RunResult, WorkKey};
use schemas::definition::{Definition, Placement, TaskDefinition};
use schemas::message::{Order, Perform, PerformId, Work};
use schemas::names::{CellId, DefinitionId, Domain, Incarnation, InstanceGuid, ProcessGuid, Stack, TaskGuid};
use schemas::resources::{Constraint, Resources};

use rep::Settings;

pub(crate) fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

pub(crate) fn cell_id(name: &str) -> CellId {
    CellId::new(name).unwrap()
}

pub(crate) fn process_guid(name: &str) -> ProcessGuid {
    ProcessGuid::new(name).unwrap()
}

pub(crate) fn task_guid(name: &str) -> TaskGuid {
    TaskGuid::new(name).unwrap()
}

pub(crate) fn domain() -> Domain {
    Domain::new("shop").unwrap()
}

pub(crate) fn incarnation() -> Incarnation {
    Incarnation(uuid::Uuid::from_u64_pair(7, 7))
}

pub(crate) fn guid(number: u64) -> InstanceGuid {
    InstanceGuid(uuid::Uuid::from_u64_pair(1, number))
}

/// A cell with room for ten containers of 100 MiB.
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
    Definition {
        constraint: Constraint::default(),
        environment_variables: vec![],
        setup: None,
        action: Action::Run(Run { path: "serve".into(), ..Run::default() }),
        monitor: None,
        start_timeout_ms: 60_000,
        memory_mb: 100,
        disk_mb: 100,
        cpu_weight: 0,
        ports: vec![8080],
        grace_period_ms: 10_000,
    }
}

pub(crate) fn task_definition() -> TaskDefinition {
    TaskDefinition {
        constraint: Constraint::default(),
        environment_variables: vec![],
        action: Action::Run(Run { path: "count".into(), ..Run::default() }),
        memory_mb: 100,
        disk_mb: 100,
        cpu_weight: 0,
        result_file: "result".into(),
        completion_callback_url: None,
        annotation: String::new(),
        placement: Placement::Fail,
        grace_period_ms: 10_000,
    }
}

pub(crate) fn lrp_key(process: &str, index: u32, epoch: Timestamp) -> WorkKey {
    WorkKey::Lrp {
        process_guid: process_guid(process),
        index,
        definition_id: DefinitionId::new(process).unwrap(),
        epoch: Epoch(epoch),
    }
}

pub(crate) fn task_key(task: &str, epoch: Timestamp) -> WorkKey {
    WorkKey::Task { task_guid: task_guid(task), epoch: Epoch(epoch) }
}

pub(crate) fn lrp_work(key: WorkKey, attempt: Timestamp) -> Work {
    let order = Order::Lrp(Arc::new(definition()));
    Work { key, attempt, domain: domain(), order, placement: None }
}

pub(crate) fn task_work(key: WorkKey, attempt: Timestamp) -> Work {
    let order = Order::Task(Arc::new(task_definition()));
    Work { key, attempt, domain: domain(), order, placement: None }
}

pub(crate) fn perform(number: u64, work: Vec<Work>) -> Perform {
    Perform { id: PerformId { term: 1, number }, work }
}

pub(crate) fn net(port: u16) -> NetInfo {
    let ports = vec![schemas::container::PortMapping { container_port: 8080, host_port: port }];
    NetInfo { address: "10.0.0.1".into(), ports }
}

pub(crate) fn container(guid: InstanceGuid, work: WorkKey, state: ContainerState) -> Container {
    let resources = Resources::of_container(100, 100, 0);
    Container {
        instance_guid: guid,
        work,
        domain: domain(),
        resources,
        let_in_at: schemas::Position(0),
        state,
    }
}

pub(crate) fn failed(reason: &str) -> ContainerState {
    ContainerState::Completed(RunResult::Failed { reason: reason.into() })
}

pub(crate) fn succeeded(result: &str) -> ContainerState {
    ContainerState::Completed(RunResult::Succeeded { result: result.into() })
}

pub(crate) const STOPPED: ContainerState = ContainerState::Completed(RunResult::Stopped);
