//! Precondition check for `--if-position`. Commands are refused if their target changed after a plan was
//! made.
//!
//! The check covers all targets before the first command, so that none is changed if one of them is outdated.
//! The BBS checks each command again.

use std::fmt::Display;
use std::time::{Duration, Instant};

use client::{Client, Error};
use schemas::names::{ProcessGuid, TaskGuid};
use schemas::{Code, Position};

use super::args::Global;
use super::failure::{Exit, Failure};

/// Maximum wait for a BBS that is behind the position of the plan.
const BEHIND: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(100);

/// Target of a plan.
pub(crate) enum Thing<'a> {
    Process(&'a ProcessGuid),
    Task(&'a TaskGuid),
}

/// Returns a client that has its commands refused if their target changed after `position`. Fails if one of
/// `things` has changed already, or if the log does not reach the position. Without a position, the client is
/// returned unchanged.
pub(crate) async fn only_unchanged<'a>(
    client: &Client,
    position: Option<Position>,
    things: impl IntoIterator<Item = Thing<'a>>,
    global: &Global,
) -> Result<Client, Failure> {
    let Some(position) = position else { return Ok(client.clone()) };
    reaches(client, position).await?;
    // A repeated request id returns the original result. Its own change must not count as a conflict.
    if global.request_id.is_none() {
        let mut changed = vec![];
        for thing in things {
            changed.extend(changed_since(client, position, thing).await?);
        }
        if !changed.is_empty() {
            let why =
                format!("{}, after position {position}: nothing was changed, plan again", changed.join("; "));
            return Err(Failure::new(Exit::Conflict, &Code::ResourceConflict.to_string(), why));
        }
    }
    Ok(client.clone().if_position(position))
}

/// Fails unless the log reaches this position.
async fn reaches(client: &Client, position: Position) -> Result<(), Failure> {
    let until = Instant::now() + BEHIND;
    loop {
        let end = client.cluster().await?.position;
        if end >= position {
            return Ok(());
        }
        if Instant::now() >= until {
            let why = format!("position {position} is behind the end of the log, which is at {end}");
            let failure = Failure::new(Exit::Failed, &Code::InvalidRequest.to_string(), why);
            return Err(failure.advise("--if-position takes the position that a plan names"));
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Describes the change of a target after `position`, if there was one. A missing target is left to the BBS.
async fn changed_since(
    client: &Client,
    position: Position,
    thing: Thing<'_>,
) -> Result<Option<String>, Failure> {
    let last = match thing {
        Thing::Process(guid) => found(client.lrp(guid).await.map(|one| one.row.last_decision))?,
        Thing::Task(guid) => found(client.task(guid).await.map(|one| one.row.last_decision))?,
    };
    let told = |what: &dyn Display, last| format!("{what} has changed at position {last}");
    Ok(last.filter(|last| *last > position).map(|last| match thing {
        Thing::Process(guid) => told(&format!("process {guid}"), last),
        Thing::Task(guid) => told(&format!("task {guid}"), last),
    }))
}

fn found<T>(answer: Result<T, Error>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
