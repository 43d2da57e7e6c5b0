//! Rules for events of periodic and parameterised tasks (docs/internals/model/periodic-tasks.md, "Periodic
//! tasks" and "Parameterised tasks").

use machines::parameterised::Parameterised;
use machines::periodic::Periodic;
use schemas::{parameterised, periodic};

use super::Violation;
use crate::Kind;

/// Checks an event of a periodic task.
pub(super) fn periodic(known: Option<&Periodic>, event: &periodic::Event) -> Option<Violation> {
    let living = known.filter(|known| !known.is_removed());
    let legal = match event {
        periodic::Event::Desired { .. } => living.is_none(),
        periodic::Event::Updated { .. }
        | periodic::Event::Launched { .. }
        | periodic::Event::Skipped { .. }
        | periodic::Event::Removed {} => living.is_some(),
        periodic::Event::Queued { .. } => living.is_some_and(|known| known.queued_due.is_none()),
        periodic::Event::Paused {} => living.is_some_and(|known| !known.paused),
        periodic::Event::Resumed { .. } => living.is_some_and(|known| known.paused),
    };
    let is = known.map_or("absent", Periodic::state_name);
    (!legal).then(|| (Kind::Illegal, format!("the periodic task is {is}: invalid event {event:?}")))
}

/// Checks an event of a parameterised task.
pub(super) fn parameterised(
    known: Option<&Parameterised>,
    event: &parameterised::Event,
) -> Option<Violation> {
    let living = known.is_some_and(|known| !known.is_removed());
    let legal = match event {
        parameterised::Event::Desired { .. } => !living,
        parameterised::Event::Updated { .. }
        | parameterised::Event::Dispatched { .. }
        | parameterised::Event::Repeated { .. }
        | parameterised::Event::Launched { .. }
        | parameterised::Event::Withdrawn { .. }
        | parameterised::Event::Removed {} => living,
    };
    let is = if living { "present" } else { "absent" };
    (!legal).then(|| (Kind::Illegal, format!("the parameterised task is {is}: invalid event {event:?}")))
}
