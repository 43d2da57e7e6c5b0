//! Real containers, independent of all reports.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::container::{Container, ContainerState, RunResult, WorkKey};
use schemas::names::InstanceGuid;
use schemas::resources::Resources;
use schemas::{ActualLrpKey, Timestamp};
use scripted::{ActionEvent, ActionEventKind, Scripted};

use crate::checkers::Notes;
use crate::coverage::Situation;
use crate::invariants::Invariant as I;

/// Containers so far.
#[derive(Default)]
pub(super) struct Truth {
    /// Work that the log claimed for each container.
    claims: BTreeMap<InstanceGuid, WorkKey>,
    /// Containers whose action runs, each with its work and its cell.
    live: BTreeMap<InstanceGuid, (WorkKey, usize)>,
    started: BTreeSet<InstanceGuid>,
    /// Results of the actions that ended.
    ended: BTreeMap<InstanceGuid, RunResult>,
    /// Results of the containers, including those whose action never started.
    results: BTreeMap<InstanceGuid, RunResult>,
    deleted: BTreeSet<InstanceGuid>,
    started_tasks: BTreeSet<WorkKey>,
    /// Number of running containers of each ActualLRP in all epochs, and the time since which there are more
    /// than two.
    running: BTreeMap<ActualLrpKey, (u32, Option<Timestamp>)>,
    crowded: Duration,
}

impl Truth {
    /// Records that the log claims work for a container.
    pub(super) fn claimed(&mut self, guid: InstanceGuid, work: WorkKey) {
        self.claims.insert(guid, work);
    }

    /// Checks the start or the end of an action on a cell with these resources.
    pub(super) fn happened(
        &mut self,
        event: &ActionEvent,
        (cell, total): (usize, Resources),
        containers: &Scripted,
        notes: &mut Notes,
    ) {
        let ActionEvent { instance_guid: guid, work, at, what } = event;
        match what {
            ActionEventKind::Started => {
                notes.check(I::ClaimedBeforeRun, self.claims.get(guid) == Some(work), || {
                    format!("{work} started in container {guid}, which did not claim it")
                });
                let is_task = matches!(work, WorkKey::Task { .. });
                let once = !is_task || self.started_tasks.insert(work.clone());
                notes.check(I::TaskOnce, once, || format!("{work} started twice"));
                self.started.insert(*guid);
                self.live.insert(*guid, (work.clone(), cell));
                if self.count(work, *at, true) > 1 {
                    notes.met(Situation::Crowd);
                }
            }
            ActionEventKind::Ended(result) => {
                self.ended.insert(*guid, result.clone());
                self.live.remove(guid);
                self.count(work, *at, false);
            }
        }
        // The order to delete an ended container may be lost.
        let is_gone = |one: &Container| {
            matches!(one.state, ContainerState::Completed(_)) && self.deleted.contains(&one.instance_guid)
        };
        let held = containers.list().into_iter().filter(|one| !is_gone(one));
        let used = held.fold(Resources::default(), |sum, one| sum.plus(one.resources));
        notes.check(I::CellHolds, total.fits(used), || format!("the containers of cell {cell} use {used:?}"));
    }

    /// Records a change of a container.
    pub(super) fn changed(&mut self, container: &Container) {
        if let ContainerState::Completed(result) = &container.state {
            self.results.insert(container.instance_guid, result.clone());
        }
    }

    /// Counts a start or an end of a container of an ActualLRP. Returns the number of running containers.
    fn count(&mut self, work: &WorkKey, at: Timestamp, starts: bool) -> u32 {
        let WorkKey::Lrp { key, .. } = work else { return 0 };
        let (count, crowded_since) = self.running.entry(key.clone()).or_default();
        *count = if starts { *count + 1 } else { count.saturating_sub(1) };
        if *count > 2 {
            crowded_since.get_or_insert(at);
        } else if let Some(since) = crowded_since.take() {
            self.crowded = self.crowded.max(at.since(since));
        }
        *count
    }

    /// Records that the machine of a cell died with all its containers.
    pub(super) fn cell_died(&mut self, cell: usize, now: Timestamp) {
        let dead: Vec<InstanceGuid> =
            self.live.iter().filter(|(_, (_, on))| *on == cell).map(|(guid, _)| *guid).collect();
        for guid in dead {
            if let Some((work, _)) = self.live.remove(&guid) {
                self.count(&work, now, false);
            }
        }
    }

    /// Records that a rep deletes a container. Returns `true` the first time.
    pub(super) fn deleted(&mut self, guid: InstanceGuid) -> bool {
        self.deleted.insert(guid)
    }

    pub(super) fn is_deleted(&self, guid: InstanceGuid) -> bool {
        self.deleted.contains(&guid)
    }

    /// Returns the work of a live container.
    pub(super) fn work(&self, guid: InstanceGuid) -> Option<&WorkKey> {
        self.live.get(&guid).map(|(work, _)| work)
    }

    pub(super) fn has_started(&self, guid: InstanceGuid) -> bool {
        self.started.contains(&guid)
    }

    pub(super) fn is_live(&self, guid: InstanceGuid) -> bool {
        self.live.contains_key(&guid)
    }

    /// Returns the result of a container's action.
    pub(super) fn ended(&self, guid: InstanceGuid) -> Option<&RunResult> {
        self.ended.get(&guid)
    }

    /// Returns the result of a container.
    pub(super) fn result(&self, guid: InstanceGuid) -> Option<&RunResult> {
        self.results.get(&guid)
    }

    /// Returns the longest time for which more than two containers of one ActualLRP ran at once.
    pub(super) fn crowded(&self, now: Timestamp) -> Duration {
        let still = self.running.values().filter_map(|(_, since)| *since).map(|since| now.since(since));
        still.chain([self.crowded]).max().unwrap_or_default()
    }
}
