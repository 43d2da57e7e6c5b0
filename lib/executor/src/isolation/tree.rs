//! File system of a container, mounted at `root` in the container's folder. Only the work directory, `/tmp`,
//! `/var/tmp`, `/run` and `/dev/shm` are writable.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::mount::MsFlags;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

use super::mounts::{
    NOSUID_NODEV, add_flags, bind_read_only, bind_recursive, bind_single, make_read_only, mount_kernel_fs,
};
use super::outer::with_operation;
use super::plan::{Plan, RootFs};
use super::{WORK_DIR, users};

/// Mount point in the container's folder. The path is relative, since the container's root user may not be
/// able to traverse the path to that folder.
pub(super) const ROOT: &str = "root";
/// Folders of the host that programs need.
const HOST_FOLDERS: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc"];
/// Folder of the host for additionally installed software.
const OPTIONAL_HOST_FOLDER: &str = "/opt";
/// Folders that every container has.
const FOLDERS: [&str; 8] = [WORK_DIR, "/proc", "/sys", "/dev", "/tmp", "/run", "/var/tmp", "/root"];
/// Devices that are safe to share.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Symbolic links in `/dev`.
const DEV_LINKS: [(&str, &str); 5] = [
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];
/// Files in `/proc` that expose or control the host and are hidden.
const HIDDEN_IN_PROC: [&str; 5] = ["kcore", "keys", "timer_list", "sysrq-trigger", "kmsg"];
/// Folders in `/proc` that can change the host and are read-only.
const READ_ONLY_IN_PROC: [&str; 4] = ["sys", "irq", "bus", "fs"];
/// Files for name resolution. They are copied from the host and replace the files of the image.
const RESOLVER_FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Builds the file system of a container in its folder, which must be the working directory. The mount
/// namespace must be private already.
pub(super) fn build(plan: &Plan) -> io::Result<()> {
    let (folder, root) = (Path::new("."), Path::new(ROOT));
    fs::create_dir_all(root)?;
    match &plan.root_fs {
        RootFs::Host => mount_host_folders(folder, root, plan),
        RootFs::Folder { path, .. } => mount_image(folder, root, path),
    }
    .map_err(|error| with_operation("create the file system of the container", error))?;
    mask_paths(root, &plan.masked)
        .map_err(|error| with_operation("hide the masked paths of the host", error))?;
    mount_devices(root).map_err(|error| with_operation("create the devices of the container", error))?;
    mount_proc(root).map_err(|error| with_operation("mount /proc of the container", error))?;
    if plan.first_id.is_some() {
        // A user who is not root of the host may not bind-mount a part of a file system if other mounts are
        // below that part.
        bind_single(Path::new("/sys"), &root.join("sys"))?;
        add_flags(&root.join("sys"), NOSUID_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY)?;
    }
    Ok(())
}

/// Mounts the folders of the host that programs need, read-only.
fn mount_host_folders(folder: &Path, root: &Path, plan: &Plan) -> io::Result<()> {
    mount_kernel_fs("tmpfs", root, NOSUID_NODEV, "mode=755,size=1m")?;
    FOLDERS.iter().try_for_each(|path| fs::create_dir_all(path_in_root(root, path)))?;
    for path in HOST_FOLDERS.into_iter().chain([OPTIONAL_HOST_FOLDER]) {
        let at = path_in_root(root, path);
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => symlink(fs::read_link(path)?, &at)?,
            Ok(found) if found.is_dir() => {
                fs::create_dir_all(&at)?;
                bind_read_only(Path::new(path), &at)?;
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    add_owner_to_passwd(folder, root)?;
    // Mount the writable folders before the programs, since the path of a program may be in a writable
    // folder.
    mount_writable_folders(folder, root)?;
    for program in &plan.programs {
        bind_program(root, program)?;
    }
    make_read_only(root)
}

/// Adds the owner of the work directory to `passwd` and `group`.
fn add_owner_to_passwd(folder: &Path, root: &Path) -> io::Result<()> {
    let read = |name: &str| fs::read_to_string(Path::new("/etc").join(name)).unwrap_or_default();
    let (passwd, group) = users::add_owner(&read("passwd"), &read("group"));
    fs::create_dir_all(folder.join("etc"))?;
    for (name, text) in [("passwd", passwd), ("group", group)] {
        let (own, at) = (folder.join("etc").join(name), root.join("etc").join(name));
        fs::write(&own, text)?;
        fs::set_permissions(&own, fs::Permissions::from_mode(0o644))?;
        if at.exists() {
            bind_read_only(&own, &at)?;
        }
    }
    Ok(())
}

/// Bind-mounts a program of the host at its path, unless a file is already visible at this path.
fn bind_program(root: &Path, program: &Path) -> io::Result<()> {
    let at = path_in_root(root, program);
    if at.exists() || !program.is_file() {
        return Ok(());
    }
    if let Some(parent) = at.parent() {
        fs::create_dir_all(parent)?;
    }
    File::create(&at)?;
    bind_read_only(program, &at)
}

/// Mounts the folder of an image. The folders that every container has are overlaid on it.
fn mount_image(folder: &Path, root: &Path, path: &Path) -> io::Result<()> {
    let over = folder.join("over");
    FOLDERS.iter().try_for_each(|path| fs::create_dir_all(path_in_root(&over, path)))?;
    fs::set_permissions(path_in_root(&over, "/root"), fs::Permissions::from_mode(0o700))?;
    for name in RESOLVER_FILES.into_iter().filter(|name| Path::new(name).exists()) {
        let at = path_in_root(&over, name);
        fs::create_dir_all(over.join("etc"))?;
        fs::copy(name, &at)?;
        fs::set_permissions(&at, fs::Permissions::from_mode(0o644))?;
    }
    let layers = format!("lowerdir={}:{}", escape_overlay_path(&over), escape_overlay_path(path));
    mount_kernel_fs("overlay", root, NOSUID_NODEV | MsFlags::MS_RDONLY, &layers)?;
    mount_writable_folders(folder, root)
}

/// Escapes a path for the mount options of an overlay.
fn escape_overlay_path(path: &Path) -> String {
    let text = path.display().to_string();
    text.chars()
        .flat_map(|sign| matches!(sign, ':' | ',' | '\\').then_some('\\').into_iter().chain([sign]))
        .collect()
}

/// Hides files and folders of the host that would otherwise be visible in the container.
fn mask_paths(root: &Path, paths: &[PathBuf]) -> io::Result<()> {
    let top = File::open(root)?;
    for path in paths {
        let path = path.strip_prefix("/").unwrap_or(path);
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let found = match openat2(&top, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
            // The path is not visible in the container, so it needs no mask.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => continue,
            found => found?,
        };
        let at = PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd()));
        if FileType::from_raw_mode(fstat(&found)?.st_mode) == FileType::Directory {
            mount_kernel_fs(
                "tmpfs",
                &at,
                NOSUID_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY,
                "mode=555,size=4k",
            )?;
        } else {
            bind_recursive(Path::new("/dev/null"), &at)?;
        }
    }
    Ok(())
}

/// Mounts safe devices, and a terminal file system that belongs to this container alone.
fn mount_devices(root: &Path) -> io::Result<()> {
    let dev = root.join("dev");
    mount_kernel_fs("tmpfs", &dev, MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC, "mode=755,size=64k")?;
    for name in DEVICES {
        let (from, at) = (Path::new("/dev").join(name), dev.join(name));
        File::create(&at)?;
        bind_recursive(&from, &at)?;
    }
    for (name, to) in DEV_LINKS {
        symlink(to, dev.join(name))?;
    }
    for name in ["pts", "shm"] {
        fs::create_dir(dev.join(name))?;
    }
    let silent = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount_kernel_fs("devpts", &dev.join("pts"), silent, "newinstance,ptmxmode=0666,mode=0620")?;
    mount_kernel_fs("tmpfs", &dev.join("shm"), NOSUID_NODEV | MsFlags::MS_NOEXEC, "mode=1777,size=64m")?;
    make_read_only(&dev)
}

/// Mounts `/proc` of the container. Everything that could change the host is read-only or hidden.
fn mount_proc(root: &Path) -> io::Result<()> {
    let proc = root.join("proc");
    let silent = NOSUID_NODEV | MsFlags::MS_NOEXEC;
    mount_kernel_fs("proc", &proc, silent, "")?;
    for path in HIDDEN_IN_PROC.map(|name| proc.join(name)).iter().filter(|path| path.exists()) {
        bind_recursive(Path::new("/dev/null"), path)?;
    }
    for path in READ_ONLY_IN_PROC.map(|name| proc.join(name)).iter().filter(|path| path.exists()) {
        bind_recursive(path, path)?;
        add_flags(path, silent | MsFlags::MS_RDONLY)?;
    }
    Ok(())
}

/// Mounts the writable folders. All of them except `/run` are on the disk that the container's disk limit
/// covers.
fn mount_writable_folders(folder: &Path, root: &Path) -> io::Result<()> {
    let tmp = folder.join("tmp");
    fs::create_dir_all(&tmp)?;
    fs::set_permissions(&tmp, fs::Permissions::from_mode(0o1777))?;
    for (from, at) in [(folder.join("work"), WORK_DIR), (tmp.clone(), "/tmp"), (tmp, "/var/tmp")] {
        let at = path_in_root(root, at);
        bind_recursive(&from, &at)?;
        add_flags(&at, NOSUID_NODEV)?;
    }
    mount_kernel_fs("tmpfs", &root.join("run"), NOSUID_NODEV, "mode=1777,size=16m")
}

/// Returns the path at which a path of the container is visible outside of the container.
fn path_in_root(root: &Path, path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    root.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_paths_are_resolved_within_the_root() {
        assert_eq!(path_in_root(Path::new("/a"), "/b/c"), Path::new("/a/b/c"));
        assert_eq!(escape_overlay_path(Path::new("/a:b,c\\d")), "/a\\:b\\,c\\\\d");
    }
}
