//! The guide to restoring a log (docs/guides/back-up-and-restore.md), executed on real processes.

use std::time::Duration;

use crate::dev::sleeper;
use crate::status::service_row;
use crate::support::test_dir::{ensure, wait_within};
use crate::support::{Cluster, Service, eventually};

const DECIDERS: [&str; 3] = ["bbs-1", "bbs-2", "auctioneer-1"];
/// Maximum time until a rep is certain that the log was replaced.
const CONFLICT_TIMEOUT: Duration = Duration::from_secs(90);

struct RestoreTest {
    cluster: Cluster,
    export: String,
    tables: String,
}

impl RestoreTest {
    /// Starts a cluster and exports its log. Then adds two elections and the process `lost`.
    fn start() -> Self {
        let cluster = Cluster::start(&["bbs-1", "bbs-2", "auctioneer-1", "rep-c1"]);
        let export = cluster.place.path().join("log.jsonl").display().to_string();
        let tables = format!("sqlite:{}", cluster.place.path().join("tables.db").display());
        let mut this = Self { cluster, export, tables };
        this.start_projector();
        this.desire("kept");
        this.cluster.wait_until_settled(&[("kept", 1)]);
        this.cluster.muster().ok(&format!("export {}", this.export));
        for _ in 0..2 {
            let leader = this.cluster.leader("bbs");
            this.cluster.kill9(&leader);
            this.cluster.muster().ok("domain refresh shop --timeout 60s");
            this.cluster.start_service(&leader);
            // Before its log is lost, a BBS must have read that log. Otherwise the BBS would not detect that
            // another log replaced it.
            eventually(&format!("{leader} follows the log"), || {
                service_row(&this.cluster, &leader).map(drop)
            });
        }
        this.desire("lost");
        this.cluster.wait_until_settled(&[("kept", 1), ("lost", 1)]);
        this
    }

    fn desire(&self, guid: &str) {
        let file = self.cluster.place.write_file(&format!("{guid}.toml"), sleeper(guid, 1));
        self.cluster.muster().ok(&format!("apply {} --detach", file.display()));
    }

    fn start_projector(&mut self) {
        let log = self.cluster.place.path().join("projector.log");
        let args = ["projector", "--database", &self.tables];
        let url = self.cluster.server.url();
        let service = Service::start("projector", &log, &args, &[("MUSTER_NATS_URL", &url)]);
        self.cluster.services.insert("projector".to_owned(), service);
    }

    /// Imports the export, as the guide describes.
    fn import(&self) {
        self.cluster
            .muster()
            .ok(&format!("import {}", self.export))
            .expect_output(&["verified against the file"]);
    }

    /// Removes the tables, which belong to the lost log, and creates them again.
    fn rebuild_tables(&mut self) {
        let file = self.cluster.place.path().join("tables.db");
        for ending in ["", "-wal", "-shm"] {
            std::fs::remove_file(format!("{}{ending}", file.display())).ok();
        }
        self.start_projector();
    }

    /// Checks that the cluster has the state of the restored log and accepts new work.
    fn assert_restored(&self) {
        self.desire("new");
        let muster = self.cluster.muster();
        // A container that the restored log does not contain keeps running, because missing data never stops
        // a container.
        ["kept", "new"].iter().for_each(|guid| drop(muster.wait_until_running(guid, 1)));
        for _ in 0..6 {
            let rows = muster.json("lrp list");
            let desired = rows.as_array().unwrap().iter().filter(|row| row["desired"] == true);
            let guids: Vec<&str> = desired.filter_map(|row| row["process_guid"].as_str()).collect();
            assert_eq!(guids, ["kept", "new"], "{rows}");
        }
        eventually("the tables equal the log", || {
            let said = muster.run(&["projection", "verify", "--database", &self.tables]);
            ensure(said.code == 0, || format!("{said:?}"))
        });
    }
}

#[test]
fn log_is_restored_while_all_services_run() {
    let mut restored = RestoreTest::start();
    restored.cluster.lose_log();
    restored.import();
    // Each service detects the new log, logs the reason and exits. Its supervisor starts it again.
    for name in [&DECIDERS[..], &["projector"]].concat() {
        let mut service = restored.cluster.services.remove(name).unwrap();
        service.wait_for_log("was created again");
        assert_eq!(service.wait().code(), Some(1), "{name}");
    }
    DECIDERS.iter().for_each(|name| restored.cluster.start_service(name));
    restored.rebuild_tables();
    // The rep has followed a leader of a later term than the restored log contains.
    let muster = restored.cluster.muster();
    wait_within(CONFLICT_TIMEOUT, "the rep reports the conflict", || {
        let said = restored.cluster.services["rep-c1"].log();
        ensure(said.contains("accepts no leader"), || said)
    });
    eventually("the status shows the conflict", || {
        let said = muster.run(&["status"]);
        ensure(said.out.contains("cell c1 is UNHEALTHY"), || format!("{said:?}"))
    });
    muster.ok("events list --about cell:c1").expect_output(&["muster cell accept-log c1"]);
    muster.ok("cell accept-log c1").expect_output(&["continues with the log"]);
    restored.cluster.wait_until_ready(1);
    restored.assert_restored();
    let said = restored.cluster.services["rep-c1"].log();
    assert_eq!(said.matches("accepts no leader").count(), 1, "logged once: {said}");
}

#[test]
fn log_is_restored_while_all_services_are_stopped() {
    let mut restored = RestoreTest::start();
    for name in [&DECIDERS[..], &["projector", "rep-c1"]].concat() {
        restored.cluster.services.remove(name).unwrap().interrupt();
    }
    restored.cluster.lose_log();
    restored.import();
    [&DECIDERS[..], &["rep-c1"]].concat().iter().for_each(|name| restored.cluster.start_service(name));
    restored.rebuild_tables();
    restored.cluster.wait_until_ready(1);
    restored.assert_restored();
}
