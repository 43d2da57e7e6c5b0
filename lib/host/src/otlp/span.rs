//! Conversion of a decision to a span.

use schemas::entry::Event;
use schemas::names::{DecisionId, EvaluationId};
use schemas::{Decision, Position, Timestamp};
use serde_json::{Value, json};
use text::describe::{actor, sentence, sentences, target};

use super::TraceContext;

/// Span kind of an internal operation in the OpenTelemetry protocol.
const SPAN_KIND_INTERNAL: u32 = 1;

/// Decision, with the data for its span.
#[derive(Clone, Copy, Debug)]
pub struct DecisionSpan<'a> {
    pub decision: &'a Decision,
    /// Position of the entry that contains the decision.
    pub position: Position,
    /// Start of the span: the time of the decision's cause. The first decision of a chain has no cause; its
    /// span starts at the decision's own time.
    pub began: Timestamp,
    /// `true` if the cause is not available. In this case the span has no parent.
    pub cause_is_missing: bool,
}

impl DecisionSpan<'_> {
    /// Returns the span of the decision. The parent is the span of the decision's cause.
    ///
    /// A decision can join an existing evaluation, which places the decision's work together with other work.
    /// In this case, the span has a link to the decision that created the evaluation, because the work
    /// continues in the trace of that decision.
    pub fn span(&self, known: &TraceContext) -> Value {
        let Self { decision, began, .. } = self;
        let outer = known.parent(decision.correlation);
        let mut span = json!({
            "traceId": known.trace_id(decision.correlation),
            "spanId": span_id(decision.id),
            "name": decision.events.first().map_or("asked_again", Event::type_name),
            "kind": SPAN_KIND_INTERNAL,
            "startTimeUnixNano": nanos(*began),
            "endTimeUnixNano": nanos(decision.at),
            "attributes": self.attributes(),
            "events": events(decision),
        });
        let parent = match decision.cause {
            Some(cause) => (!self.cause_is_missing).then(|| span_id(cause)),
            None => outer.map(|outer| outer.span.clone()),
        };
        if let Some(parent) = parent {
            span["parentSpanId"] = parent.into();
        }
        let links: Vec<Value> = decision.joined_evaluations().filter_map(|id| link(known, id)).collect();
        if !links.is_empty() {
            span["links"] = links.into();
        }
        span
    }

    fn attributes(&self) -> Vec<Value> {
        let Self { decision, position, .. } = self;
        let mut attributes = vec![
            json!({"key": "muster.position", "value": {"intValue": position.to_string()}}),
            string_attribute("muster.decision", decision.id.to_string()),
            string_attribute("muster.aggregate", target(&decision.aggregate)),
            string_attribute("muster.actor", actor(&decision.actor)),
            string_attribute("muster.what", sentences(decision, true).join("; ")),
        ];
        attributes.extend(decision.cause.map(|id| string_attribute("muster.cause", id.to_string())));
        attributes.extend(
            decision.request_id.as_ref().map(|id| string_attribute("muster.request_id", id.as_str())),
        );
        attributes.extend(decision.reason.as_ref().map(|reason| string_attribute("muster.reason", reason)));
        attributes
    }
}

fn link(known: &TraceContext, id: EvaluationId) -> Option<Value> {
    let begun = known.origin(id)?;
    let about = [string_attribute("muster.evaluation", id.to_string())];
    Some(json!({
        "traceId": known.trace_id(begun.correlation),
        "spanId": span_id(begun.decision),
        "attributes": about,
    }))
}

/// Returns the span id: the last eight bytes of the decision's id.
fn span_id(id: DecisionId) -> String {
    id.0.simple().to_string().split_off(16)
}

fn nanos(at: Timestamp) -> String {
    at.0.to_string()
}

pub(super) fn string_attribute(key: &str, value: impl Into<String>) -> Value {
    json!({"key": key, "value": {"stringValue": value.into()}})
}

fn events(decision: &Decision) -> Vec<Value> {
    let of = |event: &Event| {
        let what = string_attribute("muster.what", sentence(decision, event, true));
        json!({"timeUnixNano": nanos(decision.at), "name": event.type_name(), "attributes": [what]})
    };
    decision.events.iter().map(of).collect()
}
