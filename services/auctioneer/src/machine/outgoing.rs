//! Reports to the BBS what could not be placed, many in one message, and remembers what is on its way.

use std::collections::BTreeMap;

use projections::WorkRef;
use schemas::container::{Epoch, WorkKey};
use schemas::limits;
use schemas::message::{Outcomes, PlacementOutcome};
use schemas::names::{ProcessGuid, ServiceId};
use schemas::placement::Explanation;
use schemas::process::Unplaced;

use super::Effect;
use super::size;
use crate::auction::Item;

/// Most messages that may wait for an answer. What is more is reported later.
pub const OUTGOING: usize = 64;

/// What is reported to the BBS with the next turn, and what is on its way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outgoing {
    /// What is reported to the BBS with the next turn.
    failed: Vec<Failed>,
    /// The number of the last message.
    last: u64,
    /// The work of the messages that wait for an answer.
    waiting: BTreeMap<u64, Vec<WorkRef>>,
}

/// Work that no cell takes.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) item: Item,
    pub(crate) error: String,
    pub(crate) explanation: Option<Explanation>,
}

impl Outgoing {
    /// How many messages wait for an answer.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// It is reported with the next turn that no cell takes this.
    pub(crate) fn add(&mut self, failed: Failed) {
        self.failed.push(failed);
    }

    /// Whether something is reported with the next turn.
    pub(crate) const fn is_due(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Forgets what is to be reported, and what is on its way.
    pub(crate) fn clear(&mut self) {
        self.failed.clear();
        self.waiting.clear();
    }

    /// A message was answered: what it reported.
    pub(crate) fn answered(&mut self, id: u64) -> Vec<WorkRef> {
        self.waiting.remove(&id).unwrap_or_default()
    }

    /// Writes the messages. Answers also what finds no place.
    pub(crate) fn send(&mut self, (id, term): (&ServiceId, u64)) -> (Vec<Effect>, Vec<WorkRef>) {
        let (mut effects, mut late) = (vec![], vec![]);
        for (outcomes, works) in messages(std::mem::take(&mut self.failed)) {
            if self.waiting.len() >= OUTGOING {
                late.extend(works);
                continue;
            }
            self.last += 1;
            self.waiting.insert(self.last, works);
            let outcomes = Outcomes { id: id.clone(), term, outcomes };
            effects.push(Effect::Outcomes { id: self.last, outcomes });
        }
        (effects, late)
    }
}

type Message = (Vec<PlacementOutcome>, Vec<WorkRef>);

/// Divides outcomes into messages, those of one process together as far as they fit.
fn messages(failed: Vec<Failed>) -> Vec<Message> {
    let mut lrps: BTreeMap<(ProcessGuid, Epoch), Vec<Failed>> = BTreeMap::new();
    let mut messages = Messages::default();
    for one in failed {
        match &one.item.rank.key {
            WorkKey::Lrp { key, epoch } => {
                lrps.entry((key.process_guid.clone(), *epoch)).or_default().push(one);
            }
            WorkKey::Task { task_guid, epoch } => {
                let work = WorkRef::Task(task_guid.clone());
                let bytes = size::outcome(&one.error) + one.explanation.as_ref().map_or(0, size::explanation);
                let outcome = PlacementOutcome::Task {
                    task_guid: task_guid.clone(),
                    epoch: *epoch,
                    error: one.error,
                    explanation: one.explanation.map(Box::new),
                };
                messages.add(outcome, vec![work], bytes);
            }
        }
    }
    for ((guid, epoch), failed) in lrps {
        messages.add_process(&guid, epoch, failed);
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
        if self.next.0.len() >= limits::BATCH || self.bytes + bytes > size::MESSAGE {
            self.done.push(std::mem::take(&mut self.next));
            self.bytes = 0;
        }
        self.next.0.push(outcome);
        self.next.1.extend(works);
        self.bytes += bytes;
    }

    /// Adds what of a process failed: one outcome, or several if they fill a message.
    fn add_process(&mut self, guid: &ProcessGuid, epoch: Epoch, mut failed: Vec<Failed>) {
        failed.sort_by(|a, b| a.item.rank.key.cmp(&b.item.rank.key));
        let mut rest = failed.into_iter().peekable();
        while rest.peek().is_some() {
            let (mut unplaced, mut works, mut explanation) = (vec![], vec![], None);
            let mut bytes = limits::EXPLANATION_BYTES;
            while let Some(one) = rest.next_if(|one| bytes + size::outcome(&one.error) <= size::MESSAGE) {
                bytes += size::outcome(&one.error);
                if let WorkKey::Lrp { key, .. } = one.item.rank.key {
                    let place = key.place.clone();
                    works.push(WorkRef::Lrp(key));
                    unplaced.push(Unplaced { place, attempt: one.item.rank.since, error: one.error });
                    explanation = one.explanation.or(explanation);
                }
            }
            let explanation = explanation.map(Box::new);
            self.add(
                PlacementOutcome::Lrp { process_guid: guid.clone(), epoch, unplaced, explanation },
                works,
                bytes,
            );
        }
    }

    fn finish(mut self) -> Vec<Message> {
        if !self.next.0.is_empty() {
            self.done.push(self.next);
        }
        self.done
    }
}
