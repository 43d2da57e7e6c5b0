//! Execution of actions (docs/internals/model/containers.md, "Containers"). Each kind has one function: run,
//! timeout, try, parallel, serial, codependent, emit progress. Downloads and uploads are in `transfer.rs`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use futures::future::{LocalBoxFuture, join_all};
use futures::stream::{FuturesUnordered, StreamExt};
use rustix::io::Errno;
use rustix::process::{Signal, WaitStatus};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use schemas::action::{Action, EmitProgress, Run, Timeout, Try};
use schemas::container::WorkKey;
use schemas::exec::ExecEnd;
use schemas::isolation::IsolationLayer;

use super::log::Source;
use super::log_error;
use super::output::{Output, Sink};
use super::reaper::Reaper;
use super::transfer_client::TransferClient;
use crate::cgroup::out_of_memory_message;
use crate::folder::Spec;
use crate::isolation::{self, Operation, ProgramRequest, Session, StartError};
use crate::{environment, processes};

/// Polling interval while the shim waits for signalled processes to end.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
pub(super) const MIB: u64 = 1024 * 1024;
/// Signals that are reported by name. Other signals are reported by number.
const SIGNALS: [(Signal, &str); 15] = [
    (Signal::HUP, "HUP"),
    (Signal::INT, "INT"),
    (Signal::QUIT, "QUIT"),
    (Signal::ILL, "ILL"),
    (Signal::TRAP, "TRAP"),
    (Signal::ABORT, "ABRT"),
    (Signal::BUS, "BUS"),
    (Signal::FPE, "FPE"),
    (Signal::KILL, "KILL"),
    (Signal::USR1, "USR1"),
    (Signal::SEGV, "SEGV"),
    (Signal::PIPE, "PIPE"),
    (Signal::TERM, "TERM"),
    (Signal::XCPU, "XCPU"),
    (Signal::XFSZ, "XFSZ"),
];

/// Failure of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// A program exited with this status.
    Exited(i32),
    /// Any other reason.
    Reason(String),
    /// An enclosing action interrupted this action. The enclosing action reports the reason.
    Interrupted,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "Exited with status {status}"),
            Self::Reason(reason) => f.write_str(reason),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl Failure {
    /// Returns the exit status if the failure is the exit of a program. `None` otherwise.
    pub(super) const fn exit_status(&self) -> Option<i32> {
        match self {
            Self::Exited(status) => Some(*status),
            Self::Reason(_) | Self::Interrupted => None,
        }
    }
}

/// Context of an action.
pub(super) struct Scope<'a> {
    /// Token whose cancellation interrupts the action.
    pub(super) interrupt: CancellationToken,
    /// Notification that a program of the action has started.
    pub(super) program_started: Option<&'a Notify>,
    /// Destination of the output.
    pub(super) sink: Sink,
    /// `true` if the action kills processes that its programs leave behind.
    pub(super) kills_leftovers: bool,
}

impl<'a> Scope<'a> {
    /// Creates a scope that can be interrupted separately.
    pub(super) fn new(program_started: Option<&'a Notify>, sink: Sink) -> Self {
        Self { interrupt: CancellationToken::new(), program_started, sink, kills_leftovers: false }
    }

    /// Creates the scope of a probe.
    pub(super) fn for_probe(sink: Sink) -> Self {
        Self { kills_leftovers: true, ..Self::new(None, sink) }
    }

    /// Creates a nested scope that can be interrupted without its parent.
    fn child(&self) -> Self {
        Self { interrupt: self.interrupt.child_token(), sink: self.sink.clone(), ..*self }
    }

    /// Returns a copy of the scope with the log label `label`. If `label` is empty, the label stays
    /// unchanged.
    pub(super) fn with_label(&self, label: &str) -> Self {
        Self { interrupt: self.interrupt.clone(), sink: self.sink.with_label(label), ..*self }
    }
}

/// Performs the actions of one container.
pub(super) struct Performer {
    pub(super) spec: Spec,
    pub(super) work: PathBuf,
    pub(super) transfers: TransferClient,
    /// Number of the container's OOM kills that the shim has already seen.
    known_oom_kills: Cell<u64>,
    /// Last standard error line of the most recently failed program.
    last_error: RefCell<Option<String>>,
    reaper: Rc<Reaper>,
    copies: RefCell<JoinSet<()>>,
}

/// A program that was started.
pub(super) struct Program {
    pid: i32,
    end: oneshot::Receiver<WaitStatus>,
    outputs: Vec<Rc<Output>>,
}

impl Performer {
    pub(super) fn new(spec: Spec, work: PathBuf, reaper: Rc<Reaper>, transfers: TransferClient) -> Self {
        let (known_oom_kills, last_error, copies) = (Cell::default(), RefCell::default(), RefCell::default());
        Self { spec, work, transfers, known_oom_kills, last_error, reaper, copies }
    }

    /// Returns the log label of a source. It consists of the source and the instance index, as in Cloud
    /// Foundry. The index of a task is 0.
    pub(super) fn label(&self, source: &str) -> String {
        let index = match &self.spec.recipe.work {
            WorkKey::Lrp { key, .. } => key.place.index,
            WorkKey::Task { .. } => 0,
        };
        if source.is_empty() { String::new() } else { format!("{source}/{index}") }
    }

    /// Performs an action until it ends.
    pub(super) fn perform<'a>(
        &'a self,
        action: &'a Action,
        scope: &'a Scope<'a>,
    ) -> LocalBoxFuture<'a, Result<(), Failure>> {
        match action {
            Action::Run(run) => Box::pin(self.run(run, scope)),
            Action::Timeout(Timeout { action, timeout_ms }) => {
                Box::pin(self.with_timeout(action, Duration::from_millis(*timeout_ms), scope))
            }
            Action::Try(Try { action }) => Box::pin(self.attempt(action, scope)),
            Action::Parallel(group) => Box::pin(self.parallel(&group.actions, scope)),
            Action::Serial(group) => Box::pin(self.serial(&group.actions, scope)),
            Action::Codependent(group) => Box::pin(self.codependent(&group.actions, scope)),
            Action::EmitProgress(progress) => Box::pin(self.emit_progress(progress, scope)),
            Action::Download(download) => Box::pin(self.download(download, scope)),
            Action::Upload(upload) => Box::pin(self.upload(upload, scope)),
        }
    }

    /// Performs an action with a time limit. An action that exceeds the limit is interrupted and counts as
    /// failed.
    pub(super) async fn with_timeout(
        &self,
        action: &Action,
        limit: Duration,
        scope: &Scope<'_>,
    ) -> Result<(), Failure> {
        let inner = scope.child();
        let mut performed = pin!(self.perform(action, &inner));
        tokio::select! {
            biased;
            done = &mut performed => return done,
            () = sleep(limit) => inner.interrupt.cancel(),
        }
        match performed.await {
            Err(Failure::Interrupted) if scope.interrupt.is_cancelled() => Err(Failure::Interrupted),
            Ok(()) | Err(Failure::Interrupted | Failure::Exited(_) | Failure::Reason(_)) => {
                Err(Failure::Reason(format!("exceeded {limit:?} timeout")))
            }
        }
    }

    /// Performs an action and ignores its failure.
    async fn attempt(&self, action: &Action, scope: &Scope<'_>) -> Result<(), Failure> {
        match self.perform(action, scope).await {
            Ok(()) | Err(Failure::Exited(_) | Failure::Reason(_)) => Ok(()),
            Err(Failure::Interrupted) => Err(Failure::Interrupted),
        }
    }

    /// Performs actions concurrently, waits until all of them have ended, and returns all failures.
    async fn parallel(&self, actions: &[Action], scope: &Scope<'_>) -> Result<(), Failure> {
        let mut failures = vec![];
        for done in join_all(actions.iter().map(|action| self.perform(action, scope))).await {
            match done {
                Ok(()) => {}
                Err(Failure::Interrupted) => return Err(Failure::Interrupted),
                Err(failure @ (Failure::Exited(_) | Failure::Reason(_))) => failures.push(failure),
            }
        }
        match failures.as_slice() {
            [] => Ok(()),
            [failure] => Err(failure.clone()),
            several => {
                let reasons: Vec<_> = several.iter().map(Failure::to_string).collect();
                Err(Failure::Reason(reasons.join("; ")))
            }
        }
    }

    /// Performs actions in order until one fails.
    async fn serial(&self, actions: &[Action], scope: &Scope<'_>) -> Result<(), Failure> {
        for action in actions {
            self.perform(action, scope).await?;
        }
        Ok(())
    }

    /// Performs actions concurrently. When the first action ends, the other actions are interrupted.
    async fn codependent(&self, actions: &[Action], scope: &Scope<'_>) -> Result<(), Failure> {
        let inner = scope.child();
        let mut all: FuturesUnordered<_> =
            actions.iter().map(|action| self.perform(action, &inner)).collect();
        let first = all.next().await.unwrap_or(Ok(()));
        inner.interrupt.cancel();
        while all.next().await.is_some() {}
        Err(match first {
            Ok(()) => Failure::Reason("Codependent step exited".into()),
            Err(failure) => failure,
        })
    }

    /// Performs an action and logs its start and end.
    async fn emit_progress(&self, progress: &EmitProgress, scope: &Scope<'_>) -> Result<(), Failure> {
        let EmitProgress { action, start_message, success_message, failure_message_prefix, log_source } =
            progress;
        let own = scope.with_label(&self.label(log_source));
        log_line(Source::Out, start_message, &own);
        let done = self.perform(action, scope).await;
        match &done {
            Ok(()) => log_line(Source::Out, success_message, &own),
            Err(failure) if !failure_message_prefix.is_empty() => {
                log_line(Source::Err, &format!("{failure_message_prefix}: {failure}"), &own);
            }
            Err(_) => {}
        }
        done
    }

    /// Runs a program.
    async fn run(&self, run: &Run, scope: &Scope<'_>) -> Result<(), Failure> {
        if scope.interrupt.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        let started = self.start(run, &scope.sink.with_label(&self.label(&run.log_source)));
        let program = started.map_err(Failure::Reason)?;
        if let Some(begun) = scope.program_started {
            begun.notify_one();
        }
        let outputs = program.outputs.clone();
        let status = self.wait_for_end(program, scope).await.ok_or(Failure::Interrupted)?;
        let judged = self.result_of(status);
        // Probes do not set the last error line, because their output must not appear in the failure reason
        // of the action.
        if judged.is_err() && matches!(scope.sink, Sink::Log(..)) {
            self.last_error.replace(outputs.iter().find_map(|output| output.last_error()));
        }
        judged
    }

    /// Waits for the end of a program and reads its remaining output. `None` if the scope was interrupted and
    /// the program was therefore terminated.
    pub(super) async fn wait_for_end(&self, mut program: Program, scope: &Scope<'_>) -> Option<WaitStatus> {
        let end = tokio::select! {
            biased;
            end = &mut program.end => Some(end.expect("the reaper reports every end")),
            () = scope.interrupt.cancelled() => None,
        };
        if end.is_none() {
            self.terminate(program.pid, Signal::TERM).await;
        }
        if scope.kills_leftovers {
            let shim = rustix::process::getpid().as_raw_pid();
            signal_all(&processes::orphaned_members(shim, program.pid), Signal::KILL);
        }
        for output in &program.outputs {
            if let Err(error) = output.drain() {
                log_error(&format!("cannot read output: {error}"));
            }
        }
        end
    }

    /// Starts a program in a separate process group. Returns the reason if the start failed.
    fn start(&self, run: &Run, sink: &Sink) -> Result<Program, String> {
        let output = || if run.suppress_log_output { Stdio::null() } else { Stdio::piped() };
        let (stdout, stderr) = (output(), output());
        let child = match (&self.spec.plan, run.resource_limits.nofile) {
            (None, None) => self.start_direct(run, stdout, stderr)?,
            (Some(_), _) | (None, Some(_)) => self.start_confined(run, stdout, stderr)?,
        };
        Ok(self.program(child, sink))
    }

    /// Returns the pid of a newly started child, and a receiver for its exit status.
    pub(super) fn register_child(&self, child: &Child) -> (i32, oneshot::Receiver<WaitStatus>) {
        let pid = i32::try_from(child.id()).expect("a pid is an i32");
        (pid, self.reaper.register(pid))
    }

    /// Registers a newly started child, and copies its output to `sink`.
    pub(super) fn program(&self, mut child: Child, sink: &Sink) -> Program {
        let (pid, end) = self.register_child(&child);
        let pipes = [
            (child.stdout.take().map(OwnedFd::from), Source::Out),
            (child.stderr.take().map(OwnedFd::from), Source::Err),
        ];
        let mut outputs = vec![];
        for (pipe, source) in pipes {
            let Some(pipe) = pipe else { continue };
            match Output::new(pipe, source, sink.clone()) {
                Ok(output) => outputs.push(self.copy_in_background(output)),
                Err(error) => log_error(&format!("cannot read output: {error}")),
            }
        }
        Program { pid, end, outputs }
    }

    /// Starts a program as the user of this shim.
    fn start_direct(&self, run: &Run, stdout: Stdio, stderr: Stdio) -> Result<Child, String> {
        let dir = self.work.join(&run.dir);
        let started = Command::new(&run.path)
            .args(&run.args)
            .current_dir(&dir)
            .env_clear()
            .envs(self.environment(run))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .spawn();
        // The system returns the same error if the program is missing and if the directory is missing.
        started.map_err(|error| match dir.metadata() {
            Ok(found) if found.is_dir() => cannot_start(run, &error),
            Ok(_) => working_dir_error(run, Some(Errno::NOTDIR.raw_os_error()), ""),
            Err(wrong) => working_dir_error(run, wrong.raw_os_error(), &wrong.to_string()),
        })
    }

    /// Starts a program through a process that first drops all its rights.
    fn start_confined(&self, run: &Run, stdout: Stdio, stderr: Stdio) -> Result<Child, String> {
        let failed = |error: io::Error| cannot_start(run, &error);
        let (child, socket) = spawn_confined(stdout, stderr).map_err(failed)?;
        self.request_run(socket, run, Session::Container, None).map(|()| child)
    }

    /// Sends the run request to a started process, and waits until it has become the program.
    pub(super) fn request_run(
        &self,
        socket: UnixStream,
        run: &Run,
        session: Session,
        input: Option<BorrowedFd<'_>>,
    ) -> Result<(), String> {
        let wish = ProgramRequest {
            environment: self.environment(run),
            dir: self.work.join(&run.dir),
            nofile: run.resource_limits.nofile,
            session,
            ..self.request(Operation::Run { path: run.path.clone(), args: run.args.clone() }, &run.user)
        };
        match isolation::send_request(socket, &wish, input).map_err(|error| cannot_start(run, &error))? {
            Ok(()) => Ok(()),
            Err(StartError::WorkingDir(number, text)) => Err(working_dir_error(run, number, &text)),
            Err(StartError::Other(why)) => Err(format!("cannot start {}: {why}", run.path)),
        }
    }

    /// Returns the request for an operation that is performed in the container as one of its users.
    pub(super) fn request(&self, deed: Operation, user: &str) -> ProgramRequest {
        ProgramRequest {
            plan: self.spec.plan.clone(),
            operation: deed,
            environment: BTreeMap::new(),
            work: self.work.clone(),
            dir: self.work.clone(),
            user: user.to_owned(),
            max_file_bytes: self.max_file_bytes(),
            nofile: None,
            session: Session::Container,
        }
    }

    fn environment(&self, run: &Run) -> BTreeMap<String, String> {
        environment::program_environment(&self.spec, &self.work, |name| std::env::var(name).ok(), &run.env)
    }

    /// Returns the maximum size of a file that a program may write, in bytes. `None` if unlimited.
    fn max_file_bytes(&self) -> Option<u64> {
        let disk_mb = self.spec.recipe.resources.disk_mb;
        let limited = self.spec.plan.as_ref().is_some_and(|plan| plan.has(IsolationLayer::Disk));
        (limited && disk_mb > 0).then(|| disk_mb.saturating_mul(MIB))
    }

    /// Converts an exit status to a result. The exit status does not show whether the kernel killed a process
    /// for lack of memory. For this reason, the function compares the kernel's counter of OOM kills with the
    /// last known value.
    pub(super) fn result_of(&self, status: WaitStatus) -> Result<(), Failure> {
        let done = status_result(status);
        let Some(plan) = self.spec.plan.as_ref().filter(|_| done.is_err()) else { return done };
        let kills = plan.limits.oom_kills();
        if kills > self.known_oom_kills.replace(kills) {
            return Err(Failure::Reason(out_of_memory_message(self.spec.recipe.resources.memory_mb)));
        }
        done
    }

    /// Converts the exit status of an additional program to the form that the client receives.
    pub(super) fn exec_end(&self, status: WaitStatus) -> ExecEnd {
        let judged = self.result_of(status);
        let reason = judged.err().map_or_else(String::new, |failure| failure.to_string());
        match (status.exit_status(), status.terminating_signal()) {
            (Some(status), _) => ExecEnd::Exited(status),
            (None, Some(signal)) => ExecEnd::Killed { signal, reason },
            (None, None) => ExecEnd::Failed(reason),
        }
    }

    /// Copies output in the background for as long as a process can write to the output. Detached programs
    /// can write even after the program that started them has ended.
    fn copy_in_background(&self, output: Output) -> Rc<Output> {
        let output = Rc::new(output);
        let copied = Rc::clone(&output);
        let mut copies = self.copies.borrow_mut();
        while copies.try_join_next().is_some() {}
        copies.spawn_local(async move {
            if let Err(error) = copied.copy().await {
                log_error(&format!("cannot read output: {error}"));
            }
        });
        output
    }

    /// Returns the text of a failure. A nonzero exit status is followed by the last line that the program
    /// wrote to its standard error.
    pub(super) fn failure_reason(&self, failure: &Failure) -> String {
        match (failure, &*self.last_error.borrow()) {
            (Failure::Exited(status), Some(line)) if *status != 0 => format!("{failure}: {line}"),
            (Failure::Exited(_) | Failure::Reason(_) | Failure::Interrupted, _) => failure.to_string(),
        }
    }

    /// Waits until all output has been copied.
    pub(super) async fn wait_for_output(&self) {
        let mut copies = self.copies.take();
        while copies.join_next().await.is_some() {}
    }

    /// Ends a program and its descendants: sends the signal `first`, then KILL to the processes that remain
    /// after the grace period. Processes that detached earlier are not found here, and end with the
    /// container.
    pub(super) async fn terminate(&self, pid: i32, first: Signal) {
        let shim = rustix::process::getpid().as_raw_pid();
        let kill_at = Instant::now() + Duration::from_millis(self.spec.recipe.grace_period_ms);
        // The set is kept across iterations. If the parent of a process ends, the process becomes a child of
        // the shim, and its program can no longer be determined.
        let mut members = processes::group_members(shim, pid);
        signal_all(&members, first);
        loop {
            members.retain(|process| process.alive());
            if members.is_empty() {
                return;
            }
            if Instant::now() >= kill_at {
                members.extend(processes::group_members(shim, pid));
                signal_all(&members, Signal::KILL);
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Starts a process that waits for a request on the returned socket. The process drops all rights before it
/// performs the requested operation.
pub(super) fn spawn_confined(stdout: Stdio, stderr: Stdio) -> io::Result<(Child, UnixStream)> {
    let (ours, mut command) = confined_command(stdout, stderr)?;
    Ok((command.process_group(0).spawn()?, ours))
}

/// Prepares the command that [`spawn_confined`] runs, without starting it. The caller can start the command
/// outside of a new process group. This is necessary for a process that will lead a session, because a leader
/// of a process group cannot create a session.
pub(super) fn confined_command(stdout: Stdio, stderr: Stdio) -> io::Result<(UnixStream, Command)> {
    let (ours, its) = UnixStream::pair()?;
    // The first two arguments of this process are the command `shim` and the container's folder.
    let arguments = std::env::args_os().skip(1).take(2);
    let mut command = isolation::reexec_command();
    command
        .args(arguments)
        .arg(isolation::PROGRAM)
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(its)))
        .stdout(stdout)
        .stderr(stderr);
    Ok((ours, command))
}

pub(super) fn cannot_start(run: &Run, error: &io::Error) -> String {
    format!("cannot start {}: {error}", run.path)
}

/// Returns the error message for an unusable working directory. `number` is the error number of the operating
/// system.
fn working_dir_error(run: &Run, number: Option<i32>, text: &str) -> String {
    match number.map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => format!("working directory `{}` does not exist", run.dir),
        Some(Errno::NOTDIR) => format!("working directory `{}` is not a directory", run.dir),
        Some(_) | None => format!("cannot use the working directory `{}`: {text}", run.dir),
    }
}

pub(super) fn log_line(source: Source, message: &str, scope: &Scope<'_>) {
    if !message.is_empty() {
        scope.sink.write(source, message.lines());
    }
}

fn signal_all<'a>(processes: impl IntoIterator<Item = &'a processes::Process>, signal: Signal) {
    for process in processes {
        if let Err(error) = process.signal(signal) {
            log_error(&format!("cannot send a signal: {error}"));
        }
    }
}

/// Converts an exit status to a result.
fn status_result(status: WaitStatus) -> Result<(), Failure> {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => Ok(()),
        (Some(status), _) => Err(Failure::Exited(status)),
        (None, Some(number)) => {
            let name = SIGNALS.iter().find(|(signal, _)| signal.as_raw() == number).map(|(_, name)| name);
            let name = name.map_or_else(String::new, |name| format!(" ({name})"));
            Err(Failure::Reason(format!("Killed by signal {number}{name}")))
        }
        // The reaper reports only children that have ended, so an ended child without an exit status and a
        // signal is not expected.
        (None, None) => Err(Failure::Reason("Ended with an unknown status".into())),
    }
}
