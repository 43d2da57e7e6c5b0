//! Import of an export into an empty journal. Positions, bytes and state stay the same.

use std::path::Path;

use ::journal::{ImportError, Journal, Recorded};
use audit::Chain;
use audit::export::{Manifest, Taken};
use schemas::Position;

use super::file::Lines;
use super::source::Pages;
use super::{bar, failed, message, recorded, unreadable};
use crate::cli::failure::{Exit, Failure};
use crate::error::chain;

/// Maximum number of messages, and of bytes, in one batch.
const AT_ONCE: (usize, usize) = (1_000, 8 * 1024 * 1024);

/// Validates a whole export, and returns its manifest. Writes nothing.
///
/// # Errors
/// The file is not an export, is incomplete or was altered, or does not start at position 1.
pub(crate) fn check(path: &Path) -> Result<Manifest, Failure> {
    let mut lines = Lines::open(path)?;
    let bytes = std::fs::metadata(path).map(|file| file.len()).unwrap_or_default();
    let bar = bar(bytes, "checking");
    let mut manifest = None;
    while let Some(taken) = lines.next_whole()? {
        match taken {
            Taken::Head(head) if head.from != Position(1) => {
                let why = format!(
                    "{} begins at position {}: only a log that begins at position 1 can be imported",
                    path.display(),
                    head.from
                );
                return Err(
                    Failure::usage(why).advise("export all of it: muster export FILE, without --from")
                );
            }
            Taken::Head(_) => {}
            Taken::Message(message) => bar.inc(u64::try_from(message.bytes.len()).unwrap_or_default()),
            Taken::Manifest(last) => manifest = Some(last),
        }
    }
    bar.finish_and_clear();
    manifest.ok_or_else(|| failed(format!("{} has no manifest", path.display())))
}

/// Imports an export into an empty journal. To resume an import, the journal may already contain the first
/// messages of the same file. Afterwards reads everything back and compares the hash.
///
/// # Errors
/// The journal contains other messages or cannot be written, or the file has changed since it was checked.
pub(crate) async fn import(
    journal: &Journal,
    path: &Path,
    manifest: &Manifest,
    goes_on: bool,
) -> Result<(), Failure> {
    let end = journal.end().await.map_err(unreadable)?;
    if end > Position(0) {
        check_begun(journal, path, end, goes_on).await?;
    }
    let mut lines = Lines::open(path)?;
    let (bar, mut batch, mut bytes) = (bar(manifest.count, "importing"), vec![], 0);
    bar.inc(end.0);
    while let Some(taken) = lines.next_whole()? {
        match taken {
            Taken::Message(message) if message.position > end => {
                bytes += message.bytes.len();
                batch.push(recorded(message));
                if batch.len() >= AT_ONCE.0 || bytes >= AT_ONCE.1 {
                    bar.inc(write(journal, std::mem::take(&mut batch)).await?);
                    bytes = 0;
                }
            }
            Taken::Manifest(now) if now != *manifest => {
                return Err(failed(format!("{} was changed while it was read", path.display())));
            }
            Taken::Head(_) | Taken::Message(_) | Taken::Manifest(_) => {}
        }
    }
    write(journal, batch).await?;
    bar.finish_and_clear();
    compare(journal, manifest).await
}

async fn write(journal: &Journal, batch: Vec<Recorded>) -> Result<u64, Failure> {
    let count = u64::try_from(batch.len()).unwrap_or_default();
    journal.import(batch).await.map_err(|error| {
        let failure = Failure::new(Exit::Failed, "Journal", chain(&error));
        match error {
            ImportError::NotNext { .. } => {
                failure.advise("somebody else writes to it: nobody may while it is imported")
            }
            ImportError::Refused { .. } => failure,
            ImportError::Journal(_) => failure
                .advise("what was written is whole: the same command with --continue goes on from there"),
        }
    })?;
    Ok(count)
}

/// Checks that the messages in a journal are those that the export starts with.
async fn check_begun(journal: &Journal, path: &Path, end: Position, goes_on: bool) -> Result<(), Failure> {
    let conflict = |why: String| Failure::new(Exit::Conflict, "NotEmpty", why);
    let mut lines = Lines::open(path)?;
    let mut pages = Pages::new(journal.clone(), Position(0), end);
    while let Some(there) = pages.next().await? {
        let position = there.position;
        let expected = loop {
            match lines.next_whole()? {
                Some(Taken::Message(message)) => break Some(message),
                Some(Taken::Head(_)) => {}
                Some(Taken::Manifest(_)) | None => break None,
            }
        };
        if expected != Some(message(there)) {
            let why = format!(
                "the journal is not empty: it ends at position {end}, and position {position} is not that of {}",
                path.display()
            );
            return Err(conflict(why).advise("import into a data folder or a stream of its own"));
        }
    }
    if goes_on {
        return Ok(());
    }
    let why = format!(
        "the journal is not empty: it ends at position {end}, and holds what {} begins with",
        path.display()
    );
    Err(conflict(why).advise("if that is an import that was interrupted, go on with it: --continue"))
}

/// Reads the journal back, and compares its end and hash with the manifest.
async fn compare(journal: &Journal, manifest: &Manifest) -> Result<(), Failure> {
    let end = journal.end().await.map_err(unreadable)?;
    let (mut pages, mut chain) = (Pages::new(journal.clone(), Position(0), end), Chain::default());
    let bar = bar(manifest.count, "comparing");
    while let Some(next) = pages.next().await? {
        chain.add(&message(next));
        bar.inc(1);
    }
    bar.finish_and_clear();
    if end == manifest.to && Some(chain.hash()) == manifest.chain {
        return Ok(());
    }
    let why = format!(
        "what the journal holds is not what was imported: it ends at position {end} with the hash {}, and position {} with \
         the hash {} was imported",
        chain.hash(),
        manifest.to,
        manifest.chain.map(|hash| hash.to_string()).unwrap_or_default()
    );
    Err(failed(why))
}
