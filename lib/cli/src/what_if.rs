//! `muster what-if`: continues the recorded cluster with changes, locally and in virtual time. Writes
//! nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::{Output, RenderOptions};
use cli_base::table::{Cell, Table};
use cli_base::{file, moment};
use runtime::exit::Exit;
use scenario::change::Unread;
use scenario::what_if::{
    CellChange, Failed, Length, Move, NoAnswer, PATIENCE, Preempted, Process, Spot, Unplaced,
};
use scenario::{Change, MASS_LOSS_WAIT, Recording, WhatIf};
use schemas::names::CellId;
use schemas::query::AsOf;
use schemas::spec::Item;
use schemas::{Position, Refusal, Timestamp};
use secrets::Keys;
use serde::Serialize;
use text::suggestions::did_you_mean;
use text::words::{count, parse_duration, precise_duration};

use super::recorded;
use super::secrets::LocalKeys;

/// Options of `muster what-if`.
#[derive(Clone, Debug, Args)]
pub struct WhatIfArgs {
    /// Changes, applied in order, each in quotes: "lose cell c2", "scale web=5", "update web web.toml" and
    /// others; see docs/guides/what-if.md
    #[arg(value_name = "CHANGE")]
    changes: Vec<String>,
    /// File with changes, one per line, applied before those of the command line; - is the standard input
    #[arg(short, long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Start from this moment: a position, a time, or a time ago such as -10m [default: the end of the log]
    #[arg(id = "log_as_of", long = "as-of", value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
    as_of: Option<AsOf>,
    /// Time to simulate after the last change [default: until the cluster is at rest, at most one hour]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    length: Option<Duration>,
    /// Time during which the cluster treats silence of most cells as a network fault
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "60s")]
    mass_loss_wait: Duration,
    #[command(flatten)]
    keys: LocalKeys,
}

/// Output of `muster what-if`.
#[derive(Debug, Serialize)]
struct WhatIfResult<'a> {
    /// Log position that the simulation started from.
    position: Position,
    /// Time of the entry at this position.
    time: Timestamp,
    changes: &'a [String],
    #[serde(flatten)]
    told: &'a WhatIf,
}

pub(crate) async fn run(args: &WhatIfArgs, global: &Global) -> Result<(), Failure> {
    debug_assert_eq!(MASS_LOSS_WAIT, Duration::from_secs(60), "the default of --mass-loss-wait differs");
    let lines = lines(args)?;
    let changes = read_changes(&lines, &args.keys.open(global)?, global)?;
    let messages = recorded::read(global).await?;
    let recording = recorded::recording(messages, args.as_of, args.mass_loss_wait)?;
    let length = args.length.map_or(Length::Rest(PATIENCE), Length::Time);
    let changes: Vec<Change> = changes.into_iter().map(|(_, change)| change).collect();
    let told =
        recording.what_if(&changes, length).map_err(|why| no_answer_failure(why, &lines, &recording))?;
    let shown =
        WhatIfResult { position: recording.position(), time: recording.time(), changes: &lines, told: &told };
    Output::new(global).write_one(&shown, WhatIfResult::text)?;
    if told.fits { Ok(()) } else { Err(Failure::silent(Exit::NotPlaced)) }
}

/// Returns the changes of the file and the command line, without blank lines and comments.
fn lines(args: &WhatIfArgs) -> Result<Vec<String>, Failure> {
    let of_file = args.file.as_deref().map(file::read_text).transpose()?.unwrap_or_default();
    let all = of_file.lines().map(str::to_owned).chain(args.changes.iter().cloned());
    let says = |line: &String| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    Ok(all.filter(says).map(|line| line.trim().to_owned()).collect())
}

fn read_changes(lines: &[String], keys: &Keys, global: &Global) -> Result<Vec<(usize, Change)>, Failure> {
    let mut items = |path: &str| -> Result<Vec<Item>, Failure> {
        file::sealed_items(Path::new(path), global.domain.as_ref(), keys)
    };
    let mut changes = vec![];
    for (at, line) in lines.iter().enumerate() {
        match Change::read(line, &mut items) {
            Ok(change) => changes.extend(change.map(|change| (at, change))),
            Err(Unread::Words(why)) => return Err(Failure::usage(format!("{}: {why}", numbered(at, line)))),
            Err(Unread::File(failure)) => {
                return Err(failure.while_doing(format!("read {}", numbered(at, line))));
            }
        }
    }
    Ok(changes)
}

fn numbered(at: usize, line: &str) -> String {
    format!("change {} ({line})", at + 1)
}

/// Returns the failure if there is no answer. Its advice contains similar names.
fn no_answer_failure(no: NoAnswer, lines: &[String], recording: &Recording) -> Failure {
    let refusal = match no.why {
        Failed::Unusable(unusable) => return recorded::unusable_failure(unusable),
        Failed::Refused(refusal) => refusal,
    };
    let known = similar_names(&refusal, recording);
    let failure = Failure::from(refusal).advise_some(known);
    let line = no.change.and_then(|at| Some((at, lines.get(at)?)));
    line.map_or(failure.clone(), |(at, line)| failure.while_doing(format!("apply {}", numbered(at, line))))
}

fn similar_names(refusal: &Refusal, recording: &Recording) -> Option<String> {
    let mut words = refusal.message.split_whitespace();
    let (what, name) = (words.next()?, words.next()?);
    let world = recording.world();
    match what {
        "process" => did_you_mean(name, world.processes_from(None).map(|process| process.guid.as_str())),
        "cell" => did_you_mean(name, world.cells().map(|(id, _)| id.as_str())),
        "task" => did_you_mean(name, world.tasks_from(None).map(|task| task.guid.as_str())),
        _ => None,
    }
}

impl WhatIfResult<'_> {
    fn text(&self, look: RenderOptions) -> String {
        let Self { position, time, told, .. } = self;
        let mut parts = vec![format!("as of position {position}, {time}")];
        let mut add = |table: Table, empty: bool| {
            if !empty {
                parts.push(table.render(look.colour));
            }
        };
        add(moves(&told.moves), told.moves.is_empty());
        add(cells(&told.cells), told.cells.is_empty());
        add(processes(&told.processes), told.processes.is_empty());
        parts.extend(told.unplaced.iter().map(unplaced));
        parts.extend(told.preempted.iter().map(preempted));
        let blocked = told.blocked.iter();
        parts.extend(blocked.map(|one| {
            format!(
                "{} would keep waiting for room (evaluation: {}): {}",
                one.of,
                trigger(one.trigger),
                one.reason
            )
        }));
        parts.push(self.end());
        parts.join("\n")
    }

    fn end(&self) -> String {
        let WhatIf { at_rest, ran_ms, fits, moves, .. } = self.told;
        let ran = precise_duration(Duration::from_millis(*ran_ms));
        let rest = if *at_rest { format!("at rest after {ran}") } else { format!("not at rest after {ran}") };
        match (moves.is_empty(), fits) {
            (true, true) => format!("nothing would change ({rest})"),
            (false, true) => format!("everything fits ({rest})"),
            (_, false) => format!("not everything fits ({rest})"),
        }
    }
}

fn trigger(trigger: schemas::evaluation::Trigger) -> String {
    let word = serde_json::to_value(trigger).ok();
    word.and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

fn moves(all: &[Move]) -> Table {
    let mut table = Table::new(&["WHAT", "BEFORE", "CELL", "AFTERWARDS", "CELL", "NOTE"]);
    for one in all {
        let state = |spot: &Option<Spot>| match spot {
            None => Cell::None,
            Some(spot) if spot.stopping => Cell::text(format!("{}, stopping", spot.state)),
            Some(spot) => Cell::state(spot.state),
        };
        let cell = |spot: &Option<Spot>| {
            Cell::optional(spot.as_ref().and_then(|spot| spot.cell_id.as_ref().map(CellId::as_str)))
        };
        let why = one.after.as_ref().and_then(|spot| spot.why.clone());
        let anyway = one.anyway.then(|| "also without the changes".to_owned());
        let restarted = is_replaced(one).then(|| "new container".to_owned());
        let notes: Vec<String> = [why, restarted, anyway].into_iter().flatten().collect();
        table.row(vec![
            Cell::text(&one.what),
            state(&one.before),
            cell(&one.before),
            state(&one.after),
            cell(&one.after),
            Cell::optional((!notes.is_empty()).then(|| notes.join("; "))),
        ]);
    }
    table
}

/// Returns `true` if the instance or task is on the same cell as before, but in another container.
fn is_replaced(one: &Move) -> bool {
    let both = one.before.as_ref().zip(one.after.as_ref());
    both.is_some_and(|(before, after)| {
        before.cell_id.is_some()
            && before.cell_id == after.cell_id
            && before.instance_guid != after.instance_guid
    })
}

fn cells(all: &[CellChange]) -> Table {
    let mut table = Table::new(&["CELL", "BEFORE", "AFTERWARDS"]);
    for one in all {
        let state = |state: Option<&'static str>| state.map_or(Cell::None, Cell::state);
        table.row(vec![Cell::text(&one.cell_id), state(one.before), state(one.after)]);
    }
    table
}

fn processes(all: &[Process]) -> Table {
    let mut table = Table::new(&[
        "PROCESS",
        "DESIRED",
        "RUNNING BEFORE",
        "AFTERWARDS",
        "LAST STARTED AFTER",
        "START TAKES",
    ]);
    for one in all {
        let millis = |time: u64| precise_duration(Duration::from_millis(time));
        let source = if one.start_is_recorded { "" } else { " (estimated)" };
        table.row(vec![
            Cell::text(&one.process_guid),
            Cell::number(one.desired.1),
            Cell::number(one.running.0),
            Cell::number(one.running.1),
            Cell::optional(one.all_running_after_ms.map(millis)),
            Cell::text(format!("{}{source}", millis(one.start_ms))),
        ]);
    }
    table
}

fn unplaced(one: &Unplaced) -> String {
    let Unplaced { what, error, explanation, anyway } = one;
    let lacking = explanation.iter().flat_map(|explanation| &explanation.rejected);
    let lacking: Vec<String> =
        lacking.map(|(reason, cells)| format!("{reason}: {}", count((*cells).into(), "cell"))).collect();
    let why = if lacking.is_empty() { String::new() } else { format!(" ({})", lacking.join(", ")) };
    let anyway = if *anyway { ", also without the changes" } else { "" };
    format!("{what} would not be placed: {error}{why}{anyway}")
}

fn preempted(one: &Preempted) -> String {
    let after = precise_duration(Duration::from_millis(one.after_ms));
    format!("{} would be preempted after {after}", one.what)
}
