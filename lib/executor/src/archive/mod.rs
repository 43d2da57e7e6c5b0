//! Unpacks archives for a container: tar, tar with gzip, and zip, recognised by their first bytes.
//!
//! Nothing is written outside the target folder, whatever links an archive contains. Symbolic links are
//! created with their target unchanged; only programs of the container follow them, with their own rights.
//! The setuid, setgid and sticky bits are removed. Devices and pipes are skipped.

mod tape;
mod zipped;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use tar::Header;

use crate::image::files::Files;

/// Maximum number of entries of an archive.
const ENTRIES: u64 = 1_000_000;
/// Maximum unpacked size of an archive in bytes if no disk limit applies: 16 GiB.
pub(crate) const UNPACKED_BYTES: u64 = 16 * 1024 * 1024 * 1024;
/// First bytes of each kind of archive.
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZIP: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];
/// Size of a tar header in bytes.
const TAR_HEADER: usize = 512;
/// Permission bits that are kept. The setuid, setgid and sticky bits are not among them.
const PERMISSIONS: u32 = 0o777;
/// Owner permissions that a folder needs while entries are unpacked into it.
const OWN_FOLDER: u32 = 0o700;

/// Unpacks an archive of at most `most_bytes` unpacked bytes into a folder.
pub(crate) fn unpack(mut archive: File, into: &Files, most_bytes: u64) -> io::Result<()> {
    let mut begin = vec![];
    archive.by_ref().take(TAR_HEADER as u64).read_to_end(&mut begin)?;
    archive.seek(SeekFrom::Start(0))?;
    let mut unpacking = Unpacking { into, most_bytes, bytes: 0, entries: 0, folders: BTreeMap::new() };
    if ZIP.iter().any(|zip| begin.starts_with(zip)) {
        zipped::unpack(BufReader::new(archive), &mut unpacking)?;
    } else if begin.starts_with(GZIP) {
        tape::unpack(MultiGzDecoder::new(BufReader::new(archive)), &mut unpacking)?;
    } else if is_tape(&begin) {
        tape::unpack(BufReader::new(archive), &mut unpacking)?;
    } else {
        return Err(io::Error::other("it is no archive: use tar, tar with gzip, or zip"));
    }
    unpacking.finish()
}

/// Returns `true` for the first header of a tar archive, or for the end marker of an empty one.
fn is_tape(begin: &[u8]) -> bool {
    let Ok(bytes) = <&[u8; TAR_HEADER]>::try_from(begin) else { return false };
    let mut header = Header::new_old();
    header.as_mut_bytes().copy_from_slice(bytes);
    let said = header.cksum();
    header.set_cksum();
    bytes.iter().all(|byte| *byte == 0)
        || said.is_ok_and(|said| header.cksum().is_ok_and(|found| found == said))
}

/// State of an unpacking.
struct Unpacking<'a> {
    into: &'a Files,
    most_bytes: u64,
    bytes: u64,
    entries: u64,
    /// Final permissions of folders that lack owner access. They are set after all entries are unpacked.
    folders: BTreeMap<PathBuf, u32>,
}

impl Unpacking<'_> {
    /// Counts an entry. Returns `false` if its path is the target folder itself.
    fn entry(&mut self, path: &Path) -> io::Result<bool> {
        self.entries += 1;
        if self.entries > ENTRIES {
            return Err(io::Error::other(format!("the archive has more than {ENTRIES} entries")));
        }
        Ok(path
            .components()
            .any(|part| matches!(part, std::path::Component::Normal(_) | std::path::Component::ParentDir)))
    }

    fn folder(&mut self, path: &Path, mode: u32) -> io::Result<()> {
        let mode = mode & PERMISSIONS;
        self.into.make_folder(&self.into.at(path)?, mode | OWN_FOLDER, (0, 0))?;
        if mode & OWN_FOLDER == OWN_FOLDER {
            self.folders.remove(path);
        } else {
            self.folders.insert(path.to_owned(), mode);
        }
        Ok(())
    }

    /// Creates a file. `date` is its modification time, in seconds since 1970.
    fn file(&mut self, path: &Path, mode: u32, date: Option<i64>, content: &mut dyn Read) -> io::Result<()> {
        let at = self.into.at(path)?;
        let left = self.most_bytes - self.bytes;
        let mut counted = Counted { content, bytes: 0, left };
        let made = self.into.make_file(&at, mode & PERMISSIONS, (0, 0), &mut counted);
        self.bytes += counted.bytes;
        made.map_err(|error| {
            if error.kind() == io::ErrorKind::FileTooLarge {
                io::Error::other(format!("the archive is larger than {} bytes, unpacked", self.most_bytes))
            } else {
                error
            }
        })?;
        date.map_or(Ok(()), |date| self.into.date(&at, date))
    }

    fn link(&self, path: &Path, to: &Path) -> io::Result<()> {
        self.into.make_link(&self.into.at(path)?, to, (0, 0))
    }

    fn name(&self, path: &Path, of: &Path) -> io::Result<()> {
        self.into.make_name(&self.into.at(path)?, of)
    }

    /// Sets the final permissions of folders, the deepest first.
    fn finish(self) -> io::Result<()> {
        for (path, mode) in self.folders.iter().rev() {
            self.into.permit(&self.into.at(path)?, *mode)?;
        }
        Ok(())
    }
}

/// Reader that counts its bytes and fails beyond a limit.
struct Counted<'a> {
    content: &'a mut dyn Read,
    bytes: u64,
    left: u64,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read(buffer)?;
        self.bytes += count as u64;
        if self.bytes > self.left { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(count) }
    }
}

/// Adds the path of the entry to an error.
fn of_entry(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
