//! Metrics and probes of services (docs/operations.md, "Watching").
//!
//! Drivers count events with atomic additions, whether metrics are read or not. The state of a machine is
//! queried on demand, from the machine or from a World snapshot.
//!
//! | file | content |
//! |---|---|
//! | `mod.rs` | registration of services for metrics and supervision |
//! | [`bbs`], [`auctioneer`], [`rep`], [`projector`] | metrics and probes of each service |
//! | [`commands`] | durations of commands by verb and outcome |
//! | [`driven`] | metrics of all services with a machine |
//! | [`lag`] | lag of a service behind the journal |

pub(crate) mod auctioneer;
pub(crate) mod bbs;
pub(crate) mod commands;
mod driven;
mod lag;
pub(crate) mod projector;
pub(crate) mod rep;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journal::Journal;
use metrics::family::{Family, Sample};
use metrics::page::{Page, Source};
use schemas::Position;
use schemas::message::Standing;
use tokio_util::sync::CancellationToken;

use self::lag::Lag;
use crate::supervised::Supervised;

/// Number of bytes in a MiB.
const MIB: u64 = 1 << 20;

/// Registry for the services of this program. Does nothing without a metrics page and a supervisor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watching {
    page: Option<Page>,
    /// Supervisor of the only service.
    supervised: Option<Supervised>,
}

impl Watching {
    /// Creates a registry for a metrics page.
    pub(crate) const fn by(page: Page) -> Self {
        Self { page: Some(page), supervised: None }
    }

    /// Adds the supervisor of the program, if there is one.
    pub(crate) fn supervised(self, supervised: Option<Supervised>) -> Self {
        Self { supervised, ..self }
    }

    /// Registers a service.
    pub(super) fn add(&self, source: Arc<dyn Source>) {
        if let Some(supervised) = &self.supervised {
            supervised.of(Arc::clone(&source));
        }
        if let Some(page) = &self.page {
            page.add(source);
        }
    }

    /// Registers a service that follows the journal. Its lag is observed until the token is cancelled.
    fn add_follower<S: Source + 'static>(
        &self,
        source: &Arc<S>,
        following: (&Arc<Lag>, Journal),
        position: impl Fn(&S) -> Position + Send + 'static,
        ends: CancellationToken,
    ) {
        self.follow(source, following, position, ends);
        self.add(Arc::clone(source) as Arc<dyn Source>);
    }

    /// Observes the lag of a service until the token is cancelled. Does nothing without a metrics page and a
    /// supervisor.
    fn follow<S: Source + 'static>(
        &self,
        source: &Arc<S>,
        (lag, journal): (&Arc<Lag>, Journal),
        position: impl Fn(&S) -> Position + Send + 'static,
        ends: CancellationToken,
    ) {
        if self.page.is_some() || self.supervised.is_some() {
            let of = Arc::clone(source);
            lag.watch(journal, move || position(&of), ends);
        }
    }
}

/// Returns a sample for each value of the only label of a metric.
fn by(
    family: &'static Family,
    values: impl IntoIterator<Item = (&'static str, u64)>,
) -> impl Iterator<Item = Sample> {
    let label = family.labels.first().copied().unwrap_or_default();
    values.into_iter().map(move |(name, value)| family.is(vec![(label, name.to_owned())], value))
}

/// Describes whether a service leads, and its position.
fn leading(standing: Standing) -> String {
    let Standing { position, leads, .. } = standing;
    format!("{} at position {position}", if leads { "leads" } else { "stands by" })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
