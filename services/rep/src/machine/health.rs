//! Health of the cell: heartbeats and self-tests.

use schemas::cell::Presence;
use schemas::message::Heartbeat;
use schemas::resources::Resources;
use schemas::{Timestamp, cluster, codec};

use super::{Effect, Level, Phase, Rep};
use crate::limits;

/// State whose change triggers a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReportedState {
    free: Resources,
    evacuating: bool,
    unhealthy: Option<String>,
}

/// State of the heartbeats.
#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    sequence: u64,
    last: Option<(Timestamp, ReportedState)>,
    urgent: bool,
}

impl Heartbeats {
    /// Requests an early heartbeat, because a recipient considers the cell lost or does not know the cell.
    pub(super) const fn request(&mut self) {
        self.urgent = true;
    }
}

/// State of the self-tests.
#[derive(Debug, Default)]
pub(super) struct SelfTests {
    due: Timestamp,
    running: bool,
    failures: u32,
    unhealthy: Option<String>,
    /// `true` if a container could not be created since the last successful test. In this state, failed tests
    /// are repeated quickly.
    suspected: bool,
    /// End of the last test.
    ended: Timestamp,
}

impl SelfTests {
    /// Returns the reason why the cell cannot run containers. `None` if it can.
    pub(super) fn unhealthy(&self) -> Option<&str> {
        self.unhealthy.as_deref()
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        (!self.running).then_some(self.due)
    }
}

impl Rep {
    /// Returns the free resources of the cell.
    pub(super) fn free(&self) -> Resources {
        self.settings.total.minus(self.holds.used())
    }

    fn reported_state(&self) -> ReportedState {
        ReportedState {
            free: self.free(),
            evacuating: self.is_evacuating(),
            unhealthy: self.self_tests.unhealthy.clone(),
        }
    }

    /// Creates a heartbeat. Its sequence number lets recipients detect an older heartbeat that arrives late.
    pub(super) fn heartbeat(&mut self) -> Heartbeat {
        self.beats.sequence += 1;
        let ReportedState { free, evacuating, unhealthy } = self.reported_state();
        Heartbeat {
            cell_id: self.settings.cell_id.clone(),
            presence: Presence {
                folder: self.settings.folder,
                incarnation: self.incarnation,
                zone: self.settings.zone.clone(),
                stack: self.settings.stack.clone(),
                placement_tags: self.settings.placement_tags.clone(),
                attributes: self.settings.attributes.clone(),
                total: self.settings.total,
            },
            free,
            starting: self.holds.starting(),
            evacuating,
            unhealthy,
            performed: self.last_performed,
            sequence: self.beats.sequence,
            clock: self.clock.clock_time_at(self.now),
            schema: codec::SCHEMA_VERSION,
            format: cluster::FORMAT,
        }
    }

    /// Sends a heartbeat.
    pub(super) fn send_heartbeat(&mut self) {
        let heartbeat = self.heartbeat();
        self.beats.last = Some((self.now, self.reported_state()));
        self.beats.urgent = false;
        self.holds.mark_reported();
        self.emit(Effect::Heartbeat(heartbeat));
    }

    pub(super) fn heartbeat_when_due(&mut self) {
        if self.sends_heartbeats() && self.next_heartbeat() <= self.now {
            self.send_heartbeat();
        }
    }

    /// Sends a heartbeat if the current free resources differ from those in the last heartbeat.
    pub(super) fn report_free_resources(&mut self) {
        let told = self.beats.last.as_ref().is_some_and(|(_, said)| said.free == self.free());
        if self.sends_heartbeats() && !told {
            self.send_heartbeat();
        }
    }

    fn sends_heartbeats(&self) -> bool {
        match self.phase {
            Phase::Starting | Phase::Over => false,
            Phase::Open | Phase::Evacuating { .. } | Phase::Closing { .. } => true,
        }
    }

    /// Returns the time of the next heartbeat: after the regular interval, or soon after a change. Changes in
    /// quick succession are reported together.
    pub(super) fn next_heartbeat(&self) -> Timestamp {
        let Some((at, said)) = &self.beats.last else { return self.now };
        // Resources that were used and freed again count as a change, because waiting work may need them.
        let changed = self.beats.urgent || self.holds.freed() || *said != self.reported_state();
        *at + if changed { limits::MIN_HEARTBEAT_INTERVAL } else { self.settings.heartbeat }
    }

    /// Starts a self-test when it is due.
    pub(super) fn self_test_when_due(&mut self) {
        if self.self_tests.next_due().is_some_and(|at| at <= self.now) {
            self.self_tests.running = true;
            self.emit(Effect::SelfTest);
        }
    }

    /// Handles the result of a self-test. Only several consecutive failures make the cell unhealthy.
    pub(super) fn self_tested(&mut self, result: Result<(), String>) {
        if !std::mem::take(&mut self.self_tests.running) {
            return;
        }
        self.self_tests.ended = self.now;
        match result {
            Ok(()) => {
                self.self_tests.failures = 0;
                self.self_tests.unhealthy = None;
                self.self_tests.suspected = false;
                self.self_tests.due = self.now + self.settings.self_test;
            }
            Err(why) => {
                self.log(Level::Warn, format!("the self-test failed: {why}"));
                self.self_tests.failures = self.self_tests.failures.saturating_add(1);
                if self.self_tests.failures >= limits::MAX_SELF_TEST_FAILURES {
                    let why = schemas::limits::truncate(&why, schemas::limits::REASON_BYTES);
                    self.self_tests.unhealthy = Some(why);
                    self.self_tests.suspected = false;
                }
                let quick = self.self_tests.suspected;
                let wait =
                    if quick { limits::SELF_TEST_QUICK_RETRY_DELAY } else { limits::SELF_TEST_RETRY_DELAY };
                self.self_tests.due = self.now + wait;
            }
        }
    }

    /// Schedules a self-test immediately after a container could not be created. While tests fail, they are
    /// repeated quickly. The interval between tests never falls below
    /// [`limits::SELF_TEST_QUICK_RETRY_DELAY`], however many containers fail.
    pub(super) fn self_test_soon(&mut self) {
        let tests = &mut self.self_tests;
        if tests.unhealthy.is_none() {
            tests.suspected = true;
            tests.due = tests.due.min(self.now.max(tests.ended + limits::SELF_TEST_QUICK_RETRY_DELAY));
        }
    }
}
