//! `muster dev` and `muster top` on a terminal: the live view, its keys, and its exit.

use rustix::process::Signal;

use crate::dev::LocalCluster;
use crate::support::containers::{processes_in, signal};
use crate::support::{Service, Terminal, TestDir};

/// First example of the README.
const HELLO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.toml");

/// Local cluster that shows its live view on a terminal.
struct LiveView {
    service: Service,
    terminal: Terminal,
}

impl LiveView {
    /// Starts a local cluster in a folder of its own.
    fn start(place: &TestDir, folder: &str, args: &[&str]) -> Self {
        let data = place.path().join(folder).display().to_string();
        let log = place.path().join(format!("{folder}.log"));
        let terminal = Terminal::open(120, 30, &log);
        let args: Vec<&str> = ["dev"].iter().chain(args).copied().chain(["--data", &data]).collect();
        let service = Service::on_terminal("dev", &terminal, &log, &args, &[]);
        Self { service, terminal }
    }
}

#[test]
fn dev_starts_on_terminal_repeatedly() {
    let place = TestDir::new();
    for turn in 0..5 {
        let mut shown = LiveView::start(&place, &format!("start{turn}"), &[HELLO]);
        shown.service.wait_for_log("of 4 instances running");
        assert!(!shown.service.has_exited(), "{}", shown.service.log());
        assert_eq!(shown.service.interrupt().code(), Some(0));
        assert!(shown.terminal.is_in_shell_mode());
    }
    assert_eq!(processes_in(place.path()), []);
}

#[test]
fn live_view_scrolls_and_q_quits() {
    let place = TestDir::new();
    let mut shown = LiveView::start(&place, "data", &[HELLO]);
    shown.service.wait_for_log("of 4 instances running");
    shown.service.wait_for_log("q quits");
    shown.terminal.resize(100, 12);
    shown.service.wait_for_log("Page keys scroll");
    shown.terminal.type_keys("\u{1b}[B");
    shown.service.wait_for_log("lines 2 to");
    shown.terminal.type_keys("q");
    assert_eq!(shown.service.wait().code(), Some(0));
    assert!(shown.terminal.is_in_shell_mode());
    assert_eq!(processes_in(place.path()), []);
    let left = std::fs::read_dir(place.path().join("data")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| name != "owner.lock" && name != "muster.sock"));
}

#[test]
fn terminal_is_restored_after_any_signal() {
    let place = TestDir::new();
    let twice = [Signal::INT, Signal::INT];
    let all = [&[Signal::TERM][..], &[Signal::HUP, Signal::HUP], &twice, &twice, &twice, &twice];
    for (turn, signals) in all.into_iter().enumerate() {
        let mut shown = LiveView::start(&place, &format!("end{turn}"), &[]);
        shown.service.wait_for_log("q quits");
        assert!(!shown.terminal.is_in_shell_mode());
        for one in signals {
            signal(shown.service.pid(), *one);
        }
        shown.service.wait();
        assert!(shown.terminal.is_in_shell_mode(), "after {signals:?}");
    }
}

#[test]
fn closed_terminal_stops_dev_and_every_container() {
    let place = TestDir::new();
    let mut shown = LiveView::start(&place, "data", &[HELLO]);
    shown.service.wait_for_log("of 4 instances running");
    assert!(!processes_in(place.path()).is_empty());
    signal(shown.service.pid(), Signal::HUP);
    assert_eq!(shown.service.wait().code(), Some(0));
    assert!(shown.terminal.is_in_shell_mode());
    assert_eq!(processes_in(place.path()), []);
}

#[test]
fn live_view_shows_output_of_failing_monitor() {
    let place = TestDir::new();
    let sick = "process_guid = \"sick\"\nmemory_mb = 8\naction.run = { path = \"sleep\", args = [\"100000\"] }\n\
         monitor.run = { path = \"sh\", args = [\"-c\", \"echo no database; exit 7\"] }\n";
    let file = place.write_file("sick.toml", sick);
    let mut shown = LiveView::start(&place, "data", &[file.to_str().unwrap()]);
    shown.service.wait_for_log("not healthy yet: Exited with status 7: no database");
    shown.terminal.type_keys("q");
    assert_eq!(shown.service.wait().code(), Some(0));
    assert_eq!(processes_in(place.path()), []);
}

#[test]
fn dumb_terminal_gets_plain_lines() {
    let place = TestDir::new();
    let log = place.path().join("dumb.log");
    let terminal = Terminal::open(80, 24, &log);
    let data = place.path().join("data").display().to_string();
    let args = ["dev", HELLO, "--data", &data];
    let mut service = Service::on_terminal("dumb", &terminal, &log, &args, &[("TERM", "dumb")]);
    service.wait_for_log("web: desired with 3 instances");
    assert!(terminal.is_in_shell_mode());
    assert!(!service.log().contains('\u{1b}'), "{}", service.log());
    assert_eq!(service.interrupt().code(), Some(0));
}

#[test]
fn top_handles_keys_and_restores_terminal() {
    let place = TestDir::new();
    let dev = LocalCluster::start(&place, &[HELLO]);
    dev.muster.wait_until_running("web", 3);
    let refused = dev.muster.exits(2, "top");
    refused.expect_output(&["needs a terminal", "muster status", "muster watch"]);
    let socket = place.path().join("data/muster.sock").display().to_string();
    let start = |name: &str| {
        let log = place.path().join(name);
        let terminal = Terminal::open(100, 30, &log);
        let variables = [("MUSTER_SOCKET", socket.as_str())];
        let mut service =
            Service::on_terminal(name, &terminal, &log, &["top", "--color", "never"], &variables);
        // Blanks are not drawn, so the output contains single words only.
        for word in ["cells:", "processes:", "crasher", "web", "entries/s"] {
            service.wait_for_log(word);
        }
        (service, terminal)
    };
    let (mut service, terminal) = start("keys");
    terminal.type_keys("/web\r\r");
    // In an event, a colon follows the name. In the list of instances, a cursor movement follows the name.
    service.wait_for_log("web/2\u{1b}");
    terminal.type_keys("\r");
    service.wait_for_log("because");
    terminal.resize(60, 20);
    terminal.type_keys("\u{1b}");
    service.wait_for_log("instances");
    terminal.type_keys("qqq");
    assert_eq!(service.wait().code(), Some(0));
    assert!(terminal.is_in_shell_mode());
    for one in [Signal::TERM, Signal::HUP] {
        let (service, terminal) = start(&format!("signal-{one:?}"));
        assert!(!terminal.is_in_shell_mode());
        signal(service.pid(), one);
        service.wait();
        assert!(terminal.is_in_shell_mode(), "after {one:?}");
    }
    dev.end(&place);
}
