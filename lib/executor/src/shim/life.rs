//! Life cycle of a container: setup, then action and monitor in parallel, then the end of the whole process
//! tree.

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
use schemas::isolation::Wall;
use schemas::limits::{REASON_BYTES, TASK_RESULT_BYTES, cut};

use super::carry::Carrier;
use super::exec;
use super::log::{Log, Source};
use super::output::Sink;
use super::perform::{Failure, MIB, Performer, Scope};
use super::reaper::Reaper;
use super::{Home, complain, hint, orders, report, signals, stop_ordered};
use crate::cgroup::out_of_memory;
use crate::folder::{Folder, Spec, Status};
use crate::isolation::{self, Counted};
use crate::{clock, processes};

/// Time limit of a probe. A monitor that exceeds it has failed.
const PROBE_LIMIT: Duration = Duration::from_secs(30);
/// Delay before KILL is repeated. Processes that survive it were started during the previous pass.
const KILL_PAUSE: Duration = Duration::from_millis(20);
/// Delay after a container's first probe. It doubles up to the configured interval, since most containers are
/// healthy soon after their start, and clients wait for that.
const FIRST_PROBE_PAUSE: Duration = Duration::from_millis(10);
/// Shortest delay between two measurements of a container's disk use.
const DISK_LOOK: Duration = Duration::from_secs(1);
/// Ratio of the delay after a measurement to its duration, up to the longest delay.
const DISK_SHARE: u32 = 20;
/// Longest delay between two measurements. Writes in between are not limited.
const DISK_LONGEST: Duration = Duration::from_secs(10);
/// Number of consecutive failed measurements after which a container is ended.
const DISK_FAILURES: u32 = 3;
/// Interval between checks for OOM kills.
const KILLS_LOOK: Duration = Duration::from_secs(1);
/// Time that output may outlast the last process. Only a process outside of the tree can hold it open longer.
const OUTPUT_LIMIT: Duration = Duration::from_secs(1);

/// State of a running container.
struct Life {
    folder: Folder,
    spec: Spec,
    reaper: Rc<Reaper>,
    performer: Performer,
    log: Sink,
    health: RefCell<MonitorHealth>,
    /// `true` once a failure to write the health has been logged.
    complained: Cell<bool>,
}

/// End of the recipe, before its remaining processes are ended.
enum End {
    Done,
    /// Reason, and the exit status of the action if that is the reason.
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
pub(super) async fn live(home: Home, spec: Spec) -> io::Result<()> {
    let orders = orders()?;
    let mut told_to_end = signal(SignalKind::terminate())?;
    signals::heed_all()?;
    let reaper = Reaper::start()?;
    let Home { folder, work } = home;
    let log = Rc::new(RefCell::new(Log::new(folder.log(), spec.log_bytes)));
    let carrier = Carrier::new(folder.path().to_owned());
    let performer = Performer::new(spec.clone(), work, Rc::clone(&reaper), carrier);
    let source = spec.recipe.sandbox.as_deref().map_or("", |sandbox| sandbox.log_source.as_str());
    let log = Sink::Log(log, performer.label(source).into());
    let (health, complained) = (RefCell::default(), Cell::new(false));
    let life = Life { folder, spec, reaper, performer, log, health, complained };

    report(&life.folder, &Status::Created)?;
    let end = tokio::select! {
        biased;
        ordered = stop_ordered(&orders) => ordered.map(|()| End::Stopped),
        _ = told_to_end.recv() => Ok(End::Failed("the shim of the container was killed by signal 15 (TERM)".into(), None)),
        reason = life.over_disk() => Ok(End::unhealthy(reason)),
        never = life.log_kills() => match never {},
        never = exec::serve(&life.performer, life.folder.path()) => match never {},
        end = life.recipe() => end,
    };
    let end =
        end.unwrap_or_else(|error| End::Failed(format!("the shim of the container failed: {error}"), None));
    life.end_tree().await?;
    if timeout(OUTPUT_LIMIT, life.performer.output_ended()).await.is_err() {
        complain(&"somebody outside of the container holds its output");
    }
    report(&life.folder, &Status::Completed(life.result(end)))
}

impl Life {
    /// Waits until the container exceeds its disk limit, or its disk use cannot be measured. Returns the
    /// reason.
    async fn over_disk(&self) -> String {
        let limit_mb = self.spec.recipe.resources.disk_mb;
        if limit_mb == 0 || !self.spec.plan.as_ref().is_some_and(|plan| plan.has(Wall::Disk)) {
            return pending().await;
        }
        let limit = limit_mb.saturating_mul(MIB);
        let sees_all = self.spec.plan.as_ref().is_some_and(isolation::leaves_host);
        let shim = rustix::process::getpid().as_raw_pid();
        let counted = Counted::new(self.folder.path(), shim, sees_all);
        let mut failures = 0;
        loop {
            let (begun, counted) = (Instant::now(), counted.clone());
            let used = tokio::task::spawn_blocking(move || counted.used(limit)).await;
            match used.map_err(io::Error::other).flatten() {
                Ok(bytes) if bytes > limit => return format!("out of disk (limit {limit_mb} MiB)"),
                Ok(_) => failures = 0,
                Err(error) => {
                    failures += 1;
                    if failures >= DISK_FAILURES {
                        return format!("its disk use can't be counted (limit {limit_mb} MiB): {error}");
                    }
                }
            }
            // Containers with many files are measured less often.
            sleep((begun.elapsed() * DISK_SHARE).clamp(DISK_LOOK, DISK_LONGEST)).await;
        }
    }

    /// Logs each increase of the container's OOM kills. The other programs of the container may continue.
    async fn log_kills(&self) -> Infallible {
        let Some(plan) = self.spec.plan.as_ref().filter(|plan| plan.has(Wall::Memory)) else {
            return pending().await;
        };
        let memory_mb = self.spec.recipe.resources.memory_mb;
        let mut known = 0;
        loop {
            sleep(KILLS_LOOK).await;
            let kills = plan.limits.kills();
            if kills > known {
                let line =
                    format!("the kernel killed a program: {}, {kills} so far", out_of_memory(memory_mb));
                self.log.write(Source::Err, std::iter::once(line.as_str()));
            }
            known = kills;
        }
    }

    /// Runs setup, action and monitor.
    async fn recipe(&self) -> io::Result<End> {
        let recipe = &self.spec.recipe;
        if let Err(failure) = self.performer.fetch_dependencies(&self.scope(None)).await {
            return Ok(End::Failed(format!("failed to download cached dependencies: {failure}"), None));
        }
        if let Some(setup) = &recipe.setup
            && let Err(failure) = self.performer.perform(setup, &self.scope(None)).await
        {
            return Ok(End::Failed(format!("Setup failed: {}", self.performer.reason(&failure)), None));
        }
        let begun = Notify::new();
        let scope = self.scope(Some(&begun));
        let action = self.performer.perform(&recipe.action, &scope);
        match &recipe.monitor {
            None => self.unmonitored(action, &begun).await,
            Some(monitor) => self.monitored(action, monitor).await,
        }
    }

    /// Runs an action without a monitor. The container is RUNNING once the first program of the action has
    /// started.
    async fn unmonitored(
        &self,
        action: impl Future<Output = Result<(), Failure>>,
        begun: &Notify,
    ) -> io::Result<End> {
        let running = async {
            begun.notified().await;
            match report(&self.folder, &Status::Running) {
                Ok(()) => pending().await,
                Err(error) => error,
            }
        };
        tokio::select! {
            biased;
            error = running => Err(error),
            done = action => Ok(match (done, &self.spec.recipe.work) {
                (Err(failure), _) => self.failed(&failure),
                (Ok(()), WorkKey::Task { .. }) => End::Done,
                // A long-running process must not exit, even with status 0.
                (Ok(()), WorkKey::Lrp { .. }) => End::failed(&Failure::Exited(0)),
            }),
        }
    }

    fn failed(&self, failure: &Failure) -> End {
        End::Failed(self.performer.reason(failure), failure.exit_status())
    }

    /// Runs the action beside its monitor, which determines when the container is RUNNING. If the action of a
    /// task succeeds, the task is done. If the action of an LRP succeeds, it has left processes in the
    /// background, which the monitor keeps watching.
    async fn monitored(
        &self,
        action: impl Future<Output = Result<(), Failure>>,
        monitor: &Action,
    ) -> io::Result<End> {
        let mut watch = pin!(self.watch(monitor));
        let done = tokio::select! {
            biased;
            done = action => done,
            reason = &mut watch => return reason.map(End::unhealthy),
        };
        match (done, &self.spec.recipe.work) {
            (Err(failure), _) => Ok(self.failed(&failure)),
            (Ok(()), WorkKey::Task { .. }) => Ok(End::Done),
            (Ok(()), WorkKey::Lrp { .. }) => watch.await.map(End::unhealthy),
        }
    }

    /// Probes until the container becomes unhealthy, or does not become healthy in time. Returns the reason.
    async fn watch(&self, monitor: &Action) -> io::Result<String> {
        if let Err(reason) = self.become_healthy(monitor).await {
            return Ok(reason);
        }
        report(&self.folder, &Status::Running)?;
        loop {
            sleep(self.spec.healthy_monitoring_interval).await;
            if let Some(complaint) = self.probe(monitor).await {
                return Ok(format!("Instance became unhealthy: {complaint}"));
            }
        }
    }

    async fn become_healthy(&self, monitor: &Action) -> Result<(), String> {
        let limit = Duration::from_millis(self.spec.recipe.start_timeout_ms);
        let last = RefCell::new("the monitor did not end".to_owned());
        let healthy = async {
            let longest = self.spec.unhealthy_monitoring_interval;
            let mut pause = FIRST_PROBE_PAUSE;
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
        // A probe in progress is dropped. The whole tree is ended next.
        let in_time = timeout_at(Instant::now() + limit, healthy).await;
        in_time.map_err(|_| format!("Instance never healthy after {limit:?}: {}", last.borrow()))
    }

    /// Runs one probe and records its result. Returns the failure, if any.
    async fn probe(&self, monitor: &Action) -> Option<String> {
        let output = Rc::new(RefCell::new(VecDeque::new()));
        let sink = Sink::Tail(Rc::clone(&output));
        let scope = Scope::of_probe(sink);
        let failure = self.performer.limited(monitor, PROBE_LIMIT, &scope).await.err();
        let probe = Probe {
            at: clock::now(),
            failure: failure.map(|failure| cut(&failure.to_string(), REASON_BYTES)),
            output: output.take().into(),
        };
        let complaint = probe.complaint();
        if let Err(error) = self.note(probe)
            && !self.complained.replace(true)
        {
            complain(&format!("cannot write down what the monitor found out: {error}"));
        }
        complaint
    }

    /// Records the result of a probe, and hints at a change.
    fn note(&self, probe: Probe) -> io::Result<()> {
        let changed = self.health.borrow_mut().note(probe);
        self.folder.write_health(&self.health.borrow())?;
        if changed { hint() } else { Ok(()) }
    }

    /// Returns the scope of programs whose output goes to the container's log.
    fn scope<'a>(&self, begun: Option<&'a Notify>) -> Scope<'a> {
        Scope::new(begun, self.log.clone())
    }

    /// Ends every process of the container: sends TERM, and KILL to those that remain after the grace period.
    /// Waits for processes that cannot be killed, such as those blocked by a failed disk.
    async fn end_tree(&self) -> io::Result<()> {
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
            if self.reaper.childless_within(KILL_PAUSE).await {
                return Ok(());
            }
        }
    }

    /// Returns the result for the end of a container.
    fn result(&self, end: End) -> RunResult {
        let failed = |reason: &str, exit_status| {
            let reason = cut(reason, REASON_BYTES);
            RunResult::Failed { reason, exit_status }
        };
        match end {
            End::Stopped => RunResult::Stopped,
            End::Failed(reason, exit_status) => failed(&reason, exit_status),
            End::Done if self.spec.recipe.result_file.is_empty() => {
                RunResult::Succeeded { result: String::new() }
            }
            End::Done => match result_file(&self.folder, &self.spec.recipe.result_file) {
                Ok(result) => RunResult::Succeeded { result },
                Err(reason) => failed(&reason, Some(0)),
            },
        }
    }
}

/// Returns the folder and relative path of a task's result file. The file is in the work directory or in the
/// container's `/tmp`.
fn place_of(folder: &Folder, path: &str) -> (PathBuf, String) {
    let in_tmp = ["/tmp/", "/var/tmp/"].iter().find_map(|tmp| path.strip_prefix(tmp));
    let in_work = path.strip_prefix(isolation::WORK).filter(|rest| rest.starts_with('/'));
    match (in_tmp, in_work) {
        (Some(rest), _) => (folder.path().join("tmp"), rest.trim_start_matches('/').to_owned()),
        (None, rest) => (folder.work(), rest.unwrap_or(path).trim_start_matches('/').to_owned()),
    }
}

/// Reads a task's result file. Links in its folder cannot lead out of it.
fn result_file(folder: &Folder, path: &str) -> Result<String, String> {
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let unreadable = |error: io::Error| format!("cannot read the result file {name}: {error}");
    let (within, path) = place_of(folder, path);
    let file = open_within(&within, &path).map_err(|error| match error {
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

/// Opens a file below a folder of the container. Links are followed within the folder only.
fn open_within(folder: &Path, path: &str) -> rustix::io::Result<File> {
    let at = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // Do not block: a task may have created a pipe with that name.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(at, path, flags, Mode::empty(), resolve)?.into())
}
