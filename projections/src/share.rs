//! Deduplication of equal names and definitions in memory.
//!
//! A million instances typically belong to a few domains, run on a few thousand cells, and use a few thousand
//! definitions. Without deduplication, each instance would have a separate copy of these values after it is
//! decoded from the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;
use machines::actual::State;
use machines::desired::Desired;
use machines::process::{Process, Slot};
use machines::task::{self, Task};
use schemas::action::Action;
use schemas::definition::{Definition, TaskDefinition};
use schemas::names::{CellId, DefinitionId, Domain};
use schemas::policy::Policies;
use schemas::resources::Constraint;
use serde::Serialize;

use crate::index::OnCell;

/// Definitions, their parts, policies and domains in use. Sharing does not affect the state of the World (the
/// state folded from the log), so two values of this type are always equal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    definitions: Pool<Definition>,
    constraints: Pool<Constraint>,
    actions: Pool<Action>,
    policies: Pool<Policies>,
    task_definitions: Pool<TaskDefinition>,
    /// Number of processes and tasks in each domain.
    domains: BTreeMap<Domain, u64>,
}

impl PartialEq for Shared {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Shared {
    /// Counts a process or task in its domain. Replaces its domain by the shared copy.
    pub(crate) fn enter(&mut self, domain: &mut Domain) {
        if let Some((known, _)) = self.domains.get_key_value(domain) {
            *domain = known.clone();
        }
        *self.domains.entry(domain.clone()).or_default() += 1;
    }

    /// Adds the shared values of another part of the World. Values that exist in both parts stay duplicated.
    pub(crate) fn merge(&mut self, other: Self) {
        let Self { definitions, constraints, actions, policies, task_definitions, domains } = other;
        self.definitions.merge(definitions);
        self.constraints.merge(constraints);
        self.actions.merge(actions);
        self.policies.merge(policies);
        self.task_definitions.merge(task_definitions);
        for (domain, count) in domains {
            *self.domains.entry(domain).or_default() += count;
        }
    }

    /// Stops counting a process or task in its domain.
    pub(crate) fn leave(&mut self, domain: &Domain) {
        if let Some(count) = self.domains.get_mut(domain) {
            *count -= 1;
            if *count == 0 {
                self.domains.remove(domain);
            }
        }
    }

    /// Shares the definitions of a process that was just desired.
    pub(crate) fn share_definitions(&mut self, process: &mut Process) {
        let Some(desired) = &mut process.desired else { return };
        if desired.active_definition_id.as_str() == process.guid.as_str() {
            desired.active_definition_id = DefinitionId::from(&process.guid);
        }
        for (id, definition) in &mut desired.definitions {
            if *id == desired.active_definition_id {
                id.clone_from(&desired.active_definition_id);
            }
            self.definitions.share_with(definition, |parts| {
                self.constraints.share(&mut parts.constraint);
                let Definition { setup, action, monitor, .. } = parts;
                for action in setup.iter_mut().chain([action]).chain(monitor) {
                    self.actions.share(action);
                }
            });
        }
    }

    /// Shares the policies of a process that were just set.
    pub(crate) fn share_policies(&mut self, process: &mut Process) {
        if let Some(desired) = &mut process.desired {
            self.policies.share(&mut desired.policies);
        }
    }

    /// Shares the definition of a task that was just desired.
    pub(crate) fn share_task_definition(&mut self, task: &mut Task) {
        self.task_definitions.share(&mut task.definition);
    }
}

/// Makes the id of the healthy definition share the text of the active definition's id.
pub(crate) fn share_healthy_id(process: &mut Process) {
    let Some(desired) = &mut process.desired else { return };
    if desired.healthy_definition_id.as_ref() == Some(&desired.active_definition_id) {
        desired.healthy_definition_id = Some(desired.active_definition_id.clone());
    }
}

/// Makes a slot share the names of its cells and of its definition.
pub(crate) fn share_slot(slot: &mut Slot, desired: Option<&Desired>, cells: &OrdMap<CellId, OnCell>) {
    let id = &mut slot.place.definition_id;
    let mut known = desired.into_iter().flat_map(|desired| &desired.definitions);
    if let Some((known, _)) = known.find(|(known, _)| known == id) {
        *id = known.clone();
    }
    if let Some(lrp) = &mut slot.actual {
        match &mut lrp.state {
            State::Claimed { by, .. } | State::Running { by, .. } => share_cell(&mut by.cell_id, cells),
            State::Unclaimed { .. } | State::Crashed { .. } => {}
        }
        if let Some(by) = &mut lrp.crashed_instance {
            share_cell(&mut by.cell_id, cells);
        }
    }
    if let Some(twin) = &mut slot.evacuating {
        share_cell(&mut twin.by.cell_id, cells);
    }
}

/// Makes a task share the name of its cell.
pub(crate) fn share_task(task: &mut Task, cells: &OrdMap<CellId, OnCell>) {
    if let Some(task::State::Running { by }) = &mut task.state {
        share_cell(&mut by.cell_id, cells);
    }
}

fn share_cell(cell: &mut CellId, cells: &OrdMap<CellId, OnCell>) {
    if let Some((known, _)) = cells.get_key_value(cell) {
        *cell = known.clone();
    }
}

/// Pool of distinct values. A value without other references is dropped at the next sweep. The number of
/// unused values is at most the number of used values plus [`SPARE_VALUES`].
#[derive(Clone, Debug)]
struct Pool<T> {
    /// Values by a hash of their bytes. If two values have the same hash, only the first value is shared.
    values: BTreeMap<u64, Arc<T>>,
    /// Most recently shared value. The next value is often equal to it, and then no hash is computed.
    last: Option<Arc<T>>,
    sweep_at: usize,
}

/// Number of unused values that a pool may always keep.
const SPARE_VALUES: usize = 1024;

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), last: None, sweep_at: SPARE_VALUES }
    }
}

impl<T> Pool<T> {
    fn merge(&mut self, mut other: Self) {
        self.values.append(&mut other.values);
        self.sweep_at = self.sweep_at.max(2 * self.values.len() + SPARE_VALUES);
    }
}

impl<T: Serialize + PartialEq + Clone> Pool<T> {
    fn share(&mut self, value: &mut Arc<T>) {
        self.share_with(value, |_| {});
    }

    /// Shares a value. A new value has no other reference yet, so its parts are shared first.
    fn share_with(&mut self, value: &mut Arc<T>, share_parts: impl FnOnce(&mut T)) {
        if let Some(last) = self.last.as_ref().filter(|last| *last == value) {
            *value = Arc::clone(last);
            return;
        }
        let Ok(bytes) = postcard::to_stdvec(&**value) else { return };
        let hash = schemas::checksum::crc64(&[&bytes]);
        if let Some(known) = self.values.get(&hash) {
            if known == value {
                *value = Arc::clone(known);
                self.last = Some(Arc::clone(known));
            }
            return;
        }
        if self.values.len() >= self.sweep_at {
            self.values.retain(|_, value| Arc::strong_count(value) > 1);
            self.sweep_at = 2 * self.values.len() + SPARE_VALUES;
        }
        // A value that was decoded from text has vectors with spare capacity. The clone has none.
        let mut own = (**value).clone();
        share_parts(&mut own);
        *value = Arc::new(own);
        self.last = Some(Arc::clone(value));
        self.values.insert(hash, Arc::clone(value));
    }
}

#[cfg(test)]
mod tests {
    use machines::process;
    use schemas::container::Epoch;
    use schemas::entry::Event;
    use schemas::names::DecisionId;
    use schemas::stamp::Stamp;
    use schemas::{Timestamp, desired};

    use super::*;

    /// Returns a process that was just desired with this much memory.
    fn desired(guid: &str, memory_mb: u64) -> Process {
        let lrp = fixtures::lrp_of(guid, "d", 1, Definition { memory_mb, ..fixtures::definition() });
        let mut process = Process::new(lrp.process_guid.clone(), lrp.domain.clone(), Epoch(Timestamp(1)));
        let event = Event::Desired(desired::Event::Desired(Box::new(lrp)));
        let stamp = Stamp::root(DecisionId(uuid::Uuid::nil()), Timestamp(1));
        process::evolve(&mut process, &[event], &stamp);
        process
    }

    #[test]
    fn different_definitions_share_equal_parts() {
        let mut shared = Shared::default();
        let [one, other] = [("one", 1), ("other", 2)].map(|(guid, memory_mb)| {
            let mut process = desired(guid, memory_mb);
            shared.share_definitions(&mut process);
            shared.share_policies(&mut process);
            let desired = process.desired.expect("the process was desired");
            (Arc::clone(&desired.definitions[0].1), desired.policies)
        });
        assert_ne!(one.0, other.0);
        assert!(Arc::ptr_eq(&one.0.action, &other.0.action));
        assert!(Arc::ptr_eq(&one.0.constraint, &other.0.constraint));
        assert!(Arc::ptr_eq(&one.1, &other.1));
    }

    #[test]
    fn unused_values_are_dropped_at_sweep() {
        let mut pool = Pool::default();
        let mut kept = Arc::new(u64::MAX);
        pool.share(&mut kept);
        for value in 0..4 * SPARE_VALUES as u64 {
            pool.share(&mut Arc::new(value));
        }
        assert!(pool.values.len() <= 2 * SPARE_VALUES, "{} values are kept", pool.values.len());
        let mut again = Arc::new(u64::MAX);
        pool.share(&mut again);
        assert!(Arc::ptr_eq(&kept, &again), "a used value is shared");
    }
}
