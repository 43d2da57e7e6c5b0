//! What each role must be able to do and must not, derived from the table: what belongs to another role and not to this one is
//! refused.

use std::collections::BTreeSet;

use schemas::names::{CellId, ClientName, Domain};
use schemas::subject::STREAM;

use crate::pattern::{covers, example};
use crate::roles::{Rights, Role};

/// Something that is tried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Probe {
    /// To publish on a subject.
    Publish(String),
    /// To subscribe to a pattern.
    Subscribe(String),
}

/// What is tried of one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probes {
    /// What the server must let through.
    pub may: BTreeSet<Probe>,
    /// What it must refuse.
    pub may_not: BTreeSet<Probe>,
}

/// A cluster with every role, and another of each that is named: another cell, another client of the domain, a client of
/// another domain.
///
/// # Panics
/// Never: the names are names.
#[must_use]
pub fn everybody() -> Vec<Role> {
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

/// What nobody may publish that isn't the server's own administrator: it changes or destroys the stream.
const DESTROYS: [&str; 7] = [
    "STREAM.UPDATE.S",
    "STREAM.DELETE.S",
    "STREAM.PURGE.S",
    "STREAM.MSG.DELETE.S",
    "STREAM.RESTORE.S",
    "STREAM.SNAPSHOT.S",
    "CONSUMER.DELETE.S.x",
];

/// What nobody may publish by any role: it is the server's, or another stream's.
const NOBODYS_TO_PUBLISH: [&str; 4] =
    ["$SYS.REQ.SERVER.PING", "$JS.EVENT.ADVISORY.x", "$JS.ACK.S.x.1.1.1.1.1", "elsewhere"];

/// What nobody may hear by any role: it is more than one role's, or the server's.
const NOBODYS_TO_HEAR: [&str; 9] = [
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

/// What is tried of a role.
#[must_use]
pub fn probes(role: &Role) -> Probes {
    let Some(own) = role.rights() else { return Probes { may: BTreeSet::new(), may_not: BTreeSet::new() } };
    let publish = |subject: &String| Probe::Publish(example(subject));
    let may = own.publishes.iter().map(publish).chain(own.subscribes.iter().cloned().map(Probe::Subscribe));
    let others = everybody().into_iter().filter(|other| other != role).filter_map(|other| other.rights());
    let others: Vec<Rights> = others.collect();
    let stream = |subject: &str| subject.replace(".S", &format!(".{STREAM}"));
    let destroys = DESTROYS.map(|question| format!("$JS.API.{}", stream(question)));
    let published = others.iter().flat_map(|other| other.publishes.iter().map(|pattern| example(pattern)));
    let published = published.chain(destroys).chain(NOBODYS_TO_PUBLISH.map(stream));
    let heard = others.iter().flat_map(|other| other.subscribes.iter().cloned());
    // What others hear is tried as they hear it, and by a subject of it: a pattern may be refused that is wider than a right.
    let heard = heard.flat_map(|pattern| [example(&pattern), pattern]);
    let heard = heard.chain(NOBODYS_TO_HEAR.map(str::to_owned));
    let covered = |rights: &[String], subject: &str| rights.iter().any(|right| covers(right, subject));
    let may_not = published
        .filter(|subject| !covered(&own.publishes, subject))
        .map(Probe::Publish)
        .chain(heard.filter(|pattern| !covered(&own.subscribes, pattern)).map(Probe::Subscribe));
    Probes { may: may.collect(), may_not: may_not.collect() }
}
