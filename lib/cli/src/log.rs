//! `muster export` and `muster import`: copy the log to a file and back.

use std::path::Path;

use ::journal::{Journal, Sqlite, StreamSettings};
use audit::export::Manifest;
use cli_base::connect::{JournalLocation, journal_location, nats};
use cli_base::failure::Failure;
use cli_base::moment;
use cli_base::options::Global;
use cli_base::output::{Output, note};
use host::serve::identity;
use runtime::exit::Exit;
use schemas::Position;
use schemas::bus::Inbox;
use schemas::query::AsOf;
use text::chain;
use text::words::count;

use super::args::ExportFormat;
use super::journal_access::inspect_journal;
use crate::archive::export::EventCounts;
use crate::archive::file::Sink;
use crate::archive::range::{self, Range};
use crate::archive::{cluster_of, export, failed, import, until_interrupted};

pub(super) async fn export(
    file: &Path,
    (from, to): (Option<AsOf>, Option<AsOf>),
    format: ExportFormat,
    global: &Global,
) -> Result<(), Failure> {
    let doing = |failure: Failure| failure.while_doing("export the log");
    if format == ExportFormat::Parquet && cfg!(not(feature = "parquet")) {
        return Err(doing(no_parquet()));
    }
    let (from, to) = (from.map(moment::resolve).transpose()?, to.map(moment::resolve).transpose()?);
    let journal = inspect_journal(global).await.map_err(doing)?;
    let work = async {
        let range = range::find(&journal, from, to).await?;
        write(&journal, range, format, file, Output::new(global)).await
    };
    let done = until_interrupted(Box::pin(work)).await;
    journal.close().await;
    done.map_err(doing)
}

async fn write(
    journal: &Journal,
    range: Range,
    format: ExportFormat,
    file: &Path,
    output: Output,
) -> Result<(), Failure> {
    let cluster = cluster_of(journal).await?;
    let mut sink = Sink::create(file)?;
    let (manifest, told) = match format {
        ExportFormat::Jsonl => {
            let manifest = export::export_lines(journal, cluster, range, &mut sink).await?;
            (manifest, String::new())
        }
        ExportFormat::Cloudevents => {
            let (told, manifest) = export::export_events(journal, cluster, range, &mut sink).await?;
            (manifest, format!("; written as {}", event_summary(&told)))
        }
        #[cfg(not(feature = "parquet"))]
        ExportFormat::Parquet => return Err(no_parquet()),
        #[cfg(feature = "parquet")]
        ExportFormat::Parquet => {
            let (told, manifest) = export::export_columns(journal, cluster, range, &mut sink).await?;
            (manifest, format!("; written as columns of {}", event_summary(&told)))
        }
    };
    sink.finish()?;
    if file == Path::new("-") {
        // The export itself goes to standard output, so the summary does not.
        note(&summary(output, &manifest, &told)?);
        return Ok(());
    }
    output.write_one(&manifest, |manifest, _| manifest_summary(manifest) + &told)
}

fn no_parquet() -> Failure {
    Failure::usage("the format parquet is not available: this program was built without the feature parquet")
        .advise("use --format cloudevents, or build the program with cargo build --features parquet")
}

/// Returns the summary of an export for standard error: text for people, or the manifest for programs.
fn summary(output: Output, manifest: &Manifest, told: &str) -> Result<String, Failure> {
    if output.is_human_readable() {
        return Ok(manifest_summary(manifest) + told);
    }
    serde_json::to_string(manifest).map_err(|error| failed(error.to_string()))
}

fn event_summary(told: &EventCounts) -> String {
    let aside = match told.quarantined {
        0 => String::new(),
        some => format!("; {} without an entry", count(some, "message")),
    };
    format!("{}{aside}", count(told.count, "event"))
}

fn manifest_summary(manifest: &Manifest) -> String {
    let Manifest { cluster, from, to, count: number, sha256, .. } = manifest;
    format!("cluster {cluster}, positions {from}-{to}: {}, SHA-256 {sha256}", count(*number, "message"))
}

pub(super) async fn import(
    file: &Path,
    goes_on: bool,
    replicas: usize,
    global: &Global,
) -> Result<(), Failure> {
    let doing = |failure: Failure| failure.while_doing(format!("import {}", file.display()));
    let Some(place) = journal_location(global) else {
        let why = "no destination is set: an import creates a new journal";
        return Err(doing(
            Failure::usage(why).advise("set a data folder (--data DIR) or a NATS server (--nats URL)"),
        ));
    };
    let work = async {
        let manifest = import::validate(file)?;
        let journal = open(global, place, replicas, manifest.to).await?;
        let done = import::import(&journal, file, &manifest, goes_on).await;
        journal.close().await;
        done.map(|()| manifest)
    };
    let manifest = until_interrupted(Box::pin(work)).await.map_err(doing)?;
    Output::new(global).write_one(&manifest, |manifest, _| {
        let Manifest { cluster, to, count: number, .. } = manifest;
        format!(
            "cluster {cluster}: {} up to position {to}, verified against the file",
            count(*number, "message")
        )
    })
}

/// Opens the target journal of an import. Creates the journal if it does not exist.
async fn open(
    global: &Global,
    place: JournalLocation,
    replicas: usize,
    to: Position,
) -> Result<Journal, Failure> {
    match place {
        JournalLocation::Data(folder) => {
            let opened = Sqlite::open(&folder).await;
            opened.map(Journal::Sqlite).map_err(|error| Failure::new(Exit::Failed, "Journal", chain(&error)))
        }
        JournalLocation::Nats => {
            let nats = nats(global).ok_or_else(|| Failure::usage("no NATS server is set"))?;
            let (id, _) = identity("import")?;
            let settings = StreamSettings { replicas, imports: Some(to), ..StreamSettings::default() };
            Ok(nats.journal(&format!("{id} writer"), &Inbox::BbsWriter(id), &settings).await?)
        }
    }
}
