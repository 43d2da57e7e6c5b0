//! Commands about parameterised tasks. Few keys are used, so that keys are repeated, sometimes with other
//! content.

use std::time::Duration;

use schemas::definition::Overflow;
use schemas::names::{DispatchKey, ParameterisedGuid};
use schemas::priority::Priority;

use crate::act::Act;
use crate::generate::{client_act, competing_acts};
use crate::rng::Rng;
use crate::work::{Ask, Work};

/// Runs with parameterised tasks, per thousand.
const PERMILLE: u64 = 500;

/// Number of parameterised tasks.
const NAMES: u64 = 3;

/// Draws the commands of clients until peace.
#[must_use]
pub(crate) fn drawn(rng: &mut Rng, peace_at: Duration) -> Vec<(Duration, Act)> {
    if !rng.chance(PERMILLE) {
        return vec![];
    }
    let often = [20, 100, 300][usize::try_from(rng.below(3)).unwrap_or(0)];
    let keys = 2 + rng.below(20);
    let begin = Duration::from_millis(1_300);
    let mut acts = vec![];
    for number in 0..NAMES {
        let desire = desire(rng, guid(number), false);
        acts.push((begin, client_act(rng, desire)));
    }
    acts.extend(competing_acts(rng, (begin, peace_at), (often, 150), |rng| asked(rng, keys)));
    acts.retain(|(at, _)| *at < peace_at);
    acts
}

fn guid(number: u64) -> ParameterisedGuid {
    ParameterisedGuid::new(&format!("mill{number}")).expect("a name")
}

fn asked(rng: &mut Rng, keys: u64) -> Ask {
    let guid = guid(rng.below(NAMES));
    match rng.below(40) {
        0..=2 => desire(rng, guid, true),
        3 => Ask::RemoveParameterised(guid),
        4..=6 => desire(rng, guid, false),
        7..=8 => Ask::Withdraw(guid, 1 + rng.below(20)),
        _ => dispatch(rng, guid, keys),
    }
}

fn desire(rng: &mut Rng, parameterised: ParameterisedGuid, update: bool) -> Ask {
    let limit = (!rng.chance(200)).then(|| 1 + u32::try_from(rng.below(3)).unwrap_or(0));
    let overflow = if rng.chance(250) { Overflow::Refused } else { Overflow::Queued };
    Ask::Parameterised { parameterised, update, limit, overflow, work: work(rng) }
}

/// Draws a dispatch. A key mostly has the same content.
fn dispatch(rng: &mut Rng, parameterised: ParameterisedGuid, keys: u64) -> Ask {
    let number = rng.below(keys);
    let key = rng.chance(600).then(|| DispatchKey::new(&format!("key{number}")).expect("a name"));
    let other = if rng.chance(80) { " otherwise" } else { "" };
    let payload = Some(format!("grind {number}{other}")).filter(|_| !number.is_multiple_of(4));
    let colour = Some(format!("colour {number}")).filter(|_| !number.is_multiple_of(3));
    let priority = Priority::new(60).filter(|_| number.is_multiple_of(5));
    Ask::Dispatch { parameterised, key, payload, colour, priority }
}

/// Draws work. Some of it ends at once, and some delays later dispatches.
fn work(rng: &mut Rng) -> Work {
    let run = match rng.below(4) {
        0 => None,
        1 | 2 => Some(rng.millis(500, 8_000)),
        _ => Some(rng.millis(10_000, 25_000)),
    };
    let exit = if rng.chance(200) { 1 } else { 0 };
    Work { run, exit, memory_mb: 64, fails: rng.chance(80), ..Work::basic() }
}
