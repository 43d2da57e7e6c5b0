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
use explain::what_if::{UnreadChange, WhatIfResult, parse_changes, what_if};
use runtime::exit::Exit;
use scenario::what_if::{CellChange, Move, Preempted, Process, Spot, Unplaced};
use scenario::{Change, MASS_LOSS_WAIT, WhatIf};
use schemas::names::CellId;
use schemas::query::AsOf;
use schemas::spec::Item;
use secrets::Keys;
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

pub(crate) async fn run(args: &WhatIfArgs, global: &Global) -> Result<(), Failure> {
    debug_assert_eq!(MASS_LOSS_WAIT, Duration::from_secs(60), "the default of --mass-loss-wait differs");
    let lines = lines(args)?;
    let changes = read_changes(&lines, &args.keys.open(global)?, global)?;
    let messages = recorded::read(global).await?;
    let recording = recorded::recording(messages, args.as_of, args.mass_loss_wait)?;
    let result = what_if(&recording, lines, &changes, args.length)?;
    Output::new(global).write_one(&result, text)?;
    if result.effects.fits { Ok(()) } else { Err(Failure::silent(Exit::NotPlaced)) }
}

/// Returns the changes of the file and the command line, without blank lines and comments.
fn lines(args: &WhatIfArgs) -> Result<Vec<String>, Failure> {
    let of_file = args.file.as_deref().map(file::read_text).transpose()?.unwrap_or_default();
    let all = of_file.lines().map(str::to_owned).chain(args.changes.iter().cloned());
    let says = |line: &String| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    Ok(all.filter(says).map(|line| line.trim().to_owned()).collect())
}

fn read_changes(lines: &[String], keys: &Keys, global: &Global) -> Result<Vec<Change>, Failure> {
    let mut items = |path: &str| -> Result<Vec<Item>, Failure> {
        file::sealed_items(Path::new(path), global.domain.as_ref(), keys)
    };
    parse_changes(lines, &mut items).map_err(|unread| match unread {
        UnreadChange::Invalid(error) => error.into(),
        UnreadChange::File { change, error } => error.while_doing(format!("read {change}")),
    })
}

fn text(result: &WhatIfResult, look: RenderOptions) -> String {
    let WhatIfResult { position, time, effects, .. } = result;
    let mut parts = vec![format!("as of position {position}, {time}")];
    let mut add = |table: Table, empty: bool| {
        if !empty {
            parts.push(table.render(look.colour));
        }
    };
    add(moves(&effects.moves), effects.moves.is_empty());
    add(cells(&effects.cells), effects.cells.is_empty());
    add(processes(&effects.processes), effects.processes.is_empty());
    parts.extend(effects.unplaced.iter().map(unplaced));
    parts.extend(effects.preempted.iter().map(preempted));
    let blocked = effects.blocked.iter();
    parts.extend(blocked.map(|one| {
        format!(
            "{} would keep waiting for room (evaluation: {}): {}",
            one.of,
            trigger(one.trigger),
            one.reason
        )
    }));
    parts.push(end_text(effects));
    parts.join("\n")
}

/// Describes the end of the simulation.
fn end_text(effects: &WhatIf) -> String {
    let WhatIf { at_rest, ran_ms, fits, moves, .. } = effects;
    let ran = precise_duration(Duration::from_millis(*ran_ms));
    let rest = if *at_rest { format!("at rest after {ran}") } else { format!("not at rest after {ran}") };
    match (moves.is_empty(), fits) {
        (true, true) => format!("nothing would change ({rest})"),
        (false, true) => format!("everything fits ({rest})"),
        (_, false) => format!("not everything fits ({rest})"),
    }
}

fn trigger(trigger: schemas::evaluation::Trigger) -> String {
    let word = serde_json::to_value(trigger).ok();
    word.and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

fn moves(all: &[Move]) -> Table {
    let headers = ["WHAT", "BEFORE", "CELL", "AFTERWARDS", "CELL", "NOTE"];
    Table::with_rows(headers, all, |one| {
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
        [
            Cell::text(&one.what),
            state(&one.before),
            cell(&one.before),
            state(&one.after),
            cell(&one.after),
            Cell::optional((!notes.is_empty()).then(|| notes.join("; "))),
        ]
    })
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
    let headers = ["CELL", "BEFORE", "AFTERWARDS"];
    Table::with_rows(headers, all, |one| {
        let state = |state: Option<&'static str>| state.map_or(Cell::None, Cell::state);
        [Cell::text(&one.cell_id), state(one.before), state(one.after)]
    })
}

fn processes(all: &[Process]) -> Table {
    let headers = ["PROCESS", "DESIRED", "RUNNING BEFORE", "AFTERWARDS", "LAST STARTED AFTER", "START TAKES"];
    Table::with_rows(headers, all, |one| {
        let millis = |time: u64| precise_duration(Duration::from_millis(time));
        let source = if one.start_is_recorded { "" } else { " (estimated)" };
        [
            Cell::text(&one.process_guid),
            Cell::number(one.desired.1),
            Cell::number(one.running.0),
            Cell::number(one.running.1),
            Cell::optional(one.all_running_after_ms.map(millis)),
            Cell::text(format!("{}{source}", millis(one.start_ms))),
        ]
    })
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
