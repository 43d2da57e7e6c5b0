//! Health of the cluster: problems, and counts that need a scan over all records.

use std::collections::BTreeSet;

use machines::actual::State;
use machines::cell::EVACUATED;
use machines::evaluation::Evaluations;
use machines::process::{Process, Slot};
use machines::task::Task;
use schemas::Timestamp;
use schemas::cluster::Role;
use schemas::evaluation::{Evaluation, Status};
use schemas::limits::STATUS_NAMED;
use schemas::query::{
    AppendProblem, CellRow, CellState, ClockSkew, ClocksRow, ClusterRow, Finding, FindingCode, Health,
    InstanceRow, InstanceState, LogRow, ServiceRow, Services, StatusRow, TaskState,
};
use schemas::task::CallbackVerdict;

use super::Observed;
use super::rows::{RecordSelection, cell_row, cluster_row, slot_rows};
use super::states::instance_state;
use crate::figures::{LONG_WAIT, is_unplaced, is_waiting_long};
use crate::world::World;

/// Minimum lag for a report about a service, in entries behind the newest known position.
const REPORTED_LAG: u64 = 1_000;
/// Minimum usage for a report of a nearly full log, in percent of the stream's limit.
const NEARLY_FULL_PERCENT: u64 = 80;

/// Returns the problems of BBSs and auctioneers that their heartbeats show.
pub(super) fn problems(services: &Services) -> Vec<Finding> {
    let mut found: Vec<Finding> = append_finding(services).into_iter().collect();
    let of = |role: Role| services.rows.iter().filter(move |row| row.role == role);
    if services.complete {
        if !of(Role::Bbs).any(|row| row.leads) {
            let why = "no BBS leads: no command is accepted until one does";
            found.push(Finding::new(FindingCode::NoBbsLeads, why));
        }
        if of(Role::Auctioneer).next().is_none() {
            let why = "no auctioneer is alive: nothing is placed until one is; start one: muster auctioneer";
            found.push(Finding::new(FindingCode::NoAuctioneer, why));
        } else if !of(Role::Auctioneer).any(|row| row.leads) {
            let why = "no auctioneer leads: nothing is placed until one does";
            found.push(Finding::new(FindingCode::NoAuctioneerLeads, why));
        }
    }
    for ServiceRow { id, lag, .. } in services.rows.iter().filter(|row| row.lag >= REPORTED_LAG) {
        found.push(Finding::new(FindingCode::ServiceBehind, format!("{id} is {lag} entries behind the log")));
    }
    found.extend(clock_findings(&services.clocks));
    let versions: BTreeSet<&str> = services.rows.iter().map(|row| row.program.version.as_str()).collect();
    if versions.len() > 1 {
        let all = versions.into_iter().collect::<Vec<_>>().join(", ");
        let why = format!("BBSs and auctioneers run different versions: {all}");
        found.push(Finding::new(FindingCode::VersionsDiffer, why));
    }
    found
}

/// Reports clocks that differ from the other clocks, and a log that is ahead of the clocks.
fn clock_findings(clocks: &ClocksRow) -> Vec<Finding> {
    let seconds = |millis: u64| format!("{}.{:01} s", millis / 1_000, millis % 1_000 / 100);
    let mut found = vec![];
    for ClockSkew { clock, ahead_ms } in &clocks.skewed {
        let (by, way) = (seconds(ahead_ms.unsigned_abs()), if *ahead_ms < 0 { "behind" } else { "ahead of" });
        let why = format!(
            "the clock of {clock} is {by} {way} the median of {} clocks: set it by NTP; nothing needs a restart",
            clocks.compared
        );
        found.push(Finding::new(FindingCode::ClockSkew, why));
    }
    if clocks.log_ahead_ms > 0 {
        let why = format!(
            "the log is {} ahead of the clocks, because clocks were ahead before: times of new decisions are \
             ahead as well, and converge slowly",
            seconds(clocks.log_ahead_ms)
        );
        found.push(Finding::new(FindingCode::LogAhead, why));
    }
    found
}

/// Reports the append problem of the leader, or of a BBS that cannot become the leader because of the
/// problem. Problems of standbys are ignored while a leader exists.
fn append_finding(services: &Services) -> Option<Finding> {
    let mut bbss = services.rows.iter().filter(|row| row.role == Role::Bbs);
    let counts = match bbss.clone().find(|row| row.leads) {
        Some(leader) => leader.append_problem.as_ref(),
        None => bbss.find_map(|row| row.append_problem.as_ref()),
    };
    let AppendProblem { since, failing, reason } = counts?;
    Some(if *failing {
        let why = format!("the log has accepted no entries since {since}: {reason}; commands are refused");
        Finding::new(FindingCode::AppendsFail, why)
    } else {
        Finding::new(
            FindingCode::AppendsSlow,
            format!("appends to the log have been slow since {since}: {reason}"),
        )
    })
}

/// Returns the problems of the stream that holds the log.
fn log_findings(log: &LogRow) -> Vec<Finding> {
    let LogRow { replicas, replicas_in_sync, behind, entries: _, bytes, max_bytes, unreadable, hazards } =
        log;
    let mut found = vec![];
    if let Some(why) = unreadable {
        found.push(Finding::new(FindingCode::LogUnreadable, format!("the log cannot be read: {why}")));
    }
    found.extend(hazards.iter().map(|hazard| Finding::new(FindingCode::LogHazard, hazard)));
    if replicas_in_sync < replicas {
        let names = if behind.is_empty() { String::new() } else { format!(": {}", behind.join(", ")) };
        let why = format!(
            "{replicas_in_sync} of {replicas} replicas of the log have every entry{names}; do not stop \
             another NATS server"
        );
        found.push(Finding::new(FindingCode::ReplicasBehind, why));
    }
    if let Some(most) =
        max_bytes.filter(|most| bytes.saturating_mul(100) >= most.saturating_mul(NEARLY_FULL_PERCENT))
    {
        let why = format!(
            "the log has {bytes} of at most {most} bytes (max_bytes); at the limit no command is accepted"
        );
        found.push(Finding::new(FindingCode::LogNearlyFull, why));
    }
    found
}

/// Returns the health of the cluster, or `None` before the cluster is founded.
pub(super) fn status_row(world: &World, observed: &Observed) -> Option<StatusRow> {
    let cluster = cluster_row(world, observed)?;
    let mut row = StatusRow {
        health: Health::Healthy,
        findings: cluster.problems.clone(),
        cluster,
        instances_desired: 0,
        instances_unplaced: 0,
        tasks_unplaced: 0,
        evaluations_blocked: 0,
        callbacks_retried: 0,
        worst: vec![],
        starting: vec![],
        cells: vec![],
        log: observed.log.clone(),
    };
    let (mut claimed, mut waiting) = (vec![], 0);
    for process in world.processes_from(None) {
        row.instances_desired += process.desired.as_ref().map_or(0, |desired| u64::from(desired.instances));
        row.evaluations_blocked += count_blocked(&process.evaluations);
        for slot in process.slots.iter() {
            add_slot(process, slot, &mut row, &mut claimed);
            let waits = slot.actual.as_ref().is_some_and(|lrp| is_waiting_long(lrp, observed.now));
            waiting += u64::from(waits);
        }
    }
    row.worst.sort_by_key(|row| row.state != InstanceState::Crashed);
    row.worst.truncate(STATUS_NAMED);
    claimed.sort();
    row.starting = claimed.into_iter().take(STATUS_NAMED).map(|(_, name)| name).collect();
    for task in world.tasks_from(None) {
        row.evaluations_blocked += count_blocked(&task.evaluations);
        row.tasks_unplaced += u64::from(is_unplaced(task));
        row.callbacks_retried += u64::from(is_callback_retried(task));
    }
    let cells =
        world.cells().map(|(id, cell)| cell_row(world, id, cell, observed.heartbeat_ages.get(id).copied()));
    row.cells = cells.filter(|row| row.state != CellState::Present).collect();
    let of_log = row.log.as_ref().map(log_findings).unwrap_or_default();
    let found: Vec<Finding> =
        of_log.into_iter().chain(cell_findings(&row)).chain(work_findings(&row)).collect();
    if waiting > 0 {
        let minutes = LONG_WAIT.as_secs() / 60;
        let many = if waiting == 1 { "instance has" } else { "instances have" };
        let why = format!("{waiting} {many} waited for placement for {minutes} minutes or longer");
        row.findings.push(Finding::new(FindingCode::InstancesWaiting, why));
    }
    row.cells.truncate(STATUS_NAMED);
    row.findings.extend(found);
    row.update_health();
    Some(row)
}

/// Adds a slot (an index of a process) to the counts. An instance in a bad state is added to the worst
/// instances, and a CLAIMED instance to the starting instances.
fn add_slot(process: &Process, slot: &Slot, row: &mut StatusRow, claimed: &mut Vec<(Timestamp, String)>) {
    let Some(lrp) = &slot.actual else { return };
    let is_bad = match &lrp.state {
        State::Unclaimed { placement_error } => {
            row.instances_unplaced += u64::from(placement_error.is_some());
            placement_error.is_some()
        }
        State::Crashed { .. } => true,
        State::Claimed { .. } => {
            if !lrp.is_stopping() {
                claimed.push((lrp.since, format!("{}/{}", process.guid, slot.place.index)));
            }
            false
        }
        State::Running { .. } => false,
    };
    // Each bad state has its own limit, so that many instances in one state do not hide the instances in
    // another state.
    let same = |known: &&InstanceRow| known.state == instance_state(&lrp.state);
    if is_bad && row.worst.iter().filter(same).count() < STATUS_NAMED {
        row.worst.extend(slot_rows(process, slot, RecordSelection::Both).take(1));
    }
}

fn count_blocked(evaluations: &Evaluations) -> u64 {
    let is_blocked = |one: &Evaluation| match one.status {
        Status::Blocked { .. } => true,
        Status::Pending | Status::Complete | Status::Failed { .. } | Status::Canceled { .. } => false,
    };
    evaluations.iter().filter(is_blocked).count() as u64
}

fn is_callback_retried(task: &Task) -> bool {
    let callback = task.completed().and_then(|done| done.callback.as_ref());
    callback.is_some_and(|callback| callback.last.verdict() == CallbackVerdict::Repeat)
}

fn cell_findings(row: &StatusRow) -> Vec<Finding> {
    let mut found = vec![];
    for CellRow { cell_id, state, absent_reason, unhealthy, .. } in &row.cells {
        let finding = match (state, absent_reason.as_deref()) {
            (CellState::Present, _) => continue,
            // The rep left after its evacuation, as intended.
            (CellState::Absent, Some(EVACUATED)) => continue,
            (CellState::Absent, why) => {
                let why = why.unwrap_or("no reason is known");
                let forget = format!("muster cell delete {cell_id}, if it doesn't come back");
                Finding::new(FindingCode::CellLost, format!("cell {cell_id} is ABSENT: {why}; {forget}"))
            }
            (CellState::Silent, _) => {
                let why = format!("cell {cell_id} is SILENT: no recent heartbeat");
                Finding::new(FindingCode::CellSilent, why)
            }
            (CellState::Unhealthy, _) => {
                let why = unhealthy.as_deref().unwrap_or("its self-test fails");
                let why = format!("cell {cell_id} is UNHEALTHY and accepts no work: {why}");
                Finding::new(FindingCode::CellUnhealthy, why)
            }
            (CellState::Evacuating, _) => {
                Finding::new(FindingCode::CellEvacuating, format!("cell {cell_id} is being evacuated"))
            }
        };
        found.push(finding);
    }
    found
}

fn work_findings(row: &StatusRow) -> Vec<Finding> {
    let cluster: &ClusterRow = &row.cluster;
    let of = |state: InstanceState| cluster.instances.get(&state).copied().unwrap_or_default();
    let waiting = cluster.tasks.get(&TaskState::Pending).copied().unwrap_or_default();
    let takes_work = cluster.cells.get(&CellState::Present).copied().unwrap_or_default() > 0;
    let mut found = vec![];
    if !takes_work && row.instances_desired + waiting > 0 {
        found.push(Finding::new(FindingCode::NoCell, "no cell accepts work: start one: muster rep"));
    }
    let numbers = [
        (FindingCode::InstancesCrashed, of(InstanceState::Crashed), "instance", "crashed"),
        (
            FindingCode::InstancesUnplaced,
            row.instances_unplaced,
            "instance",
            "not placed: no cell can take it",
        ),
        (FindingCode::TasksUnplaced, row.tasks_unplaced, "task", "not placed: no cell can take it"),
        (
            FindingCode::CallbacksRetried,
            row.callbacks_retried,
            "completed task",
            "waiting for a callback retry",
        ),
        (
            FindingCode::QuarantinedEntries,
            cluster.quarantined_entries.count,
            "message",
            "of the journal quarantined: not a valid entry",
        ),
    ];
    for (code, number, what, how) in numbers {
        if number > 0 {
            let many = if number == 1 { "" } else { "s" };
            found.push(Finding::new(code, format!("{number} {what}{many} {how}")));
        }
    }
    found
}
