//! What may not be beside its siblings: how many instances of a process are where.

use machines::process::Process;
use projections::WorkRef;
use schemas::entry::{Aggregate, Event};
use schemas::resources::Constraint;
use schemas::{Decision, Entry, actual, rollout};

use super::auction::rank::stay_on;
use super::{Checkers, Notes};
use crate::coverage::Situation;
use crate::nodes::cell_id;
use crate::promises::Promise;
use crate::racks::{self, Limit};

impl Checkers {
    /// Whether a cell may have one more of a process.
    pub(super) fn has_place(&self, work: &WorkRef, constraint: &Constraint, cell: usize) -> bool {
        let WorkRef::Lrp(key) = work else { return true };
        let Some(process) = self.world.process(&key.process_guid) else { return true };
        let limits = racks::limits(constraint, &cell_id(cell));
        limits.iter().all(|limit| self.there(process, limit) < limit.most)
    }

    /// How many instances of a process stay on the cells of a limit.
    fn there(&self, process: &Process, limit: &Limit) -> u32 {
        let cells = self.world.cells().filter(|(id, _)| limit.has(id));
        cells.map(|(id, _)| stay_on(process, id)).sum()
    }

    /// No instance is let in where its definition allows no more of the process. Of the decisions about a process that are in
    /// one entry only the last is judged: what the process is like between two of them isn't known. Nor is it where the same
    /// decision gives up an index of a rollout: what was to be replaced there stays from then on.
    pub(super) fn keeps_apart(&self, entry: &Entry, decision: &Decision, notes: &mut Notes) {
        let Aggregate::Process { guid, .. } = &decision.aggregate else { return };
        let is_of_process =
            |one: &&Decision| matches!(&one.aggregate, Aggregate::Process { guid: of, .. } if of == guid);
        let is_last = entry.decisions.iter().rfind(is_of_process).is_some_and(|last| last.id == decision.id);
        let Some(process) = self.world.process(guid).filter(|_| is_last) else { return };
        let stalls = |event: &Event| matches!(event, Event::Rollout(rollout::Event::Stalled { .. }));
        let is_whole = !decision.events.iter().any(stalls);
        for event in &decision.events {
            if let Event::Actual(actual::Event::PlacementFailed { error, .. }) = event {
                if error.contains("constraint distinct_") {
                    notes.saw(Situation::Crowded);
                } else if error.contains("constraint rack") {
                    notes.saw(Situation::RuleUnmet);
                } else if error.contains(": isolation (") {
                    notes.saw(Situation::WallsLacking);
                }
            }
            let Event::Actual(actual::Event::Claimed { place, by, .. }) = event else { continue };
            let desired = process.desired.as_ref();
            let definition = desired.and_then(|desired| desired.definition(&place.definition_id));
            let Some(definition) = definition else { continue };
            for limit in racks::limits(&definition.constraint, &by.cell_id) {
                let there = self.there(process, &limit);
                notes.must(Promise::KeptApart, there <= limit.most || !is_whole, || {
                    format!("{guid}/{} is let in on {}, and {there} are there", place.index, by.cell_id)
                });
            }
        }
    }
}
