//! Carrying out only what was planned: a look beforehand, so that of several things none is changed if one of them has
//! changed since. The BBS judges each of them again.

use std::fmt::Display;
use std::time::{Duration, Instant};

use client::{Client, Error};
use schemas::names::{ProcessGuid, TaskGuid};
use schemas::{Code, Position};

use super::args::Global;
use super::failure::{Exit, Failure};

/// How long whoever answers may be behind the plan, and how often is looked.
const BEHIND: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(100);

/// What was planned.
pub(crate) enum Thing<'a> {
    /// A process of the file.
    Process(&'a ProcessGuid),
    /// A task of the file.
    Task(&'a TaskGuid),
}

/// A client whose commands are refused for what has changed since a position, if one is given. Refuses all of it if any has
/// changed by now, or if the log has no such position.
pub(crate) async fn only_unchanged<'a>(
    client: &Client,
    position: Option<Position>,
    things: impl IntoIterator<Item = Thing<'a>>,
    global: &Global,
) -> Result<Client, Failure> {
    let Some(position) = position else { return Ok(client.clone()) };
    reaches(client, position).await?;
    // Who asks again by the id of a request is told what became of it: that it changed something itself.
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

/// That the log has this position.
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

/// That something has changed since a position, if it has. What is gone is left to the BBS.
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
