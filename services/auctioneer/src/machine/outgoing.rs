//! Messages to the BBS: the evaluations that this auctioneer works on, and the work that could not be placed.
//! This module batches the messages of a turn (one round of placement) and tracks unanswered messages.

use std::collections::BTreeMap;

use projections::WorkRef;
use schemas::container::{Epoch, WorkKey};
use schemas::limits;
use schemas::message::{Lease, Outcomes, PlacementOutcome};
use schemas::names::{EvaluationId, ProcessGuid, ServiceId};
use schemas::placement::Explanation;
use schemas::preemption::Eviction;
use schemas::process::{Outcome, Unplaced};
use schemas::task;

use super::Effect;
use super::size;
use crate::auction::Item;

/// Maximum number of unanswered messages. At the limit, further outcomes are reported later.
pub const MAX_UNANSWERED: usize = 64;

/// Outcomes for the next turn, and unanswered messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outgoing {
    /// Failures to report in the next turn.
    failed: Vec<FailedPlacement>,
    /// Evictions to request in the next turn, with the work that needs the freed resources.
    evictions: Vec<(WorkRef, Vec<Eviction>)>,
    /// Number of the last message.
    last_number: u64,
    /// Work in each unanswered message, by message number.
    unanswered: BTreeMap<u64, Vec<WorkRef>>,
}

/// Work that no cell accepts.
#[derive(Clone, Debug)]
pub(crate) struct FailedPlacement {
    pub(crate) item: Item,
    /// Evaluation to which the work belongs.
    pub(crate) evaluation: EvaluationId,
    /// `true` if the evaluation has no attempts left.
    pub(crate) attempts_exhausted: bool,
    pub(crate) error: String,
    pub(crate) explanation: Option<Explanation>,
}

impl Outgoing {
    /// Returns the number of unanswered messages.
    pub(crate) fn len(&self) -> usize {
        self.unanswered.len()
    }

    /// Adds a failure to the report of the next turn.
    pub(crate) fn add(&mut self, failed: FailedPlacement) {
        self.failed.push(failed);
    }

    /// Adds the evictions that free resources for some work. They are requested in the next turn.
    pub(crate) fn evict(&mut self, work: WorkRef, victims: Vec<Eviction>) {
        self.evictions.push((work, victims));
    }

    /// Returns `true` if the next turn has something to report.
    pub(crate) const fn is_due(&self) -> bool {
        !self.failed.is_empty() || !self.evictions.is_empty()
    }

    /// Drops all pending reports, and forgets the unanswered messages.
    pub(crate) fn clear(&mut self) {
        self.failed.clear();
        self.evictions.clear();
        self.unanswered.clear();
    }

    /// Removes a message that was answered, and returns the reported work.
    pub(crate) fn answered(&mut self, id: u64) -> Vec<WorkRef> {
        self.unanswered.remove(&id).unwrap_or_default()
    }

    /// Creates the messages. Also returns the work that was left out because the limit of unanswered messages
    /// is reached.
    pub(crate) fn send(
        &mut self,
        (id, term): (&ServiceId, u64),
        leases: Vec<Lease>,
    ) -> (Vec<Effect>, Vec<WorkRef>) {
        let (mut effects, mut late) = (vec![], vec![]);
        let failed = messages(std::mem::take(&mut self.failed)).into_iter();
        let failed = failed.map(|(outcomes, works)| (outcomes, vec![], works));
        let mut messages = eviction_message(std::mem::take(&mut self.evictions)).into_iter().chain(failed);
        let mut leases = leases.chunks(limits::BATCH).map(<[Lease]>::to_vec);
        loop {
            let (leases, message) = (leases.next(), messages.next());
            if leases.is_none() && message.is_none() {
                return (effects, late);
            }
            let (outcomes, evictions, works) = message.unwrap_or_default();
            if self.unanswered.len() >= MAX_UNANSWERED {
                late.extend(works);
                continue;
            }
            self.last_number += 1;
            self.unanswered.insert(self.last_number, works);
            let leases = leases.unwrap_or_default();
            let outcomes = Outcomes { id: id.clone(), term, leases, outcomes, evictions };
            effects.push(Effect::Outcomes { id: self.last_number, outcomes });
        }
    }
}

/// Puts all evictions into one message. The number of evictions never exceeds the capacity of a message.
fn eviction_message(
    evictions: Vec<(WorkRef, Vec<Eviction>)>,
) -> Option<(Vec<PlacementOutcome>, Vec<Eviction>, Vec<WorkRef>)> {
    let (works, victims): (Vec<WorkRef>, Vec<Vec<Eviction>>) = evictions.into_iter().unzip();
    (!works.is_empty()).then(|| (vec![], victims.into_iter().flatten().collect(), works))
}

type Message = (Vec<PlacementOutcome>, Vec<WorkRef>);
/// Key of outcomes that share a message: a process with its epoch, an evaluation, and `true` if the
/// evaluation has no attempts left.
type Group = (ProcessGuid, Epoch, EvaluationId, bool);

/// Splits outcomes into messages. Outcomes of the same process share a message if they fit.
fn messages(failed: Vec<FailedPlacement>) -> Vec<Message> {
    let mut lrps: BTreeMap<Group, Vec<FailedPlacement>> = BTreeMap::new();
    let mut messages = Messages::default();
    for one in failed {
        match &one.item.rank.key {
            WorkKey::Lrp { key, epoch } => {
                let group = (key.process_guid.clone(), *epoch, one.evaluation, one.attempts_exhausted);
                lrps.entry(group).or_default().push(one);
            }
            WorkKey::Task { task_guid, epoch } => {
                let work = WorkRef::Task(task_guid.clone());
                let bytes = size::outcome_bytes(&one.error)
                    + one.explanation.as_ref().map_or(0, size::explanation_bytes);
                let outcome = PlacementOutcome::Task {
                    task_guid: task_guid.clone(),
                    epoch: *epoch,
                    unplaced: task::Unplaced {
                        evaluation: one.evaluation,
                        error: one.error,
                        attempts_exhausted: one.attempts_exhausted,
                        explanation: one.explanation.map(Box::new),
                    },
                };
                messages.add(outcome, vec![work], bytes);
            }
        }
    }
    for (group, failed) in lrps {
        messages.add_process(&group, failed);
    }
    messages.finish()
}

#[derive(Default)]
struct Messages {
    done: Vec<Message>,
    next: Message,
    bytes: usize,
}

impl Messages {
    fn add(&mut self, outcome: PlacementOutcome, works: Vec<WorkRef>, bytes: usize) {
        if self.next.0.len() >= limits::BATCH || self.bytes + bytes > size::MAX_MESSAGE_BYTES {
            self.done.push(std::mem::take(&mut self.next));
            self.bytes = 0;
        }
        self.next.0.push(outcome);
        self.next.1.extend(works);
        self.bytes += bytes;
    }

    /// Adds the failures of a process as one outcome. If the outcome would exceed the size of a message,
    /// splits it into several outcomes.
    fn add_process(
        &mut self,
        (guid, epoch, evaluation, attempts_exhausted): &Group,
        mut failed: Vec<FailedPlacement>,
    ) {
        let (epoch, evaluation, attempts_exhausted) = (*epoch, *evaluation, *attempts_exhausted);
        failed.sort_by(|a, b| a.item.rank.key.cmp(&b.item.rank.key));
        let mut rest = failed.into_iter().peekable();
        while rest.peek().is_some() {
            let (mut unplaced, mut works, mut explanation) = (vec![], vec![], None);
            let mut bytes = limits::EXPLANATION_BYTES;
            while let Some(one) =
                rest.next_if(|one| bytes + size::outcome_bytes(&one.error) <= size::MAX_MESSAGE_BYTES)
            {
                bytes += size::outcome_bytes(&one.error);
                if let WorkKey::Lrp { key, .. } = one.item.rank.key {
                    let place = key.place.clone();
                    works.push(WorkRef::Lrp(key));
                    unplaced.push(Unplaced { place, attempt: one.item.rank.since, error: one.error });
                    explanation = one.explanation.or(explanation);
                }
            }
            let explanation = explanation.map(Box::new);
            let outcome = Outcome { evaluation, unplaced, attempts_exhausted, explanation };
            self.add(PlacementOutcome::Lrp { process_guid: guid.clone(), epoch, outcome }, works, bytes);
        }
    }

    fn finish(mut self) -> Vec<Message> {
        if !self.next.0.is_empty() {
            self.done.push(self.next);
        }
        self.done
    }
}
