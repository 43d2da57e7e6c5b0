//! Access to the files of a folder tree through a descriptor of its root folder. No symbolic link leads out
//! of the tree, not even an unpacked link or a link that changes during the access.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, chmodat, fchmod,
    linkat, mkdirat, openat2, statat, symlinkat, utimensat,
};
use rustix::io::Errno;

/// Tree of files under construction.
#[derive(Debug)]
pub(crate) struct FileTree {
    top: OwnedFd,
    first_id: Option<u32>,
}

/// Resolved location of an entry: the open folder that contains the entry, and the entry's name.
pub(crate) struct EntryPath {
    folder: OwnedFd,
    pub(crate) name: String,
}

impl FileTree {
    pub(crate) fn open(top: &Path, first_id: Option<u32>) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { top: rustix::fs::open(top, flags, Mode::empty())?, first_id })
    }

    /// Opens a folder of the tree. Creates the folder and its parents if necessary.
    pub(crate) fn open_subtree(&self, path: &Path) -> io::Result<Self> {
        // With the placeholder as the last component, every component of `path` is a parent. `resolve`
        // creates missing parents.
        let top = self.resolve(&path.join("_"))?.folder;
        Ok(Self { top, first_id: self.first_id })
    }

    /// Resolves a path. Creates missing parent folders.
    pub(crate) fn resolve(&self, path: &Path) -> io::Result<EntryPath> {
        let parts = components(path)?;
        let Some((name, above)) = parts.split_last() else {
            return Err(io::Error::other("invalid path: it names the root of the tree"));
        };
        let mut way = PathBuf::from(".");
        for part in above {
            let folder = self.open_folder(&way)?;
            match mkdirat(&folder, part.as_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) => {
                    // Set the mode explicitly, since the umask may have reduced it.
                    chmodat(&folder, part.as_str(), Mode::from_raw_mode(0o755), AtFlags::empty())?;
                    self.set_owner(&folder, part, 0, 0)?;
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            way.push(part);
        }
        Ok(EntryPath { folder: self.open_folder(&way)?, name: name.clone() })
    }

    fn open_folder(&self, way: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(openat2(&self.top, way, flags, Mode::empty(), resolve)?)
    }

    /// Opens an entry without following a symbolic link.
    fn open_entry(&self, at: &EntryPath, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        Ok(rustix::fs::openat(
            &at.folder,
            at.name.as_str(),
            flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            mode,
        )?)
    }

    /// Sets the owner of an entry. The owner's ids are first mapped to ids of the host. Does nothing if the
    /// tree belongs to the user of this program.
    fn set_owner(&self, folder: &impl AsFd, name: &str, user: u32, group: u32) -> io::Result<()> {
        let Some(first) = self.first_id else { return Ok(()) };
        let id = |id: u32| first + id.min(crate::ids::RANGE_LEN - 1);
        let (user, group) = (Uid::from_raw(id(user)), Gid::from_raw(id(group)));
        Ok(rustix::fs::chownat(folder, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Removes an existing entry. If `for_folder` is `true`, a folder is not removed.
    fn remove_existing(&self, at: &EntryPath, for_folder: bool) -> io::Result<()> {
        match statat(&at.folder, at.name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory && for_folder => {
                Ok(())
            }
            Ok(_) => self.remove(at),
        }
    }

    /// Creates a folder, or updates the owner and mode of an existing one.
    pub(crate) fn make_folder(&self, at: &EntryPath, mode: u32, (user, group): (u32, u32)) -> io::Result<()> {
        self.remove_existing(at, true)?;
        match mkdirat(&at.folder, at.name.as_str(), Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        self.set_owner(&at.folder, &at.name, user, group)?;
        let folder = self.open_entry(at, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(fchmod(folder, Mode::from_raw_mode(mode))?)
    }

    /// Creates a file. Replaces an existing entry.
    pub(crate) fn make_file(
        &self,
        at: &EntryPath,
        mode: u32,
        (user, group): (u32, u32),
        content: &mut impl io::Read,
    ) -> io::Result<()> {
        self.remove_existing(at, false)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut file = File::from(self.open_entry(at, flags, Mode::RUSR | Mode::WUSR)?);
        io::copy(content, &mut file)?;
        self.set_owner(&at.folder, &at.name, user, group)?;
        Ok(fchmod(&file, Mode::from_raw_mode(mode))?)
    }

    /// Sets the access and modification time of an entry, in seconds since 1970.
    pub(crate) fn set_times(&self, at: &EntryPath, seconds: i64) -> io::Result<()> {
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        Ok(utimensat(&at.folder, at.name.as_str(), &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Sets the permissions of a folder.
    pub(crate) fn set_folder_mode(&self, at: &EntryPath, mode: u32) -> io::Result<()> {
        let folder = self.open_entry(at, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(fchmod(folder, Mode::from_raw_mode(mode))?)
    }

    /// Creates a symbolic link. The target of the link is not restricted, because only programs of the
    /// container follow the link.
    pub(crate) fn make_symlink(
        &self,
        at: &EntryPath,
        to: &Path,
        (user, group): (u32, u32),
    ) -> io::Result<()> {
        self.remove_existing(at, false)?;
        symlinkat(to, &at.folder, at.name.as_str())?;
        self.set_owner(&at.folder, &at.name, user, group)
    }

    /// Creates a hard link to a file of the tree.
    pub(crate) fn make_hard_link(&self, at: &EntryPath, of: &Path) -> io::Result<()> {
        let other = self.resolve(of)?;
        self.remove_existing(at, false)?;
        Ok(linkat(&other.folder, other.name.as_str(), &at.folder, at.name.as_str(), AtFlags::empty())?)
    }

    /// Removes an entry recursively.
    pub(crate) fn remove(&self, at: &EntryPath) -> io::Result<()> {
        removal::remove_at(&at.folder, &CString::new(at.name.as_str())?)
    }

    /// Returns the names in a folder.
    pub(crate) fn folder_names(&self, path: &Path) -> io::Result<Vec<String>> {
        read_names(&self.open_folder(&Path::new(".").join(relative(path)))?)
    }
}

fn read_names(folder: &OwnedFd) -> io::Result<Vec<String>> {
    let mut names = vec![];
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Returns the components of a path, from the root of the tree.
fn components(path: &Path) -> io::Result<Vec<String>> {
    let mut parts = vec![];
    for component in path.components() {
        match component {
            Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(io::Error::other(format!("invalid path {}: .. is not allowed", path.display())));
            }
        }
    }
    Ok(parts)
}
