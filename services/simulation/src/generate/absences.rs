//! Commands while a cell is away. Removed and scaled-down instances must not come back with the cell.

use std::time::Duration;

use schemas::names::ProcessGuid;

use crate::act::Act;
use crate::rng::Rng;
use crate::shape::{Node, Shape};
use crate::work::{Ask, Work, domain};

/// Time after which a silent cell is lost.
const KNOWN: Duration = Duration::from_secs(18);
/// Time for which a removed process is remembered.
const REMEMBERED: Duration = Duration::from_secs(600);

/// Draws removals and scale changes during each longer absence in a plan.
pub(crate) fn during(rng: &mut Rng, acts: &[(Duration, Act)]) -> Vec<(Duration, Act)> {
    let mut more = vec![];
    for (at, act) in acts {
        let Some(spare) = absence(act).and_then(|time| time.checked_sub(KNOWN)) else { continue };
        for number in 0..3 {
            if rng.chance(500) {
                let process = guid(&format!("web{number}"));
                more.push((*at + KNOWN + rng.millis(0, millis(spare)), changed_mind(rng, process)));
            }
        }
    }
    more
}

/// Returns the time for which an act takes a cell away.
const fn absence(act: &Act) -> Option<Duration> {
    match act {
        Act::Kill { node: Node::Rep(_), away: time }
        | Act::CutOff { node: Node::Rep(_), time, .. }
        | Act::Pause { node: Node::Rep(_), time }
        | Act::Unheard { time, .. } => Some(*time),
        Act::Kill { .. }
        | Act::CutOff { .. }
        | Act::Pause { .. }
        | Act::Ask { .. }
        | Act::Evacuate(_)
        | Act::Cordon(_)
        | Act::Uncordon(_)
        | Act::Preemption(_)
        | Act::Reshard(_)
        | Act::Retry(..)
        | Act::Forget(_)
        | Act::Lose { .. }
        | Act::Part { .. }
        | Act::Lag { .. }
        | Act::Dark(_)
        | Act::NoHeartbeats(_)
        | Act::Clock { .. }
        | Act::Slow { .. }
        | Act::Sick { .. }
        | Act::Full { .. }
        | Act::Malformed
        | Act::PowerCut { .. } => None,
    }
}

/// Draws a plan with one absent cell, and its time of peace. In some plans the removed processes are
/// forgotten before the cell is back. Their containers then run until the domain is fresh, or until a client
/// removes the process again.
pub(crate) fn drawn(rng: &mut Rng, shape: Shape) -> (Vec<(Duration, Act)>, Duration) {
    let seconds = Duration::from_secs;
    let long = rng.chance(300);
    let cell = rng.place(shape.cells).unwrap_or(0);
    let left = seconds(6);
    let away = if long { REMEMBERED + seconds(60) } else { rng.millis(20_000, 45_000) };
    let back = left + away;
    let mut acts = vec![];
    for number in 0..3 {
        let instances = 1 + u32::try_from(rng.below(4)).unwrap_or(0);
        let ask = Ask::Desire { process: web(number), instances, work: Work::basic() };
        acts.push((rng.millis(1_000, 3_000), request(ask)));
        let changed_at = left + KNOWN + rng.millis(0, if long { 10_000 } else { millis(away - KNOWN) });
        acts.push((changed_at, changed_mind(rng, web(number))));
        if rng.chance(500) {
            acts.push((back + rng.millis(5_000, 30_000), request(Ask::Remove(web(number)))));
        }
    }
    acts.push((left, absent(rng, cell, away)));
    if long {
        // Later decisions on the same subjects let the removed processes be forgotten.
        for number in 0..8 {
            let ask =
                Ask::Desire { process: guid(&format!("late{number}")), instances: 1, work: Work::basic() };
            acts.push((left + KNOWN + seconds(20) + REMEMBERED, request(ask)));
        }
    }
    if rng.chance(300) {
        acts.push((back + rng.millis(10_000, 40_000), request(Ask::Fresh(Some(seconds(60))))));
    }
    acts.sort_by_key(|(at, _)| *at);
    (acts, back + seconds(60))
}

fn absent(rng: &mut Rng, cell: usize, time: Duration) -> Act {
    let node = Node::Rep(cell);
    match rng.below(4) {
        0 => Act::Kill { node, away: time },
        1 => Act::Pause { node, time },
        2 => Act::Unheard { cell, time },
        _ => Act::CutOff { node, time, journal_too: rng.chance(500), notices: rng.chance(500) },
    }
}

fn changed_mind(rng: &mut Rng, process: ProcessGuid) -> Act {
    let instances = u32::try_from(rng.below(3)).unwrap_or(0);
    request(if rng.chance(500) { Ask::Remove(process) } else { Ask::Scale { process, instances } })
}

fn request(ask: Ask) -> Act {
    Act::Ask { domain: domain(), ask, patience: Duration::from_secs(10), answer: None }
}

fn web(number: u64) -> ProcessGuid {
    guid(&format!("web{number}"))
}

fn guid(name: &str) -> ProcessGuid {
    ProcessGuid::new(name).expect("a name")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
