//! Consequences of a command on real processes. They are shown as a tree, as JSON, and as spans for a
//! collector.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use schemas::Timestamp;
use serde_json::{Value, json};

use crate::dev::{LocalCluster, sleeper};
use crate::support::http::{self, PostRequest};
use crate::support::test_dir::ensure;
use crate::support::{Cluster, Muster, TestDir, eventually};

/// Trace collector that records the requests that it receives. It accepts everything at `/v1/traces`, a part
/// at `/partly`, everything except the first request at `/later`, and nothing at other paths.
struct Collector {
    url: String,
    calls: Arc<Mutex<Vec<PostRequest>>>,
}

impl Collector {
    /// Starts the collector, which runs until the program exits.
    fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let calls = Arc::new(Mutex::new(vec![]));
        let known = Arc::clone(&calls);
        std::thread::spawn(move || {
            let mut asked_before = false;
            for connection in listener.incoming().flatten() {
                let Ok(call) = PostRequest::read(&connection) else { continue };
                let (status, body) = match call.path.as_str() {
                    "/later" if !std::mem::replace(&mut asked_before, true) => {
                        drop(http::respond(&connection, "503 Service Unavailable", "later"));
                        continue;
                    }
                    "/v1/traces" | "/later" => ("200 OK", r#"{"partialSuccess":{}}"#),
                    "/partly" => {
                        ("200 OK", r#"{"partialSuccess":{"rejectedSpans":"1","errorMessage":"too old"}}"#)
                    }
                    _ => ("503 Service Unavailable", "not\ntoday"),
                };
                known.lock().unwrap().push(call);
                // A client that has disconnected does not read the answer.
                drop(http::respond(&connection, status, body));
            }
        });
        Self { url, calls }
    }

    /// Returns the requests since the last call.
    fn calls(&self) -> Vec<PostRequest> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

/// Returns the spans in these requests.
fn spans(calls: &[PostRequest]) -> Vec<Value> {
    let sent = calls.iter().map(|call| serde_json::from_slice::<Value>(&call.body).unwrap());
    let spans =
        sent.map(|sent| sent["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone());
    spans.flatten().collect()
}

fn field<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_else(|| panic!("no {name} in {of}"))
}

#[test]
fn trace_shows_and_exports_consequences_of_command() {
    let place = TestDir::new();
    let file = place.write_file("web.toml", sleeper("web", 1)).display().to_string();
    let dev = LocalCluster::start(&place, &[&file]);
    let muster = &dev.muster;
    muster.wait_until_running("web", 1);
    muster.ok("lrp scale web=3 --request-id grow-1 --reason busier");
    let rows = muster.wait_until_running("web", 3);

    let steps = muster.json("trace grow-1");
    let steps = steps.as_array().unwrap();
    assert_tree(steps);
    assert_eq!((&steps[0]["request_id"], &steps[0]["reason"]), (&"grow-1".into(), &"busier".into()));
    assert_eq!(steps[0]["aggregate"]["process"]["guid"], "web");
    let told = Value::from(steps.clone()).to_string();
    for index in [1, 2] {
        let guid = field(&rows[index], "instance_guid");
        assert_eq!(told.matches(guid).count(), 2, "claimed and started: {told}");
    }
    assert!(!told.contains(field(&rows[0], "instance_guid")), "another command created it: {told}");

    assert_ids_find_trace(muster, steps, field(&rows[2], "instance_guid"));
    let said = muster.ok("trace grow-1").expect_output(&[
        &format!("correlation {}", field(&steps[0], "id")),
        "request grow-1, reason \"busier\"",
        "├─ web/",
        "└─ web/",
        "claimed by c",
        &format!("{} decisions about 1 aggregate in ", steps.len()),
    ]);
    assert!(!said.out.contains('\u{1b}'), "no colours in a pipe: {said:?}");
    let lines = muster.ok("trace grow-1 -o jsonl").out.lines().count();
    assert_eq!(lines, steps.len());
    assert_spans_are_sent(muster, steps);
    dev.end(&place);
}

/// Checks that every step except the first has a cause before it, one level higher. Also checks that the
/// times of the steps are those of the log.
fn assert_tree(steps: &[Value]) {
    assert!(steps.len() >= 5, "a desire, two claims and two starts: {steps:#?}");
    assert_eq!((&steps[0]["depth"], &steps[0]["since_cause_ms"]), (&0.into(), &Value::Null));
    for (at, step) in steps.iter().enumerate().skip(1) {
        let cause = steps[..at].iter().find(|cause| cause["id"] == step["cause"]);
        let cause = cause.unwrap_or_else(|| panic!("{step}"));
        assert_eq!(step["depth"].as_u64().unwrap(), cause["depth"].as_u64().unwrap() + 1);
        assert_eq!((&step["cause_is_elsewhere"], &step["correlation"]), (&false.into(), &steps[0]["id"]));
        for (since, name) in [(cause, "since_cause_ms"), (&steps[0], "since_start_ms")] {
            let [at, since] = [step, since].map(|one| field(one, "at").parse::<Timestamp>().unwrap());
            let nanos = at.0 - since.0;
            assert_eq!(step[name].as_u64().unwrap(), nanos / 1_000_000, "{name} of {step}");
        }
    }
}

fn assert_ids_find_trace(muster: &Muster, steps: &[Value], instance: &str) {
    let (first, last) = (field(&steps[0], "id"), field(steps.last().unwrap(), "id"));
    // The first evaluation that a desire creates has the same id as the decision.
    for id in [first, last, &last[20..], instance, &instance[24..], &first[24..].to_uppercase()] {
        let found = muster.json(&format!("trace {id}"));
        assert_eq!(found[0]["id"], first, "{id}");
        assert_eq!(found.as_array().unwrap().len(), steps.len(), "{id}");
    }
    muster.ok(&format!("trace {last}")).expect_output(&["← requested"]);
    let nothing = "ffffffff-ffff-7fff-8fff-ffffffffffff";
    muster.exits(3, &format!("trace {nothing}")).expect_output(&[
        nothing,
        "does not exist",
        "at least 8 characters",
    ]);
    muster.exits(3, "trace shrink-1");
}

fn assert_spans_are_sent(muster: &Muster, steps: &[Value]) {
    let collector = Collector::listen();
    let url = &collector.url;
    let said = muster.ok(&format!("trace grow-1 -o json --otlp {url}"));
    assert_eq!(said.json().as_array().unwrap().len(), steps.len());
    assert_eq!(said.err, format!("{} spans sent to {url}/v1/traces\n", steps.len()));
    let calls = collector.calls();
    let [call] = &calls[..] else { panic!("{calls:?}") };
    assert!(call.headers.iter().any(|line| line == "content-type: application/json"), "{call:?}");
    let sent: Value = serde_json::from_slice(&call.body).unwrap();
    assert_eq!(sent["resourceSpans"][0]["resource"]["attributes"][0]["value"]["stringValue"], "muster");
    let spans = sent["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    assert_eq!(spans.len(), steps.len());
    let trace = field(&steps[0], "id").replace('-', "");
    let mut known = BTreeSet::new();
    for (span, step) in spans.iter().zip(steps) {
        assert_eq!(field(span, "traceId"), trace);
        assert_eq!(field(span, "spanId"), &field(step, "id").replace('-', "")[16..]);
        assert_eq!(
            field(span, "endTimeUnixNano"),
            field(step, "at").parse::<Timestamp>().unwrap().0.to_string()
        );
        let parent = span["parentSpanId"].as_str();
        assert!(parent.map_or(step["depth"] == 0, |parent| known.contains(parent)), "{span:#}");
        known.insert(field(span, "spanId"));
        assert_eq!(span["events"].as_array().unwrap().len(), step["events"].as_array().unwrap().len());
    }

    let refused = muster.exits(1, &format!("trace grow-1 --otlp {url}/elsewhere"));
    let refused =
        refused.expect_output(&["503 Service Unavailable: not\\ntoday", "/elsewhere", "can't send"]);
    assert!(refused.out.contains("├─ "), "the tree is shown as well: {refused:?}");
    muster
        .exits(1, &format!("trace grow-1 --otlp {url}/partly"))
        .expect_output(&["rejected 1 span: too old"]);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("http://{nobody}");
    muster.exits(5, &format!("trace grow-1 --otlp {nobody}")).expect_output(&[&nobody, "no answer"]);
}

const OUTER: (&str, &str) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");

#[test]
fn leader_exports_one_trace_per_command() {
    let collector = Collector::listen();
    let mut cluster = Cluster::empty();
    cluster.start_service_with("bbs-1", &["--otlp", &format!("{}/later", collector.url)]);
    cluster.start_service("auctioneer-1");
    cluster.start_service("rep-c1");
    cluster.wait_until_ready(1);
    let (mut plain, muster) = (cluster.plain("ci"), cluster.muster());
    let desire = |guid: &str, traceparent: Option<String>| {
        json!({"envelope": {"request_id": guid, "traceparent": traceparent}, "body": {
            "process_guid": guid, "domain": "shop", "memory_mb": 8,
            "action": {"run": {"path": "sleep", "args": ["100000"]}}}})
    };
    let outer = format!("00-{}-{}-01", OUTER.0, OUTER.1);
    for (guid, traceparent) in [("alone", None), ("traced", Some(outer))] {
        let answer = plain.request_json("muster.client.shop.ci.lrp.desire", &desire(guid, traceparent));
        assert!(answer["ok"]["position"].is_u64(), "{answer}");
        muster.wait_until_running(guid, 1);
    }
    let mut live = vec![];
    for guid in ["alone", "traced"] {
        let steps = muster.json(&format!("trace {guid}"));
        let steps = steps.as_array().unwrap();
        assert!(steps.len() >= 3, "desired, claimed, started: {steps:#?}");
        let spans_of = |live: &[Value]| -> Vec<Value> {
            let of =
                |span: &&Value| steps.iter().any(|step| *attribute(span, "muster.decision") == step["id"]);
            live.iter().filter(of).cloned().collect()
        };
        let found = eventually("the spans of the command arrive", || {
            live.extend(spans(&collector.calls()));
            let found = spans_of(&live);
            ensure(found.len() == steps.len(), || format!("{} of {} spans", found.len(), steps.len()))?;
            Ok(found)
        });
        assert_one_trace(&found, (guid == "traced").then_some(OUTER));
        muster.ok(&format!("trace {guid} --otlp {}", collector.url));
        let mut again = vec![];
        eventually("the command sends its spans", || {
            let calls = collector.calls();
            let (asked, led): (Vec<_>, Vec<_>) =
                calls.into_iter().partition(|call| call.path == "/v1/traces");
            live.extend(spans(&led));
            again.extend(spans(&asked));
            ensure(!again.is_empty(), || "no spans".to_owned())
        });
        let by_id = |spans: Vec<Value>| -> BTreeMap<String, Value> {
            spans.into_iter().map(|span| (field(&span, "spanId").to_owned(), span)).collect()
        };
        assert_eq!(by_id(found), by_id(again), "the leader and the command send the same spans");
    }
    let said = cluster.services["bbs-1"].log();
    assert!(!said.contains("spans are dropped"), "{said}");
}

/// Returns the text value of a span's attribute.
fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let mut attributes = span["attributes"].as_array().unwrap().iter();
    let attribute = attributes.find(|attribute| attribute["key"] == key);
    attribute.map_or(&Value::Null, |attribute| &attribute["value"]["stringValue"])
}

/// Checks that the spans form one trace with a single root. The trace extends from the desire to RUNNING.
fn assert_one_trace(spans: &[Value], outer: Option<(&str, &str)>) {
    let traces: BTreeSet<&str> = spans.iter().map(|span| field(span, "traceId")).collect();
    assert_eq!(traces.len(), 1, "{spans:#?}");
    let ids: BTreeSet<&str> = spans.iter().map(|span| field(span, "spanId")).collect();
    let of_others: Vec<_> = spans
        .iter()
        .filter(|span| !span["parentSpanId"].as_str().is_some_and(|parent| ids.contains(parent)))
        .collect();
    let [root] = of_others[..] else { panic!("expected exactly one root span: {spans:#?}") };
    assert_eq!(root["name"], "desired.desired.v1");
    let belongs = (root["traceId"].as_str(), root["parentSpanId"].as_str());
    match outer {
        Some((trace, span)) => assert_eq!(belongs, (Some(trace), Some(span))),
        None => assert_eq!(belongs.1, None),
    }
    let started = |span: &&Value| {
        let mut events = span["events"].as_array().unwrap().iter();
        events.any(|event| field(event, "name").starts_with("actual.started."))
    };
    assert_eq!(spans.iter().filter(started).count(), 1, "{spans:#?}");
}
