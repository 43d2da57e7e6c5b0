//! The folder of the rungs: files named by their positions. Whatever is wrong with one, it is deleted and counted, and
//! never believed. Everything here waits for the disk: call it where that disturbs nobody.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use projections::cluster_log::Positions;
use schemas::names::ClusterId;
use schemas::{Position, Timestamp};

use crate::Error;
use crate::limits::{LADDER_BYTES, RUNGS, TAIL_PART, UNFINISHED};
use crate::rung::{self, HEAD};
use crate::then::Then;

/// How a rung's file ends, and one that is being written.
const ENDING: &str = ".rung";
const UNFINISHED_ENDING: &str = ".unfinished";

/// The rungs of one cluster.
#[derive(Debug)]
pub(crate) struct Ladder {
    folder: PathBuf,
    cluster: ClusterId,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    rungs: BTreeMap<Position, Rung>,
    /// Entries between two rungs.
    spacing: u64,
    /// Rungs that were deleted because something was wrong with them.
    spoiled: u64,
}

#[derive(Clone, Copy, Debug)]
struct Rung {
    latest: Timestamp,
    bytes: u64,
}

/// How the ladder is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// How many rungs there are.
    pub rungs: usize,
    /// The bytes that they take.
    pub bytes: u64,
    /// The position of the highest.
    pub highest: Position,
    /// Entries between two of them.
    pub spacing: u64,
    /// How many were deleted since it was opened because something was wrong with them.
    pub spoiled: u64,
}

impl Ladder {
    /// Opens the folder of a cluster below a cache folder; it is made with the first rung. Nothing beyond the journal's
    /// end is a rung.
    pub(crate) fn open(cache: &Path, cluster: ClusterId, end: Position, spacing: u64) -> Result<Self, Error> {
        let folder = folder_of(cache, cluster);
        let known = Known { rungs: BTreeMap::new(), spacing: spacing.max(1), spoiled: 0 };
        let ladder = Self { folder, cluster, known: Mutex::new(known) };
        let files = match fs::read_dir(&ladder.folder) {
            Ok(files) => files,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(ladder),
            Err(error) => return Err(unusable(&ladder.folder)(error)),
        };
        for file in files {
            let path = file.map_err(unusable(&ladder.folder))?.path();
            ladder.take_in(&path, end);
        }
        Ok(ladder)
    }

    /// Takes in a file of the folder, if it is a rung. Foreign files are left alone.
    fn take_in(&self, path: &Path, end: Position) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.ends_with(UNFINISHED_ENDING) {
            let age = fs::metadata(path).and_then(|data| data.modified()).ok().map(|at| at.elapsed());
            if age.and_then(Result::ok).is_some_and(|age| age > UNFINISHED) {
                remove(path);
            }
            return;
        }
        let Some(position) = name.strip_suffix(ENDING).and_then(|digits| digits.parse().ok()) else { return };
        if let Err(why) = self.learn(Position(position), end) {
            self.spoil(Position(position), &why);
        }
    }

    /// Learns of a rung by its head.
    fn learn(&self, position: Position, end: Position) -> Result<(), String> {
        let failed = |error: io::Error| error.to_string();
        let mut file = File::open(self.path(position)).map_err(failed)?;
        let mut bytes = Vec::with_capacity(HEAD);
        Read::by_ref(&mut file).take(HEAD as u64).read_to_end(&mut bytes).map_err(failed)?;
        let head = rung::head(&bytes, self.cluster)?;
        if head.position != position {
            return Err(format!("it is of position {}", head.position));
        }
        if position > end {
            return Err(format!("the journal ends at position {end}"));
        }
        let bytes = file.metadata().map_err(failed)?.len();
        self.lock().rungs.insert(position, Rung { latest: head.latest, bytes });
        Ok(())
    }

    /// The highest rung at or below a position.
    pub(crate) fn below(&self, position: Position) -> Option<Position> {
        self.lock().rungs.range(..=position).next_back().map(|(position, _)| *position)
    }

    /// The highest rung up to which nothing was decided later than a time.
    pub(crate) fn before(&self, time: Timestamp) -> Option<Position> {
        let known = self.lock();
        known.rungs.iter().take_while(|(_, rung)| rung.latest <= time).last().map(|(position, _)| *position)
    }

    /// Every rung, in order.
    pub(crate) fn all(&self) -> Vec<Position> {
        self.lock().rungs.keys().copied().collect()
    }

    /// Reads a rung. None: there is none, or something was wrong with it and it is deleted.
    pub(crate) fn read(&self, position: Position, set_aside: &Positions) -> Option<Then> {
        let bytes = match fs::read(self.path(position)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Somebody emptied the cache.
                self.lock().rungs.remove(&position);
                return None;
            }
            Err(error) => {
                self.spoil(position, &error.to_string());
                return None;
            }
        };
        let read = rung::read(&bytes, self.cluster, set_aside).and_then(|then| match then.position() {
            found if found == position => Ok(then),
            found => Err(format!("it is of position {found}")),
        });
        read.map_err(|why| self.spoil(position, &why)).ok()
    }

    /// Writes a rung, whole or not at all.
    pub(crate) fn write(&self, then: &Then) -> Result<(), Error> {
        let bytes = rung::write(then, self.cluster);
        make(&self.folder)?;
        write_whole(&self.path(then.position()), &bytes)?;
        let rung = Rung { latest: then.latest, bytes: bytes.len() as u64 };
        self.lock().rungs.insert(then.position(), rung);
        Ok(())
    }

    /// Deletes a rung that is not believed.
    pub(crate) fn spoil(&self, position: Position, why: &str) {
        tracing::warn!(%position, why, "a snapshot of the past is deleted");
        let mut known = self.lock();
        known.rungs.remove(&position);
        known.spoiled += 1;
        drop(known);
        remove(&self.path(position));
    }

    /// Where the next rung belongs in a log that ends at `end`; none: all are there. What is too many goes.
    pub(crate) fn next(&self, end: Position) -> Option<Position> {
        let mut known = self.lock();
        known.spread(end);
        let spacing = known.spacing;
        // The highest stays, wherever it is: whoever starts goes on from there.
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

    /// Where the newest rung belongs in a log that ends at `end`, if the highest that is there is too far below.
    pub(crate) fn newest(&self, end: Position) -> Option<Position> {
        let mut known = self.lock();
        known.spread(end);
        let highest = known.rungs.range(..=end).next_back().map_or(0, |(position, _)| position.0);
        let far = end.0.saturating_sub(highest) >= 2 * known.spacing;
        far.then(|| Position(end.0 - end.0 % known.spacing))
    }

    /// Whether a log that ends at `end` has so much behind the highest rung that one at its end saves who starts time.
    pub(crate) fn has_tail(&self, end: Position) -> bool {
        let known = self.lock();
        let highest = known.rungs.keys().next_back().copied().unwrap_or_default();
        end.0.saturating_sub(highest.0) * TAIL_PART >= known.spacing
    }

    /// How it is.
    pub(crate) fn standing(&self) -> Standing {
        let known = self.lock();
        Standing {
            rungs: known.rungs.len(),
            bytes: known.rungs.values().map(|rung| rung.bytes).sum(),
            highest: known.rungs.keys().next_back().copied().unwrap_or_default(),
            spacing: known.spacing,
            spoiled: known.spoiled,
        }
    }

    fn path(&self, position: Position) -> PathBuf {
        self.folder.join(format!("{:020}{ENDING}", position.0))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Doubles the spacing until neither the number of rungs nor what they would take is too much.
    fn spread(&mut self, end: Position) {
        let bytes: u64 = self.rungs.values().map(|rung| rung.bytes).sum();
        let each = bytes.checked_div(self.rungs.len() as u64).unwrap_or(0);
        let too_many = |spacing: u64| {
            let rungs: u64 = end.0 / spacing;
            rungs > RUNGS || (rungs > 1 && rungs.saturating_mul(each) > LADDER_BYTES)
        };
        while too_many(self.spacing) {
            self.spacing *= 2;
        }
    }
}

/// Where a cluster's files are in a cache.
pub(crate) fn folder_of(cache: &Path, cluster: ClusterId) -> PathBuf {
    cache.join(cluster.to_string())
}

/// Writes a file, whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let unfinished = path.with_extension(format!("{}{UNFINISHED_ENDING}", std::process::id()));
    let written = write_private(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, path));
    written.map_err(|error| {
        remove(&unfinished);
        unusable(path)(error)
    })
}

/// Makes a folder for its owner alone: a World holds the environment of containers.
pub(crate) fn make(folder: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(unusable(folder))
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

/// What can't be removed is in the way of nothing: it is tried again when the folder is opened the next time.
fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "a file of the cache can't be removed");
    }
}

pub(crate) fn unusable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Folder { path, source }
}
