//! Removal of folders whose content an untrusted program made.
//!
//! `std::fs::remove_dir_all` uses a stack frame and a descriptor for each level, so a program that nests folders deep enough
//! aborts whoever removes them. Here a folder within a folder is first moved to the top, where it is emptied in turn. Memory and
//! descriptors are constant, paths have one component, and the work grows with the number of entries alone.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, chmod, fstat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::path::Arg;

/// Start of the name that a folder gets while it waits at the top.
const RAISED: &str = ".raised-";

/// Removes a file, or a folder with everything below it. Links are removed and not followed. A missing path is not an error.
///
/// # Errors
/// Something can't be removed. Everything else below the path has been removed then.
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

/// Removes what has this name in an open folder, as [`remove`] does.
///
/// # Errors
/// As [`remove`].
pub fn remove_at(folder: impl AsFd, name: &CStr) -> io::Result<()> {
    let folder = folder.as_fd();
    let Some(top) = unlink_or_open(&folder, name)? else { return Ok(()) };
    empty(&top)?;
    Ok(gone_is_fine(unlinkat(folder, name, AtFlags::REMOVEDIR))?)
}

/// Removes a file and returns `None`, or opens a folder.
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

/// Opens a folder, after giving its owner every permission on it.
fn open(folder: &impl AsFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let there = openat(folder, name, flags, Mode::empty())?;
    if !Mode::from_raw_mode(fstat(&there)?.st_mode).contains(Mode::RWXU) {
        // What this program may not change it may not need to: root passes over permissions.
        let changed = chmod(format!("/proc/self/fd/{}", there.as_raw_fd()), Mode::RWXU);
        drop(changed.map_err(io::Error::from));
    }
    openat(&there, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Empties the top folder, into which the folders below it are moved one after the other.
fn empty(top: &OwnedFd) -> io::Result<()> {
    let mut raised = 0;
    while pass(top, |name| {
        let Some(folder) = unlink_or_open(top, name)? else { return Ok(()) };
        loop {
            match gone_is_fine(unlinkat(top, name, AtFlags::REMOVEDIR)) {
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                done => return done,
            }
            pass(&folder, |name| raise(&folder, name, top, &mut raised))?;
        }
    })? {}
    Ok(())
}

/// Removes a file, or moves a folder to the top.
fn raise(folder: &OwnedFd, name: &CStr, top: &OwnedFd, raised: &mut u64) -> rustix::io::Result<()> {
    // To move a folder one has to be allowed to write into it.
    if unlink_or_open(folder, name)?.is_none() {
        return Ok(());
    }
    loop {
        *raised += 1;
        match renameat(folder, name, top, format!("{RAISED}{raised}")) {
            // A container may use the same names.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            moved => return gone_is_fine(moved),
        }
    }
}

/// Does something with every entry of a folder that takes the entry away. Returns `true` if it took away at least one, so that
/// others may have been missed, and an error if there are only entries that can't be taken away.
fn pass(folder: &OwnedFd, mut take: impl FnMut(&CStr) -> rustix::io::Result<()>) -> rustix::io::Result<bool> {
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

fn gone_is_fine(done: rustix::io::Result<()>) -> rustix::io::Result<()> {
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

    /// Makes folders of this name within each other, and returns the innermost.
    fn nest(top: &Path, name: &str, levels: usize) -> OwnedFd {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut folder = openat(CWD, top, flags, Mode::empty()).unwrap();
        for _ in 0..levels {
            mkdirat(&folder, name, Mode::RWXU).unwrap();
            folder = openat(&folder, name, flags, Mode::empty()).unwrap();
        }
        folder
    }

    /// In memory where that is possible: some disks take milliseconds to remove a folder.
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
            // Root passes over permissions, so this thread becomes another user.
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
