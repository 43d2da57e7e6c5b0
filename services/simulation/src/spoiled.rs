//! Commands with exactly one thing wrong, and what their clients must be told; and commands in which everything is as
//! large as it may be.
//!
//! What is wrong stands here in the words and numbers of docs/reference/limits.md. Nothing of the language is asked: it is what is
//! tried.

use schemas::action::{Action, Group, Run, Secret, Try, Variable};
use schemas::definition::{
    Definition, DesiredLrp, DesiredLrpUpdate, DesiredTask, Mode, Placement, Routes, TaskDefinition,
};
use schemas::isolation::IsolationLayer;
use schemas::names::{DefinitionId, Domain, PlacementTag, ProcessGuid, Stack, TaskGuid};
use schemas::policy::Policies;
use schemas::priority::Priority;
use schemas::resources::Constraint;
use schemas::spec::ClientCommand;
use schemas::{Code, Refusal};
use serde_json::{Map, Value, json};

use super::checkers::sizes::MESSAGE_BYTES;
use super::rng::Rng;

/// Every command of a client, by noun and verb.
const COMMANDS: [(&str, &str); 8] = [
    ("lrp", "desire"),
    ("lrp", "update"),
    ("lrp", "remove"),
    ("lrp", "retire"),
    ("task", "desire"),
    ("task", "cancel"),
    ("task", "resolve"),
    ("domain", "upsert"),
];

/// docs/reference/limits.md.
const NAME_BYTES: usize = 128;
const SPEC_BYTES: usize = 131_072;
const ROUTES_BYTES: usize = 131_072;
const ANNOTATION_BYTES: usize = 10_240;
const GREATEST_PRIORITY: u8 = 100;
const INSTANCES: u64 = 10_000;
const ACTION_LEVELS: usize = 16;
const ACTIONS: usize = 256;
const VARIABLES: usize = 256;
const ENVIRONMENT_BYTES: usize = 65_536;
const PORTS: u16 = 64;
const TAGS: usize = 16;
const GRACE_MS: u64 = 600_000;
const DURATION_MS: u64 = 315_360_000_000;
const RESOURCE_MB: u64 = 1_073_741_824;
const CPU_WEIGHT: u32 = 1_024;
const URL_BYTES: usize = 8_192;
const PATH_BYTES: usize = 4_096;
const REASON_BYTES: usize = 1_024;
const TRACE_BYTES: usize = 256;

/// What the client of a spoiled command must be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// `InvalidRequest`, by the path of this field and of no other.
    Field {
        /// Its path.
        path: String,
        /// What is said of it, among other words.
        says: String,
    },
    /// `Forbidden`: it speaks of another domain.
    Foreign,
}

impl Verdict {
    /// What is wrong with a refusal of it.
    #[must_use]
    pub fn judge(&self, refusal: &Refusal) -> Option<String> {
        let (code, right) = match self {
            Self::Foreign => (Code::Forbidden, refusal.fields.is_empty()),
            Self::Field { path, says } => {
                let named = refusal.fields.iter().all(|bad| bad.field == *path && !bad.problem.is_empty());
                let said = refusal.fields.iter().any(|bad| bad.problem.contains(says.as_str()));
                (Code::InvalidRequest, named && said)
            }
        };
        let right = right && refusal.code == code && !refusal.message.is_empty();
        (!right).then(|| format!("{self:?} is refused with {refusal:?}"))
    }
}

/// A command with one thing wrong, as it is sent.
#[derive(Clone, Debug)]
pub struct Spoiled {
    /// Noun and verb.
    pub command: (&'static str, &'static str),
    /// The message.
    pub text: String,
    /// What its client must be told.
    pub verdict: Verdict,
}

/// What is put in the place of something good.
enum Put {
    /// JSON.
    Json(String),
    /// Text of so many letters.
    Long(usize),
    /// Something large, made when it is wanted.
    Large(fn() -> Value),
    /// Nothing: it is left out.
    Nothing,
    /// It stands there a second time.
    Again,
    /// The whole message is this.
    Message(String),
    /// The whole message is so many blanks.
    Blanks(usize),
}

/// One thing that is wrong with a command.
struct Fault {
    at: &'static str,
    put: Put,
    verdict: Verdict,
}

/// Something wrong for which the field is named where it is put.
fn wrong(at: &'static str, put: Put) -> Fault {
    named(at, put, at, "")
}

/// Something wrong for which this field is named, with these words among others.
fn named(at: &'static str, put: Put, path: &str, says: &str) -> Fault {
    Fault { at, put, verdict: Verdict::Field { path: path.to_owned(), says: says.to_owned() } }
}

fn value(at: &'static str, value: &Value) -> Fault {
    wrong(at, Put::Json(value.to_string()))
}

/// A command of a client of this domain, with something wrong.
#[must_use]
pub fn spoiled(rng: &mut Rng, domain: &Domain, number: u64) -> Spoiled {
    let command = COMMANDS[rng.place(COMMANDS.len()).unwrap_or(0)];
    let mut faults = faults_of(command);
    let fault = faults.swap_remove(rng.place(faults.len()).unwrap_or(0));
    let good = json!({
        "envelope": { "request_id": request_id(number), "reason": reason(number) },
        "body": good_body(rng, command, domain),
    });
    let text = write(good, &fault);
    Spoiled { command, text, verdict: fault.verdict }
}

/// What the request of a spoiled command is called.
#[must_use]
pub fn request_id(number: u64) -> String {
    format!("spoiled-{number}")
}

/// Why it is asked: some have no id that is one.
#[must_use]
pub fn reason(number: u64) -> String {
    format!("spoiled {number}")
}

/// Whether a request id or a reason is that of a spoiled command.
#[must_use]
pub fn is_spoiled(text: &str) -> bool {
    text.starts_with("spoiled")
}

/// A body with nothing wrong, about something that clients want and remove all the time.
fn good_body(rng: &mut Rng, (noun, verb): (&str, &str), domain: &Domain) -> Value {
    let process = format!("web{}", rng.below(6));
    let task = format!("job{}", rng.below(12));
    let action = json!({ "run": { "path": "scripted", "args": ["create=20ms"] } });
    match (noun, verb) {
        ("lrp", "desire") => json!({
            "process_guid": process, "domain": domain, "instances": 1, "memory_mb": 64, "disk_mb": 64,
            "action": action, "ports": [8080], "routes": { "http": { "host": "a" } }, "annotation": "spoiled",
        }),
        ("lrp", "update") => json!({ "process_guid": process, "instances": 4, "annotation": "spoiled" }),
        ("lrp", "retire") => json!({ "process_guid": process, "index": 0 }),
        ("lrp", _) => json!({ "process_guid": process }),
        ("task", "desire") => json!({
            "task_guid": task, "domain": domain, "memory_mb": 64, "disk_mb": 64, "action": action,
            "result_file": "result", "annotation": "spoiled", "placement": { "queue": { "deadline_ms": 20_000 } },
        }),
        ("task", _) => json!({ "task_guid": task }),
        _ => json!({ "domain": domain, "ttl_ms": 1_000 }),
    }
}

/// The message with something wrong.
fn write(mut good: Value, fault: &Fault) -> String {
    match &fault.put {
        Put::Message(text) => return text.clone(),
        Put::Blanks(bytes) => return " ".repeat(*bytes),
        // Objects are written in the order of their names, so that the second of two stands anywhere.
        Put::Again => {
            let (above, name) = fault.at.rsplit_once('.').unwrap_or(("", fault.at));
            let object = object_at(&mut good, above);
            let doubled = object.get(name).cloned().unwrap_or_default();
            object.insert("~".to_owned(), doubled);
            return good.to_string().replacen("\"~\"", &format!("{name:?}"), 1);
        }
        Put::Json(_) | Put::Long(_) | Put::Large(_) | Put::Nothing => {}
    }
    let (above, name) = fault.at.rsplit_once('.').unwrap_or(("", fault.at));
    let object = object_at(&mut good, above);
    match &fault.put {
        Put::Json(text) => {
            object.insert(name.to_owned(), serde_json::from_str(text).expect("what is put in is JSON"));
        }
        Put::Long(letters) => {
            object.insert(name.to_owned(), "x".repeat(*letters).into());
        }
        Put::Large(made) => {
            object.insert(name.to_owned(), made());
        }
        Put::Nothing => {
            object.remove(name);
        }
        Put::Again | Put::Message(_) | Put::Blanks(_) => {}
    }
    good.to_string()
}

/// The object at a path of names.
fn object_at<'a>(root: &'a mut Value, path: &str) -> &'a mut Map<String, Value> {
    let names = path.split('.').filter(|name| !name.is_empty());
    let found = names.fold(root, |value, name| &mut value[name]);
    found.as_object_mut().expect("what is above a fault is an object")
}

// ---- what may be wrong -------------------------------------------------------------------------------------------

fn faults_of(command: (&'static str, &'static str)) -> Vec<Fault> {
    let mut faults = of_every_message();
    faults.extend(of_envelopes());
    match command {
        ("lrp", "desire") => {
            faults.extend(of_names("body.process_guid"));
            faults.extend(of_domains());
            faults.extend(of_scale());
            faults.extend(of_texts());
            faults.extend(of_definitions());
            faults.extend(of_lrps());
        }
        ("lrp", "update") => {
            faults.extend(of_names("body.process_guid"));
            faults.extend(of_scale());
            faults.extend(of_texts());
        }
        ("lrp", "retire") => {
            faults.extend(of_names("body.process_guid"));
            faults.extend(of_numbers("body.index"));
            faults.push(named("body.index", Put::Nothing, "body.index", "missing"));
            faults.push(value("body.definition_id", &json!("a b")));
            faults.push(wrong("body.definition_id", Put::Long(NAME_BYTES + 1)));
        }
        ("task", "desire") => {
            faults.extend(of_names("body.task_guid"));
            faults.extend(of_domains());
            faults.extend(of_texts());
            faults.extend(of_definitions());
            faults.extend(of_tasks());
        }
        ("lrp", _) => faults.extend(of_names("body.process_guid")),
        ("task", _) => faults.extend(of_names("body.task_guid")),
        _ => {
            faults.extend(of_names("body.domain"));
            faults.extend(of_domains());
            faults.extend(of_limited("body.ttl_ms", DURATION_MS));
        }
    }
    faults
}

fn of_every_message() -> Vec<Fault> {
    let message = |text: &str| named("", Put::Message(text.to_owned()), "message", "");
    let nested = format!("{{\"body\": {}1{}}}", "[".repeat(64), "]".repeat(64));
    vec![
        message(""),
        message("{"),
        message("nonsense"),
        message("[]"),
        message("{\"body\": {}} and more"),
        named("", Put::Message(nested), "message", "64"),
        named("", Put::Blanks(MESSAGE_BYTES + 1), "message", "1048576"),
        named("colour", Put::Json("1".into()), "colour", "unknown"),
        named("body.colour", Put::Json("\"red\"".into()), "body.colour", "unknown"),
        wrong("body", Put::Nothing),
        wrong("body", Put::Json("[]".into())),
        wrong("body", Put::Json("\"text\"".into())),
        wrong("body", Put::Again),
    ]
}

fn of_envelopes() -> Vec<Fault> {
    let mut faults = vec![
        wrong("envelope", Put::Json("7".into())),
        named("envelope.colour", Put::Json("1".into()), "envelope.colour", "unknown"),
        wrong("envelope.request_id", Put::Again),
        value("envelope.reason", &json!(7)),
        named("envelope.reason", Put::Long(REASON_BYTES + 1), "envelope.reason", "1024"),
        value("envelope.traceparent", &json!("00-xyz")),
        value("envelope.traceparent", &json!(traceparent(TRACE_BYTES + 1))),
    ];
    faults.extend(of_names("envelope.request_id").into_iter().filter(|fault| !fault.is_absence()));
    faults.extend(of_limited("envelope.timeout_ms", DURATION_MS));
    faults.extend(of_numbers("envelope.expect_version"));
    faults.extend(of_numbers("envelope.if_position"));
    faults
}

impl Fault {
    /// Whether something is left out, or null, which is the same.
    fn is_absence(&self) -> bool {
        match &self.put {
            Put::Nothing => true,
            Put::Json(text) => text == "null",
            Put::Long(_) | Put::Large(_) | Put::Again | Put::Message(_) | Put::Blanks(_) => false,
        }
    }
}

/// A name that must be there.
fn of_names(at: &'static str) -> Vec<Fault> {
    vec![
        named(at, Put::Nothing, at, "missing"),
        named(at, Put::Json("null".into()), at, "missing"),
        wrong(at, Put::Again),
        wrong(at, Put::Long(NAME_BYTES + 1)),
        value(at, &json!("")),
        value(at, &json!("web 1")),
        value(at, &json!("web.1")),
        value(at, &json!("w\u{e9}b")),
        value(at, &json!(7)),
        value(at, &json!(["web"])),
    ]
}

/// The domain that is named has to be that of the subject.
fn of_domains() -> Vec<Fault> {
    let foreign = Put::Json("\"elsewhere\"".into());
    let mut faults = vec![
        Fault { at: "body.domain", put: foreign, verdict: Verdict::Foreign },
        named("body.domain", Put::Nothing, "body.domain", "missing"),
    ];
    faults.extend([value("body.domain", &json!("a b")), value("body.domain", &json!(true))]);
    faults
}

/// A whole number.
fn of_numbers(at: &'static str) -> Vec<Fault> {
    ["-1", "1.5", "\"1\"", "true", "[1]"].map(|text| wrong(at, Put::Json(text.into()))).into()
}

/// A whole number of at most this.
fn of_limited(at: &'static str, most: u64) -> Vec<Fault> {
    let mut faults = of_numbers(at);
    faults.push(named(at, Put::Json((most + 1).to_string()), at, &most.to_string()));
    faults
}

/// Text of at most so many bytes.
fn of_text(at: &'static str, most: usize) -> Vec<Fault> {
    vec![value(at, &json!(7)), named(at, Put::Long(most + 1), at, &most.to_string())]
}

fn of_scale() -> Vec<Fault> {
    let mut faults = of_limited("body.instances", INSTANCES);
    let routes = Put::Large(|| json!({ "http": "x".repeat(ROUTES_BYTES - 5) }));
    faults.push(named("body.routes", routes, "body.routes", "131072"));
    faults.extend([value("body.routes", &json!("text")), value("body.routes", &json!([]))]);
    faults
}

fn of_texts() -> Vec<Fault> {
    let mut faults = of_text("body.annotation", ANNOTATION_BYTES);
    faults.extend(of_limited("body.priority", GREATEST_PRIORITY.into()));
    faults.push(named("body.priority", Put::Json("0".into()), "body.priority", "1 to 100"));
    faults
}

/// What processes and tasks have in common.
fn of_definitions() -> Vec<Fault> {
    let mut faults = vec![];
    faults.extend(of_limited("body.memory_mb", RESOURCE_MB));
    faults.extend(of_limited("body.disk_mb", RESOURCE_MB));
    faults.extend(of_limited("body.cpu_weight", u64::from(CPU_WEIGHT)));
    faults.extend(of_limited("body.grace_period_ms", GRACE_MS));
    faults.extend(of_constraints());
    faults.extend(of_environments("body.environment_variables"));
    faults.extend(of_environments("body.env"));
    faults.extend(of_actions());
    let large = Put::Large(|| json!({ "run": { "path": "scripted", "args": ["x".repeat(SPEC_BYTES)] } }));
    faults.push(named("body.action", large, "body", "131072"));
    // Fields of Diego that Muster does not support.
    let refused = ["body.privileged", "body.check_definition", "body.max_pids", "body.volume_mounts"];
    faults.extend(refused.map(|at| named(at, Put::Json("1".into()), at, "not supported")));
    faults.push(value("body.root_fs", &json!("docker:busybox")));
    faults.push(value("body.network", &json!("bridge")));
    faults.push(named(
        "body.egress_rules",
        Put::Json(r#"[{"protocol": "all"}]"#.into()),
        "body.egress_rules",
        "rule",
    ));
    faults.extend(["body.egress_rules", "body.log_guid", "body.metrics_guid"].map(|at| value(at, &json!(1))));
    faults.extend(of_dependencies());
    faults
}

fn of_constraints() -> Vec<Fault> {
    let tags: Vec<String> = (0..=TAGS).map(|number| format!("t{number}")).collect();
    vec![
        value("body.stack", &json!("a b")),
        value("body.stack", &json!("")),
        value("body.stack", &json!(1)),
        named("body.placement_tags", Put::Json(json!(tags).to_string()), "body.placement_tags", "16"),
        value("body.placement_tags", &json!("gpu")),
        inside("body.placement_tags", &json!(["gpu", "gpu"]), "[1]"),
        inside("body.placement_tags", &json!(["a b"]), "[0]"),
    ]
}

/// Something wrong for which a part of what is put there is named.
fn inside(at: &'static str, put: &Value, part: &str) -> Fault {
    named(at, Put::Json(put.to_string()), &format!("{at}{part}"), "")
}

fn of_dependencies() -> Vec<Fault> {
    const AT: &str = "body.cached_dependencies";
    vec![
        value(AT, &json!(1)),
        inside(AT, &json!([{ "to": "a" }]), "[0].from"),
        inside(
            AT,
            &json!([{ "from": "http://a/b", "to": "a", "checksum_algorithm": "crc" }]),
            "[0].checksum_algorithm",
        ),
        inside(
            AT,
            &json!([{ "from": "http://a/b", "to": "a", "checksum_algorithm": "md5", "checksum_value": "1" }]),
            "[0].checksum_value",
        ),
    ]
}

fn of_environments(at: &'static str) -> Vec<Fault> {
    let many = Put::Large(|| {
        (0..=VARIABLES).map(|number| json!({ "name": format!("n{number}"), "value": "" })).collect()
    });
    let large = Put::Large(|| json!([{ "name": "n", "value": "x".repeat(ENVIRONMENT_BYTES) }]));
    vec![
        value(at, &json!("A=1")),
        named(at, many, at, "256"),
        named(at, large, at, "65536"),
        inside(at, &json!([{ "name": "A", "value": "1" }, { "name": "A", "value": "2" }]), "[1].name"),
        inside(at, &json!([{ "name": "", "value": "1" }]), "[0].name"),
        inside(at, &json!([{ "name": "A=B", "value": "1" }]), "[0].name"),
        inside(at, &json!([{ "name": "A\u{0}", "value": "1" }]), "[0].name"),
        inside(at, &json!([{ "value": "1" }]), "[0].name"),
        inside(at, &json!([{ "name": "A" }]), "[0].value"),
        inside(at, &json!([{ "name": "A", "value": 1 }]), "[0].value"),
        inside(at, &json!([{ "name": "A", "value": "1", "colour": 1 }]), "[0].colour"),
        inside(at, &json!(["A=1"]), "[0]"),
        inside(at, &json!({ "A": 1 }), ".A"),
        inside(at, &json!({ "A": ["1"] }), ".A"),
    ]
}

fn of_actions() -> Vec<Fault> {
    const AT: &str = "body.action";
    const RUN: &str = "body.action.run";
    let leaf = json!({ "run": { "path": "scripted" } });
    let child = leaf.clone();
    let deep = (0..ACTION_LEVELS).fold(leaf.clone(), |action, _| json!({ "try": { "action": action } }));
    let wide = Put::Large(|| {
        let leaves = vec![json!({ "run": { "path": "scripted" } }); ACTIONS];
        json!({ "parallel": { "actions": leaves } })
    });
    let two = json!({ "run": { "path": "scripted" }, "try": { "action": leaf } });
    let deepest = ".try.action".repeat(ACTION_LEVELS);
    let mut faults = vec![
        named(AT, Put::Nothing, AT, "missing"),
        value(AT, &json!("scripted")),
        value(AT, &json!({})),
        value(AT, &two),
        inside(AT, &json!({ "download": {"to": "a"} }), ".download.from"),
        inside(AT, &json!({ "download": {"from": "http://a/b", "to": "../a"} }), ".download.to"),
        inside(AT, &json!({ "upload": {"from": "a", "to": "ftp://a/b"} }), ".upload.to"),
        inside(AT, &json!({ "dance": {} }), ".dance"),
        named(AT, Put::Json(deep.to_string()), &format!("{AT}{deepest}"), "16"),
        named(AT, wide, AT, "256"),
        inside(AT, &json!({ "serial": { "actions": [] } }), ".serial.actions"),
        inside(AT, &json!({ "codependent": {} }), ".codependent.actions"),
        inside(AT, &json!({ "parallel": { "actions": [child, {}] } }), ".parallel.actions[1]"),
        inside(AT, &json!({ "try": {} }), ".try.action"),
        inside(
            AT,
            &json!({ "emit_progress": { "action": child, "start_message": 1 } }),
            ".emit_progress.start_message",
        ),
    ];
    for (limit, says) in [("0", "1"), ("315360000001", "315360000000"), ("\"1\"", "")] {
        let text = format!("{{\"timeout\": {{\"action\": {child}, \"timeout_ms\": {limit}}}}}");
        faults.push(named(AT, Put::Json(text), "body.action.timeout.timeout_ms", says));
    }
    faults.push(inside(AT, &json!({ "timeout": { "action": child } }), ".timeout.timeout_ms"));
    faults.push(named("body.action.run.colour", Put::Json("1".into()), "body.action.run.colour", "unknown"));
    faults.push(value("body.action.run.user", &json!(7)));
    faults.push(named("body.action.run.path", Put::Nothing, "body.action.run.path", "missing"));
    faults.push(value("body.action.run.path", &json!("")));
    faults.extend(of_text("body.action.run.path", PATH_BYTES));
    faults.extend(of_text("body.action.run.dir", PATH_BYTES));
    faults.push(value("body.action.run.args", &json!("x")));
    faults.push(inside("body.action.run.args", &json!(["a", 5]), "[1]"));
    faults.push(value("body.action.run.suppress_log_output", &json!("yes")));
    faults.push(wrong("body.action.run.path", Put::Again));
    faults.push(value(RUN, &json!("scripted")));
    faults.extend(of_environments("body.action.run.env"));
    faults
}

fn of_lrps() -> Vec<Fault> {
    const PORTS_AT: &str = "body.ports";
    let many: Vec<u16> = (0..=PORTS).map(|number| 8_000 + number).collect();
    let mut faults = vec![
        named(PORTS_AT, Put::Json(json!(many).to_string()), PORTS_AT, "64"),
        value(PORTS_AT, &json!(8080)),
        inside(PORTS_AT, &json!([0]), "[0]"),
        inside(PORTS_AT, &json!([80, 65_536]), "[1]"),
        inside(PORTS_AT, &json!([80, "81"]), "[1]"),
        inside(PORTS_AT, &json!([80, 81, 80]), "[2]"),
        inside("body.monitor", &json!({ "run": { "path": "" } }), ".run.path"),
        inside("body.setup", &json!({ "run": { "path": "a", "colour": 1 } }), ".run.colour"),
        value("body.definition_id", &json!("a b")),
        wrong("body.definition_id", Put::Long(NAME_BYTES + 1)),
        // Those of a task.
        named("body.result_file", Put::Json("\"result\"".into()), "body.result_file", "unknown"),
        named("body.task_guid", Put::Json("\"job\"".into()), "body.task_guid", "unknown"),
    ];
    faults.extend(of_limited("body.start_timeout_ms", DURATION_MS));
    faults
}

fn of_tasks() -> Vec<Fault> {
    const URL: &str = "body.completion_callback_url";
    const PLACEMENT: &str = "body.placement";
    let long = format!("http://owner/{}", "x".repeat(URL_BYTES + 1 - 13));
    let mut faults = vec![
        named(URL, Put::Json(json!(long).to_string()), URL, "8192"),
        named(URL, Put::Json("\"ftp://owner/\"".into()), URL, "http://"),
        value(URL, &json!("http://")),
        value(URL, &json!("https:///path")),
        value(URL, &json!("http://ow ner/")),
        value(URL, &json!("owner")),
        value(URL, &json!(1)),
        value(PLACEMENT, &json!("maybe")),
        value(PLACEMENT, &json!(1)),
        inside(PLACEMENT, &json!({ "queue": {} }), ".queue.deadline_ms"),
        inside(PLACEMENT, &json!({ "queue": { "deadline_ms": 0 } }), ".queue.deadline_ms"),
        inside(PLACEMENT, &json!({ "queue": { "deadline_ms": DURATION_MS + 1 } }), ".queue.deadline_ms"),
        inside(PLACEMENT, &json!({ "queue": { "deadline_ms": 1, "colour": 1 } }), ".queue.colour"),
        value("body.result_file", &json!("/etc/passwd")),
        value("body.result_file", &json!("a/../../b")),
        // Those of a process.
        named("body.instances", Put::Json("1".into()), "body.instances", "unknown"),
        named("body.ports", Put::Json("[80]".into()), "body.ports", "unknown"),
        named("body.monitor", Put::Json("{}".into()), "body.monitor", "unknown"),
    ];
    faults.extend(of_text("body.result_file", PATH_BYTES));
    faults
}

// ---- as large as may be ------------------------------------------------------------------------------------------

/// The domain of what is as large as may be: what it holds takes no room, and nobody else uses it.
#[must_use]
pub fn domain() -> Domain {
    Domain::new("limits").expect("a name")
}

/// A W3C trace of a later version, of so many bytes.
fn traceparent(bytes: usize) -> String {
    let known = format!("01-{}-{}-01-", "a".repeat(32), "b".repeat(16));
    format!("{known:c<bytes$}")
}

/// A command in which as much as possible is as large as it may be. It must not be refused for that.
#[must_use]
pub fn utmost(rng: &mut Rng) -> ClientCommand {
    let guid = |letter: &str| letter.repeat(NAME_BYTES);
    let process_guid = ProcessGuid::new(&guid("u")).expect("a name");
    let task_guid = TaskGuid::new(&guid("t")).expect("a name");
    match rng.below(7) {
        0 | 1 => ClientCommand::LrpDesire(Box::new(utmost_lrp(process_guid))),
        2 => ClientCommand::LrpUpdate {
            process_guid,
            update: DesiredLrpUpdate {
                instances: None,
                priority: Priority::new(GREATEST_PRIORITY),
                routes: Some(utmost_routes("y")),
                annotation: Some("y".repeat(ANNOTATION_BYTES)),
                policies: None,
            },
            definition: None,
        },
        3 => ClientCommand::LrpRemove { process_guid },
        4 | 5 => ClientCommand::TaskDesire(Box::new(utmost_task(task_guid))),
        _ => ClientCommand::DomainUpsert { domain: domain(), ttl_ms: Some(DURATION_MS) },
    }
}

/// The longest reason and the longest trace.
#[must_use]
pub fn utmost_envelope(reason: &str) -> (String, String) {
    (format!("{reason:.<REASON_BYTES$}"), traceparent(TRACE_BYTES))
}

fn utmost_routes(letter: &str) -> Routes {
    // The router's name, and two quotes around the text.
    Routes::from([("http".to_owned(), format!("\"{}\"", letter.repeat(ROUTES_BYTES - 4 - 2)))])
}

fn utmost_constraint() -> Constraint {
    let tag = |number| PlacementTag::new(&format!("t{number}")).ok();
    Constraint {
        stack: Stack::new("nowhere").ok(),
        placement_tags: (0..TAGS).filter_map(tag).collect(),
        isolation: IsolationLayer::ALL.into(),
        rules: None,
    }
}

/// As many variables as there may be, and as large together.
fn utmost_environment() -> Vec<Variable> {
    let value = || Secret::Plain("x".repeat(ENVIRONMENT_BYTES / VARIABLES - 4).into());
    (0..VARIABLES).map(|number| Variable { name: format!("n{number:03}").into(), value: value() }).collect()
}

/// As many actions as there may be, and as deep.
fn utmost_action() -> Action {
    let leaf = |path: String| Action::Run(Run { path, ..Run::default() });
    let above = ACTION_LEVELS - 2;
    let mut leaves = vec![leaf("x".repeat(PATH_BYTES))];
    leaves.resize(ACTIONS - above - 1, leaf("scripted".into()));
    let group = Action::Parallel(Group { actions: leaves });
    (0..above).fold(group, |action, _| Action::Try(Try { action: Box::new(action) }))
}

/// No instance runs: it takes no room.
fn utmost_lrp(process_guid: ProcessGuid) -> DesiredLrp {
    let definition = Definition {
        constraint: utmost_constraint().into(),
        environment_variables: utmost_environment(),
        start_timeout_ms: DURATION_MS,
        memory_mb: RESOURCE_MB,
        disk_mb: RESOURCE_MB,
        cpu_weight: CPU_WEIGHT,
        ports: (1..=PORTS).map(|number| u16::MAX - PORTS + number).collect(),
        grace_period_ms: GRACE_MS,
        ..Definition::new(utmost_action())
    };
    DesiredLrp {
        domain: domain(),
        mode: Mode::Replicated,
        instances: 0,
        priority: Priority::default(),
        routes: utmost_routes("x"),
        annotation: "x".repeat(ANNOTATION_BYTES),
        policies: Policies::default(),
        definition_id: DefinitionId::new(&"d".repeat(NAME_BYTES)).expect("a name"),
        definition: definition.into(),
        process_guid,
    }
}

/// There is no cell for it: it fails at once.
fn utmost_task(task_guid: TaskGuid) -> DesiredTask {
    let definition = TaskDefinition {
        constraint: utmost_constraint(),
        environment_variables: utmost_environment(),
        action: utmost_action(),
        memory_mb: RESOURCE_MB,
        disk_mb: RESOURCE_MB,
        cpu_weight: CPU_WEIGHT,
        result_file: "x".repeat(PATH_BYTES),
        completion_callback_url: Some(Secret::Plain(format!("{:x<URL_BYTES$}", "http://owner/").into())),
        annotation: "x".repeat(ANNOTATION_BYTES),
        priority: Priority::default(),
        placement: Placement::Fail,
        grace_period_ms: GRACE_MS,
        sandbox: None,
    };
    DesiredTask { task_guid, domain: domain(), definition: definition.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every fault of the table is found, and nothing is wrong without it.
    #[test]
    fn every_fault_is_the_only_one() {
        let domain = Domain::new("apps").unwrap();
        for command in COMMANDS {
            let body = good_body(&mut Rng::new(1, 14), command, &domain);
            let good = json!({ "envelope": { "request_id": "r", "reason": "why" }, "body": body });
            let read =
                |text: &str| schemas::spec::client_command(command.0, command.1, &domain, text.as_bytes());
            assert_eq!(read(&good.to_string()).map(|_| ()), Ok(()), "{command:?}");
            for fault in faults_of(command) {
                let text = write(good.clone(), &fault);
                let words = || format!("{command:?} {} {:.200}", fault.at, text);
                let refusal = read(&text).expect_err(&words());
                assert_eq!(fault.verdict.judge(&refusal), None, "{}", words());
            }
        }
    }

    /// What is as large as may be is read as it was written.
    #[test]
    fn what_is_at_the_limit_is_read() {
        let mut rng = Rng::new(1, 14);
        for command in (0..100).map(|_| utmost(&mut rng)) {
            let (noun, verb) = command.noun_and_verb();
            let (reason, traceparent) = utmost_envelope("because");
            let text = json!({ "envelope": { "reason": reason, "traceparent": traceparent }, "body": command.body() });
            let read = schemas::spec::client_command(noun, verb, &domain(), text.to_string().as_bytes());
            let read = read.unwrap_or_else(|refusal| panic!("{noun}.{verb}: {refusal:?}"));
            assert_eq!((read.0.reason.unwrap().len(), read.0.traceparent.unwrap().len()), (1_024, 256));
            assert_eq!(read.1, command);
        }
    }
}
