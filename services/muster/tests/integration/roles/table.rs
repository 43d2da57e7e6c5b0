//! What each role may and must not do, as the server says it.

use std::collections::BTreeSet;

use access::Role;
use access::probes::{Probe, everybody, probes};

use crate::support::eventually;
use crate::support::place::so;
use crate::support::plain::Plain;
use crate::support::users::Users;

/// Adds every role that the folder doesn't begin with, and waits until the server knows the last of them.
pub(super) fn everybody_is_added(users: &Users) {
    let listed = users.nobody().json(&format!("auth list {}", users.folder.display()));
    let known: BTreeSet<&str> =
        listed.as_array().unwrap().iter().map(|row| row["role"].as_str().unwrap()).collect();
    let roles = everybody();
    let missing = roles.iter().filter(|role| !known.contains(role.to_string().as_str()));
    missing.for_each(|role| users.add(&role.to_string()));
    let last = roles.last().unwrap().usual_name();
    eventually("the server knows everybody", || {
        so(users.plain(&last, "").complaints().is_some(), || format!("{last} is not let in"))
    });
}

/// Who has no certificate of the authority, or is no user, is not talked to.
pub(super) fn strangers_are_not_let_in(users: &Users) {
    assert!(!users.lets_in(None), "without a certificate");
    assert!(!users.lets_in(Some("rep-c1")), "with a certificate, and no nkey");
    let url = users.server.url();
    let trusted = users.folder.join("ca.crt").display().to_string();
    for variables in
        [vec![("MUSTER_NATS_URL", &url)], vec![("MUSTER_NATS_URL", &url), ("MUSTER_NATS_CA", &trusted)]]
    {
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
        let said = crate::support::Muster::with_all(variables).run(&["cluster", "show"]);
        assert_eq!(said.code, 5, "{said:?}");
    }
}

/// Tries everything of the table as each role.
pub(super) fn the_server_holds_to_the_table(users: &Users) {
    let mut tried = 0;
    for role in everybody() {
        let all = probes(&role);
        let mut plain = users.plain(&role.usual_name(), "");
        for (wanted, probes) in [(true, &all.may), (false, &all.may_not)] {
            let said = attempt(&mut plain, &role, probes);
            for probe in probes {
                let lets = !said.contains(&refusal(probe));
                assert_eq!(lets, wanted, "{role}: {probe:?}: {said:?}");
                tried += 1;
            }
        }
    }
    assert!(tried > 1_000, "{tried} is few for so many roles");
    println!("           {tried} probes");
}

/// Tries all of it, and gives what the server complains about.
fn attempt(plain: &mut Plain, role: &Role, probes: &BTreeSet<Probe>) -> Vec<String> {
    for probe in probes {
        match probe {
            Probe::Publish(subject) => plain.try_publish(subject, b"{}"),
            Probe::Subscribe(pattern) => plain.subscribe(pattern),
        }
    }
    plain.complaints().unwrap_or_else(|| panic!("the server ends the connection of {role}"))
}

/// What the server says that refuses something.
fn refusal(probe: &Probe) -> String {
    let (what, subject) = match probe {
        Probe::Publish(subject) => ("Publish", subject),
        Probe::Subscribe(pattern) => ("Subscription", pattern),
    };
    format!("-ERR 'Permissions Violation for {what} to \"{subject}\"'")
}
