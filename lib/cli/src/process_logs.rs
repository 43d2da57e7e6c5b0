//! `muster logs PROCESS`: the logs of all instances of a process.
//!
//! Existing lines are printed in the order of their timestamps. With `--follow`, new lines are printed
//! afterwards, as they arrive. New instances are followed, too. If an instance moves to another container,
//! the command follows the new container.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::{Output, RenderOptions};
use client::{Client, ListFilter, LogReader, LogSource};
use explain::names::Names;
use futures::Stream;
use futures::stream::{SelectAll, StreamExt};
use runtime::exit::Exit;
use schemas::names::ProcessGuid;
use schemas::query::LrpRow;
use serde::Serialize;
use tokio::sync::Mutex;

use super::find;

/// Interval between checks for new instances.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of logs that are opened concurrently.
const MAX_CONCURRENT_OPENS: usize = 16;
/// ANSI colour codes of the instance names, used in turn.
const COLOURS: [u8; 6] = [36, 33, 32, 35, 34, 96];

/// JSON output for a line of a log.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    pub(super) source: &'a str,
    pub(super) text: &'a str,
}

/// Name of the instance, and a line that it logged.
type LineResult = Result<(String, String), Failure>;
type Log = Pin<Box<dyn Stream<Item = LineResult>>>;

/// Prints the logs until they end or the user interrupts.
pub(super) async fn show(
    client: &Client,
    global: &Global,
    process: LrpRow,
    follow: bool,
    output: Output,
) -> Result<(), Failure> {
    let guid = process.process_guid;
    find::check_domain(global, format!("process {guid}"), process.domain)?;
    let told = async {
        let mut shown = LogPrinter::new(output, follow);
        let names = instance_names(client, &guid).await?;
        if follow {
            follow_all(client, &guid, names, &mut shown).await
        } else {
            output.begin_list();
            print_sorted(client, names, true, &mut shown).await.map(drop)
        }
    };
    tokio::select! {
        told = told => told,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.map_err(|error| Failure::new(Exit::Failed, "Signal", error.to_string()))
        }
    }
}

/// Returns the display names of the instances of a process.
async fn instance_names(client: &Client, guid: &ProcessGuid) -> Result<Vec<String>, Failure> {
    let instances = client.instances(&ListFilter::process(guid.clone())).await?.rows;
    let called = Names::from_rows(&instances);
    let mut names: Vec<String> = instances.iter().map(|row| called.row_name(row)).collect();
    names.dedup();
    Ok(names)
}

/// Reader of an instance log, and the incomplete line that was read last.
type SharedReader = Arc<Mutex<(LogReader, Lines)>>;

fn open_log(client: &Client, name: &str) -> SharedReader {
    Arc::new(Mutex::new((client.logs(LogSource::Instance(name.to_owned()), false), Lines::default())))
}

/// Prints the existing lines, the oldest first. Returns the readers, so that a follower continues after the
/// last printed line.
async fn print_sorted(
    client: &Client,
    names: Vec<String>,
    ends: bool,
    shown: &mut LogPrinter,
) -> Result<Vec<(String, SharedReader)>, Failure> {
    names.iter().for_each(|name| shown.register(name));
    let all: Vec<_> = names.into_iter().map(|name| (name.clone(), open_log(client, &name))).collect();
    let begin = |(name, read): (String, SharedReader)| async move {
        let mut log: Log = Box::pin(log_lines(read, name, ends));
        (log.next().await, log)
    };
    let begun: Vec<_> =
        futures::stream::iter(all.clone()).map(begin).buffered(MAX_CONCURRENT_OPENS).collect().await;
    let (mut logs, mut first) = (vec![], BinaryHeap::new());
    for (at, (told, log)) in begun.into_iter().enumerate() {
        logs.push(log);
        if let Some(told) = told {
            first.push(Reverse(sort_entry(told?, at)));
        }
    }
    while let Some(Reverse((_, at, name, text))) = first.pop() {
        shown.line(&name, &text)?;
        if let Some(told) = logs[at].next().await {
            first.push(Reverse(sort_entry(told?, at)));
        }
    }
    Ok(all)
}

/// Returns the sort key of a line (its timestamp), the index of its log, the instance name and the line.
fn sort_entry((name, text): (String, String), at: usize) -> (String, usize, String, String) {
    (text.split(' ').next().unwrap_or_default().to_owned(), at, name, text)
}

/// Prints lines as they arrive, until the process is removed and the logs of all its instances have ended.
async fn follow_all(
    client: &Client,
    guid: &ProcessGuid,
    names: Vec<String>,
    shown: &mut LogPrinter,
) -> Result<(), Failure> {
    let mut logs = SelectAll::new();
    for (name, read) in print_sorted(client, names, false, shown).await? {
        read.lock().await.0.continue_following();
        logs.push(Box::pin(log_lines(read, name, true)) as Log);
    }
    let mut look = tokio::time::interval(POLL_INTERVAL);
    loop {
        tokio::select! {
            Some(told) = logs.next() => {
                let (name, text) = told?;
                shown.line(&name, &text)?;
            }
            _ = look.tick() => {
                // A failed query is retried at the next tick. The followed logs report their own errors.
                let Ok(names) = instance_names(client, guid).await else { continue };
                if names.is_empty() && logs.is_empty() && is_gone(client, guid).await? {
                    return Ok(());
                }
                for name in names {
                    if !shown.is_registered(&name) {
                        shown.register(&name);
                        let read = open_log(client, &name);
                        read.lock().await.0.continue_following();
                        logs.push(Box::pin(log_lines(read, name, true)));
                    }
                }
            }
        }
    }
}

async fn is_gone(client: &Client, guid: &ProcessGuid) -> Result<bool, Failure> {
    match client.lrp(guid).await {
        Ok(_) => Ok(false),
        Err(error) if error.is_not_found() => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Printer of log lines. In human-readable output, each line starts with the instance name, in the colour
/// that was assigned to the instance.
struct LogPrinter {
    output: Output,
    follow: bool,
    /// Number of each instance, in order of appearance. The number determines the colour of the instance
    /// name.
    known: BTreeMap<String, usize>,
    width: usize,
}

impl LogPrinter {
    const fn new(output: Output, follow: bool) -> Self {
        Self { output, follow, known: BTreeMap::new(), width: 0 }
    }

    fn is_registered(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    fn register(&mut self, name: &str) {
        let number = self.known.len();
        self.known.entry(name.to_owned()).or_insert(number);
        self.width = self.width.max(name.len());
    }

    fn line(&self, name: &str, text: &str) -> Result<(), Failure> {
        let line = Line { source: name, text };
        let number = self.known.get(name).copied().unwrap_or_default();
        let shown = |_: &Line<'_>, look: RenderOptions| {
            self.format_line(name, number, &self.output.program_text(text), look.colour)
        };
        if self.follow {
            self.output.write_stream_item(&line, shown)
        } else {
            self.output.add_result(&line, shown)
        }
    }

    fn format_line(&self, name: &str, number: usize, text: &str, colour: bool) -> String {
        let width = self.width;
        if colour {
            let code = COLOURS[number % COLOURS.len()];
            format!("\u{1b}[{code}m{name:width$} |\u{1b}[0m {text}")
        } else {
            format!("{name:width$} | {text}")
        }
    }
}

/// Returns the remaining lines of one log. The stream is empty if the instance never had a container or its
/// log is gone. `ends` is `true` if no more text can follow. In that case, an unterminated last line is
/// included.
fn log_lines(read: SharedReader, name: String, ends: bool) -> impl Stream<Item = LineResult> {
    let pieces = futures::stream::unfold((read, false), move |(read, done)| async move {
        if done {
            return None;
        }
        let mut locked = read.lock().await;
        let (log, lines) = &mut *locked;
        let (told, done) = match log.next().await {
            Ok(Some(piece)) => (Ok(lines.push(&piece.text)), false),
            Ok(None) => (Ok(if ends { lines.take_partial() } else { vec![] }), true),
            Err(error) if error.is_not_found() => return None,
            Err(error) => (Err(Failure::from(error)), true),
        };
        drop(locked);
        Some((told, (read, done)))
    });
    pieces.flat_map(move |pieces| {
        let named: Vec<LineResult> = match pieces {
            Ok(lines) => lines.into_iter().map(|line| Ok((name.clone(), line))).collect(),
            Err(failure) => vec![Err(failure)],
        };
        futures::stream::iter(named)
    })
}

/// Splitter that turns chunks of text into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    partial: String,
}

impl Lines {
    /// Returns the lines that this chunk completes.
    pub(super) fn push(&mut self, piece: &str) -> Vec<String> {
        self.partial.push_str(piece);
        let Some(end) = self.partial.rfind('\n') else { return vec![] };
        let rest = self.partial.split_off(end + 1);
        let whole = std::mem::replace(&mut self.partial, rest);
        whole.lines().map(str::to_owned).collect()
    }

    /// Returns the unterminated last line, if there is one.
    pub(super) fn take_partial(&mut self) -> Vec<String> {
        let rest = std::mem::take(&mut self.partial);
        if rest.is_empty() { vec![] } else { vec![rest] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_split_into_lines() {
        let mut lines = Lines::default();
        assert!(lines.push("he").is_empty());
        assert_eq!(lines.push("llo\nwor"), ["hello"]);
        assert_eq!(lines.push("ld\n\nx\ny"), ["world", "", "x"]);
        assert_eq!(lines.take_partial(), ["y"]);
        assert!(lines.take_partial().is_empty());
    }
}
