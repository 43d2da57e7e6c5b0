//! Driver of a projector.

use journal::Journal;
use projector::{Error, Url};
use tokio_util::sync::CancellationToken;

use super::monitoring::projector::ProjectorMetrics;
use super::quarantine;
use super::run_error::RunError;

/// Keeps the tables of a database up to date until `stop` is cancelled. An entry that this program does not
/// understand stops the projector. The projector continues when an operator quarantines the entry or requests
/// a retry.
///
/// # Errors
/// The journal or the database fails.
pub(crate) async fn run(
    journal: Journal,
    url: Url,
    watch: &ProjectorMetrics,
    stop: CancellationToken,
) -> Result<(), RunError> {
    while let Some(known) = quarantine::quarantined_positions(&journal, &stop).await? {
        let ended = projector::run(&journal, known.clone(), &url, &stop, |end| match end {
            Some(end) => {
                tracing::debug!(position = %end.position, "the tables are written");
                watch.set_position(end.position);
            }
            None => watch.mark_idle(),
        });
        let Err(error) = ended.await else { return Ok(()) };
        let Error::Unreadable { .. } = error else { return Err(error.into()) };
        watch.set_stop_reason(Some(error.to_string()));
        tracing::error!(
            "{error}. No data is lost. The tables are no longer updated. To quarantine the entry: \
             muster journal quarantine POSITION --reason TEXT"
        );
        let asked = projector::wait_for_retry_request(&url, &stop);
        let changed = tokio::select! {
            changed = quarantine::wait_for_change(&journal, &known, &stop) => changed?,
            asked = asked => asked?,
        };
        if !changed {
            return Err(error.into());
        }
        watch.set_stop_reason(None);
        tracing::warn!(
            "the entry that stopped this projector is quarantined, or a retry was requested: continuing"
        );
    }
    Ok(())
}

/// Rebuilds the tables of a database next to the existing ones. A rebuild is required if another version of
/// this program created the existing tables, or if an entry in the existing tables was quarantined later.
///
/// # Errors
/// Fails like [`run`]. Also fails if the log holds an entry that this program does not understand.
pub(crate) async fn rebuild(journal: &Journal, url: &Url, stop: &CancellationToken) -> Result<(), RunError> {
    if let Some(known) = quarantine::quarantined_positions(journal, stop).await? {
        tracing::warn!(
            "rebuilding the tables of {url}: another version of muster created them, or an entry in them was \
             quarantined later"
        );
        projector::rebuild::rebuild(journal, &known, url, false, stop, |_| {}).await?;
    }
    Ok(())
}
