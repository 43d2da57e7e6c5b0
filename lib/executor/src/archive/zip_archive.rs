//! Unpacking of zip archives.

use std::io::{self, Read, Seek};
use std::path::Path;

use zip::ZipArchive;

use super::{Unpacker, with_entry_path};

/// Default permissions of entries whose permissions are not recorded in the archive.
const DEFAULT_FOLDER_MODE: u32 = 0o755;
const DEFAULT_FILE_MODE: u32 = 0o644;
/// Maximum length of a link target in bytes.
const MAX_TARGET_BYTES: u64 = 4096;

pub(super) fn unpack(archive: impl Read + Seek, unpacking: &mut Unpacker<'_>) -> io::Result<()> {
    let mut archive = ZipArchive::new(archive).map_err(io::Error::other)?;
    for number in 0..archive.len() {
        let mut entry = archive.by_index(number).map_err(io::Error::other)?;
        let name = entry.name().to_owned();
        let path = Path::new(&name);
        if !unpacking.accept_entry(path)? {
            continue;
        }
        let mode = entry.unix_mode();
        let done = if entry.is_dir() {
            unpacking.make_folder(path, mode.unwrap_or(DEFAULT_FOLDER_MODE))
        } else if entry.is_symlink() {
            let mut target = String::new();
            let read = entry.take(MAX_TARGET_BYTES).read_to_string(&mut target);
            read.and_then(|_| unpacking.make_symlink(path, Path::new(&target)))
        } else {
            unpacking.make_file(path, mode.unwrap_or(DEFAULT_FILE_MODE), None, &mut entry)
        };
        done.map_err(|error| with_entry_path(path, &error))?;
    }
    Ok(())
}
