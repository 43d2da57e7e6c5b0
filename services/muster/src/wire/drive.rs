//! The loop that drives a machine: inputs in, effects out, an alarm in between.

use std::task::{Context, Waker};
use std::time::Duration;

use ::bbs::CLOCK_STEP;
use schemas::Timestamp;
use schemas::message::{ALIVE_EVERY, Standing};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Inputs that wait for a machine; whoever brings more waits too.
pub(crate) const INPUTS: usize = 16_384;
/// Inputs that are taken before effects of a turn are due, however many more wait.
const INPUTS_IN_A_TURN: usize = 1_024;

/// A machine without IO, as the services are.
pub(crate) trait Machine {
    /// What happens to it.
    type Input: Send;
    /// What it wants done.
    type Effect;
    /// Nothing else waits.
    const TURN: Self::Input;
    /// Its alarm went off.
    const TICK: Self::Input;
    /// Takes one input and says what is to be done.
    fn step(&mut self, now: Timestamp, input: Self::Input) -> Vec<Self::Effect>;
    /// The input for a clock that was set by so many nanoseconds, forward or back. `None` if the machine does not need it.
    fn clock_stepped(by: i64) -> Option<Self::Input>;
    /// When it wants a tick.
    fn alarm(&self) -> Option<Timestamp>;
    /// Where it stands, if it says at times that it is there.
    fn standing(&self) -> Option<Standing>;
    /// Returns `true` if it may lead.
    fn may_lead(&self) -> bool {
        true
    }
}

/// What a machine said last of where it stands, and when.
#[derive(Clone, Copy, Debug)]
struct LastStanding {
    standing: Standing,
    at: Instant,
}

impl LastStanding {
    /// Whether it is to be said where it stands: its time has come, or it leads or doesn't any more.
    fn is_over(self, now: Standing) -> bool {
        let same = (self.standing.term, self.standing.leads) == (now.term, now.leads);
        !same || self.at.elapsed() >= ALIVE_EVERY
    }
}

/// Where the inputs of a machine come from.
pub(crate) trait Source<I> {
    /// Takes what waits, or waits for something; 0: nobody can bring inputs any more. Cancel-safe.
    fn take(&mut self, batch: &mut Vec<I>, most: usize) -> impl Future<Output = usize> + Send;
}

impl<I: Send> Source<I> for mpsc::Receiver<I> {
    fn take(&mut self, batch: &mut Vec<I>, most: usize) -> impl Future<Output = usize> + Send {
        self.recv_many(batch, most)
    }
}

/// Reads the clock for a machine, and notices when it is set.
#[derive(Clone, Copy, Debug)]
struct Pace {
    shown: Timestamp,
    read: Instant,
}

impl Pace {
    fn new() -> Self {
        Self { shown: clock::now(), read: Instant::now() }
    }

    fn now(&mut self) -> (Timestamp, Option<i64>) {
        self.at(clock::now(), Instant::now())
    }

    /// Takes what the clock shows at an instant. Returns it, and by how many nanoseconds the clock was set since the last
    /// reading.
    fn at(&mut self, shown: Timestamp, read: Instant) -> (Timestamp, Option<i64>) {
        let by = shown.nanos_after(self.shown + read.duration_since(self.read));
        *self = Self { shown, read };
        (shown, Some(by).filter(|by| u128::from(by.unsigned_abs()) >= CLOCK_STEP.as_nanos()))
    }
}

/// Looks on while a machine is driven, and changes nothing.
pub(crate) trait Onlooker<M: Machine> {
    /// The machine is about to take an input.
    fn takes(&mut self, _input: &M::Input) {}
    /// It has acted on the time, or on what was gathered, since that moment.
    fn acted(&mut self, machine: &M, began: Instant);
}

/// A machine that has nothing to do turns all the same so often, for whoever watches that it doesn't hang.
const IDLE: Duration = Duration::from_secs(2);

/// Drives a machine until it is told to stop or nobody can bring it inputs any more. One that hangs doesn't beat.
pub(crate) async fn drive<M: Machine>(
    machine: &mut M,
    inputs: &mut impl Source<M::Input>,
    stop: CancellationToken,
    mut perform: impl FnMut(M::Effect),
    (beat, mut onlooker): (impl Fn(Standing, bool), impl Onlooker<M>),
) {
    let mut batch = Vec::with_capacity(INPUTS_IN_A_TURN);
    let mut pace = Pace::new();
    let mut told: Option<LastStanding> = None;
    loop {
        if let Some(standing) = machine.standing()
            && told.is_none_or(|told| told.is_over(standing))
        {
            beat(standing, machine.may_lead());
            told = Some(LastStanding { standing, at: Instant::now() });
        }
        let beats = told.map(|told| ALIVE_EVERY.saturating_sub(told.at.elapsed()));
        let due = machine.alarm().map(|due| due.since(clock::now()));
        let wait = due.into_iter().chain(beats).fold(IDLE, Duration::min);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            count = inputs.take(&mut batch, INPUTS_IN_A_TURN) => if count == 0 { return },
            () = pass(wait) => {}
        }
        let (now, stepped) = pace.now();
        if let Some(input) = stepped.and_then(M::clock_stepped) {
            machine.step(now, input).into_iter().for_each(&mut perform);
        }
        for input in batch.drain(..) {
            onlooker.takes(&input);
            machine.step(now, input).into_iter().for_each(&mut perform);
        }
        // A busy machine must not forget the time.
        if machine.alarm().is_some_and(|due| due <= now) {
            let began = Instant::now();
            machine.step(now, M::TICK).into_iter().for_each(&mut perform);
            onlooker.acted(machine, began);
        }
        let began = Instant::now();
        machine.step(now, M::TURN).into_iter().for_each(&mut perform);
        onlooker.acted(machine, began);
    }
}

/// Does what may have to wait. What needn't is done when this returns; for the rest somebody else waits.
pub(super) fn begin(work: impl Future<Output = ()> + Send + 'static) {
    let mut work = Box::pin(work);
    // Whoever waits for it polls it again, and wakes for it.
    if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        tokio::spawn(work);
    }
}

async fn pass(wait: Duration) {
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
    fn standing(&self) -> Option<Standing> {
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
    fn standing(&self) -> Option<Standing> {
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
    fn standing(&self) -> Option<Standing> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_that_is_set_is_followed_and_noticed() {
        let start = Instant::now();
        let at = Timestamp::from_millis;
        let mut pace = Pace { shown: at(100_000), read: start };
        let mut read = |shown, seconds| pace.at(at(shown), start + Duration::from_secs(seconds));
        assert_eq!(read(101_000, 1), (at(101_000), None));
        assert_eq!(read(102_300, 2), (at(102_300), None), "a clock that runs a little faster");
        assert_eq!(read(3_703_300, 3), (at(3_703_300), Some(3_600_000_000_000)));
        assert_eq!(read(3_730_300, 30), (at(3_730_300), None));
        assert_eq!(read(131_300, 31), (at(131_300), Some(-3_600_000_000_000)));
    }
}
