//! Reading of recorded decisions from the log.

use std::ops::ControlFlow;

use client::{Client, Error};
use schemas::entry::Event;
use schemas::message::Ack;
use schemas::names::DefinitionId;
use schemas::query::{AsOf, ReadEntry, ReadEvents, RecordedEntry, is_target};
use schemas::{Decision, Position};
use serde::Serialize;

/// Number of entries per request.
const PAGE_SIZE: usize = 500;

/// Decision with its position in the log.
#[derive(Clone, Debug, Serialize)]
pub struct PositionedDecision {
    /// Position of the entry that contains the decision.
    pub position: Position,
    pub decision: Decision,
}

/// Returns the position of the last entry in the log. For queries of the past, returns the
/// position of the last entry at their moment.
///
/// # Errors
/// The query fails.
pub async fn end_of_log(client: &Client) -> Result<Position, Error> {
    if client.query_moment().is_some() {
        return Ok(client.cluster().await?.position);
    }
    let read = ReadEvents { limit: Some(1), ..ReadEvents::default() };
    Ok(client.read_events(&read).await?.end)
}

/// Returns the entries about a target, or all entries, up to the moment of the client's queries.
///
/// # Errors
/// The query fails.
pub async fn entries_about(client: &Client, about: Option<&str>) -> Result<Vec<RecordedEntry>, Error> {
    let until = match client.query_moment() {
        Some(AsOf::Position(position)) => position,
        Some(AsOf::Time(_) | AsOf::Ago(_)) | None => Position(u64::MAX),
    };
    Ok(client.history_until(Position(0), until, about).await?.0)
}

/// Returns the events that the BBS recorded for a command. The list is empty if the command changed nothing.
///
/// # Errors
/// The query fails.
pub async fn events_of(client: &Client, about: &str, done: &Ack) -> Result<Vec<Event>, Error> {
    let after = Position(done.position.0.saturating_sub(1));
    let read = ReadEvents { after, limit: Some(1), wait_ms: None, target: Some(about.to_owned()) };
    let entries = client.read_events(&read).await?.entries;
    let is_it = |one: &PositionedDecision| {
        one.position == done.position
            && one.decision.version == done.version
            && is_target(&one.decision.aggregate, about)
    };
    let found = decisions_of(entries).into_iter().find(is_it);
    Ok(found.map(|one| one.decision.events).unwrap_or_default())
}

/// Passes the entries after a position to `take` until `take` returns `Break`. A log can be arbitrarily long,
/// so the entries are read page by page and not collected.
///
/// # Errors
/// A query fails, or `take` does.
pub async fn for_each_entry<E: From<Error>>(
    client: &Client,
    after: Position,
    about: Option<String>,
    mut take: impl FnMut(RecordedEntry) -> Result<ControlFlow<()>, E>,
) -> Result<(), E> {
    let mut after = after;
    loop {
        let read = ReadEvents { after, limit: Some(PAGE_SIZE), wait_ms: None, target: about.clone() };
        let page = client.read_events(&read).await?;
        for entry in page.entries {
            if take(entry)?.is_break() {
                return Ok(());
            }
        }
        if page.next <= after || page.next >= page.end {
            return Ok(());
        }
        after = page.next;
    }
}

/// Returns the guid of the container that an event names.
#[must_use]
pub fn container_guid(event: &Event) -> Option<String> {
    use schemas::{actual, evacuating, task};
    let (Event::Actual(
        actual::Event::Claimed { by, .. }
        | actual::Event::Started { by, .. }
        | actual::Event::ExecStarted { by, .. }
        | actual::Event::Crashed { by, .. },
    )
    | Event::Evacuating(evacuating::Event::Set { by, .. })
    | Event::Task(task::Event::Started { by, .. } | task::Event::Completed { by: Some(by), .. })) = event
    else {
        return None;
    };
    Some(by.instance_guid.to_string())
}

/// Returns the decisions of entries, in order. Entries that this program cannot read are skipped; `muster
/// events` shows them.
#[must_use]
pub fn decisions_of(entries: Vec<RecordedEntry>) -> Vec<PositionedDecision> {
    let of = |recorded: RecordedEntry| {
        let position = recorded.position;
        let decisions = match recorded.entry {
            ReadEntry::Known(entry) => entry.decisions,
            ReadEntry::Unknown { .. } => vec![],
        };
        decisions.into_iter().map(move |decision| PositionedDecision { position, decision })
    };
    entries.into_iter().flat_map(of).collect()
}

/// Returns `true` if an event concerns an index, restricted to one definition if `definition` is set.
#[must_use]
pub fn event_concerns(event: &Event, index: u32, definition: Option<&DefinitionId>) -> bool {
    use schemas::evacuating;
    let meant = |id: &DefinitionId| definition.is_none_or(|definition| definition == id);
    match event {
        Event::Actual(event) => {
            let places = event.places();
            places.indices.contains(index) && meant(&places.definition_id)
        }
        Event::Evacuating(
            evacuating::Event::Set { place, .. } | evacuating::Event::Removed { place, .. },
        ) => place.index == index && meant(&place.definition_id),
        // A rollout event concerns the old and the new instance of an index.
        Event::Rollout(event) => event.indices().is_some_and(|indices| indices.contains(index)),
        Event::Desired(_)
        | Event::Evaluation(_)
        | Event::Task(_)
        | Event::Periodic(_)
        | Event::Parameterised(_)
        | Event::Domain(_)
        | Event::Cell(_)
        | Event::Cluster(_) => false,
    }
}
