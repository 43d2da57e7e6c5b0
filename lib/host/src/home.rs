//! Identity of a rep's data folder: the id of the folder, and the id of its cluster. The identity prevents a
//! rep from treating containers of another cluster as its own.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use bus::Bus;
use schemas::caller::Caller;
use schemas::codec::{self, Form};
use schemas::message::Answer;
use schemas::names::{CellId, ClusterId, FolderId, IdGenerator};
use schemas::query::{ClusterRow, Filter, ShowAnswer};
use schemas::verb::QueryVerb;

/// File in a data folder with the id of its cluster.
const CLUSTER_FILE: &str = "cluster";
/// File in a data folder with the id of the folder.
const ID_FILE: &str = "rep-id";
/// Timeout of a query. Also the pause before the next query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
const QUERY_PAUSE: Duration = Duration::from_millis(200);

/// Reason why a data folder cannot be used by this rep.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// The folder cannot be read or written.
    #[error("the data folder {} can't be used", path.display())]
    Unusable { path: PathBuf, source: io::Error },
    /// The file with the folder's id contains no valid id.
    #[error("the data folder {}: the file {ID_FILE} contains no valid id", path.display())]
    NoId { path: PathBuf, source: <FolderId as FromStr>::Err },
    /// The folder belongs to another cluster.
    #[error(
        "the data folder {} belongs to cluster {known}, and this is cluster {here}: choose another folder, \
         or the NATS server of that cluster",
        path.display()
    )]
    OtherCluster {
        path: PathBuf,
        /// Cluster of the folder.
        known: String,
        /// Cluster of the BBS that answered.
        here: String,
    },
    /// The system provides no randomness for the folder's id.
    #[error("the system provides no randomness")]
    Randomness(#[source] io::Error),
}

fn unusable(data: &Path) -> impl FnOnce(io::Error) -> HomeError {
    move |source| HomeError::Unusable { path: data.to_owned(), source }
}

/// Returns the default cache folder for snapshots of the past: `$XDG_CACHE_HOME/muster`, else
/// `~/.cache/muster`. `None` if neither variable is set, or if the path is not absolute.
pub(crate) fn default_cache_folder() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    caches.is_absolute().then(|| caches.join("muster"))
}

/// Waits until a BBS reports its cluster, and checks that the folder belongs to that cluster. A new folder is
/// assigned to that cluster.
///
/// # Errors
/// The folder belongs to another cluster, or cannot be used.
pub(crate) async fn check_cluster(bus: &Bus, cell: &CellId, data: &Path) -> Result<ClusterId, HomeError> {
    let id = wait_for_cluster(bus, cell).await;
    let here = id.to_string();
    let known = recorded_or_assigned_cluster(data, &here).map_err(unusable(data))?;
    if known == here {
        return Ok(id);
    }
    Err(HomeError::OtherCluster { path: data.to_owned(), known, here })
}

/// Returns the cluster of a folder. `None` if the folder is not assigned to a cluster.
pub(crate) fn recorded_cluster(data: &Path) -> Option<ClusterId> {
    let text = fs::read_to_string(data.join(CLUSTER_FILE)).ok()?;
    text.trim().parse().ok().map(ClusterId)
}

/// Returns the cluster of a folder. A folder without a cluster is assigned to `id`.
fn recorded_or_assigned_cluster(data: &Path, id: &str) -> io::Result<String> {
    let path = data.join(CLUSTER_FILE);
    match fs::read_to_string(&path) {
        Ok(known) => Ok(known.trim().to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            write_new(data, CLUSTER_FILE, id)?;
            Ok(id.to_owned())
        }
        Err(error) => Err(error),
    }
}

/// Returns the id of a data folder. The id is created once and never changes.
///
/// # Errors
/// The folder cannot be used.
pub(crate) fn folder_id(data: &Path) -> Result<FolderId, HomeError> {
    let path = data.join(ID_FILE);
    match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|source| HomeError::NoId { path: data.to_owned(), source }),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let id = new_folder_id()?;
            write_new(data, ID_FILE, &id.to_string()).map_err(unusable(data))?;
            Ok(id)
        }
        Err(error) => Err(unusable(data)(error)),
    }
}

/// Creates an id for a new folder.
///
/// # Errors
/// The system provides no randomness.
pub(crate) fn new_folder_id() -> Result<FolderId, HomeError> {
    let seed = clock::seed().map_err(HomeError::Randomness)?;
    Ok(FolderId(IdGenerator::new(seed).next(clock::now())))
}

/// Writes a file with one line atomically. Creates the parent folder if necessary.
///
/// # Errors
/// The folder cannot be used.
pub fn write_new(data: &Path, name: &str, line: &str) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).recursive(true).create(data)?;
    let draft = data.join(format!("{name}.new"));
    let mut file = fs::File::create(&draft)?;
    writeln!(file, "{line}")?;
    file.sync_all()?;
    fs::rename(&draft, data.join(name))?;
    fs::File::open(data)?.sync_all()
}

/// Queries the state of the cluster from a BBS. Returns `None` if no BBS answers.
pub(crate) async fn query_cluster(bus: &Bus, cell: &CellId) -> Option<ShowAnswer<ClusterRow>> {
    let subject = Caller::Rep(cell.clone()).query(QueryVerb::ClusterShow);
    let question = codec::encode(Form::Json, &Filter::default());
    let answer = bus.request(&subject, question.into(), QUERY_TIMEOUT).await;
    match codec::decode::<Answer<ShowAnswer<ClusterRow>>>(&answer.ok()?).ok()? {
        (Answer::Ok(cluster), _) => Some(cluster),
        (Answer::Refused(_), _) => None,
    }
}

/// Queries the cluster until a BBS answers.
async fn wait_for_cluster(bus: &Bus, cell: &CellId) -> ClusterId {
    let mut told = false;
    loop {
        if let Some(cluster) = query_cluster(bus, cell).await {
            return cluster.row.cluster_id;
        }
        if !told {
            tracing::info!("waiting for a BBS to report its cluster");
            told = true;
        }
        tokio::time::sleep(QUERY_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_id_is_stable() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("a/b"), folder.path().join("c"));
        let id = folder_id(&one).unwrap();
        assert_eq!(folder_id(&one).unwrap(), id);
        assert_ne!(folder_id(&two).unwrap(), id);
        fs::write(two.join(ID_FILE), "nonsense").unwrap();
        assert!(folder_id(&two).unwrap_err().to_string().contains("rep-id contains no valid id"));
    }

    #[test]
    fn folder_belongs_to_the_first_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("a/b");
        assert_eq!(recorded_or_assigned_cluster(&data, "one").unwrap(), "one");
        assert_eq!(recorded_or_assigned_cluster(&data, "two").unwrap(), "one");
    }
}
