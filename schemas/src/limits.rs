//! Every limit of the language, with its unit. Nothing in Muster is unbounded (docs/architecture.md, "Invariants").

use std::time::Duration;

/// Longest id, in bytes. Ids are `[A-Za-z0-9_-]{1,128}`.
pub const ID_BYTES: usize = 128;
/// Longest guid of a periodic task, in bytes: what it launches adds a time to it.
pub const PERIODIC_GUID_BYTES: usize = 96;
/// Largest periodic task as it is stored, in bytes: one decision may change it and launch a task.
pub const PERIODIC_BYTES: usize = 64 * 1024;
/// Longest cron expression, and longest name of a time zone, in bytes.
pub const CRON_BYTES: usize = 128;
/// Missed launches that are counted one by one; a skip that says so many may stand for more.
pub const MISSED_COUNTED: u32 = 1_000;
/// Longest guid of a parameterised task, in bytes: what is dispatched adds a number to it.
pub const PARAMETERISED_GUID_BYTES: usize = 96;
/// Largest parameterised task as it is stored, in bytes: one decision may dispatch it and desire a task of it.
pub const PARAMETERISED_BYTES: usize = 64 * 1024;
/// Largest payload of a dispatch, in bytes.
pub const PAYLOAD_BYTES: usize = 16 * 1024;
/// Most parameters that a parameterised task takes, and that a dispatch gives.
pub const PARAMETERS: usize = 64;
/// Longest name of a parameter, in bytes.
pub const PARAMETER_NAME_BYTES: usize = 64;
/// Largest parameters of a dispatch, in bytes of names and values.
pub const PARAMETERS_BYTES: usize = 16 * 1024;
/// Most tasks of one parameterised task that its limit may allow at once.
pub const CONCURRENCY: u32 = 10_000;
/// Most dispatches of one parameterised task that wait.
pub const DISPATCHES_QUEUED: usize = 1_024;
/// Most keys of dispatches that one parameterised task remembers.
pub const DISPATCH_KEYS: usize = 4_096;
/// Largest spec as it is sent, in bytes.
pub const SPEC_BYTES: usize = 128 * 1024;
/// Largest annotation, in bytes.
pub const ANNOTATION_BYTES: usize = 10 * 1024;
/// Largest set of routes, in bytes of JSON.
pub const ROUTES_BYTES: usize = 128 * 1024;
/// Bytes of lines that a container may log in a minute. Further lines are dropped until the minute is over.
pub const OUTPUT_BYTES_PER_MINUTE: u64 = 10 * 1024 * 1024;
/// Most instances of one process.
pub const INSTANCES: u32 = 10_000;
/// Largest memory or disk that a spec may ask for, and that a cell may have, in MiB.
pub const RESOURCE_MB: u64 = 1 << 30;
/// Deepest action tree, in nodes from the root to a leaf.
pub const ACTION_DEPTH: usize = 16;
/// Largest action tree, in nodes.
pub const ACTION_NODES: usize = 256;
/// Most environment values in one list.
pub const ENVIRONMENT_VALUES: usize = 256;
/// Largest environment, in bytes of names and values.
pub const ENVIRONMENT_BYTES: usize = 64 * 1024;
/// Longest id of a key that seals secrets, in bytes.
pub const KEY_ID_BYTES: usize = 64;
/// Largest sealed value, in bytes of base64: that of the largest environment.
pub const SEALED_BYTES: usize = (ENVIRONMENT_BYTES + crate::action::Sealed::OVERHEAD).div_ceil(3) * 4;
/// Most ports of one definition.
pub const PORTS: usize = 64;
/// Most placement tags of one definition.
pub const PLACEMENT_TAGS: usize = 16;
/// Longest name of a cell's attribute, in bytes.
pub const ATTRIBUTE_NAME_BYTES: usize = 64;
/// Longest value of a cell's attribute, in bytes.
pub const ATTRIBUTE_VALUE_BYTES: usize = 256;
/// Most attributes of one cell.
pub const CELL_ATTRIBUTES: usize = 64;
/// Largest set of attributes of one cell, in bytes of names and values.
pub const ATTRIBUTES_BYTES: usize = 8 * 1024;
/// Most constraints of one definition, and most affinities.
pub const RULES: usize = 16;
/// Most attributes over which one definition is spread.
pub const SPREADS: usize = 4;
/// Most values for which one spread names a target.
pub const SPREAD_TARGETS: usize = 32;
/// Largest weight of an affinity, either way, and of a spread.
pub const WEIGHT: u8 = 100;
/// Largest regular expression, in bytes of what it is compiled to.
pub const PATTERN_BYTES: usize = 256 * 1024;
/// Largest share of the processor, and the usual one, for which 0 stands, too.
pub const CPU_WEIGHT: u32 = 1024;
/// The least priority of a process or task.
pub const LEAST_PRIORITY: u8 = 1;
/// The priority of what says nothing of it.
pub const USUAL_PRIORITY: u8 = 50;
/// The greatest priority of a process or task: it goes first.
pub const GREATEST_PRIORITY: u8 = 100;
/// Longest time that a container may take to stop, in milliseconds: 10 minutes.
pub const GRACE_MS: u64 = 10 * 60 * 1000;
/// Longest time that a client may name for anything else, in milliseconds: ten years.
pub const DURATION_MS: u64 = 10 * 365 * 24 * 60 * 60 * 1000;
/// Longest path of a file, in bytes.
pub const PATH_BYTES: usize = 4096;
/// Longest name of who runs a program, with its group, in bytes.
pub const USER_BYTES: usize = 256;
/// Longest label, as a source or guid of logs, and longest name of an artifact, in bytes.
pub const LABEL_BYTES: usize = 256;
/// Longest key by which cells keep an artifact, in bytes.
pub const CACHE_KEY_BYTES: usize = 1024;
/// Most archives that a definition has fetched before anything runs.
pub const CACHED_DEPENDENCIES: usize = 64;
/// Entries of a folder of a container that one answer shows.
pub const FILE_ENTRIES: usize = 1_000;
/// Bytes of a file of a container in one answer.
pub const FILE_BYTES: usize = 256 * 1024;
/// Bytes of the path and the arguments of a program that is run in a container beside what its definition runs.
pub const EXEC_BYTES: usize = 8 * 1024;
/// Longest word for what a terminal is, in bytes.
pub const TERMINAL_KIND_BYTES: usize = 64;
/// Longest wait for what such a program says, in milliseconds.
pub const TALK_WAIT_MS: u64 = 1_000;
/// Bytes that one message brings to such a program, or from it.
pub const TALK_BYTES: usize = 128 * 1024;
/// Most files that a program may be allowed to have open.
pub const NOFILE: u64 = 1 << 20;
/// Longest URL, in bytes.
pub const URL_BYTES: usize = 8 * 1024;
/// Entries that wait to be told to the log of a BBS's program and to a collector of traces; more are left out.
pub const DECIDED_WAITING: usize = 4_096;
/// Decisions, chains and evaluations, of each the newest, that are known to who makes spans.
pub const TRACES_KNOWN: usize = 65_536;

/// Longest `traceparent`, in bytes.
pub const TRACE_BYTES: usize = 256;
/// Most definitions that a process keeps.
pub const DEFINITIONS: usize = 16;
/// Largest decision as JSON, in bytes.
pub const DECISION_BYTES: usize = 256 * 1024;
/// What of a decision is kept for everything but the largest event, in bytes: its stamp, its other events, an
/// explanation.
pub const DECISION_HEAD_BYTES: usize = 16 * 1024;
/// Largest entry as JSON, in bytes. Below the server's `max_payload`.
pub const ENTRY_BYTES: usize = 512 * 1024;
/// Most rows on one page of a query.
pub const PAGE_ROWS: usize = 1_000;
/// Largest page of a query, in bytes.
pub const PAGE_BYTES: usize = 512 * 1024;
/// Largest result of a task, in bytes.
pub const TASK_RESULT_BYTES: usize = 50 * 1024;
/// Largest explanation kept for one outcome, in bytes.
pub const EXPLANATION_BYTES: usize = 4 * 1024;
/// Best candidates named in an explanation.
pub const EXPLAINED_CANDIDATES: usize = 5;
/// Probes of a monitor that a cell keeps for each container.
pub const PROBES_KEPT: usize = 3;
/// Lines of its output that are kept of a probe, the last ones.
pub const PROBE_OUTPUT_LINES: usize = 8;
/// Longest such line, in bytes; a longer one is cut.
pub const PROBE_LINE_BYTES: usize = 256;
/// Most restarts that a restart policy counts.
pub const RESTART_ATTEMPTS: u32 = 100;
/// Longest wait before a restart that a policy may ask for, in milliseconds: a day.
pub const RESTART_DELAY_MS: u32 = 24 * 3_600_000;
/// Longest time for which a policy may count restarts, in milliseconds: 30 days.
pub const RESTART_WINDOW_MS: u32 = 30 * 24 * 3_600_000;
/// Longest crash or failure reason, in bytes; a longer one is cut.
pub const REASON_BYTES: usize = 1024;
/// Request ids that a process or task remembers with their answers.
pub const REMEMBERED_REQUESTS: usize = 32;
/// Ended evaluations that a process or task keeps, the newest.
pub const KEPT_EVALUATIONS: usize = 8;
/// How long an ended evaluation is kept, in time of its subject's log: then only the log has it.
pub const EVALUATION_KEPT_FOR: Duration = Duration::from_secs(3_600);
/// Causes that a pending evaluation lists of those that joined it, the newest.
pub const JOINED_CAUSES: usize = 8;
/// Ended containers that are shown of each index, unless the cluster or its process says otherwise: as many as SwarmKit
/// keeps of each slot, which counts the living one, too.
pub const HISTORY_SHOWN: u32 = 5;
/// Ended containers that are kept of each index of a process that doesn't say how many: a cluster can show so many.
pub const HISTORY_KEPT: u32 = 20;
/// Most ended containers that a process may want kept of each index.
pub const HISTORY_LIMIT: u32 = 100;
/// Ended containers that are kept of one process, the newest.
pub const ENDED_OF_PROCESS: usize = 2_000;
/// Ended containers that are kept in all, the newest.
pub const ENDED_INSTANCES: usize = 100_000;
/// Ended tasks that are shown of each domain, for each ended container that is shown of an index.
pub const TASKS_PER_HISTORY: usize = 20;
/// Ended tasks that are kept in all, the newest.
pub const ENDED_TASKS: usize = 10_000;
/// What is kept of the result of an ended task, in bytes.
pub const ENDED_RESULT_BYTES: usize = 1024;
/// Malformed entries that are shown, the newest ones.
pub const SHOWN_MALFORMED_ENTRIES: usize = 8;
/// Most positions of a journal that operators may set aside.
pub const POSITIONS_SET_ASIDE: usize = 1024;
/// Entries of which a reader remembers where they stand, the newest.
pub const KNOWN_ENTRIES: usize = 16_384;
/// Set-aside messages of which a BBS remembers why, for whoever reads the log; the newest.
pub const SET_ASIDE_EXPLAINED: usize = 16_384;
/// BBSs that are shown, and auctioneers: of more, those that were heard first, and who leads.
pub const SERVICES_SHOWN: usize = 64;
/// Clocks that a status names because they differ from the others.
pub const CLOCKS_SHOWN: usize = 10;
/// Longest name of a host or of a version that a service may say, in bytes; a longer one is cut.
pub const PROGRAM_BYTES: usize = 64;
/// Longest reason of an append trouble that a BBS publishes, in bytes; a longer one is cut.
pub const APPEND_REASON_BYTES: usize = 512;
/// Instances and cells that a status names, the worst.
pub const STATUS_NAMED: usize = 8;
/// Most commands of one client, or of one operator, that may wait for an answer at once.
pub const COMMANDS_IN_FLIGHT: usize = 64;
/// Most entries in flight to the journal that hold commands of one client, or of one operator, unless somebody else's
/// command waits where the next one would be. Each takes a write of its own, for which others' entries wait.
pub const FLIGHTS_OF_A_CLIENT: usize = 4;
/// Bytes of entries in flight to the journal beyond which only what clients and operators ask is sent: each of them waits for
/// all that was sent before.
pub const BYTES_IN_FLIGHT: usize = 256 * 1024;
/// Most commands of all clients and operators together that may wait for an answer at once.
pub const COMMANDS_WAITING: usize = 32_768;
/// Most messages of one service (reports of a rep, outcomes) that may wait for an answer at once.
pub const SERVICE_MESSAGES_IN_FLIGHT: usize = 1_024;
/// Most messages of all services together that may wait for an answer at once.
pub const SERVICE_MESSAGES_WAITING: usize = 65_536;
/// Most queries of one service that may wait for an answer at once.
pub const SERVICE_QUERIES_IN_FLIGHT: usize = 256;
/// Most queries of all services together that may wait for an answer at once.
pub const SERVICE_QUERIES_WAITING: usize = 16_384;
/// Most refusals of a BBS that wait to be sent.
pub const REFUSALS_WAITING: usize = 65_536;
/// Most entries that wait to be told on the feed: more are left out, and counted.
pub const FEED_WAITING: usize = 1_024;
/// Most queries of one client that may wait for an answer at once.
pub const QUERIES_IN_FLIGHT: usize = 64;
/// Most queries of all clients together that may wait for an answer at once.
pub const QUERIES_WAITING: usize = 4_096;
/// Most reads of events and logs of one client that may wait at once.
pub const LONG_POLLS: usize = 16;
/// Most reads of events and logs of all clients together that may wait at once.
pub const LONG_POLLS_WAITING: usize = 512;
/// Most completion callbacks that are out at once: the others wait in the BBS until one comes back.
pub const CALLBACKS_IN_FLIGHT: usize = 128;
/// Most pictures of the World that are held for further pages.
pub const PICTURES_HELD: usize = 64;
/// How long a picture is held for further pages, at most, in milliseconds.
pub const PICTURE_HELD_MS: u64 = 30_000;
/// Largest message on the bus, in bytes.
pub const MESSAGE_BYTES: usize = 1024 * 1024;
/// Most commands, work items or outcomes in one message between services.
pub const BATCH: usize = 500;
/// Most instances and tasks of a cluster that are being stopped for more urgent work at a time.
pub const EVICTIONS: usize = 100;
/// Most instances and tasks that are stopped so that one piece of work has room.
pub const VICTIMS: usize = 8;

/// Cuts `text` to at most `bytes` bytes at a character's edge, and says so.
#[must_use]
pub fn cut(text: &str, bytes: usize) -> String {
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
