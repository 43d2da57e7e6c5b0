//! Commands about periodic tasks. The shortest interval is a minute, so in some runs launched tasks are slow
//! enough to overlap.

use std::time::Duration;

use schemas::definition::Overlap;
use schemas::names::PeriodicGuid;
use schemas::spec::PeriodicAction;

use crate::act::Act;
use crate::generate::{client_act, competing_acts};
use crate::rng::Rng;
use crate::shape::{Node, Shape};
use crate::work::{Ask, Often, Work};

/// Runs with periodic tasks, per thousand.
const PERMILLE: u64 = 500;

/// Number of periodic tasks.
const NAMES: u64 = 3;

/// Runs with periodic tasks in which all BBSs are down for a while, per thousand.
const DOWNTIME_PERMILLE: u64 = 120;

/// Draws a downtime of all BBSs that delays launches, and the time of peace.
#[must_use]
pub(crate) fn downtime(
    rng: &mut Rng,
    shape: Shape,
    acts: &[(Duration, Act)],
    begins: Duration,
) -> Option<(Vec<(Duration, Act)>, Duration)> {
    let some = acts.iter().any(|(_, act)| matches!(act, Act::Ask { ask: Ask::Periodic { .. }, .. }));
    if !some || !rng.chance(DOWNTIME_PERMILLE) {
        return None;
    }
    let away = rng.millis(70_000, 200_000);
    let kills = (0..shape.bbss).map(|bbs| (begins, Act::Kill { node: Node::Bbs(bbs), away }));
    Some((kills.collect(), begins + away))
}

/// Draws the commands of clients until peace.
#[must_use]
pub(crate) fn drawn(rng: &mut Rng, peace_at: Duration) -> Vec<(Duration, Act)> {
    if !rng.chance(PERMILLE) {
        return vec![];
    }
    let often = [10, 40, 120][usize::try_from(rng.below(3)).unwrap_or(0)];
    let begin = Duration::from_secs(1);
    let mut acts = vec![];
    for number in 0..NAMES {
        let desire = desire(rng, guid(number), false);
        acts.push((begin, client_act(rng, desire)));
    }
    acts.extend(competing_acts(rng, (begin, peace_at), (often, 100), asked));
    acts.retain(|(at, _)| *at < peace_at);
    acts
}

fn guid(number: u64) -> PeriodicGuid {
    PeriodicGuid::new(&format!("clock{number}")).expect("a name")
}

fn asked(rng: &mut Rng) -> Ask {
    let guid = guid(rng.below(NAMES));
    match rng.below(16) {
        0..=3 => desire(rng, guid, true),
        4 => Ask::OfPeriodic(guid, PeriodicAction::Pause),
        5..=7 => Ask::OfPeriodic(guid, PeriodicAction::Resume),
        8..=10 => Ask::OfPeriodic(guid, PeriodicAction::Launch),
        11 => Ask::OfPeriodic(guid, PeriodicAction::Remove),
        _ => desire(rng, guid, false),
    }
}

fn desire(rng: &mut Rng, periodic: PeriodicGuid, update: bool) -> Ask {
    let overlap = match rng.below(3) {
        0 => Overlap::Allowed,
        1 => Overlap::Skipped,
        _ => Overlap::Queued,
    };
    let often = if rng.chance(750) { Often::Minute } else { Often::TwoMinutes };
    Ask::Periodic { periodic, update, often, overlap, work: work(rng) }
}

/// Draws work. Some of it still runs when the next launch is due.
fn work(rng: &mut Rng) -> Work {
    let run = match rng.below(6) {
        0 => None,
        1 | 2 => Some(rng.millis(500, 20_000)),
        _ => Some(rng.millis(50_000, 95_000)),
    };
    let exit = if rng.chance(200) { 1 } else { 0 };
    Work { run, exit, memory_mb: 64, fails: rng.chance(80), ..Work::basic() }
}
