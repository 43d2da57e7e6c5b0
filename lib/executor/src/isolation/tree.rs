//! File system of a container, at `root` in its folder. Only the work directory, `/tmp`, `/var/tmp`, `/run`
//! and `/dev/shm` are writable.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::mount::MsFlags;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

use super::mounts::{HARMLESS, fresh, only_read, restrict, show, show_alone, show_to_read};
use super::outer::named;
use super::plan::{Plan, Tree};
use super::{WORK, users};

/// Mount point in the container's folder. It is relative, since root of a container may not traverse the path
/// to that folder.
pub(super) const ROOT: &str = "root";
/// Folders of the host that programs need.
const OF_HOST: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc"];
/// Folder of the host for additionally installed software.
const ALSO_OF_HOST: &str = "/opt";
/// Folders that every container has.
const FOLDERS: [&str; 8] = [WORK, "/proc", "/sys", "/dev", "/tmp", "/run", "/var/tmp", "/root"];
/// Devices that are safe to share.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Symbolic links in `/dev`.
const LINKS: [(&str, &str); 5] = [
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];
/// Files in `/proc` that expose or control the host and are hidden.
const HIDDEN: [&str; 5] = ["kcore", "keys", "timer_list", "sysrq-trigger", "kmsg"];
/// Folders in `/proc` that can change the host and are read-only.
const NOT_WRITTEN: [&str; 4] = ["sys", "irq", "bus", "fs"];
/// Files for name resolution, copied from the host over the image.
const NAMES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Builds the file system of a container in its folder, which must be the working directory. The mount
/// namespace must be private already.
pub(super) fn make(plan: &Plan) -> io::Result<()> {
    let (folder, root) = (Path::new("."), Path::new(ROOT));
    fs::create_dir_all(root)?;
    match &plan.tree {
        Tree::Host => of_host(folder, root, plan),
        Tree::Folder { path, .. } => of_folder(folder, root, path),
    }
    .map_err(|error| named("make the file system of the container", error))?;
    mask(root, &plan.masked).map_err(|error| named("hide what is the host's alone", error))?;
    devices(root).map_err(|error| named("make the devices of the container", error))?;
    processes(root).map_err(|error| named("show the processes of the container", error))?;
    if plan.first_id.is_some() {
        // A user who is not root of the host may not bind-mount part of a file system that has other mounts
        // on it.
        show_alone(Path::new("/sys"), &root.join("sys"))?;
        restrict(&root.join("sys"), HARMLESS | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY)?;
    }
    Ok(())
}

/// Mounts the folders of the host that programs need, read-only.
fn of_host(folder: &Path, root: &Path, plan: &Plan) -> io::Result<()> {
    fresh("tmpfs", root, HARMLESS, "mode=755,size=1m")?;
    FOLDERS.iter().try_for_each(|path| fs::create_dir_all(within(root, path)))?;
    for path in OF_HOST.into_iter().chain([ALSO_OF_HOST]) {
        let at = within(root, path);
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => symlink(fs::read_link(path)?, &at)?,
            Ok(found) if found.is_dir() => {
                fs::create_dir_all(&at)?;
                show_to_read(Path::new(path), &at)?;
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    known_owner(folder, root)?;
    // Mounted before the programs, since a program may be in a writable folder.
    to_write(folder, root)?;
    for program in &plan.programs {
        show_program(root, program)?;
    }
    only_read(root)
}

/// Adds the owner of the work directory to `passwd` and `group`.
fn known_owner(folder: &Path, root: &Path) -> io::Result<()> {
    let read = |name: &str| fs::read_to_string(Path::new("/etc").join(name)).unwrap_or_default();
    let (passwd, group) = users::with_owner(&read("passwd"), &read("group"));
    fs::create_dir_all(folder.join("etc"))?;
    for (name, text) in [("passwd", passwd), ("group", group)] {
        let (own, at) = (folder.join("etc").join(name), root.join("etc").join(name));
        fs::write(&own, text)?;
        fs::set_permissions(&own, fs::Permissions::from_mode(0o644))?;
        if at.exists() {
            show_to_read(&own, &at)?;
        }
    }
    Ok(())
}

/// Bind-mounts a program of the host at its path, unless it is visible already.
fn show_program(root: &Path, program: &Path) -> io::Result<()> {
    let at = within(root, program);
    if at.exists() || !program.is_file() {
        return Ok(());
    }
    if let Some(parent) = at.parent() {
        fs::create_dir_all(parent)?;
    }
    File::create(&at)?;
    show_to_read(program, &at)
}

/// Mounts an image folder, overlaid with the folders that every container has.
fn of_folder(folder: &Path, root: &Path, path: &Path) -> io::Result<()> {
    let over = folder.join("over");
    FOLDERS.iter().try_for_each(|path| fs::create_dir_all(within(&over, path)))?;
    fs::set_permissions(within(&over, "/root"), fs::Permissions::from_mode(0o700))?;
    for name in NAMES.into_iter().filter(|name| Path::new(name).exists()) {
        let at = within(&over, name);
        fs::create_dir_all(over.join("etc"))?;
        fs::copy(name, &at)?;
        fs::set_permissions(&at, fs::Permissions::from_mode(0o644))?;
    }
    let layers = format!("lowerdir={}:{}", escaped(&over), escaped(path));
    fresh("overlay", root, HARMLESS | MsFlags::MS_RDONLY, &layers)?;
    to_write(folder, root)
}

/// Escapes a path for the mount options of an overlay.
fn escaped(path: &Path) -> String {
    let text = path.display().to_string();
    text.chars()
        .flat_map(|sign| matches!(sign, ':' | ',' | '\\').then_some('\\').into_iter().chain([sign]))
        .collect()
}

/// Hides files and folders that the container would see otherwise.
fn mask(root: &Path, paths: &[PathBuf]) -> io::Result<()> {
    let top = File::open(root)?;
    for path in paths {
        let path = path.strip_prefix("/").unwrap_or(path);
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let found = match openat2(&top, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
            // The container does not see it anyway.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => continue,
            found => found?,
        };
        let at = PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd()));
        if FileType::from_raw_mode(fstat(&found)?.st_mode) == FileType::Directory {
            fresh("tmpfs", &at, HARMLESS | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY, "mode=555,size=4k")?;
        } else {
            show(Path::new("/dev/null"), &at)?;
        }
    }
    Ok(())
}

/// Mounts safe devices, and a terminal file system of the container's own.
fn devices(root: &Path) -> io::Result<()> {
    let dev = root.join("dev");
    fresh("tmpfs", &dev, MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC, "mode=755,size=64k")?;
    for name in DEVICES {
        let (from, at) = (Path::new("/dev").join(name), dev.join(name));
        File::create(&at)?;
        show(&from, &at)?;
    }
    for (name, to) in LINKS {
        symlink(to, dev.join(name))?;
    }
    for name in ["pts", "shm"] {
        fs::create_dir(dev.join(name))?;
    }
    let silent = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    fresh("devpts", &dev.join("pts"), silent, "newinstance,ptmxmode=0666,mode=0620")?;
    fresh("tmpfs", &dev.join("shm"), HARMLESS | MsFlags::MS_NOEXEC, "mode=1777,size=64m")?;
    only_read(&dev)
}

/// Mounts `/proc` of the container, with everything that could change the host read-only or hidden.
fn processes(root: &Path) -> io::Result<()> {
    let proc = root.join("proc");
    let silent = HARMLESS | MsFlags::MS_NOEXEC;
    fresh("proc", &proc, silent, "")?;
    for path in HIDDEN.map(|name| proc.join(name)).iter().filter(|path| path.exists()) {
        show(Path::new("/dev/null"), path)?;
    }
    for path in NOT_WRITTEN.map(|name| proc.join(name)).iter().filter(|path| path.exists()) {
        show(path, path)?;
        restrict(path, silent | MsFlags::MS_RDONLY)?;
    }
    Ok(())
}

/// Mounts the writable folders. All but `/run` are on the disk that the container's limit counts.
fn to_write(folder: &Path, root: &Path) -> io::Result<()> {
    let tmp = folder.join("tmp");
    fs::create_dir_all(&tmp)?;
    fs::set_permissions(&tmp, fs::Permissions::from_mode(0o1777))?;
    for (from, at) in [(folder.join("work"), WORK), (tmp.clone(), "/tmp"), (tmp, "/var/tmp")] {
        let at = within(root, at);
        show(&from, &at)?;
        restrict(&at, HARMLESS)?;
    }
    fresh("tmpfs", &root.join("run"), HARMLESS, "mode=1777,size=16m")
}

/// Returns the path at which a container's path is visible from outside.
fn within(root: &Path, path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    root.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_paths_are_resolved_within_the_root() {
        assert_eq!(within(Path::new("/a"), "/b/c"), Path::new("/a/b/c"));
        assert_eq!(escaped(Path::new("/a:b,c\\d")), "/a\\:b\\,c\\\\d");
    }
}
