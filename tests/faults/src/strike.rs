//! Faults as they are done: each returns when it is undone.

use std::fs;
use std::time::Duration;

use async_nats::jetstream::stream::Config;
use rustix::process::Signal;
use schemas::cluster::Role;
use schemas::subject::STREAM;
use support::containers;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep_until};

use crate::asker::Asker;
use crate::check::shim_of;
use crate::cluster::{AUCTIONEERS, Cluster, READY};
use crate::failed::{Failed, Result, so, until};
use crate::fault::Fault;
use crate::ledger::Ledger;
use crate::program::Binary;
use crate::proxy::Network;
use crate::work;

/// How long something is stopped or cut off: longer than silence is borne.
const HELD: Duration = Duration::from_secs(40);
/// How long nodes are lost.
const LOST: Duration = Duration::from_secs(20);
/// How long nobody must be answered before a full disk has made itself felt.
const FELT: Duration = Duration::from_secs(10);
/// Seconds by which a clock is set ahead.
const HOUR: i64 = 3_600;
/// How many entries those who are stopped have to catch up with.
const BEHIND: u64 = 1_000;
/// How many of them are asked for at once.
const AT_ONCE: usize = 16;
/// How long a server that was killed may take until its port and memory are free.
const FREED: Duration = Duration::from_secs(60);

/// What strikes, and at what.
pub struct Striker<'a> {
    /// The cluster.
    pub cluster: &'a mut Cluster,
    /// Who asks meanwhile who leads.
    pub asker: &'a Asker,
    /// What clients were answered.
    pub ledger: &'a Ledger,
    /// What is drawn by chance.
    pub chance: &'a mut fastrand::Rng,
    /// An earlier build of the program.
    pub earlier: Option<&'a Binary>,
}

impl Striker<'_> {
    /// Does a fault, and undoes it.
    ///
    /// # Errors
    /// It can't be done or undone.
    pub async fn strike(&mut self, fault: Fault) -> Result<()> {
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
                self.pause(&[&rep], fault, HELD).await
            }
            Fault::CutRep => self.cut(Network::Silent, fault).await,
            Fault::TearRep => self.cut(Network::Refusing, fault).await,
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
            Fault::RestartOneByOne => self.one_by_one(None).await,
            Fault::UpgradeOneByOne => {
                let missing = "there is no earlier build: name one with --earlier";
                let earlier = self.earlier.ok_or_else(|| Failed::new(missing))?.clone();
                self.one_by_one(Some(&earlier)).await?;
                self.one_by_one(None).await
            }
            Fault::LoseOneNode => self.lose_nodes(1, fault, LOST).await,
            Fault::LoseTwoNodes => self.lose_nodes(2, fault, LOST).await,
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
        format!("rep-c{}", self.chance.usize(1..=self.cluster.shape().cells))
    }

    /// Kills the shim of a container that runs all the time.
    async fn kill_shim(&mut self) -> Result<()> {
        let folder = self.cluster.folder().to_owned();
        let running = containers::running_in(&folder);
        let guids: Vec<_> = running
            .into_iter()
            .filter(|(work, _)| work.starts_with("steady"))
            .flat_map(|(_, guids)| guids.into_keys())
            .collect();
        let guid = self.chance.choice(&guids).ok_or_else(|| Failed::new("no container runs"))?;
        let living = containers::living_in(&folder);
        let shim = living.iter().find(|one| shim_of(&one.line).as_ref() == Some(guid));
        let shim = shim.ok_or_else(|| Failed(format!("the container {guid} has no shim")))?;
        containers::signal(shim.pid, Signal::KILL);
        until(FREED, "its container ends with a shim", async || {
            let running = containers::running_in(&folder);
            let there = running.values().any(|guids| guids.contains_key(guid));
            so(!there, || format!("{guid} still runs"))
        })
        .await
    }

    async fn kill_postgres(&mut self) -> Result<()> {
        block_in_place(|| self.cluster.postgres().kill9());
        // Its other processes take a moment to notice.
        until(FREED, "PostgreSQL starts again", async || {
            block_in_place(|| self.cluster.postgres().restart()).map_err(|error| Failed(error.to_string()))
        })
        .await
    }

    /// Waits for `time`, and until the status shows what it must show during a fault.
    async fn hold(&self, fault: Fault, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        self.cluster.shows(self.asker, fault, true).await?;
        sleep_until(end).await;
        Ok(())
    }

    /// Stops a leader as its supervisor does, and starts it again.
    async fn stop_leader(&mut self, role: Role) -> Result<()> {
        let name = self.cluster.find(self.asker, role, true).await?;
        self.cluster.stop(&name).await?;
        self.cluster.start(&name)
    }

    async fn pause_leader(&mut self, role: Role, fault: Fault) -> Result<()> {
        let name = self.cluster.find(self.asker, role, true).await?;
        self.pause(&[&name], fault, HELD).await
    }

    async fn pause(&mut self, names: &[&str], fault: Fault, time: Duration) -> Result<()> {
        names.iter().try_for_each(|name| self.cluster.signal(name, Signal::STOP))?;
        let held = self.hold(fault, time).await;
        names.iter().try_for_each(|name| self.cluster.signal(name, Signal::CONT))?;
        held
    }

    async fn cut(&mut self, network: Network, fault: Fault) -> Result<()> {
        let rep = self.any_rep();
        self.cluster.network(&rep)?.set(network);
        let held = self.hold(fault, HELD).await;
        self.cluster.network(&rep)?.set(Network::Whole);
        held
    }

    /// Sets the clock of the leading BBS an hour ahead, waits until another one leads, and sets it right.
    async fn shift_clock(&mut self, fault: Fault) -> Result<()> {
        let leader = self.cluster.find(self.asker, Role::Bbs, true).await?;
        self.cluster.clock(&leader)?.set(HOUR).map_err(Failed::at("the clock"))?;
        until(READY, "another BBS leads", async || {
            let leads = self.cluster.find(self.asker, Role::Bbs, true).await?;
            so(leads != leader, || format!("{leads} leads"))
        })
        .await?;
        self.hold(fault, Duration::ZERO).await?;
        self.cluster.clock(&leader)?.set(0).map_err(Failed::at("the clock"))
    }

    /// Moves the folder of a cell's containers away until the status shows that the cell is unhealthy.
    async fn break_cell(&mut self, fault: Fault) -> Result<()> {
        let rep = self.any_rep();
        let data = self.cluster.folder().join(rep);
        let (folder, away) = (data.join("containers"), data.join("away"));
        fs::rename(&folder, &away).map_err(Failed::at(folder.display()))?;
        let held = self.hold(fault, Duration::ZERO).await;
        fs::rename(&away, &folder).map_err(Failed::at(away.display()))?;
        held
    }

    /// Limits the stream of the log to its present size until the status shows that the log takes no entries.
    async fn fill_log(&mut self, fault: Fault) -> Result<()> {
        self.limit_log(true).await?;
        let held = self.hold(fault, Duration::ZERO).await;
        self.limit_log(false).await?;
        held
    }

    async fn limit_log(&self, full: bool) -> Result<()> {
        let client = async_nats::connect(self.cluster.url()).await.map_err(Failed::at("nats"))?;
        let context = async_nats::jetstream::new(client);
        let stream = context.get_stream(STREAM).await.map_err(Failed::at(STREAM))?;
        let info = stream.get_info().await.map_err(Failed::at(STREAM))?;
        let size = i64::try_from(info.state.bytes).map_err(Failed::at(STREAM))?;
        let config = Config { max_bytes: if full { size } else { -1 }, ..info.config };
        context.update_stream(config).await.map(drop).map_err(Failed::at(STREAM))
    }

    /// Fills the disk of the first node, and waits until commands feel it.
    async fn fill_disk(&mut self, fault: Fault) -> Result<()> {
        let mut answered = self.ledger.acknowledged();
        let mut quiet = Instant::now();
        until(READY, "a full disk is felt", async || {
            // Whatever the server gives up meanwhile is taken, too.
            block_in_place(|| self.cluster.disk(0)?.fill())?;
            let now = self.ledger.acknowledged();
            if now > answered {
                (answered, quiet) = (now, Instant::now());
            }
            so(quiet.elapsed() >= FELT, || format!("{now} commands were acknowledged"))
        })
        .await?;
        let held = self.hold(fault, Duration::ZERO).await;
        self.cluster.disk(0)?.free()?;
        held?;
        // A server whose disk was full has given up its streams until it starts again.
        self.lose_nodes(1, Fault::KillNats, Duration::ZERO).await
    }

    /// Cuts the power of so many nodes, the first among them; what they hadn't synced is lost.
    async fn cut_power(&mut self, nodes: usize) -> Result<()> {
        for node in 0..nodes {
            self.cluster.disk(node)?.cut().await?;
        }
        for node in 0..nodes {
            self.cluster.server(node)?.kill9().await.map_err(Failed::at("nats-server"))?;
            self.cluster.disk(node)?.power_up().await?;
        }
        self.restart_nodes(nodes).await
    }

    /// Kills so many servers, and starts them again some time later.
    async fn lose_nodes(&mut self, nodes: usize, fault: Fault, time: Duration) -> Result<()> {
        for node in 0..nodes {
            self.cluster.server(node)?.kill9().await.map_err(Failed::at("nats-server"))?;
        }
        self.hold(fault, time).await?;
        self.restart_nodes(nodes).await
    }

    /// Starts servers again. One of several is well only when the others are there: they start side by side.
    async fn restart_nodes(&mut self, nodes: usize) -> Result<()> {
        self.cluster.restart_servers(nodes).await
    }

    /// Stops who stands by until the log is longer by [`BEHIND`] entries, and then kills who leads.
    async fn half_behind(&mut self) -> Result<()> {
        let mut stopped = vec![];
        let mut leaders = vec![];
        for role in [Role::Bbs, Role::Auctioneer] {
            stopped.push(self.cluster.find(self.asker, role, false).await?);
            leaders.push(self.cluster.find(self.asker, role, true).await?);
        }
        stopped.iter().try_for_each(|name| self.cluster.signal(name, Signal::STOP))?;
        let written = self.write(BEHIND).await;
        stopped.iter().try_for_each(|name| self.cluster.signal(name, Signal::CONT))?;
        written?;
        for name in &leaders {
            self.kill(name).await?;
        }
        Ok(())
    }

    /// Writes so many entries: a process is given another annotation again and again.
    async fn write(&mut self, entries: u64) -> Result<()> {
        let guid = work::process("steady-a")?;
        for _ in 0..entries.div_ceil(AT_ONCE as u64) {
            let one = async || {
                let update = schemas::definition::DesiredLrpUpdate {
                    annotation: Some(self.ledger.len().to_string()),
                    ..Default::default()
                };
                let guid = guid.clone();
                let asked =
                    self.asker.ask("lrp annotate", async |client| client.update_lrp(guid, update).await);
                asked.await.map(drop).map_err(Failed::at("lrp annotate"))
            };
            for asked in futures::future::join_all((0..AT_ONCE).map(|_| one())).await {
                asked?;
            }
        }
        Ok(())
    }

    async fn start_at_once(&mut self) -> Result<()> {
        for name in self.cluster.names() {
            self.cluster.kill9(&name).await?;
        }
        self.cluster.forget_caches()?;
        self.cluster.start_all()
    }

    /// Asks every service to end, one by one, and starts each again, perhaps as another build, before the next one ends.
    async fn one_by_one(&mut self, binary: Option<&Binary>) -> Result<()> {
        for name in self.cluster.names() {
            self.cluster.stop(&name).await?;
            self.cluster.run_with(&name, binary.cloned());
            self.cluster.start(&name)?;
            self.cluster.serves(self.asker).await?;
        }
        Ok(())
    }
}
