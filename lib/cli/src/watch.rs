//! `muster watch`: a live view on a terminal, plain lines on other outputs.

use std::time::Duration;

use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::Output;
use client::{Client, Events, ListFilter};
use explain::decisions::end_of_log;
use explain::monitors::{MonitorFailure, monitor_failures, starting_instances};
use runtime::exit::Exit;
use runtime::telemetry::DivertedLog;
use schemas::Position;
use schemas::names::Domain;
use schemas::query::{CellState, InstanceRow, InstanceState, Severity};
use text::words::{count, one_line};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::live::{MAX_EVENTS, View, event_lines, sort_by_severity};
use super::screen::{KeyAction, Screen};

/// Maximum interval between redraws. A redraw updates the displayed ages.
const MAX_REDRAW_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum duration of the collection of events before a redraw. Slow queries increase the duration.
const MIN_COLLECT_TIME: Duration = Duration::from_millis(100);
/// Ratio of the collection time to the duration of the queries. The ratio limits the load on the cluster.
const QUERY_LOAD_FACTOR: u32 = 5;

pub(crate) async fn run(global: &Global) -> Result<(), Failure> {
    let client = connect(global).await?;
    let output = Output::new(global);
    let end = end_of_log(&client).await?;
    // The live view starts with the latest events.
    let past = if is_live(output) { MAX_EVENTS } else { 0 };
    let events = client.events(latest(end, past));
    tokio::select! {
        shown = show(&client, events, global.domain.as_ref(), output, Some(vec![])) => shown,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.map_err(|error| Failure::new(Exit::Failed, "Signal", error.to_string()))
        }
    }
}

/// Returns `true` if the live view can be shown. It requires a terminal with cursor control, and no
/// machine-readable output format.
fn is_live(output: Output) -> bool {
    output.is_human_readable() && Screen::is_available()
}

/// Returns the position after which the last `count` entries start.
pub(crate) fn latest(end: Position, count: usize) -> Position {
    Position(end.0.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX)))
}

/// Shows the live view below a heading. Without a heading, or if the view cannot be shown, prints events line
/// by line.
pub async fn show(
    client: &Client,
    events: Events,
    domain: Option<&Domain>,
    output: Output,
    live: Option<Vec<String>>,
) -> Result<(), Failure> {
    match live.filter(|_| is_live(output)) {
        Some(heading) => draw(client, events, domain, output, heading).await,
        None => print_events(events, output).await,
    }
}

/// Prints events line by line.
async fn print_events(mut events: Events, output: Output) -> Result<(), Failure> {
    loop {
        let entry = events.next().await?;
        output.write_stream_item(&entry, |entry, look| event_lines(entry, look).join("\n"))?;
    }
}

/// Draws the view, and redraws it after events, after keys and every second. Returns when the user quits.
async fn draw(
    client: &Client,
    mut events: Events,
    domain: Option<&Domain>,
    output: Output,
    heading: Vec<String>,
) -> Result<(), Failure> {
    let diverted = DivertedLog::start();
    let mut screen = Screen::open()?;
    let mut view = View::new(heading, screen.has_keys());
    let mut monitors = MonitorTask::watch(client.clone());
    let (mut changed, mut pause) = (true, MIN_COLLECT_TIME);
    loop {
        if changed {
            let asked = Instant::now();
            refresh(client, domain, &mut view).await?;
            monitors.select_instances(&view.instances);
            pause = MIN_COLLECT_TIME.max(asked.elapsed() * QUERY_LOAD_FACTOR);
        }
        diverted.lines().for_each(|line| view.add_line(line));
        let (width, height) = Screen::size();
        Screen::draw(&view.lines(output.look(), width, height))?;
        changed = match collect_events(&mut events, &mut screen, &mut monitors, &mut view, (output, pause))
            .await?
        {
            WaitOutcome::Changed => true,
            WaitOutcome::NoEvent => false,
            WaitOutcome::Quit => return Ok(()),
        };
    }
}

/// Result of the wait between two redraws.
enum WaitOutcome {
    /// Events arrived.
    Changed,
    /// No event arrived.
    NoEvent,
    /// The user quit.
    Quit,
}

/// Waits for an event, and collects further events for a moment. Without an event, returns when the displayed
/// ages have to be updated. Keys take effect at once.
async fn collect_events(
    events: &mut Events,
    screen: &mut Screen,
    monitors: &mut MonitorTask,
    view: &mut View,
    (output, pause): (Output, Duration),
) -> Result<WaitOutcome, Failure> {
    let (mut until, mut changed) = (Instant::now() + MAX_REDRAW_INTERVAL.max(pause), false);
    loop {
        tokio::select! {
            key = screen.key() => {
                match key {
                    KeyAction::Quit => return Ok(WaitOutcome::Quit),
                    KeyAction::Move(moves) => view.scroll(moves),
                    KeyAction::Resized => {}
                }
                let (width, height) = Screen::size();
                Screen::draw(&view.lines(output.look(), width, height))?;
            }
            entry = events.next() => {
                view.add_entry(&entry?, output.look());
                if !changed {
                    until = until.min(Instant::now() + pause);
                }
                changed = true;
            }
            says = monitors.next_failures() => {
                view.complaints = says;
                let (width, height) = Screen::size();
                Screen::draw(&view.lines(output.look(), width, height))?;
            }
            () = sleep_until(until) => {
                return Ok(if changed { WaitOutcome::Changed } else { WaitOutcome::NoEvent });
            }
        }
    }
}

/// Background task that queries the monitors of starting instances. A slow cell therefore does not delay the
/// view.
#[derive(Debug)]
struct MonitorTask {
    selection: watch::Sender<Vec<String>>,
    says: watch::Receiver<Vec<MonitorFailure>>,
    task: JoinHandle<()>,
}

impl MonitorTask {
    fn watch(client: Client) -> Self {
        let (selection, mut asked) = watch::channel(vec![]);
        let (told, says) = watch::channel(vec![]);
        let task = tokio::spawn(async move {
            loop {
                let names: Vec<String> = asked.borrow_and_update().clone();
                let now = monitor_failures(&client, &names).await;
                told.send_if_modified(|was| std::mem::replace(was, now.clone()) != now);
                let due = Instant::now() + MAX_REDRAW_INTERVAL;
                // Without starting instances there is nothing to query.
                if names.is_empty() && asked.changed().await.is_err() {
                    return;
                }
                sleep_until(due).await;
            }
        });
        Self { selection, says, task }
    }

    /// Selects the starting instances among these rows for the queries.
    fn select_instances(&self, rows: &[InstanceRow]) {
        let names = starting_instances(rows);
        self.selection.send_if_modified(|was| std::mem::replace(was, names.clone()) != names);
    }

    /// Waits for a change of the failures and returns them. This method is cancel safe.
    async fn next_failures(&mut self) -> Vec<MonitorFailure> {
        match self.says.changed().await {
            Ok(()) => self.says.borrow_and_update().clone(),
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for MonitorTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Queries the current state, and updates the view.
async fn refresh(client: &Client, domain: Option<&Domain>, view: &mut View) -> Result<(), Failure> {
    let only = domain.map_or_else(ListFilter::default, |domain| ListFilter::domain(domain.clone()));
    let (mut instances, mut tasks) = (client.instances(&only).await?, client.tasks(&only).await?);
    sort_by_severity(&mut instances.rows, &mut tasks.rows);
    let cluster = client.cluster().await?.row;
    let instances_in_all = cluster.instances.values().sum();
    let tasks_in_all = cluster.tasks.values().sum();
    let present = cluster.cells.get(&CellState::Present).copied().unwrap_or_default();
    let bad = cluster.problems.iter().filter(|problem| problem.severity == Severity::Unhealthy);
    view.problems = bad.map(|problem| format!("UNHEALTHY: {}", one_line(&problem.message))).collect();
    view.title = format!(
        "{}, {} of {} running, {}, position {}",
        count(present.into(), "cell"),
        cluster.instances.get(&InstanceState::Running).copied().unwrap_or_default(),
        count(instances_in_all, "instance"),
        count(tasks_in_all, "task"),
        instances.position,
    );
    view.instances = instances.rows;
    view.tasks = tasks.rows;
    Ok(())
}
