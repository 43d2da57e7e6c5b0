//! Plans with hundreds of instances on one cell, large definitions and large results.

use std::time::Duration;

use schemas::names::{ProcessGuid, TaskGuid};

use crate::act::Act;
use crate::rng::Rng;
use crate::work::{Ask, Owner, Work, domain};

/// Plans of this kind, per thousand.
pub(crate) const PERMILLE: u64 = 12;

/// Number of tasks with large results. Their reports do not fit into one message.
const TASKS: u64 = 60;

/// Draws the commands, and the time of peace.
pub(crate) fn drawn(rng: &mut Rng) -> (Vec<(Duration, Act)>, Duration) {
    let seconds = Duration::from_secs;
    let mut acts = vec![];
    match rng.below(3) {
        // More work than one message holds.
        0 => {
            let instances = 501 + u32::try_from(rng.below(20)).unwrap_or(0);
            let process = || ProcessGuid::new("crowd").expect("a name");
            let work = Work { start: seconds(4), memory_mb: 1, ..on_the_last() };
            acts.push((seconds(4), Ask::Desire { process: process(), instances, work }));
            acts.push((seconds(20), Ask::Scale { process: process(), instances: 2 }));
            acts.push((seconds(30), Ask::Remove(process())));
        }
        // Definitions of which few fit into one message.
        1 => {
            let process = || ProcessGuid::new("wide").expect("a name");
            let work = Work { result: text(rng, 100_000), memory_mb: 1, ..on_the_last() };
            acts.push((seconds(4), Ask::Desire { process: process(), instances: 24, work }));
            acts.push((seconds(20), Ask::Remove(process())));
        }
        // Results of which few fit into one message. Quotes take twice their size.
        _ => {
            let result = text(rng, 40_000);
            for number in 0..TASKS {
                let task = TaskGuid::new(&format!("large{number}")).expect("a name");
                let work =
                    Work { run: Some(seconds(4)), result: result.clone(), memory_mb: 1, ..on_the_last() };
                let owner = if number % 4 == 0 { Owner::Well } else { Owner::None };
                acts.push((seconds(4), Ask::Run { task, work, owner, queue: Some(seconds(60)) }));
            }
        }
    }
    let ask = |ask| Act::Ask { domain: domain(), ask, patience: seconds(20), answer: None };
    let mut acts: Vec<_> = acts.into_iter().map(|(at, one)| (at, ask(one))).collect();
    // Reports that wait for the journal are sent together afterwards.
    acts.push((seconds(7), Act::Dark(seconds(6))));
    acts.sort_by_key(|(at, _)| *at);
    (acts, seconds(40))
}

/// Returns small work for the cell with room.
fn on_the_last() -> Work {
    Work { tag: true, ..Work::basic() }
}

/// Returns text with quotes.
fn text(rng: &mut Rng, bytes: usize) -> String {
    let quote = if rng.chance(500) { "\"" } else { "x" };
    let line = format!("{}{quote}", "large ".repeat(3));
    line.repeat(bytes / line.len())
}
