//! Validation of reply subjects: a reply may only go to an inbox of the caller's role.

use bus::{Bus, DEFAULT_INBOX_ROOT, Incoming, LogLimit, ReplyTo, truncated};
use schemas::bus::{BusSubject, InboxKind};
use schemas::caller::Caller;
use schemas::sight::ReadScope;

static FOREIGN_INBOX: LogLimit = LogLimit::new();

/// Returns the reply subject of a message if `expected` accepts it. Otherwise logs a warning and returns
/// `None`.
pub(super) fn checked_reply(incoming: &Incoming, expected: impl Fn(&ReplyTo) -> bool) -> Option<ReplyTo> {
    let reply = incoming.reply.as_ref();
    if reply.is_none_or(|reply| !expected(reply)) {
        let reply = reply.map_or("none", ReplyTo::subject);
        FOREIGN_INBOX.log(|| {
            let (subject, reply) = (truncated(&incoming.subject), truncated(reply));
            tracing::warn!(subject, reply, "refused: the reply subject is not an inbox of this role");
        });
    }
    reply.filter(|reply| expected(reply)).cloned()
}

/// Returns `true` for the inboxes of clients: `muster.inbox.client...`, or those that NATS clients choose by
/// default.
fn is_client_inbox(reply: &ReplyTo) -> bool {
    reply.is_inbox_of("client") || reply.subject().starts_with(DEFAULT_INBOX_ROOT)
}

/// Returns `true` for the inboxes of operators: `muster.inbox.operator...`. On a server without users,
/// operators use the inboxes of clients.
fn is_operator_inbox(reply: &ReplyTo) -> bool {
    is_client_inbox(reply) || reply.is_inbox_of(InboxKind::Operator.as_str())
}

/// Returns `true` for the inboxes of clients, of operators, and of services that send commands.
pub(super) fn is_command_inbox(reply: &ReplyTo) -> bool {
    is_operator_inbox(reply)
        || [InboxKind::Rep, InboxKind::Auctioneer].iter().any(|kind| reply.is_inbox_of(kind.as_str()))
}

/// Returns `true` if the reply to a query may be sent to `reply`. The reply subject has to be an inbox of the
/// caller. Callers other than the services of Muster may also use the inboxes that NATS clients choose by
/// default. If the subject of the query names no caller (`None`), only those default inboxes are accepted.
pub(super) fn is_inbox_of_caller(caller: Option<&Caller>, reply: &ReplyTo) -> bool {
    let is_plain = reply.subject().starts_with(DEFAULT_INBOX_ROOT);
    caller.map_or(is_plain, |caller| {
        reply.is_inbox_of(&caller.to_string()) || (is_plain && !caller.is_service())
    })
}

/// Returns the read scope of a caller. If the bus does not prove the identity of callers, every caller may
/// read everything. This applies to a server without permissions, to the bus within a process, and to its
/// socket.
pub(super) fn read_scope(bus: &Bus, caller: &Caller) -> ReadScope {
    if bus.proves_identity() { caller.read_scope() } else { ReadScope::Everything }
}

/// Returns `true` if the reply subject is an inbox of the caller that the request subject names.
pub(super) fn is_expected_inbox(subject: &BusSubject, reply: &ReplyTo) -> bool {
    match subject {
        BusSubject::Client(..) | BusSubject::Seal(..) | BusSubject::ExecIo(..) => is_client_inbox(reply),
        BusSubject::Operator(..) => is_operator_inbox(reply),
        BusSubject::Report(cell) | BusSubject::Attach(cell) | BusSubject::Leave(cell) => {
            reply.is_inbox_of(&format!("rep.{cell}"))
        }
        BusSubject::Auctioneer(_) => reply.is_inbox_of("auctioneer"),
        BusSubject::Query(caller, _) => is_inbox_of_caller(Some(caller), reply),
        BusSubject::ForwardedQuery(..) => reply.is_inbox_of("bbs"),
        BusSubject::Heartbeat(_)
        | BusSubject::Rep(..)
        | BusSubject::LeaderHeartbeat(_)
        | BusSubject::Elected(_)
        | BusSubject::Alive(_)
        | BusSubject::FoundingQuery
        | BusSubject::FoundingReply => false,
    }
}
