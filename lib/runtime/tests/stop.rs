//! The first signal requests a stop, and the second signal exits the process.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use runtime::stop::{EXIT_FORCED, Hangup, on_signal};
use rustix::process::{Pid, Signal, kill_process};

/// Program that receives the signals of the next test. The program prints when it waits and when a stop is
/// requested. It never stops by itself.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the next test starts this process and signals it"]
async fn the_program_that_is_signalled() {
    let stop = on_signal(Hangup::Stop).unwrap();
    println!("\nwaiting");
    stop.cancelled().await;
    println!("\nasked");
    std::future::pending::<()>().await;
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn first_signal_requests_stop_and_second_exits() {
    for (first, second) in
        [(Signal::TERM, Signal::INT), (Signal::INT, Signal::INT), (Signal::HUP, Signal::TERM)]
    {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_program_that_is_signalled", "--ignored", "--nocapture"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line == "waiting"));
        signal(&child, first);
        assert!(lines.any(|line| line == "asked"));
        // A closing terminal sends SIGHUP several times.
        signal(&child, Signal::HUP);
        signal(&child, second);
        assert_eq!(child.wait().unwrap().code(), Some(EXIT_FORCED));
    }
}
