//! Model of a BBS with one shard and without a journal. It uses the state machines of `schemas` to decide
//! commands and to fold events, and answers immediately.

use std::collections::{BTreeMap, BTreeSet};

use machines::actual::State;
use machines::process::Process;
use machines::task::{self, Task};
use schemas::cell::Evacuation;
use schemas::cluster::Terms;
use schemas::container::{Epoch, Instance, WorkKey};
use schemas::definition::{DesiredLrp, DesiredTask};
use schemas::entry::Event;
use schemas::message::{
    LrpRecord, LrpState, Record, Report, ReportResult, Reports, ReportsReply, TaskRecord, TaskState, Work,
};
use schemas::names::{CellId, DecisionId, DefinitionId, ProcessGuid, TaskGuid};
use schemas::policy::Policies;
use schemas::process::{self, ReportStep};
use schemas::query::{Records, RecordsAnswer};
use schemas::stamp::Stamp;
use schemas::{ActualLrpKey, Code, Place, Position, Refusal, Timestamp, actual};

use crate::words;

#[derive(Default)]
pub(crate) struct SmallBbs {
    pub(crate) processes: BTreeMap<ProcessGuid, Process>,
    pub(crate) tasks: BTreeMap<TaskGuid, Task>,
    pub(crate) position: u64,
    /// Terms of the leaders in the log.
    pub(crate) terms: Terms,
    /// Evacuation state of the cell in the log.
    pub(crate) evacuation: Evacuation,
    /// Cells that are declared lost.
    pub(crate) lost_cells: BTreeSet<CellId>,
    /// Indices that belong to other cells. A global process has such indices.
    pub(crate) foreign_indices: BTreeSet<u32>,
}

impl SmallBbs {
    pub(crate) fn desire(&mut self, name: &str, instances: u32, now: Timestamp) {
        let lrp = DesiredLrp {
            process_guid: words::process_guid(name),
            domain: words::domain(),
            mode: schemas::definition::Mode::Replicated,
            instances,
            priority: schemas::priority::Priority::default(),
            routes: BTreeMap::new(),
            annotation: String::new(),
            policies: Policies::default(),
            definition_id: DefinitionId::new(name).unwrap(),
            definition: words::definition().into(),
        };
        self.process(name, &process::Command::Desire(Box::new(lrp)), now).unwrap();
    }

    pub(crate) fn desire_task(&mut self, name: &str, now: Timestamp) {
        let definition = words::task_definition().into();
        let task = DesiredTask { task_guid: words::task_guid(name), domain: words::domain(), definition };
        self.task(name, &schemas::task::Command::Desire(Box::new(task)), now).unwrap();
    }

    pub(crate) fn process(
        &mut self,
        name: &str,
        command: &process::Command,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let guid = words::process_guid(name);
        if let process::Command::Report(report) = command
            && matches!(report.steps.first(), Some(ReportStep::Actual(actual::Command::Start { .. })))
            && self.foreign_indices.contains(&report.place.index)
        {
            let why = format!("index {} belongs to another cell", report.place.index);
            return Err(Refusal::new(Code::ActualLrpCannotBeStarted, why));
        }
        let lost = &self.lost_cells;
        let present = |cell: &CellId| !lost.contains(cell);
        let context = machines::process::Context {
            now,
            is_fresh: true,
            is_present: &present,
            is_known: &|_| true,
            for_each_cell: &|_| {},
        };
        let events = machines::process::decide(self.processes.get(&guid), command, context)?;
        let stamp = self.stamp(&events, now);
        let epoch = match command {
            process::Command::Report(report) => report.epoch,
            process::Command::Desire(_)
            | process::Command::Update(_)
            | process::Command::Deploy { .. }
            | process::Command::Activate { .. }
            | process::Command::Restart(_)
            | process::Command::Steer(_)
            | process::Command::Remove
            | process::Command::Retire { .. }
            | process::Command::Enter { .. }
            | process::Command::Evict(_)
            | process::Command::Fail(_)
            | process::Command::Unanswered { .. }
            | process::Command::Retry(_)
            | process::Command::Converge => Epoch(now),
        };
        let process =
            self.processes.entry(guid.clone()).or_insert_with(|| Process::new(guid, words::domain(), epoch));
        machines::process::evolve(process, &events, &stamp);
        Ok(())
    }

    pub(crate) fn task(
        &mut self,
        name: &str,
        command: &schemas::task::Command,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let guid = words::task_guid(name);
        let lost = &self.lost_cells;
        let present = |cell: &CellId| !lost.contains(cell);
        let old = self.tasks.get(&guid);
        let events = task::decide(old, command, task::Context { now, is_present: &present })?;
        let stamp = self.stamp(&events, now);
        let task = task::evolve(self.tasks.remove(&guid), &events, &stamp);
        self.tasks.extend(task.map(|task| (guid, task)));
        Ok(())
    }

    fn stamp(&mut self, events: &[Event], at: Timestamp) -> Stamp {
        self.position += u64::from(!events.is_empty());
        let decision = DecisionId(uuid::Uuid::from_u64_pair(9, self.position));
        Stamp::root(decision, at)
    }

    /// Decides on the reports of the tested rep or of another cell, and records the result.
    pub(crate) fn report(&mut self, reports: &Reports, now: Timestamp) -> ReportsReply {
        let one = |report: &Report| match report {
            Report::Lrp { process_guid, report } => {
                let command = process::Command::Report(report.clone());
                let refused = self.process(process_guid.as_str(), &command, now).err();
                ReportResult { refused, record: self.lrp(process_guid, &report.place) }
            }
            Report::Task { task_guid, report } => {
                let refused =
                    self.task(task_guid.as_str(), &schemas::task::Command::Report(report.clone()), now).err();
                ReportResult { refused, record: self.task_record(task_guid) }
            }
        };
        let results = reports.reports.iter().map(one).collect();
        ReportsReply { position: Position(self.position), terms: self.terms, results }
    }

    pub(crate) fn lrp(&self, guid: &ProcessGuid, place: &Place) -> Record {
        let Some(process) = self.processes.get(guid) else { return Record::Absent };
        let slot = process.slot(place);
        let own = slot.and_then(|slot| slot.actual.as_ref());
        // The slot may contain only an evacuating instance. The model then decides in the same way as the
        // real BBS: it compares the evacuating instance with the instance that replaces it.
        let evacuates = slot.is_some_and(|slot| slot.evacuating.is_some());
        let mut others = process.actuals_at(place.index).filter(|_| evacuates).map(|(_, lrp)| lrp);
        let actual = own.or_else(|| others.next());
        let state = actual.map(|actual| match &actual.state {
            State::Unclaimed { placement_error } => {
                LrpState::Unclaimed { placement_error: placement_error.is_some() }
            }
            State::Claimed { by, stopping } => LrpState::Claimed { by: by.clone(), stopping: *stopping },
            State::Running { by, stopping, .. } => LrpState::Running { by: by.clone(), stopping: *stopping },
            State::Crashed { .. } => LrpState::Crashed,
        });
        Record::Lrp(LrpRecord {
            key: ActualLrpKey::new(guid.clone(), place.clone()),
            epoch: process.epoch,
            domain: process.domain.clone(),
            state,
            evacuating: slot.and_then(|slot| slot.evacuating.as_ref()).map(|twin| twin.by.clone()),
            since: actual.map_or(Timestamp(0), |actual| actual.since),
            changed_at: process.changed_at(place),
        })
    }

    pub(crate) fn task_record(&self, guid: &TaskGuid) -> Record {
        let state = self.tasks.get(guid).and_then(|task| Some((task, task.state.as_ref()?)));
        let Some((task, state)) = state else { return Record::Absent };
        let state = match state {
            task::State::Pending { .. } => TaskState::Pending,
            task::State::Running { by } => TaskState::Running { by: by.clone() },
            task::State::Completed(done) => TaskState::Completed { by: done.by.clone() },
            task::State::Resolving(done) => TaskState::Resolving { by: done.by.clone() },
        };
        let (task_guid, domain) = (guid.clone(), task.domain.clone());
        Record::Task(TaskRecord { task_guid, epoch: task.epoch, domain, state })
    }

    pub(crate) fn records(&self, records: &Records) -> RecordsAnswer {
        assert!(
            records.at_least.is_none_or(|at| at.0 <= self.position),
            "{records:?} requires a position beyond the end of the log"
        );
        let lrps = self.processes.values().flat_map(|process| {
            process.slots.iter().map(move |slot| (self.lrp(&process.guid, &slot.place), process, &slot.place))
        });
        let wanted_lrp = |process: &Process, place: &Place| {
            records.work.iter().any(|work| match work {
                WorkKey::Lrp { key, .. } => key.process_guid == process.guid && key.place == *place,
                WorkKey::Task { .. } => false,
            })
        };
        let wanted_task = |guid: &TaskGuid| {
            records.work.iter().any(|work| match work {
                WorkKey::Lrp { .. } => false,
                WorkKey::Task { task_guid, .. } => task_guid == guid,
            })
        };
        let lrps = lrps
            .filter(|(record, process, place)| {
                names_cell(record, &records.cell_id) || wanted_lrp(process, place)
            })
            .map(|(record, ..)| record);
        let tasks = self
            .tasks
            .keys()
            .map(|guid| (guid, self.task_record(guid)))
            .filter(|(guid, record)| {
                *record != Record::Absent && (names_cell(record, &records.cell_id) || wanted_task(guid))
            })
            .map(|(_, record)| record);
        RecordsAnswer {
            position: Position(self.position),
            terms: self.terms,
            evacuation: self.evacuation,
            records: lrps.chain(tasks).collect(),
        }
    }

    /// Returns the work (instances and tasks) that an auctioneer would place now.
    pub(crate) fn work(&self) -> Vec<Work> {
        let lrps = self.processes.values().flat_map(|process| {
            let unclaimed = process.slots.iter().filter_map(move |slot| {
                let actual = slot.actual.as_ref().filter(|actual| actual.is_unclaimed())?;
                let key = ActualLrpKey::new(process.guid.clone(), slot.place.clone());
                Some(words::lrp_work(WorkKey::Lrp { key, epoch: process.epoch }, actual.since))
            });
            unclaimed.collect::<Vec<_>>()
        });
        let tasks = self.tasks.values().filter(|task| task.is_pending()).map(|task| {
            let key = WorkKey::Task { task_guid: task.guid.clone(), epoch: task.epoch };
            words::task_work(key, task.since)
        });
        lrps.chain(tasks).collect()
    }

    pub(crate) fn holder(&self, name: &str, index: u32) -> Option<Instance> {
        self.processes.get(name)?.actual(&fixtures::place(index, name))?.holder().cloned()
    }

    pub(crate) fn state(&self, name: &str, index: u32) -> &'static str {
        let process = self.processes.get(name);
        process
            .and_then(|process| process.actual(&fixtures::place(index, name)))
            .map_or("-", |actual| actual.state_name())
    }

    pub(crate) fn evacuating_instance(&self, name: &str, index: u32) -> Option<Instance> {
        Some(self.processes.get(name)?.slot(&fixtures::place(index, name))?.evacuating.as_ref()?.by.clone())
    }
}

fn names_cell(record: &Record, cell_id: &CellId) -> bool {
    let here = |by: &Instance| by.cell_id == *cell_id;
    match record {
        Record::Absent => false,
        Record::Lrp(record) => {
            let held = match &record.state {
                Some(LrpState::Claimed { by, .. } | LrpState::Running { by, .. }) => here(by),
                Some(LrpState::Unclaimed { .. } | LrpState::Crashed) | None => false,
            };
            held || record.evacuating.as_ref().is_some_and(here)
        }
        Record::Task(record) => match &record.state {
            TaskState::Running { by } => here(by),
            TaskState::Completed { by } | TaskState::Resolving { by } => by.as_ref().is_some_and(here),
            TaskState::Pending => false,
        },
    }
}
