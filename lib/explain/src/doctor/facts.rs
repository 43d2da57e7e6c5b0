//! Facts about a cluster, the input of the checks. Each fact is an answer, or the reason that the answer is
//! unknown.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use access::Role;
use journal::Durability;
use journal::examine::Examination;
use schemas::isolation::Isolation;
use schemas::query::{CellRow, ClusterRow};
use schemas::{Position, Timestamp};

/// Reason that a fact is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The fact was not requested, or it cannot be determined from this host.
    Skipped(String),
    /// The request failed.
    Failed(String),
}

/// Requested fact, or the reason that it is unknown.
pub type Fact<T> = Result<T, Unknown>;

/// Reason for a missing connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoConnection {
    /// Nothing answers at the address.
    Unreachable(String),
    /// The server rejected the connection.
    Refused(String),
    /// A file cannot be read, or an address is not valid.
    Settings(String),
}

/// NATS server that accepted the connection.
#[derive(Clone, Debug)]
pub struct Server {
    pub url: String,
    pub name: String,
    pub version: String,
    /// Name of the server's cluster, if it belongs to one.
    pub cluster: Option<String>,
    pub jetstream: bool,
    pub encrypted: bool,
    /// Role of this program on the server, if the credentials name one.
    pub role: Option<Role>,
    /// Credentials file, if the user passed one.
    pub credentials: Option<PathBuf>,
    /// Duration of one request and its reply.
    pub round_trip: Fact<Duration>,
    /// Reasons that services would refuse to use this server.
    pub problems: Vec<String>,
    /// Certificates that this program uses.
    pub certificates: Fact<Vec<Certificate>>,
}

/// File with a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    pub file: PathBuf,
    /// Remaining validity; `None` if the certificate has expired.
    pub left: Option<Duration>,
}

/// Stream that holds the journal.
#[derive(Clone, Debug)]
pub struct Stream {
    pub examination: Examination,
    /// Time of the server when it sent the stream's state. `None` if the reply contains no valid time.
    pub server_time: Option<Timestamp>,
    /// Times of the request for the stream's state and of its reply, by this machine's clock.
    pub request_times: (Timestamp, Timestamp),
}

/// Entries read from one NATS server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Name of the server, or its address if it cannot be reached.
    pub server: String,
    /// Number of entries read, or the reason that an entry cannot be read.
    pub read: Fact<usize>,
}

/// Storage figures from a server's monitoring endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    pub url: String,
    pub used: u64,
    /// Maximum number of bytes that the server may use. 0 if there is no limit.
    pub max_bytes: u64,
    /// Free bytes of the disk; `None` if the server's folder is not on this host.
    pub free: Option<u64>,
}

/// Permissions of the credentials, as determined by tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    pub role: Role,
    /// `true` if the credentials name the role.
    pub role_is_known: bool,
    /// Number of tested permissions that the role needs.
    pub tried: usize,
    /// Needed permissions that the server denied.
    pub refused: Vec<String>,
    /// Subject that the role must not be able to subscribe to. Set if the server accepted the subscription.
    pub excess: Option<String>,
}

/// State of the cluster, as reported by a BBS.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub row: Fact<ClusterRow>,
    pub cells: Fact<Vec<CellRow>>,
}

/// Tables of a database.
#[derive(Clone, Debug)]
pub struct Tables {
    /// URL of the database, without its password.
    pub url: String,
    /// Tables that readers see. `None` if there are no such tables.
    pub live: Option<LiveTables>,
    /// End of the journal, and the age of the oldest entry that the tables lack.
    pub behind: Fact<(Position, Option<Duration>)>,
}

/// Tables that readers see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveTables {
    /// Number of the generation of tables.
    pub generation: i64,
    /// Position of the last entry in the tables.
    pub position: Position,
    /// Cluster of the tables. `None` if the cluster was not founded yet.
    pub cluster_id: Option<String>,
    /// `true` if this version of the program built the tables.
    pub is_of_this_program: bool,
}

/// The data folder of a local cluster.
#[derive(Clone, Debug)]
pub struct Folder {
    pub path: PathBuf,
    /// `true` if the group or other users have access to the folder.
    pub open_to_others: bool,
    /// End of the journal, and the size of its file in bytes.
    pub journal: Fact<(Position, u64)>,
    /// Free bytes of the folder's disk.
    pub free: Option<u64>,
}

/// Capabilities of this host for running containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Isolation that a rep would achieve on this host, as determined by a trial.
    pub isolation: Isolation,
    pub is_root: bool,
    /// Setting that prevents users other than root from creating namespaces, if there is one.
    pub namespace_restriction: Option<String>,
    /// Description of the control groups that a rep could use on this host.
    pub cgroups: String,
}

/// Metrics of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceMetrics {
    pub url: String,
    /// Permission violations by service, or the reason that they are unknown.
    pub refused: Result<BTreeMap<String, u64>, String>,
}

/// Location of a cluster, with the facts that are specific to it.
#[derive(Clone, Debug)]
pub enum Place {
    Nats(Box<NatsFacts>),
    /// A local cluster in a data folder, reached through its socket.
    Local(Folder),
}

/// Facts about a cluster on a NATS server.
#[derive(Clone, Debug)]
pub struct NatsFacts {
    pub server: Server,
    pub stream: Fact<Stream>,
    /// The first, the last and sampled entries, read from each server.
    pub entries: Fact<Vec<Reading>>,
    pub durability: Durability,
    pub storage: Fact<Vec<Storage>>,
    /// The address and the answer of each server's health endpoint.
    pub health: Fact<Vec<(String, Result<(), String>)>>,
    pub permissions: Fact<Permissions>,
}

/// Facts about the cluster and this host.
#[derive(Clone, Debug)]
pub struct Facts {
    pub place: Place,
    pub cluster: Cluster,
    pub tables: Fact<Tables>,
    pub host: Fact<Host>,
    pub metrics: Vec<ServiceMetrics>,
}
