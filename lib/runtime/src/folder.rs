//! Exclusive ownership of a data folder by one process.
//!
//! A data folder may be in a world-writable place such as `/tmp`, and its content is trusted. The folder must
//! therefore belong to this user and be closed to other users. Neither the folder nor a file opened in it may
//! be a link.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat, flock};
use rustix::io::Errno;

/// File that the owner of a data folder holds a lock on. The owner deletes this file when it releases the
/// folder.
const LOCK_FILE: &str = "owner.lock";
/// Marker file of a scratch folder. A scratch folder is emptied at every start. Nothing is deleted from a
/// folder without this marker.
const SCRATCH_MARKER: &str = "muster.scratch";
/// Folders that [`Folder::clear`] deletes: those of the cells, and the snapshots of the past.
const SCRATCH_FOLDERS: [&str; 2] = ["cells", "past"];
/// Prefixes of the names of the files that [`Folder::clear`] deletes.
const SCRATCH_FILE_PREFIXES: [&str; 4] = ["journal.db", "muster.sock", "projection.db", "secrets.keys"];
/// Mode bits that allow other users to write.
const OTHERS_WRITE: u32 = 0o022;
/// Mode bits that give other users any access.
const OTHERS_ACCESS: u32 = 0o077;
/// Maximum number of attempts to take the lock while previous owners are releasing it.
const LOCK_ATTEMPTS: usize = 16;

/// Data folder that belongs to this process until the last clone is dropped or the process exits, even if it
/// is killed.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    held: Arc<OwnedFolder>,
}

/// State that the clones of a [`Folder`] share. Dropping it releases the folder.
#[derive(Debug)]
struct OwnedFolder {
    path: PathBuf,
    folder: OwnedFd,
    /// The lock belongs to the open file and is released when the file is closed.
    _lock: File,
    scratch: bool,
}

/// Error of taking ownership of a data folder.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error(
        "the data folder {path} is in use by process {owner}: stop it, or choose another folder with --data"
    )]
    InUse {
        path: String,
        /// Process id of the owner, or `(unknown)`.
        owner: String,
    },
    /// The folder can't be created, or its lock can't be opened.
    #[error("the data folder {path} can't be used")]
    Unusable {
        path: String,
        #[source]
        source: io::Error,
    },
    /// The folder or an entry belongs to another user, who could change its content.
    #[error(
        "{path} belongs to user {owner}, but this process runs as user {user}: choose another folder with --data"
    )]
    ForeignOwner {
        /// Folder, or an entry in it.
        path: String,
        /// User id of the owner.
        owner: u32,
        /// Effective user id of this process.
        user: u32,
    },
    /// Other users have access to the folder.
    #[error("{path} has mode {mode:04o}, which gives other users access: chmod {wanted} {path}")]
    AccessibleToOthers {
        path: String,
        /// Current permission bits.
        mode: u32,
        /// Sufficient mode, for `chmod`.
        wanted: &'static str,
    },
    /// The path has the wrong file type, such as a link.
    #[error("{path} is {kind}: expected {wanted}; choose another folder with --data")]
    WrongType {
        /// Folder, or an entry in it.
        path: String,
        /// Actual file type.
        kind: &'static str,
        /// Required file type.
        wanted: &'static str,
    },
    /// A scratch folder was requested, but this folder has content and no marker.
    #[error(
        "the data folder {path} contains {found} and is not a scratch folder: move its content away, or pass it with \
         --data to keep the content"
    )]
    NotScratch {
        path: String,
        /// Name of an entry in the folder.
        found: String,
    },
}

impl Folder {
    /// Takes ownership of a folder and keeps its content. A missing folder is created for this user alone.
    ///
    /// # Errors
    ///
    /// Returns an error if another process owns the folder, the folder can't be created, the folder belongs
    /// to another user, or other users may write to it.
    pub fn own(path: &Path) -> Result<Self, FolderError> {
        let held = hold(path, OTHERS_WRITE)?;
        // The operator named this folder to keep its content, so it stops being a scratch folder.
        match rustix::fs::unlinkat(&held.folder, SCRATCH_MARKER, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(unusable(path)(error.into())),
        }
        Ok(Self { path: path.to_owned(), held: Arc::new(held) })
    }

    /// Takes ownership of a scratch folder, whose content does not outlive its owner: see [`Folder::clear`].
    /// The folder must be closed to all other users. It must be empty, or already marked as a scratch folder.
    ///
    /// # Errors
    /// Returns the same errors as [`Folder::own`], and an error if the folder has content but no marker.
    pub fn scratch(path: &Path) -> Result<Self, FolderError> {
        let mut held = hold(path, OTHERS_ACCESS)?;
        if !is_scratch(&held, path)? {
            if let Some(found) = first_entry(path).map_err(unusable(path))? {
                return Err(FolderError::NotScratch { path: path_text(path), found });
            }
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(&held.folder, SCRATCH_MARKER, flags, private_mode())
                .map_err(|error| unusable(path)(error.into()))?;
        }
        held.scratch = true;
        Ok(Self { path: path.to_owned(), held: Arc::new(held) })
    }

    /// Returns the path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Deletes the files of a cluster from a scratch folder, and nothing else. Does nothing in another
    /// folder.
    ///
    /// # Errors
    /// Returns an error if an entry can't be deleted.
    pub fn clear(&self) -> io::Result<()> {
        if !self.held.scratch {
            return Ok(());
        }
        // Links in these folders are deleted and not followed.
        for name in SCRATCH_FOLDERS {
            removal::remove(&self.path.join(name))?;
        }
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            if name
                .to_str()
                .is_some_and(|name| SCRATCH_FILE_PREFIXES.iter().any(|begin| name.starts_with(begin)))
            {
                rustix::fs::unlinkat(&self.held.folder, &name, AtFlags::empty())?;
            }
        }
        Ok(())
    }

    /// Creates a file in the folder for this user alone, or restricts an existing file to this user. A
    /// program that opens the name later gets this file.
    ///
    /// # Errors
    ///
    /// Returns an error if an existing entry is not a file of this user.
    pub fn private_file(&self, name: &str) -> Result<(), FolderError> {
        open_private(&self.held.folder, &self.path, name).map(drop)
    }
}

impl Drop for OwnedFolder {
    /// Releases the folder. Errors are ignored, because the next owner copes with leftovers.
    fn drop(&mut self) {
        // A folder that is not empty yet keeps its marker, so that the next owner may clear it.
        let ends = self.scratch && is_empty(&self.path);
        if ends {
            rustix::fs::unlinkat(&self.folder, SCRATCH_MARKER, AtFlags::empty()).ok();
        }
        // The lock is still held, so this can't delete the lock file of another owner.
        rustix::fs::unlinkat(&self.folder, LOCK_FILE, AtFlags::empty()).ok();
        if ends {
            rustix::fs::unlinkat(CWD, &self.path, AtFlags::REMOVEDIR).ok();
        }
    }
}

const fn private_mode() -> Mode {
    Mode::RUSR.union(Mode::WUSR)
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

fn unusable(path: &Path) -> impl Fn(io::Error) -> FolderError {
    let path = path_text(path);
    move |source| FolderError::Unusable { path: path.clone(), source }
}

/// Creates the folder if it is missing, checks it, and takes the lock.
fn hold(path: &Path, closed_to: u32) -> Result<OwnedFolder, FolderError> {
    for _ in 0..LOCK_ATTEMPTS {
        let folder = open(path, closed_to)?;
        let mut lock = match open_private(&folder, path, LOCK_FILE) {
            Ok(lock) => lock,
            // The previous owner has just deleted the folder.
            Err(FolderError::Unusable { source, .. }) if source.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(FolderError::InUse { path: path_text(path), owner: read_owner(&mut lock) });
            }
            Err(TryLockError::Error(source)) => return Err(unusable(path)(source)),
        }
        // The previous owner deletes its lock file, and a lock on an unlinked file protects nothing.
        if !is_current_lock(&folder, &lock) {
            continue;
        }
        write_owner(&mut lock).map_err(unusable(path))?;
        // systemd-tmpfiles skips a folder and its content while the folder's descriptor is locked.
        flock(&folder, FlockOperation::LockShared).map_err(|error| unusable(path)(error.into()))?;
        return Ok(OwnedFolder { path: path.to_owned(), folder, _lock: lock, scratch: false });
    }
    Err(unusable(path)(io::Error::other("other processes keep acquiring and releasing it")))
}

/// Opens the folder, creating it if necessary. A link to a folder is an error.
fn open(path: &Path, closed_to: u32) -> Result<OwnedFd, FolderError> {
    let failed = unusable(path);
    match fs::symlink_metadata(path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(path).map_err(&failed)?,
        Err(error) => return Err(failed(error)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(folder) => folder,
        Err(error @ (Errno::NOTDIR | Errno::LOOP)) => {
            let stat = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
            return Err(match stat {
                Ok(stat) => {
                    FolderError::WrongType { path: path_text(path), kind: kind(&stat), wanted: "a folder" }
                }
                Err(_) => failed(error.into()),
            });
        }
        Err(error) => return Err(failed(error.into())),
    };
    let stat = rustix::fs::fstat(&folder).map_err(|error| failed(error.into()))?;
    check_owner(&stat, path)?;
    if stat.st_mode & closed_to != 0 {
        let mode = stat.st_mode & 0o7777;
        return Err(FolderError::AccessibleToOthers { path: path_text(path), mode, wanted: "700" });
    }
    Ok(folder)
}

/// Creates a folder. If another process creates it first, the caller checks that folder.
fn create(path: &Path) -> io::Result<()> {
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

/// Opens or creates a regular file of this user in a folder. The file must have no second hard link. Access
/// by other users is removed.
fn open_private(folder: &OwnedFd, path: &Path, name: &str) -> Result<File, FolderError> {
    let at = path.join(name);
    let failed = unusable(path);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(folder, name, flags, private_mode()) {
        Ok(file) => file,
        Err(error) => {
            let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
            return Err(match stat {
                Ok(stat) if !FileType::from_raw_mode(stat.st_mode).is_file() => {
                    FolderError::WrongType { path: path_text(&at), kind: kind(&stat), wanted: "a file" }
                }
                Ok(_) | Err(_) => failed(error.into()),
            });
        }
    };
    let stat = rustix::fs::fstat(&file).map_err(|error| failed(error.into()))?;
    let wanted = "a file";
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(FolderError::WrongType { path: path_text(&at), kind: kind(&stat), wanted });
    }
    check_owner(&stat, &at)?;
    if stat.st_nlink > 1 {
        return Err(FolderError::WrongType {
            path: path_text(&at),
            kind: "a file with other hard links",
            wanted,
        });
    }
    if stat.st_mode & OTHERS_ACCESS != 0 {
        rustix::fs::fchmod(&file, private_mode()).map_err(|error| failed(error.into()))?;
    }
    Ok(File::from(file))
}

fn check_owner(stat: &Stat, path: &Path) -> Result<(), FolderError> {
    let user = rustix::process::geteuid().as_raw();
    if stat.st_uid == user {
        return Ok(());
    }
    Err(FolderError::ForeignOwner { path: path_text(path), owner: stat.st_uid, user })
}

fn kind(stat: &Stat) -> &'static str {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => "a link",
        FileType::Directory => "a folder",
        FileType::RegularFile => "a file",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "an entry of unknown type",
    }
}

/// Returns the name of an entry other than the lock and the marker, or `None` if there is no such entry.
fn first_entry(path: &Path) -> io::Result<Option<String>> {
    for name in fs::read_dir(path)? {
        let name = name?.file_name();
        if name != LOCK_FILE && name != SCRATCH_MARKER {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

fn is_empty(path: &Path) -> bool {
    first_entry(path).is_ok_and(|found| found.is_none())
}

/// Returns `true` if the folder has the marker of a scratch folder.
fn is_scratch(held: &OwnedFolder, path: &Path) -> Result<bool, FolderError> {
    match rustix::fs::statat(&held.folder, SCRATCH_MARKER, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => {
            check_owner(&stat, &path.join(SCRATCH_MARKER))?;
            Ok(FileType::from_raw_mode(stat.st_mode).is_file())
        }
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(unusable(path)(error.into())),
    }
}

/// Returns `true` if the open lock file is still the one that the folder contains.
fn is_current_lock(folder: &OwnedFd, lock: &File) -> bool {
    let named = rustix::fs::statat(folder, LOCK_FILE, AtFlags::SYMLINK_NOFOLLOW);
    let held = rustix::fs::fstat(lock);
    matches!((named, held), (Ok(named), Ok(held)) if (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino))
}

/// Writes the id of this process into the lock file. The error message of another process shows this id.
fn write_owner(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    write!(lock, "{}", std::process::id())
}

/// Returns the process id in the lock file. It is used only in a message, so an unreadable file is not an
/// error.
fn read_owner(lock: &mut File) -> String {
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
    fn second_owner_is_refused_and_last_drop_removes_lock() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("a/b");
        let first = Folder::own(&path).unwrap();
        let again = first.clone();
        let second = Folder::own(&path).unwrap_err();
        let told = format!("is in use by process {}", std::process::id());
        assert!(second.to_string().contains(&told), "{second}");
        assert_eq!((mode(&path), mode(&path.join(LOCK_FILE))), (0o700, 0o600));
        drop(first);
        assert!(matches!(Folder::own(&path), Err(FolderError::InUse { .. })));
        drop(again);
        assert_eq!(names(&path), Vec::<String>::new());
        Folder::own(&path).unwrap();
    }

    #[test]
    fn stale_lock_of_killed_owner_is_taken_over() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join(LOCK_FILE), "1").unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let folder = Folder::own(base.path()).unwrap();
        assert_eq!(mode(&base.path().join(LOCK_FILE)), 0o600);
        drop(folder);
        assert_eq!(names(base.path()), Vec::<String>::new());
    }

    #[test]
    fn folder_accessible_to_others_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("open");
        fs::create_dir(&path).unwrap();
        for (bits, kept, scratch) in
            [(0o777, false, false), (0o770, false, false), (0o755, true, false), (0o700, true, true)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
            let refused = |folder: Result<Folder, FolderError>| match folder {
                Ok(_) => true,
                Err(FolderError::AccessibleToOthers { mode, .. }) => {
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

    /// Returns a folder of another user. Only root can change an owner, so other users get `/`, which belongs
    /// to root.
    fn folder_of_another_user(base: &Path) -> PathBuf {
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
    fn folder_of_another_user_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = folder_of_another_user(base.path());
        let before = names(&path);
        for refused in [Folder::own(&path), Folder::scratch(&path)] {
            assert!(matches!(refused, Err(FolderError::ForeignOwner { .. })), "{refused:?}");
        }
        assert_eq!(names(&path), before, "nothing is created in the folder");
    }

    #[test]
    fn link_to_folder_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let (real, link) = (base.path().join("real"), base.path().join("link"));
        fs::create_dir(&real).unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&real, &link).unwrap();
        for refused in [Folder::own(&link), Folder::scratch(&link)] {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("is a link"), "{text}");
        }
        // A dangling link is refused as well, and its target is not created.
        let dangling = base.path().join("dangling");
        symlink(base.path().join("nowhere"), &dangling).unwrap();
        assert!(Folder::own(&dangling).unwrap_err().to_string().contains("is a link"));
        assert!(!base.path().join("nowhere").exists());
        assert_eq!(names(&real), Vec::<String>::new());
    }

    #[test]
    fn linked_lock_is_refused_and_target_is_unchanged() {
        let base = tempfile::tempdir().unwrap();
        let (path, target) = (base.path().join("data"), base.path().join("precious"));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(&target, "precious").unwrap();
        symlink(&target, path.join(LOCK_FILE)).unwrap();
        let text = Folder::own(&path).unwrap_err().to_string();
        assert!(text.contains("owner.lock is a link"), "{text}");
        fs::remove_file(path.join(LOCK_FILE)).unwrap();
        fs::hard_link(&target, path.join(LOCK_FILE)).unwrap();
        let text = Folder::own(&path).unwrap_err().to_string();
        assert!(text.contains("other hard links"), "{text}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }

    #[test]
    fn private_file_restricts_mode_and_refuses_link() {
        let base = tempfile::tempdir().unwrap();
        let folder = Folder::own(&base.path().join("data")).unwrap();
        // systemd-tmpfiles skips a folder that it can't lock.
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
    fn only_scratch_folder_is_cleared() {
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
        // An owner that exits before it clears the folder leaves the content to the next owner.
        drop(scratch);
        let scratch = Folder::scratch(&path).unwrap();
        scratch.clear().unwrap();
        assert_eq!(names(&path), [SCRATCH_MARKER, LOCK_FILE]);
        assert_eq!(names(&precious), ["file"]);
        drop(scratch);
        assert!(!path.exists(), "the scratch folder is removed");

        // A kept folder is never emptied, even at the path of a former scratch folder.
        let kept = Folder::own(&path).unwrap();
        leave(&path);
        kept.clear().unwrap();
        drop(kept);
        let before = names(&path);
        assert_eq!(before, ["cells", "journal.db", "journal.db-wal", "past"]);
        let text = Folder::scratch(&path).unwrap_err().to_string();
        assert!(text.contains("is not a scratch folder"), "{text}");
        assert_eq!(names(&path), before);
    }
}
