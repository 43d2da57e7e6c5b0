//! Past rollouts of a process, reconstructed from the log. All functions are pure: they take decisions and
//! return rollouts.

use std::collections::{BTreeMap, BTreeSet};

use cli_base::output::RenderOptions;
use schemas::container::{Epoch, Instance};
use schemas::entry::{Aggregate, Event};
use schemas::names::DefinitionId;
use schemas::rollout::{self, Kind};
use schemas::{Position, Timestamp, actual, desired};
use serde::Serialize;
use text::describe::{actor, indices};
use text::words::{age, one_line, short_id};

use explain::decisions::PositionedDecision;

/// A rollout, reconstructed from the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PastRollout {
    /// Number of the rollout in the current epoch of the process (the time since its last creation), starting
    /// at 1.
    pub(crate) number: u32,
    pub(crate) kind: Kind,
    /// Definition that every index should run.
    pub(crate) target: DefinitionId,
    /// Outcome of the rollout. The current status if the rollout is not over.
    pub(crate) status: &'static str,
    /// Reason for the start. `None` if the log contains no reason.
    pub(crate) reason: Option<String>,
    /// Actor that started the rollout.
    pub(crate) actor: String,
    /// Position of the entry that started the rollout.
    pub(crate) position: Position,
    pub(crate) started_at: Timestamp,
    /// Time when the rollout ended. `None` if the rollout is not over.
    pub(crate) ended_at: Option<Timestamp>,
    /// Number of instances to replace.
    pub(crate) total: u32,
    /// Number of replaced instances.
    pub(crate) replaced: u32,
    /// Indices with a failed new instance, in the order of the failures.
    pub(crate) failed: Vec<u32>,
    /// Reason of the last failure.
    pub(crate) last_failure: Option<String>,
    /// Last crash of an instance with the target definition.
    pub(crate) last_crash: Option<Crash>,
}

/// A crash of a new instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Crash {
    pub(crate) index: u32,
    pub(crate) definition_id: DefinitionId,
    /// Container that crashed. Its log remains available for some time.
    pub(crate) by: Instance,
    pub(crate) reason: String,
    pub(crate) at: Timestamp,
}

impl Crash {
    /// Formats the crash as one line.
    pub(crate) fn summary(&self, look: RenderOptions) -> String {
        let Self { index, definition_id, by, reason, at } = self;
        let container = short_id(&by.instance_guid, look.full_ids);
        let reason = one_line(reason);
        let ago = age(look.now, *at);
        format!(
            "index {index} of {definition_id} on {} (container {container}), {ago} ago: {reason}",
            by.cell_id
        )
    }

    /// Returns the command that shows the log of the container.
    pub(crate) fn advice(&self) -> String {
        format!("see muster logs {}", self.by.instance_guid)
    }
}

impl PastRollout {
    /// Returns the last failure. If there was no failure, returns the reason for the start of the rollout.
    pub(crate) fn note(&self) -> Option<String> {
        let which = if self.failed.len() == 1 { "index" } else { "indices" };
        let failed = indices(&self.failed.iter().copied().collect());
        let failure = self.last_failure.as_ref().map(|reason| format!("{which} {failed} failed: {reason}"));
        failure.or_else(|| self.reason.clone())
    }

    const fn is_over(&self) -> bool {
        self.ended_at.is_some()
    }

    fn end(&mut self, status: &'static str, at: Timestamp) {
        (self.status, self.ended_at) = (status, Some(at));
    }
}

/// A rollout found in a range of decisions.
#[derive(Clone, Debug)]
pub(crate) struct FoundRollout {
    pub(crate) past: PastRollout,
    /// Epoch of the process that the rollout belongs to. An epoch lasts from the creation of the process to
    /// its removal.
    pub(crate) life: Epoch,
    /// `true` if the number is exact. In this case, the decisions contain the start of this epoch, or the
    /// number of the epoch's last rollout is known.
    pub(crate) is_number_exact: bool,
}

/// Returns the rollouts in the decisions about a process, in order. `last` contains the current epoch of the
/// process, and the number of the last rollout in this epoch.
pub(crate) fn rollouts(decided: &[PositionedDecision], last: Option<(Epoch, u32)>) -> Vec<FoundRollout> {
    let (mut all, mut lives): (Vec<PastRollout>, Vec<Epoch>) = (vec![], vec![]);
    let mut counts: BTreeMap<Epoch, u32> = BTreeMap::new();
    let mut begun: BTreeSet<Epoch> = BTreeSet::new();
    for one in decided {
        let Aggregate::Process { epoch, .. } = one.decision.aggregate else { continue };
        for event in &one.decision.events {
            let count = counts.entry(epoch).or_default();
            if let Event::Rollout(rollout::Event::Started { .. }) = event {
                *count += 1;
                lives.push(epoch);
            }
            if let Event::Desired(desired::Event::Desired(_)) = event {
                begun.insert(epoch);
            }
            let number = *count;
            take(&mut all, number, one, event);
        }
    }
    let numbered = |(mut past, life): (PastRollout, Epoch)| {
        let last = last.filter(|(epoch, _)| *epoch == life).map(|(_, number)| number);
        let before = last.filter(|_| !begun.contains(&life));
        let missing = before.map(|last| last.saturating_sub(counts.get(&life).copied().unwrap_or(0)));
        past.number += missing.unwrap_or(0);
        FoundRollout { past, life, is_number_exact: missing.is_some() || begun.contains(&life) }
    };
    all.into_iter().zip(lives).map(numbered).collect()
}

fn take(all: &mut Vec<PastRollout>, number: u32, one: &PositionedDecision, event: &Event) {
    let at = one.decision.at;
    if let Event::Rollout(rollout::Event::Started { kind, target, total, reason, .. }) = event {
        if let Some(last) = all.last_mut().filter(|last| !last.is_over()) {
            last.end(if *kind == Kind::Rollback { "rolled_back" } else { "superseded" }, at);
        }
        all.push(PastRollout {
            number,
            kind: *kind,
            target: target.clone(),
            status: if *kind == Kind::Rollback { "rollback_started" } else { "updating" },
            reason: Some(reason.clone()).filter(|reason| !reason.is_empty()),
            actor: actor(&one.decision.actor),
            position: one.position,
            started_at: at,
            ended_at: None,
            total: *total,
            replaced: 0,
            failed: vec![],
            last_failure: None,
            last_crash: None,
        });
        return;
    }
    let Some(last) = all.last_mut().filter(|last| !last.is_over()) else { return };
    if let Event::Rollout(event) = event {
        apply_rollout_event(last, event, at);
    } else if let Event::Actual(actual::Event::Crashed { place, by, reason, .. }) = event
        && place.definition_id == last.target
    {
        let (index, definition_id) = (place.index, place.definition_id.clone());
        last.last_crash = Some(Crash { index, definition_id, by: by.clone(), reason: reason.clone(), at });
    } else if let Event::Desired(desired::Event::Removed {}) = event {
        last.end("removed", at);
    }
}

fn apply_rollout_event(last: &mut PastRollout, event: &rollout::Event, at: Timestamp) {
    let is_back = last.kind == Kind::Rollback;
    match event {
        rollout::Event::Replaced { .. } => last.replaced += 1,
        rollout::Event::Failed { index, reason } => {
            last.failed.push(*index);
            last.last_failure = Some(reason.clone());
        }
        rollout::Event::Paused { .. } => last.status = if is_back { "rollback_paused" } else { "paused" },
        rollout::Event::Resumed {} => last.status = if is_back { "rollback_started" } else { "updating" },
        rollout::Event::Completed {} => {
            last.end(if is_back { "rollback_completed" } else { "completed" }, at);
        }
        rollout::Event::Started { .. }
        | rollout::Event::IndicesStarted { .. }
        | rollout::Event::FellBack { .. }
        | rollout::Event::TookOver { .. }
        | rollout::Event::Stalled { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use schemas::policy::UpdatePolicy;
    use schemas::{Decision, Place};

    use super::*;
    use crate::rows;
    use fixtures::web::{client, container, decision};

    fn id(name: &str) -> DefinitionId {
        DefinitionId::new(name).unwrap()
    }

    fn started(kind: Kind, target: &str, reason: &str) -> Event {
        Event::Rollout(rollout::Event::Started {
            kind,
            target: id(target),
            rollback_to: Some(id("web")),
            total: 2,
            policy: Box::new(UpdatePolicy::default_update()),
            reason: reason.to_owned(),
        })
    }

    fn crash(definition: &str, reason: &str) -> Event {
        Event::Actual(actual::Event::Crashed {
            place: Place::new(0, id(definition)),
            by: container(7, "c1"),
            reason: reason.to_owned(),
            exit_status: None,
            crash_count: 1,
            restart: schemas::crash::Restart::Immediate,
            attempts: None,
        })
    }

    fn at(second: u64, events: Vec<Event>) -> PositionedDecision {
        let decision: Decision = decision(second, client(), events);
        PositionedDecision { position: Position(second), decision }
    }

    fn story() -> Vec<PositionedDecision> {
        let replaced = |index| {
            Event::Rollout(rollout::Event::Replaced { index, delay_until: Timestamp::from_millis(0) })
        };
        let failed = Event::Rollout(rollout::Event::Failed { index: 0, reason: "exit 1".into() });
        let completed = || Event::Rollout(rollout::Event::Completed {});
        vec![
            at(1, vec![crash("web", "before any rollout")]),
            at(2, vec![started(Kind::Update, "v2", "")]),
            at(3, vec![replaced(0)]),
            at(4, vec![replaced(1), completed()]),
            at(5, vec![crash("v2", "long after it")]),
            at(6, vec![started(Kind::Update, "bad", "")]),
            at(7, vec![crash("v2", "of the old one")]),
            at(8, vec![crash("bad", "exit 1"), failed, started(Kind::Rollback, "v2", "1 of 2 failed")]),
            at(9, vec![completed()]),
            at(10, vec![started(Kind::Update, "v3", "")]),
        ]
    }

    fn past_rollouts(decided: &[PositionedDecision]) -> Vec<PastRollout> {
        rollouts(decided, None).into_iter().map(|found| found.past).collect()
    }

    #[test]
    fn rollouts_read_from_the_middle_are_numbered_from_the_last() {
        let Aggregate::Process { epoch, .. } = story()[0].decision.aggregate else { panic!("a process") };
        let of = |last| {
            let found = rollouts(&story()[5..], last).into_iter();
            found.map(|found| (found.past.number, found.is_number_exact)).collect::<Vec<_>>()
        };
        assert_eq!(of(Some((epoch, 4))), [(2, true), (3, true), (4, true)]);
        assert_eq!(of(Some((Epoch(Timestamp(99)), 4))), [(1, false), (2, false), (3, false)]);
        assert_eq!(of(None), [(1, false), (2, false), (3, false)]);
    }

    #[test]
    fn rollouts_are_reconstructed_from_the_log() {
        let all = past_rollouts(&story());
        let told: Vec<_> = all.iter().map(|past| (past.number, past.target.as_str(), past.status)).collect();
        assert_eq!(
            told,
            [
                (1, "v2", "completed"),
                (2, "bad", "rolled_back"),
                (3, "v2", "rollback_completed"),
                (4, "v3", "updating")
            ]
        );
        assert_eq!((all[0].replaced, &all[0].last_crash), (2, &None));
        let crash = all[1].last_crash.as_ref().unwrap();
        assert_eq!((crash.reason.as_str(), crash.index), ("exit 1", 0));
        assert_eq!(all[1].failed, [0]);
    }

    #[test]
    fn removal_of_process_ends_rollout_and_restarts_numbering() {
        let mut again = at(12, vec![started(Kind::Update, "v4", "")]);
        if let Aggregate::Process { epoch, .. } = &mut again.decision.aggregate {
            *epoch = Epoch(Timestamp(99));
        }
        let removed = at(11, vec![Event::Desired(desired::Event::Removed {})]);
        let all = past_rollouts(&[story(), vec![removed, again]].concat());
        assert_eq!((all[3].status, all[4].number), ("removed", 1));
    }

    #[test]
    fn past_rollouts_are_formatted_as_table() {
        let look = RenderOptions { now: Timestamp::from_millis(15_000), full_ids: false, colour: false };
        assert_eq!(
            rows::rollouts(&past_rollouts(&story())[1..3], look).render(false),
            "ROLLOUT   WHAT             STATUS               REPLACED   BEGAN                      TOOK   WHO               NOTE\n      \
             2   rollout to bad   rolled_back               0/2   1970-01-01T00:00:06.000Z   2s     client shop/ada   index 0 failed: exit 1\n      \
             3   rollback to v2   rollback_completed        0/2   1970-01-01T00:00:08.000Z   1s     client shop/ada   1 of 2 failed"
        );
    }
}
