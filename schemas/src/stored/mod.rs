//! Stored types: the frozen shape of every version of every event. The stored types are separate from the
//! types that the state machines use.
//!
//! ```text
//! bytes ── decode ──▶ stored::Entry (any version) ── read ──▶ entry::Entry
//! bytes ◀──────────── write, by reference ─────────────────── entry::Entry
//! ```
//! Because the stored types are frozen, the types of the state machines can change without changing the
//! stored data. A field that exists in only one of the two types does not compile. Each stored type converts
//! its versions to the current type, and writes the current type in the newest version, by reference
//! (`conversion::Stored`). Clients that read events (`events.read`) receive the newest stored version, too.
//! Simple values (names, ids, times, sets of indices) and enums without content have one representation, which
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
mod conversion;
mod encoding;
pub mod evaluation;
pub mod parameterised;
pub mod parts;
pub mod periodic;
pub mod process;
mod rollout;
pub mod task;

use conversion::{By, Stored, stored};
pub use encoding::{DecodeError, aggregates};

stored! {
    /// A message of the journal, in format 1.
    #[schemars(transform = describe_checksum)]
    pub struct Entry = entry::Entry {
        /// Id of the entry, and the `Nats-Msg-Id` of the message.
        pub id: EntryId,
        /// Format level at which the entry was written.
        pub format: u32,
        /// Decisions in order.
        pub decisions: Vec<Decision>,
    }
}

/// Adds the checksum to the schema. The checksum precedes an entry in the journal and exists nowhere else.
fn describe_checksum(schema: &mut Schema) {
    let what = "First field of an entry in the journal: CRC-32C, in hexadecimal, of all bytes after the comma that \
         follows it.";
    let checksum = json!({"type": "string", "pattern": "^[0-9a-f]{8}$", "description": what});
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("crc32c".into(), checksum);
    }
}

stored! {
    /// The effect of one command on one aggregate.
    pub struct Decision = entry::Decision {
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
        #[serde(default)]
        #[written(skip_serializing_if = "By::is_default")]
        pub request_id: Option<RequestId>,
        /// Digest of the request: its verb and a hash of its body.
        #[serde(default)]
        #[written(skip_serializing_if = "By::is_default")]
        pub request_digest: Option<String>,
        /// Decision that caused this one.
        #[serde(default)]
        #[written(skip_serializing_if = "By::is_default")]
        pub cause: Option<DecisionId>,
        /// First decision of the chain of causes, usually the command of a client or an operator.
        pub correlation: DecisionId,
        /// Reason given by the client.
        #[serde(default)]
        #[written(skip_serializing_if = "By::is_default")]
        pub reason: Option<String>,
        /// W3C trace context of the request.
        #[serde(default)]
        #[written(skip_serializing_if = "By::is_default")]
        pub traceparent: Option<String>,
        /// Events of the decision. Empty if nothing changed; the decision then only records the request.
        pub events: Vec<Event>,
    }
}

stored! {
    /// The target of a decision: the unit of versioning.
    #[serde(rename_all = "snake_case")]
    pub enum Aggregate = entry::Aggregate {
        /// A process, in one of its epochs.
        Process {
            /// GUID of the process.
            guid: ProcessGuid,
            /// Domain of the process.
            domain: Domain,
            /// Epoch of the process.
            epoch: Epoch,
        } = Process,
        /// A task, in one of its epochs.
        Task {
            /// GUID of the task.
            guid: TaskGuid,
            /// Domain of the task.
            domain: Domain,
            /// Epoch of the task.
            epoch: Epoch,
        } = Task,
        /// A periodic task, in one of its epochs.
        Periodic {
            /// GUID of the periodic task.
            guid: PeriodicGuid,
            /// Domain of the periodic task.
            domain: Domain,
            /// Epoch of the periodic task.
            epoch: Epoch,
        } = Periodic,
        /// A parameterised task, in one of its epochs.
        Parameterised {
            /// GUID of the parameterised task.
            guid: ParameterisedGuid,
            /// Domain of the parameterised task.
            domain: Domain,
            /// Epoch of the parameterised task.
            epoch: Epoch,
        } = Parameterised,
        /// A domain.
        Domain(domain: Domain) = Domain,
        /// A cell.
        Cell(cell: CellId) = Cell,
        /// The cluster.
        Cluster = Cluster,
    }
}

impl From<Aggregate> for entry::Aggregate {
    fn from(stored: Aggregate) -> Self {
        stored.read()
    }
}

stored! {
    /// The origin of a command.
    #[serde(rename_all = "snake_case")]
    pub enum Actor = stamp::Actor {
        /// A client of a domain.
        Client {
            /// Domain of the client.
            domain: Domain,
            /// Name of the client.
            name: ClientName,
        } = Client,
        /// An operator of the cluster.
        Operator(name: ClientName) = Operator,
        /// The rep of a cell.
        Cell(cell: CellId) = Cell,
        /// An auctioneer.
        Auctioneer(id: ServiceId) = Auctioneer,
        /// A BBS without a request: convergence, a timer, or a lost cell.
        Bbs(id: ServiceId) = Bbs,
    }
}

stored! {
    /// An event of one of the state machines, in any version.
    #[serde(rename_all = "snake_case")]
    pub enum Event = entry::Event {
        /// An event of the desired state of a process.
        Desired(event: process::Desired) = Desired,
        /// An event of instances.
        Actual(event: process::Actual) = Actual,
        /// An event of an evacuating instance.
        Evacuating(event: process::Evacuating) = Evacuating,
        /// An event of a rollout.
        Rollout(event: rollout::Rollout) = Rollout,
        /// An event of an evaluation.
        Evaluation(event: evaluation::Evaluation) = Evaluation,
        /// An event of a task.
        Task(event: task::Task) = Task,
        /// An event of a periodic task.
        Periodic(event: periodic::Periodic) = Periodic,
        /// An event of a parameterised task.
        Parameterised(event: parameterised::Parameterised) = Parameterised,
        /// An event of a domain.
        Domain(event: cell::Domain) = Domain,
        /// An event of a cell.
        Cell(event: cell::Cell) = Cell,
        /// An event of the cluster.
        Cluster(event: cluster::Cluster) = Cluster,
    }
}

impl Event {
    /// Returns every event type that this program can read.
    pub fn types() -> impl Iterator<Item = &'static str> {
        let all = [
            process::Desired::TYPES,
            process::Actual::TYPES,
            process::Evacuating::TYPES,
            rollout::Rollout::TYPES,
            evaluation::Evaluation::TYPES,
            task::Task::TYPES,
            periodic::Periodic::TYPES,
            parameterised::Parameterised::TYPES,
            cell::Domain::TYPES,
            cell::Cell::TYPES,
            cluster::Cluster::TYPES,
        ];
        all.into_iter().flatten().copied()
    }
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
                $today::write(self, to)
            }
        }

        impl<'de> Deserialize<'de> for entry::$today {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $today::deserialize(from).map(Stored::read)
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
