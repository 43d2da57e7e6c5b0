//! Disk usage of a container. It includes the files below the container's folders, and deleted files that the
//! container's processes hold open.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, openat, stat, statat};
use rustix::io::Errno;

use crate::processes::descendants;

/// Unit in which the kernel counts the blocks of a file, in bytes.
const BLOCK_BYTES: u64 = 512;
/// Minimum disk usage of a file or folder, in bytes. Even an empty file or folder uses an inode.
const ENTRY_BYTES: u64 = 4096;
/// Maximum depth of nested folders for the count. Each level uses one descriptor of the shim.
const MAX_DEPTH: usize = 256;

/// Folders and processes of a container for the count of its disk usage.
#[derive(Clone, Debug)]
pub(crate) struct DiskUsage {
    folders: [PathBuf; 2],
    /// Process that is the ancestor of all processes of the container.
    shim: i32,
    /// `true` if this program may inspect every process of the container.
    can_inspect_all: bool,
}

impl DiskUsage {
    pub(crate) fn new(folder: &Path, shim: i32, can_inspect_all: bool) -> Self {
        Self { folders: [folder.join("work"), folder.join("tmp")], shim, can_inspect_all }
    }

    /// Returns the number of bytes that the container uses. Counting stops once the sum exceeds `limit`.
    /// Therefore `limit` also bounds the duration of the count. Links are not followed. Entries that
    /// disappear during the count are ignored.
    pub(crate) fn used_bytes(&self, limit: u64) -> io::Result<u64> {
        let mut count = Counter { limit, bytes: 0, seen: BTreeSet::new(), devices: BTreeSet::new() };
        for folder in &self.folders {
            count.walk(folder)?;
        }
        for process in descendants(self.shim) {
            match count.add_deleted_files(process.pid()) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !self.can_inspect_all => {}
                done => done?,
            }
        }
        Ok(count.bytes)
    }
}

struct Counter {
    limit: u64,
    bytes: u64,
    /// Device and inode of the files that the count may find more than once: files with several names, and
    /// deleted files.
    seen: BTreeSet<(u64, u64)>,
    /// Devices of the counted folders.
    devices: BTreeSet<u64>,
}

impl Counter {
    const fn is_over(&self) -> bool {
        self.bytes > self.limit
    }

    fn add(&mut self, found: &Stat) {
        let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        if !is_folder && found.st_nlink != 1 && !self.seen.insert((found.st_dev, found.st_ino)) {
            return;
        }
        let blocks = u64::try_from(found.st_blocks).unwrap_or_default().saturating_mul(BLOCK_BYTES);
        self.bytes = self.bytes.saturating_add(blocks.max(ENTRY_BYTES));
    }

    /// Counts everything below a folder. The count uses descriptors, because a path may be longer than the
    /// kernel accepts.
    fn walk(&mut self, folder: &Path) -> io::Result<()> {
        let mut open: Vec<Dir> = vec![];
        if let Some(top) = open_folder(CWD, folder)? {
            self.devices.insert(rustix::fs::fstat(&top)?.st_dev);
            open.push(Dir::new(top)?);
        }
        while let Some(folder) = open.last_mut().filter(|_| !self.is_over()) {
            let Some(entry) = folder.read() else {
                open.pop();
                continue;
            };
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Some(found) = ignore_missing(statat(folder.fd()?, name, AtFlags::SYMLINK_NOFOLLOW))? else {
                continue;
            };
            self.add(&found);
            if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
                continue;
            }
            let inner = open_folder(folder.fd()?, name)?;
            if open.len() >= MAX_DEPTH {
                return Err(io::Error::other(format!("folders are nested deeper than {MAX_DEPTH} levels")));
            }
            if let Some(inner) = inner {
                open.push(Dir::new(inner)?);
            }
        }
        Ok(())
    }

    /// Counts the deleted files that a process holds open and that are on one of the counted devices.
    fn add_deleted_files(&mut self, pid: i32) -> io::Result<()> {
        let folder = format!("/proc/{pid}/fd");
        let Some(entries) = ignore_exited(fs::read_dir(folder))? else { return Ok(()) };
        for entry in entries {
            if self.is_over() {
                break;
            }
            let Some(entry) = ignore_exited(entry)? else { continue };
            let Some(found) = ignore_exited(stat(entry.path()).map_err(io::Error::from))? else { continue };
            let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
            if is_file && found.st_nlink == 0 && self.devices.contains(&found.st_dev) {
                self.add(&found);
            }
        }
        Ok(())
    }
}

/// Opens a folder. `None` if it no longer exists.
fn open_folder(
    at: impl std::os::fd::AsFd,
    name: impl rustix::path::Arg,
) -> rustix::io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    ignore_missing(openat(at, name, flags, Mode::empty()))
}

fn ignore_missing<T>(found: rustix::io::Result<T>) -> rustix::io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        // The entry was removed or replaced.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the result of reading an entry of `/proc`. `None` if the process or the descriptor is gone.
fn ignore_exited<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn used(root: &Path) -> u64 {
        let own = rustix::process::getpid().as_raw_pid();
        DiskUsage::new(root, own, true).used_bytes(u64::MAX).unwrap()
    }

    #[test]
    fn disk_use_counts_blocks_and_ignores_link_targets() {
        let root = tempfile::tempdir().unwrap();
        let work = root.path().join("work");
        fs::create_dir_all(work.join("deep/er")).unwrap();
        fs::write(work.join("deep/er/file"), vec![1; 1 << 20]).unwrap();
        let before = used(root.path());
        assert!((MIB..2 * MIB).contains(&before), "{before}");
        fs::hard_link(work.join("deep/er/file"), work.join("again")).unwrap();
        symlink("/usr", work.join("link")).unwrap();
        File::create(work.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        assert!(used(root.path()) < before + (1 << 16));
    }

    #[test]
    fn empty_file_counts_as_one_block() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("work")).unwrap();
        for number in 0..1000 {
            File::create(root.path().join(format!("work/{number}"))).unwrap();
        }
        assert_eq!(used(root.path()), 1000 * ENTRY_BYTES);
    }

    #[test]
    fn files_below_very_long_paths_are_counted() {
        let root = tempfile::tempdir().unwrap();
        let mut folder = open_folder(CWD, root.path()).unwrap().unwrap();
        for name in std::iter::once("work".to_owned()).chain((0..30).map(|_| "l".repeat(200))) {
            rustix::fs::mkdirat(&folder, &name, Mode::RWXU).unwrap();
            folder = open_folder(&folder, &name).unwrap().unwrap();
        }
        let file = openat(&folder, "f", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        io::Write::write_all(&mut File::from(file), &[1; 3 << 20]).unwrap();
        assert!(used(root.path()) > 3 * MIB);
        removal::remove(&root.path().join("work")).unwrap();
    }

    #[test]
    fn too_deeply_nested_folders_are_an_error() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("work").join(vec!["d"; MAX_DEPTH + 1].join("/"))).unwrap();
        let error = DiskUsage::new(root.path(), 1, true).used_bytes(u64::MAX).unwrap_err();
        assert_eq!(error.to_string(), "folders are nested deeper than 256 levels");
    }
}
