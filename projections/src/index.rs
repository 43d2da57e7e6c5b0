//! The sets that answer what the services ask, kept up to date slot by slot: what a decision didn't touch isn't read.
//!
//! Each slot and each task states its [`Facts`]: what the sets have to say of it. Folding a decision compares the facts
//! of what it touches before and after, so a set never depends on how its members came about, and the sets of a World
//! restored from a snapshot equal those of one that was folded.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use imbl::{OrdMap, OrdSet};
use schemas::actual::{self, Actual};
use schemas::container::Instance;
use schemas::names::{CellId, Domain, InstanceGuid, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid};
use schemas::parameterised::Parameterised;
use schemas::periodic::Periodic;
use schemas::process::{Process, Slot};
use schemas::query::{InstanceState, TaskState};
use schemas::quota::Usage;
use schemas::resources::Resources;
use schemas::task::{self, Task};
use schemas::{ActualLrpKey, Place, Subject, Timestamp, evaluation};

use crate::world::REMEMBERED;

/// One piece of work: an instance of a process, or a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkRef {
    /// An instance of a process.
    Lrp(ActualLrpKey),
    /// A task.
    Task(TaskGuid),
}

/// An aggregate for which convergence has something to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// A process.
    Process(ProcessGuid),
    /// A task.
    Task(TaskGuid),
    /// A periodic task.
    Periodic(PeriodicGuid),
    /// A parameterised task.
    Parameterised(ParameterisedGuid),
}

/// How much there is of everything. What is only remembered isn't counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Processes that are desired.
    pub processes: u64,
    /// Instances by state.
    pub instances: InstanceCounts,
    /// Tasks by state.
    pub tasks: TaskCounts,
    /// Evaluations by status, also those of what is only remembered.
    pub evaluations: evaluation::Counts,
}

/// Instances by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstanceCounts {
    /// UNCLAIMED.
    pub unclaimed: u64,
    /// CLAIMED.
    pub claimed: u64,
    /// RUNNING, without evacuating twins.
    pub running: u64,
    /// CRASHED.
    pub crashed: u64,
    /// Evacuating twins.
    pub evacuating: u64,
}

/// Tasks by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// PENDING.
    pub pending: u64,
    /// RUNNING.
    pub running: u64,
    /// COMPLETED.
    pub completed: u64,
    /// RESOLVING.
    pub resolving: u64,
}

impl InstanceCounts {
    /// Those in one state.
    #[must_use]
    pub const fn of(&self, state: InstanceState) -> u64 {
        match state {
            InstanceState::Unclaimed => self.unclaimed,
            InstanceState::Claimed => self.claimed,
            InstanceState::Running => self.running,
            InstanceState::Crashed => self.crashed,
        }
    }
}

impl TaskCounts {
    /// Those in one state.
    #[must_use]
    pub const fn of(&self, state: TaskState) -> u64 {
        match state {
            TaskState::Pending => self.pending,
            TaskState::Running => self.running,
            TaskState::Completed => self.completed,
            TaskState::Resolving => self.resolving,
        }
    }
}

/// The containers of a process whose definition is no longer there to say what they take: those of an earlier life,
/// and those that still stop. What they take was noted when their definition went.
pub(crate) type Former = BTreeMap<ProcessGuid, BTreeMap<(Place, InstanceGuid), Resources>>;

/// What is on a cell, as the log has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OnCell {
    pub(crate) work: OrdSet<WorkRef>,
    pub(crate) used: Resources,
}

/// Every set that can be recomputed from processes and tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Index {
    pub(crate) counts: Counts,
    pub(crate) work: BTreeSet<WorkRef>,
    pub(crate) stopping: BTreeSet<WorkRef>,
    pub(crate) on_cell: OrdMap<CellId, OnCell>,
    pub(crate) callbacks: BTreeSet<TaskGuid>,
    /// When each slot or task is next due. By slot, so that no process is scanned when one of its slots changes.
    due: BTreeSet<(Timestamp, WorkRef)>,
    /// The global processes.
    pub(crate) global: BTreeSet<ProcessGuid>,
    /// When the rollout of each process and each periodic task is next due.
    due_whole: BTreeSet<(Timestamp, Due)>,
    /// What is only remembered.
    pub(crate) gone: BySubject,
    /// What keeps ended evaluations.
    pub(crate) evaluated: BySubject,
    /// Usage of each domain that its quotas limit, without domains that use nothing.
    pub(crate) usage: OrdMap<Domain, Usage>,
}

/// What a subject lets go of, and the time from which it does.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BySubject(BTreeMap<Subject, BTreeSet<(Timestamp, Due)>>);

impl BySubject {
    /// The time of one thing is another one.
    pub(crate) fn change(
        &mut self,
        subject: &Subject,
        which: &Due,
        before: Option<Timestamp>,
        after: Option<Timestamp>,
    ) {
        if before == after {
            return;
        }
        let all = self.0.entry(subject.clone()).or_default();
        if let Some(at) = before {
            all.remove(&(at, which.clone()));
        }
        if let Some(at) = after {
            all.insert((at, which.clone()));
        }
        if all.is_empty() {
            self.0.remove(subject);
        }
    }

    /// Takes out one thing that a subject may let go of at `now`.
    pub(crate) fn pop(&mut self, subject: &Subject, now: Timestamp) -> Option<Due> {
        let all = self.0.get_mut(subject)?;
        if all.first()?.0 > now {
            return None;
        }
        let (_, which) = all.pop_first()?;
        if all.is_empty() {
            self.0.remove(subject);
        }
        Some(which)
    }

    /// Takes in what subjects let go of another part of the World.
    fn unite(&mut self, other: Self) {
        for (subject, mut all) in other.0 {
            self.0.entry(subject).or_default().append(&mut all);
        }
    }

    /// Puts everything under the subjects of another number of shards.
    fn deal_anew(&mut self, shards: u16) {
        for (at, which) in take(&mut self.0).into_values().flatten() {
            self.0.entry(which.subject(shards)).or_default().insert((at, which));
        }
    }
}

impl Due {
    fn subject(&self, shards: u16) -> Subject {
        match self {
            Self::Process(guid) => Subject::of_process(guid, shards),
            Self::Task(guid) => Subject::of_task(guid, shards),
            Self::Periodic(guid) => Subject::of_periodic(guid, shards),
            Self::Parameterised(guid) => Subject::of_parameterised(guid, shards),
        }
    }
}

/// The state of a slot's instance or of a task, as far as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Unclaimed,
    Claimed,
    Running,
    Crashed,
    Pending,
    TaskRunning,
    Completed,
    Resolving,
}

/// A container and what it takes of its cell.
#[derive(Clone, Debug, PartialEq)]
struct Held {
    by: Instance,
    takes: Resources,
}

/// What the sets say of one slot or one task.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Facts {
    counted: Option<Counted>,
    twin: bool,
    stopping: bool,
    callback: bool,
    due: Option<Timestamp>,
    /// The containers: the instance's or the task's, and the evacuating twin's if that is another one.
    held: [Option<Held>; 2],
}

/// What the sets say of a process or a task as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whole {
    desired: bool,
    /// Whether it is a global process.
    global: bool,
    /// When its rollout is next due, or the launch of a periodic task.
    due: Option<Timestamp>,
    /// From when it may be forgotten, if it is gone.
    pub(crate) forget_at: Option<Timestamp>,
    /// When the first of its ended evaluations leaves.
    pub(crate) leaves_at: Option<Timestamp>,
    /// How many evaluations it has.
    pub(crate) evaluations: evaluation::Counts,
}

impl Facts {
    /// The facts of a slot of a process; none of one that isn't there.
    pub(crate) fn of_slot(process: &Process, slot: Option<&Slot>, former: &Former) -> Self {
        let Some(slot) = slot else { return Self::default() };
        let actual = slot.actual.as_ref();
        let twin = slot.evacuating.as_deref();
        let held = |by: &Instance| Held {
            by: by.clone(),
            takes: takes(process, &slot.place, by.instance_guid, former),
        };
        let holder = actual.and_then(Actual::holder);
        let other = twin.filter(|twin| Some(&twin.by) != holder);
        Self {
            counted: actual.map(|lrp| Counted::instance(&lrp.state)),
            twin: twin.is_some(),
            stopping: actual.is_some_and(Actual::is_stopping),
            callback: false,
            due: process.due_of(slot),
            held: [holder.map(held), other.map(|twin| held(&twin.by))],
        }
    }

    /// The facts of a task.
    pub(crate) fn of_task(task: Option<&Task>) -> Self {
        let Some((task, state)) = task.and_then(|task| Some((task, task.state.as_ref()?))) else {
            return Self::default();
        };
        let (counted, runner, completed) = match state {
            task::State::Pending { .. } => (Counted::Pending, None, false),
            task::State::Running { by } => (Counted::TaskRunning, Some(by), false),
            task::State::Completed(_) => (Counted::Completed, None, true),
            task::State::Resolving(_) => (Counted::Resolving, None, false),
        };
        let held = runner.map(|by| Held { by: by.clone(), takes: task.definition.resources() });
        Self {
            counted: Some(counted),
            twin: false,
            stopping: false,
            callback: completed
                && task.definition.completion_callback_url.is_some()
                && task.completed().is_some_and(task::Completed::is_owner_called),
            due: task.next_due(),
            held: [held, None],
        }
    }

    /// Each container and what it takes.
    pub(crate) fn containers(&self) -> impl Iterator<Item = (&Instance, Resources)> {
        self.held.iter().flatten().map(|held| (&held.by, held.takes))
    }

    fn is_on(&self, cell: &CellId) -> bool {
        self.containers().any(|(by, _)| by.cell_id == *cell)
    }

    fn is_work(&self) -> bool {
        match self.counted {
            Some(Counted::Unclaimed | Counted::Pending) => true,
            Some(
                Counted::Claimed
                | Counted::Running
                | Counted::Crashed
                | Counted::TaskRunning
                | Counted::Completed
                | Counted::Resolving,
            )
            | None => false,
        }
    }
}

/// What a container of a process takes: what its definition says, or said when it was still there. One whose
/// unknown definition takes its place on the cell and nothing else that is known.
fn takes(process: &Process, place: &Place, container: InstanceGuid, former: &Former) -> Resources {
    let noted = || former.get(&process.guid)?.get(&(place.clone(), container)).copied();
    let recorded = || {
        let desired = process.desired.as_ref()?;
        desired.definition(&place.definition_id).map(|definition| definition.resources())
    };
    noted().or_else(recorded).unwrap_or(Resources::of_container(0, 0, 0))
}

impl Whole {
    pub(crate) fn of_process(process: &Process) -> Self {
        let (evaluations, leaves_at) = evaluation::counted(&process.evaluations);
        Self {
            desired: process.desired.is_some(),
            global: process.desired.as_ref().is_some_and(|desired| desired.is_global()),
            due: process.rollout_due(),
            forget_at: process.is_gone().then(|| process.changed_at + REMEMBERED),
            leaves_at,
            evaluations,
        }
    }

    pub(crate) fn of_task(task: &Task) -> Self {
        let (evaluations, leaves_at) = evaluation::counted(&task.evaluations);
        Self {
            desired: false,
            global: false,
            due: None,
            forget_at: task.state.is_none().then(|| task.since + REMEMBERED),
            leaves_at,
            evaluations,
        }
    }
}

impl Whole {
    pub(crate) fn of_periodic(periodic: &Periodic) -> Self {
        Self {
            due: periodic.next,
            forget_at: periodic.is_gone().then(|| periodic.since + REMEMBERED),
            ..Self::default()
        }
    }

    pub(crate) fn of_parameterised(known: &Parameterised) -> Self {
        Self { forget_at: known.is_gone().then(|| known.idle_since + REMEMBERED), ..Self::default() }
    }
}

impl Counted {
    const fn instance(state: &actual::State) -> Self {
        match state {
            actual::State::Unclaimed { .. } => Self::Unclaimed,
            actual::State::Claimed { .. } => Self::Claimed,
            actual::State::Running { .. } => Self::Running,
            actual::State::Crashed { .. } => Self::Crashed,
        }
    }
}

impl Counts {
    fn add(&mut self, other: Self) {
        let Self { processes, instances, tasks, evaluations } = other;
        let InstanceCounts { unclaimed, claimed, running, crashed, evacuating } = instances;
        let TaskCounts { pending, running: tasks_running, completed, resolving } = tasks;
        self.processes += processes;
        self.instances.unclaimed += unclaimed;
        self.instances.claimed += claimed;
        self.instances.running += running;
        self.instances.crashed += crashed;
        self.instances.evacuating += evacuating;
        self.tasks.pending += pending;
        self.tasks.running += tasks_running;
        self.tasks.completed += completed;
        self.tasks.resolving += resolving;
        self.evaluations = self.evaluations.plus(evaluations);
    }

    fn of(&mut self, counted: Counted) -> &mut u64 {
        match counted {
            Counted::Unclaimed => &mut self.instances.unclaimed,
            Counted::Claimed => &mut self.instances.claimed,
            Counted::Running => &mut self.instances.running,
            Counted::Crashed => &mut self.instances.crashed,
            Counted::Pending => &mut self.tasks.pending,
            Counted::TaskRunning => &mut self.tasks.running,
            Counted::Completed => &mut self.tasks.completed,
            Counted::Resolving => &mut self.tasks.resolving,
        }
    }
}

impl Index {
    /// The sets that a picture shows.
    pub(crate) fn pictured(&self) -> Self {
        let (on_cell, usage) = (self.on_cell.clone(), self.usage.clone());
        Self { counts: self.counts, on_cell, usage, ..Self::default() }
    }

    /// Takes in the sets of another part of the World.
    pub(crate) fn unite(&mut self, other: Self) {
        let Self {
            counts,
            mut work,
            mut stopping,
            on_cell,
            mut callbacks,
            mut due,
            mut global,
            mut due_whole,
            gone,
            evaluated,
            usage,
        } = other;
        self.counts.add(counts);
        self.work.append(&mut work);
        self.stopping.append(&mut stopping);
        self.callbacks.append(&mut callbacks);
        self.due.append(&mut due);
        self.global.append(&mut global);
        self.due_whole.append(&mut due_whole);
        self.gone.unite(gone);
        self.evaluated.unite(evaluated);
        usage.iter().for_each(|(domain, used)| self.add_usage(domain, *used));
        for (id, other) in on_cell {
            let cell = self.on_cell.entry(id).or_default();
            cell.work = take(&mut cell.work).union(other.work);
            cell.used = cell.used.plus(other.used);
        }
    }

    /// Adds to the usage of a domain.
    pub(crate) fn add_usage(&mut self, domain: &Domain, used: Usage) {
        if !used.is_empty() {
            let known = self.usage.get(domain).copied().unwrap_or_default();
            self.usage.insert(domain.clone(), known.plus(used));
        }
    }

    /// Replaces the part of one process or task in the usage of its domain.
    pub(crate) fn change_usage(&mut self, before: Option<(Domain, Usage)>, after: Option<(&Domain, Usage)>) {
        let same = before.as_ref().map(|(domain, used)| (domain, *used)) == after;
        if same {
            return;
        }
        if let Some((domain, used)) = before {
            self.remove_usage(&domain, used);
        }
        if let Some((domain, used)) = after {
            self.add_usage(domain, used);
        }
    }

    /// Subtracts from the usage of a domain.
    fn remove_usage(&mut self, domain: &Domain, used: Usage) {
        let Some(known) = self.usage.get(domain).copied() else { return };
        let left = known.minus(used);
        if left.is_empty() {
            self.usage.remove(domain);
        } else if left != known {
            self.usage.insert(domain.clone(), left);
        }
    }

    /// Takes in what changed of one slot or task.
    pub(crate) fn change(&mut self, work: &WorkRef, before: &Facts, after: &Facts) {
        if before == after {
            return;
        }
        self.count(before, after);
        put(&mut self.work, work, before.is_work(), after.is_work());
        put(&mut self.stopping, work, before.stopping, after.stopping);
        if let WorkRef::Task(guid) = work {
            put(&mut self.callbacks, guid, before.callback, after.callback);
        }
        if before.due != after.due {
            if let Some(due) = before.due {
                self.due.remove(&(due, work.clone()));
            }
            if let Some(due) = after.due {
                self.due.insert((due, work.clone()));
            }
        }
        if before.held != after.held {
            self.move_containers(work, before, after);
        }
    }

    fn count(&mut self, before: &Facts, after: &Facts) {
        if before.counted != after.counted {
            if let Some(counted) = before.counted {
                *self.counts.of(counted) -= 1;
            }
            if let Some(counted) = after.counted {
                *self.counts.of(counted) += 1;
            }
        }
        self.counts.instances.evacuating -= u64::from(before.twin);
        self.counts.instances.evacuating += u64::from(after.twin);
    }

    fn move_containers(&mut self, work: &WorkRef, before: &Facts, after: &Facts) {
        for (by, takes) in before.containers() {
            let Some(cell) = self.on_cell.get_mut(&by.cell_id) else { continue };
            cell.used = cell.used.minus(takes);
            if !after.is_on(&by.cell_id) {
                cell.work.remove(work);
                if cell.work.is_empty() {
                    self.on_cell.remove(&by.cell_id);
                }
            }
        }
        for (by, takes) in after.containers() {
            let cell = self.on_cell.entry(by.cell_id.clone()).or_default();
            cell.used = cell.used.plus(takes);
            if !before.is_on(&by.cell_id) {
                cell.work.insert(work.clone());
            }
        }
    }

    /// Takes in what changed of a process or task as a whole.
    pub(crate) fn change_whole(
        &mut self,
        subject: impl FnOnce() -> Subject,
        which: impl FnOnce() -> Due,
        before: Whole,
        after: Whole,
    ) {
        self.counts.processes -= u64::from(before.desired);
        self.counts.processes += u64::from(after.desired);
        self.change_evaluations(before.evaluations, after.evaluations);
        if (Whole { desired: before.desired, evaluations: before.evaluations, ..after }) == before {
            return;
        }
        let which = which();
        if let Due::Process(guid) = &which {
            put(&mut self.global, guid, before.global, after.global);
        }
        if let Some(at) = before.due {
            self.due_whole.remove(&(at, which.clone()));
        }
        if let Some(at) = after.due {
            self.due_whole.insert((at, which.clone()));
        }
        if (before.forget_at, before.leaves_at) != (after.forget_at, after.leaves_at) {
            let subject = subject();
            self.gone.change(&subject, &which, before.forget_at, after.forget_at);
            self.evaluated.change(&subject, &which, before.leaves_at, after.leaves_at);
        }
    }

    /// Takes in that something has other evaluations.
    pub(crate) fn change_evaluations(&mut self, before: evaluation::Counts, after: evaluation::Counts) {
        self.counts.evaluations = self.counts.evaluations.minus(before).plus(after);
    }

    /// Puts what subjects let go of under those of another number of shards.
    pub(crate) fn deal_anew(&mut self, shards: u16) {
        self.gone.deal_anew(shards);
        self.evaluated.deal_anew(shards);
    }

    /// What is due at `now`, the earliest first.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<Due> {
        let mut seen = BTreeSet::new();
        let all = self.due_times(now).into_iter();
        all.map(|(_, due)| due).filter(|due| seen.insert(due.clone())).collect()
    }

    /// Everything that is due at `now`, each time with what is due then, the earliest first.
    pub(crate) fn due_times(&self, now: Timestamp) -> Vec<(Timestamp, Due)> {
        let slots = self.due.iter().take_while(|(at, _)| *at <= now).map(|(at, work)| (*at, Due::from(work)));
        let wholes = self.due_whole.iter().take_while(|(at, _)| *at <= now).cloned();
        let mut all: Vec<_> = slots.chain(wholes).collect();
        all.sort_by_key(|(at, _)| *at);
        all
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let slot = self.due.first().map(|(at, _)| *at);
        let whole = self.due_whole.first().map(|(at, _)| *at);
        slot.into_iter().chain(whole).min()
    }
}

impl From<&WorkRef> for Due {
    fn from(work: &WorkRef) -> Self {
        match work {
            WorkRef::Lrp(key) => Self::Process(key.process_guid.clone()),
            WorkRef::Task(guid) => Self::Task(guid.clone()),
        }
    }
}

fn put<T: Ord + Clone>(set: &mut BTreeSet<T>, member: &T, before: bool, after: bool) {
    match (before, after) {
        (false, true) => {
            set.insert(member.clone());
        }
        (true, false) => {
            set.remove(member);
        }
        (false, false) | (true, true) => {}
    }
}
