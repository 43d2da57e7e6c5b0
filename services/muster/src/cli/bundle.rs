//! `muster bundle`: an incident in a folder, to be replayed elsewhere.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use audit::export::{Manifest, time_of};
use schemas::Position;
use schemas::query::{AsOf, Moment};

use super::args::Global;
use super::direct::read_journal;
use super::failure::{Exit, Failure};
use super::moment;
use super::output::{Output, note};
use super::words::count;
use crate::archive::file::Sink;
use crate::archive::range::{self, Range};
use crate::archive::{cluster_of, export, failed, unless_cancelled, unreadable};

/// The log in the folder.
const LOG: &str = "log.jsonl";
/// What a running cluster is asked, and the file of its answer.
const REPORTS: [(&str, &[&str]); 4] = [
    ("status.txt", &["status"]),
    ("cluster.txt", &["cluster", "show"]),
    ("cells.txt", &["cell", "list"]),
    ("instances.txt", &["instance", "list"]),
];
/// Reports that a cluster is asked for wait so long at the most.
const PATIENCE: &str = "10s";

pub(super) async fn run(around: AsOf, minutes: u64, folder: &Path, global: &Global) -> Result<(), Failure> {
    let doing = |failure: Failure| failure.doing("pack a bundle");
    unless_cancelled(Box::pin(pack(around, minutes, folder, global))).await.map_err(doing)
}

async fn pack(around: AsOf, minutes: u64, folder: &Path, global: &Global) -> Result<(), Failure> {
    let journal = read_journal(global).await?;
    let cluster = cluster_of(&journal).await?;
    let (window, whole) = window(&journal, moment::settled(around)?, minutes).await?;
    make(folder)?;
    let mut sink = Sink::create(&folder.join(LOG))?;
    let manifest = export::lines(&journal, cluster, whole, &mut sink).await?;
    sink.finish()?;
    journal.close().await;
    write(&folder.join("events.txt"), &asked(&events(window), global)?)?;
    for (file, words) in REPORTS {
        write(
            &folder.join(file),
            &asked(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>().as_slice(), global)?,
        )?;
    }
    write(&folder.join("README.md"), &readme(window, &manifest))?;
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

/// What is around a moment, and the log up to there: only what begins at the beginning can be replayed.
async fn window(
    journal: &::journal::Journal,
    around: Moment,
    minutes: u64,
) -> Result<(Range, Range), Failure> {
    let end = journal.end().await.map_err(unreadable)?;
    let time = match around {
        Moment::Time(time) => time,
        Moment::Position(position) => {
            let whole = range::find(journal, None, Some(Moment::Position(position))).await?;
            let page = journal.read(Position(whole.to.0 - 1), None, 1).await.map_err(unreadable)?;
            let at = page.first().and_then(|one| time_of(&one.bytes));
            at.ok_or_else(|| failed(format!("position {position} holds no entry: name a time")))?
        }
    };
    let length = Duration::from_secs(minutes * 60);
    let whole = range::find(journal, None, Some(Moment::Time(time + length))).await?;
    let from = range::find(journal, Some(Moment::Time(time - length)), Some(Moment::Position(end))).await?;
    Ok((Range { from: from.from.min(whole.to), to: whole.to }, whole))
}

fn make(folder: &Path) -> Result<(), Failure> {
    fs::DirBuilder::new().mode(0o700).create(folder).map_err(|error| {
        if error.kind() == ErrorKind::AlreadyExists {
            let why = format!("{} exists already: name a folder that doesn't", folder.display());
            return Failure::new(Exit::Conflict, "ResourceExists", why);
        }
        failed(format!("can't make {}: {error}", folder.display()))
    })
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let mut sink = Sink::create(path)?;
    sink.write(text.as_bytes())?;
    sink.finish()
}

fn events(window: Range) -> Vec<String> {
    let after = window.from.0.saturating_sub(1).to_string();
    ["events", "list", "--after", &after].map(str::to_owned).to_vec()
}

/// What the cluster answers to a command of this program: also that it doesn't answer.
fn asked(words: &[String], global: &Global) -> Result<String, Failure> {
    let program =
        std::env::current_exe().map_err(|error| failed(format!("can't find this program: {error}")))?;
    let mut command = Command::new(program);
    command.args(words).args(["--color", "never", "--timeout", PATIENCE]);
    for (flag, value) in [
        ("--nats", global.nats.as_ref().map(Into::into)),
        ("--creds", global.creds.as_ref().map(|path| path.clone().into_os_string())),
        ("--data", global.data.as_ref().map(|path| path.clone().into_os_string())),
        ("--socket", global.socket.as_ref().map(|path| path.clone().into_os_string())),
    ] {
        if let Some(value) = value {
            command.arg(flag).arg::<std::ffi::OsString>(value);
        }
    }
    let done = command.output().map_err(|error| failed(format!("can't ask the cluster: {error}")))?;
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

events.txt, status.txt, cluster.txt, cells.txt and instances.txt say what the cluster itself answered when this was packed.
The log may hold secrets, as environment values: treat this folder accordingly.
",
        after = from.0.saturating_sub(1),
    )
}
