//! Unpacking of the layers of an image, one over the other, into one tree.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use oci_spec::image::{Descriptor, MediaType};
use tar::{Archive, Entry};

use super::files::Files;
use super::layout::Layout;
use super::zstd::Frames;

/// Name prefix of an entry that removes a file of a lower layer (OCI Image Layer Specification, "Whiteouts").
const REMOVED: &str = ".wh.";
/// Name of an entry that removes everything lower layers have in its folder.
const ALL_REMOVED: &str = ".wh..wh..opq";
/// Maximum unpacked size of an image in bytes.
const IMAGE_BYTES: u64 = 16 * 1024 * 1024 * 1024;
/// Maximum number of files of an image.
const IMAGE_FILES: u64 = 1_000_000;

/// Verifies and unpacks all layers.
pub(super) fn layers(layout: &Layout, tree: &Path, first_id: Option<u32>) -> io::Result<()> {
    let files = Files::open(tree, first_id)?;
    let mut room = Room { bytes: IMAGE_BYTES, files: IMAGE_FILES };
    for layer in layout.layers() {
        layout.check(layer)?;
        let named = |error: io::Error| io::Error::other(format!("layer {}: {error}", layer.digest()));
        let opened = opened(layout.open_layer(layer)?, layer).map_err(named)?;
        unpack(opened, &files, &mut room).map_err(named)?;
    }
    Ok(())
}

/// Remaining budget of bytes and files.
struct Room {
    bytes: u64,
    files: u64,
}

impl Room {
    fn take(&mut self, bytes: u64) -> io::Result<()> {
        let left = self.bytes.checked_sub(bytes).zip(self.files.checked_sub(1));
        let (bytes, files) = left.ok_or_else(|| {
            io::Error::other(format!("the image is larger than {IMAGE_BYTES} bytes or {IMAGE_FILES} files"))
        })?;
        (self.bytes, self.files) = (bytes, files);
        Ok(())
    }
}

fn opened(file: File, layer: &Descriptor) -> io::Result<Box<dyn Read>> {
    let file = BufReader::new(file);
    match layer.media_type() {
        MediaType::ImageLayer | MediaType::ImageLayerNonDistributable => Ok(Box::new(file)),
        MediaType::ImageLayerGzip | MediaType::ImageLayerNonDistributableGzip => {
            Ok(Box::new(GzDecoder::new(file)))
        }
        MediaType::ImageLayerZstd | MediaType::ImageLayerNonDistributableZstd => {
            Ok(Box::new(Frames::new(file)))
        }
        MediaType::Other(kind) if kind.ends_with("tar.gzip") => Ok(Box::new(GzDecoder::new(file))),
        other @ (MediaType::Descriptor
        | MediaType::LayoutHeader
        | MediaType::ImageManifest
        | MediaType::ImageIndex
        | MediaType::ImageConfig
        | MediaType::ArtifactManifest
        | MediaType::EmptyJSON
        | MediaType::Other(_)) => Err(io::Error::other(format!(
            "{other} is not supported: use layers as tar, or tar with gzip or zstd"
        ))),
    }
}

fn unpack(layer: impl Read, files: &Files, room: &mut Room) -> io::Result<()> {
    let mut added = BTreeSet::new();
    for entry in Archive::new(layer).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let what = |error: io::Error| io::Error::other(format!("{}: {error}", path.display()));
        room.take(entry.size())?;
        one(&mut entry, &path, files, &mut added).map_err(what)?;
    }
    Ok(())
}

/// Unpacks one entry, or removes entries of lower layers.
fn one(
    entry: &mut Entry<'_, impl Read>,
    path: &Path,
    files: &Files,
    added: &mut BTreeSet<PathBuf>,
) -> io::Result<()> {
    let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else { return Ok(()) };
    let above = path.parent().unwrap_or(Path::new(""));
    if name == ALL_REMOVED {
        for name in files.list(above)? {
            let of_before = above.join(&name);
            // Entries of this layer stay, regardless of their order in it.
            if !added.iter().any(|own| own.starts_with(&of_before)) {
                files.remove(&files.at(&of_before)?)?;
            }
        }
        return Ok(());
    }
    if let Some(removed) = name.strip_prefix(REMOVED) {
        return files.remove(&files.at(&above.join(removed))?);
    }
    let header = entry.header();
    let mode = header.mode()? & 0o7777;
    let owner = (small(header.uid()?), small(header.gid()?));
    let at = files.at(path)?;
    let kind = header.entry_type();
    if kind.is_dir() {
        files.make_folder(&at, mode, owner)?;
    } else if kind.is_file() || kind.is_contiguous() || kind.is_gnu_sparse() {
        files.make_file(&at, mode, owner, entry)?;
    } else if kind.is_symlink() {
        files.make_link(&at, &target(entry)?, owner)?;
    } else if kind.is_hard_link() {
        files.make_name(&at, &target(entry)?)?;
    } else {
        // Devices and pipes are skipped, since every container has its own.
        return Ok(());
    }
    added.insert(path.to_owned());
    Ok(())
}

fn target(entry: &Entry<'_, impl Read>) -> io::Result<PathBuf> {
    let target = entry.link_name()?.ok_or_else(|| io::Error::other("a link leads nowhere"))?;
    Ok(target.into_owned())
}

fn small(id: u64) -> u32 {
    u32::try_from(id).unwrap_or(u32::MAX)
}
