//! Specs: files of desired processes and tasks, and the commands of clients.

use schemas::bus::ClientVerb;
use schemas::names::Domain;
use schemas::spec::{client_command, document, item, item_to_json, json, to_seal};
use serde_json::{Value, json};

/// The bytes are read as a file, as what a client asks to have sealed, and as each command of a client: what is read is
/// written and read again as the same.
///
/// # Panics
/// Where that doesn't hold.
pub fn check(bytes: &[u8]) {
    let shop = Domain::new("shop").expect("it is the name of a domain");
    if let Ok(items) = json(bytes).and_then(document) {
        items.iter().for_each(|one| assert_eq!(item(item_to_json(one)).as_ref(), Ok(one)));
    }
    if let Ok(one) = to_seal(&shop, bytes) {
        assert_eq!(item(item_to_json(&one)).as_ref(), Ok(&one));
    }
    for verb in ClientVerb::ALL {
        command(verb, &shop, bytes);
    }
}

fn command(verb: ClientVerb, domain: &Domain, bytes: &[u8]) {
    let (noun, verb) = verb.noun_and_verb();
    let Ok((envelope, command)) = client_command(noun, verb, domain, bytes) else { return };
    let envelope: Value = serde_json::to_value(&envelope).expect("an envelope is plain data");
    let written = json!({"envelope": envelope, "body": command.body()}).to_string();
    let (_, again) =
        client_command(noun, verb, domain, written.as_bytes()).expect("what was written is read");
    assert_eq!(again.digest(), command.digest());
    assert_eq!(again, command);
}
