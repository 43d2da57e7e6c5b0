//! `muster task`: commands for tasks.

use std::time::Duration;

use clap::Subcommand;
use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::moment::AsOfOption;
use cli_base::options::Global;
use cli_base::output::{self, Output, note};
use client::{Client, ListFilter, TaskEnd};
use explain::plan::{existing_task, last_decision, may_run_again};
use runtime::exit::Exit;
use schemas::definition::DesiredTask;
use schemas::message::Ack;
use schemas::names::{CellId, TaskGuid};
use schemas::placement::{INSUFFICIENT_RESOURCES, NO_COMPATIBLE_CELLS, UNREACHABLE_CELLS};
use schemas::query::{TaskRow, TaskState};
use schemas::spec::Item;
use schemas::task::Outcome;
use schemas::{Code, Position};
use serde::Serialize;
use text::words;

use super::bar::Bar;
use super::session::UNCHANGED;
use super::{ended_rows, find, rows};

/// Output of a command that changes a task.
#[derive(Serialize)]
struct ChangeResult<'a> {
    task_guid: &'a TaskGuid,
    action: &'a str,
    position: Position,
    version: u64,
}

/// Subcommands of `muster task`.
#[derive(Clone, Debug, Subcommand)]
pub enum TaskVerb {
    /// List tasks
    #[command(alias = "ls")]
    List {
        /// List completed tasks that were deleted: the newest ones of each domain
        #[arg(long)]
        ended: bool,
        /// Only tasks on this cell
        #[arg(long, value_name = "ID")]
        cell: Option<CellId>,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Show a task, its definition and its result; -o toml writes the definition as a file for apply
    Show {
        /// Guid of the task
        guid: TaskGuid,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Cancel a task
    Cancel {
        /// Guid of the task
        guid: TaskGuid,
    },
    /// Resolve a completed task: acknowledge its outcome and delete it
    Resolve {
        /// Guid of the task
        guid: TaskGuid,
    },
}

/// Output for a task that ended.
#[derive(Serialize)]
struct EndedTask<'a> {
    task_guid: &'a TaskGuid,
    failed: bool,
    failure_reason: Option<&'a str>,
    result: Option<&'a str>,
}

pub(crate) async fn run(verb: TaskVerb, global: &Global) -> Result<(), Failure> {
    let output = Output::new(global);
    match verb {
        TaskVerb::List { ended, cell, .. } => {
            let only = ListFilter { cell_id: cell, ..find::only(global.domain.as_ref()) };
            let client = connect(global).await?;
            if ended {
                return output.write_rows(&client.ended_tasks(&only).await?.rows, ended_rows::task_table);
            }
            output.write_rows(&client.tasks(&only).await?.rows, rows::tasks)
        }
        TaskVerb::Show { guid, .. } => {
            let row = find::task(&connect(global).await?, &guid).await?.row;
            find::check_domain(global, format!("task {guid}"), row.domain.clone())?;
            let item = |row: &TaskRow| row.to_desired().map(|task| Item::Task(Box::new(task)));
            output.write_details(&row, item, rows::task)
        }
        TaskVerb::Cancel { guid } => {
            let client = client_in_domain(global, &guid, "cancel").await?;
            let done = client.cancel_task(guid.clone()).await;
            print_change(
                &guid,
                "cancelled",
                done.map_err(|error| Failure::from(error).while_doing(format!("cancel task {guid}")))?,
                output,
            )
        }
        TaskVerb::Resolve { guid } => {
            let client = client_in_domain(global, &guid, "resolve").await?;
            let done = client.resolve_task(guid.clone()).await.map_err(|error| {
                let failure = Failure::from(error).while_doing(format!("resolve task {guid}"));
                failure.advise_if_exit(
                    Exit::Conflict,
                    "only a COMPLETED task can be resolved: see muster task show",
                )
            })?;
            print_change(&guid, "resolved", done, output)
        }
    }
}

async fn client_in_domain(global: &Global, guid: &TaskGuid, verb: &str) -> Result<Client, Failure> {
    let client = connect(global).await?;
    let known = find::task(&client, guid)
        .await
        .map_err(|failure| failure.while_doing(format!("{verb} task {guid}")))?;
    Ok(client.in_domain(find::check_domain(global, format!("task {guid}"), known.row.domain)?))
}

pub(super) fn print_change(guid: &TaskGuid, action: &str, done: Ack, output: Output) -> Result<(), Failure> {
    output.add_result(&change_result(guid, action, done), |_, _| format!("task {guid} {action}"))
}

fn change_result<'a>(guid: &'a TaskGuid, action: &'a str, done: Ack) -> ChangeResult<'a> {
    ChangeResult { task_guid: guid, action, position: done.position, version: done.version }
}

/// Creates a task and prints the result. Creates no task if the task exists or has run before. With `rerun`,
/// a task that has ended runs again.
pub(super) async fn apply(
    client: &Client,
    task: DesiredTask,
    rerun: bool,
    output: Output,
) -> Result<(), Failure> {
    let guid = task.task_guid.clone();
    let doing = |failure: Failure| failure.while_doing(format!("apply task {guid}"));
    let known = existing_task(client, &task).await.map_err(Failure::from).map_err(doing)?;
    if let Some(row) = known.as_ref().filter(|row| !rerun || !may_run_again(row)) {
        let done = Ack { position: row.last_decision, version: row.version };
        return print_change(&guid, UNCHANGED, done, output);
    }
    if !rerun && let Some(done) = last_decision(client, &guid).await.map_err(Failure::from).map_err(doing)? {
        let changed = change_result(&guid, UNCHANGED, done);
        return output.add_result(&changed, |_, _| {
            format!("task {guid} unchanged: it has run before; to run it again: --rerun")
        });
    }
    if known.is_some() {
        resolve_ended(client, &task).await.map_err(doing)?;
    }
    let done = desire(client, task).await.map_err(doing)?;
    print_change(&guid, "desired", done, output)
}

/// Creates a task. If a task with the same guid has ended, the ended task is resolved first. A task whose
/// callback must still be sent is not resolved.
pub(super) async fn desire_again(client: &Client, task: DesiredTask) -> Result<Ack, Failure> {
    let guid = &task.task_guid;
    let known = client.task(guid).await.ok().map(|one| one.row);
    if known.is_some_and(|row| row.domain == task.domain && may_run_again(&row)) {
        resolve_ended(client, &task).await?;
    }
    desire(client, task).await
}

/// Resolves the ended task with the guid of `task`, so that the guid can be used again.
async fn resolve_ended(client: &Client, task: &DesiredTask) -> Result<Ack, Failure> {
    let client = client.in_domain(task.domain.clone());
    client.resolve_task(task.task_guid.clone()).await.map_err(Failure::from)
}

/// Deletes a task, so that its guid can be used again, and prints the result. A task that has not ended is
/// cancelled first. With `detach`, the command only cancels the task; the cluster deletes the task some time
/// after its end.
pub(super) async fn delete(
    client: &Client,
    row: &TaskRow,
    detach: bool,
    global: &Global,
) -> Result<(), Failure> {
    let (guid, output) = (&row.task_guid, Output::new(global));
    let doing = |failure: Failure| failure.while_doing(format!("delete task {guid}"));
    let client = client.in_domain(row.domain.clone());
    let has_ended = match row.state {
        TaskState::Pending | TaskState::Running => false,
        TaskState::Completed | TaskState::Resolving => true,
    };
    let mut done = Ack { position: row.last_decision, version: row.version };
    if !has_ended {
        done = client.cancel_task(guid.clone()).await.map_err(|error| doing(error.into()))?;
        if detach {
            return print_change(guid, "cancelled", done, output);
        }
        end_of(&client, guid, done, global.timeout, Some(running_bar(guid, output))).await?;
    }
    match client.resolve_task(guid.clone()).await {
        Ok(resolved) => done = resolved,
        // The callback of the task succeeded, so the cluster has already deleted the task.
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(doing(error.into())),
    }
    print_change(guid, "deleted", done, output)
}

/// Creates a task.
pub(super) async fn desire(client: &Client, task: DesiredTask) -> Result<Ack, Failure> {
    let (guid, domain) = (task.task_guid.clone(), task.domain.clone());
    match client.desire_task(task).await {
        Ok(done) => Ok(done),
        Err(error) => {
            let known = client.task(&guid).await.ok().map(|one| one.row.domain);
            Err(find::exists_in_other_domain(error.into(), format!("task {guid}"), known, &domain))
        }
    }
}

/// Adds context to the failure to run a task. If the guid is in use, the advice names the command that frees
/// the guid.
pub(super) fn run_failure(failure: Failure, guid: &TaskGuid) -> Failure {
    let taken = failure.code == Code::ResourceExists.to_string();
    let free = format!("to free the task guid, resolve the task: muster task resolve {guid}");
    failure.while_doing(format!("run task {guid}")).advise_some(taken.then_some(free))
}

/// Waits for the end of a task, and prints its outcome.
pub(super) async fn wait_for(
    client: &Client,
    guid: &TaskGuid,
    done: Ack,
    limit: Option<Duration>,
    alone: bool,
    output: Output,
) -> Result<(), Failure> {
    let end = end_of(client, guid, done, limit, Some(running_bar(guid, output))).await?;
    print_outcome(guid, &end, alone, output)
}

/// Waits for the end of a task that the command `done` created or cancelled. Shows `bar` during the wait.
pub(super) async fn end_of(
    client: &Client,
    guid: &TaskGuid,
    done: Ack,
    limit: Option<Duration>,
    bar: Option<Bar>,
) -> Result<TaskEnd, Failure> {
    let waits = Box::pin(client.wait_for_task(guid, done.position, limit.unwrap_or(Duration::MAX)));
    wait_for_end(guid, waits, limit, bar).await
}

/// Returns the progress line that is shown while a task runs.
pub(super) fn running_bar(guid: &TaskGuid, output: Output) -> Bar {
    Bar::new(output, format!("task {guid} runs"))
}

/// Waits for the end of a task. Shows `bar` during the wait. An interrupt ends the wait, but not the task.
pub(super) async fn wait_for_end<T>(
    guid: &TaskGuid,
    waits: impl Future<Output = Result<T, client::Error>>,
    limit: Option<Duration>,
    bar: Option<Bar>,
) -> Result<T, Failure> {
    let ended = tokio::select! {
        ended = waits => ended,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.map_err(|error| Failure::new(Exit::Failed, "Signal", error.to_string()))?;
            drop(bar);
            note(&format!("interrupted: task {guid} continues; see muster task show {guid}"));
            return Err(Failure::silent(Exit::Interrupted));
        }
    };
    drop(bar);
    ended.map_err(|error| match error {
        client::Error::TimedOut { .. } if limit.is_some() => {
            let waited = words::duration_text(limit.unwrap_or_default());
            Failure::new(Exit::TimedOut, "WaitTimedOut", format!("task {guid} has not ended after {waited}"))
                .advise(format!("the task continues; see muster task show {guid}"))
        }
        other @ (client::Error::TimedOut { .. }
        | client::Error::Refused(_)
        | client::Error::Unreachable(_)
        | client::Error::Protocol { .. }
        | client::Error::Setup { .. }) => other.into(),
    })
}

pub(super) fn print_outcome(
    guid: &TaskGuid,
    end: &TaskEnd,
    alone: bool,
    output: Output,
) -> Result<(), Failure> {
    let (failure_reason, result) = match &end.outcome {
        Outcome::Succeeded { result } => (None, Some(result.as_str())),
        Outcome::Failed { reason } => (Some(reason.as_str()), None),
    };
    let ended = EndedTask { task_guid: guid, failed: failure_reason.is_some(), failure_reason, result };
    if !output.is_human_readable() {
        output.add_result(&ended, |_, _| String::new())?;
    } else if let Some(result) = result {
        let its = if alone { "" } else { "; its result:" };
        note(&format!("task {guid} succeeded{its}"));
        let end = if result.is_empty() || result.ends_with('\n') { "" } else { "\n" };
        output::write_text(&format!("{}{end}", output.program_text(result)))?;
    }
    failure_reason.map_or(Ok(()), |reason| Err(task_failure(guid, reason)))
}

/// Returns the failure of the command for a task that failed.
fn task_failure(guid: &TaskGuid, reason: &str) -> Failure {
    let unplaced = [NO_COMPATIBLE_CELLS, INSUFFICIENT_RESOURCES, UNREACHABLE_CELLS];
    let why = format!("task {guid} failed: {}", words::one_line(reason));
    if unplaced.iter().any(|begin| reason.starts_with(begin)) {
        return Failure::new(Exit::NotPlaced, "NotPlaced", why).advise(
            "see muster cell list; to wait for room, set placement = { queue = { deadline_ms = .. } }",
        );
    }
    Failure::new(Exit::Failed, "TaskFailed", why).advise(format!("see muster logs {guid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unplaced_task_has_exit_status_not_placed() {
        let guid = TaskGuid::new("greet").unwrap();
        let exit = |reason: &str| task_failure(&guid, reason).exit;
        assert_eq!(exit("insufficient resources: memory"), Exit::NotPlaced);
        assert_eq!(exit("found no compatible cells: stack"), Exit::NotPlaced);
        assert_eq!(exit("cancelled"), Exit::Failed);
        assert!(task_failure(&guid, "exit status 3").text(false).contains("muster logs greet"));
    }
}
