//! Driver of a projector, and `muster projector`.

use std::sync::Arc;

use clap::Args;
use journal::{Journal, StreamSettings};
use projector::{Error, Url};
use schemas::bus::Inbox;
use tokio_util::sync::CancellationToken;

use super::error::ServiceError;
use super::monitoring::MetricsRegistry;
use super::monitoring::projector::ProjectorMetrics;
use super::quarantine;
use super::run_error::RunError;
use super::serve::{Nats, identity};
use super::telemetry_args::MetricsArgs;

/// Options of a projector.
#[derive(Clone, Debug, Args)]
pub struct ProjectorArgs {
    /// Database to write: sqlite:FILE, created if it does not exist, or
    /// `postgres://USER@HOST/DATABASE[?schema=NAME]`
    #[arg(long, value_name = "URL", env = "MUSTER_DATABASE")]
    database: Url,
    #[command(flatten)]
    pub metrics: MetricsArgs,
}

/// Runs a projector.
///
/// # Errors
/// The projector cannot start, or fails.
pub async fn run_projector(
    nats: &Nats,
    args: ProjectorArgs,
    watching: MetricsRegistry,
    stop: CancellationToken,
) -> Result<(), ServiceError> {
    let (id, _) = identity("projector")?;
    let inbox = Inbox::Projector(id.clone());
    let stream = StreamSettings::default();
    let opened = nats.wait_for_journal(id.as_str(), &inbox, &stream, &stop, |_| {}).await?;
    let Some(journal) = opened else { return Ok(()) };
    tracing::info!(%id, database = %args.database, "starting the projector");
    let refused = Arc::clone(&nats.refused);
    let watch = ProjectorMetrics::register(&watching, journal.clone(), refused, stop.child_token());
    Ok(run(journal, args.database, &watch, stop).await?)
}

/// Keeps the tables of a database up to date until `stop` is cancelled. An entry that this program does not
/// understand stops the projector. The projector continues when an operator quarantines the entry or requests
/// a retry.
///
/// # Errors
/// The journal or the database fails.
pub async fn run(
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
pub async fn rebuild(journal: &Journal, url: &Url, stop: &CancellationToken) -> Result<(), RunError> {
    if let Some(known) = quarantine::quarantined_positions(journal, stop).await? {
        tracing::warn!(
            "rebuilding the tables of {url}: another version of muster created them, or an entry in them was \
             quarantined later"
        );
        projector::rebuild::rebuild(journal, &known, url, false, stop, |_| {}).await?;
    }
    Ok(())
}
