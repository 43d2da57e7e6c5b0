//! First convergence pass of a new leader (SwarmKit orchestrators, "Initialization").
//!
//! The pass must find all due work, so a second pass emits nothing. At every change of leader, a copy of the
//! new leader takes its first pass alone, at one moment, with its own journal. The checker then computes the
//! due work of every process and task from the result.

use std::collections::VecDeque;

use bbs::{Bbs, Effect, Input};
use machines::{process, task};
use projections::World;
use schemas::Timestamp;
use schemas::entry::Event;
use schemas::names::{CellId, ProcessGuid, TaskGuid};
use schemas::subject::{Position, Subject};

use crate::cluster::Cluster;
use crate::invariants::Invariant;
use crate::journal::Stored;
use crate::machine::{Machine, NodeEffect};
use crate::shape::Node;

/// Maximum number of entries of a first pass.
const MOST_ENTRIES: usize = 10_000;

impl Cluster {
    /// Lets a copy of a new leader take its first pass. `ticked`: the pass began in the last step.
    pub(crate) fn check_takeover(&mut self, node: Node, wanted: &[NodeEffect], ticked: bool) {
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

/// Returns the message that an effect appends.
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

/// Copy of a new leader without other inputs.
struct Alone {
    bbs: Bbs,
    now: Timestamp,
    /// Appended messages that were not delivered to the copy.
    appended: VecDeque<Stored>,
}

impl Alone {
    /// Returns `None` if earlier work is pending, whose result only the real journal has.
    fn new(bbs: &Bbs, now: Timestamp, appended: VecDeque<Stored>) -> Option<Self> {
        let books = bbs.pending_work();
        let count = |name: &str| books.get(name).copied().unwrap_or_default();
        let earlier =
            count("entries in flight") > appended.len() || count("subjects with unconfirmed answers") > 0;
        (!earlier).then(|| Self { bbs: bbs.clone(), now, appended })
    }

    /// Takes the first pass, and computes the due work after it.
    ///
    /// # Errors
    /// The pass does not end, or work is due.
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

/// Returns due work at a time.
fn still_due(world: &World, now: Timestamp) -> Option<String> {
    let process = |guid| of_process(world, guid, now).map(|events| format!("process {guid}: {events}"));
    let task = |guid| of_task(world, guid, now).map(|events| format!("task {guid}: {events}"));
    let mut processes = world.processes_from(None).map(|process| &process.guid);
    let mut tasks = world.tasks_from(None).map(|task| &task.guid);
    let unnumbered = || world.lacks_ordinals().then(|| "a cell has no ordinal".to_owned());
    let due = processes.find_map(process).or_else(|| tasks.find_map(task)).or_else(unnumbered);
    due.map(|due| format!("a second pass still finds something due, {due}"))
}

/// Returns what convergence changes in a process. The leader searches by its clock and decides at the time of
/// the log, so work is due only if it is due at both times.
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

/// Returns what convergence changes in a task.
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
