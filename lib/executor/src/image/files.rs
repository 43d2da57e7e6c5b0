//! The files of a tree, reached through a descriptor of its top: no link leads out of it, neither one that was unpacked nor
//! one that is being followed.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, fchmod, linkat, mkdirat, openat2, statat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;

/// A tree that is being made.
#[derive(Debug)]
pub(super) struct Files {
    top: OwnedFd,
    first_id: Option<u32>,
}

/// What a path of an archive names: a name in a folder.
pub(super) struct At {
    folder: OwnedFd,
    pub(super) name: String,
}

impl Files {
    pub(super) fn open(top: &Path, first_id: Option<u32>) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { top: rustix::fs::open(top, flags, Mode::empty())?, first_id })
    }

    /// Where a path leads, with the folders on the way, which are made if there are none.
    pub(super) fn at(&self, path: &Path) -> io::Result<At> {
        let parts = parts(path)?;
        let Some((name, above)) = parts.split_last() else {
            return Err(io::Error::other("the top of an image is no file"));
        };
        let mut way = PathBuf::from(".");
        for part in above {
            let folder = self.folder(&way)?;
            match mkdirat(&folder, part.as_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) => {
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

    /// Opens what a path names, without following a last link.
    fn named(&self, at: &At, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        Ok(rustix::fs::openat(
            &at.folder,
            at.name.as_str(),
            flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            mode,
        )?)
    }

    /// Gives a file to who has it in the image.
    fn own(&self, folder: &impl AsFd, name: &str, user: u32, group: u32) -> io::Result<()> {
        let Some(first) = self.first_id else { return Ok(()) };
        let id = |id: u32| first + id.min(crate::isolation::IDS - 1);
        let (user, group) = (Uid::from_raw(id(user)), Gid::from_raw(id(group)));
        Ok(rustix::fs::chownat(folder, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Removes what is there, but for a folder where a folder is to be.
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

    /// Makes a folder, or has one that is there be so.
    pub(super) fn make_folder(&self, at: &At, mode: u32, (user, group): (u32, u32)) -> io::Result<()> {
        self.make_room(at, true)?;
        match mkdirat(&at.folder, at.name.as_str(), Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        self.own(&at.folder, &at.name, user, group)?;
        let folder = self.named(at, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(fchmod(folder, Mode::from_raw_mode(mode))?)
    }

    /// Makes a file.
    pub(super) fn make_file(
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

    /// Makes a link that may lead anywhere: it is followed in a container alone.
    pub(super) fn make_link(&self, at: &At, to: &Path, (user, group): (u32, u32)) -> io::Result<()> {
        self.make_room(at, false)?;
        symlinkat(to, &at.folder, at.name.as_str())?;
        self.own(&at.folder, &at.name, user, group)
    }

    /// Makes another name for a file.
    pub(super) fn make_name(&self, at: &At, of: &Path) -> io::Result<()> {
        let other = self.at(of)?;
        self.make_room(at, false)?;
        Ok(linkat(&other.folder, other.name.as_str(), &at.folder, at.name.as_str(), AtFlags::empty())?)
    }

    /// Removes what a path names, with all below it.
    pub(super) fn remove(&self, at: &At) -> io::Result<()> {
        match unlinkat(&at.folder, at.name.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        let folder = self.named(at, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        for name in names(&folder)? {
            self.remove(&At { folder: folder.try_clone()?, name })?;
        }
        Ok(unlinkat(&at.folder, at.name.as_str(), AtFlags::REMOVEDIR)?)
    }

    /// The names in a folder.
    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<String>> {
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

/// The names that a path has, from the top.
fn parts(path: &Path) -> io::Result<Vec<String>> {
    let mut parts = vec![];
    for component in path.components() {
        match component {
            Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(io::Error::other(format!("{} leads out of the image", path.display())));
            }
        }
    }
    Ok(parts)
}
