//! Real processes under load, each killed in its turn: nothing that was acknowledged is lost, nothing runs twice, and
//! everything is well again. The long version is `cargo run --release -p faults`; what is printed is seen with
//! `cargo test -p muster --test faults -- --nocapture`.

use std::sync::Arc;

use faults::asker::Asker;
use faults::cluster::{Cluster, Shape};
use faults::failed::Failed;
use faults::fault::Fault;
use faults::program::Binary;
use faults::report::Report;
use faults::run::Run;

/// What happens, in this order.
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
async fn whatever_is_killed_nothing_is_lost() -> Result<(), Failed> {
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
            Err(why) => panic!("{fault}: {why}; what the services said is in {}", run.keep()),
        }
    }
    assert!(report.is_right(), "{report}\nwhat the services said is in {}", run.keep());
    println!("{report}");
    run.close().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_starts_before_the_servers_have_found_each_other_waits() -> Result<(), Failed> {
    let binary = Binary::new(env!("CARGO_BIN_EXE_muster"))?;
    let shape = Shape { nodes: 3, cells: 1, disks: false, past: 0 };
    let mut cluster = Cluster::servers(binary, shape).await?;
    // One of three answers nothing about a stream, for nobody leads there.
    for node in 0..2 {
        cluster.server(node)?.kill9().await.map_err(Failed::at("nats-server"))?;
    }
    cluster.start_all()?;
    for name in ["bbs-1", "bbs-2", "auctioneer-1", "auctioneer-2", "projector-1"] {
        cluster.says(name, "the journal cannot be read").await?;
    }
    cluster.restart_servers(2).await?;
    let asker = Asker::connect(&cluster.url(), "operator", &Arc::default()).await?;
    cluster.serves(&asker).await?;
    cluster.close().await
}
