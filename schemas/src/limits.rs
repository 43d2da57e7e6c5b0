//! Limits of specs, messages, entries and services, each with its unit. Nothing in Muster is unbounded
//! (docs/internals/architecture.md, "Invariants").

use std::time::Duration;

/// Maximum length of an id, in bytes. Ids are `[A-Za-z0-9_-]{1,128}`.
pub const ID_BYTES: usize = 128;
/// Maximum length of a periodic task's guid, in bytes. The guid of a launched task is this guid with a time
/// appended.
pub const PERIODIC_GUID_BYTES: usize = 96;
/// Maximum size of a stored periodic task, in bytes. One decision may both change the periodic task and
/// launch a task.
pub const PERIODIC_BYTES: usize = 64 * 1024;
/// Maximum length of a cron expression and of the name of a time zone, in bytes.
pub const CRON_BYTES: usize = 128;
/// Maximum count of missed launches. A skip with this count may stand for more missed launches.
pub const MISSED_LAUNCHES: u32 = 1_000;
/// Maximum length of a parameterised task's guid, in bytes. The guid of a launched task is this guid with a
/// number appended.
pub const PARAMETERISED_GUID_BYTES: usize = 96;
/// Maximum size of a stored parameterised task, in bytes. One decision may both record a dispatch and create
/// its task.
pub const PARAMETERISED_BYTES: usize = 64 * 1024;
/// Maximum size of a dispatch's payload, in bytes.
pub const PAYLOAD_BYTES: usize = 16 * 1024;
/// Maximum number of parameters of a parameterised task and of a dispatch.
pub const PARAMETERS: usize = 64;
/// Maximum length of a parameter name, in bytes.
pub const PARAMETER_NAME_BYTES: usize = 64;
/// Maximum size of a dispatch's parameters, in bytes of names and values.
pub const PARAMETERS_BYTES: usize = 16 * 1024;
/// Maximum value of a parameterised task's concurrency limit.
pub const CONCURRENCY: u32 = 10_000;
/// Maximum number of queued dispatches of a parameterised task.
pub const DISPATCHES_QUEUED: usize = 1_024;
/// Maximum number of dispatch keys that a parameterised task remembers.
pub const DISPATCH_KEYS: usize = 4_096;
/// Maximum size of a spec as sent, in bytes.
pub const SPEC_BYTES: usize = 128 * 1024;
/// Maximum size of an annotation, in bytes.
pub const ANNOTATION_BYTES: usize = 10 * 1024;
/// Maximum size of a set of routes, in bytes of JSON.
pub const ROUTES_BYTES: usize = 128 * 1024;
/// Maximum output that a container may log per minute, in bytes. Further lines are dropped until the minute
/// is over.
pub const OUTPUT_BYTES_PER_MINUTE: u64 = 10 * 1024 * 1024;
/// Maximum number of instances of a process.
pub const INSTANCES: u32 = 10_000;
/// Maximum memory or disk of a spec and of a cell, in MiB.
pub const RESOURCE_MB: u64 = 1 << 30;
/// Maximum depth of an action tree, in nodes from the root to a leaf.
pub const ACTION_DEPTH: usize = 16;
/// Maximum size of an action tree, in nodes.
pub const ACTION_NODES: usize = 256;
/// Maximum number of variables in one environment.
pub const ENVIRONMENT_VALUES: usize = 256;
/// Maximum size of an environment, in bytes of names and values.
pub const ENVIRONMENT_BYTES: usize = 64 * 1024;
/// Maximum length of a sealing key's id, in bytes.
pub const KEY_ID_BYTES: usize = 64;
/// Maximum size of a sealed value, in bytes of base64. The largest environment fits.
pub const SEALED_BYTES: usize = (ENVIRONMENT_BYTES + crate::action::Sealed::OVERHEAD).div_ceil(3) * 4;
/// Maximum number of ports of a definition.
pub const PORTS: usize = 64;
/// Maximum number of placement tags of a definition.
pub const PLACEMENT_TAGS: usize = 16;
/// Maximum length of a cell attribute's name, in bytes.
pub const ATTRIBUTE_NAME_BYTES: usize = 64;
/// Maximum length of a cell attribute's value, in bytes.
pub const ATTRIBUTE_VALUE_BYTES: usize = 256;
/// Maximum number of attributes of a cell.
pub const CELL_ATTRIBUTES: usize = 64;
/// Maximum size of a cell's attributes, in bytes of names and values.
pub const ATTRIBUTES_BYTES: usize = 8 * 1024;
/// Maximum number of constraints of a definition. The number of affinities has the same limit.
pub const RULES: usize = 16;
/// Maximum number of attributes in the spread of a definition.
pub const SPREADS: usize = 4;
/// Maximum number of values with a target in one spread.
pub const SPREAD_TARGETS: usize = 32;
/// Maximum absolute weight of an affinity, and maximum weight of a spread.
pub const WEIGHT: u8 = 100;
/// Maximum size of a compiled regular expression, in bytes.
pub const PATTERN_BYTES: usize = 256 * 1024;
/// Maximum CPU weight. The value 0 in a spec selects this maximum.
pub const CPU_WEIGHT: u32 = 1024;
/// Minimum priority of a process or task.
pub const MIN_PRIORITY: u8 = 1;
/// Default priority of a process or task.
pub const DEFAULT_PRIORITY: u8 = 50;
/// Maximum priority of a process or task. Work with this priority is placed first.
pub const MAX_PRIORITY: u8 = 100;
/// Maximum grace period of a container, in milliseconds: 10 minutes.
pub const GRACE_MS: u64 = 10 * 60 * 1000;
/// Maximum value of a duration in a spec, except the grace period, in milliseconds: ten years.
pub const DURATION_MS: u64 = 10 * 365 * 24 * 60 * 60 * 1000;
/// Maximum length of a file path, in bytes.
pub const PATH_BYTES: usize = 4096;
/// Maximum length of a user name with its group, in bytes.
pub const USER_BYTES: usize = 256;
/// Maximum length of a label, such as a log source or a log guid, and of the name of an artifact, in bytes.
pub const LABEL_BYTES: usize = 256;
/// Maximum length of an artifact's cache key, in bytes.
pub const CACHE_KEY_BYTES: usize = 1024;
/// Maximum number of cached dependencies of a definition. These archives are fetched before any program runs.
pub const CACHED_DEPENDENCIES: usize = 64;
/// Maximum number of folder entries in one answer about a container's files.
pub const FILE_ENTRIES: usize = 1_000;
/// Maximum number of file bytes in one answer about a container's files.
pub const FILE_BYTES: usize = 256 * 1024;
/// Maximum size of the path and the arguments of an exec session's program, in bytes.
pub const EXEC_BYTES: usize = 8 * 1024;
/// Maximum length of a terminal type, in bytes.
pub const TERMINAL_KIND_BYTES: usize = 64;
/// Maximum time that a request of an exec session may wait for output, in milliseconds.
pub const EXEC_IO_WAIT_MS: u64 = 1_000;
/// Maximum size of the input or output in one message of an exec session, in bytes.
pub const EXEC_IO_BYTES: usize = 128 * 1024;
/// Maximum value of a program's limit of open files.
pub const NOFILE: u64 = 1 << 20;
/// Maximum length of a URL, in bytes.
pub const URL_BYTES: usize = 8 * 1024;
/// Maximum number of log entries in the queue for a BBS's log output and trace collector. Further entries are
/// skipped.
pub const DECISION_LOG_QUEUE: usize = 4_096;
/// Maximum number of decisions, of chains and of evaluations that the tracer remembers. The limit applies to
/// each kind. The newest ones are kept.
pub const REMEMBERED_TRACES: usize = 65_536;

/// Maximum length of a `traceparent`, in bytes.
pub const TRACE_BYTES: usize = 256;
/// Maximum number of definitions of a process.
pub const DEFINITIONS: usize = 16;
/// Maximum size of a decision as JSON, in bytes.
pub const DECISION_BYTES: usize = 256 * 1024;
/// Part of a decision's size that is not available to its largest event, in bytes. It is reserved for the
/// stamp, the other events and an explanation.
pub const DECISION_HEAD_BYTES: usize = 16 * 1024;
/// Maximum size of an entry as JSON, in bytes. Less than the `max_payload` of the NATS server.
pub const ENTRY_BYTES: usize = 512 * 1024;
/// Maximum number of rows on a page of a query.
pub const PAGE_ROWS: usize = 1_000;
/// Maximum size of a page of a query, in bytes.
pub const PAGE_BYTES: usize = 512 * 1024;
/// Maximum size of a task's result, in bytes.
pub const TASK_RESULT_BYTES: usize = 50 * 1024;
/// Maximum size of an explanation of one outcome, in bytes.
pub const EXPLANATION_BYTES: usize = 4 * 1024;
/// Number of best candidates that an explanation names.
pub const EXPLAINED_CANDIDATES: usize = 5;
/// Maximum number of monitor probes that a cell keeps for a container.
pub const PROBES_KEPT: usize = 3;
/// Maximum number of output lines that are kept for a probe. The last lines are kept.
pub const PROBE_OUTPUT_LINES: usize = 8;
/// Maximum length of an output line of a probe, in bytes. A longer line is truncated.
pub const PROBE_LINE_BYTES: usize = 256;
/// Maximum number of restarts that a restart policy may allow and count.
pub const RESTART_ATTEMPTS: u32 = 100;
/// Maximum restart delay of a policy, in milliseconds: one day.
pub const RESTART_DELAY_MS: u32 = 24 * 3_600_000;
/// Maximum window in which a policy counts restarts, in milliseconds: 30 days.
pub const RESTART_WINDOW_MS: u32 = 30 * 24 * 3_600_000;
/// Maximum length of the reason for a crash or failure, in bytes. A longer reason is truncated.
pub const REASON_BYTES: usize = 1024;
/// Maximum number of requests that a process or task remembers with their answers.
pub const REMEMBERED_REQUESTS: usize = 32;
/// Maximum number of ended evaluations that a process or task keeps: the newest.
pub const KEPT_EVALUATIONS: usize = 8;
/// Retention time of an ended evaluation. It is measured by the times of later decisions about the same
/// process or task. Afterwards only the log contains the evaluation.
pub const EVALUATION_RETENTION: Duration = Duration::from_secs(3_600);
/// Maximum number of joined causes that a pending evaluation lists: the newest.
pub const JOINED_CAUSES: usize = 8;
/// Default number of ended containers that queries show for each index. SwarmKit has the same default for
/// each slot, but its number includes the running container.
pub const DEFAULT_HISTORY_SHOWN: u32 = 5;
/// Default number of ended containers that are kept for each index. Queries cannot be configured to show more
/// than this number.
pub const DEFAULT_HISTORY_KEPT: u32 = 20;
/// Maximum number of ended containers per index that a process may request.
pub const HISTORY_LIMIT: u32 = 100;
/// Maximum number of ended containers that are kept for a process: the newest.
pub const ENDED_PER_PROCESS: usize = 2_000;
/// Maximum number of ended containers that are kept for the whole cluster: the newest.
pub const ENDED_INSTANCES: usize = 100_000;
/// Ratio of the numbers of ended tasks and ended containers in the history. If five ended containers are
/// shown for each index, 100 ended tasks are shown for each domain.
pub const TASKS_PER_HISTORY: usize = 20;
/// Maximum number of ended tasks that are kept for the whole cluster: the newest.
pub const ENDED_TASKS: usize = 10_000;
/// Maximum size of an ended task's result, in bytes. A longer result is truncated.
pub const ENDED_RESULT_BYTES: usize = 1024;
/// Maximum number of malformed entries that are shown: the newest.
pub const SHOWN_MALFORMED_ENTRIES: usize = 8;
/// Maximum number of positions of a journal that operators may quarantine.
pub const QUARANTINED_POSITIONS: usize = 1024;
/// Maximum number of entry ids that a reader of the log remembers, each with its position: the newest.
pub const REMEMBERED_ENTRIES: usize = 16_384;
/// Maximum number of quarantined messages for which a BBS remembers the reason: the newest.
pub const QUARANTINE_REASONS: usize = 16_384;
/// Maximum number of BBSs that a status shows, and of auctioneers. The leader and the services with the
/// earliest first report are shown.
pub const SERVICES_SHOWN: usize = 64;
/// Maximum number of clocks that a status names because they deviate from the other clocks.
pub const CLOCKS_SHOWN: usize = 10;
/// Maximum length of a host name or a version that a service reports, in bytes. Longer text is truncated.
pub const PROGRAM_BYTES: usize = 64;
/// Maximum length of the reason for failed appends that a BBS reports, in bytes. A longer reason is
/// truncated.
pub const APPEND_REASON_BYTES: usize = 512;
/// Maximum number of instances that a status names, and of cells. The instances and cells in the worst state
/// are named.
pub const STATUS_NAMED: usize = 8;
/// Maximum number of unanswered commands of one client or operator.
pub const COMMANDS_IN_FLIGHT: usize = 64;
/// Maximum number of unacknowledged journal entries with commands of the same client or operator. Each
/// unacknowledged entry delays later entries. Commands above the limit wait. If the shard sends other
/// commands for the same subject, the waiting commands join that entry.
pub const CLIENT_ENTRIES_IN_FLIGHT: usize = 4;
/// Size of the unacknowledged journal entries of a shard, in bytes, above which it sends only commands of
/// clients and operators. Every entry waits for all entries that were sent before it, and other commands
/// would delay clients.
pub const BYTES_IN_FLIGHT: usize = 256 * 1024;
/// Maximum number of unanswered commands of all clients and operators.
pub const COMMANDS_WAITING: usize = 32_768;
/// Maximum number of unanswered messages of one service, such as reports of a rep.
pub const SERVICE_MESSAGES_IN_FLIGHT: usize = 1_024;
/// Maximum number of unanswered messages of all services.
pub const SERVICE_MESSAGES_WAITING: usize = 65_536;
/// Maximum number of unanswered queries of one service.
pub const SERVICE_QUERIES_IN_FLIGHT: usize = 256;
/// Maximum number of unanswered queries of all services.
pub const SERVICE_QUERIES_WAITING: usize = 16_384;
/// Maximum number of refusals that wait to be sent by a BBS.
pub const REFUSALS_WAITING: usize = 65_536;
/// Maximum number of entries that wait to be published on the feed. Further entries are skipped and counted.
pub const FEED_WAITING: usize = 1_024;
/// Maximum number of unanswered queries of one client.
pub const QUERIES_IN_FLIGHT: usize = 64;
/// Maximum number of unanswered queries of all clients.
pub const QUERIES_WAITING: usize = 4_096;
/// Maximum number of reads of events and logs of one client that wait for new data.
pub const LONG_POLLS: usize = 16;
/// Maximum number of reads of events and logs of all clients that wait for new data.
pub const LONG_POLLS_WAITING: usize = 512;
/// Maximum number of concurrent completion callbacks. Further callbacks wait in the BBS.
pub const CALLBACKS_IN_FLIGHT: usize = 128;
/// Maximum number of World snapshots that are held for further pages.
pub const WORLD_SNAPSHOTS_HELD: usize = 64;
/// Maximum time that a World snapshot is held for the next page, in milliseconds.
pub const WORLD_SNAPSHOT_HELD_MS: u64 = 30_000;
/// Maximum size of a message on the bus, in bytes.
pub const MESSAGE_BYTES: usize = 1024 * 1024;
/// Maximum number of commands, work items or outcomes in one message between services.
pub const BATCH: usize = 500;
/// Maximum number of instances and tasks in a cluster whose preemption is in progress. Preemption stops them
/// to free resources for more urgent work.
pub const EVICTIONS: usize = 100;
/// Maximum number of instances and tasks that are stopped to free resources for one instance or task.
pub const VICTIMS: usize = 8;

/// Truncates `text` to at most `bytes` bytes at a character boundary, and marks it as truncated.
#[must_use]
pub fn truncate(text: &str, bytes: usize) -> String {
    const MARK: &str = " (truncated)";
    if text.len() <= bytes {
        return text.to_owned();
    }
    let mut end = bytes.saturating_sub(MARK.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{MARK}", &text[..end])
}
