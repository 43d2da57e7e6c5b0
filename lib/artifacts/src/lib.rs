//! Artifact transfers of a cell. The cell downloads and caches archives for its containers, and uploads files
//! of its containers (docs/internals/model/transfers.md, "Downloads and uploads").
//!
//! ```text
//!   data/artifacts/kept/KEY.json      record of a cached archive: its data file and its HTTP validators
//!   data/artifacts/kept/KEY.NUMBER    bytes of the archive
//!   data/artifacts/new/NUMBER         download in progress; removed when a store opens
//! ```
//!
//! `KEY` stands for a domain and a `cache_key`, so domains never share archives. An archive is written to a
//! temporary file and renamed. A crash therefore leaves either the old archive or the new archive. If an
//! archive is cached, the download is a conditional request with the validators of the cached archive
//! (`ETag`, `Last-Modified`). The cached archive is used only if the server reports that it is unchanged.
//!
//! | the file | holds |
//! |---|---|
//! | [`limits`] | the limits |
//! | `web` | permitted requests, redirects, and transient failures |
//! | `fetch`, `send` | one download, one upload, with their attempts |
//! | `cache` | the cache of archives |
//! | `digest` | checksums |

mod cache;
mod digest;
mod error;
mod fetch;
pub mod limits;
mod send;
mod web;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use schemas::action::ChecksumAlgorithm;
use schemas::names::Domain;
use tokio::sync::Semaphore;

pub use error::{Error, Refusal};

use cache::{Cache, CachedArchive, key};
use fetch::{Outcome, fetch};
use web::Web;

/// Policy that allows a request to a target, or returns the reason for a refusal.
pub type Judge = outbound::TargetPolicy<Refusal>;

/// Configuration of a store.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Rules for the targets of requests.
    pub judge: Judge,
    /// Maximum total size of the cached archives, in bytes.
    pub cache_bytes: u64,
    /// Maximum size of one transfer, a downloaded archive or an uploaded file, in bytes.
    pub artifact_bytes: u64,
    /// Maximum number of concurrent downloads and uploads.
    pub max_concurrent: usize,
}

impl Default for Settings {
    /// Default limits, with requests allowed to every target.
    fn default() -> Self {
        Self {
            judge: Judge::allow_all(),
            cache_bytes: limits::DEFAULT_CACHE_BYTES,
            artifact_bytes: limits::DEFAULT_ARTIFACT_BYTES,
            max_concurrent: limits::DEFAULT_MAX_CONCURRENT,
        }
    }
}

/// Archive to download.
#[derive(Clone, Debug)]
pub struct FetchRequest<'a> {
    /// Domain that the cache key belongs to.
    pub domain: &'a Domain,
    pub url: &'a str,
    /// `true` if the URL is secret. In that case, error messages contain no part of the URL.
    pub is_secret: bool,
    /// Cache key of the archive. Empty if the archive must not be cached.
    pub cache_key: &'a str,
    /// Expected checksum, in lower-case hexadecimal digits. `None` if the archive is not verified.
    pub checksum: Option<(ChecksumAlgorithm, &'a str)>,
}

/// Archive that is available locally.
#[derive(Debug)]
pub struct Fetched {
    /// Open file, positioned at its start. It stays readable after the store evicts the archive.
    pub file: File,
    /// Size of the archive in bytes.
    pub bytes: u64,
    /// `true` if the archive came from the cache and the server reported it unchanged.
    pub from_cache: bool,
}

/// Downloads, caches and uploads files for a cell. Only one store may use a folder at a time.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    settings: Settings,
    web: Web,
    permits: Semaphore,
    cache: Cache,
    /// Locks by cache key. A download holds the lock of its key. Concurrent requests for the same key wait
    /// for the lock, and find the archive in the cache.
    key_locks: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    next_number: AtomicU64,
}

impl Store {
    /// Opens a store's folder, creates it if necessary, and removes unfinished downloads of an earlier
    /// process.
    ///
    /// # Errors
    /// The folder cannot be read or written, or the system's certificates cannot be loaded.
    pub fn open(folder: PathBuf, settings: Settings) -> io::Result<Self> {
        let new = folder.join("new");
        match fs::remove_dir_all(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        fs::create_dir_all(&new)?;
        let cache = Cache::open(folder.join("kept"), settings.cache_bytes)?;
        let web = Web::new(settings.judge.clone()).map_err(io::Error::other)?;
        let permits = Semaphore::new(settings.max_concurrent);
        let (key_locks, next_number) = (Mutex::default(), AtomicU64::new(0));
        Ok(Self { folder, settings, web, permits, cache, key_locks, next_number })
    }

    /// Downloads an archive, or returns the cached archive if it has not changed. Dropping the future cancels
    /// the download.
    ///
    /// # Errors
    /// The reason that the archive is not available. The reason contains no part of a secret URL.
    pub async fn fetch(&self, wanted: &FetchRequest<'_>) -> Result<Fetched, Error> {
        let within = tokio::time::timeout(limits::TRANSFER_TIMEOUT, async {
            if wanted.cache_key.is_empty() {
                let _room = self.permits.acquire().await.map_err(|_| Error::Stopping)?;
                return self.fetch_uncached(wanted).await;
            }
            let key = key(wanted.domain, wanted.cache_key);
            let turn = self.key_lock(&key);
            let _turn = turn.lock().await;
            let _room = self.permits.acquire().await.map_err(|_| Error::Stopping)?;
            self.fetch_cached(wanted, &key).await
        });
        let fetched = within.await.unwrap_or(Err(Error::TimedOut));
        self.drop_unused_locks();
        fetched
    }

    /// Uploads a file by POST and returns its size in bytes. The header `Content-MD5` contains the MD5
    /// checksum of the file, as in Diego. Dropping the future cancels the upload.
    ///
    /// # Errors
    /// The reason that the upload failed. The reason contains no part of a secret URL.
    pub async fn send(&self, file: File, url: &str, is_secret: bool) -> Result<u64, Error> {
        let within = tokio::time::timeout(limits::TRANSFER_TIMEOUT, async {
            let _room = self.permits.acquire().await.map_err(|_| Error::Stopping)?;
            send::send(&self.web, file, url, is_secret, self.settings.artifact_bytes).await
        });
        within.await.unwrap_or(Err(Error::TimedOut))
    }

    /// Downloads an archive that has no cache key.
    async fn fetch_uncached(&self, wanted: &FetchRequest<'_>) -> Result<Fetched, Error> {
        let new = self.new_file();
        match fetch(&self.web, wanted, None, &new.path, self.settings.artifact_bytes).await? {
            Outcome::Downloaded(whole) => {
                Ok(Fetched { file: File::open(&new.path)?, bytes: whole.bytes, from_cache: false })
            }
            Outcome::Unchanged => Err(Error::UnexpectedStatus(304)),
        }
    }

    /// Downloads an archive that has a cache key, unless the cached archive is still current.
    async fn fetch_cached(&self, wanted: &FetchRequest<'_>, key: &str) -> Result<Fetched, Error> {
        let mut known = self.cache.find(key);
        if let Some((kept, file)) = &mut known
            && !checksum_matches(kept, file, wanted).await?
        {
            // The cached archive does not have the expected checksum. It cannot be used even if the server
            // reports it unchanged.
            self.cache.remove(key);
            known = None;
        }
        let new = self.new_file();
        let changed = known.as_ref().map(|(kept, _)| &kept.validators);
        match (fetch(&self.web, wanted, changed, &new.path, self.settings.artifact_bytes).await?, known) {
            (Outcome::Unchanged, Some((kept, file))) => {
                self.cache.touch(key);
                Ok(Fetched { file, bytes: kept.bytes, from_cache: true })
            }
            (Outcome::Unchanged, None) => Err(Error::UnexpectedStatus(304)),
            (Outcome::Downloaded(whole), _) => {
                let fetched = Fetched { file: File::open(&new.path)?, bytes: whole.bytes, from_cache: false };
                if whole.changed.is_present() {
                    let mut kept = CachedArchive::from(whole);
                    kept.checksum = wanted.checksum.map(|(by, value)| (by, value.to_owned()));
                    self.cache.insert(key, &new.path, kept)?;
                }
                Ok(fetched)
            }
        }
    }

    /// Returns a new path for a download. The file is removed on drop unless it was moved into the cache.
    fn new_file(&self) -> TempFile {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        TempFile { path: self.folder.join("new").join(number.to_string()) }
    }

    fn key_lock(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut keys = self.key_locks.lock();
        Arc::clone(keys.entry(key.to_owned()).or_default())
    }

    /// Drops the locks of keys that no download uses.
    fn drop_unused_locks(&self) {
        let mut keys = self.key_locks.lock();
        keys.retain(|_, turn| Arc::strong_count(turn) > 1);
    }
}

/// Returns `true` if the cached archive has the expected checksum, or if no checksum is expected.
async fn checksum_matches(kept: &CachedArchive, file: &File, wanted: &FetchRequest<'_>) -> io::Result<bool> {
    let Some((by, value)) = wanted.checksum else { return Ok(true) };
    if kept.checksum.as_ref().is_some_and(|(known_by, known)| *known_by == by && known == value) {
        return Ok(true);
    }
    let file = file.try_clone()?;
    let found = tokio::task::spawn_blocking(move || digest::file_checksum(&file, by)).await;
    Ok(found.map_err(io::Error::other)?? == value)
}

/// Path of a download in progress. The file is removed on drop, even if the download is cancelled.
struct TempFile {
    path: PathBuf,
}

impl Drop for TempFile {
    fn drop(&mut self) {
        match fs::remove_file(&self.path) {
            // The file was never created, or it was moved into the cache.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "cannot remove a downloaded file");
            }
            Ok(()) => {}
        }
    }
}
