//! Whose answer may go where.

use bus::{Bus, Incoming, LogLimit, PLAIN_INBOX_ROOT, ReplyTo, brief};
use schemas::bus::{BusSubject, InboxKind};
use schemas::caller::Caller;
use schemas::sight::Sight;

static FOREIGN_INBOX: LogLimit = LogLimit::new();

/// Where the answer goes, if that is where the requester's role has its answers.
pub(super) fn reply_of(incoming: &Incoming, expected: impl Fn(&ReplyTo) -> bool) -> Option<ReplyTo> {
    let reply = incoming.reply.as_ref();
    if reply.is_none_or(|reply| !expected(reply)) {
        let reply = reply.map_or("none", ReplyTo::subject);
        FOREIGN_INBOX.log(|| {
            let (subject, reply) = (brief(&incoming.subject), brief(reply));
            tracing::warn!(subject, reply, "refused: the reply subject is not an inbox of this role");
        });
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

/// Returns `true` if the answer goes to an inbox of a client, an operator or a service that sends commands.
pub(super) fn is_commander(reply: &ReplyTo) -> bool {
    is_operator(reply)
        || [InboxKind::Rep, InboxKind::Auctioneer].iter().any(|kind| reply.is_inbox_of(kind.as_str()))
}

/// Returns `true` if the caller of a query may have its answer there. Callers that are no service of Muster may use
/// the inboxes that NATS clients choose by default. `None`: the subject names no caller.
pub(super) fn is_inbox_of_caller(caller: Option<&Caller>, reply: &ReplyTo) -> bool {
    let is_plain = reply.subject().starts_with(PLAIN_INBOX_ROOT);
    caller.map_or(is_plain, |caller| {
        reply.is_inbox_of(&caller.to_string()) || (is_plain && !caller.is_service())
    })
}

/// Returns the read scope of a caller. A server without permissions, the process itself and its socket don't restrict who
/// publishes on a subject, so everything is readable there.
pub(super) fn sight(bus: &Bus, caller: &Caller) -> Sight {
    if bus.knows_who_asks() { caller.sight() } else { Sight::Everything }
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
        BusSubject::Query(caller, _) => is_inbox_of_caller(Some(caller), reply),
        BusSubject::QueryOf(..) => reply.is_inbox_of("bbs"),
        BusSubject::Heartbeat(_)
        | BusSubject::Rep(..)
        | BusSubject::Beat(_)
        | BusSubject::Elected(_)
        | BusSubject::Alive(_)
        | BusSubject::FoundingAsked
        | BusSubject::FoundingKnown => false,
    }
}
