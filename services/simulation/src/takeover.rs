//! What a new leader finds (SwarmKit orchestrators, "Initialization"): one pass over the World has to find everything that
//! is due, so a second one emits nothing.
//!
//! In a run much else happens while a new leader looks at everything. So at every change of leader a copy of the new one
//! takes its first pass alone: at one moment, with a journal of its own that takes each entry at once. What is due then is
//! computed for every process and task from what that pass left.

use std::collections::VecDeque;

use bbs::{Bbs, Effect, Input};
use machines::{process, task};
use projections::World;
use schemas::Timestamp;
use schemas::entry::Event;
use schemas::names::{CellId, ProcessGuid, TaskGuid};
use schemas::subject::{Position, Subject};

use super::cluster::Cluster;
use super::invariants::Invariant;
use super::journal::Stored;
use super::nodes::{Machine, Node, NodeEffect};

/// More entries than any first pass needs.
const MOST_ENTRIES: usize = 10_000;

impl Cluster {
    /// If a BBS leads since its last step, which wanted this done, a copy of it takes its first pass. `ticked`: it began to
    /// in that step.
    pub(super) fn look_at_takeover(&mut self, node: Node, wanted: &[NodeEffect], ticked: bool) {
        let begins = |effect: &NodeEffect| matches!(effect, NodeEffect::Bbs(Effect::Leading(true)));
        if !wanted.iter().any(begins) {
            return;
        }
        let place = self.place(node);
        let Some(Machine::Bbs(bbs)) = &place.machine else { return };
        let now = place.clock(self.now);
        let appended = wanted.iter().filter_map(|effect| match effect {
            NodeEffect::Bbs(effect) => append(effect),
            NodeEffect::Auctioneer(_) | NodeEffect::Rep(_) => None,
        });
        let Some(alone) = Alone::new(bbs, now, appended.collect()) else { return };
        if let Err(how) = alone.passes(ticked) {
            self.violated(Invariant::OnePassFinds, format!("{node}: {how}"));
        }
    }
}

/// What an effect appends.
fn append(effect: &Effect) -> Option<Stored> {
    match effect {
        Effect::Append { subject, entry, bytes, .. } => {
            Some(Stored { subject: subject.clone(), entry: Some(*entry), bytes: bytes.clone() })
        }
        Effect::ReadLast(_)
        | Effect::Reply { .. }
        | Effect::AnswerQuery { .. }
        | Effect::Stop(..)
        | Effect::Cancel(..)
        | Effect::Enter(..)
        | Effect::Probe(..)
        | Effect::Evacuate(..)
        | Effect::Uncordon(..)
        | Effect::Dismiss(..)
        | Effect::LeaderHeartbeat(_)
        | Effect::Call { .. }
        | Effect::Publish { .. }
        | Effect::Leading(_)
        | Effect::Subscribed(_)
        | Effect::Quarantined(_)
        | Effect::Warn(_)
        | Effect::Halt(_) => None,
    }
}

/// A copy of a new leader, to which nothing happens but what it does itself.
struct Alone {
    bbs: Bbs,
    now: Timestamp,
    /// What it appended, and was not told of.
    appended: VecDeque<Stored>,
}

impl Alone {
    /// None: something is under way from an earlier time, and what comes of that only the journal knows.
    fn new(bbs: &Bbs, now: Timestamp, appended: VecDeque<Stored>) -> Option<Self> {
        let books = bbs.pending_work();
        let count = |name: &str| books.get(name).copied().unwrap_or_default();
        let earlier =
            count("entries in flight") > appended.len() || count("subjects with unconfirmed answers") > 0;
        (!earlier).then(|| Self { bbs: bbs.clone(), now, appended })
    }

    /// Lets it take its first pass, and computes what is due then.
    ///
    /// # Errors
    /// The pass has no end, or something is due.
    fn passes(mut self, ticked: bool) -> Result<(), String> {
        if !ticked {
            self.step(Input::Tick);
        }
        while self.bbs.is_pass_running() {
            self.step(Input::Tick);
        }
        self.step(Input::Turn);
        let mut entries = 0;
        while let Some(stored) = self.appended.pop_front() {
            entries += 1;
            if entries > MOST_ENTRIES {
                return Err(format!("its first pass is not over after {MOST_ENTRIES} entries"));
            }
            let (position, subject) =
                (Position(self.bbs.world().position().0 + 1), stored.subject.to_string());
            self.step(Input::Delivered { position, subject, entry: stored.entry, bytes: stored.bytes });
            self.step(Input::Turn);
        }
        still_due(self.bbs.world(), self.bbs.time_at(self.now)).map_or(Ok(()), Err)
    }

    fn step(&mut self, input: Input) {
        let effects = self.bbs.step(self.now, input);
        self.appended.extend(effects.iter().filter_map(append));
    }
}

/// The first thing that is due, by a clock that shows `now`.
fn still_due(world: &World, now: Timestamp) -> Option<String> {
    let process = |guid| of_process(world, guid, now).map(|events| format!("process {guid}: {events}"));
    let task = |guid| of_task(world, guid, now).map(|events| format!("task {guid}: {events}"));
    let mut processes = world.processes_from(None).map(|process| &process.guid);
    let mut tasks = world.tasks_from(None).map(|task| &task.guid);
    let unnumbered = || world.lacks_ordinals().then(|| "a cell has no ordinal".to_owned());
    let due = processes.find_map(process).or_else(|| tasks.find_map(task)).or_else(unnumbered);
    due.map(|due| format!("a second pass still finds something due, {due}"))
}

/// What convergence makes of a process. A leader whose clock is behind what the log says looks by its clock for what is
/// due, and decides on it at the time that the log allows: due is only what is so at both.
fn of_process(world: &World, guid: &ProcessGuid, now: Timestamp) -> Option<String> {
    let known = world.process(guid)?;
    let present = |cell: &CellId| world.is_present(cell);
    let known_cell = |cell: &CellId| world.cell(cell).is_some();
    let numbered = |visit: process::CellVisitor<'_>| world.visit_numbered(visit);
    let decide = |now| {
        let fresh = world.is_fresh(&known.domain, now);
        let context = process::Context {
            now,
            is_fresh: fresh,
            is_present: &present,
            is_known: &known_cell,
            for_each_cell: &numbered,
        };
        process::decide(Some(known), &schemas::process::Command::Converge, context).unwrap_or_default()
    };
    let last = world.last_time(&Subject::of_process(guid, world.shards()));
    at_both(now, last, decide)
}

/// What convergence makes of a task.
fn of_task(world: &World, guid: &TaskGuid, now: Timestamp) -> Option<String> {
    let known = world.task(guid)?;
    let present = |cell: &CellId| world.is_present(cell);
    let decide = |now| {
        let context = task::Context { now, is_present: &present };
        task::decide(Some(known), &schemas::task::Command::Converge, context).unwrap_or_default()
    };
    let last = world.last_time(&Subject::of_task(guid, world.shards()));
    at_both(now, last, decide)
}

fn at_both(now: Timestamp, last: Timestamp, decide: impl Fn(Timestamp) -> Vec<Event>) -> Option<String> {
    let (by_clock, by_log) = (decide(now), decide(now.max(last.next())));
    let names = || by_log.iter().map(Event::type_name).collect::<Vec<_>>().join(" ");
    (!by_clock.is_empty() && !by_log.is_empty()).then(names)
}
