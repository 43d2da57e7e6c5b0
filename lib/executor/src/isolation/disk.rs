//! How much disk a container uses.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What the kernel counts the blocks of a file in, in bytes.
const BLOCK: u64 = 512;

/// Bytes on the disk below these folders. Links are not followed; what goes away meanwhile is not counted.
pub(crate) fn used(folders: &[PathBuf]) -> io::Result<u64> {
    let mut open = folders.to_vec();
    let mut bytes: u64 = 0;
    while let Some(folder) = open.pop() {
        for entry in gone_is_none(fs::read_dir(&folder))?.into_iter().flatten() {
            let Some(entry) = gone_is_none(entry)? else { continue };
            let Some(found) = gone_is_none(entry.metadata())? else { continue };
            bytes = bytes.saturating_add(found.blocks().saturating_mul(BLOCK));
            if found.is_dir() {
                open.push(entry.path());
            }
        }
    }
    Ok(bytes)
}

fn gone_is_none<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The folders of a container that are counted.
pub(crate) fn counted(folder: &Path) -> Vec<PathBuf> {
    vec![folder.join("work"), folder.join("tmp")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_the_disk_is_counted_and_what_links_lead_to_is_not() {
        let root = tempfile::tempdir().unwrap();
        let work = root.path().join("work");
        fs::create_dir_all(work.join("deep/er")).unwrap();
        fs::write(work.join("deep/er/file"), vec![1; 1 << 20]).unwrap();
        let before = used(&counted(root.path())).unwrap();
        assert!((1 << 20..1 << 21).contains(&before), "{before}");
        std::os::unix::fs::symlink("/usr", work.join("link")).unwrap();
        fs::File::create(work.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        assert!(used(&counted(root.path())).unwrap() < before + (1 << 16));
    }
}
