//! `muster`: as a service that runs, and as a command that answers.

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
use super::place::{LIMIT, eventually, so};
use super::terminal::Terminal;

/// How many lines of its output a program that is in the way of a test tells.
const LAST_LINES: usize = 40;
/// How long a command may take at the most: some wait for half a minute by themselves.
const ENDS: Duration = Duration::from_secs(120);

/// The program, with nothing of the tester's own settings.
fn muster() -> Command {
    support::program::muster(Path::new(env!("CARGO_BIN_EXE_muster")))
}

/// Where commands go to: variables of their environment.
#[derive(Clone, Debug)]
pub(crate) struct Muster {
    variables: Vec<(String, String)>,
}

/// What a command answered.
#[derive(Debug)]
pub(crate) struct Said {
    line: String,
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Muster {
    /// The local cluster of a data folder.
    pub(crate) fn local(data: &Path) -> Self {
        Self::with("MUSTER_DATA", &data.display().to_string())
    }

    /// The local cluster with this socket.
    pub(crate) fn socket(path: &Path) -> Self {
        Self::with("MUSTER_SOCKET", &path.display().to_string())
    }

    /// Commands with this variable in their environment.
    pub(crate) fn with(variable: &str, value: &str) -> Self {
        Self::with_all(vec![(variable.to_owned(), value.to_owned())])
    }

    /// Commands with these variables in their environment.
    pub(crate) fn with_all(variables: Vec<(String, String)>) -> Self {
        Self { variables }
    }

    /// The cluster on a NATS server.
    pub(crate) fn nats(url: &str) -> Self {
        Self::with("MUSTER_NATS_URL", url)
    }

    fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = muster();
        command.envs(self.variables.iter().map(|(name, value)| (name, value))).args(args);
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[impl AsRef<OsStr>]) -> Said {
        let line: Vec<_> = args.iter().map(|arg| arg.as_ref().to_string_lossy()).collect();
        end(self.command(args), line.join(" "))
    }

    /// Runs a command to its end with this on its standard input. What it does not read is no error.
    pub(crate) fn fed(&self, args: &[impl AsRef<OsStr>], input: &[u8]) -> Said {
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

    /// Runs a command, written as in a shell without quotes, which must succeed.
    pub(crate) fn ok(&self, line: &str) -> Said {
        self.exits(0, line)
    }

    /// Runs a command that must end with this status.
    pub(crate) fn exits(&self, code: i32, line: &str) -> Said {
        let args: Vec<&str> = line.split_whitespace().collect();
        self.run(&args).exits(code)
    }

    /// The answer of a command as JSON.
    pub(crate) fn json(&self, line: &str) -> Value {
        let args: Vec<&str> = line.split_whitespace().chain(["-o", "json"]).collect();
        self.run(&args).exits(0).json()
    }

    /// The answer of a command as JSON, if it is answered at all.
    pub(crate) fn try_json(&self, line: &str) -> Result<Value, String> {
        let args: Vec<&str> = line.split_whitespace().chain(["-o", "json"]).collect();
        let said = self.run(&args);
        so(said.code == 0, || format!("{said:?}")).map(|()| said.json())
    }

    /// The rows of the instances of a process, by their indices.
    pub(crate) fn instances(&self, process: &str) -> Result<Vec<Value>, String> {
        let rows = self.try_json(&format!("instance list --lrp {process}"))?;
        Ok(rows.as_array().unwrap().clone())
    }

    /// Waits until so many instances of a process are RUNNING and no other is known; answers their rows.
    pub(crate) fn runs(&self, process: &str, count: usize) -> Vec<Value> {
        eventually(&format!("{count} of {process} run"), || {
            let rows = self.instances(process)?;
            let fine = |row: &Value| row["state"] == "RUNNING" && row["stopping"] == false;
            let settled = rows.len() == count && rows.iter().all(fine);
            so(settled, || format!("{rows:#?}")).map(|()| rows)
        })
    }

    /// Starts a command that goes on until it is told to stop.
    pub(crate) fn start(&self, log: &Path, args: &[&str]) -> Service {
        Service::spawn(self.command(args), &args.join(" "), log)
    }
}

/// Runs a program to its end, which must not take for ever.
pub(crate) fn end(mut command: Command, line: String) -> Said {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (out, err) = (gather(child.stdout.take().unwrap()), gather(child.stderr.take().unwrap()));
    let ends = Instant::now() + ENDS;
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
    let Some(status) = status else { panic!("muster {line} does not end\n{out}\n{err}") };
    Said { line, code: status.code().unwrap(), out, err }
}

/// Reads to the end, whatever else happens.
fn gather(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        from.read_to_string(&mut text).unwrap();
        text
    })
}

impl Said {
    /// It must have ended with this status.
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "muster {}\n{}\n{}", self.line, self.out, self.err);
        self
    }

    /// Its answer.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The refusal on its standard error, as programs read it.
    pub(crate) fn refusal(&self) -> Value {
        let line = self.err.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// It must say this to people.
    pub(crate) fn tells(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.err.contains(word) || self.out.contains(word), "no {word:?} in {self:?}");
        }
        self
    }
}

/// A program that runs until it is told to stop. Dropped, it is killed.
pub(crate) struct Service {
    name: String,
    child: Child,
    log: PathBuf,
    ended: bool,
}

impl Service {
    /// Starts `muster` with these arguments and variables; all that it says goes to a file.
    pub(crate) fn start(name: &str, log: &Path, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = muster();
        command.args(args).envs(variables.iter().copied());
        Self::spawn(command, name, log)
    }

    /// Starts `muster` with these arguments and variables on a terminal of a test's own.
    pub(crate) fn on_terminal(
        name: &str,
        terminal: &Terminal,
        log: &Path,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let mut command = muster();
        command.args(args).env("TERM", "xterm-256color").envs(variables.iter().copied());
        command.stdin(terminal.side()).stdout(terminal.side()).stderr(terminal.side());
        let child = command.spawn().unwrap();
        Self { name: name.to_owned(), child, log: log.to_owned(), ended: false }
    }

    fn spawn(mut command: Command, name: &str, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).unwrap();
        let both = file.try_clone().unwrap();
        let child = command.stdout(file).stderr(both).spawn().unwrap();
        Self { name: name.to_owned(), child, log: log.to_owned(), ended: false }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Where it says what it says.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// All that it said so far.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    /// Waits until it says something.
    pub(crate) fn says(&mut self, word: &str) {
        eventually(&format!("{} says {word:?}", self.name), || {
            so(self.said().contains(word), || self.said())
        });
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.ended |= self.child.try_wait().unwrap().is_some();
        self.ended
    }

    /// Kills it at once.
    pub(crate) fn kill9(mut self) {
        self.child.kill().unwrap();
        self.ends(LIMIT);
    }

    /// Asks it to end as Ctrl-C does, and waits until it has.
    pub(crate) fn interrupt(self) -> ExitStatus {
        signal(self.pid(), Signal::INT);
        self.wait()
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait(self) -> ExitStatus {
        self.wait_for(LIMIT)
    }

    /// The same, for so long.
    pub(crate) fn wait_for(mut self, limit: Duration) -> ExitStatus {
        self.ends(limit)
    }

    fn ends(&mut self, limit: Duration) -> ExitStatus {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.ended = true;
                return status;
            }
            assert!(Instant::now() < end, "{} does not end: {}", self.name, self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = self.said();
            let lines: Vec<&str> = said.lines().collect();
            println!("--- {} said", self.name);
            lines[lines.len().saturating_sub(LAST_LINES)..].iter().for_each(|line| println!("{line}"));
        }
        if !self.ended {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}
