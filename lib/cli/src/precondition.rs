//! Precondition check for `--if-position`. A command is refused if its target changed after a plan was made.
//!
//! The check covers all targets before the first command is sent. If one target has changed, no target is
//! modified. The BBS checks each command again.

use std::time::{Duration, Instant};

use cli_base::failure::Failure;
use cli_base::options::Global;
use client::{Client, Error};
use runtime::exit::Exit;
use schemas::spec::ObjectName;
use schemas::{Code, Position};

/// Maximum wait for a BBS that is behind the position of the plan.
const MAX_LAG: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Returns a client whose commands are refused if their target changed after `position`. Fails if one of
/// `objects` has changed already, or if the log does not reach the position. Without a position, the client is
/// returned unchanged.
pub(crate) async fn require_unchanged(
    client: &Client,
    position: Option<Position>,
    objects: &[ObjectName],
    global: &Global,
) -> Result<Client, Failure> {
    let Some(position) = position else { return Ok(client.clone()) };
    require_position(client, position).await?;
    // A command with a repeated request id returns the original result. The change that the original command
    // made must not count as a conflict, so the targets are not checked.
    if global.request_id.is_none() {
        let mut changed = vec![];
        for name in objects {
            changed.extend(change_since(client, position, name).await?);
        }
        if !changed.is_empty() {
            let changed = changed.join("; ");
            let why = match position {
                // Every object that exists has changed after the start of the log.
                Position(0) => format!("{changed}, so it exists already; nothing was changed"),
                _ => format!(
                    "{changed}, after the planned position {position}; nothing was changed: plan again"
                ),
            };
            return Err(Failure::new(Exit::Conflict, &Code::ResourceConflict.to_string(), why));
        }
    }
    Ok(client.clone().if_position(position))
}

/// Fails unless the log reaches this position.
async fn require_position(client: &Client, position: Position) -> Result<(), Failure> {
    let until = Instant::now() + MAX_LAG;
    loop {
        let end = client.cluster().await?.position;
        if end >= position {
            return Ok(());
        }
        if Instant::now() >= until {
            let why = format!("position {position} is beyond the end of the log, which is at {end}");
            let failure = Failure::new(Exit::Failed, &Code::InvalidRequest.to_string(), why);
            return Err(failure.advise("--if-position expects the position that the plan printed"));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Describes the change of an object after `position`, if there was one. Only the BBS checks an object that
/// does not exist, and a periodic or parameterised task. The rows of periodic and parameterised tasks do not
/// contain the position of their last decision.
async fn change_since(
    client: &Client,
    position: Position,
    name: &ObjectName,
) -> Result<Option<String>, Failure> {
    let last = match name {
        ObjectName::Process(guid) => optional(client.lrp(guid).await.map(|one| one.row.last_decision))?,
        ObjectName::Task(guid) => optional(client.task(guid).await.map(|one| one.row.last_decision))?,
        ObjectName::Periodic(_) | ObjectName::Parameterised(_) | ObjectName::Domain(_) => None,
    };
    Ok(last.filter(|last| *last > position).map(|last| format!("{name} changed at position {last}")))
}

fn optional<T>(answer: Result<T, Error>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
