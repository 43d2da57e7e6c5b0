//! Events for programs that know nothing of Muster: `CloudEvents` 1.0, in their JSON format.
//!
//! Source and id together name an event for ever: the cluster, where its entry stands, and which event of the entry it is.
//! Attributes of our own are texts, as the specification's integers have 32 bits and a position has 64.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::entry::{Decision, Event};
use crate::names::{ClusterId, DecisionId, RequestId};
use crate::{Entry, Position, Timestamp};

/// What stands before the type of every event.
pub const TYPE_ROOT: &str = "muster.";
/// What stands before the cluster's id in every source.
pub const SOURCE_ROOT: &str = "urn:muster:";

/// An event as a `CloudEvent`.
#[derive(Debug, Serialize)]
pub struct CloudEvent<'a> {
    /// The version of the specification.
    pub specversion: &'static str,
    /// `POSITION-NTH`: where the entry stands, and which event of it this is, from 0.
    pub id: String,
    /// The cluster: `urn:muster:ID`.
    pub source: String,
    /// What happened, with the version of its shape: `muster.actual.claimed.v1`.
    #[serde(rename = "type")]
    pub kind: String,
    /// To what: `lrp:GUID`, `task:GUID`, `cell:ID` and so on.
    pub subject: String,
    /// When it was decided, to the nanosecond.
    pub time: String,
    /// What `data` is.
    pub datacontenttype: &'static str,
    /// Where the entry stands.
    pub position: String,
    /// The version of what it happened to, after the decision.
    pub version: String,
    /// The life of the process or task that it happened to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// The domain of what it happened to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<&'a str>,
    /// Who asked: `client:DOMAIN/NAME`, `operator:NAME`, `cell:ID`, `auctioneer:ID` or `bbs:ID`.
    pub actor: String,
    /// The decision that it belongs to.
    pub decision: DecisionId,
    /// The decision that brought it about; none: it begins a chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<DecisionId>,
    /// The first decision of the chain.
    pub correlation: DecisionId,
    /// What the requester called the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requestid: Option<&'a RequestId>,
    /// Why, in the words of who asked, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// On the feed: the id of the event before it in the log, so that who listens knows what is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// The W3C trace that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<&'a str>,
    /// What happened in full, as its type says.
    pub data: Box<RawValue>,
}

/// The events of an entry, in order.
pub fn of_entry(
    cluster: ClusterId,
    position: Position,
    entry: &Entry,
) -> impl Iterator<Item = CloudEvent<'_>> {
    let all = entry.decisions.iter().flat_map(|of| of.events.iter().map(move |event| (of, event)));
    (0..).zip(all).map(move |(nth, (decision, event))| of(cluster, (position, nth), decision, event))
}

/// An event of a decision: the `nth` of its entry, from 0, which stands at `position`.
///
/// # Panics
/// Never: an event is plain data with text keys.
#[must_use]
pub fn of<'a>(
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

/// A moment as the specification has it: RFC 3339 in UTC, here to the nanosecond.
fn time(at: Timestamp) -> String {
    let mut text = at.to_string();
    text.pop();
    format!("{text}{:06}Z", at.0 % 1_000_000)
}

/// Attributes hold no control characters.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::cell;
    use crate::entry::{Actor, Aggregate};
    use crate::names::{CellId, ClientName, EntryId};

    #[test]
    fn an_event_is_a_cloudevent_with_all_that_its_decision_says() {
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
        let all: Vec<String> = of_entry(ClusterId(Uuid::nil()), Position(1 << 40), &entry)
            .map(|event| serde_json::to_string(&event).unwrap())
            .collect();
        assert_eq!(all.len(), 2);
        let expected = r#"{"specversion":"1.0","id":"1099511627776-1","source":"urn:muster:00000000-0000-0000-0000-000000000000","type":"muster.cell.unhealthy.v1","subject":"cell:c1","time":"2027-01-15T08:00:00.123456789Z","datacontenttype":"application/json","position":"1099511627776","version":"3","actor":"operator:ada","decision":"00000000-0000-0000-0000-000000000007","cause":"00000000-0000-0000-0000-000000000006","correlation":"00000000-0000-0000-0000-000000000005","reason":"two lines","data":{"reason":"full"}}"#;
        assert_eq!(all[1], expected);
        assert!(all[0].ends_with(r#""data":{}}"#), "{}", all[0]);
    }
}
