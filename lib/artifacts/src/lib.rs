//! Archives that a cell fetches for its containers and keeps for the next ones, and files that it sends for them
//! (docs/model.md, "Downloads and uploads").
//!
//! ```text
//!   data/artifacts/kept/KEY.json      an archive that is kept: where its bytes are, and what tells whether it changed
//!   data/artifacts/kept/KEY.NUMBER    its bytes
//!   data/artifacts/new/NUMBER         what is being fetched; removed when a store opens
//! ```
//!
//! `KEY` stands for a domain and a `cache_key`: no domain gets what another one fetched. An archive is written aside and
//! takes its place as a whole, so that a crash leaves the old one or the new one. It is asked for again each time, with what
//! the server said of it (`ETag`, `Last-Modified`): only what did not change is taken from the store.
//!
//! | the file | holds |
//! |---|---|
//! | [`limits`] | the limits |
//! | `web` | requests to where they may go, redirects, and which failures may pass |
//! | `fetch`, `send` | one download, one upload, with their attempts |
//! | `cache` | what is kept |
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
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use schemas::action::ChecksumAlgorithm;
use schemas::names::Domain;
use tokio::sync::Semaphore;

pub use error::{Error, Refused};

use cache::{Cache, Kept, key};
use fetch::{Got, fetch};
use web::Web;

/// Says whether a request may go somewhere, or why not.
pub type Judge = outbound::Judge<Refused>;

/// How a store is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where requests may go.
    pub judge: Judge,
    /// Bytes of archives that are kept, in all.
    pub cache_bytes: u64,
    /// Bytes of the largest archive that is fetched, and of the largest file that is sent.
    pub artifact_bytes: u64,
    /// Downloads and uploads at once.
    pub at_once: usize,
}

impl Default for Settings {
    /// The usual limits, and requests may go everywhere.
    fn default() -> Self {
        Self {
            judge: Judge::everywhere(),
            cache_bytes: limits::CACHE_BYTES,
            artifact_bytes: limits::ARTIFACT_BYTES,
            at_once: limits::AT_ONCE,
        }
    }
}

/// An archive that is wanted.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// For which domain.
    pub domain: &'a Domain,
    /// Where it is.
    pub url: &'a str,
    /// Whether nothing of the URL may be told.
    pub is_secret: bool,
    /// By which it is kept; empty: it isn't.
    pub cache_key: &'a str,
    /// What must come out, by which algorithm, in lower hexadecimal digits; none: it isn't checked.
    pub checksum: Option<(ChecksumAlgorithm, &'a str)>,
}

/// An archive that is here.
#[derive(Debug)]
pub struct Fetched {
    /// Its bytes, to be read from the first one on. The file stays readable whatever becomes of the store.
    pub file: File,
    /// How many.
    pub bytes: u64,
    /// Whether it was here before, and has not changed.
    pub kept: bool,
}

/// What a cell fetches, keeps and sends. One store at a time may have its folder.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    settings: Settings,
    web: Web,
    room: Semaphore,
    cache: Cache,
    /// Held by who fetches what is kept by this key, so that others find it.
    keys: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    next_number: AtomicU64,
}

impl Store {
    /// Opens the folder of a store, made if there is none, and removes what an earlier one left unfinished.
    ///
    /// # Errors
    /// The folder can't be read and written, or the certificates of the system can't be used.
    pub fn open(folder: PathBuf, settings: Settings) -> io::Result<Self> {
        let new = folder.join("new");
        match fs::remove_dir_all(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        fs::create_dir_all(&new)?;
        let cache = Cache::open(folder.join("kept"), settings.cache_bytes)?;
        let web = Web::new(settings.judge.clone()).map_err(io::Error::other)?;
        let room = Semaphore::new(settings.at_once);
        let (keys, next_number) = (Mutex::default(), AtomicU64::new(0));
        Ok(Self { folder, settings, web, room, cache, keys, next_number })
    }

    /// Fetches an archive, or finds that the one that is kept has not changed. To drop the future is to stop it.
    ///
    /// # Errors
    /// Why it can't be had; of a secret URL nothing is told.
    pub async fn fetch(&self, wanted: &Wanted<'_>) -> Result<Fetched, Error> {
        let within = tokio::time::timeout(limits::TOTAL, async {
            if wanted.cache_key.is_empty() {
                let _room = self.room.acquire().await.map_err(|_| Error::Stopping)?;
                return self.fetch_once(wanted).await;
            }
            let key = key(wanted.domain, wanted.cache_key);
            let turn = self.turn(&key);
            let _turn = turn.lock().await;
            let _room = self.room.acquire().await.map_err(|_| Error::Stopping)?;
            self.fetch_kept(wanted, &key).await
        });
        let fetched = within.await.unwrap_or(Err(Error::TooLong));
        self.forget_turns();
        fetched
    }

    /// Posts a file, with its MD5 as `Content-MD5` as Diego does. To drop the future is to stop it.
    ///
    /// # Errors
    /// Why it was not taken; of a secret URL nothing is told.
    pub async fn send(&self, file: File, url: &str, is_secret: bool) -> Result<u64, Error> {
        let within = tokio::time::timeout(limits::TOTAL, async {
            let _room = self.room.acquire().await.map_err(|_| Error::Stopping)?;
            send::send(&self.web, file, url, is_secret, self.settings.artifact_bytes).await
        });
        within.await.unwrap_or(Err(Error::TooLong))
    }

    /// Fetches what is not kept.
    async fn fetch_once(&self, wanted: &Wanted<'_>) -> Result<Fetched, Error> {
        let new = self.new_file();
        match fetch(&self.web, wanted, None, &new.path, self.settings.artifact_bytes).await? {
            Got::Whole(whole) => {
                Ok(Fetched { file: File::open(&new.path)?, bytes: whole.bytes, kept: false })
            }
            Got::Unchanged => Err(Error::Answered(304)),
        }
    }

    /// Fetches what is kept, unless it is here and has not changed.
    async fn fetch_kept(&self, wanted: &Wanted<'_>, key: &str) -> Result<Fetched, Error> {
        let mut known = self.cache.find(key);
        if let Some((kept, file)) = &mut known
            && !checked(kept, file, wanted).await?
        {
            // It is another archive than the one that is wanted now, whatever the server says.
            self.cache.remove(key);
            known = None;
        }
        let new = self.new_file();
        let changed = known.as_ref().map(|(kept, _)| &kept.changed);
        match (fetch(&self.web, wanted, changed, &new.path, self.settings.artifact_bytes).await?, known) {
            (Got::Unchanged, Some((kept, file))) => {
                self.cache.used(key);
                Ok(Fetched { file, bytes: kept.bytes, kept: true })
            }
            (Got::Unchanged, None) => Err(Error::Answered(304)),
            (Got::Whole(whole), _) => {
                let fetched = Fetched { file: File::open(&new.path)?, bytes: whole.bytes, kept: false };
                if whole.changed.tells() {
                    let mut kept = Kept::from(whole);
                    kept.checksum = wanted.checksum.map(|(by, value)| (by, value.to_owned()));
                    self.cache.keep(key, &new.path, kept)?;
                }
                Ok(fetched)
            }
        }
    }

    /// A path for what is fetched, at which nothing is left in the end.
    fn new_file(&self) -> NewFile {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        NewFile { path: self.folder.join("new").join(number.to_string()) }
    }

    fn turn(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(keys.entry(key.to_owned()).or_default())
    }

    /// Forgets the keys for which nobody waits.
    fn forget_turns(&self) {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|_, turn| Arc::strong_count(turn) > 1);
    }
}

/// Whether an archive that is kept is the one that is wanted, as far as its checksum tells.
async fn checked(kept: &Kept, file: &File, wanted: &Wanted<'_>) -> io::Result<bool> {
    let Some((by, value)) = wanted.checksum else { return Ok(true) };
    if kept.checksum.as_ref().is_some_and(|(known_by, known)| *known_by == by && known == value) {
        return Ok(true);
    }
    let file = file.try_clone()?;
    let found = tokio::task::spawn_blocking(move || digest::of_file(&file, by)).await;
    Ok(found.map_err(io::Error::other)?? == value)
}

/// What is being fetched: removed when nobody wants it any more, wherever that is given up.
struct NewFile {
    path: PathBuf,
}

impl Drop for NewFile {
    fn drop(&mut self) {
        match fs::remove_file(&self.path) {
            // It was never begun, or it is kept by another name.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "cannot remove what was fetched");
            }
            Ok(()) => {}
        }
    }
}
