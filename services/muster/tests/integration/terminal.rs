//! `muster dev` on a terminal: the live view, its keys, and its end.

use rustix::process::Signal;

use crate::dev::Dev;
use crate::support::containers::{living_in, signal};
use crate::support::{Place, Service, Terminal};

/// The example that the README begins with.
const HELLO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.toml");

/// A local cluster whose live view is shown on a terminal.
struct Shown {
    service: Service,
    terminal: Terminal,
}

impl Shown {
    /// Starts one in a folder of its own.
    fn start(place: &Place, folder: &str, args: &[&str]) -> Self {
        let data = place.path().join(folder).display().to_string();
        let log = place.path().join(format!("{folder}.log"));
        let terminal = Terminal::open(120, 30, &log);
        let args: Vec<&str> = ["dev"].iter().chain(args).copied().chain(["--data", &data]).collect();
        let service = Service::on_terminal("dev", &terminal, &log, &args, &[]);
        Self { service, terminal }
    }
}

#[test]
fn dev_starts_on_a_terminal_every_time() {
    let place = Place::new();
    for turn in 0..5 {
        let mut shown = Shown::start(&place, &format!("start{turn}"), &[HELLO]);
        shown.service.says("of 4 instances running");
        assert!(!shown.service.has_ended(), "{}", shown.service.said());
        assert_eq!(shown.service.interrupt().code(), Some(0));
        assert!(shown.terminal.is_as_a_shell_wants_it());
    }
    assert_eq!(living_in(place.path()), []);
}

#[test]
fn the_live_view_scrolls_and_q_quits() {
    let place = Place::new();
    let mut shown = Shown::start(&place, "data", &[HELLO]);
    shown.service.says("of 4 instances running");
    shown.service.says("q quits");
    shown.terminal.resize(100, 12);
    shown.service.says("Page keys scroll");
    shown.terminal.types("\u{1b}[B");
    shown.service.says("lines 2 to");
    shown.terminal.types("q");
    assert_eq!(shown.service.wait().code(), Some(0));
    assert!(shown.terminal.is_as_a_shell_wants_it());
    assert_eq!(living_in(place.path()), []);
    let left = std::fs::read_dir(place.path().join("data")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| name != "owner.lock" && name != "muster.sock"));
}

#[test]
fn the_terminal_is_given_back_however_it_ends() {
    let place = Place::new();
    let twice = [Signal::INT, Signal::INT];
    let all = [&[Signal::TERM][..], &[Signal::HUP, Signal::HUP], &twice, &twice, &twice, &twice];
    for (turn, signals) in all.into_iter().enumerate() {
        let mut shown = Shown::start(&place, &format!("end{turn}"), &[]);
        shown.service.says("q quits");
        assert!(!shown.terminal.is_as_a_shell_wants_it());
        for one in signals {
            signal(shown.service.pid(), *one);
        }
        shown.service.wait();
        assert!(shown.terminal.is_as_a_shell_wants_it(), "after {signals:?}");
    }
}

#[test]
fn a_terminal_that_is_closed_ends_dev_and_every_container() {
    let place = Place::new();
    let mut shown = Shown::start(&place, "data", &[HELLO]);
    shown.service.says("of 4 instances running");
    assert!(!living_in(place.path()).is_empty());
    signal(shown.service.pid(), Signal::HUP);
    assert_eq!(shown.service.wait().code(), Some(0));
    assert!(shown.terminal.is_as_a_shell_wants_it());
    assert_eq!(living_in(place.path()), []);
}

#[test]
fn the_live_view_shows_what_a_failing_monitor_says() {
    let place = Place::new();
    let sick = "process_guid = \"sick\"\nmemory_mb = 8\naction.run = { path = \"sleep\", args = [\"100000\"] }\n\
         monitor.run = { path = \"sh\", args = [\"-c\", \"echo no database; exit 7\"] }\n";
    let file = place.file("sick.toml", sick);
    let mut shown = Shown::start(&place, "data", &[file.to_str().unwrap()]);
    shown.service.says("not healthy yet: Exited with status 7: no database");
    shown.terminal.types("q");
    assert_eq!(shown.service.wait().code(), Some(0));
    assert_eq!(living_in(place.path()), []);
}

#[test]
fn top_is_told_by_keys_and_gives_the_terminal_back() {
    let place = Place::new();
    let dev = Dev::start(&place, &[HELLO]);
    dev.muster.runs("web", 3);
    let refused = dev.muster.exits(2, "top");
    refused.tells(&["draws on a terminal", "muster status", "muster watch"]);
    let socket = place.path().join("data/muster.sock").display().to_string();
    let start = |name: &str| {
        let log = place.path().join(name);
        let terminal = Terminal::open(100, 30, &log);
        let variables = [("MUSTER_SOCKET", socket.as_str())];
        let mut service =
            Service::on_terminal(name, &terminal, &log, &["top", "--color", "never"], &variables);
        // What is blank is not drawn: single words are.
        for word in ["cells:", "processes:", "crasher", "web", "entries/s"] {
            service.says(word);
        }
        (service, terminal)
    };
    let (mut service, terminal) = start("keys");
    terminal.types("/web\r\r");
    service.says("web/2");
    terminal.types("\r");
    service.says("because");
    terminal.resize(60, 20);
    terminal.types("\u{1b}");
    service.says("instances");
    terminal.types("qqq");
    assert_eq!(service.wait().code(), Some(0));
    assert!(terminal.is_as_a_shell_wants_it());
    for one in [Signal::TERM, Signal::HUP] {
        let (service, terminal) = start(&format!("signal-{one:?}"));
        assert!(!terminal.is_as_a_shell_wants_it());
        signal(service.pid(), one);
        service.wait();
        assert!(terminal.is_as_a_shell_wants_it(), "after {one:?}");
    }
    dev.end(&place);
}
