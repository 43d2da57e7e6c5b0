//! Signing keys, and signing the current log.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use audit::Chain;
use audit::checkpoint::{Checkpoint, Key, PublicKey, Statement};
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::Output;
use runtime::exit::Exit;
use schemas::Position;
use schemas::names::ClusterId;
use serde::Serialize;

use super::super::journal_access::inspect_journal;
use crate::archive::source::Pages;
use crate::archive::{cluster_of, failed, progress_bar, to_message, unreadable};

/// Maximum number of bytes that are read from a key file.
const MAX_KEY_BYTES: u64 = 4 * 1024;
/// Mode bits that give access to the group and to other users.
const NON_OWNER_BITS: u32 = 0o077;

/// Answer of `muster audit keygen`.
#[derive(Serialize)]
struct CreatedKey {
    /// Key that verifies the signatures.
    public_key: String,
}

pub(super) fn keygen(file: &Path, global: &Global) -> Result<(), Failure> {
    let chance =
        clock::key().map_err(|error| failed(format!("can't read random bytes from the system: {error}")))?;
    let key = Key::from_bytes(&chance);
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let mut made = made.map_err(|error| {
        if error.kind() == ErrorKind::AlreadyExists {
            let why = format!(
                "{} already exists and keys are never overwritten: choose another file",
                file.display()
            );
            return Failure::new(Exit::Conflict, "ResourceExists", why);
        }
        failed(format!("can't create {}: {error}", file.display()))
    })?;
    made.write_all(key.secret_line().as_bytes())
        .and_then(|()| made.sync_all())
        .map_err(|error| failed(format!("can't write {}: {error}", file.display())))?;
    let public_key = key.public().to_string();
    Output::new(global).write_one(&CreatedKey { public_key }, |made, _| {
        format!("public key {}: share it with verifiers, and keep {} secret", made.public_key, file.display())
    })
}

/// Reads a key file. Returns an error if other users can access the file.
fn read_key(file: &Path) -> Result<Key, Failure> {
    let unreadable = |error: std::io::Error| {
        if error.kind() == ErrorKind::NotFound {
            return Failure::not_found(format!("the key {}", file.display()))
                .advise(format!("create one: muster audit keygen {}", file.display()));
        }
        failed(format!("can't read the key {}: {error}", file.display()))
    };
    let opened = std::fs::File::open(file).map_err(unreadable)?;
    let mode = opened.metadata().map_err(unreadable)?.mode() & 0o777;
    if mode & NON_OWNER_BITS != 0 {
        let why = format!("the key {} has mode {mode:04o}: other users can access it", file.display());
        return Err(failed(why).advise(format!("chmod 600 {}", file.display())));
    }
    let mut text = String::new();
    opened.take(MAX_KEY_BYTES).read_to_string(&mut text).map_err(unreadable)?;
    text.parse().map_err(|error| failed(format!("{}: {error}", file.display())))
}

pub(super) async fn sign(file: &Path, key_file: &Path, global: &Global) -> Result<(), Failure> {
    let key = read_key(key_file)?;
    let journal = inspect_journal(global).await?;
    let cluster = cluster_of(&journal).await?;
    let end = journal.end().await.map_err(unreadable)?;
    let before = CheckpointFile::open(file)?;
    before.check(cluster, end, key.public(), key_file)?;
    let mut pages = Pages::until_available_end(journal.clone(), Position(0), end);
    let (bar, mut held, mut chain) =
        (progress_bar(end.0, "hashing"), before.last.is_none(), Chain::default());
    while let Some(next) = pages.next().await? {
        check_next(chain.position(), next.position)?;
        chain.add(&to_message(next));
        if let Some(last) = before.last.as_ref().filter(|last| last.position == chain.position()) {
            held = last.hash == chain.hash();
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    check_next(chain.position(), Position(end.0 + 1))?;
    journal.close().await;
    if !held {
        let why = format!("the log does not match the last checkpoint in {}", file.display());
        let advice = format!("see what differs: muster audit verify --against {}", file.display());
        return Err(Failure::new(Exit::Found, "LogDiffers", why).advise(advice));
    }
    let (statement, line) = key.sign(cluster, &chain, clock::now(), before.line.as_deref());
    before.append(&line, file)?;
    Output::new(global).write_one(&statement, |statement, _| {
        let Statement { position, hash, key, .. } = statement;
        format!("position {position}, hash {hash}, signed by {key}")
    })
}

/// Returns an error if the log has a gap between two positions: a log with missing entries is never signed.
fn check_next(last: Position, next: Position) -> Result<(), Failure> {
    if next.0 == last.0 + 1 {
        return Ok(());
    }
    let why = format!("no entry at position {}: entries are lost", last.0 + 1);
    Err(Failure::new(Exit::Found, "LogDiffers", why).advise("list all findings: muster audit verify"))
}

/// State of a checkpoint file before a new line is appended.
struct CheckpointFile {
    /// `None` until the file is created, with its first line.
    file: Option<std::fs::File>,
    /// Last line of the file.
    line: Option<Vec<u8>>,
    last: Option<Statement>,
}

impl CheckpointFile {
    fn open(path: &Path) -> Result<Self, Failure> {
        let unusable = |error: std::io::Error| failed(format!("can't use {}: {error}", path.display()));
        let mut file = match OpenOptions::new().read(true).append(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self { file: None, line: None, last: None });
            }
            Err(error) => return Err(unusable(error)),
        };
        lock(&file, path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(unusable)?;
        let line = text.split_inclusive(|byte| *byte == b'\n').next_back().map(<[u8]>::to_vec);
        let read = line.as_deref().map(Checkpoint::read).transpose();
        let bad = |why: String| {
            failed(format!("invalid last line in {}: {why}", path.display()))
                .advise("append to another file, and find out what changed this one")
        };
        let last = read.map_err(|error| bad(error.to_string()))?;
        if last.as_ref().is_some_and(|last| !last.is_genuine()) {
            return Err(bad("the signature does not match its key".to_owned()));
        }
        if line.as_ref().is_some_and(|line| line.last() != Some(&b'\n')) {
            return Err(bad("the line is incomplete".to_owned()));
        }
        Ok(Self { file: Some(file), line, last: last.map(|last| last.checkpoint) })
    }

    /// Checks that the last checkpoint belongs to this log, that its position is not after the end of the
    /// log, and that it was signed with the same key. A key must not vouch for checkpoints that another key
    /// signed.
    fn check(
        &self,
        cluster: ClusterId,
        end: Position,
        key: PublicKey,
        key_file: &Path,
    ) -> Result<(), Failure> {
        let Some(last) = &self.last else { return Ok(()) };
        if last.key != key {
            let why = format!(
                "the last checkpoint of the file is signed by key {}, but {} holds key {key}",
                last.key,
                key_file.display()
            );
            return Err(Failure::new(Exit::Conflict, "OtherKey", why)
                .advise("append to another file, or pass the key that signed this one: --key FILE"));
        }
        if last.cluster != cluster {
            let why = format!(
                "the file holds checkpoints of cluster {}, but this is cluster {cluster}",
                last.cluster
            );
            return Err(Failure::new(Exit::Conflict, "OtherCluster", why));
        }
        if last.position > end {
            let why = format!(
                "the log ends at position {end}, but the last checkpoint covers position {}: entries are lost",
                last.position
            );
            return Err(Failure::new(Exit::Found, "LogDiffers", why));
        }
        Ok(())
    }

    /// Appends a line. A line that cannot be written completely is removed again.
    fn append(mut self, line: &[u8], path: &Path) -> Result<(), Failure> {
        let unwritten = |error: std::io::Error| failed(format!("can't write {}: {error}", path.display()));
        let (mut file, is_new) = match self.file.take() {
            Some(file) => (file, false),
            None => {
                let made = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path);
                (made.map_err(unwritten)?, true)
            }
        };
        if is_new {
            lock(&file, path)?;
        }
        let length = file.metadata().map_err(unwritten)?.len();
        let Err(error) = file.write_all(line).and_then(|()| file.sync_all()) else { return Ok(()) };
        let restored = if is_new {
            std::fs::remove_file(path)
        } else {
            file.set_len(length).and_then(|()| file.sync_all())
        };
        let left = match restored {
            Ok(()) => String::new(),
            Err(restoring) => format!("; can't truncate it to its previous {length} bytes: {restoring}"),
        };
        Err(failed(format!("can't write {}: {error}{left}", path.display())))
    }
}

/// Locks a file exclusively for this process.
fn lock(file: &std::fs::File, path: &Path) -> Result<(), Failure> {
    file.try_lock().map_err(|error| failed(format!("can't lock {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use audit::Hash;

    use super::*;

    #[test]
    fn checkpoint_file_is_validated_by_its_last_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoints.jsonl");
        let cluster = ClusterId(uuid::Uuid::nil());
        let key = Key::from_bytes(&[1; 32]);
        let first = CheckpointFile::open(&path).unwrap();
        assert!(first.last.is_none());
        assert!(!path.exists(), "the file is created with its first line");
        let chain = Chain::resume(Position(4), Hash::compute(b"x"));
        let (_, line) = key.sign(cluster, &chain, schemas::Timestamp(0), first.line.as_deref());
        first.append(&line, &path).unwrap();
        let next = CheckpointFile::open(&path).unwrap();
        assert_eq!(next.last.as_ref().map(|last| last.position), Some(Position(4)));
        let check = |cluster, end, key: &Key| {
            next.check(cluster, Position(end), key.public(), Path::new("audit.key"))
                .map_err(|failure| failure.message)
        };
        assert!(check(cluster, 4, &key).is_ok());
        assert!(check(cluster, 3, &key).unwrap_err().contains("entries are lost"));
        let other = ClusterId(uuid::Uuid::from_u128(1));
        assert!(check(other, 4, &key).unwrap_err().contains("checkpoints of cluster"));
        let told = check(cluster, 4, &Key::from_bytes(&[2; 32])).unwrap_err();
        assert!(told.contains(&format!("is signed by key {}", key.public())), "{told}");
        drop(next);
        std::fs::write(&path, b"{}\n").unwrap();
        assert!(CheckpointFile::open(&path).is_err());
    }
}
