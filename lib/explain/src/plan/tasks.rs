//! Tasks of a plan: predicts the placement of new tasks.

use auctioneer::plan::{ClusterCopy, TaskOutcome};
use client::Client;
use schemas::definition::DesiredTask;
use schemas::entry::Aggregate;
use schemas::message::Ack;
use schemas::names::TaskGuid;
use schemas::query::{TaskRow, TaskState};
use schemas::spec::Item;
use schemas::{Code, Position, Refusal};
use serde::Serialize;

use crate::Error;
use crate::decisions::{PositionedDecision, decisions_of};

/// Predicted outcome of a task.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedTask {
    pub task_guid: TaskGuid,
    pub outcome: TaskOutcome,
}

/// Returns `true` if applying the task would run it. Without `rerun`, this requires that the task does not
/// exist and has not run before. With `rerun`, a task that has ended can run again.
pub(super) async fn runs(client: &Client, task: &DesiredTask, rerun: bool) -> Result<bool, Error> {
    if let Some(row) = existing_task(client, task).await? {
        return Ok(rerun && may_run_again(&row));
    }
    Ok(rerun || last_decision(client, &task.task_guid).await?.is_none())
}

/// Places new tasks in the copy of the cluster.
pub(super) fn place(copy: &mut ClusterCopy, tasks: Vec<DesiredTask>) -> Result<Vec<PlannedTask>, Error> {
    if tasks.is_empty() {
        return Ok(vec![]);
    }
    for task in tasks {
        let guid = task.task_guid.clone();
        copy.desire_task(task)
            .map_err(|refusal| Error::from(refusal).while_doing(format!("plan task {guid}")))?;
    }
    let outcomes = copy.place_tasks()?;
    Ok(outcomes.into_iter().map(|(task_guid, outcome)| PlannedTask { task_guid, outcome }).collect())
}

/// Returns `true` if the guid of a task can be used again: the task has ended, and no callback waits for the
/// outcome.
#[must_use]
pub fn may_run_again(row: &TaskRow) -> bool {
    let has_callback =
        row.definition.as_ref().is_some_and(|definition| definition.completion_callback_url.is_some());
    row.state == TaskState::Completed && !has_callback
}

/// Returns the row of an existing task with this definition. `None` if there is no such task.
///
/// # Errors
/// A query fails, or the existing task has another definition or another domain.
pub async fn existing_task(client: &Client, task: &DesiredTask) -> Result<Option<TaskRow>, Error> {
    let (guid, domain) = (&task.task_guid, &task.domain);
    let row = match client.task(guid).await {
        Ok(one) => one.row,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if row.domain != *domain {
        let why = format!("task {guid} exists in domain {}, not in {domain}", row.domain);
        return Err(Refusal::new(Code::ResourceExists, why).into());
    }
    let sealed = super::seal(client, Item::Task(Box::new(task.clone()))).await?;
    let is_same = |sealed: &Item| match sealed {
        Item::Task(task) => row.definition.as_ref() == Some(&*task.definition),
        Item::Lrp(_) | Item::Periodic(_) | Item::Parameterised(_) | Item::Domain { .. } => false,
    };
    if is_same(&sealed) {
        return Ok(Some(row));
    }
    Err(Error::OtherTaskDefinition(guid.clone()))
}

/// Returns the last decision about a task in the log. `None` if the log has no such decision. Tasks are
/// deleted soon after they end, so the list of existing tasks does not show whether a task has run.
///
/// # Errors
/// A query fails.
pub async fn last_decision(client: &Client, guid: &TaskGuid) -> Result<Option<Ack>, Error> {
    let (entries, _) = client.history(Position(0), Some(&format!("task:{guid}"))).await?;
    let is_own = |one: &PositionedDecision| matches!(&one.decision.aggregate, Aggregate::Task { guid: own, .. } if own == guid);
    let last = decisions_of(entries).into_iter().rfind(is_own);
    Ok(last.map(|last| Ack { position: last.position, version: last.decision.version }))
}
