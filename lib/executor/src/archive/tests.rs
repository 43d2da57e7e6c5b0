//! Tests of the unpacking of archives: the possible and the prevented changes to the target folder.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use tar::{Builder, EntryType};
use tempfile::TempDir;

use super::*;

/// Builds a tar archive from entries: path, type, permissions, and content or link target.
fn tar_bytes(entries: &[(&str, EntryType, u32, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(vec![]);
    for (path, kind, mode, content) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(*mode);
        header.set_mtime(1_000_000_000);
        let is_link = kind.is_symlink() || kind.is_hard_link();
        header.set_size(if is_link { 0 } else { content.len() as u64 });
        // The raw field is written, because the builder rejects hostile paths.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        if is_link {
            header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
        }
        header.set_cksum();
        let bytes = if is_link { &b""[..] } else { content.as_bytes() };
        builder.append(&header, bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

fn unpack_bytes(bytes: &[u8], most_bytes: u64) -> (TempDir, io::Result<()>) {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("into")).unwrap();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    let files = FileTree::open(&root.path().join("into"), None).unwrap();
    let done = unpack(file, &files, most_bytes);
    (root, done)
}

fn unpack_error(bytes: &[u8]) -> String {
    let (root, done) = unpack_bytes(bytes, 1000);
    let names: Vec<_> = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["into"], "an entry was written outside the target folder");
    done.unwrap_err().to_string()
}

#[test]
fn tar_keeps_permissions_times_and_links() {
    let bytes = tar_bytes(&[
        ("./", EntryType::Directory, 0o700, ""),
        ("bin/", EntryType::Directory, 0o555, ""),
        ("bin/run", EntryType::Regular, 0o755, "#!/bin/sh\n"),
        ("bin/also", EntryType::Symlink, 0o777, "run"),
        ("bin/same", EntryType::Link, 0o644, "bin/run"),
        ("far", EntryType::Symlink, 0o777, "/etc/passwd"),
        ("deep/in/a/file", EntryType::Regular, 0o600, "x"),
    ]);
    let mut packed = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
    packed.write_all(&bytes).unwrap();
    for archive in [bytes, packed.finish().unwrap()] {
        let (root, done) = unpack_bytes(&archive, 1000);
        done.unwrap();
        let into = root.path().join("into");
        let run = fs::metadata(into.join("bin/run")).unwrap();
        assert_eq!((run.mode() & 0o7777, run.mtime(), run.nlink()), (0o755, 1_000_000_000, 2));
        assert_eq!(fs::metadata(into.join("bin")).unwrap().mode() & 0o7777, 0o555);
        assert_eq!(fs::read_link(into.join("bin/also")).unwrap(), Path::new("run"));
        assert_eq!(fs::read_link(into.join("far")).unwrap(), Path::new("/etc/passwd"));
        assert_eq!(fs::read_to_string(into.join("deep/in/a/file")).unwrap(), "x");
        fs::set_permissions(into.join("bin"), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn zip_keeps_permissions_and_links() {
    let mut writer = zip::ZipWriter::new(io::Cursor::new(vec![]));
    let options = zip::write::SimpleFileOptions::default();
    writer.add_directory("app/", options.unix_permissions(0o750)).unwrap();
    writer.start_file("app/run", options.unix_permissions(0o4755)).unwrap();
    writer.write_all(b"hello").unwrap();
    writer.add_symlink("app/also", "run", options).unwrap();
    let (root, done) = unpack_bytes(&writer.finish().unwrap().into_inner(), 1000);
    done.unwrap();
    let into = root.path().join("into/app");
    assert_eq!(fs::metadata(into.join("run")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::read_to_string(into.join("also")).unwrap(), "hello");
    assert_eq!(fs::metadata(&into).unwrap().mode() & 0o7777, 0o750);
}

#[test]
fn entries_never_escape_the_target_folder() {
    let file = EntryType::Regular;
    assert_eq!(
        unpack_error(&tar_bytes(&[("../evil", file, 0o644, "x")])),
        "../evil: invalid path ../evil: .. is not allowed"
    );
    assert_eq!(
        unpack_error(&tar_bytes(&[("a/../../evil", file, 0o644, "x")])),
        "a/../../evil: invalid path a/../../evil: .. is not allowed"
    );
    let through_link = [("out", EntryType::Symlink, 0o777, "../.."), ("out/evil", file, 0o644, "x")];
    // The link is resolved as if the target folder were the root.
    let (root, done) = unpack_bytes(&tar_bytes(&through_link), 1000);
    done.unwrap();
    assert!(root.path().join("into/evil").exists() && !root.path().join("evil").exists());
    let to_host = [("etc", EntryType::Symlink, 0o777, "/etc"), ("etc/evil", file, 0o644, "x")];
    assert!(unpack_error(&tar_bytes(&to_host)).starts_with("etc/evil: "));
    assert!(
        unpack_error(&tar_bytes(&[("passwd", EntryType::Link, 0o644, "/etc/passwd")]))
            .starts_with("passwd: ")
    );
    // An absolute path is taken relative to the target folder.
    let (root, done) = unpack_bytes(&tar_bytes(&[("/abs", file, 0o644, "x")]), 1000);
    done.unwrap();
    assert!(root.path().join("into/abs").exists());
}

#[test]
fn setuid_bits_are_removed_and_devices_skipped() {
    let bytes = tar_bytes(&[
        ("su", EntryType::Regular, 0o6755, "x"),
        ("null", EntryType::Char, 0o666, ""),
        ("disk", EntryType::Block, 0o666, ""),
        ("pipe", EntryType::Fifo, 0o666, ""),
    ]);
    let (root, done) = unpack_bytes(&bytes, 1000);
    done.unwrap();
    let into = root.path().join("into");
    assert_eq!(fs::metadata(into.join("su")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::read_dir(into).unwrap().count(), 1);
}

#[test]
fn oversized_or_invalid_archive_is_rejected() {
    let large = tar_bytes(&[
        ("a", EntryType::Regular, 0o644, &"x".repeat(600)),
        ("b", EntryType::Regular, 0o644, &"x".repeat(600)),
    ]);
    assert_eq!(unpack_error(&large), "b: the archive is larger than 1000 bytes when unpacked");
    for none in [&b""[..], b"hello", &[b'x'; 2000]] {
        assert_eq!(unpack_error(none), "unknown archive format: expected tar, tar with gzip, or zip");
    }
    let whole = tar_bytes(&[("a", EntryType::Regular, 0o644, &"x".repeat(600))]);
    assert!(!unpack_error(&whole[..700]).is_empty(), "truncated archive");
    assert!(unpack_bytes(&[0; 1024], 0).1.is_ok(), "empty archive");
}
