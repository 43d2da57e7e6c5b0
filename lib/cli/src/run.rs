//! `muster run`: runs the tasks of a file, or one program, and waits for their end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::file;
use cli_base::options::Global;
use cli_base::output::{self, Output};
use client::{Client, LogReader, LogSource, default_domain};
use runtime::exit::Exit;
use schemas::definition::DesiredTask;
use schemas::message::Ack;
use schemas::names::TaskGuid;
use schemas::spec::{self, Item, ObjectName};
use serde_json::{Value, json};
use text::words::number;
use tokio::time::sleep;

use super::arguments::{PlanArgs, parse_parameter};
use super::batch::Batch;
use super::precondition::require_unchanged;
use super::process_logs::Lines;
use super::task;

/// Interval between attempts to read the output of a task that has not started.
const START_POLL: Duration = Duration::from_millis(100);

/// Arguments of `muster run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// TOML or JSON file whose tasks are run, even if they have run before; - is standard input
    #[arg(required_unless_present = "command", conflicts_with = "command")]
    file: Option<PathBuf>,
    /// Guid of the task that runs PROGRAM [default: a new one]
    #[arg(long, value_name = "GUID", conflicts_with = "file")]
    name: Option<TaskGuid>,
    /// Memory that PROGRAM needs, in MiB
    #[arg(long, value_name = "MIB", value_parser = number(0..=u64::MAX), conflicts_with = "file")]
    memory_mb: Option<u64>,
    /// Disk space that PROGRAM needs, in MiB
    #[arg(long, value_name = "MIB", value_parser = number(0..=u64::MAX), conflicts_with = "file")]
    disk_mb: Option<u64>,
    /// Environment variable of PROGRAM; may be repeated
    #[arg(short = 'e', long = "env", value_name = "NAME=VALUE", value_parser = parse_parameter, conflicts_with = "file")]
    variables: Vec<(String, String)>,
    /// Return as soon as the tasks are in the log
    #[arg(long, short)]
    detach: bool,
    #[command(flatten)]
    planned: PlanArgs,
    /// Program and its arguments, run as a task on any cell; the log records them
    #[arg(last = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

pub(crate) async fn run(args: RunArgs, global: &Global) -> Result<(), Failure> {
    // Files are parsed before the client connects, so that an invalid file is reported without a cluster.
    let mut tasks = match &args.file {
        Some(path) => tasks_of_file(path, file::read_items(path, global.domain.as_ref())?)?,
        None => vec![task_of_command(&args, global)?],
    };
    let names: Vec<ObjectName> = tasks.iter().map(|task| ObjectName::Task(task.task_guid.clone())).collect();
    let client = connect(global).await?;
    let client = require_unchanged(&client, args.planned.if_position, &names, global).await?;
    if args.file.is_none() && !args.detach {
        return run_attached(&client, tasks.remove(0), global).await;
    }
    run_tasks(&client, tasks, args.detach, global).await
}

/// Returns the tasks of a file. Fails if there is none.
fn tasks_of_file(path: &Path, items: Vec<Item>) -> Result<Vec<DesiredTask>, Failure> {
    let (mut tasks, mut has_other) = (vec![], false);
    for item in items {
        match item {
            Item::Task(task) => tasks.push(*task),
            Item::Lrp(_) | Item::Periodic(_) | Item::Parameterised(_) | Item::Domain { .. } => {
                has_other = true;
            }
        }
    }
    let path = file::display_path(path);
    if tasks.is_empty() {
        let why = format!("{path} describes no task");
        return Err(Failure::new(Exit::Failed, "InvalidRequest", why)
            .advise(format!("to create or update what it describes: muster apply {path}")));
    }
    if has_other {
        output::note(&format!("only the tasks of {path} are run; for the rest: muster apply {path}"));
    }
    Ok(tasks)
}

/// Builds the task that runs the program of the command line.
fn task_of_command(args: &RunArgs, global: &Global) -> Result<DesiredTask, Failure> {
    let [path, program_args @ ..] = &args.command[..] else {
        return Err(Failure::usage("no program is set: expected a file, or -- PROGRAM [ARGUMENT]..."));
    };
    let name = match &args.name {
        Some(name) => name.to_string(),
        None => new_guid()?,
    };
    let env: Vec<Value> =
        args.variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let domain = global.domain.clone().unwrap_or_else(default_domain);
    let task = spec::task(json!({
        "task_guid": name,
        "domain": domain,
        "memory_mb": args.memory_mb.unwrap_or_default(),
        "disk_mb": args.disk_mb.unwrap_or_default(),
        "action": {"run": {"path": path, "args": program_args, "env": env}},
    }));
    task.map_err(|refusal| Failure::from(refusal).while_doing(format!("run {path}")))
}

/// Returns a new task guid, such as `run-3f9a2c1d`.
fn new_guid() -> Result<String, Failure> {
    let key = clock::key()
        .map_err(|error| Failure::new(Exit::Failed, "Randomness", format!("can't create a guid: {error}")))?;
    Ok(format!("run-{:08x}", u32::from_le_bytes([key[0], key[1], key[2], key[3]])))
}

async fn create(client: &Client, task: DesiredTask) -> Result<Ack, Failure> {
    let guid = task.task_guid.clone();
    task::desire_again(client, task).await.map_err(|failure| task::run_failure(failure, &guid))
}

/// Creates tasks. Unless `detach` is set, waits for their end and prints their results.
async fn run_tasks(
    client: &Client,
    tasks: Vec<DesiredTask>,
    detach: bool,
    global: &Global,
) -> Result<(), Failure> {
    let output = Output::new(global);
    let alone = tasks.len() == 1;
    let mut batch = Batch::new(global, tasks.len());
    let mut created = vec![];
    for task in tasks {
        let guid = task.task_guid.clone();
        if let Some(done) = batch.record(create(client, task).await)? {
            if detach {
                task::print_change(&guid, "desired", done, output)?;
            }
            created.push((guid, done));
        }
    }
    for (guid, done) in created.iter().filter(|_| !detach) {
        batch.record(task::wait_for(client, guid, *done, global.timeout, alone, output).await)?;
    }
    batch.finish()
}

/// Runs one task, prints its output while it runs, and then reports its outcome.
async fn run_attached(client: &Client, task: DesiredTask, global: &Global) -> Result<(), Failure> {
    let (guid, output) = (task.task_guid.clone(), Output::new(global));
    let done = create(client, task).await?;
    if !output.is_human_readable() {
        return task::wait_for(client, &guid, done, global.timeout, true, output).await;
    }
    let ended = task::end_of(client, &guid, done, global.timeout, None);
    tokio::pin!(ended);
    let mut log = client.logs(LogSource::Task(guid.to_string()), true);
    let mut lines = Lines::default();
    let end = loop {
        tokio::select! {
            ended = &mut ended => break ended?,
            printed = print_next(&mut log, &mut lines, output) => {
                if !printed? {
                    sleep(START_POLL).await;
                }
            }
        }
    };
    log.stop_following();
    while print_next(&mut log, &mut lines, output).await? {}
    print_lines(lines.take_partial(), output)?;
    task::print_outcome(&guid, &end, true, output)
}

/// Prints the next part of the output of a task. Returns `false` if the output has ended or the task has no
/// container.
async fn print_next(log: &mut LogReader, lines: &mut Lines, output: Output) -> Result<bool, Failure> {
    match log.next().await {
        Ok(Some(chunk)) => print_lines(lines.push(&chunk.text), output).map(|()| true),
        Ok(None) => Ok(false),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Prints lines of a log to the standard output or the standard error, as the program wrote them.
fn print_lines(lines: Vec<String>, output: Output) -> Result<(), Failure> {
    for line in &lines {
        match split_line(line) {
            (LogStream::Output, text) => output::write_text(&format!("{}\n", output.program_text(text)))?,
            (LogStream::Error, text) => output::note(text),
        }
    }
    Ok(())
}

/// Stream that a program wrote a line to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogStream {
    Output,
    Error,
}

/// Splits a line of a log, such as `2026-11-28T21:02:58.205Z OUT hello`, into its stream and its text.
fn split_line(line: &str) -> (LogStream, &str) {
    match line.split_once(' ').and_then(|(_, rest)| rest.split_once(' ')) {
        Some(("OUT", text)) => (LogStream::Output, text),
        Some(("ERR", text)) => (LogStream::Error, text),
        Some(_) | None => (LogStream::Output, line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_a_log_is_split_into_stream_and_text() {
        for (line, stream, text) in [
            ("2026-11-28T21:02:58.205Z OUT hello world", LogStream::Output, "hello world"),
            ("2026-11-28T21:02:58.205Z ERR ", LogStream::Error, ""),
            ("without a time", LogStream::Output, "without a time"),
        ] {
            assert_eq!(split_line(line), (stream, text), "{line}");
        }
    }

    #[test]
    fn command_line_becomes_a_task() {
        let args = RunArgs {
            file: None,
            name: None,
            memory_mb: Some(64),
            disk_mb: None,
            variables: vec![("A".into(), "b=c".into())],
            detach: false,
            planned: PlanArgs { if_position: None },
            command: vec!["echo".into(), "hello".into()],
        };
        let task = task_of_command(&args, &Global::default()).unwrap();
        assert_eq!(task.domain, default_domain());
        assert!(task.task_guid.as_str().starts_with("run-"), "{}", task.task_guid);
        let shown = spec::task_to_json(&task);
        assert_eq!(shown["action"]["run"]["args"], json!(["hello"]));
        assert_eq!(shown["memory_mb"], 64);
        let none = RunArgs { command: vec![], ..args };
        assert_eq!(task_of_command(&none, &Global::default()).unwrap_err().exit, Exit::Usage);
    }
}
