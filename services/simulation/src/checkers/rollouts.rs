//! A rollout as the log tells it: folded anew from what each of its events means (docs/internals/model/definitions-and-rollouts.md, "Rollouts").

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use machines::actual::Actual;
use machines::process::Process;
use machines::rollout::Rollout;
use schemas::names::DefinitionId;
use schemas::policy::{FailureAction, Parallelism, Policies, UpdateOrder, UpdatePolicy};
use schemas::rollout::{Event, Kind, Phase};
use schemas::{Place, Timestamp};

/// Whether a rollout that is not paused has indices left, at each of them something is that its restart policy keeps down
/// and nothing else, and time changes nothing.
pub(super) fn hangs(process: &Process) -> bool {
    let Some(desired) = process.desired.as_deref() else { return false };
    let rolling = process.rollout.as_deref().and_then(Rollout::active);
    let Some(rolling) = rolling.filter(|rolling| rolling.phase == Phase::Rolling) else { return false };
    let there = |index: u32| {
        let slots = process.slots.iter().filter(move |slot| slot.place.index == index);
        slots.filter_map(|slot| Some((&slot.place, slot.actual.as_ref()?)))
    };
    let is_left = |index: &u32| {
        let replaced =
            |(place, lrp): (&Place, &Actual)| rolling.target == place.definition_id && lrp.keeps_running();
        !there(*index).all(replaced) || there(*index).next().is_none()
    };
    let is_down = |index: u32| {
        let kept_down =
            |(place, lrp): (&Place, &Actual)| lrp.no_restart_reason().is_some() && !rolling.starts(place);
        there(index).next().is_some() && there(index).all(kept_down)
    };
    let mut left =
        desired.indices().filter(|index| desired.is_rolling_index(*index)).filter(is_left).peekable();
    left.peek().is_some() && left.all(is_down) && process.rollout_due().is_none()
}

/// A rollout.
#[derive(Clone, Debug)]
pub(super) struct Roll {
    /// Which of its process's life it is, from 1.
    pub(super) number: u32,
    pub(super) kind: Kind,
    pub(super) target: DefinitionId,
    /// Where it goes back to.
    pub(super) back: Option<DefinitionId>,
    pub(super) policy: UpdatePolicy,
    pub(super) stands: Stands,
    pub(super) reason: String,
    pub(super) started_at: Timestamp,
    pub(super) since: Timestamp,
    pub(super) total: u32,
    pub(super) replaced: u32,
    /// The indices that had their turn, and how far they are.
    pub(super) turns: BTreeMap<u32, Turn>,
    /// The indices that were given up for now, and until when.
    pub(super) stalled: BTreeMap<u32, Timestamp>,
    pub(super) failed: BTreeSet<u32>,
}

/// Whether it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stands {
    Rolls,
    Paused,
    Over,
}

/// An index that had its turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) begun_at: Timestamp,
    pub(super) order: UpdateOrder,
    pub(super) part: Part,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Its new instance is to run.
    Starts,
    /// Its old instance is to go.
    Leaves,
    /// It is done, and nobody else has a turn until then.
    Rests(Timestamp),
}

/// So many indices of so many instances may be in replacement at once.
pub(super) fn at_once(policy: &UpdatePolicy, instances: u32) -> usize {
    let count = match policy.parallelism {
        Parallelism::Count(count) => u64::from(count),
        Parallelism::Percent(percent) => u64::from(instances) * u64::from(percent) / 100,
    };
    usize::try_from(count.max(1)).unwrap_or(usize::MAX)
}

/// So many of so many instances have to run while it rolls.
pub(super) fn runs_at_least(policies: &Policies, policy: &UpdatePolicy, instances: u32) -> usize {
    let all = usize::try_from(instances).unwrap_or(usize::MAX);
    match (policies.min_running, policy.order) {
        (Some(least), _) => usize::try_from(least).unwrap_or(usize::MAX),
        (None, UpdateOrder::StartFirst) => all,
        (None, UpdateOrder::StopFirst) => all.saturating_sub(at_once(policy, instances)),
    }
}

impl Roll {
    /// Takes in what happens to the rollouts of a process.
    pub(super) fn fold(roll: &mut Option<Self>, event: &Event, at: Timestamp) {
        if let Event::Started { kind, target, rollback_to, total, policy, reason } = event {
            *roll = Some(Self {
                number: roll.as_ref().map_or(1, |old| old.number + 1),
                kind: *kind,
                target: target.clone(),
                back: rollback_to.clone(),
                policy: (**policy).clone(),
                stands: Stands::Rolls,
                reason: reason.clone(),
                started_at: at,
                since: at,
                total: *total,
                replaced: 0,
                turns: BTreeMap::new(),
                stalled: BTreeMap::new(),
                failed: BTreeSet::new(),
            });
        } else if let Some(roll) = roll {
            roll.take(event, at);
        }
    }

    fn take(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::Started { .. } => {}
            Event::IndicesStarted { indices } => {
                let turn = Turn { begun_at: at, order: self.policy.order, part: Part::Starts };
                self.turns.extend(indices.iter().map(|index| (index, turn)));
            }
            Event::FellBack { index } => {
                let turn = self.turns.get_mut(index);
                turn.into_iter().for_each(|turn| turn.order = UpdateOrder::StopFirst);
            }
            Event::TookOver { index } => self.goes_on(*index, Part::Leaves),
            Event::Replaced { index, delay_until: rests_until } => {
                self.goes_on(*index, Part::Rests(*rests_until));
                self.stalled.remove(index);
                self.replaced += 1;
            }
            Event::Failed { index, .. } => {
                self.failed.insert(*index);
            }
            Event::Stalled { index, retry_at, .. } => {
                self.turns.remove(index);
                self.stalled.insert(*index, *retry_at);
            }
            Event::Paused { reason, .. } => self.stands(Stands::Paused, reason, at),
            Event::Resumed {} => {
                self.policy.pause_after = None;
                self.failed.clear();
                self.stalled.values_mut().for_each(|retry_at| *retry_at = at);
                self.stands(Stands::Rolls, "", at);
            }
            Event::Completed {} => {
                self.turns.clear();
                self.stands(Stands::Over, "", at);
            }
        }
    }

    fn goes_on(&mut self, index: u32, part: Part) {
        if let Some(turn) = self.turns.get_mut(&index) {
            turn.part = part;
        }
    }

    fn stands(&mut self, stands: Stands, reason: &str, at: Timestamp) {
        (self.stands, self.reason, self.since) = (stands, reason.to_owned(), at);
    }

    /// The scale changes: what is above it is no part of it any more, and what comes to it is.
    pub(super) fn scale(&mut self, from: u32, to: u32) {
        self.turns.retain(|index, _| *index < to);
        self.stalled.retain(|index, _| *index < to);
        self.failed.retain(|index| *index < to);
        self.total += to.saturating_sub(from);
    }

    /// Other cells take part: the indices before, and those now.
    pub(super) fn follow(&mut self, before: &BTreeSet<u32>, now: &BTreeSet<u32>) {
        self.turns.retain(|index, _| now.contains(index));
        self.stalled.retain(|index, _| now.contains(index));
        self.failed.retain(|index| now.contains(index));
        self.total += u32::try_from(now.difference(before).count()).unwrap_or(u32::MAX);
    }

    /// Whether so many failed that its policy goes back.
    pub(super) fn gives_up(&self) -> bool {
        let failed = u32::try_from(self.failed.len()).unwrap_or(u32::MAX);
        self.policy.failure_action == FailureAction::Rollback
            && self.policy.max_failure_ratio.is_exceeded_by(failed, self.total)
    }

    pub(super) fn is_over(&self) -> bool {
        self.stands == Stands::Over
    }

    /// The turn of an index whose instances are being replaced.
    pub(super) fn turn(&self, index: u32) -> Option<&Turn> {
        self.turns.get(&index).filter(|turn| match turn.part {
            Part::Starts | Part::Leaves => true,
            Part::Rests(_) => false,
        })
    }

    pub(super) fn starts(&self, index: u32) -> bool {
        self.turns.get(&index).is_some_and(|turn| turn.part == Part::Starts)
    }

    /// How many have a turn at a time, those that rest counted.
    pub(super) fn busy(&self, now: Timestamp) -> usize {
        let busy = |turn: &&Turn| match turn.part {
            Part::Starts | Part::Leaves => true,
            Part::Rests(until) => until > now,
        };
        self.turns.values().filter(busy).count()
    }

    pub(super) const fn monitor(&self) -> Duration {
        Duration::from_millis(self.policy.monitor_ms)
    }
}
