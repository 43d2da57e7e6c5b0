//! One data folder, one owner.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// The file in a data folder that its owner holds a lock on.
const LOCK: &str = "owner.lock";

/// A data folder that belongs to this process until the last clone of this is dropped, or the process ends in
/// whatever way.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    /// The lock is the open file's: it goes when the file is closed.
    _lock: std::sync::Arc<File>,
}

/// Why a folder can't be owned.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another process owns it.
    #[error("the data folder {path} is in use by process {owner}: stop that, or choose another folder")]
    InUse {
        /// The folder.
        path: String,
        /// The owner's process id, as far as it is known.
        owner: String,
    },
    /// It can't be made, or its lock can't be opened.
    #[error("the data folder {path} can't be used")]
    Unusable {
        /// The folder.
        path: String,
        /// What went wrong.
        #[source]
        source: io::Error,
    },
}

impl Folder {
    /// Makes the folder if there is none (for this user alone), and owns it.
    ///
    /// # Errors
    /// Another process owns it, or it can't be made.
    pub fn own(path: &Path) -> Result<Self, FolderError> {
        let shown = || path.display().to_string();
        let unusable = |source| FolderError::Unusable { path: shown(), source };
        make(path).map_err(unusable)?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join(LOCK))
            .map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(FolderError::InUse { path: shown(), owner: owner(&mut lock) });
            }
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        sign(&mut lock).map_err(unusable)?;
        Ok(Self { path: path.to_owned(), _lock: std::sync::Arc::new(lock) })
    }

    /// Where the folder is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn make(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes this process's id into the lock's file, for whoever comes second.
fn sign(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    write!(lock, "{}", std::process::id())
}

/// Who signed the lock's file. Only for a message, so that it can't be read is no error.
fn owner(lock: &mut File) -> String {
    let mut text = String::new();
    match lock.read_to_string(&mut text) {
        Ok(1..=20) => text,
        Ok(_) | Err(_) => "(unknown)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_owner_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("a/b");
        let first = Folder::own(&path).unwrap();
        let second = Folder::own(&path).unwrap_err();
        let told = format!("is in use by process {}", std::process::id());
        assert!(second.to_string().contains(&told), "{second}");
        drop(first);
        Folder::own(&path).unwrap();
    }
}
