//! Images in folders (OCI Image Layout). An image is verified and unpacked once, into a folder that
//! containers share.
//!
//! ```text
//!   data/images/<digest>-<domain>/tree/          the files of the image, owned by the host ids of its containers' users
//!   data/images/<digest>-<domain>/first-id       the first of those ids; absent if the rep's user owns all files
//!   data/images/<digest>-<domain>/config.json    the image configuration
//! ```
//!
//! An image that no container uses is kept for a while (`unused.rs`).
//!
//! All layers of an image are unpacked into one folder, and files that a later layer removes are deleted. No
//! link in an image can cause a write outside that folder.

pub(crate) mod files;
mod layout;
mod unpack;
mod unused;
mod zstd;

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use oci_spec::image::ImageConfiguration;
use schemas::names::Domain;

use layout::Layout;

use crate::ids::Ids;
use crate::process::fnv;
use crate::trash::Trash;

/// Folder of the unpacked images, in the data folder.
pub(crate) const FOLDER: &str = "images";
/// Folder of the images that are being unpacked, in the data folder.
pub(crate) const UNPACKING: &str = "unpacking";
/// Folder of the image's files, in the image's folder.
const TREE: &str = "tree";
/// Other files in the image's folder.
const CONFIG: &str = "config.json";
const FIRST_ID: &str = "first-id";
/// Number of digits of the digest in the name of an image's folder. An overlay mount limits the length of its
/// paths.
const DIGITS: usize = 32;

/// Unpacked image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) tree: PathBuf,
    /// User that runs its programs. Empty if the image names none.
    pub(crate) user: String,
    /// Environment of its programs, as `NAME=value`.
    pub(crate) environment: Vec<String>,
    /// First host id of its users. `None` if the files belong to this program's user.
    pub(crate) first_id: Option<u32>,
}

/// Unpacked images of a data folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Images<'a> {
    pub(crate) data: &'a Path,
    pub(crate) trash: &'a Trash,
    /// Allocator for the ids of the files. `None` if all files belong to this program's user.
    pub(crate) ids: Option<&'a Ids>,
}

impl Images<'_> {
    /// Returns the unpacked image of a folder, by its tag or the only one, and unpacks it if necessary.
    /// Containers of one domain share the files and ids of an image. Other domains get a copy with other ids.
    pub(crate) fn of(&self, folder: &Path, tag: Option<&str>, domain: &Domain) -> io::Result<Image> {
        let layout = Layout::open(folder, tag)?;
        let owner = self.ids.map_or_else(|| "own".to_owned(), |_| format!("{:016x}", fnv(domain.as_str())));
        let name = format!("{}-{owner}", &layout.digest()[..DIGITS.min(layout.digest().len())]);
        let home = self.data.join(FOLDER).join(&name);
        if home.join(CONFIG).exists() {
            unused::touch(&home);
        } else {
            self.make(&name, &layout)?;
            self.remove_unused();
        }
        let config = ImageConfiguration::from_file(home.join(CONFIG)).map_err(io::Error::other)?;
        let run = config.config().clone().unwrap_or_default();
        Ok(Image {
            tree: home.join(TREE),
            user: run.user().clone().unwrap_or_default(),
            environment: run.env().clone().unwrap_or_default(),
            first_id: self.ids.map(|_| first_id(&home)).transpose()?,
        })
    }

    /// Unpacks into a temporary folder and renames it, so a crash never leaves an incomplete image.
    fn make(&self, name: &str, layout: &Layout) -> io::Result<()> {
        let (home, new) = (self.data.join(FOLDER).join(name), self.data.join(UNPACKING).join(name));
        for old in [&home, &new] {
            self.trash.add(old)?;
        }
        fs::create_dir_all(self.data.join(FOLDER))?;
        let first_id = self.ids.map(Ids::take).transpose()?;
        let made = unpacked(&new, layout, first_id).and_then(|()| fs::rename(&new, &home));
        if made.is_err() {
            self.trash.add(&new)?;
            self.ids.zip(first_id).into_iter().for_each(|(ids, first)| ids.release(first));
        }
        made
    }

    /// Adopts the ids of the images that an earlier executor unpacked, and removes those that it did not
    /// finish.
    pub(crate) fn adopt(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.data.join(UNPACKING))? {
            self.trash.add(&entry?.path())?;
        }
        let Some(ids) = self.ids else { return Ok(()) };
        for home in unused::homes(self.data)? {
            match first_id(&home) {
                Ok(first) => ids.adopt(first),
                // An image whose files belong to this program's user.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes an image that no container uses.
    fn remove(&self, home: &Path) -> io::Result<()> {
        let first = self.ids.map(|ids| (ids, first_id(home)));
        self.trash.add(home)?;
        if let Some((ids, Ok(first))) = first {
            ids.release(first);
        }
        Ok(())
    }
}

/// Reads the first host id of an image's users.
fn first_id(home: &Path) -> io::Result<u32> {
    fs::read_to_string(home.join(FIRST_ID))?.trim().parse().map_err(io::Error::other)
}

fn unpacked(new: &Path, layout: &Layout, first_id: Option<u32>) -> io::Result<()> {
    fs::create_dir_all(new.join(TREE))?;
    // The root of a container must be accessible to all its users.
    fs::set_permissions(new.join(TREE), Permissions::from_mode(0o755))?;
    unpack::layers(layout, &new.join(TREE), first_id)?;
    if let Some(first_id) = first_id {
        fs::write(new.join(FIRST_ID), first_id.to_string())?;
    }
    fs::write(new.join(CONFIG), layout.config()?)
}
