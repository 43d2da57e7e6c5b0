//! Reacting to what happened: what a recorded entry makes the leader tell others, and look at.

use std::collections::BTreeMap;
use std::time::Duration;

use projections::{Change, Due};
use schemas::cell::Seen;
use schemas::container::{Epoch, Instance, WorkKey};
use schemas::entry::{Actor, Aggregate, Event};
use schemas::message::{Dismiss, Heartbeat, Stop};
use schemas::names::{CellId, FolderId, InstanceGuid, ProcessGuid, TaskGuid};
use schemas::subject::{Position, Subject};
use schemas::task::Verdict;
use schemas::{Code, Decision, Entry, Refusal, Timestamp, actual, cell, evacuating, task};

use crate::asking::not_leading;
use crate::callbacks::Called;
use crate::converge;
use crate::machine::{Bbs, Effect};
use crate::presence::Heard;
use crate::shard::{Command, Item};

/// A leader whose follower tells it nothing for so long, while what it decided is on its way, gives way. It is longer
/// than the journal is away when it changes its own leader (4 to 9 s).
const STANDSTILL: Duration = Duration::from_secs(10);

impl Bbs {
    pub(crate) fn react(&mut self, now: Timestamp, entry: &Entry, changes: &[Change], out: &mut Vec<Effect>) {
        if changes.contains(&Change::Cluster) {
            self.follow_leader(now, out);
        }
        if !self.leading {
            return;
        }
        let mut stops: BTreeMap<CellId, Vec<(WorkKey, InstanceGuid)>> = BTreeMap::new();
        for decision in &entry.decisions {
            self.reap(decision);
            for event in &decision.events {
                match event {
                    Event::Actual(actual::Event::StopRequested { indices, .. }) => {
                        if let Aggregate::Process { guid, .. } = &decision.aggregate {
                            for index in indices.iter() {
                                self.gather_stop(guid, index, &mut stops);
                            }
                        }
                    }
                    Event::Task(event) => self.react_to_task(now, decision, event, out),
                    Event::Cell(event) => {
                        if let Aggregate::Cell(cell) = &decision.aggregate {
                            self.react_to_cell(cell, event, out);
                        }
                    }
                    Event::Domain(_) => self.converge_at = self.converge_at.min(now),
                    Event::Desired(_)
                    | Event::Actual(_)
                    | Event::Evacuating(_)
                    | Event::Evaluation(_)
                    | Event::Cluster(_) => {}
                }
            }
        }
        self.send_stops(stops, out);
    }

    fn react_to_cell(&mut self, id: &CellId, event: &cell::Event, out: &mut Vec<Effect>) {
        match event {
            cell::Event::Disappeared { .. } | cell::Event::Left {} => {
                for suspect in converge::of_cell(&self.world, id) {
                    self.look_at(suspect);
                }
                if *event == (cell::Event::Left {}) {
                    self.presence.forget(id);
                }
            }
            cell::Event::EvacuationRequested {} | cell::Event::EvacuationWithdrawn {} => {
                out.extend(self.evacuation_order(id, !self.evacuation_wanted(id)));
            }
            cell::Event::Forgotten {} => self.presence.forget(id),
            cell::Event::Appeared(_)
            | cell::Event::Evacuating {}
            | cell::Event::Resumed {}
            | cell::Event::Healthy {}
            | cell::Event::Unhealthy { .. } => {}
        }
    }

    fn evacuation_wanted(&self, id: &CellId) -> bool {
        self.world.cell(id).is_some_and(|cell| cell.evacuation_wanted)
    }

    /// What a rep has to be told whose cell evacuates, or doesn't, and is wanted to do otherwise.
    fn evacuation_order(&self, id: &CellId, evacuates: bool) -> Option<Effect> {
        let term = self.election.term();
        match (self.world.is_present(id) && self.evacuation_wanted(id), evacuates) {
            (true, false) => Some(Effect::Evacuate(id.clone(), term)),
            (false, true) => Some(Effect::Uncordon(id.clone(), term)),
            (true, true) | (false, false) => None,
        }
    }

    /// What was given to a cell that is lost meanwhile: it was decided before that was known, so nobody else looks at it.
    fn reap(&mut self, decision: &Decision) {
        let suspect = match &decision.aggregate {
            Aggregate::Process { guid, .. } => Due::Process(guid.clone()),
            Aggregate::Task { guid, .. } => Due::Task(guid.clone()),
            Aggregate::Domain(_) | Aggregate::Cell(_) | Aggregate::Cluster => return,
        };
        let lost = |by: &Instance| !self.world.is_present(&by.cell_id);
        if decision.events.iter().filter_map(taken_by).any(lost) {
            self.look_at(suspect);
        }
    }

    pub(crate) fn follow_leader(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        let Some(leader) = self.world.cluster().and_then(|cluster| cluster.bbs.clone()) else { return };
        self.election.follow(Some(&leader), now);
        let leads = self.caught_up && self.election.leads() && !self.stands_still(now);
        if leads == self.leading {
            return;
        }
        self.leading = leads;
        out.push(Effect::Leading(leads));
        if leads {
            self.presence.begin(now);
            self.converge_at = now;
            self.stop_at = now;
            let owed: Vec<_> = self.world.callbacks().cloned().collect();
            for guid in owed {
                let epoch = self.world.task(&guid).map(|task| task.epoch);
                if let Some(epoch) = epoch {
                    self.callbacks.owe(&guid, epoch, now);
                }
            }
        } else {
            self.callbacks.clear();
            self.drop_queues(out);
        }
    }

    /// Whether nothing comes of what it decides. Others may still be able to: it does not beat, so that they try.
    fn stands_still(&mut self, now: Timestamp) -> bool {
        if !self.behind && self.shards.values().all(|shard| shard.flight.is_none()) {
            self.moved_at = now;
        }
        now.since(self.moved_at) >= STANDSTILL
    }

    /// Somebody else leads: what waits is refused, so that it is asked there. What is in flight is settled by the log.
    pub(crate) fn drop_queues(&mut self, out: &mut Vec<Effect>) {
        let queued: Vec<Item> = self.shards.values_mut().flat_map(|shard| shard.queue.drain(..)).collect();
        self.waiting = 0;
        self.ready.clear();
        for item in queued {
            self.settle(&item, Position(0), Err(not_leading()), out);
        }
        self.own.clear();
    }

    pub(crate) fn gather_stop(
        &self,
        guid: &ProcessGuid,
        index: u32,
        stops: &mut BTreeMap<CellId, Vec<(WorkKey, InstanceGuid)>>,
    ) {
        let Some(process) = self.world.process(guid) else { return };
        let Some((lrp, by)) = process.actual(index).and_then(|lrp| lrp.holder().map(|by| (lrp, by))) else {
            return;
        };
        let key = WorkKey::Lrp {
            process_guid: guid.clone(),
            index,
            definition_id: lrp.definition_id.clone(),
            epoch: process.epoch,
        };
        stops.entry(by.cell_id.clone()).or_default().push((key, by.instance_guid));
    }

    pub(crate) fn send_stops(
        &self,
        stops: BTreeMap<CellId, Vec<(WorkKey, InstanceGuid)>>,
        out: &mut Vec<Effect>,
    ) {
        let term = self.election.term();
        for (cell, containers) in stops {
            for containers in containers.chunks(schemas::limits::BATCH) {
                out.push(Effect::Stop(cell.clone(), Stop { term, containers: containers.to_vec() }));
            }
        }
    }

    pub(crate) fn react_to_task(
        &mut self,
        now: Timestamp,
        decision: &Decision,
        event: &task::Event,
        out: &mut Vec<Effect>,
    ) {
        let Aggregate::Task { guid, epoch, .. } = &decision.aggregate else { return };
        match event {
            task::Event::Completed { by, outcome, .. } => {
                let cancelled =
                    matches!(outcome, task::Outcome::Failed { reason } if reason == task::CANCELLED);
                if let Some(by) = by.as_ref().filter(|_| cancelled) {
                    let key = WorkKey::Task { task_guid: guid.clone(), epoch: *epoch };
                    let stop = Stop { term: self.election.term(), containers: vec![(key, by.instance_guid)] };
                    out.push(Effect::Cancel(by.cell_id.clone(), stop));
                }
                self.owe_callback(guid, now);
            }
            task::Event::Demoted {} => {
                self.owe_callback(guid, now);
                self.callbacks.gave_up(guid, now);
            }
            task::Event::Resolving {} => self.call(guid, *epoch, &decision.actor, out),
            task::Event::CallbackTried { called, .. } => {
                if called.verdict() == Verdict::Ended {
                    self.callbacks.forget(guid);
                }
            }
            task::Event::Deleted {} => self.callbacks.forget(guid),
            task::Event::Desired(_) | task::Event::Started { .. } | task::Event::PlacementFailed { .. } => {}
        }
    }

    pub(crate) fn owe_callback(&mut self, guid: &TaskGuid, now: Timestamp) {
        let owed = |task: &task::Task| task.completed().is_some_and(task::Completed::is_owner_called);
        let task = self.world.task(guid).filter(|task| owed(task));
        if let Some(task) = task.filter(|task| task.definition.completion_callback_url.is_some()) {
            self.callbacks.owe(guid, task.epoch, now);
        }
    }

    /// This BBS marked the task RESOLVING: it calls, unless the owner answered before and that is to be recorded.
    pub(crate) fn call(&mut self, guid: &TaskGuid, epoch: Epoch, actor: &Actor, out: &mut Vec<Effect>) {
        if *actor != Actor::Bbs(self.settings.id.clone()) {
            return;
        }
        if let Some(called) = self.callbacks.answer(guid).cloned() {
            return self.record_call(guid, epoch, called);
        }
        let Some(task) = self.world.task(guid).filter(|task| task.epoch == epoch) else { return };
        let url = task.definition.completion_callback_url.as_ref().and_then(|url| url.plain());
        if let (Some(url), Some(done)) = (url, task.completed()) {
            let body = callback_body(task, done);
            out.push(Effect::Call { task: guid.clone(), epoch, url: url.to_owned(), body });
        }
    }

    pub(crate) fn called(&mut self, now: Timestamp, guid: &TaskGuid, epoch: Epoch, called: &Called) {
        if !self.leading || self.world.task(guid).is_none_or(|task| task.epoch != epoch) {
            return;
        }
        match called.verdict() {
            Verdict::Repeat => self.callbacks.came_back(guid, now),
            Verdict::Delivered | Verdict::Ended => self.callbacks.answered(guid, called),
        }
        self.record_call(guid, epoch, called.clone());
    }

    /// A command was not decided: if it was to begin a call, or to end one, that is still owed.
    pub(crate) fn not_called(&mut self, now: Timestamp, command: &Command) {
        if let Command::Task(guid, command) = command
            && match &**command {
                task::Command::BeginResolving => true,
                // A call that is to be repeated is owed already; what came of this one is told with the next.
                task::Command::Called(_, called) => called.verdict() != Verdict::Repeat,
                task::Command::Desire(_)
                | task::Command::Cancel
                | task::Command::Resolve
                | task::Command::Report(_)
                | task::Command::Fail(..)
                | task::Command::Converge => false,
            }
        {
            self.callbacks.came_back(guid, now);
        }
    }

    /// What came of a call goes into the log.
    fn record_call(&mut self, guid: &TaskGuid, epoch: Epoch, called: Called) {
        self.enqueue_own(Command::Task(guid.clone(), Box::new(task::Command::Called(epoch, called))));
    }

    pub(crate) fn heartbeat(&mut self, now: Timestamp, beat: &Heartbeat, out: &mut Vec<Effect>) {
        if !self.leading {
            // It watches nobody, and can say all the same how long ago a cell was heard.
            if self.world.cell(&beat.cell_id).is_some() {
                self.presence.note(beat, now);
            }
            return;
        }
        let folder = beat.presence.folder;
        if let Some(refusal) = self.taken(&beat.cell_id, folder, now) {
            out.push(Effect::Warn(refusal.message));
            return out.push(Effect::Dismiss(beat.cell_id.clone(), Dismiss { folder }));
        }
        let known = self.world.cell(&beat.cell_id).map(|cell| cell.presence.incarnation);
        match self.presence.heard(beat, known, now) {
            Heard::Alive => {
                self.seen(beat);
                out.extend(self.evacuation_order(&beat.cell_id, beat.evacuating));
            }
            Heard::Old => {}
            Heard::Doubtful => out.push(Effect::Probe(beat.cell_id.clone(), self.election.term())),
        }
    }

    pub(crate) fn probe_answered(&mut self, now: Timestamp, cell: &CellId, beat: &Heartbeat) {
        if !self.leading {
            return;
        }
        // Somebody else's answer says nothing of the rep that was asked.
        if self.taken(cell, beat.presence.folder, now).is_some() {
            return self.presence.silent(cell);
        }
        self.presence.answered(beat, now);
        self.seen(beat);
    }

    /// Why a rep with this folder may not speak for the cell: another one does, and lives. It is the one that was
    /// heard last or, where nobody was, the one that the log names, until it is silent for too long.
    pub(crate) fn taken(&self, id: &CellId, folder: FolderId, now: Timestamp) -> Option<Refusal> {
        let of_log = || {
            let known = self.world.cell(id).filter(|known| known.present)?;
            (!self.presence.is_silent(id)).then_some(known.presence.folder)
        };
        let speaks = self.presence.speaks(id, now).or_else(of_log)?;
        (speaks != folder).then(|| cell::taken(id, speaks, folder))
    }

    /// Why reports of a rep with this folder can't be judged: the log names another one for the cell.
    pub(crate) fn is_strange(&self, id: &CellId, folder: FolderId, now: Timestamp) -> Option<Refusal> {
        self.world.cell(id).filter(|known| known.presence.folder != folder)?;
        let behind = || {
            let why =
                format!("the rep with data folder {folder} is not in the log yet as cell {id}: try again");
            Refusal::new(Code::Unavailable, why)
        };
        Some(self.taken(id, folder, now).unwrap_or_else(behind))
    }

    /// A cell lives: what is new of it is recorded, and nobody gives it up any more.
    fn seen(&mut self, beat: &Heartbeat) {
        self.keep(&beat.cell_id);
        let seen = Seen {
            presence: beat.presence.clone(),
            evacuating: beat.evacuating,
            unhealthy: beat.unhealthy.clone(),
        };
        if !cell::decide_seen(self.world.cell(&beat.cell_id), &seen).is_empty() {
            self.enqueue_own(Command::Seen(beat.cell_id.clone(), Box::new(seen)));
        }
    }

    /// Gives up a cell, once.
    pub(crate) fn lose(&mut self, cell: CellId) {
        let known = self.shards.get(&Subject::Cell(cell.clone()));
        let flying = known.and_then(|shard| shard.flight.as_ref()).map(|flight| &flight.items);
        let queued = known.map(|shard| &shard.queue).into_iter().flatten();
        if !flying.into_iter().flatten().chain(queued).any(is_loss) {
            let why = "its heartbeats stopped and a probe was not answered".to_owned();
            self.enqueue_own(Command::Lost(cell, why));
        }
    }

    /// Takes back that a cell is given up, if that waits to be decided.
    fn keep(&mut self, cell: &CellId) {
        if let Some(shard) = self.shards.get_mut(&Subject::Cell(cell.clone())) {
            let before = shard.queue.len();
            shard.queue.retain(|item| !is_loss(item));
            self.waiting -= before - shard.queue.len();
        }
    }
}

/// Whether it is to give up a cell.
pub(crate) fn is_loss(item: &Item) -> bool {
    match &item.command {
        Command::Lost(..) => true,
        Command::Process(..)
        | Command::Task(..)
        | Command::Refresh(..)
        | Command::Seen(..)
        | Command::Left(..)
        | Command::Cell(..)
        | Command::Lead { .. } => false,
    }
}

/// The container that an event puts into a record.
fn taken_by(event: &Event) -> Option<&Instance> {
    match event {
        Event::Actual(actual::Event::Claimed { by, .. } | actual::Event::Started { by, .. })
        | Event::Evacuating(evacuating::Event::Set { by, .. })
        | Event::Task(task::Event::Started { by, .. }) => Some(by),
        Event::Desired(_)
        | Event::Actual(
            actual::Event::Created { .. }
            | actual::Event::Crashed { .. }
            | actual::Event::PlacementFailed { .. }
            | actual::Event::Unclaimed { .. }
            | actual::Event::StopRequested { .. }
            | actual::Event::Removed { .. },
        )
        | Event::Evacuating(evacuating::Event::Removed { .. })
        | Event::Evaluation(_)
        | Event::Task(
            task::Event::Desired(_)
            | task::Event::PlacementFailed { .. }
            | task::Event::Completed { .. }
            | task::Event::Resolving {}
            | task::Event::CallbackTried { .. }
            | task::Event::Demoted {}
            | task::Event::Deleted {},
        )
        | Event::Domain(_)
        | Event::Cell(_)
        | Event::Cluster(_) => None,
    }
}

/// What a completion callback posts, with Diego's field names.
fn callback_body(task: &task::Task, done: &task::Completed) -> String {
    let (failed, reason, result) = match &done.outcome {
        task::Outcome::Succeeded { result } => (false, "", result.as_str()),
        task::Outcome::Failed { reason } => (true, reason.as_str(), ""),
    };
    serde_json::json!({
        "task_guid": task.guid,
        "failed": failed,
        "failure_reason": reason,
        "result": result,
        "annotation": task.definition.annotation,
        "created_at": task.epoch,
    })
    .to_string()
}
