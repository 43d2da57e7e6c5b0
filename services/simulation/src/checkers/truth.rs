//! What the containers really did, whatever anybody was told of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::container::{Container, ContainerState, NetInfo, RunResult, WorkKey};
use schemas::names::InstanceGuid;
use schemas::resources::Resources;
use schemas::{ActualLrpKey, Timestamp};
use scripted::{ActionEvent, ActionEventKind, Scripted};

use super::Notes;
use crate::coverage::Situation;
use crate::promises::Promise as P;

/// What the containers did so far.
#[derive(Default)]
pub(super) struct Truth {
    /// Containers that the log let in, and for what.
    claims: BTreeMap<InstanceGuid, WorkKey>,
    live: BTreeMap<InstanceGuid, (WorkKey, usize)>,
    started: BTreeSet<InstanceGuid>,
    /// Containers that were ever made.
    known: BTreeSet<InstanceGuid>,
    ended: BTreeMap<InstanceGuid, RunResult>,
    deleted: BTreeSet<InstanceGuid>,
    /// Where the containers that ran were reached.
    nets: BTreeMap<InstanceGuid, NetInfo>,
    /// How containers completed, whether their action ever began or not.
    results: BTreeMap<InstanceGuid, RunResult>,
    tasks: BTreeSet<WorkKey>,
    /// Of each ActualLRP, whatever the life, how many containers run, and since when more than two.
    running: BTreeMap<ActualLrpKey, (u32, Option<Timestamp>)>,
    crowded: Duration,
}

impl Truth {
    /// The log let containers in.
    pub(super) fn claimed(&mut self, claims: Vec<(InstanceGuid, WorkKey)>) {
        self.claims.extend(claims);
    }

    /// An action started or ended on a cell: a task's starts at most once, ever; nothing starts before the log let it
    /// in; a cell never holds more than it has.
    pub(super) fn happened(
        &mut self,
        happened: &ActionEvent,
        cell: usize,
        containers: &Scripted,
        total: Resources,
        notes: &mut Notes,
    ) {
        let ActionEvent { instance_guid, work, at, what } = happened;
        match what {
            ActionEventKind::Started => {
                notes.must(P::ClaimedBeforeRun, self.claims.get(instance_guid) == Some(work), || {
                    format!("{work} started as {instance_guid}, which the log did not let in for that")
                });
                if matches!(work, WorkKey::Task { .. }) {
                    notes.must(P::TaskOnce, self.tasks.insert(work.clone()), || {
                        format!("{work} started twice")
                    });
                }
                self.started.insert(*instance_guid);
                self.live.insert(*instance_guid, (work.clone(), cell));
                if self.count(work, *at, true) > 1 {
                    notes.saw(Situation::Crowd);
                }
            }
            ActionEventKind::Ended(result) => {
                self.ended.insert(*instance_guid, result.clone());
                self.live.remove(instance_guid);
                self.count(work, *at, false);
            }
        }
        // Of what has ended and is to be deleted nothing runs: that order may be lost.
        let leaves = |one: &Container| {
            matches!(one.state, ContainerState::Completed(_)) && self.deleted.contains(&one.instance_guid)
        };
        let there = containers.list().into_iter().filter(|one| !leaves(one));
        let held = there.fold(Resources::default(), |sum, one| sum.plus(one.resources));
        notes.must(P::CellHolds, total.fits(held), || format!("cell {cell} holds {held:?}"));
    }

    /// A container is made.
    pub(super) fn made(&mut self, guid: InstanceGuid) {
        self.known.insert(guid);
    }

    /// A container came to a state.
    pub(super) fn changed(&mut self, container: &Container) {
        match &container.state {
            ContainerState::Running(net) => {
                self.nets.insert(container.instance_guid, net.clone());
            }
            ContainerState::Completed(result) => {
                self.results.insert(container.instance_guid, result.clone());
            }
            ContainerState::Reserved | ContainerState::Initializing | ContainerState::Created => {}
        }
    }

    /// Where a container was reached that ran.
    pub(super) fn net(&self, guid: InstanceGuid) -> Option<&NetInfo> {
        self.nets.get(&guid)
    }

    /// How a container completed.
    pub(super) fn result(&self, guid: InstanceGuid) -> Option<&RunResult> {
        self.results.get(&guid)
    }

    /// One more or one fewer container of an ActualLRP runs. Answers how many do.
    fn count(&mut self, work: &WorkKey, at: Timestamp, starts: bool) -> u32 {
        let WorkKey::Lrp { key, .. } = work else { return 0 };
        let (count, crowded) = self.running.entry(key.clone()).or_default();
        *count = if starts { *count + 1 } else { count.saturating_sub(1) };
        match (*count > 2, *crowded) {
            (true, None) => *crowded = Some(at),
            (false, Some(since)) => {
                self.crowded = self.crowded.max(at.since(since));
                *crowded = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
        *count
    }

    /// A machine died with everything on it.
    pub(super) fn cell_died(&mut self, cell: usize, now: Timestamp) {
        let dead: Vec<InstanceGuid> =
            self.live.iter().filter(|(_, (_, on))| *on == cell).map(|(guid, _)| *guid).collect();
        for guid in dead {
            if let Some((work, _)) = self.live.remove(&guid) {
                self.count(&work, now, false);
            }
        }
    }

    /// Notes that a container is to be deleted, and tells whether that is new.
    pub(super) fn is_first_deletion(&mut self, guid: InstanceGuid) -> bool {
        self.deleted.insert(guid)
    }

    /// Whether a container is to be deleted.
    pub(super) fn is_deleted(&self, guid: InstanceGuid) -> bool {
        self.deleted.contains(&guid)
    }

    /// Whether a container ever came to be.
    pub(super) fn is_known(&self, guid: InstanceGuid) -> bool {
        self.known.contains(&guid)
    }

    /// Whether a container's action ever began.
    pub(super) fn has_started(&self, guid: InstanceGuid) -> bool {
        self.started.contains(&guid)
    }

    /// Whether a container's action runs.
    pub(super) fn is_live(&self, guid: InstanceGuid) -> bool {
        self.live.contains_key(&guid)
    }

    /// How a container's action ended.
    pub(super) fn ended(&self, guid: InstanceGuid) -> Option<&RunResult> {
        self.ended.get(&guid)
    }

    /// The longest time in which more than two containers of one ActualLRP ran at once.
    pub(super) fn crowded(&self, now: Timestamp) -> Duration {
        let still = self.running.values().filter_map(|(_, since)| *since).map(|since| now.since(since));
        still.chain([self.crowded]).max().unwrap_or_default()
    }
}
