//! State machines of nodes, and the runtime state around them.

use auctioneer::Auctioneer;
use bbs::Bbs;
use projections::{Reader, World};
use rep::Rep;
use schemas::Timestamp;
use schemas::cluster::Role;
use schemas::message::{Program, ServiceStatus};
use schemas::subject::Position;
use std::collections::BTreeMap;

use crate::arrived::Arrived;
use crate::shape::START;

/// State machine of a node.
pub(crate) enum Machine {
    Bbs(Box<Bbs>),
    /// With the log reader of its driver.
    Auctioneer(Box<Auctioneer>, Box<Reader>),
    Rep(Box<Rep>),
}

/// Snapshot of the log up to a position.
pub(crate) struct Snapshot {
    pub(crate) position: Position,
    pub(crate) reader: Vec<u8>,
    pub(crate) world: Vec<u8>,
}

/// Effect of a state machine.
pub(crate) enum NodeEffect {
    Bbs(bbs::Effect),
    Auctioneer(auctioneer::Effect),
    Rep(rep::Effect),
}

/// Runtime state of a node that outlives its state machine.
pub(crate) struct Place {
    pub(crate) machine: Option<Machine>,
    pub(crate) generation: u64,
    /// Last position that the log reader delivered.
    pub(crate) delivered: Position,
    pub(crate) caught_up: bool,
    /// Time of the next tick.
    pub(crate) alarm: Option<Timestamp>,
    /// `true` if the machine is due for a turn.
    pub(crate) turn_due: bool,
    /// End of a pause. All inputs wait until then.
    pub(crate) held_until: Timestamp,
    /// End of a cut from the bus.
    pub(crate) cut_until: Timestamp,
    /// `true` if the node noticed the cut.
    pub(crate) knows_cut: bool,
    /// End of a cut from the journal.
    pub(crate) dark_until: Timestamp,
    /// Time until which the log reader stands still.
    pub(crate) lags_until: Timestamp,
    /// Clock offset at the last step of this life.
    pub(crate) stepped_at_ms: i64,
    /// Clock offset in milliseconds.
    pub(crate) skew_ms: i64,
}

impl Place {
    pub(crate) const fn new(skew_ms: i64) -> Self {
        Self {
            machine: None,
            generation: 0,
            delivered: Position(0),
            caught_up: false,
            alarm: None,
            turn_due: false,
            held_until: START,
            cut_until: START,
            knows_cut: false,
            dark_until: START,
            lags_until: START,
            stepped_at_ms: skew_ms,
            skew_ms,
        }
    }

    /// Returns the time that the clock shows. It may go back.
    pub(crate) const fn clock(&self, now: Timestamp) -> Timestamp {
        shifted(now, self.skew_ms)
    }

    /// Returns the time of decisions. `None` if the node is not a BBS.
    pub(crate) fn decision_time(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.machine {
            Some(Machine::Bbs(bbs)) => Some(bbs.time_at(self.clock(now))),
            Some(Machine::Auctioneer(..) | Machine::Rep(_)) | None => None,
        }
    }

    /// Returns the clock step since the last input in nanoseconds, if the driver notices it.
    pub(crate) fn take_clock_step(&mut self) -> Option<i64> {
        let by = self.skew_ms - std::mem::replace(&mut self.stepped_at_ms, self.skew_ms);
        let noticed = u128::from(by.unsigned_abs()) >= bbs::CLOCK_STEP.as_millis();
        noticed.then_some(by * 1_000_000)
    }

    /// Returns the true time at which the clock shows `time`.
    pub(crate) fn true_time(&self, time: Timestamp) -> Timestamp {
        shifted(time, -self.skew_ms)
    }

    pub(crate) fn is_leading_bbs(&self) -> bool {
        match &self.machine {
            Some(Machine::Bbs(bbs)) => bbs.leads(),
            Some(Machine::Auctioneer(..) | Machine::Rep(_)) | None => false,
        }
    }

    pub(crate) fn is_leading_auctioneer(&self) -> bool {
        match &self.machine {
            Some(Machine::Auctioneer(auctioneer, _)) => auctioneer.is_leader(),
            Some(Machine::Bbs(_) | Machine::Rep(_)) | None => false,
        }
    }

    /// Returns `true` if the node leads as a BBS or as an auctioneer.
    pub(crate) fn leads(&self) -> bool {
        self.is_leading_bbs() || self.is_leading_auctioneer()
    }

    /// Returns the status message to every BBS. `None` for a rep.
    pub(crate) fn alive(&self, now: Timestamp) -> Option<ServiceStatus> {
        let (id, role, standing) = match self.machine.as_ref()? {
            Machine::Bbs(bbs) => (bbs.id(), Role::Bbs, bbs.standing()),
            Machine::Auctioneer(auctioneer, _) => (auctioneer.id(), Role::Auctioneer, auctioneer.standing()),
            Machine::Rep(_) => return None,
        };
        let (clock, program) = (self.clock(now), Program::default());
        Some(ServiceStatus {
            id: id.clone(),
            role,
            program,
            leadership: standing,
            clock,
            may_lead: true,
            append_problem: None,
        })
    }

    /// Returns the sizes of queues and pending work by name.
    pub(crate) fn books(&self) -> BTreeMap<&'static str, usize> {
        match &self.machine {
            Some(Machine::Bbs(bbs)) => bbs.pending_work(),
            Some(Machine::Auctioneer(auctioneer, _)) => {
                let counts = auctioneer.counts();
                BTreeMap::from([
                    ("work that waits for an auction", counts.ready),
                    ("work that was handed out", counts.handed_out),
                    ("messages to reps", counts.performs),
                    ("messages to the BBS", counts.outgoing),
                ])
            }
            Some(Machine::Rep(rep)) => rep.pending_counts(),
            None => BTreeMap::new(),
        }
    }

    /// Returns the sizes of collections by name.
    pub(crate) fn remembered(&self) -> BTreeMap<&'static str, usize> {
        match &self.machine {
            Some(Machine::Bbs(bbs)) => bbs.memory_sizes(),
            Some(Machine::Auctioneer(auctioneer, _)) => auctioneer.collection_sizes(),
            Some(Machine::Rep(rep)) => rep.collection_sizes(),
            None => BTreeMap::new(),
        }
    }

    /// Returns the World of a BBS or an auctioneer.
    pub(crate) fn world(&self) -> Option<&World> {
        match self.machine.as_ref()? {
            Machine::Bbs(bbs) => Some(bbs.world()),
            Machine::Auctioneer(auctioneer, _) => Some(auctioneer.world()),
            Machine::Rep(_) => None,
        }
    }
}

const fn shifted(time: Timestamp, millis: i64) -> Timestamp {
    Timestamp(time.0.saturating_add_signed(millis * 1_000_000))
}

impl Machine {
    pub(crate) fn alarm(&self) -> Option<Timestamp> {
        match self {
            Self::Bbs(bbs) => bbs.alarm(),
            Self::Auctioneer(auctioneer, _) => auctioneer.alarm(),
            Self::Rep(rep) => rep.alarm(),
        }
    }

    /// Handles an input, and a turn if one is due. Returns the effects of each step.
    pub(crate) fn step(
        &mut self,
        (now, clock_step): (Timestamp, Option<i64>),
        arrived: Arrived,
        turn: bool,
    ) -> Vec<Vec<NodeEffect>> {
        fn each<E>(effects: Vec<E>, of: fn(E) -> NodeEffect) -> Vec<NodeEffect> {
            effects.into_iter().map(of).collect()
        }
        match self {
            Self::Bbs(bbs) => {
                let clock_step = clock_step.map(bbs::Input::ClockStepped).into_iter();
                let inputs = clock_step.chain(arrived.for_bbs()).chain(turn.then_some(bbs::Input::Turn));
                inputs.map(|input| each(bbs.step(now, input), NodeEffect::Bbs)).collect()
            }
            Self::Auctioneer(auctioneer, reader) => {
                let turn = turn.then_some(auctioneer::Input::Turn);
                let inputs = arrived.for_auctioneer(reader).into_iter().chain(turn);
                inputs.map(|input| each(auctioneer.step(now, input), NodeEffect::Auctioneer)).collect()
            }
            Self::Rep(rep) => {
                let inputs = arrived.for_rep().into_iter().chain(turn.then_some(rep::Input::Turn));
                inputs.map(|input| each(rep.step(now, input), NodeEffect::Rep)).collect()
            }
        }
    }
}
