//! The central path: inspect a container, judge it against its record, act.

use schemas::container::{Container, Instance, WorkKey};
use schemas::message::Record;
use schemas::names::InstanceGuid;
use schemas::{Position, Timestamp};

use super::holds::{Hold, Rank, rank};
use super::judge::{self, Judgement, Mode, Speaker};
use super::telling::{self, named, told, worth_a_line};
use super::{Effect, Level, Phase, Rep};
use crate::reconcile::{Row, Then};

/// Reliability of the record by which a container is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// The latest known record. It suffices for all decisions except ending a running container.
    Remembered,
    /// The record was read for this decision.
    Read,
}

impl Rep {
    /// Handles a change that the executor reported.
    pub(super) fn changed(&mut self, container: Container) {
        let guid = container.instance_guid;
        if self.merge(container) {
            self.look(guid, Knowledge::Remembered);
        }
    }

    /// Merges the executor's state of a container. Returns `false` if the state is already known or outdated.
    /// The executor never reports RESERVED.
    pub(super) fn merge(&mut self, container: Container) -> bool {
        let guid = container.instance_guid;
        if rank(&container.state) == Rank::Reserved {
            return false;
        }
        let Some(hold) = self.holds.get_mut(guid) else {
            let since = self.next_message();
            // After a restart, this position shows how far the log had progressed.
            self.position = self.position.max(container.let_in_at);
            if self.phase == Phase::Starting {
                self.log(Level::Info, format!("adopts {}: {}", named(&container), told(&container.state)));
            }
            self.holds.insert(Hold::new(container, since));
            return true;
        };
        if rank(&container.state) < hold.rank() || container.state == hold.container().state {
            return false;
        }
        hold.tried = None;
        if worth_a_line(&container.state) {
            let text = format!("{}: {}", named(hold.container()), told(&container.state));
            self.log(Level::Info, text);
        }
        self.holds.set_state(guid, container.state);
        true
    }

    /// Inspects a container and performs the steps of its table. Steps that are not possible now are left to
    /// the next inspection.
    pub(super) fn look(&mut self, guid: InstanceGuid, knowledge: Knowledge) {
        let Some(mode) = self.mode() else { return };
        let me = self.instance(guid);
        let Some(hold) = self.holds.get(guid).filter(|hold| !hold.is_leaving()) else { return };
        match hold.known.as_ref().map(|known| judge::wants_stop(&known.record, &me)) {
            None => return self.reads.want(guid),
            // Stop first, so that a claimed reservation with a stop request is not run.
            Some(true) => self.stop_container(guid, knowledge),
            Some(false) => {}
        }
        let Some(hold) = self.holds.get(guid).filter(|_| !self.flights.has(guid)) else { return };
        let Some(known) = &hold.known else { return };
        let judgement = judge::judge(hold, &known.record, &me, mode);
        self.apply(guid, judgement, knowledge, mode);
    }

    fn apply(&mut self, guid: InstanceGuid, judgement: Judgement, knowledge: Knowledge, mode: Mode) {
        let Judgement { row, verdict } = judgement;
        let Some(hold) = self.holds.get(guid) else { return };
        if verdict.then() == Then::Run && !hold.prepared {
            return;
        }
        let unread = knowledge == Knowledge::Remembered && mode != Mode::Closing;
        if verdict.then() == Then::Delete && hold.is_live() && unread {
            self.reads.want(guid);
            return;
        }
        self.met(row);
        let Some(hold) = self.holds.get(guid) else { return };
        let case = Some((hold.rank(), verdict));
        if hold.tried == case {
            return;
        }
        let text = telling::case(hold, verdict, &self.instance(guid));
        let report = self.speaker(guid).and_then(|speaker| speaker.report(verdict.reported()));
        if let Some((level, text)) = text {
            self.log(level, text);
        }
        match report {
            None => self.act(guid, verdict.then()),
            Some(report) => {
                if let Some(hold) = self.holds.get_mut(guid) {
                    hold.tried = case;
                }
                self.flights.add(guid, report, verdict.then());
            }
        }
    }

    /// Counts the application of a row.
    fn met(&mut self, row: Option<Row>) {
        if let Some(row) = row.filter(|row| row.is_told()) {
            *self.rows_met.entry(row).or_default() += 1;
        }
    }

    /// Performs the last step of a row.
    pub(super) fn act(&mut self, guid: InstanceGuid, then: Then) {
        match then {
            Then::Nothing => {}
            Then::Run => self.run(guid),
            Then::Delete => self.let_go(guid),
        }
    }

    fn run(&mut self, guid: InstanceGuid) {
        let since = self.next_message();
        let Some(hold) = self.holds.get(guid) else { return };
        let let_in_at = hold.known.as_ref().map_or(Position(0), |known| known.position);
        let text = format!("starts {}", named(hold.container()));
        let Some(work) = self.holds.start(guid, let_in_at, since) else { return };
        self.log(Level::Info, text);
        self.emit(Effect::Run(Box::new(judge::recipe(work, guid, let_in_at))));
    }

    /// Returns `true` if a reservation that was just claimed may run. Its state may have changed since the
    /// claim was sent.
    pub(super) fn may_run(&self, guid: InstanceGuid) -> bool {
        let Some(hold) = self.holds.get(guid) else { return false };
        let stopping =
            hold.known.as_ref().is_some_and(|known| judge::wants_stop(&known.record, &self.instance(guid)));
        let lrp = match &hold.container().work {
            WorkKey::Lrp { .. } => true,
            WorkKey::Task { .. } => false,
        };
        let mode = match self.mode() {
            Some(Mode::Ordinary) => true,
            Some(Mode::Evacuating) => !lrp,
            Some(Mode::Closing) | None => false,
        };
        mode && !hold.ending && !stopping
    }

    /// Instructs the executor to stop a container that may be running. The order is sent once, and again
    /// after each read of the record, because orders may be lost.
    pub(super) fn stop_container(&mut self, guid: InstanceGuid, knowledge: Knowledge) {
        let Some(hold) = self.holds.get_mut(guid) else { return };
        hold.ending = true;
        if hold.is_live() && !hold.is_leaving() && (!hold.stopped || knowledge == Knowledge::Read) {
            let text = (!hold.stopped).then(|| format!("stops {}", named(hold.container())));
            hold.stopped = true;
            if let Some(text) = text {
                self.log(Level::Info, text);
            }
            self.emit(Effect::Stop(guid));
        }
    }

    /// Drops a reservation, or requests the deletion of a container.
    pub(super) fn let_go(&mut self, guid: InstanceGuid) {
        let since = self.next_message();
        let Some(hold) = self.holds.get(guid) else { return };
        let known = hold.known.as_ref().map(|known| known.record.clone());
        let live = hold.is_live();
        if hold.rank() == Rank::Reserved {
            self.holds.remove(guid);
            self.flights.cancel(guid);
            self.preparing.settle(guid, Some("the reservation was dropped".into()));
            self.emit(Effect::Discard(guid));
        } else {
            let text = (live && !hold.stopped).then(|| format!("stops {}", named(hold.container())));
            if let Some(text) = text {
                self.log(Level::Info, text);
            }
            self.holds.set_leaving(guid, since);
            self.emit(Effect::Delete(guid));
            self.reads.confirm_at(self.now);
        }
        // While processes of the container may be running, its record stays.
        if let Some(record) = known.filter(|_| !live) {
            self.judge_gap(guid, &record);
        }
    }

    /// Removes a container that no longer exists.
    pub(super) fn vanish(&mut self, guid: InstanceGuid) {
        let known = self.holds.remove(guid).and_then(|hold| hold.known);
        if let Some(known) = known {
            self.judge_gap(guid, &known.record);
        }
    }

    /// Corrects a record that names a missing container. "No Container" includes "No Reservation".
    pub(super) fn judge_gap(&mut self, guid: InstanceGuid, record: &Record) {
        let me = self.instance(guid);
        if self.flights.has(guid) || !judge::named(record).any(|by| *by == me) {
            return;
        }
        let (row, steps) = judge::judge_absent(record, &me);
        self.met(row);
        let speaker = Speaker::of_gap(record, me.clone());
        let report = speaker.and_then(|speaker| speaker.report(steps.iter().copied()));
        if let Some(report) = report {
            self.log(Level::Info, telling::gap(guid, record, &me, &steps));
            self.flights.add_gap(guid, report);
        }
    }

    /// Returns the applicable tables. `None` if containers must not be judged in this phase.
    fn mode(&self) -> Option<Mode> {
        match self.phase {
            Phase::Starting | Phase::Over => None,
            Phase::Open => Some(Mode::Ordinary),
            Phase::Evacuating { .. } => Some(Mode::Evacuating),
            Phase::Closing { .. } => Some(Mode::Closing),
        }
    }

    pub(super) fn instance(&self, guid: InstanceGuid) -> Instance {
        Instance { instance_guid: guid, cell_id: self.settings.cell_id.clone() }
    }

    fn speaker(&self, guid: InstanceGuid) -> Option<Speaker<'_>> {
        let hold = self.holds.get(guid)?;
        let evacuation_ends = match self.phase {
            Phase::Starting | Phase::Open | Phase::Over => Timestamp(0),
            Phase::Evacuating { until } | Phase::Closing { until, .. } => self.clock.shown_at(until),
        };
        Some(Speaker {
            work: hold.container().work.clone(),
            domain: hold.container().domain.clone(),
            by: self.instance(guid),
            judged: hold.known.as_ref().map_or(Timestamp(0), |known| judge::changed_at(&known.record)),
            state: Some(&hold.container().state),
            placement: hold.reservation().and_then(|reserved| reserved.work.placement.clone()),
            isolation: hold.container().isolation,
            evacuation_ends,
        })
    }
}
