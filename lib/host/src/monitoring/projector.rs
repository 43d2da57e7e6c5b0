//! Metrics and probes of a projector.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use journal::Journal;
use metrics::catalogue as of;
use metrics::family::{Sample, Service};
use metrics::page::{Source, SourceFuture};
use metrics::pulse::Pulse;
use parking_lot::Mutex;
use schemas::Position;
use tokio_util::sync::CancellationToken;

use super::MetricsRegistry;
use super::lag::Lag;

/// Metrics of a projector.
#[derive(Debug)]
pub struct ProjectorMetrics {
    refused: Arc<AtomicU64>,
    lag: Arc<Lag>,
    pulse: Pulse,
    /// Position of the tables. `None` if no tables exist yet.
    position: Mutex<Option<Position>>,
    /// Error of the entry that stopped the projector. `None` while it continues.
    stop_reason: Mutex<Option<String>>,
}

impl ProjectorMetrics {
    /// Creates and registers the metrics of a projector.
    pub fn register(
        watching: &MetricsRegistry,
        journal: Journal,
        refused: Arc<AtomicU64>,
        ends: CancellationToken,
    ) -> Arc<Self> {
        let watch = Arc::new(Self {
            refused,
            lag: Arc::default(),
            pulse: Pulse::default(),
            position: Mutex::default(),
            stop_reason: Mutex::default(),
        });
        watching.register_follower(
            &watch,
            (&watch.lag, journal),
            |watch: &Self| watch.position().unwrap_or_default(),
            ends,
        );
        watch
    }

    /// Records the position of the tables. Called repeatedly while the projector follows the journal.
    pub(crate) fn set_position(&self, position: Position) {
        *self.position.lock() = Some(position);
        self.pulse.record_turn();
    }

    /// Records that the projector waits for the database or for an operator.
    pub(crate) fn mark_idle(&self) {
        self.pulse.record_end();
    }

    /// Sets or clears the reason why the projector cannot continue.
    pub(crate) fn set_stop_reason(&self, why: Option<String>) {
        *self.stop_reason.lock() = why;
    }

    fn position(&self) -> Option<Position> {
        *self.position.lock()
    }
}

impl Source for ProjectorMetrics {
    fn service(&self) -> Service {
        Service::Projector
    }

    fn tell(&self) -> SourceFuture<'_, Vec<Sample>> {
        let position = self.position();
        let behind = self.lag.behind(position.unwrap_or_default());
        let mut told = vec![
            of::CONNECTED.value_sample(behind.error.is_none()),
            of::VIOLATIONS.value_sample(self.refused.load(Ordering::Relaxed)),
            of::DEAD_LETTERS.value_sample(self.stop_reason.lock().is_some()),
        ];
        if let Some(position) = position {
            told.extend([
                of::PROJECTION_POSITION.value_sample(position.0),
                of::PROJECTION_LAG_ENTRIES.value_sample(behind.entries),
                of::PROJECTION_LAG.value_sample(behind.duration.as_secs_f64()),
            ]);
        }
        Box::pin(std::future::ready(told))
    }

    fn status_text(&self) -> String {
        let position = self.position().unwrap_or_default();
        format!("tables at position {position}")
    }

    fn hang_reason(&self) -> Option<String> {
        self.pulse
            .hang_time()
            .map(|still| format!("its main loop has made no progress for {} s", still.as_secs()))
    }

    fn unready_reasons(&self) -> SourceFuture<'_, Vec<String>> {
        let mut wrong = vec![];
        if let Some(why) = &*self.stop_reason.lock() {
            wrong.push(why.clone());
        }
        match self.position() {
            Some(position) => wrong.extend(self.lag.behind(position).problem()),
            None => wrong.push(
                "no tables yet: the database does not answer, or another projector writes them".to_owned(),
            ),
        }
        Box::pin(std::future::ready(wrong))
    }
}
