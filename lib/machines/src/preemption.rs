//! Rules for the stop of work that makes room for more urgent work.

use std::fmt;

use schemas::names::TaskGuid;
use schemas::preemption::Preemptor;
use schemas::priority::Priority;
use schemas::refusal::{Code, Refusal};

/// Minimum difference in priority between a victim and its preemptor.
pub const MIN_PRIORITY_GAP: u8 = 10;

/// Returns `true` if work with priority `priority` may be stopped for work with priority `to`.
#[must_use]
pub fn is_preemptible_by(priority: Priority, to: Priority) -> bool {
    u8::from(priority).saturating_add(MIN_PRIORITY_GAP) <= u8::from(to)
}

/// Checks that work of this priority may be preempted.
///
/// # Errors
/// `ResourceConflict` if the priority is too high.
pub(crate) fn check_priority(preemptor: &Preemptor, priority: Priority) -> Result<(), Refusal> {
    if is_preemptible_by(priority, preemptor.priority) {
        return Ok(());
    }
    let why = format!(
        "its priority is {priority}: only work at least {MIN_PRIORITY_GAP} below priority {} is \
         preempted",
        preemptor.priority
    );
    Err(Refusal::new(Code::ResourceConflict, why))
}

/// Returns the refusal of an eviction whose work has changed since the auctioneer judged it.
pub(crate) fn stale_eviction(what: impl fmt::Display) -> Refusal {
    Refusal::new(Code::StaleRecord, format!("{what} has changed since the auctioneer judged it"))
}

/// Returns the name of a task for a refusal.
pub(crate) fn task_label(guid: &TaskGuid) -> String {
    format!("task {guid}")
}
