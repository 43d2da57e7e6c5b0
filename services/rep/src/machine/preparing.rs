//! Preparation of containers. The rep prepares a container before it claims the container's work. The
//! preparation proves that the rep can create the container. If the preparation fails, the rep refuses the
//! work, and the auctioneer places it on another cell.

use std::collections::BTreeMap;

use schemas::Timestamp;
use schemas::message::PerformReply;
use schemas::names::InstanceGuid;

use super::allocations::Rank;
use super::inspect::Knowledge;
use super::{Effect, Level, Rep, Unprepared, log_text};
use crate::limits;

/// Request of an auctioneer whose containers are being prepared.
#[derive(Debug)]
pub(super) struct Batch {
    /// Refused work. Each entry is the index of the work in the request and the reason.
    pub(super) refused: Vec<(u32, String)>,
    /// Containers in preparation, each with the index of its work in the request.
    pub(super) pending: BTreeMap<InstanceGuid, u32>,
    /// Latest time of the answer. If the preparation of work takes longer, the work counts as accepted.
    pub(super) until: Timestamp,
}

/// Unanswered requests of auctioneers, by requester.
#[derive(Debug, Default)]
pub(super) struct Preparing(BTreeMap<u64, Batch>);

impl Preparing {
    /// Adds a request that is answered once its containers are prepared.
    pub(super) fn add(&mut self, requester: u64, batch: Batch) {
        self.0.insert(requester, batch);
    }

    /// Returns the number of unanswered requests.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the latest time of the next answer.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.0.values().map(|batch| batch.until).min()
    }

    /// Ends the preparation of a container. If `refused` contains a reason, the work of the container is
    /// refused.
    pub(super) fn settle(&mut self, guid: InstanceGuid, refused: Option<String>) {
        for batch in self.0.values_mut() {
            if let Some(place) = batch.pending.remove(&guid) {
                batch.refused.extend(refused.clone().map(|why| (place, why)));
            }
        }
    }

    /// Takes the requests that can be answered: their containers are all prepared, or their time limit has
    /// been reached.
    fn take_done(&mut self, now: Timestamp) -> Vec<(u64, Batch)> {
        self.0.extract_if(.., |_, batch| batch.pending.is_empty() || batch.until <= now).collect()
    }
}

impl Rep {
    /// Handles the results of preparations. Claims work whose container is ready, and refuses all other work.
    pub(super) fn prepared(&mut self, results: Vec<(InstanceGuid, Result<(), Unprepared>)>) {
        for (guid, result) in results {
            let waits =
                |hold: &&mut super::allocations::Allocation| hold.rank() == Rank::Reserved && !hold.prepared;
            let Some(hold) = self.holds.get_mut(guid).filter(waits) else { continue };
            match result {
                Ok(()) => {
                    hold.prepared = true;
                    self.preparing.settle(guid, None);
                    self.inspect(guid, Knowledge::Remembered);
                }
                Err(Unprepared { reason, is_fault }) => {
                    let text = format!("refuses {}: {reason}", log_text::container_text(hold.container()));
                    self.log(Level::Warn, text);
                    if is_fault {
                        self.self_test_soon();
                    }
                    self.preparing.settle(guid, Some(reason));
                    self.release(guid);
                }
            }
        }
    }

    /// Answers the requests of auctioneers whose preparations have ended or timed out. Also sends a heartbeat
    /// if work was refused and the last heartbeat did not report the current free resources.
    pub(super) fn answer_performs(&mut self) {
        for (requester, mut batch) in self.preparing.take_done(self.now) {
            batch.refused.sort_unstable();
            let short = !batch.refused.is_empty();
            let answer = Ok(PerformReply { refused: batch.refused });
            self.emit(Effect::AnswerPerform { requester, answer });
            if short {
                self.report_free_resources();
            }
        }
    }

    /// Returns the latest time of the answer to a new request.
    pub(super) fn answer_until(&self) -> Timestamp {
        self.now + limits::PREPARATION_TIMEOUT
    }
}
