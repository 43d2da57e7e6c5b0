//! Images in folders (OCI Image Layout): found, checked, and unpacked once into a folder that containers share.
//!
//! ```text
//!   data/images/<digest>-<domain>/tree/          the files of the image, with the ids that users of its containers have on the host
//!   data/images/<digest>-<domain>/first-id       the first of those ids, unless all of it belongs to the rep's user
//!   data/images/<digest>-<domain>/config.json    what the image says of how it is run
//! ```
//!
//! An image that no container uses any more is kept for a while (`unused.rs`).
//!
//! All layers of an image go into one folder, what a later layer removes is removed, and nothing of an image can be written
//! outside of it, whatever links it holds.

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

/// The folder of all of them, in the data folder.
pub(crate) const FOLDER: &str = "images";
/// The folder of those that are being unpacked, in the data folder.
pub(crate) const UNPACKING: &str = "unpacking";
/// What an image's files are in, in its folder.
const TREE: &str = "tree";
/// What an image's folder holds beside them.
const CONFIG: &str = "config.json";
const FIRST_ID: &str = "first-id";
/// Digits of an image's digest that its folder is named by: an overlay has room for so much.
const DIGITS: usize = 32;

/// An image that is unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// Its files.
    pub(crate) tree: PathBuf,
    /// Who runs its programs; empty: nobody is named.
    pub(crate) user: String,
    /// Environment of its programs, as `NAME=value`.
    pub(crate) environment: Vec<String>,
    /// The first id of the host that its users have; `None` if they are this program's user.
    pub(crate) first_id: Option<u32>,
}

/// The unpacked images of a data folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Images<'a> {
    pub(crate) data: &'a Path,
    pub(crate) trash: &'a Trash,
    /// Where the ids of their files come from; `None` if all files belong to this program's user.
    pub(crate) ids: Option<&'a Ids>,
}

impl Images<'_> {
    /// Has the image of a folder be unpacked, of the tag that is named or the only one. The containers of a domain that run the
    /// same image share its files and so its ids; those of another domain have others.
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

    /// Unpacks beside the others, and takes its place as a whole: what a crash cuts short is trash.
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

    /// Adopts the ids of the images that an earlier executor unpacked, and removes those that it did not finish.
    pub(crate) fn adopt(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.data.join(UNPACKING))? {
            self.trash.add(&entry?.path())?;
        }
        let Some(ids) = self.ids else { return Ok(()) };
        for home in unused::homes(self.data)? {
            match first_id(&home) {
                Ok(first) => ids.adopt(first),
                // One that belongs to this program's user alone.
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

/// The first id of the host that the users of an image have.
fn first_id(home: &Path) -> io::Result<u32> {
    fs::read_to_string(home.join(FIRST_ID))?.trim().parse().map_err(io::Error::other)
}

fn unpacked(new: &Path, layout: &Layout, first_id: Option<u32>) -> io::Result<()> {
    fs::create_dir_all(new.join(TREE))?;
    // The root of a container, into which all its users come.
    fs::set_permissions(new.join(TREE), Permissions::from_mode(0o755))?;
    unpack::layers(layout, &new.join(TREE), first_id)?;
    if let Some(first_id) = first_id {
        fs::write(new.join(FIRST_ID), first_id.to_string())?;
    }
    fs::write(new.join(CONFIG), layout.config()?)
}
