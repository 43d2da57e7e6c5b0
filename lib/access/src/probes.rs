//! Permission probes for each role, derived from the table of roles. The server must refuse an operation if
//! the role has no right to it, even if another role has.

use std::collections::BTreeSet;

use schemas::names::{CellId, ClientName, Domain};
use schemas::subject::STREAM;

use crate::pattern::{covers, example};
use crate::roles::{Rights, Role};

/// An operation that a test attempts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Probe {
    /// Publish on a subject.
    Publish(String),
    /// Subscribe to a pattern.
    Subscribe(String),
}

/// Operations that a test attempts as one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probes {
    /// Operations that the server must allow.
    pub allowed: BTreeSet<Probe>,
    /// Operations that the server must refuse.
    pub denied: BTreeSet<Probe>,
}

/// Returns the roles of a sample cluster. The sample contains every role with limited rights. Roles with a
/// name appear more than once: two cells, two clients of one domain, and a client of another domain.
///
/// # Panics
/// Never, because all names are valid.
#[must_use]
pub fn sample_roles() -> Vec<Role> {
    let cell = |name| Role::Rep(CellId::new(name).expect("a name"));
    let named = |name| ClientName::new(name).expect("a name");
    let client = |domain, name| Role::Client(Domain::new(domain).expect("a name"), named(name));
    vec![
        Role::BbsWriter,
        Role::Bbs,
        Role::Auctioneer,
        cell("c1"),
        cell("c2"),
        client("d", "n"),
        client("d", "other"),
        client("other", "n"),
        Role::Projector,
        Role::Auditor(named("a")),
        Role::Auditor(named("b")),
        Role::Operator(named("o")),
        Role::Operator(named("p")),
        Role::Gateway(named("g")),
        Role::Gateway(named("h")),
        Role::Admin(named("s")),
    ]
}

/// JetStream API requests that change or destroy the stream. Only [`Role::Admin`] may send them.
const DESTRUCTIVE_REQUESTS: [&str; 7] = [
    "STREAM.UPDATE.{stream}",
    "STREAM.DELETE.{stream}",
    "STREAM.PURGE.{stream}",
    "STREAM.MSG.DELETE.{stream}",
    "STREAM.RESTORE.{stream}",
    "STREAM.SNAPSHOT.{stream}",
    "CONSUMER.DELETE.{stream}.x",
];

/// Subjects that no role may publish on, because they belong to the server or to another stream.
const FORBIDDEN_PUBLISHES: [&str; 4] =
    ["$SYS.REQ.SERVER.PING", "$JS.EVENT.ADVISORY.x", "$JS.ACK.{stream}.x.1.1.1.1.1", "elsewhere"];

/// Patterns that no role may subscribe to, because they span several roles or belong to the server.
const FORBIDDEN_SUBSCRIPTIONS: [&str; 9] = [
    ">",
    "muster.>",
    "muster.event.>",
    "muster.inbox.>",
    "muster.inbox.client.>",
    "muster.inbox.operator.>",
    "muster.cell.>",
    "_INBOX.>",
    "$JS.>",
];

/// Returns the operations to attempt as a role. Both sets are empty for [`Role::System`], which has no
/// limits.
#[must_use]
pub fn probes(role: &Role) -> Probes {
    let Some(own) = role.rights() else {
        return Probes { allowed: BTreeSet::new(), denied: BTreeSet::new() };
    };
    let publish = |subject: &String| Probe::Publish(example(subject));
    let may = own.publishes.iter().map(publish).chain(own.subscribes.iter().cloned().map(Probe::Subscribe));
    let others = sample_roles().into_iter().filter(|other| other != role).filter_map(|other| other.rights());
    let others: Vec<Rights> = others.collect();
    let stream = |subject: &str| subject.replace("{stream}", STREAM);
    let destroys = DESTRUCTIVE_REQUESTS.map(|question| format!("$JS.API.{}", stream(question)));
    let published = others.iter().flat_map(|other| other.publishes.iter().map(|pattern| example(pattern)));
    let published = published.chain(destroys).chain(FORBIDDEN_PUBLISHES.map(stream));
    let heard = others.iter().flat_map(|other| other.subscribes.iter().cloned());
    // Probe each foreign pattern and an example subject of the pattern. A refusal of the pattern alone proves
    // little: the pattern may only be wider than a right of this role.
    let heard = heard.flat_map(|pattern| [example(&pattern), pattern]);
    let heard = heard.chain(FORBIDDEN_SUBSCRIPTIONS.map(str::to_owned));
    let covered = |rights: &[String], subject: &str| rights.iter().any(|right| covers(right, subject));
    let may_not = published
        .filter(|subject| !covered(&own.publishes, subject))
        .map(Probe::Publish)
        .chain(heard.filter(|pattern| !covered(&own.subscribes, pattern)).map(Probe::Subscribe));
    Probes { allowed: may.collect(), denied: may_not.collect() }
}
