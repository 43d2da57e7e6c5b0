//! Metrics and probes of a BBS.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bbs::callbacks::CallbackResult;
use bbs::{Bbs, Gauges};
use bus::Bus;
use journal::{AppendError, Journal};
use metrics::catalogue as of;
use metrics::counters::{Counter, Histogram};
use metrics::family::{Family, Sample, Service};
use metrics::page::{Source, SourceFuture};
use parking_lot::Mutex;
use projections::{Figures, Observed, WorldSnapshot};
use schemas::Position;
use schemas::query::{AppendProblem, CellState, InstanceState, LogRow, TaskState};
use schemas::resources::Resources;
use schemas::task::CallbackVerdict;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::commands::CommandMetrics;
use super::lag::Lag;
use super::machine::MachineMetrics;
use super::{MIB, MetricsRegistry, samples_by, standing_text};
use crate::drive::Observer;
use crate::driver::Driver;

/// Minimum age of the figures of the World (the state folded from the log) before they are counted again.
const MIN_FIGURES_AGE: Duration = Duration::from_secs(1);
/// Minimum age of World figures, as a multiple of the duration of their count. The factor limits the
/// processor time for counting.
const FIGURES_AGE_FACTOR: u32 = 20;
/// Timeout for a World snapshot from the state machine.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between heartbeats of a rep.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// Metrics of a BBS, which outlive its state machines. To count the figures of the World, the metrics have
/// access to the driver.
pub(crate) struct BbsMetrics {
    driven: MachineMetrics,
    lag: Arc<Lag>,
    pub(crate) commands: CommandMetrics,
    append: Histogram,
    appends: [Counter; 5],
    convergence: Histogram,
    heartbeats: Counter,
    callbacks: [Counter; 3],
    pub(crate) feed_dropped: Counter,
    pub(crate) spans_sent: Counter,
    pub(crate) spans_dropped: Counter,
    /// State of the machine after its last turn (the handling of one batch of inputs).
    gauges: Mutex<Option<Gauges>>,
    /// Problem with appends, as of the machine's last turn. `log` is the stream state that the machine read
    /// last.
    trouble: Mutex<Option<AppendProblem>>,
    log: Mutex<Option<LogRow>>,
    /// Reason for which the machine stopped deciding.
    stop_reason: Mutex<Option<String>>,
    /// Reason for which the BBS has no journal yet.
    waiting_reason: Mutex<Option<String>>,
    driver: Mutex<Weak<Driver>>,
    counted: tokio::sync::Mutex<Option<WorldFigures>>,
}

/// Last figures of the World.
struct WorldFigures {
    until: Instant,
    figures: Figures,
    quarantined_entries: u64,
    found_by_convergence: u64,
}

/// Names of the outcomes of appends.
const APPENDS: [&str; 5] = ["stored", "conflict", "unknown", "refused", "not_stored"];
/// Names of the outcomes of callbacks.
const CALLBACKS: [&str; 3] = ["delivered", "retried", "abandoned"];

impl BbsMetrics {
    /// Creates and registers the metrics of a BBS.
    pub(crate) fn register(
        watching: &MetricsRegistry,
        (bus, journal): (Bus, Journal),
        refused: Arc<AtomicU64>,
        ends: CancellationToken,
    ) -> Arc<Self> {
        let watch = Self::register_before_journal(watching, bus, refused);
        watch.set_journal(watching, journal, ends);
        watch
    }

    /// Creates and registers the metrics of a BBS that has no journal yet.
    pub(crate) fn register_before_journal(
        watching: &MetricsRegistry,
        bus: Bus,
        refused: Arc<AtomicU64>,
    ) -> Arc<Self> {
        let watch = Arc::new(Self {
            driven: MachineMetrics::new(bus, refused),
            lag: Arc::default(),
            commands: CommandMetrics::default(),
            append: Histogram::durations(),
            appends: APPENDS.map(|_| Counter::new()),
            convergence: Histogram::durations(),
            heartbeats: Counter::new(),
            callbacks: CALLBACKS.map(|_| Counter::new()),
            feed_dropped: Counter::new(),
            spans_sent: Counter::new(),
            spans_dropped: Counter::new(),
            gauges: Mutex::default(),
            trouble: Mutex::default(),
            log: Mutex::default(),
            stop_reason: Mutex::default(),
            driver: Mutex::default(),
            counted: tokio::sync::Mutex::default(),
            waiting_reason: Mutex::default(),
        });
        watching.register(Arc::clone(&watch) as Arc<dyn Source>);
        watch
    }

    /// Records that the BBS has a journal. Until the token is cancelled, the end of the journal is compared
    /// with the position of the BBS.
    pub(crate) fn set_journal(
        self: &Arc<Self>,
        watching: &MetricsRegistry,
        journal: Journal,
        ends: CancellationToken,
    ) {
        *self.waiting_reason.lock() = None;
        watching.observe_lag(self, (&self.lag, journal), Self::position, ends);
    }

    /// Records that the BBS waits for a journal, and the reason.
    pub(crate) fn set_waiting_reason(&self, why: &str) {
        *self.waiting_reason.lock() = Some(why.to_owned());
    }

    /// Records that a driver runs a new state machine.
    pub(crate) fn set_driver(&self, driver: &Arc<Driver>) {
        *self.driver.lock() = Arc::downgrade(driver);
        *self.gauges.lock() = None;
        *self.stop_reason.lock() = None;
    }

    /// Records that the machine has stopped, or is no longer driven.
    pub(crate) fn mark_idle(&self) {
        self.driven.pulse.record_end();
    }

    /// Records that the machine stopped deciding, and the reason.
    pub(crate) fn set_stop_reason(&self, why: &str) {
        *self.stop_reason.lock() = Some(why.to_owned());
    }

    /// Returns the machine's problem with appends. `None` if there is no problem.
    pub(crate) fn append_problem(&self) -> Option<AppendProblem> {
        self.trouble.lock().clone()
    }

    /// Records the duration and the outcome of an append.
    pub(crate) fn record_append(&self, took: Duration, error: Option<&AppendError>) {
        let outcome = match error {
            None => 0,
            Some(AppendError::Conflict) => 1,
            Some(AppendError::Unknown(_)) => 2,
            Some(AppendError::Refused(_)) => 3,
            Some(AppendError::NotStored(_)) => 4,
        };
        self.append.observe_duration(took);
        self.appends[outcome].add();
    }

    /// Counts a received heartbeat.
    pub(crate) fn count_heartbeat(&self) {
        self.heartbeats.add();
    }

    /// Counts the outcome of a completion callback.
    pub(crate) fn called(&self, called: &CallbackResult) {
        let outcome = match called.verdict() {
            CallbackVerdict::Delivered => 0,
            CallbackVerdict::Repeat => 1,
            CallbackVerdict::Ended => 2,
        };
        self.callbacks[outcome].add();
    }

    /// Returns `true` while commands wait for the machine or entries wait for the journal.
    pub(crate) fn is_deciding(&self) -> bool {
        self.gauges.lock().is_some_and(|gauges| gauges.commands_waiting + gauges.entries_in_flight > 0)
    }

    fn position(&self) -> Position {
        self.gauges.lock().map_or(Position(0), |gauges| gauges.standing.position)
    }

    /// Returns the samples that do not need a World snapshot.
    fn own_samples(&self) -> Vec<Sample> {
        let mut told = self.commands.samples();
        told.extend(self.driven.samples());
        told.extend([
            of::APPEND.value_sample(self.append.snapshot()),
            of::CONVERGENCE.value_sample(self.convergence.snapshot()),
            of::HEARTBEATS_RECEIVED.value_sample(self.heartbeats.get()),
            of::FEED_DROPPED.value_sample(self.feed_dropped.get()),
        ]);
        told.extend(samples_by(&of::APPENDS, APPENDS.into_iter().zip(self.appends.iter().map(Counter::get))));
        told.extend(samples_by(
            &of::CALLBACKS,
            CALLBACKS.into_iter().zip(self.callbacks.iter().map(Counter::get)),
        ));
        let spans = [("sent", self.spans_sent.get()), ("dropped", self.spans_dropped.get())];
        told.extend(samples_by(&of::TRACE_SPANS, spans));
        let gauges = *self.gauges.lock();
        let fails = self.append_problem().is_some_and(|trouble| trouble.failing);
        told.push(of::APPENDS_FAILING.value_sample(fails));
        if let Some(log) = &*self.log.lock() {
            told.extend([
                of::LOG_REPLICAS.value_sample(log.replicas),
                of::LOG_REPLICAS_IN_SYNC.value_sample(log.replicas_in_sync),
                of::LOG_ENTRIES.value_sample(log.entries),
                of::LOG_SIZE.value_sample(log.bytes),
                of::LOG_LIMIT.value_sample(log.max_bytes.unwrap_or_default()),
            ]);
        }
        told.push(of::LEADER.value_sample(gauges.is_some_and(|gauges| gauges.standing.leads)));
        if let Some(gauges) = gauges {
            let behind = self.lag.behind(gauges.standing.position);
            told.extend([
                of::POSITION.value_sample(gauges.standing.position.0),
                of::LAG_ENTRIES.value_sample(behind.entries),
                of::LAG.value_sample(behind.duration.as_secs_f64()),
                of::CLOCK_OFFSET.value_sample(
                    Duration::from_millis(gauges.clock_ahead_ms.unsigned_abs()).as_secs_f64()
                        * if gauges.clock_ahead_ms < 0 { -1.0 } else { 1.0 },
                ),
                of::LOG_AHEAD.value_sample(gauges.log_ahead.as_secs_f64()),
                of::MASS_LOSS_GUARD.value_sample(gauges.guards_mass_loss),
                of::COMMANDS_WAITING.value_sample(gauges.commands_waiting),
                of::ENTRIES_IN_FLIGHT.value_sample(gauges.entries_in_flight),
            ]);
        }
        told
    }

    /// Returns the samples that are counted from a World snapshot. Empty if no snapshot is available.
    async fn world_samples(&self) -> Vec<Sample> {
        let mut counted = self.counted.lock().await;
        if counted.as_ref().is_none_or(|counted| counted.until <= Instant::now()) {
            *counted = self.count().await;
        }
        counted.as_ref().map(figures_samples).unwrap_or_default()
    }

    /// Counts the figures of the World. The count does not run on the thread that decides commands.
    async fn count(&self) -> Option<WorldFigures> {
        let driver = self.driver.lock().upgrade()?;
        let (picture, observed): (WorldSnapshot, Box<Observed>) =
            timeout(SNAPSHOT_TIMEOUT, driver.world_snapshot()).await.ok().flatten()?;
        let counting = tokio::task::spawn_blocking(move || {
            let begin = Instant::now();
            let figures = Figures::new(&picture, &observed);
            WorldFigures {
                until: Instant::now() + MIN_FIGURES_AGE.max(begin.elapsed() * FIGURES_AGE_FACTOR),
                figures,
                quarantined_entries: observed.quarantined_entries.count,
                found_by_convergence: picture.found_by_convergence(),
            }
        });
        counting.await.ok()
    }
}

impl Source for BbsMetrics {
    fn service(&self) -> Service {
        Service::Bbs
    }

    fn tell(&self) -> SourceFuture<'_, Vec<Sample>> {
        Box::pin(async {
            let mut told = self.own_samples();
            told.extend(self.world_samples().await);
            told
        })
    }

    fn status_text(&self) -> String {
        if let Some(why) = &*self.waiting_reason.lock() {
            return why.clone();
        }
        self.gauges
            .lock()
            .map_or_else(|| "reading the journal".to_owned(), |gauges| standing_text(gauges.standing))
    }

    fn hang_reason(&self) -> Option<String> {
        self.driven.hang_description()
    }

    fn unready_reasons(&self) -> SourceFuture<'_, Vec<String>> {
        Box::pin(async {
            let mut wrong = self.driven.problems();
            if let Some(why) = &*self.waiting_reason.lock() {
                wrong.push(why.clone());
                return wrong;
            }
            if let Some(why) = &*self.stop_reason.lock() {
                wrong.push(format!("stopped deciding: {why}"));
            }
            if let Some(AppendProblem { since, failing: true, reason }) = &*self.trouble.lock() {
                wrong.push(format!("the log has accepted no entries since {since}: {reason}"));
            }
            match *self.gauges.lock() {
                Some(gauges) if gauges.caught_up => {
                    wrong.extend(self.lag.behind(gauges.standing.position).problem());
                }
                Some(gauges) => {
                    let position = gauges.standing.position;
                    wrong.push(format!("still reading the journal, now at position {position}"));
                }
                None => wrong.push("still reading the journal".to_owned()),
            }
            wrong
        })
    }
}

/// Observer of the machine of a BBS.
#[derive(Debug)]
pub(crate) struct BbsObserver<'a> {
    watch: &'a BbsMetrics,
    passes: u64,
    /// Start of the convergence pass in progress.
    pass_started: Option<Instant>,
}

impl std::fmt::Debug for BbsMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BbsMetrics").finish_non_exhaustive()
    }
}

impl<'a> BbsObserver<'a> {
    pub(crate) const fn new(watch: &'a BbsMetrics) -> Self {
        Self { watch, passes: 0, pass_started: None }
    }
}

impl Observer<Bbs> for BbsObserver<'_> {
    fn after_step(&mut self, machine: &Bbs, began: Instant) {
        let gauges = machine.gauges();
        if gauges.full_passes > self.passes {
            self.watch.convergence.observe_duration(self.pass_started.take().unwrap_or(began).elapsed());
            self.passes = gauges.full_passes;
        }
        if gauges.full_pass_running {
            self.pass_started.get_or_insert(began);
        }
        *self.watch.gauges.lock() = Some(gauges);
        *self.watch.trouble.lock() = machine.append_problem();
        let mut log = self.watch.log.lock();
        if log.as_ref() != machine.log_row() {
            *log = machine.log_row().cloned();
        }
        drop(log);
        self.watch.driven.pulse.record_turn();
    }
}

fn figures_samples(counted: &WorldFigures) -> Vec<Sample> {
    let WorldFigures { figures, quarantined_entries, found_by_convergence, .. } = counted;
    let counts = figures.counts;
    let mut told = vec![
        of::PROCESSES_DESIRED.value_sample(counts.processes),
        of::PROCESSES_CRASHING.value_sample(figures.processes_crashing),
        of::INSTANCES_DESIRED.value_sample(figures.instances_desired),
        of::INSTANCES_MISSING.value_sample(figures.instances_missing),
        of::INSTANCES_EXTRA.value_sample(figures.instances_extra),
        of::INSTANCES_UNPLACED.value_sample(figures.instances_unplaced),
        of::INSTANCES_WAITING.value_sample(figures.instances_waiting),
        of::INSTANCES_EVACUATING.value_sample(counts.instances.evacuating),
        of::TASKS_UNPLACED.value_sample(figures.tasks_unplaced),
        of::DOMAINS_FRESH.value_sample(figures.domains_fresh),
        of::CONVERGENCE_FINDINGS.value_sample(*found_by_convergence),
        of::INVALID_ENTRIES.value_sample(*quarantined_entries),
    ];
    let lower = |name: &str| name.to_lowercase();
    let instances = InstanceState::ALL.map(|state| (lower(state.as_str()), counts.instances.in_state(state)));
    told.extend(instances.map(|(state, count)| of::INSTANCES.sample(vec![("state", state)], count)));
    let tasks = TaskState::ALL.map(|state| (lower(state.as_str()), counts.tasks.in_state(state)));
    told.extend(tasks.map(|(state, count)| of::TASKS.sample(vec![("state", state)], count)));
    let cells = CellState::ALL.map(|state| (state, figures.cells.get(&state).copied().unwrap_or_default()));
    told.extend(cells.map(|(state, count)| of::CELLS.sample(vec![("state", lower(state.as_str()))], count)));
    let evaluations = counts.evaluations;
    told.extend(samples_by(
        &of::EVALUATIONS,
        [
            ("pending", evaluations.pending),
            ("blocked", evaluations.blocked),
            ("complete", evaluations.complete),
            ("failed", evaluations.failed),
            ("canceled", evaluations.canceled),
        ],
    ));
    let rollouts = figures.rollouts;
    told.extend(samples_by(
        &of::ROLLOUTS,
        [("rolling", rollouts.rolling), ("paused", rollouts.paused), ("stalled", rollouts.stalled)],
    ));
    told.extend(figures.present.iter().flat_map(|(id, cell)| {
        let missed = cell.heartbeat_age.map_or(0, |ago| ago.as_secs() / HEARTBEAT_INTERVAL.as_secs());
        let of_cell =
            |family: &'static Family, value: u64| family.sample(vec![("cell", id.to_string())], value);
        let Resources { memory_mb, disk_mb, containers, .. } = cell.total;
        let used = cell.used;
        [
            of_cell(&of::CELL_MEMORY_CAPACITY, memory_mb.saturating_mul(MIB)),
            of_cell(&of::CELL_MEMORY_USED, used.memory_mb.saturating_mul(MIB)),
            of_cell(&of::CELL_DISK_CAPACITY, disk_mb.saturating_mul(MIB)),
            of_cell(&of::CELL_DISK_USED, used.disk_mb.saturating_mul(MIB)),
            of_cell(&of::CELL_CONTAINERS_CAPACITY, containers.into()),
            of_cell(&of::CELL_CONTAINERS_USED, used.containers.into()),
            of_cell(&of::CELL_HEARTBEATS_MISSED, missed),
        ]
    }));
    told
}
