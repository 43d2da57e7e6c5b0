//! The loop that drives a machine: inputs in, effects out, an alarm in between.

use std::task::{Context, Waker};
use std::time::Duration;

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
    /// When it wants a tick.
    fn alarm(&self) -> Option<Timestamp>;
    /// Where it stands, if it says at times that it is there.
    fn standing(&self) -> Option<Standing>;
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

/// The time as a machine gets it. The clock stands still after it was set back, for as long as it takes to catch up, and
/// nobody may wait for that: meanwhile time runs on.
#[derive(Clone, Copy, Debug)]
struct Pace {
    now: Timestamp,
    read: Instant,
}

impl Pace {
    fn new() -> Self {
        Self { now: clock::now(), read: Instant::now() }
    }

    fn now(&mut self) -> Timestamp {
        self.at(clock::now(), Instant::now())
    }

    /// The time at an instant at which the clock shows this.
    fn at(&mut self, shown: Timestamp, read: Instant) -> Timestamp {
        self.now = shown.max(self.now + read.duration_since(self.read));
        self.read = read;
        self.now
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
    (beat, mut onlooker): (impl Fn(Standing), impl Onlooker<M>),
) {
    let mut batch = Vec::with_capacity(INPUTS_IN_A_TURN);
    let mut pace = Pace::new();
    let mut told: Option<LastStanding> = None;
    loop {
        if let Some(standing) = machine.standing()
            && told.is_none_or(|told| told.is_over(standing))
        {
            beat(standing);
            told = Some(LastStanding { standing, at: Instant::now() });
        }
        let beats = told.map(|told| ALIVE_EVERY.saturating_sub(told.at.elapsed()));
        let due = machine.alarm().map(|due| due.since(pace.now()));
        let wait = due.into_iter().chain(beats).fold(IDLE, Duration::min);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            count = inputs.take(&mut batch, INPUTS_IN_A_TURN) => if count == 0 { return },
            () = pass(wait) => {}
        }
        let now = pace.now();
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
    fn alarm(&self) -> Option<Timestamp> {
        Self::alarm(self)
    }
    fn standing(&self) -> Option<Standing> {
        Some(Self::standing(self))
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
    fn time_runs_on_while_the_clock_stands_still() {
        let start = Instant::now();
        let at = Timestamp::from_millis;
        let mut pace = Pace { now: at(100_000), read: start };
        let mut read = |shown, seconds| pace.at(at(shown), start + Duration::from_secs(seconds));
        assert_eq!(read(101_000, 1), at(101_000));
        assert_eq!(read(101_000, 3), at(103_000), "it was set back");
        assert_eq!(read(101_000, 31), at(131_000));
        assert_eq!(read(132_000, 32), at(132_000), "it has caught up");
        assert_eq!(read(3_732_000, 33), at(3_732_000), "it was set forward");
    }
}
