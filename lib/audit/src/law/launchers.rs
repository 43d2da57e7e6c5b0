//! What may happen to periodic and parameterised tasks (docs/model.md, "Periodic tasks" and "Parameterised tasks").

use schemas::parameterised::{self, Parameterised};
use schemas::periodic::{self, Periodic};

use super::Wrong;
use crate::Kind;

/// What is wrong with what happens to a periodic task.
pub(super) fn periodic(known: Option<&Periodic>, event: &periodic::Event) -> Option<Wrong> {
    let living = known.filter(|known| !known.is_gone());
    let legal = match event {
        periodic::Event::Desired { .. } => living.is_none(),
        periodic::Event::Updated { .. }
        | periodic::Event::Launched { .. }
        | periodic::Event::Skipped { .. }
        | periodic::Event::Removed {} => living.is_some(),
        periodic::Event::Queued { .. } => living.is_some_and(|known| known.waits.is_none()),
        periodic::Event::Paused {} => living.is_some_and(|known| !known.paused),
        periodic::Event::Resumed { .. } => living.is_some_and(|known| known.paused),
    };
    let is = known.map_or("not there", Periodic::state_name);
    (!legal).then(|| (Kind::Illegal, format!("it is {is}: {event:?}")))
}

/// What is wrong with what happens to a parameterised task.
pub(super) fn parameterised(known: Option<&Parameterised>, event: &parameterised::Event) -> Option<Wrong> {
    let living = known.is_some_and(|known| !known.is_gone());
    let legal = match event {
        parameterised::Event::Desired { .. } => !living,
        parameterised::Event::Updated { .. }
        | parameterised::Event::Dispatched { .. }
        | parameterised::Event::Repeated { .. }
        | parameterised::Event::Launched { .. }
        | parameterised::Event::Withdrawn { .. }
        | parameterised::Event::Removed {} => living,
    };
    let is = if living { "there" } else { "not there" };
    (!legal).then(|| (Kind::Illegal, format!("it is {is}: {event:?}")))
}
