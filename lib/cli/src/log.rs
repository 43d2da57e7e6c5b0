//! `muster export` and `muster import`: copy the log to a file and back.

use std::path::{Path, PathBuf};

use ::journal::{Journal, Sqlite, StreamSettings};
use audit::export::Manifest;
use clap::{Args, ValueEnum};
use cli_base::connect::{JournalLocation, journal_location, nats};
use cli_base::failure::Failure;
use cli_base::moment;
use cli_base::options::Global;
use cli_base::output::{Output, note};
use host::serve::{identity, parse_replicas};
use runtime::exit::Exit;
use schemas::Position;
use schemas::bus::Inbox;
use schemas::query::AsOf;
use text::chain;
use text::words::count;

use super::archive::export::{self, EventCounts};
use super::archive::file::Sink;
use super::archive::range::{self, Range};
use super::archive::{cluster_of, failed, import, until_interrupted};
use super::journal_access::inspect_journal;

/// Arguments of `muster import`.
#[derive(Clone, Debug, Args)]
pub struct ImportArgs {
    /// File written by muster export
    file: PathBuf,
    /// Continue an interrupted import of the same file
    #[arg(long = "continue")]
    goes_on: bool,
    /// NATS servers that must store each entry, if the stream is created: 1, 3 or 5
    #[arg(long, default_value_t = 1, value_parser = parse_replicas, allow_negative_numbers = true, env = "MUSTER_REPLICAS")]
    replicas: usize,
}

/// Arguments of `muster export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// File to write; - is standard output
    file: PathBuf,
    /// First position to export, or the earliest decision time [default: the start of the log]
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
    from: Option<AsOf>,
    /// Last position to export, or the latest decision time [default: the end of the log]
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
    to: Option<AsOf>,
    /// Format of the file
    #[arg(long, value_enum, default_value_t)]
    format: ExportFormat,
}

/// Format of an exported log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// The journal itself, one message per line, with a manifest: muster import reads it
    #[default]
    Jsonl,
    /// Events as CloudEvents 1.0, one per line
    Cloudevents,
    /// Events as columns, like the table events, in an Apache Parquet file: requires the feature parquet
    Parquet,
}

pub(super) async fn export(args: ExportArgs, global: &Global) -> Result<(), Failure> {
    let ExportArgs { file, from, to, format } = args;
    let doing = |failure: Failure| failure.while_doing("export the log");
    if format == ExportFormat::Parquet && cfg!(not(feature = "parquet")) {
        return Err(doing(no_parquet()));
    }
    let (from, to) = (from.map(moment::resolve).transpose()?, to.map(moment::resolve).transpose()?);
    let journal = inspect_journal(global).await.map_err(doing)?;
    let work = async {
        let range = range::find(&journal, from, to).await?;
        write(&journal, range, format, &file, Output::new(global)).await
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

pub(super) async fn import(args: ImportArgs, global: &Global) -> Result<(), Failure> {
    let ImportArgs { file, goes_on, replicas } = args;
    let doing = |failure: Failure| failure.while_doing(format!("import {}", file.display()));
    let Some(place) = journal_location(global) else {
        let why = "no destination is set: an import creates a new journal";
        return Err(doing(
            Failure::usage(why).advise("set a data folder (--data DIR) or a NATS server (--nats URL)"),
        ));
    };
    let work = async {
        let manifest = import::validate(&file)?;
        let journal = open(global, place, replicas, manifest.to).await?;
        let done = import::import(&journal, &file, &manifest, goes_on).await;
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
