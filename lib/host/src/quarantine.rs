//! Quarantined entries of the journal. A service reads the list of quarantined positions before it follows
//! the journal. A service that stopped at an unreadable entry waits until the entry is quarantined. An
//! operator orders the quarantine, and a BBS records it. If no BBS runs, the command line records it.

use std::time::{Duration, Instant};

use journal::{Append, AppendError, Journal, JournalError, StoredEntry};
use projections::cluster_log::{QuarantineOrder, QuarantineOutcome, QuarantinedPositions};
use projections::{ClusterLog, Reader};
use schemas::message::Ack;
use schemas::names::IdGenerator;
use schemas::stored::DecodeError;
use schemas::{Code, Entry, Position, Refusal, Subject};
use text::chain;
use tokio_util::sync::CancellationToken;

/// Interval between checks for newly quarantined entries, and between retries of a failed read.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Number of messages per read of the cluster's subject.
const PAGE_LEN: usize = 256;
/// Maximum number of attempts to append to the cluster's subject. An attempt fails if another writer appends
/// before it.
const MAX_ATTEMPTS: usize = 8;
/// Pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Reads the whole subject of the cluster.
async fn cluster_log(journal: &Journal) -> Result<ClusterLog, JournalError> {
    let (mut log, mut is_empty) = (ClusterLog::default(), true);
    let take = |one: &StoredEntry| {
        is_empty = false;
        log.read(one.position, &one.bytes);
    };
    read_cluster(journal, take).await?;
    if is_empty {
        // Detect a server that cannot read its stored entries. Such a server answers as if the subject were
        // empty.
        journal.check_readable().await?;
    }
    Ok(log)
}

/// Passes every message on the cluster's subject to `take`, from the beginning.
async fn read_cluster(journal: &Journal, mut take: impl FnMut(&StoredEntry)) -> Result<(), JournalError> {
    let mut after = Position(0);
    loop {
        let page = journal.read(after, Some(&Subject::Cluster), PAGE_LEN).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.position;
        page.iter().for_each(&mut take);
    }
}

/// Returns a reader that has read the cluster's subject up to a position.
///
/// # Errors
/// The journal cannot be read.
pub(super) async fn cluster_reader(
    journal: &Journal,
    known: &QuarantinedPositions,
    upto: Position,
) -> Result<Reader, JournalError> {
    let mut reader = Reader::with_quarantines(known.clone());
    if upto > Position(0) {
        let take = |one: &StoredEntry| {
            if one.position <= upto {
                // Errors in this entry are ignored here, because the machine reports them.
                drop(reader.read(one.position, &one.subject, &one.bytes));
            }
        };
        read_cluster(journal, take).await?;
    }
    Ok(reader)
}

/// Returns the quarantined positions. `None` if `stop` was cancelled first.
///
/// # Errors
/// The journal cannot be read, and retries do not help.
pub async fn quarantined_positions(
    journal: &Journal,
    stop: &CancellationToken,
) -> Result<Option<QuarantinedPositions>, JournalError> {
    Ok(current_cluster_log(journal, stop).await?.map(|log| log.quarantined().clone()))
}

/// Returns the state of the cluster's subject. `None` if `stop` was cancelled first.
///
/// # Errors
/// The journal cannot be read, and retries do not help.
pub(super) async fn current_cluster_log(
    journal: &Journal,
    stop: &CancellationToken,
) -> Result<Option<ClusterLog>, JournalError> {
    let mut is_reported = false;
    loop {
        match cluster_log(journal).await {
            Ok(log) => return Ok(Some(log)),
            Err(error @ JournalError::Unavailable { .. }) => {
                if !std::mem::replace(&mut is_reported, true) {
                    tracing::error!("the journal cannot be read: {}; retrying", chain(&error));
                }
            }
            Err(
                error @ (JournalError::Absent
                | JournalError::Refused(_)
                | JournalError::Damaged(_)
                | JournalError::Closed),
            ) => return Err(error),
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(None),
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
}

/// Waits until the quarantined positions differ from `known_before`. Returns `false` if `stop` was cancelled
/// first.
///
/// # Errors
/// The journal cannot be read, and retries do not help.
pub(crate) async fn wait_for_change(
    journal: &Journal,
    known_before: &QuarantinedPositions,
    stop: &CancellationToken,
) -> Result<bool, JournalError> {
    loop {
        match quarantined_positions(journal, stop).await? {
            None => return Ok(false),
            Some(now) if now != *known_before => return Ok(true),
            Some(_) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(false),
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
}

/// Reads the first entry after a position. If a later program version wrote the entry, returns its position,
/// its subject and its problem. `None` if the entry is quarantined, or if no later program version wrote it.
/// A BBS or a projector stops at an entry that this function returns.
///
/// # Errors
/// The journal cannot be read.
pub async fn unreadable_entry_after(
    journal: &Journal,
    position: Position,
    known: &QuarantinedPositions,
) -> Result<Option<(Position, String, String)>, JournalError> {
    let read = journal.read(position, None, 1).await?;
    let found = read.into_iter().find(|one| !known.contains_key(&one.position));
    Ok(found.and_then(|one| match Reader::default().decode(one.position, &one.subject, &one.bytes) {
        Err(newer @ (DecodeError::NewerFormat { .. } | DecodeError::UnknownEvent(_))) => {
            Some((one.position, one.subject, newer.to_string()))
        }
        Ok(_) | Err(DecodeError::Malformed(_) | DecodeError::Damaged { .. }) => None,
    }))
}

/// Records the quarantine of a position, if the quarantine is allowed. No attempt starts after `patience` has
/// expired.
///
/// # Errors
/// The quarantine is not allowed (see [`ClusterLog::judge`]), the journal cannot be read or written, or
/// `patience` has expired.
pub async fn record_quarantine(
    journal: &Journal,
    order: QuarantineOrder,
    patience: Option<Duration>,
) -> Result<Ack, Refusal> {
    let received = Instant::now();
    let seed = clock::seed().map_err(|error| {
        Refusal::new(Code::Unavailable, format!("the system provides no randomness: {error}"))
    })?;
    let mut ids = IdGenerator::new(seed);
    for _ in 0..MAX_ATTEMPTS {
        if let Some(patience) = patience.filter(|patience| received.elapsed() >= *patience) {
            let why = format!("the command could not be executed within {patience:?}");
            return Err(Refusal::new(Code::DeadlinePassed, why));
        }
        let log = cluster_log(journal).await.map_err(|error| read_refusal(&error))?;
        let stands = entry_at(journal, order.position).await.map_err(|error| read_refusal(&error))?;
        let (expected, entry) = match log.judge(&mut ids, clock::now(), order.clone(), stands)? {
            QuarantineOutcome::Recorded(position, version) => return Ok(Ack { position, version }),
            QuarantineOutcome::Append(expected, entry) => (expected, entry),
        };
        let version = entry.decisions.last().map_or(0, |decision| decision.version);
        let bytes = entry.encode().into();
        let append = Append { subject: Subject::Cluster, expected, entry: entry.id, bytes };
        match journal.append(append).await {
            Ok(position) => {
                let reason = &order.reason;
                tracing::warn!(position = %order.position, reason, "quarantined by an operator");
                return Ok(Ack { position, version });
            }
            Err(AppendError::Refused(why)) => return Err(Refusal::new(Code::Unavailable, why)),
            // The next read of the subject shows the outcome: another write may have been first, and this
            // write may be stored in spite of the error.
            Err(AppendError::Conflict | AppendError::NotStored(_) | AppendError::Unknown(_)) => {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
    Err(Refusal::new(Code::Unavailable, format!("other writers were first {MAX_ATTEMPTS} times: try again")))
}

/// Returns the entry at a position, as decoded by this program. `None` if the journal ends before the
/// position.
async fn entry_at(
    journal: &Journal,
    position: Position,
) -> Result<Option<Result<Entry, DecodeError>>, JournalError> {
    if position == Position(0) || position > journal.end().await? {
        return Ok(None);
    }
    let read = journal.read(Position(position.0 - 1), None, 1).await?;
    let found = read.first().filter(|one| one.position == position);
    Ok(found.map(|one| Reader::default().decode(one.position, &one.subject, &one.bytes)))
}

fn read_refusal(error: &JournalError) -> Refusal {
    Refusal::new(Code::Unavailable, chain(error))
}
