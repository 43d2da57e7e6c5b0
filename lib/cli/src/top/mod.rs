//! `muster top`: a live view of the cluster on a terminal.
//!
//! | file | content |
//! |---|---|
//! | `mod.rs` | input and output: keys, polls and the terminal |
//! | [`model`] | state of the page, and its reaction to inputs; pure |
//! | [`draw`] | rendering of the page; pure |
//! | [`selection`] | selection in a list whose rows change; pure |
//! | [`rates`] | rates per second; pure |

mod draw;
mod model;
mod rates;
mod selection;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::time::Duration;

use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::Output;
use client::subjects::Query;
use client::{Client, Error, ListFilter};
use explain::decisions::end_of_log;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use runtime::exit::Exit;
use runtime::stop::{self, Hangup};
use runtime::telemetry::DivertedLog;
use schemas::names::Domain;
use schemas::query::{Filter, LrpRow, Page};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::screen::{Screen, terminal_problem};
use super::top::model::{Input, Model, OpenedItem, PollResult, Request};
use super::watch::latest;
use super::{keys, why};

/// Minimum interval between polls, and maximum interval between redraws.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Pause between polls, as a multiple of the duration of a poll. The pause limits the load on a slow cluster.
const POLL_PAUSE_FACTOR: u32 = 5;
/// Timeout of a query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of listed processes.
const MAX_PROCESSES: usize = 10_000;
/// Minimum interval between redraws. Inputs that arrive within the interval are drawn together.
const MIN_REDRAW_INTERVAL: Duration = Duration::from_millis(50);
/// Capacity of the input queue.
const INPUT_CAPACITY: usize = 1_024;
/// Number of log entries from before the start of the program whose events are shown.
const EARLIER_ENTRIES: usize = 100;
/// Pause after a failed read of events.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Shows the page until the user quits.
pub(crate) async fn run(global: &Global) -> Result<(), Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let why = "muster top needs a terminal as standard input and output";
        return Err(Failure::usage(why)
            .advise("without a terminal: muster status for the health, muster watch for events"));
    }
    if let Some(problem) = terminal_problem() {
        let why = format!("muster top can't draw on this terminal: {problem}");
        return Err(Failure::usage(why)
            .advise("set TERM to the type of the terminal, such as TERM=xterm-256color")
            .advise("or use muster status for the health, muster watch for events"));
    }
    let client = connect(global).await?;
    // The end of the log is read before the page covers the terminal, so that an unreachable cluster is
    // reported.
    let after = latest(end_of_log(&client).await?, EARLIER_ENTRIES);
    let stop = stop::on_signal(Hangup::Stop).map_err(|error| {
        Failure::new(Exit::Failed, "Signal", format!("can't listen for signals: {error}"))
    })?;
    let (inputs, mut coming) = mpsc::channel(INPUT_CAPACITY);
    let (wanted, asked) = watch::channel(None);
    let output = Output::new(global);
    let mut tasks = JoinSet::new();
    tasks.spawn(poll(client.clone().patience(QUERY_TIMEOUT), global.domain.clone(), asked, inputs.clone()));
    tasks.spawn(listen(client.clone(), after, output, inputs.clone()));
    let diverted = DivertedLog::start();
    let mut screen = Screen::open()?;
    let mut terminal =
        Terminal::new(CrosstermBackend::new(io::stdout())).map_err(|error| terminal_failure(&error))?;
    let mut model = Model::default();
    loop {
        // Log lines of this program would damage the page.
        diverted.lines().for_each(drop);
        terminal
            .draw(|frame| draw::draw(frame, &mut model, output.look()))
            .map_err(|error| terminal_failure(&error))?;
        let drawn = Instant::now() + MIN_REDRAW_INTERVAL;
        let ask = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            event = screen.next_event() => keys::key(&event).and_then(|key| model.take(Input::Key(key))),
            Some(input) = coming.recv() => model.take(input),
            () = sleep(POLL_INTERVAL) => None,
        };
        match ask {
            Some(Request::Quit) => return Ok(()),
            Some(Request::Instances(opened)) => drop(wanted.send(opened)),
            Some(Request::Why(id)) => {
                drop(tasks.spawn(explain(client.clone(), id, (global.clone(), output), inputs.clone())));
            }
            None => {}
        }
        while tasks.try_join_next().is_some() {}
        // Draw once for the inputs that have arrived together.
        while let Ok(input) = coming.try_recv() {
            model.take(input);
        }
        tokio::select! {
            () = tokio::time::sleep_until(drawn) => {}
            () = stop.cancelled() => return Ok(()),
        }
    }
}

fn terminal_failure(error: &io::Error) -> Failure {
    Failure::new(Exit::Failed, "Terminal", format!("can't draw on the terminal: {error}"))
}

/// Polls the cluster until the page is closed.
async fn poll(
    client: Client,
    domain: Option<Domain>,
    mut wanted: watch::Receiver<Option<OpenedItem>>,
    inputs: mpsc::Sender<Input>,
) {
    loop {
        let (begin, opened) = (Instant::now(), wanted.borrow_and_update().clone());
        let (input, pause) = match look(&client, domain.as_ref(), opened).await {
            Ok(seen) => {
                (Input::Polled(Box::new(seen)), POLL_INTERVAL.max(begin.elapsed() * POLL_PAUSE_FACTOR))
            }
            // A cluster that does not answer has no load to limit, so a longer pause is not necessary.
            Err(error) => (Input::Unreachable { at: clock::now(), error: error.to_string() }, POLL_INTERVAL),
        };
        if inputs.send(input).await.is_err() {
            return;
        }
        tokio::select! {
            () = sleep(pause) => {}
            changed = wanted.changed() => if changed.is_err() { return },
        }
    }
}

async fn look(
    client: &Client,
    domain: Option<&Domain>,
    opened: Option<OpenedItem>,
) -> Result<PollResult, Error> {
    let status = client.status().await?;
    let (lrps, more) = processes(client, domain).await?;
    let cells = client.cells().await?.rows;
    let instances = match opened {
        Some(opened) => {
            let only = match &opened {
                OpenedItem::Process(guid) => ListFilter::process(guid.clone()),
                OpenedItem::Cell(id) => ListFilter::cell(id.clone()),
            };
            let rows = client.instances(&only).await?.rows;
            Some((opened, rows))
        }
        None => None,
    };
    let (position, status) = (status.position, status.row);
    Ok(PollResult { at: clock::now(), position, status, cells, lrps, more, instances })
}

/// Returns the first processes, and `true` if the cluster has more processes.
async fn processes(client: &Client, domain: Option<&Domain>) -> Result<(Vec<LrpRow>, bool), Error> {
    let mut filter = Filter { domain: domain.cloned(), ..Filter::default() };
    let mut all = vec![];
    loop {
        let Page { rows, next, .. } = client.page::<LrpRow>(Query::LrpList, &filter).await?;
        all.extend(rows);
        match next {
            Some(cursor) if all.len() < MAX_PROCESSES => filter.cursor = Some(cursor),
            next => return Ok((all, next.is_some())),
        }
    }
}

/// Sends the log entries after a position to the page.
async fn listen(client: Client, after: schemas::Position, output: Output, inputs: mpsc::Sender<Input>) {
    let mut events = client.events(after);
    loop {
        match events.next().await {
            Ok(entry) => {
                if inputs.send(Input::Recorded(Box::new(entry), output.look())).await.is_err() {
                    return;
                }
            }
            // The error is ignored here, because the polls report that the cluster does not answer.
            Err(_) => sleep(RETRY_PAUSE).await,
        }
    }
}

async fn explain(
    client: Client,
    id: String,
    (global, output): (Global, Output),
    inputs: mpsc::Sender<Input>,
) {
    let text = match why::explanation_text(&client, &id, &global, output.look()).await {
        Ok(text) => text,
        Err(failure) => failure.message,
    };
    // Sending fails only if the page is closed.
    drop(inputs.send(Input::Explained { title: format!("why {id}"), text }).await);
}
