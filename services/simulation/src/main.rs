//! Runs seeds: as many as one likes, on every core.

#![expect(clippy::print_stdout, reason = "this is a command")]

use std::io::IsTerminal as _;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use rep::reconcile::Row;
use simulation::batch::{Batch, run_all};
use simulation::coverage::Situation;
use simulation::mutations::Choice;
use simulation::promises::{Broken, Promise};
use simulation::story::{Story, texts};
use simulation::{Outcome, Plan, mutations, run_plan, shrink};

/// So many seeds must have met everything interesting.
const ENOUGH: u64 = 1_000;
/// So many runs may be spent on making a failed one short.
const SHRINKING: u32 = 1_500;
/// So much is shown of the end of a failed run.
const LINES: usize = 80;

/// Runs the whole cluster in one thread for each seed, with every fault, and checks every promise at every step
#[derive(Debug, Parser)]
#[command(name = "simulation", version)]
struct Args {
    /// The seeds, as A..B, or A..+N for N of them from A on
    #[arg(long, value_parser = range, default_value = "0..1000")]
    seeds: Range<u64>,
    /// How many at once; every core unless given
    #[arg(long)]
    jobs: Option<usize>,
    /// Stop at the first seed that breaks a promise, or one of these, and say only which
    #[arg(long, value_name = "PROMISE", value_parser = promise, value_delimiter = ',')]
    #[arg(num_args = 0.., require_equals = true)]
    until_broken: Option<Vec<Promise>>,
    /// With --until-broken: run the stories of this folder, too, if the seeds break nothing
    #[arg(long, value_name = "FOLDER", requires = "until_broken")]
    stories: Option<PathBuf>,
    /// How many runs may be spent on making a failed one short
    #[arg(long, value_name = "RUNS", default_value_t = SHRINKING)]
    shrink: u32,
    /// Break rules on purpose, or those whose names hold NAME, one after the other, and see that each is found out
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    mutations: Option<String>,
    /// With --mutations: only every so manieth of the list
    #[arg(long, value_name = "NUMBER", requires = "mutations", default_value = "1")]
    every: NonZeroUsize,
}

fn promise(name: &str) -> Result<Promise, String> {
    Promise::named(name).ok_or_else(|| format!("{name:?} is not a promise"))
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("seeds are given as A..B, or A..+N")?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is not a number"));
    let from = number(from)?;
    let to = match to.strip_prefix('+') {
        Some(count) => from.saturating_add(number(count)?),
        None => number(to)?,
    };
    let seeds = from..to;
    if seeds.is_empty() { Err("there are no seeds in it".into()) } else { Ok(seeds) }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(only) = &args.mutations {
        return run_mutations(args.seeds, Choice { name: only, every: args.every.get() });
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.unwrap_or(cores);
    let began = Instant::now();
    let until = args.until_broken.as_deref();
    let batch = with_progress(args.seeds.clone(), jobs, |outcome| {
        until.is_some_and(|promises| breaks(outcome, promises).is_some())
    });
    if let Some(promises) = until {
        return first_broken(&batch, promises, args.stories.as_deref());
    }
    tell(&batch, began.elapsed().as_secs_f64(), jobs);
    if let Some((seed, outcome)) = batch.failed.first_key_value() {
        tell_failure(&batch, *seed, outcome, args.shrink);
        return ExitCode::FAILURE;
    }
    let missing = batch.never_seen();
    if batch.seeds >= ENOUGH && !missing.is_empty() {
        println!("\nNever seen, so these seeds prove less than they should: {}", missing.join("; "));
        return ExitCode::FAILURE;
    }
    println!("\nNo promise was broken.");
    ExitCode::SUCCESS
}

fn with_progress(seeds: Range<u64>, jobs: usize, ends: impl Fn(&Outcome) -> bool + Sync) -> Batch {
    let bar = if std::io::stderr().is_terminal() {
        let style = "{bar:40} {pos}/{len} seeds, {per_sec}, {eta} to go {msg}";
        let style = ProgressStyle::with_template(style).expect("a template");
        ProgressBar::new(seeds.end - seeds.start).with_style(style)
    } else {
        ProgressBar::hidden()
    };
    let failed = AtomicU64::new(0);
    let batch = run_all(seeds, jobs, |outcome| {
        bar.inc(1);
        if !outcome.broken.is_empty() {
            let failed = failed.fetch_add(1, Ordering::Relaxed) + 1;
            bar.set_message(format!("({failed} failed)"));
        }
        !ends(outcome)
    });
    bar.finish_and_clear();
    batch
}

/// The first promise that a run broke, of these or, if there are none, of all.
fn breaks<'a>(outcome: &'a Outcome, promises: &[Promise]) -> Option<&'a Broken> {
    outcome.broken.iter().find(|broken| promises.is_empty() || promises.contains(&broken.promise))
}

/// For programs that want to know no more: the first seed or story that breaks a promise, which, and how.
fn first_broken(batch: &Batch, promises: &[Promise], stories: Option<&Path>) -> ExitCode {
    let seeds = batch
        .failed
        .iter()
        .find_map(|(seed, outcome)| Some((format!("seed {seed}"), breaks(outcome, promises)?.clone())));
    let first = match (seeds, stories) {
        (None, Some(folder)) => first_story(folder, promises),
        (first, _) => Ok(first),
    };
    match first {
        Ok(Some((name, Broken { promise, how }))) => {
            println!("{name} breaks {}: {}", promise.name(), how.replace('\n', " "));
            ExitCode::FAILURE
        }
        Ok(None) => {
            println!("{} seeds break nothing", batch.seeds);
            ExitCode::SUCCESS
        }
        Err(problem) => {
            println!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// The first story of a folder that breaks one of these promises, or in which not all is seen that it expects.
fn first_story(folder: &Path, promises: &[Promise]) -> Result<Option<(String, Broken)>, String> {
    let texts = texts(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let expected = |broken: &&Broken| broken.promise == Promise::AsExpected;
    for (name, text) in texts {
        let story: Story = text.parse().map_err(|bad| format!("{}/{name}.txt, {bad}", folder.display()))?;
        let outcome = run_plan(&story.plan);
        let broken = breaks(&outcome, promises).or_else(|| outcome.broken.iter().find(expected));
        if let Some(broken) = broken {
            return Ok(Some((format!("story {name}"), broken.clone())));
        }
    }
    Ok(None)
}

/// Runs the mutations, built beside this program.
fn run_mutations(seeds: Range<u64>, choice: Choice<'_>) -> ExitCode {
    let target = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.to_owned()));
    let report = target
        .ok_or_else(|| "nobody knows where this program stands".to_owned())
        .and_then(|target| mutations::run(&target, seeds, choice));
    match report {
        Ok(report) => {
            print!("{report}");
            if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(problem) => {
            println!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn tell(batch: &Batch, seconds: f64, jobs: usize) {
    let hours = batch.simulated.as_secs_f64() / 3_600.0;
    let speed = batch.steps as f64 / seconds / jobs as f64;
    println!("{} seeds, {hours:.1} simulated hours, {} entries", batch.seeds, batch.entries);
    println!("{} steps in {seconds:.1} s, {speed:.0} a second and core", batch.steps);
    println!("{} times only convergence found work", batch.found_by_convergence);
    println!("more than two containers of one ActualLRP ran at once for {:?} at most", batch.crowded);
    println!("\nWhat went wrong on purpose, and what was asked:");
    for (kind, count) in &batch.injected {
        println!("{count:>10} {kind}");
    }
    println!("\nWhat was seen:");
    for situation in Situation::ALL {
        println!("{:>10} {}", batch.coverage.count(*situation), situation.words());
    }
    println!("\nRows of the reconciliation tables that were met:");
    for (row, count) in &batch.rows {
        println!("{count:>10} {row}");
    }
    for row in Row::all().filter(|row| !batch.rows.contains_key(row)) {
        println!(
            "{:>10} {row}{}",
            0,
            row.unreachable_reason().map(|why| format!(": {why}")).unwrap_or_default()
        );
    }
}

/// What happened before the first promise was broken, and right after; the end, if that is when it was seen.
fn around_the_breach(story: &[String]) -> &[String] {
    let breach = story.iter().position(|line| line.contains("BROKEN")).unwrap_or(story.len());
    &story[breach.saturating_sub(LINES)..story.len().min(breach + 5)]
}

fn tell_failure(batch: &Batch, seed: u64, outcome: &Outcome, runs: u32) {
    println!("\n{} of {} seeds broke a promise:", batch.failed.len(), batch.seeds);
    for (seed, outcome) in batch.failed.iter().take(40) {
        println!("  seed {seed}: {}", outcome.broken[0]);
    }
    println!("\nThe shortest that still breaks it, from seed {seed}:\n");
    let (plan, shortest) = shrink::shortest(&Plan::drawn(seed), outcome.broken[0].promise, runs);
    println!("{plan}");
    println!("What then happens:");
    for line in around_the_breach(&shortest.story) {
        println!("{line}");
    }
    for broken in &shortest.broken {
        println!("BROKEN {broken}");
    }
    println!("\nrun it again with: cargo run --release -p simulation -- --seeds {seed}..{}", seed + 1);
}
