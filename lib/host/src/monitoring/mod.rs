//! Metrics and probes of services (docs/guides/monitor.md).
//!
//! The drivers of the state machines count events with atomic additions, even if no program reads the
//! metrics. The state of a machine is queried on demand, from the machine or from a snapshot of the World
//! (the state folded from the log).
//!
//! | file | content |
//! |---|---|
//! | `mod.rs` | registration of services for metrics and supervision |
//! | `bbs`, `auctioneer`, `rep`, `projector` | metrics and probes of each service |
//! | `commands` | durations of commands by verb and outcome |
//! | `machine` | metrics of all services with a machine |
//! | `lag` | lag of a service behind the journal |

pub(crate) mod auctioneer;
pub(crate) mod bbs;
pub(crate) mod commands;
mod lag;
mod machine;
#[cfg(feature = "projector")]
pub mod projector;
pub(crate) mod rep;

use std::sync::Arc;

use journal::Journal;
use metrics::family::{Family, Sample};
use metrics::page::{Page, Source};
use schemas::Position;
use schemas::message::LeadershipStatus;
use tokio_util::sync::CancellationToken;

use self::lag::Lag;
use crate::supervision::Supervised;

/// Number of bytes in a MiB.
const MIB: u64 = 1 << 20;

/// Registry for the services of this program. Does nothing if there is neither a metrics page nor a
/// supervisor.
#[derive(Clone, Debug, Default)]
pub struct MetricsRegistry {
    page: Option<Page>,
    /// Supervisor of this program. `None` if there is no supervisor, or if the program runs several services.
    supervisor: Option<Supervised>,
}

impl MetricsRegistry {
    /// Creates a registry for a metrics page.
    pub(crate) const fn with_page(page: Page) -> Self {
        Self { page: Some(page), supervisor: None }
    }

    /// Adds the supervisor of the program, if there is one.
    #[must_use]
    pub fn with_supervisor(self, supervised: Option<Supervised>) -> Self {
        Self { supervisor: supervised, ..self }
    }

    /// Registers a service.
    pub(super) fn register(&self, source: Arc<dyn Source>) {
        if let Some(supervised) = &self.supervisor {
            supervised.report_on(Arc::clone(&source));
        }
        if let Some(page) = &self.page {
            page.add(source);
        }
    }

    /// Registers a service that follows the journal. Its lag is observed until the token is cancelled.
    fn register_follower<S: Source + 'static>(
        &self,
        source: &Arc<S>,
        following: (&Arc<Lag>, Journal),
        position: impl Fn(&S) -> Position + Send + 'static,
        ends: CancellationToken,
    ) {
        self.observe_lag(source, following, position, ends);
        self.register(Arc::clone(source) as Arc<dyn Source>);
    }

    /// Observes the lag of a service until the token is cancelled. Does nothing if there is neither a metrics
    /// page nor a supervisor.
    fn observe_lag<S: Source + 'static>(
        &self,
        source: &Arc<S>,
        (lag, journal): (&Arc<Lag>, Journal),
        position: impl Fn(&S) -> Position + Send + 'static,
        ends: CancellationToken,
    ) {
        if self.page.is_some() || self.supervisor.is_some() {
            let of = Arc::clone(source);
            lag.poll_end(journal, move || position(&of), ends);
        }
    }
}

/// Returns a sample for each label value of a metric that has a single label.
fn samples_by(
    family: &'static Family,
    values: impl IntoIterator<Item = (&'static str, u64)>,
) -> impl Iterator<Item = Sample> {
    let label = family.labels.first().copied().unwrap_or_default();
    values.into_iter().map(move |(name, value)| family.sample(vec![(label, name.to_owned())], value))
}

/// Returns the leadership and the position of a service as text.
fn standing_text(standing: LeadershipStatus) -> String {
    let LeadershipStatus { position, leads, .. } = standing;
    format!("{} at position {position}", if leads { "leading" } else { "standby" })
}
