//! Runs of seeds and of directed plans.
//!
//! `MUSTER_SEEDS=A..B` selects other seeds, and `MUSTER_STORY=FILE` stores the log of the first failed seed.

#![expect(clippy::print_stdout, reason = "a run prints its situations")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rep::reconcile::Row;
use simulation::act::Act;
use simulation::batch::{Batch, run_all};
use simulation::coverage::Situation;
use simulation::directed::towards;
use simulation::invariants::Invariant;
use simulation::shape::Node;
use simulation::story::RunEvent;
use simulation::{Outcome, Plan, run, run_plan, run_with};

/// Default seeds.
const SEEDS: Range<u64> = 0..200;

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("MUSTER_SEEDS") else { return SEEDS };
    let (from, to) = text.split_once("..").expect("MUSTER_SEEDS is A..B");
    from.parse().expect("MUSTER_SEEDS is A..B")..to.parse().expect("MUSTER_SEEDS is A..B")
}

/// Runs every seed once, for all tests.
fn batch() -> &'static Batch {
    static BATCH: OnceLock<Batch> = OnceLock::new();
    BATCH.get_or_init(|| {
        let start = Instant::now();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let batch = run_all(seeds(), cores, |_| {});
        println!(
            "{} steps, {:.0} per second",
            batch.steps,
            batch.steps as f64 / start.elapsed().as_secs_f64()
        );
        for situation in Situation::ALL {
            println!("{:>8} {}", batch.coverage.count(*situation), situation.text());
        }
        batch
    })
}

/// Returns the violations of each failed seed, and the end of the log of the first one.
fn report(failed: &BTreeMap<u64, Outcome>) -> String {
    const LINES: usize = 60;
    let Some((seed, first)) = failed.first_key_value() else { return String::new() };
    if let Ok(path) = std::env::var("MUSTER_STORY") {
        let violations = first.violations.iter().map(ToString::to_string);
        let lines: Vec<String> = first.story.iter().cloned().chain(violations).collect();
        std::fs::write(path, lines.join("\n")).expect("MUSTER_STORY can be written");
    }
    let mut text = format!("{} seeds failed:\n", failed.len());
    for (seed, outcome) in failed.iter().take(40) {
        text += &format!("  {seed}: {}\n", outcome.violations[0]);
    }
    let lines = &first.story[first.story.len().saturating_sub(LINES)..];
    let violations: Vec<String> = first.violations.iter().map(ToString::to_string).collect();
    text += &format!("\nviolations of seed {seed}:\n{}\n\n{}", violations.join("\n"), lines.join("\n"));
    text + &format!("\n\nrun it again with: MUSTER_SEEDS={seed}..{} cargo test -p simulation", seed + 1)
}

#[test]
fn seeds_violate_no_invariant() {
    let batch = batch();
    assert!(batch.failed.is_empty(), "{}", report(&batch.failed));
    assert!(batch.idle.is_empty(), "seeds {:?} did nothing", batch.idle);
}

#[test]
fn default_seeds_meet_every_situation() {
    let missing = batch().never_seen();
    assert!(missing.is_empty() || seeds() != SEEDS, "no seed met: {}", missing.join("; "));
}

/// Each reachable row of the reconciliation tables is met by its own plan, without a violation.
#[test]
fn directed_plans_meet_every_reachable_row() {
    const ATTEMPTS: u64 = 30;
    let mut unmet = vec![];
    for row in Row::all().filter(|row| row.unreachable_reason().is_none()) {
        if towards(row, 0).is_none() {
            continue;
        }
        let meets = |attempt| {
            let plan = towards(row, attempt).expect("a plan leads to the row");
            let outcome = run_plan(&plan);
            assert_eq!(outcome.violations, [], "towards {row}, attempt {attempt}:\n{plan}");
            outcome.rows.contains_key(&row)
        };
        if !(0..ATTEMPTS).any(meets) {
            unmet.push(row.to_string());
        }
    }
    assert!(unmet.is_empty(), "no plan meets:\n{}", unmet.join("\n"));
}

/// A journal that acknowledges unsynced entries loses them in a power cut, and the checkers notice that.
#[test]
fn unsynced_journal_violates_an_invariant() {
    let powerless = |seed| {
        let mut plan = Plan::calm(seed);
        plan.shape.synced = false;
        let cut = (Duration::from_secs(20), Act::PowerCut { unsynced: 5 });
        plan.acts.push(cut);
        plan.acts.sort_by_key(|(at, _)| *at);
        plan
    };
    for seed in 0..5 {
        let outcome = run_plan(&powerless(seed));
        let kept = outcome.violations.iter().all(|violation| violation.invariant != Invariant::LogKept);
        assert!(!kept, "seed {seed} lost entries without a violation");
        let mut synced = powerless(seed);
        synced.shape.synced = true;
        assert_eq!(run_plan(&synced).violations, [], "seed {seed}");
    }
}

/// Kills an auctioneer or a BBS when an entry is stored, and while services receive it. Evaluations are partly placed,
/// blocked, unblocked, joined and delayed.
#[test]
fn crash_at_any_step_loses_nothing() {
    const WORK: &str = "at 3s desire web x7 memory=900\n\
                        at 3500ms desire flaky x1 run=300ms exit=1\n\
                        at 4s run task job1 run=1s memory=900 queue=1m\n\
                        at 5s scale web x4\n\
                        at 7s deploy web v2 memory=700 rolls\n\
                        at 9s evacuate c1\n\
                        at 11s remove flaky\n\
                        at 12s desire late x2 memory=1500\n\
                        at 13s remove web\n";
    const LATER_MS: [u64; 3] = [0, 3, 40];
    let plan: Plan = WORK.parse().expect("a plan");
    let mut moments = vec![];
    let calm = run_with(&plan, &mut |at, seen| {
        if let RunEvent::Stored(..) = seen {
            moments.push(at);
        }
    });
    assert_eq!(calm.violations, []);
    for situation in [
        Situation::PartlyPlaced,
        Situation::EvaluationBlocked,
        Situation::CauseJoined,
        Situation::RestartDelayed,
    ] {
        assert!(calm.coverage.count(situation) > 0, "not met: {}", situation.text());
    }
    moments.dedup();
    let nodes = [Node::Bbs(0), Node::Bbs(1), Node::Auctioneer(0), Node::Auctioneer(1)];
    let killed = moments.iter().flat_map(|at| LATER_MS.map(|later| *at + Duration::from_millis(later)));
    let killed: Vec<(Duration, Node)> = killed.flat_map(|at| nodes.map(|node| (at, node))).collect();
    println!("{} moments, {} runs", moments.len(), killed.len());
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((at, node)) = killed.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut plan = plan.clone();
            plan.acts.push((*at, Act::Kill { node: *node, away: Duration::from_millis(1_500) }));
            plan.acts.sort_by_key(|(at, _)| *at);
            let outcome = run_plan(&plan);
            assert_eq!(outcome.violations, [], "{node} is killed at {at:?}:\n{}", outcome.story.join("\n"));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
}

#[test]
fn convergence_finds_no_work_without_faults() {
    for seed in 0..5 {
        let outcome = run_plan(&Plan::calm(seed));
        assert_eq!(outcome.violations, [], "seed {seed}");
        assert_eq!(outcome.found_by_convergence, 0, "seed {seed}");
    }
}

#[test]
fn same_seed_gives_same_run() {
    assert_eq!(run(3), run(3));
}
