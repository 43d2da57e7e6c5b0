//! Plan of a run, fixed before the run starts. A plan is drawn from a seed or written as a story, and is
//! shortened after a failure.

use std::time::Duration;

use schemas::evaluation::Trigger;
use schemas::names::{Domain, ProcessGuid};
use schemas::refusal::Code;

use super::absences;
use super::bursts;
use super::dispatches;
use super::faults::{Faults, Rates};
use super::globals;
use super::large;
use super::nodes::{Node, Shape};
use super::periodics;
use super::preemption;
use super::priorities;
use super::racks;
use super::restarts;
use super::retries;
use super::rng::Rng;
use super::rollouts;
use super::story::Expect;
use super::walls;
use super::workload::{self, Ask, Clients};

/// Plan of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Seed of all random streams.
    pub seed: u64,
    pub shape: Shape,
    /// Fault rates until peace.
    pub faults: Faults,
    /// Acts of clients, operators and faults, sorted by time.
    pub acts: Vec<(Duration, Act)>,
    /// Expectations of a story, sorted by time. Plans drawn from seeds have none.
    pub expects: Vec<(Duration, Expect)>,
    /// Time of peace: all faults end, and minutes later the cluster must be at rest.
    pub peace_at: Duration,
}

/// Expected answer to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Refused(Code),
}

/// Act of a client, an operator or a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A client sends a command, and repeats it until it is answered or too old.
    Ask {
        domain: Domain,
        ask: Ask,
        /// Time after which the command must not be carried out.
        patience: Duration,
        /// Expected answer, if a story sets one.
        answer: Option<Answer>,
    },
    /// An operator evacuates a cell.
    Evacuate(usize),
    /// An operator cordons a cell.
    Cordon(usize),
    /// An operator uncordons a cell.
    Uncordon(usize),
    /// An operator lets the cluster forget a lost cell.
    Forget(usize),
    /// An operator switches preemption on or off.
    Preemption(bool),
    /// An operator changes the number of shards.
    Reshard(u16),
    /// A client retries the newest evaluation of a process or task with this trigger.
    Retry(ProcessGuid, Trigger),
    /// A service is killed and starts again later. Containers keep running.
    Kill { node: Node, away: Duration },
    /// The machine of a cell dies with all containers. An empty machine replaces it later.
    Lose {
        cell: usize,
        /// Time until the replacement. `None` if the cell never comes back.
        away: Option<Duration>,
    },
    /// A node is cut off from the bus.
    CutOff {
        node: Node,
        time: Duration,
        /// `true` if the node is also cut off from the journal.
        journal_too: bool,
        /// `true` if the node notices.
        notices: bool,
    },
    /// Messages between two groups of nodes are lost.
    Part {
        /// Senders.
        from: Vec<Node>,
        /// Receivers.
        to: Vec<Node>,
        /// `true` if messages in the other direction are lost too.
        both_ways: bool,
        time: Duration,
    },
    /// A node is paused, and handles all its inputs afterwards.
    Pause { node: Node, time: Duration },
    /// The log reader of a node stops.
    Lag { node: Node, time: Duration },
    /// The journal does not answer.
    Dark(Duration),
    /// Every heartbeat is lost.
    NoHeartbeats(Duration),
    /// The heartbeats of a cell and the probes to it are lost.
    Unheard { cell: usize, time: Duration },
    /// The clock of a node is set.
    Clock {
        node: Node,
        /// Step of the clock, negative for back.
        millis: i64,
    },
    /// The rep of a cell receives container events seconds late.
    Slow { cell: usize, time: Duration },
    /// A cell cannot create containers, and its self-test fails.
    Sick { cell: usize, time: Duration },
    /// A cell cannot prepare containers, so its rep refuses work, and its self-test fails.
    Full { cell: usize, time: Duration },
    /// Another program writes a message that is not an entry.
    Malformed,
    /// The machines of the journal lose power at once. Without sync the last entries are lost.
    PowerCut {
        /// Number of entries that were not synced.
        unsynced: usize,
    },
}

impl Act {
    /// Returns the kind of the act as text.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Ask { .. } => "requests of clients",
            Self::Evacuate(_) => "evacuations",
            Self::Cordon(_) => "cells cordoned",
            Self::Uncordon(_) => "evacuations taken back",
            Self::Forget(_) => "cells to be forgotten",
            Self::Preemption(_) => "switches of preemption",
            Self::Reshard(_) => "changes of the number of shards",
            Self::Retry(..) => "evaluations to be tried again",
            Self::Kill { .. } => "kills",
            Self::Lose { away: Some(_), .. } => "machines lost for a while",
            Self::Lose { away: None, .. } => "machines lost for ever",
            Self::CutOff { journal_too: false, .. } => "nodes cut off from the bus",
            Self::CutOff { journal_too: true, .. } => "nodes cut off from bus and journal",
            Self::Part { both_ways: true, .. } => "partitions",
            Self::Part { both_ways: false, .. } => "one-way partitions",
            Self::Pause { .. } => "pauses",
            Self::Lag { .. } => "followers that stand still",
            Self::Dark(_) => "blackouts of the journal",
            Self::NoHeartbeats(_) => "times without any heartbeat",
            Self::Unheard { .. } => "times without one cell's heartbeats",
            Self::Clock { .. } => "steps of a clock",
            Self::Slow { .. } => "slow cells",
            Self::Sick { .. } => "cells that can't make containers",
            Self::Full { .. } => "cells that can't prepare containers",
            Self::Malformed => "corrupt entries",
            Self::PowerCut { .. } => "power cuts",
        }
    }
}

/// Draws changes of the number of shards.
fn resharding(rng: &mut Rng, peace_at: Duration) -> Vec<(Duration, Act)> {
    const PERMILLE: u64 = 300;
    if !rng.chance(PERMILLE) {
        return vec![];
    }
    let mut acts = vec![];
    let mut at = rng.millis(1_000, 30_000);
    while at < peace_at {
        acts.push((at, Act::Reshard(1 + u16::try_from(rng.below(12)).unwrap_or_default())));
        at += rng.millis(500, 40_000);
    }
    acts
}

impl Plan {
    /// Draws the plan of a seed. Each kind of fault occurs in some plans only.
    #[must_use]
    pub fn drawn(seed: u64) -> Self {
        let mut plan = Self::drawn_alone(seed);
        if !Rng::new(seed, 21).chance(large::PERMILLE) {
            let mut acts = rollouts::drawn(&mut Rng::new(seed, 23), plan.peace_at);
            rollouts::limit_histories(&mut acts, &mut Rng::new(seed, 25));
            plan.acts.extend(acts);
            plan.acts.extend(restarts::drawn(&mut Rng::new(seed, 24), plan.peace_at));
            plan.acts.extend(rollouts::back_to_what_fails(&mut Rng::new(seed, 27), plan.peace_at));
            plan.acts.extend(globals::drawn(&mut Rng::new(seed, 26), plan.shape, plan.peace_at));
            plan.acts.extend(racks::drawn(&mut Rng::new(seed, 29), plan.peace_at));
            priorities::draw(&mut plan.acts, &mut Rng::new(seed, 30), plan.peace_at);
            plan.acts.extend(periodics::drawn(&mut Rng::new(seed, 31), plan.peace_at));
            plan.acts.extend(dispatches::drawn(&mut Rng::new(seed, 32), plan.peace_at));
            plan.acts.extend(preemption::drawn(&mut Rng::new(seed, 33), plan.peace_at));
            plan.acts.extend(resharding(&mut Rng::new(seed, 40), plan.peace_at));
            plan.acts.extend(retries::drawn(&mut Rng::new(seed, 37), plan.peace_at));
            plan.acts.extend(racks::wished(&mut Rng::new(seed, 36), plan.peace_at));
            plan.acts.extend(walls::drawn(&mut Rng::new(seed, 39), plan.peace_at));
            let downtime =
                periodics::downtime(&mut Rng::new(seed, 35), plan.shape, &plan.acts, plan.peace_at);
            if let Some((kills, over)) = downtime {
                plan.acts.extend(kills);
                plan.peace_at = over;
            }
            plan.acts.sort_by_key(|(at, _)| *at);
        }
        plan
    }

    /// Draws a plan without rollouts.
    fn drawn_alone(seed: u64) -> Self {
        let shape = Shape::drawn(&mut Rng::new(seed, 4));
        let faults = Faults::drawn(&mut Rng::new(seed, 0)).with_plans(&mut Rng::new(seed, 34));
        let rates = Rates::drawn(&mut Rng::new(seed, 2));
        let peace_at = Rng::new(seed, 6).millis(20_000, 80_000);
        if Rng::new(seed, 21).chance(large::PERMILLE) {
            let (acts, peace_at) = large::drawn(&mut Rng::new(seed, 22));
            let shape = Shape { tagged: true, roomy: true, ..shape };
            return Self { seed, shape, faults, acts, expects: vec![], peace_at };
        }
        // Some plans concentrate on few kinds of acts, which are repeated or simultaneous.
        match Rng::new(seed, 10).below(10) {
            0..=2 => {
                let users = (Clients::Stubborn, rates.with_evacuations());
                Self::drawn_with(seed, shape.for_evacuations(), faults, users, peace_at * 3)
            }
            3 | 4 => {
                let (mut users, mut chaos) = (Rng::new(seed, 3), Rng::new(seed, 7));
                let (shape, peace_at) = (shape.for_evacuations(), peace_at * 2);
                let acts = bursts::drawn(&mut users, &mut chaos, shape, peace_at);
                Self { seed, shape, faults, acts, expects: vec![], peace_at }
            }
            5 => {
                let shape = shape.for_evacuations();
                let (acts, peace_at) = absences::drawn(&mut Rng::new(seed, 11), shape);
                Self { seed, shape, faults, acts, expects: vec![], peace_at }
            }
            _ => Self::drawn_with(seed, shape, faults, (Clients::Various, rates), peace_at),
        }
    }

    /// Draws a plan with clients and without faults.
    #[must_use]
    pub fn calm(seed: u64) -> Self {
        let shape = Shape::drawn(&mut Rng::new(seed, 4));
        let users = (Clients::Various, Rates::NONE);
        Self::drawn_with(seed, shape, Faults::NONE, users, Duration::from_secs(60))
    }

    fn drawn_with(
        seed: u64,
        shape: Shape,
        faults: Faults,
        (clients, rates): (Clients, Rates),
        peace_at: Duration,
    ) -> Self {
        const TICK: Duration = Duration::from_millis(200);
        let (mut users, mut chaos) = (Rng::new(seed, 3), Rng::new(seed, 7));
        let mut acts = vec![];
        let mut at = TICK;
        while at < peace_at {
            acts.extend(workload::drawn(&mut users, clients).into_iter().map(|act| (at, act)));
            acts.extend(rates.drawn_acts(&mut chaos, shape).into_iter().map(|act| (at, act)));
            at += TICK;
        }
        let changed = absences::during(&mut Rng::new(seed, 12), &acts);
        acts.extend(changed);
        acts.retain(|(at, _)| *at < peace_at);
        acts.sort_by_key(|(at, _)| *at);
        Self { seed, shape, faults, acts, expects: vec![], peace_at }
    }
}
