//! Images in folders (OCI Image Layout): found, checked, and unpacked once into a folder that containers share.
//!
//! ```text
//!   data/images/<digest>/tree/          the files of the image, with the ids that users of containers have on the host
//!   data/images/<digest>/config.json    what the image says of how it is run
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

use layout::Layout;

use crate::trash::Trash;

pub(crate) use unused::remove_unused;

/// The folder of all of them, in the data folder.
pub(crate) const FOLDER: &str = "images";
/// The folder of those that are being unpacked, in the data folder.
pub(crate) const UNPACKING: &str = "unpacking";
/// What an image's files are in, in its folder.
const TREE: &str = "tree";
/// What an image's folder holds beside them.
const CONFIG: &str = "config.json";
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
}

/// Has the image of a folder be unpacked in the data folder, of the tag that is named or the only one. `first_id` is what
/// root of the image is on the host; none: all of it belongs to this program's user.
pub(crate) fn of(
    data: &Path,
    trash: &Trash,
    folder: &Path,
    tag: Option<&str>,
    first_id: Option<u32>,
) -> io::Result<Image> {
    let layout = Layout::open(folder, tag)?;
    let ids = first_id.map_or_else(|| "own".to_owned(), |first| first.to_string());
    let name = format!("{}-{ids}", &layout.digest()[..DIGITS.min(layout.digest().len())]);
    let home = data.join(FOLDER).join(&name);
    if home.join(CONFIG).exists() {
        unused::touch(&home);
    } else {
        make(data, trash, &name, &layout, first_id)?;
        remove_unused(data, trash);
    }
    let config = ImageConfiguration::from_file(home.join(CONFIG)).map_err(io::Error::other)?;
    let run = config.config().clone().unwrap_or_default();
    Ok(Image {
        tree: home.join(TREE),
        user: run.user().clone().unwrap_or_default(),
        environment: run.env().clone().unwrap_or_default(),
    })
}

/// Unpacks beside the others, and takes its place as a whole: what a crash cuts short is trash.
fn make(data: &Path, trash: &Trash, name: &str, layout: &Layout, first_id: Option<u32>) -> io::Result<()> {
    let (home, new) = (data.join(FOLDER).join(name), data.join(UNPACKING).join(name));
    for old in [&home, &new] {
        trash.add(old)?;
    }
    fs::create_dir_all(data.join(FOLDER))?;
    let made = unpacked(&new, layout, first_id).and_then(|()| fs::rename(&new, &home));
    if made.is_err() {
        trash.add(&new)?;
    }
    made
}

/// Removes what an earlier executor did not finish to unpack.
pub(crate) fn remove_unfinished(data: &Path, trash: &Trash) -> io::Result<()> {
    fs::read_dir(data.join(UNPACKING))?.try_for_each(|entry| trash.add(&entry?.path()))
}

fn unpacked(new: &Path, layout: &Layout, first_id: Option<u32>) -> io::Result<()> {
    fs::create_dir_all(new.join(TREE))?;
    // The root of a container, into which all its users come.
    fs::set_permissions(new.join(TREE), Permissions::from_mode(0o755))?;
    unpack::layers(layout, &new.join(TREE), first_id)?;
    fs::write(new.join(CONFIG), layout.config()?)
}
