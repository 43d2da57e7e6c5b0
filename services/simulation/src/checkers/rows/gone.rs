//! What ended, as the log tells it, folded anew: which container of an instance ended by which event, and which task by its
//! deletion (docs/internals/model/history.md, "Ended containers and tasks").

use schemas::actual::{self, StopReason, UnclaimReason};
use schemas::container::Instance;
use schemas::ended::EndKind;
use schemas::entry::Event;
use schemas::evacuating::{self, RemovalReason};
use schemas::names::{Domain, InstanceGuid, ProcessGuid, TaskGuid};
use schemas::query::{EndedInstanceRow, EndedTaskRow, Filter, InstanceState, TaskState};
use schemas::subject::Position;
use schemas::task::Outcome;
use schemas::{Decision, Place, Timestamp};

use super::facts::{Facts, Process, Task};
use crate::nodes::HISTORY;

/// So many are kept of each index of a process that doesn't say it.
const KEPT: usize = 20;
/// So many tasks of a domain are kept and shown for one container of an index.
const TASKS: usize = 20;
/// So much is kept of a result.
const RESULT: usize = 1024;

/// A container that the records of a place name.
#[derive(Clone)]
struct Container {
    by: Instance,
    ran: Option<Timestamp>,
    stop: Option<StopReason>,
}

/// What a decision does to the containers of a process.
#[derive(Clone, Default)]
pub(super) struct Going {
    gone: Vec<EndedInstanceRow>,
}

impl Going {
    /// Takes in an event before it is carried out.
    pub(super) fn event(&mut self, guid: &ProcessGuid, process: &Process, event: &Event, at: Timestamp) {
        match event {
            Event::Actual(event) => {
                for place in event.places().iter() {
                    let own = own(process, &place);
                    if let Some((container, how)) = by_event(own, event) {
                        let twin = process.twins.get(&place).is_some_and(|twin| twin.by.by == container.by);
                        if !twin || how == EndKind::Crashed {
                            self.ends((guid, process, &place), container, how, event, at);
                        }
                    }
                }
            }
            Event::Evacuating(
                event @ (evacuating::Event::Set { place, .. } | evacuating::Event::Removed { place, .. }),
            ) => {
                let Some(twin) = process.twins.get(place) else { return };
                let stays = own(process, place).is_some_and(|own| own.by == twin.by.by);
                let how = match event {
                    evacuating::Event::Set { by, .. } if *by == twin.by.by => return,
                    evacuating::Event::Set { .. } => EndKind::Displaced,
                    evacuating::Event::Removed { cause: RemovalReason::CellLost, .. } => EndKind::CellLost,
                    evacuating::Event::Removed { cause: RemovalReason::Expired, .. } => {
                        EndKind::EvacuationExpired
                    }
                    evacuating::Event::Removed {
                        cause: RemovalReason::Replaced | RemovalReason::Removed,
                        ..
                    } => EndKind::Evacuated,
                };
                if !stays {
                    let container = Container { by: twin.by.by.clone(), ran: Some(twin.ran), stop: None };
                    self.gone.push(row((guid, process, place), container, how, at));
                }
            }
            Event::Desired(_)
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

    fn ends(
        &mut self,
        of: (&ProcessGuid, &Process, &Place),
        container: Container,
        how: EndKind,
        event: &actual::Event,
        at: Timestamp,
    ) {
        let said = if let actual::Event::Removed { cause, .. } = event { Some(*cause) } else { None };
        let said = said.filter(|cause| *cause != StopReason::Stopped);
        let stop = match how {
            EndKind::Stopped => container.stop.or(said),
            EndKind::CrashedStopping => container.stop,
            EndKind::Crashed
            | EndKind::CellLost
            | EndKind::Evacuated
            | EndKind::EvacuationExpired
            | EndKind::Displaced => None,
        };
        let mut row = row(of, Container { stop, ..container }, how, at);
        if let actual::Event::Crashed { reason, exit_status, crash_count, .. } = event {
            row.reason = Some(reason.clone()).filter(|reason| !reason.is_empty());
            (row.exit_status, row.crash_count) = (*exit_status, *crash_count);
        }
        self.gone.push(row);
    }

    /// What ended with the decision: each container once, and none that the process names after it.
    pub(super) fn done(self, process: &Process) -> Vec<EndedInstanceRow> {
        let named: Vec<InstanceGuid> = process
            .places()
            .into_iter()
            .flat_map(|place| process.containers(place))
            .map(|held| held.by.instance_guid)
            .collect();
        let mut done: Vec<EndedInstanceRow> = vec![];
        for row in self.gone {
            done.retain(|known| known.instance_guid != row.instance_guid);
            if !named.contains(&row.instance_guid) {
                done.push(row);
            }
        }
        done
    }
}

/// The container of an instance.
fn own(process: &Process, place: &Place) -> Option<Container> {
    let lrp = process.lrps.get(place)?;
    let ran = (lrp.state == InstanceState::Running).then_some(lrp.since);
    Some(Container { by: lrp.by.as_ref()?.by.clone(), ran, stop: lrp.stop })
}

/// The container that an event takes from an instance, and how that ends it.
fn by_event(own: Option<Container>, event: &actual::Event) -> Option<(Container, EndKind)> {
    let how = match event {
        actual::Event::Crashed { by, .. } => {
            let unknown = Container { by: by.clone(), ran: None, stop: None };
            return Some((own.filter(|own| own.by == *by).unwrap_or(unknown), EndKind::Crashed));
        }
        actual::Event::Claimed { by, .. } | actual::Event::Started { by, .. } => {
            return own.filter(|own| own.by != *by).map(|own| (own, EndKind::Displaced));
        }
        actual::Event::Removed { cause, .. } => match cause {
            StopReason::CellLost => EndKind::CellLost,
            StopReason::Evacuated => EndKind::Evacuated,
            StopReason::Crashed => EndKind::CrashedStopping,
            StopReason::Removed
            | StopReason::Scale
            | StopReason::CellUnfit
            | StopReason::Retired
            | StopReason::Superseded
            | StopReason::Undesired
            | StopReason::Stopped
            | StopReason::Replaced
            | StopReason::RolloutFailed
            | StopReason::Preempted => EndKind::Stopped,
        },
        actual::Event::Unclaimed { cause: UnclaimReason::CellLost, .. } => EndKind::CellLost,
        actual::Event::Unclaimed { cause: UnclaimReason::Evacuation, .. } => EndKind::Evacuated,
        actual::Event::Unclaimed { cause: UnclaimReason::Crash | UnclaimReason::Restart, .. }
        | actual::Event::Created { .. } => EndKind::Displaced,
        actual::Event::ExecStarted { .. }
        | actual::Event::PlacementFailed { .. }
        | actual::Event::StopRequested { .. } => return None,
    };
    own.map(|own| (own, how))
}

fn row(
    (guid, process, place): (&ProcessGuid, &Process, &Place),
    container: Container,
    how: EndKind,
    at: Timestamp,
) -> EndedInstanceRow {
    EndedInstanceRow {
        process_guid: guid.clone(),
        index: place.index,
        domain: process.domain.clone(),
        epoch: process.epoch,
        definition_id: place.definition_id.clone(),
        instance_guid: container.by.instance_guid,
        cell_id: container.by.cell_id,
        started_at: container.ran,
        ended_at: at,
        duration_ms: container.ran.map(|ran| millis(ran, at)),
        end_kind: how,
        stop_reason: container.stop,
        reason: None,
        exit_status: None,
        crash_count: 0,
        position: Position(0),
        nth: 0,
    }
}

fn millis(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.since(from).as_millis()).unwrap_or(u64::MAX)
}

impl Facts {
    /// Takes in what ended of a process with a decision.
    pub(super) fn ended(&mut self, guid: &ProcessGuid, decision: &Decision, gone: Vec<EndedInstanceRow>) {
        let Some(process) = self.processes.get_mut(guid) else { return };
        if let Some(desired) = &process.desired {
            process.history = desired.policies.history_limit;
        }
        let kept = process.history.map_or(KEPT, |limit| limit as usize);
        let told = decision.events.iter().filter_map(|event| {
            if let Event::Actual(
                actual::Event::Claimed { place, by, .. } | actual::Event::Started { place, by, .. },
            )
            | Event::Evacuating(evacuating::Event::Set { place, by, .. }) = event
            {
                Some((place.index, by.instance_guid))
            } else {
                None
            }
        });
        let again: Vec<_> = told.chain(gone.iter().map(|row| (row.index, row.instance_guid))).collect();
        let of = |row: &EndedInstanceRow| row.process_guid == *guid;
        self.ended.retain(|row| !(of(row) && again.contains(&(row.index, row.instance_guid))));
        for row in gone {
            let last = self.ended.iter().filter(|one| one.position == self.position).map(|one| one.nth);
            let nth = last.max().map_or(0, |last| last + 1);
            if kept > 0 {
                self.ended.push(EndedInstanceRow { position: self.position, nth, ..row });
                keep(&mut self.ended, kept, |row| of(row).then_some(row.index));
            }
        }
        keep(&mut self.ended, kept, |row| of(row).then_some(row.index));
    }

    /// Takes in that a task is deleted.
    pub(super) fn task_ended(&mut self, guid: &TaskGuid, task: &Task, at: Timestamp) {
        let Some((completed_at, outcome)) = &task.ended else { return };
        let (failed, failure_reason, result) = match outcome {
            Outcome::Succeeded { result } => (false, None, Some(schemas::limits::truncate(result, RESULT))),
            Outcome::Failed { reason } => (true, Some(reason.clone()), None),
        };
        let last = self.ended_tasks.iter().filter(|one| one.position == self.position).map(|one| one.nth);
        let row = EndedTaskRow {
            task_guid: guid.clone(),
            domain: task.domain.clone(),
            epoch: task.epoch,
            instance_guid: task.by.as_ref().map(|by| by.instance_guid),
            cell_id: task.by.as_ref().map(|by| by.cell_id.clone()),
            failed,
            failure_reason,
            result,
            callback: task.callback.clone(),
            started_at: task.ran,
            first_completed_at: *completed_at,
            duration_ms: task.ran.map(|ran| millis(ran, *completed_at)),
            deleted_at: at,
            resolved: task.state == Some(TaskState::Resolving),
            position: self.position,
            nth: last.max().map_or(0, |last| last + 1),
        };
        self.ended_tasks.push(row);
        let domain = &task.domain;
        keep(&mut self.ended_tasks, KEPT * TASKS, |row| (row.domain == *domain).then_some(0));
    }
}

/// Keeps the newest of each group.
fn keep<T>(all: &mut Vec<T>, most: usize, group: impl Fn(&T) -> Option<u32>) {
    let groups: Vec<Option<u32>> = all.iter().map(group).collect();
    let behind = |at: usize| groups[at + 1..].iter().filter(|other| **other == groups[at]).count();
    let mut stays: Vec<bool> =
        (0..groups.len()).map(|at| groups[at].is_none() || behind(at) < most).collect();
    stays.reverse();
    all.retain(|_| stays.pop().unwrap_or(true));
}

fn passes<T: PartialEq>(wanted: Option<&T>, is: &T) -> bool {
    wanted.is_none_or(|wanted| wanted == is)
}

/// The containers that ended and pass a filter, by process and index, the newest of each index.
pub(super) fn instances(facts: &Facts, filter: &Filter) -> Vec<EndedInstanceRow> {
    let mut rows = vec![];
    for (guid, process) in &facts.processes {
        let shown = process.history.unwrap_or(HISTORY) as usize;
        let mut of_process: Vec<EndedInstanceRow> =
            facts.ended.iter().filter(|row| row.process_guid == *guid).cloned().collect();
        keep(&mut of_process, shown, |row| Some(row.index));
        of_process.sort_by_key(|row| (row.index, row.position, row.nth));
        rows.extend(of_process);
    }
    rows.retain(|row| {
        passes(filter.domain.as_ref(), &row.domain)
            && passes(filter.process_guid.as_ref(), &row.process_guid)
            && passes(filter.cell_id.as_ref(), &row.cell_id)
            && passes(filter.index.as_ref(), &row.index)
    });
    rows
}

/// The tasks that ended and pass a filter, by domain, the newest of each.
pub(super) fn tasks(facts: &Facts, filter: &Filter) -> Vec<EndedTaskRow> {
    let mut domains: Vec<&Domain> = facts.ended_tasks.iter().map(|row| &row.domain).collect();
    domains.sort();
    domains.dedup();
    let mut rows = vec![];
    for domain in domains {
        let mut of_domain: Vec<EndedTaskRow> =
            facts.ended_tasks.iter().filter(|row| row.domain == *domain).cloned().collect();
        keep(&mut of_domain, HISTORY as usize * TASKS, |_| Some(0));
        rows.extend(of_domain);
    }
    let on = |row: &EndedTaskRow| filter.cell_id.is_none() || row.cell_id == filter.cell_id;
    rows.retain(|row| passes(filter.domain.as_ref(), &row.domain) && on(row));
    rows
}
