//! Translation of containers and records to the terms of the reconciliation tables. Also translates the
//! verdicts of the tables to reports.

use machines::task::{EVACUATION_TIMED_OUT, NO_CONTAINER};
use schemas::action::Action;
use schemas::container::{Container, ContainerState, Epoch, Instance, NetInfo, Recipe, RunResult, WorkKey};
use schemas::isolation::Isolation;
use schemas::message::{LrpRecord, LrpState, Record, Report, TaskRecord, TaskState, Work, WorkDefinition};
use schemas::names::{Domain, InstanceGuid};
use schemas::placement::Explanation;
use schemas::task::Outcome;
use schemas::{ActualLrpKey, Position, Timestamp, actual, evacuating, process, task as task_machine};

use super::allocations::{Allocation, Rank};
use crate::reconcile::evacuation::{self, EvacuatingLrp};
use crate::reconcile::{ContainerAction, Holder, Row, Step, Verdict, conceivable, lrp, task};

/// Steps to perform, and the row of the reconciliation tables that prescribes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    /// `None` if no row of the reconciliation tables applies.
    pub(super) row: Option<Row>,
    pub(super) verdict: Verdict,
}

/// Judgement that deletes a container, regardless of the reconciliation tables.
const DELETE: Judgement = Judgement { row: None, verdict: conceivable(&[Step::DeleteContainer]) };

/// Selects the reconciliation table to apply (Diego Dev Notes, "Harmonizing ActualLRPs with Container State:
/// Rep" or "Harmonizing during evacuation").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The cell is in service.
    Ordinary,
    /// The cell evacuates: instances move away, and tasks run to their end.
    Evacuating,
    /// The evacuation has timed out: everything is deleted.
    Closing,
}

impl From<Row> for Judgement {
    fn from(row: Row) -> Self {
        Self { row: Some(row), verdict: row.verdict() }
    }
}

/// Applies the reconciliation table of the mode to a container and its record.
pub(super) fn judge(hold: &Allocation, record: &Record, me: &Instance, mode: Mode) -> Judgement {
    let container = hold.container();
    if hold.obsolete || epoch_of(record).is_some_and(|current| current > container.work.epoch()) {
        return DELETE;
    }
    let (judged, waits) = match &container.work {
        WorkKey::Lrp { .. } => (judge_lrp(container, record, me, mode), hold.rank() == Rank::Reserved),
        WorkKey::Task { .. } => (judge_task(container, record, me, mode), hold.rank() != Rank::Completed),
    };
    // A container with a stop request is deleted even if its table row would keep it.
    if hold.stop_requested && waits && judged.verdict.container_action() != ContainerAction::Delete {
        DELETE
    } else {
        judged
    }
}

fn judge_lrp(container: &Container, record: &Record, me: &Instance, mode: Mode) -> Judgement {
    let (instance, twin) = lrp_state(record, me);
    let word = lrp_container(&container.state);
    match mode {
        Mode::Ordinary => Row::Lrp(word, instance.into()).into(),
        Mode::Closing if word == lrp::Container::Running => {
            Judgement { row: None, verdict: evacuation::abandon(instance, twin) }
        }
        Mode::Evacuating | Mode::Closing => Row::Evacuation(word, instance, twin).into(),
    }
}

fn judge_task(container: &Container, record: &Record, me: &Instance, mode: Mode) -> Judgement {
    let (word, record) = (task_container(&container.state), task_state(record, me));
    match mode {
        Mode::Ordinary | Mode::Evacuating => Row::Task(word, record).into(),
        Mode::Closing if word == task::Container::Completed => Row::Task(word, record).into(),
        // A task that was not started may start on another cell. A started task ends here.
        Mode::Closing if word == task::Container::Reserved && record == task::Task::Pending => DELETE,
        Mode::Closing => {
            Judgement { row: None, verdict: task::reconcile(task::Container::Completed, record) }
        }
    }
}

/// Applies the reconciliation tables to a record that names a missing container. Returns the table row and
/// the steps. Several steps may apply, because Diego Dev Notes has a table for the instance and a separate
/// sentence for the evacuating instance.
pub(super) fn judge_absent(record: &Record, me: &Instance) -> (Option<Row>, Vec<Step>) {
    let (row, twin) = match record {
        Record::Absent => return (None, vec![]),
        Record::Lrp(_) => {
            let (instance, twin) = lrp_state(record, me);
            let twin = (twin == EvacuatingLrp::Alpha).then_some(Step::RemoveEvacuating);
            (Row::Lrp(lrp::Container::None, instance.into()), twin)
        }
        Record::Task(_) => (Row::Task(task::Container::None, task_state(record, me)), None),
    };
    (Some(row), row.verdict().report_steps().chain(twin).collect())
}

/// Returns `true` if a record requires this container to stop.
pub(super) fn requires_stop(record: &Record, me: &Instance) -> bool {
    match record {
        Record::Lrp(LrpRecord {
            state: Some(LrpState::Claimed { by, stopping } | LrpState::Running { by, stopping }),
            ..
        }) => *stopping && by == me,
        Record::Lrp(LrpRecord {
            state: Some(LrpState::Unclaimed { .. } | LrpState::Crashed) | None, ..
        })
        | Record::Absent
        | Record::Task(_) => false,
    }
}

/// Returns the containers that a record names.
pub(super) fn named_containers(record: &Record) -> impl Iterator<Item = &Instance> {
    let (one, two) = match record {
        Record::Absent => (None, None),
        Record::Lrp(record) => {
            let by = match &record.state {
                Some(LrpState::Claimed { by, .. } | LrpState::Running { by, .. }) => Some(by),
                Some(LrpState::Unclaimed { .. } | LrpState::Crashed) | None => None,
            };
            (by, record.evacuating.as_ref())
        }
        Record::Task(record) => match &record.state {
            TaskState::Running { by } => (Some(by), None),
            TaskState::Completed { by } | TaskState::Resolving { by } => (by.as_ref(), None),
            TaskState::Pending => (None, None),
        },
    };
    // The instance and the evacuating instance may be the same container, which is returned once.
    one.into_iter().chain(two.filter(|two| Some(*two) != one))
}

/// Returns the epoch of a record.
pub(super) const fn epoch_of(record: &Record) -> Option<Epoch> {
    match record {
        Record::Absent => None,
        Record::Lrp(record) => Some(record.epoch),
        Record::Task(record) => Some(record.epoch),
    }
}

/// Returns the time of the last change of a record, 0 if there is no record. The time is also 0 for tasks.
/// Reports on tasks do not need it, because a task never returns to an earlier state.
pub(super) const fn changed_at(record: &Record) -> Timestamp {
    match record {
        Record::Lrp(record) => record.changed_at,
        Record::Absent | Record::Task(_) => Timestamp(0),
    }
}

fn holder(by: &Instance, me: &Instance) -> Holder {
    if by == me { Holder::Alpha } else { Holder::Omega }
}

fn lrp_state(record: &Record, me: &Instance) -> (evacuation::Instance, EvacuatingLrp) {
    let record = match record {
        Record::Lrp(record) => record,
        Record::Absent | Record::Task(_) => return (evacuation::Instance::Absent, EvacuatingLrp::Absent),
    };
    let instance = match &record.state {
        None => evacuation::Instance::Absent,
        Some(LrpState::Unclaimed { placement_error: false }) => evacuation::Instance::Unclaimed,
        Some(LrpState::Unclaimed { placement_error: true }) => evacuation::Instance::Unplaced,
        Some(LrpState::Claimed { by, .. }) => evacuation::Instance::Claimed(holder(by, me)),
        Some(LrpState::Running { by, .. }) => evacuation::Instance::Running(holder(by, me)),
        Some(LrpState::Crashed) => evacuation::Instance::Crashed,
    };
    let twin = match record.evacuating.as_ref().map(|by| holder(by, me)) {
        None => EvacuatingLrp::Absent,
        Some(Holder::Alpha) => EvacuatingLrp::Alpha,
        Some(Holder::Omega) => EvacuatingLrp::Beta,
    };
    (instance, twin)
}

fn task_state(record: &Record, me: &Instance) -> task::Task {
    let record = match record {
        Record::Task(record) => record,
        Record::Absent | Record::Lrp(_) => return task::Task::Absent,
    };
    let ran = |by: &Option<Instance>| by.as_ref().map_or(Holder::Omega, |by| holder(by, me));
    match &record.state {
        TaskState::Pending => task::Task::Pending,
        TaskState::Running { by } => task::Task::Running(holder(by, me)),
        TaskState::Completed { by } => task::Task::Completed(ran(by)),
        TaskState::Resolving { by } => task::Task::Resolving(ran(by)),
    }
}

/// The rep keeps instances running, so an instance that ended without a stop request has crashed, even if it
/// exited successfully.
const fn lrp_container(state: &ContainerState) -> lrp::Container {
    match state {
        ContainerState::Reserved => lrp::Container::Reserved,
        ContainerState::Initializing => lrp::Container::Initializing,
        ContainerState::Created => lrp::Container::Created,
        ContainerState::Running(_) => lrp::Container::Running,
        ContainerState::Completed(RunResult::Succeeded { .. } | RunResult::Failed { .. }) => {
            lrp::Container::Crashed
        }
        ContainerState::Completed(RunResult::Stopped) => lrp::Container::Shutdown,
    }
}

const fn task_container(state: &ContainerState) -> task::Container {
    match state {
        ContainerState::Reserved => task::Container::Reserved,
        ContainerState::Initializing => task::Container::Initializing,
        ContainerState::Created => task::Container::Created,
        ContainerState::Running(_) => task::Container::Running,
        ContainerState::Completed(_) => task::Container::Completed,
    }
}

/// Subject of a report: a container, or a missing container that a record names.
pub(super) struct ReportSubject<'a> {
    pub(super) work: WorkKey,
    pub(super) domain: Domain,
    pub(super) by: Instance,
    /// Time of the last change of the record that the report is based on.
    pub(super) judged: Timestamp,
    /// `None` if the container does not exist.
    pub(super) state: Option<&'a ContainerState>,
    pub(super) placement: Option<Box<Explanation>>,
    /// Isolation layers of the container.
    pub(super) isolation: Isolation,
    /// Timeout of the evacuation. 0 if the cell is not evacuating.
    pub(super) evacuation_ends: Timestamp,
}

impl ReportSubject<'_> {
    /// Creates the subject for a record that names a missing container. The subject has the epoch of the
    /// record.
    pub(super) fn for_missing_container(record: &Record, by: Instance) -> Option<Self> {
        let (work, domain) = match record {
            Record::Absent => return None,
            Record::Lrp(LrpRecord { key, epoch, domain, .. }) => {
                (WorkKey::Lrp { key: key.clone(), epoch: *epoch }, domain.clone())
            }
            Record::Task(TaskRecord { task_guid, epoch, domain, .. }) => {
                (WorkKey::Task { task_guid: task_guid.clone(), epoch: *epoch }, domain.clone())
            }
        };
        let judged = changed_at(record);
        Some(Self {
            work,
            domain,
            by,
            judged,
            state: None,
            placement: None,
            isolation: Isolation::NONE,
            evacuation_ends: Timestamp(0),
        })
    }

    /// Combines the steps of a row into one report. `None` if the row has no steps for the BBS.
    pub(super) fn report(&self, steps: impl Iterator<Item = Step>) -> Option<Report> {
        let (domain, by, observed_at) = (self.domain.clone(), self.by.clone(), self.judged);
        match &self.work {
            WorkKey::Lrp { key, epoch } => {
                let steps: Vec<_> = steps.filter_map(|step| self.lrp_step(step)).collect();
                let ActualLrpKey { process_guid, place } = key.clone();
                let report = process::Report { domain, place, epoch: *epoch, by, observed_at, steps };
                (!report.steps.is_empty()).then_some(Report::Lrp { process_guid, report })
            }
            WorkKey::Task { task_guid, epoch } => {
                let step = steps.filter_map(|step| self.task_step(step)).next()?;
                let report = task_machine::Report { domain, epoch: *epoch, by, step };
                Some(Report::Task { task_guid: task_guid.clone(), report })
            }
        }
    }

    fn lrp_step(&self, step: Step) -> Option<process::ReportStep> {
        use actual::Command as A;
        use evacuating::Command as E;
        use process::ReportStep::{Actual, Evacuating};
        match step {
            Step::Claim => Some(Actual(A::Claim { placement: self.placement.clone() })),
            Step::Start => Some(Actual(A::Start { net: self.net(), isolation: self.isolation })),
            Step::Crash => {
                let (reason, exit_status) = self.crash();
                Some(Actual(A::Crash { reason, exit_status }))
            }
            Step::RemoveLrp => Some(Actual(A::Remove)),
            Step::Unclaim => Some(Actual(A::Unclaim)),
            Step::SetEvacuating => {
                Some(Evacuating(E::Set { net: self.net(), expires_at: self.evacuation_ends }))
            }
            Step::RemoveEvacuating => Some(Evacuating(E::Remove)),
            Step::StartTask | Step::CompleteTask | Step::FailTask | Step::Run | Step::DeleteContainer => None,
        }
    }

    fn task_step(&self, step: Step) -> Option<task_machine::ReportStep> {
        use task_machine::ReportStep as T;
        match step {
            Step::StartTask => {
                Some(T::Start { placement: self.placement.clone(), isolation: self.isolation })
            }
            Step::CompleteTask => Some(T::Complete { outcome: self.outcome() }),
            Step::FailTask => Some(T::Complete { outcome: failed(NO_CONTAINER) }),
            Step::Claim
            | Step::Start
            | Step::Crash
            | Step::RemoveLrp
            | Step::Unclaim
            | Step::SetEvacuating
            | Step::RemoveEvacuating
            | Step::Run
            | Step::DeleteContainer => None,
        }
    }

    /// Returns the addresses of a running container. Used only by rows of RUNNING containers.
    fn net(&self) -> NetInfo {
        match self.state {
            Some(ContainerState::Running(net)) => net.clone(),
            Some(
                ContainerState::Reserved
                | ContainerState::Initializing
                | ContainerState::Created
                | ContainerState::Completed(_),
            )
            | None => NetInfo::default(),
        }
    }

    /// Returns the crash reason and the exit status. Used only by rows of COMPLETED containers.
    fn crash(&self) -> (String, Option<i32>) {
        let exited = |status| ("exited".to_owned(), status);
        match self.state {
            Some(ContainerState::Completed(RunResult::Failed { reason, exit_status })) => {
                (reason.clone(), *exit_status)
            }
            Some(ContainerState::Completed(RunResult::Succeeded { .. })) => exited(Some(0)),
            Some(
                ContainerState::Completed(RunResult::Stopped)
                | ContainerState::Reserved
                | ContainerState::Initializing
                | ContainerState::Created
                | ContainerState::Running(_),
            )
            | None => exited(None),
        }
    }

    /// Returns the outcome of a task, for rows of COMPLETED containers. The outcome is also used when an
    /// evacuation times out, which fails the tasks that are still running.
    fn outcome(&self) -> Outcome {
        match self.state {
            Some(ContainerState::Completed(RunResult::Succeeded { result })) => {
                Outcome::Succeeded { result: result.clone() }
            }
            Some(ContainerState::Completed(RunResult::Failed { reason, .. })) => failed(reason),
            Some(ContainerState::Completed(RunResult::Stopped)) => failed("stopped"),
            Some(
                ContainerState::Reserved
                | ContainerState::Initializing
                | ContainerState::Created
                | ContainerState::Running(_),
            ) => failed(EVACUATION_TIMED_OUT),
            None => failed(NO_CONTAINER),
        }
    }
}

fn failed(reason: &str) -> Outcome {
    Outcome::Failed { reason: reason.to_owned() }
}

/// Returns the record that the auctioneer assumed for the work: a record that waits for placement.
pub(super) fn judged_record(work: &Work) -> Record {
    match &work.key {
        WorkKey::Lrp { key, epoch } => Record::Lrp(LrpRecord {
            key: key.clone(),
            epoch: *epoch,
            domain: work.domain.clone(),
            state: Some(LrpState::Unclaimed { placement_error: false }),
            evacuating: None,
            since: work.attempt,
            changed_at: work.attempt,
        }),
        WorkKey::Task { task_guid, epoch } => Record::Task(TaskRecord {
            task_guid: task_guid.clone(),
            epoch: *epoch,
            domain: work.domain.clone(),
            state: TaskState::Pending,
        }),
    }
}

/// Returns the recipe with which the executor runs the work.
pub(super) fn recipe(work: Work, instance_guid: InstanceGuid, admitted_at: Position) -> Recipe {
    let resources = work.definition.resources();
    match work.definition {
        WorkDefinition::Lrp(definition) => Recipe {
            instance_guid,
            work: work.key,
            domain: work.domain,
            environment_variables: definition.environment_variables.clone(),
            setup: definition.setup.as_deref().cloned(),
            action: Action::clone(&definition.action),
            monitor: definition.monitor.as_deref().cloned(),
            start_timeout_ms: definition.start_timeout_ms,
            grace_period_ms: definition.grace_period_ms,
            cpu_weight: definition.cpu_weight,
            ports: definition.ports.to_vec(),
            result_file: String::new(),
            resources,
            sandbox: definition.sandbox.clone(),
            admitted_at,
        },
        WorkDefinition::Task(definition) => Recipe {
            instance_guid,
            work: work.key,
            domain: work.domain,
            environment_variables: definition.environment_variables.clone(),
            setup: None,
            action: definition.action.clone(),
            monitor: None,
            start_timeout_ms: 0,
            grace_period_ms: definition.grace_period_ms,
            cpu_weight: definition.cpu_weight,
            ports: vec![],
            result_file: definition.result_file.clone(),
            resources,
            sandbox: definition.sandbox.clone(),
            admitted_at,
        },
    }
}
