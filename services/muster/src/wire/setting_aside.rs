//! Quarantined entries of the journal. They are read before the journal is followed. Services that an entry
//! stopped wait for its quarantine. A BBS records it for an operator, or the command line does if no BBS
//! runs.

use std::time::{Duration, Instant};

use journal::{Append, AppendError, Journal, JournalError, Recorded};
use projections::cluster_log::{Judged, Positions, SetAsideOrder};
use projections::{ClusterLog, Reader};
use schemas::entry::DecodeError;
use schemas::message::Done;
use schemas::names::Ids;
use schemas::{Code, Entry, Position, Refusal, Subject};
use tokio_util::sync::CancellationToken;

use crate::error::chain;

/// Interval between checks for newly quarantined entries, and between retries of a failed read.
const AGAIN: Duration = Duration::from_secs(1);
/// Number of messages per read of the cluster's subject.
const PAGE: usize = 256;
/// Maximum number of attempts to append to the cluster's subject, where another writer may be first.
const TRIES: usize = 8;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Reads the whole subject of the cluster.
async fn cluster_log(journal: &Journal) -> Result<ClusterLog, JournalError> {
    let (mut log, mut is_empty) = (ClusterLog::default(), true);
    let take = |one: &Recorded| {
        is_empty = false;
        log.read(one.position, &one.bytes);
    };
    read_cluster(journal, take).await?;
    if is_empty {
        // A server that cannot read an entry answers as if there were none.
        journal.check_readable().await?;
    }
    Ok(log)
}

/// Passes every message on the cluster's subject to `take`, from the beginning.
async fn read_cluster(journal: &Journal, mut take: impl FnMut(&Recorded)) -> Result<(), JournalError> {
    let mut after = Position(0);
    loop {
        let page = journal.read(after, Some(&Subject::Cluster), PAGE).await?;
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
    known: &Positions,
    upto: Position,
) -> Result<Reader, JournalError> {
    let mut reader = Reader::knowing(known.clone());
    if upto > Position(0) {
        let take = |one: &Recorded| {
            if one.position <= upto {
                // The machine reports errors in this entry.
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
pub(crate) async fn known(
    journal: &Journal,
    stop: &CancellationToken,
) -> Result<Option<Positions>, JournalError> {
    Ok(log_so_far(journal, stop).await?.map(|log| log.positions().clone()))
}

/// Returns the state of the cluster's subject. `None` if `stop` was cancelled first.
///
/// # Errors
/// The journal cannot be read, and retries do not help.
pub(super) async fn log_so_far(
    journal: &Journal,
    stop: &CancellationToken,
) -> Result<Option<ClusterLog>, JournalError> {
    let mut is_reported = false;
    loop {
        match cluster_log(journal).await {
            Ok(log) => return Ok(Some(log)),
            Err(error @ JournalError::Unavailable { .. }) => {
                if !std::mem::replace(&mut is_reported, true) {
                    tracing::error!(
                        "the journal cannot be read: {}; trying again until it can",
                        chain(&error)
                    );
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
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

/// Waits until the quarantined positions differ from `known_before`. Returns `false` if `stop` was cancelled
/// first.
///
/// # Errors
/// The journal cannot be read, and retries do not help.
pub(crate) async fn changed(
    journal: &Journal,
    known_before: &Positions,
    stop: &CancellationToken,
) -> Result<bool, JournalError> {
    loop {
        match known(journal, stop).await? {
            None => return Ok(false),
            Some(now) if now != *known_before => return Ok(true),
            Some(_) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(false),
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

/// Returns the position, the subject and the problem of the entry after a position, if it is not quarantined
/// and a later program version wrote it. A BBS or a projector stops at such an entry.
///
/// # Errors
/// The journal cannot be read.
pub(crate) async fn stop_behind(
    journal: &Journal,
    position: Position,
    known: &Positions,
) -> Result<Option<(Position, String, String)>, JournalError> {
    let read = journal.read(position, None, 1).await?;
    let found = read.into_iter().find(|one| !known.contains_key(&one.position));
    Ok(found.and_then(|one| match Reader::default().check(one.position, &one.subject, &one.bytes) {
        Err(newer @ (DecodeError::Future { .. } | DecodeError::UnknownEvent(_))) => {
            Some((one.position, one.subject, newer.to_string()))
        }
        Ok(_) | Err(DecodeError::Malformed(_) | DecodeError::Damaged { .. }) => None,
    }))
}

/// Records the quarantine of a position, if it is allowed. No attempt starts once `patience` is over.
///
/// # Errors
/// The quarantine is not allowed (see [`ClusterLog::judge`]), the journal cannot be read or written, or
/// `patience` is over.
pub(crate) async fn record(
    journal: &Journal,
    order: SetAsideOrder,
    patience: Option<Duration>,
) -> Result<Done, Refusal> {
    let received = Instant::now();
    let seed =
        clock::seed().map_err(|error| Refusal::new(Code::Unavailable, format!("no randomness: {error}")))?;
    let mut ids = Ids::new(seed);
    for _ in 0..TRIES {
        if let Some(patience) = patience.filter(|patience| received.elapsed() >= *patience) {
            let why = format!("the command could not be carried out within its patience of {patience:?}");
            return Err(Refusal::new(Code::DeadlinePassed, why));
        }
        let log = cluster_log(journal).await.map_err(|error| unreadable(&error))?;
        let stands = stands(journal, order.position).await.map_err(|error| unreadable(&error))?;
        let (expected, entry) = match log.judge(&mut ids, clock::now(), order.clone(), stands)? {
            Judged::Recorded(position, version) => return Ok(Done { position, version }),
            Judged::Append(expected, entry) => (expected, entry),
        };
        let version = entry.decisions.last().map_or(0, |decision| decision.version);
        let bytes = entry.encode().into();
        let append = Append { subject: Subject::Cluster, expected, entry: entry.id, bytes };
        match journal.append(append).await {
            Ok(position) => {
                tracing::warn!(position = %order.position, reason = order.reason, "set aside by an operator");
                return Ok(Done { position, version });
            }
            Err(AppendError::Refused(why)) => return Err(Refusal::new(Code::Unavailable, why)),
            // The next read shows which write was first, and whether this one was stored after all.
            Err(AppendError::Conflict | AppendError::NotStored(_) | AppendError::Unknown(_)) => {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    Err(Refusal::new(Code::Unavailable, format!("others wrote first {TRIES} times: try again")))
}

/// Returns the entry at a position, as this program reads it. `None` if the journal ends before it.
async fn stands(
    journal: &Journal,
    position: Position,
) -> Result<Option<Result<Entry, DecodeError>>, JournalError> {
    if position == Position(0) || position > journal.end().await? {
        return Ok(None);
    }
    let read = journal.read(Position(position.0 - 1), None, 1).await?;
    let found = read.first().filter(|one| one.position == position);
    Ok(found.map(|one| Reader::default().check(one.position, &one.subject, &one.bytes)))
}

fn unreadable(error: &JournalError) -> Refusal {
    Refusal::new(Code::Unavailable, chain(error))
}
