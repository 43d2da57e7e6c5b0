//! A log that accepts no entries. The status, the probes, the refusals and the program's log report the
//! reason. The cluster recovers when the cause is gone.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::dev::{LocalCluster, sleeper};
use crate::support::cluster::Server;
use crate::support::test_dir::ensure;
use crate::support::{Cluster, CommandOutput, Muster, Service, TestDir, eventually};
use crate::watching::{http_get, metrics_address};

/// File system of a few MiB that is unmounted on drop.
struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    fn mount(path: PathBuf, size: &str) -> Self {
        fs::create_dir_all(&path).unwrap();
        let options = format!("size={size},mode=700");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&path).output();
        let fine = mounted.as_ref().is_ok_and(|output| output.status.success());
        assert!(fine, "can't mount a tmpfs: {mounted:?}; run these tests as root (unshare -rm is enough)");
        Self { path }
    }

    /// Writes until the file system is full.
    fn fill(&self) {
        let mut file = File::create(self.filler()).unwrap();
        for size in [4096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("--lazy").arg(&self.path).status().ok();
    }
}

/// Waits until `muster status` exits with this code and prints these words. Returns its output.
fn status(muster: &Muster, code: i32, words: &[&str]) -> CommandOutput {
    eventually(&format!("the status is {code} and shows {words:?}"), || {
        let said = muster.run(&["status"]);
        let shows = words.iter().all(|word| said.out.contains(word));
        ensure(said.code == code && shows, || format!("{said:?}")).map(|()| said)
    })
}

/// Waits until the readiness probe answers with this code and a body that contains `word`.
fn wait_for_probe(address: &str, code: u16, word: &str) {
    eventually(&format!("/readyz answers {code} with {word:?}"), || {
        let (status, body) = http_get(address, "/readyz")?;
        ensure(status == code && body.contains(word), || format!("{status} {body}"))
    });
}

/// Starts a BBS with metrics, an auctioneer and a cell. Returns the address of the metrics.
fn start_services(cluster: &mut Cluster) -> String {
    cluster.start_service_with("bbs-1", &["--metrics", "127.0.0.1:0"]);
    cluster.start_service("auctioneer-1");
    cluster.start_service("rep-c1");
    cluster.wait_until_ready(1);
    let at = metrics_address(&cluster.services["bbs-1"]);
    wait_for_probe(&at, 200, "true");
    status(&cluster.muster(), 0, &["HEALTHY"]);
    at
}

/// Checks that the program's log has one line for each change of state.
fn assert_logged_once(service: &Service) {
    for line in ["an append failed", "the log accepts no entries: ", "the log accepts entries again"] {
        assert_eq!(service.log().matches(line).count(), 1, "{line:?} in {}", service.log());
    }
}

fn desire(muster: &Muster, file: &Path) -> CommandOutput {
    muster.run(&["apply", file.to_str().unwrap(), "--timeout", "5s"])
}

#[test]
fn full_disk_of_the_server_is_unhealthy_until_it_has_room_and_is_restarted() {
    let place = TestDir::new();
    let disk = SmallDisk::mount(place.path().join("nats"), "12m");
    let server = Server::start(&place);
    let mut cluster = Cluster::on(place, server);
    cluster.found();
    let at = start_services(&mut cluster);
    let (muster, file) = (cluster.muster(), cluster.place.write_file("web.toml", sleeper("web", 1)));

    disk.fill();
    let said = desire(&muster, &file).expect_status(5);
    said.expect_output(&["the log has accepted no entries since", "no space left on device", "Unavailable"]);
    let shown =
        status(&muster, 12, &["UNHEALTHY: the log has accepted no entries since", "no space left on device"]);
    assert!(shown.out.starts_with("UNHEALTHY\n"), "{}", shown.out);
    wait_for_probe(&at, 503, "no space left on device");
    let found = muster.run(&["doctor", "--monitoring", &cluster.server.monitoring()]).expect_status(9);
    found.expect_output(&["write error", "restart it"]);
    // Without a monitoring address, the state that the BBS reports is sufficient.
    muster.exits(9, "doctor").expect_output(&["no space left on device", "restart the NATS server"]);

    disk.make_room();
    cluster.server.kill9();
    cluster.server.restart();
    status(&muster, 0, &["HEALTHY"]);
    wait_for_probe(&at, 200, "true");
    eventually("commands are carried out", || {
        let said = desire(&muster, &file);
        ensure(said.code == 0 || said.err.contains("ResourceExists"), || format!("{said:?}"))
    });
    muster.wait_until_running("web", 1);
    assert_logged_once(&cluster.services["bbs-1"]);
    // The folder can be removed only after it is unmounted.
    drop(disk);
}

#[test]
fn reached_server_limit_refuses_commands_and_stores_nothing() {
    let place = TestDir::new();
    let store = place.path().canonicalize().unwrap().join("nats/store");
    let limit = format!(
        "jetstream {{ store_dir: \"{}\", sync_interval: always, max_file_store: 2MB }}",
        store.display()
    );
    let server = Server::start_with(&place, &limit);
    let mut cluster = Cluster::on(place, server);
    cluster.found();
    let at = start_services(&mut cluster);
    let (muster, file) = (cluster.muster(), cluster.place.write_file("web.toml", sleeper("web", 1)));

    // Another stream uses the server's remaining storage.
    let mut plain = cluster.plain("other");
    let made = plain.request_json(
        "$JS.API.STREAM.CREATE.OTHER",
        &json!({"name": "OTHER", "subjects": ["other"], "storage": "file", "num_replicas": 1}),
    );
    assert!(made["error"].is_null(), "{made}");
    eventually("the server is full", || {
        let answer = plain.request("other", &[0; 60_000]).json();
        ensure(answer["error"]["err_code"] == 10_023, || answer.to_string())
    });

    let before = cluster.entries().len();
    desire(&muster, &file).expect_status(5).expect_output(&["insufficient resources", "nothing was stored"]);
    status(&muster, 12, &["UNHEALTHY: the log has accepted no entries since", "insufficient resources"]);
    wait_for_probe(&at, 503, "insufficient resources");
    assert_eq!(cluster.entries().len(), before, "no entry was stored");

    let deleted = plain.request_json("$JS.API.STREAM.DELETE.OTHER", &json!({}));
    assert!(deleted["error"].is_null(), "{deleted}");
    status(&muster, 0, &["HEALTHY"]);
    wait_for_probe(&at, 200, "true");
    muster.ok(&format!("apply {}", file.display()));
    assert_logged_once(&cluster.services["bbs-1"]);
}

#[test]
fn deleted_stream_is_detected_without_commands() {
    let mut cluster = Cluster::empty();
    let at = start_services(&mut cluster);
    let deleted = cluster.plain("cli").request_json("$JS.API.STREAM.DELETE.MUSTER", &json!({}));
    assert!(deleted["error"].is_null(), "{deleted}");
    status(
        &cluster.muster(),
        12,
        &["UNHEALTHY: the log has accepted no entries since", "the stream MUSTER does not exist"],
    );
    wait_for_probe(&at, 503, "the stream MUSTER does not exist");
    let file = cluster.place.write_file("web.toml", sleeper("web", 1));
    desire(&cluster.muster(), &file).expect_status(5).expect_output(&["the stream MUSTER does not exist"]);
}

#[test]
fn full_disk_of_a_local_cluster_is_unhealthy_until_it_has_room() {
    let place = TestDir::new();
    let disk = SmallDisk::mount(place.path().join("data"), "16m");
    let file = place.write_file("web.toml", sleeper("web", 1));
    let dev = LocalCluster::start(&place, &[file.to_str().unwrap()]);
    dev.muster.wait_until_running("web", 1);
    status(&dev.muster, 0, &["HEALTHY"]);

    disk.fill();
    let refused = dev.muster.run(&["lrp", "scale", "web=3", "--timeout", "3s"]).expect_status(5);
    refused.expect_output(&["database or disk is full", "nothing was stored"]);
    status(
        &dev.muster,
        12,
        &["UNHEALTHY: the log has accepted no entries since", "database or disk is full"],
    );
    let found = dev.muster.run(&["doctor"]).expect_status(9);
    found.expect_output(&["appends", "database or disk is full", "storage"]);

    disk.make_room();
    status(&dev.muster, 0, &["HEALTHY"]);
    dev.muster.ok("lrp scale web=2");
    dev.muster.wait_until_running("web", 2);
    assert_logged_once(&dev.service);
    dev.end(&place);
    drop(disk);
}
