//! Export of the steps of a trace tree to a collector, as spans.

use std::time::Duration;

use cli_base::failure::Failure;
use cli_base::output::note;
use explain::trace::Step;
use host::http;
use host::otlp::{Collector, DEFAULT_TIMEOUT, DecisionSpan, MAX_BATCH, SendError, TraceContext};
use runtime::exit::Exit;
use serde_json::Value;
use text::chain;
use text::words::count;

/// Sends the steps of a tree to a collector, and prints the number of spans. `known` contains the evaluations
/// that the steps joined.
pub(super) async fn send(
    collector: &Collector,
    steps: &[Step],
    known: TraceContext,
    timeout: Option<Duration>,
) -> Result<(), Failure> {
    let http = http::client(timeout.unwrap_or(DEFAULT_TIMEOUT))
        .map_err(|error| Failure::new(Exit::Failed, "Start", chain(&error)))?;
    let spans = spans(steps, known);
    let mut sent = 0;
    for batch in spans.chunks(MAX_BATCH) {
        collector.send(&http, batch).await.map_err(|why| {
            let failure =
                failed(&why).while_doing(format!("send {} to {collector}", count_of(&spans[sent..])));
            if sent == 0 {
                failure
            } else {
                failure.advise(format!("{} were sent before", count_of(&spans[..sent])))
            }
        })?;
        sent += batch.len();
    }
    note(&format!("{} sent to {collector}", count_of(&spans)));
    Ok(())
}

fn failed(why: &SendError) -> Failure {
    let (exit, code) = match why {
        SendError::NoAnswer(_) => (Exit::Unreachable, "Unreachable"),
        SendError::Answered(..) | SendError::Rejected { .. } => (Exit::Failed, "Collector"),
    };
    Failure::new(exit, code, why.to_string())
}

fn count_of(spans: &[Value]) -> String {
    count(u64::try_from(spans.len()).unwrap_or(u64::MAX), "span")
}

/// Creates a span for each step.
fn spans(steps: &[Step], mut known: TraceContext) -> Vec<Value> {
    steps.iter().for_each(|step| known.record(&step.decision));
    let span = |step: &Step| {
        let Step { decision, position, start_time: began, cause_is_elsewhere, .. } = step;
        let told = DecisionSpan {
            decision,
            position: *position,
            began: *began,
            cause_is_missing: *cause_is_elsewhere,
        };
        told.span(&known)
    };
    steps.iter().map(span).collect()
}

#[cfg(test)]
mod tests {
    use explain::trace::build_tree;
    use schemas::entry::Event;
    use schemas::evaluation::{self, InitialStatus, Trigger};
    use schemas::names::EvaluationId;
    use serde_json::json;

    use super::super::tree::tests::{at, decision_id};
    use super::*;

    const OUTER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn attribute<'a>(of: &'a Value, key: &str) -> &'a Value {
        let mut all = of["attributes"].as_array().unwrap().iter();
        &all.find(|attribute| attribute["key"] == key).unwrap()["value"]
    }

    fn empty_known() -> TraceContext {
        TraceContext::with_capacity(usize::MAX)
    }

    #[test]
    fn decision_span_starts_at_its_cause() {
        let mut log = vec![at(1, None), at(3, Some(1)), at(4, Some(99))];
        log[1].decision.reason = Some("because".into());
        let spans = spans(&build_tree(log, &[].into()), empty_known());
        let (root, child, lost) = (&spans[0], &spans[1], &spans[2]);
        assert_eq!(root["traceId"], "00000000000000000000000000000001");
        assert_eq!((&root["spanId"], &root["parentSpanId"]), (&"0000000000000001".into(), &Value::Null));
        assert_eq!(root["startTimeUnixNano"], root["endTimeUnixNano"]);
        assert_eq!((&child["traceId"], &child["parentSpanId"]), (&root["traceId"], &root["spanId"]));
        assert_eq!(
            (&child["startTimeUnixNano"], &child["endTimeUnixNano"]),
            (&"1000000000".into(), &"3000000000".into())
        );
        assert_eq!(child["name"], "actual.created.v1");
        assert_eq!(attribute(child, "muster.position"), &json!({"intValue": "30"}));
        assert_eq!(attribute(child, "muster.aggregate"), &json!({"stringValue": "web"}));
        assert_eq!(attribute(child, "muster.actor"), &json!({"stringValue": "client shop/ada"}));
        assert_eq!(attribute(child, "muster.reason"), &json!({"stringValue": "because"}));
        let event = &child["events"][0];
        assert_eq!(
            (&event["name"], &event["timeUnixNano"]),
            (&"actual.created.v1".into(), &"3000000000".into())
        );
        assert_eq!(
            attribute(event, "muster.what"),
            &json!({"stringValue": "web/3: created, waiting for placement"})
        );
        assert_eq!(lost["parentSpanId"], Value::Null, "a cause that is not sent is not a parent");
        let cause = decision_id(99).to_string();
        assert_eq!(attribute(lost, "muster.cause"), &json!({"stringValue": cause}));
    }

    #[test]
    fn chain_with_traceparent_uses_that_trace() {
        let mut log = vec![at(1, None), at(2, Some(1))];
        log[0].decision.traceparent = Some(OUTER.into());
        let spans = spans(&build_tree(log, &[].into()), empty_known());
        assert_eq!(spans[0]["parentSpanId"], "00f067aa0ba902b7");
        assert_eq!(spans[1]["parentSpanId"], spans[0]["spanId"]);
        for span in spans {
            assert_eq!(span["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
        }
    }

    #[test]
    fn joined_evaluation_is_linked_to_its_start() {
        let mut log = vec![at(1, None), at(2, Some(1)), at(3, None), at(4, None)];
        let created = evaluation::Event::Created {
            number: 0,
            trigger: Trigger::Desire,
            initial_status: InitialStatus::Pending,
            previous: None,
        };
        log[1].decision.events = vec![Event::Evaluation(created.clone())];
        log[1].decision.correlation = decision_id(1);
        let joined = |of: u64| {
            let evaluation = EvaluationId::from_decision(decision_id(of), 0);
            Event::Evaluation(evaluation::Event::Joined { evaluation, trigger: Trigger::Scale })
        };
        log[2].decision.events = vec![joined(2), joined(50), joined(99)];
        let mut known = empty_known();
        let mut other = at(50, None).decision;
        other.correlation = decision_id(40);
        other.events = vec![Event::Evaluation(created)];
        known.record(&other);
        let spans = spans(&build_tree(log, &[].into()), known);
        let links = spans[2]["links"].as_array().unwrap();
        assert_eq!(links.len(), 2, "an unknown evaluation has no link: {links:?}");
        assert_eq!((&links[0]["traceId"], &links[0]["spanId"]), (&spans[0]["traceId"], &spans[1]["spanId"]));
        assert_eq!(links[1]["traceId"], decision_id(40).0.simple().to_string());
        assert!(spans[3]["links"].is_null());
    }
}
