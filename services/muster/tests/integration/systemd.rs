//! Tests of notifications to systemd, and of the units that `muster` writes for systemd. The notifications
//! are received on a socket like that of systemd.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use rustix::process::Signal;

use crate::support::containers::signal;
use crate::support::test_dir::ensure;
use crate::support::{Cluster, Muster, Service, TestDir, eventually};

/// Notification socket of a service.
struct NotifySocket {
    name: &'static str,
    socket: UnixDatagram,
    /// Lines received so far.
    lines: Vec<String>,
}

impl NotifySocket {
    fn bind(path: &Path, name: &'static str) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { name, socket, lines: vec![] }
    }

    /// Reads the notifications since the last call.
    fn read(&mut self) {
        let mut bytes = [0; 4_096];
        while let Ok(length) = self.socket.recv(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..length]);
            self.lines.extend(text.lines().map(str::to_owned));
        }
    }

    fn count(&mut self, line: &str) -> usize {
        self.read();
        self.lines.iter().filter(|said| *said == line).count()
    }

    /// Waits for a line that starts with `begin`, and returns the index of the first such line.
    fn wait_for_line(&mut self, begin: &str) -> usize {
        let name = self.name;
        eventually(&format!("{name} sends {begin}"), || {
            self.read();
            let found = self.lines.iter().position(|line| line.starts_with(begin));
            found.ok_or_else(|| format!("{:?}", self.lines))
        })
    }

    /// Waits for `signs` further watchdog notifications.
    fn wait_for_watchdog(&mut self, signs: usize) {
        let (name, before) = (self.name, self.count("WATCHDOG=1"));
        eventually(&format!("{name} sends watchdog notifications"), || {
            let count = self.count("WATCHDOG=1");
            ensure(count >= before + signs, || format!("{before} watchdog notifications before, {count} now"))
        });
    }
}

/// Starts a supervised service with a watchdog timeout of one second.
fn start(cluster: &mut Cluster, name: &'static str, args: &[&str]) -> NotifySocket {
    let path = cluster.place.path().join(format!("{name}.notify"));
    let notified = NotifySocket::bind(&path, name);
    let variables = [
        ("MUSTER_NATS_URL", cluster.server.url()),
        ("NOTIFY_SOCKET", path.display().to_string()),
        ("WATCHDOG_USEC", "1000000".to_owned()),
    ];
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let log = cluster.place.path().join(format!("{name}.log"));
    cluster.services.insert(name.to_owned(), Service::start(name, &log, args, &variables));
    notified
}

#[test]
fn services_notify_systemd_of_readiness_liveness_and_stop() {
    let mut cluster = Cluster::unfounded();
    let (data, tables) = (cluster.place.path().join("c1"), cluster.place.path().join("tables.db"));
    let (data, tables) = (data.display().to_string(), format!("sqlite:{}", tables.display()));
    let mut auctioneer = start(&mut cluster, "auctioneer", &["auctioneer"]);
    auctioneer.wait_for_line("STATUS=waiting for a NATS server");
    assert_eq!(auctioneer.count("READY=1"), 0, "not ready without a journal: {:?}", auctioneer.lines);
    cluster.found();
    let mut bbs = start(&mut cluster, "bbs", &["bbs"]);
    let size = ["--memory-mb", "512", "--disk-mb", "512"];
    let rep = [["rep", "--cell", "c1", "--zone", "z1", "--data", &data].as_slice(), &size].concat();
    let mut rep = start(&mut cluster, "rep", &rep);
    let mut projector = start(&mut cluster, "projector", &["projector", "--database", &tables]);
    for (service, status) in [
        (&mut auctioneer, "STATUS=leading at position "),
        (&mut bbs, "STATUS=leading at position "),
        (&mut rep, "STATUS=attached to cell c1, 0 containers running"),
        (&mut projector, "STATUS=tables at position "),
    ] {
        let waits = service.wait_for_line("STATUS=waiting for a NATS server");
        let ready = service.wait_for_line("READY=1");
        service.wait_for_line(status);
        assert!(waits < ready, "{:?}", service.lines);
        service.wait_for_watchdog(3);
        assert_eq!(service.count("READY=1"), 1, "READY=1 is sent once: {:?}", service.lines);
    }
    // A suspended service sends no watchdog notifications, even if other services send many.
    let pid = cluster.services["bbs"].pid();
    signal(pid, Signal::STOP);
    // Waits for the notifications that were sent before the service was suspended.
    auctioneer.wait_for_watchdog(2);
    let before = bbs.count("WATCHDOG=1");
    auctioneer.wait_for_watchdog(10);
    assert_eq!(bbs.count("WATCHDOG=1"), before);
    signal(pid, Signal::CONT);
    bbs.wait_for_watchdog(2);
    for (name, mut notified) in
        [("projector", projector), ("rep", rep), ("auctioneer", auctioneer), ("bbs", bbs)]
    {
        assert_eq!(notified.count("STOPPING=1"), 0);
        let status = cluster.services.remove(name).unwrap().interrupt();
        assert!(status.success(), "{name}: {status}");
        assert_eq!(notified.count("STOPPING=1"), 1, "{name}: {:?}", notified.lines);
    }
}

/// Returns the paths of the files below a folder, relative to the folder.
fn files(folder: &Path) -> Vec<String> {
    let (mut open, mut found) = (vec![folder.to_owned()], vec![]);
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(&path).unwrap().flatten() {
            if entry.path().is_dir() {
                open.push(entry.path());
            } else {
                found.push(entry.path().strip_prefix(folder).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn install_keeps_existing_units_and_variables() {
    let place = TestDir::new();
    let muster = Muster::local(place.path());
    let root = place.path().join("root");
    let shown = root.display().to_string();
    let install =
        |options: &[&str]| muster.run(&[&["install", "--systemd", "--root", &shown], options].concat());
    let dry = install(&["--dry-run"]).expect_status(0).expect_output(&["PLANNED", "nothing was written"]);
    assert!(!root.exists(), "{dry:?}");
    muster.exits(2, "install").expect_output(&["--systemd"]);
    install(&["--env", "x"]).expect_status(2).expect_output(&["select it with --role"]);
    install(&["--prefix", "opt"]).expect_status(2).expect_output(&["expected an absolute path"]);
    let variables =
        place.write_file("rep-c1.env", "MUSTER_CELL=c1\nMUSTER_NATS_CREDS=/etc/muster/rep-c1.nk\n");
    let variables = variables.to_str().unwrap();
    install(&["--role", "rep", "--env", variables, "--prefix", "/opt/muster"]).expect_status(0);
    assert_eq!(files(&root), ["etc/muster/rep.env", "etc/systemd/system/muster-rep.service"]);
    let unit = root.join("etc/systemd/system/muster-rep.service");
    let text = std::fs::read_to_string(&unit).unwrap();
    assert!(text.contains("\nExecStart=/opt/muster/bin/muster rep --data "), "{text}");
    let env = root.join("etc/muster/rep.env");
    assert_eq!(std::fs::metadata(&env).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(std::fs::read_to_string(&env).unwrap().starts_with("MUSTER_CELL=c1\n"));

    let again = ["--role", "rep", "--prefix", "/opt/muster", "-o", "json"];
    let rows = install(&again).expect_status(0).json();
    let did: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["action"].as_str().unwrap()).collect();
    assert_eq!(did, ["unchanged", "kept"]);
    std::fs::write(&unit, text.replace("WatchdogSec=60", "WatchdogSec=5")).unwrap();
    let refused = install(&["--prefix", "/opt/muster"]).expect_status(4);
    let refused =
        refused.expect_output(&["- WatchdogSec=5", "+ WatchdogSec=60", "nothing was written", "--force"]);
    assert_eq!(files(&root).len(), 2, "{refused:?}");
    install(&["--prefix", "/opt/muster", "--force"]).expect_status(0).expect_output(&["overwritten", "kept"]);
    assert_eq!(std::fs::read_to_string(&unit).unwrap(), text);
    assert_eq!(files(&root).len(), 9);
    assert!(
        std::fs::read_to_string(&env).unwrap().starts_with("MUSTER_CELL=c1\n"),
        "the operator's file is kept"
    );
}
