//! Runs: a cluster, its load, and one fault after the other.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::asker::Asker;
use crate::check::check;
use crate::cluster::{Cluster, READY, Shape};
use crate::failed::{Failed, Result, so, until};
use crate::fault::Fault;
use crate::ledger::{Ledger, Outcome, Record};
use crate::load::Load;
use crate::program::Binary;
use crate::report::Round;
use crate::service::full_service;
use crate::strike::Striker;

/// How many commands are acknowledged between two faults at the least.
const STEADY: usize = 20;
/// How long they may take.
const GOES_ON: Duration = Duration::from_secs(120);

/// A cluster under load, to which things happen.
pub struct Run {
    cluster: Cluster,
    load: Load,
    asker: Asker,
    ledger: Arc<Ledger>,
    chance: fastrand::Rng,
    earlier: Option<Binary>,
    /// What of the ledger, and how many failed tasks, belong to rounds that are over.
    told: (usize, usize),
    rounds: usize,
}

impl Run {
    /// Starts a cluster of a shape, with its load; an earlier build is there for an upgrade.
    ///
    /// # Errors
    /// It doesn't come to serve.
    pub async fn start(binary: Binary, earlier: Option<Binary>, shape: Shape, seed: u64) -> Result<Self> {
        let mut cluster = Cluster::servers(binary, shape).await?;
        cluster.start_all()?;
        match Self::over(&mut cluster).await {
            Ok((load, asker, ledger)) => {
                let chance = fastrand::Rng::with_seed(seed);
                Ok(Self { cluster, load, asker, ledger, chance, earlier, told: (0, 0), rounds: 0 })
            }
            Err(Failed(why)) => {
                Err(Failed(format!("{why}; what the services said is in {}", cluster.keep().display())))
            }
        }
    }

    async fn over(cluster: &mut Cluster) -> Result<(Load, Asker, Arc<Ledger>)> {
        let ledger = Arc::new(Ledger::default());
        let asker = Asker::connect(&cluster.url(), "operator", &ledger).await?;
        cluster.serves(&asker).await?;
        let load = Load::start(&cluster.url(), &cluster.folder().join("ran"), &ledger).await?;
        Ok((load, asker, ledger))
    }

    /// The faults that can happen to this cluster.
    #[must_use]
    pub fn possible(&self) -> Vec<Fault> {
        let (shape, earlier) = (self.cluster.shape(), self.earlier.is_some());
        Fault::ALL.into_iter().filter(|fault| fault.fits(shape, earlier)).collect()
    }

    /// Draws a fault out of some.
    ///
    /// # Errors
    /// There are none.
    pub fn draw(&mut self, of: &[Fault]) -> Result<Fault> {
        self.chance.choice(of).copied().ok_or_else(|| Failed::new("there is no fault to draw"))
    }

    /// Faults in an order that is drawn.
    #[must_use]
    pub fn shuffled(&mut self, of: &[Fault]) -> Vec<Fault> {
        let mut faults = of.to_vec();
        self.chance.shuffle(&mut faults);
        faults
    }

    /// Has something happen, and looks whether everything holds.
    ///
    /// # Errors
    /// It couldn't be done, undone or looked at. What is wrong is no error, but told.
    pub async fn round(&mut self, fault: Fault) -> Result<Round> {
        self.goes_on().await?;
        let mut chance = self.chance.fork();
        let began = Instant::now();
        let (asker, ledger) = (&self.asker, &*self.ledger);
        let earlier = self.earlier.as_ref();
        let mut striker = Striker { cluster: &mut self.cluster, asker, ledger, chance: &mut chance, earlier };
        striker.strike(fault).await?;
        let lasted = began.elapsed();
        self.rounds += 1;
        full_service(&mut self.cluster, &self.asker, self.rounds).await?;
        self.cluster.shows(&self.asker, fault, false).await?;
        let served = began.elapsed();
        self.goes_on().await?;
        let quiet = self.load.pause().await;
        let records = self.ledger.behind(0);
        let found = check(&mut self.cluster, &self.asker, &records).await?;
        drop(quiet);
        let (told, failed) = std::mem::replace(&mut self.told, (records.len(), found.failed_tasks.len()));
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
            longest_pause: records[told..].iter().map(Record::waited).max().unwrap_or_default(),
            entries: found.entries,
            wrong: found.wrong,
        })
    }

    /// Waits until the load has gone on for a while.
    async fn goes_on(&mut self) -> Result<()> {
        let before = self.ledger.acknowledged();
        let (load, ledger) = (&mut self.load, &self.ledger);
        until(GOES_ON, "the load goes on", async || {
            load.goes_on()?;
            let now = ledger.acknowledged();
            so(now >= before + STEADY, || format!("{} commands were acknowledged", now - before))
        })
        .await
    }

    /// Keeps the folder with everything that services said; answers where that is.
    #[must_use]
    pub fn keep(&mut self) -> String {
        self.cluster.keep().display().to_string()
    }

    /// Ends the load and the cluster.
    ///
    /// # Errors
    /// Something doesn't end.
    pub async fn close(self) -> Result<()> {
        drop(self.load);
        let closed = tokio::time::timeout(READY, self.cluster.close()).await;
        closed.map_err(|_| Failed(format!("the cluster isn't gone within {READY:?}")))?
    }
}
