//! `muster journal`: operator commands that change the journal itself.

use ::journal::examine::ExamineError;
use ::journal::{STREAM, migrate};
use access::Role;
use clap::Subcommand;
use cli_base::connect::{JournalLocation, client_name, connect, journal_location, nats, role};
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::Output;
use client::Error;
use host::error::ServiceError;
use host::quarantine;
use projections::cluster_log::QuarantineOrder;
use runtime::exit::Exit;
use schemas::bus::INBOX_ROOT;
use schemas::message::Ack;
use schemas::stamp::Actor;
use schemas::{Position, Refusal};
use serde::Serialize;
use text::chain;

use super::arguments::parse_position;
use super::journal_access;

/// Subcommands of `muster journal`.
#[derive(Clone, Debug, Subcommand)]
pub enum JournalVerb {
    /// Quarantine a position: every service skips the entry. Use it for an entry that a newer
    /// version wrote, because every BBS stops at such an entry. If no BBS answers, the command writes the
    /// quarantine record directly to the journal
    #[command(aliases = ["set-aside", "skip"])]
    Quarantine {
        /// Position of the entry in the log
        #[arg(value_parser = parse_position)]
        position: Position,
    },
    /// Turn off compression of the journal's stream. The command needs
    /// the credentials of an admin of the NATS server. It changes no entry, and services may keep running
    Migrate,
}

/// Output of `muster journal quarantine`.
#[derive(Serialize)]
struct QuarantineResult {
    /// Position of the quarantined entry.
    quarantined: Position,
    /// Position of the entry that records the quarantine.
    position: Position,
}

/// Output of `muster journal migrate`.
#[derive(Serialize)]
struct MigrationResult {
    stream: &'static str,
    /// `false` if there was nothing to migrate.
    changed: bool,
}

pub(crate) async fn run(verb: JournalVerb, global: &Global) -> Result<(), Failure> {
    match verb {
        JournalVerb::Quarantine { position } => quarantine_position(position, global).await,
        JournalVerb::Migrate => {
            let changed =
                migrate_stream(global).await.map_err(|failure| failure.while_doing("migrate the journal"))?;
            Output::new(global).write_one(&MigrationResult { stream: STREAM, changed }, |migrated, _| {
                let MigrationResult { stream, changed } = migrated;
                if *changed {
                    format!(
                        "the stream {stream} is no longer compressed; \
                             existing compressed entries stay readable"
                    )
                } else {
                    format!("the stream {stream} is not compressed: nothing to migrate")
                }
            })
        }
    }
}

/// Turns off compression of the stream. Requires the credentials of a NATS admin.
async fn migrate_stream(global: &Global) -> Result<bool, Failure> {
    let Some(nats) = nats(global) else {
        return Err(Failure::usage("no NATS server is set: only a NATS stream can be migrated"));
    };
    let advice = "create an admin: muster auth add FOLDER admin NAME; \
                  then set its credentials: --creds FOLDER/users/admin-NAME.nk";
    let admin = match role(global) {
        Some(Role::Admin(name)) => name,
        None => client_name(global),
        Some(other) => {
            let why = format!("{other} may not update the stream: expected the credentials of an admin");
            return Err(Failure::usage(why).advise(advice));
        }
    };
    let connected =
        nats.connect_for_diagnosis("muster journal migrate", &format!("{INBOX_ROOT}admin.{admin}")).await;
    let connection = connected.map_err(ServiceError::from)?;
    migrate::uncompress(&connection).await.map_err(|error| {
        let is_forbidden = matches!(error, ExamineError::Forbidden(_));
        let failure = Failure::new(Exit::Failed, "Journal", chain(&error));
        if is_forbidden { failure.advise(advice) } else { failure }
    })
}

async fn quarantine_position(position: Position, global: &Global) -> Result<(), Failure> {
    let doing = |failure: Failure| failure.while_doing(format!("quarantine position {position}"));
    let Some(reason) = global.reason.clone().filter(|reason| !reason.trim().is_empty()) else {
        let why = "no reason is set: the log records why an entry is quarantined";
        return Err(doing(Failure::usage(why).advise("set a reason: --reason TEXT")));
    };
    let done = match asked(global, position).await {
        Err(RequestError::Unreachable(failure)) => match journal_location(global) {
            Some(place) => write_quarantine(global, place, position, reason).await,
            None => Err(failure),
        },
        Err(RequestError::Refused(failure)) => Err(failure),
        Ok(done) => Ok(done),
    };
    let done = QuarantineResult { quarantined: position, position: done.map_err(doing)?.position };
    Output::new(global).add_result(&done, |done, _| {
        format!("position {} is quarantined: recorded at position {}", done.quarantined, done.position)
    })
}

/// Reason that no BBS recorded the quarantine.
enum RequestError {
    /// No BBS is reachable.
    Unreachable(Failure),
    /// A BBS refused the request, or the request failed for another reason.
    Refused(Failure),
}

/// Requests the quarantine from a BBS. The error shows whether no BBS was reachable or a BBS refused the
/// request.
async fn asked(global: &Global, position: Position) -> Result<Ack, RequestError> {
    let client = connect(global).await.map_err(|failure| {
        if failure.exit == Exit::Unreachable {
            RequestError::Unreachable(failure)
        } else {
            RequestError::Refused(failure)
        }
    })?;
    client.quarantine(position).await.map_err(|error| match error {
        error @ Error::Unreachable(_) => RequestError::Unreachable(error.into()),
        error @ (Error::Refused(_)
        | Error::TimedOut { .. }
        | Error::Protocol { .. }
        | Error::Setup { .. }) => RequestError::Refused(error.into()),
    })
}

/// Writes the quarantine directly to the journal.
async fn write_quarantine(
    global: &Global,
    place: JournalLocation,
    position: Position,
    reason: String,
) -> Result<Ack, Failure> {
    let journal = journal_access::open_for_writing(global, place).await?;
    let order = QuarantineOrder { position, actor: Actor::Operator(client_name(global)), reason };
    let done: Result<Ack, Refusal> = quarantine::record_quarantine(&journal, order, None).await;
    journal.close().await;
    done.map_err(Failure::from)
}
