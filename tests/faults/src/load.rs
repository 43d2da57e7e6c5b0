//! Steady load. Several clients create, scale, update, crash, run and remove processes and tasks. Each client
//! sends one command after the other.
//!
//! | client | commands |
//! |---|---|
//! | `steady` | desires the permanent processes, once |
//! | `scales` | scales a process |
//! | `updates` | changes the definition of a process, even during a rollout |
//! | `crashes` | desires processes that crash, removes older ones |
//! | `tasks` | runs tasks that each add a line to a file of their own, cancels some, resolves others |

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::Error;
use schemas::Code;
use schemas::definition::DesiredLrpUpdate;
use schemas::message::Ack;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::error::{Failed, Result};
use crate::ledger::Ledger;
use crate::recording_client::RecordingClient;
use crate::work;

/// Instances of each of the two permanent processes.
const STEADY_INSTANCES: u32 = 2;
/// Number of crashing processes that exist at the same time.
const CRASHING_PROCESSES: u64 = 2;
/// Number of tasks that the client desires between a task and the resolution of that task, if the task is
/// resolved.
const RESOLVE_DELAY: u64 = 8;

/// Kind of a client.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Scales,
    Updates,
    Crashes,
    Tasks,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Scales, Self::Updates, Self::Crashes, Self::Tasks];

    /// Returns the name of the client, and the pause between its commands.
    const fn row(self) -> (&'static str, Duration) {
        match self {
            Self::Scales => ("scales", Duration::from_millis(300)),
            Self::Updates => ("updates", Duration::from_millis(1_500)),
            Self::Crashes => ("crashes", Duration::from_millis(1_000)),
            Self::Tasks => ("tasks", Duration::from_millis(250)),
        }
    }
}

/// Clients that send commands continuously. Dropping this value stops the clients.
#[derive(Debug)]
pub struct Load {
    gate: Arc<RwLock<()>>,
    clients: JoinSet<Result<()>>,
}

impl Load {
    /// Starts all clients. Tasks write to files in `folder`.
    ///
    /// # Errors
    /// Returns an error if the cluster does not answer.
    pub async fn start(url: &str, folder: &Path, ledger: &Arc<Ledger>) -> Result<Self> {
        let steady = RecordingClient::connect(url, "steady", ledger).await?;
        // Instances that are not desired are stopped only while the domain is fresh.
        let fresh = steady.send("domain refresh", async |client| client.refresh_domain(None).await).await;
        fresh.map_err(Failed::context("domain refresh"))?;
        for (name, instances) in
            [("steady-a", STEADY_INSTANCES), ("steady-b", STEADY_INSTANCES), ("scaled", 1), ("updated", 2)]
        {
            steady.desire(work::sleeper(name, instances, 0)?).await?;
        }
        let gate = Arc::new(RwLock::new(()));
        let mut clients = JoinSet::new();
        for kind in Kind::ALL {
            let asker = RecordingClient::connect(url, kind.row().0, ledger).await?;
            clients.spawn(run_client(kind, asker, folder.to_owned(), Arc::clone(&gate)));
        }
        Ok(Self { gate, clients })
    }

    /// Waits until every client has its answer. No client sends another command while the returned guard is
    /// held.
    pub async fn pause(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.gate).write_owned().await
    }

    /// Checks that no client has given up.
    ///
    /// # Errors
    /// Returns the reason if a client has given up.
    pub fn check_running(&mut self) -> Result<()> {
        match self.clients.try_join_next() {
            None => Ok(()),
            Some(Ok(Ok(()))) => Err(Failed::new("a client has stopped")),
            Some(Ok(Err(why))) => Err(Failed(format!("a client gave up: {why}"))),
            Some(Err(error)) => Err(Failed(format!("a client gave up: {error}"))),
        }
    }
}

/// Runs one client, with one command after the other.
async fn run_client(
    kind: Kind,
    asker: RecordingClient,
    folder: PathBuf,
    gate: Arc<RwLock<()>>,
) -> Result<()> {
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

async fn scale(asker: &RecordingClient, number: u64) -> Result<()> {
    let instances = u32::try_from(1 + number % 4).map_err(Failed::context("instance count"))?;
    let update = DesiredLrpUpdate { instances: Some(instances), ..DesiredLrpUpdate::default() };
    let guid = work::process("scaled")?;
    let asked = asker.send("lrp scale scaled", async |client| client.update_lrp(guid, update).await).await;
    asked.map(drop).map_err(Failed::context("lrp scale scaled"))
}

async fn update(asker: &RecordingClient, number: u64) -> Result<()> {
    let lrp = work::sleeper("updated", 2, number)?;
    let asked = asker.send("lrp update updated", async |client| client.replace_lrp(lrp).await).await;
    asked.map(drop).map_err(Failed::context("lrp update updated"))
}

async fn crash(asker: &RecordingClient, number: u64) -> Result<()> {
    asker.desire(work::crasher(&format!("crashing-{number}"))?).await?;
    match number.checked_sub(CRASHING_PROCESSES) {
        None | Some(0) => Ok(()),
        Some(old) => asker.remove(work::process(&format!("crashing-{old}"))?).await.map(drop),
    }
}

async fn run_tasks(asker: &RecordingClient, folder: &Path, number: u64) -> Result<()> {
    let guid = work::task_guid(&format!("task-{number}"))?;
    let seconds = if number.is_multiple_of(3) { "0.5" } else { "0" };
    asker.run(work::task(&guid, folder, seconds)?).await?;
    if number.is_multiple_of(5) {
        let what = format!("task cancel {guid}");
        allow_refusal(asker.send(what, async |client| client.cancel_task(guid).await).await)?;
    }
    match number.checked_sub(RESOLVE_DELAY) {
        Some(old) if old.is_multiple_of(2) && old > 0 => {
            let guid = work::task_guid(&format!("task-{old}"))?;
            let what = format!("task resolve {guid}");
            allow_refusal(asker.send(what, async |client| client.resolve_task(guid).await).await)
        }
        Some(_) | None => Ok(()),
    }
}

/// Accepts the refusal of a command that is too late or too early.
fn allow_refusal(answer: std::result::Result<Ack, Error>) -> Result<()> {
    match answer {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.code(), Some(Code::InvalidStateTransition | Code::ResourceNotFound)) => {
            Ok(())
        }
        Err(error) => Err(Failed(error.to_string())),
    }
}
