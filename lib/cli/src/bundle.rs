//! `muster bundle`: packs an incident into a folder, to be replayed elsewhere.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::journal::{Journal, StoredEntry};
use audit::export::Manifest;
use clap::Args;
use cli_base::failure::Failure;
use cli_base::moment;
use cli_base::options::Global;
use cli_base::output::{Output, RenderOptions, note};
use projections::Reader;
use runtime::exit::Exit;
use schemas::Position;
use schemas::query::{AsOf, Moment, ReadEntry, RecordedEntry};
use text::words::{count, number};
use tokio::process::Command;

use super::archive::file::Sink;
use super::archive::range::{self, Range};
use super::archive::source::Pages;
use super::archive::{cluster_of, export, failed, unreadable, until_interrupted};
use super::events;
use super::journal_access::inspect_journal;

/// Maximum value of `muster bundle --minutes`: 366 days.
const MAX_MINUTES: u64 = 366 * 24 * 60;
/// File with the log.
const LOG: &str = "log.jsonl";
/// File with the events around the moment.
const EVENTS: &str = "events.txt";
/// Report files, each with the command that produces it.
const REPORTS: [(&str, &[&str]); 4] = [
    ("status.txt", &["status"]),
    ("cluster.txt", &["cluster", "show"]),
    ("cells.txt", &["cell", "list"]),
    ("instances.txt", &["instance", "list"]),
];
/// Timeout of each report from the cluster.
const REPORT_TIMEOUT: &str = "10s";

/// Arguments of `muster bundle`.
#[derive(Clone, Debug, Args)]
pub struct BundleArgs {
    /// Moment of the incident: a log position, a time, or a time ago such as -10m
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
    around: AsOf,
    /// Minutes to include before and after the moment
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = number(0..=MAX_MINUTES), allow_negative_numbers = true)]
    minutes: u64,
    /// Folder to create
    folder: PathBuf,
}

pub(super) async fn run(args: BundleArgs, global: &Global) -> Result<(), Failure> {
    let doing = |failure: Failure| failure.while_doing("pack a bundle");
    until_interrupted(Box::pin(pack(args, global))).await.map_err(doing)
}

async fn pack(args: BundleArgs, global: &Global) -> Result<(), Failure> {
    let BundleArgs { around, minutes, folder } = args;
    let journal = inspect_journal(global).await?;
    let cluster = cluster_of(&journal).await?;
    let (window, whole) = window(&journal, moment::resolve(around)?, minutes).await?;
    let part = PartialFolder::create(&folder)?;
    let mut sink = Sink::create(&part.path.join(LOG))?;
    let manifest = export::export_lines(&journal, cluster, whole, &mut sink).await?;
    sink.finish()?;
    let mut sink = Sink::create(&part.path.join(EVENTS))?;
    write_events(&journal, window, &mut sink).await?;
    sink.finish()?;
    journal.close().await;
    for (file, words) in REPORTS {
        write(&part.path.join(file), &run_report(words, global).await?)?;
    }
    write(&part.path.join("README.md"), &readme(window, &manifest))?;
    part.commit(&folder)?;
    Output::new(global).write_one(&manifest, |manifest, _| {
        format!(
            "{}: {} up to position {}; positions {}-{} cover the incident",
            folder.display(),
            count(manifest.count, "message"),
            manifest.to,
            window.from,
            window.to
        )
    })
}

/// Returns two ranges with the same end. The first contains the entries around the moment. The second begins
/// at the start of the log, because only a log that starts at position 1 can be replayed. If no entry was
/// decided around the moment, the first range contains only the last entry before the moment.
async fn window(journal: &Journal, around: Moment, minutes: u64) -> Result<(Range, Range), Failure> {
    let end = journal.end().await.map_err(unreadable)?;
    let time = match around {
        Moment::Time(time) => time,
        Moment::Position(position) => {
            let whole = range::find(journal, None, Some(Moment::Position(position))).await?;
            let at = range::time_at(journal, whole.to).await?;
            at.ok_or_else(|| failed(format!("no entry at position {position}: pass a time instead")))?
        }
    };
    let length = Duration::from_secs(minutes * 60);
    let whole = range::find(journal, None, Some(Moment::Time(time + length))).await?;
    let from = range::first_at_or_after(journal, time - length, end).await?.unwrap_or(whole.to);
    Ok((Range { from: from.min(whole.to), to: whole.to }, whole))
}

/// Temporary folder that is deleted unless it is completed and renamed.
struct PartialFolder {
    path: PathBuf,
    committed: bool,
}

impl PartialFolder {
    /// Creates the temporary folder next to its destination, accessible to this user only.
    fn create(folder: &Path) -> Result<Self, Failure> {
        let name = folder.file_name();
        let name = name.ok_or_else(|| {
            Failure::usage(format!(
                "invalid folder {}: expected a path that ends with a name",
                folder.display()
            ))
        })?;
        if fs::symlink_metadata(folder).is_ok() {
            return Err(already_exists(folder));
        }
        let path = folder.with_file_name(format!(".{}.{}.part", name.to_string_lossy(), std::process::id()));
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| failed(format!("can't create {}: {error}", path.display())))?;
        Ok(Self { path, committed: false })
    }

    /// Renames the complete folder to its destination.
    fn commit(mut self, folder: &Path) -> Result<(), Failure> {
        fs::rename(&self.path, folder).map_err(|error| {
            let taken = [ErrorKind::AlreadyExists, ErrorKind::DirectoryNotEmpty, ErrorKind::NotADirectory];
            if taken.contains(&error.kind()) {
                return already_exists(folder);
            }
            failed(format!("can't create {}: {error}", folder.display()))
        })?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for PartialFolder {
    fn drop(&mut self) {
        if !self.committed {
            // A folder that cannot be deleted keeps its `.part` name, which shows that it is incomplete.
            fs::remove_dir_all(&self.path).ok();
        }
    }
}

fn already_exists(folder: &Path) -> Failure {
    let why = format!("{} already exists: choose a new folder", folder.display());
    Failure::new(Exit::Conflict, "ResourceExists", why)
}

/// Writes the events of a range like `muster events`, including entries that cannot be read.
async fn write_events(journal: &Journal, range: Range, sink: &mut Sink) -> Result<(), Failure> {
    let look = RenderOptions { now: clock::now(), full_ids: false, colour: false };
    let reader = Reader::default();
    let mut pages = Pages::new(journal.clone(), Position(range.from.0.saturating_sub(1)), range.to);
    while let Some(next) = pages.next().await? {
        let mut lines = events::lines(&checked_entry(&reader, next), look);
        lines.push('\n');
        sink.write(lines.as_bytes())?;
    }
    Ok(())
}

fn checked_entry(reader: &Reader, recorded: StoredEntry) -> RecordedEntry {
    let entry = match reader.decode(recorded.position, &recorded.subject, &recorded.bytes) {
        Ok(entry) => ReadEntry::Known(entry),
        Err(why) => ReadEntry::unknown(why.to_string(), &recorded.bytes),
    };
    RecordedEntry { position: recorded.position, subject: recorded.subject, entry }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let mut sink = Sink::create(path)?;
    sink.write(text.as_bytes())?;
    sink.finish()
}

/// Runs a command of this program and returns its output, including errors such as an unreachable cluster.
async fn run_report(words: &[&str], global: &Global) -> Result<String, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| failed(format!("can't find the executable of this program: {error}")))?;
    let mut command = Command::new(program);
    command.kill_on_drop(true).args(words).args(["--color", "never", "--timeout", REPORT_TIMEOUT]);
    for (flag, value) in [
        ("--nats", global.nats.as_ref().map(Into::into)),
        ("--creds", global.creds.as_ref().map(|path| path.clone().into_os_string())),
        ("--tls-ca", global.tls.tls_ca.as_ref().map(|path| path.clone().into_os_string())),
        ("--tls-cert", global.tls.tls_cert.as_ref().map(|path| path.clone().into_os_string())),
        ("--tls-key", global.tls.tls_key.as_ref().map(|path| path.clone().into_os_string())),
        ("--data", global.data.as_ref().map(|path| path.clone().into_os_string())),
        ("--socket", global.socket.as_ref().map(|path| path.clone().into_os_string())),
    ] {
        if let Some(value) = value {
            command.arg(flag).arg::<std::ffi::OsString>(value);
        }
    }
    let done = command.output().await;
    let done = done.map_err(|error| failed(format!("can't run muster {}: {error}", words.join(" "))))?;
    if !done.status.success() && done.stdout.is_empty() {
        note(&format!("muster {} failed: the bundle contains its error message", words.join(" ")));
    }
    let texts = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    Ok(format!("$ muster {}\n{}", words.join(" "), texts.concat()))
}

fn readme(window: Range, manifest: &Manifest) -> String {
    let Manifest { cluster, program, to, count: number, sha256, .. } = manifest;
    let Range { from, to: until } = window;
    format!(
        "# Incident of cluster {cluster}

Packed by {program}. {LOG} is the whole log up to position {to} ({number} messages, SHA-256 of all lines but the last
{sha256}); the incident is in positions {from} to {until}.

Replay it read-only, so that no command is accepted and no program runs:

    muster dev --from-export {LOG} --paused

Query it in another terminal:

    muster status
    muster instance list
    muster events list --after {after}
    muster history lrp GUID
    muster why GUID/INDEX
    muster sql \"SELECT * FROM events WHERE position >= {from}\"

{EVENTS} has the events of the incident. status.txt, cluster.txt, cells.txt and instances.txt are reports of
the running cluster at the time of packing. Values that are marked secret are sealed, as in the log. All other
desired and reported data is in plain text, including environment values and results of tasks: protect this
folder accordingly.
",
        after = from.0.saturating_sub(1),
    )
}
