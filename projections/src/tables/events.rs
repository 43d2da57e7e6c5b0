//! Rows of events: one row for each event, with the context of the event's decision (the recorded change that
//! it belongs to).

use schemas::entry::{Decision, Event};
use schemas::{Entry, Position};

use super::columns::{self, Column, ColumnSpec};
use super::value::{Value, number, optional, text};

/// Row of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// Position of the entry.
    pub position: Position,
    /// Number of the event within the entry, from 0.
    pub nth: u64,
    /// One value for each column of [`column_specs`].
    pub values: Vec<Value>,
}

/// Source of an event's row.
#[derive(Clone, Copy, Debug)]
struct EventSource<'a> {
    position: Position,
    nth: u64,
    decision: &'a Decision,
    event: &'a Event,
}

/// Returns the columns of `events`. The first two columns are the key.
#[must_use]
pub fn column_specs() -> Vec<ColumnSpec> {
    columns::specs(&columns())
}

const fn columns<'a>() -> [Column<EventSource<'a>>; 15] {
    use super::value::Kind::{Integer, Json, Text, Time};
    [
        Column::new("position", Integer, "Position of the entry in the log.", |told| number(told.position.0)),
        Column::new("nth", Integer, "Number of the event in its entry, from 0.", |told| number(told.nth)),
        Column::new("at", Time, "Time of the decision.", |told| Value::Time(told.decision.at)),
        Column::new(
            "type",
            Text,
            "Type of the event, with the version of its format, such as actual.claimed.v1.",
            |told| text(told.event.type_name()),
        ),
        Column::new(
            "target",
            Text,
            "Aggregate of the event: lrp:GUID, task:GUID, cell:ID, domain:NAME or cluster.",
            |told| text(&told.decision.aggregate),
        ),
        Column::new("domain", Text, "Domain of the aggregate.", |told| {
            optional(told.decision.aggregate.domain(), text)
        }),
        Column::new("version", Integer, "Version of the aggregate after the decision.", |told| {
            number(told.decision.version)
        }),
        Column::new(
            "actor",
            Text,
            "Originator: client:DOMAIN/NAME, operator:NAME, cell:ID, auctioneer:ID, or bbs:ID without a \
             request.",
            |told| text(&told.decision.actor),
        ),
        Column::new("request_id", Text, "Request id, set by the requester.", |told| {
            optional(told.decision.request_id.as_ref(), text)
        }),
        Column::new("decision", Text, "Decision of the event.", |told| text(told.decision.id)),
        Column::new("cause", Text, "Decision that caused it; null if it starts a chain.", |told| {
            optional(told.decision.cause, text)
        }),
        Column::new("correlation", Text, "First decision of the chain.", |told| {
            text(told.decision.correlation)
        }),
        Column::new("reason", Text, "Reason, set by the requester.", |told| {
            optional(told.decision.reason.as_ref(), text)
        }),
        Column::new("traceparent", Text, "W3C trace context of the request.", |told| {
            optional(told.decision.traceparent.as_ref(), text)
        }),
        Column::new("body", Json, "Full event, in the format of its type.", |told| {
            Value::Json(told.event.body())
        }),
    ]
}

/// Returns the rows of an entry's events, in order.
#[must_use]
pub fn rows(position: Position, entry: &Entry) -> Vec<EventRow> {
    let all = entry.decisions.iter().flat_map(|of| of.events.iter().map(move |event| (of, event)));
    let row = |(nth, (decision, event))| {
        let told = EventSource { position, nth, decision, event };
        EventRow { position, nth, values: columns().iter().map(|column| (column.value)(&told)).collect() }
    };
    (0..).zip(all).map(row).collect()
}
