//! One data folder, one owner, and nobody else's hand in it.
//!
//! A folder may stand where everybody can write, as `/tmp`, and what it holds is obeyed: so it must be this user's, closed
//! to others, and neither it nor what is opened in it may be a link to somewhere else.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat, flock};
use rustix::io::Errno;

/// The file in a data folder that its owner holds a lock on. It goes when the owner does.
const LOCK: &str = "owner.lock";
/// The file by which a folder is known as one that is emptied at every start. Nothing is deleted in another.
const SCRATCH: &str = "muster.scratch";
/// The folders that are deleted from a folder that is emptied: those of the cells, and the snapshots of the past.
const FOLDERS: [&str; 2] = ["cells", "past"];
/// How the files begin that are deleted from a folder that is emptied.
const FILES: [&str; 4] = ["journal.db", "muster.sock", "projection.db", "secrets.keys"];
/// Bits of a mode by which others may write.
const OTHERS_WRITE: u32 = 0o022;
/// Bits of a mode by which others may do anything.
const OTHERS: u32 = 0o077;
/// How often an owner that ends just then is waited out.
const TRIES: usize = 16;

/// A data folder that belongs to this process until the last clone of this is dropped, or the process ends in
/// whatever way.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    held: Arc<Held>,
}

/// What is held of a folder.
#[derive(Debug)]
struct Held {
    path: PathBuf,
    folder: OwnedFd,
    /// The lock is the open file's: it goes when the file is closed.
    _lock: File,
    scratch: bool,
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
    /// It belongs to another user, who could change what it holds.
    #[error("{path} belongs to user {owner}, and this is user {user}: choose another folder with --data")]
    Foreign {
        /// The folder, or what stands in it.
        path: String,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        user: u32,
    },
    /// Other users may do things in it.
    #[error("{path} has mode {mode:04o}, so that other users get at it: chmod {wanted} {path}")]
    Open {
        /// The folder, or what stands in it.
        path: String,
        /// What others may do, as a mode.
        mode: u32,
        /// What would be enough, for `chmod`.
        wanted: &'static str,
    },
    /// It isn't what it should be: a link, for one.
    #[error("{path} is {kind}, and {wanted} is needed there: choose another folder with --data")]
    Kind {
        /// The folder, or what stands in it.
        path: String,
        /// What it is.
        kind: &'static str,
        /// What is needed.
        wanted: &'static str,
    },
    /// It would have to be emptied, and holds what nobody said may be deleted.
    #[error(
        "the data folder {path} holds {found}, and was not made to be emptied: move that away, or name the folder with \
         --data to keep what it holds"
    )]
    Foreigner {
        /// The folder.
        path: String,
        /// Something that it holds.
        found: String,
    },
}

impl Folder {
    /// Makes the folder if there is none (for this user alone), and owns it. What it holds is kept.
    ///
    /// # Errors
    /// Another process owns it, it can't be made, or another user has a hand in it.
    pub fn own(path: &Path) -> Result<Self, FolderError> {
        let held = hold(path, OTHERS_WRITE)?;
        // Who names it wants to keep what is in it, from now on.
        match rustix::fs::unlinkat(&held.folder, SCRATCH, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(unusable(path)(error.into())),
        }
        Ok(Self { path: path.to_owned(), held: Arc::new(held) })
    }

    /// As [`Folder::own`], of a folder whose content goes when its owner does: see [`Folder::clear`]. It must be closed to
    /// all others, and must have been made for this, or be empty.
    ///
    /// # Errors
    /// As [`Folder::own`], and that the folder holds what nobody may delete.
    pub fn scratch(path: &Path) -> Result<Self, FolderError> {
        let mut held = hold(path, OTHERS)?;
        if !is_marked(&held, path)? {
            if let Some(found) = content(path).map_err(unusable(path))? {
                return Err(FolderError::Foreigner { path: shown(path), found });
            }
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(&held.folder, SCRATCH, flags, private())
                .map_err(|error| unusable(path)(error.into()))?;
        }
        held.scratch = true;
        Ok(Self { path: path.to_owned(), held: Arc::new(held) })
    }

    /// Where the folder is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Deletes what a cluster left in a scratch folder, and nothing else; in another folder nothing at all.
    ///
    /// # Errors
    /// Something can't be deleted.
    pub fn clear(&self) -> io::Result<()> {
        if !self.held.scratch {
            return Ok(());
        }
        // Links below it are deleted, and not followed.
        for name in FOLDERS {
            removal::remove(&self.path.join(name))?;
        }
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            if name.to_str().is_some_and(|name| FILES.iter().any(|begin| name.starts_with(begin))) {
                rustix::fs::unlinkat(&self.held.folder, &name, AtFlags::empty())?;
            }
        }
        Ok(())
    }

    /// Makes a file in the folder for this user alone, or sees to it that one that is there is so: what opens it by its
    /// name afterwards opens that file.
    ///
    /// # Errors
    /// What is there is no file of this user's.
    pub fn private_file(&self, name: &str) -> Result<(), FolderError> {
        open_private(&self.held.folder, &self.path, name).map(drop)
    }
}

impl Drop for Held {
    /// What could not be deleted is reported by nobody: the next owner gets along with it.
    fn drop(&mut self) {
        // What is not cleared yet must be known as what may be cleared.
        let ends = self.scratch && is_empty(&self.path);
        if ends {
            rustix::fs::unlinkat(&self.folder, SCRATCH, AtFlags::empty()).ok();
        }
        // While the lock is still held, so that nobody else's is deleted.
        rustix::fs::unlinkat(&self.folder, LOCK, AtFlags::empty()).ok();
        if ends {
            rustix::fs::unlinkat(CWD, &self.path, AtFlags::REMOVEDIR).ok();
        }
    }
}

const fn private() -> Mode {
    Mode::RUSR.union(Mode::WUSR)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn unusable(path: &Path) -> impl Fn(io::Error) -> FolderError {
    let path = shown(path);
    move |source| FolderError::Unusable { path: path.clone(), source }
}

/// Makes the folder if there is none, checks it, and gets the lock.
fn hold(path: &Path, closed_to: u32) -> Result<Held, FolderError> {
    for _ in 0..TRIES {
        let folder = open(path, closed_to)?;
        let mut lock = match open_private(&folder, path, LOCK) {
            Ok(lock) => lock,
            // Its last owner has just deleted the folder.
            Err(FolderError::Unusable { source, .. }) if source.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(FolderError::InUse { path: shown(path), owner: owner(&mut lock) });
            }
            Err(TryLockError::Error(source)) => return Err(unusable(path)(source)),
        }
        // The last owner deletes its lock's file: a lock on a file without a name is none.
        if !is_named(&folder, &lock) {
            continue;
        }
        sign(&mut lock).map_err(unusable(path))?;
        // systemd-tmpfiles leaves a folder alone, and all that is in it, while its descriptor has a lock.
        flock(&folder, FlockOperation::LockShared).map_err(|error| unusable(path)(error.into()))?;
        return Ok(Held { path: path.to_owned(), folder, _lock: lock, scratch: false });
    }
    Err(unusable(path)(io::Error::other("others begin and end in it all the time")))
}

/// Opens the folder itself, and no link to one.
fn open(path: &Path, closed_to: u32) -> Result<OwnedFd, FolderError> {
    let failed = unusable(path);
    match fs::symlink_metadata(path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(path).map_err(&failed)?,
        Err(error) => return Err(failed(error)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(folder) => folder,
        Err(error @ (Errno::NOTDIR | Errno::LOOP)) => {
            let stat = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
            return Err(match stat {
                Ok(stat) => FolderError::Kind { path: shown(path), kind: kind(&stat), wanted: "a folder" },
                Err(_) => failed(error.into()),
            });
        }
        Err(error) => return Err(failed(error.into())),
    };
    let stat = rustix::fs::fstat(&folder).map_err(|error| failed(error.into()))?;
    is_ours(&stat, path)?;
    if stat.st_mode & closed_to != 0 {
        let mode = stat.st_mode & 0o7777;
        return Err(FolderError::Open { path: shown(path), mode, wanted: "700" });
    }
    Ok(folder)
}

/// Another may make it at the same time: then that one is looked at.
fn make(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    if let Some(parent) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    match builder.create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Opens a file of this user's in a folder, or makes it: a file that has this name and no other, which nobody else gets
/// at.
fn open_private(folder: &OwnedFd, path: &Path, name: &str) -> Result<File, FolderError> {
    let at = path.join(name);
    let failed = unusable(path);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(folder, name, flags, private()) {
        Ok(file) => file,
        Err(error) => {
            let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
            return Err(match stat {
                Ok(stat) if !FileType::from_raw_mode(stat.st_mode).is_file() => {
                    FolderError::Kind { path: shown(&at), kind: kind(&stat), wanted: "a file" }
                }
                Ok(_) | Err(_) => failed(error.into()),
            });
        }
    };
    let stat = rustix::fs::fstat(&file).map_err(|error| failed(error.into()))?;
    let wanted = "a file";
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(FolderError::Kind { path: shown(&at), kind: kind(&stat), wanted });
    }
    is_ours(&stat, &at)?;
    if stat.st_nlink > 1 {
        return Err(FolderError::Kind { path: shown(&at), kind: "a file with other names", wanted });
    }
    if stat.st_mode & OTHERS != 0 {
        rustix::fs::fchmod(&file, private()).map_err(|error| failed(error.into()))?;
    }
    Ok(File::from(file))
}

fn is_ours(stat: &Stat, path: &Path) -> Result<(), FolderError> {
    let user = rustix::process::geteuid().as_raw();
    if stat.st_uid == user {
        return Ok(());
    }
    Err(FolderError::Foreign { path: shown(path), owner: stat.st_uid, user })
}

fn kind(stat: &Stat) -> &'static str {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => "a link",
        FileType::Directory => "a folder",
        FileType::RegularFile => "a file",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "something unknown",
    }
}

/// Something that the folder holds, besides what its owner needs.
fn content(path: &Path) -> io::Result<Option<String>> {
    for name in fs::read_dir(path)? {
        let name = name?.file_name();
        if name != LOCK && name != SCRATCH {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

fn is_empty(path: &Path) -> bool {
    content(path).is_ok_and(|found| found.is_none())
}

/// Whether the folder was made to be emptied.
fn is_marked(held: &Held, path: &Path) -> Result<bool, FolderError> {
    match rustix::fs::statat(&held.folder, SCRATCH, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => {
            is_ours(&stat, &path.join(SCRATCH))?;
            Ok(FileType::from_raw_mode(stat.st_mode).is_file())
        }
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(unusable(path)(error.into())),
    }
}

/// Whether the lock's file is still the one that has its name.
fn is_named(folder: &OwnedFd, lock: &File) -> bool {
    let named = rustix::fs::statat(folder, LOCK, AtFlags::SYMLINK_NOFOLLOW);
    let held = rustix::fs::fstat(lock);
    matches!((named, held), (Ok(named), Ok(held)) if (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino))
}

/// Writes this process's id into the lock's file, for whoever comes second.
fn sign(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    write!(lock, "{}", std::process::id())
}

/// Who signed the lock's file. Only for a message, so that it can't be read is not an error.
fn owner(lock: &mut File) -> String {
    let mut text = String::new();
    match lock.take(32).read_to_string(&mut text) {
        Ok(1..=20) => text,
        Ok(_) | Err(_) => "(unknown)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|name| name.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_second_owner_is_refused_and_the_last_leaves_no_lock() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("a/b");
        let first = Folder::own(&path).unwrap();
        let again = first.clone();
        let second = Folder::own(&path).unwrap_err();
        let told = format!("is in use by process {}", std::process::id());
        assert!(second.to_string().contains(&told), "{second}");
        assert_eq!((mode(&path), mode(&path.join(LOCK))), (0o700, 0o600));
        drop(first);
        assert!(matches!(Folder::own(&path), Err(FolderError::InUse { .. })));
        drop(again);
        assert_eq!(names(&path), Vec::<String>::new());
        Folder::own(&path).unwrap();
    }

    #[test]
    fn a_lock_that_a_killed_owner_left_is_no_hindrance() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join(LOCK), "1").unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let folder = Folder::own(base.path()).unwrap();
        assert_eq!(mode(&base.path().join(LOCK)), 0o600);
        drop(folder);
        assert_eq!(names(base.path()), Vec::<String>::new());
    }

    #[test]
    fn a_folder_that_others_get_at_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("open");
        fs::create_dir(&path).unwrap();
        for (bits, kept, scratch) in
            [(0o777, false, false), (0o770, false, false), (0o755, true, false), (0o700, true, true)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
            let refused = |folder: Result<Folder, FolderError>| match folder {
                Ok(_) => true,
                Err(FolderError::Open { mode, .. }) => {
                    assert_eq!(mode, bits);
                    false
                }
                Err(other) => panic!("{bits:o}: {other}"),
            };
            assert_eq!(refused(Folder::own(&path)), kept, "{bits:o}");
            assert_eq!(refused(Folder::scratch(&path)), scratch, "{bits:o}");
            fs::create_dir_all(&path).unwrap();
        }
    }

    /// Only the superuser can give something away; everybody else finds something that is the superuser's.
    fn another_users(base: &Path) -> PathBuf {
        if !rustix::process::geteuid().is_root() {
            return PathBuf::from("/");
        }
        let path = base.join("prepared");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&path, Some(65_533), None).unwrap();
        path
    }

    #[test]
    fn a_folder_that_another_user_prepared_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = another_users(base.path());
        let before = names(&path);
        for refused in [Folder::own(&path), Folder::scratch(&path)] {
            assert!(matches!(refused, Err(FolderError::Foreign { .. })), "{refused:?}");
        }
        assert_eq!(names(&path), before, "nothing is made there");
    }

    #[test]
    fn no_link_is_followed() {
        let base = tempfile::tempdir().unwrap();
        let (real, link) = (base.path().join("real"), base.path().join("link"));
        fs::create_dir(&real).unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&real, &link).unwrap();
        for refused in [Folder::own(&link), Folder::scratch(&link)] {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("is a link"), "{text}");
        }
        // Nor one to nowhere: what it leads to is not made.
        let dangling = base.path().join("dangling");
        symlink(base.path().join("nowhere"), &dangling).unwrap();
        assert!(Folder::own(&dangling).unwrap_err().to_string().contains("is a link"));
        assert!(!base.path().join("nowhere").exists());
        assert_eq!(names(&real), Vec::<String>::new());
    }

    #[test]
    fn a_lock_that_is_a_link_is_refused_and_its_target_left_alone() {
        let base = tempfile::tempdir().unwrap();
        let (path, target) = (base.path().join("data"), base.path().join("precious"));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(&target, "precious").unwrap();
        symlink(&target, path.join(LOCK)).unwrap();
        let text = Folder::own(&path).unwrap_err().to_string();
        assert!(text.contains("owner.lock is a link"), "{text}");
        fs::remove_file(path.join(LOCK)).unwrap();
        fs::hard_link(&target, path.join(LOCK)).unwrap();
        let text = Folder::own(&path).unwrap_err().to_string();
        assert!(text.contains("other names"), "{text}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }

    #[test]
    fn the_journals_file_is_this_users_alone() {
        let base = tempfile::tempdir().unwrap();
        let folder = Folder::own(&base.path().join("data")).unwrap();
        // systemd-tmpfiles cleans no folder that it can't lock.
        let cleaner = File::open(folder.path()).unwrap();
        let locked = flock(&cleaner, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(locked.unwrap_err(), Errno::WOULDBLOCK);
        folder.private_file("journal.db").unwrap();
        assert_eq!(mode(&folder.path().join("journal.db")), 0o600);
        fs::set_permissions(folder.path().join("journal.db"), fs::Permissions::from_mode(0o644)).unwrap();
        folder.private_file("journal.db").unwrap();
        assert_eq!(mode(&folder.path().join("journal.db")), 0o600);
        symlink("/etc/passwd", folder.path().join("other.db")).unwrap();
        assert!(folder.private_file("other.db").is_err());
    }

    #[test]
    fn only_a_folder_that_was_made_for_it_is_emptied() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("scratch");
        let leave = |path: &Path| {
            fs::create_dir_all(path.join("cells/c1")).unwrap();
            fs::create_dir_all(path.join("past/cluster")).unwrap();
            fs::write(path.join("past/cluster/1.rung"), "").unwrap();
            fs::write(path.join("journal.db"), "").unwrap();
            fs::write(path.join("journal.db-wal"), "").unwrap();
        };
        let scratch = Folder::scratch(&path).unwrap();
        leave(&path);
        let precious = base.path().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("file"), "").unwrap();
        symlink(&precious, path.join("cells/c1/link")).unwrap();
        // Who ends before it is cleared leaves it to the next.
        drop(scratch);
        let scratch = Folder::scratch(&path).unwrap();
        scratch.clear().unwrap();
        assert_eq!(names(&path), [SCRATCH, LOCK]);
        assert_eq!(names(&precious), ["file"]);
        drop(scratch);
        assert!(!path.exists(), "nothing is left of it");

        // What somebody keeps is never emptied, also when it is there where a scratch folder would be.
        let kept = Folder::own(&path).unwrap();
        leave(&path);
        kept.clear().unwrap();
        drop(kept);
        let before = names(&path);
        assert_eq!(before, ["cells", "journal.db", "journal.db-wal", "past"]);
        let text = Folder::scratch(&path).unwrap_err().to_string();
        assert!(text.contains("was not made to be emptied"), "{text}");
        assert_eq!(names(&path), before);
    }
}
