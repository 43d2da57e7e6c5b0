//! Conversion of query rows to the initial state of a plan.

use std::sync::Arc;

use machines::cell::Cell;
use machines::process::{self, Process};
use machines::request::Requests;
use schemas::actual::{self, StopReason};
use schemas::cause::Cause;
use schemas::container::{Instance, NetInfo, WorkKey};
use schemas::crash::Restart;
use schemas::definition::Definition;
use schemas::entry::Event;
use schemas::evaluation::{self, InitialStatus, Trigger};
use schemas::isolation::Isolation;
use schemas::message::WorkDefinition;
use schemas::names::{CellId, DecisionId};
use schemas::query::{
    CellRow, CellState, InstancePresence, InstanceRow, InstanceState, LrpRow, RolloutRow, TaskRow, TaskState,
};
use schemas::resources::Resources;
use schemas::rollout::{self, PauseReason};
use schemas::stamp::Stamp;
use schemas::{Place, Timestamp, desired, evacuating};
use uuid::Uuid;

use crate::auction::Item;
use crate::board::{BoardCell, Standing};

/// Converts a row to a cell for auctions. `None` if the cell is absent. The free resources of the cell are
/// its totals less the used resources in the log.
#[must_use]
pub fn board_cell(row: &CellRow) -> Option<BoardCell> {
    let standing = match row.state {
        CellState::Present | CellState::Unhealthy if row.evacuation_requested => Standing::Evacuating,
        CellState::Present | CellState::Unhealthy if row.cordoned => Standing::Cordoned,
        CellState::Present => Standing::Open,
        CellState::Evacuating => Standing::Evacuating,
        CellState::Unhealthy => Standing::Unhealthy,
        CellState::Silent => Standing::Silent,
        CellState::Absent => return None,
    };
    let presence = &row.presence;
    Some(BoardCell {
        id: row.cell_id.clone(),
        zone: presence.zone.clone(),
        stack: presence.stack.clone(),
        placement_tags: presence.placement_tags.clone(),
        attributes: presence.attributes.clone(),
        total: presence.total,
        free: presence.total.minus(row.used),
        standing,
    })
}

/// Converts a row to a cell with its ordinal. The ordinal determines the index of the cell's instance of a
/// global process. `None` if the cell has no ordinal.
pub(super) fn numbered_cell(row: &CellRow) -> Option<(u32, CellId, Cell)> {
    let nobody = DecisionId(Uuid::nil());
    let cell = Cell {
        presence: row.presence.clone(),
        present: row.state != CellState::Absent,
        evacuating: row.state == CellState::Evacuating,
        unhealthy: row.unhealthy.clone(),
        evacuation_requested: row.evacuation_requested,
        cordoned: row.cordoned,
        evacuation_started_at: None,
        absent_reason: row.absent_reason.clone(),
        since: row.since,
        cause: Cause { decision: nobody, correlation: nobody },
        requests: Requests::default(),
    };
    Some((row.ordinal?, row.cell_id.clone(), cell))
}

/// Rebuilds a process from its own row with its definitions, and from the rows of its instances. For
/// definitions outside the row, only the size is known. An index that a rollout has postponed is treated like
/// any other index.
#[must_use]
pub fn process(row: &LrpRow, instances: &[InstanceRow]) -> Process {
    let mut process = Process::new(row.process_guid.clone(), row.domain.clone(), row.epoch);
    let mut fold = |event: Event, at: Timestamp| {
        let decision = DecisionId(Uuid::nil());
        process::evolve(&mut process, &[event], &Stamp::root(decision, at));
    };
    for event in desired_events(row) {
        fold(Event::Desired(event), row.epoch.0);
    }
    for event in row.rollout.iter().filter(|_| row.desired).flat_map(|rollout| rollout_events(row, rollout)) {
        fold(Event::Rollout(event), row.changed_at);
    }
    for instance in instances {
        instance_events(instance).into_iter().for_each(|event| fold(event, instance.since));
    }
    add_evaluations(&mut process);
    process
}

/// Creates evaluations for the waiting instances, because the row of a process contains no evaluations.
fn add_evaluations(process: &mut Process) {
    let waits = process.unclaimed > process.unplaced;
    let pending = waits.then_some((Trigger::Convergence, InitialStatus::Pending));
    let blocked = InitialStatus::Blocked { reason: String::new(), eligibility: None };
    let blocked = (process.unplaced > 0).then_some((Trigger::Queued, blocked));
    for (number, (trigger, initial_status)) in (0..).zip(pending.into_iter().chain(blocked)) {
        let event = evaluation::Event::Created { number, trigger, initial_status, previous: None };
        let stamp = Stamp::root(DecisionId(Uuid::nil()), process.changed_at);
        process.evaluations.modify(|all| machines::evaluation::evolve(all, &event, &stamp));
    }
}

/// Converts a row to an item for a task that waits for a cell. `None` if the task does not wait, or if the
/// row does not contain the definition.
#[must_use]
pub fn task(row: &TaskRow) -> Option<Item> {
    let definition = row.definition.clone().filter(|_| row.state == TaskState::Pending)?;
    let key = WorkKey::Task { task_guid: row.task_guid.clone(), epoch: row.epoch };
    Some(Item::new(row.priority, row.epoch.0, key, WorkDefinition::Task(definition.into())))
}

fn desired_events(row: &LrpRow) -> Vec<desired::Event> {
    let Some(lrp) = row.to_desired() else { return vec![] };
    let (active, definition) = (lrp.definition_id.clone(), lrp.definition.clone());
    let mut events = vec![desired::Event::Desired(Box::new(lrp))];
    let others = row.sizes.iter().filter(|(id, _)| **id != active);
    events.extend(others.map(|(id, size)| {
        let known = row.definitions.get(id).cloned();
        desired::Event::DefinitionAdded {
            definition_id: id.clone(),
            definition: Arc::new(known.unwrap_or_else(|| definition_of_size(&definition, *size))),
        }
    }));
    let healthy = row.healthy_definition_id.clone();
    events.extend(healthy.map(|definition_id| desired::Event::HealthyChanged { definition_id }));
    events
}

/// Returns a definition with a known size. The other fields are copied from the active definition.
fn definition_of_size(active: &Definition, size: Resources) -> Definition {
    let ports = (1..=u16::try_from(size.ports).unwrap_or(u16::MAX)).collect();
    Definition { memory_mb: size.memory_mb, disk_mb: size.disk_mb, ports, ..active.clone() }
}

fn rollout_events(row: &LrpRow, rollout: &RolloutRow) -> Vec<rollout::Event> {
    let policies = row.policies.clone().unwrap_or_default();
    let policy = rollout.kind.policy(&policies).clone();
    let mut events = vec![rollout::Event::Started {
        kind: rollout.kind,
        target: rollout.target.clone(),
        rollback_to: rollout.rollback_to.clone().filter(|id| row.sizes.contains_key(id)),
        total: rollout.total.saturating_sub(rollout.replaced),
        policy: Box::new(policy),
        reason: rollout.reason.clone().unwrap_or_default(),
    }];
    if !rollout.in_replacement.is_empty() {
        events.push(rollout::Event::IndicesStarted { indices: rollout.in_replacement.clone() });
    }
    if rollout.is_completed() {
        events.push(rollout::Event::Completed {});
    } else if rollout.is_paused() {
        let reason = rollout.reason.clone().unwrap_or_default();
        events.push(rollout::Event::Paused { cause: PauseReason::Requested, reason });
    }
    events
}

fn instance_events(row: &InstanceRow) -> Vec<Event> {
    let place = Place::new(row.index, row.definition_id.clone());
    let holder = row.instance_guid.zip(row.cell_id.clone());
    let holder = holder.map(|(instance_guid, cell_id)| Instance { instance_guid, cell_id });
    let address = row.address.as_deref().unwrap_or_default().into();
    let net = NetInfo { address, ports: row.ports.as_slice().into() };
    if row.presence == InstancePresence::Evacuating {
        let expires_at = row.since + machines::evacuating::DEFAULT_TTL;
        let set = |by| Event::Evacuating(evacuating::Event::Set { place, by, net, expires_at });
        return holder.map(set).into_iter().collect();
    }
    let mut events = vec![actual::Event::Created { places: place.clone().into() }];
    let claimed = |by| actual::Event::Claimed { place: place.clone(), by, placement: None };
    match row.state {
        InstanceState::Unclaimed => {
            let error = row.placement_error.clone();
            let places = || place.clone().into();
            events.extend(error.map(|error| actual::Event::PlacementFailed {
                places: places(),
                error,
                explanation: None,
            }));
        }
        InstanceState::Claimed => events.extend(holder.map(claimed)),
        InstanceState::Running => {
            events.extend(holder.clone().map(claimed));
            events.extend(holder.map(|by| {
                let (place, isolation) = (place.clone(), Isolation::NONE);
                actual::Event::Started { place, by, net, isolation }
            }));
        }
        InstanceState::Crashed => {
            let crashed = |by| actual::Event::Crashed {
                place: place.clone(),
                by,
                reason: row.crash_reason.clone().unwrap_or_default(),
                crash_count: row.crash_count,
                exit_status: None,
                restart: row
                    .no_restart_reason
                    .map_or_else(|| row.restart_at.map_or(Restart::Immediate, Restart::At), Restart::Never),
                attempts: row.attempts,
            };
            events.extend(row.crashed_instance.clone().map(crashed));
        }
    }
    if row.stopping {
        events.push(actual::Event::StopRequested { places: place.into(), cause: StopReason::Removed });
    }
    events.into_iter().map(Event::Actual).collect()
}
