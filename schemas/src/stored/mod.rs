//! Stored types: the frozen shape of every version of every event. The stored types are separate from the
//! types that the state machines use.
//!
//! ```text
//! bytes ── decode ──▶ stored::Entry (any version) ───── mirror ──▶ entry::Entry
//! bytes ◀─ encode ─── stored::Entry (newest version) ◀─ mirror ─── entry::Entry
//! ```
//! Because the stored types are frozen, the types of the state machines can change without changing the
//! stored data. A field that exists in only one of the two types does not compile. Total functions
//! (`mirror::Mirror`) convert every stored version to the current event, and the current event to the newest
//! stored version. Clients that read events (`events.read`) receive the newest stored version, too. Simple
//! values (names, ids, times, sets of indices) and enums without content have one representation, which
//! stored types and current types share. Tests compare the words of these enums with a frozen list.
//!
//! | module | events |
//! |---|---|
//! | [`process`] | desired state, instances, evacuating instances |
//! | [`evaluation`] | evaluations |
//! | [`task`] | tasks |
//! | [`periodic`] | periodic tasks |
//! | [`parameterised`] | parameterised tasks |
//! | [`cell`] | cells and domains |
//! | [`cluster`] | the cluster |
//! | [`parts`] | no events: types that the other modules share |

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::container::Epoch;
use crate::names::{
    CellId, ClientName, DecisionId, Domain, EntryId, ParameterisedGuid, PeriodicGuid, ProcessGuid, RequestId,
    ServiceId, TaskGuid,
};
use crate::{Timestamp, entry, stamp};

pub mod cell;
pub mod cluster;
mod encoding;
pub mod evaluation;
mod mirror;
pub mod parameterised;
pub mod parts;
pub mod periodic;
pub mod process;
mod rollout;
pub mod task;

pub use encoding::{DecodeError, aggregates};
use mirror::{Mirror, mirror};

/// A message of the journal, in format 1.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = describe_checksum)]
pub struct Entry {
    /// Id of the entry, and the `Nats-Msg-Id` of the message.
    pub id: EntryId,
    /// Format level at which the entry was written.
    pub format: u32,
    /// Decisions in order.
    pub decisions: Vec<Decision>,
}
mirror!(struct Entry = entry::Entry { id, format, decisions });

/// Adds the checksum to the schema. The checksum precedes an entry in the journal and exists nowhere else.
fn describe_checksum(schema: &mut Schema) {
    let what = "First field of an entry in the journal: CRC-32C, in hexadecimal, of all bytes after the comma that \
         follows it.";
    let checksum = json!({"type": "string", "pattern": "^[0-9a-f]{8}$", "description": what});
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("crc32c".into(), checksum);
    }
}

/// The effect of one command on one aggregate.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// Id of the decision.
    pub id: DecisionId,
    /// Aggregate that the decision changes.
    pub aggregate: Aggregate,
    /// Version of the aggregate after the decision.
    pub version: u64,
    /// Time of the decision. Never earlier than the time of the previous decision of the shard.
    pub at: Timestamp,
    /// Origin of the command.
    pub actor: Actor,
    /// Request id chosen by the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// Digest of the request: its verb and a hash of its body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_digest: Option<String>,
    /// Decision that caused this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<DecisionId>,
    /// First decision of the chain of causes, usually the command of a client or an operator.
    pub correlation: DecisionId,
    /// Reason given by the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// W3C trace context of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Events of the decision. Empty if nothing changed; the decision then only records the request.
    pub events: Vec<Event>,
}
mirror!(struct Decision = entry::Decision {
    id, aggregate, version, at, actor, request_id, request_digest, cause, correlation, reason, traceparent, events,
});

/// The target of a decision: the unit of versioning.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Aggregate {
    /// A process, in one of its epochs.
    Process {
        /// GUID of the process.
        guid: ProcessGuid,
        /// Domain of the process.
        domain: Domain,
        /// Epoch of the process.
        epoch: Epoch,
    },
    /// A task, in one of its epochs.
    Task {
        /// GUID of the task.
        guid: TaskGuid,
        /// Domain of the task.
        domain: Domain,
        /// Epoch of the task.
        epoch: Epoch,
    },
    /// A periodic task, in one of its epochs.
    Periodic {
        /// GUID of the periodic task.
        guid: PeriodicGuid,
        /// Domain of the periodic task.
        domain: Domain,
        /// Epoch of the periodic task.
        epoch: Epoch,
    },
    /// A parameterised task, in one of its epochs.
    Parameterised {
        /// GUID of the parameterised task.
        guid: ParameterisedGuid,
        /// Domain of the parameterised task.
        domain: Domain,
        /// Epoch of the parameterised task.
        epoch: Epoch,
    },
    /// A domain.
    Domain(Domain),
    /// A cell.
    Cell(CellId),
    /// The cluster.
    Cluster,
}
mirror!(enum Aggregate = entry::Aggregate {
    Process { guid, domain, epoch }, Task { guid, domain, epoch }, Periodic { guid, domain, epoch },
    Parameterised { guid, domain, epoch }, Domain(domain), Cell(cell), Cluster,
});

impl From<Aggregate> for entry::Aggregate {
    fn from(stored: Aggregate) -> Self {
        stored.mirror()
    }
}

/// The origin of a command.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// A client of a domain.
    Client {
        /// Domain of the client.
        domain: Domain,
        /// Name of the client.
        name: ClientName,
    },
    /// An operator of the cluster.
    Operator(ClientName),
    /// The rep of a cell.
    Cell(CellId),
    /// An auctioneer.
    Auctioneer(ServiceId),
    /// A BBS without a request: convergence, a timer, or a lost cell.
    Bbs(ServiceId),
}
mirror!(enum Actor = stamp::Actor {
    Client { domain, name }, Operator(name), Cell(cell), Auctioneer(id), Bbs(id),
});

/// An event of one of the state machines, in any version.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// An event of the desired state of a process.
    Desired(process::Desired),
    /// An event of instances.
    Actual(process::Actual),
    /// An event of an evacuating instance.
    Evacuating(process::Evacuating),
    /// An event of a rollout.
    Rollout(rollout::Rollout),
    /// An event of an evaluation.
    Evaluation(evaluation::Evaluation),
    /// An event of a task.
    Task(task::Task),
    /// An event of a periodic task.
    Periodic(periodic::Periodic),
    /// An event of a parameterised task.
    Parameterised(parameterised::Parameterised),
    /// An event of a domain.
    Domain(cell::Domain),
    /// An event of a cell.
    Cell(cell::Cell),
    /// An event of the cluster.
    Cluster(cluster::Cluster),
}
mirror!(enum Event = entry::Event {
    Desired(event), Actual(event), Evacuating(event), Rollout(event), Evaluation(event), Task(event),
    Periodic(event), Parameterised(event), Domain(event), Cell(event), Cluster(event),
});

impl Event {
    /// Every event type that this program can read.
    pub const TYPES: &'static [&'static str] = &[
        "desired.desired.v1",
        "desired.updated.v1",
        "desired.definition_added.v1",
        "desired.activated.v1",
        "desired.healthy_changed.v1",
        "desired.pruned.v1",
        "desired.cells_changed.v1",
        "desired.removed.v1",
        "actual.created.v1",
        "actual.claimed.v1",
        "actual.started.v1",
        "actual.crashed.v1",
        "actual.placement_failed.v1",
        "actual.unclaimed.v1",
        "actual.stop_requested.v1",
        "actual.removed.v1",
        "actual.exec_started.v1",
        "evacuating.set.v1",
        "evacuating.removed.v1",
        "rollout.started.v1",
        "rollout.indices_started.v1",
        "rollout.fell_back.v1",
        "rollout.took_over.v1",
        "rollout.replaced.v1",
        "rollout.failed.v1",
        "rollout.stalled.v1",
        "rollout.paused.v1",
        "rollout.resumed.v1",
        "rollout.completed.v1",
        "evaluation.created.v1",
        "evaluation.joined.v1",
        "evaluation.delay_changed.v1",
        "evaluation.due.v1",
        "evaluation.redelivered.v1",
        "evaluation.blocked.v1",
        "evaluation.completed.v1",
        "evaluation.failed.v1",
        "evaluation.canceled.v1",
        "evaluation.retried.v1",
        "task.desired.v1",
        "task.started.v1",
        "task.placement_failed.v1",
        "task.completed.v1",
        "task.resolving.v1",
        "task.callback_tried.v1",
        "task.demoted.v1",
        "task.deleted.v1",
        "periodic.desired.v1",
        "periodic.updated.v1",
        "periodic.launched.v1",
        "periodic.skipped.v1",
        "periodic.queued.v1",
        "periodic.paused.v1",
        "periodic.resumed.v1",
        "periodic.removed.v1",
        "parameterised.desired.v1",
        "parameterised.updated.v1",
        "parameterised.dispatched.v1",
        "parameterised.repeated.v1",
        "parameterised.launched.v1",
        "parameterised.withdrawn.v1",
        "parameterised.removed.v1",
        "domain.refreshed.v1",
        "domain.limited.v1",
        "cell.appeared.v1",
        "cell.evacuation_requested.v1",
        "cell.evacuation_withdrawn.v1",
        "cell.cordoned.v1",
        "cell.uncordoned.v1",
        "cell.evacuating.v1",
        "cell.resumed.v1",
        "cell.left.v1",
        "cell.forgotten.v1",
        "cell.healthy.v1",
        "cell.unhealthy.v1",
        "cell.disappeared.v1",
        "cluster.founded.v1",
        "cluster.elected.v1",
        "cluster.ordinal_assigned.v1",
        "cluster.ordinal_freed.v1",
        "cluster.format_raised.v1",
        "cluster.preemption_switched.v1",
        "cluster.resharded.v1",
        "cluster.entry_quarantined.v1",
    ];
}

impl entry::Event {
    /// Returns the event type with its stored version, such as `actual.claimed.v1`.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Desired(event) => process::Desired::type_name(event),
            Self::Actual(event) => process::Actual::type_name(event),
            Self::Evacuating(event) => process::Evacuating::type_name(event),
            Self::Rollout(event) => rollout::Rollout::type_name(event),
            Self::Evaluation(event) => evaluation::Evaluation::type_name(event),
            Self::Task(event) => task::Task::type_name(event),
            Self::Periodic(event) => periodic::Periodic::type_name(event),
            Self::Parameterised(event) => parameterised::Parameterised::type_name(event),
            Self::Domain(event) => cell::Domain::type_name(event),
            Self::Cell(event) => cell::Cell::type_name(event),
            Self::Cluster(event) => cluster::Cluster::type_name(event),
        }
    }
}

/// Implements serialization and schemas of the current types through their stored types.
macro_rules! stored_as {
    ($($today:ident),*) => {
        $(impl Serialize for entry::$today {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let stored: $today = self.clone().mirror();
                stored.serialize(to)
            }
        }

        impl<'de> Deserialize<'de> for entry::$today {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $today::deserialize(from).map(Mirror::mirror)
            }
        }

        impl JsonSchema for entry::$today {
            fn schema_name() -> Cow<'static, str> {
                $today::schema_name()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                $today::json_schema(generator)
            }
        })*
    };
}

stored_as!(Entry, Decision, Event);

#[cfg(test)]
mod tests;
