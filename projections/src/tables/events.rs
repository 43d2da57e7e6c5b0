//! Events as rows: one for each, with what its decision says of it.

use schemas::entry::{Decision, Event};
use schemas::{Entry, Position};

use super::columns::{self, Column, Shape};
use super::value::{Value, maybe, number, text};

/// An event with where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// Where its entry stands.
    pub position: Position,
    /// Which event of the entry it is, from 0.
    pub nth: u64,
    /// A value for each of [`shapes`].
    pub values: Vec<Value>,
}

/// What a row of an event is made of.
#[derive(Clone, Copy, Debug)]
struct Told<'a> {
    position: Position,
    nth: u64,
    decision: &'a Decision,
    event: &'a Event,
}

/// The columns of `events`. The first two name a row.
#[must_use]
pub fn shapes() -> Vec<Shape> {
    columns::shapes(&columns())
}

const fn columns<'a>() -> [Column<Told<'a>>; 15] {
    use super::value::Kind::{Integer, Json, Text, Time};
    [
        Column::new("position", Integer, "Where its entry stands in the log.", |told| {
            number(told.position.0)
        }),
        Column::new("nth", Integer, "Which event of its entry it is, from 0.", |told| number(told.nth)),
        Column::new("at", Time, "When it was decided.", |told| Value::Time(told.decision.at)),
        Column::new(
            "type",
            Text,
            "What happened, with the version of its shape: actual.claimed.v1.",
            |told| text(told.event.type_name()),
        ),
        Column::new(
            "about",
            Text,
            "To what: lrp:GUID, task:GUID, cell:ID, domain:NAME or cluster.",
            |told| text(&told.decision.aggregate),
        ),
        Column::new("domain", Text, "The domain of what it happened to.", |told| {
            maybe(told.decision.aggregate.domain(), text)
        }),
        Column::new("version", Integer, "The version of that after the decision.", |told| {
            number(told.decision.version)
        }),
        Column::new(
            "actor",
            Text,
            "Who asked: client:DOMAIN/NAME, operator:NAME, cell:ID, auctioneer:ID, or bbs:ID by itself.",
            |told| text(&told.decision.actor),
        ),
        Column::new("request_id", Text, "What the requester called the request.", |told| {
            maybe(told.decision.request_id.as_ref(), text)
        }),
        Column::new("decision", Text, "The decision that it belongs to.", |told| text(told.decision.id)),
        Column::new("cause", Text, "The decision that brought it about; null: it begins a chain.", |told| {
            maybe(told.decision.cause, text)
        }),
        Column::new("correlation", Text, "The first decision of the chain.", |told| {
            text(told.decision.correlation)
        }),
        Column::new("reason", Text, "Why, in the words of who asked.", |told| {
            maybe(told.decision.reason.as_ref(), text)
        }),
        Column::new("traceparent", Text, "The W3C trace that it belongs to.", |told| {
            maybe(told.decision.traceparent.as_ref(), text)
        }),
        Column::new("body", Json, "What happened in full, as its type says.", |told| {
            Value::Json(told.event.body())
        }),
    ]
}

/// The events of an entry that stands at a position, in order.
#[must_use]
pub fn rows(position: Position, entry: &Entry) -> Vec<EventRow> {
    let all = entry.decisions.iter().flat_map(|of| of.events.iter().map(move |event| (of, event)));
    let row = |(nth, (decision, event))| {
        let told = Told { position, nth, decision, event };
        EventRow { position, nth, values: columns().iter().map(|column| (column.value)(&told)).collect() }
    };
    (0..).zip(all).map(row).collect()
}
