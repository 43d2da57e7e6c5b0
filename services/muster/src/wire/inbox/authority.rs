//! Whose answer may go where.

use bus::{Bus, INBOX_ROOT, Incoming, PLAIN_INBOX_ROOT, ReplyTo};
use schemas::bus::{BusSubject, InboxKind};
use schemas::names::Domain;
use schemas::sight::Sight;

/// Where the answer goes, if that is where the requester's role has its answers.
pub(super) fn reply_of(incoming: &Incoming, expected: impl Fn(&ReplyTo) -> bool) -> Option<ReplyTo> {
    let reply = incoming.reply.as_ref();
    if reply.is_none_or(|reply| !expected(reply)) {
        let reply = reply.map_or("none", ReplyTo::subject);
        tracing::warn!(
            subject = incoming.subject,
            reply,
            "refused: the reply subject is not an inbox of this role"
        );
    }
    reply.filter(|reply| expected(reply)).cloned()
}

/// Clients answer to `muster.inbox.client...`, or to the inboxes that NATS clients make by themselves.
fn is_client(reply: &ReplyTo) -> bool {
    reply.is_inbox_of("client") || reply.subject().starts_with(PLAIN_INBOX_ROOT)
}

/// Operators answer to `muster.inbox.operator...`; on a server that knows nobody, to what a client does.
fn is_operator(reply: &ReplyTo) -> bool {
    is_client(reply) || reply.is_inbox_of(InboxKind::Operator.as_str())
}

/// Who may ask what is true, beside clients and operators.
const READERS: [InboxKind; 4] = [InboxKind::Auditor, InboxKind::Rep, InboxKind::Auctioneer, InboxKind::Bbs];

/// Anybody may ask what is true; only where the answer goes is checked.
pub(super) fn is_reader(reply: &ReplyTo) -> bool {
    is_operator(reply) || READERS.iter().any(|kind| reply.is_inbox_of(kind.as_str()))
}

/// Whose environment somebody may read, by where the answer goes. In this process and over its socket that is its owner; and a
/// server that lets everybody in lets everybody read everything anyway.
pub(super) fn sight(bus: &Bus, reply: &ReplyTo) -> Sight {
    if !bus.knows_who_asks() {
        return Sight::Everything;
    }
    let all =
        [InboxKind::Operator, InboxKind::Auditor, InboxKind::Rep, InboxKind::Auctioneer, InboxKind::Bbs];
    if all.iter().any(|kind| reply.is_inbox_of(kind.as_str())) {
        return Sight::Everything;
    }
    let of_client = reply.subject().strip_prefix(INBOX_ROOT).and_then(|rest| rest.strip_prefix("client."));
    let domain =
        of_client.and_then(|rest| rest.split('.').next()).and_then(|domain| Domain::new(domain).ok());
    domain.map_or(Sight::Nothing, Sight::Domain)
}

/// Whether who asks on this subject has its answers there.
pub(super) fn may_ask(subject: &BusSubject, reply: &ReplyTo) -> bool {
    match subject {
        BusSubject::Client(..) | BusSubject::Seal(..) | BusSubject::Talk(..) => is_client(reply),
        BusSubject::Operator(..) => is_operator(reply),
        BusSubject::Report(cell) | BusSubject::Attach(cell) | BusSubject::Leave(cell) => {
            reply.is_inbox_of(&format!("rep.{cell}"))
        }
        BusSubject::Auctioneer(_) => reply.is_inbox_of("auctioneer"),
        BusSubject::Query(_) => is_reader(reply),
        BusSubject::QueryOf(..) => reply.is_inbox_of("bbs"),
        BusSubject::Heartbeat(_)
        | BusSubject::Rep(..)
        | BusSubject::Beat(_)
        | BusSubject::Elected(_)
        | BusSubject::Alive(_) => false,
    }
}
