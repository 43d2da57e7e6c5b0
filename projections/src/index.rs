//! Indexes of the World (the state folded from the log): the sets that answer the services' queries. Folding
//! updates the sets slot by slot, and reads only the slots that a decision touched. A slot is one index of a
//! process.
//!
//! Each slot and each task has [`Facts`], its contribution to the sets. Folding compares the facts before and
//! after a decision. Therefore a set does not depend on the history of its members, and a World restored from
//! a snapshot has the same sets as a folded World.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::time::Duration;

use imbl::{OrdMap, OrdSet};
use machines::actual::{self, Actual};
use machines::evaluation;
use machines::parameterised::Parameterised;
use machines::periodic::Periodic;
use machines::process::{Process, Slot};
use machines::task::{self, Task};
use schemas::container::Instance;
use schemas::names::{CellId, Domain, InstanceGuid, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid};
use schemas::query::{InstanceState, TaskState};
use schemas::quota::Usage;
use schemas::resources::Resources;
use schemas::{ActualLrpKey, Place, Subject, Timestamp};

/// Retention time of a removed aggregate. The World remembers its epoch, version and answers, to recognise a
/// repeated request and to refuse a late report of an earlier epoch.
///
/// The retention is measured in log time. An entry on the aggregate's own subject removes the aggregate from
/// the World if the entry was decided at least this long after the aggregate's last decision.
pub const RETENTION: Duration = Duration::from_secs(600);

/// Reference to an instance of a process or to a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkRef {
    Lrp(ActualLrpKey),
    Task(TaskGuid),
}

/// Aggregate with due work for convergence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    Process(ProcessGuid),
    Task(TaskGuid),
    Periodic(PeriodicGuid),
    Parameterised(ParameterisedGuid),
}

/// Counts of processes, instances, tasks and evaluations. Aggregates that are gone, and only remembered for a
/// while, do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Desired processes.
    pub processes: u64,
    pub instances: InstanceCounts,
    pub tasks: TaskCounts,
    /// Evaluations by status, including those of remembered aggregates.
    pub evaluations: evaluation::Counts,
}

/// Instances by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstanceCounts {
    pub unclaimed: u64,
    pub claimed: u64,
    /// RUNNING instances, except evacuating ones.
    pub running: u64,
    pub crashed: u64,
    /// Evacuating instances.
    pub evacuating: u64,
}

/// Tasks by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    pub pending: u64,
    pub running: u64,
    pub completed: u64,
    pub resolving: u64,
}

impl InstanceCounts {
    /// Returns the number of instances in a state.
    #[must_use]
    pub const fn in_state(&self, state: InstanceState) -> u64 {
        match state {
            InstanceState::Unclaimed => self.unclaimed,
            InstanceState::Claimed => self.claimed,
            InstanceState::Running => self.running,
            InstanceState::Crashed => self.crashed,
        }
    }
}

impl TaskCounts {
    /// Returns the number of tasks in a state.
    #[must_use]
    pub const fn in_state(&self, state: TaskState) -> u64 {
        match state {
            TaskState::Pending => self.pending,
            TaskState::Running => self.running,
            TaskState::Completed => self.completed,
            TaskState::Resolving => self.resolving,
        }
    }
}

/// Resources of containers whose definition is no longer recorded. These containers belong to an earlier
/// epoch or are still stopping. The resources are noted when the definition is removed.
pub(crate) type FormerResources = BTreeMap<ProcessGuid, BTreeMap<(Place, InstanceGuid), Resources>>;

/// Work on a cell according to the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OnCell {
    pub(crate) work: OrdSet<WorkRef>,
    pub(crate) used: Resources,
}

/// Sets that can be recomputed from processes and tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Index {
    pub(crate) counts: Counts,
    pub(crate) work: BTreeSet<WorkRef>,
    pub(crate) stopping: BTreeSet<WorkRef>,
    pub(crate) on_cell: OrdMap<CellId, OnCell>,
    pub(crate) callbacks: BTreeSet<TaskGuid>,
    /// Next due time of each slot and task. The times are kept per slot, so that a change of one slot does
    /// not require a scan of its process.
    due: BTreeSet<(Timestamp, WorkRef)>,
    pub(crate) global: BTreeSet<ProcessGuid>,
    /// Next due time of each process's rollout and of each periodic task.
    due_aggregates: BTreeSet<(Timestamp, Due)>,
    /// Aggregates that are gone and only remembered, by the time from which they may be forgotten.
    pub(crate) gone: ExpiryQueue,
    /// Aggregates with ended evaluations, by the time at which the first ended evaluation is removed.
    pub(crate) evaluated: ExpiryQueue,
    /// Quota-relevant usage of each domain, without domains that use nothing.
    pub(crate) usage: OrdMap<Domain, Usage>,
}

/// Aggregates by subject and by expiry time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ExpiryQueue(BTreeMap<Subject, BTreeSet<(Timestamp, Due)>>);

impl ExpiryQueue {
    /// Moves an aggregate from one expiry time to another. `None` stands for no expiry.
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

    /// Removes and returns one aggregate of the subject that expires at or before `now`.
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

    /// Adds the aggregates of another part of the World.
    fn merge(&mut self, other: Self) {
        for (subject, mut all) in other.0 {
            self.0.entry(subject).or_default().append(&mut all);
        }
    }

    /// Assigns all aggregates to the subjects of a new number of shards.
    fn reassign(&mut self, shards: u16) {
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

/// Counted state of a slot's instance or of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountedState {
    Unclaimed,
    Claimed,
    Running,
    Crashed,
    Pending,
    TaskRunning,
    Completed,
    Resolving,
}

/// A container and the resources that it uses on its cell.
#[derive(Clone, Debug, PartialEq)]
struct ContainerUse {
    container: Instance,
    resources: Resources,
}

/// Contribution of one slot or task to the sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Facts {
    counted: Option<CountedState>,
    evacuating: bool,
    stopping: bool,
    callback: bool,
    due: Option<Timestamp>,
    /// Container of the instance or task, and the container of the evacuating instance if it is a different
    /// one.
    held: [Option<ContainerUse>; 2],
}

/// Contribution of a process or task as a whole to the sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AggregateFacts {
    desired: bool,
    global: bool,
    /// Next due time of the rollout, or of the launch of a periodic task.
    due: Option<Timestamp>,
    /// Time from which the aggregate may be forgotten. `None` if it is not gone.
    pub(crate) forget_at: Option<Timestamp>,
    /// Time at which the first ended evaluation of the aggregate is removed. `None` if it has no ended
    /// evaluation.
    pub(crate) evaluation_expires_at: Option<Timestamp>,
    pub(crate) evaluations: evaluation::Counts,
}

impl Facts {
    /// Returns the facts of a slot. The facts are empty if the slot does not exist.
    pub(crate) fn of_slot(process: &Process, slot: Option<&Slot>, former: &FormerResources) -> Self {
        let Some(slot) = slot else { return Self::default() };
        let actual = slot.actual.as_ref();
        let twin = slot.evacuating.as_deref();
        let held = |by: &Instance| ContainerUse {
            container: by.clone(),
            resources: takes(process, &slot.place, by.instance_guid, former),
        };
        let holder = actual.and_then(Actual::holder);
        let other = twin.filter(|twin| Some(&twin.by) != holder);
        Self {
            counted: actual.map(|lrp| CountedState::instance(&lrp.state)),
            evacuating: twin.is_some(),
            stopping: actual.is_some_and(Actual::is_stopping),
            callback: false,
            due: process.slot_due(slot),
            held: [holder.map(held), other.map(|twin| held(&twin.by))],
        }
    }

    /// Returns the facts of a task. The facts are empty if the task does not exist or was deleted.
    pub(crate) fn of_task(task: Option<&Task>) -> Self {
        let Some((task, state)) = task.and_then(|task| Some((task, task.state.as_ref()?))) else {
            return Self::default();
        };
        let (counted, runner, completed) = match state {
            task::State::Pending { .. } => (CountedState::Pending, None, false),
            task::State::Running { by } => (CountedState::TaskRunning, Some(by), false),
            task::State::Completed(_) => (CountedState::Completed, None, true),
            task::State::Resolving(_) => (CountedState::Resolving, None, false),
        };
        let held =
            runner.map(|by| ContainerUse { container: by.clone(), resources: task.definition.resources() });
        Self {
            counted: Some(counted),
            evacuating: false,
            stopping: false,
            callback: completed
                && task.definition.completion_callback_url.is_some()
                && task.completed().is_some_and(task::Completed::is_callback_open),
            due: task.next_due(),
            held: [held, None],
        }
    }

    /// Returns each container with the resources that it uses.
    pub(crate) fn containers(&self) -> impl Iterator<Item = (&Instance, Resources)> {
        self.held.iter().flatten().map(|held| (&held.container, held.resources))
    }

    fn is_on(&self, cell: &CellId) -> bool {
        self.containers().any(|(by, _)| by.cell_id == *cell)
    }

    fn is_work(&self) -> bool {
        match self.counted {
            Some(CountedState::Unclaimed | CountedState::Pending) => true,
            Some(
                CountedState::Claimed
                | CountedState::Running
                | CountedState::Crashed
                | CountedState::TaskRunning
                | CountedState::Completed
                | CountedState::Resolving,
            )
            | None => false,
        }
    }
}

/// Returns the resources of a process's container. If the definition was removed, the resources were noted at
/// that time. Otherwise they are those of the current definition. A container with an unknown definition
/// counts as one container without memory, disk or ports.
fn takes(process: &Process, place: &Place, container: InstanceGuid, former: &FormerResources) -> Resources {
    let noted = || former.get(&process.guid)?.get(&(place.clone(), container)).copied();
    let recorded = || {
        let desired = process.desired.as_ref()?;
        desired.definition(&place.definition_id).map(|definition| definition.resources())
    };
    noted().or_else(recorded).unwrap_or(Resources::for_container(0, 0, 0))
}

impl AggregateFacts {
    pub(crate) fn of_process(process: &Process) -> Self {
        let (evaluations, evaluation_expires_at) = evaluation::counts_and_expiry(&process.evaluations);
        Self {
            desired: process.desired.is_some(),
            global: process.desired.as_ref().is_some_and(|desired| desired.is_global()),
            due: process.rollout_due(),
            forget_at: process.is_gone().then(|| process.changed_at + RETENTION),
            evaluation_expires_at,
            evaluations,
        }
    }

    pub(crate) fn of_task(task: &Task) -> Self {
        let (evaluations, evaluation_expires_at) = evaluation::counts_and_expiry(&task.evaluations);
        Self {
            desired: false,
            global: false,
            due: None,
            forget_at: task.state.is_none().then(|| task.since + RETENTION),
            evaluation_expires_at,
            evaluations,
        }
    }
}

impl AggregateFacts {
    pub(crate) fn of_periodic(periodic: &Periodic) -> Self {
        Self {
            due: periodic.next.filter(|_| !periodic.is_removed()),
            forget_at: periodic.is_removed().then(|| periodic.since + RETENTION),
            ..Self::default()
        }
    }

    pub(crate) fn of_parameterised(known: &Parameterised) -> Self {
        Self { forget_at: known.is_removed().then(|| known.idle_since + RETENTION), ..Self::default() }
    }
}

impl CountedState {
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

    fn count_mut(&mut self, counted: CountedState) -> &mut u64 {
        match counted {
            CountedState::Unclaimed => &mut self.instances.unclaimed,
            CountedState::Claimed => &mut self.instances.claimed,
            CountedState::Running => &mut self.instances.running,
            CountedState::Crashed => &mut self.instances.crashed,
            CountedState::Pending => &mut self.tasks.pending,
            CountedState::TaskRunning => &mut self.tasks.running,
            CountedState::Completed => &mut self.tasks.completed,
            CountedState::Resolving => &mut self.tasks.resolving,
        }
    }
}

impl Index {
    /// Returns the sets that a World snapshot needs.
    pub(crate) fn frozen(&self) -> Self {
        let (on_cell, usage) = (self.on_cell.clone(), self.usage.clone());
        Self { counts: self.counts, on_cell, usage, ..Self::default() }
    }

    /// Returns the names of the sets that differ from those of another index.
    pub(crate) fn differences(&self, other: &Self) -> Vec<&'static str> {
        let Self {
            counts,
            work,
            stopping,
            on_cell,
            callbacks,
            due,
            global,
            due_aggregates,
            gone,
            evaluated,
            usage,
        } = other;
        let same = [
            ("counts", self.counts == *counts),
            ("pending work", self.work == *work),
            ("stopping instances", self.stopping == *stopping),
            ("work on cells", self.on_cell == *on_cell),
            ("callbacks", self.callbacks == *callbacks),
            ("due slots and tasks", self.due == *due),
            ("global processes", self.global == *global),
            ("due aggregates", self.due_aggregates == *due_aggregates),
            ("retained aggregates", self.gone == *gone),
            ("ended evaluations", self.evaluated == *evaluated),
            ("usage of domains", self.usage == *usage),
        ];
        same.into_iter().filter(|(_, is_same)| !is_same).map(|(name, _)| name).collect()
    }

    /// Adds the sets of another part of the World.
    pub(crate) fn merge(&mut self, other: Self) {
        let Self {
            counts,
            mut work,
            mut stopping,
            on_cell,
            mut callbacks,
            mut due,
            mut global,
            due_aggregates: mut due_whole,
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
        self.due_aggregates.append(&mut due_whole);
        self.gone.merge(gone);
        self.evaluated.merge(evaluated);
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

    /// Replaces the share of one process or task in the usage of its domain.
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

    /// Applies the change of a slot or task.
    pub(crate) fn change(&mut self, work: &WorkRef, before: &Facts, after: &Facts) {
        if before == after {
            return;
        }
        self.count(before, after);
        update_membership(&mut self.work, work, before.is_work(), after.is_work());
        update_membership(&mut self.stopping, work, before.stopping, after.stopping);
        if let WorkRef::Task(guid) = work {
            update_membership(&mut self.callbacks, guid, before.callback, after.callback);
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
                *self.counts.count_mut(counted) -= 1;
            }
            if let Some(counted) = after.counted {
                *self.counts.count_mut(counted) += 1;
            }
        }
        self.counts.instances.evacuating -= u64::from(before.evacuating);
        self.counts.instances.evacuating += u64::from(after.evacuating);
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

    /// Applies the change of a process or task as a whole.
    pub(crate) fn change_aggregate(
        &mut self,
        shards: u16,
        which: impl FnOnce() -> Due,
        before: AggregateFacts,
        after: AggregateFacts,
    ) {
        self.counts.processes -= u64::from(before.desired);
        self.counts.processes += u64::from(after.desired);
        self.change_evaluations(before.evaluations, after.evaluations);
        if (AggregateFacts { desired: before.desired, evaluations: before.evaluations, ..after }) == before {
            return;
        }
        let which = which();
        if let Due::Process(guid) = &which {
            update_membership(&mut self.global, guid, before.global, after.global);
        }
        if let Some(at) = before.due {
            self.due_aggregates.remove(&(at, which.clone()));
        }
        if let Some(at) = after.due {
            self.due_aggregates.insert((at, which.clone()));
        }
        if (before.forget_at, before.evaluation_expires_at) != (after.forget_at, after.evaluation_expires_at)
        {
            let subject = which.subject(shards);
            self.gone.change(&subject, &which, before.forget_at, after.forget_at);
            self.evaluated.change(
                &subject,
                &which,
                before.evaluation_expires_at,
                after.evaluation_expires_at,
            );
        }
    }

    /// Applies the change of an aggregate's evaluations.
    pub(crate) fn change_evaluations(&mut self, before: evaluation::Counts, after: evaluation::Counts) {
        self.counts.evaluations = self.counts.evaluations.minus(before).plus(after);
    }

    /// Assigns expiring aggregates to the subjects of a new number of shards.
    pub(crate) fn reassign(&mut self, shards: u16) {
        self.gone.reassign(shards);
        self.evaluated.reassign(shards);
    }

    /// Returns the aggregates that are due at `now`, earliest first and without duplicates.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<Due> {
        let mut seen = BTreeSet::new();
        let all = self.due_times(now).into_iter();
        all.map(|(_, due)| due).filter(|due| seen.insert(due.clone())).collect()
    }

    /// Returns every due time up to `now` with its aggregate, earliest first. An aggregate may occur more
    /// than once.
    pub(crate) fn due_times(&self, now: Timestamp) -> Vec<(Timestamp, Due)> {
        let slots = self.due.iter().take_while(|(at, _)| *at <= now).map(|(at, work)| (*at, Due::from(work)));
        let wholes = self.due_aggregates.iter().take_while(|(at, _)| *at <= now).cloned();
        let mut all: Vec<_> = slots.chain(wholes).collect();
        all.sort_by_key(|(at, _)| *at);
        all
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let slot = self.due.first().map(|(at, _)| *at);
        let whole = self.due_aggregates.first().map(|(at, _)| *at);
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

fn update_membership<T: Ord + Clone>(set: &mut BTreeSet<T>, member: &T, before: bool, after: bool) {
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
