//! `muster bundle`: packs an incident into a folder, to be replayed elsewhere.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::journal::{Journal, Recorded};
use audit::export::Manifest;
use projections::Reader;
use schemas::Position;
use schemas::query::{AsOf, Moment, ReadEntry, RecordedEntry};
use tokio::process::Command;

use super::args::Global;
use super::direct::inspect_journal;
use super::events;
use super::failure::{Exit, Failure};
use super::moment;
use super::output::{Look, Output, note};
use super::words::count;
use crate::archive::file::Sink;
use crate::archive::range::{self, Range};
use crate::archive::source::Pages;
use crate::archive::{cluster_of, export, failed, unless_cancelled, unreadable};

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
const PATIENCE: &str = "10s";

pub(super) async fn run(around: AsOf, minutes: u64, folder: &Path, global: &Global) -> Result<(), Failure> {
    let doing = |failure: Failure| failure.doing("pack a bundle");
    unless_cancelled(Box::pin(pack(around, minutes, folder, global))).await.map_err(doing)
}

async fn pack(around: AsOf, minutes: u64, folder: &Path, global: &Global) -> Result<(), Failure> {
    let journal = inspect_journal(global).await?;
    let cluster = cluster_of(&journal).await?;
    let (window, whole) = window(&journal, moment::settled(around)?, minutes).await?;
    let part = Part::make(folder)?;
    let mut sink = Sink::create(&part.path.join(LOG))?;
    let manifest = export::lines(&journal, cluster, whole, &mut sink).await?;
    sink.finish()?;
    let mut sink = Sink::create(&part.path.join(EVENTS))?;
    events_of(&journal, window, &mut sink).await?;
    sink.finish()?;
    journal.close().await;
    for (file, words) in REPORTS {
        write(&part.path.join(file), &asked(words, global).await?)?;
    }
    write(&part.path.join("README.md"), &readme(window, &manifest))?;
    part.name(folder)?;
    Output::new(global).one(&manifest, |manifest, _| {
        format!(
            "{}: {} up to position {}, of which {}-{} are around it",
            folder.display(),
            count(manifest.count, "message"),
            manifest.to,
            window.from,
            window.to
        )
    })
}

/// Returns the range around a moment, and the range of the log up to its end. Only a log that starts at
/// position 1 can be replayed. If nothing happened around the moment, the first range is the last entry
/// before it.
async fn window(journal: &Journal, around: Moment, minutes: u64) -> Result<(Range, Range), Failure> {
    let end = journal.end().await.map_err(unreadable)?;
    let time = match around {
        Moment::Time(time) => time,
        Moment::Position(position) => {
            let whole = range::find(journal, None, Some(Moment::Position(position))).await?;
            let at = range::time_at(journal, whole.to).await?;
            at.ok_or_else(|| failed(format!("position {position} holds no entry: name a time")))?
        }
    };
    let length = Duration::from_secs(minutes * 60);
    let whole = range::find(journal, None, Some(Moment::Time(time + length))).await?;
    let from = range::first_at(journal, time - length, end).await?.unwrap_or(whole.to);
    Ok((Range { from: from.min(whole.to), to: whole.to }, whole))
}

/// Temporary folder that is deleted unless it is completed and renamed.
struct Part {
    path: PathBuf,
    named: bool,
}

impl Part {
    /// Creates the temporary folder next to its destination, accessible to this user only.
    fn make(folder: &Path) -> Result<Self, Failure> {
        let name = folder.file_name();
        let name = name.ok_or_else(|| Failure::usage(format!("{} names no folder", folder.display())))?;
        if fs::symlink_metadata(folder).is_ok() {
            return Err(exists(folder));
        }
        let path = folder.with_file_name(format!(".{}.{}.part", name.to_string_lossy(), std::process::id()));
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| failed(format!("can't make {}: {error}", path.display())))?;
        Ok(Self { path, named: false })
    }

    /// Renames the complete folder to its destination.
    fn name(mut self, folder: &Path) -> Result<(), Failure> {
        fs::rename(&self.path, folder).map_err(|error| {
            let taken = [ErrorKind::AlreadyExists, ErrorKind::DirectoryNotEmpty, ErrorKind::NotADirectory];
            if taken.contains(&error.kind()) {
                return exists(folder);
            }
            failed(format!("can't make {}: {error}", folder.display()))
        })?;
        self.named = true;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.named {
            // A folder that cannot be deleted keeps its `.part` name, which shows that it is incomplete.
            fs::remove_dir_all(&self.path).ok();
        }
    }
}

fn exists(folder: &Path) -> Failure {
    let why = format!("{} exists already: name a folder that doesn't", folder.display());
    Failure::new(Exit::Conflict, "ResourceExists", why)
}

/// Writes the events of a range like `muster events`, including entries that cannot be read.
async fn events_of(journal: &Journal, range: Range, sink: &mut Sink) -> Result<(), Failure> {
    let look = Look { now: clock::now(), full_ids: false, colour: false };
    let reader = Reader::default();
    let mut pages = Pages::new(journal.clone(), Position(range.from.0.saturating_sub(1)), range.to);
    while let Some(next) = pages.next().await? {
        let mut lines = events::lines(&shown(&reader, next), look);
        lines.push('\n');
        sink.write(lines.as_bytes())?;
    }
    Ok(())
}

fn shown(reader: &Reader, recorded: Recorded) -> RecordedEntry {
    let entry = match reader.check(recorded.position, &recorded.subject, &recorded.bytes) {
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
async fn asked(words: &[&str], global: &Global) -> Result<String, Failure> {
    let program =
        std::env::current_exe().map_err(|error| failed(format!("can't find this program: {error}")))?;
    let mut command = Command::new(program);
    command.kill_on_drop(true).args(words).args(["--color", "never", "--timeout", PATIENCE]);
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
    let done = command.output().await.map_err(|error| failed(format!("can't ask the cluster: {error}")))?;
    if !done.status.success() && done.stdout.is_empty() {
        note(&format!("muster {} had no answer: the bundle says so", words.join(" ")));
    }
    let texts = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    Ok(format!("$ muster {}\n{}", words.join(" "), texts.concat()))
}

fn readme(window: Range, manifest: &Manifest) -> String {
    let Manifest { cluster, program, to, count: number, sha256, .. } = manifest;
    let Range { from, to: until } = window;
    format!(
        "# An incident of cluster {cluster}

Packed by {program}. {LOG} is the whole log up to position {to} ({number} messages, SHA-256 of all lines but the last
{sha256}); the incident is in positions {from} to {until}.

Replay it, with nothing decided and nothing run:

    muster dev --from-export {LOG} --paused

and ask it in another terminal:

    muster status
    muster instance list
    muster events list --after {after}
    muster history lrp GUID
    muster why GUID/INDEX
    muster sql \"SELECT * FROM events WHERE position >= {from}\"

{EVENTS} has the events of the incident. status.txt, cluster.txt, cells.txt and instances.txt say what the cluster itself
answered when this was packed. Values that are marked secret are sealed here, as in the log. Everything else that somebody
desired or reported stands here as it is, environment values and results of tasks among it: treat this folder accordingly.
",
        after = from.0.saturating_sub(1),
    )
}
