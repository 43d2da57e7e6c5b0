//! Retained logs of deleted containers. Users often need a log after its container was deleted. The folder
//! `log/` of the container is moved to `data/ended/<guid>/`. The modification time of the moved folder is the
//! time of the container's deletion.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use schemas::names::InstanceGuid;

use crate::folder::Folder;
use crate::trash::Trash;

/// Name of the folder for the retained logs, in the data folder.
pub(super) const ENDED_DIR: &str = "ended";
/// Maximum number of retained logs. The newest logs are retained.
pub const MAX_ENDED_LOGS: usize = 256;
/// Maximum total size of the retained logs, in bytes.
pub const MAX_ENDED_BYTES: u64 = 256 * 1024 * 1024;
/// Retention time of a log.
pub const ENDED_RETENTION: Duration = Duration::from_hours(24);

/// Logs of deleted containers.
#[derive(Debug)]
pub(super) struct EndedLogs {
    data: PathBuf,
    trash: Arc<Trash>,
    /// Retained logs, the oldest first. Thanks to this list, the folder need not be read for each added log.
    kept: Mutex<VecDeque<EndedLog>>,
    max_bytes: u64,
}

/// Retained log of one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EndedLog {
    ended: SystemTime,
    guid: InstanceGuid,
    bytes: u64,
}

impl EndedLogs {
    /// Loads the logs that an earlier executor retained. Removes the oldest logs until no limit is exceeded.
    pub(super) fn open(data: &Path, trash: Arc<Trash>, now: SystemTime, most_bytes: u64) -> io::Result<Self> {
        let mut kept = vec![];
        for entry in fs::read_dir(data.join(ENDED_DIR))? {
            let entry = entry?;
            if let Some(guid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                match read_ended_log(guid, &entry) {
                    Ok(one) => kept.push(one),
                    Err(error) => {
                        tracing::warn!(container = %guid, %error, "removing an unreadable log of an ended container");
                        trash.add(&entry.path())?;
                    }
                }
            }
        }
        kept.sort_unstable();
        let ended =
            Self { data: data.to_owned(), trash, kept: Mutex::new(kept.into()), max_bytes: most_bytes };
        ended.prune(now);
        Ok(ended)
    }

    /// Returns the path of a container's retained log. The path need not exist.
    pub(super) fn log_path(&self, guid: InstanceGuid) -> PathBuf {
        self.data.join(ENDED_DIR).join(guid.to_string())
    }

    /// Returns `true` if the log of a container was already moved to the retained logs. In that case, the
    /// deletion of the container was interrupted, and only the rest of the container's folder remains to be
    /// removed.
    pub(super) fn has_log_of(&self, name: &str, folder: &Folder) -> bool {
        !folder.log().exists() && self.data.join(ENDED_DIR).join(name).exists()
    }

    /// Moves the log of a container to the retained logs. A missing log is not an error, because the
    /// container may never have been created.
    pub(super) fn retain(&self, guid: InstanceGuid, log: &Path, now: SystemTime) -> io::Result<()> {
        let moved = File::open(log)
            .and_then(|folder| folder.set_modified(now))
            .and_then(|()| fs::rename(log, self.log_path(guid)));
        match moved {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        }
        let bytes = folder_size(&self.log_path(guid))?;
        self.kept().push_back(EndedLog { ended: now, guid, bytes });
        self.prune(now);
        Ok(())
    }

    /// Removes the oldest logs until no limit is exceeded.
    pub(super) fn prune(&self, now: SystemTime) {
        while let Some(guid) = self.pop_expired(now) {
            if let Err(error) = self.trash.remove(&self.log_path(guid)) {
                tracing::warn!(container = %guid, %error, "cannot remove the log of a deleted container");
            }
        }
    }

    /// If a limit is exceeded, removes the oldest log from the list and returns its guid.
    fn pop_expired(&self, now: SystemTime) -> Option<InstanceGuid> {
        let mut kept = self.kept();
        let oldest = *kept.front()?;
        let old = now.duration_since(oldest.ended).is_ok_and(|age| age > ENDED_RETENTION);
        let large = kept.iter().map(|kept| kept.bytes).sum::<u64>() > self.max_bytes;
        let goes = old || large || kept.len() > MAX_ENDED_LOGS;
        goes.then(|| kept.pop_front().map(|kept| kept.guid))?
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<EndedLog>> {
        self.kept.lock()
    }
}

fn read_ended_log(guid: InstanceGuid, entry: &fs::DirEntry) -> io::Result<EndedLog> {
    Ok(EndedLog { ended: entry.metadata()?.modified()?, guid, bytes: folder_size(&entry.path())? })
}

/// Returns the total size of the files in a folder, in bytes.
fn folder_size(folder: &Path) -> io::Result<u64> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use tempfile::TempDir;

    use super::*;

    const START: SystemTime = UNIX_EPOCH;

    fn data() -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for folder in ["containers", ENDED_DIR, "trash"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        root
    }

    fn open(data: &Path, now: SystemTime, most_bytes: u64) -> io::Result<EndedLogs> {
        EndedLogs::open(data, Arc::new(Trash::open(data)?), now, most_bytes)
    }

    fn guid(number: usize) -> InstanceGuid {
        InstanceGuid(uuid::Uuid::from_u128(u128::try_from(number).unwrap()))
    }

    /// Retains the log of a container, which has two files.
    fn retain_log(ended: &EndedLogs, number: usize, now: SystemTime) {
        let log = ended.data.join("containers").join(number.to_string());
        fs::create_dir(&log).unwrap();
        fs::write(log.join("00000000000000000000"), "a\n").unwrap();
        fs::write(log.join("00000000000000000002"), "b\n").unwrap();
        ended.retain(guid(number), &log, now).unwrap();
    }

    fn kept(ended: &EndedLogs) -> Vec<usize> {
        let names = fs::read_dir(ended.data.join(ENDED_DIR)).unwrap();
        let guids = names.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse::<InstanceGuid>());
        let mut numbers: Vec<_> =
            guids.map(|guid| usize::try_from(guid.unwrap().0.as_u128()).unwrap()).collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn newest_logs_are_retained_by_time_of_deletion() {
        let root = data();
        let ended = open(root.path(), START, MAX_ENDED_BYTES).unwrap();
        // The containers end in descending order of their numbers.
        for number in (0..MAX_ENDED_LOGS + 3).rev() {
            retain_log(&ended, number, START + Duration::from_secs(u64::try_from(1000 - number).unwrap()));
        }
        assert_eq!(kept(&ended), (0..MAX_ENDED_LOGS).collect::<Vec<_>>());
        assert_eq!(fs::read_dir(ended.log_path(guid(7))).unwrap().count(), 2);
        assert_eq!(fs::read_dir(root.path().join("trash")).unwrap().count(), 0);
    }

    #[test]
    fn no_log_is_kept_longer_than_a_day() {
        let root = data();
        let ended = open(root.path(), START, MAX_ENDED_BYTES).unwrap();
        let minute = Duration::from_mins(1);
        retain_log(&ended, 9, START);
        retain_log(&ended, 5, START + minute);
        retain_log(&ended, 7, START + ENDED_RETENTION);
        assert_eq!(kept(&ended), [5, 7, 9]);
        retain_log(&ended, 1, START + ENDED_RETENTION + minute);
        assert_eq!(kept(&ended), [1, 5, 7]);

        let again = open(root.path(), START + ENDED_RETENTION + 2 * minute, MAX_ENDED_BYTES).unwrap();
        assert_eq!(kept(&again), [1, 7]);
        retain_log(&again, 2, START + 2 * ENDED_RETENTION + minute);
        assert_eq!(kept(&again), [1, 2]);
        // The clock was set back, so no log is old enough to be removed.
        assert_eq!(kept(&open(root.path(), START, MAX_ENDED_BYTES).unwrap()), [1, 2]);
    }

    #[test]
    fn no_more_bytes_are_kept_than_the_limit() {
        let root = data();
        let ended = open(root.path(), START, 10).unwrap();
        for number in 0..4 {
            retain_log(&ended, number, START + Duration::from_secs(u64::try_from(number).unwrap()));
        }
        assert_eq!(kept(&ended), [2, 3], "each log has four bytes");
        assert_eq!(kept(&open(root.path(), START, 7).unwrap()), [3]);
    }

    #[test]
    fn container_without_log_retains_none() {
        let root = data();
        let ended = open(root.path(), START, MAX_ENDED_BYTES).unwrap();
        ended.retain(guid(1), &root.path().join("containers/1/log"), START).unwrap();
        assert!(kept(&ended).is_empty());
    }
}
