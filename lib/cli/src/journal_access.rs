//! Direct access to the journal, for commands that read the whole journal, or write it while no BBS runs.

use std::path::Path;
use std::time::Duration;

use ::journal::{JetStream, Journal, JournalError, Sqlite, StreamSettings};
use access::Role;
use cli_base::connect::{JournalLocation, data_folder, nats, role};
use cli_base::failure::Failure;
use cli_base::options::Global;
use host::serve::{Nats, identity};
use runtime::exit::Exit;
use schemas::bus::Inbox;
use schemas::names::ServiceId;
use text::chain;

/// Maximum time to wait for the stream of a NATS server.
const STREAM_WAIT: Duration = Duration::from_secs(5);

/// Opens the journal for reading, from the selected NATS server or from the data folder of a local cluster.
/// The local cluster may be running, so its journal is opened read-only. On a NATS server, the permissions of
/// a projector exclude appends.
///
/// # Errors
/// The journal does not exist or cannot be read.
pub(crate) async fn read_journal(global: &Global) -> Result<Journal, Failure> {
    let Some(folder) = data_folder(global) else { return open_nats(global, Inbox::Projector).await };
    check_exists(&folder)?;
    Ok(Journal::Sqlite(Sqlite::open_read_only(&folder).await.map_err(failed)?))
}

/// Opens the journal for inspection. Unlike [`read_journal`], this function accepts a journal with lost or
/// damaged entries, which a BBS would refuse.
///
/// # Errors
/// The journal does not exist or cannot be read.
pub(crate) async fn inspect_journal(global: &Global) -> Result<Journal, Failure> {
    let Some(folder) = data_folder(global) else { return inspect_nats(global).await };
    check_exists(&folder)?;
    Ok(Journal::Sqlite(Sqlite::inspect(&folder).await.map_err(failed)?))
}

async fn inspect_nats(global: &Global) -> Result<Journal, Failure> {
    let (nats, name, inbox) = connection_identity(global, Inbox::Projector)?;
    let connection = nats.connect(&name, &inbox).await?;
    Ok(Journal::JetStream(JetStream::inspect(connection).await.map_err(failed)?))
}

/// Opens the journal for writing. No BBS may write it at the same time.
///
/// # Errors
/// The journal does not exist, another process has it open, or it cannot be written.
pub(super) async fn open_for_writing(global: &Global, place: JournalLocation) -> Result<Journal, Failure> {
    match place {
        JournalLocation::Data(folder) => {
            check_exists(&folder)?;
            Ok(Journal::Sqlite(Sqlite::open(&folder).await.map_err(failed)?))
        }
        JournalLocation::Nats => open_nats(global, Inbox::BbsWriter).await,
    }
}

async fn open_nats(global: &Global, inbox: impl FnOnce(ServiceId) -> Inbox) -> Result<Journal, Failure> {
    let (nats, name, inbox) = connection_identity(global, inbox)?;
    let settings = StreamSettings { create: false, ..StreamSettings::default() };
    let opened = nats.journal(&name, &inbox, &settings);
    match tokio::time::timeout(STREAM_WAIT, opened).await {
        Ok(journal) => Ok(journal?),
        Err(_) => {
            Err(Failure::new(Exit::Failed, "Journal", format!("no journal found within {STREAM_WAIT:?}")))
        }
    }
}

/// Returns the selected server, the name of the connection, and the inbox for replies.
fn connection_identity(
    global: &Global,
    inbox: impl FnOnce(ServiceId) -> Inbox,
) -> Result<(Nats, String, Inbox), Failure> {
    let nats = nats(global)
        .ok_or_else(|| Failure::usage("no NATS server is set: pass --nats URL, or set MUSTER_NATS_URL"))?;
    let (id, _) = identity("operator")?;
    let name = format!("{id} at the journal");
    // The server grants an authenticated user only its own inbox.
    let inbox = match role(global) {
        Some(Role::Operator(who)) => Inbox::Operator(who),
        Some(Role::Auditor(who)) => Inbox::Auditor(who),
        Some(Role::BbsWriter) => Inbox::BbsWriter(id),
        Some(Role::Projector) => Inbox::Projector(id),
        Some(
            Role::Bbs
            | Role::Auctioneer
            | Role::Rep(_)
            | Role::Client(..)
            | Role::Gateway(_)
            | Role::Admin(_)
            | Role::System,
        )
        | None => inbox(id),
    };
    Ok((nats, name, inbox))
}

fn check_exists(folder: &Path) -> Result<(), Failure> {
    if folder.join(::journal::FILE).is_file() {
        return Ok(());
    }
    Err(Failure::not_found(format!("the journal in {}", folder.display())))
}

fn failed(error: JournalError) -> Failure {
    Failure::new(Exit::Failed, "Journal", chain(&error))
}
