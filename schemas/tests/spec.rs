//! Tests of specs. Specs round-trip through JSON. Bad input is refused field by field and quickly.

use proptest::prelude::*;
use schemas::action::Action;
use schemas::definition::Placement;
use schemas::exec::Exec;
use schemas::limits;
use schemas::policy::{
    FailureAction, Parallelism, Policies, Ratio, RestartCondition, RestartPolicy, UpdatePolicy,
};
use schemas::process::{Purpose, RolloutControl};
use schemas::refusal::{Code, Refusal};
use schemas::spec::{self, ClientCommand, Item, client_command};
use serde_json::{Value, json};

use crate::common::{any_task, domain};
use crate::golden::exec;
use crate::strategies::{any_lrp, any_name, any_update};

/// Returns the bad fields as `path: problem`, in order.
fn bad_fields(refusal: &Refusal) -> Vec<String> {
    assert_eq!(refusal.code, Code::InvalidRequest, "{refusal}");
    refusal.fields.iter().map(|bad| format!("{}: {}", bad.field, bad.problem)).collect()
}

fn bad_lrp(value: Value) -> Vec<String> {
    bad_fields(&spec::lrp(value).unwrap_err())
}

fn web() -> Value {
    json!({"process_guid": "web", "domain": "apps", "action": {"run": {"path": "server"}}})
}

fn web_with(name: &str, value: Value) -> Value {
    let mut web = web();
    web[name] = value;
    web
}

#[test]
fn minimal_lrp_has_default_values() {
    let lrp = spec::lrp(web()).unwrap();
    assert_eq!((lrp.instances, lrp.definition_id.as_str()), (1, "web"));
    assert_eq!((lrp.definition.grace_period_ms, lrp.definition.ports.len()), (10_000, 0));
}

#[test]
fn refusal_names_every_bad_field() {
    let problems = bad_lrp(json!({
        "process_guid": "a.b",
        "instances": -1,
        "memory": 64,
        "disk_mb": "64",
        "cpu_weight": 1025,
        "start_timeout_ms": 1.5,
        "ports": [80, 0, 80, 65536],
        "routes": "r",
        "privileged": true,
        "rootfs": "docker:///busybox",
        "env": [{"name": "A", "value": 1}, {"name": "B=", "vlaue": "x"}],
        "setup": {"serial": {"actions": []}},
        "action": {"parallel": {"actions": [
            {"run": {"path": "", "user": "vcap"}},
            {"timeout": {"action": {"run": {"args": [1]}}, "timeout_ms": 0}},
            {"download": {"from": "x", "checksum_value": "a"}},
            {"rnu": {}},
            {"run": {"path": "a"}, "try": {}},
        ]}},
    }));
    assert_eq!(
        problems,
        [
            "process_guid: \"a.b\" is not a valid process guid: use 1 to 128 of A-Z a-z 0-9 _ -",
            "domain: is missing",
            "instances: must not be negative",
            "routes: must be an object, not text",
            "env[0].value: must be text, not a number",
            "env[1].value: is missing",
            "env[1].vlaue: is unknown: did you mean value?",
            "setup.serial.actions: must contain at least one action",
            "action.parallel.actions[0].run.path: must name a program",
            "action.parallel.actions[1].timeout.timeout_ms: must be from 1 to 315360000000",
            "action.parallel.actions[1].timeout.action.run.path: is missing",
            "action.parallel.actions[1].timeout.action.run.args[0]: must be text, not a number",
            "action.parallel.actions[2].download.from: must be a URL that starts with http:// or https://",
            "action.parallel.actions[2].download.to: is missing",
            "action.parallel.actions[2].download.checksum_algorithm: is missing: checksum_value requires it",
            "action.parallel.actions[3].rnu: is not an action: did you mean run?",
            "action.parallel.actions[4]: must be exactly one of run, timeout, try, parallel, serial, \
             codependent, emit_progress, download, upload",
            "start_timeout_ms: must be a whole number",
            "disk_mb: must be a number, not text",
            "cpu_weight: must be from 0 to 1024",
            "ports[1]: must be from 1 to 65535",
            "ports[2]: 80 is given twice",
            "ports[3]: must be from 1 to 65535",
            "rootfs: must be preloaded:STACK, oci:FOLDER, oci:FOLDER:TAG, or the path of a folder on \
             the cell",
            "memory: is unknown: did you mean memory_mb?",
            "privileged: is not supported: containers have no rights on their host",
        ]
    );
}

#[test]
fn bad_policy_is_refused_with_valid_values() {
    let at_once = r#"must be a number of indices, or a percentage from "1%" to "100%""#;
    let bad_one = |field: &str, value: Value| {
        let problems = bad_lrp(web_with("update", json!({field: value})));
        assert_eq!(problems.len(), 1, "{problems:?}");
        problems[0].strip_prefix(&format!("update.{field}: ")).unwrap().to_owned()
    };
    for text in ["0%", "101%", "x%", "%", "1", "1.5%", "+5%", ""] {
        assert_eq!(bad_one("parallelism", json!(text)), at_once, "{text:?}");
    }
    let number = |most: u64| format!("must be from 1 to {most}");
    let instances = u64::from(limits::INSTANCES);
    assert_eq!(bad_one("parallelism", json!(0)), number(instances));
    assert_eq!(bad_one("pause_after", json!(0)), number(instances));
    assert_eq!(bad_one("max_failure_ratio", json!(1.5)), "must be a number from 0 to 1, not 1.5");
    assert_eq!(bad_one("max_failure_ratio", json!(-1)), "must be a number from 0 to 1, not -1");
    assert_eq!(bad_one("max_failure_ratio", json!("0.5")), "must be a number from 0 to 1");
    let orders = "must be one of start-first, stop-first";
    assert_eq!(bad_one("order", json!("start_first")), orders);
    assert_eq!(bad_one("order", json!(1)), orders);
    assert_eq!(bad_one("failure_action", json!("halt")), "must be one of hold, pause, continue, rollback");
    let time = format!("must be from 0 to {}", limits::DURATION_MS);
    for field in ["delay_ms", "monitor_ms", "index_deadline_ms"] {
        assert_eq!(bad_one(field, json!(limits::DURATION_MS + 1)), time);
        assert_eq!(bad_one(field, json!(-1)), "must not be negative");
    }
    assert_eq!(bad_one("monitor", json!(1)), "is unknown: did you mean monitor_ms?");
    assert_eq!(bad_lrp(web_with("update", json!("fast"))), ["update: must be an object, not text"]);
}

#[test]
fn contradictory_policies_are_refused() {
    assert_eq!(
        bad_lrp(web_with("rollback", json!({"failure_action": "rollback"}))),
        ["rollback.failure_action: must be hold, pause or continue: a rollback cannot be rolled back"]
    );
    let mut all_stay = web_with("update", json!({"order": "stop-first"}));
    (all_stay["instances"], all_stay["min_running"]) = (json!(3), json!(3));
    assert_eq!(
        bad_lrp(all_stay.clone()),
        ["min_running: lets stop-first stop none of the 3 instances: use a smaller number, or order \
             start-first"]
    );
    let mut back = all_stay.clone();
    (back["update"], back["rollback"]) = (json!({}), json!({"order": "stop-first"}));
    assert_eq!(bad_lrp(back).len(), 1, "the rollback could not stop an instance, either");
    all_stay["min_running"] = json!(2);
    assert_eq!(spec::lrp(all_stay.clone()).unwrap().policies.min_running, Some(2));
    all_stay["min_running"] = json!(3);
    all_stay["update"] = json!({"order": "start-first"});
    assert_eq!(spec::lrp(all_stay).unwrap().policies.min_running, Some(3));
    assert_eq!(
        bad_lrp(web_with("min_runing", json!(1))),
        ["min_runing: is unknown: did you mean min_running?"]
    );
    assert_eq!(bad_lrp(web_with("min_running", json!("all"))), ["min_running: must be a number, not text"]);
}

#[test]
fn restart_policy_parses_and_ineffective_one_is_refused() {
    let policy = |restart| spec::lrp(web_with("restart", restart)).unwrap().policies.restart;
    assert_eq!(policy(json!({})), RestartPolicy::default());
    let whole = json!({"condition": "on-failure", "delay_ms": 5000, "max_attempts": 3, "window_ms": 10_001});
    let read = RestartPolicy {
        condition: RestartCondition::OnFailure,
        delay_ms: Some(5_000),
        max_attempts: Some(3),
        window_ms: 10_001,
    };
    assert_eq!(policy(whole), read);
    for (restart, problem) in [
        (json!("always"), "restart: must be an object, not text"),
        (json!({"condition": "always"}), "restart.condition: must be one of any, on-failure, none"),
        (json!({"delay": "5s"}), "restart.delay: is unknown: did you mean delay_ms?"),
        (json!({"delay_ms": 86_400_001}), "restart.delay_ms: must be from 0 to 86400000"),
        (
            json!({"max_attempts": 0}),
            "restart.max_attempts: must be from 1 to 100: for no restarts use condition = \"none\"",
        ),
        (
            json!({"window_ms": 5000}),
            "restart.window_ms: is 5000, but has no effect without max_attempts: set max_attempts, or omit \
             window_ms",
        ),
        (
            json!({"window_ms": 10_000, "max_attempts": 3, "delay_ms": 5000}),
            "restart.window_ms: is 10000, so \
          max_attempts = 3 would never be reached with delay_ms = 5000: must be more than 10000, or 0 to count all \
          restarts",
        ),
        (
            json!({"window_ms": 4_000, "max_attempts": 1, "delay_ms": 4000}),
            "restart.window_ms: is 4000, so \
          max_attempts = 1 would never be reached with delay_ms = 4000: must be more than 4000, or 0 to count all \
          restarts",
        ),
    ] {
        assert_eq!(bad_lrp(web_with("restart", restart)), [problem]);
    }
}

#[test]
fn omitted_policy_fields_have_defaults_and_rollback_pauses() {
    assert_eq!(spec::lrp(web()).unwrap().policies, Policies::default());
    let some = json!({"parallelism": "25%", "max_failure_ratio": 0.5});
    let policies = spec::lrp(web_with("update", some.clone())).unwrap().policies;
    let update = UpdatePolicy {
        parallelism: Parallelism::Percent(25),
        max_failure_ratio: Ratio::try_from(0.5).unwrap(),
        ..UpdatePolicy::default_update()
    };
    assert_eq!(policies, Policies { update, ..Policies::default() });
    let rollback = spec::lrp(web_with("rollback", some)).unwrap().policies.rollback;
    assert_eq!(rollback.failure_action, FailureAction::Pause);
}

#[test]
fn definition_id_defaults_to_content_hash() {
    let named = |memory: u64, id: Option<&str>| {
        let mut body = json!({"process_guid": "web", "definition": web()["action"]});
        body["definition"] = json!({"action": web()["action"], "memory_mb": memory});
        if let Some(id) = id {
            body["definition_id"] = json!(id);
        }
        let message = json!({"body": body}).to_string();
        let ClientCommand::LrpUpdate { definition, update, .. } =
            parse_command("lrp", "update", &message).unwrap()
        else {
            panic!("{message}")
        };
        assert_eq!(update, schemas::definition::DesiredLrpUpdate::default());
        definition.unwrap().0.to_string()
    };
    assert_eq!(named(1, None), named(1, None));
    assert_ne!(named(1, None), named(2, None));
    assert_eq!(named(1, Some("v2")), "v2");
}

#[test]
fn duplicate_values_are_refused() {
    let tags = json!(["a", "b", "a"]);
    assert_eq!(bad_lrp(web_with("placement_tags", tags)), ["placement_tags[2]: is given twice"]);
    assert_eq!(bad_lrp(web_with("ports", json!([1, 2, 1]))), ["ports[2]: 1 is given twice"]);
    let env = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
    assert_eq!(bad_lrp(web_with("env", env)), ["env[1].name: A is given twice"]);
    let mut both = web_with("env", json!({"A": "1"}));
    both["environment_variables"] = json!([]);
    assert_eq!(bad_lrp(both), ["env: is the short name of environment_variables: set only one of them"]);
}

#[test]
fn environment_parses_from_list_and_object() {
    let list = json!([{"name": "A", "value": "1"}, {"name": "B", "value": ""}]);
    let of = |value| spec::lrp(value).unwrap().definition.environment_variables.clone();
    let as_list = of(web_with("environment_variables", list));
    assert_eq!(as_list, of(web_with("env", json!({"A": "1", "B": ""}))));
    assert_eq!(as_list[0].value.plain(), Some("1"));
    assert_eq!(
        bad_lrp(web_with("env", json!({"A=B": "1", "": "2"}))),
        ["env: must not be blank or contain = or NUL"]
    );
}

#[test]
fn nul_is_refused_in_every_field() {
    let mut value = web_with("annotation", json!("a\0"));
    value["routes"] = json!({"r": [{"x": "\0"}]});
    value["action"]["run"]["args"] = json!(["ok", "\0"]);
    let mut problems = bad_lrp(value);
    problems.sort();
    assert_eq!(
        problems,
        [
            "action.run.args[1]: must not contain NUL",
            "annotation: must not contain NUL",
            "routes.r[0].x: must not contain NUL"
        ]
    );
    let command = json!({"body": {"process_guid": "web", "annotation": "a\0"}}).to_string();
    let refusal = client_command("lrp", "update", &domain("apps"), command.as_bytes()).unwrap_err();
    assert!(refusal.to_string().contains("body.annotation: must not contain NUL"), "{refusal}");
}

/// Returns a program inside nested `try` actions. `depth` counts all levels, including the program.
fn nested(depth: usize) -> Value {
    (1..depth).fold(json!({"run": {"path": "a"}}), |inner, _| json!({"try": {"action": inner}}))
}

#[test]
fn action_tree_beyond_depth_or_size_is_refused() {
    spec::lrp(web_with("action", nested(limits::ACTION_DEPTH))).unwrap();
    let deep = bad_lrp(web_with("action", nested(limits::ACTION_DEPTH + 1)));
    assert!(deep[0].ends_with("is nested deeper than 16 actions"), "{deep:?}");
    assert_eq!(bad_lrp(web_with("action", nested(1000))), ["message: is nested deeper than 64"]);
    let wide = |members| json!({"serial": {"actions": vec![json!({"run": {"path": "a"}}); members]}});
    spec::lrp(web_with("action", wide(limits::ACTION_NODES - 1))).unwrap();
    assert_eq!(
        bad_lrp(web_with("action", wide(limits::ACTION_NODES))),
        ["action: has more than 256 actions"]
    );
    let in_routes = (0..1000).fold(json!(1), |inner, _| json!([inner]));
    assert_eq!(bad_lrp(web_with("routes", in_routes)), ["message: is nested deeper than 64"]);
}

#[test]
fn action_tree_outside_spec_is_validated() {
    let faults = |tree: Value| serde_json::from_value::<Action>(tree).unwrap().faults("action");
    let fault = |path: &str, what: &str| vec![(path.to_owned(), what.to_owned())];
    let wide = |members| json!({"serial": {"actions": vec![json!({"run": {"path": "a"}}); members]}});
    assert_eq!(faults(wide(limits::ACTION_NODES - 1)), vec![]);
    assert_eq!(faults(wide(limits::ACTION_NODES)), fault("action", "has 257 nodes, more than 256"));
    for group in ["parallel", "serial", "codependent"] {
        let path = format!("action.{group}.actions");
        let empty = json!({group: {"actions": []}});
        assert_eq!(faults(empty), fault(&path, "must contain at least one action"));
    }
    let unnamed = || json!({"run": {"path": ""}});
    let below = [
        ("try", json!({"try": {"action": unnamed()}})),
        ("timeout", json!({"timeout": {"action": unnamed(), "timeout_ms": 5}})),
        (
            "emit_progress",
            json!({"emit_progress": {"action": unnamed(), "start_message": "", "success_message": "",
            "failure_message_prefix": ""}}),
        ),
    ];
    for (word, tree) in below {
        let path = format!("action.{word}.action.run.path");
        assert_eq!(faults(tree), fault(&path, "must name a program"));
    }
}

fn job_with(name: &str, value: Value) -> Value {
    let mut job = json!({"task_guid": "job", "domain": "apps", "action": {"run": {"path": "x"}}});
    job[name] = value;
    job
}

#[test]
fn task_fields_are_validated() {
    let queued = spec::task(job_with("placement", json!({"queue": {"deadline_ms": 5}}))).unwrap();
    assert_eq!(queued.definition.placement, Placement::Queue { deadline_ms: 5 });
    let good = [
        ("placement", json!("fail")),
        ("result_file", json!("out/result")),
        ("result_file", json!("..out")),
        ("completion_callback_url", json!("http://host:80/path?x#y")),
    ];
    for (name, value) in good {
        spec::task(job_with(name, value)).unwrap();
    }
    let bad = [
        ("placement", json!("wait")),
        ("placement", json!({"queue": {}})),
        ("placement", json!({"queue": {"deadline_ms": 0}})),
        ("placement", json!({"queue": {"deadline_ms": 1}, "fail": {}})),
        ("result_file", json!("/etc/passwd")),
        ("result_file", json!("a/../../b")),
        ("result_file", json!("..")),
        ("completion_callback_url", json!("ftp://host")),
        ("completion_callback_url", json!("http://")),
        ("completion_callback_url", json!("http://a b")),
        ("completion_callback_url", json!({"secret": "ftp://host"})),
        ("completion_callback_url", json!({"secret_file": "url"})),
        ("instances", json!(1)),
        ("monitor", json!({"run": {"path": "x"}})),
    ];
    for (name, value) in bad {
        let problems = bad_fields(&spec::task(job_with(name, value)).unwrap_err());
        assert!(problems.len() == 1 && problems[0].starts_with(name), "{problems:?}");
    }
}

#[test]
fn document_holds_single_item_or_lists() {
    assert_eq!(spec::document(web()).unwrap(), [Item::Lrp(Box::new(spec::lrp(web()).unwrap()))]);
    let run = json!({"run": {"path": "x"}});
    let items = spec::document(json!({
        "domain": "apps",
        "lrp": [{"process_guid": "a", "action": run}, {"process_guid": "b", "domain": "own", "action": run}],
        "task": {"task_guid": "a", "action": run},
    }));
    let domains = items.unwrap().into_iter().map(|item| match item {
        Item::Lrp(lrp) => lrp.domain,
        Item::Task(task) => task.domain,
        Item::Periodic(periodic) => periodic.domain,
        Item::Parameterised(desired) => desired.domain,
        Item::Domain { domain, .. } => domain,
    });
    assert_eq!(domains.collect::<Vec<_>>(), [domain("apps"), domain("own"), domain("apps")]);
    let fresh = spec::document(json!({"domain": [{"domain": "a"}, {"domain": "b", "ttl_ms": 0}]})).unwrap();
    let expected = [(domain("a"), None), (domain("b"), Some(0))];
    assert_eq!(fresh, expected.map(|(domain, ttl_ms)| Item::Domain { domain, ttl_ms }));
}

#[test]
fn bad_document_is_refused_with_field_paths() {
    let bad = |value| bad_fields(&spec::document(value).unwrap_err());
    let run = json!({"run": {"path": "x"}});
    assert_eq!(
        bad(json!({
            "domain": "a b",
            "lrp": [{"process_guid": "a", "action": {"run": {}}}, 7],
            "task": [{"domain": "c", "action": run}],
            "lrps": [],
        })),
        [
            "domain: \"a b\" is not a valid domain: use 1 to 128 of A-Z a-z 0-9 _ -",
            "lrps: is unknown: did you mean lrp?",
            "lrp[0].action.run.path: is missing",
            "lrp[1]: must be an object, not a number",
            "task[0].task_guid: is missing",
        ]
    );
    let twice = json!([{"process_guid": "a", "action": run}, {"process_guid": "a", "action": run}]);
    assert_eq!(bad(json!({"domain": "d", "lrp": twice})), ["lrp: a is given twice"]);
    assert!(bad(json!({}))[0].starts_with("message: defines nothing: expected process_guid"));
    assert_eq!(bad(json!([])), ["message: must be an object, not a list"]);
    assert_eq!(bad(json!({"process_guid": "a", "task_guid": "b"})).len(), 3);
}

fn parse_command(noun: &str, verb: &str, body: impl AsRef<[u8]>) -> Result<ClientCommand, Refusal> {
    client_command(noun, verb, &domain("apps"), body.as_ref()).map(|(_, command)| command)
}

#[test]
fn message_parses_into_envelope_and_body() {
    let body = json!({
        "envelope": {
            "request_id": "r1", "timeout_ms": 7, "expect_version": 3, "if_position": 41, "reason": "why",
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        },
        "body": {"process_guid": "web", "instances": 17, "routes": {"r": [{"port": 8080}]}, "annotation": ""},
    });
    let (envelope, command) =
        client_command("lrp", "update", &domain("apps"), body.to_string().as_bytes()).unwrap();
    assert_eq!(envelope.request_id.unwrap().as_str(), "r1");
    assert_eq!((envelope.timeout_ms, envelope.expect_version), (Some(7), Some(3)));
    assert_eq!(envelope.if_position.unwrap().0, 41);
    let ClientCommand::LrpUpdate { update, .. } = command else { panic!("{command:?}") };
    assert_eq!((update.instances, update.annotation.as_deref()), (Some(17), Some("")));
    assert_eq!(update.routes.unwrap()["r"], r#"[{"port":8080}]"#);
}

#[test]
fn command_bodies_parse() {
    let good = [
        ("lrp", "remove", r#"{"body": {"process_guid": "a"}}"#),
        ("lrp", "retire", r#"{"envelope": null, "body": {"process_guid": "a", "index": 2}}"#),
        ("lrp", "retire", r#"{"body": {"process_guid": "a", "index": 2, "definition_id": "v2"}}"#),
        ("lrp", "activate", r#"{"body": {"process_guid": "a", "definition_id": "v2"}}"#),
        ("lrp", "restart", r#"{"body": {"process_guid": "a"}}"#),
        ("lrp", "pause", r#"{"body": {"process_guid": "a"}}"#),
        ("lrp", "resume", r#"{"body": {"process_guid": "a"}}"#),
        ("lrp", "rollback", r#"{"body": {"process_guid": "a"}}"#),
        ("task", "cancel", r#"{"envelope": {}, "body": {"task_guid": "a"}}"#),
        ("task", "resolve", r#"{"body": {"task_guid": "a"}}"#),
        ("domain", "upsert", r#"{"body": {"domain": "apps"}}"#),
        ("domain", "upsert", r#"{"body": {"domain": "apps", "ttl_ms": 120000}}"#),
    ];
    for (noun, verb, body) in good {
        let command = parse_command(noun, verb, body).unwrap();
        assert_eq!(command.noun_and_verb(), (noun, verb));
    }
}

#[test]
fn bad_command_body_is_refused_by_field() {
    let bad = [
        ("lrp", "retire", r#"{"body": {"process_guid": "a"}}"#, "body.index: is missing"),
        ("lrp", "activate", r#"{"body": {"process_guid": "a"}}"#, "body.definition_id: is missing"),
        ("lrp", "restart", r#"{"body": {"process_guid": "a", "index": 1}}"#, "body.index: is unknown"),
        ("lrp", "pause", r#"{"body": {}}"#, "body.process_guid: is missing"),
        (
            "lrp",
            "update",
            r#"{"body": {"process_guid": "a", "definition_id": "v2"}}"#,
            "body.definition_id: requires a definition: set it too, or activate an existing one",
        ),
        (
            "lrp",
            "update",
            r#"{"body": {"process_guid": "a", "definition": {"action": {"run": {"path": "x"}}, "memory": 1}}}"#,
            "body.definition.memory: is unknown: did you mean memory_mb?",
        ),
        (
            "lrp",
            "update",
            r#"{"body": {"process_guid": "a", "policies": {"update": {"parallelism": "0%"}}}}"#,
            "body.policies.update.parallelism: must be a number of indices, or a percentage from \"1%\" to \"100%\"",
        ),
        (
            "lrp",
            "update",
            r#"{"body": {"process_guid": "a", "policies": {"updates": {}}}}"#,
            "body.policies.updates: is unknown: did you mean update?",
        ),
        ("lrp", "remove", r#"{"body": {"process_guid": "a", "x": 1}}"#, "body.x: is unknown"),
        ("lrp", "remove", r#"{"process_guid": "a"}"#, "body: is missing"),
        ("lrp", "remove", r#"{"body": 1}"#, "body: must be an object, not a number"),
        (
            "task",
            "cancel",
            r#"{"envelope": {"request": "a"}, "body": {"task_guid": "a"}}"#,
            "envelope.request: is unknown: did you mean request_id?",
        ),
        (
            "task",
            "cancel",
            r#"{"envelope": {"traceparent": "00-x"}, "body": {"task_guid": "a"}}"#,
            "envelope.traceparent: must be a W3C traceparent",
        ),
        ("lrp", "desires", "{}", "lrp.desires: is not a command: did you mean lrp.desire?"),
        (
            "",
            "",
            "{}",
            ".: is not a command: use one of lrp.desire, lrp.update, lrp.activate, lrp.restart, lrp.pause, \
            lrp.resume, lrp.rollback, lrp.remove, lrp.retire, lrp.retry, instance.exec, task.desire, task.cancel, task.resolve, task.retry, \
            periodic.desire, periodic.update, periodic.pause, periodic.resume, periodic.launch, periodic.remove, \
            parameterised.desire, parameterised.update, parameterised.dispatch, parameterised.withdraw, parameterised.remove, domain.upsert",
        ),
    ];
    for (noun, verb, body, problem) in bad {
        assert!(
            bad_fields(&parse_command(noun, verb, body).unwrap_err()).contains(&problem.to_owned()),
            "{problem}"
        );
    }
}

#[test]
fn body_for_other_domain_is_forbidden() {
    let body = json!({"body": spec::to_json(&spec::lrp(web()).unwrap())}).to_string();
    parse_command("lrp", "desire", &body).unwrap();
    let other = client_command("lrp", "desire", &domain("other"), body.as_bytes());
    assert_eq!(other.unwrap_err().code, Code::Forbidden);
    let upsert = parse_command("domain", "upsert", r#"{"body": {"domain": "other"}}"#);
    assert_eq!(upsert.unwrap_err().code, Code::Forbidden);
}

#[test]
fn malformed_message_is_refused() {
    let refused = |body: &[u8], why: &str| {
        let problems = bad_fields(&parse_command("lrp", "remove", body).unwrap_err());
        assert!(problems.iter().any(|problem| problem.contains(why)), "{why}: {problems:?}");
    };
    refused(b"", "is not JSON");
    refused(b"garbage", "is not JSON");
    refused(b"\xff\xfe", "is not JSON");
    refused(b"null", "message: must be an object, not null");
    refused(br#"{"body": {"process_guid": "a"}} x"#, "trailing characters");
    refused(br#"{"body": {"process_guid": "a", "process_guid": "b"}}"#, "body.process_guid: is given twice");
    refused(br#"{"body": {"process_guid": "a"}, "body": {}}"#, "body: is given twice");
    refused(b"[".repeat(1000).as_slice(), "is nested deeper than 64");
    refused(br#"{"body": 1e999}"#, "is not JSON");
    let whole = br#"{"body": {"process_guid": "a"}}"#;
    for length in 0..whole.len() {
        refused(&whole[..length], "is not JSON");
    }
}

#[test]
fn duplicate_nested_key_is_refused() {
    let body =
        br#"{"body": {"process_guid": "a", "domain": "apps", "routes": {"r": [0, {"x": 1, "x": 2}]}}}"#;
    let problems = bad_fields(&parse_command("lrp", "desire", body).unwrap_err());
    assert_eq!(problems, ["body.routes.r[1].x: is given twice", "body.action: is missing"]);
}

#[test]
fn oversized_message_is_refused_without_parsing() {
    let annotation = "x".repeat(10 * 1024 * 1024);
    let body = format!(r#"{{"body": {{"process_guid": "a", "annotation": "{annotation}"}}}}"#);
    let refusal = parse_command("lrp", "update", body).unwrap_err();
    assert!(refusal.to_string().contains("bytes, more than 1048576"), "{refusal}");
    assert!(bad_lrp(web_with("annotation", annotation.into())).len() <= 2);
}

#[test]
fn refusal_of_many_fields_is_capped() {
    let many: Value =
        (0..50_000).map(|at| (format!("f{at}"), json!(1))).collect::<serde_json::Map<_, _>>().into();
    let refusal = spec::lrp(many).unwrap_err();
    assert!(refusal.fields.len() <= 101 && refusal.message.len() <= limits::REASON_BYTES);
}

proptest! {
    #![proptest_config(crate::strategies::cases(200))]

    #[test]
    fn lrp_spec_round_trips(lrp in any_lrp()) {
        let written = spec::to_json(&lrp);
        prop_assert_eq!(spec::lrp(written.clone()).map_err(|refusal| refusal.to_string()), Ok(lrp.clone()));
        let document = spec::document(written).map_err(|refusal| refusal.to_string());
        prop_assert_eq!(document, Ok(vec![Item::Lrp(Box::new(lrp.clone()))]));
        // An accepted spec contains an action without faults.
        prop_assert!(lrp.definition.action.faults("action").is_empty());
    }

    #[test]
    fn task_spec_round_trips(task in any_task()) {
        let written = spec::task_to_json(&task);
        prop_assert_eq!(spec::task(written).map_err(|refusal| refusal.to_string()), Ok(task));
    }

    #[test]
    fn command_round_trips(
        lrp in any_lrp(), task in any_task(), update in any_update(), name in any_name(), index: u32,
        ttl_ms in proptest::option::of(0..=limits::DURATION_MS),
    ) {
        let process_guid = lrp.process_guid.clone();
        let task_guid = task.task_guid.clone();
        let definition_id = lrp.definition_id.clone();
        let definition = Some((definition_id.clone(), lrp.definition.clone()));
        let evaluation = schemas::names::EvaluationId(uuid::Uuid::from_u128(index.into()));
        let commands = [
            ClientCommand::LrpRemove { process_guid: process_guid.clone() },
            ClientCommand::LrpRetire { process_guid: process_guid.clone(), index, definition_id: Some(lrp.definition_id.clone()) },
            ClientCommand::LrpRetire { process_guid: process_guid.clone(), index, definition_id: None },
            ClientCommand::InstanceExec { process_guid: process_guid.clone(), index, definition_id: None, exec: exec() },
            ClientCommand::InstanceExec { process_guid: process_guid.clone(), index, definition_id: Some(lrp.definition_id.clone()), exec: Exec { path: "env".into(), ..Exec::default() } },
            ClientCommand::LrpUpdate { process_guid: process_guid.clone(), update: update.clone(), definition },
            ClientCommand::LrpUpdate { process_guid: process_guid.clone(), update, definition: None },
            ClientCommand::LrpActivate { process_guid: process_guid.clone(), definition_id },
            ClientCommand::LrpRestart { process_guid: process_guid.clone(), purpose: Purpose::Restart },
            ClientCommand::LrpRestart { process_guid: process_guid.clone(), purpose: Purpose::Rebalance },
            ClientCommand::LrpSteer { process_guid: process_guid.clone(), steer: RolloutControl::Pause },
            ClientCommand::LrpSteer { process_guid: process_guid.clone(), steer: RolloutControl::Resume },
            ClientCommand::LrpRetry { process_guid: process_guid.clone(), evaluation },
            ClientCommand::LrpSteer { process_guid, steer: RolloutControl::RollBack },
            ClientCommand::LrpDesire(Box::new(lrp)),
            ClientCommand::TaskCancel { task_guid: task_guid.clone() },
            ClientCommand::TaskRetry { task_guid: task_guid.clone(), evaluation },
            ClientCommand::TaskResolve { task_guid },
            ClientCommand::TaskDesire(Box::new(task)),
            ClientCommand::DomainUpsert { domain: domain(&name), ttl_ms },
        ];
        for command in commands {
            let (noun, verb) = command.noun_and_verb();
            let body = json!({"body": command.body()}).to_string();
            let own = command.domain().cloned().unwrap_or(domain("apps"));
            let read = client_command(noun, verb, &own, body.as_bytes());
            prop_assert_eq!(read.map(|(_, command)| command).map_err(|refusal| refusal.to_string()), Ok(command));
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(mut body in any_lrp().prop_map(|lrp| {
        json!({"body": spec::to_json(&lrp)}).to_string().into_bytes()
    }), at: prop::sample::Index, byte: u8) {
        let at = at.index(body.len());
        body[at] = byte;
        drop(parse_command("lrp", "desire", &body));
        drop(parse_command("task", "desire", &body[..at]));
    }
}

#[test]
fn invalid_exec_request_is_refused() {
    let ask = |exec: Value| {
        let message = json!({"body": {"process_guid": "a", "index": 0, "exec": exec}}).to_string();
        client_command("instance", "exec", &domain("apps"), message.as_bytes())
    };
    let bytes = |bytes: usize| ask(json!({"path": "sh", "args": ["x".repeat(bytes)]}));
    assert!(bytes(limits::EXEC_BYTES - "sh".len() - 1).is_ok());
    let size = json!({"rows": 0, "columns": 80});
    let bad = [
        (ask(json!({"path": ""})), "body.exec.path: must name a program"),
        (ask(json!({"path": "sh", "args": ["a\0b"]})), "body.exec.args[0]: must not contain NUL"),
        (
            ask(json!({"path": "sh", "terminal": {"kind": "x y", "size": size}})),
            "body.exec.terminal.kind: must be a terminal type such as xterm, in printable ASCII",
        ),
        (
            bytes(limits::EXEC_BYTES - "sh".len()),
            "body.exec: has 8193 bytes of path and arguments, more than 8192: pass the rest on \
             standard input",
        ),
    ];
    for (answer, problem) in bad {
        assert!(bad_fields(&answer.unwrap_err()).contains(&problem.to_owned()), "{problem}");
    }
}
