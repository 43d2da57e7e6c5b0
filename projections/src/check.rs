//! Rules that hold after every entry that the services decide. The World is the state folded from the log.

use std::collections::BTreeSet;

use machines::actual::Actual;
use machines::evaluation::Evaluations;
use machines::process::{Process, Slot};
use machines::task::Task;
use schemas::evaluation::Duty;
use schemas::names::{DefinitionId, InstanceGuid, ProcessGuid, TaskGuid};

use crate::World;

/// Broken rule of a World.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A set or count differs from the records that it is computed from.
    #[error("{0} differ from the records")]
    Index(&'static str),
    /// A count or set of a process differs from its slots.
    #[error("process {process}: {what} differ from its slots")]
    Slots { process: ProcessGuid, what: &'static str },
    /// Records of two slots name the same container.
    #[error("process {process}: container {container} is in several slots")]
    SharedContainer { process: ProcessGuid, container: InstanceGuid },
    /// The active or healthy definition is not recorded.
    #[error("process {process}: definition {definition} is missing")]
    Definition { process: ProcessGuid, definition: String },
    /// A waiting instance has no open evaluation, or an open evaluation covers no waiting instance.
    #[error("process {process}: the open evaluations do not match its waiting instances")]
    ProcessEvaluations { process: ProcessGuid },
    /// A waiting task has no open evaluation, or a task that does not wait has one.
    #[error("task {task}: the open evaluations do not match its state")]
    TaskEvaluations { task: TaskGuid },
    /// Two cells have the same ordinal.
    #[error("a cell has several ordinals")]
    Ordinals,
}

impl World {
    /// Checks the rules that hold after every entry that the services decide, and returns the broken ones. A
    /// log that other programs wrote may break them. Takes time in proportion to the size of the World.
    #[must_use]
    pub fn check(&self) -> Vec<Violation> {
        let mut found = self.check_index();
        self.processes.values().for_each(|process| check_process(process, &mut found));
        self.tasks.values().for_each(|task| check_task(task, &mut found));
        let cells = self.cluster.iter().flat_map(|cluster| cluster.ordinals.values());
        if has_duplicates(cells) {
            found.push(Violation::Ordinals);
        }
        found
    }

    /// Compares the index with an index of the same records.
    fn check_index(&self) -> Vec<Violation> {
        let (cluster, former) = (self.cluster.clone(), self.former.clone());
        let mut rebuilt = Self { cluster, former, ..Self::new() };
        self.processes.values().for_each(|process| rebuilt.add_process(Process::clone(process)));
        self.tasks.values().for_each(|task| rebuilt.add_task(Task::clone(task)));
        self.periodics.values().for_each(|periodic| rebuilt.add_periodic((**periodic).clone()));
        self.parameterised.values().for_each(|known| rebuilt.add_parameterised((**known).clone()));
        self.index.differences(&rebuilt.index).into_iter().map(Violation::Index).collect()
    }
}

fn check_process(process: &Process, found: &mut Vec<Violation>) {
    let guid = || process.guid.clone();
    let actuals = || process.slots.iter().filter_map(|slot| slot.actual.as_ref());
    let count = |is: fn(&Actual) -> bool| actuals().filter(|lrp| is(lrp)).count();
    let delayed = |slot: &Slot| Some((slot.actual.as_ref()?.delayed_until()?, slot.place.clone()));
    let restarts: BTreeSet<_> = process.slots.iter().filter_map(delayed).collect();
    let slots = [
        ("UNCLAIMED instances", process.unclaimed as usize == count(Actual::is_unclaimed)),
        ("placement errors", process.unplaced as usize == count(Actual::has_placement_error)),
        ("pending restarts", process.pending_restarts == restarts),
    ];
    let wrong = slots.into_iter().filter(|(_, is_same)| !is_same);
    found.extend(wrong.map(|(what, _)| Violation::Slots { process: guid(), what }));

    let mut seen = BTreeSet::new();
    for slot in process.slots.iter() {
        let containers: BTreeSet<InstanceGuid> = slot.holders().map(|by| by.instance_guid).collect();
        for container in containers {
            if !seen.insert(container) {
                found.push(Violation::SharedContainer { process: guid(), container });
            }
        }
    }
    if let Some(desired) = &process.desired {
        let named = [Some(&desired.active_definition_id), desired.healthy_definition_id.as_ref()];
        let missing = named.into_iter().flatten().filter(|id| desired.definition(id).is_none());
        let violation =
            |id: &DefinitionId| Violation::Definition { process: guid(), definition: id.to_string() };
        found.extend(missing.map(violation));
    }
    if !covers(&process.evaluations, actuals().filter_map(Actual::duty)) {
        found.push(Violation::ProcessEvaluations { process: guid() });
    }
}

fn check_task(task: &Task, found: &mut Vec<Violation>) {
    if !covers(&task.evaluations, task.duty().into_iter()) {
        found.push(Violation::TaskEvaluations { task: task.guid.clone() });
    }
}

/// Returns `true` if there is exactly one open evaluation for each of the duties, and none for other duties.
fn covers(evaluations: &Evaluations, duties: impl Iterator<Item = Duty>) -> bool {
    let mut open: Vec<Duty> = evaluations.iter().filter_map(|one| one.duty()).collect();
    open.sort_unstable();
    let wanted: BTreeSet<Duty> = duties.collect();
    open.into_iter().eq(wanted)
}

fn has_duplicates<T: Ord>(mut all: impl Iterator<Item = T>) -> bool {
    let mut seen = BTreeSet::new();
    !all.all(|one| seen.insert(one))
}

#[cfg(test)]
mod tests {
    use fixtures::{decision, definition_id, domain, entry, instance, lrp, place, process_guid};
    use schemas::container::Epoch;
    use schemas::entry::{Aggregate, Event};
    use schemas::names::IdGenerator;
    use schemas::{Places, Position, Timestamp, actual, desired};

    use super::*;

    /// Returns the violations of a World after events of the process `web`, which the state machines did not
    /// decide.
    fn violations(events: Vec<Event>) -> Vec<String> {
        let at = Timestamp(1);
        let aggregate =
            Aggregate::Process { guid: process_guid("web"), domain: domain("shop"), epoch: Epoch(at) };
        let mut world = World::new();
        world.fold(Position(1), &entry(decision(IdGenerator::new(1).next(at), at, aggregate, events)));
        world.check().iter().map(ToString::to_string).collect()
    }

    fn created(index: u32, definition: &str) -> Event {
        let definition_id = definition_id(definition);
        let places = Places { indices: [index].into_iter().collect(), definition_id };
        Event::Actual(actual::Event::Created { places })
    }

    fn claimed(index: u32, definition: &str, container: u64) -> [Event; 2] {
        let (place, by) = (place(index, definition), instance(container, "cell-1"));
        let claimed = actual::Event::Claimed { place, by, placement: None };
        [created(index, definition), Event::Actual(claimed)]
    }

    #[test]
    fn each_broken_rule_is_reported() {
        let desired = || Event::Desired(desired::Event::Desired(Box::new(lrp("web", "shop", 1))));
        let pruned = desired::Event::Pruned { definition_ids: vec![definition_id("web")] };
        let cases: [(Vec<Event>, &[&str]); 3] = [
            (
                vec![desired(), created(0, "web")],
                &["process web: the open evaluations do not match its waiting instances"],
            ),
            (
                [claimed(0, "web", 1), claimed(1, "web", 1)].concat(),
                &["process web: container 00000000-0000-0001-0000-000000000001 is in several slots"],
            ),
            (vec![desired(), Event::Desired(pruned)], &["process web: definition web is missing"]),
        ];
        for (events, expected) in cases {
            assert_eq!(violations(events), expected);
        }
    }

    #[test]
    fn set_that_differs_from_the_records_is_reported() {
        let mut world = World::new();
        world.index.counts.processes = 1;
        world.index.global.insert(process_guid("web"));
        let differs = ["counts", "global processes"].map(Violation::Index);
        assert_eq!(world.check(), differs);
    }
}
