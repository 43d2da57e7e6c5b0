//! Unpacks archives for a container: tar, tar with gzip, and zip. The type is recognised by the first bytes.
//!
//! Nothing is written outside the target folder, regardless of the links that an archive contains. Symbolic
//! links are created with their target unchanged. Only programs of the container follow them, with their own
//! rights. The setuid, setgid and sticky bits are removed. Devices and pipes are skipped.

mod tar_archive;
mod zip_archive;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use tar::Header;

use crate::image::files::FileTree;

/// Maximum number of entries of an archive.
const MAX_ENTRIES: u64 = 1_000_000;
/// Maximum unpacked size of an archive in bytes if no disk limit applies: 16 GiB.
pub(crate) const MAX_UNPACKED_BYTES: u64 = 16 * 1024 * 1024 * 1024;
/// First bytes of each kind of archive.
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZIP_MAGICS: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];
/// Size of a tar header, in bytes.
const TAR_HEADER: usize = 512;
/// Permission bits that are kept. They do not include the setuid, setgid and sticky bits.
const PERMISSION_MASK: u32 = 0o777;
/// Permissions that the owner of a folder needs while entries are unpacked into the folder.
const OWNER_ACCESS: u32 = 0o700;

/// Unpacks an archive into a folder. Fails if the unpacked size exceeds `most_bytes`.
pub(crate) fn unpack(mut archive: File, into: &FileTree, most_bytes: u64) -> io::Result<()> {
    let mut begin = vec![];
    archive.by_ref().take(TAR_HEADER as u64).read_to_end(&mut begin)?;
    archive.seek(SeekFrom::Start(0))?;
    let mut unpacking =
        Unpacker { into, max_bytes: most_bytes, bytes: 0, entries: 0, folder_modes: BTreeMap::new() };
    if ZIP_MAGICS.iter().any(|zip| begin.starts_with(zip)) {
        zip_archive::unpack(BufReader::new(archive), &mut unpacking)?;
    } else if begin.starts_with(GZIP_MAGIC) {
        tar_archive::unpack(MultiGzDecoder::new(BufReader::new(archive)), &mut unpacking)?;
    } else if is_tar(&begin) {
        tar_archive::unpack(BufReader::new(archive), &mut unpacking)?;
    } else {
        return Err(io::Error::other("unknown archive format: expected tar, tar with gzip, or zip"));
    }
    unpacking.set_folder_modes()
}

/// Returns `true` for the first header of a tar archive, or for the end marker of an empty one.
fn is_tar(begin: &[u8]) -> bool {
    let Ok(bytes) = <&[u8; TAR_HEADER]>::try_from(begin) else { return false };
    let mut header = Header::new_old();
    header.as_mut_bytes().copy_from_slice(bytes);
    let said = header.cksum();
    header.set_cksum();
    bytes.iter().all(|byte| *byte == 0)
        || said.is_ok_and(|said| header.cksum().is_ok_and(|found| found == said))
}

/// State of the unpacking of one archive.
struct Unpacker<'a> {
    into: &'a FileTree,
    max_bytes: u64,
    bytes: u64,
    entries: u64,
    /// Final permissions of folders that lack owner access. They are set after all entries are unpacked.
    folder_modes: BTreeMap<PathBuf, u32>,
}

impl Unpacker<'_> {
    /// Counts an entry. Returns `false` if its path is the target folder itself.
    fn accept_entry(&mut self, path: &Path) -> io::Result<bool> {
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            return Err(io::Error::other(format!("the archive has more than {MAX_ENTRIES} entries")));
        }
        Ok(path
            .components()
            .any(|part| matches!(part, std::path::Component::Normal(_) | std::path::Component::ParentDir)))
    }

    fn make_folder(&mut self, path: &Path, mode: u32) -> io::Result<()> {
        let mode = mode & PERMISSION_MASK;
        self.into.make_folder(&self.into.resolve(path)?, mode | OWNER_ACCESS, (0, 0))?;
        if mode & OWNER_ACCESS == OWNER_ACCESS {
            self.folder_modes.remove(path);
        } else {
            self.folder_modes.insert(path.to_owned(), mode);
        }
        Ok(())
    }

    /// Creates a file. `date` is its modification time, in seconds since 1970.
    fn make_file(
        &mut self,
        path: &Path,
        mode: u32,
        date: Option<i64>,
        content: &mut dyn Read,
    ) -> io::Result<()> {
        let at = self.into.resolve(path)?;
        let limit = self.max_bytes - self.bytes;
        let mut counted = LimitedReader { content, bytes: 0, limit };
        let made = self.into.make_file(&at, mode & PERMISSION_MASK, (0, 0), &mut counted);
        self.bytes += counted.bytes;
        made.map_err(|error| {
            if error.kind() == io::ErrorKind::FileTooLarge {
                io::Error::other(format!("the archive is larger than {} bytes when unpacked", self.max_bytes))
            } else {
                error
            }
        })?;
        date.map_or(Ok(()), |date| self.into.set_times(&at, date))
    }

    fn make_symlink(&self, path: &Path, to: &Path) -> io::Result<()> {
        self.into.make_symlink(&self.into.resolve(path)?, to, (0, 0))
    }

    fn make_hard_link(&self, path: &Path, of: &Path) -> io::Result<()> {
        self.into.make_hard_link(&self.into.resolve(path)?, of)
    }

    /// Sets the final permissions of folders. The deepest folders come first.
    fn set_folder_modes(self) -> io::Result<()> {
        for (path, mode) in self.folder_modes.iter().rev() {
            self.into.set_folder_mode(&self.into.resolve(path)?, *mode)?;
        }
        Ok(())
    }
}

/// Reader that counts the bytes that it returns, and fails if their number exceeds a limit.
struct LimitedReader<'a> {
    content: &'a mut dyn Read,
    bytes: u64,
    limit: u64,
}

impl Read for LimitedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read(buffer)?;
        self.bytes += count as u64;
        if self.bytes > self.limit { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(count) }
    }
}

/// Adds the path of the entry to an error.
fn with_entry_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
