//! What is left when everything is quiet: desired equals actual, index by index, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use machines::actual::State;
use machines::task;
use projections::reader::{self, ReadMessage};
use projections::{Reader, WorkRef, World};
use schemas::action::Action;
use schemas::container::{Container, ContainerState, WorkKey};
use schemas::definition::Mode;
use schemas::names::{CellId, Domain, ProcessGuid};
use schemas::placement::{INSUFFICIENT_RESOURCES, NO_COMPATIBLE_CELLS};
use schemas::priority::Priority;
use schemas::resources::{Constraint, Resources};
use schemas::rollout::Phase;
use schemas::spec::ClientCommand;
use schemas::{ActualLrpKey, Entry, Place, Position, Timestamp};
use scripted::Scripted;

use super::{Checkers, tables};
use crate::asked::{Asked, Response, Wanted, desired};
use crate::cluster::Cluster;
use crate::coverage::Situation;
use crate::journal::SimJournal;
use crate::nodes::{Node, cell_id};
use crate::promises::{Broken, Promise as P};
use crate::{racks, rollouts, walls};

/// So often it is looked what is under way, and so far apart.
const LOOKS: usize = 20;
const LOOK: Duration = Duration::from_millis(300);

/// So long an instance that comes and goes may be between two states, beside the time that it takes to start; and so
/// long after peace begins what happened before may still bring one down.
const SETTLING: Duration = Duration::from_secs(60);

/// So late a CRASHED instance may be restarted whose wait is over: convergence comes every 30 s.
const LATE: Duration = Duration::from_secs(35);

/// So long more than two containers of one ActualLRP may run at once: a cell is missed after 15 s and some tries, comes
/// back after a while, and compares its containers with the records every 30 s.
const CROWDED: Duration = Duration::from_secs(90);

impl Cluster {
    /// Looks what could be placed and is not: it must not be so when it is looked again.
    pub(crate) fn look_for_idle_room(&mut self) {
        self.checkers.idle = self.checkers.idle_room(&self.cells);
    }

    /// Looks again and again what is under way: what never is at zero leaks, and so does what is never said to be in use as
    /// it is. What was just given away is known to its auctioneer before anybody else, so that, too, has to be wrong at
    /// every look.
    pub(crate) fn look_for_leaks(&mut self) {
        let mut least: BTreeMap<(Node, &'static str), usize> = BTreeMap::new();
        let mut kept = self.kept_for_nothing();
        let mut wrong = self.checkers.wrongly_used(&self.cells);
        let mut unknown = self.wrongly_known();
        for look in 0..LOOKS {
            for node in self.all_nodes() {
                for (name, count) in self.place(node).books() {
                    let known = least.entry((node, name)).or_insert(count);
                    *known = if look == 0 { count } else { count.min(*known) };
                }
            }
            self.until(self.now + LOOK);
            let still = self.checkers.wrongly_used(&self.cells);
            wrong.retain(|cell, _| still.contains_key(cell));
            let still = self.kept_for_nothing();
            kept.retain(|what, _| still.contains_key(what));
            let still = self.wrongly_known();
            unknown.retain(|what, _| still.contains_key(what));
        }
        for ((node, name), count) in least.into_iter().filter(|(_, count)| *count > 0) {
            self.broken(P::NothingInFlight, format!("{node} has {count} {name} after minutes of peace"));
        }
        kept.into_values().for_each(|how| self.broken(P::NothingKept, how));
        wrong.into_values().for_each(|how| self.broken(P::NothingLeaks, how));
        unknown.into_values().for_each(|broken| self.breaks(broken));
    }

    /// The cells of which an auctioneer does not know what is free.
    fn wrongly_known(&mut self) -> BTreeMap<(Node, usize), Broken> {
        let mut wrong = BTreeMap::new();
        for node in self.all_nodes() {
            for cell in 0..self.cells.len() {
                let Some(free) = self.place(node).free_on(&cell_id(cell)) else { continue };
                let broken = self.checkers.knows_free(cell, free, &self.cells[cell].list(), self.now);
                wrong.extend(broken.map(|broken| ((node, cell), broken)));
            }
        }
        wrong
    }

    /// What has to be true after minutes of peace.
    pub(crate) fn check_peace(&mut self) {
        let (bbss, auctioneers) = (self.leading_bbss().len(), self.leading_auctioneers());
        if (bbss, auctioneers) != (1, 1) {
            self.broken(
                P::OneLeads,
                format!("{bbss} BBSs and {auctioneers} auctioneers lead after minutes of peace"),
            );
        }
        self.checkers.at_peace(&self.cells, self.now);
        self.checkers.requests(&self.wanted);
        let mut broken = match entries(&self.journal) {
            Ok(entries) => {
                let mut broken = self.same_worlds(&entries);
                let Self { projectors, checkers, .. } = self;
                broken.extend(tables::judge(&entries, projectors, &mut |seen| checkers.saw(seen)));
                broken
            }
            Err(broken) => vec![broken],
        };
        self.checkers.broken.append(&mut broken);
    }

    fn same_worlds(&self, entries: &[(Position, Entry)]) -> Vec<Broken> {
        let worlds: Vec<&World> =
            self.all_nodes().into_iter().filter_map(|node| self.place(node).world()).collect();
        same_world(entries, &self.checkers.world, &worlds)
    }
}

impl Checkers {
    /// From now on nothing goes wrong.
    pub fn peace(&mut self, now: Timestamp) {
        self.peace_since = Some(now);
    }

    /// After peace: desired equals actual, index by index; nothing else runs; every task ended.
    fn at_peace(&mut self, cells: &[Scripted], now: Timestamp) {
        let mut broken = vec![];
        let live = cells.len() - self.gone.len();
        if self.log.cells_in_order() != live {
            let how = format!("{} of {} are", self.log.cells_in_order(), live);
            broken.push(Broken { promise: P::CellsReturn, how });
        }
        let crowded = self.truth.crowded(now);
        if crowded > CROWDED {
            broken.push(Broken { promise: P::NoCrowd, how: format!("for {crowded:?}") });
        }
        let containers: Vec<Container> = cells.iter().flat_map(Scripted::list).collect();
        let left = containers.iter().filter_map(|container| wrong_container(&self.world, container));
        broken.extend(left.map(|how| Broken { promise: P::NothingLeaks, how }));
        let mut running: BTreeMap<ActualLrpKey, u32> = BTreeMap::new();
        for container in &containers {
            if let WorkKey::Lrp { key, .. } = &container.work {
                *running.entry(key.clone()).or_default() += 1;
            }
        }
        broken.extend(self.unfinished_rollouts());
        let idle = self.idle_room(cells);
        for work in self.idle.intersection(&idle) {
            broken.push(Broken { promise: P::NoIdleRoom, how: work.clone() });
        }
        for process in self.world.processes_from(None).filter(|process| !process.is_gone()) {
            for slot in process.slots.iter() {
                let key = ActualLrpKey::new(process.guid.clone(), slot.place.clone());
                let count = running.remove(&key).unwrap_or(0);
                let state = slot.actual.as_ref().map(|lrp| &lrp.state);
                let since = slot.actual.as_ref().map_or(now, |lrp| lrp.since);
                let slack = self.clock_slack;
                let right = match state {
                    Some(State::Running { .. }) => count == 1,
                    Some(State::Crashed { .. }) => {
                        let by_design = is_crashing(&self.world, &key);
                        let before = self.peace_since.is_some_and(|peace| since <= peace + SETTLING + slack);
                        let process = self.lrps.get(&process.guid);
                        let waits =
                            process.is_some_and(|process| process.waits(&slot.place, now, LATE + slack));
                        count == 0 && (by_design || before) && waits
                    }
                    Some(State::Unclaimed { placement_error: Some(_) }) => count == 0,
                    Some(State::Claimed { .. }) => count == 1 && hangs(&self.world, &key),
                    Some(State::Unclaimed { placement_error: None }) | None => false,
                };
                let comes_and_goes = is_crashing(&self.world, &key)
                    && count <= 1
                    && now.since(since) <= SETTLING + slack + starts_within(&self.world, &key);
                if !(right || comes_and_goes) || !process.is_desired(&slot.place) || slot.evacuating.is_some()
                {
                    let how =
                        format!("{} is left as {slot:?} with {count} containers", key.with_definition());
                    broken.push(Broken { promise: P::DesiredIsActual, how });
                }
            }
        }
        for (key, count) in running {
            let how = format!("{count} containers of {} run and have no record", key.with_definition());
            broken.push(Broken { promise: P::NothingLeaks, how });
        }
        broken.extend(self.misplaced_globals(cells));
        broken.extend(self.unfinished_tasks(now));
        self.broken.append(&mut broken);
    }

    /// What the log has on a cell takes as much of it as its containers do. What comes and goes is at times in the log and
    /// not on its cell, or the other way round: who looks often enough sees the same in both.
    fn wrongly_used(&self, cells: &[Scripted]) -> BTreeMap<usize, String> {
        let sum = |sizes: Vec<Resources>| sizes.into_iter().fold(Resources::default(), Resources::plus);
        let used = |cell: usize| {
            let (records, told) =
                (sum(sizes_on(&self.world, &cell_id(cell))), self.world.used_on(&cell_id(cell)));
            let truth = sum(cells[cell].list().iter().map(|one| one.resources).collect());
            let how = || {
                format!(
                    "cell {cell} is said to have {told:?} in use, its records take {records:?}, its containers {truth:?}"
                )
            };
            (records != told || records != truth).then(|| (cell, how()))
        };
        (0..cells.len()).filter_map(used).collect()
    }

    /// The processes that were ever rolled out in this life, and are desired still.
    pub(crate) fn rolled_out(&self) -> Vec<(ProcessGuid, Domain)> {
        let rolled = self.world.processes_from(None).filter(|process| process.rollout.is_some());
        rolled.map(|process| (process.guid.clone(), process.domain.clone())).collect()
    }

    /// Processes whose instances are restarted again and again without a longer and longer wait.
    pub(crate) fn restless(&self) -> Vec<(ProcessGuid, Domain)> {
        let restless = self.world.processes_from(None).filter(|process| {
            process.desired.as_ref().is_some_and(|desired| desired.policies.restart.delay_ms.is_some())
        });
        restless.map(|process| (process.guid.clone(), process.domain.clone())).collect()
    }

    /// A rollout to a definition that works ends, wherever there is room, and every index runs it then.
    fn unfinished_rollouts(&self) -> Vec<Broken> {
        let unfinished = self.world.processes_from(None).filter_map(|process| {
            let (desired, rollout) = (process.desired.as_ref()?, process.rollout.as_ref()?);
            let active = &desired.active_definition_id;
            let key = ActualLrpKey::new(process.guid.clone(), Place::new(0, active.clone()));
            let works = !is_crashing(&self.world, &key) && !hangs(&self.world, &key);
            let mut there = process.slots.iter().filter_map(|slot| slot.actual.as_ref());
            let waits = there.any(machines::actual::Actual::has_placement_error);
            // What starts too slowly for its policy's deadline is tried again, ever later.
            let late = !rollout.stalled.is_empty() && !rollouts::is_mended(active);
            // Somebody paused it and nobody resumed it.
            let paused = rollout.phase == Phase::Paused && !rollouts::is_mended(active);
            let over =
                rollout.is_over() && process.slots.iter().all(|slot| slot.place.definition_id == *active);
            let how = || format!("{} at peace: {rollout:?}, {:?}", process.guid, process.slots);
            (works && !waits && !late && !paused && !over)
                .then(|| Broken { promise: P::RolloutsEnd, how: how() })
        });
        unfinished.collect()
    }

    /// Global processes run where they have to.
    fn misplaced_globals(&self, cells: &[Scripted]) -> Vec<Broken> {
        let mut containers: BTreeMap<&ProcessGuid, Vec<(u32, CellId)>> = BTreeMap::new();
        let lists: Vec<Vec<Container>> = cells.iter().map(Scripted::list).collect();
        for (cell, list) in lists.iter().enumerate() {
            for container in list {
                if let WorkKey::Lrp { key, .. } = &container.work {
                    containers.entry(&key.process_guid).or_default().push((key.place.index, cell_id(cell)));
                }
            }
        }
        let wrong = self.lrps.iter().filter_map(|(guid, process)| {
            let there = containers.get(guid).map_or(&[][..], Vec::as_slice);
            let why = process.wrong_at_peace(there, &self.log, self.shape)?;
            Some(Broken { promise: P::GlobalHolds, how: format!("{guid} {why}") })
        });
        wrong.collect()
    }

    /// The cells that are cordoned.
    pub(crate) fn cordoned(&self) -> Vec<CellId> {
        self.world.cells().filter(|(_, cell)| cell.cordoned).map(|(id, _)| id.clone()).collect()
    }

    fn unfinished_tasks(&self, now: Timestamp) -> Vec<Broken> {
        let pending = self.world.tasks_from(None).filter_map(|task| {
            let state = task.state.as_ref()?;
            let kept =
                task.completed().is_some_and(|done| done.first_completed_at + Duration::from_secs(130) > now);
            let how = || format!("task {} is still {state:?}", task.guid);
            (!kept).then(|| Broken { promise: P::TasksEnd, how: how() })
        });
        let uncalled = self.tasks.iter().filter(|(guid, known)| {
            let waits = known.waits_since().is_some_and(|since| since + Duration::from_secs(40) < now);
            waits && !self.calls.was_called(guid, known.epoch())
        });
        let uncalled =
            uncalled.map(|(guid, _)| Broken { promise: P::OwnerCalled, how: format!("task {guid}") });
        pending.chain(uncalled).collect()
    }

    /// Work that waits although a cell could take it, and work that is said to wait for the wrong reason.
    fn idle_room(&mut self, cells: &[Scripted]) -> BTreeSet<String> {
        let live: Vec<usize> = (0..cells.len()).filter(|cell| !self.gone.contains(cell)).collect();
        let free: Vec<Resources> = (0..cells.len())
            .map(|cell| {
                let total = self.shape.cell(cell).total;
                cells[cell].list().iter().fold(total, |free, one| free.minus(one.resources))
            })
            .collect();
        let mut idle = BTreeSet::new();
        let mut waiting = 0;
        for work in self.world.pending_work() {
            let Some((constraint, size, error)) = demands(&self.world, work) else { continue };
            let compatible = |cell: &usize| {
                let offers = self.shape.cell(*cell);
                constraint.mismatch(&offers.offer()).is_none()
                    && walls::are_kept(&constraint.isolation, &cell_id(*cell))
                    && racks::unmet(constraint, &cell_id(*cell)).is_none()
            };
            let only = only_cell(&self.world, work);
            let may = |cell: &usize| only.is_none_or(|only| *only == cell_id(*cell));
            let compatible: Vec<usize> = live.iter().copied().filter(compatible).filter(may).collect();
            let reason = if compatible.is_empty() { NO_COMPATIBLE_CELLS } else { INSUFFICIENT_RESOURCES };
            // An operator's request that comes late may cordon a cell still.
            let open: Vec<usize> =
                compatible.iter().copied().filter(|cell| !self.is_cordoned(*cell)).collect();
            if open.is_empty() && !compatible.is_empty() {
                waiting += 1;
            } else if open
                .iter()
                .any(|cell| free[*cell].fits(size) && self.has_place(work, constraint, *cell))
            {
                idle.insert(format!("{work:?} since {}", attempt(&self.world, work)));
            } else if racks::is_limited(constraint) {
                // Both reasons may be named.
                waiting += 1;
            } else if error.is_some_and(|error| !error.starts_with(reason)) {
                idle.insert(format!("{work:?}, for {error:?},"));
            } else {
                waiting += 1;
            }
        }
        (0..waiting).for_each(|_| self.coverage.saw(Situation::BlockedAtPeace));
        idle
    }

    fn is_cordoned(&self, cell: usize) -> bool {
        self.world.cell(&cell_id(cell)).is_some_and(|cell| cell.cordoned)
    }

    /// What clients were told is what the log says, and what the log says is what is desired.
    fn requests(&mut self, wanted: &Wanted) {
        for (request, asked) in wanted.asked() {
            let carried = self.log.carried(request);
            let wrong = match asked.told {
                Response::Done(done) => {
                    let right = |one: &super::log::Carried| {
                        // What was dispatched with a key that is known is told of the first dispatch, which is judged at once.
                        (one.version == done.version || has_key(asked)) && one.position <= done.position
                    };
                    !is_about_domain(asked) && !carried.iter().any(right)
                }
                Response::Refused(_) => asked.copies <= 1 && !carried.is_empty(),
                Response::Nothing => false,
            };
            if wrong {
                let how = format!("request {request} was told {:?} and is {carried:?}", asked.told);
                self.broken.push(Broken { promise: P::ToldTrue, how });
            }
            if asked.copies > 1 && !carried.is_empty() && matches!(asked.told, Response::Done(_)) {
                self.coverage.saw(Situation::RequestRepeated);
            }
        }
        let mut in_order: BTreeMap<(Position, String, u64), &ClientCommand> = BTreeMap::new();
        for (request, asked) in wanted.asked() {
            for carried in self.log.carried(request) {
                let place = (carried.position, carried.aggregate.clone(), carried.version);
                in_order.insert(place, &asked.command);
            }
        }
        let told = desired(in_order.into_values());
        let found: BTreeMap<_, _> = self
            .world
            .processes_from(None)
            .filter_map(|process| {
                let desired = process.desired.as_ref()?;
                let instances = (desired.mode() == Mode::Replicated).then_some(desired.instances);
                Some((process.guid.clone(), instances))
            })
            .collect();
        if told != found {
            let how = format!("desired is {found:?}, clients asked for {told:?}");
            self.broken.push(Broken { promise: P::AsAsked, how });
        }
    }
}

const fn is_about_domain(asked: &Asked) -> bool {
    matches!(asked.command, ClientCommand::DomainUpsert { .. })
}

fn has_key(asked: &Asked) -> bool {
    matches!(&asked.command, ClientCommand::ParameterisedDispatch { dispatch, .. } if dispatch.key.is_some())
}

/// What is wrong with a container that is there after minutes of peace.
fn wrong_container(world: &World, container: &Container) -> Option<String> {
    let work = &container.work;
    let current = match work {
        WorkKey::Lrp { key, .. } => world.process(&key.process_guid).map(|process| process.epoch),
        WorkKey::Task { task_guid, .. } => world.task(task_guid).map(|task| task.epoch),
    };
    if current != Some(work.epoch()) {
        return Some(format!("{work} of an earlier life is left in {:?}", container.state));
    }
    let thrashes = match work {
        WorkKey::Lrp { key, .. } => is_crashing(world, key),
        WorkKey::Task { .. } => false,
    };
    let runs = match (work, &container.state) {
        (WorkKey::Lrp { .. }, ContainerState::Running(_)) => true,
        (WorkKey::Lrp { key, .. }, ContainerState::Initializing) => hangs(world, key),
        (WorkKey::Lrp { .. } | WorkKey::Task { .. }, _) => false,
    };
    (!runs && !thrashes).then(|| format!("{work} is left in {:?}", container.state))
}

/// What the records take that the log has on a cell.
fn sizes_on(world: &World, cell: &CellId) -> Vec<Resources> {
    let mut sizes = vec![];
    for process in world.processes_from(None) {
        let Some(desired) = &process.desired else { continue };
        for slot in process.slots.iter() {
            let definition = desired.definition(&slot.place.definition_id);
            let lrp = slot.actual.as_ref();
            let held = lrp.and_then(|lrp| lrp.holder()).is_some_and(|by| by.cell_id == *cell);
            let twin = slot.evacuating.as_ref().is_some_and(|twin| twin.by.cell_id == *cell);
            sizes.extend(definition.map(|definition| definition.resources()).filter(|_| held || twin));
        }
    }
    for task in world.tasks_from(None) {
        let runs = matches!(&task.state, Some(task::State::Running { by }) if by.cell_id == *cell);
        sizes.extend(runs.then(|| task.definition.resources()));
    }
    sizes
}

/// Whether an instance crashes by design, so that it comes and goes.
fn is_crashing(world: &World, key: &ActualLrpKey) -> bool {
    behaves(world, key, |arg| {
        arg.starts_with("run=")
            || arg.starts_with("exit=")
            || arg.starts_with("fail-create=")
            || arg == "never-healthy"
    })
}

/// Whether the containers of an instance are never created, by design.
fn hangs(world: &World, key: &ActualLrpKey) -> bool {
    behaves(world, key, |arg| arg == "hang-create")
}

/// How long the containers of an instance take from their claim until they run, by design.
fn starts_within(world: &World, key: &ActualLrpKey) -> Duration {
    let millis = |arg: &String| {
        let time = arg.strip_prefix("create=").or_else(|| arg.strip_prefix("start="))?;
        time.strip_suffix("ms")?.parse::<u64>().ok()
    };
    Duration::from_millis(script(world, key).iter().filter_map(millis).sum())
}

fn behaves(world: &World, key: &ActualLrpKey, how: impl Fn(&str) -> bool) -> bool {
    script(world, key).iter().any(|arg| how(arg))
}

/// What the executor is told of how the containers of an instance behave.
fn script<'a>(world: &'a World, key: &ActualLrpKey) -> &'a [String] {
    let desired = world.process(&key.process_guid).and_then(|process| process.desired.as_ref());
    let action = desired.and_then(|desired| {
        let definition = desired.definition(&key.place.definition_id)?;
        Some(&*definition.action)
    });
    match action {
        Some(Action::Run(run)) => &run.args,
        Some(
            Action::Timeout(_)
            | Action::Try(_)
            | Action::Parallel(_)
            | Action::Serial(_)
            | Action::Codependent(_)
            | Action::EmitProgress(_)
            | Action::Download(_)
            | Action::Upload(_),
        )
        | None => &[],
    }
}

/// The only cell that work may go to.
pub(super) fn only_cell<'a>(world: &'a World, work: &WorkRef) -> Option<&'a CellId> {
    match work {
        WorkRef::Lrp(key) => world.process(&key.process_guid)?.desired.as_ref()?.only_cell(key.place.index),
        WorkRef::Task(_) => None,
    }
}

/// How urgent work is.
pub(super) fn priority(world: &World, work: &WorkRef) -> Priority {
    let priority = match work {
        WorkRef::Lrp(key) => {
            let desired = world.process(&key.process_guid).and_then(|process| process.desired.as_ref());
            desired.map(|desired| desired.priority)
        }
        WorkRef::Task(guid) => world.task(guid).map(|task| task.definition.priority),
    };
    priority.unwrap_or_default()
}

/// When work began to wait in this attempt: what crashes again and again may wait at any two moments.
fn attempt(world: &World, work: &WorkRef) -> Timestamp {
    let since = match work {
        WorkRef::Lrp(key) => world
            .process(&key.process_guid)
            .and_then(|process| process.actual(&key.place))
            .map(|lrp| lrp.since),
        WorkRef::Task(guid) => world.task(guid).map(|task| task.since),
    };
    since.unwrap_or(Timestamp(0))
}

/// What waiting work demands of a cell, and why it is said to wait.
pub(super) fn demands<'a>(
    world: &'a World,
    work: &WorkRef,
) -> Option<(&'a Constraint, Resources, Option<&'a str>)> {
    match work {
        WorkRef::Lrp(key) => {
            let process = world.process(&key.process_guid)?;
            let lrp = process.actual(&key.place).filter(|_| process.is_desired(&key.place))?;
            let error = match &lrp.state {
                State::Unclaimed { placement_error } => placement_error.as_deref(),
                State::Claimed { .. } | State::Running { .. } | State::Crashed { .. } => None,
            };
            let definition = process.desired.as_ref()?.definition(&key.place.definition_id)?;
            Some((&definition.constraint, definition.resources(), error))
        }
        WorkRef::Task(guid) => {
            let task = world.task(guid)?;
            let error = match task.state.as_ref()? {
                task::State::Pending { placement_error } => placement_error.as_deref(),
                task::State::Running { .. } | task::State::Completed(_) | task::State::Resolving(_) => None,
            };
            Some((&task.definition.constraint, task.definition.resources(), error))
        }
    }
}

/// The log, as every service reads it.
fn entries(journal: &SimJournal) -> Result<Vec<(Position, Entry)>, Broken> {
    let mut reader = Reader::default();
    let all = (1..=journal.end().0).map(Position);
    let stored = all.filter_map(|position| Some((position, journal.get(position)?)));
    let entries = stored.map(|(position, stored)| {
        match reader.read(position, &stored.subject.to_string(), &stored.bytes) {
            Ok(ReadMessage::Entry(entry)) => Ok((position, entry)),
            Ok(ReadMessage::Quarantined(_)) => Ok((position, reader::empty_entry())),
            Err(why) => {
                Err(Broken { promise: P::OnePicture, how: format!("{position} can't be read: {why}") })
            }
        }
    });
    entries.collect()
}

/// Folding the log from its start, or from a snapshot, equals every service's own picture.
fn same_world(entries: &[(Position, Entry)], checked: &World, worlds: &[&World]) -> Vec<Broken> {
    let broken = |how| Broken { promise: P::OnePicture, how };
    let mut folded = World::new();
    for (nth, (position, entry)) in entries.iter().enumerate() {
        folded.fold(*position, entry);
        if nth == entries.len() / 2 {
            match World::from_bytes(&folded.to_bytes(), None) {
                Ok(restored) => folded = restored,
                Err(error) => return vec![broken(format!("a snapshot can't be read: {error}"))],
            }
        }
    }
    let others = worlds.iter().copied().chain([checked]).filter(|world| **world != folded);
    let end = folded.position();
    let wrong = others.map(|world| {
        broken(format!("a service's picture at {} is not the log's at {end}", world.position()))
    });
    wrong.collect()
}
