//! The journal itself, for what reads all of it or writes it where no BBS runs.

use std::path::Path;
use std::time::Duration;

use ::journal::{JetStream, Journal, JournalError, Sqlite, StreamSettings};
use access::Role;
use schemas::bus::Inbox;
use schemas::names::ServiceId;

use super::args::Global;
use super::connect::{JournalPlace, data_folder, role};
use super::failure::{Exit, Failure};
use crate::error::chain;
use crate::launch;
use crate::serve::{Nats, identity};

/// How long the stream of a NATS server is waited for.
const STREAM: Duration = Duration::from_secs(5);

/// Opens the journal to read it: of the NATS server that the user means, or of the data folder of a local cluster, which
/// may run meanwhile. Appending is refused, or what the server's permissions for a projector refuse.
///
/// # Errors
/// There is none, or it can't be read.
pub(crate) async fn read_journal(global: &Global) -> Result<Journal, Failure> {
    let Some(folder) = data_folder(global) else { return of_nats(global, Inbox::Projector).await };
    check_there(&folder)?;
    Ok(Journal::Sqlite(Sqlite::open_to_read(&folder).await.map_err(failed)?))
}

/// As [`read_journal`], for whoever looks at what there is, also where something of it was lost or is damaged: of a journal
/// that no BBS would go on with.
///
/// # Errors
/// There is none, or it can't be read.
pub(crate) async fn inspect_journal(global: &Global) -> Result<Journal, Failure> {
    let Some(folder) = data_folder(global) else { return inspect_nats(global).await };
    check_there(&folder)?;
    Ok(Journal::Sqlite(Sqlite::inspect(&folder).await.map_err(failed)?))
}

async fn inspect_nats(global: &Global) -> Result<Journal, Failure> {
    let (nats, name, inbox) = who(global, Inbox::Projector)?;
    let connection = nats.connect(&name, &inbox).await?;
    Ok(Journal::JetStream(JetStream::inspect(connection).await.map_err(failed)?))
}

/// Opens the journal to write it, where no BBS does.
///
/// # Errors
/// There is none, somebody has it, or it can't be written.
pub(super) async fn to_write(global: &Global, place: JournalPlace) -> Result<Journal, Failure> {
    match place {
        JournalPlace::Data(folder) => {
            check_there(&folder)?;
            Ok(Journal::Sqlite(Sqlite::open(&folder).await.map_err(failed)?))
        }
        JournalPlace::Nats => of_nats(global, Inbox::BbsWriter).await,
    }
}

async fn of_nats(global: &Global, inbox: impl FnOnce(ServiceId) -> Inbox) -> Result<Journal, Failure> {
    let (nats, name, inbox) = who(global, inbox)?;
    let settings = StreamSettings { create: false, ..StreamSettings::default() };
    let opened = nats.journal(&name, &inbox, &settings);
    match tokio::time::timeout(STREAM, opened).await {
        Ok(journal) => Ok(journal?),
        Err(_) => {
            Err(Failure::new(Exit::Failed, "Journal", format!("no journal was found within {STREAM:?}")))
        }
    }
}

/// The server that the user means, the name of the connection to it, and where that is answered.
fn who(global: &Global, inbox: impl FnOnce(ServiceId) -> Inbox) -> Result<(Nats, String, Inbox), Failure> {
    let nats = launch::nats(global).ok_or_else(|| Failure::usage("no NATS server is named"))?;
    let (id, _) = identity("operator")?;
    let name = format!("{id} at the journal");
    // Whoever the server knows hears its own inbox alone.
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

fn check_there(folder: &Path) -> Result<(), Failure> {
    if folder.join(::journal::FILE).is_file() {
        return Ok(());
    }
    Err(Failure::not_found(format!("a journal in {}", folder.display())))
}

fn failed(error: JournalError) -> Failure {
    Failure::new(Exit::Failed, "Journal", chain(&error))
}
