//! State of the journal's storage while a service runs: replicas, sizes, limits, and write errors of servers.

use std::error::Error as _;

use async_nats::jetstream::stream::{Info, InfoError};
use async_nats::jetstream::{self, ErrorCode};

use super::JournalError;
use crate::{monitor, stream};

/// Text that a server's health endpoint contains when the server cannot write to its disk.
const WRITE_ERROR: &str = "write error";

/// State of the stream that holds the journal, as its leader reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Number of servers that should hold every entry.
    pub replicas: usize,
    /// Servers that hold the stream, without its leader; empty for one replica.
    pub others: Vec<Replica>,
    /// Number of entries.
    pub entries: u64,
    /// Uncompressed size of the entries in bytes.
    pub bytes: u64,
    /// Maximum size in bytes; `None` if the stream has no limit.
    pub max_bytes: Option<u64>,
    /// Reasons that servers may destroy the stream. Services accept the stream despite these reasons.
    pub hazards: Vec<String>,
}

/// Server that holds a copy of the stream without leading the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    pub name: String,
    /// `true` if the server has every entry that the leader has.
    pub in_sync: bool,
}

impl Facts {
    pub(super) fn from_info(info: &Info, version: &str) -> Self {
        let others = info.cluster.iter().flat_map(|cluster| &cluster.replicas);
        let others =
            others.map(|peer| Replica { name: peer.name.clone(), in_sync: peer.current && !peer.offline });
        Self {
            replicas: info.config.num_replicas,
            others: others.collect(),
            entries: info.state.messages,
            bytes: info.state.bytes,
            max_bytes: u64::try_from(info.config.max_bytes).ok().filter(|most| *most > 0),
            hazards: stream::hazards(&info.config, version),
        }
    }

    /// Returns the number of replicas that have every entry, including the leader.
    #[must_use]
    pub fn in_sync(&self) -> usize {
        let behind = self.replicas.saturating_sub(1).saturating_sub(self.synced_others());
        self.replicas - behind
    }

    fn synced_others(&self) -> usize {
        self.others.iter().filter(|replica| replica.in_sync).count()
    }
}

/// Converts an error of a request for the stream's state.
pub(super) fn journal_error(error: InfoError) -> JournalError {
    let answer = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
    if answer.is_some_and(|answer| answer.error_code() == ErrorCode::STREAM_NOT_FOUND) {
        return JournalError::Absent;
    }
    JournalError::unavailable("requesting the state of the stream", error)
}

/// Returns the first write error that a server reports on its health endpoint.
pub(super) async fn write_error(monitoring: &[String]) -> Option<String> {
    for url in monitoring {
        if let Ok(Err(why)) = monitor::health(url).await
            && why.contains(WRITE_ERROR)
        {
            return Some(format!("the server at {url} reports: {why}"));
        }
    }
    None
}
