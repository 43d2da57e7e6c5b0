//! Property tests: the indexes of the World (the state folded from the log) give the same answers as a full
//! scan.

use std::collections::{BTreeMap, BTreeSet};

use machines::actual::{self, State};
use machines::desired::Desired;
use machines::evaluation::Evaluations;
use machines::process::{Process, Slot};
use machines::task;
use projections::{Counts, Due, RETENTION, WorkRef, World};
use proptest::prelude::*;
use schemas::container::Instance;
use schemas::names::{CellId, Domain};
use schemas::quota::Usage;
use schemas::resources::Resources;
use schemas::{ActualLrpKey, Entry, Position, Subject, Timestamp};

use crate::log::{Log, START_MILLIS, actions, groups, write};

/// Resources of every container, according to its definition when the container was first observed.
type Sizes = BTreeMap<(WorkRef, Instance), Resources>;

/// All answers to the services' queries, computed by a full scan.
#[derive(Debug, Default, PartialEq)]
struct Answers {
    counts: Counts,
    work: BTreeSet<WorkRef>,
    stopping: BTreeSet<WorkRef>,
    on_cell: BTreeMap<CellId, BTreeSet<WorkRef>>,
    used: BTreeMap<CellId, Resources>,
    callbacks: BTreeSet<String>,
    next_due: Option<Timestamp>,
    usage: BTreeMap<Domain, Usage>,
}

/// Counts the usage of each domain by a full scan.
fn usage(world: &World) -> BTreeMap<Domain, Usage> {
    let mut all: BTreeMap<Domain, Usage> = BTreeMap::new();
    let mut add = |domain: &Domain, instances: usize| {
        let known = all.entry(domain.clone()).or_default();
        *known = known.plus(Usage { instances: instances as u64, processes_and_tasks: 1 });
    };
    for process in world.processes_from(None) {
        if let Some(desired) = &process.desired {
            let cells = desired.cells.as_ref().map(|cells| cells.len());
            add(&process.domain, cells.unwrap_or(desired.instances as usize));
        }
    }
    world.tasks_from(None).filter(|task| task.state.is_some()).for_each(|task| add(&task.domain, 0));
    world.periodics_from(None).filter(|known| !known.is_removed()).for_each(|known| add(&known.domain, 0));
    world
        .parameterised_from(None)
        .filter(|known| !known.is_removed())
        .for_each(|known| add(&known.domain, 0));
    all
}

fn scan(world: &World, sizes: &mut Sizes) -> Answers {
    let mut answers = Answers::default();
    let mut containers = Sizes::new();
    let evaluations = |all: &Evaluations| all.iter().map(|one| one.status).collect::<Vec<_>>();
    let of_processes = world.processes_from(None).flat_map(|process| evaluations(&process.evaluations));
    let of_tasks = world.tasks_from(None).flat_map(|task| evaluations(&task.evaluations));
    of_processes.chain(of_tasks).for_each(|status| answers.counts.evaluations.add(&status));
    for process in world.processes_from(None).filter(|process| !process.is_gone()) {
        answers.counts.processes += u64::from(process.desired.is_some());
        answers.next_due = earliest(answers.next_due, process.next_due());
        for slot in process.slots.iter() {
            scan_slot(&mut answers, process, slot);
            for by in holders(slot) {
                let work = WorkRef::Lrp(ActualLrpKey::new(process.guid.clone(), slot.place.clone()));
                let of = |desired: &Desired| Some(desired.definition(&slot.place.definition_id)?.resources());
                let told = process.desired.as_deref().and_then(of);
                containers.insert((work, by.clone()), told.unwrap_or(Resources::for_container(0, 0, 0)));
            }
        }
    }
    for task in world.tasks_from(None) {
        answers.next_due = earliest(answers.next_due, task.next_due());
        let Some(state) = &task.state else { continue };
        let work = WorkRef::Task(task.guid.clone());
        match state {
            task::State::Pending { .. } => {
                answers.counts.tasks.pending += 1;
                answers.work.insert(work);
            }
            task::State::Running { by } => {
                answers.counts.tasks.running += 1;
                containers.insert((work, by.clone()), task.definition.resources());
            }
            task::State::Completed(_) => {
                answers.counts.tasks.completed += 1;
                if task.definition.completion_callback_url.is_some() {
                    answers.callbacks.insert(task.guid.to_string());
                }
            }
            task::State::Resolving(_) => answers.counts.tasks.resolving += 1,
        }
    }
    sizes.retain(|container, _| containers.contains_key(container));
    for (container, takes) in containers {
        sizes.entry(container).or_insert(takes);
    }
    for ((work, by), takes) in &*sizes {
        answers.on_cell.entry(by.cell_id.clone()).or_default().insert(work.clone());
        let used = answers.used.entry(by.cell_id.clone()).or_default();
        *used = used.plus(*takes);
    }
    answers.usage = usage(world);
    answers
}

fn holders(slot: &Slot) -> impl Iterator<Item = &Instance> {
    let holder = slot.actual.as_ref().and_then(actual::Actual::holder);
    holder.into_iter().chain(slot.evacuating.as_ref().map(|twin| &twin.by))
}

fn scan_slot(answers: &mut Answers, process: &Process, slot: &Slot) {
    let counts = &mut answers.counts.instances;
    counts.evacuating += u64::from(slot.evacuating.is_some());
    let Some(lrp) = &slot.actual else { return };
    match lrp.state {
        State::Unclaimed { .. } => counts.unclaimed += 1,
        State::Claimed { .. } => counts.claimed += 1,
        State::Running { .. } => counts.running += 1,
        State::Crashed { .. } => counts.crashed += 1,
    }
    let work = WorkRef::Lrp(ActualLrpKey::new(process.guid.clone(), slot.place.clone()));
    if lrp.is_unclaimed() {
        answers.work.insert(work.clone());
    }
    if lrp.is_stopping() {
        answers.stopping.insert(work);
    }
}

fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// Returns the same answers, computed from the World's indexes.
fn indexed_answers(world: &World) -> Answers {
    let cells: Vec<CellId> = world.named_cells().cloned().collect();
    Answers {
        counts: world.counts(),
        work: world.pending_work().cloned().collect(),
        stopping: world.stopping().cloned().collect(),
        on_cell: cells.iter().map(|cell| (cell.clone(), world.on_cell(cell).cloned().collect())).collect(),
        used: cells.iter().map(|cell| (cell.clone(), world.used_on(cell))).collect(),
        callbacks: world.callbacks().map(ToString::to_string).collect(),
        next_due: world.next_due(),
        usage: world.usages().map(|(domain, used)| (domain.clone(), used)).collect(),
    }
}

/// Returns the due aggregates by checking each aggregate.
fn scan_due(world: &World, now: Timestamp) -> BTreeSet<Due> {
    let processes =
        world.processes_from(None).filter(|process| process.next_due().is_some_and(|at| at <= now));
    let tasks = world.tasks_from(None).filter(|task| task.next_due().is_some_and(|at| at <= now));
    let processes = processes.map(|process| Due::Process(process.guid.clone()));
    processes.chain(tasks.map(|task| Due::Task(task.guid.clone()))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn indexed_answers_equal_full_scan(asks in prop::collection::vec(actions(), 1..120)) {
        let mut log = Log::new();
        let mut world = World::new();
        let mut sizes = Sizes::new();
        for group in asks.chunks(1) {
            let known = log.entries.len();
            log.group(group);
            // Fold one decision at a time. In this way, each container is observed before a later decision
            // can remove its definition.
            for decision in log.entries[known..].iter().flat_map(|(_, entry)| &entry.decisions) {
                let single = Entry { decisions: vec![decision.clone()], ..log.entries[0].1.clone() };
                world.fold(Position(world.position().0 + 1), &single);
                prop_assert_eq!(indexed_answers(&world), scan(&world, &mut sizes));
            }
            for later in [0, 1, 61, 121, 2_000] {
                let now = Timestamp::from_millis(START_MILLIS + later * 1_000);
                prop_assert_eq!(world.due(now).into_iter().collect::<BTreeSet<_>>(), scan_due(&world, now));
            }
        }
    }

    #[test]
    fn folding_an_entry_twice_changes_nothing(groups in groups()) {
        let log = write(&groups);
        let mut world = World::new();
        for (position, entry) in &log.entries {
            let changes = world.fold(*position, entry);
            prop_assert!(!changes.is_empty());
            prop_assert_eq!(changes.len(), changes.iter().collect::<BTreeSet<_>>().len());
            prop_assert_eq!(world.fold(*position, entry), vec![]);
        }
        for (position, entry) in &log.entries {
            prop_assert_eq!(world.fold(*position, entry), vec![]);
        }
        prop_assert_eq!(world, log.world);
    }

    #[test]
    fn subject_forgets_aggregates_only_after_retention(groups in groups()) {
        let log = write(&groups);
        let mut world = World::new();
        for (position, entry) in &log.entries {
            let before = world.clone();
            world.fold(*position, entry);
            let first = &entry.decisions[0];
            let (subject, at) = (first.aggregate.subject(2), entry.decisions.last().unwrap().at);
            prop_assert_eq!(world.last_position(&subject), *position);
            prop_assert_eq!(world.last_time(&subject), at);
            for old in before.processes_from(None).filter(|old| world.process(&old.guid).is_none()) {
                // The entry itself may have removed the process, long before the last decision of the entry.
                let mut touching = entry.decisions.iter().rev();
                let touched = touching.find(|decision| match &decision.aggregate {
                    schemas::entry::Aggregate::Process { guid, .. } => *guid == old.guid,
                    schemas::entry::Aggregate::Task { .. }
                    | schemas::entry::Aggregate::Periodic { .. }
                    | schemas::entry::Aggregate::Parameterised { .. }
                    | schemas::entry::Aggregate::Domain(_)
                    | schemas::entry::Aggregate::Cell(_)
                    | schemas::entry::Aggregate::Cluster => false,
                });
                let gone_at = touched.map_or(old.changed_at, |decision| decision.at);
                prop_assert!((touched.is_some() || old.is_gone()) && gone_at + RETENTION <= at);
            }
            for process in world.processes_from(None).filter(|process| process.is_gone()) {
                let of_subject = Subject::of_process(&process.guid, 2) == subject;
                prop_assert!(!of_subject || process.changed_at + RETENTION > at);
            }
            for task in world.tasks_from(None).filter(|task| task.state.is_none()) {
                let of_subject = Subject::of_task(&task.guid, 2) == subject;
                prop_assert!(!of_subject || task.since + RETENTION > at);
            }
        }
    }
}
