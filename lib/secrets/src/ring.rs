//! Key ring, and the file that stores it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use schemas::Timestamp;
use serde::{Deserialize, Serialize};

use crate::key::Key;

/// Maximum number of bytes read from a key file, enough for some thousands of keys.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Comment at the top of a key file.
const FILE_HEADER: &str = "# Keys that seal the secrets of a cluster. A reader of this file can decrypt them.\n\
                       # The last key seals. Each key opens what it sealed. Managed by muster secrets.\n\n";
/// Mode bits that a key file must not have: any access by other users.
const OTHERS_ACCESS: u32 = 0o077;

/// Error of reading or writing a key file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read the key file {}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("cannot write the key file {}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    /// Other users have access to the file.
    #[error(
        "the key file {0} is accessible to other users (mode {mode:o}): chmod 600 {0}", path.display()
    )]
    AccessibleToOthers {
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
    /// The content is not a valid key file. The message quotes no key.
    #[error("{} is not a valid key file: {why}", path.display())]
    Malformed { path: PathBuf, why: String },
    #[error("{} already exists and was not changed", path.display())]
    Exists { path: PathBuf },
    /// Another process is changing the file, or was killed while changing it.
    #[error("{} is being changed by another process: if no muster secrets command is running, \
             remove {}", path.display(), draft.display())]
    Busy {
        path: PathBuf,
        /// Temporary file that is written first.
        draft: PathBuf,
    },
}

/// Key ring: keys by id. The last key is the sealing key, which encrypts secrets. All keys open (decrypt)
/// secrets.
#[derive(Debug, Default)]
pub struct Ring {
    keys: Vec<Key>,
}

/// Serialized form of a key file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRing {
    key: Vec<StoredKey>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredKey {
    id: String,
    created_at: u64,
    bytes: String,
}

impl Ring {
    /// Creates a ring of one key.
    #[must_use]
    pub fn from_key(key: Key) -> Self {
        Self { keys: vec![key] }
    }

    /// Returns the sealing key, or `None` if the ring is empty.
    #[must_use]
    pub fn sealing_key(&self) -> Option<&Key> {
        self.keys.last()
    }

    /// Returns the key with this id.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.id() == id)
    }

    /// Returns all keys. The last key is the sealing key.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Adds a key. The first key of a ring becomes the sealing key. A later key only opens secrets, until
    /// [`Ring::seal_with`] selects it.
    pub fn add(&mut self, key: Key) {
        let before_last = self.keys.len().saturating_sub(1);
        self.keys.insert(before_last, key);
    }

    /// Selects the sealing key. Returns `false` if the ring does not contain the key.
    pub fn seal_with(&mut self, id: &str) -> bool {
        let taken = self.take(id);
        let there = taken.is_some();
        self.keys.extend(taken);
        there
    }

    /// Removes and returns a key. Values that were sealed with this key can't be opened afterwards.
    pub fn take(&mut self, id: &str) -> Option<Key> {
        let at = self.keys.iter().position(|key| key.id() == id)?;
        Some(self.keys.remove(at))
    }

    /// Reads a key file.
    ///
    /// # Errors
    /// Returns an error if the file can't be read, other users have access to it, or it is malformed.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Self::read_owned(path).map(|(ring, _)| ring)
    }

    fn read_owned(path: &Path) -> Result<(Self, Owner), FileError> {
        let unreadable = |source| FileError::Unreadable { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let meta = file.metadata().map_err(unreadable)?;
        let mode = meta.mode() & 0o777;
        if meta.is_file() && mode & OTHERS_ACCESS != 0 {
            return Err(FileError::AccessibleToOthers { path: path.to_owned(), mode });
        }
        let mut text = String::new();
        file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(unreadable)?;
        let ring = Self::parse(&text).map_err(|why| FileError::Malformed { path: path.to_owned(), why })?;
        Ok((ring, Owner::from_metadata(&meta)))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let stored: StoredRing = toml::from_str(text).map_err(|error| {
            // The parser's message may quote the content, so only the line number is reported.
            let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or_default());
            format!("line {} is invalid", before.matches('\n').count() + 1)
        })?;
        let mut ring = Self::default();
        // The order of the file is kept, because the last key is the sealing key.
        for StoredKey { id, created_at, bytes } in stored.key {
            let bytes = BASE64.decode(bytes.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
            let key = bytes.map(|bytes| Key::new(bytes, Timestamp::from_seconds(created_at)));
            match key.filter(|key| key.id() == id) {
                None => return Err(format!("key {id:?} is damaged")),
                Some(key) if ring.find(key.id()).is_some() => {
                    return Err(format!("duplicate key {}", key.id()));
                }
                Some(key) => ring.keys.push(key),
            }
        }
        Ok(ring)
    }

    fn to_toml(&self) -> String {
        let key = |key: &Key| StoredKey {
            id: key.id().to_owned(),
            created_at: key.created().seconds(),
            bytes: BASE64.encode(key.bytes()),
        };
        let stored = StoredRing { key: self.keys.iter().map(key).collect() };
        format!("{FILE_HEADER}{}", toml::to_string(&stored).expect("text and numbers are TOML"))
    }

    /// Writes a new key file that only its owner may read.
    ///
    /// # Errors
    /// Returns an error if the file already exists or can't be written.
    pub fn create(&self, path: &Path) -> Result<(), FileError> {
        let mut draft = Draft::begin(path)?;
        draft.write(self)?;
        // A hard link never replaces an existing file, so a file created by another process is kept.
        match fs::hard_link(&draft.path, path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(FileError::Exists { path: path.to_owned() })
            }
            linked => linked.and_then(|()| sync_folder(path)).map_err(|source| unwritable(path, source)),
        }
    }

    /// Changes a key file atomically and keeps its owner. Of several concurrent changes only one succeeds and
    /// the others are refused, so that no key is lost. If `change` fails, the file is not changed.
    ///
    /// # Errors
    /// Returns an error if the file can't be read or written, or another process is changing it. Also returns
    /// the error of `change`.
    pub fn change<T, E: From<FileError>>(
        path: &Path,
        change: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        // If the path is a link, the target of the link is changed and the link is kept.
        let path = &fs::canonicalize(path)
            .map_err(|source| FileError::Unreadable { path: path.to_owned(), source })?;
        // The file is read while the draft exists, because no other process can change the file then.
        let mut draft = Draft::begin(path)?;
        let (mut ring, owner) = Self::read_owned(path)?;
        let changed = change(&mut ring)?;
        draft.write(&ring)?;
        draft.set_owner(owner)?;
        draft.commit()?;
        Ok(changed)
    }
}

/// Temporary file that replaces a key file. Other changes of the key file are refused while the draft exists.
/// Dropping a draft that has not replaced the file removes it.
struct Draft<'a> {
    target: &'a Path,
    path: PathBuf,
    file: File,
    /// The draft still exists under its own name and has not replaced the file.
    pending: bool,
}

impl<'a> Draft<'a> {
    fn begin(target: &'a Path) -> Result<Self, FileError> {
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let path = target.with_file_name(name);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => Ok(Self { target, path, file, pending: true }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(FileError::Busy { path: target.to_owned(), draft: path })
            }
            Err(source) => Err(unwritable(target, source)),
        }
    }

    fn write(&mut self, ring: &Ring) -> Result<(), FileError> {
        let written = self.file.write_all(ring.to_toml().as_bytes()).and_then(|()| self.file.sync_all());
        written.map_err(|source| unwritable(self.target, source))
    }

    /// Gives the draft the owner of the key file, so that the same user can read the file after root has
    /// changed it.
    fn set_owner(&self, owner: Owner) -> Result<(), FileError> {
        let own = |meta: fs::Metadata| Owner::from_metadata(&meta) == owner;
        let given = self.file.metadata().and_then(|meta| {
            if own(meta) { Ok(()) } else { fchown(&self.file, Some(owner.user), Some(owner.group)) }
        });
        given.map_err(|source| unwritable(self.target, source))
    }

    fn commit(mut self) -> Result<(), FileError> {
        let unwritable = |source| unwritable(self.target, source);
        fs::rename(&self.path, self.target).map_err(unwritable)?;
        // From now on, a file with this name may be the draft of another process.
        self.pending = false;
        sync_folder(self.target).map_err(unwritable)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if self.pending {
            // An earlier error is already reported. If the draft can't be removed, the next change reports it
            // as `Busy`.
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Owner and group of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    user: u32,
    group: u32,
}

impl Owner {
    fn from_metadata(meta: &fs::Metadata) -> Self {
        Self { user: meta.uid(), group: meta.gid() }
    }
}

fn unwritable(path: &Path, source: io::Error) -> FileError {
    FileError::Unwritable { path: path.to_owned(), source }
}

/// Syncs the folder that contains a path, so that a new name in it survives a crash.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
