//! `muster dev --from-export FILE --paused`: shows the content of an exported log. A BBS answers queries. The
//! cluster makes no decisions, places no work and runs no containers.

use std::path::{Path, PathBuf};

use bus::InProcess;
use cli::archive::import;
use cli_base::failure::Failure;
use cli_base::output::note;
use host::error::ServiceError;
use host::local::{Local, LocalConfig, RoleBus, end_leftovers};
use host::monitoring::MetricsRegistry;
use host::past::Cache;
use journal::{Journal, Sqlite};
use runtime::folder::Folder;
use schemas::bus::Inbox;
use schemas::names::ServiceId;
use text::chain;
use tokio_util::sync::CancellationToken;

use super::{CELLS_FOLDER, Data, TableProjector, clear, client, failed, serve, wait_until_ready};

/// Shows the content of an export until the command is stopped.
///
/// # Errors
/// The export cannot be used, or the services cannot start or fail.
pub(super) async fn run(
    file: &Path,
    data: Data,
    socket: Option<PathBuf>,
    watching: MetricsRegistry,
    stop: CancellationToken,
) -> Result<(), Failure> {
    // The export is validated first, so an invalid export is reported before anything is created.
    let manifest = import::validate(file)?;
    let folder = data.open()?;
    if matches!(data, Data::Scratch(_)) {
        end_leftovers(&folder.path().join(CELLS_FOLDER)).await?;
        clear(&folder)?;
    }
    let journal = Sqlite::open_in(folder.clone()).await.map_err(|error| failed(chain(&error)))?;
    let journal = Journal::Sqlite(journal);
    let mut shown = tokio::select! {
        () = stop.cancelled() => Ok(()),
        imported = import::import(&journal, file, &manifest, true) => imported,
    };
    if shown.is_ok() && !stop.is_cancelled() {
        note(&format!("showing cluster {} at position {}", manifest.cluster, manifest.to));
        shown = show(&journal, &folder, socket, watching, &stop).await;
    }
    journal.close().await;
    clear(&folder)?;
    shown
}

async fn show(
    journal: &Journal,
    folder: &Folder,
    socket: Option<PathBuf>,
    watching: MetricsRegistry,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let bus = InProcess::new();
    let socket = serve(&bus, socket.unwrap_or_else(|| folder.path().join(client::target::SOCKET_FILE)))?;
    let service = ServiceId::new("paused").map_err(ServiceError::from)?;
    let bbs = bus.bus(&Inbox::Bbs(service)).map_err(ServiceError::from)?;
    let asks = client(&bus)?;
    let tables = TableProjector::start(journal, folder, &watching);
    let cache = Some(Cache::with_default_spacing(folder.path().join(super::SNAPSHOTS_FOLDER)));
    let mut local =
        Local::start_read_only(journal, bbs, LocalConfig { cache, watching, ..LocalConfig::default() })?;
    let result = tokio::select! {
        () = stop.cancelled() => Ok(()),
        why = local.failed() => Err(why.into()),
        why = wait_until_ready(&asks) => why,
    };
    if result.is_ok() && !stop.is_cancelled() {
        note("read-only: queries are answered, but nothing is decided, placed or run");
        note(&format!(
            "query it from another terminal, for example with muster status; socket {}",
            socket.path().display()
        ));
    }
    let result = match result {
        Ok(()) => tokio::select! {
            () = stop.cancelled() => Ok(()),
            why = local.failed() => Err(why.into()),
        },
        failed @ Err(_) => failed,
    };
    drop(socket);
    local.end().await;
    tables.end().await;
    result
}
