//! Health of the cell: heartbeats and self-tests.

use schemas::cell::Presence;
use schemas::message::Heartbeat;
use schemas::resources::Resources;
use schemas::{Timestamp, cluster, codec};

use super::{Effect, Level, Phase, Rep};
use crate::limits;

/// State whose change triggers a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    free: Resources,
    evacuating: bool,
    unhealthy: Option<String>,
}

/// State of the heartbeats.
#[derive(Debug, Default)]
pub(super) struct Beats {
    sequence: u64,
    last: Option<(Timestamp, Said)>,
    urgent: bool,
}

impl Beats {
    /// Requests a heartbeat, because a recipient considers the cell lost or does not know it.
    pub(super) const fn urge(&mut self) {
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
    /// `true` if a container could not be created since the last successful test. Failed tests are then
    /// repeated quickly.
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

    fn said(&self) -> Said {
        Said { free: self.free(), evacuating: self.evacuates(), unhealthy: self.self_tests.unhealthy.clone() }
    }

    /// Creates a heartbeat. Its sequence number lets recipients detect an older heartbeat that arrives late.
    pub(super) fn heartbeat(&mut self) -> Heartbeat {
        self.beats.sequence += 1;
        let Said { free, evacuating, unhealthy } = self.said();
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
            performed: self.performed,
            sequence: self.beats.sequence,
            clock: self.clock.shown_at(self.now),
            schema: codec::SCHEMA,
            format: cluster::FORMAT,
        }
    }

    /// Sends a heartbeat.
    pub(super) fn beat(&mut self) {
        let heartbeat = self.heartbeat();
        self.beats.last = Some((self.now, self.said()));
        self.beats.urgent = false;
        self.holds.told();
        self.emit(Effect::Heartbeat(heartbeat));
    }

    pub(super) fn beat_when_due(&mut self) {
        if self.speaks() && self.next_beat() <= self.now {
            self.beat();
        }
    }

    /// Sends a heartbeat if the last one reported other free resources than there are.
    pub(super) fn tell_room(&mut self) {
        let told = self.beats.last.as_ref().is_some_and(|(_, said)| said.free == self.free());
        if self.speaks() && !told {
            self.beat();
        }
    }

    fn speaks(&self) -> bool {
        match self.phase {
            Phase::Starting | Phase::Over => false,
            Phase::Open | Phase::Evacuating { .. } | Phase::Closing { .. } => true,
        }
    }

    /// Returns the time of the next heartbeat: after the regular interval, or soon after a change. Changes in
    /// quick succession are reported together.
    pub(super) fn next_beat(&self) -> Timestamp {
        let Some((at, said)) = &self.beats.last else { return self.now };
        // Room that was used and freed again is a change as well, because waiting work may need it.
        let changed = self.beats.urgent || self.holds.freed() || *said != self.said();
        *at + if changed { limits::COALESCE } else { self.settings.heartbeat }
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
                if self.self_tests.failures >= limits::SELF_TEST_FAILURES {
                    let why = schemas::limits::cut(&why, schemas::limits::REASON_BYTES);
                    self.self_tests.unhealthy = Some(why);
                    self.self_tests.suspected = false;
                }
                let quick = self.self_tests.suspected;
                let wait = if quick { limits::SELF_TEST_QUICK } else { limits::SELF_TEST_RETRY };
                self.self_tests.due = self.now + wait;
            }
        }
    }

    /// Tests the cell immediately after a container could not be created, and again quickly while tests fail.
    /// Tests keep a minimum distance, however many containers fail.
    pub(super) fn hasten_self_test(&mut self) {
        let tests = &mut self.self_tests;
        if tests.unhealthy.is_none() {
            tests.suspected = true;
            tests.due = tests.due.min(self.now.max(tests.ended + limits::SELF_TEST_QUICK));
        }
    }
}
