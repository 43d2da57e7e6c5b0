//! The World: the state folded from the log up to a position, with all queries that the services make on it.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::ops::{Bound, Deref};
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::Entry as Room;
use machines::cell::{self, Cell};
use machines::cluster::{self, Cluster};
use machines::domain::{DomainQuotas, Freshness};
use machines::evaluation;
use machines::parameterised::{self, Parameterised};
use machines::periodic::{self, Periodic};
use machines::process::{self, Process};
use machines::task::{self, Task};
use schemas::container::Epoch;
use schemas::entry::{Aggregate, Event};
use schemas::evaluation::Trigger;
use schemas::names::{
    CellId, Domain, LAUNCH_SEPARATOR, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid,
};
use schemas::quota::{Quotas, Usage};
use schemas::resources::Resources;
use schemas::stamp::Actor;
use schemas::subject::{DEFAULT_SHARDS, shard_subjects};
use schemas::{
    ActualLrpKey, Decision, Entry, Place, Places, Position, Subject, Timestamp, actual, desired, domain,
    evacuating,
};

use crate::ended::{History, HistoryEvent, HistorySink};
use crate::index::{AggregateFacts, Counts, Due, Facts, FormerResources, Index, WorkRef};
use crate::share::{self, Shared};

/// Target that an entry changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    Process(ProcessGuid),
    Task(TaskGuid),
    Periodic(PeriodicGuid),
    Parameterised(ParameterisedGuid),
    Domain(Domain),
    Cell(CellId),
    Cluster,
}

/// Projected state after a position of the log.
///
/// The same entries always result in the same World: in one pass, after a snapshot, or with repeated
/// deliveries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct World {
    pub(crate) position: Position,
    pub(crate) cluster: Option<Arc<Cluster>>,
    pub(crate) last: BTreeMap<Subject, (Position, Timestamp)>,
    /// All maps from here on are persistent. A clone shares unchanged nodes. A World snapshot therefore costs
    /// next to nothing, and further folding copies only the changed nodes.
    pub(crate) processes: OrdMap<ProcessGuid, Arc<Process>>,
    pub(crate) tasks: OrdMap<TaskGuid, Arc<Task>>,
    pub(crate) periodics: OrdMap<PeriodicGuid, Arc<Periodic>>,
    pub(crate) parameterised: OrdMap<ParameterisedGuid, Arc<Parameterised>>,
    pub(crate) domains: OrdMap<Domain, Freshness>,
    pub(crate) limited: OrdMap<Domain, DomainQuotas>,
    pub(crate) cells: OrdMap<CellId, Cell>,
    pub(crate) former: FormerResources,
    pub(crate) history: History,
    pub(crate) found_by_convergence: u64,
    /// Highest position of a decision about a forgotten aggregate. Only the last decision of each aggregate
    /// counts.
    pub(crate) forgotten: Position,
    pub(crate) index: Index,
    pub(crate) shared: Shared,
}

/// World snapshot: the World at one position, for readers. The snapshot contains the state that rows and
/// records show. State that only decisions need is omitted.
///
/// A snapshot costs next to nothing, and does not change while the World is folded further.
#[derive(Clone, Debug)]
pub struct WorldSnapshot(Arc<World>);

impl Deref for WorldSnapshot {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0
    }
}

impl World {
    /// Returns a World snapshot of the current position.
    #[must_use]
    pub fn freeze(&self) -> WorldSnapshot {
        WorldSnapshot(Arc::new(Self {
            position: self.position,
            cluster: self.cluster.clone(),
            processes: self.processes.clone(),
            tasks: self.tasks.clone(),
            periodics: self.periodics.clone(),
            parameterised: self.parameterised.clone(),
            domains: self.domains.clone(),
            limited: self.limited.clone(),
            cells: self.cells.clone(),
            history: self.history.frozen(),
            found_by_convergence: self.found_by_convergence,
            index: self.index.frozen(),
            ..Self::new()
        }))
    }

    /// Creates the World before the first entry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the position of the last entry that was folded.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// Returns the cluster, or `None` before it is founded.
    #[must_use]
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_deref()
    }

    /// Calls the visitor for every cell that has an ordinal, in order of the ordinals.
    pub fn visit_numbered(&self, visit: process::CellVisitor<'_>) {
        for (ordinal, id) in self.cluster.iter().flat_map(|cluster| &cluster.ordinals) {
            if let Some(cell) = self.cells.get(id) {
                visit(*ordinal, id, cell);
            }
        }
    }

    /// Returns the ordinal of a cell, or `None` if it has none.
    #[must_use]
    pub fn ordinal(&self, id: &CellId) -> Option<u32> {
        let mut all = self.cluster.iter().flat_map(|cluster| &cluster.ordinals);
        all.find(|(_, known)| *known == id).map(|(ordinal, _)| *ordinal)
    }

    /// Returns `true` if a known cell has no ordinal, or a forgotten cell still has one.
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

    /// Returns the global processes in order of their guids.
    pub fn global_processes(&self) -> impl Iterator<Item = &ProcessGuid> {
        self.index.global.iter()
    }

    /// Returns the number of shards, or [`DEFAULT_SHARDS`] before the cluster is founded.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.cluster.as_ref().map_or(DEFAULT_SHARDS, |cluster| cluster.shards)
    }

    /// Returns the position of a subject's last entry, or 0 if it has none.
    #[must_use]
    pub fn last_position(&self, subject: &Subject) -> Position {
        self.last.get(subject).map_or(Position(0), |(position, _)| *position)
    }

    /// Returns the time of a subject's last decision, or 0 if it has none.
    #[must_use]
    pub fn last_time(&self, subject: &Subject) -> Timestamp {
        self.last.get(subject).map_or(Timestamp(0), |(_, at)| *at)
    }

    /// Returns every subject with the time of its last decision.
    pub fn last_times(&self) -> impl Iterator<Item = (&Subject, Timestamp)> {
        self.last.iter().map(|(subject, (_, at))| (subject, *at))
    }

    /// Returns the latest time of a decision so far. Time increases on each subject, but not across subjects.
    #[must_use]
    pub fn latest(&self) -> Timestamp {
        self.last.values().map(|(_, at)| *at).max().unwrap_or_default()
    }

    /// Returns a process, even if it is gone and only remembered (see [`Process::is_gone`]).
    #[must_use]
    pub fn process(&self, guid: &ProcessGuid) -> Option<&Process> {
        self.processes.get(guid).map(Arc::as_ref)
    }

    /// Returns processes in order of their guids, starting after `after`. The result includes removed
    /// processes that are only remembered; use [`Process::is_gone`] to filter them out.
    pub fn processes_from(&self, after: Option<&ProcessGuid>) -> impl Iterator<Item = &Process> {
        values_after(&self.processes, after)
    }

    /// Returns a task, even if it was deleted and is only remembered (its `state` is `None`).
    #[must_use]
    pub fn task(&self, guid: &TaskGuid) -> Option<&Task> {
        self.tasks.get(guid).map(Arc::as_ref)
    }

    /// Returns tasks in order of their guids, starting after `after`. The result includes deleted tasks that
    /// are only remembered; their state is `None`.
    pub fn tasks_from(&self, after: Option<&TaskGuid>) -> impl Iterator<Item = &Task> {
        values_after(&self.tasks, after)
    }

    /// Returns a periodic task, even if it was removed and is only remembered.
    #[must_use]
    pub fn periodic(&self, guid: &PeriodicGuid) -> Option<&Periodic> {
        self.periodics.get(guid).map(Arc::as_ref)
    }

    /// Returns periodic tasks in order of their guids, starting after `after`. The result includes removed
    /// periodic tasks that are only remembered; use [`Periodic::is_removed`] to filter them out.
    pub fn periodics_from(&self, after: Option<&PeriodicGuid>) -> impl Iterator<Item = &Periodic> {
        values_after(&self.periodics, after)
    }

    /// Returns the existing tasks that a periodic task launched, in order of their guids.
    pub fn launched_by(&self, guid: &PeriodicGuid) -> impl Iterator<Item = &Task> {
        self.named_after(guid.as_str()).filter(|task| task.guid.launching_periodic().is_some())
    }

    /// Returns a parameterised task, even if it was removed and is only remembered.
    #[must_use]
    pub fn parameterised(&self, guid: &ParameterisedGuid) -> Option<&Parameterised> {
        self.parameterised.get(guid).map(Arc::as_ref)
    }

    /// Returns parameterised tasks in order of their guids, starting after `after`. The result includes
    /// removed parameterised tasks that are only remembered; use [`Parameterised::is_removed`] to filter them
    /// out.
    pub fn parameterised_from(
        &self,
        after: Option<&ParameterisedGuid>,
    ) -> impl Iterator<Item = &Parameterised> {
        values_after(&self.parameterised, after)
    }

    /// Returns the existing tasks that were dispatched from a parameterised task, in order of their guids.
    pub fn dispatched_by(&self, guid: &ParameterisedGuid) -> impl Iterator<Item = &Task> {
        self.named_after(guid.as_str()).filter(|task| task.guid.dispatch_source().is_some())
    }

    /// Returns the tasks whose guid starts with the guid of the periodic or parameterised task that launched
    /// them.
    fn named_after(&self, launcher: &str) -> impl Iterator<Item = &Task> {
        let first = format!("{launcher}{LAUNCH_SEPARATOR}");
        let from = (Bound::Included(first.as_str()), Bound::Unbounded);
        let tasks = self.tasks.range::<_, str>(from).map(|(_, task)| &**task);
        tasks.take_while(move |task| task.guid.as_str().starts_with(&first))
    }

    /// Returns the freshness of a domain, or `None` if it was never refreshed.
    #[must_use]
    pub fn domain(&self, domain: &Domain) -> Option<&Freshness> {
        self.domains.get(domain)
    }

    /// Returns the quotas that an operator set for a domain, or `None` if no operator did.
    #[must_use]
    pub fn limited(&self, domain: &Domain) -> Option<&DomainQuotas> {
        self.limited.get(domain)
    }

    /// Returns the quotas of a domain.
    #[must_use]
    pub fn quotas(&self, domain: &Domain) -> Quotas {
        self.limited(domain).map(|limited| limited.quotas).unwrap_or_default()
    }

    /// Returns the amounts that a domain uses of its quotas.
    #[must_use]
    pub fn usage(&self, domain: &Domain) -> Usage {
        self.index.usage.get(domain).copied().unwrap_or_default()
    }

    /// Returns the usage of each domain, without domains that use nothing.
    pub fn usages(&self) -> impl Iterator<Item = (&Domain, Usage)> {
        self.index.usage.iter().map(|(domain, used)| (domain, *used))
    }

    /// Returns `true` if a domain is fresh. A domain that was never refreshed is not.
    #[must_use]
    pub fn is_fresh(&self, domain: &Domain, now: Timestamp) -> bool {
        self.domain(domain).is_some_and(|freshness| freshness.is_fresh(now))
    }

    /// Returns every domain that was ever refreshed, fresh or not, in order.
    pub fn domains(&self) -> impl Iterator<Item = (&Domain, &Freshness)> {
        self.domains.iter()
    }

    /// Returns a cell, even if it is absent.
    #[must_use]
    pub fn cell(&self, id: &CellId) -> Option<&Cell> {
        self.cells.get(id)
    }

    /// Returns every known cell, present or not, in order of their ids.
    pub fn cells(&self) -> impl Iterator<Item = (&CellId, &Cell)> {
        self.cells.iter()
    }

    /// Returns `true` if a cell is present.
    #[must_use]
    pub fn is_present(&self, id: &CellId) -> bool {
        self.cell(id).is_some_and(|cell| cell.present)
    }

    /// Returns every record that names a cell: CLAIMED and RUNNING instances, evacuating instances, RUNNING
    /// tasks.
    pub fn on_cell(&self, id: &CellId) -> impl Iterator<Item = &WorkRef> {
        self.index.on_cell.get(id).into_iter().flat_map(|cell| &cell.work)
    }

    /// Returns the resources that the containers on a cell reserve, according to the log and the definitions.
    #[must_use]
    pub fn used_on(&self, id: &CellId) -> Resources {
        self.index.on_cell.get(id).map_or(Resources::default(), |cell| cell.used)
    }

    /// Returns the cells that a record names, present or not. A lost cell is included until its records are
    /// gone.
    pub fn named_cells(&self) -> impl Iterator<Item = &CellId> {
        self.index.on_cell.keys()
    }

    /// Returns the work to place: UNCLAIMED indices and PENDING tasks, with and without a placement error.
    pub fn pending_work(&self) -> impl Iterator<Item = &WorkRef> {
        self.index.work.iter()
    }

    /// Returns the instances that were asked to stop and still have a record.
    pub fn stopping(&self) -> impl Iterator<Item = &WorkRef> {
        self.index.stopping.iter()
    }

    /// Returns the COMPLETED tasks whose completion callback is not done yet.
    pub fn callbacks(&self) -> impl Iterator<Item = &TaskGuid> {
        self.index.callbacks.iter()
    }

    /// Returns the processes, tasks and periodic tasks that are due at `now`, each once, earliest first.
    #[must_use]
    pub fn due(&self, now: Timestamp) -> Vec<Due> {
        self.index.due(now)
    }

    /// Returns every due time up to `now` with its aggregate, earliest first.
    #[must_use]
    pub fn due_times(&self, now: Timestamp) -> Vec<(Timestamp, Due)> {
        self.index.due_times(now)
    }

    /// Returns the earliest due time, or `None` if nothing will be due.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.index.next_due()
    }

    /// Returns counts of processes, instances, tasks and evaluations.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.index.counts
    }

    /// Returns the number of decisions whose new work only the convergence pass found. The number stays at 0
    /// in a healthy cluster.
    #[must_use]
    pub const fn found_by_convergence(&self) -> u64 {
        self.found_by_convergence
    }

    /// Returns the highest position of a decision about a forgotten aggregate. Every decision about an
    /// aggregate that is missing in the World is at or before this position.
    #[must_use]
    pub const fn forgotten(&self) -> Position {
        self.forgotten
    }

    /// Folds an entry and returns the changed targets: each once, in order of first appearance. The end of an
    /// aggregate's retention is not a change. An entry at or below [`World::position`] was folded already and
    /// changes nothing.
    pub fn fold(&mut self, position: Position, entry: &Entry) -> Vec<Change> {
        self.fold_with_history(position, entry, &mut |_| {})
    }

    /// Folds an entry like [`World::fold`], and reports history events in order.
    pub fn fold_with_history(
        &mut self,
        position: Position,
        entry: &Entry,
        tell: HistorySink<'_>,
    ) -> Vec<Change> {
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

    fn fold_decision(&mut self, decision: &Decision, tell: HistorySink<'_>) -> Change {
        self.found_by_convergence += u64::from(is_found_by_convergence(decision));
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
        tell: HistorySink<'_>,
    ) {
        let shards = self.shards();
        let (process, whole) = match self.processes.entry(guid.clone()) {
            Room::Occupied(place) => {
                let process = Arc::make_mut(place.into_mut());
                let whole = AggregateFacts::of_process(process);
                (process, whole)
            }
            Room::Vacant(place) => {
                let mut process = Process::new(guid.clone(), domain.clone(), epoch);
                self.shared.enter(&mut process.domain);
                (Arc::make_mut(place.insert(Arc::new(process))), AggregateFacts::default())
            }
        };
        let touched = touched_slots(process, &decision.events);
        let facts = |process: &Process, former: &FormerResources| -> Vec<Facts> {
            touched.iter().map(|place| Facts::of_slot(process, process.slot(place), former)).collect()
        };
        let before = facts(process, &self.former);
        let life_ends = decision.events.iter().any(replaces_definitions);
        if life_ends {
            note_former(&mut self.former, guid, touched.iter().zip(&before));
        }
        let left = process.domain.clone();
        let used = process_usage(process);
        // Take the version from the log, because the World may have forgotten the process since the previous
        // decision.
        process.version = decision.version.saturating_sub(1);
        let ended = process::evolve(process, &decision.events, &decision.stamp());
        process.last_decision = self.position;
        if life_ends {
            self.shared.leave(&left);
            self.shared.enter(&mut process.domain);
        }
        if decision.events.iter().any(adds_definition) {
            self.shared.share_definitions(process);
        }
        if decision.events.iter().any(sets_policies) {
            self.shared.share_policies(process);
        }
        self.index.change_usage(Some((left, used)), Some((&process.domain, process_usage(process))));
        share_touched(process, &touched, &self.index);
        self.history.fold(process, &decision.events, ended, self.position, tell);
        let after = facts(process, &self.former);
        // From here on, use the guid that the process holds, so that the sets share one copy of the text.
        let guid = &process.guid;
        for ((place, before), after) in touched.into_iter().zip(&before).zip(&after) {
            drop_former(&mut self.former, guid, &place, before, after);
            let place = process.slot(&place).map_or(place, |slot| slot.place.clone());
            self.index.change(&WorkRef::Lrp(ActualLrpKey::new(guid.clone(), place)), before, after);
        }
        let after = AggregateFacts::of_process(process);
        self.index.change_aggregate(shards, || Due::Process(guid.clone()), whole, after);
    }

    fn fold_task(&mut self, guid: &TaskGuid, decision: &Decision, tell: HistorySink<'_>) {
        let shards = self.shards();
        let old = self.tasks.remove(guid).map(Arc::unwrap_or_clone);
        let before = Facts::of_task(old.as_ref());
        let whole = old.as_ref().map(AggregateFacts::of_task).unwrap_or_default();
        if let Some(old) = &old {
            self.shared.leave(&old.domain);
        }
        let used = old.as_ref().map(|old| (old.domain.clone(), record_usage(old.state.is_some())));
        if let Some(ended) = task::ended_task(old.as_ref(), &decision.events, &decision.stamp()) {
            tell(HistoryEvent::TaskEnded { ended: &ended });
            self.history.record_task(self.position, ended);
        }
        // Use the guid that the sets hold already, so that only one copy of its text exists.
        let known = old.as_ref().map(|old| old.guid.clone());
        let guid = &known.unwrap_or_else(|| guid.clone());
        let Some(mut task) = task::evolve(old, &decision.events, &decision.stamp()) else {
            return self.index.change_usage(used, None);
        };
        task.guid = guid.clone();
        task.version = decision.version;
        task.last_decision = self.position;
        self.shared.enter(&mut task.domain);
        self.index.change_usage(used, Some((&task.domain, record_usage(task.state.is_some()))));
        if decision.events.iter().any(|event| matches!(event, Event::Task(schemas::task::Event::Desired(_))))
        {
            self.shared.share_task_definition(&mut task);
        }
        share::share_task(&mut task, &self.index.on_cell);
        let after = Facts::of_task(Some(&task));
        self.index.change(&WorkRef::Task(guid.clone()), &before, &after);
        let after = AggregateFacts::of_task(&task);
        self.index.change_aggregate(shards, || Due::Task(guid.clone()), whole, after);
        self.tasks.insert(guid.clone(), Arc::new(task));
    }

    fn fold_periodic(&mut self, guid: &PeriodicGuid, decision: &Decision) {
        let shards = self.shards();
        let old = self.periodics.remove(guid).map(Arc::unwrap_or_clone);
        let whole = old.as_ref().map(AggregateFacts::of_periodic).unwrap_or_default();
        if let Some(old) = &old {
            self.shared.leave(&old.domain);
        }
        let used = old.as_ref().map(|old| (old.domain.clone(), record_usage(!old.is_removed())));
        let events = decision.events.iter().filter_map(Event::as_periodic);
        let Some(mut periodic) = periodic::evolve(old, events, &decision.stamp()) else {
            return self.index.change_usage(used, None);
        };
        periodic.guid = guid.clone();
        periodic.version = decision.version;
        periodic.last_decision = self.position;
        self.shared.enter(&mut periodic.domain);
        self.index.change_usage(used, Some((&periodic.domain, record_usage(!periodic.is_removed()))));
        let after = AggregateFacts::of_periodic(&periodic);
        self.index.change_aggregate(shards, || Due::Periodic(guid.clone()), whole, after);
        self.periodics.insert(guid.clone(), Arc::new(periodic));
    }

    fn fold_parameterised(&mut self, guid: &ParameterisedGuid, decision: &Decision) {
        let shards = self.shards();
        let old = self.parameterised.remove(guid).map(Arc::unwrap_or_clone);
        let whole = old.as_ref().map(AggregateFacts::of_parameterised).unwrap_or_default();
        if let Some(old) = &old {
            self.shared.leave(&old.domain);
        }
        let used = old.as_ref().map(|old| (old.domain.clone(), record_usage(!old.is_removed())));
        let events = decision.events.iter().filter_map(Event::as_parameterised);
        let Some(mut known) = parameterised::evolve(old, events, &decision.stamp()) else {
            return self.index.change_usage(used, None);
        };
        known.guid = guid.clone();
        known.version = decision.version;
        known.last_decision = self.position;
        self.shared.enter(&mut known.domain);
        self.index.change_usage(used, Some((&known.domain, record_usage(!known.is_removed()))));
        let after = AggregateFacts::of_parameterised(&known);
        self.index.change_aggregate(shards, || Due::Parameterised(guid.clone()), whole, after);
        self.parameterised.insert(guid.clone(), Arc::new(known));
    }

    fn fold_domain(&mut self, domain: &Domain, decision: &Decision) {
        for event in decision.events.iter().filter_map(Event::as_domain) {
            let (stamp, version) = (decision.stamp(), decision.version);
            match *event {
                domain::Event::Refreshed { expires_at } => {
                    let known = self.domains.remove(domain);
                    let freshness = machines::domain::fold_refresh(known, expires_at, &stamp, version);
                    self.domains.insert(domain.clone(), freshness);
                }
                domain::Event::Limited { quotas } => {
                    let known = self.limited.remove(domain);
                    let limited = machines::domain::fold_quotas(known, quotas, &stamp, version);
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
            self.index.reassign(self.shards());
            self.reshard();
        }
    }

    /// Sets the end of every subject to the position of the change of the shard count, because all known
    /// state was recorded before the change.
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

    /// Forgets the aggregates of a subject whose retention is over. Runs after the fold, so that a decision
    /// always finds the state that it was based on.
    fn forget(&mut self, subject: &Subject, now: Timestamp) {
        while let Some(which) = self.index.gone.pop(subject, now) {
            if let Due::Parameterised(guid) = &which
                && self.extend_retention(guid, now)
            {
                let again = self
                    .parameterised
                    .get(guid)
                    .and_then(|known| AggregateFacts::of_parameterised(known).forget_at);
                self.index.gone.change(subject, &which, None, again);
                continue;
            }
            let whole = match &which {
                Due::Process(guid) => {
                    self.history.forget(guid);
                    self.processes.remove(guid).map(|process| {
                        self.shared.leave(&process.domain);
                        self.forgotten = self.forgotten.max(process.last_decision);
                        AggregateFacts::of_process(&process)
                    })
                }
                Due::Task(guid) => self.tasks.remove(guid).map(|task| {
                    self.shared.leave(&task.domain);
                    self.forgotten = self.forgotten.max(task.last_decision);
                    AggregateFacts::of_task(&task)
                }),
                Due::Periodic(guid) => self.periodics.remove(guid).map(|periodic| {
                    self.shared.leave(&periodic.domain);
                    self.forgotten = self.forgotten.max(periodic.last_decision);
                    AggregateFacts::of_periodic(&periodic)
                }),
                Due::Parameterised(guid) => self.parameterised.remove(guid).map(|known| {
                    self.shared.leave(&known.domain);
                    self.forgotten = self.forgotten.max(known.last_decision);
                    AggregateFacts::of_parameterised(&known)
                }),
            };
            let whole = whole.unwrap_or_default();
            self.index.change_evaluations(whole.evaluations, evaluation::Counts::default());
            self.index.evaluated.change(subject, &which, whole.evaluation_expires_at, None);
        }
        while let Some(which) = self.index.evaluated.pop(subject, now) {
            let kept = match &which {
                Due::Process(guid) => {
                    self.processes.get_mut(guid).map(|of| &mut Arc::make_mut(of).evaluations)
                }
                Due::Task(guid) => self.tasks.get_mut(guid).map(|of| &mut Arc::make_mut(of).evaluations),
                // Periodic and parameterised tasks have no evaluations; the tasks that they launch have them.
                Due::Periodic(_) | Due::Parameterised(_) => None,
            };
            let leaves_at = kept.and_then(|kept| {
                let (before, _) = evaluation::counts_and_expiry(kept);
                kept.modify(|all| evaluation::prune_ended(all, now));
                let (after, leaves_at) = evaluation::counts_and_expiry(kept);
                self.index.change_evaluations(before, after);
                leaves_at
            });
            self.index.evaluated.change(subject, &which, None, leaves_at);
        }
    }

    /// Extends the retention of a removed parameterised task while one of its launched tasks exists, and
    /// returns `true` in that case. If the parameterised task is created again, the new epoch continues the
    /// numbering of its launched tasks.
    fn extend_retention(&mut self, guid: &ParameterisedGuid, now: Timestamp) -> bool {
        let there = self.dispatched_by(guid).any(|task| task.state.is_some());
        if let Some(known) = self.parameterised.get_mut(guid).filter(|_| there) {
            Arc::make_mut(known).idle_since = now;
        }
        there
    }

    /// Adds the processes, tasks, periodic and parameterised tasks of another World that was read from the
    /// same snapshot.
    pub(crate) fn merge(&mut self, other: Self) {
        self.processes = take(&mut self.processes).union(other.processes);
        self.tasks = take(&mut self.tasks).union(other.tasks);
        self.periodics = take(&mut self.periodics).union(other.periodics);
        self.parameterised = take(&mut self.parameterised).union(other.parameterised);
        self.index.merge(other.index);
        self.shared.merge(other.shared);
    }

    /// Adds a process of a snapshot to the World and to every set. The sets share the process's strings.
    pub(crate) fn add_process(&mut self, mut process: Process) {
        let (guid, shards) = (process.guid.clone(), self.shards());
        self.shared.enter(&mut process.domain);
        self.shared.share_definitions(&mut process);
        self.shared.share_policies(&mut process);
        let all: Vec<Place> = process.slots.iter().map(|slot| slot.place.clone()).collect();
        share_touched(&mut process, &all, &self.index);
        for slot in process.slots.iter() {
            let facts = Facts::of_slot(&process, Some(slot), &self.former);
            let work = WorkRef::Lrp(ActualLrpKey::new(guid.clone(), slot.place.clone()));
            self.index.change(&work, &Facts::default(), &facts);
        }
        let facts = AggregateFacts::of_process(&process);
        self.index.change_aggregate(shards, || Due::Process(guid.clone()), AggregateFacts::default(), facts);
        self.index.add_usage(&process.domain, process_usage(&process));
        self.processes.insert(guid, Arc::new(process));
    }

    /// Adds a periodic task of a snapshot to the World and to every set. The sets share the task's strings.
    pub(crate) fn add_periodic(&mut self, mut periodic: Periodic) {
        let (guid, shards) = (periodic.guid.clone(), self.shards());
        self.shared.enter(&mut periodic.domain);
        let facts = AggregateFacts::of_periodic(&periodic);
        self.index.change_aggregate(shards, || Due::Periodic(guid.clone()), AggregateFacts::default(), facts);
        self.index.add_usage(&periodic.domain, record_usage(!periodic.is_removed()));
        self.periodics.insert(guid, Arc::new(periodic));
    }

    /// Adds a parameterised task of a snapshot to the World and to every set. The sets share the task's
    /// strings.
    pub(crate) fn add_parameterised(&mut self, mut known: Parameterised) {
        let (guid, shards) = (known.guid.clone(), self.shards());
        self.shared.enter(&mut known.domain);
        let (which, facts) = (|| Due::Parameterised(guid.clone()), AggregateFacts::of_parameterised(&known));
        self.index.change_aggregate(shards, which, AggregateFacts::default(), facts);
        self.index.add_usage(&known.domain, record_usage(!known.is_removed()));
        self.parameterised.insert(guid, Arc::new(known));
    }

    /// Adds a task of a snapshot to the World and to every set. The sets share the task's strings.
    pub(crate) fn add_task(&mut self, mut task: Task) {
        let (guid, shards) = (task.guid.clone(), self.shards());
        self.shared.enter(&mut task.domain);
        self.shared.share_task_definition(&mut task);
        share::share_task(&mut task, &self.index.on_cell);
        let facts = Facts::of_task(Some(&task));
        self.index.change(&WorkRef::Task(guid.clone()), &Facts::default(), &facts);
        let facts = AggregateFacts::of_task(&task);
        self.index.change_aggregate(shards, || Due::Task(guid.clone()), AggregateFacts::default(), facts);
        self.index.add_usage(&task.domain, record_usage(task.state.is_some()));
        self.tasks.insert(guid, Arc::new(task));
    }
}

/// Returns the values of a map in order of their keys, starting after `after`.
fn values_after<'a, K: Ord, V>(map: &'a OrdMap<K, Arc<V>>, after: Option<&K>) -> impl Iterator<Item = &'a V> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    map.range::<_, K>((from, Bound::Unbounded)).map(|(_, value)| &**value)
}

/// Returns the share of a process in the usage of its domain.
fn process_usage(process: &Process) -> Usage {
    let Some(desired) = &process.desired else { return Usage::default() };
    let instances = desired.cells.as_ref().map_or(u64::from(desired.instances), |cells| cells.len() as u64);
    Usage { instances, processes_and_tasks: 1 }
}

/// Returns the share of a task, a periodic or a parameterised task in the usage of its domain.
fn record_usage(is_there: bool) -> Usage {
    Usage { instances: 0, processes_and_tasks: u64::from(is_there) }
}

/// Returns `true` if only the convergence pass found the work of a decision. In this case, the evaluation has
/// the convergence trigger, or a BBS created an instance without a command. A new instance does not count if
/// it replaces an instance that the same decision removed at its index.
fn is_found_by_convergence(decision: &Decision) -> bool {
    let by_bbs = match &decision.actor {
        Actor::Bbs(_) => true,
        Actor::Client { .. } | Actor::Operator(_) | Actor::Cell(_) | Actor::Auctioneer(_) => false,
    };
    let mut removed: Vec<&Places> = vec![];
    let mut of_cells = false;
    decision.events.iter().any(|event| match event {
        Event::Evaluation(schemas::evaluation::Event::Created { trigger, .. }) => {
            *trigger == Trigger::Convergence
        }
        // A cell that joined a global process explains the instance.
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

/// Returns the slots whose facts a decision may change. A slot is an index of a process with a definition. A
/// change of the desired state may change all slots. Other decisions change only the slots at the indices
/// that their events name, because the facts of a slot depend on the other slots at its index.
fn touched_slots(process: &Process, events: &[Event]) -> Vec<Place> {
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

/// Returns `true` if an event removes or replaces the definitions of a process.
fn replaces_definitions(event: &Event) -> bool {
    matches!(event, Event::Desired(desired::Event::Desired(_) | desired::Event::Removed {}))
}

/// Returns `true` if an event adds a definition.
fn adds_definition(event: &Event) -> bool {
    matches!(event, Event::Desired(desired::Event::Desired(_) | desired::Event::DefinitionAdded { .. }))
}

/// Returns `true` if an event sets policies.
fn sets_policies(event: &Event) -> bool {
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

/// Records the resources of a process's containers before the definitions of the process are removed.
fn note_former<'a>(
    former: &mut FormerResources,
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

/// Drops the recorded resources of a container that its slot's record no longer names.
fn drop_former(
    former: &mut FormerResources,
    guid: &ProcessGuid,
    place: &Place,
    before: &Facts,
    after: &Facts,
) {
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
    share::share_healthy_id(process);
    let Process { slots, desired, .. } = process;
    for touched in touched {
        if let Some(slot) = slots.get_mut(touched) {
            share::share_slot(slot, desired.as_deref(), &index.on_cell);
        }
    }
}
