//! Texts of the rep's log messages.

use schemas::container::{Container, ContainerState, Instance, RunResult};
use schemas::message::{LrpRecord, LrpState, Record, TaskState};
use schemas::names::InstanceGuid;

use super::Level;
use super::allocations::{Allocation, Rank};
use crate::reconcile::{Step, Surprise, Verdict};

/// Returns the work (instance or task) and the guid of a container as text.
pub(super) fn container_text(container: &Container) -> String {
    format!("{} as {}", container.work, container.instance_guid)
}

/// Returns the state of a container as text.
pub(super) fn state_text(state: &ContainerState) -> String {
    match state {
        ContainerState::Reserved => "is reserved".to_owned(),
        ContainerState::Initializing | ContainerState::Created => "is starting".to_owned(),
        ContainerState::Running(net) => match net.ports.first() {
            Some(port) => format!("runs at {}:{}", net.address, port.host_port),
            None => "runs".to_owned(),
        },
        ContainerState::Completed(RunResult::Succeeded { .. }) => "succeeded".to_owned(),
        ContainerState::Completed(RunResult::Failed { reason, .. }) => {
            format!("failed: {}", reason.escape_debug())
        }
        ContainerState::Completed(RunResult::Stopped) => "is stopped".to_owned(),
    }
}

/// Returns `true` if the transition to this state is logged.
pub(super) const fn is_logged(state: &ContainerState) -> bool {
    match state {
        ContainerState::Running(_) | ContainerState::Completed(_) => true,
        ContainerState::Reserved | ContainerState::Initializing | ContainerState::Created => false,
    }
}

/// Returns a number with its noun: "1 container", "2 containers".
pub(super) fn counted(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// Returns the log message of a case and its level. `None` for expected cases. `None` also for a conceivable
/// case (unusual but possible) without steps, or with an ended container that its record names: its end was
/// logged before.
pub(super) fn case_text(hold: &Allocation, verdict: Verdict, me: &Instance) -> Option<(Level, String)> {
    let known = hold.known.as_ref().map(|known| &known.record);
    let level = match verdict.surprise {
        Surprise::Inconceivable => Level::Warn,
        Surprise::Conceivable if verdict.steps.is_empty() || is_expected_end(hold, known, me) => return None,
        Surprise::Conceivable => Level::Info,
        Surprise::Expected => return None,
    };
    let record = known.map_or_else(|| "was never read".to_owned(), |record| record_text(record, me));
    let text = format!(
        "{} {}, but its record {record}: {}",
        container_text(hold.container()),
        state_text(&hold.container().state),
        steps_text(verdict.steps)
    );
    Some((level, text))
}

/// Returns `true` if the container has ended and its record names it.
fn is_expected_end(hold: &Allocation, known: Option<&Record>, me: &Instance) -> bool {
    hold.rank() == Rank::Completed
        && known.is_some_and(|record| super::judge::named_containers(record).any(|by| by == me))
}

/// Describes a record that names a missing container, and the resulting steps.
pub(super) fn orphan_text(guid: InstanceGuid, record: &Record, me: &Instance, steps: &[Step]) -> String {
    let of = match record {
        Record::Absent => "a record that does not exist".to_owned(),
        Record::Lrp(LrpRecord { key, .. }) => key.to_string(),
        Record::Task(task) => format!("task {}", task.task_guid),
    };
    format!(
        "{of} as {guid}: the container does not exist, but its record {}: {}",
        record_text(record, me),
        steps_text(steps)
    )
}

fn steps_text(steps: &[Step]) -> String {
    steps.iter().map(|step| step.label()).collect::<Vec<_>>().join(", then ")
}

/// Describes a record from the point of view of a container.
fn record_text(record: &Record, me: &Instance) -> String {
    let by = |holder: &Instance| {
        if holder == me { "in it".to_owned() } else { other_holder_text(holder) }
    };
    match record {
        Record::Absent => "does not exist".to_owned(),
        Record::Lrp(record) => {
            let stop = |stopping: &bool| if *stopping { " and asked to stop" } else { "" };
            let text = match &record.state {
                None => "names no instance".to_owned(),
                Some(LrpState::Unclaimed { placement_error: false }) => "is UNCLAIMED".to_owned(),
                Some(LrpState::Unclaimed { placement_error: true }) => {
                    "is UNCLAIMED and could not be placed".to_owned()
                }
                Some(LrpState::Claimed { by: holder, stopping }) => {
                    format!("is CLAIMED {}{}", by(holder), stop(stopping))
                }
                Some(LrpState::Running { by: holder, stopping }) => {
                    format!("is RUNNING {}{}", by(holder), stop(stopping))
                }
                Some(LrpState::Crashed) => "is CRASHED".to_owned(),
            };
            match &record.evacuating {
                Some(holder) => format!("{text} and is EVACUATING {}", by(holder)),
                None => text,
            }
        }
        Record::Task(record) => {
            let ran = |state: &str, holder: &Option<Instance>| match holder {
                None => format!("is {state} and ran in no container"),
                Some(holder) => format!("is {state} and ran {}", by(holder)),
            };
            match &record.state {
                TaskState::Pending => "is PENDING".to_owned(),
                TaskState::Running { by: holder } => format!("is RUNNING {}", by(holder)),
                TaskState::Completed { by: holder } => ran("COMPLETED", holder),
                TaskState::Resolving { by: holder } => ran("RESOLVING", holder),
            }
        }
    }
}

fn other_holder_text(holder: &Instance) -> String {
    format!("in {} on cell {}", holder.instance_guid, holder.cell_id)
}
