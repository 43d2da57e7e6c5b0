//! Metrics and probes of a rep.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bus::Bus;
use metrics::catalogue as of;
use metrics::counters::{Counter, Histogram};
use metrics::family::{Family, Sample, Service};
use metrics::page::{Source, SourceFuture};
use parking_lot::Mutex;
use rep::{ContainerCounts, Input, Rep};
use schemas::Position;
use schemas::cluster::Terms;
use schemas::container::{Container, ContainerState};
use schemas::message::Heartbeat;
use schemas::names::{CellId, InstanceGuid};
use tokio::time::Instant;

use super::machine::MachineMetrics;
use super::{MIB, MetricsRegistry, samples_by};
use crate::containers::Containers;
use crate::drive::Observer;

/// Minimum interval between two counts of the containers.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// Metrics of a rep. The metrics outlive the machines of the rep.
#[derive(Debug)]
pub(crate) struct RepMetrics {
    cell: CellId,
    driven: MachineMetrics,
    attached: AtomicBool,
    heartbeats: Counter,
    start: Histogram,
    /// Containers that were ordered to run and do not run yet, with the time of the order.
    starting: Mutex<BTreeMap<InstanceGuid, Instant>>,
    last_heartbeat: Mutex<Option<Heartbeat>>,
    containers: Mutex<ContainerCounts>,
    /// Container backend, once it is available.
    backend: OnceLock<Containers>,
    /// Terms and position of the log that the machine knows.
    known_log: Mutex<(Terms, Position)>,
}

impl RepMetrics {
    /// Creates and registers the metrics of a rep.
    pub(crate) fn begin(
        watching: &MetricsRegistry,
        cell: CellId,
        bus: Bus,
        refused: Arc<AtomicU64>,
    ) -> Arc<Self> {
        let watch = Arc::new(Self {
            cell,
            driven: MachineMetrics::new(bus, refused),
            attached: AtomicBool::new(false),
            heartbeats: Counter::new(),
            start: Histogram::durations(),
            starting: Mutex::default(),
            last_heartbeat: Mutex::default(),
            containers: Mutex::default(),
            backend: OnceLock::new(),
            known_log: Mutex::default(),
        });
        watching.register(Arc::clone(&watch) as Arc<dyn Source>);
        watch
    }

    /// Sets the container backend of the cell.
    pub(crate) fn set_backend(&self, containers: &Containers) {
        self.backend.get_or_init(|| containers.clone());
    }

    /// Records whether the rep is attached to its cell.
    pub(crate) fn set_attached(&self, so: bool) {
        self.attached.store(so, Ordering::Relaxed);
        if !so {
            self.driven.pulse.record_end();
            self.starting.lock().clear();
        }
    }

    /// Returns the terms and the position of the log that the machine knows.
    pub(crate) fn known_log(&self) -> (Terms, Position) {
        *self.known_log.lock()
    }

    /// Records that a container was ordered to run.
    pub(crate) fn record_start(&self, guid: InstanceGuid) {
        self.starting.lock().insert(guid, Instant::now());
    }

    /// Records the deletion of a container.
    pub(crate) fn record_delete(&self, guid: InstanceGuid) {
        self.starting.lock().remove(&guid);
    }

    /// Records a sent heartbeat.
    pub(crate) fn record_heartbeat(&self, beat: &Heartbeat) {
        self.heartbeats.add();
        *self.last_heartbeat.lock() = Some(beat.clone());
    }

    fn record_change(&self, container: &Container) {
        let runs = match &container.state {
            ContainerState::Reserved | ContainerState::Initializing | ContainerState::Created => return,
            ContainerState::Running(_) => true,
            ContainerState::Completed(_) => false,
        };
        if let Some(since) = self.starting.lock().remove(&container.instance_guid).filter(|_| runs) {
            self.start.observe_duration(since.elapsed());
        }
    }
}

impl Source for RepMetrics {
    fn service(&self) -> Service {
        Service::Rep
    }

    fn cell(&self) -> Option<String> {
        Some(self.cell.to_string())
    }

    fn tell(&self) -> SourceFuture<'_, Vec<Sample>> {
        let mut told = self.driven.samples().to_vec();
        told.extend([
            of::ATTACHED.value_sample(self.attached.load(Ordering::Relaxed)),
            of::HEARTBEATS_SENT.value_sample(self.heartbeats.get()),
            of::CONTAINER_START.value_sample(self.start.snapshot()),
            of::UNREMOVED_FOLDERS.value_sample(self.backend.get().map_or(0, Containers::unremoved)),
        ]);
        let ContainerCounts { reserved, initializing, created, running, completed } = *self.containers.lock();
        let states = [
            ("reserved", reserved),
            ("initializing", initializing),
            ("created", created),
            ("running", running),
            ("completed", completed),
        ];
        told.extend(samples_by(&of::CONTAINERS, states.map(|(state, count)| (state, count.into()))));
        if let Some(beat) = &*self.last_heartbeat.lock() {
            let bytes = |family: &'static Family, mib: u64| family.value_sample(mib.saturating_mul(MIB));
            let (total, free) = (beat.presence.total, beat.free);
            told.extend([
                bytes(&of::REP_MEMORY_CAPACITY, total.memory_mb),
                bytes(&of::REP_MEMORY_FREE, free.memory_mb),
                bytes(&of::REP_DISK_CAPACITY, total.disk_mb),
                bytes(&of::REP_DISK_FREE, free.disk_mb),
                of::REP_CONTAINERS_CAPACITY.value_sample(total.containers),
                of::REP_CONTAINERS_FREE.value_sample(free.containers),
                of::HEALTHY.value_sample(beat.unhealthy.is_none()),
                of::EVACUATING.value_sample(beat.evacuating),
            ]);
        }
        Box::pin(std::future::ready(told))
    }

    fn status_text(&self) -> String {
        let running = self.containers.lock().running;
        let evacuates = self.last_heartbeat.lock().as_ref().is_some_and(|beat| beat.evacuating);
        let does = if evacuates { "evacuating" } else { "attached to" };
        format!("{does} cell {}, {running} containers running", self.cell)
    }

    fn hang_reason(&self) -> Option<String> {
        self.driven.hang_description()
    }

    fn unready_reasons(&self) -> SourceFuture<'_, Vec<String>> {
        let mut wrong = self.driven.problems();
        if !self.attached.load(Ordering::Relaxed) {
            let why = "not attached to its cell: no BBS has answered yet, or another rep is attached";
            wrong.push(why.to_owned());
        }
        if let Some(why) = self.last_heartbeat.lock().as_ref().and_then(|beat| beat.unhealthy.clone()) {
            wrong.push(format!("the self-test fails: {why}"));
        }
        Box::pin(std::future::ready(wrong))
    }
}

/// Observer of the machine of a rep.
#[derive(Debug)]
pub(crate) struct RepObserver<'a> {
    watch: &'a RepMetrics,
    counted_at: Option<Instant>,
}

impl<'a> RepObserver<'a> {
    pub(crate) const fn new(watch: &'a RepMetrics) -> Self {
        Self { watch, counted_at: None }
    }
}

impl Observer<Rep> for RepObserver<'_> {
    fn before_input(&mut self, input: &Input) {
        if let Input::Container(container) = input {
            self.watch.record_change(container);
        }
    }

    fn after_step(&mut self, machine: &Rep, _: Instant) {
        let now = Instant::now();
        if self.counted_at.is_none_or(|counted| now.duration_since(counted) >= COUNT_INTERVAL) {
            *self.watch.containers.lock() = machine.containers();
            self.counted_at = Some(now);
        }
        *self.watch.known_log.lock() = machine.known_log();
        self.watch.driven.pulse.record_turn();
    }
}
