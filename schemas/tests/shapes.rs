//! Bodies of commands, declared for JSON Schema. The crate parses specs by hand so that every bad field is
//! named at once. These types declare the same fields a second time, and the tests of `documented.rs` check
//! that both agree.
#![allow(dead_code, reason = "only their schemas are used")]

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use schemas::action::{Action, ChecksumAlgorithm, Secret, Variable};
use schemas::attributes::AttributeName;
use schemas::definition::{Network, Overflow, Overlap, PayloadRule, Placement};
use schemas::exec::Exec;
use schemas::isolation::IsolationLayer;
use schemas::names::{
    CellId, DefinitionId, DispatchKey, Domain, EvaluationId, ParameterisedGuid, PeriodicGuid, PlacementTag,
    ProcessGuid, Stack, TaskGuid,
};
use schemas::policy::{FailureAction, Parallelism, Ratio, RestartCondition, UpdateOrder};
use schemas::priority::Priority;
use schemas::rules::Operator;
use serde_json::Value;

/// Environment variables: a list of names and values, or an object of them.
#[derive(JsonSchema)]
#[serde(untagged)]
pub(crate) enum Environment {
    /// Variables in order.
    List(Vec<Variable>),
    /// Values by name.
    Table(BTreeMap<String, Secret>),
}

/// A process to run.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LrpDesire {
    /// GUID of the process.
    process_guid: ProcessGuid,
    /// Domain of the process. Must be the domain of the subject.
    domain: Domain,
    /// Number of instances, 1 by default.
    #[schemars(extend("default" = 1))]
    instances: Option<u32>,
    /// Action that is kept running.
    action: Action,
    /// Action that runs to completion before `action`.
    setup: Option<Action>,
    /// Action that checks the health of an instance. Without it, an instance is healthy as soon as it runs.
    monitor: Option<Action>,
    /// Time for which the monitor may fail before its first success, in milliseconds. 0 for no limit.
    start_timeout_ms: Option<u64>,
    /// Memory in MiB that placement reserves.
    memory_mb: Option<u64>,
    /// Disk in MiB that placement reserves.
    disk_mb: Option<u64>,
    /// Share of a busy processor, 1 to 1024. 0 for the default, which is 1024.
    cpu_weight: Option<u32>,
    /// Container ports that the instance listens on. Each is mapped to a host port.
    ports: Option<BTreeSet<u16>>,
    /// Environment of every program in the container.
    environment_variables: Option<Environment>,
    /// Short name of `environment_variables`.
    env: Option<Environment>,
    /// Stack that a cell must have.
    stack: Option<Stack>,
    /// Placement tags that a cell must have, with no other tags.
    placement_tags: Option<BTreeSet<PlacementTag>>,
    /// Isolation that a cell must provide: `full`, `degraded` (at least a file system and processes of their
    /// own), or a list of layers.
    isolation: Option<IsolationSpec>,
    /// Root file system: `preloaded:STACK`, `oci:FOLDER[:TAG]` or the path of a folder. The default is the
    /// part of the host's file system that programs need.
    root_fs: Option<String>,
    /// Diego's name of `root_fs`.
    rootfs: Option<String>,
    /// Network of the container: `host` (default), or `none`, a network of its own without connections.
    network: Option<Network>,
    /// Archives that are fetched concurrently before anything runs.
    cached_dependencies: Option<Vec<NewDependency>>,
    /// Owner of the `cached_dependencies`, in the form of a run's `user`. The default is the default user of
    /// programs.
    legacy_download_user: Option<String>,
    /// Egress rules. Only an empty list is accepted, because a container shares its host's network or reaches
    /// nothing.
    egress_rules: Option<Vec<Value>>,
    /// Label that log lines are attributed to.
    log_guid: Option<String>,
    /// Source name of log lines, unless an action sets its own.
    log_source: Option<String>,
    /// Label that metrics are attributed to.
    metrics_guid: Option<String>,
    /// Constraints on cells and on the placement of the instances.
    constraints: Option<Vec<NewRule>>,
    /// Preferences for or against cells.
    affinities: Option<Vec<NewAffinity>>,
    /// Attributes over whose values the instances are spread.
    spread: Option<Vec<NewSpread>>,
    /// Routing data: any JSON per router.
    routes: Option<BTreeMap<String, Value>>,
    /// Free text of the client.
    annotation: Option<String>,
    /// Priority, 1 to 100, 50 by default. Higher priorities are placed first.
    priority: Option<Priority>,
    /// Time between TERM and KILL when an instance is stopped, in milliseconds, 10,000 by default.
    grace_period_ms: Option<u64>,
    /// Id of the definition, the process guid by default.
    definition_id: Option<DefinitionId>,
    /// Policy for the replacement of instances by an update.
    update: Option<RolloutPolicy>,
    /// Policy for the replacement of instances by a rollback. Its `failure_action` is `pause` by default and
    /// must not be `rollback`.
    rollback: Option<RolloutPolicy>,
    /// Minimum number of instances that a rollout keeps RUNNING. By default start-first keeps all of them,
    /// and stop-first keeps all but those in replacement.
    min_running: Option<u32>,
    /// Number of ended containers per index that are kept for queries, 0 to 100. The default is 20. A BBS
    /// shows 5 of these 20 unless it was started with another limit.
    history_limit: Option<u32>,
    /// Policy for restarts of crashed instances.
    restart: Option<RestartSpec>,
}

/// The required isolation layers of a container.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum IsolationSpec {
    /// A word for several layers: `full` or `degraded`.
    Named(IsolationName),
    /// A list of layers.
    Listed(BTreeSet<IsolationLayer>),
}

/// A word for several isolation layers.
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum IsolationName {
    /// Every layer.
    Full,
    /// A file system and processes of its own.
    Degraded,
}

/// A condition on an attribute of a cell, or on the number of instances per cell or per attribute value.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRule {
    /// Name of the attribute. Left out only with `distinct_cell`.
    attribute: Option<AttributeName>,
    /// Comparison operator, `=` by default.
    operator: Option<Operator>,
    /// Value to compare with: text or a number. Left out with `is_set` and `is_not_set`. With `distinct_cell`
    /// and `distinct_attribute`, the maximum number of instances, 1 by default.
    value: Option<Value>,
}

/// A preference for or against cells.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAffinity {
    /// Name of the attribute.
    attribute: AttributeName,
    /// Comparison operator, `=` by default. `distinct_cell` and `distinct_attribute` are not allowed.
    operator: Option<Operator>,
    /// Value to compare with: text or a number.
    value: Option<Value>,
    /// Weight of the preference, from -100 to 100, and not 0.
    weight: i8,
}

/// An attribute over whose values instances are spread.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSpread {
    /// Name of the attribute.
    attribute: AttributeName,
    /// Weight relative to other spreads, 1 to 100, 50 by default.
    weight: Option<u8>,
    /// Desired percentage of the instances by value. Other values share the rest evenly.
    targets: Option<BTreeMap<String, u8>>,
}

/// The policy for restarts of crashed instances. Omitted fields have their default values.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RestartSpec {
    /// Crashes that are followed by a restart: `any` (default), `on-failure` for all but exit status 0, or
    /// `none`.
    condition: Option<RestartCondition>,
    /// Delay of each restart, in milliseconds. The default is the delay of the crash policy, which is also
    /// the minimum for an instance that crashed before it was RUNNING.
    delay_ms: Option<u32>,
    /// Maximum number of restarts of an index with the same definition, 1 to 100. The default is unlimited
    /// with `delay_ms`, and the limit of the crash policy without it.
    max_attempts: Option<u32>,
    /// Time for which a restart is counted, in milliseconds. 0 for no limit.
    window_ms: Option<u32>,
}

/// The policy for the replacement of instances by a rollout.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RolloutPolicy {
    /// Number of indices that are in replacement at once: a number, or a percentage of the instances such as
    /// `"25%"`. The default is 1.
    parallelism: Option<Parallelism>,
    /// Delay between the replacement of one index and the start of the next, in milliseconds.
    delay_ms: Option<u64>,
    /// Order of start and stop at an index, `start-first` by default.
    order: Option<UpdateOrder>,
    /// Action on a failing definition, `hold` by default.
    failure_action: Option<FailureAction>,
    /// Time that a new instance must be RUNNING to count as healthy, in milliseconds. The old one stops after
    /// that.
    monitor_ms: Option<u64>,
    /// Fraction of the indices that may fail before `failure_action` is taken, from 0 to 1.
    max_failure_ratio: Option<Ratio>,
    /// Time limit for the replacement of one index, in milliseconds. After this time the next index starts.
    /// The limit applies only once the definition is known to work. 600,000 by default, 0 for no limit.
    index_deadline_ms: Option<u64>,
    /// Number of replaced indices after which the rollout pauses. By default it does not pause.
    pause_after: Option<u32>,
}

/// The policies of a process. Omitted fields have their default values.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPolicies {
    /// Policy for the replacement of instances by an update.
    update: Option<RolloutPolicy>,
    /// Policy for the replacement of instances by a rollback.
    rollback: Option<RolloutPolicy>,
    /// Minimum number of instances that a rollout keeps RUNNING.
    min_running: Option<u32>,
    /// Number of ended containers per index that are kept for queries.
    history_limit: Option<u32>,
    /// Policy for restarts of crashed instances, effective from the next crash.
    restart: Option<RestartSpec>,
}

/// The definition of the instances of a process.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewDefinition {
    /// Action that is kept running.
    action: Action,
    /// Action that runs to completion before `action`.
    setup: Option<Action>,
    /// Action that checks the health of an instance. Without it, an instance is healthy as soon as it runs.
    monitor: Option<Action>,
    /// Time for which the monitor may fail before its first success, in milliseconds. 0 for no limit.
    start_timeout_ms: Option<u64>,
    /// Memory in MiB that placement reserves.
    memory_mb: Option<u64>,
    /// Disk in MiB that placement reserves.
    disk_mb: Option<u64>,
    /// Share of a busy processor, 1 to 1024. 0 for the default, which is 1024.
    cpu_weight: Option<u32>,
    /// Container ports that the instance listens on. Each is mapped to a host port.
    ports: Option<BTreeSet<u16>>,
    /// Environment of every program in the container.
    environment_variables: Option<Environment>,
    /// Short name of `environment_variables`.
    env: Option<Environment>,
    /// Stack that a cell must have.
    stack: Option<Stack>,
    /// Placement tags that a cell must have, with no other tags.
    placement_tags: Option<BTreeSet<PlacementTag>>,
    /// Isolation that a cell must provide: `full`, `degraded` (at least a file system and processes of their
    /// own), or a list of layers.
    isolation: Option<IsolationSpec>,
    /// Root file system: `preloaded:STACK`, `oci:FOLDER[:TAG]` or the path of a folder. The default is the
    /// part of the host's file system that programs need.
    root_fs: Option<String>,
    /// Diego's name of `root_fs`.
    rootfs: Option<String>,
    /// Network of the container: `host` (default), or `none`, a network of its own without connections.
    network: Option<Network>,
    /// Archives that are fetched concurrently before anything runs.
    cached_dependencies: Option<Vec<NewDependency>>,
    /// Owner of the `cached_dependencies`, in the form of a run's `user`. The default is the default user of
    /// programs.
    legacy_download_user: Option<String>,
    /// Egress rules. Only an empty list is accepted, because a container shares its host's network or reaches
    /// nothing.
    egress_rules: Option<Vec<Value>>,
    /// Label that log lines are attributed to.
    log_guid: Option<String>,
    /// Source name of log lines, unless an action sets its own.
    log_source: Option<String>,
    /// Label that metrics are attributed to.
    metrics_guid: Option<String>,
    /// Constraints on cells and on the placement of the instances.
    constraints: Option<Vec<NewRule>>,
    /// Preferences for or against cells.
    affinities: Option<Vec<NewAffinity>>,
    /// Attributes over whose values the instances are spread.
    spread: Option<Vec<NewSpread>>,
    /// Time between TERM and KILL when an instance is stopped, in milliseconds, 10,000 by default.
    grace_period_ms: Option<u64>,
}

/// An archive that is fetched before anything runs.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct NewDependency {
    /// Name of the archive in the log. Without it, the download is not logged.
    name: Option<String>,
    /// URL of the archive, with http or https.
    from: Secret,
    /// Folder that the archive is unpacked into: relative to the work directory, or an absolute path in a
    /// container that has a file system of its own.
    to: String,
    /// Key under which the cell caches the archive for later downloads with the same key in the same domain.
    cache_key: Option<String>,
    /// Source name of the log lines of the download. The default is the source name in the definition.
    log_source: Option<String>,
    /// Algorithm of the checksum.
    checksum_algorithm: Option<ChecksumAlgorithm>,
    /// Expected checksum, in hexadecimal digits.
    checksum_value: Option<String>,
}

/// Changes to a process. Omitted fields do not change.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LrpUpdate {
    /// GUID of the process.
    process_guid: ProcessGuid,
    /// Number of instances.
    instances: Option<u32>,
    /// Routing data. Replaces the previous routing data.
    routes: Option<BTreeMap<String, Value>>,
    /// Free text of the client.
    annotation: Option<String>,
    /// Priority, 1 to 100, effective from the next placement.
    priority: Option<Priority>,
    /// Policies. They replace the previous policies, effective from the next rollout.
    policies: Option<NewPolicies>,
    /// New definition. Starts a rollout, unless every instance already runs it.
    definition: Option<NewDefinition>,
    /// Id of the definition. The default is derived from its content.
    definition_id: Option<DefinitionId>,
}

/// A request to move every instance to an existing definition.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LrpActivate {
    /// GUID of the process.
    process_guid: ProcessGuid,
    /// Id of a definition that the process has.
    definition_id: DefinitionId,
}

/// A request to replace every instance of a process by a new one with the same definition content.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LrpRestart {
    /// GUID of the process.
    process_guid: ProcessGuid,
    /// Purpose that the rollout records: `"restart"` (default) or `"rebalance"`.
    purpose: Option<String>,
}

/// A request to pause, resume or roll back the rollout of a process.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LrpSteer {
    /// GUID of the process.
    process_guid: ProcessGuid,
}

/// A request to remove a process.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LrpRemove {
    /// GUID of the process.
    process_guid: ProcessGuid,
}

/// A request to stop an instance.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LrpRetire {
    /// GUID of the process.
    process_guid: ProcessGuid,
    /// Index of the instance.
    index: u32,
    /// Definition of the instance. The default is the active one, if the index has several.
    definition_id: Option<DefinitionId>,
}

/// A request to run a program in the container of an instance.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InstanceExec {
    /// GUID of the process.
    process_guid: ProcessGuid,
    /// Index of the instance.
    index: u32,
    /// Definition of the instance. The default is the active one, if the index has several.
    definition_id: Option<DefinitionId>,
    /// Program to run.
    exec: Exec,
}

/// A request to retry an evaluation of a process immediately.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LrpRetry {
    /// GUID of the process.
    process_guid: ProcessGuid,
    /// Id of an evaluation that is delayed, blocked or failed.
    evaluation: EvaluationId,
}

/// A request to retry an evaluation of a task immediately.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskRetry {
    /// GUID of the task.
    task_guid: TaskGuid,
    /// Id of an evaluation that is delayed, blocked or failed.
    evaluation: EvaluationId,
}

/// Declares a type with the fields of a task and further fields.
macro_rules! with_task_fields {
    ($(#[$doc:meta])* $name:ident { $($own:tt)* }) => {
        $(#[$doc])*
        #[derive(JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $($own)*
            /// Action to run.
            action: Action,
            /// File whose content is the result, relative to the work directory.
            result_file: Option<String>,
            /// URL that the completed task is posted to: `http://` or `https://`.
            completion_callback_url: Option<Secret>,
            /// Handling of missing room: `"fail"` (default), or `{"queue": {"deadline_ms": ..}}`.
            placement: Option<Placement>,
            /// Memory in MiB that placement reserves.
            memory_mb: Option<u64>,
            /// Disk in MiB that placement reserves.
            disk_mb: Option<u64>,
            /// Share of a busy processor, 1 to 1024. 0 for the default, which is 1024.
            cpu_weight: Option<u32>,
            /// Environment of every program in the container.
            environment_variables: Option<Environment>,
            /// Short name of `environment_variables`.
            env: Option<Environment>,
            /// Stack that a cell must have.
            stack: Option<Stack>,
            /// Placement tags that a cell must have, with no other tags.
            placement_tags: Option<BTreeSet<PlacementTag>>,
            /// Isolation that a cell must provide: `full`, `degraded` (at least a file system and processes
            /// of their own), or a list of layers.
            isolation: Option<IsolationSpec>,
            /// Root file system: `preloaded:STACK`, `oci:FOLDER[:TAG]` or the path of a folder. The default
            /// is the part of the host's file system that programs need.
            root_fs: Option<String>,
            /// Diego's name of `root_fs`.
            rootfs: Option<String>,
            /// Network of the container: `host` (default), or `none`, a network of its own without
            /// connections.
            network: Option<Network>,
            /// Archives that are fetched concurrently before anything runs.
            cached_dependencies: Option<Vec<NewDependency>>,
            /// Owner of the `cached_dependencies`, in the form of a run's `user`. The default is the default
            /// user of programs.
            legacy_download_user: Option<String>,
            /// Egress rules. Only an empty list is accepted, because a container shares its host's network or
            /// reaches nothing.
            egress_rules: Option<Vec<Value>>,
            /// Label that log lines are attributed to.
            log_guid: Option<String>,
            /// Source name of log lines, unless an action sets its own.
            log_source: Option<String>,
            /// Label that metrics are attributed to.
            metrics_guid: Option<String>,
            /// Constraints on cells.
            constraints: Option<Vec<NewRule>>,
            /// Preferences for or against cells.
            affinities: Option<Vec<NewAffinity>>,
            /// Free text of the client.
            annotation: Option<String>,
            /// Priority, 1 to 100, 50 by default. Higher priorities are placed first.
            priority: Option<Priority>,
            /// Time between TERM and KILL when the task is stopped, in milliseconds, 10,000 by default.
            grace_period_ms: Option<u64>,
        }
    };
}

with_task_fields! {
    /// A task to run once.
    TaskDesire {
        /// GUID of the task.
        task_guid: TaskGuid,
        /// Domain of the task. Must be the domain of the subject.
        domain: Domain,
    }
}

with_task_fields! {
    /// A task to launch periodically.
    PeriodicDesire {
        /// GUID of the periodic task: at most 96 of the characters of names, without `--` and without `-` at
        /// the end.
        periodic_guid: PeriodicGuid,
        /// Domain of the periodic task and of the launched tasks. Must be the domain of the subject.
        domain: Domain,
        /// Schedule: minute, hour, day of the month, month, day of the week, such as `30 3 * * MON-FRI`. Also
        /// `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`.
        cron: String,
        /// Time zone of the schedule, from the IANA database, UTC by default.
        time_zone: Option<String>,
        /// Handling of a launch that is due while an earlier task is PENDING or RUNNING: `"skipped"`
        /// (default), `"allowed"` or `"queued"`.
        overlap: Option<Overlap>,
    }
}

/// A request to pause, resume, launch or remove a periodic task.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeriodicAction {
    /// GUID of the periodic task.
    periodic_guid: PeriodicGuid,
}

with_task_fields! {
    /// A template from which each dispatch makes a task.
    ParameterisedDesire {
        /// GUID of the parameterised task: at most 96 of the characters of names, without `--` and without
        /// `-` at the end.
        parameterised_guid: ParameterisedGuid,
        /// Domain of the parameterised task and of its tasks. Must be the domain of the subject.
        domain: Domain,
        /// Rule for the payload of a dispatch: `"optional"` (default), `"required"` or `"forbidden"`.
        payload: Option<PayloadRule>,
        /// Parameters that a dispatch must pass, at most 64: each 1 to 64 of `A-Z a-z 0-9 _`, without a
        /// leading digit.
        required_parameters: Option<BTreeSet<String>>,
        /// Parameters that a dispatch may pass.
        optional_parameters: Option<BTreeSet<String>>,
        /// Maximum number of the dispatched tasks that may be PENDING or RUNNING at once, 1 to 10,000.
        /// Unlimited by default.
        concurrency: Option<u32>,
        /// Handling of a dispatch beyond `concurrency`: `"queued"` (default) or `"refused"`.
        overflow: Option<Overflow>,
    }
}

/// A dispatch of a parameterised task.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParameterisedDispatch {
    /// GUID of the parameterised task.
    parameterised_guid: ParameterisedGuid,
    /// Payload of the task, at most 16 KiB, in base64 with padding.
    payload: Option<String>,
    /// Named parameters of the task, which must not be secrets: at most 64, and at most 16 KiB of names and
    /// values.
    parameters: Option<Environment>,
    /// Key of the dispatch. Another dispatch with the same key, payload, parameters and priority is a
    /// repetition.
    key: Option<DispatchKey>,
    /// Priority of the task, 1 to 100. The default is the priority of the template.
    priority: Option<Priority>,
}

/// A request to withdraw a waiting dispatch.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParameterisedWithdraw {
    /// GUID of the parameterised task.
    parameterised_guid: ParameterisedGuid,
    /// Number of the waiting dispatch.
    number: u64,
}

/// A request to remove a parameterised task.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParameterisedRemove {
    /// GUID of the parameterised task.
    parameterised_guid: ParameterisedGuid,
}

/// A request to cancel a task.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskCancel {
    /// GUID of the task.
    task_guid: TaskGuid,
}

/// A request to resolve a completed task.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskResolve {
    /// GUID of the task.
    task_guid: TaskGuid,
}

/// A request to mark a domain as fresh.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DomainUpsert {
    /// Name of the domain. Must be the domain of the subject.
    domain: Domain,
    /// Duration in milliseconds. By default the domain stays fresh forever.
    ttl_ms: Option<u64>,
}

/// Body of a cell command.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CellEvacuate {
    /// Id of the cell.
    cell_id: CellId,
}
