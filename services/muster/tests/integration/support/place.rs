//! A folder of a test's own.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) use support::patience::{so, within};
use tempfile::TempDir;

use super::containers;

/// How long anything in these tests may take that should take a moment: machines are busy.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A folder with all that lives in it. Dropped, nothing of either is left.
pub(crate) struct Place {
    folder: TempDir,
    began: Instant,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), began: Instant::now() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A file with this content.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Tells what happens, with its moment.
    pub(crate) fn tell(&self, what: &str) {
        println!("{:7.2} s  {what}", self.began.elapsed().as_secs_f64());
    }
}

impl Drop for Place {
    /// A test that failed leaves nothing either.
    fn drop(&mut self) {
        containers::clear(self.path(), LIMIT);
    }
}

/// Waits until there is something; fails with the last reason why there isn't.
pub(crate) fn eventually<T>(what: &str, look: impl FnMut() -> Result<T, String>) -> T {
    within(LIMIT, what, look)
}
