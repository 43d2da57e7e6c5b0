//! Secrets keys of a program, reloaded when their file changes.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use schemas::action::{Sealed, Secret};
use schemas::secret::Binding;

use crate::key::FORMAT;
use crate::ring::{FileError, Ring};

/// Secrets keys of a program: the keys of a key file, or no keys. The file is read again after every change,
/// so added and removed keys take effect without a restart. While the file is unusable, the program seals and
/// opens no secrets.
#[derive(Clone, Debug, Default)]
pub struct Keys(Option<Arc<KeyFile>>);

#[derive(Debug)]
struct KeyFile {
    path: PathBuf,
    /// Keys, and the version of the file at the time of the read.
    read: Mutex<Option<(FileVersion, Arc<Ring>)>>,
}

/// Metadata that identifies a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileVersion {
    file: (u64, u64),
    size: u64,
    mode: u32,
    changed: (i64, i64),
    status_changed: (i64, i64),
}

impl FileVersion {
    fn from_metadata(meta: &Metadata) -> Self {
        Self {
            file: (meta.dev(), meta.ino()),
            size: meta.len(),
            mode: meta.mode(),
            changed: (meta.mtime(), meta.mtime_nsec()),
            status_changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// Error of sealing a secret. The message is a predicate that follows the name of the value.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// No key file is configured, or the file contains no key.
    #[error(
        "is a secret, but no key is configured to seal it: create one with muster secrets init FILE, and \
         start each BBS and rep with --secrets FILE"
    )]
    NoKey,
    /// The key file is unusable.
    #[error("is a secret, but the key file to seal it with is unusable")]
    KeyFile(#[source] FileError),
}

/// Error of opening a sealed value. The message is a predicate that follows the name of the value.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The program does not have the key.
    #[error("is sealed with key {0}, which is not available")]
    UnknownKey(String),
    /// The value was sealed for another place (its binding to an owner and a use), or is damaged.
    #[error("is sealed with key {0} for another place, or is damaged")]
    Foreign(String),
    /// The value is sealed in the format of another version of the program, or is damaged.
    #[error("is sealed with key {key} in format {format}: expected format {FORMAT}; set the secret again")]
    Format {
        /// Id of the key that sealed the value.
        key: String,
        format: u8,
    },
    /// The key file is unusable.
    #[error("is sealed with key {key}")]
    File {
        /// Id of the key that sealed the value.
        key: String,
        #[source]
        source: FileError,
    },
}

impl OpenError {
    /// Returns the error in one line. `who` names the program or cluster that lacks the key.
    #[must_use]
    pub fn describe_for(&self, who: &str) -> String {
        match self {
            Self::UnknownKey(key) => format!("is sealed with key {key}, which {who} does not have"),
            Self::Foreign(_) | Self::Format { .. } => self.to_string(),
            Self::File { key, source } => {
                format!("is sealed with key {key}, which {who} cannot read: {}", chain(source))
            }
        }
    }
}

impl SealError {
    /// Returns the error and its causes in one line.
    #[must_use]
    pub fn to_line(&self) -> String {
        chain(self)
    }
}

/// Returns an error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {}", chain(source)))
}

impl Keys {
    /// Returns the keys of a file.
    ///
    /// # Errors
    /// Returns the same errors as [`Ring::read`].
    pub fn from_file(path: &Path) -> Result<Self, FileError> {
        let file = KeyFile { path: path.to_owned(), read: Mutex::new(None) };
        file.current()?;
        Ok(Self(Some(Arc::new(file))))
    }

    /// Seals a text with the sealing key. Only [`Keys::open`] with the same place can open the result.
    ///
    /// # Errors
    /// Returns an error if the key is missing or the key file is unusable.
    pub fn seal(&self, place: &Binding, text: &str) -> Result<Sealed, SealError> {
        let ring = self.0.as_ref().ok_or(SealError::NoKey)?.current().map_err(SealError::KeyFile)?;
        ring.sealing_key().map(|key| key.seal(place, text)).ok_or(SealError::NoKey)
    }

    /// Opens a value that was sealed for this place.
    ///
    /// # Errors
    /// Returns an error if the key is missing, the value was sealed for another place, in another format or is
    /// damaged, or the key file is unusable.
    pub fn open(&self, place: &Binding, sealed: &Sealed) -> Result<String, OpenError> {
        let unknown = || OpenError::UnknownKey(sealed.key.clone());
        let file = self.0.as_ref().ok_or_else(unknown)?;
        let ring = file.current().map_err(|source| OpenError::File { key: sealed.key.clone(), source })?;
        let key = ring.find(&sealed.key).ok_or_else(unknown)?;
        key.open(place, sealed)
    }

    /// Returns the function that a BBS applies to the secrets of new processes and tasks before it decides.
    /// Open secrets are sealed. The function checks that this program can open each sealed secret, because
    /// the work could never run with an unreadable secret.
    pub fn sealer(&self) -> impl Fn(&Binding, &Secret) -> Result<Secret, String> {
        |place, secret| match secret {
            Secret::Plain(_) => Ok(secret.clone()),
            Secret::Open(text) => match self.seal(place, text) {
                Ok(sealed) => Ok(Secret::Sealed(Box::new(sealed))),
                Err(error) => Err(error.to_line()),
            },
            Secret::Sealed(sealed) => match self.open(place, sealed) {
                Ok(_) => Ok(secret.clone()),
                Err(error) => Err(error.describe_for("this cluster")),
            },
        }
    }

    /// Returns the text of a value, and opens the value if it is sealed.
    ///
    /// # Errors
    /// Returns the same errors as [`Keys::open`].
    pub fn text(&self, place: &Binding, secret: &Secret) -> Result<String, OpenError> {
        match secret {
            Secret::Plain(text) | Secret::Open(text) => Ok(text.to_string()),
            Secret::Sealed(sealed) => self.open(place, sealed),
        }
    }
}

impl KeyFile {
    /// Returns the current keys, after reading the file again if it has changed.
    fn current(&self) -> Result<Arc<Ring>, FileError> {
        let unreadable = |source: io::Error| FileError::Unreadable { path: self.path.clone(), source };
        let mut read = self.read.lock();
        let stamp = FileVersion::from_metadata(&fs::metadata(&self.path).map_err(unreadable)?);
        if let Some((known, ring)) = &*read
            && *known == stamp
        {
            return Ok(Arc::clone(ring));
        }
        // The old keys are dropped even if the changed file is unusable.
        *read = None;
        let ring = Arc::new(Ring::read(&self.path)?);
        *read = Some((stamp, Arc::clone(&ring)));
        Ok(ring)
    }
}
