//! `muster logs`: the output of an instance, of all instances of a process, or of a task.

use clap::Args;
use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::{self, Output, note};
use client::{Client, ListFilter, LogReader, LogSource, instance_key};
use runtime::exit::Exit;
use schemas::names::{InstanceGuid, ProcessGuid, TaskGuid};
use schemas::query::LrpRow;

use super::ended_rows;
use super::find::{self, no_container};
use super::process_logs::{self, Line, Lines};

/// Advice for a missing log: the retention of the logs of removed containers.
const LOG_RETENTION: &str = "a cell keeps the logs of removed containers for a day, \
                             at most 256 logs and 256 MiB: use the full guid of the container";

/// Arguments of `muster logs`.
#[derive(Clone, Debug, Args)]
pub struct LogsArgs {
    /// PROCESS for all its instances, PROCESS/INDEX, PROCESS/INDEX@DEFINITION, a prefix or suffix of an instance
    /// guid, or TASK
    id: String,
    /// Wait for more lines
    #[arg(short, long)]
    follow: bool,
    /// Show the log of the container that crashed last, even if another is running
    #[arg(long, conflicts_with_all = ["follow", "task"])]
    previous: bool,
    /// Treat the id as that of a task, even if a process has the same name
    #[arg(long)]
    task: bool,
}

pub(crate) async fn run(args: LogsArgs, global: &Global) -> Result<(), Failure> {
    let LogsArgs { id, follow, previous, task } = args;
    let (client, output) = (connect(global).await?, Output::new(global));
    match if task { None } else { process(&client, &id).await? } {
        Some(_) if previous => {
            let why = format!("--previous needs an instance, such as {id}/0, and {id} is a process");
            return Err(Failure::usage(why));
        }
        Some(process) => return process_logs::show(&client, global, process, follow, output).await,
        None => {}
    }
    let source = if previous { None } else { task_log(&client, global, &id, task).await? };
    let source = match source {
        Some(source) => source,
        None if is_misspelt(&id)? => return Err(no_such_name(&client, &id).await?),
        None => instance_log(&client, global, &id, previous).await?,
    };
    show(client.logs(source, follow), &id, follow, output).await
}

/// Returns the process that an id names. `None` if no process has this id.
async fn process(client: &Client, id: &str) -> Result<Option<LrpRow>, Failure> {
    let Ok(guid) = ProcessGuid::new(id) else { return Ok(None) };
    match client.lrp(&guid).await {
        Ok(one) => Ok(Some(one.row)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the log of the task that an id names. `None` if the task does not exist and `must_exist` is not
/// set.
async fn task_log(
    client: &Client,
    global: &Global,
    id: &str,
    must_exist: bool,
) -> Result<Option<LogSource>, Failure> {
    let Ok(guid) = TaskGuid::new(id) else { return Ok(None) };
    let domain = match client.task(&guid).await {
        Ok(one) => one.row.domain,
        Err(error) if error.is_not_found() && !must_exist => return Ok(None),
        Err(_) => find::task(client, &guid).await?.row.domain,
    };
    find::check_domain(global, format!("task {guid}"), domain)?;
    Ok(Some(LogSource::Task(guid.to_string())))
}

/// Returns `true` if an id has the form of a name of a process or task, and cannot be a part of an instance
/// guid.
fn is_misspelt(id: &str) -> Result<bool, Failure> {
    let is_name = find::parse_selector(id)?.is_none() && ProcessGuid::new(id).is_ok();
    Ok(is_name && find::check_fragment("instance", id, find::INSTANCE_FORMS).is_err())
}

/// Returns the failure for a name without a process or task. The failure suggests similar names.
async fn no_such_name(client: &Client, id: &str) -> Result<Failure, Failure> {
    let all = ListFilter::default();
    let (lrps, tasks) = (client.lrps(&all).await?.rows, client.tasks(&all).await?.rows);
    let lrps = lrps.iter().map(|row| row.process_guid.as_str());
    let names = lrps.chain(tasks.iter().map(|row| row.task_guid.as_str()));
    Ok(find::missing(&format!("a process or task {id}"), id, names, "muster ps"))
}

/// Selects the log to read. `PROCESS/INDEX` and `PROCESS/INDEX@DEFINITION` are not resolved to a container,
/// so that a follower continues with the next container.
async fn instance_log(
    client: &Client,
    global: &Global,
    id: &str,
    previous: bool,
) -> Result<LogSource, Failure> {
    let rows = match find::instance(client, id).await {
        // The record of the container is gone, but its cell may still have the log.
        Err(error) if error.is_not_found() && id.parse::<InstanceGuid>().is_ok() => {
            return Ok(LogSource::Instance(id.to_owned()));
        }
        // A guid fragment may match a container that ended.
        Err(error) if error.is_not_found() && find::parse_selector(id)?.is_none() => {
            let row = ended_rows::find_instance(client, id).await?.ok_or(error)?;
            find::check_domain(global, format!("instance {id}"), row.domain)?;
            return Ok(LogSource::Instance(row.instance_guid.to_string()));
        }
        found => found?.rows,
    };
    if let Some(row) = rows.first() {
        find::check_domain(global, format!("instance {id}"), row.domain.clone())?;
    }
    let crashed = rows.iter().find_map(|row| Some((row, row.crashed_instance.as_ref()?)));
    if previous {
        let (row, _) = crashed.ok_or_else(|| never_crashed(id))?;
        return Ok(LogSource::Previous(instance_key(row).with_definition()));
    }
    let holder = rows.iter().find_map(|row| row.instance_guid);
    if find::parse_selector(id)?.is_none() {
        return holder.map(|guid| LogSource::Instance(guid.to_string())).ok_or_else(|| no_container(id));
    }
    if let (None, Some((row, by))) = (holder, crashed) {
        note(&format!(
            "instance {id} is {}; showing the log of its last crashed container, {} on cell {}",
            row.state, by.instance_guid, by.cell_id
        ));
    }
    Ok(LogSource::Instance(id.to_owned()))
}

fn never_crashed(id: &str) -> Failure {
    Failure::not_found(format!("a crashed container of instance {id}"))
        .advise(format!("see muster history instance {id}"))
}

/// Prints one log. Human-readable output is the unchanged text. Machine-readable output has one item for each
/// line of the log.
async fn show(mut log: LogReader, of: &str, follow: bool, output: Output) -> Result<(), Failure> {
    let mut lines = Lines::default();
    if !follow {
        output.begin_list();
    }
    loop {
        let piece = tokio::select! {
            piece = log.next() => piece.map_err(|error| {
                Failure::from(error).advise_if_exit(Exit::NotFound, LOG_RETENTION)
            })?,
            interrupted = tokio::signal::ctrl_c() => {
                return interrupted.map_err(|error| Failure::new(Exit::Failed, "Signal", error.to_string()));
            }
        };
        match piece {
            Some(piece) if output.is_human_readable() => {
                output::write_text(&output.program_text(&piece.text))?;
            }
            Some(piece) => show_lines(of, lines.push(&piece.text), follow, output)?,
            None => return show_lines(of, lines.take_partial(), follow, output),
        }
    }
}

fn show_lines(of: &str, lines: Vec<String>, follow: bool, output: Output) -> Result<(), Failure> {
    let text = |line: &Line<'_>, _| format!("{of} | {}", line.text);
    lines.iter().try_for_each(|text_of_line| {
        let line = Line { source: of, text: text_of_line };
        if follow { output.write_stream_item(&line, text) } else { output.add_result(&line, text) }
    })
}
