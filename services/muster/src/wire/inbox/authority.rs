//! Validation of reply subjects: a reply may only go to an inbox of the caller's role.

use bus::{Bus, Incoming, LogLimit, PLAIN_INBOX_ROOT, ReplyTo, brief};
use schemas::bus::{BusSubject, InboxKind};
use schemas::caller::Caller;
use schemas::sight::Sight;

static FOREIGN_INBOX: LogLimit = LogLimit::new();

/// Returns the reply subject of a message if it is an expected one. Otherwise logs a warning and returns
/// `None`.
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

/// Returns `true` for the inboxes of clients: `muster.inbox.client...`, or those that NATS clients choose by
/// default.
fn is_client(reply: &ReplyTo) -> bool {
    reply.is_inbox_of("client") || reply.subject().starts_with(PLAIN_INBOX_ROOT)
}

/// Returns `true` for the inboxes of operators: `muster.inbox.operator...`. On a server without users,
/// operators use those of clients.
fn is_operator(reply: &ReplyTo) -> bool {
    is_client(reply) || reply.is_inbox_of(InboxKind::Operator.as_str())
}

/// Returns `true` for the inboxes of clients, of operators, and of services that send commands.
pub(super) fn is_commander(reply: &ReplyTo) -> bool {
    is_operator(reply)
        || [InboxKind::Rep, InboxKind::Auctioneer].iter().any(|kind| reply.is_inbox_of(kind.as_str()))
}

/// Returns `true` if the caller of a query may receive its answer there. Callers other than the services of
/// Muster may use the inboxes that NATS clients choose by default. `None` if the subject names no caller.
pub(super) fn is_inbox_of_caller(caller: Option<&Caller>, reply: &ReplyTo) -> bool {
    let is_plain = reply.subject().starts_with(PLAIN_INBOX_ROOT);
    caller.map_or(is_plain, |caller| {
        reply.is_inbox_of(&caller.to_string()) || (is_plain && !caller.is_service())
    })
}

/// Returns the read scope of a caller. A server without permissions, the process itself and its socket do not
/// restrict who publishes on a subject, so everything is readable there.
pub(super) fn sight(bus: &Bus, caller: &Caller) -> Sight {
    if bus.knows_who_asks() { caller.sight() } else { Sight::Everything }
}

/// Returns `true` if the reply subject is an inbox of the caller that the request subject names.
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
