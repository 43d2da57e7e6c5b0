//! History of ended work for queries: the newest containers of each index and the newest tasks of each
//! domain, in log order (SwarmKit orchestrators, "Task reaper"; docs/internals/model/history.md, "Ended
//! containers and tasks").
//!
//! Only queries read this part of the World (the state folded from the log), so the size of the history
//! affects no decision. The number of ends is limited per index, per process, per domain and in total. The
//! oldest end is always evicted first.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use machines::ended::{EndedInstance, EndedTask};
use machines::process::Process;
use schemas::entry::Event;
use schemas::limits::{
    DEFAULT_HISTORY_KEPT, ENDED_INSTANCES, ENDED_PER_PROCESS, ENDED_TASKS, HISTORY_LIMIT, TASKS_PER_HISTORY,
};
use schemas::names::{Domain, InstanceGuid, ProcessGuid};
use schemas::subject::Position;
use schemas::{actual, evacuating};
use serde::{Deserialize, Serialize};

/// Event of the history of ended work, reported during the fold of an entry. Events are reported even if the
/// World does not keep them.
#[derive(Clone, Copy, Debug)]
pub enum HistoryEvent<'a> {
    /// A container of an instance ended.
    InstanceEnded { process: &'a ProcessGuid, ended: &'a EndedInstance },
    /// An instance is in a container. An earlier report that this container ended is no longer valid: the
    /// container came back with its cell.
    ContainerInUse { container: InstanceGuid },
    /// A task was deleted after it completed.
    TaskEnded { ended: &'a EndedTask },
}

/// Receiver of history events.
pub(crate) type HistorySink<'a> = &'a mut dyn FnMut(HistoryEvent<'_>);

/// Log order of an end: its position, and its number among the ends at that position, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct EndOrder {
    /// Position of the entry that recorded the end.
    pub(crate) position: Position,
    /// Number of the end within the entry.
    pub(crate) nth: u32,
}

/// Key of an ended container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct EndedInstanceKey {
    pub(crate) process: ProcessGuid,
    pub(crate) index: u32,
    pub(crate) when: EndOrder,
}

/// Key of an ended task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct EndedTaskKey {
    pub(crate) domain: Domain,
    pub(crate) when: EndOrder,
}

const FIRST: EndOrder = EndOrder { position: Position(0), nth: 0 };
const LAST: EndOrder = EndOrder { position: Position(u64::MAX), nth: u32::MAX };

/// Ended containers and tasks that are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct History {
    instances: OrdMap<EndedInstanceKey, Arc<EndedInstance>>,
    tasks: OrdMap<EndedTaskKey, Arc<EndedTask>>,
    /// History limits that processes set themselves.
    limits: OrdMap<ProcessGuid, u32>,
    /// Process and index of each container, in the order of their ends.
    order: BTreeMap<EndOrder, (ProcessGuid, u32)>,
    /// Number of containers of each process.
    counts: BTreeMap<ProcessGuid, usize>,
    /// Domain of each task, in the order of their ends.
    task_order: BTreeMap<EndOrder, Domain>,
    /// Number of tasks of each domain.
    task_counts: BTreeMap<Domain, usize>,
}

impl History {
    /// Returns the history that a World snapshot needs.
    pub(crate) fn frozen(&self) -> Self {
        Self {
            instances: self.instances.clone(),
            tasks: self.tasks.clone(),
            limits: self.limits.clone(),
            ..Self::default()
        }
    }

    /// Returns the history limit that a process set, or `None` if the process uses the limit of the cluster.
    pub(crate) fn limit_of(&self, process: &ProcessGuid) -> Option<u32> {
        self.limits.get(process).copied()
    }

    /// Returns the ended containers of an index, newest last.
    pub(crate) fn index_history(
        &self,
        process: &ProcessGuid,
        index: u32,
    ) -> impl DoubleEndedIterator<Item = (&EndedInstanceKey, &EndedInstance)> {
        let key = |when| EndedInstanceKey { process: process.clone(), index, when };
        self.instances.range(key(FIRST)..=key(LAST)).map(|(key, ended)| (key, &**ended))
    }

    /// Returns ended containers by process and index, starting at an index. The containers of an index are in
    /// the order of their ends.
    pub(crate) fn instances_from(
        &self,
        first: Option<(&ProcessGuid, u32)>,
    ) -> impl Iterator<Item = (&EndedInstanceKey, &EndedInstance)> {
        let first =
            first.map(|(process, index)| EndedInstanceKey { process: process.clone(), index, when: FIRST });
        let range = self.instances.range((first.map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded));
        range.map(|(key, ended)| (key, &**ended))
    }

    /// Returns ended tasks by domain, starting at a domain. The tasks of a domain are in the order of their
    /// ends.
    pub(crate) fn tasks_from(
        &self,
        first: Option<&Domain>,
    ) -> impl Iterator<Item = (&EndedTaskKey, &EndedTask)> {
        let first = first.map(|domain| EndedTaskKey { domain: domain.clone(), when: FIRST });
        let range = self.tasks.range((first.map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded));
        range.map(|(key, ended)| (key, &**ended))
    }

    /// Folds the events of a decision about a process. `process` is the state after the decision.
    pub(crate) fn fold(
        &mut self,
        process: &Process,
        events: &[Event],
        ended: Vec<EndedInstance>,
        position: Position,
        tell: HistorySink<'_>,
    ) {
        for event in events {
            if let Event::Desired(_) = event {
                self.limit(process);
            }
            if let Event::Actual(
                actual::Event::Claimed { place, by, .. } | actual::Event::Started { place, by, .. },
            )
            | Event::Evacuating(evacuating::Event::Set { place, by, .. }) = event
            {
                tell(HistoryEvent::ContainerInUse { container: by.instance_guid });
                self.revive(&process.guid, place.index, by.instance_guid);
            }
        }
        for one in ended {
            self.record_instance(&process.guid, position, one, tell);
        }
    }

    /// Applies a change of a process's history limit. If the process has removed its limit, the limit of the
    /// cluster applies. Containers beyond the limit are evicted at once.
    fn limit(&mut self, process: &Process) {
        let Some(desired) = &process.desired else { return };
        let before = self.limit_per_index(&process.guid);
        match desired.policies.history_limit {
            Some(limit) => self.limits.insert(process.guid.clone(), limit.min(HISTORY_LIMIT)),
            None => self.limits.remove(&process.guid),
        };
        if self.limit_per_index(&process.guid) < before {
            let mut indices: Vec<u32> = self.process_keys(&process.guid).map(|key| key.index).collect();
            indices.dedup();
            indices.into_iter().for_each(|index| self.reap_index(&process.guid, index));
        }
    }

    /// Removes the recorded end of a container that runs or ends again. This happens when the lost cell of
    /// the container comes back.
    fn revive(&mut self, process: &ProcessGuid, index: u32, container: InstanceGuid) {
        // Most processes have no ended container.
        if !self.counts.contains_key(process) {
            return;
        }
        let of_index = self.index_history(process, index);
        let found = of_index.filter(|(_, ended)| ended.by.instance_guid == container);
        let found: Vec<EndedInstanceKey> = found.map(|(key, _)| key.clone()).collect();
        found.iter().for_each(|key| self.remove(key));
    }

    /// Records the end of a container.
    fn record_instance(
        &mut self,
        process: &ProcessGuid,
        position: Position,
        ended: EndedInstance,
        tell: HistorySink<'_>,
    ) {
        let index = ended.place.index;
        self.revive(process, index, ended.by.instance_guid);
        tell(HistoryEvent::InstanceEnded { process, ended: &ended });
        if self.limit_per_index(process) == 0 {
            return;
        }
        let when = next(&self.order, position);
        let key = EndedInstanceKey { process: process.clone(), index, when };
        self.insert_instance(key, ended);
        self.reap_index(process, index);
        if self.counts.get(process).is_some_and(|count| *count > ENDED_PER_PROCESS)
            && let Some(oldest) = self.process_keys(process).min_by_key(|key| key.when).cloned()
        {
            self.remove(&oldest);
        }
        if self.instances.len() > ENDED_INSTANCES
            && let Some((when, (process, index))) = self.order.first_key_value()
        {
            let oldest = EndedInstanceKey { process: process.clone(), index: *index, when: *when };
            self.remove(&oldest);
        }
    }

    /// Records the end of a task.
    pub(crate) fn record_task(&mut self, position: Position, ended: EndedTask) {
        let domain = ended.domain.clone();
        let when = next(&self.task_order, position);
        self.insert_task(EndedTaskKey { domain: domain.clone(), when }, ended);
        let most = TASKS_PER_HISTORY * DEFAULT_HISTORY_KEPT as usize;
        if self.task_counts.get(&domain).is_some_and(|count| *count > most) {
            let oldest = self.tasks_from(Some(&domain)).next().map(|(key, _)| key.clone());
            oldest.iter().for_each(|key| self.remove_task(key));
        }
        if self.tasks.len() > ENDED_TASKS
            && let Some((when, domain)) = self.task_order.first_key_value()
        {
            let oldest = EndedTaskKey { domain: domain.clone(), when: *when };
            self.remove_task(&oldest);
        }
    }

    /// Removes the history of a process that is forgotten.
    pub(crate) fn forget(&mut self, process: &ProcessGuid) {
        self.limits.remove(process);
        let all: Vec<EndedInstanceKey> = self.process_keys(process).cloned().collect();
        all.iter().for_each(|key| self.remove(key));
    }

    /// Returns the number of containers that are kept for each index of a process.
    fn limit_per_index(&self, process: &ProcessGuid) -> u32 {
        self.limit_of(process).unwrap_or(DEFAULT_HISTORY_KEPT)
    }

    fn process_keys<'a>(&'a self, process: &'a ProcessGuid) -> impl Iterator<Item = &'a EndedInstanceKey> {
        let first = EndedInstanceKey { process: process.clone(), index: 0, when: FIRST };
        let all = self.instances.range(first..).map(|(key, _)| key);
        all.take_while(move |key| key.process == *process)
    }

    fn reap_index(&mut self, process: &ProcessGuid, index: u32) {
        let kept = usize::try_from(self.limit_per_index(process)).unwrap_or(usize::MAX);
        let old: Vec<EndedInstanceKey> =
            self.index_history(process, index).rev().skip(kept).map(|(key, _)| key.clone()).collect();
        old.iter().for_each(|key| self.remove(key));
    }

    fn remove(&mut self, key: &EndedInstanceKey) {
        if self.instances.remove(key).is_some() {
            self.order.remove(&key.when);
            decrement(&mut self.counts, &key.process);
        }
    }

    fn remove_task(&mut self, key: &EndedTaskKey) {
        if self.tasks.remove(key).is_some() {
            self.task_order.remove(&key.when);
            decrement(&mut self.task_counts, &key.domain);
        }
    }

    fn insert_instance(&mut self, key: EndedInstanceKey, ended: EndedInstance) {
        *self.counts.entry(key.process.clone()).or_default() += 1;
        self.order.insert(key.when, (key.process.clone(), key.index));
        self.instances.insert(key, Arc::new(ended));
    }

    fn insert_task(&mut self, key: EndedTaskKey, ended: EndedTask) {
        *self.task_counts.entry(key.domain.clone()).or_default() += 1;
        self.task_order.insert(key.when, key.domain.clone());
        self.tasks.insert(key, Arc::new(ended));
    }
}

/// Stored part of the history. The rest is derived from it.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct StoredHistory {
    limits: Vec<(ProcessGuid, u32)>,
    instances: Vec<(EndedInstanceKey, Arc<EndedInstance>)>,
    tasks: Vec<(EndedTaskKey, Arc<EndedTask>)>,
}

impl History {
    pub(crate) fn stored(&self) -> StoredHistory {
        StoredHistory {
            limits: self.limits.iter().map(|(process, limit)| (process.clone(), *limit)).collect(),
            instances: self.instances.iter().map(|(key, ended)| (key.clone(), Arc::clone(ended))).collect(),
            tasks: self.tasks.iter().map(|(key, ended)| (key.clone(), Arc::clone(ended))).collect(),
        }
    }

    pub(crate) fn from_stored(stored: StoredHistory) -> Self {
        let mut history = Self { limits: stored.limits.into_iter().collect(), ..Self::default() };
        for (key, ended) in stored.instances {
            history.insert_instance(key, Arc::unwrap_or_clone(ended));
        }
        for (key, ended) in stored.tasks {
            history.insert_task(key, Arc::unwrap_or_clone(ended));
        }
        history
    }
}

/// Returns the key of the next end at a position.
fn next<T>(order: &BTreeMap<EndOrder, T>, position: Position) -> EndOrder {
    let last = order.last_key_value().map(|(when, _)| when).filter(|when| when.position == position);
    EndOrder { position, nth: last.map_or(0, |last| last.nth + 1) }
}

fn decrement<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    let Some(count) = counts.get_mut(key) else { return };
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
}
