//! Everything that a run does, decided before it begins: so a failed run can be shortened, and a person can write one.

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

/// A run, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What every stream of chance begins with.
    pub seed: u64,
    /// Who is there.
    pub shape: Shape,
    /// What goes wrong with single messages, appends and effects, until peace.
    pub faults: Faults,
    /// What users and faults do, and when, in the order of time.
    pub acts: Vec<(Duration, Act)>,
    /// What has to be seen, and from when on, in the order of time. Drawn plans expect nothing of their own.
    pub expects: Vec<(Duration, Expect)>,
    /// When peace begins. Then all faults end, and after some minutes everything has to be as it is wanted.
    pub peace_at: Duration,
}

/// What a client is told in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was carried out.
    Done,
    /// It was refused.
    Refused(Code),
}

/// Something that users or faults do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A client of a domain asks, again and again until it is answered or its patience is over.
    Ask {
        /// The domain that its subject proves.
        domain: Domain,
        /// What it asks.
        ask: Ask,
        /// When the command is too old to be carried out.
        patience: Duration,
        /// What it must be answered, if that is said.
        answer: Option<Answer>,
    },
    /// An operator evacuates a cell.
    Evacuate(usize),
    /// An operator wants no new work on a cell.
    Cordon(usize),
    /// An operator takes that back.
    Uncordon(usize),
    /// An operator wants a cell that is lost to be forgotten.
    Forget(usize),
    /// An operator says whether what is less urgent may be stopped for what waits.
    Preemption(bool),
    /// An operator changes the number of shards.
    Reshard(u16),
    /// Somebody wants an evaluation tried again: the newest of this process or task with this trigger.
    Retry(ProcessGuid, Trigger),
    /// A service is killed and starts again later; a cell's containers live on.
    Kill {
        /// Which.
        node: Node,
        /// For how long.
        away: Duration,
    },
    /// A cell's machine dies with all its containers; an empty one takes its place later, or never.
    Lose {
        /// Which.
        cell: usize,
        /// For how long; none: for ever.
        away: Option<Duration>,
    },
    /// A node is cut off from the bus, and from the journal or not.
    CutOff {
        /// Which.
        node: Node,
        /// For how long.
        time: Duration,
        /// Whether it doesn't reach the journal either.
        journal_too: bool,
        /// Whether it notices.
        notices: bool,
    },
    /// Messages from some nodes to some others are lost.
    Part {
        /// Whose messages.
        from: Vec<Node>,
        /// To whom.
        to: Vec<Node>,
        /// Whether also those the other way.
        both_ways: bool,
        /// For how long.
        time: Duration,
    },
    /// A node is paused: it finds everything when it goes on.
    Pause {
        /// Which.
        node: Node,
        /// For how long.
        time: Duration,
    },
    /// A node's follower stands still, and nothing else.
    Lag {
        /// Which.
        node: Node,
        /// For how long.
        time: Duration,
    },
    /// The journal answers nobody.
    Dark(Duration),
    /// All heartbeats are lost.
    NoHeartbeats(Duration),
    /// The heartbeats of a cell and the probes to it are lost, and nothing else.
    Unheard {
        /// Which.
        cell: usize,
        /// For how long.
        time: Duration,
    },
    /// A node's clock is set forward or back, in milliseconds.
    Clock {
        /// Whose.
        node: Node,
        /// How far.
        millis: i64,
    },
    /// A cell's containers take seconds for what takes them milliseconds.
    Slow {
        /// Which.
        cell: usize,
        /// For how long.
        time: Duration,
    },
    /// A cell can't make containers, and its self-test says so.
    Sick {
        /// Which.
        cell: usize,
        /// For how long.
        time: Duration,
    },
    /// A cell can't prepare containers, so that its rep refuses work; its self-test says so.
    Full {
        /// Which.
        cell: usize,
        /// For how long.
        time: Duration,
    },
    /// Somebody writes bytes into the log that are no valid entry.
    Malformed,
    /// All machines of the journal lose power at once. If it does not sync, the last entries are gone.
    PowerCut {
        /// How many entries were not on disk.
        unsynced: usize,
    },
}

impl Act {
    /// What kind of thing it is, in words.
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

/// In some runs an operator changes the number of shards, once or several times.
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
    /// The plan of a seed: all that can go wrong, each kind in some runs and not in others.
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

    /// The same without rollouts.
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
        // In some runs few things happen, and those again and again or all at once: what is rare elsewhere is usual there.
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

    /// A plan in which nothing goes wrong, and users do what they do.
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
