//! The cluster at rest: desired equals actual, index by index, and nothing else is left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use machines::actual::{Actual, State};
use machines::process::{Process, Slot};
use machines::task;
use projections::reader::{self, ReadMessage};
use projections::{Reader, WorkRef, World};
use schemas::action::Action;
use schemas::container::{Container, ContainerState, WorkKey};
use schemas::definition::Mode;
use schemas::names::{CellId, Domain, ProcessGuid};
use schemas::resources::{Constraint, Resources};
use schemas::rollout::Phase;
use schemas::spec::ClientCommand;
use schemas::{ActualLrpKey, Entry, Place, Position, Timestamp};
use scripted::Scripted;

use crate::checkers::{Checkers, tables};
use crate::cluster::Cluster;
use crate::coverage::Situation;
use crate::generate::rollouts;
use crate::invariants::{Invariant as I, Violation};
use crate::journal::SimJournal;
use crate::layout;
use crate::layout::cell_id;
use crate::requests::{Request, Requests, Response, desired};
use crate::shape::Node;

/// Number of observations of work in progress, and the interval between two of them.
const OBSERVATIONS: usize = 20;
const INTERVAL: Duration = Duration::from_millis(300);
/// Time for which an instance that crashes by design may be between two states, in addition to its start time.
/// Also the time after the last fault in which a fault may still stop an instance.
const SETTLING: Duration = Duration::from_secs(60);
/// Maximum delay of a due restart. Convergence runs every 30 s.
const LATE: Duration = Duration::from_secs(35);
/// Maximum time for which more than two containers of one ActualLRP run. A cell is lost after 15 s and some
/// probes, and its rep compares its containers with the log every 30 s after it is back.
const CROWDED: Duration = Duration::from_secs(90);
/// Time after which the owner of a completed task has been called.
const CALLED: Duration = Duration::from_secs(40);
/// Time after its completion for which a task may be remembered.
const TASK_RETENTION: Duration = Duration::from_secs(10).saturating_add(task::COMPLETED_RETENTION);

impl Cluster {
    /// Records the work that waits while a cell has room for it.
    pub(crate) fn note_idle_room(&mut self) {
        self.checkers.idle = self.checkers.idle_room(&self.cells);
    }

    /// Observes the nodes several times. A counter that never is zero leaks, and so do used resources that
    /// never equal the containers.
    pub(crate) fn check_leaks(&mut self) {
        let mut least: BTreeMap<(Node, &'static str), usize> = BTreeMap::new();
        let mut oversized = self.oversized_collections();
        let mut wrong = self.checkers.wrongly_used(&self.cells);
        for nth in 0..OBSERVATIONS {
            for node in self.all_nodes() {
                for (name, count) in self.place(node).books() {
                    let known = least.entry((node, name)).or_insert(count);
                    *known = if nth == 0 { count } else { count.min(*known) };
                }
            }
            self.until(self.now + INTERVAL);
            let now_wrong = self.checkers.wrongly_used(&self.cells);
            wrong.retain(|cell, _| now_wrong.contains_key(cell));
            let now_oversized = self.oversized_collections();
            oversized.retain(|key, _| now_oversized.contains_key(key));
        }
        for ((node, name), count) in least.into_iter().filter(|(_, count)| *count > 0) {
            self.violated(I::NothingKept, format!("{node} has {count} {name} at rest"));
        }
        oversized.into_values().for_each(|detail| self.violated(I::NothingKept, detail));
        wrong.into_values().for_each(|detail| self.violated(I::NothingLeaks, detail));
    }

    /// Checks the cluster after minutes without faults.
    pub(crate) fn check_rest(&mut self) {
        let leaders = (self.leading_bbss().len(), self.leading_auctioneers());
        if leaders != (1, 1) {
            self.violated(I::Quiet, format!("{leaders:?} BBSs and auctioneers lead at rest"));
        }
        self.checkers.check_rest(&self.cells, self.now);
        self.checkers.check_requests(&self.requests);
        let violations = match entries(&self.journal) {
            Ok(entries) => {
                let mut violations = self.different_worlds(&entries);
                let Self { projectors, checkers, .. } = self;
                violations.extend(tables::check(&entries, projectors, &mut |seen| checkers.met(seen)));
                violations
            }
            Err(violation) => vec![violation],
        };
        self.checkers.violations.extend(violations);
    }

    fn different_worlds(&self, entries: &[(Position, Entry)]) -> Vec<Violation> {
        let worlds: Vec<&World> =
            self.all_nodes().into_iter().filter_map(|node| self.place(node).world()).collect();
        different_worlds(entries, &self.checkers.world, &worlds)
    }
}

impl Checkers {
    /// Records that no fault occurs from now on.
    pub fn faults_ended(&mut self, now: Timestamp) {
        self.at_peace_since = Some(now);
    }

    fn check_rest(&mut self, cells: &[Scripted], now: Timestamp) {
        let mut found = vec![];
        let mut violate = |invariant, detail| found.push(Violation { invariant, detail });
        let live = cells.len() - self.gone.len();
        let in_order =
            |cell: &machines::cell::Cell| cell.present && cell.unhealthy.is_none() && !cell.evacuating;
        let count = self.world.cells().filter(|(_, cell)| in_order(cell)).count();
        if count != live {
            violate(I::Quiet, format!("{count} of {live} cells are present, healthy and not evacuating"));
        }
        let crowded = self.truth.crowded(now);
        if crowded > CROWDED {
            violate(I::NoCrowd, format!("more than two containers for {crowded:?}"));
        }
        let containers: Vec<Container> = cells.iter().flat_map(Scripted::list).collect();
        let mut running: BTreeMap<ActualLrpKey, u32> = BTreeMap::new();
        for container in &containers {
            if let Some(detail) = wrong_container(&self.world, container) {
                violate(I::NothingLeaks, detail);
            }
            if let WorkKey::Lrp { key, .. } = &container.work {
                *running.entry(key.clone()).or_default() += 1;
            }
        }
        let idle = self.idle_room(cells);
        self.idle.intersection(&idle).for_each(|work| violate(I::NoIdleRoom, work.clone()));
        for process in self.world.processes_from(None).filter(|process| !process.is_gone()) {
            if let Some(detail) = unfinished_rollout(&self.world, process) {
                violate(I::WorkEnds, detail);
            }
            if let Some(detail) = self.missing_instance(process) {
                violate(I::DesiredIsActual, detail);
            }
            for slot in process.slots.iter() {
                let key = ActualLrpKey::new(process.guid.clone(), slot.place.clone());
                let count = running.remove(&key).unwrap_or(0);
                if !self.is_at_rest(process, slot, count, now) {
                    violate(
                        I::DesiredIsActual,
                        format!("{} is {slot:?} with {count} containers", key.with_definition()),
                    );
                }
            }
        }
        for (key, count) in running {
            violate(
                I::NothingLeaks,
                format!("{count} containers of {} have no record", key.with_definition()),
            );
        }
        for task in self.world.tasks_from(None) {
            let Some(state) = &task.state else { continue };
            let completed = task.completed().map(|done| done.first_completed_at);
            if completed.is_none_or(|at| at + TASK_RETENTION <= now) {
                violate(I::WorkEnds, format!("task {} is {state:?}", task.guid));
            }
            let owner = task.definition.completion_callback_url.is_some();
            let late = completed.is_some_and(|at| at + CALLED < now);
            if owner && late && !self.calls.was_called(&task.guid, task.epoch) {
                violate(I::OwnerCalled, format!("the owner of task {} was not called", task.guid));
            }
        }
        for (guid, number) in self.launches.waiting() {
            violate(I::DispatchedOnce, format!("dispatch {number} of {guid} still waits"));
        }
        self.violations.append(&mut found);
    }

    /// Returns `true` if the records of a slot and its number of containers are right at rest.
    fn is_at_rest(&self, process: &Process, slot: &Slot, count: u32, now: Timestamp) -> bool {
        let slack = self.clock_slack;
        let key = ActualLrpKey::new(process.guid.clone(), slot.place.clone());
        let by_design = is_crashing(&self.world, &key);
        let since = slot.actual.as_ref().map_or(now, |lrp| lrp.since);
        let right = match slot.actual.as_ref().map(|lrp| &lrp.state) {
            Some(State::Running { .. }) => count == 1,
            Some(State::Crashed { .. }) => {
                let before = self.at_peace_since.is_some_and(|peace| since <= peace + SETTLING + slack);
                let waits = process.slot_due(slot).is_none_or(|due| now < due + LATE + slack);
                count == 0 && (by_design || before) && waits
            }
            Some(State::Unclaimed { placement_error: Some(_) }) => count == 0,
            Some(State::Claimed { .. }) => count == 1 && hangs(&self.world, &key),
            Some(State::Unclaimed { placement_error: None }) | None => false,
        };
        let restarts =
            by_design && count <= 1 && now.since(since) <= SETTLING + slack + start_time(&self.world, &key);
        (right || restarts) && process.is_desired(&slot.place) && slot.evacuating.is_none()
    }

    /// Returns a desired index without an instance. A global process desires an index on each cell that fits.
    fn missing_instance(&self, process: &Process) -> Option<String> {
        let desired = process.desired.as_ref()?;
        let missing = desired.rolling_indices().find(|index| process.actuals_at(*index).next().is_none());
        if let Some(index) = missing {
            return Some(format!("{}/{index} has no instance", process.guid));
        }
        let cells = desired.cells.as_ref()?;
        let constraint = &desired.definition(&desired.active_definition_id)?.constraint;
        let fits = |at: &usize| constraint.mismatch(&self.shape.cell(*at).offer()).is_none();
        let wanted = (0..self.shape.cells).filter(|at| !self.gone.contains(at)).filter(fits).map(cell_id);
        let wanted: BTreeSet<CellId> = wanted.collect();
        let known: BTreeSet<CellId> = cells.values().map(|cell| cell.cell_id.clone()).collect();
        (known != wanted).then(|| format!("{} is on {known:?}, expected {wanted:?}", process.guid))
    }

    /// Returns the cells whose used resources differ between the log, its records and the containers.
    fn wrongly_used(&self, cells: &[Scripted]) -> BTreeMap<usize, String> {
        let sum = |sizes: Vec<Resources>| sizes.into_iter().fold(Resources::default(), Resources::plus);
        let used = |cell: usize| {
            let used = self.world.used_on(&cell_id(cell));
            let records = sum(sizes_on(&self.world, &cell_id(cell)));
            let containers = sum(cells[cell].list().iter().map(|one| one.resources).collect());
            let detail =
                || format!("cell {cell} uses {used:?}; records {records:?}, containers {containers:?}");
            (records != used || records != containers).then(|| (cell, detail()))
        };
        (0..cells.len()).filter_map(used).collect()
    }

    /// Returns the desired processes that were rolled out in this epoch.
    pub(crate) fn rolled_out(&self) -> Vec<(ProcessGuid, Domain)> {
        let rolled = self.world.processes_from(None).filter(|process| process.rollout.is_some());
        rolled.map(|process| (process.guid.clone(), process.domain.clone())).collect()
    }

    /// Returns the processes whose instances restart after a constant delay.
    pub(crate) fn with_constant_delay(&self) -> Vec<(ProcessGuid, Domain)> {
        let constant = self.world.processes_from(None).filter(|process| {
            process.desired.as_ref().is_some_and(|desired| desired.policies.restart.delay_ms.is_some())
        });
        constant.map(|process| (process.guid.clone(), process.domain.clone())).collect()
    }

    pub(crate) fn cordoned(&self) -> Vec<CellId> {
        self.world.cells().filter(|(_, cell)| cell.cordoned).map(|(id, _)| id.clone()).collect()
    }

    /// Returns the waiting work that a cell has room for.
    fn idle_room(&mut self, cells: &[Scripted]) -> BTreeSet<String> {
        let live: Vec<usize> = (0..cells.len()).filter(|cell| !self.gone.contains(cell)).collect();
        let free = |cell: usize| {
            let total = self.shape.cell(cell).total;
            cells[cell].list().iter().fold(total, |free, one| free.minus(one.resources))
        };
        let mut idle = BTreeSet::new();
        let mut waits = false;
        for work in self.world.pending_work() {
            let Some((constraint, size, since)) = demands(&self.world, work) else { continue };
            let only = match work {
                WorkRef::Lrp(key) => only_cell(&self.world, key),
                WorkRef::Task(_) => None,
            };
            let fits = |cell: &&usize| {
                let id = cell_id(**cell);
                constraint.mismatch(&self.shape.cell(**cell).offer()).is_none()
                    && layout::meets_isolation(&constraint.isolation, &id)
                    && layout::unmet(constraint, &id).is_none()
                    && only.is_none_or(|only| *only == id)
                    && self.world.cell(&id).is_some_and(|cell| !cell.cordoned)
                    && free(**cell).fits(size)
            };
            // Limits per cell or rack depend on the other instances of the process.
            if live.iter().any(|cell| fits(&cell)) && !layout::is_limited(constraint) {
                idle.insert(format!("{work:?} waits since {since}"));
            } else {
                waits = true;
            }
        }
        if waits {
            self.coverage.met(Situation::BlockedAtRest);
        }
        idle
    }

    /// Compares answers to clients with the log, and their commands with the desired processes.
    fn check_requests(&mut self, requests: &Requests) {
        let mut in_order: BTreeMap<(Position, String, u64), &ClientCommand> = BTreeMap::new();
        for (request, asked) in requests.all() {
            let carried_out = self.log.carried_out(request);
            let wrong = match asked.answer {
                // A repeated dispatch is answered with the first one.
                Response::Done(ack) => {
                    !is_domain(asked)
                        && !carried_out.iter().any(|one| {
                            (one.version == ack.version || has_key(asked)) && one.position <= ack.position
                        })
                }
                Response::Refused(_) => asked.copies <= 1 && !carried_out.is_empty(),
                Response::Unanswered => false,
            };
            if wrong {
                let detail = format!(
                    "request {request} was answered {:?}, and the log has {carried_out:?}",
                    asked.answer
                );
                self.violations.push(Violation { invariant: I::ToldTrue, detail });
            }
            if asked.copies > 1 && !carried_out.is_empty() && matches!(asked.answer, Response::Done(_)) {
                self.coverage.met(Situation::RequestRepeated);
            }
            for one in carried_out {
                in_order.insert((one.position, one.aggregate.clone(), one.version), &asked.command);
            }
        }
        let expected = desired(in_order.into_values());
        let found: BTreeMap<ProcessGuid, Option<u32>> = self
            .world
            .processes_from(None)
            .filter_map(|process| {
                let desired = process.desired.as_ref()?;
                let instances = (desired.mode() == Mode::Replicated).then_some(desired.instances);
                Some((process.guid.clone(), instances))
            })
            .collect();
        if expected != found {
            let detail = format!("{found:?} are desired, and clients desired {expected:?}");
            self.violations.push(Violation { invariant: I::AsAsked, detail });
        }
    }
}

const fn is_domain(asked: &Request) -> bool {
    matches!(asked.command, ClientCommand::DomainUpsert { .. })
}

fn has_key(asked: &Request) -> bool {
    matches!(&asked.command, ClientCommand::ParameterisedDispatch { dispatch, .. } if dispatch.key.is_some())
}

/// Returns a rollout to a working definition that has not ended, although its process has room.
fn unfinished_rollout(world: &World, process: &Process) -> Option<String> {
    let (desired, rollout) = (process.desired.as_ref()?, process.rollout.as_ref()?);
    let active = &desired.active_definition_id;
    let key = ActualLrpKey::new(process.guid.clone(), Place::new(0, active.clone()));
    let works = !is_crashing(world, &key) && !hangs(world, &key);
    let mut instances = process.slots.iter().filter_map(|slot| slot.actual.as_ref());
    let waits = instances.any(Actual::has_placement_error);
    // An old copy of a client's command may pause any rollout, and retries of a slow definition become rare.
    let slow = !rollout.stalled.is_empty() && !rollouts::is_mended(active);
    let held = slow || rollout.phase == Phase::Paused;
    let over = rollout.is_over() && process.slots.iter().all(|slot| slot.place.definition_id == *active);
    (works && !waits && !held && !over).then(|| format!("{}: {rollout:?}, {:?}", process.guid, process.slots))
}

/// Returns a description of a container that must not exist at rest.
fn wrong_container(world: &World, container: &Container) -> Option<String> {
    let work = &container.work;
    let (epoch, restarts, hangs) = match work {
        WorkKey::Lrp { key, .. } => {
            let process = world.process(&key.process_guid);
            (process.map(|process| process.epoch), is_crashing(world, key), hangs(world, key))
        }
        WorkKey::Task { task_guid, .. } => (world.task(task_guid).map(|task| task.epoch), false, false),
    };
    let is_lrp = matches!(work, WorkKey::Lrp { .. });
    let right = match &container.state {
        ContainerState::Running(_) => is_lrp,
        ContainerState::Initializing => hangs,
        ContainerState::Reserved | ContainerState::Created | ContainerState::Completed(_) => false,
    };
    let wrong = epoch != Some(work.epoch()) || !right && !restarts;
    wrong.then(|| format!("{work} has a container in state {:?}, current epoch {epoch:?}", container.state))
}

/// Returns the resources of the records on a cell.
fn sizes_on(world: &World, cell: &CellId) -> Vec<Resources> {
    let mut sizes = vec![];
    for process in world.processes_from(None) {
        let Some(desired) = &process.desired else { continue };
        for slot in process.slots.iter().filter(|slot| slot.holders().any(|by| by.cell_id == *cell)) {
            let definition = desired.definition(&slot.place.definition_id);
            sizes.extend(definition.map(|definition| definition.resources()));
        }
    }
    for task in world.tasks_from(None) {
        let runs = matches!(&task.state, Some(task::State::Running { by }) if by.cell_id == *cell);
        sizes.extend(runs.then(|| task.definition.resources()));
    }
    sizes
}

/// Returns `true` if the instances of a definition crash by design.
fn is_crashing(world: &World, key: &ActualLrpKey) -> bool {
    script(world, key).iter().any(|arg| {
        ["run=", "exit=", "fail-create="].iter().any(|prefix| arg.starts_with(prefix))
            || arg == "never-healthy"
    })
}

/// Returns `true` if the containers of a definition are never created, by design.
fn hangs(world: &World, key: &ActualLrpKey) -> bool {
    script(world, key).iter().any(|arg| arg == "hang-create")
}

/// Returns the time from the claim of an instance until it runs, by design.
fn start_time(world: &World, key: &ActualLrpKey) -> Duration {
    let millis = |arg: &String| {
        let time = arg.strip_prefix("create=").or_else(|| arg.strip_prefix("start="))?;
        time.strip_suffix("ms")?.parse::<u64>().ok()
    };
    Duration::from_millis(script(world, key).iter().filter_map(millis).sum())
}

/// Returns the script of the containers of an instance.
fn script<'a>(world: &'a World, key: &ActualLrpKey) -> &'a [String] {
    let desired = world.process(&key.process_guid).and_then(|process| process.desired.as_ref());
    let definition = desired.and_then(|desired| desired.definition(&key.place.definition_id));
    match definition.map(|definition| &*definition.action) {
        Some(Action::Run(run)) => &run.args,
        _ => &[],
    }
}

/// Returns the only cell that may run an index of a global process.
pub(super) fn only_cell<'a>(world: &'a World, key: &ActualLrpKey) -> Option<&'a CellId> {
    world.process(&key.process_guid)?.desired.as_ref()?.only_cell(key.place.index)
}

/// Returns the demands of waiting work, and the time since which it waits.
fn demands<'a>(world: &'a World, work: &WorkRef) -> Option<(&'a Constraint, Resources, Timestamp)> {
    match work {
        WorkRef::Lrp(key) => {
            let process = world.process(&key.process_guid)?;
            let lrp = process.actual(&key.place).filter(|_| process.is_desired(&key.place))?;
            let definition = process.desired.as_ref()?.definition(&key.place.definition_id)?;
            Some((&definition.constraint, definition.resources(), lrp.since))
        }
        WorkRef::Task(guid) => {
            let task = world.task(guid)?;
            Some((&task.definition.constraint, task.definition.resources(), task.since))
        }
    }
}

/// Returns the log as every service reads it.
fn entries(journal: &SimJournal) -> Result<Vec<(Position, Entry)>, Violation> {
    let mut reader = Reader::default();
    let all = (1..=journal.end().0).map(Position);
    let stored = all.filter_map(|position| Some((position, journal.get(position)?)));
    let entries = stored.map(|(position, stored)| {
        match reader.read(position, &stored.subject.to_string(), &stored.bytes) {
            Ok(ReadMessage::Entry(entry)) => Ok((position, entry)),
            Ok(ReadMessage::Quarantined(_)) => Ok((position, reader::empty_entry())),
            Err(error) => Err(Violation { invariant: I::OnePicture, detail: format!("{position}: {error}") }),
        }
    });
    entries.collect()
}

/// Compares the Worlds of services with a fold of the log, half of it from a snapshot.
fn different_worlds(entries: &[(Position, Entry)], reference: &World, worlds: &[&World]) -> Vec<Violation> {
    let violation = |detail| Violation { invariant: I::OnePicture, detail };
    let mut folded = World::new();
    for (nth, (position, entry)) in entries.iter().enumerate() {
        folded.fold(*position, entry);
        if nth == entries.len() / 2 {
            match World::from_bytes(&folded.to_bytes(), None) {
                Ok(restored) => folded = restored,
                Err(error) => return vec![violation(format!("unreadable snapshot: {error}"))],
            }
        }
    }
    let others = worlds.iter().copied().chain([reference]).filter(|world| **world != folded);
    let end = folded.position();
    others
        .map(|world| violation(format!("a World at {} differs from the log at {end}", world.position())))
        .collect()
}
