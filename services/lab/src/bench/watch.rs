//! Follower of the log for the benchmark. It knows the holder of each instance, and the delivery time of each
//! event.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use journal::Journal;
use parking_lot::Mutex;
use schemas::entry::{Aggregate, Event};
use schemas::names::{CellId, InstanceGuid};
use schemas::subject::Position;
use schemas::{Decision, Entry, actual, cell, task};
use tokio::sync::Notify;

use super::BenchError;

/// Timeout of each wait.
const TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
struct LogState {
    running: BTreeMap<(String, u32), (CellId, InstanceGuid, Instant)>,
    cells: u32,
    counts: Counts,
    last_started: Option<Instant>,
    last_completed: Option<Instant>,
    failed: Option<BenchError>,
}

/// Size of the log at one moment, in entries, decisions, bytes and events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) entries: u64,
    pub(super) decisions: u64,
    pub(super) bytes: u64,
    pub(super) started: u64,
    pub(super) removed: u64,
    pub(super) completed: u64,
}

/// Follower of the log that allows waiting for events.
#[derive(Debug)]
pub(super) struct LogWatcher {
    seen: Arc<Mutex<LogState>>,
    changed: Arc<Notify>,
}

impl LogWatcher {
    pub(super) fn start(journal: Journal) -> Self {
        let watch = Self { seen: Arc::default(), changed: Arc::default() };
        let (seen, changed) = (Arc::clone(&watch.seen), Arc::clone(&watch.changed));
        tokio::spawn(async move {
            let mut follower = journal.follow(Position(0));
            loop {
                match follower.next_batch(1_000).await {
                    Ok(batch) => {
                        let now = Instant::now();
                        let mut seen = seen.lock();
                        for recorded in batch {
                            seen.apply_entry(&recorded.bytes, now);
                        }
                    }
                    Err(error) => {
                        seen.lock().failed = Some(BenchError::Follow(error));
                        changed.notify_waiters();
                        return;
                    }
                }
                changed.notify_waiters();
            }
        });
        watch
    }

    /// Waits until `so` returns a value.
    async fn until<T>(
        &self,
        what: &str,
        mut so: impl FnMut(&LogState) -> Option<T>,
    ) -> Result<T, BenchError> {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut seen = self.seen.lock();
                if let Some(value) = so(&seen) {
                    return Ok(value);
                }
                // The error can be removed here, because it ends the benchmark.
                if let Some(why) = seen.failed.take() {
                    return Err(why);
                }
            }
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                return Err(BenchError::Timeout { what: what.to_owned(), limit: TIMEOUT });
            }
        }
    }

    pub(super) async fn wait_for_cells(&self, cells: u32) -> Result<(), BenchError> {
        self.until("the cells", |seen| (seen.cells >= cells).then_some(())).await
    }

    pub(super) async fn wait_until_running(&self, guid: &str, index: u32) -> Result<Instant, BenchError> {
        let key = (guid.to_owned(), index);
        self.until(guid, |seen| seen.running.get(&key).map(|(_, _, at)| *at)).await
    }

    pub(super) async fn wait_until_replaced(
        &self,
        guid: &str,
        index: u32,
        than: InstanceGuid,
    ) -> Result<Instant, BenchError> {
        let key = (guid.to_owned(), index);
        let another = |seen: &LogState| {
            let (_, instance, at) = seen.running.get(&key)?;
            (*instance != than).then_some(*at)
        };
        self.until(guid, another).await
    }

    /// Waits until the log contains `wanted` starts in total. Returns the time of the last start, or `None`
    /// if there was no start.
    pub(super) async fn wait_for_starts(&self, wanted: u64) -> Result<Option<Instant>, BenchError> {
        let enough = |seen: &LogState| (seen.counts.started >= wanted).then_some(seen.last_started);
        self.until("the start of instances", enough).await
    }

    /// Waits until the log contains `wanted` removed instances in total.
    pub(super) async fn wait_for_removals(&self, wanted: u64) -> Result<(), BenchError> {
        self.until("the removal of instances", |seen| (seen.counts.removed >= wanted).then_some(())).await
    }

    /// Waits until the log contains `tasks` completed tasks in total. Returns the time of the last
    /// completion, or `None` if no task completed.
    pub(super) async fn wait_for_completions(&self, tasks: u64) -> Result<Option<Instant>, BenchError> {
        let enough = |seen: &LogState| (seen.counts.completed >= tasks).then_some(seen.last_completed);
        self.until("the completion of tasks", enough).await
    }

    pub(super) fn holder(&self, guid: &str, index: u32) -> Option<(CellId, InstanceGuid)> {
        let seen = self.seen.lock();
        seen.running.get(&(guid.to_owned(), index)).map(|(cell, instance, _)| (cell.clone(), *instance))
    }

    pub(super) fn on_cell(&self, cell: &CellId) -> Vec<(String, u32, InstanceGuid)> {
        let seen = self.seen.lock();
        let here = seen.running.iter().filter(|(_, (on, _, _))| on == cell);
        here.map(|((guid, index), (_, instance, _))| (guid.clone(), *index, *instance)).collect()
    }

    pub(super) fn counts(&self) -> Counts {
        self.seen.lock().counts
    }
}

impl LogState {
    fn apply_entry(&mut self, bytes: &[u8], now: Instant) {
        match Entry::decode(bytes) {
            Ok(entry) => {
                self.counts.entries += 1;
                self.counts.bytes += bytes.len() as u64;
                for decision in &entry.decisions {
                    self.counts.decisions += 1;
                    self.apply_decision(decision, now);
                }
            }
            Err(error) => self.failed = Some(BenchError::Read(error)),
        }
    }

    fn apply_decision(&mut self, decision: &Decision, now: Instant) {
        for event in &decision.events {
            match (event, &decision.aggregate) {
                (
                    Event::Actual(actual::Event::Started { place, by, .. }),
                    Aggregate::Process { guid, .. },
                ) => {
                    let holder = (by.cell_id.clone(), by.instance_guid, now);
                    self.running.insert((guid.as_str().to_owned(), place.index), holder);
                    self.counts.started += 1;
                    self.last_started = Some(now);
                }
                (Event::Actual(actual::Event::Removed { places, .. }), Aggregate::Process { guid, .. }) => {
                    for place in places.iter() {
                        self.running.remove(&(guid.as_str().to_owned(), place.index));
                        self.counts.removed += 1;
                    }
                }
                (Event::Task(task::Event::Completed { outcome, .. }), _) => {
                    self.counts.completed += 1;
                    self.last_completed = Some(now);
                    if let task::Outcome::Failed { reason } = outcome {
                        self.failed = Some(BenchError::TaskFailed(reason.clone()));
                    }
                }
                (Event::Cell(cell::Event::Appeared(_)), _) => self.cells += 1,
                (
                    Event::Desired(_)
                    | Event::Actual(_)
                    | Event::Evacuating(_)
                    | Event::Rollout(_)
                    | Event::Evaluation(_)
                    | Event::Task(_)
                    | Event::Periodic(_)
                    | Event::Parameterised(_)
                    | Event::Domain(_)
                    | Event::Cell(_)
                    | Event::Cluster(_),
                    _,
                ) => {}
            }
        }
    }
}
