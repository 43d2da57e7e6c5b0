//! The bodies of commands as they are sent. Specs are read by hand, so that every bad field is named at once: what is
//! read is told here a second time, for JSON Schema, and the tests of `documented.rs` hold the two together.
#![allow(dead_code, reason = "only their schemas are used")]

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use schemas::action::{Action, ChecksumAlgorithm, Secret, Variable};
use schemas::attributes::AttributeName;
use schemas::definition::{Network, Overflow, Overlap, PayloadRule, Placement};
use schemas::exec::Exec;
use schemas::isolation::Wall;
use schemas::names::{
    CellId, DefinitionId, DispatchKey, Domain, EvaluationId, ParameterisedGuid, PeriodicGuid, PlacementTag,
    ProcessGuid, Stack, TaskGuid,
};
use schemas::policy::{FailureAction, Parallelism, Ratio, RestartCondition, UpdateOrder};
use schemas::rank::Priority;
use schemas::rules::Operator;
use serde_json::Value;

/// Environment variables: a list of names and values, or an object of them.
#[derive(JsonSchema)]
#[serde(untagged)]
pub(crate) enum Environment {
    /// In their order.
    List(Vec<Variable>),
    /// By their names.
    Table(BTreeMap<String, Secret>),
}

/// A process that shall run.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LrpDesire {
    /// Its name.
    process_guid: ProcessGuid,
    /// Its domain: that of the subject.
    domain: Domain,
    /// How many instances, 1 unless said otherwise.
    #[schemars(extend("default" = 1))]
    instances: Option<u32>,
    /// What is kept running.
    action: Action,
    /// Runs before `action`, to its end.
    setup: Option<Action>,
    /// Tells whether an instance is healthy; without it, it is as soon as it runs.
    monitor: Option<Action>,
    /// How long the monitor may fail before its first success, in milliseconds; 0: for ever.
    start_timeout_ms: Option<u64>,
    /// Memory in MiB that it is placed by.
    memory_mb: Option<u64>,
    /// Disk in MiB that it is placed by.
    disk_mb: Option<u64>,
    /// Its share of a busy processor, 1 to 1024; 0: the usual one, which is 1024.
    cpu_weight: Option<u32>,
    /// Ports that it listens on, as it would like them; each gets a port of the host.
    ports: Option<BTreeSet<u16>>,
    /// Environment of everything that runs in it.
    environment_variables: Option<Environment>,
    /// Short for `environment_variables`.
    env: Option<Environment>,
    /// Which cells may take it: those of this stack.
    stack: Option<Stack>,
    /// Which cells may take it: those with exactly these tags.
    placement_tags: Option<BTreeSet<PlacementTag>>,
    /// Which cells may take it: those that keep containers apart so: `full`, `degraded` (at least a file system and processes of
    /// their own), or a list of walls.
    isolation: Option<Walls>,
    /// The file system that it gets: `preloaded:STACK`, `oci:FOLDER[:TAG]` or the path of a folder; left out: what programs need
    /// of the host's.
    root_fs: Option<String>,
    /// Another name of `root_fs`, as Diego has it.
    rootfs: Option<String>,
    /// The network that it is in: `host` unless said otherwise, or `none`, one of its own that leads nowhere.
    network: Option<Network>,
    /// Archives that are fetched before anything runs, all at once.
    cached_dependencies: Option<Vec<NewDependency>>,
    /// Who owns what `cached_dependencies` hold, as a run's `user`; left out: who runs what names nobody.
    legacy_download_user: Option<String>,
    /// What it may reach: an empty list alone, for a container shares its host's network or reaches nothing.
    egress_rules: Option<Vec<Value>>,
    /// Whose log its lines are part of: a label.
    log_guid: Option<String>,
    /// What its lines in the log are told as, but for those of actions that say otherwise.
    log_source: Option<String>,
    /// Whose metrics its metrics are: a label.
    metrics_guid: Option<String>,
    /// What cells and the places of its instances must be like.
    constraints: Option<Vec<NewRule>>,
    /// What cells had better be like, or had better not.
    affinities: Option<Vec<NewAffinity>>,
    /// Attributes over whose values its instances are spread.
    spread: Option<Vec<NewSpread>>,
    /// Routing data: for each router any JSON.
    routes: Option<BTreeMap<String, Value>>,
    /// The consumer's own text.
    annotation: Option<String>,
    /// How urgent it is, 1 to 100, 50 unless said otherwise: whose priority is greater is placed first.
    priority: Option<Priority>,
    /// Time between TERM and KILL when it is stopped, in milliseconds, 10,000 unless said otherwise.
    grace_period_ms: Option<u64>,
    /// Names what it runs; the process guid unless said otherwise.
    definition_id: Option<DefinitionId>,
    /// How an update replaces its instances.
    update: Option<RolloutPolicy>,
    /// How a rollback does: its `failure_action` is never `rollback`, and `pause` unless said otherwise.
    rollback: Option<RolloutPolicy>,
    /// How many instances a rollout leaves RUNNING at least; left out: all of them start-first, and all but those in
    /// replacement stop-first.
    min_running: Option<u32>,
    /// How many containers that ended are kept of each index for queries to show, 0 to 100; left out: 20, of which a BBS shows
    /// 5 unless it was started otherwise.
    history_limit: Option<u32>,
    /// Whether and when an instance that crashed is restarted.
    restart: Option<Restarts>,
}

/// The walls that there must be around a container.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is of use")]
pub(crate) enum Walls {
    /// `full` or `degraded`.
    Named(IsolationName),
    /// These.
    Listed(BTreeSet<Wall>),
}

/// Walls by one word.
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is of use")]
pub(crate) enum IsolationName {
    /// All of them.
    Full,
    /// A file system and processes of its own.
    Degraded,
}

/// What an attribute of a cell must be like, or how many instances may be where.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRule {
    /// The attribute; left out with `distinct_cell` alone.
    attribute: Option<AttributeName>,
    /// How it is compared, `=` unless said otherwise.
    operator: Option<Operator>,
    /// With what: text, or a number. Left out with `is_set` and `is_not_set`; with `distinct_cell` and `distinct_attribute` how
    /// many instances may be there, 1 unless said otherwise.
    value: Option<Value>,
}

/// The same as a preference.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAffinity {
    /// The attribute.
    attribute: AttributeName,
    /// How it is compared, `=` unless said otherwise; not how many instances are where.
    operator: Option<Operator>,
    /// With what: text, or a number.
    value: Option<Value>,
    /// How much that matters, from -100 to 100, and not 0.
    weight: i8,
}

/// An attribute over whose values instances are spread.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSpread {
    /// Which.
    attribute: AttributeName,
    /// How much it matters beside other spreads, 1 to 100; 50 unless said otherwise.
    weight: Option<u8>,
    /// For values how many percent of the instances are wanted there. The other values share the rest evenly.
    targets: Option<BTreeMap<String, u8>>,
}

/// Whether and when an instance that crashed is restarted: what is left out is as usual.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Restarts {
    /// After which crashes: `any` unless said otherwise, `on-failure`: not after exit status 0, `none`: after none.
    condition: Option<RestartCondition>,
    /// How long each restart waits, in milliseconds; left out: as long as the crash policy says. What crashes before it is
    /// RUNNING waits as the crash policy says at least.
    delay_ms: Option<u32>,
    /// How often an index is restarted as one definition, 1 to 100; left out: for ever, or, without `delay_ms`, as often
    /// as the crash policy says.
    max_attempts: Option<u32>,
    /// Restarts that are longer ago than this are not counted, in milliseconds; 0: all of them are.
    window_ms: Option<u32>,
}

/// How a rollout replaces instances.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RolloutPolicy {
    /// How many indices are in replacement at once: a number, or a percentage of the instances like `"25%"`; 1 unless
    /// said otherwise.
    parallelism: Option<Parallelism>,
    /// How long to wait after an index was replaced before the next one takes its turn, in milliseconds.
    delay_ms: Option<u64>,
    /// Which comes first at an index, `start-first` unless said otherwise.
    order: Option<UpdateOrder>,
    /// What a failing definition leads to, `hold` unless said otherwise.
    failure_action: Option<FailureAction>,
    /// How long a new instance has to be RUNNING before it counts as healthy and the old one goes, in milliseconds.
    monitor_ms: Option<u64>,
    /// The part of the indices that may fail before `failure_action` is taken, from 0 to 1.
    max_failure_ratio: Option<Ratio>,
    /// How long an index may take before the next one takes its turn, in milliseconds, once the definition is known to
    /// work; 600,000 unless said otherwise, 0: for ever.
    index_deadline_ms: Option<u64>,
    /// Pause after so many indices were replaced; left out: never.
    pause_after: Option<u32>,
}

/// The policies of a process: what is left out is as usual.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPolicies {
    /// How an update replaces its instances.
    update: Option<RolloutPolicy>,
    /// How a rollback does.
    rollback: Option<RolloutPolicy>,
    /// How many instances a rollout leaves RUNNING at least.
    min_running: Option<u32>,
    /// How many containers that ended are kept of each index for queries to show.
    history_limit: Option<u32>,
    /// Whether and when an instance that crashed is restarted: it holds for the next crash.
    restart: Option<Restarts>,
}

/// What each instance runs.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewDefinition {
    /// What is kept running.
    action: Action,
    /// Runs before `action`, to its end.
    setup: Option<Action>,
    /// Tells whether an instance is healthy; without it, it is as soon as it runs.
    monitor: Option<Action>,
    /// How long the monitor may fail before its first success, in milliseconds; 0: for ever.
    start_timeout_ms: Option<u64>,
    /// Memory in MiB that it is placed by.
    memory_mb: Option<u64>,
    /// Disk in MiB that it is placed by.
    disk_mb: Option<u64>,
    /// Its share of a busy processor, 1 to 1024; 0: the usual one, which is 1024.
    cpu_weight: Option<u32>,
    /// Ports that it listens on, as it would like them; each gets a port of the host.
    ports: Option<BTreeSet<u16>>,
    /// Environment of everything that runs in it.
    environment_variables: Option<Environment>,
    /// Short for `environment_variables`.
    env: Option<Environment>,
    /// Which cells may take it: those of this stack.
    stack: Option<Stack>,
    /// Which cells may take it: those with exactly these tags.
    placement_tags: Option<BTreeSet<PlacementTag>>,
    /// Which cells may take it: those that keep containers apart so: `full`, `degraded` (at least a file system and processes of
    /// their own), or a list of walls.
    isolation: Option<Walls>,
    /// The file system that it gets: `preloaded:STACK`, `oci:FOLDER[:TAG]` or the path of a folder; left out: what programs need
    /// of the host's.
    root_fs: Option<String>,
    /// Another name of `root_fs`, as Diego has it.
    rootfs: Option<String>,
    /// The network that it is in: `host` unless said otherwise, or `none`, one of its own that leads nowhere.
    network: Option<Network>,
    /// Archives that are fetched before anything runs, all at once.
    cached_dependencies: Option<Vec<NewDependency>>,
    /// Who owns what `cached_dependencies` hold, as a run's `user`; left out: who runs what names nobody.
    legacy_download_user: Option<String>,
    /// What it may reach: an empty list alone, for a container shares its host's network or reaches nothing.
    egress_rules: Option<Vec<Value>>,
    /// Whose log its lines are part of: a label.
    log_guid: Option<String>,
    /// What its lines in the log are told as, but for those of actions that say otherwise.
    log_source: Option<String>,
    /// Whose metrics its metrics are: a label.
    metrics_guid: Option<String>,
    /// What cells and the places of its instances must be like.
    constraints: Option<Vec<NewRule>>,
    /// What cells had better be like, or had better not.
    affinities: Option<Vec<NewAffinity>>,
    /// Attributes over whose values its instances are spread.
    spread: Option<Vec<NewSpread>>,
    /// Time between TERM and KILL when it is stopped, in milliseconds, 10,000 unless said otherwise.
    grace_period_ms: Option<u64>,
}

/// An archive that is fetched before anything runs.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is of use")]
struct NewDependency {
    /// What it is called in the log; left out: the log tells nothing of it.
    name: Option<String>,
    /// Where it is, as a URL of http or https.
    from: Secret,
    /// The folder that it is unpacked into: relative to the work directory, or a path of a container that has a file system of its
    /// own.
    to: String,
    /// By which the cell keeps it for the next download of the same key in the same domain.
    cache_key: Option<String>,
    /// What its lines in the log are told as; left out: as the definition says.
    log_source: Option<String>,
    /// How it is checked.
    checksum_algorithm: Option<ChecksumAlgorithm>,
    /// What must come out, in hexadecimal digits.
    checksum_value: Option<String>,
}

/// Changes to a process. What is left out stays.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LrpUpdate {
    /// Which process.
    process_guid: ProcessGuid,
    /// How many instances.
    instances: Option<u32>,
    /// All of its routing data.
    routes: Option<BTreeMap<String, Value>>,
    /// The consumer's own text.
    annotation: Option<String>,
    /// How urgent it is, 1 to 100, from the next time that something of it is placed.
    priority: Option<Priority>,
    /// All of its policies: how its instances are replaced, from the next rollout on.
    policies: Option<NewPolicies>,
    /// What every instance shall run: a rollout begins, unless they run it already.
    definition: Option<NewDefinition>,
    /// Names the definition; left out: named after its content.
    definition_id: Option<DefinitionId>,
}

/// The definition that every instance shall run.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LrpActivate {
    /// Which process.
    process_guid: ProcessGuid,
    /// Which of the definitions that the process has.
    definition_id: DefinitionId,
}

/// The process whose instances are replaced by new ones that run the same.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LrpRestart {
    /// Which process.
    process_guid: ProcessGuid,
    /// What for, as the rollout says it: `"restart"` (the usual one), or `"rebalance"`.
    purpose: Option<String>,
}

/// The process whose rollout is steered.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LrpSteer {
    /// Which process.
    process_guid: ProcessGuid,
}

/// The process that shall run no more.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LrpRemove {
    /// Which process.
    process_guid: ProcessGuid,
}

/// The instance that shall stop.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LrpRetire {
    /// Which process.
    process_guid: ProcessGuid,
    /// Which of its instances.
    index: u32,
    /// Of which definition; left out: of the active one, if there are several at the index.
    definition_id: Option<DefinitionId>,
}

/// The program that is run in the container of an instance.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InstanceExec {
    /// Of which process.
    process_guid: ProcessGuid,
    /// Which of its instances.
    index: u32,
    /// Of which definition; left out: of the active one, if there are several at the index.
    definition_id: Option<DefinitionId>,
    /// What is run.
    exec: Exec,
}

/// The evaluation that is tried again now.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LrpRetry {
    /// Which process.
    process_guid: ProcessGuid,
    /// Which of its evaluations: one that waits, is blocked, or failed.
    evaluation: EvaluationId,
}

/// The evaluation that is tried again now.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskRetry {
    /// Which task.
    task_guid: TaskGuid,
    /// Which of its evaluations: one that waits, is blocked, or failed.
    evaluation: EvaluationId,
}

/// What has all that a task has, and something of its own.
macro_rules! with_all_of_a_task {
    ($(#[$doc:meta])* $name:ident { $($own:tt)* }) => {
        $(#[$doc])*
        #[derive(JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $($own)*
            /// What is run.
            action: Action,
            /// The file whose content is the result, relative to the work directory.
            result_file: Option<String>,
            /// Where the completed task is posted to: `http://` or `https://`.
            completion_callback_url: Option<Secret>,
            /// What happens when there is no room: `"fail"` (the usual one), or `{"queue": {"deadline_ms": ..}}`.
            placement: Option<Placement>,
            /// Memory in MiB that it is placed by.
            memory_mb: Option<u64>,
            /// Disk in MiB that it is placed by.
            disk_mb: Option<u64>,
            /// Its share of a busy processor, 1 to 1024; 0: the usual one, which is 1024.
            cpu_weight: Option<u32>,
            /// Environment of everything that runs in it.
            environment_variables: Option<Environment>,
            /// Short for `environment_variables`.
            env: Option<Environment>,
            /// Which cells may take it: those of this stack.
            stack: Option<Stack>,
            /// Which cells may take it: those with exactly these tags.
            placement_tags: Option<BTreeSet<PlacementTag>>,
            /// Which cells may take it: those that keep containers apart so: `full`, `degraded` (at least a file system and processes of
            /// their own), or a list of walls.
            isolation: Option<Walls>,
            /// The file system that it gets: `preloaded:STACK`, `oci:FOLDER[:TAG]` or the path of a folder; left out: what programs need
            /// of the host's.
            root_fs: Option<String>,
            /// Another name of `root_fs`, as Diego has it.
            rootfs: Option<String>,
            /// The network that it is in: `host` unless said otherwise, or `none`, one of its own that leads nowhere.
            network: Option<Network>,
            /// Archives that are fetched before anything runs, all at once.
            cached_dependencies: Option<Vec<NewDependency>>,
            /// Who owns what `cached_dependencies` hold, as a run's `user`; left out: who runs what names nobody.
            legacy_download_user: Option<String>,
            /// What it may reach: an empty list alone, for a container shares its host's network or reaches nothing.
            egress_rules: Option<Vec<Value>>,
            /// Whose log its lines are part of: a label.
            log_guid: Option<String>,
            /// What its lines in the log are told as, but for those of actions that say otherwise.
            log_source: Option<String>,
            /// Whose metrics its metrics are: a label.
            metrics_guid: Option<String>,
            /// What cells must be like.
            constraints: Option<Vec<NewRule>>,
            /// What cells had better be like, or had better not.
            affinities: Option<Vec<NewAffinity>>,
            /// The consumer's own text.
            annotation: Option<String>,
            /// How urgent it is, 1 to 100, 50 unless said otherwise: whose priority is greater is placed first.
            priority: Option<Priority>,
            /// Time between TERM and KILL when it is stopped, in milliseconds, 10,000 unless said otherwise.
            grace_period_ms: Option<u64>,
        }
    };
}

with_all_of_a_task! {
    /// A task that shall run once.
    TaskDesire {
        /// Its name.
        task_guid: TaskGuid,
        /// Its domain: that of the subject.
        domain: Domain,
    }
}

with_all_of_a_task! {
    /// A task that shall be launched again and again.
    PeriodicDesire {
        /// Its name: at most 96 of the characters of names, without `--` and not with `-` at its end.
        periodic_guid: PeriodicGuid,
        /// Its domain, and that of what it launches: that of the subject.
        domain: Domain,
        /// When it is due: minute, hour, day of the month, month, day of the week, as `30 3 * * MON-FRI`; or `@hourly`,
        /// `@daily`, `@weekly`, `@monthly`, `@yearly`.
        cron: String,
        /// The zone of the IANA database in which that is meant, UTC unless said otherwise.
        time_zone: Option<String>,
        /// What becomes of a launch that is due while an earlier one is PENDING or RUNNING: `"skipped"` (the usual one),
        /// `"allowed"` or `"queued"`.
        overlap: Option<Overlap>,
    }
}

/// The periodic task that it is about.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeriodicAsk {
    /// Which periodic task.
    periodic_guid: PeriodicGuid,
}

with_all_of_a_task! {
    /// A template of which each dispatch makes a task.
    ParameterisedDesire {
        /// Its name: at most 96 of the characters of names, without `--` and not with `-` at its end.
        parameterised_guid: ParameterisedGuid,
        /// Its domain, and that of its tasks: that of the subject.
        domain: Domain,
        /// Whether a dispatch has a payload: `"optional"` (the usual one), `"required"` or `"forbidden"`.
        payload: Option<PayloadRule>,
        /// The parameters that a dispatch must give, at most 64: each 1 to 64 of `A-Z a-z 0-9 _`, with no digit first.
        required_parameters: Option<BTreeSet<String>>,
        /// The parameters that it may give.
        optional_parameters: Option<BTreeSet<String>>,
        /// How many of its tasks may be PENDING or RUNNING at once, 1 to 10,000; left out: any number.
        concurrency: Option<u32>,
        /// What becomes of a dispatch beyond that: `"queued"` (the usual one) or `"refused"`.
        overflow: Option<Overflow>,
    }
}

/// What is dispatched.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParameterisedDispatch {
    /// Of which parameterised task.
    parameterised_guid: ParameterisedGuid,
    /// Bytes for the task, at most 16 KiB, in base64 with padding.
    payload: Option<String>,
    /// Named values for the task, none of them a secret: at most 64, and at most 16 KiB of names and values.
    parameters: Option<Environment>,
    /// The same key with the same payload, parameters and priority again is the same dispatch.
    key: Option<DispatchKey>,
    /// How urgent the task is, 1 to 100; left out: as the template says.
    priority: Option<Priority>,
}

/// The dispatch that shall become no task.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParameterisedWithdraw {
    /// Of which parameterised task.
    parameterised_guid: ParameterisedGuid,
    /// Its number: one that waits.
    number: u64,
}

/// The parameterised task that shall go.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParameterisedRemove {
    /// Which parameterised task.
    parameterised_guid: ParameterisedGuid,
}

/// The task that shall not run any more.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskCancel {
    /// Which task.
    task_guid: TaskGuid,
}

/// The task whose outcome was taken note of.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskResolve {
    /// Which task.
    task_guid: TaskGuid,
}

/// The domain that is up to date.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DomainUpsert {
    /// Which domain: that of the subject.
    domain: Domain,
    /// For how long, in milliseconds; left out: for ever.
    ttl_ms: Option<u64>,
}

/// The cell that it is about.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CellEvacuate {
    /// Which cell.
    cell_id: CellId,
}
