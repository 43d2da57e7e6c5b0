//! `muster replay`: replays the recorded causes of a part of the log with other settings, locally and in
//! virtual time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use schemas::names::ProcessGuid;
use schemas::{BadField, Refusal};
use simulation::recorded::replay::{Misfit, NoReplay, OfProcess, OfTask, Replay, Settings};

use super::args::Global;
use super::failure::{Exit, Failure};
use super::file;
use super::output::{Output, RenderOptions};
use super::suggestions::did_you_mean;
use super::table::{Cell, Table};
use super::words::{count, parse_duration, precise_duration};
use super::{moment, recorded};
use schemas::query::AsOf;

/// Options of `muster replay`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Settings to change, in TOML: tables restart, process.NAME.restart and cell.ID, and preemption; see
    /// docs/guides/replay-with-other-settings.md [default: the recorded settings]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Start of the replay: a position, a time, or a time ago such as -10m [default: the beginning of the
    /// log]
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
    from: Option<AsOf>,
    /// End of the replay [default: the end of the log]
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
    to: Option<AsOf>,
    /// Exit with 9 if the result differs from the recording, for use as a regression test
    #[arg(long)]
    check: bool,
    /// Time during which the cluster treats silence of most cells as a network fault
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "60s")]
    mass_loss_wait: Duration,
}

pub(crate) async fn run(args: &ReplayArgs, global: &Global) -> Result<(), Failure> {
    let settings = args.policy.as_deref().map(settings).transpose()?.unwrap_or_default();
    let messages = recorded::read(global).await?;
    let beginning = Some(AsOf::Position(schemas::Position(0)));
    let from = recorded::position(&messages, args.from.or(beginning))?;
    let to = recorded::position(&messages, args.to)?;
    if from > to {
        return Err(Failure::usage(format!(
            "invalid --from at position {from}: expected at most {to}, the position of --to"
        )));
    }
    let recording = recorded::recording(messages, Some(AsOf::Position(from)), args.mass_loss_wait)?;
    let told = recording.replay(to, &settings).map_err(|why| match why {
        NoReplay::Misfits(misfits) => misfit_failure(misfits, args.policy.as_deref()),
        NoReplay::Unusable(unusable) => unusable.into(),
    })?;
    Output::new(global).write_one(&told, text)?;
    if args.check && !told.differences.is_empty() {
        return Err(Failure::silent(Exit::Found));
    }
    Ok(())
}

fn settings(path: &Path) -> Result<Settings, Failure> {
    let bad = |why: String| {
        let why = format!("invalid policy {}: {}", path.display(), why.trim_end());
        Failure::new(Exit::Failed, "InvalidRequest", why)
    };
    let settings: Settings =
        toml::from_str(&file::read_text(path)?).map_err(|error| bad(error.to_string()))?;
    let faults = settings.faults();
    if faults.is_empty() {
        return Ok(settings);
    }
    Err(Failure::from(Refusal::invalid(faults)).while_doing(format!("read {}", path.display())))
}

/// Returns the failure for settings that do not fit the recording. The failure suggests similar names.
fn misfit_failure(misfits: Vec<Misfit>, policy: Option<&Path>) -> Failure {
    let bad = |one: Misfit| {
        let Misfit { field, problem, name, known } = one;
        let meant = did_you_mean(&name, known.iter().map(String::as_str));
        BadField {
            field,
            problem: [Some(problem), meant].into_iter().flatten().collect::<Vec<_>>().join(": "),
        }
    };
    let failure = Failure::from(Refusal::invalid(misfits.into_iter().map(bad).collect()));
    policy.map_or(failure.clone(), |path| failure.while_doing(format!("replay with {}", path.display())))
}

fn text(told: &Replay, look: RenderOptions) -> String {
    let mut parts = vec![format!(
        "position {} to {}, {}: recorded and replayed",
        told.from,
        told.to,
        millis(told.length_ms)
    )];
    let processes = processes(told);
    parts.extend((!processes.is_empty()).then(|| table(&processes).render(look.colour)));
    let tasks = task_rows(told);
    parts.extend((!tasks.is_empty()).then(|| {
        let mut table = Table::new(&["TASK", "RECORDED", "REPLAYED", "WAITED", "REPLAYED"]);
        tasks.into_iter().for_each(|row| table.row(row));
        table.render(look.colour)
    }));
    parts.extend(told.refused.iter().map(|what| format!("refused in the replay: {what}")));
    parts.extend(told.skipped.iter().map(|(what, number)| format!("not replayed: {number} {what}")));
    parts.extend(told.differences.iter().cloned());
    parts.push(match told.differences.len() {
        0 => "the result is the same as recorded".to_owned(),
        found => format!("the result differs from the recording: {}", count(found as u64, "difference")),
    });
    parts.join("\n")
}

/// A process, with its recorded and its replayed figures.
type ProcessComparison<'a> = (&'a ProcessGuid, OfProcess, OfProcess);

/// Returns the figures of all processes.
fn processes(told: &Replay) -> Vec<ProcessComparison<'_>> {
    let of = |figures: &simulation::recorded::replay::Figures, guid| {
        figures.processes.get(guid).cloned().unwrap_or_default()
    };
    let guids: std::collections::BTreeSet<&ProcessGuid> =
        told.recorded.processes.keys().chain(told.replayed.processes.keys()).collect();
    let both = |guid| (guid, of(&told.recorded, guid), of(&told.replayed, guid));
    guids.into_iter().map(both).collect()
}

fn table(all: &[ProcessComparison<'_>]) -> Table {
    let mut table = Table::new(&[
        "PROCESS",
        "CRASHES",
        "REPLAYED",
        "RESTARTS",
        "REPLAYED",
        "NOT RUNNING",
        "REPLAYED",
        "NOT PLACED",
        "REPLAYED",
        "RUNNING",
        "REPLAYED",
    ]);
    for (guid, was, is) in all {
        let running = |of: &OfProcess| Cell::number(format!("{}/{}", of.running, of.desired));
        table.row(vec![
            Cell::text(guid),
            Cell::number(was.crashes),
            Cell::number(is.crashes),
            Cell::number(was.restarts),
            Cell::number(is.restarts),
            Cell::number(millis(was.not_running_ms)),
            Cell::number(millis(is.not_running_ms)),
            Cell::number(was.placement_failures),
            Cell::number(is.placement_failures),
            running(was),
            running(is),
        ]);
    }
    table
}

/// Returns a row for each recorded task, with its recorded and its replayed outcome.
fn task_rows(told: &Replay) -> Vec<Vec<Cell>> {
    let defaults = OfTask::default();
    let row = |(guid, was): (&schemas::names::TaskGuid, &OfTask)| {
        let is = told.replayed.tasks.get(guid).unwrap_or(&defaults);
        let end = |of: &OfTask| match (of.succeeded, &of.failure_reason) {
            (Some(true), _) => Cell::state("succeeded"),
            (Some(false), reason) => Cell::text(format!("failed: {}", reason.as_deref().unwrap_or("-"))),
            (None, _) => Cell::text("not ended"),
        };
        let waited = |of: &OfTask| Cell::optional(of.waited_ms.map(millis));
        vec![Cell::text(guid), end(was), end(is), waited(was), waited(is)]
    };
    told.recorded.tasks.iter().map(row).collect()
}

fn millis(time: u64) -> String {
    precise_duration(Duration::from_millis(time))
}
