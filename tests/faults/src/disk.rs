//! A disk of one's own: a file with ext4 on it, mounted by a loop device. It can be full, and lose what wasn't synced.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::failed::{Failed, Result, so};

/// What a program is told to do with a file system: `EXT4_IOC_SHUTDOWN`, without flushing the log.
const CUT: &str = "import fcntl, os, struct, sys\n\
                   fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))\n";
/// The file that makes a disk full.
const FILLER: &str = "filler";
/// The file that was never synced: what a power cut takes.
const UNSYNCED: &str = "unsynced";
/// How much it holds, in bytes: it takes half a minute until such a thing gets to the disk by itself.
const UNSYNCED_BYTES: usize = 1024 * 1024;
/// How much is written to a full disk at once, in bytes.
const PIECE: usize = 64 * 1024;

/// What to do where there are no such disks.
const ADVICE: &str = "disks of its own need root, loop devices (modprobe loop), mkfs.ext4 (apt-get install e2fsprogs), mount and \
                      python3: run it as root of a machine that has them, or leave those faults out with --only";

/// A mounted disk. Dropped, it is unmounted.
#[derive(Debug)]
pub struct Disk {
    image: PathBuf,
    at: PathBuf,
}

impl Disk {
    /// Makes a disk of so many MiB, and mounts it on a folder.
    ///
    /// # Errors
    /// The machine doesn't let us; the message says what it needs.
    pub async fn mount(image: &Path, megabytes: u64, at: &Path) -> Result<Self> {
        fs::create_dir_all(at).map_err(Failed::at(at.display()))?;
        let file = File::create(image).map_err(Failed::at(image.display()))?;
        file.set_len(megabytes * 1024 * 1024).map_err(Failed::at(image.display()))?;
        run("mkfs.ext4", &["-q".as_ref(), image]).await?;
        let disk = Self { image: image.to_owned(), at: at.to_owned() };
        disk.remount().await?;
        Ok(disk)
    }

    /// Makes it full, to the last byte that is to be had, or as full again.
    ///
    /// # Errors
    /// It can't be written for another reason.
    pub fn fill(&self) -> Result<()> {
        let path = self.at.join(FILLER);
        let opened = File::options().create(true).append(true).open(&path);
        let mut file = opened.map_err(Failed::at(path.display()))?;
        let mut piece = &[0_u8; PIECE][..];
        while !piece.is_empty() {
            match file.write(piece) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => piece = &piece[..piece.len() / 2],
                Err(error) => return Err(Failed(format!("{}: {error}", path.display()))),
            }
        }
        Ok(())
    }

    /// Gives back what [`Disk::fill`] took.
    ///
    /// # Errors
    /// It can't be given back.
    pub fn free(&self) -> Result<()> {
        let path = self.at.join(FILLER);
        fs::remove_file(&path).map_err(Failed::at(path.display()))
    }

    /// Cuts its power: from here on nothing is written to it any more, and what wasn't synced is lost with
    /// [`Disk::power_up`].
    ///
    /// # Errors
    /// The machine doesn't let us; the message says what it needs.
    pub async fn cut(&self) -> Result<()> {
        let marker = self.at.join(UNSYNCED);
        // What is written over a file that is there is synced with the next one: ext4 takes it for a careless program's.
        if marker.exists() {
            fs::remove_file(&marker).map_err(Failed::at(marker.display()))?;
        }
        fs::write(&marker, vec![1_u8; UNSYNCED_BYTES]).map_err(Failed::at(marker.display()))?;
        run("python3", &["-c".as_ref(), CUT.as_ref(), &self.at]).await
    }

    /// Mounts it again as after a power cut. Nobody may use it meanwhile.
    ///
    /// # Errors
    /// It isn't mounted; or the cut took nothing, so that it was none.
    pub async fn power_up(&self) -> Result<()> {
        run("umount", &[&self.at]).await?;
        self.remount().await?;
        // Its name may be there: whoever syncs another file syncs that, too.
        let marker = self.at.join(UNSYNCED);
        let left = fs::read(&marker).unwrap_or_default();
        so(left != vec![1_u8; UNSYNCED_BYTES], || {
            format!("{} was never synced, and is whole after a power cut", marker.display())
        })
    }

    async fn remount(&self) -> Result<()> {
        run("mount", &["-o".as_ref(), "loop".as_ref(), &self.image, &self.at]).await
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = std::process::Command::new("umount").arg("-l").arg(&self.at).status();
        if !unmounted.as_ref().is_ok_and(std::process::ExitStatus::success) {
            tracing::warn!("{} stays mounted: {unmounted:?}", self.at.display());
        }
    }
}

/// Runs a program of the system.
async fn run(program: &str, args: &[&Path]) -> Result<()> {
    let ran = Command::new(program).args(args).output().await;
    let ran = ran.map_err(|error| Failed(format!("{program}: {error}; {ADVICE}")))?;
    let said = String::from_utf8_lossy(&ran.stderr);
    so(ran.status.success(), || format!("{program} {args:?}: {}: {}; {ADVICE}", ran.status, said.trim()))
}
