//! Reading of files and folders in the work directory of a container. The work directory may contain links,
//! pipes and entries of any other kind. Nothing outside of the work directory is read, and no read blocks.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use data_encoding::BASE64;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RawMode, ResolveFlags, Stat, openat2, readlinkat, statat,
};
use rustix::io::Errno;
use schemas::Timestamp;
use schemas::limits::{FILE_BYTES, FILE_ENTRIES};
use schemas::query::{FileContent, FileEntry, FileKind};

/// Maximum number of entries of a folder that are listed. A limit is needed because a container may create
/// any number of entries.
const MAX_LISTED: usize = 100_000;
/// Permission bits of a mode.
const PERMISSION_MASK: RawMode = 0o7777;

/// Reason why a file or folder cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// There is no such container on this cell.
    #[error("no container {0} on this cell")]
    Unknown(schemas::names::InstanceGuid),
    /// The path does not exist.
    #[error("there is no {0} in the work directory")]
    NotFound(String),
    /// The path leads out of the work directory.
    #[error("{0} leads out of the work directory")]
    Outside(String),
    /// The path names neither a file nor a folder.
    #[error("{0} is neither a file nor a folder")]
    Special(String),
    /// Reading failed.
    #[error("cannot read {path}")]
    Read { path: String, source: io::Error },
}

/// Reads a file from the byte offset `from`. If the path is a folder, lists the entries that follow its first
/// `from` entries.
pub(super) fn read(
    work: &Path,
    path: &str,
    from: u64,
    limit: Option<usize>,
) -> Result<FileContent, FilesError> {
    let failed = |source: io::Error| FilesError::Read { path: path.to_owned(), source };
    let opened = open(work, path).map_err(|error| match error {
        Errno::NOENT | Errno::NOTDIR => FilesError::NotFound(path.to_owned()),
        Errno::XDEV | Errno::LOOP => FilesError::Outside(path.to_owned()),
        // The path names a socket.
        Errno::NXIO => FilesError::Special(path.to_owned()),
        error => failed(error.into()),
    })?;
    let found = rustix::fs::fstat(&opened).map_err(|error| failed(error.into()))?;
    match file_kind(found.st_mode) {
        FileKind::File => read_chunk(opened.into(), from, limit.unwrap_or(FILE_BYTES)).map_err(failed),
        FileKind::Folder => list_folder(&opened, from, limit.unwrap_or(FILE_ENTRIES)).map_err(failed),
        FileKind::Link | FileKind::Other => Err(FilesError::Special(path.to_owned())),
    }
}

/// Opens a path below a folder. Symbolic links are followed only within the folder.
fn open(work: &Path, path: &str) -> rustix::io::Result<OwnedFd> {
    let top = rustix::fs::open(work, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let path = if path.is_empty() { "." } else { path };
    // Open without blocking, since a program may have created a pipe with that name.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    openat2(top, path, flags, Mode::empty(), resolve)
}

fn read_chunk(mut file: File, from: u64, limit: usize) -> io::Result<FileContent> {
    let bytes = file.metadata()?.len();
    let limit = u64::try_from(limit.min(FILE_BYTES)).unwrap_or(u64::MAX);
    let mut data = vec![];
    file.seek(SeekFrom::Start(from))?;
    file.take(limit).read_to_end(&mut data)?;
    let next = from + data.len() as u64;
    Ok(FileContent::File { data: BASE64.encode(&data), next, bytes })
}

fn list_folder(folder: &OwnedFd, from: u64, limit: usize) -> io::Result<FileContent> {
    let mut names = vec![];
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if name.as_bytes() != b"." && name.as_bytes() != b".." {
            names.push(name);
        }
        if names.len() >= MAX_LISTED {
            break;
        }
    }
    names.sort_unstable();
    let total = names.len() as u64;
    let shown = names.iter().skip(usize::try_from(from).unwrap_or(usize::MAX)).take(limit.min(FILE_ENTRIES));
    let mut entries = vec![];
    for name in shown {
        match statat(folder, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => entries.push(entry(folder, name, &found)),
            // The entry was removed after the folder was read.
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(FileContent::Folder { entries, total })
}

fn entry(folder: &impl AsFd, name: &std::ffi::CString, found: &Stat) -> FileEntry {
    let kind = file_kind(found.st_mode);
    let link = (kind == FileKind::Link).then(|| readlinkat(folder, name.as_c_str(), vec![]).ok()).flatten();
    let seconds = u64::try_from(found.st_mtime).unwrap_or_default();
    FileEntry {
        name: name.to_string_lossy().into_owned(),
        kind,
        mode: found.st_mode & PERMISSION_MASK,
        bytes: u64::try_from(found.st_size).unwrap_or_default(),
        modified: Timestamp(seconds.saturating_mul(1_000_000_000)),
        target: link.map(|target| target.to_string_lossy().into_owned()),
    }
}

fn file_kind(mode: RawMode) -> FileKind {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Folder,
        FileType::Symlink => FileKind::Link,
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => FileKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn read_error(work: &Path, path: &str) -> String {
        read(work, path, 0, None).unwrap_err().to_string()
    }

    #[test]
    fn folders_are_listed_page_by_page() {
        let root = tempfile::tempdir().unwrap();
        let work = root.path();
        fs::create_dir(work.join("app")).unwrap();
        fs::write(work.join("a"), "hello").unwrap();
        symlink("/etc/passwd", work.join("out")).unwrap();
        let FileContent::Folder { entries, total } = read(work, "", 0, None).unwrap() else {
            panic!("a folder")
        };
        let told: Vec<_> =
            entries.iter().map(|entry| (entry.name.as_str(), entry.kind, entry.target.as_deref())).collect();
        assert_eq!(
            told,
            [
                ("a", FileKind::File, None),
                ("app", FileKind::Folder, None),
                ("out", FileKind::Link, Some("/etc/passwd")),
            ]
        );
        assert_eq!((entries[0].bytes, total), (5, 3));
        let FileContent::Folder { entries, total } = read(work, ".", 1, Some(1)).unwrap() else {
            panic!("a folder")
        };
        assert_eq!((entries.len(), entries[0].name.as_str(), total), (1, "app", 3));
    }

    #[test]
    fn files_are_read_in_chunks() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), "0123456789").unwrap();
        symlink("a", root.path().join("b")).unwrap();
        let piece = |from, limit| match read(root.path(), "b", from, limit).unwrap() {
            FileContent::File { data, next, bytes } => {
                (String::from_utf8(BASE64.decode(data.as_bytes()).unwrap()).unwrap(), next, bytes)
            }
            other @ FileContent::Folder { .. } => panic!("{other:?}"),
        };
        assert_eq!(piece(0, None), ("0123456789".into(), 10, 10));
        assert_eq!(piece(7, Some(2)), ("78".into(), 9, 10));
        assert_eq!(piece(10, None), (String::new(), 10, 10));
        assert_eq!(piece(99, None), (String::new(), 99, 10));
    }

    #[test]
    fn paths_outside_and_special_files_are_refused_without_blocking() {
        let root = tempfile::tempdir().unwrap();
        let work = root.path().join("work");
        fs::create_dir(&work).unwrap();
        fs::write(root.path().join("spec.json"), "secret").unwrap();
        symlink("/etc/passwd", work.join("out")).unwrap();
        symlink("..", work.join("up")).unwrap();
        symlink("loop", work.join("loop")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, work.join("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        let _socket = UnixListener::bind(work.join("socket")).unwrap();
        for path in ["out", "up/spec.json", "../spec.json", "/etc/passwd", "loop"] {
            assert_eq!(read_error(&work, path), format!("{path} leads out of the work directory"));
        }
        for path in ["pipe", "socket"] {
            assert_eq!(read_error(&work, path), format!("{path} is neither a file nor a folder"));
        }
        for path in ["none", "none/deeper"] {
            assert_eq!(read_error(&work, path), format!("there is no {path} in the work directory"));
        }
    }
}
