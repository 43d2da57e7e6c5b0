//! `muster instance`, and the logs of instances and tasks.

use client::{Client, LogReader, Only, Whose, instance_name};
use futures::Stream;
use futures::stream::{SelectAll, StreamExt};
use schemas::names::ProcessGuid;
use schemas::query::InstanceRow;
use serde::Serialize;

use super::args::{Global, Instance};
use super::connect::connect;
use super::failure::{Exit, Failure};
use super::output::{self, Output, note};
use super::{find, rows};

/// Why there may be no log.
const LOG_IS_KEPT: &str =
    "a cell keeps the log of a container that ended for a day, and of the last 256 of them";

/// A line of a log.
#[derive(Serialize)]
struct Line<'a> {
    of: &'a str,
    text: &'a str,
}

/// What a stop did.
#[derive(Serialize)]
struct Stopped {
    process_guid: ProcessGuid,
    index: u32,
    position: schemas::Position,
    version: u64,
}

pub(crate) async fn run(verb: Instance, global: &Global) -> Result<(), Failure> {
    let output = Output::new(global);
    let client = connect(global).await?;
    match verb {
        Instance::List { lrp, cell, state, all } => {
            let only = Only { domain: global.domain.clone(), process_guid: lrp, cell_id: cell };
            let listed =
                if all { client.instances(&only).await? } else { client.counting_instances(&only).await? };
            let mut rows = listed.rows;
            if let Some(state) = state {
                rows.retain(|row| row.state.as_str().eq_ignore_ascii_case(&state));
            }
            output.rows(&rows, rows::instances)
        }
        Instance::Show { id } => {
            let rows = find::instance(&client, &id).await?;
            rows.iter().try_for_each(|row| output.next(row, rows::instance))
        }
        Instance::Logs { id, follow, all: true, previous: _ } => all_logs(&client, &id, follow, output).await,
        Instance::Logs { id, follow, all: false, previous } => {
            let whose = whose_log(&client, &id, previous).await?;
            show(client.logs(whose, follow), &id, output).await
        }
        Instance::Stop { id } => stop(&client, global, &id, output).await,
    }
}

/// Whose log is asked for. `PROCESS/INDEX` stays, so that a follower goes on with the next container.
async fn whose_log(client: &Client, id: &str, previous: bool) -> Result<Whose, Failure> {
    let rows = find::instance(client, id).await?;
    let crashed = rows.iter().find_map(|row| Some((row, row.crashed_in.as_ref()?)));
    if previous {
        let (row, _) = crashed.ok_or_else(|| never_crashed(id))?;
        return Ok(Whose::Previous(instance_name(&row.process_guid, row.index)));
    }
    let holder = rows.iter().find_map(|row| row.instance_guid);
    if find::split(id)?.is_none() {
        return holder.map(|guid| Whose::Instance(guid.to_string())).ok_or_else(|| no_container(id));
    }
    if let (None, Some((row, by))) = (holder, crashed) {
        note(&format!(
            "instance {id} is {}: this is the log of the container that crashed last, {} on cell {}",
            row.state, by.instance_guid, by.cell_id
        ));
    }
    Ok(Whose::Instance(id.to_owned()))
}

fn never_crashed(id: &str) -> Failure {
    Failure::not_found(format!("a container of instance {id} that crashed"))
        .advise(format!("see muster history instance {id}"))
}

fn no_container(id: &str) -> Failure {
    Failure::not_found(format!("a container of instance {id}")).advise(format!("see muster why {id}"))
}

async fn stop(client: &Client, global: &Global, id: &str, output: Output) -> Result<(), Failure> {
    let rows = find::instance(client, id).await?;
    let Some(InstanceRow { process_guid, index, domain, .. }) = rows.into_iter().next() else {
        return Err(no_container(id));
    };
    let client = client.in_domain(find::whose(global, format!("process {process_guid}"), domain)?);
    let stopped = client.retire_lrp(process_guid.clone(), index).await;
    let done = stopped.map_err(|error| {
        Failure::from(error).doing(format!("stop instance {}", instance_name(&process_guid, index)))
    })?;
    let stopped = Stopped { process_guid, index, position: done.position, version: done.version };
    output.next(&stopped, |stopped, _| {
        format!(
            "instance {}/{} is being stopped; it starts again if it is desired",
            stopped.process_guid, stopped.index
        )
    })
}

/// Shows one log as it is, or for programs line by line.
pub(crate) async fn show(mut log: LogReader, of: &str, output: Output) -> Result<(), Failure> {
    let mut lines = Lines::default();
    loop {
        let piece = tokio::select! {
            piece = log.next() => piece.map_err(|error| {
                Failure::from(error).advise_on(Exit::NotFound, LOG_IS_KEPT)
            })?,
            interrupted = tokio::signal::ctrl_c() => {
                return interrupted.map_err(|error| Failure::new(Exit::Failed, "Signal", error.to_string()));
            }
        };
        match piece {
            Some(piece) if output.is_for_people() => output::text_as_it_is(&piece.text)?,
            Some(piece) => show_lines(of, lines.push(&piece.text), output)?,
            None => return show_lines(of, lines.rest(), output),
        }
    }
}

fn show_lines(of: &str, lines: Vec<String>, output: Output) -> Result<(), Failure> {
    lines.iter().try_for_each(|text| output.next(&Line { of, text }, |_, _| format!("{of} | {text}")))
}

/// Shows the logs of all instances of a process, each line with the name of its instance.
async fn all_logs(client: &Client, process: &str, follow: bool, output: Output) -> Result<(), Failure> {
    let guid = ProcessGuid::new(process).map_err(|bad| Failure::usage(bad.to_string()))?;
    find::lrp(client, &guid).await?;
    let instances = client.instances(&Only::process(guid.clone())).await?.rows;
    let mut names: Vec<String> = instances.iter().map(|row| instance_name(&guid, row.index)).collect();
    names.dedup();
    let mut logs = SelectAll::new();
    for name in names {
        logs.push(Box::pin(lines_of(client.logs(Whose::Instance(name.clone()), follow), name)));
    }
    loop {
        let next = tokio::select! {
            next = logs.next() => next,
            interrupted = tokio::signal::ctrl_c() => {
                return interrupted.map_err(|error| Failure::new(Exit::Failed, "Signal", error.to_string()));
            }
        };
        match next {
            Some(Ok((name, text))) => show_lines(&name, vec![text], output)?,
            Some(Err(failure)) => return Err(failure),
            None => return Ok(()),
        }
    }
}

/// The lines of one log. An instance that never had a container, or whose log is gone, has no lines.
fn lines_of(log: LogReader, name: String) -> impl Stream<Item = Result<(String, String), Failure>> {
    let pieces =
        futures::stream::unfold((log, Lines::default(), false), |(mut log, mut lines, done)| async move {
            if done {
                return None;
            }
            match log.next().await {
                Ok(Some(piece)) => {
                    let whole = lines.push(&piece.text);
                    Some((Ok(whole), (log, lines, false)))
                }
                Ok(None) => {
                    let rest = lines.rest();
                    Some((Ok(rest), (log, lines, true)))
                }
                Err(error) if error.is_not_found() => None,
                Err(error) => Some((Err(Failure::from(error)), (log, lines, true))),
            }
        });
    pieces.flat_map(move |pieces| {
        let named: Vec<Result<(String, String), Failure>> = match pieces {
            Ok(lines) => lines.into_iter().map(|line| Ok((name.clone(), line))).collect(),
            Err(failure) => vec![Err(failure)],
        };
        futures::stream::iter(named)
    })
}

/// Text that comes in pieces, line by line.
#[derive(Debug, Default)]
struct Lines {
    begun: String,
}

impl Lines {
    /// The lines that this piece ends.
    fn push(&mut self, piece: &str) -> Vec<String> {
        self.begun.push_str(piece);
        let Some(end) = self.begun.rfind('\n') else { return vec![] };
        let rest = self.begun.split_off(end + 1);
        let whole = std::mem::replace(&mut self.begun, rest);
        whole.lines().map(str::to_owned).collect()
    }

    /// The last line, if nothing ended it.
    fn rest(&mut self) -> Vec<String> {
        let rest = std::mem::take(&mut self.begun);
        if rest.is_empty() { vec![] } else { vec![rest] }
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn pieces_become_lines() {
        let mut lines = Lines::default();
        assert!(lines.push("he").is_empty());
        assert_eq!(lines.push("llo\nwor"), ["hello"]);
        assert_eq!(lines.push("ld\n\nx\ny"), ["world", "", "x"]);
        assert_eq!(lines.rest(), ["y"]);
        assert!(lines.rest().is_empty());
    }
}
