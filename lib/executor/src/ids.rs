//! Ranges of host user ids, one for the users of each container.
//!
//! Users of different containers with the same id would be the same user of the host. They could share a port
//! by `SO_REUSEPORT`, and use up each other's quota of pipes and of file descriptors in transit. Therefore
//! each container has its own range. [`Ranges`] is the allocator. [`Ids`] also ensures that different data
//! folders of a host use different ranges: it writes a file for each allocated range.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FlockOperation, flock};

/// Number of ids in a range.
pub const RANGE_LEN: u32 = 65_536;
/// Default first id of the first range. Neither systemd nor the tools for subordinate ids assign this id or
/// higher ids.
pub const FIRST_ID: u32 = 2_000_000_000;
/// Exclusive upper bound of the ids. Some programs interpret larger ids as negative numbers.
const ID_END: u32 = i32::MAX.unsigned_abs();
/// Folder in which the allocated ranges of this host are recorded.
const RECORDS_DIR: &str = "/run/muster/ids";
/// File in [`RECORDS_DIR`] that is locked while a range is allocated or released.
const LOCK_FILE: &str = "lock";

/// Allocator of ranges. A range is identified by its first id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ranges {
    first: u32,
    allocated: BTreeSet<u32>,
}

impl Ranges {
    pub(crate) const fn new(first: u32) -> Self {
        Self { first, allocated: BTreeSet::new() }
    }

    /// Allocates the lowest free range for which `may` returns `true`. `None` if there is no such range.
    pub(crate) fn allocate(&mut self, may: impl FnMut(&u32) -> bool) -> Option<u32> {
        let all = (self.first..ID_END.saturating_sub(RANGE_LEN - 1)).step_by(RANGE_LEN as usize);
        let range = all.filter(|range| !self.allocated.contains(range)).find(may)?;
        self.allocated.insert(range);
        Some(range)
    }

    /// Marks the range of an existing container as allocated.
    pub(crate) fn adopt(&mut self, range: u32) {
        self.allocated.insert(range);
    }

    /// Releases a range.
    pub(crate) fn release(&mut self, range: u32) {
        self.allocated.remove(&range);
    }
}

/// Ranges of one data folder.
#[derive(Debug)]
pub(crate) struct Ids {
    ranges: Mutex<Ranges>,
    /// Record of the host's ranges. `None` if the ranges cannot be recorded.
    host: Option<HostRecord>,
}

impl Ids {
    /// Opens the host's record and removes the ranges that an earlier executor recorded for this data folder.
    pub(crate) fn open(first: u32, data: &Path) -> Self {
        let host = HostRecord::open(Path::new(RECORDS_DIR), data);
        if let Err(error) = &host {
            tracing::warn!(
                %error,
                "cannot record ranges of user ids in {RECORDS_DIR}: start other reps of this host with \
                 another --first-id"
            );
        }
        Self { ranges: Mutex::new(Ranges::new(first)), host: host.ok() }
    }

    /// Allocates a range that no other container of the host uses.
    pub(crate) fn allocate_range(&self) -> io::Result<u32> {
        let mut failed = None;
        let taken = self.ranges().allocate(|range| {
            let Some(host) = self.host.as_ref().filter(|_| failed.is_none()) else { return failed.is_none() };
            host.claim(*range).unwrap_or_else(|error| {
                failed = Some(error);
                false
            })
        });
        match (taken, failed) {
            (_, Some(error)) => {
                Err(io::Error::new(error.kind(), format!("cannot record user ids in {RECORDS_DIR}: {error}")))
            }
            (Some(range), None) => Ok(range),
            (None, None) => Err(io::Error::other("no free range of user ids on this host")),
        }
    }

    /// Allocates the range of a container that an earlier executor started.
    pub(crate) fn adopt(&self, range: u32) {
        self.ranges().adopt(range);
        match self.host.as_ref().map(|host| host.claim(range)) {
            None | Some(Ok(true)) => {}
            Some(Ok(false)) => {
                tracing::warn!(
                    range,
                    "containers of another data folder have the user ids of an adopted container"
                );
            }
            Some(Err(error)) => tracing::warn!(range, %error, "cannot record the user ids of a container"),
        }
    }

    /// Releases the range of a deleted container.
    pub(crate) fn release(&self, range: u32) {
        let mut ranges = self.ranges();
        if let Some(Err(error)) = self.host.as_ref().map(|host| host.release(range)) {
            tracing::warn!(range, %error, "cannot release the user ids of a container");
        }
        ranges.release(range);
    }

    fn ranges(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock()
    }
}

/// Record of the id ranges of a host. The record contains a file for each range, with the path of the data
/// folder that owns the range. A range is free if its data folder no longer exists.
#[derive(Debug)]
struct HostRecord {
    folder: PathBuf,
    data: PathBuf,
}

impl HostRecord {
    fn open(folder: &Path, data: &Path) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
        let host = Self { folder: folder.to_owned(), data: data.to_owned() };
        let _lock = host.lock()?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name != LOCK_FILE) && host.is_own(&path)? {
                fs::remove_file(path)?;
            }
        }
        Ok(host)
    }

    /// Records that the data folder owns a range. Returns `false` if another data folder owns it.
    fn claim(&self, range: u32) -> io::Result<bool> {
        let _lock = self.lock()?;
        let path = self.folder.join(range.to_string());
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            read => {
                let holder = PathBuf::from(std::ffi::OsString::from_vec(read?));
                if holder != self.data && !holder.as_os_str().is_empty() && holder.exists() {
                    return Ok(false);
                }
            }
        }
        fs::write(path, self.data.as_os_str().as_bytes())?;
        Ok(true)
    }

    fn release(&self, range: u32) -> io::Result<()> {
        let _lock = self.lock()?;
        let path = self.folder.join(range.to_string());
        if self.is_own(&path)? { fs::remove_file(path) } else { Ok(()) }
    }

    fn is_own(&self, path: &Path) -> io::Result<bool> {
        match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            read => Ok(read? == self.data.as_os_str().as_bytes()),
        }
    }

    /// Locks the record against other programs until the file is dropped.
    fn lock(&self) -> io::Result<File> {
        let file =
            File::options().create(true).truncate(false).write(true).open(self.folder.join(LOCK_FILE))?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_free_range_is_taken() {
        let mut ranges = Ranges::new(FIRST_ID);
        let all = |_: &u32| true;
        assert_eq!(ranges.allocate(all), Some(FIRST_ID));
        ranges.adopt(FIRST_ID + RANGE_LEN);
        assert_eq!(ranges.allocate(all), Some(FIRST_ID + 2 * RANGE_LEN));
        ranges.release(FIRST_ID);
        assert_eq!(ranges.allocate(|range| *range > FIRST_ID), Some(FIRST_ID + 3 * RANGE_LEN));
        assert_eq!(ranges.allocate(all), Some(FIRST_ID));
        let mut last = Ranges::new(ID_END - RANGE_LEN);
        assert_eq!((last.allocate(all), last.allocate(all)), (Some(ID_END - RANGE_LEN), None));
    }

    #[test]
    fn data_folders_of_one_host_get_disjoint_ranges() {
        let root = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let open = |data: &Path| Ids {
            ranges: Mutex::new(Ranges::new(FIRST_ID)),
            host: Some(HostRecord::open(&root.path().join("ids"), data).unwrap()),
        };
        let (one, other) = (folder("one"), folder("other"));
        let (first, second) = (open(&one), open(&other));
        assert_eq!(first.allocate_range().unwrap(), FIRST_ID);
        assert_eq!(second.allocate_range().unwrap(), FIRST_ID + RANGE_LEN);
        assert_eq!(first.allocate_range().unwrap(), FIRST_ID + 2 * RANGE_LEN);
        first.release(FIRST_ID + 2 * RANGE_LEN);
        assert_eq!(second.allocate_range().unwrap(), FIRST_ID + 2 * RANGE_LEN);
        // A restarted executor adopts the ranges of its containers.
        let first = open(&one);
        first.adopt(FIRST_ID);
        assert_eq!(first.allocate_range().unwrap(), FIRST_ID + 3 * RANGE_LEN);
        // The ranges of a deleted data folder are free.
        fs::remove_dir(&other).unwrap();
        assert_eq!(first.allocate_range().unwrap(), FIRST_ID + RANGE_LEN);
    }
}
