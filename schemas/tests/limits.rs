//! Tests of every limit on client input: the limit itself is accepted, and one more is refused.

use schemas::action::{Action, Sealed, Secret, Variable, variable_faults};
use schemas::codec::{self, Form, decode};
use schemas::entry::Entry;
use schemas::limits;
use schemas::query::ReadEvents;
use schemas::refusal::Refusal;
use schemas::spec::{self, client_command};
use serde_json::{Value, json};

use crate::common::domain;
use crate::documented::validator;

fn text(bytes: usize) -> Value {
    "x".repeat(bytes).into()
}

fn list(members: usize) -> Value {
    (1..=members).collect()
}

fn words(members: usize) -> Value {
    (1..=members).map(|member| member.to_string()).collect()
}

fn object(members: usize) -> Value {
    (1..=members).map(|member| (format!("V{member}"), json!(""))).collect::<serde_json::Map<_, _>>().into()
}

fn variables(members: usize) -> Value {
    (1..=members).map(|member| json!({"name": format!("V{member}"), "value": ""})).collect()
}

/// Returns one variable whose name and value have this many bytes together.
fn variable(bytes: usize) -> Value {
    json!([{"name": "V", "value": text(bytes - 1)}])
}

fn path(bytes: usize) -> Value {
    json!({"run": {"path": text(bytes)}})
}

fn dir(bytes: usize) -> Value {
    json!({"run": {"path": "a", "dir": text(bytes)}})
}

fn env(members: usize) -> Value {
    json!({"run": {"path": "a", "env": variables(members)}})
}

fn timeout(timeout_ms: u64) -> Value {
    json!({"timeout": {"action": {"run": {"path": "a"}}, "timeout_ms": timeout_ms}})
}

fn serial(members: usize) -> Value {
    json!({"serial": {"actions": vec![json!({"run": {"path": "a"}}); members]}})
}

fn url(bytes: usize) -> Value {
    format!("http://{}", "x".repeat(bytes - "http://".len())).into()
}

/// Returns routing data with this many bytes.
fn routes(bytes: usize) -> Value {
    json!({"r": text(bytes - 3)})
}

/// Returns routing data that nests its spec to this depth: the spec, the routes, and lists.
fn lists(depth: usize) -> Value {
    json!({"r": (2..depth).fold(json!(1), |inner, _| json!([inner]))})
}

fn with(mut spec: Value, name: &str, value: Value) -> Value {
    spec[name] = value;
    spec
}

/// Returns the bad fields of a refusal as `field: problem`. Empty if the input was accepted.
fn refused<T>(answer: Result<T, Refusal>) -> Vec<String> {
    let named = |refusal: Refusal| {
        assert_eq!(refusal.code, schemas::Code::InvalidRequest);
        refusal.fields.into_iter().map(|bad| format!("{}: {}", bad.field, bad.problem)).collect()
    };
    answer.map_or_else(named, |_| vec![])
}

/// A field, a value at its limit, a value beyond it, and the expected refusal.
type Limit = (&'static str, Value, Value, &'static str);

/// Returns the limits that DesiredLRPs and tasks share.
fn common_limits() -> Vec<Limit> {
    const ENVIRONMENT: &str = "environment_variables";
    let (room, longest) = (limits::RESOURCE_MB, limits::DURATION_MS);
    vec![
        ("stack", text(1), text(0), "stack: \"\" is not a valid stack: use 1 to 128 of A-Z a-z 0-9 _ -"),
        ("placement_tags", words(16), words(17), "placement_tags: has 17 members, more than 16"),
        ("memory_mb", room.into(), (room + 1).into(), "memory_mb: must be from 0 to 1073741824"),
        ("disk_mb", room.into(), (room + 1).into(), "disk_mb: must be from 0 to 1073741824"),
        ("memory_mb", 0.into(), (-1).into(), "memory_mb: must not be negative"),
        ("memory_mb", 1.into(), json!(1.5), "memory_mb: must be a whole number"),
        ("disk_mb", 0.into(), (-1).into(), "disk_mb: must not be negative"),
        ("cpu_weight", 1024.into(), 1025.into(), "cpu_weight: must be from 0 to 1024"),
        ("grace_period_ms", 600_000.into(), 600_001.into(), "grace_period_ms: must be from 0 to 600000"),
        ("priority", 1.into(), 0.into(), "priority: must be from 1 to 100"),
        ("priority", 100.into(), 101.into(), "priority: must be from 1 to 100"),
        ("annotation", text(10_240), text(10_241), "annotation: has 10241 bytes, more than 10240"),
        (
            ENVIRONMENT,
            variables(256),
            variables(257),
            "environment_variables: has 257 members, more than 256",
        ),
        (ENVIRONMENT, object(256), object(257), "environment_variables: has more than 256 values"),
        (
            ENVIRONMENT,
            variable(65_536),
            variable(65_537),
            "environment_variables: is larger than 65536 bytes",
        ),
        ("action", path(4096), path(4097), "action.run.path: has 4097 bytes, more than 4096"),
        ("action", path(1), path(0), "action.run.path: must name a program"),
        ("action", dir(4096), dir(4097), "action.run.dir: has 4097 bytes, more than 4096"),
        ("action", env(256), env(257), "action.run.env: has 257 members, more than 256"),
        (
            "action",
            timeout(longest),
            timeout(longest + 1),
            "action.timeout.timeout_ms: must be from 1 to 315360000000",
        ),
        ("action", timeout(1), timeout(0), "action.timeout.timeout_ms: must be from 1 to 315360000000"),
        ("action", serial(1), serial(0), "action.serial.actions: must contain at least one action"),
        ("action", serial(255), serial(256), "action: has more than 256 actions"),
    ]
}

fn lrp_limits() -> Vec<Limit> {
    let longest = limits::DURATION_MS;
    vec![
        ("instances", 10_000.into(), 10_001.into(), "instances: must be from 0 to 10000"),
        ("instances", 0.into(), 4_294_967_296_u64.into(), "instances: must be from 0 to 10000"),
        (
            "start_timeout_ms",
            longest.into(),
            (longest + 1).into(),
            "start_timeout_ms: must be from 0 to 315360000000",
        ),
        ("ports", list(64), list(65), "ports: has 65 members, more than 64"),
        ("ports", json!([65_535]), json!([65_536]), "ports[0]: must be from 1 to 65535"),
        ("ports", json!([1]), json!([0]), "ports[0]: must be from 1 to 65535"),
        // The text adds two quotes, and the router's name counts, too.
        ("routes", routes(131_072), routes(131_073), "routes: has 131073 bytes, more than 131072"),
        ("routes", lists(64), lists(65), "message: is nested deeper than 64"),
    ]
}

fn task_limits() -> Vec<Limit> {
    let longest = limits::DURATION_MS;
    let queue = |deadline_ms: u64| json!({"queue": {"deadline_ms": deadline_ms}});
    let deadline = "placement.queue.deadline_ms: must be from 1 to 315360000000";
    vec![
        ("placement", queue(1), queue(0), deadline),
        ("placement", queue(longest), queue(longest + 1), deadline),
        ("result_file", text(4096), text(4097), "result_file: has 4097 bytes, more than 4096"),
        (
            "completion_callback_url",
            url(8192),
            url(8193),
            "completion_callback_url: has 8193 bytes, more than 8192",
        ),
        (
            "completion_callback_url",
            url(8),
            url(7),
            "completion_callback_url: must be a URL that starts with http:// or https://",
        ),
    ]
}

/// Parts of the problems that the JSON Schemas of commands do not cover: sums over several values, the depth,
/// and the texts of values that may be secret.
const BEYOND_SCHEMAS: [&str; 6] = [
    "has more than 256",
    "is larger than",
    "routes: has",
    "nested deeper",
    "callback_url: has",
    "must be a URL",
];

/// Checks that numbers without a fraction are integers, in specs and in queries.
#[test]
fn number_without_fraction_is_integer() {
    let spec = |instances: Value, weight: Value| {
        let affinity = json!({"attribute": "zone", "value": "z1", "weight": weight});
        let action = json!({"run": {"path": "a"}});
        let spec = json!({"process_guid": "web", "domain": "apps", "action": action, "instances": instances,
            "affinities": [affinity], "routes": {"r": 5.0}});
        spec::lrp(spec)
    };
    let lrp = spec(json!(5.0), json!(-7.0)).unwrap();
    let rules = lrp.definition.constraint.rules.as_ref().unwrap();
    assert_eq!((lrp.instances, rules.affinities[0].weight, lrp.routes["r"].as_str()), (5, -7, "5.0"));
    assert_eq!(refused(spec(json!(5.5), json!(7))), ["instances: must be a whole number"]);
    assert_eq!(refused(spec(json!(1e300), json!(7))), ["instances: must be a whole number"]);
    let limit = |text: &str| decode::<ReadEvents>(text.as_bytes()).map(|(read, _)| read.limit);
    assert_eq!(limit(r#"{"limit": 5.0}"#), Ok(Some(5)));
    assert!(limit(r#"{"limit": 5.5}"#).is_err());
    assert!(limit(r#"{"limit": 5.0, "limit": 6}"#).is_err());
}

#[test]
fn value_at_limit_is_accepted_and_beyond_it_refused() {
    let action = || json!({"run": {"path": "a"}});
    let lrp = |name: &str, value: Value| {
        let spec = json!({"process_guid": "web", "domain": "apps", "action": action()});
        refused(spec::lrp(with(spec, name, value)))
    };
    let task = |name: &str, value: Value| {
        let spec = json!({"task_guid": "job", "domain": "apps", "action": action()});
        refused(spec::task(with(spec, name, value)))
    };
    let none: Vec<String> = vec![];
    let of_lrps = common_limits().into_iter().chain(lrp_limits()).map(|limit| ("lrp.desire", limit));
    let of_tasks = common_limits().into_iter().chain(task_limits()).map(|limit| ("task.desire", limit));
    for (command, (name, good, bad, problem)) in of_lrps.chain(of_tasks) {
        let schema = validator(command);
        let is_valid = |value| {
            let guid = if command == "lrp.desire" { "process_guid" } else { "task_guid" };
            let spec = json!({guid: "a", "domain": "apps", "action": action()});
            schema.is_valid(&json!({"body": with(spec, name, value)}))
        };
        assert!(is_valid(good), "{command} {name}: the schema refuses the limit");
        let is_beyond_schemas = BEYOND_SCHEMAS.iter().any(|part| problem.contains(part));
        assert_eq!(is_valid(bad), is_beyond_schemas, "{command} {name}: {problem}");
    }
    for (name, good, bad, problem) in common_limits().into_iter().chain(lrp_limits()) {
        assert_eq!((lrp(name, good), lrp(name, bad)), (none.clone(), vec![problem.to_owned()]), "lrp {name}");
    }
    for (name, good, bad, problem) in common_limits().into_iter().chain(task_limits()) {
        assert_eq!(
            (task(name, good), task(name, bad)),
            (none.clone(), vec![problem.to_owned()]),
            "task {name}"
        );
    }
    for name in ["process_guid", "domain", "definition_id", "stack"] {
        let what = name.replace('_', " ");
        // Invalid names may be long, so only their beginning is quoted.
        let problem = format!("{name}: {} is not a valid {what}: use 1 to 128 of A-Z a-z 0-9 _ -", text(40));
        assert_eq!((lrp(name, text(128)), lrp(name, text(129))), (none.clone(), vec![problem]), "{name}");
    }
}

#[test]
fn spec_and_its_event_beyond_size_limit_are_refused() {
    let lrp = |args: usize, routes: Value| {
        let run = json!({"path": "a", "args": [text(args)]});
        let spec = json!({"process_guid": "w", "domain": "d", "action": {"run": run}, "routes": routes});
        refused(spec::lrp(spec))
    };
    // {"run":{"args":[""],"path":"a"}}, process_guid, "w", domain, "d", action.
    let around = 32 + 12 + 3 + 6 + 3 + 6;
    let (most, large) = (limits::SPEC_BYTES - around, json!({"r": text(100_000)}));
    assert_eq!(lrp(most, large.clone()), [""; 0], "routes are not counted");
    assert_eq!(lrp(most + 1, large), ["message: has 131073 bytes without its routes, more than 131072"]);
    // A quote takes four bytes in the log: two in the JSON of the router, and two for escaping these again.
    let quotes = |number: usize| json!({"r": "\"".repeat(number)});
    let log = |number: usize| {
        let spec = json!({"process_guid": "w", "domain": "d", "action": {"run": {"path": "a"}}, "routes": quotes(number)});
        spec::lrp(spec).map(|lrp| serde_json::to_vec(&lrp).unwrap().len())
    };
    let room = limits::DECISION_BYTES - limits::DECISION_HEAD_BYTES;
    let empty = log(0).unwrap();
    let most = (room - empty) / 4;
    let rest = (room - empty) % 4;
    assert_eq!(log(most), Ok(room - rest));
    let over = room - rest + 4;
    assert_eq!(refused(log(most + 1)), [format!("message: takes {over} bytes of the log, more than {room}")]);
}

#[test]
fn message_and_envelope_beyond_limits_are_refused() {
    let ask = |envelope: Value, body: Value| {
        let text = json!({"envelope": envelope, "body": body}).to_string();
        refused(client_command("lrp", "retire", &domain("apps"), text.as_bytes()))
    };
    let body = || json!({"process_guid": "a", "index": 0});
    let trace =
        |bytes: usize| format!("00-{}-{}-01-{}", "a".repeat(32), "b".repeat(16), "0".repeat(bytes - 56));
    let longest = limits::DURATION_MS;
    let limits: [Limit; 4] = [
        ("request_id", text(128), text(0), "\"\" is not a valid request id: use 1 to 128 of A-Z a-z 0-9 _ -"),
        ("reason", text(1024), text(1025), "has 1025 bytes, more than 1024"),
        ("traceparent", trace(256).into(), trace(257).into(), "has 257 bytes, more than 256"),
        ("timeout_ms", longest.into(), json!(longest + 1), "must be from 0 to 315360000000"),
    ];
    for (name, good, bad, problem) in limits {
        assert_eq!(ask(json!({name: good}), body()), [""; 0], "{name}");
        assert_eq!(ask(json!({name: bad}), body()), [format!("envelope.{name}: {problem}")]);
    }
    let index = |index: u64| ask(json!({}), json!({"process_guid": "a", "index": index}));
    assert_eq!(index(u64::from(u32::MAX)), [""; 0]);
    assert_eq!(index(1 << 32), ["body.index: must be from 0 to 4294967295"]);
    let upsert = |ttl_ms: u64| {
        let text = json!({"body": {"domain": "apps", "ttl_ms": ttl_ms}}).to_string();
        refused(client_command("domain", "upsert", &domain("apps"), text.as_bytes()))
    };
    assert_eq!(upsert(limits::DURATION_MS), [""; 0]);
    assert_eq!(upsert(limits::DURATION_MS + 1), ["body.ttl_ms: must be from 0 to 315360000000"]);
    // Whitespace counts, because it is parsed.
    let padded = |bytes: usize| {
        let mut text = json!({"body": body()}).to_string();
        text.push_str(&" ".repeat(bytes - text.len()));
        refused(client_command("lrp", "retire", &domain("apps"), text.as_bytes()))
    };
    assert_eq!(padded(limits::MESSAGE_BYTES), [""; 0]);
    assert_eq!(padded(limits::MESSAGE_BYTES + 1), ["message: has 1048577 bytes, more than 1048576"]);
}

#[test]
fn entry_twice_the_limit_is_refused_without_parsing() {
    let told = |bytes: usize| Entry::decode(&vec![b'x'; bytes]).unwrap_err().to_string();
    assert!(!told(2 * limits::ENTRY_BYTES).contains("too many"));
    assert!(told(2 * limits::ENTRY_BYTES + 1).contains("1048577 bytes are too many"));
}

#[test]
fn traceparent_not_in_w3c_form_is_refused() {
    let (trace, span) = ("a".repeat(32), "0".repeat(16));
    let ask = |text: String| {
        let text = json!({"envelope": {"traceparent": text}, "body": {"task_guid": "a"}}).to_string();
        refused(client_command("task", "cancel", &domain("apps"), text.as_bytes()))
    };
    for good in [format!("00-{trace}-{span}-01"), format!("01-{trace}-{span}-01-1f")] {
        assert_eq!(ask(good), [""; 0]);
    }
    let (short, long, capital) = (&trace[1..], format!("{span}0"), trace.to_uppercase());
    for bad in [
        format!("00-{short}-{span}-01"),
        format!("00-{trace}-{long}-01"),
        format!("00-{capital}-{span}-01"),
        format!("0-{trace}-{span}-01"),
        format!("00-{trace}-{span}-1"),
        format!("00-{trace}-{span}"),
        String::new(),
    ] {
        assert_eq!(ask(bad), ["envelope.traceparent: must be a W3C traceparent"]);
    }
}

/// Returns a tree of this depth: nested actions of one kind around a program.
fn nested(word: &str, depth: usize) -> Value {
    let around = |inner: Value| match word {
        "parallel" | "serial" | "codependent" => json!({"actions": [inner]}),
        "timeout" => json!({"action": inner, "timeout_ms": 1}),
        _ => json!({"action": inner}),
    };
    (1..depth).fold(json!({"run": {"path": "a"}}), |inner, _| json!({word: around(inner)}))
}

#[test]
fn each_nested_action_counts_as_level() {
    let (most, more) = (limits::ACTION_DEPTH, limits::ACTION_DEPTH + 1);
    for word in ["timeout", "try", "parallel", "serial", "codependent", "emit_progress"] {
        let spec = |depth| {
            let lrp = json!({"process_guid": "web", "domain": "apps", "action": nested(word, depth)});
            spec::lrp(lrp).map(|lrp| Action::clone(&lrp.definition.action))
        };
        let tree = |depth| serde_json::from_value::<Action>(nested(word, depth)).unwrap();
        assert_eq!(spec(most), Ok(tree(most)), "{word}");
        let problems = refused(spec(more));
        assert!(problems[0].ends_with(": is nested deeper than 16 actions"), "{word}: {problems:?}");
        assert_eq!(tree(most).faults("action"), [], "{word}");
        let faults = tree(more).faults("action");
        assert!(
            matches!(&faults[..], [(_, deep)] if deep == "is nested deeper than 16"),
            "{word}: {faults:?}"
        );
        let row = |depth| decode::<Action>(&codec::encode(Form::Postcard, &tree(depth)));
        assert_eq!(row(most), Ok((tree(most), Form::Postcard)), "{word}");
        assert!(row(more).is_err(), "{word}");
    }
}

#[test]
fn environment_outside_spec_has_same_limits() {
    let variable = |name: &str, value: Secret| Variable { name: name.into(), value };
    let plain = |bytes: usize| Secret::Plain("x".repeat(bytes).into());
    let faults = |variables: &[Variable]| {
        variable_faults(variables, "env")
            .into_iter()
            .map(|(path, what)| format!("{path}: {what}"))
            .collect::<Vec<_>>()
    };
    let many = |number: usize| vec![variable("V", plain(0)); number];
    assert_eq!(faults(&many(256)), [""; 0]);
    assert_eq!(faults(&many(257)), ["env: has more than 256 values"]);
    let large = |bytes: usize| [variable("NAME", plain(60_000)), variable("B", plain(bytes - 60_005))];
    assert_eq!(faults(&large(65_536)), [""; 0]);
    assert_eq!(faults(&large(65_537)), ["env: is larger than 65536 bytes"]);
    // A sealed value counts with the size of its plaintext.
    let data = "A".repeat((65_536 - 60_004 + Sealed::OVERHEAD).div_ceil(3) * 4);
    let sealed = |data: &str| {
        let value = Secret::Sealed(Sealed { key: "k".into(), data: data.into() }.into());
        faults(&[variable("NAME", plain(60_000)), variable("B", value)])
    };
    assert_eq!(sealed(&data[4..]), [""; 0]);
    assert_eq!(sealed(&data), ["env: is larger than 65536 bytes"]);
    let bad = [
        variable("A", Secret::Plain("\0".into())),
        variable(" ", plain(1)),
        variable("A=B", plain(1)),
        variable("A\0", plain(1)),
    ];
    let name = "must not be blank or contain = or NUL";
    assert_eq!(
        faults(&bad),
        [
            "env[0].value: must not contain NUL".to_owned(),
            format!("env[1].name: {name}"),
            format!("env[2].name: {name}"),
            format!("env[3].name: {name}"),
        ]
    );
}
