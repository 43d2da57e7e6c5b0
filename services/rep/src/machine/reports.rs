//! Reports on their way to the BBS, and what comes back.
//!
//! ```text
//! add ─▶ waiting ── Turn, a place is free ──▶ sent ── answered ─▶ settled
//!           ▲                                  │
//!           └── looked at anew when due ◀── postponed (unanswered, or "not now")
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

/// A report that no container stands behind is sent at most this often; then the next poll finds the gap again.
const GAP_ATTEMPTS: u32 = 5;

/// A report that is not settled yet. There is at most one for a container.
#[derive(Debug)]
struct Flight {
    report: Report,
    then: Then,
    /// Whether it speaks of a container that isn't there.
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

/// Every report that is not settled yet.
#[derive(Debug, Default)]
pub(super) struct Flights {
    of: BTreeMap<InstanceGuid, Flight>,
    waiting: VecDeque<InstanceGuid>,
    /// When those that are postponed are looked at anew.
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

    /// How many wait for a place in a message.
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

    /// Takes back a report, unless it is on its way: then its answer is needed.
    pub(super) fn cancel(&mut self, guid: InstanceGuid) {
        if self.of.get(&guid).is_some_and(|flight| flight.stage != Stage::Sent) {
            self.remove(guid);
            self.waiting.retain(|waiting| *waiting != guid);
        }
    }

    /// The next message, in the order in which the reports came up: as many as fit, at least one.
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

    /// Makes what is postponed due by a time, and begins its backoff again: another leader may take it.
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
    /// Sends what was gathered, as far as there is a place for it.
    pub(super) fn send_reports(&mut self) {
        while let Some((guids, reports)) = self.flights.next_message() {
            let id = self.next_message();
            self.flights.sent.insert(id, guids);
            let reports = Reports { folder: self.settings.folder, reports };
            self.emit(Effect::Report { id, reports });
        }
    }

    /// The BBS answered, or didn't.
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
                // It was dropped while its report was under way, which may have made a record of it.
                self.judge_gap(guid, &result.record);
            }
            return;
        }
        match &result.refused {
            Some(refusal) => {
                // That the record changed meanwhile is the way things go where several decide; it is judged again.
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

    /// If another life of the guid goes on, this container belongs to none, even where no record says so. If it can't be
    /// started though nothing has its place, that belongs to another cell. If the record has changed, the same may be right
    /// to ask again.
    fn reconsider(&mut self, guid: InstanceGuid, (code, is_named): (Code, bool), gap: bool) {
        let Some(hold) = self.holds.get_mut(guid) else { return };
        let elsewhere = code == Code::ActualLrpCannotBeStarted && !is_named;
        hold.outlived |= (code == Code::StaleEpoch || elsewhere) && !gap;
        if code == Code::StaleRecord {
            hold.tried = None;
        }
    }

    /// The BBS believes that this cell is lost: it is told otherwise, and asked what became of the records.
    pub(super) fn react_to(&mut self, code: Code) {
        if code == Code::CellAbsent {
            self.beats.urge();
            self.reads.poll_soon(self.now);
        }
    }

    /// Looks anew at the containers whose reports were not answered: they, or their records, may have changed. Where
    /// there is no container, the same is said again.
    pub(super) fn retry_reports(&mut self) {
        for guid in self.flights.due(self.now) {
            let Some(flight) = self.flights.remove(guid) else { continue };
            match self.holds.get_mut(guid).filter(|hold| !flight.gap && !hold.is_leaving()) {
                Some(hold) => {
                    hold.tried = None;
                    self.look(guid, Knowledge::Remembered);
                    self.follow_up(guid, flight);
                }
                // Its reservation was dropped: nothing waits for this claim. Whether it came through is to be read.
                None if flight.then == Then::Run => self.reads.poll_soon(self.now),
                None if flight.failures < GAP_ATTEMPTS => self.flights.put_again(guid, flight),
                None => self.reads.poll_soon(self.now),
            }
        }
    }

    /// After a look because of an unanswered report: what is asked now was asked before. A reservation that its record
    /// names already is run by the answer to its claim, so that is asked for again.
    fn follow_up(&mut self, guid: InstanceGuid, before: Flight) {
        let waits = self.holds.get(guid).is_some_and(|hold| hold.rank() == Rank::Reserved);
        match self.flights.of.get_mut(&guid) {
            Some(again) => again.failures = before.failures,
            None if waits && before.then == Then::Run => self.flights.put_again(guid, before),
            None => {}
        }
    }
}

/// At most this many bytes a report is long as JSON: names of full length, and the texts as they are escaped.
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

/// An explanation is cut to size where it is made.
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
