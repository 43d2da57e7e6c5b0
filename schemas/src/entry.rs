//! Entries of the journal. An entry is one message with a list of decisions, stored completely or not at all.
//!
//! This module has the entries that the state machines work with. They are stored as JSON, because the log
//! outlives every program and any NATS client must be able to read it. [`crate::stored`] defines the format
//! of that JSON. The tag of an event holds its type and version: `{"actual": {"claimed.v1": {..}}}` is
//! `actual.claimed.v1`.
//!
//! Stored events are never edited. If the format of an event changes, it gets a new version. Events of the
//! old version stay in the log and are converted when they are decoded. The folder `golden/` keeps one file
//! for every version.
//!
//! Every entry, of any format, starts with a checksum of the remaining bytes (`{"crc32c":"0a1b2c3d",..`). The
//! checksum distinguishes a damaged entry from an entry that a newer program wrote.

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

/// Message of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Id of the entry; also the `Nats-Msg-Id` of the message.
    pub id: EntryId,
    /// Format level at which the entry was written.
    pub format: u32,
    /// Decisions of the entry, in order.
    pub decisions: Vec<Decision>,
}

/// Effect of one command on one aggregate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub id: DecisionId,
    /// Aggregate that the decision changes.
    pub aggregate: Aggregate,
    /// Version of the aggregate after the decision.
    pub version: u64,
    /// Time of the decision. It is never earlier than the time of the previous decision of the shard.
    pub at: Timestamp,
    /// Source of the command.
    pub actor: Actor,
    /// Request id that the client chose.
    pub request_id: Option<RequestId>,
    /// Digest of the request: its verb and a hash of its body.
    pub request_digest: Option<String>,
    /// Decision that caused this one. `None` if this decision starts a chain.
    pub cause: Option<DecisionId>,
    /// First decision of the chain, usually a command of a client or an operator.
    pub correlation: DecisionId,
    /// Reason that the client gave.
    pub reason: Option<String>,
    /// W3C trace of the decision.
    pub traceparent: Option<String>,
    /// Events of the decision. Empty if nothing changed and the decision only records the request.
    pub events: Vec<Event>,
}

/// Target of a decision, and the unit of versioning.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aggregate {
    /// A process, in one epoch.
    Process {
        guid: ProcessGuid,
        domain: Domain,
        epoch: Epoch,
    },
    /// A task, in one epoch.
    Task {
        guid: TaskGuid,
        domain: Domain,
        epoch: Epoch,
    },
    /// A periodic task, in one epoch.
    Periodic {
        guid: PeriodicGuid,
        domain: Domain,
        epoch: Epoch,
    },
    /// A parameterised task, in one epoch.
    Parameterised {
        guid: ParameterisedGuid,
        domain: Domain,
        epoch: Epoch,
    },
    Domain(Domain),
    Cell(CellId),
    Cluster,
}

/// Source of a command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Actor {
    /// A client of a domain.
    Client {
        domain: Domain,
        name: ClientName,
    },
    Operator(ClientName),
    /// The rep of a cell.
    Cell(CellId),
    Auctioneer(ServiceId),
    /// A BBS on its own initiative: convergence, a timer, or a lost cell.
    Bbs(ServiceId),
}

/// Event of a state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Event of the desired state of a process.
    Desired(desired::Event),
    /// Event of instances.
    Actual(actual::Event),
    /// Event of an evacuating instance.
    Evacuating(evacuating::Event),
    Rollout(rollout::Event),
    Evaluation(evaluation::Event),
    Task(task::Event),
    Periodic(periodic::Event),
    Parameterised(parameterised::Event),
    Domain(domain::Event),
    Cell(cell::Event),
    Cluster(cluster::Event),
}

impl Event {
    /// Returns the body of the event as JSON, without the two tags that name its type.
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

    /// Returns the event if it belongs to a periodic task.
    #[must_use]
    pub const fn as_periodic(&self) -> Option<&periodic::Event> {
        if let Self::Periodic(event) = self { Some(event) } else { None }
    }

    /// Returns the event if it belongs to a parameterised task.
    #[must_use]
    pub const fn as_parameterised(&self) -> Option<&parameterised::Event> {
        if let Self::Parameterised(event) = self { Some(event) } else { None }
    }

    /// Returns the event if it belongs to a domain.
    #[must_use]
    pub const fn as_domain(&self) -> Option<&domain::Event> {
        if let Self::Domain(event) = self { Some(event) } else { None }
    }

    /// Returns the event if it belongs to an evaluation.
    #[must_use]
    pub const fn as_evaluation(&self) -> Option<&evaluation::Event> {
        if let Self::Evaluation(event) = self { Some(event) } else { None }
    }

    /// Returns the event if it belongs to a cell.
    #[must_use]
    pub const fn as_cell(&self) -> Option<&cell::Event> {
        if let Self::Cell(event) = self { Some(event) } else { None }
    }

    /// Returns the event if it belongs to the cluster.
    #[must_use]
    pub const fn as_cluster(&self) -> Option<&cluster::Event> {
        if let Self::Cluster(event) = self { Some(event) } else { None }
    }
}

/// Metadata of a decision that folds need in addition to its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Id of the decision.
    pub decision: DecisionId,
    /// First decision of the chain.
    pub correlation: DecisionId,
    /// Decision that caused this one. `None` if this decision starts a chain.
    pub cause: Option<DecisionId>,
    /// Time of the decision.
    pub at: Timestamp,
    /// Request that the decision carries out. `None` if the request had no id.
    pub request: Option<Identity>,
}

impl Stamp {
    /// Returns the stamp of a decision that starts a chain and has no request id.
    #[must_use]
    pub const fn root(decision: DecisionId, at: Timestamp) -> Self {
        Self { decision, correlation: decision, cause: None, at, request: None }
    }

    /// Returns the reference by which later decisions name this decision as their cause.
    #[must_use]
    pub const fn cause(&self) -> Cause {
        Cause { decision: self.decision, correlation: self.correlation }
    }
}

impl Decision {
    /// Returns the stamp of the decision.
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
    /// Returns the subject of the aggregate's entries, in a cluster with `shards` shards.
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

    /// Returns the domain of the aggregate. `None` for a cell and for the cluster.
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

    /// Returns the epoch of the aggregate. `None` if the aggregate has no epochs.
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

/// Writes the aggregate in the form that readers of events see: `lrp:GUID`, `task:GUID`, `periodic:GUID`,
/// `parameterised:GUID`, `domain:NAME`, `cell:ID` or `cluster`.
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

/// Writes the actor as one word: `client:DOMAIN/NAME`, `operator:NAME`, `cell:ID`, `auctioneer:ID` or
/// `bbs:ID`.
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

/// Error of decoding an entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The entry has a newer format. The entry is not damaged: this program can read it after an upgrade.
    #[error(
        "entry has format {format}, but this program reads formats up to {}: upgrade this \
             program",
        cluster::FORMAT
    )]
    NewerFormat {
        /// Format level of the entry.
        format: u32,
    },
    /// The entry has an event of an unknown type or version. The entry is not damaged: this program can read
    /// it after an upgrade.
    #[error("entry contains an unknown event ({0}): upgrade this program")]
    UnknownEvent(String),
    /// The bytes of the entry changed after it was written.
    #[error("entry is damaged: stored checksum {written:08x}, computed checksum {found:08x}")]
    Damaged {
        /// Checksum that the entry carries.
        written: u32,
        /// Checksum of the actual bytes.
        found: u32,
    },
    /// The bytes are not an entry.
    #[error("not an entry: {0}")]
    Malformed(String),
}

/// Header of an entry of every format: `{"crc32c":"`, eight hexadecimal digits, `",`. The checksum covers all
/// bytes after the header, so it can be verified without decoding the entry.
const HEADER: &[u8] = br#"{"crc32c":"00000000","#;
/// Range of the digits within the header.
const CHECKSUM_DIGITS: std::ops::Range<usize> = 11..19;

/// Writes the checksum of the body into the [`HEADER`] before it.
fn write_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = crc32c(&bytes[HEADER.len()..]);
    bytes[CHECKSUM_DIGITS].copy_from_slice(format!("{sum:08x}").as_bytes());
    bytes
}

/// Verifies the checksum of an entry.
fn verify_checksum(bytes: &[u8]) -> Result<(), DecodeError> {
    let body = |head: &[u8]| {
        let fixed = [0..CHECKSUM_DIGITS.start, CHECKSUM_DIGITS.end..HEADER.len()];
        let framed = fixed.into_iter().all(|part| head[part.clone()] == HEADER[part]);
        let digits = head[CHECKSUM_DIGITS].iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let digits = std::str::from_utf8(&head[CHECKSUM_DIGITS]).ok().filter(|_| framed && digits)?;
        u32::from_str_radix(digits, 16).ok()
    };
    let written = bytes.get(..HEADER.len()).and_then(body);
    let written =
        written.ok_or_else(|| DecodeError::Malformed("it does not begin with a checksum".into()))?;
    let found = crc32c(&bytes[HEADER.len()..]);
    if written == found { Ok(()) } else { Err(DecodeError::Damaged { written, found }) }
}

impl Entry {
    /// Encodes the entry for the journal.
    ///
    /// # Panics
    /// Never: every part of an entry is plain data with text keys.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = HEADER[..HEADER.len() - 1].to_vec();
        serde_json::to_writer(&mut bytes, self).expect("an entry is plain data");
        // The opening brace of the JSON becomes a comma, because the header already has the brace.
        bytes[HEADER.len() - 1] = b',';
        write_checksum(bytes)
    }

    /// Encodes an entry for the journal from decisions that are already JSON, separated by commas.
    #[must_use]
    pub fn encode_decisions(id: EntryId, decisions: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER.len() + 80 + decisions.len());
        bytes.extend_from_slice(HEADER);
        let head = format!(r#""id":"{id}","format":{},"decisions":["#, cluster::FORMAT);
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(decisions);
        bytes.extend_from_slice(b"]}");
        write_checksum(bytes)
    }

    /// Decodes an entry.
    ///
    /// # Errors
    /// `DecodeError` distinguishes a newer format, an unknown event, damage, and bytes that are not an entry.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > 2 * limits::ENTRY_BYTES {
            return Err(DecodeError::Malformed(format!("{} bytes are too many", bytes.len())));
        }
        verify_checksum(bytes)?;
        match serde_json::from_slice::<Self>(bytes) {
            Ok(entry) if entry.format <= cluster::FORMAT => Ok(entry),
            Ok(entry) => Err(DecodeError::NewerFormat { format: entry.format }),
            Err(failed) => Err(classify_error(bytes, &failed)),
        }
    }
}

/// Returns the aggregates of an entry's decisions without decoding their events. Empty if the bytes are not a
/// readable entry.
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

/// Returns the reason why an undamaged entry cannot be decoded. One possible reason is a newer format: this
/// program can read only the head of such an entry. Another is an event that only a newer program knows.
fn classify_error(bytes: &[u8], failed: &serde_json::Error) -> DecodeError {
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
        Ok(head) if head.format > cluster::FORMAT => return DecodeError::NewerFormat { format: head.format },
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
