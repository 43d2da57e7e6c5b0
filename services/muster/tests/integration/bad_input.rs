//! Invalid commands. Each command is refused with a stable code and every invalid field, and the service
//! keeps running.

use std::collections::BTreeSet;

use client::{Client, Target};
use schemas::codec::{self, Form};
use schemas::container::{Epoch, Instance};
use schemas::definition::DesiredLrpUpdate;
use schemas::isolation::Isolation;
use schemas::message::{Answer, Report, Reports, ReportsReply};
use schemas::names::{CellId, DefinitionId, Domain, FolderId, InstanceGuid, ProcessGuid, TaskGuid};
use schemas::{Code, Place, Timestamp, actual, process, task};
use serde_json::{Value, json};

use crate::dev::sleeper;
use crate::support::plain::PlainClient;
use crate::support::{Cluster, Muster};

/// Returns a valid process with these fields added or replaced.
fn lrp(more: Value) -> Value {
    let default_body = json!({"process_guid": "web", "domain": "shop", "action": {"run": {"path": "true"}}});
    with_fields(default_body, more)
}

/// Returns an object with these fields added or replaced. A null removes a field.
fn with_fields(mut object: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("not a JSON object") };
    for (name, value) in more {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(&name);
        } else {
            object[name] = value;
        }
    }
    object
}

/// Returns invalid names. Each rule for names is broken at least once.
fn bad_names() -> Vec<String> {
    let long = "x".repeat(200);
    let bad = [
        "",
        "a.b",
        "a b",
        "*",
        ">",
        "a*",
        "a\nb",
        "a\tb",
        "a\u{0}b",
        "a\u{7f}",
        "\u{1b}[31m",
        "ä",
        "a/b",
        ".",
    ];
    bad.into_iter().map(str::to_owned).chain([long]).collect()
}

/// Client of the domain `shop`.
struct ShopClient {
    plain: PlainClient,
}

impl ShopClient {
    fn desire(&mut self, body: &Value) -> Value {
        self.request("lrp.desire", &json!({ "body": body }))
    }

    fn request(&mut self, verb: &str, request: &Value) -> Value {
        self.plain.request_json(&format!("muster.client.shop.me.{verb}"), request)
    }

    /// Checks that a request is refused because of exactly these fields.
    fn assert_request_refused(&mut self, verb: &str, request: &Value, code: Code, fields: &[&str]) {
        let answer = self.request(verb, request);
        assert_refused(&answer, code, fields, &format!("{verb} {request:.200}"));
    }

    fn assert_desire_invalid(&mut self, body: &Value, fields: &[&str]) {
        self.assert_request_refused("lrp.desire", &json!({ "body": body }), Code::InvalidRequest, fields);
    }
}

fn assert_refused(answer: &Value, code: Code, fields: &[&str], what: &str) {
    assert_eq!(answer["refused"]["code"], code.to_string(), "{what}: {answer}");
    assert!(!answer["refused"]["message"].as_str().unwrap().is_empty());
    let bad = answer["refused"]["fields"].as_array().unwrap();
    // Names are relative to the body, because most of these tests are about its fields.
    let name = |bad: &'_ Value| bad["field"].as_str().unwrap().trim_start_matches("body.").to_owned();
    let found: BTreeSet<String> = bad.iter().map(name).collect();
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(found, fields.iter().copied().collect(), "{what}: {answer}");
    assert!(bad.iter().all(|bad| !bad["problem"].as_str().unwrap().is_empty()), "{answer}");
}

#[test]
fn invalid_commands_are_refused_with_their_fields() {
    let cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let mut requester = ShopClient { plain: cluster.plain("me") };
    let before = cluster.entries().len();
    invalid_names_are_refused(&mut requester);
    invalid_fields_are_refused(&mut requester);
    oversized_actions_are_refused(&mut requester);
    oversized_messages_are_refused(&cluster, &mut requester);
    mismatch_with_subject_is_refused(&cluster, &mut requester);
    assert_eq!(cluster.entries().len(), before, "the log did not change");
    duplicate_and_late_requests_are_handled(&mut requester);
    invalid_reports_are_refused(&cluster);
    command_line_refuses_invalid_input(&cluster);
    assert!(requester.desire(&lrp(json!({"process_guid": "after"})))["ok"].is_object());
    cluster.muster().ok("lrp show after");
}

fn invalid_names_are_refused(requester: &mut ShopClient) {
    for name in bad_names() {
        requester.assert_desire_invalid(&lrp(json!({ "process_guid": name })), &["process_guid"]);
        requester.assert_desire_invalid(
            &lrp(json!({ "domain": name, "definition_id": name })),
            &["domain", "definition_id"],
        );
        requester.assert_desire_invalid(
            &lrp(json!({ "placement_tags": [name], "stack": name })),
            &["placement_tags[0]", "stack"],
        );
        let scale = json!({"body": {"process_guid": name, "instances": 1}});
        requester.assert_request_refused("lrp.update", &scale, Code::InvalidRequest, &["process_guid"]);
        let task = json!({"envelope": {"request_id": name}, "body": {"task_guid": name}});
        requester.assert_request_refused(
            "task.cancel",
            &task,
            Code::InvalidRequest,
            &["envelope.request_id", "task_guid"],
        );
    }
    // Invalid names that a subject can contain.
    let long = "x".repeat(200);
    for token in ["a*b", "a$b", "ä", long.as_str()] {
        let subjects = [
            format!("muster.client.{token}.me.lrp.remove"),
            format!("muster.client.shop.{token}.lrp.remove"),
        ];
        for subject in subjects {
            let answer = requester.plain.request_json(&subject, &json!({"body": {"process_guid": "web"}}));
            assert_refused(&answer, Code::InvalidRequest, &["subject"], &subject);
        }
    }
}

fn invalid_fields_are_refused(requester: &mut ShopClient) {
    requester.assert_desire_invalid(&json!({}), &["process_guid", "domain", "action"]);
    let many = json!({"process_guid": 7, "instances": -1, "memory": 64, "memory_mb": "64", "disk_mb": 1.5,
        "ports": [8080, 8080, 0, 70000], "environment_variables": {"A": 1}, "privileged": true, "start_timeout_s": 1,
        "annotation": ["a"], "routes": "x", "grace_period_ms": 1_000_000_000_u64, "cpu_weight": 4096,
        "instancez": 3, "setup": {"walk": {}}, "monitor": {"run": {"path": "", "argz": []}}});
    let fields = [
        "process_guid",
        "instances",
        "memory",
        "memory_mb",
        "disk_mb",
        "ports[1]",
        "ports[2]",
        "ports[3]",
        "environment_variables.A",
        "privileged",
        "start_timeout_s",
        "annotation",
        "routes",
        "grace_period_ms",
        "cpu_weight",
        "instancez",
        "setup.walk",
        "monitor.run.path",
        "monitor.run.argz",
    ];
    requester.assert_desire_invalid(&lrp(many), &fields);
    requester.assert_desire_invalid(&lrp(json!({"instances": 10_001})), &["instances"]);
    requester.assert_desire_invalid(&lrp(json!({"annotation": "a\u{0}"})), &["annotation"]);
    for body in [json!(7), json!("x"), json!([]), Value::Null] {
        requester.assert_request_refused(
            "lrp.desire",
            &json!({ "body": body }),
            Code::InvalidRequest,
            &["body"],
        );
    }
    let strange = json!({"envelop": {}, "envelope": {"timeout_ms": "long", "expect_version": -1, "traceparent": "x",
        "reason": "r".repeat(2000), "who": "me"}, "body": lrp(json!({}))});
    let fields = [
        "envelop",
        "envelope.timeout_ms",
        "envelope.expect_version",
        "envelope.traceparent",
        "envelope.reason",
        "envelope.who",
    ];
    requester.assert_request_refused("lrp.desire", &strange, Code::InvalidRequest, &fields);
    let twice = requester.plain.request(
        "muster.client.shop.me.lrp.remove",
        br#"{"body": {"process_guid": "a", "process_guid": "b"}}"#,
    );
    assert_refused(&twice.json(), Code::InvalidRequest, &["process_guid"], "a duplicate field");
    requester.assert_request_refused(
        "lrp.destroy",
        &json!({"body": {}}),
        Code::InvalidRequest,
        &["lrp.destroy"],
    );
    let task = json!({"task_guid": "t", "domain": "shop", "result_file": "../../etc/passwd",
        "completion_callback_url": "file:///etc/passwd", "placement": "somewhere", "action": {"run": {"path": "true"}}});
    let fields = ["result_file", "completion_callback_url", "placement"];
    requester.assert_request_refused("task.desire", &json!({ "body": task }), Code::InvalidRequest, &fields);
    requester.assert_request_refused(
        "domain.upsert",
        &json!({"body": {"domain": "shop", "ttl_ms": -5}}),
        Code::InvalidRequest,
        &["ttl_ms"],
    );
}

fn oversized_actions_are_refused(requester: &mut ShopClient) {
    let nested = |depth: usize| {
        let open = r#"{"try":{"action":"#.repeat(depth);
        format!(r#"{open}{{"run":{{"path":"true"}}}}{}"#, "}}".repeat(depth))
    };
    for depth in [17, 30, 1_000, 10_000] {
        let body = format!(
            r#"{{"body": {{"process_guid": "web", "domain": "shop", "action": {}}}}}"#,
            nested(depth)
        );
        let answer = requester.plain.request("muster.client.shop.me.lrp.desire", body.as_bytes()).json();
        assert_eq!(answer["refused"]["code"], "InvalidRequest", "{depth} deep: {answer}");
        assert_eq!(answer["refused"]["fields"].as_array().unwrap().len(), 1, "{depth} deep: {answer}");
    }
    let wide: Vec<Value> = (0..300).map(|_| json!({"run": {"path": "true"}})).collect();
    let answer = requester.desire(&lrp(json!({"action": {"parallel": {"actions": wide}}})));
    assert_eq!(answer["refused"]["code"], "InvalidRequest", "{answer}");
}

fn oversized_messages_are_refused(cluster: &Cluster, requester: &mut ShopClient) {
    requester.assert_desire_invalid(&lrp(json!({"annotation": "a".repeat(10 * 1024 + 1)})), &["annotation"]);
    // A message of about the maximum size that the server accepts.
    let answer = requester.desire(&lrp(json!({"annotation": "a".repeat(1_000_000)})));
    assert_eq!(answer["refused"]["code"], "InvalidRequest", "{answer}");
    let huge = "a".repeat(10 * 1024 * 1024);
    // The client library refuses to send a larger message and returns the reason.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(async {
        let client = Client::connect(Target::nats(&cluster.server.url())).await.unwrap();
        let update = DesiredLrpUpdate { annotation: Some(huge.clone()), ..DesiredLrpUpdate::default() };
        client.update_lrp(ProcessGuid::new("web").unwrap(), update).await.unwrap_err()
    });
    assert_eq!(error.code(), Some(Code::InvalidRequest), "{error}");
    assert!(error.to_string().contains("bytes, more than"), "{error}");
    let file = cluster.place.write_file("huge.json", lrp(json!({ "annotation": huge })).to_string());
    let said = cluster.muster().exits(1, &format!("apply {} -o json", file.display()));
    let refusal = said.refusal();
    let fields: Vec<&Value> = refusal["fields"].as_array().unwrap().iter().map(|bad| &bad["field"]).collect();
    assert_eq!(fields, ["message", "annotation"], "the message and its largest field are too large");
    // The server disconnects a client that bypasses this check. Other clients are not affected.
    let mut rude = cluster.plain("rude");
    rude.try_publish("muster.client.shop.me.lrp.desire", huge.as_bytes());
    assert!(requester.plain.request("muster.query.client.shop.me.lrp.list", b"").json()["ok"].is_object());
}

fn mismatch_with_subject_is_refused(cluster: &Cluster, requester: &mut ShopClient) {
    requester.assert_request_refused(
        "lrp.desire",
        &json!({"body": lrp(json!({"domain": "other"}))}),
        Code::Forbidden,
        &[],
    );
    requester.assert_request_refused(
        "domain.upsert",
        &json!({"body": {"domain": "other"}}),
        Code::Forbidden,
        &[],
    );
    let task = json!({"task_guid": "t", "domain": "other", "action": {"run": {"path": "true"}}});
    requester.assert_request_refused("task.desire", &json!({ "body": task }), Code::Forbidden, &[]);
    let mut rep = cluster.plain_as("rep.c1");
    let answer = rep
        .request("muster.cell.c1.bbs.report", &codec::encode(Form::Json, &reports(report("c2", 0))))
        .json();
    assert_refused(&answer, Code::Forbidden, &[], "a report of another cell");
    // A heartbeat is never answered. A heartbeat is ignored if it names another cell than its subject.
    let beat = heartbeat_of(cluster, "c9");
    rep.publish("muster.cell.c1.heartbeat", "", &beat);
    requester.assert_request_refused(
        "lrp.remove",
        &json!({"body": {"process_guid": "nothing"}}),
        Code::ResourceNotFound,
        &[],
    );
    cluster.muster().exits(3, "cell show c9");
}

/// Returns a heartbeat of the existing cell in which its id is replaced by `cell`.
fn heartbeat_of(cluster: &Cluster, cell: &str) -> Vec<u8> {
    let mut auctioneer = cluster.plain_as("bbs");
    let state = codec::encode(
        Form::Json,
        &schemas::message::RepOrder { term: 1_000, position: schemas::Position(0) },
    );
    let answer = auctioneer.request("muster.cell.c1.rep.state", &state).json();
    let mut beat = answer["ok"].clone();
    assert_eq!(beat["cell_id"], "c1", "{answer}");
    beat["cell_id"] = cell.into();
    beat["sequence"] = 1_000_000.into();
    beat.to_string().into_bytes()
}

fn duplicate_and_late_requests_are_handled(requester: &mut ShopClient) {
    let late = json!({"envelope": {"timeout_ms": 0}, "body": lrp(json!({}))});
    requester.assert_request_refused("lrp.desire", &late, Code::DeadlinePassed, &[]);
    let named = |request: &str, body: Value| json!({"envelope": {"request_id": request}, "body": body});
    let desire =
        named("one", lrp(json!({"instances": 2, "action": {"run": {"path": "sleep", "args": ["1000"]}}})));
    let first = requester.request("lrp.desire", &desire);
    assert!(first["ok"].is_object(), "{first}");
    assert_eq!(requester.request("lrp.desire", &desire)["ok"]["version"], first["ok"]["version"]);
    // The same command with another request id is a new request.
    requester.assert_request_refused("lrp.desire", &named("two", lrp(json!({}))), Code::ResourceExists, &[]);
    let scale = |request: &str, instances: u32| {
        named(request, json!({"process_guid": "web", "instances": instances}))
    };
    let five = requester.request("lrp.update", &scale("five", 5));
    let three = requester.request("lrp.update", &scale("three", 3));
    let again = requester.request("lrp.update", &scale("five", 5));
    assert_eq!(again["ok"]["version"], five["ok"]["version"], "a repeated request gets its first answer");
    assert_ne!(again["ok"]["version"], three["ok"]["version"]);
    let row = requester.plain.request_json("muster.query.client.shop.me.lrp.show", &json!({"id": "web"}));
    assert_eq!(row["ok"]["row"]["instances"], 3, "a repeated request does not undo a later one: {row}");
    // A client of another domain may not change the process.
    for (verb, body) in [
        ("lrp.update", json!({"process_guid": "web", "instances": 9})),
        ("lrp.remove", json!({"process_guid": "web"})),
        ("lrp.retire", json!({"process_guid": "web", "index": 0})),
    ] {
        let answer =
            requester.plain.request_json(&format!("muster.client.other.me.{verb}"), &json!({ "body": body }));
        assert_refused(&answer, Code::Forbidden, &[], verb);
    }
}

/// Returns a report that a container of `cell` claims `web/0`, in this epoch of the guid.
fn report(cell: &str, epoch: u64) -> Report {
    let by = Instance {
        instance_guid: InstanceGuid("00000000-0000-7000-8000-000000000001".parse().unwrap()),
        cell_id: CellId::new(cell).unwrap(),
    };
    let claim = process::ReportStep::Actual(actual::Command::Claim { placement: None });
    let report = process::Report {
        domain: Domain::new("shop").unwrap(),
        place: Place::new(0, DefinitionId::new("web").unwrap()),
        epoch: Epoch(Timestamp(epoch)),
        by,
        observed_at: Timestamp(epoch),
        steps: vec![claim],
    };
    Report::Lrp { process_guid: ProcessGuid::new("web").unwrap(), report }
}

fn reports(report: Report) -> Reports {
    Reports { folder: FolderId(uuid::Uuid::nil()), reports: vec![report] }
}

/// Returns the folder id of the rep of cell c1.
fn folder_of_c1(cluster: &Cluster) -> FolderId {
    let id = std::fs::read_to_string(cluster.place.path().join("rep-c1/rep-id")).unwrap();
    FolderId(id.trim().parse().unwrap())
}

fn invalid_reports_are_refused(cluster: &Cluster) {
    let mut rep = cluster.plain_as("rep.c1");
    let folder = folder_of_c1(cluster);
    let mut ask = |form: Form, reports: &Reports| {
        let reports = Reports { folder, reports: reports.reports.clone() };
        let answer = rep.request("muster.cell.c1.bbs.report", &codec::encode(form, &reports));
        let (answer, answered) = codec::decode::<Answer<ReportsReply>>(&answer.payload).unwrap();
        assert_eq!(answered, form, "the answer has the form of the request");
        Result::from(answer)
    };
    for form in [Form::Json, Form::Postcard] {
        // Report of an earlier epoch.
        let reported: ReportsReply = ask(form, &reports(report("c1", 7))).unwrap();
        assert_eq!(reported.results[0].refused.as_ref().unwrap().code, Code::StaleEpoch);
        // Report of a task that was never created.
        let guid = TaskGuid::new("never").unwrap();
        let Report::Lrp { report: of_lrp, .. } = report("c1", 7) else { unreachable!() };
        let report = task::Report {
            domain: of_lrp.domain,
            epoch: of_lrp.epoch,
            by: of_lrp.by,
            step: task::ReportStep::Start { placement: None, isolation: Isolation::NONE },
        };
        let reported = ask(form, &reports(Report::Task { task_guid: guid, report })).unwrap();
        assert_eq!(reported.results[0].refused.as_ref().unwrap().code, Code::ResourceNotFound);
        // A message without reports, and a message with too many reports.
        assert_eq!(
            ask(form, &Reports { folder: FolderId(uuid::Uuid::nil()), reports: vec![] }).unwrap_err().code,
            Code::InvalidRequest
        );
        let many = Reports { folder: FolderId(uuid::Uuid::nil()), reports: vec![self::report("c1", 7); 501] };
        assert_eq!(ask(form, &many).unwrap_err().code, Code::InvalidRequest);
    }
    // An auctioneer and a candidate that were not elected.
    let mut auctioneer = cluster.plain_as("auctioneer");
    let outcomes = json!({"id": "nobody", "term": 1, "leases": [], "outcomes": [], "evictions": []});
    let answer = auctioneer.request_json("muster.auctioneer.bbs.outcome", &outcomes);
    assert_refused(&answer, Code::StaleTerm, &[], "outcomes of an auctioneer that was not elected");
    let answer = auctioneer.request_json("muster.auctioneer.bbs.lead", &json!({"id": "nobody", "term": 1}));
    assert_refused(&answer, Code::StaleTerm, &[], "an old term");
    // A leader of an earlier term sends orders to a rep.
    let answer = auctioneer
        .request_json("muster.cell.c1.rep.perform", &json!({"id": {"term": 0, "number": 1}, "work": []}));
    assert_refused(&answer, Code::StaleTerm, &[], "work of an old term");
    let mut bbs = cluster.plain_as("bbs");
    for verb in ["state", "evacuate"] {
        let answer =
            bbs.request_json(&format!("muster.cell.c1.rep.{verb}"), &json!({"term": 0, "position": 0}));
        assert_refused(&answer, Code::StaleTerm, &[], verb);
    }
}

fn command_line_refuses_invalid_input(cluster: &Cluster) {
    let muster = cluster.muster();
    for name in bad_names().iter().filter(|name| !name.contains('\0')) {
        for words in [&["lrp", "show", name][..], &["task", "cancel", name], &["cell", "show", name]] {
            muster.run(words).expect_status(2);
        }
    }
    let fields = json!({"process_guid": "a b", "domain": "*", "ports": [1, 1], "x": 1});
    let bad = json!({"lrp": [with_fields(lrp(json!({})), fields)]});
    let file = cluster.place.write_file("bad.json", bad.to_string());
    let said = muster.exits(1, &format!("apply {} -o json", file.display()));
    let refusal = said.refusal();
    assert_eq!(refusal["code"], "InvalidRequest");
    let fields: BTreeSet<&str> =
        refusal["fields"].as_array().unwrap().iter().map(|bad| bad["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["lrp[0].process_guid", "lrp[0].domain", "lrp[0].ports[1]", "lrp[0].x"].into());
    muster
        .exits(1, &format!("apply {}", file.display()))
        .expect_output(&["4 fields are invalid", "lrp[0].ports[1]: "]);
    for (name, content) in [
        ("garbage.toml", "\u{0}\u{1}"),
        ("cut.json", "{\"process_guid\": "),
        ("empty.json", "{}"),
        ("deep.json", &"[".repeat(100_000)),
    ] {
        let file = cluster.place.write_file(name, content);
        muster.exits(1, &format!("apply {}", file.display()));
        muster.exits(1, &format!("run --detach {}", file.display()));
    }
    let bytes = cluster.place.write_file("bytes.toml", [0xff, 0xfe, 0x00]);
    muster.exits(1, &format!("apply {}", bytes.display())).expect_output(&["bytes.toml"]);
    muster.exits(1, "apply nowhere.toml").expect_output(&["can't read nowhere.toml"]);
}

#[test]
fn local_cluster_refuses_invalid_input() {
    let place = crate::support::TestDir::new();
    let bad = place.write_file("bad.toml", sleeper("a b", 1).replace("memory_mb = 8", "memory_mb = -8"));
    let bad = bad.display();
    let muster = Muster::local(place.path());
    let data = place.path().join("data");
    let said = muster.exits(1, &format!("dev {bad} --data {}", data.display()));
    said.expect_output(&["process_guid: ", "memory_mb: "]);
    assert!(!data.exists(), "no data folder was created");
    // A file in place of the data folder.
    muster.exits(1, &format!("dev --data {bad}")).expect_output(&["is a file: expected a folder"]);
    // First without a socket, and afterwards with a socket that has no listener.
    muster.exits(5, "lrp list");
    drop(std::os::unix::net::UnixListener::bind(place.path().join("muster.sock")).unwrap());
    muster.exits(5, "lrp list");
}

/// Checks that error messages name the invalid value and the valid values. Covers everything that is checked
/// before a cluster answers.
#[test]
fn command_line_errors_name_value_and_valid_values() {
    let place = crate::support::TestDir::new();
    let muster = Muster::local(place.path());
    let file = |name: &str, text: &str| place.write_file(name, text).display().to_string();
    let (cut, empty) = (file("cut.json", "{\"a\":"), file("empty.toml", ""));
    let (unknown, mixed) = (file("unknown.toml", "zoen = \"z1\""), file("mixed.toml", "nats = {a = 1}"));
    let folder = place.path().display().to_string();
    let cases: &[(i32, &[&str], &[&str])] = &[
        (2, &["cluster", "found", "--shards", "0"], &["invalid number \"0\": expected 1 to 1024"]),
        (2, &["bbs", "--callback-allow", "a/b"], &["invalid target \"a/b\": expected HOST, *.HOST"]),
        (2, &["bbs", "--replicas", "2"], &["invalid number of replicas \"2\": expected 1, 3 or 5"]),
        (
            2,
            &["rep", "--cell", "c", "--zone", "z", "--ports", "5-1"],
            &["\"5-1\"", "expected FROM-TO, such as 20000-29999"],
        ),
        (2, &["rep", "--cell", "a.b", "--zone", "z"], &["\"a.b\" is not a valid cell id: use 1 to 128 of"]),
        (2, &["lrp", "update", "web", "--instances", "-1"], &["\"-1\": expected 0 to 10000"]),
        (
            2,
            &["lrp", "scale", "web=x"],
            &["can't scale process web: invalid number \"x\": expected 0 to 10000"],
        ),
        (2, &["lrp", "scale", "web"], &["invalid scale \"web\": expected GUID=N, such as web=3"]),
        (2, &["lrp", "list", "--timeout", "-1"], &["invalid duration \"-1\": expected e.g. 500ms"]),
        (2, &["events", "show", "x"], &["invalid position \"x\": expected a number such as 41"]),
        (
            2,
            &["events", "list", "--about", "pod:x"],
            &["invalid filter \"pod:x\": expected lrp:GUID, task:GUID"],
        ),
        (2, &["trace", "web/0"], &["invalid id \"web/0\": expected the id of a decision"]),
        (
            2,
            &["trace", "deadbeef", "--otlp", "localhost:4318"],
            &["invalid collector URL \"localhost:4318\": expected http:// or https://"],
        ),
        (1, &["apply", &cut], &["cut.json is not JSON: EOF"]),
        (1, &["apply", &empty], &["empty.toml defines nothing: expected process_guid"]),
        (1, &["apply", &folder], &["can't read", "Is a directory"]),
        (2, &["lrp", "list", "--config", &unknown], &["unknown.toml", "unknown option zoen"]),
        (2, &["lrp", "list", "--config", &mixed], &["invalid value for nats: expected a string"]),
        (
            2,
            &["lrp", "list", "--config", "/nowhere"],
            &["can't read the configuration file /nowhere: No such file"],
        ),
        (1, &["cell", "list", "--nats", "http://x"], &["invalid NATS server URL \"http://x\""]),
        (5, &["cell", "list", "--nats", "nats://127.0.0.1:1"], &["server unreachable at nats://127.0.0.1:1"]),
        (5, &["bbs"], &["no NATS server given: set --nats URL or MUSTER_NATS_URL"]),
        (
            1,
            &["dev", "--socket", "/nowhere/s", "--data", &format!("{folder}/data")],
            &["cannot create the socket /nowhere/s: No such file"],
        ),
    ];
    for (exit, words, tells) in cases {
        let said = muster.run(words).expect_status(*exit);
        let said = said.expect_output(tells);
        let errors = said.err.lines().filter(|line| line.starts_with("error: ")).count();
        assert!(errors == 1 && !said.err.contains("error: error"), "{words:?}: {}", said.err);
        assert!(!said.err.contains("panicked") && !said.err.contains("Some("), "{words:?}: {}", said.err);
    }
}
