//! Reports of reps about their containers, and reports of the auctioneer about work that it could not place.

use std::collections::BTreeMap;

use super::draft::{Draft, group_by_definition};
use crate::actual::{self, Actual, State};
use crate::crash::{self, Crash};
use crate::desired::Desired;
use crate::evaluation;
use schemas::actual::{StopReason, UnclaimReason};
use schemas::container::Instance;
use schemas::crash::Restart;
use schemas::definition::Mode;
use schemas::entry::Event;
use schemas::evacuating::{self, RemovalReason};
use schemas::evaluation::Trigger;
use schemas::key::Place;
use schemas::names::{CellId, EvaluationId};
use schemas::policy::RestartPolicy;
use schemas::process::{Outcome, Report, ReportStep, Unplaced};
use schemas::refusal::{Code, Refusal};
use schemas::{Timestamp, limits};

impl Draft<'_> {
    pub(super) fn report(&mut self, report: &Report) -> Result<(), Refusal> {
        self.check_epoch(report)?;
        if !(self.context.is_present)(&report.by.cell_id) {
            let why = format!("cell {} is not present", report.by.cell_id);
            return Err(Refusal::new(Code::CellAbsent, why));
        }
        for step in &report.steps {
            match step {
                ReportStep::Actual(command) => self.report_actual(report, command)?,
                ReportStep::Evacuating(command) => {
                    self.check_evacuation(report, command)?;
                    let (actual, twin) =
                        (self.actual(&report.place), self.evacuating_instance(&report.place));
                    let event = crate::evacuating::decide(actual, twin, command, &report.by, &report.place)?;
                    if let Some(event) = event {
                        self.record_evacuating(event);
                        if matches!(command, evacuating::Command::Set { .. }) {
                            self.end_evacuating(report.place.index, |place| *place != report.place);
                        }
                    }
                }
            }
        }
        if report.steps.iter().any(|step| matches!(step, ReportStep::Evacuating(_))) {
            self.settle(report.place.index, Trigger::Evacuation);
        }
        self.check_unchanged(report)
    }

    /// Removes the evacuating instances at an index whose slots pass the condition `goes`.
    ///
    /// An instance that starts or evacuates replaces the evacuating instances of other definitions. The rep
    /// of an evacuating instance in the same slot removes it, unless the index would have three instances.
    fn end_evacuating(&mut self, index: u32, goes: impl Fn(&Place) -> bool) {
        let going: Vec<Place> =
            self.evacuating_slots_at(index).filter(|place| goes(place)).cloned().collect();
        for place in going {
            self.record_evacuating(evacuating::Event::Removed { place, cause: RemovalReason::Replaced });
        }
    }

    /// Returns an error if an evacuating instance is not allowed. It is not allowed if the process is global,
    /// if the slot is not desired and has no record, if another definition replaces the instance, or if the
    /// index has two other instances.
    fn check_evacuation(&self, report: &Report, command: &evacuating::Command) -> Result<(), Refusal> {
        let place = &report.place;
        let global = self.desired().is_some_and(Desired::is_global);
        match command {
            evacuating::Command::Set { .. } if global => {
                let why = "an instance of a global process stops instead of moving to another cell";
                Err(Refusal::new(Code::ActualLrpCannotBeEvacuated, why))
            }
            evacuating::Command::Set { .. }
                if self.is_known_undesired(place) && self.actual(place).is_none() =>
            {
                let why = format!("index {} is not desired", place.index);
                Err(Refusal::new(Code::ActualLrpCannotBeEvacuated, why))
            }
            evacuating::Command::Set { .. } if self.is_known_undesired(place) && self.has_others(place) => {
                let why = format!("another definition replaces the instance at index {}", place.index);
                Err(Refusal::new(Code::ActualLrpCannotBeEvacuated, why))
            }
            evacuating::Command::Set { .. } if self.count_others(place.index, &report.by) >= 2 => {
                let why = format!("index {} already has two other instances", place.index);
                Err(Refusal::new(Code::ActualLrpCannotBeEvacuated, why))
            }
            evacuating::Command::Set { .. } | evacuating::Command::Remove => Ok(()),
        }
    }

    /// Returns the number of instances at an index that are not stopping. The instance in container `by` is
    /// not counted.
    fn count_others(&self, index: u32, by: &Instance) -> usize {
        let stays = |lrp: &Actual| lrp.holder() != Some(by) && !lrp.is_stopping();
        self.actuals_at(index).filter(|(_, lrp)| stays(lrp)).count()
    }

    fn has_others(&self, place: &Place) -> bool {
        self.actuals_at(place.index).any(|(other, _)| other != place)
    }

    /// Ends excess instances at an index after a report about it was recorded.
    fn end_excess(&mut self, place: &Place, cell: &CellId, trigger: Trigger) {
        if self.is_index_desired(place.index) {
            self.settle(place.index, trigger);
        } else if self.is_known_undesired(place) {
            let desired = self.process.and_then(|process| process.desired.as_deref());
            let cause = match desired.map(Desired::mode) {
                Some(Mode::Replicated) => StopReason::Scale,
                Some(Mode::Global) => self.departure_cause(place.index, cell),
                None => StopReason::Removed,
            };
            self.end(vec![place.clone()], cause);
        }
    }

    /// Returns an error if the records have changed since the rep based its report on them. A report that
    /// changes nothing is always accepted.
    fn check_unchanged(&self, report: &Report) -> Result<(), Refusal> {
        let changed_at = self.process.map_or(Timestamp(0), |process| process.changed_at(&report.place));
        if self.events.is_empty() || changed_at <= report.observed_at {
            return Ok(());
        }
        let why =
            format!("the records of index {} have changed since the rep judged them", report.place.index);
        Err(Refusal::new(Code::StaleRecord, why))
    }

    /// Returns an error if the container belongs to an earlier epoch. If the process is not remembered, a
    /// running container is accepted.
    fn check_epoch(&self, report: &Report) -> Result<(), Refusal> {
        match self.process {
            // This BBS has not read the whole log, for example because another BBS leads and this BBS has not
            // noticed that yet.
            Some(process) if process.epoch < report.epoch => Err(Refusal::unknown_epoch()),
            Some(process) if process.epoch > report.epoch => {
                let why = format!(
                    "process {} was desired again after this container was \
                                   created",
                    process.guid
                );
                Err(Refusal::new(Code::StaleEpoch, why))
            }
            Some(process) if process.domain != report.domain => {
                let why = format!("process {} is in domain {}", process.guid, process.domain);
                Err(Refusal::new(Code::Forbidden, why))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn report_actual(&mut self, report: &Report, command: &schemas::actual::Command) -> Result<(), Refusal> {
        let (place, by) = (report.place.clone(), report.by.clone());
        match (actual::decide(self.actual(&place), command, &by)?, command) {
            (actual::Step::Nothing, _) => {}
            (actual::Step::Claim, schemas::actual::Command::Claim { .. })
                if self.is_known_undesired(&place) =>
            {
                let why = format!("index {} is not desired", place.index);
                return Err(Refusal::new(Code::ActualLrpCannotBeClaimed, why));
            }
            (actual::Step::Claim, schemas::actual::Command::Claim { placement }) => {
                self.check_cell(report, Code::ActualLrpCannotBeClaimed)?;
                self.check_distinct(report)?;
                self.record(schemas::actual::Event::Claimed { place, by, placement: placement.clone() });
            }
            (actual::Step::Start, schemas::actual::Command::Start { net, isolation }) => {
                self.check_cell(report, Code::ActualLrpCannotBeStarted)?;
                self.record(schemas::actual::Event::Started {
                    place,
                    by,
                    net: net.clone(),
                    isolation: *isolation,
                });
                let crowded = self.has_others(&report.place);
                self.end_evacuating(report.place.index, |place| crowded || *place != report.place);
                self.end_excess(&report.place, &report.by.cell_id, Trigger::Stop);
            }
            (actual::Step::Crash, schemas::actual::Command::Crash { .. }) if self.is_late_crash(&place) => {}
            (actual::Step::Crash, schemas::actual::Command::Crash { reason, exit_status }) => {
                self.crash(report, reason, *exit_status);
                self.end_excess(&place, &report.by.cell_id, Trigger::Crash);
            }
            (actual::Step::Remove(cause), _) => {
                let (index, trigger) = (place.index, self.follow_up_trigger(&place));
                self.record(schemas::actual::Event::Removed { places: place.into(), cause });
                self.settle(index, trigger);
            }
            (actual::Step::Unclaim, _) if self.is_index_desired(place.index) => {
                self.restart(&place, UnclaimReason::Evacuation, Trigger::Evacuation);
            }
            // If the process is not desired, no definition exists with which the instance could be placed.
            (actual::Step::Unclaim, _) => {
                self.record(schemas::actual::Event::Removed {
                    places: place.into(),
                    cause: StopReason::Evacuated,
                });
            }
            (actual::Step::Claim | actual::Step::Start | actual::Step::Crash, other) => {
                unreachable!("actual::decide handles {other:?} with a step of its own")
            }
        }
        Ok(())
    }

    /// Returns the trigger of the work that follows when a stopped instance ends.
    fn follow_up_trigger(&self, place: &Place) -> Trigger {
        let preempted = self.actual(place).is_some_and(|lrp| lrp.stop == Some(StopReason::Preempted));
        if preempted { Trigger::Preemption } else { Trigger::Stop }
    }

    /// Returns `true` if the process is known, and the slot has no record and is not desired. A crash report
    /// for such a slot is late or duplicated. If the process is not known, the crash is recorded, as the
    /// reconciliation table of the rep demands.
    fn is_late_crash(&self, place: &Place) -> bool {
        let known = self.process.is_some() || !self.events.is_empty();
        known && !self.is_desired(place) && self.actual(place).is_none()
    }

    /// Performs the `RepCrashDance` (Diego Dev Notes, "Crashes").
    fn crash(&mut self, report: &Report, reason: &str, exit_status: Option<i32>) {
        let place = &report.place;
        let known = self.actual(place);
        let running_since = known.filter(|lrp| lrp.is_running()).map(|lrp| lrp.since);
        let stored = known.map_or(0, |lrp| lrp.crash_count);
        let previous_crashes = crash::count_before(stored, running_since, self.context.now);
        let unset = RestartPolicy::default();
        let policy = self.desired().map_or(&unset, |desired| &desired.policies.restart);
        let crash = Crash {
            previous_crashes,
            restarts: known.map_or(&[], Actual::restarts),
            running_since,
            succeeded: exit_status == Some(0),
            is_starting: self.rollout().is_some_and(|rollout| rollout.starts(place)),
            at: self.context.now,
        };
        let (restart, attempts) = crash::decide(policy, &crash);
        self.record(schemas::actual::Event::Crashed {
            place: place.clone(),
            by: report.by.clone(),
            reason: limits::truncate(reason, limits::REASON_BYTES),
            exit_status,
            crash_count: previous_crashes + 1,
            restart,
            attempts,
        });
        self.record_instance_failure(place, reason);
        if restart == Restart::Immediate && self.is_desired(place) {
            self.restart(place, UnclaimReason::Crash, Trigger::Crash);
        }
    }

    /// Records the placement errors of one evaluation. Instances that have changed since the auctioneer tried
    /// to place them are left out.
    pub(super) fn fail(&mut self, outcome: &Outcome) -> Result<(), Refusal> {
        let known = self.evaluations().into_iter().rev().find(|one| one.id == outcome.evaluation);
        let duty = evaluation::open_duty(known.as_ref(), outcome.evaluation)?;
        let mut by_error: BTreeMap<String, Vec<Place>> = BTreeMap::new();
        for Unplaced { place, attempt, error } in &outcome.unplaced {
            let judged = self.actual(place).filter(|lrp| lrp.since == *attempt && lrp.duty() == Some(duty));
            let known = judged.and_then(|lrp| match &lrp.state {
                State::Unclaimed { placement_error } => Some(placement_error.as_deref()),
                State::Claimed { .. } | State::Running { .. } | State::Crashed { .. } => None,
            });
            let error = limits::truncate(error, limits::REASON_BYTES);
            if known.is_some_and(|known| known != Some(error.as_str())) {
                by_error.entry(error).or_default().push(place.clone());
            }
        }
        // The decision takes its cause from the first index.
        let mut in_order: Vec<_> = by_error.into_iter().collect();
        in_order.sort_by_key(|(_, places)| places.iter().min().cloned());
        for (error, places) in in_order {
            for places in group_by_definition(places) {
                let (error, explanation) = (error.clone(), outcome.explanation.clone());
                self.record(schemas::actual::Event::PlacementFailed { places, error, explanation });
            }
            self.did.error = Some(error);
            self.did.eligibility =
                outcome.explanation.as_ref().and_then(|explanation| explanation.eligibility.clone());
        }
        self.did.attempts_exhausted = outcome.attempts_exhausted && self.did.queued > 0;
        Ok(())
    }

    /// Records that the auctioneer did not answer a delivery of an evaluation. If the work is no longer
    /// desired, its evaluation is no longer open.
    pub(super) fn unanswered(&self, id: EvaluationId, delivery: u32) -> Result<Vec<Event>, Refusal> {
        let events = evaluation::decide_unanswered(&self.evaluations(), id, delivery, self.context.now)?;
        Ok(events.into_iter().map(Event::Evaluation).collect())
    }

    /// Retries an evaluation now, at the request of a client.
    pub(super) fn retry(&self, id: EvaluationId) -> Result<Vec<Event>, Refusal> {
        let events = evaluation::decide_retry(&self.evaluations(), id, &self.left)?;
        Ok(events.into_iter().map(Event::Evaluation).collect())
    }
}
