//! Access to the files of a tree through a descriptor of its root. No symbolic link leads out of the tree,
//! neither an unpacked one nor one that changes during the access.

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

/// Tree of files that is being built.
#[derive(Debug)]
pub(crate) struct Files {
    top: OwnedFd,
    first_id: Option<u32>,
}

/// Resolved location of an entry: its folder and its name.
pub(crate) struct At {
    folder: OwnedFd,
    pub(crate) name: String,
}

impl Files {
    pub(crate) fn open(top: &Path, first_id: Option<u32>) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { top: rustix::fs::open(top, flags, Mode::empty())?, first_id })
    }

    /// Opens a folder of the tree. It is created with its parents if necessary.
    pub(crate) fn below(&self, path: &Path) -> io::Result<Self> {
        // The placeholder makes every component of `path` a parent, and missing parents are created.
        let top = self.at(&path.join("_"))?.folder;
        Ok(Self { top, first_id: self.first_id })
    }

    /// Resolves a path and creates the missing folders on the way.
    pub(crate) fn at(&self, path: &Path) -> io::Result<At> {
        let parts = parts(path)?;
        let Some((name, above)) = parts.split_last() else {
            return Err(io::Error::other("the top of a tree is no file"));
        };
        let mut way = PathBuf::from(".");
        for part in above {
            let folder = self.folder(&way)?;
            match mkdirat(&folder, part.as_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) => {
                    // Set the mode explicitly, since the umask may have reduced it.
                    chmodat(&folder, part.as_str(), Mode::from_raw_mode(0o755), AtFlags::empty())?;
                    self.own(&folder, part, 0, 0)?;
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            way.push(part);
        }
        Ok(At { folder: self.folder(&way)?, name: name.clone() })
    }

    fn folder(&self, way: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(openat2(&self.top, way, flags, Mode::empty(), resolve)?)
    }

    /// Opens an entry without following a symbolic link.
    fn named(&self, at: &At, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        Ok(rustix::fs::openat(
            &at.folder,
            at.name.as_str(),
            flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            mode,
        )?)
    }

    /// Sets the owner of an entry, mapped to ids of the host. Does nothing if the tree belongs to this
    /// program's user.
    fn own(&self, folder: &impl AsFd, name: &str, user: u32, group: u32) -> io::Result<()> {
        let Some(first) = self.first_id else { return Ok(()) };
        let id = |id: u32| first + id.min(crate::ids::IDS - 1);
        let (user, group) = (Uid::from_raw(id(user)), Gid::from_raw(id(group)));
        Ok(rustix::fs::chownat(folder, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Removes an existing entry, except for a folder if `for_folder` is set.
    fn make_room(&self, at: &At, for_folder: bool) -> io::Result<()> {
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
    pub(crate) fn make_folder(&self, at: &At, mode: u32, (user, group): (u32, u32)) -> io::Result<()> {
        self.make_room(at, true)?;
        match mkdirat(&at.folder, at.name.as_str(), Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        self.own(&at.folder, &at.name, user, group)?;
        let folder = self.named(at, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(fchmod(folder, Mode::from_raw_mode(mode))?)
    }

    /// Creates a file, and replaces an existing entry.
    pub(crate) fn make_file(
        &self,
        at: &At,
        mode: u32,
        (user, group): (u32, u32),
        content: &mut impl io::Read,
    ) -> io::Result<()> {
        self.make_room(at, false)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut file = File::from(self.named(at, flags, Mode::RUSR | Mode::WUSR)?);
        io::copy(content, &mut file)?;
        self.own(&at.folder, &at.name, user, group)?;
        Ok(fchmod(&file, Mode::from_raw_mode(mode))?)
    }

    /// Sets the access and modification time of an entry, in seconds since 1970.
    pub(crate) fn date(&self, at: &At, seconds: i64) -> io::Result<()> {
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        Ok(utimensat(&at.folder, at.name.as_str(), &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Sets the permissions of a folder.
    pub(crate) fn permit(&self, at: &At, mode: u32) -> io::Result<()> {
        let folder = self.named(at, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(fchmod(folder, Mode::from_raw_mode(mode))?)
    }

    /// Creates a symbolic link. Its target is unrestricted, since only the container follows it.
    pub(crate) fn make_link(&self, at: &At, to: &Path, (user, group): (u32, u32)) -> io::Result<()> {
        self.make_room(at, false)?;
        symlinkat(to, &at.folder, at.name.as_str())?;
        self.own(&at.folder, &at.name, user, group)
    }

    /// Creates a hard link to a file of the tree.
    pub(crate) fn make_name(&self, at: &At, of: &Path) -> io::Result<()> {
        let other = self.at(of)?;
        self.make_room(at, false)?;
        Ok(linkat(&other.folder, other.name.as_str(), &at.folder, at.name.as_str(), AtFlags::empty())?)
    }

    /// Removes an entry recursively.
    pub(crate) fn remove(&self, at: &At) -> io::Result<()> {
        removal::remove_at(&at.folder, &CString::new(at.name.as_str())?)
    }

    /// Returns the names in a folder.
    pub(crate) fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        names(&self.folder(&Path::new(".").join(relative(path)))?)
    }
}

fn names(folder: &OwnedFd) -> io::Result<Vec<String>> {
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
fn parts(path: &Path) -> io::Result<Vec<String>> {
    let mut parts = vec![];
    for component in path.components() {
        match component {
            Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(io::Error::other(format!("{} leads upwards", path.display())));
            }
        }
    }
    Ok(parts)
}
