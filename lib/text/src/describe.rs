//! Descriptions of decisions and their events as sentences.

use schemas::actual::{self, StopReason, UnclaimReason};
use schemas::cluster::{self, Role};
use schemas::container::{Instance, NetInfo};
use schemas::crash::Restart;
use schemas::definition::{DesiredPeriodic, Mode};
use schemas::entry::{Aggregate, Event};
use schemas::evacuating::{self, RemovalReason};
use schemas::evaluation::{self, CancelReason, InitialStatus, Trigger};
use schemas::exec::Exec;
use schemas::isolation::{Isolation, Level};
use schemas::names::{DecisionId, DefinitionId};
use schemas::parameterised::{self, WithdrawReason};
use schemas::periodic::{self, LaunchReason};
use schemas::rollout::{self, Kind, PauseReason};
use schemas::stamp::Actor;
use schemas::task::{self, Outcome};
use schemas::{Decision, Indices, Places, Timestamp, cell, desired, domain};

use super::words::{count, mebibytes, one_line, short_id, time_of_day};

/// Returns the target of a decision as text.
#[must_use]
pub fn target(aggregate: &Aggregate) -> String {
    match aggregate {
        Aggregate::Process { guid, .. } => guid.to_string(),
        Aggregate::Task { guid, .. } => format!("task {guid}"),
        Aggregate::Periodic { guid, .. } => format!("periodic task {guid}"),
        Aggregate::Parameterised { guid, .. } => format!("parameterised task {guid}"),
        Aggregate::Domain(domain) => format!("domain {domain}"),
        Aggregate::Cell(cell) => format!("cell {cell}"),
        Aggregate::Cluster => "cluster".to_owned(),
    }
}

/// Returns the actor of a decision as text.
#[must_use]
pub fn actor(actor: &Actor) -> String {
    match actor {
        Actor::Client { domain, name } => format!("client {domain}/{name}"),
        Actor::Operator(name) => format!("operator {name}"),
        Actor::Cell(cell) => format!("cell {cell}"),
        Actor::Auctioneer(id) | Actor::Bbs(id) => id.to_string(),
    }
}

/// Describes a decision, with one sentence for each event. If `full` is set, ids are not shortened.
#[must_use]
pub fn sentences(decision: &Decision, full: bool) -> Vec<String> {
    if decision.events.is_empty() {
        return vec![format!("{}: duplicate request, no change", target(&decision.aggregate))];
    }
    decision.events.iter().map(|event| sentence(decision, event, full)).collect()
}

/// Describes an event together with its target.
#[must_use]
pub fn sentence(decision: &Decision, event: &Event, full: bool) -> String {
    let what = target(&decision.aggregate);
    match event {
        Event::Desired(event) => format!("{what}: {}", describe_desired(event)),
        Event::Actual(event) => describe_actual(&what, event, full),
        Event::Evacuating(event) => describe_evacuating(&what, event, full),
        Event::Rollout(event) => describe_rollout(&what, decision, event),
        Event::Evaluation(event) => format!("{what}: {}", describe_evaluation(event, decision.id, full)),
        Event::Task(event) => format!("{what}: {}", describe_task(event, full)),
        Event::Periodic(event) => format!("{what}: {}", describe_periodic(event)),
        Event::Parameterised(event) => format!("{what}: {}", describe_parameterised(event)),
        Event::Domain(domain::Event::Refreshed { expires_at }) => match expires_at {
            Some(at) => format!("{what}: fresh until {at}"),
            None => format!("{what}: fresh, never expires"),
        },
        Event::Domain(domain::Event::Limited { quotas }) => format!(
            "{what}: quotas set to {} instances, {} processes and tasks, {} commands per second, {} exec sessions per cell",
            quotas.instances, quotas.processes_and_tasks, quotas.commands_per_second, quotas.exec_sessions
        ),
        Event::Cell(event) => format!("{what}: {}", describe_cell(event)),
        Event::Cluster(event) => format!("{what}: {}", describe_cluster(event)),
    }
}

/// Formats indices such as `0-2,5`.
#[must_use]
pub fn indices(indices: &Indices) -> String {
    let range = |&(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    indices.ranges().iter().map(range).collect::<Vec<_>>().join(",")
}

/// Formats slots (indices of a process) such as `web/0` or `web/0-2,5`. If the definition is not named after
/// the process, formats `web/0@v2`.
fn format_slots(process: &str, places: &Places) -> String {
    let indices = indices(&places.indices);
    let definition = places.definition_id.as_str();
    let of = if definition == process { String::new() } else { format!("@{definition}") };
    format!("{process}/{indices}{of}")
}

/// Formats the cell and the guid of a container.
fn format_container(by: &Instance, full: bool) -> String {
    format!("{} (container {})", by.cell_id, short_id(&by.instance_guid, full))
}

/// Formats network addresses such as `127.0.0.1:60001`.
pub(crate) fn addresses(net: &NetInfo) -> String {
    let address = |port: &schemas::container::PortMapping| format!("{}:{}", net.address, port.host_port);
    net.ports.iter().map(address).collect::<Vec<_>>().join(" ")
}

fn describe_desired(event: &desired::Event) -> String {
    match event {
        desired::Event::Desired(lrp) => match lrp.mode {
            Mode::Replicated => format!("desired with {}", count(lrp.instances.into(), "instance")),
            Mode::Global => "desired on every compatible cell".to_owned(),
        },
        desired::Event::Updated(update) => {
            let mut parts = vec![];
            parts.extend(
                update.instances.map(|instances| format!("{} desired", count(instances.into(), "instance"))),
            );
            parts.extend(update.priority.map(|priority| format!("priority {priority}")));
            parts.extend(update.routes.is_some().then(|| "routes changed".to_owned()));
            parts.extend(update.annotation.is_some().then(|| "annotation changed".to_owned()));
            parts.extend(update.policies.is_some().then(|| "policies changed".to_owned()));
            parts.join(", ")
        }
        desired::Event::DefinitionAdded { definition_id, .. } => format!("definition {definition_id} added"),
        desired::Event::Activated { definition_id } => {
            format!("definition {definition_id} is active")
        }
        desired::Event::HealthyChanged { definition_id } => {
            format!("definition {definition_id} is healthy")
        }
        desired::Event::CellsChanged { cells, removed: left } => cells_changed(cells, left),
        desired::Event::Pruned { definition_ids } => {
            let ids: Vec<&str> = definition_ids.iter().map(|id| id.as_str()).collect();
            let what = if ids.len() == 1 { "definition" } else { "definitions" };
            format!("{what} {} removed: no longer in use", ids.join(", "))
        }
        desired::Event::Removed {} => "no longer desired".to_owned(),
    }
}

/// Describes the cells that joined a global process, and the indices whose cells left.
fn cells_changed(cells: &[(u32, desired::GlobalCell)], left: &Indices) -> String {
    let cordoned = |cell: &desired::GlobalCell| if cell.cordoned { ", which is cordoned" } else { "" };
    let on = |(index, cell): &(u32, desired::GlobalCell)| {
        format!("index {index} belongs to cell {}{}", cell.cell_id, cordoned(cell))
    };
    let mut parts: Vec<String> = cells.iter().map(on).collect();
    if !left.is_empty() {
        parts.push(format!("index {} no longer has a cell", indices(left)));
    }
    parts.join(", ")
}

/// Formats the isolation of a container. Empty if the container is not isolated.
fn format_isolation(isolation: Isolation) -> String {
    match isolation.level() {
        Level::None => String::new(),
        Level::Degraded | Level::Full => format!(", isolation {isolation}"),
    }
}

fn describe_actual(process: &str, event: &actual::Event, full: bool) -> String {
    let at = format_slots(process, &event.places());
    match event {
        actual::Event::Created { .. } => format!("{at}: created, waiting for placement"),
        actual::Event::Claimed { by, .. } => format!("{at}: claimed by {}", format_container(by, full)),
        actual::Event::Started { by, net, isolation, .. } => {
            let addresses = addresses(net);
            let reached = if addresses.is_empty() { String::new() } else { format!(" at {addresses}") };
            format!(
                "{at}: running on {}{reached}{}",
                format_container(by, full),
                format_isolation(*isolation)
            )
        }
        actual::Event::ExecStarted { by, exec, .. } => {
            format!("{at}: runs {} on {}", command_line(exec), format_container(by, full))
        }
        actual::Event::Crashed { by, reason, crash_count, restart, .. } => {
            let next = match restart {
                Restart::Immediate => String::new(),
                Restart::At(due) => format!("; restarts at {} UTC", time_of_day(*due)),
                Restart::Never(why) => format!("; not restarted: {why}"),
            };
            format!(
                "{at}: crashed on {}: {} (crash {crash_count}, container {}){next}",
                by.cell_id,
                one_line(reason),
                short_id(&by.instance_guid, full)
            )
        }
        actual::Event::PlacementFailed { error, .. } => format!("{at}: not placed: {}", one_line(error)),
        actual::Event::Unclaimed { cause, .. } => {
            format!("{at}: waiting for placement ({})", unclaimed_reason(*cause))
        }
        actual::Event::StopRequested { cause, .. } => format!("{at}: stop requested: {}", end_reason(*cause)),
        actual::Event::Removed { cause: StopReason::Stopped, .. } => format!("{at}: ended"),
        actual::Event::Removed { cause, .. } => format!("{at}: ended: {}", end_reason(*cause)),
    }
}

/// Formats a program and its arguments as a shell command line.
fn command_line(exec: &Exec) -> String {
    let words = std::iter::once(&exec.path).chain(&exec.args);
    let quoted: Vec<String> = words.map(|word| one_line(&quoted(word))).collect();
    let user = if exec.user.is_empty() { String::new() } else { format!(" as {}", exec.user) };
    format!("`{}`{user}", quoted.join(" "))
}

/// Quotes a word if a shell would not read it literally.
fn quoted(word: &str) -> String {
    let is_plain = |sign: char| sign.is_alphanumeric() || "-_./=:,@%+".contains(sign);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

const fn unclaimed_reason(cause: UnclaimReason) -> &'static str {
    match cause {
        UnclaimReason::Crash => "immediate restart after crash",
        UnclaimReason::Restart => "restart delay is over",
        UnclaimReason::CellLost => "its cell disappeared",
        UnclaimReason::Evacuation => "its cell is being evacuated",
    }
}

/// Returns the reason for the end of an instance.
#[must_use]
pub const fn end_reason(cause: StopReason) -> &'static str {
    match cause {
        StopReason::Removed => "the process was deleted",
        StopReason::Scale => "fewer instances are desired",
        StopReason::CellUnfit => "its cell no longer fits the definition",
        StopReason::Retired => "a client stopped this instance",
        StopReason::Superseded => "the process was desired again",
        StopReason::Undesired => "no longer desired, and its domain is fresh",
        StopReason::Stopped => "its rep stopped it, or has no container for it",
        StopReason::Crashed => "crashed while it was being stopped",
        StopReason::CellLost => "its cell disappeared",
        StopReason::Evacuated => "its cell was evacuated",
        StopReason::Replaced => "replaced by another definition",
        StopReason::RolloutFailed => "its rollout gave up on it",
        StopReason::Preempted => "preempted by work of higher priority",
    }
}

fn describe_evacuating(process: &str, event: &evacuating::Event, full: bool) -> String {
    let (evacuating::Event::Set { place, .. } | evacuating::Event::Removed { place, .. }) = event;
    let at = format_slots(process, &place.clone().into());
    match event {
        evacuating::Event::Set { by, expires_at, .. } => {
            format!("{at}: evacuating from {} until {expires_at}", format_container(by, full))
        }
        evacuating::Event::Removed { cause, .. } => {
            let why = match cause {
                RemovalReason::Replaced => "a replacement runs",
                RemovalReason::Removed => "its container has ended",
                RemovalReason::Expired => "the evacuation timed out",
                RemovalReason::CellLost => "its cell disappeared",
            };
            format!("{at}: no longer evacuating: {why}")
        }
    }
}

/// Formats the name of a rollout, such as `rollout to v2` or `rollback to v1`.
#[must_use]
pub fn rollout_name(kind: Kind, target: &DefinitionId) -> String {
    match kind {
        Kind::Update => format!("rollout to {target}"),
        Kind::Rollback => format!("rollback to {target}"),
    }
}

fn describe_rollout(process: &str, decision: &Decision, event: &rollout::Event) -> String {
    let at = event.indices().map(|of| format!("{process}/{}", indices(&of))).unwrap_or_default();
    match event {
        rollout::Event::Started { kind, target, total, reason, .. } => {
            let what = rollout_name(*kind, target);
            let why = if reason.is_empty() { String::new() } else { format!(": {}", one_line(reason)) };
            format!("{process}: {what} started, {} to replace{why}", count((*total).into(), "instance"))
        }
        rollout::Event::IndicesStarted { .. } => format!("{at}: replacement started"),
        rollout::Event::FellBack { .. } => {
            format!("{at}: no room for both instances: the old one stops first")
        }
        rollout::Event::TookOver { .. } => format!("{at}: the new instance runs and takes over"),
        rollout::Event::Replaced { delay_until: rests_until, .. } if *rests_until > decision.at => {
            format!("{at}: replaced; the next index waits until {}", time_of_day(*rests_until))
        }
        rollout::Event::Replaced { .. } => format!("{at}: replaced"),
        rollout::Event::Failed { reason, .. } => {
            format!("{at}: the new instance failed: {}", one_line(reason))
        }
        rollout::Event::Stalled { retry_at, reason, .. } => format!(
            "{at}: stalled, next attempt at {} or later: {}",
            time_of_day(*retry_at),
            one_line(reason)
        ),
        rollout::Event::Paused { cause, reason } => match cause {
            // These reasons already contain the word "paused".
            PauseReason::Requested | PauseReason::Canary => {
                format!("{process}: the rollout is {}", one_line(reason))
            }
            PauseReason::Failures => format!("{process}: the rollout is paused: {}", one_line(reason)),
        },
        rollout::Event::Resumed {} => format!("{process}: the rollout is resumed"),
        rollout::Event::Completed {} => format!("{process}: the rollout is complete"),
    }
}

fn describe_evaluation(event: &evaluation::Event, decision: DecisionId, full: bool) -> String {
    let name = short_id(&event.evaluation(decision), full);
    match event {
        evaluation::Event::Created { trigger, initial_status: begin, .. } => {
            let what = trigger_name(*trigger);
            match begin {
                InitialStatus::Pending => format!("evaluation {name} started ({what})"),
                InitialStatus::Delayed { until } => format!("evaluation {name} waits until {until} ({what})"),
                InitialStatus::Blocked { reason, .. } => {
                    format!("evaluation {name} is blocked ({what}): {}", one_line(reason))
                }
                InitialStatus::Complete { stopped } => {
                    format!(
                        "evaluation {name} is complete ({what}), {} to stop",
                        count(u64::from(*stopped), "instance")
                    )
                }
            }
        }
        evaluation::Event::Joined { trigger, .. } => {
            format!("evaluation {name} has another cause: {}", trigger_name(*trigger))
        }
        evaluation::Event::DelayChanged { until, .. } => format!("evaluation {name} waits until {until}"),
        evaluation::Event::Due { .. } => format!("evaluation {name} is due"),
        evaluation::Event::Redelivered { delivery, until, .. } => {
            format!("evaluation {name} was not answered: delivery {delivery} at {until}")
        }
        evaluation::Event::Blocked { reason, .. } => {
            format!("evaluation {name} is still blocked: {}", one_line(reason))
        }
        evaluation::Event::Completed { placed, queued, rejected, .. } => {
            format!("evaluation {name} is complete: {}", placement(*placed, *queued, *rejected, 0))
        }
        evaluation::Event::Failed { reason, .. } => {
            format!("evaluation {name} failed: {}", one_line(reason))
        }
        evaluation::Event::Canceled { reason: why, .. } => {
            format!("evaluation {name} is canceled: {}", cancel_reason(*why))
        }
        evaluation::Event::Retried { .. } => format!("evaluation {name} is retried"),
    }
}

/// Formats the numbers of instances that an evaluation placed, queued, rejected and stopped.
#[must_use]
pub fn placement(placed: u32, queued: u32, rejected: u32, stopped: u32) -> String {
    let parts =
        [(placed, "placed"), (queued, "waiting for room"), (rejected, "not placed"), (stopped, "stopping")];
    let some = parts.into_iter().filter(|(number, _)| *number > 0);
    let text = some.map(|(number, what)| format!("{number} {what}")).collect::<Vec<_>>().join(", ");
    if text.is_empty() { "nothing placed".to_owned() } else { text }
}

/// Returns the reason for the cancellation of an evaluation.
#[must_use]
pub const fn cancel_reason(why: CancelReason) -> &'static str {
    match why {
        CancelReason::NothingLeft => "nothing is left to place",
        CancelReason::Superseded => "superseded by another evaluation",
    }
}

/// Returns the name that the specification uses for a trigger (Nomad evaluation states).
#[must_use]
pub const fn triggered_by(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::Desire => "job-register",
        Trigger::Remove => "job-deregister",
        Trigger::Scale => "job-scaling",
        Trigger::Stop => "alloc-stop",
        Trigger::Crash | Trigger::Restart => "alloc-failure",
        Trigger::CellLost | Trigger::CellsChanged => "node-update",
        Trigger::Evacuation => "node-drain",
        Trigger::Rollout => "deployment-watcher",
        Trigger::RollingUpdate => "rolling-update",
        Trigger::Periodic => "periodic-job",
        Trigger::Preemption => "preemption",
        Trigger::Queued => "queued-allocs",
        Trigger::Attempts => "max-plan-attempts",
        Trigger::FollowUp => "failed-follow-up",
        Trigger::Convergence => "scheduled",
    }
}

/// Returns the trigger of an evaluation in words.
#[must_use]
pub const fn trigger_name(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::Desire => "desired",
        Trigger::Remove => "no longer desired",
        Trigger::Scale => "instance count changed",
        Trigger::Stop => "stopped instance is still desired",
        Trigger::Crash => "crash",
        Trigger::Restart => "restart delay is over",
        Trigger::CellLost => "cell disappeared",
        Trigger::Evacuation => "cell evacuation",
        Trigger::CellsChanged => "its cells changed",
        Trigger::Rollout => "rollout replaces an instance",
        Trigger::RollingUpdate => "rollout continues on the next cell",
        Trigger::Periodic => "launched by a periodic task",
        Trigger::Preemption => "preempted by work of higher priority",
        Trigger::Queued => "work could not be placed",
        Trigger::Attempts => "rejected by reps too often",
        Trigger::FollowUp => "follow-up of a failed evaluation",
        Trigger::Convergence => "found by convergence",
    }
}

fn describe_periodic(event: &periodic::Event) -> String {
    let goes_on = |next: &Option<Timestamp>| {
        next.map_or_else(|| "no longer due".to_owned(), |next| format!("next due {next}"))
    };
    let of = |desired: &DesiredPeriodic, next: &Option<Timestamp>| {
        let (cron, zone) = (desired.schedule.cron(), desired.schedule.time_zone());
        format!("{cron} in {zone}, {}", goes_on(next))
    };
    match event {
        periodic::Event::Desired { desired, next } => format!("desired: {}", of(desired, next)),
        periodic::Event::Updated { desired, next } => format!("updated: {}", of(desired, next)),
        periodic::Event::Launched { due, task_guid, reason, .. } => match reason {
            LaunchReason::Due => format!("launched {task_guid}, due {due}"),
            LaunchReason::CatchUp => format!("launched {task_guid} to catch up, due {due}"),
            LaunchReason::Queued => format!("launched {task_guid}, waiting since {due}"),
            LaunchReason::Requested => format!("launched {task_guid} on request"),
        },
        periodic::Event::Skipped { from, until, count, reason, .. } => match count {
            1 => format!("skipped the launch due {from}: {}", reason.description()),
            _ => format!("skipped {count} launches, due {from} to {until}: {}", reason.description()),
        },
        periodic::Event::Queued { due, .. } => {
            format!("the launch due {due} waits for an earlier one to end")
        }
        periodic::Event::Paused {} => "paused".to_owned(),
        periodic::Event::Resumed { next } => format!("resumed, {}", goes_on(next)),
        periodic::Event::Removed {} => "no longer desired".to_owned(),
    }
}

fn describe_parameterised(event: &parameterised::Event) -> String {
    match event {
        parameterised::Event::Desired { .. } => "desired".to_owned(),
        parameterised::Event::Updated { .. } => "updated, effective from the next dispatch".to_owned(),
        parameterised::Event::Dispatched { number, dispatch, .. } => {
            let key = dispatch.key.as_ref().map(|key| format!(" with key {key}")).unwrap_or_default();
            format!("dispatch {number}{key}")
        }
        parameterised::Event::Repeated { number } => {
            format!("dispatch {number} repeated with the same key, no change")
        }
        parameterised::Event::Launched { number, task_guid } => {
            format!("dispatch {number} launched {task_guid}")
        }
        parameterised::Event::Withdrawn { numbers, reason } => {
            let which = match &numbers[..] {
                [number] => format!("dispatch {number}"),
                several => format!("{} dispatches", several.len()),
            };
            let why = match reason {
                WithdrawReason::Requested => "requested by a client",
                WithdrawReason::Removed => "the parameterised task was deleted",
            };
            format!("{which} withdrawn: {why}")
        }
        parameterised::Event::Removed {} => "no longer desired".to_owned(),
    }
}

fn describe_task(event: &task::Event, full: bool) -> String {
    match event {
        task::Event::Desired(_) => "desired".to_owned(),
        task::Event::Started { by, isolation, .. } => {
            format!("running on {}{}", format_container(by, full), format_isolation(*isolation))
        }
        task::Event::PlacementFailed { error, .. } => format!("not placed yet: {}", one_line(error)),
        task::Event::Completed { outcome, .. } => match outcome {
            Outcome::Succeeded { result } if result.is_empty() => "succeeded".to_owned(),
            Outcome::Succeeded { result } => {
                format!("succeeded with {} of result", count(result.len() as u64, "byte"))
            }
            Outcome::Failed { reason } => format!("failed: {}", one_line(reason)),
        },
        task::Event::Resolving {} => "resolving".to_owned(),
        task::Event::CallbackTried { attempt, outcome: called } => {
            format!("completion callback, attempt {attempt}: {}", one_line(&called.to_string()))
        }
        task::Event::Demoted {} => "not resolved in time, COMPLETED again".to_owned(),
        task::Event::Deleted {} => "deleted".to_owned(),
    }
}

fn describe_cell(event: &cell::Event) -> String {
    match event {
        cell::Event::Appeared(presence) => format!(
            "appeared in zone {}, stack {}, {} memory, {} disk, {}, {}",
            presence.zone,
            presence.stack,
            mebibytes(presence.total.memory_mb),
            mebibytes(presence.total.disk_mb),
            count(presence.total.containers.into(), "container"),
            count(presence.total.ports.into(), "port"),
        ),
        cell::Event::EvacuationRequested {} => "evacuation requested".to_owned(),
        cell::Event::EvacuationWithdrawn {} => "evacuation canceled".to_owned(),
        cell::Event::Cordoned {} => "cordoned: accepts no new work".to_owned(),
        cell::Event::Uncordoned {} => "uncordoned: accepts work again".to_owned(),
        cell::Event::Evacuating {} => "evacuating: accepts no new work".to_owned(),
        cell::Event::Resumed {} => "accepts work again".to_owned(),
        cell::Event::Healthy {} => "healthy again".to_owned(),
        cell::Event::Unhealthy { reason } => format!("unhealthy: {}", one_line(reason)),
        cell::Event::Left {} => "evacuated: its rep has left".to_owned(),
        cell::Event::Forgotten {} => "forgotten".to_owned(),
        cell::Event::Disappeared { reason } => format!("disappeared: {}", one_line(reason)),
    }
}

fn describe_cluster(event: &cluster::Event) -> String {
    match event {
        cluster::Event::Founded { id, shards, format } => {
            format!("founded as {id} with {shards} shards at format {format}")
        }
        cluster::Event::Elected { role, id, term } => {
            let role = match role {
                Role::Bbs => "BBS",
                Role::Auctioneer => "auctioneer",
            };
            format!("{id} leads as {role} in term {term}")
        }
        cluster::Event::OrdinalAssigned { cell_id, ordinal } => {
            format!("cell {cell_id} has ordinal {ordinal}")
        }
        cluster::Event::OrdinalFreed { cell_id, ordinal } => {
            format!("ordinal {ordinal} of cell {cell_id} is free")
        }
        cluster::Event::FormatRaised { format } => format!("format raised to {format}"),
        cluster::Event::PreemptionSwitched { enabled: true } => "preemption switched on".to_owned(),
        cluster::Event::PreemptionSwitched { enabled: false } => "preemption switched off".to_owned(),
        cluster::Event::Resharded { shards } => format!("number of shards changed to {shards}"),
        cluster::Event::EntryQuarantined { position, reason } => {
            format!("position {position} quarantined: {}", one_line(reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fixtures::web::{client, container, decision};
    use schemas::container::PortMapping;
    use schemas::policy::UpdatePolicy;
    use schemas::{Indices, Place, Timestamp};

    use super::*;

    #[test]
    fn events_are_described_in_sentences() {
        let net = NetInfo {
            address: "10.0.0.1".into(),
            ports: [PortMapping { container_port: 8080, host_port: 60001 }].into_iter().collect(),
        };
        let of = |definition: &str, indices: Indices| {
            let definition_id = DefinitionId::new(definition).unwrap();
            Places { indices, definition_id }
        };
        let place = || Place::new(0, DefinitionId::new("web").unwrap());
        let events = vec![
            Event::Actual(actual::Event::Created { places: of("web", [0, 1, 2, 5].into_iter().collect()) }),
            Event::Actual(actual::Event::Claimed { place: place(), by: container(7, "c1"), placement: None }),
            Event::Actual(actual::Event::Started {
                place: place(),
                by: container(7, "c1"),
                net,
                isolation: Isolation::FULL,
            }),
            Event::Actual(actual::Event::Crashed {
                place: place(),
                by: container(7, "c1"),
                reason: "exit status 3\n".into(),
                exit_status: Some(3),
                crash_count: 2,
                restart: Restart::Immediate,
                attempts: None,
            }),
            Event::Actual(actual::Event::Removed {
                places: of("v1", Indices::from(0)),
                cause: StopReason::Replaced,
            }),
            Event::Actual(actual::Event::Created { places: of("v2", Indices::below(3)) }),
            Event::Evacuating(evacuating::Event::Removed {
                place: Place::new(4, DefinitionId::new("v1").unwrap()),
                cause: RemovalReason::Replaced,
            }),
            Event::Evaluation(evaluation::Event::Created {
                number: 0,
                trigger: Trigger::Crash,
                initial_status: InitialStatus::Pending,
                previous: None,
            }),
        ];
        assert_eq!(
            sentences(&decision(9, client(), events), false),
            [
                "web/0-2,5: created, waiting for placement",
                "web/0: claimed by c1 (container 00000007)",
                "web/0: running on c1 (container 00000007) at 10.0.0.1:60001, isolation full",
                "web/0: crashed on c1: exit status 3 (crash 2, container 00000007)",
                "web/0@v1: ended: replaced by another definition",
                "web/0-2@v2: created, waiting for placement",
                "web/4@v1: no longer evacuating: a replacement runs",
                "web: evaluation 00000009 started (crash)",
            ]
        );
        assert_eq!(actor(&client()), "client shop/ada");
        let again = decision(10, client(), vec![]);
        assert_eq!(sentences(&again, false), ["web: duplicate request, no change"]);
    }

    #[test]
    fn rollout_events_are_described_in_sentences() {
        let id = |name: &str| DefinitionId::new(name).unwrap();
        let started = |kind, target: &str, reason: &str| rollout::Event::Started {
            kind,
            target: id(target),
            rollback_to: None,
            total: 3,
            policy: Box::new(UpdatePolicy::default_update()),
            reason: reason.to_owned(),
        };
        let paused = |cause, reason: &str| rollout::Event::Paused { cause, reason: reason.to_owned() };
        let replaced = |rests_until| rollout::Event::Replaced { index: 1, delay_until: rests_until };
        let failure = "Exited with status 1";
        let events = [
            started(Kind::Update, "v2", ""),
            rollout::Event::IndicesStarted { indices: Indices::below(2) },
            rollout::Event::FellBack { index: 0 },
            rollout::Event::TookOver { index: 0 },
            replaced(Timestamp::from_millis(9_000)),
            replaced(Timestamp::from_millis(19_000)),
            rollout::Event::Failed { index: 2, reason: failure.into() },
            rollout::Event::Stalled {
                index: 2,
                retry_at: Timestamp::from_millis(39_000),
                reason: format!("failed: {failure}"),
            },
            paused(PauseReason::Requested, "paused by a client"),
            paused(PauseReason::Failures, "1 of 3 failed"),
            rollout::Event::Resumed {},
            started(Kind::Rollback, "web", "1 of 3 failed"),
            rollout::Event::Completed {},
        ];
        let events = events.map(Event::Rollout).into_iter();
        let desired = [
            desired::Event::DefinitionAdded {
                definition_id: id("v2"),
                definition: Arc::new(fixtures::definition()),
            },
            desired::Event::Activated { definition_id: id("v2") },
            desired::Event::HealthyChanged { definition_id: id("v2") },
            desired::Event::Pruned { definition_ids: vec![id("web"), id("v1")] },
        ];
        let events = desired.map(Event::Desired).into_iter().chain(events).collect();
        assert_eq!(
            sentences(&decision(9, client(), events), false),
            [
                "web: definition v2 added",
                "web: definition v2 is active",
                "web: definition v2 is healthy",
                "web: definitions web, v1 removed: no longer in use",
                "web: rollout to v2 started, 3 instances to replace",
                "web/0-1: replacement started",
                "web/0: no room for both instances: the old one stops first",
                "web/0: the new instance runs and takes over",
                "web/1: replaced",
                "web/1: replaced; the next index waits until 00:00:19",
                "web/2: the new instance failed: Exited with status 1",
                "web/2: stalled, next attempt at 00:00:39 or later: failed: Exited with status 1",
                "web: the rollout is paused by a client",
                "web: the rollout is paused: 1 of 3 failed",
                "web: the rollout is resumed",
                "web: rollback to web started, 3 instances to replace: 1 of 3 failed",
                "web: the rollout is complete",
            ]
        );
    }
}
