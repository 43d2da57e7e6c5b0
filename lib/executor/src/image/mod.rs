//! Images in folders (OCI Image Layout). An image is verified and unpacked once, into a folder that
//! containers share.
//!
//! ```text
//!   data/images/<digest>-<domain>/tree/          the files of the image, owned by the host ids of its containers' users
//!   data/images/<digest>-<domain>/first-id       the first of those ids; absent if the rep's user owns all files
//!   data/images/<digest>-<domain>/config.json    the image configuration
//! ```
//!
//! An unused image is kept for a limited time (`unused.rs`).
//!
//! All layers of an image are unpacked into one folder. If a later layer removes a file, the file is deleted.
//! No link in an image can cause a write outside that folder.

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
use crate::process::fnv1a;
use crate::trash::Trash;

/// Name of the folder with the unpacked images, in the data folder.
pub(crate) const IMAGES_DIR: &str = "images";
/// Name of the folder with the images that are being unpacked, in the data folder.
pub(crate) const UNPACKING_DIR: &str = "unpacking";
/// Name of the folder with the image's files, in the folder of the image.
const TREE_DIR: &str = "tree";
/// Other files in the image's folder.
const CONFIG_FILE: &str = "config.json";
const FIRST_ID_FILE: &str = "first-id";
/// Number of digits of the digest in the name of an image's folder. The number is small, because an overlay
/// mount limits the length of its paths.
const DIGEST_DIGITS: usize = 32;

/// Unpacked image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) tree: PathBuf,
    /// User that runs the programs of the image. Empty if the image names no user.
    pub(crate) user: String,
    /// Environment variables of the programs of the image, as `NAME=value`.
    pub(crate) environment: Vec<String>,
    /// First host id of the image's users. `None` if the files belong to this program's user.
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
    /// Returns the unpacked image of a folder, and unpacks the image if necessary. If the folder contains
    /// several images, `tag` and this platform select one. Containers of one domain share the files and ids
    /// of an image. Containers of other domains use a copy with different ids.
    pub(crate) fn get_or_unpack(
        &self,
        folder: &Path,
        tag: Option<&str>,
        domain: &Domain,
    ) -> io::Result<Image> {
        let layout = Layout::open(folder, tag)?;
        let owner = self.ids.map_or_else(|| "own".to_owned(), |_| format!("{:016x}", fnv1a(domain.as_str())));
        let name = format!("{}-{owner}", &layout.digest()[..DIGEST_DIGITS.min(layout.digest().len())]);
        let home = self.data.join(IMAGES_DIR).join(&name);
        if home.join(CONFIG_FILE).exists() {
            unused::touch(&home);
        } else {
            self.unpack_image(&name, &layout)?;
            self.remove_unused();
        }
        let config = ImageConfiguration::from_file(home.join(CONFIG_FILE)).map_err(io::Error::other)?;
        let run = config.config().clone().unwrap_or_default();
        Ok(Image {
            tree: home.join(TREE_DIR),
            user: run.user().clone().unwrap_or_default(),
            environment: run.env().clone().unwrap_or_default(),
            first_id: self.ids.map(|_| read_first_id(&home)).transpose()?,
        })
    }

    /// Unpacks an image into a temporary folder and renames the folder. So a crash never leaves an incomplete
    /// image.
    fn unpack_image(&self, name: &str, layout: &Layout) -> io::Result<()> {
        let (home, new) = (self.data.join(IMAGES_DIR).join(name), self.data.join(UNPACKING_DIR).join(name));
        for old in [&home, &new] {
            self.trash.add(old)?;
        }
        fs::create_dir_all(self.data.join(IMAGES_DIR))?;
        let first_id = self.ids.map(Ids::allocate_range).transpose()?;
        let made = unpack_into(&new, layout, first_id).and_then(|()| fs::rename(&new, &home));
        if made.is_err() {
            self.trash.add(&new)?;
            self.ids.zip(first_id).into_iter().for_each(|(ids, first)| ids.release(first));
        }
        made
    }

    /// Marks the id ranges of the images of an earlier executor as allocated. Removes the images that the
    /// earlier executor did not finish unpacking.
    pub(crate) fn adopt(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.data.join(UNPACKING_DIR))? {
            self.trash.add(&entry?.path())?;
        }
        let Some(ids) = self.ids else { return Ok(()) };
        for home in unused::image_folders(self.data)? {
            match read_first_id(&home) {
                Ok(first) => ids.adopt(first),
                // The files of this image belong to this program's user.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes an image that no container uses.
    fn remove(&self, home: &Path) -> io::Result<()> {
        let first = self.ids.map(|ids| (ids, read_first_id(home)));
        self.trash.add(home)?;
        if let Some((ids, Ok(first))) = first {
            ids.release(first);
        }
        Ok(())
    }
}

/// Reads the first host id of an image's users.
fn read_first_id(home: &Path) -> io::Result<u32> {
    fs::read_to_string(home.join(FIRST_ID_FILE))?.trim().parse().map_err(io::Error::other)
}

fn unpack_into(new: &Path, layout: &Layout, first_id: Option<u32>) -> io::Result<()> {
    fs::create_dir_all(new.join(TREE_DIR))?;
    // The root of a container must be accessible to all its users.
    fs::set_permissions(new.join(TREE_DIR), Permissions::from_mode(0o755))?;
    unpack::unpack_layers(layout, &new.join(TREE_DIR), first_id)?;
    if let Some(first_id) = first_id {
        fs::write(new.join(FIRST_ID_FILE), first_id.to_string())?;
    }
    fs::write(new.join(CONFIG_FILE), layout.config()?)
}
