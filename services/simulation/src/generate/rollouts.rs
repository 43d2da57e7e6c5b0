//! Rollouts: commands about definitions that work, fail to start, crash soon, or fit on no cell.

use std::time::Duration;

use schemas::names::{DefinitionId, Domain, ProcessGuid};
use schemas::policy::{FailureAction, Parallelism, Ratio, UpdateOrder, UpdatePolicy};
use schemas::process::RolloutControl;

use crate::act::Act;
use crate::rng::Rng;
use crate::work::{Ask, Rolls, Work, domain};

/// Runs with rollouts, per thousand.
const PERMILLE: u64 = 600;

/// Runs with a rollback to a failing definition, per thousand.
const BACK_PERMILLE: u64 = 400;

/// Definition that works, and definition that runs for 4 s.
const WORKS: u64 = 3;
const RUNS_BRIEFLY: u64 = 10;

/// Interval between two choices of clients.
const TICK: Duration = Duration::from_millis(400);

/// Number of definitions of a process.
pub(crate) const DEFINITIONS: u64 = 14;

/// Id of the working definition that clients deploy at peace.
const MENDED: &str = "mended";

/// Draws commands about two processes until peace.
#[must_use]
pub(crate) fn drawn(rng: &mut Rng, peace_at: Duration) -> Vec<(Duration, Act)> {
    if !rng.chance(PERMILLE) {
        return vec![];
    }
    let often = [60, 150, 400][usize::try_from(rng.below(3)).unwrap_or(0)];
    let patient = rng.chance(500);
    let mut acts = vec![];
    let mut at = Duration::from_secs(2);
    for number in 0..2 {
        let instances = 1 + u32_below(rng, 5);
        let desire = Ask::Desire { process: process(number), instances, work: Work::basic() };
        acts.push((at, act(rng, desire)));
    }
    while at < peace_at {
        at += TICK;
        if rng.chance(often) {
            let ask = asked(rng, patient);
            acts.push((at, act(rng, ask)));
        }
    }
    acts.retain(|(at, _)| *at < peace_at);
    acts
}

/// Draws commands about a process that rolls back to a failing definition. The definition was healthy because
/// it ran for a moment, and the rollback has a longer monitor. A client continues from there.
#[must_use]
pub(crate) fn back_to_what_fails(rng: &mut Rng, peace_at: Duration) -> Vec<(Duration, Act)> {
    if !rng.chance(BACK_PERMILLE) {
        return vec![];
    }
    let process = ProcessGuid::new("back").expect("a name");
    let deploy = |number, update| {
        let rolls = Some(Box::new(Rolls { update, ..Rolls::basic() }));
        Ask::Deploy { process: process.clone(), definition: definition(number), work: work(number), rolls }
    };
    let basic = UpdatePolicy::default_update;
    let (at_once, goes_on) = (Parallelism::Count(5), FailureAction::Continue);
    let unwatched = UpdatePolicy { parallelism: at_once, failure_action: goes_on, ..basic() };
    let failure_action = if rng.chance(500) { FailureAction::Pause } else { FailureAction::Rollback };
    let order = if rng.chance(300) { UpdateOrder::StopFirst } else { UpdateOrder::StartFirst };
    let watched = UpdatePolicy { monitor_ms: 5_000, delay_ms: 2_000, failure_action, order, ..basic() };
    let last = match rng.below(3) {
        0 => Ask::Activate(process.clone(), definition(WORKS)),
        1 => deploy(4, basic()),
        _ => Ask::Steer(process.clone(), RolloutControl::Resume),
    };
    let instances = 2 + u32_below(rng, 2);
    let asked = [
        (1_000, Ask::Desire { process: process.clone(), instances, work: Work::basic() }),
        (5_000, deploy(RUNS_BRIEFLY, unwatched)),
        (5_000, deploy(WORKS, watched)),
        (8_000, Ask::Steer(process.clone(), RolloutControl::RollBack)),
        (9_000, last),
    ];
    let mut at = Duration::ZERO;
    let mut acts = vec![];
    for (after, ask) in asked {
        at += rng.millis(after, after + 1_500);
        acts.push((at, act(rng, ask)));
    }
    acts.retain(|(at, _)| *at < peace_at);
    acts
}

fn act(rng: &mut Rng, ask: Ask) -> Act {
    Act::Ask { domain: domain(), ask, patience: rng.millis(2_000, 30_000), answer: None }
}

fn process(number: u64) -> ProcessGuid {
    ProcessGuid::new(&format!("web{number}")).expect("a name")
}

fn asked(rng: &mut Rng, patient: bool) -> Ask {
    let process = process(rng.below(2));
    match rng.below(20) {
        0..=8 => deploy(rng, process, patient),
        9 => {
            let number = rng.below(DEFINITIONS);
            Ask::Activate(process, definition(number))
        }
        10 => Ask::Restart(process),
        11 => Ask::Steer(process, RolloutControl::Pause),
        12..=14 => Ask::Steer(process, RolloutControl::Resume),
        15 | 16 => Ask::Steer(process, RolloutControl::RollBack),
        17 => Ask::Scale { process, instances: u32_below(rng, 6) },
        18 => Ask::Retire(process, u32_below(rng, 4)),
        _ => Ask::Desire { process, instances: 1 + u32_below(rng, 4), work: Work::basic() },
    }
}

fn definition(number: u64) -> DefinitionId {
    DefinitionId::new(&format!("v{number}")).expect("a name")
}

/// Definitions of one name are equal.
fn deploy(rng: &mut Rng, process: ProcessGuid, patient: bool) -> Ask {
    let number = rng.below(DEFINITIONS);
    let rolls = rng.chance(600).then(|| Box::new(rolls(rng, patient)));
    Ask::Deploy { process, definition: definition(number), work: work(number), rolls }
}

pub(crate) fn work(number: u64) -> Work {
    let millis = Duration::from_millis;
    let work = Work::basic();
    match number {
        8 => Work { fails: true, exit: 1, ..work },
        9 => Work { run: Some(millis(300)), exit: 1, ..work },
        10 => Work { run: Some(millis(4_000)), exit: 1, ..work },
        11 => Work { memory_mb: 64_000, ..work },
        12 => Work { hangs: true, ..work },
        13 => Work { unhealthy: true, exit: 1, ..work },
        0 => Work { create: millis(1_000), start: millis(2_000), ignores_term: true, ..work },
        1 => Work { start: millis(6_000), ..work },
        2 => Work { memory_mb: 900, ..work },
        _ => work,
    }
}

pub(crate) fn rolls(rng: &mut Rng, patient: bool) -> Rolls {
    let basic = UpdatePolicy::default_update();
    let order = if rng.chance(350) { UpdateOrder::StopFirst } else { UpdateOrder::StartFirst };
    let parallelism = match rng.below(6) {
        0 => Parallelism::Percent(50),
        1 => Parallelism::Count(2),
        2 => Parallelism::Count(5),
        _ => Parallelism::Count(1),
    };
    let failure_action = match rng.below(5) {
        0 => FailureAction::Pause,
        1 => FailureAction::Continue,
        2 | 3 => FailureAction::Rollback,
        _ => FailureAction::Hold,
    };
    let ratio = [0.0, 0.3, 0.6][usize::try_from(rng.below(3)).unwrap_or(0)];
    let millis = |rng: &mut Rng, permille, from, to| {
        let time = rng.millis(from, to);
        let drawn = rng.chance(permille);
        u64::try_from(time.as_millis()).ok().filter(|_| drawn)
    };
    let slow = if patient { 5_000 } else { 800 };
    let update = UpdatePolicy {
        parallelism,
        delay_ms: millis(rng, 300, 0, slow).unwrap_or(0),
        order,
        failure_action,
        monitor_ms: millis(rng, 400, 0, slow).unwrap_or(0),
        max_failure_ratio: Ratio::try_from(ratio).unwrap_or_default(),
        index_deadline_ms: millis(rng, 300, 2_000, 20_000).unwrap_or(basic.index_deadline_ms),
        pause_after: rng.chance(150).then(|| 1 + u32_below(rng, 3)),
    };
    // A stop-first rollout must be allowed to stop an instance, however few there are.
    let most = if order == UpdateOrder::StopFirst { 1 } else { 3 };
    Rolls { update, min_running: rng.chance(250).then(|| u32_below(rng, most)), history: None }
}

/// Adds limits of shown ended containers to some deployments.
pub(crate) fn limit_histories(acts: &mut [(Duration, Act)], rng: &mut Rng) {
    for (_, act) in acts {
        if let Act::Ask { ask: Ask::Deploy { rolls: Some(rolls), .. }, .. } = act {
            rolls.history = rng.chance(400).then(|| u32_below(rng, 5));
        }
    }
}

/// Returns working definitions for most processes that were rolled out, for peace.
pub(crate) fn mending(processes: &[(ProcessGuid, Domain)], rng: &mut Rng) -> Vec<(Domain, Ask)> {
    let deploy = |process: &ProcessGuid| {
        let definition = DefinitionId::new(MENDED).expect("a name");
        let rolls = Rolls { min_running: Some(0), ..Rolls::basic() };
        let (process, rolls) = (process.clone(), Some(Box::new(rolls)));
        Ask::Deploy { process, definition, work: Work::basic(), rolls }
    };
    let mended = processes.iter().filter(|_| rng.chance(650));
    mended.map(|(process, domain)| (domain.clone(), deploy(process))).collect()
}

/// Returns `true` if clients deploy the definition at peace.
pub(crate) fn is_mended(id: &DefinitionId) -> bool {
    id.as_str() == MENDED
}

fn u32_below(rng: &mut Rng, bound: u64) -> u32 {
    u32::try_from(rng.below(bound)).unwrap_or(0)
}
