//! Import of an export into an empty journal. Positions, bytes and state stay the same.

use std::path::Path;

use ::journal::{ImportError, Journal, StoredEntry};
use audit::Chain;
use audit::export::{Manifest, ParsedLine};
use cli_base::failure::Failure;
use runtime::exit::Exit;
use schemas::Position;
use text::chain;

use super::file::ExportReader;
use super::source::Pages;
use super::{failed, progress_bar, to_message, to_recorded, unreadable};

/// Maximum number of messages, and of bytes, in one batch.
const MAX_BATCH: (usize, usize) = (1_000, 8 * 1024 * 1024);

/// Validates a whole export, and returns its manifest. Writes nothing.
///
/// # Errors
/// The file is not an export, is incomplete, was altered, or does not start at position 1.
pub fn validate(path: &Path) -> Result<Manifest, Failure> {
    let mut lines = ExportReader::open(path)?;
    let bytes = std::fs::metadata(path).map(|file| file.len()).unwrap_or_default();
    let bar = progress_bar(bytes, "checking");
    let mut manifest = None;
    while let Some(taken) = lines.next_valid()? {
        match taken {
            ParsedLine::Header(head) if head.from != Position(1) => {
                let why = format!(
                    "{} starts at position {}: an export can be imported only if it starts at position 1",
                    path.display(),
                    head.from
                );
                return Err(
                    Failure::usage(why).advise("export the whole log: muster export FILE, without --from")
                );
            }
            ParsedLine::Header(_) => {}
            ParsedLine::Message(message) => bar.inc(u64::try_from(message.bytes.len()).unwrap_or_default()),
            ParsedLine::Manifest(last) => manifest = Some(last),
        }
    }
    bar.finish_and_clear();
    manifest.ok_or_else(|| failed(format!("{} has no manifest", path.display())))
}

/// Imports an export into an empty journal. When an import is resumed, the journal may already contain the
/// first messages of the same file. After the import, reads the whole journal back and compares its hash with
/// the manifest.
///
/// # Errors
/// The journal contains other messages or cannot be written, or the file has changed since its validation.
pub async fn import(
    journal: &Journal,
    path: &Path,
    manifest: &Manifest,
    resume: bool,
) -> Result<(), Failure> {
    let end = journal.end().await.map_err(unreadable)?;
    if end > Position(0) {
        check_existing(journal, path, end, resume).await?;
    }
    let mut lines = ExportReader::open(path)?;
    let (bar, mut batch, mut bytes) = (progress_bar(manifest.count, "importing"), vec![], 0);
    bar.inc(end.0);
    while let Some(taken) = lines.next_valid()? {
        match taken {
            ParsedLine::Message(message) if message.position > end => {
                bytes += message.bytes.len();
                batch.push(to_recorded(message));
                if batch.len() >= MAX_BATCH.0 || bytes >= MAX_BATCH.1 {
                    bar.inc(write(journal, std::mem::take(&mut batch)).await?);
                    bytes = 0;
                }
            }
            ParsedLine::Manifest(now) if now != *manifest => {
                return Err(failed(format!("{} changed while it was imported", path.display())));
            }
            ParsedLine::Header(_) | ParsedLine::Message(_) | ParsedLine::Manifest(_) => {}
        }
    }
    write(journal, batch).await?;
    bar.finish_and_clear();
    verify_written(journal, manifest).await
}

async fn write(journal: &Journal, batch: Vec<StoredEntry>) -> Result<u64, Failure> {
    let count = u64::try_from(batch.len()).unwrap_or_default();
    journal.import(batch).await.map_err(|error| {
        let failure = Failure::new(Exit::Failed, "Journal", chain(&error));
        match error {
            ImportError::NotNext { .. } => {
                failure.advise("another process writes to the journal: stop all services before an import")
            }
            ImportError::Refused { .. } => failure,
            ImportError::Journal(_) => {
                failure.advise("the entries written so far are complete: resume the import with --continue")
            }
        }
    })?;
    Ok(count)
}

/// Checks that the messages in a journal are equal to the first messages of the export.
async fn check_existing(journal: &Journal, path: &Path, end: Position, goes_on: bool) -> Result<(), Failure> {
    let conflict = |why: String| Failure::new(Exit::Conflict, "NotEmpty", why);
    let mut lines = ExportReader::open(path)?;
    let mut pages = Pages::new(journal.clone(), Position(0), end);
    while let Some(there) = pages.next().await? {
        let position = there.position;
        let expected = loop {
            match lines.next_valid()? {
                Some(ParsedLine::Message(message)) => break Some(message),
                Some(ParsedLine::Header(_)) => {}
                Some(ParsedLine::Manifest(_)) | None => break None,
            }
        };
        if expected != Some(to_message(there)) {
            let why = format!(
                "the journal is not empty: it ends at position {end} and differs from {} \
                 at position {position}",
                path.display()
            );
            return Err(conflict(why).advise("import into an empty data folder or stream"));
        }
    }
    if goes_on {
        return Ok(());
    }
    let why = format!(
        "the journal is not empty: it ends at position {end} and matches the start of {}",
        path.display()
    );
    Err(conflict(why).advise("to resume an interrupted import: --continue"))
}

/// Reads the journal back, and compares its end and hash with the manifest.
async fn verify_written(journal: &Journal, manifest: &Manifest) -> Result<(), Failure> {
    let end = journal.end().await.map_err(unreadable)?;
    let (mut pages, mut chain) = (Pages::new(journal.clone(), Position(0), end), Chain::default());
    let bar = progress_bar(manifest.count, "comparing");
    while let Some(next) = pages.next().await? {
        chain.add(&to_message(next));
        bar.inc(1);
    }
    bar.finish_and_clear();
    if end == manifest.to && Some(chain.hash()) == manifest.chain {
        return Ok(());
    }
    let why = format!(
        "the journal differs from the import: it ends at position {end} with hash {}; \
         expected position {} with hash {}",
        chain.hash(),
        manifest.to,
        manifest.chain.map(|hash| hash.to_string()).unwrap_or_default()
    );
    Err(failed(why))
}
