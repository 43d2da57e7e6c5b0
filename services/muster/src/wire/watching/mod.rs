//! What services tell whoever watches them: metrics and probes (docs/operations.md, "Watching").
//!
//! Drivers count here what they see on their way: with atomic additions, whoever watches or not. What a machine holds is
//! asked of it, or of a picture of its World, when somebody looks.
//!
//! | the file | holds |
//! |---|---|
//! | this one | who watches, if anybody does |
//! | [`bbs`], [`auctioneer`], [`rep`], [`projector`] | what each service tells |
//! | [`commands`] | how long commands took, by verb and by outcome |
//! | [`driven`] | what those of them tell that drive a machine |
//! | [`lag`] | how far who follows the journal is behind it |

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

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// Who watches the services of this program, if anybody does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watching {
    page: Option<Page>,
    /// Who supervises the only one.
    supervised: Option<Supervised>,
}

impl Watching {
    /// Somebody reads this page.
    pub(crate) const fn by(page: Page) -> Self {
        Self { page: Some(page), supervised: None }
    }

    /// The same, where somebody supervises the program.
    pub(crate) fn supervised(self, supervised: Option<Supervised>) -> Self {
        Self { supervised, ..self }
    }

    /// Has a service tell how it is.
    pub(super) fn add(&self, source: Arc<dyn Source>) {
        if let Some(supervised) = &self.supervised {
            supervised.of(Arc::clone(&source));
        }
        if let Some(page) = &self.page {
            page.add(source);
        }
    }

    /// The same of one that follows the journal, from where it stands; the token ends that.
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

    /// Compares the position of a service with the end of the journal, for whoever watches; the token ends that.
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

/// A sample for each value of the one label of a metric.
fn by(
    family: &'static Family,
    values: impl IntoIterator<Item = (&'static str, u64)>,
) -> impl Iterator<Item = Sample> {
    let label = family.labels.first().copied().unwrap_or_default();
    values.into_iter().map(move |(name, value)| family.is(vec![(label, name.to_owned())], value))
}

/// Whether a service leads, and up to where it knows the log.
fn leading(standing: Standing) -> String {
    let Standing { position, leads, .. } = standing;
    format!("{} at position {position}", if leads { "leads" } else { "stands by" })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
