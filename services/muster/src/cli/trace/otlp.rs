//! Traces as OpenTelemetry has them: OTLP over HTTP with JSON (OpenTelemetry Protocol Specification, "OTLP/HTTP").
//!
//! A decision is a span that begins when its cause was decided and ends when it was decided. All ids come from the log, so
//! that sending a trace twice sends the same spans.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use reqwest::{Response, Url};
use schemas::entry::Event;
use schemas::names::DecisionId;
use schemas::{Decision, Timestamp};
use serde_json::{Value, json};

use super::tree::Step;
use crate::cli::describe::{about, sentence, sentences, who};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::note;
use crate::cli::words::{Invalid, count, one_line};
use crate::error::chain;
use crate::http;

/// Spans that are sent at once.
const BATCH: usize = 512;
/// How long a collector may take for a batch, unless somebody says otherwise.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of an answer is read, in bytes.
const ANSWER: usize = 16 * 1_024;
/// How much of it is shown, in characters.
const SHOWN: usize = 200;
/// `SPAN_KIND_INTERNAL`.
const INTERNAL: u32 = 1;

/// Who collects traces: the address that spans are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collector(Url);

impl Collector {
    /// Takes the address of a collector; without a path it is that of the standard.
    ///
    /// # Errors
    /// It is no address of an HTTP server.
    pub(crate) fn parse(text: &str) -> Result<Self, Invalid> {
        let expected = "http:// or https:// with a host, as http://127.0.0.1:4318";
        let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let mut url = url.ok_or_else(|| Invalid::new("address of a collector", text, expected))?;
        if url.path() == "/" {
            url.set_path("/v1/traces");
        }
        Ok(Self(url))
    }
}

impl fmt::Display for Collector {
    /// Without what is nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.0.clone();
        if url.password().is_some() && url.set_password(None).is_err() {
            return f.write_str("the collector");
        }
        url.fmt(f)
    }
}

/// Sends the steps of a tree to a collector, and says how many there were.
pub(super) async fn send(
    collector: &Collector,
    steps: &[Step],
    timeout: Option<Duration>,
) -> Result<(), Failure> {
    let http = http::client(timeout.unwrap_or(PATIENCE))
        .map_err(|error| Failure::new(Exit::Failed, "Start", chain(&error)))?;
    let spans = spans(steps);
    let mut sent = 0;
    for batch in spans.chunks(BATCH) {
        let body = request(batch).to_string();
        let call = http.post(collector.0.clone()).header("content-type", "application/json").body(body);
        let so_far = |failure: Failure| {
            let failure = failure.doing(format!("send {} to {collector}", count_of(&spans[sent..])));
            if sent == 0 {
                failure
            } else {
                failure.advise(format!("{} were taken", count_of(&spans[..sent])))
            }
        };
        let answer = call.send().await.map_err(|error| {
            let why = chain(&error.without_url());
            so_far(Failure::new(Exit::Unreachable, "Unreachable", format!("it doesn't answer: {why}")))
        })?;
        taken(answer).await.map_err(so_far)?;
        sent += batch.len();
    }
    note(&format!("{} sent to {collector}", count_of(&spans)));
    Ok(())
}

fn count_of(spans: &[Value]) -> String {
    count(u64::try_from(spans.len()).unwrap_or(u64::MAX), "span")
}

/// Whether a collector took all of a batch.
async fn taken(answer: Response) -> Result<(), Failure> {
    let status = answer.status();
    let said = said(answer).await;
    if !status.is_success() {
        let shown: String = one_line(&String::from_utf8_lossy(&said)).chars().take(SHOWN).collect();
        let shown = if shown.is_empty() { shown } else { format!(": {shown}") };
        return Err(Failure::new(Exit::Failed, "Collector", format!("it answered {status}{shown}")));
    }
    match rejected(&said) {
        Some(why) => Err(Failure::new(Exit::Failed, "Collector", why)),
        None => Ok(()),
    }
}

/// The beginning of an answer. What can't be read of it says nothing: the status is there.
async fn said(mut answer: Response) -> Vec<u8> {
    let mut said = vec![];
    while said.len() < ANSWER {
        match answer.chunk().await {
            Ok(Some(bytes)) => said.extend_from_slice(&bytes),
            Ok(None) | Err(_) => break,
        }
    }
    said
}

/// Why a collector took only a part of a batch, if it says so.
fn rejected(said: &[u8]) -> Option<String> {
    let said: Value = serde_json::from_slice(said).ok()?;
    let partial = &said["partialSuccess"];
    // 64 bits are text in the JSON of protocol buffers, but not everywhere.
    let spans = &partial["rejectedSpans"];
    let rejected = spans.as_u64().or_else(|| spans.as_str()?.parse().ok()).filter(|count| *count > 0)?;
    let why = one_line(partial["errorMessage"].as_str().unwrap_or("it doesn't say why"));
    Some(format!("it rejected {}: {why}", count(rejected, "span")))
}

/// A request to a collector, with these spans.
fn request(spans: &[Value]) -> Value {
    json!({"resourceSpans": [{
        "resource": {"attributes": [text("service.name", "muster")]},
        "scopeSpans": [{
            "scope": {"name": "muster", "version": env!("CARGO_PKG_VERSION")},
            "spans": spans,
        }],
    }]})
}

/// A span for each step.
fn spans(steps: &[Step]) -> Vec<Value> {
    let begins = |step: &&Step| step.decision.id == step.decision.correlation;
    let joined = |step: &Step| Some((step.decision.id, Parent::of(step.decision.traceparent.as_deref()?)?));
    let parents = steps.iter().filter(begins).filter_map(joined).collect();
    steps.iter().map(|step| span(step, &parents)).collect()
}

/// The span of somebody else that a chain belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parent {
    trace: String,
    span: String,
}

impl Parent {
    /// Reads a `traceparent` (W3C Trace Context, "traceparent Header"); none: it names no span.
    fn of(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.split('-').skip(1);
        let mut hex = |length: usize| {
            let part = parts.next()?;
            let hex = part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            (hex && part.bytes().any(|byte| byte != b'0')).then(|| part.to_ascii_lowercase())
        };
        Some(Self { trace: hex(32)?, span: hex(16)? })
    }
}

fn span(step: &Step, parents: &BTreeMap<DecisionId, Parent>) -> Value {
    let Step { decision, began, .. } = step;
    let outer = parents.get(&decision.correlation);
    let trace =
        outer.map_or_else(|| decision.correlation.0.simple().to_string(), |outer| outer.trace.clone());
    let mut span = json!({
        "traceId": trace,
        "spanId": span_id(decision.id),
        "name": decision.events.first().map_or("asked_again", Event::type_name),
        "kind": INTERNAL,
        "startTimeUnixNano": nanos(*began),
        "endTimeUnixNano": nanos(decision.at),
        "attributes": attributes(step),
        "events": events(decision),
    });
    let parent = match decision.cause {
        Some(cause) => (!step.cause_is_elsewhere).then(|| span_id(cause)),
        None => outer.map(|outer| outer.span.clone()),
    };
    if let Some(parent) = parent {
        span["parentSpanId"] = parent.into();
    }
    span
}

/// The last eight bytes of a decision's id.
fn span_id(id: DecisionId) -> String {
    id.0.simple().to_string().split_off(16)
}

fn nanos(at: Timestamp) -> String {
    at.0.to_string()
}

fn text(key: &str, value: impl Into<String>) -> Value {
    json!({"key": key, "value": {"stringValue": value.into()}})
}

fn attributes(step: &Step) -> Vec<Value> {
    let Step { decision, position, .. } = step;
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

fn events(decision: &Decision) -> Vec<Value> {
    let of = |event: &Event| {
        let what = text("muster.what", sentence(decision, event, true));
        json!({"timeUnixNano": nanos(decision.at), "name": event.type_name(), "attributes": [what]})
    };
    decision.events.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::tests::{at, decision_id};
    use super::super::tree::tree;
    use super::*;

    const OUTER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn attribute<'a>(of: &'a Value, key: &str) -> &'a Value {
        let mut all = of["attributes"].as_array().unwrap().iter();
        &all.find(|attribute| attribute["key"] == key).unwrap()["value"]
    }

    #[test]
    fn a_decision_is_a_span_since_its_cause() {
        let mut log = vec![at(1, None), at(3, Some(1)), at(4, Some(99))];
        log[1].decision.reason = Some("because".into());
        let spans = spans(&tree(log, &[].into()));
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
        assert_eq!(attribute(event, "muster.what"), &json!({"stringValue": "web/3: created, to be placed"}));
        assert_eq!(lost["parentSpanId"], Value::Null, "a parent that is not sent is none");
        let cause = decision_id(99).to_string();
        assert_eq!(attribute(lost, "muster.cause"), &json!({"stringValue": cause}));
    }

    #[test]
    fn a_chain_that_belongs_to_a_trace_goes_there() {
        let mut log = vec![at(1, None), at(2, Some(1))];
        log[0].decision.traceparent = Some(OUTER.into());
        let spans = spans(&tree(log, &[].into()));
        assert_eq!(spans[0]["parentSpanId"], "00f067aa0ba902b7");
        assert_eq!(spans[1]["parentSpanId"], spans[0]["spanId"]);
        for span in spans {
            assert_eq!(span["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
        }
        for none in ["", "00-x", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"] {
            assert_eq!(Parent::of(none), None, "{none}");
        }
    }

    #[test]
    fn an_address_without_a_path_gets_that_of_the_standard() {
        let shown = |text: &str| Collector::parse(text).map(|collector| collector.to_string());
        assert_eq!(shown("http://a:4318").as_deref(), Ok("http://a:4318/v1/traces"));
        assert_eq!(shown("https://a/").as_deref(), Ok("https://a/v1/traces"));
        assert_eq!(shown("http://a/otel?x=1").as_deref(), Ok("http://a/otel?x=1"));
        assert_eq!(shown("http://me:secret@a").as_deref(), Ok("http://me@a/v1/traces"));
        for bad in ["", "a:4318", "127.0.0.1:4318", "ftp://a", "http://"] {
            assert!(shown(bad).unwrap_err().to_string().contains("expected http:// or https://"), "{bad}");
        }
    }

    #[test]
    fn a_part_that_is_rejected_is_told() {
        let told = |text: &str| rejected(text.as_bytes());
        let some = r#"{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "too old"}}"#;
        assert_eq!(told(some).as_deref(), Some("it rejected 2 spans: too old"));
        assert_eq!(
            told(r#"{"partialSuccess": {"rejectedSpans": 1}}"#).as_deref(),
            Some("it rejected 1 span: it doesn't say why")
        );
        for fine in
            ["", "ok", "{}", r#"{"partialSuccess": {}}"#, r#"{"partialSuccess": {"rejectedSpans": "0"}}"#]
        {
            assert_eq!(told(fine), None, "{fine}");
        }
    }
}
