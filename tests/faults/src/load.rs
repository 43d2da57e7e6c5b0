//! A steady load: clients that desire, scale, update, crash, run and remove, one command after the other each.
//!
//! | the client | does |
//! |---|---|
//! | `steady` | desires what runs all the time, once |
//! | `scales` | changes the scale of a process |
//! | `updates` | gives a process another definition, in the middle of a rollout, too |
//! | `crashes` | desires processes that crash by themselves, and removes older ones |
//! | `tasks` | runs tasks each of which adds a line to a file of its own, cancels some and resolves others |

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::Error;
use schemas::Code;
use schemas::definition::DesiredLrpUpdate;
use schemas::message::Done;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::asker::Asker;
use crate::failed::{Failed, Result};
use crate::ledger::Ledger;
use crate::work;

/// How many instances run all the time, of each of two processes.
const STEADY: u32 = 2;
/// How many processes that crash are there at once.
const CRASHING: u64 = 2;
/// How many tasks later a task is resolved, if it is.
const RESOLVED_AFTER: u64 = 8;

/// The clients.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Scales,
    Updates,
    Crashes,
    Tasks,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Scales, Self::Updates, Self::Crashes, Self::Tasks];

    /// Its name, and how long it waits from one command to the next.
    const fn row(self) -> (&'static str, Duration) {
        match self {
            Self::Scales => ("scales", Duration::from_millis(300)),
            Self::Updates => ("updates", Duration::from_millis(1_500)),
            Self::Crashes => ("crashes", Duration::from_millis(1_000)),
            Self::Tasks => ("tasks", Duration::from_millis(250)),
        }
    }
}

/// Clients that never stop. Dropped, they are gone.
#[derive(Debug)]
pub struct Load {
    gate: Arc<RwLock<()>>,
    clients: JoinSet<Result<()>>,
}

impl Load {
    /// Starts all clients; what tasks write goes to files in `folder`.
    ///
    /// # Errors
    /// Nobody is there.
    pub async fn start(url: &str, folder: &Path, ledger: &Arc<Ledger>) -> Result<Self> {
        let steady = Asker::connect(url, "steady", ledger).await?;
        // What nobody desires is only stopped while the domain is fresh.
        let fresh = steady.ask("domain refresh", async |client| client.refresh_domain(None).await).await;
        fresh.map_err(Failed::at("domain refresh"))?;
        for (name, instances) in [("steady-a", STEADY), ("steady-b", STEADY), ("scaled", 1), ("updated", 2)] {
            steady.desire(work::sleeper(name, instances, 0)?).await?;
        }
        let gate = Arc::new(RwLock::new(()));
        let mut clients = JoinSet::new();
        for kind in Kind::ALL {
            let asker = Asker::connect(url, kind.row().0, ledger).await?;
            clients.spawn(go_on(kind, asker, folder.to_owned(), Arc::clone(&gate)));
        }
        Ok(Self { gate, clients })
    }

    /// Waits until every client has its answer; none asks again while what is returned is held.
    pub async fn pause(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.gate).write_owned().await
    }

    /// That no client has given up.
    ///
    /// # Errors
    /// One has: why.
    pub fn goes_on(&mut self) -> Result<()> {
        match self.clients.try_join_next() {
            None => Ok(()),
            Some(Ok(Ok(()))) => Err(Failed::new("a client has stopped")),
            Some(Ok(Err(why))) => Err(Failed(format!("a client gave up: {why}"))),
            Some(Err(error)) => Err(Failed(format!("a client gave up: {error}"))),
        }
    }
}

/// One client, with one command after the other.
async fn go_on(kind: Kind, asker: Asker, folder: PathBuf, gate: Arc<RwLock<()>>) -> Result<()> {
    for number in 1.. {
        let asking = gate.read().await;
        match kind {
            Kind::Scales => scale(&asker, number).await?,
            Kind::Updates => update(&asker, number).await?,
            Kind::Crashes => crash(&asker, number).await?,
            Kind::Tasks => run_tasks(&asker, &folder, number).await?,
        }
        drop(asking);
        sleep(kind.row().1).await;
    }
    Ok(())
}

async fn scale(asker: &Asker, number: u64) -> Result<()> {
    let instances = u32::try_from(1 + number % 4).map_err(Failed::at("a scale"))?;
    let update = DesiredLrpUpdate { instances: Some(instances), ..DesiredLrpUpdate::default() };
    let guid = work::process("scaled")?;
    let asked = asker.ask("lrp scale scaled", async |client| client.update_lrp(guid, update).await).await;
    asked.map(drop).map_err(Failed::at("lrp scale scaled"))
}

async fn update(asker: &Asker, number: u64) -> Result<()> {
    let lrp = work::sleeper("updated", 2, number)?;
    let asked = asker.ask("lrp update updated", async |client| client.replace_lrp(lrp).await).await;
    asked.map(drop).map_err(Failed::at("lrp update updated"))
}

async fn crash(asker: &Asker, number: u64) -> Result<()> {
    asker.desire(work::crasher(&format!("crashing-{number}"))?).await?;
    match number.checked_sub(CRASHING) {
        None | Some(0) => Ok(()),
        Some(old) => asker.remove(work::process(&format!("crashing-{old}"))?).await.map(drop),
    }
}

async fn run_tasks(asker: &Asker, folder: &Path, number: u64) -> Result<()> {
    let guid = work::task_guid(&format!("task-{number}"))?;
    let seconds = if number.is_multiple_of(3) { "0.5" } else { "0" };
    asker.run(work::task(&guid, folder, seconds)?).await?;
    if number.is_multiple_of(5) {
        let what = format!("task cancel {guid}");
        may_be_refused(asker.ask(what, async |client| client.cancel_task(guid).await).await)?;
    }
    match number.checked_sub(RESOLVED_AFTER) {
        Some(old) if old.is_multiple_of(2) && old > 0 => {
            let guid = work::task_guid(&format!("task-{old}"))?;
            let what = format!("task resolve {guid}");
            may_be_refused(asker.ask(what, async |client| client.resolve_task(guid).await).await)
        }
        Some(_) | None => Ok(()),
    }
}

/// What comes too late or too early is refused, and nothing is wrong with that.
fn may_be_refused(answer: std::result::Result<Done, Error>) -> Result<()> {
    match answer {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.code(), Some(Code::InvalidStateTransition | Code::ResourceNotFound)) => {
            Ok(())
        }
        Err(error) => Err(Failed(error.to_string())),
    }
}
