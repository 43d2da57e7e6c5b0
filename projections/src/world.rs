//! The World: what is true after a position of the log, and every question that the services ask of it.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::ops::{Bound, Deref};
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use imbl::ordmap::Entry as Room;
use schemas::cell::{self, Cell};
use schemas::cluster::{self, Cluster};
use schemas::container::Epoch;
use schemas::domain::{self, Freshness, Limited};
use schemas::ended::{EndedInstance, EndedTask};
use schemas::entry::{Actor, Aggregate, Event};
use schemas::evaluation::{self, Trigger};
use schemas::names::{
    CellId, Domain, InstanceGuid, LAUNCH_MARK, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid,
};
use schemas::parameterised::{self, Parameterised};
use schemas::periodic::{self, Periodic};
use schemas::process::{self, Process};
use schemas::quota::{Quotas, Usage};
use schemas::resources::Resources;
use schemas::subject::{DEFAULT_SHARDS, shard_subjects};
use schemas::task::{self, Task};
use schemas::{ActualLrpKey, Decision, Entry, Place, Places, Position, Subject, Timestamp};
use schemas::{actual, desired, ended, evacuating};

use crate::ended::History;
use crate::index::{Counts, Due, Facts, Former, Index, Whole, WorkRef};
use crate::share::{self, Shared};

/// How long what is gone stays remembered, with its epoch, its version and its answers: so long a repeated request is
/// recognised, and a late report of an earlier life is refused. Measured in time of the log: something is forgotten
/// with the first entry of its own subject that was decided this long after its last decision.
pub const REMEMBERED: Duration = Duration::from_secs(600);

/// What an entry changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// A process.
    Process(ProcessGuid),
    /// A task.
    Task(TaskGuid),
    /// A periodic task.
    Periodic(PeriodicGuid),
    /// A parameterised task.
    Parameterised(ParameterisedGuid),
    /// A domain.
    Domain(Domain),
    /// A cell.
    Cell(CellId),
    /// The cluster.
    Cluster,
}

/// What ended by an entry, and what did not after all, told while it is folded: whether the World remembers it or not.
#[derive(Clone, Copy, Debug)]
pub enum Told<'a> {
    /// A container of an instance ended.
    InstanceEnded {
        /// Its process.
        process: &'a ProcessGuid,
        /// What is known of it.
        ended: &'a EndedInstance,
    },
    /// An instance is in a container, which may have ended before, and come back with its cell.
    InstanceTaken {
        /// Which.
        container: InstanceGuid,
    },
    /// A task was deleted after it completed.
    TaskEnded {
        /// What is known of it.
        ended: &'a EndedTask,
    },
}

/// Who is told.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(Told<'_>);

/// What is true after a position of the log.
///
/// The same entries give the same World: folded in one go, folded from a snapshot, or folded twice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct World {
    pub(crate) position: Position,
    pub(crate) cluster: Option<Arc<Cluster>>,
    pub(crate) last: BTreeMap<Subject, (Position, Timestamp)>,
    /// What pictures show is in maps that share what didn't change: a clone of one costs next to nothing, and folding on
    /// copies only what it changes.
    pub(crate) processes: OrdMap<ProcessGuid, Arc<Process>>,
    pub(crate) tasks: OrdMap<TaskGuid, Arc<Task>>,
    pub(crate) periodics: OrdMap<PeriodicGuid, Arc<Periodic>>,
    pub(crate) parameterised: OrdMap<ParameterisedGuid, Arc<Parameterised>>,
    pub(crate) domains: OrdMap<Domain, Freshness>,
    pub(crate) limited: OrdMap<Domain, Limited>,
    pub(crate) cells: OrdMap<CellId, Cell>,
    pub(crate) former: Former,
    pub(crate) history: History,
    pub(crate) found_by_convergence: u64,
    /// Where the last decision stood of whatever was forgotten, the greatest of them.
    pub(crate) forgotten: Position,
    pub(crate) index: Index,
    pub(crate) shared: Shared,
}

/// The World at one position, for whoever only reads: what rows and records show, without what only deciding needs. It
/// costs next to nothing to make, and stays as it is while the World is folded on.
#[derive(Clone, Debug)]
pub struct Picture(Arc<World>);

impl Deref for Picture {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0
    }
}

impl World {
    /// A picture of it as it is now.
    #[must_use]
    pub fn picture(&self) -> Picture {
        Picture(Arc::new(Self {
            position: self.position,
            cluster: self.cluster.clone(),
            processes: self.processes.clone(),
            tasks: self.tasks.clone(),
            periodics: self.periodics.clone(),
            parameterised: self.parameterised.clone(),
            domains: self.domains.clone(),
            limited: self.limited.clone(),
            cells: self.cells.clone(),
            history: self.history.pictured(),
            found_by_convergence: self.found_by_convergence,
            index: self.index.pictured(),
            ..Self::new()
        }))
    }

    /// The World before the first entry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The position of the last entry that was folded.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// The cluster; none before it is founded.
    #[must_use]
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_deref()
    }

    /// Shows every cell that has an ordinal, in order of that.
    pub fn numbered(&self, visit: process::Visit<'_>) {
        for (ordinal, id) in self.cluster.iter().flat_map(|cluster| &cluster.ordinals) {
            if let Some(cell) = self.cells.get(id) {
                visit(*ordinal, id, cell);
            }
        }
    }

    /// The ordinal of a cell.
    #[must_use]
    pub fn ordinal(&self, id: &CellId) -> Option<u32> {
        let mut all = self.cluster.iter().flat_map(|cluster| &cluster.ordinals);
        all.find(|(_, known)| *known == id).map(|(ordinal, _)| *ordinal)
    }

    /// Whether a cell that is known has no ordinal, or one that is forgotten has one.
    #[must_use]
    pub fn lacks_ordinals(&self) -> bool {
        let Some(cluster) = self.cluster() else { return false };
        let is_gone = |id: &CellId| !self.cells.contains_key(id);
        let lacks = cluster.ordinals.len() != self.cells.len() || cluster.ordinals.values().any(is_gone);
        debug_assert_eq!(
            lacks,
            !cluster::decide_ordinals(cluster, &self.cells.keys().collect()).is_empty(),
            "this is the rule of `decide_ordinals` without its sets"
        );
        lacks
    }

    /// The global processes, in order.
    pub fn global(&self) -> impl Iterator<Item = &ProcessGuid> {
        self.index.global.iter()
    }

    /// How many shards there are; [`DEFAULT_SHARDS`] before the cluster is founded.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.cluster.as_ref().map_or(DEFAULT_SHARDS, |cluster| cluster.shards)
    }

    /// The position of a subject's last entry; 0: it has none.
    #[must_use]
    pub fn last_on(&self, subject: &Subject) -> Position {
        self.last.get(subject).map_or(Position(0), |(position, _)| *position)
    }

    /// When a subject's last decision was made; 0: it has none.
    #[must_use]
    pub fn last_time(&self, subject: &Subject) -> Timestamp {
        self.last.get(subject).map_or(Timestamp(0), |(_, at)| *at)
    }

    /// Every subject with the time of its last decision.
    pub fn last_times(&self) -> impl Iterator<Item = (&Subject, Timestamp)> {
        self.last.iter().map(|(subject, (_, at))| (subject, *at))
    }

    /// The greatest time of a decision so far. Times go forward on each subject, and not from one to the next.
    #[must_use]
    pub fn latest(&self) -> Timestamp {
        self.last.values().map(|(_, at)| *at).max().unwrap_or_default()
    }

    /// A process; also one that is gone and only remembered (see [`Process::is_gone`]).
    #[must_use]
    pub fn process(&self, guid: &ProcessGuid) -> Option<&Process> {
        self.processes.get(guid).map(Arc::as_ref)
    }

    /// Processes in order of their guids, from the one after `after`. Those that are gone and only remembered are among
    /// them: whoever lists the living leaves out what [`Process::is_gone`].
    pub fn processes_from(&self, after: Option<&ProcessGuid>) -> impl Iterator<Item = &Process> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.processes.range::<_, ProcessGuid>((from, Bound::Unbounded)).map(|(_, process)| &**process)
    }

    /// A task; also one that was deleted and is only remembered (its state is none).
    #[must_use]
    pub fn task(&self, guid: &TaskGuid) -> Option<&Task> {
        self.tasks.get(guid).map(Arc::as_ref)
    }

    /// Tasks in order of their guids, from the one after `after`. Those that were deleted and are only remembered are
    /// among them: whoever lists the living leaves out what has no state.
    pub fn tasks_from(&self, after: Option<&TaskGuid>) -> impl Iterator<Item = &Task> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.tasks.range::<_, TaskGuid>((from, Bound::Unbounded)).map(|(_, task)| &**task)
    }

    /// A periodic task; also one that was removed and is only remembered.
    #[must_use]
    pub fn periodic(&self, guid: &PeriodicGuid) -> Option<&Periodic> {
        self.periodics.get(guid).map(Arc::as_ref)
    }

    /// Periodic tasks in order of their guids, from the one after `after`. Those that were removed and are only
    /// remembered are among them: whoever lists the living leaves out what [`Periodic::is_gone`].
    pub fn periodics_from(&self, after: Option<&PeriodicGuid>) -> impl Iterator<Item = &Periodic> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.periodics.range::<_, PeriodicGuid>((from, Bound::Unbounded)).map(|(_, periodic)| &**periodic)
    }

    /// What a periodic task launched and is still there, in order of the guids.
    pub fn launched_by(&self, guid: &PeriodicGuid) -> impl Iterator<Item = &Task> {
        self.named_after(guid.as_str()).filter(|task| task.guid.periodic().is_some())
    }

    /// A parameterised task; also one that was removed and is only remembered.
    #[must_use]
    pub fn parameterised(&self, guid: &ParameterisedGuid) -> Option<&Parameterised> {
        self.parameterised.get(guid).map(Arc::as_ref)
    }

    /// Parameterised tasks in order of their guids, from the one after `after`. Those that were removed and are only
    /// remembered are among them: whoever lists the living leaves out what [`Parameterised::is_gone`].
    pub fn parameterised_from(
        &self,
        after: Option<&ParameterisedGuid>,
    ) -> impl Iterator<Item = &Parameterised> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.parameterised.range::<_, ParameterisedGuid>((from, Bound::Unbounded));
        range.map(|(_, known)| &**known)
    }

    /// What was dispatched of a parameterised task and is still there, in order of the guids.
    pub fn dispatched_of(&self, guid: &ParameterisedGuid) -> impl Iterator<Item = &Task> {
        self.named_after(guid.as_str()).filter(|task| task.guid.dispatched().is_some())
    }

    /// The tasks that are named after whoever launched them.
    fn named_after(&self, launcher: &str) -> impl Iterator<Item = &Task> {
        let first = format!("{launcher}{LAUNCH_MARK}");
        let from = (Bound::Included(first.as_str()), Bound::Unbounded);
        let tasks = self.tasks.range::<_, str>(from).map(|(_, task)| &**task);
        tasks.take_while(move |task| task.guid.as_str().starts_with(&first))
    }

    /// The freshness of a domain; none: nobody ever refreshed it.
    #[must_use]
    pub fn domain(&self, domain: &Domain) -> Option<&Freshness> {
        self.domains.get(domain)
    }

    /// Returns the quotas that an operator set for a domain, or `None` if no operator did.
    #[must_use]
    pub fn limited(&self, domain: &Domain) -> Option<&Limited> {
        self.limited.get(domain)
    }

    /// Returns the quotas of a domain.
    #[must_use]
    pub fn quotas(&self, domain: &Domain) -> Quotas {
        self.limited(domain).map(|limited| limited.quotas).unwrap_or_default()
    }

    /// Returns the usage of a domain that its quotas limit.
    #[must_use]
    pub fn usage(&self, domain: &Domain) -> Usage {
        self.index.usage.get(domain).copied().unwrap_or_default()
    }

    /// Returns the usage of each domain, without domains that use nothing.
    pub fn usages(&self) -> impl Iterator<Item = (&Domain, Usage)> {
        self.index.usage.iter().map(|(domain, used)| (domain, *used))
    }

    /// Whether a domain is fresh. One that nobody refreshed isn't.
    #[must_use]
    pub fn is_fresh(&self, domain: &Domain, now: Timestamp) -> bool {
        self.domain(domain).is_some_and(|freshness| freshness.is_fresh(now))
    }

    /// Every domain that was ever refreshed, fresh or not, in order.
    pub fn domains(&self) -> impl Iterator<Item = (&Domain, &Freshness)> {
        self.domains.iter()
    }

    /// A cell; also one that disappeared.
    #[must_use]
    pub fn cell(&self, id: &CellId) -> Option<&Cell> {
        self.cells.get(id)
    }

    /// Every cell that ever appeared, present or not, in order.
    pub fn cells(&self) -> impl Iterator<Item = (&CellId, &Cell)> {
        self.cells.iter()
    }

    /// Whether a cell is present.
    #[must_use]
    pub fn is_present(&self, id: &CellId) -> bool {
        self.cell(id).is_some_and(|cell| cell.present)
    }

    /// Every record that names a cell: CLAIMED and RUNNING instances, evacuating twins, RUNNING tasks.
    pub fn on_cell(&self, id: &CellId) -> impl Iterator<Item = &WorkRef> {
        self.index.on_cell.get(id).into_iter().flat_map(|cell| &cell.work)
    }

    /// What the containers that the log has on a cell take of it, each as its definition says.
    #[must_use]
    pub fn used_on(&self, id: &CellId) -> Resources {
        self.index.on_cell.get(id).map_or(Resources::default(), |cell| cell.used)
    }

    /// The cells that a record names, present or not: where to look for what a lost cell left behind.
    pub fn named_cells(&self) -> impl Iterator<Item = &CellId> {
        self.index.on_cell.keys()
    }

    /// What is to be placed: UNCLAIMED indices and PENDING tasks, also those with a placement error.
    pub fn work(&self) -> impl Iterator<Item = &WorkRef> {
        self.index.work.iter()
    }

    /// Instances that were asked to stop and still have a record.
    pub fn stopping(&self) -> impl Iterator<Item = &WorkRef> {
        self.index.stopping.iter()
    }

    /// Tasks that are COMPLETED and whose completion callback is to be called.
    pub fn callbacks(&self) -> impl Iterator<Item = &TaskGuid> {
        self.index.callbacks.iter()
    }

    /// Processes, tasks and periodic tasks whose `next_due` has come, each once, the one that is due longest first.
    #[must_use]
    pub fn due(&self, now: Timestamp) -> Vec<Due> {
        self.index.due(now)
    }

    /// Everything that is due at `now`, each time with what is due then, the earliest first.
    #[must_use]
    pub fn due_times(&self, now: Timestamp) -> Vec<(Timestamp, Due)> {
        self.index.due_times(now)
    }

    /// When something is next due.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.index.next_due()
    }

    /// How much there is of everything.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.index.counts
    }

    /// How many decisions made work that only convergence found. In a healthy cluster this stays at 0.
    #[must_use]
    pub const fn found_by_convergence(&self) -> u64 {
        self.found_by_convergence
    }

    /// Up to where decisions may stand about what is not known any more: of a process, a task or a periodic task that is
    /// unknown, none stands behind it.
    #[must_use]
    pub const fn forgotten(&self) -> Position {
        self.forgotten
    }

    /// Folds an entry, and returns what it changed: each aggregate once, in order of first appearance. Forgetting what
    /// has long been gone is not a change. An entry at or below [`World::position`] was folded already and changes nothing.
    pub fn fold(&mut self, position: Position, entry: &Entry) -> Vec<Change> {
        self.fold_telling(position, entry, &mut |_| {})
    }

    /// Folds an entry as [`World::fold`] does, and tells what ends by it, in order.
    pub fn fold_telling(&mut self, position: Position, entry: &Entry, tell: Tell<'_>) -> Vec<Change> {
        if position <= self.position {
            return vec![];
        }
        self.position = position;
        let mut changes = vec![];
        let mut seen = BTreeSet::new();
        let mut touched = BTreeMap::new();
        for decision in &entry.decisions {
            let change = self.fold_decision(decision, tell);
            if seen.insert(change.clone()) {
                changes.push(change);
            }
            touched.insert(decision.aggregate.subject(self.shards()), decision.at);
        }
        for (subject, at) in touched {
            self.forget(&subject, at);
            self.last.insert(subject, (position, at));
        }
        changes
    }

    fn fold_decision(&mut self, decision: &Decision, tell: Tell<'_>) -> Change {
        self.found_by_convergence += u64::from(only_convergence_found(decision));
        match &decision.aggregate {
            Aggregate::Process { guid, domain, epoch } => {
                self.fold_process(guid, (domain, *epoch), decision, tell);
                Change::Process(guid.clone())
            }
            Aggregate::Task { guid, .. } => {
                self.fold_task(guid, decision, tell);
                Change::Task(guid.clone())
            }
            Aggregate::Periodic { guid, .. } => {
                self.fold_periodic(guid, decision);
                Change::Periodic(guid.clone())
            }
            Aggregate::Parameterised { guid, .. } => {
                self.fold_parameterised(guid, decision);
                Change::Parameterised(guid.clone())
            }
            Aggregate::Domain(domain) => {
                self.fold_domain(domain, decision);
                Change::Domain(domain.clone())
            }
            Aggregate::Cell(id) => {
                self.fold_cell(id, decision);
                Change::Cell(id.clone())
            }
            Aggregate::Cluster => {
                self.fold_cluster(decision);
                Change::Cluster
            }
        }
    }

    fn fold_process(
        &mut self,
        guid: &ProcessGuid,
        (domain, epoch): (&Domain, Epoch),
        decision: &Decision,
        tell: Tell<'_>,
    ) {
        let shards = self.shards();
        let (process, whole) = match self.processes.entry(guid.clone()) {
            Room::Occupied(place) => {
                let process = Arc::make_mut(place.into_mut());
                let whole = Whole::of_process(process);
                (process, whole)
            }
            Room::Vacant(place) => {
                let mut process = Process::new(guid.clone(), domain.clone(), epoch);
                self.shared.enter(&mut process.domain);
                (Arc::make_mut(place.insert(Arc::new(process))), Whole::default())
            }
        };
        let touched = touched(process, &decision.events);
        let facts = |process: &Process, former: &Former| -> Vec<Facts> {
            touched.iter().map(|place| Facts::of_slot(process, process.slot(place), former)).collect()
        };
        let before = facts(process, &self.former);
        let life_ends = decision.events.iter().any(ends_life);
        if life_ends {
            note_former(&mut self.former, guid, touched.iter().zip(&before));
        }
        let left = process.domain.clone();
        let used = used_by_process(process);
        // The log says which version this is, even if the process was forgotten in between.
        process.version = decision.version.saturating_sub(1);
        let ended = process::evolve(process, &decision.events, &decision.stamp());
        process.last_decision = self.position;
        if life_ends {
            self.shared.leave(&left);
            self.shared.enter(&mut process.domain);
        }
        if decision.events.iter().any(brings_definition) {
            self.shared.definitions(process);
        }
        if decision.events.iter().any(brings_policies) {
            self.shared.policies(process);
        }
        self.index.change_usage(Some((left, used)), Some((&process.domain, used_by_process(process))));
        share_touched(process, &touched, &self.index);
        self.history.fold(process, &decision.events, ended, self.position, tell);
        let after = facts(process, &self.former);
        // From here on, names are those that the process holds: the sets keep them, and the text of each is there once.
        let guid = &process.guid;
        for ((place, before), after) in touched.into_iter().zip(&before).zip(&after) {
            drop_former(&mut self.former, guid, &place, before, after);
            let place = process.slot(&place).map_or(place, |slot| slot.place.clone());
            self.index.change(&WorkRef::Lrp(ActualLrpKey::new(guid.clone(), place)), before, after);
        }
        let subject = || Subject::of_process(guid, shards);
        self.index.change_whole(subject, || Due::Process(guid.clone()), whole, Whole::of_process(process));
    }

    fn fold_task(&mut self, guid: &TaskGuid, decision: &Decision, tell: Tell<'_>) {
        let shards = self.shards();
        let old = self.tasks.remove(guid).map(Arc::unwrap_or_clone);
        let before = Facts::of_task(old.as_ref());
        let whole = old.as_ref().map(Whole::of_task).unwrap_or_default();
        if let Some(old) = &old {
            self.shared.leave(&old.domain);
        }
        let used = old.as_ref().map(|old| (old.domain.clone(), used_by(old.state.is_some())));
        if let Some(ended) = ended::task(old.as_ref(), &decision.events, &decision.stamp()) {
            tell(Told::TaskEnded { ended: &ended });
            self.history.task_ended(self.position, ended);
        }
        // The name that the sets hold already, so that its text is there once.
        let known = old.as_ref().map(|old| old.guid.clone());
        let guid = &known.unwrap_or_else(|| guid.clone());
        let Some(mut task) = task::evolve(old, &decision.events, &decision.stamp()) else {
            return self.index.change_usage(used, None);
        };
        task.guid = guid.clone();
        task.version = decision.version;
        task.last_decision = self.position;
        self.shared.enter(&mut task.domain);
        self.index.change_usage(used, Some((&task.domain, used_by(task.state.is_some()))));
        if decision.events.iter().any(|event| matches!(event, Event::Task(task::Event::Desired(_)))) {
            self.shared.task_definition(&mut task);
        }
        share::share_task(&mut task, &self.index.on_cell);
        let after = Facts::of_task(Some(&task));
        self.index.change(&WorkRef::Task(guid.clone()), &before, &after);
        let subject = || Subject::of_task(guid, shards);
        self.index.change_whole(subject, || Due::Task(guid.clone()), whole, Whole::of_task(&task));
        self.tasks.insert(guid.clone(), Arc::new(task));
    }

    fn fold_periodic(&mut self, guid: &PeriodicGuid, decision: &Decision) {
        let shards = self.shards();
        let old = self.periodics.remove(guid).map(Arc::unwrap_or_clone);
        let whole = old.as_ref().map(Whole::of_periodic).unwrap_or_default();
        if let Some(old) = &old {
            self.shared.leave(&old.domain);
        }
        let used = old.as_ref().map(|old| (old.domain.clone(), used_by(!old.is_gone())));
        let events = decision.events.iter().filter_map(Event::as_periodic);
        let Some(mut periodic) = periodic::evolve(old, events, &decision.stamp()) else {
            return self.index.change_usage(used, None);
        };
        periodic.guid = guid.clone();
        periodic.version = decision.version;
        periodic.last_decision = self.position;
        self.shared.enter(&mut periodic.domain);
        self.index.change_usage(used, Some((&periodic.domain, used_by(!periodic.is_gone()))));
        let subject = || Subject::of_periodic(guid, shards);
        let after = Whole::of_periodic(&periodic);
        self.index.change_whole(subject, || Due::Periodic(guid.clone()), whole, after);
        self.periodics.insert(guid.clone(), Arc::new(periodic));
    }

    fn fold_parameterised(&mut self, guid: &ParameterisedGuid, decision: &Decision) {
        let shards = self.shards();
        let old = self.parameterised.remove(guid).map(Arc::unwrap_or_clone);
        let whole = old.as_ref().map(Whole::of_parameterised).unwrap_or_default();
        if let Some(old) = &old {
            self.shared.leave(&old.domain);
        }
        let used = old.as_ref().map(|old| (old.domain.clone(), used_by(!old.is_gone())));
        let events = decision.events.iter().filter_map(Event::as_parameterised);
        let Some(mut known) = parameterised::evolve(old, events, &decision.stamp()) else {
            return self.index.change_usage(used, None);
        };
        known.guid = guid.clone();
        known.version = decision.version;
        known.last_decision = self.position;
        self.shared.enter(&mut known.domain);
        self.index.change_usage(used, Some((&known.domain, used_by(!known.is_gone()))));
        let subject = || Subject::of_parameterised(guid, shards);
        let after = Whole::of_parameterised(&known);
        self.index.change_whole(subject, || Due::Parameterised(guid.clone()), whole, after);
        self.parameterised.insert(guid.clone(), Arc::new(known));
    }

    fn fold_domain(&mut self, domain: &Domain, decision: &Decision) {
        for event in decision.events.iter().filter_map(Event::as_domain) {
            let (stamp, version) = (decision.stamp(), decision.version);
            match *event {
                domain::Event::Refreshed { expires_at } => {
                    let known = self.domains.remove(domain);
                    let freshness = domain::refreshed(known, expires_at, &stamp, version);
                    self.domains.insert(domain.clone(), freshness);
                }
                domain::Event::Limited { quotas } => {
                    let known = self.limited.remove(domain);
                    let limited = domain::limited(known, quotas, &stamp, version);
                    self.limited.insert(domain.clone(), limited);
                }
            }
        }
    }

    fn fold_cell(&mut self, id: &CellId, decision: &Decision) {
        let cell = self.cells.remove(id);
        let events = decision.events.iter().filter_map(Event::as_cell);
        if let Some(cell) = cell::fold(cell, events, &decision.stamp(), decision.version) {
            self.cells.insert(id.clone(), cell);
        }
    }

    fn fold_cluster(&mut self, decision: &Decision) {
        let shards = self.shards();
        let events = decision.events.iter().filter_map(Event::as_cluster);
        let known = self.cluster.take().map(Arc::unwrap_or_clone);
        self.cluster = cluster::fold(known, events, &decision.stamp(), decision.version).map(Arc::new);
        if self.shards() != shards {
            self.index.deal_anew(self.shards());
            self.reshard();
        }
    }

    /// Every subject of the new number of shards ends where the number changed: all that is known was recorded before.
    fn reshard(&mut self) {
        let is_shard = |subject: &Subject| subject.is_shard();
        let of_shards = self.last.iter().filter(|(subject, _)| is_shard(subject));
        let Some(latest) = of_shards.map(|(_, (_, at))| *at).max() else { return };
        self.last = self
            .last
            .iter()
            .filter(|(subject, _)| !is_shard(subject))
            .map(|(s, l)| (s.clone(), *l))
            .collect();
        for subject in shard_subjects(self.shards()) {
            self.last.insert(subject, (self.position, latest));
        }
    }

    /// Forgets what a subject has remembered long enough. After folding, so that a decision always finds what it was
    /// decided on.
    fn forget(&mut self, subject: &Subject, now: Timestamp) {
        while let Some(which) = self.index.gone.pop(subject, now) {
            if let Due::Parameterised(guid) = &which
                && self.remembers_longer(guid, now)
            {
                let again =
                    self.parameterised.get(guid).and_then(|known| Whole::of_parameterised(known).forget_at);
                self.index.gone.change(subject, &which, None, again);
                continue;
            }
            let whole = match &which {
                Due::Process(guid) => {
                    self.history.forget(guid);
                    self.processes.remove(guid).map(|process| {
                        self.shared.leave(&process.domain);
                        self.forgotten = self.forgotten.max(process.last_decision);
                        Whole::of_process(&process)
                    })
                }
                Due::Task(guid) => self.tasks.remove(guid).map(|task| {
                    self.shared.leave(&task.domain);
                    self.forgotten = self.forgotten.max(task.last_decision);
                    Whole::of_task(&task)
                }),
                Due::Periodic(guid) => self.periodics.remove(guid).map(|periodic| {
                    self.shared.leave(&periodic.domain);
                    self.forgotten = self.forgotten.max(periodic.last_decision);
                    Whole::of_periodic(&periodic)
                }),
                Due::Parameterised(guid) => self.parameterised.remove(guid).map(|known| {
                    self.shared.leave(&known.domain);
                    self.forgotten = self.forgotten.max(known.last_decision);
                    Whole::of_parameterised(&known)
                }),
            };
            let whole = whole.unwrap_or_default();
            self.index.change_evaluations(whole.evaluations, evaluation::Counts::default());
            self.index.evaluated.change(subject, &which, whole.leaves_at, None);
        }
        while let Some(which) = self.index.evaluated.pop(subject, now) {
            let kept = match &which {
                Due::Process(guid) => {
                    self.processes.get_mut(guid).map(|of| &mut Arc::make_mut(of).evaluations)
                }
                Due::Task(guid) => self.tasks.get_mut(guid).map(|of| &mut Arc::make_mut(of).evaluations),
                // It has none: what it launches has.
                Due::Periodic(_) | Due::Parameterised(_) => None,
            };
            let leaves_at = kept.and_then(|kept| {
                let (before, _) = evaluation::counted(kept);
                kept.change(|all| evaluation::keep_newest(all, now));
                let (after, leaves_at) = evaluation::counted(kept);
                self.index.change_evaluations(before, after);
                leaves_at
            });
            self.index.evaluated.change(subject, &which, None, leaves_at);
        }
    }

    /// Remembers a parameterised task that was removed for as long again if a task of it is there: the numbers of another
    /// life go on behind those of this.
    fn remembers_longer(&mut self, guid: &ParameterisedGuid, now: Timestamp) -> bool {
        let there = self.dispatched_of(guid).any(|task| task.state.is_some());
        if let Some(known) = self.parameterised.get_mut(guid).filter(|_| there) {
            Arc::make_mut(known).idle_since = now;
        }
        there
    }

    /// Takes in what another World has of a snapshot and this one hasn't.
    pub(crate) fn unite(&mut self, other: Self) {
        self.processes = take(&mut self.processes).union(other.processes);
        self.tasks = take(&mut self.tasks).union(other.tasks);
        self.periodics = take(&mut self.periodics).union(other.periodics);
        self.parameterised = take(&mut self.parameterised).union(other.parameterised);
        self.index.unite(other.index);
        self.shared.unite(other.shared);
    }

    /// Takes in a process of a snapshot: into every set, and with what it shares.
    pub(crate) fn take_process(&mut self, mut process: Process) {
        let (guid, shards) = (process.guid.clone(), self.shards());
        self.shared.enter(&mut process.domain);
        self.shared.definitions(&mut process);
        self.shared.policies(&mut process);
        let all: Vec<Place> = process.slots.iter().map(|slot| slot.place.clone()).collect();
        share_touched(&mut process, &all, &self.index);
        for slot in process.slots.iter() {
            let facts = Facts::of_slot(&process, Some(slot), &self.former);
            let work = WorkRef::Lrp(ActualLrpKey::new(guid.clone(), slot.place.clone()));
            self.index.change(&work, &Facts::default(), &facts);
        }
        let (subject, which) = (|| Subject::of_process(&guid, shards), || Due::Process(guid.clone()));
        self.index.change_whole(subject, which, Whole::default(), Whole::of_process(&process));
        self.index.add_usage(&process.domain, used_by_process(&process));
        self.processes.insert(guid, Arc::new(process));
    }

    /// Takes in a periodic task of a snapshot: into every set, and with what it shares.
    pub(crate) fn take_periodic(&mut self, mut periodic: Periodic) {
        let (guid, shards) = (periodic.guid.clone(), self.shards());
        self.shared.enter(&mut periodic.domain);
        let (subject, which) = (|| Subject::of_periodic(&guid, shards), || Due::Periodic(guid.clone()));
        self.index.change_whole(subject, which, Whole::default(), Whole::of_periodic(&periodic));
        self.index.add_usage(&periodic.domain, used_by(!periodic.is_gone()));
        self.periodics.insert(guid, Arc::new(periodic));
    }

    /// Takes in a parameterised task of a snapshot: into every set, and with what it shares.
    pub(crate) fn take_parameterised(&mut self, mut known: Parameterised) {
        let (guid, shards) = (known.guid.clone(), self.shards());
        self.shared.enter(&mut known.domain);
        let (subject, which) =
            (|| Subject::of_parameterised(&guid, shards), || Due::Parameterised(guid.clone()));
        self.index.change_whole(subject, which, Whole::default(), Whole::of_parameterised(&known));
        self.index.add_usage(&known.domain, used_by(!known.is_gone()));
        self.parameterised.insert(guid, Arc::new(known));
    }

    /// Takes in a task of a snapshot: into every set, and with what it shares.
    pub(crate) fn take_task(&mut self, mut task: Task) {
        let (guid, shards) = (task.guid.clone(), self.shards());
        self.shared.enter(&mut task.domain);
        self.shared.task_definition(&mut task);
        share::share_task(&mut task, &self.index.on_cell);
        let facts = Facts::of_task(Some(&task));
        self.index.change(&WorkRef::Task(guid.clone()), &Facts::default(), &facts);
        let (subject, which) = (|| Subject::of_task(&guid, shards), || Due::Task(guid.clone()));
        self.index.change_whole(subject, which, Whole::default(), Whole::of_task(&task));
        self.index.add_usage(&task.domain, used_by(task.state.is_some()));
        self.tasks.insert(guid, Arc::new(task));
    }
}

/// Returns the part of a process in the usage of its domain.
fn used_by_process(process: &Process) -> Usage {
    let Some(desired) = &process.desired else { return Usage::default() };
    let instances = desired.cells.as_ref().map_or(u64::from(desired.instances), |cells| cells.len() as u64);
    Usage { instances, processes_and_tasks: 1 }
}

/// Returns the part of a task, a periodic or a parameterised task in the usage of its domain.
fn used_by(is_there: bool) -> Usage {
    Usage { instances: 0, processes_and_tasks: u64::from(is_there) }
}

/// Whether nothing but convergence found the work that a decision made: its evaluation says so, or a BBS by itself
/// created an instance that it didn't remove in the same decision.
fn only_convergence_found(decision: &Decision) -> bool {
    let by_bbs = match &decision.actor {
        Actor::Bbs(_) => true,
        Actor::Client { .. } | Actor::Operator(_) | Actor::Cell(_) | Actor::Auctioneer(_) => false,
    };
    let mut removed: Vec<&Places> = vec![];
    let mut of_cells = false;
    decision.events.iter().any(|event| match event {
        Event::Evaluation(evaluation::Event::Created { trigger, .. }) => *trigger == Trigger::Convergence,
        // A cell came to a global process: that is why.
        Event::Desired(desired::Event::CellsChanged { .. }) => {
            of_cells = true;
            false
        }
        Event::Actual(actual::Event::Removed { places, .. }) => {
            removed.push(places);
            false
        }
        Event::Actual(actual::Event::Created { places }) if by_bbs && !of_cells => {
            let gone = |index| removed.iter().any(|removed| removed.indices.contains(index));
            places.indices.iter().any(|index| !gone(index))
        }
        Event::Actual(_)
        | Event::Evaluation(_)
        | Event::Desired(_)
        | Event::Evacuating(_)
        | Event::Rollout(_)
        | Event::Task(_)
        | Event::Periodic(_)
        | Event::Parameterised(_)
        | Event::Domain(_)
        | Event::Cell(_)
        | Event::Cluster(_) => false,
    })
}

/// The places whose facts a decision may change: those at the indices that its events name, and all if it changes what is
/// desired. What is desired at a place depends on what else is at its index.
fn touched(process: &Process, events: &[Event]) -> Vec<Place> {
    let mut touched = vec![];
    let all = || process.slots.iter().map(|slot| slot.place.clone());
    let at = |index: u32| process.slots_at(index).map(|slot| slot.place.clone());
    for event in events {
        match event {
            Event::Desired(_) => touched.extend(all()),
            Event::Actual(event) => {
                let places = event.places();
                touched.extend(places.indices.iter().flat_map(at));
                touched.extend(places.iter());
            }
            Event::Evacuating(
                evacuating::Event::Set { place, .. } | evacuating::Event::Removed { place, .. },
            ) => {
                touched.extend(at(place.index));
                touched.push(place.clone());
            }
            Event::Rollout(event) => match event.indices() {
                Some(indices) => touched.extend(indices.iter().flat_map(at)),
                None => touched.extend(all()),
            },
            Event::Evaluation(_)
            | Event::Task(_)
            | Event::Periodic(_)
            | Event::Parameterised(_)
            | Event::Domain(_)
            | Event::Cell(_)
            | Event::Cluster(_) => {}
        }
    }
    touched.sort_unstable();
    touched.dedup();
    touched
}

/// Whether the definitions of a process go with an event, or are replaced.
fn ends_life(event: &Event) -> bool {
    match event {
        Event::Desired(event) => match event {
            desired::Event::Desired(_) | desired::Event::Removed {} => true,
            desired::Event::Updated(_)
            | desired::Event::DefinitionAdded { .. }
            | desired::Event::Activated { .. }
            | desired::Event::HealthyChanged { .. }
            | desired::Event::Pruned { .. }
            | desired::Event::CellsChanged { .. } => false,
        },
        Event::Actual(_)
        | Event::Evacuating(_)
        | Event::Rollout(_)
        | Event::Evaluation(_)
        | Event::Task(_)
        | Event::Periodic(_)
        | Event::Parameterised(_)
        | Event::Domain(_)
        | Event::Cell(_)
        | Event::Cluster(_) => false,
    }
}

/// Whether a definition comes with an event.
fn brings_definition(event: &Event) -> bool {
    matches!(event, Event::Desired(desired::Event::Desired(_) | desired::Event::DefinitionAdded { .. }))
}

/// Whether policies come with an event.
fn brings_policies(event: &Event) -> bool {
    let brings = |event: &desired::Event| match event {
        desired::Event::Desired(_) => true,
        desired::Event::Updated(update) => update.policies.is_some(),
        desired::Event::DefinitionAdded { .. }
        | desired::Event::Activated { .. }
        | desired::Event::HealthyChanged { .. }
        | desired::Event::Pruned { .. }
        | desired::Event::CellsChanged { .. }
        | desired::Event::Removed {} => false,
    };
    matches!(event, Event::Desired(event) if brings(event))
}

/// Notes what the containers of a process take, before its definitions go.
fn note_former<'a>(
    former: &mut Former,
    guid: &ProcessGuid,
    facts: impl Iterator<Item = (&'a Place, &'a Facts)>,
) {
    for (place, facts) in facts {
        for (by, takes) in facts.containers() {
            let of_process = former.entry(guid.clone()).or_default();
            of_process.entry((place.clone(), by.instance_guid)).or_insert(takes);
        }
    }
}

/// Drops the note of a container that the record of its place no longer names.
fn drop_former(former: &mut Former, guid: &ProcessGuid, place: &Place, before: &Facts, after: &Facts) {
    let Some(of_process) = former.get_mut(guid) else { return };
    for (by, _) in before.containers() {
        if !after.containers().any(|(still, _)| still.instance_guid == by.instance_guid) {
            of_process.remove(&(place.clone(), by.instance_guid));
        }
    }
    if of_process.is_empty() {
        former.remove(guid);
    }
}

fn share_touched(process: &mut Process, touched: &[Place], index: &Index) {
    share::share_healthy(process);
    let Process { slots, desired, .. } = process;
    for touched in touched {
        if let Some(slot) = slots.get_mut(touched) {
            share::share_slot(slot, desired.as_deref(), &index.on_cell);
        }
    }
}
