//! What operators set aside: read before the journal is followed, waited for by who can't go on, and recorded for an
//! operator, by a BBS or by the command line where no BBS runs.

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

/// How often who can't go on looks whether an operator has set aside what stops it, and who can't read looks again.
const AGAIN: Duration = Duration::from_secs(1);
/// Messages of the cluster's subject that are read at once.
const PAGE: usize = 256;
/// Attempts to record something while others write on the cluster's subject.
const TRIES: usize = 8;
/// The pause between two of them.
const PAUSE: Duration = Duration::from_millis(100);

/// The cluster's subject, whole.
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

/// Reads the cluster's subject from its beginning.
async fn read_cluster(journal: &Journal, mut take: impl FnMut(&Recorded)) -> Result<(), JournalError> {
    let mut after = Position(0);
    loop {
        let page = journal.read(after, Some(&Subject::Cluster), PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.position;
        page.iter().for_each(&mut take);
    }
}

/// What the log says of the cluster itself, as a reader knows it that read the cluster's subject up to a position.
///
/// # Errors
/// The journal can't be read.
pub(super) async fn cluster_reader(
    journal: &Journal,
    known: &Positions,
    upto: Position,
) -> Result<Reader, JournalError> {
    let mut reader = Reader::knowing(known.clone());
    if upto > Position(0) {
        let take = |one: &Recorded| {
            if one.position <= upto {
                // Whoever decides says what is wrong with it, if so.
                drop(reader.read(one.position, &one.subject, &one.bytes));
            }
        };
        read_cluster(journal, take).await?;
    }
    Ok(reader)
}

/// What operators have set aside so far. None: it was told to stop first.
///
/// # Errors
/// The journal can't be read, and waiting doesn't mend it.
pub(crate) async fn known(
    journal: &Journal,
    stop: &CancellationToken,
) -> Result<Option<Positions>, JournalError> {
    Ok(log_so_far(journal, stop).await?.map(|log| log.positions().clone()))
}

/// The cluster's subject so far. None: it was told to stop first.
///
/// # Errors
/// The journal can't be read, and waiting doesn't mend it.
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

/// Waits until operators have set aside something else than this. False: it was told to stop first.
///
/// # Errors
/// The journal can't be read, and waiting doesn't mend it.
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

/// What stands behind a position, with its subject, if this program can't read it and it isn't set aside: who decides or
/// projects stops there.
///
/// # Errors
/// The journal can't be read.
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

/// Records that a position is set aside, if it may be. No try starts once `patience` is over.
///
/// # Errors
/// Why it isn't: see [`ClusterLog::judge`]; or the journal can't be read or written; or `patience` is over.
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
            // Reading again tells what was first, or whether it is stored after all.
            Err(AppendError::Conflict | AppendError::NotStored(_) | AppendError::Unknown(_)) => {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    Err(Refusal::new(Code::Unavailable, format!("others wrote first {TRIES} times: try again")))
}

/// What stands at a position, as this program reads it; none: the journal ends before it.
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
