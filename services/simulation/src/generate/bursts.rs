//! Combinations of faults that rarely occur by chance. The rep's knowledge of an index differs from the log,
//! and then the cell evacuates.

use std::time::Duration;

use schemas::names::{ProcessGuid, TaskGuid};

use crate::act::Act;
use crate::generate::commands;
use crate::rng::Rng;
use crate::shape::{Node, Shape};
use crate::work::{Ask, domain};

/// Draws the acts of a run with bursts, in order.
#[must_use]
pub(crate) fn drawn(
    users: &mut Rng,
    chaos: &mut Rng,
    shape: Shape,
    peace_at: Duration,
) -> Vec<(Duration, Act)> {
    let mut acts = vec![];
    for name in ["web0", "web1"] {
        acts.push((Duration::from_secs(3), request(desire(users, name), Duration::from_secs(30))));
    }
    let mut at = Duration::from_secs(4);
    while at < peace_at {
        acts.push((at, request(asked(users), users.millis(2_000, 30_000))));
        at += users.millis(500, 12_000);
    }
    let mut at = Duration::from_secs(4);
    while at < peace_at {
        acts.extend(burst(chaos, shape).into_iter().map(|(after, act)| (at + after, act)));
        at += chaos.millis(2_000, 30_000);
    }
    acts.retain(|(at, _)| *at < peace_at);
    acts.sort_by_key(|(at, _)| *at);
    acts
}

fn request(ask: Ask, patience: Duration) -> Act {
    Act::Ask { domain: domain(), ask, patience, answer: None }
}

fn desire(rng: &mut Rng, name: &str) -> Ask {
    let process = ProcessGuid::new(name).expect("a name");
    let instances = if rng.chance(500) { 1 } else { 2 };
    Ask::Desire { process, instances, work: commands::troublesome(rng) }
}

/// Draws a command about few processes, whose indices therefore live long.
fn asked(rng: &mut Rng) -> Ask {
    let name = if rng.chance(500) { "web0" } else { "web1" };
    let process = ProcessGuid::new(name).expect("a name");
    let task = TaskGuid::new(if rng.chance(500) { "job0" } else { "job1" }).expect("a name");
    match rng.below(12) {
        0 | 1 => desire(rng, name),
        2 => Ask::Remove(process),
        3 => Ask::Retire(process, 0),
        4 | 5 => Ask::Scale { process, instances: if rng.chance(500) { 1 } else { 3 } },
        6 => Ask::Fresh(Some(rng.millis(1_000, 40_000))),
        7 => Ask::Cancel(task),
        8 => Ask::Resolve(task),
        _ => commands::task_request(rng, task),
    }
}

/// Draws a burst: acts with their delays.
fn burst(rng: &mut Rng, shape: Shape) -> Vec<(Duration, Act)> {
    let one = rng.place(shape.cells).unwrap_or(0);
    let other = (one + 1 + rng.place(shape.cells - 1).unwrap_or(0)) % shape.cells;
    let lost = rng.millis(16_000, 32_000);
    let soon = rng.millis(0, 3_000);
    let now = Duration::ZERO;
    let mut acts = vec![];
    if rng.chance(400) {
        acts.push((now, Act::Slow { cell: one, time: rng.millis(10_000, 60_000) }));
    }
    match rng.below(6) {
        // The rep does not receive the records while other cells run its work, and then evacuates.
        0 => {
            acts.push((now, blind(rng, one, lost)));
            acts.extend(insisting(rng, one, lost));
        }
        // Likewise, and BBSs ignore the messages of the rep.
        1 => {
            acts.push((now, Act::Unheard { cell: one, time: lost }));
            acts.extend(insisting(rng, one, lost));
        }
        // Instances evacuate from one cell to another, and on from there.
        2 => {
            acts.push((now, Act::Evacuate(other)));
            acts.extend(insisting(rng, one, soon));
        }
        // The rep cannot report the instances that it evacuates.
        3 => {
            acts.push((now, Act::Evacuate(one)));
            acts.push((soon, blind(rng, one, lost)));
        }
        // Instances from another cell evacuate without the rep's cell.
        4 => {
            acts.push((now, Act::Evacuate(other)));
            acts.push((soon, blind(rng, one, lost)));
            acts.extend(insisting(rng, one, soon + lost));
        }
        // The rep restarts while it takes over instances from another cell.
        _ => {
            acts.push((now, Act::Evacuate(other)));
            acts.push((soon, Act::Kill { node: Node::Rep(one), away: rng.millis(0, 6_000) }));
            acts.extend(insisting(rng, one, soon + Duration::from_secs(6)));
        }
    }
    acts
}

fn blind(rng: &mut Rng, cell: usize, time: Duration) -> Act {
    Act::CutOff { node: Node::Rep(cell), time, journal_too: false, notices: rng.chance(500) }
}

/// Draws repeated evacuations of a cell. The BBS may not know the cell yet.
fn insisting(rng: &mut Rng, cell: usize, from: Duration) -> Vec<(Duration, Act)> {
    let first = from + rng.millis(10, 500);
    (0..12).map(|turn| (first + Duration::from_millis(500) * turn, Act::Evacuate(cell))).collect()
}
