//! Unpacking of the layers of an image into one tree. Each layer is unpacked over the layers below it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use oci_spec::image::{Descriptor, MediaType};
use tar::{Archive, Entry};

use super::files::FileTree;
use super::layout::Layout;
use super::zstd::FrameReader;

/// Name prefix of an entry that removes a file of a lower layer (OCI Image Layer Specification, "Whiteouts").
const WHITEOUT_PREFIX: &str = ".wh.";
/// Name of an entry that removes all files of lower layers in its folder.
const OPAQUE_WHITEOUT: &str = ".wh..wh..opq";
/// Maximum unpacked size of an image in bytes.
const MAX_IMAGE_BYTES: u64 = 16 * 1024 * 1024 * 1024;
/// Maximum number of files of an image.
const MAX_IMAGE_FILES: u64 = 1_000_000;

/// Verifies and unpacks all layers.
pub(super) fn unpack_layers(layout: &Layout, tree: &Path, first_id: Option<u32>) -> io::Result<()> {
    let files = FileTree::open(tree, first_id)?;
    let mut room = Budget { bytes: MAX_IMAGE_BYTES, files: MAX_IMAGE_FILES };
    for layer in layout.layers() {
        layout.verify_layer(layer)?;
        let named = |error: io::Error| io::Error::other(format!("layer {}: {error}", layer.digest()));
        let opened = decompress(layout.open_layer(layer)?, layer).map_err(named)?;
        unpack_layer(opened, &files, &mut room).map_err(named)?;
    }
    Ok(())
}

/// Number of bytes and files that the image may still unpack.
struct Budget {
    bytes: u64,
    files: u64,
}

impl Budget {
    fn take(&mut self, bytes: u64) -> io::Result<()> {
        let left = self.bytes.checked_sub(bytes).zip(self.files.checked_sub(1));
        let (bytes, files) = left.ok_or_else(|| {
            io::Error::other(format!(
                "the image is larger than {MAX_IMAGE_BYTES} bytes or {MAX_IMAGE_FILES} files"
            ))
        })?;
        (self.bytes, self.files) = (bytes, files);
        Ok(())
    }
}

fn decompress(file: File, layer: &Descriptor) -> io::Result<Box<dyn Read>> {
    let file = BufReader::new(file);
    match layer.media_type() {
        MediaType::ImageLayer | MediaType::ImageLayerNonDistributable => Ok(Box::new(file)),
        MediaType::ImageLayerGzip | MediaType::ImageLayerNonDistributableGzip => {
            Ok(Box::new(GzDecoder::new(file)))
        }
        MediaType::ImageLayerZstd | MediaType::ImageLayerNonDistributableZstd => {
            Ok(Box::new(FrameReader::new(file)))
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
            "unsupported layer type {other}: expected tar, or tar with gzip or zstd"
        ))),
    }
}

fn unpack_layer(layer: impl Read, files: &FileTree, room: &mut Budget) -> io::Result<()> {
    let mut added = BTreeSet::new();
    for entry in Archive::new(layer).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let what = |error: io::Error| io::Error::other(format!("{}: {error}", path.display()));
        room.take(entry.size())?;
        unpack_entry(&mut entry, &path, files, &mut added).map_err(what)?;
    }
    Ok(())
}

/// Unpacks one entry, or removes entries of lower layers.
fn unpack_entry(
    entry: &mut Entry<'_, impl Read>,
    path: &Path,
    files: &FileTree,
    added: &mut BTreeSet<PathBuf>,
) -> io::Result<()> {
    let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else { return Ok(()) };
    let above = path.parent().unwrap_or(Path::new(""));
    if name == OPAQUE_WHITEOUT {
        for name in files.folder_names(above)? {
            let of_before = above.join(&name);
            // Entries of this layer are kept, for any order in the layer.
            if !added.iter().any(|own| own.starts_with(&of_before)) {
                files.remove(&files.resolve(&of_before)?)?;
            }
        }
        return Ok(());
    }
    if let Some(removed) = name.strip_prefix(WHITEOUT_PREFIX) {
        return files.remove(&files.resolve(&above.join(removed))?);
    }
    let header = entry.header();
    let mode = header.mode()? & 0o7777;
    let owner = (saturating_id(header.uid()?), saturating_id(header.gid()?));
    let at = files.resolve(path)?;
    let kind = header.entry_type();
    if kind.is_dir() {
        files.make_folder(&at, mode, owner)?;
    } else if kind.is_file() || kind.is_contiguous() || kind.is_gnu_sparse() {
        files.make_file(&at, mode, owner, entry)?;
    } else if kind.is_symlink() {
        files.make_symlink(&at, &link_target(entry)?, owner)?;
    } else if kind.is_hard_link() {
        files.make_hard_link(&at, &link_target(entry)?)?;
    } else {
        // Devices and pipes are skipped, because every container has its own devices and pipes.
        return Ok(());
    }
    added.insert(path.to_owned());
    Ok(())
}

fn link_target(entry: &Entry<'_, impl Read>) -> io::Result<PathBuf> {
    let target = entry.link_name()?.ok_or_else(|| io::Error::other("a link has no target"))?;
    Ok(target.into_owned())
}

fn saturating_id(id: u64) -> u32 {
    u32::try_from(id).unwrap_or(u32::MAX)
}
