//! Checks of expectations, by rows of queries from a simulated or a real cluster.

use std::collections::BTreeSet;

use projections::{Observed, World, queries};
use schemas::Timestamp;
use schemas::actual::StopReason;
use schemas::ended::EndKind;
use schemas::names::{CellId, DefinitionId, ProcessGuid, ServiceId, TaskGuid};
use schemas::query::{
    CellRow, CellState, EndedInstanceRow, EvaluationRow, Filter, InstancePresence, InstanceRow,
    InstanceState, LrpRow, QuarantinedEntries, TaskRow,
};

use crate::story::expect::{What, Where};

/// Rows of a cluster at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Desired processes, and removed processes with instances.
    pub lrps: Vec<LrpRow>,
    pub instances: Vec<InstanceRow>,
    /// Ended containers, newest first per index.
    pub ended: Vec<EndedInstanceRow>,
    pub tasks: Vec<TaskRow>,
    pub cells: Vec<CellRow>,
    /// Evaluations, without those that ended long ago.
    pub evaluations: Vec<EvaluationRow>,
    /// Tasks whose owners gave a final answer.
    pub answered: BTreeSet<TaskGuid>,
}

impl Facts {
    /// Returns the rows of a World.
    #[must_use]
    pub fn from_world(world: &World, now: Timestamp, answered: BTreeSet<TaskGuid>) -> Self {
        let all = Filter { all: true, ..Filter::default() };
        let every = Filter::default();
        let observed = Observed {
            bbs: ServiceId::new("story").expect("legal"),
            now,
            durability: String::new(),
            history_limit: crate::shape::HISTORY,
            refused_transitions: 0,
            log: None,
            quarantined_entries: QuarantinedEntries::default(),
            services: schemas::query::Services::default(),
            heartbeat_ages: std::collections::BTreeMap::new(),
        };
        let none = "nothing is asked that can't be";
        Self {
            lrps: queries::lrps(world, &every, &observed).expect(none).rows,
            instances: queries::instances(world, &all, &observed).expect(none).rows,
            ended: queries::ended_instances(world, &every, &observed).expect(none).rows,
            tasks: queries::tasks(world, &every, &observed).expect(none).rows,
            cells: queries::cells(world, &every, &observed).expect(none).rows,
            evaluations: queries::evaluations(world, &every, &observed).expect(none).rows,
            answered,
        }
    }

    fn of_process<'a>(&'a self, process: &'a ProcessGuid) -> impl Iterator<Item = &'a InstanceRow> {
        self.instances.iter().filter(move |row| row.process_guid == *process)
    }

    /// Returns the row of a process.
    fn lrp(&self, process: &ProcessGuid) -> Result<&LrpRow, String> {
        let row = self.lrps.iter().find(|row| row.process_guid == *process);
        row.ok_or_else(|| format!("process {process} does not exist"))
    }

    fn ordinary<'a>(&'a self, process: &'a ProcessGuid) -> impl Iterator<Item = &'a InstanceRow> {
        self.of_process(process).filter(|row| row.presence != InstancePresence::Evacuating)
    }

    /// Returns the cells with an evacuating record of an index. Several definitions may evacuate at once.
    fn twins<'a>(&'a self, process: &'a ProcessGuid, index: u32) -> Vec<&'a CellId> {
        let is_it = |row: &&InstanceRow| row.presence == InstancePresence::Evacuating && row.index == index;
        self.of_process(process).filter(is_it).filter_map(|row| row.cell_id.as_ref()).collect()
    }
}

impl Facts {
    /// Checks the number of ended containers of an index.
    fn ended_times(&self, process: &ProcessGuid, index: u32, times: usize) -> Result<(), String> {
        let of_index = |row: &&EndedInstanceRow| row.process_guid == *process && row.index == index;
        let rows: Vec<_> = self.ended.iter().filter(of_index).collect();
        let right = rows.len() == times;
        so(right, || lines(rows.into_iter().map(ended_line), &format!("{process}/{index}")))
    }

    /// Checks that a container of an index ended in this way.
    fn ended_so(
        &self,
        (process, index): (&ProcessGuid, u32),
        how: EndKind,
        stop: Option<StopReason>,
    ) -> Result<(), String> {
        let of_index = |row: &&EndedInstanceRow| row.process_guid == *process && row.index == index;
        let rows: Vec<_> = self.ended.iter().filter(of_index).collect();
        let right = rows.iter().any(|row| row.end_kind == how && row.stop_reason == stop);
        so(right, || lines(rows.into_iter().map(ended_line), &format!("{process}/{index}")))
    }
}

impl Facts {
    fn cell_is(&self, cell: &CellId, state: &str) -> Result<(), String> {
        let row = self.cells.iter().find(|row| row.cell_id == *cell);
        let row = row.ok_or_else(|| format!("{cell} was never seen"))?;
        // The log shows a silent cell as present until the cell is lost.
        let shown = if row.state == CellState::Silent { CellState::Present } else { row.state };
        so(shown.as_str().eq_ignore_ascii_case(state), || {
            format!("{cell} is {}", row.state.as_str().to_lowercase())
        })
    }
}

impl Facts {
    fn healthy_is(&self, process: &ProcessGuid, wanted: Option<&DefinitionId>) -> Result<(), String> {
        let known = self.lrp(process)?.healthy_definition_id.as_ref();
        let name = || known.map_or("none", DefinitionId::as_str);
        so(known == wanted, || format!("the healthy definition of {process} is {}", name()))
    }

    fn definitions_are(&self, process: &ProcessGuid, wanted: &[DefinitionId]) -> Result<(), String> {
        let known = &self.lrp(process)?.definition_ids;
        let names: Vec<&str> = known.iter().map(DefinitionId::as_str).collect();
        so(known == wanted, || format!("{process} has the definitions {}", names.join(", ")))
    }

    fn rollout_is(&self, process: &ProcessGuid, wanted: &str) -> Result<(), String> {
        let rollout = self.lrp(process)?.rollout.as_ref();
        let rollout = rollout.ok_or_else(|| format!("{process} was never rolled out"))?;
        so(rollout.status == wanted, || {
            let reason = rollout.reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            format!("the rollout of {process} to {} is {}{reason}", rollout.target, rollout.status)
        })
    }

    /// Checks for a record of an instance.
    fn has_instance(
        &self,
        (process, index): (&ProcessGuid, u32),
        wanted: impl Fn(&InstanceRow) -> bool,
    ) -> Result<(), String> {
        let rows: Vec<&InstanceRow> = self.ordinary(process).filter(|row| row.index == index).collect();
        if rows.is_empty() {
            return Err(format!("{process}/{index} has no record"));
        }
        let right = rows.iter().any(|row| wanted(row));
        so(right, || lines(rows.into_iter().map(instance_line), process.as_str()))
    }
}

impl What {
    /// Checks the expectation.
    ///
    /// # Errors
    /// Returns the actual state if it differs.
    pub fn judge(&self, facts: &Facts) -> Result<(), String> {
        match self {
            Self::Instance { process, index, state, definition, reason, place, crashes } => facts
                .has_instance((process, *index), |row| {
                    let said = row.placement_error.as_deref().filter(|_| *state == "UNCLAIMED");
                    let said = said.or(row.crash_reason.as_deref().filter(|_| *state == "CRASHED"));
                    row.state.as_str() == *state
                        && definition.as_ref().is_none_or(|definition| row.definition_id == *definition)
                        && says(said, reason.as_deref())
                        && is_at(row.cell_id.as_ref(), place.as_ref())
                        && crashes.is_none_or(|crashes| row.crash_count == crashes)
                }),
            Self::EndedTimes { process, index, times } => facts.ended_times(process, *index, *times),
            Self::Ended { process, index, how, stop } => facts.ended_so((process, *index), *how, *stop),
            Self::NoInstance(process, index) => {
                let row = facts.ordinary(process).find(|row| row.index == *index);
                row.map_or(Ok(()), |row| Err(instance_line(row)))
            }
            Self::Twin(process, index, cell) => {
                let twins = facts.twins(process, *index);
                let right = cell.as_ref().map_or(twins.is_empty(), |cell| twins.contains(&cell));
                let on = |cell: &&CellId| format!("{process}/{index} is evacuating on {cell}");
                so(right, || match &twins[..] {
                    [] => format!("{process}/{index} is not evacuating"),
                    twins => twins.iter().map(on).collect::<Vec<_>>().join("; "),
                })
            }
            Self::Count { process, counts, definition, on } => {
                let at = |row: &&InstanceRow| {
                    (on.is_none() || row.cell_id == *on)
                        && definition.as_ref().is_none_or(|definition| row.definition_id == *definition)
                };
                let rows: Vec<&InstanceRow> = facts.ordinary(process).filter(at).collect();
                let in_state = |state: &str| rows.iter().filter(|row| row.state.as_str() == state).count();
                let all: usize = counts.iter().map(|(count, _)| count).sum();
                let right =
                    rows.len() == all && counts.iter().all(|(count, state)| in_state(state) == *count);
                so(right, || lines(facts.of_process(process).map(instance_line), process.as_str()))
            }
            Self::Healthy(process, definition) => facts.healthy_is(process, definition.as_ref()),
            Self::Definitions(process, definitions) => facts.definitions_are(process, definitions),
            Self::Rollout(process, state) => facts.rollout_is(process, state),
            Self::Gone(name) => {
                let process = facts.lrps.iter().find(|row| row.process_guid == *name);
                let task = facts.tasks.iter().find(|row| row.task_guid.as_str() == name.as_str());
                let left = process.map(|row| format!("{} of {name} are desired", row.instances));
                let left = left.or_else(|| task.map(task_line));
                left.or_else(|| facts.of_process(name).next().map(instance_line)).map_or(Ok(()), Err)
            }
            Self::Task { task, state, failed, text, place } => {
                let row = facts.tasks.iter().find(|row| row.task_guid == *task);
                let row = row.ok_or_else(|| format!("task {task} does not exist"))?;
                let said = row.failure_reason.as_deref().or(row.result.as_deref());
                let right = row.state.as_str() == *state
                    && row.failed.unwrap_or(false) == *failed
                    && says(said.or(row.placement_error.as_deref()), text.as_deref())
                    && is_at(row.cell_id.as_ref(), place.as_ref());
                so(right, || task_line(row))
            }
            Self::Cell(cell, state) => facts.cell_is(cell, state),
            Self::Owner { task, told } => so(facts.answered.contains(task) == *told, || {
                format!("the owner of {task} was {}told", if *told { "not " } else { "" })
            }),
            Self::Evaluation(evaluated) => evaluated.judge(&facts.evaluations),
        }
    }
}

fn so(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// Returns `true` if a text equals the expected one, maybe followed by a colon and details.
fn says(said: Option<&str>, wanted: Option<&str>) -> bool {
    let Some(wanted) = wanted else { return true };
    let behind = said.and_then(|said| said.strip_prefix(wanted));
    behind.is_some_and(|details| details.is_empty() || (!wanted.is_empty() && details.starts_with(": ")))
}

fn is_at(cell: Option<&CellId>, place: Option<&Where>) -> bool {
    match place {
        None => true,
        Some(Where::On(wanted)) => cell == Some(wanted),
        Some(Where::NotOn(other)) => cell.is_some_and(|cell| cell != other),
    }
}

fn lines(lines: impl Iterator<Item = String>, name: &str) -> String {
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() { format!("{name} has no instance") } else { lines.join("; ") }
}

fn instance_line(row: &InstanceRow) -> String {
    let state = if row.presence == InstancePresence::Evacuating { "evacuating" } else { row.state.as_str() };
    let mut line = format!("{}/{} is {state} of {}", row.process_guid, row.index, row.definition_id);
    line.extend(row.cell_id.as_ref().map(|cell| format!(" on {cell}")));
    line.extend(row.stopping.then_some(", stopping"));
    line.extend(row.placement_error.as_ref().map(|error| format!(", {error:?}")));
    line.extend((row.crash_count > 0).then(|| format!(", crashes {}", row.crash_count)));
    line.extend(
        row.crash_reason
            .as_ref()
            .filter(|_| row.state == InstanceState::Crashed)
            .map(|why| format!(", {why:?}")),
    );
    line
}

fn ended_line(row: &EndedInstanceRow) -> String {
    let mut line = format!("{}/{} ended {:?}", row.process_guid, row.index, row.end_kind);
    line.extend(row.stop_reason.map(|stop| format!(" for {stop:?}")));
    line.extend(row.reason.as_ref().map(|why| format!(", {why:?}")));
    line
}

fn task_line(row: &TaskRow) -> String {
    let mut line = format!("{} is {}", row.task_guid, row.state);
    line.extend(row.cell_id.as_ref().map(|cell| format!(" on {cell}")));
    line.extend(row.failed.filter(|failed| *failed).map(|_| " failed"));
    let said = row.failure_reason.as_ref().or(row.result.as_ref()).or(row.placement_error.as_ref());
    line.extend(said.map(|said| format!(" {said:?}")));
    line
}
