//! Reports to the BBS, and their answers.
//!
//! ```text
//! add ─▶ waiting ── Turn, a place is free ──▶ sent ── answered ─▶ settled
//!           ▲                                  │
//!           └── judged again when due ◀── postponed (unanswered, or "not now")
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use schemas::limits::BATCH;
use schemas::message::{Report, ReportResult, Reported, Reports};
use schemas::names::InstanceGuid;
use schemas::placement::Explanation;
use schemas::refusal::{Class, Code};
use schemas::{Position, Refusal, Timestamp, actual, evacuating, process, task};

use super::holds::Rank;
use super::look::Knowledge;
use super::{Effect, Level, Rep, judge, telling};
use crate::limits;
use crate::reconcile::Then;

/// Maximum number of attempts for a report without a container. After that the next poll finds the gap again.
const GAP_ATTEMPTS: u32 = 5;

/// Unsettled report. There is at most one per container.
#[derive(Debug)]
struct Flight {
    report: Report,
    then: Then,
    /// `true` if the container is missing.
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

/// Unsettled reports by container.
#[derive(Debug, Default)]
pub(super) struct Flights {
    of: BTreeMap<InstanceGuid, Flight>,
    waiting: VecDeque<InstanceGuid>,
    /// Times at which postponed reports are judged again.
    postponed: BTreeSet<(Timestamp, InstanceGuid)>,
    sent: BTreeMap<u64, Vec<InstanceGuid>>,
}

impl Flights {
    pub(super) fn has(&self, guid: InstanceGuid) -> bool {
        self.of.contains_key(&guid)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.of.len() + self.sent.len()
    }

    /// Returns the number of reports that wait for a message.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn add(&mut self, guid: InstanceGuid, report: Report, then: Then) {
        self.put(guid, Flight { report, then, gap: false, failures: 0, stage: Stage::Waiting });
    }

    pub(super) fn add_gap(&mut self, guid: InstanceGuid, report: Report) {
        let then = Then::Nothing;
        self.put(guid, Flight { report, then, gap: true, failures: 0, stage: Stage::Waiting });
    }

    fn put(&mut self, guid: InstanceGuid, flight: Flight) {
        self.remove(guid);
        self.of.insert(guid, flight);
        self.waiting.push_back(guid);
    }

    fn put_again(&mut self, guid: InstanceGuid, flight: Flight) {
        self.put(guid, Flight { stage: Stage::Waiting, ..flight });
    }

    /// Cancels a report, unless it was sent: then its answer is needed.
    pub(super) fn cancel(&mut self, guid: InstanceGuid) {
        if self.of.get(&guid).is_some_and(|flight| flight.stage != Stage::Sent) {
            self.remove(guid);
            self.waiting.retain(|waiting| *waiting != guid);
        }
    }

    /// Takes the next message: waiting reports in their order, as many as fit and at least one.
    fn next_message(&mut self) -> Option<(Vec<InstanceGuid>, Vec<Report>)> {
        if self.sent.len() >= limits::REPORTS_IN_FLIGHT {
            return None;
        }
        let (mut guids, mut reports, mut bytes) = (vec![], vec![], 0);
        while let Some(guid) = self.waiting.front() {
            let Some(flight) = self.of.get_mut(guid) else {
                self.waiting.pop_front();
                continue;
            };
            bytes += weight(&flight.report);
            if !guids.is_empty() && (bytes > limits::REPORTS_BYTES || guids.len() >= BATCH) {
                break;
            }
            flight.stage = Stage::Sent;
            reports.push(flight.report.clone());
            guids.push(*guid);
            self.waiting.pop_front();
        }
        (!guids.is_empty()).then_some((guids, reports))
    }

    fn remove(&mut self, guid: InstanceGuid) -> Option<Flight> {
        let flight = self.of.remove(&guid)?;
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
        self.of.insert(guid, flight);
    }

    /// Makes postponed reports due by a time and resets their backoff, because another leader may accept
    /// them.
    pub(super) fn hasten(&mut self, by: Timestamp) {
        self.postponed.clear();
        for (guid, flight) in &mut self.of {
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
    pub(super) fn reported(&mut self, id: u64, answer: Option<Result<Reported, Refusal>>) {
        let Some(guids) = self.flights.sent.remove(&id) else { return };
        match answer {
            None => {
                self.log(
                    Level::Info,
                    format!("no answer in time to {}", telling::count(guids.len(), "report")),
                );
                guids.iter().for_each(|guid| self.flights.postpone(*guid, self.now));
            }
            Some(Err(refusal)) => {
                self.log(
                    Level::Info,
                    format!("{} refused: {refusal}", telling::count(guids.len(), "report")),
                );
                self.react_to(refusal.code);
                guids.iter().for_each(|guid| self.flights.postpone(*guid, self.now));
            }
            Some(Ok(Reported { position, terms, results })) => {
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
        if let Some(refusal) = result.refused.as_ref().filter(|refusal| refusal.code.class() == Class::NotNow)
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
                // The reservation was dropped while its report was unanswered, and the report may have
                // created a record.
                self.judge_gap(guid, &result.record);
            }
            return;
        }
        match &result.refused {
            Some(refusal) => {
                // A changed record is normal if several components decide at the same time. It is judged
                // again.
                if !stale {
                    self.log_refused(guid, refusal);
                }
                let is_named = judge::named(&result.record).next().is_some();
                self.reconsider(guid, (refusal.code, is_named), flight.gap);
            }
            None => match flight.then {
                Then::Run if !self.may_run(guid) => {}
                then @ (Then::Run | Then::Delete | Then::Nothing) => self.act(guid, then),
            },
        }
        self.look(guid, Knowledge::Remembered);
    }

    fn log_refused(&mut self, guid: InstanceGuid, refusal: &Refusal) {
        let what = match self.holds.get(guid) {
            Some(hold) => telling::named(hold.container()),
            None => format!("container {guid}"),
        };
        self.log(Level::Info, format!("the report about {what} was refused: {refusal}"));
    }

    /// Handles a refused report. If the guid is in another epoch, the container is obsolete even without a
    /// record. If the container cannot be started although the record names no other one, its place belongs
    /// to another cell. If the record has changed, the same report may be valid now.
    fn reconsider(&mut self, guid: InstanceGuid, (code, is_named): (Code, bool), gap: bool) {
        let Some(hold) = self.holds.get_mut(guid) else { return };
        let elsewhere = code == Code::ActualLrpCannotBeStarted && !is_named;
        hold.outlived |= (code == Code::StaleEpoch || elsewhere) && !gap;
        if code == Code::StaleRecord {
            hold.tried = None;
        }
    }

    /// Sends a heartbeat and reads the records again if the BBS considers this cell lost.
    pub(super) fn react_to(&mut self, code: Code) {
        if code == Code::CellAbsent {
            self.beats.urge();
            self.reads.poll_soon(self.now);
        }
    }

    /// Judges the containers of unanswered reports again, because they or their records may have changed. A
    /// report without a container is repeated.
    pub(super) fn retry_reports(&mut self) {
        for guid in self.flights.due(self.now) {
            let Some(flight) = self.flights.remove(guid) else { continue };
            match self.holds.get_mut(guid).filter(|hold| !flight.gap && !hold.is_leaving()) {
                Some(hold) => {
                    hold.tried = None;
                    self.look(guid, Knowledge::Remembered);
                    self.follow_up(guid, flight);
                }
                // The reservation was dropped, so the claim is not needed. A poll shows whether it reached
                // the log.
                None if flight.then == Then::Run => self.reads.poll_soon(self.now),
                None if flight.failures < GAP_ATTEMPTS => self.flights.put_again(guid, flight),
                None => self.reads.poll_soon(self.now),
            }
        }
    }

    /// Completes the retry of an unanswered report: a new report inherits the number of failures. A claim is
    /// repeated even if the record already names the reservation, because only its answer runs the
    /// reservation.
    fn follow_up(&mut self, guid: InstanceGuid, before: Flight) {
        let waits = self.holds.get(guid).is_some_and(|hold| hold.rank() == Rank::Reserved);
        match self.flights.of.get_mut(&guid) {
            Some(again) => again.failures = before.failures,
            None if waits && before.then == Then::Run => self.flights.put_again(guid, before),
            None => {}
        }
    }
}

/// Returns an upper bound of a report's size as JSON, in bytes: names of maximum length, and texts after
/// escaping.
fn weight(report: &Report) -> usize {
    const NAMES: usize = 1024;
    let rest = match report {
        Report::Lrp { report, .. } => report.steps.iter().map(weight_of_step).sum(),
        Report::Task { report, .. } => match &report.step {
            task::ReportStep::Start { placement, isolation: _ } => weight_of_placement(placement.as_deref()),
            task::ReportStep::Complete { outcome: task::Outcome::Succeeded { result } } => escaped(result),
            task::ReportStep::Complete { outcome: task::Outcome::Failed { reason } } => escaped(reason),
        },
    };
    NAMES + rest
}

fn weight_of_step(step: &process::ReportStep) -> usize {
    const STEP: usize = 256;
    const PORT: usize = 64;
    let rest = match step {
        process::ReportStep::Actual(actual::Command::Claim { placement }) => {
            weight_of_placement(placement.as_deref())
        }
        process::ReportStep::Actual(actual::Command::Crash { reason, .. }) => escaped(reason),
        process::ReportStep::Actual(actual::Command::Start { net, isolation: _ })
        | process::ReportStep::Evacuating(evacuating::Command::Set { net, .. }) => {
            escaped(&net.address) + net.ports.len() * PORT
        }
        process::ReportStep::Actual(actual::Command::Remove | actual::Command::Unclaim)
        | process::ReportStep::Evacuating(evacuating::Command::Remove) => 0,
    };
    STEP + rest
}

/// Explanations are limited where they are created.
const fn weight_of_placement(placement: Option<&Explanation>) -> usize {
    match placement {
        Some(_) => schemas::limits::EXPLANATION_BYTES,
        None => 0,
    }
}

fn escaped(text: &str) -> usize {
    let length = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 => 6,
        0x20..=0xff => 1,
    };
    text.bytes().map(length).sum()
}
