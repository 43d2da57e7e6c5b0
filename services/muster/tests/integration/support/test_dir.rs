//! Temporary folder of a test.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) use support::wait::{ensure, wait_within};
use tempfile::TempDir;

use super::containers;

/// Timeout of every operation that normally takes a moment. A busy machine needs more time.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Folder of a test and the processes that run in it. Dropping a `TestDir` removes both the folder and the
/// processes.
pub(crate) struct TestDir {
    folder: TempDir,
    started: Instant,
}

impl TestDir {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), started: Instant::now() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file and returns its path.
    pub(crate) fn write_file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Prints an event with its time since the start of the test.
    pub(crate) fn print_event(&self, what: &str) {
        println!("{:7.2} s  {what}", self.started.elapsed().as_secs_f64());
    }
}

impl Drop for TestDir {
    /// Also cleans up after a failed test.
    fn drop(&mut self) {
        containers::clear(self.path(), TIMEOUT);
    }
}

/// Waits until `look` succeeds. Panics with the last error of `look` after [`TIMEOUT`].
pub(crate) fn eventually<T>(what: &str, look: impl FnMut() -> Result<T, String>) -> T {
    wait_within(TIMEOUT, what, look)
}
