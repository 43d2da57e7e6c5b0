//! Metrics and probes of a BBS.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bbs::callbacks::Called;
use bbs::{Bbs, Gauges};
use bus::Bus;
use journal::{AppendError, Journal};
use metrics::catalogue as of;
use metrics::counted::{Counter, Histogram};
use metrics::family::{Family, Sample, Service};
use metrics::page::{Saying, Source};
use projections::{Figures, Observed, Picture};
use schemas::Position;
use schemas::query::{AppendTrouble, CellState, InstanceState, LogRow, TaskState};
use schemas::resources::Resources;
use schemas::task::CallbackVerdict;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::commands::Commands;
use super::driven::Driven;
use super::lag::Lag;
use super::{MIB, Watching, by, leading, lock};
use crate::wire::bbs::Driver;
use crate::wire::drive::Onlooker;

/// Minimum age of World figures before they are counted again.
const FRESH: Duration = Duration::from_secs(1);
/// Minimum age of World figures, as a multiple of the time that counting took. Limits the processor time for
/// counting.
const COUNTING: u32 = 20;
/// Timeout for a World snapshot of the machine.
const SHOWN: Duration = Duration::from_secs(2);
/// Interval between heartbeats of a rep.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Metrics of a BBS, and access to the driver for the figures of the World. They outlive its machines.
pub(crate) struct BbsWatch {
    driven: Driven,
    lag: Arc<Lag>,
    pub(crate) commands: Commands,
    append: Histogram,
    appends: [Counter; 5],
    convergence: Histogram,
    heartbeats: Counter,
    callbacks: [Counter; 3],
    pub(crate) feed_left_out: Counter,
    pub(crate) spans_sent: Counter,
    pub(crate) spans_dropped: Counter,
    /// State of the machine, as of its last turn.
    gauges: Mutex<Option<Gauges>>,
    /// Append trouble of the machine, as of its last turn; `log` is the state of the stream that it last
    /// read.
    trouble: Mutex<Option<AppendTrouble>>,
    log: Mutex<Option<LogRow>>,
    /// Reason that the machine stopped deciding.
    stopped: Mutex<Option<String>>,
    /// Reason that the BBS has no journal yet.
    waits: Mutex<Option<String>>,
    driver: Mutex<Weak<Driver>>,
    counted: tokio::sync::Mutex<Option<Counted>>,
}

/// Last figures of the World.
struct Counted {
    until: Instant,
    figures: Figures,
    set_aside: u64,
    found_by_convergence: u64,
}

/// Names of the outcomes of appends.
const APPENDS: [&str; 5] = ["stored", "conflict", "unknown", "refused", "not_stored"];
/// Names of the outcomes of callbacks.
const CALLBACKS: [&str; 3] = ["delivered", "repeated", "given_up"];

impl BbsWatch {
    /// Creates and registers the metrics of a BBS.
    pub(crate) fn begin(
        watching: &Watching,
        (bus, journal): (Bus, Journal),
        refused: Arc<AtomicU64>,
        ends: CancellationToken,
    ) -> Arc<Self> {
        let watch = Self::before_journal(watching, bus, refused);
        watch.follows(watching, journal, ends);
        watch
    }

    /// Creates and registers the metrics of a BBS that has no journal yet.
    pub(crate) fn before_journal(watching: &Watching, bus: Bus, refused: Arc<AtomicU64>) -> Arc<Self> {
        let watch = Arc::new(Self {
            driven: Driven::new(bus, refused),
            lag: Arc::default(),
            commands: Commands::default(),
            append: Histogram::of_seconds(),
            appends: APPENDS.map(|_| Counter::new()),
            convergence: Histogram::of_seconds(),
            heartbeats: Counter::new(),
            callbacks: CALLBACKS.map(|_| Counter::new()),
            feed_left_out: Counter::new(),
            spans_sent: Counter::new(),
            spans_dropped: Counter::new(),
            gauges: Mutex::default(),
            trouble: Mutex::default(),
            log: Mutex::default(),
            stopped: Mutex::default(),
            driver: Mutex::default(),
            counted: tokio::sync::Mutex::default(),
            waits: Mutex::default(),
        });
        watching.add(Arc::clone(&watch) as Arc<dyn Source>);
        watch
    }

    /// Records that the BBS has a journal. The end of the journal is compared with the position of the BBS
    /// until the token is cancelled.
    pub(crate) fn follows(self: &Arc<Self>, watching: &Watching, journal: Journal, ends: CancellationToken) {
        *lock(&self.waits) = None;
        watching.follow(self, (&self.lag, journal), Self::position, ends);
    }

    /// Records that the BBS waits for a journal, and the reason.
    pub(crate) fn waits(&self, why: &str) {
        *lock(&self.waits) = Some(why.to_owned());
    }

    /// Records that a driver runs a new machine.
    pub(in crate::wire) fn drives(&self, driver: &Arc<Driver>) {
        *lock(&self.driver) = Arc::downgrade(driver);
        *lock(&self.gauges) = None;
        *lock(&self.stopped) = None;
    }

    /// Records that the machine has stopped, or is no longer driven.
    pub(crate) fn rests(&self) {
        self.driven.pulse.end();
    }

    /// Records that the machine stopped deciding, and the reason.
    pub(crate) fn stops(&self, why: &str) {
        *lock(&self.stopped) = Some(why.to_owned());
    }

    /// Returns the append trouble of the machine, if it has any.
    pub(crate) fn append_trouble(&self) -> Option<AppendTrouble> {
        lock(&self.trouble).clone()
    }

    /// Records the duration and the outcome of an append.
    pub(crate) fn appended(&self, took: Duration, error: Option<&AppendError>) {
        let outcome = match error {
            None => 0,
            Some(AppendError::Conflict) => 1,
            Some(AppendError::Unknown(_)) => 2,
            Some(AppendError::Refused(_)) => 3,
            Some(AppendError::NotStored(_)) => 4,
        };
        self.append.took(took);
        self.appends[outcome].add();
    }

    /// Counts a received heartbeat.
    pub(crate) fn heard(&self) {
        self.heartbeats.add();
    }

    /// Counts the outcome of a completion callback.
    pub(crate) fn called(&self, called: &Called) {
        let outcome = match called.verdict() {
            CallbackVerdict::Delivered => 0,
            CallbackVerdict::Repeat => 1,
            CallbackVerdict::Ended => 2,
        };
        self.callbacks[outcome].add();
    }

    /// Returns `true` while commands wait for the machine, or entries for the journal.
    pub(in crate::wire) fn decides(&self) -> bool {
        lock(&self.gauges).is_some_and(|gauges| gauges.commands_waiting + gauges.entries_in_flight > 0)
    }

    fn position(&self) -> Position {
        lock(&self.gauges).map_or(Position(0), |gauges| gauges.standing.position)
    }

    /// Returns the samples that are counted here.
    fn own(&self) -> Vec<Sample> {
        let mut told = self.commands.tell();
        told.extend(self.driven.tell());
        told.extend([
            of::APPEND.says(self.append.observed()),
            of::CONVERGENCE.says(self.convergence.observed()),
            of::HEARTBEATS_RECEIVED.says(self.heartbeats.get()),
            of::FEED_LEFT_OUT.says(self.feed_left_out.get()),
        ]);
        told.extend(by(&of::APPENDS, APPENDS.into_iter().zip(self.appends.iter().map(Counter::get))));
        told.extend(by(&of::CALLBACKS, CALLBACKS.into_iter().zip(self.callbacks.iter().map(Counter::get))));
        let spans = [("sent", self.spans_sent.get()), ("dropped", self.spans_dropped.get())];
        told.extend(by(&of::TRACE_SPANS, spans));
        let gauges = *lock(&self.gauges);
        let fails = self.append_trouble().is_some_and(|trouble| trouble.fails);
        told.push(of::APPENDS_FAIL.says(fails));
        if let Some(log) = &*lock(&self.log) {
            told.extend([
                of::LOG_REPLICAS.says(log.replicas),
                of::LOG_REPLICAS_IN_SYNC.says(log.replicas_in_sync),
                of::LOG_ENTRIES.says(log.entries),
                of::LOG_SIZE.says(log.bytes),
                of::LOG_LIMIT.says(log.max_bytes.unwrap_or_default()),
            ]);
        }
        told.push(of::LEADER.says(gauges.is_some_and(|gauges| gauges.standing.leads)));
        if let Some(gauges) = gauges {
            let behind = self.lag.behind(gauges.standing.position);
            told.extend([
                of::POSITION.says(gauges.standing.position.0),
                of::LAG_ENTRIES.says(behind.entries),
                of::LAG.says(behind.since.as_secs_f64()),
                of::CLOCK_OFFSET.says(
                    Duration::from_millis(gauges.clock_ahead_ms.unsigned_abs()).as_secs_f64()
                        * if gauges.clock_ahead_ms < 0 { -1.0 } else { 1.0 },
                ),
                of::LOG_AHEAD.says(gauges.log_ahead.as_secs_f64()),
                of::MASS_LOSS_GUARD.says(gauges.guards_mass_loss),
                of::COMMANDS_WAITING.says(gauges.commands_waiting),
                of::ENTRIES_IN_FLIGHT.says(gauges.entries_in_flight),
            ]);
        }
        told
    }

    /// Returns the samples of the World. Empty if no snapshot is available.
    async fn of_world(&self) -> Vec<Sample> {
        let mut counted = self.counted.lock().await;
        if counted.as_ref().is_none_or(|counted| counted.until <= Instant::now()) {
            *counted = self.count().await;
        }
        counted.as_ref().map(tell_world).unwrap_or_default()
    }

    /// Counts the World, off the deciding thread.
    async fn count(&self) -> Option<Counted> {
        let driver = lock(&self.driver).upgrade()?;
        let (picture, observed): (Picture, Box<Observed>) =
            timeout(SHOWN, driver.picture()).await.ok().flatten()?;
        let counting = tokio::task::spawn_blocking(move || {
            let begin = Instant::now();
            let figures = Figures::of(&picture, &observed);
            Counted {
                until: Instant::now() + FRESH.max(begin.elapsed() * COUNTING),
                figures,
                set_aside: observed.set_aside.count,
                found_by_convergence: picture.found_by_convergence(),
            }
        });
        counting.await.ok()
    }
}

impl Source for BbsWatch {
    fn service(&self) -> Service {
        Service::Bbs
    }

    fn tell(&self) -> Saying<'_, Vec<Sample>> {
        Box::pin(async {
            let mut told = self.own();
            told.extend(self.of_world().await);
            told
        })
    }

    fn standing(&self) -> String {
        if let Some(why) = &*lock(&self.waits) {
            return why.clone();
        }
        lock(&self.gauges).map_or_else(|| "reads the journal".to_owned(), |gauges| leading(gauges.standing))
    }

    fn hangs(&self) -> Option<String> {
        self.driven.hangs()
    }

    fn lacks(&self) -> Saying<'_, Vec<String>> {
        Box::pin(async {
            let mut wrong = self.driven.lacks();
            if let Some(why) = &*lock(&self.waits) {
                wrong.push(why.clone());
                return wrong;
            }
            if let Some(why) = &*lock(&self.stopped) {
                wrong.push(format!("it decides nothing any more: {why}"));
            }
            if let Some(AppendTrouble { since, fails: true, reason }) = &*lock(&self.trouble) {
                wrong.push(format!("the log takes no entries since {since}: {reason}"));
            }
            match *lock(&self.gauges) {
                Some(gauges) if gauges.caught_up => {
                    wrong.extend(self.lag.behind(gauges.standing.position).wrong());
                }
                Some(gauges) => {
                    let position = gauges.standing.position;
                    wrong.push(format!(
                        "it is still reading the journal, and has come to position {position}"
                    ));
                }
                None => wrong.push("it is still reading the journal".to_owned()),
            }
            wrong
        })
    }
}

/// Observer of the machine of a BBS.
#[derive(Debug)]
pub(crate) struct BbsOnlooker<'a> {
    watch: &'a BbsWatch,
    looks: u64,
    /// Start of the convergence pass in progress.
    looking: Option<Instant>,
}

impl std::fmt::Debug for BbsWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BbsWatch").finish_non_exhaustive()
    }
}

impl<'a> BbsOnlooker<'a> {
    pub(crate) const fn new(watch: &'a BbsWatch) -> Self {
        Self { watch, looks: 0, looking: None }
    }
}

impl Onlooker<Bbs> for BbsOnlooker<'_> {
    fn acted(&mut self, machine: &Bbs, began: Instant) {
        let gauges = machine.gauges();
        if gauges.looks > self.looks {
            self.watch.convergence.took(self.looking.take().unwrap_or(began).elapsed());
            self.looks = gauges.looks;
        }
        if gauges.looking {
            self.looking.get_or_insert(began);
        }
        *lock(&self.watch.gauges) = Some(gauges);
        *lock(&self.watch.trouble) = machine.append_trouble();
        let mut log = lock(&self.watch.log);
        if log.as_ref() != machine.log_row() {
            *log = machine.log_row().cloned();
        }
        drop(log);
        self.watch.driven.pulse.turn();
    }
}

fn tell_world(counted: &Counted) -> Vec<Sample> {
    let Counted { figures, set_aside, found_by_convergence, .. } = counted;
    let counts = figures.counts;
    let mut told = vec![
        of::PROCESSES_DESIRED.says(counts.processes),
        of::PROCESSES_CRASHING.says(figures.processes_crashing),
        of::INSTANCES_DESIRED.says(figures.instances_desired),
        of::INSTANCES_MISSING.says(figures.instances_missing),
        of::INSTANCES_EXTRA.says(figures.instances_extra),
        of::INSTANCES_UNPLACED.says(figures.instances_unplaced),
        of::INSTANCES_WAITING.says(figures.instances_waiting),
        of::INSTANCES_EVACUATING.says(counts.instances.evacuating),
        of::TASKS_UNPLACED.says(figures.tasks_unplaced),
        of::DOMAINS_FRESH.says(figures.domains_fresh),
        of::FOUND_BY_CONVERGENCE.says(*found_by_convergence),
        of::ENTRIES_SET_ASIDE.says(*set_aside),
    ];
    let lower = |name: &str| name.to_lowercase();
    let instances = InstanceState::ALL.map(|state| (lower(state.as_str()), counts.instances.of(state)));
    told.extend(instances.map(|(state, count)| of::INSTANCES.is(vec![("state", state)], count)));
    let tasks = TaskState::ALL.map(|state| (lower(state.as_str()), counts.tasks.of(state)));
    told.extend(tasks.map(|(state, count)| of::TASKS.is(vec![("state", state)], count)));
    let cells = CellState::ALL.map(|state| (state, figures.cells.get(&state).copied().unwrap_or_default()));
    told.extend(cells.map(|(state, count)| of::CELLS.is(vec![("state", lower(state.as_str()))], count)));
    let evaluations = counts.evaluations;
    told.extend(by(
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
    told.extend(by(
        &of::ROLLOUTS,
        [("rolling", rollouts.rolling), ("paused", rollouts.paused), ("stalled", rollouts.stalled)],
    ));
    told.extend(figures.present.iter().flat_map(|(id, cell)| {
        let missed = cell.heard.map_or(0, |ago| ago.as_secs() / HEARTBEAT.as_secs());
        let of_cell = |family: &'static Family, value: u64| family.is(vec![("cell", id.to_string())], value);
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
