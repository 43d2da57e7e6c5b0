//! The one-thread test: seeds in, broken promises out.
//!
//! `MUSTER_SEEDS=A..B` runs other seeds than the usual ones, `MUSTER_STORY=FILE` keeps the story of the first that fails.

#![expect(clippy::print_stdout, reason = "a run says what it saw")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rep::reconcile::Row;
use simulation::batch::{Batch, run_all};
use simulation::coverage::Situation;
use simulation::directed::towards;
use simulation::nodes::Node;
use simulation::plan::Act;
use simulation::promises::Promise;
use simulation::story::Seen;
use simulation::{Outcome, Plan, run, run_plan, run_told};

/// Seeds of every run.
const USUAL: Range<u64> = 0..200;
/// Seeds that show what one in some hundreds does: that convergence stops what nobody desires.
const RARE: [u64; 1] = [976];
/// Plan for what few seeds do: dispatches that wait are withdrawn by a client, and with their template.
const WITHDRAWN: &str = "at 3s desire parameterised mill limit=1 run=8s\n\
                         at 4s dispatch mill\n\
                         at 5s dispatch mill\n\
                         at 6s withdraw mill 3\n\
                         at 7s dispatch mill\n\
                         at 8s remove parameterised mill\n";

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("MUSTER_SEEDS") else { return USUAL };
    let (from, to) = text.split_once("..").expect("MUSTER_SEEDS is A..B");
    from.parse().expect("MUSTER_SEEDS is A..B")..to.parse().expect("MUSTER_SEEDS is A..B")
}

/// Runs every seed once, whichever test asks first.
fn shown() -> &'static Batch {
    static SHOWN: OnceLock<Batch> = OnceLock::new();
    SHOWN.get_or_init(|| {
        let began = Instant::now();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shown = run_all(seeds(), cores, |_| {});
        let seconds = began.elapsed().as_secs_f64();
        println!("{} steps, {:.0} a second", shown.steps, shown.steps as f64 / seconds);
        println!("{} times only convergence found work", shown.found_by_convergence);
        println!("more than two containers of one ActualLRP ran at once for {:?} at most", shown.crowded);
        for situation in Situation::ALL {
            println!("{:>8} {}", shown.coverage.count(*situation), situation.words());
        }
        shown
    })
}

/// The promises that were broken by how many seeds, the end of the first story, and how to run it again.
fn told(failed: &BTreeMap<u64, Outcome>) -> String {
    const LINES: usize = 60;
    let Some((seed, first)) = failed.first_key_value() else { return String::new() };
    if let Ok(path) = std::env::var("MUSTER_STORY") {
        let broken = first.broken.iter().map(ToString::to_string);
        let whole: Vec<String> = first.story.iter().cloned().chain(broken).collect();
        std::fs::write(path, whole.join("\n")).expect("MUSTER_STORY can be written");
    }
    let mut text = format!("{} seeds failed:\n", failed.len());
    for (seed, outcome) in failed.iter().take(40) {
        text += &format!("  {seed}: {}\n", outcome.broken[0]);
    }
    let story = &first.story[first.story.len().saturating_sub(LINES)..];
    let broken: Vec<String> = first.broken.iter().map(ToString::to_string).collect();
    text += &format!("\nseed {seed} broke:\n{}\n\n{}", broken.join("\n"), story.join("\n"));
    text + &format!("\n\nrun it again with: MUSTER_SEEDS={seed}..{} cargo test -p simulation", seed + 1)
}

#[test]
fn lrps_and_tasks_end_up_right_whatever_is_lost() {
    let shown = shown();
    assert!(shown.failed.is_empty(), "{}", told(&shown.failed));
    assert!(shown.idle.is_empty(), "seeds {:?} did nothing", shown.idle);
}

#[test]
fn everything_interesting_happens() {
    let mut coverage = shown().coverage.clone();
    for seed in RARE {
        let outcome = run(seed);
        assert_eq!(outcome.broken, [], "seed {seed}");
        coverage.add(&outcome.coverage);
    }
    let withdrawn = run_plan(&WITHDRAWN.parse().expect("a plan"));
    assert_eq!(withdrawn.broken, []);
    for situation in [Situation::DispatchWithdrawn, Situation::DispatchGivenUp] {
        assert!(withdrawn.coverage.count(situation) > 0, "never seen: {}", situation.words());
    }
    coverage.add(&withdrawn.coverage);
    let missing: Vec<&str> = coverage.missing().map(Situation::words).collect();
    assert!(missing.is_empty() || seeds() != USUAL, "never seen: {}", missing.join("; "));
}

/// Each row of the reconciliation tables to which a road leads is met, by a plan of its own; none of these plans breaks a
/// promise.
#[test]
fn every_row_is_met_that_can_be() {
    const ATTEMPTS: u64 = 30;
    let mut unmet = vec![];
    for row in Row::all().filter(|row| row.unreachable_reason().is_none()) {
        if towards(row, 0).is_none() {
            continue;
        }
        let meets = |attempt| {
            let plan = towards(row, attempt).expect("a plan leads to the row");
            let outcome = run_plan(&plan);
            assert_eq!(outcome.broken, [], "towards {row}, attempt {attempt}:\n{plan}");
            outcome.rows.contains_key(&row)
        };
        if !(0..ATTEMPTS).any(meets) {
            unmet.push(row.to_string());
        }
    }
    assert!(unmet.is_empty(), "no plan meets any more:\n{}", unmet.join("\n"));
}

/// A journal that acknowledges what is not on disk loses acknowledged commands when the power is cut: the checkers see
/// it.
#[test]
fn a_journal_that_does_not_sync_breaks_promises() {
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
        let kept = outcome.broken.iter().all(|broken| broken.promise != Promise::LogKept);
        assert!(!kept, "seed {seed} lost entries and nobody saw it");
        let mut synced = powerless(seed);
        synced.shape.synced = true;
        assert_eq!(run_plan(&synced).broken, [], "seed {seed}");
    }
}

/// An auctioneer or a BBS dies at every step of what becomes of some work: the moment an entry is in the log, while it is
/// told, and when everybody knows it. Evaluations are partly placed, blocked, unblocked, joined and delayed.
#[test]
fn a_crash_at_any_step_loses_nothing() {
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
    let calm = run_told(&plan, &mut |at, seen| {
        if let Seen::Stored(..) = seen {
            moments.push(at);
        }
    });
    assert_eq!(calm.broken, []);
    for situation in [
        Situation::PartlyPlaced,
        Situation::EvaluationBlocked,
        Situation::BlockedWorkPlaced,
        Situation::CauseJoined,
        Situation::RestartDelayed,
    ] {
        assert!(calm.coverage.count(situation) > 0, "never seen: {}", situation.words());
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
            assert_eq!(outcome.broken, [], "{node} is killed at {at:?}:\n{}", outcome.story.join("\n"));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
}

#[test]
fn convergence_finds_nothing_where_nothing_goes_wrong() {
    for seed in 0..5 {
        let outcome = run_plan(&Plan::calm(seed));
        assert_eq!(outcome.broken, [], "seed {seed}");
        assert_eq!(outcome.found_by_convergence, 0, "seed {seed}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run(3), run(3));
}
