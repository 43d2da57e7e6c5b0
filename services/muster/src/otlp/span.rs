//! A decision as a span.

use schemas::entry::Event;
use schemas::names::{DecisionId, EvaluationId};
use schemas::{Decision, Position, Timestamp, evaluation};
use serde_json::{Value, json};

use super::Known;
use crate::cli::describe::{about, sentence, sentences, who};

/// `SPAN_KIND_INTERNAL`.
const INTERNAL: u32 = 1;

/// A decision, and what is to be said of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<'a> {
    pub(crate) decision: &'a Decision,
    /// Where its entry stands.
    pub(crate) position: Position,
    /// When it began: with its cause, or of the first of a chain when it was decided.
    pub(crate) began: Timestamp,
    /// Whether its cause is not to be had: then it stands under nothing.
    pub(crate) cause_is_elsewhere: bool,
}

impl Told<'_> {
    /// As a span: under its cause, and linked to where the evaluations began that it joined. What joins an evaluation is
    /// placed with that, and so goes on in another trace.
    pub(crate) fn span(&self, known: &Known) -> Value {
        let Self { decision, began, .. } = self;
        let outer = known.outer(decision.correlation);
        let mut span = json!({
            "traceId": known.trace(decision.correlation),
            "spanId": span_id(decision.id),
            "name": decision.events.first().map_or("asked_again", Event::type_name),
            "kind": INTERNAL,
            "startTimeUnixNano": nanos(*began),
            "endTimeUnixNano": nanos(decision.at),
            "attributes": self.attributes(),
            "events": events(decision),
        });
        let parent = match decision.cause {
            Some(cause) => (!self.cause_is_elsewhere).then(|| span_id(cause)),
            None => outer.map(|outer| outer.span.clone()),
        };
        if let Some(parent) = parent {
            span["parentSpanId"] = parent.into();
        }
        let links: Vec<Value> = joined(decision).filter_map(|id| link(known, id)).collect();
        if !links.is_empty() {
            span["links"] = links.into();
        }
        span
    }

    fn attributes(&self) -> Vec<Value> {
        let Self { decision, position, .. } = self;
        let mut attributes = vec![
            json!({"key": "muster.position", "value": {"intValue": position.to_string()}}),
            text("muster.decision", decision.id.to_string()),
            text("muster.aggregate", about(&decision.aggregate)),
            text("muster.actor", who(&decision.actor)),
            text("muster.what", sentences(decision, true).join("; ")),
        ];
        attributes.extend(decision.cause.map(|id| text("muster.cause", id.to_string())));
        attributes.extend(decision.request_id.as_ref().map(|id| text("muster.request_id", id.as_str())));
        attributes.extend(decision.reason.as_ref().map(|reason| text("muster.reason", reason)));
        attributes
    }
}

/// The evaluations that a decision joined: something else was already to be placed with them.
pub(crate) fn joined(decision: &Decision) -> impl Iterator<Item = EvaluationId> {
    decision.events.iter().filter_map(Event::as_evaluation).filter_map(|event| {
        if let evaluation::Event::Joined { evaluation, .. } = event { Some(*evaluation) } else { None }
    })
}

fn link(known: &Known, id: EvaluationId) -> Option<Value> {
    let begun = known.begun(id)?;
    let about = [text("muster.evaluation", id.to_string())];
    Some(json!({
        "traceId": known.trace(begun.correlation),
        "spanId": span_id(begun.decision),
        "attributes": about,
    }))
}

/// The last eight bytes of a decision's id.
fn span_id(id: DecisionId) -> String {
    id.0.simple().to_string().split_off(16)
}

fn nanos(at: Timestamp) -> String {
    at.0.to_string()
}

pub(super) fn text(key: &str, value: impl Into<String>) -> Value {
    json!({"key": key, "value": {"stringValue": value.into()}})
}

fn events(decision: &Decision) -> Vec<Value> {
    let of = |event: &Event| {
        let what = text("muster.what", sentence(decision, event, true));
        json!({"timeUnixNano": nanos(decision.at), "name": event.type_name(), "attributes": [what]})
    };
    decision.events.iter().map(of).collect()
}
