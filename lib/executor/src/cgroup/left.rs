//! Control groups that remain after a rep was killed and never restarted. Each executor records its groups
//! and its data folder on the host. The next executor of the host, with any data folder, removes empty groups
//! of data folders that no executor uses.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{groups_in, remove_base, remove_once};

/// Folder of the records.
const HOST: &str = "/run/muster/groups";

/// Records the bases of a data folder, in which `lock` is the lock file. Removes the empty groups of other
/// data folders that no executor uses. If the record cannot be written, nothing happens.
pub(crate) fn record_and_clean(data: &Path, lock: &str, bases: &[PathBuf]) {
    if let Err(error) = try_to(Path::new(HOST), data, lock, bases) {
        tracing::debug!(%error, "cannot record control groups in {HOST}");
    }
}

fn try_to(host: &Path, data: &Path, lock: &str, bases: &[PathBuf]) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(host)?;
    for entry in fs::read_dir(host)? {
        let record = entry?.path();
        let text = fs::read_to_string(&record)?;
        let mut lines = text.lines().map(PathBuf::from);
        let Some(other) = lines.next() else { continue };
        let held = if other == data { Held::ByOther } else { hold(&other.join(lock))? };
        if !matches!(held, Held::ByOther) {
            let bases: Vec<PathBuf> = lines.collect();
            bases.iter().for_each(|base| clean(base));
            if !bases.iter().any(|base| base.exists()) {
                fs::remove_file(&record)?;
            }
        }
    }
    let Some(name) = bases.first().and_then(|base| base.file_name()) else { return Ok(()) };
    let lines = [data].into_iter().chain(bases.iter().map(PathBuf::as_path));
    fs::write(host.join(name), lines.map(|path| format!("{}\n", path.display())).collect::<String>())
}

/// Holder of a data folder.
enum Held {
    /// The data folder does not exist.
    Never,
    /// This program, until the file is closed. No other executor can start with the folder until then.
    Here(#[expect(dead_code, reason = "it is held, never used")] File),
    /// Another program.
    ByOther,
}

/// Takes the lock of a data folder if no program holds it.
fn hold(lock: &Path) -> io::Result<Held> {
    let file = match File::open(lock) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Held::Never),
        file => file?,
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Held::Here(file)),
        Err(Errno::WOULDBLOCK) => Ok(Held::ByOther),
        Err(error) => Err(error.into()),
    }
}

/// Removes the empty groups of a base. The kernel refuses to remove the others.
fn clean(base: &Path) {
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
        // Like a group with processes, a folder that is not empty cannot be removed.
        fs::write(path("groups/muster-killed/full/process"), "").unwrap();
        let open = |name: &str| {
            try_to(&path("host"), &path(name), "lock", &[path(&format!("groups/muster-{name}"))]).unwrap();
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
        assert!(path("groups/muster-running/a").exists(), "its executor runs");
    }
}
