//! Facts about a cluster, the input of the checks. Each fact is an answer, or the reason that the answer is
//! unknown.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use access::Role;
use journal::Durability;
use journal::examine::Examination;
use projector::{Generation, Url};
use schemas::isolation::Isolation;
use schemas::query::{CellRow, ClusterRow};
use schemas::{Position, Timestamp};

/// Reason that a fact is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// The fact was not requested, or it cannot be determined from this host.
    Skipped(String),
    /// The request failed.
    Failed(String),
}

/// Requested fact, or the reason that it is unknown.
pub(super) type Fact<T> = Result<T, Unknown>;

/// Reason for a missing connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoConnection {
    /// Nothing answers at the address.
    Unreachable(String),
    /// The server rejected the connection.
    Refused(String),
    /// A file cannot be read, or an address is not valid.
    Settings(String),
}

/// NATS server that accepted the connection.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) url: String,
    pub(super) name: String,
    pub(super) version: String,
    /// Name of the server's cluster, if it belongs to one.
    pub(super) cluster: Option<String>,
    pub(super) jetstream: bool,
    pub(super) encrypted: bool,
    /// Role of this program on the server, if the credentials name one.
    pub(super) role: Option<Role>,
    /// Credentials file, if the user passed one.
    pub(super) credentials: Option<PathBuf>,
    /// Duration of one request and its reply.
    pub(super) round_trip: Fact<Duration>,
    /// Reasons that services would refuse to use this server.
    pub(super) problems: Vec<String>,
    /// Certificates that this program uses.
    pub(super) certificates: Fact<Vec<Certificate>>,
}

/// File with a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificate {
    pub(super) file: PathBuf,
    /// Remaining validity; `None` if the certificate has expired.
    pub(super) left: Option<Duration>,
}

/// Stream that holds the journal.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) examination: Examination,
    /// Times of the request for the stream's state and of its reply, by this machine's clock.
    pub(super) request_times: (Timestamp, Timestamp),
}

/// Entries read from one NATS server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// Name of the server, or its address if it cannot be reached.
    pub(super) server: String,
    /// Number of entries read, or the reason that an entry cannot be read.
    pub(super) read: Fact<usize>,
}

/// Storage figures from a server's monitoring endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Storage {
    pub(super) url: String,
    pub(super) used: u64,
    /// Maximum number of bytes that the server may use. 0 if there is no limit.
    pub(super) max_bytes: u64,
    /// Free bytes of the disk; `None` if the server's folder is not on this host.
    pub(super) free: Option<u64>,
}

/// Permissions of the credentials, as determined by tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Permissions {
    pub(super) role: Role,
    /// `true` if the credentials name the role.
    pub(super) role_is_known: bool,
    /// Number of tested permissions that the role needs.
    pub(super) tried: usize,
    /// Needed permissions that the server denied.
    pub(super) refused: Vec<String>,
    /// Subject that the role must not be able to subscribe to. Set if the server accepted the subscription.
    pub(super) excess: Option<String>,
}

/// State of the cluster, as reported by a BBS.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub(super) row: Fact<ClusterRow>,
    pub(super) cells: Fact<Vec<CellRow>>,
}

/// Tables of a database.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    pub(super) url: Url,
    pub(super) generations: Vec<Generation>,
    /// End of the journal, and the age of the oldest entry that the tables lack.
    pub(super) behind: Fact<(Position, Option<Duration>)>,
}

/// The data folder of a local cluster.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// `true` if the group or other users have access to the folder.
    pub(super) open_to_others: bool,
    /// End of the journal, and the size of its file in bytes.
    pub(super) journal: Fact<(Position, u64)>,
    /// Free bytes of the folder's disk.
    pub(super) free: Option<u64>,
}

/// Capabilities of this host for running containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// Isolation that a rep would achieve on this host, as determined by a trial.
    pub(super) isolation: Isolation,
    pub(super) is_root: bool,
    /// Setting that prevents users other than root from creating namespaces, if there is one.
    pub(super) namespace_restriction: Option<String>,
    /// Description of the control groups that a rep could use on this host.
    pub(super) cgroups: String,
}

/// Metrics of a service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ServiceMetrics {
    pub(super) url: String,
    /// Permission violations by service, or the reason that they are unknown.
    pub(super) refused: Result<BTreeMap<String, u64>, String>,
}

/// Location of a cluster, with the facts that are specific to it.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Nats(Box<NatsFacts>),
    /// A local cluster in a data folder, reached through its socket.
    Local(Folder),
}

/// Facts about a cluster on a NATS server.
#[derive(Clone, Debug)]
pub(super) struct NatsFacts {
    pub(super) server: Server,
    pub(super) stream: Fact<Stream>,
    /// The first, the last and sampled entries, read from each server.
    pub(super) entries: Fact<Vec<Reading>>,
    pub(super) durability: Durability,
    pub(super) storage: Fact<Vec<Storage>>,
    /// The address and the answer of each server's health endpoint.
    pub(super) health: Fact<Vec<(String, Result<(), String>)>>,
    pub(super) permissions: Fact<Permissions>,
}

/// Facts about the cluster and this host.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) place: Place,
    pub(super) cluster: Cluster,
    pub(super) tables: Fact<Tables>,
    pub(super) host: Fact<Host>,
    pub(super) metrics: Vec<ServiceMetrics>,
}
