//! Periodic tasks: what the schedule names is launched once each, and nothing of it is lost.
//!
//! When something is due is computed here, by counting minutes: the schedules of a run are of that kind, and the zones'
//! offsets are whole multiples of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::container::Epoch;
use schemas::definition::Overlap;
use schemas::entry::{Aggregate, Event};
use schemas::names::{PeriodicGuid, TaskGuid};
use schemas::periodic::{self, LaunchReason, SkipReason};
use schemas::stamp::Actor;
use schemas::{Decision, Entry, Timestamp, task};

use super::due::Thing;
use super::{Checkers, Notes};
use crate::coverage::Situation;
use crate::promises::Promise as P;

/// docs/internals/model/periodic-tasks.md, "Periodic tasks": what is launched so long after it was due is a catch-up.
const LATE: Duration = Duration::from_secs(60);

/// What is true of all of them, by the log.
#[derive(Default)]
pub(super) struct Periodics {
    all: BTreeMap<PeriodicGuid, Periodic>,
    /// What was launched and is PENDING or RUNNING.
    live: BTreeSet<TaskGuid>,
}

/// What is true of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Periodic {
    epoch: Epoch,
    version: u64,
    /// How often it is due, and what becomes of it while an earlier one runs; none: nobody desires it.
    desired: Option<(Duration, Overlap)>,
    paused: bool,
    /// The first moment that nothing was decided about yet; none: it launches nothing.
    next: Option<Timestamp>,
    waits: Option<Timestamp>,
    /// Every task that it ever launched.
    launched: BTreeSet<TaskGuid>,
}

/// The first moment after another one that is due.
fn after(often: Duration, at: Timestamp) -> Timestamp {
    let often = u64::try_from(often.as_nanos()).unwrap_or(u64::MAX);
    Timestamp((at.0 / often + 1) * often)
}

/// How often a schedule of a run is due.
fn often(cron: &str) -> Duration {
    let minutes = cron.strip_prefix("*/").and_then(|rest| rest.split(' ').next()?.parse().ok());
    Duration::from_secs(60 * minutes.unwrap_or(1))
}

impl Periodics {
    /// Takes an entry in, and says what is wrong with it.
    pub(super) fn entry(&mut self, entry: &Entry, notes: &mut Notes) {
        for (at, decision) in entry.decisions.iter().enumerate() {
            match &decision.aggregate {
                Aggregate::Periodic { guid, epoch, .. } => {
                    self.judge(guid, *epoch, decision, &entry.decisions[at + 1..], notes);
                }
                Aggregate::Task { guid, .. } => self.task(guid, decision, entry, notes),
                Aggregate::Parameterised { .. }
                | Aggregate::Process { .. }
                | Aggregate::Domain(_)
                | Aggregate::Cell(_)
                | Aggregate::Cluster => {}
            }
        }
    }

    fn task(&mut self, guid: &TaskGuid, decision: &Decision, entry: &Entry, notes: &mut Notes) {
        let Some(periodic) = guid.launching_periodic() else { return };
        for event in &decision.events {
            let Event::Task(event) = event else { continue };
            match event {
                task::Event::Desired(_) => {
                    let says = |event: &Event| matches!(event, Event::Periodic(periodic::Event::Launched { task_guid, .. }) if task_guid == guid);
                    let by = entry.decisions.iter().find(|one| one.events.iter().any(says));
                    let right = by.is_some_and(|by| decision.cause == Some(by.id));
                    let same =
                        by.is_some_and(|by| by.actor == decision.actor && by.reason == decision.reason);
                    notes.must(P::SaysWhoAndWhy, same, || {
                        format!("{guid} is launched by {:?}, because {:?}", decision.actor, decision.reason)
                    });
                    notes.must(P::LaunchedOnce, right, || {
                        format!("{guid} is desired, and no launch in the same entry is its cause")
                    });
                    self.live.insert(guid.clone());
                }
                task::Event::Completed { .. } => {
                    self.live.remove(guid);
                    let waits = self.all.get(&periodic).is_some_and(|known| known.waits.is_some());
                    if waits {
                        notes.saw(Situation::QueuedLaunchFreed);
                    }
                }
                task::Event::Started { .. }
                | task::Event::PlacementFailed { .. }
                | task::Event::Resolving {}
                | task::Event::CallbackTried { .. }
                | task::Event::Demoted {}
                | task::Event::Deleted {} => {}
            }
        }
    }

    fn runs(&self, guid: &PeriodicGuid) -> bool {
        self.live.iter().any(|task| task.launching_periodic().as_ref() == Some(guid))
    }

    fn judge(
        &mut self,
        guid: &PeriodicGuid,
        epoch: Epoch,
        decision: &Decision,
        behind: &[Decision],
        notes: &mut Notes,
    ) {
        let mut runs = self.runs(guid);
        let known = self.all.entry(guid.clone()).or_default();
        known.version = decision.version;
        for event in decision.events.iter().filter_map(Event::as_periodic) {
            let before = known.clone();
            let right = known.take(guid, event, decision, &mut runs, notes);
            notes.must(promise_of(event), right, || {
                format!("{guid} is {before:?}, something of it runs: {runs}, at {}: {event:?}", decision.at)
            });
            if let periodic::Event::Launched { task_guid, .. } = event {
                let desires = |one: &Decision| {
                    matches!(&one.aggregate, Aggregate::Task { guid, .. } if guid == task_guid)
                        && matches!(one.events.first(), Some(Event::Task(task::Event::Desired(_))))
                };
                notes.must(P::LaunchedOnce, behind.iter().any(desires), || {
                    format!("{guid} launched {task_guid}, and the entry desires no such task")
                });
            }
        }
        notes.must(P::OneLife, epoch == known.epoch, || {
            format!("{guid}: a decision of another life, {epoch:?}")
        });
    }

    /// What is due: a launch, or one that waited and need not wait any longer.
    pub(super) fn due(&self, clock: Timestamp) -> Vec<Thing> {
        let due = self.all.iter().filter_map(|(guid, known)| {
            let next =
                known.next.filter(|next| *next <= clock).map(|next| format!("{guid} is due since {next}"));
            let waits = known.waits.filter(|_| !self.runs(guid));
            let freed = waits.map(|due| format!("{guid} waits since {due}, and nothing of it runs"));
            next.or(freed).map(|what| Thing::new(P::NoLaunchLost, what))
        });
        due.collect()
    }

    /// What a periodic task is, in words that the services' fold has, too.
    fn in_words(&self, guid: &PeriodicGuid) -> Option<String> {
        let known = self.all.get(guid)?;
        let Periodic { epoch, version, desired, paused, next, waits, .. } = known;
        let overlap = desired.map(|(_, overlap)| overlap);
        Some(format!("{epoch:?} v{version} {overlap:?} paused {paused} next {next:?} waits {waits:?}"))
    }
}

/// The promise that an event may break.
const fn promise_of(event: &periodic::Event) -> P {
    match event {
        periodic::Event::Launched { .. } => P::LaunchedOnce,
        periodic::Event::Skipped { .. } | periodic::Event::Queued { .. } => P::OverlapHolds,
        periodic::Event::Desired { .. }
        | periodic::Event::Updated { .. }
        | periodic::Event::Paused {}
        | periodic::Event::Resumed { .. }
        | periodic::Event::Removed {} => P::NoLaunchLost,
    }
}

impl Periodic {
    /// Takes an event in. Answers whether it is right where this stands.
    fn take(
        &mut self,
        guid: &PeriodicGuid,
        event: &periodic::Event,
        decision: &Decision,
        runs: &mut bool,
        notes: &mut Notes,
    ) -> bool {
        let at = decision.at;
        let by_client = matches!(decision.actor, Actor::Client { .. });
        match event {
            periodic::Event::Desired { desired, next } => {
                let often = often(desired.schedule.cron());
                let free = self.desired.is_none();
                let launched = std::mem::take(&mut self.launched);
                let version = self.version;
                *self = Self { epoch: Epoch(at), version, launched, ..Self::default() };
                self.desired = Some((often, desired.overlap));
                self.next = Some(after(often, at));
                free && by_client && *next == self.next
            }
            periodic::Event::Updated { desired, next } => {
                let often = often(desired.schedule.cron());
                // Whatever was due before is launched as it was.
                let nothing_lost = self.next.is_none_or(|next| next > at);
                let waits = self.waits.is_none() || desired.overlap == Overlap::Queued;
                self.desired = Some((often, desired.overlap));
                self.next = (!self.paused).then(|| after(often, at));
                nothing_lost && waits && by_client && *next == self.next
            }
            periodic::Event::Launched { due, task_guid, reason, next } => {
                let right = self.launches(guid, (*due, *reason), at, *runs, notes);
                let named = match reason {
                    LaunchReason::Requested => format!("{guid}--now-{}", at.0 / 1_000_000_000),
                    LaunchReason::Due | LaunchReason::CatchUp | LaunchReason::Queued => {
                        format!("{guid}--{}", due.0 / 1_000_000_000)
                    }
                };
                *runs = true;
                let once = self.launched.insert(task_guid.clone());
                right && once && named == task_guid.as_str() && *next == self.next
            }
            periodic::Event::Skipped { from, until, count, reason, next } => {
                let skipped = (*from, *until, *count);
                self.skips(skipped, *reason, at, *runs, notes)
                    && (*next == self.next || *reason == SkipReason::Abandoned)
            }
            periodic::Event::Queued { due, next } => {
                notes.saw(Situation::LaunchQueued);
                let queues = self.desired.is_some_and(|(_, overlap)| overlap == Overlap::Queued);
                let right = queues && *runs && self.waits.is_none() && self.is_latest(*due, at);
                self.waits = Some(*due);
                self.move_on(at);
                right && *next == self.next
            }
            periodic::Event::Paused {} => {
                let nothing_lost = self.next.is_none_or(|next| next > at) && self.waits.is_none();
                (self.paused, self.next) = (true, None);
                nothing_lost && by_client
            }
            periodic::Event::Resumed { next } => {
                let was = std::mem::replace(&mut self.paused, false);
                self.next = self.desired.map(|(often, _)| after(often, at));
                was && by_client && *next == self.next
            }
            periodic::Event::Removed {} => {
                let was = self.desired.take().is_some();
                (self.paused, self.next, self.waits) = (false, None, None);
                was && by_client
            }
        }
    }

    /// Whether a moment is the one that nothing was decided about, and no later one is due.
    fn is_latest(&self, due: Timestamp, at: Timestamp) -> bool {
        let Some((often, _)) = self.desired else { return false };
        self.next == Some(due) && due <= at && after(often, due) > at
    }

    fn move_on(&mut self, at: Timestamp) {
        self.next = self.desired.map(|(often, _)| after(often, at));
    }

    fn launches(
        &mut self,
        guid: &PeriodicGuid,
        (due, reason): (Timestamp, LaunchReason),
        at: Timestamp,
        runs: bool,
        notes: &mut Notes,
    ) -> bool {
        let overlap = self.desired.map(|(_, overlap)| overlap);
        let alone = overlap == Some(Overlap::Allowed) || !runs;
        match reason {
            LaunchReason::Requested => {
                notes.saw(Situation::LaunchAsked);
                overlap.is_some() && due == at
            }
            LaunchReason::Queued => {
                notes.must(P::OverlapHolds, !runs, || {
                    format!("{guid}: what waits is launched beside another")
                });
                self.waits.take() == Some(due)
            }
            LaunchReason::Due | LaunchReason::CatchUp => {
                let late = reason == LaunchReason::CatchUp;
                notes.saw(if late { Situation::LaunchCaughtUp } else { Situation::LaunchDue });
                notes.must(P::OverlapHolds, alone, || format!("{guid}: one is launched beside another"));
                // A catch-up may be one because others before it were missed: then they are skipped just before.
                let right = self.is_latest(due, at) && (late || at.since(due) < LATE);
                self.move_on(at);
                right
            }
        }
    }

    fn skips(
        &mut self,
        (from, until, count): (Timestamp, Timestamp, u32),
        reason: SkipReason,
        at: Timestamp,
        runs: bool,
        notes: &mut Notes,
    ) -> bool {
        let Some((often, overlap)) = self.desired else { return false };
        match reason {
            SkipReason::Missed => {
                notes.saw(Situation::LaunchMissed);
                let all = std::iter::successors(Some(from), |due| Some(after(often, *due)));
                let missed: Vec<Timestamp> = all.take_while(|due| after(often, *due) <= at).collect();
                let right = self.next == Some(from) && missed.last() == Some(&until);
                self.next = Some(after(often, until));
                right && usize::try_from(count) == Ok(missed.len())
            }
            SkipReason::StillRunning | SkipReason::AlreadyQueued => {
                notes.saw(Situation::LaunchSkipped);
                let waits = self.waits.is_some();
                let for_it = match reason {
                    SkipReason::AlreadyQueued => overlap == Overlap::Queued && waits,
                    SkipReason::StillRunning => overlap == Overlap::Skipped && runs,
                    SkipReason::Missed | SkipReason::Abandoned => false,
                };
                let right = from == until && count == 1 && self.is_latest(from, at);
                self.move_on(at);
                right && for_it
            }
            SkipReason::Abandoned => {
                notes.saw(Situation::LaunchGivenUp);
                self.waits.take() == Some(from) && from == until && count == 1
            }
        }
    }
}

impl Checkers {
    /// The services' fold of a periodic task and the model agree.
    pub(super) fn compare_periodic(&self, guid: &PeriodicGuid) -> Option<(String, String)> {
        let folded = self.world.periodic(guid).map(|known| {
            let overlap = known.desired.as_ref().map(|desired| desired.overlap);
            format!(
                "{:?} v{} {overlap:?} paused {} next {:?} waits {:?}",
                known.epoch, known.version, known.paused, known.next, known.queued_due
            )
        });
        let model = self.periodics.in_words(guid);
        (model != folded).then(|| (format!("{model:?}"), format!("{folded:?}")))
    }

    /// The periodic tasks that somebody desires still.
    pub(crate) fn launching(&self) -> Vec<PeriodicGuid> {
        let desired = self.world.periodics_from(None).filter(|known| !known.is_removed());
        desired.map(|known| known.guid.clone()).collect()
    }
}
