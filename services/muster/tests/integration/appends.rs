//! A log that takes no entries: the status, the probes, the refusals and the program's log name the reason, and everything goes on
//! when the reason is gone.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::dev::{Dev, sleeper};
use crate::support::cluster::Server;
use crate::support::place::so;
use crate::support::{Cluster, Muster, Place, Said, Service, eventually};
use crate::watching::{address, get};

/// A file system of a few MiB. Dropped, it is unmounted.
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
        assert!(
            fine,
            "a tmpfs must be mounted, so run these tests as root (unshare -rm is enough): {mounted:?}"
        );
        Self { path }
    }

    /// Writes until nothing more fits.
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

/// Waits until `muster status` exits so and shows these words; returns what it shows.
fn status(muster: &Muster, code: i32, words: &[&str]) -> Said {
    eventually(&format!("the status is {code} and shows {words:?}"), || {
        let said = muster.run(&["status"]);
        let shows = words.iter().all(|word| said.out.contains(word));
        so(said.code == code && shows, || format!("{said:?}")).map(|()| said)
    })
}

/// Waits until the readiness probe answers so.
fn probe(address: &str, code: u16, word: &str) {
    eventually(&format!("/readyz answers {code} with {word:?}"), || {
        let (status, body) = get(address, "/readyz")?;
        so(status == code && body.contains(word), || format!("{status} {body}"))
    });
}

/// A BBS with metrics, an auctioneer and a cell.
fn start(cluster: &mut Cluster) -> String {
    cluster.add_with("bbs-1", &["--metrics", "127.0.0.1:0"]);
    cluster.add("auctioneer-1");
    cluster.add("rep-c1");
    cluster.ready(1);
    let at = address(&cluster.services["bbs-1"]);
    probe(&at, 200, "true");
    status(&cluster.muster(), 0, &["HEALTHY"]);
    at
}

/// Each change of state is one line of the program's log.
fn logged_once(service: &Service) {
    for line in ["an append failed", "the log takes no entries: ", "the log takes entries again"] {
        assert_eq!(service.said().matches(line).count(), 1, "{line:?} in {}", service.said());
    }
}

fn desire(muster: &Muster, file: &Path) -> Said {
    muster.run(&["lrp", "desire", file.to_str().unwrap(), "--timeout", "5s"])
}

#[test]
fn full_disk_of_the_server_is_unhealthy_until_it_has_room_and_is_restarted() {
    let place = Place::new();
    let disk = SmallDisk::mount(place.path().join("nats"), "12m");
    let server = Server::start(&place);
    let mut cluster = Cluster::on(place, server);
    cluster.found();
    let at = start(&mut cluster);
    let (muster, file) = (cluster.muster(), cluster.place.file("web.toml", sleeper("web", 1)));

    disk.fill();
    let said = desire(&muster, &file).exits(5);
    said.tells(&["the log takes no entries since", "no space left on device", "Unavailable"]);
    let shown =
        status(&muster, 12, &["UNHEALTHY: the log takes no entries since", "no space left on device"]);
    assert!(shown.out.starts_with("UNHEALTHY\n"), "{}", shown.out);
    probe(&at, 503, "no space left on device");
    let found = muster.run(&["doctor", "--monitoring", &cluster.server.monitoring()]).exits(9);
    found.tells(&["write error", "restart it"]);
    // Without a monitoring address the state that the BBS reports is enough.
    muster.exits(9, "doctor").tells(&["no space left on device", "restart the NATS server"]);

    disk.make_room();
    cluster.server.kill9();
    cluster.server.restart();
    status(&muster, 0, &["HEALTHY"]);
    probe(&at, 200, "true");
    eventually("commands are carried out", || {
        let said = desire(&muster, &file);
        so(said.code == 0 || said.err.contains("ResourceExists"), || format!("{said:?}"))
    });
    muster.runs("web", 1);
    logged_once(&cluster.services["bbs-1"]);
    // The folder below can be removed once nothing is mounted on it.
    drop(disk);
}

#[test]
fn reached_limit_of_the_server_refuses_commands_of_which_nothing_is_stored() {
    let place = Place::new();
    let store = place.path().canonicalize().unwrap().join("nats/store");
    let limit = format!(
        "jetstream {{ store_dir: \"{}\", sync_interval: always, max_file_store: 2MB }}",
        store.display()
    );
    let server = Server::start_with(&place, &limit);
    let mut cluster = Cluster::on(place, server);
    cluster.found();
    let at = start(&mut cluster);
    let (muster, file) = (cluster.muster(), cluster.place.file("web.toml", sleeper("web", 1)));

    // Another stream takes what the server has left.
    let mut plain = cluster.plain("other");
    let made = plain.ask_json(
        "$JS.API.STREAM.CREATE.OTHER",
        &json!({"name": "OTHER", "subjects": ["other"], "storage": "file", "num_replicas": 1}),
    );
    assert!(made["error"].is_null(), "{made}");
    eventually("the server is full", || {
        let answer = plain.ask("other", &[0; 60_000]).json();
        so(answer["error"]["err_code"] == 10_023, || answer.to_string())
    });

    let before = cluster.log().len();
    desire(&muster, &file).exits(5).tells(&["insufficient resources", "nothing was stored"]);
    status(&muster, 12, &["UNHEALTHY: the log takes no entries since", "insufficient resources"]);
    probe(&at, 503, "insufficient resources");
    assert_eq!(cluster.log().len(), before, "nothing was stored");

    let deleted = plain.ask_json("$JS.API.STREAM.DELETE.OTHER", &json!({}));
    assert!(deleted["error"].is_null(), "{deleted}");
    status(&muster, 0, &["HEALTHY"]);
    probe(&at, 200, "true");
    muster.ok(&format!("lrp desire {}", file.display()));
    logged_once(&cluster.services["bbs-1"]);
}

#[test]
fn deleted_stream_is_noticed_though_nothing_is_asked() {
    let mut cluster = Cluster::empty();
    let at = start(&mut cluster);
    let deleted = cluster.plain("cli").ask_json("$JS.API.STREAM.DELETE.MUSTER", &json!({}));
    assert!(deleted["error"].is_null(), "{deleted}");
    status(
        &cluster.muster(),
        12,
        &["UNHEALTHY: the log takes no entries since", "the stream MUSTER does not exist"],
    );
    probe(&at, 503, "the stream MUSTER does not exist");
    let file = cluster.place.file("web.toml", sleeper("web", 1));
    desire(&cluster.muster(), &file).exits(5).tells(&["the stream MUSTER does not exist"]);
}

#[test]
fn full_disk_of_a_local_cluster_is_unhealthy_until_it_has_room() {
    let place = Place::new();
    let disk = SmallDisk::mount(place.path().join("data"), "16m");
    let file = place.file("web.toml", sleeper("web", 1));
    let dev = Dev::start(&place, &[file.to_str().unwrap()]);
    dev.muster.runs("web", 1);
    status(&dev.muster, 0, &["HEALTHY"]);

    disk.fill();
    let refused = dev.muster.run(&["lrp", "scale", "web=3", "--timeout", "3s"]).exits(5);
    refused.tells(&["database or disk is full", "nothing was stored"]);
    status(&dev.muster, 12, &["UNHEALTHY: the log takes no entries since", "database or disk is full"]);
    let found = dev.muster.run(&["doctor"]).exits(9);
    found.tells(&["appends", "database or disk is full", "storage"]);

    disk.make_room();
    status(&dev.muster, 0, &["HEALTHY"]);
    dev.muster.ok("lrp scale web=2");
    dev.muster.runs("web", 2);
    logged_once(&dev.service);
    dev.end(&place);
    drop(disk);
}
