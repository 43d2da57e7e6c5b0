//! The keys of a program.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use schemas::action::{Sealed, Secret};
use schemas::secret::Place;

use crate::ring::{FileError, Ring};

/// The keys of a program: none, or those of a file, which is read again whenever it has changed. So a key that was added seals,
/// and one that was forgotten is, without a start of the program; and where the file can't be used any more, nothing is sealed
/// or opened.
#[derive(Clone, Debug, Default)]
pub struct Keys(Option<Arc<OfFile>>);

#[derive(Debug)]
struct OfFile {
    path: PathBuf,
    /// The keys, and which file they were read from.
    read: Mutex<Option<(Stamp, Arc<Ring>)>>,
}

/// What tells one version of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    size: u64,
    mode: u32,
    changed: (i64, i64),
    status_changed: (i64, i64),
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Self {
            file: (meta.dev(), meta.ino()),
            size: meta.len(),
            mode: meta.mode(),
            changed: (meta.mtime(), meta.mtime_nsec()),
            status_changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// Why a secret can't be sealed.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// There is no key.
    #[error(
        "is a secret, and there is no key to seal it with: make one by muster secrets init FILE, and start each BBS and rep with \
         --secrets FILE"
    )]
    NoKey,
    /// The file can't be used.
    #[error("is a secret, and there is no key to seal it with")]
    File(#[source] FileError),
}

/// Why a sealed value can't be opened. Who tells it says which value, and who lacks what.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The key isn't there.
    #[error("is sealed with key {0}, which is not there")]
    UnknownKey(String),
    /// It was sealed for another place, or is damaged.
    #[error("is sealed with key {0} for something else, or is damaged")]
    Foreign(String),
    /// The file can't be used.
    #[error("is sealed with key {key}")]
    File {
        /// The key.
        key: String,
        /// Why it isn't there.
        #[source]
        source: FileError,
    },
}

impl OpenError {
    /// The same in one line, as somebody tells it who lacks the key.
    #[must_use]
    pub fn told_by(&self, who: &str) -> String {
        match self {
            Self::UnknownKey(key) => format!("is sealed with key {key}, which {who} doesn't have"),
            Self::Foreign(_) => self.to_string(),
            Self::File { key, source } => {
                format!("is sealed with key {key}, which {who} can't get: {}", chain(source))
            }
        }
    }
}

impl SealError {
    /// The same in one line.
    #[must_use]
    pub fn told(&self) -> String {
        chain(self)
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {}", chain(source)))
}

impl Keys {
    /// The keys of a file.
    ///
    /// # Errors
    /// See [`Ring::read`].
    pub fn of_file(path: &Path) -> Result<Self, FileError> {
        let file = OfFile { path: path.to_owned(), read: Mutex::new(None) };
        file.ring()?;
        Ok(Self(Some(Arc::new(file))))
    }

    /// Seals a text for a place, with the key that seals.
    ///
    /// # Errors
    /// There is no key, or the file can't be used any more.
    pub fn seal(&self, place: &Place, text: &str) -> Result<Sealed, SealError> {
        let ring = self.0.as_ref().ok_or(SealError::NoKey)?.ring().map_err(SealError::File)?;
        ring.sealing().map(|key| key.seal(place, text)).ok_or(SealError::NoKey)
    }

    /// Opens what was sealed for a place.
    ///
    /// # Errors
    /// Its key isn't there, it was sealed for another place, or the file can't be used any more.
    pub fn open(&self, place: &Place, sealed: &Sealed) -> Result<String, OpenError> {
        let unknown = || OpenError::UnknownKey(sealed.key.clone());
        let file = self.0.as_ref().ok_or_else(unknown)?;
        let ring = file.ring().map_err(|source| OpenError::File { key: sealed.key.clone(), source })?;
        let key = ring.find(&sealed.key).ok_or_else(unknown)?;
        key.open(place, sealed).ok_or_else(|| OpenError::Foreign(sealed.key.clone()))
    }

    /// What a BBS does to the secrets of what is desired before anything is decided: what is open is sealed, and what is sealed
    /// already must be openable here, else it would never run.
    pub fn hand(&self) -> impl Fn(&Place, &Secret) -> Result<Secret, String> {
        |place, secret| match secret {
            Secret::Plain(_) => Ok(secret.clone()),
            Secret::Open(text) => match self.seal(place, text) {
                Ok(sealed) => Ok(Secret::Sealed(Box::new(sealed))),
                Err(error) => Err(error.told()),
            },
            Secret::Sealed(sealed) => match self.open(place, sealed) {
                Ok(_) => Ok(secret.clone()),
                Err(error) => Err(error.told_by("this cluster")),
            },
        }
    }

    /// The text of a value, whether it is secret or not.
    ///
    /// # Errors
    /// See [`Keys::open`].
    pub fn text(&self, place: &Place, secret: &Secret) -> Result<String, OpenError> {
        match secret {
            Secret::Plain(text) | Secret::Open(text) => Ok(text.to_string()),
            Secret::Sealed(sealed) => self.open(place, sealed),
        }
    }
}

impl OfFile {
    /// The keys as they are now.
    fn ring(&self) -> Result<Arc<Ring>, FileError> {
        let unreadable = |source: io::Error| FileError::Unreadable { path: self.path.clone(), source };
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(&fs::metadata(&self.path).map_err(unreadable)?);
        if let Some((known, ring)) = &*read
            && *known == stamp
        {
            return Ok(Arc::clone(ring));
        }
        // What was read before is forgotten also where the file has become unusable.
        *read = None;
        let ring = Arc::new(Ring::read(&self.path)?);
        *read = Some((stamp, Arc::clone(&ring)));
        Ok(ring)
    }
}
