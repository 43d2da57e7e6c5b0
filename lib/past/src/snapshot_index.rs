//! Snapshot index: a folder of snapshot files. Each snapshot is named by its position. A snapshot with any
//! defect is never used: it is deleted and counted. All functions block on the disk, so call them on a thread
//! for blocking work.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use projections::cluster_log::QuarantinedPositions;
use schemas::names::ClusterId;
use schemas::{Position, Timestamp};

use crate::Error;
use crate::limits::{MAX_SNAPSHOT_BYTES, MAX_SNAPSHOTS, TAIL_DIVISOR, UNFINISHED_MAX_AGE};
use crate::past_state::PastState;
use crate::snapshot_file::{self, HEADER_BYTES};

/// Suffix of a snapshot file, and suffix of a snapshot file that is being written.
const SNAPSHOT_SUFFIX: &str = ".rung";
const UNFINISHED_SUFFIX: &str = ".unfinished";

/// Snapshots of one cluster.
#[derive(Debug)]
pub(crate) struct SnapshotIndex {
    folder: PathBuf,
    cluster: ClusterId,
    known: Mutex<IndexState>,
}

#[derive(Debug)]
struct IndexState {
    rungs: BTreeMap<Position, SnapshotInfo>,
    /// Number of entries between two snapshots.
    spacing: u64,
    /// Number of snapshots that were deleted because of a defect.
    discarded: u64,
}

#[derive(Clone, Copy, Debug)]
struct SnapshotInfo {
    latest: Timestamp,
    bytes: u64,
}

/// Status of the snapshot index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotIndexStatus {
    /// Number of snapshots.
    pub rungs: usize,
    /// Total size of the snapshots.
    pub bytes: u64,
    /// Position of the highest snapshot.
    pub highest: Position,
    /// Number of entries between two snapshots.
    pub spacing: u64,
    /// Number of snapshots that were deleted because of a defect since the opening of the index.
    pub spoiled: u64,
}

impl SnapshotIndex {
    /// Opens the folder of a cluster below a cache folder. The folder is created with the first snapshot. A
    /// snapshot beyond the end of the journal is a defect.
    pub(crate) fn open(cache: &Path, cluster: ClusterId, end: Position, spacing: u64) -> Result<Self, Error> {
        let folder = cluster_folder(cache, cluster);
        let known = IndexState { rungs: BTreeMap::new(), spacing: spacing.max(1), discarded: 0 };
        let ladder = Self { folder, cluster, known: Mutex::new(known) };
        let files = match fs::read_dir(&ladder.folder) {
            Ok(files) => files,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(ladder),
            Err(error) => return Err(folder_error(&ladder.folder)(error)),
        };
        for file in files {
            let path = file.map_err(folder_error(&ladder.folder))?.path();
            ladder.add_file(&path, end);
        }
        Ok(ladder)
    }

    /// Adds a file of the folder to the index if the file is a snapshot. Old unfinished files are deleted.
    /// Other files stay unchanged.
    fn add_file(&self, path: &Path, end: Position) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.ends_with(UNFINISHED_SUFFIX) {
            let age = fs::metadata(path).and_then(|data| data.modified()).ok().map(|at| at.elapsed());
            if age.and_then(Result::ok).is_some_and(|age| age > UNFINISHED_MAX_AGE) {
                remove(path);
            }
            return;
        }
        let Some(position) = name.strip_suffix(SNAPSHOT_SUFFIX).and_then(|digits| digits.parse().ok()) else {
            return;
        };
        if let Err(why) = self.add_by_header(Position(position), end) {
            self.discard(Position(position), &why);
        }
    }

    /// Adds a snapshot to the index after a check of its header.
    fn add_by_header(&self, position: Position, end: Position) -> Result<(), String> {
        let failed = |error: io::Error| error.to_string();
        let mut file = File::open(self.path(position)).map_err(failed)?;
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        Read::by_ref(&mut file).take(HEADER_BYTES as u64).read_to_end(&mut bytes).map_err(failed)?;
        let head = snapshot_file::head(&bytes, self.cluster)?;
        if head.position != position {
            return Err(format!("the snapshot is of position {}", head.position));
        }
        if position > end {
            return Err(format!("the journal ends at position {end}"));
        }
        let bytes = file.metadata().map_err(failed)?.len();
        self.known.lock().rungs.insert(position, SnapshotInfo { latest: head.latest, bytes });
        Ok(())
    }

    /// Returns the highest snapshot at or below a position.
    pub(crate) fn highest_below(&self, position: Position) -> Option<Position> {
        self.known.lock().rungs.range(..=position).next_back().map(|(position, _)| *position)
    }

    /// Returns the highest snapshot that has no decision later than a time.
    pub(crate) fn highest_before(&self, time: Timestamp) -> Option<Position> {
        let known = self.known.lock();
        known.rungs.iter().take_while(|(_, rung)| rung.latest <= time).last().map(|(position, _)| *position)
    }

    /// Returns all snapshots, in order.
    pub(crate) fn positions(&self) -> Vec<Position> {
        self.known.lock().rungs.keys().copied().collect()
    }

    /// Reads a snapshot. `None` if the index has no snapshot at this position, or if the snapshot had a
    /// defect and was deleted.
    pub(crate) fn read(&self, position: Position, quarantines: &QuarantinedPositions) -> Option<PastState> {
        let bytes = match fs::read(self.path(position)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Another process has emptied the cache.
                self.known.lock().rungs.remove(&position);
                return None;
            }
            Err(error) => {
                self.discard(position, &error.to_string());
                return None;
            }
        };
        let read =
            snapshot_file::read(&bytes, self.cluster, quarantines).and_then(|then| match then.position() {
                found if found == position => Ok(then),
                found => Err(format!("the snapshot is of position {found}")),
            });
        read.map_err(|why| self.discard(position, &why)).ok()
    }

    /// Writes a snapshot atomically.
    pub(crate) fn write(&self, then: &PastState) -> Result<(), Error> {
        let bytes = snapshot_file::write(then, self.cluster);
        create_private_folder(&self.folder)?;
        write_atomically(&self.path(then.position()), &bytes)?;
        let rung = SnapshotInfo { latest: then.latest, bytes: bytes.len() as u64 };
        self.known.lock().rungs.insert(then.position(), rung);
        Ok(())
    }

    /// Deletes a snapshot with a defect.
    pub(crate) fn discard(&self, position: Position, why: &str) {
        tracing::warn!(%position, why, "deleting a snapshot of the past");
        let mut known = self.known.lock();
        known.rungs.remove(&position);
        known.discarded += 1;
        drop(known);
        remove(&self.path(position));
    }

    /// Returns the position of the next missing snapshot for a log that ends at `end`. `None` if no snapshot
    /// is missing. Surplus snapshots are deleted.
    pub(crate) fn next_missing(&self, end: Position) -> Option<Position> {
        let mut known = self.known.lock();
        known.widen_spacing(end);
        let spacing = known.spacing;
        // The highest snapshot stays even between two regular positions, because a starting service continues
        // from it.
        let below = known.rungs.keys().rev().skip(1);
        let surplus: Vec<Position> =
            below.filter(|position| !position.0.is_multiple_of(spacing)).copied().collect();
        for position in surplus {
            known.rungs.remove(&position);
            remove(&self.path(position));
        }
        let mut places = (1..=end.0 / spacing).map(|nth| Position(nth * spacing));
        places.find(|position| !known.rungs.contains_key(position))
    }

    /// Returns the position of the newest snapshot that is due for a log that ends at `end`. `None` if the
    /// highest existing snapshot is close enough to the end.
    pub(crate) fn newest_due(&self, end: Position) -> Option<Position> {
        let mut known = self.known.lock();
        known.widen_spacing(end);
        let highest = known.rungs.range(..=end).next_back().map_or(0, |(position, _)| position.0);
        let far = end.0.saturating_sub(highest) >= 2 * known.spacing;
        far.then(|| Position(end.0 - end.0 % known.spacing))
    }

    /// Returns `true` if a snapshot at `end` makes the next start faster, because many entries follow the
    /// highest snapshot.
    pub(crate) fn has_long_tail(&self, end: Position) -> bool {
        let known = self.known.lock();
        let highest = known.rungs.keys().next_back().copied().unwrap_or_default();
        end.0.saturating_sub(highest.0) * TAIL_DIVISOR >= known.spacing
    }

    /// Returns the status of the index.
    pub(crate) fn standing(&self) -> SnapshotIndexStatus {
        let known = self.known.lock();
        SnapshotIndexStatus {
            rungs: known.rungs.len(),
            bytes: known.rungs.values().map(|rung| rung.bytes).sum(),
            highest: known.rungs.keys().next_back().copied().unwrap_or_default(),
            spacing: known.spacing,
            spoiled: known.discarded,
        }
    }

    fn path(&self, position: Position) -> PathBuf {
        self.folder.join(format!("{:020}{SNAPSHOT_SUFFIX}", position.0))
    }
}

impl IndexState {
    /// Doubles the spacing until the number and the estimated size of the snapshots are within their limits.
    fn widen_spacing(&mut self, end: Position) {
        let bytes: u64 = self.rungs.values().map(|rung| rung.bytes).sum();
        let each = bytes.checked_div(self.rungs.len() as u64).unwrap_or(0);
        let too_many = |spacing: u64| {
            let rungs: u64 = end.0 / spacing;
            rungs > MAX_SNAPSHOTS || (rungs > 1 && rungs.saturating_mul(each) > MAX_SNAPSHOT_BYTES)
        };
        while too_many(self.spacing) {
            self.spacing *= 2;
        }
    }
}

/// Returns the folder of a cluster in a cache.
pub(crate) fn cluster_folder(cache: &Path, cluster: ClusterId) -> PathBuf {
    cache.join(cluster.to_string())
}

/// Writes a file atomically.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let unfinished = path.with_extension(format!("{}{UNFINISHED_SUFFIX}", std::process::id()));
    let written = write_private(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, path));
    written.map_err(|error| {
        remove(&unfinished);
        folder_error(path)(error)
    })
}

/// Creates a folder that only its owner can access, because a snapshot contains the environment of
/// containers.
pub(crate) fn create_private_folder(folder: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(folder_error(folder))
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

/// Removes a file. A failure is harmless: the removal is repeated when the folder is opened the next time.
fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "can't remove a file of the cache");
    }
}

pub(crate) fn folder_error(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::CacheUnusable { path, source }
}
