//! Unpacking of zip archives.

use std::io::{self, Read, Seek};
use std::path::Path;

use zip::ZipArchive;

use super::{Unpacking, of_entry};

/// Default permissions of entries without any.
const FOLDER: u32 = 0o755;
const FILE: u32 = 0o644;
/// Maximum length of a link target in bytes.
const TARGET_BYTES: u64 = 4096;

pub(super) fn unpack(archive: impl Read + Seek, unpacking: &mut Unpacking<'_>) -> io::Result<()> {
    let mut archive = ZipArchive::new(archive).map_err(io::Error::other)?;
    for number in 0..archive.len() {
        let mut entry = archive.by_index(number).map_err(io::Error::other)?;
        let name = entry.name().to_owned();
        let path = Path::new(&name);
        if !unpacking.entry(path)? {
            continue;
        }
        let mode = entry.unix_mode();
        let done = if entry.is_dir() {
            unpacking.folder(path, mode.unwrap_or(FOLDER))
        } else if entry.is_symlink() {
            let mut target = String::new();
            let read = entry.take(TARGET_BYTES).read_to_string(&mut target);
            read.and_then(|_| unpacking.link(path, Path::new(&target)))
        } else {
            unpacking.file(path, mode.unwrap_or(FILE), None, &mut entry)
        };
        done.map_err(|error| of_entry(path, &error))?;
    }
    Ok(())
}
