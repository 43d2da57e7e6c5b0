//! `muster cluster found`: the only command that writes the first entry of a log on NATS.
//!
//! A stream that is missing or empty may be new, or its log may have been lost. A program cannot distinguish
//! these cases, so no service founds a cluster. An operator founds the cluster, once. For use in a script, a
//! file that is stored apart from the log (`--mark`) records the founding.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bus::{Bus, RequestError};
use bytes::Bytes;
use clap::Args;
use cli_base::failure::Failure;
use host::home;
use host::serve::{Nats, identity, parse_replicas};
use journal::{Append, AppendError, JetStream, Journal, JournalError, STREAM, StreamSettings};
use projections::ClusterLog;
use runtime::exit::Exit;
use schemas::bus::{BusSubject, Inbox};
use schemas::message::KnownCluster;
use schemas::names::{ClientName, ClusterId, IdGenerator};
use schemas::stamp::Actor;
use schemas::subject::{DEFAULT_SHARDS, MAX_SHARDS};
use schemas::{Position, Subject, codec};
use serde::Serialize;
use text::chain;
use text::words::number;
use tokio::time::{Instant, sleep};

use crate::archive::known_cluster;

/// Maximum time to wait for services to name their cluster.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time to wait for NATS servers that are starting.
const SERVER_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between two attempts to reach the servers.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Name of the operator in the founding entry. The name is constant because the credentials of a BBS writer
/// contain no personal name.
const FOUNDER: &str = "founder";

/// Options of `muster cluster found`.
#[derive(Clone, Debug, Args)]
pub struct FoundArgs {
    /// NATS servers that must store each entry: 1, 3 or 5
    #[arg(long, default_value_t = 1, value_parser = parse_replicas, allow_negative_numbers = true, env = "MUSTER_REPLICAS")]
    replicas: usize,
    /// Shards of the log, 1 to 1024; `muster cluster shards` changes the number later
    #[arg(long, default_value_t = DEFAULT_SHARDS, value_parser = number(1..=MAX_SHARDS), allow_negative_numbers = true, env = "MUSTER_SHARDS")]
    shards: u16,
    /// File that records the founding; store it apart from the log. If the file names a cluster that exists,
    /// the command succeeds and changes nothing. If the log of that cluster is gone, the command fails and
    /// founds no other cluster
    #[arg(long, value_name = "FILE", env = "MUSTER_FOUNDED")]
    mark: Option<PathBuf>,
}

/// Result of a founding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Founded {
    pub(crate) cluster_id: ClusterId,
    /// Position of the founding entry.
    pub(crate) position: Position,
    /// `false` if the cluster existed before.
    pub(crate) new: bool,
}

/// Founds a cluster, unless one exists or existed.
///
/// # Errors
/// `Exists` if the stream holds a log, a service belongs to a cluster, or the mark names a cluster that is
/// gone.
pub(crate) async fn found(nats: &Nats, args: &FoundArgs) -> Result<Founded, Failure> {
    let mark = args.mark.as_deref();
    let marked = mark.map(read_mark).transpose()?.flatten();
    let (id, seed) = identity("found")?;
    let connection = nats.connect(id.as_str(), &Inbox::BbsWriter(id.clone())).await?;
    let settings = |create| StreamSettings { replicas: args.replicas, create, ..StreamSettings::default() };
    let there = open_journal(&connection, &settings(false)).await?;
    let held = match &there {
        Some(journal) if journal.end().await.map_err(unreadable)? > Position(0) => {
            Some(cluster(journal).await?)
        }
        Some(_) | None => None,
    };
    if let Some(cluster_id) = decide(held, marked, mark)? {
        if let (Some(mark), None) = (mark, marked) {
            write_mark(mark, cluster_id)?;
        }
        return Ok(Founded { cluster_id, position: Position(1), new: false });
    }
    if let Some(known) = query_cluster(&Bus::from(connection.clone())).await? {
        let why = format!("{} belongs to cluster {}", known.service, known.cluster_id);
        return Err(already_exists(why).advise(
            "restore the log of that cluster (docs/guides/back-up-and-restore.md); to abandon it, stop its \
             services and remove the data folders of its reps first",
        ));
    }
    let journal = match there {
        Some(journal) => journal,
        None => open_journal(&connection, &settings(true))
            .await?
            .ok_or_else(|| unreadable(JournalError::Absent))?,
    };
    let founded = append(&journal, seed, args.shards).await?;
    if let Some(mark) = mark {
        write_mark(mark, founded.cluster_id)?;
    }
    Ok(founded)
}

/// Decides whether to found a cluster. Returns the existing cluster, or `None` if a new one must be founded.
fn decide(
    held: Option<ClusterId>,
    marked: Option<ClusterId>,
    mark: Option<&Path>,
) -> Result<Option<ClusterId>, Failure> {
    let file = mark.map(|mark| mark.display().to_string()).unwrap_or_default();
    match (held, marked) {
        (Some(held), Some(marked)) if held != marked => {
            let why = format!("the stream {STREAM} holds cluster {held}, and {file} names cluster {marked}");
            Err(already_exists(why)
                .advise(format!("restore the log of that cluster, or remove {file} if this one replaces it")))
        }
        (Some(held), _) if mark.is_some() => Ok(Some(held)),
        (Some(held), _) => Err(already_exists(format!("the stream {STREAM} already holds cluster {held}"))),
        (None, Some(marked)) => {
            let why = format!(
                "the log of cluster {marked} is gone: {file} records its founding, \
                 and the stream {STREAM} is missing or empty"
            );
            Err(already_exists(why)
                .advise("restore a backup first: muster import (docs/guides/back-up-and-restore.md)")
                .advise(format!("to abandon that cluster: remove {file} and found another cluster")))
        }
        (None, None) => Ok(None),
    }
}

/// Opens the journal, and waits for servers that are starting. Returns `None` if the stream does not exist.
async fn open_journal(
    connection: &bus::nats::Connection,
    settings: &StreamSettings,
) -> Result<Option<Journal>, Failure> {
    let began = Instant::now();
    loop {
        match JetStream::open(connection.clone(), settings).await {
            Ok(stream) => return Ok(Some(Journal::JetStream(stream))),
            Err(JournalError::Absent) => return Ok(None),
            Err(JournalError::Unavailable { .. }) if began.elapsed() < SERVER_TIMEOUT => {
                sleep(RETRY_PAUSE).await;
            }
            Err(
                error @ (JournalError::Unavailable { .. }
                | JournalError::Refused(_)
                | JournalError::Damaged(_)
                | JournalError::Closed),
            ) => return Err(unreadable(error)),
        }
    }
}

/// Returns the cluster of a log that is not empty.
async fn cluster(journal: &Journal) -> Result<ClusterId, Failure> {
    known_cluster(journal).await?.ok_or_else(|| {
        already_exists(format!("the stream {STREAM} holds entries, but no founding entry"))
            .advise("list them: nats stream view MUSTER")
    })
}

/// Queries all services for their cluster. Returns `None` if no service belongs to a cluster.
async fn query_cluster(bus: &Bus) -> Result<Option<KnownCluster>, Failure> {
    let failed = |error: RequestError| Failure::new(Exit::Failed, "Bus", chain(&error));
    let subject = BusSubject::FoundingReply.to_string();
    let mut answers = bus.subscribe(&subject, None).await.map_err(|error| failed(error.into()))?;
    let asked = BusSubject::FoundingQuery.to_string();
    // Services publish their answers on a shared subject, because reps and auctioneers may not write to the
    // inbox of a BBS writer.
    let silence = bus.request(&asked, Bytes::new(), ANSWER_TIMEOUT);
    let named = async {
        loop {
            let incoming = answers.next().await?;
            if let Ok((known, _)) = codec::decode::<KnownCluster>(&incoming.payload) {
                return Some(known);
            }
        }
    };
    tokio::select! {
        biased;
        known = named => Ok(known),
        silence = silence => match silence {
            Ok(_) | Err(RequestError::NoResponder(_) | RequestError::TimedOut(_)) => Ok(None),
            Err(error @ (RequestError::Disconnected(_) | RequestError::Refused(_))) => Err(failed(error)),
        },
    }
}

async fn append(journal: &Journal, seed: u64, shards: u16) -> Result<Founded, Failure> {
    let actor = Actor::Operator(ClientName::new(FOUNDER).map_err(|error| already_exists(error.to_string()))?);
    let found = ClusterLog::default().found(&mut IdGenerator::new(seed), clock::now(), actor, shards);
    let (cluster_id, entry) = found.map_err(Failure::from)?;
    let bytes = entry.encode().into();
    let append = Append { subject: Subject::Cluster, expected: Position(0), entry: entry.id, bytes };
    match journal.append(append).await {
        Ok(position) => Ok(Founded { cluster_id, position, new: true }),
        Err(AppendError::Conflict) => {
            Err(already_exists("another process founded a cluster first".to_owned()))
        }
        Err(error @ (AppendError::Unknown(_) | AppendError::NotStored(_) | AppendError::Refused(_))) => {
            Err(Failure::new(Exit::Failed, "Journal", chain(&error))
                .advise("try again: a cluster is founded at most once"))
        }
    }
}

fn read_mark(file: &Path) -> Result<Option<ClusterId>, Failure> {
    match fs::read_to_string(file) {
        Ok(text) => match text.trim().parse() {
            Ok(id) => Ok(Some(ClusterId(id))),
            Err(_) => Err(mark_failed(file, "expected the id of a cluster")),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(mark_failed(file, &error.to_string())),
    }
}

fn write_mark(file: &Path, cluster: ClusterId) -> Result<(), Failure> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = file.file_name();
    let name = name
        .and_then(|name| name.to_str())
        .ok_or_else(|| mark_failed(file, "expected the path of a file"))?;
    home::write_new(folder, name, &cluster.to_string()).map_err(|error| mark_failed(file, &error.to_string()))
}

fn mark_failed(file: &Path, why: &str) -> Failure {
    Failure::new(Exit::Failed, "Mark", format!("can't use the founding record {}: {why}", file.display()))
}

fn already_exists(why: String) -> Failure {
    Failure::new(Exit::Conflict, "Exists", why)
}

fn unreadable(error: JournalError) -> Failure {
    Failure::new(Exit::Failed, "Journal", chain(&error))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn cluster_is_founded_only_if_none_exists_or_existed() {
        let (one, other) = (ClusterId(Uuid::from_u128(1)), ClusterId(Uuid::from_u128(2)));
        let file = Path::new("/founded/cluster");
        let decided = |held, marked, mark| decide(held, marked, mark).map_err(|failure| failure.message);
        assert_eq!(decided(None, None, None), Ok(None));
        assert_eq!(decided(None, None, Some(file)), Ok(None));
        assert_eq!(decided(Some(one), Some(one), Some(file)), Ok(Some(one)));
        assert_eq!(decided(Some(one), None, Some(file)), Ok(Some(one)), "an imported log counts as founded");
        for (held, marked, mark, word) in [
            (Some(one), None, None, "holds cluster"),
            (Some(other), Some(one), Some(file), "names cluster"),
            (None, Some(one), Some(file), "is gone"),
        ] {
            let why = decided(held, marked, mark).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn mark_names_the_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("founded");
        assert_eq!(read_mark(&file).unwrap(), None);
        write_mark(&file, ClusterId(Uuid::from_u128(7))).unwrap();
        assert_eq!(read_mark(&file).unwrap(), Some(ClusterId(Uuid::from_u128(7))));
        fs::write(&file, "nonsense").unwrap();
        assert!(read_mark(&file).unwrap_err().message.contains("expected the id of a cluster"));
    }
}
