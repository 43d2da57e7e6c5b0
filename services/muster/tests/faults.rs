//! Kills real processes under load, one after the other. No acknowledged entry may be lost, no work may run
//! twice, and the cluster must become healthy again. The long version is `cargo run --release -p faults`.
//! `cargo test -p muster --test faults -- --nocapture` shows the output of the short version.

use std::sync::Arc;

use faults::cluster::{Cluster, Shape};
use faults::error::Failed;
use faults::fault::Fault;
use faults::program::Binary;
use faults::recording_client::RecordingClient;
use faults::report::Report;
use faults::run::Run;

/// Injected faults, in this order.
const FAULTS: [Fault; 11] = [
    Fault::KillBbsLeader,
    Fault::KillRep,
    Fault::KillAuctioneerLeader,
    Fault::KillNats,
    Fault::KillShim,
    Fault::KillProjector,
    Fault::KillPostgres,
    Fault::StopBbsLeader,
    Fault::PauseAuctioneers,
    Fault::ShiftClock,
    Fault::FillLog,
];
const SEED: u64 = 1;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_lose_no_acknowledged_entry() -> Result<(), Failed> {
    let binary = Binary::new(env!("CARGO_BIN_EXE_muster"))?;
    let shape = Shape { nodes: 1, cells: 3, disks: false, past: 0 };
    let mut run = Run::start(binary, None, shape, SEED).await?;
    let mut report = Report { seed: SEED, rounds: vec![] };
    for fault in FAULTS {
        match run.round(fault).await {
            Ok(round) => {
                println!("{round}");
                report.rounds.push(round);
            }
            Err(why) => panic!("{fault}: {why}; service logs: {}", run.keep()),
        }
    }
    assert!(report.has_no_violations(), "{report}\nservice logs: {}", run.keep());
    println!("{report}");
    run.close().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_started_before_server_quorum_wait_for_it() -> Result<(), Failed> {
    let binary = Binary::new(env!("CARGO_BIN_EXE_muster"))?;
    let shape = Shape { nodes: 3, cells: 1, disks: false, past: 0 };
    let mut cluster = Cluster::servers(binary, shape).await?;
    // One server of three can't answer requests about a stream, because the stream has no leader.
    for node in 0..2 {
        cluster.server(node)?.kill9().await.map_err(Failed::context("nats-server"))?;
    }
    cluster.start_all()?;
    for name in ["bbs-1", "bbs-2", "auctioneer-1", "auctioneer-2", "projector-1"] {
        cluster.wait_for_log(name, "the journal cannot be read").await?;
    }
    cluster.restart_servers(2).await?;
    let asker = RecordingClient::connect(&cluster.url(), "operator", &Arc::default()).await?;
    cluster.wait_until_complete(&asker).await?;
    cluster.close().await
}
