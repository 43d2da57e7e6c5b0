//! Life cycle of a container. First the setup runs, then the action and the monitor in parallel. Finally, the
//! whole process tree is ended.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs::File;
use std::future::pending;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use schemas::action::Action;
use schemas::container::{RunResult, WorkKey};
use schemas::health::{MonitorHealth, Probe};
use schemas::isolation::IsolationLayer;
use schemas::limits::{REASON_BYTES, TASK_RESULT_BYTES, truncate};

use super::actions::{Failure, MIB, Performer, Scope};
use super::exec;
use super::log::{Log, Source};
use super::output::Sink;
use super::reaper::Reaper;
use super::transfer_client::TransferClient;
use super::{ContainerPaths, log_error, open_orders, send_hint, signals, wait_for_stop_order, write_status};
use crate::cgroup::out_of_memory_message;
use crate::folder::{Folder, Spec, Status};
use crate::isolation::{self, DiskUsage};
use crate::{clock, processes};

/// Time limit of a probe. A monitor that exceeds the limit has failed.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay before KILL is sent again. The processes that remain were started while KILL was sent to the other
/// processes.
const KILL_RETRY_DELAY: Duration = Duration::from_millis(20);
/// Delay after a container's first probe. The delay doubles with every probe, up to the configured interval.
/// The first delays are short because most containers are healthy soon after their start, and clients wait
/// for healthy containers.
const FIRST_PROBE_DELAY: Duration = Duration::from_millis(10);
/// Shortest delay between two measurements of a container's disk use.
const DISK_MIN_DELAY: Duration = Duration::from_secs(1);
/// Ratio of the delay after a measurement to the duration of the measurement. The delay lies between
/// `DISK_MIN_DELAY` and `DISK_MAX_DELAY`.
const DISK_DELAY_RATIO: u32 = 20;
/// Longest delay between two measurements of a container's disk use. Between two measurements, writes are not
/// limited.
const DISK_MAX_DELAY: Duration = Duration::from_secs(10);
/// Number of consecutive failed measurements after which a container is ended.
const MAX_DISK_FAILURES: u32 = 3;
/// Interval between checks for OOM kills.
const OOM_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit for reading the remaining output after the last process has ended. Only a process outside of
/// the container's process tree can keep the output open after that.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// State of a running container.
struct RunningContainer {
    folder: Folder,
    spec: Spec,
    reaper: Rc<Reaper>,
    performer: Performer,
    log: Sink,
    health: RefCell<MonitorHealth>,
    /// `true` once a failure to write the health has been logged.
    health_error_logged: Cell<bool>,
}

/// End of the recipe (the container's setup, action and monitor). The remaining processes of the container
/// are ended afterwards.
enum End {
    Done,
    /// Reason of the failure. The second field is the exit status of the action, if the exit is the reason.
    Failed(String, Option<i32>),
    Stopped,
}

impl End {
    fn failed(failure: &Failure) -> Self {
        Self::Failed(failure.to_string(), failure.exit_status())
    }

    const fn unhealthy(reason: String) -> Self {
        Self::Failed(reason, None)
    }
}

/// Runs a container until it ends, and writes its result.
pub(super) async fn run(home: ContainerPaths, spec: Spec) -> io::Result<()> {
    let orders = open_orders()?;
    let mut told_to_end = signal(SignalKind::terminate())?;
    signals::reset_ignored_signals()?;
    let reaper = Reaper::start()?;
    let ContainerPaths { folder, work } = home;
    let log = Rc::new(RefCell::new(Log::new(folder.log(), spec.log_bytes)));
    let carrier = TransferClient::new(folder.path().to_owned());
    let performer = Performer::new(spec.clone(), work, Rc::clone(&reaper), carrier);
    let source = spec.recipe.sandbox.as_deref().map_or("", |sandbox| sandbox.log_source.as_str());
    let log = Sink::Log(log, performer.label(source).into());
    let (health, complained) = (RefCell::default(), Cell::new(false));
    let life =
        RunningContainer { folder, spec, reaper, performer, log, health, health_error_logged: complained };

    write_status(&life.folder, &Status::Created)?;
    let end = tokio::select! {
        biased;
        ordered = wait_for_stop_order(&orders) => ordered.map(|()| End::Stopped),
        _ = told_to_end.recv() => Ok(End::Failed("the shim of the container was killed by signal 15 (TERM)".into(), None)),
        reason = life.wait_for_disk_excess() => Ok(End::unhealthy(reason)),
        never = life.log_oom_kills() => match never {},
        never = exec::serve(&life.performer, life.folder.path()) => match never {},
        end = life.run_recipe() => end,
    };
    let end =
        end.unwrap_or_else(|error| End::Failed(format!("the shim of the container failed: {error}"), None));
    life.kill_tree().await?;
    if timeout(OUTPUT_TIMEOUT, life.performer.wait_for_output()).await.is_err() {
        log_error(&"a process outside of the container holds its output open");
    }
    write_status(&life.folder, &Status::Completed(life.result(end)))
}

impl RunningContainer {
    /// Waits until the container exceeds its disk limit, or until its disk use cannot be measured. Returns
    /// the reason.
    async fn wait_for_disk_excess(&self) -> String {
        let limit_mb = self.spec.recipe.resources.disk_mb;
        if limit_mb == 0 || !self.spec.plan.as_ref().is_some_and(|plan| plan.has(IsolationLayer::Disk)) {
            return pending().await;
        }
        let limit = limit_mb.saturating_mul(MIB);
        let sees_all = self.spec.plan.as_ref().is_some_and(isolation::leaves_host);
        let shim = rustix::process::getpid().as_raw_pid();
        let counted = DiskUsage::new(self.folder.path(), shim, sees_all);
        let mut failures = 0;
        loop {
            let (begun, counted) = (Instant::now(), counted.clone());
            let used = tokio::task::spawn_blocking(move || counted.used_bytes(limit)).await;
            match used.map_err(io::Error::other).flatten() {
                Ok(bytes) if bytes > limit => return format!("out of disk (limit {limit_mb} MiB)"),
                Ok(_) => failures = 0,
                Err(error) => {
                    failures += 1;
                    if failures >= MAX_DISK_FAILURES {
                        return format!("cannot measure the disk use (limit {limit_mb} MiB): {error}");
                    }
                }
            }
            // A longer measurement causes a longer delay, so containers with many files are measured less
            // often.
            sleep((begun.elapsed() * DISK_DELAY_RATIO).clamp(DISK_MIN_DELAY, DISK_MAX_DELAY)).await;
        }
    }

    /// Logs each increase in the number of the container's OOM kills. Programs of the container that were not
    /// killed may continue.
    async fn log_oom_kills(&self) -> Infallible {
        let Some(plan) = self.spec.plan.as_ref().filter(|plan| plan.has(IsolationLayer::Memory)) else {
            return pending().await;
        };
        let memory_mb = self.spec.recipe.resources.memory_mb;
        let mut known = 0;
        loop {
            sleep(OOM_CHECK_INTERVAL).await;
            let kills = plan.limits.oom_kills();
            if kills > known {
                let line = format!(
                    "the kernel killed a program: {}, {kills} so far",
                    out_of_memory_message(memory_mb)
                );
                self.log.write(Source::Err, std::iter::once(line.as_str()));
            }
            known = kills;
        }
    }

    /// Runs setup, action and monitor.
    async fn run_recipe(&self) -> io::Result<End> {
        let recipe = &self.spec.recipe;
        if let Err(failure) = self.performer.fetch_dependencies(&self.logging_scope(None)).await {
            return Ok(End::Failed(format!("failed to download cached dependencies: {failure}"), None));
        }
        if let Some(setup) = &recipe.setup
            && let Err(failure) = self.performer.perform(setup, &self.logging_scope(None)).await
        {
            return Ok(End::Failed(
                format!("Setup failed: {}", self.performer.failure_reason(&failure)),
                None,
            ));
        }
        let begun = Notify::new();
        let scope = self.logging_scope(Some(&begun));
        let action = self.performer.perform(&recipe.action, &scope);
        match &recipe.monitor {
            None => self.run_unmonitored(action, &begun).await,
            Some(monitor) => self.run_monitored(action, monitor).await,
        }
    }

    /// Runs an action without a monitor. The container is RUNNING once the first program of the action has
    /// started.
    async fn run_unmonitored(
        &self,
        action: impl Future<Output = Result<(), Failure>>,
        begun: &Notify,
    ) -> io::Result<End> {
        let running = async {
            begun.notified().await;
            match write_status(&self.folder, &Status::Running) {
                Ok(()) => pending().await,
                Err(error) => error,
            }
        };
        tokio::select! {
            biased;
            error = running => Err(error),
            done = action => Ok(match (done, &self.spec.recipe.work) {
                (Err(failure), _) => self.end_of_failure(&failure),
                (Ok(()), WorkKey::Task { .. }) => End::Done,
                // The action of an LRP must not end, so an exit with status 0 is a failure.
                (Ok(()), WorkKey::Lrp { .. }) => End::failed(&Failure::Exited(0)),
            }),
        }
    }

    fn end_of_failure(&self, failure: &Failure) -> End {
        End::Failed(self.performer.failure_reason(failure), failure.exit_status())
    }

    /// Runs the action and its monitor concurrently. The monitor determines when the container is RUNNING. If
    /// the action of a task succeeds, the task is done. If the action of an LRP succeeds, it may have left
    /// processes in the background. In this case, the monitor continues to probe these processes.
    async fn run_monitored(
        &self,
        action: impl Future<Output = Result<(), Failure>>,
        monitor: &Action,
    ) -> io::Result<End> {
        let mut watch = pin!(self.watch_health(monitor));
        let done = tokio::select! {
            biased;
            done = action => done,
            reason = &mut watch => return reason.map(End::unhealthy),
        };
        match (done, &self.spec.recipe.work) {
            (Err(failure), _) => Ok(self.end_of_failure(&failure)),
            (Ok(()), WorkKey::Task { .. }) => Ok(End::Done),
            (Ok(()), WorkKey::Lrp { .. }) => watch.await.map(End::unhealthy),
        }
    }

    /// Probes until the container becomes unhealthy, or until the container exceeds the time limit for
    /// becoming healthy. Returns the reason.
    async fn watch_health(&self, monitor: &Action) -> io::Result<String> {
        if let Err(reason) = self.wait_until_healthy(monitor).await {
            return Ok(reason);
        }
        write_status(&self.folder, &Status::Running)?;
        loop {
            sleep(self.spec.healthy_monitoring_interval).await;
            if let Some(complaint) = self.probe(monitor).await {
                return Ok(format!("Instance became unhealthy: {complaint}"));
            }
        }
    }

    async fn wait_until_healthy(&self, monitor: &Action) -> Result<(), String> {
        let limit = Duration::from_millis(self.spec.recipe.start_timeout_ms);
        let last = RefCell::new("the monitor did not end".to_owned());
        let healthy = async {
            let longest = self.spec.unhealthy_monitoring_interval;
            let mut pause = FIRST_PROBE_DELAY;
            while let Some(complaint) = self.probe(monitor).await {
                *last.borrow_mut() = complaint;
                sleep(pause.min(longest)).await;
                pause = pause.saturating_mul(2);
            }
        };
        if limit.is_zero() {
            healthy.await;
            return Ok(());
        }
        // When the time limit is exceeded, the current probe is dropped. Its processes end with the whole
        // process tree.
        let in_time = timeout_at(Instant::now() + limit, healthy).await;
        in_time.map_err(|_| format!("Instance never healthy after {limit:?}: {}", last.borrow()))
    }

    /// Runs one probe and records its result. Returns the failure, or `None` if the probe succeeded.
    async fn probe(&self, monitor: &Action) -> Option<String> {
        let output = Rc::new(RefCell::new(VecDeque::new()));
        let sink = Sink::Tail(Rc::clone(&output));
        let scope = Scope::for_probe(sink);
        let failure = self.performer.with_timeout(monitor, PROBE_TIMEOUT, &scope).await.err();
        let probe = Probe {
            at: clock::now(),
            failure: failure.map(|failure| truncate(&failure.to_string(), REASON_BYTES)),
            output: output.take().into(),
        };
        let complaint = probe.failure_summary();
        if let Err(error) = self.record_probe(probe)
            && !self.health_error_logged.replace(true)
        {
            log_error(&format!("cannot record the health: {error}"));
        }
        complaint
    }

    /// Records the result of a probe. Sends a hint if the reported health changed.
    fn record_probe(&self, probe: Probe) -> io::Result<()> {
        let changed = self.health.borrow_mut().record(probe);
        self.folder.write_health(&self.health.borrow())?;
        if changed { send_hint() } else { Ok(()) }
    }

    /// Returns the scope of programs whose output goes to the container's log.
    fn logging_scope<'a>(&self, begun: Option<&'a Notify>) -> Scope<'a> {
        Scope::new(begun, self.log.clone())
    }

    /// Ends every process of the container: sends TERM, then KILL to the processes that remain after the
    /// grace period. Waits until all processes have ended, including those that do not react to KILL because
    /// a failed disk blocks them.
    async fn kill_tree(&self) -> io::Result<()> {
        if self.reaper.childless_within(Duration::ZERO).await {
            return Ok(());
        }
        let pid = rustix::process::getpid().as_raw_pid();
        let all =
            |signal| processes::descendants(pid).into_iter().try_for_each(|process| process.signal(signal));
        all(Signal::TERM)?;
        let grace = Duration::from_millis(self.spec.recipe.grace_period_ms);
        if self.reaper.childless_within(grace).await {
            return Ok(());
        }
        loop {
            all(Signal::KILL)?;
            if self.reaper.childless_within(KILL_RETRY_DELAY).await {
                return Ok(());
            }
        }
    }

    /// Converts the end of a recipe to the result of the container.
    fn result(&self, end: End) -> RunResult {
        let failed = |reason: &str, exit_status| {
            let reason = truncate(reason, REASON_BYTES);
            RunResult::Failed { reason, exit_status }
        };
        match end {
            End::Stopped => RunResult::Stopped,
            End::Failed(reason, exit_status) => failed(&reason, exit_status),
            End::Done if self.spec.recipe.result_file.is_empty() => {
                RunResult::Succeeded { result: String::new() }
            }
            End::Done => match read_result_file(&self.folder, &self.spec.recipe.result_file) {
                Ok(result) => RunResult::Succeeded { result },
                Err(reason) => failed(&reason, Some(0)),
            },
        }
    }
}

/// Returns the folder that contains a task's result file, and the path of the file relative to this folder.
/// The file is in the work directory or in the container's `/tmp`.
fn locate_result_file(folder: &Folder, path: &str) -> (PathBuf, String) {
    let in_tmp = ["/tmp/", "/var/tmp/"].iter().find_map(|tmp| path.strip_prefix(tmp));
    let in_work = path.strip_prefix(isolation::WORK_DIR).filter(|rest| rest.starts_with('/'));
    match (in_tmp, in_work) {
        (Some(rest), _) => (folder.path().join("tmp"), rest.trim_start_matches('/').to_owned()),
        (None, rest) => (folder.work(), rest.unwrap_or(path).trim_start_matches('/').to_owned()),
    }
}

/// Reads a task's result file. Symbolic links cannot lead out of the folder.
fn read_result_file(folder: &Folder, path: &str) -> Result<String, String> {
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let unreadable = |error: io::Error| format!("cannot read the result file {name}: {error}");
    let (within, path) = locate_result_file(folder, path);
    let file = open_beneath(&within, &path).map_err(|error| match error {
        Errno::XDEV | Errno::LOOP => format!("the result file {name} leads out of the work directory"),
        error => unreadable(error.into()),
    })?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(format!("the result file {name} is not a file"));
    }
    let mut bytes = vec![];
    let limit = u64::try_from(TASK_RESULT_BYTES).expect("the limit is small");
    file.take(limit + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > TASK_RESULT_BYTES {
        return Err(format!("result file is larger than {TASK_RESULT_BYTES} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "result file is not UTF-8 text".to_owned())
}

/// Opens a file below a folder of the container. Symbolic links are followed only within the folder.
fn open_beneath(folder: &Path, path: &str) -> rustix::io::Result<File> {
    let at = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // A task may have created a pipe with that name, so the file is opened without blocking.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(at, path, flags, Mode::empty(), resolve)?.into())
}
