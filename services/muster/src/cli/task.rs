//! `muster task`: commands for tasks.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use client::{Client, ListFilter, LogSource, TaskEnd};
use schemas::Code;
use schemas::definition::DesiredTask;
use schemas::message::Ack;
use schemas::names::TaskGuid;
use schemas::placement::{INSUFFICIENT_RESOURCES, NO_COMPATIBLE_CELLS, UNREACHABLE_CELLS};
use schemas::spec::Item;
use schemas::task::Outcome;
use serde::Serialize;

use super::args::{Global, TaskVerb};
use super::connect::connect;
use super::failure::{Exit, Failure};
use super::output::{self, Output, note};
use super::planned::{Target, require_unchanged};
use super::progress::Bar;
use super::several::Batch;
use super::{ended, file, find, instance, plan, rows, words};

/// Output of a command that changes a task.
#[derive(Serialize)]
struct ChangeResult<'a> {
    task_guid: &'a TaskGuid,
    did: &'a str,
    position: schemas::Position,
    version: u64,
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
        TaskVerb::Run { file, wait, planned } => {
            let items = file::read_items(&file, global.domain.as_ref())?;
            let tasks = tasks_of_file(&file, items, "run")?;
            let client = connect(global).await?;
            let guids: Vec<TaskGuid> = tasks.iter().map(|task| task.task_guid.clone()).collect();
            let things = guids.iter().map(Target::Task);
            let client = require_unchanged(&client, planned.if_position, things, global).await;
            let client = client.map_err(|failure| failure.while_doing(format!("run {}", file.display())))?;
            desire(&client, tasks, wait, global).await
        }
        TaskVerb::Plan { file } => {
            let items = file::read_items(&file, global.domain.as_ref())?;
            plan::run_tasks(&connect(global).await?, &file, items, output).await
        }
        TaskVerb::List { ended, cell, .. } => {
            let only = ListFilter { cell_id: cell, ..find::only(global.domain.as_ref()) };
            let client = connect(global).await?;
            if ended {
                return output.rows(&client.ended_tasks(&only).await?.rows, ended::task_table);
            }
            output.rows(&client.tasks(&only).await?.rows, rows::tasks)
        }
        TaskVerb::Show { guid, .. } => {
            let row = find::task(&connect(global).await?, &guid).await?.row;
            find::whose(global, format!("task {guid}"), row.domain.clone())?;
            output.one(&row, rows::task)
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
            print_change(&guid, "resolved and deleted", done, output)
        }
        TaskVerb::Logs { guid, follow } => {
            let client = connect(global).await?;
            let domain = find::task(&client, &guid).await?.row.domain;
            find::whose(global, format!("task {guid}"), domain)?;
            instance::show(
                client.logs(LogSource::Task(guid.to_string()), follow),
                guid.as_str(),
                follow,
                output,
            )
            .await
        }
    }
}

async fn client_in_domain(global: &Global, guid: &TaskGuid, verb: &str) -> Result<Client, Failure> {
    let client = connect(global).await?;
    let known = find::task(&client, guid)
        .await
        .map_err(|failure| failure.while_doing(format!("{verb} task {guid}")))?;
    Ok(client.in_domain(find::whose(global, format!("task {guid}"), known.row.domain)?))
}

fn print_change(guid: &TaskGuid, did: &str, done: Ack, output: Output) -> Result<(), Failure> {
    let changed = ChangeResult { task_guid: guid, did, position: done.position, version: done.version };
    output.next(&changed, |_, _| format!("task {guid} {did}"))
}

/// Returns the tasks of a file. Fails if there is none. `done` is the participle for the note on other items.
pub(super) fn tasks_of_file(path: &Path, items: Vec<Item>, done: &str) -> Result<Vec<DesiredTask>, Failure> {
    let (mut tasks, mut rest) = (vec![], BTreeSet::new());
    for item in items {
        match item {
            Item::Task(task) => tasks.push(*task),
            other @ (Item::Lrp(_) | Item::Periodic(_) | Item::Parameterised(_) | Item::Domain { .. }) => {
                rest.insert(file::command_for(&other));
            }
        }
    }
    if tasks.is_empty() {
        let why = format!("{} contains no task", path.display());
        return Err(Failure::new(Exit::Failed, "InvalidRequest", why)
            .advise("to desire processes: muster lrp desire"));
    }
    file::note_rest(&format!("tasks are {done}"), &rest);
    Ok(tasks)
}

async fn desire(
    client: &Client,
    tasks: Vec<DesiredTask>,
    wait: bool,
    global: &Global,
) -> Result<(), Failure> {
    let output = Output::new(global);
    let alone = tasks.len() == 1;
    let mut several = Batch::new(global, tasks.len());
    let mut desired = vec![];
    for task in tasks {
        let guid = task.task_guid.clone();
        let became = desire_one(client, task).await.map_err(|failure| run_failure(failure, "run", &guid));
        if let Some(done) = several.record(became)? {
            if !wait {
                print_change(&guid, "desired", done, output)?;
            }
            desired.push((guid, done));
        }
    }
    for (guid, done) in desired.iter().filter(|_| wait) {
        several.record(wait_for(client, guid, *done, global.timeout, alone, output).await)?;
    }
    several.end()
}

async fn desire_one(client: &Client, task: DesiredTask) -> Result<Ack, Failure> {
    let (guid, domain) = (task.task_guid.clone(), task.domain.clone());
    match client.desire_task(task).await {
        Ok(done) => Ok(done),
        Err(error) => {
            let known = client.task(&guid).await.ok().map(|one| one.row.domain);
            Err(find::exists_in_other_domain(error.into(), format!("task {guid}"), known, &domain))
        }
    }
}

/// Adds context to the failure to run or plan a task. If its guid is taken, the advice names the command that
/// frees it.
pub(super) fn run_failure(failure: Failure, doing: &str, guid: &TaskGuid) -> Failure {
    let taken = failure.code == Code::ResourceExists.to_string();
    let free = format!("to free the task guid, resolve the task: muster task resolve {guid}");
    failure.while_doing(format!("{doing} task {guid}")).advise_some(taken.then_some(free))
}

/// Waits for the end of a task, and prints its outcome.
async fn wait_for(
    client: &Client,
    guid: &TaskGuid,
    done: Ack,
    limit: Option<Duration>,
    alone: bool,
    output: Output,
) -> Result<(), Failure> {
    let waits = Box::pin(client.wait_for_task(guid, done.position, limit.unwrap_or(Duration::MAX)));
    let end = until(guid, waits, limit, output).await?;
    show(guid, &end, alone, output)
}

/// Waits for the end of a task. An interrupt ends the wait, not the task.
pub(super) async fn until<T>(
    guid: &TaskGuid,
    waits: impl Future<Output = Result<T, client::Error>>,
    limit: Option<Duration>,
    output: Output,
) -> Result<T, Failure> {
    let bar = Bar::new(output, format!("task {guid} runs"));
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

pub(super) fn show(guid: &TaskGuid, end: &TaskEnd, alone: bool, output: Output) -> Result<(), Failure> {
    let (failure_reason, result) = match &end.outcome {
        Outcome::Succeeded { result } => (None, Some(result.as_str())),
        Outcome::Failed { reason } => (Some(reason.as_str()), None),
    };
    let ended = EndedTask { task_guid: guid, failed: failure_reason.is_some(), failure_reason, result };
    if !output.is_human_readable() {
        output.next(&ended, |_, _| String::new())?;
    } else if let Some(result) = result {
        let its = if alone { "" } else { "; its result:" };
        note(&format!("task {guid} succeeded{its}"));
        let end = if result.is_empty() || result.ends_with('\n') { "" } else { "\n" };
        output::write_text(&format!("{}{end}", output.program_text(result)))?;
    }
    failure_reason.map_or(Ok(()), |reason| Err(failed(guid, reason)))
}

/// Returns the failure of the command for a task that failed.
fn failed(guid: &TaskGuid, reason: &str) -> Failure {
    let unplaced = [NO_COMPATIBLE_CELLS, INSUFFICIENT_RESOURCES, UNREACHABLE_CELLS];
    let why = format!("task {guid} failed: {}", words::one_line(reason));
    if unplaced.iter().any(|begin| reason.starts_with(begin)) {
        return Failure::new(Exit::NotPlaced, "NotPlaced", why).advise(
            "see muster cell list; to wait for room, set placement = { queue = { deadline_ms = .. } }",
        );
    }
    Failure::new(Exit::Failed, "TaskFailed", why).advise(format!("see muster task logs {guid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unplaced_task_has_exit_status_not_placed() {
        let guid = TaskGuid::new("greet").unwrap();
        let exit = |reason: &str| failed(&guid, reason).exit;
        assert_eq!(exit("insufficient resources: memory"), Exit::NotPlaced);
        assert_eq!(exit("found no compatible cells: stack"), Exit::NotPlaced);
        assert_eq!(exit("cancelled"), Exit::Failed);
        assert!(failed(&guid, "exit status 3").text(false).contains("muster task logs greet"));
    }
}
