//! `muster top`: the cluster on a terminal, live.
//!
//! | the file | holds |
//! |---|---|
//! | this one | the hands: keys, polls, and the terminal |
//! | [`model`] | what is on the page, and what becomes of it when something comes; pure |
//! | [`draw`] | the page as it is drawn; pure |
//! | [`moves`] | which row of a list is chosen while rows come and go; pure |
//! | [`rates`] | how much happens in a second; pure |

mod draw;
mod model;
mod moves;
mod rates;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::time::Duration;

use client::subjects::Query;
use client::{Client, Error, Only};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use runtime::stop::{self, Hangup};
use runtime::telemetry::Diverted;
use schemas::names::Domain;
use schemas::query::{Filter, LrpRow, Page};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use self::model::{Ask, Input, Model, Opened, Seen};
use super::args::Global;
use super::connect::connect;
use super::events::end_of_log;
use super::failure::{Exit, Failure};
use super::keys;
use super::output::Output;
use super::screen::Screen;
use super::why;

/// How often the cluster is asked how it is; where asking takes long, as much more seldom.
const LOOK: Duration = Duration::from_secs(1);
/// Of how much of the time the cluster may be asked: one part in this many.
const ASKING: u32 = 5;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// The most processes that are listed.
const PROCESSES: usize = 10_000;
/// How long the page stays as it is, at least: what comes meanwhile is drawn together.
const DRAWN: Duration = Duration::from_millis(50);
/// Inputs that wait to be shown.
const INPUTS: usize = 1_024;
/// The pause after events could not be read.
const AGAIN: Duration = Duration::from_secs(1);

/// Shows the page until somebody has seen enough.
pub(crate) async fn run(global: &Global) -> Result<(), Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let why = "top draws on a terminal and is told what to show by keys, and here is none";
        return Err(
            Failure::usage(why).advise("muster status tells how the cluster is, muster watch what happens")
        );
    }
    let client = connect(global).await?;
    // Who asks where nobody answers is told so on the terminal as it was.
    let end = end_of_log(&client).await?;
    let stop = stop::on_signal(Hangup::Ends)
        .map_err(|error| Failure::new(Exit::Failed, "Signal", format!("can't listen to signals: {error}")))?;
    let (inputs, mut coming) = mpsc::channel(INPUTS);
    let (wanted, asked) = watch::channel(None);
    let output = Output::new(global);
    let mut tasks = JoinSet::new();
    tasks.spawn(poll(client.clone().patience(PATIENCE), global.domain.clone(), asked, inputs.clone()));
    tasks.spawn(listen(client.clone(), end, output, inputs.clone()));
    let diverted = Diverted::begin();
    let mut screen = Screen::open()?;
    let mut terminal =
        Terminal::new(CrosstermBackend::new(io::stdout())).map_err(|error| unwritten(&error))?;
    let mut model = Model::default();
    loop {
        // What the program says of itself would be drawn over.
        diverted.lines().for_each(drop);
        terminal
            .draw(|frame| draw::draw(frame, &mut model, output.look()))
            .map_err(|error| unwritten(&error))?;
        let drawn = Instant::now() + DRAWN;
        let ask = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            event = screen.event() => keys::key(&event).and_then(|key| model.take(Input::Key(key))),
            Some(input) = coming.recv() => model.take(input),
            () = sleep(LOOK) => None,
        };
        match ask {
            Some(Ask::Quit) => return Ok(()),
            Some(Ask::Instances(opened)) => drop(wanted.send(opened)),
            Some(Ask::Why(id)) => {
                drop(tasks.spawn(explain(client.clone(), id, (global.clone(), output), inputs.clone())));
            }
            None => {}
        }
        while tasks.try_join_next().is_some() {}
        // What has come together is drawn once.
        while let Ok(input) = coming.try_recv() {
            model.take(input);
        }
        tokio::select! {
            () = tokio::time::sleep_until(drawn) => {}
            () = stop.cancelled() => return Ok(()),
        }
    }
}

fn unwritten(error: &io::Error) -> Failure {
    Failure::new(Exit::Failed, "Terminal", format!("the terminal: {error}"))
}

/// Asks how the cluster is, again and again, until nobody wants to know.
async fn poll(
    client: Client,
    domain: Option<Domain>,
    mut wanted: watch::Receiver<Option<Opened>>,
    inputs: mpsc::Sender<Input>,
) {
    loop {
        let (begin, opened) = (Instant::now(), wanted.borrow_and_update().clone());
        let (input, pause) = match look(&client, domain.as_ref(), opened).await {
            Ok(seen) => (Input::Seen(Box::new(seen)), LOOK.max(begin.elapsed() * ASKING)),
            // Who doesn't answer is no burden to anybody.
            Err(error) => (Input::Lost { at: clock::now(), why: error.to_string() }, LOOK),
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

async fn look(client: &Client, domain: Option<&Domain>, opened: Option<Opened>) -> Result<Seen, Error> {
    let status = client.status().await?;
    let (lrps, more) = processes(client, domain).await?;
    let cells = client.cells().await?.rows;
    let instances = match opened {
        Some(opened) => {
            let only = match &opened {
                Opened::Process(guid) => Only::process(guid.clone()),
                Opened::Cell(id) => Only::cell(id.clone()),
            };
            let rows = client.instances(&only).await?.rows;
            Some((opened, rows))
        }
        None => None,
    };
    let (position, status) = (status.position, status.row);
    Ok(Seen { at: clock::now(), position, status, cells, lrps, more, instances })
}

/// The first processes, and whether there are more.
async fn processes(client: &Client, domain: Option<&Domain>) -> Result<(Vec<LrpRow>, bool), Error> {
    let mut filter = Filter { domain: domain.cloned(), ..Filter::default() };
    let mut all = vec![];
    loop {
        let Page { rows, next, .. } = client.page::<LrpRow>(Query::LrpList, &filter).await?;
        all.extend(rows);
        match next {
            Some(cursor) if all.len() < PROCESSES => filter.cursor = Some(cursor),
            next => return Ok((all, next.is_some())),
        }
    }
}

/// Tells what happens behind a position.
async fn listen(client: Client, after: schemas::Position, output: Output, inputs: mpsc::Sender<Input>) {
    let mut events = client.events(after);
    loop {
        match events.next().await {
            Ok(entry) => {
                if inputs.send(Input::Happened(Box::new(entry), output.look())).await.is_err() {
                    return;
                }
            }
            // The page says that the cluster doesn't answer.
            Err(_) => sleep(AGAIN).await,
        }
    }
}

async fn explain(
    client: Client,
    id: String,
    (global, output): (Global, Output),
    inputs: mpsc::Sender<Input>,
) {
    let text = match why::told(&client, &id, &global, output.look()).await {
        Ok(text) => text,
        Err(failure) => failure.message,
    };
    // Who has seen enough needs no explanation.
    drop(inputs.send(Input::Told { title: format!("why {id}"), text }).await);
}
