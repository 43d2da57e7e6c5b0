//! Images in the OCI Image Layout. The file `index.json` names manifests. A manifest names its configuration
//! and its layers. Each of these documents and layers is stored in `blobs/`, under the SHA-256 digest of its
//! bytes.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use oci_spec::image::{Arch, Descriptor, DigestAlgorithm, ImageIndex, ImageManifest, MediaType, Os};
use sha2::{Digest as _, Sha256};

/// Annotation with the tag of a manifest.
const TAG_ANNOTATION: &str = "org.opencontainers.image.ref.name";
/// Maximum size of a manifest or configuration, in bytes.
const MAX_DOCUMENT_BYTES: u64 = 4 * 1024 * 1024;
/// Maximum nesting of indices.
const MAX_INDEX_DEPTH: usize = 4;

/// One image of a folder in the OCI Image Layout.
#[derive(Debug)]
pub(super) struct Layout {
    folder: PathBuf,
    digest: String,
    manifest: ImageManifest,
}

impl Layout {
    /// Finds an image in a folder. If `tag` is set, only images with this tag are considered. If several
    /// images remain, selects the first image for this platform. Fails if one of several images names no
    /// platform.
    pub(super) fn open(folder: &Path, tag: Option<&str>) -> io::Result<Self> {
        let wrong = |why: String| io::Error::other(format!("{}: {why}", folder.display()));
        let index = File::open(folder.join("index.json"))
            .map_err(|error| wrong(format!("not a folder of an OCI image: index.json: {error}")))?;
        let index = ImageIndex::from_reader(index.take(MAX_DOCUMENT_BYTES))
            .map_err(|error| wrong(format!("cannot read index.json: {error}")))?;
        let named: Vec<&Descriptor> =
            index.manifests().iter().filter(|one| tag.is_none_or(|tag| tag_of(one) == Some(tag))).collect();
        let tags = || index.manifests().iter().filter_map(tag_of).collect::<Vec<_>>().join(", ");
        let descriptor = match (named.as_slice(), tag) {
            ([one], _) => (*one).clone(),
            ([], Some(tag)) => return Err(wrong(format!("no image {tag:?}: expected one of {}", tags()))),
            ([], None) => return Err(wrong("no image in this folder".to_owned())),
            (several, _) => several
                .iter()
                .find(|one| matches_platform(one))
                .map(|one| (*one).clone())
                .filter(|_| several.iter().all(|one| one.platform().is_some()))
                .ok_or_else(|| wrong(format!("several images: name one of {}", tags())))?,
        };
        let manifest = resolve_manifest(folder, &descriptor, MAX_INDEX_DEPTH)?;
        let digest = manifest.0.digest().digest().to_owned();
        Ok(Self { folder: folder.to_owned(), digest, manifest: manifest.1 })
    }

    /// Returns the digest of the manifest, which identifies the image.
    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the verified image configuration.
    pub(super) fn config(&self) -> io::Result<Vec<u8>> {
        read_document(&self.folder, self.manifest.config())
    }

    /// Returns the layers, the lowest first.
    pub(super) fn layers(&self) -> &[Descriptor] {
        self.manifest.layers()
    }

    /// Opens a layer. The caller must have verified its digest.
    pub(super) fn open_layer(&self, layer: &Descriptor) -> io::Result<File> {
        File::open(blob_path(&self.folder, layer)?)
    }

    /// Verifies the digest of a layer.
    pub(super) fn verify_layer(&self, layer: &Descriptor) -> io::Result<()> {
        let mut hash = Sha256::new();
        let mut file = self.open_layer(layer)?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = file.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            hash.update(&buffer[..count]);
        }
        verify_digest(layer, &hash.finalize())
    }
}

fn tag_of(descriptor: &Descriptor) -> Option<&str> {
    descriptor.annotations().as_ref()?.get(TAG_ANNOTATION).map(String::as_str)
}

/// Returns `true` if an image is for this platform or names no platform.
fn matches_platform(descriptor: &Descriptor) -> bool {
    descriptor
        .platform()
        .as_ref()
        .is_none_or(|platform| *platform.os() == Os::Linux && *platform.architecture() == Arch::default())
}

/// Returns the manifest of an image. If the descriptor refers to an index for several platforms, selects the
/// manifest for this platform.
fn resolve_manifest(
    folder: &Path,
    descriptor: &Descriptor,
    depth: usize,
) -> io::Result<(Descriptor, ImageManifest)> {
    let bytes = read_document(folder, descriptor)?;
    if *descriptor.media_type() == MediaType::ImageIndex {
        let index = ImageIndex::from_reader(bytes.as_slice()).map_err(io::Error::other)?;
        let one = index.manifests().iter().find(|one| matches_platform(one)).filter(|_| depth > 0);
        let none = || io::Error::other(format!("{}: no image for this platform", folder.display()));
        return resolve_manifest(folder, one.ok_or_else(none)?, depth - 1);
    }
    let manifest = ImageManifest::from_reader(bytes.as_slice()).map_err(io::Error::other)?;
    Ok((descriptor.clone(), manifest))
}

/// Reads and verifies a manifest or configuration.
fn read_document(folder: &Path, descriptor: &Descriptor) -> io::Result<Vec<u8>> {
    let path = blob_path(folder, descriptor)?;
    let mut bytes = vec![];
    let file = File::open(&path).map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
    file.take(MAX_DOCUMENT_BYTES).read_to_end(&mut bytes)?;
    verify_digest(descriptor, &Sha256::digest(&bytes))?;
    Ok(bytes)
}

fn blob_path(folder: &Path, descriptor: &Descriptor) -> io::Result<PathBuf> {
    let digest = descriptor.digest();
    if *digest.algorithm() != DigestAlgorithm::Sha256 {
        return Err(io::Error::other(format!("unsupported digest {digest}: expected sha256")));
    }
    Ok(folder.join("blobs/sha256").join(digest.digest()))
}

fn verify_digest(descriptor: &Descriptor, hash: &[u8]) -> io::Result<()> {
    let found = data_encoding::HEXLOWER.encode(hash);
    if found == descriptor.digest().digest() {
        return Ok(());
    }
    Err(io::Error::other(format!("{} is damaged: its digest is sha256:{found}", descriptor.digest())))
}
