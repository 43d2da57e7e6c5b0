//! Plans drawn from seeds.

mod absences;
mod bursts;
mod commands;
mod dispatches;
mod globals;
mod isolation;
mod large;
mod periodics;
mod preemption;
mod priorities;
mod racks;
mod restarts;
mod retries;
pub(crate) mod rollouts;

use crate::act::Act;
use crate::generate::commands::Clients;
use crate::plan::Plan;
use crate::rates::{Faults, Rates};
use crate::rng::Rng;
use crate::shape::Shape;
use crate::work::{Ask, domain};

use std::time::Duration;

/// Interval between two choices of the clients in [`competing_acts`].
const TICK: Duration = Duration::from_millis(900);

/// Draws commands of clients until peace. `often` and `racing` are per thousand: the probability of a command at
/// each choice, and the probability that a second client sends the same command at the same time.
fn competing_acts(
    rng: &mut Rng,
    (begin, peace_at): (Duration, Duration),
    (often, racing): (u64, u64),
    ask: impl Fn(&mut Rng) -> Ask,
) -> Vec<(Duration, Act)> {
    let mut acts = vec![];
    let mut at = begin;
    while at < peace_at {
        at += TICK;
        if rng.chance(often) {
            let ask = ask(rng);
            let second = rng.chance(racing).then(|| ask.clone());
            for ask in [ask].into_iter().chain(second) {
                acts.push((at, client_act(rng, ask)));
            }
        }
    }
    acts
}

/// Draws the patience of a client that sends a command.
fn client_act(rng: &mut Rng, ask: Ask) -> Act {
    Act::Ask { domain: domain(), ask, patience: rng.millis(2_000, 30_000), answer: None }
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
            plan.acts.extend(racks::with_affinities(&mut Rng::new(seed, 36), plan.peace_at));
            plan.acts.extend(isolation::drawn(&mut Rng::new(seed, 39), plan.peace_at));
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
            acts.extend(commands::drawn(&mut users, clients).into_iter().map(|act| (at, act)));
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
