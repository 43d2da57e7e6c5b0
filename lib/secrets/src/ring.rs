//! Several keys, and the file that holds them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use schemas::Timestamp;
use serde::{Deserialize, Serialize};

use crate::key::Key;

/// Largest file of keys that is read, in bytes: some thousands of them.
const FILE_BYTES: u64 = 1024 * 1024;
/// What a file begins with.
const HEADING: &str = "# The keys by which the secrets of a cluster are sealed: who can read this file can read them.\n\
                       # The last one seals; each opens what it sealed. Made by muster secrets.\n\n";
/// Permissions that a file of keys must not give: any to others.
const OTHERS: u32 = 0o077;

/// Why a file of keys can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It can't be read.
    #[error("the file of keys {} can't be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It can't be written.
    #[error("the file of keys {} can't be written", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others may read it.
    #[error(
        "the file of keys {0} is open to others (mode {mode:o}): chmod 600 {0}", path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is none, or spoiled. What stands in it is not told.
    #[error("{} is not a file of keys: {why}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It is there already.
    #[error("{} is there already, and is left as it is", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Somebody writes it at this moment, or was killed while doing so.
    #[error("{} is being changed: if nobody does so, remove {}", path.display(), draft.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// What is written first.
        draft: PathBuf,
    },
}

/// Keys by their ids, the oldest first.
#[derive(Debug, Default)]
pub struct Ring {
    keys: Vec<Key>,
}

/// A file of keys.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    key: Vec<StoredKey>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredKey {
    id: String,
    made: u64,
    bytes: String,
}

impl Ring {
    /// A ring of one key.
    #[must_use]
    pub fn of(key: Key) -> Self {
        Self { keys: vec![key] }
    }

    /// The key that seals: the newest.
    #[must_use]
    pub fn newest(&self) -> Option<&Key> {
        self.keys.last()
    }

    /// The key of an id.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.id() == id)
    }

    /// Every key, the oldest first.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Adds a key, which seals from now on.
    pub fn add(&mut self, key: Key) {
        self.keys.push(key);
    }

    /// Takes a key out; what it sealed is never opened again.
    pub fn take(&mut self, id: &str) -> Option<Key> {
        let at = self.keys.iter().position(|key| key.id() == id)?;
        Some(self.keys.remove(at))
    }

    /// Reads a file of keys.
    ///
    /// # Errors
    /// It can't be read, others can read it, or it is none.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let unreadable = |source| FileError::Unreadable { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let meta = file.metadata().map_err(unreadable)?;
        let mode = meta.mode() & 0o777;
        if meta.is_file() && mode & OTHERS != 0 {
            return Err(FileError::Open { path: path.to_owned(), mode });
        }
        let mut text = String::new();
        file.take(FILE_BYTES).read_to_string(&mut text).map_err(unreadable)?;
        Self::parse(&text).map_err(|why| FileError::Malformed { path: path.to_owned(), why })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let stored: Stored = toml::from_str(text).map_err(|error| {
            // The words of the error may quote what stands there.
            let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or_default());
            format!("line {} is wrong", before.matches('\n').count() + 1)
        })?;
        let mut ring = Self::default();
        for StoredKey { id, made, bytes } in stored.key {
            let bytes = BASE64.decode(bytes.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
            let key = bytes.map(|bytes| Key::new(bytes, Timestamp::from_seconds(made)));
            match key.filter(|key| key.id() == id) {
                None => return Err(format!("key {id:?} is damaged")),
                Some(key) if ring.find(key.id()).is_some() => {
                    return Err(format!("key {} is there twice", key.id()));
                }
                Some(key) => ring.add(key),
            }
        }
        Ok(ring)
    }

    fn text(&self) -> String {
        let key = |key: &Key| StoredKey {
            id: key.id().to_owned(),
            made: key.made().seconds(),
            bytes: BASE64.encode(key.bytes()),
        };
        let stored = Stored { key: self.keys.iter().map(key).collect() };
        format!("{HEADING}{}", toml::to_string(&stored).expect("text and numbers are TOML"))
    }

    /// Writes a new file of keys that only its owner may read.
    ///
    /// # Errors
    /// It can't be written, or is there already.
    pub fn create(&self, path: &Path) -> Result<(), FileError> {
        let draft = self.draft(path)?;
        // A link is made only where there is nothing: what somebody else made meanwhile is not replaced.
        let linked = fs::hard_link(&draft, path);
        fs::remove_file(&draft).map_err(|source| unwritable(path, source))?;
        match linked {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(FileError::Exists { path: path.to_owned() })
            }
            linked => linked.and_then(|()| sync_folder(path)).map_err(|source| unwritable(path, source)),
        }
    }

    /// Replaces a file of keys, whole or not at all.
    ///
    /// # Errors
    /// It can't be written.
    pub fn replace(&self, path: &Path) -> Result<(), FileError> {
        // What is a link stays one.
        let path = &fs::canonicalize(path).map_err(|source| unwritable(path, source))?;
        let draft = self.draft(path)?;
        fs::rename(&draft, path).and_then(|()| sync_folder(path)).map_err(|source| unwritable(path, source))
    }

    /// Writes the file under another name; who finds that there does nothing.
    fn draft(&self, path: &Path) -> Result<PathBuf, FileError> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let draft = path.with_file_name(name);
        let file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(FileError::Busy { path: path.to_owned(), draft });
            }
            opened => opened.map_err(|source| unwritable(path, source))?,
        };
        let write = |mut file: File| file.write_all(self.text().as_bytes()).and_then(|()| file.sync_all());
        match write(file) {
            Ok(()) => Ok(draft),
            Err(source) => {
                // The reason counts, not whether what is left can be removed as well.
                fs::remove_file(&draft).ok();
                Err(unwritable(path, source))
            }
        }
    }
}

fn unwritable(path: &Path, source: io::Error) -> FileError {
    FileError::Unwritable { path: path.to_owned(), source }
}

/// What was renamed is there after a crash, too.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
