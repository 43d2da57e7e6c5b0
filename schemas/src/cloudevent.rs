//! Events for other programs: `CloudEvents` 1.0, in their JSON format.
//!
//! Source and id together identify an event permanently. The source is the cluster; the id is the position of
//! the entry and the number of the event within it. Muster's own attributes are text, because the
//! specification's integers have 32 bits and a position has 64.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::entry::{Decision, Event};
use crate::names::{ClusterId, DecisionId, RequestId};
use crate::{Entry, Position, Timestamp};

/// Prefix of every event type.
pub const TYPE_ROOT: &str = "muster.";
/// Prefix of every source. The id of the cluster follows.
pub const SOURCE_ROOT: &str = "urn:muster:";

/// An event as a `CloudEvent`.
#[derive(Debug, Serialize)]
pub struct CloudEvent<'a> {
    /// Version of the specification.
    pub specversion: &'static str,
    /// `POSITION-NTH`: position of the entry, and number of the event within it, from 0.
    pub id: String,
    /// Cluster of the event: `urn:muster:ID`.
    pub source: String,
    /// Type of the event, with the version of its format: `muster.actual.claimed.v1`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Aggregate of the event: `lrp:GUID`, `task:GUID`, `cell:ID` and so on.
    pub subject: String,
    /// Time of the decision, to the nanosecond.
    pub time: String,
    /// Media type of `data`.
    pub datacontenttype: &'static str,
    /// Position of the entry.
    pub position: String,
    /// Version of the aggregate after the decision.
    pub version: String,
    /// Epoch of the process or task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// Domain of the aggregate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<&'a str>,
    /// Source of the command: `client:DOMAIN/NAME`, `operator:NAME`, `cell:ID`, `auctioneer:ID` or `bbs:ID`.
    pub actor: String,
    /// Decision that the event belongs to.
    pub decision: DecisionId,
    /// Decision that caused this one. `None` if the decision starts a chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<DecisionId>,
    /// First decision of the chain.
    pub correlation: DecisionId,
    /// Request id that the client chose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requestid: Option<&'a RequestId>,
    /// Reason that the client gave, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// On the feed: id of the preceding event in the log. Subscribers use this id to detect missing events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// W3C trace of the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<&'a str>,
    /// Body of the event. The type determines its format.
    pub data: Box<RawValue>,
}

/// Returns the events of an entry, in order.
pub fn entry_events(
    cluster: ClusterId,
    position: Position,
    entry: &Entry,
) -> impl Iterator<Item = CloudEvent<'_>> {
    let all = entry.decisions.iter().flat_map(|of| of.events.iter().map(move |event| (of, event)));
    (0..)
        .zip(all)
        .map(move |(nth, (decision, event))| decision_event(cluster, (position, nth), decision, event))
}

/// Converts an event of a decision. `position` is the position of the entry. `nth` is the number of the event
/// within the entry, from 0.
#[must_use]
pub fn decision_event<'a>(
    cluster: ClusterId,
    (position, nth): (Position, u64),
    decision: &'a Decision,
    event: &Event,
) -> CloudEvent<'a> {
    CloudEvent {
        specversion: "1.0",
        id: format!("{position}-{nth}"),
        source: format!("{SOURCE_ROOT}{cluster}"),
        kind: format!("{TYPE_ROOT}{}", event.type_name()),
        subject: decision.aggregate.to_string(),
        time: time(decision.at),
        datacontenttype: "application/json",
        position: position.to_string(),
        version: decision.version.to_string(),
        epoch: decision.aggregate.epoch().map(|epoch| time(epoch.0)),
        domain: decision.aggregate.domain().map(|domain| domain.as_str()),
        actor: decision.actor.to_string(),
        decision: decision.id,
        cause: decision.cause,
        correlation: decision.correlation,
        requestid: decision.request_id.as_ref(),
        reason: decision.reason.as_deref().map(one_line),
        previous: None,
        traceparent: decision.traceparent.as_deref(),
        data: RawValue::from_string(event.body()).expect("an event is JSON"),
    }
}

/// Formats a time as the specification requires: RFC 3339 in UTC, to the nanosecond.
fn time(at: Timestamp) -> String {
    let mut text = at.to_string();
    text.pop();
    format!("{text}{:06}Z", at.0 % 1_000_000)
}

/// Replaces control characters by spaces, because attributes must not contain them.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::cell;
    use crate::entry::Aggregate;
    use crate::names::{CellId, ClientName, EntryId};
    use crate::stamp::Actor;

    #[test]
    fn cloudevent_contains_all_metadata_of_decision() {
        let decision = Decision {
            id: DecisionId(Uuid::from_u128(7)),
            aggregate: Aggregate::Cell(CellId::new("c1").unwrap()),
            version: 3,
            at: Timestamp(1_800_000_000_123_456_789),
            actor: Actor::Operator(ClientName::new("ada").unwrap()),
            request_id: None,
            request_digest: None,
            cause: Some(DecisionId(Uuid::from_u128(6))),
            correlation: DecisionId(Uuid::from_u128(5)),
            reason: Some("two\nlines".into()),
            traceparent: None,
            events: vec![
                Event::Cell(cell::Event::Cordoned {}),
                Event::Cell(cell::Event::Unhealthy { reason: "full".into() }),
            ],
        };
        let entry = Entry { id: EntryId(Uuid::nil()), format: 1, decisions: vec![decision] };
        let all: Vec<String> = entry_events(ClusterId(Uuid::nil()), Position(1 << 40), &entry)
            .map(|event| serde_json::to_string(&event).unwrap())
            .collect();
        assert_eq!(all.len(), 2);
        let expected = r#"{"specversion":"1.0","id":"1099511627776-1","source":"urn:muster:00000000-0000-0000-0000-000000000000","type":"muster.cell.unhealthy.v1","subject":"cell:c1","time":"2027-01-15T08:00:00.123456789Z","datacontenttype":"application/json","position":"1099511627776","version":"3","actor":"operator:ada","decision":"00000000-0000-0000-0000-000000000007","cause":"00000000-0000-0000-0000-000000000006","correlation":"00000000-0000-0000-0000-000000000005","reason":"two lines","data":{"reason":"full"}}"#;
        assert_eq!(all[1], expected);
        assert!(all[0].ends_with(r#""data":{}}"#), "{}", all[0]);
    }
}
