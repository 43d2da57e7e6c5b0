//! What of a row is hidden from who may not read the environment of its domain.

use schemas::query::{LrpRow, ParameterisedRow, PeriodicRow, TaskRow};
use schemas::sight::Sight;

pub(super) fn of_lrp(sight: &Sight, row: &mut LrpRow) {
    for definition in row.definitions.values_mut() {
        sight.of_definition(&row.domain, definition);
    }
}

pub(super) fn of_task(sight: &Sight, row: &mut TaskRow) {
    if let Some(definition) = &mut row.definition {
        sight.of_task(&row.domain, definition);
    }
}

pub(super) fn of_periodic(sight: &Sight, row: &mut PeriodicRow) {
    if let Some(definition) = &mut row.definition {
        sight.of_task(&row.domain, definition);
    }
}

pub(super) fn of_parameterised(sight: &Sight, row: &mut ParameterisedRow) {
    if let Some(definition) = &mut row.definition {
        sight.of_task(&row.domain, definition);
    }
}
