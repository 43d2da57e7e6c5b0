//! Entries: what the journal holds. One message, all or nothing: a list of decisions.
//!
//! These are the entries that the machines work with. Entries are stored as JSON, because the log outlives every program
//! and any NATS client must be able to read it; the shapes of that JSON are in [`crate::stored`]. An event's type and
//! version stand in its tag: `{"actual": {"claimed.v1": {..}}}` is `actual.claimed.v1`. Stored events are never edited:
//! a new shape is a new version beside the old one, upcast when it is decoded, and `golden/` holds one file of every
//! version for ever. Every entry begins with a checksum of the rest of it (`{"crc32c":"0a1b2c3d",..`), whatever
//! its format: what was damaged is told from what a later program wrote.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use crate::cause::Cause;
use crate::checksum::crc32c;
use crate::container::Epoch;
use crate::names::{
    CellId, ClientName, DecisionId, Domain, EntryId, ParameterisedGuid, PeriodicGuid, ProcessGuid, RequestId,
    ServiceId, TaskGuid,
};
use crate::request::Identity;
use crate::subject::Subject;
use crate::{
    Timestamp, actual, cell, cluster, desired, domain, evacuating, evaluation, limits, parameterised,
    periodic, rollout, stored, task,
};

/// One message of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Names it; also the message's `Nats-Msg-Id`.
    pub id: EntryId,
    /// The format level at which it was written.
    pub format: u32,
    /// What was decided, in order.
    pub decisions: Vec<Decision>,
}

/// What one command did to one aggregate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Names it.
    pub id: DecisionId,
    /// What it is about.
    pub aggregate: Aggregate,
    /// The aggregate's version after it.
    pub version: u64,
    /// When it was made; never before the shard's last one.
    pub at: Timestamp,
    /// Who asked.
    pub actor: Actor,
    /// What the requester called the request.
    pub request_id: Option<RequestId>,
    /// What the request asked: its verb, and a hash of its body.
    pub request_digest: Option<String>,
    /// The decision that caused it.
    pub cause: Option<DecisionId>,
    /// The first decision of the chain: a human's or a client's command, mostly.
    pub correlation: DecisionId,
    /// Why, in the requester's words.
    pub reason: Option<String>,
    /// The W3C trace that it belongs to.
    pub traceparent: Option<String>,
    /// What happened. Empty: it was so already, and the request is remembered.
    pub events: Vec<Event>,
}

/// What a decision is about: the unit of versions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aggregate {
    /// A process, in one of its lives.
    Process {
        /// Its name.
        guid: ProcessGuid,
        /// Its domain.
        domain: Domain,
        /// Which life.
        epoch: Epoch,
    },
    /// A task, in one of its lives.
    Task {
        /// Its name.
        guid: TaskGuid,
        /// Its domain.
        domain: Domain,
        /// Which life.
        epoch: Epoch,
    },
    /// A periodic task, in one of its lives.
    Periodic {
        /// Its name.
        guid: PeriodicGuid,
        /// Its domain.
        domain: Domain,
        /// Which life.
        epoch: Epoch,
    },
    /// A parameterised task, in one of its lives.
    Parameterised {
        /// Its name.
        guid: ParameterisedGuid,
        /// Its domain.
        domain: Domain,
        /// Which life.
        epoch: Epoch,
    },
    /// A domain.
    Domain(Domain),
    /// A cell.
    Cell(CellId),
    /// The cluster.
    Cluster,
}

/// Who asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Actor {
    /// A client of a domain.
    Client {
        /// The domain.
        domain: Domain,
        /// Its name.
        name: ClientName,
    },
    /// An operator of the cluster.
    Operator(ClientName),
    /// A rep.
    Cell(CellId),
    /// An auctioneer.
    Auctioneer(ServiceId),
    /// A BBS by itself: convergence, a timer, a lost cell.
    Bbs(ServiceId),
}

/// What happened: an event of one of the machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// To the desired side of a process.
    Desired(desired::Event),
    /// To instances.
    Actual(actual::Event),
    /// To an evacuating record.
    Evacuating(evacuating::Event),
    /// To a rollout.
    Rollout(rollout::Event),
    /// To an evaluation.
    Evaluation(evaluation::Event),
    /// To a task.
    Task(task::Event),
    /// To a periodic task.
    Periodic(periodic::Event),
    /// To a parameterised task.
    Parameterised(parameterised::Event),
    /// To a domain.
    Domain(domain::Event),
    /// To a cell.
    Cell(cell::Event),
    /// To the cluster.
    Cluster(cluster::Event),
}

impl Event {
    /// What happened, as JSON: what stands within the two tags that name its type.
    ///
    /// # Panics
    /// Never: an event is plain data with text keys.
    #[must_use]
    pub fn body(&self) -> String {
        let json = serde_json::to_string(self).expect("an event is plain data");
        let tags = self.type_name().split_once('.');
        let within = tags.and_then(|(machine, tag)| {
            json.strip_prefix(&format!("{{\"{machine}\":{{\"{tag}\":"))?.strip_suffix("}}")
        });
        within.map_or_else(|| json.clone(), str::to_owned)
    }

    /// What happened to a periodic task, if to one.
    #[must_use]
    pub const fn as_periodic(&self) -> Option<&periodic::Event> {
        if let Self::Periodic(event) = self { Some(event) } else { None }
    }

    /// What happened to a parameterised task, if to one.
    #[must_use]
    pub const fn as_parameterised(&self) -> Option<&parameterised::Event> {
        if let Self::Parameterised(event) = self { Some(event) } else { None }
    }

    /// What happened to a domain, if to one.
    #[must_use]
    pub const fn as_domain(&self) -> Option<&domain::Event> {
        if let Self::Domain(event) = self { Some(event) } else { None }
    }

    /// What happened to an evaluation, if to one.
    #[must_use]
    pub const fn as_evaluation(&self) -> Option<&evaluation::Event> {
        if let Self::Evaluation(event) = self { Some(event) } else { None }
    }

    /// What happened to a cell, if to one.
    #[must_use]
    pub const fn as_cell(&self) -> Option<&cell::Event> {
        if let Self::Cell(event) = self { Some(event) } else { None }
    }

    /// What happened to the cluster, if to it.
    #[must_use]
    pub const fn as_cluster(&self) -> Option<&cluster::Event> {
        if let Self::Cluster(event) = self { Some(event) } else { None }
    }
}

/// What folding needs of a decision beside its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Which decision.
    pub decision: DecisionId,
    /// The first of its chain.
    pub correlation: DecisionId,
    /// The decision that brought it about; none: it begins a chain.
    pub cause: Option<DecisionId>,
    /// When.
    pub at: Timestamp,
    /// The request that it carries out, if its requester named it.
    pub request: Option<Identity>,
}

impl Stamp {
    /// Of a decision that begins a chain, and that nobody named.
    #[must_use]
    pub const fn beginning(decision: DecisionId, at: Timestamp) -> Self {
        Self { decision, correlation: decision, cause: None, at, request: None }
    }

    /// The decision as what follows from it names it.
    #[must_use]
    pub const fn cause(&self) -> Cause {
        Cause { decision: self.decision, correlation: self.correlation }
    }
}

impl Decision {
    /// What folding needs of it beside its events.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        Stamp {
            decision: self.id,
            correlation: self.correlation,
            cause: self.cause,
            at: self.at,
            request: self.request_id.clone().map(|id| Identity {
                actor: self.actor.clone(),
                id,
                digest: self.request_digest.clone(),
            }),
        }
    }
}

impl Aggregate {
    /// The subject that holds its entries, in a cluster with `shards` shards.
    #[must_use]
    pub fn subject(&self, shards: u16) -> Subject {
        match self {
            Self::Process { guid, .. } => Subject::of_process(guid, shards),
            Self::Task { guid, .. } => Subject::of_task(guid, shards),
            Self::Periodic { guid, .. } => Subject::of_periodic(guid, shards),
            Self::Parameterised { guid, .. } => Subject::of_parameterised(guid, shards),
            Self::Domain(domain) => Subject::Domain(domain.clone()),
            Self::Cell(cell) => Subject::Cell(cell.clone()),
            Self::Cluster => Subject::Cluster,
        }
    }

    /// Its domain; none: it is of none.
    #[must_use]
    pub const fn domain(&self) -> Option<&Domain> {
        match self {
            Self::Process { domain, .. }
            | Self::Task { domain, .. }
            | Self::Periodic { domain, .. }
            | Self::Parameterised { domain, .. }
            | Self::Domain(domain) => Some(domain),
            Self::Cell(_) | Self::Cluster => None,
        }
    }

    /// Its life. `None` if it has only one.
    #[must_use]
    pub const fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::Process { epoch, .. }
            | Self::Task { epoch, .. }
            | Self::Periodic { epoch, .. }
            | Self::Parameterised { epoch, .. } => Some(*epoch),
            Self::Domain(_) | Self::Cell(_) | Self::Cluster => None,
        }
    }
}

/// As readers of events name it: `lrp:GUID`, `task:GUID`, `periodic:GUID`, `parameterised:GUID`, `domain:NAME`, `cell:ID`
/// or `cluster`.
impl fmt::Display for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { guid, .. } => write!(f, "lrp:{guid}"),
            Self::Task { guid, .. } => write!(f, "task:{guid}"),
            Self::Periodic { guid, .. } => write!(f, "periodic:{guid}"),
            Self::Parameterised { guid, .. } => write!(f, "parameterised:{guid}"),
            Self::Domain(domain) => write!(f, "domain:{domain}"),
            Self::Cell(cell) => write!(f, "cell:{cell}"),
            Self::Cluster => f.write_str("cluster"),
        }
    }
}

/// In one word: `client:DOMAIN/NAME`, `operator:NAME`, `cell:ID`, `auctioneer:ID` or `bbs:ID`.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client { domain, name } => write!(f, "client:{domain}/{name}"),
            Self::Operator(name) => write!(f, "operator:{name}"),
            Self::Cell(cell) => write!(f, "cell:{cell}"),
            Self::Auctioneer(id) => write!(f, "auctioneer:{id}"),
            Self::Bbs(id) => write!(f, "bbs:{id}"),
        }
    }
}

/// Why bytes of the journal are not an entry that this program understands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Written at a level that this program doesn't read: it has to be upgraded. Nothing is lost.
    #[error("entry is of format {format}, this program reads up to {}: upgrade it", cluster::FORMAT)]
    Future {
        /// The level.
        format: u32,
    },
    /// An event of an unknown type or version: this program has to be upgraded. Nothing is lost.
    #[error("entry holds an event that this program does not know ({0}): upgrade it")]
    UnknownEvent(String),
    /// An entry whose bytes changed since it was written.
    #[error("entry is damaged: its checksum says {written:08x}, its bytes give {found:08x}")]
    Damaged {
        /// The checksum that it carries.
        written: u32,
        /// The checksum of what is there.
        found: u32,
    },
    /// No entry at all.
    #[error("not an entry: {0}")]
    Malformed(String),
}

/// How every entry of every format begins: `{"crc32c":"`, eight hexadecimal digits, `",`. The checksum is over all that
/// follows, so that nobody has to understand an entry to know that it is as it was written.
const SEAL: &[u8] = br#"{"crc32c":"00000000","#;
/// Where in it the digits stand.
const DIGITS: std::ops::Range<usize> = 11..19;

/// Writes the checksum over a body into the [`SEAL`] before it.
fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = crc32c(&bytes[SEAL.len()..]);
    bytes[DIGITS].copy_from_slice(format!("{sum:08x}").as_bytes());
    bytes
}

/// Checks that an entry is as it was written.
fn check_seal(bytes: &[u8]) -> Result<(), DecodeError> {
    let body = |head: &[u8]| {
        let fixed = [0..DIGITS.start, DIGITS.end..SEAL.len()];
        let framed = fixed.into_iter().all(|part| head[part.clone()] == SEAL[part]);
        let digits = head[DIGITS].iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let digits = std::str::from_utf8(&head[DIGITS]).ok().filter(|_| framed && digits)?;
        u32::from_str_radix(digits, 16).ok()
    };
    let written = bytes.get(..SEAL.len()).and_then(body);
    let written =
        written.ok_or_else(|| DecodeError::Malformed("it does not begin with a checksum".into()))?;
    let found = crc32c(&bytes[SEAL.len()..]);
    if written == found { Ok(()) } else { Err(DecodeError::Damaged { written, found }) }
}

impl Entry {
    /// The entry as the journal keeps it.
    ///
    /// # Panics
    /// Never: every part of an entry is plain data with text keys.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = SEAL[..SEAL.len() - 1].to_vec();
        serde_json::to_writer(&mut bytes, self).expect("an entry is plain data");
        // Where the entry would open by itself it goes on behind its checksum.
        bytes[SEAL.len() - 1] = b',';
        seal(bytes)
    }

    /// An entry as the journal keeps it, from decisions that are JSON already, with commas between.
    #[must_use]
    pub fn encode_decisions(id: EntryId, decisions: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SEAL.len() + 80 + decisions.len());
        bytes.extend_from_slice(SEAL);
        let head = format!(r#""id":"{id}","format":{},"decisions":["#, cluster::FORMAT);
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(decisions);
        bytes.extend_from_slice(b"]}");
        seal(bytes)
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// `DecodeError` tells a newer format, an unknown event, damage and garbage apart.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > 2 * limits::ENTRY_BYTES {
            return Err(DecodeError::Malformed(format!("{} bytes are too many", bytes.len())));
        }
        check_seal(bytes)?;
        match serde_json::from_slice::<Self>(bytes) {
            Ok(entry) if entry.format <= cluster::FORMAT => Ok(entry),
            Ok(entry) => Err(DecodeError::Future { format: entry.format }),
            Err(failed) => Err(unreadable(bytes, &failed)),
        }
    }
}

/// What the decisions of an entry are about, whatever was decided; nothing of what is no entry that this program can read.
#[must_use]
pub fn aggregates(bytes: &[u8]) -> Vec<Aggregate> {
    #[derive(Deserialize)]
    struct Head {
        decisions: Vec<About>,
    }
    #[derive(Deserialize)]
    struct About {
        aggregate: stored::Aggregate,
    }
    let head = serde_json::from_slice::<Head>(bytes);
    head.map_or_else(|_| vec![], |head| head.decisions.into_iter().map(|one| one.aggregate.into()).collect())
}

/// Why an undamaged entry can't be read. It may be of a later format, of which only the head is known, or hold an event
/// of a later program.
fn unreadable(bytes: &[u8], failed: &serde_json::Error) -> DecodeError {
    #[derive(Deserialize)]
    struct Head {
        format: u32,
    }
    #[derive(Deserialize)]
    struct Decisions {
        decisions: Vec<Events>,
    }
    #[derive(Deserialize)]
    struct Events {
        events: Vec<BTreeMap<String, BTreeMap<String, serde::de::IgnoredAny>>>,
    }
    match serde_json::from_slice::<Head>(bytes) {
        Ok(head) if head.format > cluster::FORMAT => return DecodeError::Future { format: head.format },
        Ok(_) => {}
        Err(error) => return DecodeError::Malformed(error.to_string()),
    }
    let names = serde_json::from_slice::<Decisions>(bytes).map(|entry| {
        let events = entry.decisions.into_iter().flat_map(|decision| decision.events);
        let types = events
            .flatten()
            .flat_map(|(machine, tags)| tags.into_keys().map(move |tag| format!("{machine}.{tag}")));
        types.collect::<Vec<String>>()
    });
    let unknown =
        names.unwrap_or_default().into_iter().find(|name| !stored::Event::TYPES.contains(&name.as_str()));
    unknown.map_or_else(|| DecodeError::Malformed(failed.to_string()), DecodeError::UnknownEvent)
}
