//! `muster journal`: what an operator does to the journal itself.

use client::Error;
use projections::cluster_log::SetAsideOrder;
use schemas::entry::Actor;
use schemas::message::Done;
use schemas::{Position, Refusal};
use serde::Serialize;

use super::args::{Global, JournalVerb};
use super::connect::{JournalPlace, connect, journal_place, name};
use super::direct;
use super::failure::{Exit, Failure};
use super::output::Output;
use crate::wire::setting_aside;

/// What setting aside did.
#[derive(Serialize)]
struct SetAside {
    /// What does not count.
    set_aside: Position,
    /// Where that is recorded.
    position: Position,
}

pub(crate) async fn run(verb: JournalVerb, global: &Global) -> Result<(), Failure> {
    let JournalVerb::SetAside { position } = verb;
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

/// Why no BBS did it.
enum Unanswered {
    /// There is none.
    Nobody(Failure),
    /// It won't.
    Refused(Failure),
}

/// Has it recorded by a BBS, which may have stopped.
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

/// Records it in the journal itself.
async fn written(
    global: &Global,
    place: JournalPlace,
    position: Position,
    reason: String,
) -> Result<Done, Failure> {
    let journal = direct::to_write(global, place).await?;
    let order = SetAsideOrder { position, actor: Actor::Operator(name(global)), reason };
    let done: Result<Done, Refusal> = setting_aside::record(&journal, order).await;
    journal.close().await;
    done.map_err(Failure::from)
}
