//! Specifications: files of desired processes and tasks, and commands of clients.

use schemas::names::Domain;
use schemas::spec::{client_command, document, item, item_to_json, json, to_seal};
use schemas::verb::ClientVerb;
use serde_json::{Value, json};

/// Reads the bytes as a file, as a specification whose secrets are sealed, and as each command of a client.
/// Checks that encoding and decoding do not change the result.
///
/// # Panics
/// Panics if the result changes.
pub fn check(bytes: &[u8]) {
    let shop = Domain::new("shop").expect("a valid domain");
    if let Ok(items) = json(bytes).and_then(document) {
        items.iter().for_each(|one| assert_eq!(item(item_to_json(one)).as_ref(), Ok(one)));
    }
    if let Ok(one) = to_seal(&shop, bytes) {
        assert_eq!(item(item_to_json(&one)).as_ref(), Ok(&one));
    }
    for verb in ClientVerb::ALL.iter().copied() {
        command(verb, &shop, bytes);
    }
}

fn command(verb: ClientVerb, domain: &Domain, bytes: &[u8]) {
    let (noun, verb) = verb.noun_and_verb();
    let Ok((envelope, command)) = client_command(noun, verb, domain, bytes) else { return };
    let envelope: Value = serde_json::to_value(&envelope).expect("an envelope can be serialized");
    let written = json!({"envelope": envelope, "body": command.body()}).to_string();
    let (_, again) =
        client_command(noun, verb, domain, written.as_bytes()).expect("an encoded command can be decoded");
    assert_eq!(again.digest(), command.digest());
    assert_eq!(again, command);
}
