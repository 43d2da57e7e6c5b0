//! Table of the subjects that each role publishes on, subscribes to and answers.

use std::fmt;
use std::str::FromStr;

use schemas::bus::{BusPattern, BusSubject, INBOX_ROOT, Inbox, InboxKind};
use schemas::caller::Caller;
use schemas::cluster;
use schemas::feed::ALL_EVENTS;
use schemas::names::{CellId, ClientName, Domain};
use schemas::reach::Reach;
use schemas::subject::STREAM;
use schemas::verb::{QueryVerb, RepVerb};

/// Role of a program or a person on a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The connection with which a BBS appends to the journal. This connection answers no requests. The
    /// founding of a cluster and the import of a log use this role, because a role that may append any entry
    /// may append the first entry.
    BbsWriter,
    /// The connections with which a BBS receives commands and answers queries. These connections cannot
    /// append events.
    Bbs,
    Auctioneer,
    /// The rep of one cell.
    Rep(CellId),
    /// A client of one domain.
    Client(Domain, ClientName),
    Projector,
    /// Reads everything and writes nothing.
    Auditor(ClientName),
    /// Sends commands to cells, and other commands that belong to no domain.
    Operator(ClientName),
    /// A program that serves the cluster over another protocol. This program may read the cluster, but never
    /// receives the values of environment variables.
    Gateway(ClientName),
    /// May change the stream itself, for example the number of its replicas. No Muster service uses this
    /// role.
    Admin(ClientName),
    /// A user of the server's own account, for statistics on connections and traffic. This user has no access
    /// to Muster's subjects.
    System,
}

/// Permissions of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Subject patterns that the role may publish on.
    pub publishes: Vec<String>,
    /// Subject patterns that the role may subscribe to.
    pub subscribes: Vec<String>,
    /// `true` if the role may publish one response to the reply subject of each message that it receives. The
    /// server does not check whether the requester may publish on the reply subject. Therefore only roles
    /// with trusted requesters have this right.
    pub answers: bool,
}

/// Returns the JetStream requests that read the stream: its state, the message at a position, and the last
/// message of a subject.
fn stream_read_requests() -> Vec<String> {
    ["STREAM.INFO.S", "STREAM.MSG.GET.S", "DIRECT.GET.S", "DIRECT.GET.S.>"].map(stream_request).to_vec()
}

/// Returns the additional JetStream requests of a follower of the stream: create an ephemeral consumer, fetch
/// messages, and check after a reconnect that the consumer still exists.
fn stream_follow_requests() -> Vec<String> {
    ["CONSUMER.CREATE.S", "CONSUMER.CREATE.S.>", "CONSUMER.INFO.S.>", "CONSUMER.MSG.NEXT.S.>"]
        .map(stream_request)
        .to_vec()
}

fn stream_request(question: &str) -> String {
    format!("$JS.API.{}", question.replace(".S", &format!(".{STREAM}")))
}

fn inbox(inbox: Inbox) -> String {
    Reach::Inbox(inbox).to_string()
}

fn inboxes(kinds: &[InboxKind]) -> Vec<String> {
    kinds.iter().map(|kind| Reach::Inboxes(*kind).to_string()).collect()
}

/// Returns the pattern of the queries of one caller.
fn queries(caller: Caller) -> String {
    Reach::Queries(caller).to_string()
}

/// Returns the rights of a role that sends queries as `caller`. `more` are further patterns that the role
/// publishes on.
fn caller_rights(caller: Caller, more: &[String]) -> (Vec<String>, Vec<String>, bool) {
    let inbox = format!("{INBOX_ROOT}{caller}.>");
    ([more, &[queries(caller)]].concat(), vec![inbox, ALL_EVENTS.to_owned()], false)
}

/// Returns the subjects on which the leader and the standbys of a role publish heartbeats and status.
fn leadership_subjects(role: cluster::Role) -> Vec<String> {
    [BusSubject::LeaderHeartbeat(role), BusSubject::Elected(role), BusSubject::Alive(role)]
        .map(|of| of.to_string())
        .to_vec()
}

impl Role {
    /// Returns the permissions of this role. `None` grants every permission in the account.
    #[must_use]
    pub fn rights(&self) -> Option<Rights> {
        let (publishes, subscribes, answers) = match self {
            Self::BbsWriter => (
                writer_publishes(),
                [vec![BusSubject::FoundingReply.to_string()], inboxes(&[InboxKind::BbsWriter])].concat(),
                false,
            ),
            Self::Bbs => (bbs_publishes(), bbs_subscribes(), false),
            Self::Auctioneer => (
                [
                    vec![Reach::Auctioneers.to_string(), Reach::Orders(RepVerb::Perform).to_string()],
                    vec![BusSubject::FoundingReply.to_string()],
                    leadership_subjects(cluster::Role::Auctioneer),
                    vec![queries(Caller::Auctioneer)],
                    stream_read_requests(),
                    stream_follow_requests(),
                ]
                .concat(),
                [
                    vec![BusPattern::Heartbeats.to_string(), BusSubject::FoundingQuery.to_string()],
                    cluster::Role::ALL
                        .iter()
                        .map(|role| BusPattern::LeaderHeartbeats(*role).to_string())
                        .collect(),
                    inboxes(&[InboxKind::Auctioneer, InboxKind::AuctioneerReader]),
                ]
                .concat(),
                false,
            ),
            Self::Rep(cell) => (
                vec![
                    Reach::Reports(cell.clone()).to_string(),
                    BusSubject::Heartbeat(cell.clone()).to_string(),
                    BusSubject::FoundingReply.to_string(),
                    Caller::Rep(cell.clone()).query(QueryVerb::CellRecords),
                    Caller::Rep(cell.clone()).query(QueryVerb::ClusterShow),
                ],
                vec![
                    BusPattern::Rep(cell.clone()).to_string(),
                    BusPattern::Elected.to_string(),
                    BusSubject::FoundingQuery.to_string(),
                    inbox(Inbox::Rep(cell.clone())),
                ],
                true,
            ),
            Self::Client(domain, name) => {
                let commands = Reach::Client(domain.clone(), name.clone());
                caller_rights(Caller::Client(domain.clone(), name.clone()), &[commands.to_string()])
            }
            Self::Projector => (
                [stream_read_requests(), stream_follow_requests()].concat(),
                inboxes(&[InboxKind::Projector]),
                false,
            ),
            Self::Auditor(name) => caller_rights(Caller::Auditor(name.clone()), &stream_read_requests()),
            Self::Operator(name) => {
                let commands = vec![Reach::Operator(name.clone()).to_string()];
                caller_rights(Caller::Operator(name.clone()), &[commands, stream_read_requests()].concat())
            }
            Self::Gateway(name) => caller_rights(Caller::Gateway(name.clone()), &[]),
            Self::Admin(name) => {
                (vec!["$JS.API.>".to_owned()], vec![format!("{INBOX_ROOT}admin.{name}.>")], false)
            }
            Self::System => return None,
        };
        Some(Rights { publishes, subscribes, answers })
    }

    /// Returns the default user name of this role: its words joined by `-`, such as `rep-c1`.
    #[must_use]
    pub fn default_name(&self) -> String {
        self.to_string().replace(' ', "-")
    }
}

fn writer_publishes() -> Vec<String> {
    let own =
        [Reach::Events.to_string(), stream_request("STREAM.CREATE.S"), BusSubject::FoundingQuery.to_string()];
    [own.to_vec(), stream_read_requests(), stream_follow_requests()].concat()
}

fn bbs_publishes() -> Vec<String> {
    let orders = [
        RepVerb::Stop,
        RepVerb::Cancel,
        RepVerb::State,
        RepVerb::Evacuate,
        RepVerb::Uncordon,
        RepVerb::Dismiss,
        RepVerb::Logs,
        RepVerb::Health,
        RepVerb::Files,
        RepVerb::Exec,
        RepVerb::ExecIo,
        RepVerb::AcceptLog,
    ];
    let answered = [
        InboxKind::Client,
        InboxKind::Operator,
        InboxKind::Auditor,
        InboxKind::Gateway,
        InboxKind::Rep,
        InboxKind::Bbs,
        InboxKind::Auctioneer,
    ];
    [
        orders.map(|verb| Reach::Orders(verb).to_string()).to_vec(),
        leadership_subjects(cluster::Role::Bbs),
        vec![queries(Caller::Bbs), Reach::ForwardedQueries.to_string()],
        vec![ALL_EVENTS.to_owned(), BusSubject::FoundingReply.to_string()],
        inboxes(&answered),
        stream_read_requests(),
    ]
    .concat()
}

fn bbs_subscribes() -> Vec<String> {
    let heard = [
        BusPattern::Clients,
        BusPattern::Operators,
        BusPattern::Reports,
        BusPattern::Heartbeats,
        BusPattern::Auctioneers,
        BusPattern::LeaderHeartbeats(cluster::Role::Bbs),
        BusPattern::Alive,
        BusPattern::Queries,
    ];
    [
        heard.map(|pattern| pattern.to_string()).to_vec(),
        vec![Reach::ForwardedQueries.to_string(), BusSubject::FoundingQuery.to_string()],
        inboxes(&[InboxKind::Bbs]),
    ]
    .concat()
}

/// Error for a text that is not a valid role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid role {0:?}: use bbs, bbs-writer, auctioneer, projector, rep CELL, client DOMAIN NAME, auditor \
     NAME, operator NAME, gateway NAME, admin NAME or system, with names of A-Z a-z 0-9 _ -"
)]
pub struct InvalidRole(pub String);

impl FromStr for Role {
    type Err = InvalidRole;

    /// Parses the text form of a role, such as `rep c1` or `client shop web`.
    fn from_str(text: &str) -> Result<Self, InvalidRole> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let role = match words[..] {
            ["bbs-writer"] => Some(Self::BbsWriter),
            ["bbs"] => Some(Self::Bbs),
            ["auctioneer"] => Some(Self::Auctioneer),
            ["projector"] => Some(Self::Projector),
            ["system"] => Some(Self::System),
            ["rep", cell] => CellId::new(cell).ok().map(Self::Rep),
            ["client", domain, name] => Domain::new(domain)
                .ok()
                .zip(ClientName::new(name).ok())
                .map(|(domain, name)| Self::Client(domain, name)),
            ["auditor", name] => ClientName::new(name).ok().map(Self::Auditor),
            ["operator", name] => ClientName::new(name).ok().map(Self::Operator),
            ["gateway", name] => ClientName::new(name).ok().map(Self::Gateway),
            ["admin", name] => ClientName::new(name).ok().map(Self::Admin),
            _ => None,
        };
        role.ok_or_else(|| InvalidRole(schemas::limits::truncate(text, 100)))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BbsWriter => f.write_str("bbs-writer"),
            Self::Bbs => f.write_str("bbs"),
            Self::Auctioneer => f.write_str("auctioneer"),
            Self::Projector => f.write_str("projector"),
            Self::System => f.write_str("system"),
            Self::Rep(cell) => write!(f, "rep {cell}"),
            Self::Client(domain, name) => write!(f, "client {domain} {name}"),
            Self::Auditor(name) => write!(f, "auditor {name}"),
            Self::Operator(name) => write!(f, "operator {name}"),
            Self::Gateway(name) => write!(f, "gateway {name}"),
            Self::Admin(name) => write!(f, "admin {name}"),
        }
    }
}
