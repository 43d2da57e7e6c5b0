//! Subjects of the bus, to and from text: the one place that builds and reads them. What travels on each is in
//! [`crate::message`].

use std::fmt;

use crate::caller::Caller;
use crate::cluster::Role;
use crate::fields::nearest;
use crate::limits;
use crate::names::{BadName, CellId, ClientName, Domain, ServiceId};
use crate::refusal::{BadField, Refusal};

/// What every subject of the bus and of the journal starts with.
pub(crate) const ROOT: &str = "muster";

/// The noun and the verb by which a client asks to have secrets sealed: no command, since nothing is decided.
const SECRET: &str = "secret";
const SEAL: &str = "seal";

/// The noun and the verb by which a client talks to a program that it has run: what was decided is that it runs.
const INSTANCE: &str = "instance";
const TALK: &str = "talk";

/// The subjects by which a cluster is founded.
const FOUNDING: &str = "founding";

/// What the subject of every answer starts with.
pub const INBOX_ROOT: &str = "muster.inbox.";

/// A subject of the bus on which something is asked or reported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BusSubject {
    /// `muster.client.<domain>.<client>.<noun>.<verb>`: a client's command.
    Client(Domain, ClientName, ClientVerb),
    /// `muster.client.<domain>.<client>.secret.seal`: a client asks to have the secrets of a spec sealed.
    Seal(Domain, ClientName),
    /// `muster.client.<domain>.<client>.instance.talk`: a client talks to a program that it has run in a container.
    Talk(Domain, ClientName),
    /// `muster.operator.<operator>.<noun>.<verb>`: an operator's command.
    Operator(ClientName, OperatorVerb),
    /// `muster.cell.<cell>.bbs.report`: what a rep reports.
    Report(CellId),
    /// `muster.cell.<cell>.bbs.attach`: a rep that starts asks whether it may speak for its cell.
    Attach(CellId),
    /// `muster.cell.<cell>.bbs.leave`: a rep has evacuated its cell and leaves.
    Leave(CellId),
    /// `muster.cell.<cell>.heartbeat`: a rep's sign of life.
    Heartbeat(CellId),
    /// `muster.cell.<cell>.rep.<verb>`: an order to a rep.
    Rep(CellId, RepVerb),
    /// `muster.auctioneer.bbs.<verb>`: what an auctioneer reports to the BBS.
    Auctioneer(AuctioneerVerb),
    /// `muster.beat.<role>`: a leader's sign of life, for elections.
    Beat(LeaderRole),
    /// `muster.elected.<role>`: the beat of who was just elected, for reps: they say at once how their cell is.
    Elected(LeaderRole),
    /// `muster.alive.<role>`: a leader's or a standby's sign of life, for people.
    Alive(LeaderRole),
    /// `muster.founding.asked`: `muster cluster found` asks every service which cluster it belongs to.
    FoundingAsked,
    /// `muster.founding.known`: a service that belongs to a cluster names it to whoever founds one.
    FoundingKnown,
    /// `muster.query.<root>.<noun>.<verb>`: a query. The root names the caller.
    Query(Caller, QueryVerb),
    /// `muster.query-of.<bbs>.<root>.<noun>.<verb>`: a query that one BBS passes on to the one that holds its World snapshot.
    QueryOf(ServiceId, Caller, QueryVerb),
}

/// What a client may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientVerb {
    /// `lrp.desire`
    LrpDesire,
    /// `lrp.update`
    LrpUpdate,
    /// `lrp.activate`
    LrpActivate,
    /// `lrp.restart`
    LrpRestart,
    /// `lrp.pause`
    LrpPause,
    /// `lrp.resume`
    LrpResume,
    /// `lrp.rollback`
    LrpRollback,
    /// `lrp.remove`
    LrpRemove,
    /// `lrp.retire`
    LrpRetire,
    /// `lrp.retry`
    LrpRetry,
    /// `instance.exec`
    InstanceExec,
    /// `task.desire`
    TaskDesire,
    /// `task.cancel`
    TaskCancel,
    /// `task.resolve`
    TaskResolve,
    /// `task.retry`
    TaskRetry,
    /// `periodic.desire`
    PeriodicDesire,
    /// `periodic.update`
    PeriodicUpdate,
    /// `periodic.pause`
    PeriodicPause,
    /// `periodic.resume`
    PeriodicResume,
    /// `periodic.launch`
    PeriodicLaunch,
    /// `periodic.remove`
    PeriodicRemove,
    /// `parameterised.desire`
    ParameterisedDesire,
    /// `parameterised.update`
    ParameterisedUpdate,
    /// `parameterised.dispatch`
    ParameterisedDispatch,
    /// `parameterised.withdraw`
    ParameterisedWithdraw,
    /// `parameterised.remove`
    ParameterisedRemove,
    /// `domain.upsert`
    DomainUpsert,
}

/// What an operator may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperatorVerb {
    /// `cell.evacuate`
    CellEvacuate,
    /// `cell.cordon`
    CellCordon,
    /// `cell.uncordon`
    CellUncordon,
    /// `cell.forget`
    CellForget,
    /// `cell.accept-log`
    CellAcceptLog,
    /// `cluster.preemption`
    ClusterPreemption,
    /// `cluster.shards`
    ClusterShards,
    /// `domain.limit`
    DomainLimit,
    /// `journal.set-aside`
    JournalSetAside,
}

/// What a rep is asked or ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RepVerb {
    /// Work to be done.
    Perform,
    /// Containers to be stopped.
    Stop,
    /// Tasks to be cancelled.
    Cancel,
    /// Asks for a heartbeat.
    State,
    /// The cell is to be evacuated.
    Evacuate,
    /// The cell is not to be evacuated after all.
    Uncordon,
    /// Another rep speaks for the cell.
    Dismiss,
    /// Asks for a container's log.
    Logs,
    /// Asks what a container's monitor found out.
    Health,
    /// Asks what is in a container's work directory.
    Files,
    /// A program to be run in a container for a client.
    Enter,
    /// What a client says to such a program.
    Talk,
    /// An operator has the rep go on with the log as it is now.
    AcceptLog,
}

/// What an auctioneer reports to the BBS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuctioneerVerb {
    /// What could not be placed.
    Outcome,
    /// That it wants to lead.
    Lead,
}

/// Who leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaderRole {
    /// The BBS.
    Bbs,
    /// The auctioneer.
    Auctioneer,
}

/// What anybody may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueryVerb {
    /// Processes.
    LrpList,
    /// One process.
    LrpShow,
    /// Instances.
    InstanceList,
    /// The instances of one index.
    InstanceShow,
    /// Containers of instances that ended.
    InstanceEnded,
    /// What an instance wrote.
    InstanceLogs,
    /// What the monitor of an instance found out.
    InstanceHealth,
    /// What is in the work directory of an instance.
    InstanceFiles,
    /// Tasks.
    TaskList,
    /// One task.
    TaskShow,
    /// Tasks that ended.
    TaskEnded,
    /// What a task wrote.
    TaskLogs,
    /// Periodic tasks.
    PeriodicList,
    /// One periodic task.
    PeriodicShow,
    /// Parameterised tasks.
    ParameterisedList,
    /// One parameterised task.
    ParameterisedShow,
    /// Domains.
    DomainList,
    /// Usage and quotas of one domain.
    DomainShow,
    /// Cells.
    CellList,
    /// One cell.
    CellShow,
    /// The records that a rep needs.
    CellRecords,
    /// Evaluations.
    EvaluationList,
    /// One evaluation.
    EvaluationShow,
    /// The cluster.
    ClusterShow,
    /// How the cluster is.
    ClusterStatus,
    /// What happened.
    EventsRead,
    /// The JSON Schemas that there are.
    SchemaList,
    /// One JSON Schema.
    SchemaShow,
}

impl ClientVerb {
    /// Every one of them.
    pub const ALL: [Self; 27] = [
        Self::LrpDesire,
        Self::LrpUpdate,
        Self::LrpActivate,
        Self::LrpRestart,
        Self::LrpPause,
        Self::LrpResume,
        Self::LrpRollback,
        Self::LrpRemove,
        Self::LrpRetire,
        Self::LrpRetry,
        Self::InstanceExec,
        Self::TaskDesire,
        Self::TaskCancel,
        Self::TaskResolve,
        Self::TaskRetry,
        Self::PeriodicDesire,
        Self::PeriodicUpdate,
        Self::PeriodicPause,
        Self::PeriodicResume,
        Self::PeriodicLaunch,
        Self::PeriodicRemove,
        Self::ParameterisedDesire,
        Self::ParameterisedUpdate,
        Self::ParameterisedDispatch,
        Self::ParameterisedWithdraw,
        Self::ParameterisedRemove,
        Self::DomainUpsert,
    ];

    /// Its noun and its verb, as they stand in the subject.
    #[must_use]
    pub const fn noun_and_verb(self) -> (&'static str, &'static str) {
        match self {
            Self::LrpDesire => ("lrp", "desire"),
            Self::LrpUpdate => ("lrp", "update"),
            Self::LrpActivate => ("lrp", "activate"),
            Self::LrpRestart => ("lrp", "restart"),
            Self::LrpPause => ("lrp", "pause"),
            Self::LrpResume => ("lrp", "resume"),
            Self::LrpRollback => ("lrp", "rollback"),
            Self::LrpRemove => ("lrp", "remove"),
            Self::LrpRetire => ("lrp", "retire"),
            Self::LrpRetry => ("lrp", "retry"),
            Self::InstanceExec => ("instance", "exec"),
            Self::TaskDesire => ("task", "desire"),
            Self::TaskCancel => ("task", "cancel"),
            Self::TaskResolve => ("task", "resolve"),
            Self::TaskRetry => ("task", "retry"),
            Self::PeriodicDesire => ("periodic", "desire"),
            Self::PeriodicUpdate => ("periodic", "update"),
            Self::PeriodicPause => ("periodic", "pause"),
            Self::PeriodicResume => ("periodic", "resume"),
            Self::PeriodicLaunch => ("periodic", "launch"),
            Self::PeriodicRemove => ("periodic", "remove"),
            Self::ParameterisedDesire => ("parameterised", "desire"),
            Self::ParameterisedUpdate => ("parameterised", "update"),
            Self::ParameterisedDispatch => ("parameterised", "dispatch"),
            Self::ParameterisedWithdraw => ("parameterised", "withdraw"),
            Self::ParameterisedRemove => ("parameterised", "remove"),
            Self::DomainUpsert => ("domain", "upsert"),
        }
    }
}

impl OperatorVerb {
    /// Every one of them.
    pub const ALL: [Self; 9] = [
        Self::CellEvacuate,
        Self::CellCordon,
        Self::CellUncordon,
        Self::CellForget,
        Self::CellAcceptLog,
        Self::ClusterPreemption,
        Self::ClusterShards,
        Self::DomainLimit,
        Self::JournalSetAside,
    ];

    /// Its noun and its verb, as they stand in the subject.
    #[must_use]
    pub const fn noun_and_verb(self) -> (&'static str, &'static str) {
        match self {
            Self::CellEvacuate => ("cell", "evacuate"),
            Self::CellCordon => ("cell", "cordon"),
            Self::CellUncordon => ("cell", "uncordon"),
            Self::CellForget => ("cell", "forget"),
            Self::CellAcceptLog => ("cell", "accept-log"),
            Self::ClusterPreemption => ("cluster", "preemption"),
            Self::ClusterShards => ("cluster", "shards"),
            Self::DomainLimit => ("domain", "limit"),
            Self::JournalSetAside => ("journal", "set-aside"),
        }
    }
}

impl RepVerb {
    /// Every one of them.
    pub const ALL: [Self; 13] = [
        Self::Perform,
        Self::Stop,
        Self::Cancel,
        Self::State,
        Self::Evacuate,
        Self::Uncordon,
        Self::Dismiss,
        Self::Logs,
        Self::Health,
        Self::Files,
        Self::Enter,
        Self::Talk,
        Self::AcceptLog,
    ];

    /// As it stands in the subject.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Perform => "perform",
            Self::Stop => "stop",
            Self::Cancel => "cancel",
            Self::State => "state",
            Self::Evacuate => "evacuate",
            Self::Uncordon => "uncordon",
            Self::Dismiss => "dismiss",
            Self::Logs => "logs",
            Self::Health => "health",
            Self::Files => "files",
            Self::Enter => "enter",
            Self::Talk => "talk",
            Self::AcceptLog => "accept-log",
        }
    }
}

impl AuctioneerVerb {
    /// Every one of them.
    pub const ALL: [Self; 2] = [Self::Outcome, Self::Lead];

    /// As it stands in the subject.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Outcome => "outcome",
            Self::Lead => "lead",
        }
    }
}

impl From<Role> for LeaderRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Bbs => Self::Bbs,
            Role::Auctioneer => Self::Auctioneer,
        }
    }
}

impl LeaderRole {
    /// Every one of them.
    pub const ALL: [Self; 2] = [Self::Bbs, Self::Auctioneer];

    /// As it stands in the subject.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bbs => "bbs",
            Self::Auctioneer => "auctioneer",
        }
    }
}

impl QueryVerb {
    /// Every one of them.
    pub const ALL: [Self; 28] = [
        Self::LrpList,
        Self::LrpShow,
        Self::InstanceList,
        Self::InstanceShow,
        Self::InstanceEnded,
        Self::InstanceLogs,
        Self::InstanceHealth,
        Self::InstanceFiles,
        Self::TaskList,
        Self::TaskShow,
        Self::TaskEnded,
        Self::TaskLogs,
        Self::PeriodicList,
        Self::PeriodicShow,
        Self::ParameterisedList,
        Self::ParameterisedShow,
        Self::DomainList,
        Self::DomainShow,
        Self::CellList,
        Self::CellShow,
        Self::CellRecords,
        Self::EvaluationList,
        Self::EvaluationShow,
        Self::ClusterShow,
        Self::ClusterStatus,
        Self::EventsRead,
        Self::SchemaList,
        Self::SchemaShow,
    ];

    /// Its noun and its verb, as they stand in the subject.
    #[must_use]
    pub const fn noun_and_verb(self) -> (&'static str, &'static str) {
        match self {
            Self::LrpList => ("lrp", "list"),
            Self::LrpShow => ("lrp", "show"),
            Self::InstanceList => ("instance", "list"),
            Self::InstanceShow => ("instance", "show"),
            Self::InstanceEnded => ("instance", "ended"),
            Self::InstanceLogs => ("instance", "logs"),
            Self::InstanceHealth => ("instance", "health"),
            Self::InstanceFiles => ("instance", "files"),
            Self::TaskList => ("task", "list"),
            Self::TaskShow => ("task", "show"),
            Self::TaskEnded => ("task", "ended"),
            Self::TaskLogs => ("task", "logs"),
            Self::PeriodicList => ("periodic", "list"),
            Self::PeriodicShow => ("periodic", "show"),
            Self::ParameterisedList => ("parameterised", "list"),
            Self::ParameterisedShow => ("parameterised", "show"),
            Self::DomainList => ("domain", "list"),
            Self::DomainShow => ("domain", "show"),
            Self::CellList => ("cell", "list"),
            Self::CellShow => ("cell", "show"),
            Self::CellRecords => ("cell", "records"),
            Self::EvaluationList => ("evaluation", "list"),
            Self::EvaluationShow => ("evaluation", "show"),
            Self::ClusterShow => ("cluster", "show"),
            Self::ClusterStatus => ("cluster", "status"),
            Self::EventsRead => ("events", "read"),
            Self::SchemaList => ("schema", "list"),
            Self::SchemaShow => ("schema", "show"),
        }
    }
}

impl BusSubject {
    /// Reads a subject.
    ///
    /// # Errors
    /// `InvalidRequest`, for the sender: what of it is not a subject, and what would be one.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let tokens: Vec<&str> = text.split('.').collect();
        match tokens[..] {
            [ROOT, "client", domain, client, SECRET, SEAL] => {
                let (domain, client) = (Domain::new(domain), ClientName::new(client));
                Ok(Self::Seal(domain.map_err(bad_name)?, client.map_err(bad_name)?))
            }
            [ROOT, "client", domain, client, INSTANCE, TALK] => {
                let (domain, client) = (Domain::new(domain), ClientName::new(client));
                Ok(Self::Talk(domain.map_err(bad_name)?, client.map_err(bad_name)?))
            }
            [ROOT, "client", domain, client, noun, verb] => {
                let (domain, client) = (Domain::new(domain), ClientName::new(client));
                let verb =
                    find(&ClientVerb::ALL, |of| noun_verb(of.noun_and_verb()), &format!("{noun}.{verb}"));
                Ok(Self::Client(domain.map_err(bad_name)?, client.map_err(bad_name)?, verb?))
            }
            [ROOT, "operator", operator, noun, verb] => {
                let verb =
                    find(&OperatorVerb::ALL, |of| noun_verb(of.noun_and_verb()), &format!("{noun}.{verb}"));
                Ok(Self::Operator(ClientName::new(operator).map_err(bad_name)?, verb?))
            }
            [ROOT, "cell", cell, "bbs", "report"] => Ok(Self::Report(CellId::new(cell).map_err(bad_name)?)),
            [ROOT, "cell", cell, "bbs", "attach"] => Ok(Self::Attach(CellId::new(cell).map_err(bad_name)?)),
            [ROOT, "cell", cell, "bbs", "leave"] => Ok(Self::Leave(CellId::new(cell).map_err(bad_name)?)),
            [ROOT, "cell", cell, "heartbeat"] => Ok(Self::Heartbeat(CellId::new(cell).map_err(bad_name)?)),
            [ROOT, "cell", cell, "rep", verb] => {
                let verb = find(&RepVerb::ALL, |of| of.as_str().to_owned(), verb);
                Ok(Self::Rep(CellId::new(cell).map_err(bad_name)?, verb?))
            }
            [ROOT, "auctioneer", "bbs", verb] => {
                find(&AuctioneerVerb::ALL, |of| of.as_str().to_owned(), verb).map(Self::Auctioneer)
            }
            [ROOT, "beat", role] => find(&LeaderRole::ALL, |of| of.as_str().to_owned(), role).map(Self::Beat),
            [ROOT, "elected", role] => {
                find(&LeaderRole::ALL, |of| of.as_str().to_owned(), role).map(Self::Elected)
            }
            [ROOT, "alive", role] => {
                find(&LeaderRole::ALL, |of| of.as_str().to_owned(), role).map(Self::Alive)
            }
            [ROOT, FOUNDING, "asked"] => Ok(Self::FoundingAsked),
            [ROOT, FOUNDING, "known"] => Ok(Self::FoundingKnown),
            [ROOT, "query", ref asked @ ..] => {
                let (caller, verb) = query(asked)?;
                Ok(Self::Query(caller, verb))
            }
            [ROOT, "query-of", bbs, ref asked @ ..] => {
                let (caller, verb) = query(asked)?;
                Ok(Self::QueryOf(ServiceId::new(bbs).map_err(bad_name)?, caller, verb))
            }
            _ => Err(bad_subject("subject", format!("{} is no subject of the bus", limits::cut(text, 100)))),
        }
    }
}

/// Reads the root, the noun and the verb of a query.
fn query(tokens: &[&str]) -> Result<(Caller, QueryVerb), Refusal> {
    let Some((caller, rest)) = Caller::split(tokens) else {
        let problem = format!(
            "{} does not start with the caller of the query: use muster.query.client.DOMAIN.CLIENT.NOUN.VERB, \
             muster.query.operator.NAME.NOUN.VERB or muster.query.auditor.NAME.NOUN.VERB",
            limits::cut(&tokens.join("."), 100)
        );
        return Err(bad_subject("subject", problem));
    };
    let verb = find(&QueryVerb::ALL, |of| noun_verb(of.noun_and_verb()), &rest.join("."))?;
    Ok((caller.map_err(bad_name)?, verb))
}

fn noun_verb((noun, verb): (&str, &str)) -> String {
    format!("{noun}.{verb}")
}

/// The verb that is spelt so.
fn find<T: Copy>(all: &[T], spell: impl Fn(T) -> String, asked: &str) -> Result<T, Refusal> {
    if let Some(found) = all.iter().copied().find(|of| spell(*of) == asked) {
        return Ok(found);
    }
    let names: Vec<String> = all.iter().map(|of| spell(*of)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let problem = match nearest(asked, &names) {
        Some(near) => format!("is nothing that can be asked here: did you mean {near}?"),
        None => format!("is nothing that can be asked here: use one of {}", names.join(", ")),
    };
    Err(bad_subject(&limits::cut(asked, 100), problem))
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
            Self::Talk(domain, client) => write!(f, "{ROOT}.client.{domain}.{client}.{INSTANCE}.{TALK}"),
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
            Self::Beat(role) => write!(f, "{ROOT}.beat.{}", role.as_str()),
            Self::Elected(role) => write!(f, "{ROOT}.elected.{}", role.as_str()),
            Self::Alive(role) => write!(f, "{ROOT}.alive.{}", role.as_str()),
            Self::FoundingAsked => write!(f, "{ROOT}.{FOUNDING}.asked"),
            Self::FoundingKnown => write!(f, "{ROOT}.{FOUNDING}.known"),
            Self::Query(caller, verb) => {
                let (noun, verb) = verb.noun_and_verb();
                write!(f, "{ROOT}.query.{caller}.{noun}.{verb}")
            }
            Self::QueryOf(bbs, caller, verb) => {
                let (noun, verb) = verb.noun_and_verb();
                write!(f, "{ROOT}.query-of.{bbs}.{caller}.{noun}.{verb}")
            }
        }
    }
}

/// What somebody listens to: many subjects at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusPattern {
    /// Every client's commands.
    Clients,
    /// Every operator's commands.
    Operators,
    /// What reps ask and report.
    Reports,
    /// Every rep's heartbeats.
    Heartbeats,
    /// Orders to one rep.
    Rep(CellId),
    /// What auctioneers report.
    Auctioneers,
    /// The signs of life of the leaders of a role.
    Beats(LeaderRole),
    /// Who was just elected, in both roles.
    Elected,
    /// The signs of life of leaders and standbys of both roles.
    Alive,
    /// Every query.
    Queries,
    /// Those that are passed on to one BBS.
    QueriesOf(ServiceId),
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
            Self::Beats(role) => write!(f, "{ROOT}.beat.{}", role.as_str()),
            Self::Alive => write!(f, "{ROOT}.alive.*"),
            Self::Queries => write!(f, "{ROOT}.query.>"),
            Self::QueriesOf(bbs) => write!(f, "{ROOT}.query-of.{bbs}.>"),
        }
    }
}

/// Where somebody's answers come to: what stands before the subjects of all of them, so that a role's permission is
/// one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbox {
    /// `muster.inbox.client.<domain>.<client>`
    Client(Domain, ClientName),
    /// `muster.inbox.operator.<operator>`
    Operator(ClientName),
    /// `muster.inbox.auditor.<auditor>`
    Auditor(ClientName),
    /// `muster.inbox.gateway.<gateway>`
    Gateway(ClientName),
    /// `muster.inbox.rep.<cell>`
    Rep(CellId),
    /// `muster.inbox.bbs.<id>`
    Bbs(ServiceId),
    /// `muster.inbox.bbs-writer.<id>`: the connection by which it appends to the journal.
    BbsWriter(ServiceId),
    /// `muster.inbox.auctioneer.<id>`
    Auctioneer(ServiceId),
    /// `muster.inbox.auctioneer-reader.<id>`: the connection by which it reads the journal.
    AuctioneerReader(ServiceId),
    /// `muster.inbox.projector.<id>`
    Projector(ServiceId),
}

/// Whose inbox it is, by role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InboxKind {
    /// A client's.
    Client,
    /// An operator's.
    Operator,
    /// An auditor's.
    Auditor,
    /// A gateway's.
    Gateway,
    /// A rep's.
    Rep,
    /// That of a BBS, for what it asks by the bus.
    Bbs,
    /// That of a BBS, for what it asks of the journal.
    BbsWriter,
    /// That of an auctioneer, for what it asks by the bus.
    Auctioneer,
    /// That of an auctioneer, for what it asks of the journal.
    AuctioneerReader,
    /// A projector's.
    Projector,
}

impl InboxKind {
    /// Every one of them.
    pub const ALL: [Self; 10] = [
        Self::Client,
        Self::Operator,
        Self::Auditor,
        Self::Gateway,
        Self::Rep,
        Self::Bbs,
        Self::BbsWriter,
        Self::Auctioneer,
        Self::AuctioneerReader,
        Self::Projector,
    ];

    /// As it stands in the subject.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Operator => "operator",
            Self::Auditor => "auditor",
            Self::Gateway => "gateway",
            Self::Rep => "rep",
            Self::Bbs => "bbs",
            Self::BbsWriter => "bbs-writer",
            Self::Auctioneer => "auctioneer",
            Self::AuctioneerReader => "auctioneer-reader",
            Self::Projector => "projector",
        }
    }
}

impl Inbox {
    /// Whose it is.
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
