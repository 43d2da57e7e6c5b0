//! Several keys, and the file that holds them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
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

/// Keys by their ids. The last one seals.
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

    /// The key that seals.
    #[must_use]
    pub fn sealing(&self) -> Option<&Key> {
        self.keys.last()
    }

    /// The key of an id.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.id() == id)
    }

    /// Every key, the one that seals last.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Adds a key that only opens, until it is told to seal; the first one seals.
    pub fn add(&mut self, key: Key) {
        let before_last = self.keys.len().saturating_sub(1);
        self.keys.insert(before_last, key);
    }

    /// Has a key seal from now on. False: it isn't there.
    pub fn seal_with(&mut self, id: &str) -> bool {
        let taken = self.take(id);
        let there = taken.is_some();
        self.keys.extend(taken);
        there
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
        Self::read_owned(path).map(|(ring, _)| ring)
    }

    fn read_owned(path: &Path) -> Result<(Self, Owner), FileError> {
        let unreadable = |source| FileError::Unreadable { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let meta = file.metadata().map_err(unreadable)?;
        let mode = meta.mode() & 0o777;
        if meta.is_file() && mode & OTHERS != 0 {
            return Err(FileError::Open { path: path.to_owned(), mode });
        }
        let mut text = String::new();
        file.take(FILE_BYTES).read_to_string(&mut text).map_err(unreadable)?;
        let ring = Self::parse(&text).map_err(|why| FileError::Malformed { path: path.to_owned(), why })?;
        Ok((ring, Owner::of(&meta)))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let stored: Stored = toml::from_str(text).map_err(|error| {
            // The words of the error may quote what stands there.
            let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or_default());
            format!("line {} is wrong", before.matches('\n').count() + 1)
        })?;
        let mut ring = Self::default();
        // In the order of the file: who is last seals.
        for StoredKey { id, made, bytes } in stored.key {
            let bytes = BASE64.decode(bytes.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
            let key = bytes.map(|bytes| Key::new(bytes, Timestamp::from_seconds(made)));
            match key.filter(|key| key.id() == id) {
                None => return Err(format!("key {id:?} is damaged")),
                Some(key) if ring.find(key.id()).is_some() => {
                    return Err(format!("key {} is there twice", key.id()));
                }
                Some(key) => ring.keys.push(key),
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
        let mut draft = Draft::begin(path)?;
        draft.write(self)?;
        // A link is made only where there is nothing: what somebody else made meanwhile is not replaced.
        match fs::hard_link(&draft.path, path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(FileError::Exists { path: path.to_owned() })
            }
            linked => linked.and_then(|()| sync_folder(path)).map_err(|source| unwritable(path, source)),
        }
    }

    /// Changes a file of keys, whole or not at all; it keeps its owner. Of several that change it at the same time one
    /// does and the others are refused, so that no key of one is lost by another. If `change` fails, nothing is changed.
    ///
    /// # Errors
    /// It can't be read or written, somebody else changes it, or what `change` says.
    pub fn change<T, E: From<FileError>>(
        path: &Path,
        change: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        // What is a link stays one.
        let path = &fs::canonicalize(path)
            .map_err(|source| FileError::Unreadable { path: path.to_owned(), source })?;
        // It is read when nobody else can change it any more.
        let mut draft = Draft::begin(path)?;
        let (mut ring, owner) = Self::read_owned(path)?;
        let changed = change(&mut ring)?;
        draft.write(&ring)?;
        draft.give_to(owner)?;
        draft.take_place()?;
        Ok(changed)
    }
}

/// What is written before it takes the place of a file of keys. While it is there nobody else changes that; what isn't put in
/// its place is removed.
struct Draft<'a> {
    of: &'a Path,
    path: PathBuf,
    file: File,
    /// Whether it still stands under its own name, and not in the place of the file.
    stands: bool,
}

impl<'a> Draft<'a> {
    fn begin(of: &'a Path) -> Result<Self, FileError> {
        let mut name = of.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let path = of.with_file_name(name);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => Ok(Self { of, path, file, stands: true }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(FileError::Busy { path: of.to_owned(), draft: path })
            }
            Err(source) => Err(unwritable(of, source)),
        }
    }

    fn write(&mut self, ring: &Ring) -> Result<(), FileError> {
        let written = self.file.write_all(ring.text().as_bytes()).and_then(|()| self.file.sync_all());
        written.map_err(|source| unwritable(self.of, source))
    }

    /// Whoever reads the file now reads it afterwards, also if it is root who changes it.
    fn give_to(&self, owner: Owner) -> Result<(), FileError> {
        let own = |meta: fs::Metadata| Owner::of(&meta) == owner;
        let given = self.file.metadata().and_then(|meta| {
            if own(meta) { Ok(()) } else { fchown(&self.file, Some(owner.user), Some(owner.group)) }
        });
        given.map_err(|source| unwritable(self.of, source))
    }

    fn take_place(mut self) -> Result<(), FileError> {
        let unwritable = |source| unwritable(self.of, source);
        fs::rename(&self.path, self.of).map_err(unwritable)?;
        // Somebody else's draft may stand there from now on.
        self.stands = false;
        sync_folder(self.of).map_err(unwritable)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if self.stands {
            // What went wrong before is told; what is left is in the way of the next change, which says so.
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Whose a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    user: u32,
    group: u32,
}

impl Owner {
    fn of(meta: &fs::Metadata) -> Self {
        Self { user: meta.uid(), group: meta.gid() }
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
