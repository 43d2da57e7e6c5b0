//! Words that the stories use.

use std::collections::BTreeMap;

use schemas::action::{Action, Run, Secret};
use schemas::cell::Presence;
use schemas::container::{Epoch, Instance, NetInfo};
use schemas::definition::{Definition, DesiredLrp, DesiredTask, Placement, TaskDefinition};
use schemas::message::{Heartbeat, PerformId, Report};
use schemas::names::{CellId, DefinitionId, Domain, Incarnation, InstanceGuid, ProcessGuid, TaskGuid};
use schemas::resources::{Constraint, Resources};
use schemas::spec::ClientCommand;
use schemas::{Timestamp, actual, process, task};

pub(crate) fn cell_id(name: &str) -> CellId {
    CellId::new(name).unwrap()
}

pub(crate) fn domain() -> Domain {
    Domain::new("shop").unwrap()
}

pub(crate) fn process_guid(name: &str) -> ProcessGuid {
    ProcessGuid::new(name).unwrap()
}

pub(crate) fn task_guid(name: &str) -> TaskGuid {
    TaskGuid::new(name).unwrap()
}

pub(crate) fn container(number: u64, cell: &str) -> Instance {
    Instance { instance_guid: InstanceGuid(uuid::Uuid::from_u64_pair(1, number)), cell_id: cell_id(cell) }
}

fn action() -> Action {
    Action::Run(Run { path: "serve".into(), ..Run::default() })
}

pub(crate) fn lrp(name: &str, instances: u32) -> ClientCommand {
    let definition = Definition {
        constraint: Constraint::default(),
        environment_variables: vec![],
        setup: None,
        action: action(),
        monitor: None,
        start_timeout_ms: 0,
        memory_mb: 1,
        disk_mb: 1,
        cpu_weight: 0,
        ports: vec![],
        grace_period_ms: 0,
    };
    ClientCommand::LrpDesire(Box::new(DesiredLrp {
        process_guid: process_guid(name),
        domain: domain(),
        instances,
        routes: BTreeMap::new(),
        annotation: String::new(),
        definition_id: DefinitionId::new(name).unwrap(),
        definition: definition.into(),
    }))
}

pub(crate) fn task(name: &str, callback: Option<&str>) -> ClientCommand {
    let definition = TaskDefinition {
        constraint: Constraint::default(),
        environment_variables: vec![],
        action: action(),
        memory_mb: 1,
        disk_mb: 1,
        cpu_weight: 0,
        result_file: String::new(),
        completion_callback_url: callback.map(|url| Secret::Plain(url.to_owned())),
        annotation: String::new(),
        placement: Placement::Fail,
        grace_period_ms: 0,
    };
    let definition = definition.into();
    ClientCommand::TaskDesire(Box::new(DesiredTask {
        task_guid: task_guid(name),
        domain: domain(),
        definition,
    }))
}

/// What a container of an instance reports.
pub(crate) fn of_lrp(name: &str, index: u32, epoch: Epoch, by: Instance, step: actual::Command) -> Report {
    let report = process::Report {
        domain: domain(),
        index,
        epoch,
        definition_id: DefinitionId::new(name).unwrap(),
        by,
        // It knows the newest records, whatever they are.
        judged: Timestamp(u64::MAX),
        steps: vec![process::ReportStep::Actual(step)],
    };
    Report::Lrp { process_guid: process_guid(name), report }
}

/// What a container of a task reports.
pub(crate) fn of_task(name: &str, epoch: Epoch, by: Instance, step: task::ReportStep) -> Report {
    Report::Task { task_guid: task_guid(name), report: task::Report { domain: domain(), epoch, by, step } }
}

pub(crate) fn start() -> actual::Command {
    actual::Command::Start { net: NetInfo::default() }
}

/// The data folder of a rep; the usual one is 1.
pub(crate) fn folder(number: u64) -> schemas::names::FolderId {
    schemas::names::FolderId(uuid::Uuid::from_u64_pair(0, number))
}

pub(crate) fn heartbeat(cell: &str, incarnation: u64, sequence: u64) -> Heartbeat {
    let total = Resources { memory_mb: 1_000, disk_mb: 1_000, containers: 100, ports: 100 };
    let presence = Presence {
        folder: folder(1),
        incarnation: Incarnation(uuid::Uuid::from_u64_pair(incarnation, 0)),
        zone: "z1".parse().unwrap(),
        stack: "linux".parse().unwrap(),
        placement_tags: [].into(),
        total,
    };
    Heartbeat {
        cell_id: cell_id(cell),
        presence,
        free: total,
        starting: 0,
        evacuating: false,
        unhealthy: None,
        performed: PerformId::default(),
        sequence,
        fingerprint: 0,
        format: 1,
    }
}

pub(crate) fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_790_000_000_000 + seconds * 1_000)
}
