//! Separate disk: a file with an ext4 file system, mounted through a loop device. It can be filled, and it
//! can lose data that was not synced.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::error::{Failed, Result, ensure};

/// Script that shuts down a file system by `EXT4_IOC_SHUTDOWN`, without flushing its log.
const SHUTDOWN_SCRIPT: &str = "import fcntl, os, struct, sys\n\
                   fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))\n";
/// Name of the file that fills the disk.
const FILLER_FILE: &str = "filler";
/// Name of the file that is never synced, so that a power cut loses it.
const UNSYNCED_FILE: &str = "unsynced";
/// Size of the unsynced file in bytes. The kernel takes half a minute to write such a file to the disk on its
/// own.
const UNSYNCED_BYTES: usize = 1024 * 1024;
/// Bytes that are written at once to fill the disk.
const CHUNK_BYTES: usize = 64 * 1024;

/// Advice for a machine without such disks.
const ADVICE: &str = "separate disks need root, loop devices (modprobe loop), \
                      mkfs.ext4 (apt-get install e2fsprogs), mount and python3: run this program as root \
                      on a machine that has them, or select other faults with --only";

/// Mounted disk. It is unmounted on drop.
#[derive(Debug)]
pub struct Disk {
    image: PathBuf,
    mount_point: PathBuf,
}

impl Disk {
    /// Creates a disk of this size in MiB, and mounts it on a folder.
    ///
    /// # Errors
    /// Returns an error if the machine does not allow it. The message names the requirements.
    pub async fn mount(image: &Path, megabytes: u64, at: &Path) -> Result<Self> {
        fs::create_dir_all(at).map_err(Failed::context(at.display()))?;
        let file = File::create(image).map_err(Failed::context(image.display()))?;
        file.set_len(megabytes * 1024 * 1024).map_err(Failed::context(image.display()))?;
        run("mkfs.ext4", &["-q".as_ref(), image]).await?;
        let disk = Self { image: image.to_owned(), mount_point: at.to_owned() };
        disk.remount().await?;
        Ok(disk)
    }

    /// Fills the disk to its last byte. A full disk may be filled again.
    ///
    /// # Errors
    /// Returns an error if writing fails for another reason than a full disk.
    pub fn fill(&self) -> Result<()> {
        let path = self.mount_point.join(FILLER_FILE);
        let opened = File::options().create(true).append(true).open(&path);
        let mut file = opened.map_err(Failed::context(path.display()))?;
        let mut piece = &[0_u8; CHUNK_BYTES][..];
        while !piece.is_empty() {
            match file.write(piece) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => piece = &piece[..piece.len() / 2],
                Err(error) => return Err(Failed(format!("{}: {error}", path.display()))),
            }
        }
        Ok(())
    }

    /// Frees the space that [`Disk::fill`] uses.
    ///
    /// # Errors
    /// Returns an error if the file can't be removed.
    pub fn free(&self) -> Result<()> {
        let path = self.mount_point.join(FILLER_FILE);
        fs::remove_file(&path).map_err(Failed::context(path.display()))
    }

    /// Cuts the power. From now on nothing is written to the disk, and [`Disk::power_up`] loses unsynced
    /// data.
    ///
    /// # Errors
    /// Returns an error if the machine does not allow it. The message names the requirements.
    pub async fn cut_power(&self) -> Result<()> {
        let marker = self.mount_point.join(UNSYNCED_FILE);
        // ext4 syncs an overwritten file early, to protect careless programs. The file is therefore removed
        // first.
        if marker.exists() {
            fs::remove_file(&marker).map_err(Failed::context(marker.display()))?;
        }
        fs::write(&marker, vec![1_u8; UNSYNCED_BYTES]).map_err(Failed::context(marker.display()))?;
        run("python3", &["-c".as_ref(), SHUTDOWN_SCRIPT.as_ref(), &self.mount_point]).await
    }

    /// Mounts the disk again, as after a power cut. No program may use it at the same time.
    ///
    /// # Errors
    /// Returns an error if the disk can't be mounted, or if nothing was lost, so that the cut had no effect.
    pub async fn power_up(&self) -> Result<()> {
        run("umount", &[&self.mount_point]).await?;
        self.remount().await?;
        // The name of the file may survive, because a sync of any other file writes the name too.
        let marker = self.mount_point.join(UNSYNCED_FILE);
        let left = fs::read(&marker).unwrap_or_default();
        ensure(left != vec![1_u8; UNSYNCED_BYTES], || {
            format!("{} was never synced, but is intact after a power cut", marker.display())
        })
    }

    async fn remount(&self) -> Result<()> {
        run("mount", &["-o".as_ref(), "loop".as_ref(), &self.image, &self.mount_point]).await
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = std::process::Command::new("umount").arg("-l").arg(&self.mount_point).status();
        if !unmounted.as_ref().is_ok_and(std::process::ExitStatus::success) {
            tracing::warn!("can't unmount {}: {unmounted:?}", self.mount_point.display());
        }
    }
}

/// Runs a program of the system.
async fn run(program: &str, args: &[&Path]) -> Result<()> {
    let ran = Command::new(program).args(args).output().await;
    let ran = ran.map_err(|error| Failed(format!("{program}: {error}; {ADVICE}")))?;
    let said = String::from_utf8_lossy(&ran.stderr);
    ensure(ran.status.success(), || format!("{program} {args:?}: {}: {}; {ADVICE}", ran.status, said.trim()))
}
