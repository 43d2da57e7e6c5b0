//! What ended, as queries show it: the newest of each index and of each domain, in the order of the log (SwarmKit
//! orchestrators, "Task reaper"; docs/model.md, "What ended").
//!
//! It is a part of the World that only queries read: whatever is kept of it, every decision is the same. What is kept is
//! bounded four times: for each index, for each process, for each domain, and in all. What goes is always what ended first.

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

/// Where something ended in the log: at a position, and there as the how manieth, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct When {
    /// The position of the entry that says so.
    pub(crate) position: Position,
    /// Which of those that ended there.
    pub(crate) nth: u32,
}

/// Names a container that ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct OfIndex {
    pub(crate) process: ProcessGuid,
    pub(crate) index: u32,
    pub(crate) when: When,
}

/// Names a task that ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct OfDomain {
    pub(crate) domain: Domain,
    pub(crate) when: When,
}

const FIRST: When = When { position: Position(0), nth: 0 };
const LAST: When = When { position: Position(u64::MAX), nth: u32::MAX };

/// What ended and is remembered.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct History {
    instances: OrdMap<OfIndex, Arc<EndedInstance>>,
    tasks: OrdMap<OfDomain, Arc<EndedTask>>,
    /// What processes say of it themselves.
    limits: OrdMap<ProcessGuid, u32>,
    /// The index of each container, in the order in which they ended.
    order: BTreeMap<When, (ProcessGuid, u32)>,
    /// How many there are of each process.
    counts: BTreeMap<ProcessGuid, usize>,
    /// The domain of each task, in the order in which they ended.
    task_order: BTreeMap<When, Domain>,
    /// How many there are of each domain.
    task_counts: BTreeMap<Domain, usize>,
}

impl History {
    /// What a picture shows.
    pub(crate) fn pictured(&self) -> Self {
        Self {
            instances: self.instances.clone(),
            tasks: self.tasks.clone(),
            limits: self.limits.clone(),
            ..Self::default()
        }
    }

    /// What a process says of its history itself; none: it leaves that to the cluster.
    pub(crate) fn limit_of(&self, process: &ProcessGuid) -> Option<u32> {
        self.limits.get(process).copied()
    }

    /// The containers that ended at an index, the newest last.
    pub(crate) fn of_index(
        &self,
        process: &ProcessGuid,
        index: u32,
    ) -> impl DoubleEndedIterator<Item = (&OfIndex, &EndedInstance)> {
        let key = |when| OfIndex { process: process.clone(), index, when };
        self.instances.range(key(FIRST)..=key(LAST)).map(|(key, ended)| (key, &**ended))
    }

    /// The containers that ended, by process and index, each index's in the order in which they ended; from an index on.
    pub(crate) fn instances_from(
        &self,
        first: Option<(&ProcessGuid, u32)>,
    ) -> impl Iterator<Item = (&OfIndex, &EndedInstance)> {
        let first = first.map(|(process, index)| OfIndex { process: process.clone(), index, when: FIRST });
        let range = self.instances.range((first.map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded));
        range.map(|(key, ended)| (key, &**ended))
    }

    /// The tasks that ended, by domain, each domain's in the order in which they ended; from a domain on.
    pub(crate) fn tasks_from(&self, first: Option<&Domain>) -> impl Iterator<Item = (&OfDomain, &EndedTask)> {
        let first = first.map(|domain| OfDomain { domain: domain.clone(), when: FIRST });
        let range = self.tasks.range((first.map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded));
        range.map(|(key, ended)| (key, &**ended))
    }

    /// Takes in what a decision did to a process, which is as it is after it.
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

    /// A process said how much of its history is kept, or that the cluster shall say so: what is too much goes at once.
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

    /// A container that ended once more has not: a cell that was lost came back with it.
    fn revive(&mut self, process: &ProcessGuid, index: u32, container: InstanceGuid) {
        // Of most processes nothing has ended.
        if !self.counts.contains_key(process) {
            return;
        }
        let of_index = self.of_index(process, index);
        let found = of_index.filter(|(_, ended)| ended.by.instance_guid == container);
        let found: Vec<OfIndex> = found.map(|(key, _)| key.clone()).collect();
        found.iter().for_each(|key| self.remove(key));
    }

    /// A container ended.
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

    /// A task ended.
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

    /// A process is forgotten, and with it what ended of it.
    pub(crate) fn forget(&mut self, process: &ProcessGuid) {
        self.limits.remove(process);
        let all: Vec<OfIndex> = self.of_process(process).cloned().collect();
        all.iter().for_each(|key| self.remove(key));
    }

    /// How many containers are kept of each index of a process.
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

/// What is stored of it. The rest follows.
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

/// Where the next one stands that ends at a position.
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
