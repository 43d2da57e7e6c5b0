//! The rows that the facts make, as docs/reference/rows.md says what each field is.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::cluster::Role;
use schemas::crash::Restart;
use schemas::definition::Definition;
use schemas::evaluation::{Evaluation, Status};
use schemas::names::{CellId, Domain, ProcessGuid, TaskGuid};
use schemas::query::{
    CellRow, CellState, EvaluationRow, EvaluationSubject, Filter, InstancePresence, InstanceRow,
    InstanceState, LrpRow, RolloutRow, TaskRow, TaskState,
};
use schemas::resources::Resources;
use schemas::rollout::Kind;
use schemas::task::{CallbackResult, Outcome};
use schemas::{Place, Timestamp};

use super::evaluated::{self, is_open};
use super::facts::{Cell, Facts, Lrp, Process, Task, Twin};
use crate::checkers::rollouts::{Roll, Stands};
use crate::walls;

/// Of a cell nothing was heard for so long: it is SILENT.
const SILENT: u64 = 10_000;

/// How long ago each cell was heard, in milliseconds, as whoever answers says.
pub(super) type Heard = BTreeMap<CellId, Option<u64>>;

fn passes<T: PartialEq>(wanted: Option<&T>, is: &T) -> bool {
    wanted.is_none_or(|wanted| wanted == is)
}

/// The processes that pass a filter.
pub(super) fn lrps(facts: &Facts, filter: &Filter) -> Vec<LrpRow> {
    let is_on = |process: &Process, cell: &CellId| {
        let mut held = process.places().into_iter().flat_map(|place| process.containers(place));
        held.any(|held| held.by.cell_id == *cell)
    };
    let rows = facts.processes.iter().filter(|(guid, process)| {
        let on = filter.cell_id.as_ref().is_none_or(|cell| is_on(process, cell));
        let named = passes(filter.process_guid.as_ref(), guid);
        !process.is_gone() && named && on && passes(filter.domain.as_ref(), &process.domain)
    });
    rows.map(|(guid, process)| lrp(guid, process, filter.definitions)).collect()
}

/// A process, with its definition if that is asked for.
pub(super) fn lrp(guid: &ProcessGuid, process: &Process, whole: bool) -> LrpRow {
    let count = |state| {
        let all = process.lrps.values().filter(|lrp| lrp.state == state).count();
        u32::try_from(all).unwrap_or(u32::MAX)
    };
    let desired = process.desired.as_ref();
    LrpRow {
        process_guid: guid.clone(),
        domain: process.domain.clone(),
        epoch: process.epoch,
        version: process.version,
        last_decision: process.last_decision,
        desired: desired.is_some(),
        mode: desired.map(|desired| desired.mode),
        instances: desired.map_or(0, |desired| desired.instances),
        priority: desired.map(|desired| desired.priority),
        indices: desired.map(|desired| process.indices_of(desired)).unwrap_or_default(),
        running: count(InstanceState::Running),
        claimed: count(InstanceState::Claimed),
        unclaimed: count(InstanceState::Unclaimed),
        crashed: count(InstanceState::Crashed),
        routes: desired.map(|desired| desired.routes.clone()).unwrap_or_default(),
        annotation: desired.map(|desired| desired.annotation.clone()).unwrap_or_default(),
        definition_id: desired.map(|desired| desired.definition_id.clone()),
        healthy_definition_id: process.healthy.clone(),
        definition_ids: process.definitions.iter().map(|(id, _)| id.clone()).collect(),
        sizes: process.definitions.iter().map(|(id, what)| (id.clone(), takes(what))).collect(),
        policies: desired.filter(|_| whole).map(|desired| desired.policies.clone()),
        rollout: process.roll.as_ref().map(rollout),
        definitions: process
            .definitions
            .iter()
            .filter(|_| whole)
            .map(|(id, definition)| (id.clone(), Definition::clone(definition)))
            .collect(),
        changed_at: process.changed_at,
    }
}

/// What one container takes of a cell.
fn takes(definition: &Definition) -> Resources {
    let ports = u32::try_from(definition.ports.len()).unwrap_or(u32::MAX);
    Resources { memory_mb: definition.memory_mb, disk_mb: definition.disk_mb, containers: 1, ports }
}

/// The rollout of a process, as it is shown.
fn rollout(roll: &Roll) -> RolloutRow {
    let status = match (roll.kind, roll.stands) {
        (Kind::Update, Stands::Rolls) => "updating",
        (Kind::Update, Stands::Paused) => "paused",
        (Kind::Update, Stands::Over) => "completed",
        (Kind::Rollback, Stands::Rolls) => "rollback_started",
        (Kind::Rollback, Stands::Paused) => "rollback_paused",
        (Kind::Rollback, Stands::Over) => "rollback_completed",
    };
    let in_replacement = roll.turns.keys().filter(|index| roll.turn(**index).is_some());
    RolloutRow {
        number: roll.number,
        kind: roll.kind,
        status: status.into(),
        reason: Some(roll.reason.clone()).filter(|reason| !reason.is_empty()),
        target: roll.target.clone(),
        rollback_to: roll.back.clone(),
        total: roll.total,
        replaced: roll.replaced,
        in_replacement: in_replacement.copied().collect(),
        stalled: roll.stalled.keys().copied().collect(),
        failed: roll.failed.iter().copied().collect(),
        started_at: roll.started_at,
        since: roll.since,
    }
}

/// The instances that pass a filter: of one that is being evacuated the record that counts, or both.
pub(super) fn instances(facts: &Facts, filter: &Filter) -> Vec<InstanceRow> {
    let of = facts.processes.iter().filter(|(guid, process)| {
        passes(filter.process_guid.as_ref(), guid) && passes(filter.domain.as_ref(), &process.domain)
    });
    let rows = of.flat_map(|(guid, process)| {
        process.places().into_iter().flat_map(move |place| records(guid, process, place, filter.all))
    });
    rows.filter(|row| filter.cell_id.is_none() || row.cell_id == filter.cell_id).collect()
}

/// The records of a place.
pub(super) fn records(guid: &ProcessGuid, process: &Process, place: &Place, both: bool) -> Vec<InstanceRow> {
    let own = process.lrps.get(place);
    let twin = process.twins.get(place);
    let serves = own.is_some_and(|lrp| match lrp.state {
        InstanceState::Running | InstanceState::Crashed => true,
        InstanceState::Unclaimed | InstanceState::Claimed => false,
    });
    let own = own.filter(|_| both || serves || twin.is_none());
    let twin = twin.filter(|_| both || !serves);
    let own = own.map(|lrp| of_lrp(guid, process, place, lrp));
    own.into_iter().chain(twin.map(|twin| of_twin(guid, process, place, twin))).collect()
}

fn of_lrp(guid: &ProcessGuid, process: &Process, place: &Place, lrp: &Lrp) -> InstanceRow {
    let by = lrp.by.as_ref().map(|held| &held.by);
    let (restart_at, declined) = match lrp.restart {
        Some(Restart::Immediate) => (Some(lrp.since), None),
        Some(Restart::At(due)) => (Some(due), None),
        Some(Restart::Never(why)) => (None, Some(why)),
        None => (None, None),
    };
    InstanceRow {
        process_guid: guid.clone(),
        index: place.index,
        domain: process.domain.clone(),
        epoch: process.epoch,
        presence: InstancePresence::Ordinary,
        state: lrp.state,
        instance_guid: by.map(|by| by.instance_guid),
        cell_id: by.map(|by| by.cell_id.clone()),
        stopping: lrp.stopping,
        address: lrp.net.as_ref().map(|net| net.address.to_string()),
        ports: lrp.net.as_ref().map(|net| net.ports.to_vec()).unwrap_or_default(),
        isolation: by.filter(|_| lrp.net.is_some()).map(|by| walls::of(&by.cell_id)),
        placement_error: lrp.error.clone(),
        crash_count: lrp.crashes,
        crash_reason: lrp.reason.clone(),
        crashed_instance: lrp.crashed_in.clone(),
        restart_at,
        no_restart_reason: declined,
        attempts: lrp.attempts,
        definition_id: place.definition_id.clone(),
        since: lrp.since,
        modification_tag: process.tag(place),
    }
}

fn of_twin(guid: &ProcessGuid, process: &Process, place: &Place, twin: &Twin) -> InstanceRow {
    InstanceRow {
        process_guid: guid.clone(),
        index: place.index,
        domain: process.domain.clone(),
        epoch: process.epoch,
        presence: InstancePresence::Evacuating,
        state: InstanceState::Running,
        instance_guid: Some(twin.by.by.instance_guid),
        cell_id: Some(twin.by.by.cell_id.clone()),
        stopping: false,
        address: Some(twin.net.address.to_string()),
        ports: twin.net.ports.to_vec(),
        isolation: None,
        placement_error: None,
        crash_count: 0,
        crash_reason: None,
        crashed_instance: None,
        restart_at: None,
        no_restart_reason: None,
        attempts: None,
        definition_id: place.definition_id.clone(),
        since: twin.since,
        modification_tag: process.tag(place),
    }
}

/// The tasks that pass a filter.
pub(super) fn tasks(facts: &Facts, filter: &Filter) -> Vec<TaskRow> {
    let rows = facts.tasks.iter().filter_map(|(guid, task)| task_row(guid, task, filter.definitions));
    rows.filter(|row| {
        let on = filter.cell_id.is_none() || row.cell_id == filter.cell_id;
        on && passes(filter.domain.as_ref(), &row.domain)
    })
    .collect()
}

/// A task; none of one that is deleted.
pub(super) fn task_row(guid: &TaskGuid, task: &Task, whole: bool) -> Option<TaskRow> {
    let outcome = task.ended.as_ref().map(|(_, outcome)| outcome);
    let (failed, failure_reason, result) = match outcome {
        Some(Outcome::Succeeded { result }) => (Some(false), None, Some(result.clone())),
        Some(Outcome::Failed { reason }) => (Some(true), Some(reason.clone()), None),
        None => (None, None, None),
    };
    Some(TaskRow {
        task_guid: guid.clone(),
        domain: task.domain.clone(),
        epoch: task.epoch,
        version: task.version,
        last_decision: task.last_decision,
        state: task.state?,
        instance_guid: task.by.as_ref().map(|by| by.instance_guid),
        cell_id: task.by.as_ref().map(|by| by.cell_id.clone()),
        failed,
        failure_reason,
        result,
        placement_error: task.error.clone(),
        callback: task.callback.clone(),
        first_completed_at: task.ended.as_ref().map(|(at, _)| *at),
        since: task.since,
        annotation: task.definition.annotation.clone(),
        priority: task.definition.priority,
        definition: whole.then(|| task.definition.clone()),
    })
}

/// The evaluations that pass a filter, of processes first.
pub(super) fn evaluations(facts: &Facts, filter: &Filter, now: Timestamp) -> Vec<EvaluationRow> {
    let auctioneer = facts.leaders.contains_key(&Role::Auctioneer);
    let row = move |subject: EvaluationSubject, domain: &Domain, of: &Evaluation, left: u32| {
        let state = evaluated::state_of(of, now, auctioneer);
        EvaluationRow {
            subject,
            domain: domain.clone(),
            state,
            evaluation: of.clone(),
            remaining: left,
            queue_position: None,
        }
    };
    let of_processes = facts.processes.iter().flat_map(move |(guid, process)| {
        let subject = || EvaluationSubject::Process(guid.clone());
        process.evaluations.iter().map(move |of| row(subject(), &process.domain, of, process.left(of)))
    });
    let of_tasks = facts.tasks.iter().flat_map(move |(guid, task)| {
        let subject = || EvaluationSubject::Task(guid.clone());
        task.evaluations.iter().map(move |of| row(subject(), &task.domain, of, u32::from(is_open(of))))
    });
    let named = |subject: &EvaluationSubject| match subject {
        EvaluationSubject::Process(guid) => passes(filter.process_guid.as_ref(), guid),
        EvaluationSubject::Task(_) => filter.process_guid.is_none(),
    };
    let all = of_processes.chain(of_tasks);
    all.filter(|row| named(&row.subject) && passes(filter.domain.as_ref(), &row.domain)).collect()
}

/// The cells that pass a filter. What they take is none where nobody can say it.
pub(super) fn cells(facts: &Facts, filter: &Filter, heard: &Heard) -> Vec<(CellRow, bool)> {
    let named = facts.cells.iter().filter(|(id, _)| passes(filter.cell_id.as_ref(), id));
    named.map(|(id, cell)| cell_row(facts, id, cell, heard)).collect()
}

/// A cell, and whether what it takes is known.
pub(super) fn cell_row(facts: &Facts, id: &CellId, cell: &Cell, heard: &Heard) -> (CellRow, bool) {
    let on = |place: &Place, process: &Process| {
        process.containers(place).filter(|held| held.by.cell_id == *id).map(|held| held.takes).collect()
    };
    let of_lrps: Vec<Vec<Option<Resources>>> = facts
        .processes
        .values()
        .flat_map(|process| process.places().into_iter().map(move |place| on(place, process)))
        .filter(|held: &Vec<_>| !held.is_empty())
        .collect();
    let runs = |task: &&Task| {
        task.state == Some(TaskState::Running) && task.by.as_ref().is_some_and(|by| by.cell_id == *id)
    };
    let of_tasks: Vec<Resources> =
        facts.tasks.values().filter(runs).map(|task| task.definition.resources()).collect();
    let known = of_lrps.iter().flatten().all(Option::is_some);
    let all = of_lrps.iter().flatten().flatten().chain(&of_tasks);
    let used = all.fold(Resources::default(), |sum, one| Resources {
        memory_mb: sum.memory_mb + one.memory_mb,
        disk_mb: sum.disk_mb + one.disk_mb,
        containers: sum.containers + one.containers,
        ports: sum.ports + one.ports,
    });
    let heard_ms_ago = heard.get(id).copied().flatten();
    let row = CellRow {
        cell_id: id.clone(),
        presence: cell.presence.clone(),
        state: state_of(cell, heard_ms_ago),
        evacuation_requested: cell.wanted_empty,
        cordoned: cell.cordoned,
        ordinal: facts.ordinals.iter().find(|(_, known)| *known == id).map(|(ordinal, _)| *ordinal),
        absent_reason: cell.gone.clone(),
        unhealthy: cell.unhealthy.clone(),
        heartbeat_ms_ago: heard_ms_ago,
        instances: u32::try_from(of_lrps.len()).unwrap_or(u32::MAX),
        tasks: u32::try_from(of_tasks.len()).unwrap_or(u32::MAX),
        used,
        since: cell.since,
    };
    (row, known)
}

fn state_of(cell: &Cell, heard: Option<u64>) -> CellState {
    if !cell.present {
        CellState::Absent
    } else if heard.is_some_and(|ago| ago >= SILENT) {
        CellState::Silent
    } else if cell.evacuating {
        CellState::Evacuating
    } else if cell.unhealthy.is_none() {
        CellState::Present
    } else {
        CellState::Unhealthy
    }
}

/// What is counted of all, by name: in the row of the cluster and in that of its health.
pub(super) fn counted(facts: &Facts) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let mut add = |name: String, number: u64| *counts.entry(name).or_default() += number;
    for state in InstanceState::ALL {
        add(format!("instances {state}"), 0);
    }
    for state in TaskState::ALL {
        add(format!("tasks {state}"), 0);
    }
    for name in ["lrps", "wanted", "unplaced", "tasks unplaced", "blocked", "called again", "cells", "absent"]
    {
        add(name.into(), 0);
    }
    for process in facts.processes.values() {
        add("lrps".into(), u64::from(process.desired.is_some()));
        add("wanted".into(), process.desired.as_ref().map_or(0, |desired| u64::from(desired.instances)));
        add("blocked".into(), blocked(&process.evaluations));
        for lrp in process.lrps.values() {
            add(format!("instances {}", lrp.state), 1);
            add("unplaced".into(), u64::from(lrp.error.is_some()));
        }
    }
    for task in facts.tasks.values() {
        add("blocked".into(), blocked(&task.evaluations));
        let Some(state) = task.state else { continue };
        add(format!("tasks {state}"), 1);
        add("tasks unplaced".into(), u64::from(task.error.is_some()));
        let again = task.callback.as_ref().is_some_and(|callback| match callback.last {
            CallbackResult::Answered(408 | 429 | 500..=599) | CallbackResult::Failed(_) => true,
            CallbackResult::Answered(_) | CallbackResult::Refused(_) => false,
        });
        add("called again".into(), u64::from(again));
    }
    for cell in facts.cells.values() {
        add("cells".into(), 1);
        add("absent".into(), u64::from(!cell.present));
    }
    counts
}

fn blocked(evaluations: &[Evaluation]) -> u64 {
    evaluations.iter().filter(|one| matches!(one.status, Status::Blocked { .. })).count() as u64
}

/// Whether a domain is fresh at a time; none: it ends then, as far as clocks can tell.
pub(super) fn is_fresh(until: Option<Timestamp>, now: Timestamp, slack: Duration) -> Option<bool> {
    let Some(until) = until else { return Some(true) };
    if now + slack < until {
        Some(true)
    } else if until + slack <= now {
        Some(false)
    } else {
        None
    }
}
