//! What the rep says of its cell: heartbeats; and what it finds out by itself: self-tests.

use schemas::cell::Presence;
use schemas::message::Heartbeat;
use schemas::resources::Resources;
use schemas::{Timestamp, cluster, codec};

use super::{Effect, Level, Phase, Rep};
use crate::limits;

/// What a change of which is worth a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    free: Resources,
    evacuating: bool,
    unhealthy: Option<String>,
}

/// The heartbeats so far.
#[derive(Debug, Default)]
pub(super) struct Beats {
    sequence: u64,
    last: Option<(Timestamp, Said)>,
    urgent: bool,
}

impl Beats {
    /// Somebody believes that the cell is lost, or doesn't know of it yet.
    pub(super) const fn urge(&mut self) {
        self.urgent = true;
    }
}

/// The self-tests so far.
#[derive(Debug, Default)]
pub(super) struct SelfTests {
    due: Timestamp,
    running: bool,
    failures: u32,
    unhealthy: Option<String>,
    /// Whether a container could not be created since the last test that passed: failed tests follow each other quickly.
    suspected: bool,
    /// When the last one ended.
    ended: Timestamp,
}

impl SelfTests {
    /// Why the cell can't run containers, if so.
    pub(super) fn unhealthy(&self) -> Option<&str> {
        self.unhealthy.as_deref()
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        (!self.running).then_some(self.due)
    }
}

impl Rep {
    /// What is free of the cell.
    pub(super) fn free(&self) -> Resources {
        self.settings.total.minus(self.holds.used())
    }

    fn said(&self) -> Said {
        Said { free: self.free(), evacuating: self.evacuates(), unhealthy: self.self_tests.unhealthy.clone() }
    }

    /// How the cell is. Each is counted, so that an older one that comes late is known as such.
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

    /// Says that the rep is there, and how its cell is.
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

    /// Somebody believes that there is room where there is none: it is told what there is.
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

    /// Every few seconds, and soon after a change; changes that come fast are told together.
    pub(super) fn next_beat(&self) -> Timestamp {
        let Some((at, said)) = &self.beats.last else { return self.now };
        // What was taken and is free again is news, too: somebody may have waited for it.
        let changed = self.beats.urgent || self.holds.freed() || *said != self.said();
        *at + if changed { limits::COALESCE } else { self.settings.heartbeat }
    }

    /// Tries whether the cell can run containers, when it is time.
    pub(super) fn self_test_when_due(&mut self) {
        if self.self_tests.next_due().is_some_and(|at| at <= self.now) {
            self.self_tests.running = true;
            self.emit(Effect::SelfTest);
        }
    }

    /// Takes the result of a self-test. One failure is bad luck; several in a row are a broken cell.
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

    /// Tests the cell at once because a container could not be created, and again quickly while that fails. Tests keep a
    /// distance, however many containers fail.
    pub(super) fn hasten_self_test(&mut self) {
        let tests = &mut self.self_tests;
        if tests.unhealthy.is_none() {
            tests.suspected = true;
            tests.due = tests.due.min(self.now.max(tests.ended + limits::SELF_TEST_QUICK));
        }
    }
}
