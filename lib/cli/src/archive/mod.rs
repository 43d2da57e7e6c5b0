//! Export and import of the whole log, shared by `muster export`, `import`, `audit`, `bundle` and `dev
//! --from-export`.

pub(crate) mod export;
pub(crate) mod file;
pub mod import;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
pub(crate) mod range;
pub(crate) mod source;

use std::path::Path;
use std::time::Duration;

use ::journal::{Journal, JournalError, StoredEntry};
use audit::Message;
use cli_base::failure::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use projections::reader::founded_cluster;
use runtime::exit::Exit;
use schemas::names::ClusterId;
use schemas::{Entry, Subject};
use text::chain;

/// Returns the cluster that owns a journal.
///
/// # Errors
/// The journal cannot be read, or contains no cluster.
pub(crate) async fn cluster_of(journal: &Journal) -> Result<ClusterId, Failure> {
    if let Some(known) = known_cluster(journal).await? {
        return Ok(known);
    }
    // If a server cannot read an entry, it answers as if the entry did not exist.
    journal.check_readable().await.map_err(unreadable)?;
    Err(failed("no cluster in the journal: it is empty, or was never founded"))
}

/// Returns the cluster that owns a journal. `None` if the journal contains no founding entry.
///
/// # Errors
/// The journal cannot be read.
pub(crate) async fn known_cluster(journal: &Journal) -> Result<Option<ClusterId>, Failure> {
    let id = journal.find(&Subject::Cluster, |one| founded_cluster(&Entry::decode(&one.bytes).ok()?)).await;
    id.map_err(unreadable)
}

/// Converts a journal record to an audit message.
pub(crate) fn to_message(recorded: StoredEntry) -> Message {
    let StoredEntry { position, subject, entry, bytes } = recorded;
    Message { position, subject, id: entry, bytes: bytes.to_vec() }
}

/// Converts an audit message to a journal record.
pub(crate) fn to_recorded(message: Message) -> StoredEntry {
    let Message { position, subject, id, bytes } = message;
    StoredEntry { position, subject, entry: id, bytes: bytes.into() }
}

/// Creates a progress bar on standard error. The bar is hidden if standard error is not a terminal.
pub(crate) fn progress_bar(total: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    // The template is a valid constant, so this does not fail.
    let template = "{msg} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Runs `work` until it is complete or the user interrupts it. Unfinished work is dropped.
///
/// # Errors
/// The work failed, or the user interrupted it.
pub(crate) async fn until_interrupted<T>(
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        done = work => done,
        interrupted = tokio::signal::ctrl_c() => match interrupted {
            Ok(()) => Err(Failure::new(Exit::Interrupted, "Cancelled", "interrupted before it was complete")),
            Err(error) => Err(failed(format!("can't install signal handlers: {error}"))),
        },
    }
}

/// Converts an error from opening or reading a file.
pub(crate) fn file_failure(error: &std::io::Error, path: &Path) -> Failure {
    if error.kind() == std::io::ErrorKind::NotFound {
        return Failure::not_found(format!("the file {}", path.display()));
    }
    failed(format!("can't read {}: {error}", path.display()))
}

pub(crate) fn unreadable(error: JournalError) -> Failure {
    Failure::new(Exit::Failed, "Journal", chain(&error))
}

pub(crate) fn failed(why: impl Into<String>) -> Failure {
    Failure::new(Exit::Failed, "Failed", why)
}
