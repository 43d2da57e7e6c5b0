//! Tests of secrets in specs and commands: parsing, sealing, and redaction.

use std::sync::Arc;

use schemas::action::{Sealed, Secret};
use schemas::names::Domain;
use schemas::secret::{Binding, Owner, Purpose, contains_secret};
use schemas::spec::{self, ClientCommand, Item};
use schemas::{Code, Refusal};
use serde_json::{Value, json};

fn domain() -> Domain {
    Domain::new("apps").unwrap()
}

/// Seals a text in a form that the test can read. Unlike with a real key, the place (the binding of the
/// value) and the plaintext are visible.
fn test_sealer(place: &Binding, secret: &Secret) -> Result<Secret, String> {
    match secret {
        Secret::Plain(_) => panic!("{place:?} is not secret"),
        Secret::Open(text) => {
            let text = format!("{} {} {} {text}", place.domain, place.owner, place.purpose);
            let data = data_encoding::BASE64.encode(text.as_bytes());
            Ok(Secret::Sealed(Sealed { key: "k".into(), data }.into()))
        }
        Secret::Sealed(sealed) if sealed.key == "k" => Ok(secret.clone()),
        Secret::Sealed(sealed) => Err(format!("no key {}", sealed.key)),
    }
}

/// Returns the plaintext of a value that [`test_sealer`] sealed.
fn plaintext_of(secret: &Secret) -> String {
    let Secret::Sealed(sealed) = secret else { panic!("{secret:?} is not sealed") };
    String::from_utf8(data_encoding::BASE64.decode(sealed.data.as_bytes()).unwrap()).unwrap()
}

fn run(name: &str, secret: &str) -> Value {
    json!({"run": {"path": "x", "env": {name: {"secret": secret}}}})
}

fn web() -> Value {
    json!({
        "process_guid": "web", "domain": "apps", "env": {"A": {"secret": "1"}, "B": "plain"},
        "setup": run("S", "2"), "monitor": {"timeout": {"action": run("M", "4"), "timeout_ms": 5}},
        "action": {"parallel": {"actions": [{"run": {"path": "x"}}, run("R", "3")]}},
    })
}

fn job(url: Value) -> Value {
    json!({"task_guid": "job", "domain": "apps", "completion_callback_url": url, "action": run("R", "1")})
}

fn fields(refused: &Refusal) -> Vec<String> {
    refused.fields.iter().map(|bad| format!("{}: {}", bad.field, bad.problem)).collect()
}

#[test]
fn secret_values_parse_and_invalid_ones_are_refused() {
    let of = |value: Value| {
        let lrp = spec::lrp(json!({"process_guid": "web", "domain": "apps", "env": {"A": value},
            "action": {"run": {"path": "x"}}}));
        lrp.map(|lrp| lrp.definition.environment_variables[0].value.clone())
            .map_err(|refused| fields(&refused))
    };
    assert_eq!(of(json!({"secret": "1"})), Ok(Secret::Open("1".into())));
    let known = Sealed { key: "k-1".into(), data: "AAAA".into() };
    assert_eq!(of(json!({"sealed": known})), Ok(Secret::Sealed(known.clone().into())));
    let bad = [
        (json!({}), "env.A: must be text, or exactly one of secret and sealed"),
        (json!({"secret": "1", "sealed": known}), "env.A: must be text, or exactly one of secret and sealed"),
        (json!({"secret": 1}), "env.A.secret: must be text, not a number"),
        (json!({"secret": "1\0"}), "env: must not contain NUL"),
        (
            json!({"sealed": {"key": "k k", "data": "AAAA"}}),
            "env.A.sealed.key: must be the id of a key: letters, digits, - and _",
        ),
        (
            json!({"sealed": {"key": "k", "data": "A"}}),
            "env.A.sealed.data: must be base64 (RFC 4648, with padding)",
        ),
        (
            json!({"secret_file": "f"}),
            "env.A.secret_file: is only supported by the command line: set secret to the content of the file",
        ),
        (json!({"secrets": "1"}), "env.A.secrets: is unknown: did you mean secret?"),
    ];
    for (value, problem) in bad {
        let problems = of(value).unwrap_err();
        assert!(problems.contains(&problem.to_owned()), "{problem}: {problems:?}");
    }
}

#[test]
fn command_secrets_are_sealed_for_their_place() {
    let command = ClientCommand::LrpDesire(Box::new(spec::lrp(web()).unwrap()));
    let ClientCommand::LrpDesire(lrp) = command.sealed(&domain(), &test_sealer).unwrap() else { panic!() };
    let definition = &lrp.definition;
    assert_eq!(plaintext_of(&definition.environment_variables[0].value), "apps process web A 1");
    assert_eq!(definition.environment_variables[1].value, Secret::Plain("plain".into()));
    let text = serde_json::to_string(definition).unwrap();
    assert_eq!((text.matches("sealed").count(), text.contains("secret")), (4, false), "{text}");

    let task = |url| ClientCommand::TaskDesire(Box::new(spec::task(job(url)).unwrap()));
    for url in [json!({"secret": "http://a/b"}), json!("http://a/?token=1")] {
        let ClientCommand::TaskDesire(task) = task(url).sealed(&domain(), &test_sealer).unwrap() else {
            panic!()
        };
        let url = plaintext_of(task.definition.completion_callback_url.as_ref().unwrap());
        assert!(url.starts_with("apps task job completion_callback_url http://a/"), "{url}");
    }
    let plain = task("http://a/b".into());
    let ClientCommand::TaskDesire(plain) = plain.sealed(&domain(), &test_sealer).unwrap() else { panic!() };
    assert_eq!(plain.definition.completion_callback_url, Some(Secret::Plain("http://a/b".into())));
}

#[test]
fn unsealable_secret_is_refused_by_field() {
    let none = |_: &Binding, _: &Secret| Err("has no key".to_owned());
    let command = ClientCommand::LrpDesire(Box::new(spec::lrp(web()).unwrap()));
    let refused = command.sealed(&domain(), &none).unwrap_err();
    assert_eq!(refused.code, Code::InvalidRequest);
    let named = ["environment_variables.A", "setup.env.S", "action.env.R", "monitor.env.M"];
    assert_eq!(fields(&refused), named.map(|field| format!("{field}: has no key")));
    // A text within its own limit can be sealed, but the sealed text may make the whole spec exceed its
    // limit.
    let large = |bytes: usize| {
        let value = json!({"process_guid": "web", "domain": "apps", "env": {"A": {"secret": "x".repeat(bytes)}},
            "action": {"run": {"path": "x", "args": ["y".repeat(50_000)]}}});
        ClientCommand::LrpDesire(Box::new(spec::lrp(value).unwrap()))
    };
    let grow = |_: &Binding, secret: &Secret| match secret {
        Secret::Open(text) => {
            let data = data_encoding::BASE64.encode(&vec![0; text.len() + Sealed::OVERHEAD]);
            Ok(Secret::Sealed(Sealed { key: "k".into(), data }.into()))
        }
        Secret::Plain(_) | Secret::Sealed(_) => Ok(secret.clone()),
    };
    assert!(large(50_000).sealed(&domain(), &grow).is_ok());
    let refused = fields(&large(65_000).sealed(&domain(), &grow).unwrap_err());
    assert!(refused[0].contains("bytes without its routes, more than"), "{refused:?}");
}

#[test]
fn definition_id_derives_from_sealed_content() {
    let update = |secret: &str| {
        let body = json!({"body": {"process_guid": "web", "definition": {"env": {"A": {"secret": secret}},
            "action": {"run": {"path": "x"}}}}});
        spec::client_command("lrp", "update", &domain(), body.to_string().as_bytes()).unwrap().1
    };
    let id = |command: &ClientCommand| {
        let ClientCommand::LrpUpdate { definition: Some((id, definition)), .. } = command else {
            panic!("{command:?}")
        };
        (id.clone(), Arc::clone(definition))
    };
    let (open, _) = id(&update("1"));
    let (one, definition) = id(&update("1").sealed(&domain(), &test_sealer).unwrap());
    assert_eq!(Some(one.clone()), spec::content_id(&definition));
    assert_ne!(one, open);
    assert_eq!(id(&update("1").sealed(&domain(), &test_sealer).unwrap()).0, one, "the same again");
    assert_ne!(id(&update("2").sealed(&domain(), &test_sealer).unwrap()).0, one);
    // The digest of a repeated request also depends on the sealed secret.
    let digest = |secret| update(secret).sealed(&domain(), &test_sealer).unwrap().digest();
    assert_eq!(digest("1"), digest("1"));
    assert_ne!(digest("1"), digest("2"));
}

#[test]
fn seal_request_seals_single_spec() {
    let text = |body: Value| json!({"body": body}).to_string();
    let item = spec::to_seal(&domain(), text(json!({"task": job(json!({"secret": "http://a"}))})).as_bytes())
        .unwrap();
    assert!(item.has_open_secrets());
    let done = item.sealed(&test_sealer).unwrap();
    assert!(!done.has_open_secrets());
    assert_eq!(spec::item(spec::item_to_json(&done)), Ok(done.clone()));
    assert_eq!(done.clone().sealed(&test_sealer), Ok(done));
    let other = Domain::new("other").unwrap();
    let refused = spec::to_seal(&other, text(json!({"lrp": web()})).as_bytes()).unwrap_err();
    assert_eq!(refused.code, Code::Forbidden);
    for body in [json!({}), json!({"lrp": web(), "task": job(json!("http://a"))})] {
        let refused = spec::to_seal(&domain(), text(body).as_bytes()).unwrap_err();
        assert_eq!(
            fields(&refused),
            ["body: must contain exactly one of lrp, task, periodic and parameterised"]
        );
    }
}

#[test]
fn secret_is_not_in_debug_output() {
    let Item::Lrp(lrp) = spec::item(json!({"lrp": web()})).unwrap() else { panic!() };
    assert!(!format!("{lrp:?}").contains("\"1\""));
}

#[test]
fn secret_in_dispatch_is_refused() {
    let body = json!({"body": {"parameterised_guid": "p", "payload": {"secret": "AA=="},
        "parameters": {"a": {"secret": "1"}}}});
    let refused = spec::client_command("parameterised", "dispatch", &domain(), body.to_string().as_bytes());
    let refused = fields(&refused.unwrap_err());
    assert!(
        refused.len() == 2 && refused.iter().all(|bad| bad.contains("cannot be a secret")),
        "{refused:?}"
    );
}

#[test]
fn url_with_password_or_token_parameter_is_secret() {
    let telling = [
        "https://me:pw@host/x",
        "http://me@host",
        "http://h/?token=1",
        "http://h?a=1&API_KEY=2",
        "http://h/?X-Amz-Signature=1",
        "http://h/a?b#?auth=1",
        "http://h/?accessToken=1",
        "http://h/?a&clientSecret=1",
        "http://h/?authKey=1",
        "http://h/?jwt=1",
    ];
    let others = [
        "http://host:80/path?x#y",
        "http://h/?monkey=1",
        "http://h/a@b",
        "https://h/token/1",
        "http://h/?q=token",
        "http://h/?keyboard=1&author=2&design=3",
    ];
    assert_eq!(telling.map(contains_secret), [true; 10]);
    assert_eq!(others.map(contains_secret), [false; 6]);
}

#[test]
fn launched_task_belongs_to_owner_of_its_launcher() {
    let owner = |guid: &str| Owner::of_task(&guid.parse().unwrap()).to_string();
    assert_eq!(owner("job"), "task job");
    assert_eq!(owner("report--1795402800"), "periodic task report");
    assert_eq!(owner("report--now-1795402800"), "periodic task report");
    assert_eq!(owner("resize--dispatch-17"), "parameterised task resize");
    assert_eq!(Purpose::CallbackUrl.to_string(), "completion_callback_url");
}
