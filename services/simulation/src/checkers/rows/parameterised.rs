//! Parameterised tasks as rows, told from the events alone.

use schemas::container::Epoch;
use schemas::definition::DesiredParameterised;
use schemas::entry::Event;
use schemas::names::{ParameterisedGuid, TaskGuid};
use schemas::parameterised::{self, DispatchSummary};
use schemas::query::{Filter, ParameterisedRow, TaskState};
use schemas::{Decision, Position, Timestamp};

use super::facts::Facts;

/// docs/reference/rows.md: so many of what runs a row names, and of what waits a row of a list.
const NAMED: usize = 16;

/// A parameterised task.
#[derive(Clone)]
pub(super) struct Parameterised {
    epoch: Epoch,
    version: u64,
    last_decision: Position,
    /// None: it was removed.
    pub(super) desired: Option<DesiredParameterised>,
    queued: Vec<DispatchSummary>,
    last: Option<DispatchSummary>,
    dispatched: u64,
    launched: u64,
    withdrawn: u64,
    since: Timestamp,
}

impl Facts {
    pub(super) fn parameterised(&mut self, guid: &ParameterisedGuid, decision: &Decision) {
        for event in decision.events.iter().filter_map(Event::as_parameterised) {
            if let parameterised::Event::Desired { desired } = event {
                let new = Parameterised {
                    epoch: Epoch(decision.at),
                    version: 0,
                    last_decision: self.position,
                    desired: Some((**desired).clone()),
                    queued: vec![],
                    last: None,
                    dispatched: 0,
                    launched: 0,
                    withdrawn: 0,
                    since: decision.at,
                };
                self.parameterised.insert(guid.clone(), new);
            } else if let Some(known) = self.parameterised.get_mut(guid) {
                known.event(guid, event, decision.at);
            }
        }
        if let Some(known) = self.parameterised.get_mut(guid) {
            (known.version, known.last_decision) = (decision.version, self.position);
        }
    }
}

impl Parameterised {
    fn event(&mut self, guid: &ParameterisedGuid, event: &parameterised::Event, at: Timestamp) {
        match event {
            parameterised::Event::Desired { .. } | parameterised::Event::Repeated { .. } => {}
            parameterised::Event::Updated { desired } => {
                (self.desired, self.since) = (Some((**desired).clone()), at);
            }
            parameterised::Event::Dispatched { number, dispatch, .. } => {
                let task_guid = TaskGuid::new(&format!("{guid}--dispatch-{number}")).expect("a name");
                let one = DispatchSummary { number: *number, task_guid, key: dispatch.key.clone(), at };
                self.last = Some(one.clone());
                self.queued.push(one);
                self.dispatched += 1;
            }
            parameterised::Event::Launched { number, .. } => {
                self.queued.retain(|one| one.number != *number);
                self.launched += 1;
            }
            parameterised::Event::Withdrawn { numbers, .. } => {
                self.queued.retain(|one| !numbers.contains(&one.number));
                self.withdrawn += numbers.len() as u64;
            }
            parameterised::Event::Removed {} => self.desired = None,
        }
    }
}

/// The parameterised tasks that pass a filter.
pub(super) fn rows(facts: &Facts, filter: &Filter) -> Vec<ParameterisedRow> {
    let wanted = |row: &ParameterisedRow| filter.domain.as_ref().is_none_or(|wanted| *wanted == row.domain);
    let how = (filter.definitions, NAMED);
    let rows = facts.parameterised.iter().filter_map(|(guid, known)| row(facts, guid, known, how));
    rows.filter(wanted).collect()
}

/// A parameterised task; none of one that was removed.
pub(super) fn row(
    facts: &Facts,
    guid: &ParameterisedGuid,
    known: &Parameterised,
    (whole, queued): (bool, usize),
) -> Option<ParameterisedRow> {
    let desired = known.desired.as_ref()?;
    let first = format!("{guid}--dispatch-");
    let lives = |state: &Option<TaskState>| matches!(state, Some(TaskState::Pending | TaskState::Running));
    let running: Vec<TaskGuid> = facts
        .tasks
        .iter()
        .filter(|(task, known)| task.as_str().starts_with(&first) && lives(&known.state))
        .map(|(task, _)| task.clone())
        .collect();
    Some(ParameterisedRow {
        parameterised_guid: guid.clone(),
        domain: desired.domain.clone(),
        epoch: known.epoch,
        version: known.version,
        last_decision: known.last_decision,
        payload: desired.payload,
        required_parameters: desired.required_parameters.clone(),
        optional_parameters: desired.optional_parameters.clone(),
        concurrency: desired.concurrency,
        overflow: desired.overflow,
        waiting: known.queued.len() as u64,
        queued: known.queued.iter().take(queued).cloned().collect(),
        running: running.len() as u64,
        tasks: running.into_iter().take(NAMED).collect(),
        last: known.last.clone(),
        dispatched: known.dispatched,
        launched: known.launched,
        withdrawn: known.withdrawn,
        since: known.since,
        definition: whole.then(|| (*desired.definition).clone()),
    })
}
