//! Runs seeds of the simulation on every core.

#![expect(clippy::print_stdout, reason = "this is a command")]

use std::io::IsTerminal as _;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use rep::reconcile::Row;
use simulation::batch::{Batch, run_all};
use simulation::coverage::Situation;
use simulation::{Outcome, Plan, shrink};

/// Minimum number of seeds that must meet every situation.
const COVERAGE_SEEDS: u64 = 1_000;
/// Default limit of runs that shorten a failed plan.
const SHRINK_RUNS: u32 = 1_500;
/// Lines of the log of a failed run that are printed.
const LOG_LINES: usize = 80;

/// Runs a whole cluster in one thread for each seed, with faults, and checks every invariant at every step
#[derive(Debug, Parser)]
#[command(name = "simulation", version)]
struct Args {
    /// Seeds, as A..B, or as A..+N for N seeds from A
    #[arg(long, value_parser = range, default_value = "0..1000")]
    seeds: Range<u64>,
    /// Number of threads [default: one per core]
    #[arg(long)]
    jobs: Option<usize>,
    /// Maximum number of runs that shorten a failed plan
    #[arg(long, value_name = "RUNS", default_value_t = SHRINK_RUNS)]
    shrink: u32,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("expected A..B or A..+N")?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is not a number"));
    let from = number(from)?;
    let to = match to.strip_prefix('+') {
        Some(count) => from.saturating_add(number(count)?),
        None => number(to)?,
    };
    let seeds = from..to;
    if seeds.is_empty() { Err("the range contains no seed".into()) } else { Ok(seeds) }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.unwrap_or(cores);
    let start = Instant::now();
    let batch = run_with_progress(args.seeds, jobs);
    print_batch(&batch, start.elapsed().as_secs_f64(), jobs);
    if let Some((seed, outcome)) = batch.failed.first_key_value() {
        print_failure(&batch, *seed, outcome, args.shrink);
        return ExitCode::FAILURE;
    }
    let missing = batch.never_seen();
    if batch.seeds >= COVERAGE_SEEDS && !missing.is_empty() {
        println!("\nSituations that no seed met: {}", missing.join("; "));
        return ExitCode::FAILURE;
    }
    println!("\nNo invariant was violated.");
    ExitCode::SUCCESS
}

fn run_with_progress(seeds: Range<u64>, jobs: usize) -> Batch {
    let bar = if std::io::stderr().is_terminal() {
        let style = "{bar:40} {pos}/{len} seeds, {per_sec}, {eta} left {msg}";
        let style = ProgressStyle::with_template(style).expect("the template is valid");
        ProgressBar::new(seeds.end - seeds.start).with_style(style)
    } else {
        ProgressBar::hidden()
    };
    let failed = AtomicU64::new(0);
    let batch = run_all(seeds, jobs, |outcome| {
        bar.inc(1);
        if !outcome.violations.is_empty() {
            let failed = failed.fetch_add(1, Ordering::Relaxed) + 1;
            bar.set_message(format!("({failed} failed)"));
        }
    });
    bar.finish_and_clear();
    batch
}

fn print_batch(batch: &Batch, seconds: f64, jobs: usize) {
    let hours = batch.simulated.as_secs_f64() / 3_600.0;
    let speed = batch.steps as f64 / seconds / jobs as f64;
    println!("{} seeds, {hours:.1} simulated hours, {} entries", batch.seeds, batch.entries);
    println!("{} steps in {seconds:.1} s, {speed:.0} per second and core", batch.steps);
    println!("{} times only convergence found work", batch.found_by_convergence);
    println!("more than two containers of one ActualLRP ran at once for at most {:?}", batch.crowded);
    println!("\nInjected faults and commands:");
    for (kind, count) in &batch.injected {
        println!("{count:>10} {kind}");
    }
    println!("\nSituations:");
    for situation in Situation::ALL {
        println!("{:>10} {}", batch.coverage.count(*situation), situation.text());
    }
    println!("\nRows of the reconciliation tables:");
    for row in Row::all() {
        let count = batch.rows.get(&row).copied().unwrap_or_default();
        let reason = row.unreachable_reason().map(|why| format!(": {why}")).unwrap_or_default();
        println!("{count:>10} {row}{reason}");
    }
}

/// Returns the lines before the first violation and right after it.
fn lines_around_violation(story: &[String]) -> &[String] {
    let first = story.iter().position(|line| line.contains("VIOLATED")).unwrap_or(story.len());
    &story[first.saturating_sub(LOG_LINES)..story.len().min(first + 5)]
}

fn print_failure(batch: &Batch, seed: u64, outcome: &Outcome, runs: u32) {
    println!("\n{} of {} seeds violated an invariant:", batch.failed.len(), batch.seeds);
    for (seed, outcome) in batch.failed.iter().take(40) {
        println!("  seed {seed}: {}", outcome.violations[0]);
    }
    println!("\nShortest plan that still violates it, from seed {seed}:\n");
    let (plan, shortest) = shrink::shortest(&Plan::drawn(seed), outcome.violations[0].invariant, runs);
    println!("{plan}");
    println!("Log of its run:");
    for line in lines_around_violation(&shortest.story) {
        println!("{line}");
    }
    for violation in &shortest.violations {
        println!("VIOLATED {violation}");
    }
    println!("\nrun the seed again with: cargo run --release -p simulation -- --seeds {seed}..{}", seed + 1);
}
