//! How large messages become, before they are written: never too small.

use std::collections::BTreeMap;

use schemas::codec::{Form, encode};
use schemas::limits;
use schemas::message::Order;
use schemas::placement::Explanation;

/// Most bytes of work or outcomes in one message: what is around them has room in the rest.
pub(crate) const MESSAGE: usize = limits::MESSAGE_BYTES - 64 * 1024;

/// Names, numbers and punctuation of one piece of work or one outcome.
const HEAD: usize = 8 * limits::ID_BYTES;
/// One number with its name.
const FIELD: usize = 40;

/// The bytes of an explanation.
pub(crate) fn explanation(explanation: &Explanation) -> usize {
    let best = explanation.best.iter();
    let best: usize = best.map(|one| one.cell_id.as_str().len() + one.zone.as_str().len() + 5 * FIELD).sum();
    let tried = explanation.eligibility.as_deref().map_or(0, |tried| {
        let classes = tried.eligible.len() + tried.ineligible.len();
        // A control character takes six bytes as JSON.
        5 * FIELD + classes * 20 + tried.escaped.iter().map(|name| 6 * name.len()).sum::<usize>()
    });
    2 * FIELD + explanation.passed_over.len() * FIELD + best + tried
}

/// The bytes of an index or a task that could not be placed.
pub(crate) fn outcome(error: &str) -> usize {
    // A control character takes six bytes as JSON.
    HEAD / 2 + 6 * error.len()
}

/// The bytes of definitions, each measured once.
#[derive(Default)]
pub(crate) struct Orders(BTreeMap<usize, usize>);

impl Orders {
    /// The bytes of one piece of work. The order outlives this memory, so its address names it.
    pub(crate) fn work(&mut self, order: &Order, why: Option<&Explanation>) -> usize {
        let address = match order {
            Order::Lrp(definition) => std::sync::Arc::as_ptr(definition).addr(),
            Order::Task(definition) => std::sync::Arc::as_ptr(definition).addr(),
        };
        let order = *self.0.entry(address).or_insert_with(|| encode(Form::Json, order).len());
        HEAD + order + why.map_or(0, explanation)
    }
}
