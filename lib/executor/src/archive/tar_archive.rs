//! Unpacking of tar archives.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tar::{Archive, Entry};

use super::{Unpacker, with_entry_path};

pub(super) fn unpack(archive: impl Read, unpacking: &mut Unpacker<'_>) -> io::Result<()> {
    for entry in Archive::new(archive).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        if unpacking.accept_entry(&path)? {
            unpack_entry(&mut entry, &path, unpacking).map_err(|error| with_entry_path(&path, &error))?;
        }
    }
    Ok(())
}

fn unpack_entry(
    entry: &mut Entry<'_, impl Read>,
    path: &Path,
    unpacking: &mut Unpacker<'_>,
) -> io::Result<()> {
    let header = entry.header();
    let (kind, mode) = (header.entry_type(), header.mode()?);
    let date = i64::try_from(header.mtime()?).ok();
    if kind.is_dir() {
        unpacking.make_folder(path, mode)
    } else if kind.is_file() || kind.is_contiguous() || kind.is_gnu_sparse() {
        unpacking.make_file(path, mode, date, entry)
    } else if kind.is_symlink() {
        unpacking.make_symlink(path, &link_target(entry)?)
    } else if kind.is_hard_link() {
        unpacking.make_hard_link(path, &link_target(entry)?)
    } else {
        // Devices and pipes are skipped.
        Ok(())
    }
}

fn link_target(entry: &Entry<'_, impl Read>) -> io::Result<PathBuf> {
    let target = entry.link_name()?.ok_or_else(|| io::Error::other("a link has no target"))?;
    Ok(target.into_owned())
}
