//! Permissions of each role, as the server enforces them.

use std::collections::BTreeSet;

use access::Role;
use access::probes::{Probe, probes, sample_roles};

use crate::support::eventually;
use crate::support::plain::PlainClient;
use crate::support::test_dir::ensure;
use crate::support::users::Users;

/// Adds every role that the folder lacks, and waits until the server accepts the last of these roles.
pub(super) fn add_all_roles(users: &Users) {
    let listed = users.anonymous().json(&format!("auth list {}", users.folder.display()));
    let known: BTreeSet<&str> =
        listed.as_array().unwrap().iter().map(|row| row["role"].as_str().unwrap()).collect();
    let roles = sample_roles();
    let missing = roles.iter().filter(|role| !known.contains(role.to_string().as_str()));
    missing.for_each(|role| users.add(&role.to_string()));
    let last = roles.last().unwrap().default_name();
    eventually("the server accepts every role", || {
        ensure(users.plain(&last, "").errors().is_some(), || format!("{last} is rejected"))
    });
}

/// Checks that the server rejects a client without a certificate of the authority, and a client without the
/// nkey of a user.
pub(super) fn assert_strangers_are_rejected(users: &Users) {
    assert!(!users.accepts_without_nkey(None), "without a certificate");
    assert!(!users.accepts_without_nkey(Some("rep-c1")), "with a certificate, without an nkey");
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

/// Tries all probes of the table as each role.
pub(super) fn assert_server_enforces_table(users: &Users) {
    let mut tried = 0;
    for role in sample_roles() {
        let all = probes(&role);
        let mut plain = users.plain(&role.default_name(), "");
        for (wanted, probes) in [(true, &all.allowed), (false, &all.denied)] {
            let said = attempt(&mut plain, &role, probes);
            for probe in probes {
                let lets = !said.contains(&refusal(probe));
                assert_eq!(lets, wanted, "{role}: {probe:?}: {said:?}");
                tried += 1;
            }
        }
    }
    assert!(tried > 1_000, "only {tried} probes for all roles");
    println!("           {tried} probes");
}

/// Tries these probes and returns the errors of the server.
fn attempt(plain: &mut PlainClient, role: &Role, probes: &BTreeSet<Probe>) -> Vec<String> {
    for probe in probes {
        match probe {
            Probe::Publish(subject) => plain.try_publish(subject, b"{}"),
            Probe::Subscribe(pattern) => plain.subscribe(pattern),
        }
    }
    plain.errors().unwrap_or_else(|| panic!("the server closed the connection of {role}"))
}

/// Returns the server's error for a refused probe.
fn refusal(probe: &Probe) -> String {
    let (what, subject) = match probe {
        Probe::Publish(subject) => ("Publish", subject),
        Probe::Subscribe(pattern) => ("Subscription", pattern),
    };
    format!("-ERR 'Permissions Violation for {what} to \"{subject}\"'")
}
