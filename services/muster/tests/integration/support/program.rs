//! `muster` as a running service and as a command.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::containers::signal;
use super::terminal::Terminal;
use super::test_dir::{TIMEOUT, ensure, eventually};

/// Number of log lines that a service prints when its test fails.
const LAST_LINES: usize = 40;
/// Timeout of a command. Some commands wait for up to half a minute themselves.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the program without the settings of the user who runs the tests.
fn muster() -> Command {
    support::program::muster(Path::new(env!("CARGO_BIN_EXE_muster")))
}

/// Command line, with environment variables that select the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Muster {
    variables: Vec<(String, String)>,
}

/// Result of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    line: String,
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Muster {
    /// Returns the command line of the local cluster in a data folder.
    pub(crate) fn local(data: &Path) -> Self {
        Self::with("MUSTER_DATA", &data.display().to_string())
    }

    /// Returns the command line of the local cluster with this socket.
    pub(crate) fn socket(path: &Path) -> Self {
        Self::with("MUSTER_SOCKET", &path.display().to_string())
    }

    /// Returns the command line with this environment variable.
    pub(crate) fn with(variable: &str, value: &str) -> Self {
        Self::with_all(vec![(variable.to_owned(), value.to_owned())])
    }

    /// Returns the command line with these environment variables.
    pub(crate) fn with_all(variables: Vec<(String, String)>) -> Self {
        Self { variables }
    }

    /// Returns the command line of the cluster on a NATS server.
    pub(crate) fn nats(url: &str) -> Self {
        Self::with("MUSTER_NATS_URL", url)
    }

    fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = muster();
        command.envs(self.variables.iter().map(|(name, value)| (name, value))).args(args);
        command
    }

    /// Runs a command until it exits.
    pub(crate) fn run(&self, args: &[impl AsRef<OsStr>]) -> CommandOutput {
        let line: Vec<_> = args.iter().map(|arg| arg.as_ref().to_string_lossy()).collect();
        end(self.command(args), line.join(" "))
    }

    /// Runs a command with this standard input until it exits. Unread input is not an error.
    pub(crate) fn run_with_input(&self, args: &[impl AsRef<OsStr>], input: &[u8]) -> CommandOutput {
        let line: Vec<_> = args.iter().map(|arg| arg.as_ref().to_string_lossy()).collect();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let input = input.to_vec();
        let writing = std::thread::spawn(move || writer.write_all(&input).ok());
        let mut command = self.command(args);
        command.stdin(reader);
        let said = end(command, line.join(" "));
        writing.join().unwrap();
        said
    }

    /// Runs a command that must succeed. The line is split at spaces, without quotes.
    pub(crate) fn ok(&self, line: &str) -> CommandOutput {
        self.exits(0, line)
    }

    /// Runs a command that must exit with this status.
    pub(crate) fn exits(&self, code: i32, line: &str) -> CommandOutput {
        let args: Vec<&str> = line.split_whitespace().collect();
        self.run(&args).expect_status(code)
    }

    /// Runs a command that must succeed, and returns its JSON output.
    pub(crate) fn json(&self, line: &str) -> Value {
        let args: Vec<&str> = line.split_whitespace().chain(["-o", "json"]).collect();
        self.run(&args).expect_status(0).json()
    }

    /// Returns the JSON output of a command, or an error if it fails.
    pub(crate) fn try_json(&self, line: &str) -> Result<Value, String> {
        let args: Vec<&str> = line.split_whitespace().chain(["-o", "json"]).collect();
        let said = self.run(&args);
        ensure(said.code == 0, || format!("{said:?}")).map(|()| said.json())
    }

    /// Returns the rows of the instances of a process, by index.
    pub(crate) fn instances(&self, process: &str) -> Result<Vec<Value>, String> {
        let rows = self.try_json(&format!("instance list --lrp {process}"))?;
        Ok(rows.as_array().unwrap().clone())
    }

    /// Waits until a process has exactly this number of instances and all of them are RUNNING. Returns their
    /// rows.
    pub(crate) fn wait_until_running(&self, process: &str, count: usize) -> Vec<Value> {
        eventually(&format!("{count} instances of {process} run"), || {
            let rows = self.instances(process)?;
            let fine = |row: &Value| row["state"] == "RUNNING" && row["stopping"] == false;
            let settled = rows.len() == count && rows.iter().all(fine);
            ensure(settled, || format!("{rows:#?}")).map(|()| rows)
        })
    }

    /// Starts a command that runs until it is stopped.
    pub(crate) fn start(&self, log: &Path, args: &[&str]) -> Service {
        Service::spawn(self.command(args), &args.join(" "), log)
    }
}

/// Runs a program until it exits. Panics after a timeout.
pub(crate) fn end(mut command: Command, line: String) -> CommandOutput {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (out, err) =
        (read_in_thread(child.stdout.take().unwrap()), read_in_thread(child.stderr.take().unwrap()));
    let ends = Instant::now() + COMMAND_TIMEOUT;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if Instant::now() < ends => std::thread::sleep(Duration::from_millis(2)),
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
        }
    };
    let (out, err) = (out.join().unwrap(), err.join().unwrap());
    let Some(status) = status else {
        panic!("muster {line} did not exit within {COMMAND_TIMEOUT:?}\n{out}\n{err}")
    };
    CommandOutput { line, code: status.code().unwrap(), out, err }
}

/// Reads a stream to its end in a separate thread, so that the writing program never blocks.
fn read_in_thread(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        from.read_to_string(&mut text).unwrap();
        text
    })
}

impl CommandOutput {
    /// Asserts the exit status.
    pub(crate) fn expect_status(self, code: i32) -> Self {
        assert_eq!(self.code, code, "muster {}\n{}\n{}", self.line, self.out, self.err);
        self
    }

    /// Parses the standard output as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Parses the last line of standard error, which is the refusal, as JSON.
    pub(crate) fn refusal(&self) -> Value {
        let line = self.err.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts that standard output or standard error contains each of these words.
    pub(crate) fn expect_output(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.err.contains(word) || self.out.contains(word), "no {word:?} in {self:?}");
        }
        self
    }
}

/// Program that runs until it is stopped. The program is killed on drop.
pub(crate) struct Service {
    name: String,
    child: Child,
    log: PathBuf,
    exited: bool,
}

impl Service {
    /// Starts `muster` with these arguments and variables. The output is appended to a file.
    pub(crate) fn start(name: &str, log: &Path, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = muster();
        command.args(args).envs(variables.iter().copied());
        Self::spawn(command, name, log)
    }

    /// Starts `muster` with these arguments and variables on a pseudo-terminal.
    pub(crate) fn on_terminal(
        name: &str,
        terminal: &Terminal,
        log: &Path,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let mut command = muster();
        command.args(args).env("TERM", "xterm-256color").envs(variables.iter().copied());
        command
            .stdin(terminal.program_side())
            .stdout(terminal.program_side())
            .stderr(terminal.program_side());
        let child = command.spawn().unwrap();
        Self { name: name.to_owned(), child, log: log.to_owned(), exited: false }
    }

    fn spawn(mut command: Command, name: &str, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).unwrap();
        let both = file.try_clone().unwrap();
        let child = command.stdout(file).stderr(both).spawn().unwrap();
        Self { name: name.to_owned(), child, log: log.to_owned(), exited: false }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Returns the path of the service's log.
    pub(crate) fn log_path(&self) -> &Path {
        &self.log
    }

    /// Returns the current content of the service's log.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    /// Waits until the service's log contains a word.
    pub(crate) fn wait_for_log(&mut self, word: &str) {
        eventually(&format!("the log of {} contains {word:?}", self.name), || {
            ensure(self.log().contains(word), || self.log())
        });
    }

    /// Returns `true` if the program has exited.
    pub(crate) fn has_exited(&mut self) -> bool {
        self.exited |= self.child.try_wait().unwrap().is_some();
        self.exited
    }

    /// Kills the program with SIGKILL.
    pub(crate) fn kill9(mut self) {
        self.child.kill().unwrap();
        self.wait_for_exit(TIMEOUT);
    }

    /// Interrupts the program like Ctrl-C, and waits until it has exited.
    pub(crate) fn interrupt(self) -> ExitStatus {
        signal(self.pid(), Signal::INT);
        self.wait()
    }

    /// Waits until the program exits.
    pub(crate) fn wait(self) -> ExitStatus {
        self.wait_for(TIMEOUT)
    }

    /// Waits until the program exits, at most for this time.
    pub(crate) fn wait_for(mut self, limit: Duration) -> ExitStatus {
        self.wait_for_exit(limit)
    }

    fn wait_for_exit(&mut self, limit: Duration) -> ExitStatus {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.exited = true;
                return status;
            }
            assert!(Instant::now() < end, "{} did not exit: {}", self.name, self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = self.log();
            let lines: Vec<&str> = said.lines().collect();
            println!("--- end of the log of {}", self.name);
            lines[lines.len().saturating_sub(LAST_LINES)..].iter().for_each(|line| println!("{line}"));
        }
        if !self.exited {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}
