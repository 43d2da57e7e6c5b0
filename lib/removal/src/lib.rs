//! Removal of folders whose content an untrusted program created.
//!
//! `std::fs::remove_dir_all` uses a stack frame and a descriptor for each level, so deeply nested folders
//! abort the process that removes them. This crate first moves a nested folder to the top folder and empties
//! it there. The use of memory and descriptors is constant, paths have one component, and the work grows only
//! with the number of entries.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, chmod, fstat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::path::Arg;

/// Prefix of the names that folders get while they wait at the top.
const RAISED_PREFIX: &str = ".raised-";

/// Removes a file, or a folder with everything below it. Links are removed and not followed. A missing path
/// is not an error.
///
/// # Errors
///
/// Returns an error if an entry can't be removed. Everything else below the path is removed even in this
/// case.
pub fn remove(path: &Path) -> io::Result<()> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a path without a name can't be removed"));
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match openat(CWD, parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => Ok(()),
        parent => Ok(name.into_with_c_str(|name| Ok(remove_at(&parent?, name)))??),
    }
}

/// Removes the entry with this name in an open folder, like [`remove`].
///
/// # Errors
/// Returns the same errors as [`remove`].
pub fn remove_at(folder: impl AsFd, name: &CStr) -> io::Result<()> {
    let folder = folder.as_fd();
    let Some(top) = unlink_or_open(&folder, name)? else { return Ok(()) };
    empty(&top)?;
    Ok(ignore_missing(unlinkat(folder, name, AtFlags::REMOVEDIR))?)
}

/// Removes a file, or opens a folder and returns it. Returns `None` if nothing is left to remove.
fn unlink_or_open(folder: &impl AsFd, name: &CStr) -> rustix::io::Result<Option<OwnedFd>> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(None),
        Err(error @ (Errno::ISDIR | Errno::PERM)) => match open(folder, name) {
            Ok(opened) => Ok(Some(opened)),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR) => Err(error),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Opens a folder after granting its owner every permission on it.
fn open(folder: &impl AsFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let there = openat(folder, name, flags, Mode::empty())?;
    if !Mode::from_raw_mode(fstat(&there)?.st_mode).contains(Mode::RWXU) {
        // A failure is ignored, because the permission may not be needed: root bypasses permissions.
        let changed = chmod(format!("/proc/self/fd/{}", there.as_raw_fd()), Mode::RWXU);
        drop(changed.map_err(io::Error::from));
    }
    openat(&there, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Empties the top folder. Folders below it are moved into it one after the other.
fn empty(top: &OwnedFd) -> io::Result<()> {
    let mut raised = 0;
    while for_each_entry(top, |name| {
        let Some(folder) = unlink_or_open(top, name)? else { return Ok(()) };
        loop {
            match ignore_missing(unlinkat(top, name, AtFlags::REMOVEDIR)) {
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                done => return done,
            }
            for_each_entry(&folder, |name| raise(&folder, name, top, &mut raised))?;
        }
    })? {}
    Ok(())
}

/// Removes a file, or moves a folder to the top.
fn raise(folder: &OwnedFd, name: &CStr, top: &OwnedFd, raised: &mut u64) -> rustix::io::Result<()> {
    // Opening the folder grants write permission on it, which moving it requires.
    if unlink_or_open(folder, name)?.is_none() {
        return Ok(());
    }
    loop {
        *raised += 1;
        match renameat(folder, name, top, format!("{RAISED_PREFIX}{raised}")) {
            // The content may already use this name.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            moved => return ignore_missing(moved),
        }
    }
}

/// Calls `take` for every entry of a folder. `take` removes the entry. Returns `true` if at least one entry
/// was removed, because a removal may make the listing miss other entries. Returns an error if no entry could
/// be removed.
fn for_each_entry(
    folder: &OwnedFd,
    mut take: impl FnMut(&CStr) -> rustix::io::Result<()>,
) -> rustix::io::Result<bool> {
    let (mut took, mut failed) = (false, None);
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match take(name) {
            Ok(()) => took = true,
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        Some(error) if !took => Err(error),
        Some(_) | None => Ok(took),
    }
}

fn ignore_missing(done: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match done {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::os::unix::net::UnixListener;

    use rustix::fs::{mkdirat, mkfifoat};
    use rustix::process::geteuid;
    use rustix::thread::set_thread_res_uid;
    use tempfile::TempDir;

    use super::*;

    /// Creates `levels` folders of this name inside one another and returns the innermost.
    fn nest(top: &Path, name: &str, levels: usize) -> OwnedFd {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut folder = openat(CWD, top, flags, Mode::empty()).unwrap();
        for _ in 0..levels {
            mkdirat(&folder, name, Mode::RWXU).unwrap();
            folder = openat(&folder, name, flags, Mode::empty()).unwrap();
        }
        folder
    }

    /// Creates a temporary folder with a folder `tree` in it. Prefers memory, because some disks take
    /// milliseconds to remove a folder.
    fn root_with_tree() -> TempDir {
        let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        fs::create_dir(root.path().join("tree")).unwrap();
        root
    }

    fn assert_removed(root: &TempDir) {
        remove(&root.path().join("tree")).unwrap();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn deeply_nested_folders_are_removed() {
        let root = root_with_tree();
        let tree = root.path().join("tree");
        nest(&tree, "d", 20_000);
        let long = nest(&tree, &"l".repeat(250), 40);
        for name in [".raised-1", ".raised-2", "d"] {
            mkdirat(&long, name, Mode::RWXU).unwrap();
        }
        fs::create_dir_all(tree.join(".raised-1/.raised-2")).unwrap();
        fs::write(tree.join(".raised-3"), "").unwrap();
        assert_removed(&root);
        remove(&root.path().join("tree/below/nothing")).unwrap();
    }

    #[test]
    fn special_files_are_removed_and_links_are_not_followed() {
        let root = root_with_tree();
        let (tree, kept) = (root.path().join("tree"), tempfile::tempdir().unwrap());
        fs::write(kept.path().join("file"), "kept").unwrap();
        symlink(kept.path(), tree.join("link")).unwrap();
        symlink("link", tree.join("loop")).unwrap();
        drop(UnixListener::bind(tree.join("socket")).unwrap());
        mkfifoat(CWD, tree.join("pipe"), Mode::RWXU).unwrap();
        mkfifoat(CWD, tree.join(std::ffi::OsStr::new("bad \u{80}\n*")), Mode::RWXU).unwrap();
        for number in 0..3_000 {
            fs::create_dir_all(tree.join(format!("wide/{number}/in"))).unwrap();
        }
        assert_removed(&root);
        assert_eq!(fs::read_to_string(kept.path().join("file")).unwrap(), "kept");
    }

    #[test]
    fn folders_without_permissions_are_removed_by_their_owner() {
        let root = root_with_tree();
        let tree = root.path().join("tree");
        if geteuid().is_root() {
            // Root bypasses permissions, so this thread becomes another user.
            for path in [root.path(), &tree] {
                chown(path, Some(4242), None).unwrap();
            }
            let user = rustix::fs::Uid::from_raw(4242);
            set_thread_res_uid(user, user, user).unwrap();
        }
        let deep = nest(&tree, &"l".repeat(250), 20);
        mkdirat(&deep, "locked", Mode::empty()).unwrap();
        rustix::fs::fchmod(&deep, Mode::empty()).unwrap();
        let below = nest(&tree, "closed", 3);
        mkdirat(&below, "inner", Mode::empty()).unwrap();
        fs::set_permissions(tree.join("closed"), fs::Permissions::from_mode(0o0)).unwrap();
        fs::set_permissions(&tree, fs::Permissions::from_mode(0o0)).unwrap();
        assert_removed(&root);
    }
}
