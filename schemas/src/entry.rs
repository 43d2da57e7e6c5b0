//! Entries: what the journal holds. One message, all or nothing: a list of decisions.
//!
//! Entries are JSON, because the log outlives every program and any NATS client must be able to read it. An event's
//! type and version stand in its tag: `{"actual": {"claimed.v1": {..}}}` is `actual.claimed.v1`. Events are never
//! edited: a new shape is a new variant beside the old one, upcast when it is decoded, and `golden/` holds one file of
//! every version for ever.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::container::Epoch;
use crate::names::{
    CellId, ClientName, DecisionId, Domain, EntryId, ProcessGuid, RequestId, ServiceId, TaskGuid,
};
use crate::subject::Subject;
use crate::{Timestamp, actual, cell, cluster, desired, domain, evacuating, evaluation, limits, task};

/// One message of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// Names it; also the message's `Nats-Msg-Id`.
    pub id: EntryId,
    /// The format level at which it was written.
    pub format: u32,
    /// What was decided, in order.
    pub decisions: Vec<Decision>,
}

/// What one command did to one aggregate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// What the asker called the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// The decision that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<DecisionId>,
    /// The first decision of the chain: a human's or a client's command, mostly.
    pub correlation: DecisionId,
    /// Why, in the asker's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The W3C trace that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// What happened. Empty: it was so already, and the request is remembered.
    pub events: Vec<Event>,
}

/// What a decision is about: the unit of versions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
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
    /// A domain.
    Domain(Domain),
    /// A cell.
    Cell(CellId),
    /// The cluster.
    Cluster,
}

/// Who asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// A client of a domain.
    Client {
        /// The domain.
        domain: Domain,
        /// Its name.
        name: ClientName,
    },
    /// A rep.
    Cell(CellId),
    /// An auctioneer.
    Auctioneer(ServiceId),
    /// A BBS by itself: convergence, a timer, a lost cell.
    Bbs(ServiceId),
}

/// What happened: an event of one of the machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// To the desired side of a process.
    Desired(desired::Event),
    /// To instances.
    Actual(actual::Event),
    /// To an evacuating record.
    Evacuating(evacuating::Event),
    /// To an evaluation.
    Evaluation(evaluation::Event),
    /// To a task.
    Task(task::Event),
    /// To a domain.
    Domain(domain::Event),
    /// To a cell.
    Cell(cell::Event),
    /// To the cluster.
    Cluster(cluster::Event),
}

/// What folding needs of a decision beside its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Which decision.
    pub decision: DecisionId,
    /// The first of its chain.
    pub correlation: DecisionId,
    /// When.
    pub at: Timestamp,
    /// What the asker called the request.
    pub request: Option<RequestId>,
}

impl Decision {
    /// What folding needs of it beside its events.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        Stamp {
            decision: self.id,
            correlation: self.correlation,
            at: self.at,
            request: self.request_id.clone(),
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
            Self::Domain(domain) => Subject::Domain(domain.clone()),
            Self::Cell(cell) => Subject::Cell(cell.clone()),
            Self::Cluster => Subject::Cluster,
        }
    }
}

/// Why bytes of the journal are no entry that this program understands.
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
    /// No entry at all.
    #[error("not an entry: {0}")]
    Malformed(String),
}

impl Entry {
    /// The entry as the journal keeps it.
    ///
    /// # Panics
    /// Never: every part of an entry is plain data with text keys.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an entry is plain data")
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// `DecodeError` tells a newer format, an unknown event and garbage apart.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        if bytes.len() > 2 * limits::ENTRY_BYTES {
            return Err(DecodeError::Malformed(format!("{} bytes are too many", bytes.len())));
        }
        let failed = match serde_json::from_slice::<Self>(bytes) {
            Ok(entry) if entry.format <= cluster::FORMAT => return Ok(entry),
            Ok(entry) => return Err(DecodeError::Future { format: entry.format }),
            Err(failed) => failed,
        };
        match serde_json::from_slice::<Head>(bytes) {
            Ok(head) if head.format > cluster::FORMAT => Err(DecodeError::Future { format: head.format }),
            Ok(_) if failed.to_string().starts_with("unknown variant") => {
                Err(DecodeError::UnknownEvent(failed.to_string()))
            }
            Ok(_) | Err(_) => Err(DecodeError::Malformed(failed.to_string())),
        }
    }
}

impl Entry {
    /// Reads an entry of a cluster that stands at this format level. Nobody writes above that, so what looks newer and
    /// otherwise is as it always was is damaged, not new.
    ///
    /// # Errors
    /// As [`Entry::decode`]; what is damaged is `Malformed`.
    pub fn decode_at(level: u32, bytes: &[u8]) -> Result<Self, DecodeError> {
        let error = match Self::decode(bytes) {
            Ok(entry) => return Ok(entry),
            Err(error) => error,
        };
        match &error {
            DecodeError::Future { format }
                if *format > level && serde_json::from_slice::<Self>(bytes).is_ok() =>
            {
                Err(DecodeError::Malformed(format!("it names format {format}, the cluster is at {level}")))
            }
            DecodeError::UnknownEvent(why) if is_damaged(why) => Err(DecodeError::Malformed(why.clone())),
            DecodeError::Future { .. } | DecodeError::UnknownEvent(_) | DecodeError::Malformed(_) => {
                Err(error)
            }
        }
    }
}

/// Whether an unknown name is a known one with one byte changed, or no name at all: damage, not a later program's word.
/// Another version of a known name is a word. `why` is what serde says: the unknown name and then the known ones, each
/// between backticks.
fn is_damaged(why: &str) -> bool {
    let Some((unknown, known)) =
        why.strip_prefix("unknown variant `").and_then(|why| why.split_once("`, expected"))
    else {
        return true;
    };
    let is_word = unknown.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
    !is_word || known.split('`').skip(1).step_by(2).any(|known| is_one_byte_off(unknown, known))
}

/// Whether two names of one length and one version differ in one byte.
fn is_one_byte_off(one: &str, two: &str) -> bool {
    let version = |name: &str| name.rsplit_once(".v").and_then(|(_, version)| version.parse::<u32>().ok());
    let differ = one.bytes().zip(two.bytes()).filter(|(one, two)| one != two).count();
    let (one_version, two_version) = (version(one), version(two));
    let other_version = one_version.is_some_and(|version| version > 0) && one_version != two_version;
    one.len() == two.len() && differ == 1 && !other_version
}

impl Event {
    /// Its type with its version, as it stands in the log: `actual.claimed.v1`.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Desired(event) => match event {
                desired::Event::Desired(_) => "desired.desired.v1",
                desired::Event::Updated(_) => "desired.updated.v1",
                desired::Event::Removed {} => "desired.removed.v1",
            },
            Self::Actual(event) => match event {
                actual::Event::Created { .. } => "actual.created.v1",
                actual::Event::Claimed { .. } => "actual.claimed.v1",
                actual::Event::Started { .. } => "actual.started.v1",
                actual::Event::Crashed { .. } => "actual.crashed.v1",
                actual::Event::PlacementFailed { .. } => "actual.placement_failed.v1",
                actual::Event::Unclaimed { .. } => "actual.unclaimed.v1",
                actual::Event::StopRequested { .. } => "actual.stop_requested.v1",
                actual::Event::Removed { .. } => "actual.removed.v1",
            },
            Self::Evacuating(event) => match event {
                evacuating::Event::Set { .. } => "evacuating.set.v1",
                evacuating::Event::Removed { .. } => "evacuating.removed.v1",
            },
            Self::Evaluation(event) => match event {
                evaluation::Event::Created { .. } => "evaluation.created.v1",
                evaluation::Event::Blocked { .. } => "evaluation.blocked.v1",
                evaluation::Event::Completed {} => "evaluation.completed.v1",
                evaluation::Event::Failed { .. } => "evaluation.failed.v1",
                evaluation::Event::Canceled {} => "evaluation.canceled.v1",
            },
            Self::Task(event) => match event {
                task::Event::Desired(_) => "task.desired.v1",
                task::Event::Started { .. } => "task.started.v1",
                task::Event::PlacementFailed { .. } => "task.placement_failed.v1",
                task::Event::Completed { .. } => "task.completed.v1",
                task::Event::Resolving {} => "task.resolving.v1",
                task::Event::Demoted {} => "task.demoted.v1",
                task::Event::Deleted {} => "task.deleted.v1",
            },
            Self::Domain(domain::Event::Refreshed { .. }) => "domain.refreshed.v1",
            Self::Cell(event) => match event {
                cell::Event::Appeared(_) => "cell.appeared.v1",
                cell::Event::Evacuating {} => "cell.evacuating.v1",
                cell::Event::Healthy {} => "cell.healthy.v1",
                cell::Event::Unhealthy { .. } => "cell.unhealthy.v1",
                cell::Event::Disappeared { .. } => "cell.disappeared.v1",
            },
            Self::Cluster(event) => match event {
                cluster::Event::Founded { .. } => "cluster.founded.v1",
                cluster::Event::Elected { .. } => "cluster.elected.v1",
                cluster::Event::FormatRaised { .. } => "cluster.format_raised.v1",
            },
        }
    }
}
