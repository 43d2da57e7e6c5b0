//! What is known of a cluster before anything is judged: as it was answered, or why it wasn't.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use access::Role;
use journal::Durability;
use journal::examine::Examination;
use projector::{Standing, Url};
use schemas::isolation::Isolation;
use schemas::query::{CellRow, ClusterRow};
use schemas::{Position, Timestamp};

/// Why something isn't known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// It was not asked for, or can't be from here; for this reason.
    Skipped(String),
    /// It was asked for, and that went wrong.
    Failed(String),
}

/// What was asked for.
pub(super) type Asked<T> = Result<T, Unknown>;

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoConnection {
    /// Nobody answers.
    Unreachable(String),
    /// Somebody answers and doesn't let us in.
    Refused(String),
    /// A file can't be read, an address is none.
    Settings(String),
}

/// A NATS server that lets us in.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) url: String,
    pub(super) name: String,
    pub(super) version: String,
    /// The name of its cluster, if it is one of several.
    pub(super) cluster: Option<String>,
    pub(super) jetstream: bool,
    pub(super) encrypted: bool,
    /// As whom we are there, if the credentials say it.
    pub(super) role: Option<Role>,
    /// The credentials that were given.
    pub(super) credentials: Option<PathBuf>,
    /// How long one question and its answer take.
    pub(super) round_trip: Asked<Duration>,
    /// Why services would refuse it.
    pub(super) problems: Vec<String>,
    /// The certificates that this program uses.
    pub(super) certificates: Asked<Vec<Certificate>>,
}

/// A file with a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificate {
    pub(super) file: PathBuf,
    /// Time until it expires; `None` if it has expired.
    pub(super) left: Option<Duration>,
}

/// The journal's stream.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) seen: Examination,
    /// When it was asked and when it answered, by this machine's clock.
    pub(super) asked: (Timestamp, Timestamp),
}

/// Entries read from one NATS server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// The name of the server, or its address if it can't be reached.
    pub(super) server: String,
    /// Number of entries read, or why one can't be read.
    pub(super) read: Asked<usize>,
}

/// What a server's monitoring says of its storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Storage {
    pub(super) url: String,
    pub(super) used: u64,
    /// How much it may use; 0: there is no limit.
    pub(super) most: u64,
    /// Free bytes of its disk; `None` if its folder is not on this host.
    pub(super) free: Option<u64>,
}

/// What the credentials in hand let us do, as it was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rights {
    pub(super) role: Role,
    /// Whether the credentials say that this is the role.
    pub(super) known: bool,
    /// How much was tried of what the role must be able to do.
    pub(super) tried: usize,
    /// What of that the server refused.
    pub(super) refused: Vec<String>,
    /// What it let us hear that is no right of the role.
    pub(super) beyond: Option<String>,
}

/// What a BBS says of the cluster.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub(super) row: Asked<ClusterRow>,
    pub(super) cells: Asked<Vec<CellRow>>,
}

/// The tables of a database.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    pub(super) url: Url,
    pub(super) generations: Vec<Standing>,
    /// Where the journal ends, and for how long what the tables lack of it has been there.
    pub(super) behind: Asked<(Position, Option<Duration>)>,
}

/// The data folder of a local cluster.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// Whether others than its owner may read it.
    pub(super) open_to_others: bool,
    /// Where its journal ends, and the bytes of its file.
    pub(super) journal: Asked<(Position, u64)>,
    /// Free bytes of its disk.
    pub(super) free: Option<u64>,
}

/// What this host gives to containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// How far a rep would keep them apart, as was tried.
    pub(super) isolation: Isolation,
    pub(super) is_root: bool,
    /// What keeps users that are not root from making namespaces, if something does.
    pub(super) no_namespaces: Option<String>,
    /// What of the control groups a rep could have here.
    pub(super) groups: String,
}

/// What the metrics of services say.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Told {
    pub(super) url: String,
    /// What was refused for want of permission, by service; or why nobody knows.
    pub(super) refused: Result<BTreeMap<String, u64>, String>,
}

/// Where a cluster is, and what is known of it there.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// On a NATS server.
    Nats(Box<OnNats>),
    /// In a data folder, by its socket.
    Local(Folder),
}

/// What is known by a NATS server.
#[derive(Clone, Debug)]
pub(super) struct OnNats {
    pub(super) server: Server,
    pub(super) stream: Asked<Stream>,
    /// The first, the last and sampled entries, read from each server.
    pub(super) entries: Asked<Vec<Reading>>,
    pub(super) durability: Durability,
    pub(super) storage: Asked<Vec<Storage>>,
    /// The address and the answer of each server's health endpoint.
    pub(super) health: Asked<Vec<(String, Result<(), String>)>>,
    pub(super) rights: Asked<Rights>,
}

/// Everything that was asked.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) place: Place,
    pub(super) cluster: Cluster,
    pub(super) tables: Asked<Tables>,
    pub(super) host: Asked<Host>,
    pub(super) told: Vec<Told>,
}
