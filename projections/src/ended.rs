//! History of ended work for queries: the newest containers of each index and the newest tasks of each
//! domain, in log order (SwarmKit orchestrators, "Task reaper"; docs/model.md, "What ended").
//!
//! Only queries read this part of the World, so its size affects no decision. It is bounded for each index,
//! for each process, for each domain, and in all. The oldest end is always evicted first.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use schemas::ended::{EndedInstance, EndedTask};
use schemas::entry::Event;
use schemas::limits::{
    ENDED_INSTANCES, ENDED_OF_PROCESS, ENDED_TASKS, HISTORY_KEPT, HISTORY_LIMIT, TASKS_PER_HISTORY,
};
use schemas::names::{Domain, InstanceGuid, ProcessGuid};
use schemas::process::Process;
use schemas::subject::Position;
use schemas::{actual, evacuating};
use serde::{Deserialize, Serialize};

use crate::world::{Tell, Told};

/// Log order of an end: its position, and its number among the ends at that position, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct When {
    /// Position of the entry that recorded the end.
    pub(crate) position: Position,
    /// Number of the end within the entry.
    pub(crate) nth: u32,
}

/// Key of an ended container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct OfIndex {
    pub(crate) process: ProcessGuid,
    pub(crate) index: u32,
    pub(crate) when: When,
}

/// Key of an ended task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct OfDomain {
    pub(crate) domain: Domain,
    pub(crate) when: When,
}

const FIRST: When = When { position: Position(0), nth: 0 };
const LAST: When = When { position: Position(u64::MAX), nth: u32::MAX };

/// Ended containers and tasks that are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct History {
    instances: OrdMap<OfIndex, Arc<EndedInstance>>,
    tasks: OrdMap<OfDomain, Arc<EndedTask>>,
    /// History limits that processes set themselves.
    limits: OrdMap<ProcessGuid, u32>,
    /// Process and index of each container, in the order of their ends.
    order: BTreeMap<When, (ProcessGuid, u32)>,
    /// Number of containers of each process.
    counts: BTreeMap<ProcessGuid, usize>,
    /// Domain of each task, in the order of their ends.
    task_order: BTreeMap<When, Domain>,
    /// Number of tasks of each domain.
    task_counts: BTreeMap<Domain, usize>,
}

impl History {
    /// Returns the history that a World snapshot needs.
    pub(crate) fn pictured(&self) -> Self {
        Self {
            instances: self.instances.clone(),
            tasks: self.tasks.clone(),
            limits: self.limits.clone(),
            ..Self::default()
        }
    }

    /// Returns the history limit that a process set, or `None` if it uses the cluster's.
    pub(crate) fn limit_of(&self, process: &ProcessGuid) -> Option<u32> {
        self.limits.get(process).copied()
    }

    /// Returns the ended containers of an index, newest last.
    pub(crate) fn of_index(
        &self,
        process: &ProcessGuid,
        index: u32,
    ) -> impl DoubleEndedIterator<Item = (&OfIndex, &EndedInstance)> {
        let key = |when| OfIndex { process: process.clone(), index, when };
        self.instances.range(key(FIRST)..=key(LAST)).map(|(key, ended)| (key, &**ended))
    }

    /// Returns ended containers by process and index, starting at an index. The containers of an index are in
    /// the order of their ends.
    pub(crate) fn instances_from(
        &self,
        first: Option<(&ProcessGuid, u32)>,
    ) -> impl Iterator<Item = (&OfIndex, &EndedInstance)> {
        let first = first.map(|(process, index)| OfIndex { process: process.clone(), index, when: FIRST });
        let range = self.instances.range((first.map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded));
        range.map(|(key, ended)| (key, &**ended))
    }

    /// Returns ended tasks by domain, starting at a domain. The tasks of a domain are in the order of their
    /// ends.
    pub(crate) fn tasks_from(&self, first: Option<&Domain>) -> impl Iterator<Item = (&OfDomain, &EndedTask)> {
        let first = first.map(|domain| OfDomain { domain: domain.clone(), when: FIRST });
        let range = self.tasks.range((first.map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded));
        range.map(|(key, ended)| (key, &**ended))
    }

    /// Folds the events of a decision about a process, given in its state after the decision.
    pub(crate) fn fold(
        &mut self,
        process: &Process,
        events: &[Event],
        ended: Vec<EndedInstance>,
        position: Position,
        tell: Tell<'_>,
    ) {
        for event in events {
            match event {
                Event::Desired(_) => self.limit(process),
                Event::Actual(
                    actual::Event::Claimed { place, by, .. } | actual::Event::Started { place, by, .. },
                )
                | Event::Evacuating(evacuating::Event::Set { place, by, .. }) => {
                    tell(Told::InstanceTaken { container: by.instance_guid });
                    self.revive(&process.guid, place.index, by.instance_guid);
                }
                Event::Actual(
                    actual::Event::Created { .. }
                    | actual::Event::Entered { .. }
                    | actual::Event::Crashed { .. }
                    | actual::Event::PlacementFailed { .. }
                    | actual::Event::Unclaimed { .. }
                    | actual::Event::StopRequested { .. }
                    | actual::Event::Removed { .. },
                )
                | Event::Evacuating(evacuating::Event::Removed { .. })
                | Event::Rollout(_)
                | Event::Evaluation(_)
                | Event::Task(_)
                | Event::Periodic(_)
                | Event::Parameterised(_)
                | Event::Domain(_)
                | Event::Cell(_)
                | Event::Cluster(_) => {}
            }
        }
        for one in ended {
            self.instance_ended(&process.guid, position, one, tell);
        }
    }

    /// Applies the history limit of a process that was set or left to the cluster. Containers beyond it are
    /// evicted at once.
    fn limit(&mut self, process: &Process) {
        let Some(desired) = &process.desired else { return };
        let before = self.kept_of(&process.guid);
        match desired.policies.history_limit {
            Some(limit) => self.limits.insert(process.guid.clone(), limit.min(HISTORY_LIMIT)),
            None => self.limits.remove(&process.guid),
        };
        if self.kept_of(&process.guid) < before {
            let mut indices: Vec<u32> = self.of_process(&process.guid).map(|key| key.index).collect();
            indices.dedup();
            indices.into_iter().for_each(|index| self.reap_index(&process.guid, index));
        }
    }

    /// Removes the earlier end of a container that is alive or ends again: its lost cell came back.
    fn revive(&mut self, process: &ProcessGuid, index: u32, container: InstanceGuid) {
        // Most processes have no ended container.
        if !self.counts.contains_key(process) {
            return;
        }
        let of_index = self.of_index(process, index);
        let found = of_index.filter(|(_, ended)| ended.by.instance_guid == container);
        let found: Vec<OfIndex> = found.map(|(key, _)| key.clone()).collect();
        found.iter().for_each(|key| self.remove(key));
    }

    /// Records the end of a container.
    fn instance_ended(
        &mut self,
        process: &ProcessGuid,
        position: Position,
        ended: EndedInstance,
        tell: Tell<'_>,
    ) {
        let index = ended.place.index;
        self.revive(process, index, ended.by.instance_guid);
        tell(Told::InstanceEnded { process, ended: &ended });
        if self.kept_of(process) == 0 {
            return;
        }
        let when = next(&self.order, position);
        let key = OfIndex { process: process.clone(), index, when };
        self.take_instance(key, ended);
        self.reap_index(process, index);
        if self.counts.get(process).is_some_and(|count| *count > ENDED_OF_PROCESS)
            && let Some(oldest) = self.of_process(process).min_by_key(|key| key.when).cloned()
        {
            self.remove(&oldest);
        }
        if self.instances.len() > ENDED_INSTANCES
            && let Some((when, (process, index))) = self.order.first_key_value()
        {
            let oldest = OfIndex { process: process.clone(), index: *index, when: *when };
            self.remove(&oldest);
        }
    }

    /// Records the end of a task.
    pub(crate) fn task_ended(&mut self, position: Position, ended: EndedTask) {
        let domain = ended.domain.clone();
        let when = next(&self.task_order, position);
        self.take_task(OfDomain { domain: domain.clone(), when }, ended);
        let most = TASKS_PER_HISTORY * HISTORY_KEPT as usize;
        if self.task_counts.get(&domain).is_some_and(|count| *count > most) {
            let oldest = self.tasks_from(Some(&domain)).next().map(|(key, _)| key.clone());
            oldest.iter().for_each(|key| self.remove_task(key));
        }
        if self.tasks.len() > ENDED_TASKS
            && let Some((when, domain)) = self.task_order.first_key_value()
        {
            let oldest = OfDomain { domain: domain.clone(), when: *when };
            self.remove_task(&oldest);
        }
    }

    /// Removes the history of a process that is forgotten.
    pub(crate) fn forget(&mut self, process: &ProcessGuid) {
        self.limits.remove(process);
        let all: Vec<OfIndex> = self.of_process(process).cloned().collect();
        all.iter().for_each(|key| self.remove(key));
    }

    /// Returns the number of containers that are kept for each index of a process.
    fn kept_of(&self, process: &ProcessGuid) -> u32 {
        self.limit_of(process).unwrap_or(HISTORY_KEPT)
    }

    fn of_process<'a>(&'a self, process: &'a ProcessGuid) -> impl Iterator<Item = &'a OfIndex> {
        let first = OfIndex { process: process.clone(), index: 0, when: FIRST };
        let all = self.instances.range(first..).map(|(key, _)| key);
        all.take_while(move |key| key.process == *process)
    }

    fn reap_index(&mut self, process: &ProcessGuid, index: u32) {
        let kept = usize::try_from(self.kept_of(process)).unwrap_or(usize::MAX);
        let old: Vec<OfIndex> =
            self.of_index(process, index).rev().skip(kept).map(|(key, _)| key.clone()).collect();
        old.iter().for_each(|key| self.remove(key));
    }

    fn remove(&mut self, key: &OfIndex) {
        if self.instances.remove(key).is_some() {
            self.order.remove(&key.when);
            uncount(&mut self.counts, &key.process);
        }
    }

    fn remove_task(&mut self, key: &OfDomain) {
        if self.tasks.remove(key).is_some() {
            self.task_order.remove(&key.when);
            uncount(&mut self.task_counts, &key.domain);
        }
    }

    fn take_instance(&mut self, key: OfIndex, ended: EndedInstance) {
        *self.counts.entry(key.process.clone()).or_default() += 1;
        self.order.insert(key.when, (key.process.clone(), key.index));
        self.instances.insert(key, Arc::new(ended));
    }

    fn take_task(&mut self, key: OfDomain, ended: EndedTask) {
        *self.task_counts.entry(key.domain.clone()).or_default() += 1;
        self.task_order.insert(key.when, key.domain.clone());
        self.tasks.insert(key, Arc::new(ended));
    }
}

/// Stored part of the history. The rest is derived from it.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Stored {
    limits: Vec<(ProcessGuid, u32)>,
    instances: Vec<(OfIndex, Arc<EndedInstance>)>,
    tasks: Vec<(OfDomain, Arc<EndedTask>)>,
}

impl History {
    pub(crate) fn stored(&self) -> Stored {
        Stored {
            limits: self.limits.iter().map(|(process, limit)| (process.clone(), *limit)).collect(),
            instances: self.instances.iter().map(|(key, ended)| (key.clone(), Arc::clone(ended))).collect(),
            tasks: self.tasks.iter().map(|(key, ended)| (key.clone(), Arc::clone(ended))).collect(),
        }
    }

    pub(crate) fn restored(stored: Stored) -> Self {
        let mut history = Self { limits: stored.limits.into_iter().collect(), ..Self::default() };
        for (key, ended) in stored.instances {
            history.take_instance(key, Arc::unwrap_or_clone(ended));
        }
        for (key, ended) in stored.tasks {
            history.take_task(key, Arc::unwrap_or_clone(ended));
        }
        history
    }
}

/// Returns the key of the next end at a position.
fn next<T>(order: &BTreeMap<When, T>, position: Position) -> When {
    let last = order.last_key_value().map(|(when, _)| when).filter(|when| when.position == position);
    When { position, nth: last.map_or(0, |last| last.nth + 1) }
}

fn uncount<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    let Some(count) = counts.get_mut(key) else { return };
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
}
