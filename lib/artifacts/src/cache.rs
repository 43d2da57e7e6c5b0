//! LRU cache of downloaded archives on disk.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};
use schemas::action::ChecksumAlgorithm;
use schemas::names::Domain;
use serde::{Deserialize, Serialize};

use crate::digest::Hasher;
use crate::fetch::{DownloadedArchive, Validators};

/// Suffix of the file name of a cache record.
const RECORD_SUFFIX: &str = ".json";

/// Record of a cached archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CachedArchive {
    /// Name of the file with the archive's bytes.
    data: String,
    pub(crate) bytes: u64,
    pub(crate) validators: Validators,
    /// Algorithm and value of the checksum that the archive was verified with. `None` if the archive was not
    /// verified.
    pub(crate) checksum: Option<(ChecksumAlgorithm, String)>,
}

impl From<DownloadedArchive> for CachedArchive {
    fn from(whole: DownloadedArchive) -> Self {
        Self { data: String::new(), bytes: whole.bytes, validators: whole.changed, checksum: None }
    }
}

/// Cached archives of one folder, limited by their total size.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    max_bytes: u64,
    index: Mutex<CacheIndex>,
}

/// Records of the cached archives by key. Each record has the number of its last use.
#[derive(Debug, Default)]
struct CacheIndex {
    by_key: BTreeMap<String, (u64, CachedArchive)>,
    /// Counter for the numbers of uses and the numbers in file names.
    next_number: u64,
}

/// Returns the stem of the file names for a cache key of a domain. The stem is the SHA-256 digest of the
/// domain and the cache key.
pub(crate) fn key(domain: &Domain, cache_key: &str) -> String {
    let mut sum = Hasher::new(ChecksumAlgorithm::Sha256);
    sum.update(domain.as_str().as_bytes());
    sum.update(b"\0");
    sum.update(cache_key.as_bytes());
    sum.into_hex()
}

impl Cache {
    /// Opens a cache folder and loads its records. Deletes files that do not belong to a complete archive.
    pub(crate) fn open(folder: PathBuf, max_bytes: u64) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let mut found: Vec<(SystemTime, String, CachedArchive)> = vec![];
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(&folder)? {
            let (entry, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
            let name = name.to_string_lossy().into_owned();
            match name.strip_suffix(RECORD_SUFFIX) {
                Some(key) => match read_record(&entry) {
                    Some(kept) => found.push((entry.metadata()?.modified()?, key.to_owned(), kept)),
                    None => fs::remove_file(&entry)?,
                },
                None => drop(files.insert(name, entry)),
            }
        }
        found.sort_by_key(|(used, ..)| *used);
        let mut all = CacheIndex { next_number: first_free_number(files.keys()), ..CacheIndex::default() };
        for (_, key, kept) in found {
            let is_whole = |path: &PathBuf| path.metadata().is_ok_and(|file| file.len() == kept.bytes);
            if files.get(&kept.data).is_some_and(is_whole) {
                files.remove(&kept.data);
                let number = all.take_number();
                all.by_key.insert(key, (number, kept));
            } else {
                fs::remove_file(folder.join(format!("{key}{RECORD_SUFFIX}")))?;
            }
        }
        files.values().try_for_each(fs::remove_file)?;
        let cache = Self { folder, max_bytes, index: Mutex::new(all) };
        cache.evict();
        Ok(cache)
    }

    /// Returns the archive that is cached under a key, and its open file.
    pub(crate) fn find(&self, key: &str) -> Option<(CachedArchive, File)> {
        let kept = self.index().by_key.get(key).map(|(_, kept)| kept.clone())?;
        let file = File::open(self.folder.join(&kept.data));
        match file.and_then(|file| Ok((file.metadata()?.len() == kept.bytes).then_some(file))) {
            Ok(Some(file)) => Some((kept, file)),
            Ok(None) | Err(_) => {
                tracing::warn!(key, "a cached archive is damaged: downloading it again");
                self.remove(key);
                None
            }
        }
    }

    /// Marks the archive of a key as recently used.
    pub(crate) fn touch(&self, key: &str) {
        let mut all = self.index();
        let number = all.take_number();
        if let Some((used, _)) = all.by_key.get_mut(key) {
            *used = number;
        }
        drop(all);
        // If the write fails, the only consequence is a different eviction order after a restart.
        let touched = File::options().append(true).open(self.record_path(key));
        drop(touched.and_then(|file| file.set_modified(UNIX_EPOCH + Duration::from_nanos(clock::now().0))));
    }

    /// Moves an archive into the cache and replaces the previous archive of this key. An archive that is
    /// larger than the whole cache is not stored.
    pub(crate) fn insert(&self, key: &str, path: &Path, kept: CachedArchive) -> io::Result<()> {
        if kept.bytes > self.max_bytes {
            return Ok(());
        }
        let data = format!("{key}.{}", self.index().take_number());
        fs::rename(path, self.folder.join(&data))?;
        let kept = CachedArchive { data, ..kept };
        self.write(key, &kept)?;
        let mut all = self.index();
        let number = all.take_number();
        let before = all.by_key.insert(key.to_owned(), (number, kept));
        drop(all);
        if let Some((_, before)) = before {
            self.discard(&self.folder.join(before.data));
        }
        self.evict();
        Ok(())
    }

    /// Removes the archive of a key.
    pub(crate) fn remove(&self, key: &str) {
        let removed = self.index().by_key.remove(key);
        if let Some((_, kept)) = removed {
            self.discard(&self.record_path(key));
            self.discard(&self.folder.join(kept.data));
        }
    }

    /// Writes a record atomically. The file that the record names must already be written.
    fn write(&self, key: &str, kept: &CachedArchive) -> io::Result<()> {
        let new = self.folder.join(format!("{key}.new"));
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(kept)?)?;
        file.sync_all()?;
        fs::rename(&new, self.record_path(key))
    }

    /// Evicts the least recently used archives until the cache is within its size limit.
    fn evict(&self) {
        loop {
            let oldest = self.index().eviction_candidate(self.max_bytes);
            let Some(key) = oldest else { return };
            self.remove(&key);
        }
    }

    fn discard(&self, path: &Path) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "cannot remove a cached archive");
            }
            Ok(()) | Err(_) => {}
        }
    }

    fn record_path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}{RECORD_SUFFIX}"))
    }

    fn index(&self) -> MutexGuard<'_, CacheIndex> {
        self.index.lock()
    }
}

impl CacheIndex {
    fn take_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// Returns the least recently used key. `None` if the cache does not exceed `most_bytes`.
    fn eviction_candidate(&self, most_bytes: u64) -> Option<String> {
        let bytes: u64 = self.by_key.values().map(|(_, kept)| kept.bytes).sum();
        let oldest = self.by_key.iter().min_by_key(|(_, (used, _))| *used);
        oldest.filter(|_| bytes > most_bytes).map(|(key, _)| key.clone())
    }
}

fn read_record(path: &Path) -> Option<CachedArchive> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Returns the first number that no file name ends with.
fn first_free_number<'a>(names: impl Iterator<Item = &'a String>) -> u64 {
    let numbers = names.filter_map(|name| name.rsplit('.').next()?.parse::<u64>().ok());
    numbers.max().map_or(0, |last| last + 1)
}
