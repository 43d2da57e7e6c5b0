//! Preparation of containers: before the rep claims work, it proves that it can create the container. Work whose container
//! can't be prepared is refused, so that the auctioneer places it on another cell.

use std::collections::BTreeMap;

use schemas::Timestamp;
use schemas::message::Performed;
use schemas::names::InstanceGuid;

use super::holds::Rank;
use super::look::Knowledge;
use super::{Effect, Level, Rep, Unprepared, telling};
use crate::limits;

/// An auctioneer's request with containers that are still being prepared.
#[derive(Debug)]
pub(super) struct Batch {
    /// Refused work: its place in the request, and the reason.
    pub(super) refused: Vec<(u32, String)>,
    /// The containers that are being prepared, each with the place of its work in the request.
    pub(super) pending: BTreeMap<InstanceGuid, u32>,
    /// The answer is sent by then. Work whose preparation takes longer counts as taken.
    pub(super) until: Timestamp,
}

/// The auctioneers' requests that are not answered yet, by requester.
#[derive(Debug, Default)]
pub(super) struct Preparing(BTreeMap<u64, Batch>);

impl Preparing {
    /// Adds a request that is answered once its containers are prepared.
    pub(super) fn add(&mut self, requester: u64, batch: Batch) {
        self.0.insert(requester, batch);
    }

    /// Number of requests without an answer.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Time by which the next answer is sent at the latest.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.0.values().map(|batch| batch.until).min()
    }

    /// Ends the preparation of a container; its work is refused if there is a reason.
    pub(super) fn settle(&mut self, guid: InstanceGuid, refused: Option<String>) {
        for batch in self.0.values_mut() {
            if let Some(place) = batch.pending.remove(&guid) {
                batch.refused.extend(refused.clone().map(|why| (place, why)));
            }
        }
    }

    /// Takes the requests that can be answered: all of their containers are prepared, or their time is over.
    fn take_done(&mut self, now: Timestamp) -> Vec<(u64, Batch)> {
        self.0.extract_if(.., |_, batch| batch.pending.is_empty() || batch.until <= now).collect()
    }
}

impl Rep {
    /// Takes the results of preparations. Work whose container is ready is claimed; other work is refused.
    pub(super) fn prepared(&mut self, results: Vec<(InstanceGuid, Result<(), Unprepared>)>) {
        for (guid, result) in results {
            let waits = |hold: &&mut super::holds::Hold| hold.rank() == Rank::Reserved && !hold.prepared;
            let Some(hold) = self.holds.get_mut(guid).filter(waits) else { continue };
            match result {
                Ok(()) => {
                    hold.prepared = true;
                    self.preparing.settle(guid, None);
                    self.look(guid, Knowledge::Remembered);
                }
                Err(Unprepared { reason, is_fault }) => {
                    let text = format!("refuses {}: {reason}", telling::named(hold.container()));
                    self.log(Level::Warn, text);
                    if is_fault {
                        self.hasten_self_test();
                    }
                    self.preparing.settle(guid, Some(reason));
                    self.let_go(guid);
                }
            }
        }
    }

    /// Answers the requests of auctioneers that are settled. A refusal is followed by a heartbeat if the last one reported
    /// more free resources than there are.
    pub(super) fn answer_performs(&mut self) {
        for (requester, mut batch) in self.preparing.take_done(self.now) {
            batch.refused.sort_unstable();
            let short = !batch.refused.is_empty();
            let answer = Ok(Performed { refused: batch.refused });
            self.emit(Effect::AnswerPerform { requester, answer });
            if short {
                self.tell_room();
            }
        }
    }

    /// Time by which an auctioneer gets its answer.
    pub(super) fn answer_until(&self) -> Timestamp {
        self.now + limits::PREPARATION_ANSWER
    }
}
