//! `muster export` and `muster import`: the log as a file, and back.

use std::path::Path;

use ::journal::{Journal, Sqlite, StreamSettings};
use audit::export::Manifest;
use schemas::bus::Inbox;
use schemas::query::AsOf;
use serde::Serialize;

use super::args::{ExportFormat, Global};
use super::connect::{JournalPlace, journal_place};
use super::direct::read_journal;
use super::failure::{Exit, Failure};
use super::moment;
use super::output::{Output, note};
use super::words::count;
use crate::archive::file::Sink;
use crate::archive::range::{self, Range};
use crate::archive::{cluster_of, export, import, unless_cancelled};
use crate::error::chain;
use crate::launch;
use crate::serve::identity;

/// What was exported as events.
#[derive(Serialize)]
struct Exported {
    events: u64,
    not_entries: u64,
}

impl Exported {
    fn told(&self) -> String {
        let aside = match self.not_entries {
            0 => String::new(),
            some => format!("; {} of no entry", count(some, "message")),
        };
        format!("{}{aside}", count(self.events, "event"))
    }
}

pub(super) async fn export(
    file: &Path,
    (from, to): (Option<AsOf>, Option<AsOf>),
    format: ExportFormat,
    global: &Global,
) -> Result<(), Failure> {
    let doing = |failure: Failure| failure.doing("export the log");
    let (from, to) = (from.map(moment::settled).transpose()?, to.map(moment::settled).transpose()?);
    let journal = read_journal(global).await.map_err(doing)?;
    let work = async {
        let range = range::find(&journal, from, to).await?;
        write(&journal, range, format, file, Output::new(global)).await
    };
    let done = unless_cancelled(Box::pin(work)).await;
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
    let to_stdout = file == Path::new("-");
    let says = |text: String| if to_stdout { note(&text) } else { drop(super::output::line(&text)) };
    match format {
        ExportFormat::Jsonl => {
            let manifest = export::lines(journal, cluster, range, &mut sink).await?;
            sink.finish()?;
            if output.is_for_people() || to_stdout {
                says(exported(&manifest));
            } else {
                output.one(&manifest, |_, _| String::new())?;
            }
        }
        ExportFormat::Cloudevents => {
            let told = export::events(journal, cluster, range, &mut sink).await?;
            sink.finish()?;
            let done = Exported { events: told.count, not_entries: told.set_aside };
            if output.is_for_people() || to_stdout {
                says(format!("positions {}-{}: {}", range.from, range.to, done.told()));
            } else {
                output.one(&done, |_, _| String::new())?;
            }
        }
        ExportFormat::Parquet => {
            let (told, manifest) = export::columns(journal, cluster, range, &mut sink).await?;
            sink.finish()?;
            let done = Exported { events: told.count, not_entries: told.set_aside };
            if output.is_for_people() || to_stdout {
                says(format!("{} as columns: {}", exported(&manifest), done.told()));
            } else {
                output.one(&manifest, |_, _| String::new())?;
            }
        }
    }
    Ok(())
}

fn exported(manifest: &Manifest) -> String {
    let Manifest { cluster, from, to, count: number, sha256, .. } = manifest;
    format!("cluster {cluster}, positions {from}-{to}: {}, SHA-256 {sha256}", count(*number, "message"))
}

pub(super) async fn import(
    file: &Path,
    goes_on: bool,
    replicas: usize,
    global: &Global,
) -> Result<(), Failure> {
    let doing = |failure: Failure| failure.doing(format!("import {}", file.display()));
    let Some(place) = journal_place(global) else {
        let why = "nothing says where to: an import makes a journal of its own";
        return Err(doing(
            Failure::usage(why).advise("name a data folder (--data DIR) or a NATS server (--nats URL)"),
        ));
    };
    let work = async {
        let manifest = import::check(file)?;
        let journal = open(global, place, replicas).await?;
        let done = import::import(&journal, file, &manifest, goes_on).await;
        journal.close().await;
        done.map(|()| manifest)
    };
    let manifest = unless_cancelled(Box::pin(work)).await.map_err(doing)?;
    Output::new(global).one(&manifest, |manifest, _| {
        let Manifest { cluster, to, count: number, .. } = manifest;
        format!(
            "cluster {cluster}: {} up to position {to}, compared with the file",
            count(*number, "message")
        )
    })
}

/// Opens the journal that is to be written, or makes it.
async fn open(global: &Global, place: JournalPlace, replicas: usize) -> Result<Journal, Failure> {
    match place {
        JournalPlace::Data(folder) => {
            let opened = Sqlite::open(&folder).await;
            opened.map(Journal::Sqlite).map_err(|error| Failure::new(Exit::Failed, "Journal", chain(&error)))
        }
        JournalPlace::Nats => {
            let nats = launch::nats(global).ok_or_else(|| Failure::usage("no NATS server is named"))?;
            let (id, _) = identity("import")?;
            let settings = StreamSettings { replicas, create: true, monitoring: vec![] };
            Ok(nats.journal(&format!("{id} writer"), &Inbox::BbsWriter(id), &settings).await?)
        }
    }
}
