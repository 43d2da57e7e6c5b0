//! Driver of a projector.

use journal::Journal;
use projector::{Error, Url};
use tokio_util::sync::CancellationToken;

use super::ended::Ended;
use super::setting_aside;
use super::watching::projector::ProjectorWatch;

/// Keeps the tables of a database up to date until `stop` is cancelled. An entry that this program does not
/// understand stops the projector until an operator quarantines the entry or requests another read.
///
/// # Errors
/// The journal or the database fails.
pub(crate) async fn run(
    journal: Journal,
    url: Url,
    watch: &ProjectorWatch,
    stop: CancellationToken,
) -> Result<(), Ended> {
    while let Some(known) = setting_aside::known(&journal, &stop).await? {
        let ended = projector::run(&journal, known.clone(), &url, &stop, |end| match end {
            Some(end) => {
                tracing::debug!(position = %end.position, "the tables are written");
                watch.stands_at(end.position);
            }
            None => watch.rests(),
        });
        let Err(error) = ended.await else { return Ok(()) };
        let Error::Unreadable { .. } = error else { return Err(error.into()) };
        watch.stops(Some(error.to_string()));
        tracing::error!(
            "{error}. Nothing is lost. The tables stay as they are. If that entry shall not count: \
             muster journal set-aside POSITION --reason TEXT"
        );
        let asked = projector::asked(&url, &stop);
        let changed = tokio::select! {
            changed = setting_aside::changed(&journal, &known, &stop) => changed?,
            asked = asked => asked?,
        };
        if !changed {
            return Err(error.into());
        }
        watch.stops(None);
        tracing::warn!(
            "an operator has set aside what stopped this projector, or wants it read again: it goes on"
        );
    }
    Ok(())
}

/// Rebuilds the tables of a database next to the existing ones. Required if another version of this program
/// made the existing ones, or if they include entries that were quarantined later.
///
/// # Errors
/// Fails like [`run`], and if the log holds an entry that this program does not understand.
pub(crate) async fn rebuild(journal: &Journal, url: &Url, stop: &CancellationToken) -> Result<(), Ended> {
    if let Some(known) = setting_aside::known(journal, stop).await? {
        tracing::warn!(
            "the tables of {url} were made by another version of muster, or hold what was set aside since: they are made again"
        );
        projector::rebuild::rebuild(journal, &known, url, false, stop, |_| {}).await?;
    }
    Ok(())
}
