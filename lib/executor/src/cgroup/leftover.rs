//! Leftover control groups of reps that were killed and never restarted. Each executor records the paths of
//! its control groups and of its data folder on the host. Later executors with any data folder read these
//! records. They remove the empty control groups of data folders that no executor uses.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{groups_in, remove_base, remove_once};

/// Folder of the records on this host.
const RECORDS_DIR: &str = "/run/muster/groups";

/// Records the base groups of the data folder `data`. Removes the empty control groups of other, unused data
/// folders. `lock` is the name of the lock file in a data folder. Failures are only logged.
pub(crate) fn record_and_clean(data: &Path, lock: &str, bases: &[PathBuf]) {
    if let Err(error) = try_record_and_clean(Path::new(RECORDS_DIR), data, lock, bases) {
        tracing::debug!(%error, "cannot record control groups in {RECORDS_DIR}");
    }
}

fn try_record_and_clean(host: &Path, data: &Path, lock: &str, bases: &[PathBuf]) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(host)?;
    for entry in fs::read_dir(host)? {
        let record = entry?.path();
        let text = fs::read_to_string(&record)?;
        let mut lines = text.lines().map(PathBuf::from);
        let Some(other) = lines.next() else { continue };
        let held = if other == data { LockState::HeldByOther } else { try_lock(&other.join(lock))? };
        if !matches!(held, LockState::HeldByOther) {
            let bases: Vec<PathBuf> = lines.collect();
            bases.iter().for_each(|base| remove_empty_groups(base));
            if !bases.iter().any(|base| base.exists()) {
                fs::remove_file(&record)?;
            }
        }
    }
    let Some(name) = bases.first().and_then(|base| base.file_name()) else { return Ok(()) };
    let lines = [data].into_iter().chain(bases.iter().map(PathBuf::as_path));
    fs::write(host.join(name), lines.map(|path| format!("{}\n", path.display())).collect::<String>())
}

/// State of the lock of a data folder.
enum LockState {
    /// The data folder does not exist.
    NoFolder,
    /// This program has acquired the lock, and holds it until the file is closed. As long as the lock is
    /// held, no other executor can open the data folder.
    Acquired(#[expect(dead_code, reason = "the open file holds the lock")] File),
    /// Another program holds the lock.
    HeldByOther,
}

/// Takes the lock of a data folder if no program holds it.
fn try_lock(lock: &Path) -> io::Result<LockState> {
    let file = match File::open(lock) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LockState::NoFolder),
        file => file?,
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(LockState::Acquired(file)),
        Err(Errno::WOULDBLOCK) => Ok(LockState::HeldByOther),
        Err(error) => Err(error.into()),
    }
}

/// Removes the empty groups of a base group. The kernel refuses to remove a group with processes.
fn remove_empty_groups(base: &Path) {
    for group in groups_in(base).unwrap_or_default() {
        drop(remove_once(&group));
    }
    remove_base(base);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_groups_of_a_killed_executor_are_removed_by_the_next_one() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for folder in [
            "killed",
            "running",
            "own",
            "groups/muster-killed/a/b",
            "groups/muster-killed/full",
            "groups/muster-running/a",
        ] {
            fs::create_dir_all(path(folder)).unwrap();
        }
        // This folder stands for a group with processes. The folder is not empty, so it cannot be removed.
        fs::write(path("groups/muster-killed/full/process"), "").unwrap();
        let open = |name: &str| {
            try_record_and_clean(
                &path("host"),
                &path(name),
                "lock",
                &[path(&format!("groups/muster-{name}"))],
            )
            .unwrap();
        };
        let lock = File::create(path("running/lock")).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        for name in ["killed", "running", "own"] {
            open(name);
        }
        let left = |name: &str| fs::read_dir(path("groups").join(name)).map_or(0, Iterator::count);
        assert_eq!((left("muster-killed"), left("muster-running")), (1, 1));
        fs::remove_file(path("groups/muster-killed/full/process")).unwrap();
        open("own");
        assert!(!path("groups/muster-killed").exists() && !path("host/muster-killed").exists());
        assert!(path("groups/muster-running/a").exists(), "its executor is running");
    }
}
