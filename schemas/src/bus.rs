//! Subjects of the bus and their conversion from and to text. No other module builds or parses subjects. The
//! messages are in [`crate::message`].

use std::fmt;

use strum::VariantArray;

use crate::caller::Caller;
use crate::cluster::Role;
use crate::fields::nearest;
use crate::limits;
use crate::names::{BadName, CellId, ClientName, Domain, ServiceId};
use crate::refusal::{BadField, Refusal};
use crate::verb::{AuctioneerVerb, ClientVerb, OperatorVerb, QueryVerb, RepVerb};

/// First token of every subject of the bus and of the journal.
pub(crate) const ROOT: &str = "muster";

/// Noun and verb of the request to seal secrets. The request is not a command, because it adds no entry to
/// the log.
const SECRET: &str = "secret";
const SEAL: &str = "seal";

/// Noun and verb of a client's requests to its program in a container. The requests are not commands: only
/// the start of the program is recorded in the log.
const INSTANCE: &str = "instance";
const EXEC_IO: &str = "exec-io";

/// Token of the subjects for founding a cluster.
const FOUNDING: &str = "founding";

/// Token of the subjects of leader heartbeats.
const LEADER_HEARTBEAT: &str = "leader-heartbeat";

/// Token of the subjects of queries that one BBS forwards to another.
pub(crate) const FORWARDED_QUERY: &str = "forwarded-query";

/// Prefix of the subjects that answers are sent to.
pub const INBOX_ROOT: &str = "muster.inbox.";

/// Subject of a request or a report on the bus.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BusSubject {
    /// `muster.client.<domain>.<client>.<noun>.<verb>`: a command of a client.
    Client(Domain, ClientName, ClientVerb),
    /// `muster.client.<domain>.<client>.secret.seal`: a request to seal the secrets of a spec.
    Seal(Domain, ClientName),
    /// `muster.client.<domain>.<client>.instance.exec-io`: a request of a client to its program in a
    /// container.
    ExecIo(Domain, ClientName),
    /// `muster.operator.<operator>.<noun>.<verb>`: a command of an operator.
    Operator(ClientName, OperatorVerb),
    /// `muster.cell.<cell>.bbs.report`: reports of a rep.
    Report(CellId),
    /// `muster.cell.<cell>.bbs.attach`: a starting rep requests to represent its cell.
    Attach(CellId),
    /// `muster.cell.<cell>.bbs.leave`: a rep has evacuated its cell and leaves.
    Leave(CellId),
    /// `muster.cell.<cell>.heartbeat`: heartbeat of a rep.
    Heartbeat(CellId),
    /// `muster.cell.<cell>.rep.<verb>`: an order or a request to a rep.
    Rep(CellId, RepVerb),
    /// `muster.auctioneer.bbs.<verb>`: a report of an auctioneer to the BBS.
    Auctioneer(AuctioneerVerb),
    /// `muster.leader-heartbeat.<role>`: leader heartbeat, for elections.
    LeaderHeartbeat(Role),
    /// `muster.elected.<role>`: first heartbeat of a new leader. Reps respond to it with a heartbeat of their
    /// own.
    Elected(Role),
    /// `muster.alive.<role>`: status of a leader or a standby, for monitoring.
    Alive(Role),
    /// `muster.founding.query`: query of `muster cluster found`. Each service that belongs to a cluster
    /// replies with the id of the cluster.
    FoundingQuery,
    /// `muster.founding.reply`: reply of a service to the founding query, with the id of its cluster.
    FoundingReply,
    /// `muster.query.<root>.<noun>.<verb>`: a query. The root of the subject names the caller.
    Query(Caller, QueryVerb),
    /// `muster.forwarded-query.<bbs>.<root>.<noun>.<verb>`: a query for a further page. A BBS forwards the
    /// query to the BBS that holds the matching snapshot of the World (the state folded from the log).
    ForwardedQuery(ServiceId, Caller, QueryVerb),
}

impl BusSubject {
    /// Parses a subject.
    ///
    /// # Errors
    /// Returns `InvalidRequest` with the invalid token and, where possible, the valid alternatives.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let tokens: Vec<&str> = text.split('.').collect();
        match tokens[..] {
            [ROOT, "client", domain, client, SECRET, SEAL] => {
                let (domain, client) = (Domain::new(domain), ClientName::new(client));
                Ok(Self::Seal(domain.map_err(bad_name)?, client.map_err(bad_name)?))
            }
            [ROOT, "client", domain, client, INSTANCE, EXEC_IO] => {
                let (domain, client) = (Domain::new(domain), ClientName::new(client));
                Ok(Self::ExecIo(domain.map_err(bad_name)?, client.map_err(bad_name)?))
            }
            [ROOT, "client", domain, client, noun, verb] => {
                let (domain, client) = (Domain::new(domain), ClientName::new(client));
                let verb =
                    find_verb(ClientVerb::ALL, |of| noun_verb(of.noun_and_verb()), &format!("{noun}.{verb}"));
                Ok(Self::Client(domain.map_err(bad_name)?, client.map_err(bad_name)?, verb?))
            }
            [ROOT, "operator", operator, noun, verb] => {
                let verb = find_verb(
                    OperatorVerb::ALL,
                    |of| noun_verb(of.noun_and_verb()),
                    &format!("{noun}.{verb}"),
                );
                Ok(Self::Operator(ClientName::new(operator).map_err(bad_name)?, verb?))
            }
            [ROOT, "cell", cell, "bbs", "report"] => Ok(Self::Report(CellId::new(cell).map_err(bad_name)?)),
            [ROOT, "cell", cell, "bbs", "attach"] => Ok(Self::Attach(CellId::new(cell).map_err(bad_name)?)),
            [ROOT, "cell", cell, "bbs", "leave"] => Ok(Self::Leave(CellId::new(cell).map_err(bad_name)?)),
            [ROOT, "cell", cell, "heartbeat"] => Ok(Self::Heartbeat(CellId::new(cell).map_err(bad_name)?)),
            [ROOT, "cell", cell, "rep", verb] => {
                let verb = find_verb(RepVerb::ALL, |of| of.as_str().to_owned(), verb);
                Ok(Self::Rep(CellId::new(cell).map_err(bad_name)?, verb?))
            }
            [ROOT, "auctioneer", "bbs", verb] => {
                find_verb(AuctioneerVerb::ALL, |of| of.as_str().to_owned(), verb).map(Self::Auctioneer)
            }
            [ROOT, LEADER_HEARTBEAT, role] => {
                find_verb(Role::ALL, |of| of.as_str().to_owned(), role).map(Self::LeaderHeartbeat)
            }
            [ROOT, "elected", role] => {
                find_verb(Role::ALL, |of| of.as_str().to_owned(), role).map(Self::Elected)
            }
            [ROOT, "alive", role] => find_verb(Role::ALL, |of| of.as_str().to_owned(), role).map(Self::Alive),
            [ROOT, FOUNDING, "query"] => Ok(Self::FoundingQuery),
            [ROOT, FOUNDING, "reply"] => Ok(Self::FoundingReply),
            [ROOT, "query", ref asked @ ..] => {
                let (caller, verb) = query(asked)?;
                Ok(Self::Query(caller, verb))
            }
            [ROOT, FORWARDED_QUERY, bbs, ref asked @ ..] => {
                let (caller, verb) = query(asked)?;
                Ok(Self::ForwardedQuery(ServiceId::new(bbs).map_err(bad_name)?, caller, verb))
            }
            _ => Err(bad_subject(
                "subject",
                format!(
                    "{} is not a subject of \
                the bus",
                    limits::truncate(text, 100)
                ),
            )),
        }
    }
}

/// Parses the root, the noun and the verb of a query.
fn query(tokens: &[&str]) -> Result<(Caller, QueryVerb), Refusal> {
    let Some((caller, rest)) = Caller::split(tokens) else {
        let problem = format!(
            "{} does not start with the caller of the query: use muster.query.client.DOMAIN.CLIENT.NOUN.VERB, \
             muster.query.operator.NAME.NOUN.VERB or muster.query.auditor.NAME.NOUN.VERB",
            limits::truncate(&tokens.join("."), 100)
        );
        return Err(bad_subject("subject", problem));
    };
    let verb = find_verb(QueryVerb::ALL, |of| noun_verb(of.noun_and_verb()), &rest.join("."))?;
    Ok((caller.map_err(bad_name)?, verb))
}

fn noun_verb((noun, verb): (&str, &str)) -> String {
    format!("{noun}.{verb}")
}

/// Finds the verb with this spelling. The refusal suggests the nearest verb or lists all verbs.
fn find_verb<T: Copy>(all: &[T], spell: impl Fn(T) -> String, asked: &str) -> Result<T, Refusal> {
    if let Some(found) = all.iter().copied().find(|of| spell(*of) == asked) {
        return Ok(found);
    }
    let names: Vec<String> = all.iter().map(|of| spell(*of)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let problem = match nearest(asked, &names) {
        Some(near) => format!("is not a valid request here: did you mean {near}?"),
        None => format!("is not a valid request here: use one of {}", names.join(", ")),
    };
    Err(bad_subject(&limits::truncate(asked, 100), problem))
}

fn bad_name(error: BadName) -> Refusal {
    bad_subject("subject", error.to_string())
}

fn bad_subject(field: &str, problem: String) -> Refusal {
    Refusal::invalid(vec![BadField { field: field.to_owned(), problem }])
}

impl fmt::Display for BusSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(domain, client, verb) => {
                let (noun, verb) = verb.noun_and_verb();
                write!(f, "{ROOT}.client.{domain}.{client}.{noun}.{verb}")
            }
            Self::Seal(domain, client) => write!(f, "{ROOT}.client.{domain}.{client}.{SECRET}.{SEAL}"),
            Self::ExecIo(domain, client) => write!(f, "{ROOT}.client.{domain}.{client}.{INSTANCE}.{EXEC_IO}"),
            Self::Operator(operator, verb) => {
                let (noun, verb) = verb.noun_and_verb();
                write!(f, "{ROOT}.operator.{operator}.{noun}.{verb}")
            }
            Self::Report(cell) => write!(f, "{ROOT}.cell.{cell}.bbs.report"),
            Self::Attach(cell) => write!(f, "{ROOT}.cell.{cell}.bbs.attach"),
            Self::Leave(cell) => write!(f, "{ROOT}.cell.{cell}.bbs.leave"),
            Self::Heartbeat(cell) => write!(f, "{ROOT}.cell.{cell}.heartbeat"),
            Self::Rep(cell, verb) => write!(f, "{ROOT}.cell.{cell}.rep.{}", verb.as_str()),
            Self::Auctioneer(verb) => write!(f, "{ROOT}.auctioneer.bbs.{}", verb.as_str()),
            Self::LeaderHeartbeat(role) => write!(f, "{ROOT}.{LEADER_HEARTBEAT}.{}", role.as_str()),
            Self::Elected(role) => write!(f, "{ROOT}.elected.{}", role.as_str()),
            Self::Alive(role) => write!(f, "{ROOT}.alive.{}", role.as_str()),
            Self::FoundingQuery => write!(f, "{ROOT}.{FOUNDING}.query"),
            Self::FoundingReply => write!(f, "{ROOT}.{FOUNDING}.reply"),
            Self::Query(caller, verb) => {
                let (noun, verb) = verb.noun_and_verb();
                write!(f, "{ROOT}.query.{caller}.{noun}.{verb}")
            }
            Self::ForwardedQuery(bbs, caller, verb) => {
                let (noun, verb) = verb.noun_and_verb();
                write!(f, "{ROOT}.{FORWARDED_QUERY}.{bbs}.{caller}.{noun}.{verb}")
            }
        }
    }
}

/// Subscription pattern for a group of subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusPattern {
    /// Commands of all clients.
    Clients,
    /// Commands of all operators.
    Operators,
    /// Reports and requests of all reps to the BBS.
    Reports,
    /// Heartbeats of all reps.
    Heartbeats,
    /// Orders to one rep.
    Rep(CellId),
    /// Reports of all auctioneers.
    Auctioneers,
    /// Leader heartbeats of a role.
    LeaderHeartbeats(Role),
    /// Elections of both roles.
    Elected,
    /// Status messages of leaders and standbys of both roles.
    Alive,
    Queries,
    /// Queries that are forwarded to one BBS.
    ForwardedQueries(ServiceId),
}

impl fmt::Display for BusPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clients => write!(f, "{ROOT}.client.*.*.*.*"),
            Self::Operators => write!(f, "{ROOT}.operator.*.*.*"),
            Self::Reports => write!(f, "{ROOT}.cell.*.bbs.*"),
            Self::Heartbeats => write!(f, "{ROOT}.cell.*.heartbeat"),
            Self::Rep(cell) => write!(f, "{ROOT}.cell.{cell}.rep.*"),
            Self::Auctioneers => write!(f, "{ROOT}.auctioneer.bbs.*"),
            Self::Elected => write!(f, "{ROOT}.elected.*"),
            Self::LeaderHeartbeats(role) => write!(f, "{ROOT}.{LEADER_HEARTBEAT}.{}", role.as_str()),
            Self::Alive => write!(f, "{ROOT}.alive.*"),
            Self::Queries => write!(f, "{ROOT}.query.>"),
            Self::ForwardedQueries(bbs) => write!(f, "{ROOT}.{FORWARDED_QUERY}.{bbs}.>"),
        }
    }
}

/// Prefix of the subjects on which one connection receives answers. Thanks to the common prefix, the
/// permissions of a role need only one line for all its answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbox {
    Client(Domain, ClientName),
    Operator(ClientName),
    Auditor(ClientName),
    Gateway(ClientName),
    Rep(CellId),
    Bbs(ServiceId),
    /// `muster.inbox.bbs-writer.<id>`: the connection that appends to the journal.
    BbsWriter(ServiceId),
    Auctioneer(ServiceId),
    /// `muster.inbox.auctioneer-reader.<id>`: the connection that reads the journal.
    AuctioneerReader(ServiceId),
    Projector(ServiceId),
}

/// Kind of an inbox: the role of its owner, and the purpose of the connection.
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InboxKind {
    Client,
    Operator,
    Auditor,
    Gateway,
    Rep,
    /// Connection of a BBS for requests on the bus.
    Bbs,
    /// Connection of a BBS for the journal.
    BbsWriter,
    /// Connection of an auctioneer for requests on the bus.
    Auctioneer,
    /// Connection of an auctioneer for the journal.
    AuctioneerReader,
    Projector,
}

impl InboxKind {
    /// Every kind.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the kind as it appears in the subject.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

impl Inbox {
    /// Returns the kind of the inbox.
    #[must_use]
    pub const fn kind(&self) -> InboxKind {
        match self {
            Self::Client(..) => InboxKind::Client,
            Self::Operator(_) => InboxKind::Operator,
            Self::Auditor(_) => InboxKind::Auditor,
            Self::Gateway(_) => InboxKind::Gateway,
            Self::Rep(_) => InboxKind::Rep,
            Self::Bbs(_) => InboxKind::Bbs,
            Self::BbsWriter(_) => InboxKind::BbsWriter,
            Self::Auctioneer(_) => InboxKind::Auctioneer,
            Self::AuctioneerReader(_) => InboxKind::AuctioneerReader,
            Self::Projector(_) => InboxKind::Projector,
        }
    }
}

impl fmt::Display for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{INBOX_ROOT}{}.", self.kind().as_str())?;
        match self {
            Self::Client(domain, client) => write!(f, "{domain}.{client}"),
            Self::Operator(name) | Self::Auditor(name) | Self::Gateway(name) => write!(f, "{name}"),
            Self::Rep(cell) => write!(f, "{cell}"),
            Self::Bbs(id)
            | Self::BbsWriter(id)
            | Self::Auctioneer(id)
            | Self::AuctioneerReader(id)
            | Self::Projector(id) => write!(f, "{id}"),
        }
    }
}

impl Caller {
    /// Returns the subject of a query by this caller.
    #[must_use]
    pub fn query(&self, verb: QueryVerb) -> String {
        BusSubject::Query(self.clone(), verb).to_string()
    }

    /// Returns the caller that receives its answers in `inbox`, or `None` if the owner of the inbox sends no queries.
    #[must_use]
    pub fn from_inbox(inbox: &Inbox) -> Option<Self> {
        match inbox {
            Inbox::Client(domain, client) => Some(Self::Client(domain.clone(), client.clone())),
            Inbox::Operator(name) => Some(Self::Operator(name.clone())),
            Inbox::Auditor(name) => Some(Self::Auditor(name.clone())),
            Inbox::Gateway(name) => Some(Self::Gateway(name.clone())),
            Inbox::Rep(cell) => Some(Self::Rep(cell.clone())),
            Inbox::Auctioneer(_) => Some(Self::Auctioneer),
            Inbox::Bbs(_) => Some(Self::Bbs),
            Inbox::BbsWriter(_) | Inbox::AuctioneerReader(_) | Inbox::Projector(_) => None,
        }
    }

    /// Returns the caller that the subject of a query names, even if its noun and verb are unknown.
    #[must_use]
    pub fn from_subject(subject: &str) -> Option<Self> {
        let tokens: Vec<&str> = subject.split('.').collect();
        let ([ROOT, "query", tokens @ ..] | [ROOT, FORWARDED_QUERY, _, tokens @ ..]) = &tokens[..] else {
            return None;
        };
        Self::split(tokens).and_then(|(caller, _)| caller.ok())
    }
}
