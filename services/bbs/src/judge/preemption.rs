//! Checks of preemption: the victim (running work) is stopped to free resources for the preemptor (waiting
//! work). The preemptor and the victim are different aggregates, usually on different shards.

use machines::actual::Actual;
use schemas::container::WorkKey;
use schemas::definition::Placement;
use schemas::preemption::Preemptor;
use schemas::{Cause, Code, Refusal};

use crate::scratch::Scratch;

impl Scratch<'_> {
    /// Checks that preemption is on, and that the preemptor is still waiting in the state that the auctioneer
    /// assumed. Returns the cause of the preemptor's work.
    ///
    /// # Errors
    ///
    /// `ResourceConflict` if preemption is off, `Unavailable` if the auctioneer has read more of the log than
    /// this BBS, `StaleRecord` if the work is no longer waiting in that state.
    pub(super) fn check_preemption(&self, preemptor: &Preemptor) -> Result<Cause, Refusal> {
        if !self.cluster().is_some_and(|cluster| cluster.preemption) {
            let why = "preemption is off: enable it with muster cluster preemption on";
            return Err(Refusal::new(Code::ResourceConflict, why));
        }
        if self.is_ahead(preemptor) {
            return Err(Refusal::unknown_epoch());
        }
        self.waiting_cause(preemptor).ok_or_else(|| {
            let why = format!("{} no longer waits for room as the auctioneer assumed", preemptor.work);
            Refusal::new(Code::StaleRecord, why)
        })
    }

    /// Returns `true` if the auctioneer knew an entry about the work that this BBS has not received yet.
    fn is_ahead(&self, preemptor: &Preemptor) -> bool {
        match &preemptor.work {
            WorkKey::Lrp { key, epoch } => self.process(&key.process_guid).is_none_or(|process| {
                let here = process.changed_at(&key.place);
                process.epoch < *epoch || process.epoch == *epoch && here < preemptor.attempt
            }),
            WorkKey::Task { task_guid, epoch } => self.task(task_guid).is_none_or(|task| task.epoch < *epoch),
        }
    }

    /// Returns the cause of work that waits for free resources; `None` if the work is not waiting in the
    /// state that `preemptor` names.
    fn waiting_cause(&self, preemptor: &Preemptor) -> Option<Cause> {
        match &preemptor.work {
            WorkKey::Lrp { key, epoch } => {
                let process = self.process(&key.process_guid).filter(|process| process.epoch == *epoch)?;
                let desired = process.desired.as_ref()?;
                let slot = process.slot(&key.place).filter(|_| process.is_desired(&key.place))?;
                let open = |lrp: &&Actual| lrp.is_unclaimed() && lrp.since == preemptor.attempt;
                slot.actual.as_ref().filter(open)?;
                (desired.priority == preemptor.priority).then_some(slot.cause)
            }
            WorkKey::Task { task_guid, epoch } => {
                let task = self.task(task_guid).filter(|task| task.epoch == *epoch && task.is_pending())?;
                let waits = task.definition.placement != Placement::Fail;
                (waits && task.definition.priority == preemptor.priority).then_some(task.cause)
            }
        }
    }
}
