//! The loop that drives a state machine: passes inputs to the machine, performs its effects, and wakes it at
//! its alarms. The loop runs in turns; a turn is a batch of inputs.

use std::task::{Context, Waker};
use std::time::Duration;

use ::bbs::CLOCK_STEP;
use schemas::Timestamp;
use schemas::message::{ALIVE_INTERVAL, LeadershipStatus};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Capacity of the input queue of a machine. Senders wait while the queue is full.
pub(crate) const INPUT_CAPACITY: usize = 16_384;
/// Maximum number of inputs per turn. The machine ends the turn after this number, even if more inputs wait.
const MAX_INPUTS_PER_TURN: usize = 1_024;

/// A state machine without I/O, such as a BBS, an auctioneer or a rep.
pub(crate) trait Machine {
    /// An event or a request.
    type Input: Send;
    /// An action for the driver to perform.
    type Effect;
    /// Input at the end of a turn.
    const TURN: Self::Input;
    /// Input for a due alarm.
    const TICK: Self::Input;
    /// Processes an input, and returns the effects to perform.
    fn step(&mut self, now: Timestamp, input: Self::Input) -> Vec<Self::Effect>;
    /// Returns the input that reports a change of the system clock by `by` nanoseconds (negative: set back).
    /// `None` if the machine does not need this report.
    fn clock_stepped(by: i64) -> Option<Self::Input>;
    /// Returns the time of the next tick. `None` if no tick is scheduled.
    fn alarm(&self) -> Option<Timestamp>;
    /// Returns the standing (term and leadership) to publish. `None` if the machine does not publish its
    /// presence.
    fn standing(&self) -> Option<LeadershipStatus>;
    /// Returns `true` if the machine may lead.
    fn may_lead(&self) -> bool {
        true
    }
}

/// Last published standing, and the time of its publication.
#[derive(Clone, Copy, Debug)]
struct PublishedStanding {
    standing: LeadershipStatus,
    at: Instant,
}

impl PublishedStanding {
    /// Returns `true` if the standing has to be published: the interval is over, or the term or the
    /// leadership has changed.
    fn is_due(self, now: LeadershipStatus) -> bool {
        let same = (self.standing.term, self.standing.leads) == (now.term, now.leads);
        !same || self.at.elapsed() >= ALIVE_INTERVAL
    }
}

/// Source of the inputs of a machine.
pub(crate) trait Source<I> {
    /// Appends waiting inputs to the batch, or waits for an input. Returns the number of appended inputs, or
    /// 0 if no more inputs can arrive. Cancel-safe.
    fn take(&mut self, batch: &mut Vec<I>, most: usize) -> impl Future<Output = usize> + Send;
}

impl<I: Send> Source<I> for mpsc::Receiver<I> {
    fn take(&mut self, batch: &mut Vec<I>, most: usize) -> impl Future<Output = usize> + Send {
        self.recv_many(batch, most)
    }
}

/// Clock of a machine. Detects that the system clock was set.
#[derive(Clone, Copy, Debug)]
struct MachineClock {
    shown: Timestamp,
    read: Instant,
}

impl MachineClock {
    fn new() -> Self {
        Self { shown: clock::now(), read: Instant::now() }
    }

    fn now(&mut self) -> (Timestamp, Option<i64>) {
        self.at(clock::now(), Instant::now())
    }

    /// Records a reading of the clock and returns the reading. If the clock was set since the last reading,
    /// also returns the change in nanoseconds.
    fn at(&mut self, shown: Timestamp, read: Instant) -> (Timestamp, Option<i64>) {
        let by = shown.nanos_after(self.shown + read.duration_since(self.read));
        *self = Self { shown, read };
        (shown, Some(by).filter(|by| u128::from(by.unsigned_abs()) >= CLOCK_STEP.as_nanos()))
    }
}

/// Observer of a driven machine.
pub(crate) trait Observer<M: Machine> {
    /// Called before the machine takes an input.
    fn before_input(&mut self, _input: &M::Input) {}
    /// Called after a tick or the end of a turn. `began` is the start time of that step.
    fn after_step(&mut self, machine: &M, began: Instant);
}

/// Maximum time between two turns of an idle machine. The turns let probes distinguish an idle machine from a
/// hanging machine.
const MAX_IDLE: Duration = Duration::from_secs(2);

/// Drives a machine until `stop` is cancelled or no more inputs can arrive. This loop also publishes the
/// presence, so a hanging machine does not publish its presence.
pub(crate) async fn drive<M: Machine>(
    machine: &mut M,
    inputs: &mut impl Source<M::Input>,
    stop: CancellationToken,
    mut perform: impl FnMut(M::Effect),
    (beat, mut onlooker): (impl Fn(LeadershipStatus, bool), impl Observer<M>),
) {
    let mut batch = Vec::with_capacity(MAX_INPUTS_PER_TURN);
    let mut pace = MachineClock::new();
    let mut told: Option<PublishedStanding> = None;
    loop {
        if let Some(standing) = machine.standing()
            && told.is_none_or(|told| told.is_due(standing))
        {
            beat(standing, machine.may_lead());
            told = Some(PublishedStanding { standing, at: Instant::now() });
        }
        let beats = told.map(|told| ALIVE_INTERVAL.saturating_sub(told.at.elapsed()));
        let due = machine.alarm().map(|due| due.since(clock::now()));
        let wait = due.into_iter().chain(beats).fold(MAX_IDLE, Duration::min);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            count = inputs.take(&mut batch, MAX_INPUTS_PER_TURN) => if count == 0 { return },
            () = sleep_with_minimum(wait) => {}
        }
        let (now, stepped) = pace.now();
        if let Some(input) = stepped.and_then(M::clock_stepped) {
            machine.step(now, input).into_iter().for_each(&mut perform);
        }
        for input in batch.drain(..) {
            onlooker.before_input(&input);
            machine.step(now, input).into_iter().for_each(&mut perform);
        }
        // Many inputs must not delay an alarm.
        if machine.alarm().is_some_and(|due| due <= now) {
            let began = Instant::now();
            machine.step(now, M::TICK).into_iter().for_each(&mut perform);
            onlooker.after_step(machine, began);
        }
        let began = Instant::now();
        machine.step(now, M::TURN).into_iter().for_each(&mut perform);
        onlooker.after_step(machine, began);
    }
}

/// Starts work that may have to wait. If the work needs no waiting, it is complete when this function
/// returns. Otherwise a spawned task continues the work.
pub(super) fn run_or_spawn(work: impl Future<Output = ()> + Send + 'static) {
    let mut work = Box::pin(work);
    // A waker that does nothing is sufficient here: the spawned task polls the work again with its own waker.
    if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        tokio::spawn(work);
    }
}

async fn sleep_with_minimum(wait: Duration) {
    tokio::time::sleep(wait.max(Duration::from_micros(100))).await;
}

impl Machine for ::bbs::Bbs {
    type Input = ::bbs::Input;
    type Effect = ::bbs::Effect;
    const TURN: Self::Input = ::bbs::Input::Turn;
    const TICK: Self::Input = ::bbs::Input::Tick;
    fn step(&mut self, now: Timestamp, input: Self::Input) -> Vec<Self::Effect> {
        Self::step(self, now, input)
    }
    fn clock_stepped(by: i64) -> Option<Self::Input> {
        Some(::bbs::Input::ClockStepped(by))
    }
    fn alarm(&self) -> Option<Timestamp> {
        Self::alarm(self)
    }
    fn standing(&self) -> Option<LeadershipStatus> {
        Some(Self::standing(self))
    }
    fn may_lead(&self) -> bool {
        Self::may_lead(self)
    }
}

impl Machine for ::auctioneer::Auctioneer {
    type Input = ::auctioneer::Input;
    type Effect = ::auctioneer::Effect;
    const TURN: Self::Input = ::auctioneer::Input::Turn;
    const TICK: Self::Input = ::auctioneer::Input::Tick;
    fn step(&mut self, now: Timestamp, input: Self::Input) -> Vec<Self::Effect> {
        Self::step(self, now, input)
    }
    fn clock_stepped(_by: i64) -> Option<Self::Input> {
        None
    }
    fn alarm(&self) -> Option<Timestamp> {
        Self::alarm(self)
    }
    fn standing(&self) -> Option<LeadershipStatus> {
        Some(Self::standing(self))
    }
}

impl Machine for ::rep::Rep {
    type Input = ::rep::Input;
    type Effect = ::rep::Effect;
    const TURN: Self::Input = ::rep::Input::Turn;
    const TICK: Self::Input = ::rep::Input::Tick;
    fn step(&mut self, now: Timestamp, input: Self::Input) -> Vec<Self::Effect> {
        Self::step(self, now, input)
    }
    fn clock_stepped(_by: i64) -> Option<Self::Input> {
        None
    }
    fn alarm(&self) -> Option<Timestamp> {
        Self::alarm(self)
    }
    fn standing(&self) -> Option<LeadershipStatus> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_steps_are_followed_and_detected() {
        let start = Instant::now();
        let at = Timestamp::from_millis;
        let mut pace = MachineClock { shown: at(100_000), read: start };
        let mut read = |shown, seconds| pace.at(at(shown), start + Duration::from_secs(seconds));
        assert_eq!(read(101_000, 1), (at(101_000), None));
        assert_eq!(read(102_300, 2), (at(102_300), None), "a clock that runs a little faster");
        assert_eq!(read(3_703_300, 3), (at(3_703_300), Some(3_600_000_000_000)));
        assert_eq!(read(3_730_300, 30), (at(3_730_300), None));
        assert_eq!(read(131_300, 31), (at(131_300), Some(-3_600_000_000_000)));
    }
}
