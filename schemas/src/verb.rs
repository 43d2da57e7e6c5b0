//! Verbs of commands, orders and queries, with their text in the subjects of [`crate::bus`]. The text of a verb
//! is the name of its variant: [`ClientVerb::LrpDesire`] is `lrp.desire`, and [`RepVerb::AcceptLog`] is
//! `accept-log`.

use schemars::JsonSchema;
use strum::VariantArray;

/// Command of a client.
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientVerb {
    LrpDesire,
    LrpUpdate,
    LrpActivate,
    LrpRestart,
    LrpPause,
    LrpResume,
    LrpRollback,
    LrpRemove,
    LrpRetire,
    LrpRetry,
    InstanceExec,
    TaskDesire,
    TaskCancel,
    TaskResolve,
    TaskRetry,
    PeriodicDesire,
    PeriodicUpdate,
    PeriodicPause,
    PeriodicResume,
    PeriodicLaunch,
    PeriodicRemove,
    ParameterisedDesire,
    ParameterisedUpdate,
    ParameterisedDispatch,
    ParameterisedWithdraw,
    ParameterisedRemove,
    DomainUpsert,
}

/// Command of an operator.
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperatorVerb {
    CellEvacuate,
    CellCordon,
    CellUncordon,
    CellForget,
    CellAcceptLog,
    ClusterPreemption,
    ClusterShards,
    DomainLimit,
    JournalQuarantine,
}

/// Order or request to a rep.
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RepVerb {
    /// Start work.
    Perform,
    /// Stop containers.
    Stop,
    /// Cancel tasks.
    Cancel,
    /// Send a heartbeat.
    State,
    /// Evacuate the cell.
    Evacuate,
    /// Take work again: the evacuation was withdrawn.
    Uncordon,
    /// Stop representing the cell, because another rep represents it now.
    Dismiss,
    /// Return the output of a container.
    Logs,
    /// Return the results of a container's monitor.
    Health,
    /// Return files of a container's work directory.
    Files,
    /// Run a program in a container for a client.
    Exec,
    /// Pass a client's request to its program in a container.
    ExecIo,
    /// Continue with the current log, by order of an operator.
    AcceptLog,
}

/// Report of an auctioneer to the BBS.
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuctioneerVerb {
    /// Leases of evaluations, placement failures and proposed evictions.
    Outcome,
    /// Request to be recorded as the leader.
    Lead,
}

/// Query of a client or a service. The published schemas contain these descriptions.
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
pub enum QueryVerb {
    /// Processes.
    LrpList,
    /// A process.
    LrpShow,
    /// Instances of processes.
    InstanceList,
    /// Instances at one index.
    InstanceShow,
    /// Ended containers of instances.
    InstanceEnded,
    /// Output of an instance.
    InstanceLogs,
    /// Monitor results of an instance.
    InstanceHealth,
    /// Files in the work directory of an instance.
    InstanceFiles,
    /// Tasks.
    TaskList,
    /// A task.
    TaskShow,
    /// Deleted tasks.
    TaskEnded,
    /// Output of a task.
    TaskLogs,
    /// Periodic tasks.
    PeriodicList,
    /// A periodic task.
    PeriodicShow,
    /// Parameterised tasks.
    ParameterisedList,
    /// A parameterised task.
    ParameterisedShow,
    /// Domains.
    DomainList,
    /// Usage and quotas of a domain.
    DomainShow,
    /// Cells.
    CellList,
    /// A cell.
    CellShow,
    /// Records that a rep needs.
    CellRecords,
    /// Evaluations.
    EvaluationList,
    /// An evaluation.
    EvaluationShow,
    /// The cluster.
    ClusterShow,
    /// Health of the cluster.
    ClusterStatus,
    /// Events of the log.
    EventsRead,
    /// Available JSON Schemas.
    SchemaList,
    /// A JSON Schema.
    SchemaShow,
}

impl ClientVerb {
    /// Every verb.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the noun and the verb as they appear in the subject.
    #[must_use]
    pub fn noun_and_verb(self) -> (&'static str, &'static str) {
        split_noun(self.into_str())
    }
}

impl OperatorVerb {
    /// Every verb.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the noun and the verb as they appear in the subject.
    #[must_use]
    pub fn noun_and_verb(self) -> (&'static str, &'static str) {
        split_noun(self.into_str())
    }
}

impl QueryVerb {
    /// Every verb.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the noun and the verb as they appear in the subject.
    #[must_use]
    pub fn noun_and_verb(self) -> (&'static str, &'static str) {
        split_noun(self.into_str())
    }
}

impl RepVerb {
    /// Every verb.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the verb as it appears in the subject.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

impl AuctioneerVerb {
    /// Every verb.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the verb as it appears in the subject.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// Splits the text of a variant after its first word: `cell-accept-log` is `accept-log` of a `cell`.
fn split_noun(text: &'static str) -> (&'static str, &'static str) {
    text.split_once('-').unwrap_or((text, ""))
}
