//! Unpacking of tar archives.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tar::{Archive, Entry};

use super::{Unpacking, of_entry};

pub(super) fn unpack(archive: impl Read, unpacking: &mut Unpacking<'_>) -> io::Result<()> {
    for entry in Archive::new(archive).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        if unpacking.entry(&path)? {
            one(&mut entry, &path, unpacking).map_err(|error| of_entry(&path, &error))?;
        }
    }
    Ok(())
}

fn one(entry: &mut Entry<'_, impl Read>, path: &Path, unpacking: &mut Unpacking<'_>) -> io::Result<()> {
    let header = entry.header();
    let (kind, mode) = (header.entry_type(), header.mode()?);
    let date = i64::try_from(header.mtime()?).ok();
    if kind.is_dir() {
        unpacking.folder(path, mode)
    } else if kind.is_file() || kind.is_contiguous() || kind.is_gnu_sparse() {
        unpacking.file(path, mode, date, entry)
    } else if kind.is_symlink() {
        unpacking.link(path, &target(entry)?)
    } else if kind.is_hard_link() {
        unpacking.name(path, &target(entry)?)
    } else {
        // Devices and pipes are skipped.
        Ok(())
    }
}

fn target(entry: &Entry<'_, impl Read>) -> io::Result<PathBuf> {
    let target = entry.link_name()?.ok_or_else(|| io::Error::other("a link leads nowhere"))?;
    Ok(target.into_owned())
}
