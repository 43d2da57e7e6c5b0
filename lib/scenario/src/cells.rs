//! Cells of a recorded log: their reps, and containers that match the records that name them.

use std::collections::BTreeMap;
use std::time::Duration;

use machines::actual;
use machines::cell::Cell;
use machines::process::{Process, Slot};
use machines::task::{self, Task};
use projections::World;
use rep::Rep;
use schemas::cell::Presence;
use schemas::container::{Container, ContainerState, Instance, NetInfo, WorkKey};
use schemas::names::{CellId, IdGenerator, Incarnation};
use schemas::resources::Resources;
use schemas::subject::Position;
use schemas::{ActualLrpKey, Timestamp};
use scripted::{Behaviour, Scripted};

use super::times::Times;

/// Cell of a run.
pub(super) struct Node {
    pub(super) presence: Presence,
    /// Rep of the cell. `None` means that the cell is absent or its rep has not attached yet.
    pub(super) rep: Option<Rep>,
    /// Number of reps started so far. Messages to an earlier rep are lost.
    pub(super) life: u64,
    pub(super) containers: Scripted,
    /// Error of a failing self-test. `None` means that the self-test passes.
    pub(super) sick: Option<String>,
    /// Time of the next scheduled wake-up of the rep.
    pub(super) alarm: Option<Timestamp>,
    /// `true` if a turn of the rep is scheduled.
    pub(super) turn_due: bool,
}

impl Node {
    /// Creates a cell without containers and without a rep.
    pub(super) fn new(id: &CellId, presence: Presence) -> Self {
        Self {
            containers: containers(id, &presence),
            presence,
            rep: None,
            life: 0,
            sick: None,
            alarm: None,
            turn_due: false,
        }
    }

    /// Starts a rep that represents the cell.
    pub(super) fn begin(&mut self, id: &CellId, attached: Position, ids: IdGenerator) {
        let Presence { folder, incarnation, zone, stack, placement_tags, attributes, total } = &self.presence;
        let mut settings = rep::Settings::new(id.clone(), *folder, zone.clone(), stack.clone(), *total);
        settings.placement_tags.clone_from(placement_tags);
        settings.attributes = attributes.clone();
        self.rep = Some(Rep::new(settings, attached, *incarnation, ids));
        self.life += 1;
        self.alarm = None;
        self.turn_due = false;
    }

    /// Removes the rep and all containers. Returns `true` if the cell had a rep.
    pub(super) fn end(&mut self, id: &CellId) -> bool {
        self.containers = containers(id, &self.presence);
        self.rep.take().is_some()
    }

    /// Prepares the cell for a new run of its rep.
    pub(super) fn renew(&mut self, incarnation: Incarnation) {
        self.presence.incarnation = incarnation;
        self.sick = None;
    }
}

/// Returns the cells that the log records as present, each with the containers that its records name.
pub(super) fn nodes(world: &World, now: Timestamp, times: &Times) -> BTreeMap<CellId, Node> {
    let present = world.cells().filter(|(_, cell)| cell.present);
    let mut nodes: BTreeMap<CellId, Node> = present.map(|(id, cell)| (id.clone(), node(id, cell))).collect();
    let mut put = |by: &Instance, work: WorkKey, found: FoundContainer| {
        let Some(node) = nodes.get_mut(&by.cell_id) else { return };
        let FoundContainer { domain, resources, ports, state, passed } = found;
        let behaviour = times.behaviour_of(&work, passed);
        let (instance_guid, let_in_at) = (by.instance_guid, world.position());
        let isolation = node.presence.offer(&by.cell_id).isolation();
        let container =
            Container { instance_guid, work, domain, resources, admitted_at: let_in_at, isolation, state };
        node.containers.adopt(now, container, behaviour, ports);
    };
    for process in world.processes_from(None) {
        for slot in process.slots.iter() {
            of_slot(process, slot, now, &mut put);
        }
    }
    for task in world.tasks_from(None) {
        of_task(task, now, &mut put);
    }
    nodes
}

/// Returns the container runtime of a cell without containers.
fn containers(id: &CellId, presence: &Presence) -> Scripted {
    Scripted::new(id.as_str(), Behaviour::from_recipe).with_isolation(presence.offer(id).isolation())
}

fn node(id: &CellId, cell: &Cell) -> Node {
    Node { sick: cell.unhealthy.clone(), ..Node::new(id, cell.presence.clone()) }
}

/// State of a container that a record names.
struct FoundContainer {
    domain: schemas::names::Domain,
    resources: Resources,
    ports: Vec<u16>,
    state: ContainerState,
    /// Time that the container has spent in its state.
    passed: Duration,
}

type Put<'a> = &'a mut dyn FnMut(&Instance, WorkKey, FoundContainer);

fn of_slot(process: &Process, slot: &Slot, now: Timestamp, put: Put<'_>) {
    let key = ActualLrpKey::new(process.guid.clone(), slot.place.clone());
    let work = WorkKey::Lrp { key, epoch: process.epoch };
    let definition =
        process.desired.as_ref().and_then(|desired| desired.definition(&slot.place.definition_id));
    let found = |state, since| FoundContainer {
        domain: process.domain.clone(),
        resources: definition.map_or(Resources::for_container(0, 0, 0), |definition| definition.resources()),
        ports: definition.map_or_else(Vec::new, |definition| definition.ports.to_vec()),
        state,
        passed: now.since(since),
    };
    let running = |net: &NetInfo| ContainerState::Running(net.clone());
    if let Some(actual) = &slot.actual {
        match &actual.state {
            actual::State::Claimed { by, .. } => {
                put(by, work.clone(), found(ContainerState::Initializing, actual.since));
            }
            actual::State::Running { by, net, .. } => {
                put(by, work.clone(), found(running(net), actual.since));
            }
            actual::State::Unclaimed { .. } | actual::State::Crashed { .. } => {}
        }
    }
    if let Some(twin) = &slot.evacuating {
        put(&twin.by, work, found(running(&twin.net), twin.since));
    }
}

fn of_task(task: &Task, now: Timestamp, put: Put<'_>) {
    let Some(task::State::Running { by }) = &task.state else { return };
    let work = WorkKey::Task { task_guid: task.guid.clone(), epoch: task.epoch };
    let found = FoundContainer {
        domain: task.domain.clone(),
        resources: task.definition.resources(),
        ports: vec![],
        state: ContainerState::Running(NetInfo::default()),
        passed: now.since(task.since),
    };
    put(by, work, found);
}
