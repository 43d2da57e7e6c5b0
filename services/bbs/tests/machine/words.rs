//! Builders of commands and reports for the tests.

use schemas::action::Secret;
use schemas::container::{Epoch, Instance, NetInfo};
use schemas::definition::{Definition, DesiredLrpUpdate, Ports, TaskDefinition};
use schemas::isolation::Isolation;
use schemas::message::Report;
use schemas::names::Domain;
use schemas::spec::ClientCommand;
use schemas::{Timestamp, actual, process, task};

pub(crate) use fixtures::{
    cell_id, folder_id as folder, heartbeat, instance as container, process_guid, task_guid,
};

pub(crate) fn domain() -> Domain {
    fixtures::domain("shop")
}

pub(crate) fn lrp(name: &str, instances: u32) -> ClientCommand {
    let definition = Definition { grace_period_ms: 0, ports: Ports::new(), ..fixtures::definition() };
    ClientCommand::LrpDesire(Box::new(fixtures::lrp_of(name, "shop", instances, definition)))
}

pub(crate) fn scale(name: &str, instances: u32) -> ClientCommand {
    let update = DesiredLrpUpdate { instances: Some(instances), ..DesiredLrpUpdate::default() };
    ClientCommand::LrpUpdate { process_guid: process_guid(name), update, definition: None }
}

pub(crate) fn task(name: &str, callback: Option<&str>) -> ClientCommand {
    let completion_callback_url = callback.map(|url| Secret::Plain(url.into()));
    let definition =
        TaskDefinition { completion_callback_url, grace_period_ms: 0, ..fixtures::task_definition() };
    ClientCommand::TaskDesire(Box::new(fixtures::task_of(name, "shop", definition)))
}

/// Returns the report of an instance's container.
pub(crate) fn lrp_report(
    name: &str,
    index: u32,
    epoch: Epoch,
    by: Instance,
    step: actual::Command,
) -> Report {
    let report = process::Report {
        domain: domain(),
        place: fixtures::place(index, name),
        epoch,
        by,
        // The rep knows the newest records.
        observed_at: Timestamp(u64::MAX),
        steps: vec![process::ReportStep::Actual(step)],
    };
    Report::Lrp { process_guid: process_guid(name), report }
}

/// Returns the report of a task's container.
pub(crate) fn task_report(name: &str, epoch: Epoch, by: Instance, step: task::ReportStep) -> Report {
    Report::Task { task_guid: task_guid(name), report: task::Report { domain: domain(), epoch, by, step } }
}

pub(crate) fn start() -> actual::Command {
    actual::Command::Start { net: NetInfo::default(), isolation: Isolation::NONE }
}

pub(crate) fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_790_000_000_000 + seconds * 1_000)
}
