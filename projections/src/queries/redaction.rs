//! Redaction of rows for clients that may not read the environment of their domain.

use schemas::query::{LrpRow, ParameterisedRow, PeriodicRow, TaskRow};
use schemas::sight::ReadScope;

pub(super) fn redact_lrp(sight: &ReadScope, row: &mut LrpRow) {
    for definition in row.definitions.values_mut() {
        sight.redact_definition(&row.domain, definition);
    }
}

pub(super) fn redact_task(sight: &ReadScope, row: &mut TaskRow) {
    if let Some(definition) = &mut row.definition {
        sight.redact_task(&row.domain, definition);
    }
}

pub(super) fn redact_periodic(sight: &ReadScope, row: &mut PeriodicRow) {
    if let Some(definition) = &mut row.definition {
        sight.redact_task(&row.domain, definition);
    }
}

pub(super) fn redact_parameterised(sight: &ReadScope, row: &mut ParameterisedRow) {
    if let Some(definition) = &mut row.definition {
        sight.redact_task(&row.domain, definition);
    }
}
