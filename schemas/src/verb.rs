//! Verbs of commands, orders and queries, with their text in the subjects of [`crate::bus`].

use schemars::JsonSchema;

/// Command of a client.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuctioneerVerb {
    /// Leases of evaluations, placement failures and proposed evictions.
    Outcome,
    /// Request to be recorded as the leader.
    Lead,
}

/// Query of a client or a service. The published schemas contain these descriptions.
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

    /// Returns the noun and the verb as they appear in the subject.
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
    /// Every verb.
    pub const ALL: [Self; 9] = [
        Self::CellEvacuate,
        Self::CellCordon,
        Self::CellUncordon,
        Self::CellForget,
        Self::CellAcceptLog,
        Self::ClusterPreemption,
        Self::ClusterShards,
        Self::DomainLimit,
        Self::JournalQuarantine,
    ];

    /// Returns the noun and the verb as they appear in the subject.
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
            Self::JournalQuarantine => ("journal", "quarantine"),
        }
    }
}

impl RepVerb {
    /// Every verb.
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
        Self::Exec,
        Self::ExecIo,
        Self::AcceptLog,
    ];

    /// Returns the verb as it appears in the subject.
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
            Self::Exec => "exec",
            Self::ExecIo => "exec-io",
            Self::AcceptLog => "accept-log",
        }
    }
}

impl AuctioneerVerb {
    /// Every verb.
    pub const ALL: [Self; 2] = [Self::Outcome, Self::Lead];

    /// Returns the verb as it appears in the subject.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Outcome => "outcome",
            Self::Lead => "lead",
        }
    }
}

impl QueryVerb {
    /// Every verb.
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

    /// Returns the noun and the verb as they appear in the subject.
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
