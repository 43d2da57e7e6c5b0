//! Configuration of the stream that holds the journal, and the checks that refuse a stream that could lose or
//! rewrite history.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind};
use async_nats::jetstream::stream::{
    Compression, Config, ConsumerLimits, DiscardPolicy, Info, PersistenceMode, RetentionPolicy, State,
    StorageType,
};
use schemas::Position;
use schemas::limits::ENTRY_BYTES;
use schemas::subject::EVENT_ROOT;
pub use schemas::subject::STREAM;

use super::Durability;
use crate::limits::{CONSUMER_IDLE_TIMEOUT, DUPLICATE_WINDOW};
use crate::monitor;

/// Generous upper bound of the bytes that headers and subject add to an entry.
const ENVELOPE_BYTES: usize = 4 * 1024;

/// Lowest error code of failures of the server itself. Such a failure may be temporary.
const SERVER_ERRORS: usize = 500;

/// Settings for finding or creating the stream.
#[derive(Clone, Debug)]
pub struct StreamSettings {
    /// Number of servers that must hold every entry: 1, 3 or 5. A stream with fewer replicas is refused.
    pub replicas: usize,
    /// `true` to create the stream if it does not exist. The user needs permission to create it.
    pub create: bool,
    /// Last position of the log that the caller imports; `None` for any other use.
    ///
    /// A stream with an unfinished import is refused to all other callers, so that no service decides on a
    /// partial log.
    pub imports: Option<Position>,
    /// Monitoring addresses of the servers, such as `http://127.0.0.1:8222`. They report whether a server
    /// syncs every write. Without an address, durability is unverified.
    pub monitoring: Vec<String>,
}

impl Default for StreamSettings {
    fn default() -> Self {
        Self { replicas: 1, create: true, imports: None, monitoring: Vec::new() }
    }
}

/// Returns the subjects of the stream.
fn subjects() -> Vec<String> {
    vec![format!("{EVENT_ROOT}>")]
}

/// Returns the consumer limits of the stream. With these limits the server removes every consumer without
/// pull requests, including durable ones. Otherwise a client that may follow the stream could create and
/// abandon so many consumers that other clients are locked out.
const fn consumer_limits() -> ConsumerLimits {
    ConsumerLimits { inactive_threshold: CONSUMER_IDLE_TIMEOUT, max_ack_pending: 0 }
}

/// Returns the time after which a stream removes an inactive consumer. `None` if the stream keeps durable
/// consumers.
fn inactive_threshold(config: &Config) -> Option<Duration> {
    let limits = config.consumer_limits.as_ref()?;
    (!limits.inactive_threshold.is_zero()).then_some(limits.inactive_threshold)
}

/// Returns the configuration with which Muster creates the stream.
pub(super) fn config(replicas: usize) -> Config {
    Config {
        name: STREAM.to_owned(),
        description: Some("Event log of Muster; append-only".to_owned()),
        subjects: subjects(),
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        max_bytes: -1,
        max_messages: -1,
        max_messages_per_subject: -1,
        max_consumers: -1,
        num_replicas: replicas,
        duplicate_window: DUPLICATE_WINDOW,
        deny_delete: true,
        deny_purge: true,
        allow_direct: true,
        consumer_limits: Some(consumer_limits()),
        compression: Some(Compression::None),
        ..Config::default()
    }
}

/// Metadata key for the last position of the log that is imported into the stream.
const IMPORTED_TO: &str = "muster.imported-to";

/// Returns the configuration with which the stream is created for a caller.
pub(super) fn config_for(settings: &StreamSettings) -> Config {
    let mut config = config(settings.replicas);
    config.metadata.extend(settings.imports.map(|last| (IMPORTED_TO.to_owned(), last.to_string())));
    config
}

/// Describes the progress of an unfinished import. `None` without an import, or after a complete one.
pub(super) fn unfinished_import(info: &Info) -> Option<String> {
    let to: u64 = info.config.metadata.get(IMPORTED_TO)?.parse().ok()?;
    let at = info.state.last_sequence;
    (at < to).then(|| format!("a log is being imported into the stream {STREAM}: position {at} of {to}"))
}

/// Returns all settings and limits of a stream that could lose or rewrite history, or that Muster cannot work
/// with.
pub(super) fn problems(config: &Config, replicas: usize) -> Vec<String> {
    let mut problems = Vec::new();
    let mut refuse = |bad: bool, why: &str| {
        if bad {
            problems.push(why.to_owned());
        }
    };
    let old = config.discard == DiscardPolicy::Old;
    refuse(config.subjects != subjects(), "its subjects aren't exactly muster.event.>");
    refuse(config.storage != StorageType::File, "storage isn't file");
    refuse(config.retention != RetentionPolicy::Limits, "retention isn't limits");
    refuse(!config.max_age.is_zero(), "max_age drops entries");
    refuse(config.max_messages > 0 && old, "max_msgs with discard old drops entries");
    refuse(config.max_bytes > 0 && old, "max_bytes with discard old drops entries");
    refuse(old, "discard isn't new");
    refuse(config.max_messages_per_subject > 0, "max_msgs_per_subject drops entries");
    refuse(!config.deny_delete, "deny_delete isn't set");
    refuse(!config.deny_purge, "deny_purge isn't set");
    refuse(config.allow_rollup, "allow_rollup_hdrs rewrites history");
    refuse(config.mirror.is_some(), "it is a mirror");
    refuse(config.sources.as_ref().is_some_and(|sources| !sources.is_empty()), "it has sources");
    refuse(
        config.persist_mode == Some(PersistenceMode::Async),
        "persist_mode async acknowledges before writing",
    );
    refuse(config.sealed, "it is sealed");
    refuse(config.no_ack, "no_ack acknowledges nothing");
    refuse(config.subject_transform.is_some(), "subject_transform rewrites subjects");
    refuse(config.republish.is_some(), "republish publishes entries before they are durable");
    refuse(config.allow_message_ttl, "allow_msg_ttl lets entries expire");
    refuse(
        config.subject_delete_marker_ttl.is_some_and(|ttl| !ttl.is_zero()),
        "subject_delete_marker_ttl creates delete markers",
    );
    refuse(config.allow_message_counter, "allow_msg_counter rewrites entries");
    refuse(config.allow_message_schedules, "allow_msg_schedules writes entries of its own");
    refuse(
        inactive_threshold(config).is_some_and(|threshold| threshold < CONSUMER_IDLE_TIMEOUT),
        "consumer_limits.inactive_threshold is below 60 s, which followers need",
    );
    refuse(!config.allow_direct, "allow_direct isn't set");
    let room = ENTRY_BYTES + ENVELOPE_BYTES;
    let small = |limit: i32| usize::try_from(limit).is_ok_and(|limit| limit > 0 && limit < room);
    refuse(small(config.max_message_size), &format!("max_msg_size is below {room}"));
    refuse(config.num_replicas < replicas, &format!("{} replicas, expected {replicas}", config.num_replicas));
    problems
}

/// Returns `true` if a retry would fail in the same way.
pub(super) fn is_permanent(error: &CreateStreamError) -> bool {
    let CreateStreamErrorKind::JetStream(error) = error.kind() else { return false };
    error.code() < SERVER_ERRORS || error.error_code() == ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED
}

/// Versions of nats-server that can destroy every replica of a compressed stream when servers are killed
/// under load. After a restart, such a server may append to a block that it has already compressed, and then
/// cannot read the block.
const DATA_LOSS_VERSIONS: [(u32, u32, u32); 2] = [(2, 15, 0), (2, 15, 1)];

/// Returns the hazards of a stream: reasons why its servers may destroy it. Services accept the stream
/// despite its hazards.
pub(super) fn hazards(config: &Config, version: &str) -> Vec<String> {
    let affected = version_numbers(version).is_some_and(|number| DATA_LOSS_VERSIONS.contains(&number));
    let is_hazard = affected && config.num_replicas > 1 && is_compressed(config);
    let replicas = config.num_replicas;
    let hazard = || {
        format!(
            "the stream {STREAM} is compressed (s2) and has {replicas} replicas on nats-server {version}: \
             killed servers can destroy every replica; run muster journal migrate as an admin"
        )
    };
    is_hazard.then(hazard).into_iter().collect()
}

/// Returns `true` if the server compresses the stream's blocks.
fn is_compressed(config: &Config) -> bool {
    config.compression.as_ref().is_some_and(|compression| *compression != Compression::None)
}

/// Describes entries that a stream has already lost.
pub(super) fn losses(state: &State) -> Vec<String> {
    let gone = (state.first_sequence > 1).then_some("its first entries are missing");
    let deleted = state.deleted_count.is_some_and(|count| count > 0).then_some("entries were deleted");
    gone.into_iter().chain(deleted).map(str::to_owned).collect()
}

/// Returns the problem if a server's `max_payload` is too small for an entry.
pub(super) fn payload_problem(max_payload: usize) -> Option<String> {
    let room = ENTRY_BYTES + ENVELOPE_BYTES;
    (max_payload < room)
        .then(|| format!("the server's max_payload is {max_payload}: expected at least {room}"))
}

/// Returns the problem if a server of this version is refused.
///
/// Refused versions let two writers win the same compare-and-set, or have open advisories.
#[must_use]
pub fn version_problem(version: &str) -> Option<String> {
    let fine = match version_numbers(version) {
        Some((2, 12, patch)) => patch >= 7,
        Some((2, 13, _)) | None => false,
        Some(number) => number >= (2, 14, 0),
    };
    (!fine).then(|| format!("nats-server {version}: use 2.12.7 or newer of 2.12, or 2.14.0 or newer"))
}

/// Returns the three numbers of a version. A pre-release counts as the release before it: 2.12.7-RC.1 counts
/// as 2.12.6.
fn version_numbers(version: &str) -> Option<(u32, u32, u32)> {
    let version = version.trim().trim_start_matches('v');
    let (release, before) = match version.split_once('-') {
        Some((release, _)) => (release, true),
        None => (version, false),
    };
    let mut parts = release.split('.').map(str::parse);
    let (major, minor, patch) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    match (before, patch) {
        (false, patch) => Some((major, minor, patch)),
        (true, 0) => Some((major, u32::checked_sub(minor, 1)?, u32::MAX)),
        (true, patch) => Some((major, minor, patch - 1)),
    }
}

/// Returns harmless differences between a stream's configuration and the one that Muster creates.
pub(super) fn differences(config: &Config) -> Vec<String> {
    let ours = self::config(config.num_replicas);
    let limit = |name: &str, limit: i64| {
        (limit > 0).then(|| format!("{name} is {limit}: at this limit the journal accepts no entries"))
    };
    let other = |differs: bool, what: &str| differs.then(|| what.to_owned());
    let all = [
        limit("max_bytes", config.max_bytes),
        limit("max_msgs", config.max_messages),
        other(config.max_consumers > 0, "max_consumers limits the number of followers"),
        other(
            is_compressed(config),
            "it is compressed (s2): with more than one replica, nats-server 2.15.0 and 2.15.1 can lose it",
        ),
        other(
            inactive_threshold(config).is_none(),
            "consumer_limits.inactive_threshold isn't set: durable consumers stay until an admin deletes \
             them",
        ),
        other(config.duplicate_window != ours.duplicate_window, "duplicate_window isn't 30 s"),
    ];
    all.into_iter().flatten().collect()
}

/// Queries the monitoring addresses of the servers, such as `http://127.0.0.1:8222`. Returns whether the
/// servers sync every write.
pub async fn durability(monitoring: &[String]) -> Durability {
    if monitoring.is_empty() {
        return Durability::Unverified(
            "no monitoring address to check whether the server syncs every write".to_owned(),
        );
    }
    for url in monitoring {
        let config = match monitor::get(url, "/jsz").await {
            Ok(answer) => answer["config"].clone(),
            Err(error) => return Durability::Unverified(error.to_string()),
        };
        if config["sync_always"] != serde_json::Value::Bool(true) {
            return Durability::Unverified(format!(
                "the server at {url} doesn't sync every write (sync_interval)"
            ));
        }
    }
    Durability::Synced
}

#[cfg(test)]
mod tests {
    use super::{Compression, config, differences, hazards, problems, version_problem};

    #[test]
    fn compressed_stream_is_a_hazard_only_with_replicas_on_affected_versions() {
        let compressed = |replicas| {
            let mut config = config(replicas);
            config.compression = Some(Compression::S2);
            config
        };
        for (replicas, version, is_hazard) in [
            (3, "2.15.0", true),
            (3, "v2.15.1", true),
            (5, "2.15.2-RC.1", true),
            (1, "2.15.1", false),
            (3, "2.14.6", false),
            (3, "2.15.2", false),
        ] {
            let found = hazards(&compressed(replicas), version);
            assert_eq!(!found.is_empty(), is_hazard, "{replicas} {version}: {found:?}");
            assert!(hazards(&config(replicas), version).is_empty(), "{replicas} {version}");
        }
        assert!(problems(&compressed(3), 3).is_empty(), "the stream is not refused");
        assert_eq!(differences(&compressed(3)).len(), 1);
        assert!(differences(&config(3)).is_empty());
    }

    #[test]
    fn unsafe_server_versions_are_refused() {
        for fine in ["2.12.7", "2.12.20", "2.14.0", "2.15.1", "v2.15.1", "3.0.0"] {
            assert_eq!(version_problem(fine), None, "{fine}");
        }
        for bad in
            ["2.9.10", "2.10.27", "2.12.6", "2.12.7-RC.1", "2.13.0", "2.13.9", "2.14.0-RC.1", "dev", ""]
        {
            assert!(version_problem(bad).is_some(), "{bad}");
        }
    }
}
