//! Injection of faults. Each injection returns after the fault is undone.

use std::fs;
use std::time::Duration;

use async_nats::jetstream::stream::Config;
use rustix::process::Signal;
use schemas::cluster::Role;
use schemas::subject::STREAM;
use support::containers;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep_until};

use crate::check::shim_container;
use crate::cluster::{AUCTIONEERS, Cluster, READY_TIMEOUT};
use crate::error::{Failed, Result, ensure, poll_until};
use crate::fault::Fault;
use crate::ledger::Ledger;
use crate::program::Binary;
use crate::proxy::NetworkState;
use crate::recording_client::RecordingClient;
use crate::work;

/// Duration of a pause or a cut network. It exceeds the tolerated silence of a service.
const PAUSE_DURATION: Duration = Duration::from_secs(40);
/// Duration of the loss of nodes.
const LOSS_DURATION: Duration = Duration::from_secs(20);
/// Time without an acknowledged command that shows the effect of a full disk.
const FULL_DISK_QUIET: Duration = Duration::from_secs(10);
/// Seconds by which a clock is set ahead.
const HOUR: i64 = 3_600;
/// Number of entries by which the paused standbys fall behind.
const LAG_ENTRIES: u64 = 1_000;
/// Number of concurrent commands that write these entries.
const CONCURRENCY: usize = 16;
/// Timeout until the port and the memory of a killed server are free.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);

/// Injector of faults into a cluster.
pub struct Injector<'a> {
    pub cluster: &'a mut Cluster,
    /// Client that queries the cluster, for example for its leaders.
    pub asker: &'a RecordingClient,
    /// Record of the clients' commands.
    pub ledger: &'a Ledger,
    /// Random number generator.
    pub rng: &'a mut fastrand::Rng,
    /// Earlier build of the program, for an upgrade.
    pub earlier: Option<&'a Binary>,
}

impl Injector<'_> {
    /// Injects a fault and undoes it.
    ///
    /// # Errors
    /// Returns an error if the fault can't be injected or undone.
    pub async fn inject(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::KillBbsLeader => self.kill_one(Role::Bbs, true).await,
            Fault::KillBbsStandby => self.kill_one(Role::Bbs, false).await,
            Fault::KillAuctioneerLeader => self.kill_one(Role::Auctioneer, true).await,
            Fault::KillAuctioneerStandby => self.kill_one(Role::Auctioneer, false).await,
            Fault::KillRep => {
                let rep = self.any_rep();
                self.kill(&rep).await
            }
            Fault::KillProjector => self.kill("projector-1").await,
            Fault::KillShim => self.kill_shim().await,
            Fault::KillNats => self.lose_nodes(1, fault, Duration::ZERO).await,
            Fault::KillPostgres => self.kill_postgres().await,
            Fault::PauseBbsLeader => self.pause_leader(Role::Bbs, fault).await,
            Fault::PauseAuctioneerLeader => self.pause_leader(Role::Auctioneer, fault).await,
            Fault::PauseRep => {
                let rep = self.any_rep();
                self.pause(&[&rep], fault, PAUSE_DURATION).await
            }
            Fault::CutRep => self.cut_network(NetworkState::Silent, fault).await,
            Fault::TearRep => self.cut_network(NetworkState::Refusing, fault).await,
            Fault::StopBbsLeader => self.stop_leader(Role::Bbs).await,
            Fault::StopAuctioneerLeader => self.stop_leader(Role::Auctioneer).await,
            Fault::PauseAuctioneers => self.pause(&AUCTIONEERS, fault, Duration::ZERO).await,
            Fault::ShiftClock => self.shift_clock(fault).await,
            Fault::BreakCell => self.break_cell(fault).await,
            Fault::FillLog => self.fill_log(fault).await,
            Fault::FillDisk => self.fill_disk(fault).await,
            Fault::CutPower => self.cut_power(self.cluster.shape().nodes).await,
            Fault::CutPowerOfOne => self.cut_power(1).await,
            Fault::HalfBehind => self.half_behind().await,
            Fault::StartAtOnce => self.start_at_once().await,
            Fault::RestartOneByOne => self.restart_one_by_one(None).await,
            Fault::UpgradeOneByOne => {
                let missing = "no earlier build: set one with --earlier FILE";
                let earlier = self.earlier.ok_or_else(|| Failed::new(missing))?.clone();
                self.restart_one_by_one(Some(&earlier)).await?;
                self.restart_one_by_one(None).await
            }
            Fault::LoseOneNode => self.lose_nodes(1, fault, LOSS_DURATION).await,
            Fault::LoseTwoNodes => self.lose_nodes(2, fault, LOSS_DURATION).await,
        }
    }

    async fn kill(&mut self, name: &str) -> Result<()> {
        self.cluster.kill9(name).await?;
        self.cluster.start(name)
    }

    async fn kill_one(&mut self, role: Role, leads: bool) -> Result<()> {
        let name = self.cluster.find(self.asker, role, leads).await?;
        self.kill(&name).await
    }

    fn any_rep(&mut self) -> String {
        format!("rep-c{}", self.rng.usize(1..=self.cluster.shape().cells))
    }

    /// Kills the shim of a container that runs all the time, and waits until the container has ended.
    async fn kill_shim(&mut self) -> Result<()> {
        let folder = self.cluster.folder().to_owned();
        let running = containers::running_in(&folder);
        let guids: Vec<_> = running
            .into_iter()
            .filter(|(work, _)| work.starts_with("steady"))
            .flat_map(|(_, guids)| guids.into_keys())
            .collect();
        let guid = self.rng.choice(&guids).ok_or_else(|| Failed::new("no container of the load runs"))?;
        let living = containers::processes_in(&folder);
        let shim = living.iter().find(|one| shim_container(&one.line).as_ref() == Some(guid));
        let shim = shim.ok_or_else(|| Failed(format!("container {guid} has no shim")))?;
        containers::signal(shim.pid, Signal::KILL);
        poll_until(RELEASE_TIMEOUT, "the container of a killed shim ends", async || {
            let running = containers::running_in(&folder);
            let there = running.values().any(|guids| guids.contains_key(guid));
            ensure(!there, || format!("{guid} still runs"))
        })
        .await
    }

    async fn kill_postgres(&mut self) -> Result<()> {
        block_in_place(|| self.cluster.postgres().kill9());
        // The other processes of PostgreSQL notice the loss with a delay.
        poll_until(RELEASE_TIMEOUT, "PostgreSQL starts again", async || {
            block_in_place(|| self.cluster.postgres().restart()).map_err(|error| Failed(error.to_string()))
        })
        .await
    }

    /// Waits for at least `time`, and until the status shows the finding that the fault causes.
    async fn hold(&self, fault: Fault, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        self.cluster.wait_for_finding(self.asker, fault, true).await?;
        sleep_until(end).await;
        Ok(())
    }

    /// Stops a leader as its supervisor would, and starts the leader again.
    async fn stop_leader(&mut self, role: Role) -> Result<()> {
        let name = self.cluster.find(self.asker, role, true).await?;
        self.cluster.stop(&name).await?;
        self.cluster.start(&name)
    }

    async fn pause_leader(&mut self, role: Role, fault: Fault) -> Result<()> {
        let name = self.cluster.find(self.asker, role, true).await?;
        self.pause(&[&name], fault, PAUSE_DURATION).await
    }

    async fn pause(&mut self, names: &[&str], fault: Fault, time: Duration) -> Result<()> {
        names.iter().try_for_each(|name| self.cluster.signal(name, Signal::STOP))?;
        let held = self.hold(fault, time).await;
        names.iter().try_for_each(|name| self.cluster.signal(name, Signal::CONT))?;
        held
    }

    async fn cut_network(&mut self, network: NetworkState, fault: Fault) -> Result<()> {
        let rep = self.any_rep();
        self.cluster.network(&rep)?.set(network);
        let held = self.hold(fault, PAUSE_DURATION).await;
        self.cluster.network(&rep)?.set(NetworkState::Whole);
        held
    }

    /// Sets the clock of the leading BBS an hour ahead, waits until another BBS leads, and corrects the
    /// clock.
    async fn shift_clock(&mut self, fault: Fault) -> Result<()> {
        let leader = self.cluster.find(self.asker, Role::Bbs, true).await?;
        self.cluster.clock(&leader)?.set(HOUR).map_err(Failed::context("the clock"))?;
        poll_until(READY_TIMEOUT, "another BBS leads", async || {
            let leads = self.cluster.find(self.asker, Role::Bbs, true).await?;
            ensure(leads != leader, || format!("{leads} leads"))
        })
        .await?;
        self.hold(fault, Duration::ZERO).await?;
        self.cluster.clock(&leader)?.set(0).map_err(Failed::context("the clock"))
    }

    /// Moves the folder of a cell's containers away until the status shows that the cell is unhealthy.
    async fn break_cell(&mut self, fault: Fault) -> Result<()> {
        let rep = self.any_rep();
        let data = self.cluster.folder().join(rep);
        let (folder, away) = (data.join("containers"), data.join("away"));
        fs::rename(&folder, &away).map_err(Failed::context(folder.display()))?;
        let held = self.hold(fault, Duration::ZERO).await;
        fs::rename(&away, &folder).map_err(Failed::context(away.display()))?;
        held
    }

    /// Limits the stream of the log to its present size until the status shows the failing appends.
    async fn fill_log(&mut self, fault: Fault) -> Result<()> {
        self.limit_log(true).await?;
        let held = self.hold(fault, Duration::ZERO).await;
        self.limit_log(false).await?;
        held
    }

    async fn limit_log(&self, full: bool) -> Result<()> {
        let client = async_nats::connect(self.cluster.url()).await.map_err(Failed::context("nats"))?;
        let context = async_nats::jetstream::new(client);
        let stream = context.get_stream(STREAM).await.map_err(Failed::context(STREAM))?;
        let info = stream.get_info().await.map_err(Failed::context(STREAM))?;
        let size = i64::try_from(info.state.bytes).map_err(Failed::context(STREAM))?;
        let config = Config { max_bytes: if full { size } else { -1 }, ..info.config };
        context.update_stream(config).await.map(drop).map_err(Failed::context(STREAM))
    }

    /// Fills the disk of the first node, and waits until no command is acknowledged.
    async fn fill_disk(&mut self, fault: Fault) -> Result<()> {
        let mut answered = self.ledger.acknowledged();
        let mut quiet = Instant::now();
        poll_until(READY_TIMEOUT, "a full disk blocks every command", async || {
            // Space that the server frees in between is filled as well.
            block_in_place(|| self.cluster.disk(0)?.fill())?;
            let now = self.ledger.acknowledged();
            if now > answered {
                (answered, quiet) = (now, Instant::now());
            }
            ensure(quiet.elapsed() >= FULL_DISK_QUIET, || format!("{now} commands were acknowledged"))
        })
        .await?;
        let held = self.hold(fault, Duration::ZERO).await;
        self.cluster.disk(0)?.free()?;
        held?;
        // A server whose disk was full has given up its streams until it is restarted.
        self.lose_nodes(1, Fault::KillNats, Duration::ZERO).await
    }

    /// Cuts the power of the first `nodes` nodes. Data that was not synced is lost.
    async fn cut_power(&mut self, nodes: usize) -> Result<()> {
        for node in 0..nodes {
            self.cluster.disk(node)?.cut_power().await?;
        }
        for node in 0..nodes {
            self.cluster.server(node)?.kill9().await.map_err(Failed::context("nats-server"))?;
            self.cluster.disk(node)?.power_up().await?;
        }
        self.restart_nodes(nodes).await
    }

    /// Kills the first `nodes` servers, and restarts them after `time`.
    async fn lose_nodes(&mut self, nodes: usize, fault: Fault, time: Duration) -> Result<()> {
        for node in 0..nodes {
            self.cluster.server(node)?.kill9().await.map_err(Failed::context("nats-server"))?;
        }
        self.hold(fault, time).await?;
        self.restart_nodes(nodes).await
    }

    /// Restarts servers concurrently, because a server of a group does not become healthy alone.
    async fn restart_nodes(&mut self, nodes: usize) -> Result<()> {
        self.cluster.restart_servers(nodes).await
    }

    /// Pauses the standbys until the log is longer by [`LAG_ENTRIES`] entries, and then kills the leaders.
    async fn half_behind(&mut self) -> Result<()> {
        let mut stopped = vec![];
        let mut leaders = vec![];
        for role in [Role::Bbs, Role::Auctioneer] {
            stopped.push(self.cluster.find(self.asker, role, false).await?);
            leaders.push(self.cluster.find(self.asker, role, true).await?);
        }
        stopped.iter().try_for_each(|name| self.cluster.signal(name, Signal::STOP))?;
        let written = self.write_entries(LAG_ENTRIES).await;
        stopped.iter().try_for_each(|name| self.cluster.signal(name, Signal::CONT))?;
        written?;
        for name in &leaders {
            self.kill(name).await?;
        }
        Ok(())
    }

    /// Writes this number of entries by changing the annotation of a process repeatedly.
    async fn write_entries(&mut self, entries: u64) -> Result<()> {
        let guid = work::process("steady-a")?;
        for _ in 0..entries.div_ceil(CONCURRENCY as u64) {
            let one = async || {
                let update = schemas::definition::DesiredLrpUpdate {
                    annotation: Some(self.ledger.len().to_string()),
                    ..Default::default()
                };
                let guid = guid.clone();
                let asked =
                    self.asker.send("lrp annotate", async |client| client.update_lrp(guid, update).await);
                asked.await.map(drop).map_err(Failed::context("lrp annotate"))
            };
            for asked in futures::future::join_all((0..CONCURRENCY).map(|_| one())).await {
                asked?;
            }
        }
        Ok(())
    }

    async fn start_at_once(&mut self) -> Result<()> {
        for name in self.cluster.names() {
            self.cluster.kill9(&name).await?;
        }
        self.cluster.delete_caches()?;
        self.cluster.start_all()
    }

    /// Stops and restarts every service, one by one. Each service serves again before the next one stops.
    /// `binary` selects another build.
    async fn restart_one_by_one(&mut self, binary: Option<&Binary>) -> Result<()> {
        for name in self.cluster.names() {
            self.cluster.stop(&name).await?;
            self.cluster.select_binary(&name, binary.cloned());
            self.cluster.start(&name)?;
            self.cluster.wait_until_complete(self.asker).await?;
        }
        Ok(())
    }
}
