//! `muster watch`: the live view on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal};
use std::time::Duration;

use client::subjects::Query;
use client::{Client, Events};
use schemas::names::Domain;
use schemas::query::{Filter, Page};
use tokio::time::{Instant, sleep_until};

use super::args::{Format, Global};
use super::connect::connect;
use super::events::end_of_log;
use super::failure::{Exit, Failure};
use super::live::{View, event_lines};
use super::output::{self, Output};
use super::words::count;

/// How often the ages on a terminal are brought up to date.
const TICK: Duration = Duration::from_secs(1);
/// How long events are gathered before the view is drawn again.
const GATHER: Duration = Duration::from_millis(100);
/// Instances, and tasks, that are asked for: more than any terminal has lines.
const ROWS: usize = 500;
/// The size of a terminal that doesn't say it: columns and lines.
const USUAL_SIZE: (usize, usize) = (80, 24);

pub(crate) async fn run(global: &Global) -> Result<(), Failure> {
    let client = connect(global).await?;
    let events = client.events(end_of_log(&client).await?);
    let live = io::stdout().is_terminal();
    tokio::select! {
        shown = show(&client, events, global.domain.as_ref(), Output::new(global), live) => shown,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.map_err(|error| Failure::new(Exit::Failed, "Signal", error.to_string()))
        }
    }
}

/// Shows what there is on a terminal, or what happens line by line; ends only when that fails.
pub(crate) async fn show(
    client: &Client,
    events: Events,
    domain: Option<&Domain>,
    output: Output,
    live: bool,
) -> Result<(), Failure> {
    match output.format {
        Format::Table if live => draw(client, events, domain, output).await,
        Format::Table | Format::Json | Format::Jsonl => tell(events, output).await,
    }
}

/// Tells what happens, line by line.
async fn tell(mut events: Events, output: Output) -> Result<(), Failure> {
    loop {
        let entry = events.next().await?;
        output.next(&entry, |entry, look| event_lines(entry, look).join("\n"))?;
    }
}

/// Draws the view, and draws it again over itself whenever something happened or a second is over.
async fn draw(
    client: &Client,
    mut events: Events,
    domain: Option<&Domain>,
    output: Output,
) -> Result<(), Failure> {
    let mut view = View::default();
    let (mut drawn, mut changed) = (0, true);
    loop {
        if changed {
            look_again(client, domain, &mut view).await?;
        }
        let (width, height) = size();
        let lines = view.lines(output.look(), width, height.saturating_sub(1));
        output::text_as_it_is(&over(drawn, &lines))?;
        drawn = lines.len();
        changed = gather(&mut events, &mut view, output).await?;
    }
}

/// Waits for something to happen, and then a moment for more; at most until the ages are to be brought up to date.
async fn gather(events: &mut Events, view: &mut View, output: Output) -> Result<bool, Failure> {
    let (mut until, mut changed) = (Instant::now() + TICK, false);
    loop {
        tokio::select! {
            entry = events.next() => {
                view.happened(&entry?, output.look());
                if !changed {
                    until = until.min(Instant::now() + GATHER);
                }
                changed = true;
            }
            () = sleep_until(until) => return Ok(changed),
        }
    }
}

/// Asks what there is.
async fn look_again(client: &Client, domain: Option<&Domain>, view: &mut View) -> Result<(), Failure> {
    let filter =
        Filter { domain: domain.cloned(), at_least: client.seen(), limit: Some(ROWS), ..Filter::default() };
    let instances: Page<_> = client.page(Query::ListInstances, &filter).await?;
    let tasks: Page<_> = client.page(Query::ListTasks, &filter).await?;
    let cluster = client.cluster().await?.row;
    let sum = |counts: &std::collections::BTreeMap<String, u64>| counts.values().sum();
    let present = cluster.cells.get("PRESENT").copied().unwrap_or_default();
    view.title = format!(
        "{}, {} of {} running, {}, position {}",
        count(present.into(), "cell"),
        cluster.instances.get("RUNNING").copied().unwrap_or_default(),
        count(sum(&cluster.instances), "instance"),
        count(sum(&cluster.tasks), "task"),
        instances.position,
    );
    view.instances = instances.rows;
    view.tasks = tasks.rows;
    Ok(())
}

/// What draws these lines over the ones that were drawn before.
fn over(drawn: usize, lines: &[String]) -> String {
    let mut text = if drawn == 0 { String::new() } else { format!("\u{1b}[{drawn}F") };
    for line in lines {
        text.push_str(line);
        text.push_str("\u{1b}[K\r\n");
    }
    text.push_str("\u{1b}[J");
    text
}

/// Columns and lines of the terminal.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        Ok(_) | Err(_) => USUAL_SIZE,
    }
}

#[cfg(test)]
mod tests {
    use super::over;

    #[test]
    fn a_view_is_drawn_over_itself() {
        assert_eq!(over(0, &["a".into()]), "a\u{1b}[K\r\n\u{1b}[J");
        assert_eq!(over(3, &["b".into()]), "\u{1b}[3Fb\u{1b}[K\r\n\u{1b}[J");
    }
}
