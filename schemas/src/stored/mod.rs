//! What is stored: the shape of every version of every event, apart from what the machines work with.
//!
//! ```text
//! bytes ── decode ──▶ stored::Entry ── mirror ──▶ Entry, as the machines know it
//!       ◀─ encode ──       (any version)   ◀── mirror ── (always the newest version)
//! ```
//! Shapes here are frozen: a machine's type can change without changing what is stored, and a field that only one side
//! has doesn't compile. Between the two stand total functions (`mirror::Mirror`): from every stored version to today's
//! event, and from today's event to its newest stored version. What travels to readers of events (`events.read`) is the
//! newest stored version, too. Words (names, ids, times, sets of indices) have one spelling and are the same on both
//! sides.
//!
//! | the file | holds events of |
//! |---|---|
//! | [`process`] | desired sides, instances, evacuating twins |
//! | [`evaluation`] | evaluations |
//! | [`task`] | tasks |
//! | [`periodic`] | periodic tasks |
//! | [`parameterised`] | parameterised tasks |
//! | [`cell`] | cells and domains |
//! | [`cluster`] | the cluster |
//! | [`parts`] | nothing of their own: what several of them hold |

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::container::Epoch;
use crate::names::{
    CellId, ClientName, DecisionId, Domain, EntryId, ParameterisedGuid, PeriodicGuid, ProcessGuid, RequestId,
    ServiceId, TaskGuid,
};
use crate::{Timestamp, entry};

pub mod cell;
pub mod cluster;
pub mod evaluation;
mod mirror;
pub mod parameterised;
pub mod parts;
pub mod periodic;
pub mod process;
mod rollout;
pub mod task;

use mirror::{Mirror, mirror};

/// One message of the journal, in format 1.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = describe_checksum)]
pub struct Entry {
    /// Names it; also the message's `Nats-Msg-Id`.
    pub id: EntryId,
    /// The format level at which it was written.
    pub format: u32,
    /// What was decided, in order.
    pub decisions: Vec<Decision>,
}
mirror!(struct Entry = entry::Entry { id, format, decisions });

/// The checksum stands before an entry in the journal, and nowhere else.
fn describe_checksum(schema: &mut Schema) {
    let what =
        "In the journal, and first: the CRC-32C, in hexadecimal, of all bytes behind the comma that follows.";
    let checksum = json!({"type": "string", "pattern": "^[0-9a-f]{8}$", "description": what});
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("crc32c".into(), checksum);
    }
}

/// What one command did to one aggregate.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// What the request asked: its verb, and a hash of its body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_digest: Option<String>,
    /// The decision that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<DecisionId>,
    /// The first decision of the chain: a human's or a client's command, mostly.
    pub correlation: DecisionId,
    /// Why, in the requester's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The W3C trace that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// What happened. Empty: it was so already, and the request is remembered.
    pub events: Vec<Event>,
}
mirror!(struct Decision = entry::Decision {
    id, aggregate, version, at, actor, request_id, request_digest, cause, correlation, reason, traceparent, events,
});

/// What a decision is about: the unit of versions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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
mirror!(enum Aggregate = entry::Aggregate {
    Process { guid, domain, epoch }, Task { guid, domain, epoch }, Periodic { guid, domain, epoch },
    Parameterised { guid, domain, epoch }, Domain(domain), Cell(cell), Cluster,
});

impl From<Aggregate> for entry::Aggregate {
    fn from(stored: Aggregate) -> Self {
        stored.mirror()
    }
}

/// Who asked.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
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
mirror!(enum Actor = entry::Actor {
    Client { domain, name }, Operator(name), Cell(cell), Auctioneer(id), Bbs(id),
});

/// What happened: an event of one of the machines, in any version.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// To the desired side of a process.
    Desired(process::Desired),
    /// To instances.
    Actual(process::Actual),
    /// To an evacuating record.
    Evacuating(process::Evacuating),
    /// To a rollout.
    Rollout(rollout::Rollout),
    /// To an evaluation.
    Evaluation(evaluation::Evaluation),
    /// To a task.
    Task(task::Task),
    /// To a periodic task.
    Periodic(periodic::Periodic),
    /// To a parameterised task.
    Parameterised(parameterised::Parameterised),
    /// To a domain.
    Domain(cell::Domain),
    /// To a cell.
    Cell(cell::Cell),
    /// To the cluster.
    Cluster(cluster::Cluster),
}
mirror!(enum Event = entry::Event {
    Desired(event), Actual(event), Evacuating(event), Rollout(event), Evaluation(event), Task(event),
    Periodic(event), Parameterised(event), Domain(event), Cell(event), Cluster(event),
});

impl Event {
    /// Every type of event that this program reads.
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
        "actual.entered.v1",
        "evacuating.set.v1",
        "evacuating.removed.v1",
        "rollout.started.v1",
        "rollout.begun.v1",
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
        "evaluation.waits.v1",
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
        "cluster.position_set_aside.v1",
    ];
}

impl entry::Event {
    /// Its type with the version in which it is written: `actual.claimed.v1`.
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

/// What the machines know is written, shown and described as it is stored.
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
