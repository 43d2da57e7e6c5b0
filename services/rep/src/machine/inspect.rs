//! The code path of every change: inspect a container, compare it with its record, and act.

use schemas::container::{Container, Instance, WorkKey};
use schemas::message::Record;
use schemas::names::InstanceGuid;
use schemas::{Position, Timestamp};

use super::allocations::{Allocation, Rank, rank};
use super::judge::{self, Judgement, Mode, ReportSubject};
use super::log_text::{self, container_text, is_logged, state_text};
use super::{Effect, Level, Phase, Rep};
use crate::reconcile::{ContainerAction, Row};

/// Source of the record with which a container is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// The latest stored record. A stored record suffices for all decisions except decisions that end a
    /// running container.
    Remembered,
    /// A record that was read for the current decision.
    Read,
}

impl Rep {
    /// Handles a change that the executor reported.
    pub(super) fn container_changed(&mut self, container: Container) {
        let guid = container.instance_guid;
        if self.merge(container) {
            self.inspect(guid, Knowledge::Remembered);
        }
    }

    /// Merges a container state that the executor reported. Returns `false` if the state is already known or
    /// outdated. The executor never reports RESERVED.
    pub(super) fn merge(&mut self, container: Container) -> bool {
        let guid = container.instance_guid;
        if rank(&container.state) == Rank::Reserved {
            return false;
        }
        let Some(hold) = self.holds.get_mut(guid) else {
            let since = self.next_message();
            // Each container records the log position at which the rep accepted it. After a restart of the
            // rep, this position shows how far the log had progressed.
            self.position = self.position.max(container.admitted_at);
            if self.phase == Phase::Starting {
                self.log(
                    Level::Info,
                    format!("adopts {}: {}", container_text(&container), state_text(&container.state)),
                );
            }
            self.holds.insert(Allocation::new(container, since));
            return true;
        };
        if rank(&container.state) < hold.rank() || container.state == hold.container().state {
            return false;
        }
        hold.reported_case = None;
        if is_logged(&container.state) {
            let text = format!("{}: {}", container_text(hold.container()), state_text(&container.state));
            self.log(Level::Info, text);
        }
        self.holds.set_state(guid, container.state);
        true
    }

    /// Inspects a container and performs the steps of its table row. Impossible steps are left to the next
    /// inspection.
    pub(super) fn inspect(&mut self, guid: InstanceGuid, knowledge: Knowledge) {
        let Some(mode) = self.mode() else { return };
        let me = self.instance(guid);
        let Some(hold) = self.holds.get(guid).filter(|hold| !hold.is_deleting()) else { return };
        match hold.known.as_ref().map(|known| judge::requires_stop(&known.record, &me)) {
            None => return self.reads.request_record(guid),
            // Stop first, so that a claimed reservation with a stop request never runs.
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
        if verdict.container_action() == ContainerAction::Run && !hold.prepared {
            return;
        }
        let unread = knowledge == Knowledge::Remembered && mode != Mode::Closing;
        if verdict.container_action() == ContainerAction::Delete && hold.is_live() && unread {
            self.reads.request_record(guid);
            return;
        }
        self.count_row(row);
        let Some(hold) = self.holds.get(guid) else { return };
        let case = Some((hold.rank(), verdict));
        if hold.reported_case == case {
            return;
        }
        let text = log_text::case_text(hold, verdict, &self.instance(guid));
        let report = self.report_subject(guid).and_then(|speaker| speaker.report(verdict.report_steps()));
        if let Some((level, text)) = text {
            self.log(level, text);
        }
        match report {
            None => self.act(guid, verdict.container_action()),
            Some(report) => {
                if let Some(hold) = self.holds.get_mut(guid) {
                    hold.reported_case = case;
                }
                self.flights.add(guid, report, verdict.container_action());
            }
        }
    }

    /// Counts a use of a table row.
    fn count_row(&mut self, row: Option<Row>) {
        if let Some(row) = row.filter(|row| row.is_documented()) {
            *self.applied_rows.entry(row).or_default() += 1;
        }
    }

    /// Performs the last step of a table row.
    pub(super) fn act(&mut self, guid: InstanceGuid, then: ContainerAction) {
        match then {
            ContainerAction::Nothing => {}
            ContainerAction::Run => self.run(guid),
            ContainerAction::Delete => self.release(guid),
        }
    }

    fn run(&mut self, guid: InstanceGuid) {
        let since = self.next_message();
        let Some(hold) = self.holds.get(guid) else { return };
        let let_in_at = hold.known.as_ref().map_or(Position(0), |known| known.position);
        let text = format!("starts {}", container_text(hold.container()));
        let Some(work) = self.holds.start(guid, let_in_at, since) else { return };
        self.log(Level::Info, text);
        self.emit(Effect::Run(Box::new(judge::recipe(work, guid, let_in_at))));
    }

    /// Returns `true` if a reservation that was just claimed may run. The state of the reservation may have
    /// changed since the claim was sent.
    pub(super) fn may_run(&self, guid: InstanceGuid) -> bool {
        let Some(hold) = self.holds.get(guid) else { return false };
        let stopping = hold
            .known
            .as_ref()
            .is_some_and(|known| judge::requires_stop(&known.record, &self.instance(guid)));
        let lrp = match &hold.container().work {
            WorkKey::Lrp { .. } => true,
            WorkKey::Task { .. } => false,
        };
        let mode = match self.mode() {
            Some(Mode::Ordinary) => true,
            Some(Mode::Evacuating) => !lrp,
            Some(Mode::Closing) | None => false,
        };
        mode && !hold.stop_requested && !stopping
    }

    /// Orders the executor to stop a container that may be running. The order is sent once. Because orders
    /// may be lost, it is repeated after each read of the record.
    pub(super) fn stop_container(&mut self, guid: InstanceGuid, knowledge: Knowledge) {
        let Some(hold) = self.holds.get_mut(guid) else { return };
        hold.stop_requested = true;
        if hold.is_live() && !hold.is_deleting() && (!hold.stop_sent || knowledge == Knowledge::Read) {
            let text = (!hold.stop_sent).then(|| format!("stops {}", container_text(hold.container())));
            hold.stop_sent = true;
            if let Some(text) = text {
                self.log(Level::Info, text);
            }
            self.emit(Effect::Stop(guid));
        }
    }

    /// Drops a reservation, or requests the deletion of a container.
    pub(super) fn release(&mut self, guid: InstanceGuid) {
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
            let text =
                (live && !hold.stop_sent).then(|| format!("stops {}", container_text(hold.container())));
            if let Some(text) = text {
                self.log(Level::Info, text);
            }
            self.holds.set_deleting(guid, since);
            self.emit(Effect::Delete(guid));
            self.reads.schedule_confirmation(self.now);
        }
        // Processes of the container may still be running. In this case, keep the record.
        if let Some(record) = known.filter(|_| !live) {
            self.correct_orphaned_record(guid, &record);
        }
    }

    /// Removes a container that no longer exists.
    pub(super) fn container_vanished(&mut self, guid: InstanceGuid) {
        let known = self.holds.remove(guid).and_then(|hold| hold.known);
        if let Some(known) = known {
            self.correct_orphaned_record(guid, &known.record);
        }
    }

    /// Corrects a record that names a missing container. The case "No Container" of the tables includes the
    /// case "No Reservation".
    pub(super) fn correct_orphaned_record(&mut self, guid: InstanceGuid, record: &Record) {
        let me = self.instance(guid);
        if self.flights.has(guid) || !judge::named_containers(record).any(|by| *by == me) {
            return;
        }
        let (row, steps) = judge::judge_absent(record, &me);
        self.count_row(row);
        let speaker = ReportSubject::for_missing_container(record, me.clone());
        let report = speaker.and_then(|speaker| speaker.report(steps.iter().copied()));
        if let Some(report) = report {
            self.log(Level::Info, log_text::orphan_text(guid, record, &me, &steps));
            self.flights.add_gap(guid, report);
        }
    }

    /// Returns the reconciliation table of the current phase. `None` if containers must not be compared with
    /// records in this phase.
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

    fn report_subject(&self, guid: InstanceGuid) -> Option<ReportSubject<'_>> {
        let hold = self.holds.get(guid)?;
        let evacuation_ends = match self.phase {
            Phase::Starting | Phase::Open | Phase::Over => Timestamp(0),
            Phase::Evacuating { until } | Phase::Closing { until, .. } => self.clock.clock_time_at(until),
        };
        Some(ReportSubject {
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
