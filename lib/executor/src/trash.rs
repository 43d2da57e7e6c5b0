//! Folders to be removed. Each folder is moved to `trash/` in one step, and then removed.
//!
//! Removing the files of a container may take long or fail. In both cases, the start of an executor is not
//! delayed. The trash of an earlier executor is removed in the background, and failed removals are retried
//! every minute.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::rename;
use rustix::io::Errno;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Name of the folder for the trash, in the data folder.
const TRASH_DIR: &str = "trash";
/// Interval between attempts to remove an entry.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Trash of a data folder.
#[derive(Debug)]
pub(crate) struct Trash {
    folder: PathBuf,
    /// Entries that the next attempt removes.
    waiting: Mutex<Pending>,
    /// Notified when an entry is added.
    added: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    /// Entries whose removal was not tried yet.
    new: BTreeSet<PathBuf>,
    /// Entries whose removal failed.
    failed: BTreeSet<PathBuf>,
}

impl Trash {
    /// Creates the trash folder if necessary, and lists the entries that an earlier executor left in it.
    pub(crate) fn open(data: &Path) -> io::Result<Self> {
        let folder = data.join(TRASH_DIR);
        DirBuilder::new().mode(0o700).recursive(true).create(&folder)?;
        let left = fs::read_dir(&folder)?.map(|entry| entry.map(|entry| entry.path()));
        let new = left.collect::<io::Result<_>>()?;
        let waiting = Mutex::new(Pending { new, failed: BTreeSet::new() });
        Ok(Self { folder, waiting, added: Notify::new() })
    }

    /// Moves a path to the trash, to be removed later. A missing path is not an error.
    pub(crate) fn add(&self, path: &Path) -> io::Result<()> {
        let moved = self.move_in(path)?;
        self.pending().new.extend(moved);
        self.added.notify_one();
        Ok(())
    }

    /// Moves a path to the trash and removes it. A failed removal is retried later.
    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        if let Some(moved) = self.move_in(path)? {
            self.discard(&moved);
        }
        Ok(())
    }

    /// Moves a path to the trash without removing it. The caller must [`discard`](Self::discard) the returned
    /// path. `None` if the path does not exist.
    pub(crate) fn move_in(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut number = 0_u32;
        loop {
            let to =
                self.folder.join(if number == 0 { name.to_string() } else { format!("{name}.{number}") });
            match rename(path, &to) {
                Ok(()) => return Ok(Some(to)),
                Err(Errno::NOENT) => return Ok(None),
                // The trash still contains an earlier entry with this name.
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::ISDIR | Errno::NOTDIR) => number += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Removes an entry of the trash.
    pub(crate) fn discard(&self, path: &Path) {
        match removal::remove(path) {
            Ok(()) => {
                if self.pending().failed.remove(path) {
                    tracing::info!(path = %path.display(), "removed an entry that could not be removed before");
                }
            }
            Err(error) => {
                if self.pending().failed.insert(path.to_owned()) {
                    tracing::warn!(
                        path = %path.display(), %error, "cannot remove an entry: retrying every {RETRY_INTERVAL:?}"
                    );
                }
            }
        }
    }

    /// Returns the number of entries that could not be removed so far.
    pub(crate) fn failed_count(&self) -> u64 {
        self.pending().failed.len() as u64
    }

    /// Removes the new entries and retries the failed ones. Blocks.
    fn empty(&self) {
        let paths: Vec<PathBuf> = {
            let mut waiting = self.pending();
            let new = std::mem::take(&mut waiting.new);
            new.into_iter().chain(waiting.failed.iter().cloned()).collect()
        };
        paths.iter().for_each(|path| self.discard(path));
    }

    /// Removes entries when they are added, and retries failed removals. Runs while the future is polled.
    pub(crate) async fn keep_empty(self: Arc<Self>) {
        loop {
            let trash = Arc::clone(&self);
            if tokio::task::spawn_blocking(move || trash.empty()).await.is_err() {
                tracing::error!("the task that empties the trash panicked");
            }
            drop(timeout(RETRY_INTERVAL, self.added.notified()).await);
        }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.waiting.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_removal_is_counted_and_retried() {
        let root = tempfile::tempdir().unwrap();
        let trash = Trash::open(root.path()).unwrap();
        let folder = |name: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.join("in")).unwrap();
            path
        };
        trash.remove(&folder("plain")).unwrap();
        trash.remove(&root.path().join("absent")).unwrap();
        // An existing entry with the same name does not prevent the move.
        let earlier = folder("trash/twice");
        trash.add(&folder("twice")).unwrap();
        trash.empty();
        assert_eq!(fs::read_dir(root.path().join("trash")).unwrap().collect::<Vec<_>>().len(), 1);
        trash.pending().failed.insert(earlier);
        assert_eq!(trash.failed_count(), 1);
        trash.empty();
        assert_eq!(trash.failed_count(), 0);
        assert_eq!(fs::read_dir(root.path().join("trash")).unwrap().count(), 0);
    }

    #[test]
    fn trash_of_earlier_executor_is_removed_later() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("trash/old/in")).unwrap();
        let trash = Trash::open(root.path()).unwrap();
        assert!(root.path().join("trash/old").exists());
        trash.empty();
        assert_eq!(fs::read_dir(root.path().join("trash")).unwrap().count(), 0);
    }
}
