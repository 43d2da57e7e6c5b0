//! What names a rep's data folder: its own id, and the cluster that it belongs to. Containers of one must never be taken
//! for another's.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use bus::Bus;
use schemas::bus::QueryVerb;
use schemas::caller::Caller;
use schemas::codec::{self, Form};
use schemas::message::Answer;
use schemas::names::{CellId, ClusterId, FolderId, Ids};
use schemas::query::{ClusterRow, Filter, One};

/// The file in a data folder that names its cluster.
const FILE: &str = "cluster";
/// The file in a data folder that names the folder itself.
const ID_FILE: &str = "rep-id";
/// How long one answer is awaited, and the time before the next question.
const PATIENCE: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(200);

/// Why a data folder is not this rep's, or can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HomeError {
    /// It can't be read or written.
    #[error("the data folder {} can't be used", path.display())]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// Its id is none.
    #[error("the data folder {}: the file {ID_FILE} holds no id", path.display())]
    NoId {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        source: <FolderId as FromStr>::Err,
    },
    /// It belongs to another cluster.
    #[error(
        "the data folder {} belongs to cluster {known}, and this is cluster {here}: choose another folder, or the NATS \
         server of that cluster",
        path.display()
    )]
    OtherCluster {
        /// The folder.
        path: PathBuf,
        /// Its cluster.
        known: String,
        /// The cluster that answers.
        here: String,
    },
    /// There is no seed for the folder's id.
    #[error("the system gives no randomness")]
    Randomness(#[source] io::Error),
}

fn unusable(data: &Path) -> impl FnOnce(io::Error) -> HomeError {
    move |source| HomeError::Unusable { path: data.to_owned(), source }
}

/// Where snapshots of the past are cached, unless another folder is named: `$XDG_CACHE_HOME/muster`, else
/// `~/.cache/muster`; none without a home.
pub(crate) fn cache() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    caches.is_absolute().then(|| caches.join("muster"))
}

/// Waits until a BBS tells which cluster this is. A new folder belongs to it from then on.
///
/// # Errors
/// The folder belongs to another cluster, or can't be used.
pub(crate) async fn check(bus: &Bus, cell: &CellId, data: &Path) -> Result<ClusterId, HomeError> {
    let id = cluster(bus, cell).await;
    let here = id.to_string();
    let known = known(data, &here).map_err(unusable(data))?;
    if known == here {
        return Ok(id);
    }
    Err(HomeError::OtherCluster { path: data.to_owned(), known, here })
}

/// The cluster that a folder names; `None` if it names none yet.
pub(crate) fn cluster_of(data: &Path) -> Option<ClusterId> {
    let text = fs::read_to_string(data.join(FILE)).ok()?;
    text.trim().parse().ok().map(ClusterId)
}

/// The cluster that a folder names; `id`, from now on, if it names none.
fn known(data: &Path, id: &str) -> io::Result<String> {
    let path = data.join(FILE);
    match fs::read_to_string(&path) {
        Ok(known) => Ok(known.trim().to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            write_new(data, FILE, id)?;
            Ok(id.to_owned())
        }
        Err(error) => Err(error),
    }
}

/// The id of a data folder: made with it, and its own for ever.
///
/// # Errors
/// The folder can't be used.
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

/// An id for a new folder.
///
/// # Errors
/// The system has no randomness.
pub(crate) fn new_folder_id() -> Result<FolderId, HomeError> {
    let seed = clock::seed().map_err(HomeError::Randomness)?;
    Ok(FolderId(Ids::new(seed).next(clock::now())))
}

/// Writes a file of one line, whole or not at all.
///
/// # Errors
/// The folder can't be used.
pub(crate) fn write_new(data: &Path, name: &str, line: &str) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).recursive(true).create(data)?;
    let draft = data.join(format!("{name}.new"));
    let mut file = fs::File::create(&draft)?;
    writeln!(file, "{line}")?;
    file.sync_all()?;
    fs::rename(&draft, data.join(name))?;
    fs::File::open(data)?.sync_all()
}

/// The cluster, as a BBS that answers has it. `None`: none answers.
pub(crate) async fn shown(bus: &Bus, cell: &CellId) -> Option<One<ClusterRow>> {
    let subject = Caller::Rep(cell.clone()).query(QueryVerb::ClusterShow);
    let question = codec::encode(Form::Json, &Filter::default());
    let answer = bus.ask(&subject, question.into(), PATIENCE).await;
    match codec::decode::<Answer<One<ClusterRow>>>(&answer.ok()?).ok()? {
        (Answer::Ok(cluster), _) => Some(cluster),
        (Answer::Refused(_), _) => None,
    }
}

/// Asks until somebody knows.
async fn cluster(bus: &Bus, cell: &CellId) -> ClusterId {
    let mut told = false;
    loop {
        if let Some(cluster) = shown(bus, cell).await {
            return cluster.row.cluster_id;
        }
        if !told {
            tracing::info!("waiting for a BBS to say which cluster this is");
            told = true;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_its_id() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("a/b"), folder.path().join("c"));
        let id = folder_id(&one).unwrap();
        assert_eq!(folder_id(&one).unwrap(), id);
        assert_ne!(folder_id(&two).unwrap(), id);
        fs::write(two.join(ID_FILE), "nonsense").unwrap();
        assert!(folder_id(&two).unwrap_err().to_string().contains("rep-id holds no id"));
    }

    #[test]
    fn a_folder_belongs_to_the_first_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("a/b");
        assert_eq!(known(&data, "one").unwrap(), "one");
        assert_eq!(known(&data, "two").unwrap(), "one");
    }
}
