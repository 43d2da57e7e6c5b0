//! Tests of `muster instance exec`: an additional program in the container of an instance. The program runs
//! with pipes and on a terminal, and continues after the loss of the BBS that relays its output.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::dev::{LocalCluster, sleeper};
use crate::support::containers::signal;
use crate::support::test_dir::ensure;
use crate::support::{Cluster, CommandOutput, Muster, Service, Terminal, TestDir, eventually};

/// Runs a script in an instance with this input.
fn exec(muster: &Muster, id: &str, script: &str, input: &[u8]) -> CommandOutput {
    muster.run_with_input(&["instance", "exec", id, "--", "sh", "-c", script], input)
}

/// Returns the decisions that permit clients to run programs in containers.
fn entries_into_containers(events: &[Value]) -> Vec<&Value> {
    let decisions =
        events.iter().filter_map(|entry| entry["entry"]["known"]["decisions"].as_array()).flatten();
    decisions.filter(|decision| !decision["events"][0]["actual"]["exec_started.v1"].is_null()).collect()
}

#[test]
fn exec_relays_streams_and_exit_status() {
    let place = TestDir::new();
    let dev = LocalCluster::start(&place, &[]);
    let muster = &dev.muster;
    let file = place.write_file("web.toml", sleeper("web", 2)).display().to_string();
    muster.ok(&format!("apply {file}"));
    muster.wait_until_running("web", 2);

    let said = exec(muster, "web/1", "echo I am $INSTANCE_INDEX; pwd >&2; exit 7", b"").expect_status(7);
    assert_eq!(said.out, "I am 1\n");
    assert!(said.err.ends_with("/home/vcap\n") || said.err.ends_with("/work\n"), "{said:?}");
    let said = exec(muster, "web/0", "kill -TERM $$", b"").expect_status(143);
    assert_eq!(said.err, "web/0: Killed by signal 15 (TERM)\n");
    // In both directions, the data is larger than every message, pipe and buffer.
    let much: Vec<u8> = (0..3_000_000u32).map(|number| b'a' + (number % 26) as u8).collect();
    let said = exec(muster, "web/0", "cat", &much).expect_status(0);
    assert!(said.out.as_bytes() == much, "{} bytes were returned", said.out.len());
    exec(muster, "web/0", "head -c 3", &much).expect_status(0);
    muster
        .exits(126, "instance exec -n web/0 -- no-such-program")
        .expect_output(&["cannot start no-such-program: No such file"]);
    muster.exits(125, "instance exec -n web/9 -- true").expect_output(&["web/9"]);
    muster.exits(125, "instance exec -n web/0").expect_output(&["PROGRAM"]);
    // The container's own log contains none of this output.
    assert_eq!(muster.ok("logs web/0").out, "");
    muster.ok("history instance web/1").expect_output(&["sh -c"]);

    dev.end(&place);
}

#[test]
fn interactive_shell_works_on_terminal() {
    let place = TestDir::new();
    let dev = LocalCluster::start(&place, &[]);
    let file = place.write_file("web.toml", sleeper("web", 1)).display().to_string();
    dev.muster.ok(&format!("apply {file}"));
    dev.muster.wait_until_running("web", 1);
    let socket = place.path().join("data/muster.sock").display().to_string();
    let start = |name: &str| {
        let log = place.path().join(name);
        let terminal = Terminal::open(100, 30, &log);
        let variables = [("MUSTER_SOCKET", socket.as_str())];
        let args = ["instance", "exec", "web/0", "--", "sh", "-i"];
        (Service::on_terminal(name, &terminal, &log, &args, &variables), terminal)
    };
    let (mut shell, terminal) = start("shell");
    terminal.type_keys("echo st''arted; stty size\r");
    shell.wait_for_log("started\r\n30 100");
    assert!(!terminal.is_in_shell_mode());
    terminal.resize(70, 20);
    eventually("the program has the new size", || {
        // The terminal is not the controlling terminal of any process, so the kernel signals no process.
        signal(shell.pid(), Signal::WINCH);
        terminal.type_keys("stty size\r");
        std::thread::sleep(Duration::from_millis(50));
        ensure(shell.log().contains("20 70"), || shell.log())
    });
    // The program in the container receives the interrupt.
    terminal.type_keys("sleep 1000; echo st''ill\r");
    std::thread::sleep(Duration::from_millis(300));
    terminal.type_keys("\u{3}");
    terminal.type_keys("\recho he''re; exit 9\r");
    shell.wait_for_log("here");
    assert_eq!(shell.wait().code(), Some(9));
    assert!(terminal.is_in_shell_mode());

    // After the end of a terminated client, its program no longer runs.
    let (mut shell, terminal) = start("ended");
    terminal.type_keys("echo st''arted; sleep 1234567\r");
    shell.wait_for_log("started\r\n");
    let runs =
        || dev.muster.ok("instance exec -n web/0 -- sh -c ps -eo args; true").out.contains("sleep 1234567");
    signal(shell.pid(), Signal::TERM);
    assert_eq!(shell.wait().code(), Some(143));
    assert!(terminal.is_in_shell_mode());
    eventually("its program has exited", || ensure(!runs(), String::new));
    dev.end(&place);
}

#[test]
fn escape_sequences_in_logs_are_neutralised_on_terminal() {
    let place = TestDir::new();
    let dev = LocalCluster::start(&place, &[]);
    let script = r"printf '\\033[2Jcleared\\302\\2332J\\n'; sleep 100000";
    let text = format!(
        "process_guid = \"hostile\"\ndomain = \"shop\"\nmemory_mb = 8\naction.run = {{ path = \"sh\", args = [\"-c\", \"{script}\"] }}\n"
    );
    dev.muster.ok(&format!("apply {}", place.write_file("hostile.toml", text).display()));
    eventually("a pipe receives the unchanged output", || {
        let logs = dev.muster.run(&["logs", "hostile/0"]);
        ensure(logs.out.contains("\u{1b}[2Jcleared\u{9b}2J\n"), || format!("{logs:?}"))
    });
    let socket = place.path().join("data/muster.sock").display().to_string();
    let log = place.path().join("terminal");
    let terminal = Terminal::open(100, 30, &log);
    let args = ["logs", "hostile/0"];
    let mut shown =
        Service::on_terminal("logs", &terminal, &log, &args, &[("MUSTER_SOCKET", socket.as_str())]);
    shown.wait_for_log(r"\u{1b}[2Jcleared\u{9b}2J");
    assert_eq!(shown.wait().code(), Some(0));
    dev.end(&place);
}

#[test]
fn exec_survives_leader_change_and_is_recorded() {
    let mut cluster = Cluster::start(&["bbs-1", "bbs-2", "auctioneer-1", "rep-1"]);
    cluster.wait_until_ready(1);
    let muster = cluster.muster();
    let place = TestDir::new();
    let file = place.write_file("web.toml", sleeper("web", 1)).display().to_string();
    muster.ok(&format!("apply {file}"));
    cluster.wait_until_settled(&[("web", 1)]);
    let log = place.path().join("talk");
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo line $i; sleep 0.3; done; exit 5";
    let mut talk = muster
        .start(&log, &["instance", "exec", "-n", "--timeout", "60s", "web/0", "--", "sh", "-c", script]);
    talk.wait_for_log("line 2\n");
    cluster.kill9(&cluster.leader("bbs"));
    assert_eq!(talk.wait().code(), Some(5));
    let said = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<String> =
        said.lines().filter(|line| line.starts_with("line ")).map(str::to_owned).collect();
    assert_eq!(lines, (1..=20).map(|number| format!("line {number}")).collect::<Vec<_>>(), "{said}");
    let events = cluster.entries();
    let [entered] = entries_into_containers(&events)[..] else { panic!("{events:#?}") };
    assert_eq!(entered["actor"]["client"]["domain"], "shop");
    let what = &entered["events"][0]["actual"]["exec_started.v1"];
    assert_eq!((&what["exec"]["path"], &what["exec"]["args"][1]), (&"sh".into(), &script.into()), "{what}");
    assert_eq!(what["by"]["cell_id"], "1");
}
