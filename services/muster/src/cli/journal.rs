//! `muster journal`: operator commands that change the journal itself.

use ::journal::examine::ExamineError;
use ::journal::{STREAM, migrate};
use access::Role;
use client::Error;
use projections::cluster_log::SetAsideOrder;
use schemas::bus::INBOX_ROOT;
use schemas::entry::Actor;
use schemas::message::Done;
use schemas::{Position, Refusal};
use serde::Serialize;

use super::args::{Global, JournalVerb};
use super::connect::{JournalPlace, connect, journal_place, name, role};
use super::direct;
use super::failure::{Exit, Failure};
use super::output::Output;
use crate::error::{ServiceError, chain};
use crate::launch;
use crate::wire::setting_aside;

/// Output of `muster journal set-aside`.
#[derive(Serialize)]
struct SetAside {
    /// Position of the quarantined entry.
    set_aside: Position,
    /// Position of the entry that records the quarantine.
    position: Position,
}

/// Output of `muster journal migrate`.
#[derive(Serialize)]
struct Migrated {
    stream: &'static str,
    /// `false` if there was nothing to migrate.
    changed: bool,
}

pub(crate) async fn run(verb: JournalVerb, global: &Global) -> Result<(), Failure> {
    match verb {
        JournalVerb::SetAside { position } => set_aside(position, global).await,
        JournalVerb::Migrate => {
            let changed =
                migrate_stream(global).await.map_err(|failure| failure.doing("migrate the journal"))?;
            Output::new(global).one(&Migrated { stream: STREAM, changed }, |migrated, _| {
                let Migrated { stream, changed } = migrated;
                if *changed {
                    format!("the stream {stream} is no longer compressed; entries that are compressed already stay readable")
                } else {
                    format!("the stream {stream} is not compressed: nothing to migrate")
                }
            })
        }
    }
}

/// Turns off compression of the stream. Requires the credentials of a NATS admin.
async fn migrate_stream(global: &Global) -> Result<bool, Failure> {
    let Some(nats) = launch::nats(global) else {
        return Err(Failure::usage("no NATS server is named: only a stream of one has anything to migrate"));
    };
    let advice = "make an admin: muster auth add FOLDER admin NAME; then set its credentials: --creds FOLDER/users/admin-NAME.nk";
    let admin = match role(global) {
        Some(Role::Admin(name)) => name,
        None => name(global),
        Some(other) => {
            let why = format!("{other} may not update the stream: expected the credentials of an admin");
            return Err(Failure::usage(why).advise(advice));
        }
    };
    let connected = nats.reach("muster journal migrate", &format!("{INBOX_ROOT}admin.{admin}")).await;
    let connection = connected.map_err(ServiceError::from)?;
    migrate::uncompress(&connection).await.map_err(|error| {
        let is_forbidden = matches!(error, ExamineError::Forbidden(_));
        let failure = Failure::new(Exit::Failed, "Journal", chain(&error));
        if is_forbidden { failure.advise(advice) } else { failure }
    })
}

async fn set_aside(position: Position, global: &Global) -> Result<(), Failure> {
    let doing = |failure: Failure| failure.doing(format!("set aside position {position}"));
    let Some(reason) = global.reason.clone().filter(|reason| !reason.trim().is_empty()) else {
        let why = "no reason is given: whoever reads the log later has to know why it does not count";
        return Err(doing(Failure::usage(why).advise("give one: --reason TEXT")));
    };
    let done = match asked(global, position).await {
        Err(Unanswered::Nobody(failure)) => match journal_place(global) {
            Some(place) => written(global, place, position, reason).await,
            None => Err(failure),
        },
        Err(Unanswered::Refused(failure)) => Err(failure),
        Ok(done) => Ok(done),
    };
    let done = SetAside { set_aside: position, position: done.map_err(doing)?.position };
    Output::new(global).next(&done, |done, _| {
        format!("position {} is set aside: recorded at position {}", done.set_aside, done.position)
    })
}

/// Reason that no BBS recorded the quarantine.
enum Unanswered {
    /// No BBS is reachable.
    Nobody(Failure),
    /// A BBS refused the request, or the request failed for another reason.
    Refused(Failure),
}

/// Requests the quarantine from a BBS. The error distinguishes an unreachable BBS from a refusal.
async fn asked(global: &Global, position: Position) -> Result<Done, Unanswered> {
    let client = connect(global).await.map_err(|failure| {
        if failure.exit == Exit::Unreachable {
            Unanswered::Nobody(failure)
        } else {
            Unanswered::Refused(failure)
        }
    })?;
    client.set_aside(position).await.map_err(|error| match error {
        error @ Error::Unreachable(_) => Unanswered::Nobody(error.into()),
        error @ (Error::Refused(_)
        | Error::TimedOut { .. }
        | Error::Protocol { .. }
        | Error::Setup { .. }) => Unanswered::Refused(error.into()),
    })
}

/// Writes the quarantine directly to the journal.
async fn written(
    global: &Global,
    place: JournalPlace,
    position: Position,
    reason: String,
) -> Result<Done, Failure> {
    let journal = direct::to_write(global, place).await?;
    let order = SetAsideOrder { position, actor: Actor::Operator(name(global)), reason };
    let done: Result<Done, Refusal> = setting_aside::record(&journal, order, None).await;
    journal.close().await;
    done.map_err(Failure::from)
}
