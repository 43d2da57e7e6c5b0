//! Random commands of clients.

use schemas::names::{ProcessGuid, Stack, TaskGuid};
use std::time::Duration;

use crate::act::Act;
use crate::rng::Rng;
use crate::work::{Ask, Owner, Work, domain, other_domain};

/// Behaviour of the clients of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    /// Clients send all kinds of commands.
    Various,
    /// Clients repeat commands about few processes and tasks, which start slowly and crash.
    Stubborn,
}

/// Draws the commands of 200 ms.
#[must_use]
pub(crate) fn drawn(rng: &mut Rng, clients: Clients) -> Vec<Act> {
    if !rng.chance(400) {
        return vec![];
    }
    let first = request(rng, clients);
    // A second client may send the same command at the same time.
    let racing = rng.chance(40).then(|| first.clone());
    [first].into_iter().chain(racing).collect()
}

fn request(rng: &mut Rng, clients: Clients) -> Act {
    let domain = if rng.chance(60) { other_domain() } else { domain() };
    let (processes, tasks) = match clients {
        Clients::Various => (6, 12),
        Clients::Stubborn => (2, 3),
    };
    let process = ProcessGuid::new(&format!("web{}", rng.below(processes))).expect("a name");
    let task = TaskGuid::new(&format!("job{}", rng.below(tasks))).expect("a name");
    let ask = match rng.below(22) {
        0..=5 => Ask::Desire { process, instances: 1 + u32_below(rng, 4), work: process_work(rng, clients) },
        6 | 7 => Ask::Scale { process, instances: u32_below(rng, 5) },
        8 | 9 => Ask::Remove(process),
        10 | 11 => Ask::Retire(process, u32_below(rng, 3)),
        21 if rng.chance(500) => Ask::Enter(process, u32_below(rng, 2)),
        21 => Ask::Describe { process, text: format!("said{}", rng.below(3)) },
        12..=15 => task_request(rng, task),
        16 | 17 => Ask::Cancel(task),
        18 | 19 => Ask::Resolve(task),
        _ => Ask::Fresh(Some(Duration::from_millis(rng.below(20_000)))),
    };
    Act::Ask { domain, ask, patience: rng.millis(2_000, 30_000), answer: None }
}

fn process_work(rng: &mut Rng, clients: Clients) -> Work {
    let millis = Duration::from_millis;
    let work = match clients {
        Clients::Various => constrained(rng),
        Clients::Stubborn => return troublesome(rng),
    };
    match rng.below(16) {
        0 | 1 => Work { start: millis(200), run: Some(rng.millis(500, 6_000)), exit: 1, ..work },
        2 | 3 => Work { create: millis(500), start: millis(1_000), ignores_term: true, ..work },
        4 | 5 => Work { create: millis(2_000), start: millis(3_000), ..work },
        6 => Work { fails: true, exit: 1, ..work },
        7 => Work { hangs: true, ..work },
        8 => Work { unhealthy: true, exit: 1, ..work },
        _ => work,
    }
}

/// Draws work that starts slowly, and crashes soon or ignores TERM.
pub(crate) fn troublesome(rng: &mut Rng) -> Work {
    let times = |rng: &mut Rng| match rng.below(6) {
        0 | 1 => rng.millis(0, 100),
        2 | 3 => rng.millis(100, 1_500),
        4 => rng.millis(1_500, 6_000),
        _ => rng.millis(6_000, 40_000),
    };
    let (create, start) = (times(rng), times(rng));
    let run = rng.chance(600).then(|| rng.millis(100, 3_000));
    let exit = u8::from(run.is_some());
    Work { create, start, run, exit, ignores_term: rng.chance(300), ..Work::basic() }
}

pub(crate) fn task_request(rng: &mut Rng, task: TaskGuid) -> Ask {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let work = constrained(rng);
    let work = match rng.below(8) {
        0 | 1 => Work { run: seconds(1), exit: 1, ..work },
        2 | 3 => Work { run: seconds(20), result: "late".into(), ..work },
        4 => Work { create: Duration::from_secs(3), run: seconds(3), result: "slow".into(), ..work },
        _ => Work { run: Some(Duration::from_millis(500)), result: "done".into(), ..work },
    };
    let owner = match rng.below(8) {
        0 | 1 => Owner::Well,
        2 => Owner::Moody,
        3 => Owner::Broken,
        4 => Owner::Absent,
        _ => Owner::None,
    };
    let queue = rng.chance(600).then(|| rng.millis(20_000, 60_000));
    Ask::Run { task, work, owner, queue }
}

/// Draws work with constraints. Most of it is small and fits on any cell.
fn constrained(rng: &mut Rng) -> Work {
    let stack = |name: &str| Stack::new(name).ok();
    let (stack, tag) = match rng.below(12) {
        0 => (stack("windows"), false),
        1 | 2 => (stack("linux"), true),
        3..=5 => (stack("linux"), false),
        _ => (None, false),
    };
    let memory_mb = match rng.below(16) {
        0 => 3_000,
        1..=3 => 900,
        _ => 64 + 64 * rng.below(3),
    };
    Work { stack, tag, memory_mb, ..Work::basic() }
}

fn u32_below(rng: &mut Rng, bound: u64) -> u32 {
    u32::try_from(rng.below(bound)).unwrap_or(0)
}
