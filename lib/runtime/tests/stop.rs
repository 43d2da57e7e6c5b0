//! The first signal asks a program to end, the second doesn't ask.
#![expect(clippy::unwrap_used, reason = "in tests a panic is the answer")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use runtime::stop::{EXIT_ENDED, Hangup, on_signal};
use rustix::process::{Pid, Signal, kill_process};

/// Says that it waits, then that it was asked to stop, and doesn't.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is the process that the next test signals"]
async fn the_program_that_is_signalled() {
    let stop = on_signal(Hangup::Ends).unwrap();
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
fn the_first_signal_asks_and_the_second_ends() {
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
        // A terminal that is gone says so several times.
        signal(&child, Signal::HUP);
        signal(&child, second);
        assert_eq!(child.wait().unwrap().code(), Some(EXIT_ENDED));
    }
}
