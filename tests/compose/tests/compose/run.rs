//! Running programs and collecting their output.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) use support::wait::ensure;
use support::wait::wait_within;

/// Default timeout of a program.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);
/// Polling interval for the exit of a program.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Result of a program.
#[derive(Debug)]
pub(crate) struct Output {
    /// Command line, in the form that a user would type.
    pub(crate) line: String,
    /// Exit status. `None` if the program was killed or did not start.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Output {
    /// Returns the standard output.
    ///
    /// # Errors
    /// Returns an error with the command line and the output if the program failed.
    pub(crate) fn into_stdout(self) -> Result<String, String> {
        let Self { line, code, out, err } = self;
        if code == Some(0) { Ok(out) } else { Err(format!("{line}: exit status {code:?}\n{out}{err}")) }
    }
}

/// Runs a program with this standard input until it exits or the time limit has passed.
pub(crate) fn run_for(limit: Duration, mut command: Command, input: &str) -> Output {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ");
    let [given, out, err] = [(); 3].map(|()| tempfile::tempfile().expect("a temporary file can be created"));
    write_and_rewind(&given, input);
    let file = |file: &File| Stdio::from(file.try_clone().expect("the file can be duplicated"));
    command.stdin(file(&given)).stdout(file(&out)).stderr(file(&err));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Output { line, code: None, out: String::new(), err: error.to_string() },
    };
    let end = Instant::now() + limit;
    let code = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.code(),
            Ok(None) if Instant::now() < end => sleep(POLL_INTERVAL),
            Ok(None) | Err(_) => {
                child.kill().ok();
                child.wait().ok();
                break None;
            }
        }
    };
    Output { line, code, out: read_all(out), err: read_all(err) }
}

/// Runs a program without input, with the default timeout.
pub(crate) fn run(command: Command) -> Output {
    run_for(TIMEOUT, command, "")
}

fn write_and_rewind(mut file: &File, input: &str) {
    let written = file.write_all(input.as_bytes()).and_then(|()| file.seek(SeekFrom::Start(0)).map(drop));
    written.expect("the input can be written");
}

fn read_all(mut file: File) -> String {
    let mut bytes = vec![];
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes)).expect("the output can be read");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits until `is_so` succeeds. Panics with the last error of `is_so` after [`LIMIT`].
pub(crate) fn eventually<T>(what: &str, is_so: impl FnMut() -> Result<T, String>) -> T {
    wait_within(TIMEOUT, what, is_so)
}
