//! Long version of the fault tests. It injects every fault repeatedly for minutes. The clusters have one node
//! or three nodes, each with its own disk.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the program prints its progress and its report"
)]

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use faults::build;
use faults::cluster::Shape;
use faults::error::{Failed, Result, ensure};
use faults::fault::{Fault, Requirement};
use faults::program::Binary;
use faults::report::{Report, Round};
use faults::run::Run;
use tokio::time::Instant;
use tracing_subscriber::EnvFilter;

/// Inject faults into a cluster of real processes under load, and check after each fault that no acknowledged
/// command is lost, that the desired instances run exactly once, and that the tables and the log are correct
#[derive(Debug, Parser)]
struct Args {
    /// Faults to inject, instead of all; may be repeated
    #[arg(long, value_name = "NAME", value_parser = parse_fault)]
    only: Vec<Fault>,
    /// Minimum duration; each fault is injected once, however long that takes
    #[arg(long, value_name = "N", default_value_t = 20)]
    minutes: u64,
    /// Seed for the order of the faults; default: random
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Program under test, instead of a build of this work tree
    #[arg(long, value_name = "FILE", env = "FAULTS_BINARY")]
    binary: Option<PathBuf>,
    /// Earlier program to upgrade from, instead of a build of the previous commit
    #[arg(long, value_name = "FILE", env = "FAULTS_EARLIER")]
    earlier: Option<PathBuf>,
    /// Number of entries in the log of the last cluster before its services start; 0: no such cluster
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    past: u64,
    /// File for the report, as JSON
    #[arg(long, value_name = "FILE", default_value = "target/faults/report.json")]
    report: PathBuf,
    /// List the faults and exit
    #[arg(long)]
    list: bool,
}

fn parse_fault(name: &str) -> std::result::Result<Fault, String> {
    let names: Vec<_> = Fault::ALL.into_iter().map(|fault| fault.row().name).collect();
    Fault::from_name(name).ok_or_else(|| format!("expected one of {}", names.join(", ")))
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    match run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<()> {
    if args.list {
        return list();
    }
    let seed = match args.seed {
        Some(seed) => seed,
        None => clock::seed().map_err(Failed::context("random seed"))? % 1_000_000,
    };
    let wanted = if args.only.is_empty() { Fault::ALL.to_vec() } else { args.only.clone() };
    let binary = match &args.binary {
        Some(path) => Binary::new(path)?,
        None => build::build_this_tree().await?,
    };
    let upgrades = wanted.iter().any(|fault| fault.row().needs == Requirement::EarlierBuild);
    let earlier = match (&args.earlier, upgrades) {
        (_, false) => None,
        (Some(path), true) => Some(Binary::new(path)?),
        (None, true) => Some(build::build_previous_commit().await?),
    };
    println!("seed {seed}");
    let mut report = Report { seed, rounds: vec![] };
    let acts: Vec<_> =
        required_clusters(&wanted, args.past).into_iter().filter(|(_, faults)| !faults.is_empty()).collect();
    let each = Duration::from_secs(args.minutes * 60) / u32::try_from(acts.len().max(1)).unwrap_or(1);
    let mut ended = Ok(());
    for (shape, faults) in acts {
        println!("{} node(s), {} cells, a log of {} entries", shape.nodes, shape.cells, shape.past);
        let mut happened = |round| {
            report.rounds.push(round);
            write_report(&report, &args.report)
        };
        ended =
            run_cluster(seed, (binary.clone(), earlier.clone()), shape, faults, each, &mut happened).await;
        if ended.is_err() || !report.has_no_violations() {
            break;
        }
    }
    println!("{report}\n{}", args.report.display());
    let names: Vec<_> = args.only.iter().map(|fault| format!(" --only {fault}")).collect();
    let (names, minutes) = (names.concat(), args.minutes);
    let again =
        format!("to repeat: cargo run --release -p faults -- --seed {seed} --minutes {minutes}{names}");
    ended.map_err(|Failed(why)| Failed(format!("{why}\n{again}")))?;
    ensure(report.has_no_violations(), || format!("violations were found\n{again}"))
}

fn list() -> Result<()> {
    let lines =
        Fault::ALL.map(Fault::row).map(|row| format!("{:24} {}; {}\n", row.name, row.effect, row.reversal));
    match io::stdout().write_all(lines.concat().as_bytes()) {
        // The reader has closed the pipe early.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Failed::context("standard output")),
    }
}

/// Returns the required clusters, each with its faults.
fn required_clusters(wanted: &[Fault], past: u64) -> [(Shape, Vec<Fault>); 3] {
    let disks =
        wanted.iter().any(|fault| matches!(fault.row().needs, Requirement::Disks | Requirement::ThreeDisks));
    let single = Shape { nodes: 1, cells: 3, disks, past: 0 };
    let three = Shape { nodes: 3, ..single };
    let is_of_three =
        |fault: &Fault| matches!(fault.row().needs, Requirement::ThreeNodes | Requirement::ThreeDisks);
    let of_one = wanted.iter().copied().filter(|fault| !is_of_three(fault)).collect();
    // Faults with other effects on three nodes: lost nodes, power cuts, and the loss of the leading BBS.
    let of_three = wanted
        .iter()
        .copied()
        .filter(|fault| is_of_three(fault) || matches!(fault, Fault::CutPower | Fault::KillBbsLeader))
        .collect::<Vec<_>>();
    let long = Shape { disks: false, past, ..single };
    let at_once = wanted.iter().copied().filter(|fault| past > 0 && *fault == Fault::StartAtOnce).collect();
    let of_three =
        if of_three.iter().any(is_of_three) || wanted == [Fault::CutPower] { of_three } else { vec![] };
    [(single, of_one), (three, of_three), (long, at_once)]
}

/// Runs one cluster. Each fault is injected once in random order, and random faults follow until the time is
/// up. `happened` receives each round at its end.
async fn run_cluster(
    seed: u64,
    (binary, earlier): (Binary, Option<Binary>),
    shape: Shape,
    mut faults: Vec<Fault>,
    time: Duration,
    happened: &mut impl FnMut(Round) -> Result<()>,
) -> Result<()> {
    let began = Instant::now();
    let mut run = Run::start(binary, earlier, shape, seed).await?;
    let possible = run.possible_faults();
    faults.retain(|fault| possible.contains(fault));
    let mut first = run.shuffled(&faults);
    while !first.is_empty() || began.elapsed() < time {
        let fault = match first.pop() {
            Some(fault) => fault,
            None => run.draw(&faults)?,
        };
        let ended = tokio::select! {
            ended = run.round(fault) => ended,
            _ = tokio::signal::ctrl_c() => return Err(Failed::new("interrupted")),
        };
        let wrong = match ended {
            Ok(round) => {
                println!("{:6.0} s  {round}", began.elapsed().as_secs_f64());
                let wrong = !round.wrong.is_empty();
                happened(round)?;
                wrong
            }
            Err(Failed(why)) => {
                return Err(Failed(format!("{fault}: {why}\nservice logs: {}", run.keep())));
            }
        };
        if wrong {
            println!("service logs: {}", run.keep());
            return Ok(());
        }
    }
    run.close().await
}

/// Writes the results so far, so that an interrupted run also leaves a report.
fn write_report(report: &Report, path: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(report).map_err(Failed::context("report"))?;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(Failed::context(folder.display()))?;
    }
    std::fs::write(path, text + "\n").map_err(Failed::context(path.display()))
}
