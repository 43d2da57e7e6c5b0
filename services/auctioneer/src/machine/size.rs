//! Upper bounds of message sizes, computed before the messages are encoded.

use std::collections::BTreeMap;

use schemas::codec::{Form, encode};
use schemas::limits;
use schemas::message::WorkDefinition;
use schemas::placement::Explanation;

/// Maximum number of bytes of work items or outcomes in one message. The rest of the message limit is for the
/// other fields.
pub(crate) const MAX_MESSAGE_BYTES: usize = limits::MESSAGE_BYTES - 64 * 1024;

/// Size of the names, numbers and punctuation of one item of work or one outcome.
const HEAD_BYTES: usize = 8 * limits::ID_BYTES;
/// Size of one number with its name.
const FIELD_BYTES: usize = 40;

/// Returns the size of an explanation in bytes.
pub(crate) fn explanation_bytes(explanation: &Explanation) -> usize {
    let best = explanation.best.iter();
    let best: usize =
        best.map(|one| one.cell_id.as_str().len() + one.zone.as_str().len() + 5 * FIELD_BYTES).sum();
    let tried = explanation.eligibility.as_deref().map_or(0, |tried| {
        let classes = tried.eligible.len() + tried.ineligible.len();
        // A control character takes six bytes in JSON.
        5 * FIELD_BYTES + classes * 20 + tried.escaped.iter().map(|name| 6 * name.len()).sum::<usize>()
    });
    2 * FIELD_BYTES + explanation.rejected.len() * FIELD_BYTES + best + tried
}

/// Returns the size of the outcome for an index or task in bytes.
pub(crate) fn outcome_bytes(error: &str) -> usize {
    // A control character takes six bytes in JSON.
    HEAD_BYTES / 2 + 6 * error.len()
}

/// Sizes of definitions in bytes, each measured once.
#[derive(Default)]
pub(crate) struct OrderSizes(BTreeMap<usize, usize>);

impl OrderSizes {
    /// Returns the size of one item of work in bytes. The cache identifies a definition by its address. This
    /// is valid because definitions outlive the cache.
    pub(crate) fn work_bytes(&mut self, order: &WorkDefinition, why: Option<&Explanation>) -> usize {
        let address = match order {
            WorkDefinition::Lrp(definition) => std::sync::Arc::as_ptr(definition).addr(),
            WorkDefinition::Task(definition) => std::sync::Arc::as_ptr(definition).addr(),
        };
        let order = *self.0.entry(address).or_insert_with(|| encode(Form::Json, order).len());
        HEAD_BYTES + order + why.map_or(0, explanation_bytes)
    }
}
