//! Reports to the BBS, and their answers. A report concerns a container, and the BBS decides on its record in
//! the log.
//!
//! ```text
//! add ─▶ waiting ── Turn, a place is free ──▶ sent ── answered ─▶ settled
//!           ▲                                  │
//!           └── judged again when due ◀── postponed (no answer, or refused as retryable)
//! ```
//! A place is free while fewer messages than the limit are unanswered. To judge a container is to compare it
//! with its record, and to choose the next report or action.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use schemas::limits::BATCH;
use schemas::message::{Report, ReportResult, Reports, ReportsReply};
use schemas::names::InstanceGuid;
use schemas::placement::Explanation;
use schemas::refusal::{Class, Code};
use schemas::{Position, Refusal, Timestamp, actual, evacuating, process, task};

use super::allocations::Rank;
use super::inspect::Knowledge;
use super::{Effect, Level, Rep, judge, log_text};
use crate::limits;
use crate::reconcile::ContainerAction;

/// Maximum number of attempts for a report on a missing container. After the last attempt, the next poll
/// finds the missing container again.
const MAX_GAP_ATTEMPTS: u32 = 5;

/// Report without a final answer. A container has at most one.
#[derive(Debug)]
struct PendingReport {
    report: Report,
    then: ContainerAction,
    /// `true` if the report concerns a record that names a missing container.
    gap: bool,
    failures: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Sent,
    Postponed(Timestamp),
}

/// Reports without a final answer, by container.
#[derive(Debug, Default)]
pub(super) struct PendingReports {
    by_guid: BTreeMap<InstanceGuid, PendingReport>,
    waiting: VecDeque<InstanceGuid>,
    /// Times at which the containers of postponed reports are judged again.
    postponed: BTreeSet<(Timestamp, InstanceGuid)>,
    sent: BTreeMap<u64, Vec<InstanceGuid>>,
}

impl PendingReports {
    pub(super) fn has(&self, guid: InstanceGuid) -> bool {
        self.by_guid.contains_key(&guid)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_guid.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.by_guid.len() + self.sent.len()
    }

    /// Returns the number of reports that wait to be sent.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn add(&mut self, guid: InstanceGuid, report: Report, then: ContainerAction) {
        self.put(guid, PendingReport { report, then, gap: false, failures: 0, stage: Stage::Waiting });
    }

    pub(super) fn add_gap(&mut self, guid: InstanceGuid, report: Report) {
        let then = ContainerAction::Nothing;
        self.put(guid, PendingReport { report, then, gap: true, failures: 0, stage: Stage::Waiting });
    }

    fn put(&mut self, guid: InstanceGuid, flight: PendingReport) {
        self.remove(guid);
        self.by_guid.insert(guid, flight);
        self.waiting.push_back(guid);
    }

    fn requeue(&mut self, guid: InstanceGuid, flight: PendingReport) {
        self.put(guid, PendingReport { stage: Stage::Waiting, ..flight });
    }

    /// Cancels a report that was not sent yet. A sent report remains, because the rep needs its answer.
    pub(super) fn cancel(&mut self, guid: InstanceGuid) {
        if self.by_guid.get(&guid).is_some_and(|flight| flight.stage != Stage::Sent) {
            self.remove(guid);
            self.waiting.retain(|waiting| *waiting != guid);
        }
    }

    /// Takes the reports for the next message: the first waiting reports, as many as fit into one message,
    /// and at least one.
    fn next_message(&mut self) -> Option<(Vec<InstanceGuid>, Vec<Report>)> {
        if self.sent.len() >= limits::MAX_REPORTS_IN_FLIGHT {
            return None;
        }
        let (mut guids, mut reports, mut bytes) = (vec![], vec![], 0);
        while let Some(guid) = self.waiting.front() {
            let Some(flight) = self.by_guid.get_mut(guid) else {
                self.waiting.pop_front();
                continue;
            };
            bytes += max_report_bytes(&flight.report);
            if !guids.is_empty() && (bytes > limits::MAX_REPORTS_BYTES || guids.len() >= BATCH) {
                break;
            }
            flight.stage = Stage::Sent;
            reports.push(flight.report.clone());
            guids.push(*guid);
            self.waiting.pop_front();
        }
        (!guids.is_empty()).then_some((guids, reports))
    }

    fn remove(&mut self, guid: InstanceGuid) -> Option<PendingReport> {
        let flight = self.by_guid.remove(&guid)?;
        if let Stage::Postponed(until) = flight.stage {
            self.postponed.remove(&(until, guid));
        }
        Some(flight)
    }

    fn postpone(&mut self, guid: InstanceGuid, now: Timestamp) {
        let Some(mut flight) = self.remove(guid) else { return };
        flight.failures += 1;
        let until = now + limits::backoff(flight.failures);
        flight.stage = Stage::Postponed(until);
        self.postponed.insert((until, guid));
        self.by_guid.insert(guid, flight);
    }

    /// Moves the retry of postponed reports to `by` if it is later, and resets their backoff. Another leader
    /// may accept the reports.
    pub(super) fn retry_by(&mut self, by: Timestamp) {
        self.postponed.clear();
        for (guid, flight) in &mut self.by_guid {
            flight.failures = 0;
            if let Stage::Postponed(until) = &mut flight.stage {
                *until = by.min(*until);
                self.postponed.insert((*until, *guid));
            }
        }
    }

    fn due(&self, now: Timestamp) -> Vec<InstanceGuid> {
        self.postponed.iter().take_while(|(at, _)| *at <= now).map(|(_, guid)| *guid).collect()
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.postponed.first().map(|(at, _)| *at)
    }
}

impl Rep {
    /// Sends the waiting reports, up to the limit of unanswered messages.
    pub(super) fn send_reports(&mut self) {
        while let Some((guids, reports)) = self.flights.next_message() {
            let id = self.next_message();
            self.flights.sent.insert(id, guids);
            let reports = Reports { folder: self.settings.folder, reports };
            self.emit(Effect::Report { id, reports });
        }
    }

    /// Handles the BBS's answer to a message of reports.
    pub(super) fn reports_answered(&mut self, id: u64, answer: Option<Result<ReportsReply, Refusal>>) {
        let Some(guids) = self.flights.sent.remove(&id) else { return };
        match answer {
            None => {
                self.log(
                    Level::Info,
                    format!("no answer in time to {}", log_text::counted(guids.len(), "report")),
                );
                guids.iter().for_each(|guid| self.flights.postpone(*guid, self.now));
            }
            Some(Err(refusal)) => {
                self.log(
                    Level::Info,
                    format!("{} refused: {refusal}", log_text::counted(guids.len(), "report")),
                );
                self.react_to(refusal.code);
                guids.iter().for_each(|guid| self.flights.postpone(*guid, self.now));
            }
            Some(Ok(ReportsReply { position, terms, results })) => {
                self.learn(position, terms);
                let mut results = results.into_iter();
                for guid in guids {
                    match results.next() {
                        Some(result) => self.settle(guid, &result, position),
                        None => self.flights.postpone(guid, self.now),
                    }
                }
            }
        }
    }

    fn settle(&mut self, guid: InstanceGuid, result: &ReportResult, position: Position) {
        if let Some(hold) = self.holds.get_mut(guid) {
            hold.learn(&result.record, position);
        }
        if let Some(refusal) =
            result.refused.as_ref().filter(|refusal| refusal.code.class() == Class::Retryable)
        {
            self.log_refused(guid, refusal);
            self.react_to(refusal.code);
            self.flights.postpone(guid, self.now);
            return;
        }
        let Some(flight) = self.flights.remove(guid) else { return };
        let stale = result.refused.as_ref().is_some_and(|refusal| refusal.code == Code::StaleRecord);
        if self.holds.get(guid).is_none() {
            if !flight.gap || stale {
                // The reservation was dropped while its report had no answer. The report may have changed the
                // record all the same, so correct the record.
                self.correct_orphaned_record(guid, &result.record);
            }
            return;
        }
        match &result.refused {
            Some(refusal) => {
                // Changed records are normal, because several components decide at the same time. The
                // container is judged again, against the new record.
                if !stale {
                    self.log_refused(guid, refusal);
                }
                let is_named = judge::named_containers(&result.record).next().is_some();
                self.reconsider(guid, (refusal.code, is_named), flight.gap);
            }
            None => match flight.then {
                ContainerAction::Run if !self.may_run(guid) => {}
                then @ (ContainerAction::Run | ContainerAction::Delete | ContainerAction::Nothing) => {
                    self.act(guid, then);
                }
            },
        }
        self.inspect(guid, Knowledge::Remembered);
    }

    fn log_refused(&mut self, guid: InstanceGuid, refusal: &Refusal) {
        let what = match self.holds.get(guid) {
            Some(hold) => log_text::container_text(hold.container()),
            None => format!("container {guid}"),
        };
        self.log(Level::Info, format!("the report about {what} was refused: {refusal}"));
    }

    /// Handles a refused report. There are three cases:
    ///
    /// - The BBS knows the guid in another epoch. The container is obsolete, even if it has no record.
    /// - The BBS does not let the container start, although the record names no other container. The index
    ///   belongs to another cell.
    /// - The record has changed. The same report may be valid now.
    fn reconsider(&mut self, guid: InstanceGuid, (code, is_named): (Code, bool), gap: bool) {
        let Some(hold) = self.holds.get_mut(guid) else { return };
        let elsewhere = code == Code::ActualLrpCannotBeStarted && !is_named;
        hold.obsolete |= (code == Code::StaleEpoch || elsewhere) && !gap;
        if code == Code::StaleRecord {
            hold.reported_case = None;
        }
    }

    /// Sends a heartbeat and polls the records again if the BBS considers this cell lost.
    pub(super) fn react_to(&mut self, code: Code) {
        if code == Code::CellAbsent {
            self.beats.request();
            self.reads.poll_soon(self.now);
        }
    }

    /// Judges the containers of postponed reports again, because the containers or their records may have
    /// changed. Sends a report on a missing container again.
    pub(super) fn retry_reports(&mut self) {
        for guid in self.flights.due(self.now) {
            let Some(flight) = self.flights.remove(guid) else { continue };
            match self.holds.get_mut(guid).filter(|hold| !flight.gap && !hold.is_deleting()) {
                Some(hold) => {
                    hold.reported_case = None;
                    self.inspect(guid, Knowledge::Remembered);
                    self.follow_up(guid, flight);
                }
                // The reservation was dropped, and its claim is not needed. A poll shows whether the claim
                // reached the log.
                None if flight.then == ContainerAction::Run => self.reads.poll_soon(self.now),
                None if flight.failures < MAX_GAP_ATTEMPTS => self.flights.requeue(guid, flight),
                None => self.reads.poll_soon(self.now),
            }
        }
    }

    /// Completes the retry of a postponed report. If the container has a new report, the new report inherits
    /// the number of failures. A claim is repeated even if the record already names the reservation, because
    /// the rep runs the container only after it receives the answer to the claim.
    fn follow_up(&mut self, guid: InstanceGuid, before: PendingReport) {
        let waits = self.holds.get(guid).is_some_and(|hold| hold.rank() == Rank::Reserved);
        match self.flights.by_guid.get_mut(&guid) {
            Some(again) => again.failures = before.failures,
            None if waits && before.then == ContainerAction::Run => self.flights.requeue(guid, before),
            None => {}
        }
    }
}

/// Returns an upper bound of the size of a report as JSON, in bytes. The bound assumes names of maximum
/// length, and counts texts after JSON escaping.
fn max_report_bytes(report: &Report) -> usize {
    const NAMES: usize = 1024;
    let rest = match report {
        Report::Lrp { report, .. } => report.steps.iter().map(max_step_bytes).sum(),
        Report::Task { report, .. } => match &report.step {
            task::ReportStep::Start { placement, isolation: _ } => max_placement_bytes(placement.as_deref()),
            task::ReportStep::Complete { outcome: task::Outcome::Succeeded { result } } => {
                escaped_bytes(result)
            }
            task::ReportStep::Complete { outcome: task::Outcome::Failed { reason } } => escaped_bytes(reason),
        },
    };
    NAMES + rest
}

fn max_step_bytes(step: &process::ReportStep) -> usize {
    const STEP: usize = 256;
    const PORT: usize = 64;
    let rest = match step {
        process::ReportStep::Actual(actual::Command::Claim { placement }) => {
            max_placement_bytes(placement.as_deref())
        }
        process::ReportStep::Actual(actual::Command::Crash { reason, .. }) => escaped_bytes(reason),
        process::ReportStep::Actual(actual::Command::Start { net, isolation: _ })
        | process::ReportStep::Evacuating(evacuating::Command::Set { net, .. }) => {
            escaped_bytes(&net.address) + net.ports.len() * PORT
        }
        process::ReportStep::Actual(actual::Command::Remove | actual::Command::Unclaim)
        | process::ReportStep::Evacuating(evacuating::Command::Remove) => 0,
    };
    STEP + rest
}

/// An explanation needs no limit here, because its size is limited at its creation.
const fn max_placement_bytes(placement: Option<&Explanation>) -> usize {
    match placement {
        Some(_) => schemas::limits::EXPLANATION_BYTES,
        None => 0,
    }
}

fn escaped_bytes(text: &str) -> usize {
    let length = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 => 6,
        0x20..=0xff => 1,
    };
    text.bytes().map(length).sum()
}
