//! Which places of a process are desired: one at each index below the number of instances.

use crate::actual::{Actual, State};
use crate::desired::Desired;
use crate::key::Place;
use crate::names::DefinitionId;

/// Whether an instance is desired at a place, given the instances that are at its index.
pub(super) fn wants<'a>(
    desired: &'a Desired,
    place: &Place,
    there: impl Iterator<Item = (&'a Place, &'a Actual)>,
) -> bool {
    place.index < desired.instances && *definition_at(desired, there) == place.definition_id
}

/// The definition that an index below the number of instances is to run, given the instances that are there: what runs
/// or is being started stays; everything else starts with the definition that is known to work.
pub(super) fn definition_at<'a>(
    desired: &'a Desired,
    there: impl Iterator<Item = (&'a Place, &'a Actual)>,
) -> &'a DefinitionId {
    let restarts_with = desired.restart_definition_id();
    let kept = there.filter_map(|(place, lrp)| {
        let known = desired.definition(&place.definition_id).is_some();
        let rank = rank(lrp).filter(|_| known)?;
        Some((rank, place.definition_id == *restarts_with, &place.definition_id))
    });
    kept.max_by_key(|(rank, restarts_with, _)| (*rank, *restarts_with)).map_or(restarts_with, |(.., id)| id)
}

/// How much there is to lose of an instance: RUNNING above CLAIMED. What is on no cell, or about to leave it, is nothing
/// to keep.
fn rank(lrp: &Actual) -> Option<u8> {
    match lrp.state {
        State::Running { stopping: false, .. } => Some(1),
        State::Claimed { stopping: false, .. } => Some(0),
        State::Running { stopping: true, .. }
        | State::Claimed { stopping: true, .. }
        | State::Unclaimed { .. }
        | State::Crashed => None,
    }
}
