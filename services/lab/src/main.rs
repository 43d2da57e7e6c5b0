//! The `muster-lab` binary: simulations, single decisions and benchmarks, for developers and for examinations of
//! recorded logs.

mod bench;
mod decide;
mod reconcile;
mod simulate;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use cli_base::connect::nats;
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::{config, output};
use runtime::exit::{Exit, exit_status_help};
use runtime::stop::{self, Hangup};
use runtime::telemetry;
use tokio::runtime::Builder;

/// The same allocator as in the product, so that measurements agree with it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Simulate clusters, compute single decisions, and measure the whole system
#[derive(Debug, Parser)]
#[command(name = "muster-lab", version, arg_required_else_help = true, after_help = exit_status_help())]
struct MusterLab {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Commands of the program.
#[derive(Debug, Subcommand)]
enum Command {
    Simulate(simulate::SimulateArgs),
    /// Compute and print, as JSON, the decision of a BBS on one command, with a given log. Writes nothing
    Decide(decide::DecideArgs),
    /// Print, as JSON, the actions of a rep for a container and its record. Needs no cluster
    Reconcile(reconcile::ReconcileArgs),
    /// Measure the whole system: with containers in memory or, for updates, with real ones
    Bench(Box<bench::BenchArgs>),
}

fn main() -> ExitCode {
    // Benchmarks with real containers start this program in each container.
    if let Some(status) = host::container_process::run() {
        return status;
    }
    let MusterLab { global, command } = match parse(&std::env::args_os().collect::<Vec<_>>()) {
        Ok(lab) => lab,
        Err(error) => error.exit(),
    };
    let done = match run(command, &global) {
        Ok(exit) => output::finish().map(|()| exit),
        Err(failure) => Err(failure),
    };
    match done {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(failure) => {
            output::report_failure(&failure, &global);
            ExitCode::from(failure.status())
        }
    }
}

/// Parses a command line, with the environment and the configuration file as defaults.
fn parse(arguments: &[OsString]) -> Result<MusterLab, clap::Error> {
    let file = config::config_path(arguments, std::env::var_os("MUSTER_CONFIG"));
    let matches = config::command_line::<MusterLab>(file.as_deref())?.try_get_matches_from(arguments)?;
    config::from_matches(&matches, |lab: &mut MusterLab| &mut lab.global)
}

fn run(command: Command, global: &Global) -> Result<Exit, Failure> {
    telemetry::start(global.log.as_deref(), "warn,bus=off", global.log_format.into())
        .map_err(|error| Failure::usage(error.to_string()))?;
    match command {
        Command::Simulate(args) => simulate::run(&args, global),
        Command::Reconcile(args) => {
            cli::check_options(global, false)?;
            reconcile::run(&args, global).map(|()| Exit::Done)
        }
        Command::Decide(args) => {
            cli::check_options(global, true)?;
            in_runtime(decide::run(&args, global)).map(|()| Exit::Done)
        }
        Command::Bench(args) => in_runtime(measure(*args, global)).map(|()| Exit::Done),
    }
}

fn in_runtime<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let failed =
        |error| Failure::new(Exit::Failed, "Start", format!("can't start the async runtime: {error}"));
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(failed)?;
    let done = runtime.block_on(Box::pin(work));
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

async fn measure(args: bench::BenchArgs, global: &Global) -> Result<(), Failure> {
    let stop = stop::on_signal(Hangup::Default).map_err(|error| {
        Failure::new(Exit::Failed, "Signal", format!("can't install signal handlers: {error}"))
    })?;
    let outcome = bench::run(nats(global), args, stop).await?;
    output::write_line(&outcome.text)?;
    outcome.failure.map_or(Ok(()), |failure| Err(failure.into()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn clap_definitions_are_consistent() {
        MusterLab::command().debug_assert();
    }

    #[test]
    fn examples_are_parsed() {
        for line in [
            "simulate tests/stories/crashes.txt --last 20",
            "simulate --seed 17 -o jsonl",
            "decide scale\u{a0}web=5 --as-of -10m",
            "decide --command lrp.update --file message.json --empty",
            "reconcile case.json",
            "bench --waiting 32,128 --shards 4",
        ] {
            let words = std::iter::once("muster-lab").chain(line.split(' ')).map(OsString::from);
            parse(&words.collect::<Vec<_>>()).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        for bad in ["simulate", "simulate story.txt --seed 3", "decide", "decide a --empty --as-of 3"] {
            let words = std::iter::once("muster-lab").chain(bad.split(' ')).map(OsString::from);
            assert!(parse(&words.collect::<Vec<_>>()).is_err(), "{bad}");
        }
    }
}
