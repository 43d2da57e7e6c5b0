//! Read scope of environments.

use serde_json::{Value, json};

use super::Stage;
use crate::support::eventually;
use crate::support::plain::PlainClient;
use crate::support::test_dir::ensure;

/// Marker in every value that is not public.
const CANARY: &str = "canary-4711";

/// Creates one object of each kind that has an environment, with the canary in the environment.
fn desire(client: &mut PlainClient) {
    let env = json!([{"name": "NAMED", "value": CANARY}]);
    let action = json!({"run": {"path": "true", "env": env}});
    let task = json!({"domain": "d", "memory_mb": 8, "action": action, "environment_variables": env});
    let with = |name: &str, value: Value| {
        let mut spec = task.clone();
        spec[name] = value;
        spec
    };
    let mut periodic = with("periodic_guid", "seen-p".into());
    periodic["cron"] = "0 0 1 1 *".into();
    let mut called = with("task_guid", "seen-t".into());
    called["completion_callback_url"] = format!("http://127.0.0.1:9/{CANARY}").into();
    let process = json!({
        "process_guid": "seen", "domain": "d", "memory_mb": 8, "instances": 0, "environment_variables": env,
        "action": {"run": {"path": "true", "env": env}}, "monitor": {"run": {"path": "true", "env": env}},
        "setup": {"download": {"from": format!("http://127.0.0.1:9/{CANARY}"), "to": "app"}},
        "cached_dependencies": [{"from": format!("http://127.0.0.1:9/{CANARY}"), "to": "app"}],
    });
    let dispatch = json!({"parameterised_guid": "seen-m", "parameters": {"NAMED": CANARY}});
    let mut template = with("parameterised_guid", "seen-m".into());
    template["optional_parameters"] = json!(["NAMED"]);
    for (verb, body) in [
        ("lrp.desire", process),
        ("task.desire", called),
        ("periodic.desire", periodic),
        ("parameterised.desire", template),
        ("parameterised.dispatch", dispatch),
    ] {
        let answer = client.request_json(&format!("muster.client.d.n.{verb}"), &json!({"body": body}));
        assert!(answer["ok"].is_object(), "{verb}: {answer}");
    }
}

/// Sends every query that shows an environment, for the present and for a past state. Returns each answer as
/// text.
fn query_everything(plain: &mut PlainClient, root: &str, at: u64) -> Vec<(String, String)> {
    let mut questions = vec![("events.read", json!({"after": 0, "limit": 1000}))];
    for as_of in [None, Some(at.to_string())] {
        for (noun, id) in
            [("lrp", "seen"), ("task", "seen-t"), ("periodic", "seen-p"), ("parameterised", "seen-m")]
        {
            let (list, show) = match noun {
                "lrp" => ("lrp.list", "lrp.show"),
                "task" => ("task.list", "task.show"),
                "periodic" => ("periodic.list", "periodic.show"),
                _ => ("parameterised.list", "parameterised.show"),
            };
            questions.push((list, json!({"definitions": true, "as_of": as_of})));
            questions.push((show, json!({"id": id, "as_of": as_of})));
        }
    }
    let mut answers = vec![];
    for (verb, question) in questions {
        let answer = plain.request_json(&format!("muster.query.{root}.{verb}"), &question);
        assert!(!answer["ok"].is_null(), "{verb} {question}: {answer}");
        answers.push((format!("{verb} {question}"), answer.to_string()));
    }
    answers
}

/// Checks the read scope. Clients may read the environment of their own domain; operators and auditors may
/// read all environments; other clients see variable names only.
pub(super) fn assert_read_scope(stage: &Stage) {
    let users = &stage.users;
    let mut listener = users.plain("client-other-n", "muster.inbox.client.other.n.listener");
    listener.subscribe("muster.feed.>");
    assert_eq!(listener.errors(), Some(vec![]));
    let mut client = users.plain("client-d-n", "muster.inbox.client.d.n");
    desire(&mut client);
    let at = client.request_json("muster.query.client.d.n.cluster.show", &json!({}))["ok"]["position"]
        .as_u64()
        .unwrap();

    for (user, inbox, reads) in [
        ("client-d-n", "client.d.n", true),
        ("client-d-other", "client.d.other", true),
        ("operator-o", "operator.o", true),
        ("auditor-a", "auditor.a", true),
        ("client-other-n", "client.other.n", false),
    ] {
        let mut plain = users.plain(user, &format!("muster.inbox.{inbox}"));
        for (asked, answer) in query_everything(&mut plain, inbox, at) {
            assert_eq!(answer.contains(CANARY), reads, "{user}: {asked}: {answer}");
            assert!(answer.contains("NAMED"), "{user}: {asked}: {answer}");
        }
    }
    assert_loopback_callback_is_refused(&mut client);
    let shown = users.muster("client-other-n").ok("lrp show seen --domain d -o json");
    assert!(shown.out.contains("NAMED") && !shown.out.contains(CANARY), "{shown:?}");
    assert!(users.muster("operator-o").ok("lrp show seen -o json").out.contains(CANARY));
    let mut told = 0;
    while !receive_event(&mut listener, &mut told) {}
    assert!(told >= 5, "{told} events were received");
}

/// Checks that a BBS without `--callback-allow` does not call an owner on its own host, and that this refusal
/// is final.
fn assert_loopback_callback_is_refused(client: &mut PlainClient) {
    eventually("the call is refused", || {
        let row =
            client.request_json("muster.query.client.d.n.task.show", &json!({"id": "seen-t"}))["ok"]["row"]
                .clone();
        let refused = "127.0.0.1 (loopback): not allowed by --callback-allow";
        let last = &row["callback"]["last"]["refused"];
        ensure(last == refused && row["callback"]["attempts"] == 1, || row.to_string())
    });
}

/// Receives one event, which must not contain the canary. Returns `true` if the event is the last expected
/// one.
fn receive_event(listener: &mut PlainClient, told: &mut u32) -> bool {
    let message = listener.next().unwrap();
    let text = String::from_utf8_lossy(&message.payload);
    assert!(!text.contains(CANARY), "{message:?}");
    *told += u32::from(text.contains("NAMED"));
    message.subject.ends_with("seen-m.parameterised_dispatched")
}
