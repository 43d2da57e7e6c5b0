//! Runs: a cluster, its load, and one fault after the other.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::check::check;
use crate::cluster::{Cluster, READY_TIMEOUT, Shape};
use crate::error::{Failed, Result, ensure, poll_until};
use crate::fault::Fault;
use crate::injector::Injector;
use crate::ledger::{Ledger, Outcome, Record};
use crate::load::Load;
use crate::program::Binary;
use crate::recording_client::RecordingClient;
use crate::report::Round;
use crate::service::wait_for_full_service;

/// Minimum number of commands that are acknowledged between two faults.
const MIN_ACKNOWLEDGED: usize = 20;
/// Timeout for these commands.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(120);

/// Cluster under load, into which faults are injected.
pub struct Run {
    cluster: Cluster,
    load: Load,
    asker: RecordingClient,
    ledger: Arc<Ledger>,
    rng: fastrand::Rng,
    earlier: Option<Binary>,
    /// Number of ledger records and number of failed tasks, both from finished rounds.
    reported: (usize, usize),
    rounds: usize,
}

impl Run {
    /// Starts a cluster of this shape with its load. `earlier` is the build for an upgrade.
    ///
    /// # Errors
    /// Returns an error if the cluster does not become complete.
    pub async fn start(binary: Binary, earlier: Option<Binary>, shape: Shape, seed: u64) -> Result<Self> {
        let mut cluster = Cluster::servers(binary, shape).await?;
        cluster.start_all()?;
        match Self::over(&mut cluster).await {
            Ok((load, asker, ledger)) => {
                let chance = fastrand::Rng::with_seed(seed);
                Ok(Self { cluster, load, asker, ledger, rng: chance, earlier, reported: (0, 0), rounds: 0 })
            }
            Err(Failed(why)) => Err(Failed(format!("{why}; service logs: {}", cluster.keep().display()))),
        }
    }

    async fn over(cluster: &mut Cluster) -> Result<(Load, RecordingClient, Arc<Ledger>)> {
        let ledger = Arc::new(Ledger::default());
        let asker = RecordingClient::connect(&cluster.url(), "operator", &ledger).await?;
        cluster.wait_until_complete(&asker).await?;
        let load = Load::start(&cluster.url(), &cluster.folder().join("ran"), &ledger).await?;
        Ok((load, asker, ledger))
    }

    /// Returns the faults that can be injected into this cluster.
    #[must_use]
    pub fn possible_faults(&self) -> Vec<Fault> {
        let (shape, earlier) = (self.cluster.shape(), self.earlier.is_some());
        Fault::ALL.into_iter().filter(|fault| fault.fits(shape, earlier)).collect()
    }

    /// Draws a random fault.
    ///
    /// # Errors
    /// Returns an error if `of` is empty.
    pub fn draw(&mut self, of: &[Fault]) -> Result<Fault> {
        self.rng.choice(of).copied().ok_or_else(|| Failed::new("no fault can be injected into this cluster"))
    }

    /// Returns the faults in random order.
    #[must_use]
    pub fn shuffled(&mut self, of: &[Fault]) -> Vec<Fault> {
        let mut faults = of.to_vec();
        self.rng.shuffle(&mut faults);
        faults
    }

    /// Injects a fault, undoes it, and checks all properties.
    ///
    /// # Errors
    /// Returns an error if the fault can't be injected or undone, or a property can't be checked. A violation
    /// is not an error, but part of the result.
    pub async fn round(&mut self, fault: Fault) -> Result<Round> {
        self.wait_for_progress().await?;
        let mut chance = self.rng.fork();
        let began = Instant::now();
        let (asker, ledger) = (&self.asker, &*self.ledger);
        let earlier = self.earlier.as_ref();
        let mut striker = Injector { cluster: &mut self.cluster, asker, ledger, rng: &mut chance, earlier };
        striker.inject(fault).await?;
        let lasted = began.elapsed();
        self.rounds += 1;
        wait_for_full_service(&mut self.cluster, &self.asker, self.rounds).await?;
        self.cluster.wait_for_finding(&self.asker, fault, false).await?;
        let served = began.elapsed();
        self.wait_for_progress().await?;
        let quiet = self.load.pause().await;
        let records = self.ledger.after(0);
        let found = check(&mut self.cluster, &self.asker, &records).await?;
        drop(quiet);
        let (told, failed) = std::mem::replace(&mut self.reported, (records.len(), found.failed_tasks.len()));
        let of = |is: fn(&Outcome) -> bool| records[told..].iter().filter(|one| is(&one.outcome)).count();
        Ok(Round {
            fault: fault.to_string(),
            nodes: self.cluster.shape().nodes,
            acknowledged: of(|outcome| matches!(outcome, Outcome::Acknowledged(_))),
            refused: of(|outcome| matches!(outcome, Outcome::Refused(_))),
            unanswered: of(|outcome| matches!(outcome, Outcome::Unknown(_))),
            lost: found.lost.len(),
            failed_tasks: found.failed_tasks.len().saturating_sub(failed),
            lasted,
            full_service: served,
            max_latency: records[told..].iter().map(Record::waited).max().unwrap_or_default(),
            entries: found.entries,
            wrong: found.violations,
        })
    }

    /// Waits until the load has made progress.
    async fn wait_for_progress(&mut self) -> Result<()> {
        let before = self.ledger.acknowledged();
        let (load, ledger) = (&mut self.load, &self.ledger);
        poll_until(PROGRESS_TIMEOUT, "the load makes progress", async || {
            load.check_running()?;
            let now = ledger.acknowledged();
            ensure(now >= before + MIN_ACKNOWLEDGED, || {
                format!("only {} commands were acknowledged", now - before)
            })
        })
        .await
    }

    /// Keeps the folder with the logs of all services. Returns its path.
    #[must_use]
    pub fn keep(&mut self) -> String {
        self.cluster.keep().display().to_string()
    }

    /// Ends the load and the cluster.
    ///
    /// # Errors
    /// Returns an error if a process does not end.
    pub async fn close(self) -> Result<()> {
        drop(self.load);
        let closed = tokio::time::timeout(READY_TIMEOUT, self.cluster.close()).await;
        closed.map_err(|_| Failed(format!("the cluster did not end within {READY_TIMEOUT:?}")))?
    }
}
